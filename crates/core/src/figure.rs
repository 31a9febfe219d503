//! Numbers as text: three significant digits with a unit that fits, and nothing else.
//!
//! Latencies are printed as `ns`, `us`, `ms`, `s` everywhere (durations above 1000 s as `min`, `h`), so that a figure can
//! be searched for in every format of the report.

use crate::plan::Statistic;
use crate::units::BytesPerSec;

/// `830 ns`, `12.3 us`, `1.20 ms`, `75.0 s`, `16.7 min`.
pub fn nanoseconds(value: u64) -> String {
    let units: &[(f64, &str)] = match value {
        0..1_000 => return format!("{value} ns"),
        1_000..999_500_000_000 => &[(1e3, "us"), (1e6, "ms"), (1e9, "s")],
        999_500_000_000..59_970_000_000_000 => &[(6e10, "min")],
        _ => &[(3.6e12, "h")],
    };
    scaled(value as f64, units)
}

/// Two different values as two different texts: exact nanoseconds if three digits would make them look equal.
pub fn nanoseconds_apart(a: u64, b: u64) -> (String, String) {
    let (first, second) = (nanoseconds(a), nanoseconds(b));
    if a != b && first == second { (format!("{a} ns"), format!("{b} ns")) } else { (first, second) }
}

/// A value of a statistic: `12.3 us`, `0.31 %`, `4.00 per s`.
pub fn value(statistic: Statistic, value: f64) -> String {
    match statistic {
        Statistic::LostShare => share(value),
        Statistic::GapRate => format!("{} per s", three_digits(value)),
        Statistic::SpikeRate | Statistic::TriggerRate => format!("{} per hour", three_digits(value)),
        _ => nanoseconds_f64(value),
    }
}

/// As [`nanoseconds`], for means and other values between whole nanoseconds.
pub fn nanoseconds_f64(value: f64) -> String {
    if value >= 1e3 { nanoseconds(value.round() as u64) } else { format!("{} ns", three_digits(value)) }
}

/// A number and what it counts: `1 repeat`, `3 repeats`.
pub fn counted(number: impl ToString + Copy, one: &str) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} {one}{plural}")
}

/// A rate of late time: `3.00 ms per s`; `0` for none.
pub fn late_rate(ns_per_s: f64) -> String {
    if ns_per_s > 0.0 { format!("{} per s", nanoseconds(ns_per_s as u64)) } else { "0".to_owned() }
}

/// `300,000`; from ten million on `41.2 M`.
pub fn count(value: u64) -> String {
    if value >= 10_000_000 {
        return scaled(value as f64, &[(1e6, "M"), (1e9, "G"), (1e12, "T")]);
    }
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate in the unit of its load: bytes as bandwidths are quoted, everything else with the unit's own name.
pub fn rate(value: f64, unit: &str) -> String {
    match unit {
        "bytes_per_s" => BytesPerSec(value).to_string(),
        _ if value.abs() >= 1e4 => {
            let number = scaled(value, &[(1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")]);
            format!("{number} {}", rate_unit(unit))
        }
        "frames_per_s" if value > 0.0 => {
            format!("{} frames/s, one every {}", three_digits(value), nanoseconds_f64(1e9 / value))
        }
        _ => format!("{} {}", three_digits(value), rate_unit(unit)),
    }
}

/// `frames_per_s` as `frames/s`; any other name as it stands.
pub fn rate_unit(unit: &str) -> String {
    match unit.strip_suffix("_per_s") {
        Some(what) => format!("{what}/s"),
        None => unit.to_owned(),
    }
}

/// `p = 0.03`, `p < 0.001`, `p > 0.99`.
pub fn probability(p_value: f64) -> String {
    match p_value {
        p if p < 0.001 => "p < 0.001".to_owned(),
        p if p < 0.01 => format!("p = {p:.3}"),
        p if p > 0.99 => "p > 0.99".to_owned(),
        p => format!("p = {p:.2}"),
    }
}

/// The ends of an interval, with words for an end that the repeats do not bound: `1.46 to 1.70`.
pub fn between((low, high): (Option<f64>, Option<f64>), figure: impl Fn(f64) -> String) -> String {
    match (low.map(&figure), high.map(&figure)) {
        (Some(low), Some(high)) => format!("{low} to {high}"),
        (Some(low), None) => format!("at least {low}; too few repeats for an upper bound"),
        (None, Some(high)) => format!("at most {high}; too few repeats for a lower bound"),
        (None, None) => "too few repeats for an interval".to_owned(),
    }
}

/// A share in [0, 1] as `0.31 %`.
pub fn share(value: f64) -> String {
    match value * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.001 => "< 0.001 %".to_owned(),
        percent if percent < 0.1 => format!("{percent:.3} %"),
        percent => format!("{} %", three_digits(percent)),
    }
}

/// `3 MiB`, `512 B`: a size in binary units.
pub fn bytes(value: u64) -> String {
    let text = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        .into_iter()
        .find(|(factor, _)| value >= *factor)
        .map(|(factor, unit)| (value as f64 / factor as f64, unit));
    match text {
        Some((number, unit)) if number.fract() == 0.0 => format!("{number} {unit}"),
        Some((number, unit)) => format!("{number:.1} {unit}"),
        None => format!("{value} B"),
    }
}

/// `3.20 GHz`.
pub fn frequency(hertz: u64) -> String {
    scaled(hertz as f64, &[(1.0, "Hz"), (1e3, "kHz"), (1e6, "MHz"), (1e9, "GHz")])
}

/// Three significant digits in the largest unit that keeps the number at 1 or above; units ascend.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    // 999.5 of one unit would print as 1000: use the next unit.
    let fits = |(factor, _): &&(f64, &str)| value.abs() / factor >= 0.9995;
    let (factor, unit) = units.iter().rev().find(fits).or(units.first()).copied().unwrap_or((1.0, ""));
    format!("{} {unit}", three_digits(value / factor))
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A priority as tools print it: `80`, `deadline`, and `nice 5` for ordinary tasks, which are below 0 here.
pub fn priority(priority: i32) -> String {
    match priority {
        100.. => "deadline".to_owned(),
        0..100 => priority.to_string(),
        _ => format!("nice {}", -21 - priority),
    }
}

/// The sum of the kernel's number of a priority and the priority that tools print.
pub const PRIORITY_TOP: i32 = 99;

/// The same in a sentence: `priority 80`, `deadline`, `nice 5`.
pub fn scheduled(priority: i32) -> String {
    match priority {
        0..100 => format!("priority {priority}"),
        other => self::priority(other),
    }
}

/// A priority as the kernel counts and traces have it (0 to 99 real-time, 120 for `nice 0`, -1 for deadline), as
/// [`priority`] takes it.
pub fn of_kernel(priority: i32) -> i32 {
    PRIORITY_TOP - priority
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn an_interval_says_in_words_which_end_is_not_known() {
        let text = |low, high| between((low, high), |end| format!("{end:.1}"));
        assert_eq!(text(Some(1.5), Some(1.7)), "1.5 to 1.7");
        assert!(says("at-least-too-few", text(Some(1.5), None)));
        assert!(says("at-most-too-few", text(None, Some(0.9))));
        assert!(says("too-few-repeats-for", text(None, None)));
    }

    #[test]
    fn latencies_have_three_digits_and_a_fitting_unit() {
        for (value, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (12_345, "12.3 us"),
            (99_960, "100 us"),
            (999_400, "999 us"),
            (999_600, "1.00 ms"),
            (1_204_000, "1.20 ms"),
            (75_000_000_000, "75.0 s"),
            (1_002_000_000_000, "16.7 min"),
            (86_400_000_000_000, "24.0 h"),
        ] {
            assert_eq!(nanoseconds(value), text);
        }
        assert_eq!(nanoseconds_f64(14.62), "14.6 ns");
        assert_eq!(nanoseconds_f64(3_412.4), "3.41 us");
    }

    #[test]
    fn different_values_look_different() {
        let apart = |a, b| nanoseconds_apart(a, b);
        assert_eq!(apart(100_040, 100_000), ("100040 ns".to_owned(), "100000 ns".to_owned()));
        assert_eq!(apart(120_000, 100_000), ("120 us".to_owned(), "100 us".to_owned()));
        assert_eq!(apart(100_000, 100_000), ("100 us".to_owned(), "100 us".to_owned()));
    }

    #[test]
    fn counts_are_grouped_until_they_are_too_long() {
        for (value, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(value), text);
        }
        assert_eq!(count(412_345_678), "412 M");
        assert_eq!(count(4_123_456_789), "4.12 G");
    }

    #[test]
    fn rates_keep_the_unit_of_their_load() {
        assert_eq!(rate(23.4e9, "bytes_per_s"), "23.4 GB/s");
        assert!(says("frames-s-one-each", rate(59.94, "frames_per_s")));
        assert_eq!(rate(1_234_000.0, "rectangles_per_s"), "1.23 M rectangles/s");
        assert_eq!(rate(7.0, "score"), "7.00 score");
    }

    #[test]
    fn probabilities_and_shares_never_read_as_zero() {
        assert_eq!(probability(0.0002), "p < 0.001");
        assert_eq!(probability(0.0286), "p = 0.03");
        assert_eq!(probability(0.0057), "p = 0.006");
        assert_eq!(probability(1.0), "p > 0.99");
        assert_eq!(share(0.0), "0 %");
        assert_eq!(share(0.000_000_1), "< 0.001 %");
        assert_eq!(share(0.05), "5.00 %");
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(bytes(48 << 10), "48 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(bytes(100), "100 B");
        assert_eq!(frequency(3_200_000_000), "3.20 GHz");
    }
}
