//! Triggers that are numbers in files, when they grow.

use super::inbox::{Teller, Watcher};
use crate::error::ProbeError;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use whylate_sys::clock;

/// How often a counter is read.
const PERIOD: Duration = Duration::from_millis(10);

/// The number at the start of a file.
fn number(path: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let word = text.split_whitespace().next().unwrap_or_default();
    word.parse().map_err(|_| "it does not begin with a whole number".to_owned())
}

/// What a reading says: the text of a trigger if the number grew. A number that goes back begins anew.
fn grown(before: &mut u64, now: u64) -> Option<String> {
    let before = std::mem::replace(before, now);
    (now > before).then(|| format!("{before} -> {now}"))
}

/// Waits for a counter to grow.
///
/// # Errors
/// When the file cannot be read or has no number.
pub(super) fn watch(path: &Path, teller: Teller) -> Result<Watcher, ProbeError> {
    let cannot = |why: String| ProbeError::Failed(format!("cannot read {}: {why}", path.display()));
    let mut before = number(path).map_err(cannot)?;
    let path = path.to_owned();
    let follow = move |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(PERIOD);
            // A device may come back.
            if let Ok(now) = number(&path)
                && let Some(text) = grown(&mut before, now)
            {
                teller.tell(clock::now().0, Some(&text));
            }
        }
    };
    Watcher::start("trigger counter", follow).map_err(|error| cannot(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::inbox::Inbox;
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_counter_that_goes_back_begins_anew() {
        let mut before = 7;
        let found = [7, 9, 3, 3, 4].map(|now| grown(&mut before, now));
        assert_eq!(found, [None, Some("7 -> 9".to_owned()), None, None, Some("3 -> 4".to_owned())]);
    }

    #[test]
    fn a_counter_that_grows_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missed");
        fs::write(&path, "nothing\n").unwrap();
        let inbox = Inbox::default();
        let teller = || Teller::new(&inbox, 0);
        assert!(watch(&path, teller()).is_err_and(|error| error.to_string().contains("whole number")));
        fs::write(&path, "4\n").unwrap();
        let _watcher = watch(&path, teller()).unwrap();
        // In one step: a file that is empty for a moment has no number.
        fs::write(folder.path().join("new"), "5\n").unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        let mut come = Vec::new();
        while come.is_empty() && Instant::now() < until {
            std::thread::sleep(PERIOD);
            come = inbox.take(&mut []);
        }
        assert_eq!(come[0].text.as_deref(), Some("4 -> 5"));
    }
}
