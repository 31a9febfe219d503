//! Flags of `whylate load`.

use super::Printing;
use super::parsers::seconds;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use whylate_core::plan::{BarrierReach, EventPace, IrqSource, MemoryAccess, Pace, Size};
use whylate_core::{CpuSelector, Nanos};

/// `whylate load`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  whylate load memory --working-set l3/2 --duration 10s
  whylate load tlb --victims 1
  whylate load exec --cpus 1 -- stress-ng --cpu 1")]
pub(crate) enum LoadCommand {
    /// Memory traffic over a working set of random data
    Memory(MemoryArguments),
    /// Any command, pinned and watched
    Exec(ExecArguments),
    /// mprotect and munmap: TLB shootdowns on CPUs that run the same process
    Tlb(TlbArguments),
    /// membarrier: interrupts sent to other CPUs
    Ipi(IpiArguments),
    /// Write-combining buffers of a graphics device: page-attribute changes flush every CPU
    Pageattr(PageattrArguments),
    /// Packets on the loopback interface: softirqs
    Softirq(SoftirqArguments),
    /// Interrupts of a disk, the real-time clock or a timer
    IrqThread(IrqThreadArguments),
}

/// `whylate load memory`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate load memory --working-set l3/2 --duration 10s
  whylate load memory --cpus 0,1 --working-set 64MiB --kind read --rate 500MB/s
  whylate load memory --working-set l3*4 --kind random-chase --json")]
pub(crate) struct MemoryArguments {
    /// CPUs to load, one thread on each
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "last")]
    pub(crate) cpus: CpuSelector,
    /// Size of each thread's buffer: 64MiB, l2/2, l3*4, or llc for the last-level cache
    #[arg(long, value_name = "SIZE", default_value = "llc/2")]
    pub(crate) working_set: Size,
    /// Kind of traffic: read, write, copy, random-chase, non-temporal-write
    #[arg(long, default_value = "copy")]
    pub(crate) kind: MemoryAccess,
    /// How much: 500MB/s over all CPUs, 25% of the time, or full
    #[arg(long, default_value = "full")]
    pub(crate) rate: Pace,
    /// NUMA node of the buffers [default: the CPU's own]
    #[arg(long)]
    pub(crate) node: Option<u32>,
    /// Uses huge pages
    #[arg(long)]
    pub(crate) huge_pages: bool,
    #[command(flatten)]
    pub(crate) run: LoadArguments,
}

/// `whylate load exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate load exec --cpus 1 --duration 30s -- stress-ng --cpu 1
  whylate load exec --rate-pattern '([0-9.]+)/sec' --rate-unit rect_per_s -- x11perf -rect500")]
pub(crate) struct ExecArguments {
    /// CPUs that the command may use [default: all]
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST")]
    pub(crate) cpus: Option<CpuSelector>,
    /// Regular expression whose first group is a rate, searched in each line of the command's output
    #[arg(long, value_name = "REGEX")]
    pub(crate) rate_pattern: Option<String>,
    /// What that rate counts
    #[arg(long, value_name = "UNIT", default_value = "per_s")]
    pub(crate) rate_unit: String,
    /// File for the command's output; must not exist [default: shown on standard error when it fails]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Program and arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
    #[command(flatten)]
    pub(crate) run: LoadArguments,
}

/// `whylate load tlb`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate load tlb --victims 1
  whylate load tlb --cpus 0,2 --victims 1 --rate 10000/s --duration 1m --json

A flush reaches only CPUs that run the same process: the load hosts a busy thread, of ordinary
priority, on each victim.")]
pub(crate) struct TlbArguments {
    /// CPUs whose threads change mappings, one on each; `others`: all that are not victims
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "others")]
    pub(crate) cpus: CpuSelector,
    /// CPUs to be hit
    #[arg(long, value_name = "LIST", default_value = "last")]
    pub(crate) victims: CpuSelector,
    /// How many flushes: 1000/s over all CPUs, 25% of the time, or full
    #[arg(long, default_value = "full")]
    pub(crate) rate: EventPace,
    #[command(flatten)]
    pub(crate) run: LoadArguments,
}

/// `whylate load ipi`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate load ipi --victims 1
  whylate load ipi --reach global --rate 1000/s --json

A barrier reaches only CPUs that run the same process (private), or one that has registered for it
(global): the load hosts a busy thread, of ordinary priority, on each victim.")]
pub(crate) struct IpiArguments {
    /// CPUs whose threads call membarrier, one on each; `others`: all that are not victims
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "others")]
    pub(crate) cpus: CpuSelector,
    /// CPUs to be hit
    #[arg(long, value_name = "LIST", default_value = "last")]
    pub(crate) victims: CpuSelector,
    /// Whom a barrier reaches: private or global
    #[arg(long, default_value = "private")]
    pub(crate) reach: BarrierReach,
    /// How many barriers: 1000/s over all CPUs, 25% of the time, or full
    #[arg(long, default_value = "full")]
    pub(crate) rate: EventPace,
    #[command(flatten)]
    pub(crate) run: LoadArguments,
}

/// `whylate load pageattr`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate load pageattr --cpus 0
  whylate load pageattr --rate 100/s --json

Needs a graphics device whose driver maps buffers write-combining; `modprobe vgem` makes one.")]
pub(crate) struct PageattrArguments {
    /// CPUs to make buffers on, one thread on each
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "last")]
    pub(crate) cpus: CpuSelector,
    /// How many buffers of 1 MiB: 100/s over all CPUs, 25% of the time, or full
    #[arg(long, default_value = "full")]
    pub(crate) rate: EventPace,
    #[command(flatten)]
    pub(crate) run: LoadArguments,
}

/// `whylate load softirq`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate load softirq --cpus 1
  whylate load softirq --cpus 1 --rate 20000/s --json")]
pub(crate) struct SoftirqArguments {
    /// CPUs to send and receive packets on, one thread on each
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "last")]
    pub(crate) cpus: CpuSelector,
    /// How many packets: 20000/s over all CPUs, 25% of the time, or full
    #[arg(long, default_value = "full")]
    pub(crate) rate: EventPace,
    #[command(flatten)]
    pub(crate) run: LoadArguments,
}

/// `whylate load irq-thread`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate load irq-thread --cpus 1
  whylate load irq-thread --source rtc --rate 1000/s
  whylate load irq-thread --source disk --json

Which CPU handles a disk's interrupts is up to its queues; /proc/interrupts shows it.")]
pub(crate) struct IrqThreadArguments {
    /// CPUs to ask for interrupts on, one thread on each
    #[arg(short = 'a', long, alias = "cpu", value_name = "LIST", default_value = "last")]
    pub(crate) cpus: CpuSelector,
    /// What interrupts: disk, rtc, timer, or auto for the first of them that works
    #[arg(long, default_value = "auto")]
    pub(crate) source: IrqSource,
    /// How many interrupts: 1000/s over all CPUs, 25% of the time, or full
    #[arg(long, default_value = "full")]
    pub(crate) rate: EventPace,
    #[command(flatten)]
    pub(crate) run: LoadArguments,
}

/// Flags of every load.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LoadArguments {
    /// How long to load; a bare number is seconds, 0 is until Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub(crate) duration: Nanos,
    #[command(flatten)]
    pub(crate) printing: Printing,
}
