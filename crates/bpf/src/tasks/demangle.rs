//! Names of functions as their source has them: `_ZN10Controller6updateEv` is `Controller::update`. Parameters, template arguments and
//! hashes are left out. What is not understood stays as it is.

/// More nested names are not read.
const DEPTH_MAX: usize = 32;
/// A hash behind the name of a function of Rust: `17h0123456789abcdef`.
const HASH_LENGTH: usize = 17;
/// How Rust writes what a symbol may not contain.
const ESCAPES: [(&str, &str); 12] = [
    ("$LT$", "<"),
    ("$GT$", ">"),
    ("$RF$", "&"),
    ("$BP$", "*"),
    ("$LP$", "("),
    ("$RP$", ")"),
    ("$C$", ","),
    ("$u20$", " "),
    ("$u7b$", "{"),
    ("$u7d$", "}"),
    ("$u5b$", "["),
    ("$u5d$", "]"),
];

/// The name as its source has it.
pub(super) fn plain(symbol: &str) -> String {
    let begin = symbol.split('@').next().unwrap_or_default();
    let name = match (begin.strip_prefix("_Z"), begin.strip_prefix("_R")) {
        (Some(rest), _) => Text { all: rest.as_bytes(), at: 0 }.encoding(0),
        (_, Some(rest)) => {
            let mut parts = Vec::new();
            Text { all: rest.as_bytes(), at: 0 }.path(&mut parts, 0).map(|()| parts.join("::"))
        }
        _ => None,
    };
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| begin.to_owned())
}

struct Text<'t> {
    all: &'t [u8],
    at: usize,
}

impl Text<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.all.get(self.at).copied()
    }

    fn skips(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    fn number(&mut self) -> Option<usize> {
        let begin = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        std::str::from_utf8(&self.all[begin..self.at]).ok()?.parse().ok()
    }

    /// A name behind its length.
    fn name(&mut self) -> Option<String> {
        let length = self.number()?;
        let bytes = self.all.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    // ---- C++, and Rust as it was until 2025 ----

    /// A function: its name, without what follows.
    fn encoding(&mut self, depth: usize) -> Option<String> {
        let mut parts = Vec::new();
        match self.peek()? {
            _ if depth > DEPTH_MAX => return None,
            b'N' => {
                self.at += 1;
                self.nested(&mut parts)?;
            }
            b'Z' => {
                self.at += 1;
                parts.push(self.encoding(depth + 1)?);
                self.skip_to_end()?;
                if self.peek() != Some(b's') {
                    parts.push(self.encoding(depth + 1)?);
                }
            }
            _ => {
                self.part(&mut parts)?;
                // std, or internal linkage.
                while parts.is_empty() || parts == ["std"] {
                    self.part(&mut parts)?;
                }
            }
        }
        Some(parts.join("::"))
    }

    fn nested(&mut self, parts: &mut Vec<String>) -> Option<()> {
        while self.peek().is_some_and(|byte| b"rVKRO".contains(&byte)) {
            self.at += 1;
        }
        while !self.skips(b'E') {
            self.part(parts)?;
        }
        Some(())
    }

    /// A part of a qualified name, where it is one that counts.
    fn part(&mut self, parts: &mut Vec<String>) -> Option<()> {
        match self.peek()? {
            b'0'..=b'9' => {
                let name = self.name()?;
                let is_hash = name.len() == HASH_LENGTH && name.starts_with('h') && !parts.is_empty();
                match name.as_str() {
                    _ if is_hash && self.peek() == Some(b'E') => {}
                    "_GLOBAL__N_1" => {}
                    name => parts.push(unescaped(name)),
                }
                return Some(());
            }
            b'I' => {
                self.at += 1;
                return self.skip_to_end();
            }
            b'S' => return self.substitution(parts),
            b'L' => {
                self.at += 1;
                return Some(());
            }
            b'B' => {
                self.at += 1;
                return self.name().map(drop);
            }
            _ => {}
        }
        let word = [self.next()?, self.next()?];
        match &word {
            b"C1" | b"C2" | b"C3" => parts.push(parts.last()?.clone()),
            b"D0" | b"D1" | b"D2" => parts.push(format!("~{}", parts.last()?)),
            b"Ul" => {
                self.skip_to_end()?;
                self.number();
                self.skips(b'_').then_some(())?;
                parts.push("{lambda}".to_owned());
            }
            b"cl" => parts.push("operator()".to_owned()),
            [b'a'..=b'z', b'a'..=b'z' | b'A'..=b'Z'] => parts.push("operator".to_owned()),
            _ => return None,
        }
        Some(())
    }

    /// What was named before is not repeated, but for `std`.
    fn substitution(&mut self, parts: &mut Vec<String>) -> Option<()> {
        self.at += 1;
        match self.next()? {
            b't' => parts.push("std".to_owned()),
            b's' => parts.push("std::string".to_owned()),
            b'_' => {}
            b'0'..=b'9' | b'A'..=b'Z' => while self.next()? != b'_' {},
            _ => parts.push("std".to_owned()),
        }
        Some(())
    }

    /// Skips arguments up to the `E` that ends them.
    fn skip_to_end(&mut self) -> Option<()> {
        let mut open = 1;
        while open > 0 {
            match self.peek()? {
                b'0'..=b'9' => drop(self.name()?),
                b'L' => {
                    self.at += 1;
                    // A literal: its type, then its value, which may have digits.
                    while !self.skips(b'E') {
                        if self.peek()?.is_ascii_digit() && self.all[self.at - 1] == b'L' {
                            self.name()?;
                        } else {
                            self.at += 1;
                        }
                    }
                }
                b'S' | b'T' => {
                    self.at += 1;
                    if self.peek()?.is_ascii_lowercase() {
                        self.at += 1;
                    } else {
                        while self.next()? != b'_' {}
                    }
                }
                byte => {
                    self.at += 1;
                    open += usize::from(b"INXJF".contains(&byte));
                    open -= usize::from(byte == b'E');
                }
            }
        }
        Some(())
    }

    // ---- Rust since then: RFC 2603 ----

    fn path(&mut self, parts: &mut Vec<String>, depth: usize) -> Option<()> {
        let next = self.next()?;
        if depth > DEPTH_MAX {
            return None;
        }
        match next {
            b'C' => {
                let name = self.identifier()?;
                parts.push(name);
            }
            b'N' => {
                let space = self.next()?;
                self.path(parts, depth + 1)?;
                match (self.identifier()?, space) {
                    (_, b'C') => parts.push("{closure}".to_owned()),
                    (name, _) if name.is_empty() => {}
                    (name, _) => parts.push(name),
                }
            }
            b'M' | b'X' => {
                self.disambiguator()?;
                self.path(&mut Vec::new(), depth + 1)?;
                self.kind(parts, depth + 1)?;
                if next == b'X' {
                    self.path(&mut Vec::new(), depth + 1)?;
                }
            }
            b'Y' => {
                self.kind(parts, depth + 1)?;
                self.path(&mut Vec::new(), depth + 1)?;
            }
            b'I' => {
                self.path(parts, depth + 1)?;
                while !self.skips(b'E') {
                    match self.peek()? {
                        b'L' => {
                            self.at += 1;
                            self.base62()?;
                        }
                        b'K' => {
                            self.at += 1;
                            self.constant(depth + 1)?;
                        }
                        _ => self.kind(&mut Vec::new(), depth + 1)?,
                    }
                }
            }
            b'B' => self.again(|text| text.path(parts, depth + 1))?,
            _ => return None,
        }
        Some(())
    }

    fn kind(&mut self, parts: &mut Vec<String>, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            byte if byte.is_ascii_lowercase() => {
                self.at += 1;
                let basic = match byte {
                    b'e' => "str",
                    b'h' => "u8",
                    b'm' => "u32",
                    b'y' => "u64",
                    b'j' => "usize",
                    b'd' => "f64",
                    _ => "_",
                };
                parts.push(basic.to_owned());
            }
            b'A' => {
                self.at += 1;
                self.kind(parts, depth + 1)?;
                self.constant(depth + 1)?;
            }
            b'S' | b'P' | b'O' => {
                self.at += 1;
                self.kind(parts, depth + 1)?;
            }
            b'R' | b'Q' => {
                self.at += 1;
                if self.skips(b'L') {
                    self.base62()?;
                }
                self.kind(parts, depth + 1)?;
            }
            b'T' => {
                self.at += 1;
                while !self.skips(b'E') {
                    self.kind(&mut Vec::new(), depth + 1)?;
                }
                parts.push("_".to_owned());
            }
            b'B' => {
                self.at += 1;
                self.again(|text| text.kind(parts, depth + 1))?;
            }
            b'F' => {
                self.at += 1;
                self.binder()?;
                self.skips(b'U');
                if self.skips(b'K') && !self.skips(b'C') {
                    self.identifier()?;
                }
                while !self.skips(b'E') {
                    self.kind(&mut Vec::new(), depth + 1)?;
                }
                self.kind(&mut Vec::new(), depth + 1)?;
                parts.push("fn".to_owned());
            }
            b'D' => {
                self.at += 1;
                self.binder()?;
                while !self.skips(b'E') {
                    self.path(&mut Vec::new(), depth + 1)?;
                    while self.skips(b'p') {
                        self.identifier()?;
                        self.kind(&mut Vec::new(), depth + 1)?;
                    }
                }
                self.skips(b'L').then_some(())?;
                self.base62()?;
                parts.push("dyn".to_owned());
            }
            _ => self.path(parts, depth + 1)?,
        }
        Some(())
    }

    fn constant(&mut self, depth: usize) -> Option<()> {
        if self.skips(b'B') {
            return self.again(|text| text.constant(depth + 1)).filter(|()| depth < DEPTH_MAX);
        }
        if !self.skips(b'p') {
            self.next()?;
            while self.next()? != b'_' {}
        }
        Some(())
    }

    fn identifier(&mut self) -> Option<String> {
        self.disambiguator()?;
        self.skips(b'u');
        // A closure has no name, and a number may follow.
        let length = if self.skips(b'0') { 0 } else { self.number()? };
        self.skips(b'_');
        let bytes = self.all.get(self.at..self.at.checked_add(length)?)?;
        self.at += length;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    fn binder(&mut self) -> Option<()> {
        if self.skips(b'G') { self.base62().map(drop) } else { Some(()) }
    }

    fn disambiguator(&mut self) -> Option<()> {
        if self.skips(b's') { self.base62().map(drop) } else { Some(()) }
    }

    fn base62(&mut self) -> Option<usize> {
        let mut value = None;
        loop {
            let digit = match self.next()? {
                b'_' => return value.map_or(Some(0), |value: usize| value.checked_add(1)),
                byte @ b'0'..=b'9' => byte - b'0',
                byte @ b'a'..=b'z' => byte - b'a' + 10,
                byte @ b'A'..=b'Z' => byte - b'A' + 36,
                _ => return None,
            };
            value = Some(value.unwrap_or(0_usize).checked_mul(62)?.checked_add(digit.into())?);
        }
    }

    /// What stands at an earlier place.
    fn again(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let begin = self.at - 1;
        let place = self.base62()?;
        let end = std::mem::replace(&mut self.at, place);
        let read = if place < begin { read(self) } else { None };
        self.at = end;
        read
    }
}

fn unescaped(name: &str) -> String {
    let name = if name.starts_with("_$") { &name[1..] } else { name };
    if !name.contains(['$', '.']) {
        return name.to_owned();
    }
    ESCAPES.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to)).replace("..", "::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_their_sources_have_them() {
        for (symbol, name) in [
            ("cycle_step", "cycle_step"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("_ZN10Controller6updateEv", "Controller::update"),
            ("_ZNK10Controller6updateERKSt6vectorIdSaIdEE", "Controller::update"),
            ("_ZN10ControllerC2Ei", "Controller::Controller"),
            ("_ZN3app10ControllerD1Ev", "app::Controller::~Controller"),
            ("_Z4stepi", "step"),
            ("_ZL4stepi", "step"),
            ("_ZN12_GLOBAL__N_14stepEv", "step"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector::push_back"),
            ("_ZSt4sortIPdEvT_S1_", "std::sort"),
            ("_ZN3FooILi5ELb1EE3barEv", "Foo::bar"),
            ("_ZZ4mainENKUlvE_clEv", "main::{lambda}::operator()"),
            ("_ZN7control5loop_7Planner4plan17h0123456789abcdefE", "control::loop_::Planner::plan"),
            (
                "_ZN4core3ptr34drop_in_place$LT$i32$C$$u20$u8$GT$17h0123456789abcdefE",
                "core::ptr::drop_in_place<i32, u8>",
            ),
            ("_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"),
            ("_RNvMs_Cs1_7controlNtB4_7Planner4plan", "control::Planner::plan"),
            ("_RNCNvCs1_7control4main0", "control::main::{closure}"),
            ("_RNCNCNvCs1_7control4main00B3_", "control::main::{closure}::{closure}"),
            ("_RINvCs1_7control4sortmE", "control::sort"),
            ("_RINvCs1_7control4sortFEuDNtB2_4StepEL_E", "control::sort"),
            ("_ZN", "_ZN"),
            ("_ZN99x", "_ZN99x"),
            ("_RNvB_", "_RNvB_"),
        ] {
            assert_eq!(plain(symbol), name, "{symbol}");
        }
    }
}
