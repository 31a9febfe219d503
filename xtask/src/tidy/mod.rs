//! The rules of the source tree that the compiler and clippy do not check.
//!
//! Each rule is a function from texts to violations, so that it is tested on small texts; only [`run`] and
//! [`collect`] read files. A violation says where, which rule, and what to do.

mod circles;
mod counts;
mod dependencies;
mod documents;
mod folders;
mod host_root;
mod leftovers;
mod places;
mod ratchets;
mod sizes;
mod source;
mod unsafe_code;

use crate::process;
use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use source::SourceFile;
use std::fmt;
use std::path::Path;
use std::process::Command;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// The file, relative to the root of the workspace.
    pub(crate) path: String,
    /// Its line, from 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TextFile {
    /// Relative to the root of the workspace.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Checks the whole tree.
///
/// # Errors
/// When a rule is violated; each violation is printed.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = collect(root)?;
    let mut violations = check_texts(&files);
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec()?;
    violations.extend(dependencies::check(&dependencies::crates(&metadata, root)?));
    violations.sort();
    let sources: Vec<SourceFile> =
        files.iter().filter(|file| file.path.ends_with(".rs")).map(SourceFile::read).collect();
    for warning in sizes::warnings(&sources) {
        println!("warning: {warning}");
    }
    let risen = ratchets::check(root, &counts::all(&files, &sources))?;
    if ratchets::IS_ENFORCED {
        violations.extend(risen);
    } else {
        risen.iter().for_each(|risen| println!("warning: {risen}"));
    }
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            println!("xtask: {} files are tidy", files.len());
            Ok(())
        }
        1 => bail!("1 violation of the rules of the source tree"),
        count => bail!("{count} violations of the rules of the source tree"),
    }
}

/// `cargo xtask ratchets`: lowers the numbers of the table that fell; with a reason, raises those that rose.
///
/// # Errors
/// When a file cannot be read or written.
pub(crate) fn write_ratchets(root: &Path, reason: Option<&str>) -> Result<()> {
    ratchets::write(root, &counts_of(root)?, reason)
}

/// Lists what a number counts.
///
/// # Errors
/// When a file cannot be read, or no count has that name.
pub(crate) fn list_ratchet(root: &Path, name: &str) -> Result<()> {
    let counts = counts_of(root)?;
    let Some(count) = counts.iter().find(|count| count.name == name) else { bail!("no count `{name}`") };
    count.places.iter().for_each(|place| println!("{place}"));
    println!("{name} {}", count.number);
    Ok(())
}

fn counts_of(root: &Path) -> Result<Vec<counts::Count>> {
    let files = collect(root)?;
    let sources: Vec<SourceFile> =
        files.iter().filter(|file| file.path.ends_with(".rs")).map(SourceFile::read).collect();
    Ok(counts::all(&files, &sources))
}

/// All rules that look at texts.
fn check_texts(files: &[TextFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let sources: Vec<SourceFile> =
        files.iter().filter(|file| file.path.ends_with(".rs")).map(SourceFile::read).collect();
    for source in &sources {
        violations.extend(unsafe_code::check(source));
        violations.extend(leftovers::check(source));
        violations.extend(folders::check(source));
        violations.extend(host_root::check(source));
    }
    for file in files {
        let source = sources.iter().find(|source| source.path == file.path);
        violations.extend(places::check(file, source));
    }
    violations.extend(documents::check(files));
    violations.extend(dependencies::check_page(files));
    violations
}

/// Every file that git tracks or would track, as far as it is text.
fn collect(root: &Path) -> Result<Vec<TextFile>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let list = process::output(&mut git).context("tidy reads the files that git knows")?;
    let mut files = Vec::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        let full = root.join(path);
        if !full.is_file() {
            // Deleted but not yet committed, or a link to a folder.
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("cannot read {}", full.display()))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_says_where_what_and_what_to_do() {
        let file = TextFile {
            path: "crates/core/src/lib.rs".into(),
            text: "//! Words.\nfn main() {\n    todo!()\n}\n".into(),
        };
        let shown: Vec<String> = check_texts(&[file]).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["crates/core/src/lib.rs:3: leftovers: `todo!(`: write the code or leave it out"]);
    }

    #[test]
    fn files_come_from_git_and_ignored_ones_do_not() {
        let root = tempfile::tempdir().unwrap();
        let mut git = Command::new("git");
        process::run(git.current_dir(root.path()).args(["init", "--quiet"])).unwrap();
        std::fs::write(root.path().join(".gitignore"), "ignored\n").unwrap();
        std::fs::write(root.path().join("ignored"), "no").unwrap();
        std::fs::write(root.path().join("kept"), "yes").unwrap();
        std::fs::write(root.path().join("binary"), [0xff, 0xfe]).unwrap();
        let mut paths: Vec<String> =
            collect(root.path()).unwrap().into_iter().map(|file| file.path).collect();
        paths.sort();
        assert_eq!(paths, [".gitignore", "kept"]);
    }
}
