//! `whylate serve`: what is shown, what is refused, and a run that is followed while it is running.

use crate::tool::{SMALL_PLAN, alone, command, folder, signal, start, text, until, wait, whylate, write};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;
use whylate_testing::{Need, says, skip};

/// A server that ends with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn of(folder: &str, token: Option<&str>) -> Self {
        Self::with(&["--dir", folder], token.map(|token| ("WHYLATE_TOKEN", token)))
    }

    /// A server with these arguments and this variable of the environment.
    fn with(arguments: &[&str], variable: Option<(&str, &str)>) -> Self {
        let mut serve = command(&[&["serve", "--address", "127.0.0.1:0"], arguments].concat());
        variable.iter().for_each(|(name, value)| _ = serve.env(name, value));
        let mut child = serve.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
        let port =
            said.split("127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
        Self { port: port.parse().unwrap_or_else(|_| panic!("{said}")), child }
    }

    /// The stream after a request with these header lines.
    pub(crate) fn request(&self, path: &str, headers: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").unwrap();
        stream
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.get_with(path, "Host: localhost\r\n")
    }

    /// The status, and the answer with its head.
    fn get_with(&self, path: &str, headers: &str) -> (u16, String) {
        let mut bytes = Vec::new();
        self.request(path, headers).read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn runs_are_listed_shown_compared_and_given_away() {
    let measuring = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    // Names with markup and with characters that have a meaning in addresses.
    let names = ["first", "a b%2e&<i>\"x"];
    for name in names {
        let said = whylate(&["run", &plan, "-o", text(&folder.path().join("runs").join(name)), "--quiet"]);
        assert!(said.code == Some(0), "{said:?}");
    }
    drop(measuring);
    // Folders that are not runs, and links that leave the folder.
    std::fs::create_dir(folder.path().join("runs/empty")).unwrap();
    std::os::unix::fs::symlink("/etc", folder.path().join("runs/out")).unwrap();
    let server = Server::of(text(&folder.path().join("runs")), None);

    let (status, list) = server.get("/");
    assert_eq!(status, 200, "{list}");
    assert!(
        list.contains("href=\"/runs/first\"") && list.contains("/runs/a%20b%252e%26%3Ci%3E%22x"),
        "{list}"
    );
    assert!(!list.contains("<i>\"x") && list.contains("2 runs in"), "{list}");
    assert!(list.contains("content-security-policy: default-src 'none'"), "{list}");
    assert!(server.get("/?q=plan%3Dnothing").1.contains("0 of 2 runs"));
    let (status, refused) = server.get("/?q=colour%3Dred");
    assert!(status == 400 && refused.contains("no key `colour`"), "{refused}");

    let (status, page) = server.get("/runs/first");
    assert!(status == 200 && page.contains("<h1") && page.contains("All runs"), "{page}");
    assert_eq!(server.get("/runs/a%20b%252e%26%3Ci%3E%22x").0, 200);
    for path in
        ["/runs/empty", "/runs/out", "/runs/..", "/runs/%2e%2e%2fetc", "/runs/first%2f..%2f..", "/etc/passwd"]
    {
        let (status, said) = server.get(path);
        assert!(
            status == 404 && (said.contains("there is no run") || said.contains("/runs/NAME")),
            "{path}: {said}"
        );
    }

    let (status, page) = server.get("/compare?side=first&side=a+b%252e%26%3Ci%3E%22x");
    assert!(status == 200 && page.to_lowercase().contains("cannot tell"), "{page}");
    assert_eq!(server.get("/compare?side=first").0, 400);
    // The list has figures, and boxes for both sides.
    let answer = server.get("/runs.json").1;
    let runs = answer.split_once("\r\n\r\n").expect("a body").1;
    let runs: serde_json::Value = serde_json::from_str(runs).expect("JSON");
    let figures = &runs["runs"][0]["figures"];
    assert!(figures["max_ns"].as_u64() >= figures["p99_ns"].as_u64(), "{runs}");
    assert!(figures["series"].is_string() && figures["p99_ns"].is_u64(), "{runs}");
    assert!(list.contains("name=\"before\" value=\"first\"") && list.contains("name=\"after\""), "{list}");
    let other = "a+b%252e%26%3Ci%3E%22x";
    let (status, page) = server.get(&format!("/compare?before=first&after={other}&was=&is="));
    assert!(status == 200 && page.contains("<h1>A (first) against B (a b"), "{page}");
    assert_eq!(server.get("/compare?before=first&is=tag%3Dnew").0, 400, "no run has the tag");
    for (name, tag) in [(names[0], "old"), (names[1], "new")] {
        let run = folder.path().join("runs").join(name);
        assert_eq!(whylate(&["runs", "tag", text(&run), "lab", tag]).code, Some(0));
    }
    let by_tag = "/compare?was=tag%3Dold&is=tag%3Dnew";
    let is_tagged = || server.get(by_tag).1.contains("<h1>A (#old) against B (#new)</h1>");
    assert!(until(is_tagged), "{}", server.get(by_tag).1);
    assert_eq!(server.get("/compare?side=first&side=none").0, 404);

    let (status, page) = server.get("/series?q=plan%3Dsmall&statistic=timer+p99&cell=");
    assert!(status == 200 && says("timer-p99-cell-idle", &page), "{page}");
    assert!(page.contains("\"kind\":\"series\"") && page.contains("href=\"/runs/first\""), "{page}");
    let (status, refused) = server.get("/series?statistic=colour");
    assert!(status == 422 && !refused.contains("<html"), "{refused}");

    let (status, json) = server.get("/runs/first/result.json");
    assert!(status == 200 && json.contains("\"format\": \"whylate.run/1\""), "{json}");
    let (status, archive) = server.get("/runs/first/archive.tar");
    assert!(
        status == 200
            && archive.contains("first/run.json")
            && archive.contains("first/histograms/000001.parquet")
    );
    let (status, metrics) = server.get("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("whylate_run_started_timestamp_seconds{plan=\"small\""), "{metrics}");
    assert!(
        metrics.contains("whylate_latency_seconds{plan=\"small\"") || metrics.contains("quantile=\"0.999\""),
        "{metrics}"
    );
    assert!(metrics.contains("whylate_newest_run_state{plan=\"small\""), "{metrics}");
    let (status, events) = server.get("/runs/first/events");
    assert!(status == 200 && events.contains("event: end"), "{events}");
}

#[test]
fn a_lake_is_shown_or_the_page_says_what_is_missing() {
    let measuring = alone();
    let folder = folder();
    let (plan, run) = (write(&folder, "plan.toml", SMALL_PLAN), folder.path().join("runs/first"));
    assert_eq!(whylate(&["run", &plan, "-o", text(&run), "--quiet"]).code, Some(0));
    drop(measuring);
    let lake = folder.path().join("lake");
    assert_eq!(whylate(&["push", text(&run), text(&lake)]).code, Some(0));

    let missing = Some(("WHYLATE_QUERY_PYTHON", "/nonexistent/python"));
    let server = Server::with(&["--lake", text(&lake)], missing);
    assert_eq!(server.get("/").0, 303);
    let (status, page) = server.get("/farm");
    assert!(status == 503 && page.contains("set WHYLATE_QUERY_PYTHON"), "{page}");
    assert_eq!(server.get("/runs/first").0, 404, "only what was named is shown");

    let server = Server::with(&["--lake", text(&lake), "--dir", text(&folder.path().join("runs"))], None);
    assert!(server.get("/").1.contains("href=\"/farm\""));
    // The first answer may take longer than a page waits.
    let mut said = server.get("/farm");
    assert!(until(|| {
        said = server.get("/farm");
        said.0 != 202
    }));
    match said {
        (503, page) => {
            assert!(page.contains("is not installed") || page.contains("there is no such program"), "{page}");
            skip(Need::Program("duckdb, pyspark (pip)"), "no engine is installed");
        }
        (status, page) => {
            assert!(
                status == 200 && page.contains("/farm/board/") && page.contains("<figcaption>small: "),
                "{page}"
            );
        }
    }
    let none = whylate(&["serve", "--lake", text(&folder.path().join("none"))]);
    assert!(none.code == Some(1) && none.stderr.contains("none"), "{none:?}");
}

#[test]
fn other_sites_and_readers_without_the_token_get_nothing() {
    let folder = folder();
    let server = Server::of(text(folder.path()), None);
    assert_eq!(server.get_with("/", "Host: evil.example\r\n").0, 403);
    assert_eq!(server.get_with("/", &format!("Host: 127.0.0.1:{}\r\n", server.port)).0, 200);

    let token = "0123456789abcdef";
    let server = Server::of(text(folder.path()), Some(token));
    for path in ["/", "/runs.json", "/metrics", "/?token=wrong"] {
        assert_eq!(server.get(path).0, 401, "{path}");
    }
    let (status, answer) = server.get(&format!("/?token={token}"));
    assert!(status == 303 && answer.contains("location: /\r\n") && answer.contains("HttpOnly"), "{answer}");
    assert_eq!(server.get_with("/", &format!("Host: h\r\nCookie: a=b; whylate-token={token}\r\n")).0, 200);
    assert_eq!(server.get_with("/", &format!("Host: h\r\nAuthorization: Bearer {token}\r\n")).0, 200);

    let said = whylate(&["serve", "--dir", text(folder.path()), "--address", "0.0.0.0:0"]);
    assert!(said.code == Some(1) && said.stderr.contains("--behind-proxy"), "{said:?}");
    let said = whylate(&["serve", "--dir", text(folder.path()), "--address", "0.0.0.0:0", "--behind-proxy"]);
    assert!(said.code == Some(1) && said.stderr.contains("--token-file"), "{said:?}");
}

#[test]
fn a_running_run_shows_its_values() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let runs = folder.path().join("runs");
    let server = {
        std::fs::create_dir(&runs).unwrap();
        Server::of(text(&runs), None)
    };
    let path = runs.join("now");
    let run = start(command(&["run", &plan, "-o", text(&path), "--quiet", "--set", "duration=20s"]));
    let socket = runs.join("now/live.sock");
    assert!(until(|| socket.exists()));

    let mut lines = BufReader::new(server.request("/runs/now/events", "Host: localhost\r\n")).lines();
    let mut value = || lines.by_ref().map_while(Result::ok).find(|line| line.starts_with("data: {"));
    let text_of_value = value().expect("a value");
    let value: serde_json::Value = serde_json::from_str(&text_of_value[6..]).unwrap();
    assert!(value["total"].as_u64().unwrap() > 0 && value["cell"].is_string(), "{value}");
    let (status, page) = server.get("/runs/now");
    assert!(status == 200 && page.contains("data-events=\"/runs/now/events\""), "{page}");

    signal(&run, Signal::INT);
    wait(run);
    let last = lines.map_while(Result::ok).filter(|line| line.starts_with("event: ")).last();
    assert_eq!(last.as_deref(), Some("event: end"));
    assert!(!socket.exists());
}
