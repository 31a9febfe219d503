//! Latencies for people: three significant digits and the unit that fits.
//!
//! For reading only: what a program reads carries nanoseconds.

/// Units and the factor from the unit before.
const UNITS: [(&str, f64); 6] =
    [("ns", 1.0), ("us", 1e3), ("ms", 1e3), ("s", 1e3), ("min", 60.0), ("h", 60.0)];

/// `850 ns`, `12.3 us`, `1.50 ms`, `2.00 s`, `16.7 min`: three significant digits, whole nanoseconds below 1 us.
pub fn format_ns(ns: u64) -> String {
    if ns < 1000 {
        return format!("{ns} ns");
    }
    let mut value = ns as f64;
    let mut name = "ns";
    for (unit, factor) in UNITS {
        // The next unit begins where three digits no longer hold the value, after rounding.
        if value < 999.5 {
            break;
        }
        value /= factor;
        name = unit;
    }
    let decimals = match value {
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {name}")
}

/// Two different values as two different texts: exact nanoseconds where three digits would make them look equal.
pub(crate) fn format_apart(a: u64, b: u64) -> (String, String) {
    let (first, second) = (format_ns(a), format_ns(b));
    if a != b && first == second { (format!("{a} ns"), format!("{b} ns")) } else { (first, second) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        let cases = [
            (0, "0 ns"),
            (7, "7 ns"),
            (850, "850 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_996, "10.0 us"),
            (12_345, "12.3 us"),
            (99_960, "100 us"),
            (999_400, "999 us"),
            (999_600, "1.00 ms"),
            (1_500_000, "1.50 ms"),
            (50_000_000, "50.0 ms"),
            (2_000_000_000, "2.00 s"),
            (600_000_000_000, "600 s"),
            (1_002_000_000_000, "16.7 min"),
            (86_400_000_000_000, "24.0 h"),
            (86_400_000_000_000 * 100, "2400 h"),
        ];
        for (ns, text) in cases {
            assert_eq!(format_ns(ns), text, "{ns}");
        }
    }

    #[test]
    fn different_values_look_different() {
        assert_eq!(format_apart(100_040, 100_000), ("100040 ns".to_owned(), "100000 ns".to_owned()));
        assert_eq!(format_apart(120_000, 100_000), ("120 us".to_owned(), "100 us".to_owned()));
        assert_eq!(format_apart(100_000, 100_000), ("100 us".to_owned(), "100 us".to_owned()));
    }
}
