//! The kernels behind one safe interface: the instruction set is detected when [`Kernels`] is made, and never again.

use super::portable;
use super::random::Random;
use std::fmt;

pub(super) type ReadFn = unsafe fn(&[u8]) -> u64;
pub(super) type WriteFn = unsafe fn(&mut [u8], u64);
pub(super) type CopyFn = unsafe fn(&[u8], &mut [u8]);
pub(super) type FillFn = unsafe fn(&mut [u8], &mut Random);

/// The functions of one instruction set. They are `unsafe` to call because the CPU must have that instruction set.
pub(super) struct Table {
    pub(super) read: ReadFn,
    pub(super) read_prefetching: ReadFn,
    pub(super) write: WriteFn,
    pub(super) write_streaming: WriteFn,
    pub(super) write_string: Option<WriteFn>,
    pub(super) copy: CopyFn,
    pub(super) copy_streaming: CopyFn,
    pub(super) copy_string: Option<CopyFn>,
    pub(super) fill: FillFn,
}

/// Vector instructions that the kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstructionSet {
    Portable,
    /// 128-bit vectors of every x86-64 CPU.
    Sse2,
    /// 256-bit vectors of x86-64.
    Avx2,
    /// 512-bit vectors of x86-64 (AVX-512 F).
    Avx512,
    /// 128-bit vectors of every arm64 CPU.
    Neon,
}

impl InstructionSet {
    /// What this CPU offers, narrowest first; never empty.
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            sets.push(Self::Sse2);
            if std::arch::is_x86_feature_detected!("avx2") {
                sets.push(Self::Avx2);
            }
            if std::arch::is_x86_feature_detected!("avx512f") {
                sets.push(Self::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        sets.push(Self::Neon);
        sets
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Sse2 => "SSE2",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
            Self::Neon => "NEON",
        }
    }

    fn table(self) -> &'static Table {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => &super::x86_64::sse2::TABLE,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => &super::x86_64::avx2::TABLE,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => &super::x86_64::avx512::TABLE,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => &super::aarch64::TABLE,
            _ => &portable::TABLE,
        }
    }
}

impl fmt::Display for InstructionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMethod {
    /// The hardware prefetchers alone: best inside the caches.
    Plain,
    /// With prefetch instructions ahead of the loads: best out of memory. On arm64 and without vectors the same
    /// as [`ReadMethod::Plain`].
    Prefetching,
}

impl ReadMethod {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain loads",
            Self::Prefetching => "prefetched loads",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMethod {
    /// Ordinary vector stores through the caches.
    Cached,
    /// Non-temporal stores that bypass the caches.
    Streaming,
    /// The x86 string instructions (`rep movsb`, `rep stosq`): the CPU's own choice of how.
    String,
}

impl StoreMethod {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cached => "vector stores",
            Self::Streaming => "streaming stores",
            Self::String => "string instruction",
        }
    }
}

/// Keeps the compiler from turning a loop that copies into a call of memcpy: the compiler does not know what this
/// does.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
pub(super) fn as_written() {
    // SAFETY: no instruction.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) };
}

/// Memory traffic with one instruction set.
#[derive(Clone, Copy)]
pub struct Kernels {
    set: InstructionSet,
    // Invariant: the CPU has the instruction set of this table (checked where it is made).
    table: &'static Table,
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernels({})", self.set)
    }
}

impl Kernels {
    /// With the widest vectors that this CPU has.
    pub fn best() -> Self {
        let set = InstructionSet::available().pop().unwrap_or(InstructionSet::Portable);
        Self { set, table: set.table() }
    }

    /// With one instruction set; `None` when this CPU does not have it.
    pub fn with(set: InstructionSet) -> Option<Self> {
        InstructionSet::available().contains(&set).then(|| Self { set, table: set.table() })
    }

    pub fn instruction_set(&self) -> InstructionSet {
        self.set
    }

    /// Whether [`StoreMethod::Streaming`] really bypasses the caches; otherwise it is an ordinary store.
    pub fn has_streaming_stores(&self) -> bool {
        self.set != InstructionSet::Portable
    }

    /// Whether [`StoreMethod::String`] exists; otherwise it is an ordinary store.
    pub fn has_string_instructions(&self) -> bool {
        self.table.copy_string.is_some()
    }

    /// Reads all of `source`: the wrapping sum of its 64-bit words in native byte order, a shorter last word
    /// padded with zeros.
    pub fn read(&self, method: ReadMethod, source: &[u8]) -> u64 {
        let read = match method {
            ReadMethod::Plain => self.table.read,
            ReadMethod::Prefetching => self.table.read_prefetching,
        };
        // SAFETY: the CPU has the table's instruction set (invariant of the field).
        std::hint::black_box(unsafe { read(source) })
    }

    /// Writes all of `destination`: the bytes of `value` in native byte order, again and again.
    pub fn write(&self, method: StoreMethod, destination: &mut [u8], value: u64) {
        let write = match method {
            StoreMethod::Cached => self.table.write,
            StoreMethod::Streaming => self.table.write_streaming,
            StoreMethod::String => self.table.write_string.unwrap_or(self.table.write),
        };
        // SAFETY: the CPU has the table's instruction set (invariant of the field).
        unsafe { write(destination, value) }
    }

    /// Copies the shorter length of the two.
    pub fn copy(&self, method: StoreMethod, source: &[u8], destination: &mut [u8]) {
        // SAFETY: the CPU has the table's instruction set (invariant of the field).
        unsafe { self.copy_fn(method)(source, destination) }
    }

    /// The function of [`Kernels::copy`]; to be called on this CPU only.
    pub(super) fn copy_fn(&self, method: StoreMethod) -> CopyFn {
        match method {
            StoreMethod::Cached => self.table.copy,
            StoreMethod::Streaming => self.table.copy_streaming,
            StoreMethod::String => self.table.copy_string.unwrap_or(self.table.copy),
        }
    }

    /// Fills `destination` with random bytes: the same for the same state of `random` on every instruction set.
    pub fn fill_random(&self, destination: &mut [u8], random: &mut Random) {
        // SAFETY: the CPU has the table's instruction set (invariant of the field).
        unsafe { (self.table.fill)(destination, random) }
    }
}
