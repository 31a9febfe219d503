//! Flags of `whylate treat`.

use super::isolation::{CachePartitionArguments, GpuPowerArguments, ShieldArguments};
use clap::{Args, Subcommand, ValueEnum};
use whylate_core::CpuSelector;
use whylate_core::plan::{
    AffinityPlan, GovernorPlan, IdlePlan, IrqAffinityPlan, KsmPlan, ModuleParameterPlan, RtThrottlingPlan,
    SmtOffPlan, SwitchPlan, SysctlPlan, SysfsPlan, ThpPlan, TreatmentKind,
};
use whylate_core::units::{Hz, Nanos};

/// `whylate treat`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Every change is in a journal (/var/lib/whylate/journal, or $WHYLATE_STATE_DIR/journal) before it
is made. A setting that somebody else has changed since is left alone, and the exit code is 3.

Examples:
  whylate treat apply shield --cpus 1                    keeps everything else away from CPU 1
  whylate treat apply irq-affinity --cpus 0 --dry-run    what would be written
  whylate treat apply governor --governor performance    changes it until `restore`
  whylate treat status                                   what is changed, and by whom
  whylate treat restore                                  takes everything back")]
pub(crate) enum TreatCommand {
    /// Changes settings, until `restore`
    #[command(subcommand)]
    Apply(ApplyCommand),
    /// Lists what is changed, by which command or run
    #[command(after_help = "Examples:\n  whylate treat status\n  whylate treat status --json")]
    Status(TreatPrinting),
    /// Takes back every change, also those that a killed run left behind
    #[command(after_help = "Examples:\n  whylate treat restore")]
    Restore(TreatPrinting),
}

/// How the outcome is printed.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TreatPrinting {
    /// Prints one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of every treatment.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Applying {
    /// Prints what would be written, and writes nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) printing: TreatPrinting,
}

/// A treatment with its flags.
#[derive(Debug, Args)]
pub(crate) struct Treatment<T: Args> {
    #[command(flatten)]
    pub(crate) parameters: T,
    #[command(flatten)]
    pub(crate) applying: Applying,
}

/// `whylate treat apply`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  whylate treat apply shield --cpus 1
  whylate treat apply governor --governor performance --dry-run
  whylate treat status")]
pub(crate) enum ApplyCommand {
    /// Keeps processes, interrupts and timers of others away from CPUs
    Shield(Treatment<ShieldArguments>),
    /// Moves interrupts to other CPUs
    IrqAffinity(Treatment<IrqAffinityArguments>),
    /// Moves a process with all its threads to certain CPUs
    Affinity(Treatment<AffinityArguments>),
    /// Sets the frequency governor, frequency limits, energy preference, turbo
    Governor(Treatment<GovernorArguments>),
    /// Switches the other threads of cores off
    SmtOff(Treatment<SmtOffArguments>),
    /// Disables idle states that take long to leave
    Idle(Treatment<IdleArguments>),
    /// Gives CPUs a part of the last-level cache to themselves
    CachePartition(Treatment<CachePartitionArguments>),
    /// Keeps graphics devices powered, and at one clock
    GpuPower(Treatment<GpuPowerArguments>),
    /// Sets transparent huge pages
    Thp(Treatment<ThpArguments>),
    /// Sets the merging of equal pages
    #[command(after_help = "Examples:\n  whylate treat apply ksm off")]
    Ksm(Treatment<SwitchArguments>),
    /// Sets the moving of pages between NUMA nodes
    #[command(after_help = "Examples:\n  whylate treat apply numa-balancing off")]
    NumaBalancing(Treatment<SwitchArguments>),
    /// Sets the kernel's lockup detectors
    #[command(after_help = "Examples:\n  whylate treat apply watchdog off")]
    Watchdog(Treatment<SwitchArguments>),
    /// Sets what real-time tasks may use of each period
    RtThrottling(Treatment<RtThrottlingArguments>),
    /// Writes any file below /sys or /proc
    Sysfs(Treatment<SysfsArguments>),
    /// Sets any sysctl
    Sysctl(Treatment<SysctlArguments>),
    /// Sets a parameter of a kernel module
    ModuleParameter(Treatment<ModuleParameterArguments>),
}

impl ApplyCommand {
    /// The treatment, and how to go about it.
    pub(crate) fn into_parts(self) -> (TreatmentKind, Applying) {
        match self {
            Self::Shield(it) => (it.parameters.into(), it.applying),
            Self::CachePartition(it) => (it.parameters.into(), it.applying),
            Self::GpuPower(it) => (it.parameters.into(), it.applying),
            Self::IrqAffinity(it) => (it.parameters.into(), it.applying),
            Self::Affinity(it) => (it.parameters.into(), it.applying),
            Self::Governor(it) => (it.parameters.into(), it.applying),
            Self::SmtOff(it) => (it.parameters.into(), it.applying),
            Self::Idle(it) => (it.parameters.into(), it.applying),
            Self::Thp(it) => (it.parameters.into(), it.applying),
            Self::Ksm(it) => (TreatmentKind::Ksm(KsmPlan { enabled: it.parameters.is_on() }), it.applying),
            Self::NumaBalancing(it) => (TreatmentKind::NumaBalancing(it.parameters.plan()), it.applying),
            Self::Watchdog(it) => (TreatmentKind::Watchdog(it.parameters.plan()), it.applying),
            Self::RtThrottling(it) => (it.parameters.into(), it.applying),
            Self::Sysfs(it) => (it.parameters.into(), it.applying),
            Self::Sysctl(it) => (it.parameters.into(), it.applying),
            Self::ModuleParameter(it) => (it.parameters.into(), it.applying),
        }
    }
}

/// `whylate treat apply irq-affinity`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply irq-affinity --cpus 0                  every interrupt that can be moved
  whylate treat apply irq-affinity nvme eth0 --cpus 0,2      those of two devices
  whylate treat apply irq-affinity --cpus 0 --dry-run        what would be written")]
pub(crate) struct IrqAffinityArguments {
    /// Line numbers, names of devices or drivers, PCI addresses, `msi`, or `all` that can be moved
    #[arg(default_value = "all", value_name = "INTERRUPT")]
    interrupts: Vec<String>,
    /// CPUs that shall handle them
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    cpus: CpuSelector,
    /// Leaves interrupts that are set up later where the kernel puts them
    #[arg(long)]
    leave_new: bool,
}

impl From<IrqAffinityArguments> for TreatmentKind {
    fn from(arguments: IrqAffinityArguments) -> Self {
        let IrqAffinityArguments { interrupts, cpus, leave_new } = arguments;
        Self::IrqAffinity(IrqAffinityPlan { interrupts, cpus, new_interrupts: !leave_new })
    }
}

/// `whylate treat apply affinity`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply affinity Xorg --cpus 0
  whylate treat apply affinity 1234 --cpus 0-1")]
pub(crate) struct AffinityArguments {
    /// Name or number of the process
    process: String,
    /// CPUs that its threads shall use
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    cpus: CpuSelector,
}

impl From<AffinityArguments> for TreatmentKind {
    fn from(arguments: AffinityArguments) -> Self {
        Self::Affinity(AffinityPlan { process: arguments.process, cpus: arguments.cpus })
    }
}

/// `whylate treat apply governor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply governor --governor performance
  whylate treat apply governor --min 3GHz --max 3GHz --turbo off --cpus 1")]
pub(crate) struct GovernorArguments {
    /// performance, powersave, schedutil, …
    #[arg(long, value_name = "NAME")]
    governor: Option<String>,
    /// Lowest frequency
    #[arg(long, value_name = "FREQUENCY")]
    min: Option<Hz>,
    /// Highest frequency
    #[arg(long, value_name = "FREQUENCY")]
    max: Option<Hz>,
    /// performance, balance_performance, …
    #[arg(long, value_name = "NAME")]
    energy_preference: Option<String>,
    /// Frequencies above the nominal one, of the whole machine
    #[arg(long, value_name = "STATE")]
    turbo: Option<Switch>,
    /// CPUs
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "all")]
    cpus: CpuSelector,
}

impl From<GovernorArguments> for TreatmentKind {
    fn from(arguments: GovernorArguments) -> Self {
        let GovernorArguments { governor, min, max, energy_preference, turbo, cpus } = arguments;
        let turbo = turbo.map(|turbo| turbo == Switch::On);
        Self::Governor(GovernorPlan { cpus, governor, min, max, energy_preference, turbo })
    }
}

/// `whylate treat apply smt-off`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply smt-off               one CPU of every core stays
  whylate treat apply smt-off --cpus 1      the others of its core go")]
pub(crate) struct SmtOffArguments {
    /// CPUs that keep their core to themselves [default: the first CPU of every core]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    cpus: Option<CpuSelector>,
}

impl From<SmtOffArguments> for TreatmentKind {
    fn from(arguments: SmtOffArguments) -> Self {
        Self::SmtOff(SmtOffPlan { cpus: arguments.cpus })
    }
}

/// `whylate treat apply idle`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply idle --cpus 1                             only polling is left
  whylate treat apply idle --cpus 1 --exit-latency-max 2us      shallow states stay")]
pub(crate) struct IdleArguments {
    /// CPUs
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "all")]
    cpus: CpuSelector,
    /// States that take longer to leave are disabled; 0s leaves only polling
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = super::parsers::microseconds)]
    exit_latency_max: Nanos,
}

impl From<IdleArguments> for TreatmentKind {
    fn from(arguments: IdleArguments) -> Self {
        Self::Idle(IdlePlan { cpus: arguments.cpus, exit_latency_max: arguments.exit_latency_max })
    }
}

/// `whylate treat apply thp`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply thp never
  whylate treat apply thp madvise --defrag never")]
pub(crate) struct ThpArguments {
    /// always, madvise or never
    #[arg(default_value = "never", value_name = "MODE")]
    enabled: String,
    /// When memory is compacted for them: always, defer, defer+madvise, madvise, never
    #[arg(long, value_name = "MODE")]
    defrag: Option<String>,
}

impl From<ThpArguments> for TreatmentKind {
    fn from(arguments: ThpArguments) -> Self {
        Self::Thp(ThpPlan { enabled: arguments.enabled, defrag: arguments.defrag })
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Something that is on or off.
#[derive(Debug, Args)]
pub(crate) struct SwitchArguments {
    /// The state to set
    #[arg(default_value = "off", value_name = "STATE")]
    state: Switch,
}

impl SwitchArguments {
    fn is_on(&self) -> bool {
        self.state == Switch::On
    }
    fn plan(&self) -> SwitchPlan {
        SwitchPlan { enabled: self.is_on() }
    }
}

/// `whylate treat apply rt-throttling`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply rt-throttling            no limit: a real-time loop may take all of a CPU
  whylate treat apply rt-throttling 980ms      of each period")]
pub(crate) struct RtThrottlingArguments {
    /// Time in each period [default: no limit]
    #[arg(value_name = "TIME", value_parser = super::parsers::microseconds)]
    runtime: Option<Nanos>,
}

impl From<RtThrottlingArguments> for TreatmentKind {
    fn from(arguments: RtThrottlingArguments) -> Self {
        Self::RtThrottling(RtThrottlingPlan { runtime: arguments.runtime })
    }
}

/// `whylate treat apply sysfs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply sysfs /sys/kernel/mm/ksm/run 0
  whylate treat apply sysfs '/sys/devices/system/machinecheck/machinecheck{cpu}/check_interval' 0")]
pub(crate) struct SysfsArguments {
    /// File below /sys or /proc; `{cpu}` in it stands for each of --cpus
    path: String,
    /// What to write
    value: String,
    /// CPUs that `{cpu}` stands for
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "all")]
    cpus: CpuSelector,
}

impl From<SysfsArguments> for TreatmentKind {
    fn from(arguments: SysfsArguments) -> Self {
        Self::Sysfs(SysfsPlan { path: arguments.path, value: arguments.value, cpus: arguments.cpus })
    }
}

/// `whylate treat apply sysctl`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply sysctl vm.stat_interval 120
  whylate treat apply sysctl kernel.sched_rt_runtime_us -1")]
pub(crate) struct SysctlArguments {
    /// Name: vm.swappiness
    key: String,
    /// What to set it to
    #[arg(allow_hyphen_values = true)]
    value: String,
}

impl From<SysctlArguments> for TreatmentKind {
    fn from(arguments: SysctlArguments) -> Self {
        Self::Sysctl(SysctlPlan { key: arguments.key, value: arguments.value })
    }
}

/// `whylate treat apply module-parameter`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate treat apply module-parameter kvm halt_poll_ns 0")]
pub(crate) struct ModuleParameterArguments {
    /// Module: i915
    module: String,
    /// Parameter
    parameter: String,
    /// What to set it to
    #[arg(allow_hyphen_values = true)]
    value: String,
}

impl From<ModuleParameterArguments> for TreatmentKind {
    fn from(arguments: ModuleParameterArguments) -> Self {
        let ModuleParameterArguments { module, parameter, value } = arguments;
        Self::ModuleParameter(ModuleParameterPlan { module, parameter, value })
    }
}
