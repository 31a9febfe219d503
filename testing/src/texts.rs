//! One reviewed file of texts per crate, `texts.txt`: a test names a text by a key, and the sentence is in the file.
//! So a text changes in one place, and a reviewer reads all of them at once.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

/// `accept` writes texts that differ into the file instead of failing; delete the file first to lose unused keys.
const MODE: &str = "WHYLATE_TEXTS";
/// A longer text is a page: a part of it goes into the file by hand.
const LENGTH_MAX: usize = 500;
/// In the file: any characters, or none.
const ANY: char = '…';
const HEAD: &str = "\
# What users read, by the keys of this crate's tests; … stands for any characters. After a change of texts:
# WHYLATE_TEXTS=accept cargo test -p CRATE, and review the difference.
";

/// Whether the text is the one with that key in `texts.txt` of the package under test.
///
/// # Panics
/// When it is another one; with `WHYLATE_TEXTS=accept`, when the file cannot be written.
#[track_caller]
pub fn says(key: &str, text: impl Display) -> bool {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let path = folder.join("texts.txt");
    let text = text.to_string().replace('\n', "\\n");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = parse(&found).remove(key);
    if expected.as_deref().is_some_and(|pattern| is_match(pattern, &text)) {
        return true;
    }
    if text.len() <= LENGTH_MAX && std::env::var_os(MODE).is_some_and(|mode| mode == "accept") {
        accept(&path, key, &text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return true;
    }
    panic!("text `{key}` differs from texts.txt\nfile: {}\ntest: {text}", expected.as_deref().unwrap_or("-"));
}

fn parse(file: &str) -> BTreeMap<String, String> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.filter_map(|line| line.split_once(": "));
    rows.map(|(key, text)| (key.to_owned(), text.to_owned())).collect()
}

fn is_match(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split(ANY);
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

/// Writes the text under its key; other tests may do so at the same time.
fn accept(path: &Path, key: &str, text: &str) -> std::io::Result<()> {
    let mut file = std::fs::File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    let mut found = String::new();
    file.read_to_string(&mut found)?;
    let mut texts = parse(&found);
    texts.insert(key.to_owned(), masked(text));
    let rows: String = texts.iter().map(|(key, text)| format!("{key}: {text}\n")).collect();
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(format!("{HEAD}{rows}").as_bytes())
}

/// Paths of temporary folders differ each time.
fn masked(text: &str) -> String {
    let folder = std::env::temp_dir().display().to_string();
    let mask = |word: &str| match word.split_once(&folder) {
        Some((before, path)) => {
            let length =
                path.find(|c: char| !c.is_alphanumeric() && !"/._-".contains(c)).unwrap_or(path.len());
            format!("{before}{ANY}{}", &path[length..])
        }
        None => word.to_owned(),
    };
    text.split(' ').map(mask).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_characters_match() {
        for pattern in ["one two", "…two", "one…", "…ne t…", "…", "o…e…o", "one two…"] {
            assert!(is_match(pattern, "one two"), "{pattern}");
        }
        for pattern in ["", "one", "two…", "…one", "one…one", "one two…two"] {
            assert!(!is_match(pattern, "one two"), "{pattern}");
        }
    }

    #[test]
    fn an_accepted_text_matches_in_another_folder() {
        let path = std::env::temp_dir().join(format!("whylate-texts-{}", std::process::id()));
        accept(&path, "b", "it is `/usr`").unwrap();
        accept(&path, "a", &format!("`{}/x1/run.json`: gone", std::env::temp_dir().display())).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, format!("{HEAD}a: `…`: gone\nb: it is `/usr`\n"));
        assert!(is_match(&parse(&text)["a"], "`/var/y/run.json`: gone"));
    }
}
