//! What took the watched CPUs: recorded by the programs, read for the window of a spike.

use crate::error::BpfError;
use crate::histograms::{Histograms, Watching};
use crate::layout::{
    CPU_STATE_BYTES, IPI_COUNT_BYTES, IPI_KEY_BYTES, OWN_COMMAND, RING_STACKS, RawCounters, RawIpiCount,
    RawIpiKey, RawSegment, RawStack, SEGMENTS_WRITTEN_AT, STACK_BYTES, text,
};
use crate::missed::Missed;
use crate::object::Event;
use crate::rings::{Rings, ring_size};
use crate::settings::HistogramsConfig;
use crate::snapshot::Facility;
use crate::symbols::Symbols;
use std::collections::HashMap;
use whylate_core::record::IpiRecord;
use whylate_core::{CpuId, CpuSet};
use whylate_explain::segments::{Activity, OWN, Recording, Segment, Sender, Thread};
use zerocopy::FromBytes as _;

/// How many different stacks are kept.
const STACKS: u32 = 2_048;
/// How many different senders of interrupts are kept.
const IPIS: u32 = 16_384;
/// How much further than a window's begin is looked for what ends in it.
const BEFORE_NS: u64 = 200_000;

/// The facility that tells which function another CPU had called.
pub(crate) const FUNCTIONS: &str = "functions run for other CPUs";
/// The facility that tells who sent interrupts.
pub(crate) const SENDERS: &str = "senders of interrupts";

/// The facility of [`VECTORS`].
pub(crate) const BY_VECTOR: &str = "interrupts by vector";

/// What the events are for, and the programs for them.
pub(crate) const EVENTS: [(&str, &[Event]); 9] = [
    (
        "interrupts by line",
        &[
            Event { function: "irq_entry", tracepoint: "irq_handler_entry" },
            Event { function: "irq_exit", tracepoint: "irq_handler_exit" },
        ],
    ),
    (
        "softirqs",
        &[
            Event { function: "softirq_entry", tracepoint: "softirq_entry" },
            Event { function: "softirq_exit", tracepoint: "softirq_exit" },
        ],
    ),
    ("non-maskable interrupts", &[Event { function: "nmi_handler", tracepoint: "nmi_handler" }]),
    ("idle states", &[Event { function: "idle", tracepoint: "cpu_idle" }]),
    (
        "page faults",
        &[
            Event { function: "page_fault_user", tracepoint: "page_fault_user" },
            Event { function: "page_fault_kernel", tracepoint: "page_fault_kernel" },
        ],
    ),
    ("migrations", &[Event { function: "migration", tracepoint: "sched_migrate_task" }]),
    (
        "locks",
        &[
            Event { function: "lock_wait", tracepoint: "contention_begin" },
            Event { function: "lock_taken", tracepoint: "contention_end" },
        ],
    ),
    (
        FUNCTIONS,
        &[
            Event { function: "function_entry", tracepoint: "csd_function_entry" },
            Event { function: "function_exit", tracepoint: "csd_function_exit" },
        ],
    ),
    (
        SENDERS,
        &[
            Event { function: "function_asked", tracepoint: "csd_queue_cpu" },
            Event { function: "ipi_sent", tracepoint: "ipi_send_cpu" },
        ],
    ),
];

/// Interrupts that have vectors and events of their own on x86.
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
    histograms: Histograms,
    cpus: CpuSet,
    rings: Rings,
    symbols: Symbols,
    facilities: Vec<Facility>,
    /// Interrupts that were counted up to the last call of [`Self::ipis`].
    ipis_before: HashMap<[u8; IPI_KEY_BYTES], u64>,
}

impl Causes {
    /// Begins to record what takes these CPUs. `histograms` says which tasks count as measured, and which
    /// histograms are kept beside (none unless named).
    ///
    /// # Errors
    /// When the kernel refuses programs, has no type information, or lacks the events of the scheduler.
    pub fn start(cpus: &CpuSet, histograms: &HistogramsConfig) -> Result<Self, BpfError> {
        let ring_segments = ring_size(cpus.len());
        let watching = Watching { cpus: cpus.clone(), ring_segments, stacks: STACKS, ipis: IPIS };
        let histograms = Histograms::start_watching(histograms, Some(&watching))?;
        let rings = Rings::map(histograms.object(), cpus.len(), ring_segments)?;
        let mut causes = Self {
            histograms,
            rings,
            cpus: cpus.clone(),
            symbols: Symbols::of_this_kernel(),
            facilities: Vec::new(),
            ipis_before: HashMap::new(),
        };
        for (name, events) in EVENTS {
            let missing = causes.attach(events)?;
            causes.facilities.push(Facility { name: name.to_owned(), missing });
        }
        let missing = causes.attach_vectors()?;
        causes.facilities.push(Facility { name: BY_VECTOR.to_owned(), missing });
        Ok(causes)
    }

    /// Attaches what belongs together; says what is missing.
    fn attach(&mut self, events: &[Event]) -> Result<Option<String>, BpfError> {
        let mut missing = None;
        for event in events {
            match self.histograms.object_mut().attach(*event) {
                Ok(None) => {}
                Ok(Some(reason)) => missing = Some(reason),
                // One event that does not fit leaves the others.
                Err(BpfError::Program { event, reason }) => missing = Some(format!("{event}: {reason}")),
                Err(other) => return Err(other),
            }
        }
        Ok(missing)
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

    /// What is recorded, and what is not, with the reason.
    pub fn facilities(&self) -> &[Facility] {
        &self.facilities
    }

    /// Whether the kernel does not tell the names of its functions.
    pub(crate) fn lacks_symbols(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The histograms that run beside.
    pub fn histograms(&mut self) -> &mut Histograms {
        &mut self.histograms
    }

    /// Whether the kernel tells who sends interrupts to other CPUs.
    pub(crate) fn knows_senders(&self) -> bool {
        self.facilities.iter().any(|facility| facility.name == SENDERS && facility.missing.is_none())
    }

    /// The events at which programs have not run so far.
    pub(crate) fn missed(&self) -> Missed {
        Missed::of(self.histograms.costs())
    }

    /// Interrupts from other CPUs that found no room in the table.
    pub(crate) fn ipis_lost(&self) -> u64 {
        let lost = |cpu: u32| {
            let state: [u8; CPU_STATE_BYTES] = self.histograms.object().get("cpu_states", cpu).ok()?;
            RawCounters::read_from_prefix(&state).ok().map(|(counters, _)| counters.ipis_lost)
        };
        (0..).map_while(lost).sum()
    }

    /// The process that is measured on these CPUs from now on: its page faults and migrations are recorded.
    ///
    /// # Errors
    /// When the kernel does not take the change.
    pub fn watch_process(&mut self, cpus: &CpuSet, process: u32) -> Result<(), BpfError> {
        self.histograms.watch_process(cpus, process)
    }

    /// From which lateness on the stack of the moment is kept on each of these CPUs from now on; 0: never, as it is at
    /// the start.
    ///
    /// # Errors
    /// When the kernel does not take the change.
    pub(crate) fn keep_stacks(&mut self, from_ns: &[(CpuId, u64)]) -> Result<(), BpfError> {
        self.histograms.keep_stacks(from_ns)
    }

    /// What took a CPU since `from_ns`, as far as it has ended by now. Ask soon: the last 16,384 to 65,536 events of
    /// each CPU are looked at, fewer of each where there are many.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn since(&self, cpu: CpuId, from_ns: u64) -> Result<Recording, BpfError> {
        let Some(ring) = self.cpus.iter().position(|one| one == cpu) else { return Ok(Recording::default()) };
        let written = self.written(cpu)?;
        let from_ns = from_ns.saturating_sub(BEFORE_NS);
        let mut found = self.rings.read(ring, written, from_ns);
        let complete_from_ns = found.keep_whole(self.written(cpu)?, from_ns);
        let found = found.segments;
        let segments = found.iter().rev().filter_map(|raw| self.segment(ring as u32, raw)).collect();
        Ok(Recording { segments, complete_from_ns, lost: 0 })
    }

    /// The interrupts that other CPUs sent to the watched ones since the last call.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        let entries: Vec<([u8; IPI_KEY_BYTES], [u8; IPI_COUNT_BYTES])> =
            self.histograms.object().entries("ipis")?;
        let mut records = Vec::new();
        for (key_bytes, count_bytes) in entries {
            let key = RawIpiKey::read_from_bytes(&key_bytes).expect("the size is asserted");
            let count = RawIpiCount::read_from_bytes(&count_bytes).expect("the size is asserted");
            let before = self.ipis_before.insert(key_bytes, count.count).unwrap_or(0);
            if count.count == before {
                continue;
            }
            let function =
                if key.function == 0 { "reschedule".to_owned() } else { self.symbols.name(key.function) };
            let stack = self.sender_stack(count.stack);
            let caller = asker(&stack).unwrap_or_else(|| self.symbols.name(key.call_site));
            records.push(IpiRecord {
                cpu: CpuId(key.cpu),
                function,
                caller: Some(caller),
                from_cpu: Some(CpuId(key.from_cpu)),
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
        let state: [u8; CPU_STATE_BYTES] = self.histograms.object().get("cpu_states", cpu.0)?;
        let (_, rest) = state.split_at(SEGMENTS_WRITTEN_AT);
        let (written, _) = u64::read_from_prefix(rest).expect("the state is longer");
        Ok(written)
    }

    fn sender_stack(&self, number: i64) -> Vec<String> {
        let addresses = self.histograms.object().stack("sender_stacks", number);
        self.functions(addresses.into_iter())
    }

    /// The stack of a late moment; empty when it is not kept any more.
    fn late_stack(&self, ring: u32, number: i32) -> Vec<String> {
        let Some(before) = (number as u32).checked_sub(1) else { return Vec::new() };
        let place = ring * RING_STACKS + before % RING_STACKS;
        let bytes: Result<[u8; STACK_BYTES], _> = self.histograms.object().get("late_stacks", place);
        let Some(raw) = bytes.ok().and_then(|bytes| RawStack::read_from_bytes(&bytes).ok()) else {
            return Vec::new();
        };
        if raw.number != u64::from(number as u32) {
            return Vec::new();
        }
        self.functions(raw.addresses.into_iter().take(raw.bytes as usize / 8))
    }

    /// Names of what is on a stack, without the programs that looked at it.
    fn functions(&self, addresses: impl Iterator<Item = u64>) -> Vec<String> {
        let names: Vec<String> = addresses.map(|address| self.symbols.name(address)).collect();
        let own = names.iter().rposition(|name| name.starts_with("bpf_trace_run"));
        names.into_iter().skip(own.map_or(0, |last| last + 1)).collect()
    }

    fn segment(&self, ring: u32, raw: &RawSegment) -> Option<Segment> {
        let thread = || Thread {
            pid: raw.id,
            priority: 99 - raw.prio,
            command: if raw.id == 0 { "swapper".to_owned() } else { text(&raw.command) },
        };
        // The thread that was woken: its process in the upper half.
        let (pid, process) = (raw.address as u32, (raw.address >> 32) as u32);
        let what = match raw.kind {
            1 => Activity::Irq { line: raw.id },
            2 => Activity::Vector { vector: raw.id },
            3 => Activity::Softirq { number: raw.id },
            4 => Activity::Nmi { handler: self.symbols.name(raw.address) },
            5 => Activity::Function {
                function: self.symbols.name(raw.address),
                sender: (raw.flags & 2 != 0).then(|| Sender {
                    cpu: CpuId(u32::from(raw.from_cpu)),
                    pid: raw.id,
                    process: raw.other as u32,
                    command: text(&raw.command),
                }),
            },
            6 => Activity::Thread {
                thread: thread(),
                process: raw.other as u32,
                was_runnable: raw.flags & 1 != 0,
                next_priority: 99 - raw.address as i32,
            },
            7 => Activity::Idle { state: raw.id },
            8 => Activity::Lock { pid: raw.id, process: raw.prio as u32, flags: raw.other as u32 },
            9 => Activity::PageFault { pid: raw.id, address: raw.address },
            10 => Activity::Timer { pid, process, stack: self.late_stack(ring, raw.other) },
            11 => {
                Activity::Wakeup { pid, process, previous: thread(), stack: self.late_stack(ring, raw.other) }
            }
            12 => {
                Activity::Migration { pid: raw.id, process: raw.other as u32, to: CpuId(raw.address as u32) }
            }
            _ => return None,
        };
        Some(Segment { from_ns: raw.start_ns, to_ns: raw.end_ns, what })
    }
}

/// The thread that sent an interrupt; `None` where it has nothing to do with it.
fn sender_name(key: &RawIpiKey) -> Option<String> {
    match key.command {
        [OWN_COMMAND, ..] => Some(OWN.to_owned()),
        [0, ..] => None,
        command => Some(text(&command)),
    }
}

/// Who had a function run on other CPUs: the first one on the stack that is no part of the machinery for it.
fn asker(stack: &[String]) -> Option<String> {
    let machinery =
        ["smp_call_", "__smp_call_", "on_each_cpu", "generic_exec_single", "__resched_curr", "resched_c"];
    let is_machinery = |name: &&String| machinery.iter().any(|start| name.starts_with(start));
    stack.iter().find(|name| !is_machinery(name)).cloned()
}

#[cfg(test)]
mod tests {
    use super::asker;

    #[test]
    fn the_machinery_of_function_calls_asks_for_nothing() {
        let stack =
            ["smp_call_function_many_cond", "on_each_cpu_cond_mask", "flush_tlb_mm_range", "do_madvise"];
        assert_eq!(asker(&stack.map(str::to_owned)).as_deref(), Some("flush_tlb_mm_range"));
        assert_eq!(asker(&[]), None);
    }
}
