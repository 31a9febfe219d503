//! The program under test, in guests: it runs on both kernels and finds what was planted.

use serde_json::Value;
use std::time::Duration;
use whylate_lab::suite::LabTest;
use whylate_lab::{Guest, Kernel, LabError, Machine, Output, Profile, Stall};

/// How far a measured length may be from the planted one.
const TOLERANCE: f64 = 0.05;

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in Kernel::ALL {
        let counted = Machine::new(Profile::Counted, kernel);
        let threads = Machine::new(Profile::Threads, kernel);
        tests.extend([
            LabTest::new("measure_timer_finds_a_planted_irq_off_stall", counted.clone(), timer_finds_stall),
            LabTest::new("measure_stall_finds_a_planted_irq_off_stall", counted.clone(), stall_finds_stall),
            LabTest::new(
                "measure_timer_and_cyclictest_count_the_same_cycles",
                counted.clone(),
                beside_cyclictest,
            ),
            LabTest::new("measure_run_quick_measures_all_cells", counted, run_quick),
            LabTest::new("measure_run_quick_measures_all_cells", threads.clone(), run_quick),
            LabTest::new("measure_stall_finds_a_stopped_machine", threads, stopped_machine),
        ]);
    }
    tests
}

/// Plants three stalls of 3 ms while a probe runs; the planter's log comes back as stdout, the result as `result.json`.
fn measure_beside_plants(guest: &mut Guest, command: &str) -> Result<(Vec<Stall>, Value), LabError> {
    let script = format!(
        "set -e\n[ -e /proc/plant ] || insmod /lab/plant.ko\necho clear >/proc/plant\n\
         echo 'irq-off 3ms cpu=0 after=1500ms count=3 every=400ms' >/proc/plant &\n\
         {command} --json -q >$OUT/result.json\nwait\ncat /proc/plant"
    );
    let output = guest.run(&script)?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let stalls = Stall::read(&output.stdout)?;
    assert_eq!(stalls.len(), 3, "{stalls:?}");
    Ok((stalls, result(&output)))
}

fn result(output: &Output) -> Value {
    let text = std::fs::read_to_string(output.files.join("result.json")).unwrap_or_default();
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error} in the result: {text}\n{}", output.stderr))
}

/// Asserts that for each stall there is a spike that spans it and is as long.
fn assert_found(stalls: &[Stall], result: &Value) {
    let spikes = result["spikes"].as_array().cloned().unwrap_or_default();
    for stall in stalls {
        let length = stall.length_ns() as f64;
        let found = spikes.iter().any(|spike| {
            let (Some(at), Some(latency)) = (spike["at_ns"].as_u64(), spike["latency_ns"].as_u64()) else {
                return false;
            };
            let overlaps = at >= stall.end_ns && at - latency < stall.end_ns;
            overlaps && (latency as f64 - length).abs() <= TOLERANCE * length
        });
        let near: Vec<&Value> = spikes.iter().filter(|spike| is_near(spike, stall)).collect();
        assert!(found, "{stall:?} is not among the spikes: {near:?}");
    }
}

/// Whether a spike ended within 10 ms of a stall.
fn is_near(spike: &Value, stall: &Stall) -> bool {
    spike["at_ns"].as_u64().is_some_and(|at| at.abs_diff(stall.end_ns) < 10_000_000)
}

fn timer_finds_stall(guest: &mut Guest) -> Result<(), LabError> {
    // The latency of a stall lacks the part before the next wake-up was due: at most one interval, here 1/30 of it.
    let command = "whylate measure timer --cpu 0 --interval 100us --duration 4s";
    let (stalls, result) = measure_beside_plants(guest, command)?;
    assert_found(&stalls, &result);
    let missed = result["cpus"][0]["overruns"].as_u64().unwrap_or_default();
    // Each hides the wake-ups of 3 ms less the one that it delays.
    assert!(missed >= 3 * 28, "{missed} missed periods");
    Ok(())
}

fn stall_finds_stall(guest: &mut Guest) -> Result<(), LabError> {
    // With one CPU the loop is no real-time task; a low nice value keeps the others away from it most of the time.
    let command = "nice -n -20 whylate measure stall --cpu 0 --duration 4s --spikes 5000";
    let (stalls, result) = measure_beside_plants(guest, command)?;
    assert_found(&stalls, &result);
    Ok(())
}

fn beside_cyclictest(guest: &mut Guest) -> Result<(), LabError> {
    let output = guest.run(
        "set -e\ncyclictest -q -m -t1 -a0 -p95 -i1000 -D2\n\
         whylate measure timer --cpu 0 --interval 1ms --duration 2s --json -q >$OUT/result.json",
    )?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    // T: 0 (  123) P:95 I:1000 C:   2000 Min:      5 Act:    8 Avg:    7 Max:      43
    let cycles = number_after(&output.stdout, "C:");
    let cpu = &result(&output)["cpus"][0];
    let samples = cpu["samples"].as_u64().unwrap_or_default();
    assert!((1900..=2100).contains(&samples), "{samples} samples");
    assert!(cycles.abs_diff(samples) <= 20, "cyclictest counted {cycles}, whylate {samples}");
    // For the reader of the log; in counted time they are comparable, but a figure is nothing to assert.
    println!(
        "         cyclictest: {}; whylate: min {} p50 {} max {} ns",
        output.stdout.lines().last().unwrap_or_default().trim(),
        cpu["min_ns"],
        cpu["p50_ns"],
        cpu["max_ns"]
    );
    Ok(())
}

/// The number after a word, with blanks between them.
fn number_after(text: &str, word: &str) -> u64 {
    let rest = text.split(word).nth(1).unwrap_or_default();
    rest.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

fn run_quick(guest: &mut Guest) -> Result<(), LabError> {
    let script = "whylate run quick --set duration=300ms --set repeats=1 --set settle=50ms --set warmup=20ms \
                  --set noise_floor=50ms -o /tmp/run --json >$OUT/result.json";
    let output = guest.start(script)?.wait(Duration::from_secs(240))?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let result = result(&output);
    assert_eq!(result["format"], "whylate.run/1");
    let cells = result["cells"].as_array().cloned().unwrap_or_default();
    assert_eq!(cells.len(), 3, "{cells:?}");
    for cell in &cells {
        let probes = cell["probes"].as_array().cloned().unwrap_or_default();
        assert_eq!(probes.len(), 2, "{}: {probes:?}", cell["name"]);
        for probe in &probes {
            let samples = probe["cpus"][0]["samples"].as_u64().unwrap_or_default();
            assert!(samples > 0, "{} has no samples of {}", cell["name"], probe["probe"]);
        }
    }
    let realtime = result["facts"]["kernel"]["realtime"].as_bool();
    assert_eq!(realtime, Some(guest.kernel_version().contains("-rt-")));
    Ok(())
}

fn stopped_machine(guest: &mut Guest) -> Result<(), LabError> {
    const STOPPED: Duration = Duration::from_millis(400);
    let script = "whylate measure stall --cpu 1 --duration 6s --json -q >$OUT/result.json";
    let mut running = guest.start(script)?;
    // Long enough for the probe to have begun, on a busy host too; and it ends only after the stop.
    std::thread::sleep(Duration::from_secs(4));
    let stopped = running.guest().freeze(STOPPED)?;
    let output = running.wait(Duration::from_secs(120))?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let longest = result(&output)["cpus"][0]["max_ns"].as_u64().unwrap_or_default();
    assert!(
        longest >= stopped.as_nanos() as u64 * 9 / 10,
        "stopped for {stopped:?}, longest gap {longest} ns"
    );
    Ok(())
}
