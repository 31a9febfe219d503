//! `whylate explain`.

use crate::fields::{list, word};
use crate::json::validate;
use crate::tool::{SMALL_PLAN, alone, command, finish, folder, text, whylate, write};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use whylate_testing::says;

const CASE_1: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/published/graphics_irq_thread_5.15_rt.txt");

/// The arguments that suit case 1.
fn case_1<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["explain", CASE_1, "--task", "cyclictest", "--period", "200us"], more].concat()
}

#[test]
fn the_culprit_is_named_and_drawn() {
    // From the file's folder: the lines must not depend on the location of the sources.
    let path = Path::new(CASE_1);
    let mut arguments = case_1(&[]);
    arguments[1] = text(Path::new(path.file_name().expect("a file")));
    let mut here = command(&arguments);
    here.current_dir(path.parent().expect("a folder"));
    let said = finish(here);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.lines().all(|line| line.chars().count() <= 100), "wider than 100 columns");
    insta::assert_snapshot!("explain", said.stdout);
}

#[test]
fn the_document_is_as_promised() {
    let document = whylate(&case_1(&["--json"])).json();
    validate("explain", &document);
    assert_eq!(word(&document, "format"), "whylate.explain/1");
    let spike = &list(&document, "spikes")[0];
    assert_eq!(
        (word(spike, "task"), spike["pid"].as_u64(), spike["cpu"].as_u64()),
        ("cyclictest", Some(390_094), Some(5))
    );
    assert_eq!(spike["latency_ns"], 112_000);
    assert_eq!(spike["actual_ns"].as_u64().unwrap() - spike["expected_ns"].as_u64().unwrap(), 112_000);
    let cause = &spike["cause"];
    assert_eq!(
        (word(cause, "kind"), word(cause, "actor"), cause["pid"].as_u64()),
        ("irqs_off", "irq/45-nvkm", Some(489))
    );
    assert_eq!(word(cause, "function"), "gf100_mc_intr_unarm");
    assert_eq!(list(cause, "callers")[..2], ["nvkm_mc_intr_unarm", "nvkm_pci_intr"]);
    assert!(list(spike, "timeline").iter().all(|segment| !word(segment, "what").is_empty()));
}

#[test]
fn a_log_of_the_kernel_has_its_messages() {
    let folder = folder();
    let log = "[  371.133076] sched: RT throttling activated\n[  400.000001] usb 1-1: new device\n\
               [  501.389658] hrtimer: interrupt took 6663395 ns\n";
    let path = write(&folder, "dmesg.txt", log);
    let said = whylate(&["explain", &path, "--json"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let document = said.json();
    validate("explain", &document);
    assert_eq!(word(&document, "answer"), "log");
    let messages = list(&document, "messages");
    let codes: Vec<&str> = messages.iter().map(|message| word(message, "code")).collect();
    assert_eq!(codes, ["rt_throttling", "hrtimer_interrupt"]);
    assert_eq!(messages[1]["figure_ns"], 6_663_395);
    assert!(list(&document, "spikes").is_empty(), "no culprit is named");
    assert_eq!(whylate(&["explain", &path]).code, Some(0));
    for code in codes {
        let page = whylate(&["explain", "--why", code]);
        assert!(page.code == Some(0) && page.stdout.contains(code), "{}", page.stderr);
    }
    let mut piped = command(&["explain", "-", "--json"]);
    piped.stdin(fs::File::open(&path).expect("the log"));
    assert_eq!(list(&finish_with_input(piped), "messages").len(), 2);
}

#[test]
fn a_folder_of_raw_pages_is_a_trace_and_no_run() {
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/raw-6.18-4k");
    let document = whylate(&["explain", pages, "--json"]).json();
    validate("explain", &document);
    let trace = &list(&document, "traces")[0];
    assert_eq!((word(trace, "path"), word(trace, "format")), (pages, "ring-buffer pages"));
    assert_eq!(list(&document, "spikes")[0]["latency_ns"], 3_462_000, "as the tracer's own marker says");
    assert!(document["run"].is_null());
    let exported = whylate(&["explain", pages, "--export", "text"]);
    assert!(exported.code == Some(0) && exported.stdout.contains("capture.sh"), "{exported:?}");
}

#[test]
fn a_trace_comes_from_standard_input_too() {
    let mut from_input = command(&["explain", "-", "--task", "cyclictest", "--period", "200us", "--json"]);
    from_input.stdin(Stdio::from(fs::File::open(CASE_1).unwrap()));
    let document = finish_with_input(from_input);
    assert_eq!(document["spikes"], whylate(&case_1(&["--json"])).json()["spikes"]);
}

/// As [`finish`], which would close the input.
fn finish_with_input(mut command: std::process::Command) -> serde_json::Value {
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("a document")
}

#[test]
fn files_of_every_form_are_written_once() {
    let folder = folder();
    for (name, begin) in [
        ("a.html", "<!doctype html>"),
        ("a.md", "### cyclictest was 112 us late"),
        ("a.txt", "cyclictest was 112 us late"),
    ] {
        let path = folder.path().join(name);
        let said = whylate(&case_1(&["-o", text(&path)]));
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""), "{said:?}");
        let written = fs::read_to_string(&path).unwrap();
        assert!(written.starts_with(begin), "{written}");
        assert!(whylate(&case_1(&["-o", text(&path)])).error().contains("exists"));
    }
}

#[test]
fn windows_are_exported() {
    let document = whylate(&case_1(&["--export", "perfetto"])).json();
    assert!(list(&document, "traceEvents").iter().any(|event| word(event, "name") == "cyclictest is late"));
    let lines = whylate(&case_1(&["--export", "text"]));
    assert!(lines.stdout.contains("gf100_mc_intr_unarm <-nvkm_pci_intr"), "{lines:?}");
    let quiet = whylate(&case_1(&["--export", "text", "--threshold", "1ms"]));
    assert!(quiet.error().contains("no spike to export"));
}

#[test]
fn the_answer_says_that_a_trace_is_quiet() {
    let said = whylate(&case_1(&["--threshold", "1ms"]));
    assert_eq!(said.code, Some(0));
    assert!(says("no-latency-above-ms", &said.stdout), "{said:?}");
    let unknown = whylate(&["explain", CASE_1, "--task", "absent"]);
    assert!(says("the-task-is-not-there", &unknown.stdout), "{unknown:?}");
}

#[test]
fn a_file_that_is_not_a_trace_is_one_clear_line() {
    let folder = folder();
    let empty = write(&folder, "empty", "");
    assert!(whylate(&["explain", &empty]).error().contains("is empty"));
    let absent = folder.path().join("absent");
    assert!(whylate(&["explain", text(&absent)]).error().contains("absent"));
    assert!(whylate(&["explain", text(folder.path())]).error().contains("run.json"));
}

const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/events-rt-6.1.dat");

/// The answer of `explain` for each spike.
fn said_of(path: &Path) -> serde_json::Value {
    let document = whylate(&["explain", text(path), "--json"]).json();
    validate("explain", &document);
    document
}

#[test]
fn a_kept_trace_has_one_answer_wherever_it_is_asked_for() {
    let folder = folder();
    let run = small_run(&folder);
    // One of the smaller spikes in it.
    let all = said_of(Path::new(RECORDED));
    let spike = list(&all, "spikes").last().expect("it has spikes");
    fs::create_dir_all(run.join("traces")).unwrap();
    let kept = run.join("traces/idle-1-1-1.dat");
    fs::copy(RECORDED, &kept).unwrap();
    let note = serde_json::json!({
        "path": "traces/idle-1-1-1.dat", "cell": "idle", "repeat": 1, "attempt": 1, "probe": "timer",
        "task": spike["task"], "cpu": spike["cpu"], "at_ns": spike["actual_ns"], "latency_ns": spike["latency_ns"],
    });
    fs::write(kept.with_extension("json"), note.to_string()).unwrap();
    let (of_run, of_file) = (said_of(&run), said_of(&kept));
    assert_eq!(list(&of_file, "spikes").len(), 1, "only the moment for which it was kept");
    assert_eq!(of_file["spikes"], of_run["spikes"]);
    assert_eq!(of_file["spikes"][0]["latency_ns"], spike["latency_ns"]);
    // A copy with its note has a known moment; alone it is a trace like any other.
    let copied = folder.path().join("idle-1-1-1.dat");
    fs::copy(&kept, &copied).unwrap();
    let alone = said_of(&copied);
    assert_eq!((&alone["spikes"], &alone["answer"]), (&all["spikes"], &all["answer"]));
    fs::copy(kept.with_extension("json"), copied.with_extension("json")).unwrap();
    let with_note = said_of(&copied);
    assert_eq!(list(&with_note, "spikes").len(), 1);
    assert_eq!(with_note["spikes"][0]["actual_ns"], of_file["spikes"][0]["actual_ns"]);
    // A note of another file does not belong to this one.
    let other = folder.path().join("other.dat");
    fs::copy(&copied, &other).unwrap();
    fs::copy(copied.with_extension("json"), other.with_extension("json")).unwrap();
    assert_eq!(said_of(&other)["spikes"], all["spikes"]);
}

/// The directory of a run with measurements.
fn small_run(folder: &tempfile::TempDir) -> std::path::PathBuf {
    let plan = write(folder, "small.toml", SMALL_PLAN);
    let run = folder.path().join("run");
    let _alone = alone();
    let done = finish(command(&["run", &plan, "-o", text(&run), "--quiet", "--set", "repeats=1"]));
    assert!(matches!(done.code, Some(0 | 2)), "{done:?}");
    run
}

#[test]
fn a_run_shows_its_spikes_and_explains_its_traces() {
    let folder = folder();
    let run = small_run(&folder);
    let without = whylate(&["explain", text(&run), "--json"]).json();
    validate("explain", &without);
    assert!(list(&without, "warnings").iter().any(|warning| word(warning, "code") == "no-traces"));
    fs::create_dir_all(run.join("traces")).unwrap();
    fs::copy(CASE_1, run.join("traces/spike.txt")).unwrap();
    fs::write(run.join("traces/torn.dat"), [0u8; 64]).unwrap();
    let with = whylate(&["explain", text(&run), "--period", "200us", "--json"]).json();
    validate("explain", &with);
    assert_eq!(word(&list(&with, "spikes")[0]["cause"], "function"), "gf100_mc_intr_unarm");
    assert!(list(&with, "warnings").iter().any(|warning| word(warning, "code") == "unreadable-trace"));
    assert!(
        whylate(&["explain", text(&run), "--export", "text"]).error().contains("--export takes one trace")
    );
}

#[test]
fn why_prints_the_page_of_the_field_guide() {
    let page = whylate(&["explain", "--why", "preempt_off"]);
    assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""));
    let words: Vec<&str> = page.stdout.split_whitespace().collect();
    for part in ["preempt_off: ", "Confirm it with another tool", "whylate treat apply shield --cpus 1"] {
        assert!(words.join(" ").contains(part), "`{part}` is missing: {page:?}");
    }
    // As reports write it.
    assert_eq!(whylate(&["explain", "--why", "preempt off"]).stdout, page.stdout);
    assert!(
        whylate(&["explain", "--why", "late"]).stderr.contains("choose irq, softirq"),
        "the kinds are named"
    );
    let file = folder();
    let path = file.path().join("smi.html");
    let said = whylate(&["explain", "--why", "smi", "-o", text(&path)]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(fs::read_to_string(path).unwrap().contains("<h2>Pitfalls"));
}

#[test]
fn a_folder_of_lttng_is_refused_as_what_it_is() {
    let folder = folder();
    write(&folder, "metadata", "/* CTF 1.8 */\n");
    let said = whylate(&["explain", text(folder.path())]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("CTF") && said.stderr.contains("babeltrace2 /"), "{}", said.stderr);
}
