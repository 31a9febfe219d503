//! Handing a cached buffer over to a device that does not snoop, and taking it back.
//!
//! Before the device reads: [`clean`], which writes the lines back and orders that before the store that starts the
//! device. Before the CPU reads what a device wrote: [`invalidate`], which drops the lines and keeps later loads from
//! being made earlier. Invalidate after the device has finished, not before: until then the hardware prefetchers may
//! fetch old lines again. No method that user space has drops a line without writing it back, so a line that the CPU
//! changed since it was cleaned overwrites what the device wrote: clean or invalidate before the device starts, too.
//!
//! On x86-64 these are `clflush`, `clflushopt` and `clwb`; on arm64 `dc cvac` and `dc civac`, which the kernel lets
//! user space do. On memory that is not cached they only cost time.

/// The instruction that writes lines back, drops them, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineInstruction {
    /// `clflush`: writes back and drops, one line after another.
    Clflush,
    /// `clflushopt`: writes back and drops, many lines at a time.
    Clflushopt,
    /// `clwb`: writes back; the line may stay.
    Clwb,
    /// `dc cvac`: writes back to the point of coherency; the line stays.
    DcCvac,
    /// `dc civac`: writes back and drops.
    DcCivac,
}

impl LineInstruction {
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Clflush => features().clflush,
            #[cfg(target_arch = "x86_64")]
            Self::Clflushopt => features().clflushopt,
            #[cfg(target_arch = "x86_64")]
            Self::Clwb => features().clwb,
            Self::DcCvac | Self::DcCivac => cfg!(target_arch = "aarch64"),
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The fastest instruction of this CPU for a hand-over to a device; `None` without one.
    pub fn to_clean() -> Option<Self> {
        [Self::Clwb, Self::Clflushopt, Self::Clflush, Self::DcCvac].into_iter().find(|one| one.is_available())
    }

    /// The fastest instruction of this CPU for a hand-over to the CPU; `None` without one.
    pub fn to_invalidate() -> Option<Self> {
        [Self::Clflushopt, Self::Clflush, Self::DcCivac].into_iter().find(|one| one.is_available())
    }
}

/// Why a hand-over was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAvailable;

impl std::fmt::Display for NotAvailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("this CPU has no instruction that writes cache lines back from user space")
    }
}

impl std::error::Error for NotAvailable {}

/// Writes `bytes` back, and orders that before every store that follows: the device may read.
///
/// # Errors
/// The CPU has no instruction for it.
pub fn clean(bytes: &[u8]) -> Result<(), NotAvailable> {
    LineInstruction::to_clean().ok_or(NotAvailable).map(|instruction| clean_with(instruction, bytes))
}

/// Drops `bytes` from the caches, and orders that before every load that follows: the CPU may read.
///
/// # Errors
/// The CPU has no instruction for it.
pub fn invalidate(bytes: &mut [u8]) -> Result<(), NotAvailable> {
    LineInstruction::to_invalidate()
        .ok_or(NotAvailable)
        .map(|instruction| invalidate_with(instruction, bytes))
}

/// As [`clean`], with one instruction, which this CPU must have; otherwise nothing is done.
pub fn clean_with(instruction: LineInstruction, bytes: &[u8]) {
    for_lines(instruction, bytes);
    stores_before_stores();
}

/// As [`invalidate`], with one instruction, which this CPU must have; otherwise nothing is done.
pub fn invalidate_with(instruction: LineInstruction, bytes: &[u8]) {
    // Stores of this CPU reach the line before it is dropped, loads behind it come after.
    all_before_all();
    for_lines(instruction, bytes);
    all_before_all();
}

fn for_lines(instruction: LineInstruction, bytes: &[u8]) {
    if !instruction.is_available() || bytes.is_empty() {
        return;
    }
    let line = line_bytes();
    let first = bytes.as_ptr() as usize & !(line - 1);
    let end = bytes.as_ptr() as usize + bytes.len();
    for address in (first..end).step_by(line) {
        #[cfg(test)]
        log::note(log::Step::Line);
        // SAFETY: the CPU has the instruction; each line holds a byte of the slice, so that it is mapped; neither
        // writing it back nor dropping it after that changes what a load sees.
        unsafe { act_on_line(instruction, address) };
    }
}

/// Size of what one instruction works on, as the CPU says it.
pub fn line_bytes() -> usize {
    #[cfg(target_arch = "x86_64")]
    return features().line_bytes;
    #[cfg(target_arch = "aarch64")]
    {
        static LINE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *LINE.get_or_init(|| {
            let register: u64;
            // SAFETY: CTR_EL0 can be read by user space on Linux (the kernel emulates it where it is trapped).
            unsafe {
                core::arch::asm!("mrs {}, ctr_el0", out(reg) register, options(nomem, nostack, preserves_flags));
            }
            4 << (register >> 16 & 0xf)
        })
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    64
}

/// What the CPU says of its cache lines.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    clflush: bool,
    clflushopt: bool,
    clwb: bool,
    pub(crate) movdir64b: bool,
    line_bytes: usize,
}

/// CPUID leaves 1 and 7, read once: in a guest each read is an exit to the hypervisor.
#[cfg(target_arch = "x86_64")]
pub(crate) fn features() -> Features {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    static FEATURES: std::sync::OnceLock<Features> = std::sync::OnceLock::new();
    *FEATURES.get_or_init(|| {
        let (one, seven) = (__cpuid(1), __cpuid_count(7, 0));
        let has_seven = __cpuid(0).eax >= 7;
        let bit = |register: u32, bit: u32| register >> bit & 1 == 1;
        let line_bytes = ((one.ebx >> 8 & 0xff) * 8) as usize;
        Features {
            clflush: bit(one.edx, 19) && line_bytes.is_power_of_two(),
            clflushopt: has_seven && bit(seven.ebx, 23) && line_bytes.is_power_of_two(),
            clwb: has_seven && bit(seven.ebx, 24) && line_bytes.is_power_of_two(),
            movdir64b: has_seven && bit(seven.ecx, 28),
            line_bytes: if line_bytes.is_power_of_two() { line_bytes } else { 64 },
        }
    })
}

/// # Safety
/// The CPU must have the instruction, and `address` must be mapped.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn act_on_line(instruction: LineInstruction, address: usize) {
    // SAFETY: what the caller guarantees.
    unsafe {
        match instruction {
            LineInstruction::Clflush => {
                core::arch::asm!("clflush [{}]", in(reg) address, options(nostack, preserves_flags));
            }
            LineInstruction::Clflushopt => {
                core::arch::asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags));
            }
            LineInstruction::Clwb => {
                core::arch::asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags));
            }
            LineInstruction::DcCvac | LineInstruction::DcCivac => {}
        }
    }
}

/// # Safety
/// `address` must be mapped.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn act_on_line(instruction: LineInstruction, address: usize) {
    // SAFETY: what the caller guarantees; Linux lets user space do both (SCTLR_EL1.UCI).
    unsafe {
        match instruction {
            LineInstruction::DcCvac => {
                core::arch::asm!("dc cvac, {}", in(reg) address, options(nostack, preserves_flags));
            }
            LineInstruction::DcCivac => {
                core::arch::asm!("dc civac, {}", in(reg) address, options(nostack, preserves_flags));
            }
            _ => {}
        }
    }
}

/// # Safety
/// None: it does nothing.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn act_on_line(_: LineInstruction, _: usize) {}

/// Orders streaming stores and written-back lines before the stores that follow.
#[inline(always)]
pub fn stores_before_stores() {
    #[cfg(test)]
    log::note(log::Step::StoreFence);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has it; a fence changes no state.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    system_barrier();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Orders everything before it before everything behind it, lines that are dropped and weakly ordered loads included.
#[inline(always)]
pub(crate) fn all_before_all() {
    #[cfg(test)]
    log::note(log::Step::FullFence);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        core::arch::x86_64::_mm_mfence();
    }
    #[cfg(target_arch = "aarch64")]
    system_barrier();
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// The barrier that also holds for devices and for cache maintenance.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn system_barrier() {
    // SAFETY: a barrier changes no state.
    unsafe { core::arch::asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// The order of fences and lines, for tests: a missing fence shows on real hardware very rarely.
#[cfg(test)]
pub(crate) mod log {
    use std::cell::RefCell;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Step {
        Line,
        StoreFence,
        FullFence,
    }

    thread_local!(static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) });

    pub(crate) fn note(step: Step) {
        STEPS.with_borrow_mut(|steps| {
            if steps.last() != Some(&step) {
                steps.push(step);
            }
        });
    }

    /// What `act` did on this thread, the same step twice in a row once.
    pub(crate) fn of(act: impl FnOnce()) -> Vec<Step> {
        STEPS.take();
        act();
        STEPS.take()
    }
}
