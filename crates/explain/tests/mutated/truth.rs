//! Traces with an answer, in memory.

use crate::support::{ENDING, answers};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use whylate_core::Nanos;
use whylate_core::result::{Cause, CauseKind, ExplainedSpike};
use whylate_explain::{Options, explain};
use whylate_trace::event::Event;
use whylate_trace::parse;
use whylate_trace::reader::{Reader, Selection};

/// The relevant part of the file next to a trace.
#[derive(Deserialize)]
struct Answer {
    task: Option<String>,
    period: Option<String>,
    threshold: Option<String>,
    expect: Expected,
}

#[derive(Deserialize)]
struct Expected {
    kind: Option<String>,
    #[serde(default)]
    kinds: Vec<String>,
    actor: Option<String>,
    planted_ns: Option<[u64; 2]>,
}

/// A trace, and the truth about its spike.
pub(crate) struct Truth {
    pub(crate) name: String,
    pub(crate) options: Options,
    pub(crate) kinds: Vec<CauseKind>,
    actor: Option<String>,
    /// The time that the true cause covers.
    covers: [u64; 2],
    cpu: u32,
    /// The late task: others at the same time have causes of their own.
    pid: Option<u32>,
    pub(crate) events: Vec<Event>,
    pub(crate) reader: Box<dyn Reader>,
}

/// Larger ones would take most of the test's time.
const EVENTS_MAX: usize = 60_000;

/// An answer that is less sure than this rests on what the trace lacks.
const TELLS: f64 = 0.55;

/// All traces with an answer that names a cause.
pub(crate) fn all() -> Vec<Truth> {
    answers().iter().filter_map(|path| truth(path)).collect()
}

fn truth(path: &Path) -> Option<Truth> {
    let answer: Answer = toml::from_str(&fs::read_to_string(path).ok()?).ok()?;
    let trace = PathBuf::from(path.to_string_lossy().strip_suffix(ENDING)?);
    let kinds: Vec<CauseKind> = answer
        .expect
        .kind
        .iter()
        .chain(&answer.expect.kinds)
        .filter_map(|kind| CauseKind::from_name(kind))
        .collect();
    let nanos =
        |text: &Option<String>| text.as_ref().map(|text| text.parse::<Nanos>().expect("a duration").0);
    let options = Options {
        task: answer.task.as_ref().map(|task| task.parse().expect("never fails")),
        period_ns: nanos(&answer.period),
        threshold_ns: nanos(&answer.threshold),
        ..Options::default()
    };
    let mut reader = parse::open(&trace).ok()?;
    let result = explain(reader.as_mut(), &options).ok()?;
    // If the cause was not planted, a right explanation shows where it was.
    let of_kind = |spike: &&ExplainedSpike| kinds.contains(&spike.cause.kind);
    let spike = result.spikes.iter().find(of_kind)?;
    let named = [spike.cause.from_ns?, spike.cause.to_ns?];
    // If the undamaged trace does not show the cause, answers cannot be judged.
    let tells = answer.expect.planted_ns.is_some() || spike.cause.confidence >= Some(TELLS);
    if !tells {
        return None;
    }
    let covers = answer.expect.planted_ns.unwrap_or(named);
    reader.seek(None, Selection::All).ok()?;
    let mut events = Vec::new();
    while let Some(event) = reader.next().ok()? {
        events.push(event);
    }
    let name = trace.file_name()?.to_string_lossy().into_owned();
    let (cpu, pid, actor) = (spike.cpu.0, spike.pid, answer.expect.actor);
    // A trace without events, such as an analysis of another tool, has nothing to damage.
    (1..=EVENTS_MAX).contains(&events.len()).then_some(Truth {
        name,
        options,
        kinds,
        actor,
        covers,
        cpu,
        pid,
        events,
        reader,
    })
}

impl Truth {
    /// Whether a spike is of that cause: at least half of it is.
    pub(crate) fn is_in(&self, spike: &ExplainedSpike) -> bool {
        let [from, to] = self.covers;
        let overlap = to.min(spike.actual_ns).saturating_sub(from.max(spike.expected_ns));
        let is_other = self.pid.zip(spike.pid).is_some_and(|(one, other)| one != other);
        spike.cpu.0 == self.cpu && !is_other && overlap * 2 >= spike.latency_ns
    }

    /// Whether a cause is the true one: its kind, and its actor if both are known.
    pub(crate) fn is_right(&self, cause: &Cause) -> bool {
        // Without a name it does not contradict the true actor.
        let is_nameless =
            |actor: &String| matches!(actor.as_str(), "softirq" | "interrupt" | "device interrupt");
        let other = |(one, other): (&String, &String)| one != other && !is_nameless(other);
        let is_other = self.actor.as_ref().zip(cause.actor.as_ref()).is_some_and(other);
        self.kinds.contains(&cause.kind) && !is_other
    }
}
