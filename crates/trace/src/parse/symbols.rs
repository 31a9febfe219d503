//! The functions of a kernel: `/proc/kallsyms`.

use std::sync::OnceLock;

/// A function may be this long; an address further behind a symbol belongs to none that is known.
const DISTANCE_MAX: u64 = 1 << 20;

/// Functions by address. The file is kept, and read when the first function is asked for: opening a short trace would
/// take longer than reading it.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    file: String,
    /// Address, and where its name is in the file; sorted.
    functions: OnceLock<Vec<(u64, u32)>>,
    text_start: Option<u64>,
}

impl Symbols {
    /// Takes the file: address, kind, name, and perhaps a module in brackets, on each line. Only functions count; a
    /// file whose addresses are all 0 (hidden by the kernel) has none.
    pub fn parse(file: String) -> Self {
        let text_start = file.find(" _stext").and_then(|at| {
            let line = file[..at].rfind('\n').map_or(0, |end| end + 1);
            file[line..].lines().next().and_then(function).filter(|(_, name)| *name == "_stext")
        });
        Self { text_start: text_start.map(|(address, _)| address), functions: OnceLock::new(), file }
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

    /// The function that has `address`, and the distance from its begin; of several with the same begin, the first in
    /// the file.
    pub fn of(&self, address: u64) -> Option<(&str, u64)> {
        let functions = self.functions();
        let behind = functions.partition_point(|(begin, _)| *begin <= address);
        let (begin, _) = *functions.get(behind.checked_sub(1)?)?;
        let first = functions.partition_point(|(other, _)| *other < begin);
        let (_, name) = *functions.get(first)?;
        let distance = address - begin;
        let name = self.file.get(name as usize..)?.split_ascii_whitespace().next()?;
        (distance < DISTANCE_MAX).then_some((name, distance))
    }

    /// The address of `_stext`.
    pub fn text_start(&self) -> Option<u64> {
        self.text_start
    }
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
}
