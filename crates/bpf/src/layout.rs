//! What the programs and their loader share: the counterpart of `bpf/layout.h`, which asserts the same sizes. A test
//! compares the lists of kinds and the constants of both.

pub(crate) mod tasks;
pub(crate) mod triggers;

use std::mem::offset_of;
use whylate_core::result::HistogramKind;
use whylate_stats::buckets::BUCKETS;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// Kinds of histograms, which lie in strides of a power of two in their map.
pub(crate) const KINDS: usize = HistogramKind::ALL.len();
pub(crate) const KINDS_STRIDE: usize = 8;
pub(crate) const STACK_DEPTH: usize = 46;
/// Requests of other CPUs that a CPU's ring holds.
pub(crate) const RING_CALLS: u32 = 16;
/// The most CPUs to which requests are recorded if the kernel has no events for them.
pub(crate) const WATCHED_MAX: usize = 64;
/// An unknown CPU.
pub(crate) const NO_CPU: u16 = u16::MAX;
/// Length of a task's name with its final 0.
const COMMAND_BYTES: usize = 16;

/// A task's name, up to the first 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Command([u64; COMMAND_BYTES / 8]);

impl Command {
    /// The first 15 bytes of a name, as the kernel keeps them.
    pub(crate) fn new(name: &str) -> Self {
        let mut command = Self::default();
        let kept = name.len().min(COMMAND_BYTES - 1);
        command.as_mut_bytes()[..kept].copy_from_slice(&name.as_bytes()[..kept]);
        command
    }

    pub(crate) fn text(&self) -> String {
        let bytes = self.as_bytes();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// What counts on all CPUs.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Config {
    pub(crate) pid: u32,
    pub(crate) has_command: u32,
    pub(crate) command: Command,
    /// The process that measures; 0 for none.
    pub(crate) own_process: u32,
    pub(crate) watched_count: u32,
    /// The first CPUs that have a ring.
    pub(crate) watched: [u16; WATCHED_MAX],
}

const _: () = assert!(size_of::<Config>() == 32 + 2 * WATCHED_MAX && offset_of!(Config, own_process) == 24);

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
    pub(crate) command: Command,
    pub(crate) previous_command: Command,
    pub(crate) is_timer: u32,
    pub(crate) unused: u32,
}

const _: () = assert!(size_of::<Record>() == 104);
const _: () = assert!(offset_of!(Record, pid) == 48 && offset_of!(Record, is_timer) == 96);

/// One histogram of one CPU. The counts never go back.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawHistogram {
    pub(crate) record: Record,
    pub(crate) buckets: [u64; BUCKETS],
}

const _: () = assert!(size_of::<RawHistogram>() == 104 + 8 * BUCKETS);

/// What the programs look at on one CPU at each event.
#[derive(Clone, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Settings {
    pub(crate) prio_min: i32,
    pub(crate) prio_max: i32,
    /// 1 + the number of the CPU's ring; 0: it has none.
    pub(crate) ring: u32,
    /// The process whose page faults are causes there; 0 for none.
    pub(crate) process: u32,
    /// The moment from which samples of that process count.
    pub(crate) starts_ns: u64,
    /// The latency above which a stack is recorded; 0: never.
    pub(crate) late_ns: u32,
    /// One bit for each kind.
    pub(crate) enabled: u32,
}

const _: () = assert!(size_of::<Settings>() == 32 && offset_of!(Settings, starts_ns) == 16);

/// The part of a CPU's state that the loader uses.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawCpuState {
    pub(crate) settings: Settings,
    pub(crate) expires_hard_ns: u64,
    /// 1 + the offset of the last timer here that is not counted yet; 0: it is.
    pub(crate) offset_ns: u64,
    pub(crate) wakings: u64,
    /// Wake-ups of the threads of the process that measures on the CPU; wraps around.
    pub(crate) own_wakings: u32,
    pub(crate) is_shared: u32,
    /// The wake-up in progress; `decided_ns` is 0 if it is counted already.
    pub(crate) expires_ns: u64,
    pub(crate) waking_ns: u64,
    pub(crate) decided_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) previous: u64,
    pub(crate) countings: u64,
    pub(crate) over_timer: u64,
    pub(crate) over_ns: u64,
    /// The extremes of each histogram; what is longer than they can say counts as the longest.
    pub(crate) max_ns: [u32; KINDS_STRIDE],
    pub(crate) min_ns: [u32; KINDS_STRIDE],
    pub(crate) sum_ns: [u64; KINDS],
    /// Since when the watched task that has the CPU runs, less its earlier runs since its last sleep (0: none has it); how long it
    /// usually runs without a sleep.
    pub(crate) runs_since_ns: u64,
    pub(crate) usual_run_ns: u64,
    pub(crate) segments: u64,
    /// When what runs now began.
    pub(crate) begins: [u64; 7],
    /// How many records of watched tasks were written.
    pub(crate) stretches: u64,
    pub(crate) rest: [u64; 7],
    pub(crate) without_switch: u64,
    pub(crate) collisions: u64,
    pub(crate) elsewhere: u64,
    pub(crate) unfinished: u64,
    pub(crate) expires_soft_ns: u64,
    pub(crate) soft_thread: u32,
    pub(crate) ipis_lost: u32,
    pub(crate) calls: [u64; 2],
    pub(crate) softirqs: [u64; 8],
    pub(crate) called: [u64; 8],
}

/// 64-bit words of a CPU's state, and where among them the extremes are.
pub(crate) const STATE_WORDS: usize = size_of::<RawCpuState>() / 8;
pub(crate) const MAX_WORD: usize = offset_of!(RawCpuState, max_ns) / 8;
pub(crate) const MIN_WORD: usize = offset_of!(RawCpuState, min_ns) / 8;
pub(crate) const RUNS_SINCE_WORD: usize = offset_of!(RawCpuState, runs_since_ns) / 8;
pub(crate) const USUAL_RUN_WORD: usize = offset_of!(RawCpuState, usual_run_ns) / 8;

const _: () = assert!(size_of::<RawCpuState>() == 576 && offset_of!(RawCpuState, max_ns) == 128);
const _: () = assert!(offset_of!(RawCpuState, sum_ns) == 192 && offset_of!(RawCpuState, segments) == 256);
const _: () = assert!(offset_of!(RawCpuState, stretches) == 320);
const _: () = assert!(offset_of!(RawCpuState, without_switch) == 384);

/// What took a CPU, from when to when.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawSegment {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// 1 + its number.
    pub(crate) number: u64,
    pub(crate) what: [u64; 5],
}

const _: () = assert!(size_of::<RawSegment>() == 64 && offset_of!(RawSegment, what) == 24);

impl RawSegment {
    /// Its content; `None` for a kind that this program does not know.
    pub(crate) fn what(&self) -> Option<What> {
        What::try_read_from_bytes(self.what.as_bytes()).ok()
    }
}

/// The content of a segment: `enum segment_kind`, each kind with its member of the union in `struct segment`. A thread is its
/// id, `prio` the kernel's number of a priority, `stack` 1 + the number of a stack on its CPU or 0.
#[derive(Clone, Debug, PartialEq, Eq, TryFromBytes, Immutable, KnownLayout)]
#[repr(u8)]
#[allow(dead_code, reason = "the programs make them")]
#[rustfmt::skip]
pub(crate) enum What {
    Irq { line: u32 } = 1,
    Vector { vector: u32 },
    Softirq { number: u32 },
    Nmi { handler: u64 },
    Function {
        has_sender: bool, sender_cpu: u16, sender_thread: u32, function: u64, sender_process: u32,
        sender_command: Command,
    },
    Thread { was_runnable: bool, thread: u32, process: u32, prio: i32, next_prio: i32, command: Command },
    Idle { state: u32 },
    Lock { thread: u32, process: u32, flags: u32 },
    PageFault { thread: u32, address: u64 },
    Timer { thread: u32, process: u32, stack: u32 },
    Wakeup {
        thread: u32, process: u32, stack: u32, previous: u32, previous_prio: i32, previous_command: Command,
    },
    Migration { thread: u32, process: u32, to_cpu: u32 },
    Waking { by: u8, thread: u32, waker: u32, waker_process: u32, waker_command: Command },
    Called {
        has_sender: bool, sender_cpu: u16, sender_thread: u32, function: u64, sender_process: u32,
        sender_command: Command,
    },
}

const _: () = assert!(size_of::<What>() == 40);

/// A stack, recorded when something was late.
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

const _: () = assert!(size_of::<RawStack>() == 384);

/// The key by which interrupts to other CPUs are counted.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawIpiKey {
    /// 0: a reschedule.
    pub(crate) function: u64,
    pub(crate) call_site: u64,
    pub(crate) cpu: u16,
    pub(crate) from_cpu: u16,
    /// Whether the process that measures sent it.
    pub(crate) is_own: u32,
    pub(crate) command: Command,
}

const _: () = assert!(size_of::<RawIpiKey>() == 40 && offset_of!(RawIpiKey, command) == 24);

/// How many there were, and the stack of the first one.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RawIpiCount {
    pub(crate) count: u64,
    pub(crate) stack: i64,
}

const _: () = assert!(size_of::<RawIpiCount>() == 16);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const HEADER: &str = include_str!("../bpf/layout.h");

    /// The names of an enumeration of the header, whose values begin with 0, as Rust writes them.
    pub(crate) fn names(of: &str) -> Vec<String> {
        let (_, rest) = HEADER.split_once(&format!("\nenum {of} {{\n")).unwrap();
        let (body, _) = rest.split_once("};").unwrap();
        let lines = body.lines().filter_map(|line| line.trim().strip_suffix(','));
        let capital = |word: &str| word[..1].to_owned() + &word[1..].to_lowercase();
        lines.map(|name| name.split('_').map(capital).collect()).collect()
    }

    pub(crate) fn constant(name: &str) -> usize {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => usize::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let find = |line: &str| number(line.strip_prefix("#define ")?.strip_prefix(name)?.trim());
        HEADER.lines().find_map(find).unwrap_or_else(|| panic!("{name} is not in the header"))
    }

    #[test]
    fn both_sides_have_the_same_kinds_of_segments() {
        let name_of = |kind: usize| {
            let what = What::try_read_from_bytes([kind as u64, 0, 0, 0, 0].as_bytes()).ok()?;
            format!("Segment{what:?}").split(' ').next().map(str::to_owned)
        };
        let known: Vec<String> = (1..256).map_while(name_of).collect();
        assert_eq!(names("segment_kind")[1..], known);
        assert_eq!((name_of(0), name_of(1 + known.len())), (None, None));
    }

    #[test]
    fn both_sides_have_the_same_kinds_of_histograms() {
        let known = HistogramKind::ALL.map(|kind| format!("{kind:?}"));
        let mut header = names("kind");
        assert_eq!(header.pop().as_deref(), Some("Kinds"));
        assert_eq!(header, known);
        assert!(HistogramKind::ALL.into_iter().enumerate().all(|(index, kind)| kind as usize == index));
    }

    #[test]
    fn both_sides_have_the_same_constants() {
        let own = [
            ("COMMAND_BYTES", COMMAND_BYTES),
            ("KINDS_STRIDE", KINDS_STRIDE),
            ("STACK_DEPTH", STACK_DEPTH),
            ("RING_CALLS", RING_CALLS as usize),
            ("WATCHED_MAX", WATCHED_MAX),
            ("NO_CPU", NO_CPU.into()),
        ];
        for (name, value) in own {
            assert_eq!(constant(name), value, "{name}");
        }
    }

    #[test]
    fn the_members_of_a_segment_are_where_the_header_has_them() {
        let words = |words: [u32; 10]| What::try_read_from_bytes(words.as_bytes()).unwrap();
        let kind = |kind: u8, byte: u8, half: u16| {
            let [low, high] = half.to_ne_bytes();
            u32::from_ne_bytes([kind, byte, low, high])
        };
        let command = Command::new("ab");
        let name = u32::from_ne_bytes(*b"ab\0\0");
        let function = What::Function {
            has_sender: true,
            sender_cpu: 7,
            sender_thread: 1,
            function: u64::from_ne_bytes([2, 0, 0, 0, 2, 0, 0, 0]),
            sender_process: 4,
            sender_command: command,
        };
        assert_eq!(words([kind(5, 1, 7), 1, 2, 2, 4, 0, name, 0, 0, 0]), function);
        let (thread, process, prio, next_prio) = (1, 2, 3, -1);
        let left = What::Thread { was_runnable: true, thread, process, prio, next_prio, command };
        assert_eq!(words([kind(6, 1, 0), 1, 2, 3, u32::MAX, 0, name, 0, 0, 0]), left);
        let (stack, previous, previous_prio) = (3, 4, 5);
        let wakeup =
            What::Wakeup { thread, process, stack, previous, previous_prio, previous_command: command };
        assert_eq!(words([kind(11, 0, 0), 1, 2, 3, 4, 5, name, 0, 0, 0]), wakeup);
        let (by, waker, waker_process) = (4, 2, 3);
        let waking = What::Waking { by, thread, waker, waker_process, waker_command: command };
        assert_eq!(words([kind(13, 4, 0), 1, 2, 3, name, 0, 0, 0, 0, 0]), waking);
        let address = u64::from_ne_bytes([9, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(words([kind(9, 0, 0), 1, 9, 9, 0, 0, 0, 0, 0, 0]), What::PageFault { thread, address });
        assert_eq!(words([kind(4, 0, 0), 0, 9, 9, 0, 0, 0, 0, 0, 0]), What::Nmi { handler: address });
    }
}
