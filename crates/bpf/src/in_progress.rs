//! The wake-up that the programs have not counted yet.

use crate::layout::RawCpuState;
use whylate_core::result::HistogramKind;

/// The latency of the wake-up that a program counts when its task leaves the CPU again: like `kinds_of` and `latency_of` in
/// the programs.
pub(crate) fn in_progress(state: &RawCpuState, kind: HistogramKind, sees_switch_end: bool) -> Option<u64> {
    use HistogramKind as Kind;
    let known = |at_ns: u64| (at_ns > 0).then_some(at_ns);
    if kind == Kind::MissedTimerOffsets {
        return state.offset_ns.checked_sub(1);
    }
    let decided_ns = known(state.decided_ns)?;
    let is_shared = state.is_shared != 0;
    let (from_ns, to_ns) = match kind {
        Kind::SwitchOff => (decided_ns, known(state.ended_ns)?),
        Kind::SharedPriority if is_shared => (known(state.waking_ns)?, decided_ns),
        _ if is_shared => return None,
        Kind::Wakeup => (known(state.waking_ns)?, decided_ns),
        Kind::TimerAndWakeup => (known(state.expires_ns)?, decided_ns),
        Kind::TimerWakeupSwitch if sees_switch_end => (known(state.expires_ns)?, known(state.ended_ns)?),
        Kind::TimerWakeupSwitch => (known(state.expires_ns)?, decided_ns),
        Kind::MissedTimerOffsets | Kind::SharedPriority => return None,
    };
    // An extreme would already be counted, and a value read while it is written may be anything.
    let latency_ns = to_ns.checked_sub(from_ns)?;
    (latency_ns <= state.max_ns[kind as usize].into()).then_some(latency_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros as _;

    /// A task that was to be woken at 1,000, was woken at 1,200, was chosen at 1,500 and ran at 1,600.
    fn state() -> RawCpuState {
        RawCpuState {
            expires_ns: 1_000,
            waking_ns: 1_200,
            decided_ns: 1_500,
            ended_ns: 1_600,
            offset_ns: 201,
            max_ns: [10_000; 8],
            ..RawCpuState::new_zeroed()
        }
    }

    fn latencies(state: &RawCpuState, sees_switch_end: bool) -> [Option<u64>; 6] {
        HistogramKind::ALL.map(|kind| in_progress(state, kind, sees_switch_end))
    }

    #[test]
    fn each_kind_has_its_part_of_the_wake_up() {
        let all = [Some(200), Some(300), Some(500), Some(100), Some(600), None];
        assert_eq!(latencies(&state(), true), all);
        let shared = RawCpuState { is_shared: 1, offset_ns: 0, ..state() };
        assert_eq!(latencies(&shared, true), [None, None, None, Some(100), None, Some(300)]);
        let unfinished = RawCpuState { ended_ns: 0, offset_ns: 0, ..state() };
        assert_eq!(latencies(&unfinished, true), [None, Some(300), Some(500), None, None, None]);
        assert_eq!(latencies(&unfinished, false), [None, Some(300), Some(500), None, Some(500), None]);
        let counted = RawCpuState { decided_ns: 0, offset_ns: 0, ..state() };
        assert_eq!(latencies(&counted, true), [None; 6]);
    }

    #[test]
    fn what_is_read_while_it_is_written_is_no_latency() {
        let torn = RawCpuState { expires_ns: 2_000, waking_ns: 2_200, offset_ns: 0, ..state() };
        assert_eq!(latencies(&torn, true), [None, None, None, Some(100), None, None]);
        let longer_than_the_longest = RawCpuState { max_ns: [250; 8], offset_ns: 0, ..state() };
        assert_eq!(latencies(&longer_than_the_longest, true), [None, None, None, Some(100), None, None]);
    }
}
