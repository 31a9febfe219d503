//! `whylate watch`: a run of one cell with the probe `task` alone, in a directory of its own.

use super::run::{conclude, default_run_path, run_name};
use crate::arguments::{WatchArguments, or_endless};
use crate::exit::Ending;
use crate::progress::{self, Meter};
use crate::{machine, output, signals};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
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
    let ending = conclude(&path, &info, arguments.printing.json)?;
    let missed = screen.tasks.iter().any(|task| task.missed > 0);
    Ok(if ending == Ending::Pass && missed { Ending::Exceeded } else { ending })
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
        self.meter.advance(progress::fraction(elapsed, self.duration), &summary(tasks));
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
