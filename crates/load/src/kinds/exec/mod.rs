//! The command load: this process becomes the supervisor of any command and of everything that it starts.
//!
//! The supervisor is a subreaper: processes that the command leaves behind, in whatever session or group, become its
//! children and are ended with it. The command's output is appended to a file, and numbers in it become rates.

mod output;
mod path;
mod step;
mod tree;

pub use step::exec_main;

use super::{Place, Work};
use crate::child::{Context, Event, after};
use crate::error::LoadError;
use crate::protocol::{Message, Ready};
use output::{Output, pattern};
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::pipe;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;
use whylate_core::plan::ExecPlan;
use whylate_core::record::RateRecord;
use whylate_core::{CpuSet, MonoTime, Warning, WarningCode};
use whylate_host::threads::Stat;
use whylate_sys::clock;
use whylate_sys::process::Launcher;

/// Any command, with everything that it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
    /// Where it may run; by default wherever the load's process may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// File that its standard output and standard error are appended to.
    pub output: PathBuf,
    /// Regular expression with one group, around the number: searched in every line of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_pattern: Option<String>,
    /// What the number counts.
    pub rate_unit: String,
}

impl ExecSpec {
    pub(crate) fn resolve(plan: &ExecPlan, place: &Place<'_>) -> Result<Self, LoadError> {
        Ok(Self {
            command: plan.command.clone(),
            cpus: plan.cpus.as_ref().map(|cpus| place.cpus("cpus", cpus)).transpose()?,
            // Set when the load is started.
            output: PathBuf::new(),
            rate_pattern: plan.rate_pattern.clone(),
            rate_unit: plan.rate_unit.clone(),
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

    fn run(&self, context: &mut Context) -> Result<(), LoadError> {
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
        self.rate_pattern.as_deref().map_or(Ok(()), |text| pattern(text).map(drop))
    }
}

/// How long a command is watched before it counts as running: one that cannot start ends within that.
const START_NS: u64 = 50_000_000;
/// How often it is looked whether the command was stopped.
const LOOK_NS: u64 = 1_000_000_000;
/// How long the rest of an ended command's output is waited for.
const OUTPUT_END_NS: u64 = 500_000_000;

fn run(spec: &ExecSpec, context: &mut Context) -> Result<(), LoadError> {
    let name = spec.command.first().map(String::as_str).unwrap_or_default();
    path::find(name, std::env::var_os("PATH").as_deref())?;
    set_child_subreaper(Some(getpid())).map_err(LoadError::system("becoming a subreaper"))?;
    watch_signals(context.sender.clone())?;
    let output = Output::open(spec)?;
    let (pid, output) = start(spec, output, &context.sender)?;
    watch_children(context.sender.clone())?;
    let mut rates = Rates::new(context.interval.0);
    let ended = supervise(spec, pid, &mut rates, context);
    let survivors = tree::end(pid, context);
    drain(&mut rates, context);
    if let Some(rate) = rates.flush() {
        context.tell(&Message::Rate(rate));
    }
    if let Some(warning) = rates.warning(spec) {
        context.tell(&Message::Warning(warning));
    }
    let command = name.to_owned();
    match ended {
        Some(how) => Err(LoadError::CommandEnded { command, how, output: output.last_lines() }),
        None if !survivors.is_empty() => {
            let pids: Vec<String> = survivors.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
            Err(LoadError::CommandSurvives { command, pids: pids.join(",") })
        }
        None => Ok(()),
    }
}

/// Starts the command in a process group of its own, through a step that pins it and binds its life to ours.
fn start(spec: &ExecSpec, output: Output, sender: &Sender<Event>) -> Result<(Pid, output::Tail), LoadError> {
    let (reader, writer) = pipe().map_err(LoadError::system("making a pipe for the output"))?;
    let second = writer.try_clone().map_err(LoadError::system("making a pipe for the output"))?;
    let launcher = Launcher::current().map_err(LoadError::system("finding this program"))?;
    let mut command = launcher.command("internal-exec");
    command
        .arg(std::process::id().to_string())
        .arg(spec.cpus.as_ref().map_or_else(|| step::ANYWHERE.to_owned(), ToString::to_string))
        .arg("--")
        .args(&spec.command)
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(second);
    let child =
        command.spawn().map_err(LoadError::system(format!("starting {}", launcher.program.display())))?;
    // The pipe ends when the command and all that it started have closed it; so must this process.
    drop(command);
    let tail = output.collect(reader, sender.clone())?;
    let pid = Pid::from_child(&child);
    Ok((pid, tail))
}

/// Waits for the end: `None` when it was asked for, otherwise how the command ended by itself.
fn supervise(spec: &ExecSpec, pid: Pid, rates: &mut Rates, context: &mut Context) -> Option<String> {
    let begin = clock::now();
    let end = context.end(begin);
    let (mut announced, mut looked) = (false, begin);
    let raw = pid.as_raw_nonzero().get() as u32;
    loop {
        let wake = if announced { rates.due() } else { after(begin, START_NS) };
        if announced && clock::now() >= after(looked, LOOK_NS) {
            looked = clock::now();
            if is_stopped(raw) {
                return Some("it was stopped (SIGSTOP, or a debugger)".to_owned());
            }
        }
        let wake = wake.min(after(looked, LOOK_NS));
        match context.event_until(wake.min(end)) {
            Some(Event::Stop) => return None,
            Some(Event::Exited { pid, how }) if pid == raw => return Some(how),
            Some(Event::Childless) => return Some("its process is gone".to_owned()),
            Some(Event::Matched { at, value }) => rates.add(at, value),
            Some(Event::OutputEnded(Some(error))) => {
                let text =
                    format!("the command's output is no longer kept in {}: {error}", spec.output.display());
                context.tell(&Message::Warning(Warning::new(WarningCode::OutputLost, text)));
            }
            Some(_) => {}
            None if clock::now() >= end => return None,
            None => {}
        }
        if !announced && clock::now() >= after(begin, START_NS) {
            announced = true;
            let cpus = spec.cpus.as_ref().map(|cpus| format!(" on CPUs {cpus}")).unwrap_or_default();
            let detail = format!("`{}`{cpus}", spec.command.join(" "));
            if !context.tell(&Message::Ready(Ready { pid: raw, at_ns: clock::now().0, detail })) {
                return None;
            }
        }
        let now = clock::now();
        if let Some(rate) = rates.take_due(now)
            && !context.tell(&Message::Rate(rate))
        {
            return None;
        }
    }
}

fn is_stopped(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Stat::parse(&text).is_some_and(|stat| matches!(stat.field(3), Some("T" | "t")))
}

/// Takes what was still in the pipe when the last process ended.
fn drain(rates: &mut Rates, context: &Context) {
    let limit = after(clock::now(), OUTPUT_END_NS);
    while let Some(event) = context.event_until(limit) {
        match event {
            Event::Matched { at, value } => rates.add(at, value),
            Event::OutputEnded(_) => break,
            _ => {}
        }
    }
}

/// SIGTERM and its like mean stop, so that nothing is left behind.
fn watch_signals(sender: Sender<Event>) -> Result<(), LoadError> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(LoadError::system("watching for signals"))?;
    let watch = move || {
        for _ in signals.forever() {
            let _ = sender.send(Event::Stop);
        }
    };
    spawn("signals", watch)
}

/// Reaps every child, those that were left behind by others too, and tells of each.
fn watch_children(sender: Sender<Event>) -> Result<(), LoadError> {
    spawn("children", move || {
        loop {
            match rustix::process::wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) => {
                    let how = describe(ExitStatus::from_raw(status.as_raw()));
                    let _ = sender.send(Event::Exited { pid: pid.as_raw_nonzero().get() as u32, how });
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    let _ = sender.send(Event::Childless);
                    // A process that is being reparented may still appear.
                    thread::sleep(Duration::from_millis(20));
                    if rustix::process::wait(WaitOptions::NOHANG).is_err() {
                        return;
                    }
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

/// Turns the numbers of single lines into at most one rate per interval: the mean of what came since the last.
#[derive(Debug)]
struct Rates {
    interval_ns: u64,
    last: MonoTime,
    latest: MonoTime,
    sum: f64,
    count: u64,
    matched: u64,
    not_numbers: u64,
}

impl Rates {
    fn new(interval_ns: u64) -> Self {
        let now = clock::now();
        Self { interval_ns, last: now, latest: now, sum: 0.0, count: 0, matched: 0, not_numbers: 0 }
    }

    fn add(&mut self, at: MonoTime, value: Option<f64>) {
        match value {
            Some(value) => {
                self.matched += 1;
                self.latest = at;
                self.sum += value;
                self.count += 1;
            }
            None => self.not_numbers += 1,
        }
    }

    /// When there will be a rate to send; the end of time while no number is waiting.
    fn due(&self) -> MonoTime {
        if self.count == 0 { MonoTime(u64::MAX) } else { after(self.last, self.interval_ns) }
    }

    fn take_due(&mut self, now: MonoTime) -> Option<RateRecord> {
        if now >= self.due() { self.flush() } else { None }
    }

    /// The mean of what is waiting.
    fn flush(&mut self) -> Option<RateRecord> {
        if self.count == 0 {
            return None;
        }
        let interval_ns = self.latest.0.saturating_sub(self.last.0);
        let rate = RateRecord { at_ns: self.latest.0, interval_ns, value: self.sum / self.count as f64 };
        (self.last, self.sum, self.count) = (self.latest, 0.0, 0);
        Some(rate)
    }

    /// What is wrong with the pattern, judged by the whole output.
    fn warning(&self, spec: &ExecSpec) -> Option<Warning> {
        let pattern = spec.rate_pattern.as_deref()?;
        let fix = format!("look at {} and correct the pattern", spec.output.display());
        if self.not_numbers > 0 {
            let text =
                format!("{} lines matched `{pattern}` without a number in its group", self.not_numbers);
            return Some(Warning::with_fix(WarningCode::RateNotANumber, text, fix));
        }
        let text = format!(
            "no line of the output of `{}` matched `{pattern}`: it has no rate",
            spec.command.join(" ")
        );
        (self.matched == 0).then(|| Warning::with_fix(WarningCode::RateNeverMatched, text, fix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_one_rate_per_interval() {
        let mut rates = Rates::new(1000);
        let begin = rates.last;
        assert_eq!(rates.due(), MonoTime(u64::MAX));
        assert_eq!(rates.flush(), None);
        for (offset, value) in [(100, 10.0), (300, 20.0), (900, 60.0)] {
            rates.add(after(begin, offset), Some(value));
        }
        rates.add(after(begin, 950), None);
        assert_eq!(rates.take_due(after(begin, 999)), None);
        let rate = rates.take_due(after(begin, 1000));
        assert_eq!(rate, Some(RateRecord { at_ns: begin.0 + 900, interval_ns: 900, value: 30.0 }));
        rates.add(after(begin, 5900), Some(7.0));
        let rate = rates.take_due(after(begin, 5900));
        assert_eq!(rate, Some(RateRecord { at_ns: begin.0 + 5900, interval_ns: 5000, value: 7.0 }));
    }

    #[test]
    fn ends_are_described() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exit status 3");
        assert_eq!(describe(ExitStatus::from_raw(9)), "signal 9, SIGKILL");
    }
}
