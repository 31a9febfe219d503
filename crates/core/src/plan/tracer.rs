//! The tracer probe of a plan.

use crate::cpus::CpuSelector;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A measuring tracer of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TracerPlan {
    /// Where to measure; by default the plan's target CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
    /// Which one.
    pub tracer: Tracer,
    /// hwlat, osnoise: how long it looks in each window; by default 950ms (hwlat) and 1s (osnoise).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<Nanos>,
    /// hwlat, osnoise: how often it looks; by default 1s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Nanos>,
    /// hwlat, osnoise: the shortest gap or noise that counts; by default what the kernel has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Nanos>,
    /// timerlat: period of its thread; by default 1ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Nanos>,
    /// Real-time priority (SCHED_FIFO) of the tracer's threads, 1 to 99; by default the kernel's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// The measuring tracers of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tracer {
    /// Looks for gaps with interrupts off: hardware and firmware.
    Hwlat,
    /// Looks for anything that takes time from a thread that never sleeps, and says what it was.
    Osnoise,
    /// Measures the latency of a timer, in its interrupt and in the thread that it wakes.
    Timerlat,
}

impl Tracer {
    /// Its name in the kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hwlat => "hwlat",
            Self::Osnoise => "osnoise",
            Self::Timerlat => "timerlat",
        }
    }

    /// The option of the kernel's configuration that builds it.
    pub const fn option(self) -> &'static str {
        match self {
            Self::Hwlat => "CONFIG_HWLAT_TRACER",
            Self::Osnoise => "CONFIG_OSNOISE_TRACER",
            Self::Timerlat => "CONFIG_TIMERLAT_TRACER",
        }
    }
}

impl fmt::Display for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tracer {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Hwlat, Self::Osnoise, Self::Timerlat]
            .into_iter()
            .find(|tracer| tracer.name() == text)
            .ok_or_else(|| format!("`{text}` is not a measuring tracer; choose hwlat, osnoise or timerlat"))
    }
}
