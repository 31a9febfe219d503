//! Where the time of an instance of a chain went: from its end back to its begin, over all threads that it waited for.
//!
//! The thread that passed the end ran, was preempted, or waited for a CPU since its last wake-up. Before that, the thread that
//! woke it did so, and so on. Some wake-ups lead away from the chain, for example that by the owner of a lock. Then the thread
//! itself is followed from the moment at which it fell asleep. In: what all CPUs recorded. Out: parts without a gap. What no
//! record shows is a part of its own.

use crate::blame::piece::may_run_before;
use crate::confidence::{POSSIBLE, SHOWN};
use crate::segments::{self, Activity, Recording, Surroundings};
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::CpuId;
use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;
use whylate_core::recording::Waker;
use whylate_core::result::{Cause, CauseKind as Kind, ChainDoing as Does, ChainPart};

/// The most wake-ups that are followed.
pub(super) const WAKES_MAX: usize = 256;
/// A thread that is woken while it leaves the CPU sleeps although it still seems to run.
const RACE_NS: u64 = 50_000;
/// Shorter interrupts belong to the thread that they interrupt.
const INTERRUPT_MIN_NS: u64 = 20_000;
/// With more parts, the shortest ones are joined with the part before.
const PARTS_MAX: usize = 256;
const SHORT_PART: u64 = 2_000;

/// An instance of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub begin_ns: u64,
    /// The thread that began it.
    pub begin_thread: u32,
    pub end_ns: u64,
    pub end_thread: u32,
    pub end_command: String,
    /// Where it passed the end.
    pub end_cpu: CpuId,
}

/// The parts of an instance, from begin to end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    pub parts: Vec<ChainPart>,
    /// Whether the wake-ups lead back to the thread that began it.
    pub is_whole: bool,
}

/// A time in which a thread had a CPU.
#[derive(Clone, Copy)]
pub(super) struct Run<'r> {
    from_ns: u64,
    pub(super) to_ns: u64,
    cpu: CpuId,
    pid: u32,
    command: &'r str,
    priority: i32,
    was_runnable: bool,
}

#[derive(Clone, Copy)]
pub(super) struct PathWake<'r> {
    pub(super) at_ns: u64,
    cpu: CpuId,
    pub(super) waker: &'r Waker,
}

/// A thread that is known to run at a moment.
#[derive(Clone)]
struct Runner {
    pid: u32,
    command: String,
    cpu: CpuId,
    at_ns: u64,
}

/// What all CPUs recorded, by thread and by CPU.
pub struct Paths<'r> {
    recordings: &'r BTreeMap<CpuId, Recording>,
    surroundings: &'r Surroundings,
    /// In the order of their ends.
    runs: BTreeMap<u32, Vec<Run<'r>>>,
    of_cpu: BTreeMap<CpuId, Vec<Run<'r>>>,
    /// In the order of time.
    wakes: BTreeMap<u32, Vec<PathWake<'r>>>,
}

/// The search for one path.
struct Search<'p, 'r> {
    all: &'p Paths<'r>,
    ends: &'p Ends,
    /// Threads and moments that did not lead back.
    tried: BTreeSet<(u32, u64)>,
    left: usize,
}

impl<'r> Paths<'r> {
    pub fn new(recordings: &'r BTreeMap<CpuId, Recording>, surroundings: &'r Surroundings) -> Self {
        let (mut runs, mut of_cpu): (BTreeMap<u32, Vec<Run<'r>>>, BTreeMap<CpuId, Vec<Run<'r>>>) =
            Default::default();
        let mut wakes: BTreeMap<u32, Vec<PathWake<'r>>> = BTreeMap::new();
        for (cpu, recording) in recordings {
            for segment in &recording.segments {
                let (from_ns, to_ns, cpu) = (segment.from_ns, segment.to_ns, *cpu);
                match &segment.what {
                    Activity::Thread { thread, was_runnable, .. } => {
                        let (pid, priority, was_runnable) = (thread.pid, thread.priority, *was_runnable);
                        let command = thread.command.as_str();
                        let run = Run { from_ns, to_ns, cpu, pid, command, priority, was_runnable };
                        runs.entry(pid).or_default().push(run);
                        of_cpu.entry(cpu).or_default().push(run);
                    }
                    Activity::Waking { pid, waker } => {
                        wakes.entry(*pid).or_default().push(PathWake { at_ns: to_ns, cpu, waker });
                    }
                    // A watched thread that its timer woke has no other record.
                    Activity::Timer { pid, .. } => {
                        wakes.entry(*pid).or_default().push(PathWake {
                            at_ns: to_ns,
                            cpu,
                            waker: &Waker::Timer,
                        });
                    }
                    _ => {}
                }
            }
        }
        runs.values_mut().chain(of_cpu.values_mut()).for_each(|all| all.order_by_key(|run| run.to_ns));
        wakes.values_mut().for_each(|all| all.order_by_key(|wake| wake.at_ns));
        Self { recordings, surroundings, runs, of_cpu, wakes }
    }

    /// Where the time of an instance went.
    pub fn path(&self, ends: &Ends) -> Path {
        let place = Runner {
            pid: ends.end_thread,
            command: ends.end_command.clone(),
            cpu: ends.end_cpu,
            at_ns: ends.end_ns,
        };
        let mut search = Search { all: self, ends, tried: BTreeSet::new(), left: WAKES_MAX };
        let mut path = search.back(&place);
        path.parts = joined(path.parts, ends.end_ns.saturating_sub(ends.begin_ns));
        path
    }

    fn runs_of(&self, pid: u32) -> &[Run<'r>] {
        self.runs.get(&pid).map(Vec::as_slice).unwrap_or_default()
    }

    /// The last wake-up of a thread up to that moment and after the other, at which it slept.
    pub(super) fn last_wake(&self, pid: u32, after_ns: u64, until_ns: u64) -> Option<PathWake<'r>> {
        let wakes = self.wakes.get(&pid)?;
        let to = wakes.partition_point(|wake| wake.at_ns <= until_ns);
        let of_time = wakes[..to].iter().rev().take_while(|wake| wake.at_ns > after_ns);
        of_time.copied().find(|wake| !self.ran_on(pid, wake.at_ns))
    }

    /// Whether a thread ran at a moment and went on.
    fn ran_on(&self, pid: u32, at_ns: u64) -> bool {
        let runs = self.runs_of(pid);
        let next = runs.get(runs.partition_point(|run| run.to_ns <= at_ns));
        next.is_some_and(|run| run.from_ns < at_ns && (run.was_runnable || run.to_ns > at_ns + RACE_NS))
    }

    /// Where a thread ran last before it was woken at that moment.
    pub(super) fn fell_asleep(&self, pid: u32, woken_ns: u64) -> Option<Run<'r>> {
        let runs = self.runs_of(pid);
        let before = runs.partition_point(|run| run.to_ns <= woken_ns.saturating_add(RACE_NS));
        runs[..before].iter().rev().copied().find(|run| run.from_ns < woken_ns)
    }

    /// The thread that had a CPU for most of a time, except that thread and the idle one, if it satisfies `counts`; `None` if no thread had half of it.
    fn busiest(
        &self,
        cpu: CpuId,
        (from_ns, to_ns): (u64, u64),
        except: u32,
        counts: impl Fn(&Run<'_>) -> bool,
    ) -> Option<(u32, &'r str)> {
        let all = self.of_cpu.get(&cpu)?;
        let first = all.partition_point(|run| run.to_ns <= from_ns);
        let mut sums: BTreeMap<(u32, &'r str), (u64, bool)> = BTreeMap::new();
        let of_time = all[first..].iter().take_while(|run| run.from_ns < to_ns);
        for run in of_time.filter(|run| run.pid != except) {
            let within_ns = run.to_ns.min(to_ns).saturating_sub(run.from_ns.max(from_ns));
            let (sum_ns, does_count) = sums.entry((run.pid, run.command)).or_default();
            (*sum_ns, *does_count) = (*sum_ns + within_ns, *does_count || counts(run));
        }
        let (who, (sum_ns, does_count)) = sums.into_iter().max_by_key(|(_, (ns, _))| *ns)?;
        // Several threads that share the time are not one thread that took it.
        let is_most = sum_ns.saturating_mul(2) >= to_ns.saturating_sub(from_ns);
        (who.0 != 0 && does_count && is_most).then_some(who)
    }

    /// A wait, divided among the threads that had that CPU meanwhile.
    fn shared(
        &self,
        wait: &ChainPart,
        cpu: CpuId,
        except: u32,
        counts: impl Fn(&Run<'_>) -> bool,
    ) -> Vec<ChainPart> {
        let all = self.of_cpu.get(&cpu).map(Vec::as_slice).unwrap_or_default();
        let first = all.partition_point(|run| run.to_ns <= wait.from_ns);
        let of_time = all[first..].iter().take_while(|run| run.from_ns < wait.to_ns);
        let mut parts = Vec::new();
        let mut cursor_ns = wait.from_ns;
        for run in of_time.filter(|run| run.pid != 0 && run.pid != except && counts(run)) {
            let (from_ns, to_ns) = (run.from_ns.max(cursor_ns), run.to_ns.min(wait.to_ns));
            if from_ns < to_ns {
                let (by, by_pid) = (Some(run.command.to_owned()), Some(run.pid));
                parts.push(ChainPart { from_ns: cursor_ns, to_ns: from_ns, ..wait.clone() });
                parts.push(ChainPart { from_ns, to_ns, by, by_pid, ..wait.clone() });
                cursor_ns = to_ns;
            }
        }
        parts.push(ChainPart { from_ns: cursor_ns, ..wait.clone() });
        parts
    }

    /// Since when a thread has had the CPU on which it still ran when the records were read.
    fn runs_since(&self, place: &Runner, least_ns: u64) -> u64 {
        let all = self.of_cpu.get(&place.cpu).map(Vec::as_slice).unwrap_or_default();
        let before = all.partition_point(|run| run.to_ns <= place.at_ns);
        let other = all[..before].iter().rev().find(|run| run.pid != place.pid);
        let known_ns = self.complete_from(place.cpu).min(place.at_ns);
        other.map_or(known_ns, |run| run.to_ns).max(least_ns)
    }

    /// Everything that a CPU did from then on is recorded.
    fn complete_from(&self, cpu: CpuId) -> u64 {
        self.recordings.get(&cpu).map_or(u64::MAX, |recording| recording.complete_from_ns)
    }

    /// The interrupt that woke a thread.
    fn interrupt(&self, wake: &PathWake<'_>) -> Option<String> {
        let segments = &self.recordings.get(&wake.cpu)?.segments;
        let covers = segments.iter().filter(|segment| {
            segment.what.is_interrupt() && segment.from_ns <= wake.at_ns && wake.at_ns <= segment.to_ns
        });
        let innermost = covers.max_by_key(|segment| segment.what.rank())?;
        Some(segments::actor(&innermost.what, |line| self.surroundings.lines.get(&line).cloned())?.1)
    }

    /// The long interrupts in a time on a CPU, one after another.
    fn interrupts(&self, cpu: CpuId, from_ns: u64, to_ns: u64) -> Vec<(u64, u64, String)> {
        let segments = self.recordings.get(&cpu).map(|it| it.segments.as_slice()).unwrap_or_default();
        let long = segments.iter().filter(|segment| {
            segment.what.is_interrupt()
                && segment.to_ns > from_ns
                && segment.from_ns < to_ns
                && segment.to_ns.saturating_sub(segment.from_ns) >= INTERRUPT_MIN_NS
        });
        let named = long.filter_map(|segment| {
            let name = segments::actor(&segment.what, |line| self.surroundings.lines.get(&line).cloned())?.1;
            Some((segment.from_ns.max(from_ns), segment.to_ns.min(to_ns), name))
        });
        let mut all: Vec<(u64, u64, String)> = named.collect();
        all.order_by_key(|(from_ns, ..)| *from_ns);
        let mut until_ns = from_ns;
        all.retain(|(from_ns, to_ns, _)| {
            let is_next = *from_ns >= until_ns;
            until_ns = if is_next { *to_ns } else { until_ns };
            is_next
        });
        all
    }
}

impl<'r> Search<'_, 'r> {
    /// What led to the moment at which a thread ran, back to its begin.
    fn back(&mut self, place: &Runner) -> Path {
        let begin_ns = self.ends.begin_ns;
        if place.at_ns <= begin_ns {
            return Path { parts: Vec::new(), is_whole: place.pid == self.ends.begin_thread };
        }
        if self.left == 0 || self.tried.contains(&(place.pid, place.at_ns)) {
            return Path { parts: vec![part(place, Does::Unknown, begin_ns, place.at_ns)], is_whole: false };
        }
        self.left -= 1;
        let Some(wake) = self.all.last_wake(place.pid, begin_ns, place.at_ns) else {
            let is_whole = place.pid == self.ends.begin_thread;
            return Path { parts: self.awake(place, begin_ns, false), is_whole };
        };
        let awake = self.awake(place, wake.at_ns, true);
        let mut path = self.before(place, &wake);
        path.parts.extend(awake);
        if !path.is_whole {
            self.tried.insert((place.pid, place.at_ns));
        }
        path
    }

    /// What led to a wake-up of a thread.
    fn before(&mut self, place: &Runner, wake: &PathWake<'r>) -> Path {
        let begin_ns = self.ends.begin_ns;
        let slept = self.all.fell_asleep(place.pid, wake.at_ns).filter(|run| run.to_ns > begin_ns);
        let through_waker = match wake.waker {
            Waker::Thread(pid, command) => {
                let waker = Runner { pid: *pid, command: command.clone(), cpu: wake.cpu, at_ns: wake.at_ns };
                let path = self.back(&waker);
                if path.is_whole || slept.is_none() {
                    return path;
                }
                Some(path)
            }
            _ => None,
        };
        let asleep_ns = slept.map_or(begin_ns, |run| run.to_ns.min(wake.at_ns));
        let mut sleep = part(place, Does::Unknown, asleep_ns, wake.at_ns);
        match wake.waker {
            Waker::Thread(pid, command) => {
                (sleep.what, sleep.by, sleep.by_pid) = (Does::Thread, Some(command.clone()), Some(*pid));
            }
            Waker::Timer => sleep.what = Does::Timer,
            Waker::Interrupt => (sleep.what, sleep.by) = (Does::Interrupt, self.all.interrupt(wake)),
            Waker::Unknown => {}
        }
        let mut own = match slept {
            Some(run) => self.back(&Runner { cpu: run.cpu, at_ns: asleep_ns, ..place.clone() }),
            None => Path { parts: Vec::new(), is_whole: place.pid == self.ends.begin_thread },
        };
        match through_waker {
            Some(path) if !own.is_whole => path,
            _ => {
                own.parts.push(sleep);
                own
            }
        }
    }

    /// What a thread did from a moment on, without a sleep, until it is known to run; `is_woken`: it was woken then.
    fn awake(&self, place: &Runner, from_ns: u64, is_woken: bool) -> Vec<ChainPart> {
        let runs = self.all.runs_of(place.pid);
        let first = runs.partition_point(|run| run.to_ns <= from_ns);
        let of_time = runs[first..].iter().take_while(|run| run.from_ns < place.at_ns);
        let mut runs: Vec<Run<'r>> = of_time.copied().collect();
        let last_ns = runs.last().map_or(from_ns, |run| run.to_ns);
        let mut parts = Vec::new();
        let (mut cursor_ns, mut before): (u64, Option<Run<'r>>) = (from_ns, None);
        let is_recorded = last_ns >= place.at_ns;
        let mut stints: Vec<(u64, u64, CpuId, bool)> = runs
            .drain(..)
            .map(|run| (run.from_ns, run.to_ns.min(place.at_ns), run.cpu, run.was_runnable))
            .collect();
        if !is_recorded {
            let since_ns = self.all.runs_since(place, last_ns);
            stints.push((since_ns, place.at_ns, place.cpu, true));
        }
        for (run_ns, to_ns, cpu, was_runnable) in stints {
            let run_ns = run_ns.max(cursor_ns);
            if run_ns > cursor_ns {
                parts.extend(self.gap(place, cursor_ns, run_ns, cpu, before.as_ref(), is_woken));
            }
            parts.extend(self.running(place, run_ns, to_ns, cpu));
            let pid = place.pid;
            before = Some(Run { from_ns: run_ns, to_ns, cpu, pid, command: "", priority: 0, was_runnable });
            cursor_ns = to_ns.max(cursor_ns);
        }
        parts
    }

    /// The time between two runs of a thread that did not sleep: one part for the thread that had most of it, or one for each.
    fn gap(
        &self,
        place: &Runner,
        from_ns: u64,
        to_ns: u64,
        cpu: CpuId,
        before: Option<&Run<'_>>,
        is_woken: bool,
    ) -> Vec<ChainPart> {
        let what = match before {
            Some(run) if run.was_runnable => Does::Preempted,
            None if is_woken && self.all.complete_from(cpu) <= from_ns => Does::Runnable,
            _ => Does::Unknown,
        };
        let mut gap = ChainPart { cpu: Some(cpu), ..part(place, what, from_ns, to_ns) };
        if what != Does::Unknown {
            let own = self.all.runs_of(place.pid).first().map_or(0, |run| run.priority);
            // A thread of lower priority gives up the CPU at once: this time is that of the switch.
            let counts = |run: &Run<'_>| what == Does::Preempted || may_run_before(run.priority, own);
            let on = |cpu| self.all.busiest(cpu, (from_ns, to_ns), place.pid, counts);
            let Some((pid, command)) = before.and_then(|run| on(run.cpu)).or_else(|| on(cpu)) else {
                let there = before.map_or(cpu, |run| run.cpu);
                return self.all.shared(&gap, there, place.pid, counts);
            };
            (gap.by, gap.by_pid) = (Some(command.to_owned()), Some(pid));
        }
        vec![gap]
    }

    /// A run, divided by long interrupts.
    fn running(&self, place: &Runner, from_ns: u64, to_ns: u64, cpu: CpuId) -> Vec<ChainPart> {
        let on = |what, from_ns, to_ns| ChainPart { cpu: Some(cpu), ..part(place, what, from_ns, to_ns) };
        let mut parts = Vec::new();
        let mut cursor_ns = from_ns;
        for (begin_ns, end_ns, name) in self.all.interrupts(cpu, from_ns, to_ns) {
            parts.push(on(Does::Running, cursor_ns, begin_ns));
            parts.push(ChainPart { by: Some(name), ..on(Does::Interrupted, begin_ns, end_ns) });
            cursor_ns = end_ns;
        }
        parts.push(on(Does::Running, cursor_ns, to_ns));
        parts
    }
}

fn part(place: &Runner, what: Does, from_ns: u64, to_ns: u64) -> ChainPart {
    ChainPart { thread: place.command.clone(), pid: place.pid, what, from_ns, to_ns, ..ChainPart::default() }
}

/// Joins neighbours that are alike; and short ones, if there are too many.
fn joined(parts: Vec<ChainPart>, latency_ns: u64) -> Vec<ChainPart> {
    let mut all: Vec<ChainPart> = Vec::new();
    let is_long = parts.len() > PARTS_MAX;
    for part in parts.into_iter().filter(|part| part.length_ns() > 0) {
        match all.last_mut() {
            Some(last)
                if (last.pid, last.what, last.cpu, &last.by) == (part.pid, part.what, part.cpu, &part.by)
                    || is_long && part.length_ns() < latency_ns / SHORT_PART =>
            {
                last.to_ns = part.to_ns;
            }
            _ => all.push(part),
        }
    }
    all
}

/// The causes of an instance's latency, the largest share first, never empty. `is_uncertain`: its begin may be another one.
pub fn path_causes(path: &Path, is_uncertain: bool) -> Vec<Cause> {
    type Culprit<'p> = (&'static str, Option<&'p str>, Option<u32>);
    let mut groups: BTreeMap<Culprit<'_>, (Kind, Vec<&ChainPart>)> = BTreeMap::new();
    for part in &path.parts {
        let (kind, actor, pid) = match part.what {
            Does::Running => (Kind::OwnWork, Some(part.thread.as_str()), Some(part.pid)),
            Does::Runnable | Does::Preempted if part.by.is_some() => {
                (Kind::Thread, part.by.as_deref(), part.by_pid)
            }
            Does::Interrupted => (Kind::Irq, part.by.as_deref(), None),
            Does::Timer | Does::Interrupt => (Kind::Wait, Some(part.thread.as_str()), Some(part.pid)),
            Does::Thread => (Kind::Wait, part.by.as_deref(), part.by_pid),
            Does::Runnable | Does::Preempted | Does::Unknown => (Kind::Unattributed, None, None),
        };
        groups.entry((kind.name(), actor, pid)).or_insert_with(|| (kind, Vec::new())).1.push(part);
    }
    let whole_ns: u64 = path.parts.iter().map(ChainPart::length_ns).sum();
    let cause = |((_, actor, pid), (kind, parts)): (Culprit<'_>, (Kind, Vec<&ChainPart>))| {
        let took_ns: u64 = parts.iter().map(|part| part.length_ns()).sum();
        let mut cause = Cause {
            from_ns: parts.first().map(|part| part.from_ns),
            to_ns: parts.last().map(|part| part.to_ns),
            share: Some(took_ns as f64 / whole_ns.max(1) as f64),
            ..Cause::new(kind)
        };
        if kind == Kind::Unattributed {
            return cause;
        }
        (cause.actor, cause.pid) = (actor.map(str::to_owned), pid);
        cause.confidence = Some(if path.is_whole && !is_uncertain { SHOWN } else { POSSIBLE });
        cause.evidence = evidence(&parts, took_ns);
        if !path.is_whole {
            cause.evidence.push("the wake-ups do not lead back to the thread that began it".to_owned());
        }
        if is_uncertain {
            cause.evidence.push(
                "instances overlapped without a value, so a begin may belong to another end".to_owned(),
            );
        }
        cause
    };
    let mut causes: Vec<Cause> = groups.into_iter().map(cause).collect();
    if causes.is_empty() {
        causes.push(Cause::new(Kind::Unattributed));
    }
    causes.order_by(|one, other| other.share.unwrap_or(0.0).total_cmp(&one.share.unwrap_or(0.0)));
    causes
}

/// `the longest part: middle ran for 6.10 ms on CPU 1`.
fn evidence(parts: &[&ChainPart], took_ns: u64) -> Vec<String> {
    let Some(longest) = parts.iter().max_by_key(|part| part.length_ns()) else { return Vec::new() };
    let place = longest.cpu.map(|cpu| format!(" on CPU {cpu}")).unwrap_or_default();
    let (length, what) = (nanoseconds(longest.length_ns()), longest.sentence());
    let mut evidence = vec![format!("{} {what} ({length}{place})", longest.thread)];
    if parts.len() > 1 {
        evidence.push(format!("this took {} in {} pieces", nanoseconds(took_ns), parts.len()));
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::{Segment, Thread};

    fn segment(from_ns: u64, to_ns: u64, what: Activity) -> Segment {
        Segment { from_ns, to_ns, what }
    }

    fn waking(at_ns: u64, pid: u32, waker: Waker) -> Segment {
        segment(at_ns, at_ns, Activity::Waking { pid, waker })
    }

    fn ran(from_ns: u64, to_ns: u64, pid: u32, command: &str, was_runnable: bool) -> Segment {
        let thread = Thread { pid, priority: 10, command: command.to_owned() };
        segment(from_ns, to_ns, Activity::Thread { thread, process: pid, was_runnable, next_priority: 0 })
    }

    fn by(pid: u32, command: &str) -> Waker {
        Waker::Thread(pid, command.to_owned())
    }

    fn recordings(of_cpus: [Vec<Segment>; 2]) -> BTreeMap<CpuId, Recording> {
        let on = |segments| Recording { segments, ..Recording::default() };
        (0..).map(CpuId).zip(of_cpus.map(on)).collect()
    }

    fn ends(begin_us: u64, end_us: u64) -> Ends {
        Ends {
            begin_ns: begin_us * 1_000,
            begin_thread: 1,
            end_ns: end_us * 1_000,
            end_thread: 3,
            end_command: "last".to_owned(),
            end_cpu: CpuId(1),
        }
    }

    fn us(segment: Segment) -> Segment {
        Segment { from_ns: segment.from_ns * 1_000, to_ns: segment.to_ns * 1_000, ..segment }
    }

    fn steps(path: &Path) -> Vec<(&str, &str, u64, u64, Option<&str>)> {
        let part = |part: &ChainPart| (part.from_ns / 1_000, part.to_ns / 1_000);
        path.parts
            .iter()
            .map(|it| (it.thread.as_str(), it.what.name(), part(it).0, part(it).1, it.by.as_deref()))
            .collect()
    }

    fn is_contiguous(path: &Path, ends: &Ends) -> bool {
        let from: Vec<u64> = path.parts.iter().map(|it| it.from_ns).collect();
        let to: Vec<u64> = path.parts.iter().map(|it| it.to_ns).collect();
        from[0] == ends.begin_ns && to[to.len() - 1] == ends.end_ns && from[1..] == to[..to.len() - 1]
    }

    /// first (1) wakes middle (2) on the other CPU, that wakes last (3). make has the CPU before middle, and preempts it.
    fn pipeline() -> [Vec<Segment>; 2] {
        let first = vec![
            waking(50, 1, Waker::Timer),
            waking(150, 2, by(1, "first")),
            ran(60, 160, 1, "first", false),
        ];
        let second = vec![
            ran(90, 200, 9, "make", true),
            ran(200, 400, 2, "middle", true),
            ran(400, 500, 9, "make", true),
            waking(900, 3, by(2, "middle")),
            ran(500, 910, 2, "middle", false),
            ran(920, 990, 3, "last", false),
        ];
        [first, second].map(|all| all.into_iter().map(us).collect())
    }

    #[test]
    fn a_path_goes_back_over_all_threads_without_a_gap() {
        let (recordings, surroundings) = (recordings(pipeline()), Surroundings::default());
        let ends = ends(100, 950);
        let path = Paths::new(&recordings, &surroundings).path(&ends);
        assert_eq!(
            steps(&path),
            [
                ("first", "runs", 100, 150, None),
                ("middle", "waits_for_cpu", 150, 200, Some("make")),
                ("middle", "runs", 200, 400, None),
                ("middle", "preempted", 400, 500, Some("make")),
                ("middle", "runs", 500, 900, None),
                ("last", "waits_for_cpu", 900, 920, Some("middle")),
                ("last", "runs", 920, 950, None),
            ]
        );
        assert!(path.is_whole && is_contiguous(&path, &ends));
        let causes = path_causes(&path, false);
        let found: Vec<_> = causes.iter().map(|it| (it.kind, it.actor.as_deref())).collect();
        assert_eq!(found[..2], [(Kind::OwnWork, Some("middle")), (Kind::Thread, Some("make"))]);
        assert_eq!(causes[0].share.map(|share| (share * 850.0).round()), Some(600.0));
        assert!(causes[0].evidence[1].contains("in 2 pieces"), "{causes:#?}");
        assert!(path_causes(&path, true)[0].confidence < Some(0.7));
    }

    #[test]
    fn several_threads_that_share_a_wait_are_named_each_for_its_time() {
        let mut of_cpus = pipeline();
        of_cpus[1].remove(2);
        for (from_ns, to_ns, pid, command) in
            [(400, 440, 11, "one"), (440, 475, 12, "two"), (475, 490, 13, "three")]
        {
            of_cpus[1].insert(2, us(ran(from_ns, to_ns, pid, command, true)));
        }
        let recordings = recordings(of_cpus);
        let ends = ends(100, 950);
        let path = Paths::new(&recordings, &Surroundings::default()).path(&ends);
        let expected = [
            ("middle", "preempted", 400, 440, Some("one")),
            ("middle", "preempted", 440, 475, Some("two")),
            ("middle", "preempted", 475, 490, Some("three")),
            ("middle", "preempted", 490, 500, None),
        ];
        assert_eq!(steps(&path)[3..7], expected);
        assert!(is_contiguous(&path, &ends));
    }

    #[test]
    fn a_thread_of_lower_priority_does_not_delay_a_wake_up() {
        let mut of_cpus = pipeline();
        let Activity::Thread { thread, .. } = &mut of_cpus[1][0].what else { panic!("a run") };
        thread.priority = -20;
        let recordings = recordings(of_cpus);
        let path = Paths::new(&recordings, &Surroundings::default()).path(&ends(100, 950));
        assert_eq!(steps(&path)[1], ("middle", "waits_for_cpu", 150, 200, None));
    }

    #[test]
    fn the_owner_of_a_lock_is_no_end_of_the_path() {
        // last (3) is woken by middle, then waits for the logger (8), whose timer woke it.
        let [first, mut second] = pipeline();
        second.pop();
        let lock = [
            ran(920, 1_000, 3, "last", false),
            waking(700, 8, Waker::Timer),
            waking(1_300, 3, by(8, "logger")),
            ran(1_010, 1_310, 8, "logger", false),
            ran(1_310, 1_450, 3, "last", false),
        ];
        second.extend(lock.map(us));
        let recordings = recordings([first, second]);
        let ends = ends(100, 1_400);
        let path = Paths::new(&recordings, &Surroundings::default()).path(&ends);
        assert!(path.is_whole && is_contiguous(&path, &ends), "{path:#?}");
        let steps = steps(&path);
        assert_eq!(steps[6], ("last", "runs", 920, 1_000, None));
        assert_eq!(steps[7], ("last", "waits_for_thread", 1_000, 1_300, Some("logger")));
    }

    #[test]
    fn sleeps_until_a_timer_are_parts_and_the_thread_goes_on_before_them() {
        let first = vec![
            ran(60, 200, 1, "first", false),
            waking(700, 1, Waker::Timer),
            waking(750, 3, by(1, "first")),
            ran(710, 760, 1, "first", false),
        ];
        let second = vec![ran(780, 900, 3, "last", false)];
        let recordings = recordings([first, second].map(|all| all.into_iter().map(us).collect()));
        let ends = ends(100, 850);
        let path = Paths::new(&recordings, &Surroundings::default()).path(&ends);
        assert!(path.is_whole && is_contiguous(&path, &ends), "{path:#?}");
        let steps = steps(&path);
        assert_eq!(
            steps[..2],
            [("first", "runs", 100, 200, None), ("first", "waits_for_timer", 200, 700, None)]
        );
        assert_eq!(path_causes(&path, false)[0].kind, Kind::Wait);
    }

    #[test]
    fn what_no_record_shows_is_unknown_and_the_path_says_that_it_is_not_whole() {
        let mut of_cpus = pipeline();
        // Nothing is known of the first thread, nor of what middle did first.
        of_cpus[0].remove(1);
        of_cpus[1].retain(|segment| segment.to_ns > 400_000);
        let recordings = recordings(of_cpus);
        let ends = ends(100, 950);
        let path = Paths::new(&recordings, &Surroundings::default()).path(&ends);
        assert!(!path.is_whole && is_contiguous(&path, &ends), "{path:#?}");
        assert_eq!(steps(&path)[0], ("middle", "unknown", 100, 500, None));
        let causes = path_causes(&path, false);
        assert_eq!(causes.iter().filter(|it| it.kind == Kind::Unattributed).count(), 1);
        assert!(causes.iter().all(|it| it.confidence.is_none_or(|sure| sure < 0.7)));
        let nothing = Paths::new(&BTreeMap::new(), &Surroundings::default()).path(&ends);
        assert!(is_contiguous(&nothing, &ends) && nothing.parts.len() == 1);
    }

    #[test]
    fn a_thread_that_has_not_left_its_cpu_ran_until_the_end() {
        let mut of_cpus = pipeline();
        of_cpus[1].pop();
        let recordings = recordings(of_cpus);
        let path = Paths::new(&recordings, &Surroundings::default()).path(&ends(100, 950));
        assert_eq!(steps(&path).last(), Some(&("last", "runs", 910, 950, None)));
    }

    #[test]
    fn threads_that_wake_each_other_without_end_are_no_endless_path() {
        let wakes = (0..2_000u32).map(|nth| {
            let (one, other) = if nth % 2 == 0 { (3, 2) } else { (2, 3) };
            waking(u64::from(nth) * 1_000, one, by(other, "ping"))
        });
        let recordings = recordings([wakes.collect(), Vec::new()]);
        let ends = ends(1, 2_000);
        let path = Paths::new(&recordings, &Surroundings::default()).path(&ends);
        assert!(!path.is_whole && is_contiguous(&path, &ends));
    }
}
