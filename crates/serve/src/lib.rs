//! Web pages over a folder of runs: the list with its search, a report of each run, comparisons, live values of a
//! running one, downloads, and figures for Prometheus; and over a lake: the wall of its boards, one board, two groups
//! of runs.
//!
//! It only reads. No part of an address becomes a path: a run is shown if the folder's list has its name. The
//! functions that write reports to files also make the pages, one at a time, and a page is kept while its run does
//! not change. Files are read below the folder that was opened at the start, even if its path changes.

mod answers;
mod connections;
mod download;
mod endpoint;
mod error;
mod farm;
mod guard;
mod live;
mod metrics;
mod pages;
mod runs;

pub use answers::Ask;
pub use endpoint::endpoint;
pub use error::ServeError;
pub use metrics::escaped;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use axum::routing::get;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use whylate_core::result::{CompareResult, RunResult, RunSeries, RunSummary};
use whylate_store::{Folder, VerdictCache};

/// Makes results: implemented by a caller that can read runs.
pub trait ResultSource: Send + Sync + 'static {
    /// The result of a run.
    ///
    /// # Errors
    /// Its problem, for the reader of the page.
    fn run(&self, run: &Folder) -> Result<RunResult, String>;
    /// The differences between sides of one or more runs; the first side is the baseline.
    ///
    /// # Errors
    /// Their problem, for the reader of the page.
    fn compare(&self, sides: &[Vec<Folder>]) -> Result<CompareResult, String>;
    /// A statistic (`timer p99.9`) over the runs that have the plan of the newest one, which is the first.
    ///
    /// # Errors
    /// The problem with them, or with the statistic, for the reader of the page.
    fn series(
        &self,
        runs: &[RunSummary],
        open: &dyn Fn(&RunSummary) -> Result<Folder, String>,
        statistic: &str,
        cell: Option<&str>,
    ) -> Result<RunSeries, String>;
}

/// A folder of runs, and the source of their results.
pub struct Runs {
    pub folder: Folder,
    /// Verdicts that earlier lists found.
    pub cache: Option<VerdictCache>,
    pub source: Box<dyn ResultSource>,
}

/// A lake, and the function that answers statements over it.
pub struct Lake {
    pub name: String,
    /// Answers a statement in a bounded time; several are asked at once.
    pub ask: Ask,
}

/// Where pages are served, and to whom.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address; port 0 takes a free one.
    pub address: SocketAddr,
    /// The token that a reader has to show; `None` on a loopback address.
    pub token: Option<String>,
}

/// The state shared by all requests.
struct Site {
    /// Whether the same server shows a lake.
    has_farm: bool,
    runs: Arc<runs::Runs>,
    pages: pages::Pages,
    source: Box<dyn ResultSource>,
    readers: Arc<Semaphore>,
    archives: Arc<Semaphore>,
}

impl Site {
    /// The directory of a run, for the reader of its page.
    fn open(&self, name: &str) -> Result<Folder, String> {
        self.runs.find(name).map_err(|refusal| refusal.answer().1)
    }
}

/// Serves a folder of runs, a lake or both until the process ends. `ready` gets the address.
///
/// # Errors
/// When an address that is not loopback has no token, and when the address cannot be used.
pub fn serve(
    settings: Settings,
    runs: Option<Runs>,
    lake: Option<Lake>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    guard::needs_token(settings.address, settings.token.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(ServeError::Runtime)?;
    let address = settings.address;
    let listen = |source| ServeError::Address { address, source };
    // Before the lake enters the runtime: its own runtime may be dropped only outside of another one.
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(listen)?;
    runtime.block_on(async {
        let (has_runs, has_farm) = (runs.is_some(), lake.is_some());
        let mut router = Router::new();
        if let Some(runs) = runs {
            router = router.merge(of_runs(runs, has_farm));
        }
        if let Some(lake) = lake {
            router = router.merge(of_lake(lake, has_runs));
        }
        let router = router.fallback(async move |address: Uri| nothing_at(&address, has_runs, has_farm));
        let token = Arc::new(settings.token);
        let router = router.layer(axum::middleware::from_fn_with_state(token, guard::check));
        ready(listener.local_addr().map_err(listen)?);
        match connections::serve(&listener, &router).await {}
    })
}

/// The page for an unknown address: it lists the existing ones.
fn nothing_at(address: &Uri, has_runs: bool, has_farm: bool) -> Response {
    let mut lines = vec![format!("there is no page {}; these pages exist:", address.path())];
    let mut links = Vec::new();
    if has_runs {
        lines.push("`/`, the list of runs, and `/runs/NAME`, the report of a run".to_owned());
        links.push(("Runs".to_owned(), "/".to_owned()));
    }
    if has_farm {
        lines.push(
            "`/farm`, the boards of the lake; `/farm/board/NAME`, one board; `/farm/compare`, two groups of runs".to_owned(),
        );
        links.push(("All boards".to_owned(), farm::WALL.to_owned()));
    }
    let page = whylate_report::notice("No such page", lines);
    let page = page.html_within(&whylate_report::Frame { links, ..whylate_report::Frame::default() });
    (StatusCode::NOT_FOUND, Html(page)).into_response()
}

fn of_runs(Runs { folder, cache, source }: Runs, has_farm: bool) -> Router {
    let runs = Arc::new(runs::Runs::new(folder, cache));
    // The list is read before the first reader comes.
    let early = runs.clone();
    tokio::task::spawn_blocking(move || early.all());
    let readers = Arc::new(Semaphore::new(live::READERS_MAX));
    let archives = Arc::new(Semaphore::new(download::ARCHIVES_MAX));
    let site = Arc::new(Site { has_farm, runs, pages: pages::Pages::default(), source, readers, archives });
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
        .with_state(site)
}

fn of_lake(Lake { name, ask }: Lake, has_runs: bool) -> Router {
    let answers = Arc::new(answers::Answers::new(ask));
    let router = Router::new()
        .route(farm::WALL, get(farm::wall))
        .route("/farm/board/{name}", get(farm::board))
        .route("/farm/compare", get(farm::compare))
        .with_state(Arc::new(farm::Farm { lake: name, answers, has_runs }));
    if has_runs { router } else { router.route("/", get(async || Redirect::to(farm::WALL))) }
}
