//! SECURITY.md, sentence by sentence: each promise lists its tests. What no other file tries is tried here.

use crate::tool::{Said, alone, command, finish, folder, start, text, wait, whylate, write};
use crate::treat::Fake;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use whylate_lab::archive;
use whylate_testing::{Need, skip};

const OTHER_USER: u32 = 12_345;
const ATTACKS: &str =
    "crates/cli/tests/cli/attacks.rs another_user_can_neither_steer_nor_hold_off_what_root_does";
const DAMAGE: &str =
    "crates/treat/tests/treat/damage.rs a_damaged_journal_never_passes_for_a_restored_machine";
const CLAIMS: &str = "crates/treat/src/claims.rs nothing_else_is";
const STORE: &str =
    "crates/store/tests/store/attacks.rs what_replaces_a_file_is_not_read_and_no_reader_waits_for_it";
const SERVE: &str = "crates/serve/tests/attacks.rs hostile_requests_are_answered_and_nothing_raw_comes_back";
const SWAPS: &str = "crates/serve/tests/attacks.rs a_folder_that_another_user_changes_while_it_is_read_leaks_nothing_and_holds_nothing_up";
const SLOW: &str = "crates/serve/tests/attacks.rs silent_and_slow_clients_lose_their_connection_within_seconds_and_others_are_answered";
const PLANS: &str = "crates/cli/tests/cli/bad_input.rs root_does_not_run_the_commands_of_others_unasked";
const PROGRAMS: &str = "crates/cli/tests/cli/bad_input.rs root_runs_no_program_that_the_user_of_sudo_named";
const HERE: &str = "crates/cli/tests/cli/security.rs";

/// A part of a promise, and the tests that try it, each `FILE TEST`.
const PROMISES: &[(&str, &[&str])] = &[
    ("which settings root's `whylate` has changed", &[ATTACKS]),
    (
        "run `whylate` with their own rights",
        &["crates/cli/tests/cli/unprivileged.rs without_rights_it_measures_and_says_what_was_lost"],
    ),
    ("make root's `whylate` write or undo anything", &[ATTACKS]),
    ("change root's journal", &[ATTACKS]),
    ("hold up root's treatments or `restore`", &[ATTACKS]),
    ("reach the socket of root's `whylate histograms`", &[ATTACKS]),
    ("obey their environment", &[ATTACKS, PROGRAMS]),
    (
        "crash the program",
        &[
            "crates/trace/tests/containers.rs no_damage_ends_the_program",
            "crates/trace/tests/text_properties.rs no_bytes_panic",
            "crates/report/tests/explain.rs names_stay_text",
            ATTACKS,
        ],
    ),
    (
        "do what a trace cannot",
        &[
            "crates/store/tests/store/damage.rs no_content_makes_the_reader_panic",
            "crates/report/tests/html.rs names_from_the_result_stay_text",
        ],
    ),
    (
        "pass off altered tables (checksums",
        &["crates/store/tests/store/damage.rs every_changed_byte_is_noticed"],
    ),
    ("bring in outside files", &[STORE]),
    ("remove runs, and add files that are not shown", &[SWAPS]),
    (
        "belong to neither root nor the server's user",
        &["crates/store/tests/store/attacks.rs files_of_other_users_are_not_read_where_only_own_ones_are"],
    ),
    ("have files read behind a link", &[SWAPS]),
    ("hold a connection for 10 s", &[SLOW]),
    (
        "read anything",
        &["crates/cli/tests/cli/serve.rs other_sites_and_readers_without_the_token_get_nothing"],
    ),
    ("be redirected to another site", &[SERVE]),
    ("send terminal controls through a refusal", &[SERVE]),
    (
        "Root is asked first",
        &[PLANS, "crates/cli/tests/cli/security.rs root_goes_on_with_no_run_that_another_user_can_exchange"],
    ),
    (
        "so too for `--resume`",
        &[
            "crates/cli/tests/cli/security.rs root_goes_on_with_no_run_that_another_user_can_exchange",
            "crates/cli/tests/cli/security.rs root_searches_with_no_settings_that_another_user_can_write",
        ],
    ),
    (
        "Campaigns that another user can write or exchange are refused",
        &["crates/cli/tests/cli/security.rs root_goes_on_with_no_campaign_that_another_user_can_write"],
    ),
    (
        "name a setting that runs programs",
        &["crates/cli/tests/cli/bad_input.rs settings_that_run_programs_or_cannot_go_back_are_refused"],
    ),
    (
        "triggers an action (`drop_caches`",
        &["crates/treat/src/kinds/refused.rs programs_acts_and_one_way_switches_are_refused"],
    ),
    (
        "cannot be changed back",
        &["crates/treat/src/kinds/refused.rs programs_acts_and_one_way_switches_are_refused"],
    ),
    (
        "does not accept its former value",
        &["lab/tests/lab/treat.rs treat_walks_over_the_settings_of_the_kernel"],
    ),
    (
        "mode 0755, files 0644 whatever the umask",
        &[
            "crates/cli/tests/cli/security.rs the_journal_is_readable_by_all_and_writable_by_root_whatever_the_umask",
        ],
    ),
    (
        "Every folder on its path belongs to root or the user",
        &[ATTACKS, "crates/sys/src/private.rs what_others_can_write_to_is_refused"],
    ),
    ("Links, hard links, pipes, sockets and others' files are refused", &[ATTACKS]),
    (
        "Each line has a number and a checksum",
        &["crates/treat/src/journal/lines_tests.rs no_mutation_is_taken_for_a_journal"],
    ),
    (
        "A damaged journal is undone as far as it can be read",
        &[DAMAGE, "crates/cli/tests/cli/treat.rs a_damaged_journal_is_exit_3_and_kept"],
    ),
    ("is only what whylate can have changed", &[CLAIMS]),
    (
        "Anything else in a journal is reported and not touched",
        &["crates/treat/tests/treat/damage.rs a_journal_cannot_cause_a_write_that_no_treatment_makes"],
    ),
    (
        "a command opens the folder once",
        &["crates/store/src/folder/way.rs nothing_is_opened_behind_a_link_with_and_without_openat2"],
    ),
    (
        "Only regular files are read, without waiting",
        &[
            STORE,
            "crates/serve/tests/attacks.rs pipes_devices_and_silent_sockets_in_a_run_hold_nothing_up",
            "crates/cli/tests/cli/security.rs commands_on_a_run_wait_for_no_pipe_and_read_no_device",
        ],
    ),
    (
        "Root reads no hard link that another user can have made",
        &["crates/cli/tests/cli/security.rs root_reads_no_hard_link_of_another_user"],
    ),
    (
        "Root writes new runs through no link or folder of another user",
        &["crates/cli/tests/cli/shared_runs.rs another_user_has_root_neither_read_nor_write_behind_a_link"],
    ),
    (
        "are next to the journal, where containers",
        &[
            "crates/cli/tests/cli/treat.rs a_container_with_its_own_run_folder_and_processes_does_not_restore_under_a_run",
            ATTACKS,
        ],
    ),
    (
        "counts only in its own PID namespace and boot",
        &[
            "crates/cli/tests/cli/treat.rs a_container_with_its_own_run_folder_and_processes_does_not_restore_under_a_run",
            "crates/treat/tests/treat/guard.rs after_a_reboot_nothing_is_left_to_undo",
        ],
    ),
    ("are ignored, with a warning", &[ATTACKS]),
    ("restarts itself without", &[PROGRAMS]),
    (
        "They are cached in",
        &[
            "crates/store/tests/store/listed.rs a_verdict_of_the_cache_counts_only_while_no_file_of_the_run_has_changed",
        ],
    ),
    (
        "Verdicts of a list",
        &[
            "crates/store/tests/store/listed.rs a_verdict_that_was_edited_and_a_run_with_missing_data_are_listed_as_they_are_reported",
        ],
    ),
    (
        "are looked for at fixed places, never through `PATH`",
        &["crates/cli/tests/cli/security.rs a_program_of_root_is_not_looked_for_in_path"],
    ),
    (
        "goes out through one function",
        &["crates/core/src/text.rs nothing_that_does_not_show_gets_out", ATTACKS],
    ),
    ("In JSON they are escapes", &["crates/core/src/text.rs a_json_document_says_the_same"]),
];

/// What is not promised: what others can do anyway.
const GIVEN: [&str; 3] = ["be wrong", "everything", "Read another user's plan"];

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The sentences of SECURITY.md about what can and cannot happen.
fn promises(document: &str) -> Vec<String> {
    let section = |name: &str| {
        let (_, rest) = document.split_once(&format!("## {name}\n")).unwrap();
        rest.split("\n## ").next().unwrap().to_owned()
    };
    let table = section("What it protects, and from whom");
    let rows = table.lines().filter(|line| line.starts_with("| **"));
    let cells = rows
        .flat_map(|row| row.trim_matches('|').split(" | ").skip(1).map(str::to_owned).collect::<Vec<_>>());
    let believed = section("What whylate believes").split_whitespace().collect::<Vec<_>>().join(" ");
    let bullets = believed.split("- **").skip(1).map(|it| format!("**{it}"));
    let sentences = |text: String| text.split(". ").map(str::to_owned).collect::<Vec<_>>();
    let parts = |cell: String| cell.split("; ").flat_map(|it| sentences(it.to_owned())).collect::<Vec<_>>();
    let all: Vec<String> = cells.flat_map(parts).chain(bullets.flat_map(sentences)).collect();
    all.into_iter().filter(|it| it.chars().filter(char::is_ascii_alphabetic).count() > 3).collect()
}

#[test]
fn every_promise_has_a_test_and_every_test_is_there() {
    let document = fs::read_to_string(top().join("SECURITY.md")).unwrap();
    let promises = promises(&document);
    assert!(promises.len() > 35, "{promises:#?}");
    let is_tried = |promise: &String| PROMISES.iter().any(|(part, _)| promise.contains(part));
    let is_given = |promise: &String| GIVEN.iter().any(|part| promise.contains(part));
    let untried: Vec<&String> = promises.iter().filter(|it| !is_tried(it) && !is_given(it)).collect();
    assert!(untried.is_empty(), "without a test: {untried:#?}");
    let mut files = BTreeMap::new();
    for (part, tests) in PROMISES {
        assert!(promises.iter().any(|it| it.contains(part)), "SECURITY.md does not promise `{part}`");
        assert!(!tests.is_empty(), "{part}");
        for test in *tests {
            let (file, name) = test.split_once(' ').unwrap();
            let text = files.entry(file).or_insert_with(|| fs::read_to_string(top().join(file)).unwrap());
            let is_there = text.contains(&format!("fn {name}(")) || text.contains(&format!("\"{name}\""));
            assert!(is_there, "{part}: there is no {test}");
        }
    }
    assert!(files.contains_key(HERE));
}

fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(Need::Rights, what);
    }
    is_root
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

const PLAN: &str = "name = \"tiny\"\nduration = \"50ms\"\nrepeats = 1\nsettle = \"1ms\"\nwarmup = \"1ms\"\n[[probe]]\nkind = \"timer\"\ninterval = \"5ms\"\n";

fn run(folder: &Path, plan: &str, name: &str) -> PathBuf {
    fs::write(folder.join("plan.toml"), plan).unwrap();
    let path = folder.join(name);
    let said = whylate(&["run", text(&folder.join("plan.toml")), "-o", text(&path), "-q"]);
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    path
}

/// "The journal (…, mode 0755, files 0644 whatever the umask; …)", "Locks (0600)".
#[test]
fn the_journal_is_readable_by_all_and_writable_by_root_whatever_the_umask() {
    let folder = folder();
    let files = "== proc/sys/kernel/random/boot_id := one\n== proc/sys/vm/swappiness := 60\n";
    archive::unpack(files, &folder.path().join("root")).unwrap();
    for (number, umask) in ["000", "077"].into_iter().enumerate() {
        let state = folder.path().join(format!("state-{number}"));
        let treat = |arguments: &str| {
            let line = format!("umask {umask}; {} treat {arguments}", crate::tool::WHYLATE);
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &line]);
            shell.env("WHYLATE_HOST_ROOT", folder.path().join("root")).env("WHYLATE_STATE_DIR", &state);
            assert_eq!(finish(shell).code, Some(0), "{arguments}");
        };
        treat("apply sysctl vm.swappiness 1");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let journal = state.join("journal");
        assert_eq!(mode(&journal), 0o755, "umask {umask}");
        for found in fs::read_dir(&journal).unwrap() {
            let path = found.unwrap().path();
            let expected = if path.extension().is_some_and(|it| it == "lock") { 0o600 } else { 0o644 };
            assert_eq!(mode(&path), expected, "umask {umask}: {}", path.display());
        }
        treat("restore");
    }
}

/// "Root is asked first (or gives `--trust-plan`) if another user can write the plan or exchange a folder on its
/// path": also for the plan of a continued run.
#[test]
fn root_goes_on_with_no_run_that_another_user_can_exchange() {
    if !is_root("only root can have a run of another user") {
        return;
    }
    let folder = folder();
    mode(folder.path(), 0o755);
    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    let plan = format!(
        "{PLAN}[[load]]\nname = \"l\"\nkind = \"exec\"\ncommand = [\"touch\", \"made\"]\n[[cell]]\nloads = [\"l\"]\n"
    );
    let path = run(&open, &plan, "run");
    let cut = |path: &Path| {
        let info =
            fs::read_to_string(path.join("run.json")).unwrap().replace("\"complete\"", "\"interrupted\"");
        fs::write(path.join("run.json"), info).unwrap();
    };
    cut(&path);
    let go_on = |arguments: &[&str]| {
        let mut again = command(&[&["run", "--resume", text(&path), "-q"], arguments].concat());
        again.env_remove("SUDO_UID").current_dir(folder.path());
        finish(again)
    };
    let refuses = |attempt: &str| {
        let said = go_on(&[]);
        assert!(said.code == Some(1) && !said.stderr.is_empty(), "{attempt}: {said:?}");
        assert!(!folder.path().join("made").exists(), "{attempt}");
        said
    };
    mode(&open, 0o777);
    assert!(refuses("a folder that others can exchange").stderr.contains("--trust-plan"));
    mode(&open, 0o755);
    chown(path.join("run.json"), Some(OTHER_USER), None).unwrap();
    assert!(refuses("a plan of another user").stderr.contains("--trust-plan"));
    chown(path.join("run.json"), Some(0), None).unwrap();
    chown(&path, Some(OTHER_USER), None).unwrap();
    refuses("a run of another user");
    assert_eq!(go_on(&["--trust-plan"]).code, Some(1), "root writes into no folder of another user");
    chown(&path, Some(0), Some(OTHER_USER)).unwrap();
    mode(&path, 0o775);
    refuses("a run that a group can exchange");
}

/// "so too for `--resume`, `fix --verify` and the settings of `fix --audit`".
#[test]
fn root_searches_with_no_settings_that_another_user_can_write() {
    if !is_root("only root can have files of another user") {
        return;
    }
    let _alone = alone();
    let fake = Fake::new(
        "== proc/sys/vm/swappiness := 60\n== sys/devices/system/cpu/present := 0\n== sys/devices/system/cpu/online := 0\n",
    );
    let folder = folder();
    mode(folder.path(), 0o755);
    let plan = write(&folder, "plan.toml", PLAN);
    let settings = write(&folder, "copied.conf", "vm.swappiness = 10\n");
    let path = folder.path().join("search");
    let audit =
        ["fix", &plan, "--audit", &settings, "-o", text(&path), "--yes", "all", "--budget", "1s", "-q"];
    let asks = |arguments: &[&str]| {
        let said = fake.whylate(arguments);
        let asks = said.stderr.contains("--trust-plan");
        assert!(!asks || said.code == Some(1) && said.stderr.contains("vm.swappiness = 10"), "{said:?}");
        asks
    };
    mode(Path::new(&settings), 0o664);
    assert!(asks(&audit) && !path.exists());
    mode(Path::new(&settings), 0o644);
    assert!(!asks(&audit) && path.exists());
    let info = path.join("run.json");
    let mut document: serde_json::Value = serde_json::from_str(&fs::read_to_string(&info).unwrap()).unwrap();
    // The plan of a search may name none of the settings with which it continues.
    for treatments in [document["plan"]["treatment"].clone(), serde_json::json!([])] {
        (document["plan"]["treatment"], document["state"]) = (treatments, serde_json::json!("interrupted"));
        fs::write(&info, document.to_string()).unwrap();
        for words in [["fix", "--resume"], ["fix", "--verify"]] {
            let go_on = [&words[..], &[text(&path), "-q"]].concat();
            mode(&path, 0o777);
            assert!(asks(&go_on), "{words:?}: a folder that others can exchange");
            mode(&path, 0o755);
            chown(&info, Some(OTHER_USER), None).unwrap();
            assert!(asks(&go_on), "{words:?}: a plan of another user");
            assert!(!asks(&[&go_on[..], &["--trust-plan"]].concat()), "{words:?}");
            chown(&info, Some(0), None).unwrap();
        }
    }
}

/// The same for a campaign, which also names the script that boots the machine.
#[test]
fn root_goes_on_with_no_campaign_that_another_user_can_write() {
    if !is_root("only root can have files of another user") {
        return;
    }
    let fake = Fake::new(
        "== proc/sys/kernel/random/boot_id := one\n== proc/sys/kernel/osrelease := 6.1.0\n== proc/cmdline := quiet\n== sys/devices/system/cpu/present := 0\n== sys/devices/system/cpu/online := 0\n",
    );
    let folder = folder();
    mode(folder.path(), 0o755);
    let plan = write(&folder, "plan.toml", PLAN);
    let loader = write(&folder, "loader", "#!/bin/sh\necho \"$1\" >>\"${0%/*}/said\"\n");
    mode(Path::new(&loader), 0o755);
    let path = folder.path().join("c");
    let campaign = |words: &[&str]| fake.whylate(&[&["fix", "--campaign", text(&path)], words].concat());
    let ran = || fs::read_to_string(folder.path().join("said")).unwrap_or_default().lines().count();
    let begin = [&plan[..], "--boot", "isolcpus=1", "--boot-loader", &loader, "--yes", "all", "--trust-plan"];
    let refuses = |words: &[&str], what: &str| {
        let before = ran();
        let said = campaign(words);
        assert!(said.code == Some(1) && said.stderr.contains("as root"), "{what}: {said:?}");
        assert_eq!(ran(), before, "{what}: its script ran");
    };
    mode(folder.path(), 0o777);
    refuses(&begin, "a folder in one of others");
    mode(folder.path(), 0o755);
    chown(&loader, Some(OTHER_USER), None).unwrap();
    refuses(&begin, "a script of another user");
    chown(&loader, Some(0), None).unwrap();
    assert!(!path.exists());
    let said = campaign(&begin);
    assert!(said.code == Some(0) && ran() > 0, "{said:?}");
    let note = path.join("campaign.json");
    for words in ["--continue", "--remove"] {
        chown(&note, Some(OTHER_USER), None).unwrap();
        refuses(&[words], "a campaign of another user");
        chown(&note, Some(0), None).unwrap();
        mode(&path, 0o775);
        refuses(&[words], "a campaign that a group can exchange");
        mode(&path, 0o755);
    }
    assert_eq!(campaign(&["--remove"]).code, Some(0));
}

/// "Only regular files are read, without waiting (`O_NONBLOCK`)": by each command that reads a run.
#[test]
fn commands_on_a_run_wait_for_no_pipe_and_read_no_device() {
    let folder = folder();
    let path = run(folder.path(), PLAN, "run");
    let files = [
        "run.json",
        "manifest.jsonl",
        "result.json",
        "labels.json",
        "intervals",
        "fix.jsonl",
        "treatments.jsonl",
    ];
    for name in files {
        let there = path.join(name);
        let kept = folder.path().join("kept");
        let was_there = fs::rename(&there, &kept).is_ok();
        for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice] {
            // /dev/zero, which has no end.
            let device = rustix::fs::makedev(1, 5);
            if mknodat(CWD, &there, kind, Mode::from_raw_mode(0o666), device).is_err() {
                continue;
            }
            for arguments in [
                &["report", text(&path)][..],
                &["report", text(&path), "--json"],
                &["compare", text(&path), text(&path)],
                &["runs", "--dir", text(folder.path())],
                &["export", text(&path), "-o", text(&folder.path().join("out"))],
                &["explain", text(&path)],
                &["run", "--resume", text(&path)],
                &["runs", "tag", text(&path), "a"],
            ] {
                let begun = Instant::now();
                let child = start(command(arguments));
                let said: Said = wait(child);
                assert!(said.code.is_some_and(|code| code < 128), "{name} {kind:?} {arguments:?}: {said:?}");
                assert!(begun.elapsed() < Duration::from_secs(60), "{name} {kind:?} {arguments:?}");
            }
            drop(fs::remove_file(&there));
        }
        if was_there {
            drop(fs::remove_file(&there).or_else(|_| fs::remove_dir_all(&there)));
            fs::rename(&kept, &there).unwrap();
        }
    }
}

/// "Root reads no hard link that another user can have made."
#[test]
fn root_reads_no_hard_link_of_another_user() {
    if !is_root("only root reads what others cannot") {
        return;
    }
    let folder = folder();
    let path = run(folder.path(), PLAN, "run");
    let secret = folder.path().join("secret");
    fs::write(&secret, "{\"tags\": [\"secret-of-root\"], \"note\": null}").unwrap();
    mode(&secret, 0o600);
    fs::hard_link(&secret, path.join("labels.json")).unwrap();
    chown(&path, Some(OTHER_USER), None).unwrap();
    let said = whylate(&["runs", "--dir", text(folder.path()), "--json"]);
    assert!(!said.stdout.contains("secret-of-root") && !said.stderr.contains("secret-of-root"), "{said:?}");
}

/// "Programs that root runs for itself (`nvidia-smi`) are looked for at fixed places, never through `PATH`."
#[test]
fn a_program_of_root_is_not_looked_for_in_path() {
    let folder = folder();
    let program = write(&folder, "nvidia-smi", "#!/bin/sh\ntouch \"$(dirname \"$0\")/ran\"\n");
    mode(Path::new(&program), 0o755);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    for arguments in
        [&["check"][..], &["treat", "apply", "gpu-power", "0000:01:00.0", "--dry-run"], &["cpus"]]
    {
        let mut asked = command(arguments);
        asked.env("PATH", &path);
        finish(asked);
        assert!(!folder.path().join("ran").exists(), "{arguments:?}");
    }
}
