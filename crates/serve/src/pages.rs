//! Pages: the list, a run, a comparison.

use crate::Site;
use crate::error::Refusal;
use crate::farm;
use crate::runs::name_of;
use axum::extract::{Path as Name, Query, RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse};
use serde::Deserialize;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use whylate_core::result::{RUNS_FORMAT, RunSearch, RunState, RunSummary, RunsResult};
use whylate_core::text;
use whylate_report::Frame;
use whylate_store::{Folder, Found};

/// The most bytes of pages that are kept.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// A larger run would take minutes and gigabytes: the command makes its report once.
const RUN_BYTES_MAX: u64 = 2 << 30;
/// The most runs that are compared at once.
const SIDES_MAX: usize = 8;
/// The most runs of a side.
const RUNS_OF_SIDE_MAX: usize = 30;
/// The most runs of a series; the newest ones are taken.
const SERIES_MAX: usize = 200;

/// The kind of page, and its runs.
type PageKey = (String, Vec<String>);
/// The files of the runs at that time, and the page.
type KeptPage = (Vec<Vec<Found>>, Arc<str>);

/// Cached pages, with the files of their runs at that time.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    kept: Mutex<HashMap<PageKey, KeptPage>>,
    /// One page is made at a time: it takes a CPU, and memory in proportion to the run's figures.
    making: tokio::sync::Mutex<()>,
}

impl Pages {
    /// Waits until no other page is being made.
    pub(crate) async fn making(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.making.lock().await
    }
}

/// The parameters of the list.
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
    let folder = site.runs.folder().path().display().to_string();
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
) -> Result<impl IntoResponse, Refusal> {
    let listed = blocking(move || {
        json(serde_json::to_string(&searched(&site, site.runs.all(), asked.q.as_deref())?.0))
    });
    Ok(([(CONTENT_TYPE, "application/json")], listed.await?))
}

/// A document without invisible characters.
pub(crate) fn json(document: serde_json::Result<String>) -> Result<String, Refusal> {
    document.map(|it| text::json(&it)).map_err(|error| Refusal::Run(error.to_string()))
}

/// A report; for a run in progress, its live values come above the stored ones.
pub(crate) async fn run(
    State(site): State<Arc<Site>>,
    Name(name): Name<String>,
) -> Result<Html<String>, Refusal> {
    let own = address_of(&name);
    let is_live = find(&site, &name).await?.is_held();
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
    let page = page_text(&site, kind, vec![name.clone()], move |site, _| {
        let run = site.open(&name)?;
        let drawn = site
            .source
            .run(&run)
            .and_then(|result| whylate_report::run_with_charts(&result).map_err(|error| error.to_string()));
        let summary = || site.runs.all().into_iter().find(|it| Path::new(&it.path) == run.path());
        let page = match drawn {
            // Before the first sample is stored there is nothing to draw.
            Err(_) if is_live => summary().map(|run| whylate_report::begun(&run)).unwrap_or_default(),
            drawn => drawn?,
        };
        Ok(page.html_within(&frame))
    });
    Ok(Html(page.await?))
}

/// The names of the runs of each side that a query asks for, the baseline first.
fn sides(site: &Site, query: &str) -> Result<Vec<Vec<String>>, Refusal> {
    let pairs: Vec<(String, String)> = pairs(query);
    let named = |key: &str| -> Vec<String> {
        pairs.iter().filter(|(known, _)| known == key).map(|(_, name)| name.clone()).collect()
    };
    let mut single = named("side");
    if !single.is_empty() {
        // The list shows the newest first; the earliest run is the baseline.
        single.reverse();
        return match single.len() {
            2..=SIDES_MAX => Ok(single.into_iter().map(|name| vec![name]).collect()),
            count => Err(Refusal::Bad(format!("name 2 to {SIDES_MAX} runs; the request names {count}"))),
        };
    }
    let side = |ticked: &str, asked: &str| -> Result<Vec<String>, Refusal> {
        let mut names = named(ticked);
        for search in named(asked).iter().filter(|search| !search.trim().is_empty()) {
            let found = searched(site, site.runs.all(), Some(search))?.0.runs;
            names.extend(found.iter().map(|run| name_of(Path::new(&run.path))));
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        match names.len() {
            0 => Err(Refusal::Bad(format!(
                "no run is chosen as {ticked}; tick a run in the column {ticked}, or search for runs, for example with \
                 `tag={ticked}`"
            ))),
            1..=RUNS_OF_SIDE_MAX => Ok(names),
            count => {
                let text = format!(
                    "{count} runs are chosen as {ticked}, and at most {RUNS_OF_SIDE_MAX} can be \
                    compared"
                );
                Err(Refusal::Bad(format!("{text}: add a term, as in `tag={ticked} started>=2026-11-01`")))
            }
        }
    };
    Ok(vec![side("before", "was")?, side("after", "is")?])
}

/// `?before=RUN&after=RUN`, each once for each run, `was` and `is` with a search for more, or `?side=RUN&side=RUN`, the last
/// of which is the baseline.
pub(crate) async fn compare(
    State(site): State<Arc<Site>>,
    RawQuery(query): RawQuery,
) -> Result<Html<String>, Refusal> {
    let asked = site.clone();
    let sides = blocking(move || sides(&asked, query.as_deref().unwrap_or_default())).await?;
    let frame = Frame { links: vec![("All runs".to_owned(), "/".to_owned())], ..Frame::default() };
    let lengths: Vec<usize> = sides.iter().map(Vec::len).collect();
    let kind = format!("compare {lengths:?}");
    let page = page_text(&site, &kind, sides.concat(), move |site, names| {
        let mut names = names.iter();
        let side = |length: usize| names.by_ref().take(length).map(|name| site.open(name)).collect();
        let sides: Vec<Vec<Folder>> = lengths.into_iter().map(side).collect::<Result<_, _>>()?;
        let result = site.source.compare(&sides)?;
        Ok(whylate_report::compare(&result).html_within(&frame))
    });
    Ok(Html(page.await?))
}

/// The parameters of a series.
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
    let names = runs.iter().map(|run| name_of(Path::new(&run.path))).collect();
    let kind = format!("series {statistic} of {}", cell.as_deref().unwrap_or_default());
    let page = page_text(&site, &kind, names, move |site, _| {
        let open = |run: &RunSummary| site.open(&name_of(Path::new(&run.path)));
        let cell = cell.as_deref().filter(|it| !it.is_empty());
        let series = site.source.series(&runs, &open, &statistic, cell)?;
        let address = |path: &str| address_of(&name_of(Path::new(path)));
        Ok(whylate_report::series(&series, Some(address)).html_within(&frame))
    });
    Ok(Html(page.await?))
}

async fn find(site: &Arc<Site>, name: &str) -> Result<Folder, Refusal> {
    let (site, name) = (site.clone(), name.to_owned());
    blocking(move || site.runs.find(&name)).await
}

/// A page made from runs: the cached one, unless one of them has changed.
pub(crate) async fn page_text(
    site: &Arc<Site>,
    kind: &str,
    names: Vec<String>,
    make: impl FnOnce(&Site, &[String]) -> Result<String, String> + Send + 'static,
) -> Result<String, Refusal> {
    let _making = site.pages.making().await;
    let (site, kind) = (site.clone(), kind.to_owned());
    blocking(move || {
        let mut stamps: Vec<Vec<Found>> = Vec::new();
        for name in &names {
            // One after another: together they may exceed the limit of open files.
            let all = site.runs.find(name)?.tree().map_err(|error| Refusal::Run(error.to_string()))?;
            if all.iter().filter(|it| !it.is_folder).map(|it| it.bytes).sum::<u64>() > RUN_BYTES_MAX {
                let text =
                    format!("{name} is too large for a page: `whylate report` writes the report to a file");
                return Err(Refusal::Run(text));
            }
            stamps.push(all);
        }
        let key = (kind, names);
        if let Some((former, page)) = kept(&site).get(&key)
            && *former == stamps
        {
            return Ok(page.to_string());
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

/// Reading files takes threads that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Refusal::Run(error.to_string())))
}

fn address(run: &RunSummary) -> String {
    address_of(&name_of(Path::new(&run.path)))
}

fn address_of(name: &str) -> String {
    format!("/runs/{}", encoded(name))
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
