//! The sources of activations: programs in the kernel, or, for an ordinary user, what the kernel shows every user about his
//! own threads.

use crate::error::ProbeError;
use std::collections::BTreeMap;
use std::io;
use whylate_bpf::BpfError;
use whylate_bpf::tasks::{
    Activation, Activations, CounterEvents, Cut, Doubt, OwnTaskWatch, Passed, TaskLosses, TaskTarget,
    TaskWatch, Triggered, Watched,
};
use whylate_core::plan::{ChainMark, Mark, Per, Trigger};
use whylate_core::result::AuditRecord;
use whylate_core::{CpuSet, Facts};
use whylate_host::HostRoot;
use whylate_record::tasks::{Begins, Ends, Explained, Path, TaskExplainer};
use whylate_sys::schedule;

/// What is missing without programs in the kernel.
const WITHOUT_PROGRAMS: &str = "latencies begin when a thread first runs after a wake-up, and end with its next sleep. Not recorded: how long wake-ups took, which thread had the CPU, what the thread slept for, what woke it";

/// What the kernel's records have to show.
#[derive(Clone, Copy)]
pub(super) struct KeptRecords {
    /// How far back they go.
    pub(super) ns: u64,
    /// Also threads that are not watched.
    pub(super) every_switch: bool,
}

pub(super) enum Source {
    Kernel(Box<TaskWatch>, TaskExplainer),
    Own(Box<OwnTaskWatch>, String, HostRoot),
}

fn failed(error: &BpfError) -> ProbeError {
    let text = format!("tasks cannot be watched: {error}");
    if error.is_unavailable() { ProbeError::Unavailable(text) } else { ProbeError::Failed(text) }
}

impl Source {
    /// Begins to watch: by programs in the kernel, or without them if the kernel refuses them.
    pub(super) fn start(
        host: &HostRoot,
        cpus: &CpuSet,
        target: &TaskTarget,
        facts: &Facts,
        marks: Option<&[Mark; 2]>,
        per: Per,
        kept: KeptRecords,
    ) -> Result<Self, ProbeError> {
        let by = match per {
            Per::Rhythm => Activations::ByRhythm,
            Per::Wakeup => Activations::PerWakeup,
            Per::Period(period) => Activations::PerPeriod(period.map(|period| period.0)),
        };
        let counted = CounterEvents::default();
        let started = TaskWatch::start_keeping(host, cpus, target, kept.ns, kept.every_switch, counted);
        let refusal = match started {
            Ok(mut watch) => {
                if let Some(marks) = marks {
                    watch.mark(marks).map_err(|error| failed(&error))?;
                }
                watch.decide_by(by);
                if facts.environment.hypervisor.is_some() {
                    watch.spare_guest();
                }
                return Ok(Self::Kernel(Box::new(watch), TaskExplainer::new(host, facts)));
            }
            Err(error) if error.has_substitute() && marks.is_none() && !kept.every_switch => error,
            Err(error) => return Err(failed(&error)),
        };
        match OwnTaskWatch::start(host, cpus, target) {
            Ok(mut watch) => {
                watch.decide_by(by);
                Ok(Self::Own(Box::new(watch), refusal.to_string(), host.clone()))
            }
            Err(error) => Err(without_either(&refusal, &error)),
        }
    }

    pub(super) fn follow_children(&mut self, follow: bool) -> Result<(), ProbeError> {
        match self {
            Self::Kernel(watch, _) => {
                watch.follow_children(schedule::id_of_this_thread(), follow).map_err(|error| failed(&error))
            }
            Self::Own(watch, refusal, _) if follow => watch.follow_children().map_err(|error| {
                ProbeError::Unavailable(format!(
                    "tasks cannot be watched: {refusal}; perf_event_open: {error}"
                ))
            }),
            // Threads that are already followed stay followed.
            Self::Own(..) => Ok(()),
        }
    }

    pub(super) fn poll(&mut self) -> Result<Vec<Activation>, ProbeError> {
        match self {
            Self::Kernel(watch, explainer) => {
                let ended = watch.poll().map_err(|error| failed(&error))?;
                explainer.note(&ended);
                Ok(ended)
            }
            Self::Own(watch, ..) => Ok(watch.poll()),
        }
    }

    /// Stops watching all threads: later events are not recorded.
    pub(super) fn leave_alone(&mut self) -> Result<(), ProbeError> {
        match self {
            Self::Kernel(watch, _) => watch.leave_alone().map_err(|error| failed(&error)),
            Self::Own(..) => Ok(()),
        }
    }

    /// The activations that had not ended by then.
    pub(super) fn unended(&mut self) -> Vec<Activation> {
        match self {
            Self::Kernel(watch, _) => watch.unended(),
            Self::Own(watch, ..) => watch.unended(),
        }
    }

    /// Waits for a trigger of the kernel; returns the number of its rule.
    pub(super) fn wait_for(&mut self, trigger: &Trigger) -> Result<u32, ProbeError> {
        match self {
            Self::Kernel(watch, _) => watch.wait_for(trigger).map_err(|error| {
                let text = format!("cannot wait for the trigger: {error}");
                if error.is_unavailable() { ProbeError::Unavailable(text) } else { ProbeError::Failed(text) }
            }),
            Self::Own(_, refusal, _) => Err(ProbeError::Unavailable(format!(
                "triggers on calls, trace_marker texts and xruns need BPF programs: {refusal}"
            ))),
        }
    }

    /// Records each pass of an end of a chain; returns the number of its rule.
    pub(super) fn pass(&mut self, mark: &ChainMark) -> Result<u32, ProbeError> {
        match self {
            Self::Kernel(watch, _) => watch.pass(mark).map_err(|error| {
                let text = format!("cannot watch the chain: {error}");
                if error.is_unavailable() { ProbeError::Unavailable(text) } else { ProbeError::Failed(text) }
            }),
            Self::Own(_, refusal, _) => {
                Err(ProbeError::Unavailable(format!("chains need BPF programs: {refusal}")))
            }
        }
    }

    /// The passes of ends of chains since the last call.
    pub(super) fn passed(&mut self) -> Vec<Passed> {
        match self {
            Self::Kernel(watch, _) => watch.passed(),
            Self::Own(..) => Vec::new(),
        }
    }

    /// Where the time of instances of chains went.
    pub(super) fn paths(&self, all: &[Ends]) -> Result<Vec<Path>, ProbeError> {
        match self {
            Self::Kernel(watch, explainer) => explainer.paths(watch, all).map_err(|error| failed(&error)),
            Self::Own(..) => Ok(vec![Path::default(); all.len()]),
        }
    }

    /// From which of the begins of a chain these ends came, each a thread and a moment.
    pub(super) fn origins(
        &self,
        ends: &[(u32, u64)],
        begins: &Begins,
    ) -> Result<Vec<Option<(u32, u64)>>, ProbeError> {
        match self {
            Self::Kernel(watch, explainer) => {
                explainer.origins(watch, ends, begins).map_err(|error| failed(&error))
            }
            Self::Own(..) => Ok(vec![None; ends.len()]),
        }
    }

    /// The triggers of the kernel that came since the last call.
    pub(super) fn triggered(&mut self) -> Vec<Triggered> {
        match self {
            Self::Kernel(watch, _) => watch.triggered(),
            Self::Own(..) => Vec::new(),
        }
    }

    /// How often a trigger of the kernel came in all.
    pub(super) fn trigger_count(&mut self, rule: u32) -> u64 {
        match self {
            Self::Kernel(watch, _) => watch.trigger_count(rule),
            Self::Own(..) => 0,
        }
    }

    /// The activations in progress, and those that have ended and were not handed on: none without programs in the kernel.
    pub(super) fn in_progress(&mut self) -> Vec<Activation> {
        match self {
            Self::Kernel(watch, _) => watch.in_progress(),
            Self::Own(watch, ..) => watch.in_progress(),
        }
    }

    /// The sleeps since the last call that may have been in the middle of the work, by thread.
    pub(super) fn doubts(&mut self) -> Vec<(u32, Doubt)> {
        match self {
            Self::Kernel(watch, _) => watch.doubts(),
            Self::Own(watch, ..) => watch.doubts(),
        }
    }

    /// The activations since the last call whose end was not seen.
    pub(super) fn cuts(&mut self) -> Vec<Cut> {
        match self {
            Self::Kernel(watch, ..) => watch.cuts(),
            Self::Own(watch, ..) => watch.cuts(),
        }
    }

    pub(super) fn look_for_tasks(&mut self) -> Result<(), ProbeError> {
        match self {
            Self::Kernel(watch, _) => watch.look_for_tasks().map_err(|error| failed(&error)),
            Self::Own(watch, ..) => {
                // A thread of another user may come at any time.
                let _ = watch.look_for_tasks();
                Ok(())
            }
        }
    }

    pub(super) fn explain(&mut self, activations: &[&Activation]) -> Result<Vec<Explained>, ProbeError> {
        match self {
            Self::Kernel(watch, explainer) => {
                explainer.explain(watch, activations).map_err(|error| failed(&error))
            }
            Self::Own(_, _, host) => Ok(activations.iter().map(|one| Explained::alone(host, one)).collect()),
        }
    }

    /// Records what own work consists of once a thread has run for longer than this.
    pub(super) fn divide_above(&mut self, above_ns: u64) {
        if let Self::Kernel(watch, _) = self {
            watch.divide_above(above_ns);
        }
    }

    /// Looks from now on for what real-time threads should not do.
    pub(super) fn audit(&mut self) -> Result<(), ProbeError> {
        match self {
            Self::Kernel(watch, _) => watch.audit().map_err(|error| failed(&error)),
            Self::Own(_, refusal, _) => {
                Err(ProbeError::Unavailable(format!("an audit needs BPF programs: {refusal}")))
            }
        }
    }

    /// What an audit found since the last call, by thread.
    pub(super) fn audited(&mut self) -> Vec<(u32, AuditRecord)> {
        match self {
            Self::Kernel(watch, _) => watch.audited(),
            Self::Own(..) => Vec::new(),
        }
    }

    /// Records from now on what the own work of activations consists of.
    pub(super) fn divide_own_work(&mut self) -> Result<(), ProbeError> {
        match self {
            Self::Kernel(watch, _) => watch.divide_own_work().map_err(|error| failed(&error)),
            Self::Own(..) => Ok(()),
        }
    }

    /// The latency above which the kernel's stack is recorded.
    pub(super) fn keep_stacks(&mut self, above_ns: u64) {
        if let Self::Kernel(watch, _) = self {
            watch.keep_stacks(above_ns);
        }
    }

    pub(super) fn threads(&self) -> &BTreeMap<u32, Watched> {
        match self {
            Self::Kernel(watch, _) => watch.threads(),
            Self::Own(watch, ..) => watch.threads(),
        }
    }

    pub(super) fn clock_jumps(&self) -> u64 {
        match self {
            Self::Kernel(watch, _) => watch.clock_jumps(),
            Self::Own(..) => 0,
        }
    }

    /// What is not recorded here, with the reason.
    pub(super) fn missing(&self) -> Option<String> {
        match self {
            Self::Kernel(watch, _) if watch.missing().is_empty() => None,
            Self::Kernel(watch, _) => Some(format!("not recorded: {}", watch.missing().join("; "))),
            Self::Own(watch, refusal, _) => {
                let others = match watch.losses().refused {
                    0 => String::new(),
                    1 => ". One thread belongs to another user and is not watched".to_owned(),
                    many => format!(". {many} threads belong to other users and are not watched"),
                };
                Some(format!("{WITHOUT_PROGRAMS}{others}. Reason: {refusal}"))
            }
        }
    }

    /// Why the CPUs' counters are not read, or which of them; `None` where this makes no difference.
    pub(super) fn missing_counters(&self) -> Option<String> {
        match self {
            Self::Kernel(watch, _) if watch.divides_own_work() => watch.missing_counters(),
            Self::Kernel(..) | Self::Own(..) => None,
        }
    }

    pub(super) fn losses(&self) -> TaskLosses {
        match self {
            Self::Kernel(watch, _) => watch.losses(),
            Self::Own(watch, ..) => watch.losses(),
        }
    }
}

fn without_either(refusal: &BpfError, error: &io::Error) -> ProbeError {
    let text = match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "tasks cannot be watched. Without root, watch only your own tasks, set `sysctl \
             kernel.perf_event_paranoid` to 2 or less, and allow perf_event_open in seccomp (container, \
             sandbox); {refusal}"
        ),
        _ => format!("tasks cannot be watched: {refusal}; perf_event_open: {error}"),
    };
    ProbeError::Unavailable(text)
}
