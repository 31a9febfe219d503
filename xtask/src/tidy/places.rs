//! No file names the machine that it was written on: folders of users, other places to fetch crates from.

use super::source::SourceFile;
use super::{TextFile, Violation};

const RULE: &str = "places";
/// Beginnings of paths that exist on one machine only. In pieces, so that this file does not name them.
const FOLDERS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
/// The only place that crates come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks one file; `source` when it is Rust. Tests may invent folders of users.
pub(crate) fn check(file: &TextFile, source: Option<&SourceFile>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let mut add = |message: String| {
            violations.push(Violation { path: file.path.clone(), line: index + 1, rule: RULE, message });
        };
        let is_test = source.is_some_and(|source| source.is_test(index + 1));
        let forbidden = if is_test { &FOLDERS[..1] } else { &FOLDERS[..] };
        for folder in forbidden.iter().filter(|folder| names_folder(line, folder)) {
            add(format!("`{folder}` is a place on one machine: use a relative path or a variable"));
        }
        if file.path.ends_with("Cargo.lock") && line.starts_with("source = ") && !line.contains(REGISTRY) {
            add(format!("not from crates.io ({line}): depend on a published version"));
        }
        if file.path.ends_with(".cargo/config.toml") && is_registry_setting(line) {
            add("keep registries and their mirrors in your own Cargo configuration".into());
        }
    }
    violations
}

/// Whether the line holds an absolute path in `folder`, with a name behind it.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + folder.len()..].chars().next();
        let is_absolute = !before.is_some_and(|c| c.is_alphanumeric() || "._-}~*)".contains(c));
        is_absolute && after.is_some_and(|c| c.is_alphanumeric() || c == '.' || c == '_')
    })
}

fn is_registry_setting(line: &str) -> bool {
    let line = line.trim_start();
    ["[source", "[registr", "replace-with", "registry"].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = TextFile { path: path.into(), text: text.into() };
        let source = path.ends_with(".rs").then(|| SourceFile::read(&file));
        check(&file, source.as_ref()).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn folders_of_one_machine_are_refused() {
        for folder in FOLDERS {
            assert_eq!(lines("README.md", &format!("\nsee {folder}someone/notes")), [2], "{folder}");
            assert_eq!(lines("a.rs", &format!("\"{folder}x\"")), [1], "{folder}");
        }
    }

    #[test]
    fn tests_may_invent_users() {
        for (index, folder) in FOLDERS.into_iter().enumerate() {
            let refused = if index == 0 { vec![1] } else { Vec::new() };
            assert_eq!(lines("crates/a/tests/b.rs", &format!("\"{folder}x\"")), refused, "{folder}");
        }
    }

    #[test]
    fn other_paths_pass() {
        for folder in FOLDERS {
            let relative = folder.trim_start_matches('/');
            assert!(
                lines("a.md", &format!("a{folder}b and ./{relative}b and `{folder}`")).is_empty(),
                "{folder}"
            );
        }
        assert!(lines("a.md", "/sys/devices /proc/self ~/.cache https://example.org/homework/a").is_empty());
    }

    #[test]
    fn crates_come_from_one_place() {
        assert!(lines("Cargo.lock", &format!("source = \"{REGISTRY}\"\n")).is_empty());
        assert_eq!(lines("Cargo.lock", "\nsource = \"git+https://example.org/a#1\"\n"), [2]);
        assert_eq!(lines("fuzz/Cargo.lock", "source = \"sparse+https://mirror.example.org/\"\n"), [1]);
    }

    #[test]
    fn mirrors_are_not_configured_here() {
        assert_eq!(lines(".cargo/config.toml", "[source.crates-io]\nreplace-with = \"mirror\"\n"), [1, 2]);
        assert!(lines(".cargo/config.toml", "[alias]\nxtask = \"run\"\n").is_empty());
    }
}
