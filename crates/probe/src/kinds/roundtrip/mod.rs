//! The round-trip probe on this machine: which methods two CPUs can use, with which counter, at which priority.

mod exchange;

pub(crate) use exchange::Exchange;

use super::{CALIBRATION, Kind, Place, Resolve, Station, with_parts};
use crate::child::{Team, Worker};
use crate::error::ProbeError;
use serde::{Deserialize, Serialize};
use whylate_core::plan::{CpuPair, Policy, RoundtripMethod, RoundtripPlan};
use whylate_core::quantity::{COUNTER_HZ, PEER_CPU, Quantities};
use whylate_core::{CpuContext, Facts, Nanos, Warning, WarningCode};
use whylate_sys::counter::{Calibration, CounterKind};

/// The round-trip probe on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundtripSpec {
    /// The asking CPU and the answering one.
    pub pair: CpuPair,
    /// How messages travel, one method after another.
    pub methods: Vec<RoundtripMethod>,
    /// A round trip above it stops everything.
    pub break_above: Option<Nanos>,
    /// Whether spinning runs as an ordinary task because it would otherwise take the last housekeeping CPU.
    pub spin_ordinary: bool,
    pub hardware_counter: bool,
    /// Nanoseconds per tick of that counter, times 2^32.
    pub multiplier: u64,
    /// Whether the counters of both CPUs agree, so that each way has a time of its own.
    pub halves: bool,
}

impl Resolve<RoundtripPlan> for RoundtripSpec {
    fn resolve(plan: &RoundtripPlan, place: &mut Place<'_>) -> Result<Self, ProbeError> {
        (place.samples, place.hold_cpu_dma_latency) = (plan.samples, plan.hold_cpu_dma_latency);
        let context = place.facts.cpu_context();
        let pair = plan.pair(&context, place.target)?;
        let spec = kind(plan, pair, place.facts, &mut place.warnings)?;
        place.policy = policy(place.policy, pair, &context, &mut place.warnings);
        Ok(spec)
    }
}

impl Kind for RoundtripSpec {
    fn name(&self) -> &'static str {
        "roundtrip"
    }

    fn break_above(&self) -> Option<Nanos> {
        self.break_above
    }

    fn series(&self) -> Vec<Option<String>> {
        let ways: &[&str] = if self.halves { &["there", "back"] } else { &[] };
        self.methods.iter().flat_map(|method| with_parts(method.name(), ways)).collect()
    }

    fn pair(&self) -> Option<CpuPair> {
        Some(self.pair)
    }

    fn quantities(&self) -> Quantities {
        let counter_hz = Calibration::of_multiplier(self.multiplier).frequency.0;
        Quantities::default().with(COUNTER_HZ, counter_hz).with(PEER_CPU, u64::from(self.pair.to.0))
    }

    fn exchange(&self, team: &Team<'_>) -> Option<Exchange> {
        Some(Exchange::new(self, team))
    }

    fn worker<'a>(&self, station: &Station<'a>) -> Option<Box<dyn Worker + 'a>> {
        exchange::worker(station)
    }
}

fn kind(
    plan: &RoundtripPlan,
    pair: CpuPair,
    facts: &Facts,
    warnings: &mut Vec<Warning>,
) -> Result<RoundtripSpec, ProbeError> {
    let methods = methods(plan, pair, warnings)?;
    let leaves_cpu = !facts.cpu_context().housekeeping().difference(&pair.cpus()).is_empty();
    let is_realtime = plan.policy != Policy::Other;
    let spin_ordinary = !leaves_cpu && is_realtime && methods.contains(&RoundtripMethod::Spin);
    if spin_ordinary {
        warnings.push(Warning::new(WarningCode::SpinWithoutPriority, format!(
                "spinning on CPUs {} at real-time priority would leave no housekeeping CPU: the loop runs as SCHED_OTHER, \
                 and the figures include the run time of other tasks",
                pair.cpus()
            )));
    }
    let counter = CounterKind::select(facts);
    let halves = counters_agree(counter, pair, facts);
    if !halves {
        let text = format!(
            "the clock source is {}, not the time-stamp counter, so the counters of CPU {} and CPU {} may differ: only whole round trips are measured",
            facts.clock.source.as_deref().unwrap_or("unknown"),
            pair.from,
            pair.to
        );
        warnings.push(Warning::new(WarningCode::NoOneWayTimes, text));
    }
    Ok(RoundtripSpec {
        pair,
        methods,
        break_above: plan.break_above,
        spin_ordinary,
        hardware_counter: counter == CounterKind::Hardware,
        multiplier: counter.calibrate(CALIBRATION).multiplier,
        halves,
    })
}

/// The methods in order; on one CPU without spinning, which is an error if it is the only requested one.
fn methods(
    plan: &RoundtripPlan,
    pair: CpuPair,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<RoundtripMethod>, ProbeError> {
    let spins = plan.method.contains(RoundtripMethod::Spin);
    if !pair.is_one_cpu() || !spins {
        return Ok(plan.method.iter().collect());
    }
    if !plan.method.is_all() {
        return Err(ProbeError::SpinOnOneCpu { cpu: pair.from });
    }
    warnings.push(Warning::new(
        WarningCode::NoSpinOnOneCpu,
        format!(
            "the method spin is left out: on CPU {} alone, its waiting loop would block the answering loop",
            pair.from
        ),
    ));
    Ok(plan.method.iter().filter(|method| *method != RoundtripMethod::Spin).collect())
}

/// Whether moments on the two CPUs can be compared. The kernel uses the counter as its clock source only if it is in step on
/// all CPUs; the kernel's own clock is in step by definition.
fn counters_agree(counter: CounterKind, pair: CpuPair, facts: &Facts) -> bool {
    let source = facts.clock.source.as_deref();
    pair.is_one_cpu()
        || counter == CounterKind::KernelClock
        || source.is_some_and(|source| source == "tsc" || source.starts_with("arch_sys_counter"))
}

/// Two threads on one CPU that never sleep both at once are a busy loop: not at real-time priority on the last
/// housekeeping CPU.
fn policy(policy: Policy, pair: CpuPair, context: &CpuContext, warnings: &mut Vec<Warning>) -> Policy {
    let leaves_cpu = !context.housekeeping().difference(&pair.cpus()).is_empty();
    if leaves_cpu || !pair.is_one_cpu() || policy == Policy::Other {
        return policy;
    }
    warnings.push(Warning::new(WarningCode::RoundtripWithoutPriority, format!(
            "CPU {} is the last housekeeping CPU: both threads run on it as SCHED_OTHER, and the figures include the run \
             time of other tasks",
            pair.from
        )));
    Policy::Other
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::CpuSet;
    use whylate_core::facts::{ClockFacts, CpuSetFacts};

    fn facts(online: &str, source: &str) -> Facts {
        let cpus: CpuSet = online.parse().unwrap();
        let cpu_sets = CpuSetFacts {
            present: cpus.clone(),
            online: cpus.clone(),
            allowed: cpus,
            ..CpuSetFacts::default()
        };
        let source = Some(source.to_owned());
        let clock = ClockFacts { source, counter_invariant: true, ..ClockFacts::default() };
        Facts { cpu_sets, clock, ..Facts::default() }
    }

    fn resolved(online: &str, source: &str, pair: &str, method: &str) -> (RoundtripSpec, Vec<String>) {
        let plan = RoundtripPlan { method: method.parse().unwrap(), ..RoundtripPlan::default() };
        let mut warnings = Vec::new();
        let kind = kind(&plan, pair.parse().unwrap(), &facts(online, source), &mut warnings).unwrap();
        (kind, warnings.into_iter().map(|warning| warning.code).collect())
    }

    #[test]
    fn ways_are_timed_only_where_the_counters_are_in_step() {
        let halves = |kind: RoundtripSpec| kind.halves;
        assert!(halves(resolved("0-3", "tsc", "1,2", "pipe").0));
        let (kind, warnings) = resolved("0-3", "hpet", "1,2", "pipe");
        assert!(!halves(kind) && warnings == ["no-one-way-times"]);
        assert!(halves(resolved("0-3", "hpet", "2,2", "pipe").0), "one CPU has one counter");
    }

    #[test]
    fn spinning_never_takes_the_last_housekeeping_cpu_at_real_time_priority() {
        let ordinary = |kind: RoundtripSpec| kind.spin_ordinary;
        assert!(!ordinary(resolved("0-2", "tsc", "1,2", "spin").0));
        let (kind, warnings) = resolved("0-1", "tsc", "0,1", "all");
        assert!(ordinary(kind) && warnings == ["spin-without-priority"]);
        let mut warnings = Vec::new();
        let context = facts("0", "tsc").cpu_context();
        assert_eq!(policy(Policy::Fifo, "0,0".parse().unwrap(), &context, &mut warnings), Policy::Other);
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn one_cpu_has_every_method_but_spinning() {
        let (kind, warnings) = resolved("0-3", "tsc", "2,2", "all");
        assert_eq!(kind.methods.len(), RoundtripMethod::ALL.len() - 1);
        assert_eq!(warnings, ["no-spin-on-one-cpu"]);
        let plan = RoundtripPlan { method: "spin".parse().unwrap(), ..RoundtripPlan::default() };
        let refused = super::kind(&plan, "2,2".parse().unwrap(), &facts("0-3", "tsc"), &mut Vec::new());
        assert!(refused.unwrap_err().to_string().contains("name two CPUs"));
    }
}
