//! Callers in programs that were built without frame pointers: from the copy of a sample's stack, and the tables that compilers write
//! for exceptions (`.eh_frame`).

use crate::layout::tasks::RawPiece;
#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwindRegsAarch64 as Registers, UnwinderAarch64 as Unwinder};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as Unwinder};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use object::LittleEndian;
use object::ReadRef;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use whylate_core::CpuId;

const ENDIAN: LittleEndian = LittleEndian;
/// More frames are those of a recursion.
const FRAMES_MAX: usize = 64;
/// Larger tables are not read: a sample would take too long.
const TABLES_MAX_BYTES: u64 = 64 << 20;

/// The innermost part of a program's stack, and its registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StackCopy {
    /// The address of the first word.
    from: u64,
    words: Vec<u64>,
    pub(super) instruction: u64,
    frame: u64,
    link: u64,
}

/// Stacks whose samples have not come yet, with their threads.
#[derive(Clone, Debug, Default)]
pub(super) struct StackPieces {
    of_cpus: BTreeMap<CpuId, (u32, StackCopy)>,
}

impl StackPieces {
    /// Adds a piece; they come in the order of their addresses.
    pub(super) fn add(&mut self, cpu: CpuId, of: u32, piece: &RawPiece) {
        let (thread, copy) = self.of_cpus.entry(cpu).or_default();
        let next = copy.from + 8 * copy.words.len() as u64;
        let goes_on = *thread == of && !copy.words.is_empty() && [0, next].contains(&piece.at);
        if !goes_on {
            let RawPiece { at: from, instruction, frame, link, .. } = *piece;
            (*thread, *copy) = (of, StackCopy { from, words: Vec::new(), instruction, frame, link });
        }
        if piece.at > 0 {
            copy.words.extend(piece.words);
        }
    }

    /// The stack of the sample that came on that CPU.
    pub(super) fn take(&mut self, cpu: CpuId, thread: u32) -> Option<StackCopy> {
        self.of_cpus.remove(&cpu).filter(|(of, _)| *of == thread).map(|(_, copy)| copy)
    }
}

/// What a file has for unwinding: addresses as linked, and contents.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    text: Option<Range<u64>>,
    got: Option<Range<u64>>,
    frames: Option<(Range<u64>, Rc<[u8]>)>,
    index: Option<(Range<u64>, Rc<[u8]>)>,
}

impl Tables {
    pub(super) fn read<'data>(data: impl ReadRef<'data>) -> Option<Self> {
        let header = FileHeader64::<LittleEndian>::parse(data).ok()?;
        let sections = header.sections(ENDIAN, data).ok()?;
        let mut tables = Self::default();
        for section in sections.iter() {
            let address = section.sh_addr(ENDIAN);
            let range = address..address + section.sh_size(ENDIAN);
            let contents = || {
                let is_small = section.sh_size(ENDIAN) <= TABLES_MAX_BYTES;
                section
                    .data(ENDIAN, data)
                    .ok()
                    .filter(|_| is_small)
                    .map(|bytes| (range.clone(), bytes.into()))
            };
            match sections.section_name(ENDIAN, section).unwrap_or_default() {
                b".text" => tables.text = Some(range),
                b".got" => tables.got = Some(range),
                b".eh_frame" => tables.frames = contents(),
                b".eh_frame_hdr" => tables.index = contents(),
                _ => {}
            }
        }
        Some(tables)
    }

    /// The same where the file is in memory: code at `range`, everything moved by `moved_by`.
    pub(super) fn module(&self, range: Range<u64>, moved_by: u64) -> Module<Rc<[u8]>> {
        let sections = ExplicitModuleSectionInfo {
            text_svma: self.text.clone(),
            got_svma: self.got.clone(),
            eh_frame_svma: self.frames.as_ref().map(|it| it.0.clone()),
            eh_frame: self.frames.as_ref().map(|it| Rc::clone(&it.1)),
            eh_frame_hdr_svma: self.index.as_ref().map(|it| it.0.clone()),
            eh_frame_hdr: self.index.as_ref().map(|it| Rc::clone(&it.1)),
            ..ExplicitModuleSectionInfo::default()
        };
        Module::new(String::new(), range, moved_by, sections)
    }
}

/// The code of a process, with its tables.
pub(super) struct Unwinding {
    unwinder: Unwinder<Rc<[u8]>>,
    cache: Cache,
}

impl Unwinding {
    pub(super) fn of(modules: impl IntoIterator<Item = Module<Rc<[u8]>>>) -> Self {
        let mut unwinder = Unwinder::new();
        modules.into_iter().for_each(|module| unwinder.add_module(module));
        Self { unwinder, cache: Cache::new() }
    }

    /// Where the program was, and its return addresses, innermost first; whether these are all.
    pub(super) fn addresses(&mut self, copy: &StackCopy) -> (Vec<u64>, bool) {
        #[cfg(target_arch = "x86_64")]
        let registers = Registers::new(copy.instruction, copy.from, copy.frame);
        #[cfg(target_arch = "aarch64")]
        let registers = Registers::new(copy.link, copy.from, copy.frame);
        let mut word = |address: u64| {
            let place = address.checked_sub(copy.from).filter(|bytes| bytes % 8 == 0).ok_or(())? / 8;
            copy.words.get(usize::try_from(place).map_err(|_| ())?).copied().ok_or(())
        };
        let mut frames = self.unwinder.iter_frames(copy.instruction, registers, &mut self.cache, &mut word);
        let mut addresses = Vec::new();
        while addresses.len() < FRAMES_MAX {
            match frames.next() {
                Ok(Some(frame)) => addresses.push(frame.address()),
                Ok(None) => return (addresses, true),
                Err(_) => break,
            }
        }
        (addresses, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::tasks::STACK_WORDS;

    fn piece(at: u64, first: u64) -> RawPiece {
        let words = std::array::from_fn(|nth| first + nth as u64);
        RawPiece { words, at, instruction: 7, frame: 8, link: 9 }
    }

    #[test]
    fn pieces_of_one_stack_are_joined_and_a_gap_begins_another() {
        let mut pieces = StackPieces::default();
        let (cpu, next) = (CpuId(1), 1_000 + 8 * STACK_WORDS as u64);
        for (thread, at, first) in [(5, 1_000, 0), (5, next, 22), (5, 0, 0)] {
            pieces.add(cpu, thread, &piece(at, first));
        }
        let copy = pieces.take(cpu, 5).unwrap();
        assert_eq!((copy.from, copy.words), (1_000, (0..44).collect::<Vec<u64>>()));
        assert_eq!((copy.instruction, copy.frame, copy.link), (7, 8, 9));
        assert_eq!(pieces.take(cpu, 5), None);
        // Another thread, a gap, and a stack that is not in memory.
        for (thread, at) in [(5, 1_000), (6, next), (6, 9_000)] {
            pieces.add(cpu, thread, &piece(at, 0));
        }
        assert_eq!(pieces.take(cpu, 6).map(|it| (it.from, it.words.len())), Some((9_000, STACK_WORDS)));
        pieces.add(cpu, 6, &piece(0, 0));
        assert_eq!(pieces.take(cpu, 5), None);
    }
}
