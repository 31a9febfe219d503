//! The triggers of each probe, with why they came.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use whylate_core::SeriesName;
use whylate_core::order::InOrder;
use whylate_core::result::{HourResult, RepeatResult, TriggerMoment, TriggerRecord, TriggerResult};

#[derive(Default)]
pub(super) struct Triggers {
    /// By probe, in the order of their arrival.
    of_probe: BTreeMap<String, Vec<TriggerResult>>,
    /// How often they came in each repeat.
    of_repeat: BTreeMap<(String, u32), u64>,
}

impl Triggers {
    fn of(&mut self, probe: &str, trigger: &str) -> &mut TriggerResult {
        let all = self.of_probe.entry(probe.to_owned()).or_default();
        let nth = all.iter().position(|it| it.record.trigger == trigger).unwrap_or_else(|| {
            let record = TriggerRecord { trigger: trigger.to_owned(), ..TriggerRecord::default() };
            all.push(TriggerResult { record, ..TriggerResult::default() });
            all.len() - 1
        });
        &mut all[nth]
    }

    pub(super) fn add(&mut self, probe: &str, repeat: u32, record: &TriggerRecord) {
        *self.of_repeat.entry((probe.to_owned(), repeat)).or_default() += record.count;
        self.of(probe, &record.trigger).record.add(record);
    }

    pub(super) fn add_moment(&mut self, probe: &str, moment: TriggerMoment) {
        for other in &moment.others {
            self.of(probe, other).blame(&moment);
        }
        let result = self.of(probe, &moment.trigger);
        result.blame(&moment);
        if result.moments.len() >= TriggerResult::MOMENTS_KEPT {
            result.moments.remove(0);
        }
        result.moments.push(moment);
    }

    /// Gives the series of a repeat the rate of their probe's triggers.
    pub(super) fn rate(&self, repeat: &mut RepeatResult) {
        for one in &mut repeat.probes {
            let probe = SeriesName::of(&one.probe).probe.to_owned();
            let count = self.of_repeat.get(&(probe, repeat.repeat)).filter(|_| one.measured_ns > 0);
            one.triggers_per_h = count.map(|count| per_hour(*count, one.measured_ns));
        }
    }

    /// Those of a probe, which measured for that long.
    pub(super) fn take(&mut self, probe: &str, measured_ns: u64) -> Vec<TriggerResult> {
        let mut all = self.of_probe.remove(probe).unwrap_or_default();
        for one in &mut all {
            one.per_hour = per_hour(one.record.count, measured_ns);
            one.suspects.order_by_key(|it| Reverse((it.moments, it.longest_ns)));
        }
        all
    }
}

fn per_hour(count: u64, measured_ns: u64) -> f64 {
    if measured_ns == 0 { 0.0 } else { count as f64 * HourResult::LENGTH_NS as f64 / measured_ns as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::RepeatProbe;

    #[test]
    fn a_trigger_that_shares_a_moment_has_the_same_suspects() {
        let mut triggers = Triggers::default();
        let record = |trigger: &str, count| TriggerRecord {
            trigger: trigger.to_owned(),
            count,
            ..TriggerRecord::default()
        };
        triggers.add("task", 1, &record("output:Late", 3));
        triggers.add("task", 1, &record("socket", 1));
        triggers.add("task", 2, &record("output:Late", 2));
        let probe = |name: &str| RepeatProbe {
            probe: name.to_owned(),
            measured_ns: HourResult::LENGTH_NS / 4,
            ..RepeatProbe::default()
        };
        let probes = vec![probe("task/control"), probe("timer")];
        let mut repeat = RepeatResult { repeat: 1, probes, ..RepeatResult::default() };
        triggers.rate(&mut repeat);
        let rates: Vec<Option<f64>> = repeat.probes.iter().map(|it| it.triggers_per_h).collect();
        assert_eq!(rates, [Some(16.0), None]);
        let moment = |at_ns, others: &[&str]| TriggerMoment {
            at_ns,
            trigger: "output:Late".to_owned(),
            others: others.iter().map(|it| (*it).to_owned()).collect(),
            ..TriggerMoment::default()
        };
        triggers.add_moment("task", moment(5, &["socket"]));
        (0..TriggerResult::MOMENTS_KEPT as u64)
            .for_each(|nth| triggers.add_moment("task", moment(10 + nth, &[])));
        let found = triggers.take("task", HourResult::LENGTH_NS / 2);
        let figures: Vec<_> = found
            .iter()
            .map(|it| (it.record.count, it.per_hour, it.suspects[0].moments, it.moments.len()))
            .collect();
        assert_eq!(figures, [(5, 10.0, 101, 100), (1, 2.0, 1, 0)]);
        assert_eq!(found[0].moments[0].at_ns, 10, "the newest are kept");
        assert!(triggers.take("task", 0).is_empty());
    }
}
