//! A lake: runs of many machines in object storage, in a folder or in a bucket.
//!
//! `table=NAME/host=HOST/month=YYYY-MM/RUN.parquet` is a table of a run, for engines. `runs/HOST/RUN/` holds the
//! unchanged run directory, its claim, and last its manifest. A run without its row in `runs` does not exist for
//! questions, and one without a manifest does not exist for `pull`. `merged/table=NAME/` has the rows of many runs,
//! as made by the `COPY` of docs/FARM.md and by earlier versions. Objects are written whole or not at all, which all
//! kinds of storage promise.

mod archive;
mod crypto;
mod curl;
mod damage;
mod mirror;
mod pull;
mod push;

pub use damage::Damaged;
pub(crate) use damage::names_below;
pub use pull::Pulled;
pub use push::{Push, Pushed};

use crate::error::{At as _, FarmError};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;
use whylate_core::order::InOrder;
use whylate_core::result::RunState;

/// `format` of a manifest.
const FORMAT: &str = "whylate.lake-run/1";
/// The folder of run directories.
const RUNS: &str = "runs";
const MANIFEST: &str = "manifest.json";
const CLAIM: &str = "claim.json";
const ARCHIVE: &str = "run.tar.gz";
/// The folder of tables that hold whole months.
const MERGED: &str = "merged";

#[derive(Debug)]
pub struct Lake {
    url: String,
    store: Arc<dyn ObjectStore>,
    /// Its location in the storage.
    root: Key,
    runtime: Runtime,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LakeRun {
    pub host: String,
    pub run: String,
}

impl std::fmt::Display for LakeRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.host, self.run)
    }
}

/// The parts of a run in the lake.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    format: String,
    run: String,
    host: String,
    /// SHA-256 over names and contents of the run's files.
    content: String,
    whylate_version: String,
    /// Requests that the run does not meet; absent in a lake of an older version.
    #[serialize_always]
    #[serde(default)]
    mismatches: Option<Vec<String>>,
    /// The machine's labels in the farm file and the run's tags: `KEY=VALUE` separated by spaces.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    labels: String,
    /// Where an earlier version put the rows of its tables: `MONTH/DIGEST` below [`MERGED`].
    merged: Option<String>,
    objects: Vec<LakeObject>,
}

/// The label of a run's tags.
pub(crate) const TAG: &str = "tag=";

/// One object, by its name in the lake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LakeObject {
    name: String,
    bytes: u64,
    sha256: String,
}

/// The objects of a month that an earlier version merged.
#[derive(Debug, Deserialize)]
struct MonthManifest {
    objects: Vec<LakeObject>,
}

/// The places that a question reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LakeLayout {
    /// Whether there are files of single runs.
    pub has_runs: bool,
    /// Whether there are files of whole months.
    pub has_months: bool,
}

/// The content that a name in the lake stands for: written first, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Claim {
    content: String,
    whylate_version: String,
    /// When the run began, and its state: a later push of the same run, continued, replaces one that is not complete.
    /// Absent in a lake of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<RunState>,
}

impl Lake {
    /// Opens the lake at a URL or in a folder. With `make`, makes the folder.
    pub fn open(url: &str, make: bool) -> Result<Self, FarmError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().at("begin", url)?;
        let (store, path) = match url.split_once("://") {
            None => (folder(url, make)?, String::new()),
            Some(("file", path)) => (folder(path, make)?, String::new()),
            Some((scheme, rest)) => {
                let path = rest.split_once('/').map_or("", |(_, path)| path).trim_matches('/').to_owned();
                (bucket(scheme, url)?, path)
            }
        };
        Ok(Self { url: url.trim_end_matches('/').to_owned(), store, root: Key::from(path), runtime })
    }

    /// Its URL, as given.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its folder on this machine; for a bucket a path that does not exist.
    fn folder(&self) -> &Path {
        Path::new(self.url.strip_prefix("file://").unwrap_or(&self.url))
    }

    /// Whether it is somewhere other than in a folder of this machine.
    pub fn is_bucket(&self) -> bool {
        self.url.contains("://") && !self.url.starts_with("file://")
    }

    /// The complete runs, by host and name.
    pub fn runs(&self) -> Result<Vec<LakeRun>, FarmError> {
        self.runs_with(MANIFEST)
    }

    /// The runs whose push has started but not ended; it may still be going on.
    pub fn unfinished(&self) -> Result<Vec<LakeRun>, FarmError> {
        let mut claimed = self.runs_with(CLAIM)?;
        // Listed afterwards, so that a push that ends meanwhile is not among them.
        let whole = self.runs()?;
        claimed.retain(|run| whole.binary_search(run).is_err());
        Ok(claimed)
    }

    /// The runs that have this file, in order.
    fn runs_with(&self, file: &str) -> Result<Vec<LakeRun>, FarmError> {
        let of_name = |name: &String| {
            let mut parts = name.split('/').rev();
            let (last, run, host) = (parts.next()?, parts.next()?, parts.next()?);
            (last == file).then(|| LakeRun { host: host.to_owned(), run: run.to_owned() })
        };
        let names = self.runtime.block_on(self.names(RUNS))?;
        let mut runs: Vec<LakeRun> = names.iter().filter_map(of_name).collect();
        runs.order();
        Ok(runs)
    }

    /// Where the rows are.
    ///
    /// # Errors
    /// [`FarmError::HalfMerged`] if an earlier version was interrupted while it merged a month: rows would count
    /// twice.
    pub fn layout(&self) -> Result<LakeLayout, FarmError> {
        let parts = self.runtime.block_on(self.names(&format!("{MERGED}/parts")))?;
        if parts.iter().any(|name| name.ends_with(".begun")) {
            return Err(FarmError::HalfMerged(self.url.clone()));
        }
        let has = |folder: &str| self.runtime.block_on(self.has_any(folder));
        Ok(LakeLayout { has_runs: has("table=runs")?, has_months: has(&format!("{MERGED}/table=runs"))? })
    }

    async fn has_any(&self, folder: &str) -> Result<bool, FarmError> {
        use futures_util::TryStreamExt as _;
        let first = self.store.list(Some(&self.key(folder))).try_next().await;
        Ok(first.map_err(|error| FarmError::Storage(self.url.clone(), error))?.is_some())
    }

    /// An object's key, by its name in the lake.
    fn key(&self, name: &str) -> Key {
        name.split('/').fold(self.root.clone(), |key, part| key.join(part))
    }

    /// The content of a small object; `None` if there is none.
    async fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FarmError> {
        match self.store.get(&self.key(name)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.storage(name, error)),
            Ok(found) => {
                let bytes = found.bytes().await.map_err(|error| self.storage(name, error))?;
                Ok(Some(bytes.to_vec()))
            }
        }
    }

    /// The names of the folders of the lake's tables.
    async fn tables(&self) -> Result<Vec<String>, FarmError> {
        let listed = self.store.list_with_delimiter(Some(&self.root)).await;
        let listed = listed.map_err(|error| FarmError::Storage(self.url.clone(), error))?;
        let names = listed.common_prefixes.iter().filter_map(|it| it.filename().map(str::to_owned));
        Ok(names.filter(|name| name.starts_with("table=")).collect())
    }

    /// The names of all objects below a folder of the lake.
    async fn names(&self, folder: &str) -> Result<Vec<String>, FarmError> {
        let mut names: Vec<String> = self.objects(folder).await?.into_iter().map(|(name, _)| name).collect();
        names.order();
        Ok(names)
    }

    /// All objects below a folder of the lake, with their names.
    async fn objects(&self, folder: &str) -> Result<Vec<(String, ObjectMeta)>, FarmError> {
        use futures_util::TryStreamExt as _;
        let listed = self.store.list(Some(&self.key(folder))).try_collect::<Vec<_>>().await;
        let listed = listed.map_err(|error| FarmError::Storage(self.url.clone(), error))?;
        let root = self.root.parts().count();
        let name = |key: &Key| {
            let parts: Vec<String> = key.parts().skip(root).map(|part| part.as_ref().to_owned()).collect();
            parts.join("/")
        };
        Ok(listed.into_iter().map(|object| (name(&object.location), object)).collect())
    }

    fn storage(&self, name: &str, error: object_store::Error) -> FarmError {
        FarmError::Storage(format!("{}/{name}", self.url), error)
    }
}

impl LakeRun {
    /// The name in the lake of one of its objects.
    fn object(&self, name: &str) -> String {
        format!("{RUNS}/{}/{}/{name}", self.host, self.run)
    }

    /// The name in the lake of one of its tables.
    fn table(&self, table: &str, month: &str) -> String {
        format!("table={table}/host={}/month={month}/{}.parquet", self.host, self.run)
    }
}

fn folder(path: &str, make: bool) -> Result<Arc<dyn ObjectStore>, FarmError> {
    let path = Path::new(path);
    if make {
        std::fs::create_dir_all(path).at("create", path)?;
    }
    if let Err(error) = std::fs::read_dir(path) {
        return match error.kind() {
            io::ErrorKind::NotFound => {
                let place = path.display();
                let why =
                    format!("this folder does not exist; `whylate push RUN {place}` makes a lake there");
                Err(FarmError::refused(place, why))
            }
            _ => Err(error).at("read", path),
        };
    }
    let store = LocalFileSystem::new_with_prefix(path);
    let store = store.map_err(|error| FarmError::Storage(path.display().to_string(), error))?;
    Ok(Arc::new(store.with_fsync(true)))
}

/// The bucket of a URL, with the credentials of the environment.
fn bucket(scheme: &str, url: &str) -> Result<Arc<dyn ObjectStore>, FarmError> {
    let crypto = || Arc::new(crypto::Sha);
    let made: Result<Arc<dyn ObjectStore>, object_store::Error> = match scheme {
        "s3" => AmazonS3Builder::from_env()
            .with_url(url)
            .with_crypto_provider(crypto())
            .with_http_connector(curl::Connector)
            .build()
            .map(|it| Arc::new(it) as _),
        "gs" => GoogleCloudStorageBuilder::from_env()
            .with_url(url)
            .with_crypto_provider(crypto())
            .with_http_connector(curl::Connector)
            .build()
            .map(|it| Arc::new(it) as _),
        "az" => MicrosoftAzureBuilder::from_env()
            .with_url(url)
            .with_crypto_provider(crypto())
            .with_http_connector(curl::Connector)
            .build()
            .map(|it| Arc::new(it) as _),
        other => return Err(FarmError::bad_url(url, &format!("`{other}` is not a kind of storage"))),
    };
    made.map_err(|error| FarmError::bad_url(url, &error.to_string()))
}

/// SHA-256 as hexadecimal digits.
fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a word can be part of an object's name in every kind of storage.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain)
}
