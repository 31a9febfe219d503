//! What is lost, altered or contradictory in a run, and what that means for its result.

use crate::manifest::Part;
use whylate_core::result::Verdict;
use whylate_core::{Warning, WarningCode};

/// The number of damages that are listed one by one.
const SAID_MAX: usize = 20;

/// One place in which the data of a run differ from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub warning: Warning,
    /// The parts whose data it concerns; empty if unknown.
    pub of: Vec<Part>,
    /// Whether samples are lost, and not only other records.
    pub loses_samples: bool,
}

impl Damage {
    /// Damage to the run as a whole.
    pub(crate) fn of_run(code: WarningCode, text: impl Into<String>) -> Self {
        Self { warning: Warning::new(code, text), of: Vec::new(), loses_samples: false }
    }
}

/// All damage that was found in a run.
#[derive(Default)]
pub(crate) struct Damages(Vec<Damage>);

impl Extend<Damage> for Damages {
    fn extend<I: IntoIterator<Item = Damage>>(&mut self, more: I) {
        for damage in more {
            if !self.0.contains(&damage) {
                self.0.push(damage);
            }
        }
    }
}

impl Damages {
    /// The first damages one by one, then the number of the others.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let mut warnings: Vec<Warning> =
            self.0.iter().take(SAID_MAX).map(|damage| damage.warning.clone()).collect();
        let more = self.0.len().saturating_sub(SAID_MAX);
        if more > 0 {
            let text = format!("the run directory is damaged in {more} more places");
            warnings.push(Warning::new(WarningCode::DamagedSegment, text));
        }
        warnings
    }

    /// Why an attempt is incomplete; `None` if none of its samples are lost.
    pub(crate) fn error_of(&self, (cell, repeat, attempt): (&str, u32, u32)) -> Option<String> {
        let is_its = |part: &Part| (part.cell.as_str(), part.repeat, part.attempt) == (cell, repeat, attempt);
        let mut its = self.0.iter().filter(|damage| damage.loses_samples && damage.of.iter().any(is_its));
        its.next().map(|damage| format!("the data of this repeat are damaged: {}", damage.warning.text))
    }

    /// The lost data, in half a sentence.
    pub(crate) fn named(&self) -> Option<String> {
        let first = self.0.iter().find(|damage| !damage.of.is_empty()).or(self.0.first())?;
        let what = first.of.first().map_or_else(|| first.warning.text.clone(), ToString::to_string);
        let more = match self.0.len() {
            1 => String::new(),
            count => format!(" and {} more places", count - 1),
        };
        Some(format!("data are lost or damaged: {what}{more}"))
    }

    /// The verdict, given the one over the remaining data: a violation that was seen stays; any other verdict is
    /// open.
    pub(crate) fn judge(&self, verdict: Verdict) -> Verdict {
        if self.0.is_empty() || verdict == Verdict::Fail { verdict } else { Verdict::Incomplete }
    }
}
