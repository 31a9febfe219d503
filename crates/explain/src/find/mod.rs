//! First step: which wake-ups, samples and other moments were late, from one pass over the trace.

pub(crate) mod answer;
mod clock;
pub(crate) mod finder;
pub(crate) mod late;
mod marker;
mod rhythm;
mod samples;
pub(crate) mod sleeps;
pub(crate) mod subject;
mod tasks;
mod track;

use crate::options::{Options, THRESHOLD_NS};
use finder::{Again, Finder};
use late::{KEPT_LEAST_NS, Largest, Late};
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
    /// Latencies above the threshold, each once, including those that are not in `lates`.
    pub(crate) spikes: u64,
    /// Sleeps above the threshold in the middle of the work that were neither for a lock nor for a page fault.
    pub(crate) left_out: u64,
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
        self.left_out = 0;
        self.also_late.clear();
        if self.threshold.1 == ThresholdFrom::Default {
            self.threshold = (THRESHOLD_NS.min(spike.latency_ns - 1), ThresholdFrom::Header);
        }
    }

    /// The window of this late moment shows that the task slept for neither a lock nor a page fault: only its end counts.
    pub(crate) fn leave_out(&mut self, late: &Late) {
        self.left_out += 1;
        self.spikes = self.spikes.saturating_sub(1) + u64::from(late.end_ns() > self.threshold.0);
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
            waits_left_out: self.left_out,
            covered_ns: self.seen.covered_ns().filter(|_| info.resolution_ns > 0),
            lost: answer::lost(&self.seen, info),
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
    let (mut selection, mut by_lines) = (Selection::Wakeups, false);
    let mut finder = pass(reader, options, selection, by_lines, None)?;
    if finder.seen.switches == 0 && finder.seen.samples == 0 {
        (selection, by_lines) = (Selection::All, true);
        finder = pass(reader, options, selection, by_lines, None)?;
        // Without functions, lines are far apart: a thread ran long before its first line.
        if finder.seen.functions == 0 {
            by_lines = false;
            finder = pass(reader, options, selection, by_lines, None)?;
        }
    }
    let mut subject = subject::choose(&finder, options, reader);
    let threshold = answer::threshold(options, &finder, reader.info());
    let seen = finder.seen;
    let largest = subject.late.iter().next().copied();
    let again = uncounted(&subject, options, threshold.0);
    if let Some(again) = &again {
        selection = if again.sleeps { Selection::All } else { selection };
        finder = pass(reader, options, selection, by_lines, Some(again))?;
        subject = subject::choose(&finder, options, reader);
    }
    let mut lates: Vec<Late> = subject.late.iter().copied().collect();
    // Only what the trace shows in full is compared; a wait without an end is better than no answer.
    let is_late = |late: &Late| late.latency_ns() > threshold.0;
    let waiting = subject.waiting.filter(|late| is_late(late) && !lates.first().is_some_and(is_late));
    if let Some(late) = waiting {
        lates.insert(0, late);
    }
    let worst = waiting.or(largest).map(|late| late.brief(reader));
    lates.extend(subject.blocked.iter().copied());
    let stated = answer::stated(&lates, &finder, reader.info());
    lates.extend(stated);
    let period_ns = options.period_ns.or(subject.period_ns);
    lates.retain(|late| late.latency_ns() > threshold.0);
    let counted = |list: &Largest| match finder.least_ns == threshold.0 {
        true => list.found,
        false => list.above(threshold.0) as u64,
    };
    let waits = match again.is_some_and(|again| again.sleeps) {
        true => counted(&subject.blocked),
        // Their ends are among the wake-ups.
        false => {
            let waits = subject.blocked.iter().filter(|late| is_late(late));
            waits.map(|late| u64::from(late.end_ns() <= threshold.0)).sum::<u64>()
        }
    };
    let alone = waiting.iter().chain(&stated).filter(|late| is_late(late)).count() as u64;
    let spikes = counted(&subject.late) + waits + alone;
    let also_late = answer::also_late(&finder, &subject, options, threshold.0, reader);
    let otherwise = answer::without_spike(&finder, &subject, options, reader);
    let dropped = finder.tasks.dropped;
    let too_many_tasks = (dropped > 0).then(|| {
        format!("too many threads: {dropped} were not followed to the end. Threads that were neither late nor real-time were dropped first")
    });
    Ok(Found {
        lates,
        seen,
        period_ns,
        threshold,
        spikes,
        left_out: finder.left_out,
        worst,
        also_late,
        too_many_tasks,
        otherwise,
        subject,
    })
}

/// What a second pass has to count: the first one keeps only the largest, and did not know the threshold, or why the task
/// slept.
fn uncounted(subject: &Subject, options: &Options, threshold_ns: u64) -> Option<Again> {
    let least_ns = options.least_ns();
    let is_full = |list: &Largest| list.above(threshold_ns) >= options.top;
    let is_cut = is_full(&subject.late) || is_full(&subject.blocked);
    let is_unknown = threshold_ns != least_ns && (is_cut || threshold_ns < least_ns.min(KEPT_LEAST_NS));
    let sleeps = is_full(&subject.blocked) && subject.blocked.len() > 0;
    let is_needed = (is_unknown && subject.late.len() > 0) || sleeps;
    is_needed.then(|| Again { least_ns: threshold_ns, pids: subject.pids.clone(), sleeps })
}

/// `by_lines`: a change of the thread between two lines of a CPU is a switch.
fn pass<'o>(
    reader: &mut dyn Reader,
    options: &'o Options,
    selection: Selection,
    by_lines: bool,
    again: Option<&Again>,
) -> Result<Finder<'o>, ParseError> {
    reader.seek(None, selection)?;
    let mut finder = Finder::new(options, reader, by_lines, again);
    let mut event = Event::default();
    while reader.read(&mut event)? {
        finder.event(&event, reader);
    }
    finder.end();
    finder.seen.records = reader.info().records;
    finder.seen.all = selection == Selection::All;
    Ok(finder)
}
