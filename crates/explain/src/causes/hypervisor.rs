//! Weighs claims against code of a guest against the stalls of its hypervisor.
//!
//! In: the spikes of a run with their causes. A hypervisor stops a virtual CPU anywhere, so its stalls are scattered over the
//! code of the guest; slow code is late at the same place repeatedly. A claim becomes a stall if it is not repeated at its
//! place and the run has stalls of that length that no guest code explains. Its place becomes evidence.

use crate::confidence::{LIKELY, POSSIBLE};
use std::collections::BTreeMap;
use whylate_core::result::{Cause, CauseKind, CellResult, Spike};

/// Shorter claims are not weighed: ordinary handlers take as long.
const LEAST_NS: f64 = 50_000.0;
/// Claims at one place that count as repeated.
const REPEATED: usize = 3;
/// A repeated claim stands up to this number of stalls per claim at its place.
const STALLS_PER_CLAIM: usize = 5;
/// From this many stalls per claim on, a stall is likely.
const STALLS_LIKELY: usize = 3;

type Place = (CauseKind, Option<String>, Option<String>);

/// The time of a cause in a spike of that latency, in ns.
fn length(latency_ns: u64, cause: &Cause) -> f64 {
    cause.share.unwrap_or(1.0) * latency_ns as f64
}

fn place(cause: &Cause) -> Option<Place> {
    use CauseKind::{IdleExit, Irq, IrqsOff, PreemptOff, Softirq};
    matches!(cause.kind, IdleExit | Irq | IrqsOff | PreemptOff | Softirq).then(|| {
        // Threads of one function are one place.
        let actor = cause.actor.clone().filter(|_| cause.function.is_none() || cause.kind == Irq);
        (cause.kind, actor, cause.function.clone())
    })
}

/// Whether a virtual CPU exits to its host there: the timer's handler arms the next timer, and idle ends in HLT.
fn leaves_to_host((kind, actor, _): &Place) -> bool {
    *kind == CauseKind::IdleExit || actor.as_deref() == Some("local timer")
}

fn listed(cells: &[CellResult]) -> impl Iterator<Item = &Spike> {
    cells.iter().flat_map(|cell| cell.probes.iter().flat_map(|probe| &probe.spikes))
}

/// What a run shows about its hypervisor and its own code.
#[derive(Default)]
struct Seen {
    stalls_ns: Vec<f64>,
    claims: BTreeMap<Place, Vec<f64>>,
}

impl Seen {
    fn of(cells: &[CellResult]) -> Self {
        let mut seen = Self::default();
        for spike in listed(cells) {
            for cause in std::iter::once(&spike.cause).chain(&spike.also) {
                let length_ns = length(spike.latency_ns, cause);
                match place(cause) {
                    Some(place) => seen.claims.entry(place).or_default().push(length_ns),
                    None if matches!(cause.kind, CauseKind::Steal | CauseKind::HostStall) => {
                        seen.stalls_ns.push(length_ns);
                    }
                    None => {}
                }
            }
        }
        seen
    }

    /// How sure it is that the hypervisor took the time of a claim; `None` if the claim stands.
    fn stall(&self, place: &Place, length_ns: f64) -> Option<f64> {
        let as_long = |all: &[f64]| all.iter().filter(|it| **it >= length_ns / 2.0).count();
        let stalls = as_long(&self.stalls_ns);
        let claims = self.claims.get(place).map_or(0, |all| as_long(all)).max(1);
        let stands = match leaves_to_host(place) {
            true => claims >= REPEATED * stalls.max(1),
            false => claims >= REPEATED && stalls <= STALLS_PER_CLAIM * claims,
        };
        (length_ns >= LEAST_NS && stalls > 0 && !stands).then_some(if stalls >= STALLS_LIKELY * claims {
            LIKELY
        } else {
            POSSIBLE
        })
    }
}

/// Withdraws claims that are more likely stalls of the hypervisor. Call it on the run of a guest.
pub(super) fn weigh(cells: &mut [CellResult]) {
    let seen = Seen::of(cells);
    for cell in cells {
        let probes = cell.probes.iter_mut().flat_map(|probe| &mut probe.spikes);
        for spike in probes.chain(&mut cell.spikes) {
            let latency_ns = spike.latency_ns;
            for cause in std::iter::once(&mut spike.cause).chain(&mut spike.also) {
                let length_ns = length(latency_ns, cause);
                let Some(confidence) = place(cause).and_then(|place| seen.stall(&place, length_ns)) else {
                    continue;
                };
                take_back(cause, confidence);
            }
        }
    }
}

fn take_back(cause: &mut Cause, confidence: f64) {
    let actor = cause.actor.take().map(|actor| format!(" {actor}")).unwrap_or_default();
    let function = cause.function.take().map(|function| format!(" in {function}")).unwrap_or_default();
    cause.evidence.push(format!(
        "found at {}{actor}{function}, but too rarely: the hypervisor causes stalls of this length elsewhere, too",
        cause.kind.name()
    ));
    (cause.kind, cause.pid, cause.confidence) = (CauseKind::HostStall, None, Some(confidence));
    cause.callers.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuId;
    use whylate_core::result::ProbeResult;

    fn spike(kind: CauseKind, function: Option<&str>, latency_ns: u64) -> Spike {
        let cause = Cause {
            actor: Some("vi".to_owned()),
            function: function.map(str::to_owned),
            share: Some(1.0),
            confidence: Some(0.75),
            ..Cause::new(kind)
        };
        Spike { cause, ..Spike::unexplained(CpuId(0), latency_ns, latency_ns) }
    }

    fn weighed(spikes: Vec<Spike>) -> Vec<(CauseKind, Option<String>)> {
        let mut cells = [CellResult {
            probes: vec![ProbeResult { spikes, ..ProbeResult::default() }],
            ..CellResult::default()
        }];
        weigh(&mut cells);
        let [cell] = cells;
        cell.probes[0].spikes.iter().map(|spike| (spike.cause.kind, spike.cause.function.clone())).collect()
    }

    #[test]
    fn a_claim_at_a_place_of_its_own_is_a_stall_if_stalls_are_as_long() {
        let stall = || spike(CauseKind::HostStall, None, 7_000_000);
        let found =
            weighed(vec![stall(), stall(), stall(), spike(CauseKind::IrqsOff, Some("vfs_read"), 7_000_000)]);
        assert_eq!(found[3], (CauseKind::HostStall, None));
        let found = weighed(vec![stall(), spike(CauseKind::IrqsOff, Some("vfs_read"), 20_000_000)]);
        assert_eq!(found[1].0, CauseKind::IrqsOff, "no stall is as long");
        assert_eq!(
            weighed(vec![spike(CauseKind::IrqsOff, Some("vfs_read"), 7_000_000)])[0].0,
            CauseKind::IrqsOff
        );
        let short = weighed(vec![stall(), spike(CauseKind::Irq, None, 30_000)]);
        assert_eq!(short[1].0, CauseKind::Irq);
    }

    #[test]
    fn code_that_is_late_repeatedly_stays_named_despite_stalls() {
        let claim = |nth: u64| spike(CauseKind::IrqsOff, Some("gf100_mc_intr_unarm"), 1_000_000 + nth);
        let stalls = (0..12).map(|nth| spike(CauseKind::Steal, None, 1_000_000 * nth));
        let found = weighed((0..4).map(claim).chain(stalls).collect());
        assert!(found[..4].iter().all(|(kind, _)| *kind == CauseKind::IrqsOff), "{found:?}");
    }

    #[test]
    fn the_handler_of_the_timer_is_where_a_virtual_cpu_is_stopped() {
        let tick = || {
            let mut tick = spike(CauseKind::Irq, None, 2_000_000);
            tick.cause.actor = Some("local timer".to_owned());
            tick
        };
        let stall = spike(CauseKind::HostStall, None, 2_000_000);
        let found = weighed(vec![tick(), tick(), stall.clone(), stall]);
        assert!(found.iter().all(|(kind, _)| *kind == CauseKind::HostStall), "{found:?}");
        let often: Vec<Spike> =
            (0..4).map(|_| tick()).chain([spike(CauseKind::HostStall, None, 2_000_000)]).collect();
        assert_eq!(weighed(often)[0].0, CauseKind::Irq);
    }
}
