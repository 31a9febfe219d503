//! The functions of a kernel: `/proc/kallsyms`.

/// A function may be this long; an address further behind a symbol belongs to none that is known.
const DISTANCE_MAX: u64 = 1 << 20;

/// Functions by address.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Address, and where its name begins in `names`; sorted.
    functions: Vec<(u64, u32)>,
    /// Names, each with a NUL behind it.
    names: String,
    text_start: Option<u64>,
}

impl Symbols {
    /// Reads the file: address, kind, name, and perhaps a module in brackets, on each line. Only functions are kept;
    /// a file whose addresses are all 0 (hidden by the kernel) has none.
    pub fn parse(file: &str) -> Self {
        let mut symbols = Self::default();
        for line in file.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W" | "i") {
                continue;
            }
            if name == "_stext" {
                symbols.text_start = Some(address);
            }
            let Ok(begin) = u32::try_from(symbols.names.len()) else { break };
            symbols.functions.push((address, begin));
            symbols.names.push_str(name);
            symbols.names.push('\0');
        }
        symbols.functions.sort_by_key(|(address, _)| *address);
        symbols.functions.shrink_to_fit();
        symbols.names.shrink_to_fit();
        symbols
    }

    /// The function that has `address`, and the distance from its begin; of several with the same begin, the first in
    /// the file.
    pub fn of(&self, address: u64) -> Option<(&str, u64)> {
        let behind = self.functions.partition_point(|(begin, _)| *begin <= address);
        let (begin, _) = *self.functions.get(behind.checked_sub(1)?)?;
        let first = self.functions.partition_point(|(other, _)| *other < begin);
        let (_, name) = *self.functions.get(first)?;
        let distance = address - begin;
        let name = self.names.get(name as usize..)?;
        (distance < DISTANCE_MAX).then(|| (name.split('\0').next().unwrap_or(""), distance))
    }

    /// The address of `_stext`.
    pub fn text_start(&self) -> Option<u64> {
        self.text_start
    }
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
        let symbols = Symbols::parse(FILE);
        assert_eq!(symbols.of(0xffff_ffff_8100_0123), Some(("do_one", 0x23)));
        assert_eq!(symbols.of(0xffff_ffff_8100_0000), Some(("_stext", 0)));
        assert_eq!(symbols.of(0xffff_ffff_c000_0000), Some(("plant_stall", 0)));
        assert_eq!(symbols.text_start(), Some(0xffff_ffff_8100_0000));
    }

    #[test]
    fn addresses_far_from_any_function_belong_to_none() {
        let symbols = Symbols::parse(FILE);
        assert_eq!(symbols.of(0xffff_ffff_8000_0000), None);
        assert_eq!(symbols.of(0xffff_ffff_b000_0000), None);
        assert_eq!(Symbols::parse("0000000000000000 T hidden\n").of(1), None);
    }
}
