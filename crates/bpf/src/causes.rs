//! What took the watched CPUs: recorded by the programs, read for the window of a spike.

use crate::error::BpfError;
use crate::events::{Event, event};
use crate::facilities::broadcast_flushes;
use crate::grace::check_grace_periods;
use crate::histograms::Histograms;
use crate::layout::{NO_CPU, RawIpiCount, RawIpiKey, RawStack, WATCHED_MAX};
use crate::missed::Missed;
use crate::object::check_namespaces;
use crate::rings::{READ_MAX, Rings, ring_size, ring_stacks};
use crate::settings::{Activities, HistogramsConfig};
use crate::snapshot::Facility;
use crate::symbols::{Symbols, kernel_functions, name_of_function};
use crate::watching::{Watching, WatchingTasks};
use std::collections::HashMap;
use whylate_core::record::IpiRecord;
use whylate_core::recording::OWN;
use whylate_core::recording::Recording;
use whylate_core::{CpuId, CpuSet, Warning, WarningCode};
use whylate_host::{HostRoot, idle_driver::idle_driver};
use zerocopy::transmute;

/// How far before the start of a window segments are read.
const BEFORE_NS: u64 = 200_000;

/// The facility that names functions requested by other CPUs.
pub(crate) const FUNCTIONS: &str = "functions run for other CPUs";
/// The facility that names the senders of interrupts.
pub(crate) const SENDERS: &str = "senders of interrupts";

/// The facility of [`VECTORS`].
pub(crate) const BY_VECTOR: &str = "interrupts by vector";

type IpiKeyBytes = [u8; size_of::<RawIpiKey>()];
type IpiCountBytes = [u8; size_of::<RawIpiCount>()];

/// The facility that records idle states.
const IDLE_STATES: &str = "idle states";
/// The facility that records page faults.
const PAGE_FAULTS: &str = "page faults";
/// Replaces their events on arm64, which has none.
const PAGE_FAULT_ENTERED: Event = event("page_fault_entered", "do_mem_abort");

/// What the events are for, and the programs for them.
pub(crate) const EVENTS: [(&str, &[Event]); 11] = [
    ("interrupts by line", &[event("irq_entry", "irq_handler_entry"), event("irq_exit", "irq_handler_exit")]),
    ("softirqs", &[event("softirq_entry", "softirq_entry"), event("softirq_exit", "softirq_exit")]),
    ("non-maskable interrupts", &[event("nmi_handler", "nmi_handler")]),
    (IDLE_STATES, &[event("idle", "cpu_idle")]),
    (
        PAGE_FAULTS,
        &[event("page_fault_user", "page_fault_user"), event("page_fault_kernel", "page_fault_kernel")],
    ),
    ("migrations", &[event("migration", "sched_migrate_task")]),
    ("locks", &[event("lock_wait", "contention_begin"), event("lock_taken", "contention_end")]),
    (
        "functions of timers",
        &[
            event("wheel_set", "timer_start"),
            event("wheel_entry", "timer_expire_entry"),
            event("wheel_exit", "timer_expire_exit"),
        ],
    ),
    (
        "work items",
        &[
            event("work_queued", "workqueue_queue_work"),
            event("work_begins", "workqueue_execute_start"),
            event("work_ends", "workqueue_execute_end"),
        ],
    ),
    (FUNCTIONS, &[event("function_entry", FUNCTION_RUNS), event("function_exit", "csd_function_exit")]),
    (SENDERS, &[event("function_asked", "csd_queue_cpu"), event("ipi_sent", "ipi_send_cpu")]),
];

/// What is recorded of one measured process on each CPU: watched tasks have programs of their own.
const OF_PROCESSES: [&str; 2] = [PAGE_FAULTS, "migrations"];

/// The event of kernels from 6.5 on for a function that another CPU asked for.
pub(crate) const FUNCTION_RUNS: &str = "csd_function_entry";

/// The functions of kernels from 5.10 to 6.4 that ask other CPUs for a function.
const REQUESTS: [Event; 2] =
    [event("single_asked", "__smp_call_single_queue"), event("several_asked", "smp_call_function_many_cond")];

/// Interrupts that have a vector and events of their own on x86.
const VECTORS: [&str; 10] = [
    "local_timer",
    "reschedule",
    "call_function",
    "call_function_single",
    "irq_work",
    "x86_platform_ipi",
    "spurious_apic",
    "error_apic",
    "thermal_apic",
    "deferred_error_apic",
];

/// The search for causes, running. It ends when this is dropped.
pub struct Causes {
    pub(crate) histograms: Histograms,
    cpus: CpuSet,
    rings: Rings,
    pub(crate) symbols: Symbols,
    facilities: Vec<Facility>,
    /// Whether requests of other CPUs are seen by probes in the kernel: it has no events for them.
    probes_requests: bool,
    /// The counts at the last call of [`Self::ipis`].
    ipis_before: HashMap<IpiKeyBytes, u64>,
}

impl Causes {
    /// Begins to record what takes these CPUs. `histograms` says which tasks are measured, and which histograms are
    /// kept as well (perhaps none).
    ///
    /// # Errors
    /// When the kernel refuses programs, has no type information, or lacks the events of the scheduler.
    pub fn start(host: &HostRoot, cpus: &CpuSet, histograms: &HistogramsConfig) -> Result<Self, BpfError> {
        Self::start_watching(host, cpus, histograms, None)
    }

    /// Starts recording what takes the CPUs of probes; `lowest` is the lowest priority of a probe. The warnings say what is
    /// not seen.
    ///
    /// # Errors
    /// As [`Self::start`], and where the process ids that this process sees are not the kernel's.
    pub fn of_probes(
        host: &HostRoot,
        cpus: &CpuSet,
        lowest: Option<i32>,
    ) -> Result<(Self, Vec<Warning>), BpfError> {
        check_namespaces()?;
        check_grace_periods(host)?;
        let mut config = HistogramsConfig::new(cpus.clone());
        config.kinds.clear();
        config.priority_min = lowest.map_or(config.priority_min, |lowest| lowest.min(config.priority_min));
        let causes = Self::start(host, cpus, &config)?;
        let mut warnings: Vec<Warning> = causes.facilities.iter().filter_map(warning).collect();
        let flushes = broadcast_flushes(host).map(|reason| format!("flushes of other CPUs' TLB: {reason}"));
        warnings.extend(flushes.map(|text| Warning::new(WarningCode::FlushesUnseen, text)));
        Ok((causes, warnings))
    }

    pub(crate) fn start_watching(
        host: &HostRoot,
        cpus: &CpuSet,
        histograms: &HistogramsConfig,
        tasks: Option<WatchingTasks>,
    ) -> Result<Self, BpfError> {
        let keep_ns = tasks.as_ref().map_or(0, |tasks| tasks.keep_ns);
        let (ring_segments, has_tasks) = (ring_size(cpus.len(), keep_ns), tasks.is_some());
        // With tasks, those that count are the watched ones.
        let watching = Watching { cpus: cpus.clone(), ring_segments, tasks };
        let histograms = Histograms::start_watching(histograms, Some(&watching))?;
        let rings = Rings::map(histograms.object(), cpus.len(), ring_segments)?;
        let mut causes = Self {
            histograms,
            rings,
            cpus: cpus.clone(),
            symbols: Symbols::new(kernel_functions()),
            facilities: Vec::new(),
            probes_requests: false,
            ipis_before: HashMap::new(),
        };
        let is_needed = |name: &str| !has_tasks || !OF_PROCESSES.contains(&name);
        // Without a driver there is only one idle state, and the records of the idle task already show it.
        let has_idle_states = idle_driver(|path| host.read_trimmed(path).ok().flatten()).is_some();
        for (name, events) in EVENTS.into_iter().filter(|(name, _)| is_needed(name)) {
            let events = if name == IDLE_STATES && !has_idle_states { &[] } else { events };
            let mut missing = causes.attach(events)?;
            if name == PAGE_FAULTS && missing.is_some() {
                missing = causes.attach_instead(missing, PAGE_FAULT_ENTERED)?;
            }
            causes.facilities.push(Facility { name: name.to_owned(), missing });
        }
        let missing = causes.attach_vectors()?;
        causes.facilities.push(Facility { name: BY_VECTOR.to_owned(), missing });
        if !causes.histograms.object().has_tracepoint(FUNCTION_RUNS) {
            causes.probe_requests();
        }
        Ok(causes)
    }

    /// Attaches the programs of one facility; the reason if it is incomplete.
    pub(crate) fn attach(&mut self, events: &[Event]) -> Result<Option<String>, BpfError> {
        let mut missing = None;
        for event in events {
            match self.histograms.object_mut().attach(*event) {
                Ok(None) => {}
                Ok(Some(reason)) => missing = Some(reason),
                // Continue without the event that the kernel refuses.
                Err(BpfError::Program { event, reason }) => missing = Some(format!("{event}: {reason}")),
                Err(other) => return Err(other),
            }
        }
        Ok(missing)
    }

    /// Attaches a program that replaces the missing ones; returns why if it is missing, too.
    pub(crate) fn attach_instead(
        &mut self,
        missing: Option<String>,
        event: Event,
    ) -> Result<Option<String>, BpfError> {
        let further = self.attach(&[event])?;
        Ok(missing.zip(further).map(|(reason, further)| format!("{reason}, and {further}")))
    }

    fn attach_vectors(&mut self) -> Result<Option<String>, BpfError> {
        let object = self.histograms.object_mut();
        let present = |end: &str| -> Vec<String> {
            let names = VECTORS.iter().map(|name| format!("{name}_{end}"));
            names.filter(|name| object.has_tracepoint(name)).collect()
        };
        let (entries, exits) = (present("entry"), present("exit"));
        if entries.is_empty() {
            return Ok(Some("this kernel has no events for them".to_owned()));
        }
        for (function, tracepoints) in [("vector_exit", exits), ("vector_entry", entries)] {
            match object.attach_raw(function, &tracepoints) {
                Ok(()) => {}
                Err(BpfError::Program { reason, .. }) => return Ok(Some(reason)),
                Err(other) => return Err(other),
            }
        }
        Ok(None)
    }

    /// Uses probes in the kernel to see requests of other CPUs. If they cannot be set, the facilities are missing for that
    /// reason, too.
    fn probe_requests(&mut self) {
        let has_vectors =
            self.facilities.iter().any(|facility| facility.name == BY_VECTOR && facility.missing.is_none());
        let object = self.histograms.object_mut();
        let set = match has_vectors && self.cpus.len() <= WATCHED_MAX {
            true => REQUESTS.into_iter().try_for_each(|event| {
                let name = name_of_function(event.tracepoint, false);
                object.attach_probe(event, name.as_deref().unwrap_or(event.tracepoint))
            }),
            false if has_vectors => {
                let reason = format!("more than {WATCHED_MAX} CPUs are measured");
                Err(BpfError::program(REQUESTS[0].tracepoint, &reason))
            }
            false => Err(BpfError::program(REQUESTS[0].tracepoint, "interrupts by vector are not recorded")),
        };
        self.probes_requests = set.is_ok();
        let reason = set.err().map(|error| format!("and no probe can be set: {error}"));
        let requests =
            self.facilities.iter_mut().filter(|it| [FUNCTIONS, SENDERS].contains(&it.name.as_str()));
        for facility in requests {
            facility.missing = match (facility.missing.take(), &reason) {
                (Some(missing), Some(reason)) => Some(format!("{missing}, {reason}")),
                _ => None,
            };
        }
    }

    /// What is recorded, and what is not, with reasons.
    pub fn facilities(&self) -> &[Facility] {
        &self.facilities
    }

    /// Whether the names of kernel functions are not known.
    pub(crate) fn lacks_symbols(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The histograms that run with it.
    pub fn histograms(&mut self) -> &mut Histograms {
        &mut self.histograms
    }

    /// Whether the senders of interrupts to other CPUs are recorded.
    pub(crate) fn knows_senders(&self) -> bool {
        self.facilities.iter().any(|facility| facility.name == SENDERS && facility.missing.is_none())
    }

    /// The events at which programs could not run so far.
    pub(crate) fn missed(&self) -> Missed {
        Missed::of(self.histograms.costs())
    }

    /// Interrupts from other CPUs for which the table had no room.
    pub(crate) fn ipis_lost(&self) -> u64 {
        (0..).map_while(|cpu| Some(u64::from(self.histograms.cpu_state(cpu).ok()?.ipis_lost))).sum()
    }

    /// What took a CPU since `from_ns` and has ended by now. Call it soon: at most the last 65,536 segments of the CPU
    /// are read, and its ring may hold as few as 16,384.
    pub fn since(&self, cpu: CpuId, from_ns: u64) -> Result<Recording, BpfError> {
        self.newest_since(cpu, from_ns, READ_MAX)
    }

    /// The same for the newest segments only, if reading older ones is not worth the time.
    pub(crate) fn newest_since(&self, cpu: CpuId, from_ns: u64, most: u64) -> Result<Recording, BpfError> {
        let Some(ring) = self.cpus.iter().position(|one| one == cpu) else { return Ok(Recording::default()) };
        let written = self.written(cpu)?;
        let from_ns = from_ns.saturating_sub(BEFORE_NS);
        let mut found = self.rings.read(ring, written, from_ns, most);
        let complete_from_ns = found.keep_whole(self.written(cpu)?, from_ns);
        let found = found.segments;
        let segments = found.iter().rev().filter_map(|raw| self.segment(ring as u32, raw)).collect();
        Ok(Recording { segments, complete_from_ns, lost: 0 })
    }

    /// The interrupts that other CPUs sent to the watched ones since the last call.
    pub fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        let mut records = Vec::new();
        for (key_bytes, count_bytes) in
            self.histograms.object().entries::<IpiKeyBytes, IpiCountBytes>("ipis")?
        {
            let (key, count): (RawIpiKey, RawIpiCount) = (transmute!(key_bytes), transmute!(count_bytes));
            let before = self.ipis_before.insert(key_bytes, count.count).unwrap_or(0);
            if count.count == before {
                continue;
            }
            let function =
                if key.function == 0 { "reschedule".to_owned() } else { self.symbols.name(key.function) };
            let stack = self.sender_stack(count.stack);
            // A probe knows only the stack: the stack's number identifies the caller.
            let place = || (!self.probes_requests).then(|| self.symbols.name(key.call_site));
            records.push(IpiRecord {
                cpu: CpuId(key.cpu.into()),
                function,
                caller: caller_of(&stack).or_else(place),
                from_cpu: (key.from_cpu != NO_CPU).then(|| CpuId(key.from_cpu.into())),
                from_task: sender_name(&key),
                stack,
                count: count.count - before,
            });
        }
        records.sort_by(|one, other| {
            let order = |record: &IpiRecord| (record.cpu, std::cmp::Reverse(record.count));
            order(one).cmp(&order(other)).then_with(|| one.function.cmp(&other.function))
        });
        Ok(records)
    }

    /// How many segments were written for a CPU.
    fn written(&self, cpu: CpuId) -> Result<u64, BpfError> {
        Ok(self.histograms.cpu_state(cpu.0)?.segments)
    }

    fn sender_stack(&self, number: i64) -> Vec<String> {
        let addresses = self.histograms.object().stack("sender_stacks", number);
        self.functions(addresses.into_iter())
    }

    /// The stack of a segment, which has 1 + its number; empty for 0 and for a stack that was overwritten.
    pub(crate) fn late_stack(&self, ring: u32, number: u32) -> Vec<String> {
        let Some(before) = number.checked_sub(1) else { return Vec::new() };
        let stacks = ring_stacks(self.cpus.len());
        let place = ring * stacks + before % stacks;
        let Ok(bytes) = self.histograms.object().get::<[u8; size_of::<RawStack>()]>("late_stacks", place)
        else {
            return Vec::new();
        };
        let raw: RawStack = transmute!(bytes);
        let kept = if raw.number == u64::from(number) { raw.bytes as usize / 8 } else { 0 };
        self.functions(raw.addresses.into_iter().take(kept))
    }

    /// The functions on a stack, without those of the BPF program that recorded it.
    fn functions(&self, addresses: impl Iterator<Item = u64>) -> Vec<String> {
        let names: Vec<String> = addresses.map(|address| self.symbols.name(address)).collect();
        let own = names.iter().rposition(|name| name.starts_with("bpf_trace_run"));
        names.into_iter().skip(own.map_or(0, |last| last + 1)).collect()
    }
}

impl Activities for Causes {
    fn since(&mut self, cpu: CpuId, from_ns: u64) -> Result<Recording, BpfError> {
        Self::since(self, cpu, from_ns)
    }

    fn watch_process(&mut self, cpus: &CpuSet, process: u32, start_ns: u64) -> Result<(), BpfError> {
        self.histograms.watch_process(cpus, process, start_ns);
        Ok(())
    }

    fn keep_stacks(&mut self, from_ns: &[(CpuId, u64)]) -> Result<(), BpfError> {
        self.histograms.keep_stacks(from_ns);
        Ok(())
    }

    fn missed(&self) -> Missed {
        Self::missed(self)
    }

    fn ipis(&mut self) -> Result<Option<Vec<IpiRecord>>, BpfError> {
        if self.knows_senders() { Self::ipis(self).map(Some) } else { Ok(None) }
    }

    fn ipis_lost(&self) -> u64 {
        Self::ipis_lost(self)
    }

    fn wakeups(&mut self, cpu: CpuId) -> Result<Option<u32>, BpfError> {
        Ok(Some(self.histograms.cpu_state(cpu.0)?.own_wakings))
    }
}

/// The thread that sent an interrupt; `None` for a reschedule.
fn sender_name(key: &RawIpiKey) -> Option<String> {
    let name = if key.is_own != 0 { OWN.to_owned() } else { key.command.text() };
    Some(name).filter(|name| !name.is_empty())
}

/// The function that asked other CPUs to run one: the first on the stack that is not part of the call mechanism, nor of the
/// tracing that recorded it.
fn caller_of(stack: &[String]) -> Option<String> {
    let mechanism = [
        "smp_call_",
        "__smp_call_",
        "on_each_cpu",
        "generic_exec_single",
        "kprobe_",
        "ftrace_",
        "aggr_pre_handler",
        "opt_pre_handler",
        "optimized_callback",
        "perf_trace_",
        "__resched_curr",
        "resched_c",
        "native_smp_send_",
        "native_send_call_func",
        "__traceiter_",
        "trace_",
        "__bpf_trace_",
        "bpf_trace_run",
        "bpf_prog_",
    ];
    let is_mechanism = |name: &&String| mechanism.iter().any(|start| name.starts_with(start));
    stack.iter().find(|name| !is_mechanism(name)).cloned()
}

fn warning(facility: &Facility) -> Option<Warning> {
    let reason = facility.missing.as_ref()?;
    let effect = match facility.name.as_str() {
        SENDERS => {
            "; interrupts from other CPUs are counted only by kind (/proc/interrupts), not by function and sender"
        }
        FUNCTIONS => "; an interrupt from another CPU is reported without the function that it ran",
        _ => "",
    };
    let text = format!("causes: {} are not recorded: {reason}{effect}", facility.name);
    Some(Warning::new(WarningCode::CausesIncomplete, text))
}

#[cfg(test)]
mod tests {
    use super::caller_of;

    #[test]
    fn the_mechanism_of_function_calls_is_not_the_caller() {
        let stack =
            ["smp_call_function_many_cond", "on_each_cpu_cond_mask", "flush_tlb_mm_range", "do_madvise"];
        assert_eq!(caller_of(&stack.map(str::to_owned)).as_deref(), Some("flush_tlb_mm_range"));
        let traced =
            ["__traceiter_ipi_send_cpu", "generic_exec_single", "smp_call_function_single", "cpufreq_get"];
        assert_eq!(caller_of(&traced.map(str::to_owned)).as_deref(), Some("cpufreq_get"));
        assert_eq!(caller_of(&[]), None);
    }
}
