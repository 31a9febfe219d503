//! Weighs claims against code of a guest against the stalls of its hypervisor.
//!
//! In: the spikes of a run with their causes. A hypervisor stops a virtual CPU anywhere, so its stalls are scattered over the
//! code of the guest; slow code is late at the same place repeatedly. A claim becomes a stall if it is not repeated at its
//! place and the run has stalls of that length that no guest code explains. Its place becomes evidence.
//!
//! A loop that never sleeps feels every stall of its CPU, a timer only those while it waits, and under another load other
//! code runs. So the stalls that outnumber the claims at a place are those of the same probe, in the run or in the cell.

use crate::confidence::{LIKELY, POSSIBLE};
use std::collections::BTreeMap;
use whylate_core::order::InOrder;
use whylate_core::result::{Cause, CauseKind, CellResult, LateResponses, LedgerRow, Spike, lasting_name};

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

/// The probe of a spike in a list of several probes, without its series.
fn probe_of(spike: &Spike) -> String {
    let name = spike.probe.as_deref().unwrap_or_default();
    name.split('/').next().unwrap_or_default().to_owned()
}

/// How long a stall or a claim was, and where it was felt.
struct Felt {
    cell: usize,
    probe: String,
    ns: f64,
}

/// What a run shows about its hypervisor and its own code.
#[derive(Default)]
struct Seen {
    stalls: Vec<Felt>,
    claims: BTreeMap<Place, Vec<Felt>>,
}

impl Seen {
    fn of(cells: &[CellResult]) -> Self {
        let mut seen = Self::default();
        for (cell, result) in cells.iter().enumerate() {
            for probe in &result.probes {
                for spike in &probe.spikes {
                    for cause in std::iter::once(&spike.cause).chain(&spike.also) {
                        let ns = length(spike.latency_ns, cause);
                        seen.take(cause, Felt { cell, probe: probe.probe.clone(), ns });
                    }
                }
            }
        }
        seen
    }

    fn take(&mut self, cause: &Cause, felt: Felt) {
        match place(cause) {
            Some(place) => self.claims.entry(place).or_default().push(felt),
            None if matches!(cause.kind, CauseKind::Steal | CauseKind::HostStall) => self.stalls.push(felt),
            None => {}
        }
    }

    /// The stall that a claim more likely is; `None` if the claim stands.
    fn stall(&self, place: &Place, claim: &Felt) -> Option<Stall> {
        let claims_here = self.claims.get(place).map_or(&[][..], Vec::as_slice);
        let is_long = |felt: &&Felt| felt.ns >= claim.ns / 2.0;
        let stalls = self.stalls.iter().filter(is_long).count();
        let claims = claims_here.iter().filter(is_long).count().max(1);
        let outweighs = |is_of: &dyn Fn(&Felt) -> bool| {
            let all = claims_here.iter().filter(|felt| is_of(felt) && felt.ns >= LEAST_NS).count();
            let claims = claims_here.iter().filter(is_long).filter(|felt| is_of(felt)).count();
            let own = { self.stalls.iter() }.filter(is_long).filter(|felt| is_of(felt));
            let own = own.filter(|felt| felt.probe == claim.probe).count();
            // A place that is late often may be late for long now and then.
            (claims >= REPEATED && own <= STALLS_PER_CLAIM * claims) || (all >= REPEATED && own < claims)
        };
        let stands = match leaves_to_host(place) {
            true => claims >= REPEATED * stalls.max(1),
            false => outweighs(&|_| true) || outweighs(&|felt| felt.cell == claim.cell),
        };
        (claim.ns >= LEAST_NS && stalls > 0 && !stands).then_some(Stall { claims, stalls })
    }
}

/// How many claims and stalls a run has that are at least half as long as a claim.
struct Stall {
    claims: usize,
    stalls: usize,
}

/// Withdraws claims that are more likely stalls of the hypervisor. Call it on the run of a guest. `deadline_ns`: of the watched
/// threads.
pub(super) fn weigh(cells: &mut [CellResult], deadline_ns: Option<u64>) {
    let seen = Seen::of(cells);
    for (cell, result) in cells.iter_mut().enumerate() {
        for probe in &mut result.probes {
            for spike in &mut probe.spikes {
                let moved = weigh_one(&seen, (cell, &probe.probe), spike);
                let is_late = deadline_ns.is_some_and(|deadline_ns| spike.latency_ns > deadline_ns);
                let is_own = |it: &&mut LateResponses| is_late && spike.probe.as_ref() == Some(&it.probe);
                for responses in probe.late_responses.iter_mut().filter(is_own) {
                    moved.iter().for_each(|moved| recount(&mut responses.causes, moved));
                }
            }
        }
        for spike in &mut result.spikes {
            weigh_one(&seen, (cell, &probe_of(spike)), spike);
        }
    }
}

/// Returns the claims of a spike that were withdrawn.
fn weigh_one(seen: &Seen, (cell, probe): (usize, &str), spike: &mut Spike) -> Vec<Moved> {
    let mut moved = Vec::new();
    let latency_ns = spike.latency_ns;
    for (nth, cause) in std::iter::once(&mut spike.cause).chain(&mut spike.also).enumerate() {
        let felt = Felt { cell, probe: probe.to_owned(), ns: length(latency_ns, cause) };
        if let Some(stall) = place(cause).and_then(|place| seen.stall(&place, &felt)) {
            let actor = cause.actor.as_deref().map(lasting_name);
            let (kind, function) = (Some(cause.kind), cause.function.clone());
            take_back(cause, &stall);
            moved.push(Moved { kind, actor, function, ns: felt.ns as u64, is_main: nth == 0 });
        }
    }
    moved
}

/// Time of a response that is a stall's now: its cause before.
struct Moved {
    kind: Option<CauseKind>,
    actor: Option<String>,
    function: Option<String>,
    ns: u64,
    is_main: bool,
}

/// Moves the time in the sums over late responses, too.
fn recount(rows: &mut Vec<LedgerRow>, moved: &Moved) {
    let is_before = |row: &LedgerRow| {
        (&row.kind, &row.actor, &row.function) == (&moved.kind, &moved.actor, &moved.function)
    };
    let Some(place) = rows.iter().position(is_before) else { return };
    let (main, before) = (u64::from(moved.is_main), &mut rows[place]);
    let mut stall = LedgerRow {
        kind: Some(CauseKind::HostStall),
        actor: None,
        function: None,
        spikes: 1,
        main: Some(main),
        total_ns: moved.ns,
        max_ns: moved.ns,
        ..before.clone()
    };
    before.total_ns = before.total_ns.saturating_sub(moved.ns);
    before.spikes = before.spikes.saturating_sub(1);
    before.max_ns = before.max_ns.min(before.total_ns);
    before.main = before.main.map(|all| all.saturating_sub(main));
    let is_stall = |row: &LedgerRow| (row.kind, &row.actor, &row.function) == (stall.kind, &None, &None);
    if let Some(known) = rows.iter().position(is_stall) {
        stall.add(&rows.swap_remove(known));
    }
    rows.push(stall);
    rows.retain(|row| row.spikes > 0);
    rows.order_by_key(|row| std::cmp::Reverse(row.total_ns));
}

fn take_back(cause: &mut Cause, stall: &Stall) {
    let actor = cause.actor.take().map(|actor| format!(" {actor}")).unwrap_or_default();
    let function = cause.function.take().map(|function| format!(" in {function}")).unwrap_or_default();
    let often = match stall.claims {
        1 => "once".to_owned(),
        claims => format!("{claims} times"),
    };
    cause.evidence.push(format!(
        "the hypervisor causes stalls of the same length in other places, too; a stall was found \
         at {}{actor}{function} only {often}",
        cause.kind.name()
    ));
    let confidence = if stall.stalls >= STALLS_LIKELY * stall.claims { LIKELY } else { POSSIBLE };
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
        weigh(&mut cells, Some(1_000_000));
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
    fn a_repeated_place_is_weighed_against_the_stalls_that_its_own_probe_feels() {
        let claims = (0..6).map(|nth| spike(CauseKind::PreemptOff, Some("copy_page_range"), 300_000 + nth));
        let stalls = |count| (0..count).map(|nth| spike(CauseKind::HostStall, None, 400_000 + nth));
        let single = || spike(CauseKind::PreemptOff, Some("process_one_work"), 310_000);
        let twice = [single(), single()];
        let stall = spike(CauseKind::HostStall, None, 2_000_000);
        let long = spike(CauseKind::PreemptOff, Some("copy_page_range"), 1_300_000);
        let timer: Vec<Spike> = claims.chain(twice).chain([long]).chain(stalls(3)).collect();
        let probe =
            |name: &str, spikes| ProbeResult { probe: name.to_owned(), spikes, ..ProbeResult::default() };
        let copied: Vec<Spike> = { timer.iter() }
            .map(|spike| Spike { probe: Some("timer".to_owned()), ..spike.clone() })
            .collect();
        let mut cells = [CellResult {
            probes: vec![probe("timer", timer), probe("stall", stalls(60).chain([stall]).collect())],
            spikes: copied,
            ..CellResult::default()
        }];
        weigh(&mut cells, Some(1_000_000));
        for spikes in [&cells[0].probes[0].spikes, &cells[0].spikes] {
            let is_claim = |spike: &&Spike| spike.cause.kind == CauseKind::PreemptOff;
            assert_eq!(spikes.iter().filter(is_claim).count(), 7, "{spikes:?}");
            assert!(spikes[..6].iter().all(|spike| is_claim(&spike)));
            let evidence = &spikes[6].cause.evidence[0];
            assert!(evidence.contains("only 2 times"), "{evidence}");
        }
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

    #[test]
    fn a_stall_is_moved_in_the_sums_over_late_responses_too() {
        let row = |kind, function: Option<&str>, total_ns, spikes| LedgerRow {
            probe: "task/arm".to_owned(),
            kind: Some(kind),
            actor: Some(lasting_name("kworker/0:1")).filter(|_| function.is_some()),
            function: function.map(str::to_owned),
            spikes,
            main: Some(spikes),
            total_ns,
            max_ns: total_ns / spikes.max(1),
        };
        let of_series = |spike: Spike| Spike { probe: Some("task/arm".to_owned()), ..spike };
        let claim = |latency_ns| {
            let mut claim = of_series(spike(CauseKind::IrqsOff, Some("vfs_read"), latency_ns));
            claim.cause.actor = Some("kworker/0:1".to_owned());
            claim
        };
        let stall = || of_series(spike(CauseKind::HostStall, None, 7_000_000));
        let sums = |claimed_ns, rows: &[LedgerRow]| {
            let responses =
                LateResponses { probe: "task/arm".to_owned(), late: 4, explained: 4, causes: rows.to_vec() };
            let probe = ProbeResult {
                probe: "task".to_owned(),
                spikes: vec![stall(), stall(), stall(), claim(claimed_ns)],
                late_responses: vec![responses],
                ..ProbeResult::default()
            };
            let mut cells = [CellResult { probes: vec![probe], ..CellResult::default() }];
            weigh(&mut cells, Some(1_000_000));
            assert_eq!(cells[0].probes[0].spikes[3].cause.kind, CauseKind::HostStall);
            let one = |it: &LedgerRow| (it.kind.unwrap(), it.total_ns, it.max_ns, it.spikes, it.main);
            cells[0].probes[0].late_responses[0].causes.iter().map(one).collect::<Vec<_>>()
        };
        let (known, claimed) = (
            row(CauseKind::HostStall, None, 21_000_000, 3),
            row(CauseKind::IrqsOff, Some("vfs_read"), 7_100_000, 2),
        );
        let left = (CauseKind::IrqsOff, 100_000, 100_000, 1, Some(1));
        assert_eq!(
            sums(7_000_000, &[known, claimed.clone()]),
            [(CauseKind::HostStall, 28_000_000, 7_000_000, 4, Some(4)), left]
        );
        assert_eq!(
            sums(7_000_000, std::slice::from_ref(&claimed)),
            [(CauseKind::HostStall, 7_000_000, 7_000_000, 1, Some(1)), left]
        );
        let punctual = sums(900_000, &[claimed]);
        assert_eq!(punctual, [(CauseKind::IrqsOff, 7_100_000, 3_550_000, 2, Some(2))], "it was not late");
    }
}
