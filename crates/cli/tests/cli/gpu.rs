//! The gpu load with helpers that are missing, of another version, crash or hang. Short scripts stand in for them;
//! `gpu/tests` tests the real one.

use crate::tool::{Said, command, finish, folder, text, whylate};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Runs `whylate load gpu` with a helper that reads its request, reports that it is ready, and then does `what`.
fn with_helper(folder: &TempDir, version: &str, what: &str) -> (Said, Duration) {
    let helper = folder.path().join("helper");
    let ready = format!(r#"{{"ready":{{"pid":1,"at_ns":1,"detail":"a helper","version":"{version}"}}}}"#);
    fs::write(&helper, format!("#!/bin/sh\nread -r request\necho '{ready}'\n{what}\n")).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let begin = Instant::now();
    let mut command = command(&["load", "gpu", "-D", "60", "-q"]);
    command.env("WHYLATE_GPU", text(&helper));
    (finish(command), begin.elapsed())
}

const OWN: &str = env!("CARGO_PKG_VERSION");

#[test]
fn without_a_helper_the_load_is_unavailable() {
    for arguments in [&["load", "gpu", "-D", "1"][..], &["load", "gpu", "--list"]] {
        let mut command = command(arguments);
        command.env("WHYLATE_GPU", "/nonexistent/helper");
        let said = finish(command);
        assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{said:?}");
        assert!(said.stderr.contains("/nonexistent/helper") && said.stderr.lines().count() == 1, "{said:?}");
    }
}

/// The load fails with `error` within 5 s of the helper's last sign of life, in one line.
fn fails_within_5_s(last: &str, error: &str) {
    let folder = folder();
    let sign = folder.path().join("sign");
    let mut took = Duration::MAX;
    // A stalled test machine is not a fault of whylate.
    for _ in 0..3 {
        let what = format!("sleep 0.3; : >{}; {last}", text(&sign));
        let (said, _) = with_helper(&folder, OWN, &what);
        assert!(said.error().contains(error) && said.stderr.lines().count() == 1, "{said:?}");
        took = took.min(fs::metadata(&sign).unwrap().modified().unwrap().elapsed().unwrap());
        if took < Duration::from_secs(5) {
            return;
        }
    }
    panic!("{last}: it was said after {took:?}");
}

#[test]
fn a_helper_that_crashes_fails_the_load() {
    fails_within_5_s("kill -SEGV $$", "signal 11, SIGSEGV");
}

#[test]
fn a_helper_that_says_nothing_any_more_fails_the_load() {
    fails_within_5_s(r#"echo '"alive"'; exec sleep 50"#, "not responded for 4 s");
}

#[test]
fn a_helper_of_another_version_is_refused() {
    let folder = folder();
    let (said, _) = with_helper(&folder, "0.0.1", "exec sleep 50");
    let error = said.error();
    assert!(error.contains("has version 0.0.1") && error.contains(OWN), "{error}");
}

#[test]
fn sizes_and_words_that_make_no_sense_are_refused() {
    for (flags, words) in [
        (&["--size", "1KiB"][..], "--size 1KiB: must be between 4KiB and 4GiB"),
        (&["--memory", "staged"], "--memory staged: `staged` is for `copy-up` and `copy-down` only"),
        (&["--work", "mining"], "choose from reduction, particles, matrix"),
    ] {
        let said = whylate(&[&["load", "gpu"], flags].concat());
        assert!(said.code == Some(1) && said.stderr.contains(words), "{said:?}");
    }
}
