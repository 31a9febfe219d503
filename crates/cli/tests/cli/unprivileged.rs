//! Without the right to real-time priority and locked memory: a warning, or an error when `--strict` asks for it.

use crate::fields::{codes, list, word};
use crate::tool::{SMALL_PLAN, Said, WHYLATE, alone, copy_program, finish, folder, victim};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use whylate_testing::{Need, says, skip};

/// A user without rights, on every Linux system.
const OTHER_USER: &str = "65534";

/// The binary where all users may run it, or why this cannot be tried.
struct Unprivileged {
    folder: TempDir,
}

impl Unprivileged {
    fn new() -> Result<Self, String> {
        let folder = folder();
        let program = folder.path().join("whylate");
        copy_program(WHYLATE, &program).map_err(|error| error.to_string())?;
        let everybody = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(folder.path(), everybody).map_err(|error| error.to_string())?;
        let it = Self { folder };
        let said = it.shell("true").map_err(|error| format!("cannot run as another user: {error}"))?;
        if said.code != Some(0) {
            return Err(format!("cannot run as another user: {}", said.stderr.trim()));
        }
        Ok(it)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a line of shell as a user who may neither raise priorities nor lock memory.
    fn shell(&self, line: &str) -> Result<Said, String> {
        self.shell_with(&[], line)
    }

    /// The same with these capabilities (`bpf`), which only root can give.
    fn shell_with(&self, capabilities: &[&str], line: &str) -> Result<Said, String> {
        let line = format!("ulimit -r 0 2>/dev/null; ulimit -l 0 && {line}");
        let all: String = capabilities.iter().map(|capability| format!(",+{capability}")).collect();
        let all = format!("-all{all}");
        let is_root = rustix::process::geteuid().is_root();
        let mut command = if is_root {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", OTHER_USER, "--regid", OTHER_USER, "--clear-groups", "--no-new-privs"]);
            command.args([
                "--inh-caps",
                &all,
                "--ambient-caps",
                &all,
                "--bounding-set",
                &all,
                "sh",
                "-c",
                &line,
            ]);
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", &line]);
            command
        };
        command.current_dir(self.path()).env("NO_COLOR", "1").env("XDG_DATA_HOME", self.path());
        if is_root && Command::new("setpriv").arg("--version").output().is_err() {
            return Err("there is no `setpriv` here".to_owned());
        }
        Ok(finish(command))
    }
}

#[test]
fn without_rights_it_measures_and_says_what_was_lost() {
    let _alone = alone();
    let user = match Unprivileged::new() {
        Ok(user) => user,
        Err(reason) => return skip(Need::Rights, reason),
    };
    for probe in ["timer", "stall"] {
        let said = user.shell(&format!("./whylate measure {probe} -D 200ms --json")).unwrap();
        let result = said.json();
        let codes = codes(&result);
        for code in ["no-realtime-priority", "no-memory-lock"] {
            assert_eq!(codes.iter().filter(|it| *it == code).count(), 1, "{probe}: {codes:?}");
        }
        assert!(result["cpus"][0]["samples"].as_u64().unwrap() > 0);
        assert_eq!(result["facts"]["privileges"]["root"], false);
    }
    fs::write(user.path().join("plan.toml"), SMALL_PLAN).unwrap();
    let said =
        user.shell("./whylate run plan.toml --set duration=100ms --set repeats=1 -o kept --json").unwrap();
    let codes = codes(&said.json());
    assert!(codes.iter().any(|code| code == "no-realtime-priority"), "{codes:?}");
}

#[test]
fn strict_refuses_in_one_line() {
    let _alone = alone();
    let user = match Unprivileged::new() {
        Ok(user) => user,
        Err(reason) => return skip(Need::Rights, reason),
    };
    for line in ["measure timer -D 200ms --strict", "measure stall -D 200ms --strict", "run --strict -o kept"]
    {
        let said = user.shell(&format!("./whylate {line}")).unwrap();
        assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{line}: {said:?}");
        let error = said.stderr.as_str();
        assert!(error.contains("--strict"), "{line}: {error}");
        assert!(error.contains("root"), "{line} does not say what to do: {error}");
        assert!(!user.path().join("kept").exists(), "{line}: a directory was made");
    }
}

#[test]
fn treatments_are_refused_and_their_cells_skipped() {
    let _alone = alone();
    let user = match Unprivileged::new() {
        Ok(user) => user,
        Err(reason) => return skip(Need::Rights, reason),
    };
    let before = fs::read_to_string("/proc/sys/vm/stat_interval").unwrap();
    let said = user.shell("./whylate treat apply sysctl vm.stat_interval 9").unwrap();
    assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{said:?}");
    assert!(says("whylate-sysctl-cannot-write", &said.stderr));
    let treatment = "[[treatment]]\nname = \"slow\"\nkind = \"sysctl\"\nkey = \"vm.stat_interval\"\nvalue = \"9\"\n[[cell]]\ntreatments = [\"slow\"]\n[[cell]]";
    fs::write(user.path().join("plan.toml"), SMALL_PLAN.replacen("[[cell]]", treatment, 1)).unwrap();
    let said =
        user.shell("./whylate run plan.toml --set duration=100ms --set repeats=1 -o kept --json").unwrap();
    let result = said.json();
    let reason = result["cells"][0]["skipped"].as_str().unwrap();
    assert!(reason.contains("run as root"), "{reason}");
    assert!(result["cells"][1]["skipped"].is_null());
    assert_eq!(fs::read_to_string("/proc/sys/vm/stat_interval").unwrap(), before);
}

#[test]
fn causes_are_refused_in_one_line() {
    let _alone = alone();
    let user = match Unprivileged::new() {
        Ok(user) => user,
        Err(reason) => return skip(Need::Rights, reason),
    };
    let said = user.shell("./whylate measure timer -D 100ms --causes --json").unwrap();
    assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{}", said.stderr);
    assert_eq!(said.stderr.trim().lines().count(), 1, "{}", said.stderr);
    assert!(said.stderr.contains("--causes"), "{}", said.stderr);
}

#[test]
fn histograms_say_why_they_are_not_possible() {
    let unprivileged = match Unprivileged::new() {
        Ok(it) => it,
        Err(reason) => return skip(Need::Rights, reason),
    };
    for source in ["", "--source bpf", "--source tracefs"] {
        let line = format!("WHYLATE_STATE_DIR=state ./whylate histograms -D 1 --quiet {source}");
        let said = unprivileged.shell(&line).unwrap();
        assert_eq!((said.code, said.stdout.as_str()), (Some(69), ""), "{source}: {said:?}");
        let last = said.stderr.lines().last().unwrap();
        assert!(last.starts_with("whylate: "), "{source}: {said:?}");
    }
}

/// Whether the slack of the thread's timer is known for some spike.
fn names_slack(result: &Value) -> bool {
    // `also` is absent if there is only one cause.
    let others = |spike: &Value| spike["also"].as_array().cloned().unwrap_or_default();
    let causes = |spike: &Value| [vec![spike["cause"].clone()], others(spike)].concat();
    list(result, "spikes").iter().flat_map(causes).any(|cause| word(&cause, "kind") == "timer_slack")
}

#[test]
fn causes_need_two_capabilities_and_nothing_else() {
    let _alone = alone();
    let user = match Unprivileged::new() {
        Ok(user) if rustix::process::geteuid().is_root() => user,
        Ok(_) => return skip(Need::Rights, "only root can give capabilities"),
        Err(reason) => return skip(Need::Rights, reason),
    };
    let line = "./whylate measure timer -i 500 -D 700ms --policy other --causes --json";
    let said = user.shell_with(&["bpf", "perfmon"], line).unwrap();
    if said.code == Some(69) {
        return skip(Need::Rights, said.stderr.trim());
    }
    assert!(names_slack(&said.json()), "an ordinary thread waits for the slack of its timer: {said:?}");
    for one in ["bpf", "perfmon"] {
        let said = user.shell_with(&[one], line).unwrap();
        assert_eq!(said.code, Some(69), "{one}: {said:?}");
    }
}

/// A unit in the documentation.
fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systemd").join(name)
}

#[test]
fn the_unit_gives_the_rights_that_a_measurement_needs() {
    let _alone = alone();
    let user = match Unprivileged::new() {
        Ok(user) if rustix::process::geteuid().is_root() => user,
        Ok(_) => return skip(Need::Rights, "only root can give capabilities"),
        Err(reason) => return skip(Need::Rights, reason),
    };
    let text = fs::read_to_string(unit("whylate-run@.service")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("AmbientCapabilities=")).unwrap();
    let capabilities = line.to_lowercase().replace("cap_", "");
    let capabilities: Vec<&str> = capabilities.split(' ').collect();
    let measured = user.shell_with(&capabilities, "./whylate measure timer -D 200ms --json").unwrap();
    let codes = codes(&measured.json());
    for lost in ["no-realtime-priority", "no-memory-lock"] {
        assert!(!codes.iter().any(|code| code == lost), "{codes:?}");
    }
}

#[test]
fn a_user_watches_only_his_own_programs() {
    let _alone = alone();
    let user = match Unprivileged::new() {
        Ok(user) => user,
        Err(reason) => return skip(Need::Rights, reason),
    };
    let naps = "sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do (:); sleep 0.02; done'";
    let said = user.shell(&format!("./whylate watch -q --json -o run -- {naps}")).unwrap();
    if said.code == Some(69) {
        assert!(said.stderr.contains("perf_event_paranoid") && !user.path().join("run").exists(), "{said:?}");
        return skip(Need::Rights, "the kernel tells ordinary users nothing of their threads");
    }
    let audit = user.shell(&format!("./whylate watch -q --audit -o audited -- {naps}")).unwrap();
    assert!(audit.code == Some(69) && audit.stderr.contains("an audit needs"), "{audit:?}");
    assert!(!user.path().join("audited").exists());
    let result = said.json();
    assert!(codes(&result).iter().any(|code| code == "causes-incomplete"), "{result:#}");
    let probe = &result["cells"][0]["probes"][0];
    let shell = list(probe, "cpus").iter().find(|cpu| cpu["series"] == "sh").unwrap();
    assert!(
        shell["samples"].as_u64().unwrap() >= 8 && shell["task"]["run_ns"].as_u64().unwrap() > 0,
        "{shell:#}"
    );
    assert!(
        shell["task"]["faults"].as_u64().unwrap() > 0,
        "a shell that forks writes to new pages: {shell:#}"
    );
    let parts: Vec<&str> = list(shell, "parts").iter().map(|part| word(part, "part")).collect();
    assert!(parts.contains(&"run") && !parts.contains(&"wakeup"), "no wake-up is known: {parts:?}");
    assert!(!parts.contains(&"blocked"), "nor for what it slept: {parts:?}");
    let kinds = list(probe, "spikes").iter().map(|spike| word(&spike["cause"], "kind"));
    kinds.for_each(|kind| assert!(["own_work", "unattributed"].contains(&kind), "{kind}"));
    if rustix::process::geteuid().is_root() {
        let mut other = Command::new("sleep").arg("60").spawn().unwrap();
        let said = user.shell(&format!("./whylate watch -q -D 1s -o other --pid {}", other.id())).unwrap();
        other.kill().and_then(|()| other.wait()).unwrap();
        assert!(said.code == Some(69) && says("watch-only-your-own", &said.stderr), "{said:?}");
    }
}

#[test]
fn without_rights_a_trigger_finds_the_thread_that_waited_for_a_cpu() {
    let _alone = alone();
    let user = match Unprivileged::new() {
        Ok(user) if rustix::process::geteuid().is_root() => user,
        Ok(_) => return skip(Need::Rights, "only root can give capabilities"),
        Err(reason) => return skip(Need::Rights, reason),
    };
    let Some(late) = victim(user.path(), "late", &["-O1", "-pthread"]) else { return };
    let line = format!(
        "./whylate watch -q --json -o run --trigger output:^late --last 20ms -- {} 1200 thief",
        late.display()
    );
    let said = user.shell_with(&["sys_nice"], &line).unwrap();
    let Some(Ok(result)) = said.stdout.lines().next_back().map(serde_json::from_str::<Value>) else {
        return skip(Need::Rights, said.stderr.trim());
    };
    let trigger = &result["cells"][0]["probes"][0]["triggers"][0];
    // The thief has the CPU when the task is woken: without rights, only the longest possible wait is known.
    let of = |suspect: &&Value| suspect["thread"] == "control" && suspect["cause"]["kind"] == "thread";
    let moments = |suspects: &[&Value]| suspects.iter().filter_map(|it| it["moments"].as_u64()).sum::<u64>();
    let all: Vec<&Value> = list(trigger, "suspects").iter().collect();
    let found: Vec<&Value> = all.iter().copied().filter(of).collect();
    let (found, all) = (moments(&found), moments(&all));
    assert!(all >= 10 && found * 10 >= all * 8, "{found} of {all}: {trigger:#}");
}

/// A program's late cycles do not pass although nothing shows how long it waited for a lock.
fn late_cycles_do_not_pass(flags: &str) {
    let _alone = alone();
    let user = match Unprivileged::new() {
        Ok(user) => user,
        Err(reason) => return skip(Need::Rights, reason),
    };
    let Some(cycle) = victim(user.path(), "cycle", &["-O1", "-pthread"]) else { return };
    let program = "priority=0 middle=rwlock every=10 hold=6000 period=10000 cycles=200";
    let watch = "./whylate watch -q --json -o run --deadline 5ms";
    let said = user.shell(&format!("{watch} {flags} -- {} {program}", cycle.display())).unwrap();
    if said.code == Some(69) {
        return skip(Need::Rights, said.stderr.trim());
    }
    let result: Value = serde_json::from_str(said.stdout.lines().next_back().unwrap()).unwrap();
    let log =
        said.stdout.lines().find(|line| line.starts_with("victim ")).unwrap_or_else(|| panic!("{said:?}"));
    let took_ns = log.split_whitespace().skip(4).flat_map(str::parse::<u64>);
    assert!(took_ns.filter(|took_ns| *took_ns > 6_000_000).count() >= 10, "{log}");
    let rows = list(&result["cells"][0]["probes"][0], "cpus");
    let has_victim = rows.iter().any(|row| word(row, "series").starts_with("victim"));
    assert!(has_victim, "{result:#}");
    assert!(matches!(said.code, Some(1 | 2)), "late cycles passed: {result:#}");
}

#[test]
fn without_rights_late_cycles_do_not_pass_by_period() {
    late_cycles_do_not_pass("--per-period");
}

#[test]
fn without_rights_late_cycles_of_a_thread_that_names_itself_do_not_pass() {
    late_cycles_do_not_pass("--task victim");
}

#[test]
fn systemd_takes_the_units_and_finds_them_closed() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip(Need::Program("systemd"), "there is no `systemd-analyze` here");
    }
    ["run", "watch"].into_iter().for_each(check_unit);
}

fn check_unit(of: &str) {
    // systemd knows it by its file name.
    let folder = folder();
    let copy = folder.path().join(format!("whylate-{of}@x.service"));
    fs::copy(unit(&format!("whylate-{of}@.service")), &copy).unwrap();
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        command.args(arguments).arg(&copy);
        finish(command)
    };
    let verified = analyze(&["verify"]);
    // The binary is not installed at the unit's path.
    let complaints = verified.stderr.lines().filter(|line| !line.contains("/usr/local/bin/whylate"));
    assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&str>::new());
    // Versions before 250 do not have this check.
    let checked = analyze(&["security", "--offline=yes", "--threshold=30"]);
    if !checked.stderr.contains("offline") {
        assert_eq!(checked.code, Some(0), "{checked:?}");
    }
}
