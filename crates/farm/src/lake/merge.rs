//! Months that have ended, as one file for each table: an engine that opens a file for each run and table takes minutes for
//! years of runs.
//!
//! A mark is written first, with the runs and the objects that will go; then the merged files, which no question sees yet;
//! then the manifest, with which questions take the merged rows and leave the runs of the mark out; then the runs' own
//! objects are deleted, and the mark at last. Whenever it is cut off, no row is lost or there twice, and the next merge goes
//! on. Archives and manifests of runs stay: `pull` brings back what it brought before.

use super::layout::{Doomed, MERGED, MergedPart};
use super::{FORMAT, Lake, LakeRun, MANIFEST, Manifest, Object, hexadecimal};
use crate::error::{At as _, FarmError};
use object_store::{ObjectStoreExt as _, PutMode};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use whylate_store::merge_tables;

/// Says who merges: two at once would delete what the other one writes.
const LOCK: &str = "merged/lock.json";

/// A merged month with its bytes, or what is wrong with it.
pub type Checked = Result<(String, u64), FarmError>;

/// What a merge did with a month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// `YYYY-MM`.
    pub month: String,
    pub runs: usize,
    /// Files that they had, and those that there are now.
    pub files: (usize, usize),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PartManifest {
    format: String,
    runs: usize,
    pub(super) objects: Vec<Object>,
}

pub(super) type Known = (LakeRun, Manifest);

impl Lake {
    /// Merges the runs of each month before `month` (`YYYY-MM`) that are whole; those that are merged already stay so.
    /// `goes_on`: another merge was cut off, and does not go on itself.
    ///
    /// # Errors
    /// [`FarmError::Merging`] where another merge has begun; [`FarmError::Damaged`] names an object, and nothing of its month
    /// changes; [`FarmError::Storage`], [`FarmError::Run`].
    pub fn merge(&self, month: &str, goes_on: bool) -> Result<Vec<Merged>, FarmError> {
        self.locked(goes_on, || self.merge_locked(month))
    }

    /// Does what one alone may do at a time.
    pub(super) fn locked<T>(
        &self,
        goes_on: bool,
        work: impl FnOnce() -> Result<T, FarmError>,
    ) -> Result<T, FarmError> {
        self.lock(goes_on)?;
        let done = work();
        self.runtime.block_on(self.delete(LOCK))?;
        done
    }

    fn lock(&self, goes_on: bool) -> Result<(), FarmError> {
        let mode = if goes_on { PutMode::Overwrite } else { PutMode::Create };
        match self.runtime.block_on(self.put(LOCK, b"{}".to_vec(), mode)) {
            Err(FarmError::Storage(
                _,
                object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. },
            )) => Err(FarmError::Merging(self.url().to_owned())),
            other => other,
        }
    }

    /// Ends what was cut off; the months that are merged.
    pub(super) fn finish_merges(&self) -> Result<Vec<MergedPart>, FarmError> {
        let (whole, begun) = self.parts()?;
        for part in begun {
            match whole.contains(&part) {
                true => self.clear(&part)?,
                false => self.drop_part(&part)?,
            }
        }
        Ok(whole)
    }

    fn merge_locked(&self, before: &str) -> Result<Vec<Merged>, FarmError> {
        self.finish_merges()?;
        let mut months: BTreeMap<String, Vec<Known>> = BTreeMap::new();
        for (month, run) in self.loose_runs(before)? {
            // One that is still being pushed stays as it is.
            match self.manifest(&run) {
                Ok(manifest) => months.entry(month).or_default().push((run, manifest)),
                Err(FarmError::NotComplete(_) | FarmError::NoSuchRun(_)) => {}
                Err(error) => return Err(error),
            }
        }
        months.into_iter().map(|(month, runs)| self.merge_month(month, &runs)).collect()
    }

    /// The runs that have files of their own, with their months, in order.
    fn loose_runs(&self, before: &str) -> Result<Vec<(String, LakeRun)>, FarmError> {
        let names = self.runtime.block_on(self.names("table=runs"))?;
        let of_name = |name: &String| {
            let mut parts = name.split('/').skip(1);
            let host = parts.next()?.strip_prefix("host=")?;
            let month = parts.next()?.strip_prefix("month=")?;
            let run = parts.next()?.strip_suffix(".parquet")?;
            (month < before)
                .then(|| (month.to_owned(), LakeRun { host: host.to_owned(), run: run.to_owned() }))
        };
        Ok(names.iter().filter_map(of_name).collect())
    }

    fn merge_month(&self, month: String, runs: &[Known]) -> Result<Merged, FarmError> {
        let part = MergedPart { month, digest: digest_of_runs(runs) };
        let doomed: Vec<Doomed> = runs.iter().map(|(run, manifest)| doomed_of(run, manifest)).collect();
        let mark = serde_json::to_vec(&doomed).unwrap_or_default();
        self.runtime.block_on(self.put(&part.mark(), mark, PutMode::Overwrite))?;
        let mut manifest = PartManifest { format: FORMAT.to_owned(), runs: runs.len(), objects: Vec::new() };
        for (table, objects) in tables_of(runs) {
            manifest.objects.push(self.merge_table(&part, &table, &objects)?);
        }
        let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
        self.runtime.block_on(self.put(&part.manifest(), text, PutMode::Overwrite))?;
        self.clear(&part)?;
        let files = (doomed.iter().map(|it| it.objects.len()).sum(), manifest.objects.len());
        Ok(Merged { month: part.month, runs: runs.len(), files })
    }

    /// Writes the merged file of a table, from objects that are what their manifests say.
    fn merge_table(
        &self,
        part: &MergedPart,
        table: &str,
        objects: &[(&LakeRun, &Object)],
    ) -> Result<Object, FarmError> {
        let folder = tempfile::tempdir().at("create a folder for", part.mark())?;
        let mut files: Vec<(String, PathBuf)> = Vec::new();
        for (number, (run, object)) in objects.iter().enumerate() {
            let path = folder.path().join(number.to_string());
            let mut file = File::create(&path).at("create", &path)?;
            self.runtime.block_on(self.fetch(object, &mut file))?;
            files.push((run.host.clone(), path));
        }
        let path = folder.path().join("merged");
        let mut file =
            File::options().read(true).write(true).create_new(true).open(&path).at("create", &path)?;
        merge_tables(&files, &mut file)?;
        let (bytes, sha256) = digest_of(&mut file).at("read", &path)?;
        let name = part.table(table);
        self.runtime.block_on(self.send_file(&name, file))?;
        Ok(Object { name, bytes, sha256 })
    }

    /// Deletes the own files of the runs that a part has, and says in their manifests where their rows are.
    fn clear(&self, part: &MergedPart) -> Result<(), FarmError> {
        for doomed in self.doomed(part)? {
            let run = LakeRun { host: doomed.host, run: doomed.run };
            let mut manifest = self.manifest(&run)?;
            if manifest.merged.is_none() {
                manifest.merged = Some(part.to_string());
                manifest.objects.retain(|object| !doomed.objects.contains(&object.name));
                let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
                self.runtime.block_on(self.put(&run.object(MANIFEST), text, PutMode::Overwrite))?;
            }
            for object in &doomed.objects {
                self.runtime.block_on(self.delete(object))?;
            }
        }
        self.runtime.block_on(self.delete(&part.mark()))
    }

    /// Deletes what a merge has left that was cut off before its manifest.
    pub(super) fn drop_part(&self, part: &MergedPart) -> Result<(), FarmError> {
        let names = self.runtime.block_on(self.names(MERGED))?;
        let file = format!("/month={}/{}.parquet", part.month, part.digest);
        for name in names.iter().filter(|name| name.ends_with(&file)) {
            self.runtime.block_on(self.delete(name))?;
        }
        self.runtime.block_on(self.delete(&part.mark()))
    }

    pub(super) async fn delete(&self, name: &str) -> Result<(), FarmError> {
        match self.store.delete(&self.key(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.storage(name, error)),
        }
    }

    /// Reads every merged file, and compares it with its manifest; the months with their bytes, or what is wrong.
    pub fn check_merged(&self) -> Result<Vec<Checked>, FarmError> {
        let (parts, _) = self.parts()?;
        Ok(parts.iter().map(|part| Ok((part.month.clone(), self.check_part(part)?))).collect())
    }

    pub(super) fn check_part(&self, part: &MergedPart) -> Result<u64, FarmError> {
        let name = part.manifest();
        let text = self.runtime.block_on(self.read(&name))?.unwrap_or_default();
        let manifest: PartManifest =
            serde_json::from_slice(&text).map_err(|error| self.damaged(&name, &error.to_string()))?;
        self.check_objects(&manifest.objects)
    }
}

fn is_table(object: &&Object) -> bool {
    object.name.starts_with("table=")
}

/// Names a merge of these runs, in that order.
pub(super) fn digest_of_runs(runs: &[Known]) -> String {
    let mut hash = Sha256::new();
    runs.iter().for_each(|(run, manifest)| hash.update(format!("{run}\0{}\n", manifest.content)));
    hexadecimal(&hash.finalize()).chars().take(16).collect()
}

pub(super) fn doomed_of(run: &LakeRun, manifest: &Manifest) -> Doomed {
    let objects = manifest.objects.iter().filter(is_table).map(|object| object.name.clone()).collect();
    Doomed { host: run.host.clone(), run: run.run.clone(), objects }
}

/// The objects of each table, in the order of the runs.
fn tables_of(runs: &[Known]) -> BTreeMap<String, Vec<(&LakeRun, &Object)>> {
    let mut tables: BTreeMap<String, Vec<(&LakeRun, &Object)>> = BTreeMap::new();
    for (run, manifest) in runs {
        for object in manifest.objects.iter().filter(is_table) {
            let name = object.name.split('/').next().unwrap_or_default().trim_start_matches("table=");
            tables.entry(name.to_owned()).or_default().push((run, object));
        }
    }
    tables
}

/// Size and SHA-256 of a file, which is at its beginning afterwards.
pub(super) fn digest_of(file: &mut File) -> io::Result<(u64, String)> {
    file.rewind()?;
    let (mut hash, mut bytes, mut part) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        match file.read(&mut part)? {
            0 => break,
            read => {
                hash.update(&part[..read]);
                bytes += read as u64;
            }
        }
    }
    file.rewind()?;
    Ok((bytes, hexadecimal(&hash.finalize())))
}
