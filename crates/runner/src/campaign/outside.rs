//! What a campaign writes outside of its folder: all of it or nothing, and at the end nothing.

use super::loader::Loader;
use super::state::{Campaign, CampaignError, remove};
use super::unit::Continuation;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_host::HostRoot;

/// What boots the machine, and what continues after the boot.
pub struct Outside<'a> {
    /// The machine, below `/`.
    pub root: &'a HostRoot,
    pub folder: &'a Path,
    pub loader: &'a dyn Loader,
}

impl Outside<'_> {
    fn continuation(&self) -> Continuation<'_> {
        Continuation { root: self.root, folder: self.folder }
    }

    /// Checks whether a campaign can begin with these kernels; writes nothing.
    pub fn check(&self, kernels: &BTreeSet<String>) -> Result<(), CampaignError> {
        self.continuation().check()?;
        self.loader.check(kernels)
    }

    /// Writes the campaign, and what boots the machine and continues after it. If that fails, nothing of it stays.
    pub fn install(
        &self,
        campaign: &Campaign,
        kernels: &BTreeSet<String>,
        program: &Path,
    ) -> Result<(), CampaignError> {
        self.check(kernels)?;
        let missing: Vec<PathBuf> =
            self.folder.ancestors().take_while(|it| !it.exists()).map(Path::to_owned).collect();
        let written = campaign.write(self.folder).and_then(|()| self.continuation().install(program));
        let Err(error) = written else { return Ok(()) };
        match self.withdraw(&missing) {
            Ok(()) => Err(error),
            Err(left) => Err(CampaignError::NotRemoved {
                problems: format!("{left}; the campaign could not begin, because: {error}"),
            }),
        }
    }

    /// Undoes a start that failed. The loader has nothing to forget yet.
    fn withdraw(&self, made: &[PathBuf]) -> Result<(), CampaignError> {
        let steps = [
            self.continuation().remove(),
            remove(&self.continuation().script()),
            Campaign::delete(self.folder),
        ];
        // Folders that are not empty hold files of other programs by now.
        let _ = made.iter().try_for_each(fs::remove_dir);
        steps.into_iter().collect()
    }

    /// Removes everything that the campaign wrote outside of its folder, each file even if another one cannot be
    /// removed, and records that in its file.
    pub fn remove(&self, mut campaign: Campaign) -> Result<(), CampaignError> {
        // On a machine with another campaign, the loader's entry belongs to that one.
        let is_ours = self.continuation().other().is_none();
        let loader = match is_ours && campaign.asked.is_some() {
            true => self.loader.forget(),
            false => Ok(()),
        };
        let steps = [loader, self.continuation().remove()];
        let problems: Vec<String> =
            steps.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
        if !problems.is_empty() {
            return Err(CampaignError::NotRemoved { problems: problems.join("; ") });
        }
        campaign.removed = true;
        campaign.write(self.folder)
    }
}
