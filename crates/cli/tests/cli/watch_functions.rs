//! `whylate watch` names the function of a program that took long (`tests/victims/step.c`).

use crate::tool::{alone, command, folder, start, victim, wait};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use whylate_testing::{Need, skip};

/// The own work of the late activations of the program, built with these flags; `None` where that cannot be watched here.
fn late_own_work(flags: &[&str]) -> Option<Vec<Value>> {
    let folder = folder();
    let path = victim(folder.path(), "step", flags)?;
    own_work_of(&folder, &[], &[path.to_str().unwrap(), "400"])
}

/// The own work of the late activations of a command.
fn own_work_of(folder: &TempDir, flags: &[&str], program: &[&str]) -> Option<Vec<Value>> {
    let output = folder.path().join("run");
    let words = ["watch", "-q", "--json", "--deadline", "3ms", "-o", output.to_str().unwrap()];
    let mut child = command(&[&words[..], flags, &["--"], program].concat());
    child.env("WHYLATE_STATE_DIR", folder.path().join("state"));
    let said = wait(start(child));
    let result: Value =
        said.stdout.lines().next_back().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    if said.code == Some(69) || result["warnings"].to_string().contains("functions of programs") {
        skip(Need::Rights, "functions of watched programs cannot be seen");
        return None;
    }
    assert_eq!(said.code, Some(2), "{said:?}");
    let spikes = result["cells"][0]["probes"][0]["spikes"].as_array().unwrap();
    let causes = spikes.iter().flat_map(|spike| {
        std::iter::once(&spike["cause"]).chain(spike["also"].as_array().into_iter().flatten())
    });
    let own: Vec<Value> =
        causes.filter(|cause| cause["kind"] == "own_work" && !cause["samples"].is_null()).cloned().collect();
    assert!(own.len() >= 3, "{result:#}");
    Some(own)
}

/// How many of them have this.
fn share(causes: &[Value], has: impl Fn(&Value) -> bool) -> f64 {
    causes.iter().filter(|cause| has(cause)).count() as f64 / causes.len() as f64
}

/// Whether it is the planted function, with the functions that called it.
fn has_callers(cause: &Value) -> bool {
    let all = cause["callers"].as_array().into_iter().flatten();
    let callers: Vec<&str> = all.map(|it| it.as_str().unwrap()).collect();
    cause["function"] == "plan_again" && callers.starts_with(&["control_cycle", "main"])
}

#[test]
fn the_function_that_is_sometimes_longer_is_named_with_its_callers() {
    let _alone = alone();
    let Some(own) = late_own_work(&["-O1", "-fno-omit-frame-pointer"]) else { return };
    assert!(share(&own, has_callers) >= 0.8, "{own:#?}");
    for cause in &own {
        let samples = &cause["samples"];
        let number = |value: &Value| value.as_u64().unwrap();
        assert!(
            number(&samples["count"]) >= 1 && number(&samples["in_kernel"]) <= number(&samples["count"]),
            "{samples:#}"
        );
        for function in samples["functions"].as_array().unwrap() {
            assert!(number(&function["own"]) <= number(&function["all"]), "{function:#}");
            assert!(number(&function["all"]) <= number(&samples["count"]), "{function:#}");
        }
    }
}

#[test]
fn a_stripped_program_has_places_and_one_line_on_what_is_missing() {
    let _alone = alone();
    let Some(own) = late_own_work(&["-O1", "-fno-omit-frame-pointer", "-s"]) else { return };
    let is_place = |cause: &Value| {
        let lines = cause["evidence"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|line| line.as_str().unwrap().starts_with("step has no symbols"));
        let function = cause["samples"]["functions"][0]["function"].as_str().unwrap_or_default();
        lines.count() == 1 && function.starts_with("step+0x")
    };
    assert!(share(&own, is_place) >= 0.8, "{own:#?}");
}

#[test]
fn without_frame_pointers_the_tables_for_exceptions_show_the_callers() {
    let _alone = alone();
    let Some(own) = late_own_work(&["-O2", "-fomit-frame-pointer"]) else { return };
    // Linux 5.15 has what the copy of the stack needs.
    let is_new = whylate_host::release::is_from(&whylate_host::HostRoot::real(), (5, 15)).unwrap();
    assert!(!is_new || share(&own, has_callers) >= 0.8, "{own:#?}");
}

#[test]
fn without_frame_pointers_and_tables_the_function_itself_is_named() {
    let _alone = alone();
    let Some(own) = late_own_work(&["-O2", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables"]) else {
        return;
    };
    let is_it = |cause: &Value| {
        let functions = cause["samples"]["functions"].as_array().unwrap();
        let most = functions.iter().max_by_key(|it| it["own"].as_u64()).unwrap();
        most["function"] == "plan_again"
    };
    assert!(share(&own, is_it) >= 0.8, "{own:#?}");
}

/// Compiles the program statically, into a root folder of its own; the path of the folder.
fn own_root(compiler: &str, folder: &TempDir) -> Option<String> {
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let source = script("step.c");
    let mut compile = Command::new(compiler);
    compile.args(["-static", "-O1", "-fno-omit-frame-pointer", "-o"]).arg(root.join("step")).arg(source);
    if !compile.output().is_ok_and(|output| output.status.success()) {
        skip(Need::Program("musl-gcc (musl-tools)"), format!("{compiler} makes no static program"));
        return None;
    }
    Some(root.to_str().unwrap().to_owned())
}

#[test]
fn static_programs_in_a_root_and_a_pid_namespace_of_their_own_have_their_functions() {
    let _alone = alone();
    for compiler in ["cc", "musl-gcc"] {
        let folder = folder();
        let Some(root) = own_root(compiler, &folder) else { continue };
        if !has("unshare", &["--pid", "--fork", "--mount", "chroot", &root, "/step", "1"]) {
            return skip(Need::Rights, "no namespaces of our own");
        }
        let words = ["unshare", "--pid", "--fork", "--mount", "chroot", &root, "/step", "400"];
        let Some(own) = own_work_of(&folder, &["--task", "victim"], &words) else { return };
        assert!(share(&own, has_callers) >= 0.8, "{compiler}: {own:#?}");
    }
}

#[test]
fn programs_that_fork_and_become_others_have_the_functions_of_what_they_became() {
    let _alone = alone();
    let folder = folder();
    let Some(path) = victim(folder.path(), "step", &["-O1", "-fno-omit-frame-pointer"]) else { return };
    let line = format!("(exec {0} 300) & exec env {0} 300", path.display());
    let Some(own) = own_work_of(&folder, &["--task", "victim"], &["sh", "-c", &line]) else { return };
    assert!(share(&own, has_callers) >= 0.8, "{own:#?}");
}

/// A program of `tests/victims` that needs no compiler.
fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims").join(name).to_str().unwrap().to_owned()
}

fn has(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Whether a line of what is missing begins so.
fn misses(cause: &Value, begin: &str) -> bool {
    let mut lines = cause["evidence"].as_array().into_iter().flatten();
    lines.any(|line| line.as_str().is_some_and(|line| line.starts_with(begin)))
}

#[test]
fn a_function_of_python_has_its_name_with_a_map_and_one_line_without() {
    let _alone = alone();
    let is_new = "import sys; sys.exit(sys.version_info < (3, 12))";
    let all = ["python3", "python3.12", "python3.13", "python3.14"];
    let Some(python) = all.into_iter().find(|python| has(python, &["-X", "perf", "-c", is_new])) else {
        return skip(Need::Program("Python 3.12"), "older versions write no map");
    };
    let (script, of_plan) = (script("step.py"), |cause: &Value| {
        let names =
            std::iter::once(&cause["function"]).chain(cause["callers"].as_array().into_iter().flatten());
        names.take(3).any(|name| name.as_str().is_some_and(|name| name.starts_with("py::plan_again:")))
    });
    let Some(own) = own_work_of(&folder(), &[], &[python, "-X", "perf", &script, "400"]) else { return };
    assert!(share(&own, of_plan) >= 0.4, "{own:#?}");
    let Some(own) = own_work_of(&folder(), &[], &[python, &script, "400"]) else { return };
    assert!(share(&own, |cause| misses(cause, "functions of Python have no names")) >= 0.4, "{own:#?}");
}

#[test]
fn a_method_of_java_has_its_name_once_the_map_is_written_and_one_line_before() {
    let _alone = alone();
    if !has("java", &["-version"]) || !has("jcmd", &["-h"]) {
        return skip(Need::Program("openjdk-17-jdk-headless"), "methods of Java are named by its map");
    }
    if !has("chrt", &["-f", "50", "true"]) {
        return skip(Need::Rights, "a program at a real-time priority");
    }
    let script = script("Step.java");
    // The threads that compile are not meant.
    let words = ["chrt", "-f", "50", "java", "-XX:+PreserveFramePointer", &script, "700"];
    let Some(own) = own_work_of(&folder(), &["--task", "java"], &words) else { return };
    let named =
        |cause: &Value| cause["function"].as_str().is_some_and(|name| name.contains("Step.planAgain"));
    let (after, before) = (share(&own, named), share(&own, |cause| misses(cause, "methods have no names: ")));
    // A third of the slow cycles come before the map, and some come while it is written.
    assert!(after >= 0.1 && before >= 0.05, "{after} and {before}: {own:#?}");
}
