//! Only `main` says which machine is meant: everything below is given a `HostRoot`.

use super::Violation;
use super::source::SourceFile;

const RULE: &str = "host-root";
const REAL: &str = "HostRoot::real";

/// Checks one file. Binaries, tests and examples may say it.
pub(crate) fn check(source: &SourceFile) -> Vec<Violation> {
    if source.path.ends_with("/src/main.rs") || source.path.contains("/src/bin/") {
        return Vec::new();
    }
    let lines = source.words(REAL).into_iter().map(|start| source.line_of(start));
    let message = format!("`{REAL}` may only be in `main`, tests and examples: take a `&HostRoot`");
    let violation =
        |line| Violation { path: source.path.clone(), line, rule: RULE, message: message.clone() };
    lines.filter(|line| !source.is_test(*line)).map(violation).collect()
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
    fn libraries_do_not_choose_the_machine() {
        assert_eq!(lines("crates/bpf/src/a.rs", "fn a() {\n    b(&HostRoot::real());\n}\n"), [2]);
        assert_eq!(lines("crates/cli/src/machine.rs", "let a = b.map_or_else(HostRoot::real, c);"), [1]);
    }

    #[test]
    fn binaries_tests_and_examples_do() {
        let text = "fn a() {\n    b(&HostRoot::real());\n}\n";
        for path in [
            "crates/cli/src/main.rs",
            "crates/load/src/bin/child.rs",
            "crates/host/tests/check.rs",
            "crates/probe/src/tests_roundtrip.rs",
            "crates/bpf/examples/a.rs",
        ] {
            assert!(lines(path, text).is_empty(), "{path}");
        }
        assert!(lines("crates/bpf/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{text}}}\n")).is_empty());
        assert!(lines("crates/bpf/src/a.rs", "/// let root = HostRoot::real();\nfn a() {}").is_empty());
    }
}
