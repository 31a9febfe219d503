//! The part of a trace's text that a window needs.

use std::ops::Range;

/// The header, the lines whose times are in `window` (nanoseconds of the trace's clock), and the stacks below them.
pub(super) fn cut(text: &str, window: &Range<u64>) -> String {
    let mut kept = String::new();
    let mut keeping = true;
    for line in text.lines() {
        if let Some(at) = time_ns(line) {
            keeping = window.contains(&at);
        }
        if keeping || line.starts_with('#') {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The time of `TASK-PID [CPU] FLAGS SECONDS.MICROSECONDS: EVENT`.
fn time_ns(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("] ")?;
    let (before, _) = rest.split_once(": ")?;
    let (seconds, micros) = before.split_whitespace().next_back()?.split_once('.')?;
    Some((seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?) * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_window_are_kept_with_their_stacks() {
        let text =
            "# tracer: nop\n a-1 [000] d... 1.000001: x: y\n => f\n b c-1 [000] d... 1.000003: x: y\n => g\n";
        let kept = cut(text, &(1_000_002_000..1_000_004_000));
        assert_eq!(kept, "# tracer: nop\n b c-1 [000] d... 1.000003: x: y\n => g\n");
    }
}
