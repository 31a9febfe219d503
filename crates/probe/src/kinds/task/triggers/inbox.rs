//! Triggers that came and were not looked at yet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use whylate_core::order::InOrder;
use whylate_core::result::TriggerRecord;
use whylate_core::text;

/// A text has at most this many bytes.
const TEXT_MAX: usize = 200;
/// If more triggers wait, later ones are only counted.
const WAITING_MAX: usize = 65_536;

/// A trigger that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Come {
    pub(super) at_ns: u64,
    /// Its place among the given ones.
    pub(super) trigger: usize,
    pub(super) text: Option<String>,
}

#[derive(Debug, Default)]
struct Waiting {
    come: Vec<Come>,
    /// Those for which there was no room, by trigger.
    uncounted: Vec<u64>,
    /// Sources that stopped to work, with the reason.
    failures: Vec<String>,
}

/// Where the threads that wait for triggers leave them.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox(Arc<Mutex<Waiting>>);

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came since the last call, in the order of time; adds those for which there was no room to their records.
    pub(super) fn take(&self, records: &mut [TriggerRecord]) -> Vec<Come> {
        let (mut come, uncounted) = {
            let mut waiting = self.waiting();
            (std::mem::take(&mut waiting.come), std::mem::take(&mut waiting.uncounted))
        };
        for (record, number) in records.iter_mut().zip(uncounted) {
            record.count += number;
            record.unexplained += number;
        }
        come.order_by_key(|one| one.at_ns);
        come
    }

    /// Why sources stopped to work.
    pub(super) fn failures(&self) -> Vec<String> {
        self.waiting().failures.clone()
    }
}

/// Tells of one trigger.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    inbox: Inbox,
    trigger: usize,
}

impl Teller {
    pub(super) fn new(inbox: &Inbox, trigger: usize) -> Self {
        Self { inbox: inbox.clone(), trigger }
    }

    /// It came at that moment.
    pub(super) fn tell(&self, at_ns: u64, text: Option<&str>) {
        let trigger = self.trigger;
        let mut waiting = self.inbox.waiting();
        if waiting.come.len() < WAITING_MAX {
            waiting.come.push(Come { at_ns, trigger, text: text.map(short) });
            return;
        }
        let least = waiting.uncounted.len().max(trigger + 1);
        waiting.uncounted.resize(least, 0);
        waiting.uncounted[trigger] += 1;
    }

    /// It will not come any more, for this reason.
    pub(super) fn fail(&self, reason: String) {
        self.inbox.waiting().failures.push(reason);
    }
}

/// A text that others wrote: control characters are escaped, and a long one is cut.
pub(super) fn short(text: &str) -> String {
    let mut short = String::new();
    for letter in text.chars() {
        let piece =
            if text::is_hidden(letter) { letter.escape_default().to_string() } else { letter.to_string() };
        if short.len() + piece.len() > TEXT_MAX {
            break;
        }
        short.push_str(&piece);
    }
    short
}

/// A thread that waits for triggers; it ends when this is dropped.
pub(super) struct Watcher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts it. `work` has to return soon after the flag is set.
    pub(super) fn start(
        name: &str,
        work: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = Builder::new().name(name.to_owned()).spawn(move || work(&flag))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Whether it has nothing left to do.
    pub(super) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was printed by the thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_short_and_have_no_control_characters() {
        assert_eq!(short("Late\u{1b}[2J\tby 4 ms"), "Late\\u{1b}[2J\\tby 4 ms");
        assert_eq!(short(&"\u{e4}".repeat(150)).len(), 200);
        assert_eq!(short(&format!("{}\u{1b}", "x".repeat(197))).len(), 197, "no half of an escape");
    }

    #[test]
    fn triggers_without_room_are_counted() {
        let inbox = Inbox::default();
        let teller = Teller::new(&inbox, 1);
        (0..WAITING_MAX as u64 + 3).for_each(|at_ns| teller.tell(u64::MAX - at_ns, None));
        let mut records = [TriggerRecord::default(), TriggerRecord::default()];
        let come = inbox.take(&mut records);
        assert_eq!((come.len(), records[1].count, records[1].unexplained), (WAITING_MAX, 3, 3));
        assert!(come.is_sorted_by_key(|one| one.at_ns));
        assert!(inbox.take(&mut records).is_empty() && records[1].count == 3);
    }
}
