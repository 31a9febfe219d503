//! The functions of a kernel: `/proc/kallsyms`.

use super::ParseError;
use super::bytes::text;
use super::input::{Input, SECTION_BYTES_MAX};
use super::unpack::{Algorithm, Unpacker};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Longest function: an address further behind a symbol is in an unknown function.
const DISTANCE_MAX: u64 = 1 << 20;
/// Functions that are read: kernels have some 200,000.
const FUNCTIONS_MAX: usize = 1 << 20;

/// Where a file has its symbols, or something else that may be packed.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The file, or what a part of it was unpacked to.
    pub(crate) input: Input,
    pub(crate) offset: u64,
    /// How many bytes they have there.
    pub(crate) bytes: u64,
    /// How they are packed, and the number of bytes that are unpacked.
    pub(crate) packed: Option<(Algorithm, usize)>,
    /// Bytes before the text: its length.
    pub(crate) head_bytes: usize,
}

/// Functions by address. Copies share them.
///
/// They are read, unpacked and sorted when the first function is needed. For a short trace this takes longer than everything
/// else, and a search for the latest wake-up needs only a few functions at the very end.
#[derive(Clone, Debug, Default)]
pub struct Symbols(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    place: Option<Place>,
    table: OnceLock<Table>,
}

/// Addresses that are remembered with their function; a power of two.
const KNOWN: usize = 1 << 14;
/// Places where an address can be remembered.
const PROBES: usize = 4;

/// The first of the places where an address can be remembered.
#[inline]
fn place(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize % KNOWN
}

/// An address that was looked up.
#[derive(Debug)]
struct Known {
    address: u64,
    distance: u64,
    name: Box<str>,
}

/// The functions of a list, sorted by address.
#[derive(Debug)]
struct Functions {
    /// Where they begin, each address once.
    begins: Vec<u64>,
    /// Where the name of each is in the file, and its bytes; of several with the same start, the first in the file.
    names: Vec<(u32, u32)>,
    /// Traces look up the same few thousand addresses repeatedly. An address that was put into a place stays there.
    known: Box<[OnceLock<Known>]>,
}

#[derive(Debug, Default)]
struct Table {
    file: String,
    functions: OnceLock<Functions>,
    text_start: Option<u64>,
    /// Why there are none.
    damage: Option<String>,
}

impl Symbols {
    /// Takes the file: address, kind, name, and perhaps a module in brackets, on each line. Only functions count; a
    /// file whose addresses are all 0 (hidden by the kernel) has none.
    pub fn parse(file: String) -> Self {
        Self(Arc::new(Inner { place: None, table: OnceLock::from(Table::new(file)) }))
    }

    /// Symbols that are read when they are needed. The caller checks that their place is within the file.
    pub(crate) fn at(place: Place) -> Self {
        Self(Arc::new(Inner { place: Some(place), table: OnceLock::new() }))
    }

    #[inline]
    fn table(&self) -> &Table {
        self.0.table.get_or_init(|| match &self.0.place {
            Some(place) => place.read().unwrap_or_else(|error| Table {
                damage: Some(format!("functions have no names, because their list cannot be read: {error}")),
                ..Table::default()
            }),
            None => Table::default(),
        })
    }

    /// What was wrong when they were read, a sentence; also `None` while they were not needed.
    pub fn damage(&self) -> Option<&str> {
        self.0.table.get()?.damage.as_deref()
    }

    /// The function that has `address`, and the distance from its start; of several with the same start, the first in
    /// the file.
    #[inline]
    pub fn of(&self, address: u64) -> Option<(&str, u64)> {
        self.table().of(address)
    }

    /// The same, with its module in brackets if it belongs to one.
    pub(crate) fn of_module(&self, address: u64) -> Option<(&str, Option<&str>, u64)> {
        self.table().of_module(address)
    }

    /// The address of the function of that name.
    pub(crate) fn address_of(&self, name: &str) -> Option<u64> {
        address_of(&self.table().file, name)
    }

    /// Whether there is any function: a list whose addresses the kernel hides from this user has none.
    pub(crate) fn has_functions(&self) -> bool {
        let file = self.table().file.as_bytes();
        file.split(|byte| *byte == b'\n').any(|line| function(line).is_some())
    }

    /// The address of `_stext`.
    pub fn text_start(&self) -> Option<u64> {
        self.table().text_start
    }
}

impl Place {
    /// The bytes there, unpacked.
    pub(crate) fn unpacked(&self) -> Result<Vec<u8>, ParseError> {
        let bytes = self.packed.map_or(self.bytes, |(_, length)| length as u64).max(self.bytes);
        if bytes > SECTION_BYTES_MAX {
            return Err(self
                .input
                .damaged(self.offset, format!("{bytes} bytes are too many for this section")));
        }
        let bytes = self.input.bytes(self.offset, self.bytes)?;
        let Some((algorithm, length)) = self.packed else { return Ok(bytes) };
        let mut unpacked = Vec::new();
        let done = Unpacker::new(algorithm).unpack(&bytes, length, &mut unpacked);
        done.map_err(|message| self.input.damaged(self.offset, message)).map(|()| unpacked)
    }

    fn read(&self) -> Result<Table, ParseError> {
        let mut bytes = self.unpacked()?;
        // Empty lines replace the bytes before the list: moving the list to the front takes longer.
        let head = self.head_bytes.min(bytes.len());
        bytes[..head].fill(b'\n');
        Ok(Table::new(text(bytes)))
    }
}

impl Table {
    fn new(file: String) -> Self {
        let text_start = address_of(&file, "_stext");
        Self { file, functions: OnceLock::new(), text_start, damage: None }
    }

    #[inline]
    fn of(&self, address: u64) -> Option<(&str, u64)> {
        let known = self.functions.get().and_then(|functions| functions.known[place(address)].get());
        match known.filter(|known| known.address == address) {
            Some(known) => Some((&known.name, known.distance)),
            None => self.search(address),
        }
    }

    #[cold]
    fn search(&self, address: u64) -> Option<(&str, u64)> {
        let functions = self.functions.get_or_init(|| Functions::of(&self.file));
        let places = (0..PROBES).map(|next| &functions.known[(place(address) + next) % KNOWN]);
        let mut free = None;
        for place in places {
            match place.get() {
                Some(known) if known.address == address => return Some((&known.name, known.distance)),
                Some(_) => {}
                None => {
                    free = Some(place);
                    break;
                }
            }
        }
        let (range, distance) = functions.find(address)?;
        let name = self.file.get(range)?;
        let Some(free) = free else { return Some((name, distance)) };
        let known = free.get_or_init(|| Known { address, distance, name: name.into() });
        // Another thread may have been faster, with another address.
        Some(if known.address == address { (&*known.name, distance) } else { (name, distance) })
    }

    fn of_module(&self, address: u64) -> Option<(&str, Option<&str>, u64)> {
        let (name, distance) = self.of(address)?;
        let (at, _) = self.functions.get()?.find(address)?;
        let line = self.file.get(at.start..)?.lines().next()?;
        Some((name, line.split_ascii_whitespace().nth(1), distance))
    }
}

impl Functions {
    fn of(file: &str) -> Self {
        let (mut begins, mut names) =
            (Vec::with_capacity(file.len() / 40), Vec::with_capacity(file.len() / 40));
        let (mut begin, mut sorted) = (0, true);
        // Names are within the file, which is far below 4 GiB (trace.dat gives its length in 32 bits).
        let bytes = &file.as_bytes()[..file.len().min(u32::MAX as usize)];
        for end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
            let line = &bytes[begin..end];
            let start = std::mem::replace(&mut begin, end + 1);
            let Some((address, name)) = function(line) else { continue };
            if begins.len() >= FUNCTIONS_MAX {
                break;
            }
            match begins.last() {
                Some(last) if *last == address => continue,
                last => sorted &= last.is_none_or(|last| *last < address),
            }
            // Only the module in brackets can follow a name.
            let whole = line.len() - name;
            let is_short = line.last().is_some_and(|last| *last == b']' || last.is_ascii_whitespace());
            let length = if is_short { word_bytes(&line[name..]) } else { whole };
            begins.push(address);
            names.push(((start + name) as u32, length as u32));
        }
        if !sorted {
            let mut functions: Vec<(u64, (u32, u32))> = begins.into_iter().zip(names).collect();
            functions.sort_by_key(|(address, _)| *address);
            functions.dedup_by_key(|(address, _)| *address);
            (begins, names) = functions.into_iter().unzip();
        }
        Self { begins, names, known: (0..KNOWN).map(|_| OnceLock::new()).collect() }
    }

    /// Where the name of the function is in the file that has `address`, and the distance from its start.
    fn find(&self, address: u64) -> Option<(Range<usize>, u64)> {
        let place = self.begins.partition_point(|begin| *begin <= address).checked_sub(1)?;
        let distance = address - self.begins.get(place)?;
        let (name, bytes) = *self.names.get(place)?;
        let name = name as usize..name as usize + bytes as usize;
        (distance < DISTANCE_MAX).then_some((name, distance))
    }
}

/// The address of the first function of that name.
fn address_of(file: &str, name: &str) -> Option<u64> {
    memchr::memmem::find_iter(file.as_bytes(), format!(" {name}").as_bytes()).find_map(|at| {
        let begin = file[..at].rfind('\n').map_or(0, |end| end + 1);
        let line = file[begin..].lines().next()?.as_bytes();
        let (address, found) = function(line)?;
        let found = &line[found..];
        (&found[..word_bytes(found)] == name.as_bytes()).then_some(address)
    })
}

/// Bytes of the word at the start.
fn word_bytes(bytes: &[u8]) -> usize {
    bytes.iter().position(u8::is_ascii_whitespace).unwrap_or(bytes.len())
}

/// The address of the function in a line, and where in the line its name is.
fn function(line: &[u8]) -> Option<(u64, usize)> {
    // Nearly all have 16 digits.
    let digits = if line.get(16) == Some(&b' ') { 16 } else { word_bytes(line) };
    let [b' ', kind, b' ', name, ..] = line.get(digits..)? else { return None };
    if digits > 16 || name.is_ascii_whitespace() || !matches!(kind, b't' | b'T' | b'w' | b'W' | b'i') {
        return None;
    }
    let mut strange = 0;
    let address = line[..digits].iter().fold(0u64, |address, digit| {
        let value = HEXADECIMAL[usize::from(*digit)];
        strange |= value;
        address << 4 | u64::from(value & 15)
    });
    (address != 0 && strange < 16).then_some((address, digits + 3))
}

/// The value of each digit; more than 15 for other characters.
const HEXADECIMAL: [u8; 256] = {
    let mut values = [16; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value] as usize] = value as u8;
        values[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const FILE: &str = "0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t do_one
ffffffff81000200 D data
ffffffffc0000000 t plant_stall\t[plant]
";

    #[test]
    fn addresses_are_found_within_functions() {
        let symbols = Symbols::parse(FILE.to_owned());
        assert_eq!(symbols.of(0xffff_ffff_8100_0123), Some(("do_one", 0x23)));
        assert_eq!(symbols.of(0xffff_ffff_8100_0000), Some(("_stext", 0)));
        assert_eq!(symbols.of(0xffff_ffff_c000_0000), Some(("plant_stall", 0)));
        assert_eq!(symbols.text_start(), Some(0xffff_ffff_8100_0000));
    }

    #[test]
    fn addresses_far_from_any_function_belong_to_none() {
        let symbols = Symbols::parse(FILE.to_owned());
        assert_eq!(symbols.of(0xffff_ffff_8000_0000), None);
        assert_eq!(symbols.of(0xffff_ffff_b000_0000), None);
        assert_eq!(Symbols::parse("0000000000000000 T hidden\n".to_owned()).of(1), None);
    }

    #[test]
    fn each_address_is_found_again_whatever_was_looked_up_before() {
        let list: String = (1..5000u64).map(|number| format!("{:016x} t f{number}\n", number * 64)).collect();
        let symbols = Symbols::parse(list);
        for round in 0..3u64 {
            for number in 1..5000u64 {
                let distance = number * 7 % 64;
                let name = format!("f{number}");
                assert_eq!(symbols.of(number * 64 + distance), Some((name.as_str(), distance)), "{round}");
            }
        }
        assert_eq!(symbols.of(63), None);
    }

    #[test]
    fn lines_that_are_none_of_a_list_are_passed_over() {
        let symbols =
            Symbols::parse("x T f\n10 T\n10 T \n 10 T f\n11111111111111111 T f\n\n20 T g".to_owned());
        assert_eq!(symbols.of(0x21), Some(("g", 1)));
        assert_eq!((symbols.of(0x1f), symbols.of_module(0x20)), (None, Some(("g", None, 0))));
        let twice = Symbols::parse("10 T first\n10 t second\n".to_owned());
        assert_eq!((twice.of(0x10), twice.address_of("second")), (Some(("first", 0)), Some(0x10)));
    }

    #[test]
    fn a_list_in_a_file_is_read_when_it_is_needed() {
        let input = Input::memory(Path::new("t.dat"), format!("\x05\0\0\0{FILE}").into_bytes());
        let place = Place { bytes: input.length(), input, offset: 0, packed: None, head_bytes: 4 };
        let symbols = Symbols::at(place.clone());
        assert!(symbols.0.table.get().is_none());
        assert_eq!(symbols.of(0xffff_ffff_8100_0123), Some(("do_one", 0x23)));
        assert_eq!((symbols.text_start(), symbols.damage()), (Some(0xffff_ffff_8100_0000), None));
        let damaged = Symbols::at(Place { packed: Some((Algorithm::Zstandard, 500)), ..place });
        assert_eq!(damaged.damage(), None);
        assert_eq!(damaged.of(0xffff_ffff_8100_0123), None);
        let damage = damaged.damage().unwrap();
        assert!(damage.contains("t.dat") && damage.contains("functions have no names"), "{damage}");
    }
}
