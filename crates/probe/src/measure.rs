//! One measurement from start to end: starts the measuring process, hands over what it counted at each stored
//! interval, and stops it in order.

use crate::accounting::Accounting;
use crate::condition::{self, Condition, Starved, add_open_latencies};
use crate::error::ProbeError;
use crate::session::Session;
use crate::spec::ProbeSpec;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;
use whylate_core::record::{
    CounterRecord, HwlatRecord, InterruptRecord, Interval, SourceRecord, SpikeCauses, SpikeRecord, TaskRecord,
};
use whylate_core::result::{
    AuditRecord, Cause, CauseKind, ChainPath, ChainRecord, HistogramKind, LatencyRecord, Quantiles,
    TimelineSegment, TriggerMoment, TriggerRecord, WakeLink,
};
use whylate_core::{CpuId, CpuSet, Nanos, Warning, WarningCode};
use whylate_host::{Host, HostRoot, shield};
use whylate_sys::process::Launcher;
use whylate_sys::{clock, schedule};

/// How often the shared memory is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How long after its end a measuring process may take to say so; the watchdog acts before.
const OVERDUE_NS: u64 = 8_000_000_000;

/// What one stored interval brought.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Begin, CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Per measured CPU.
    pub intervals: Vec<Interval>,
    /// New spikes.
    pub spikes: Vec<SpikeRecord>,
    /// Interrupts on the measured CPUs.
    pub interrupts: Vec<InterruptRecord>,
    /// Counters of the measured CPUs; those of the measuring thread come with the last batch.
    pub counters: Vec<CounterRecord>,
    /// Who was late in new maxima of the kernel's histograms.
    pub latency_records: Vec<(CpuId, HistogramKind, LatencyRecord)>,
    /// The causes of spikes, where the probe finds them itself.
    pub causes: Vec<SpikeCauses>,
    /// What watched threads did.
    pub tasks: Vec<TaskRecord>,
    /// What they do that real-time threads should not.
    pub audit: Vec<AuditRecord>,
    /// How often triggers came, and those that were explained.
    pub triggers: (Vec<TriggerRecord>, Vec<TriggerMoment>),
    /// What came of chains, and the instances that were explained.
    pub chains: (Vec<ChainRecord>, Vec<ChainPath>),
    /// Who took time from them, by series; without a name for the only series of a probe.
    pub sources: Vec<(Option<String>, SourceRecord)>,
    /// Samples of the hwlat tracer, whole.
    pub hwlat: Vec<HwlatRecord>,
}

/// The progress of a measurement.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Time since samples began to count.
    pub elapsed: Nanos,
    /// For how long they count.
    pub duration: Nanos,
    /// Per measured CPU: samples and the largest one so far, in nanoseconds.
    pub cpus: Vec<(CpuId, u64, u64)>,
}

/// The state of a watched thread so far.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TaskLine {
    /// Name of the thread's series.
    pub name: String,
    /// Thread ID.
    pub thread: u32,
    /// Priority of the thread, as tools print it.
    pub priority: i32,
    /// Responses of the thread.
    #[serialize_always]
    pub response: Option<Quantiles>,
    /// Wake-up latencies of the thread.
    #[serialize_always]
    pub wakeup: Option<Quantiles>,
    /// Number of activations (wake-ups with the work that follows).
    pub activations: u64,
    /// Number of activations whose response was above the deadline.
    pub missed: u64,
    /// Median period of the thread.
    #[serialize_always]
    pub period_ns: Option<u64>,
    /// The largest responses of the last seconds, oldest first.
    pub strip: Vec<u64>,
    /// The worst response and its causes. Responses that whylate delayed count only without any other.
    #[serialize_always]
    pub worst: Option<(u64, Vec<Cause>)>,
    /// The largest response that whylate itself delayed, unless it is `worst`.
    pub by_whylate_ns: Option<u64>,
    /// The last explained activation: above the deadline, or among the worst at that time.
    pub last_spike: Option<TaskSpike>,
    /// The activation of `worst`.
    pub worst_spike: Option<TaskSpike>,
    /// What a monitor counts from.
    #[serde(skip)]
    pub totals: TaskTotals,
}

/// The state of the triggers of a watch so far.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TriggerLine {
    /// How often a trigger came.
    pub count: u64,
    /// The trigger that was explained last, with the late thread and its first cause.
    pub last: Option<String>,
}

/// What the user of a watch may want to act on at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A response exceeded the deadline.
    Late {
        /// The series of the thread, and its id.
        thread: String,
        pid: u32,
        /// End of the response, on CLOCK_MONOTONIC.
        at_ns: u64,
        latency_ns: u64,
        /// It had not ended when the watch did, at `at_ns`.
        is_unended: bool,
        /// The first cause, as a sentence.
        cause: Option<String>,
    },
    /// A trigger came, as given, with its text.
    Trigger { at_ns: u64, trigger: String, text: Option<String> },
}

/// An explained activation, stage by stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct TaskSpike {
    /// When the activation should have begun, on CLOCK_MONOTONIC.
    pub due_ns: u64,
    /// Time from `due_ns` to the thread's next sleep.
    pub latency_ns: u64,
    /// Causes of the latency.
    pub causes: Vec<Cause>,
    /// Wake-ups that led to the activation, the last one first; empty if none was recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wakeups: Vec<WakeLink>,
    /// What the thread did, without gap or overlap.
    pub timeline: Vec<TimelineSegment>,
}

/// The totals of a watched thread since the start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskTotals {
    /// Its responses, and its wake-up latencies.
    pub latencies: [LatencyTotals; 2],
    /// Kind, who (`None`: all that came after the first 32), time in nanoseconds, how often.
    pub thieves: Vec<(CauseKind, Option<String>, u64, u64)>,
}

/// A histogram for monitors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyTotals {
    /// Upper edge in nanoseconds, growing by 1, 2 and 5, and how many samples are at most as large.
    pub buckets: Vec<(u64, u64)>,
    /// Number of samples.
    pub count: u64,
    /// Their sum.
    pub sum_ns: u64,
}

/// Follows a measurement.
pub trait Observer {
    /// Called about 20 times a second.
    fn progress(&mut self, progress: &Progress);
    /// Called at the end of each stored interval, and at the end.
    ///
    /// # Errors
    /// Any reason to end the measurement, which is then its error.
    fn batch(&mut self, batch: Batch) -> Result<(), String>;
    /// Called once, when the measuring process is ready, before it measures: its process id, and the moment from which its
    /// samples count.
    fn armed(&mut self, _process: u32, _start_ns: u64) {}
    /// Called once, when the first latency above the break or gap above the threshold is seen.
    fn first_spike(&mut self, _latency: Nanos) {}
    /// Called with new spikes up to 20 times a second, so within about 50 ms of each. The same spikes come with the batch of
    /// their interval, unless larger ones have displaced them by then.
    fn spikes(&mut self, _spikes: &[SpikeRecord]) {}
    /// Called about 20 times a second by a probe that watches tasks, with the state of each task so far.
    fn tasks(&mut self, _tasks: &[TaskLine]) {}
    /// The same with the state of the triggers, if there are any; called before it.
    fn triggers(&mut self, _triggers: &TriggerLine) {}
    /// Called within about 50 ms of a late response or a trigger.
    fn happened(&mut self, _happened: Happened) {}
    /// Called about 20 times a second: whether to end now and keep the results so far.
    fn should_stop(&self) -> bool;
}

/// How a measurement ended.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What differed from the request.
    pub warnings: Vec<Warning>,
    /// The latency that ended it early.
    pub broke: Option<Nanos>,
    /// Whether the observer ended it early.
    pub stopped: bool,
}

/// What is measured.
#[derive(Clone, Copy)]
pub(crate) struct Measuring<'m> {
    pub(crate) host: &'m Host,
    pub(crate) launcher: &'m Launcher,
    pub(crate) spec: &'m ProbeSpec,
    /// Length of a stored interval.
    pub(crate) stored: Nanos,
}

/// Measures on the machine `host` as `spec` says, with a stored interval of `stored`.
///
/// # Errors
/// [`ProbeError`]; the observer already has what was measured until then.
pub fn measure(
    host: &Host,
    launcher: &Launcher,
    spec: &ProbeSpec,
    stored: Nanos,
    observer: &mut dyn Observer,
) -> Result<Outcome, ProbeError> {
    spec.kind.as_kind().measure(&Measuring { host, launcher, spec, stored }, observer)
}

/// Measures with threads of a process of its own.
pub(crate) fn measure_in_process(
    of: &Measuring<'_>,
    observer: &mut dyn Observer,
) -> Result<Outcome, ProbeError> {
    let Measuring { launcher, spec, stored, .. } = *of;
    let host = &of.host.running;
    let _elsewhere = Elsewhere::move_to(host, &spec.other_cpus);
    let mut session = Session::start(launcher, spec)?;
    if let Err(error) = session.wait_until_armed() {
        return Err(kept_from_starting(of, session, error, observer));
    }
    observer.armed(session.process(), session.start_ns);
    let mut warnings = std::mem::take(&mut session.warnings);
    warnings.extend(condition::other_whylate(host, &spec.cpus));
    let mut accounting = Accounting::start(host, &spec.cpus, &mut warnings);
    let end_ns = session.start_ns.saturating_add(spec.duration.0);
    let mut follow = Follow {
        next_ns: session.start_ns + stored.0,
        end_ns,
        stored,
        seen_spike: false,
        stopped: false,
        condition: Condition::new(host, &spec.cpus),
        starved: Vec::new(),
    };
    let ended = follow.follow(&mut session, &mut accounting, observer);
    session.drain();
    follow.notice_spike(&session, observer);
    follow.hand_over_spikes(&mut session, observer);
    let counted = accounting.finish();
    let mut batch = batch(&mut session, counted, clock::now().0.min(end_ns));
    batch.counters.extend(session.usage());
    add_open_latencies(&mut batch, &session, &follow.starved);
    observer.batch(batch).map_err(ProbeError::Observer)?;
    ended?;
    let broke = session.broke_ns().map(Nanos);
    let disorder = session.disorder();
    if disorder > 0 {
        warnings.push(Warning::new(
            WarningCode::CountersDisagree,
            format!(
                "the counters of the two CPUs disagree, so the times of each direction are wrong (answers \
                 with a time outside of their round trip: {disorder})"
            ),
        ));
    }
    Ok(Outcome { warnings, broke, stopped: follow.stopped })
}

/// The error of a process that did not become ready. The latency of threads that never ran is handed over.
fn kept_from_starting(
    of: &Measuring<'_>,
    mut session: Session<'_>,
    error: ProbeError,
    observer: &mut dyn Observer,
) -> ProbeError {
    if !matches!(error, ProbeError::NotReady { .. }) {
        return error;
    }
    let host = &of.host.running;
    let starved = condition::starved(host, &session);
    let Some(why) = condition::error(&starved) else { return error };
    let now = clock::now().0;
    session.begin_interval_at(starved.iter().map(|thread| now - thread.waited.0).min().unwrap_or(now));
    let mut batch = batch(&mut session, (Vec::new(), Vec::new()), now);
    add_open_latencies(&mut batch, &session, &starved);
    observer.batch(batch).map_or_else(ProbeError::Observer, |()| why)
}

/// The state of an observed measurement.
struct Follow<'h> {
    next_ns: u64,
    end_ns: u64,
    stored: Nanos,
    seen_spike: bool,
    stopped: bool,
    condition: Condition<'h>,
    starved: Vec<Starved>,
}

impl Follow<'_> {
    /// Checks everything until all threads have ended.
    fn follow(
        &mut self,
        session: &mut Session<'_>,
        accounting: &mut Accounting,
        observer: &mut dyn Observer,
    ) -> Result<(), ProbeError> {
        while !session.is_finished() {
            std::thread::sleep(POLL);
            session.check_alive()?;
            session.drain();
            self.condition.check(session)?;
            self.look(session, accounting, observer)?;
            self.starved = self.condition.starved(session, self.end_ns);
            if let Some(error) = condition::error(&self.starved) {
                return Err(error);
            }
            // The observer may have taken longer than that; the threads have ended meanwhile.
            if clock::now().0 > self.end_ns.saturating_add(OVERDUE_NS) && !session.is_finished() {
                return Err(ProbeError::Died("whylate ended it, because it took too long".to_owned()));
            }
        }
        session.finish()?;
        session.drain();
        self.condition.check(session)
    }

    fn look(
        &mut self,
        session: &mut Session<'_>,
        accounting: &mut Accounting,
        observer: &mut dyn Observer,
    ) -> Result<(), ProbeError> {
        let (now, end_ns) = (clock::now().0, self.end_ns);
        let elapsed = Nanos(now.saturating_sub(session.start_ns));
        let duration = Nanos(end_ns - session.start_ns);
        observer.progress(&Progress { elapsed, duration, cpus: session.so_far().collect() });
        self.notice_spike(session, observer);
        self.hand_over_spikes(session, observer);
        // The last interval is handed over with the end.
        if (now >= self.next_ns || session.has_many_spikes()) && now < end_ns {
            let counted = accounting.take();
            observer.batch(batch(session, counted, now)).map_err(ProbeError::Observer)?;
            self.next_ns = now + self.stored.0;
        }
        if !self.stopped && observer.should_stop() {
            session.stop();
            self.stopped = true;
            self.end_ns = now;
        }
        Ok(())
    }

    fn hand_over_spikes(&self, session: &mut Session<'_>, observer: &mut dyn Observer) {
        let spikes = session.spikes_as_they_come();
        if !spikes.is_empty() {
            observer.spikes(&spikes);
        }
    }

    fn notice_spike(&mut self, session: &Session<'_>, observer: &mut dyn Observer) {
        if self.seen_spike {
            return;
        }
        if let Some(latency) = session.broke_ns().or_else(|| session.first_gap_ns()) {
            self.seen_spike = true;
            observer.first_spike(Nanos(latency));
        }
    }
}

fn batch(
    session: &mut Session<'_>,
    (interrupts, counters): (Vec<InterruptRecord>, Vec<CounterRecord>),
    end_ns: u64,
) -> Batch {
    let (intervals, spikes) = session.interval(end_ns);
    let start_ns = intervals.first().map_or(end_ns, |interval| interval.start_ns);
    Batch { start_ns, end_ns, intervals, spikes, interrupts, counters, ..Batch::default() }
}

/// Keeps the calling thread off the measured CPUs, and puts it back when dropped.
#[derive(Debug)]
pub struct Elsewhere<'a> {
    host: &'a HostRoot,
    before: Option<CpuSet>,
}

impl<'a> Elsewhere<'a> {
    /// Moves the thread to `cpus`; without any it stays. A thread that a shield confines is not pinned: it would remain
    /// pinned after the shield is gone.
    pub fn move_to(host: &'a HostRoot, cpus: &CpuSet) -> Self {
        let before = schedule::allowed_of_this_thread().ok();
        let is_there = before.as_ref().is_some_and(|before| before.difference(cpus).is_empty());
        let moved = !cpus.is_empty() && !is_there && shield::pin_this_thread(host, cpus).is_ok();
        Self { host, before: before.filter(|_| moved) }
    }
}

impl Drop for Elsewhere<'_> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // If the CPUs have gone offline meanwhile, the kernel keeps the thread on the remaining ones.
            let _ = shield::pin_this_thread(self.host, before);
        }
    }
}
