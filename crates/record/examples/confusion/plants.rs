//! What is planted, by which thread, and when it is responsible for a spike.

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
    /// The loop moves itself from CPU to CPU.
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
            Self::Migration => "the loop moves itself to another CPU every 20 ms",
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

    /// Whether the loop does it itself, as long as it has fresh memory.
    pub(crate) fn is_of_the_loop(self, has_memory: bool) -> bool {
        match self {
            Self::Membarrier | Self::Munmap => false,
            Self::PageFaults => has_memory,
            Self::Migration => true,
        }
    }

    /// Priority of the loop; one that changes CPUs must not starve what runs on the other one.
    pub(crate) fn priority(self) -> i32 {
        if self == Self::Migration { -21 } else { 95 }
    }

    /// What was planted without waiting for something else that the CPU did; the length of a call shows that.
    pub(crate) fn undisturbed(self, mut planted: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        if matches!(self, Self::Membarrier | Self::Munmap) {
            let length = |&(from, to): &(u64, u64)| to - from;
            planted.sort_by_key(length);
            let usual = planted.get(planted.len() / 2).map_or(0, length);
            planted.retain(|one| length(one) <= usual + usual / 2);
        }
        planted
    }

    /// Whether it is responsible for a spike: at least half of the spike lies in what was planted.
    pub(crate) fn did(spike: &SpikeRecord, planted: &[(u64, u64)]) -> bool {
        let from_ns = spike.at_ns - spike.latency_ns;
        let inside = |&(from, to): &(u64, u64)| to.min(spike.at_ns).saturating_sub(from.max(from_ns));
        planted.iter().map(inside).sum::<u64>() * 2 >= spike.latency_ns
    }
}

/// Another CPU than the one that is measured.
pub(crate) fn other(cpu: CpuId) -> CpuId {
    CpuId(if cpu.0 == 0 { 1 } else { 0 })
}

/// What a thread of the late process does.
pub(crate) fn sibling(plant: Plant, cpu: CpuId, is_over: &AtomicBool) -> std::io::Result<()> {
    schedule::pin_this_thread(&CpuSet::single(other(cpu)))?;
    let mut page = ChangingPage::new()?;
    let barrier = Barrier::register(Reach::Private)?;
    while !is_over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(2));
        let from_ns = clock::now().0;
        match plant {
            Plant::Membarrier => barrier.pass()?,
            Plant::Munmap => page.change()?,
            // The loop does it itself.
            Plant::Migration | Plant::PageFaults => continue,
        }
        println!("planted {from_ns} {}", clock::now().0);
    }
    Ok(())
}
