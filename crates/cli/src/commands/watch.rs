//! `whylate watch`: a run of one cell with the probe `task` alone, in a directory of its own.

use super::run::{Print, conclude, default_run_path, run_name};
use crate::arguments::{WatchArguments, or_endless};
use crate::exit::Ending;
use crate::progress::{self, Meter};
use crate::{machine, output, signals};
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use whylate_bpf::tasks::{TaskTarget, TaskWatch};
use whylate_core::figure::{count, nanoseconds};
use whylate_core::plan::{CellPlan, Plan, ProbePlan};
use whylate_core::result::{Cause, CauseKind};
use whylate_core::{Nanos, Warning};
use whylate_host::{Host, facts};
use whylate_runner::{Audience, Progress, RunOptions, Stage, TaskLine, prepare};

pub(super) fn execute(arguments: &WatchArguments, host: &Host) -> Result<Ending> {
    let machine = machine::real(host)?;
    let asked_to_stop = signals::watch()?;
    let task = ProbePlan::Task(arguments.plan());
    task.check()?;
    let duration = or_endless(arguments.duration);
    let plan = Plan {
        duration,
        repeats: 1,
        settle: Nanos(0),
        warmup: Nanos(0),
        noise_floor: Nanos(0),
        causes: false,
        limit: arguments.limit,
        probe: vec![task],
        cell: vec![CellPlan::default()],
        ..Plan::named("watch")
    };
    let (facts, warnings) = facts::collect(&host.running);
    // Whoever lacks the rights hears it before there is a directory.
    TaskWatch::start(&host.running, &facts.cpu_sets.online, &TaskTarget::Children, &facts)
        .context("tasks cannot be watched")?;
    let experiment = prepare(plan, facts, false)?;
    let started_at = SystemTime::now();
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => default_run_path("watch", started_at)?,
    };
    let options = RunOptions { name: run_name(&path), started_at, warnings };
    let mut screen = WatchScreen::new(arguments, duration, asked_to_stop);
    let info = whylate_runner::run(&experiment, &path, &options, &machine, &mut screen)
        .with_context(|| format!("run {}", path.display()))?;
    screen.meter.finish();
    if screen.tasks.is_empty() && info.executions.iter().all(|it| it.error.is_none()) {
        bail!("no samples: {}; what was looked at is in {}", nobody(arguments), path.display());
    }
    // Everything that it prints as JSON is one document in a line.
    let json = arguments.printing.json.then_some(output::print_json_line as Print);
    conclude(&path, &info, json)
}

/// That nobody was there to be watched, and how to find the name.
fn nobody(arguments: &WatchArguments) -> String {
    let list = "`ps -eLo tid,cls,rtprio,comm` lists the threads";
    match (&arguments.task, &arguments.priority) {
        (Some(name), _) => {
            format!("no thread called `{name}` ran; {list}, and the kernel keeps 15 bytes of a name")
        }
        (None, Some(range)) => format!("no thread with a real-time priority of {range} ran; {list}"),
        (None, None) => "none of its threads ran and slept again".to_owned(),
    }
}

/// What `--json` prints of a watch under way, a line each second.
#[derive(Serialize)]
struct Line<'t> {
    format: &'static str,
    elapsed_ns: u64,
    tasks: &'t [TaskLine],
}

/// Shows how the watched threads do.
struct WatchScreen {
    meter: Meter,
    duration: Nanos,
    has_lines: bool,
    asked_to_stop: Arc<AtomicBool>,
    begun: std::time::Instant,
    tasks: Vec<TaskLine>,
}

impl WatchScreen {
    fn new(arguments: &WatchArguments, duration: Nanos, asked_to_stop: Arc<AtomicBool>) -> Self {
        let printing = arguments.printing;
        Self {
            meter: Meter::new(printing.quiet || printing.json),
            duration,
            has_lines: printing.json && !printing.quiet,
            asked_to_stop,
            begun: std::time::Instant::now(),
            tasks: Vec::new(),
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
        self.tasks = tasks.to_vec();
        let elapsed = Nanos(self.begun.elapsed().as_nanos() as u64);
        if self.has_lines {
            let line = Line { format: "whylate.watch/1", elapsed_ns: elapsed.0, tasks };
            // A reader that has gone is noticed when the result is printed.
            let _ = output::print_json_line(&line);
        }
        if self.meter.has_screen() {
            self.meter.show(&table(tasks, elapsed));
        } else {
            self.meter.advance(progress::fraction(elapsed, self.duration), &summary(tasks));
        }
    }

    fn lost(&mut self, warning: &Warning) {
        output::message(&format!("warning: {}", warning.text));
    }
}

/// How many activations there were, and the worst of them, in one line.
fn summary(tasks: &[TaskLine]) -> String {
    let activations: u64 = tasks.iter().map(|task| task.activations).sum();
    let missed: u64 = tasks.iter().map(|task| task.missed).sum();
    let missed = if missed > 0 { format!(", {} late", count(missed)) } else { String::new() };
    let worst =
        tasks.iter().filter_map(|task| Some((task.worst.as_ref()?, task))).max_by_key(|((ns, _), _)| *ns);
    let worst = worst.map(|((ns, causes), task)| {
        let why = causes.iter().find(|cause| cause.kind != CauseKind::OwnWork).map(Cause::sentence);
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        format!(", worst {} of {}{why}", nanoseconds(*ns), task.name)
    });
    let threads = tasks.len();
    format!("{threads} threads, {} activations{missed}{}", count(activations), worst.unwrap_or_default())
}

/// So many threads are shown; those with the worst responses.
const ROWS: usize = 16;
/// The strip of the last seconds, up to the worst response among them.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The live view: a line for each thread, and why the worst activation took so long.
fn table(tasks: &[TaskLine], elapsed: Nanos) -> String {
    let max_ns = |task: &TaskLine| task.response.map_or(0, |it| it.max_ns);
    let mut rows: Vec<&TaskLine> = tasks.iter().collect();
    rows.sort_by_key(|task| std::cmp::Reverse(max_ns(task)));
    let line = |cells: [&str; 7], strip: &str| {
        let [name, wake, wake_max, median, high, max, late] = cells;
        format!("{name:<15.15} {wake:>8} {wake_max:>8} {median:>8} {high:>8} {max:>8} {late:>6} {strip}\n")
    };
    let head = ["thread", "wake p50", "max", "resp p50", "p99.9", "max", "late"];
    let mut text = line(head, "last");
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), nanoseconds);
    for task in rows.iter().take(ROWS) {
        let (wakeup, response) = (task.wakeup, task.response);
        let times = [
            time(wakeup.map(|it| it.p50_ns)),
            time(wakeup.map(|it| it.max_ns)),
            time(response.map(|it| it.p50_ns)),
            time(response.map(|it| it.p999_ns)),
            time(response.map(|it| it.max_ns)),
            count(task.missed),
        ];
        let [wake, wake_max, median, high, max, late] = times.each_ref().map(String::as_str);
        text.push_str(&line([&task.name, wake, wake_max, median, high, max, late], &strip(&task.strip)));
    }
    if rows.len() > ROWS {
        text.push_str(&format!("and {} more threads\n", rows.len() - ROWS));
    }
    text.push_str(&format!("{}; {}, Ctrl-C ends it\n", summary(tasks), nanoseconds(elapsed.0)));
    text
}

/// The largest response of each second, by its height.
fn strip(largest_ns: &[u64]) -> String {
    let top = largest_ns.iter().copied().max().unwrap_or(0).max(1);
    let bar = |ns: &u64| if *ns == 0 { ' ' } else { BARS[(ns * 7 / top) as usize] };
    largest_ns.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::Quantiles;

    fn line(name: &str, max_ns: u64) -> TaskLine {
        let figures = Quantiles { p50_ns: max_ns / 10, p999_ns: max_ns / 2, max_ns, ..Quantiles::default() };
        let thief =
            Cause { actor: Some("thief".to_owned()), share: Some(0.9), ..Cause::new(CauseKind::Thread) };
        TaskLine {
            name: name.to_owned(),
            response: Some(figures),
            wakeup: Some(figures),
            activations: 1_000,
            missed: 3,
            strip: vec![0, 10, 70],
            worst: Some((max_ns, vec![Cause::new(CauseKind::OwnWork), thief])),
            ..TaskLine::default()
        }
    }

    #[test]
    fn the_live_view_has_the_worst_thread_first_within_80_columns() {
        let tasks = [line("quiet", 20_000), line("control", 4_100_000)];
        let text = table(&tasks, Nanos::from_secs(3));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("control") && lines[1].contains("4.10 ms"), "{text}");
        assert!(
            lines[1].ends_with(" ▂█") && lines[..3].iter().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(lines[3].contains("worst 4.10 ms of control (thief had the CPU"), "{text}");
        let many: Vec<TaskLine> = (0..40).map(|nth| line(&format!("t{nth}"), 1_000 + nth)).collect();
        assert!(table(&many, Nanos(0)).contains("and 24 more threads"));
    }
}
