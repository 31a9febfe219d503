//! Runs the commands of the README and of the documents for newcomers as a reader types them: blocks that begin with
//! `sh test`, one page in one folder, in order, with short durations. Another test checks that the command line
//! understands every other command.

use crate::tool::{Said, alone, command, finish, folder, text, whylate};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use whylate_testing::{Need, skip};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of the fenced blocks whose first line says `info`.
fn blocks(page: &str, info: &str) -> Vec<String> {
    let fenced = page.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| Some(block.strip_prefix(info)?.strip_prefix('\n')?.to_owned())).collect()
}

/// Commands measure for a shorter time than a reader would.
fn shortened(line: &str) -> Vec<String> {
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    for index in 1..words.len() {
        if words[index - 1] == "--duration" {
            "300ms".clone_into(&mut words[index]);
        }
    }
    if words.first().is_some_and(|word| word == "run") && !words.iter().any(|word| word == "--dry-run") {
        let short = ["duration=150ms", "repeats=2", "settle=20ms", "warmup=20ms", "noise_floor=50ms"];
        words.extend(short.into_iter().flat_map(|value| ["--set".to_owned(), value.to_owned()]));
    }
    words
}

/// Runs one line; `>` writes to a file of the folder.
fn run(line: &str, place: &TempDir) -> Said {
    let line = line.split("  #").next().unwrap_or_default();
    let (line, file) = line.split_once(" > ").map_or((line, None), |(line, file)| (line, Some(file.trim())));
    let words = shortened(line.strip_prefix("whylate ").expect("a command of whylate"));
    let mut process = command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    process
        .current_dir(place.path())
        .env("HOME", place.path())
        .env("XDG_DATA_HOME", place.path().join("data"));
    process.env("WHYLATE_STATE_DIR", place.path().join("state"));
    let said = finish(process);
    if let Some(file) = file {
        fs::write(place.path().join(file), &said.stdout).expect("the folder can be written");
    }
    said
}

/// Runs what a page says works anywhere. A verdict is not a failure: 2 is a limit or an unfit machine, 1 with an
/// answer is "cannot tell".
fn try_page(path: &str) -> usize {
    let page = fs::read_to_string(root().join(path)).expect(path);
    let place = folder();
    for plan in blocks(&page, "toml") {
        if let Some(name) = plan.lines().next().and_then(|line| line.strip_prefix("# ")) {
            fs::write(place.path().join(name), &plan).expect("the folder can be written");
        }
    }
    let blocks = blocks(&page, "sh test");
    let lines: Vec<&str> =
        blocks.iter().flat_map(|block| block.lines()).filter(|line| !line.is_empty()).collect();
    for line in &lines {
        let said = run(line, &place);
        let failed = said.stderr.lines().any(|line| line.starts_with("whylate: "));
        assert!(matches!(said.code, Some(0..=2)) && !failed, "{path}: {line}: {said:?}");
        assert!(said.code != Some(1) || !said.stdout.is_empty(), "{path}: {line}: {said:?}");
    }
    lines.len()
}

#[test]
fn commands_of_the_documents_run() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return skip(Need::Cpus, "the documents measure CPU 1, and there is one CPU");
    }
    let _alone = alone();
    let mut pages = ["README.md", "docs/TUTORIAL.md", "docs/FARM.md"].map(str::to_owned).to_vec();
    let audiences = fs::read_dir(root().join("docs/for")).expect("docs/for").flatten();
    pages.extend(audiences.map(|entry| format!("docs/for/{}", entry.file_name().to_string_lossy())));
    for page in pages {
        assert!(try_page(&page) > 0, "{page} has no block of commands that run anywhere");
    }
}

/// A link from one document to another has a target.
#[test]
fn links_between_documents_lead_somewhere() {
    let mut pages = vec![root().join("README.md"), root().join("packaging/README.md")];
    let folders = ["docs", "docs/cases", "docs/causes", "docs/for"].map(|folder| root().join(folder));
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder").flatten()) {
        pages.push(entry.path());
    }
    pages.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    let mut links = 0;
    for path in pages {
        let page = fs::read_to_string(&path).expect("a page");
        let targets = page.split("](").skip(1).filter_map(|part| part.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let file = path.with_file_name("").join(target.split('#').next().unwrap_or_default());
            assert!(file.exists(), "{}: no {target}", path.display());
            links += 1;
        }
    }
    assert!(links > 50, "{links}");
}

/// The site's table of contents has each page for readers.
#[test]
fn the_list_of_contents_has_every_page() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("docs/SUMMARY.md");
    for folder in ["", "cases/", "causes/", "for/"] {
        for entry in fs::read_dir(root().join("docs").join(folder)).expect("a folder").flatten() {
            let name = format!("{folder}{}", entry.file_name().to_string_lossy());
            if name.ends_with(".md") && name != "SUMMARY.md" {
                assert!(summary.contains(&format!("]({name})")), "docs/SUMMARY.md lacks {name}");
            }
        }
    }
}

/// The archive for maintainers has what was shown, and nothing is written before the user has read that.
#[test]
fn a_report_for_maintainers_is_shown_and_packed() {
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/runs/format-1");
    let folder = folder();
    let path = folder.path().join("x.tar.gz");
    let asked = ["report", run, "--for-maintainer", "-o", text(&path)];
    let said = whylate(&asked);
    assert!(said.code == Some(1) && said.stdout.contains("plan.toml") && !path.exists(), "{said:?}");
    let said = whylate(&[&asked[..], &["--yes"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let packed = fs::read(&path).expect("it is written");
    let plain = flate2::read::GzDecoder::new(packed.as_slice());
    let mut archive = tar::Archive::new(plain);
    let mut files: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("a file");
        let name = entry.path().expect("a name").display().to_string();
        let mut content = String::new();
        std::io::Read::read_to_string(&mut entry, &mut content).expect("a text");
        files.insert(name, content);
    }
    let shown = whylate(&["report", run, "--for-maintainer"]).stdout;
    assert_eq!(files.get("whylate-report/report.md").map(|it| it.trim_end()), Some(shown.trim_end()));
    let plan: toml::Value = toml::from_str(&files["whylate-report/plan.toml"]).expect("a plan");
    assert!(plan.get("name").is_some(), "{plan}");
}
