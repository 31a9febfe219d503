//! Explains the one moment that a trace was kept for.
//!
//! A recording holds more late moments than the one that a probe saw: those before the probe was armed, and those of
//! other tasks. In: the trace, and what the probe measured, on the trace's clock. Out: that moment, with the expected
//! moment of the task's own timer where the trace has it; where it has not, what the probe measured is taken.

use super::late::{Late, LateKind};
use super::{Options, find, spike, warn};
use crate::event::{EventKind, TaskState};
use crate::parse::ParseError;
use crate::reader::{Reader, Selection};
use std::collections::BTreeSet;
use whylate_core::CpuId;
use whylate_core::result::{ExpectedFrom, ExplainResult};

/// Candidates among which the moment is looked for.
const CANDIDATES_MAX: usize = 256;
/// The task reads the clock that soon after it was given the CPU.
const NEAR_NS: u64 = 1_000_000;
/// What is read before the moment to see who had the CPU.
const BEFORE_NS: u64 = 2_000_000;

/// What a probe measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptMoment {
    /// Where.
    pub cpu: CpuId,
    /// When the task ran again, on the trace's clock.
    pub at_ns: u64,
    /// How late it was, or how long it stood still.
    pub latency_ns: u64,
    /// Whether the task slept and was late; otherwise it never sleeps, and something took its CPU.
    pub sleeps: bool,
}

/// Explains that moment: one spike, or none where it is not in the trace.
///
/// # Errors
/// Those of the reader: the trace cannot be read or is damaged.
pub fn explain_kept(reader: &mut dyn Reader, moment: &KeptMoment) -> Result<ExplainResult, ParseError> {
    let options =
        Options { threshold_ns: Some(moment.latency_ns / 2), top: CANDIDATES_MAX, ..Options::default() };
    let found = find(reader, &options)?;
    let mut result = found.result(reader, &options, 0);
    let distance = |late: &Late| late.actual_ns.abs_diff(moment.at_ns);
    let is_it = |late: &&Late| {
        late.cpu == moment.cpu && distance(late) < NEAR_NS && late.from == ExpectedFrom::Timer
    };
    let by_timer = found.lates.iter().filter(|_| moment.sleeps).filter(is_it).min_by_key(|late| distance(late));
    let late = match by_timer {
        Some(late) => Some(*late),
        None => measured(reader, moment)?,
    };
    let mut needs = BTreeSet::new();
    if let Some(late) = late
        && let Some((spike, more)) = spike::explain(reader, &late)?
    {
        needs.extend(more);
        result.spikes.push(spike);
    }
    let trace = &mut result.traces[0];
    (trace.threshold_ns, trace.spikes_found) = (moment.latency_ns, result.spikes.len() as u64);
    result.warnings = warn::warnings(trace, &found.seen, &needs, &result.spikes);
    Ok(result)
}

/// The moment as the probe measured it, of the thread that had the CPU then; `None` where the trace does not reach
/// back to it.
fn measured(reader: &mut dyn Reader, moment: &KeptMoment) -> Result<Option<Late>, ParseError> {
    let KeptMoment { cpu, at_ns, latency_ns, sleeps } = *moment;
    let expected_ns = at_ns.saturating_sub(latency_ns);
    reader.seek(Some(expected_ns.saturating_sub(BEFORE_NS)), Selection::All)?;
    let mut late = Late {
        pid: None,
        command: None,
        priority: None,
        cpu,
        expected_ns,
        actual_ns: at_ns,
        from: ExpectedFrom::Probe,
        error_ns: 0,
        kind: LateKind::Wakeup,
        since_ns: expected_ns,
    };
    let (mut is_traced, mut for_lesser) = (false, false);
    while let Some(event) = reader.next()? {
        if event.at_ns > at_ns.saturating_add(NEAR_NS) {
            break;
        }
        is_traced = true;
        if event.cpu != cpu {
            continue;
        }
        if event.at_ns <= at_ns {
            (late.pid, late.command) = (event.pid, event.command);
        }
        if let EventKind::Switch { previous, state, next } = event.kind {
            if event.at_ns <= at_ns {
                (late.pid, late.command) = (Some(next.pid), Some(next.command));
            }
            let taken_off = state == TaskState::Runnable && event.at_ns >= expected_ns;
            for_lesser |= taken_off && (next.pid == 0 || next.priority > previous.priority);
        }
    }
    if !sleeps {
        late.kind = LateKind::Preempted { cpu, for_lesser };
    }
    Ok(is_traced.then_some(late))
}
