//! The program under test, in guests: it runs on both kernels and finds what was planted.

use serde_json::Value;
use std::time::{Duration, Instant};
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, Kernel, LOAD_PLANT, LabError, Machine, Profile, Stall};

/// How far a measured length may be from the planted one.
const TOLERANCE: f64 = 0.05;
/// How many stalls are planted while a probe measures.
const STALLS: usize = 7;

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::kernels_and_arm64_unless_brief(&Kernel::NEEDED) {
        let counted = Machine::new(Profile::Counted, kernel);
        let test = |name, body| LabTest::new(name, counted.clone(), body);
        tests.extend([
            test("measure_timer_finds_a_planted_irq_off_stall", timer_finds_stall),
            test("measure_stall_finds_a_planted_irq_off_stall", stall_finds_stall),
            test("measure_timer_and_cyclictest_count_the_same_cycles", with_cyclictest),
            test("measure_run_quick_measures_all_cells", run_quick),
        ]);
    }
    for kernel in suite::kernels_and_arm64_unless_brief(&Kernel::NEEDED) {
        let threads = Machine::new(Profile::Threads, kernel);
        let test = |name, body| LabTest::new(name, threads.clone(), body);
        tests.extend([
            test("measure_run_quick_measures_all_cells", run_quick),
            test("measure_on_a_cpu_that_goes_offline_counts_for_nothing", goes_offline),
            test("measure_that_is_frozen_counts_for_nothing", frozen),
            test("measure_stall_finds_a_stopped_machine", stopped_machine),
        ]);
    }
    tests
}

/// Plants stalls of 3 ms while a probe runs; returns what the planter logged and the probe's result.
fn measure_with_plants(guest: &mut Guest, command: &str) -> Result<(Vec<Stall>, Value), LabError> {
    // The first, short measurement brings all files into memory: in counted time a disk may take longer than the pause
    // before the first stall.
    let script = format!(
        "set -e\n{LOAD_PLANT}echo clear >/proc/plant\n\
         {command} --duration 50ms >/dev/null 2>&1\n\
         echo 'irq-off 3ms cpu=0 after=1500ms count={STALLS} every=230ms' >/proc/plant &\n\
         {command} --duration 5s --spikes 5000 --json -q >$OUT/result.json\nwait\ncat /proc/plant"
    );
    let output = guest.run(&script)?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let stalls = Stall::read(&output.stdout)?;
    assert_eq!(stalls.len(), STALLS, "{stalls:?}");
    Ok((stalls, output.json("result.json")?))
}

/// Runs one repeat of one cell and does `act` meanwhile; it has to end without a sample that counts, and to say why.
fn counts_for_nothing(guest: &mut Guest, act: &str, why: &str) -> Result<(), LabError> {
    let output = guest.run(&format!(
        "printf 'name = \"x\"\\nduration = \"8s\"\\nrepeats = 1\\nlimit = \"60s\"\\nnoise_floor = \"0s\"\\n[target]\\ncpus = \"1\"\\n\
         [[probe]]\\nkind = \"timer\"\\n[[cell]]\\n' >/tmp/plan.toml\n\
         rm -rf /tmp/run\n\
         (whylate run /tmp/plan.toml -o /tmp/run -q >/tmp/said 2>&1; echo status $? >>/tmp/said) &\n\
         {act}\nwait\ncat /tmp/said"
    ))?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let said = &output.stdout;
    assert!(said.contains("no samples") && said.contains(why) && said.contains("status 1"), "{said}");
    Ok(())
}

fn goes_offline(guest: &mut Guest) -> Result<(), LabError> {
    let cpu = "/sys/devices/system/cpu/cpu1/online";
    let act = format!("sleep 5; echo 0 >{cpu}; sleep 5; echo 1 >{cpu}");
    counts_for_nothing(guest, &act, "CPU 1 went offline")
}

fn frozen(guest: &mut Guest) -> Result<(), LabError> {
    let group = "/sys/fs/cgroup/frozen";
    let act = format!(
        "mkdir -p {group}; sleep 3\n\
         for pid in $(pidof whylate); do echo $pid >{group}/cgroup.procs; done\n\
         sleep 1; echo 1 >{group}/cgroup.freeze; sleep 3; echo 0 >{group}/cgroup.freeze"
    );
    counts_for_nothing(guest, &act, "the measuring threads and whylate did not run")
}

/// For each stall, the length of the spike that spans its end.
fn spikes_at(stalls: &[Stall], result: &Value) -> Vec<Option<u64>> {
    let spikes = result["spikes"].as_array().cloned().unwrap_or_default();
    let spans = |spike: &Value, stall: &Stall| -> Option<u64> {
        let (at, latency) = (spike["at_ns"].as_u64()?, spike["latency_ns"].as_u64()?);
        (at >= stall.end_ns && at - latency < stall.end_ns).then_some(latency)
    };
    stalls.iter().map(|stall| spikes.iter().find_map(|spike| spans(spike, stall))).collect()
}

/// Whether a measured length is the planted one.
fn is_as_long(measured: Option<u64>, stall: &Stall) -> bool {
    let planted = stall.length_ns() as f64;
    measured.is_some_and(|measured| (measured as f64 - planted).abs() <= TOLERANCE * planted)
}

fn timer_finds_stall(guest: &mut Guest) -> Result<(), LabError> {
    // The latency of a stall lacks the part before the next wake-up was expected: at most one interval, here 1/30 of
    // it.
    let (stalls, result) = measure_with_plants(guest, "whylate measure timer --cpu 0 --interval 100us")?;
    for (stall, measured) in stalls.iter().zip(spikes_at(&stalls, &result)) {
        assert!(is_as_long(measured, stall), "{stall:?} was measured as {measured:?}");
    }
    let missed = result["cpus"][0]["overruns"].as_u64().unwrap_or_default();
    // Each stall hides the wake-ups of 3 ms less the one that it delays.
    assert!(missed >= STALLS as u64 * 28, "{missed} missed periods");
    Ok(())
}

fn stall_finds_stall(guest: &mut Guest) -> Result<(), LabError> {
    let (stalls, result) = measure_with_plants(guest, "nice -n -20 whylate measure stall --cpu 0")?;
    let measured = spikes_at(&stalls, &result);
    // With one CPU the loop is no real-time task: what waited during the stall may run right after it, and the gap is
    // longer then. It is never shorter, and usually as long.
    for (stall, measured) in stalls.iter().zip(&measured) {
        assert!(measured.is_some_and(|measured| measured >= stall.length_ns()), "{stall:?}: {measured:?}");
    }
    let as_long =
        stalls.iter().zip(&measured).filter(|(stall, measured)| is_as_long(**measured, stall)).count();
    assert!(2 * as_long > STALLS, "{as_long} of {STALLS}: {stalls:?} {measured:?}");
    Ok(())
}

#[allow(clippy::print_stdout, reason = "figures for the reader of the log, which nothing asserts")]
fn with_cyclictest(guest: &mut Guest) -> Result<(), LabError> {
    let output = guest.run(
        "set -e\ncyclictest -q -m -t1 -a0 -p95 -i1000 -D2\n\
         whylate measure timer --cpu 0 --interval 1ms --duration 2s --json -q >$OUT/result.json",
    )?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    // T: 0 (  123) P:95 I:1000 C:   2000 Min:      5 Act:    8 Avg:    7 Max:      43
    let cycles = number_after(&output.stdout, "C:");
    let result = output.json("result.json")?;
    let cpu = &result["cpus"][0];
    let samples = cpu["samples"].as_u64().unwrap_or_default();
    assert!((1900..=2100).contains(&samples), "{samples} samples");
    assert!(cycles.abs_diff(samples) <= 20, "cyclictest counted {cycles}, whylate {samples}");
    println!(
        "         {}: cyclictest {}; whylate min {} p50 {} max {} ns",
        guest.kernel_version(),
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
    // Counted time on a busy host.
    let output = guest.start(script)?.wait(Duration::from_secs(400))?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let result = output.json("result.json")?;
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
    const PAUSE: Duration = Duration::from_millis(1100);
    // The guest cannot say when its probe starts: a loop that has a CPU to itself delays the process that would say
    // it. So the machine is stopped again and again, and five times or so while it is measured.
    let script = "whylate measure stall --cpu 1 --duration 8s --json -q >$OUT/result.json";
    let mut running = guest.start(script)?;
    let mut shortest = Duration::MAX;
    let deadline = Instant::now() + Duration::from_secs(120);
    while !running.is_done_within(PAUSE)? {
        assert!(Instant::now() < deadline, "the probe does not end");
        shortest = shortest.min(running.guest().freeze(STOPPED)?);
    }
    let output = running.wait(PAUSE)?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let spikes = output.json("result.json")?["spikes"].as_array().cloned().unwrap_or_default();
    let lengths: Vec<u64> = spikes.iter().filter_map(|spike| spike["latency_ns"].as_u64()).collect();
    let long = lengths.iter().filter(|length| **length >= shortest.as_nanos() as u64 * 9 / 10).count();
    assert!(long >= 2, "stopped for {shortest:?} again and again, gaps of {lengths:?} ns");
    Ok(())
}
