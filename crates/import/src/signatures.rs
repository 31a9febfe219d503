//! Figures that known mechanisms make: what to look at first, no cause.

use whylate_core::figure::nanoseconds;
use whylate_core::quantity::EXTREMES;
use whylate_core::result::CpuResult;

/// A mechanism, by the smallest and the largest maximum that it makes.
const MECHANISMS: [(u64, u64, &str); 3] = [
    (
        45_000_000,
        55_000_000,
        "50 ms of each second is what ordinary tasks keep: RT throttling before Linux 6.12 (sched_rt_runtime_us 950000), the fair server from \
         6.12 on (/sys/kernel/debug/sched/fair_server, known to run too early on 6.12.y); `whylate explain --why throttled`",
    ),
    (
        3_900_000,
        4_100_000,
        "4 ms is a tick of 250 Hz: a timer without high resolution, or work that waits for the tick",
    ),
    (
        9_200_000,
        10_200_000,
        "10 ms is a tick of 100 Hz: a timer without high resolution, or work that waits for the tick",
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
    let max = |cpu: &CpuResult| cpu.quantiles.map(|it| it.max_ns).or_else(|| cpu.get(EXTREMES)?.max_ns);
    let all: Vec<(String, u64)> =
        cpus.iter().filter_map(|cpu| Some((cpu.cpu.to_string(), max(cpu)?))).collect();
    let mut found = Vec::new();
    for (from, to, what) in MECHANISMS {
        let mut names: Vec<&str> =
            all.iter().filter(|(_, ns)| (from..=to).contains(ns)).map(|(name, _)| name.as_str()).collect();
        names.dedup();
        if !names.is_empty() {
            found.push(format!("the maximum of CPU or thread {}: {what}", names.join(", ")));
        }
    }
    let (Some(least), Some(most)) = (all.iter().map(|it| it.1).min(), all.iter().map(|it| it.1).max()) else {
        return found;
    };
    let is_one_series = cpus.iter().all(|cpu| cpu.series == cpus[0].series);
    if is_one_series && all.len() >= 3 && least >= EQUAL_NS_MIN && most - least <= most / 50 {
        found.push(format!(
            "the maxima of all {} CPUs are equal within 2 % ({}): one event that stopped all of them at one moment (an SMI, the host of a virtual \
             machine, stop_machine) would look so",
            all.len(),
            nanoseconds(most)
        ));
    }
    found
}
