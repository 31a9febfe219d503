//! A `trace.dat` of version 6 from what a guest's tracer left, as small as it can be: the pages of the ring buffer that
//! a window needs, the formats of the recorded events, and the symbols that these pages name.

use crate::error::LabError;
use crate::host;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// Bytes of a page of the ring buffer; each begins with its time and the length of its data.
const PAGE_BYTES: usize = 4096;
/// Where the kernel's and its modules' code can be on x86_64.
const KERNEL_BEGIN: u64 = 0xffff_ffff_8000_0000;
const OPTION_TRACE_CLOCK: u16 = 4;
const OPTION_UNAME: u16 = 5;

/// What the kernel states once: formats and symbols.
#[derive(Debug)]
pub(super) struct Kernel {
    header_page: Vec<u8>,
    header_event: Vec<u8>,
    own_formats: Vec<Vec<u8>>,
    systems: BTreeMap<String, Vec<Vec<u8>>>,
    /// By address; the rest of the line of /proc/kallsyms.
    symbols: BTreeMap<u64, String>,
    uname: String,
}

impl Kernel {
    /// Reads what a guest copied into a folder: `header_page`, `header_event`, `formats/SYSTEM/EVENT`, `kallsyms`.
    pub(super) fn read(folder: &Path, version: &str) -> Result<Self, LabError> {
        let bytes = |path: &Path| std::fs::read(path).map_err(LabError::file("read", path));
        let mut systems = BTreeMap::new();
        for system in names(&folder.join("formats"))? {
            let place = folder.join("formats").join(&system);
            let formats: Result<Vec<_>, _> =
                names(&place)?.iter().map(|name| bytes(&place.join(name))).collect();
            systems.insert(system, formats?);
        }
        let own_formats = systems.remove("ftrace").unwrap_or_default();
        let symbols = host::read_text(&folder.join("kallsyms"))?;
        let symbols = symbols.lines().filter_map(|line| {
            let (address, rest) = line.split_once(' ')?;
            Some((u64::from_str_radix(address, 16).ok()?, rest.to_owned()))
        });
        Ok(Self {
            header_page: bytes(&folder.join("header_page"))?,
            header_event: bytes(&folder.join("header_event"))?,
            own_formats,
            systems,
            symbols: symbols.collect(),
            uname: format!("Linux lab {version} x86_64"),
        })
    }

    /// The file of the pages that have events in `window`, which is on the trace's clock (mono).
    pub(super) fn trace_dat(&self, cpus: &[Vec<u8>], commands: &[u8], window: &Range<u64>) -> Vec<u8> {
        let cpus: Vec<Vec<&[u8]>> = cpus.iter().map(|pages| cut(pages, window)).collect();
        let mut bytes = vec![0x17, 0x08, 0x44];
        bytes.extend(b"tracing6\0");
        bytes.extend([0, 8]);
        bytes.extend((PAGE_BYTES as u32).to_le_bytes());
        for (name, content) in [("header_page", &self.header_page), ("header_event", &self.header_event)] {
            bytes.extend(name.as_bytes());
            bytes.push(0);
            push_sized(&mut bytes, content);
        }
        bytes.extend((self.own_formats.len() as u32).to_le_bytes());
        self.own_formats.iter().for_each(|format| push_sized(&mut bytes, format));
        bytes.extend((self.systems.len() as u32).to_le_bytes());
        for (system, formats) in &self.systems {
            bytes.extend(system.as_bytes());
            bytes.push(0);
            bytes.extend((formats.len() as u32).to_le_bytes());
            formats.iter().for_each(|format| push_sized(&mut bytes, format));
        }
        let symbols = self.symbols_of(cpus.iter().flatten().copied());
        bytes.extend((symbols.len() as u32).to_le_bytes());
        bytes.extend(symbols.as_bytes());
        // No event here has a text of the kernel's own.
        bytes.extend(0_u32.to_le_bytes());
        push_sized(&mut bytes, commands);
        bytes.extend((cpus.len() as u32).to_le_bytes());
        bytes.extend(b"options  \0");
        push_option(&mut bytes, OPTION_TRACE_CLOCK, b"");
        push_option(&mut bytes, OPTION_UNAME, format!("{}\0", self.uname).as_bytes());
        bytes.extend(0_u16.to_le_bytes());
        self.push_pages(&mut bytes, &cpus);
        bytes
    }

    fn push_pages(&self, bytes: &mut Vec<u8>, cpus: &[Vec<&[u8]>]) {
        bytes.extend(b"flyrecord\0");
        let table = bytes.len();
        bytes.resize(table + 16 * cpus.len(), 0);
        push_sized(bytes, b"local global counter uptime perf [mono] mono_raw boot");
        for (cpu, pages) in cpus.iter().enumerate() {
            bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
            let (at, length) = (bytes.len() as u64, (pages.len() * PAGE_BYTES) as u64);
            let row = table + 16 * cpu;
            bytes[row..row + 8].copy_from_slice(&at.to_le_bytes());
            bytes[row + 8..row + 16].copy_from_slice(&length.to_le_bytes());
            pages.iter().for_each(|page| bytes.extend(*page));
        }
    }

    /// Lines of the symbols to which addresses in the pages belong, and of the next symbols, where they end.
    fn symbols_of<'a>(&self, pages: impl Iterator<Item = &'a [u8]>) -> String {
        let mut kept = BTreeMap::new();
        for page in pages {
            // Entries of the ring buffer begin at multiples of four.
            for word in (16..PAGE_BYTES - 7).step_by(4) {
                let address = read_u64(page, word);
                if address < KERNEL_BEGIN {
                    continue;
                }
                if let Some((begin, rest)) = self.symbols.range(..=address).next_back() {
                    kept.insert(begin, rest);
                    kept.extend(self.symbols.range(address + 1..).next());
                }
            }
        }
        kept.iter().map(|(address, rest)| format!("{address:016x} {rest}\n")).collect()
    }
}

/// Whether a CPU still has events from the start of the window.
pub(super) fn holds(cpus: &[Vec<u8>], window: &Range<u64>) -> bool {
    cpus.iter()
        .any(|pages| pages.len() >= PAGE_BYTES && (window.start == 0 || read_u64(pages, 0) <= window.start))
}

/// What there is, for a message: number and times of the pages of each CPU.
pub(super) fn extent(cpus: &[Vec<u8>]) -> String {
    let of_cpu = |pages: &Vec<u8>| {
        let times: Vec<u64> = pages.chunks_exact(PAGE_BYTES).map(|page| read_u64(page, 0)).collect();
        format!("{} pages from {:?} to {:?}", times.len(), times.first(), times.last())
    };
    cpus.iter().map(of_cpu).collect::<Vec<_>>().join(", ")
}

/// The pages with events in a window.
fn cut<'a>(pages: &'a [u8], window: &Range<u64>) -> Vec<&'a [u8]> {
    let pages: Vec<&[u8]> = pages.chunks_exact(PAGE_BYTES).collect();
    let begin = |index: usize| pages.get(index).map_or(u64::MAX, |page| read_u64(page, 0));
    let is_needed = |index: &usize| begin(*index) < window.end && begin(index + 1) > window.start;
    (0..pages.len()).filter(is_needed).map(|index| pages[index]).collect()
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn push_sized(bytes: &mut Vec<u8>, content: &[u8]) {
    bytes.extend((content.len() as u64).to_le_bytes());
    bytes.extend(content);
}

fn push_option(bytes: &mut Vec<u8>, option: u16, content: &[u8]) {
    bytes.extend(option.to_le_bytes());
    bytes.extend((content.len() as u32).to_le_bytes());
    bytes.extend(content);
}

/// Names in a folder, in alphabetical order.
fn names(folder: &Path) -> Result<Vec<String>, LabError> {
    let entries = std::fs::read_dir(folder).map_err(LabError::file("read", folder))?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(at_ns: u64, address: u64) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[..8].copy_from_slice(&at_ns.to_le_bytes());
        page[20..28].copy_from_slice(&address.to_le_bytes());
        page
    }

    #[test]
    fn pages_around_the_window_are_kept() {
        let pages: Vec<u8> = [10, 20, 30, 40].iter().flat_map(|at| page(*at, 0)).collect();
        let begins = |window| cut(&pages, &window).iter().map(|page| read_u64(page, 0)).collect::<Vec<_>>();
        assert_eq!(begins(25..30), [20]);
        assert_eq!(begins(5..21), [10, 20]);
        assert_eq!(begins(100..200), [40]);
    }

    #[test]
    fn symbols_that_pages_name_are_kept_with_their_ends() {
        let line = |address: u64, name: &str| (address, format!("t {name}"));
        let base = KERNEL_BEGIN;
        let kernel = Kernel {
            header_page: Vec::new(),
            header_event: Vec::new(),
            own_formats: Vec::new(),
            systems: BTreeMap::new(),
            symbols: [line(base, "a"), line(base + 16, "b"), line(base + 32, "c"), line(base + 48, "d")]
                .into(),
            uname: String::new(),
        };
        let pages = page(1, base + 20);
        let symbols = kernel.symbols_of([pages.as_slice()].into_iter());
        assert_eq!(symbols, "ffffffff80000010 t b\nffffffff80000020 t c\n");
    }
}
