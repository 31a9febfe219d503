//! Copies a bucket's tables to a folder of this machine, where every engine can read them: with the credentials of
//! `push`, and without extensions of engines. Only new objects are fetched.

use super::{Lake, MERGED};
use crate::error::{At as _, FarmError};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::ObjectMeta;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The number of objects that are fetched at once: each waits for the network.
const AT_ONCE: usize = 8;

impl Lake {
    /// Makes the files of `tables` below `to` equal to the objects of the lake.
    pub(crate) fn mirror(&self, to: &Path, tables: &[&str]) -> Result<(), FarmError> {
        for table in tables {
            for folder in [format!("table={table}"), format!("{MERGED}/table={table}")] {
                self.mirror_folder(to, &folder)?;
            }
        }
        Ok(())
    }

    fn mirror_folder(&self, to: &Path, folder: &str) -> Result<(), FarmError> {
        let there: BTreeMap<PathBuf, (String, ObjectMeta)> = self
            .runtime
            .block_on(self.objects(folder))?
            .into_iter()
            .map(|(name, object)| (to.join(&name), (name, object)))
            .collect();
        for file in files_below(&to.join(folder)) {
            if !there.contains_key(&file) {
                std::fs::remove_file(&file).at("delete", &file)?;
            }
        }
        let missing = there.iter().filter(|(file, (_, object))| !is_same(file, object));
        let fetches = missing.map(|(file, (name, object))| self.fetch_into(file, name, object));
        let fetches = futures_util::stream::iter(fetches).buffer_unordered(AT_ONCE);
        self.runtime.block_on(fetches.try_collect::<Vec<()>>()).map(drop)
    }

    async fn fetch_into(&self, file: &Path, name: &str, object: &ObjectMeta) -> Result<(), FarmError> {
        let parent = file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent).at("create", parent)?;
        // Whole or not at all: another query may read at the same time.
        let mut scratch = tempfile::NamedTempFile::new_in(parent).at("create", file)?;
        self.copy(name, object.size, scratch.as_file_mut(), |_| {}).await?;
        scratch.as_file().set_modified(moment(object)).at("write", file)?;
        scratch.persist(file).map_err(|error| error.error).at("create", file).map(|_: File| ())
    }
}

/// When an object was written, by the storage's clock.
fn moment(object: &ObjectMeta) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(object.last_modified.timestamp()).unwrap_or(0))
}

/// Whether a file is a copy of that object.
fn is_same(file: &Path, object: &ObjectMeta) -> bool {
    let is_so = |data: std::fs::Metadata| {
        data.len() == object.size && data.modified().is_ok_and(|at| at == moment(object))
    };
    file.symlink_metadata().is_ok_and(is_so)
}

/// The Parquet files below a folder, which may not exist.
pub(super) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            // Engines follow links too.
            match std::fs::metadata(entry.path()) {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(_) if entry.path().extension().is_some_and(|it| it == "parquet") => {
                    found.push(entry.path());
                }
                _ => {}
            }
        }
    }
    found
}
