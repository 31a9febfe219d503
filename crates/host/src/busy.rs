//! Which ordinary programs keep CPUs busy, and how much of the memory's bandwidth they take.
//!
//! CPU time is the kernel's own sum for each process, read twice. Bandwidth is the last-level cache's misses, one line
//! each, while they run. It is known only if the processor counts them (in a virtual machine mostly not) and this user
//! may read the counters.

use crate::threads::Stat;
use crate::{HostError, HostRoot};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use whylate_core::BusyProgram;
use whylate_core::order::InOrder;
use whylate_sys::perf_counter::PerfCounter;

/// `PERF_TYPE_HARDWARE` and `PERF_COUNT_HW_CACHE_MISSES` of include/uapi/linux/perf_event.h.
const CACHE_MISSES: (u32, u64) = (0, 3);
const LINE_BYTES: u64 = 64;
/// `PF_KTHREAD` of include/linux/sched.h.
const PF_KTHREAD: u64 = 0x0020_0000;
/// How many threads of one program are counted; the others are few or idle.
const THREADS_MAX: usize = 64;

/// CPU time of each ordinary process other than this one, in clock ticks, with its name.
fn times(root: &HostRoot) -> Result<BTreeMap<u32, (String, u64)>, HostError> {
    let mut times = BTreeMap::new();
    for pid in root.list_numbered("/proc", "")?.into_iter().filter(|pid| *pid != std::process::id()) {
        let text = root.read(&format!("/proc/{pid}/stat")).ok().flatten().unwrap_or_default();
        let Some(stat) = Stat::parse(&text) else { continue };
        let number = |field| stat.number(field).unwrap_or(0);
        // The policies of sched(7) that a quota limits: other, batch, idle.
        if number(9) & PF_KTHREAD == 0 && matches!(number(41), 0 | 3 | 5) {
            times.insert(pid, (stat.name.to_owned(), number(14) + number(15)));
        }
    }
    Ok(times)
}

/// The programs that keep at least `least` CPUs busy for that time, at most `count` of them, the busiest first.
pub fn busy(
    root: &HostRoot,
    window: Duration,
    least: f64,
    count: usize,
) -> Result<Vec<BusyProgram>, HostError> {
    let (before, since) = (times(root)?, Instant::now());
    std::thread::sleep(window);
    let mut programs = programs(&before, &times(root)?, since.elapsed());
    programs.retain(|(program, _)| program.cpus >= least);
    programs.truncate(count);
    let counted: Vec<(BusyProgram, Option<Vec<PerfCounter>>)> =
        programs.into_iter().map(|(program, pids)| (program, counters(root, &pids))).collect();
    let since = Instant::now();
    if counted.iter().any(|(_, counters)| counters.is_some()) {
        std::thread::sleep(window);
    }
    let elapsed = since.elapsed().as_secs_f64();
    let read = |counters: &Vec<PerfCounter>| -> u64 { counters.iter().filter_map(|it| it.read().ok()).sum() };
    let rate = |counters: &Vec<PerfCounter>| (read(counters) * LINE_BYTES) as f64 / elapsed;
    Ok(counted
        .into_iter()
        .map(|(program, counters)| BusyProgram { bytes_per_s: counters.as_ref().map(rate), ..program })
        .collect())
}

/// What each program used between two readings, the busiest first, with its processes.
fn programs(
    before: &BTreeMap<u32, (String, u64)>,
    after: &BTreeMap<u32, (String, u64)>,
    elapsed: Duration,
) -> Vec<(BusyProgram, Vec<u32>)> {
    let mut sums: BTreeMap<&str, (u64, Vec<u32>)> = BTreeMap::new();
    for (pid, (name, ticks)) in after {
        // A process that began meanwhile has used all of its time meanwhile.
        let earlier = before.get(pid).filter(|(earlier, _)| earlier == name).map_or(0, |(_, ticks)| *ticks);
        let sum = sums.entry(name).or_default();
        sum.0 += ticks.saturating_sub(earlier);
        sum.1.push(*pid);
    }
    let per_second = rustix::param::clock_ticks_per_second() as f64 * elapsed.as_secs_f64().max(1e-3);
    let program = |(name, (ticks, pids)): (&str, (u64, Vec<u32>))| {
        (BusyProgram { name: name.to_owned(), cpus: ticks as f64 / per_second, bytes_per_s: None }, pids)
    };
    let mut programs: Vec<(BusyProgram, Vec<u32>)> = sums.into_iter().map(program).collect();
    programs.order_by(|a, b| b.0.cpus.total_cmp(&a.0.cpus));
    programs
}

/// Counters of the misses of all threads; `None` if the first cannot be counted.
fn counters(root: &HostRoot, pids: &[u32]) -> Option<Vec<PerfCounter>> {
    let threads =
        pids.iter().flat_map(|pid| root.list_numbered(&format!("/proc/{pid}/task"), "").unwrap_or_default());
    let (kind, config) = CACHE_MISSES;
    let opened = threads.take(THREADS_MAX).map(|thread| PerfCounter::of_thread(kind, config, thread));
    // A thread that has ended meanwhile is not counted.
    let (counters, refused): (Vec<_>, Vec<_>) = opened.partition(Result::is_ok);
    let counters: Vec<PerfCounter> = counters.into_iter().flatten().collect();
    (!counters.is_empty() || refused.is_empty()).then_some(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(times: &[(u32, &str, u64)]) -> BTreeMap<u32, (String, u64)> {
        times.iter().map(|(pid, name, ticks)| (*pid, ((*name).to_owned(), *ticks))).collect()
    }

    #[test]
    fn processes_of_one_name_are_one_program() {
        let second = rustix::param::clock_ticks_per_second();
        let before = at(&[(1, "init", 500), (7, "cc", 900), (9, "old", 4)]);
        let after =
            at(&[(1, "init", 500), (7, "cc", 900 + second), (8, "cc", second / 2), (9, "cc", second / 2)]);
        let programs = programs(&before, &after, Duration::from_secs(1));
        let cc = BusyProgram { name: "cc".to_owned(), cpus: 2.0, bytes_per_s: None };
        assert_eq!(programs[0], (cc, vec![7, 8, 9]));
        assert_eq!((programs[1].0.name.as_str(), programs[1].0.cpus), ("init", 0.0));
    }

    /// A loop of this machine, in another process.
    #[test]
    fn a_looping_program_is_busy() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let found = busy(&HostRoot::real(), Duration::from_millis(500), 0.01, usize::MAX);
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        assert!(found.iter().any(|program| program.name == "sh"), "{found:?}");
    }
}
