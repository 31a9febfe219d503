//! Names of kernel functions, from /proc/kallsyms.

use std::io::BufReader;

/// All functions of the kernel and its modules, by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols {
    /// Address, and where its name is in `names`; ascending.
    starts: Vec<(u64, u32)>,
    /// The names, each followed by a line feed.
    names: String,
}

impl Symbols {
    /// The running kernel's; empty where it does not tell addresses.
    pub(crate) fn of_this_kernel() -> Self {
        match std::fs::File::open("/proc/kallsyms") {
            Ok(file) => Self::read(BufReader::new(file)),
            Err(_) => Self::default(),
        }
    }

    /// Whether none is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Reads lines `ADDRESS TYPE NAME [MODULE]`.
    fn read(mut lines: impl std::io::BufRead) -> Self {
        let mut symbols = Self::default();
        let mut line = String::new();
        while {
            line.clear();
            lines.read_line(&mut line).is_ok_and(|length| length > 0)
        } {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            symbols.starts.push((address, symbols.names.len() as u32));
            symbols.names.push_str(name);
            symbols.names.push('\n');
        }
        symbols.starts.sort_by_key(|(address, _)| *address);
        symbols
    }

    /// The function that the address lies in; the address itself, in hexadecimal, where that is not known.
    pub(crate) fn name(&self, address: u64) -> String {
        let after = self.starts.partition_point(|(start, _)| *start <= address);
        let found = after.checked_sub(1).and_then(|index| self.starts.get(index));
        let name = found.and_then(|(_, place)| self.names[*place as usize..].lines().next());
        name.map_or_else(|| format!("{address:#x}"), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_name_of_the_function_before_it() {
        let text = "ffff1000 T first\nffff3000 t third\t[module]\nffff2000 T second\nffff2800 d data\n";
        let symbols = Symbols::read(text.as_bytes());
        assert_eq!(symbols.name(0xffff_1000), "first");
        assert_eq!(symbols.name(0xffff_2fff), "second");
        assert_eq!(symbols.name(0xffff_3abc), "third");
        assert_eq!(symbols.name(0xfff), "0xfff");
    }

    #[test]
    fn a_kernel_that_hides_addresses_leaves_numbers() {
        let symbols = Symbols::read("0000000000000000 T hidden\n".as_bytes());
        assert_eq!(symbols.name(0x10), "0x10");
    }
}
