//! Tests and steps that skipped themselves: they append to a file in the target folder, and the suite ends with their count.

use crate::process;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use whylate_testing::Need;

/// Where the lines are.
pub(crate) fn path(root: &Path) -> Result<PathBuf> {
    Ok(process::target_folder(root)?.join("xtask-skips"))
}

/// Forgets those of the run before.
pub(crate) fn clear(root: &Path) -> Result<()> {
    let path = path(root)?;
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Notes and prints that a step is skipped.
pub(crate) fn note(root: &Path, step: &str, need: Need, reason: &str) -> Result<()> {
    println!("skipped: {step}: {reason}");
    whylate_testing::append(&path(root)?, step, need, reason).context("cannot note a skipped step")
}

/// `3 tests skipped themselves: 2 run as root; 1 install chromium`; each line of a test counts once.
pub(crate) fn summary(root: &Path) -> Result<String> {
    let path = path(root)?;
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let shown = summary_of(&text);
    Ok(if text.is_empty() { shown } else { format!("{shown} (reasons: {})", path.display()) })
}

fn summary_of(text: &str) -> String {
    let parts = text.lines().filter_map(|line| {
        let mut parts = line.split('\t');
        Some((parts.next()?, parts.next()?))
    });
    let skipped: BTreeSet<(&str, &str)> = parts.collect();
    let mut remedies: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, remedy) in &skipped {
        *remedies.entry(remedy).or_default() += 1;
    }
    let tests = skipped.iter().map(|(test, _)| test).collect::<BTreeSet<_>>().len();
    if tests == 0 {
        return "no test skipped itself".to_owned();
    }
    let mut remedies: Vec<(usize, &str)> =
        remedies.into_iter().map(|(remedy, count)| (count, remedy)).collect();
    remedies.sort_unstable_by(|a, b| b.cmp(a));
    let remedies: Vec<String> = remedies.iter().map(|(count, remedy)| format!("{count}: {remedy}")).collect();
    format!("{tests} skipped themselves; to enable {}", remedies.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_by_what_enables_them() {
        assert_eq!(summary_of(""), "no test skipped itself");
        let text = "a\trun as root\tx\nb\trun as root\ty\na\trun as root\tz\nc\tinstall curl\tno curl\n";
        assert_eq!(summary_of(text), "3 skipped themselves; to enable 2: run as root; 1: install curl");
    }
}
