//! `unsafe` occurs only in the crates `sys` and `copy`, and each use says why it is sound.
//!
//! The compiler forbids it elsewhere by the workspace's lints; this rule also finds a crate that does not inherit
//! them, and checks the comments.

use super::Violation;
use super::source::SourceFile;

const RULE: &str = "unsafe";
/// Where it may occur: requests to the kernel and the processor, copies, and calls of Vulkan, all of which are unsafe.
const FOLDERS: [&str; 4] = ["crates/sys/", "crates/copy/", "gpu/src/vulkan/", "gpu/src/cuda/"];
/// What the comment above a use must contain.
const REASON: &str = "SAFETY:";

/// Checks one file.
pub(crate) fn check(source: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    for start in source.words("unsafe") {
        let line = source.line_of(start);
        let message = if !FOLDERS.iter().any(|folder| source.path.starts_with(folder)) {
            format!(
                "`unsafe` may only be in {}: put a safe function there and call it",
                FOLDERS.join(" and ")
            )
        } else if needs_reason(&source.code[start..]) && !has_reason(source, start) {
            format!("say in a `// {REASON}` comment right above why this is sound")
        } else {
            continue;
        };
        violations.push(Violation { path: source.path.clone(), line, rule: RULE, message });
    }
    violations
}

/// A block or an implementation claims that something holds; a function only demands it of its callers, whose
/// documentation clippy checks.
fn needs_reason(code: &str) -> bool {
    let next = code["unsafe".len()..].trim_start();
    next.starts_with('{') || next.starts_with("impl")
}

/// Whether a comment with the reason is in the statement that holds byte `start`, or right above it.
fn has_reason(source: &SourceFile, start: usize) -> bool {
    let texts: Vec<&str> = source.text.lines().collect();
    let is_reason = |text: &str| text.split_once("//").is_some_and(|(_, comment)| comment.contains(REASON));
    let first = source.line_of(statement_start(&source.code, start)) - 1;
    let last = source.line_of(start) - 1;
    if texts[first..=last].iter().any(|text| is_reason(text)) {
        return true;
    }
    let above = texts[..first].iter().rev().take_while(|text| text.trim_start().starts_with("//"));
    above.into_iter().any(|text| is_reason(text))
}

/// The start of the statement that holds byte `start`: behind the last `;`, `{` or `}` that is not in brackets.
fn statement_start(code: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    for (byte, character) in code[..start].char_indices().rev() {
        match character {
            ')' | ']' => depth += 1,
            '(' | '[' => depth = depth.saturating_sub(1),
            ';' | '{' | '}' if depth == 0 => {
                let statement = &code[byte + 1..];
                // The comma behind a block belongs to the arm of a match before this one.
                let begin = statement.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
                return byte + 1 + (statement.len() - begin.len());
            }
            _ => {}
        }
    }
    code.len() - code.trim_start().len()
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
    fn outside_sys_it_is_refused_even_in_tests() {
        assert_eq!(lines("crates/core/src/a.rs", "// SAFETY: no\nunsafe { b() }"), [2]);
        assert_eq!(lines("crates/core/src/a.rs", "#[cfg(test)]\nmod t {\n    unsafe fn b() {}\n}"), [3]);
        assert_eq!(lines("crates/system/src/a.rs", "unsafe { b() }"), [1]);
        assert_eq!(lines("crates/copy/src/a.rs", "unsafe { b() }"), [1], "there, too, with its reason only");
        assert!(lines("crates/copy/src/a.rs", "// SAFETY: b is sound.\nunsafe { b() }").is_empty());
    }

    #[test]
    fn words_about_it_are_allowed() {
        assert!(
            lines("crates/core/src/a.rs", "#![forbid(unsafe_code)]\n// unsafe\nlet a = \"unsafe {\";")
                .is_empty()
        );
    }

    #[test]
    fn a_block_with_its_reason_passes() {
        for text in [
            "// SAFETY: b is sound.\nunsafe { b() }",
            "// SAFETY: b is sound\n// in every way.\nlet a = unsafe { b() };",
            "// SAFETY: b is sound.\nlet a =\n    unsafe { b() };",
            "unsafe { b() } // SAFETY: b is sound.",
            "// SAFETY: a has no state.\nunsafe impl Send for A {}",
            "// SAFETY: b is sound.\n#[allow(x)]\nunsafe { b() }",
            "// SAFETY: b is sound.\na = c(\n    d,\n    e(unsafe { b() }),\n);",
            "match a {\n    1 => 2,\n    // SAFETY: b is sound.\n    _ => unsafe { b() },\n}",
            "/// # Safety\n/// Once only.\npub unsafe fn b() {}",
        ] {
            assert!(lines("crates/sys/src/a.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_block_without_its_reason_is_refused() {
        for (text, line) in [
            ("unsafe { b() }", 1),
            ("// It is fine.\nunsafe { b() }", 2),
            ("// SAFETY: of a.\nunsafe { a() };\nunsafe { b() }", 3),
            ("// SAFETY: far away.\n\nunsafe { b() }", 3),
            ("match a {\n    // SAFETY: of c.\n    1 => unsafe { c() },\n    _ => unsafe { b() },\n}", 4),
            ("// SAFETY: of another.\nlet a = 1;\nunsafe impl Send for A {}", 3),
        ] {
            assert_eq!(lines("crates/sys/src/a.rs", text), [line], "{text}");
        }
    }
}
