//! Lists that must agree with folders: the built-in plans, the numbers of the decision records, the paths on the page
//! about the architecture.

use super::{TextFile, Violation};

/// The file that lists the built-in plans.
const PLAN_LIST: &str = "crates/core/src/plan/builtin.rs";
const PLANS: &str = "plans/";
const RECORDS: &str = "docs/adr/";
/// The page that says where things are.
const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
/// The start of the paths on it.
const ROOTS: [&str; 4] = ["crates/", "xtask/", "lab/", "plans/"];

/// Checks all files.
pub(crate) fn check(files: &[TextFile]) -> Vec<Violation> {
    let mut violations = check_plans(files);
    violations.extend(check_records(files));
    violations.extend(check_paths(files));
    violations
}

/// Every path on the page exists. `NAME` and `*` stand for names.
fn check_paths(files: &[TextFile]) -> Vec<Violation> {
    let Some(page) = files.iter().find(|file| file.path == ARCHITECTURE) else { return Vec::new() };
    let exists = |path: &str| {
        let folder = format!("{path}/");
        files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    };
    let mut violations = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let quoted = line.split('`').skip(1).step_by(2).map(|path| path.trim_end_matches('/'));
        let is_path = |path: &&str| ROOTS.iter().any(|root| path.starts_with(root));
        let is_named = |path: &&str| !path.contains("NAME") && !path.contains('*');
        for path in quoted.filter(is_path).filter(is_named).filter(|path| !exists(path)) {
            let message = format!("there is no {path}: update the path");
            violations.push(Violation { path: ARCHITECTURE.into(), line: index + 1, rule: "paths", message });
        }
    }
    violations
}

/// Each plan is built in, under the name of its file.
fn check_plans(files: &[TextFile]) -> Vec<Violation> {
    let list = files.iter().find(|file| file.path == PLAN_LIST).map_or("", |file| file.text.as_str());
    let mut violations = Vec::new();
    for file in files {
        let Some(name) = file.path.strip_prefix(PLANS).and_then(|name| name.strip_suffix(".toml")) else {
            continue;
        };
        let is_listed = list.contains(&format!("/{PLANS}{name}.toml\""));
        let is_named = file.text.lines().any(|line| line.trim() == format!("name = \"{name}\""));
        let message = match (is_listed, is_named) {
            (false, _) => format!("not built in: add it to {PLAN_LIST}"),
            (true, false) => format!("write `name = \"{name}\"`, like the name of the file"),
            (true, true) => continue,
        };
        violations.push(Violation { path: file.path.clone(), line: 1, rule: "plans", message });
    }
    violations
}

/// The records are `0001-….md`, `0002-….md` and so on, and begin with their number.
fn check_records(files: &[TextFile]) -> Vec<Violation> {
    let mut records: Vec<(&str, &TextFile)> =
        files.iter().filter_map(|file| Some((file.path.strip_prefix(RECORDS)?, file))).collect();
    records.sort_by_key(|(name, _)| *name);
    let mut violations = Vec::new();
    for (index, (name, file)) in records.into_iter().enumerate() {
        let number = format!("{:04}", index + 1);
        let is_numbered = name.starts_with(&format!("{number}-")) && name.ends_with(".md");
        let message = if !is_numbered {
            format!("expected {RECORDS}{number}-TITLE.md: number the records without gaps")
        } else if !file.text.starts_with(&format!("# {number}: ")) {
            format!("begin with `# {number}: TITLE`")
        } else {
            continue;
        };
        violations.push(Violation { path: file.path.clone(), line: 1, rule: "records", message });
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    fn paths(files: &[TextFile]) -> Vec<String> {
        check(files).into_iter().map(|violation| violation.path).collect()
    }

    #[test]
    fn a_plan_is_built_in_under_its_name() {
        let list = file(PLAN_LIST, "include_str!(\"../../../../plans/quick.toml\")");
        assert!(paths(&[list.clone(), file("plans/quick.toml", "name = \"quick\"\n")]).is_empty());
        assert_eq!(paths(&[list.clone(), file("plans/slow.toml", "name = \"slow\"\n")]), ["plans/slow.toml"]);
        assert_eq!(paths(&[list, file("plans/quick.toml", "name = \"fast\"\n")]), ["plans/quick.toml"]);
    }

    #[test]
    fn records_are_numbered_without_gaps() {
        let record = |number: &str| file(&format!("docs/adr/{number}-a.md"), &format!("# {number}: A\n"));
        assert!(paths(&[record("0002"), record("0001")]).is_empty());
        assert_eq!(paths(&[record("0001"), record("0003")]), ["docs/adr/0003-a.md"]);
        assert_eq!(paths(&[record("0002")]), ["docs/adr/0002-a.md"]);
        let twice = [record("0001"), file("docs/adr/0001-b.md", "# 0001: B\n")];
        assert_eq!(paths(&twice), ["docs/adr/0001-b.md"]);
    }

    #[test]
    fn paths_on_the_page_of_the_architecture_exist() {
        let there = file("crates/core/src/plan/mod.rs", "");
        let page =
            |path: &str| file(ARCHITECTURE, &format!("first\n| plans | `{path}` and `core::plan` |\n"));
        let good = ["crates/core/src/plan/mod.rs", "crates/core/src/plan/", "crates/core/src/NAME.rs"];
        for path in good {
            assert!(check(&[there.clone(), page(path)]).is_empty(), "{path}");
        }
        let bad = check(&[there, page("crates/core/src/pla")]);
        assert_eq!((bad.len(), bad[0].line), (1, 2));
        assert!(bad[0].message.contains("crates/core/src/pla:"), "{}", bad[0].message);
    }

    #[test]
    fn a_record_begins_with_its_number() {
        assert_eq!(paths(&[file("docs/adr/0001-a.md", "# A\n")]), ["docs/adr/0001-a.md"]);
    }
}
