//! Moments of the calendar as texts.

use std::time::{SystemTime, UNIX_EPOCH};

/// A moment as RFC 3339 in UTC, to the second: `2026-11-21T09:02:29Z`. Moments before 1970 read as 1970.
pub fn utc_text(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_date(days);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the Gregorian calendar, `days` after 1 January 1970.
fn civil_date(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // 400 years always have the same number of days; the loop below then runs at most 400 times.
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let mut year = 1970 + days / DAYS_IN_400_YEARS * 400;
    days %= DAYS_IN_400_YEARS;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

/// Seconds since 1970 of a text that [`utc_text`] made; `None` for any other.
pub fn utc_seconds(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) {
        return None;
    }
    // Years begin in March, so that the leap day is the last one.
    let from_march = if month > 2 { year } else { year.checked_sub(1)? };
    let (century, of_year) = (from_march / 100, (153 * ((month + 9) % 12) + 2) / 5 + day.checked_sub(1)?);
    let days = (365 * from_march + from_march / 4 + century / 4 + of_year).checked_sub(century + 719_468)?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    (utc_text(UNIX_EPOCH + std::time::Duration::from_secs(seconds)) == text).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moments_read_as_the_calendar_says() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_795_251_749, "2026-11-21T09:02:29Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc_text(UNIX_EPOCH + Duration::from_secs(seconds)), text);
            assert_eq!(utc_seconds(text), Some(seconds));
        }
    }
    #[test]
    fn what_is_no_moment_is_none() {
        for text in ["", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "1969-12-31T23:59:59Z", "2026-11-21"]
        {
            assert_eq!(utc_seconds(text), None, "{text}");
        }
    }
}
