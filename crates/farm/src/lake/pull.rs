//! Fetches runs from the lake.

use super::damage::MISSING;
use super::{
    ARCHIVE, Lake, LakeObject, LakeRun, MANIFEST, MERGED, Manifest, MonthManifest, archive, hexadecimal,
};
use crate::error::{At as _, FarmError};
use object_store::ObjectStoreExt as _;
use sha2::{Digest as _, Sha256};
use std::io::{self, Seek as _, Write};
use std::path::Path;
use whylate_store::Folder;

const NO_SUCH_RUN: &str = "no such run in the lake; `whylate pull URL` lists the lake's runs";
/// Size of one request.
const PART_BYTES: u64 = 8 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    pub run: LakeRun,
    /// Bytes read.
    pub bytes: u64,
}

/// A month with its bytes, or its error.
pub(super) type CheckedMonth = Result<(String, u64), FarmError>;

impl Lake {
    /// The run that a name means: `HOST/RUN`, or `RUN` if only one host has it.
    pub fn find(&self, name: &str) -> Result<LakeRun, FarmError> {
        if let Some((host, run)) = name.split_once('/') {
            return Ok(LakeRun { host: host.to_owned(), run: run.to_owned() });
        }
        let mut found: Vec<LakeRun> = self.runs()?.into_iter().filter(|it| it.run == name).collect();
        match (found.pop(), found.is_empty()) {
            (Some(run), true) => Ok(run),
            (None, _) => Err(FarmError::refused(format!("{}/{name}", self.url()), NO_SUCH_RUN)),
            (Some(last), false) => {
                found.push(last);
                let names: Vec<String> = found.iter().map(ToString::to_string).collect();
                let why = format!("several hosts have a run with this name; choose: {}", names.join(", "));
                Err(FarmError::refused(name, why))
            }
        }
    }

    /// Restores a run unchanged into a directory that does not exist: whole or not at all.
    pub fn pull(&self, run: &LakeRun, to: &Path) -> Result<Pulled, FarmError> {
        let (above, own_name) = Folder::above(to)?;
        if above.find(&own_name).is_some() {
            return Err(FarmError::refused(to.display(), "exists; give another directory"));
        }
        let manifest = self.manifest(run)?;
        let name = run.object(ARCHIVE);
        let archived = manifest.objects.iter().find(|object| object.name == name);
        let archived = archived.ok_or_else(|| self.damaged(&name, "its manifest does not list it"))?;
        let mut file = tempfile::tempfile().at("create a file for", to)?;
        self.runtime.block_on(self.fetch(archived, &mut file))?;
        file.rewind().at("read", to)?;
        above.make_whole(&own_name, |scratch| archive::unpack(file, scratch))?;
        Ok(Pulled { run: run.clone(), bytes: archived.bytes })
    }

    /// Reads every object of a run and compares it with the manifest; returns the bytes read.
    ///
    /// # Errors
    /// One for each damaged object.
    pub fn check(&self, run: &LakeRun) -> Result<u64, Vec<FarmError>> {
        let manifest = self.manifest(run).map_err(|error| vec![error])?;
        let checked = manifest.objects.iter().map(|object| self.check_objects(std::slice::from_ref(object)));
        let (read, damaged): (Vec<_>, Vec<_>) = checked.partition(Result::is_ok);
        match damaged.is_empty() {
            true => Ok(read.into_iter().flatten().sum()),
            false => Err(damaged.into_iter().filter_map(Result::err).collect()),
        }
    }

    /// Reads every object of the months that an earlier version merged, and compares it with the month's manifest.
    /// Returns each month with its bytes or its error. Months that a `COPY` made have no manifest.
    pub fn check_months(&self) -> Result<Vec<CheckedMonth>, FarmError> {
        let names = self.runtime.block_on(self.names(&format!("{MERGED}/parts")))?;
        let check = |name: &String| {
            let text = self.runtime.block_on(self.read(name))?.unwrap_or_default();
            let manifest: MonthManifest =
                serde_json::from_slice(&text).map_err(|error| self.damaged(name, &error.to_string()))?;
            let month = name.split('/').nth(2).unwrap_or_default().to_owned();
            Ok((month, self.check_objects(&manifest.objects)?))
        };
        Ok(names.iter().filter(|name| name.ends_with(".json")).map(check).collect())
    }

    /// Reads objects and compares each with its checksum; returns their bytes.
    fn check_objects(&self, objects: &[LakeObject]) -> Result<u64, FarmError> {
        for object in objects {
            let mut nowhere = io::sink();
            self.runtime.block_on(self.fetch(object, &mut nowhere))?;
        }
        Ok(objects.iter().map(|object| object.bytes).sum())
    }

    pub(super) fn manifest(&self, run: &LakeRun) -> Result<Manifest, FarmError> {
        let name = run.object(MANIFEST);
        let text = self.runtime.block_on(self.read(&name))?;
        let Some(text) = text else {
            let claimed = self.runtime.block_on(self.read(&run.object(super::CLAIM)))?.is_some();
            let of = format!("{}/{run}", self.url());
            let unfinished = "the push of this run did not finish; push the run again";
            return Err(FarmError::refused(of, if claimed { unfinished } else { NO_SUCH_RUN }));
        };
        serde_json::from_slice(&text).map_err(|error| self.damaged(&name, &error.to_string()))
    }

    pub(super) fn damaged(&self, name: &str, what: &str) -> FarmError {
        FarmError::Damaged(format!("{}/{name}", self.url()), what.to_owned())
    }

    /// Checks that an object exists with its size.
    pub(super) async fn expect(&self, object: &LakeObject) -> Result<(), FarmError> {
        match self.store.head(&self.key(&object.name)).await {
            Ok(found) if found.size == object.bytes => Ok(()),
            Ok(found) => {
                let what = format!("it has {} bytes, not {}", found.size, object.bytes);
                Err(self.damaged(&object.name, &what))
            }
            Err(object_store::Error::NotFound { .. }) => Err(self.damaged(&object.name, MISSING)),
            Err(error) => Err(self.storage(&object.name, error)),
        }
    }

    /// Reads an object piece by piece.
    async fn fetch(&self, object: &LakeObject, to: &mut impl Write) -> Result<(), FarmError> {
        self.expect(object).await?;
        let mut hash = Sha256::new();
        self.copy(&object.name, object.bytes, to, |piece| hash.update(piece)).await?;
        match hexadecimal(&hash.finalize()) == object.sha256 {
            true => Ok(()),
            false => Err(self.damaged(&object.name, "its checksum is wrong")),
        }
    }

    /// Copies an object of `bytes` bytes piece by piece.
    pub(super) async fn copy(
        &self,
        name: &str,
        bytes: u64,
        to: &mut impl Write,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), FarmError> {
        let mut at = 0;
        while at < bytes {
            let end = (at + PART_BYTES).min(bytes);
            let piece = self.store.get_range(&self.key(name), at..end).await;
            let piece = piece.map_err(|error| self.storage(name, error))?;
            each(&piece);
            to.write_all(&piece).at("write", name)?;
            at = end;
        }
        Ok(())
    }
}
