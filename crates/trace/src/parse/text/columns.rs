//! The columns of flags and the meaning of their letters. The comments at the head of the trace name the columns; without a
//! head their number decides.

use super::scan;
use crate::event::Context;

/// One letter of the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// `d` interrupts disabled; `D` and softirqs too; `b` only those; `X` unknown on this architecture.
    IrqsOff,
    /// `n`, `N` (and folded), `p` only folded; since 6.12 `l`, `L` lazily, `b`, `B` both.
    NeedResched,
    /// `L` or `l`, in RT kernels before lazy preemption was in mainline.
    NeedReschedLazy,
    /// `h` hard interrupt, `s` softirq, `H` the one inside the other, `z` NMI, `Z` NMI inside a hard interrupt.
    Interrupt,
    /// Depth of disabled preemption as a digit.
    PreemptDepth,
    /// Depth of disabled lazy preemption as a digit (RT kernels).
    PreemptLazyDepth,
    /// Depth of disabled migration as a digit.
    MigrateDisable,
    /// A column that this version does not know.
    Unknown,
}

/// The columns of a trace, left to right.
pub(super) type Columns = Vec<Column>;

/// The column that a line of the head names, as in `#   / _-----=> need-resched`; `None` if it names none. The CPU
/// column of latency traces is not a flag.
pub(super) fn named(comment: &[u8]) -> Option<Column> {
    let (_, name) = scan::split(comment, b"-=> ")?;
    Some(match scan::trim(name) {
        b"CPU#" => return None,
        name if name.starts_with(b"irqs-off") => Column::IrqsOff,
        b"need-resched" => Column::NeedResched,
        b"need-resched-lazy" | b"need-resched_lazy" => Column::NeedReschedLazy,
        b"hardirq/softirq" => Column::Interrupt,
        b"preempt-depth" => Column::PreemptDepth,
        b"preempt-lazy-depth" => Column::PreemptLazyDepth,
        b"migrate-disable" => Column::MigrateDisable,
        _ => Column::Unknown,
    })
}

/// The columns of a trace without a head, from the number of letters.
pub(super) fn of_count(count: usize) -> &'static [Column] {
    use Column::{
        Interrupt, IrqsOff, MigrateDisable, NeedResched, NeedReschedLazy, PreemptDepth, PreemptLazyDepth,
    };
    match count {
        4 => &[IrqsOff, NeedResched, Interrupt, PreemptDepth],
        5 => &[IrqsOff, NeedResched, Interrupt, PreemptDepth, MigrateDisable],
        6 => &[IrqsOff, NeedResched, NeedReschedLazy, Interrupt, PreemptDepth, MigrateDisable],
        7 => &[
            IrqsOff,
            NeedResched,
            NeedReschedLazy,
            Interrupt,
            PreemptDepth,
            PreemptLazyDepth,
            MigrateDisable,
        ],
        _ => &[],
    }
}

const LETTERS: [bool; 256] = {
    let letters = b".0123456789abcdefDXnNplLBhsHzZ";
    let mut known = [false; 256];
    let mut index = 0;
    while index < letters.len() {
        known[letters[index] as usize] = true;
        index += 1;
    }
    known
};

/// Whether `flags` can be the letters of flags at all.
#[inline]
pub(super) fn are_flags(flags: &[u8]) -> bool {
    (3..=8).contains(&flags.len()) && flags.iter().all(|letter| LETTERS[usize::from(*letter)])
}

/// The depth that a digit stands for; `.` is none.
fn depth(letter: u8) -> Option<u8> {
    match letter {
        b'.' => Some(0),
        _ => char::from(letter).to_digit(16).map(|depth| depth as u8),
    }
}

/// The meaning of the letters. With fewer letters than columns, or more, their number decides.
pub(super) fn context(columns: &[Column], flags: &[u8]) -> Context {
    let columns = if columns.len() == flags.len() { columns } else { of_count(flags.len()) };
    let mut context = Context::default();
    for (column, letter) in columns.iter().zip(flags) {
        match column {
            Column::IrqsOff => context.irqs_off = (*letter != b'X').then_some(matches!(letter, b'd' | b'D')),
            Column::NeedResched => {
                context.need_resched = matches!(letter, b'n' | b'N' | b'b' | b'B');
                context.need_resched_lazy |= matches!(letter, b'l' | b'L' | b'b' | b'B');
            }
            Column::NeedReschedLazy => context.need_resched_lazy |= matches!(letter, b'l' | b'L'),
            Column::Interrupt => {
                context.hard_irq = matches!(letter, b'h' | b'H' | b'Z');
                context.softirq = matches!(letter, b's' | b'H');
                context.nmi = matches!(letter, b'z' | b'Z');
            }
            Column::PreemptDepth => context.preempt_depth = depth(*letter),
            Column::MigrateDisable => context.migrate_disable = depth(*letter),
            Column::PreemptLazyDepth | Column::Unknown => {}
        }
    }
    context
}
