//! Conditions of triggers that are calls: `arg1>1000`, `return<0`, `took>1ms`.

use crate::units::Nanos;
use std::str::FromStr;

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An argument, counted from 1.
    Argument(u8),
    /// What a function returns.
    Return,
    /// How long the call took, in nanoseconds.
    Took,
}

/// How it is compared, in the order of the kernel programs' numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
    Different,
}

/// When a call is a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub operand: Operand,
    pub comparison: Comparison,
    pub value: i64,
}

/// Longer signs come first.
const SIGNS: [(&str, Comparison); 7] = [
    (">=", Comparison::AtLeast),
    ("<=", Comparison::AtMost),
    ("!=", Comparison::Different),
    ("==", Comparison::Equal),
    (">", Comparison::Above),
    ("<", Comparison::Below),
    ("=", Comparison::Equal),
];
/// Arguments that functions have in registers.
const ARGUMENTS_MAX: u8 = 6;

impl Condition {
    /// Whether a part of a trigger is meant as a condition.
    pub(super) fn is_meant(text: &str) -> bool {
        let word = text.split(['<', '>', '=', '!']).next().unwrap_or_default();
        word.len() < text.len() && (word.starts_with("arg") || word == "return" || word == "took")
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}` is not a condition: {why}");
        let at = text.find(['<', '>', '=', '!']).ok_or_else(|| wrong("it has no comparison"))?;
        let (word, rest) = text.split_at(at);
        let sign =
            SIGNS.into_iter().find_map(|(sign, comparison)| Some((rest.strip_prefix(sign)?, comparison)));
        let (value, comparison) = sign.ok_or_else(|| wrong("choose from > >= < <= = !="))?;
        let operand = match word {
            "return" => Operand::Return,
            "took" => Operand::Took,
            _ => {
                let number = word.strip_prefix("arg").and_then(|number| number.parse().ok());
                let number = number.filter(|number| (1..=ARGUMENTS_MAX).contains(number));
                Operand::Argument(number.ok_or_else(|| wrong("choose from arg1 to arg6, return and took"))?)
            }
        };
        let value = match operand {
            Operand::Took => {
                let time: Nanos = value.parse().map_err(|_| wrong("took needs a time such as 1ms"))?;
                i64::try_from(time.0).unwrap_or(i64::MAX)
            }
            Operand::Argument(_) | Operand::Return => {
                value.trim().parse().map_err(|_| wrong("the value must be a whole number"))?
            }
        };
        Ok(Self { operand, comparison, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_arguments_results_and_times() {
        let of = |text: &str| text.parse::<Condition>().map(|it| (it.operand, it.comparison, it.value));
        assert_eq!(of("arg1>1000"), Ok((Operand::Argument(1), Comparison::Above, 1_000)));
        assert_eq!(of("return<0"), Ok((Operand::Return, Comparison::Below, 0)));
        assert_eq!(of("return!=-11"), Ok((Operand::Return, Comparison::Different, -11)));
        assert_eq!(of("took>=1ms"), Ok((Operand::Took, Comparison::AtLeast, 1_000_000)));
        assert_eq!(of("arg6==7"), of("arg6=7"));
        for (wrong, why) in [
            ("arg7>1", "arg1 to arg6"),
            ("arg>1", "arg1 to arg6"),
            ("took>fast", "a time such as 1ms"),
            ("return<1ms", "a whole number"),
            ("arg1!3", "choose from >"),
            ("arg1", "no comparison"),
        ] {
            assert!(of(wrong).is_err_and(|error| error.contains(why)), "{wrong}");
        }
        assert!(Condition::is_meant("arg1>1") && Condition::is_meant("took<2ms"));
        assert!(!Condition::is_meant("argument_check") && !Condition::is_meant("operator>"));
    }
}
