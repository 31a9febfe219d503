//! The kinds of probes: one file a kind, from its plan to what its threads do, and its line in the table at the end.

mod access;
mod dispatch;
mod histograms;
pub(crate) mod roundtrip;
mod stall;
mod task;
mod timer;
mod tracer;

pub(crate) use dispatch::parts::table as dispatch_table;

pub use access::AccessSpec;
pub use dispatch::DispatchSpec;
pub use roundtrip::RoundtripSpec;
pub use stall::StallSpec;
pub use task::{find_tasks, move_to, present_threads, send_trigger, store_after, try_to_watch};
pub use timer::TimerSpec;

use crate::child::{Team, Worker};
use crate::error::ProbeError;
use crate::layout::Lane;
use crate::measure::{Measuring, Observer, Outcome, measure_in_process};
use roundtrip::Exchange;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use whylate_bpf::DispatchSteps;
use whylate_core::plan::{CpuPair, HistogramsPlan, Policy, ProbePlan, TaskPlan, TracerPlan};
use whylate_core::quantity::Quantities;
use whylate_core::{CpuSet, Facts, Nanos, Warning};
use whylate_sys::counter::{Calibration, CounterKind};

/// How long the time-stamp counter is compared with the kernel's clock.
const CALIBRATION: Nanos = Nanos::from_millis(50);

/// The machine on which a plan is resolved, and what follows from the plan in addition to the kind's own parameters.
pub(crate) struct Place<'p> {
    /// The plan's target CPUs, and those that the probe measures.
    pub(crate) target: &'p CpuSet,
    pub(crate) cpus: &'p CpuSet,
    pub(crate) facts: &'p Facts,
    /// As in the plan; the machine may need another one to be safe.
    pub(crate) policy: Policy,
    /// Ends earlier, after that many samples.
    pub(crate) samples: Option<u64>,
    /// Whether `/dev/cpu_dma_latency` is set to 0.
    pub(crate) hold_cpu_dma_latency: bool,
    pub(crate) warnings: Vec<Warning>,
}

/// A kind of probe that resolves a plan of type `P`.
pub(crate) trait Resolve<P>: Sized {
    /// Resolves thresholds and sizes on this machine, and decides what is safe there.
    fn resolve(plan: &P, place: &mut Place<'_>) -> Result<Self, ProbeError>;
}

/// What a measuring thread is given: its place among the threads, and where its samples go.
pub(crate) struct Station<'a> {
    pub(crate) team: &'a Team<'a>,
    /// Number of the thread.
    pub(crate) index: usize,
    /// For each series of its CPU, in order; both threads of a probe between two CPUs share them.
    pub(crate) lanes: &'a [Lane<'a>],
    pub(crate) exchange: Option<&'a Exchange>,
}

/// A probe on this machine.
pub(crate) trait Kind {
    /// The probe's name in results.
    fn name(&self) -> &'static str;

    /// The period; `None` for a probe without one.
    fn period(&self) -> Option<Nanos> {
        None
    }

    /// The latency above which it stops everything.
    fn break_above(&self) -> Option<Nanos> {
        None
    }

    /// The series of each CPU, in order, each followed by its parts; one without a name for a probe with one series.
    fn series(&self) -> Vec<Option<String>> {
        vec![None]
    }

    /// The two CPUs, the asking one first, of a probe that measures between two.
    fn pair(&self) -> Option<CpuPair> {
        None
    }

    /// The counter in whose ticks spikes are recorded; `None` for nanoseconds of CLOCK_MONOTONIC.
    fn spike_counter(&self) -> Option<(CounterKind, Calibration)> {
        None
    }

    /// What each of its intervals contains in addition to what is counted while it measures.
    fn quantities(&self) -> Quantities {
        Quantities::default()
    }

    /// The kernel's programs that report the parts of its samples, with their table.
    fn steps(&self, _warnings: &mut Vec<Warning>) -> Option<(DispatchSteps, OwnedFd)> {
        None
    }

    /// What the threads of a probe between two CPUs share.
    fn exchange(&self, _team: &Team<'_>) -> Option<Exchange> {
        None
    }

    /// Everything that a thread needs while it measures, allocated; `None` for a probe without measuring threads.
    fn worker<'a>(&self, _station: &Station<'a>) -> Option<Box<dyn Worker + 'a>> {
        None
    }

    /// Measures to the end.
    fn measure(&self, of: &Measuring<'_>, observer: &mut dyn Observer) -> Result<Outcome, ProbeError> {
        measure_in_process(of, observer)
    }
}

macro_rules! kinds {
    ($($(#[$meaning:meta])* $Kind:ident($Spec:ty),)*) => {
        /// What measures, with its own parameters.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum ProbeKind {
            $($(#[$meaning])* $Kind($Spec),)*
        }

        impl ProbeKind {
            pub(crate) fn resolve(plan: &ProbePlan, place: &mut Place<'_>) -> Result<Self, ProbeError> {
                Ok(match plan {
                    $(ProbePlan::$Kind(plan) => Self::$Kind(Resolve::resolve(plan, place)?),)*
                })
            }

            pub(crate) fn as_kind(&self) -> &dyn Kind {
                match self {
                    $(Self::$Kind(spec) => spec,)*
                }
            }
        }
    };
}

kinds! {
    /// The timer probe.
    Timer(TimerSpec),
    /// The stall probe.
    Stall(StallSpec),
    /// The dispatch probe.
    Dispatch(DispatchSpec),
    /// The round-trip probe.
    Roundtrip(RoundtripSpec),
    /// The access probe.
    Access(AccessSpec),
    /// The kernel's histograms: its caller reads them, there is no measuring process.
    Histograms(HistogramsPlan),
    /// The user's own threads: its caller watches them, there is no measuring process.
    Task(TaskPlan),
    /// A measuring tracer of the kernel: its caller drives it, there is no measuring process.
    Tracer(TracerPlan),
}

/// A series and those of its parts.
fn with_parts<'p>(name: &str, parts: &'p [&str]) -> impl Iterator<Item = Option<String>> + use<'p> {
    let whole = name.to_owned();
    let parts_of = whole.clone();
    std::iter::once(Some(whole)).chain(parts.iter().map(move |part| Some(format!("{parts_of}/{part}"))))
}
