//! What the kernel logged about latency while a run measured: each message with the repeat in which it came, and a
//! warning.

use whylate_core::order::InOrder;
use whylate_core::result::{LogMessage, RunMessage};
use whylate_core::warning::push_once;
use whylate_core::{Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_host::kernel_log::LogSince;
use whylate_store::RunInfo;

/// The kernel's log from the start of a run on, if it may be read.
pub(crate) struct RunLog(Option<LogSince>);

impl RunLog {
    pub(crate) fn start(root: &HostRoot) -> Self {
        Self(LogSince::now(root))
    }

    /// The messages since the last call: in `place`, or between repeats.
    pub(crate) fn take(&self, place: Option<(&str, u32)>, info: &mut RunInfo) {
        for message in self.messages() {
            push_once(&mut info.warnings, warning(&message, place));
            info.kernel_log.push(RunMessage {
                cell: place.map(|(cell, _)| cell.to_owned()),
                repeat: place.map(|(_, repeat)| repeat),
                message,
            });
        }
    }

    /// The same as warnings alone.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.messages().iter().map(|message| warning(message, None)).collect()
    }

    fn messages(&self) -> Vec<LogMessage> {
        let mut messages = self.0.as_ref().and_then(|log| log.messages().ok()).unwrap_or_default().messages;
        messages.order_by_key(|message| message.at_ns);
        messages
    }
}

fn warning(message: &LogMessage, place: Option<(&str, u32)>) -> Warning {
    let LogMessage { code, text, meaning, fix, at_ns, .. } = message;
    let at = at_ns.map(|ns| format!(" at {:.6} s after boot", ns as f64 / 1e9)).unwrap_or_default();
    let place = place.map(|(cell, repeat)| format!(" ({cell}, repeat {repeat})")).unwrap_or_default();
    let text = format!("{code}: during the run{at}{place}, the kernel wrote \"{text}\". {meaning}");
    Warning::with_fix(WarningCode::KernelLog, text, fix)
}
