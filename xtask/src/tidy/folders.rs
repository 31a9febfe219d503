//! Only one module opens files of run directories; it follows no link and waits for no pipe.

use super::Violation;
use super::source::SourceFile;

const RULE: &str = "folders";
/// The crate that reads and writes runs.
const CRATES: [&str; 3] = ["crates/store/src/", "crates/serve/src/", "crates/farm/src/"];
/// The module that opens files, and the one for copies of a lake's tables, which are not runs.
const EXEMPT: [&str; 5] = [
    "crates/store/src/folder.rs",
    "crates/store/src/folder/",
    "crates/farm/src/lake/mod.rs",
    "crates/farm/src/lake/damage.rs",
    "crates/farm/src/lake/mirror.rs",
];
/// Functions that open or inspect a file by its path.
const REFUSED: [&str; 17] = [
    "fs::read",
    "fs::write",
    "fs::read_dir",
    "fs::read_to_string",
    "fs::create_dir",
    "fs::create_dir_all",
    "fs::metadata",
    "fs::symlink_metadata",
    "fs::rename",
    "fs::remove_file",
    "fs::remove_dir_all",
    "rustix::fs",
    "tokio::fs",
    "File::open",
    "File::create",
    "OpenOptions",
    "UnixListener",
];
/// The same as methods of a path.
const METHODS: [&str; 7] = [
    ".exists()",
    ".is_file()",
    ".is_dir()",
    ".read_dir()",
    ".read_link()",
    ".canonicalize()",
    ".symlink_metadata()",
];
/// Names that only the run directory's own crate puts together.
const NAMES: [&str; 4] =
    ["join(\"run.json\")", "join(\"result.json\")", "join(\"traces\")", "join(\"manifest.jsonl\")"];

/// Checks one file.
pub(crate) fn check(source: &SourceFile) -> Vec<Violation> {
    let path = &source.path;
    let is_exempt = EXEMPT.iter().any(|it| path.starts_with(it));
    let mut violations = Vec::new();
    let mut add = |starts: Vec<usize>, what: &str| {
        for line in
            starts.into_iter().map(|start| source.line_of(start)).filter(|line| !source.is_test(*line))
        {
            let message = format!("`{what}`: files of runs are opened by `whylate_store::Folder` alone");
            violations.push(Violation { path: path.clone(), line, rule: RULE, message });
        }
    };
    if CRATES.iter().any(|it| path.starts_with(it)) && !is_exempt {
        REFUSED.iter().for_each(|word| add(source.words(word), word));
        METHODS.iter().for_each(|word| add(source.code.match_indices(word).map(|it| it.0).collect(), word));
    }
    let is_a_product = path.starts_with("crates/") && path.contains("/src/");
    // A folder of the kernel's pages has traces, too.
    if is_a_product && !path.starts_with("crates/store/") && !path.starts_with("crates/trace/") {
        NAMES.iter().for_each(|word| add(source.text.match_indices(word).map(|it| it.0).collect(), word));
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
    fn only_one_module_opens_files_of_runs() {
        for text in
            ["let a = std::fs::read(b);", "use std::fs;\nfs::read_dir(b)", "File::open(b)", "b.is_file()"]
        {
            for path in
                ["crates/store/src/list.rs", "crates/serve/src/pages.rs", "crates/farm/src/lake/push.rs"]
            {
                assert_eq!(lines(path, text).len(), 1, "{path}: {text}");
            }
            for path in
                ["crates/store/src/folder.rs", "crates/store/src/folder/way.rs", "crates/cli/src/a.rs"]
            {
                assert!(lines(path, text).is_empty(), "{path}: {text}");
            }
            let test = format!("#[cfg(test)]\nmod tests {{\n    {text}\n}}");
            assert!(lines("crates/store/src/list.rs", &test).is_empty(), "{text}");
        }
        assert!(lines("crates/store/src/list.rs", "// File::open\nlet a: File = b.is_folder;").is_empty());
    }

    #[test]
    fn other_crates_put_no_path_of_a_run_together() {
        assert_eq!(lines("crates/cli/src/a.rs", "let a = b.join(\"run.json\");"), [1]);
        assert!(lines("crates/cli/tests/a.rs", "let a = b.join(\"run.json\");").is_empty());
        assert!(lines("crates/store/src/a.rs", "let a = b.join(\"run.json\");").is_empty());
    }
}
