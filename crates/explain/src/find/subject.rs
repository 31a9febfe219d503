//! The task whose spikes are searched: the named one, or the one that looks like the measured one.

use crate::find::finder::{Finder, Samples};
use crate::find::late::PRIORITY_NORMAL;
use crate::find::late::{Largest, Late};
use crate::find::track::TaskTrack;
use crate::options::{Options, TaskChoice};
use crate::vocabulary;
use whylate_core::order::InOrder;
use whylate_core::result::LateWhat;
use whylate_trace::facts::FactTask;
use whylate_trace::reader::{Reader, TraceInfo};

/// The table has whole microseconds.
const ROUNDED_NS: u64 = 1_000;

/// Why the task of a tracer's samples is examined.
pub(crate) const MEASURED: &str = "the tracer measured this task's latencies";

/// Why the task in the header of a wake-up tracer is examined.
const STATED: &str = "the tracer's header names this task";

/// The chosen tasks and their late moments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject {
    pub(crate) task: Option<String>,
    /// Why this one.
    pub(crate) reason: String,
    pub(crate) late: Largest,
    pub(crate) blocked: Largest,
    pub(crate) wakeups: u64,
    /// The inferred period of the thread that stopped the trace, or else of the one with most wake-ups among those that have one.
    pub(crate) period_ns: Option<u64>,
    /// How well that thread stands for all.
    pub(crate) period_of: (bool, u64),
    pub(crate) pids: Vec<u32>,
    /// A tracer took samples of it.
    pub(crate) sampled: bool,
    /// Wake-ups whose expected moment is unknown, and those whose expected moment comes from the task's rhythm.
    pub(crate) unknown: u64,
    pub(crate) inferred: u64,
    /// How often one of its threads was at work without a sleep for longer than its period, and for how long at most.
    pub(crate) overruns: (u64, u64),
    /// Wake-ups, or sleeps if these are requested, without a switch to the task that may have been late, and the longest time until it
    /// ran or was woken again.
    pub(crate) unseen: (u64, u64),
    /// How long one of its threads has been waiting at the end of the trace.
    pub(crate) waits_ns: u64,
    /// The longest of these waits, as a late moment that did not end.
    pub(crate) waiting: Option<Late>,
}

impl Subject {
    fn add(&mut self, pid: u32, track: &TaskTrack, finder: &Finder<'_>, options: &Options) {
        for list in track.lists(options, false) {
            self.late.merge(list, options.top);
        }
        if options.what.is_none() {
            self.blocked.merge(&track.blocked, options.top);
        }
        self.pids.push(pid);
        self.wakeups += track.wakeups;
        self.unknown += track.unknown;
        self.inferred += track.inferred;
        self.overruns = (self.overruns.0 + track.overruns.0, self.overruns.1.max(track.overruns.1));
        let unseen = match options.what {
            Some(LateWhat::Blocked) => track.unseen_sleeps,
            _ => track.unseen,
        };
        self.unseen = (self.unseen.0 + unseen.0, self.unseen.1.max(unseen.1));
        let waits = track.waits_since_ns().map_or(0, |since| finder.seen.last_ns.saturating_sub(since));
        self.waits_ns = self.waits_ns.max(waits);
        let is_wanted = options.what.is_none_or(|what| what == LateWhat::Wakeup);
        let both = self.waiting.into_iter().chain(finder.waiting(pid, track).filter(|_| is_wanted));
        self.waiting = both.max_by_key(Late::latency_ns);
        let of = (finder.marked == Some(pid), track.wakeups);
        if let Some(period_ns) = track.rhythm.period_ns().filter(|_| of > self.period_of) {
            (self.period_ns, self.period_of) = (Some(period_ns), of);
        }
    }
}

/// Chooses among what the first pass saw.
pub(crate) fn choose(finder: &Finder<'_>, options: &Options, reader: &dyn Reader) -> Subject {
    let text = |track: &TaskTrack| track.command.map_or("", |name| reader.names().text(name)).to_owned();
    match &options.task {
        Some(TaskChoice::Pid(pid)) => {
            let samples = sampled(finder, options, |own, _| own == *pid, reader);
            let mut subject = samples.unwrap_or_default();
            if let Some(track) = finder.tasks.get(*pid) {
                subject.add(*pid, track, finder, options);
                subject.task = Some(pid.to_string());
            }
            subject.reason = reason_of_choice(&subject, &format!("thread {pid}"), finder, &text);
            subject
        }
        Some(TaskChoice::Name(name)) => {
            let samples = sampled(finder, options, |_, command| command.starts_with(name.as_str()), reader);
            let mut subject = samples.unwrap_or_default();
            let named = || finder.tasks.iter().filter(|(_, track)| text(track) == *name);
            // Threads of a measuring tool that only wait for its other threads are not real-time tasks.
            let realtime =
                named().any(|(_, track)| track.priority.is_some_and(|priority| priority < PRIORITY_NORMAL));
            for (pid, track) in named().filter(|(_, track)| !realtime || is_realtime(track)) {
                subject.add(pid, track, finder, options);
                subject.task = Some(name.clone());
            }
            subject.reason = reason_of_choice(&subject, &format!("`{name}`"), finder, &text);
            subject
        }
        None => {
            if let Some(subject) = sampled(finder, options, |_, _| true, reader) {
                return subject;
            }
            automatic(finder, options, text, reader)
        }
    }
}

/// The task that the header of a wake-up tracer says was late.
pub(crate) fn stated_task(info: &TraceInfo) -> Option<&FactTask> {
    let tracer = info.tracer.as_deref().unwrap_or("");
    info.facts.task.as_ref().filter(|_| tracer.starts_with("wakeup") || tracer.is_empty())
}

/// How many threads are named if the requested one is not in the trace.
const NAMED_MAX: usize = 8;

fn reason_of_choice(
    subject: &Subject,
    choice: &str,
    finder: &Finder<'_>,
    text: &impl Fn(&TaskTrack) -> String,
) -> String {
    if subject.task.is_some() {
        return "as requested".to_owned();
    }
    let mut threads: Vec<(bool, u32, String)> =
        finder.tasks.iter().map(|(pid, track)| (!is_realtime(track), pid, text(track))).collect();
    threads.order();
    let mut names: Vec<String> =
        threads.iter().take(NAMED_MAX).map(|(_, pid, name)| format!("{name}-{pid}")).collect();
    if threads.len() > NAMED_MAX {
        names.push(format!("{} more", threads.len() - NAMED_MAX));
    }
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("{choice} is not in the trace, which has these threads: {there}")
}

fn sampled(
    finder: &Finder<'_>,
    options: &Options,
    wanted: impl Fn(u32, &str) -> bool,
    reader: &dyn Reader,
) -> Option<Subject> {
    let mut subject = Subject { reason: MEASURED.to_owned(), ..Subject::default() };
    // The tracer's own attribution is more exact than the sum in its table.
    let noises = finder.seen.noises > 0 && finder.seen.timerlats == 0 && finder.seen.gaps == 0;
    // Without the tracer's thread they only show what ran, and no thread was kept from running.
    if noises && finder.seen.samples == 0 && !finder.seen.workload {
        return None;
    }
    // Keeps only some of them if the table of the tracer has a larger one.
    let worst = |lists: &Samples| lists.values().map(|(_, largest)| largest.worst_ns()).max().unwrap_or(0);
    let whole = worst(&finder.noises).saturating_add(ROUNDED_NS) >= worst(&finder.samples);
    let lists = if noises && whole { &finder.noises } else { &finder.samples };
    for (pid, (command, largest)) in lists {
        let name = command.map_or("", |name| reader.names().text(name));
        if wanted(*pid, name) {
            subject.sampled = true;
            subject.late.merge(largest, options.top);
            let family = name.split('/').next().filter(|family| !family.is_empty());
            subject.task = subject.task.or(family.map(str::to_owned));
        }
    }
    subject.task = subject.task.or_else(|| reader.info().tracer.clone());
    subject.sampled.then_some(subject)
}

/// The marked one; else a measuring tool; else the real-time task that was latest, periodic ones first; else the
/// latest of all.
fn automatic(
    finder: &Finder<'_>,
    options: &Options,
    text: impl Fn(&TaskTrack) -> String,
    reader: &dyn Reader,
) -> Subject {
    let header = stated_task(reader.info());
    let stated = header.map(|task| task.pid);
    let rank = |pid: u32, track: &TaskTrack| -> (u8, &'static str) {
        let name = text(track);
        let realtime = track.priority.is_some_and(|priority| priority < PRIORITY_NORMAL);
        let own = !vocabulary::is_kernel_housekeeping(&name)
            && !vocabulary::is_recorder(&name)
            && !vocabulary::is_own(&name)
            && !is_helper(track, &name);
        match track.rhythm.period_ns() {
            _ if finder.marked == Some(pid) => (5, "the task stopped the trace because it was late"),
            _ if stated == Some(pid) => (5, STATED),
            _ if vocabulary::is_measuring(&name) && is_realtime(track) => (4, "the task measures latency"),
            Some(_) if realtime && own => (3, "a periodic real-time task"),
            None if realtime && own => (2, "the real-time task with the largest latency"),
            _ if own => (1, "the task with the largest latency; no real-time task was late"),
            _ => (0, "only threads of the kernel or of recording tools were late"),
        }
    };
    let worst = |track: &TaskTrack| track.lists(options, false).map(Largest::worst_ns).max().unwrap_or(0);
    let seen = |track: &&TaskTrack| track.wakeups > 0 || worst(track) > 0;
    let pinned = |pid: u32| finder.pinned.as_ref().is_none_or(|pids| pids.contains(&pid));
    let candidates = || finder.tasks.iter().filter(|(pid, track)| pinned(*pid) && seen(track));
    let key = |pid: u32, track: &TaskTrack| {
        (rank(pid, track).0, worst(track), track.blocked.worst_ns(), track.wakeups, u32::MAX - pid)
    };
    // The lines of its wake-up may be missing: another late task is not the one that the tracer measured.
    let states_latency = reader.info().facts.latency_ns.is_some();
    if let Some(task) = header.filter(|_| states_latency)
        && !candidates().any(|(pid, _)| pid == task.pid || finder.marked == Some(pid))
    {
        let mut subject = Subject { reason: STATED.to_owned(), ..Subject::default() };
        finder
            .tasks
            .get(task.pid)
            .into_iter()
            .for_each(|track| subject.add(task.pid, track, finder, options));
        subject.task = Some(task.command.clone());
        return Subject { pids: vec![task.pid], ..subject };
    }
    let best = candidates().max_by_key(|(pid, track)| key(*pid, track));
    // If the real-time tasks were on time, or only threads of the kernel slept, every late task counts.
    let late = candidates().filter(|(_, track)| worst(track) > options.least_ns());
    let latest = late.max_by_key(|(pid, track)| key(*pid, track));
    let in_time = best.is_some_and(|(pid, track)| {
        rank(pid, track).0 <= 2 && worst(track) <= options.least_ns() && track.blocked.worst_ns() == 0
    });
    let Some((pid, track)) = latest.filter(|_| in_time).or(best) else {
        return Subject { reason: no_task(reader), ..Subject::default() };
    };
    let (rank_of_best, reason) = rank(pid, track);
    let name = text(track);
    let mut subject = Subject { reason: reason.to_owned(), ..Subject::default() };
    if rank_of_best < 3 || name.is_empty() {
        subject.add(pid, track, finder, options);
        subject.task = Some(if name.is_empty() { pid.to_string() } else { format!("{name}-{pid}") });
        return subject;
    }
    // All threads of a tool that measures with several.
    for (other, track) in finder.tasks.iter() {
        if other == pid || (text(track) == name && rank(other, track).0 >= 3 && is_realtime(track)) {
            subject.add(other, track, finder, options);
        }
    }
    subject.task = Some(name);
    subject
}

fn no_task(reader: &dyn Reader) -> String {
    match reader.info().tracer.as_deref() {
        Some(tracer @ ("hwlat" | "osnoise" | "timerlat")) => format!("the {tracer} tracer took no sample"),
        _ => "no task was seen to sleep and run again".to_owned(),
    }
}

/// Whether it is a thread of this program that does not measure.
pub(crate) fn is_helper(track: &TaskTrack, name: &str) -> bool {
    vocabulary::is_own(name) && !is_realtime(track)
}

fn is_realtime(track: &TaskTrack) -> bool {
    track.priority.is_none_or(|priority| priority < PRIORITY_NORMAL)
}
