//! The top level of a plan's TOML file.

use super::{CellPlan, LoadPlan, Plan, ProbePlan, Target, TracePlan, TreatmentPlan};
use crate::units::Nanos;
use serde::Deserialize;

/// Everything of a plan that is not a section of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    name: String,
    question: Option<String>,
    #[serde(default = "super::default_duration")]
    duration: Nanos,
    #[serde(default = "super::default_repeats")]
    repeats: u32,
    #[serde(default = "super::default_settle")]
    settle: Nanos,
    #[serde(default = "super::default_warmup")]
    warmup: Nanos,
    #[serde(default = "super::default_noise_floor")]
    noise_floor: Nanos,
    interval: Option<Nanos>,
    timeout: Option<Nanos>,
    limit: Option<Nanos>,
    #[serde(default)]
    causes: bool,
    #[serde(default)]
    target: Target,
}

impl Head {
    /// The whole plan.
    pub(super) fn with(
        self,
        trace: Option<TracePlan>,
        probe: Vec<ProbePlan>,
        load: Vec<LoadPlan>,
        treatment: Vec<TreatmentPlan>,
        cell: Vec<CellPlan>,
    ) -> Plan {
        Plan {
            name: self.name,
            question: self.question,
            duration: self.duration,
            repeats: self.repeats,
            settle: self.settle,
            warmup: self.warmup,
            noise_floor: self.noise_floor,
            interval: self.interval,
            timeout: self.timeout,
            limit: self.limit,
            causes: self.causes,
            target: self.target,
            trace,
            probe,
            load,
            treatment,
            cell,
        }
    }
}
