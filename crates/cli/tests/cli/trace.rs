//! `whylate trace record` on this machine: the trace, its explanation, and that tracing is left as it was, even after
//! a kill. Needs root and tracefs, or says why it is skipped.

use crate::fields::{list, number, word};
use crate::json::validate;
use crate::tool::{Said, alone, command, finish, folder, start, text, until, victim, wait, whylate};
use std::fs;
use std::path::Path;
use std::process::Command;
use whylate_testing::{Need, says, skip};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

/// The command, with a journal of its own.
fn with_state(state: &Path, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.env("WHYLATE_STATE_DIR", state);
    command
}

/// Whether the recording of a process has its trace buffer in tracefs; others may record at the same time.
fn has_instance(process: u32) -> bool {
    Path::new(&format!("{INSTANCES}/whylate-trace-{process}")).exists()
}

/// Runs a command to its end, and checks that it leaves no trace buffer.
fn finish_recording(command: Command) -> Said {
    let child = start(command);
    let process = child.id();
    let said = wait(child);
    assert!(!has_instance(process), "the trace buffer of {process} is still there");
    said
}

fn is_mounted() -> bool {
    fs::read_to_string("/proc/mounts").unwrap().contains(" /sys/kernel/tracing tracefs ")
}

/// Records until the first latency above 1 us, which comes at once; `None` if recording is not possible.
fn recorded(state: &Path, file: &str) -> Option<Said> {
    let said = finish_recording(with_state(
        state,
        &["trace", "record", "--until", "1us", "-D", "20s", "-o", file, "--json"],
    ));
    if said.code == Some(69) {
        assert_eq!((said.stdout.as_str(), said.stderr.lines().count()), ("", 1), "{said:?}");
        skip(Need::Rights, said.stderr.trim());
        return None;
    }
    Some(said)
}

#[test]
fn a_late_moment_is_recorded_and_explained() {
    let _alone = alone();
    let folder = folder();
    let path = folder.path().join("late.dat");
    let mounted = is_mounted();
    let Some(said) = recorded(folder.path(), text(&path)) else { return };
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    let result: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    validate("recording", &result);
    let trace = &list(&result, "traces")[0];
    assert_eq!(word(trace, "path"), text(&path));
    assert!(number(trace, "latency_ns") > 1_000);
    assert!(fs::read(&path).unwrap().starts_with(b"\x17\x08Dtracing6\0"));
    assert_eq!(is_mounted(), mounted, "tracing was not restored");

    // The file explains itself, and the recording explained the moment for which it was kept.
    let explained = whylate(&["explain", text(&path), "--threshold", "1us", "--json"]).json();
    assert!(number(&explained, "events") > 0);
    for spike in list(&result["explained"], "spikes") {
        assert!(number(spike, "actual_ns").abs_diff(number(trace, "at_ns")) < 1_000_000, "{spike}");
    }

    // Without flags the file gives the answer of the recording, and without its note that of the same moment.
    let of_file = whylate(&["explain", text(&path), "--json"]).json();
    assert_eq!(of_file["spikes"], result["explained"]["spikes"]);
    let note = path.with_extension("json");
    let noted = fs::read(&note).unwrap();
    fs::remove_file(&note).unwrap();
    let without_note = whylate(&["explain", text(&path), "--top", "100", "--json"]).json();
    // The probe may be later once more until the trace stops; the answer says how exactly the marker gives the
    // moment.
    let is_it = |spike: &serde_json::Value| {
        let error_ns = 1_000_000 + spike["expected_error_ns"].as_u64().unwrap_or(0);
        number(spike, "actual_ns").abs_diff(number(trace, "at_ns")) < error_ns
    };
    assert!(list(&without_note, "spikes").iter().any(is_it), "{}", without_note["spikes"]);

    let again = whylate(&["trace", "record", "--until", "1us", "-o", text(&path)]);
    assert!(says("exists-remove-or-give", again.error()), "{}", again.stderr);

    // A leftover note of a removed trace does not disturb; a file that is not a note does.
    fs::write(&note, &noted).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(recorded(folder.path(), text(&path)).unwrap().code, Some(2));
    assert_ne!(fs::read(&note).unwrap(), noted);
    fs::remove_file(&path).unwrap();
    fs::write(&note, "{}").unwrap();
    let refused = whylate(&["trace", "record", "--until", "1us", "-o", text(&path)]);
    assert!(refused.error().contains("late.json exists; remove it"), "{}", refused.stderr);
}

#[test]
fn a_killed_recording_is_taken_back() {
    let _alone = alone();
    let folder = folder();
    let path = folder.path().join("never.dat");
    if recorded(folder.path(), text(&folder.path().join("first.dat"))).is_none() {
        return;
    }
    let mut child =
        start(with_state(folder.path(), &["trace", "record", "--until", "10s", "-o", text(&path)]));
    let process = child.id();
    assert!(until(|| has_instance(process)), "no trace buffer appeared");
    child.kill().unwrap();
    child.wait().unwrap();
    let said = finish(with_state(folder.path(), &["treat", "restore"]));
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(!has_instance(process));
    assert!(!path.exists());
}

#[test]
fn an_impossible_recording_is_one_line() {
    for (arguments, expected) in [
        (["--until", "0", "-D", "1s"], "--until 0"),
        (["--until", "1us", "--worst", "2"], "--worst needs --duration"),
        (["--until", "1us", "-o", "/nowhere/late.dat"], "there is no folder /nowhere"),
    ] {
        let all: Vec<&str> = ["trace", "record"].iter().chain(&arguments).copied().collect();
        let said = whylate(&all);
        assert!(said.error().contains(expected), "{arguments:?}: {}", said.stderr);
    }
}

/// The result of a recording of `victims/late.c` with these flags; `None` where its threads cannot be watched.
fn recorded_program(
    flags: &[&str],
    program: &[&str],
) -> Option<(Option<i32>, serde_json::Value, tempfile::TempDir)> {
    let folder = folder();
    let path = victim(folder.path(), "late", &["-O1", "-fno-omit-frame-pointer", "-pthread"])?;
    let file = folder.path().join("late.dat");
    let words = ["trace", "record", "-q", "--json", "-o", text(&file)];
    let said = finish_recording(with_state(
        folder.path(),
        &[&words[..], flags, &["--", text(&path)], program].concat(),
    ));
    if said.code == Some(69) || said.stderr.contains("exit status: 3") {
        skip(Need::Rights, said.stderr.trim());
        return None;
    }
    let last = said.stdout.lines().next_back().unwrap_or_else(|| panic!("{said:?}"));
    let result: serde_json::Value =
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    validate("recording", &result);
    Some((said.code, result, folder))
}

#[test]
fn a_trace_is_kept_when_the_program_says_that_it_was_late() {
    let _alone = alone();
    let flags = ["--trigger", "output:^late", "--last", "20ms", "-D", "20s"];
    let Some((code, result, folder)) = recorded_program(&flags, &["1200", "thief"]) else { return };
    assert_eq!(code, Some(2), "{result:#}");
    let trace = &list(&result, "traces")[0];
    assert_eq!(word(trace, "trigger"), "output:^late");
    assert!(word(trace, "text").starts_with("late "), "{trace:#}");
    assert!(word(trace, "why").starts_with("output:^late: "), "{trace:#}");
    assert!(number(&result["triggers"][0], "count") >= 1, "{result:#}");
    let file = folder.path().join("late.dat");
    assert!(fs::read(&file).unwrap().starts_with(b"\x17\x08Dtracing6\0"));
    let events = whylate(&["explain", text(&file), "--export", "text"]);
    assert_eq!(events.code, Some(0), "{}", events.stderr);
    // If the late thread waited for a CPU, the trace explains this wait, and says the same when it is opened again.
    let spikes = list(&result["explained"], "spikes");
    if let Some(spike) = spikes.first() {
        assert_eq!(spike["task"], trace["thread"], "{spike:#}");
        let again = whylate(&["explain", text(&file), "--json"]).json();
        assert_eq!(again["spikes"], result["explained"]["spikes"]);
    }
}

#[test]
fn a_trace_is_kept_when_the_users_own_thread_takes_too_long() {
    let _alone = alone();
    let flags = ["--until", "2ms", "-D", "20s"];
    let Some((code, result, _folder)) = recorded_program(&flags, &["1200", "own"]) else { return };
    assert_eq!(code, Some(2), "{result:#}");
    let trace = &list(&result, "traces")[0];
    assert!(number(trace, "latency_ns") > 2_000_000, "{trace:#}");
    assert!(!word(trace, "thread").is_empty());
}

#[test]
fn a_recording_without_its_trigger_keeps_nothing() {
    let _alone = alone();
    let flags = ["--trigger", "output:^never", "-D", "20s"];
    let Some((code, result, folder)) = recorded_program(&flags, &["100", "never"]) else { return };
    assert_eq!((code, list(&result, "traces").len()), (Some(0), 0), "{result:#}");
    assert!(!folder.path().join("late.dat").exists());
}

/// A short plan that keeps traces of everything later than 1 us.
fn traced_plan(folder: &Path, repeats: u32) -> std::path::PathBuf {
    let path = folder.join("traced.toml");
    let text = format!(
        "name = \"traced\"\nduration = \"1s\"\nrepeats = {repeats}\nsettle = \"1ms\"\nnoise_floor = \"0s\"\n\
         trace = {{ above = \"1us\", worst = 2 }}\n[[probe]]\nkind = \"timer\"\n[[probe]]\nkind = \"stall\"\n\
         threshold = \"1us\"\n"
    );
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_run_keeps_and_explains_the_traces_of_its_spikes() {
    let _alone = alone();
    let folder = folder();
    if recorded(folder.path(), text(&folder.path().join("first.dat"))).is_none() {
        return;
    }
    let (plan, run) = (traced_plan(folder.path(), 1), folder.path().join("run"));
    let said =
        finish_recording(with_state(folder.path(), &["run", text(&plan), "-o", text(&run), "--json", "-q"]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let result: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    validate("run", &result);
    let traces = list(&result["cells"][0], "traces");
    // Two of each probe.
    assert_eq!(traces.len(), 4, "{result:#}");
    for trace in traces {
        let file = fs::read(run.join(word(trace, "path"))).unwrap();
        assert!(file.starts_with(b"\x17\x08Dtracing6\0"));
        // Explained or not, the moment is the one that the probe recorded.
        for spike in list(&trace["explained"], "spikes") {
            assert!(number(spike, "actual_ns").abs_diff(number(trace, "at_ns")) < 1_000_000, "{spike}");
        }
    }
    let explained = whylate(&["explain", text(&run), "--json"]).json();
    assert_eq!(list(&explained, "traces").len(), 4, "{explained:#}");
    assert_eq!((word(&explained["of_run"], "plan"), explained["of_run"].get("cell")), ("traced", None));
    let cell = word(&result["cells"][0], "name").to_owned();
    let of_cell = whylate(&["explain", &format!("{}:{cell}", text(&run)), "--json"]).json();
    assert_eq!((&of_cell["spikes"], word(&of_cell["of_run"], "cell")), (&explained["spikes"], cell.as_str()));
    assert!(list(&of_cell, "traces").iter().all(|trace| word(trace, "cell") == cell), "{of_cell:#}");
    assert!(list(&of_cell, "measured").iter().all(|spike| word(spike, "cell") == cell), "{of_cell:#}");
    let refused = whylate(&["explain", &format!("{}:nowhere", text(&run))]);
    assert!(says("there-no-cell-nowhere", refused.error()), "{refused:?}");
    let page = whylate(&["explain", text(&run)]).stdout;
    assert!(page.contains("run traced") && page.contains(&format!("in cell {cell}")), "{page}");
    let page = folder.path().join("report.html");
    assert_eq!(whylate(&["report", text(&run), "-o", text(&page)]).code, Some(0));
    assert!(fs::read_to_string(&page).unwrap().contains("id=\"traces\""));
}

/// An ordinary task and a loop that wants the same CPU: the BPF programs and the trace both see the loop.
const CROWDED: &str = r#"name = "crowded"
duration = "1s"
repeats = 1
settle = "10ms"
noise_floor = "0s"
causes = true
trace = { above = "20us", worst = 8 }
[[probe]]
kind = "timer"
interval = "1ms"
policy = "other"
[[load]]
name = "loop"
kind = "exec"
command = ["sh", "-c", "while :; do :; done"]
cpus = "target"
[[cell]]
loads = ["loop"]
"#;

/// Runs it, and returns the causes of the spikes that have a trace, which are the same wherever they appear; `None`
/// if BPF programs are refused.
fn crowded_causes(folder: &Path, number: u32) -> Option<Vec<serde_json::Value>> {
    let (plan, run) = (folder.join("crowded.toml"), folder.join(format!("run-{number}")));
    fs::write(&plan, CROWDED).unwrap();
    let said = finish_recording(with_state(folder, &["run", text(&plan), "-o", text(&run), "--json", "-q"]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let result: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    validate("run", &result);
    if list(&result, "warnings").iter().any(|warning| word(warning, "code") == "no-causes") {
        return None;
    }
    let explained = whylate(&["explain", text(&run), "--json"]).json();
    let cell = &result["cells"][0];
    let mut causes = Vec::new();
    for trace in list(cell, "traces") {
        let is_it = |spike: &&serde_json::Value| spike["at_ns"] == trace["at_ns"];
        let Some(spike) = list(cell, "spikes").iter().find(is_it) else { continue };
        let in_trace = trace["explained"]["spikes"].get(0).map(|explained| &explained["cause"]);
        assert!(in_trace.is_none_or(|cause| *cause == spike["cause"]), "{spike} is not {in_trace:?}");
        let again = list(&explained, "measured").iter().find(is_it);
        assert!(again.is_none_or(|again| again["cause"] == spike["cause"]), "{spike} is not {again:?}");
        causes.push(spike["cause"].clone());
    }
    Some(causes)
}

#[test]
fn a_spike_that_was_recorded_and_traced_has_one_answer_from_both() {
    let _alone = alone();
    let folder = folder();
    if recorded(folder.path(), text(&folder.path().join("first.dat"))).is_none() {
        return;
    }
    let mut seen = Vec::new();
    // On a busy machine the ring of the BPF programs may be full before it is read.
    for number in 0..5 {
        let Some(causes) = crowded_causes(folder.path(), number) else {
            return skip(
                Need::Rights,
                "BPF programs are refused here, so that a spike has no second kind of evidence",
            );
        };
        let both = serde_json::json!(["bpf", "trace"]);
        if let Some(cause) = causes.iter().find(|cause| cause["sources"] == both) {
            assert!(list(cause, "evidence").len() > 1, "what each of them saw: {cause}");
            return;
        }
        seen.extend(causes);
    }
    panic!("no answer is made of both: {seen:#?}");
}

#[test]
fn a_killed_run_leaves_its_traces_and_no_recording() {
    let _alone = alone();
    let folder = folder();
    if recorded(folder.path(), text(&folder.path().join("first.dat"))).is_none() {
        return;
    }
    let (plan, run) = (traced_plan(folder.path(), 50), folder.path().join("run"));
    let mut child = start(with_state(folder.path(), &["run", text(&plan), "-o", text(&run), "-q"]));
    let has_trace = || {
        let entries = fs::read_dir(run.join("traces")).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.path().extension().is_some_and(|ending| ending == "json"))
    };
    assert!(until(has_trace), "no trace was kept");
    let process = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(has_instance(process), "the recording ended by itself");
    let said = finish(with_state(folder.path(), &["treat", "restore"]));
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    assert!(!has_instance(process));
    // Traces that were kept until then are explained from the files.
    let said = whylate(&["explain", text(&run), "--json"]);
    if said.code == Some(0) {
        assert!(!list(&said.json(), "traces").is_empty());
    } else {
        assert!(said.stderr.contains("no samples"), "{}", said.stderr);
    }
}

#[test]
fn a_tracer_that_the_kernel_lacks_is_reported_precisely() {
    let folder = folder();
    let host = folder.path().join("host");
    let tracefs = host.join("sys/kernel/tracing");
    fs::create_dir_all(&tracefs).unwrap();
    fs::write(tracefs.join("trace_clock"), "[local] mono\n").unwrap();
    fs::write(tracefs.join("available_tracers"), "function nop\n").unwrap();
    let plan = folder.path().join("tracer.toml");
    fs::write(&plan, "name = \"t\"\n[[probe]]\nkind = \"tracer\"\ntracer = \"osnoise\"\n").unwrap();
    let mut command =
        with_state(folder.path(), &["run", text(&plan), "-o", text(&folder.path().join("run"))]);
    command.env("WHYLATE_HOST_ROOT", &host);
    let said = finish(command);
    assert_eq!(said.code, Some(69), "{}", said.stderr);
    let expected = "this kernel has no osnoise tracer (CONFIG_OSNOISE_TRACER is off; the tracers here are function, nop)";
    assert!(said.stderr.contains(expected), "{}", said.stderr);
    assert!(!folder.path().join("run").exists());
}
