//! Files of at most 400 lines and functions of at most 70, tests aside.
//!
//! What is longer is listed with its exact length, so that it can only shrink: a longer one is an error, and so is
//! an entry that promises too much.

use super::Violation;
use super::source::{SourceFile, block_end};
use std::collections::BTreeMap;

const RULE: &str = "sizes";
/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 400;
/// Lines of a function from `fn` to the closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Something with a length: a file (`file PATH`) or a function (`function PATH::NAME`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    key: String,
    path: String,
    line: usize,
    length: usize,
    length_max: usize,
}

/// Checks all sources against the limits and the list of allowances.
pub(crate) fn check(sources: &[SourceFile], list_path: &str, list: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut allowances = read_allowances(list_path, list, &mut violations);
    for item in sources.iter().flat_map(items) {
        let allowance = allowances.remove(&item.key);
        let allowed = allowance.map_or(item.length_max, |(_, length)| length);
        if item.length > allowed {
            let message = format!(
                "{} lines, more than {allowed}: divide it (as a last resort list `{} {}` in {list_path})",
                item.length, item.key, item.length
            );
            violations.push(Violation { path: item.path, line: item.line, rule: RULE, message });
        } else if let Some((line, length)) = allowance {
            let message = if item.length <= item.length_max {
                format!("`{}` is within the limit now: remove this line", item.key)
            } else if item.length < length {
                format!("`{}` has only {} lines now: write {0} {1}", item.key, item.length)
            } else {
                continue;
            };
            violations.push(Violation { path: list_path.into(), line, rule: RULE, message });
        }
    }
    for (key, (line, _)) in allowances {
        let message = format!("there is no `{key}`: remove this line");
        violations.push(Violation { path: list_path.into(), line, rule: RULE, message });
    }
    violations
}

/// Key to line in the list and allowed length. Lines are `file PATH LINES` or `function PATH::NAME LINES`; `#` begins
/// a comment.
fn read_allowances(
    path: &str,
    list: &str,
    violations: &mut Vec<Violation>,
) -> BTreeMap<String, (usize, usize)> {
    let mut allowances = BTreeMap::new();
    for (index, text) in list.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let entry = text.rsplit_once(' ').and_then(|(key, length)| Some((key, length.parse().ok()?)));
        let message = match entry {
            Some((key, length)) => match allowances.insert(key.to_owned(), (index + 1, length)) {
                None => continue,
                Some((first, _)) => format!("`{key}` stands already in line {first}: keep one"),
            },
            None => "write `file PATH LINES` or `function PATH::NAME LINES`".to_owned(),
        };
        violations.push(Violation { path: path.into(), line: index + 1, rule: RULE, message });
    }
    allowances
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
    // Functions of one name in one file share a key: the longest counts.
    items.sort_by(|left, right| left.key.cmp(&right.key).then(right.length.cmp(&left.length)));
    items.dedup_by(|right, left| right.key == left.key);
    items
}

/// Name and end of the function whose `fn` stands at `start`; `None` for a pointer type or a body that is elsewhere.
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

    const LIST: &str = "list.txt";

    fn source(text: &str) -> SourceFile {
        SourceFile::read(&TextFile { path: "a.rs".into(), text: text.into() })
    }

    /// A function with so many lines.
    fn function_of(name: &str, lines: usize) -> String {
        format!("fn {name}(a: [u8; 2]) {{\n{}}}\n", "    b();\n".repeat(lines - 2))
    }

    fn shown(text: &str, list: &str) -> Vec<String> {
        check(&[source(text)], LIST, list).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_within_the_limits_passes() {
        assert!(shown(&function_of("a", FUNCTION_LINES_MAX), "# nothing\n").is_empty());
        assert!(shown(&"//\n".repeat(FILE_LINES_MAX), "").is_empty());
    }

    #[test]
    fn a_long_function_is_refused_and_can_be_listed() {
        let text = format!("struct B;\n{}", function_of("a", 71));
        let violations = shown(&text, "");
        assert_eq!(violations.len(), 1);
        assert!(violations[0].starts_with("a.rs:2: sizes: 71 lines, more than 70"), "{violations:?}");
        assert!(shown(&text, "function a.rs::a 71\n").is_empty());
    }

    #[test]
    fn a_long_file_is_refused_and_can_be_listed() {
        let text = "//\n".repeat(401);
        assert!(shown(&text, "")[0].starts_with("a.rs:1: sizes: 401 lines, more than 400"));
        assert!(shown(&text, "file a.rs 401\n").is_empty());
    }

    #[test]
    fn the_list_may_only_shrink() {
        let grown = shown(&function_of("a", 80), "function a.rs::a 75\n");
        assert!(grown[0].starts_with("a.rs:1: sizes: 80 lines, more than 75"), "{grown:?}");
        let shrunk = shown(&function_of("a", 75), "function a.rs::a 80\n");
        assert!(
            shrunk[0].starts_with("list.txt:1: sizes: `function a.rs::a` has only 75 lines"),
            "{shrunk:?}"
        );
        let small = shown(&function_of("a", 70), "\nfunction a.rs::a 80\n");
        assert!(
            small[0].contains("list.txt:2: sizes: `function a.rs::a` is within the limit now"),
            "{small:?}"
        );
        let gone = shown("", "file b.rs 500\n");
        assert!(gone[0].contains("there is no `file b.rs`"), "{gone:?}");
    }

    #[test]
    fn a_list_that_cannot_be_read_is_refused() {
        assert!(shown("", "file a.rs many\n")[0].contains("write `file PATH LINES`"));
        let text = "//\n".repeat(401);
        assert!(shown(&text, "file a.rs 401\nfile a.rs 401\n")[0].contains("stands already in line 1"));
    }

    #[test]
    fn tests_may_be_long() {
        let text = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function_of("a", 500));
        assert!(shown(&text, "").is_empty());
    }

    #[test]
    fn functions_are_found() {
        let code = "type A = fn(u8);\ntrait B { fn c(&self); }\nfn d() -> [u8; 3] {\n    fn e() {}\n}\n";
        let found: Vec<(String, usize)> =
            items(&source(code)).into_iter().skip(1).map(|item| (item.key, item.length)).collect();
        assert_eq!(found, [("function a.rs::d".to_owned(), 3), ("function a.rs::e".to_owned(), 1)]);
    }

    #[test]
    fn of_two_functions_of_one_name_the_longer_counts() {
        let text = format!("{}{}", function_of("a", 3), function_of("a", 71));
        assert_eq!(shown(&text, "").len(), 1);
        assert!(shown(&text, "function a.rs::a 71\n").is_empty());
    }
}
