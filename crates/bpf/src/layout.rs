//! What programs and loader share: the counterpart of `bpf/layout.h`, which asserts the same sizes.

use std::mem::offset_of;
use whylate_stats::buckets::BUCKETS;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Most CPUs that the programs tell apart.
pub(crate) const CPUS_MAX: usize = 8192;
/// Histograms lie in strides of a power of two in their map.
pub(crate) const KINDS_STRIDE: usize = 8;
/// Length of a task's name with its final 0.
pub(crate) const COMMAND_BYTES: usize = 16;

/// What counts; the programs look at it at each event.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) prio_min: i32,
    pub(crate) prio_max: i32,
    pub(crate) pid: u32,
    pub(crate) has_command: u32,
    pub(crate) command: [u8; COMMAND_BYTES],
    /// The process that measures; 0 for none.
    pub(crate) own_process: u32,
    pub(crate) unused: u32,
    /// Per CPU, one bit for each kind.
    pub(crate) enabled: [u8; CPUS_MAX],
    /// Per CPU, 1 + the number of its ring; 0: it has none.
    pub(crate) rings: [u16; CPUS_MAX],
    /// Per CPU and kind: goes up by one with each reset, and is never 0.
    pub(crate) epochs: [[u16; KINDS_STRIDE]; CPUS_MAX],
    /// Per CPU, the process whose page faults are causes there; 0 for none.
    pub(crate) processes: [u32; CPUS_MAX],
    /// Per CPU, from which lateness on the stack of the moment is kept; 0: never.
    pub(crate) late_ns: [u32; CPUS_MAX],
}

/// Size of the configuration in its map.
pub(crate) const CONFIG_BYTES: usize = size_of::<Config>();
const _: () = assert!(CONFIG_BYTES == 40 + (11 + 2 * KINDS_STRIDE) * CPUS_MAX);
const _: () = assert!(offset_of!(Config, own_process) == 32 && offset_of!(Config, enabled) == 40);

/// The largest latency since the last reset.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Record {
    pub(crate) latency_ns: u64,
    pub(crate) at_ns: u64,
    pub(crate) timer_offset_ns: u64,
    pub(crate) wakeup_ns: u64,
    pub(crate) switch_ns: u64,
    pub(crate) syscall: i64,
    pub(crate) pid: u32,
    pub(crate) prio: i32,
    pub(crate) previous_pid: u32,
    pub(crate) previous_prio: i32,
    pub(crate) command: [u8; COMMAND_BYTES],
    pub(crate) previous_command: [u8; COMMAND_BYTES],
    pub(crate) is_timer: u32,
    pub(crate) unused: u32,
}

const _: () = assert!(size_of::<Record>() == 104);
const _: () = assert!(offset_of!(Record, pid) == 48 && offset_of!(Record, is_timer) == 96);

/// One histogram of one CPU. The counts never go back; the extremes do at a reset.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawHistogram {
    pub(crate) epoch: u32,
    pub(crate) unused: u32,
    pub(crate) samples: u64,
    pub(crate) sum_ns: u64,
    pub(crate) min_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) record: Record,
    pub(crate) buckets: [u64; BUCKETS],
}

/// Size of a histogram in its map.
pub(crate) const HISTOGRAM_BYTES: usize = size_of::<RawHistogram>();
const _: () = assert!(HISTOGRAM_BYTES == 144 + 8 * BUCKETS);
const _: () = assert!(offset_of!(RawHistogram, record) == 40 && offset_of!(RawHistogram, buckets) == 144);

/// What one CPU has counted besides latencies.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawCounters {
    pub(crate) wakings: u64,
    pub(crate) without_switch: u64,
    pub(crate) collisions: u64,
    pub(crate) elsewhere: u64,
    pub(crate) unfinished: u64,
    pub(crate) ipis_lost: u64,
}

const _: () = assert!(size_of::<RawCounters>() == 48);
/// Size of the state of a CPU, which begins with its counters.
pub(crate) const CPU_STATE_BYTES: usize = 256;
/// Where in it the number of its segments is.
pub(crate) const SEGMENTS_WRITTEN_AT: usize = 128;
/// Where in it the number of its ring is.
pub(crate) const RING_AT: usize = 184;

/// What took a CPU, from when to when.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawSegment {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// 1 + its number.
    pub(crate) number: u64,
    pub(crate) address: u64,
    pub(crate) id: u32,
    pub(crate) other: i32,
    pub(crate) prio: i32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) from_cpu: u16,
    pub(crate) command: [u8; COMMAND_BYTES],
}

/// Size of a segment in its map.
pub(crate) const SEGMENT_BYTES: usize = size_of::<RawSegment>();
const _: () = assert!(SEGMENT_BYTES == 64);
const _: () = assert!(offset_of!(RawSegment, kind) == 44 && offset_of!(RawSegment, command) == 48);

/// Addresses in the stack of a moment at which something was late.
pub(crate) const STACK_DEPTH: usize = 46;
/// Stacks that a CPU's ring holds.
pub(crate) const RING_STACKS: u32 = 64;

/// The stack of a moment at which something was late.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawStack {
    /// 1 + its number on its CPU.
    pub(crate) number: u64,
    /// How many bytes of the addresses count.
    pub(crate) bytes: u64,
    /// Innermost first.
    pub(crate) addresses: [u64; STACK_DEPTH],
}

/// Size of a stack in its map.
pub(crate) const STACK_BYTES: usize = size_of::<RawStack>();
const _: () = assert!(STACK_BYTES == 384);

/// Interrupts that other CPUs were sent, told apart by these.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawIpiKey {
    pub(crate) function: u64,
    pub(crate) call_site: u64,
    pub(crate) cpu: u32,
    pub(crate) from_cpu: u32,
    pub(crate) command: [u8; COMMAND_BYTES],
}

/// Size of that key.
pub(crate) const IPI_KEY_BYTES: usize = size_of::<RawIpiKey>();
const _: () = assert!(IPI_KEY_BYTES == 40 && offset_of!(RawIpiKey, command) == 24);

/// First byte of the command of what the measuring process itself sent.
pub(crate) const OWN_COMMAND: u8 = 0xff;

/// How many there were, and the stack of the first one.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawIpiCount {
    pub(crate) count: u64,
    pub(crate) stack: i64,
}

/// Size of that count.
pub(crate) const IPI_COUNT_BYTES: usize = size_of::<RawIpiCount>();
const _: () = assert!(IPI_COUNT_BYTES == 16);

impl Config {
    /// Nothing counts anywhere.
    pub(crate) fn nothing() -> Box<Self> {
        let mut config = Box::new(Self::new_zeroed());
        // A histogram that has never been written has epoch 0, and its extremes mean nothing.
        config.epochs.fill([1; KINDS_STRIDE]);
        config
    }
}

/// The text before the first 0.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
