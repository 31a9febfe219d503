//! How much of a load.

use crate::units::{BytesPerSec, UnitError, as_text};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pace {
    #[default]
    Full,
    /// That many bytes per second, over all CPUs.
    Rate(BytesPerSec),
    /// That share of time, in (0, 1].
    DutyCycle(f64),
}

impl FromStr for Pace {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const WHAT: &str = "a rate";
        const EXAMPLE: &str = "500MB/s` or `25%";
        let wrong = || UnitError::NotANumber { text: text.to_owned(), what: WHAT, example: EXAMPLE };
        let trimmed = text.trim();
        if trimmed == "full" {
            return Ok(Self::Full);
        }
        if let Some(percent) = trimmed.strip_suffix('%') {
            return match percent.trim().parse::<f64>() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::DutyCycle(percent / 100.0)),
                _ => Err(wrong()),
            };
        }
        match trimmed.parse() {
            Ok(BytesPerSec(rate)) if rate > 0.0 => Ok(Self::Rate(BytesPerSec(rate))),
            Ok(_) => Err(wrong()),
            Err(UnitError::MissingUnit { text, .. }) => {
                Err(UnitError::MissingUnit { text, example: EXAMPLE })
            }
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Rate(BytesPerSec(rate)) => write!(f, "{rate}B/s"),
            Self::DutyCycle(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

as_text!(Pace, "500MB/s", "A rate over all CPUs (500MB/s), a share of time (25%), or full");

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum EventPace {
    #[default]
    Full,
    /// That many per second, over all CPUs.
    PerSecond(f64),
    /// That share of time, in (0, 1].
    DutyCycle(f64),
}

impl EventPace {
    /// The same pace with an event in the place of a byte.
    pub fn as_pace(self) -> Pace {
        match self {
            Self::Full => Pace::Full,
            Self::PerSecond(rate) => Pace::Rate(BytesPerSec(rate)),
            Self::DutyCycle(share) => Pace::DutyCycle(share),
        }
    }
}

impl FromStr for EventPace {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::NotANumber {
            text: text.to_owned(),
            what: "a rate of events",
            example: "1000/s` or `25%",
        };
        let trimmed = text.trim();
        if let Some(number) = trimmed.strip_suffix("/s") {
            return match number.trim().parse::<f64>() {
                Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Self::PerSecond(rate)),
                _ => Err(wrong()),
            };
        }
        if trimmed.parse::<f64>().is_ok() {
            return Err(UnitError::MissingUnit { text: text.to_owned(), example: "1000/s` or `25%" });
        }
        match trimmed.parse() {
            Ok(Pace::Full) => Ok(Self::Full),
            Ok(Pace::DutyCycle(share)) => Ok(Self::DutyCycle(share)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for EventPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => write!(f, "{rate}/s"),
            other => other.as_pace().fmt(f),
        }
    }
}

as_text!(EventPace, "1000/s", "A rate over all CPUs (1000/s), a share of time (25%), or full");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_events_have_a_unit() {
        for text in ["1000/s", "0.5/s", "25%", "full"] {
            assert_eq!(text.parse::<EventPace>().unwrap().to_string(), text);
        }
        for text in ["1000", "0/s", "-1/s", "inf/s", "500MB/s", "0%", "fast"] {
            assert!(text.parse::<EventPace>().is_err(), "{text}");
        }
    }
}
