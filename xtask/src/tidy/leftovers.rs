//! Nothing unfinished is left in the sources: placeholders, debugging, tests that test nothing; and each crate starts
//! with what it is.

use super::Violation;
use super::source::SourceFile;

const RULE: &str = "leftovers";

/// What must not be in code, and what to do instead.
const FORBIDDEN: [(&str, &str); 5] = [
    ("todo!(", "write the code or leave it out"),
    ("unimplemented!(", "write the code or leave it out"),
    ("dbg!(", "remove it"),
    ("#[ignore", "make the test run everywhere, or skip at run time and print the reason"),
    ("assert!(true)", "assert something that can fail"),
];

/// Checks one file.
pub(crate) fn check(source: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut add = |line: usize, message: String| {
        violations.push(Violation { path: source.path.clone(), line, rule: RULE, message });
    };
    for (text, remedy) in FORBIDDEN {
        for (start, _) in source.code.match_indices(text) {
            // `debug_assert!(true)` is as bad; `my_dbg!(` is something else.
            let before = source.code[..start].chars().next_back();
            if text != "assert!(true)" && before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            add(source.line_of(start), format!("`{text}`: {remedy}"));
        }
    }
    if source.path.ends_with("/src/lib.rs") && !source.text.starts_with("//!") {
        add(1, "begin with `//!`: the purpose of the crate and what it does not do".into());
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::TextFile;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let source = SourceFile::read(&TextFile { path: path.into(), text: text.into() });
        check(&source).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn each_leftover_is_found() {
        for (text, _) in FORBIDDEN {
            assert_eq!(lines("crates/x/src/a.rs", &format!("\n{text}")), [2], "{text}");
        }
        assert_eq!(lines("crates/x/src/a.rs", "#[ignore = \"slow\"]"), [1]);
        assert_eq!(lines("crates/x/src/a.rs", "debug_assert!(true);"), [1]);
    }

    #[test]
    fn leftovers_in_text_and_other_names_pass() {
        for (text, _) in FORBIDDEN {
            assert!(
                lines("crates/x/src/a.rs", &format!("// {text}\nlet a = r\"{text}\";")).is_empty(),
                "{text}"
            );
        }
        assert!(lines("crates/x/src/a.rs", "my_dbg!(1); assert!(true_enough);").is_empty());
    }

    #[test]
    fn a_library_says_what_it_is() {
        assert_eq!(lines("crates/x/src/lib.rs", "pub mod a;\n"), [1]);
        assert!(lines("crates/x/src/lib.rs", "//! Words.\npub mod a;\n").is_empty());
        assert!(lines("crates/x/src/a.rs", "pub mod a;\n").is_empty());
    }
}
