//! TriggerLines that come in pieces, compared with regular expressions.

use super::inbox::Teller;
use crate::error::ProbeError;
use regex_lite::Regex;

/// A longer line is taken in parts of this length.
const LINE_MAX: usize = 64 << 10;

/// What a line is compared with.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) regex: Regex,
    pub(super) teller: Teller,
}

/// Checks a regular expression of a trigger.
pub(super) fn regex(pattern: &str) -> Result<Regex, ProbeError> {
    Regex::new(pattern)
        .map_err(|error| ProbeError::Failed(format!("`{pattern}` is not a regular expression: {error}")))
}

/// The lines of one stream.
#[derive(Debug)]
pub(super) struct TriggerLines {
    rules: Vec<Rule>,
    /// The line that has begun, and when its first byte was read.
    partial: Vec<u8>,
    begun_ns: u64,
}

impl TriggerLines {
    pub(super) fn new(rules: Vec<Rule>) -> Self {
        Self { rules, partial: Vec::new(), begun_ns: 0 }
    }

    /// Takes bytes that were read at that moment.
    pub(super) fn push(&mut self, at_ns: u64, bytes: &[u8]) {
        // Programs that redraw a line end it with a carriage return.
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            if self.partial.is_empty() {
                self.begun_ns = at_ns;
            }
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || piece.ends_with(b"\r") || self.partial.len() >= LINE_MAX {
                self.finish();
            }
        }
    }

    /// What has come so far is a line.
    pub(super) fn finish(&mut self) {
        let text = String::from_utf8_lossy(&self.partial);
        let line = text.trim_end_matches(['\n', '\r']);
        for rule in self.rules.iter().filter(|_| !line.is_empty()) {
            if rule.regex.is_match(line) {
                rule.teller.tell(self.begun_ns, Some(line));
            }
        }
        self.partial.clear();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::inbox::Inbox;
    use super::*;
    use whylate_core::plan::TaskPlan;

    /// TriggerLines that tell of trigger 0 where they match.
    pub(in super::super) fn lines(pattern: &str) -> (Inbox, TriggerLines) {
        let inbox = Inbox::default();
        let rule = Rule { regex: regex(pattern).unwrap(), teller: Teller::new(&inbox, 0) };
        (inbox, TriggerLines::new(vec![rule]))
    }

    /// The moments and texts that came.
    pub(in super::super) fn come(inbox: &Inbox) -> Vec<(u64, String)> {
        inbox.take(&mut []).into_iter().map(|one| (one.at_ns, one.text.unwrap_or_default())).collect()
    }

    #[test]
    fn a_line_in_pieces_counts_once_when_it_began() {
        let (inbox, mut lines) = lines("^late by [0-9]+ ms$");
        for (at_ns, piece) in
            [(5, "la"), (6, "te by 4 m"), (7, "s\nlate by 5 ms\r\non time\nlate by"), (9, " 6 ms")]
        {
            lines.push(at_ns, piece.as_bytes());
        }
        let of = |at_ns, text: &str| (at_ns, text.to_owned());
        assert_eq!(come(&inbox), [of(5, "late by 4 ms"), of(7, "late by 5 ms")]);
        lines.finish();
        assert_eq!(come(&inbox), [of(7, "late by 6 ms")]);
        lines.push(11, b"\xfflate by 1 ms\n\n");
        assert_eq!(come(&inbox), [], "a line that does not begin so");
    }

    #[test]
    fn presets_match_what_programs_write_when_they_are_late() {
        let samples = include_str!("samples.txt").lines().filter(|line| !line.starts_with('#'));
        for sample in samples {
            let mut words = sample.splitn(3, ' ');
            let (preset, sign, line) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            let (name, triggers) = (Some("x".to_owned()), vec![format!("preset:{preset}")]);
            let plan = TaskPlan { name, triggers, ..TaskPlan::default() };
            let (_, trigger) = plan.triggers().unwrap().remove(0);
            let regex = regex(trigger.pattern().unwrap()).unwrap();
            assert_eq!(regex.is_match(line), sign == "+", "{preset}: {line}");
        }
    }

    #[test]
    fn an_endless_line_takes_bounded_memory() {
        let (inbox, mut lines) = lines("x");
        (0..100).for_each(|at_ns| lines.push(at_ns, &[b'x'; 4_096]));
        assert!(lines.partial.len() < LINE_MAX + 4_096);
        assert_eq!(come(&inbox).len(), 100 * 4_096 / LINE_MAX);
    }

    #[test]
    fn a_wrong_expression_is_named() {
        let error = regex("late(").unwrap_err().to_string();
        assert!(error.contains("`late(` is not a regular expression"), "{error}");
    }
}
