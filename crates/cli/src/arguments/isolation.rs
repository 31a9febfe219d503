//! Flags of the treatments that set CPUs, caches and graphics devices apart.

use clap::{Args, ValueEnum};
use whylate_core::CpuSelector;
use whylate_core::plan::{CachePartitionPlan, GpuPowerPlan, ShieldMethod, ShieldPlan, TreatmentKind};

/// `whylate treat apply shield`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply shield --cpus 1             processes, interrupts and timers leave CPU 1
  whylate treat apply shield --cpus 2-3 --from irq,ltmr
  whylate measure timer --cpu 1                   the probe enters the shield by itself
  whylate cpus                                    what is left there
  whylate treat restore

Another program enters the shield when its number is written to the group whylate-shield (cgroup v1:
tasks; cgroup v2: cgroup.procs) and it is then pinned there (taskset).")]
pub(crate) struct ShieldArguments {
    /// CPUs to shield
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    cpus: CpuSelector,
    /// What is kept away: proc (tasks, kernel threads, work items), irq, ltmr (timers)
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_values_t = [Disturber::Proc, Disturber::Irq, Disturber::Ltmr])]
    from: Vec<Disturber>,
    /// How processes are kept away: auto, cpuset, affinity
    #[arg(long, default_value = "auto")]
    method: Method,
}

/// What a shield keeps away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Disturber {
    /// Tasks, threads of the kernel, work items
    Proc,
    /// Interrupts
    Irq,
    /// Timers
    Ltmr,
}

impl std::fmt::Display for Disturber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Proc => "proc",
            Self::Irq => "irq",
            Self::Ltmr => "ltmr",
        })
    }
}

/// How a shield keeps processes away.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Method {
    /// A cpuset where there is one, else affinity
    Auto,
    /// An isolated partition (cgroup v2) or cpusets (cgroup v1)
    Cpuset,
    /// The affinity of every thread
    Affinity,
}

impl From<ShieldArguments> for TreatmentKind {
    fn from(arguments: ShieldArguments) -> Self {
        let is_from = |what| arguments.from.contains(&what);
        Self::Shield(ShieldPlan {
            processes: is_from(Disturber::Proc),
            interrupts: is_from(Disturber::Irq),
            local_timer: is_from(Disturber::Ltmr),
            method: match arguments.method {
                Method::Auto => ShieldMethod::Auto,
                Method::Cpuset => ShieldMethod::Cpuset,
                Method::Affinity => ShieldMethod::Affinity,
            },
            cpus: arguments.cpus,
        })
    }
}

/// `whylate treat apply cache-partition`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply cache-partition --cpus 1
  whylate treat apply cache-partition --cpus 1 --share 25 --others-bandwidth 50")]
pub(crate) struct CachePartitionArguments {
    /// CPUs that get a part of the cache to themselves
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    cpus: CpuSelector,
    /// How large it is, in percent of the cache
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=99))]
    share: u32,
    /// What the others may use of the memory bandwidth, in percent [default: as it is]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=99))]
    others_bandwidth: Option<u32>,
}

impl From<CachePartitionArguments> for TreatmentKind {
    fn from(arguments: CachePartitionArguments) -> Self {
        Self::CachePartition(CachePartitionPlan {
            cpus: arguments.cpus,
            share_percent: arguments.share,
            others_bandwidth_percent: arguments.others_bandwidth,
        })
    }
}

/// `whylate treat apply gpu-power`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply gpu-power                        every device stays powered
  whylate treat apply gpu-power card0 --leave-clock")]
pub(crate) struct GpuPowerArguments {
    /// Names (card0), PCI addresses, drivers, or all
    #[arg(default_value = "all", value_name = "DEVICE")]
    devices: Vec<String>,
    /// Leaves the clock as it is
    #[arg(long)]
    leave_clock: bool,
}

impl From<GpuPowerArguments> for TreatmentKind {
    fn from(arguments: GpuPowerArguments) -> Self {
        Self::GpuPower(GpuPowerPlan { devices: arguments.devices, fixed_clock: !arguments.leave_clock })
    }
}
