//! Copy methods by name, and the copier that does one of them.

use crate::handover::{LineInstruction, clean_with, invalidate_with};
use crate::kernels::{CopyFn, InstructionSet, Kernels, StoreMethod};
use std::fmt;

/// Why a method cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The method.
    pub method: Method,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this CPU cannot copy by {}: it lacks {}", self.method, self.method.needs())
    }
}

impl std::error::Error for Unavailable {}

macro_rules! methods {
    ($($(#[$meaning:meta])* $Method:ident = $name:literal, $needs:literal;)*) => {
        /// How bytes are copied.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method {
            $($(#[$meaning])* $Method,)*
        }

        impl Method {
            /// Every method, in the order of the table.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Method),*];

            /// The field's name of it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Method => $name,)*
                }
            }

            /// What a CPU must have for it.
            pub const fn needs(self) -> &'static str {
                match self {
                    $(Self::$Method => $needs,)*
                }
            }
        }
    };
}

methods! {
    /// The C library's memcpy.
    Memcpy = "memcpy", "nothing";
    /// The string instruction.
    RepMovsb = "rep-movsb", "x86-64";
    /// 128-bit loads and stores.
    Sse2 = "sse2", "x86-64";
    /// 256-bit loads and stores.
    Avx2 = "avx2", "AVX2";
    /// 512-bit loads and stores.
    Avx512 = "avx512", "AVX-512 F";
    /// 128-bit loads, non-temporal stores.
    Sse2Nt = "sse2-nt", "x86-64";
    /// 256-bit loads, non-temporal stores.
    Avx2Nt = "avx2-nt", "AVX2";
    /// 512-bit loads, non-temporal stores.
    Avx512Nt = "avx512-nt", "AVX-512 F";
    /// Streaming loads of the widest vectors through a bounce buffer, ordinary stores.
    Movntdqa = "movntdqa", "SSE4.1";
    /// Streaming loads of the widest vectors through a bounce buffer, non-temporal stores.
    MovntdqaNt = "movntdqa-nt", "SSE4.1";
    /// Direct stores of 64 bytes.
    Movdir64b = "movdir64b", "MOVDIR64B";
    /// The widest vectors, then the destination written back and dropped by `clflush`.
    Clflush = "clflush", "CLFLUSH";
    /// The widest vectors, then the destination written back and dropped by `clflushopt`.
    Clflushopt = "clflushopt", "CLFLUSHOPT";
    /// The widest vectors, then the destination written back by `clwb`.
    Clwb = "clwb", "CLWB";
    /// The source dropped by `clflush`, then the widest vectors.
    ClflushFirst = "clflush-first", "CLFLUSH";
    /// The source dropped by `clflushopt`, then the widest vectors.
    ClflushoptFirst = "clflushopt-first", "CLFLUSHOPT";
    /// 128-bit NEON loads and stores.
    Neon = "neon", "arm64";
    /// NEON loads, non-temporal pairs stored.
    Stnp = "stnp", "arm64";
    /// Non-temporal pairs loaded and stored.
    LdnpStnp = "ldnp-stnp", "arm64";
    /// NEON, then the destination written back by `dc cvac`.
    DcCvac = "dc-cvac", "arm64";
    /// The source dropped by `dc civac`, then NEON.
    DcCivac = "dc-civac", "arm64";
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a method does with the lines of the buffers.
#[derive(Clone, Copy, Debug)]
enum Lines {
    Leave,
    /// The same; the C library's memcpy, which is called in place: the call of a function that calls it would take a
    /// tenth of the time of 256 bytes.
    Library,
    Clean(LineInstruction),
    Invalidate(LineInstruction),
}

impl Method {
    /// The method of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Those that this CPU has, in the order of the table.
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|method| Copier::new(*method).is_ok()).collect()
    }

    /// Whether it leaves what it copies out of the caches: non-temporal stores, or lines dropped after.
    pub fn bypasses_caches(self) -> bool {
        matches!(
            self,
            Self::Sse2Nt
                | Self::Avx2Nt
                | Self::Avx512Nt
                | Self::MovntdqaNt
                | Self::Movdir64b
                | Self::Clflush
                | Self::Clflushopt
                | Self::Stnp
                | Self::LdnpStnp
        )
    }

    fn lines(self) -> Lines {
        match self {
            Self::Memcpy => Lines::Library,
            Self::Clflush => Lines::Clean(LineInstruction::Clflush),
            Self::Clflushopt => Lines::Clean(LineInstruction::Clflushopt),
            Self::Clwb => Lines::Clean(LineInstruction::Clwb),
            Self::DcCvac => Lines::Clean(LineInstruction::DcCvac),
            Self::ClflushFirst => Lines::Invalidate(LineInstruction::Clflush),
            Self::ClflushoptFirst => Lines::Invalidate(LineInstruction::Clflushopt),
            Self::DcCivac => Lines::Invalidate(LineInstruction::DcCivac),
            _ => Lines::Leave,
        }
    }

    /// The copy itself; `None` if the CPU lacks what it needs.
    fn copy_fn(self) -> Option<CopyFn> {
        let of = |set, method| Kernels::with(set).map(|kernels| kernels.copy_fn(method));
        match self {
            Self::Memcpy => Some(crate::portable::copy),
            Self::Sse2 => of(InstructionSet::Sse2, StoreMethod::Cached),
            Self::Avx2 => of(InstructionSet::Avx2, StoreMethod::Cached),
            Self::Avx512 => of(InstructionSet::Avx512, StoreMethod::Cached),
            Self::Sse2Nt => of(InstructionSet::Sse2, StoreMethod::Streaming),
            Self::Avx2Nt => of(InstructionSet::Avx2, StoreMethod::Streaming),
            Self::Avx512Nt => of(InstructionSet::Avx512, StoreMethod::Streaming),
            Self::RepMovsb => of(InstructionSet::Sse2, StoreMethod::String),
            Self::Movntdqa | Self::MovntdqaNt | Self::Movdir64b => through(self),
            Self::Neon => of(InstructionSet::Neon, StoreMethod::Cached),
            Self::Stnp => of(InstructionSet::Neon, StoreMethod::Streaming),
            Self::LdnpStnp => pairs(),
            Self::Clflush
            | Self::Clflushopt
            | Self::Clwb
            | Self::ClflushFirst
            | Self::ClflushoptFirst
            | Self::DcCvac
            | Self::DcCivac => Some(Kernels::best().copy_fn(StoreMethod::Cached)),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn through(method: Method) -> Option<CopyFn> {
    use crate::through::*;
    let set = Kernels::best().instruction_set();
    let has_sse = std::arch::is_x86_feature_detected!("sse4.1");
    match (method, set) {
        (Method::Movdir64b, _) => crate::handover::features().movdir64b.then_some(movdir64b as CopyFn),
        (Method::Movntdqa, InstructionSet::Avx512) => Some(movntdqa_avx512),
        (Method::Movntdqa, InstructionSet::Avx2) => Some(movntdqa_avx2),
        (Method::Movntdqa, _) => has_sse.then_some(movntdqa_sse as CopyFn),
        (_, InstructionSet::Avx512) => Some(movntdqa_avx512_nt),
        (_, InstructionSet::Avx2) => Some(movntdqa_avx2_nt),
        _ => has_sse.then_some(movntdqa_sse_nt as CopyFn),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn through(_: Method) -> Option<CopyFn> {
    None
}

#[cfg(target_arch = "aarch64")]
fn pairs() -> Option<CopyFn> {
    Some(crate::aarch64::copy_pairs)
}

#[cfg(not(target_arch = "aarch64"))]
fn pairs() -> Option<CopyFn> {
    None
}

/// Copies by one method that this CPU has.
#[derive(Clone, Copy)]
pub struct Copier {
    method: Method,
    // Invariant: the CPU has what this function needs (checked where it is made).
    copy: CopyFn,
    lines: Lines,
}

impl fmt::Debug for Copier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copier({})", self.method)
    }
}

impl Copier {
    /// A copier by that method.
    ///
    /// # Errors
    /// The CPU lacks what the method needs.
    pub fn new(method: Method) -> Result<Self, Unavailable> {
        let unavailable = Unavailable { method };
        let lines = method.lines();
        let has_lines = match lines {
            Lines::Leave | Lines::Library => true,
            Lines::Clean(instruction) | Lines::Invalidate(instruction) => instruction.is_available(),
        };
        let copy = method.copy_fn().filter(|_| has_lines).ok_or(unavailable)?;
        Ok(Self { method, copy, lines })
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Copies the shorter length of the two. Non-temporal stores are ordered before the stores that follow, so that a
    /// release store publishes what was copied, whatever the method.
    #[inline]
    pub fn copy(&self, source: &[u8], destination: &mut [u8]) {
        // In this order the C library's memcpy is one comparison away from its caller.
        if let Lines::Library = self.lines {
            return crate::portable::copy(source, destination);
        }
        match self.lines {
            Lines::Clean(_) | Lines::Invalidate(_) => self.copy_and_act(source, destination),
            _ => self.plain(source, destination),
        }
    }

    #[cold]
    fn copy_and_act(&self, source: &[u8], destination: &mut [u8]) {
        let len = source.len().min(destination.len());
        if let Lines::Invalidate(instruction) = self.lines {
            invalidate_with(instruction, &source[..len]);
        }
        self.plain(source, destination);
        if let Lines::Clean(instruction) = self.lines {
            clean_with(instruction, &destination[..len]);
        }
    }

    #[inline]
    fn plain(&self, source: &[u8], destination: &mut [u8]) {
        // SAFETY: the CPU has what the function needs (invariant of the field).
        unsafe { (self.copy)(source, destination) };
    }
}
