//! Pages: the list, a run, a comparison.

use crate::Site;
use crate::error::Refusal;
use crate::farm;
use crate::runs::name_of;
use axum::Json;
use axum::extract::{Path as Name, Query, RawQuery, State};
use axum::response::Html;
use serde::Deserialize;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use whylate_core::result::{RUNS_FORMAT, RunSearch, RunState, RunSummary, RunsResult};
use whylate_report::Frame;

/// The most bytes of pages that are kept.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// A run with more bytes would take minutes and gigabytes: its report is made once, by the command.
const RUN_BYTES_MAX: u64 = 2 << 30;
/// What is compared at once.
const SIDES_MAX: usize = 8;
/// A series has so many runs, the newest ones.
const SERIES_MAX: usize = 200;

/// What a page is, and of which runs.
type PageKey = (String, Vec<PathBuf>);
/// When the runs were last written to, and the page.
type KeptPage = (Vec<Option<SystemTime>>, Arc<str>);

/// Pages that were made, and when their runs were last written to.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    kept: Mutex<HashMap<PageKey, KeptPage>>,
    /// One page is made at a time: it takes a CPU, and as much memory as the run has figures.
    making: tokio::sync::Mutex<()>,
}

impl Pages {
    /// Waits until no other page is made.
    pub(crate) async fn making(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.making.lock().await
    }
}

/// What is asked of the list.
#[derive(Debug, Deserialize)]
pub(crate) struct AskedRuns {
    q: Option<String>,
}

fn searched(
    site: &Site,
    mut runs: Vec<RunSummary>,
    asked: Option<&str>,
) -> Result<(RunsResult, usize), Refusal> {
    let terms: Vec<&str> = asked.into_iter().flat_map(str::split_whitespace).collect();
    let search = RunSearch::of(&terms).map_err(|error| Refusal::Bad(error.to_string()))?;
    let all = runs.len();
    runs.retain(|run| search.matches(run));
    let folder = site.runs.folder().display().to_string();
    Ok((RunsResult { format: RUNS_FORMAT.to_owned(), folder, runs, series: None }, all))
}

pub(crate) async fn list(
    State(site): State<Arc<Site>>,
    Query(asked): Query<AskedRuns>,
) -> Result<Html<String>, Refusal> {
    blocking(move || {
        let search = asked.q.unwrap_or_default();
        let page = site.runs.page(&search, |runs| {
            let (result, all) = searched(&site, runs, Some(&search))?;
            let farm = site.has_farm.then(|| ("Farm".to_owned(), farm::WALL.to_owned()));
            let frame = Frame {
                links: farm.into_iter().collect(),
                search: Some(search.clone()),
                compares: true,
                ..Frame::default()
            };
            Ok(whylate_report::runs(&result, all, Some(address)).html_within(&frame))
        });
        Ok(Html(page?.to_string()))
    })
    .await
}

pub(crate) async fn list_json(
    State(site): State<Arc<Site>>,
    Query(asked): Query<AskedRuns>,
) -> Result<Json<RunsResult>, Refusal> {
    blocking(move || Ok(Json(searched(&site, site.runs.all(), asked.q.as_deref())?.0))).await
}

/// A report; of a run that goes on its present values above what is stored already.
pub(crate) async fn run(
    State(site): State<Arc<Site>>,
    Name(name): Name<String>,
) -> Result<Html<String>, Refusal> {
    let path = find(&site, name).await?;
    let own = address_of(&path);
    let is_live = whylate_store::is_being_written(&path);
    let kind = if is_live { "live" } else { "run" };
    let frame = Frame {
        links: [
            ("All runs", "/".to_owned()),
            ("JSON", format!("{own}/result.json")),
            ("Archive", format!("{own}/archive.tar")),
        ]
        .map(|(words, address)| (words.to_owned(), address))
        .to_vec(),
        live: is_live.then(|| format!("{own}/events")),
        ..Frame::default()
    };
    let page = page_text(&site, kind, vec![path], move |site, paths| {
        let path = paths.first().ok_or_else(String::new)?;
        let drawn = site
            .source
            .run(path)
            .and_then(|result| whylate_report::run_with_charts(&result).map_err(|error| error.to_string()));
        let summary = || site.runs.all().into_iter().find(|run| Path::new(&run.path) == path);
        let page = match drawn {
            // Before the first sample is stored there is nothing to draw.
            Err(_) if is_live => summary().map(|run| whylate_report::begun(&run)).unwrap_or_default(),
            drawn => drawn?,
        };
        Ok(page.html_within(&frame))
    });
    Ok(Html(page.await?))
}

/// `?side=RUN&side=RUN`, the first of which is what the others are compared with.
pub(crate) async fn compare(
    State(site): State<Arc<Site>>,
    RawQuery(query): RawQuery,
) -> Result<Html<String>, Refusal> {
    let pairs: Vec<(String, String)> = pairs(query.as_deref().unwrap_or_default());
    let names = pairs.into_iter().filter(|(key, _)| key == "side").map(|(_, name)| name);
    let names: Vec<String> = names.collect();
    if !(2..=SIDES_MAX).contains(&names.len()) {
        return Err(Refusal::Bad(format!("tick 2 to {SIDES_MAX} runs; there are {}", names.len())));
    }
    let mut paths = Vec::new();
    for name in names {
        paths.push(find(&site, name).await?);
    }
    // The list shows the newest first; what came before is compared with.
    paths.reverse();
    let frame = Frame { links: vec![("All runs".to_owned(), "/".to_owned())], ..Frame::default() };
    let page = page_text(&site, "compare", paths, move |site, paths| {
        let result = site.source.compare(paths)?;
        Ok(whylate_report::compare(&result).html_within(&frame))
    });
    Ok(Html(page.await?))
}

/// What is asked of a series.
#[derive(Debug, Deserialize)]
pub(crate) struct AskedSeries {
    q: Option<String>,
    statistic: String,
    cell: Option<String>,
}

/// A statistic over the newest runs that a search finds.
pub(crate) async fn series(
    State(site): State<Arc<Site>>,
    Query(asked): Query<AskedSeries>,
) -> Result<Html<String>, Refusal> {
    let AskedSeries { q, statistic, cell } = asked;
    let listed = site.clone();
    let found = blocking(move || searched(&listed, listed.runs.all(), q.as_deref()));
    let mut runs = found.await?.0.runs;
    runs.retain(|run| run.state == RunState::Complete);
    let plan = runs.first().map(|run| run.plan.clone());
    runs.retain(|run| Some(&run.plan) == plan.as_ref());
    runs.truncate(SERIES_MAX);
    let frame =
        Frame { links: vec![("All runs".to_owned(), "/".to_owned())], compares: true, ..Frame::default() };
    let paths = runs.iter().map(|run| PathBuf::from(&run.path)).collect();
    let kind = format!("series {statistic} of {}", cell.as_deref().unwrap_or_default());
    let page = page_text(&site, &kind, paths, move |site, _| {
        let series = site.source.series(&runs, &statistic, cell.as_deref().filter(|it| !it.is_empty()))?;
        let address = |path: &str| address_of(Path::new(path));
        Ok(whylate_report::series(&series, Some(address)).html_within(&frame))
    });
    Ok(Html(page.await?))
}

async fn find(site: &Arc<Site>, name: String) -> Result<PathBuf, Refusal> {
    let site = site.clone();
    blocking(move || site.runs.find(&name)).await
}

/// What is made of runs: as it was made before, unless one of them has changed.
pub(crate) async fn page_text(
    site: &Arc<Site>,
    kind: &str,
    paths: Vec<PathBuf>,
    make: impl FnOnce(&Site, &[PathBuf]) -> Result<String, String> + Send + 'static,
) -> Result<String, Refusal> {
    let _making = site.pages.making().await;
    let (site, kind) = (site.clone(), kind.to_owned());
    blocking(move || {
        let (sizes, stamps): (Vec<u64>, Vec<_>) = paths.iter().map(|path| written(path)).unzip();
        let key = (kind, paths);
        if let Some((former, page)) = kept(&site).get(&key)
            && *former == stamps
        {
            return Ok(page.to_string());
        }
        if let Some((large, _)) = key.1.iter().zip(sizes).find(|(_, bytes)| *bytes > RUN_BYTES_MAX) {
            let text =
                format!("{} is too large for a page: `whylate report` makes it a file", name_of(large));
            return Err(Refusal::Run(text));
        }
        let page: Arc<str> = make(&site, &key.1).map_err(Refusal::Run)?.into();
        let mut kept = kept(&site);
        if kept.values().map(|(_, page)| page.len()).sum::<usize>() + page.len() > KEPT_BYTES_MAX {
            kept.clear();
        }
        kept.insert(key, (stamps, page.clone()));
        Ok(page.to_string())
    })
    .await
}

fn kept(site: &Site) -> MutexGuard<'_, HashMap<PageKey, KeptPage>> {
    site.pages.kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reading files takes threads that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Refusal::Run(error.to_string())))
}

/// The regular files of a run: those of its folder, and of the folders in it.
pub(crate) fn files_of(run: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![(run.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < 2 => folders.push((entry.path(), depth + 1)),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

/// The bytes of a run, and when the newest of its files was written.
fn written(run: &Path) -> (u64, Option<SystemTime>) {
    let files = files_of(run);
    let files = files.iter().filter_map(|file| fs::symlink_metadata(file).ok());
    files.fold((0, None), |(bytes, newest), file| (bytes + file.len(), newest.max(file.modified().ok())))
}

fn address(run: &RunSummary) -> String {
    address_of(Path::new(&run.path))
}

fn address_of(run: &Path) -> String {
    format!("/runs/{}", encoded(&name_of(run)))
}

/// A name as a part of an address, with what has a meaning there written as `%XX`.
pub(crate) fn encoded(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(byte.into()),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The pairs of a query, decoded.
fn pairs(query: &str) -> Vec<(String, String)> {
    let uri = format!("/?{query}").parse::<axum::http::Uri>();
    let pairs = uri.ok().and_then(|uri| Query::<Vec<(String, String)>>::try_from_uri(&uri).ok());
    pairs.map(|Query(pairs)| pairs).unwrap_or_default()
}
