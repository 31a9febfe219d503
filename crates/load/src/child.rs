//! The process of a load: reads what to do, does it until its standard input is closed or its time is up.

use crate::error::LoadError;
use crate::kinds::gpu::{Maker, set_maker};
use crate::protocol::{Message, Reporter};
use crate::spec::LoadSpec;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;
use whylate_core::{CpuId, MonoTime, Nanos};
use whylate_host::{HostRoot, shield};
use whylate_sys::clock;
use whylate_sys::memory::HugePages;

/// What the threads of the process report to its main thread.
#[derive(Debug)]
pub(crate) enum LoadEvent {
    /// Standard input was closed, or a signal asked for the end.
    Stop,
    /// A memory thread has its buffer.
    Prepared(HugePages),
    /// A thread is ready to act, or to be hit.
    Ready,
    Failed(LoadError),
    /// A child process ended, in words.
    Exited {
        pid: u32,
        /// Exit status or signal.
        how: String,
    },
    /// No child process is left.
    Childless,
    /// A line of the command's output held a rate.
    Matched {
        /// When it was read.
        at: MonoTime,
        /// The number; `None` when the group held none.
        value: Option<f64>,
    },
    /// All processes that held the command's output open have ended.
    OutputEnded(Option<std::io::Error>),
}

/// Everything a kind of load needs of its process.
pub(crate) struct LoadContext {
    pub(crate) reporter: Reporter,
    pub(crate) sender: Sender<LoadEvent>,
    pub(crate) events: Receiver<LoadEvent>,
    pub(crate) interval: Nanos,
    pub(crate) duration: Option<Nanos>,
    pub(crate) host: HostRoot,
}

impl LoadContext {
    /// The next event until `moment`; `None` when it has come.
    pub(crate) fn event_until(&self, moment: MonoTime) -> Option<LoadEvent> {
        let wait = Duration::from_nanos(moment.0.saturating_sub(clock::now().0));
        match self.events.recv_timeout(wait) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            // Impossible: this context holds a sender.
            Err(RecvTimeoutError::Disconnected) => Some(LoadEvent::Stop),
        }
    }

    /// When the load ends by itself, given its start; the end of time without a duration.
    pub(crate) fn end(&self, begin: MonoTime) -> MonoTime {
        MonoTime(self.duration.map_or(u64::MAX, |duration| begin.0.saturating_add(duration.0)))
    }

    /// Reports to the parent; `false` if the parent is gone, which means stop.
    pub(crate) fn tell(&mut self, message: &Message) -> bool {
        self.reporter.send(message).is_ok()
    }
}

/// A moment `nanos` after another, without overflow.
pub(crate) fn after(moment: MonoTime, nanos: u64) -> MonoTime {
    MonoTime(moment.0.saturating_add(nanos))
}

/// The hidden subcommand: one load, asked for by the first line of `stdin`, reported on `stdout`.
///
/// Ends when `stdin` does, or when the load's own duration is over, with success; with status 1 when the load could
/// not run or ended early, after an error line.
pub fn child_main(
    host: HostRoot,
    stdin: impl Read + Send + 'static,
    stdout: impl Write + Send + 'static,
) -> ExitCode {
    let reporter = Reporter::new(stdout);
    let (sender, events) = mpsc::channel();
    let spec = match read_request(stdin, sender.clone()) {
        Ok(spec) => spec,
        Err(error) => return fail(&reporter, &error),
    };
    if let Err(error) = reporter.stay_alive().map_err(LoadError::system("starting a thread")) {
        return fail(&reporter, &error);
    }
    if let Err(error) = spec.validate() {
        return fail(&reporter, &error);
    }
    let (interval, duration) = (spec.interval, spec.duration);
    let mut context = LoadContext { reporter, sender, events, interval, duration, host };
    match spec.work.work().run(&mut context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let status = fail(&context.reporter, &error);
            if let LoadError::Hung { .. } = error {
                // What the driver has registered for an ordinary exit would hang as well.
                whylate_sys::process::exit_now(1);
            }
            status
        }
    }
}

/// The same in the helper for graphics processors, which runs what `maker` makes.
pub fn gpu_main(
    host: HostRoot,
    stdin: impl Read + Send + 'static,
    stdout: impl Write + Send + 'static,
    maker: Maker,
) -> ExitCode {
    set_maker(maker);
    child_main(host, stdin, stdout)
}

fn fail(reporter: &Reporter, error: &LoadError) -> ExitCode {
    // Without a listener the exit status says enough.
    let message = match error {
        LoadError::Unavailable(what) => Message::Unavailable(what.clone()),
        error => Message::Error(error.to_string()),
    };
    let _ = reporter.send(&message);
    ExitCode::FAILURE
}

/// Reads the first line, and leaves a thread behind that waits for the end of the input.
fn read_request<R: Read + Send + 'static>(
    stdin: R,
    sender: Sender<LoadEvent>,
) -> Result<LoadSpec, LoadError> {
    let mut input = BufReader::new(stdin);
    let mut line = String::new();
    input.read_line(&mut line).map_err(LoadError::system("reading the request"))?;
    let spec = serde_json::from_str(&line).map_err(|error| LoadError::Request(error.to_string()))?;
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            // Whatever else comes is ignored; an error is an end too.
            let _ = std::io::copy(&mut input, &mut std::io::sink());
            let _ = sender.send(LoadEvent::Stop);
        })
        .map_err(LoadError::system("starting a thread"))?;
    Ok(spec)
}

/// The CPUs that a thread of the load runs on, as an error names them.
pub(crate) fn pin(host: &HostRoot, cpus: &whylate_core::CpuSet) -> Result<(), LoadError> {
    shield::pin_this_thread(host, cpus)
        .map_err(|error| LoadError::Pin(shield::why_not_pinned(host, cpus, &error)))
}

/// The same for one CPU.
pub(crate) fn pin_to(host: &HostRoot, cpu: CpuId) -> Result<(), LoadError> {
    pin(host, &whylate_core::CpuSet::single(cpu))
}
