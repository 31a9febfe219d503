//! From a probe in a plan to one on this machine.

use crate::error::ProbeError;
use crate::kinds::{Place, ProbeKind};
use crate::spec::ProbeSpec;
use whylate_core::plan::ProbePlan;
use whylate_core::{CpuSet, Facts, Nanos, Warning};

/// What is not part of the probe in the plan.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long each thread runs before its samples count.
    pub warmup: Nanos,
    pub duration: Nanos,
    /// Fail instead of warn when the policy or locked memory is refused.
    pub strict: bool,
    pub lock_memory: bool,
    /// How many of the largest spikes of each CPU are kept.
    pub spikes_kept: usize,
}

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
    let (policy, priority) = plan.scheduling();
    let (samples, warnings) = (None, Vec::new());
    let mut place =
        Place { target, cpus: &cpus, facts, policy, samples, hold_cpu_dma_latency: false, warnings };
    let kind = ProbeKind::resolve(plan, &mut place)?;
    let Place { policy, samples, hold_cpu_dma_latency, warnings, .. } = place;
    let spec = ProbeSpec {
        kind,
        other_cpus: other_cpus(&context, &cpus),
        cpus,
        policy,
        priority,
        warmup: options.warmup,
        duration: options.duration,
        samples_max: samples,
        strict: options.strict,
        lock_memory: options.lock_memory,
        spikes_kept: options.spikes_kept,
        late_above: None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::WarningCode;
    use whylate_core::facts::CpuSetFacts;
    use whylate_core::plan::{Policy, StallPlan};

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
