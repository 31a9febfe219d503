//! `whylate measure`.

use crate::arguments::{
    DispatchArguments, MeasureCommand, ProbeArguments, RoundtripArguments, StallArguments, TimerArguments,
    or_endless,
};
use crate::exit::Ending;
use crate::screen::Screen;
use crate::{machine, output, signals};
use anyhow::{Result, bail};
use whylate_core::plan::{DispatchPlan, ProbePlan, RoundtripPlan, StallPlan, TimerPlan};
use whylate_core::{CpuSelector, CpuSet, Facts, Warning};
use whylate_host::{Host, facts};
use whylate_runner::{ProbeAlone, RunError};

pub(super) fn execute(command: MeasureCommand, host: &Host) -> Result<Ending> {
    let (facts, warnings) = facts::collect(&host.running);
    match command {
        MeasureCommand::Timer(arguments) => {
            let cpus = timer_cpus(&arguments, &facts)?;
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
            run(host, plan, cpus, facts, warnings, arguments.until_samples, arguments.probe)
        }
        MeasureCommand::Stall(arguments) => {
            let cpus = machine::cpus("--cpu", &arguments.cpu, &facts)?;
            let plan = stall_plan(&arguments);
            run(host, plan, cpus, facts, warnings, None, arguments.probe)
        }
        MeasureCommand::Dispatch(arguments) => {
            let cpus = machine::cpus("--cpu", &arguments.cpu, &facts)?;
            let plan = dispatch_plan(&arguments);
            run(host, plan, cpus, facts, warnings, Some(arguments.samples), arguments.probe)
        }
        MeasureCommand::Roundtrip(arguments) => {
            let target = machine::cpus("--cpus", &CpuSelector::Last, &facts)?;
            let plan = roundtrip_plan(&arguments)?;
            run(host, plan, target, facts, warnings, arguments.samples, arguments.probe)
        }
    }
}

fn dispatch_plan(arguments: &DispatchArguments) -> ProbePlan {
    ProbePlan::Dispatch(DispatchPlan {
        cpus: None,
        source: arguments.source,
        interval: arguments.interval,
        samples: None,
        priority: arguments.probe.priority,
        policy: arguments.probe.policy,
        break_above: arguments.break_above,
        hold_cpu_dma_latency: !arguments.probe.no_cpu_dma_latency,
        parts: !arguments.no_parts,
    })
}

fn roundtrip_plan(arguments: &RoundtripArguments) -> Result<ProbePlan> {
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

fn stall_plan(arguments: &StallArguments) -> ProbePlan {
    ProbePlan::Stall(StallPlan {
        cpus: None,
        threshold: arguments.threshold,
        priority: arguments.probe.priority,
        policy: arguments.probe.policy,
        working_set: arguments.working_set,
        hold_cpu_dma_latency: !arguments.probe.no_cpu_dma_latency,
    })
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
    host: &Host,
    plan: ProbePlan,
    cpus: CpuSet,
    facts: Facts,
    warnings: Vec<Warning>,
    samples_max: Option<u64>,
    arguments: ProbeArguments,
) -> Result<Ending> {
    let duration = or_endless(arguments.duration);
    let asked = ProbeAlone {
        plan,
        cpus,
        duration,
        interval: None,
        warmup: arguments.warmup,
        samples_max,
        spikes_kept: arguments.spikes,
        strict: arguments.strict,
        causes: arguments.causes,
        trace_folder: None,
    };
    let quiet = arguments.printing.quiet || arguments.printing.json;
    let mut screen = Screen::of_one(quiet, duration, arguments.on_threshold, signals::watch()?);
    let result = whylate_runner::measure(&asked, facts, warnings, &machine::real(host)?, &mut screen);
    screen.finish();
    let result = match result {
        Err(error @ RunError::Causes(_)) => return Err(anyhow::Error::new(error).context("--causes")),
        other => other?,
    };
    if arguments.printing.json {
        output::print_json(&result)?;
    } else {
        output::drawn(&whylate_report::measure(&result)?.terminal(output::style()))?;
    }
    Ok(if result.broke { Ending::Exceeded } else { Ending::Pass })
}
