//! The loads of a plan.

use crate::cpus::CpuSelector;
use crate::plan::{IpiPlan, IrqThreadPlan, PageattrPlan, Size, SoftirqPlan, TlbPlan};
use crate::units::{BytesPerSec, UnitError, as_text};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// One load, by the name that cells use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadPlan {
    /// The name.
    pub name: String,
    /// What it does.
    #[serde(flatten)]
    pub kind: LoadKind,
}

/// What a load does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum LoadKind {
    /// Memory traffic over a working set of random data.
    Memory(MemoryPlan),
    /// Any command.
    Exec(ExecPlan),
    /// Changes of mappings, which flush translations on other CPUs.
    Tlb(TlbPlan),
    /// Memory barriers, which interrupt other CPUs.
    Ipi(IpiPlan),
    /// Write-combining buffers, which flush every CPU.
    Pageattr(PageattrPlan),
    /// Loopback packets, received in softirqs.
    Softirq(SoftirqPlan),
    /// Real interrupts of a device or timer.
    IrqThread(IrqThreadPlan),
}

impl LoadKind {
    /// The names of the loads there are.
    pub const KINDS: [&str; 7] = ["memory", "exec", "tlb", "ipi", "pageattr", "softirq", "irq-thread"];

    /// One of [`LoadKind::KINDS`].
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Exec(_) => "exec",
            Self::Tlb(_) => "tlb",
            Self::Ipi(_) => "ipi",
            Self::Pageattr(_) => "pageattr",
            Self::Softirq(_) => "softirq",
            Self::IrqThread(_) => "irq-thread",
        }
    }
}

/// Memory traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryPlan {
    /// Where it runs: one thread, with a buffer of its own, on each CPU.
    #[serde(default = "target_cpus")]
    pub cpus: CpuSelector,
    /// Size of each thread's buffer (`copy`: source and destination together).
    pub working_set: Size,
    /// Kind of traffic.
    #[serde(default)]
    pub access: MemoryAccess,
    /// NUMA node of the buffers; by default the node of the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Whether the buffers use huge pages.
    #[serde(default)]
    pub huge_pages: bool,
    /// How much: a rate over all CPUs (`500MB/s`) or a share of time (`25%`); by default as much as goes.
    #[serde(default)]
    pub rate: Pace,
}

/// Any command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecPlan {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
    /// Where it may run; by default anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
    /// Regular expression whose first group is a rate, searched in every line of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_pattern: Option<String>,
    /// What that rate counts: `rectangles_per_s`.
    #[serde(default = "default_rate_unit")]
    pub rate_unit: String,
}

fn target_cpus() -> CpuSelector {
    CpuSelector::Target
}
fn default_rate_unit() -> String {
    "per_s".to_owned()
}

/// Kinds of memory traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemoryAccess {
    /// Reads the buffer from end to end.
    #[serde(rename = "read")]
    Read,
    /// Writes the buffer from end to end.
    #[serde(rename = "write")]
    Write,
    /// Copies one half of the working set to the other.
    #[default]
    #[serde(rename = "copy")]
    Copy,
    /// Follows a random chain through all cache lines of the buffer.
    #[serde(rename = "random-chase", alias = "chase")]
    Chase,
    /// Writes the buffer with stores that bypass the caches.
    #[serde(rename = "non-temporal-write", alias = "nt-write")]
    NonTemporal,
}

impl MemoryAccess {
    /// The name in plans and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Chase => "random-chase",
            Self::NonTemporal => "non-temporal-write",
        }
    }
}

impl FromStr for MemoryAccess {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "read" => Ok(Self::Read),
            "write" => Ok(Self::Write),
            "copy" => Ok(Self::Copy),
            "random-chase" | "chase" => Ok(Self::Chase),
            "non-temporal-write" | "nt-write" => Ok(Self::NonTemporal),
            _ => Err(format!(
                "`{text}` is not a kind of memory traffic; choose read, write, copy, random-chase or non-temporal-write"
            )),
        }
    }
}

/// How much of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Pace {
    /// As much as goes.
    #[default]
    Full,
    /// That many bytes per second, over all CPUs.
    Rate(BytesPerSec),
    /// That share of time, in (0, 1].
    DutyCycle(f64),
}

impl FromStr for Pace {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        const WHAT: &str = "a rate";
        const EXAMPLE: &str = "500MB/s` or `25%";
        let wrong = || UnitError::NotANumber { text: text.to_owned(), what: WHAT, example: EXAMPLE };
        let trimmed = text.trim();
        if trimmed == "full" {
            return Ok(Self::Full);
        }
        if let Some(percent) = trimmed.strip_suffix('%') {
            return match percent.trim().parse::<f64>() {
                Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(Self::DutyCycle(percent / 100.0)),
                _ => Err(wrong()),
            };
        }
        match trimmed.parse() {
            Ok(BytesPerSec(rate)) if rate > 0.0 => Ok(Self::Rate(BytesPerSec(rate))),
            Ok(_) => Err(wrong()),
            Err(UnitError::MissingUnit { text, .. }) => {
                Err(UnitError::MissingUnit { text, example: EXAMPLE })
            }
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Rate(BytesPerSec(rate)) => write!(f, "{rate}B/s"),
            Self::DutyCycle(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

as_text!(Pace, "500MB/s", "A rate over all CPUs (500MB/s), a share of time (25%), or full");
