//! What the plan says of a probe on a CPU: needed to read its figures.

use crate::info::RunInfo;
use std::collections::HashMap;
use whylate_core::plan::{Policy, ProbePlan};
use whylate_core::{CpuId, CpuSet, Nanos};
use whylate_stats::ProbeShape;

/// `code` of the runner's warning that probes could not run with real-time priority.
const NO_REALTIME_PRIORITY: &str = "no-realtime-priority";

/// The probes of the plan.
pub(super) struct Shapes {
    /// Kinds in the plan's order.
    kinds: Vec<&'static str>,
    /// By kind and CPU: the periods of the timer probes there, and whether all probes there have a real-time policy.
    known: HashMap<(&'static str, CpuId), Known>,
}

#[derive(Default)]
struct Known {
    periods: Vec<Nanos>,
    ordinary: bool,
}

impl Shapes {
    pub(super) fn of(info: &RunInfo) -> Self {
        let context = info.facts.cpu_context();
        let target = info.plan.target.cpus.resolve(&context, None).unwrap_or_default();
        let refused = info.warnings.iter().any(|warning| warning.code == NO_REALTIME_PRIORITY);
        let mut shapes = Self { kinds: Vec::new(), known: HashMap::new() };
        for probe in &info.plan.probe {
            if !shapes.kinds.contains(&probe.kind()) {
                shapes.kinds.push(probe.kind());
            }
            let cpus = match probe.cpus() {
                Some(selector) => selector.resolve(&context, Some(&target)).unwrap_or_default(),
                None => target.clone(),
            };
            shapes.add(probe, &cpus, refused);
        }
        shapes
    }

    fn add(&mut self, probe: &ProbePlan, cpus: &CpuSet, refused: bool) {
        let (period, policy) = match probe {
            ProbePlan::Timer(timer) => (Some(timer.interval), timer.policy),
            ProbePlan::Stall(stall) => (None, stall.policy),
        };
        for cpu in cpus.iter() {
            let known = self.known.entry((probe.kind(), cpu)).or_default();
            known.periods.extend(period);
            known.ordinary |= refused || !matches!(policy, Policy::Fifo | Policy::Rr);
        }
    }

    /// The shape of a probe's samples; `None` for a probe that this version does not know. The period is known when
    /// all timer probes on that CPU have the same.
    pub(super) fn shape(&self, probe: &str, cpu: CpuId) -> Option<ProbeShape> {
        match probe {
            "timer" => {
                let known = self.known.get(&("timer", cpu));
                let periods = known.map_or(&[][..], |known| &known.periods);
                let same = periods.windows(2).all(|pair| pair[0] == pair[1]);
                Some(ProbeShape::Timer { period: periods.first().copied().filter(|_| same) })
            }
            "stall" => Some(ProbeShape::Stall),
            _ => None,
        }
    }

    /// Whether the probe's thread ran as SCHED_FIFO or SCHED_RR there.
    pub(super) fn is_realtime(&self, probe: &str, cpu: CpuId) -> bool {
        let mut here = self.known.iter().filter(|((kind, on), _)| *kind == probe && *on == cpu);
        here.next().is_some_and(|(_, known)| !known.ordinary)
    }

    /// Where a probe stands in the plan; unknown ones come last.
    pub(super) fn position(&self, probe: &str) -> usize {
        self.kinds.iter().position(|kind| *kind == probe).unwrap_or(self.kinds.len())
    }
}
