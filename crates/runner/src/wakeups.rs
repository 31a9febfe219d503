//! The wake-ups of the probes `timer`: how many they made, and how many of them the search for causes saw.
//!
//! On some guests the kernel hides a part of the wake-ups from all tracing programs, and does not count them as lost.
//! The probe knows its own number.

use std::collections::BTreeMap;
use whylate_core::record::{CounterRecord, Interval};
use whylate_core::{CpuId, Warning, WarningCode};
use whylate_probe::{ProbeKind, ProbeSpec};

/// If more than this part of the wake-ups was not seen, there is a warning: a few timers expire before their thread
/// sleeps.
const UNSEEN_SHARE: f64 = 0.01;

/// The counts of all CPUs.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    cpus: BTreeMap<CpuId, OnCpu>,
}

#[derive(Clone, Copy, Debug, Default)]
struct OnCpu {
    made: u64,
    /// `None` if the search does not count them.
    seen: Option<u64>,
}

impl OnCpu {
    fn unseen_share(&self) -> f64 {
        let unseen = self.seen.map_or(0, |seen| self.made.saturating_sub(seen));
        unseen as f64 / self.made.max(1) as f64
    }
}

impl Wakeups {
    /// Adds the samples of a probe; for a timer each sample is a wake-up.
    pub(crate) fn made(&mut self, spec: &ProbeSpec, intervals: &[Interval]) {
        if matches!(spec.kind, ProbeKind::Timer(_)) {
            for interval in intervals {
                self.cpus.entry(interval.cpu).or_default().made += interval.samples;
            }
        }
    }

    /// Adds the wake-ups that the search saw while these probes measured, and returns those of timers as records.
    /// Other probes are woken by other things, too.
    pub(crate) fn seen(&mut self, specs: &[ProbeSpec], seen: Vec<(CpuId, u64)>) -> Vec<CounterRecord> {
        let is_timer =
            |cpu| specs.iter().any(|it| matches!(it.kind, ProbeKind::Timer(_)) && it.cpus.contains(cpu));
        let record = |(cpu, seen): (CpuId, u64)| {
            *self.cpus.entry(cpu).or_default().seen.get_or_insert_default() += seen;
            CounterRecord { cpu, wakeups_seen: Some(seen), ..CounterRecord::default() }
        };
        seen.into_iter().filter(|(cpu, _)| is_timer(*cpu)).map(record).collect()
    }

    /// The warning of wake-ups that were not seen, of the CPU with the largest share of them.
    pub(crate) fn unseen(&self) -> Option<Warning> {
        let large = self.cpus.iter().filter(|(_, counts)| counts.unseen_share() > UNSEEN_SHARE);
        let (cpu, counts) =
            large.max_by(|(_, one), (_, other)| one.unseen_share().total_cmp(&other.unseen_share()))?;
        let text = format!(
            "the probe woke {} times on CPU {cpu}, but the BPF programs saw only {} of these wake-ups. The kernel did not report \
             the rest ({:.1} %), so causes may be missing or wrong",
            counts.made,
            counts.seen.unwrap_or_default(),
            counts.unseen_share() * 100.0
        );
        Some(Warning::new(WarningCode::WakeupsUnseen, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn wakeups_that_the_programs_did_not_see_are_warned_of() {
        let warned = |made: u64, seen: Option<u64>| {
            let good = OnCpu { made: 1_000, seen: Some(1_250) };
            let cpus = [(CpuId(0), good), (CpuId(1), OnCpu { made, seen })].into();
            Wakeups { cpus }.unseen().map(|warning| (warning.code, warning.text))
        };
        let (code, text) = warned(50_000, Some(30_000)).unwrap();
        assert_eq!(code, "wakeups-unseen");
        assert!(says("woke-times-on-cpu", &text) && text.contains("only 30000"), "{text}");
        assert!(text.contains("40.0 %"), "{text}");
        assert_eq!(warned(50_000, Some(49_600)), None, "some expire before the thread sleeps");
        assert_eq!(warned(50_000, Some(50_002)), None, "its threads wait for each other at the end");
        assert_eq!(warned(50_000, None), None, "they are not counted");
    }
}
