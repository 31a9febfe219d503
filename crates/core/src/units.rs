//! Units as types: a value says what it is, and mixing two units does not compile.
//!
//! Texts carry their unit (`200us`, `3MiB`): a bare number is refused, except where a command-line flag takes
//! over the unit that another tool gave it (see [`Nanos::parse_with_default`]).

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;

/// A text that is not a quantity of the wanted unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// A number without a unit.
    #[error("`{text}` has no unit; write for example `{example}`")]
    MissingUnit {
        /// The text.
        text: String,
        /// A right one.
        example: &'static str,
    },
    /// A unit that this quantity does not have.
    #[error("`{text}`: unknown unit `{unit}`; the units are {known}")]
    UnknownUnit {
        /// The text.
        text: String,
        /// Its unit.
        unit: String,
        /// The units there are.
        known: &'static str,
    },
    /// Something that does not begin with a number.
    #[error("`{text}` is not {what}; write for example `{example}`")]
    NotANumber {
        /// The text.
        text: String,
        /// What was wanted.
        what: &'static str,
        /// A right one.
        example: &'static str,
    },
    /// A number that does not fit.
    #[error("`{text}` is too large")]
    TooLarge {
        /// The text.
        text: String,
    },
}

macro_rules! integer_unit {
    ($(#[$doc:meta])* $name:ident($inner:ty), $suffix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $suffix), self.0)
            }
        }
    };
}

integer_unit!(/// A signed difference of two moments.
    NanosDelta(i64), "ns");
integer_unit!(/// Ticks of the CPU's time-stamp counter (x86 TSC, arm64 CNTVCT).
    Cycles(u64), " cycles");
integer_unit!(/// A frequency.
    Hz(u64), "Hz");
integer_unit!(/// A moment of CLOCK_MONOTONIC, in nanoseconds.
    MonoTime(u64), "ns");
integer_unit!(/// A moment of the time-stamp counter, in cycles.
    TscTime(u64), " cycles");

/// A duration in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

const DURATION_UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

impl Nanos {
    /// From whole microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }
    /// From whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }
    /// From whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }
    /// As seconds, for rates.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Parses `200us`, `1.5s`, `5m`, `1h30m`; a bare number has the unit `default_unit`.
    ///
    /// # Errors
    /// [`UnitError`] when the text is not a duration.
    pub fn parse_with_default(text: &str, default_unit: &str) -> Result<Self, UnitError> {
        match text.parse() {
            Err(UnitError::MissingUnit { .. }) => format!("{}{default_unit}", text.trim()).parse(),
            other => other,
        }
    }
}

impl FromStr for Nanos {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const EXAMPLE: &str = "200us";
        let trimmed = text.trim();
        let not_a_number =
            || UnitError::NotANumber { text: text.to_owned(), what: "a duration", example: EXAMPLE };
        let mut rest = trimmed;
        let mut total = 0u128;
        if rest.is_empty() {
            return Err(not_a_number());
        }
        while !rest.is_empty() {
            let (number, after) = split_number(rest).ok_or_else(not_a_number)?;
            let unit_len = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
            let (unit, remaining) = after.split_at(unit_len);
            let unit = unit.trim();
            if unit.is_empty() {
                return Err(UnitError::MissingUnit { text: text.to_owned(), example: EXAMPLE });
            }
            let factor = DURATION_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
            let factor = factor.ok_or_else(|| UnitError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.to_owned(),
                known: "ns, us, ms, s, m, h, d",
            })?;
            total += scale(number, factor).ok_or_else(|| UnitError::TooLarge { text: text.to_owned() })?;
            rest = remaining.trim_start();
        }
        u64::try_from(total).map(Self).map_err(|_| UnitError::TooLarge { text: text.to_owned() })
    }
}

impl fmt::Display for Nanos {
    /// The largest unit that keeps the value whole: `200us`, `1500ms`, `5m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("d", 86_400_000_000_000), ("h", 3_600_000_000_000), ("m", 60_000_000_000)];
        let small = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
        for (unit, factor) in units.into_iter().chain(small) {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "0s")
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
];

fn parse_size(text: &str, units_text: &str) -> Result<Bytes, UnitError> {
    const EXAMPLE: &str = "3MiB";
    let (number, unit) = split_number(units_text.trim()).ok_or_else(|| UnitError::NotANumber {
        text: text.to_owned(),
        what: "a size",
        example: EXAMPLE,
    })?;
    let unit = unit.trim();
    if unit.is_empty() {
        return Err(UnitError::MissingUnit { text: text.to_owned(), example: EXAMPLE });
    }
    let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let factor = factor.ok_or_else(|| UnitError::UnknownUnit {
        text: text.to_owned(),
        unit: unit.to_owned(),
        known: "B, KiB, MiB, GiB, kB, MB, GB",
    })?;
    let too_large = || UnitError::TooLarge { text: text.to_owned() };
    let bytes = scale(number, factor).ok_or_else(too_large)?;
    u64::try_from(bytes).map(Bytes).map_err(|_| too_large())
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_size(text, text)
    }
}

impl fmt::Display for Bytes {
    /// `3MiB`, `1.5GiB`, `3110400B`: binary units when at most one decimal is needed, else bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= factor && (self.0 % factor).is_multiple_of(factor / 2) {
                let whole = self.0 / factor;
                return if self.0.is_multiple_of(factor) {
                    write!(f, "{whole}{unit}")
                } else {
                    write!(f, "{whole}.5{unit}")
                };
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// A rate of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct BytesPerSec(pub f64);

impl FromStr for BytesPerSec {
    type Err = UnitError;
    /// `500MB/s`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let Some(size) = text.trim().strip_suffix("/s") else {
            return Err(UnitError::MissingUnit { text: text.to_owned(), example: "500MB/s" });
        };
        parse_size(text, size).map(|bytes| Self(bytes.0 as f64))
    }
}

impl fmt::Display for BytesPerSec {
    /// Decimal units, as bandwidths are quoted: `12.3 GB/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            v if v >= 1e9 => (v / 1e9, "GB/s"),
            v if v >= 1e6 => (v / 1e6, "MB/s"),
            v if v >= 1e3 => (v / 1e3, "kB/s"),
            v => (v, "B/s"),
        };
        write!(f, "{value:.1} {unit}")
    }
}

/// The kernel's number of a logical CPU.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct CpuId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Splits `1.5ms` into its number and the rest; `None` unless a digit comes first.
pub(crate) fn split_number(text: &str) -> Option<(&str, &str)> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    (number.matches('.').count() <= 1 && !number.ends_with('.')).then_some((number, rest))
}

/// `number * factor`, exact for whole numbers, rounded down after that; `None` when it does not fit.
pub(crate) fn scale(number: &str, factor: u64) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().ok()?;
    let mut total = u128::from(whole).checked_mul(u128::from(factor))?;
    // Eighteen digits are more precise than any unit, and cannot overflow.
    let fraction = &fraction[..fraction.len().min(18)];
    if !fraction.is_empty() {
        let digits: u128 = fraction.parse().ok()?;
        total += u128::from(factor) * digits / 10u128.pow(fraction.len() as u32);
    }
    Some(total)
}

/// Reads and writes a type as its text, in plans and in JSON.
macro_rules! as_text {
    ($name:ident, $example:literal, $description:literal) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = crate::units::text_or_number(deserializer, $example)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string", "description": $description, "examples": [$example]
                })
            }
        }
    };
}
pub(crate) use as_text;

as_text!(Nanos, "200us", "A duration with its unit: ns, us, ms, s, m, h, d");
as_text!(Bytes, "3MiB", "A size with its unit: B, KiB, MiB, GiB, kB, MB, GB");

/// Reads a text; a bare number is turned into a text too, so that the error speaks of the missing unit.
pub(crate) fn text_or_number<'de, D: Deserializer<'de>>(
    deserializer: D,
    example: &'static str,
) -> Result<String, D::Error> {
    struct TextOrNumber(&'static str);
    impl serde::de::Visitor<'_> for TextOrNumber {
        type Value = String;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a text such as \"{}\"", self.0)
        }
        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
        fn visit_i64<E>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }
        fn visit_u64<E>(self, number: u64) -> Result<String, E> {
            Ok(number.to_string())
        }
        fn visit_f64<E>(self, number: f64) -> Result<String, E> {
            Ok(number.to_string())
        }
    }
    deserializer.deserialize_any(TextOrNumber(example))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use whylate_testing::says;

    #[test]
    fn durations_carry_their_unit() {
        for (text, nanos) in [
            ("200us", 200_000),
            ("1.5s", 1_500_000_000),
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("0s", 0),
            ("7ns", 7),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn wrong_durations_say_what_would_be_right() {
        let message = |text: &str| text.parse::<Nanos>().unwrap_err().to_string();
        assert!(says("has-no-unit-write", message("200")));
        assert!(says("parsecs-unknown-unit-parsecs", message("5 parsecs")));
        assert!(says("soon-not-duration-write", message("soon")));
        assert!(says("us-not-duration-write", message("-5us")));
        assert_eq!(message("99999999999999999d"), "`99999999999999999d` is too large");
    }

    #[test]
    fn flags_of_other_tools_keep_their_unit() {
        assert_eq!(Nanos::parse_with_default("200", "us"), Ok(Nanos(200_000)));
        assert_eq!(Nanos::parse_with_default("5m", "s"), Ok(Nanos::from_secs(300)));
    }

    #[test]
    fn sizes_and_rates() {
        assert_eq!("3MiB".parse(), Ok(Bytes(3 << 20)));
        assert_eq!("1.5GiB".parse(), Ok(Bytes(3 << 29)));
        assert_eq!("3 MB".parse(), Ok(Bytes(3_000_000)));
        assert_eq!("500MB/s".parse(), Ok(BytesPerSec(5e8)));
        assert!("500MB".parse::<BytesPerSec>().unwrap_err().to_string().contains("500MB/s"));
        assert!("3 apples".parse::<Bytes>().unwrap_err().to_string().contains("unknown unit `apples`"));
        assert_eq!(BytesPerSec(12.34e9).to_string(), "12.3 GB/s");
    }

    proptest! {
        #[test]
        fn printed_durations_read_back(nanos in any::<u64>()) {
            prop_assert_eq!(Nanos(nanos).to_string().parse(), Ok(Nanos(nanos)));
        }

        #[test]
        fn printed_sizes_read_back(bytes in 0u64..1 << 50) {
            prop_assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Nanos>();
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<BytesPerSec>();
        }
    }
}
