//! Causes as sentences.

use whylate_core::figure::{nanoseconds, share};
use whylate_core::result::{Cause, CauseKind, ExplainedSpike};

/// The whole finding in one sentence: which task was late, where, by how much, and the cause.
pub(crate) fn finding(spike: &ExplainedSpike) -> String {
    let (task, length) = (&spike.task, length(spike));
    let late = match spike.cause.kind {
        CauseKind::Hardware if spike.task.is_empty() => {
            format!("CPU {} stood still for {length}", spike.cpu)
        }
        _ if spike.task.is_empty() => {
            format!("CPU {} was held up for {length}", spike.cpu)
        }
        _ => format!("{task} was {length} late on CPU {}", spike.cpu),
    };
    format!("{late}: {}{}", spike.cause.sentence(), extent(&spike.cause, spike.expected_ns, spike.latency_ns))
}

/// The latency; `at least 2.00 s` if it had not ended when the recording did.
pub(crate) fn length(spike: &ExplainedSpike) -> String {
    let at_least = if spike.unended { "at least " } else { "" };
    format!("{at_least}{}", nanoseconds(spike.latency_ns))
}

/// ` for 3.01 ms (84 % of the latency)`; if it began before the expected moment, its full length and the part that
/// the task felt.
fn extent(cause: &Cause, expected_ns: u64, latency_ns: u64) -> String {
    let Some(part) = cause.share.filter(|part| *part > 0.0) else { return String::new() };
    let time = (part * latency_ns as f64).round() as u64;
    let early = cause.from_ns.map_or(0, |from| expected_ns.saturating_sub(from));
    let early =
        if cause.kind == CauseKind::IrqsOff || cause.kind == CauseKind::PreemptOff { early } else { 0 };
    if early == 0 {
        return format!(" for {} ({} of the latency)", nanoseconds(time), share(part));
    }
    let (all, felt) = (nanoseconds(time + early), nanoseconds(time));
    format!(" for {all}, {felt} of which are part of the latency ({})", share(part))
}

/// `gf100_mc_intr_unarm <- nvkm_mc_intr_unarm <- nvkm_pci_intr`; `None` without callers.
pub(crate) fn chain(cause: &Cause) -> Option<String> {
    let function = cause.function.as_ref().filter(|_| !cause.callers.is_empty())?;
    Some(std::iter::once(function).chain(&cause.callers).cloned().collect::<Vec<_>>().join(" <- "))
}

/// A contributor: `the handler of local timer ran: 24.0 us (21.4 %)`.
pub(crate) fn contributor(cause: &Cause, spike: &ExplainedSpike) -> String {
    let part = cause.share.unwrap_or(0.0);
    let time = (part * spike.latency_ns as f64).round() as u64;
    format!("{}: {} ({})", cause.sentence(), nanoseconds(time), share(part))
}

/// The confidence, the evidence if there are several pieces, and the doubts: `confidence 0.75: …`.
pub(crate) fn confidence(cause: &Cause) -> Option<String> {
    let confidence = cause.confidence?;
    let sources: Vec<&str> = cause.sources.iter().map(|source| source.describe()).collect();
    let from =
        if sources.is_empty() { String::new() } else { format!(" from the {}", sources.join(" and the ")) };
    Some(format!("confidence {confidence:.2}{from}: {}", cause.evidence.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn time_before_the_expected_moment_is_separate_from_the_latency() {
        let off = |from| Cause { share: Some(0.5), from_ns: Some(from), ..Cause::new(CauseKind::IrqsOff) };
        assert!(says("for-ns-latency", extent(&off(1_000), 1_000, 1_000)));
        assert!(says("for-us-ns-latency", extent(&off(400), 1_000, 1_000)));
    }

    #[test]
    fn the_sentence_names_the_culprit() {
        let mut cause = Cause::new(CauseKind::IrqsOff);
        cause.actor = Some("irq/45-nvkm".into());
        cause.pid = Some(489);
        cause.function = Some("gf100_mc_intr_unarm".into());
        assert!(says("irq-nvkm-thread-kept", cause.sentence()));
        assert_eq!(chain(&cause), None);
        cause.callers = vec!["nvkm_mc_intr_unarm".into(), "nvkm_pci_intr".into()];
        assert!(says("gf100-mc-intr-unarm", chain(&cause).unwrap()));
    }
}
