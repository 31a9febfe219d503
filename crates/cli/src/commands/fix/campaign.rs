//! `whylate fix --campaign`: treatments that need a boot.

use super::{announce, conclude, planned, result_of};
use crate::arguments::FixArguments;
use crate::exit::Ending;
use crate::screen::Screen;
use crate::{machine, output, signals};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{IsTerminal, stdin};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use whylate_core::CpuSelector;
use whylate_core::plan::{BootPlan, Plan, TreatmentKind, TreatmentPlan};
use whylate_core::result::{FixArm, FixRegistration, RunState};
use whylate_host::Host;
use whylate_host::facts::{self, preflight};
use whylate_runner::campaign::{Boots, Campaign, Continuation, Loader, LoaderName, every_day, ways};
use whylate_runner::{RunOptions, check_tracers, prepare};
use whylate_store::RunInfo;

/// What `--campaign` is asked to do.
pub(super) fn execute(arguments: &FixArguments, folder: &Path, host: &Host) -> Result<Ending> {
    let folder = std::path::absolute(folder)?;
    if arguments.remove {
        let campaign = Campaign::read(&folder)?;
        remove(&folder, campaign, host)?;
        output::message(&format!("removed; what was measured stays in {}", folder.display()));
        return Ok(Ending::Pass);
    }
    if !arguments.goes_on {
        begin(arguments, &folder, host)?;
    }
    go_on(arguments, &folder, host)
}

/// Registers a campaign, and writes what boots the machine and goes on after it.
fn begin(arguments: &FixArguments, folder: &Path, host: &Host) -> Result<()> {
    if Campaign::exists(folder) {
        bail!(
            "{0} has a campaign already; go on with it: whylate fix --campaign {0} --continue",
            folder.display()
        );
    }
    if arguments.boot.is_empty() {
        bail!("name what is tried: --boot 'isolcpus=1', once for each treatment");
    }
    let (mut plan, rules) = planned(arguments, host)?;
    let (now, _) = facts::collect(&host.running);
    // The same CPUs in every boot, whatever is isolated there.
    let target = plan.target.cpus.resolve(&now.cpu_context(), None)?;
    plan.target.cpus = CpuSelector::List(target);
    let rules = FixRegistration { arms: arms(&arguments.boot)?, ..rules };
    let every_day = every_day(&host.settings)?;
    let name = match &arguments.boot_loader {
        Some(name) => name.clone(),
        None => LoaderName::found(&host.settings).context(
            "neither GRUB nor systemd-boot is found here; name a script that boots the machine: --boot-loader PATH",
        )?,
    };
    let campaign = Campaign::new(plan, rules, name, every_day);
    agreed(arguments, &campaign, folder)?;
    let loader = ways(&campaign.loader, &host.settings);
    let kernels: BTreeSet<String> = std::iter::once(campaign.kernel.clone())
        .chain(arguments.boot.iter().filter_map(|boot| boot.kernel.clone()))
        .collect();
    // First: so that all that follows can be removed again.
    campaign.write(folder)?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let written = loader
        .install(&kernels)
        .and_then(|()| Continuation { root: &host.settings, folder }.install(&program));
    if let Err(error) = written {
        remove(folder, campaign, host)?;
        std::fs::remove_file(folder.join("campaign.json"))?;
        return Err(error.into());
    }
    Ok(())
}

fn arms(boots: &[BootPlan]) -> Result<Vec<FixArm>> {
    let arm = |plan: &BootPlan| FixArm {
        treatment: TreatmentPlan {
            name: plan.name(),
            optional: false,
            kind: TreatmentKind::Boot(plan.clone()),
        },
        reason: "it was named with --boot".to_owned(),
        answers: Vec::new(),
    };
    let arms: Vec<FixArm> = boots.iter().map(arm).collect();
    let names: BTreeSet<&String> = arms.iter().map(|arm| &arm.treatment.name).collect();
    if names.len() < arms.len() {
        bail!("--boot: the same words are there twice");
    }
    Ok(arms)
}

/// Asks once whether the machine may be booted.
fn agreed(arguments: &FixArguments, campaign: &Campaign, folder: &Path) -> Result<()> {
    output::message(&format!(
        "this machine will be booted again and again through {}, once for each repeat, for at most {}:",
        campaign.loader, campaign.registration.budget
    ));
    for arm in &campaign.registration.arms {
        output::message(&format!("    {}", arm.treatment.name));
    }
    output::message(&format!(
        "its entry of every day stays as it is; to end it: whylate fix --campaign {} --remove",
        folder.display()
    ));
    if arguments.yes.iter().any(|id| id == "all") {
        return Ok(());
    }
    if !stdin().is_terminal() {
        bail!("nobody can be asked here; add `--yes all`");
    }
    output::message("boot it? [y/N]");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    match answer.trim().eq_ignore_ascii_case("y") {
        true => Ok(()),
        false => bail!("nothing was changed"),
    }
}

/// Measures what this boot is for, and asks for the next one; at the end removes everything.
fn go_on(arguments: &FixArguments, folder: &Path, host: &Host) -> Result<Ending> {
    let campaign = Campaign::read(folder)?;
    let search = Campaign::search(folder);
    if campaign.removed {
        bail!("{0} has ended; what it proved: whylate fix --show {1}", folder.display(), search.display());
    }
    let loader = ways(&campaign.loader, &host.settings);
    // One that could not clear its note would boot the same again.
    loader.forget()?;
    let mut boots = Boots { root: &host.settings, folder, campaign, loader: loader.as_ref() };
    let info = searched(arguments, &search, &mut boots, host)?;
    if info.state != RunState::Complete {
        return Ok(match boots.waits_for_boot() {
            true => boot(arguments, loader.as_ref())?,
            false => conclude(arguments, &result_of(&search)?, Some(&info))?,
        });
    }
    remove(folder, boots.campaign.clone(), host)?;
    let result = result_of(&search).with_context(|| super::super::run::why_nothing(&info))?;
    let ending = conclude(arguments, &result, Some(&info))?;
    if boots.is_booted_by_campaign()? {
        output::message("booting the entry of every day");
        loader.reboot()?;
    }
    Ok(ending)
}

fn boot(arguments: &FixArguments, loader: &dyn Loader) -> Result<Ending> {
    if !arguments.printing.quiet {
        output::message("the next repeat needs a boot: booting now");
    }
    loader.reboot()?;
    Ok(Ending::Pass)
}

/// Begins the search of a campaign, or goes on with it, until it needs a boot.
fn searched(arguments: &FixArguments, path: &PathBuf, boots: &mut Boots<'_>, host: &Host) -> Result<RunInfo> {
    let machine = machine::real(host)?;
    let asked_to_stop = signals::watch()?;
    let quiet = arguments.printing.quiet || arguments.printing.json;
    let prepare = |plan: Plan| {
        let experiment = prepare(plan, facts::collect(&host.running).0, false)?;
        check_tracers(experiment, &host.settings)
    };
    let duration = boots.campaign.plan.repeat_duration();
    let mut screen = Screen::of_run(quiet, duration, None, asked_to_stop);
    let info = if path.join("run.json").exists() {
        let prepare = |plan: Plan| prepare(plan);
        whylate_runner::resume_fix(path, &prepare, &machine, &mut screen, boots)?
    } else {
        if path.exists() {
            // The power went while it was made: nothing was measured in it.
            std::fs::remove_dir_all(path)?;
        }
        let experiment = prepare(boots.campaign.plan.clone())?;
        let warnings = preflight(&experiment.facts, &experiment.target);
        let rules = FixRegistration { arms: Vec::new(), ..boots.campaign.registration.clone() };
        if !quiet {
            announce(&experiment, &rules, path);
        }
        let options =
            RunOptions { name: "campaign".to_owned(), started_at: SystemTime::now(), warnings, disk: None };
        whylate_runner::fix(&experiment, rules, path, &options, &machine, &mut screen, boots)?
    };
    screen.finish();
    Ok(info)
}

/// Takes away all that the campaign wrote outside of its folder.
fn remove(folder: &Path, mut campaign: Campaign, host: &Host) -> Result<()> {
    ways(&campaign.loader, &host.settings).remove()?;
    Continuation { root: &host.settings, folder }.remove()?;
    campaign.removed = true;
    Ok(campaign.write(folder)?)
}
