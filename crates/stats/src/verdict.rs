//! Pass or fail against the plan's limit.
//!
//! The limit is about the largest value of the probes that it judges (`ProbeFacts::judged`): a lateness or a gap. A pass
//! says that nothing was above the limit while it was measured, not that nothing ever will be.

use whylate_core::figure::{nanoseconds, nanoseconds_apart};
use whylate_core::plan::ProbeFacts;
use whylate_core::result::{CellResult, Verdict};
use whylate_core::{CpuId, Nanos, SeriesName};

/// The largest value of a series in an attempt that a later one replaced: a violation that was seen stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierMaximum {
    /// Name of the cell.
    pub cell: String,
    /// The series.
    pub probe: String,
    /// The CPU.
    pub cpu: CpuId,
    /// The value.
    pub value_ns: u64,
}

/// The largest value of one probe on one CPU in one cell.
struct Worst<'a> {
    cell: &'a str,
    probe: ProbeFacts,
    cpu: CpuId,
    value_ns: u64,
}

/// Judges the cells by `limit`; `all_ran` tells whether every cell of the plan has run to its end.
///
/// The second part says in one sentence what the verdict rests on: the worst cell, probe, CPU and value. A run in
/// which nothing was measured is [`Verdict::Incomplete`], whatever `all_ran` says, unless there is no limit.
pub fn verdict(
    cells: &[CellResult],
    earlier: &[EarlierMaximum],
    limit: Option<Nanos>,
    all_ran: bool,
) -> (Verdict, String) {
    let suffix = if all_ran { "" } else { "; not every cell ran" };
    let (verdict, reason) = match (worst(cells, earlier), limit) {
        (None, None) => (Verdict::NoLimit, "the plan has no limit, and there are no samples".to_owned()),
        (None, Some(_)) => (Verdict::Incomplete, "there are no samples".to_owned()),
        (Some(worst), None) => {
            let value = nanoseconds(worst.value_ns);
            (Verdict::NoLimit, format!("the plan has no limit; the largest {}", worst.sentence(&value)))
        }
        (Some(worst), Some(limit)) => {
            let (value, limit_text) = nanoseconds_apart(worst.value_ns, limit.0);
            let (verdict, relation) = match worst.value_ns > limit.0 {
                true => (Verdict::Fail, "above"),
                false if all_ran => (Verdict::Pass, "not above"),
                false => (Verdict::Incomplete, "not above"),
            };
            (verdict, format!("the largest {}, {relation} the limit of {limit_text}", worst.sentence(&value)))
        }
    };
    (verdict, format!("{reason}{suffix}"))
}

impl Worst<'_> {
    fn sentence(&self, value: &str) -> String {
        let ProbeFacts { name, .. } = self.probe;
        let noun = self.probe.noun();
        format!("{noun} was {value}, in cell `{}` (probe {name}, CPU {})", self.cell, self.cpu)
    }
}

/// The largest value of all cells; of several equal ones the first.
fn worst<'a>(cells: &'a [CellResult], earlier: &'a [EarlierMaximum]) -> Option<Worst<'a>> {
    let mut worst: Option<Worst<'_>> = None;
    for maximum in earlier {
        let Some(probe) = SeriesName::of(&maximum.probe).facts().filter(|facts| facts.judged) else {
            continue;
        };
        if worst.as_ref().is_none_or(|worst| worst.value_ns < maximum.value_ns) {
            let EarlierMaximum { cell, cpu, value_ns, .. } = maximum;
            worst = Some(Worst { cell, probe, cpu: *cpu, value_ns: *value_ns });
        }
    }
    for cell in cells {
        for result in &cell.probes {
            let Some(probe) = result.facts().filter(|facts| facts.judged) else { continue };
            for cpu in &result.cpus {
                let Some(quantiles) = cpu.quantiles else { continue };
                if worst.as_ref().is_none_or(|worst| worst.value_ns < quantiles.max_ns) {
                    let value_ns = quantiles.max_ns;
                    worst = Some(Worst { cell: &cell.name, probe, cpu: cpu.cpu, value_ns });
                }
            }
        }
    }
    worst
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::{CpuResult, ProbeResult, Quantiles};

    fn cell(name: &str, probe: &str, max_ns: Option<u64>) -> CellResult {
        let quantiles = max_ns.map(|max_ns| Quantiles { max_ns, ..Quantiles::default() });
        let cpu = CpuResult { cpu: CpuId(3), quantiles, ..CpuResult::default() };
        let probe = ProbeResult { probe: probe.to_owned(), cpus: vec![cpu], ..ProbeResult::default() };
        CellResult { name: name.to_owned(), probes: vec![probe], ..CellResult::default() }
    }

    fn cells() -> [CellResult; 3] {
        [
            cell("idle", "timer", Some(20_000)),
            cell("l3", "stall", Some(123_456)),
            cell("skipped", "timer", None),
        ]
    }

    #[test]
    fn a_value_above_the_limit_fails_and_is_named() {
        let (result, reason) = verdict(&cells(), &[], Some(Nanos::from_micros(100)), true);
        assert_eq!(result, Verdict::Fail);
        assert_eq!(
            reason,
            "the largest gap was 123 us, in cell `l3` (probe stall, CPU 3), above the limit of 100 us"
        );
        assert_eq!(verdict(&cells(), &[], Some(Nanos::from_micros(100)), false).0, Verdict::Fail);
    }

    #[test]
    fn the_limit_itself_passes() {
        let (result, reason) = verdict(&cells(), &[], Some(Nanos(123_456)), true);
        assert_eq!(result, Verdict::Pass, "{reason}");
        let (result, reason) = verdict(&cells(), &[], Some(Nanos(123_455)), true);
        assert_eq!(result, Verdict::Fail);
        assert!(reason.contains("123456 ns") && reason.contains("limit of 123455 ns"), "{reason}");
    }

    #[test]
    fn what_did_not_run_cannot_pass() {
        let (result, reason) = verdict(&cells()[..1], &[], Some(Nanos::from_micros(100)), false);
        assert_eq!(result, Verdict::Incomplete);
        assert_eq!(
            reason,
            "the largest latency was 20.0 us, in cell `idle` (probe timer, CPU 3), not above the limit of 100 us; \
             not every cell ran"
        );
        assert_eq!(verdict(&cells()[2..], &[], Some(Nanos(1)), true).0, Verdict::Incomplete);
        assert_eq!(verdict(&[], &[], Some(Nanos(1)), true).1, "there are no samples");
    }

    #[test]
    fn without_a_limit_there_is_no_judgement() {
        let (result, reason) = verdict(&cells(), &[], None, true);
        assert_eq!(result, Verdict::NoLimit);
        assert!(reason.contains("no limit") && reason.contains("123 us"), "{reason}");
        assert_eq!(verdict(&[], &[], None, true).0, Verdict::NoLimit);
    }

    #[test]
    fn a_violation_in_an_earlier_attempt_stays() {
        let earlier = |probe: &str| EarlierMaximum {
            cell: "l3".to_owned(),
            probe: probe.to_owned(),
            cpu: CpuId(3),
            value_ns: 10_000_000,
        };
        let (result, reason) = verdict(&cells(), &[earlier("timer")], Some(Nanos::from_millis(1)), true);
        assert_eq!(result, Verdict::Fail);
        assert!(reason.contains("latency was 10.0 ms, in cell `l3`"), "{reason}");
        let (result, _) = verdict(&cells(), &[earlier("roundtrip/futex")], Some(Nanos::from_millis(1)), true);
        assert_eq!(result, Verdict::Pass);
    }

    #[test]
    fn other_probes_are_not_judged() {
        let foreign = [cell("idle", "roundtrip", Some(1_000_000)), cell("l3", "timer", Some(10))];
        assert_eq!(verdict(&foreign, &[], Some(Nanos(100)), true).0, Verdict::Pass);
    }
}
