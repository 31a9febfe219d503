//! Treatments of CPUs: who may use them, how fast they run, how deep they sleep.

use super::{KeyError, Words, all, microseconds, on_off, yes};
use crate::cpus::CpuSelector;
use crate::units::{Hz, Nanos};
use crate::words::words;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keeps processes, interrupts and timers of others away from CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShieldPlan {
    /// Which CPUs are shielded.
    #[serde(default = "CpuSelector::target")]
    pub cpus: CpuSelector,
    /// From tasks and threads of the kernel that can be moved, and from work that has no CPU of its own.
    #[serde(default = "yes")]
    pub processes: bool,
    /// From interrupts that can be moved.
    #[serde(default = "yes")]
    pub interrupts: bool,
    /// From timers, as far as the running kernel allows.
    #[serde(default = "yes")]
    pub local_timer: bool,
    /// How processes are kept away.
    #[serde(default)]
    pub method: ShieldMethod,
}

words! {
    /// How a shield keeps processes away.
    #[derive(Default, ValueEnum)]
    pub enum ShieldMethod: "a way to shield" {
        /// A cpuset where the kernel offers one, else the affinity of every thread.
        #[default]
        Auto = "auto",
        /// An isolated partition of cgroup v2, or cpusets of cgroup v1.
        Cpuset = "cpuset",
        /// The affinity of every thread that can be moved; threads that are started later inherit it from their parents.
        Affinity = "affinity",
    }
}

/// The command line of a shield: what is kept away is one flag there.
#[derive(Args)]
#[command(after_help = "\
Examples:
  whylate treat apply shield --cpus 1             processes, interrupts and timers leave CPU 1
  whylate treat apply shield --cpus 2-3 --from irq,ltmr
  whylate measure timer --cpu 1                   the probe enters the shield by itself
  whylate cpus                                    what is left there
  whylate treat restore

Another program enters the shield when its number is written to the group whylate-shield (cgroup v1:
tasks; cgroup v2: cgroup.procs) and it is then pinned there (taskset).")]
struct ShieldFlags {
    /// CPUs to shield
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    cpus: CpuSelector,
    /// What is kept away: proc (tasks, kernel threads, work items), irq, ltmr (timers)
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "proc,irq,ltmr")]
    from: Vec<Disturber>,
    /// How processes are kept away: auto, cpuset, affinity
    #[arg(long, default_value = "auto")]
    method: ShieldMethod,
}

/// What a shield keeps away.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Disturber {
    /// Tasks, threads of the kernel, work items
    Proc,
    /// Interrupts
    Irq,
    /// Timers
    Ltmr,
}

impl Args for ShieldPlan {
    fn augment_args(command: Command) -> Command {
        ShieldFlags::augment_args(command)
    }
    fn augment_args_for_update(command: Command) -> Command {
        ShieldFlags::augment_args_for_update(command)
    }
}

impl FromArgMatches for ShieldPlan {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let ShieldFlags { cpus, from, method } = ShieldFlags::from_arg_matches(matches)?;
        let [processes, interrupts, local_timer] =
            [Disturber::Proc, Disturber::Irq, Disturber::Ltmr].map(|what| from.contains(&what));
        Ok(Self { cpus, processes, interrupts, local_timer, method })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Moves interrupts to other CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Args)]
#[serde(deny_unknown_fields)]
#[command(after_help = "\
Examples:
  whylate treat apply irq-affinity --cpus 0                  every interrupt that can be moved
  whylate treat apply irq-affinity nvme eth0 --cpus 0,2      those of two devices
  whylate treat apply irq-affinity --cpus 0 --dry-run        what would be written")]
pub struct IrqAffinityPlan {
    /// Line numbers, names of devices or drivers, PCI addresses, `msi`, or `all` that can be moved.
    #[serde(default = "all")]
    #[arg(default_value = "all", value_name = "INTERRUPT")]
    pub interrupts: Vec<String>,
    /// CPUs that shall handle them.
    #[serde(default = "CpuSelector::others")]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    pub cpus: CpuSelector,
    /// Whether interrupts that are set up later go there too (/proc/irq/default_smp_affinity).
    #[serde(default = "yes")]
    #[arg(long = "leave-new", action = ArgAction::SetFalse)]
    #[arg(help = "Leaves interrupts that are set up later where the kernel puts them")]
    pub new_interrupts: bool,
}

/// Moves a process with all its threads to certain CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Args)]
#[serde(deny_unknown_fields)]
#[command(after_help = "\
Examples:
  whylate treat apply affinity Xorg --cpus 0
  whylate treat apply affinity 1234 --cpus 0-1")]
pub struct AffinityPlan {
    /// Its name or number; all processes of that name.
    #[arg(help = "Name or number of the process")]
    pub process: String,
    /// CPUs that its threads shall use.
    #[serde(default = "CpuSelector::others")]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    pub cpus: CpuSelector,
}

/// Sets how the frequency is chosen, and its limits; what is absent stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Args)]
#[serde(deny_unknown_fields)]
#[command(after_help = "\
Examples:
  whylate treat apply governor --governor performance
  whylate treat apply governor --min 3GHz --max 3GHz --turbo off --cpus 1")]
pub struct GovernorPlan {
    /// `performance`, `powersave`, `schedutil`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NAME", help = "performance, powersave, schedutil, …")]
    pub governor: Option<String>,
    /// Lowest frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FREQUENCY")]
    pub min: Option<Hz>,
    /// Highest frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "FREQUENCY")]
    pub max: Option<Hz>,
    /// `performance`, `balance_performance`, … (Intel and AMD processors that choose the frequency themselves).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "NAME", help = "performance, balance_performance, …")]
    pub energy_preference: Option<String>,
    /// Frequencies above the nominal one, of the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(long, value_name = "STATE", value_parser = on_off())]
    pub turbo: Option<bool>,
    /// On which CPUs. CPUs that share a clock change together.
    #[serde(default = "CpuSelector::target")]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "all", help = "CPUs")]
    pub cpus: CpuSelector,
}

/// Switches the other threads of cores off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Args)]
#[serde(deny_unknown_fields)]
#[command(after_help = "\
Examples:
  whylate treat apply smt-off               one CPU of every core stays
  whylate treat apply smt-off --cpus 1      the others of its core go")]
pub struct SmtOffPlan {
    /// CPUs that keep their core to themselves [default: the first CPU of every core].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    pub cpus: Option<CpuSelector>,
}

/// Limits how deep CPUs sleep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Args)]
#[serde(deny_unknown_fields)]
#[command(after_help = "\
Examples:
  whylate treat apply idle --cpus 1                             only polling is left
  whylate treat apply idle --cpus 1 --exit-latency-max 2us      shallow states stay")]
pub struct IdlePlan {
    /// On which CPUs.
    #[serde(default = "CpuSelector::target")]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "all", help = "CPUs")]
    pub cpus: CpuSelector,
    /// States that take longer to leave are disabled; 0s leaves only polling.
    #[serde(default)]
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = microseconds)]
    pub exit_latency_max: Nanos,
}

impl Words for ShieldPlan {}
impl Words for AffinityPlan {}
impl Words for SmtOffPlan {}
impl Words for IdlePlan {}

impl Words for IrqAffinityPlan {
    fn check(&self) -> Result<(), KeyError> {
        let message = "is empty; name interrupts, or leave it out for all";
        if self.interrupts.is_empty() { Err(KeyError::new("interrupts", message)) } else { Ok(()) }
    }
}

impl Words for GovernorPlan {
    fn check(&self) -> Result<(), KeyError> {
        let Self { cpus: _, governor: None, min: None, max: None, energy_preference: None, turbo: None } =
            self
        else {
            return Ok(());
        };
        let message = "sets nothing; give `governor`, `min`, `max`, `energy_preference` or `turbo`";
        Err(KeyError::new("", message))
    }
}
