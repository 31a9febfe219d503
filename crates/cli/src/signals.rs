//! SIGINT, SIGTERM, SIGHUP and SIGQUIT: the first asks for an orderly end, whichever it is; a second one is told what is
//! still to be done; and a process that does not come to an end says what is still changed.

use crate::{exit, output};
use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use whylate_host::environment::ignores_signal;
use whylate_treat::last_words;

/// How long settings may take to be given back after the second signal.
const WITHIN: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);

/// Set once the user wants the command to end.
pub(crate) fn watch() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    // `nohup` and similar: a closed terminal does not ask the program to end.
    let ignored = |signal: &i32| matches!(*signal, SIGHUP | SIGQUIT) && ignores_signal(*signal);
    let watched: Vec<i32> =
        [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| !ignored(signal)).collect();
    let mut signals = Signals::new(watched).context("cannot handle signals")?;
    let flag = Arc::clone(&asked);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            signals.forever().next();
            flag.store(true, Ordering::Relaxed);
            signals.forever().next();
            second(&mut signals);
        })
        .context("cannot start a thread for signals")?;
    Ok(asked)
}

/// The second signal: at once where nothing is changed; else the settings are given back first, as the first signal
/// asked for. A third signal does not wait for that.
fn second(signals: &mut Signals) {
    if last_words::holds_settings() {
        output::message("whylate: restoring settings first; another signal stops at once");
        let deadline = Instant::now() + WITHIN;
        // The process ends under this thread, when all is given back and said.
        while Instant::now() < deadline && signals.pending().next().is_none() {
            std::thread::sleep(PAUSE);
        }
    }
    let left = last_words::stop_writing();
    for line in &left {
        output::message(&format!("still changed: {line}"));
    }
    if !left.is_empty() {
        output::message("whylate: stopped at once; to restore these settings: whylate treat restore");
    }
    exit::at_once(if left.is_empty() { exit::ERROR } else { exit::NOT_RESTORED });
}
