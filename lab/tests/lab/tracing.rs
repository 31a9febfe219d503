//! Recordings and the kernel's measuring tracers on real kernels: planted stalls are named and measured, and tracing
//! is restored, even after a kill.

use serde_json::Value;
use std::time::Duration;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Architecture, Guest, Kernel, LOAD_PLANT, LabError, Machine, Output, Profile, Stall};

/// Length of the planted stalls.
const STALL_NS: u64 = 6_000_000;
/// Length of stalls during a recording of functions, which makes everything late in counted time.
const LONG_STALL_NS: u64 = 30_000_000;
/// Entries and exits of all functions make an emulated CPU late by tens of milliseconds by themselves.
const GRAPH_STALL_NS: u64 = 150_000_000;
/// How far a length may be from the planted one.
const TOLERANCE: f64 = 0.05;
/// Guests in counted time are slow.
const PATIENCE: Duration = Duration::from_secs(280);

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::kernels_and_arm64_unless_brief(&Kernel::NEEDED) {
        let counted = Machine::new(Profile::Counted, kernel);
        tests.extend([
            LabTest::new("tracing_record_light_holds_the_stall", counted.clone(), record_light),
            // With one CPU: QEMU sometimes loses what one CPU writes into the code that another one runs, as the function
            // tracer does in every function, and that CPU then traps for ever.
            LabTest::new("tracing_is_given_back_after_a_kill", counted.clone(), kills),
            LabTest::new("tracing_record_functions_names_the_function", counted.clone(), record_functions),
        ]);
        // On arm64 each function takes 15 us of the counted time with it, so that a task is late all the time.
        if kernel.architecture() == Architecture::X86 {
            tests.push(LabTest::new("tracing_record_graph_names_the_function", counted, record_graph));
        }
    }
    for kernel in suite::kernels_and_arm64(&Kernel::NEEDED) {
        let counted = Machine::new(Profile::Counted, kernel);
        // Debian builds the measuring tracers for its real-time kernel alone.
        let threads = Machine::new(Profile::Threads, kernel);
        if kernel.is_realtime() {
            // It plants NMIs.
            if kernel.architecture() == Architecture::X86 {
                tests.push(LabTest::new("tracing_hwlat_measures_an_nmi", threads, hwlat));
            }
            tests.extend([
                LabTest::new("tracing_timerlat_measures_a_stall", counted.clone(), timerlat),
                LabTest::new("tracing_osnoise_measures_a_long_interrupt", counted, osnoise),
            ]);
        } else {
            tests.push(LabTest::new("tracing_says_which_tracer_is_missing", threads, missing_tracers));
            // With every function of the real-time kernel, its ring does not hold the time until the spike is
            // reported.
            tests.push(LabTest::new("tracing_a_run_keeps_and_explains_its_spikes", counted, on_spike));
        }
    }
    tests
}

fn stalls(output: &Output) -> Vec<Stall> {
    let log = std::fs::read_to_string(output.files.join("plant")).unwrap_or_default();
    Stall::read(&log).unwrap_or_else(|error| panic!("{error}: {log}"))
}

/// Everything of tracing that all buffers share, and the buffers.
const SNAPSHOT: &str = "snapshot() { (cd /sys/kernel/tracing; grep -H . tracing_thresh osnoise/* hwlat_detector/* \
    current_tracer tracing_on 2>/dev/null; ls instances) }\n";

/// Records until one of the stalls that are planted meanwhile, and explains the file. The first ones may come before the
/// probe measures: on Linux 5.10 the function tracer delays its start by many seconds, and by more where stalls are frequent.
fn record(guest: &mut Guest, profile: &str, length_ns: u64) -> Result<Output, LabError> {
    let script = format!(
        "{SNAPSHOT}{LOAD_PLANT}echo clear >/proc/plant\nrm -f /tmp/late.dat\n\
         whylate explain --help >/dev/null\nsnapshot >/tmp/before\n\
         whylate trace record --until {}ns --profile {profile} --cpu 0 -i 1ms -D 100s --buffer 2MiB -o /tmp/late.dat --json -q \
         >$OUT/recorded.json & record=$!\n\
         until grep -qs 1 /sys/kernel/tracing/instances/whylate-trace-*/tracing_on; do\n\
         kill -0 $record || break; sleep 0.1; done\n\
         for turn in $(seq 180); do kill -0 $record 2>/dev/null || break\n\
         echo 'irq-off {length_ns}ns cpu=0' >/proc/plant; sleep 1; done\ncat /proc/plant >$OUT/plant\n\
         wait $record; status=$?; [ $status = 2 ] || {{ echo ended with $status; exit 10; }}\n\
         whylate explain /tmp/late.dat --json >$OUT/explained.json || exit 11\n\
         trace-cmd report /tmp/late.dat >/tmp/report 2>$OUT/trace-cmd || exit 12\n\
         wc -l </tmp/report; tail -n 3 /tmp/report\nsnapshot | diff /tmp/before - || exit 13",
        length_ns / 2
    );
    let output = guest.start(&script)?.wait(PATIENCE)?;
    if output.status == NOTHING_RECORDED && is_too_slow(guest, profile) {
        return Err(LabError::not_there(
            "the emulated CPU is too slow with this tracer of this kernel for a probe to measure",
        ));
    }
    assert_eq!(output.status, 0, "{}\n{}", output.stdout, output.stderr);
    Ok(output)
}

/// What the script of [`record`] ends with where no spike was recorded.
const NOTHING_RECORDED: i32 = 10;

/// Where a probe took 90 s to get ready, and 100 s for a few samples; with threads of the emulator the machine is late by itself.
fn is_too_slow(guest: &Guest, profile: &str) -> bool {
    [("7.", "graph"), ("5.10.", "functions")].iter().any(|(kernel, of)| {
        guest.kernel_version().starts_with(kernel)
            && guest.kernel_version().contains("-rt-")
            && *of == profile
    })
}

/// The spike in an explanation that one of the stalls made.
fn spike_of(explained: &Value, stalls: &[Stall]) -> Value {
    let spikes = explained["spikes"].as_array().cloned().unwrap_or_default();
    let at = |spike: &Value, key: &str| spike[key].as_u64().unwrap_or_default();
    let spans = |spike: &&Value| {
        stalls
            .iter()
            .any(|stall| at(spike, "expected_ns") < stall.end_ns && at(spike, "actual_ns") >= stall.end_ns)
    };
    spikes.iter().find(spans).cloned().unwrap_or_else(|| panic!("{stalls:?} made none of {explained:#}"))
}

fn assert_named(output: &Output) -> Result<(), LabError> {
    let stalls = stalls(output);
    for (file, key) in [("recorded.json", Some("explained")), ("explained.json", None)] {
        let document = output.json(file)?;
        let explained = key.map_or(&document, |key| &document[key]);
        let spike = spike_of(explained, &stalls);
        let cause = &spike["cause"];
        assert_eq!(cause["kind"], "irqs_off", "{file}: {spike:#}");
        let callers = cause["callers"].as_array().cloned().unwrap_or_default();
        let names: Vec<&Value> = std::iter::once(&cause["function"]).chain(&callers).collect();
        assert!(names.iter().any(|name| *name == stalls[0].function.as_str()), "{file}: {spike:#}");
        assert_eq!(spike["expected_from"], "timer", "{file}: {spike:#}");
    }
    let events: u64 =
        output.stdout.lines().next().and_then(|line| line.trim().parse().ok()).unwrap_or_default();
    assert!(events > 100, "trace-cmd shows {}", output.stdout);
    Ok(())
}

fn record_light(guest: &mut Guest) -> Result<(), LabError> {
    let output = record(guest, "light", STALL_NS)?;
    let stalls = stalls(&output);
    let spike = spike_of(&output.json("recorded.json")?["explained"], &stalls);
    // No event names the function: nothing else must be named.
    let cause = &spike["cause"];
    let kind = cause["kind"].as_str().unwrap_or_default();
    assert!(["irqs_off", "unattributed"].contains(&kind), "{spike:#}");
    assert!(cause["function"].is_null() || cause["function"] == stalls[0].function.as_str(), "{spike:#}");
    assert_eq!(spike["expected_from"], "timer", "{spike:#}");
    Ok(())
}

fn record_functions(guest: &mut Guest) -> Result<(), LabError> {
    assert_named(&record(guest, "functions", LONG_STALL_NS)?)
}

fn record_graph(guest: &mut Guest) -> Result<(), LabError> {
    // Most kernels have this tracer for their top-level buffer only.
    let output =
        guest.run("whylate trace record --until 1s --profile graph -D 1s -o /tmp/graph.dat -q; echo $?")?;
    if output.stdout.trim() == "69" {
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(output.stderr.contains("function_graph tracer"), "{}", output.stderr);
        return Ok(());
    }
    assert_named(&record(guest, "graph", GRAPH_STALL_NS)?)
}

/// A plan of one cell, measured on CPU 0.
fn plan(duration: &str, more: &str) -> String {
    format!(
        "cat >/tmp/plan.toml <<'END'\nname = \"lab\"\nduration = \"{duration}\"\nrepeats = 1\nsettle = \"10ms\"\n\
         noise_floor = \"0s\"\n{more}\nEND\nrm -rf /tmp/run\n"
    )
}

/// Runs the plan while `plant` is written to the planter, once the instance of `purpose` records.
fn run_with_plant(guest: &mut Guest, plan: &str, purpose: &str, plant: &str) -> Result<Output, LabError> {
    let script = format!(
        "{SNAPSHOT}{LOAD_PLANT}echo clear >/proc/plant\n{plan}\
         whylate plans quick >/dev/null\nsnapshot >/tmp/before\n\
         whylate run /tmp/plan.toml -o /tmp/run --json -q >$OUT/result.json & run=$!\n\
         until grep -qs 1 /sys/kernel/tracing/instances/whylate-{purpose}-*/tracing_on; do\n\
         kill -0 $run || break; sleep 0.1; done\nsleep 1\n\
         echo '{plant}' >/proc/plant\ncat /proc/plant >$OUT/plant\n\
         wait $run; echo $? >$OUT/status\nsnapshot | diff /tmp/before - || exit 13\nls /tmp/run/traces"
    );
    let output = guest.start(&script)?.wait(PATIENCE)?;
    assert_eq!(output.status, 0, "{}\n{}", output.stdout, output.stderr);
    Ok(output)
}

fn on_spike(guest: &mut Guest) -> Result<(), LabError> {
    let more = "limit = \"15ms\"\ntrace = { profile = \"functions\", worst = 1, buffer = \"8MiB\" }\n[target]\ncpus = \"0\"\n\
                [[probe]]\nkind = \"timer\"\ninterval = \"1ms\"";
    let plant = format!("irq-off {LONG_STALL_NS}ns cpu=0 count=10 every=400ms");
    let output = run_with_plant(guest, &plan("6s", more), "trace", &plant)?;
    let (result, stalls) = (output.json("result.json")?, stalls(&output));
    let cell = &result["cells"][0];
    let trace = &cell["traces"][0];
    let spike = spike_of(&trace["explained"], &stalls);
    let named = (&spike["cause"]["kind"], &spike["expected_from"]);
    assert_eq!(named, (&"irqs_off".into(), &"timer".into()), "{spike:#}");
    assert!(spike["cause"].to_string().contains(&stalls[0].function), "{spike:#}");
    // The spike that the probe measured has that cause too.
    let at = trace["at_ns"].as_u64();
    let listed = cell["spikes"].as_array().cloned().unwrap_or_default();
    let own = listed.iter().find(|spike| spike["at_ns"].as_u64() == at);
    assert_eq!(own.map(|spike| &spike["cause"]["kind"]), Some(&"irqs_off".into()), "{cell:#}");
    // The worst of them alone is kept, whichever of the stalls that was.
    let kept: Vec<&str> = output.stdout.lines().filter(|line| line.ends_with(".dat")).collect();
    assert!(matches!(kept[..], [file] if file.starts_with("idle-1-1-")), "{}", output.stdout);
    assert_eq!(result["restored"], true);
    Ok(())
}

/// The figures of a tracer on the first CPU of the first cell.
fn figures(output: &Output, series: &str) -> Result<Value, LabError> {
    let result = output.json("result.json")?;
    let probe = &result["cells"][0]["probes"][0];
    assert_eq!(
        (&probe["probe"], &probe["cpus"][0]["series"]),
        (&"tracer".into(), &series.into()),
        "{result:#}"
    );
    assert_eq!(result["restored"], true, "{result:#}");
    Ok(probe["cpus"][0].clone())
}

fn timerlat(guest: &mut Guest) -> Result<(), LabError> {
    needs(guest, "timerlat")?;
    let more = "[target]\ncpus = \"0\"\n[[probe]]\nkind = \"tracer\"\ntracer = \"timerlat\"\nperiod = \"1ms\"\npriority = 95";
    let plant = format!("irq-off {STALL_NS}ns cpu=0 count=3 every=200ms");
    let output = run_with_plant(guest, &plan("6s", more), "tracer", &plant)?;
    let (cpu, stalls) = (figures(&output, "timerlat")?, stalls(&output));
    let longest = stalls.iter().map(Stall::length_ns).max().unwrap_or_default();
    // A period begins at any moment of the stall's first millisecond.
    let fits = |value: &Value| {
        let value = value.as_u64().unwrap_or_default();
        value + 1_000_000 >= longest && (value as f64) < longest as f64 * (1.0 + TOLERANCE)
    };
    assert!(fits(&cpu["max_ns"]), "{stalls:?}: {cpu:#}");
    assert!(fits(&cpu["parts"][0]["max_ns"]), "the interrupt came late too: {cpu:#}");
    assert!(cpu["samples"].as_u64() > Some(1_000), "{cpu:#}");
    Ok(())
}

fn osnoise(guest: &mut Guest) -> Result<(), LabError> {
    needs(guest, "osnoise")?;
    let more = "[target]\ncpus = \"0\"\n[[probe]]\nkind = \"tracer\"\ntracer = \"osnoise\"\nwidth = \"190ms\"\n\
                window = \"200ms\"\nthreshold = \"5us\"";
    let plant = format!("hard-irq {LONG_STALL_NS}ns cpu=0 count=8 every=130ms");
    let output = run_with_plant(guest, &plan("8s", more), "tracer", &plant)?;
    let (cpu, stalls) = (figures(&output, "osnoise")?, stalls(&output));
    let longest = stalls.iter().map(Stall::length_ns).max().unwrap_or_default();
    let max = cpu["max_ns"].as_u64().unwrap_or_default();
    // The interrupt hits the thread that asked for it: what that and others took around it is in the same noise.
    assert!((longest * 19 / 20..longest * 2).contains(&max), "{stalls:?}: {cpu:#}");
    assert!(cpu["gaps"].as_u64() > Some(0) && cpu["lost_ns"].as_u64() >= Some(max), "{cpu:#}");
    assert!(cpu["lost_share"].as_f64() > Some(0.0), "{cpu:#}");
    Ok(())
}

/// A test of a tracer that the guest's kernel was built without is skipped, with what whylate says of it.
pub(crate) fn needs(guest: &mut Guest, tracer: &str) -> Result<(), LabError> {
    let tracers = guest
        .ok("mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing\n\
         cat /sys/kernel/tracing/available_tracers")?;
    if tracers.split_whitespace().any(|name| name == tracer) {
        return Ok(());
    }
    Err(LabError::not_there(refused(guest, tracer)?))
}

/// The line with which a run of that tracer alone is refused.
fn refused(guest: &mut Guest, tracer: &str) -> Result<String, LabError> {
    let more = format!("[[probe]]\nkind = \"tracer\"\ntracer = \"{tracer}\"");
    let alone =
        guest.run(&format!("{}whylate run /tmp/plan.toml -o /tmp/run; echo $?", plan("1s", &more)))?;
    assert_eq!(alone.stdout, "69\n", "{}", alone.stderr);
    let option = format!("CONFIG_{}_TRACER is off", tracer.to_uppercase());
    assert!(alone.stderr.lines().count() == 1 && alone.stderr.contains(&option), "{}", alone.stderr);
    Ok(alone.stderr.trim().to_owned())
}

fn missing_tracers(guest: &mut Guest) -> Result<(), LabError> {
    for tracer in ["hwlat", "osnoise", "timerlat"] {
        refused(guest, tracer)?;
        let more = format!("[[probe]]\nkind = \"tracer\"\ntracer = \"{tracer}\"");
        let option = format!("CONFIG_{}_TRACER is off", tracer.to_uppercase());
        // Together with another probe it is left out.
        let more = format!("{more}\n[[probe]]\nkind = \"timer\"");
        let script = format!(
            "{}whylate run /tmp/plan.toml -o /tmp/run -q --json >$OUT/result.json",
            plan("200ms", &more)
        );
        let output = guest.run(&script)?;
        let result = output.json("result.json")?;
        assert_eq!(result["cells"][0]["probes"].as_array().map(Vec::len), Some(1), "{result:#}");
        assert!(result["warnings"].to_string().contains(&option), "{}", result["warnings"]);
    }
    Ok(())
}

/// With interrupts disabled, the tracer sees what neither the kernel nor its tasks can hold back.
fn hwlat(guest: &mut Guest) -> Result<(), LabError> {
    const NMI: Duration = Duration::from_millis(60);
    let more = "[target]\ncpus = \"1\"\n[[probe]]\nkind = \"tracer\"\ntracer = \"hwlat\"\nwidth = \"400ms\"\n\
                window = \"500ms\"\nthreshold = \"20us\"";
    let plant = format!("remote-nmi {}ns cpu=1 from=0 count=12 every=270ms", NMI.as_nanos());
    let output = run_with_plant(guest, &plan("8s", more), "tracer", &plant)?;
    let (cpu, stalls) = (figures(&output, "hwlat")?, stalls(&output));
    assert_eq!(stalls.len(), 12, "{stalls:?}");
    // A host that stops the machine makes longer gaps, never shorter ones.
    let shortest = stalls.iter().map(Stall::length_ns).min().unwrap_or_default();
    assert!(cpu["max_ns"].as_u64() >= Some(shortest * 19 / 20), "{stalls:?}: {cpu:#}");
    assert!(cpu["gaps"].as_u64() > Some(0), "{cpu:#}");
    Ok(())
}

/// Recordings, tracers and runs with both are killed at different moments.
fn kills(guest: &mut Guest) -> Result<(), LabError> {
    let both = "trace = { profile = \"functions\", above = \"1us\" }\n[target]\ncpus = \"0\"\n[[probe]]\nkind = \"timer\"\n\
                [[probe]]\nkind = \"tracer\"\ntracer = \"$tracer\"\n";
    let keys = "case $tracer in hwlat) echo 'width = \"20ms\"'; echo 'window = \"50ms\"'; echo 'threshold = \"1ms\"';;\n\
                osnoise) echo 'width = \"30ms\"'; echo 'window = \"60ms\"'; echo 'threshold = \"3us\"';;\n\
                timerlat) echo 'period = \"2ms\"';; esac";
    let head = "name = \"lab\"\nduration = \"1s\"\nrepeats = 9\nnoise_floor = \"0s\"\nsettle = \"1ms\"\n";
    let script = format!(
        "export WHYLATE_STATE_DIR=/tmp/state\n{SNAPSHOT}echo 77 >/sys/kernel/tracing/tracing_thresh\n\
         snapshot >/tmp/before\nround=0\n\
         for tracer in hwlat osnoise timerlat; do for wait in 0.7 2.2; do\n\
         round=$((round + 1)); rm -rf /tmp/run\n\
         {{ cat <<END\n{head}{both}END\n{keys}\n}} >/tmp/plan.toml\n\
         whylate run /tmp/plan.toml -o /tmp/run -q >/dev/null 2>$OUT/run & run=$!\n\
         sleep $wait; kill -9 $run; wait $run\n\
         whylate treat restore >$OUT/restored 2>&1 || {{ cat $OUT/restored; exit 10; }}\n\
         snapshot | diff /tmp/before - || exit 11\necho run-restored\ndone; done\n\
         for wait in 0.6 2; do rm -f /tmp/late.dat\n\
         whylate trace record --until 10s --profile functions --cpu 0 -o /tmp/late.dat -q >/dev/null 2>&1 & run=$!\n\
         sleep $wait; kill -9 $run; wait $run\nwhylate treat restore >/dev/null || exit 12\n\
         snapshot | diff /tmp/before - || exit 13\necho record-restored\ndone\n\
         echo 0 >/sys/kernel/tracing/tracing_thresh"
    );
    let output = guest.start(&script)?.wait(PATIENCE)?;
    assert_eq!(output.status, 0, "{}\n{}", output.stdout, output.stderr);
    let count = |word: &str| output.stdout.lines().filter(|line| *line == word).count();
    assert_eq!((count("run-restored"), count("record-restored")), (6, 2), "{}", output.stdout);
    Ok(())
}
