//! Spikes of several CPUs at the same moment: one event, whose cause is not on one CPU alone (bus, firmware,
//! graphics, hypervisor), as opposed to spikes of one CPU.

use std::collections::BTreeSet;
use whylate_core::order::InOrder;
use whylate_core::result::Spike;

/// Windows this close to each other count as the same moment. Clocks of CPUs agree better, but a task sees the end of
/// a stall only when it runs again.
const NEAR_NS: u64 = 5_000;

/// Numbers events: spikes of more than one CPU whose windows overlap get a common number, from 1 in the order of
/// time. A spike that no other CPU had gets none.
///
/// A spike's window is [`at_ns - latency_ns`, `at_ns`]. Windows that overlap through a third one are one event.
pub fn number_events(spikes: &mut [Spike]) {
    let begin = |spike: &Spike| spike.at_ns.saturating_sub(spike.latency_ns);
    let mut order: Vec<usize> = (0..spikes.len()).collect();
    order.order_by_key(|index| (begin(&spikes[*index]), spikes[*index].at_ns));
    let mut number = 0;
    let mut together: Vec<usize> = Vec::new();
    let mut end_ns = 0;
    for index in order {
        if !together.is_empty() && begin(&spikes[index]) > end_ns + NEAR_NS {
            close(spikes, &mut together, &mut number);
            end_ns = 0;
        }
        end_ns = end_ns.max(spikes[index].at_ns);
        together.push(index);
    }
    close(spikes, &mut together, &mut number);
}

/// Ends a group: it is an event when it has more than one CPU.
fn close(spikes: &mut [Spike], together: &mut Vec<usize>, number: &mut u64) {
    let cpus: BTreeSet<_> = together.iter().map(|index| spikes[*index].cpu).collect();
    let is_event = cpus.len() > 1;
    *number += u64::from(is_event);
    for index in together.drain(..) {
        spikes[index].event = is_event.then_some(*number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use whylate_core::CpuId;

    fn spike(cpu: u32, at_ns: u64, latency_ns: u64) -> Spike {
        Spike::unexplained(CpuId(cpu), at_ns, latency_ns)
    }

    fn numbered(spikes: &[(u32, u64, u64)]) -> Vec<Option<u64>> {
        let mut spikes: Vec<Spike> = spikes.iter().map(|one| spike(one.0, one.1, one.2)).collect();
        number_events(&mut spikes);
        spikes.iter().map(|spike| spike.event).collect()
    }

    #[test]
    fn overlapping_spikes_of_different_cpus_are_one_event() {
        let events = numbered(&[(1, 5_000_000, 50_000), (0, 1_000_000, 100_000), (1, 1_020_000, 90_000)]);
        assert_eq!(events, [None, Some(1), Some(1)]);
    }

    #[test]
    fn spikes_of_one_cpu_are_not_events() {
        assert_eq!(numbered(&[(1, 1_000_000, 9_000), (1, 1_001_000, 9_000)]), [None, None]);
    }

    #[test]
    fn events_are_numbered_in_the_order_of_time() {
        let events = numbered(&[
            (0, 90_000_000, 9_000),
            (1, 90_001_000, 9_000),
            (0, 1_000_000, 9_000),
            (1, 1_001_000, 9_000),
        ]);
        assert_eq!(events, [Some(2), Some(2), Some(1), Some(1)]);
        assert_eq!(numbered(&[]), []);
    }

    proptest! {
        #[test]
        fn the_order_of_the_spikes_does_not_matter(
            spikes in prop::collection::vec((0u32..3, 0u64..400_000, 1u64..20_000), 0..12),
        ) {
            let mut backwards = spikes.clone();
            backwards.reverse();
            let mut other = numbered(&backwards);
            other.reverse();
            prop_assert_eq!(numbered(&spikes), other);
        }
    }
}
