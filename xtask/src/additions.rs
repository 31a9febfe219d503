//! How many files an addition touches: each scripted addition is applied to a copy of the tree, which is checked and
//! tested, and its files are counted. The limits are those of docs/ARCHITECTURE.md.

use crate::process;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A change of one file.
struct Edit {
    file: &'static str,
    /// The line before which `text` is inserted; empty: a new file, or the end of one.
    before: &'static str,
    text: &'static str,
}

/// Something new, and how many files it may touch.
struct Addition {
    name: &'static str,
    files_max: usize,
    edits: &'static [Edit],
    /// Tests that check what was added: package and name.
    tests: &'static [(&'static str, &'static str)],
}

const fn edit(file: &'static str, before: &'static str, text: &'static str) -> Edit {
    Edit { file, before, text }
}

const ADDITIONS: [Addition; 2] = [
    Addition {
        name: "a treatment with its own planner",
        files_max: 4,
        edits: &[
            edit(
                "crates/core/src/plan/treatment/mod.rs",
                "        /// Requires a kernel command line; changes nothing.",
                "        /// Sets how eagerly the kernel swaps.\n        \"dummy-swap\" => DummySwap(DummySwapPlan),\n",
            ),
            edit(
                "crates/core/src/plan/treatment/settings.rs",
                "/// Writes any file below /sys or /proc.",
                "/// Sets how eagerly the kernel swaps.\n\
                 #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]\n\
                 #[serde(deny_unknown_fields)]\n\
                 #[schemars(extend(\"x-examples\" = \"Examples:\\n  whylate treat apply dummy-swap 1\"))]\n\
                 pub struct DummySwapPlan {\n\
                 \x20   /// How eagerly.\n\
                 \x20   #[schemars(extend(\"x-flag\" = Flag::positional(\"value\")))]\n\
                 \x20   pub value: u32,\n\
                 }\n\nimpl Words for DummySwapPlan {}\n\n",
            ),
            edit("crates/treat/src/kinds/mod.rs", "mod ethtool;", "mod dummy;\n"),
            edit(
                "crates/treat/src/kinds/mod.rs",
                "        TreatmentKind::Boot(plan) => plan,",
                "        TreatmentKind::DummySwap(plan) => plan,\n",
            ),
            edit(
                "crates/treat/src/kinds/dummy.rs",
                "",
                "//! `dummy-swap`.\n\n\
                 use crate::change::{Change, Target};\n\
                 use crate::kinds::required_file;\n\
                 use crate::planner::{Impossible, Planned, Planner, Surroundings};\n\
                 use whylate_core::plan::DummySwapPlan;\n\n\
                 const PATH: &str = \"/proc/sys/vm/swappiness\";\n\n\
                 impl Planner for DummySwapPlan {\n\
                 \x20   fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {\n\
                 \x20       required_file(surroundings, PATH, \"this kernel does not swap\")?;\n\
                 \x20       Ok(Planned::changes(vec![Change::required(Target::file(PATH), self.value.to_string(), \"swaps less\")]))\n\
                 \x20   }\n\
                 }\n",
            ),
        ],
        tests: &[("whylate-core", "plan::"), ("whylate-treat", "kinds::")],
    },
    Addition {
        name: "a cause (the rule that finds it is one file more)",
        files_max: 4,
        edits: &[
            edit(
                "crates/core/src/result/cause.rs",
                "    IdleExit = \"idle_exit\",",
                "    /// the task was counted\n    Dummy = \"dummy\", Scheduler, [\"it was counted\"];\n",
            ),
            edit(
                "docs/causes/dummy.md",
                "",
                "# dummy: the task was counted\n\n## What it is\n\nA dummy.\n\n## How whylate knows\n\nIt does not.\n\n\
                 ## Confirm it with another tool\n\n```sh\ntrue\n```\n\n## What cures it\n\n`whylate treat apply ksm off`\n\n\
                 ## Pitfalls\n\nNone.\n",
            ),
            edit(
                "docs/causes/README.md",
                "| [idle_exit](idle_exit.md) |",
                "| [dummy](dummy.md) | the task was counted |\n",
            ),
            edit("docs/SUMMARY.md", "  - [idle_exit](causes/idle_exit.md)", "  - [dummy](causes/dummy.md)\n"),
        ],
        tests: &[("whylate-core", "result::cause::")],
    },
];

/// Removes a copy whose results are among all others: cargo takes them for those of the tree as long as the copy
/// exists.
///
/// # Errors
/// When it cannot be removed.
pub(crate) fn remove_old(root: &Path) -> Result<()> {
    let old = process::target_folder(root)?.join("xtask-additions");
    if old.is_dir() {
        fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
    }
    Ok(())
}

/// Applies each addition alone, checks the workspace, runs its tests and counts its files.
///
/// # Errors
/// When one does not apply, does not build, fails its tests or touches too many files.
pub(crate) fn check(root: &Path) -> Result<()> {
    let results = process::target_folder(root)?;
    let target = results.join("xtask-additions-results");
    let tree = target.join("tree");
    let files = copy(root, &tree)?;
    seed(&results.join(PROFILE), &target.join(PROFILE))?;
    for addition in &ADDITIONS {
        let applied = apply(&tree, addition).and_then(|()| build(&tree, &target, addition));
        restore(root, &tree, addition, &files)?;
        applied.with_context(|| addition.name)?;
        let touched: BTreeSet<&str> = addition.edits.iter().map(|edit| edit.file).collect();
        let (count, files) = (touched.len(), Vec::from_iter(touched.iter().copied()).join(" "));
        println!("xtask: {} touches {count} files: {files}", addition.name);
        ensure!(
            touched.len() <= addition.files_max,
            "{}: {} files at most",
            addition.name,
            addition.files_max
        );
    }
    Ok(())
}

/// Makes the copy the same as the tree. Files of the same content are left alone, so that little is built again. Files
/// that the tree does not have are removed: an interrupted check leaves the files it added.
fn copy(root: &Path, tree: &Path) -> Result<BTreeSet<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = process::output(&mut git)?;
    let mut files = BTreeSet::new();
    for file in listed.split('\0').filter(|file| !file.is_empty() && root.join(file).is_file()) {
        put(&tree.join(file), &fs::read(root.join(file))?)?;
        files.insert(file.to_owned());
    }
    remove_others(tree, tree, &files)?;
    Ok(files)
}

fn remove_others(tree: &Path, folder: &Path, files: &BTreeSet<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(tree, &path, files)?;
        } else if !path.strip_prefix(tree)?.to_str().is_some_and(|name| files.contains(name)) {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn put(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let folder = path.parent().context("a file without a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn apply(tree: &Path, addition: &Addition) -> Result<()> {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for edit in addition.edits {
        let read = || fs::read_to_string(tree.join(edit.file)).unwrap_or_default();
        let text = texts.entry(edit.file).or_insert_with(read);
        *text =
            inserted(text, edit).with_context(|| format!("{} has no line `{}`", edit.file, edit.before))?;
    }
    texts.iter().try_for_each(|(file, text)| put(&tree.join(file), text.as_bytes()))
}

/// The text with the edit. Comments and attributes above the line stay with it.
fn inserted(text: &str, edit: &Edit) -> Option<String> {
    if edit.before.is_empty() {
        return Some(format!("{text}{}", edit.text));
    }
    let mut at = text
        .match_indices(edit.before)
        .map(|(at, _)| at)
        .find(|at| *at == 0 || text[..*at].ends_with('\n'))?;
    while let Some(line) =
        text[..at].strip_suffix('\n').map(|above| above.rsplit('\n').next().unwrap_or(above))
    {
        if !line.trim_start().starts_with("///") && !line.trim_start().starts_with("#[") {
            break;
        }
        at -= line.len() + 1;
    }
    Some(format!("{}{}{}", &text[..at], edit.text, &text[at..]))
}

/// Where cargo puts what it builds for development.
const PROFILE: &str = "debug";

/// Gives the copy's own folder the results of dependencies, so that they are not built again. The workspace's crates
/// have the same names in every checkout: with a common folder cargo would take those of the copy for those of the
/// tree.
fn seed(from: &Path, to: &Path) -> Result<()> {
    for folder in ["deps", "build", ".fingerprint"] {
        seed_folder(&from.join(folder), &to.join(folder))?;
    }
    Ok(())
}

fn seed_folder(from: &Path, to: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in entries {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let text = name.to_string_lossy();
        let target = to.join(&name);
        // Programs, as tests are, have no ending.
        let is_program = from.ends_with("deps") && !text.contains('.');
        if is_program
            || target.is_file()
            || OWN.iter().any(|own| text.trim_start_matches("lib").starts_with(own))
        {
            continue;
        }
        let seeded = match path.is_dir() {
            true => seed_folder(&path, &target),
            false => seed_file(&path, &target)
                .with_context(|| format!("cannot bring {} into {}", path.display(), to.display())),
        };
        // Another lane builds into the same folder: rustc removes its object files when it has linked them.
        if path.exists() {
            seeded?;
        }
    }
    Ok(())
}

/// Cargo writes small files in place, and rustc replaces large ones.
const LINKED_LEAST: u64 = 1 << 16;

fn seed_file(path: &Path, target: &Path) -> std::io::Result<()> {
    let metadata = fs::metadata(path)?;
    if metadata.len() >= LINKED_LEAST {
        return fs::hard_link(path, target);
    }
    fs::copy(path, target)?;
    fs::File::open(target)?.set_modified(metadata.modified()?)
}

/// The start of the names of the workspace's own results.
const OWN: [&str; 2] = ["whylate", "xtask"];

fn build(tree: &Path, results: &Path, addition: &Addition) -> Result<()> {
    let cargo = |words: &[&str]| {
        let mut cargo = process::nice_cargo(tree, crate::suite::NICENESS);
        process::output(cargo.args(words).env("CARGO_TARGET_DIR", results)).map(drop)
    };
    cargo(&["check", "--quiet", "--package", "whylate"])?;
    let run =
        |(package, name): &(&str, &str)| cargo(&["test", "--quiet", "--package", package, "--lib", name]);
    addition.tests.iter().try_for_each(run)
}

fn restore(root: &Path, tree: &Path, addition: &Addition, files: &BTreeSet<String>) -> Result<()> {
    for edit in addition.edits {
        let path = tree.join(edit.file);
        if files.contains(edit.file) {
            put(&path, &fs::read(root.join(edit.file))?)?;
        } else if path.exists() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gate finds an addition that no longer applies, before the suite builds it.
    #[test]
    fn each_addition_applies_to_the_tree_and_touches_few_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for addition in &ADDITIONS {
            let mut files = BTreeSet::new();
            for edit in addition.edits {
                let text = fs::read_to_string(root.join(edit.file)).unwrap_or_default();
                assert_eq!(text.is_empty(), edit.before.is_empty(), "{}: {}", addition.name, edit.file);
                let after =
                    inserted(&text, edit).unwrap_or_else(|| panic!("{}: no `{}`", edit.file, edit.before));
                assert_eq!(after.len(), text.len() + edit.text.len());
                files.insert(edit.file);
            }
            assert!(files.len() <= addition.files_max, "{}: {files:?}", addition.name);
        }
    }

    #[test]
    fn what_an_interrupted_check_left_is_removed() {
        let folder = std::env::temp_dir().join(format!("whylate-additions-{}", std::process::id()));
        for file in ["kept.rs", "kinds/dummy.rs"] {
            put(&folder.join(file), b"//").unwrap();
        }
        remove_others(&folder, &folder, &BTreeSet::from(["kept.rs".to_owned()])).unwrap();
        let there = [folder.join("kept.rs").exists(), folder.join("kinds/dummy.rs").exists()];
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(there, [true, false]);
    }

    #[test]
    fn an_edit_goes_above_the_comments_of_its_line() {
        let text = "a;\n/// Says b.\n#[b]\nb;\n";
        assert_eq!(inserted(text, &edit("", "b;", "new\n")).unwrap(), "a;\nnew\n/// Says b.\n#[b]\nb;\n");
        assert_eq!(inserted(text, &edit("", "", "end\n")).unwrap(), format!("{text}end\n"));
        assert!(inserted(text, &edit("", "c;", "new\n")).is_none());
    }
}
