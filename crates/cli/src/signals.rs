//! Every signal that can be caught and ends a process asks for an orderly end. A second one from the terminal or a
//! service manager prints what is still to be done; a process that does not come to an end prints what is still
//! changed. A signal that was ignored when the command started stays ignored, except SIGINT and SIGTERM.

use crate::{exit, output};
use anyhow::{Context, Result};
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGSYS, SIGTERM, SIGTRAP, SIGUSR1, SIGUSR2,
    SIGVTALRM, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use whylate_host::environment::{has_claimed, ignore_unless_handled, ignores_signal};
use whylate_treat::last_words;

/// `timeout` and others signal a process and its group: what comes so soon after the first signal is the same wish.
const SAME_WISH: Duration = Duration::from_millis(500);
/// How long restoring settings may take after the second signal.
const WITHIN: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);
/// Sent by people and service managers; a second one of these means that they do not want to wait.
const ASKS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Limits, timers and mistakes of other programs. The kernel repeats some of them, so they never cut an orderly end
/// short.
const OTHERS: [i32; 12] = [
    SIGXCPU, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGSYS, SIGTRAP, SIGABRT, SIGSTKFLT,
    SIGPWR,
];
/// Not named by signal_hook; the same on all architectures that whylate is built for.
const SIGSTKFLT: i32 = 16;
const SIGPWR: i32 = 30;
/// Real-time signals that a C library leaves to programs, and those that it keeps: musl 32 to 34, glibc 32 and 33.
const REAL_TIME: std::ops::RangeInclusive<i32> = 35..=64;
const OF_LIBRARY: std::ops::RangeInclusive<i32> = 32..=34;

/// Set when the user wants the command to end.
pub(crate) fn watch() -> Result<Arc<AtomicBool>> {
    let asked = Arc::new(AtomicBool::new(false));
    // A shell starts background jobs with SIGINT ignored; a SIGINT that is sent to one still asks it to end.
    let is_ignored = |signal: &i32| !matches!(*signal, SIGINT | SIGTERM) && ignores_signal(*signal);
    let watched = ASKS.into_iter().chain(OTHERS).chain(REAL_TIME).filter(|signal| !is_ignored(signal));
    let mut signals = Signals::new(watched).context("cannot handle signals")?;
    // The write that is too long fails with EFBIG, which is handled as a full disk is.
    if !ignores_signal(SIGXFSZ) {
        signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot handle signals")?;
    }
    OF_LIBRARY.for_each(ignore_unless_handled);
    let flag = Arc::clone(&asked);
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            signals.forever().find(|signal| !has_claimed(*signal));
            flag.store(true, Ordering::Relaxed);
            let asked_at = Instant::now();
            signals.forever().find(|signal| ASKS.contains(signal) && asked_at.elapsed() > SAME_WISH);
            second(&mut signals);
        })
        .context("cannot start a thread for signals")?;
    Ok(asked)
}

/// Handles the second signal: ends at once if nothing is changed; otherwise settings are restored first, as the first
/// signal requested. A third signal does not wait for that.
fn second(signals: &mut Signals) {
    if last_words::holds_settings() {
        output::message("whylate: restoring settings first; another signal stops immediately");
        let deadline = Instant::now() + WITHIN;
        // The process ends while this thread waits, once everything is restored and reported.
        while Instant::now() < deadline && !signals.pending().any(|signal| ASKS.contains(&signal)) {
            std::thread::sleep(PAUSE);
        }
    }
    let left = last_words::stop_writing();
    for line in &left {
        output::message(&format!("still changed: {line}"));
    }
    output::message(match left.is_empty() {
        true => "whylate: stopped immediately by another signal; what was not stored yet is lost",
        false => "whylate: stopped immediately; to restore these settings: whylate treat restore",
    });
    exit::at_once(if left.is_empty() { exit::ERROR } else { exit::NOT_RESTORED });
}
