//! What the plan says of a probe on a CPU: needed to read its figures.

use crate::info::RunInfo;
use std::collections::HashMap;
use whylate_core::plan::{Policy, ProbePlan, RoundtripMethod, Tracer, TracerPlan};
use whylate_core::{CpuId, CpuSet, Nanos, SeriesName};
use whylate_stats::ProbeShape;

/// `code` of the runner's warning that probes could not run with real-time priority.
const NO_REALTIME_PRIORITY: &str = "no-realtime-priority";

/// The probes of the plan.
pub(super) struct Shapes {
    /// How many of the largest spikes of a probe are kept.
    pub(super) spikes_kept: usize,
    /// Names of their series in the plan's order.
    names: Vec<String>,
    /// By name of the series and CPU: the periods of the probes there, and whether all of them have a real-time
    /// policy.
    known: HashMap<(String, CpuId), Known>,
}

#[derive(Default)]
struct Known {
    periods: Vec<Nanos>,
    ordinary: bool,
    /// Of a tracer that looks for gaps: which part of the time.
    looks: Option<f64>,
}

impl Shapes {
    pub(super) fn of(info: &RunInfo, spikes_kept: usize) -> Self {
        let context = info.facts.cpu_context();
        let target = info.plan.target.cpus.resolve(&context, None).unwrap_or_default();
        let mut shapes = Self { spikes_kept, names: Vec::new(), known: HashMap::new() };
        for probe in &info.plan.probe {
            let cpus = probe.cpus(&context, &target).unwrap_or_default();
            for name in series(probe) {
                shapes.add(name, probe, &cpus);
            }
        }
        shapes
    }

    fn add(&mut self, name: String, probe: &ProbePlan, cpus: &CpuSet) {
        let period = match probe {
            ProbePlan::Timer(timer) => Some(timer.interval),
            ProbePlan::Dispatch(dispatch) => dispatch.period().ok(),
            ProbePlan::Stall(_)
            | ProbePlan::Roundtrip(_)
            | ProbePlan::Histograms(_)
            | ProbePlan::Tracer(_) => None,
        };
        let (policy, _) = probe.scheduling();
        for cpu in cpus.iter() {
            let known = self.known.entry((name.clone(), cpu)).or_default();
            known.periods.extend(period);
            if let ProbePlan::Tracer(tracer) = probe {
                known.looks = looks(tracer, cpus.len());
            }
            known.ordinary |= !matches!(policy, Policy::Fifo | Policy::Rr);
        }
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }

    fn known(&self, name: SeriesName<'_>, cpu: CpuId) -> Option<&Known> {
        self.known.get(&(name.whole().to_string(), cpu))
    }

    /// The shape of a series' samples; `None` for a probe that this version does not know. The period is known when
    /// all probes on that CPU have the same.
    pub(super) fn shape(&self, name: SeriesName<'_>, cpu: CpuId) -> Option<ProbeShape> {
        let period = || {
            let periods = self.known(name, cpu).map_or(&[][..], |known| &known.periods);
            let same = periods.windows(2).all(|pair| pair[0] == pair[1]);
            periods.first().copied().filter(|_| same)
        };
        match (name.probe, name.part) {
            // The parts of a dispatch and what the kernel counts are durations, without periods that could be missed.
            ("roundtrip" | "histograms", _) | ("dispatch", Some(_)) => Some(ProbeShape::Roundtrip),
            ("timer", _) => Some(ProbeShape::Timer { period: period() }),
            ("dispatch", None) => Some(ProbeShape::Dispatch { period: period() }),
            ("stall", _) => Some(ProbeShape::Stall),
            ("tracer", part) => {
                let looks = self.known(name, cpu).and_then(|known| known.looks);
                Some(ProbeShape::Tracer { looks: looks.filter(|_| part.is_none()) })
            }
            _ => None,
        }
    }

    /// Whether the probe's thread ran as SCHED_FIFO or SCHED_RR there.
    pub(super) fn is_realtime(&self, name: SeriesName<'_>, cpu: CpuId, info: &RunInfo) -> bool {
        // The machine may refuse it to all probes, or a probe may have to do without (`stall-without-priority`).
        let own = format!("{}-without-priority", name.probe);
        let refused =
            info.warnings.iter().any(|warning| warning.code == NO_REALTIME_PRIORITY || warning.code == own);
        !refused && self.known(name, cpu).is_some_and(|known| !known.ordinary)
    }

    /// Where a series stands in the plan, parts where their whole does; unknown ones come last.
    pub(super) fn position(&self, name: SeriesName<'_>) -> usize {
        let whole = name.whole().to_string();
        self.names.iter().position(|known| *known == whole).unwrap_or(self.names.len())
    }
}

/// The part of the time in which a tracer looks for gaps on each of its CPUs.
fn looks(tracer: &TracerPlan, cpus: usize) -> Option<f64> {
    let part = tracer.width().0 as f64 / tracer.window().0.max(1) as f64;
    match tracer.tracer {
        // On one CPU after the other.
        Tracer::Hwlat => Some(part / cpus.max(1) as f64),
        Tracer::Osnoise => Some(part),
        Tracer::Timerlat => None,
    }
}

/// Names of the series of a probe.
fn series(probe: &ProbePlan) -> Vec<String> {
    let name = |series: &str| SeriesName::in_probe(probe.kind(), Some(series)).to_string();
    match probe {
        ProbePlan::Timer(_) | ProbePlan::Stall(_) => vec![probe.kind().to_owned()],
        ProbePlan::Histograms(plan) => plan.kinds.iter().map(|kind| name(kind.name())).collect(),
        ProbePlan::Dispatch(dispatch) => vec![name(&dispatch.source.to_string())],
        ProbePlan::Tracer(tracer) => vec![name(tracer.tracer.name())],
        ProbePlan::Roundtrip(roundtrip) => {
            roundtrip.method.iter().map(RoundtripMethod::name).map(name).collect()
        }
    }
}
