//! The traces of `fixtures/traces` with an expected answer next to them.

use std::fs;
use std::path::{Path, PathBuf};

/// The ending of the file with the answer, after the name of the trace.
pub(crate) const ENDING: &str = ".expected.toml";

/// The files with answers, sorted.
pub(crate) fn answers() -> Vec<PathBuf> {
    let mut found = Vec::new();
    find(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces"), &mut found);
    found.sort();
    found
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder of traces") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            find(&path, found);
        } else if path.to_string_lossy().ends_with(ENDING) {
            found.push(path);
        }
    }
}
