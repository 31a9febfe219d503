//! Web pages over a folder of runs: the list with its search, a report of each, comparisons, values of a run that goes on,
//! downloads, and figures for Prometheus.
//!
//! It only reads. Nothing of an address becomes a path: a run is shown when the list of the folder has its name. Pages are
//! made by the same functions as reports in files, one at a time, and kept while the run does not change.

mod download;
mod endpoint;
mod error;
mod guard;
mod live;
mod metrics;
mod pages;
mod runs;

pub use endpoint::endpoint;
pub use error::ServeError;
pub use metrics::escaped;

use axum::Router;
use axum::routing::get;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use whylate_core::result::{CompareResult, RunResult, RunSeries, RunSummary};

/// How results are made: by whoever knows how to read runs.
pub trait Source: Send + Sync + 'static {
    /// The result of a run.
    ///
    /// # Errors
    /// What is wrong with it, for the reader of the page.
    fn run(&self, run: &Path) -> Result<RunResult, String>;
    /// What differs between runs.
    ///
    /// # Errors
    /// What is wrong with them, for the reader of the page.
    fn compare(&self, runs: &[PathBuf]) -> Result<CompareResult, String>;
    /// A statistic (`timer p99.9`) over those of the runs that have the plan of the newest one, which is the first.
    ///
    /// # Errors
    /// What is wrong with them, or with the statistic, for the reader of the page.
    fn series(&self, runs: &[RunSummary], statistic: &str, cell: Option<&str>) -> Result<RunSeries, String>;
}

/// What is served, where and to whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of runs.
    pub folder: PathBuf,
    /// The address; port 0 takes a free one.
    pub address: SocketAddr,
    /// What a reader has to show; nothing on a loopback address.
    pub token: Option<String>,
}

/// What every request sees.
struct Site {
    settings: Settings,
    runs: runs::Runs,
    pages: pages::Pages,
    source: Box<dyn Source>,
    readers: Arc<Semaphore>,
}

/// Serves until the process ends. `ready` is told the address.
///
/// # Errors
/// When the folder cannot be read, when another than a loopback address has no token, and when the address cannot be had.
pub fn serve(
    settings: Settings,
    source: Box<dyn Source>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    guard::needs_token(settings.address, settings.token.as_deref())?;
    let read = |source| ServeError::Folder { folder: settings.folder.clone(), source };
    std::fs::read_dir(&settings.folder).map_err(read)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(ServeError::Runtime)?;
    runtime.block_on(async {
        let address = settings.address;
        let listen = |source| ServeError::Address { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        ready(listener.local_addr().map_err(listen)?);
        let runs = runs::Runs::new(&settings.folder);
        let readers = Arc::new(Semaphore::new(live::READERS_MAX));
        let site = Arc::new(Site { settings, runs, pages: pages::Pages::default(), source, readers });
        axum::serve(listener, router(site)).await.map_err(listen)
    })
}

fn router(site: Arc<Site>) -> Router {
    let token = Arc::new(site.settings.token.clone());
    Router::new()
        .route("/", get(pages::list))
        .route("/compare", get(pages::compare))
        .route("/series", get(pages::series))
        .route("/runs/{name}", get(pages::run))
        .route("/runs/{name}/events", get(live::events))
        .route("/runs/{name}/result.json", get(download::result))
        .route("/runs/{name}/archive.tar", get(download::archive))
        .route("/runs.json", get(pages::list_json))
        .route("/metrics", get(metrics::metrics))
        .layer(axum::middleware::from_fn_with_state(token, guard::check))
        .with_state(site)
}
