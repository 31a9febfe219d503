//! Values of flags: durations and counts, with the units of cyclictest for a bare number.

use whylate_core::units::UnitError;
use whylate_core::{Nanos, Plan};

pub(super) fn seconds(text: &str) -> Result<Nanos, UnitError> {
    Nanos::parse_with_default(text, "s")
}

/// The requested duration, where 0 means until Ctrl-C.
pub(crate) fn or_endless(duration: Nanos) -> Nanos {
    if duration.0 == 0 { Plan::ENDLESS } else { duration }
}

/// A limit for something that takes minutes.
pub(super) fn minutes(text: &str) -> Result<Nanos, UnitError> {
    text.parse().map_err(|error| match error {
        UnitError::MissingUnit { text, .. } => UnitError::MissingUnit { text, example: "30m" },
        UnitError::NotANumber { text, what, .. } => UnitError::NotANumber { text, what, example: "30m" },
        other => other,
    })
}

/// A whole number, kept as text: the plan checks the value of its keys.
pub(super) fn whole_number(text: &str) -> Result<String, String> {
    if text.parse::<i64>().is_ok() {
        return Ok(text.to_owned());
    }
    // `25%` and `25.0` are nearly whole numbers: the example uses their digits.
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    let example = if digits.is_empty() { "10" } else { &digits };
    Err(format!("`{text}` is not a whole number; write for example `{example}`"))
}

pub(super) fn microseconds(text: &str) -> Result<Nanos, UnitError> {
    Nanos::parse_with_default(text, "us")
}

pub(super) fn count(text: &str) -> Result<u64, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "give a whole number above 0".to_owned())
}
