//! The tracer probe: a measuring tracer of the kernel.

use super::{MeasuringTask, Policy, ProbeFacts, ProbeWords, Samples};
use crate::cpus::CpuSelector;
use crate::plan::kinds::KeyError;
use crate::units::Nanos;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// timerlat takes no shorter and no longer periods.
const PERIOD_US: std::ops::RangeInclusive<u64> = 100..=1_000_000;

/// A latency tracer of the kernel: hwlat, osnoise or timerlat.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate measure tracer --tracer osnoise --cpu 1
  whylate measure tracer --tracer timerlat --period 1ms --duration 1m --json"))]
pub struct TracerPlan {
    /// CPUs to measure; by default the plan's target CPUs.
    pub cpus: Option<CpuSelector>,
    /// Tracer to use.
    pub tracer: Tracer,
    /// hwlat, osnoise: how long the tracer samples in each window; by default 950ms (hwlat) and 1s (osnoise).
    pub width: Option<Nanos>,
    /// hwlat, osnoise: length of a window; the tracer samples for a part of each window; by default 1s.
    pub window: Option<Nanos>,
    /// hwlat, osnoise: the shortest gap or noise to record; by default the kernel's current setting.
    pub threshold: Option<Nanos>,
    /// timerlat: period of the tracer's threads; by default 1ms.
    pub period: Option<Nanos>,
    /// Real-time priority (SCHED_FIFO) of the tracer's threads, 1 to 99; by default the kernel's choice.
    pub priority: Option<u32>,
}

impl TracerPlan {
    /// How long it looks in each window.
    pub fn width(&self) -> Nanos {
        let default = if self.tracer == Tracer::Hwlat { 950 } else { 1000 };
        self.width.unwrap_or(Nanos::from_millis(default))
    }

    /// How often it looks.
    pub fn window(&self) -> Nanos {
        self.window.unwrap_or(Nanos::from_secs(1))
    }

    /// Period of timerlat's thread.
    pub fn period(&self) -> Nanos {
        self.period.unwrap_or(Nanos::from_millis(1))
    }
}

impl ProbeWords for TracerPlan {
    fn facts(series: Option<&str>) -> ProbeFacts {
        match series.and_then(Tracer::from_name) {
            Some(Tracer::Hwlat | Tracer::Osnoise) => {
                ProbeFacts { task: MeasuringTask::None, ..ProbeFacts::of(Samples::Gap) }
            }
            Some(Tracer::Timerlat) => {
                ProbeFacts { task: MeasuringTask::Kernel("timerlat"), ..ProbeFacts::of(Samples::Lateness) }
            }
            None => ProbeFacts { task: MeasuringTask::None, ..ProbeFacts::of(Samples::Duration) },
        }
    }

    /// A tracer accepts the keys that it uses, in the ranges that the kernel accepts.
    fn check(&self) -> Result<(), KeyError> {
        let is_timerlat = self.tracer == Tracer::Timerlat;
        let times = [
            ("width", self.width, !is_timerlat),
            ("window", self.window, !is_timerlat),
            ("threshold", self.threshold, !is_timerlat),
            ("period", self.period, is_timerlat),
        ];
        for (key, time, has_use) in times {
            match time {
                Some(_) if !has_use => {
                    return Err(KeyError::new(key, format!("the {} tracer has no {key}", self.tracer)));
                }
                Some(time) if time.0 < 1_000 => return Err(KeyError::new(key, "must be at least 1us")),
                _ => {}
            }
        }
        let (width, window) = (self.width(), self.window());
        match self.tracer {
            Tracer::Timerlat if !PERIOD_US.contains(&(self.period().0 / 1_000)) => {
                Err(KeyError::new("period", "must be 100us to 1s"))
            }
            // hwlat runs with interrupts disabled: other work gets only the rest of the window.
            Tracer::Hwlat if width >= window => {
                let message = format!(
                    "must be below the window ({window}); interrupts are enabled for the rest of each window"
                );
                Err(KeyError::new("width", message))
            }
            Tracer::Osnoise if width > window => {
                Err(KeyError::new("width", format!("must not be above the window ({window})")))
            }
            _ => Ok(()),
        }
    }

    /// Without a priority in the plan, the kernel chooses the priority of its threads.
    fn scheduling(&self) -> (Policy, u32) {
        self.priority.map_or((Policy::Other, 1), |priority| (Policy::Fifo, priority))
    }

    fn cpus(&self) -> Option<&CpuSelector> {
        self.cpus.as_ref()
    }

    fn series(&self) -> Vec<String> {
        vec![self.tracer.name().to_owned()]
    }

    fn watched_share(&self, cpus: usize) -> f64 {
        let share = self.width().0 as f64 / self.window().0.max(1) as f64;
        // hwlat samples one CPU at a time, in turn.
        if self.tracer == Tracer::Hwlat { share / cpus.max(1) as f64 } else { share }
    }
}

words! {
    /// The latency tracers of the kernel.
    pub enum Tracer: "a latency tracer" {
        /// Looks for gaps that hardware or firmware causes, with interrupts disabled.
        Hwlat = "hwlat",
        /// Looks for anything that takes time from a thread that never sleeps, and names the source.
        Osnoise = "osnoise",
        /// Measures the latency of a timer, in its interrupt and in the thread that it wakes.
        Timerlat = "timerlat",
    }
}

impl Tracer {
    /// The option of the kernel's configuration that builds it.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Hwlat => "CONFIG_HWLAT_TRACER",
            Self::Osnoise => "CONFIG_OSNOISE_TRACER",
            Self::Timerlat => "CONFIG_TIMERLAT_TRACER",
        }
    }
}
