//! Damaged objects of tables. An engine refuses a whole question if it cannot read one object, and may read wrong
//! figures from one with a changed bit (DuckDB compares no checksums). The objects that a question needs are
//! therefore compared with their own checksums before an engine is asked.

use super::mirror::files_below;
use super::{Lake, LakeRun, MANIFEST};
use crate::error::FarmError;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use whylate_core::order::InOrder;
use whylate_store::check_lake_table;

/// At most this number of damaged objects is named one by one.
const NAMED_MAX: usize = 20;

/// What is wrong with an object that a manifest lists and the lake lacks.
pub(super) const MISSING: &str = "it is missing";

/// An object of a lake that an answer lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Damaged {
    pub object: String,
    pub what: String,
}

impl Damaged {
    /// Whether no reader meets it.
    pub(crate) fn is_missing(&self) -> bool {
        self.what == MISSING
    }

    /// Lines for the reader of an answer: the objects that it lacks, and what to do about them; empty if there are
    /// none.
    pub fn said(all: &[Self], lake: &str) -> Vec<String> {
        let line =
            |it: &Self| format!("{lake}/{} is damaged and left out of the answer: {}", it.object, it.what);
        let mut lines: Vec<String> = all.iter().take(NAMED_MAX).map(line).collect();
        let more = all.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            lines.push(format!("{more} more objects are damaged and left out of the answer"));
        }
        if !lines.is_empty() {
            lines.push(format!(
                "`whylate pull {lake} --check` lists everything that is damaged in the lake; `whylate push RUN {lake} \
                 --replace` sends a run again"
            ));
        }
        lines
    }
}

impl Lake {
    /// The damaged and the missing objects of `tables`, by name. New objects of a bucket are fetched into `cache` first.
    pub(crate) fn find_damaged(
        &self,
        cache: Option<&Path>,
        tables: &[&str],
    ) -> Result<Vec<Damaged>, FarmError> {
        // A push writes the manifest last: the objects of these runs are all there, and are listed afterwards.
        let runs = self.runs()?;
        let mut found = self.find_broken(cache, tables)?;
        found.extend(self.find_missing(&runs, self.place(cache), tables)?);
        found.order();
        Ok(found)
    }

    /// The objects that manifests list and the lake lacks.
    fn find_missing(
        &self,
        runs: &[LakeRun],
        place: &Path,
        tables: &[&str],
    ) -> Result<Vec<Damaged>, FarmError> {
        let own = |name: &str| -> Option<LakeRun> {
            let (folders, file) = name.rsplit_once('/')?;
            let host = folders.split('/').find_map(|folder| folder.strip_prefix("host="))?;
            Some(LakeRun { host: host.to_owned(), run: file.strip_suffix(".parquet")?.to_owned() })
        };
        let mut suspects: BTreeMap<&LakeRun, Vec<String>> = BTreeMap::new();
        for folder in tables.iter().map(|table| format!("table={table}/")) {
            let there: BTreeSet<LakeRun> =
                names_below(place, &folder).filter_map(|name| own(&name)).collect();
            for run in runs.iter().filter(|run| !there.contains(run)) {
                suspects.entry(run).or_default().push(folder.clone());
            }
        }
        let mut found = Vec::new();
        for (run, folders) in suspects {
            match self.manifest(run) {
                Ok(manifest) => {
                    let names = manifest.objects.into_iter().map(|object| object.name);
                    let missing = names.filter(|name| folders.iter().any(|folder| name.starts_with(folder)));
                    found.extend(missing.map(|object| Damaged { object, what: MISSING.to_owned() }));
                }
                Err(FarmError::Damaged(_, what)) => {
                    found.push(Damaged { object: run.object(MANIFEST), what });
                }
                // A push is replacing it.
                Err(FarmError::Refused(..)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    fn find_broken(&self, cache: Option<&Path>, tables: &[&str]) -> Result<Vec<Damaged>, FarmError> {
        let Some(cache) = cache else { return Ok(damaged(self.folder(), tables)) };
        self.mirror(cache, tables)?;
        let found = damaged(cache, tables);
        if found.is_empty() {
            return Ok(found);
        }
        // Only the copy may be damaged: it is fetched again, in one step, since other questions may read it.
        for it in &found {
            // One that cannot be changed is found damaged again.
            let copy = File::options().write(true).open(cache.join(&it.object));
            _ = copy.and_then(|copy| copy.set_modified(std::time::UNIX_EPOCH));
        }
        self.mirror(cache, tables)?;
        Ok(damaged(cache, tables))
    }

    /// Where the engine finds the objects: in `cache`, or in the lake itself.
    pub(crate) fn place<'a>(&'a self, cache: Option<&'a Path>) -> &'a Path {
        cache.unwrap_or_else(|| self.folder())
    }
}

/// The damaged objects of `tables` in a folder with objects of the lake, by name: only objects of single runs, which
/// have a checksum.
fn damaged(place: &Path, tables: &[&str]) -> Vec<Damaged> {
    let names = tables.iter().flat_map(|table| names_below(place, &format!("table={table}")));
    let look = |name: String| check(&place.join(&name)).err().map(|what| Damaged { object: name, what });
    let mut found: Vec<Damaged> = names.filter_map(look).collect();
    found.order();
    found
}

/// Compares a file with the checksum in it.
fn check(file: &Path) -> Result<(), String> {
    match fs::read(file) {
        Ok(bytes) => check_lake_table(bytes),
        // A push has removed it since it was listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("it cannot be read: {error}")),
    }
}

/// The names of the Parquet files below a folder of `place`.
pub(crate) fn names_below<'p>(place: &'p Path, folder: &str) -> impl Iterator<Item = String> + use<'p> {
    let name = move |file: PathBuf| Some(file.strip_prefix(place).ok()?.to_string_lossy().into_owned());
    files_below(&place.join(folder)).into_iter().filter_map(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_damaged_objects_are_named_and_all_are_counted() {
        let all: Vec<Damaged> = (0..25)
            .map(|number| Damaged { object: format!("o-{number}"), what: "it is missing".to_owned() })
            .collect();
        let said = Damaged::said(&all, "/lake");
        assert_eq!(said.len(), NAMED_MAX + 2);
        assert!(said[0].starts_with("/lake/o-0") && said[NAMED_MAX].starts_with("5 "), "{said:?}");
        assert!(Damaged::said(&[], "/lake").is_empty());
    }
}
