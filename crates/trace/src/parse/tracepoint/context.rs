//! The flags of the common header: `common_flags`, `common_preempt_count` and what real-time kernels added.
//!
//! The bits of `common_flags` are not described by the formats, and differ. All kernels have 0x01 (interrupts disabled),
//! 0x08 (hard interrupt), 0x10 (softirq), 0x40 (NMI); 0x20 (preemption is asked for) is not used here. The rest:
//!
//! | kernel | need to reschedule | lazily | interrupts unknown | 0x80 |
//! |---|---|---|---|---|
//! | mainline before 6.13 | 0x04 | – | 0x02 | softirqs disabled (since 5.17) |
//! | mainline from 6.13, real-time from 6.12 | 0x04 | 0x02 | – | softirqs disabled |
//! | real-time 6.6 to 6.11 | 0x02 | 0x04 | – | softirqs disabled |
//! | real-time 5.17 to 6.5 (`common_preempt_lazy_count`) | 0x04 | 0x20 | 0x02 | softirqs disabled |
//! | real-time before (`common_preempt_lazy_count`) | 0x04 | 0x80 | 0x02 | – |
//!
//! `common_preempt_count` is the depth of disabled preemption; since 5.15 only its lower four bits, and the upper ones
//! are that of disabled migration. Older real-time kernels have a field of its own for that.

use crate::event::Context;
use crate::parse::format::{self, Field, Place, Record, Slot};

/// The part of a kernel release that decides the meaning of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Version and patch level: (6, 1).
    pub version: (u32, u32),
    /// Whether it calls itself a real-time kernel.
    pub realtime: bool,
}

impl Release {
    /// Reads `6.1.0-53-rt-amd64`; `None` for a text that does not begin with a version.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.trim().split(|letter: char| !letter.is_ascii_digit());
        let version = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        let realtime = text.split(['-', '+', '_', '.']).any(|part| {
            part.strip_prefix("rt").is_some_and(|rest| rest.chars().all(|letter| letter.is_ascii_digit()))
        });
        Some(Self { version, realtime })
    }
}

/// The meaning of a kernel's flags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flags {
    flags: Slot,
    preempt: Slot,
    migrate: Slot,
    irqs_untold: u8,
    need_resched: u8,
    need_resched_lazy: u8,
    /// The preemption count has the depth of disabled migration in its upper half.
    halves: bool,
}

const IRQS_OFF: u8 = 0x01;
const HARD_IRQ: u8 = 0x08;
const SOFTIRQ: u8 = 0x10;
const NMI: u8 = 0x40;

impl Flags {
    /// For a kernel whose events begin with `fields`; without a release, the newest kernel is assumed.
    pub(super) fn new(fields: &[Field], release: Option<Release>) -> Self {
        let slot = |name: &str| format::slot(fields, name);
        let lazy_count = slot("common_preempt_lazy_count").place != Place::Nothing;
        let version = release.map_or((u32::MAX, 0), |release| release.version);
        let realtime = release.is_some_and(|release| release.realtime);
        let (irqs_untold, need_resched, need_resched_lazy) = match (lazy_count, realtime) {
            (true, _) if release.is_some() && version < (5, 17) => (0x02, 0x04, 0x80),
            (true, _) => (0x02, 0x04, 0x20),
            (false, true) if ((6, 6)..(6, 12)).contains(&version) => (0, 0x02, 0x04),
            (false, true) if version >= (6, 12) => (0, 0x04, 0x02),
            (false, _) if version >= (6, 13) => (0, 0x04, 0x02),
            (false, _) => (0x02, 0x04, 0),
        };
        Self {
            flags: slot("common_flags"),
            preempt: slot("common_preempt_count"),
            migrate: slot("common_migrate_disable"),
            irqs_untold,
            need_resched,
            need_resched_lazy,
            halves: version >= (5, 15),
        }
    }

    #[inline]
    pub(super) fn context(&self, record: Record<'_>) -> Context {
        let stored = self.flags.value(record);
        let flags = stored.unwrap_or(0) as u8;
        let count = self.preempt.value(record).map(|count| count as u8);
        let (preempt_depth, migrate) = match count {
            Some(count) if self.halves => (Some(count & 15), Some(count >> 4)),
            count => (count, None),
        };
        Context {
            irqs_off: stored.filter(|_| flags & self.irqs_untold == 0).map(|_| flags & IRQS_OFF != 0),
            need_resched: flags & self.need_resched != 0,
            need_resched_lazy: flags & self.need_resched_lazy != 0,
            hard_irq: flags & HARD_IRQ != 0,
            softirq: flags & SOFTIRQ != 0,
            nmi: flags & NMI != 0,
            preempt_depth,
            migrate_disable: self.migrate.value(record).map(|depth| depth as u8).or(migrate),
        }
    }
}
