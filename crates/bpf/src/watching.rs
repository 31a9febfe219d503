//! What the programs need in addition to the histograms to look for causes and to watch tasks.

use crate::events::{Event, event};
use crate::layout::RING_CALLS;
use crate::layout::tasks::{COUNTER_MAPS, TASK_SLOTS};
use crate::rings::ring_stacks;
use whylate_core::CpuSet;

/// At most this many different senders of interrupts, and stacks of theirs, are kept.
const IPIS: u32 = 16_384;
const SENDER_STACKS: u32 = 2_048;
/// At most this many different system calls of watched threads are audited.
const AUDITED: u32 = 4_096;
/// At most this many calls whose duration may be a trigger are in progress.
const TRIGGER_CALLS: u32 = 1_024;

/// What the search for causes needs in addition to the histograms.
pub(crate) struct Watching {
    /// The CPUs that have a ring of segments, in the order of their rings.
    pub(crate) cpus: CpuSet,
    /// How many segments a ring holds: a power of two.
    pub(crate) ring_segments: u32,
    pub(crate) tasks: Option<WatchingTasks>,
}

/// What the programs for watched tasks need.
pub(crate) struct WatchingTasks {
    /// How many records a ring holds: a power of two.
    pub(crate) ring_stretches: u32,
    /// Whether all tasks of the configured priorities are watched.
    pub(crate) priorities: bool,
    /// The rings of segments have room for what a CPU does in that time.
    pub(crate) keep_ns: u64,
    /// Whether each switch has a record, also between threads that are not watched.
    pub(crate) every_switch: bool,
    /// The counters that are read, as bits; and the number of CPUs that are possible.
    pub(crate) counters: u32,
    pub(crate) counter_cpus: u32,
}

impl Watching {
    pub(crate) fn maps(&self) -> Vec<(&'static str, u32)> {
        let cpus = self.cpus.len() as u32;
        let mut maps = vec![
            ("segments", cpus * self.ring_segments),
            ("late_stacks", cpus * ring_stacks(self.cpus.len())),
            ("calls", cpus * RING_CALLS),
            ("sender_stacks", SENDER_STACKS),
            ("ipis", IPIS),
        ];
        if let Some(tasks) = &self.tasks {
            let tables = [("task_places", TASK_SLOTS), ("task_slots", TASK_SLOTS)];
            maps.extend(tables);
            maps.extend([
                ("stretches", cpus * tasks.ring_stretches),
                ("audited", AUDITED),
                ("trigger_calls", TRIGGER_CALLS),
            ]);
            if tasks.counters != 0 {
                maps.extend([
                    ("stretch_counts", cpus * tasks.ring_stretches),
                    ("cpu_counts", tasks.counter_cpus),
                ]);
                maps.extend(COUNTER_MAPS.map(|map| (map, tasks.counter_cpus)));
            }
        }
        maps
    }

    pub(crate) fn constants(&self) -> Vec<(&'static str, u32)> {
        let mut constants =
            vec![("ring_segments", self.ring_segments), ("ring_stacks", ring_stacks(self.cpus.len()))];
        if let Some(tasks) = &self.tasks {
            constants.push(("ring_stretches", tasks.ring_stretches));
            constants.push(("watches_priorities", u32::from(tasks.priorities)));
            constants.push(("every_switch", u32::from(tasks.every_switch)));
            constants.push(("counters", tasks.counters));
        }
        constants
    }
}

/// The events of tasks that the watch needs, each with its program.
pub(crate) fn task_events(watching: Option<&Watching>) -> [Event; 2] {
    let (switch, waking) = match watching {
        None => ("task_switch", "waking"),
        Some(Watching { tasks: None, .. }) => ("task_switch_watched", "waking_watched"),
        Some(Watching { tasks: Some(_), .. }) => ("task_switch_tasks", "waking_tasks"),
    };
    [event(switch, "sched_switch"), event(waking, "sched_waking")]
}
