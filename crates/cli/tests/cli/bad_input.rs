//! Wrong input: one clear line, exit code 1, nothing changed.

use crate::tool::{Said, command, finish, folder, text, whylate, write};
use std::fs;
use whylate_testing::{Need, says, skip};

const PLAN: &str = r#"name = "wrong"
duration = "1s"
[target]
cpus = "0"
[[probe]]
kind = "timer"
interval = "200us"
priority = 95
[[load]]
name = "l3"
kind = "memory"
working_set = "1MiB"
[[cell]]
loads = ["l3"]
"#;

/// CPUs of this machine, as messages name them.
fn present() -> String {
    fs::read_to_string("/sys/devices/system/cpu/present").unwrap_or_default().trim().to_owned()
}

/// A CPU number that Linux supports and no test machine has.
const ABSENT: &str = "8000";

/// Messages about wrong command lines; nothing may appear in the current directory.
#[test]
fn wrong_command_lines() {
    let folder = folder();
    let here = |arguments: &[&str]| -> Said {
        let mut command = command(arguments);
        finish({
            command.current_dir(folder.path()).env("XDG_DATA_HOME", folder.path().join("data"));
            command
        })
    };
    let mut transcript = String::new();
    for line in [
        "",
        "frobnicate",
        "run --nope",
        "run nosuch",
        "run no/such.toml",
        "run --set duration",
        "run --set duration=5",
        "run --set durration=5s",
        "run --set probe.timer.priority=100",
        "run --set target.cpus=8000",
        "run --resume nowhere",
        "run quick --resume nowhere",
        "plans nosuch",
        "schema nosuch",
        "report nowhere",
        "compare nowhere .",
        "explain nowhere",
        "explain irqs_off",
        "explain nowhere:idle",
        "explain --why nosuch",
        "report .",
        "report . -o x.pdf",
        "report . -o x.docx",
        "measure timer --cpu 8000",
        "measure timer --cpu 9999",
        "measure timer --cpu 3-1",
        "measure timer --priority 100",
        "measure timer --interval 5x",
        "measure timer --interval 0",
        "measure timer --policy deadlne",
        "measure timer --until-samples 0",
        "measure timer -a 1 -h100",
        "measure timer -H 200 --histfile=x",
        "measure timer -T function",
        "measure timer -v",
        "measure stall --threshold 5x",
        "measure stall --policy deadline",
        "measure dispatch --source gpu",
        "measure dispatch --source uio0",
        "measure dispatch --source rtc --interval 10us",
        "measure dispatch --policy deadline",
        "measure roundtrip --cpus 1",
        "measure roundtrip --cpus 0,0 --method spin",
        "measure roundtrip --method signal",
        "measure roundtrip --on-threshold true",
        "watch --task x --on-late stop",
        "watch --task x --deadline 1ms --on-late echo",
        "watch --task x --deadline 1ms --on-late signal:FOO:1",
        "watch --task x --trigger socket --on-trigger stop --on-trigger snapshot",
        "measure roundtrip --duration 0",
        "load memory --cpus 8000",
        "load memory --working-set 5",
        "load memory --working-set 64 --kind copy",
        "load memory --access raed",
        "load memory --rate 0MB/s",
        "load tlb --rate 1000",
        "load tlb --victims 8000",
        "load ipi --reach all",
        "load irq-thread --source gpu",
        "load exec",
        "load exec -- /no/such/program",
        "load exec --rate-pattern ([0-9 -- true",
        "load exec --rate-pattern [0-9]+ -- true",
    ] {
        let said = here(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "whylate {line}: {said:?}");
        // The argument parser adds the usage; everything else is one line.
        let is_usage = said.stderr.contains("\nFor more information, try '--help'.") || line.is_empty();
        assert!(is_usage || said.error().len() < 400, "whylate {line}");
        // Without arguments the whole help is printed; its first line is enough here.
        let shown = if line.is_empty() {
            said.stderr.lines().next().unwrap_or_default()
        } else {
            said.stderr.trim_end()
        };
        transcript.push_str(&format!("$ whylate {line}\n{shown}\n\n"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "whylate {line} left something");
    }
    let transcript = transcript.replace(&format!("has {}", present()), "has <PRESENT>");
    insta::assert_snapshot!("wrong_command_lines", transcript.replace(&present_words(), "<PRESENT>"));
}

/// The words with which the message about an absent CPU names the present ones.
fn present_words() -> String {
    let said = whylate(&["measure", "timer", "--cpu", ABSENT]);
    let error = said.error().to_owned();
    let at =
        error.rfind(&present()).unwrap_or_else(|| panic!("the CPUs of this machine are not named: {error}"));
    error[at..at + present().len()].to_owned()
}

#[test]
fn wrong_plans_say_file_line_and_column() {
    let folder = folder();
    let mut transcript = String::new();
    for (from, to) in [
        ("interval = \"200us\"", "intervall = \"200us\""),
        ("duration = \"1s\"", "duration = \"1 fortnight\""),
        ("duration = \"1s\"", "duration = 1"),
        ("priority = 95", "priority = 100"),
        ("loads = [\"l3\"]", "loads = [\"l4\"]"),
        ("working_set = \"1MiB\"", "working_set = \"1MeB\""),
        ("kind = \"memory\"", "kind = \"memroy\""),
        ("cpus = \"0\"", "cpus = \"8000\""),
        ("name = \"wrong\"", "name = = 3"),
        ("[[cell]]", "[[treatment]]\nname = \"x\"\n[[cell]]"),
    ] {
        assert!(PLAN.contains(from), "{from}");
        write(&folder, "plan.toml", &PLAN.replacen(from, to, 1));
        let mut command = command(&["run", "plan.toml", "-o", "out"]);
        command.current_dir(folder.path());
        let said = finish(command);
        transcript.push_str(&format!("{to}\n    {}\n", said.error()));
        assert!(!folder.path().join("out").exists(), "{to}: a directory was made");
    }
    insta::assert_snapshot!("wrong_plans", transcript.replace(&present_words(), "<PRESENT>"));
}

#[test]
fn an_offline_cpu_is_named() {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default().trim().to_owned();
    let count = |list: &str| list.parse::<whylate_core::CpuSet>().unwrap();
    let offline = count(&present()).difference(&count(&online));
    let Some(cpu) = offline.first() else {
        skip(Need::Machine("a machine with an offline CPU"), "every CPU of this machine is online");
        return;
    };
    let error = whylate(&["measure", "timer", "--cpu", &cpu.to_string()]).error().to_owned();
    assert!(error.contains(&format!("CPU {cpu} is offline")), "{error}");
}

#[test]
fn an_occupied_directory_is_left_alone() {
    let folder = folder();
    let notes = write(&folder, "notes.txt", "mine");
    let place = text(folder.path());
    for taken in [place, notes.as_str()] {
        let said = whylate(&["run", "quick", "-q", "-o", taken]);
        let error = said.error();
        assert!(error.contains(taken) && error.contains("-o DIR"), "{error}");
        assert!(!error.contains("--resume"), "there is no run to go on with: {error}");
    }
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_command_of_a_load_never_writes_over_a_file() {
    let folder = folder();
    let notes = write(&folder, "notes.txt", "mine");
    let said = whylate(&["load", "exec", "-o", &notes, "--", "sh", "-c", "echo more"]);
    assert!(said.error().contains(&notes), "{said:?}");
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");
}

#[test]
fn a_damaged_run_says_where() {
    let folder = folder();
    let path = write(&folder, "run.json", "{\"format\": \"whylate.run-directory/1\"");
    let said = whylate(&["report", text(folder.path())]);
    assert!(said.error().contains(&path), "{said:?}");
    write(&folder, "run.json", "{\"format\": \"whylate.run-directory/99\"}");
    let said = whylate(&["report", text(folder.path())]);
    assert!(said.error().contains("`whylate.run-directory/99`"), "{said:?}");
}

/// Only root can make such a plan, and only root is asked.
#[test]
fn root_does_not_run_the_commands_of_others_unasked() {
    let folder = folder();
    let path = folder.path().join("plan.toml");
    let load = "kind = \"exec\"\ncommand = [\"touch\", \"made\"]\n";
    fs::write(&path, PLAN.replace("kind = \"memory\"\nworking_set = \"1MiB\"\n", load)).unwrap();
    if !rustix::process::geteuid().is_root() || std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
        skip(Need::Rights, "only root can have a plan of another user");
        return;
    }
    let mut asked = command(&["run", path.to_str().unwrap(), "-o", "run"]);
    let said = finish({
        asked.current_dir(folder.path()).env_remove("SUDO_UID");
        asked
    });
    let error = said.error();
    assert!(says("user-can-write-this", error) && error.contains("touch made"), "{error}");
    assert!(error.contains("add `--trust-plan`") && !folder.path().join("run").exists(), "{error}");
    let asked = |mode: u32, folder_mode: u32, text: &str| {
        fs::write(&path, text).unwrap();
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        let set = |path: &std::path::Path, mode| {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        set(&path, mode);
        set(folder.path(), folder_mode);
        let mut run = command(&["run", path.to_str().unwrap(), "-o", "run"]);
        run.current_dir(folder.path()).env_remove("SUDO_UID");
        finish(run).stderr
    };
    let commands = PLAN.replace("kind = \"memory\"\nworking_set = \"1MiB\"\n", load);
    assert!(asked(0o664, 0o755, &commands).contains("group 0"));
    assert!(asked(0o646, 0o755, &commands).contains("every user"));
    assert!(asked(0o644, 0o777, &commands).contains("every user"));
    let setting = |key: &str| {
        format!("{PLAN}[[treatment]]\nname = \"t\"\nkind = \"sysctl\"\nkey = \"{key}\"\nvalue = \"1\"\n")
    };
    assert!(asked(0o664, 0o755, &setting("vm.swappiness")).contains("vm.swappiness = 1"));
}

/// Independent of the plan's owner and of any confirmation.
#[test]
fn settings_that_run_programs_or_cannot_go_back_are_refused() {
    for key in ["kernel.core_pattern", "kernel.modprobe", "kernel.modules_disabled", "vm.drop_caches"] {
        let said = whylate(&["treat", "apply", "sysctl", key, "1"]);
        assert_eq!(said.code, Some(1), "{said:?}");
    }
    for path in ["/sys/kernel/uevent_helper", "/sys/power/state", "/proc/sysrq-trigger"] {
        let said = whylate(&["treat", "apply", "sysfs", path, "mem"]);
        assert_eq!(said.code, Some(1), "{said:?}");
    }
}

/// Programs and folders that an ordinary user names do not apply to root.
#[test]
fn root_runs_no_program_that_the_user_of_sudo_named() {
    let folder = folder();
    let helper = folder.path().join("whylate-gpu");
    fs::write(&helper, "#!/bin/sh\ntouch \"$(dirname \"$0\")/ran\"\n").unwrap();
    fs::set_permissions(&helper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::copy(&helper, folder.path().join("curl")).unwrap();
    let mut asked = command(&["check"]);
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    asked.env("SUDO_UID", "65534").env("WHYLATE_GPU", &helper).env("PATH", path);
    let said = finish(asked);
    if rustix::process::geteuid().is_root() {
        assert!(said.stderr.contains("WHYLATE_GPU"), "{said:?}");
        assert!(!folder.path().join("ran").exists());
    }
}
