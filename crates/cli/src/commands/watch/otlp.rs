//! The figures of a watch for a collector of OpenTelemetry: OTLP over HTTP, in its JSON form.
//!
//! A thread of its own sends, so that a slow network holds nothing up. Counts go up from the begin of the watch: what
//! one message could not bring the next one has.

use super::figures::{Attributes, Points, Unit, figures};
use super::{Shared, lock};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whylate_runner::{LatencyTotals, TaskLine};

/// How long an answer is waited for, and how often figures are sent, where nobody says otherwise: as the specification has it.
const TIMEOUT_MS: u64 = 10_000;
const INTERVAL_MS: u64 = 60_000;
/// Counts since the begin: `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u32 = 2;

/// Where to, and how: the flag, and the environment as the specification has it.
pub(super) struct Collector {
    address: String,
    headers: Vec<(String, String)>,
    interval: Duration,
    timeout: Duration,
    resource: Vec<(String, String)>,
}

impl Collector {
    /// Reads `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_METRIC_EXPORT_INTERVAL`,
    /// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`.
    pub(super) fn new(base: &str, host: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        if !(base.starts_with("http://") || base.starts_with("https://")) {
            bail!(
                "--otlp: `{base}` is not an address that begins with http:// or https://; a collector listens for OTLP over HTTP at http://HOST:4318"
            );
        }
        let list = |name: &str| -> Result<Vec<(String, String)>> {
            let text = variable(name).unwrap_or_default();
            let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
            let read = |pair: &str| {
                let pair = pair.split_once('=');
                let (key, value) =
                    pair.with_context(|| format!("{name}: not of the form NAME=VALUE,NAME=VALUE"))?;
                Ok((key.trim().to_owned(), decoded(value.trim())))
            };
            pairs.map(read).collect()
        };
        let milliseconds = |name: &str, default: u64| match variable(name) {
            None => Ok(Duration::from_millis(default)),
            Some(text) => {
                let number = text.parse().ok().filter(|ms| *ms > 0);
                let number =
                    number.with_context(|| format!("{name}: `{text}` is not a number of milliseconds"));
                number.map(Duration::from_millis)
            }
        };
        let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "whylate".to_owned());
        let mut resource = list("OTEL_RESOURCE_ATTRIBUTES")?;
        resource.retain(|(key, _)| key != "service.name");
        resource.push(("service.name".to_owned(), service));
        if !resource.iter().any(|(key, _)| key == "host.name") {
            resource.push(("host.name".to_owned(), host.to_owned()));
        }
        Ok(Self {
            address: format!("{}/v1/metrics", base.trim_end_matches('/')),
            headers: list("OTEL_EXPORTER_OTLP_HEADERS")?,
            interval: milliseconds("OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_MS)?,
            timeout: milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT_MS)?,
            resource,
        })
    }

    /// Sends the figures once; an error says what the collector or the network had against it.
    fn send(&self, tasks: &[TaskLine], begun_ns: u64) -> Result<()> {
        let message = message(tasks, &self.resource, begun_ns, nanoseconds_of(SystemTime::now()));
        let body = serde_json::to_vec(&message)?;
        let mut headers = self.headers.clone();
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        let (status, answer) = whylate_farm::post(&self.address, &headers, body, self.timeout)?;
        if !(200..300).contains(&status) {
            bail!("it answered {status}: {}", answer.trim());
        }
        // A collector may take a part only, and say so with 200.
        let answer: Value = serde_json::from_str(&answer).unwrap_or(Value::Null);
        let partial = &answer["partialSuccess"];
        let rejected = &partial["rejectedDataPoints"];
        if rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or(0) > 0 {
            bail!("it rejected {rejected} points: {}", partial["errorMessage"]);
        }
        Ok(())
    }
}

/// The text without `%20` and the like.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hexadecimal =
            after.get(..2).and_then(|two| u8::from_str_radix(str::from_utf8(two).ok()?, 16).ok());
        match hexadecimal.filter(|_| *first == b'%') {
            Some(byte) => (bytes.push(byte), rest = &after[2..]),
            None => (bytes.push(*first), rest = after),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn nanoseconds_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Sends while the watch runs, and once more at its end.
pub(super) struct Exporter {
    end: Sender<()>,
    warnings: Receiver<String>,
    thread: JoinHandle<Option<String>>,
}

impl Exporter {
    pub(super) fn start(collector: Collector, tasks: Shared) -> Result<Self> {
        let (end, ended) = mpsc::channel();
        let (warn, warnings) = mpsc::channel();
        let begun_ns = nanoseconds_of(SystemTime::now());
        let work = move || {
            let mut works = true;
            loop {
                let is_last = ended.recv_timeout(collector.interval) != Err(RecvTimeoutError::Timeout);
                // Nobody waits for the network with the list locked.
                let told = lock(&tasks).clone();
                let sent = collector.send(&told, begun_ns);
                let failure =
                    sent.err().map(|error| format!("no figures reach {}: {error:#}", collector.address));
                if is_last {
                    return failure;
                }
                // The first failure is told, and the next one after a success.
                if let Some(failure) = failure.as_ref().filter(|_| works) {
                    // Nobody hears it where the watch has failed meanwhile.
                    _ = warn.send(format!("{failure}; the watch goes on and tries again"));
                }
                works = failure.is_none();
            }
        };
        let thread = std::thread::Builder::new().name("otlp".to_owned()).spawn(work);
        Ok(Self { end, warnings, thread: thread.context("cannot start a thread for --otlp")? })
    }

    /// What went wrong since it was last asked.
    pub(super) fn warning(&self) -> Option<String> {
        self.warnings.try_recv().ok()
    }

    /// Sends the last figures; returns what went wrong with them.
    pub(super) fn end(self) -> Option<String> {
        drop(self.end);
        self.thread.join().unwrap_or_else(|_| Some("the thread of --otlp has failed".to_owned()))
    }
}

/// An `ExportMetricsServiceRequest`. Its JSON form has 64-bit integers as texts.
fn message(tasks: &[TaskLine], resource: &[(String, String)], begun_ns: u64, now_ns: u64) -> Value {
    let time = |point: &mut Value, attributes: &Attributes<'_>| {
        point["attributes"] = attributes.iter().map(|(key, value)| attribute(key, value)).collect();
        point["startTimeUnixNano"] = begun_ns.to_string().into();
        point["timeUnixNano"] = now_ns.to_string().into();
    };
    let numbers = |points: Vec<(Attributes<'_>, f64)>| -> Value {
        let each = points.into_iter().map(|(attributes, value)| {
            let mut point = json!({ "asDouble": value });
            time(&mut point, &attributes);
            point
        });
        each.collect()
    };
    let metrics = figures(tasks).into_iter().map(|figure| {
        let unit = if figure.unit == Unit::Seconds { "s" } else { "1" };
        let mut metric = json!({ "name": figure.name, "description": figure.help, "unit": unit });
        match figure.points {
            Points::Histogram(points) => {
                let each = points.into_iter().map(|(attributes, totals)| {
                    let mut point = histogram(totals);
                    time(&mut point, &attributes);
                    point
                });
                let points: Value = each.collect();
                metric["histogram"] = json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points });
            }
            Points::Counter(points) => {
                metric["sum"] = json!({
                    "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": numbers(points)
                });
            }
            Points::Gauge(points) => metric["gauge"] = json!({ "dataPoints": numbers(points) }),
        }
        metric
    });
    let resource: Value = resource.iter().map(|(key, value)| attribute(key, value)).collect();
    let metrics: Value = metrics.collect();
    json!({ "resourceMetrics": [{
        "resource": { "attributes": resource },
        "scopeMetrics": [{
            "scope": { "name": "whylate", "version": env!("CARGO_PKG_VERSION") },
            "metrics": metrics,
        }],
    }] })
}

fn attribute(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// A point with its bounds in seconds; each count is of one bucket, the last one of what is above all bounds.
fn histogram(totals: &LatencyTotals) -> Value {
    let mut below = 0;
    let mut counts = Vec::with_capacity(totals.buckets.len() + 1);
    for (_, at_most) in &totals.buckets {
        counts.push((at_most - below).to_string());
        below = *at_most;
    }
    counts.push((totals.count - below).to_string());
    let bounds: Vec<f64> = totals.buckets.iter().map(|(edge_ns, _)| *edge_ns as f64 / 1e9).collect();
    json!({
        "count": totals.count.to_string(),
        "sum": totals.sum_ns as f64 / 1e9,
        "bucketCounts": counts,
        "explicitBounds": bounds,
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::example;
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use whylate_testing::{Need, skip};

    fn collector(base: &str, variables: &[(&str, &str)]) -> Result<Collector> {
        let variables: Vec<(String, String)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let value = |name: &str| variables.iter().find(|it| it.0 == name).map(|it| it.1.clone());
        Collector::new(base, "board7", value)
    }

    #[test]
    fn counts_are_of_each_bucket_and_sums_only_grow() {
        let message = message(&[example()], &[("service.name".to_owned(), "x".to_owned())], 5, 9);
        let metrics = &message["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let point = &metrics[0]["histogram"]["dataPoints"][0];
        assert_eq!(point["bucketCounts"], json!(["3", "2", "1"]));
        assert_eq!(point["explicitBounds"], json!([1e-6, 2e-6]));
        assert_eq!((&point["count"], &point["sum"]), (&json!("6"), &json!(4.5)));
        assert_eq!((&point["startTimeUnixNano"], &point["timeUnixNano"]), (&json!("5"), &json!("9")));
        let lost = &metrics[4];
        assert_eq!((&lost["name"], &lost["unit"]), (&json!("whylate.task.lost"), &json!("s")));
        assert_eq!(lost["sum"]["isMonotonic"], true);
        let actor = json!({ "key": "actor", "value": { "stringValue": "irq/31-\"eth0\"" } });
        assert_eq!(lost["sum"]["dataPoints"][0]["attributes"][2], actor);
    }

    #[test]
    fn the_environment_is_that_of_the_specification() {
        let variables = [
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=y=z"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "250"),
            ("OTEL_RESOURCE_ATTRIBUTES", "rack=7,service.name=no"),
        ];
        let it = collector("http://127.0.0.1:4318/", &variables).unwrap();
        assert_eq!(it.address, "http://127.0.0.1:4318/v1/metrics");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(it.headers, [pair("api-key", "a b"), pair("x", "y=z")]);
        let resource = [pair("rack", "7"), pair("service.name", "whylate"), pair("host.name", "board7")];
        assert_eq!((it.interval.as_millis(), it.resource), (250, resource.to_vec()));
        for (base, variable) in [
            ("127.0.0.1:4318", ("", "")),
            ("http://a", ("OTEL_METRIC_EXPORT_INTERVAL", "soon")),
            ("http://a", ("OTEL_EXPORTER_OTLP_HEADERS", "secret")),
        ] {
            assert!(collector(base, &[variable]).is_err(), "{base} {variable:?}");
        }
    }

    #[test]
    fn the_end_of_a_watch_is_sent_and_a_refusal_is_told_once() {
        if std::process::Command::new("curl").arg("--version").output().is_err() {
            skip(Need::Program("curl"), "there is no curl");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let answers = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for status in ["503 Busy", "503 Busy", "200 OK"] {
                let (mut stream, _) = listener.accept().unwrap();
                asked.push(request(&mut stream));
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}")
                    .unwrap();
            }
            asked
        });
        let collector = collector(&address, &[("OTEL_METRIC_EXPORT_INTERVAL", "200")]).unwrap();
        let tasks = Shared::default();
        lock(&tasks).push(example());
        let exporter = Exporter::start(collector, tasks).unwrap();
        let asked = answers.join().unwrap();
        assert!(asked[2].starts_with("POST /v1/metrics HTTP/1.1"), "{}", asked[2]);
        assert!(asked[2].contains("whylate.task.response") && asked[2].contains("\"audio\""), "{}", asked[2]);
        let warning = exporter.warning().unwrap();
        assert!(warning.contains("it answered 503: {}"), "{warning}");
        // The second refusal is not told again; what is sent after the third answer reaches nobody.
        assert!(exporter.warning().is_none_or(|it| !it.contains("503")));
        // Nobody listens any more.
        let last = exporter.end().unwrap();
        assert!(last.contains("no figures reach") && !last.contains("503"), "{last}");
    }

    /// A request, read up to the end of its body.
    fn request(stream: &mut std::net::TcpStream) -> String {
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let length = stream.read(&mut buffer).unwrap();
            text.extend(&buffer[..length]);
            let so_far = String::from_utf8_lossy(&text).into_owned();
            let body = so_far.split_once("\r\n\r\n").map(|(head, body)| {
                let header = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
                body.len() >= header.map_or(0, |it| it.parse().unwrap())
            });
            if length == 0 || body == Some(true) {
                return so_far;
            }
        }
    }
}
