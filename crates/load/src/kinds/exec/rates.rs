//! Numbers in the command's output as rates.

use super::ExecSpec;
use crate::child::after;
use whylate_core::record::RateRecord;
use whylate_core::{MonoTime, Warning, WarningCode};
use whylate_sys::clock;

/// Turns the numbers of single lines into at most one rate per interval: the mean of what came since the last.
#[derive(Debug)]
pub(super) struct Rates {
    interval_ns: u64,
    last: MonoTime,
    latest: MonoTime,
    sum: f64,
    count: u64,
    matched: u64,
    not_numbers: u64,
}

impl Rates {
    pub(super) fn new(interval_ns: u64) -> Self {
        let now = clock::now();
        Self { interval_ns, last: now, latest: now, sum: 0.0, count: 0, matched: 0, not_numbers: 0 }
    }

    pub(super) fn add(&mut self, at: MonoTime, value: Option<f64>) {
        match value {
            Some(value) => {
                self.matched += 1;
                self.latest = at;
                self.sum += value;
                self.count += 1;
            }
            None => self.not_numbers += 1,
        }
    }

    /// The first number after `start` covers no more than `span_ns`: earlier output is not part of a rate.
    pub(super) fn begin(&mut self, at: MonoTime, span_ns: u64) {
        self.last = self.last.max(MonoTime(at.0.saturating_sub(span_ns)));
    }

    /// When there will be a rate to send; the end of time while no number is waiting.
    pub(super) fn due(&self) -> MonoTime {
        if self.count == 0 { MonoTime(u64::MAX) } else { after(self.last, self.interval_ns) }
    }

    pub(super) fn take_due(&mut self, now: MonoTime) -> Option<RateRecord> {
        if now >= self.due() { self.flush() } else { None }
    }

    /// The mean of the numbers that wait.
    pub(super) fn flush(&mut self) -> Option<RateRecord> {
        if self.count == 0 {
            return None;
        }
        let interval_ns = self.latest.0.saturating_sub(self.last.0);
        let rate = RateRecord { at_ns: self.latest.0, interval_ns, value: self.sum / self.count as f64 };
        (self.last, self.sum, self.count) = (self.latest, 0.0, 0);
        Some(rate)
    }

    /// What is wrong with the pattern, judged by the whole output.
    pub(super) fn warning(&self, spec: &ExecSpec) -> Option<Warning> {
        let pattern = spec.rate_pattern.as_deref()?;
        let fix = format!("look at {} and correct the pattern", spec.output_shown().display());
        if self.not_numbers > 0 {
            let text = format!(
                "lines of output in which the group of `{pattern}` matched no number: {}",
                self.not_numbers
            );
            return Some(Warning::with_fix(WarningCode::RateNotANumber, text, fix));
        }
        let text = format!(
            "no line of the output of `{}` matched `{pattern}`, so this load has no rate",
            spec.command.join(" ")
        );
        (self.matched == 0).then(|| Warning::with_fix(WarningCode::RateNeverMatched, text, fix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_one_rate_per_interval() {
        let mut rates = Rates::new(1000);
        let begin = rates.last;
        assert_eq!(rates.due(), MonoTime(u64::MAX));
        assert_eq!(rates.flush(), None);
        for (offset, value) in [(100, 10.0), (300, 20.0), (900, 60.0)] {
            rates.add(after(begin, offset), Some(value));
        }
        rates.add(after(begin, 950), None);
        assert_eq!(rates.take_due(after(begin, 999)), None);
        let rate = rates.take_due(after(begin, 1000));
        assert_eq!(rate, Some(RateRecord { at_ns: begin.0 + 900, interval_ns: 900, value: 30.0 }));
        rates.add(after(begin, 5900), Some(7.0));
        let rate = rates.take_due(after(begin, 5900));
        assert_eq!(rate, Some(RateRecord { at_ns: begin.0 + 5900, interval_ns: 5000, value: 7.0 }));
    }

    #[test]
    fn output_before_a_start_is_no_part_of_a_rate() {
        let mut rates = Rates::new(1000);
        let begin = rates.last;
        rates.begin(after(begin, 9000), 400);
        rates.add(after(begin, 9000), Some(2.0));
        let rate = rates.flush();
        assert_eq!(rate, Some(RateRecord { at_ns: begin.0 + 9000, interval_ns: 400, value: 2.0 }));
    }
}
