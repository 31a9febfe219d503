//! Runs into the lake.

use super::{
    ARCHIVE, CLAIM, Claim, FORMAT, Lake, LakeRun, MANIFEST, Manifest, Object, archive, is_plain, sha256,
};
use crate::error::{At as _, FarmError};
use crate::verify::{Asked, mismatches};
use object_store::buffered::BufWriter;
use object_store::{ObjectStoreExt as _, PutMode, PutOptions};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use whylate_store::{LakeTable, Reader, StoreError, assemble, lake_tables};

/// Larger objects are sent in parts of this size.
const PART_BYTES: usize = 8 << 20;

/// What a push did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The run in the lake.
    pub run: LakeRun,
    /// Objects that were sent; 0 where the run was there already.
    pub objects: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// What the plan asks for and the run has not.
    pub mismatches: Vec<String>,
}

impl Lake {
    /// Brings a run into the lake. A push that was cut off goes on where it stopped; a run that is there already stays as
    /// it is. `replace`: one of the same name with another content makes room.
    ///
    /// # Errors
    /// [`FarmError::InProgress`], [`FarmError::BadName`], [`FarmError::OtherContent`]; [`FarmError::Run`] where the run cannot
    /// be read; [`FarmError::Storage`].
    pub fn push(&self, path: &Path, replace: bool) -> Result<Pushed, FarmError> {
        let reader = Reader::open(path)?;
        if reader.is_in_progress() {
            return Err(FarmError::InProgress(path.to_owned()));
        }
        let result = match assemble(&reader) {
            Ok(result) => Some(result),
            Err(StoreError::NoSamples(_) | StoreError::NothingLeft(..)) => None,
            Err(error) => return Err(error.into()),
        };
        let differs = mismatches(reader.info(), result.as_ref(), &Asked::default());
        let tables = lake_tables(&reader, result.as_ref(), &differs)?;
        let info = reader.info();
        let host = if info.facts.host.is_empty() { "unknown" } else { &info.facts.host };
        let run = LakeRun { host: host.to_owned(), run: info.run.clone() };
        for name in [&run.host, &run.run] {
            if !is_plain(name) {
                return Err(FarmError::BadName(name.clone()));
            }
        }
        let month: String = info.started_at.chars().take(7).collect();
        let packed = archive::pack(path)?;
        let pushed = self.runtime.block_on(self.bring(&run, &month, tables, packed, replace));
        let (objects, bytes) = pushed?;
        Ok(Pushed { run, objects, bytes, mismatches: differs })
    }

    async fn bring(
        &self,
        run: &LakeRun,
        month: &str,
        tables: Vec<LakeTable>,
        packed: archive::Packed,
        replace: bool,
    ) -> Result<(usize, u64), FarmError> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let claim = Claim { content: packed.content.clone(), whylate_version: version.clone() };
        if replace {
            self.withdraw(run, month).await?;
        }
        let is_same_version = self.claim(run, &claim).await?;
        if self.read(&run.object(MANIFEST)).await?.is_some() {
            return Ok((0, 0));
        }
        let mut manifest = Manifest {
            format: FORMAT.to_owned(),
            run: run.run.clone(),
            host: run.host.clone(),
            content: packed.content.clone(),
            whylate_version: version,
            objects: Vec::new(),
        };
        let mut sent = (0, 0);
        let archived =
            Object { name: run.object(ARCHIVE), bytes: packed.bytes, sha256: packed.sha256.clone() };
        if !is_same_version || !self.has(&archived).await? {
            self.send_file(&archived.name, packed.file).await?;
            sent = (1, archived.bytes);
        }
        manifest.objects.push(archived);
        for table in tables {
            let name = format!("table={}/host={}/month={month}/{}.parquet", table.name, run.host, run.run);
            let object = Object { name, bytes: table.bytes.len() as u64, sha256: sha256(&table.bytes) };
            if !is_same_version || !self.has(&object).await? {
                self.put(&object.name, table.bytes, PutMode::Overwrite).await?;
                sent = (sent.0 + 1, sent.1 + object.bytes);
            }
            manifest.objects.push(object);
        }
        let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
        self.put(&run.object(MANIFEST), text, PutMode::Overwrite).await?;
        Ok((sent.0 + 1, sent.1))
    }

    /// Says which content the run's name stands for, or finds that it stands for the same; whether the same version of whylate
    /// said so.
    async fn claim(&self, run: &LakeRun, claim: &Claim) -> Result<bool, FarmError> {
        let name = run.object(CLAIM);
        let text = serde_json::to_vec(claim).unwrap_or_default();
        match self.put(&name, text, PutMode::Create).await {
            Ok(()) => return Ok(true),
            Err(FarmError::Storage(
                _,
                object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. },
            )) => {}
            Err(error) => return Err(error),
        }
        let found = self.read(&name).await?.unwrap_or_default();
        let found: Claim = serde_json::from_slice(&found)
            .map_err(|error| FarmError::Damaged(format!("{}/{name}", self.url()), error.to_string()))?;
        match found.content == claim.content {
            true => Ok(found.whylate_version == claim.whylate_version),
            false => Err(FarmError::OtherContent(run.to_string())),
        }
    }

    /// Takes a run away from its readers, the last written first.
    async fn withdraw(&self, run: &LakeRun, month: &str) -> Result<(), FarmError> {
        let row = format!("table=runs/host={}/month={month}/{}.parquet", run.host, run.run);
        let mut names = vec![run.object(MANIFEST), row];
        if let Some(text) = self.read(&run.object(MANIFEST)).await?
            && let Ok(manifest) = serde_json::from_slice::<Manifest>(&text)
        {
            names.extend(manifest.objects.into_iter().map(|object| object.name));
        }
        names.push(run.object(CLAIM));
        for name in names {
            match self.store.delete(&self.key(&name)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.storage(&name, error)),
            }
        }
        Ok(())
    }

    /// Whether an object of that size is there: objects are whole or not at all, and the claim says that it has that content.
    async fn has(&self, object: &Object) -> Result<bool, FarmError> {
        match self.store.head(&self.key(&object.name)).await {
            Ok(found) => Ok(found.size == object.bytes),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.storage(&object.name, error)),
        }
    }

    async fn put(&self, name: &str, bytes: Vec<u8>, mode: PutMode) -> Result<(), FarmError> {
        let put = self.store.put_opts(&self.key(name), bytes.into(), PutOptions::from(mode)).await;
        put.map(drop).map_err(|error| self.storage(name, error))
    }

    async fn send_file(&self, name: &str, mut file: std::fs::File) -> Result<(), FarmError> {
        let mut writer = BufWriter::with_capacity(Arc::clone(&self.store), self.key(name), PART_BYTES);
        let mut part = vec![0; PART_BYTES];
        loop {
            let read = file.read(&mut part).at("read the archive of", name)?;
            if read == 0 {
                return writer.shutdown().await.at("send", name);
            }
            writer.write_all(&part[..read]).await.at("send", name)?;
        }
    }
}
