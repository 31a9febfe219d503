//! Plans of other users, in files and in run directories: root runs their commands and applies their settings only
//! after confirmation.

use crate::output;
use anyhow::{Context, Result, bail};
use std::fs::{self, File, Metadata};
use std::io::{IsTerminal, stdin};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use whylate_core::Plan;
use whylate_core::plan::{LoadKind, TreatmentKind, TreatmentPlan};
use whylate_runner::campaign::{CAMPAIGN_FILE, LoaderName};
use whylate_store::{INFO_FILE, Reader};

/// Asks before root does what a plan says that another user can write or exchange, unless it is `trusted`. The user
/// who typed `sudo` does not count as another one. `file` is the plan as it was read.
pub(super) fn check(plan: &Plan, path: &Path, file: &File, trusted: bool) -> Result<()> {
    let commands = plan.load.iter().filter_map(|load| command(&load.kind));
    check_deeds(&commands.chain(settings(&plan.treatment)).collect::<Vec<_>>(), path, file, trusted)
}

/// The same for a run that continues with the plan in its directory, and for a search with its treatments.
pub(super) fn check_run(run: &Reader, trusted: bool) -> Result<()> {
    let path = run.path().join(INFO_FILE);
    let cannot_read = || format!("cannot read {}", path.display());
    let file = run.folder().open_file(INFO_FILE).with_context(cannot_read)?.with_context(cannot_read)?;
    check(&run.info().plan, &path, &file, trusted)?;
    let arms = run.info().fix.iter().flat_map(|rules| &rules.arms);
    check_settings(&arms.map(|arm| arm.treatment.clone()).collect::<Vec<_>>(), &path, &file, trusted)
}

/// Refuses a campaign that another user can write or exchange: it names the script that boots the machine, and root
/// runs its own script after each boot without asking. `folder` may not exist yet.
pub(super) fn check_campaign(folder: &Path, loader: &LoaderName) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let file = folder.join(CAMPAIGN_FILE);
    let script = match loader {
        LoaderName::Script(path) => Some(Path::new(path)).filter(|path| path.exists()),
        _ => None,
    };
    for path in file.ancestors().find(|path| path.exists()).into_iter().chain(script) {
        let opened = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        if let Some(problem) = problem(path, &opened)? {
            bail!(
                "{}: {problem}, and a campaign runs as root; use a folder that only root can write to",
                path.display()
            );
        }
    }
    Ok(())
}

/// The same for a file that only names settings.
pub(super) fn check_settings(named: &[TreatmentPlan], path: &Path, file: &File, trusted: bool) -> Result<()> {
    check_deeds(&settings(named).collect::<Vec<_>>(), path, file, trusted)
}

fn settings(named: &[TreatmentPlan]) -> impl Iterator<Item = String> {
    named.iter().filter_map(|treatment| setting(&treatment.kind))
}

fn check_deeds(deeds: &[String], path: &Path, file: &File, trusted: bool) -> Result<()> {
    if trusted || deeds.is_empty() || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Some(problem) = problem(path, file)? else { return Ok(()) };
    let what = format!("{}: {problem}, and whylate would use it as root", path.display());
    if !stdin().is_terminal() {
        bail!("{what}: {}; check these commands and settings, then add `--trust-plan`", deeds.join("; "));
    }
    output::message(&format!("{what}:"));
    deeds.iter().for_each(|deed| output::message(&format!("    {}", deed.escape_debug())));
    output::message("use these commands and settings? [y/N]");
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    if answer.trim().eq_ignore_ascii_case("y") { Ok(()) } else { bail!("nothing was run or changed") }
}

/// The other user who can write the opened file or folder at `path`, or exchange it.
fn problem(path: &Path, file: &File) -> Result<Option<String>> {
    let cannot_read = || format!("cannot read the plan {}", path.display());
    let about = file.metadata().with_context(cannot_read)?;
    let place = fs::canonicalize(path).with_context(cannot_read)?;
    let folders = place.ancestors().skip(1).map(|folder| (folder, fs::metadata(folder)));
    let is_at = fs::metadata(&place).is_ok_and(|it| (it.dev(), it.ino()) == (about.dev(), about.ino()));
    if !is_at {
        bail!("{}: the file was replaced while whylate read it", path.display());
    }
    let mut writers = folders.filter_map(|(folder, about)| {
        let whose = about.map_or(Some("an unknown user".to_owned()), |about| writer(&about, true));
        whose.map(|whose| format!("{whose} can replace files in {}", folder.display()))
    });
    let own = writer(&about, about.is_dir()).map(|whose| format!("{whose} can write this file"));
    Ok(own.or_else(|| writers.next()))
}

/// The other users who can write a file, or exchange the contents of a folder, that root trusts.
fn writer(about: &Metadata, is_folder: bool) -> Option<String> {
    let caller = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    if about.uid() != 0 && Some(about.uid()) != caller {
        return Some(format!("user {}", about.uid()));
    }
    // In a folder like /tmp users can exchange only their own files.
    let is_sticky = is_folder && about.mode() & 0o1000 != 0;
    match about.mode() & 0o022 {
        0 => None,
        _ if is_sticky => None,
        0o020 => Some(format!("group {}", about.gid())),
        _ => Some("every user".to_owned()),
    }
}

/// A setting that the plan names by its file.
fn setting(treatment: &TreatmentKind) -> Option<String> {
    match treatment {
        TreatmentKind::Sysfs(plan) => Some(format!("{} = {}", plan.path, plan.value)),
        TreatmentKind::Sysctl(plan) => Some(format!("{} = {}", plan.key, plan.value)),
        TreatmentKind::ModuleParameter(plan) => {
            Some(format!("{} {} = {}", plan.module, plan.parameter, plan.value))
        }
        _ => None,
    }
}

fn command(load: &LoadKind) -> Option<String> {
    match load {
        LoadKind::Exec(exec) => Some(exec.command.join(" ")),
        _ => None,
    }
}
