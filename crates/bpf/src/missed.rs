//! Events at which a program could not run.

use crate::snapshot::ProgramCost;
use std::collections::BTreeMap;
use std::fmt;

/// Events that matter only to a task that waits for a timer.
const OF_TIMERS: [&str; 3] = ["hrtimer_start", "hrtimer_expire_entry", "hrtimer_expire_exit"];

/// How often programs did not run at their events because they were already running on that CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Only events that were missed.
    by_event: BTreeMap<String, u64>,
}

impl Missed {
    /// From the kernel's counts.
    pub(crate) fn of(costs: Vec<ProgramCost>) -> Self {
        let missed = costs.into_iter().filter(|cost| cost.missed > 0);
        Self { by_event: missed.map(|cost| (cost.event, cost.missed)).collect() }
    }

    /// Those since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let fresh = |(event, count): (&String, &u64)| {
            let count = count.saturating_sub(before.by_event.get(event).copied().unwrap_or(0));
            (count > 0).then(|| (event.clone(), count))
        };
        Self { by_event: self.by_event.iter().filter_map(fresh).collect() }
    }

    /// Those that may be missing in a window; a loop that never sleeps waits for no timer.
    pub fn in_window(&self, is_timer: bool) -> Self {
        let counts = |event: &str| is_timer || !OF_TIMERS.contains(&event);
        let own = self.by_event.iter().filter(|(event, _)| counts(event.as_str()));
        Self { by_event: own.map(|(event, count)| (event.clone(), *count)).collect() }
    }

    /// The number of all.
    pub fn count(&self) -> u64 {
        self.by_event.values().sum()
    }

    pub fn add(&mut self, other: &Self) {
        for (event, count) in &other.by_event {
            *self.by_event.entry(event.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Missed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events: Vec<String> =
            self.by_event.iter().map(|(event, count)| format!("{count} at {event}")).collect();
        formatter.write_str(&events.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(counts: &[(&str, u64)]) -> Missed {
        let cost = |(event, missed): &(&str, u64)| ProgramCost {
            event: (*event).to_owned(),
            missed: *missed,
            ..Default::default()
        };
        Missed::of(counts.iter().map(cost).collect())
    }

    #[test]
    fn only_what_is_new_counts() {
        let before = missed(&[("cpu_idle", 2), ("sched_switch", 0)]);
        let now = missed(&[("cpu_idle", 2), ("sched_switch", 1), ("contention_begin", 4)]);
        let fresh = now.since(&before);
        assert_eq!(
            (fresh.count(), fresh.to_string()),
            (5, "4 at contention_begin, 1 at sched_switch".to_owned())
        );
        assert_eq!(now.since(&now), Missed::default());
    }

    #[test]
    fn a_timer_that_was_missed_hides_nothing_from_a_loop() {
        let both = missed(&[("hrtimer_expire_entry", 3), ("irq_handler_entry", 1)]);
        assert_eq!((both.in_window(true).count(), both.in_window(false).count()), (4, 1));
        assert_eq!(missed(&[("hrtimer_expire_exit", 1)]).in_window(false), Missed::default());
    }

    #[test]
    fn counts_of_several_looks_add_up() {
        let mut all = missed(&[("cpu_idle", 2)]);
        all.add(&missed(&[("cpu_idle", 1), ("nmi_handler", 1)]));
        assert_eq!(all, missed(&[("cpu_idle", 3), ("nmi_handler", 1)]));
    }
}
