//! Which threads of a trace are the measured ones.

use std::collections::{BTreeMap, BTreeSet};
use whylate_core::{CpuId, CpuSet};

/// The threads of the measuring processes.
#[derive(Clone, Debug)]
pub enum OwnThreads {
    /// By their numbers: the process of each.
    Numbered(BTreeMap<u32, u32>),
    /// By their name on their CPUs, in a container whose process ids are not those of the trace.
    Named {
        /// The name of the measuring threads.
        command: String,
        /// The processes, by the numbers that this program knows.
        processes: Vec<(CpuSet, u32)>,
    },
}

/// A thread of a trace, on the CPU of an event.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub cpu: CpuId,
    pub pid: u32,
    /// Its name, where the trace says it.
    pub command: Option<&'a str>,
}

impl OwnThreads {
    /// The measured process of a thread; `None` for a thread of others.
    pub fn process(&self, seen: Seen<'_>) -> Option<u32> {
        match self {
            Self::Numbered(threads) => threads.get(&seen.pid).copied(),
            Self::Named { command, processes } => {
                let here = processes.iter().find(|(cpus, _)| cpus.contains(seen.cpu));
                here.filter(|_| seen.command == Some(command)).map(|(_, process)| *process)
            }
        }
    }

    /// The process of a thread. A trace does not name the process of other threads, so their thread id stands for it.
    pub fn process_of(&self, seen: Seen<'_>) -> u32 {
        self.process(seen).unwrap_or(match self {
            Self::Numbered(_) => seen.pid,
            // The measured process has an id of another namespace, which must not match by chance.
            Self::Named { .. } => u32::MAX,
        })
    }

    /// The processes that measure now, with their threads. Threads that were known before stay: an ended one still has
    /// events.
    pub fn add(&mut self, measuring: &[(CpuSet, u32)], threads: impl Fn(u32) -> BTreeSet<u32>) {
        match self {
            Self::Numbered(known) => {
                for (_, process) in measuring {
                    known.extend(threads(*process).into_iter().map(|thread| (thread, *process)));
                }
            }
            Self::Named { processes, .. } => *processes = measuring.to_vec(),
        }
    }
}
