//! Late time by cause: the sum over spikes of what each of their causes covers.

use super::{Cause, CauseKind, LedgerRow, Spike};
use crate::order::InOrder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// At most this many causes are kept apart; later ones are added up by their kinds.
const NAMED_MAX: usize = 256;

/// The name of the row for what no cause explains.
pub const NOT_EXPLAINED: &str = "not explained";

/// The name of the row for the waits in which the thread that had the CPU is not known.
pub const WAITED_FOR_CPU: &str = "waited for a CPU (another thread had it)";

/// The late time of one cause in some spikes.
#[derive(Clone, Debug, PartialEq)]
pub struct LateTime {
    /// The kind of the cause.
    pub kind: CauseKind,
    /// Who caused the delay, without numbers that change from boot to boot.
    pub actor: Option<String>,
    /// The kernel function, if it is known.
    pub function: Option<String>,
    /// How much of the late time the cause covers.
    pub ns: f64,
    /// The most that the cause covers of one spike.
    pub largest_ns: f64,
    /// Spikes to which the cause contributed.
    pub spikes: u64,
    /// Spikes of which it was the main cause.
    pub main: u64,
    /// The cause's part of all late time; the parts of all rows add up to 1.
    pub share: f64,
}

impl LateTime {
    /// Kind, actor and function: `irqs off: irq/45-nvkm in unarm`.
    pub fn name(&self) -> String {
        if !self.is_explained() {
            return NOT_EXPLAINED.to_owned();
        }
        let kind = self.kind.words();
        match (&self.actor, &self.function) {
            (Some(actor), Some(function)) => format!("{kind}: {actor} in {function}"),
            (Some(only), None) | (None, Some(only)) => format!("{kind}: {only}"),
            (None, None) if self.kind == CauseKind::Thread => WAITED_FOR_CPU.to_owned(),
            (None, None) => kind,
        }
    }

    /// Whether its cause is known.
    pub fn is_explained(&self) -> bool {
        self.kind != CauseKind::Unattributed
    }

    fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.actor == other.actor && self.function == other.function
    }
}

/// The late time of one kind of cause.
#[derive(Clone, Debug, PartialEq)]
pub struct LateKind {
    /// The kind with its largest actor, and how many more there are: `preempt off: rustc and 8 more`.
    pub name: String,
    /// The part of all late time.
    pub share: f64,
    /// Whether its cause is known.
    pub is_explained: bool,
    /// The most that one actor covers of one spike.
    pub largest_ns: f64,
}

/// Adds up the rows by kind, largest first; what is not explained is last, unless it is more than each kind. A kind names
/// its largest actor, with its function if that actor has only one.
pub fn late_kinds(found: &[LateTime]) -> Vec<LateKind> {
    let mut kinds: Vec<(CauseKind, Vec<&LateTime>)> = Vec::new();
    for one in found {
        match kinds.iter_mut().find(|(kind, _)| *kind == one.kind) {
            Some((_, rows)) => rows.push(one),
            None => kinds.push((one.kind, vec![one])),
        }
    }
    let mut kinds: Vec<LateKind> = kinds.into_iter().map(|(_, rows)| late_kind(&rows)).collect();
    let explained = kinds.iter().filter(|kind| kind.is_explained);
    let largest = explained.map(|kind| kind.share).fold(0.0, f64::max);
    let is_last = |kind: &LateKind| !kind.is_explained && kind.share <= largest;
    kinds.order_by(|a, b| is_last(a).cmp(&is_last(b)).then(b.share.total_cmp(&a.share)));
    kinds
}

fn late_kind(rows: &[&LateTime]) -> LateKind {
    let mut actors: Vec<(LateTime, bool)> = Vec::new();
    for row in rows {
        // A function of the task's own tells its causes apart where no actor does.
        let is_same =
            |one: &LateTime| one.actor == row.actor && (one.actor.is_some() || one.function == row.function);
        match actors.iter_mut().find(|(one, _)| is_same(one)) {
            Some((one, is_alone)) => {
                one.share += row.share;
                *is_alone = false;
            }
            None => actors.push(((*row).clone(), true)),
        }
    }
    actors.order_by(|(a, _), (b, _)| b.share.total_cmp(&a.share));
    let more = actors.len().saturating_sub(1);
    let name = actors.into_iter().next().map(|(first, is_alone)| {
        let function = first.function.clone().filter(|_| is_alone || first.actor.is_none());
        LateTime { function, ..first }.name()
    });
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    LateKind {
        name: format!("{}{more}", name.unwrap_or_default()),
        share: rows.iter().map(|row| row.share).sum(),
        is_explained: rows.iter().any(|row| row.is_explained()),
        largest_ns: rows.iter().map(|row| row.largest_ns).fold(0.0, f64::max),
    }
}

/// Which part of a spike each of its causes has, and which part none has: together 1. Shares that overlap are scaled
/// to the whole; a cause without a share gets what the others leave.
pub fn shares(spike: &Spike) -> (Vec<(&Cause, f64)>, f64) {
    let causes: Vec<&Cause> = std::iter::once(&spike.cause).chain(&spike.also).collect();
    let given: f64 = causes.iter().filter_map(|cause| cause.share).sum();
    let scale = 1.0 / given.max(1.0);
    let mut left = (1.0 - given).max(0.0);
    let mut part = |cause: &Cause| cause.share.map_or_else(|| std::mem::take(&mut left), |it| it * scale);
    let parts = causes.into_iter().map(|cause| (cause, part(cause))).collect();
    (parts, left)
}

/// Divides the late time of spikes among their causes, largest first. What no cause covers is unattributed.
pub fn late_time<'s>(spikes: impl IntoIterator<Item = &'s Spike>) -> Vec<LateTime> {
    let mut sum = LateSum::default();
    spikes.into_iter().for_each(|spike| sum.add(spike));
    sum.finish()
}

/// Late time by cause, added up spike by spike.
#[derive(Clone, Debug, Default)]
pub struct LateSum {
    spikes: u64,
    all: Vec<LateTime>,
}

impl LateSum {
    /// Divides the late time of a spike among its causes.
    pub fn add(&mut self, spike: &Spike) {
        let (parts, left) = shares(spike);
        let late_ns = spike.latency_ns as f64;
        let parts = parts.iter().enumerate();
        parts.for_each(|(nth, (cause, part))| self.add_part(cause, part * late_ns, u64::from(nth == 0)));
        self.add_part(&Cause::unattributed(), left * late_ns, 0);
        self.spikes += 1;
    }

    /// How many spikes were added.
    pub fn spikes(&self) -> u64 {
        self.spikes
    }

    /// The late time of each cause, largest first.
    pub fn finish(self) -> Vec<LateTime> {
        in_order(self.all)
    }

    fn add_part(&mut self, cause: &Cause, ns: f64, main: u64) {
        if ns <= 0.0 {
            return;
        }
        // A thread that ran while nothing explains the delay is not blamed.
        let known = Some(cause).filter(|cause| cause.kind != CauseKind::Unattributed);
        let actor = known.and_then(|cause| cause.actor.as_deref()).map(lasting_name);
        let function = known.and_then(|cause| cause.function.clone());
        let (kind, largest_ns) = (cause.kind, ns);
        let one = LateTime { kind, actor, function, ns, largest_ns, spikes: 1, main, share: 0.0 };
        let is_new = self.all.len() >= NAMED_MAX && self.all.iter().all(|known| !known.is_same(&one));
        add(&mut self.all, if is_new { LateTime { actor: None, function: None, ..one } } else { one });
    }
}

fn add(all: &mut Vec<LateTime>, one: LateTime) {
    match all.iter_mut().find(|known| known.is_same(&one)) {
        Some(known) => {
            known.ns += one.ns;
            known.largest_ns = known.largest_ns.max(one.largest_ns);
            known.spikes += one.spikes;
            known.main += one.main;
        }
        None => all.push(one),
    }
}

/// Causes with their parts of the whole, largest first.
fn in_order(mut all: Vec<LateTime>) -> Vec<LateTime> {
    let total: f64 = all.iter().map(|one| one.ns).sum();
    all.iter_mut().for_each(|one| one.share = one.ns / total);
    all.order_by_key(|one| Reverse(one.ns as u64));
    all
}

/// The late responses of a watched thread, or the late instances of a chain, by cause: all that were explained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LateResponses {
    /// The thread: `task/audio`.
    pub probe: String,
    /// Responses that missed the deadline.
    pub late: u64,
    /// How many of these were explained; `causes` refers to them.
    pub explained: u64,
    /// The response time that each cause took, largest first.
    pub causes: Vec<LedgerRow>,
}

impl LateResponses {
    /// The explained responses of a series, of `late` that missed the deadline.
    pub fn new(probe: String, late: u64, sum: LateSum) -> Self {
        let row = |one: LateTime| LedgerRow {
            probe: probe.clone(),
            kind: Some(one.kind),
            actor: one.actor,
            function: one.function,
            spikes: one.spikes,
            main: Some(one.main),
            total_ns: one.ns as u64,
            max_ns: one.largest_ns as u64,
        };
        let explained = sum.spikes();
        let causes = sum.finish().into_iter().map(row).collect();
        Self { probe, late: late.max(explained), explained, causes }
    }

    /// The late time of each cause in some of them together, largest first.
    pub fn late_time<'r>(all: impl IntoIterator<Item = &'r Self>) -> Vec<LateTime> {
        let one = |row: &LedgerRow| LateTime {
            kind: row.kind.unwrap_or_default(),
            actor: row.actor.clone(),
            function: row.function.clone(),
            ns: row.total_ns as f64,
            largest_ns: row.max_ns as f64,
            spikes: row.spikes,
            main: row.main.unwrap_or(0),
            share: 0.0,
        };
        let mut sum = Vec::new();
        all.into_iter().flat_map(|late| &late.causes).for_each(|row| add(&mut sum, one(row)));
        in_order(sum)
    }
}

/// The name without the numbers of a worker, of a thread among its like or of its CPU: `kworker/1:2H` is `kworker`, `opt cgu.10`
/// is `opt cgu`, `ksoftirqd/3` is `ksoftirqd`. The number of an interrupt stays.
pub fn lasting_name(actor: &str) -> String {
    if let Some((name, number)) = actor.rsplit_once('.')
        && !name.is_empty()
        && !number.is_empty()
        && number.bytes().all(|digit| digit.is_ascii_digit())
    {
        return name.to_owned();
    }
    match actor.split_once('/') {
        Some((name, rest))
            if name != "irq"
                && !name.contains(' ')
                && rest.starts_with(|c: char| c.is_ascii_digit() || c == 'u') =>
        {
            name.to_owned()
        }
        _ => actor.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::CpuId;

    fn spike(latency_ns: u64, causes: &[(CauseKind, &str, Option<f64>)]) -> Spike {
        let cause = |(kind, actor, share): &(CauseKind, &str, Option<f64>)| Cause {
            actor: Some((*actor).to_owned()),
            share: *share,
            ..Cause::new(*kind)
        };
        let mut causes = causes.iter().map(cause);
        let mut spike = Spike::unexplained(CpuId(0), 0, latency_ns);
        spike.cause = causes.next().unwrap_or_default();
        spike.also = causes.collect();
        spike
    }

    #[test]
    fn every_nanosecond_has_an_owner() {
        let spikes = [
            spike(1_000, &[(CauseKind::Thread, "kworker/1:2", Some(0.25))]),
            spike(
                1_000,
                &[(CauseKind::Thread, "kworker/0:0H", Some(0.75)), (CauseKind::Irq, "24 ahci", Some(0.75))],
            ),
            spike(400, &[(CauseKind::Irq, "24 ahci", None)]),
        ];
        let all = late_time(&spikes);
        let named: Vec<(String, u64)> = all.iter().map(|one| (one.name(), one.ns as u64)).collect();
        let expected = [("irq: 24 ahci", 900), ("thread: kworker", 750), ("not explained", 750)];
        assert_eq!(named, expected.map(|(name, ns)| (name.to_owned(), ns)));
        let sum: f64 = all.iter().map(|one| one.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{all:?}");
    }

    #[test]
    fn what_nothing_explains_is_one_row_whatever_ran() {
        let spikes = ["rustc", "cc1"].map(|ran| spike(100, &[(CauseKind::Unattributed, ran, Some(1.0))]));
        let named: Vec<(String, u64)> =
            late_time(&spikes).iter().map(|one| (one.name(), one.ns as u64)).collect();
        assert_eq!(named, [("not explained".to_owned(), 200)]);
    }

    #[test]
    fn very_many_causes_are_added_up_by_kind() {
        let spikes: Vec<Spike> = (0..2 * NAMED_MAX)
            .map(|nth| spike(100, &[(CauseKind::Thread, &format!("worker{nth}"), Some(1.0))]))
            .collect();
        let all = late_time(&spikes);
        assert_eq!((all.len(), all[0].name().as_str()), (NAMED_MAX + 1, WAITED_FOR_CPU));
        assert_eq!(all.iter().map(|one| one.ns as usize).sum::<usize>(), 200 * NAMED_MAX);
    }

    #[test]
    fn late_responses_of_several_cells_are_one_sum() {
        let responses = |actor: &str| {
            let mut sum = LateSum::default();
            for ns in [600, 400] {
                sum.add(&spike(ns, &[(CauseKind::Thread, actor, Some(0.5))]));
            }
            LateResponses::new("task/audio".to_owned(), 7, sum)
        };
        let [one, other] = ["logger", "Xorg"].map(responses);
        assert_eq!((one.late, one.explained), (7, 2));
        let rows: Vec<(String, u64, u64, u64)> =
            one.causes.iter().map(|row| (row.name(), row.spikes, row.total_ns, row.max_ns)).collect();
        assert_eq!(
            rows,
            [("thread: logger".to_owned(), 2, 500, 300), (NOT_EXPLAINED.to_owned(), 2, 500, 300)]
        );
        let together = LateResponses::late_time([&one, &other]);
        let parts: Vec<(String, f64)> = together.iter().map(|it| (it.name(), it.share)).collect();
        assert_eq!(parts[0], (NOT_EXPLAINED.to_owned(), 0.5));
        assert_eq!(together.len(), 3);
    }

    #[test]
    fn interrupts_keep_their_numbers() {
        assert_eq!(lasting_name("irq/31-eth0"), "irq/31-eth0");
        assert_eq!(lasting_name("ksoftirqd/3"), "ksoftirqd");
        assert_eq!(lasting_name("kworker/u8:2"), "kworker");
        assert_eq!(lasting_name("opt cgu.10"), "opt cgu");
    }

    #[test]
    fn kinds_add_up_and_name_their_largest_actor() {
        let row = |actor: &str, function: &str, kind: CauseKind| {
            let mut one = spike(1_000, &[(kind, actor, Some(1.0))]);
            one.cause.function = Some(function.to_owned()).filter(|it| !it.is_empty());
            one
        };
        let spikes = [
            row("rustc", "f", CauseKind::PreemptOff),
            row("rustc", "g", CauseKind::PreemptOff),
            row("rust-lld", "f", CauseKind::PreemptOff),
            row("Xvfb", "h", CauseKind::IrqsOff),
            row("", "", CauseKind::Unattributed),
        ];
        let kinds = late_kinds(&late_time(&spikes));
        let named: Vec<(&str, u64)> =
            kinds.iter().map(|kind| (kind.name.as_str(), (kind.share * 100.0).round() as u64)).collect();
        let expected =
            [("preempt off: rustc and 1 more", 60), ("irqs off: Xvfb in h", 20), (NOT_EXPLAINED, 20)];
        assert_eq!(named, expected);
    }

    #[test]
    fn what_is_not_explained_comes_first_if_it_is_the_largest_part() {
        let own = |part| spike(1_000, &[(CauseKind::OwnWork, "", Some(part))]);
        let names = |part| -> Vec<String> {
            late_kinds(&late_time(&[own(part)])).into_iter().map(|kind| kind.name).collect()
        };
        assert_eq!(names(0.1)[0], NOT_EXPLAINED);
        assert_eq!(names(0.9)[1], NOT_EXPLAINED);
    }

    #[test]
    fn a_wait_for_an_unknown_thread_has_a_name_of_its_own() {
        let mut one = spike(1_000, &[(CauseKind::Thread, "", Some(1.0))]);
        one.cause.actor = None;
        assert_eq!(late_time(&[one])[0].name(), WAITED_FOR_CPU);
    }
}
