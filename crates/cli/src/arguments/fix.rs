//! Flags of `whylate fix`.

use super::Printing;
use super::parsers::{microseconds, minutes};
use clap::Args;
use std::path::PathBuf;
use whylate_core::Nanos;
use whylate_core::plan::{BootPlan, Share};
use whylate_core::result::FixGoal;
use whylate_runner::campaign::LoaderName;

/// `whylate fix`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate fix                                       settings that lower the plan `quick`'s latencies
  whylate fix memory-load --goal 'timer p99.9'      another plan and statistic
  whylate fix plan.toml --goal 'max < 100us' --budget 1h --yes all
  whylate fix --task audio --deadline 1ms --goal misses         your own task, while it runs
  whylate fix --yes idle,irq-affinity --never smt-off
  whylate fix --advise                              proposes, and changes nothing
  whylate fix --resume DIR                          continues a search that was stopped or killed
  whylate fix --show DIR --write install            writes files that install what was proved
  whylate fix --verify DIR                          after an update: does the proof still hold?
  whylate fix --audit /etc/sysctl.d/99-copied.conf  which of these settings help, and which can go
  whylate fix --campaign /var/lib/c --boot isolcpus=1 --boot 'nohz_full=1 rcu_nocbs=1'
                                                    reboots for treatments that need a boot

whylate first measures the unchanged machine. The causes of late time and the findings of
`whylate check` suggest treatments. Each repeat of the search applies some treatments, measures, and
restores the settings. The best treatments are then compared with the unchanged machine on new data,
in pairs with a random order. At most 5 % of searches give a wrong proof.

A campaign boots the machine once for each repeat, with a boot entry that the boot loader uses only
once. The default boot entry is not changed. A systemd unit continues the campaign after each boot.
A boot that fails is a failed repeat. At the end the campaign removes what it installed;
`whylate fix --show DIR/search` shows the result.

Exit codes: 0 something is proved or nothing is needed, 1 nothing is proved or the search is not
over, 2 the proof no longer holds (--verify), 3 a setting was not restored, 69 a
permission is missing.")]
pub(crate) struct FixArguments {
    /// Name of a built-in plan, or path of a TOML file [default: quick]
    pub(crate) plan: Option<String>,
    /// Searches for settings that help the running threads of this name, instead of a plan's probes
    #[arg(long, value_name = "NAME", conflicts_with = "plan")]
    pub(crate) task: Option<String>,
    /// Deadline of the task for `--goal misses`: a longer response is a miss; a bare number is microseconds
    #[arg(long, value_name = "TIME", requires = "task", value_parser = microseconds)]
    pub(crate) deadline: Option<Nanos>,
    /// What says that the task was late, as for `whylate watch`, for `--goal triggers`; may be given several times
    #[arg(long, value_name = "TRIGGER", requires = "task")]
    pub(crate) trigger: Vec<String>,
    /// Directory for the search: a new or an empty one [default: $XDG_DATA_HOME/whylate/runs/TIME-PLAN]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Overrides one value of the plan, for example `duration=10s`
    #[arg(long = "set", value_name = "PATH=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// The statistic to lower: `timer p99.9`, `max < 100us`, `misses`, `triggers` [default: the plan's primary statistic]
    #[arg(long, value_name = "STATISTIC")]
    pub(crate) goal: Option<FixGoal>,
    /// How long the search may take [default: 30m]; a continued search keeps its original budget
    #[arg(long, value_name = "TIME", value_parser = minutes)]
    pub(crate) budget: Option<Nanos>,
    /// The smallest change that matters [default: the plan's]
    #[arg(long, value_name = "SHARE")]
    pub(crate) margin: Option<Share>,
    /// Seed of the random order of repeats and pairs [default: a new one each time]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Treatments to try without asking, by their ids in the proposal, or `all`
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub(crate) yes: Vec<String>,
    /// Treatments never to try
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub(crate) never: Vec<String>,
    /// Ignores the known causes and tries all treatments, to show how much time the causes save
    #[arg(long, hide = true)]
    pub(crate) ignore_causes: bool,
    /// Only proposes treatments, from a new measurement; if PLAN is the directory of a run, from that run instead
    #[arg(long, conflicts_with_all = ["yes", "never", "resume"])]
    pub(crate) advise: bool,
    /// As root, uses a plan file that another user can modify, without asking about its commands and settings
    #[arg(long)]
    pub(crate) trust_plan: bool,
    /// Checks which settings of FILE help: a tuned profile, sysctl.d, a kernel command line, a plan's treatments
    #[arg(long, value_name = "FILE", conflicts_with_all = ["advise", "resume"])]
    pub(crate) audit: Option<PathBuf>,
    /// Continues the search in DIR
    #[arg(long, value_name = "DIR", conflicts_with_all = ["plan", "output", "overrides", "goal", "margin", "seed", "advise"])]
    pub(crate) resume: Option<PathBuf>,
    /// Checks whether the proof of the search in DIR still holds on the current machine
    #[arg(long, value_name = "DIR", conflicts_with_all = ["plan", "overrides", "goal", "margin", "advise", "resume", "yes", "never", "audit"])]
    pub(crate) verify: Option<PathBuf>,
    /// Shows what the search in DIR proved; measures nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["plan", "output", "overrides", "goal", "margin", "seed", "advise", "resume", "yes", "never", "verify", "audit"])]
    pub(crate) show: Option<PathBuf>,
    /// Writes files that install the proved settings, below DIR instead of `/`
    #[arg(long, value_name = "DIR")]
    pub(crate) write: Option<PathBuf>,
    /// Tries treatments that need a boot; stores everything in DIR, which is new or empty
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "advise", "resume", "verify", "show", "audit", "never"])]
    pub(crate) campaign: Option<PathBuf>,
    /// Kernel command line options of one treatment (`kernel=VERSION` for another kernel); may be repeated
    #[arg(long, value_name = "WORDS", requires = "campaign", value_parser = BootPlan::of)]
    pub(crate) boot: Vec<BootPlan>,
    /// Boot loader of the machine: grub, systemd-boot, raspberry-pi, kexec, or the path of a script (packaging/boot/README.md)
    /// [default: the boot loader that is found]
    #[arg(long, value_name = "LOADER", requires = "campaign")]
    pub(crate) boot_loader: Option<LoaderName>,
    /// Continues the campaign after a boot
    #[arg(long = "continue", requires = "campaign", conflicts_with_all = ["plan", "boot", "boot_loader", "overrides", "goal", "margin", "seed"])]
    pub(crate) goes_on: bool,
    /// Ends the campaign: removes what it wrote outside of DIR
    #[arg(long, requires = "campaign", conflicts_with_all = ["plan", "boot", "boot_loader", "goes_on", "overrides", "goal", "margin", "seed"])]
    pub(crate) remove: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
}
