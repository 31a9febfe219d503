//! Brings runs into the lake.

use super::{
    ARCHIVE, CLAIM, Claim, FORMAT, Lake, LakeObject, LakeRun, MANIFEST, MERGED, Manifest, TAG, archive,
    is_plain, sha256,
};
use crate::error::{At as _, FarmError};
use crate::farm_file::FarmFile;
use crate::verify::{Asked, is_short, mismatches};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::buffered::BufWriter;
use object_store::{ObjectStoreExt as _, PutMode, PutOptions};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;
use whylate_core::result::{RunResult, RunState};
use whylate_store::{
    Folder, Labels, LakeTable, LakeWords, Reader, RunInfo, StoreError, assemble, lake_tables,
};

/// Larger objects are sent in parts of this size.
const PART_BYTES: usize = 8 << 20;
/// The number of tables that are sent at once: each waits for the disk or the network.
const AT_ONCE: usize = 8;

#[derive(Clone, Debug, Default)]
pub struct Push {
    /// Replaces a run of the same name, and sends every object again.
    pub replace: bool,
    /// What was requested of the run; the table `runs` lists the differences.
    pub asked: Asked,
    /// Has the machine's labels, and its kernel unless one is requested.
    pub farm: Option<FarmFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub run: LakeRun,
    /// Objects sent; 0 if the run was in the lake already.
    pub objects: usize,
    /// Bytes sent.
    pub bytes: u64,
    /// Requests that the run does not meet.
    pub mismatches: Vec<String>,
    /// Whether it is a run of the short form of its plan.
    pub is_short: bool,
    /// Whether there is a farm file that does not name the machine.
    pub is_stranger: bool,
}

/// The machine's name in the lake: its own, or the requested one if its own is not valid. The difference stays a
/// mismatch.
fn host_of(info: &RunInfo, asked: &Asked) -> Result<String, FarmError> {
    let own = if info.facts.host.is_empty() { "unknown" } else { &info.facts.host };
    let mut names = [Some(own), asked.host.as_deref()].into_iter().flatten();
    let name = names.find(|name| is_plain(name)).map(str::to_owned);
    name.ok_or_else(|| FarmError::BadHost(info.run.clone(), own.to_owned()))
}

/// The result of a run; `None` for a run without samples.
fn result_of(reader: &Reader) -> Result<Option<RunResult>, FarmError> {
    match assemble(reader) {
        Ok(result) => Ok(Some(result)),
        Err(StoreError::NoSamples(_) | StoreError::NothingLeft(..)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a mismatch is of a request that this push leaves open.
fn is_of_open_request(mismatch: &str, asked: &Asked) -> bool {
    match mismatch.split_once(": ").map(|(kind, _)| kind) {
        Some("kernel") => asked.kernel.is_none(),
        Some("host") => asked.host.is_none(),
        Some("plan") => asked.plan.is_none() && asked.short.is_none(),
        _ => false,
    }
}

/// The stored labels without the tags that the run had then.
fn without_tags(labels: &str) -> String {
    labels.split_whitespace().filter(|word| !word.starts_with(TAG)).collect::<Vec<_>>().join(" ")
}

/// A machine's labels, and the run's tags as `tag=TAG`.
fn with_tags(labels: &str, tags: &[String]) -> String {
    let own = labels.split_whitespace().map(str::to_owned);
    let tags =
        tags.iter().map(|tag| format!("{TAG}{}", tag.split_whitespace().collect::<Vec<_>>().join("_")));
    own.chain(tags).collect::<Vec<_>>().join(" ")
}

impl Lake {
    /// Brings a run into the lake. An interrupted push continues where it stopped; a run that is in the lake already
    /// stays unchanged, and one that was continued since replaces its earlier part.
    ///
    /// # Errors
    /// [`FarmError::Refused`], [`FarmError::BadHost`], [`FarmError::OtherMismatches`]; [`FarmError::IsMerged`];
    /// [`FarmError::Damaged`] if the run in the lake is not whole; [`FarmError::Run`] if the run cannot be read;
    /// [`FarmError::Storage`].
    pub fn push(&self, path: &Path, how: &Push) -> Result<Pushed, FarmError> {
        let folder = Folder::open(path)?;
        let reader = Reader::of(folder.clone())?;
        if reader.is_in_progress() {
            return Err(FarmError::refused(
                path.display(),
                "the run is still in progress; push it after its end",
            ));
        }
        let result = result_of(&reader)?;
        let info = reader.info();
        let run = LakeRun { host: host_of(info, &how.asked)?, run: info.run.clone() };
        let host = how.farm.as_ref().and_then(|farm| farm.host(&run.host));
        let mut asked = how.asked.clone();
        asked.kernel = asked.kernel.or_else(|| host.and_then(|host| host.kernel.clone()));
        let stored = self.runtime.block_on(self.stored(&run))?;
        let mut differs = mismatches(info, result.as_ref(), &asked);
        let is_same = self.runtime.block_on(self.began_at(&run))?.as_ref() == Some(&info.started_at);
        let known = stored.iter().filter(|_| is_same).flat_map(|it| it.mismatches.iter().flatten());
        let kept: Vec<String> = known
            .filter(|line| is_of_open_request(line, &asked) && !differs.contains(line))
            .cloned()
            .collect();
        differs.extend(kept);
        let labels = match host {
            Some(host) => host.labels(),
            None => stored.map(|it| without_tags(&it.labels)).unwrap_or_default(),
        };
        let labels = with_tags(&labels, &Labels::read(&folder)?.tags);
        let words = LakeWords { mismatches: &differs, labels: &labels };
        let tables = lake_tables(&reader, result.as_ref(), &words)?;
        if !is_plain(&run.run) {
            let why = "a run's name in a lake has only letters, digits, `-`, `_`, `.` and `+`; rename its directory";
            return Err(FarmError::refused(run.run, why));
        }
        let month: String = info.started_at.chars().take(7).collect();
        let packed = archive::pack(&folder)?;
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            run: run.run.clone(),
            host: run.host.clone(),
            content: packed.content.clone(),
            whylate_version: env!("CARGO_PKG_VERSION").to_owned(),
            mismatches: Some(differs.clone()),
            labels,
            merged: None,
            objects: Vec::new(),
        };
        let claim = Claim {
            content: manifest.content.clone(),
            whylate_version: manifest.whylate_version.clone(),
            started_at: Some(info.started_at.clone()),
            state: Some(info.state),
        };
        let brought = self.bring(&run, &month, tables, (packed, manifest, claim), how.replace);
        let pushed = self.runtime.block_on(brought);
        let (objects, bytes) = pushed?;
        let is_short = is_short(info, &how.asked);
        let is_stranger = how.farm.is_some() && host.is_none();
        Ok(Pushed { run, objects, bytes, mismatches: differs, is_short, is_stranger })
    }

    /// What the lake knows of a run: a push without labels or a request keeps them.
    async fn stored(&self, run: &LakeRun) -> Result<Option<Manifest>, FarmError> {
        if !is_plain(&run.run) {
            return Ok(None);
        }
        let found = self.read(&run.object(MANIFEST)).await?.unwrap_or_default();
        Ok(serde_json::from_slice(&found).ok())
    }

    /// When the run of this name in the lake began.
    async fn began_at(&self, run: &LakeRun) -> Result<Option<String>, FarmError> {
        if !is_plain(&run.run) {
            return Ok(None);
        }
        let found = self.read(&run.object(CLAIM)).await?.unwrap_or_default();
        Ok(serde_json::from_slice::<Claim>(&found).ok().and_then(|claim| claim.started_at))
    }

    async fn bring(
        &self,
        run: &LakeRun,
        month: &str,
        tables: Vec<LakeTable>,
        (packed, mut manifest, claim): (archive::Packed, Manifest, Claim),
        replace: bool,
    ) -> Result<(usize, u64), FarmError> {
        let replace = replace || self.is_continued(run, &claim).await?;
        if replace {
            self.withdraw(run).await?;
        }
        // Damage does not show in an object's size: if a run is replaced, none of its objects is kept.
        let goes_on = self.claim(run, &claim, replace).await? && !replace;
        if let Some(found) = self.read(&run.object(MANIFEST)).await? {
            self.is_there(run, &found, &manifest).await?;
            return Ok((0, 0));
        }
        let mut sent = (0, 0);
        let archived =
            LakeObject { name: run.object(ARCHIVE), bytes: packed.bytes, sha256: packed.sha256.clone() };
        if !goes_on || !self.has(&archived).await? {
            self.send_file(&archived.name, packed.file).await?;
            sent = (1, archived.bytes);
        }
        manifest.objects.push(archived);
        // The run's own row comes last: without it none of the other tables is read, so they need no order.
        let (rows, others): (Vec<_>, Vec<_>) = tables.into_iter().partition(|table| table.name == "runs");
        for group in [others, rows] {
            let sends = group.into_iter().map(|table| self.send_table(run, month, table, goes_on));
            let sends = futures_util::stream::iter(sends).buffered(AT_ONCE);
            for (object, is_new) in sends.try_collect::<Vec<_>>().await? {
                if is_new {
                    sent = (sent.0 + 1, sent.1 + object.bytes);
                }
                manifest.objects.push(object);
            }
        }
        let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
        self.put(&run.object(MANIFEST), text, PutMode::Overwrite).await?;
        Ok((sent.0 + 1, sent.1))
    }

    /// Sends a table if it is missing; returns whether it was sent.
    async fn send_table(
        &self,
        run: &LakeRun,
        month: &str,
        table: LakeTable,
        goes_on: bool,
    ) -> Result<(LakeObject, bool), FarmError> {
        let name = run.table(table.name, month);
        let object = LakeObject { name, bytes: table.bytes.len() as u64, sha256: sha256(&table.bytes) };
        let is_there = match (goes_on, table.name) {
            (false, _) => false,
            // Its size is the same for several mismatches, and it is small enough to be read.
            (true, "runs") => self.read(&object.name).await?.as_deref() == Some(&table.bytes),
            (true, _) => self.has(&object).await?,
        };
        if !is_there {
            self.put(&object.name, table.bytes, PutMode::Overwrite).await?;
        }
        Ok((object, !is_there))
    }

    /// Whether the lake has an earlier part of the same run: a job that is started again continues its run, which no
    /// one replaces by hand.
    async fn is_continued(&self, run: &LakeRun, claim: &Claim) -> Result<bool, FarmError> {
        let Some(found) = self.read(&run.object(CLAIM)).await? else { return Ok(false) };
        // One that cannot be read is an error when the name is claimed.
        let Ok(found) = serde_json::from_slice::<Claim>(&found) else { return Ok(false) };
        let is_same_run = found.started_at.is_some() && found.started_at == claim.started_at;
        let was_complete = found.state.is_none_or(|state| state == RunState::Complete);
        Ok(found.content != claim.content && is_same_run && !was_complete)
    }

    /// Records the content that the run's name stands for, or finds that it stands for the same; returns whether the
    /// same version of whylate has recorded it before. After a `withdrawal`, other content can only be of another push.
    async fn claim(&self, run: &LakeRun, claim: &Claim, withdrawal: bool) -> Result<bool, FarmError> {
        let name = run.object(CLAIM);
        let text = serde_json::to_vec(claim).unwrap_or_default();
        match self.put(&name, text, PutMode::Create).await {
            // Nothing guarantees the objects that an earlier push left.
            Ok(()) => return Ok(false),
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
            false => {
                let why = match withdrawal {
                    true => {
                        "another push writes other content for this run at the same time; push again when it has ended"
                    }
                    false if found.started_at != claim.started_at => {
                        "the lake has another run of this name, which began at another time: push this run from a folder \
                         of another name, or remove the other run with `--replace`"
                    }
                    false => {
                        "the lake has other content for this run, which was continued, tagged or measured again; \
                         replace that copy with `--replace`"
                    }
                };
                Err(FarmError::refused(run, why))
            }
        }
    }

    /// Whether the run in the lake is whole and has the same facts as a push would record now.
    async fn is_there(&self, run: &LakeRun, found: &[u8], pushed: &Manifest) -> Result<(), FarmError> {
        let name = run.object(MANIFEST);
        let found: Manifest =
            serde_json::from_slice(found).map_err(|error| self.damaged(&name, &error.to_string()))?;
        if found.content != pushed.content {
            return Err(self.damaged(&name, "it differs from the run's claim file"));
        }
        let row = format!("table=runs/host={}/", run.host);
        for must in [Some(run.object(ARCHIVE)), found.merged.is_none().then_some(row)].into_iter().flatten() {
            if !found.objects.iter().any(|object| object.name.starts_with(&must)) {
                return Err(self.damaged(&name, &format!("it does not list {must}")));
            }
        }
        for object in &found.objects {
            self.expect(object).await?;
        }
        // Other versions word them differently.
        let is_same_version = found.whylate_version == pushed.whylate_version;
        if let (true, Some(said), Some(now)) = (is_same_version, found.mismatches, &pushed.mismatches)
            && let Some(new) = now.iter().find(|line| !said.contains(line))
        {
            return Err(FarmError::OtherMismatches(run.to_string(), new.clone()));
        }
        Ok(())
    }

    /// Removes a run: first from its readers, then its claim, then the rest, which no push continues. The lake's
    /// listing decides which objects it has, because its manifest may be damaged. A run whose rows are in a merged
    /// month stays.
    async fn withdraw(&self, run: &LakeRun) -> Result<(), FarmError> {
        let text = self.read(&run.object(MANIFEST)).await?;
        let found = text.as_ref().map(|text| serde_json::from_slice::<Manifest>(text));
        let is_damaged = matches!(found, Some(Err(_)));
        if found.is_some_and(|found| found.is_ok_and(|found| found.merged.is_some())) {
            return Err(FarmError::IsMerged(run.to_string()));
        }
        let (mut names, mut rest) = (vec![run.object(MANIFEST)], Vec::new());
        let file = format!("/{}.parquet", run.run);
        for table in self.tables().await? {
            let found = self.names(&format!("{table}/host={}", run.host)).await?;
            // Questions see every run with a row in `runs`.
            let to = if table == "table=runs" { &mut names } else { &mut rest };
            to.extend(found.into_iter().filter(|name| name.ends_with(&file)));
        }
        // Its rows may be in a merged month, where they would stay: the run would then be there twice.
        if is_damaged && names.len() == 1 && !self.names(&format!("{MERGED}/parts")).await?.is_empty() {
            return Err(FarmError::IsMerged(run.to_string()));
        }
        names.push(run.object(CLAIM));
        names.append(&mut rest);
        names.push(run.object(ARCHIVE));
        for name in names {
            self.delete(&name).await?;
        }
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), FarmError> {
        match self.store.delete(&self.key(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.storage(name, error)),
        }
    }

    /// Whether an object of that size exists: objects are whole or not at all, and the claim guarantees the content.
    async fn has(&self, object: &LakeObject) -> Result<bool, FarmError> {
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
