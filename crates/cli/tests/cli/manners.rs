//! What a user expects of any command: files whole or not at all, completions, man pages.

use crate::tool::{command, finish, folder, text, whylate, write};
use std::fs;

#[test]
fn a_shell_completes_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let said = whylate(&["completions", shell]);
        assert_eq!(said.code, Some(0), "{said:?}");
        for word in ["roundtrip", "irq-affinity", "working-set"] {
            assert!(said.stdout.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn every_command_has_a_man_page() {
    let folder = folder();
    let said = whylate(&["man", text(folder.path())]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert!(page("whylate-measure-timer.1").contains("break"));
    assert!(page("whylate.1").contains("whylate"));
}

/// The limit stands in for a full disk.
#[test]
fn a_report_that_cannot_be_written_whole_is_not_left() {
    let folder = folder();
    let result = include_str!("../../../import/tests/files/cyclictest.json");
    let input = write(&folder, "result.json", result);
    let output = folder.path().join("report.html");
    let mut shell = std::process::Command::new("sh");
    // Without the signal, the write fails as on a full disk.
    shell.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" report \"$1\" -o \"$2\""]);
    shell.args([crate::tool::WHYLATE, &input, text(&output)]);
    let said = finish(shell);
    assert!(said.error().contains("cannot write"), "{said:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the input is left");
    let mut whole = command(&["report", &input, "-o", text(&output)]);
    whole.env("NO_COLOR", "1");
    assert_eq!(finish(whole).code, Some(0));
    assert!(fs::read_to_string(&output).unwrap().ends_with("</html>\n"));
}
