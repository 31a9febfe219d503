//! Flags of `whylate measure`.

use super::Printing;
use super::parsers::{count, microseconds, seconds, threshold};
use clap::{Args, Subcommand};
use whylate_core::plan::{CpuPair, DispatchSource, Policy, RoundtripMethods, Size, Threshold, TimerMethod};
use whylate_core::{CpuSelector, Nanos};

/// `whylate measure`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  whylate measure timer -a 1 -p 95 -D 10s         what cyclictest measures
  whylate measure stall --cpu 1 --duration 10s    what oslat measures
  whylate measure timer -a 1 --causes             who made it late")]
pub(crate) enum MeasureCommand {
    /// How late a periodic task runs (what cyclictest measures)
    Timer(TimerArguments),
    /// Which time is taken from a task that never sleeps (what oslat measures)
    Stall(StallArguments),
    /// From an interrupt to the process that waits for it (process dispatch latency)
    Dispatch(DispatchArguments),
    /// A message from one CPU to another and back, by shared memory, futex, pipe, socket, …
    Roundtrip(RoundtripArguments),
}

/// Flags of every probe.
#[derive(Debug, Args)]
pub(crate) struct ProbeArguments {
    /// Scheduling policy: fifo, rr, other, or (timer only) deadline
    #[arg(long, default_value = "fifo")]
    pub(crate) policy: Policy,
    /// Real-time priority, 1 to 99
    #[arg(short, long, default_value_t = 95, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) priority: u32,
    /// How long to measure; a bare number is seconds, 0 is until Ctrl-C
    #[arg(short = 'D', long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    pub(crate) duration: Nanos,
    /// How long to run before the samples count
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = seconds)]
    pub(crate) warmup: Nanos,
    /// How many of the largest spikes to list
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) spikes: usize,
    /// Fails where real-time priority or locked memory is refused, instead of warning
    #[arg(long)]
    pub(crate) strict: bool,
    /// Leaves the idle states alone, instead of holding /dev/cpu_dma_latency at 0
    #[arg(long)]
    pub(crate) no_cpu_dma_latency: bool,
    /// Says who caused each spike; needs root and a kernel with BPF and BTF
    #[arg(long)]
    pub(crate) causes: bool,
    /// Runs a shell command at the first spike; the latency is in WHYLATE_LATENCY_NS
    #[arg(long, value_name = "COMMAND")]
    pub(crate) on_threshold: Option<String>,
    #[command(flatten)]
    pub(crate) printing: Printing,
}

/// `whylate measure timer`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate measure timer -a 1 -p 95 -i 200us -D 10s
  whylate measure timer --cpu 2-3 --duration 1h --json > night.json
  whylate measure timer -a 1 -b 100us --on-threshold 'cat /proc/interrupts'

The short flags are cyclictest's (-a -i -D -p -b -l -d -t -S -m -q), with its units for bare
numbers; -h is help.
A latency above --break writes a trace marker, stops tracing, ends the measurement and gives exit
code 2.")]
pub(crate) struct TimerArguments {
    /// CPUs to measure, one thread on each: a list, or all, isolated, housekeeping, last [without a list: all]
    #[arg(short = 'a', long = "cpu", alias = "cpus", visible_alias = "affinity", value_name = "LIST", num_args = 0..=1, default_missing_value = "all")]
    pub(crate) cpu: Option<CpuSelector>,
    /// Period of the task; a bare number is microseconds
    #[arg(short, long, value_name = "TIME", default_value = "200us", value_parser = microseconds)]
    pub(crate) interval: Nanos,
    /// By how much each further CPU begins later; a bare number is microseconds [0: aligned start]
    #[arg(short, long, value_name = "TIME", default_value = "0us", value_parser = microseconds)]
    pub(crate) distance: Nanos,
    /// Ends at the first latency above this; a bare number is microseconds
    #[arg(short = 'b', long = "break", visible_alias = "breaktrace", value_name = "TIME", value_parser = microseconds)]
    pub(crate) break_above: Option<Nanos>,
    /// Ends after that many samples on a CPU
    #[arg(short = 'l', long, visible_alias = "loops", value_name = "N", value_parser = count)]
    pub(crate) until_samples: Option<u64>,
    /// What wakes the task: nanosleep, timerfd or posix-timer
    #[arg(long, default_value = "nanosleep")]
    pub(crate) method: TimerMethod,
    /// How many threads, on as many of the CPUs [without a number: one on each]
    #[arg(short, long, value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub(crate) threads: Option<usize>,
    /// One thread on each CPU: -t -a
    #[arg(short = 'S', long)]
    pub(crate) smp: bool,
    /// Memory is always locked where that is allowed; accepted because cyclictest asks for it
    #[arg(short, long, hide = true)]
    pub(crate) mlockall: bool,
    /// clock_nanosleep is the default; accepted because older versions of cyclictest ask for it
    #[arg(short, long, hide = true)]
    pub(crate) nanosleep: bool,
    #[command(flatten)]
    pub(crate) probe: ProbeArguments,
}

/// `whylate measure stall`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  whylate measure stall --cpu 1 --threshold 1us --duration 10s
  whylate measure stall --cpu isolated --duration 1h --json > gaps.json
  whylate measure stall --cpu 1 --threshold 3100cycles --working-set l2/2

The loop never sleeps: the CPU belongs to it for the time, but for what the kernel takes. At
real-time priority it is refused on the last CPU that the rest of the system has.")]
pub(crate) struct StallArguments {
    /// CPUs to measure, one thread on each: a list, or all, isolated, housekeeping, last
    #[arg(short = 'a', long = "cpu", alias = "cpus", value_name = "LIST", default_value = "last")]
    pub(crate) cpu: CpuSelector,
    /// Gaps at least this long are recorded one by one: 1us, or 3100cycles; a bare number is microseconds
    #[arg(long, default_value = "10us", value_parser = threshold)]
    pub(crate) threshold: Threshold,
    /// Each turn also reads a line of a buffer of this size: 256KiB, l2/2
    #[arg(long, value_name = "SIZE")]
    pub(crate) working_set: Option<Size>,
    #[command(flatten)]
    pub(crate) probe: ProbeArguments,
}

/// `whylate measure dispatch`.
#[derive(Debug, Args)]
#[command(mut_arg("duration", |duration| duration.default_value("0").help(
    "How long to measure at most; a bare number is seconds, 0 is until --samples"
)))]
#[command(after_help = "\
Examples:
  whylate measure dispatch --cpu 1
  whylate measure dispatch --cpu isolated --source nanosleep --samples 10000
  whylate measure dispatch --cpu 3 --source rtc --interval 500us --duration 1m --json
  whylate measure dispatch --cpu 3 --source uio0 --interval 1ms

The table is followed by rows of 10 us with bars of stars. timerfd, nanosleep and rtc tell for which
moment they were programmed; the latency of the others is counted from the earliest of their last
interrupts.")]
pub(crate) struct DispatchArguments {
    /// CPUs to measure, one thread on each: a list, or all, isolated, housekeeping, last
    #[arg(short = 'a', long = "cpu", alias = "cpus", value_name = "LIST", default_value = "last")]
    pub(crate) cpu: CpuSelector,
    /// What interrupts: timerfd, nanosleep, rtc, rtc-update, hpet, or a UIO device such as uio0
    #[arg(long, default_value = "timerfd")]
    pub(crate) source: DispatchSource,
    /// Time between two interrupts; a bare number is microseconds [default: 1ms]
    #[arg(short, long, value_name = "TIME", value_parser = microseconds)]
    pub(crate) interval: Option<Nanos>,
    /// Ends after that many samples on a CPU
    #[arg(short = 'l', long, value_name = "N", default_value_t = 60_000, value_parser = count)]
    pub(crate) samples: u64,
    /// Ends at the first latency above this; a bare number is microseconds
    #[arg(short = 'b', long = "break", value_name = "TIME", value_parser = microseconds)]
    pub(crate) break_above: Option<Nanos>,
    /// Measures the whole only, without the BPF programs that tell its parts
    #[arg(long)]
    pub(crate) no_parts: bool,
    #[command(flatten)]
    pub(crate) probe: ProbeArguments,
}

/// `whylate measure roundtrip`.
#[derive(Debug, Args)]
#[command(mut_arg("on_threshold", |hook| hook.hide(true)))]
#[command(after_help = "\
Examples:
  whylate measure roundtrip --cpus 1,2
  whylate measure roundtrip --cpus 1,2 --method futex --samples 100000
  whylate measure roundtrip --cpus 2,2 --method pipe,unix --json

The methods share the duration. Where both CPUs have the same clock, each way is measured too (there
and back). Both CPUs may be the same for methods that sleep.")]
pub(crate) struct RoundtripArguments {
    /// The two CPUs, the asking one first [default: the last CPU and another one]
    #[arg(short = 'a', long = "cpus", alias = "cpu", value_name = "A,B")]
    pub(crate) cpus: Option<CpuPair>,
    /// How the message travels: all, or some of spin, futex, eventfd, pipe, unix, udp
    #[arg(long, value_name = "LIST", default_value = "all")]
    pub(crate) method: RoundtripMethods,
    /// Ends each method after that many round trips
    #[arg(short = 'l', long, value_name = "N", value_parser = count)]
    pub(crate) samples: Option<u64>,
    #[command(flatten)]
    pub(crate) probe: ProbeArguments,
}
