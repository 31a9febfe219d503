//! Activations from one mark to another: the user says where the work begins and ends.
//!
//! An activation may begin in the middle of a thread's time on a CPU, contain any number of sleeps, and end in the middle of
//! a later time on a CPU. A mark is recorded when the thread passes it, the time on the CPU when the thread leaves the CPU:
//! marks come first.

use super::build::{Track, gap_before, thread};
use crate::layout::tasks::RawStretch;
use whylate_core::CpuId;
use whylate_core::recording::{Activation, Doing, Stage};

/// A thread passed a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Come {
    pub(super) at_ns: u64,
    pub(super) is_begin: bool,
}

impl Track {
    /// Cuts a time on a CPU at the marks that the thread passed, and adds the activations that ended to `ended`. Returns how
    /// many activations began anew without an end.
    pub(super) fn come_by(&mut self, cpu: CpuId, raw: &RawStretch, ended: &mut Vec<Activation>) -> u64 {
        let (mut from_ns, mut unended) = (raw.run_ns, 0);
        for come in self.marks.extract_if(.., |come| come.at_ns <= raw.end_ns) {
            if come.is_begin {
                let began = Activation {
                    thread: thread(raw.thread, raw.prio, &raw.command),
                    process: raw.process,
                    due_ns: come.at_ns,
                    woken_ns: come.at_ns,
                    gap: gap_before(&mut self.gap, come.at_ns),
                    ..Activation::default()
                };
                unended += u64::from(self.open.replace(began).is_some());
                from_ns = come.at_ns;
            } else if let Some(mut open) = self.open.take() {
                open.stages.push(Stage { from_ns, to_ns: come.at_ns, cpu, what: Doing::Running });
                ended.push(open);
            }
        }
        if let Some(open) = &mut self.open {
            open.stages.push(Stage { from_ns, to_ns: raw.end_ns, cpu, what: Doing::Running });
        }
        unended
    }
}
