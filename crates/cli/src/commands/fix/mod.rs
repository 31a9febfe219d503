//! `whylate fix`.

mod adviser;
mod campaign;
mod task;

use super::foreign;
use super::run::{default_run_path, is_restored, read_plan, run_name, way_on};
use crate::arguments::FixArguments;
use crate::exit::Ending;
use crate::screen::Screen;
use crate::{machine, output, signals};
use adviser::{Choice, MachineAdviser};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use whylate_core::Nanos;
use whylate_core::plan::{Chain, Plan, Share};
use whylate_core::result::{FixAnswer, FixGoal, FixMode, FixRegistration, FixResult, RunState};
use whylate_explain::advice::{self, profile};
use whylate_host::Host;
use whylate_host::facts::{self, preflight};
use whylate_runner::{Experiment, RunOptions, check_tracers, drawn_seed, prepare, recover_treatments};
use whylate_store::{Keeping, Reader, RunInfo};

/// The default plan of a search.
const DEFAULT_PLAN: &str = "quick";
/// The default budget of a search.
const BUDGET_S: u64 = 30 * 60;
/// Probability of one false claim or more in a search.
const ALPHA: f64 = 0.05;

pub(super) fn execute(arguments: &FixArguments, host: &Host) -> Result<Ending> {
    if let Some(path) = &arguments.show {
        let result = result_of(path)?;
        return conclude(arguments, &result, None);
    }
    if let Some(folder) = &arguments.campaign {
        return campaign::execute(arguments, folder, host);
    }
    if arguments.advise {
        return advise(arguments, host);
    }
    let (path, info) = searched(arguments, host)?;
    let mut result = result_of(&path).with_context(|| super::run::why_nothing(&info))?;
    result.warnings = info.warnings.clone();
    conclude(arguments, &result, Some(&info))
}

/// Starts or continues a search.
fn searched(arguments: &FixArguments, host: &Host) -> Result<(PathBuf, RunInfo)> {
    if let Some(path) = &arguments.resume {
        campaign::refuse_search_of_campaign(path)?;
    }
    let machine = machine::real(host)?;
    let asked_to_stop = signals::watch()?;
    let recovered = recover_treatments(&host.settings);
    if let Some(warning) = &recovered {
        output::message(&format!("note: {}", warning.text));
    }
    let quiet = arguments.printing.quiet || arguments.printing.json;
    let (yes, never) = wanted(arguments)?;
    let choice = Choice { yes: &yes, never: &never, ignores_causes: arguments.ignore_causes };
    let mut adviser = MachineAdviser { host, choice };
    if let Some(path) = &arguments.resume {
        let prepare = |plan: Plan| {
            let experiment = prepare(plan, facts::collect(&host.running).0, false)?;
            check_tracers(experiment, &host.settings)
        };
        let reader = Reader::open(path)?;
        foreign::check_run(&reader, arguments.trust_plan)?;
        let plan = reader.info().plan.clone();
        if let Some(rules) = reader.info().fix.as_ref().filter(|_| arguments.budget.is_some()) {
            output::message(&format!(
                "note: --budget: a continued search keeps its original budget, {}",
                rules.budget
            ));
        }
        let mut screen = Screen::of_run(quiet, plan.repeat_duration(), None, asked_to_stop);
        let info = whylate_runner::resume_fix(path, &prepare, &machine, &mut screen, &mut adviser)?;
        screen.finish();
        return Ok((path.clone(), info));
    }
    if budget(arguments).0 == 0 {
        bail!("--budget 0s: nothing can be measured in that time; write for example 30m");
    }
    let (plan, registration) = match &arguments.verify {
        Some(proved) => again(proved, arguments)?,
        None => {
            let (plan, rules) = planned(arguments, host)?;
            // A goal with a limit may be met already; then no question is asked.
            if yes.is_empty() && rules.goal.below.is_none() {
                adviser::can_ask()?;
            }
            (plan, rules)
        }
    };
    let (facts, mut warnings) = facts::collect(&host.running);
    let experiment = check_tracers(prepare(plan, facts, false)?, &host.settings)?;
    warnings.extend(recovered);
    warnings.extend(preflight(&experiment.facts, &experiment.target));
    let started_at = SystemTime::now();
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => default_run_path(&format!("fix-{}", experiment.plan.name), started_at)?,
    };
    if !quiet {
        announce(&experiment, &registration, &path);
    }
    let (name, keeping) = (run_name(&path), Keeping::default());
    let options = RunOptions { name, started_at, warnings, keeping, is_short: false };
    let mut screen = Screen::of_run(quiet, experiment.plan.repeat_duration(), None, asked_to_stop);
    let info =
        whylate_runner::fix(&experiment, registration, &path, &options, &machine, &mut screen, &mut adviser)
            .map_err(|error| way_on(&error, &path).unwrap_or_else(|| error.into()))?;
    screen.finish();
    Ok((path, info))
}

fn budget(arguments: &FixArguments) -> Nanos {
    arguments.budget.unwrap_or(Nanos::from_secs(BUDGET_S))
}

/// The treatments that may be tried, and those that may not; a continued search keeps the choice with which it began.
fn wanted(arguments: &FixArguments) -> Result<(Vec<String>, Vec<String>)> {
    let (mut yes, mut never) = (arguments.yes.clone(), arguments.never.clone());
    if let Some(path) = &arguments.resume {
        let reader = Reader::open(path)?;
        let rules = reader.info().fix.as_ref();
        if yes.is_empty() {
            yes = rules.map(|rules| rules.yes.clone()).unwrap_or_default();
        }
        never.extend(rules.into_iter().flat_map(|rules| rules.never.iter().cloned()));
    }
    // The settings of an audit have names of their own, and a resumed audit has them as arms.
    let is_unknown = |id: &&String| *id != "all" && !advice::is_id(id);
    if arguments.audit.is_none() && arguments.resume.is_none() {
        if let Some(id) = yes.iter().find(is_unknown) {
            bail!(
                "--yes: there is no treatment `{id}`; `whylate fix --advise` lists the treatments that may help here"
            );
        }
        for id in never.iter().filter(is_unknown) {
            output::message(&format!("note: --never {id}: there is no such treatment"));
        }
    }
    Ok((yes, never))
}

/// The plan of an earlier search with only its cell, and the rules that check again what it proved.
fn again(proved: &Path, arguments: &FixArguments) -> Result<(Plan, FixRegistration)> {
    let reader = Reader::open(proved)?;
    foreign::check_run(&reader, arguments.trust_plan)?;
    let mut plan = reader.info().plan.clone();
    let FixResult { registration, recommended, .. } = result_of(proved)?;
    if recommended.is_empty() {
        bail!("{}: the search proved nothing, so there is nothing to verify", proved.display());
    }
    let is_proved = |name: &String| recommended.contains(name);
    let arms: Vec<_> = registration.arms.into_iter().filter(|arm| is_proved(&arm.treatment.name)).collect();
    plan.treatment = arms.iter().map(|arm| arm.treatment.clone()).collect();
    plan.cell.retain(|cell| cell.treatments.is_empty() && Some(cell.name()) == registration.cell);
    let rules = FixRegistration {
        mode: FixMode::Verify,
        seed: arguments.seed.unwrap_or_else(drawn_seed),
        budget: budget(arguments),
        arms,
        left_out: Vec::new(),
        first: 0,
        keeps_goal: true,
        begun: true,
        ..registration
    };
    Ok((plan, rules))
}

/// The plan without its treatments, and the rules of the search.
fn planned(arguments: &FixArguments, host: &Host) -> Result<(Plan, FixRegistration)> {
    let mut plan = match &arguments.task {
        Some(name) => task::plan(name, arguments, host)?,
        None => read_plan(
            arguments.plan.as_deref().unwrap_or(DEFAULT_PLAN),
            &arguments.overrides,
            false,
            arguments.trust_plan,
        )?,
    };
    plan.treatment.clear();
    let mut seen = std::collections::BTreeSet::new();
    plan.cell.retain_mut(|cell| {
        if !cell.treatments.is_empty() {
            cell.name = None;
            cell.treatments.clear();
        }
        seen.insert(cell.loads.clone())
    });
    (plan.answer, plan.baseline, plan.copies) = (Vec::new(), None, None);
    // A watched task reports its causes itself.
    plan.causes = arguments.task.is_none();
    if arguments.task.is_some() && arguments.goal.as_ref().is_some_and(|goal| goal.statistic.is_own()) {
        bail!(
            "--goal: only the probe `timer` separates latency from hypervisor time; write for example `p99`"
        );
    }
    let primary = plan.primary_statistic();
    let mut goal = match (&arguments.goal, &primary) {
        (Some(goal), _) => goal.clone(),
        (None, Some(primary)) => FixGoal { series: None, statistic: primary.statistic, below: None },
        (None, None) => {
            bail!("the plan has no probe whose statistic could become smaller; name one with --goal")
        }
    };
    goal.series = goal.series.or(primary.map(|primary| primary.series));
    let chains = plan.chains().map(|chain| format!("task/{}", Chain::series_of(&chain.name)));
    let series: Vec<String> =
        plan.probe.iter().flat_map(whylate_core::plan::ProbePlan::series_names).chain(chains).collect();
    let wanted = whylate_core::plan::SeriesStatistic {
        series: goal.series.clone().unwrap_or_default(),
        statistic: goal.statistic,
    };
    if !series.iter().any(|name| wanted.is_of(name)) {
        bail!(
            "--goal {}: the plan measures no `{}`; it has {}",
            goal.words(),
            wanted.series,
            series.join(", ")
        );
    }
    let mut rules = rules(arguments, goal, plan.margin);
    if let Some(path) = &arguments.audit {
        let cannot_read = || format!("cannot read {}", path.display());
        let mut file = std::fs::File::open(path).with_context(cannot_read)?;
        let text = std::io::read_to_string(&mut file).with_context(cannot_read)?;
        let profile = profile(&text).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))?;
        let named: Vec<_> = profile.arms.iter().map(|arm| arm.treatment.clone()).collect();
        foreign::check_settings(&named, path, &file, arguments.trust_plan)?;
        output::message(&format!(
            "{} is {}: whylate can try {} of its settings, and cannot try {}",
            path.display(),
            profile.form,
            profile.arms.len(),
            profile.left_out.len()
        ));
        (rules.mode, rules.arms, rules.left_out) = (FixMode::Audit, profile.arms, profile.left_out);
    }
    Ok((plan, rules))
}

/// The rules of a search that has not begun.
fn rules(arguments: &FixArguments, goal: FixGoal, margin: Share) -> FixRegistration {
    FixRegistration {
        mode: FixMode::Search,
        goal,
        margin: arguments.margin.unwrap_or(margin),
        alpha: ALPHA,
        seed: arguments.seed.unwrap_or_else(drawn_seed),
        budget: budget(arguments),
        cell: None,
        causes: Vec::new(),
        arms: Vec::new(),
        left_out: Vec::new(),
        yes: arguments.yes.clone(),
        never: arguments.never.clone(),
        first: 0,
        keeps_goal: true,
        begun: false,
    }
}

fn announce(experiment: &Experiment, registration: &FixRegistration, path: &Path) {
    let cells: Vec<String> = experiment.cells.iter().map(|cell| cell.plan.name()).collect();
    output::message(&format!(
        "{} lowers {} on CPU {} (cells {}), for at most {}, into {}",
        match registration.mode {
            FixMode::Search => "searching for what",
            FixMode::Verify => "checking whether what was proved still",
            FixMode::Audit => "checking which of the settings",
        },
        registration.goal.words(),
        experiment.target,
        cells.join(", "),
        registration.budget,
        path.display()
    ));
}

/// The result of the search in that directory.
fn result_of(path: &Path) -> Result<FixResult> {
    let run = whylate_runner::assemble(path)?;
    let is_restored = run.restored;
    run.fix
        .map(|fix| FixResult { restored: is_restored, ..fix })
        .with_context(|| format!("{} is not the directory of a search (`whylate fix`)", path.display()))
}

/// Proposes treatments from an existing run or from a new one.
fn advise(arguments: &FixArguments, host: &Host) -> Result<Ending> {
    let named = arguments.plan.as_deref().map(Path::new).filter(|path| path.is_dir());
    let measured = match named {
        Some(path) => whylate_runner::assemble(path)?,
        None => measured(arguments, host)?,
    };
    let primary = measured.plan.primary_statistic().context("the run has no probe")?;
    let of_plan = || FixGoal { series: None, statistic: primary.statistic, below: None };
    let mut goal = arguments.goal.clone().unwrap_or_else(of_plan);
    goal.series.get_or_insert(primary.series);
    let margin = Share(measured.plan.margin.0);
    let rules = FixRegistration { seed: 0, budget: Nanos(0), ..rules(arguments, goal, margin) };
    let cell = adviser::latest_cell(&measured).context("no cell without treatments was measured")?;
    let choice = Choice { yes: &[], never: &[], ignores_causes: false };
    let proposal = MachineAdviser { host, choice }.proposal(&rules, &measured, &cell)?;
    let result = adviser::advice(&measured, cell, rules, proposal);
    conclude(arguments, &result, None)
}

/// Measures the plan twice, without treatments.
fn measured(arguments: &FixArguments, host: &Host) -> Result<whylate_core::result::RunResult> {
    let (mut plan, _) = planned(arguments, host)?;
    plan.repeats = 2;
    let machine = machine::real(host)?;
    let asked_to_stop = signals::watch()?;
    let (facts, mut warnings) = facts::collect(&host.running);
    let experiment = check_tracers(prepare(plan, facts, false)?, &host.settings)?;
    warnings.extend(preflight(&experiment.facts, &experiment.target));
    let started_at = SystemTime::now();
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => default_run_path(&experiment.plan.name, started_at)?,
    };
    let quiet = arguments.printing.quiet || arguments.printing.json;
    let (name, keeping) = (run_name(&path), Keeping::default());
    let options = RunOptions { name, started_at, warnings, keeping, is_short: false };
    let mut screen = Screen::of_run(quiet, experiment.plan.repeat_duration(), None, asked_to_stop);
    whylate_runner::run(&experiment, &path, &options, &machine, &mut screen)?;
    screen.finish();
    Ok(whylate_runner::assemble(&path)?)
}

/// Prints the answer and writes the files.
fn conclude(arguments: &FixArguments, result: &FixResult, info: Option<&RunInfo>) -> Result<Ending> {
    if arguments.printing.json {
        output::print_json(result)?;
    } else {
        let mut shown = result.clone();
        // What the machine lacks is in the run's own report.
        shown.warnings.retain(|warning| adviser::is_about_settings(&warning.code));
        output::drawn(&whylate_report::fix(&shown).terminal(output::style()))?;
        if !result.run.is_empty() {
            output::message(&format!(
                "\nstored in {0}\nthe whole report: whylate report {0} -o report.html",
                result.run
            ));
        }
    }
    if let Some(folder) = &arguments.write {
        write(folder, result)?;
    }
    if info.is_some_and(|info| !is_restored(info)) {
        return Ok(Ending::NotRestored);
    }
    if result.answer == FixAnswer::Unfinished {
        let why = info.and_then(|info| info.error.clone()).map(|why| format!(": {why}")).unwrap_or_default();
        output::message(&format!("whylate: the search is not over{why}"));
        let how = campaign::how_to_go_on(Path::new(&result.run));
        if let Some(how) = how.filter(|_| result.state != RunState::Complete) {
            output::message(&format!("    to continue: {how}"));
        }
    }
    Ok(match result.answer {
        FixAnswer::Proved | FixAnswer::NothingNeeded | FixAnswer::Advised | FixAnswer::Audited => {
            Ending::Pass
        }
        FixAnswer::NothingProved if result.registration.mode == FixMode::Verify => Ending::Exceeded,
        FixAnswer::NothingProved | FixAnswer::NothingToTry | FixAnswer::Unfinished => Ending::Incomplete,
    })
}

/// Writes each file below `folder` at its place below `/`.
fn write(folder: &Path, result: &FixResult) -> Result<()> {
    if result.files.is_empty() {
        output::message("no proved treatment can be installed by a file; nothing was written");
    }
    for file in &result.files {
        let path = folder.join(file.path.trim_start_matches('/'));
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        output::write_new(&path, &file.text)?;
        output::message(&format!("wrote {}", path.display()));
    }
    Ok(())
}
