//! Names of kernel functions, from /proc/kallsyms.

use whylate_trace::parse::Symbols as Functions;

/// The lines of /proc/kallsyms that name a function; empty where the kernel hides their addresses.
pub fn kernel_functions() -> String {
    functions(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
}

/// Of lines `ADDRESS TYPE NAME [MODULE]` those that name a function and tell its address.
fn functions(lines: &str) -> String {
    let is_function = |line: &&str| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().unwrap_or_default();
        address.bytes().any(|digit| digit != b'0') && matches!(words.next(), Some("t" | "T" | "w" | "W"))
    };
    lines.split_inclusive('\n').filter(is_function).collect()
}

/// All functions of the kernel and its modules, by address.
pub struct Symbols {
    functions: Functions,
    is_empty: bool,
}

impl Symbols {
    /// Those of these lines, sorted now: the first spike need not wait for it.
    pub fn new(lines: String) -> Self {
        let is_empty = lines.is_empty();
        let functions = Functions::parse(lines);
        functions.of(0);
        Self { functions, is_empty }
    }

    /// Whether no function is known: the kernel hides their addresses.
    pub fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The function that the address lies in; the address itself, in hexadecimal, where that is not known.
    pub fn name(&self, address: u64) -> String {
        let name = self.functions.of(address).map(|(name, _)| name.to_owned());
        name.unwrap_or_else(|| format!("{address:#x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_name_of_the_function_before_it() {
        let text = "ffff1000 T first\nffff3000 t third\t[module]\nffff2000 T second\nffff2800 d data\n";
        let symbols = Symbols::new(functions(text));
        assert_eq!(symbols.name(0xffff_1000), "first");
        assert_eq!(symbols.name(0xffff_2fff), "second");
        assert_eq!(symbols.name(0xffff_3abc), "third");
        assert_eq!(symbols.name(0xfff), "0xfff");
    }

    #[test]
    fn a_kernel_that_hides_addresses_leaves_numbers() {
        let symbols = Symbols::new(functions("0000000000000000 T hidden\n"));
        assert!(symbols.is_empty());
        assert_eq!(symbols.name(0x10), "0x10");
    }
}
