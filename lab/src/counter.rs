//! How fast the guests' time-stamp counter ticks if it is the host's own.
//!
//! A kernel finds that out at boot, by comparing the counter with an emulated timer for some milliseconds. If the host
//! is busy at that moment, the guest's clock runs at a wrong rate ever after; so the guest gets the rate.

use std::sync::OnceLock;
use whylate_core::Nanos;
use whylate_sys::counter::CounterKind;

/// How long the counter is compared with the host's clock.
const DURATION: Nanos = Nanos::from_millis(50);
/// Above this relative error, it is better if the guest measures the rate itself.
const ERROR_MAX: f64 = 1e-3;

/// Frequency of the host's time-stamp counter in kHz, which is what QEMU shows to a guest on a host of the same
/// architecture; `None` if it is not constant.
pub(crate) fn frequency_khz() -> Option<u64> {
    static FREQUENCY_KHZ: OnceLock<Option<u64>> = OnceLock::new();
    *FREQUENCY_KHZ.get_or_init(|| {
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        if !is_constant(&processor) {
            return None;
        }
        let calibration = CounterKind::Hardware.calibrate(DURATION);
        (calibration.error <= ERROR_MAX).then_some((calibration.frequency.0 + 500) / 1000)
    })
}

/// Whether the flags of `/proc/cpuinfo` promise a counter of constant rate.
fn is_constant(processor: &str) -> bool {
    let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    has("constant_tsc") && has("nonstop_tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_constant_counter_is_measured() {
        assert!(is_constant("processor : 0\nflags\t\t: fpu constant_tsc nonstop_tsc\n"));
        assert!(!is_constant("flags : fpu constant_tsc\n"));
        assert!(!is_constant("Features : fp asimd\n"));
    }

    #[test]
    fn the_frequency_is_one_of_a_processor() {
        // A PC's counter ticks between 100 MHz and 10 GHz.
        assert!(frequency_khz().is_none_or(|khz| (100_000..10_000_000).contains(&khz)));
    }
}
