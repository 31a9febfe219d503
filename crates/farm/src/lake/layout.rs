//! Where the rows of a lake are: in files of single runs, and in files of months that were merged.

use super::{Lake, LakeRun};
use crate::error::FarmError;
use serde::{Deserialize, Serialize};

/// Where months that were merged are.
pub(super) const MERGED: &str = "merged";

/// What a question has to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Whether there are files of single runs.
    pub has_runs: bool,
    pub merged: Vec<MergedPart>,
    /// Runs that are in both: their files were about to be deleted when a merge was cut off.
    pub hidden: Vec<LakeRun>,
}

/// Runs of a month as one file for each table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MergedPart {
    /// `YYYY-MM`.
    pub month: String,
    /// Of the runs in it; names the files.
    pub digest: String,
}

/// The runs of a part whose own files go, or have gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Doomed {
    pub(super) host: String,
    pub(super) run: String,
    pub(super) objects: Vec<String>,
}

impl std::fmt::Display for MergedPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.month, self.digest)
    }
}

impl MergedPart {
    /// One file of it.
    pub(crate) fn table(&self, table: &str) -> String {
        format!("{MERGED}/table={table}/month={}/{}.parquet", self.month, self.digest)
    }

    pub(super) fn manifest(&self) -> String {
        format!("{MERGED}/parts/{}/{}.json", self.month, self.digest)
    }

    /// There from before its first object to after the last deletion.
    pub(super) fn mark(&self) -> String {
        format!("{MERGED}/parts/{}/{}.begun", self.month, self.digest)
    }

    /// The part of a manifest or a mark, by its name, and whether it is a manifest.
    fn of_name(name: &str) -> Option<(Self, bool)> {
        let rest = name.strip_prefix(MERGED)?.strip_prefix("/parts/")?;
        let (month, file) = rest.split_once('/')?;
        let (digest, kind) = file.split_once('.')?;
        let part = Self { month: month.to_owned(), digest: digest.to_owned() };
        matches!(kind, "json" | "begun").then_some((part, kind == "json"))
    }
}

impl Lake {
    /// Where rows are now.
    pub fn layout(&self) -> Result<Layout, FarmError> {
        let (merged, begun) = self.parts()?;
        let mut hidden = Vec::new();
        for part in begun.iter().filter(|part| merged.contains(part)) {
            hidden.extend(self.doomed(part)?.into_iter().map(|it| LakeRun { host: it.host, run: it.run }));
        }
        let has_runs = self.runtime.block_on(self.has_any("table=runs"))?;
        Ok(Layout { has_runs, merged, hidden })
    }

    /// The parts that are whole, and those that a merge works on.
    pub(super) fn parts(&self) -> Result<(Vec<MergedPart>, Vec<MergedPart>), FarmError> {
        let names = self.runtime.block_on(self.names(&format!("{MERGED}/parts")))?;
        let found = names.iter().filter_map(|name| MergedPart::of_name(name));
        let (whole, begun): (Vec<_>, Vec<_>) = found.partition(|(_, is_whole)| *is_whole);
        let part = |(part, _)| part;
        Ok((whole.into_iter().map(part).collect(), begun.into_iter().map(part).collect()))
    }

    /// The runs whose own files go.
    pub(super) fn doomed(&self, part: &MergedPart) -> Result<Vec<Doomed>, FarmError> {
        let name = part.mark();
        let text = self.runtime.block_on(self.read(&name))?.unwrap_or_default();
        serde_json::from_slice(&text).map_err(|error| self.damaged(&name, &error.to_string()))
    }

    async fn has_any(&self, folder: &str) -> Result<bool, FarmError> {
        use futures_util::TryStreamExt as _;
        let first = self.store.list(Some(&self.key(folder))).try_next().await;
        Ok(first.map_err(|error| FarmError::Storage(self.url.clone(), error))?.is_some())
    }
}
