//! `whylate push`, `pull` and `farm`.

pub(super) mod query;

use super::{run, runs};
use crate::arguments::{
    AskedArguments, DispatcherChoice, FarmCommand, PullArguments, PushArguments, RenderArguments,
    VerifyArguments,
};
use crate::exit::Ending;
use crate::output;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};
use whylate_core::figure;
use whylate_core::order::InOrder;
use whylate_core::plan::builtin;
use whylate_farm::{
    Asked, Dispatcher, FarmFile, Lake, PlanFile, Push, Pushed, Rendered, is_short, mismatches,
};
use whylate_store::{Reader, StoreError, assemble};

/// The most runs that are pushed at once: each waits for the disk or the network, and is in memory.
const PUSHES_MAX: usize = 4;

pub(super) fn push(arguments: &PushArguments) -> Result<Ending> {
    let Some((url, names)) = arguments.words.split_last() else { bail!("name a run, then a lake") };
    let farm = arguments.farm.as_deref().map(read_farm).transpose()?;
    let how = Push { replace: arguments.replace, asked: asked(&arguments.asked)?, farm };
    let lake = Lake::open(url, true)?;
    let one = |name: &String| runs::named(Path::new(name)).and_then(|run| Ok(lake.push(&run, &how)?));
    let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::channel());
    // Results are printed in the order of the arguments: earlier results wait for their turn.
    let (mut early, mut turn, mut failed) = (BTreeMap::new(), 0, 0);
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..PUSHES_MAX.min(names.len()) {
            let (sender, next, one) = (sender.clone(), &next, &one);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(name) = names.get(number) else { return };
                    if sender.send((number, one(name))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (number, pushed) in receiver {
            early.insert(number, pushed);
            while let Some(pushed) = early.remove(&turn) {
                turn += 1;
                failed += usize::from(!say(pushed, arguments.farm.as_deref())?);
            }
        }
        Ok(())
    })?;
    Ok(if failed == 0 { Ending::Pass } else { Ending::Incomplete })
}

/// Follows the name of a run of the short form of its plan.
const SHORT: &str = " (a short run)";

/// Reports the result of a push; returns whether the run is in the lake.
fn say(pushed: Result<Pushed>, farm: Option<&Path>) -> Result<bool> {
    match pushed {
        Ok(pushed) => {
            let size = figure::bytes(pushed.bytes);
            let sent = match pushed.objects {
                0 => "already in the lake".to_owned(),
                objects => format!("{objects} objects, {size}"),
            };
            let short = if pushed.is_short { SHORT } else { "" };
            output::print(&format!("{}: {sent}{short}", pushed.run))?;
            for line in pushed.mismatches {
                output::message(&format!("    INCOMPLETE: {line}"));
            }
            if let Some(farm) = farm.filter(|_| pushed.is_stranger) {
                let host = &pushed.run.host;
                let file = farm.display();
                output::message(&format!(
                    "    {file} does not name the host `{host}`, so it gives this run no labels and no kernel"
                ));
            }
            Ok(true)
        }
        // The other runs are still pushed.
        Err(error) => {
            output::message(&format!("whylate: {error}"));
            Ok(false)
        }
    }
}

pub(super) fn pull(arguments: &PullArguments) -> Result<Ending> {
    let url = arguments.url.trim_end_matches('/');
    let Some(dir) = &arguments.dir else { return list(&Lake::open(url, false)?, arguments.check) };
    let (lake, run) = place(url)?;
    let run = lake.find(&run)?;
    let pulled = lake.pull(&run, dir)?;
    output::print(&format!("{}: {} into {}", pulled.run, figure::bytes(pulled.bytes), dir.display()))?;
    Ok(Ending::Pass)
}

/// The lake, and the name of a run in it: `URL/RUN` or `URL/HOST/RUN`.
fn place(url: &str) -> Result<(Lake, String)> {
    let Some((near, run)) = url.rsplit_once('/') else { bail!("{url}: add a run: URL/HOST/RUN or URL/RUN") };
    let nearer = Lake::open(near, false);
    if let Some((far, host)) = near.rsplit_once('/')
        && !nearer.as_ref().is_ok_and(|lake| lake.find(run).is_ok())
        && let Ok(lake) = Lake::open(far, false)
    {
        return Ok((lake, format!("{host}/{run}")));
    }
    Ok((nearer?, run.to_owned()))
}

fn list(lake: &Lake, check: bool) -> Result<Ending> {
    let runs = lake.runs()?;
    let mut damaged = 0;
    if check {
        for month in lake.check_months()? {
            match month {
                Ok((month, bytes)) => {
                    output::print(&format!("tables of {month}: {}, undamaged", figure::bytes(bytes)))?;
                }
                Err(error) => {
                    damaged += 1;
                    output::message(&format!("whylate: {error}"));
                }
            }
        }
        // Their push began but did not end, so that they are not visible yet.
        for run in lake.unfinished()? {
            damaged += 1;
            output::message(&format!(
                "whylate: {}/{run}: its push did not finish; push the run again, which continues where the push stopped",
                lake.url()
            ));
        }
    }
    for run in &runs {
        if !check {
            output::print(&run.to_string())?;
            continue;
        }
        match lake.check(run) {
            Ok(bytes) => output::print(&format!("{run}: {}, undamaged", figure::bytes(bytes)))?,
            Err(errors) => {
                damaged += errors.len();
                errors.iter().for_each(|error| output::message(&format!("whylate: {error}")));
            }
        }
    }
    if runs.is_empty() {
        output::message(&format!("{} has no runs", lake.url()));
    }
    Ok(if damaged == 0 { Ending::Pass } else { Ending::Incomplete })
}

pub(super) fn execute(command: &FarmCommand) -> Result<Ending> {
    match command {
        FarmCommand::Verify(arguments) => verify(arguments),
        FarmCommand::Render(arguments) => render(arguments),
        FarmCommand::Query(arguments) => query::query(arguments),
        FarmCommand::Compare(arguments) => query::compare(arguments),
    }
}

fn verify(arguments: &VerifyArguments) -> Result<Ending> {
    let path = runs::named(&arguments.run)?;
    let asked = asked(&arguments.asked)?;
    let reader = Reader::open(&path)?;
    let result = match assemble(&reader) {
        Ok(result) => Some(result),
        Err(StoreError::NoSamples(_) | StoreError::NothingLeft(..)) => None,
        Err(error) => return Err(error.into()),
    };
    let found = mismatches(reader.info(), result.as_ref(), &asked);
    for line in &found {
        output::message(&format!("INCOMPLETE: {line}"));
    }
    if found.is_empty() {
        let short = if is_short(reader.info(), &asked) { SHORT } else { "" };
        output::print(&format!("{}: the run matches the request{short}", path.display()))?;
    }
    Ok(if found.is_empty() { Ending::Pass } else { Ending::Incomplete })
}

fn asked(arguments: &AskedArguments) -> Result<Asked> {
    // It is only compared: none of its commands run.
    let read = |short: bool| {
        arguments.plan.as_deref().map(|name| run::read_plan(name, &[], short, true)).transpose()
    };
    let plan = read(false)?;
    let has_short = plan.as_ref().is_some_and(|plan| !plan.short.is_empty());
    let short = if has_short { read(true)? } else { None };
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|now| now.as_secs());
    Ok(Asked { plan, short, kernel: arguments.kernel.clone(), host: arguments.host.clone(), now_s })
}

fn read_farm(path: &Path) -> Result<FarmFile> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the farm file {name}"))?;
    Ok(FarmFile::parse(&name, &text)?)
}

fn render(arguments: &RenderArguments) -> Result<Ending> {
    let name = arguments.farm.display();
    let farm = read_farm(&arguments.farm)?;
    let folder = arguments.farm.parent().unwrap_or(Path::new("."));
    let (mut plans, mut jobs) = (Vec::new(), Vec::new());
    match &arguments.plan {
        Some(plan) => {
            plans.push(plan_file(plan, None)?);
            jobs.extend((0..farm.hosts.len()).map(|host| (host, 0)));
        }
        None => {
            for rule in &farm.plans {
                let hosts = farm.hosts.iter().enumerate().filter(|(_, host)| rule.is_for(host));
                let before = jobs.len();
                jobs.extend(hosts.map(|(host, _)| (host, plans.len())));
                ensure!(jobs.len() > before, "{name}: no host has the labels of the plan `{}`", rule.plan);
                plans.push(plan_file(&rule.plan, Some(folder))?);
            }
        }
    }
    ensure!(!jobs.is_empty(), "{name}: name a plan, or add a [[plan]] to the farm file");
    let mut names: Vec<&str> = plans.iter().map(|plan| plan.plan.name.as_str()).collect();
    names.order();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        bail!("two plans have the name `{}`, so their files would have the same name", twice[0]);
    }
    let dispatcher = match arguments.engine {
        DispatcherChoice::Kubernetes => Dispatcher::Kubernetes,
        DispatcherChoice::Slurm => Dispatcher::Slurm,
        DispatcherChoice::Ansible => Dispatcher::Ansible,
        DispatcherChoice::Lava => Dispatcher::Lava,
    };
    let files = whylate_farm::render(&farm, &plans, &jobs, dispatcher);
    write_all(&arguments.output, &files)?;
    output::message(&format!(
        "wrote {} files (jobs: {}); {}/README.md says how to begin",
        files.len(),
        jobs.len(),
        arguments.output.display()
    ));
    Ok(Ending::Pass)
}

/// A built-in plan, or one in a file, whose path may be relative to a folder.
fn plan_file(name: &str, folder: Option<&Path>) -> Result<PlanFile> {
    if let Some(known) = builtin::find(name) {
        return Ok(PlanFile { plan: run::read_plan(name, &[], false, true)?, text: known.text.to_owned() });
    }
    let path = folder.map_or_else(|| Path::new(name).to_owned(), |folder| folder.join(name));
    // It is only copied: none of its commands run.
    let plan = run::read_plan(&path.to_string_lossy(), &[], false, true)?;
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read the plan {}", path.display()))?;
    Ok(PlanFile { plan, text })
}

fn write_all(folder: &Path, files: &[Rendered]) -> Result<()> {
    fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for file in files {
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        output::write_new(&path, &file.text)?;
        if file.is_program() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}
