//! From a plan to what it means on this machine: CPUs, sizes, thresholds; and which cells cannot run here, and why.

use crate::error::RunError;
use std::path::PathBuf;
use whylate_core::cpus::CpuError;
use whylate_core::plan::{
    CellPlan, ExecPlan, LoadKind, LoadPlan, MemoryPlan, Policy, ProbePlan, SizeError, StallPlan, Threshold,
};
use whylate_core::warning::{push_all_once, push_once};
use whylate_core::{Bytes, CpuSelector, CpuSet, Facts, Nanos, Plan, Warning, WarningCode};
use whylate_load::{EventKind, EventSpec, ExecSpec, LoadSpec, LoadWork, MemorySpec};
use whylate_probe::{LaneSpec, Options, ProbeSpec, resolve};
use whylate_stats::summary::SPIKES_KEPT;

/// From which length on the noise-floor check counts a gap.
pub const NOISE_FLOOR_THRESHOLD: Nanos = Nanos::from_micros(10);

/// A plan resolved on a machine.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The plan.
    pub plan: Plan,
    /// The machine.
    pub facts: Facts,
    /// The measured CPUs.
    pub target: CpuSet,
    /// The probes, in groups: those of a group are on different CPUs and measure together, with companions beside.
    pub probes: Vec<Vec<ProbeSpec>>,
    /// The stall check without load beside each cell; `None` when the plan leaves it out.
    pub noise_floor: Option<ProbeSpec>,
    /// The cells.
    pub cells: Vec<PreparedCell>,
    /// What is not as the plan would have it.
    pub warnings: Vec<Warning>,
}

impl Experiment {
    /// Whether a cell that can run has treatments.
    pub fn has_treatments(&self) -> bool {
        self.cells.iter().any(|cell| cell.loads.is_ok() && !cell.plan.treatments.is_empty())
    }

    /// Refuses an experiment of which no cell can run.
    pub(crate) fn with_something_to_run(self) -> Result<Self, RunError> {
        match self.cells.first().map(|cell| &cell.loads) {
            Some(Err(reason)) if self.cells.iter().all(|cell| cell.loads.is_err()) => {
                Err(RunError::NothingToRun(reason.clone()))
            }
            _ => Ok(self),
        }
    }
}

/// A cell resolved on a machine.
#[derive(Clone, Debug)]
pub struct PreparedCell {
    /// The cell.
    pub plan: CellPlan,
    /// Its loads, or why it cannot run here (its treatments included).
    pub loads: Result<Vec<PreparedLoad>, String>,
}

/// A load resolved on a machine.
#[derive(Clone, Debug)]
pub struct PreparedLoad {
    /// Its name in the plan.
    pub name: String,
    /// What it does.
    pub spec: LoadSpec,
    /// Unit of its rate.
    pub unit: String,
}

/// Resolves `plan` on the machine of `facts`.
///
/// # Errors
/// [`RunError`] when the target or a probe cannot be resolved, or no cell can run. A load that cannot run here only
/// skips its cells.
pub fn prepare(plan: Plan, facts: Facts, strict: bool) -> Result<Experiment, RunError> {
    let target = plan.target.cpus.resolve(&facts.cpu_context(), None).map_err(RunError::Target)?;
    let mut warnings = Vec::new();
    let options = Options {
        warmup: plan.warmup,
        duration: plan.duration,
        samples_max: None,
        strict,
        lock_memory: true,
        spikes_kept: SPIKES_KEPT,
    };
    let mut probes: Vec<ProbeSpec> = Vec::new();
    for (index, probe) in plan.probe.iter().enumerate() {
        let (spec, more) =
            resolve(probe, &target, &facts, &options).map_err(|source| RunError::Probe { index, source })?;
        let same_kind = probes.iter().filter(|other| other.name() == spec.name());
        let known: Vec<LaneSpec> = same_kind.flat_map(ProbeSpec::lanes).collect();
        if let Some(LaneSpec { cpu, .. }) = spec.lanes().into_iter().find(|lane| known.contains(lane)) {
            return Err(RunError::ProbeTwice { index, kind: probe.kind(), cpu });
        }
        push_all_once(&mut warnings, more);
        probes.push(spec);
    }
    let noise_floor = noise_floor(&plan, &target, &facts, &options, &mut warnings);
    let cells: Vec<PreparedCell> = plan
        .cell
        .iter()
        .map(|cell| PreparedCell { plan: cell.clone(), loads: loads(cell, &plan, &target, &facts) })
        .collect();
    Experiment { plan, target, probes: groups(probes), noise_floor, cells, warnings, facts }
        .with_something_to_run()
}

/// The stall check beside each cell. Where a busy loop at real-time priority is not possible, it runs as an ordinary
/// task rather than not at all.
fn noise_floor(
    plan: &Plan,
    target: &CpuSet,
    facts: &Facts,
    options: &Options,
    warnings: &mut Vec<Warning>,
) -> Option<ProbeSpec> {
    if plan.noise_floor.0 == 0 {
        return None;
    }
    let options = Options { duration: plan.noise_floor, warmup: Nanos(0), strict: false, ..*options };
    let stall = |policy| {
        let threshold = Threshold::Time(NOISE_FLOOR_THRESHOLD);
        ProbePlan::Stall(StallPlan { threshold, policy, ..StallPlan::default() })
    };
    let resolved = resolve(&stall(Policy::Fifo), target, facts, &options)
        .or_else(|_| resolve(&stall(Policy::Other), target, facts, &options));
    match resolved {
        Ok((spec, _)) => Some(spec),
        Err(error) => {
            let text = format!("the noise floor is not measured: {error}");
            push_once(warnings, Warning::new(WarningCode::NoNoiseFloor, text));
            None
        }
    }
}

/// Puts probes that share no CPU with each other into one group, keeping their order. Companions are in every group.
fn groups(probes: Vec<ProbeSpec>) -> Vec<Vec<ProbeSpec>> {
    let (companions, probes): (Vec<ProbeSpec>, Vec<ProbeSpec>) =
        probes.into_iter().partition(ProbeSpec::is_companion);
    if probes.is_empty() {
        return companions.into_iter().map(|companion| vec![companion]).collect();
    }
    let mut groups: Vec<Vec<ProbeSpec>> = Vec::new();
    for probe in probes {
        let fits = |group: &Vec<ProbeSpec>| {
            group.iter().all(|other| other.cpus.intersection(&probe.cpus).is_empty())
        };
        match groups.last_mut().filter(|group| fits(group)) {
            Some(group) => group.push(probe),
            None => groups.push(vec![probe]),
        }
    }
    for group in &mut groups {
        group.extend(companions.iter().cloned());
        keep_off_measured(group);
    }
    groups
}

/// Threads that do not measure leave alone the CPUs of every probe that measures at that time, where others are left.
fn keep_off_measured(group: &mut [ProbeSpec]) {
    let probes = group.iter().filter(|spec| !spec.is_companion());
    let measured: CpuSet = probes.flat_map(|spec| spec.cpus.iter()).collect();
    for spec in group {
        let others = spec.other_cpus.difference(&measured);
        if !others.is_empty() {
            spec.other_cpus = others;
        }
    }
}

fn loads(cell: &CellPlan, plan: &Plan, target: &CpuSet, facts: &Facts) -> Result<Vec<PreparedLoad>, String> {
    let named = cell.loads.iter().filter_map(|name| plan.load(name));
    named
        .map(|load| {
            let prepared = prepare_load(load, target, facts)
                .map_err(|reason| format!("load `{}`: {reason}", load.name))?;
            prepared.spec.validate().map_err(|error| format!("load `{}`: {error}", load.name))?;
            Ok(prepared)
        })
        .collect()
}

fn prepare_load(load: &LoadPlan, target: &CpuSet, facts: &Facts) -> Result<PreparedLoad, String> {
    let (work, unit) = match &load.kind {
        LoadKind::Memory(memory) => {
            let spec = memory_spec(memory, target, facts)?;
            (LoadWork::Memory(spec), "bytes_per_s".to_owned())
        }
        LoadKind::Exec(exec) => {
            let spec = exec_spec(exec, target, facts).map_err(|error| error.to_string())?;
            (LoadWork::Exec(spec), exec.rate_unit.clone())
        }
        kind => {
            let spec = event_spec(kind, target, facts)?;
            let unit = spec.kind.unit().to_owned();
            (LoadWork::Events(spec), unit)
        }
    };
    Ok(PreparedLoad { name: load.name.clone(), spec: LoadSpec::new(work), unit })
}

fn memory_spec(memory: &MemoryPlan, target: &CpuSet, facts: &Facts) -> Result<MemorySpec, String> {
    let cpus = memory.cpus.resolve(&facts.cpu_context(), Some(target)).map_err(|error| error.to_string())?;
    Ok(MemorySpec {
        working_set: working_set(memory, &cpus, facts).map_err(|error| error.to_string())?,
        cpus,
        access: memory.access,
        huge_pages: memory.huge_pages,
        node: memory.node,
        pace: memory.rate,
    })
}

/// Loads of single acts; the others have been taken already.
fn event_spec(load: &LoadKind, target: &CpuSet, facts: &Facts) -> Result<EventSpec, String> {
    let (kind, cpus, victims, pace) = match load {
        LoadKind::Tlb(tlb) => (EventKind::Tlb, &tlb.cpus, Some(&tlb.victims), tlb.rate),
        LoadKind::Ipi(ipi) => (EventKind::Ipi(ipi.reach), &ipi.cpus, Some(&ipi.victims), ipi.rate),
        LoadKind::Pageattr(buffers) => (EventKind::Pageattr, &buffers.cpus, None, buffers.rate),
        LoadKind::Softirq(packets) => (EventKind::Softirq, &packets.cpus, None, packets.rate),
        LoadKind::IrqThread(irq) => (EventKind::IrqThread(irq.source), &irq.cpus, None, irq.rate),
        LoadKind::Memory(_) | LoadKind::Exec(_) => {
            return Err(format!("`{}` is not made of single acts", load.kind()));
        }
    };
    let context = facts.cpu_context();
    let resolve =
        |cpus: &CpuSelector| cpus.resolve(&context, Some(target)).map_err(|error| error.to_string());
    let victims = victims.map(resolve).transpose()?.unwrap_or_default();
    Ok(EventSpec { kind, cpus: resolve(cpus)?, victims, pace })
}

/// The size on the CPU where it is largest: on a hybrid processor `l3*4` has to be above every L3 that is loaded.
fn working_set(memory: &MemoryPlan, cpus: &CpuSet, facts: &Facts) -> Result<Bytes, SizeError> {
    let mut largest = Bytes(0);
    for cpu in cpus.iter() {
        if let Some(cpu_facts) = facts.cpu(cpu) {
            largest = largest.max(memory.working_set.resolve(cpu_facts)?);
        }
    }
    Ok(largest)
}

fn exec_spec(exec: &ExecPlan, target: &CpuSet, facts: &Facts) -> Result<ExecSpec, CpuError> {
    let resolve = |cpus: &CpuSelector| cpus.resolve(&facts.cpu_context(), Some(target));
    Ok(ExecSpec {
        command: exec.command.clone(),
        cpus: exec.cpus.as_ref().map(resolve).transpose()?,
        // Set for each repeat: its place in the run directory.
        output: PathBuf::new(),
        rate_pattern: exec.rate_pattern.clone(),
        rate_unit: exec.rate_unit.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::plan::Source;

    #[test]
    fn threads_that_do_not_measure_keep_off_all_probes_that_measure_together() {
        let other_cpus = |online: &str| -> Vec<String> {
            let text = "name = \"t\"\n[target]\ncpus = \"1-2\"\n\
                        [[probe]]\nkind = \"timer\"\ncpus = \"1\"\n[[probe]]\nkind = \"stall\"\ncpus = \"2\"\n\
                        [[probe]]\nkind = \"histograms\"\ncpus = \"0-1\"\n";
            let mut facts = Facts::default();
            let sets = &mut facts.cpu_sets;
            for set in [&mut sets.present, &mut sets.online, &mut sets.allowed] {
                *set = online.parse().unwrap();
            }
            let plan = Plan::parse(&Source { name: "t.toml", text }, &[]).unwrap();
            let experiment = prepare(plan, facts, false).unwrap();
            experiment.probes[0].iter().map(|spec| spec.other_cpus.to_string()).collect()
        };
        assert_eq!(other_cpus("0-3"), ["0,3", "0,3", "3"]);
        // Nothing is left for the histograms: rather beside a probe than nowhere.
        assert_eq!(other_cpus("0-2"), ["0", "0", "2"]);
    }
}
