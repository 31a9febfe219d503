//! A Rust source file whose comments and literals are separated from its code.
//!
//! This is not a parser: it knows just enough of Rust's tokens to blank out what is not code, to find the end of a
//! block, and to tell test code from the rest. Macros that unbalance their braces would confuse it; rustc refuses
//! those.

use super::TextFile;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Relative to the root of the workspace.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with each character of comments and literals replaced by a blank; lines and columns stay.
    pub(crate) code: String,
    /// The whole file is test code.
    is_test: bool,
    /// Lines (from 0) of the `#[cfg(test)]` modules.
    test_lines: Vec<Range<usize>>,
}

impl SourceFile {
    pub(crate) fn read(file: &TextFile) -> Self {
        let code = code_of(&file.text);
        let is_test = is_test_file(&file.path);
        let test_lines = if is_test { Vec::new() } else { test_modules(&code) };
        Self { path: file.path.clone(), text: file.text.clone(), code, is_test, test_lines }
    }

    /// Whether a line (from 1) is test code.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|range| range.contains(&(line - 1)))
    }

    /// Number of lines that are not test code.
    pub(crate) fn line_count(&self) -> usize {
        (1..=self.text.lines().count()).filter(|line| !self.is_test(*line)).count()
    }

    /// The line (from 1) of a byte of the text.
    pub(crate) fn line_of(&self, byte: usize) -> usize {
        line_of(&self.code, byte)
    }

    /// The code without tests; lines and columns stay.
    pub(crate) fn product_code(&self) -> String {
        let lines = self.code.split('\n').enumerate();
        let kept = lines.map(|(index, line)| if self.is_test(index + 1) { "" } else { line });
        kept.collect::<Vec<_>>().join("\n")
    }

    /// The places of the string literals, quotes included.
    pub(crate) fn strings(&self) -> Vec<Range<usize>> {
        let mut strings = Vec::new();
        for_blanks(&self.text, |range| {
            let token = &self.text[range.clone()];
            if token.ends_with(['"', '#']) && !token.starts_with('/') {
                strings.push(range);
            }
        });
        strings
    }

    /// The places of `word` in the code, not as a part of a longer word.
    pub(crate) fn words(&self, word: &str) -> Vec<usize> {
        words(&self.code, word)
    }
}

/// The line (from 1) of a byte.
fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Test code by its place: the conventions of Cargo, and `tests.rs`, `tests_*.rs` or `*_tests.rs` next to the module
/// that it tests.
fn is_test_file(path: &str) -> bool {
    let folders = ["tests/", "benches/", "examples/"];
    let is_in_folder =
        folders.iter().any(|folder| path.starts_with(folder) || path.contains(&format!("/{folder}")));
    let name = path.rsplit('/').next().unwrap_or_default();
    is_in_folder || name == "tests.rs" || name.starts_with("tests_") || name.ends_with("_tests.rs")
}

/// The places of `word`, not as a part of a longer word.
fn words(code: &str, word: &str) -> Vec<usize> {
    let is_part = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let stands_alone = |start: usize| {
        !is_part(code[..start].chars().next_back()) && !is_part(code[start + word.len()..].chars().next())
    };
    code.match_indices(word).map(|(start, _)| start).filter(|start| stands_alone(*start)).collect()
}

/// The byte behind the brace that closes the one at `open`; the end of the code when nothing closes it.
pub(crate) fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (byte, character) in code[open..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return open + byte + 1;
        }
    }
    code.len()
}

/// Lines (from 0) of the modules behind `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let mut modules = Vec::new();
    let attributes = ["#[cfg(test)]", "#[cfg(all(test,"].into_iter();
    for (start, attribute) in attributes.flat_map(|attribute| code.match_indices(attribute)) {
        let item = &code[start + attribute.len()..];
        let Some(length) = item.find(['{', ';']) else { continue };
        if item.as_bytes()[length] == b'{' {
            let end = block_end(code, start + attribute.len() + length);
            modules.push(line_of(code, start) - 1..line_of(code, end - 1));
        }
    }
    modules
}

/// Replaces comments and literals by blanks.
fn code_of(text: &str) -> String {
    let mut code = text.as_bytes().to_vec();
    // Bytes, so that positions in the code are positions in the text.
    for_blanks(text, |range| {
        code[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    });
    String::from_utf8(code).unwrap_or_default()
}

/// Calls `note` with the place of each comment and literal.
fn for_blanks(text: &str, mut note: impl FnMut(Range<usize>)) {
    let mut at = 0;
    let mut previous = None;
    while let Some(first) = text[at..].chars().next() {
        let length = blank_length(&text[at..], previous).min(text.len() - at);
        let end = at + if length == 0 { first.len_utf8() } else { length };
        if length > 0 {
            note(at..end);
        }
        previous = text[at..end].chars().next_back();
        at = end;
    }
}

/// Length in bytes of the comment or literal at the start of `rest`; 0 when there is none.
fn blank_length(rest: &str, previous: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_length(rest);
    }
    if rest.starts_with('"') {
        return quoted_length(rest, '"');
    }
    if rest.starts_with('\'') {
        return character_length(rest);
    }
    if previous.is_some_and(|c| c.is_alphanumeric() || c == '_') {
        return 0;
    }
    raw_string_length(rest)
}

fn block_comment_length(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut byte = 0;
    while byte < rest.len() {
        let here = &rest.as_bytes()[byte..];
        if here.starts_with(b"/*") {
            depth += 1;
            byte += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            byte += 2;
            if depth == 0 {
                return byte;
            }
        } else {
            byte += 1;
        }
    }
    rest.len()
}

/// Length of a literal in quotes, with escapes.
fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (byte, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return byte + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Length of a character literal; 0 for a lifetime.
fn character_length(rest: &str) -> usize {
    let mut characters = rest.chars().skip(1);
    match (characters.next(), characters.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted_length(rest, '\''),
        _ => 0,
    }
}

/// Length of `r"…"`, `r#"…"#`, `br"…"` and so on; 0 for anything else.
fn raw_string_length(rest: &str) -> usize {
    let Some(after) = ["r", "br", "cr"].iter().find_map(|prefix| rest.strip_prefix(prefix)) else { return 0 };
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    if !after[hashes..].starts_with('"') {
        return 0;
    }
    let open = rest.len() - after.len() + hashes + 1;
    let close = format!("\"{}", "#".repeat(hashes));
    rest[open..].find(&close).map_or(rest.len(), |byte| open + byte + close.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile::read(&TextFile { path: path.into(), text: text.into() })
    }

    #[test]
    fn comments_and_literals_are_blank() {
        for text in [
            "let a = \"unsafe \\\" {\";",
            "// unsafe\nlet b;",
            "/* unsafe /* { */ unsafe */ let c;",
            "let d = r#\"unsafe \" {\"#;",
            "let e = b\"unsafe {\";",
            "let f = br\"unsafe {\\\";",
            "let g = ('{', '\\'', b'\\\\', '\"'); // unsafe",
        ] {
            let code = code_of(text);
            assert_eq!(code.len(), text.len(), "{text}");
            assert!(!code.contains("unsafe") && !code.contains('{'), "{text}: {code}");
            assert!(code.contains("let ") && code.contains(';'), "{text}: {code}");
        }
    }

    #[test]
    fn lifetimes_and_names_ending_in_r_are_code() {
        let text = "fn a<'a>(b: &'a str) -> &'static str { for_r \"x\"; b }";
        assert_eq!(code_of(text), text.replace("\"x\"", "   "));
    }

    #[test]
    fn unfinished_literals_end_with_the_text() {
        for text in ["\"a", "/* a", "r#\"a", "'\\", "//", "\"a\\", "'é", "r\"é"] {
            assert_eq!(code_of(text).len(), text.len(), "{text}");
        }
    }

    #[test]
    fn words_stand_alone() {
        let source = source("a.rs", "unsafe_code unsafe my_unsafe unsafe{");
        assert_eq!(source.words("unsafe"), [12, 29]);
    }

    #[test]
    fn test_modules_and_files_are_test_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let inline = source("crates/x/src/a.rs", text);
        let tests: Vec<bool> = (1..=6).map(|line| inline.is_test(line)).collect();
        assert_eq!(tests, [false, true, true, true, true, false]);
        assert_eq!(inline.line_count(), 2);
        let with_feature = text.replace("cfg(test)", "cfg(all(test, feature = \"x\"))");
        assert_eq!(source("crates/x/src/a.rs", &with_feature).line_count(), 2);
        assert_eq!(source("crates/x/tests/a.rs", text).line_count(), 0);
        assert_eq!(source("crates/x/src/a/tests.rs", text).line_count(), 0);
        assert_eq!(source("crates/x/src/contests.rs", "fn a() {}\n").line_count(), 1);
    }

    #[test]
    fn a_test_module_in_its_own_file_leaves_the_rest_as_it_is() {
        let source = source("a.rs", "#[cfg(test)]\nmod tests;\nfn a() {\n}\n");
        assert_eq!(source.line_count(), 4);
    }
}
