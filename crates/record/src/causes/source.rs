//! Events of a trace buffer of our own as the recording in which causes are searched.
//!
//! The kernel writes into a ring for each measured CPU and overwrites what is old. The rings are read only when there are
//! spikes to be explained.

use crate::RecordError;
use crate::buffer::Buffer;
use crate::histograms::threads_of;
use crate::keep::own_command;
use crate::recorder::cpu_mask;
use crate::stream::{self, Stream};
use crate::tracefs::Tracefs;
use whylate_bpf::{Activities, BpfError, Symbols, kernel_functions};
use whylate_core::recording::Recording;
use whylate_core::{CpuId, CpuSet, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_sys::{clock, process};
use whylate_trace::segments::{Assembler, OwnThreads};

/// Size of each CPU's ring: spikes are explained 20 times a second, and an interrupt storm writes tens of MiB a second.
const RING_KIB: u32 = 8192;
/// How far before the start of a window segments are given.
const BEFORE_NS: u64 = 200_000;

/// Without these there are no causes.
const NEEDED: [&str; 2] = ["sched/sched_switch", "sched/sched_waking"];
/// What else is recorded if the kernel has it, by what is missing without.
const OPTIONAL: [(&str, &[&str]); 11] = [
    ("late timers", &["timer/hrtimer_start", "timer/hrtimer_expire_entry", "timer/hrtimer_expire_exit"]),
    ("interrupts by line", &["irq/irq_handler_entry", "irq/irq_handler_exit"]),
    ("softirqs", &["irq/softirq_entry", "irq/softirq_exit"]),
    ("non-maskable interrupts", &["nmi/nmi_handler"]),
    ("idle states", &["power/cpu_idle"]),
    ("page faults", &PAGE_FAULTS),
    ("migrations", &["sched/sched_migrate_task"]),
    ("locks", &["lock/contention_begin", "lock/contention_end"]),
    ("functions of timers", &["timer/timer_expire_entry", "timer/timer_expire_exit"]),
    ("work items", &["workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end"]),
    ("functions run for other CPUs", &["csd/csd_function_entry", "csd/csd_function_exit"]),
];
/// Recorded for the measuring threads alone.
const PAGE_FAULTS: [&str; 2] = ["exceptions/page_fault_user", "exceptions/page_fault_kernel"];
/// The event that gets stacks, of handlers that wake a thread.
const TIMER_EXPIRES: &str = "timer/hrtimer_expire_entry";
const WAKES: &str = "hrtimer_wakeup";
/// A stack in a trace buffer.
const STACK: &str = "ftrace/kernel_stack";
/// Interrupts that have a vector and events of their own on x86, and those of its events that report none.
const VECTORS: (&str, &str) = ("irq_vectors", "irq_vectors/vector_");

/// A recording in a trace buffer. Dropping it ends it and removes the buffer.
pub(super) struct TraceActivities {
    // Before the buffer: an open file would keep it busy.
    stream: Stream,
    assembler: Assembler,
    own: OwnThreads,
    processes: Vec<(CpuSet, u32)>,
    symbols: Symbols,
    buffer: Buffer,
}

impl TraceActivities {
    /// Makes a buffer and starts recording these CPUs; warnings say which events the kernel lacks.
    pub(super) fn start(host: &HostRoot, cpus: &CpuSet) -> Result<(Self, Vec<Warning>), RecordError> {
        let buffer = Buffer::create(host, "causes")?;
        if let Some(event) = NEEDED.into_iter().find(|event| !buffer.tracefs().has_event(event)) {
            return Err(RecordError::Unavailable(format!("this kernel has no event {event}")));
        }
        buffer.set("trace_clock", "mono")?;
        buffer.set("buffer_size_kb", &RING_KIB.to_string())?;
        buffer.set("tracing_cpumask", &cpu_mask(cpus))?;
        let (events, mut missing) = events(buffer.tracefs());
        let functions = kernel_functions();
        let names: Vec<&str> = events.iter().map(String::as_str).collect();
        let rings: Vec<CpuId> =
            stream::cpus_of(buffer.folder())?.into_iter().filter(|cpu| cpus.contains(*cpu)).collect();
        let stacks = keep_stacks(&buffer, &functions);
        let known: Vec<&str> = names.iter().copied().chain(stacks.is_ok().then_some(STACK)).collect();
        missing.extend(
            stacks
                .err()
                .map(|reason| incomplete(&format!("late timers are recorded without a stack: {reason}"))),
        );
        let stream = Stream::open(&buffer, &rings, &known)?;
        let own = own_threads();
        for event in &names {
            if PAGE_FAULTS.contains(event) {
                filter_faults(&buffer, event);
            }
            buffer.set(&format!("events/{event}/enable"), "1")?;
        }
        buffer.set("tracing_on", "1")?;
        let complete_from_ns = clock::now().0;
        let running = Self {
            stream,
            assembler: Assembler::new(cpus.iter(), complete_from_ns),
            own,
            processes: Vec::new(),
            symbols: Symbols::new(functions),
            buffer,
        };
        Ok((running, missing))
    }

    /// Ends the recording and removes its buffer.
    ///
    /// # Errors
    /// [`RecordError::LeftBehind`] when something could not be put back.
    pub(super) fn finish(self) -> Result<(), RecordError> {
        let Self { stream, buffer, .. } = self;
        drop(stream);
        buffer.remove()
    }

    fn read(&mut self) -> Result<(), RecordError> {
        self.own.add(&self.processes, threads_of);
        let Self { stream, assembler, own, symbols, .. } = self;
        let name = &|address| symbols.name(address);
        stream.read(&mut |event, reader| assembler.take(event, reader, own, name))?;
        Ok(())
    }
}

impl Activities for TraceActivities {
    fn since(&mut self, cpu: CpuId, from_ns: u64) -> Result<Recording, BpfError> {
        self.read().map_err(|error| BpfError::TraceBuffer(error.to_string()))?;
        Ok(self.assembler.since(cpu, from_ns.saturating_sub(BEFORE_NS)))
    }

    fn keep_stacks(&mut self, from_ns: &[(CpuId, u64)]) -> Result<(), BpfError> {
        self.assembler.keep_stacks(from_ns);
        Ok(())
    }

    fn watch_process(&mut self, cpus: &CpuSet, process: u32, _start_ns: u64) -> Result<(), BpfError> {
        self.processes.retain(|(known, _)| known.intersection(cpus).is_empty());
        self.processes.push((cpus.clone(), process));
        self.own = own_threads();
        self.own.add(&self.processes, threads_of);
        Ok(())
    }
}

/// How the measured threads are recognised; none so far.
fn own_threads() -> OwnThreads {
    match process::sees_kernel_ids() {
        true => OwnThreads::Numbered(Default::default()),
        false => OwnThreads::Named { command: own_command().unwrap_or_default(), processes: Vec::new() },
    }
}

/// The events that this kernel has, and what it lacks events for.
fn events(tracefs: &Tracefs) -> (Vec<String>, Vec<Warning>) {
    let mut events: Vec<String> = NEEDED.map(str::to_owned).to_vec();
    let mut missing = Vec::new();
    for (what, of_it) in OPTIONAL {
        match of_it.iter().find(|event| !tracefs.has_event(event)) {
            None => events.extend(of_it.iter().map(|event| (*event).to_owned())),
            Some(event) => missing.push(format!("{what} are not recorded: this kernel has no event {event}")),
        }
    }
    let vectors: Vec<String> =
        tracefs.events(VECTORS.0).into_iter().filter(|event| !event.starts_with(VECTORS.1)).collect();
    if vectors.is_empty() {
        missing.push(
            "interrupts by vector are not recorded: this kernel has no events for these interrupts"
                .to_owned(),
        );
    }
    events.extend(vectors);
    (events, missing.iter().map(|text| incomplete(text)).collect())
}

fn incomplete(text: &str) -> Warning {
    Warning::new(WarningCode::CausesIncomplete, format!("causes: {text}"))
}

/// Makes the kernel record what a timer's interrupt interrupted, if the timer wakes a thread; or says why it cannot.
fn keep_stacks(buffer: &Buffer, functions: &str) -> Result<(), String> {
    let address = address_of(functions, WAKES)
        .ok_or("the kernel hides the addresses of its functions (kernel.kptr_restrict)")?;
    let trigger = format!("stacktrace if function == 0x{address}");
    let set = buffer.set(&format!("events/{TIMER_EXPIRES}/trigger"), &trigger);
    set.map_err(|error| error.to_string())
}

/// The address of a function in lines of /proc/kallsyms, in hexadecimal.
fn address_of<'l>(lines: &'l str, function: &str) -> Option<&'l str> {
    let mut parts = lines.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    parts.find_map(|words| (words.get(2) == Some(&function)).then(|| words[0]))
}

/// Makes the kernel drop page faults of other programs. Without the filter they cost more, and add nothing.
fn filter_faults(buffer: &Buffer, event: &str) {
    let command = own_command().filter(|command| !command.contains(['"', '\\'])).unwrap_or_default();
    if !command.is_empty() {
        // The causes are the same without it.
        let _ = buffer.set(&format!("events/{event}/filter"), &format!("COMM == \"{command}\""));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_its_whole_name() {
        let lines = "ffff1000 t hrtimer_wakeup_other\nffff2000 T hrtimer_wakeup\nffff3000 t hrtimer_wakeup [module]\n";
        assert_eq!(address_of(lines, WAKES), Some("ffff2000"));
        assert_eq!(address_of("", WAKES), None);
    }

    #[test]
    fn missing_events_of_the_kernel_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("sys/kernel/tracing");
        let there = ["sched/sched_switch", "irq/softirq_entry", "irq/softirq_exit", "power/cpu_idle"];
        for event in there.iter().chain(&["irq_vectors/vector_setup", "irq_vectors/local_timer_entry"]) {
            std::fs::create_dir_all(top.join("events").join(event)).unwrap();
            std::fs::write(top.join("events").join(event).join("enable"), "0\n").unwrap();
        }
        std::fs::write(top.join("trace_clock"), "[local] mono\n").unwrap();
        let (events, missing) = events(&Tracefs::find(&HostRoot::at(folder.path())).unwrap());
        let known = [
            "sched/sched_switch",
            "sched/sched_waking",
            "irq/softirq_entry",
            "irq/softirq_exit",
            "power/cpu_idle",
            "irq_vectors/local_timer_entry",
        ];
        assert_eq!(events, known);
        let texts: Vec<&str> = missing.iter().map(|warning| warning.text.as_ref()).collect();
        assert_eq!(texts.len(), OPTIONAL.len() - 2);
        assert!(
            texts.contains(&"causes: locks are not recorded: this kernel has no event lock/contention_begin")
        );
    }
}
