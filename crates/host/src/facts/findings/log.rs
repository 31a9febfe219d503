//! Findings in the log of the running kernel, by the catalogue of its messages.

use super::{FindingCode, LiveFiles};
use whylate_core::figure::nanoseconds;
use whylate_core::result::{Finding, LogMessage, Severity};

/// One for each message. The log is about the past: other questions find what is wrong now, so no message alone makes
/// a machine unfit.
pub(super) fn findings(live: &LiveFiles<'_>) -> Vec<Finding> {
    // Words of the command line have a finding of their own.
    let others = live.log().into_iter().flat_map(|log| &log.messages);
    let others = others.filter(|message| !matches!(message.code.as_str(), "unknown_parameters" | "vm_clock"));
    others.map(finding).collect()
}

fn finding(message: &LogMessage) -> Finding {
    let figure = message.figure_ns.map(|ns| format!(" ({})", nanoseconds(ns))).unwrap_or_default();
    let times = if message.lines > 1 { format!(", in {} lines", message.lines) } else { String::new() };
    let at = message.at_ns.map(|ns| format!(", {:.3} s after boot", ns as f64 / 1e9)).unwrap_or_default();
    let severity = message.severity.max(Severity::Advice);
    let code = &message.code;
    FindingCode::KernelLog
        .found(severity, format!("the kernel's log contains the message {code}{figure}{times}{at}"))
        .effect(format!("{} {}", message.meaning, message.names))
        .seen("/dev/kmsg", message.text.clone())
        .now(format!("{} (`whylate explain --why {code}`)", message.fix.trim_end_matches('.')))
}
