//! Repeats that need a boot of their own.

use super::{Adviser, Steps, failed};
use crate::error::RunError;
use crate::experiment::RunInProgress;
use whylate_core::Nanos;
use whylate_core::result::{FixArm, FixStep, RunEnd};
use whylate_stats::search::Trial;

/// Whether the machine runs as a repeat needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boot {
    /// It does; the time of the boot counts as time of the search.
    Ready { took: Nanos },
    /// A boot is asked for; the search ends here and goes on after it.
    Asked,
    /// The boot that was asked for did not come.
    Failed {
        why: String,
        /// How long the search waited for it.
        took: Nanos,
    },
}

/// What comes before a repeat.
pub(super) enum Before {
    Measure,
    /// The repeat is a failed one.
    Next,
    End(RunEnd),
}

impl Steps {
    /// Makes sure that the machine is booted as the trial needs it.
    pub(super) fn boot(
        &mut self,
        run: &mut RunInProgress<'_>,
        trial: &Trial,
        adviser: &mut dyn Adviser,
    ) -> Result<Before, RunError> {
        let arms: Vec<&FixArm> = trial.arms.iter().map(|arm| &self.registration.arms[*arm]).collect();
        Ok(match adviser.boot(self.steps.len(), &arms).map_err(RunError::Boot)? {
            Boot::Ready { took } => {
                self.booted_ns = took.0;
                Before::Measure
            }
            Boot::Asked => {
                let reason = "the search continues after the next boot".to_owned();
                Before::End(RunEnd::Failed { reason })
            }
            Boot::Failed { why, took } => {
                let treatments = self.names(&trial.arms);
                run.audience.said(&format!("a boot with `{}`: {why}", treatments.join(" + ")));
                let step = FixStep {
                    phase: trial.phase,
                    treatments,
                    cell: String::new(),
                    repeat: 0,
                    value: None,
                    others: Default::default(),
                    rates: Default::default(),
                    causes: Default::default(),
                    costs: Default::default(),
                    error: Some(why.clone()),
                    took_ns: took.0,
                };
                run.directory.add_fix_step(&step)?;
                failed(&mut self.search, &self.registration, &why);
                self.took_ns += step.took_ns;
                self.steps.push(step);
                Before::Next
            }
        })
    }
}
