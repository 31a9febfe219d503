//! A CPU that waits for a device access looks like slow code, so the answer names both.

use crate::confidence::CONCLUDED;
use crate::vocabulary;
use whylate_core::result::{Cause, CauseKind, ExplainedSpike};

/// Shorter accesses are normal: a read over PCIe takes about 1 us.
const LEAST_NS: f64 = 5_000.0;

/// Adds to causes of a spike that are device accesses what else may have taken the time.
pub(crate) fn mark(spike: &mut ExplainedSpike) {
    let latency_ns = spike.latency_ns as f64;
    std::iter::once(&mut spike.cause).chain(&mut spike.also).for_each(|cause| mark_one(cause, latency_ns));
}

fn mark_one(cause: &mut Cause, latency_ns: f64) {
    use CauseKind::{Irq, IrqsOff, PreemptOff, Softirq, Thread};
    let length_ns = cause.share.unwrap_or(1.0) * latency_ns;
    let is_code = matches!(cause.kind, Irq | IrqsOff | PreemptOff | Softirq | Thread);
    let Some(function) = cause.function.as_deref().filter(|_| is_code && length_ns >= LEAST_NS) else {
        return;
    };
    let Some(what) = vocabulary::device_access(function) else { return };
    let caller = cause.callers.first().map(|caller| format!(" (called by {caller})")).unwrap_or_default();
    cause.evidence.push(format!(
        "the CPU was in {function}{caller}: {what}. The hardware (device, bus or firmware) may have caused the delay instead of the code"
    ));
    cause.confidence = cause.confidence.map(|confidence| confidence.min(CONCLUDED));
}
