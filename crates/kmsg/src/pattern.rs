//! The form of a message as the kernel's source has it, with names where it has `%d` and `%s`.
//!
//! `hrtimer: interrupt took {ns} ns` matches anywhere in a line. A number ends with its digits. A text ends where the pattern
//! continues; at the end of a pattern it ends with the word. A hole at the start takes the word before it.

use std::collections::HashMap;

/// The content of a message's holes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Captured {
    pub(crate) figure_ns: Option<u64>,
    pub(crate) count: Option<u64>,
    pub(crate) cpu: Option<u32>,
    pub(crate) pid: Option<u32>,
    pub(crate) task: Option<String>,
    pub(crate) function: Option<String>,
}

/// A longer text is not the name of anything.
const NAME_BYTES_MAX: usize = 200;

/// The end of the match in `text`, with the content of the holes, if the pattern's first words are at `at`.
pub(crate) fn matched(pattern: &str, text: &str, at: usize) -> Option<Captured> {
    let mut captured = Captured::default();
    let (before, pattern) = begin(pattern);
    if let Some(hole) = before {
        let word = text[..at].split_whitespace().last()?;
        let word = if is_number(hole) { digits(word) } else { word };
        captured.take(hole, word)?;
    }
    rest_matched(pattern, &text[at..], captured)
}

/// A text ends at the first place from which the rest of the pattern matches, a thread's name at the last one.
fn rest_matched(pattern: &str, text: &str, captured: Captured) -> Option<Captured> {
    let Some(inside) = pattern.strip_prefix('{') else {
        if pattern.is_empty() {
            return Some(captured);
        }
        let (literal, next) = pattern.split_at(pattern.find('{').unwrap_or(pattern.len()));
        return rest_matched(next, text.strip_prefix(literal)?, captured);
    };
    let (hole, next) = inside.split_once('}')?;
    let literal = next.split('{').next().unwrap_or_default();
    let at = |length: usize| {
        let mut captured = captured.clone();
        captured.take(hole, text[..length].trim())?;
        rest_matched(next, &text[length..], captured)
    };
    if is_number(hole) {
        let is_whole = matches!(hole, "cpu" | "pid" | "count");
        let ends = |letter: char| !letter.is_ascii_digit() && (is_whole || letter != '.');
        at(text.find(ends).unwrap_or(text.len()))
    } else if literal.is_empty() {
        at(text.find(char::is_whitespace).unwrap_or(text.len()))
    } else {
        let mut ends: Vec<usize> = text.match_indices(literal).take(8).map(|(length, _)| length).collect();
        // Names of threads may contain the separators that follow them: `irq/45-eth0/512`.
        if hole == "task" {
            ends.reverse();
        }
        ends.into_iter().find_map(at)
    }
}

/// A hole at the start of a pattern, and the rest.
fn begin(pattern: &str) -> (Option<&str>, &str) {
    match pattern.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
        Some((hole, rest)) => (Some(hole), rest),
        None => (None, pattern),
    }
}

fn is_number(hole: &str) -> bool {
    matches!(hole, "ns" | "us" | "ms" | "s" | "cpu" | "pid" | "count")
}

fn digits(text: &str) -> &str {
    &text[..text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len())]
}

impl Captured {
    fn take(&mut self, hole: &str, text: &str) -> Option<()> {
        let unit_ns = match hole {
            "ns" => 1.0,
            "us" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => 0.0,
        };
        match hole {
            "cpu" => self.cpu = Some(text.parse().ok()?),
            "pid" => self.pid = Some(text.parse().ok()?),
            "count" => self.count = Some(text.parse().ok()?),
            _ if unit_ns > 0.0 => self.figure_ns = Some(nanoseconds(text, unit_ns)?),
            _ if text.len() > NAME_BYTES_MAX => return None,
            "task" => self.task = Some(text.to_owned()),
            "function" => self.function = Some(text.to_owned()),
            _ => {}
        }
        Some(())
    }
}

fn nanoseconds(text: &str, unit_ns: f64) -> Option<u64> {
    if let (Ok(whole), true) = (text.parse::<u64>(), unit_ns >= 1.0) {
        return whole.checked_mul(unit_ns as u64);
    }
    text.parse::<f64>()
        .ok()
        .filter(|figure| figure.is_finite())
        .map(|figure| (figure * unit_ns).round() as u64)
}

/// All patterns, found in one pass over a line.
pub(crate) struct Patterns {
    /// By the first two bytes of a pattern's words: the index of its row, and the pattern.
    begins: HashMap<[u8; 2], Vec<(usize, &'static str)>>,
    /// Whether any pattern begins with a byte.
    first: [bool; 256],
}

impl Patterns {
    /// Builds it from the patterns and the indexes of their rows.
    pub(crate) fn new(all: impl Iterator<Item = (usize, &'static str)>) -> Self {
        let mut patterns = Self { begins: HashMap::new(), first: [false; 256] };
        for (row, pattern) in all {
            let &[one, two, ..] = begin(pattern.trim_start_matches('+')).1.as_bytes() else { continue };
            patterns.first[usize::from(one)] = true;
            patterns.begins.entry([one, two]).or_default().push((row, pattern));
        }
        patterns
    }

    /// The row and the pattern that the line matches; the first row of the table if several do.
    pub(crate) fn find(&self, text: &str) -> Option<(usize, &'static str, Captured)> {
        let mut found: Option<(usize, &'static str, Captured)> = None;
        for (at, pair) in text.as_bytes().windows(2).enumerate() {
            if !self.first[usize::from(pair[0])] || !text.is_char_boundary(at) {
                continue;
            }
            for (row, pattern) in self.begins.get(pair).into_iter().flatten() {
                if found.as_ref().is_some_and(|(best, ..)| best <= row) {
                    continue;
                }
                if let Some(captured) = matched(pattern.trim_start_matches('+'), text, at) {
                    found = Some((*row, pattern, captured));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_numbers_and_names() {
        let text = "watchdog: BUG: soft lockup - CPU#29 stuck for 22s! [CPU 0/KVM:14352]";
        let pattern = "BUG: soft lockup - CPU#{cpu} stuck for {s}s! [{task}:{pid}]";
        let found = matched(pattern, text, text.find("BUG").unwrap()).unwrap();
        assert_eq!((found.cpu, found.pid, found.figure_ns), (Some(29), Some(14352), Some(22_000_000_000)));
        assert_eq!(found.task.as_deref(), Some("CPU 0/KVM"));
    }

    #[test]
    fn a_hole_at_the_start_is_the_word_before() {
        let patterns = Patterns::new(
            [(0, "{task} invoked oom-killer: "), (1, "+{cpu} ({*} ticks this GP)")].into_iter(),
        );
        let (_, _, found) = patterns.find("stress-ng-vm invoked oom-killer: gfp_mask=0xcc0").unwrap();
        assert_eq!(found.task.as_deref(), Some("stress-ng-vm"));
        let (_, _, found) = patterns.find("rcu:     12-...!: (2600 ticks this GP) idle=6f5/1").unwrap();
        assert_eq!(found.cpu, Some(12));
    }

    #[test]
    fn a_number_that_is_cut_off_or_absurd_is_no_match() {
        let patterns = Patterns::new([(0, "interrupt took {ns} ns")].into_iter());
        assert_eq!(patterns.find("hrtimer: interrupt took 66633"), None);
        assert_eq!(
            patterns.find("interrupt took 99999999999999999999999 ns").map(|it| it.2.figure_ns.is_some()),
            Some(true)
        );
        assert_eq!(patterns.find("interrupt took . ns"), None);
        assert_eq!(patterns.find("ä: interrupt took 12 ns").and_then(|it| it.2.figure_ns), Some(12));
    }
}
