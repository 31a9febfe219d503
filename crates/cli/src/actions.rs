//! `--on-late ACTION` and `--on-trigger ACTION`: what a watch does at once, in the order of the command line.

use crate::hook::{shell, wait_until};
use crate::output;
use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use whylate_runner::Happened;

/// Failures that are printed.
const FAILURES_MAX: usize = 5;
const SNAPSHOT: &str = "/sys/kernel/tracing/snapshot";
const FORMS: &str =
    "shell:COMMAND, signal:NAME:PID (signal:NAME:task: the late thread's process), snapshot, stop";
/// These have the same numbers on all architectures that whylate is built for.
const SIGNALS: [(&str, Signal); 10] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("ABRT", Signal::ABORT),
    ("KILL", Signal::KILL),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("TERM", Signal::TERM),
    ("STOP", Signal::STOP),
    ("CONT", Signal::CONT),
];

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Shell(String),
    /// Without a process id: to the late thread's process.
    Signal(Signal, Option<Pid>),
    /// Keeps what the trace buffer of the kernel has.
    Snapshot,
    /// Ends the watch.
    Stop,
}

impl FromStr for Action {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let unknown = || anyhow!("`{text}` is not an action: choose from {FORMS}");
        match text.split_once(':') {
            None if text == "snapshot" => Ok(Self::Snapshot),
            None if text == "stop" => Ok(Self::Stop),
            Some(("shell", command)) if !command.trim().is_empty() => Ok(Self::Shell(command.to_owned())),
            Some(("signal", rest)) => {
                let (name, target) = rest.split_once(':').ok_or_else(unknown)?;
                let known = SIGNALS.iter().find(|(known, _)| name.trim_start_matches("SIG") == *known);
                let names = SIGNALS.map(|(name, _)| name).join(", ");
                let (_, signal) =
                    known.with_context(|| format!("`{text}`: the signal must be one of {names}"))?;
                let pid = match target {
                    "task" => None,
                    // Zero and negative numbers are groups of processes, or all of them.
                    _ => {
                        let number = target.parse().ok().filter(|number| *number > 0);
                        Some(number.and_then(Pid::from_raw).with_context(|| {
                            format!("`{text}`: `{target}` is neither a process id nor `task`")
                        })?)
                    }
                };
                Ok(Self::Signal(*signal, pid))
            }
            _ => Err(unknown()),
        }
    }
}

/// The actions of each kind of moment.
struct Lists {
    late: Vec<Action>,
    triggers: Vec<Action>,
}

impl Lists {
    fn of(&self, happened: &Happened) -> &[Action] {
        match happened {
            Happened::Late { .. } => &self.late,
            Happened::Trigger { .. } => &self.triggers,
        }
    }
}

/// The actions of a watch, and the thread that does them.
pub(crate) struct Actions {
    lists: Arc<Lists>,
    sender: Option<SyncSender<Happened>>,
    worker: Option<JoinHandle<()>>,
    /// Moments that came while the actions of an earlier one went on.
    skipped: AtomicU64,
    failures: Arc<Mutex<Vec<String>>>,
}

/// Checks the order of the actions, and whether this machine has what they need.
pub(crate) fn check(late: &[Action], triggers: &[Action]) -> Result<()> {
    let is_inner_stop =
        |actions: &[Action]| actions.iter().rev().skip(1).any(|action| *action == Action::Stop);
    if is_inner_stop(late) || is_inner_stop(triggers) {
        bail!("the action `stop` must be the last one");
    }
    if late.iter().chain(triggers).any(|action| *action == Action::Snapshot) && !Path::new(SNAPSHOT).exists()
    {
        bail!(
            "the action `snapshot` needs {SNAPSHOT}: mount tracefs (`mount -t tracefs tracefs /sys/kernel/tracing`); \
             the kernel needs CONFIG_TRACER_SNAPSHOT"
        );
    }
    Ok(())
}

impl Actions {
    /// `None` without any. Commands that print would disturb a view of the whole terminal: `is_quiet` then.
    pub(crate) fn start(
        late: &[Action],
        triggers: &[Action],
        stop: &Arc<AtomicBool>,
        is_quiet: bool,
    ) -> Result<Option<Self>> {
        if late.is_empty() && triggers.is_empty() {
            return Ok(None);
        }
        // One moment waits while the actions of another one go on.
        let (sender, moments) = sync_channel(1);
        let failures = Arc::new(Mutex::new(Vec::new()));
        let lists = Arc::new(Lists { late: late.to_vec(), triggers: triggers.to_vec() });
        let worker =
            Worker { lists: lists.clone(), stop: stop.clone(), is_quiet, failures: failures.clone() };
        let worker = Builder::new().name("whylate-actions".to_owned()).spawn(move || worker.run(&moments));
        Ok(Some(Self {
            lists,
            sender: Some(sender),
            worker: Some(worker.context("cannot start a thread for the actions")?),
            skipped: AtomicU64::new(0),
            failures,
        }))
    }

    /// Does the actions of a moment, or skips them if earlier ones go on.
    pub(crate) fn take(&self, happened: Happened) {
        let has_actions = !self.lists.of(&happened).is_empty();
        let Some(sender) = self.sender.as_ref().filter(|_| has_actions) else { return };
        if sender.try_send(happened).is_err() {
            self.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits for the actions, but not for ever, and says what failed.
    pub(crate) fn finish(&mut self) {
        self.sender = None;
        if let Some(worker) = self.worker.take() {
            wait_until(|| worker.is_finished(), "a command of an action");
        }
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.iter().take(FAILURES_MAX).for_each(|text| output::message(&format!("warning: {text}")));
        if failures.len() > FAILURES_MAX {
            output::message("warning: more actions failed");
        }
        let skipped = self.skipped.load(Ordering::Relaxed);
        if skipped > 0 {
            output::message(&format!(
                "warning: no actions for {skipped} late responses or triggers, because earlier actions had not ended"
            ));
        }
    }
}

struct Worker {
    lists: Arc<Lists>,
    stop: Arc<AtomicBool>,
    is_quiet: bool,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Worker {
    fn run(&self, moments: &Receiver<Happened>) {
        for happened in moments {
            for action in self.lists.of(&happened) {
                if let Err(error) = self.act(action, &happened) {
                    let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                    // One more than are printed shows that there were more.
                    if failures.len() <= FAILURES_MAX {
                        failures.push(format!("{error:#}"));
                    }
                }
            }
        }
    }

    fn act(&self, action: &Action, happened: &Happened) -> Result<()> {
        match action {
            Action::Stop => self.stop.store(true, Ordering::Relaxed),
            Action::Snapshot => {
                fs::write(SNAPSHOT, "1").with_context(|| format!("action snapshot: {SNAPSHOT}"))?;
            }
            Action::Signal(signal, pid) => {
                let task = match happened {
                    Happened::Late { pid, .. } => i32::try_from(*pid).ok().and_then(Pid::from_raw),
                    Happened::Trigger { .. } => None,
                };
                let pid = pid.or(task).context("action signal: a trigger has no process; name one")?;
                kill_process(pid, *signal)
                    .with_context(|| format!("action signal: process {}", pid.as_raw_nonzero()))?;
            }
            Action::Shell(command) => {
                let mut shell = shell(command);
                if self.is_quiet {
                    shell.stdout(Stdio::null()).stderr(Stdio::null());
                }
                let status = shell
                    .envs(environment(happened))
                    .status()
                    .with_context(|| format!("action shell:{command}"))?;
                if !status.success() {
                    bail!("action shell:{command} ended with {status}");
                }
            }
        }
        Ok(())
    }
}

/// What a command learns of the moment.
fn environment(happened: &Happened) -> Vec<(&'static str, String)> {
    match happened {
        Happened::Late { thread, pid, latency_ns, cause, .. } => vec![
            ("WHYLATE_THREAD", thread.clone()),
            ("WHYLATE_TID", pid.to_string()),
            ("WHYLATE_LATENCY_NS", latency_ns.to_string()),
            ("WHYLATE_CAUSE", cause.clone().unwrap_or_default()),
        ],
        Happened::Trigger { trigger, text, .. } => {
            vec![("WHYLATE_TRIGGER", trigger.clone()), ("WHYLATE_TEXT", text.clone().unwrap_or_default())]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_parsed() {
        let parsed = |text: &str| text.parse::<Action>().unwrap();
        assert_eq!(parsed("shell:echo a:b"), Action::Shell("echo a:b".to_owned()));
        assert_eq!(parsed("signal:USR1:812"), Action::Signal(Signal::USR1, Pid::from_raw(812)));
        assert_eq!(parsed("signal:SIGTERM:task"), Action::Signal(Signal::TERM, None));
        assert_eq!((parsed("snapshot"), parsed("stop")), (Action::Snapshot, Action::Stop));
        for wrong in [
            "echo",
            "shell:",
            "signal:USR1",
            "signal:RT1:7",
            "signal:USR1:0",
            "signal:KILL:-1",
            "signal:USR1:x",
            "stop:1",
        ] {
            assert!(wrong.parse::<Action>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn actions_are_done_in_order_and_moments_meanwhile_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let write = |what: &str| Action::Shell(format!("echo {what} >>{}; sleep 0.2", log.display()));
        let stop = Arc::new(AtomicBool::new(false));
        let late = [write("$WHYLATE_THREAD"), write("$WHYLATE_LATENCY_NS"), Action::Stop];
        let mut actions = Actions::start(&late, &[], &stop, true).unwrap().unwrap();
        let moment = |latency_ns| Happened::Late {
            thread: "control".to_owned(),
            pid: 7,
            at_ns: 0,
            latency_ns,
            is_unended: false,
            cause: None,
        };
        (1..=5).for_each(|latency_ns| actions.take(moment(latency_ns)));
        actions.take(Happened::Trigger { at_ns: 0, trigger: "socket".to_owned(), text: None });
        actions.finish();
        let lines = fs::read_to_string(&log).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        // The first, and at most one that waited; the others came meanwhile.
        assert!(lines.starts_with(&["control", "1"]) && lines.len() <= 6, "{lines:?}");
        assert_eq!(actions.skipped.load(Ordering::Relaxed) as usize + lines.len() / 2, 5);
        assert!(stop.load(Ordering::Relaxed));
    }
}
