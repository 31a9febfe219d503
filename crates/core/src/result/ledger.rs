//! The ledger of late time: what each cause took in all spikes above the threshold.

use super::{CauseKind, LateTime, lasting_name};
use crate::order::InOrder;
use crate::record::SourceRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The most causes of one series that have rows of their own.
const ROWS_MAX: usize = 64;

/// The late time that one cause took from one series on all CPUs. The rows of a series add up to the late time of its
/// spikes; time without a known cause is `unattributed`.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerRow {
    /// The probe; if it has several series, `PROBE/SERIES`.
    pub probe: String,
    /// The kind of the cause; absent for the row of all other causes.
    pub kind: Option<CauseKind>,
    /// Who caused the delay, without numbers that change from boot to boot.
    pub actor: Option<String>,
    /// The kernel function, if it is known.
    pub function: Option<String>,
    /// Spikes to which the cause contributed.
    pub spikes: u64,
    /// Spikes of which it was the main cause; only in `late_responses`.
    pub main: Option<u64>,
    /// The late time that the cause took.
    pub total_ns: u64,
    /// The most that the cause took of one spike.
    pub max_ns: u64,
}

impl LedgerRow {
    /// Kind, actor and function: `irqs off: irq/45-nvkm in unarm`.
    pub fn name(&self) -> String {
        let Some(kind) = self.kind else { return OTHERS.to_owned() };
        let (actor, function) = (self.actor.clone(), self.function.clone());
        LateTime { kind, actor, function, ns: 0.0, largest_ns: 0.0, spikes: 0, main: 0, share: 0.0 }.name()
    }

    /// Adds a row of the same cause.
    pub fn add(&mut self, other: &Self) {
        self.main = self.main.zip(other.main).map(|(one, other)| one.saturating_add(other));
        self.spikes = self.spikes.saturating_add(other.spikes);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// The name of the row for the causes that have no row of their own.
pub const OTHERS: &str = "others";

type Who = (String, CauseKind, Option<String>, Option<String>);

/// A ledger that is still being added up.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    rows: BTreeMap<Who, LedgerRow>,
}

impl Ledger {
    pub fn add(&mut self, probe: &str, record: &SourceRecord) {
        let SourceRecord { kind, actor, function, gaps, total_ns, max_ns, .. } = record;
        let known = *kind != CauseKind::Unattributed;
        let actor = actor.as_deref().filter(|_| known).map(lasting_name);
        let function = function.clone().filter(|_| known);
        let row = LedgerRow {
            probe: probe.to_owned(),
            kind: Some(*kind),
            actor: actor.clone(),
            function: function.clone(),
            ..LedgerRow::default()
        };
        let taken = LedgerRow { spikes: *gaps, total_ns: *total_ns, max_ns: *max_ns, ..LedgerRow::default() };
        self.rows.entry((probe.to_owned(), *kind, actor, function)).or_insert(row).add(&taken);
    }

    /// The sum of ledgers.
    pub fn sum<'r>(rows: impl Iterator<Item = &'r LedgerRow>) -> Vec<LedgerRow> {
        let mut ledger = Self::default();
        let mut others: BTreeMap<&str, LedgerRow> = BTreeMap::new();
        for row in rows {
            let LedgerRow { probe, kind, actor, function, .. } = row;
            let Some(kind) = kind else {
                let new = || LedgerRow { probe: probe.clone(), ..LedgerRow::default() };
                others.entry(probe).or_insert_with(new).add(row);
                continue;
            };
            let who = (probe.clone(), *kind, actor.clone(), function.clone());
            match ledger.rows.get_mut(&who) {
                Some(known) => known.add(row),
                None => drop(ledger.rows.insert(who, row.clone())),
            }
        }
        let mut all = ledger.finish();
        for (probe, rare) in others {
            match all.iter_mut().find(|row| row.kind.is_none() && row.probe == probe) {
                Some(known) => known.add(&rare),
                None => all.push(rare),
            }
        }
        all
    }

    /// The rows by probe, the most late time first; rare causes of a probe are one row.
    pub fn finish(self) -> Vec<LedgerRow> {
        let mut rows: Vec<LedgerRow> = self.rows.into_values().collect();
        rows.order_by(|a, b| (&a.probe, Reverse(a.total_ns)).cmp(&(&b.probe, Reverse(b.total_ns))));
        let of_probe = |rows: &[LedgerRow]| {
            let (own, rare) = rows.split_at(rows.len().min(ROWS_MAX));
            let mut own = own.to_vec();
            if let Some(first) = rare.first() {
                let mut others = LedgerRow { probe: first.probe.clone(), ..LedgerRow::default() };
                rare.iter().for_each(|row| others.add(row));
                own.push(others);
            }
            own
        };
        rows.chunk_by(|a, b| a.probe == b.probe).flat_map(of_probe).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(actor: &str, total_ns: u64) -> SourceRecord {
        let actor = Some(actor.to_owned());
        SourceRecord {
            kind: CauseKind::Thread,
            actor,
            gaps: 1,
            total_ns,
            max_ns: total_ns,
            ..SourceRecord::default()
        }
    }

    #[test]
    fn workers_of_all_cpus_are_one_row_and_rare_causes_too() {
        let mut ledger = Ledger::default();
        ledger.add("timer", &record("kworker/0:1", 1_000_000));
        ledger.add("timer", &record("kworker/1:2H", 500_000));
        (0..100).for_each(|nth| ledger.add("timer", &record(&format!("thread-{nth}"), 10)));
        let rows = ledger.finish();
        assert_eq!(
            (rows[0].name().as_str(), rows[0].spikes, rows[0].max_ns),
            ("thread: kworker", 2, 1_000_000)
        );
        assert_eq!(rows.len(), ROWS_MAX + 1);
        let others = rows.last().unwrap();
        assert_eq!((others.name().as_str(), others.spikes, others.total_ns), (OTHERS, 37, 370));
        assert_eq!(rows.iter().map(|row| row.total_ns).sum::<u64>(), 1_501_000);
    }
}
