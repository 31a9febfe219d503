//! The functions of the kernel that a perf.data was recorded on.
//!
//! The file has none, only the build id of the kernel and the addresses of the kernel and its modules (`MMAP` records without
//! a process). The kernel's list of functions is therefore searched on this machine, as perf does. The places are perf's own
//! cache (`~/.debug`), which `perf record` fills, and `/proc/kallsyms` if the running kernel has exactly that build id. A
//! kernel at another address (a later boot with randomised addresses) is moved by the difference. A function of a module is
//! named if the list was made with the module in the same place; otherwise it is given as module and offset. A kernel of the
//! same release but another build is never used.

use crate::parse::bytes::{ByteOrder, until_nul};
use crate::parse::symbols::Symbols;
use std::path::{Path, PathBuf};

/// Modules that are kept: no kernel has as many.
const MODULES_MAX: usize = 1 << 14;
/// Bytes of a build id in its record, and what it has before it and behind it.
const ID_BYTES: usize = 20;
const ID_AT: usize = 12;
const NAME_AT: usize = 36;
/// `PERF_RECORD_MISC_BUILD_ID_SIZE`: a byte behind the build id is its length.
const LENGTH_STATED: u16 = 1 << 15;
/// A kernel's list of functions has some 10 MB; a much larger file is something else.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// Where lists of functions are searched.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The root of this machine's files.
    pub(super) root: PathBuf,
    pub(super) cache: Option<PathBuf>,
}

impl Places {
    pub(super) fn of_this_machine() -> Self {
        let cache = std::env::var_os("HOME").map(|home| Path::new(&home).join(".debug"));
        Self { root: PathBuf::from("/"), cache }
    }

    /// The list of the kernel with that build id, as hexadecimal digits.
    fn list(&self, build_id: &str) -> Option<String> {
        let cached = self.cache.as_ref().map(|cache| cache.join("[kernel.kallsyms]").join(build_id));
        let running = || std::fs::read(self.root.join("sys/kernel/notes")).ok();
        cached.and_then(|folder| read(&folder.join("kallsyms"))).or_else(|| {
            let is_running = build_id_of_notes(&running()?)? == build_id;
            is_running.then(|| read(&self.root.join("proc/kallsyms"))).flatten()
        })
    }
}

fn read(path: &Path) -> Option<String> {
    let length = std::fs::metadata(path).ok()?.len();
    let list = if length <= LIST_BYTES_MAX { std::fs::read(path).ok()? } else { return None };
    String::from_utf8(list).ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Module {
    begin: u64,
    end: u64,
    /// `[name]`.
    label: String,
}

/// The functions of the kernel and its modules.
#[derive(Debug, Default)]
pub(super) struct KernelSymbols {
    symbols: Symbols,
    /// The symbols are in the file itself.
    are_stored: bool,
    /// How far an address in the file is above that in the list.
    moved: u64,
    modules: Vec<Module>,
}

impl KernelSymbols {
    /// `stored` are the symbols in the file, which old versions of perf wrote.
    pub(super) fn new(stored: Symbols, build_id: Option<&str>, places: &Places) -> Self {
        if stored.has_functions() {
            return Self { symbols: stored, are_stored: true, ..Self::default() };
        }
        let list = build_id.and_then(|build_id| places.list(build_id)).unwrap_or_default();
        Self { symbols: Symbols::parse(list), ..Self::default() }
    }

    /// Whether no function can be named.
    pub(super) fn are_unknown(&self) -> bool {
        !self.symbols.has_functions()
    }

    /// The functions that certainly have not moved: those in the file itself.
    pub(super) fn unmoved(&self) -> Symbols {
        if self.are_stored { self.symbols.clone() } else { Symbols::default() }
    }

    /// Takes a record of a mapping: process, thread, address, length, offset, and the name behind `name_at`.
    pub(super) fn mapping(&mut self, body: &[u8], order: ByteOrder, name_at: usize) {
        let kernel = order.u32(body, 0) == Some(u32::MAX);
        let word = |at| order.u64(body, at);
        let (Some(begin), Some(length), Some(offset)) = (word(8), word(16), word(24)) else { return };
        let Some(name) = body.get(name_at..).filter(|_| kernel && !self.are_stored) else { return };
        let name = String::from_utf8_lossy(until_nul(name));
        if let Some(reference) = name.strip_prefix("[kernel.kallsyms]") {
            if let Some(address) = self.symbols.address_of(reference) {
                self.moved = offset.wrapping_sub(address);
            }
            return;
        }
        let module = Module { begin, end: begin.saturating_add(length), label: label(&name) };
        if self.modules.len() < MODULES_MAX && !self.modules.contains(&module) {
            self.modules.push(module);
        }
    }

    /// The function that has `address`, or the module, and the distance from its start.
    pub(super) fn of(&self, address: u64) -> Option<(&str, u64)> {
        let found = self.symbols.of_module(address.wrapping_sub(self.moved));
        // The latest mapping at an address counts.
        let module = self.modules.iter().rev().find(|module| (module.begin..module.end).contains(&address));
        match (module, found) {
            (None, found) => found.map(|(name, _, distance)| (name, distance)),
            (Some(module), Some((name, Some(of), distance))) if self.moved == 0 && of == module.label => {
                Some((name, distance))
            }
            (Some(module), _) => Some((&module.label, address - module.begin)),
        }
    }
}

/// `[name]` of `[name]` and of `/lib/modules/…/name.ko.xz`.
fn label(path: &str) -> String {
    if path.starts_with('[') {
        return path.to_owned();
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split_once(".ko").map_or(file, |(name, _)| name);
    format!("[{}]", name.replace('-', "_"))
}

/// The build id of the kernel in the section of build ids of a file.
pub(super) fn build_id(section: &[u8], order: ByteOrder) -> Option<String> {
    let mut rest = section;
    loop {
        let (flags, size) = (order.u16(rest, 4)?, usize::from(order.u16(rest, 6)?));
        let entry = rest.get(..size).filter(|_| size > NAME_AT)?;
        if entry[NAME_AT..].starts_with(b"[kernel.kallsyms]") {
            let stated = usize::from(entry[ID_AT + ID_BYTES]);
            let length = if flags & LENGTH_STATED != 0 { stated.min(ID_BYTES) } else { ID_BYTES };
            return (length > 0).then(|| hexadecimal(&entry[ID_AT..ID_AT + length]));
        }
        rest = &rest[size..];
    }
}

/// The build id in `/sys/kernel/notes`: notes of this machine's byte order, each with the lengths of its name and content.
fn build_id_of_notes(notes: &[u8]) -> Option<String> {
    let order = ByteOrder::NATIVE;
    let mut rest = notes;
    loop {
        let (name, content) = (order.u32(rest, 0)? as usize, order.u32(rest, 4)? as usize);
        let kind = order.u32(rest, 8)?;
        let content_at = 12usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let id = rest.get(content_at..content_at.checked_add(content)?)?;
        if kind == 3 && rest.get(12..12 + name) == Some(b"GNU\0") {
            return Some(hexadecimal(id));
        }
        rest = rest.get(content_at.checked_add(content.checked_next_multiple_of(4)?)?..)?;
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000100 t do_it\n\
        ffffffff81900000 T _etext\nffffffffc0000000 t plant_stall\t[plant]\nffffffffc0005000 t other\t[other]\n";
    const ID: &str = "0102030405060708090a0b0c0d0e0f1011121314";

    fn note(kind: u32, name: &[u8], content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [name.len() as u32, content.len() as u32, kind] {
            note.extend(number.to_ne_bytes());
        }
        for part in [name, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    fn id_bytes() -> Vec<u8> {
        (1..=20).collect()
    }

    /// A mapping as `MMAP` has it.
    fn mapping(process: u32, begin: u64, length: u64, offset: u64, name: &str) -> Vec<u8> {
        let mut body = [process.to_le_bytes(), process.to_le_bytes()].concat();
        for number in [begin, length, offset] {
            body.extend(number.to_le_bytes());
        }
        body.extend(name.as_bytes());
        body.push(0);
        body
    }

    fn known() -> KernelSymbols {
        KernelSymbols { symbols: Symbols::parse(LIST.to_owned()), ..KernelSymbols::default() }
    }

    fn map(symbols: &mut KernelSymbols, begin: u64, length: u64, offset: u64, name: &str) {
        symbols.mapping(&mapping(u32::MAX, begin, length, offset, name), ByteOrder::Little, 32);
    }

    #[test]
    fn a_list_is_taken_only_for_exactly_its_build() {
        let machine = tempfile::tempdir().unwrap();
        let root = machine.path().to_owned();
        for folder in ["proc", "sys/kernel"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("proc/kallsyms"), LIST).unwrap();
        let notes = [note(6, b"Linux\0", b"x"), note(3, b"GNU\0", &id_bytes())].concat();
        std::fs::write(root.join("sys/kernel/notes"), notes).unwrap();
        let cache = root.join("cache");
        let places = Places { root, cache: Some(cache.clone()) };
        let symbols = |id| KernelSymbols::new(Symbols::default(), id, &places);
        assert_eq!(symbols(Some(ID)).of(0xffff_ffff_8100_0110), Some(("do_it", 0x10)));
        assert!(!symbols(Some(ID)).are_unknown());
        let other = "ff".repeat(20);
        assert!(symbols(Some(&other)).are_unknown() && symbols(None).are_unknown());
        let folder = cache.join("[kernel.kallsyms]").join(&other);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kallsyms"), "ffffffff81000000 T cached\n").unwrap();
        assert_eq!(symbols(Some(&other)).of(0xffff_ffff_8100_0001), Some(("cached", 1)));
        // The kernel hides the addresses from most users.
        let hidden = "0000000000000000 T _text\n0000000000000000 t do_it\n";
        std::fs::write(machine.path().join("proc/kallsyms"), hidden).unwrap();
        assert!(symbols(Some(ID)).are_unknown());
    }

    #[test]
    fn a_kernel_elsewhere_is_moved() {
        let mut symbols = known();
        map(&mut symbols, 0xffff_ffff_a000_0000, 0x90_0000, 0xffff_ffff_a000_0000, "[kernel.kallsyms]_text");
        assert_eq!(symbols.of(0xffff_ffff_a000_0123), Some(("do_it", 0x23)));
        // Modules are not relocated with the kernel: only their own addresses are known.
        map(&mut symbols, 0xffff_ffff_c000_0000, 0x5000, 0, "/lib/modules/6.1/extra/plant.ko.xz");
        assert_eq!(symbols.of(0xffff_ffff_c000_0010), Some(("[plant]", 0x10)));
    }

    #[test]
    fn functions_of_modules_need_the_module_in_its_place() {
        let mut symbols = known();
        map(&mut symbols, 0xffff_ffff_8100_0000, 0x90_0000, 0xffff_ffff_8100_0000, "[kernel.kallsyms]_text");
        map(&mut symbols, 0xffff_ffff_c000_0000, 0x5000, 0, "[plant]");
        map(&mut symbols, 0xffff_ffff_c000_5000, 0x5000, 0, "[snd_hda]");
        assert_eq!(symbols.of(0xffff_ffff_c000_0010), Some(("plant_stall", 0x10)));
        assert_eq!(symbols.of(0xffff_ffff_c000_5010), Some(("[snd_hda]", 0x10)));
        // User-space mappings are ignored.
        symbols.mapping(&mapping(7, 0xffff_ffff_8100_0000, 0x1000, 0, "[x]"), ByteOrder::Little, 32);
        assert_eq!(symbols.of(0xffff_ffff_8100_0110), Some(("do_it", 0x10)));
    }

    #[test]
    fn build_ids_are_found_among_others() {
        let entry = |flags: u16, length: u8, name: &[u8]| {
            let name = [name, &[0; 4][..]].concat();
            let mut entry = 67u32.to_le_bytes().to_vec();
            entry.extend(flags.to_le_bytes());
            entry.extend(((NAME_AT + name.len()) as u16).to_le_bytes());
            entry.extend((-1i32).to_le_bytes());
            entry.extend(id_bytes());
            entry.extend([length, 0, 0, 0]);
            [entry, name].concat()
        };
        let section = [entry(1, 0, b"[vdso]"), entry(1 | LENGTH_STATED, 16, b"[kernel.kallsyms]")].concat();
        assert_eq!(build_id(&section, ByteOrder::Little).as_deref(), Some(&ID[..32]));
        assert_eq!(build_id(&entry(1, 0, b"[kernel.kallsyms]"), ByteOrder::Little).as_deref(), Some(ID));
        for length in 0..section.len() {
            let id = build_id(&section[..length], ByteOrder::Little);
            assert_eq!(id, None, "{length}");
        }
    }

    #[test]
    fn notes_without_a_build_id_have_none() {
        let notes = [note(3, b"GNU\0", &id_bytes()), note(6, b"Linux\0", b"y")].concat();
        assert_eq!(build_id_of_notes(&notes).as_deref(), Some(ID));
        assert_eq!(build_id_of_notes(&note(6, b"Linux\0", b"y")), None);
        assert_eq!(build_id_of_notes(&[255; 40]), None);
    }

    #[test]
    fn modules_have_the_names_that_the_kernel_gives_them() {
        assert_eq!(label("/lib/modules/6.1.0/kernel/sound/snd-hda-intel.ko.xz"), "[snd_hda_intel]");
        assert_eq!(label("[plant]"), "[plant]");
    }
}
