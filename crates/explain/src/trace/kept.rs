//! Explains the one moment for which a trace was kept.
//!
//! A recording contains more spikes than the one that a probe saw: those before the probe was armed, and those of other
//! tasks. In: the trace, and the probe's values, on the trace's clock. Out: that moment, with the expected moment of the
//! task's own timer if the trace has it, otherwise with the one that the probe measured.

use crate::blame::standstill;
use crate::find::find;
use crate::find::late::PRIORITY_NORMAL;
use crate::find::late::{Late, LateKind};
use crate::options::{Options, TaskChoice};
use crate::trace::spike;
use std::collections::BTreeSet;
use whylate_core::CpuId;
use whylate_core::result::{ExpectedFrom, ExplainAnswer, ExplainResult, ThresholdFrom};
use whylate_trace::event::{EventKind, Name, Task, TaskState};
use whylate_trace::parse::ParseError;
use whylate_trace::reader::{Reader, Selection};

/// How many candidates are searched for the moment.
const CANDIDATES_MAX: usize = 256;
/// The task reads the clock at most this long after it got the CPU.
const NEAR_NS: u64 = 1_000_000;
/// The trace's clock and the probe's, if that is read from a counter, may differ by this.
const CLOCKS_APART_NS: u64 = 1_000_000;
/// Why the task of such a trace is examined.
const KEPT_FOR: &str = "the trace was kept because this task was late";
/// How much is read before the moment to see who had the CPU.
const BEFORE_NS: u64 = 2_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptMoment {
    /// Command of the measured task, if known.
    pub task: Option<String>,
    pub cpu: CpuId,
    /// When the task ran again, on the trace's clock.
    pub at_ns: u64,
    /// How late it was, or how long it stood still.
    pub latency_ns: u64,
    /// The task had not run again when the measurement ended, at `at_ns`.
    pub unended: bool,
    /// Whether the task slept and was late; otherwise it never sleeps, and something took its CPU.
    pub sleeps: bool,
    /// Whether the machine was the guest of a hypervisor, if known.
    pub is_virtual: Option<bool>,
}

/// Explains that moment: one spike, or none if it is not in the trace.
///
/// # Errors
/// Those of the reader: the trace cannot be read or is damaged.
pub fn explain_kept(reader: &mut dyn Reader, moment: &KeptMoment) -> Result<ExplainResult, ParseError> {
    let options = Options {
        task: moment.task.clone().map(TaskChoice::Name),
        threshold_ns: Some(moment.latency_ns / 2),
        top: CANDIDATES_MAX,
        is_virtual: moment.is_virtual,
        ..Options::default()
    };
    let found = find(reader, &options)?;
    let mut result = found.result(reader, &options, 0);
    let distance = |late: &Late| late.actual_ns.abs_diff(moment.at_ns);
    let is_it =
        |late: &&Late| late.cpu == moment.cpu && distance(late) < NEAR_NS && late.from == ExpectedFrom::Timer;
    let by_timer =
        found.lates.iter().filter(|_| moment.sleeps).filter(is_it).min_by_key(|late| distance(late));
    let late = match by_timer {
        // It slept when its timer was already due: the probe knows the moment that it was going to wait for.
        Some(late) if late.expected_ns == late.since_ns => {
            let asked_ns = moment.at_ns.saturating_sub(moment.latency_ns);
            Some(Late { expected_ns: late.expected_ns.min(asked_ns), ..*late })
        }
        Some(late) => Some(*late),
        None => measured(reader, moment)?,
    };
    let known = moment.is_virtual.is_none().then(|| standstill::is_virtual(reader)).transpose()?;
    let options = Options { is_virtual: moment.is_virtual.or(known), ..options };
    let (mut spikes, mut needs) = (Vec::new(), BTreeSet::new());
    if let Some(late) = late
        && let Some((spike, more)) = spike::explain(reader, &late, &options)?
    {
        needs.extend(more);
        spikes.push(spike);
    }
    let trace = &mut result.traces[0];
    let on_cpu = || spikes.first().map(|it| it.task.clone()).filter(|it| !it.is_empty());
    trace.task = moment.task.clone().or_else(on_cpu);
    KEPT_FOR.clone_into(&mut trace.task_reason);
    let least = spikes.iter().map(|spike| spike.latency_ns).chain([moment.latency_ns]).min();
    (trace.threshold_ns, trace.threshold_from) = (least.unwrap_or(0).saturating_sub(1), ThresholdFrom::Kept);
    trace.spikes_found = spikes.len() as u64;
    trace.waits_left_out = 0;
    trace.also_late.clear();
    if spikes.is_empty() {
        let reason = "the trace was kept for a late moment that it does not contain: the buffer did not \
                      reach back far enough";
        (trace.answer, trace.answer_reason) = (ExplainAnswer::CannotTell, Some(reason.to_owned()));
    }
    Ok(super::completed(&found, result, spikes, &needs, reader))
}

/// The moment as the probe measured it, for the thread that had the CPU then; `None` if the trace does not reach back to it.
fn measured(reader: &mut dyn Reader, moment: &KeptMoment) -> Result<Option<Late>, ParseError> {
    let KeptMoment { cpu, at_ns, latency_ns, sleeps, unended, .. } = *moment;
    let expected_ns = at_ns.saturating_sub(latency_ns);
    let since_ns = expected_ns.saturating_sub(latency_ns).saturating_sub(BEFORE_NS);
    reader.seek(Some(since_ns), Selection::All)?;
    let (mut is_traced, mut for_lesser) = (false, false);
    let mut subject = Candidate::default();
    while let Some(event) = reader.next()? {
        if event.at_ns > at_ns.saturating_add(NEAR_NS) {
            break;
        }
        is_traced = true;
        if unended && let Some(candidate) = Candidate::waiting(&event.kind, moment, reader) {
            subject = candidate;
        }
        if event.cpu != cpu {
            continue;
        }
        let mut candidate = Candidate { certainty: 0, pid: event.pid, command: event.command };
        if let EventKind::Switch { previous, state, next } = event.kind {
            candidate = Candidate::of(next, moment, reader);
            let in_gap = (expected_ns.saturating_sub(CLOCKS_APART_NS)..at_ns).contains(&event.at_ns);
            if in_gap && state == TaskState::Runnable && Candidate::of(previous, moment, reader).certainty > 0
            {
                for_lesser |= next.pid == 0 || next.priority > previous.priority;
            }
        }
        // First by name and priority; without a match, the task that had the CPU at that moment.
        let better = candidate.certainty > subject.certainty;
        if better || (candidate.certainty == subject.certainty && event.at_ns <= at_ns) {
            subject = candidate;
        }
    }
    let kind = if sleeps { LateKind::Wakeup } else { LateKind::Preempted { cpu, for_lesser } };
    let Candidate { pid, command, .. } = subject;
    let late = Late::new(cpu, expected_ns, at_ns, ExpectedFrom::Probe, kind);
    Ok(is_traced.then_some(Late { pid, command, since_ns, unended, ..late }))
}

/// A thread that may be the measured one. The probe's clock differs slightly from the trace's, so it may run a little after
/// the moment.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    /// 2: its name and a real-time priority; 1: its name; 0: it is on the CPU.
    certainty: u8,
    pid: Option<u32>,
    command: Option<Name>,
}

impl Candidate {
    /// The measured thread that is woken, or leaves its CPU: one that does not run again is seen nowhere else.
    fn waiting(kind: &EventKind, moment: &KeptMoment, reader: &dyn Reader) -> Option<Self> {
        let (EventKind::Waking { task, .. }
        | EventKind::Wakeup { task, .. }
        | EventKind::Switch { previous: task, .. }) = *kind
        else {
            return None;
        };
        Some(Self::of(task, moment, reader)).filter(|candidate| candidate.certainty > 0)
    }

    fn of(task: Task, moment: &KeptMoment, reader: &dyn Reader) -> Self {
        // The series of a watched thread has its name without the characters that separate series.
        let command = reader.names().text(task.command);
        let is_its = moment.task.as_ref().is_some_and(|name| {
            command == name.as_str() || command.replace(['/', '#'], ":") == name.as_str()
        });
        let certainty = match is_its {
            true if task.priority < PRIORITY_NORMAL => 2,
            own => u8::from(own),
        };
        Self { certainty, pid: Some(task.pid), command: Some(task.command) }
    }
}
