//! Figures that known mechanisms cause: hints where to look first, not causes.

use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;
use whylate_core::result::CpuResult;

/// A mechanism, by the smallest and the largest maximum that it makes.
const MECHANISMS: [(u64, u64, &str); 3] = [
    (
        45_000_000,
        55_000_000,
        "ordinary tasks get 50 ms of each second: before Linux 6.12 from RT throttling (sched_rt_runtime_us \
         950000), since 6.12 from the fair server (/sys/kernel/debug/sched/fair_server; 6.12.y runs it too \
         early). See `whylate explain --why throttled`",
    ),
    (
        3_900_000,
        4_100_000,
        "4 ms is the tick period at 250 Hz: a timer has no high resolution, or work waits for the tick",
    ),
    (
        9_200_000,
        10_200_000,
        "10 ms is the tick period at 100 Hz: a timer has no high resolution, or work waits for the tick",
    ),
];
/// The mechanism that makes such maxima: the smallest and the largest of them, and what it is.
pub fn mechanism(max_ns: u64) -> Option<(u64, u64, &'static str)> {
    MECHANISMS.into_iter().find(|(from, to, _)| (*from..=*to).contains(&max_ns))
}

/// Equal maxima of shorter latencies are chance.
const EQUAL_NS_MIN: u64 = 100_000;

/// What the maxima of the CPUs look like.
pub(crate) fn of(cpus: &[CpuResult]) -> Vec<String> {
    let all: Vec<(String, u64)> =
        cpus.iter().filter_map(|cpu| Some((cpu.cpu.to_string(), cpu.largest_ns()?))).collect();
    let mut found = Vec::new();
    for (from, to, what) in MECHANISMS {
        let mut names: Vec<&str> =
            all.iter().filter(|(_, ns)| (from..=to).contains(ns)).map(|(name, _)| name.as_str()).collect();
        names.dedup();
        if !names.is_empty() {
            found.push(format!(
                "the maximum of CPU or thread {} fits a known cause: {what}",
                names.join(", ")
            ));
        }
    }
    let (Some(least), Some(most)) = (all.iter().map(|it| it.1).min(), all.iter().map(|it| it.1).max()) else {
        return found;
    };
    let is_one_series = cpus.iter().all(|cpu| cpu.series == cpus[0].series);
    if is_one_series && all.len() >= 3 && least >= EQUAL_NS_MIN && most - least <= most / 50 {
        found.push(format!(
            "the maxima of all {} CPUs are equal within 2 % ({}), as if one event had stopped all CPUs at once (an SMI, the host of a virtual \
             machine, stop_machine)",
            all.len(),
            nanoseconds(most)
        ));
    }
    found
}

/// A late sample, with its time since the start of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at_ns: u64,
    pub(crate) thread: u32,
    pub(crate) ns: u64,
}

/// Samples that are not further apart are of one event: the threads look at different moments.
const EVENT_NS: u64 = 10_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// How far from whole seconds the distance of two events may be.
const OFF_NS: u64 = 30_000_000;
/// Events that make a rhythm.
const EVENTS_MIN: usize = 5;
/// Share of equal latencies of one event by which they may differ.
const EQUAL_PART: u64 = 10;

/// What the moments of late samples look like: a rhythm of one second, all threads at once.
pub(crate) fn of_moments(moments: &[Moment], threads: usize) -> Vec<String> {
    let mut sorted = moments.to_vec();
    sorted.order_by_key(|it| it.at_ns);
    let events: Vec<&[Moment]> = sorted.chunk_by(|a, b| b.at_ns - a.at_ns <= EVENT_NS).collect();
    let mut found = Vec::new();
    let steps = events.windows(2).map(|pair| pair[1][0].at_ns - pair[0][0].at_ns);
    let is_of_seconds = |step: &u64| {
        let off = step % SECOND_NS;
        *step + OFF_NS >= SECOND_NS && off.min(SECOND_NS - off) <= OFF_NS
    };
    let in_rhythm = steps.filter(is_of_seconds).count();
    if events.len() >= EVENTS_MIN && in_rhythm + 1 == events.len() {
        found.push(format!(
            "all {} late moments are whole seconds apart: something runs each second. `whylate run --trace` \
             shows what: perhaps the fair server, RT throttling, statistics of vmstat or of the cgroups, a \
             watchdog, a tool that polls, RCU or the clocksource watchdog",
            events.len()
        ));
    }
    let is_common = |event: &&&[Moment]| {
        let mut of: Vec<u32> = event.iter().map(|it| it.thread).collect();
        of.order();
        of.dedup();
        let (least, most) =
            event.iter().fold((u64::MAX, 0), |(least, most), it| (it.ns.min(least), it.ns.max(most)));
        threads >= 3 && of.len() == threads && most - least <= most / EQUAL_PART
    };
    let common = events.iter().filter(is_common).count();
    if common > 0 {
        found.push(format!(
            "at {common} moment{} all {threads} threads were late by the same time within 10 %: one event stopped all CPUs (an SMI, the host of a virtual \
             machine, stop_machine)",
            if common == 1 { "" } else { "s" }
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(step_ns: u64, threads: u32) -> Vec<Moment> {
        let at = |event: u64| {
            (0..threads).map(move |thread| Moment {
                at_ns: SECOND_NS / 3 + event * step_ns,
                thread,
                ns: 400_000,
            })
        };
        (0..8).flat_map(at).collect()
    }

    #[test]
    fn a_rhythm_of_a_second_and_one_event_of_all_threads_are_reported() {
        assert_eq!(of_moments(&moments(SECOND_NS + 2_000_000, 1), 4).len(), 1);
        assert_eq!(of_moments(&moments(SECOND_NS, 4), 4).len(), 2);
        assert_eq!(of_moments(&moments(730_000_000, 4), 4).len(), 1);
        assert_eq!(of_moments(&moments(730_000_000, 3), 4).len(), 0);
        let few: Vec<Moment> = moments(SECOND_NS, 1).into_iter().take(3).collect();
        assert_eq!(of_moments(&few, 4).len(), 0);
    }
}
