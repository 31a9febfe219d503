//! Who made a task late, by the events of a trace.
//!
//! Two passes. The first sees what finds late wake-ups ([`Selection::Wakeups`]) and keeps the largest; the second goes
//! to the window of each of them, sweeps over the states of the CPUs there, and divides the time between the expected
//! and the actual moment among those that had the CPU. A kind of cause is claimed only when events, flags or a late
//! interrupt's stack speak for it; what nothing explains is `unattributed`.

mod account;
mod analysed;
mod answer;
mod clock;
mod consistency;
mod cpu;
mod describe;
mod export;
mod finder;
mod interrupted;
mod judge;
mod kept;
mod label;
mod late;
mod marker;
mod priorities;
mod recorded;
mod rhythm;
mod sampled;
mod samples;
mod section;
mod spike;
mod stacks;
mod standstill;
mod state;
mod states;
mod subject;
mod track;
mod warn;
mod window;

pub use export::{Export, export};
pub use kept::{KeptMoment, explain_kept};

use crate::vocabulary;
use finder::Finder;
use label::Need;
use late::Late;
use std::collections::BTreeSet;
use subject::Subject;
use whylate_core::result::{
    EXPLAIN_FORMAT, ExplainAnswer, ExplainResult, ExplainedSpike, ExplainedTrace, LateTask, LateWhat,
    ThresholdFrom,
};
use whylate_core::{Warning, WarningCode};
use whylate_trace::parse::ParseError;
use whylate_trace::reader::{Reader, Selection};

/// The threshold where nothing else gives one.
pub const THRESHOLD_NS: u64 = 100_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whose spikes; `None` looks for the measured task.
    pub task: Option<TaskChoice>,
    /// Its period, for traces without its timers; `None` infers it from its rhythm.
    pub period_ns: Option<u64>,
    /// A latency at or below it is not a spike; `None` takes that of the break marker, of the tracer or of the
    /// header, else [`THRESHOLD_NS`].
    pub threshold_ns: Option<u64>,
    /// How they were late; `None` is from timer or wake-up to run, and for real-time tasks whatever takes their CPU.
    pub what: Option<LateWhat>,
    /// Spikes that are explained, largest first.
    pub top: usize,
    /// Whether the machine was the guest of a hypervisor, where that is known; `None` asks the names in the trace.
    pub is_virtual: Option<bool>,
}

impl Default for Options {
    /// Any task, the ten largest.
    fn default() -> Self {
        Self { task: None, period_ns: None, threshold_ns: None, what: None, top: 10, is_virtual: None }
    }
}

impl Options {
    /// What is kept in the first pass: the marker's threshold is known only at its end.
    fn least_ns(&self) -> u64 {
        self.threshold_ns.unwrap_or(THRESHOLD_NS)
    }
}

/// A task by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskChoice {
    Pid(u32),
    /// A command; all threads of that name.
    Name(String),
}

impl std::str::FromStr for TaskChoice {
    type Err = std::convert::Infallible;

    /// A number is a thread id.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Pid))
    }
}

/// Explains the spikes of a trace.
///
/// # Errors
/// Those of the reader: the trace cannot be read or is damaged.
pub fn explain(reader: &mut dyn Reader, options: &Options) -> Result<ExplainResult, ParseError> {
    let mut found = find(reader, options)?;
    let mut spikes = Vec::new();
    let mut needs = BTreeSet::new();
    if let Some(spike) = section::explain(reader, &found.seen)? {
        found.is_section(&spike);
        spikes.push(spike);
    }
    for late in &found.lates {
        if let Some((spike, more)) = spike::explain(reader, late, options)? {
            needs.extend(more);
            spikes.push(spike);
        }
    }
    if spikes.is_empty() {
        spikes.extend(analysed::spikes(&reader.info().facts));
    }
    spikes.retain(|spike| spike.latency_ns > found.threshold.0);
    spikes.sort_by_key(|spike| (std::cmp::Reverse(spike.latency_ns), spike.expected_ns));
    spikes.truncate(options.top);
    let result = found.result(reader, options, spikes.len() as u64);
    Ok(found.completed(result, spikes, &needs, reader))
}

/// What the first pass found.
pub(crate) struct Found {
    subject: Subject,
    lates: Vec<Late>,
    seen: finder::Seen,
    period_ns: Option<u64>,
    threshold: (u64, ThresholdFrom),
    /// Late wake-ups above the threshold, those that are not in `lates` included.
    spikes: u64,
    /// The largest of the subject, above the threshold or not.
    worst: Option<LateTask>,
    also_late: Vec<LateTask>,
    /// What holds where no spike is found.
    otherwise: (ExplainAnswer, Option<String>),
}

impl Found {
    /// The trace is of one section, which the tracer measured.
    fn is_section(&mut self, spike: &ExplainedSpike) {
        let worst = LateTask {
            task: spike.cause.actor.clone().unwrap_or_default(),
            pid: spike.cause.pid,
            priority: None,
            cpu: spike.cpu,
            what: LateWhat::Sample,
            latency_ns: spike.latency_ns,
            at_ns: spike.actual_ns,
        };
        self.subject = Subject { reason: subject::MEASURED.to_owned(), ..Subject::default() };
        (self.worst, self.spikes, self.otherwise) = (Some(worst), 1, (ExplainAnswer::None, None));
        self.lates.clear();
        self.also_late.clear();
        if self.threshold.1 == ThresholdFrom::Default {
            self.threshold = (THRESHOLD_NS.min(spike.latency_ns - 1), ThresholdFrom::Header);
        }
    }

    /// The result without its spikes and warnings; `explained` is how many spikes there will be.
    fn result(&self, reader: &dyn Reader, options: &Options, explained: u64) -> ExplainResult {
        let info = reader.info();
        let (answer, answer_reason) = self.otherwise.clone();
        let trace = ExplainedTrace {
            path: String::new(),
            cell: None,
            format: info.format.clone(),
            tracer: info.tracer.clone(),
            clock: info.clock.clone(),
            kernel: info.kernel.clone(),
            task: self.subject.task.clone(),
            task_reason: self.subject.reason.clone(),
            period_ns: self.period_ns,
            period_inferred: self.period_ns.is_some() && options.period_ns.is_none(),
            threshold_ns: self.threshold.0,
            threshold_from: self.threshold.1,
            answer,
            answer_reason,
            worst: self.worst.clone(),
            also_late: self.also_late.clone(),
            wakeups: self.subject.wakeups,
            spikes_found: if explained == 0 { 0 } else { self.spikes.max(explained) },
            lost: info.lost.iter().map(|(_, lost)| lost).sum::<u64>().max(self.seen.lost),
        };
        ExplainResult {
            format: EXPLAIN_FORMAT.to_owned(),
            events: self.seen.records.max(self.seen.events),
            traces: vec![trace],
            ..ExplainResult::default()
        }
    }

    /// The result with its spikes, and with warnings of what the trace lacks and of what its reader noticed.
    fn completed(
        &self,
        mut result: ExplainResult,
        spikes: Vec<ExplainedSpike>,
        needs: &BTreeSet<Need>,
        reader: &dyn Reader,
    ) -> ExplainResult {
        let trace = &mut result.traces[0];
        if !spikes.is_empty() {
            (trace.answer, trace.answer_reason) = (ExplainAnswer::Found, None);
        }
        result.warnings = warn::warnings(&result.traces[0], &self.seen, needs, &spikes);
        let remarks = reader.info().remarks.iter();
        result.warnings.extend(remarks.map(|remark| Warning::new(WarningCode::Reader, remark.as_str())));
        result.spikes = spikes;
        result.conclude();
        result
    }
}

/// The first pass: of scheduler events, or of all events where there are none.
fn find(reader: &mut dyn Reader, options: &Options) -> Result<Found, ParseError> {
    let mut finder = pass(reader, options, Selection::Wakeups, false)?;
    if finder.seen.switches == 0 && finder.seen.samples == 0 {
        finder = pass(reader, options, Selection::All, true)?;
        // Without functions lines are far apart: a thread ran long before its first one.
        if finder.seen.functions == 0 {
            finder = pass(reader, options, Selection::All, false)?;
        }
    }
    let subject = subject::choose(&finder, options, reader);
    let threshold = answer::threshold(options, &finder, reader.info());
    let mut lates: Vec<Late> = subject.late.iter().copied().collect();
    let worst = lates.first().map(|late| late.brief(reader));
    lates.extend(subject.blocked.iter().copied());
    lates.extend(answer::stated(&lates, &finder, reader.info()));
    let period_ns = options.period_ns.or(subject.period_ns);
    lates.retain(|late| late.latency_ns() > threshold.0);
    let all = lates.len() >= options.top && threshold.0 >= options.least_ns();
    let spikes = if all {
        subject.late.found
    } else {
        subject.late.iter().filter(|late| late.latency_ns() > threshold.0).count() as u64
    };
    let also_late = answer::also_late(&finder, &subject, options, threshold.0, reader);
    let otherwise = answer::without_spike(&finder, &subject, options, reader);
    Ok(Found { lates, seen: finder.seen, period_ns, threshold, spikes, worst, also_late, otherwise, subject })
}

/// `by_lines`: a change of the thread between two lines of a CPU is a switch.
fn pass<'o>(
    reader: &mut dyn Reader,
    options: &'o Options,
    selection: Selection,
    by_lines: bool,
) -> Result<Finder<'o>, ParseError> {
    reader.seek(None, selection)?;
    let mut finder = Finder::new(options, reader, by_lines);
    while let Some(event) = reader.next()? {
        finder.event(&event, reader);
    }
    finder.end();
    finder.seen.records = reader.info().records;
    finder.seen.all = selection == Selection::All;
    Ok(finder)
}
