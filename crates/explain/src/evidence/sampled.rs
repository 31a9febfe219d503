//! Spikes that a noise tracer measured itself: samples of hwlat, lines of the osnoise table, its gaps and its noises. The
//! tracer's counts are the evidence; the events around them add nothing.

use crate::causes::judge::Judgement;
use crate::confidence::{CONCLUDED, SHOWN, STATED};
use crate::describe;
use crate::find::late::{Late, LateKind};
use crate::window::Window;
use std::collections::BTreeSet;
use whylate_core::result::{Cause, CauseKind, EvidenceLine, HwlatSample, TimelineSegment};
use whylate_trace::event::NoiseSource;
use whylate_trace::reader::Reader;

/// The verdict on a sample that states its own cause; `None` for the others.
pub(crate) fn judge(
    late: &Late,
    window: &Window,
    reader: &dyn Reader,
    is_virtual: bool,
) -> Option<Judgement> {
    let judgement = match late.kind {
        LateKind::Hwlat(sample) => hwlat(late, sample, is_virtual),
        LateKind::Noises { runtime_ns, counts } => noises(late, runtime_ns, counts, is_virtual),
        LateKind::Noise(source) => noise(late, source, reader),
        _ => return None,
    };
    let sample = window.events.iter().find(|event| {
        let is_sample = matches!(late.kind.what(), whylate_core::result::LateWhat::Sample);
        is_sample && event.cpu == late.cpu && event.at_ns >= late.actual_ns
    });
    let evidence = sample.map(|event| EvidenceLine {
        at_ns: event.at_ns,
        cpu: event.cpu,
        offset: event.offset,
        text: describe::line(event, reader).trim_start().to_owned(),
        meaning: "the tracer's sample".to_owned(),
    });
    Some(Judgement { evidence: evidence.into_iter().collect(), ..judgement })
}

/// The osnoise tracer samples with interrupts enabled and counts what interrupts it. Nothing interrupted it in this gap.
pub(crate) fn provably_hardware(judgement: &mut Judgement, late: &Late, is_virtual: bool) {
    let reason = "interrupts were enabled, and the tracer counted no kernel activity in the gap";
    let found = of_one(below_kernel(late, is_virtual, reason), late, "no kernel code ran");
    *judgement = Judgement { evidence: std::mem::take(&mut judgement.evidence), ..found };
}

/// Something below the kernel had the CPU: in a virtual machine rather its hypervisor, which certainly exists, than the
/// hardware.
fn below_kernel(late: &Late, is_virtual: bool, reason: &str) -> Cause {
    whole(if is_virtual { CauseKind::HostStall } else { CauseKind::Hardware }, late, CONCLUDED, reason)
}

fn hwlat(late: &Late, sample: HwlatSample, is_virtual: bool) -> Judgement {
    let reason = "the tracer ran with interrupts disabled, so no kernel code except an NMI handler could run";
    let cause = below_kernel(late, is_virtual, reason);
    let mut judgement = of_one(cause, late, "no kernel code could run");
    if let Some(nmi_ns) = sample.nmi_ns.filter(|nmi_ns| *nmi_ns > 0) {
        let share = (nmi_ns as f64 / late.latency_ns().max(1) as f64).min(1.0);
        let times = sample.nmi_count.map(|count| format!(" (number: {count})")).unwrap_or_default();
        let reason = format!("the tracer counted {} us in NMIs{times}", nmi_ns / 1000);
        let nmi = Cause { share: Some(share), ..whole(CauseKind::Nmi, late, SHOWN, &reason) };
        judgement.cause.share = Some(1.0 - share);
        let less = if share > 0.5 { std::mem::replace(&mut judgement.cause, nmi) } else { nmi };
        judgement.also.push(less);
        judgement.timeline[0].kind = Some(judgement.cause.kind);
    }
    judgement
}

/// The table counts the sources of noise in a second, and does not say which one made the largest.
fn noises(late: &Late, runtime_ns: u64, counts: [u64; 5], is_virtual: bool) -> Judgement {
    let [hardware, nmi, irq, softirq, thread] = counts;
    let what = format!(
        "the largest noise in {} ms; number of noises in that time: hardware {hardware}, NMI {nmi}, irq {irq}, softirq {softirq}, \
         thread {thread}",
        runtime_ns / 1_000_000
    );
    let below = if is_virtual { CauseKind::HostStall } else { CauseKind::Hardware };
    let sources = [below, CauseKind::Nmi, CauseKind::Irq, CauseKind::Softirq, CauseKind::Thread];
    let mut seen = sources.into_iter().zip(counts).filter(|(_, count)| *count > 0);
    let cause = match (seen.next(), seen.next()) {
        (Some((kind, _)), None) => {
            whole(kind, late, CONCLUDED, "the tracer counted noise from this source only")
        }
        _ => {
            let unknown = "the table does not say what caused the largest noise: record the events \
                           osnoise:irq_noise, softirq_noise, thread_noise and nmi_noise too (rtla: -e \
                           osnoise)";
            Cause { confidence: None, ..whole(CauseKind::Unattributed, late, 0.0, unknown) }
        }
    };
    of_one(cause, late, &what)
}

/// A noise with its source and its net time.
fn noise(late: &Late, source: NoiseSource, reader: &dyn Reader) -> Judgement {
    let (kind, actor, pid) = describe::noise(source, reader);
    let reason = "the tracer recorded this noise with its net time";
    // It does not say why the thread could run.
    let confidence = if pid.is_some() { CONCLUDED } else { STATED };
    let cause = Cause { actor: Some(actor.clone()), pid, ..whole(kind, late, confidence, reason) };
    of_one(cause, late, &actor)
}

fn of_one(cause: Cause, late: &Late, what: &str) -> Judgement {
    let segment = TimelineSegment {
        from_ns: late.expected_ns,
        to_ns: late.actual_ns,
        cpu: late.cpu,
        what: what.to_owned(),
        kind: Some(cause.kind),
        function: None,
    };
    Judgement {
        timeline: vec![segment],
        cause,
        also: Vec::new(),
        evidence: Vec::new(),
        needs: BTreeSet::new(),
    }
}

/// The cause of all of it.
fn whole(kind: CauseKind, late: &Late, confidence: f64, reason: &str) -> Cause {
    let looks_the_same =
        (kind == CauseKind::Hardware).then_some("a hypervisor may have stopped the CPU instead");
    Cause {
        from_ns: Some(late.expected_ns),
        to_ns: Some(late.actual_ns),
        share: Some(1.0),
        confidence: Some(confidence),
        evidence: std::iter::once(reason).chain(looks_the_same).map(str::to_owned).collect(),
        ..Cause::new(kind)
    }
}
