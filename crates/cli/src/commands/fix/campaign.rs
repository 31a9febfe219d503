//! `whylate fix --campaign`: treatments that need a boot.

use super::{announce, conclude, planned, result_of};
use crate::arguments::FixArguments;
use crate::commands::foreign;
use crate::exit::{Ending, Refused};
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
use whylate_runner::campaign::{
    Boots, Campaign, Continuation, Loader, LoaderName, Outside, every_day, use_all_cpus, ways,
};
use whylate_runner::{RunOptions, check_tracers, prepare};
use whylate_store::{Keeping, RunInfo};

const NO_RIGHT: Refused = Refused(
    "--campaign needs root to write a systemd unit and a boot entry, and to reboot the machine; use sudo",
);

/// Performs the action of `--campaign`.
pub(super) fn execute(arguments: &FixArguments, folder: &Path, host: &Host) -> Result<Ending> {
    let folder = std::path::absolute(folder)?;
    if host.settings.is_real() && !rustix::process::geteuid().is_root() {
        return Err(NO_RIGHT.into());
    }
    if arguments.remove {
        let campaign = read(&folder)?;
        if !campaign.removed {
            remove(&folder, campaign, host)?;
        }
        output::message(&format!("the campaign was removed; its results remain in {}", folder.display()));
        return Ok(Ending::Pass);
    }
    use_all_cpus(&host.running);
    if !arguments.goes_on {
        begin(arguments, &folder, host)?;
    }
    go_on(arguments, &folder, host)
}

/// The campaign in `folder`, which root trusts.
fn read(folder: &Path) -> Result<Campaign> {
    let campaign = Campaign::read(folder)?;
    foreign::check_campaign(folder, &campaign.loader)?;
    Ok(campaign)
}

/// Registers a campaign, and writes the files that boot the machine and continue the campaign after each boot.
fn begin(arguments: &FixArguments, folder: &Path, host: &Host) -> Result<()> {
    if Campaign::exists(folder) {
        bail!(
            "{0} already has a campaign; to continue it: whylate fix --campaign {0} --continue",
            folder.display()
        );
    }
    if arguments.boot.is_empty() {
        bail!("name the treatments: give --boot once for each, for example --boot 'isolcpus=1'");
    }
    if folder.exists() && folder.read_dir().map_or(true, |mut entries| entries.next().is_some()) {
        bail!(
            "--campaign {} is not empty; name an empty folder, or one that does not exist",
            folder.display()
        );
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
            "found no boot loader that can boot an entry once; name one: --boot-loader kexec, or a script that boots the \
             machine",
        )?,
    };
    foreign::check_campaign(folder, &name)?;
    // Refuses what cannot be measured before anything is written.
    check_tracers(prepare(plan.clone(), now, false)?, &host.settings)?;
    let campaign = Campaign::new(plan, rules, name, every_day);
    let loader = ways(&campaign.loader, &host.settings);
    let kernels: BTreeSet<String> = std::iter::once(campaign.kernel.clone())
        .chain(arguments.boot.iter().filter_map(|boot| boot.kernel.clone()))
        .collect();
    let outside = Outside { root: &host.settings, folder, loader: loader.as_ref() };
    outside.check(&kernels)?;
    agreed(arguments, &campaign, folder)?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(outside.install(&campaign, &kernels, &program)?)
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
        removes: Vec::new(),
        service: None,
    };
    let arms: Vec<FixArm> = boots.iter().map(arm).collect();
    let names: BTreeSet<&String> = arms.iter().map(|arm| &arm.treatment.name).collect();
    if names.len() < arms.len() {
        bail!("--boot: the same words appear twice");
    }
    Ok(arms)
}

/// Asks once whether the machine may be booted.
fn agreed(arguments: &FixArguments, campaign: &Campaign, folder: &Path) -> Result<()> {
    output::message(&format!(
        "this machine will reboot once for each repeat (boot loader: {}), for at most {} in all:",
        campaign.loader, campaign.registration.budget
    ));
    for arm in &campaign.registration.arms {
        output::message(&format!("    {}", arm.treatment.name));
    }
    output::message(&format!(
        "the default boot entry is not changed; to end the campaign: whylate fix --campaign {} --remove",
        folder.display()
    ));
    if arguments.yes.iter().any(|id| id == "all") {
        return Ok(());
    }
    if !stdin().is_terminal() {
        bail!("without a terminal, whylate cannot ask whether it may reboot; add `--yes all`");
    }
    output::message("reboot this machine? [y/N]");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    match answer.trim().eq_ignore_ascii_case("y") {
        true => Ok(()),
        false => bail!("nothing was changed"),
    }
}

/// Measures the repeat of this boot, and requests the next boot; at the end removes everything.
fn go_on(arguments: &FixArguments, folder: &Path, host: &Host) -> Result<Ending> {
    let campaign = read(folder)?;
    let search = Campaign::search(folder);
    if campaign.removed {
        bail!(
            "the campaign in {0} has ended; to see what it proved: whylate fix --show {1}",
            folder.display(),
            search.display()
        );
    }
    let loader = ways(&campaign.loader, &host.settings);
    Continuation { root: &host.settings, folder }.check()?;
    if campaign.asked.is_some() {
        // A loader that could not clear its note would boot the same entry again.
        loader.forget()?;
    }
    let mut boots = Boots { root: &host.settings, folder, campaign, loader: loader.as_ref() };
    let info = searched(arguments, &search, &mut boots, host)?;
    if info.state != RunState::Complete {
        return Ok(match boots.waits_for_boot() {
            true => boot(arguments, loader.as_ref())?,
            false => conclude(arguments, &result_of(&search)?, Some(&info))?,
        });
    }
    let removed = remove(folder, boots.campaign.clone(), host);
    let result = result_of(&search).with_context(|| super::super::run::why_nothing(&info));
    let ending = result.and_then(|result| conclude(arguments, &result, Some(&info)));
    // A unit that stays would run for ever: then the machine is not booted.
    removed?;
    let ending = ending?;
    if boots.is_booted_by_campaign()? {
        output::message("booting the default entry");
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

/// How to continue a search that is not over, unless its campaign has ended.
pub(super) fn how_to_go_on(search: &Path) -> Option<String> {
    let Some(folder) = Campaign::of_search(search) else {
        return Some(format!("whylate fix --resume {}", search.display()));
    };
    let has_ended = Campaign::read(&folder).is_ok_and(|campaign| campaign.removed);
    (!has_ended).then(|| format!("whylate fix --campaign {} --continue", folder.display()))
}

/// Refuses the search of a campaign, whose repeats need boots.
pub(super) fn refuse_search_of_campaign(search: &Path) -> Result<()> {
    if Campaign::of_search(search).is_none() {
        return Ok(());
    }
    match how_to_go_on(search) {
        Some(how) => bail!("--resume: {} belongs to a campaign; to continue it: {how}", search.display()),
        None => bail!("--resume: {} belongs to a campaign, which has ended", search.display()),
    }
}

/// Starts or continues the search of a campaign, until it needs a boot.
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
    let info = if whylate_store::is_run(path) {
        let prepare = |plan: Plan| prepare(plan);
        whylate_runner::resume_fix(path, &prepare, &machine, &mut screen, boots)?
    } else {
        if path.exists() {
            // The power failed while it was made: it has no measurements.
            std::fs::remove_dir_all(path)?;
        }
        let experiment = prepare(boots.campaign.plan.clone())?;
        let warnings = preflight(&experiment.facts, &experiment.target);
        let rules = FixRegistration { arms: Vec::new(), ..boots.campaign.registration.clone() };
        if !quiet {
            announce(&experiment, &rules, path);
        }
        let options = RunOptions {
            name: "campaign".to_owned(),
            started_at: SystemTime::now(),
            warnings,
            keeping: Keeping::default(),
            is_short: false,
        };
        whylate_runner::fix(&experiment, rules, path, &options, &machine, &mut screen, boots)?
    };
    screen.finish();
    Ok(info)
}

/// Removes everything that the campaign wrote outside of its folder.
fn remove(folder: &Path, campaign: Campaign, host: &Host) -> Result<()> {
    let loader = ways(&campaign.loader, &host.settings);
    Ok(Outside { root: &host.settings, folder, loader: loader.as_ref() }.remove(campaign)?)
}
