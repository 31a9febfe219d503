//! The CPUs' counters of instructions, cycles and cache misses, for the programs to read at switches of watched tasks.
//!
//! A counter belongs to a CPU and counts whatever runs there: one for each thread would be started and stopped at each switch.
//! They start with the examination of own work, because reading them takes as long as the rest of a switch's record. Nothing is
//! opened where reading takes much longer, as in virtual machines whose hypervisor traps it.

use crate::error::BpfError;
use crate::layout::tasks::{COUNTER_MAPS, COUNTERS};
use crate::object::Object;
use std::io;
use whylate_core::CpuSet;
use whylate_core::figure::nanoseconds;
use whylate_host::{HostRoot, hotplug};
use whylate_sys::clock;
use whylate_sys::perf_counter::{PerfCounter, TYPE_CACHE, TYPE_HARDWARE, TYPE_SOFTWARE};

/// `PERF_COUNT_SW_DUMMY`: an event that never happens.
const DUMMY: (u32, u64) = (TYPE_SOFTWARE, 9);
/// `PERF_COUNT_HW_INSTRUCTIONS`, `PERF_COUNT_HW_CPU_CYCLES`, `PERF_COUNT_HW_CACHE_MISSES`.
const INSTRUCTIONS: (u32, u64) = (TYPE_HARDWARE, 1);
const CYCLES: (u32, u64) = (TYPE_HARDWARE, 0);
const CACHE_MISSES: (u32, u64) = (TYPE_HARDWARE, 3);
/// On arm64 that event counts the first-level cache: these are the reads that miss the last one.
const LAST_LEVEL_READ_MISSES: (u32, u64) = (TYPE_CACHE, 0x1_0002);
const HERE: CounterEvents = CounterEvents([
    INSTRUCTIONS,
    CYCLES,
    if cfg!(target_arch = "aarch64") { LAST_LEVEL_READ_MISSES } else { CACHE_MISSES },
]);
/// The word that has the programs read them.
const COUNTING: &str = ".bss.counting";
const ALL: u32 = (1 << COUNTERS) - 1;
/// An activation takes at least six readings.
const READING_MAX_NS: u64 = 1_000;
const READINGS: usize = 32;

/// The performance events that are counted, as types and numbers of `perf_event_open`.
#[derive(Clone, Copy, Debug)]
pub struct CounterEvents(pub [(u32, u64); COUNTERS]);

impl Default for CounterEvents {
    fn default() -> Self {
        HERE
    }
}

/// The counters of the CPUs. The map of the programs keeps the opened ones, so that they take no file descriptors.
pub(crate) struct Counters {
    events: CounterEvents,
    cpus: CpuSet,
    /// Those that at least one CPU has, as bits.
    kinds: u32,
    /// The CPUs that have theirs.
    installed: CpuSet,
}

impl Counters {
    /// Looks for counters on the CPUs that are online. Without any, the error is the reason.
    pub(crate) fn find(host: &HostRoot, cpus: &CpuSet, events: CounterEvents) -> Result<Self, String> {
        let (mut kinds, mut failed) = (0, None);
        for cpu in cpus.intersection(&hotplug::online(host)).iter() {
            for (kind, (source, event)) in (0..).zip(events.0) {
                match PerfCounter::open(source, event, cpu) {
                    Ok(_) => kinds |= 1 << kind,
                    Err(error) if kind == 0 => failed = Some(error),
                    Err(_) => {}
                }
            }
            if kinds == ALL {
                break;
            }
        }
        // Without instructions, more work and slower work look the same.
        if kinds & 1 == 0 {
            return Err(failed.map_or_else(|| "no CPU is online".to_owned(), |error| reason(&error)));
        }
        let reading_ns = reading_ns(events.0[0]).zip(reading_ns(DUMMY));
        let took_ns = reading_ns.map_or(0, |(one, nothing)| one.saturating_sub(nothing));
        if took_ns > READING_MAX_NS {
            let took = nanoseconds(took_ns);
            return Err(format!("reading a counter takes {took}: the hypervisor traps each reading"));
        }
        Ok(Self { events, cpus: cpus.clone(), kinds, installed: CpuSet::default() })
    }

    pub(crate) fn kinds(&self) -> u32 {
        self.kinds
    }

    /// Why more work and slower work cannot be distinguished.
    pub(crate) fn missing(&self) -> Option<String> {
        (self.kinds & 1 << 1 == 0).then(|| "the CPUs do not count cycles".to_owned())
    }

    fn missing_cache_misses(&self) -> Option<String> {
        (self.kinds & 1 << 2 == 0).then(|| "the CPUs do not count misses of the last cache".to_owned())
    }

    /// Gives the programs the counters of CPUs that came online since the last call. Until then, what runs there is not counted.
    pub(crate) fn install(&mut self, host: &HostRoot, object: &mut Object) -> Result<(), BpfError> {
        let online = hotplug::online(host);
        if online == self.installed {
            return Ok(());
        }
        let fresh = self.cpus.intersection(&online);
        for (map, (source, event)) in COUNTER_MAPS.into_iter().zip(self.events.0) {
            let file = object.event_file(map)?;
            for cpu in fresh.iter().filter(|cpu| !self.installed.contains(*cpu)) {
                // A CPU without this counter has an empty place.
                let Ok(counter) = PerfCounter::open(source, event, cpu) else { continue };
                counter.put_into(file, cpu.0).map_err(|error| BpfError::map(map, &error))?;
            }
        }
        self.installed = online;
        object.set(COUNTING, 0, &1_u32.to_ne_bytes())?;
        Ok(())
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("perf_event_open: {error}"),
        _ => "the CPUs have no counters that Linux knows; most virtual machines have none".to_owned(),
    }
}

/// The shortest time that a reading of this thread's counter takes; `None` without such a counter.
fn reading_ns((source, event): (u32, u64)) -> Option<u64> {
    let this_thread = 0;
    let counter = PerfCounter::of_thread(source, event, this_thread).ok()?;
    let one = || {
        let before = clock::now().0;
        counter.read().ok().map(|_| clock::now().0 - before)
    };
    (0..READINGS).filter_map(|_| one()).min()
}

/// Why instructions and cycles cannot be counted, and why cache misses cannot; `None` if they can.
pub(crate) fn missing_counters(host: &HostRoot, cpus: &CpuSet) -> [Option<String>; 2] {
    match Counters::find(host, cpus, CounterEvents::default()) {
        Ok(counters) => [counters.missing(), counters.missing_cache_misses()],
        Err(reason) => [Some(reason.clone()), Some(reason)],
    }
}
