//! The fallback if the kernel reports no events: how long tasks waited for each CPU, from /proc/schedstat.
//!
//! It counts tasks of all priorities together, and has only sums: no maximum, no distribution, and no timers.

use std::collections::BTreeMap;
use std::time::Duration;
use whylate_core::figure::nanoseconds;
use whylate_core::{CpuId, CpuSet};
use whylate_host::HostRoot;

/// The longest observation: the command fails anyway.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// For each CPU: how long tasks have waited for it in total, and how often one got it.
type Waits = BTreeMap<CpuId, (u64, u64)>;

/// Observes for a while; returns a line for each CPU, or none if the kernel does not count it.
pub(super) fn lines(host: &HostRoot, cpus: &CpuSet, duration: Option<Duration>) -> Vec<String> {
    let Some(before) = read(host) else { return Vec::new() };
    let looked = duration.map_or(LOOK_MAX, |duration| duration.min(LOOK_MAX));
    std::thread::sleep(looked);
    let after = read(host).unwrap_or_default();
    differences(&before, &after, cpus, looked)
}

fn read(host: &HostRoot) -> Option<Waits> {
    let text = host.read("/proc/schedstat").ok().flatten()?;
    Some(parse(&text)).filter(|waits| !waits.is_empty())
}

/// The eighth number of a CPU's line is the time that tasks waited, the ninth how often one got the CPU (version 15 on).
fn parse(text: &str) -> Waits {
    let cpu = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let mut numbers = words.skip(7).map(|word| word.parse().ok());
        Some((CpuId(cpu), (numbers.next()??, numbers.next()??)))
    };
    text.lines().filter_map(cpu).collect()
}

fn differences(before: &Waits, after: &Waits, cpus: &CpuSet, looked: Duration) -> Vec<String> {
    let line = |cpu: CpuId| {
        let ((wait, count), (wait_after, count_after)) = (before.get(&cpu)?, after.get(&cpu)?);
        let times = count_after.saturating_sub(*count);
        let mean_ns = wait_after.saturating_sub(*wait).checked_div(times)?;
        Some(format!(
            "CPU {cpu}: in {:.1} s, tasks of all priorities waited for this CPU {times} times, on average {} \
             (/proc/schedstat, which has no maximum)",
            looked.as_secs_f64(),
            nanoseconds(mean_ns)
        ))
    };
    cpus.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn the_sums_of_each_cpu_are_compared() {
        let text = |wait, count| {
            format!(
                "version 17\ntimestamp 1\ncpu0 0 0 9 8 7 6 500 {wait} {count}\ndomain0 MC 3 0 0\ncpu1 0 0 0 0 0 0 0 5 1\n"
            )
        };
        let (before, after) = (parse(&text(1_000, 10)), parse(&text(21_000, 14)));
        let lines = differences(&before, &after, &"0-3".parse().unwrap(), Duration::from_secs(1));
        assert_eq!(lines.len(), 1, "no task waited for CPU 1: {lines:?}");
        assert!(says("cpu-s-tasks-all", &lines[0]), "{lines:?}");
        assert!(lines[0].contains(" 4 times,"), "{lines:?}");
    }
}
