//! `whylate watch`: a run of one cell with only the probe `task`, in its own directory.

mod prometheus;
mod view;

use super::run::{Print, conclude, default_run_path, run_name};
use crate::actions::{self, Actions};
use crate::arguments::{WatchArguments, or_endless};
use crate::exit::Ending;
use crate::live::LiveScreen;
use crate::progress::{self, Meter};
use crate::{machine, output, signals};
use anyhow::{Context as _, Result, anyhow, bail};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use view::WatchView;
use whylate_core::figure::{count, nanoseconds};
use whylate_core::plan::{CellPlan, Chain, KeyError, Plan, ProbePlan, TaskPlan, TracePlan};
use whylate_core::result::{Cause, RunResult};
use whylate_core::{CpuSet, Facts, Nanos, Warning, WarningCode};
use whylate_host::{Host, facts};
use whylate_runner::{Audience, Happened, Progress, RunOptions, Stage, TaskLine, TriggerLine, prepare};
use whylate_store::{Keeping, RunInfo};

pub(super) fn execute(arguments: &WatchArguments, host: &Host) -> Result<Ending> {
    let machine = machine::real(host)?;
    let asked_to_stop = signals::watch()?;
    let task = arguments.plan()?;
    let task_deadline = arguments.limit.or(task.deadline);
    // Mistyped values are reported before there is a directory.
    if arguments.limit == Some(Nanos(0)) {
        bail!("--limit 0 would always fail; give the longest acceptable response, for example --limit 1ms");
    }
    actions::check(&arguments.on_late, &arguments.on_trigger)?;
    let probe = ProbePlan::Task(task.clone());
    probe.check().map_err(|error| as_flag(&error))?;
    whylate_runner::find_tasks(&task, &host.running)?;
    let duration = or_endless(arguments.duration);
    let plan = Plan {
        duration,
        repeats: 1,
        settle: Nanos(0),
        warmup: Nanos(0),
        noise_floor: Nanos(0),
        causes: false,
        limit: arguments.limit,
        trace: arguments.trace.then(|| TracePlan { above: task_deadline, ..TracePlan::default() }),
        probe: vec![probe],
        cell: vec![CellPlan { name: Some("watch".to_owned()), ..CellPlan::default() }],
        ..Plan::named("watch")
    };
    let (facts, warnings) = facts::collect(&host.running);
    keep_away(&task, host, &facts, arguments.printing.quiet);
    // Missing rights are reported before there is a directory.
    whylate_runner::try_to_watch(&task, &host.running, &facts.cpu_sets.online, &facts)?;
    let experiment = prepare(plan, facts, false)?;
    let started_at = SystemTime::now();
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => default_run_path("watch", started_at)?,
    };
    let (bytes, whole_ns) = (arguments.disk.map(|it| it.0), arguments.keep.map(|it| it.0));
    let keeping = Keeping { bytes, whole_ns };
    let options = RunOptions { name: run_name(&path), started_at, warnings, keeping, is_short: false };
    let mut screen = WatchScreen::new(arguments, duration, asked_to_stop)?;
    let info = whylate_runner::run(&experiment, &path, &options, &machine, &mut screen)
        .with_context(|| format!("run {}", path.display()))?;
    screen.finish();
    if lock(&screen.tasks).is_empty() {
        let failed = info.executions.iter().find_map(|it| it.error.as_deref());
        let failed = failed.map(|error| error.trim_start_matches("task: ").to_owned());
        let program = failed_program(&info);
        let why =
            failed.or_else(|| program.map(|it| it.text.clone())).unwrap_or_else(|| no_thread(arguments));
        if arguments.output.is_some() {
            bail!("no samples: {why}; the run directory is {}", path.display());
        }
        // The empty run has no use, and it would be `latest`.
        whylate_store::remove(&path)?;
        bail!("no samples: {why}; no run was stored");
    }
    // With JSON, every output is one document on one line.
    let print = |result: &mut RunResult| {
        result.shorten();
        output::print_json_line(result)
    };
    let json: Option<Print<'_>> = if arguments.printing.json { Some(&print) } else { None };
    let ending = conclude(&path, &info, json)?;
    let never_slept = info.warnings.iter().find(|it| it.code == WarningCode::NeverSlept);
    if let Some(warning) = never_slept.filter(|_| !arguments.printing.quiet) {
        output::message(&format!("whylate: {}", warning.text));
    }
    Ok(match failed_program(&info).filter(|_| ending == Ending::Pass) {
        Some(failed) => {
            output::message(&format!("whylate: {}", failed.text));
            Ending::Incomplete
        }
        None => ending,
    })
}

/// Reports if no such thread exists yet. Stays off the CPUs on which the watched threads may run: starting keeps a
/// CPU busy in the kernel for milliseconds, while it checks the programs. Reports if that is not possible.
pub(super) fn keep_away(task: &TaskPlan, host: &Host, facts: &Facts, is_quiet: bool) {
    let online = &facts.cpu_sets.online;
    let present = whylate_runner::present_threads(task, &host.running);
    let is_to_come = present.is_empty() && task.command.is_empty();
    if let Some(name) = task.name.as_ref().filter(|_| is_to_come && !is_quiet) {
        output::message(&format!(
            "no thread has the name `{name}` now: waiting for such a thread (Ctrl-C ends the watch)"
        ));
    }
    if !present.iter().any(|thread| thread.is_real_time) {
        return;
    }
    let taken = present.iter().fold(CpuSet::default(), |all, thread| all.union(&thread.cpus));
    let free = online.difference(&taken);
    let is_away = whylate_runner::move_to(&free);
    // Without root the kernel usually refuses the programs, and checks none.
    if !is_away && facts.privileges.root && !facts.kernel.realtime && !is_quiet {
        output::message(
            "while the watch starts, the kernel checks the BPF programs and disables preemption on a CPU for up to 4 ms: a \
             real-time thread on this CPU can be late once. To avoid this, leave one CPU on which no watched thread may run",
        );
    }
}

/// The warning that the started program failed.
fn failed_program(info: &RunInfo) -> Option<&Warning> {
    info.warnings.iter().find(|it| it.code == WarningCode::CommandFailed)
}

/// An error in a key of the plan, by the flag of this command that sets the key.
pub(super) fn as_flag(error: &KeyError) -> anyhow::Error {
    let flag = match error.key {
        "priorities" => "--priority: ",
        "name" => "--task: ",
        "deadline" => "--deadline: ",
        "begin" => "--begin: ",
        "end" => "--end: ",
        "triggers" => "--trigger: ",
        "chains" => "--chain: ",
        "last" => "--last: ",
        _ => "",
    };
    anyhow!("{flag}{}", error.message)
}

/// Says that no thread was watched, and how to find the name.
fn no_thread(arguments: &WatchArguments) -> String {
    let list = "`ps -eLo tid,cls,rtprio,comm` lists the threads";
    let marks = "passed the mark --begin and then --end";
    let has_marks = !arguments.begin.is_empty() && arguments.chain.is_empty();
    let ran = if has_marks { format!("ran, or none {marks}") } else { "ran and then slept".to_owned() };
    let whose = if arguments.target.command.is_empty() { "" } else { "of the started program " };
    match (&arguments.target.task, &arguments.priority) {
        (Some(name), _) => {
            format!("no thread called `{name}` {whose}{ran}; {list}, and the kernel cuts names to 15 bytes")
        }
        (None, Some(range)) => format!("no thread with a real-time priority of {range} {ran}; {list}"),
        (None, None) if has_marks => format!("none of the watched threads {marks}"),
        (None, None) => "none of the watched threads ran and then slept".to_owned(),
    }
}

/// The line that `--json` prints each second during a watch.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "WatchLine")]
pub(super) struct StatusLine<'t> {
    /// `whylate.watch/1`
    format: &'static str,
    /// Time since the watch began.
    elapsed_ns: u64,
    /// The watched threads.
    tasks: &'t [TaskLine],
    /// The triggers so far; absent without --trigger.
    #[serde(skip_serializing_if = "Option::is_none")]
    triggers: Option<&'t TriggerLine>,
}

/// The newest figures of the watched threads.
type SharedTasks = Arc<Mutex<Vec<TaskLine>>>;

fn lock(tasks: &SharedTasks) -> MutexGuard<'_, Vec<TaskLine>> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the watched threads.
struct WatchScreen {
    meter: Meter,
    /// The view that has the whole terminal.
    live: Option<LiveScreen<WatchView>>,
    duration: Nanos,
    has_lines: bool,
    asked_to_stop: Arc<AtomicBool>,
    begun: std::time::Instant,
    /// Monitoring threads read it.
    tasks: SharedTasks,
    triggers: Option<TriggerLine>,
    actions: Option<Actions>,
}

impl WatchScreen {
    fn new(arguments: &WatchArguments, duration: Nanos, asked_to_stop: Arc<AtomicBool>) -> Result<Self> {
        let printing = arguments.printing;
        let tasks = SharedTasks::default();
        if let Some(address) = arguments.prometheus {
            let token = super::serve::token(arguments.token_file.as_deref())?;
            let shared = tasks.clone();
            let page = move || prometheus::page(&lock(&shared));
            let address = whylate_serve::endpoint(address, token, page)?;
            output::message(&format!("figures for Prometheus: http://{address}/metrics"));
        }
        // A program that is started here uses the same terminal.
        let is_quiet = printing.quiet || printing.json;
        let is_live =
            !is_quiet && arguments.target.command.is_empty() && LiveScreen::<WatchView>::is_possible();
        let (late, triggers) = (&arguments.on_late, &arguments.on_trigger);
        let actions = Actions::start(late, triggers, &asked_to_stop, is_live)?;
        let begin = || LiveScreen::start(WatchView::new(), asked_to_stop.clone());
        Ok(Self {
            live: is_live.then(begin).transpose().context("cannot draw on this terminal")?,
            meter: Meter::new(is_quiet || is_live),
            duration,
            has_lines: printing.json && !printing.quiet,
            asked_to_stop,
            begun: std::time::Instant::now(),
            tasks,
            triggers: None,
            actions,
        })
    }

    fn finish(&mut self) {
        self.live = None;
        self.meter.finish();
        if let Some(actions) = &mut self.actions {
            actions.finish();
        }
    }

    fn warn(&self, text: &str) {
        match &self.live {
            Some(live) => live.update(|view| view.warn(text)),
            None => output::message(&format!("warning: {text}")),
        }
    }
}

impl Audience for WatchScreen {
    fn stage(&mut self, _: &Stage<'_>) {}

    fn progress(&mut self, _: &Progress) {}

    fn first_spike(&mut self, _: Nanos) {}

    fn should_stop(&self) -> bool {
        self.asked_to_stop.load(Ordering::Relaxed)
    }

    fn decides_end(&self) -> bool {
        true
    }

    fn tasks(&mut self, tasks: &[TaskLine]) {
        *lock(&self.tasks) = tasks.to_vec();
        let elapsed = Nanos(self.begun.elapsed().as_nanos() as u64);
        let triggers = self.triggers.as_ref();
        if self.has_lines {
            let line = StatusLine { format: "whylate.watch/1", elapsed_ns: elapsed.0, tasks, triggers };
            // A reader that is gone is noticed when the result is printed.
            let _ = output::print_json_line(&line);
        }
        if let Some(live) = &self.live {
            live.update(|view| view.show(tasks, triggers.cloned(), elapsed));
        }
        self.meter.advance(progress::fraction(elapsed, self.duration), &summary(tasks, triggers), None);
    }

    fn triggers(&mut self, triggers: &TriggerLine) {
        self.triggers = Some(triggers.clone());
    }

    fn happened(&mut self, happened: Happened) {
        if let Some(actions) = &self.actions {
            actions.take(happened);
        }
    }

    fn lost(&mut self, warning: &Warning) {
        self.warn(&warning.text);
    }
}

/// The worst activation with its cause, and the number of activations, in one line: a narrow terminal shows its start.
fn summary(tasks: &[TaskLine], triggers: Option<&TriggerLine>) -> String {
    let threads = || tasks.iter().filter(|task| Chain::of_series(&task.name).is_none());
    let activations: u64 = threads().map(|task| task.activations).sum();
    let missed: u64 = tasks.iter().map(|task| task.missed).sum();
    let worst =
        tasks.iter().filter_map(|task| Some((task.worst.as_ref()?, task))).max_by_key(|((ns, _), _)| *ns);
    let worst = worst.map(|((ns, causes), task)| {
        let why = causes.first().map(|cause| format!(" ({})", headline(cause))).unwrap_or_default();
        format!("worst {} of {}{why}", nanoseconds(*ns), task.name)
    });
    let late = (missed > 0).then(|| format!("{} late", count(missed)));
    let number = threads().count();
    let word = if number == 1 { "thread" } else { "threads" };
    let all = format!("{} activations of {number} {word}", count(activations));
    triggers.map(described).into_iter().chain(worst).chain(late).chain([all]).collect::<Vec<_>>().join(", ")
}

/// How often triggers came, and why the last one did.
fn described(triggers: &TriggerLine) -> String {
    let last = triggers.last.as_ref().map(|last| format!(" (last: {last})")).unwrap_or_default();
    let word = if triggers.count == 1 { "trigger" } else { "triggers" };
    format!("{} {word}{last}", count(triggers.count))
}

/// A cause with its share of the time and its confidence.
fn headline(cause: &Cause) -> String {
    let share = cause.share.map(|share| format!(", {:.0} % of the time", share * 100.0)).unwrap_or_default();
    let sure = cause.confidence.map(|sure| format!(", confidence {sure:.2}")).unwrap_or_default();
    format!("{}{share}{sure}", cause.sentence())
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::CauseKind;
    use whylate_testing::says;

    #[test]
    fn one_line_has_the_worst_response_of_all_and_its_cause() {
        let line = |name: &str, max_ns: u64| {
            let thief = Cause { actor: Some("thief".to_owned()), ..Cause::new(CauseKind::Thread) };
            let thief = Cause { share: Some(0.8), confidence: Some(0.9), ..thief };
            let worst = Some((max_ns, vec![thief, Cause::new(CauseKind::OwnWork)]));
            TaskLine { name: name.to_owned(), activations: 1_000, missed: 3, worst, ..TaskLine::default() }
        };
        let tasks = [line("quiet", 20_000), line("control", 4_100_000)];
        let triggers = TriggerLine { count: 14, last: Some("output:Late: control took 4.10 ms".to_owned()) };
        let text = summary(&tasks, Some(&triggers));
        assert!(text.starts_with("14 triggers (last: output:Late: control took 4.10 ms), worst"), "{text}");
        let text = summary(&tasks, None);
        assert!(says("threads-activations-late", &text), "{text}");
        assert!(says("worst-ms-control-thief", &text), "{text}");
    }
}
