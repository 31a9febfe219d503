//! What is known of an activation without recordings of the CPUs.

use super::whole;
use crate::blame::piece::{Blame, Piece};
use crate::confidence::{LIKELY, POSSIBLE};
use crate::segments::causes_of;
use whylate_core::recording::{Activation, Doing, Stage};
use whylate_core::result::{Cause, CauseKind as Kind};

/// The causes of a response from its stages alone, without recordings of CPUs; never empty. With a quota of its control
/// group, a task that waits may also be throttled.
pub fn explain_alone(activation: &Activation, has_quota: bool) -> Vec<Cause> {
    let stages = activation.stages.iter().filter(|stage| stage.length_ns() > 0);
    let began_ns = activation.due_ns;
    let waited_before = |stage: &Stage| {
        matches!(stage.what, Doing::Preempted { .. }) && stage.from_ns == began_ns && !has_quota
    };
    // Waits before and after the first run are one cause.
    let waited = if activation.stages.iter().any(waited_before) { POSSIBLE } else { LIKELY };
    let all: Vec<Piece<()>> = stages
        .map(|stage| {
            let blame = match &stage.what {
                _ if waited_before(stage) => Blame::new(
                    Kind::Thread,
                    POSSIBLE,
                    "the task may have waited for a CPU before it ran; the time is an upper bound (from schedstat and \
                     the task's sleep). Run as root to see the task's wake-up, and which thread had the CPU",
                ),
                Doing::Running => Blame::new(
                    Kind::OwnWork,
                    POSSIBLE,
                    "the task had the CPU; the time includes interrupts that came while the task ran",
                ),
                Doing::Preempted { .. } if has_quota => Blame::unattributed_as(
                    "the task was runnable and waited: another thread had the CPU, or the CPU quota of the \
                     task's control group was used up. Run as root to see which of the two it was",
                ),
                Doing::Preempted { .. } => Blame::new(
                    Kind::Thread,
                    waited,
                    "the task was runnable and waited for a CPU. Run as root to see which thread had the CPU",
                ),
                Doing::Waking { .. } | Doing::Blocked { .. } | Doing::Unseen => Blame::unattributed(),
            };
            whole(stage, blame)
        })
        .collect();
    causes_of(&all, activation.response_ns(), 0)
}
