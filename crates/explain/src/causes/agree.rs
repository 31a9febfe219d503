//! Makes one answer if two kinds of evidence saw the same spike: a recording of the BPF programs, and a trace.
//!
//! Both are graded on one scale ([`crate::confidence`]), so the better evidence gives the answer. If both agree, the answer
//! is as sure as the surer one; if they contradict each other, it is less sure and quotes the other one. [`Cause::sources`]
//! names the evidence of an answer.

use crate::causes::divide::lower;
use crate::confidence::{OF_CONTRADICTION, POSSIBLE};
use whylate_core::result::{Cause, CauseKind, CauseSource, CellResult, ExplainedSpike, Spike, SpikeTrace};
use whylate_core::{Warning, WarningCode};

/// What one kind of evidence says about a spike.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    cause: Cause,
    /// The other contributors, largest share first.
    also: Vec<Cause>,
    /// Records that were lost in the spike's window.
    lost: u64,
}

impl Said {
    fn of_spike(spike: &Spike) -> Self {
        Self { cause: spike.cause.clone(), also: spike.also.clone(), lost: spike.lost }
    }

    fn of_trace(spike: &ExplainedSpike) -> Self {
        Self { cause: spike.cause.clone(), also: spike.also.clone(), lost: spike.lost }
    }
}

/// One answer from the run's own findings, in the recording `from`, and the trace.
fn combine(run: &Said, from: CauseSource, trace: &Said) -> Said {
    // Throttling is also concluded from the kernel's counters; such a cause has no grade.
    let own = if run.cause.confidence.is_some() { from } else { CauseSource::Counters };
    // A trace covers the time after the timer was due, so it shows nothing about the slack before.
    if run.cause.kind == CauseKind::TimerSlack {
        let mut answer = run.clone();
        answer.cause.sources = vec![own];
        return answer;
    }
    let run_wins = grade(&run.cause) >= grade(&trace.cause);
    let (better, other, source, other_source) = match (run_wins, preferred(&run.cause, &trace.cause)) {
        (_, Some(Side::Run)) | (true, None | Some(Side::Either)) => (run, trace, own, CauseSource::Trace),
        _ => (trace, run, CauseSource::Trace, own),
    };
    let mut answer = better.clone();
    let is_silent = |cause: &Cause| cause.kind == CauseKind::Unattributed;
    if is_silent(&other.cause) {
        if !is_silent(&better.cause) {
            answer.cause.sources = vec![source];
        }
    } else if preferred(&run.cause, &trace.cause).is_some() {
        answer.lost = answer.lost.max(other.lost);
        complete(&mut answer.cause, &other.cause);
        answer.cause.sources = vec![own, CauseSource::Trace];
    } else {
        let reason = format!(
            "less certain: according to the {}, the cause is {}",
            other_source.describe(),
            name(&other.cause)
        );
        answer.cause.confidence = Some(grade(&answer.cause));
        lower(&mut answer.cause, OF_CONTRADICTION, reason);
        answer.cause.sources = vec![source];
    }
    answer
}

/// How good the evidence is; no evidence is the worst.
fn grade(cause: &Cause) -> f64 {
    match cause.kind {
        CauseKind::Unattributed => 0.0,
        _ => cause.confidence.unwrap_or(POSSIBLE),
    }
}

/// Whose wording to take if both agree.
enum Side {
    Either,
    Run,
    Trace,
}

/// Whether two causes are compatible, and which kind is more exact.
fn preferred(run: &Cause, trace: &Cause) -> Option<Side> {
    // From vague to exact: the timer was late, no kernel code ran, a counter names the cause.
    let exactness = |kind| match kind {
        CauseKind::TimerLate => Some(1),
        CauseKind::Hardware | CauseKind::HostStall => Some(2),
        CauseKind::Smi | CauseKind::Steal => Some(3),
        _ => None,
    };
    if run.kind != trace.kind {
        return match exactness(run.kind)?.cmp(&exactness(trace.kind)?) {
            std::cmp::Ordering::Less => Some(Side::Trace),
            std::cmp::Ordering::Greater => Some(Side::Run),
            std::cmp::Ordering::Equal => None,
        };
    }
    let differ =
        |one: Option<&str>, other: Option<&str>| one.zip(other).is_some_and(|(one, other)| one != other);
    let is_other = match (run.pid, trace.pid) {
        (Some(one), Some(other)) => one != other,
        // The programs know the kind of the lock, the trace knows its owner.
        _ if run.kind == CauseKind::Lock => false,
        // The programs know who sent the interrupt.
        _ if run.kind == CauseKind::Ipi => differ(run.function.as_deref(), trace.function.as_deref()),
        // A line's devices have several names.
        _ => differ(line(run), line(trace)),
    };
    (!is_other).then_some(Side::Either)
}

/// The actor, without the devices of an interrupt's line.
fn line(cause: &Cause) -> Option<&str> {
    cause.actor.as_deref()?.split(" (").next()
}

/// Adds the other evidence for the same cause.
fn complete(cause: &mut Cause, other: &Cause) {
    let named = |cause: &Cause| cause.actor.is_some() || cause.pid.is_some();
    if !named(cause) && named(other) {
        (cause.actor, cause.pid) = (other.actor.clone(), other.pid);
    }
    if cause.function.is_none() {
        (cause.function, cause.callers) = (other.function.clone(), other.callers.clone());
    }
    cause.confidence = cause.confidence.into_iter().chain(other.confidence).reduce(f64::max);
    cause.evidence.extend(other.evidence.iter().cloned());
    let mut known = std::collections::BTreeSet::new();
    cause.evidence.retain(|line| known.insert(line.clone()));
}

/// `irqs_off: irq/45-nvkm in unarm (confidence 0.95)`.
fn name(cause: &Cause) -> String {
    let actor = cause.actor.as_ref().map(|actor| format!(": {actor}")).unwrap_or_default();
    let function = cause.function.as_ref().map(|function| format!(" in {function}")).unwrap_or_default();
    format!("{}{actor}{function} (confidence {:.2})", cause.kind.name(), grade(cause))
}

/// Makes one answer for each spike that has a trace, and puts it into both. In a guest, claims are weighed against the stalls
/// of its hypervisor. Call it once, on a run's tables and notes; the run's warnings show where its own causes come from.
pub fn combine_run(
    cells: &mut [CellResult],
    warnings: &[Warning],
    is_virtual: bool,
    deadline_ns: Option<u64>,
) {
    let is_from_tracefs = warnings.iter().any(|warning| warning.code == WarningCode::CausesFromTracefs);
    let from = if is_from_tracefs { CauseSource::Tracefs } else { CauseSource::Bpf };
    for cell in cells.iter_mut() {
        let listed: Vec<&mut Spike> =
            cell.probes.iter_mut().flat_map(|probe| &mut probe.spikes).chain(&mut cell.spikes).collect();
        for spike in listed {
            let explained = cell.traces.iter().find(|trace| is_of(trace, spike));
            let explained = explained.and_then(|trace| trace.explained.as_ref()?.spikes.first());
            if let Some(explained) = explained {
                let answer = combine(&Said::of_spike(spike), from, &Said::of_trace(explained));
                (spike.cause, spike.also, spike.lost) = (answer.cause, answer.also, answer.lost);
            }
        }
    }
    if is_virtual {
        super::hypervisor::weigh(cells, deadline_ns);
    }
    for cell in cells {
        for trace in &mut cell.traces {
            let mut listed = cell.spikes.iter().chain(cell.probes.iter().flat_map(|probe| &probe.spikes));
            let Some(spike) = listed.find(|spike| is_of(trace, spike)) else { continue };
            if let Some(explained) = trace.explained.as_mut().and_then(|result| result.spikes.first_mut()) {
                (explained.cause, explained.also) = (spike.cause.clone(), spike.also.clone());
            }
        }
    }
}

/// Whether a trace belongs to that spike.
fn is_of(trace: &SpikeTrace, spike: &Spike) -> bool {
    trace.cpu == spike.cpu
        && trace.at_ns == spike.at_ns
        && spike.probe.as_ref().is_none_or(|probe| *probe == trace.probe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::result::{ExpectedFrom, ExplainResult, ProbeResult};

    fn cause(kind: CauseKind, actor: Option<&str>, confidence: f64) -> Cause {
        let confidence = (kind != CauseKind::Unattributed).then_some(confidence);
        let evidence = confidence.map(|confidence| format!("{} {confidence}", kind.name()));
        Cause {
            actor: actor.map(str::to_owned),
            confidence,
            evidence: evidence.into_iter().collect(),
            ..Cause::new(kind)
        }
    }

    fn said(kind: CauseKind, actor: Option<&str>, confidence: f64) -> Said {
        Said { cause: cause(kind, actor, confidence), also: Vec::new(), lost: 0 }
    }

    #[test]
    fn a_trace_begins_when_the_timer_is_due_and_says_nothing_of_its_slack() {
        let slack = said(CauseKind::TimerSlack, None, 1.0);
        let trace = said(CauseKind::IdleExit, None, 0.95);
        let cause = combine(&slack, CauseSource::Bpf, &trace).cause;
        assert_eq!(
            (cause.kind, cause.confidence, cause.sources),
            (CauseKind::TimerSlack, Some(1.0), vec![CauseSource::Bpf])
        );
        assert_eq!(cause.evidence.len(), 1);
    }

    #[test]
    fn two_that_agree_are_as_sure_as_the_surer_one_and_know_what_each_knows() {
        let bpf = said(CauseKind::IrqsOff, Some("irq/45-nvkm"), 0.8);
        let mut trace = said(CauseKind::IrqsOff, Some("irq/45-nvkm"), 0.95);
        trace.cause.function = Some("unarm".to_owned());
        for (one, other) in [(&bpf, &trace), (&trace, &bpf)] {
            let Cause { confidence, function, evidence, sources, .. } =
                combine(one, CauseSource::Bpf, other).cause;
            assert_eq!((confidence, function.as_deref()), (Some(0.95), Some("unarm")));
            assert_eq!((evidence.len(), sources), (2, vec![CauseSource::Bpf, CauseSource::Trace]));
        }
    }

    #[test]
    fn a_vaguer_kind_of_the_same_is_no_contradiction() {
        let bpf = said(CauseKind::Steal, None, 0.6);
        let answer = combine(&bpf, CauseSource::Bpf, &said(CauseKind::TimerLate, None, 0.8)).cause;
        assert_eq!((answer.kind, answer.confidence), (CauseKind::Steal, Some(0.8)));
        assert_eq!(answer.sources, [CauseSource::Bpf, CauseSource::Trace]);
    }

    #[test]
    fn a_contradiction_takes_the_better_evidence_and_is_less_sure() {
        let irq = said(CauseKind::Irq, Some("irq 24 (eth0)"), 1.0);
        let thread = said(CauseKind::Thread, Some("hog"), 0.9);
        for (run, trace, source) in [(&irq, &thread, CauseSource::Bpf), (&thread, &irq, CauseSource::Trace)] {
            let Cause { kind, confidence, evidence, sources, .. } =
                combine(run, CauseSource::Bpf, trace).cause;
            assert_eq!((kind, confidence, sources), (CauseKind::Irq, Some(0.7), vec![source]));
            assert!(evidence[1].contains("thread: hog (confidence 0.90)"), "{evidence:?}");
        }
        let other = said(CauseKind::Thread, Some("cat"), 0.8);
        assert_eq!(
            combine(&thread, CauseSource::Bpf, &other).cause.confidence,
            Some(0.63),
            "another thread is another cause"
        );
        let counted = Said {
            cause: Cause { confidence: None, ..said(CauseKind::Throttled, None, 0.0).cause },
            ..other.clone()
        };
        assert_eq!(combine(&counted, CauseSource::Bpf, &other).cause.kind, CauseKind::Thread);
    }

    #[test]
    fn what_only_one_explains_is_its_answer() {
        let nothing = said(CauseKind::Unattributed, None, 0.0);
        let nmi = said(CauseKind::Nmi, None, 0.9);
        for (run, trace, source) in [(&nothing, &nmi, CauseSource::Trace), (&nmi, &nothing, CauseSource::Bpf)]
        {
            let answer = combine(run, CauseSource::Bpf, trace).cause;
            assert_eq!((answer.kind, answer.confidence), (CauseKind::Nmi, Some(0.9)));
            assert_eq!(answer.sources, [source]);
        }
        assert_eq!(combine(&nothing, CauseSource::Bpf, &nothing), nothing);
    }

    #[test]
    fn a_run_has_one_answer_for_a_spike_wherever_it_stands() {
        let spike = Spike {
            probe: Some("timer".to_owned()),
            cause: cause(CauseKind::Irq, None, 1.0),
            ..Spike::unexplained(CpuId(1), 9_000, 500)
        };
        let explained = ExplainedSpike {
            task: "timer".to_owned(),
            pid: None,
            priority: None,
            cpu: CpuId(1),
            expected_ns: 8_500,
            actual_ns: 9_000,
            latency_ns: 500,
            unended: false,
            expected_from: ExpectedFrom::Probe,
            expected_error_ns: 0,
            cause: cause(CauseKind::Thread, None, 0.9),
            also: Vec::new(),
            timeline: Vec::new(),
            evidence: Vec::new(),
            hwlat: None,
            lost: 0,
            trace: 0,
        };
        let trace = SpikeTrace {
            cpu: CpuId(1),
            at_ns: 9_000,
            probe: "timer".to_owned(),
            explained: Some(ExplainResult { spikes: vec![explained], ..ExplainResult::default() }),
            ..SpikeTrace::default()
        };
        let other = SpikeTrace { at_ns: 8_000, ..trace.clone() };
        let mut cells = [CellResult {
            probes: vec![ProbeResult { spikes: vec![spike.clone()], ..ProbeResult::default() }],
            spikes: vec![spike],
            traces: vec![other, trace],
            ..CellResult::default()
        }];
        let warned = [Warning::new(WarningCode::CausesFromTracefs, "")];
        let mut from_tracefs = cells.clone();
        combine_run(&mut from_tracefs, &warned, false, None);
        combine_run(&mut cells, &[], false, None);
        assert_eq!(from_tracefs[0].spikes[0].cause.sources, [CauseSource::Tracefs]);
        let [cell] = cells;
        assert_eq!(cell.spikes[0].cause.sources, [CauseSource::Bpf]);
        let of = |trace: &SpikeTrace| trace.explained.as_ref().unwrap().spikes[0].cause.clone();
        assert_eq!((cell.spikes[0].cause.kind, cell.spikes[0].cause.confidence), (CauseKind::Irq, Some(0.7)));
        assert_eq!(cell.probes[0].spikes[0].cause, cell.spikes[0].cause);
        assert_eq!(of(&cell.traces[1]), cell.spikes[0].cause);
        assert_eq!(of(&cell.traces[0]).kind, CauseKind::Thread, "of another spike");
    }
}
