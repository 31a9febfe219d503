//! Which crate of the workspace may depend on which.
//!
//! The table lists what each crate may name in its manifest, tests included; the second table says what a crate must
//! not reach through any chain, however the first one is changed.

use super::{TextFile, Violation};
use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const RULE: &str = "dependencies";
const TABLE: &str = "xtask/src/tidy/dependencies.rs";
/// The page that shows the table.
const PAGE: &str = "docs/ARCHITECTURE.md";

/// Crate, and the crates of the workspace that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("whylate-core", &[]),
    ("whylate-copy", &[]),
    ("whylate-sys", &["whylate-core", "whylate-copy"]),
    ("whylate-host", &["whylate-core", "whylate-kmsg", "whylate-sys"]),
    ("whylate-stats", &["whylate-core"]),
    ("whylate-trace", &["whylate-core"]),
    ("whylate-explain", &["whylate-core", "whylate-stats", "whylate-trace"]),
    ("whylate-import", &["whylate-core", "whylate-stats"]),
    ("whylate-kmsg", &["whylate-core"]),
    ("whylate-report", &["whylate-core"]),
    ("whylate-store", &["whylate-core", "whylate-stats"]),
    ("whylate-farm", &["whylate-core", "whylate-stats", "whylate-store"]),
    ("whylate-serve", &["whylate-core", "whylate-store", "whylate-report", "whylate-farm"]),
    ("whylate-load", &["whylate-core", "whylate-copy", "whylate-sys", "whylate-host"]),
    ("whylate-treat", &["whylate-core", "whylate-sys", "whylate-host"]),
    (
        "whylate-gpu",
        &["whylate-core", "whylate-copy", "whylate-sys", "whylate-host", "whylate-load", "whylate-probe"],
    ),
    ("whylate-bpf", &["whylate-core", "whylate-sys", "whylate-host", "whylate-stats", "whylate-trace"]),
    (
        "whylate-record",
        &[
            "whylate-core",
            "whylate-sys",
            "whylate-host",
            "whylate-stats",
            "whylate-bpf",
            "whylate-treat",
            "whylate-trace",
            "whylate-explain",
        ],
    ),
    (
        "whylate-probe",
        &[
            "whylate-core",
            "whylate-copy",
            "whylate-sys",
            "whylate-host",
            "whylate-stats",
            "whylate-bpf",
            "whylate-record",
            "whylate-trace",
        ],
    ),
    (
        "whylate-runner",
        &[
            "whylate-core",
            "whylate-copy",
            "whylate-sys",
            "whylate-host",
            "whylate-stats",
            "whylate-store",
            "whylate-load",
            "whylate-probe",
            "whylate-treat",
            "whylate-trace",
            "whylate-explain",
            "whylate-record",
            "whylate-bpf",
        ],
    ),
    (
        "whylate",
        &[
            "whylate-core",
            "whylate-host",
            "whylate-import",
            "whylate-kmsg",
            "whylate-stats",
            "whylate-store",
            "whylate-treat",
            "whylate-trace",
            "whylate-explain",
            "whylate-record",
            "whylate-bpf",
            "whylate-report",
            "whylate-runner",
            "whylate-serve",
            "whylate-farm",
        ],
    ),
    ("whylate-testing", &[]),
    ("whylate-lab", &["whylate-core", "whylate-sys", "whylate-testing"]),
    ("xtask", &["whylate-lab", "whylate-testing"]),
];

/// Crate, and a crate that it must not reach through any chain.
const NEVER_REACHED: &[(&str, &str)] = &[
    ("whylate-stats", "whylate-sys"),
    ("whylate-report", "whylate-sys"),
    ("whylate-report", "whylate-stats"),
    ("whylate-report", "whylate-runner"),
    ("whylate-store", "whylate-sys"),
    ("whylate-store", "whylate-runner"),
    ("whylate-farm", "whylate-sys"),
    ("whylate-farm", "whylate-host"),
    ("whylate-trace", "whylate-sys"),
    ("whylate-trace", "whylate-host"),
    ("whylate-trace", "whylate-bpf"),
    ("whylate-trace", "whylate-explain"),
    ("whylate-bpf", "whylate-explain"),
    ("whylate-explain", "whylate-sys"),
    ("whylate-explain", "whylate-host"),
    ("whylate-explain", "whylate-bpf"),
    ("whylate-probe", "whylate-load"),
    ("whylate-load", "whylate-probe"),
    ("whylate-load", "whylate-treat"),
    ("whylate-load", "whylate-bpf"),
    ("whylate-treat", "whylate-load"),
    ("whylate-treat", "whylate-probe"),
    ("whylate-treat", "whylate-bpf"),
];

/// The crates that tests of any crate may use.
const FOR_TESTS: [&str; 2] = ["whylate-lab", "whylate-testing"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crate {
    name: String,
    /// Its manifest, relative to the root of the workspace.
    manifest: String,
    /// The crates of the workspace that it depends on.
    dependencies: Vec<Dependency>,
}

/// A dependency on a crate of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dependency {
    name: String,
    line: usize,
    /// Only tests, benchmarks and examples use it.
    only_tests: bool,
}

/// What Cargo knows about the workspace.
pub(crate) fn crates(metadata: &Metadata, root: &Path) -> Result<Vec<Crate>> {
    let mut crates = Vec::new();
    for package in metadata.workspace_packages() {
        let path = package.manifest_path.as_std_path();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let internal = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        crates.push(Crate {
            name: package.name.to_string(),
            manifest: path.strip_prefix(root).unwrap_or(path).display().to_string(),
            dependencies: internal
                .map(|dependency| Dependency {
                    name: dependency.name.clone(),
                    line: line_of(&text, &dependency.name),
                    only_tests: dependency.kind == DependencyKind::Development,
                })
                .collect(),
        });
    }
    Ok(crates)
}

/// The line (from 1) of a manifest that names a dependency.
fn line_of(manifest: &str, dependency: &str) -> usize {
    let names =
        |line: &str| line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().position(names).map_or(1, |index| index + 1)
}

/// Checks the workspace against the tables.
pub(crate) fn check(crates: &[Crate]) -> Vec<Violation> {
    check_with(crates, ALLOWED, NEVER_REACHED)
}

/// Checks that the page about the architecture says what the table allows.
pub(crate) fn check_page(files: &[TextFile]) -> Vec<Violation> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let violation = |line, message| Violation { path: PAGE.into(), line, rule: RULE, message };
    let mut violations = Vec::new();
    for (name, may_name) in ALLOWED {
        let rows = [format!("| `{}` ", short(name)), format!("| `{name}` ")];
        let mut lines = page.text.lines().enumerate();
        let Some((index, row)) = lines.find(|(_, line)| rows.iter().any(|row| line.starts_with(row))) else {
            violations.push(violation(1, format!("the table of crates has no row for `{}`", short(name))));
            continue;
        };
        let listed = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        let listed: BTreeSet<&str> = listed.split(',').map(str::trim).filter(|name| *name != "–").collect();
        let allowed: BTreeSet<&str> = may_name.iter().map(|name| short(name)).collect();
        if listed != allowed {
            let allowed = Vec::from_iter(allowed).join(", ");
            violations.push(violation(index + 1, format!("{} may depend on {allowed}: say so", short(name))));
        }
    }
    violations
}

/// A crate's name on the page.
fn short(name: &str) -> &str {
    if name == "whylate" { "cli" } else { name.strip_prefix("whylate-").unwrap_or(name) }
}

fn check_with(
    crates: &[Crate],
    allowed: &[(&str, &[&str])],
    never_reached: &[(&str, &str)],
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for one in crates {
        violations.extend(check_direct(one, allowed));
    }
    let names: BTreeSet<&str> = crates.iter().map(|one| one.name.as_str()).collect();
    for (name, _) in allowed.iter().filter(|(name, _)| !names.contains(name)) {
        let message = format!("the table lists {name}, which does not exist: remove its line");
        violations.push(Violation { path: TABLE.into(), line: 1, rule: RULE, message });
    }
    for (from, to) in never_reached {
        let Some(one) = crates.iter().find(|one| one.name == *from) else { continue };
        if let Some(chain) = chain(crates, from, to) {
            let message = format!("{from} must never reach {to}, but does: {}", chain.join(" -> "));
            let line = one.dependencies.iter().find(|next| next.name == chain[1]).map_or(1, |next| next.line);
            violations.push(Violation { path: one.manifest.clone(), line, rule: RULE, message });
        }
    }
    violations
}

/// What the crate's own manifest names.
fn check_direct(one: &Crate, allowed: &[(&str, &[&str])]) -> Vec<Violation> {
    let violation =
        |line: usize, message: String| Violation { path: one.manifest.clone(), line, rule: RULE, message };
    let Some((_, may_name)) = allowed.iter().find(|(name, _)| *name == one.name) else {
        let message = format!("{} has no rule: say in {TABLE} what it may depend on", one.name);
        return vec![violation(1, message)];
    };
    let is_for_tests = |next: &Dependency| next.only_tests && FOR_TESTS.contains(&next.name.as_str());
    let forbidden =
        one.dependencies.iter().filter(|next| !may_name.contains(&next.name.as_str()) && !is_for_tests(next));
    forbidden
        .map(|next| {
            let message = format!(
                "{} must not depend on {}: move what is needed to a crate that both may use, or pass it in",
                one.name, next.name
            );
            violation(next.line, message)
        })
        .collect()
}

/// The shortest chain of dependencies, tests aside, from one crate to another.
fn chain(crates: &[Crate], from: &str, to: &str) -> Option<Vec<String>> {
    let by_name: BTreeMap<&str, &Crate> = crates.iter().map(|one| (one.name.as_str(), one)).collect();
    let mut seen = BTreeSet::from([from.to_owned()]);
    let mut chains = vec![vec![from.to_owned()]];
    while !chains.is_empty() {
        let mut longer = Vec::new();
        for chain in chains {
            let Some(last) = chain.last().and_then(|last| by_name.get(last.as_str())) else { continue };
            for next in last.dependencies.iter().filter(|next| !next.only_tests) {
                let extended: Vec<String> = chain.iter().chain([&next.name]).cloned().collect();
                if next.name == to {
                    return Some(extended);
                }
                if seen.insert(next.name.clone()) {
                    longer.push(extended);
                }
            }
        }
        chains = longer;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Crate {
        let dependencies = dependencies
            .iter()
            .map(|name| Dependency { name: (*name).into(), line: 7, only_tests: false })
            .collect();
        Crate { name: name.into(), manifest: format!("{name}/Cargo.toml"), dependencies }
    }

    fn shown(crates: &[Crate], never_reached: &[(&str, &str)]) -> Vec<String> {
        let allowed: &[(&str, &[&str])] = &[("a", &[]), ("b", &["a"]), ("c", &["b"])];
        check_with(crates, allowed, never_reached).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_table_allows_passes() {
        let crates = [package("a", &[]), package("b", &["a"]), package("c", &["b"])];
        assert!(shown(&crates, &[("a", "c")]).is_empty());
    }

    #[test]
    fn what_it_does_not_allow_is_refused() {
        let crates = [package("a", &[]), package("b", &["a"]), package("c", &["a", "b"])];
        let violations = shown(&crates, &[]);
        assert_eq!(violations.len(), 1);
        assert!(
            violations[0].starts_with("c/Cargo.toml:7: dependencies: c must not depend on a"),
            "{violations:?}"
        );
    }

    #[test]
    fn tests_obey_the_table_too() {
        let mut crates = [package("a", &["b"]), package("b", &["a"]), package("c", &[])];
        crates[0].dependencies[0].only_tests = true;
        assert_eq!(shown(&crates, &[]).len(), 1);
    }

    #[test]
    fn a_chain_is_found_through_other_crates() {
        let crates = [package("a", &[]), package("b", &["a"]), package("c", &["b"])];
        let violations = shown(&crates, &[("c", "a")]);
        assert_eq!(violations, ["c/Cargo.toml:7: dependencies: c must never reach a, but does: c -> b -> a"]);
    }

    #[test]
    fn a_chain_through_tests_is_none() {
        let mut crates = [package("a", &[]), package("b", &["a"]), package("c", &["b"])];
        crates[2].dependencies[0].only_tests = true;
        assert!(shown(&crates, &[("c", "a")]).is_empty());
    }

    #[test]
    fn a_crate_without_a_rule_and_a_rule_without_a_crate_are_refused() {
        let violations = shown(&[package("a", &[]), package("b", &["a"]), package("d", &[])], &[]);
        assert_eq!(violations.len(), 2, "{violations:?}");
        assert!(violations[0].contains("d has no rule"), "{violations:?}");
        assert!(violations[1].contains("lists c, which does not exist"), "{violations:?}");
    }

    #[test]
    fn the_tables_agree_with_each_other() {
        for (from, to) in NEVER_REACHED {
            let (_, allowed) = ALLOWED.iter().find(|(name, _)| name == from).unwrap();
            assert!(!allowed.contains(to), "{from} may depend on {to} and must never reach it");
        }
    }

    #[test]
    fn the_page_says_what_the_table_allows() {
        let row = |(name, may_name): &(&str, &[&str])| {
            let names: Vec<&str> = may_name.iter().map(|name| short(name)).collect();
            let names = if names.is_empty() { "–".to_owned() } else { names.join(", ") };
            format!("| `{}` | what it is for | {names} |\n", short(name))
        };
        let page = |text: String| vec![TextFile { path: PAGE.into(), text }];
        let rows: Vec<String> = ALLOWED.iter().map(row).collect();
        assert!(check_page(&page(rows.concat())).is_empty());
        let violations = check_page(&page(rows[1..].concat().replace("| core, kmsg, sys |", "| core |")));
        assert!(violations[0].message.contains("no row for `core`"), "{violations:?}");
        assert!(
            violations.iter().any(|it| it.message == "host may depend on core, kmsg, sys: say so"),
            "{violations:?}"
        );
    }

    #[test]
    fn a_dependency_has_a_line() {
        let manifest = "[dependencies]\nwhylate-core-extra = \"1\"\nwhylate-core.workspace = true\n";
        assert_eq!(line_of(manifest, "whylate-core"), 3);
        assert_eq!(line_of(manifest, "serde"), 1);
    }
}
