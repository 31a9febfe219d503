//! Pages of a lake with simulated answers: what is shown, the effect of hostile names, and the pages without an
//! answer.

use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use whylate_farm::{AnswerRows, Damaged};
use whylate_serve::{Lake, Settings, serve};
use whylate_testing::says;

const HOSTILE: &str = "\"><script>alert(1)</script>' OR '1'='1";
const COLUMNS: [&str; 19] = [
    "host",
    "plan",
    "run",
    "started_at",
    "started_s",
    "kernel",
    "architecture",
    "processor",
    "verdict",
    "mismatches",
    "labels",
    "limit_ns",
    "max_ns",
    "cell",
    "probe",
    "p50_ns",
    "p99_ns",
    "p999_ns",
    "p9999_ns",
];

fn table(columns: &[&str], rows: Vec<Value>) -> AnswerRows {
    let values = |row: Value| row.as_array().unwrap().clone();
    AnswerRows {
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        rows: rows.into_iter().map(values).collect(),
        ..AnswerRows::default()
    }
}

/// A run of a board: it becomes twice as late at the tenth run of `late`.
fn run(host: &str, number: u64) -> Value {
    let tail = if host == "late" && number >= 10 { 40_000 } else { 20_000 } + number % 3 * 100;
    let (verdict, limit) = if host == "late" && number == 19 { ("fail", 30_000) } else { ("pass", 90_000) };
    let kernel = if number < 10 { "6.12.0-rt" } else { "7.2.0-rt" };
    let started = 1_790_000_000 + number * 86_400;
    json!([
        host,
        "nightly",
        format!("night-{number}"),
        "2026-09-21T14:13:20Z",
        started,
        kernel,
        "aarch64",
        HOSTILE,
        verdict,
        "",
        if host == "late" { "rack=2 soc=<b>" } else { "rack=1" },
        limit,
        2 * tail,
        "idle",
        "timer",
        tail / 8,
        tail / 2,
        tail,
        tail + 50
    ])
}

/// The answers of a lake with three boards, and the statements that it was asked.
#[derive(Clone, Default)]
struct Made(Arc<Mutex<Vec<String>>>);

impl Made {
    fn answer(&self, sql: &str) -> Result<AnswerRows, String> {
        self.0.lock().unwrap().push(sql.to_owned());
        if sql.contains("AS alarm") {
            let columns = ["alarm", "host", "plan", "what", "measured", "allowed", "run"];
            let silent = json!(["silent", "quiet", "nightly", "days without a run", 30.0, 3.0, "night-19"]);
            let other = json!(["probe", HOSTILE, "nightly", HOSTILE, 0.0, 5.0, "night-19"]);
            return Ok(table(&columns, vec![silent, other]));
        }
        if sql.contains("figure_ns") {
            let columns =
                ["plan", "cell", "probe", "host", "kernel", "figure_ns", "started_at", "verdict", "labels"];
            let figure = |host: &str, number: u64| {
                let run = run(host, number);
                json!(["nightly", "idle", "timer", host, run[5], run[17], run[3], run[8], run[10]])
            };
            let all = ["late", "quiet", HOSTILE]
                .into_iter()
                .flat_map(|host| (0..20).map(move |it| figure(host, it)));
            return Ok(table(&columns, all.collect()));
        }
        let hosts = ["late", "quiet", HOSTILE];
        let meant = hosts
            .into_iter()
            .filter(|host| !sql.contains("WHERE r.host = '") || sql.contains(&format!("'{host}'")));
        Ok(table(&COLUMNS, meant.flat_map(|host| (0..20).map(move |number| run(host, number))).collect()))
    }
}

fn serving(
    ask: impl Fn(&str) -> Result<AnswerRows, String> + Send + Sync + 'static,
    token: Option<&str>,
) -> SocketAddr {
    let settings = Settings { address: "127.0.0.1:0".parse().unwrap(), token: token.map(str::to_owned) };
    let (sender, receiver) = mpsc::channel();
    let lake = Lake { name: "made".to_owned(), ask: Box::new(ask) };
    std::thread::spawn(move || serve(settings, None, Some(lake), |address| sender.send(address).unwrap()));
    receiver.recv_timeout(Duration::from_secs(10)).unwrap()
}

/// The status, and the answer with its head.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    get_as(address, path, "localhost")
}

fn get_as(address: SocketAddr, path: &str, host: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
}

/// Checks that no name has become markup.
fn assert_harmless(page: &str) {
    for markup in ["<script>alert", "\"><script", "' OR '"] {
        assert!(!page.contains(markup), "{markup}: {page}");
    }
}

#[test]
fn the_wall_has_a_card_for_each_board_and_those_with_alarms_come_first() {
    let made = Made::default();
    let asked = made.clone();
    let address = serving(move |sql| made.answer(sql), None);
    let (status, answer) = get(address, "/");
    assert!(status == 303 && answer.contains("location: /farm\r\n"), "{answer}");
    let (status, page) = get(address, "/farm");
    assert_eq!(status, 200, "{page}");
    assert_harmless(&page);
    assert_eq!(page.matches("<li class=\"card").count(), 3);
    assert!(page.contains("3 boards need attention") && page.contains("queried just now"), "{page}");
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(
        place("/farm/board/quiet") < place("/farm/board/late"),
        "an alarm is before a run above its limit"
    );
    assert!(says("silent-no-run-for", &page));
    assert!(
        page.contains("&lt;script&gt;alert(1)&lt;/script&gt;")
            && page.contains("/farm/board/%22%3E%3Cscript")
    );
    assert!(
        page.contains("aria-label=\"nightly idle timer: p50 ") && page.contains("class=\"line p999\" d=\"M")
    );
    assert_eq!(page.matches("<circle").count(), 1, "one run was above its limit");

    let (_, alarming) = get(address, "/farm?alarming=1");
    assert!(alarming.contains("/farm/board/late"), "its newest run failed: {alarming}");
    assert!(get(address, "/farm?alarming=1&q=verdict%3Dpass").1.contains("2 of 3 boards"));
    assert!(get(address, "/farm?alarming=1&q=host%3Dlate").1.contains("1 of 3 boards"));
    assert!(get(address, "/farm?q=verdict%3Dfail").1.contains("1 of 3 boards"));
    assert!(get(address, "/farm?q=silent").1.contains("/farm/board/quiet"));
    assert!(page.contains("<option>rack</option>") && page.contains("<option>soc</option>"), "{page}");
    let (_, grouped) = get(address, "/farm?q=tag%3Drack%3D2&by=%3Cu%3Ex");
    assert!(!grouped.contains("<u>x"), "{grouped}");
    let (_, labelled) = get(address, "/farm?q=tag%3Drack%3D2");
    assert!(labelled.contains("1 of 3 boards") && labelled.contains("rack=2 · soc=&lt;b&gt;"), "{labelled}");
    let (status, none) = get(address, "/farm?q=%22%27alert(1)");
    assert!(
        status == 200 && none.contains("0 of 3 boards") && none.contains("value=\"&quot;&#x27;alert(1)\""),
        "{none}"
    );
    assert_eq!(get(address, "/farm?q=colour%3Dred").0, 400);
    assert_eq!(asked.0.lock().unwrap().len(), 2, "each question was asked once");
    assert_eq!(get_as(address, "/farm", "evil.example").0, 403);
}

#[test]
fn a_board_has_its_history_with_changes_and_only_plain_names_are_asked_for() {
    let made = Made::default();
    let asked = made.clone();
    let address = serving(move |sql| made.answer(sql), None);
    let (status, page) = get(address, "/farm/board/late");
    assert_eq!(status, 200, "{page}");
    assert_harmless(&page);
    assert!(says("change-runs", &page) && page.contains("\"kind\":\"series\""), "{page}");
    assert!(says("from-here-on", &page) && page.contains("<option selected>p99.9</option>"), "{page}");
    assert!(!page.contains("silent"), "the wall has not been asked for");
    assert!(page.contains("rack=2") && page.contains("soc=&lt;b&gt;"), "{page}");
    let (status, page) = get(address, "/farm/board/late?plan=nightly&cell=idle&probe=timer&statistic=p50");
    assert!(status == 200 && page.contains("timer p50"), "{page}");
    let (status, page) = get(address, "/farm/board/late?cell=none");
    assert!(status == 200 && says("no-complete-run-has", &page) && page.contains("nightly idle timer"));
    for statistic in ["max", "p42"] {
        let (status, said) = get(address, &format!("/farm/board/late?statistic={statistic}"));
        assert!(status == 400 && says("choose-p50-p99-p99", &said), "{said}");
    }
    assert_eq!(asked.0.lock().unwrap().len(), 1, "one answer has all of it");
    assert_eq!(get(address, "/farm/board/unknown").0, 404);
    for name in ["%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E", "late'%20OR%20'1'%3D'1", "..%2Fetc", "late%00"]
    {
        let (status, page) = get(address, &format!("/farm/board/{name}"));
        assert_eq!(status, 404, "{name}");
        assert_harmless(&page);
    }
    let asked = asked.0.lock().unwrap();
    assert_eq!(asked.len(), 2, "{asked:?}");
}

#[test]
fn two_groups_are_compared_by_the_rules_of_verdicts() {
    let made = Made::default();
    let address = serving(move |sql| made.answer(sql), None);
    let (status, page) = get(address, "/farm/compare");
    assert!(status == 200 && page.contains("6.12.0-rt") && page.contains("Two groups of runs"), "{page}");
    let (status, page) = get(address, "/farm/compare?first=6.12&second=7.2&margin=10%25");
    assert_eq!(status, 200, "{page}");
    assert_harmless(&page);
    assert!(page.contains("7.2 against 6.12") && page.contains("heterogeneity"), "{page}");
    assert!(page.contains("3 boards") && says("late-runs", &page) && page.contains("2.00 ×"), "{page}");
    assert!(page.contains("1 board disagrees"), "{page}");
    let (_, page) =
        get(address, "/farm/compare?first=kernel%3C7+host%3Dlate&second=kernel%3E%3D7+host%3Dquiet");
    assert!(page.contains("NOTHING TO COMPARE"), "one board of each group says nothing: {page}");
    let labels = "first=kernel%3C7+tag%3Drack%3D1&second=kernel%3E%3D7+tag%3Drack%3D1";
    let (_, page) = get(address, &format!("/farm/compare?{labels}"));
    assert!(page.contains("2 boards") && !page.contains("late (10"), "two boards are in the rack: {page}");
    assert!(!page.contains("No board disagrees") && says("boards-too-few", &page), "{page}");
    assert_eq!(get(address, "/farm/compare?first=colour%3Dred&second=7").0, 400);
    assert_eq!(get(address, "/farm/compare?first=6&second=7&margin=much").0, 400);
    let (status, page) = get(address, "/farm/compare?first=%22script&second='+OR+'");
    assert!(status == 200 && page.contains("value=\"&quot;script\""), "{page}");
    assert_harmless(&page);
}

#[test]
fn without_an_answer_the_page_says_why_and_no_reader_waits_for_ever() {
    let address = serving(|_| Err("duckdb is not installed: <b>pip</b> install duckdb".to_owned()), None);
    for path in ["/farm", "/farm/board/late", "/farm/compare?first=6&second=7"] {
        let (status, page) = get(address, path);
        assert!(status == 503 && says("lake-gives-no-answer", &page), "{page}");
        assert!(page.contains("&lt;b&gt;pip&lt;/b&gt; install duckdb") && page.contains("again=1"), "{page}");
    }

    let made = Made::default();
    let is_ready = Arc::new(AtomicBool::new(false));
    let ready = is_ready.clone();
    let address = serving(
        move |sql| {
            while !ready.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            made.answer(sql)
        },
        None,
    );
    let (status, page) = get(address, "/farm?q=quiet&again=1");
    assert!(status == 202 && says("lake-being-asked", &page), "{page}");
    assert!(page.contains("refresh: 2; url=/farm?q=quiet\r\n"), "{page}");
    is_ready.store(true, Ordering::SeqCst);
    let (status, page) = get(address, "/farm?q=quiet");
    assert!(status == 200 && page.contains("1 of 3 boards") && !page.contains("refresh:"), "{page}");
}

#[test]
fn an_answer_without_damaged_objects_says_so_on_each_page() {
    let made = Made::default();
    let damaged =
        |object: &str| Damaged { object: object.to_owned(), what: format!("it is cut off {HOSTILE}") };
    let answer = move |sql: &str| {
        let damaged =
            vec![damaged("table=runs/host=late/month=2026-09/night-3.parquet"), damaged("table=runs/other")];
        made.answer(sql).map(|rows| AnswerRows { damaged, ..rows })
    };
    let address = serving(answer, None);
    for (path, expected) in [
        ("/farm", 200),
        ("/farm/board/late", 200),
        ("/farm/compare?first=6.12&second=7.2", 200),
        // The objects may have held the board.
        ("/farm/board/unknown", 404),
    ] {
        let (status, page) = get(address, path);
        assert_eq!(status, expected, "{page}");
        assert_harmless(&page);
        let named = "made/table=runs/host=late/month=2026-09/night-3.parquet is damaged and left out of the answer: it is cut off";
        assert_eq!(
            page.matches(named).count(),
            1,
            "each object is named once, of however many answers: {page}"
        );
        assert!(page.contains("whylate pull made --check") && says("whylate-push-run-made", &page), "{page}");
    }
}

#[test]
fn objects_are_named_without_an_answer_and_when_only_the_alarms_lack_them() {
    let made = Made::default();
    let has_failed = Arc::new(AtomicBool::new(false));
    let fails = has_failed.clone();
    let answer = move |sql: &str| {
        if fails.load(Ordering::SeqCst) {
            return Err(format!("duckdb: no room\nmade/table=cells: damaged {HOSTILE}"));
        }
        let damaged = Damaged { object: "table=runs".to_owned(), what: "it is missing".to_owned() };
        let damaged = if sql.contains("AS alarm") { vec![damaged] } else { Vec::new() };
        made.answer(sql).map(|rows| AnswerRows { damaged, ..rows })
    };
    let address = serving(answer, None);
    assert_eq!(get(address, "/farm").0, 200);
    let (status, page) = get(address, "/farm/board/late");
    assert!(status == 200 && page.contains("made/table=runs is damaged"), "{page}");
    has_failed.store(true, Ordering::SeqCst);
    let (status, page) = get(address, "/farm/board/quiet");
    assert!(status == 503 && page.contains("duckdb: no room") && page.contains("made/table=cells: damaged"));
    assert!(!page.contains("no room made"), "a line each: {page}");
    assert_harmless(&page);
}

#[test]
fn an_unknown_address_lists_the_existing_pages() {
    let made = Made::default();
    let address = serving(move |sql| made.answer(sql), None);
    for path in ["/farm/", "/farm/board", "/metrics", "/%22%3E%3Cscript%3Ealert(1)", "/..%2fetc"] {
        let (status, page) = get(address, path);
        assert!(
            status == 404 && page.contains("No such page") && page.contains("href=\"/farm\""),
            "{path}: {page}"
        );
        assert!(page.contains("/farm/board/NAME") && !page.contains("/runs/NAME"), "{page}");
        assert_harmless(&page);
    }
}

#[test]
fn a_lake_is_for_those_with_the_token() {
    let made = Made::default();
    let address = serving(move |sql| made.answer(sql), Some("0123456789abcdef"));
    for path in ["/", "/farm", "/farm/compare", "/farm/board/late", "/farm/"] {
        assert_eq!(get(address, path).0, 401, "{path}");
    }
}

/// A lake in a bucket has its own runtime, which cannot be dropped inside another one.
#[test]
fn an_address_in_use_is_reported_for_a_lake_with_its_own_runtime() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = Settings { address: taken.local_addr().unwrap(), token: None };
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let ask = move |_: &str| Err(format!("{runtime:?}"));
    let lake = Lake { name: "made".to_owned(), ask: Box::new(ask) };
    let said = serve(settings, None, Some(lake), |_| {}).unwrap_err().to_string();
    assert!(said.contains("cannot serve"), "{said}");
}
