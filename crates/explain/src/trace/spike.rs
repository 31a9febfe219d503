//! One spike: its window, its pieces, its verdict.

use super::account::Accountant;
use super::judge::{self, Judgement};
use super::label::{Labeller, Need};
use super::late::{Late, LateKind};
use super::priorities::Priorities;
use super::standstill;
use super::states;
use super::window::{self, Window};
use crate::confidence::{self, CONCLUDED, SHOWN};
use crate::divide::lower;
use std::collections::BTreeSet;
use whylate_core::result::{Cause, CauseKind, EvidenceLine, ExpectedFrom, ExplainedSpike, TimelineSegment};
use whylate_trace::event::Name;
use whylate_trace::parse::ParseError;
use whylate_trace::reader::Reader;

/// Explains a spike; `None` when its window shows that it was none.
///
/// # Errors
/// Those of the reader.
pub(super) fn explain(
    reader: &mut dyn Reader,
    late: &Late,
) -> Result<Option<(ExplainedSpike, BTreeSet<Need>)>, ParseError> {
    let window = window::read(reader, late)?;
    let reader: &dyn Reader = reader;
    let judgement = match late.kind {
        LateKind::Hwlat { nmi_ns } => Some(hwlat(late, nmi_ns, &window, reader)),
        _ => judged(late, &window, reader),
    };
    let Some(mut judgement) = judgement else { return Ok(None) };
    lower_confidence(&mut judgement.cause, late, &window);
    let spike = ExplainedSpike {
        task: late.command.map_or_else(String::new, |name| reader.names().text(name).to_owned()),
        pid: late.pid,
        priority: late.priority,
        cpu: late.cpu,
        expected_ns: late.expected_ns,
        actual_ns: late.actual_ns,
        latency_ns: late.latency_ns(),
        expected_from: late.from,
        expected_error_ns: late.error_ns.max(reader.info().resolution_ns),
        cause: judgement.cause,
        also: judgement.also,
        timeline: judgement.timeline,
        evidence: judgement.evidence,
        lost: window.lost,
        trace: 0,
    };
    Ok(Some((spike, judgement.needs)))
}

fn judged(late: &Late, window: &Window, reader: &dyn Reader) -> Option<Judgement> {
    let states = states::sweep(window, reader);
    let name = |name: Name| reader.names().text(name).to_owned();
    let commands = window.commands.iter().map(|(pid, command)| (*pid, name(*command))).collect();
    let priorities = Priorities::of(window);
    let priority = late.priority.or_else(|| priorities.first(late.pid?));
    let late = &Late { priority, ..*late };
    let labeller = Labeller {
        window,
        states: &states,
        reader,
        commands: &commands,
        priorities: &priorities,
        late: late.kind,
    };
    let mut accountant =
        Accountant { window, states: &states, labeller: &labeller, late, pieces: Vec::new() };
    if late.kind == LateKind::Blocked
        && !accountant.had_fault(late.expected_ns)
        && !accountant.waited_for_lock(late.expected_ns)
    {
        return None;
    }
    accountant.run();
    standstill::relabel(&mut accountant.pieces, &labeller);
    let mut judgement = judge::judge(&accountant, reader);
    if let LateKind::NoiseGap { interference: 0 } = late.kind {
        provably_hardware(&mut judgement, late);
    }
    Some(judgement)
}

/// The osnoise tracer looks with interrupts on and counts what interrupts it: a gap in which nothing did.
fn provably_hardware(judgement: &mut Judgement, late: &Late) {
    let reason = "interrupts were on, and the tracer counted nothing of the kernel in the gap";
    judgement.cause = whole(CauseKind::Hardware, late, CONCLUDED, reason);
    judgement.also.clear();
    judgement.needs.clear();
    judgement.timeline = vec![segment(late, CauseKind::Hardware, "nothing of the kernel ran")];
}

fn hwlat(late: &Late, nmi_ns: u64, window: &Window, reader: &dyn Reader) -> Judgement {
    let reason = "the tracer looked with interrupts off, so that nothing of the kernel but an NMI could run";
    let mut cause = whole(CauseKind::Hardware, late, CONCLUDED, reason);
    let mut also = Vec::new();
    if nmi_ns > 0 {
        let share = (nmi_ns as f64 / late.latency_ns().max(1) as f64).min(1.0);
        let nmi = Cause {
            share: Some(share),
            ..whole(CauseKind::Nmi, late, SHOWN, "the tracer counted time in NMIs")
        };
        cause.share = Some(1.0 - share);
        if share > 0.5 { also.push(std::mem::replace(&mut cause, nmi)) } else { also.push(nmi) }
    }
    let sample = window.events.iter().find(|event| event.at_ns == late.actual_ns && event.cpu == late.cpu);
    let evidence = sample.map(|event| EvidenceLine {
        at_ns: event.at_ns,
        cpu: event.cpu,
        offset: event.offset,
        text: super::describe::line(event, reader).trim_start().to_owned(),
        meaning: "the tracer's sample".to_owned(),
    });
    Judgement {
        timeline: vec![segment(late, cause.kind, "nothing of the kernel could run")],
        cause,
        also,
        evidence: evidence.into_iter().collect(),
        needs: BTreeSet::new(),
    }
}

/// The cause of all of it.
fn whole(kind: CauseKind, late: &Late, confidence: f64, reason: &str) -> Cause {
    let looks_the_same =
        (kind == CauseKind::Hardware).then_some("a hypervisor that stops the CPU looks the same");
    Cause {
        from_ns: Some(late.expected_ns),
        to_ns: Some(late.actual_ns),
        share: Some(1.0),
        confidence: Some(confidence),
        evidence: std::iter::once(reason).chain(looks_the_same).map(str::to_owned).collect(),
        ..Cause::new(kind)
    }
}

fn segment(late: &Late, kind: CauseKind, what: &str) -> TimelineSegment {
    TimelineSegment {
        from_ns: late.expected_ns,
        to_ns: late.actual_ns,
        cpu: late.cpu,
        what: what.to_owned(),
        kind: Some(kind),
        function: None,
    }
}

/// Lost events, and an expected moment that is not exact, make a cause less sure.
fn lower_confidence(cause: &mut Cause, late: &Late, window: &Window) {
    if window.lost > 0 {
        let reason = format!("less sure: {} events were lost in the window", window.lost);
        lower(cause, confidence::OF_LOSSES, reason);
    }
    if window.truncated {
        let reason = "less sure: the window has too many events, its beginning was left out";
        lower(cause, confidence::OF_UNSURE_WINDOW, reason.to_owned());
    }
    if late.error_ns.saturating_mul(4) > late.latency_ns() {
        let reason = "less sure: the expected moment is not known well";
        lower(cause, confidence::OF_UNSURE_WINDOW, reason.to_owned());
    }
    if late.from == ExpectedFrom::Wakeup {
        let reason = "the latency counts from the wake-up: what was late before it is not in it";
        lower(cause, 1.0, reason.to_owned());
    }
}
