//! The command load: this process becomes the supervisor of any command and of everything that it starts.
//!
//! The supervisor is a subreaper: processes that the command leaves behind, in whatever session or group, become its
//! children and are ended with it. The command's output is appended to a file, and numbers in it become rates.

mod output;
mod path;
mod rates;
mod server;
mod step;
mod tree;

pub use step::exec_main;

use super::{LoadPlace, Work};
use crate::child::{LoadContext, LoadEvent, after};
use crate::error::LoadError;
use crate::protocol::{Message, Ready};
use output::{Output, pattern};
use rates::Rates;
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper};
use serde::{Deserialize, Serialize};
pub use server::ServerSpec;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use whylate_core::plan::ExecPlan;
use whylate_core::{CpuSet, Nanos, Warning, WarningCode};
use whylate_host::environment::ignores_signal;
use whylate_host::threads::Stat;
use whylate_sys::clock;
use whylate_sys::process::Launcher;

/// Any command, with everything that it starts.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
    /// Where it may run; by default wherever the load's process may.
    pub cpus: Option<CpuSet>,
    /// File that its standard output and standard error are appended to.
    pub output: PathBuf,
    /// Regular expression with one group, around the number: searched in every line of the output.
    pub rate_pattern: Option<String>,
    pub rate_unit: String,
    /// Whether it is started again when it ends with status 0.
    #[serde(default)]
    pub restart: bool,
    /// For a command that first calibrates itself: how long each of its numbers was measured for. It is at full effect
    /// from the first of them on.
    pub calibrated: Option<Nanos>,
    /// What has to run before it.
    pub server: Option<ServerSpec>,
}

impl ExecSpec {
    /// The output file as a path for the user: the folder may be given as an open folder of the runner
    /// (`/proc/PID/fd/N`).
    pub(crate) fn output_shown(&self) -> PathBuf {
        let folder = self.output.parent().and_then(|folder| std::fs::read_link(folder).ok());
        let is_fixed = self.output.starts_with("/proc");
        let shown =
            folder.filter(|_| is_fixed).zip(self.output.file_name()).map(|(folder, name)| folder.join(name));
        shown.unwrap_or_else(|| self.output.clone())
    }

    pub(crate) fn resolve(plan: &ExecPlan, place: &LoadPlace<'_>) -> Result<Self, LoadError> {
        Ok(Self {
            command: plan.command.clone(),
            cpus: plan.cpus.as_ref().map(|cpus| place.cpus("cpus", cpus)).transpose()?,
            // Set when the load is started.
            output: PathBuf::new(),
            rate_pattern: plan.rate_pattern.clone(),
            rate_unit: plan.rate_unit.clone(),
            restart: plan.restart,
            calibrated: None,
            server: None,
        })
    }
}

impl Work for ExecSpec {
    fn unit(&self) -> &str {
        &self.rate_unit
    }

    fn cpus(&self) -> Option<&CpuSet> {
        self.cpus.as_ref()
    }

    fn grace(&self) -> Duration {
        // It has to end everything that it started.
        Duration::from_secs(6)
    }

    fn set_output(&mut self, path: PathBuf) {
        self.output = path;
    }

    fn run(&self, context: &mut LoadContext) -> Result<(), LoadError> {
        run(self, context)
    }

    fn validate(&self) -> Result<(), LoadError> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err(LoadError::CommandEmpty);
        }
        if self.cpus.as_ref().is_some_and(CpuSet::is_empty) {
            return Err(LoadError::NoCpus);
        }
        let name = self.command.first().map(String::as_str).unwrap_or_default();
        path::find(name, std::env::var_os("PATH").as_deref())?;
        if let Some(server) = &self.server {
            path::find(&server.program, std::env::var_os("PATH").as_deref())?;
        }
        self.rate_pattern.as_deref().map_or(Ok(()), |text| pattern(text).map(drop))
    }
}

/// How long a command is watched before it counts as running: one that cannot start ends within that.
const START_NS: u64 = 50_000_000;
/// Least time between two starts of a command that is started again.
const RESTART_NS: u64 = 100_000_000;
/// How often the supervisor checks whether the command was stopped.
const LOOK_NS: u64 = 1_000_000_000;
/// How long the rest of an ended command's output is waited for.
const OUTPUT_END_NS: u64 = 500_000_000;

fn run(spec: &ExecSpec, context: &mut LoadContext) -> Result<(), LoadError> {
    let name = spec.command.first().map(String::as_str).unwrap_or_default();
    path::find(name, std::env::var_os("PATH").as_deref())?;
    set_child_subreaper(Some(getpid())).map_err(LoadError::system("becoming a subreaper"))?;
    watch_signals(context.sender.clone())?;
    let output = Output::open(spec)?;
    let tail = output.tail.clone();
    let mut running = Running { spec, output, server: None, arguments: Vec::new(), open: 0, starts: 0 };
    if let Some(server) = &spec.server {
        let (pid, display) = server::start(server, &mut running.output, &context.sender)?;
        (running.server, running.arguments) = (Some(pid), vec!["-display".to_owned(), display]);
        running.open += 1;
    }
    let pid = running.start(&context.sender)?;
    watch_children(context.sender.clone())?;
    let mut rates = Rates::new(context.interval.0);
    let ended = running.supervise(pid, &mut rates, context);
    // The group of the last start; all other processes descend from this one.
    let survivors = tree::end(pid, context);
    running.drain(&mut rates, context);
    if let Some(rate) = rates.flush() {
        context.tell(&Message::Rate(rate));
    }
    if let Some(warning) = rates.warning(spec) {
        context.tell(&Message::Warning(warning));
    }
    let command = name.to_owned();
    match ended? {
        Some(how) => Err(LoadError::CommandEnded { command, how, output: tail.last_lines() }),
        None if !survivors.is_empty() => {
            let pids: Vec<String> = survivors.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
            Err(LoadError::CommandSurvives { command, pids: pids.join(",") })
        }
        None => Ok(()),
    }
}

/// Starts a command in a process group of its own, through a step that pins it and binds its life to ours.
fn launch(
    cpus: Option<&CpuSet>,
    line: impl IntoIterator<Item = impl AsRef<OsStr>>,
    stdout: impl Into<Stdio>,
    stderr: impl Into<Stdio>,
) -> Result<Pid, LoadError> {
    let launcher = Launcher::current().map_err(LoadError::system("finding this program"))?;
    let mut command = launcher.command("internal-exec");
    command
        .arg(std::process::id().to_string())
        .arg(cpus.map_or_else(|| step::ANYWHERE.to_owned(), ToString::to_string))
        .arg("--")
        .args(line)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    let child =
        command.spawn().map_err(LoadError::system(format!("starting {}", launcher.program.display())))?;
    Ok(Pid::from_child(&child))
}

/// The command, while it is supervised.
struct Running<'s> {
    spec: &'s ExecSpec,
    output: Output,
    /// The process that has to stay while the command runs.
    server: Option<Pid>,
    arguments: Vec<String>,
    /// Outputs that a process can still write to.
    open: u32,
    starts: u32,
}

impl Running<'_> {
    fn start(&mut self, sender: &Sender<LoadEvent>) -> Result<Pid, LoadError> {
        let (reader, writer) = self.output.channel(self.spec.calibrated.is_some())?;
        let second = writer.try_clone().map_err(LoadError::system("making a pipe for the output"))?;
        let (program, rest) = self.spec.command.split_at(1);
        let line = program.iter().chain(&self.arguments).chain(rest);
        let pid = launch(self.spec.cpus.as_ref(), line, writer, second)?;
        // The channel ends when the command and everything that it started have closed it; this process has closed it
        // already.
        self.output.collect(reader, sender.clone())?;
        self.open += 1;
        self.starts += 1;
        Ok(pid)
    }

    /// Waits for the end: `None` when it was asked for, otherwise how the command ended by itself.
    fn supervise(
        &mut self,
        mut pid: Pid,
        rates: &mut Rates,
        context: &mut LoadContext,
    ) -> Result<Option<String>, LoadError> {
        let begin = clock::now();
        let end = context.end(begin);
        let spec = self.spec;
        let (mut announced, mut looked, mut started, mut calibrating) = (false, begin, begin, true);
        let awaits_number = spec.calibrated.is_some();
        loop {
            if clock::now() >= after(looked, LOOK_NS) {
                looked = clock::now();
                if is_stopped(raw(pid)) {
                    return Ok(Some("stopped by SIGSTOP or a debugger".to_owned()));
                }
            }
            let wake = if announced || awaits_number { rates.due() } else { after(begin, START_NS) };
            match context.event_until(wake.min(after(looked, LOOK_NS)).min(end)) {
                Some(LoadEvent::Stop) => return Ok(None),
                Some(LoadEvent::Exited { pid: ended, how })
                    if self.server.is_some_and(|it| raw(it) == ended) =>
                {
                    return Ok(Some(format!("its X server ended: {how}")));
                }
                Some(LoadEvent::Exited { pid: ended, how }) if raw(pid) == ended => {
                    let was_useful =
                        how == describe(ExitStatus::default()) && !(awaits_number && calibrating);
                    if !spec.restart || !was_useful {
                        return Ok(Some(how));
                    }
                    // A command that ends at once is not started thousands of times per second.
                    let rest = after(started, RESTART_NS).0.saturating_sub(clock::now().0);
                    thread::sleep(Duration::from_nanos(rest));
                    pid = self.start(&context.sender)?;
                    (started, calibrating) = (clock::now(), true);
                }
                Some(LoadEvent::Childless) if !spec.restart => {
                    return Ok(Some("its process has disappeared".to_owned()));
                }
                Some(LoadEvent::Matched { at, value }) => {
                    if let (true, Some(span)) = (calibrating, spec.calibrated) {
                        rates.begin(at, span.0);
                    }
                    calibrating = false;
                    rates.add(at, value);
                }
                Some(LoadEvent::OutputEnded(error)) => self.output_ended(error, context),
                Some(_) => {}
                None if clock::now() >= end => return Ok(None),
                None => {}
            }
            let is_at_work =
                if awaits_number { !calibrating } else { clock::now() >= after(begin, START_NS) };
            if !announced && is_at_work {
                announced = true;
                if !context.tell(&Message::Ready(self.ready(pid))) {
                    return Ok(None);
                }
            }
            if announced
                && let Some(rate) = rates.take_due(clock::now())
                && !context.tell(&Message::Rate(rate))
            {
                return Ok(None);
            }
        }
    }

    fn ready(&self, pid: Pid) -> Ready {
        let cpus = |cpus: Option<&CpuSet>| cpus.map(|cpus| format!(" on CPUs {cpus}")).unwrap_or_default();
        let mut detail = format!("`{}`{}", self.spec.command.join(" "), cpus(self.spec.cpus.as_ref()));
        if let (Some(server), Some(display)) = (&self.spec.server, self.arguments.last()) {
            detail.push_str(&format!(", {} {display}{}", server.program, cpus(server.cpus.as_ref())));
        }
        Ready::now(raw(pid), detail)
    }

    fn output_ended(&mut self, error: Option<std::io::Error>, context: &mut LoadContext) {
        self.open = self.open.saturating_sub(1);
        if let Some(error) = error {
            let path = self.spec.output_shown();
            let path = path.display();
            let text = format!("the command's output is no longer written to {path}: {error}");
            context.tell(&Message::Warning(Warning::new(WarningCode::OutputLost, text)));
        }
    }

    /// Takes what was still in the pipe when the last process ended.
    fn drain(&mut self, rates: &mut Rates, context: &LoadContext) {
        let limit = after(clock::now(), OUTPUT_END_NS);
        while self.open > 0
            && let Some(event) = context.event_until(limit)
        {
            match event {
                LoadEvent::Matched { at, value } => rates.add(at, value),
                LoadEvent::OutputEnded(_) => self.open -= 1,
                _ => {}
            }
        }
    }
}

fn raw(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get() as u32
}

fn is_stopped(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Stat::parse(&text).is_some_and(|stat| matches!(stat.field(3), Some("T" | "t")))
}

/// SIGTERM and similar signals mean stop, so that nothing is left behind; after `nohup`, closing the terminal does
/// not.
fn watch_signals(sender: Sender<LoadEvent>) -> Result<(), LoadError> {
    let watched = [SIGTERM, SIGINT, SIGHUP].into_iter();
    let watched = watched.filter(|signal| *signal != SIGHUP || !ignores_signal(SIGHUP));
    let mut signals = Signals::new(watched).map_err(LoadError::system("watching for signals"))?;
    let watch = move || {
        for _ in signals.forever() {
            let _ = sender.send(LoadEvent::Stop);
        }
    };
    spawn("signals", watch)
}

/// Reaps every child, including those that others left behind, and reports each.
fn watch_children(sender: Sender<LoadEvent>) -> Result<(), LoadError> {
    spawn("children", move || {
        loop {
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => {
                    let how = describe(ExitStatus::from_raw(status.as_raw()));
                    let _ = sender.send(LoadEvent::Exited { pid: pid.as_raw_nonzero().get() as u32, how });
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    let _ = sender.send(LoadEvent::Childless);
                    // A process that is being reparented may still appear, and a command may be started again.
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
    })
}

fn spawn<F: FnOnce() + Send + 'static>(name: &str, run: F) -> Result<(), LoadError> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map(drop).map_err(LoadError::system("starting a thread"))
}

/// How a process ended, in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("signal {signal}, {name}"),
            None => format!("signal {signal}"),
        },
        (None, None) => "unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_described() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exit status 3");
        assert_eq!(describe(ExitStatus::from_raw(9)), "signal 9, SIGKILL");
    }
}
