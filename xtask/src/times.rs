//! Times of files in a clean checkout: cargo rebuilds what is newer than its result, and in a new clone every file is.
//! So a file with the content of the last run gets the time that it had in that run.
//!
//! Only if build results are kept outside the checkout, for the same path of it, and if nothing else was built into
//! them since: a result that was made from another content in between would look as new as needed.

use crate::process;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The record, in the folder of build results.
const NOTED: &str = "xtask-file-times";
/// This program is built before it can check, so its results show nothing, and its files stay as new as they are.
const OWN_RESULTS: &str = "xtask-";
const OWN_FILES: &str = "xtask/";

/// Gives files the times that they had in the last run.
///
/// # Errors
/// When git does not list the files, or a time cannot be set.
pub(crate) fn restore(root: &Path) -> Result<()> {
    let Some(results) = results(root)? else { return Ok(()) };
    let restored = restore_from(&results, root)?;
    println!("xtask: {restored} files are as in the last run, and as old");
    Ok(())
}

fn restore_from(results: &Path, root: &Path) -> Result<usize> {
    let Ok(noted) = fs::read_to_string(results.join(NOTED)) else { return Ok(0) };
    let mut lines = noted.lines();
    let is_of_here = lines.next() == Some(&root.display().to_string());
    let last = lines.next().and_then(time);
    if !is_of_here || last.is_none_or(|last| newest_result(results) > last) {
        return Ok(0);
    }
    let noted: BTreeMap<&str, &str> =
        lines.filter_map(|line| line.split_once(' ')).map(|(at, file)| (file, at)).collect();
    let mut restored = 0;
    for file in contents(root)? {
        if let Some(at) = noted.get(file.as_str()).and_then(|at| time(at)) {
            let path = root.join(name(&file));
            let set = fs::File::open(&path).and_then(|opened| opened.set_modified(at));
            set.with_context(|| format!("cannot set the time of {}", path.display()))?;
            restored += 1;
        }
    }
    Ok(restored)
}

/// Notes the times and contents of all files, when nothing is built any more.
///
/// # Errors
/// When git does not list the files, or they cannot be noted.
pub(crate) fn note(root: &Path) -> Result<()> {
    results(root)?.map_or(Ok(()), |results| note_in(&results, root))
}

fn note_in(results: &Path, root: &Path) -> Result<()> {
    let mut text = format!("{}\n{}\n", root.display(), nanoseconds(SystemTime::now())?);
    for file in contents(root)? {
        let at = fs::metadata(root.join(name(&file)))?.modified()?;
        text.push_str(&format!("{} {file}\n", nanoseconds(at)?));
    }
    fs::write(results.join(NOTED), text).with_context(|| format!("cannot write into {}", results.display()))
}

/// The folder of build results, if that is outside the checkout.
fn results(root: &Path) -> Result<Option<PathBuf>> {
    Ok(Some(process::target_folder(root)?).filter(|results| !results.starts_with(root)))
}

/// Each plain file of others whose content is the one that git knows: mode, hash, and name.
fn contents(root: &Path) -> Result<Vec<String>> {
    let git = |words: &[&str]| process::output(Command::new("git").args(words).current_dir(root));
    // If times differ from those that git knows, it compares the contents; a changed file makes it fail.
    let _ = git(&["update-index", "-q", "--refresh"]);
    let changed = git(&["diff-files", "--name-only"])?;
    let changed: Vec<&str> = changed.lines().collect();
    let listed = git(&["ls-files", "--stage"])?;
    let counts = |file: &&str| {
        file.starts_with("100") && !name(file).starts_with(OWN_FILES) && !changed.contains(&name(file))
    };
    Ok(listed.lines().filter(counts).map(str::to_owned).collect())
}

/// The name in a line of [`contents`].
fn name(file: &str) -> &str {
    file.split_once('\t').map_or(file, |(_, name)| name)
}

/// When cargo compiled last.
fn newest_result(results: &Path) -> SystemTime {
    let entries =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let profiles =
        entries(results).chain(entries(results).flat_map(|folder| entries(&folder).collect::<Vec<_>>()));
    let units = profiles.flat_map(|profile| entries(&profile.join(".fingerprint")).collect::<Vec<_>>());
    let is_own =
        |unit: &PathBuf| unit.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OWN_RESULTS));
    let files = units.filter(|unit| !is_own(unit)).flat_map(|unit| entries(&unit).collect::<Vec<_>>());
    let times = files.filter_map(|file| fs::metadata(file).and_then(|metadata| metadata.modified()).ok());
    times.max().unwrap_or(UNIX_EPOCH)
}

fn nanoseconds(at: SystemTime) -> Result<u128> {
    Ok(at.duration_since(UNIX_EPOCH).context("a file is older than 1970")?.as_nanos())
}

fn time(nanoseconds: &str) -> Option<SystemTime> {
    Some(UNIX_EPOCH + Duration::from_nanos(nanoseconds.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkout with two files, and results of its last run.
    fn checkout() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (root, results) = (folder.path().join("checkout"), folder.path().join("results"));
        fs::create_dir_all(results.join("debug/.fingerprint/unit-1")).unwrap();
        fs::create_dir(&root).unwrap();
        fs::create_dir(root.join("xtask")).unwrap();
        for file in ["one.rs", "two.rs", "xtask/main.rs"] {
            fs::write(root.join(file), file).unwrap();
        }
        git(&root, &["init", "-q"]);
        git(&root, &["add", "."]);
        note_in(&results, &root).unwrap();
        (folder, root, results)
    }

    fn git(root: &Path, words: &[&str]) {
        process::run(Command::new("git").args(words).current_dir(root)).unwrap();
    }

    fn modified(path: &Path) -> SystemTime {
        fs::metadata(path).unwrap().modified().unwrap()
    }

    /// As a new clone has it.
    fn touch(path: &Path) -> SystemTime {
        let later = modified(path) + Duration::from_secs(60);
        fs::File::open(path).unwrap().set_modified(later).unwrap();
        later
    }

    #[test]
    fn a_file_of_the_same_content_has_its_time_back_and_a_changed_one_has_not() {
        let (_folder, root, results) = checkout();
        let before = modified(&root.join("one.rs"));
        fs::write(root.join("two.rs"), "changed").unwrap();
        touch(&root.join("one.rs"));
        let later = touch(&root.join("two.rs"));
        assert_eq!(restore_from(&results, &root).unwrap(), 1);
        assert_eq!(modified(&root.join("one.rs")), before);
        // Known to git or not.
        git(&root, &["add", "."]);
        assert_eq!(restore_from(&results, &root).unwrap(), 1);
        assert_eq!(modified(&root.join("two.rs")), later);
    }

    #[test]
    fn nothing_is_restored_after_another_build_or_elsewhere() {
        let (_folder, root, results) = checkout();
        let moved = root.with_file_name("moved");
        fs::rename(&root, &moved).unwrap();
        assert_eq!(restore_from(&results, &moved).unwrap(), 0);
        fs::rename(&moved, &root).unwrap();
        let own = results.join("debug/.fingerprint/xtask-1");
        fs::create_dir(&own).unwrap();
        let unit = results.join("debug/.fingerprint/unit-1/invoked.timestamp");
        fs::write(&unit, "").unwrap();
        fs::rename(&unit, own.join("invoked.timestamp")).unwrap();
        assert_eq!(restore_from(&results, &root).unwrap(), 2);
        fs::write(&unit, "").unwrap();
        touch(&unit);
        assert_eq!(restore_from(&results, &root).unwrap(), 0);
    }
}
