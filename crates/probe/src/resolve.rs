//! From a probe in a plan to one on this machine.

mod roundtrip;

use crate::error::ProbeError;
use crate::spec::{ProbeKind, ProbeSpec};
use whylate_core::plan::{DispatchPlan, DispatchSource, Policy, ProbePlan, StallPlan, Threshold, TimerPlan};
use whylate_core::{CpuSet, Facts, Nanos, Warning, WarningCode};
use whylate_sys::counter::CounterKind;

/// What is not part of the probe in the plan.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long each thread runs before its samples count.
    pub warmup: Nanos,
    /// How long the samples count.
    pub duration: Nanos,
    /// Ends earlier, after that many samples of a series on a CPU (not stall); goes before the plan's own number.
    pub samples_max: Option<u64>,
    /// Fail instead of warn when the policy or locked memory is refused.
    pub strict: bool,
    /// Whether memory is locked.
    pub lock_memory: bool,
    /// How many of the largest spikes of each CPU are kept.
    pub spikes_kept: usize,
}

/// How long the time-stamp counter is compared with the kernel's clock.
pub(super) const CALIBRATION: Nanos = Nanos::from_millis(50);

/// Resolves CPUs, threshold and sizes on the machine of `facts`, and decides what is safe there.
///
/// # Errors
/// [`ProbeError`] for CPUs that are not there, and for a stall probe that would leave no housekeeping CPU.
pub fn resolve(
    plan: &ProbePlan,
    target: &CpuSet,
    facts: &Facts,
    options: &Options,
) -> Result<(ProbeSpec, Vec<Warning>), ProbeError> {
    let context = facts.cpu_context();
    let cpus = plan.cpus(&context, target)?;
    let (mut policy, priority) = plan.scheduling();
    let mut warnings = Vec::new();
    let (kind, samples, hold_cpu_dma_latency) = match plan {
        ProbePlan::Timer(timer) => (timer_kind(timer), None, timer.hold_cpu_dma_latency),
        ProbePlan::Stall(stall) => {
            let kind = stall_kind(stall, &cpus, facts, &mut warnings)?;
            policy = stall_policy(stall.policy, &cpus, facts, &mut warnings)?;
            (kind, None, stall.hold_cpu_dma_latency)
        }
        ProbePlan::Dispatch(dispatch) => {
            let kind = dispatch_kind(dispatch, &cpus, facts, &mut warnings)?;
            (kind, dispatch.samples, dispatch.hold_cpu_dma_latency)
        }
        ProbePlan::Roundtrip(roundtrip) => {
            let pair = roundtrip.pair(&context, target)?;
            let kind = roundtrip::kind(roundtrip, pair, facts, &mut warnings)?;
            policy = roundtrip::policy(policy, pair, &context, &mut warnings);
            (kind, roundtrip.samples, roundtrip.hold_cpu_dma_latency)
        }
        ProbePlan::Histograms(plan) => (ProbeKind::Histograms { plan: plan.clone() }, None, false),
        ProbePlan::Tracer(tracer) => (ProbeKind::Tracer { plan: tracer.clone() }, None, false),
    };
    let spec = ProbeSpec {
        kind,
        other_cpus: other_cpus(&context, &cpus),
        cpus,
        policy,
        priority,
        warmup: options.warmup,
        duration: options.duration,
        samples_max: options.samples_max.or(samples),
        strict: options.strict,
        lock_memory: options.lock_memory,
        spikes_kept: options.spikes_kept,
        hold_cpu_dma_latency,
        trace_folder: None,
    };
    Ok((spec, warnings))
}

/// Where the threads that do not measure run: housekeeping CPUs if there are any, else whatever is left.
fn other_cpus(context: &whylate_core::CpuContext, cpus: &CpuSet) -> CpuSet {
    let housekeeping = context.housekeeping().intersection(&context.allowed).difference(cpus);
    if housekeeping.is_empty() { context.usable().difference(cpus) } else { housekeeping }
}

fn timer_kind(timer: &TimerPlan) -> ProbeKind {
    ProbeKind::Timer {
        interval: timer.interval,
        distance: timer.distance,
        method: timer.method,
        break_above: timer.break_above,
    }
}

fn dispatch_kind(
    dispatch: &DispatchPlan,
    cpus: &CpuSet,
    facts: &Facts,
    warnings: &mut Vec<Warning>,
) -> Result<ProbeKind, ProbeError> {
    let source = dispatch.source;
    let interval = dispatch.period().map_err(ProbeError::Period)?;
    let is_own_timer = matches!(source, DispatchSource::Timerfd | DispatchSource::Nanosleep);
    if !is_own_timer && cpus.len() > 1 {
        return Err(ProbeError::OneCpuOnly { source_of_interrupts: source, cpus: cpus.clone() });
    }
    let in_softirq = matches!(source, DispatchSource::Timerfd | DispatchSource::Rtc);
    if in_softirq && facts.kernel.preemption == "PREEMPT_RT" {
        warnings.push(Warning::new(WarningCode::ExpiryInSoftirq, format!(
                "a PREEMPT_RT kernel handles the expiry of {source} in its timer softirq thread: the latency includes \
                 waking that thread"
            )));
    }
    if !source.tells_expiry() {
        warnings.push(Warning::new(WarningCode::ExpiryUnknown, format!(
                "{source} does not tell for which moment its interrupt was programmed: a latency is how much later \
                 than the earliest of the last 64 interrupts the process ran, and the smallest latency is not in it"
            )));
    }
    Ok(ProbeKind::Dispatch { source, interval, break_above: dispatch.break_above, parts: dispatch.parts })
}

fn stall_kind(
    stall: &StallPlan,
    cpus: &CpuSet,
    facts: &Facts,
    warnings: &mut Vec<Warning>,
) -> Result<ProbeKind, ProbeError> {
    let counter = CounterKind::select(facts);
    if counter == CounterKind::KernelClock {
        warnings.push(Warning::new(
            WarningCode::NoInvariantCounter,
            "the time-stamp counter does not run at a constant rate here: the stall probe reads \
             CLOCK_MONOTONIC_RAW instead, and its loop turns are longer",
        ));
    }
    let calibration = counter.calibrate(CALIBRATION);
    let threshold_cycles = match stall.threshold {
        Threshold::Time(nanos) => calibration.cycles(nanos).0,
        Threshold::Cycles(cycles) => cycles.0,
    };
    let mut working_set_bytes = 0;
    if let Some(size) = &stall.working_set {
        for cpu in cpus.iter() {
            if let Some(cpu_facts) = facts.cpu(cpu) {
                working_set_bytes = working_set_bytes.max(size.resolve(cpu_facts)?.0);
            }
        }
    }
    Ok(ProbeKind::Stall {
        hardware_counter: counter == CounterKind::Hardware,
        multiplier: calibration.multiplier,
        threshold_cycles: threshold_cycles.max(1),
        working_set_bytes,
    })
}

/// A loop that never sleeps must not take the last CPU at real-time priority.
fn stall_policy(
    policy: Policy,
    cpus: &CpuSet,
    facts: &Facts,
    warnings: &mut Vec<Warning>,
) -> Result<Policy, ProbeError> {
    let context = facts.cpu_context();
    if policy == Policy::Other || !context.housekeeping().difference(cpus).is_empty() {
        return Ok(policy);
    }
    if context.online.len() > 1 {
        return Err(ProbeError::NoHousekeepingCpu { cpus: cpus.clone() });
    }
    warnings.push(Warning::new(WarningCode::StallWithoutPriority, "there is only one CPU: the stall probe runs as SCHED_OTHER, and the time that other tasks take shows as gaps"));
    Ok(Policy::Other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::facts::CpuSetFacts;

    fn facts(online: &str, isolated: &str) -> Facts {
        let set = |text: &str| text.parse().unwrap();
        let cpu_sets = CpuSetFacts {
            present: set(online),
            online: set(online),
            isolated: set(isolated),
            allowed: set(online),
            ..CpuSetFacts::default()
        };
        Facts { cpu_sets, ..Facts::default() }
    }

    fn stall_on(cpus: &str, facts: &Facts) -> Result<(ProbeSpec, Vec<Warning>), ProbeError> {
        let options = Options {
            warmup: Nanos(0),
            duration: Nanos::from_secs(1),
            samples_max: None,
            strict: false,
            lock_memory: true,
            spikes_kept: 32,
        };
        resolve(&ProbePlan::Stall(StallPlan::default()), &cpus.parse().unwrap(), facts, &options)
    }

    #[test]
    fn a_busy_loop_never_takes_the_last_housekeeping_cpu() {
        assert!(matches!(stall_on("0-1", &facts("0-1", "")), Err(ProbeError::NoHousekeepingCpu { .. })));
        assert!(matches!(stall_on("0", &facts("0-3", "1-3")), Err(ProbeError::NoHousekeepingCpu { .. })));
        let (spec, _) = stall_on("1-3", &facts("0-3", "1-3")).unwrap();
        assert_eq!((spec.policy, spec.other_cpus), (Policy::Fifo, "0".parse().unwrap()));
    }

    #[test]
    fn with_one_cpu_it_runs_as_an_ordinary_task_and_says_so() {
        let (spec, warnings) = stall_on("0", &facts("0", "")).unwrap();
        assert_eq!(spec.policy, Policy::Other);
        assert!(warnings.iter().any(|warning| warning.code == WarningCode::StallWithoutPriority));
    }
}
