//! Causes: what is planted is named first, and as nothing else with certainty.

use serde_json::Value;
use std::time::{Duration, Instant};
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Architecture, Guest, Kernel, LOAD_PLANT, LabError, Machine, Profile, Stall};

/// How often each cause is planted while a probe measures.
const STALLS: usize = 20;
/// How many of them have to be named.
const NAMED_MIN: usize = 19;
/// The same in a guest that the host stops now and then, for which the plant is not responsible.
const STALLS_OF_PAIRS: usize = 5;
const NAMED_MIN_OF_PAIRS: usize = 3;

/// Counted time is slow on a busy host, and on the oldest kernel most of all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);

/// A plant, and how it should be named.
pub(crate) struct Planted {
    /// Name of the cause in `/proc/plant`.
    pub(crate) cause: &'static str,
    /// The kind of cause.
    pub(crate) kind: &'static str,
    /// Which part of the cause names the plant.
    pub(crate) names: Names,
}

/// Which part of a cause names the plant.
pub(crate) enum Names {
    /// Nothing but the kind.
    Kind,
    /// The function, or one of its callers: the plant's own.
    Function,
    /// The actor contains that.
    Actor(&'static str),
}

/// What one CPU can plant to delay a timer, on every kernel.
const PLANTS: [Planted; 3] = [
    Planted { cause: "irq-off", kind: "irqs_off", names: Names::Function },
    Planted { cause: "hard-irq", kind: "irq", names: Names::Function },
    Planted { cause: "rt-thread", kind: "thread", names: Names::Actor("rt-thread") },
];
/// Causes that need an interrupt controller of x86.
const NMI: Planted = Planted { cause: "nmi", kind: "nmi", names: Names::Kind };
/// The wake-up's stack has the function on the real-time kernel; the plain one's has not, and the thread is named.
const PREEMPT_OFF: Planted = Planted { cause: "preempt-off", kind: "preempt_off", names: Names::Function };
const PREEMPT_OFF_PLAIN: Planted =
    Planted { cause: "preempt-off", kind: "preempt_off", names: Names::Actor("plant-preempt") };
/// On a real-time kernel a tasklet runs in a thread that gives way to the probe.
const SOFTIRQ: Planted = Planted { cause: "softirq", kind: "softirq", names: Names::Kind };
/// The interrupt's thread has a priority of 50: the probe has less.
const IRQ_THREAD: Planted = Planted { cause: "irq-thread", kind: "thread", names: Names::Actor("plant") };
/// What one CPU does to another.
const PAIRS: [Planted; 2] = [
    Planted { cause: "ipi", kind: "ipi", names: Names::Kind },
    Planted { cause: "raw-spinlock", kind: "irqs_off", names: Names::Actor("plant-raw") },
];

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::kernels_and_arm64(&Kernel::CULPRITS) {
        let counted = Machine::new(Profile::Counted, kernel);
        tests.extend([
            LabTest::new("causes_of_what_one_cpu_plants", counted.clone(), one_cpu),
            LabTest::new("causes_of_a_storm_of_interrupt_threads", counted, interrupt_threads),
        ]);
    }
    for kernel in suite::kernels_and_arm64(&Kernel::NEEDED) {
        let threads = Machine::new(Profile::Threads, kernel);
        tests.extend([
            LabTest::new("causes_of_what_another_cpu_plants", threads.clone(), other_cpu),
            LabTest::new("causes_of_a_stopped_and_a_throttled_loop", threads, stopped_and_throttled),
        ]);
    }
    // For the record: without disturbance by the host, each of many stalls counts.
    for kernel in suite::kernels_and_arm64(&[]) {
        let pair = Machine::new(Profile::CountedPair, kernel);
        tests.push(LabTest::new(
            "causes_of_what_another_cpu_plants_in_counted_time",
            pair,
            other_cpu_counted,
        ));
    }
    for kernel in suite::kernels(&Kernel::NEEDED) {
        let threads = Machine::new(Profile::Threads, kernel);
        tests.push(LabTest::new("causes_name_what_other_cpus_ask_for", threads, asked_for));
    }
    tests
}

fn one_cpu(guest: &mut Guest) -> Result<(), LabError> {
    let own: &[&Planted] = match (guest.architecture(), guest.kernel_version().contains("-rt-")) {
        (Architecture::Arm64, _) => &[&PREEMPT_OFF],
        (Architecture::X86, true) => &[&NMI, &PREEMPT_OFF],
        (Architecture::X86, false) => &[&NMI, &PREEMPT_OFF_PLAIN, &SOFTIRQ],
    };
    let plants: Vec<&Planted> = PLANTS.iter().chain(own.iter().copied()).collect();
    let commands =
        plants.iter().map(|planted| format!("{} 3ms cpu=0 count={STALLS} every=103ms", planted.cause));
    let measure = "whylate measure timer --cpu 0 --interval 1ms --duration 20s --spikes 1000";
    let (stalls, result) = plant_during(guest, &commands.collect::<Vec<_>>(), measure)?;
    check(guest, &plants, &stalls, &result, NAMED_MIN);
    Ok(())
}

fn interrupt_threads(guest: &mut Guest) -> Result<(), LabError> {
    let commands = [format!("irq-thread 3ms cpu=0 count={STALLS} every=103ms")];
    // Its thread takes 300 of each 400 us: the task gets the rest.
    let measure = "whylate measure timer --cpu 0 --interval 1ms --priority 40 --duration 8s --spikes 1000";
    let (stalls, result) = plant_during(guest, &commands, measure)?;
    check(guest, &[&IRQ_THREAD], &stalls, &result, NAMED_MIN);
    Ok(())
}

fn other_cpu(guest: &mut Guest) -> Result<(), LabError> {
    pairs(guest, &format!("60ms cpu=1 from=0 count={STALLS_OF_PAIRS} every=200ms"), NAMED_MIN_OF_PAIRS)
}

fn other_cpu_counted(guest: &mut Guest) -> Result<(), LabError> {
    pairs(guest, &format!("3ms cpu=1 from=0 count={STALLS} every=103ms"), NAMED_MIN)
}

fn pairs(guest: &mut Guest, stalls: &str, named_min: usize) -> Result<(), LabError> {
    let commands: Vec<String> = PAIRS.iter().map(|planted| format!("{} {stalls}", planted.cause)).collect();
    let measure = "taskset -c 0-1 whylate measure timer --cpu 1 --interval 1ms --duration 9s --spikes 1000";
    let (stalls, result) = plant_during(guest, &commands, measure)?;
    let plants: Vec<&Planted> = PAIRS.iter().collect();
    check(guest, &plants, &stalls, &result, named_min);
    Ok(())
}

/// Plants one after another while a probe runs; returns what the planter logged and the probe's result.
pub(crate) fn plant_during(
    guest: &mut Guest,
    commands: &[String],
    measure: &str,
) -> Result<(Vec<Stall>, Value), LabError> {
    let mut script = format!(
        "set -e\ntaskset -pc 0 $$ >/dev/null\n{LOAD_PLANT}echo clear >/proc/plant\n\
         {measure} --causes --json -q >$OUT/result.json & probe=$!\n\
         while ! grep -qs 'internal-prob[e]' /proc/[0-9]*/cmdline && kill -0 $probe; do sleep 0.2; done\nsleep 1\n"
    );
    for command in commands {
        script.push_str(&format!("echo '{command}' >/proc/plant\n"));
    }
    script.push_str("wait $probe\ncat /proc/plant");
    let output = guest.start(&script)?.wait(PATIENCE)?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let result = output.json("result.json")?;
    Ok((Stall::read(&output.stdout)?, result))
}

/// Checks how each stall was named, prints it, and fails if too few are named correctly, or if one is named as
/// something else with certainty.
#[allow(clippy::print_stdout, reason = "rows of the confusion table, for the record")]
pub(crate) fn check(guest: &Guest, plants: &[&Planted], stalls: &[Stall], result: &Value, named_min: usize) {
    let spikes = result["spikes"].as_array().cloned().unwrap_or_default();
    for planted in plants {
        let mut wrong = Vec::new();
        let (mut right, mut measured) = (0, 0);
        let mut named: Vec<String> = Vec::new();
        let own: Vec<&Stall> = stalls.iter().filter(|stall| stall.cause == planted.cause).collect();
        for stall in &own {
            let Some(spike) =
                spikes.iter().filter(|spike| is_of(spike, stall)).max_by_key(|spike| latency(spike))
            else {
                named.push("not measured".to_owned());
                continue;
            };
            measured += 1;
            let cause = &spike["cause"];
            let kind = cause["kind"].as_str().unwrap_or_default();
            named.push(kind.to_owned());
            if kind == planted.kind && planted.names.are_in(cause, stall) {
                right += 1;
                continue;
            }
            wrong.push(format!(
                "{}: {stall:?} is {} ns: {cause} also {} lost {}",
                planted.cause,
                latency(spike),
                spike["also"],
                spike["lost"]
            ));
            let is_sure = cause["confidence"].as_f64().is_some_and(|confidence| confidence >= 1.0);
            assert!(!is_sure || kind == planted.kind, "named with certainty: {}", wrong[wrong.len() - 1]);
        }
        named.sort_unstable();
        let kinds: Vec<String> = named
            .chunk_by(|one, other| one == other)
            .map(|same| format!("`{}` {}", same[0], same.len()))
            .collect();
        println!(
            "         {} | {} | `{}` | {} | {} | {right} |",
            guest.kernel_version(),
            planted.cause,
            planted.kind,
            own.len(),
            kinds.join(", ")
        );
        for line in &wrong {
            println!("         {line}");
        }
        let planted_count = own.len();
        assert!(
            right >= named_min,
            "{}: {right} of {planted_count}, of which {measured} were felt",
            planted.cause
        );
    }
}

pub(crate) fn latency(spike: &Value) -> u64 {
    spike["latency_ns"].as_u64().unwrap_or_default()
}

/// Whether at least half of the spike lies in the stall.
fn is_of(spike: &Value, stall: &Stall) -> bool {
    let (at, latency) = (spike["at_ns"].as_u64().unwrap_or_default(), latency(spike));
    let inside = at.min(stall.end_ns).saturating_sub((at - latency).max(stall.begin_ns));
    inside > 0 && inside * 2 >= latency
}

impl Names {
    fn are_in(&self, cause: &Value, stall: &Stall) -> bool {
        match self {
            Self::Kind => true,
            Self::Actor(name) => cause["actor"].as_str().is_some_and(|actor| actor.contains(name)),
            Self::Function => {
                let mut callers = cause["callers"].as_array().into_iter().flatten();
                cause["function"] == stall.function || callers.any(|caller| caller == &stall.function)
            }
        }
    }
}

/// What another CPU asks the measured one to do has a name and a sender on every kernel, even if the CPU is shielded.
/// If the kernel has no events for that, probes give them.
fn asked_for(guest: &mut Guest) -> Result<(), LabError> {
    guest.ok("modprobe vgem")?;
    // A flush only reaches CPUs where a thread of the load runs: a probe that sleeps lets it run.
    asked(guest, "timer\"\ninterval = \"1ms", "tlb\"\nvictims = \"1", "flush_tlb_func")?;
    let result = asked(guest, "stall\"\nthreshold = \"5us", "pageattr", "do_flush_tlb_all")?;
    let sources = list(&result["probes"][0]["cpus"][0]["sources"]);
    let took = |source: &Value| source["kind"] == "ipi" && source["function"] == "do_flush_tlb_all";
    assert!(sources.iter().any(took), "{sources:#?}");
    Ok(())
}

/// Whether a cell that makes buffers of vgem was skipped because vgem interrupts no other CPU, as on one kernel.
pub(crate) fn vgem_interrupts_no_cpu(guest: &Guest, why: &str) -> bool {
    guest.kernel_version().starts_with("5.10.") && why.contains("interrupt no other CPU")
}

/// The load makes the other CPU request a function of the shielded CPU whose name begins like this; returns the cell.
fn asked(guest: &mut Guest, probe: &str, load: &str, function: &str) -> Result<Value, LabError> {
    let plan = format!(
        "name = \"asked\"\nduration = \"4s\"\nrepeats = 1\nnoise_floor = \"0s\"\ncauses = true\n[target]\ncpus = \"1\"\n\
         [[probe]]\nkind = \"{probe}\"\n[[load]]\nname = \"load\"\nkind = \"{load}\"\ncpus = \"0\"\n\
         [[treatment]]\nname = \"shield\"\nkind = \"shield\"\ncpus = \"target\"\n\
         [[cell]]\nloads = [\"load\"]\ntreatments = [\"shield\"]\n"
    );
    let script = format!(
        "rm -rf /tmp/asked\ncat >/tmp/asked.toml <<'END'\n{plan}END\n\
         whylate run /tmp/asked.toml -o /tmp/asked --json -q >$OUT/result.json"
    );
    let output = guest.start(&script)?.wait(PATIENCE)?;
    let run = output.json("result.json")?;
    let result = &run["cells"][0];
    if let Some(why) = result["skipped"].as_str().filter(|why| vgem_interrupts_no_cpu(guest, why)) {
        return Err(LabError::not_there(why));
    }
    let is_flush = |ipi: &&Value| ipi["function"].as_str().is_some_and(|name| name.starts_with(function));
    let sent = list(&result["ipis"]);
    // Programs that end flush as well.
    let thread = format!("{}-0", load.split('"').next().unwrap_or_default());
    let flushes: Vec<&Value> =
        sent.iter().filter(is_flush).filter(|ipi| ipi["from_task"] == thread.as_str()).collect();
    let times: u64 = flushes.iter().filter_map(|ipi| ipi["count"].as_u64()).sum();
    if times == 0 && load == "pageattr" && guest.kernel_version().starts_with("5.10.") {
        // The product notices that in most cases, and refuses the load; not if others interrupt all CPUs just then.
        return Err(LabError::not_there("vgem of Linux 5.10 flushes no CPU for its buffers"));
    }
    assert!(times > 0, "{sent:#?}");
    for ipi in flushes {
        assert_eq!(ipi["from_cpu"], 0, "{ipi}");
        assert!(ipi["caller"].is_string() && !list(&ipi["stack"]).is_empty(), "{ipi}");
    }
    let warnings = run["warnings"].to_string();
    assert!(!warnings.contains("functions run for other CPUs are not recorded"), "{warnings}");
    Ok(result.clone())
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// A loop that never sleeps is throttled each second, and meets a machine that stands still.
fn stopped_and_throttled(guest: &mut Guest) -> Result<(), LabError> {
    const STOPPED: Duration = Duration::from_millis(400);
    const PAUSE: Duration = Duration::from_millis(1100);
    // Longer than anything that the scheduler does.
    const STOPPED_MIN_NS: u64 = 300_000_000;
    // Newer kernels take the CPU from the loop only while an ordinary task waits for it.
    let script = "taskset -c 1 sh -c 'while :; do :; done' & waiting=$!\n\
                  whylate measure stall --cpu 1 --threshold 5ms --duration 8s --spikes 1000 --causes --json -q \
                  >$OUT/result.json; status=$?; kill $waiting; exit $status";
    let mut running = guest.start(script)?;
    let deadline = Instant::now() + Duration::from_secs(120);
    while !running.is_done_within(PAUSE)? {
        assert!(Instant::now() < deadline, "the probe does not end");
        running.guest().freeze(STOPPED)?;
    }
    let output = running.wait(PAUSE)?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let result = output.json("result.json")?;
    let spikes = result["spikes"].as_array().cloned().unwrap_or_default();
    let is_kind = |spike: &&Value, kind: &str| spike["cause"]["kind"] == kind;
    let is_long = |spike: &&Value| latency(spike) >= STOPPED_MIN_NS;
    assert!(spikes.iter().filter(is_long).any(|spike| is_kind(&spike, "host_stall")), "{spikes:?}");
    // A machine that is stopped while the loop is throttled, or while a thread or an interrupt has the CPU, prolongs that.
    // If a program could not run meanwhile, it is not certain that the kernel did nothing.
    for spike in spikes.iter().filter(is_long).filter(|spike| !is_kind(spike, "host_stall")) {
        let is_prolonged =
            ["throttled", "thread", "irq", "softirq", "ipi"].iter().any(|kind| is_kind(&spike, kind));
        let has_lost = is_kind(&spike, "unattributed") && spike["lost"].as_u64() > Some(0);
        assert!(has_lost || is_prolonged, "{spike:#}\n{:#}", result["warnings"]);
        assert!(spike["cause"]["confidence"].as_f64() < Some(1.0), "{spike:#}");
    }
    let throttled = spikes.iter().filter(|spike| is_kind(spike, "throttled")).count();
    assert!(throttled >= 2, "{throttled} throttled of {}", spikes.len());
    Ok(())
}
