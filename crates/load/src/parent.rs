//! The runner's side of a load: starts its process, collects its messages, stops it within a bounded time.

use crate::error::LoadError;
use crate::kinds::exec::describe;
use crate::protocol::{Message, Ready, SILENT_AFTER};
use crate::spec::LoadSpec;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use whylate_core::record::RateRecord;
use whylate_core::{Nanos, Warning};
use whylate_sys::process::Launcher;

/// Lines of the process's standard error that an error quotes.
const LAST_LINES: usize = 5;
/// Time after SIGTERM, and after SIGKILL.
const SIGNAL_GRACE: Duration = Duration::from_secs(2);
/// Time for the last lines to arrive after the end of the process.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The longest wait for a helper that is only tried.
const HELPER_READY_WITHIN: Duration = Duration::from_secs(20);
/// Time between two looks at a process that is ending.
const LOOK: Duration = Duration::from_millis(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadStatus {
    /// Preparing: buffers are filled, the command is being started.
    Starting,
    Running,
    /// Ended as asked: its duration is over, or it was stopped.
    Finished,
    /// Ended too early: why, with its last words.
    Died(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedBy {
    /// The request, or its own duration.
    Request,
    /// SIGTERM, because it did not answer to the request.
    Terminate,
    /// SIGKILL, because it did not answer to SIGTERM either.
    Kill,
}

/// What is left of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadOutcome {
    /// Rates that [`Load::take_rates`] has not taken, oldest first.
    pub rates: Vec<RateRecord>,
    /// What differs from the request.
    pub warnings: Vec<Warning>,
    pub stopped_by: StoppedBy,
}

/// What the reading threads have collected.
#[derive(Debug, Default)]
struct Heard {
    ready: Option<Ready>,
    rates: Vec<RateRecord>,
    warnings: Vec<Warning>,
    error: Option<String>,
    /// Whether that is because the machine lacks something.
    is_unavailable: bool,
    /// Last lines that were not a message, and those of standard error.
    words: VecDeque<String>,
    /// When the last message came.
    last: Option<Instant>,
    open: u32,
}

impl Heard {
    /// The state of a process that has not ended.
    fn status(&self) -> LoadStatus {
        match self.last {
            _ if self.ready.is_none() => LoadStatus::Starting,
            Some(last) if last.elapsed() > SILENT_AFTER => LoadStatus::Died(format!(
                "its process has not responded for {} s: it is stopped (SIGSTOP), frozen, or starved",
                last.elapsed().as_secs()
            )),
            _ => LoadStatus::Running,
        }
    }
}

#[derive(Debug, Default)]
struct Mailbox {
    heard: Mutex<Heard>,
    changed: Condvar,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` or for `timeout`, whichever comes first.
    fn wait(&self, timeout: Duration, mut done: impl FnMut(&Heard) -> bool) -> MutexGuard<'_, Heard> {
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |heard| !done(heard));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn change(&self, change: impl FnOnce(&mut Heard)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// A load in a process of its own. Dropping it stops it.
#[derive(Debug)]
pub struct Load {
    child: Child,
    stdin: Option<ChildStdin>,
    mailbox: Arc<Mailbox>,
    grace: Duration,
    /// Its executable, if it is not this program.
    helper: Option<PathBuf>,
    exit: Option<ExitStatus>,
    stopped_by: Option<StoppedBy>,
}

impl Load {
    /// Starts the process and sends it its request. It prepares while this returns: see [`Load::wait_ready`].
    ///
    /// # Errors
    /// What [`LoadSpec::validate`] finds, and [`LoadError::System`] when no process can be started.
    pub fn start(launcher: &Launcher, spec: &LoadSpec) -> Result<Self, LoadError> {
        spec.validate()?;
        let mut line = serde_json::to_vec(spec).map_err(|error| LoadError::Request(error.to_string()))?;
        line.push(b'\n');
        let other = spec.work.work().program()?;
        let launcher = other.clone().map_or_else(|| launcher.clone(), |program| Launcher { program });
        let mut child = launcher
            .command("internal-load")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(LoadError::system(format!("starting {}", launcher.program.display())))?;
        let mailbox = Arc::new(Mailbox::default());
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let grace = spec.work.work().grace();
        // From here on, dropping it ends the process.
        let mut load = Self { child, stdin, mailbox, grace, helper: other, exit: None, stopped_by: None };
        if let Some(stdout) = stdout {
            load.listen(stdout, hear_message)?;
        }
        if let Some(stderr) = stderr {
            load.listen(stderr, hear_words)?;
        }
        // A process that has already ended is reported by `status`.
        if let Some(stdin) = &mut load.stdin {
            let _ = stdin.write_all(&line).and_then(|()| stdin.flush());
        }
        Ok(load)
    }

    /// Lets the helper prepare such a load and end, if it is the helper's.
    ///
    /// # Errors
    /// [`LoadError::Unavailable`] with what is missing, as the helper says. The load itself reports any other problem.
    pub fn try_helper(spec: &LoadSpec) -> Result<(), LoadError> {
        let Some(program) = spec.work.work().program()? else { return Ok(()) };
        let spec = LoadSpec { duration: Some(Nanos(1)), ..spec.clone() };
        match Self::start(&Launcher { program }, &spec)?.wait_ready(HELPER_READY_WITHIN) {
            Err(LoadError::Unavailable(what)) => Err(LoadError::Unavailable(what)),
            _ => Ok(()),
        }
    }

    fn listen<R: Read + Send + 'static>(
        &self,
        stream: R,
        hear: fn(&mut Heard, &str),
    ) -> Result<(), LoadError> {
        let mailbox = Arc::clone(&self.mailbox);
        mailbox.change(|heard| heard.open += 1);
        let listen = move || {
            let mut lines = BufReader::new(stream);
            let mut line = Vec::new();
            while matches!(lines.read_until(b'\n', &mut line), Ok(length) if length > 0) {
                mailbox.change(|heard| hear(heard, String::from_utf8_lossy(&line).trim_end()));
                line.clear();
            }
            mailbox.change(|heard| heard.open -= 1);
        };
        let thread = thread::Builder::new().name("load-listener".to_owned()).spawn(listen);
        thread.map(drop).map_err(LoadError::system("starting a thread"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the load is running at full effect.
    ///
    /// # Errors
    /// [`LoadError::Reported`] or [`LoadError::Died`] when it ended instead, [`LoadError::NotReady`] when it takes
    /// longer than `timeout`.
    pub fn wait_ready(&mut self, timeout: Duration) -> Result<Ready, LoadError> {
        let begin = Instant::now();
        let mut heard = self.mailbox.lock();
        loop {
            let is_decided = heard.ready.is_some() || heard.error.is_some() || heard.open == 0;
            // A living process reports every second, also while it prepares.
            let is_silent = match heard.last {
                Some(last) => last.elapsed() > SILENT_AFTER,
                None => self.helper.is_some() && begin.elapsed() > SILENT_AFTER,
            };
            if is_decided || is_silent || begin.elapsed() >= timeout {
                break;
            }
            drop(heard);
            let is_decided =
                |heard: &Heard| heard.ready.is_some() || heard.error.is_some() || heard.open == 0;
            heard = self.mailbox.wait(LAST_WORDS.min(timeout), is_decided);
        }
        if let Some(ready) = &heard.ready {
            let own = env!("CARGO_PKG_VERSION");
            return match self.helper.clone() {
                Some(program) if ready.version != own => {
                    Err(LoadError::Version { program, found: ready.version.clone(), own })
                }
                _ => Ok(ready.clone()),
            };
        }
        let ended = heard.error.is_some() || heard.open == 0;
        drop(heard);
        if !ended {
            return Err(LoadError::NotReady(begin.elapsed()));
        }
        self.wait_exit(SIGNAL_GRACE);
        Err(self.last_words())
    }

    /// The rates that came since the last call, oldest first; never waits.
    pub fn take_rates(&self) -> Vec<RateRecord> {
        std::mem::take(&mut self.mailbox.lock().rates)
    }

    /// What differs from the request, so far.
    pub fn warnings(&self) -> Vec<Warning> {
        self.mailbox.lock().warnings.clone()
    }

    /// Its state; never waits, except for the last messages of a process that has just died.
    pub fn status(&mut self) -> LoadStatus {
        match self.poll_exit() {
            None => {
                let heard = self.mailbox.lock();
                // A process that hangs in the kernel cannot end, but has said why it wants to.
                heard.error.clone().map_or_else(|| heard.status(), LoadStatus::Died)
            }
            Some(status) if status.success() || self.stopped_by.is_some() => LoadStatus::Finished,
            Some(_) => LoadStatus::Died(self.last_words().to_string()),
        }
    }

    /// Stops it: closes its standard input and waits, then SIGTERM, then SIGKILL to its process group; at most
    /// about ten seconds. Calling it again gives what has come since.
    ///
    /// # Errors
    /// [`LoadError::Reported`] or [`LoadError::Died`] when it had ended by itself before, or could not end
    /// everything that it started; [`LoadError::Survives`] when not even SIGKILL ends it.
    pub fn stop(&mut self) -> Result<LoadOutcome, LoadError> {
        let stopped_by = match self.stopped_by {
            Some(stopped_by) => stopped_by,
            None => self.end()?,
        };
        self.stopped_by = Some(stopped_by);
        let mut heard = self.mailbox.wait(LAST_WORDS, |heard| heard.open == 0);
        let failed = self.exit.is_some_and(|status| !status.success()) && stopped_by == StoppedBy::Request;
        if failed || heard.error.is_some() {
            drop(heard);
            return Err(self.last_words());
        }
        let (rates, warnings) = (std::mem::take(&mut heard.rates), heard.warnings.clone());
        Ok(LoadOutcome { rates, warnings, stopped_by })
    }

    /// Ends the process by whatever it takes.
    fn end(&mut self) -> Result<StoppedBy, LoadError> {
        self.stdin = None;
        // A process that has been silent for that long does not hear this either: its end is reported without more
        // delay.
        let is_silent = self.mailbox.lock().last.is_some_and(|last| last.elapsed() > SILENT_AFTER);
        let (grace, signal_grace) =
            if is_silent { (Duration::ZERO, LAST_WORDS) } else { (self.grace, SIGNAL_GRACE) };
        if self.wait_exit(grace) {
            return Ok(StoppedBy::Request);
        }
        for (signal, stopped_by) in [(Signal::TERM, StoppedBy::Terminate), (Signal::KILL, StoppedBy::Kill)] {
            if let Some(group) = Pid::from_raw(self.child.id() as i32) {
                // An error means that it is gone already.
                let _ = kill_process_group(group, signal);
            }
            if self.wait_exit(signal_grace) {
                return Ok(stopped_by);
            }
        }
        Err(LoadError::Survives { pid: self.child.id() })
    }

    /// Whether the process has ended, or does so within `timeout`.
    fn wait_exit(&mut self, timeout: Duration) -> bool {
        let limit = Instant::now() + timeout;
        while self.poll_exit().is_none() {
            if Instant::now() >= limit {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    fn poll_exit(&mut self) -> Option<ExitStatus> {
        if self.exit.is_none() {
            // Cannot fail: the process is a child of this one and is reaped only here.
            self.exit = self.child.try_wait().ok().flatten();
        }
        self.exit
    }

    /// Why it ended: its own error, or its status and what it printed.
    fn last_words(&self) -> LoadError {
        let heard = self.mailbox.wait(LAST_WORDS, |heard| heard.open == 0);
        if let Some(error) = &heard.error {
            let error = error.clone();
            return match heard.is_unavailable {
                true => LoadError::Unavailable(error),
                false => LoadError::Reported(error),
            };
        }
        let how = self.exit.map_or_else(|| "its output is closed".to_owned(), describe);
        let words: Vec<&str> = heard.words.iter().map(String::as_str).collect();
        let output = if words.is_empty() {
            String::new()
        } else {
            format!("; its last output: {}", words.join(" | "))
        };
        LoadError::Died { how, output }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.stopped_by.is_none() {
            let _ = self.end();
        }
    }
}

fn hear_message(heard: &mut Heard, line: &str) {
    heard.last = Some(Instant::now());
    match serde_json::from_str(line) {
        Ok(Message::Ready(ready)) => heard.ready = Some(ready),
        Ok(Message::Rate(rate)) => heard.rates.push(rate),
        Ok(Message::Alive) => {}
        Ok(Message::Warning(warning)) => whylate_core::warning::push_once(&mut heard.warnings, warning),
        Ok(Message::Error(error)) => heard.error = Some(error),
        Ok(Message::Unavailable(error)) => {
            (heard.error, heard.is_unavailable) = (Some(error), true);
        }
        Err(_) => hear_words(heard, line),
    }
}

fn hear_words(heard: &mut Heard, line: &str) {
    if heard.words.len() == LAST_LINES {
        heard.words.pop_front();
    }
    heard.words.push_back(line.to_owned());
}
