//! Copies of a machine's /proc and /sys as one text, from which a fake root is unpacked.
//!
//! Such a text can be written by hand for a machine that is not available, and read in review:
//!
//! ```text
//! # before the first header: comments
//! == proc/cmdline
//! root=/dev/sda1 quiet
//! == sys/devices/system/cpu/cpu{0-3,8}/online := 1
//! == proc/self/ns/pid -> pid:[4026531836]
//! ```
//!
//! A header names a file, given in the lines up to the next header (a trailing empty line is dropped), or on the same
//! line after `:=`, or the target of a symbolic link after `->`. A CPU list in braces stands for several files with
//! the same text. `\0` in a text stands for a NUL byte.

use std::io;
use std::path::{Path, PathBuf};
use whylate_core::cpus::CpuSet;

/// An archive that cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A line is not in the form above.
    #[error("host archive, line {line}: {problem}")]
    Line {
        /// Line in the archive, from 1.
        line: usize,
        problem: String,
    },
    #[error("{}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What an archive holds at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    File(String),
    /// A symbolic link to this target.
    Link(String),
}

/// Reads an archive into `(path, entry)`, in the order of the text; paths are relative.
///
/// # Errors
/// [`ArchiveError::Line`] with the line: text before the first header, a path that is empty or leaves the root,
/// or braces that hold no CPU list.
pub fn parse(text: &str) -> Result<Vec<(String, Entry)>, ArchiveError> {
    let mut entries = Vec::new();
    let mut open: Option<(Vec<String>, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let fail = |problem: String| ArchiveError::Line { line: index + 1, problem };
        if let Some(header) = line.strip_prefix("== ") {
            close(&mut entries, open.take());
            if let Some((path, value)) = header.split_once(" :=") {
                let file = Entry::File(unescape(value.trim_start_matches(' ')) + "\n");
                entries.extend(expand(path).map_err(fail)?.into_iter().map(|path| (path, file.clone())));
            } else if let Some((path, target)) = header.split_once(" -> ") {
                let link = Entry::Link(target.trim().to_owned());
                entries.extend(expand(path).map_err(fail)?.into_iter().map(|path| (path, link.clone())));
            } else {
                open = Some((expand(header).map_err(fail)?, String::new()));
            }
        } else if let Some((_, content)) = &mut open {
            content.push_str(line);
            content.push('\n');
        } else if !line.is_empty() && !line.starts_with('#') {
            return Err(fail(format!("`{line}` belongs to no file; a header is `== path`")));
        }
    }
    close(&mut entries, open);
    Ok(entries)
}

/// Unpacks an archive below `folder`.
pub fn unpack(text: &str, folder: &Path) -> Result<(), ArchiveError> {
    for (path, entry) in parse(text)? {
        let path = folder.join(path);
        let fail = |source| ArchiveError::Write { path: path.clone(), source };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(fail)?;
        }
        match &entry {
            Entry::File(content) => std::fs::write(&path, content).map_err(fail)?,
            Entry::Link(target) => std::os::unix::fs::symlink(target, &path).map_err(fail)?,
        }
    }
    Ok(())
}

fn close(entries: &mut Vec<(String, Entry)>, open: Option<(Vec<String>, String)>) {
    let Some((paths, content)) = open else { return };
    let content = content.strip_suffix("\n\n").map(|start| format!("{start}\n")).unwrap_or(content);
    let file = Entry::File(unescape(&content));
    entries.extend(paths.into_iter().map(|path| (path, file.clone())));
}

fn unescape(text: &str) -> String {
    text.replace("\\0", "\0")
}

/// `cpu{0-1}/a{2,3}` as four paths.
fn expand(path: &str) -> Result<Vec<String>, String> {
    let path = path.trim();
    let parts = path.split('/');
    if path.is_empty() || path.starts_with('/') || parts.clone().any(|part| part.is_empty() || part == "..") {
        return Err(format!("`{path}` is not a relative path below the root"));
    }
    let Some((before, rest)) = path.split_once('{') else {
        return Ok(vec![path.to_owned()]);
    };
    let (list, after) = rest.split_once('}').ok_or_else(|| format!("`{path}`: no closing brace"))?;
    let cpus: CpuSet = list.parse().map_err(|error| format!("{error}"))?;
    let mut paths = Vec::new();
    for cpu in cpus.iter() {
        paths.extend(expand(&format!("{before}{cpu}{after}"))?);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_braces_links_and_texts() {
        let text =
            "# a machine\n\n== a/cpu{0,2}/x := 1\n== b\nline 1\n\nline 3\n\n== c -> ../d\n== e\nx\\0y\n";
        let file = |text: &str| Entry::File(text.to_owned());
        let expected = [
            ("a/cpu0/x", file("1\n")),
            ("a/cpu2/x", file("1\n")),
            ("b", file("line 1\n\nline 3\n")),
            ("c", Entry::Link("../d".to_owned())),
            ("e", file("x\0y\n")),
        ];
        assert_eq!(parse(text).unwrap(), expected.map(|(path, entry)| (path.to_owned(), entry)));
    }

    #[test]
    fn wrong_archives_name_the_line() {
        let cases = [("x\n", 1), ("== a := 1\n== ../b := 1\n", 2), ("== /etc/passwd\n", 1), ("== a{0-\n", 1)];
        for (text, expected) in cases {
            match parse(text) {
                Err(ArchiveError::Line { line, .. }) => assert_eq!(line, expected, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(== [a-c{}0-9/.-]{0,9}( := | -> )?[a-z]{0,3}\n|\\PC{0,9}\n){0,6}") {
            let _ = parse(&text);
        }
    }
}
