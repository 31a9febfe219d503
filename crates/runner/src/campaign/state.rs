//! `campaign.json`: what was registered, which boot was asked for, and what was written outside of the campaign's folder.

use super::loader::{AskedBoot, LoaderName};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use whylate_core::Plan;
use whylate_core::result::FixRegistration;
use whylate_host::HostError;
use whylate_treat::whole_file;

pub const CAMPAIGN_FILE: &str = "campaign.json";
const FORMAT: &str = "whylate.campaign/1";
/// The run directory of its search.
const SEARCH: &str = "search";

/// What can go wrong with a campaign.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// A file cannot be read, written or removed.
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// `campaign.json` has another format.
    #[error("{}: {problem}", path.display())]
    Malformed { path: PathBuf, problem: String },
    /// The machine cannot be booted in that way, or its loader has failed.
    #[error("{loader}: {problem}")]
    Loader { loader: LoaderName, problem: String },
    /// Something of the campaign stays outside of its folder.
    #[error("the campaign could not be removed completely: {problems}")]
    NotRemoved {
        /// The reason for each thing that stays.
        problems: String,
    },
    /// The machine does not report how it was booted.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// A campaign, as it is on the disk.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    format: String,
    /// What is measured in each boot.
    pub plan: Plan,
    /// Goal, arms, margin, seed (all orders and coins come from it), budget, alpha.
    pub registration: FixRegistration,
    pub loader: LoaderName,
    pub kernel: String,
    pub command_line: String,
    /// The boot that was asked for last.
    pub asked: Option<AskedBoot>,
    /// Whether everything that was written outside of the folder is removed.
    #[serde(default)]
    pub removed: bool,
}

impl Campaign {
    /// A campaign that has not begun, on a machine with that kernel and command line.
    pub fn new(
        plan: Plan,
        registration: FixRegistration,
        loader: LoaderName,
        (kernel, command_line): (String, String),
    ) -> Self {
        let (asked, removed) = (None, false);
        Self { format: FORMAT.to_owned(), plan, registration, loader, kernel, command_line, asked, removed }
    }

    /// The campaign in `folder`.
    ///
    /// # Errors
    /// There is no campaign, or its file cannot be understood.
    pub fn read(folder: &Path) -> Result<Self, CampaignError> {
        let path = folder.join(CAMPAIGN_FILE);
        let text = fs::read_to_string(&path).map_err(|source| CampaignError::File {
            what: "read",
            path: path.clone(),
            source,
        })?;
        let campaign: Self = serde_json::from_str(&text)
            .map_err(|error| CampaignError::Malformed { path: path.clone(), problem: error.to_string() })?;
        if campaign.format != FORMAT {
            let problem = format!(
                "the campaign has the format `{}`, and this version of whylate reads only `{FORMAT}`",
                campaign.format
            );
            return Err(CampaignError::Malformed { path, problem });
        }
        Ok(campaign)
    }

    /// Whether there is a campaign in `folder`.
    pub fn exists(folder: &Path) -> bool {
        folder.join(CAMPAIGN_FILE).exists()
    }

    /// Writes it to the disk, whole.
    pub fn write(&self, folder: &Path) -> Result<(), CampaignError> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        write_whole(&folder.join(CAMPAIGN_FILE), &(text + "\n"))
    }

    pub fn search(folder: &Path) -> PathBuf {
        folder.join(SEARCH)
    }

    /// The folder of the campaign whose search is in the directory `search`, if it belongs to one.
    pub fn of_search(search: &Path) -> Option<PathBuf> {
        let search = fs::canonicalize(search).ok()?;
        let folder = search.parent()?;
        (search.file_name()? == SEARCH && Self::exists(folder)).then(|| folder.to_owned())
    }

    pub(super) fn delete(folder: &Path) -> Result<(), CampaignError> {
        remove(&folder.join(CAMPAIGN_FILE))
    }
}

/// Writes a file so that a power cut leaves the old one or the whole new one. A missing folder is made.
pub(super) fn write_whole(path: &Path, text: &str) -> Result<(), CampaignError> {
    let failed = |source| CampaignError::File { what: "write", path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(failed)?;
    whole_file::write(path, text).map_err(|source| {
        let _ = fs::remove_file(whole_file::temporary(path));
        failed(source)
    })
}

/// Whether something exists there, or that is not known.
fn is_there(path: &Path) -> bool {
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    fs::symlink_metadata(path).map_or_else(|error| !gone.contains(&error.kind()), |_| true)
}

/// Removes a file; a missing file counts as removed.
pub(super) fn remove(path: &Path) -> Result<(), CampaignError> {
    match fs::remove_file(path) {
        Err(source) if is_there(path) => {
            Err(CampaignError::File { what: "remove", path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}
