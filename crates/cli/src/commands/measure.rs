//! `whylate measure`.

use super::run;
use crate::arguments::{MeasureCommand, RunArguments, Threads, or_endless};
use crate::exit::Ending;
use crate::screen::Screen;
use crate::{machine, output, signals};
use anyhow::{Context as _, Result, bail};
use std::sync::atomic::Ordering;
use whylate_core::plan::{Plan, ProbePlan, Target};
use whylate_core::{CpuSelector, CpuSet, Facts, Nanos, Warning, WarningCode};
use whylate_host::{Host, facts};
use whylate_record::Tracefs;
use whylate_runner::{ProbeAlone, RunError};

pub(super) fn execute(command: MeasureCommand, host: &Host) -> Result<Ending> {
    let whole = command.plan()?;
    let plan = whole.probe.first().cloned().context("no probe")?;
    let has_samples = command.has("samples");
    let arguments = command.run;
    let (facts, warnings) = facts::collect(&host.running);
    let cpus = match &arguments.threads {
        Some(threads) => cpus_of_threads(threads, &facts)?,
        None => machine::cpus("--cpus", &CpuSelector::Last, &facts)?,
    };
    if arguments.threads.is_none() && arguments.on_threshold.is_some() {
        bail!("--on-threshold: the probe {} has no threshold", plan.kind());
    }
    if arguments.on_threshold.is_some() && !whole.probe.iter().any(ProbePlan::has_threshold) {
        bail!("--on-threshold: without --break, no latency starts the command; give --break");
    }
    if arguments.duration.0 == 0 && !has_samples && plan.series_names().len() > 1 {
        bail!("--duration 0: a probe with several series needs an end; give a duration or --samples");
    }
    if let Some(path) = arguments.output {
        if arguments.duration.0 == 0 {
            bail!("--output: a run without an end cannot be stored; give --duration");
        }
        let plan = Plan {
            name: "measure".to_owned(),
            duration: arguments.duration,
            warmup: arguments.warmup,
            repeats: 1,
            noise_floor: Nanos(0),
            causes: arguments.causes,
            causes_from: arguments.causes_from,
            target: Target { cpus: CpuSelector::List(cpus) },
            ..whole
        };
        let kept = RunArguments {
            output: Some(path),
            strict: arguments.strict,
            on_threshold: arguments.on_threshold,
            printing: arguments.printing,
            ..RunArguments::default()
        };
        // The document is that of a measurement, whether it is stored or not.
        return run::of_plan(plan, &kept, host, |path, run| {
            output::print_json(&whylate_runner::measure_of_run(path, run, arguments.spikes)?)
        });
    }
    let trace_folder = match arguments.tracemark {
        true => Some(Tracefs::find(&host.running).context("--tracemark")?.top().to_owned()),
        false => None,
    };
    let duration = or_endless(arguments.duration);
    let asked = ProbeAlone {
        plan,
        cpus,
        duration,
        interval: None,
        warmup: arguments.warmup,
        spikes_kept: arguments.spikes,
        strict: arguments.strict,
        causes: arguments.causes,
        causes_from: arguments.causes_from,
        trace_folder,
    };
    let quiet = arguments.printing.quiet || arguments.printing.json;
    let asked_to_stop = signals::watch()?;
    let mut screen = Screen::of_one(quiet, duration, arguments.on_threshold, asked_to_stop.clone());
    let result = whylate_runner::measure(&asked, facts, warnings, &machine::real(host)?, &mut screen);
    screen.finish();
    let mut result = match result {
        Err(error @ RunError::Causes(_)) => return Err(anyhow::Error::new(error).context("--causes")),
        other => other?,
    };
    if result.broke && arguments.tracemark {
        let text = "tracing was stopped at the break, so the trace ends with the spike; tracing is still off";
        result.warnings.push(Warning::new(WarningCode::TracingStopped, text));
    }
    if arguments.printing.json {
        output::print_json(&result)?;
    } else {
        let page = whylate_report::measure(&result)?.detailed(arguments.details);
        output::drawn(&page.terminal(output::style()))?;
    }
    if let Some(error) = &result.error {
        output::message(&format!("whylate: {error}"));
        return Ok(Ending::Incomplete);
    }
    // Without a length, a signal is the only end.
    if arguments.duration.0 > 0 && !result.broke && asked_to_stop.load(Ordering::Relaxed) {
        output::message(&format!(
            "whylate: the measurement was stopped before {} had passed",
            arguments.duration
        ));
        return Ok(Ending::Incomplete);
    }
    Ok(if result.broke { Ending::Exceeded } else { Ending::Pass })
}

/// The meaning of cyclictest's -a, -t and -S for a probe with one thread on each CPU.
fn cpus_of_threads(arguments: &Threads, facts: &Facts) -> Result<CpuSet> {
    let several = arguments.smp || arguments.threads.is_some_and(|threads| threads != 1);
    let default = if several { CpuSelector::All } else { CpuSelector::Last };
    let cpus = machine::cpus("--cpu", arguments.cpu.as_ref().unwrap_or(&default), facts)?;
    match arguments.threads {
        None | Some(0) => Ok(cpus),
        Some(threads) if threads <= cpus.len() => Ok(cpus.iter().take(threads).collect()),
        Some(threads) => bail!(
            "--threads {threads}: each thread needs its own CPU, and --cpu names only {} ({cpus})",
            cpus.len()
        ),
    }
}
