//! First step: which wake-ups, samples and other moments were late, from one pass over the trace.

pub(crate) mod answer;
mod clock;
pub(crate) mod finder;
pub(crate) mod late;
mod marker;
mod rhythm;
mod samples;
pub(crate) mod subject;
mod tasks;
mod track;

use crate::options::{Options, THRESHOLD_NS};
use finder::Finder;
use late::Late;
use subject::Subject;
use whylate_core::result::{
    EXPLAIN_FORMAT, ExplainAnswer, ExplainResult, ExplainedSpike, ExplainedTrace, LateTask, LateWhat,
    ThresholdFrom,
};
use whylate_trace::event::Event;
use whylate_trace::parse::ParseError;
use whylate_trace::reader::{Reader, Selection};

/// What the first pass found.
pub(crate) struct Found {
    pub(crate) subject: Subject,
    pub(crate) lates: Vec<Late>,
    pub(crate) seen: finder::Seen,
    pub(crate) period_ns: Option<u64>,
    pub(crate) threshold: (u64, ThresholdFrom),
    /// Late wake-ups above the threshold, including those that are not in `lates`.
    pub(crate) spikes: u64,
    /// The largest of the subject, above the threshold or not.
    pub(crate) worst: Option<LateTask>,
    pub(crate) also_late: Vec<LateTask>,
    /// Threads that were not followed to the end, in a sentence.
    pub(crate) too_many_tasks: Option<String>,
    /// The answer if no spike is found.
    pub(crate) otherwise: (ExplainAnswer, Option<String>),
}

impl Found {
    /// The trace contains one section, which the tracer measured.
    pub(crate) fn is_section(&mut self, spike: &ExplainedSpike) {
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
    pub(crate) fn result(&self, reader: &dyn Reader, options: &Options, explained: u64) -> ExplainResult {
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
            lost: info.lost.iter().fold(0u64, |sum, (_, lost)| sum.saturating_add(*lost)).max(self.seen.lost),
        };
        ExplainResult {
            format: EXPLAIN_FORMAT.to_owned(),
            events: self.seen.records.max(self.seen.events),
            traces: vec![trace],
            ..ExplainResult::default()
        }
    }
}

/// The first pass: over scheduler events, or over all events if there are none.
pub(crate) fn find(reader: &mut dyn Reader, options: &Options) -> Result<Found, ParseError> {
    let mut finder = pass(reader, options, Selection::Wakeups, false)?;
    if finder.seen.switches == 0 && finder.seen.samples == 0 {
        finder = pass(reader, options, Selection::All, true)?;
        // Without functions, lines are far apart: a thread ran long before its first line.
        if finder.seen.functions == 0 {
            finder = pass(reader, options, Selection::All, false)?;
        }
    }
    let subject = subject::choose(&finder, options, reader);
    let threshold = answer::threshold(options, &finder, reader.info());
    let mut lates: Vec<Late> = subject.late.iter().copied().collect();
    // Only what the trace shows in full is compared; a wait without an end is better than no answer.
    let is_late = |late: &Late| late.latency_ns() > threshold.0;
    let waiting = subject.waiting.filter(|late| is_late(late) && !lates.first().is_some_and(is_late));
    if let Some(late) = waiting {
        lates.insert(0, late);
    }
    let worst = lates.first().map(|late| late.brief(reader));
    lates.extend(subject.blocked.iter().copied());
    lates.extend(answer::stated(&lates, &finder, reader.info()));
    let period_ns = options.period_ns.or(subject.period_ns);
    lates.retain(|late| late.latency_ns() > threshold.0);
    let all = lates.len() >= options.top && threshold.0 >= options.least_ns();
    let spikes = if all {
        subject.late.found
    } else {
        subject.late.iter().chain(&waiting).filter(|late| late.latency_ns() > threshold.0).count() as u64
    };
    let also_late = answer::also_late(&finder, &subject, options, threshold.0, reader);
    let otherwise = answer::without_spike(&finder, &subject, options, reader);
    let dropped = finder.tasks.dropped;
    let too_many_tasks = (dropped > 0).then(|| {
        format!("too many threads: {dropped} were not followed to the end. Threads that were neither late nor real-time were dropped first")
    });
    let seen = finder.seen;
    Ok(Found {
        lates,
        seen,
        period_ns,
        threshold,
        spikes,
        worst,
        also_late,
        too_many_tasks,
        otherwise,
        subject,
    })
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
    let mut event = Event::default();
    while reader.read(&mut event)? {
        finder.event(&event, reader);
    }
    finder.end();
    finder.seen.records = reader.info().records;
    finder.seen.all = selection == Selection::All;
    Ok(finder)
}
