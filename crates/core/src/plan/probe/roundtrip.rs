//! The round-trip probe: a message from one CPU to another and back.

use super::{Judged, Policy, ProbeFacts, ProbeWords, Samples, check_samples, refuse_deadline};
use crate::cpus::{CpuContext, CpuError, CpuSelector, CpuSet};
use crate::order::InOrder;
use crate::plan::flag::Flag;
use crate::plan::kinds::KeyError;
use crate::units::{CpuId, Nanos, as_text};
use crate::warning::WarningCode;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The round-trip probe: a message from one CPU to another and back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate measure roundtrip --cpus 1,2
  whylate measure roundtrip --cpus 1,2 --method futex --samples 100000
  whylate measure roundtrip --cpus 2,2 --method pipe,unix --json

The duration is divided among the methods. If both CPUs have the same clock, each direction is also
measured separately. For methods that sleep, both CPUs may be the same."))]
pub struct RoundtripPlan {
    /// The two CPUs, the sender of the message first: `"1,2"`; by default the first target CPU and another usable one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuPair>,
    /// How the message is passed: `all`, or some of spin, futex, eventfd, pipe, unix, udp. The duration is divided
    /// among the methods.
    pub method: RoundtripMethods,
    /// Ends each method early, after this number of round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Stops the measurement at a round trip above this; the exit code is then 2.
    #[serde(rename = "break", skip_serializing_if = "Option::is_none")]
    pub break_above: Option<Nanos>,
    /// Real-time priority of both threads, 1 to 99 (`fifo` and `rr` only).
    pub priority: u32,
    /// Scheduling policy of the threads (not `deadline`).
    pub policy: Policy,
    /// Whether `/dev/cpu_dma_latency` is set to 0, which keeps CPUs out of deep idle states.
    #[schemars(extend("x-flag" = Flag::idle_states()))]
    pub hold_cpu_dma_latency: bool,
}

impl Default for RoundtripPlan {
    fn default() -> Self {
        Self {
            cpus: None,
            method: RoundtripMethods::default(),
            samples: None,
            break_above: None,
            priority: 95,
            policy: Policy::Fifo,
            hold_cpu_dma_latency: true,
        }
    }
}

impl RoundtripPlan {
    /// The two CPUs on this machine.
    pub fn pair(&self, context: &CpuContext, target: &CpuSet) -> Result<CpuPair, CpuError> {
        let pair = self.cpus.unwrap_or_else(|| default_pair(context, target));
        CpuSelector::List(pair.cpus()).resolve(context, None)?;
        Ok(pair)
    }
}

impl ProbeWords for RoundtripPlan {
    fn facts(_: Option<&str>) -> ProbeFacts {
        let duration = ProbeFacts::of(Samples::Duration);
        ProbeFacts {
            judged: Judged::ExcessOverMedian,
            between_cpus: true,
            series_title: "method",
            without_priority: Some(WarningCode::RoundtripWithoutPriority),
            ..duration
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        refuse_deadline(self.policy)?;
        check_samples(self.samples)?;
        let spins = !self.method.is_all() && self.method.contains(RoundtripMethod::Spin);
        if spins && self.cpus.is_some_and(CpuPair::is_one_cpu) {
            let message =
                "spin needs two CPUs: on one CPU the waiting loop keeps the answering loop from running";
            return Err(KeyError::new("method", message));
        }
        Ok(())
    }

    fn scheduling(&self) -> (Policy, u32) {
        (self.policy, self.priority)
    }

    fn break_above(&self) -> Option<Nanos> {
        self.break_above
    }

    fn cpus(&self) -> Option<&CpuSelector> {
        None
    }

    fn resolve_cpus(&self, context: &CpuContext, target: &CpuSet) -> Result<CpuSet, CpuError> {
        Ok(self.pair(context, target)?.cpus())
    }

    fn series(&self) -> Vec<String> {
        self.method.iter().map(|method| method.name().to_owned()).collect()
    }
}

/// The first target CPU, and another: the next target, else a CPU that is not a target; on a machine with one CPU the
/// same.
fn default_pair(context: &CpuContext, target: &CpuSet) -> CpuPair {
    let from = target.first().or_else(|| context.usable().last()).unwrap_or_default();
    let others = context.usable().difference(&CpuSet::single(from));
    let to = target.intersection(&others).first().or_else(|| others.first()).unwrap_or(from);
    CpuPair { from, to }
}

/// Two CPUs in an order; they may be the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPair {
    /// Where the question is asked and the time is taken.
    pub from: CpuId,
    /// Where it is answered.
    pub to: CpuId,
}

impl CpuPair {
    /// Both as a set.
    pub fn cpus(self) -> CpuSet {
        [self.from, self.to].into_iter().collect()
    }

    /// Whether both are the same CPU.
    pub fn is_one_cpu(self) -> bool {
        self.from == self.to
    }
}

impl FromStr for CpuPair {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not two CPUs; write the sender first, for example `1,2`");
        let number = |digits: &str| digits.trim().parse().map(CpuId).map_err(|_| wrong());
        let (from, to) = text.split_once(',').or_else(|| text.split_once('-')).ok_or_else(wrong)?;
        Ok(Self { from: number(from)?, to: number(to)? })
    }
}

impl fmt::Display for CpuPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.from, self.to)
    }
}

as_text!(CpuPair, "1,2", "Two CPUs, the sender of the message first; both may be the same");

words! {
    /// How a message travels, cheapest first.
    pub enum RoundtripMethod: "a method" {
        /// A word of shared memory that the other side reads without pause.
        Spin = "spin",
        /// A word of shared memory with `futex` wait and wake.
        Futex = "futex",
        /// A pair of eventfds.
        Eventfd = "eventfd",
        /// A pair of pipes.
        Pipe = "pipe",
        /// A pair of connected Unix stream sockets.
        Unix = "unix",
        /// A pair of connected UDP sockets on the loopback interface.
        Udp = "udp",
    }
}

/// One or several methods, each once, in the order of [`RoundtripMethod::ALL`]; never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundtripMethods(Vec<RoundtripMethod>);

impl RoundtripMethods {
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = RoundtripMethod> + '_ {
        self.0.iter().copied()
    }

    /// Whether these are all methods.
    pub fn is_all(&self) -> bool {
        self.0.len() == RoundtripMethod::ALL.len()
    }

    /// Whether this is one of them.
    pub fn contains(&self, method: RoundtripMethod) -> bool {
        self.0.contains(&method)
    }
}

impl Default for RoundtripMethods {
    fn default() -> Self {
        Self(RoundtripMethod::ALL.to_vec())
    }
}

impl FromStr for RoundtripMethods {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "all" {
            return Ok(Self::default());
        }
        let unknown = |name: &str| {
            format!("`{name}` is not a method; choose all, or some of spin, futex, eventfd, pipe, unix, udp")
        };
        let method = |name: &str| RoundtripMethod::from_name(name.trim()).ok_or_else(|| unknown(name));
        let mut methods = text.split(',').map(method).collect::<Result<Vec<_>, _>>()?;
        methods.order();
        methods.dedup();
        Ok(Self(methods))
    }
}

impl fmt::Display for RoundtripMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_all() {
            return f.write_str("all");
        }
        let names: Vec<&str> = self.iter().map(RoundtripMethod::name).collect();
        f.write_str(&names.join(","))
    }
}

as_text!(
    RoundtripMethods,
    "all",
    "How the message is passed: all, or some of spin, futex, eventfd, pipe, unix, udp"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn context(usable: &str) -> CpuContext {
        let cpus: CpuSet = usable.parse().unwrap();
        CpuContext { present: cpus.clone(), online: cpus.clone(), isolated: CpuSet::default(), allowed: cpus }
    }

    #[test]
    fn the_pair_is_ordered_and_may_be_one_cpu() {
        let pair: CpuPair = "3,1".parse().unwrap();
        assert_eq!((pair.from, pair.to, pair.to_string().as_str()), (CpuId(3), CpuId(1), "3,1"));
        assert!("2,2".parse::<CpuPair>().unwrap().is_one_cpu());
        for text in ["1", "1,2,3", "a,b", ""] {
            assert!(text.parse::<CpuPair>().is_err(), "{text}");
        }
    }

    #[test]
    fn without_a_pair_the_target_asks_and_another_cpu_answers() {
        let pair = |usable, target: &str| {
            RoundtripPlan::default().pair(&context(usable), &target.parse().unwrap()).unwrap().to_string()
        };
        assert_eq!(pair("0-3", "3"), "3,0");
        assert_eq!(pair("0-3", "2-3"), "2,3");
        assert_eq!(pair("0", "0"), "0,0");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error() {
        let plan = RoundtripPlan { cpus: Some("0,9".parse().unwrap()), ..RoundtripPlan::default() };
        assert!(plan.pair(&context("0-1"), &"1".parse().unwrap()).is_err());
    }

    #[test]
    fn methods_are_named_in_any_order_and_kept_in_one() {
        let methods: RoundtripMethods = "udp,futex,udp".parse().unwrap();
        assert_eq!(methods.to_string(), "futex,udp");
        assert!("all".parse::<RoundtripMethods>().unwrap().is_all());
        assert!("".parse::<RoundtripMethods>().is_err() && "signal".parse::<RoundtripMethods>().is_err());
    }
}
