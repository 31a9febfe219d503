//! The facts of the plan about a probe on a CPU that are needed to read its figures.

use crate::info::RunInfo;
use std::collections::HashMap;
use whylate_core::plan::{Policy, ProbePlan};
use whylate_core::{CpuId, CpuSet, Nanos, Plan, SeriesName, WarningCode};
use whylate_stats::SampleShape;
use whylate_stats::throttling::{Circumstances, fair_server_in};

pub(super) struct Shapes {
    /// How many of the largest spikes of a probe are kept.
    pub(super) spikes_kept: usize,
    /// The same for each series of the probe `task`: each watched thread has its worst activations.
    tasks_kept: usize,
    /// What the scheduler takes from real-time tasks here; facts about one probe are left out.
    pub(super) scheduler: Circumstances,
    /// Names of their series in the plan's order.
    names: Vec<String>,
    /// By name of the series and CPU: the periods of the probes there, and whether all of them have a real-time
    /// policy.
    known: HashMap<(String, CpuId), Known>,
    plan: Plan,
}

#[derive(Default)]
struct Known {
    periods: Vec<Nanos>,
    ordinary: bool,
    /// The part of the time in which gaps are looked for.
    watched_share: Option<f64>,
}

impl Shapes {
    pub(super) fn of(info: &RunInfo, spikes_kept: usize) -> Self {
        let context = info.facts.cpu_context();
        let target = info.plan.target.cpus.resolve(&context, None).unwrap_or_default();
        let scheduler = Circumstances {
            rt_runtime_us: info.facts.settings.rt_runtime_us,
            rt_period_us: info.facts.settings.rt_period_us,
            fair_server: fair_server_in(&info.facts.kernel.release),
            ..Circumstances::default()
        };
        let worst = info.plan.probe.iter().find_map(|probe| match probe {
            ProbePlan::Task(plan) => Some(plan.worst()),
            _ => None,
        });
        let tasks_kept = worst.unwrap_or_default().max(spikes_kept);
        let (plan, names, known) = (info.plan.clone(), Vec::new(), HashMap::new());
        let mut shapes = Self { spikes_kept, tasks_kept, scheduler, names, known, plan };
        for probe in &info.plan.probe {
            let cpus = probe.cpus(&context, &target).unwrap_or_default();
            for name in probe.series_names() {
                shapes.add(name, probe, &cpus);
            }
        }
        shapes
    }

    /// How many of the largest spikes of a series on a CPU are kept.
    pub(super) fn spikes_kept_of(&self, name: SeriesName<'_>) -> usize {
        if name.is_of_user() { self.tasks_kept } else { self.spikes_kept }
    }

    /// The deadline of the responses of a watched thread, or of a chain.
    pub(super) fn deadline_of(&self, name: SeriesName<'_>) -> Option<Nanos> {
        let series = name.series.filter(|_| name.is_of_user())?;
        if self.plan.is_chain(series) { self.plan.deadline_of_chain(series) } else { self.plan.deadline() }
    }

    /// How many of the largest spikes of `probe` are kept in total.
    pub(super) fn spikes_kept_in(&self, probe: &str) -> usize {
        if SeriesName::of(probe).is_of_user() { usize::MAX } else { self.spikes_kept }
    }

    fn add(&mut self, name: String, probe: &ProbePlan, cpus: &CpuSet) {
        let (policy, _) = probe.scheduling();
        for cpu in cpus.iter() {
            let known = self.known.entry((name.clone(), cpu)).or_default();
            known.periods.extend(probe.words().period());
            known.watched_share = Some(probe.words().watched_share(cpus.len()));
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
    pub(super) fn shape(&self, name: SeriesName<'_>, cpu: CpuId) -> Option<SampleShape> {
        let shape = SampleShape::of(name.facts()?);
        let Some(known) = self.known(name, cpu) else { return Some(shape) };
        let same = known.periods.windows(2).all(|pair| pair[0] == pair[1]);
        let period = known.periods.first().copied().filter(|_| same);
        Some(SampleShape { period, watched_share: known.watched_share.unwrap_or(1.0), ..shape })
    }

    /// Whether the probe's thread ran as SCHED_FIFO or SCHED_RR there.
    pub(super) fn is_realtime(&self, name: SeriesName<'_>, cpu: CpuId, info: &RunInfo) -> bool {
        // The machine may refuse it to all probes, or one probe may run without it.
        let own = name.facts().and_then(|facts| facts.without_priority);
        let mut refusals = own.into_iter().chain([WarningCode::NoRealtimePriority]);
        let refused = refusals.any(|code| info.warnings.iter().any(|warning| warning.code == code));
        !refused && self.known(name, cpu).is_some_and(|known| !known.ordinary)
    }

    /// Where a series is in the plan, parts where their whole does; unknown ones come last.
    pub(super) fn position(&self, name: SeriesName<'_>) -> usize {
        let whole = name.whole().to_string();
        self.names.iter().position(|known| *known == whole).unwrap_or(self.names.len())
    }
}
