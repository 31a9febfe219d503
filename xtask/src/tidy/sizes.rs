//! Files of more than 400 lines and functions of more than 70, tests aside: a question to ask, not an error.

use super::Violation;
use super::source::{SourceFile, block_end};

const RULE: &str = "sizes";
/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 400;
/// Lines of a function from `fn` to the closing brace.
const FUNCTION_LINES_MAX: usize = 70;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    key: String,
    path: String,
    line: usize,
    length: usize,
    length_max: usize,
}

/// The files and functions that are longer than the limits.
pub(crate) fn warnings(sources: &[SourceFile]) -> Vec<Violation> {
    let long = sources.iter().flat_map(items).filter(|item| item.length > item.length_max);
    long.map(|item| {
        let message = format!("{}: {} lines, more than {}", item.key, item.length, item.length_max);
        Violation { path: item.path, line: item.line, rule: RULE, message }
    })
    .collect()
}

/// The file itself and each of its functions that is not a test.
fn items(source: &SourceFile) -> Vec<Item> {
    let mut items = vec![Item {
        key: format!("file {}", source.path),
        path: source.path.clone(),
        line: 1,
        length: source.line_count(),
        length_max: FILE_LINES_MAX,
    }];
    for start in source.words("fn") {
        let line = source.line_of(start);
        let Some((name, end)) = function(&source.code, start) else { continue };
        if source.is_test(line) {
            continue;
        }
        items.push(Item {
            key: format!("function {}::{name}", source.path),
            path: source.path.clone(),
            line,
            length: source.line_of(end - 1) - line + 1,
            length_max: FUNCTION_LINES_MAX,
        });
    }
    items
}

/// Name and end of the function whose `fn` is at `start`; `None` for a pointer type or a body that is elsewhere.
fn function(code: &str, start: usize) -> Option<(&str, usize)> {
    let rest = code[start + "fn".len()..].trim_start();
    let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let name = &rest[..length];
    if name.is_empty() {
        return None;
    }
    let mut depth = 0_i32;
    let body = code.len() - rest.len();
    for (byte, character) in code[body..].char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some((name, block_end(code, body + byte))),
            ';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::TextFile;

    fn source(text: &str) -> SourceFile {
        SourceFile::read(&TextFile { path: "a.rs".into(), text: text.into() })
    }

    fn function_of(name: &str, lines: usize) -> String {
        format!("fn {name}(a: [u8; 2]) {{\n{}}}\n", "    b();\n".repeat(lines - 2))
    }

    fn shown(text: &str) -> Vec<String> {
        warnings(&[source(text)]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn short_files_and_functions_give_no_warning() {
        assert!(shown(&function_of("a", FUNCTION_LINES_MAX)).is_empty());
        assert!(shown(&"//\n".repeat(FILE_LINES_MAX)).is_empty());
    }

    #[test]
    fn a_long_function_and_a_long_file_give_one_warning_each() {
        let found = shown(&format!("struct B;\n{}", function_of("a", 71)));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("a.rs:2: sizes: function a.rs::a: 71 lines, more than 70"), "{found:?}");
        let found = shown(&"//\n".repeat(401));
        assert!(found[0].starts_with("a.rs:1: sizes: file a.rs: 401 lines, more than 400"), "{found:?}");
    }

    #[test]
    fn tests_may_be_long() {
        let text = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function_of("a", 500));
        assert!(shown(&text).is_empty());
    }

    #[test]
    fn functions_are_found() {
        let code = "type A = fn(u8);\ntrait B { fn c(&self); }\nfn d() -> [u8; 3] {\n    fn e() {}\n}\n";
        let found: Vec<(String, usize)> =
            items(&source(code)).into_iter().skip(1).map(|item| (item.key, item.length)).collect();
        assert_eq!(found, [("function a.rs::d".to_owned(), 3), ("function a.rs::e".to_owned(), 1)]);
    }
}
