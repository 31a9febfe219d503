//! What a load is asked to do: resolved to this machine's CPUs and bytes.

use crate::error::LoadError;
use crate::events;
use crate::exec::pattern;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use whylate_core::plan::{BarrierReach, EventPace, IrqSource, MemoryAccess, Pace};
use whylate_core::{Bytes, BytesPerSec, CpuSet, Nanos};

/// One load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSpec {
    /// What it does.
    pub work: LoadWork,
    /// Time between two rates.
    pub interval: Nanos,
    /// When it ends by itself; without it, it runs until it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Nanos>,
}

impl LoadSpec {
    /// Until stopped, with a rate each second.
    pub fn new(work: LoadWork) -> Self {
        Self { work, interval: Nanos::from_secs(1), duration: None }
    }

    /// What can be known to be wrong before anything is started.
    ///
    /// # Errors
    /// [`LoadError`] naming what is wrong with the CPUs, the working set, the pace, the command or the pattern.
    pub fn validate(&self) -> Result<(), LoadError> {
        if self.interval.0 == 0 {
            return Err(LoadError::Interval);
        }
        match &self.work {
            LoadWork::Memory(memory) => memory.validate(),
            LoadWork::Exec(exec) => exec.validate(),
            LoadWork::Events(events) => events.validate(),
        }
    }
}

/// What a load does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoadWork {
    /// Memory traffic.
    Memory(MemorySpec),
    /// Any command.
    Exec(ExecSpec),
    /// Single acts that interrupt CPUs.
    Events(EventSpec),
}

/// Memory traffic: one thread on each CPU, each with a buffer of random data of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemorySpec {
    /// The CPUs.
    pub cpus: CpuSet,
    /// Kind of traffic.
    pub access: MemoryAccess,
    /// Size of each thread's buffer (`copy`: source and destination together).
    pub working_set: Bytes,
    /// Whether the buffers should be on huge pages; without them there is a warning.
    #[serde(default)]
    pub huge_pages: bool,
    /// NUMA node of the buffers; by default each thread's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// How much.
    #[serde(default)]
    pub pace: Pace,
}

impl MemorySpec {
    fn validate(&self) -> Result<(), LoadError> {
        if self.cpus.is_empty() {
            return Err(LoadError::NoCpus);
        }
        // A line for each of source and destination.
        let smallest = Bytes(if self.access == MemoryAccess::Copy { 128 } else { 64 });
        if self.working_set < smallest {
            let access = self.access.name();
            return Err(LoadError::WorkingSet { working_set: self.working_set, access, smallest });
        }
        check_pace(self.pace)
    }
}

fn check_pace(pace: Pace) -> Result<(), LoadError> {
    let possible = match pace {
        Pace::Full => true,
        Pace::Rate(BytesPerSec(rate)) => rate.is_finite() && rate > 0.0,
        Pace::DutyCycle(share) => share > 0.0 && share <= 1.0,
    };
    if possible { Ok(()) } else { Err(LoadError::Pace { pace: pace.to_string() }) }
}

/// Single acts that interrupt CPUs, one thread on each of `cpus`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventSpec {
    /// Which acts.
    pub kind: EventKind,
    /// Where they are done.
    pub cpus: CpuSet,
    /// Where threads of the load's process run so that the acts reach them; empty for kinds that need none.
    pub victims: CpuSet,
    /// How many.
    pub pace: EventPace,
}

/// Kinds of acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// Changes of mappings.
    Tlb,
    /// Memory barriers.
    Ipi(BarrierReach),
    /// Write-combining buffers.
    Pageattr,
    /// Loopback packets.
    Softirq,
    /// Interrupts of a device or timer.
    IrqThread(IrqSource),
}

impl EventKind {
    /// The name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tlb => "tlb",
            Self::Ipi(_) => "ipi",
            Self::Pageattr => "pageattr",
            Self::Softirq => "softirq",
            Self::IrqThread(_) => "irq-thread",
        }
    }

    /// What its rate counts.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Tlb => "flushes_per_s",
            Self::Ipi(_) => "barriers_per_s",
            Self::Pageattr => "buffers_per_s",
            Self::Softirq => "packets_per_s",
            Self::IrqThread(_) => "interrupts_per_s",
        }
    }

    /// Whether only CPUs that run the load's process are reached.
    pub fn needs_victims(self) -> bool {
        matches!(self, Self::Tlb | Self::Ipi(_))
    }
}

impl EventSpec {
    fn validate(&self) -> Result<(), LoadError> {
        if self.cpus.is_empty() || (self.kind.needs_victims() && self.victims.is_empty()) {
            return Err(LoadError::NoCpus);
        }
        check_pace(self.pace.as_pace())?;
        match self.kind {
            EventKind::Pageattr => events::check_pageattr(),
            EventKind::IrqThread(source) => events::check_irq_source(source),
            EventKind::Tlb | EventKind::Ipi(_) | EventKind::Softirq => Ok(()),
        }
    }
}

/// Any command, with everything that it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecSpec {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
    /// Where it may run; by default wherever the load's process may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// File that its standard output and standard error are appended to.
    pub output: PathBuf,
    /// Regular expression with one group, around the number: searched in every line of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_pattern: Option<String>,
    /// What the number counts.
    pub rate_unit: String,
}

impl ExecSpec {
    fn validate(&self) -> Result<(), LoadError> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err(LoadError::CommandEmpty);
        }
        if self.cpus.as_ref().is_some_and(CpuSet::is_empty) {
            return Err(LoadError::NoCpus);
        }
        self.rate_pattern.as_deref().map_or(Ok(()), |text| pattern(text).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> MemorySpec {
        MemorySpec {
            cpus: "0".parse().unwrap(),
            access: MemoryAccess::Copy,
            working_set: Bytes(1 << 20),
            huge_pages: false,
            node: None,
            pace: Pace::Full,
        }
    }

    fn exec() -> ExecSpec {
        ExecSpec {
            command: vec!["true".to_owned()],
            cpus: None,
            output: "output.txt".into(),
            rate_pattern: None,
            rate_unit: "per_s".to_owned(),
        }
    }

    fn message(work: LoadWork) -> String {
        LoadSpec::new(work).validate().unwrap_err().to_string()
    }

    #[test]
    fn wrong_specs_say_what_is_wrong() {
        assert!(LoadSpec::new(LoadWork::Memory(memory())).validate().is_ok());
        let spec = LoadSpec { interval: Nanos(0), ..LoadSpec::new(LoadWork::Memory(memory())) };
        assert!(matches!(spec.validate(), Err(LoadError::Interval)));
        let cpus = CpuSet::default();
        assert!(message(LoadWork::Memory(MemorySpec { cpus, ..memory() })).contains("no CPU"));
        let working_set = Bytes(64);
        let text = message(LoadWork::Memory(MemorySpec { working_set, ..memory() }));
        assert_eq!(text, "a working set of 64B is too small for `copy`; the smallest is 128B");
        for pace in [Pace::DutyCycle(0.0), Pace::DutyCycle(1.5), Pace::Rate(BytesPerSec(-1.0))] {
            assert!(message(LoadWork::Memory(MemorySpec { pace, ..memory() })).contains("cannot be kept"));
        }
    }

    #[test]
    fn wrong_patterns_and_commands_are_found_before_starting() {
        assert!(LoadSpec::new(LoadWork::Exec(exec())).validate().is_ok());
        let with = |pattern: &str| {
            message(LoadWork::Exec(ExecSpec { rate_pattern: Some(pattern.to_owned()), ..exec() }))
        };
        assert!(with("rate: ([0-9").contains("is not a regular expression"));
        assert!(with("rate: [0-9]+").contains("has 0 groups; it needs exactly one"));
        assert!(with("(a)(b)").contains("has 2 groups"));
        assert!(message(LoadWork::Exec(ExecSpec { command: vec![], ..exec() })).contains("command is empty"));
    }

    #[test]
    fn requests_survive_the_way_to_the_child() {
        for work in [LoadWork::Memory(memory()), LoadWork::Exec(exec())] {
            let spec = LoadSpec { duration: Some(Nanos::from_secs(2)), ..LoadSpec::new(work) };
            let line = serde_json::to_string(&spec).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<LoadSpec>(&line).unwrap(), spec);
        }
    }
}
