//! Triggers that are signals to the watch.

use super::inbox::{Teller, Watcher};
use crate::error::ProbeError;
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use whylate_sys::{clock, process};

/// How often it is looked at.
const PERIOD: Duration = Duration::from_millis(2);

/// While this exists, the signal does not ask the watch to end.
struct Claimed(i32);

impl Drop for Claimed {
    fn drop(&mut self) {
        process::claim_signal(self.0, false);
    }
}

/// Waits for that signal.
///
/// # Errors
/// When the kernel takes no handler.
pub(super) fn watch(number: i32, teller: Teller) -> Result<Watcher, ProbeError> {
    let cannot = |error| ProbeError::Failed(format!("cannot wait for signal {number}: {error}"));
    process::claim_signal(number, true);
    let claimed = Claimed(number);
    let mut signals = Signals::new([number]).map_err(cannot)?;
    let read = move |stop: &AtomicBool| {
        let _claimed = claimed;
        while !stop.load(Ordering::Relaxed) {
            for _ in signals.pending() {
                teller.tell(clock::now().0, None);
            }
            std::thread::sleep(PERIOD);
        }
    };
    Watcher::start("trigger signal", read).map_err(cannot)
}
