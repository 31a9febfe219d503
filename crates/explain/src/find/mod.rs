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
    /// What another pass has to count if one of the kept sleeps was for a lock or a page fault.
    uncounted: Option<Uncounted>,
    /// The largest of the subject, above the threshold or not.
    pub(crate) worst: Option<LateTask>,
    pub(crate) also_late: Vec<LateTask>,
    /// Late tasks that are not listed.
    pub(crate) more_late: u64,
    /// Threads that were not followed to the end, in a sentence.
    pub(crate) too_many_tasks: Option<String>,
    /// The answer if no spike is found.
    pub(crate) otherwise: (ExplainAnswer, Option<String>),
}

/// Sleeps that are not kept, and whether they were for a lock or a page fault.
struct Uncounted {
    again: Again,
    by_lines: bool,
    /// How many they are.
    sleeps: u64,
    /// Latencies that this pass does not see.
    alone: u64,
}

impl Found {
    /// Counts the sleeps that are not kept. If none of the kept ones was for a lock or a page fault, the others are taken for sleeps
    /// of the same kind, without another pass.
    pub(crate) fn count_sleeps(
        &mut self,
        reader: &mut dyn Reader,
        options: &Options,
        is_any_explained: bool,
    ) -> Result<(), ParseError> {
        let Some(Uncounted { again, by_lines, sleeps, alone }) = self.uncounted.take() else { return Ok(()) };
        if !is_any_explained {
            self.left_out += sleeps;
            return Ok(());
        }
        let finder = pass(reader, options, Selection::All, by_lines, Some(&again))?;
        let subject = subject::choose(&finder, options, reader);
        self.spikes = subject.late.found + subject.blocked.found + alone;
        self.left_out = finder.left_out;
        Ok(())
    }

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
        (self.left_out, self.uncounted) = (0, None);
        self.also_late.clear();
        self.more_late = 0;
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
            also_late_more: self.more_late,
            wakeups: self.subject.wakeups,
            spikes_found: if explained == 0 { 0 } else { self.spikes.max(explained) },
            wakeups_unseen: self.subject.unseen.0,
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
    if is_unknown(&subject, options, threshold.0) {
        let again = Again { least_ns: threshold.0, pids: subject.pids.clone(), sleeps: false };
        finder = pass(reader, options, selection, by_lines, Some(&again))?;
        subject = subject::choose(&finder, options, reader);
    }
    let mut lates: Vec<Late> = subject.late.iter().copied().collect();
    let is_late = |late: &Late| late.latency_ns() > threshold.0;
    // Where switches are missing, the task may have run.
    let is_known = subject.unseen.0 == 0 || !lates.first().is_some_and(is_late);
    let waiting = subject.waiting.filter(|late| is_late(late) && is_known);
    lates.extend(waiting);
    let worst =
        waiting.into_iter().chain(largest).max_by_key(Late::latency_ns).map(|late| late.brief(reader));
    lates.extend(subject.blocked.iter().copied());
    let stated = answer::stated(&lates, &finder, reader.info());
    lates.extend(stated);
    let period_ns = options.period_ns.or(subject.period_ns);
    lates.retain(|late| late.latency_ns() > threshold.0);
    let counted = |list: &Largest| match finder.least_ns == threshold.0 {
        true => list.found,
        false => list.above(threshold.0) as u64,
    };
    // The ends of the others are among the wake-ups.
    let is_short = |late: &&Late| is_late(late) && late.end_ns() <= threshold.0;
    let waits = subject.blocked.iter().filter(is_short).count() as u64;
    let alone = waiting.iter().chain(&stated).filter(|late| is_late(late)).count() as u64;
    let spikes = counted(&subject.late) + waits + alone;
    let uncounted = is_full(&subject.blocked, options, threshold.0).then(|| Uncounted {
        again: Again { least_ns: threshold.0, pids: subject.pids.clone(), sleeps: true },
        by_lines,
        sleeps: counted(&subject.blocked).saturating_sub(subject.blocked.above(threshold.0) as u64),
        alone,
    });
    let (also_late, more_late) = answer::also_late(&finder, &subject, options, threshold.0, reader);
    let otherwise = answer::without_spike(&finder, &subject, (options, threshold.0), reader);
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
        uncounted,
        worst,
        also_late,
        more_late,
        too_many_tasks,
        otherwise,
        subject,
    })
}

/// Whether the list is full, so that shorter ones are not in it.
fn is_full(list: &Largest, options: &Options, threshold_ns: u64) -> bool {
    list.len() > 0 && list.above(threshold_ns) >= options.top
}

/// Whether a second pass has to count: the first one keeps only the largest, and did not know the threshold.
fn is_unknown(subject: &Subject, options: &Options, threshold_ns: u64) -> bool {
    let least_ns = options.least_ns();
    let is_cut =
        is_full(&subject.late, options, threshold_ns) || is_full(&subject.blocked, options, threshold_ns);
    let is_below = threshold_ns < least_ns.min(KEPT_LEAST_NS);
    threshold_ns != least_ns && (is_cut || is_below) && subject.late.len() > 0
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
