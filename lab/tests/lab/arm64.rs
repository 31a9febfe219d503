//! What is different on arm64: what its kernels cannot report, and what only x86 has is refused with a reason.

use crate::watch;
use serde_json::Value;
use std::time::Duration;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, LabError, Machine, Profile};

/// Rows of `check --tracing` that no arm64 has, or that this program knows only on x86.
const MISSING: [&str; 4] = [
    "non-maskable interrupts",
    "interrupts by vector",
    "TLB flushes by interrupts",
    // QEMU's processors do not count them.
    "cache misses of threads",
];
/// Guests in counted time are slow.
const PATIENCE: Duration = Duration::from_secs(280);

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::arm64() {
        let counted = Machine::new(Profile::Counted, kernel);
        tests.extend([
            LabTest::new("arm64_says_what_its_kernel_cannot_tell", counted.clone(), sources),
            LabTest::new("arm64_refuses_what_x86_alone_has", counted.clone(), refusals),
            LabTest::new("arm64_runs_every_load", counted.clone(), loads),
            LabTest::new("arm64_names_its_own_work_on_the_only_cpu", counted.clone(), own_work),
            // QEMU counts them on no other architecture.
            LabTest::new("arm64_tells_more_instructions_of_late_work", counted.clone(), instructions),
            // Page faults are seen at the entry of a function there.
            LabTest::new("arm64_watch_names_thieves_locks_and_pages", counted, watch::brief),
        ]);
    }
    tests
}

fn sources(guest: &mut Guest) -> Result<(), LabError> {
    let text = guest.ok("whylate check --tracing")?;
    let missing: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("missing ")?.split(':').next())
        .map(str::trim)
        .collect();
    assert_eq!(missing, MISSING, "{text}");
    Ok(())
}

/// Each command, its exit status and what it says.
const REFUSED: [(&str, i32, &str); 3] = [
    ("whylate measure dispatch --cpu 0 --source hpet --interval 10ms --samples 3 -D 3s -q", 69, "/dev/hpet"),
    (
        "whylate copy --from wc --backend memtype --method memcpy --block 4KiB --trials 3",
        69,
        "of x86-64 only",
    ),
    ("whylate copy --from wb --to wb --method rep-movsb --block 4KiB --trials 3", 69, "x86-64"),
];

fn refusals(guest: &mut Guest) -> Result<(), LabError> {
    for (command, status, words) in REFUSED {
        let output = guest.run(&format!("WHYLATE_STATE_DIR=/tmp/state {command}"))?;
        let said = format!("{command}: {} {}{}", output.status, output.stdout, output.stderr);
        assert_eq!(output.status, status, "{said}");
        assert!(output.stderr.contains(words) && !output.stderr.contains("panicked"), "{said}");
    }
    // Processors without such interrupts do not lack a counter of them.
    let text = guest.ok("whylate measure timer --cpu 0 -i 10ms -D 200ms --json -q")?;
    assert!(!text.contains("no-smi-counter"), "{text}");
    Ok(())
}

fn loads(guest: &mut Guest) -> Result<(), LabError> {
    for load in ["memory --working-set 1MiB", "copy --working-set 1MiB", "tlb", "softirq"] {
        let text = guest.ok(&format!("whylate load {load} --cpus 0 -D 1 --json -q"))?;
        let result: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert!(result["rate"]["mean"].as_f64().is_some_and(|rate| rate > 0.0), "{load}: {result}");
    }
    Ok(())
}

/// On the only CPU the runner gets its turn between two readings of the loop: the measurement itself is responsible
/// for that.
fn own_work(guest: &mut Guest) -> Result<(), LabError> {
    let script = "whylate measure stall --cpu 0 --threshold 10us --duration 4s --spikes 5000 --causes --json -q >$OUT/result.json";
    let output = guest.start(script)?.wait(PATIENCE)?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let result = output.json("result.json")?;
    let spikes = result["spikes"].as_array().cloned().unwrap_or_default();
    let actors: Vec<&str> = spikes.iter().filter_map(|spike| spike["cause"]["actor"].as_str()).collect();
    assert!(actors.contains(&"whylate itself"), "{actors:?}");
    assert!(!actors.contains(&"whylate"), "{actors:?}");
    Ok(())
}

/// A sum of counts may differ by this part from what the task counts itself: it includes the way to and from its sleep.
const COUNT_TOLERANCE: f64 = 0.05;

/// In QEMU each instruction takes the same time, so the other changes cannot be planted.
fn instructions(guest: &mut Guest) -> Result<(), LabError> {
    let (turns, result) = watch::watch(guest, "--per-wakeup", 0, &["counted"])?;
    let mut named = 0;
    for spike in watch::spikes_of(&result, "counted") {
        let counters = &spike["cause"]["counters"];
        let Some(counted) = counters["instructions"].as_f64() else { continue };
        let Some(turn) = turns.iter().find(|turn| watch::is_of(spike, turn)) else { continue };
        let own: f64 = turn.function.parse().unwrap_or_else(|error| panic!("{error}: {turn:?}"));
        assert!((counted / own - 1.0).abs() < COUNT_TOLERANCE, "{own} by the task: {spike}");
        let usual = counters["usual"]["instructions"].as_f64();
        let is_more = usual.is_some_and(|usual| own > 3.0 * usual);
        let change = counters["change"].as_str();
        assert_eq!(change, is_more.then_some("more_instructions"), "{spike}");
        let is_said =
            |line: &Value| line.as_str().is_some_and(|it| it.starts_with("the task did more work: "));
        let evidence = spike["cause"]["evidence"].as_array();
        assert_eq!(evidence.is_some_and(|lines| lines.iter().any(is_said)), is_more, "{spike}");
        named += usize::from(is_more);
    }
    assert!(named >= 5, "{named} of {}: {result}", turns.len());
    Ok(())
}
