//! Pages of a lake: the wall of its boards, one board, two groups of runs.

use crate::answers::{Answers, Said};
use crate::error::Refusal;
use crate::pages::{blocking, encoded};
use axum::extract::{Path as Name, Query, State};
use axum::http::header::REFRESH;
use axum::http::{StatusCode, Uri};
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whylate_core::order::InOrder;
use whylate_core::plan::{Share, Statistic};
use whylate_core::result::{FarmBoard, FarmRun, FarmSeries, RunSearch, RunState, RunSummary};
use whylate_farm::{AnswerRows, Damaged, FIGURES, RunGroup};
use whylate_report::{FarmAnswer, FarmGroups, Field, FieldValue, Form, Frame};

pub(crate) const WALL: &str = "/farm";
const COMPARE: &str = "/farm/compare";
/// After this number of seconds the browser reloads a page that waits for an answer.
const REFRESH_S: u32 = 2;
/// The default margin: smaller differences do not matter.
const MARGIN: &str = "5%";

pub(crate) struct Farm {
    pub(crate) lake: String,
    pub(crate) answers: Arc<Answers>,
    /// Whether the same server shows a folder of runs.
    pub(crate) has_runs: bool,
}

struct Answered {
    rows: Vec<Arc<AnswerRows>>,
    answer: FarmAnswer,
    is_asking: bool,
}

/// The address of a requested page, without the request for a newer answer.
#[derive(Clone)]
struct PageAddress {
    address: String,
    again: bool,
}

impl PageAddress {
    fn of(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let (again, kept): (Vec<&str>, Vec<&str>) = pairs.partition(|pair| *pair == "again=1");
        let query = if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) };
        Self { address: format!("{}{query}", uri.path()), again: !again.is_empty() }
    }

    fn newer(&self) -> String {
        format!("{}{}again=1", self.address, if self.address.contains('?') { '&' } else { '?' })
    }
}

/// The statement of a question of the library.
fn question(name: &str) -> &'static str {
    whylate_farm::library().iter().find(|it| it.name == name).map_or("", |it| it.sql)
}

impl Farm {
    /// The answers, or the page that says why there are none yet.
    async fn answered(&self, statements: &[&str], place: &PageAddress) -> Result<Answered, Refusal> {
        for sql in statements {
            self.answers.begin(sql, place.again)?;
        }
        let (mut rows_of, mut oldest, mut is_asked, mut failure) = (Vec::new(), Duration::ZERO, false, None);
        for sql in statements {
            match self.answers.get(sql).await {
                Said::Rows { rows, age, is_asking, failed } => {
                    rows_of.push(rows);
                    (oldest, is_asked) = (oldest.max(age), is_asked || is_asking);
                    failure = failure.or(failed);
                }
                Said::Asking(since) => return Err(Refusal::Page(Box::new(self.waiting(since, place)))),
                Said::Failed(why) => return Err(Refusal::Page(Box::new(self.failed(&why, place)))),
            }
        }
        let damaged: BTreeSet<Damaged> = rows_of.iter().flat_map(|rows| rows.damaged.clone()).collect();
        let mut damaged = Damaged::said(&Vec::from_iter(damaged), &self.lake);
        let mut asked = format!("queried {}", ago(oldest));
        if is_asked {
            asked += "; a new query is running";
        } else if let Some(why) = failure {
            let mut lines = why.lines().map(str::to_owned);
            asked += &format!("; a later query failed: {}", lines.next().unwrap_or_default());
            add_new(&mut damaged, lines);
        }
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
        let answer = FarmAnswer { lake: self.lake.clone(), asked, now_s, damaged };
        Ok(Answered { rows: rows_of, answer, is_asking: is_asked })
    }

    fn waiting(&self, since: Duration, place: &PageAddress) -> Response {
        let lines = vec![
            format!(
                "the query has taken {} s so far; the first answer of a large lake takes minutes",
                since.as_secs()
            ),
            format!("this page reloads every {REFRESH_S} s"),
        ];
        let page =
            whylate_report::notice("The lake is being queried", lines).html_within(&self.frame(None, place));
        (StatusCode::ACCEPTED, refresh(place), Html(page)).into_response()
    }

    fn failed(&self, why: &str, place: &PageAddress) -> Response {
        let page =
            whylate_report::notice("The lake does not answer", why.lines().map(str::to_owned).collect());
        let page = page.html_within(&self.frame(None, place));
        (StatusCode::SERVICE_UNAVAILABLE, Html(page)).into_response()
    }

    /// `damaged`: objects that may have held the board.
    fn missing(&self, host: &str, damaged: Vec<String>, place: &PageAddress) -> Response {
        let lines = [vec![format!("the lake has no board {host}")], damaged].concat();
        let page = whylate_report::notice("No such board", lines);
        (StatusCode::NOT_FOUND, Html(page.html_within(&self.frame(None, place)))).into_response()
    }

    fn frame(&self, form: Option<Form>, place: &PageAddress) -> Frame {
        let runs = self.has_runs.then_some(("Runs", "/".to_owned()));
        let links = [
            ("All boards", WALL.to_owned()),
            ("Compare", COMPARE.to_owned()),
            ("Query again", place.newer()),
        ];
        let links = runs.into_iter().chain(links).map(|(words, address)| (words.to_owned(), address));
        Frame { links: links.collect(), forms: form.into_iter().collect(), ..Frame::default() }
    }
}

/// Adds the lines that are not there yet.
fn add_new(lines: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    for line in more {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
}

/// The header that makes a browser reload, without the request for a newer answer.
fn refresh(place: &PageAddress) -> [(axum::http::HeaderName, String); 1] {
    [(REFRESH, format!("{REFRESH_S}; url={}", place.address))]
}

/// The page; it reloads itself while a newer answer is pending.
fn shown(page: String, is_asking: bool, place: &PageAddress) -> Response {
    if is_asking { (refresh(place), Html(page)).into_response() } else { Html(page).into_response() }
}

fn ago(age: Duration) -> String {
    match age.as_secs() {
        0..5 => "just now".to_owned(),
        seconds @ 5..120 => format!("{seconds} s ago"),
        seconds => format!("{} min ago", seconds / 60),
    }
}

/// The parameters of the wall.
#[derive(Debug, Deserialize)]
pub(crate) struct AskedWall {
    #[serde(default)]
    q: String,
    #[serde(default)]
    by: String,
    alarming: Option<String>,
}

pub(crate) async fn wall(
    State(farm): State<Arc<Farm>>,
    uri: Uri,
    Query(asked): Query<AskedWall>,
) -> Result<Response, Refusal> {
    let place = PageAddress::of(&uri);
    let terms: Vec<&str> = asked.q.split_whitespace().collect();
    let search = RunSearch::of(&terms).map_err(|error| Refusal::Bad(error.to_string()))?;
    let answered = farm.answered(&[question("boards"), question("alarms")], &place).await?;
    let (is_asking, shown_farm, shown_place) = (answered.is_asking, farm.clone(), place.clone());
    let page = blocking(move || {
        let mut boards = whylate_farm::boards(&answered.rows[0], answered.rows.get(1).map(Arc::as_ref));
        let frame = shown_farm.frame(Some(form_of_wall(&boards, &asked)), &shown_place);
        let all = boards.len();
        boards.retain(|board| {
            (asked.alarming.is_none() || board.needs_attention())
                && board.series.iter().any(|series| search.matches(&summary(board, series)))
        });
        let address = |host: &str| format!("{WALL}/board/{}", encoded(host));
        let page = whylate_report::wall(&boards, all, &asked.by, &answered.answer, address);
        Ok(page.html_within(&frame))
    });
    Ok(shown(page.await?, is_asking, &place))
}

fn form_of_wall(boards: &[FarmBoard], asked: &AskedWall) -> Form {
    let runs = boards.iter().flat_map(|board| &board.series).filter_map(|series| series.runs.last());
    let keys = runs.flat_map(|run| &run.labels).filter_map(|label| label.split_once('='));
    let keys: BTreeSet<String> = keys.map(|(key, _)| key.to_owned()).collect();
    let text = FieldValue::Text(asked.q.clone(), "kernel>=6.12 tag=rack=2 silent", Vec::new());
    let mut fields = vec![Field { name: "q", label: "Boards", value: text }];
    if !keys.is_empty() {
        let all = [String::new()].into_iter().chain(keys).collect();
        fields.push(Field { name: "by", label: "by", value: FieldValue::Choice(asked.by.clone(), all) });
    }
    let tick = FieldValue::Tick(asked.alarming.is_some());
    fields.push(Field { name: "alarming", label: "only with alarms", value: tick });
    Form { action: WALL.to_owned(), button: "Search".to_owned(), fields }
}

/// The newest run of a series, for the search: alarms and labels are its tags, the processor its note.
fn summary(board: &FarmBoard, series: &FarmSeries) -> RunSummary {
    let run = series.runs.last().cloned().unwrap_or_default();
    RunSummary {
        path: run.name,
        plan: series.plan.clone(),
        started_at: run.started_at,
        state: RunState::Complete,
        running: false,
        verdict: run.verdict,
        figures: None,
        host: board.host.clone(),
        kernel: run.kernel,
        tags: series.alarms.iter().map(|alarm| alarm.kind.clone()).chain(run.labels).collect(),
        note: Some(run.machine),
    }
}

/// The parameters of a board; a missing one is free.
#[derive(Debug, Deserialize)]
pub(crate) struct AskedBoard {
    #[serde(default)]
    plan: String,
    #[serde(default)]
    cell: String,
    #[serde(default)]
    probe: String,
    statistic: Option<String>,
}

pub(crate) async fn board(
    State(farm): State<Arc<Farm>>,
    uri: Uri,
    Name(host): Name<String>,
    Query(asked): Query<AskedBoard>,
) -> Result<Response, Refusal> {
    let place = PageAddress::of(&uri);
    let statistic = quantile(asked.statistic.as_deref().unwrap_or("p99.9"))?;
    let Some(sql) = whylate_farm::history_of(&host) else {
        return Ok(farm.missing(&host, Vec::new(), &place));
    };
    let mut answered = farm.answered(&[&sql], &place).await?;
    // Current alarms are shown if the wall was requested before.
    let alarms = farm.answers.known(question("alarms"));
    let lacks = alarms.iter().flat_map(|rows| Damaged::said(&rows.damaged, &farm.lake));
    add_new(&mut answered.answer.damaged, lacks);
    let is_asking = answered.is_asking;
    let (shown_farm, shown_place) = (farm.clone(), place.clone());
    let page = blocking(move || {
        let boards = whylate_farm::boards(&answered.rows[0], alarms.as_deref());
        let Some(board) = boards.first() else { return Ok(Err(answered.answer.damaged)) };
        let series = chosen(board, &asked);
        let course = series.and_then(|series| whylate_farm::course(series, statistic));
        let form = form_of_board(board, series, statistic, uri.path());
        let frame = shown_farm.frame(Some(form), &shown_place);
        Ok(Ok(whylate_report::board(board, course.as_ref(), &answered.answer).html_within(&frame)))
    });
    Ok(match page.await? {
        Ok(page) => shown(page, is_asking, &place),
        Err(damaged) => farm.missing(&host, damaged, &place),
    })
}

/// A statistic that a lake has.
fn quantile(text: &str) -> Result<Statistic, Refusal> {
    let known = text.parse().ok().filter(|it: &Statistic| FarmRun::QUANTILES.contains(&it.name()));
    known.ok_or_else(|| {
        Refusal::Bad(format!(
            "`{text}` is not a statistic of a lake; choose {}",
            FarmRun::QUANTILES.join(", ")
        ))
    })
}

/// The requested series; without a request, the one with the largest latency in the newest run.
fn chosen<'b>(board: &'b FarmBoard, asked: &AskedBoard) -> Option<&'b FarmSeries> {
    let is = |asked: &str, name: &str| asked.is_empty() || asked == name;
    let meant = board.series.iter().filter(|it| {
        !it.cell.is_empty()
            && is(&asked.plan, &it.plan)
            && is(&asked.cell, &it.cell)
            && is(&asked.probe, &it.probe)
    });
    meant.max_by_key(|it| it.runs.last().map(|run| (run.started_s, run.quantiles_ns[2])))
}

fn form_of_board(board: &FarmBoard, series: Option<&FarmSeries>, statistic: Statistic, action: &str) -> Form {
    let choice = |name: &'static str, part: fn(&FarmSeries) -> &String| {
        let with_figures = board.series.iter().filter(|it| !it.cell.is_empty());
        let mut all: Vec<String> = with_figures.map(|it| part(it).clone()).collect();
        all.order();
        all.dedup();
        Field {
            name,
            label: name,
            value: FieldValue::Choice(series.map(part).cloned().unwrap_or_default(), all),
        }
    };
    let statistics = FarmRun::QUANTILES.map(str::to_owned).to_vec();
    let fields = vec![
        choice("plan", |it| &it.plan),
        choice("cell", |it| &it.cell),
        choice("probe", |it| &it.probe),
        Field {
            name: "statistic",
            label: "statistic",
            value: FieldValue::Choice(statistic.name().to_owned(), statistics),
        },
    ];
    Form { action: action.to_owned(), button: "Show".to_owned(), fields }
}

#[derive(Debug, Deserialize)]
pub(crate) struct AskedGroups {
    #[serde(default)]
    first: String,
    #[serde(default)]
    second: String,
    margin: Option<String>,
}

pub(crate) async fn compare(
    State(farm): State<Arc<Farm>>,
    uri: Uri,
    Query(asked): Query<AskedGroups>,
) -> Result<Response, Refusal> {
    let place = PageAddress::of(&uri);
    let group = |text: &str| RunGroup::of(text).map_err(|error| Refusal::Bad(error.to_string()));
    let (first, second) = (group(&asked.first)?, group(&asked.second)?);
    let margin_text = asked.margin.filter(|it| !it.is_empty()).unwrap_or_else(|| MARGIN.to_owned());
    let margin: Share = margin_text.parse().map_err(Refusal::Bad)?;
    let answered = farm.answered(&[FIGURES], &place).await?;
    let (is_asking, shown_farm, shown_place) = (answered.is_asking, farm.clone(), place.clone());
    let page = blocking(move || {
        let rows = &answered.rows[0];
        let kernels = whylate_farm::kernels(rows);
        let field = |name, label, value: &str, example| Field {
            name,
            label,
            value: FieldValue::Text(value.to_owned(), example, kernels.clone()),
        };
        let margin_field = Field {
            name: "margin",
            label: "margin",
            value: FieldValue::Text(margin_text, MARGIN, Vec::new()),
        };
        let fields = vec![
            field("first", "before", &asked.first, "6.12"),
            field("second", "now", &asked.second, "kernel>=7 tag=rack=1"),
            margin_field,
        ];
        let form = Form { action: COMPARE.to_owned(), button: "Compare".to_owned(), fields };
        let frame = shown_farm.frame(Some(form), &shown_place);
        let groups = FarmGroups { first: asked.first.trim(), second: asked.second.trim(), margin: margin.0 };
        let page = match groups.first.is_empty() || groups.second.is_empty() {
            true => whylate_report::farm_groups(&kernels, &answered.answer),
            false => {
                let found = whylate_farm::compare_groups(rows, &first, &second, margin.0);
                whylate_report::farm_compare(&found, groups, &answered.answer)
            }
        };
        Ok(page.html_within(&frame))
    });
    Ok(shown(page.await?, is_asking, &place))
}

#[cfg(test)]
mod tests {
    use super::PageAddress;

    #[test]
    fn a_newer_answer_is_asked_for_once() {
        let place = |uri: &str| PageAddress::of(&uri.parse().unwrap());
        let asked = place("/farm?q=a%26b&again=1&alarming=1");
        assert_eq!((asked.address.as_str(), asked.again), ("/farm?q=a%26b&alarming=1", true));
        assert_eq!(asked.newer(), "/farm?q=a%26b&alarming=1&again=1");
        assert_eq!((place("/farm").newer().as_str(), place("/farm").again), ("/farm?again=1", false));
    }
}
