//! systemd-boot: an entry file, a copy of the default one with more options, and `bootctl set-oneshot`, which firmware
//! remembers for one boot.

use super::{Asked, ENTRY, Loader, LoaderName, run};
use crate::campaign::CampaignError;
use crate::campaign::state::{remove, write_whole};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use whylate_host::HostRoot;

/// Where the entries may be: the boot partition, or that of the firmware.
const FOLDERS: [&str; 4] =
    ["/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries", "/esp/loader/entries"];
/// What the loader says of itself: it is running where this is.
const INFO: &str = "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
const SELECTED: &str = "/sys/firmware/efi/efivars/LoaderEntrySelected-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";
/// The default, where it is named by `bootctl set-default`.
const DEFAULT: &str = "/sys/firmware/efi/efivars/LoaderEntryDefault-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f";

/// Whether it booted the machine below `root`, and has entries.
pub(super) fn is_there(root: &HostRoot) -> bool {
    root.exists(INFO) && folder(root).is_some()
}

fn folder(root: &HostRoot) -> Option<&'static str> {
    let has_entries =
        |folder: &str| root.list(folder).is_ok_and(|names| names.iter().any(|name| name.ends_with(".conf")));
    FOLDERS.into_iter().find(|folder| has_entries(folder))
}

#[derive(Debug)]
pub(super) struct SystemdBoot {
    root: HostRoot,
    /// What tells the firmware; found in the path where it is not named.
    pub(super) tool: PathBuf,
}

impl SystemdBoot {
    pub(super) fn new(root: HostRoot) -> Self {
        Self { root, tool: PathBuf::from("bootctl") }
    }

    fn cannot(problem: impl Into<String>) -> CampaignError {
        LoaderName::SystemdBoot.cannot(problem)
    }

    fn folder(&self) -> Result<&'static str, CampaignError> {
        folder(&self.root)
            .ok_or_else(|| Self::cannot("no folder has entries of it, such as /boot/loader/entries"))
    }

    fn file(&self) -> Result<PathBuf, CampaignError> {
        Ok(self.root.path(&format!("{}/{ENTRY}.conf", self.folder()?)))
    }

    /// The text of the entry that boots that kernel; of several the one that was booted.
    fn entry(&self, kernel: &str) -> Result<String, CampaignError> {
        let folder = self.folder()?;
        let selected = self.selected();
        let mut names = self.root.list(folder)?;
        names.retain(|name| name.ends_with(".conf") && *name != format!("{ENTRY}.conf"));
        names.sort_by_key(|name| Some(without_tries(name)) != selected.as_deref().map(without_tries));
        for name in names {
            let text = self.root.read(&format!("{folder}/{name}"))?.unwrap_or_default();
            if boots(&text, kernel) {
                return Ok(text);
            }
        }
        Err(Self::cannot(format!(
            "no entry in {folder} boots Linux {kernel} (unified kernel images are not copied); boot with a script instead \
             (--boot-loader PATH)"
        )))
    }

    /// The entry that was booted: UTF-16 behind four bytes of attributes.
    fn selected(&self) -> Option<String> {
        let bytes = std::fs::read(self.root.path(SELECTED)).ok()?;
        let units = bytes.get(4..)?.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        let units: Vec<u16> = units.take_while(|unit| *unit != 0).collect();
        Some(String::from_utf16_lossy(&units))
    }

    /// Refuses a loader whose default is what comes first in its list, or what was booted last: that could be our entry.
    fn check_default(&self) -> Result<(), CampaignError> {
        let folder = self.folder()?;
        let settings = self.root.read(&format!("{}/loader.conf", folder.trim_end_matches("/entries")))?;
        let named = value(settings.as_deref().unwrap_or_default(), "default")
            .is_some_and(|it| !it.starts_with(['*', '@']));
        let mut entries = self.root.list(folder)?;
        entries.retain(|name| name.ends_with(".conf") && *name != format!("{ENTRY}.conf"));
        // An entry without a key is sorted behind all that have one.
        let is_sorted = || {
            entries.iter().all(|name| {
                let text = self.root.read(&format!("{folder}/{name}")).ok().flatten().unwrap_or_default();
                value(&text, "sort-key").is_some()
            })
        };
        let is_saved =
            value(settings.as_deref().unwrap_or_default(), "default").is_some_and(|it| it.starts_with('@'));
        if self.root.exists(DEFAULT) || named || (!is_saved && is_sorted()) {
            return Ok(());
        }
        Err(Self::cannot(format!(
            "{folder} names no default entry, so that another entry could become the default; set it: \
             bootctl set-default ID (bootctl list shows the ids)"
        )))
    }

    fn oneshot(&self, entry: &str) -> Result<(), CampaignError> {
        run(Command::new(&self.tool).args(["set-oneshot", entry])).map(drop)
    }
}

/// A name without the counter of tries that the loader puts into it: `debian+3.conf`.
fn without_tries(name: &str) -> &str {
    let stem = name.strip_suffix(".conf").unwrap_or(name);
    stem.split_once('+').map_or(stem, |(stem, _)| stem)
}

/// The value of a key; its last, as the loader takes it.
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let of = |line: &'t str| line.trim().strip_prefix(key)?.strip_prefix([' ', '\t']);
    text.lines().rev().find_map(of).map(str::trim)
}

fn boots(text: &str, kernel: &str) -> bool {
    let file = value(text, "linux").unwrap_or_default();
    value(text, "version") == Some(kernel)
        || file.split('/').any(|part| part == kernel || part.strip_prefix("vmlinuz-") == Some(kernel))
}

/// The entry with more options, under our own title and without what sorts it before others.
fn changed(text: &str, asked: &Asked) -> String {
    let sorts = ["title", "sort-key", "version", "machine-id", "options"];
    let key = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let kept =
        text.lines().filter(|line| !sorts.contains(&key(line).as_str()) && !line.trim().starts_with('#'));
    let options = text.lines().filter(|line| key(line) == "options");
    let options: Vec<&str> = options.map(|line| line.trim()["options".len()..].trim()).collect();
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    format!(
        "# Made by `whylate fix`\ntitle whylate: campaign, Linux {}\n{kept}options {} {}\n",
        asked.kernel,
        options.join(" "),
        asked.appended()
    )
}

impl Loader for SystemdBoot {
    fn check(&self, kernels: &BTreeSet<String>) -> Result<(), CampaignError> {
        if !self.root.exists(INFO) {
            return Err(Self::cannot(
                "it did not boot this machine (no LoaderInfo in the variables of the firmware)",
            ));
        }
        self.check_default()?;
        kernels.iter().try_for_each(|kernel| self.entry(kernel).map(drop))
    }

    fn once(&self, asked: &Asked) -> Result<(), CampaignError> {
        write_whole(&self.file()?, &changed(&self.entry(&asked.kernel)?, asked))?;
        self.oneshot(&format!("{ENTRY}.conf"))
    }

    fn forget(&self) -> Result<(), CampaignError> {
        // Only where one is asked for: another one may be somebody else's.
        if self.file()?.exists() { self.oneshot("") } else { Ok(()) }
    }

    fn clear(&self) -> Result<(), CampaignError> {
        remove(&self.file()?)
    }
}

#[cfg(test)]
#[path = "systemd_boot_tests.rs"]
mod tests;
