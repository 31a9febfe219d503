//! The fields that scripts rely on, one by one: name, type, and what must hold between them.

use serde_json::Value;
use whylate_core::result::CauseKind;

/// A whole number that is not negative.
pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("`{key}` is no whole number: {}", value[key]))
}

pub(crate) fn real(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("`{key}` is no number: {}", value[key]))
}

pub(crate) fn word<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("`{key}` is no text: {}", value[key]))
}

pub(crate) fn list<'v>(value: &'v Value, key: &str) -> &'v Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("`{key}` is no list: {}", value[key]))
}

/// Codes of the warnings.
pub(crate) fn codes(result: &Value) -> Vec<String> {
    list(result, "warnings").iter().map(|warning| word(warning, "code").to_owned()).collect()
}

/// Each warning has a code in its own form, a text, and possibly a fix.
pub(crate) fn warnings(result: &Value) {
    for warning in list(result, "warnings") {
        let code = word(warning, "code");
        assert!(
            code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "`{code}` is not in kebab case"
        );
        assert!(!word(warning, "text").is_empty());
        assert!(warning.get("fix").is_none_or(|fix| fix.as_str().is_some_and(|fix| !fix.is_empty())));
    }
}

pub(crate) fn facts(facts: &Value) {
    assert_eq!(word(facts, "whylate_version"), env!("CARGO_PKG_VERSION"));
    assert!(!word(&facts["kernel"], "release").is_empty());
    assert!(!word(&facts["kernel"], "command_line").is_empty());
    assert!(!list(facts, "cpus").is_empty());
    assert!(!word(&facts["cpu_sets"], "online").is_empty());
    assert!(facts["privileges"]["root"].is_boolean());
    for key in ["processor", "clock", "settings", "memory", "environment"] {
        assert!(facts[key].is_object(), "facts.{key}: {}", facts[key]);
    }
    assert!(facts["gpus"].is_array());
}

/// Quantiles are there, in order, within [min, max].
pub(crate) fn quantiles(of: &Value) {
    let keys = ["min_ns", "p50_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"];
    let values: Vec<u64> = keys.iter().map(|key| number(of, key)).collect();
    assert!(values.is_sorted(), "{keys:?} are {values:?}");
    let mean = real(of, "mean_ns");
    let range = (values[0] as f64)..=(values[5] as f64);
    assert!(range.contains(&mean), "the mean {mean} is outside {range:?}");
}

/// One CPU of a probe.
pub(crate) fn cpu(probe: &str, cpu: &Value) {
    number(cpu, "cpu");
    let samples = number(cpu, "samples");
    assert!(samples > 0);
    quantiles(cpu);
    let histogram: Vec<(u64, u64)> =
        serde_json::from_value(cpu["histogram"].clone()).expect("pairs of numbers");
    assert_eq!(
        histogram.iter().map(|(_, count)| count).sum::<u64>(),
        samples,
        "the histogram counts every sample"
    );
    assert!(histogram.iter().all(|(_, count)| *count > 0), "empty buckets are left out");
    assert!(histogram.is_sorted_by(|a, b| a.0 < b.0), "buckets ascend");
    assert!(histogram[0].0 <= number(cpu, "min_ns"));
    assert!(histogram[histogram.len() - 1].0 <= number(cpu, "max_ns"));
    match probe {
        "timer" => timer(cpu),
        "stall" => stall(cpu),
        "dispatch" => dispatch(cpu),
        "roundtrip" => roundtrip(cpu),
        other => panic!("an unknown probe `{other}`"),
    }
}

fn timer(cpu: &Value) {
    number(cpu, "overruns");
    number(cpu, "max_at_ns");
    quantiles(&cpu["corrected"]);
    // Missed periods were less late than the one that caused them.
    assert_eq!(cpu["corrected"]["max_ns"], cpu["max_ns"]);
    for key in ["loop_ns", "gaps", "lost_ns", "lost_share"] {
        assert!(cpu.get(key).is_none(), "`{key}` is of the stall probe");
    }
}

fn stall(cpu: &Value) {
    assert!(real(cpu, "loop_ns") > 0.0);
    let (gaps, lost) = (number(cpu, "gaps"), number(cpu, "lost_ns"));
    assert_eq!(gaps == 0, lost == 0, "{gaps} gaps lost {lost} ns");
    assert!(gaps <= number(cpu, "samples"));
    assert!((0.0..=1.0).contains(&real(cpu, "lost_share")));
    for key in ["overruns", "corrected"] {
        assert!(cpu.get(key).is_none(), "`{key}` is of the timer probe");
    }
}

fn dispatch(cpu: &Value) {
    number(cpu, "overruns");
    assert!(!word(cpu, "series").is_empty());
    quantiles(&cpu["corrected"]);
    for part in cpu["parts"].as_array().into_iter().flatten() {
        assert!(["interrupt", "wakeup", "switch"].contains(&word(part, "part")));
        assert!(number(part, "samples") > 0 && number(part, "samples") <= number(cpu, "samples"));
        quantiles(part);
    }
    for key in ["loop_ns", "gaps", "cycles", "peer_cpu"] {
        assert!(cpu.get(key).is_none(), "`{key}` is of another probe");
    }
}

fn roundtrip(cpu: &Value) {
    number(cpu, "peer_cpu");
    assert!(["spin", "futex", "eventfd", "pipe", "unix", "udp"].contains(&word(cpu, "series")));
    let cycles = &cpu["cycles"];
    assert!(number(cycles, "counter_hz") > 0);
    assert!(number(cycles, "min") <= number(cycles, "p50") && number(cycles, "p50") <= number(cycles, "max"));
    for part in cpu["parts"].as_array().into_iter().flatten() {
        assert!(["there", "back"].contains(&word(part, "part")));
        assert!(number(part, "samples") <= number(cpu, "samples"));
        quantiles(part);
    }
    for key in ["overruns", "corrected", "loop_ns", "gaps"] {
        assert!(cpu.get(key).is_none(), "`{key}` is of another probe");
    }
}

/// A probe: its CPUs, and its spikes, largest first.
pub(crate) fn probe(probe: &Value) {
    let name = word(probe, "probe");
    assert!(!list(probe, "cpus").is_empty());
    for of in list(probe, "cpus") {
        cpu(name, of);
    }
    spikes(probe);
}

pub(crate) fn spikes(of: &Value) {
    let spikes = list(of, "spikes");
    for spike in spikes {
        for key in ["cpu", "at_ns", "latency_ns", "sample"] {
            number(spike, key);
        }
        let kind = &spike["cause"]["kind"];
        assert!(serde_json::from_value::<CauseKind>(kind.clone()).is_ok(), "{kind}");
    }
    let latencies: Vec<u64> = spikes.iter().map(|spike| number(spike, "latency_ns")).collect();
    assert!(latencies.is_sorted_by(|a, b| a >= b), "spikes are not largest first: {latencies:?}");
}

/// A run: `cells` of these names, each of which ran.
pub(crate) fn run(result: &Value, cells: &[&str], repeats: usize) {
    assert_eq!(word(result, "format"), "whylate.run/1");
    assert!(std::path::Path::new(word(result, "run")).join("run.json").exists());
    assert!(word(result, "started_at").ends_with('Z'));
    assert_eq!(word(result, "state"), "complete");
    assert_eq!(result["restored"], true);
    assert!(result["plan"]["probe"].is_array());
    facts(&result["facts"]);
    warnings(result);
    let names: Vec<&str> = list(result, "cells").iter().map(|cell| word(cell, "name")).collect();
    assert_eq!(names, cells);
    for of in list(result, "cells") {
        cell(of, repeats);
    }
    comparisons(result);
    assert!(["pass", "fail", "no_limit"].contains(&word(result, "verdict")));
    assert!(!word(result, "verdict_reason").is_empty());
}

fn cell(cell: &Value, repeats: usize) {
    assert!(cell.as_object().unwrap().contains_key("skipped") && cell["skipped"].is_null());
    assert!(cell["treatments"].is_array());
    assert_eq!(list(cell, "repeats").len(), repeats);
    for (repeat, expected) in list(cell, "repeats").iter().zip(1..) {
        assert_eq!(number(repeat, "repeat"), expected);
        assert!(repeat.get("error").is_none(), "{repeat}");
        for of in list(repeat, "probes") {
            assert!(number(of, "samples") > 0);
            quantiles(of);
        }
    }
    for of in list(cell, "probes") {
        probe(of);
        // The whole has exactly the samples of its repeats.
        let in_repeats: u64 = list(cell, "repeats")
            .iter()
            .flat_map(|repeat| list(repeat, "probes"))
            .filter(|it| word(it, "probe").split('/').next() == of["probe"].as_str())
            .map(|it| number(it, "samples"))
            .sum();
        let whole: u64 = list(of, "cpus").iter().map(|cpu| number(cpu, "samples")).sum();
        assert_eq!(whole, in_repeats);
    }
    spikes(cell);
    let loads: Vec<&str> = list(cell, "loads").iter().filter_map(Value::as_str).collect();
    let rates: Vec<&str> = list(cell, "rates").iter().map(|rate| word(rate, "load")).collect();
    assert_eq!(rates, loads, "each load has a rate");
    for rate in list(cell, "rates") {
        assert_eq!(word(rate, "unit"), "bytes_per_s");
        assert!(real(rate, "mean") > 0.0);
    }
    interrupts(cell);
    if let Some(floor) = cell.get("noise_floor") {
        assert!(number(floor, "duration_ns") > 0 && number(floor, "threshold_ns") > 0);
        number(floor, "gaps");
    }
}

/// Interrupts on the measured CPUs.
pub(crate) fn interrupts(of: &Value) {
    for interrupt in list(of, "interrupts") {
        number(interrupt, "cpu");
        assert!(!word(interrupt, "line").is_empty());
        number(interrupt, "count");
    }
    let any = list(of, "interrupts").iter().any(|interrupt| number(interrupt, "count") > 0);
    assert!(any, "no CPU runs without its timer");
}

fn comparisons(result: &Value) {
    assert!(!list(result, "comparisons").is_empty());
    for comparison in list(result, "comparisons") {
        assert_eq!(word(comparison, "baseline"), "idle");
        let statistics = ["p50", "p99", "p99.9", "max", "lost_share", "gaps_per_s", "spikes_per_h"];
        assert!(statistics.contains(&word(comparison, "statistic")));
        assert!(["better", "worse", "equivalent", "cannot_tell"].contains(&word(comparison, "outcome")));
        for key in ["cell", "probe", "unit"] {
            word(comparison, key);
        }
        for key in ["baseline_value", "cell_value"] {
            assert!(comparison[key].is_number());
        }
        assert_eq!(word(comparison, "unit") == "ns", comparison.get("baseline_ns").is_some());
        let p_value = comparison.get("p_value").map(|value| value.as_f64().expect("a number"));
        assert!(p_value.is_none_or(|p| (0.0..=1.0).contains(&p)));
    }
}
