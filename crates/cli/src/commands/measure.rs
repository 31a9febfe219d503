//! `whylate measure`.

use crate::arguments::{
    DispatchArguments, MeasureCommand, ProbeArguments, RoundtripArguments, StallArguments, TimerArguments,
    or_endless,
};
use crate::exit::Ending;
use crate::figures::{Collected, Figures};
use crate::hook::Hook;
use crate::progress::Meter;
use crate::{machine, output, signals};
use anyhow::{Context, Result, anyhow, bail};
use whylate_bpf::{FindsCauses, find_causes};
use whylate_core::plan::{
    DispatchPlan, Policy, ProbePlan, RoundtripPlan, StallPlan, TimerPlan, check_period,
};
use whylate_core::result::{MEASURE_FORMAT, MeasureResult};
use whylate_core::{CpuSelector, CpuSet, Facts, Nanos, Warning, WarningCode};
use whylate_host::facts::{self, preflight};
use whylate_host::{Host, HostRoot};
use whylate_probe::{Options, ProbeSpec, measure, resolve};
use whylate_runner::CauseSearch;
use whylate_stats::summary::SPIKES_KEPT;

pub(super) fn execute(command: MeasureCommand, host: &Host) -> Result<Ending> {
    let (facts, warnings) = facts::collect(&host.running);
    match command {
        MeasureCommand::Timer(arguments) => {
            let cpus = timer_cpus(&arguments, &facts)?;
            check_period(arguments.interval).map_err(|message| anyhow!("--interval {message}"))?;
            let plan = ProbePlan::Timer(TimerPlan {
                cpus: None,
                interval: arguments.interval,
                distance: arguments.distance,
                priority: arguments.probe.priority,
                policy: arguments.probe.policy,
                method: arguments.method,
                break_above: arguments.break_above,
                hold_cpu_dma_latency: !arguments.probe.no_cpu_dma_latency,
            });
            run(&host.running, &plan, &cpus, facts, warnings, arguments.until_samples, arguments.probe)
        }
        MeasureCommand::Stall(arguments) => {
            let cpus = machine::cpus("--cpu", &arguments.cpu, &facts)?;
            let plan = stall_plan(&arguments)?;
            run(&host.running, &plan, &cpus, facts, warnings, None, arguments.probe)
        }
        MeasureCommand::Dispatch(arguments) => {
            let cpus = machine::cpus("--cpu", &arguments.cpu, &facts)?;
            let plan = dispatch_plan(&arguments)?;
            run(&host.running, &plan, &cpus, facts, warnings, Some(arguments.samples), arguments.probe)
        }
        MeasureCommand::Roundtrip(arguments) => {
            let target = machine::cpus("--cpus", &CpuSelector::Last, &facts)?;
            let plan = roundtrip_plan(&arguments)?;
            run(&host.running, &plan, &target, facts, warnings, arguments.samples, arguments.probe)
        }
    }
}

/// Only the timer probe can run as SCHED_DEADLINE.
fn check_policy(policy: Policy) -> Result<()> {
    if policy == Policy::Deadline {
        bail!("--policy deadline: only the timer probe can run as SCHED_DEADLINE; choose fifo, rr or other");
    }
    Ok(())
}

fn dispatch_plan(arguments: &DispatchArguments) -> Result<ProbePlan> {
    check_policy(arguments.probe.policy)?;
    let plan = DispatchPlan {
        cpus: None,
        source: arguments.source,
        interval: arguments.interval,
        samples: None,
        priority: arguments.probe.priority,
        policy: arguments.probe.policy,
        break_above: arguments.break_above,
        hold_cpu_dma_latency: !arguments.probe.no_cpu_dma_latency,
        parts: !arguments.no_parts,
    };
    if let Err(reason) = plan.period() {
        bail!("--interval: {reason}");
    }
    Ok(ProbePlan::Dispatch(plan))
}

fn roundtrip_plan(arguments: &RoundtripArguments) -> Result<ProbePlan> {
    check_policy(arguments.probe.policy)?;
    if arguments.probe.on_threshold.is_some() {
        bail!("--on-threshold: a round trip has no threshold");
    }
    if arguments.probe.duration.0 == 0 && arguments.samples.is_none() && arguments.method.iter().count() > 1 {
        bail!("--duration 0: several methods share the duration; give --samples, or one --method");
    }
    Ok(ProbePlan::Roundtrip(RoundtripPlan {
        cpus: arguments.cpus,
        method: arguments.method.clone(),
        samples: None,
        priority: arguments.probe.priority,
        policy: arguments.probe.policy,
        hold_cpu_dma_latency: !arguments.probe.no_cpu_dma_latency,
    }))
}

fn stall_plan(arguments: &StallArguments) -> Result<ProbePlan> {
    if arguments.probe.policy == Policy::Deadline {
        bail!(
            "--policy deadline: a loop that never sleeps cannot run as SCHED_DEADLINE; choose fifo, rr or other"
        );
    }
    Ok(ProbePlan::Stall(StallPlan {
        cpus: None,
        threshold: arguments.threshold,
        priority: arguments.probe.priority,
        policy: arguments.probe.policy,
        working_set: arguments.working_set,
        hold_cpu_dma_latency: !arguments.probe.no_cpu_dma_latency,
    }))
}

/// What cyclictest's -a, -t and -S mean for a probe with one thread on each CPU.
fn timer_cpus(arguments: &TimerArguments, facts: &Facts) -> Result<CpuSet> {
    let several = arguments.smp || arguments.threads.is_some_and(|threads| threads != 1);
    let default = if several { CpuSelector::All } else { CpuSelector::Last };
    let cpus = machine::cpus("--cpu", arguments.cpu.as_ref().unwrap_or(&default), facts)?;
    match arguments.threads {
        None | Some(0) => Ok(cpus),
        Some(threads) if threads <= cpus.len() => Ok(cpus.iter().take(threads).collect()),
        Some(threads) => bail!(
            "--threads {threads}: there is one thread on each CPU, and --cpu names only {} ({cpus})",
            cpus.len()
        ),
    }
}

fn run(
    host: &HostRoot,
    plan: &ProbePlan,
    cpus: &CpuSet,
    facts: Facts,
    mut warnings: Vec<Warning>,
    samples_max: Option<u64>,
    arguments: ProbeArguments,
) -> Result<Ending> {
    let duration = or_endless(arguments.duration);
    let options = Options {
        warmup: arguments.warmup,
        duration,
        samples_max,
        strict: arguments.strict,
        lock_memory: true,
        spikes_kept: arguments.spikes.max(SPIKES_KEPT),
    };
    let (spec, more) = resolve(plan, cpus, &facts, &options)?;
    warnings.extend(preflight(&facts, &spec.cpus));
    warnings.extend(more);
    let meter = Meter::new(arguments.printing.quiet || arguments.printing.json, duration);
    let hook = Hook::new(arguments.on_threshold);
    let causes = arguments.causes.then(|| cause_finder(host, &spec, &facts)).transpose()?;
    if let Some(causes) = &causes {
        warnings.extend_from_slice(causes.warnings());
    }
    let figures = Figures::new(&spec, arguments.spikes, meter, hook, signals::watch()?);
    let causes = causes.map(CauseSearch::new).unwrap_or_default();
    let mut figures = figures.with_causes(causes);
    let stored = Nanos((duration.0 / 60).clamp(1_000_000_000, 60_000_000_000));
    let outcome = measure(host, &machine::launcher()?, &spec, stored, &mut figures)
        .with_context(|| format!("measuring {} on CPU {}", spec.name(), spec.cpus))?;
    // What the preflight has found already needs not be said again in other words.
    warnings = outcome.warnings.into_iter().fold(warnings, |mut known, warning| {
        if !known.iter().any(|other| other.code == warning.code) {
            known.push(warning);
        }
        known
    });
    let is_realtime = !warnings.iter().any(|warning| warning.code == WarningCode::NoRealtimePriority)
        && matches!(spec.policy, Policy::Fifo | Policy::Rr);
    let Collected { probe, interrupts, counters, ipis, losses } =
        figures.finish(&spec, &facts, is_realtime, arguments.spikes);
    warnings.extend(losses);
    let broke = outcome.broke.is_some();
    let format = MEASURE_FORMAT.to_owned();
    let result = MeasureResult { format, facts, probe, interrupts, ipis, counters, warnings, broke };
    if arguments.printing.json {
        output::print_json(&result)?;
    } else {
        output::print(&whylate_report::measure(&result)?.terminal(output::style()))?;
    }
    Ok(if broke { Ending::Exceeded } else { Ending::Pass })
}

/// Begins to record what takes the measured CPUs, which the user has asked for.
fn cause_finder(host: &HostRoot, spec: &ProbeSpec, facts: &Facts) -> Result<Box<dyn FindsCauses>> {
    let measured =
        whylate_runner::measured(spec).context("--causes: this probe does not tell when its spikes were")?;
    find_causes(host, &[measured], facts).context("--causes")
}
