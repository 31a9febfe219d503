//! What is planted, by whom, and when a spike is its doing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use whylate_core::record::SpikeRecord;
use whylate_core::result::CauseKind;
use whylate_core::{CpuId, CpuSet};
use whylate_sys::clock;
use whylate_sys::disturb::barrier::{Barrier, Reach};
use whylate_sys::disturb::mapping::ChangingPage;
use whylate_sys::schedule;

/// A cause that can be planted on a running system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// `membarrier` by a thread of the process.
    Membarrier,
    /// Mappings changed by a thread of the process.
    Munmap,
    /// The loop touches memory that is not there.
    PageFaults,
    /// The loop's thread is moved from CPU to CPU.
    Migration,
}

impl Plant {
    pub(crate) const ALL: [Self; 4] = [Self::Membarrier, Self::Munmap, Self::PageFaults, Self::Migration];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Membarrier => "membarrier",
            Self::Munmap => "munmap",
            Self::PageFaults => "page-faults",
            Self::Migration => "migration",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plant| plant.name() == name)
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Membarrier => "membarrier of a sibling thread",
            Self::Munmap => "mprotect and munmap of a sibling thread",
            Self::PageFaults => "the loop touches a new page every 1 ms",
            Self::Migration => "the loop is moved from CPU to CPU",
        }
    }

    /// How it is to be named.
    pub(crate) fn kind(self) -> CauseKind {
        match self {
            Self::Membarrier | Self::Munmap => CauseKind::Ipi,
            Self::PageFaults => CauseKind::PageFault,
            Self::Migration => CauseKind::Migration,
        }
    }

    /// Priority of the loop; one that changes CPUs must not starve the thread that moves it.
    pub(crate) fn priority(self) -> i32 {
        if self == Self::Migration { -21 } else { 95 }
    }

    /// Whether a spike is its doing: at least half of it lies in what was planted.
    pub(crate) fn did(spike: &SpikeRecord, planted: &[(u64, u64)]) -> bool {
        let from_ns = spike.at_ns - spike.latency_ns;
        let inside = |&(from, to): &(u64, u64)| to.min(spike.at_ns).saturating_sub(from.max(from_ns));
        planted.iter().map(inside).sum::<u64>() * 2 >= spike.latency_ns
    }
}

/// What a thread of the late process does.
pub(crate) fn sibling(plant: Plant, cpu: CpuId, late: u32, is_over: &AtomicBool) -> std::io::Result<()> {
    let first = CpuId(if cpu.0 == 0 { 1 } else { 0 });
    schedule::pin_this_thread(&CpuSet::from_iter([first]))?;
    let mut page = ChangingPage::new()?;
    let barrier = Barrier::register(Reach::Private)?;
    let mut away = false;
    while !is_over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(if plant == Plant::Migration { 20 } else { 2 }));
        let from_ns = clock::now().0;
        match plant {
            Plant::Membarrier => barrier.pass()?,
            Plant::Munmap => page.change()?,
            Plant::Migration => {
                away = !away;
                schedule::pin_thread(late, &CpuSet::from_iter([if away { first } else { cpu }]))?;
            }
            Plant::PageFaults => continue,
        }
        println!("planted {from_ns} {}", clock::now().0);
    }
    Ok(())
}
