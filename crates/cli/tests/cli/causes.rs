//! `whylate measure --causes`: causes with their evidence if the kernel reports them, and a clear refusal otherwise.

use crate::fields::{list, word};
use crate::json::validate;
use crate::tool::{alone, whylate};
use serde_json::Value;
use whylate_testing::{Need, says, skip};

#[test]
fn causes_have_evidence_and_parts_of_the_window() {
    let _alone = alone();
    let probes = [["timer", "--interval=500us"], ["stall", "--threshold=1us"]];
    let sources = ["--causes-from=bpf", "--causes-from=tracefs"];
    for (probe, source) in probes.iter().flat_map(|probe| sources.map(|source| (probe, source))) {
        let said = whylate(&["measure", probe[0], probe[1], "-D", "700ms", "--causes", source, "--json"]);
        if said.code == Some(69) {
            assert!(said.stderr.contains("--causes"), "{}", said.stderr);
            return skip(Need::Rights, said.stderr.trim());
        }
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
        let result = said.document();
        validate("measure", &result);
        assert_eq!(is_from_tracefs(&result), source == sources[1], "{source}");
        let spikes = list(&result, "spikes");
        assert!(!spikes.is_empty());
        let causes: Vec<&Value> = spikes.iter().flat_map(|spike| causes_of(spike)).collect();
        assert!(causes.iter().any(|cause| word(cause, "kind") != "unattributed"), "{causes:?}");
        for spike in spikes {
            let shares: f64 = causes_of(spike).iter().filter_map(|cause| cause["share"].as_f64()).sum();
            assert!(shares <= 1.000_001, "{spike}");
        }
        for cause in causes.iter().filter(|cause| word(cause, "kind") != "unattributed") {
            assert!(!list(cause, "evidence").is_empty(), "{cause}");
        }
    }
}

/// Every gap is divided among its sources, however many there are.
#[test]
fn the_sources_of_gaps_add_up_to_the_time_that_was_lost() {
    let _alone = alone();
    let said = whylate(&["measure", "stall", "--threshold=1us", "-D", "1s", "--causes", "--json"]);
    if said.code == Some(69) {
        return skip(Need::Rights, said.stderr.trim());
    }
    let result = said.document();
    validate("measure", &result);
    for cpu in list(&result, "cpus") {
        let number = |of: &Value, field: &str| of[field].as_u64().unwrap_or(0);
        let sources = list(cpu, "sources");
        let total: u64 = sources.iter().map(|source| number(source, "total_ns")).sum();
        let lost = number(cpu, "lost_ns");
        assert!(total.abs_diff(lost) * 100 <= lost, "{total} of {lost}: {sources:?}");
        let known = sources.iter().filter(|source| word(source, "kind") != "unattributed");
        assert!(known.clone().count() > 0, "{sources:?}");
        for source in known {
            let (gaps, total) = (number(source, "gaps"), number(source, "total_ns"));
            let max = number(source, "max_ns");
            assert!(gaps > 0 && max <= total && total <= max * gaps, "{source}");
        }
    }
}

fn is_from_tracefs(result: &Value) -> bool {
    list(result, "warnings").iter().any(|warning| word(warning, "code") == "causes-from-tracefs")
}

/// BPF programs know processes by numbers that a container does not have.
#[test]
fn in_a_container_causes_come_from_the_trace_buffer() {
    let _alone = alone();
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--", crate::tool::WHYLATE]).args(arguments);
        command.output()
    };
    let Some(true) = run(&["--version"]).ok().map(|output| output.status.success()) else {
        return skip(Need::Rights, "no process-id namespace can be made here (unshare --pid, as root)");
    };
    let tried = run(&["check", "--tracing", "--json"]).unwrap();
    let tried: Value = serde_json::from_slice(&tried.stdout).unwrap();
    let by_programs = list(&tried, "facilities").iter().find(|one| word(one, "name") == "causes from BPF");
    // If programs are refused altogether, it is not tried.
    assert!(by_programs.is_none_or(|one| one["works"] == false), "{tried}");
    let measure = ["measure", "timer", "--interval=500us", "-D", "700ms", "--causes", "--json"];
    let output = run(&measure).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(69) {
        assert!(said.contains("namespace") && says("nor-from-trace-buffer", &said), "{said}");
        return skip(Need::Rights, said.trim());
    }
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate("measure", &result);
    assert!(is_from_tracefs(&result), "{said}");
    let spikes = list(&result, "spikes").iter();
    let known = spikes.flat_map(causes_of).filter(|cause| word(cause, "kind") != "unattributed");
    assert!(known.count() > 0, "{result}");
}

fn causes_of(spike: &Value) -> Vec<&Value> {
    let also = spike["also"].as_array().into_iter().flatten();
    std::iter::once(&spike["cause"]).chain(also).collect()
}

#[test]
fn causes_are_refused_where_the_clock_is_not_the_kernels() {
    let _alone = alone();
    let inside = ["--time", "--monotonic", "100000", "--", crate::tool::WHYLATE];
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(inside).args(arguments).env("NO_COLOR", "1");
        command.output()
    };
    let Some(true) = run(&["--version"]).ok().map(|output| output.status.success()) else {
        return skip(Need::Rights, "no time namespace can be made here (unshare --time, as root)");
    };
    let output = run(&["measure", "timer", "--duration", "300ms", "--causes"]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("time namespace"), "{said}");
    // Without causes it measures as anywhere else.
    assert_eq!(run(&["measure", "timer", "--duration", "300ms"]).unwrap().status.code(), Some(0));
}
