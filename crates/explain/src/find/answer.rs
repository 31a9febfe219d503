//! What a trace answers: the valid threshold, whether the trace shows every possibly late moment, and who else was late.
//!
//! "None" is a claim: it needs every wake-up or sample of the examined task. If the trace lacks some, the answer is "cannot
//! tell", with the reason and what to record.

use crate::find::finder::{Finder, Seen};
use crate::find::late::{Late, LateKind, PRIORITY_NORMAL};
use crate::find::subject::{self, Subject};
use crate::find::track::TaskTrack;
use crate::options::{Options, THRESHOLD_NS};
use crate::vocabulary;
use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;
use whylate_core::result::{ExpectedFrom, ExplainAnswer, LateTask, ThresholdFrom};
use whylate_trace::reader::{Reader, TraceInfo};

/// How many other late tasks are listed.
const ALSO_LATE_MAX: usize = 10;
/// What shows every wake-up.
const RECORD: &str =
    "record sched:sched_switch, sched:sched_waking, timer:hrtimer_start and timer:hrtimer_expire_entry";

/// Latencies at or below it are not spikes; and its source: the user, the task's marker, the tracer, else the default.
pub(crate) fn threshold(options: &Options, finder: &Finder<'_>, info: &TraceInfo) -> (u64, ThresholdFrom) {
    let below = |latency_ns: u64| latency_ns.saturating_sub(1).min(THRESHOLD_NS);
    let facts = &info.facts;
    let known = [
        (options.threshold_ns, ThresholdFrom::Given),
        (finder.marked_threshold_ns, ThresholdFrom::Marker),
        (facts.threshold_ns, ThresholdFrom::Tracer),
        (finder.hwlat_least_ns.map(below), ThresholdFrom::Tracer),
        (facts.latency_ns.map(below), ThresholdFrom::Header),
        (finder.stopped_at_ns.map(below), ThresholdFrom::Stop),
        (facts.analyses.iter().map(|analysis| below(analysis.latency_ns)).min(), ThresholdFrom::Stop),
    ];
    let set = known.into_iter().find_map(|(threshold_ns, from)| Some((threshold_ns?, from)));
    set.unwrap_or((THRESHOLD_NS, ThresholdFrom::Default))
}

/// The latency that the header of a wake-up tracer states, if the events do not show it: one end of it was cut off.
pub(crate) fn stated(known: &[Late], finder: &Finder<'_>, info: &TraceInfo) -> Option<Late> {
    let facts = &info.facts;
    let task = subject::stated_task(info)?;
    let latency_ns = facts.latency_ns?;
    let is_it = |late: &Late| late.latency_ns() >= latency_ns / 2;
    if known.iter().any(is_it) {
        return None;
    }
    let late =
        Late::new(facts.cpu.unwrap_or_default(), 0, latency_ns, ExpectedFrom::Tracer, LateKind::Header);
    let track = finder.tasks.get(task.pid);
    let priority = (task.rt_priority > 0).then(|| 99 - task.rt_priority.min(99) as i32);
    Some(Late { pid: Some(task.pid), command: track.and_then(|track| track.command), priority, ..late })
}

/// The other tasks that were late by more than the threshold, the latest first, and how many more there are: ordinary tasks make room
/// for real-time ones.
pub(crate) fn also_late(
    finder: &Finder<'_>,
    subject: &Subject,
    options: &Options,
    threshold_ns: u64,
    reader: &dyn Reader,
) -> (Vec<LateTask>, u64) {
    let name = |track: &TaskTrack| track.command.map_or("", |name| reader.names().text(name));
    let is_other = |(pid, track): &(u32, &TaskTrack)| {
        !subject.pids.contains(pid) && !subject::is_helper(track, name(track))
    };
    let others = finder.tasks.iter().filter(is_other);
    let worst = |track: &TaskTrack| {
        // Every runnable task that did not run was late, whatever its priority.
        let moments = track.lists(options, true).filter_map(|list| list.iter().next().copied());
        moments.max_by_key(Late::latency_ns)
    };
    let worst = others.filter_map(|(_, track)| worst(track));
    let mut late: Vec<LateTask> =
        worst.filter(|late| late.latency_ns() > threshold_ns).map(|late| late.brief(reader)).collect();
    let by_latency = |late: &LateTask| (std::cmp::Reverse(late.latency_ns), late.at_ns, late.pid);
    let is_ordinary = |late: &LateTask| late.priority.is_some_and(|priority| priority >= PRIORITY_NORMAL);
    late.order_by_key(|late| (is_ordinary(late), by_latency(late)));
    let more = late.len().saturating_sub(ALSO_LATE_MAX) as u64;
    late.truncate(ALSO_LATE_MAX);
    late.order_by_key(by_latency);
    (late, more)
}

/// Whether there is really no late moment if none was found; and why this is unknown, or what it rests on.
pub(crate) fn without_spike(
    finder: &Finder<'_>,
    subject: &Subject,
    (options, threshold_ns): (&Options, u64),
    reader: &dyn Reader,
) -> (ExplainAnswer, Option<String>) {
    match open(finder, subject, (options, threshold_ns), reader.info()) {
        Some(reason) => (ExplainAnswer::CannotTell, Some(reason)),
        None => {
            let hwlat = reader.info().tracer.as_deref() == Some("hwlat") && finder.seen.samples == 0;
            let reason = hwlat.then(|| "the hwlat tracer recorded no gap above its threshold".to_owned());
            (ExplainAnswer::None, reason)
        }
    }
}

/// Events that the kernel lost. A line that says so may have no number; the head of a text has one for all CPUs.
pub(crate) fn lost(seen: &Seen, info: &TraceInfo) -> u64 {
    let of_cpus = info.lost.iter().fold(0u64, |sum, (_, lost)| sum.saturating_add(*lost));
    let lost = of_cpus.max(seen.lost);
    info.overwritten.filter(|_| lost > 0).map_or(lost, |overwritten| overwritten.max(lost))
}

/// What shows how late a task's own work makes it.
pub(crate) const WATCH: &str =
    "`whylate watch` measures the whole cycle, and names functions and system calls";

/// What the latencies of a trace leave out: a task that goes back to sleep after its next period has begun begins it late, without a
/// sleep before it.
pub(crate) fn overran(subject: &Subject) -> String {
    let (times, longest_ns) = subject.overruns;
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!(
        "at least {times}, the task went back to sleep only after its next period had begun (up to {} after its wake-up). Its next cycle \
         then began late without a wake-up, which is no latency here",
        nanoseconds(longest_ns)
    )
}

/// What records every switch.
pub(crate) const SWITCHES: &str = "record sched:sched_switch on all CPUs, with a larger buffer; some kernels do not trace each switch away \
    from the idle task";

/// Wake-ups whose end is not in the trace.
pub(crate) fn unseen(subject: &Subject) -> String {
    let (unseen, most_ns) = subject.unseen;
    let wakeups = if unseen == 1 { "wake-up" } else { "wake-ups" };
    format!(
        "after {unseen} {wakeups}, the trace shows no switch to the task, which may have been late by at most {}",
        nanoseconds(most_ns)
    )
}

/// Why a late moment may have gone unseen.
fn open(
    finder: &Finder<'_>,
    subject: &Subject,
    (options, threshold_ns): (&Options, u64),
    info: &TraceInfo,
) -> Option<String> {
    let (seen, facts) = (&finder.seen, &info.facts);
    let tracer = info.tracer.as_deref().unwrap_or("");
    if facts.lines_skipped > facts.lines / 2 {
        return Some(format!(
            "{} of {} lines are not trace lines (a mail program or an editor may have changed them); give the original file",
            facts.lines_skipped, facts.lines
        ));
    }
    if seen.lost > 0 {
        let lost = lost(seen, info);
        let events = if lost == 1 { "event was" } else { "events were" };
        return Some(format!(
            "{lost} {events} lost, and late wake-ups may be among them: record with a larger buffer"
        ));
    }
    if info.resolution_ns == 0 && seen.events > 0 {
        return Some(
            "the trace's times are counter values, not nanoseconds: record with the trace clock `mono`"
                .to_owned(),
        );
    }
    if subject.sampled || (tracer == "hwlat" && seen.events == 0 && options.task.is_none()) {
        return None;
    }
    if subject.task.is_none() {
        return Some(no_task(finder, options, info));
    }
    if subject.waits_ns > options.least_ns() {
        return Some(format!(
            "the task was woken {} us before the end of the trace and had not run again by then",
            subject.waits_ns / 1000
        ));
    }
    if subject.unseen.1 > threshold_ns {
        return Some(format!("{}: {SWITCHES}", unseen(subject)));
    }
    if subject.overruns.1 > threshold_ns {
        return Some(format!("{}: {WATCH}", overran(subject)));
    }
    if subject.unknown > 0 {
        return Some(format!(
            "{} of the task's {} wake-ups have neither a wake-up event nor a timer in the trace. Their \
             expected moment is unknown: give --period, or {RECORD}",
            subject.unknown, subject.wakeups
        ));
    }
    if subject.inferred > 0 {
        return Some(format!(
            "the trace has no wake-ups and no timers of the task, and the period is only a guess from its past runs: give \
             --period, or {RECORD}"
        ));
    }
    if !facts.omissions.is_empty() {
        return Some("lines of the trace were replaced by `...`: give the whole trace".to_owned());
    }
    // A task that was never preempted, or never blocked, has no such moments.
    let measured = subject.late.iter().next().is_some() || (options.what.is_some() && subject.wakeups > 0);
    (!measured).then(|| format!("the trace does not show a wake-up of the task and its next run: {RECORD}"))
}

/// Why there is no task to examine.
fn no_task(finder: &Finder<'_>, options: &Options, info: &TraceInfo) -> String {
    let (seen, tracer) = (&finder.seen, info.tracer.as_deref().unwrap_or(""));
    match tracer {
        _ if options.task.is_some() => "the requested task is not in the trace".to_owned(),
        _ if seen.events == 0 => format!("the trace has no events: {RECORD}"),
        _ if seen.noises > 0 => {
            "the osnoise tracer recorded how long threads and interrupts ran, but had no thread of its own to delay: record \
             with the option OSNOISE_WORKLOAD"
                .to_owned()
        }
        tracer @ ("osnoise" | "timerlat") => format!("the {tracer} tracer took no sample"),
        tracer if vocabulary::is_section_tracer(tracer) => {
            format!("the lines and the header in which the {tracer} tracer states its latency are missing")
        }
        _ if seen.switches == 0 && seen.wakeups == 0 => {
            format!("the trace has no wake-ups, no switches and no samples: {RECORD}")
        }
        _ => format!("no task was seen to sleep, to be woken and to run again: {RECORD}"),
    }
}
