//! What the ratchets count: product lines, type names with several meanings, circles of modules, skipped and repeated
//! tests, sentences in assertions, and words that STYLE asks to avoid.

use super::source::SourceFile;
use super::{TextFile, circles};
use crate::programs;
use std::collections::BTreeMap;
use std::ops::Range;

/// A number, and what it counts, one line each.
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) number: usize,
    pub(crate) places: Vec<String>,
}

impl Count {
    fn of(name: impl Into<String>, places: Vec<String>) -> Self {
        Self { name: name.into(), number: places.len(), places }
    }
}

/// How many things a type name may stand for.
const THINGS_MAX: usize = 2;
/// A string literal with more words is a sentence.
const WORDS_MAX: usize = 4;
/// Words to avoid. In pieces, so that this file does not count itself.
const WORDS: [&str; 9] = [
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("who", "ever"),
    concat!("to", "ld"),
    concat!("so ", "many"),
    concat!("be", "side"),
    concat!("let ", "in"),
    concat!("the be", "gin"),
    concat!("gre", "ater thread"),
];

pub(crate) fn all(files: &[TextFile], sources: &[SourceFile]) -> Vec<Count> {
    let mut counts = lines(sources);
    counts.extend(circles::counts(sources));
    counts.push(type_names(sources));
    counts.push(sentences(sources));
    counts.push(skips(sources));
    counts.push(Count::of("repeated-packages", programs::MEASURING.map(str::to_owned).to_vec()));
    counts.extend(words(files));
    counts
}

/// The crate's folder in `crates/NAME/src/…`.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    rest.starts_with("src/").then_some(name)
}

/// Lines of `crates/NAME/src` per crate: without test files and `#[cfg(test)]` modules, with comments and blank lines.
fn lines(sources: &[SourceFile]) -> Vec<Count> {
    let mut crates: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    for source in sources {
        if let Some(name) = crate_of(&source.path) {
            crates.entry(name).or_default().push((source.line_count(), &source.path));
        }
    }
    let count = |(name, mut files): (&str, Vec<(usize, &str)>)| {
        files.sort_unstable();
        let number = files.iter().map(|(lines, _)| lines).sum();
        let places = files.iter().map(|(lines, path)| format!("{lines:>6} {path}")).collect();
        Count { name: format!("lines/{name}"), number, places }
    };
    crates.into_iter().map(count).collect()
}

/// Names of structs, enums, traits, unions and aliases that more than two items of the product have.
fn type_names(sources: &[SourceFile]) -> Count {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter().filter(|source| crate_of(&source.path).is_some()) {
        for (index, line) in source.product_code().lines().enumerate() {
            if let Some(name) = type_name(line) {
                names.entry(name.to_owned()).or_default().push(format!("{}:{}", source.path, index + 1));
            }
        }
    }
    let several = names.into_iter().filter(|(_, places)| places.len() > THINGS_MAX);
    Count::of("type-names", several.map(|(name, places)| format!("{name}: {}", places.join(" "))).collect())
}

/// The name that a line of code defines. An indented `type` belongs to a trait.
fn type_name(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let mut line = line.trim_start();
    if let Some(rest) = line.strip_prefix("pub") {
        line = rest.trim_start();
        if line.starts_with('(') {
            line = line.split_once(')')?.1.trim_start();
        }
    }
    let (kind, rest) = line.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "union"].contains(&kind) || kind == "type" && !is_indented;
    let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (is_type && length > 0).then(|| &rest[..length])
}

/// String literals of more than four words that an assertion compares. Its message does not count.
fn sentences(sources: &[SourceFile]) -> Count {
    let mut places = Vec::new();
    for source in sources {
        let compared: Vec<Range<usize>> = [("assert", 1), ("assert_eq", 2), ("assert_ne", 2)]
            .into_iter()
            .flat_map(|(name, arguments)| compared(source, name, arguments))
            .collect();
        if compared.is_empty() {
            continue;
        }
        for string in source.strings() {
            let text = &source.text[string.clone()];
            let is_compared = compared.iter().any(|place| place.contains(&string.start));
            if is_compared && text.split_whitespace().count() > WORDS_MAX {
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                places.push(format!("{}:{}: {text}", source.path, source.line_of(string.start)));
            }
        }
    }
    Count::of("sentences-in-assertions", places)
}

/// The first arguments of each call of the macro `name`.
fn compared(source: &SourceFile, name: &str, arguments: usize) -> Vec<Range<usize>> {
    let calls = source.words(name).into_iter().map(|start| start + name.len());
    let calls = calls.filter(|start| source.code[*start..].starts_with("!("));
    calls.map(|start| start..arguments_end(&source.code, start + 1, arguments)).collect()
}

/// Where the argument with that number (from 1) ends, of those in the parenthesis at `open`.
fn arguments_end(code: &str, open: usize, arguments: usize) -> usize {
    let (mut depth, mut commas) = (0_usize, 0);
    for (byte, character) in code[open..].char_indices() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 1 => commas += 1,
            _ => continue,
        }
        if depth == 0 || commas == arguments {
            return open + byte;
        }
    }
    code.len()
}

/// Places where a test skips itself.
fn skips(sources: &[SourceFile]) -> Count {
    let mut places = Vec::new();
    for source in sources.iter().filter(|source| !source.path.starts_with("xtask/")) {
        let calls = source.words("skip").into_iter().map(|start| (start, start + "skip".len()));
        let calls = calls.filter(|(_, end)| is_of_need(&source.code[*end..]));
        places.extend(calls.map(|(start, _)| format!("{}:{}", source.path, source.line_of(start))));
    }
    Count::of("skips", places)
}

/// Whether what follows `skip` is a call of `whylate_testing::skip`.
fn is_of_need(rest: &str) -> bool {
    rest.strip_prefix('(').is_some_and(|rest| rest.trim_start().starts_with("Need::"))
}

/// How often each word to avoid occurs in code, texts and documents, except records; and sentences that begin with
/// “Of”.
fn words(files: &[TextFile]) -> Vec<Count> {
    let mut places: BTreeMap<&str, Vec<String>> = WORDS.iter().map(|word| (*word, Vec::new())).collect();
    let mut of = Vec::new();
    let is_prose = |path: &str| [".rs", ".md", ".c", ".h", ".toml"].iter().any(|end| path.ends_with(end));
    let own = |path: &str| path.starts_with("records/") || path.starts_with("fixtures/");
    for file in files.iter().filter(|file| is_prose(&file.path) && !own(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            for (word, places) in &mut places {
                let found = standing(&lower, word);
                places.extend((0..found).map(|_| format!("{}:{}: {}", file.path, index + 1, line.trim())));
            }
            if begins_with_of(line) {
                of.push(format!("{}:{}: {}", file.path, index + 1, line.trim()));
            }
        }
    }
    let counts = places.into_iter().map(|(word, places)| (word.replace(' ', "-"), places));
    let counts = counts.chain([("sentence-of".to_owned(), of)]);
    counts.map(|(word, places)| Count::of(format!("word/{word}"), places)).collect()
}

/// How often the word occurs in the line, also in names of functions.
fn standing(line: &str, word: &str) -> usize {
    let is_part = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    let stands = |at: usize| {
        !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next())
    };
    let spaced = line.match_indices(word).filter(|(at, _)| stands(*at)).count();
    let joined = word.replace(' ', "_");
    let joined = if joined == word { 0 } else { line.matches(&joined).count() };
    spaced + joined
}

fn begins_with_of(line: &str) -> bool {
    let line = line.trim_start().trim_start_matches(['/', '!', '*', '-', '"', '|', '>', ' ']);
    let is_of = |rest: &str| rest.starts_with("Of ") && !rest.starts_with("Of course");
    is_of(line) || [". Of ", "? Of "].iter().any(|mark| line.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile::read(&TextFile { path: path.into(), text: text.into() })
    }

    #[test]
    fn lines_are_those_of_sources_without_tests() {
        let inline = "struct A;\n\n#[cfg(test)]\nmod tests {\n    struct B;\n}\n";
        let counted = lines(&[
            source("crates/a/src/lib.rs", inline),
            source("crates/a/src/tests.rs", inline),
            source("crates/a/tests/b.rs", inline),
            source("xtask/src/main.rs", inline),
        ]);
        let numbers: Vec<_> = counted.iter().map(|count| (count.name.as_str(), count.number)).collect();
        assert_eq!(numbers, [("lines/a", 2)]);
    }

    #[test]
    fn a_type_name_may_stand_for_two_things() {
        let define =
            |path: &str| source(path, "pub(crate) struct Place {\n    type Other = ();\n}\nstruct A;\n");
        let (a, b, c) = ("crates/a/src/a.rs", "crates/b/src/b.rs", "crates/c/src/c.rs");
        assert_eq!(type_names(&[define(a), define(b)]).number, 0);
        let other = source(c, "enum Place<T> {\n}\n#[cfg(test)]\nmod tests {\n    struct A;\n}\n");
        let found = type_names(&[define(a), define(b), other]);
        assert_eq!(found.places, ["Place: crates/a/src/a.rs:1 crates/b/src/b.rs:1 crates/c/src/c.rs:1"]);
    }

    #[test]
    fn sentences_that_are_compared_count() {
        let found = |text: &str| sentences(&[source("crates/a/tests/a.rs", text)]).number;
        assert_eq!(
            found(
                "assert!(text.contains(\"one two three four five\"), \"{text} is not what it has to be\");"
            ),
            1
        );
        assert_eq!(found("assert_eq!(a(b, c), \"one two three four five\");"), 1);
        assert_eq!(found("assert_eq!(a, [\"one two three four\"], \"one two three four five\");"), 0);
        assert_eq!(found("let a = \"one two three four five\"; // assert!(\"one two three four five\")"), 0);
    }

    #[test]
    fn words_stand_alone_or_in_names() {
        let phrase = WORDS[4];
        let line = format!("{phrase}, fn {}_x() in{phrase}y", phrase.replace(' ', "_"));
        assert_eq!(standing(&line, phrase), 2);
        assert_eq!(standing(WORDS[0], WORDS[0]), 1);
        assert_eq!(standing(&format!("{}s", WORDS[5]), WORDS[5]), 0);
        assert!(begins_with_of("/// Of the cells") && begins_with_of("a. Of it"));
        assert!(!begins_with_of("Of course") && !begins_with_of("one of it"));
    }

    #[test]
    fn each_place_that_skips_a_test_counts() {
        let text =
            "fn a() {\n    skip(Need::Cpus, \"one\");\n    b.skip(1); skip(\n        Need::Rights, c)\n}\n";
        assert_eq!(skips(&[source("crates/a/tests/a.rs", text)]).number, 2);
    }
}
