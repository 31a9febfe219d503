//! What continues after each boot: a script in the campaign's folder, and the systemd unit that runs it.

use super::state::{CampaignError, remove, write_whole};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use whylate_host::HostRoot;

const UNIT: &str = "/etc/systemd/system/whylate-campaign.service";
const WANTED: &str = "/etc/systemd/system/multi-user.target.wants/whylate-campaign.service";
const SCRIPT: &str = "continue.sh";
/// The start of the line of the unit that names the script.
const START: &str = "ExecStart=/bin/sh \"";

/// The script and the unit of a campaign.
#[derive(Debug)]
pub struct Continuation<'a> {
    /// The folder below which the unit is written.
    pub root: &'a HostRoot,
    pub folder: &'a Path,
}

impl Continuation<'_> {
    /// Refuses a machine whose unit is that of another campaign; names it.
    pub fn check(&self) -> Result<(), CampaignError> {
        let Some(other) = self.other() else { return Ok(()) };
        let problem = match folder_of(&other) {
            Some(folder) => format!(
                "the campaign in {folder} continues after the next boot; to end that campaign: whylate fix --campaign {folder} \
                 --remove"
            ),
            None => "this unit exists already, but names no campaign folder".to_owned(),
        };
        Err(CampaignError::Malformed { path: self.root.path(UNIT), problem })
    }

    /// The text of the unit, if it does not belong to this campaign.
    pub(super) fn other(&self) -> Option<String> {
        let known = std::fs::read_to_string(self.root.path(UNIT)).unwrap_or_default();
        (!known.is_empty() && !known.contains(&self.line())).then_some(known)
    }

    /// Writes both. A unit of another campaign is refused.
    pub fn install(&self, program: &Path) -> Result<(), CampaignError> {
        self.check()?;
        let folder = self.folder.display();
        let unit = self.root.path(UNIT);
        let script = format!(
            "#!/bin/sh\n# Continues the campaign after a boot; made by `whylate fix`.\n\
             # Waits until all services have started, because their start would disturb the measurement.\n\
             if command -v systemctl >/dev/null; then systemctl is-system-running --wait >/dev/null 2>&1; fi\n\
             exec {} fix --campaign {} --continue\n",
            quoted(program),
            quoted(self.folder)
        );
        write_whole(&self.folder.join(SCRIPT), &script)?;
        let text = format!(
            "# Made by `whylate fix`; removed by `whylate fix --campaign {folder} --remove`.\n[Unit]\n\
             Description=whylate: continues a campaign of boots\nConditionPathExists={folder}/campaign.json\n\n\
             [Service]\nType=exec\n{}\nTimeoutStopSec=60\n\n[Install]\nWantedBy=multi-user.target\n",
            self.line()
        );
        write_whole(&unit, &text)?;
        let link = self.root.path(WANTED);
        remove(&link)?;
        let failed = |source| CampaignError::File { what: "write", path: link.clone(), source };
        std::fs::create_dir_all(link.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        symlink("../whylate-campaign.service", &link).map_err(failed)
    }

    /// Removes the unit, if it is that of this campaign. The script stays with the folder.
    pub fn remove(&self) -> Result<(), CampaignError> {
        let unit = self.root.path(UNIT);
        if std::fs::read_to_string(&unit).is_ok_and(|text| text.contains(&self.line())) {
            remove(&self.root.path(WANTED))?;
            remove(&unit)?;
        }
        Ok(())
    }

    pub fn script(&self) -> PathBuf {
        self.folder.join(SCRIPT)
    }

    fn line(&self) -> String {
        format!("{START}{}\"", self.script().display())
    }
}

/// The folder of the campaign that a unit continues.
fn folder_of(unit: &str) -> Option<&str> {
    let script = unit.lines().find_map(|line| line.strip_prefix(START)?.strip_suffix('"'))?;
    script.strip_suffix(SCRIPT)?.strip_suffix('/')
}

/// A path as a word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
