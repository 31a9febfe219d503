//! Whose spikes are looked for: the task that was named, or the one that looks like the measured one.

use super::finder::{Finder, PRIORITY_NORMAL, TaskTrack};
use super::late::Largest;
use super::{Options, TaskChoice, vocabulary};
use whylate_trace::reader::Reader;

/// The chosen tasks and what is late of theirs.
#[derive(Clone, Debug, Default)]
pub(super) struct Subject {
    /// As the report names it.
    pub(super) task: Option<String>,
    /// Why this one.
    pub(super) reason: String,
    pub(super) late: Largest,
    pub(super) blocked: Largest,
    pub(super) wakeups: u64,
    /// The inferred period of the first of its threads that has one.
    pub(super) period_ns: Option<u64>,
}

impl Subject {
    fn add(&mut self, track: &TaskTrack, top: usize) {
        self.late.merge(&track.late, top);
        self.blocked.merge(&track.blocked, top);
        self.wakeups += track.wakeups;
        self.period_ns = self.period_ns.or_else(|| track.rhythm.period_ns());
    }
}

/// Chooses among what the first pass saw.
pub(super) fn choose(finder: &Finder<'_>, options: &Options, reader: &dyn Reader) -> Subject {
    let text = |track: &TaskTrack| track.command.map_or("", |name| reader.names().text(name)).to_owned();
    match &options.task {
        Some(TaskChoice::Pid(pid)) => {
            let samples = sampled(finder, options, |own, _| own == *pid, reader);
            let mut subject = samples.unwrap_or_default();
            if let Some(track) = finder.tasks.get(pid) {
                subject.add(track, options.top);
                subject.task = Some(pid.to_string());
            }
            subject.reason = reason_of_choice(subject.task.is_some());
            subject
        }
        Some(TaskChoice::Name(name)) => {
            let samples = sampled(finder, options, |_, command| command.starts_with(name.as_str()), reader);
            let mut subject = samples.unwrap_or_default();
            let named = || finder.tasks.values().filter(|track| text(track) == *name);
            // The threads of a measuring tool that only wait for the others are no real-time tasks.
            let realtime =
                named().any(|track| track.priority.is_some_and(|priority| priority < PRIORITY_NORMAL));
            for track in named().filter(|track| !realtime || is_realtime(track)) {
                subject.add(track, options.top);
                subject.task = Some(name.clone());
            }
            subject.reason = reason_of_choice(subject.task.is_some());
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

fn reason_of_choice(found: bool) -> String {
    if found { "as asked for" } else { "as asked for, but it is not in the trace" }.to_owned()
}

/// What the tracers sampled themselves.
fn sampled(
    finder: &Finder<'_>,
    options: &Options,
    wanted: impl Fn(u32, &str) -> bool,
    reader: &dyn Reader,
) -> Option<Subject> {
    let mut subject =
        Subject { reason: "its tracer measured the latencies itself".to_owned(), ..Subject::default() };
    let mut any = false;
    for (pid, (command, largest)) in &finder.samples {
        let name = command.map_or("", |name| reader.names().text(name));
        if wanted(*pid, name) {
            any = true;
            subject.late.merge(largest, options.top);
            let family = name.split('/').next().filter(|family| !family.is_empty());
            subject.task = subject.task.or(family.map(str::to_owned));
        }
    }
    subject.task = subject.task.or_else(|| reader.info().tracer.clone());
    any.then_some(subject)
}

/// The marked one; else a measuring tool; else the real-time task that was latest, periodic ones first; else the
/// latest of all.
fn automatic(
    finder: &Finder<'_>,
    options: &Options,
    text: impl Fn(&TaskTrack) -> String,
    reader: &dyn Reader,
) -> Subject {
    let rank = |pid: u32, track: &TaskTrack| -> (u8, &'static str) {
        let name = text(track);
        let realtime = track.priority.is_some_and(|priority| priority < PRIORITY_NORMAL);
        let own = !vocabulary::is_kernel_housekeeping(&name);
        match track.rhythm.period_ns() {
            _ if finder.marked == Some(pid) => (5, "it stopped the trace because it was late"),
            _ if vocabulary::is_measuring(&name) && is_realtime(track) => (4, "it measures latency"),
            Some(_) if realtime && own => (3, "a periodic real-time task"),
            None if realtime && own => (2, "the real-time task that was latest"),
            _ if realtime => (1, "the real-time task that was latest"),
            _ => (0, "the task that was latest; none was real time"),
        }
    };
    let slept = |track: &&TaskTrack| track.wakeups > 0 || track.late.found > 0;
    let candidates = finder.tasks.iter().filter(|(_, track)| slept(track));
    let best = candidates.max_by_key(|(pid, track)| {
        (
            rank(**pid, track).0,
            track.late.worst_ns(),
            track.blocked.worst_ns(),
            track.wakeups,
            u32::MAX - **pid,
        )
    });
    let Some((pid, track)) = best else {
        if let Some(tracer @ ("hwlat" | "osnoise" | "timerlat")) = reader.info().tracer.as_deref() {
            return Subject { reason: format!("the {tracer} tracer took no sample"), ..Subject::default() };
        }
        return Subject {
            reason: "no task was seen to sleep and run again".to_owned(),
            ..Subject::default()
        };
    };
    let (rank_of_best, reason) = rank(*pid, track);
    let name = text(track);
    let mut subject = Subject { reason: reason.to_owned(), ..Subject::default() };
    if rank_of_best < 3 || name.is_empty() {
        subject.add(track, options.top);
        subject.task = Some(if name.is_empty() { pid.to_string() } else { format!("{name}-{pid}") });
        return subject;
    }
    // All threads of a tool that measures with several.
    for (other, track) in &finder.tasks {
        if other == pid || (text(track) == name && rank(*other, track).0 >= 3 && is_realtime(track)) {
            subject.add(track, options.top);
        }
    }
    subject.task = Some(name);
    subject
}

fn is_realtime(track: &TaskTrack) -> bool {
    track.priority.is_none_or(|priority| priority < PRIORITY_NORMAL)
}
