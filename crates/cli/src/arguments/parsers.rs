//! Values of flags: durations and counts, with the units of cyclictest where a number is bare.

use whylate_core::Nanos;
use whylate_core::units::UnitError;

pub(super) fn seconds(text: &str) -> Result<Nanos, UnitError> {
    Nanos::parse_with_default(text, "s")
}

/// The duration that was asked for, where 0 is until Ctrl-C.
pub(crate) fn or_endless(duration: Nanos) -> Nanos {
    // Longer than any uptime, short enough that sums do not overflow.
    const ENDLESS: Nanos = Nanos::from_secs(400 * 86_400);
    if duration.0 == 0 { ENDLESS } else { duration }
}

pub(super) fn microseconds(text: &str) -> Result<Nanos, UnitError> {
    Nanos::parse_with_default(text, "us")
}

pub(super) fn count(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "give a whole number above 0".to_owned())
}
