//! Causes: what is planted is named first, as nothing else.

use serde_json::Value;
use whylate_lab::suite::LabTest;
use whylate_lab::{Guest, Kernel, LabError, Machine, Profile, Stall};

/// How many stalls are planted beside a probe.
const STALLS: usize = 10;

/// A plant, and how it is to be named.
struct Planted {
    /// What is written into `/proc/plant`, without how often.
    plant: &'static str,
    /// The kind of cause.
    kind: &'static str,
    /// Whether the cause's function is the plant's.
    names_function: bool,
}

/// What one CPU can plant in a timer's way on both kernels.
const PLANTS: [Planted; 4] = [
    Planted { plant: "irq-off 3ms cpu=0", kind: "irqs_off", names_function: true },
    Planted { plant: "preempt-off 3ms cpu=0", kind: "preempt_off", names_function: true },
    Planted { plant: "hard-irq 3ms cpu=0", kind: "irq", names_function: false },
    Planted { plant: "rt-thread 3ms cpu=0", kind: "thread", names_function: false },
];
/// On a real-time kernel a tasklet runs in a thread that gives way to the probe.
const PLANT_OF_PLAIN: Planted =
    Planted { plant: "softirq 3ms cpu=0", kind: "softirq", names_function: false };

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in Kernel::ALL {
        let machine = Machine::new(Profile::Counted, kernel);
        tests.push(LabTest::new("causes_timer_names_what_was_planted", machine, timer_names_plants));
    }
    tests
}

fn timer_names_plants(guest: &mut Guest) -> Result<(), LabError> {
    let plain = (!guest.kernel_version().contains("-rt-")).then_some(&PLANT_OF_PLAIN);
    let mut wrong = Vec::new();
    for planted in PLANTS.iter().chain(plain) {
        wrong.extend(mistakes(guest, planted)?);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Plants, measures, and tells which stalls were explained by something else.
fn mistakes(guest: &mut Guest, planted: &Planted) -> Result<Vec<String>, LabError> {
    let script = format!(
        "set -e\n[ -e /proc/plant ] || insmod /lab/plant.ko\necho clear >/proc/plant\n\
         echo '{} after=8s count={STALLS} every=230ms' >/proc/plant &\n\
         whylate measure timer --cpu 0 --interval 1ms --duration 12s --spikes 500 --causes --json -q \
         >$OUT/result.json\nwait\ncat /proc/plant",
        planted.plant
    );
    let output = guest.run(&script)?;
    assert_eq!(output.status, 0, "{}: {}", planted.plant, output.stderr);
    let stalls = Stall::read(&output.stdout)?;
    assert_eq!(stalls.len(), STALLS, "{stalls:?}");
    let text = std::fs::read_to_string(output.files.join("result.json")).unwrap_or_default();
    let result: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let spikes = result["spikes"].as_array().cloned().unwrap_or_default();
    let mut wrong = Vec::new();
    let mut right = 0;
    for stall in &stalls {
        let Some(spike) = spikes.iter().find(|spike| spans(spike, stall)) else {
            wrong.push(format!("{}: {stall:?} was not measured", planted.plant));
            continue;
        };
        let cause = &spike["cause"];
        let is_named = !planted.names_function || named(cause, &stall.function);
        if cause["kind"] == planted.kind && is_named {
            right += 1;
        } else {
            wrong.push(format!("{}: {} also {}", planted.plant, cause, spike["also"]));
        }
    }
    // One of twenty may have had another reason as well.
    Ok(if right * 20 >= STALLS * 19 { Vec::new() } else { wrong })
}

/// Whether the function is the cause's own or its caller.
fn named(cause: &Value, function: &str) -> bool {
    let callers = cause["callers"].as_array().cloned().unwrap_or_default();
    cause["function"] == function || callers.iter().any(|caller| caller == function)
}

/// Whether the spike is the stall's: long, and with its end inside.
fn spans(spike: &Value, stall: &Stall) -> bool {
    let (Some(at), Some(latency)) = (spike["at_ns"].as_u64(), spike["latency_ns"].as_u64()) else {
        return false;
    };
    at >= stall.end_ns && at - latency < stall.end_ns && latency * 2 > stall.length_ns()
}
