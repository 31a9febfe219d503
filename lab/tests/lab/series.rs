//! Dispatch from devices that development machines lack, and loads that need a graphics device, in guests.

use serde_json::Value;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Architecture, Guest, Kernel, LabError, Machine, Profile};

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::kernels_and_arm64_unless_brief(&Kernel::NEEDED) {
        let machine = Machine::new(Profile::Threads, kernel);
        tests.extend([
            LabTest::new("series_dispatch_from_every_clock", machine.clone(), dispatch),
            LabTest::new("series_round_trips_of_every_method", machine, roundtrip),
        ]);
    }
    // The clock of arm64's board has no periodic interrupts, and buffers need no flush there.
    for kernel in suite::kernels_unless_brief(&Kernel::NEEDED) {
        let machine = Machine::new(Profile::Threads, kernel);
        tests.extend([
            LabTest::new("series_write_combining_buffers_flush_the_other_cpu", machine.clone(), pageattr),
            LabTest::new("series_the_real_time_clock_interrupts", machine, clock_interrupts),
        ]);
    }
    tests
}

/// Runs a script whose standard output is one JSON document.
fn json(guest: &mut Guest, script: &str) -> Result<Value, LabError> {
    let text = guest.ok(script)?;
    Ok(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in: {text}")))
}

#[allow(clippy::print_stdout, reason = "figures for the reader of the log, which nothing asserts")]
fn dispatch(guest: &mut Guest) -> Result<(), LabError> {
    let sources = [
        ("timerfd", "10ms", true),
        ("nanosleep", "10ms", true),
        ("rtc", "15625us", true),
        ("rtc-update", "1s", false),
        ("hpet", "15625us", false),
    ];
    let known = if guest.architecture() == Architecture::Arm64 { 2 } else { sources.len() };
    for (source, interval, tells) in sources.into_iter().take(known) {
        let samples = if source == "rtc-update" { 3 } else { 50 };
        let result = json(
            guest,
            &format!(
                "whylate measure dispatch --cpu 1 --source {source} --interval {interval} --samples {samples} \
                 --duration 30s --json -q"
            ),
        )?;
        let cpu = &result["cpus"][0];
        assert_eq!((cpu["series"].as_str(), cpu["samples"].as_u64()), (Some(source), Some(samples)), "{cpu}");
        check_parts(source, cpu);
        let warnings = result["warnings"].as_array().cloned().unwrap_or_default();
        let is_unknown = warnings.iter().any(|warning| warning["code"] == "expiry-unknown");
        assert_eq!(is_unknown, !tells, "{source}");
    }
    Ok(())
}

/// What the kernel reports of the way from the interrupt to the process: everything for its own timers; for a device
/// whose handler leaves the wake-up to a thread, only what comes after that.
fn check_parts(source: &str, cpu: &Value) {
    let parts = cpu["parts"].as_array().cloned().unwrap_or_default();
    let names: Vec<&str> = parts.iter().filter_map(|part| part["part"].as_str()).collect();
    match source {
        "timerfd" | "nanosleep" => assert_eq!(names, ["interrupt", "wakeup", "switch"], "{cpu}"),
        _ => assert!(names.last() == Some(&"switch"), "{source}: {cpu}"),
    }
    let samples = |value: &Value| value["samples"].as_u64().unwrap_or(0);
    assert!(parts.iter().all(|part| samples(part) > 0 && samples(part) <= samples(cpu)), "{cpu}");
}

fn roundtrip(guest: &mut Guest) -> Result<(), LabError> {
    let result = json(guest, "whylate measure roundtrip --cpus 1,0 --samples 200 --duration 60s --json -q")?;
    let cpus = result["cpus"].as_array().cloned().unwrap_or_default();
    let methods: Vec<&str> = cpus.iter().filter_map(|cpu| cpu["series"].as_str()).collect();
    assert_eq!(methods, ["spin", "futex", "eventfd", "pipe", "unix", "udp"]);
    assert!(cpus.iter().all(|cpu| cpu["samples"] == 200), "{cpus:?}");
    Ok(())
}

/// Function-call interrupts that CPU 1 handled while `command` ran.
fn calls_during(guest: &mut Guest, command: &str) -> Result<(u64, String), LabError> {
    let text = guest.ok(&format!(
        "calls() {{ awk '$1 == \"CAL:\" {{ print $3 }}' /proc/interrupts; }}\n\
         before=$(calls)\nout=$({command})\nafter=$(calls)\necho $((after - before))\necho \"$out\""
    ))?;
    let (count, rest) = text.split_once('\n').unwrap_or((&text, ""));
    Ok((count.trim().parse().unwrap_or(0), rest.to_owned()))
}

#[allow(clippy::print_stdout, reason = "figures for the reader of the log, which nothing asserts")]
fn pageattr(guest: &mut Guest) -> Result<(), LabError> {
    guest.ok("modprobe vgem")?;
    let (calls, text) = calls_during(guest, "whylate load pageattr --cpus 0 -D 3 --json -q")?;
    let result: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in: {text}"));
    let buffers = result["rate"]["mean"].as_f64().unwrap_or(0.0) * 3.0;
    assert!(buffers > 5.0, "{result}");
    // Each buffer changes its pages' attributes twice; an idle CPU of a guest handles a handful in that time.
    assert!(calls as f64 > buffers, "{calls} function calls on CPU 1 for {buffers} buffers");
    Ok(())
}

fn clock_interrupts(guest: &mut Guest) -> Result<(), LabError> {
    let result = json(guest, "whylate load irq-thread --source rtc --cpus 0 --rate 64/s -D 2 --json -q")?;
    assert!(result["rate"]["mean"].as_f64().is_some_and(|rate| rate > 5.0), "{result}");
    assert!(
        result["detail"].as_str().is_some_and(|detail| detail.contains("/dev/rtc0 at 64 Hz")),
        "{result}"
    );
    Ok(())
}
