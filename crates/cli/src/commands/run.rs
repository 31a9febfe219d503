//! `whylate run`.

use super::preview::Preview;
use super::{foreign, variable};
use crate::arguments::RunArguments;
use crate::exit::Ending;
use crate::screen::Screen;
use crate::{machine, output, signals};
use anyhow::{Context, Result, anyhow, bail};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;
use whylate_core::Warning;
use whylate_core::WarningCode;
use whylate_core::plan::builtin;
use whylate_core::plan::{Plan, ProbePlan, Source};
use whylate_core::result::{RunEnd, RunResult, RunState, Verdict, audited};
use whylate_host::Host;
use whylate_host::facts::{self, preflight};
use whylate_runner::{
    Experiment, RealMachine, RunError, RunOptions, check_tracers, check_treatments, left_behind, prepare,
    recover_treatments,
};
use whylate_store::{Keeping, Reader, RunInfo, StoreError, default_path};

/// The default plan.
const DEFAULT_PLAN: &str = "quick";

pub(super) fn execute(arguments: &RunArguments, host: &Host) -> Result<Ending> {
    let machine = machine::real(host)?;
    let asked_to_stop = signals::watch()?;
    // A preview changes and restores nothing.
    let recovered =
        if arguments.dry_run { left_behind(&host.settings) } else { recover_treatments(&host.settings) };
    if let Some(warning) = &recovered {
        output::message(&format!("note: {}", warning.text));
    }
    let (path, info) = match &arguments.resume {
        Some(path) => {
            let prepare = |plan: Plan| {
                let experiment = prepare(plan, facts::collect(&host.running).0, arguments.strict)?;
                check_tracers(check_treatments(experiment, &host.settings)?, &host.settings)
            };
            let reader = Reader::open(path)?;
            foreign::check_run(&reader, arguments.trust_plan)?;
            let mut screen = screen(&reader.info().plan, arguments, asked_to_stop);
            let info = whylate_runner::resume(path, &prepare, &machine, &mut screen)?;
            screen.finish();
            (path.clone(), info)
        }
        None => {
            let plan = planned(arguments)?;
            match start(plan, arguments, host, &machine, asked_to_stop, recovered)? {
                Some(done) => done,
                None => return Ok(Ending::Pass),
            }
        }
    };
    conclude(&path, &info, arguments.printing.json.then_some(&print_run))
}

/// Runs a plan that the command line made; `json` prints its result, given its directory.
pub(super) fn of_plan(
    plan: Plan,
    arguments: &RunArguments,
    host: &Host,
    json: impl Fn(&Path, &RunResult) -> Result<()>,
) -> Result<Ending> {
    let machine = machine::real(host)?;
    match start(plan, arguments, host, &machine, signals::watch()?, None)? {
        Some((path, info)) => {
            let print = |result: &mut RunResult| json(&path, result);
            conclude(&path, &info, arguments.printing.json.then_some(&print))
        }
        None => Ok(Ending::Pass),
    }
}

/// How a result is printed as JSON.
pub(super) type Print<'p> = &'p dyn Fn(&mut RunResult) -> Result<()>;

fn print_run(result: &mut RunResult) -> Result<()> {
    result.shorten();
    output::print_json(result)
}

/// The requested plan.
fn planned(arguments: &RunArguments) -> Result<Plan> {
    let name = arguments.plan.as_deref().unwrap_or(DEFAULT_PLAN);
    // A preview runs nothing.
    let yes = arguments.trust_plan || arguments.dry_run;
    let mut plan = read_plan(name, &arguments.overrides, arguments.short, yes)?;
    if arguments.yes_draw_on_my_screen {
        plan.allow_drawing();
    }
    Ok(plan)
}

/// Runs a plan into a new directory; `None` if it was only checked.
fn start(
    plan: Plan,
    arguments: &RunArguments,
    host: &Host,
    machine: &RealMachine,
    asked_to_stop: Arc<AtomicBool>,
    recovered: Option<Warning>,
) -> Result<Option<(PathBuf, RunInfo)>> {
    let (facts, mut warnings) = facts::collect(&host.running);
    let experiment = prepare(plan, facts, arguments.strict)?;
    let experiment = check_treatments(experiment, &host.settings)?;
    let experiment = check_tracers(experiment, &host.settings)?;
    warnings.extend(recovered);
    warnings.extend(preflight(&experiment.facts, &experiment.target));
    if arguments.strict && experiment.facts.privileges.realtime_priority_max == 0 {
        return Err(crate::exit::Refused("--strict: this user may not set a real-time priority; run as root, or grant `rtprio 99` in /etc/security/limits.d").into());
    }
    if arguments.dry_run {
        preview(&experiment, &warnings, arguments.printing.json)?;
        return Ok(None);
    }
    if arguments.on_threshold.is_some() && !experiment.plan.probe.iter().any(ProbePlan::has_threshold) {
        bail!("--on-threshold: no probe of the plan has a `break` or a threshold; give a probe a `break`");
    }
    let started_at = SystemTime::now();
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => default_run_path(&experiment.plan.name, started_at)?,
    };
    if !is_quiet(arguments) {
        announce(&experiment, &warnings, &path);
    }
    let (name, keeping) = (run_name(&path), Keeping::default());
    let options = RunOptions { name, started_at, warnings, keeping, is_short: arguments.short };
    let mut screen = screen(&experiment.plan, arguments, asked_to_stop);
    let info =
        whylate_runner::run(&experiment, &path, &options, machine, &mut screen).map_err(
            |error| match way_on(&error, &path) {
                Some(advice) => advice,
                None => anyhow::Error::new(error).context(format!("run {}", path.display())),
            },
        )?;
    screen.finish();
    Ok(Some((path, info)))
}

/// How to continue an existing run or search that occupies the directory.
pub(super) fn way_on(error: &RunError, path: &Path) -> Option<anyhow::Error> {
    let RunError::Store(StoreError::Occupied(_)) = error else { return None };
    let reader = Reader::open(path).ok()?;
    let info = reader.info();
    if info.state == RunState::Complete || info.plan.is_watch() {
        return None;
    }
    let command = if info.fix.is_some() { "fix" } else { "run" };
    let path = path.display();
    Some(anyhow!("{error}; to continue this run: `whylate {command} --resume {path}`"))
}

fn is_quiet(arguments: &RunArguments) -> bool {
    arguments.printing.quiet || arguments.printing.json
}

fn screen(plan: &Plan, arguments: &RunArguments, asked_to_stop: Arc<AtomicBool>) -> Screen {
    Screen::of_run(is_quiet(arguments), plan.repeat_duration(), arguments.on_threshold.clone(), asked_to_stop)
}

/// The plan of that name or path; `short` for its short form.
pub(super) fn read_plan(name: &str, overrides: &[String], short: bool, yes: bool) -> Result<Plan> {
    let parse = if short { Plan::parse_short } else { Plan::parse };
    if let Some(builtin) = builtin::find(name) {
        return Ok(parse(&Source { name, text: builtin.text }, overrides)?);
    }
    let path = Path::new(name);
    if !path.exists() && !name.contains(['/', '.']) {
        let names: Vec<&str> = builtin::ALL.iter().map(|plan| plan.name).collect();
        bail!(
            "there is no plan `{name}`: the built-in plans are {}; for a file, give a path",
            names.join(", ")
        );
    }
    let mut text = String::new();
    let cannot_read = || format!("cannot read the plan {name}");
    let mut file = std::fs::File::open(path).with_context(cannot_read)?;
    file.read_to_string(&mut text).with_context(cannot_read)?;
    let plan = parse(&Source { name, text: &text }, overrides)?;
    // A preview runs nothing.
    foreign::check(&plan, path, &file, yes)?;
    Ok(plan)
}

pub(super) fn default_run_path(plan: &str, started_at: SystemTime) -> Result<PathBuf> {
    let path =
        default_path(variable("XDG_DATA_HOME").as_deref(), variable("HOME").as_deref(), started_at, plan)
            .context("neither XDG_DATA_HOME nor HOME is set; name a directory for the run with -o")?;
    // Another run began in the same second.
    let others = (2..).map(|nth| PathBuf::from(format!("{}-{nth}", path.display())));
    let free = std::iter::once(path.clone()).chain(others).find(|path| !path.exists());
    Ok(free.unwrap_or(path))
}

pub(super) fn run_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// What is about to happen. The warnings are explained after it, where the figures are.
fn announce(experiment: &Experiment, warnings: &[Warning], path: &Path) {
    let plan = &experiment.plan;
    let facts = &experiment.facts;
    output::message(&format!("plan {}: {}", plan.name, plan.question.as_deref().unwrap_or("")));
    output::message(&format!(
        "machine: {}, {} CPUs, Linux {} ({})",
        facts.processor.model,
        facts.cpu_sets.online.len(),
        facts.kernel.release,
        facts.kernel.preemption
    ));
    let preview = Preview::of(experiment);
    output::message(&format!(
        "measuring CPU {} for {}, into {}",
        experiment.target,
        preview.length(),
        path.display()
    ));
    preview.power().iter().chain(&preview.skipped()).for_each(|line| output::message(line));
    if !warnings.is_empty() {
        let codes = whylate_report::warning_codes(warnings);
        output::message(&format!("warnings ({}): {codes}; `whylate check` explains them", warnings.len()));
        if facts.privileges.realtime_priority_max == 0 {
            output::message(
                "no real-time priority: the probes run as ordinary tasks, so their latencies say nothing about real-time tasks",
            );
        }
    }
}

/// Prints what a run would do.
fn preview(experiment: &Experiment, warnings: &[Warning], json: bool) -> Result<()> {
    let preview = Preview::of(experiment);
    if json {
        return output::print_json(&preview.0);
    }
    let warnings: Vec<Warning> = warnings.iter().chain(&experiment.warnings).cloned().collect();
    let warnings = whylate_report::warnings(&warnings).terminal(output::style());
    output::print(&format!("{}\n{warnings}", preview.text()))
}

/// Prints the result as JSON or as text, and turns it into an exit code.
pub(super) fn conclude(path: &Path, info: &RunInfo, json: Option<Print<'_>>) -> Result<Ending> {
    let mut result = match whylate_runner::assemble(path) {
        Ok(result) => result,
        // Reports why there are no samples, not only that there are none.
        Err(StoreError::NoSamples { .. }) if is_restored(info) => bail!("{}", why_nothing(info)),
        Err(StoreError::NoSamples { .. }) => {
            output::message(&format!("whylate: {}", why_nothing(info)));
            return Ok(Ending::NotRestored);
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(print) = json {
        print(&mut result)?;
    } else {
        output::drawn(&whylate_report::run(&result)?.terminal(output::style()))?;
        output::message(&format!(
            "\nstored in {0}\nthe whole report: whylate report {0} --details\na web page: whylate report {0} -o report.html",
            path.display()
        ));
    }
    Ok(ending(&result, info))
}

pub(super) fn why_nothing(info: &RunInfo) -> String {
    let failed = info.executions.iter().find_map(|it| Some((it.cell.as_str(), it.error.as_deref()?)));
    match (failed, &info.error) {
        (Some((cell, reason)), _) => format!("no samples: cell `{cell}`: {reason}"),
        (None, Some(reason)) => format!("no samples: {reason}"),
        (None, None) => "no samples".to_owned(),
    }
}

/// Whether every treatment was undone; reports those that were not. A machine that was not restored outweighs the
/// measurement.
pub(super) fn is_restored(info: &RunInfo) -> bool {
    let problems: Vec<&Warning> =
        info.warnings.iter().filter(|warning| warning.code == WarningCode::TreatmentNotRestored).collect();
    for warning in &problems {
        output::message(&format!("whylate: {}", warning.text));
    }
    problems.is_empty()
}

fn ending(result: &RunResult, info: &RunInfo) -> Ending {
    if !is_restored(info) {
        return Ending::NotRestored;
    }
    let broke = matches!(info.end, Some(RunEnd::BrokeAbove { .. }));
    let audits = result.cells.iter().flat_map(|cell| &cell.probes).filter_map(audited);
    let findings = audits.flat_map(|it| it.findings).filter(|(_, one)| !one.allowed).count();
    if findings > 0 {
        let findings = if findings == 1 { "1 finding".to_owned() } else { format!("{findings} findings") };
        output::message(&format!("whylate: the audit has {findings}; accept findings with --allow"));
        return Ending::Exceeded;
    }
    if broke || result.verdict == Verdict::Fail {
        return Ending::Exceeded;
    }
    if result.state == RunState::Complete {
        // With a limit, a skipped or unjudged cell is not a pass.
        let is_judged = result.verdict != Verdict::Incomplete;
        return if is_judged { Ending::Pass } else { Ending::Incomplete };
    }
    if let Some(error) = &info.error {
        output::message(&format!("whylate: the run is incomplete: {error}"));
        // A watch that ended cannot continue: the time that it would have watched is over.
        if !info.plan.is_watch() {
            output::message(&format!("    to continue: whylate run --resume {}", result.run));
        }
    }
    Ending::Incomplete
}
