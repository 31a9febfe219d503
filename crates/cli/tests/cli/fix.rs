//! `whylate fix` on a machine made of files: tried settings are restored, even after a kill, and the answer can be
//! read again.

use crate::fields::{list, word};
use crate::json::validate;
use crate::tool::{alone, folder, start, text, until, write};
use crate::treat::Fake;
use std::fs;
use whylate_testing::says;

const FILES: &str = "\
== proc/sys/vm/swappiness := 60
== sys/kernel/mm/ksm/run := 1
== sys/kernel/mm/transparent_hugepage/enabled := [always] madvise never
== sys/devices/system/cpu/present := 0-1
== sys/devices/system/cpu/online := 0-1
";

const PLAN: &str = "\
name = \"short\"
duration = \"40ms\"
settle = \"1ms\"
warmup = \"1ms\"
noise_floor = \"0s\"
[target]
cpus = \"0\"
[[probe]]
kind = \"timer\"
policy = \"other\"
";

#[test]
fn a_search_gives_back_what_it_tries_and_can_be_read_again() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let plan = write(&folder, "plan.toml", PLAN);
    let path = folder.path().join("fix");
    let said = fake.whylate(&["fix", &plan, "-o", text(&path), "--yes", "ksm,thp", "--seed", "3", "--json"]);
    let result: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    validate("fix", &result);
    assert_eq!((word(&result, "state"), &result["restored"]), ("complete", &serde_json::json!(true)));
    let ids: Vec<&str> = list(&result, "arms").iter().map(|arm| word(arm, "name")).collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    // The figures of this machine are arbitrary, but every claim has its evidence.
    let proved = list(&result, "claims").iter().filter(|claim| word(claim, "outcome") == "proved");
    for claim in proved {
        let evidence = list(claim, "evidence").last().and_then(serde_json::Value::as_f64);
        assert!(evidence >= claim["needed"].as_f64(), "{claim}");
    }
    let is_proved = word(&result, "answer") == "proved";
    assert_eq!(said.code, Some(if is_proved { 0 } else { 1 }));
    let read = |file: &str| fs::read_to_string(fake.path("root").join(file)).unwrap();
    assert_eq!(read("sys/kernel/mm/ksm/run"), "1\n");
    // A file keeps the written text, where the kernel would show it in brackets.
    assert_eq!(read("sys/kernel/mm/transparent_hugepage/enabled"), "always\n");
    // Read again: the same answer, without a machine.
    let again = fake.whylate(&["fix", "--show", text(&path), "--json"]).stdout;
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again["claims"], &again["recommended"]), (&result["claims"], &result["recommended"]));
    let report = fake.whylate(&["report", text(&path), "--format", "markdown"]);
    assert!(report.code == Some(0) && report.stdout.contains("What was tried"), "{report:?}");
    let other = fake.whylate(&["run", "--resume", text(&path)]);
    assert!(other.error().contains("whylate fix --resume"), "{other:?}");
}

#[test]
fn a_killed_search_is_undone_and_goes_on() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let plan = write(&folder, "plan.toml", &PLAN.replace("40ms", "300ms"));
    let path = folder.path().join("fix");
    let arguments = ["fix", &plan, "-o", text(&path), "--yes", "ksm", "-q", "--budget", "3s"];
    let mut child = start(fake.command(&arguments));
    let merging = || fs::read_to_string(fake.path("root/sys/kernel/mm/ksm/run")).unwrap();
    assert!(until(|| merging() == "0\n"), "the treatment never came");
    child.kill().unwrap();
    child.wait().unwrap();
    let restored = fake.whylate(&["treat", "restore"]);
    assert_eq!((restored.code, merging().as_str()), (Some(0), "1\n"), "{restored:?}");
    let taken = fake.whylate(&arguments);
    let way_on = format!("to continue this run: `whylate fix --resume {}`", text(&path));
    assert!(taken.error().contains(&way_on), "{taken:?}");
    let said = fake.whylate(&["fix", "--resume", text(&path), "--yes", "ksm", "-q", "--json"]);
    let result: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!(word(&result, "state"), "complete", "{said:?}");
    assert_eq!(merging(), "1\n");
}

#[test]
fn what_is_wrong_is_one_line() {
    let fake = Fake::new(FILES);
    let folder = folder();
    let plan = write(&folder, "plan.toml", PLAN);
    let path = folder.path().join("fix");
    for (arguments, expected) in [
        // There is no terminal to ask on; that is reported before the measurement.
        (
            vec!["fix", &plan, "-o", text(&path), "--write", "install"],
            "without a terminal, whylate cannot ask",
        ),
        (vec!["fix", &plan, "--budget", "abc"], "`abc` is not a duration; write for example `30m`"),
        (vec!["fix", &plan, "--budget", "30"], "`30` has no unit; write for example `30m`"),
        (
            vec!["treat", "apply", "cpu-quota", "x", "--percent", "25%"],
            "`25%` is not a whole number; write for example `25`",
        ),
        (vec!["fix", &plan, "--goal", "stall p99"], "the plan measures no `stall`; it has timer"),
        (vec!["fix", &plan, "--goal", "timer p98"], "is not a statistic"),
        (vec!["fix", "--task", "no-such-task"], "no thread is called `no-such-task`"),
        (
            vec!["fix", "--task", "cli", "--goal", "misses"],
            "--goal misses needs the deadline of `cli`, for example --deadline 1ms",
        ),
        (
            vec!["fix", "--campaign", text(folder.path())],
            "give --boot once for each, for example --boot 'isolcpus=1'",
        ),
        (
            vec!["fix", "--campaign", "c", "--boot", "a;b"],
            "`a;b` has characters that boot loaders do not pass on",
        ),
        (vec!["fix", "--campaign", "c", "--boot", ""], "--boot: is empty"),
        (
            vec!["fix", "--campaign", text(folder.path()), "--boot", "isolcpus=1"],
            "is not empty; name an empty folder, or one that does not exist",
        ),
        (vec!["fix", "--show", text(folder.path())], "run.json"),
    ] {
        let said = fake.whylate(&arguments);
        assert!(said.code != Some(0) && said.stderr.contains(expected), "{arguments:?}: {said:?}");
    }
    assert!(!path.exists(), "nothing was measured");
}

#[test]
fn copied_settings_are_looked_at_and_given_back() {
    let _alone = alone();
    let fake = Fake::new(FILES);
    let folder = folder();
    let plan = write(&folder, "plan.toml", PLAN);
    let copied = "# from somewhere\nvm.swappiness = 10\nkernel.nowhere = 1\nvm.swappines = 1\n";
    let profile = write(&folder, "99-copied.conf", copied);
    let path = folder.path().join("audit");
    let words = [
        "fix",
        &plan,
        "-o",
        text(&path),
        "--audit",
        &profile,
        "--yes",
        "all",
        "--seed",
        "3",
        "--budget",
        "4s",
    ];
    let said = fake.whylate(&[&words[..], &["--json"]].concat());
    let result: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    validate("fix", &result);
    assert_eq!(
        (said.code, word(&result, "answer"), word(&result, "mode")),
        (Some(0), "audited", "audit"),
        "{said:?}"
    );
    let ids: Vec<&str> = list(&result, "results").iter().map(|it| word(it, "id")).collect();
    assert_eq!(ids, ["vm.swappiness"]);
    let left: Vec<&str> = list(&result, "left_out").iter().map(|it| word(it, "id")).collect();
    assert_eq!(left, ["kernel.nowhere", "vm.swappines"]);
    assert!(
        list(&result, "claims")
            .iter()
            .all(|claim| word(claim, "phase") == "without" || word(claim, "phase") == "reduce")
    );
    let read = |file: &str| fs::read_to_string(fake.path("root").join(file)).unwrap();
    assert_eq!(read("proc/sys/vm/swappiness"), "60\n");
    let report = fake.whylate(&["fix", "--show", text(&path)]);
    assert!(
        report.stdout.contains("What each setting does") && report.stdout.contains("line 2"),
        "{report:?}"
    );
    let broken = write(&folder, "broken.conf", "hello world\nvm.swappiness = 1\n");
    let refused = fake.whylate(&["fix", &plan, "--audit", &broken]);
    assert!(refused.code == Some(1) && says("line-hello-world-not", &refused.stderr), "{refused:?}");
}

/// A machine that is booted by writing its files: the script keeps the settings of the next boot.
const LOADER: &str = r#"#!/bin/sh
case $1 in
once) printf '%s' "$WHYLATE_BOOT_APPEND" >"${0%/*}/next" ;;
forget) rm -f "${0%/*}/next" ;;
reboot) echo reboot >>"${0%/*}/said" ;;
esac
"#;

fn booted(fake: &Fake, boot: u32) {
    let next = fs::read_to_string(fake.path("next")).unwrap_or_default();
    let _ = fs::remove_file(fake.path("next"));
    let set = |path: &str, text: String| fs::write(fake.path("root").join(path), text).unwrap();
    set("proc/cmdline", format!("ro quiet {next}\n"));
    set("proc/sys/kernel/random/boot_id", format!("boot-{boot}\n"));
}

#[test]
fn a_campaign_boots_measures_and_leaves_nothing_behind() {
    let _alone = alone();
    let fake = Fake::new(&format!(
        "{FILES}== proc/cmdline := ro quiet\n== proc/sys/kernel/osrelease := 6.1.0\n== proc/sys/kernel/random/boot_id := boot-0\n"
    ));
    let folder = folder();
    let plan = write(&folder, "plan.toml", PLAN);
    let loader = fake.path("loader");
    fs::write(&loader, LOADER).unwrap();
    fs::set_permissions(&loader, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.path().join("campaign");
    let (path, loader) = (text(&path), text(&loader));
    let refused =
        fake.whylate(&["fix", &plan, "--campaign", path, "--boot", "isolcpus=0", "--boot-loader", loader]);
    assert!(
        refused.stderr.contains("add `--yes all`") && !folder.path().join("campaign").exists(),
        "{refused:?}"
    );
    let nowhere = [
        "fix",
        &plan,
        "--campaign",
        path,
        "--boot",
        "isolcpus=0",
        "--boot-loader",
        "/nowhere",
        "--yes",
        "all",
    ];
    let refused = fake.whylate(&nowhere);
    assert!(
        says("there-no-such-file", refused.error()) && !folder.path().join("campaign").exists(),
        "{refused:?}"
    );
    let begin = [
        "fix",
        &plan,
        "--campaign",
        path,
        "--boot",
        "isolcpus=0",
        "--boot",
        "nohz_full=0",
        "--boot-loader",
        loader,
        "--yes",
        "all",
        "--budget",
        "4s",
        "--seed",
        "3",
    ];
    let said = fake.whylate(&begin);
    assert!(said.code == Some(0) && said.stderr.contains("booting now"), "{said:?}");
    let unit = fake.path("root/etc/systemd/system/whylate-campaign.service");
    assert!(fs::read_to_string(&unit).unwrap().contains("continue.sh"));
    let again = fake.whylate(&begin);
    assert!(again.error().contains("already has a campaign"), "{again:?}");
    let search = folder.path().join("campaign/search");
    let goes_on = format!("whylate fix --campaign {path} --continue");
    let shown = fake.whylate(&["fix", "--show", text(&search)]);
    assert!(shown.stderr.contains(&goes_on) && !shown.stderr.contains("--resume"), "{shown:?}");
    let resumed = fake.whylate(&["fix", "--resume", text(&search)]);
    assert!(resumed.error().contains(&goes_on), "{resumed:?}");
    let mut ended = None;
    for boot in 1..60 {
        assert!(fs::read_to_string(fake.path("next")).unwrap().contains("whylate.boot="));
        booted(&fake, boot);
        let said = fake.whylate(&["fix", "--campaign", path, "--continue", "--json"]);
        if said.stdout.contains("whylate.fix/1") {
            ended = Some(serde_json::from_str::<serde_json::Value>(&said.stdout).unwrap());
            break;
        }
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let result = ended.expect("it ends with its budget");
    assert_eq!(
        (word(&result, "state"), &result["restored"]),
        ("complete", &serde_json::json!(true)),
        "{result}"
    );
    assert!(result["repeats"].as_u64() > Some(1), "{result}");
    assert!(!unit.exists() && !fake.path("next").exists());
    // It ended in a boot of the campaign: the default entry is booted next.
    let boots = fs::read_to_string(fake.path("said")).unwrap().lines().count() as u64;
    assert_eq!(Some(boots), result["repeats"].as_u64().map(|repeats| repeats + 1));
    let over = fake.whylate(&["fix", "--campaign", path, "--continue"]);
    assert!(over.error().contains("has ended"), "{over:?}");
    let shown = fake.whylate(&["fix", "--show", text(&folder.path().join("campaign/search"))]);
    assert!(shown.stdout.contains("isolcpus=0"), "{shown:?}");
}

/// A thread of this process that sleeps and wakes up until the value is dropped.
struct Napper(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Napper {
    fn start(name: &str) -> Self {
        let goes_on = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let flag = goes_on.clone();
        let nap = move || {
            while flag.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(nap).unwrap();
        Self(goes_on)
    }
}

impl Drop for Napper {
    fn drop(&mut self) {
        self.0.store(false, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn a_task_of_the_user_is_what_is_searched_for() {
    let _alone = alone();
    let _napper = Napper::start("fixed-nap");
    let fake = Fake::new(FILES);
    let folder = folder();
    let path = folder.path().join("fix");
    let words = [
        "fix",
        "--task",
        "fixed-nap",
        "--goal",
        "misses",
        "--deadline",
        "1us",
        "--set",
        "duration=200ms",
        "--set",
        "settle=1ms",
        "--yes",
        "ksm",
        "--budget",
        "4s",
        "-o",
        text(&path),
        "--json",
    ];
    let said = fake.whylate(&words);
    if said.code == Some(69) {
        assert!(said.stderr.contains("tasks cannot be watched") && !path.exists(), "{said:?}");
        return;
    }
    let result: serde_json::Value = serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    validate("fix", &result);
    assert_eq!(
        (word(&result, "state"), &result["restored"]),
        ("complete", &serde_json::json!(true)),
        "{said:?}"
    );
    assert_eq!(word(&result, "goal"), "task spikes_per_h");
    // Every nap takes more than a microsecond.
    let pairs = list(&result["claims"][0], "pairs");
    assert!(!pairs.is_empty() && pairs.iter().all(|pair| pair[0].as_f64() > Some(0.0)), "{result}");
    let run = fake.whylate(&["report", text(&path), "--json"]).stdout;
    assert!(run.contains("task/fixed-nap") && !run.contains("task/cli"), "{run}");
}
