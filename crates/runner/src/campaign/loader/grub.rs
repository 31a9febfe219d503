//! GRUB: an entry in `custom.cfg`, which its configuration reads, that takes its words from the environment block; and
//! `next_entry` there, which GRUB clears before it boots.
//!
//! The entry is a copy of the default one: what finds the disk, the kernel and its first file system stays as it is
//! there.

use super::{Asked, ENTRY, Loader, LoaderName, run};
use crate::campaign::CampaignError;
use crate::campaign::state::{remove, write_whole};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use whylate_host::HostRoot;

const FOLDERS: [&str; 2] = ["/boot/grub", "/boot/grub2"];
const TOOLS: [&str; 2] = ["grub-editenv", "grub2-editenv"];
/// The variable of the environment block.
const VARIABLE: &str = "whylate_cmdline";
const BEGIN: &str = "# begin of a campaign of whylate";
const END: &str = "# end of a campaign of whylate";
/// File systems that GRUB can write to, so that an entry is booted once and not for ever.
const WRITABLE: [&str; 6] = ["ext2", "ext3", "ext4", "xfs", "vfat", "fuseblk"];

pub(super) fn folder(root: &HostRoot) -> Option<&'static str> {
    FOLDERS.into_iter().find(|folder| root.exists(&format!("{folder}/grub.cfg")))
}

#[derive(Debug)]
pub(super) struct Grub {
    root: HostRoot,
    /// What edits the environment block; found in the path where it is not named.
    pub(super) tool: Option<PathBuf>,
}

impl Grub {
    pub(super) fn new(root: HostRoot) -> Self {
        Self { root, tool: None }
    }

    fn cannot(problem: impl Into<String>) -> CampaignError {
        LoaderName::Grub.cannot(problem)
    }

    fn file(&self, name: &str) -> Result<PathBuf, CampaignError> {
        let folder = folder(&self.root).ok_or_else(|| Self::cannot("there is no /boot/grub/grub.cfg"))?;
        Ok(self.root.path(&format!("{folder}/{name}")))
    }

    fn read(&self, name: &str) -> Result<String, CampaignError> {
        let path = self.file(name)?;
        std::fs::read_to_string(&path).map_err(|source| CampaignError::File { what: "read", path, source })
    }

    /// Edits the environment block in one write.
    fn edit(&self, words: &[&str]) -> Result<(), CampaignError> {
        let block = self.file("grubenv")?;
        let edit = |tool: PathBuf| run(Command::new(tool).arg(&block).args(words));
        if let Some(tool) = &self.tool {
            return edit(tool.clone()).map(drop);
        }
        let [first, second] = TOOLS.map(PathBuf::from);
        edit(first).or_else(|error| edit(second).map_err(|_| error)).map(drop)
    }

    /// Refuses a machine whose GRUB cannot clear `next_entry`: it would boot the same arm for ever.
    fn check_writable(&self) -> Result<(), CampaignError> {
        let folder = folder(&self.root).unwrap_or(FOLDERS[0]);
        let mounts = self.root.read("/proc/mounts")?.unwrap_or_default();
        let around =
            |place: &str| folder == place || place == "/" || folder.starts_with(&format!("{place}/"));
        let mount = mounts
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some((words.next()?, words.next()?, words.next()?))
            })
            .filter(|(_, place, _)| around(place))
            .max_by_key(|(_, place, _)| place.len());
        let Some((device, place, kind)) = mount else {
            return Err(Self::cannot(format!("/proc/mounts does not show on which file system {folder} is")));
        };
        let is_mapped = ["/dev/mapper/", "/dev/dm-", "/dev/md"].iter().any(|it| device.starts_with(it));
        if !WRITABLE.contains(&kind) || is_mapped {
            return Err(Self::cannot(format!(
                "{folder} is on {device} ({kind}, at {place}), where GRUB cannot record that an entry was booted once; boot with \
                 a script instead (--boot-loader PATH)"
            )));
        }
        Ok(())
    }

    /// The entries of all kernels. Refuses a GRUB that cannot boot them once.
    fn entries(&self, kernels: &BTreeSet<String>) -> Result<String, CampaignError> {
        let configuration = self.read("grub.cfg")?;
        for (needed, what) in
            [("custom.cfg", "custom.cfg"), ("next_entry", "next_entry, as grub-reboot needs it")]
        {
            if !configuration.contains(needed) {
                return Err(Self::cannot(format!(
                    "its grub.cfg does not read {what}; generate it again (update-grub)"
                )));
            }
        }
        self.check_writable()?;
        kernels.iter().map(|kernel| self.entry(&configuration, kernel)).collect()
    }

    /// The entry of a kernel, from the default one.
    fn entry(&self, configuration: &str, kernel: &str) -> Result<String, CampaignError> {
        let body = entry_of(configuration, kernel).ok_or_else(|| {
            Self::cannot(format!(
                "no menu entry of {} boots Linux {kernel} (entries of blscfg are not read); boot with a script instead \
                 (--boot-loader PATH)",
                folder(&self.root).unwrap_or(FOLDERS[0])
            ))
        })?;
        // What was booted once is not to become the default.
        let lines: Vec<String> = body
            .iter()
            .filter(|line| line.trim() != "savedefault")
            .map(|line| match is_kernel(line) {
                true => format!("{} ${{{VARIABLE}}}", line.trim_end()),
                false => (*line).to_owned(),
            })
            .collect();
        Ok(format!(
            "menuentry 'whylate: campaign, Linux {kernel}' --id '{}' {{\n{}\n}}\n",
            id(kernel),
            lines.join("\n")
        ))
    }
}

/// The id of the entry that boots that kernel.
fn id(kernel: &str) -> String {
    format!("{ENTRY}-{kernel}")
}

/// Whether a line of a configuration loads a kernel.
fn is_kernel(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    ["linux", "linux16", "linuxefi"].contains(&word)
}

/// The lines within the first menu entry that boots that version of the kernel and is none for recovery.
fn entry_of<'c>(configuration: &'c str, kernel: &str) -> Option<Vec<&'c str>> {
    let mut body: Option<Vec<&str>> = None;
    for line in configuration.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("menuentry ") && trimmed.ends_with('{') {
            body = Some(Vec::new());
        } else if trimmed == "}" {
            let found = body.take().filter(|lines| lines.iter().any(|line| boots(line, kernel)));
            if found.is_some() {
                return found;
            }
        } else if let Some(lines) = &mut body {
            lines.push(line);
        }
    }
    None
}

fn boots(line: &str, kernel: &str) -> bool {
    let mut words = line.split_whitespace();
    let file = words.nth(1).unwrap_or_default();
    let is_recovery = words.any(|word| ["single", "recovery", "systemd.unit=rescue.target"].contains(&word));
    is_kernel(line) && file.ends_with(&format!("-{kernel}")) && !is_recovery
}

/// A text without the part between our marks.
fn without_block(text: &str) -> String {
    let (mut kept, mut is_ours) = (String::new(), false);
    for line in text.lines() {
        is_ours |= line == BEGIN;
        if !is_ours {
            kept.push_str(line);
            kept.push('\n');
        }
        is_ours &= line != END;
    }
    kept
}

impl Loader for Grub {
    fn check(&self, kernels: &BTreeSet<String>) -> Result<(), CampaignError> {
        self.entries(kernels).map(drop)
    }

    fn install(&self, kernels: &BTreeSet<String>) -> Result<(), CampaignError> {
        let entries = self.entries(kernels)?;
        let path = self.file("custom.cfg")?;
        let own = std::fs::read_to_string(&path).unwrap_or_default();
        write_whole(&path, &format!("{}{BEGIN}\n{entries}{END}\n", without_block(&own)))
    }

    fn once(&self, asked: &Asked) -> Result<(), CampaignError> {
        let variable = format!("{VARIABLE}={}", asked.appended());
        self.edit(&["set", &variable, &format!("next_entry={}", id(&asked.kernel))])
    }

    fn forget(&self) -> Result<(), CampaignError> {
        let block = self.read("grubenv").unwrap_or_default();
        if block.lines().any(|line| line.starts_with(&format!("next_entry={ENTRY}"))) {
            self.edit(&["unset", "next_entry"])?;
        }
        if block.lines().any(|line| line.starts_with(VARIABLE)) {
            self.edit(&["unset", VARIABLE])?;
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), CampaignError> {
        let path = self.file("custom.cfg")?;
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(()) };
        match without_block(&text) {
            kept if kept == text => Ok(()),
            kept if kept.trim().is_empty() => remove(&path),
            kept => write_whole(&path, &kept),
        }
    }
}

#[cfg(test)]
#[path = "grub_tests.rs"]
mod tests;
