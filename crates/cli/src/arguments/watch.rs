//! Flags of `whylate watch`.

use super::Printing;
use super::parsers::{microseconds, seconds};
use crate::actions::Action;
use anyhow::{Result, ensure};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use whylate_core::figure::counted;
use whylate_core::plan::{ChainPlan, Per, TaskPlan};
use whylate_core::{Bytes, CpuSelector, Nanos};

/// `whylate watch`.
#[derive(Debug, Args)]
#[command(
    override_usage = "whylate watch [OPTIONS] --task NAME|--pid PID|--unit UNIT|--cgroup GROUP|--priority RANGE\n       \
                      whylate watch [OPTIONS] [--task NAME] -- COMMAND...",
    mut_arg("json", |json| json.help("Prints a JSON document each second, and at the end the one that `whylate run` prints (-q: only the last)")),
    group = clap::ArgGroup::new("target").multiple(false),
    group = clap::ArgGroup::new("threads")
        .args(["task", "pid", "unit", "cgroup", "priority", "command"]).required(true).multiple(true),
    group = clap::ArgGroup::new("has_deadline").args(["deadline", "period"]).multiple(true),
    after_help = "\
Examples:
  whylate watch --task audio                     every thread of this name, until Ctrl-C
  whylate watch --pid 812 -D 10m --deadline 1ms  a process whose work has a deadline
  whylate watch --unit plc.service --limit 500us
  whylate watch --priority 80-99 -D 1h -o night  every thread of priority 80 to 99
  whylate watch --unit plc.service -q --keep 30d --disk 500MB --prometheus 127.0.0.1:9464
  whylate watch --trigger 'output:Late' -- ./control
                                                 explains what led to each matching line
  whylate watch --task audio --deadline 1ms --on-late 'shell:date >>late.txt' --on-late stop
  whylate watch --unit video.service --chain frame --begin ./camera:send --end ./show:shown
                                                 an activity over several threads, from mark to mark
  whylate watch -D 30s -- ./control --rate 1000  starts a program and watches it from the start
  whylate watch --task loop --deadline 1ms -- ./control
                                                 the same, but only its threads named loop

An activation is the work of a thread in one period of its timer or of the event that it waits for.
Without a period, an activation lasts from a wake-up to the next sleep. The response is the duration
of an activation. whylate does not change the threads, and explains the worst activations. All
results are in the directory of the run: whylate report DIR, whylate explain DIR, whylate compare
DIR OTHER.
On a terminal, Enter opens the last explained activation as a timeline, ? shows the other keys.
Exit code 2 if a response was above --limit or --deadline, 1 if the started program failed, 69
without the permissions (root, or CAP_BPF and CAP_PERFMON; an ordinary user can watch only their
own processes, without causes)."
)]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    pub(crate) target: TaskTargetArguments,
    /// Every thread with a real-time priority in this range: 80-99, or one number (100: SCHED_DEADLINE)
    #[arg(long, value_name = "RANGE", group = "target", conflicts_with = "command")]
    pub(crate) priority: Option<String>,
    /// CPUs on which the threads are watched: a list, or all, isolated, housekeeping, last [default: all that are online]
    #[arg(short = 'a', long = "cpu", alias = "cpus", value_name = "LIST")]
    pub(crate) cpu: Option<CpuSelector>,
    /// How long to watch; a bare number is seconds, 0 is until Ctrl-C or the end of the process
    #[arg(short = 'D', long, value_name = "TIME", default_value = "0", value_parser = seconds)]
    pub(crate) duration: Nanos,
    /// Where an activation begins: a function, FILE:FUNCTION; a static tracepoint, usdt:FILE:PROVIDER:NAME; or a text
    /// that the thread writes into trace_marker, marker:TEXT
    #[arg(long, value_name = "MARK", requires = "end")]
    pub(crate) begin: Vec<String>,
    /// Where an activation ends; the response is then the time between the marks [default: from timer or wake-up to the
    /// next sleep]
    #[arg(long, value_name = "MARK", requires = "begin")]
    pub(crate) end: Vec<String>,
    /// Watches an activity over several threads, from --begin in one thread to --end in another; --deadline is then its
    /// deadline. MARK:arg2 (of a text: the number after it) joins begin and end, MARK@THREAD counts only this thread.
    /// May be given several times, each with its own --begin, --end and --deadline
    #[arg(long, value_name = "NAME", requires_all = ["begin", "end"], conflicts_with_all = ["per_period", "per_wakeup"])]
    pub(crate) chain: Vec<String>,
    /// Counts and explains activations whose response is longer than this; a bare number is microseconds
    #[arg(long, value_name = "TIME", value_parser = microseconds)]
    pub(crate) deadline: Vec<Nanos>,
    /// Period of the work, which is also the deadline if --deadline is absent; a bare number is microseconds
    #[arg(long, value_name = "TIME", value_parser = microseconds)]
    pub(crate) period: Option<Nanos>,
    /// Takes one activation for each period, even if the period of a thread is uncertain; TIME gives the period if a
    /// thread has several
    #[arg(
        long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "period",
        conflicts_with_all = ["begin", "per_wakeup"]
    )]
    pub(crate) per_period: Option<Per>,
    /// Takes one activation from each wake-up to the next sleep, even for periodic threads
    #[arg(long, conflicts_with = "begin")]
    pub(crate) per_wakeup: bool,
    /// Longest acceptable response: a longer one makes the verdict `fail`; a bare number is microseconds
    #[arg(long, value_name = "TIME", value_parser = microseconds)]
    pub(crate) limit: Option<Nanos>,
    /// Number of worst activations of each thread to explain
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) worst: u32,
    /// Keeps traces of the 3 longest waits for a CPU, if a wait exceeds --limit (else --deadline, else 100us); tracing
    /// adds cost to each event
    #[arg(long)]
    pub(crate) trace: bool,
    /// Looks for what a real-time thread should not do: system calls that may sleep or allocate, page faults, locks
    /// without priority inheritance, wake-ups by lower-priority threads; exit code 2 if any is found
    #[arg(long)]
    pub(crate) audit: bool,
    /// Findings of the audit that are allowed: system calls (write) or kinds (relative-sleep)
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "audit")]
    pub(crate) allow: Vec<String>,
    /// Event that shows that the application was late; may be given several times. A line of its output (output:REGEX),
    /// of a file (file:PATH:REGEX), of the journal (journal:REGEX) or of the kernel log (kernel:REGEX); a growing number
    /// in a file (counter:PATH); a signal to whylate (signal:USR1); `whylate trigger` (socket); a text that a watched
    /// thread writes into trace_marker (marker:TEXT); a call (FILE:FUNCTION or usdt:FILE:PROVIDER:NAME, with :arg1>1000,
    /// :return<0 or :took>1ms); an xrun of a sound card (xrun); or a message of jack, pipewire, linuxcnc, ros2_control,
    /// srsran or klipper (preset:jack)
    #[arg(long, value_name = "TRIGGER")]
    pub(crate) trigger: Vec<String>,
    /// Explains what each thread did in this time before a trigger [default: 50ms]; a bare number is microseconds
    #[arg(long, value_name = "TIME", value_parser = microseconds, requires = "trigger")]
    pub(crate) last: Option<Nanos>,
    /// What to do within about 50 ms of a response above --deadline; may be given several times, in order: shell:COMMAND
    /// (with WHYLATE_THREAD, WHYLATE_TID, WHYLATE_LATENCY_NS and WHYLATE_CAUSE in its environment), signal:NAME:PID
    /// (signal:NAME:task is the late thread's process), snapshot (of the kernel's trace buffer), stop (ends the watch)
    #[arg(long, value_name = "ACTION", requires = "has_deadline")]
    pub(crate) on_late: Vec<Action>,
    /// The same for each trigger (with WHYLATE_TRIGGER and WHYLATE_TEXT)
    #[arg(long, value_name = "ACTION", requires = "trigger")]
    pub(crate) on_trigger: Vec<Action>,
    /// Serves figures for Prometheus at http://ADDRESS/metrics during the watch; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) prometheus: Option<SocketAddr>,
    /// File with the token that clients must send; required if ADDRESS is not loopback [default: $WHYLATE_TOKEN]
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    pub(crate) token_file: Option<PathBuf>,
    /// Merges intervals older than this (for example 30d) into longer ones; no counts are lost
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) keep: Option<Nanos>,
    /// Disk space for the tables of the run; at this limit, older intervals are merged into longer ones
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Bytes>,
    /// Directory for the run: a new or an empty one [default: $XDG_DATA_HOME/whylate/runs/TIME-watch]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// The user's own threads, for commands that watch them.
#[derive(Debug, Args)]
pub(crate) struct TaskTargetArguments {
    /// Every thread of this name (the kernel cuts names to 15 bytes), also threads that start later
    #[arg(long, value_name = "NAME", group = "target")]
    pub(crate) task: Option<String>,
    /// Every thread of this process and of its child processes
    #[arg(long, value_name = "PID", group = "target", conflicts_with = "command")]
    pub(crate) pid: Option<u32>,
    /// Every thread in this systemd unit
    #[arg(long, value_name = "UNIT", group = "target", conflicts_with = "command")]
    pub(crate) unit: Option<String>,
    /// Every thread in this control group: its path below /sys/fs/cgroup, or the id of a container
    #[arg(long, value_name = "GROUP", group = "target", conflicts_with = "command")]
    pub(crate) cgroup: Option<String>,
    /// Starts this program and watches it with all processes that it starts, or only its threads named by --task; the
    /// program, if it still runs, and what it has started get SIGTERM when the watch ends, and SIGKILL 2 s later
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

impl TaskTargetArguments {
    /// The probe for these threads.
    pub(crate) fn plan(&self) -> TaskPlan {
        TaskPlan {
            name: self.task.clone(),
            pid: self.pid,
            cgroup: self.unit.clone().or_else(|| self.cgroup.clone()),
            command: self.command.clone(),
            ..TaskPlan::default()
        }
    }
}

impl WatchArguments {
    /// The chains for these flags, in their order: each has its own marks, and its own deadline or the only one.
    fn chains(&self) -> Result<Vec<ChainPlan>> {
        let number = self.chain.len();
        for (flag, given) in [("--begin", self.begin.len()), ("--end", self.end.len())] {
            ensure!(
                given == number,
                "{flag} is given {} for {}; give it once for each --chain",
                times(given),
                counted(number, "chain")
            );
        }
        let deadlines = self.deadline.len();
        ensure!(
            deadlines <= 1 || deadlines == number,
            "--deadline is given {} for {}; give it once, or once for each --chain. The deadline of threads needs another watch, \
             without --chain",
            times(deadlines),
            counted(number, "chain")
        );
        let chain = |(nth, name): (usize, &String)| ChainPlan {
            name: name.clone(),
            begin: self.begin[nth].clone(),
            end: self.end[nth].clone(),
            deadline: self.deadline.get(if deadlines == 1 { 0 } else { nth }).copied(),
        };
        Ok(self.chain.iter().enumerate().map(chain).collect())
    }

    /// The probe for these flags.
    ///
    /// # Errors
    /// When a flag is given too often.
    pub(crate) fn plan(&self) -> Result<TaskPlan> {
        let chains = if self.chain.is_empty() { Vec::new() } else { self.chains()? };
        let (begin, end, deadline) = match chains.is_empty() {
            true => (
                only("--begin", &self.begin)?,
                only("--end", &self.end)?,
                only("--deadline", &self.deadline)?,
            ),
            false => (None, None, None),
        };
        Ok(TaskPlan {
            cpus: self.cpu.clone(),
            priorities: self.priority.clone(),
            begin,
            end,
            per: self.per_wakeup.then_some(Per::Wakeup).or(self.per_period),
            deadline: deadline.or(self.period),
            worst: Some(self.worst),
            audit: self.audit,
            allow: self.allow.clone(),
            triggers: self.trigger.clone(),
            last: self.last,
            chains: chains.into(),
            ..self.target.plan()
        })
    }
}

/// `once`, `2 times`
fn times(number: usize) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

/// The value of a flag that only chains may have several times.
fn only<T: Clone>(flag: &str, given: &[T]) -> Result<Option<T>> {
    ensure!(given.len() <= 1, "{flag} is given {} times; only --chain allows several", given.len());
    Ok(given.first().cloned())
}
