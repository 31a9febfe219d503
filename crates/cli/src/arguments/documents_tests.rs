//! The command line takes every command of whylate that a document shows.

use super::Arguments;
use clap::Parser as _;
use clap::error::ErrorKind;
use std::path::{Path, PathBuf};

/// Markdown below a folder, or the file itself.
fn pages(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).expect("the folder can be read").flatten();
        entries.for_each(|entry| pages(&entry.path(), found));
    } else if path.extension().is_some_and(|ending| ending == "md") {
        found.push(path.to_owned());
    }
}

/// The contents of blocks of shell commands, and text between backticks elsewhere.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, part) in page.split("```").enumerate() {
        if index.is_multiple_of(2) {
            found.extend(part.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " ")));
        } else if let Some(lines) = part.strip_prefix("sh\n") {
            let joined = lines.replace("\\\n", " ");
            found.extend(joined.lines().map(|line| line.trim_start_matches("sudo ").to_owned()));
        }
    }
    // An actor of that name.
    found.retain(|command| command != "whylate itself");
    found.retain(|command| command.starts_with("whylate ") && !command.contains(['…', '|', '*']));
    found
}

/// The words of a command up to any shell syntax; `None` if a word in capitals is a placeholder.
fn words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut quote = None;
    let mut word = String::new();
    for c in command.chars().chain([' ']) {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None, ' ') if [">", "&&", "&", "#", ";"].contains(&word.as_str()) => break,
            (None, ' ') if !word.is_empty() => words.push(std::mem::take(&mut word)),
            (None, ' ') => {}
            (_, c) => word.push(c),
        }
    }
    let stands_for =
        |word: &String| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c == '-');
    (!words.iter().any(stands_for)).then_some(words)
}

#[test]
fn every_command_of_the_documents_is_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md"), root.join("SECURITY.md")];
    pages(&root.join("docs"), &mut found);
    // These speak of flags that several commands share.
    let others = ["/adr/", "ARCHITECTURE.md", "FORMAT.md", "METHODOLOGY.md"];
    found.retain(|path| !others.iter().any(|other| path.to_string_lossy().contains(other)));
    let mut known = 0;
    for path in found {
        let page = std::fs::read_to_string(&path).expect("a page");
        for words in commands(&page).iter().filter_map(|command| words(command)) {
            known += 1;
            if let Err(error) = Arguments::try_parse_from(&words) {
                let is_help = [
                    ErrorKind::DisplayHelp,
                    ErrorKind::DisplayVersion,
                    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                    ErrorKind::MissingSubcommand,
                    // A family or a command is named, not run.
                    ErrorKind::MissingRequiredArgument,
                ];
                assert!(is_help.contains(&error.kind()), "{}: {words:?}: {error}", path.display());
            }
        }
    }
    assert!(known > 50, "only {known} commands were found");
}

#[test]
fn commands_are_found_as_a_reader_finds_them() {
    let page = "Try `whylate run`.\n\n```sh\nwhylate report latest -o 'a b.html'  # a page\nls\n```\n";
    let found: Vec<_> = commands(page).iter().filter_map(|command| words(command)).collect();
    assert_eq!(found, [vec!["whylate", "run"], vec!["whylate", "report", "latest", "-o", "a b.html"]]);
    assert_eq!(words("whylate explain --why KIND"), None);
}
