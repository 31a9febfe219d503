//! Loads that are made of single acts: flushes, barriers, buffers, packets, interrupts.

use crate::cpus::CpuSelector;
use crate::plan::Pace;
use crate::units::{BytesPerSec, UnitError, as_text};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Changes of mappings, each of which flushes translations on every CPU that runs the same address space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlbPlan {
    /// Where mappings are changed, one thread on each CPU.
    pub cpus: CpuSelector,
    /// Where threads of the same process run that are hit; a flush reaches no other CPU.
    pub victims: CpuSelector,
    /// How many flushes over all CPUs (`1000/s`), or a share of time (`25%`); by default as many as go.
    pub rate: EventPace,
}

/// Memory barriers for which the kernel interrupts other CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IpiPlan {
    /// Where barriers are asked for, one thread on each CPU.
    pub cpus: CpuSelector,
    /// Where threads run that the barriers reach.
    pub victims: CpuSelector,
    /// Whom a barrier reaches.
    pub reach: BarrierReach,
    /// How many barriers over all CPUs (`1000/s`), or a share of time (`25%`); by default as many as go.
    pub rate: EventPace,
}

/// Write-combining buffers made and given back, for which the kernel changes page attributes and flushes every CPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageattrPlan {
    /// Where buffers are made, one thread on each CPU.
    pub cpus: CpuSelector,
    /// How many buffers over all CPUs (`100/s`), or a share of time (`25%`); by default as many as go.
    pub rate: EventPace,
}

/// Packets on the loopback interface, which are received in softirqs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SoftirqPlan {
    /// Where packets are sent and received, one thread on each CPU.
    pub cpus: CpuSelector,
    /// How many packets over all CPUs (`10000/s`), or a share of time (`25%`); by default as many as go.
    pub rate: EventPace,
}

/// Real interrupts, whose handlers run in threads on PREEMPT_RT kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IrqThreadPlan {
    /// Where interrupts are asked for, one thread on each CPU.
    pub cpus: CpuSelector,
    /// What interrupts.
    pub source: IrqSource,
    /// How many interrupts over all CPUs (`1000/s`), or a share of time (`25%`); by default as many as go.
    pub rate: EventPace,
}

impl Default for TlbPlan {
    fn default() -> Self {
        Self { cpus: CpuSelector::Others, victims: CpuSelector::Target, rate: EventPace::Full }
    }
}
impl Default for IpiPlan {
    fn default() -> Self {
        let (cpus, victims) = (CpuSelector::Others, CpuSelector::Target);
        Self { cpus, victims, reach: BarrierReach::Private, rate: EventPace::Full }
    }
}
impl Default for PageattrPlan {
    fn default() -> Self {
        Self { cpus: CpuSelector::Others, rate: EventPace::Full }
    }
}
impl Default for SoftirqPlan {
    fn default() -> Self {
        Self { cpus: CpuSelector::Target, rate: EventPace::Full }
    }
}
impl Default for IrqThreadPlan {
    fn default() -> Self {
        Self { cpus: CpuSelector::Target, source: IrqSource::Auto, rate: EventPace::Full }
    }
}

/// Whom a memory barrier reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BarrierReach {
    /// CPUs that run a thread of the load (`MEMBARRIER_CMD_PRIVATE_EXPEDITED`).
    #[default]
    Private,
    /// CPUs that run a thread of any process that has registered for it (`MEMBARRIER_CMD_GLOBAL_EXPEDITED`).
    Global,
}

impl FromStr for BarrierReach {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "private" => Ok(Self::Private),
            "global" => Ok(Self::Global),
            _ => Err(format!("`{text}` is no reach of a barrier; choose private or global")),
        }
    }
}

/// What makes real interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IrqSource {
    /// The first of the others that works here.
    #[default]
    Auto,
    /// Reads past the page cache from the disk that this program lies on.
    Disk,
    /// The periodic interrupt of the real-time clock.
    Rtc,
    /// High-resolution timers of each CPU.
    Timer,
}

impl FromStr for IrqSource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "disk" => Ok(Self::Disk),
            "rtc" => Ok(Self::Rtc),
            "timer" => Ok(Self::Timer),
            _ => Err(format!("`{text}` is no source of interrupts; choose auto, disk, rtc or timer")),
        }
    }
}

/// How many events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum EventPace {
    /// As many as go.
    #[default]
    Full,
    /// That many per second, over all CPUs.
    PerSecond(f64),
    /// That share of time, in (0, 1].
    DutyCycle(f64),
}

impl EventPace {
    /// The same pace with an event in the place of a byte.
    pub fn as_pace(self) -> Pace {
        match self {
            Self::Full => Pace::Full,
            Self::PerSecond(rate) => Pace::Rate(BytesPerSec(rate)),
            Self::DutyCycle(share) => Pace::DutyCycle(share),
        }
    }
}

impl FromStr for EventPace {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::NotANumber {
            text: text.to_owned(),
            what: "a rate of events",
            example: "1000/s` or `25%",
        };
        let trimmed = text.trim();
        if let Some(number) = trimmed.strip_suffix("/s") {
            return match number.trim().parse::<f64>() {
                Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Self::PerSecond(rate)),
                _ => Err(wrong()),
            };
        }
        if trimmed.parse::<f64>().is_ok() {
            return Err(UnitError::MissingUnit { text: text.to_owned(), example: "1000/s` or `25%" });
        }
        match trimmed.parse() {
            Ok(Pace::Full) => Ok(Self::Full),
            Ok(Pace::DutyCycle(share)) => Ok(Self::DutyCycle(share)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for EventPace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => write!(f, "{rate}/s"),
            other => other.as_pace().fmt(f),
        }
    }
}

as_text!(EventPace, "1000/s", "A rate over all CPUs (1000/s), a share of time (25%), or full");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_events_have_a_unit() {
        for text in ["1000/s", "0.5/s", "25%", "full"] {
            assert_eq!(text.parse::<EventPace>().unwrap().to_string(), text);
        }
        for text in ["1000", "0/s", "-1/s", "inf/s", "500MB/s", "0%", "fast"] {
            assert!(text.parse::<EventPace>().is_err(), "{text}");
        }
    }
}
