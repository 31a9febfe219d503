//! Merged months whose files are damaged: their runs get files of their own again, made from their archives, and the next merge
//! makes one file of them.
//!
//! The mark of a merge is written first: while the month has its manifest, questions leave the runs' new files out. The
//! manifest is deleted last. The next merge deletes the new files where a repair was cut off before that, and merges them
//! where it was cut off after it.

use super::layout::MergedPart;
use super::merge::{Known, digest_of_runs, doomed_of};
use super::push::result_of;
use super::{ARCHIVE, Lake, LakeRun, MANIFEST, Manifest, Object, archive, sha256};
use crate::error::{At as _, FarmError};
use crate::verify::{Asked, mismatches};
use object_store::PutMode;
use std::io::Seek as _;
use std::path::{Path, PathBuf};
use whylate_store::{LakeWords, Reader, lake_tables};

/// A damaged month, and how many runs have files of their own again; or why it stays as it is.
pub type Repaired = Result<(String, usize), FarmError>;

/// A run with its tables, which are files of this machine.
type WithTables = (LakeRun, Manifest, Vec<(Object, PathBuf)>);

impl Lake {
    /// Gives the runs of damaged months files of their own again, for a merge to come. One that cannot be repaired stops no
    /// other: its [`FarmError::Damaged`] names an archive or a manifest that it needs, and nothing of that month changes.
    ///
    /// # Errors
    /// [`FarmError::Merging`] as for a merge; [`FarmError::Storage`], [`FarmError::Damaged`] where a merge that was cut off cannot
    /// be ended.
    pub fn repair(&self, goes_on: bool) -> Result<Vec<Repaired>, FarmError> {
        self.locked(goes_on, || {
            let parts = self.finish_merges()?;
            let repair = |part: MergedPart| match self.check_part(&part) {
                Ok(_) => None,
                Err(FarmError::Damaged(..)) => Some(self.split(&part).map(|runs| (part.month, runs))),
                Err(error) => Some(Err(error)),
            };
            Ok(parts.into_iter().filter_map(repair).collect())
        })
    }

    /// Gives the runs of a month files of their own, and deletes the month's; how many.
    fn split(&self, part: &MergedPart) -> Result<usize, FarmError> {
        let folder = tempfile::tempdir().at("create a folder for", part.mark())?;
        let mut runs: Vec<WithTables> = Vec::new();
        for (number, (run, mut manifest)) in self.runs_of(part)?.into_iter().enumerate() {
            let tables =
                self.tables_of_archive(part, &run, &manifest, &folder.path().join(number.to_string()))?;
            manifest.merged = None;
            manifest.objects.extend(tables.iter().map(|(object, _)| object.clone()));
            runs.push((run, manifest, tables));
        }
        let doomed: Vec<_> = runs.iter().map(|(run, manifest, _)| doomed_of(run, manifest)).collect();
        let mark = serde_json::to_vec(&doomed).unwrap_or_default();
        self.runtime.block_on(self.put(&part.mark(), mark, PutMode::Overwrite))?;
        for (run, manifest, tables) in &runs {
            for (object, path) in tables {
                let bytes = std::fs::read(path).at("read", path)?;
                self.runtime.block_on(self.put(&object.name, bytes, PutMode::Overwrite))?;
            }
            let text = serde_json::to_vec_pretty(manifest).unwrap_or_default();
            self.runtime.block_on(self.put(&run.object(MANIFEST), text, PutMode::Overwrite))?;
        }
        self.runtime.block_on(self.delete(&part.manifest()))?;
        self.drop_part(part)?;
        Ok(runs.len())
    }

    /// All runs of a merged month, in the order of the merge. The month's own manifest may be damaged: each run's says where it is.
    fn runs_of(&self, part: &MergedPart) -> Result<Vec<Known>, FarmError> {
        let name = part.to_string();
        let (mut runs, mut failed): (Vec<Known>, Option<FarmError>) = (Vec::new(), None);
        for run in self.runs()? {
            match self.manifest(&run) {
                Ok(manifest) if manifest.merged.as_ref() == Some(&name) => runs.push((run, manifest)),
                Ok(_) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        // A merge goes by the names of files: `night-2.parquet` is before `night.parquet`.
        runs.sort_by_key(|(run, _)| format!("{run}.parquet"));
        match digest_of_runs(&runs) == part.digest {
            true => Ok(runs),
            // Without one of them its rows would be lost.
            false => {
                Err(failed.unwrap_or_else(|| self.damaged(&part.manifest(), "not all of its runs are there")))
            }
        }
    }

    /// Makes the tables of a run from its archive.
    fn tables_of_archive(
        &self,
        part: &MergedPart,
        run: &LakeRun,
        manifest: &Manifest,
        to: &Path,
    ) -> Result<Vec<(Object, PathBuf)>, FarmError> {
        let name = run.object(ARCHIVE);
        let archived = manifest.objects.iter().find(|object| object.name == name);
        let archived = archived.ok_or_else(|| self.damaged(&name, "its manifest does not list it"))?;
        let mut file = tempfile::tempfile().at("create a file for", &name)?;
        self.runtime.block_on(self.fetch(archived, &mut file))?;
        file.rewind().at("read", &name)?;
        let unpacked = tempfile::tempdir().at("create a folder for", &name)?;
        archive::unpack(file, unpacked.path())?;
        let reader = Reader::open(unpacked.path())?;
        let result = result_of(&reader)?;
        let differs = manifest.mismatches.clone();
        let differs =
            differs.unwrap_or_else(|| mismatches(reader.info(), result.as_ref(), &Asked::default()));
        std::fs::create_dir(to).at("create", to)?;
        let mut tables = Vec::new();
        let words = LakeWords { mismatches: &differs, labels: &manifest.labels };
        for table in lake_tables(&reader, result.as_ref(), &words)? {
            let name = run.table(table.name, &part.month);
            let path = to.join(table.name);
            let object = Object { name, bytes: table.bytes.len() as u64, sha256: sha256(&table.bytes) };
            std::fs::write(&path, &table.bytes).at("write", &path)?;
            tables.push((object, path));
        }
        Ok(tables)
    }
}
