//! Names of kernel functions, from /proc/kallsyms.

use whylate_trace::parse::Symbols as Functions;

/// The lines of /proc/kallsyms that name a function; empty if the kernel hides their addresses.
pub fn kernel_functions() -> String {
    functions(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
}

/// The lines `ADDRESS TYPE NAME [MODULE]` that name a function and show its address.
fn functions(lines: &str) -> String {
    let is_function = |line: &&str| {
        let mut words = line.split_ascii_whitespace();
        let address = words.next().unwrap_or_default();
        address.bytes().any(|digit| digit != b'0') && matches!(words.next(), Some("t" | "T" | "w" | "W"))
    };
    lines.split_inclusive('\n').filter(is_function).collect()
}

/// The name of a function in the kernel; `None` if the kernel does not have or show it. Compilers give some functions an
/// ending. `.llvm.N` means nothing; `.isra.N` and `.constprop.N` mean that the arguments may differ, which only callers with
/// `any_arguments` accept.
pub(crate) fn name_of_function(function: &str, any_arguments: bool) -> Option<String> {
    name_among(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default(), function, any_arguments)
}

fn name_among(lines: &str, function: &str, any_arguments: bool) -> Option<String> {
    let is_it = |name: &&str| match name.strip_prefix(function) {
        Some("") => true,
        Some(ending) if ending.starts_with(".llvm.") => true,
        Some(ending) => any_arguments && [".isra.", ".constprop."].iter().any(|one| ending.starts_with(one)),
        None => false,
    };
    let names = lines.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        // What follows the name is a module.
        let (kind, name) = (words.next()?, words.next()?);
        (matches!(kind, "t" | "T") && words.next().is_none()).then_some(name)
    });
    // `NAME.isra.0.cold` is not where it begins.
    names.filter(is_it).min_by_key(|name| name.len()).map(str::to_owned)
}

/// All functions of the kernel and its modules, by address.
pub struct Symbols {
    functions: Functions,
    is_empty: bool,
}

impl Symbols {
    /// The functions of these lines. They are sorted now, so that the first spike need not wait.
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

    /// The function that contains the address, or the address in hexadecimal if the function is not known.
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
    fn functions_are_found_with_the_endings_of_compilers() {
        let lines = "0 t plain\n0 t plain.cold\n0 t cut.isra.0.cold\n0 t cut.isra.0\n0 T moved\t[module]\n0 d data\n\
                     0 t linked.llvm.123\n0 t longer_name\n";
        let found = |name, any| name_among(lines, name, any);
        assert_eq!(found("plain", false).as_deref(), Some("plain"));
        assert_eq!(found("cut", true).as_deref(), Some("cut.isra.0"));
        assert_eq!(found("cut", false), None, "its arguments may be others");
        assert_eq!(found("linked", false).as_deref(), Some("linked.llvm.123"));
        assert_eq!(["moved", "data", "longer"].map(|name| found(name, true)), [None, None, None]);
    }

    #[test]
    fn a_kernel_that_hides_addresses_leaves_numbers() {
        let symbols = Symbols::new(functions("0000000000000000 T hidden\n"));
        assert!(symbols.is_empty());
        assert_eq!(symbols.name(0x10), "0x10");
    }
}
