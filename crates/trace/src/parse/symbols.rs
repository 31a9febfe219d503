//! The functions of a kernel: `/proc/kallsyms`.

use super::ParseError;
use super::input::Input;
use super::unpack::{Algorithm, Unpacker};
use std::sync::{Arc, OnceLock};

/// A function may be this long; an address further behind a symbol belongs to none that is known.
const DISTANCE_MAX: u64 = 1 << 20;

/// Where a file has its symbols.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The file, or what a part of it was unpacked to.
    pub(crate) input: Input,
    /// Where they are in it.
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
/// They are read, unpacked and sorted when the first function is asked for: for a short trace that takes longer than
/// everything else, and who looks for the latest wake-up asks for a few functions at the very end.
#[derive(Clone, Debug, Default)]
pub struct Symbols(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    place: Option<Place>,
    table: OnceLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    file: String,
    /// Address, and where its name is in the file; sorted.
    functions: OnceLock<Vec<(u64, u32)>>,
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

    /// Symbols that are read when they are needed. Their place is within the file: that is for the caller to check.
    pub(crate) fn at(place: Place) -> Self {
        Self(Arc::new(Inner { place: Some(place), table: OnceLock::new() }))
    }

    fn table(&self) -> &Table {
        self.0.table.get_or_init(|| match &self.0.place {
            Some(place) => place.read().unwrap_or_else(|error| Table {
                damage: Some(format!("functions have no names, their list cannot be read: {error}")),
                ..Table::default()
            }),
            None => Table::default(),
        })
    }

    /// What was found to be wrong when they were read, a sentence; `None` also as long as they were not needed.
    pub fn damage(&self) -> Option<&str> {
        self.0.table.get()?.damage.as_deref()
    }

    /// The function that has `address`, and the distance from its begin; of several with the same begin, the first in
    /// the file.
    pub fn of(&self, address: u64) -> Option<(&str, u64)> {
        self.table().of(address)
    }

    /// The same, with the module in brackets that it belongs to, when it is one's.
    pub(crate) fn of_module(&self, address: u64) -> Option<(&str, Option<&str>, u64)> {
        self.table().of_module(address)
    }

    /// The address of the function of that name.
    pub(crate) fn address_of(&self, name: &str) -> Option<u64> {
        address_of(&self.table().file, name)
    }

    /// Whether there is no list at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.table().file.is_empty()
    }

    /// The address of `_stext`.
    pub fn text_start(&self) -> Option<u64> {
        self.table().text_start
    }
}

impl Place {
    fn read(&self) -> Result<Table, ParseError> {
        let mut bytes = self.input.bytes(self.offset, self.bytes)?;
        if let Some((algorithm, length)) = self.packed {
            let packed = std::mem::take(&mut bytes);
            let done = Unpacker::new(algorithm).unpack(&packed, length, &mut bytes);
            done.map_err(|message| self.input.damaged(self.offset, message))?;
        }
        bytes.drain(..self.head_bytes.min(bytes.len()));
        Ok(Table::new(
            String::from_utf8(bytes)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        ))
    }
}

impl Table {
    fn new(file: String) -> Self {
        let text_start = address_of(&file, "_stext");
        Self { file, functions: OnceLock::new(), text_start, damage: None }
    }

    fn functions(&self) -> &[(u64, u32)] {
        self.functions.get_or_init(|| {
            let mut functions = Vec::with_capacity(self.file.len() / 40);
            let begin = self.file.as_ptr() as usize;
            for (address, name) in self.file.lines().filter_map(function) {
                // Names are parts of the file, which is far below 4 GiB (trace.dat gives its length in 32 bits).
                functions.extend(u32::try_from(name.as_ptr() as usize - begin).ok().map(|at| (address, at)));
            }
            functions.sort_by_key(|(address, _)| *address);
            functions
        })
    }

    fn of(&self, address: u64) -> Option<(&str, u64)> {
        self.of_module(address).map(|(name, _, distance)| (name, distance))
    }

    fn of_module(&self, address: u64) -> Option<(&str, Option<&str>, u64)> {
        let functions = self.functions();
        let behind = functions.partition_point(|(begin, _)| *begin <= address);
        let (begin, _) = *functions.get(behind.checked_sub(1)?)?;
        let first = functions.partition_point(|(other, _)| *other < begin);
        let (_, name) = *functions.get(first)?;
        let distance = address - begin;
        let mut words = self.file.get(name as usize..)?.lines().next()?.split_ascii_whitespace();
        let (name, module) = (words.next()?, words.next());
        (distance < DISTANCE_MAX).then_some((name, module, distance))
    }
}

/// The address of the first function of that name.
fn address_of(file: &str, name: &str) -> Option<u64> {
    memchr::memmem::find_iter(file.as_bytes(), format!(" {name}").as_bytes()).find_map(|at| {
        let line = file[..at].rfind('\n').map_or(0, |end| end + 1);
        let (address, found) = file[line..].lines().next().and_then(function)?;
        (found == name).then_some(address)
    })
}

/// Address and name of the function in a line.
fn function(line: &str) -> Option<(u64, &str)> {
    let (address, rest) = line.split_once(' ')?;
    let (kind, rest) = rest.split_once(' ')?;
    let name = rest.split_ascii_whitespace().next()?;
    let address = u64::from_str_radix(address, 16).ok()?;
    (address != 0 && matches!(kind, "t" | "T" | "w" | "W" | "i")).then_some((address, name))
}

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
    fn a_list_in_a_file_is_read_when_it_is_needed() {
        let input = Input::memory(Path::new("t.dat"), format!("\x05\0\0\0{FILE}").into_bytes());
        let place = Place { bytes: input.length(), input, offset: 0, packed: None, head_bytes: 4 };
        let symbols = Symbols::at(place.clone());
        assert!(symbols.0.table.get().is_none());
        assert_eq!(symbols.clone().of(0xffff_ffff_8100_0123), Some(("do_one", 0x23)));
        assert_eq!((symbols.text_start(), symbols.damage()), (Some(0xffff_ffff_8100_0000), None));
        let damaged = Symbols::at(Place { packed: Some((Algorithm::Zstandard, 500)), ..place });
        assert_eq!(damaged.damage(), None);
        assert_eq!(damaged.of(0xffff_ffff_8100_0123), None);
        let damage = damaged.damage().unwrap();
        assert!(damage.contains("t.dat") && damage.contains("functions have no names"), "{damage}");
    }
}
