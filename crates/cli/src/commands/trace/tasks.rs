//! `whylate trace record` of the user's own threads: the trace of a late response, or of a trigger.

use crate::arguments::TraceRecordArguments;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use whylate_core::plan::TaskPlan;
use whylate_core::record::SpikeRecord;
use whylate_core::result::{ProbeResult, RecordedTrace, TriggerMoment};
use whylate_core::{CpuId, Nanos, SeriesName};
use whylate_record::{Keeper, Kept, RankedFiles, RecordError};
use whylate_runner::Happened;

/// The threads that are watched if the flags name none: SCHED_FIFO, SCHED_RR and SCHED_DEADLINE.
const REAL_TIME: &str = "1-100";
/// The watch continues for this time after the last trace, so that the late activation can end.
const GOES_ON: Duration = Duration::from_millis(300);
/// The most waits for a CPU that are remembered.
const WAITS_MAX: usize = 4_096;

/// The threads and triggers for these flags; `None` to measure with a task of whylate's own.
pub(super) fn plan(arguments: &TraceRecordArguments) -> Option<TaskPlan> {
    let target = arguments.target.plan();
    let has_target = target != TaskPlan::default();
    (has_target || !arguments.trigger.is_empty()).then(|| TaskPlan {
        cpus: arguments.cpu.clone(),
        priorities: (!has_target).then(|| REAL_TIME.to_owned()),
        deadline: arguments.until,
        triggers: arguments.trigger.clone(),
        last: arguments.last,
        ..target
    })
}

/// What a trace was kept for.
struct Occasion {
    /// Decides which traces are kept, and in which order: triggers come first.
    rank: u64,
    trace: RecordedTrace,
}

/// Keeps a trace for each late response and each trigger.
pub(super) struct OwnTasks {
    occasions: Vec<Occasion>,
    /// The longest wait for a CPU of each late activation.
    waits: VecDeque<SpikeRecord>,
    triggers: u64,
    /// The watch ends some time after the first trace.
    is_one_enough: bool,
    ends_at: Option<Instant>,
}

impl OwnTasks {
    /// `worst` traces are kept until the duration is over; without it the first one ends the recording.
    pub(super) fn new(worst: Option<usize>) -> Self {
        let is_one_enough = worst.is_none();
        Self { occasions: Vec::new(), waits: VecDeque::new(), triggers: 0, is_one_enough, ends_at: None }
    }

    pub(super) fn is_done(&self) -> bool {
        self.ends_at.is_some_and(|at| Instant::now() >= at)
    }

    pub(super) fn waited(&mut self, waits: &[SpikeRecord]) {
        self.waits.extend(waits.iter().cloned());
        self.waits.drain(..self.waits.len().saturating_sub(WAITS_MAX));
    }

    /// Saves the trace of this moment if it is worth it.
    pub(super) fn happened(
        &mut self,
        happened: Happened,
        keeper: &mut Keeper,
        names: &mut RankedFiles,
    ) -> Result<(), RecordError> {
        if self.ends_at.is_some() {
            return Ok(());
        }
        let occasion = match happened {
            Happened::Late { thread, at_ns, latency_ns, is_unended, cause, .. } => Occasion {
                rank: latency_ns,
                trace: RecordedTrace {
                    at_ns,
                    latency_ns: Some(latency_ns),
                    unended: is_unended,
                    thread: Some(thread),
                    why: cause,
                    ..RecordedTrace::default()
                },
            },
            Happened::Trigger { at_ns, trigger, text } => {
                self.triggers += 1;
                let trace = RecordedTrace { at_ns, trigger: Some(trigger), text, ..RecordedTrace::default() };
                // The first ones are kept.
                Occasion { rank: u64::MAX - self.triggers, trace }
            }
        };
        let spike = SpikeRecord {
            at_ns: occasion.trace.at_ns,
            latency_ns: occasion.rank,
            ..SpikeRecord::of(CpuId(0), None)
        };
        if keeper.spikes(&[spike], &mut |_| names.next_path())?.is_some() {
            self.occasions.push(occasion);
            self.ends_at = self.is_one_enough.then(|| Instant::now() + GOES_ON);
        }
        Ok(())
    }

    /// What is said of a trace, and the wait for a CPU that the trace explains, if there was one.
    pub(super) fn described(
        &self,
        kept: &Kept,
        probe: &ProbeResult,
        last: Nanos,
    ) -> (RecordedTrace, Option<SpikeRecord>) {
        let is_it = |it: &&Occasion| (it.trace.at_ns, it.rank) == (kept.at_ns, kept.latency_ns);
        let mut trace = self.occasions.iter().find(is_it).map(|it| it.trace.clone()).unwrap_or_default();
        trace.path = kept.path.display().to_string();
        let mut during = (trace.at_ns.saturating_sub(trace.latency_ns.unwrap_or(last.0)), trace.at_ns);
        if let Some(moment) =
            trace.trigger.as_deref().and_then(|trigger| moment(probe, trigger, trace.at_ns, last))
        {
            if let Some(late) = moment.late_thread() {
                trace.thread = Some(late.thread.clone());
                during = (late.due_ns, late.due_ns + late.response_ns);
            }
            trace.why = Some(moment.sentence());
        }
        let wait = trace.thread.as_deref().and_then(|thread| self.longest_wait(thread, during)).cloned();
        // A short wait does not explain a long response.
        let wait = wait.filter(|wait| wait.latency_ns.saturating_mul(2) >= during.1.saturating_sub(during.0));
        trace.cpu = wait.as_ref().map(|wait| wait.cpu);
        (trace, wait)
    }

    /// The longest wait for a CPU of a thread in this time.
    fn longest_wait(&self, thread: &str, (from_ns, to_ns): (u64, u64)) -> Option<&SpikeRecord> {
        let is_of = |wait: &&SpikeRecord| {
            let series = wait.series.as_deref().unwrap_or_default();
            let is_its = series.strip_suffix("/wakeup").unwrap_or(series) == thread;
            is_its && wait.at_ns >= from_ns && wait.at_ns.saturating_sub(wait.latency_ns) <= to_ns
        };
        self.waits.iter().filter(is_of).max_by_key(|wait| wait.latency_ns)
    }
}

/// Why responses above `until` may have been missed; `None` if there were certainly none.
pub(super) fn cannot_tell(probe: &ProbeResult, until: Nanos) -> Option<String> {
    let nothing = || (!probe.has_data()).then(|| "no wake-up of a followed thread was seen".to_owned());
    whylate_stats::may_hide(probe, until).or_else(nothing)
}

/// The series of a wait, as those of a run are named.
pub(super) fn series(wait: &SpikeRecord) -> String {
    SeriesName::in_probe("task", wait.series.as_deref()).to_string()
}

/// The explained moment that contains the trigger of this time: triggers close to each other share one.
fn moment<'p>(probe: &'p ProbeResult, trigger: &str, at_ns: u64, last: Nanos) -> Option<&'p TriggerMoment> {
    let all = probe.triggers.iter().flat_map(|it| &it.moments);
    let is_it = |it: &&TriggerMoment| {
        let is_of = it.trigger == trigger || it.others.iter().any(|other| other == trigger);
        is_of && it.at_ns.abs_diff(at_ns) <= last.0
    };
    all.filter(is_it).min_by_key(|it| it.at_ns.abs_diff(at_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::{TriggerResult, TriggerThread};

    fn wait(series: &str, from_ns: u64, to_ns: u64) -> SpikeRecord {
        SpikeRecord {
            at_ns: to_ns,
            latency_ns: to_ns - from_ns,
            ..SpikeRecord::of(CpuId(1), Some(series.to_owned()))
        }
    }

    #[test]
    fn a_trace_explains_the_longest_wait_of_the_late_thread_in_its_time() {
        let mut tasks = OwnTasks::new(None);
        tasks.waited(&[
            wait("control/wakeup", 100, 400),
            wait("control", 1_000, 1_600),
            wait("control/wakeup", 1_700, 1_800),
            wait("other", 1_000, 1_900),
            wait("control", 3_000, 4_000),
        ]);
        let found = tasks.longest_wait("control", (900, 2_000)).map(|it| (it.at_ns, series(it)));
        assert_eq!(found, Some((1_600, "task/control".to_owned())));
        assert_eq!(tasks.longest_wait("control", (2_000, 2_500)), None);
    }

    #[test]
    fn without_a_wakeup_or_with_a_gap_nothing_is_claimed() {
        use whylate_core::quantity::{Quantities, UNSEEN, UNSEEN_MAX_NS};
        use whylate_core::result::CpuResult;

        let of = |samples, unseen_ns: Option<u64>| {
            let quantities =
                Quantities::default().with(UNSEEN, unseen_ns.map(|_| 1)).with(UNSEEN_MAX_NS, unseen_ns);
            let series = Some("control".to_owned());
            let cpu = CpuResult { series, samples, quantities, ..CpuResult::default() };
            let probe = ProbeResult { probe: "task".to_owned(), cpus: vec![cpu], ..ProbeResult::default() };
            cannot_tell(&probe, Nanos(1_000_000))
        };
        assert_eq!((of(10, None), of(10, Some(1_000_000))), (None, None));
        assert!(of(0, None).unwrap().contains("no wake-up"));
        for samples in [0, 10] {
            let said = of(samples, Some(2_000_000_000)).unwrap();
            assert!(said.starts_with("control: ") && said.contains("up to 2.00 s"), "{said}");
        }
    }

    #[test]
    fn a_trigger_has_the_reason_of_its_moment() {
        let late = TriggerThread {
            thread: "control".to_owned(),
            due_ns: 900,
            response_ns: 400,
            late: true,
            ..TriggerThread::default()
        };
        let of = |at_ns, trigger: &str, threads| TriggerMoment {
            at_ns,
            trigger: trigger.to_owned(),
            others: vec!["b".to_owned()],
            threads,
            ..TriggerMoment::default()
        };
        let moments = vec![of(1_000, "a", vec![late]), of(5_000, "a", Vec::new())];
        let probe = ProbeResult {
            triggers: vec![TriggerResult { moments, ..TriggerResult::default() }],
            ..ProbeResult::default()
        };
        assert_eq!(moment(&probe, "a", 1_000, Nanos(500)).map(|it| it.at_ns), Some(1_000));
        assert_eq!(moment(&probe, "b", 1_200, Nanos(500)).map(|it| it.at_ns), Some(1_000));
        assert_eq!(moment(&probe, "c", 1_200, Nanos(500)), None);
        assert_eq!(moment(&probe, "a", 3_000, Nanos(500)), None);
    }
}
