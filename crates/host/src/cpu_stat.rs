//! /proc/stat: the time in which the hypervisor ran something else instead of a CPU of this machine.
//!
//! What a hypervisor does not report stays zero here, so a zero proves nothing. The resolution is one tick of
//! USER_HZ (10 ms on x86 and arm64): shorter preemptions by the host show up only summed over many.

use crate::{HostError, HostRoot};
use std::collections::BTreeMap;
use whylate_core::units::{CpuId, Nanos};

/// The column of `steal` in a `cpuN` line, from 0, after the name (proc(5): since Linux 2.6.11).
const STEAL_COLUMN: usize = 7;

/// Steal time of each online CPU since boot; `None` for a CPU whose line has no such column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StealTimes(BTreeMap<CpuId, Option<Nanos>>);

impl StealTimes {
    /// Reads /proc/stat; empty when it is absent.
    pub fn read(root: &HostRoot) -> Result<Self, HostError> {
        let text = root.read("/proc/stat")?.unwrap_or_default();
        Ok(Self::parse(&text, rustix::param::clock_ticks_per_second()))
    }

    /// Parses the text of /proc/stat, whose times are in ticks of `ticks_per_second`.
    pub fn parse(text: &str, ticks_per_second: u64) -> Self {
        let tick_ns = 1_000_000_000 / ticks_per_second.max(1);
        let mut times = BTreeMap::new();
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace();
            let number = fields.next().and_then(|name| name.strip_prefix("cpu")).map(str::parse);
            let Some(Ok(cpu)) = number else { continue };
            let ticks: Option<u64> = fields.nth(STEAL_COLUMN).and_then(|ticks| ticks.parse().ok());
            times.insert(CpuId(cpu), ticks.map(|ticks| Nanos(ticks.saturating_mul(tick_ns))));
        }
        Self(times)
    }

    /// Steal time of one CPU since boot; `None` when the kernel does not count it or the CPU is offline.
    pub fn of(&self, cpu: CpuId) -> Option<Nanos> {
        self.0.get(&cpu).copied().flatten()
    }

    /// Steal time of one CPU between two reads; `None` when either lacks it. A counter that went back (the kernel
    /// allows that when a CPU goes offline and returns) gives zero.
    pub fn delta(before: &Self, after: &Self, cpu: CpuId) -> Option<Nanos> {
        Some(Nanos(after.of(cpu)?.0.saturating_sub(before.of(cpu)?.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steal_per_cpu_in_nanoseconds() {
        let before =
            StealTimes::parse("cpu  9 9 9 9 9 9 9 9\ncpu0 1 0 1 9 5 0 8 6 0 0\ncpu2 1 2 3 4 5 6 7\n", 100);
        let after = StealTimes::parse("cpu0 1 0 1 9 5 0 8 9 0 0\ncpu2 1 2 3 4 5 6 7\nintr 1 2\n", 100);
        assert_eq!(before.of(CpuId(0)), Some(Nanos::from_millis(60)));
        assert_eq!(StealTimes::delta(&before, &after, CpuId(0)), Some(Nanos::from_millis(30)));
        assert_eq!(StealTimes::delta(&after, &before, CpuId(0)), Some(Nanos(0)));
        assert_eq!(StealTimes::delta(&before, &after, CpuId(2)), None, "no such column");
        assert_eq!(after.of(CpuId(1)), None, "offline");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(cpu[0-9]{0,12} ([0-9]{1,21} ?){0,12}\\PC{0,3}\n){0,5}", hz in any::<u64>()) {
            let _ = StealTimes::parse(&text, hz);
        }
    }
}
