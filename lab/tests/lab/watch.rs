//! `whylate watch`: what is planted while a task is watched is named first, and as nothing else with certainty.

use serde_json::Value;
use std::time::Duration;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, Kernel, LOAD_PLANT, LabError, Machine, Profile, Stall};

/// Guests in counted time are slow.
const PATIENCE: Duration = Duration::from_secs(400);
/// How much of what was planted and felt has to be named first.
const NAMED_LEAST: f64 = 0.97;
/// No wrong claim may be as sure as this.
const SURE: f64 = 0.9;
/// An ordinary task that has less of a stall than this part of it got the CPU meanwhile: the stall did not delay it.
const FELT_LEAST: f64 = 1.0 / 3.0;
/// If several share the time, how far the share of each may be from the planted one.
const SHARE_TOLERANCE: f64 = 0.05;
/// What the planters of a chain, which are in Python, do outside of the time that they log.
const MARKING_NS: u64 = 1_000_000;
/// Interrupts that are parts of what they log.
const INTERRUPTS_NS: u64 = 150_000;

/// A kind of `/lab/task`, and how it is to be named.
struct Planted {
    task: &'static str,
    kind: &'static str,
    names: Names,
    /// The task may get the CPU in the middle, if another thread preempts the planter.
    is_shared: bool,
}

/// Which part of a cause names the plant.
enum Names {
    /// Nothing but the kind.
    Kind,
    /// The actor contains that.
    Actor(&'static str),
    /// The function contains that.
    Function(&'static str),
    /// Several take the time one after the other: each is named with its share.
    Shares,
}

const fn row(task: &'static str, kind: &'static str, names: Names) -> Planted {
    Planted { task, kind, names, is_shared: false }
}

const fn shared(task: &'static str, kind: &'static str, names: Names) -> Planted {
    Planted { task, kind, names, is_shared: true }
}

/// The shortest of them, for each commit.
const BRIEF: [Planted; 4] = [
    row("preempt", "thread", Names::Actor("thief")),
    row("futex-pi", "lock", Names::Actor("holder")),
    row("convoy", "lock", Names::Shares),
    row("fault", "page_fault", Names::Kind),
];
/// What needs one CPU, and no module.
const LOCAL: [Planted; 7] = [
    row("rr99", "thread", Names::Actor("multipathd")),
    row("futex", "lock", Names::Actor("holder")),
    row("futex-thread", "lock", Names::Actor("holder")),
    row("inversion", "lock", Names::Actor("holder (preempted by hog)")),
    row("throttled", "throttled", Names::Kind),
    row("quota", "quota", Names::Kind),
    row("disk", "wait", Names::Function("pread")),
];
/// What the module plants.
const MODULE: [Planted; 7] = [
    row("rt-thread", "thread", Names::Actor("rt-thread")),
    row("irq-thread", "thread", Names::Actor("plant")),
    row("hard-irq", "irq", Names::Function("plant_hard_irq_stall")),
    row("softirq", "softirq", Names::Actor("TASKLET")),
    row("irq-off", "irqs_off", Names::Kind),
    shared("work", "thread", Names::Function("plant_work_stall")),
    shared("unbound-work", "thread", Names::Function("plant_work_stall")),
];
/// What saves power, by drivers of the module, which are those of x86.
const POWER: [Planted; 2] =
    [row("idle-exit", "idle_exit", Names::Kind), row("frequency", "slow_clock", Names::Kind)];
/// A softirq that the task preempts, as only a real-time kernel lets it: nothing kept the task.
const PREEMPTED: [Planted; 1] = [row("softirq-below", "own_work", Names::Kind)];

/// A wait on two CPUs: the task is moved in its middle, and another thread keeps it waiting on each.
const MOVED: [Planted; 1] = [row("moved", "thread", Names::Shares)];

pub(crate) fn tests() -> Vec<LabTest> {
    let kernels = suite::kernels(&[Kernel::RealTime, Kernel::RealTimeNew]);
    let mut tests = Vec::new();
    for kernel in kernels.into_iter().take(if suite::is_brief() { 1 } else { usize::MAX }) {
        let counted = Machine::new(Profile::Counted, kernel);
        tests.push(LabTest::new("watch_names_thieves_locks_and_pages", counted.clone(), brief));
        if suite::is_brief() {
            continue;
        }
        let pair = Machine::new(Profile::CountedPair, kernel);
        tests.extend([
            LabTest::new("watch_shares_a_wait_on_two_cpus", pair, on_two_cpus),
            LabTest::new("watch_names_what_user_space_plants", counted.clone(), local),
            LabTest::new("watch_names_what_the_kernel_plants", counted.clone(), module),
            LabTest::new("watch_names_what_saves_power", counted.clone(), power),
            LabTest::new("watch_counts_from_mark_to_mark", counted.clone(), marks),
            LabTest::new("watch_follows_a_chain_over_three_processes", counted.clone(), chain),
        ]);
        if kernel.is_realtime() {
            tests.push(LabTest::new("watch_blames_no_softirq_that_it_preempts", counted, preempted));
        }
    }
    tests
}

pub(crate) fn brief(guest: &mut Guest) -> Result<(), LabError> {
    named(guest, &BRIEF, 0)
}

fn local(guest: &mut Guest) -> Result<(), LabError> {
    named(guest, &LOCAL, 0)
}

fn module(guest: &mut Guest) -> Result<(), LabError> {
    named(guest, &MODULE, 0)
}

fn power(guest: &mut Guest) -> Result<(), LabError> {
    named(guest, &POWER, 0)
}

fn on_two_cpus(guest: &mut Guest) -> Result<(), LabError> {
    named(guest, &MOVED, 1)
}

fn preempted(guest: &mut Guest) -> Result<(), LabError> {
    named(guest, &PREEMPTED, 0)
}

#[allow(clippy::print_stdout, reason = "what the watch could not tell, for the record")]
fn named(guest: &mut Guest, plants: &[Planted], cpu: u32) -> Result<(), LabError> {
    let tasks: Vec<&str> = plants.iter().map(|planted| planted.task).collect();
    let (stalls, result) = watch(guest, "", cpu, &tasks)?;
    for warning in result["warnings"].as_array().into_iter().flatten() {
        println!("         {warning}");
    }
    for planted in plants {
        check(guest, planted, &stalls, &result);
    }
    Ok(())
}

/// Watches the tasks and all that they start; returns what was planted and the result.
pub(crate) fn watch(
    guest: &mut Guest,
    flags: &str,
    cpu: u32,
    tasks: &[&str],
) -> Result<(Vec<Stall>, Value), LabError> {
    let tasks = tasks.join(" ");
    let script = format!(
        "set -e\ntaskset -pc 0 $$ >/dev/null\n{LOAD_PLANT}cp /lab/task /tmp/task\nrm -rf /tmp/watch /tmp/planted\n\
         mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing\n\
         whylate watch -q --json --worst 400 {flags} -o /tmp/watch -- /tmp/task /tmp/planted {cpu} {tasks} >/tmp/lines\n\
         tail -n 1 /tmp/lines >$OUT/result.json\ncat /tmp/planted"
    );
    let output = guest.start(&script)?.wait(PATIENCE)?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let result = output.json("result.json")?;
    Ok((Stall::read(&output.stdout)?, result))
}

/// The explained activations of a task.
pub(crate) fn spikes_of<'r>(result: &'r Value, task: &str) -> Vec<&'r Value> {
    spikes_in(result, &format!("v-{task}"))
}

fn spikes_in<'r>(result: &'r Value, series: &str) -> Vec<&'r Value> {
    let spikes = result["cells"][0]["probes"][0]["spikes"].as_array().into_iter().flatten();
    let probe = format!("task/{series}");
    spikes.filter(|spike| spike["probe"] == *probe).collect()
}

/// Checks how each stall was named, prints it as a row of the confusion table, and fails if too few are named
/// correctly, or if one is named as something else with certainty.
#[allow(clippy::print_stdout, reason = "rows of the confusion table, for the record")]
fn check(guest: &Guest, planted: &Planted, stalls: &[Stall], result: &Value) {
    let spikes = spikes_of(result, planted.task);
    let own: Vec<&Stall> = stalls.iter().filter(|stall| stall.cause == planted.task).collect();
    let (mut named, mut wrong): (Vec<String>, Vec<String>) = Default::default();
    let mut seen: Vec<u64> = Vec::new();
    for stall in &own {
        let is_it = |spike: &&&Value| is_of(spike, stall) && planted.is_felt(spike, stall);
        let felt = spikes.iter().filter(is_it).max_by_key(|spike| latency(spike));
        let Some(spike) = felt.filter(|spike| !seen.contains(&at(spike))) else { continue };
        seen.push(at(spike));
        let kind = spike["cause"]["kind"].as_str().unwrap_or_default();
        named.push(kind.to_owned());
        let is_right = match planted.names {
            Names::Shares => has_shares(spike, planted.kind, &own),
            _ => kind == planted.kind && planted.names.are_in(&spike["cause"]),
        };
        if !is_right {
            let line = format!("{}: {stall:?} is {spike}", planted.task);
            let is_sure = spike["cause"]["confidence"].as_f64().is_some_and(|it| it >= SURE);
            assert!(!is_sure, "named with certainty: {line}");
            wrong.push(line);
        }
    }
    named.sort_unstable();
    let kinds: Vec<String> = named
        .chunk_by(|one, other| one == other)
        .map(|same| format!("`{}` {}", same[0], same.len()))
        .collect();
    let (felt, right) = (named.len(), named.len() - wrong.len());
    println!(
        "         {} | {} | {} | {felt} | {} | {right} |",
        guest.kernel_version(),
        planted.task,
        own.len(),
        kinds.join(", ")
    );
    wrong.iter().for_each(|line| println!("         {line}"));
    // In a convoy each activation has two planted causes; a group's quota may be used up at the end of an activation.
    assert!(felt * 4 >= own.len(), "{}: only {felt} of {} were felt", planted.task, own.len());
    assert!(right as f64 >= NAMED_LEAST * felt as f64 && right > 0, "{}: {right} of {felt}", planted.task);
}

fn at(spike: &Value) -> u64 {
    spike["at_ns"].as_u64().unwrap_or_default()
}

fn latency(spike: &Value) -> u64 {
    spike["latency_ns"].as_u64().unwrap_or_default()
}

/// How much of the spike lies in the stall.
fn overlap(spike: &Value, stall: &Stall) -> u64 {
    let (at, latency) = (at(spike), latency(spike));
    at.min(stall.end_ns).saturating_sub((at - latency).max(stall.begin_ns))
}

/// Whether at least half of the spike lies in the stall.
pub(crate) fn is_of(spike: &Value, stall: &Stall) -> bool {
    let inside = overlap(spike, stall);
    inside > 0 && inside * 2 >= latency(spike)
}

/// Whether each stall has the share of the spike that it took. A task that waits for the lock before the second holder does gets it
/// before it, and the second one is all of a short spike: then it has to be named, as what it does after its stall is a large share.
fn has_shares(spike: &Value, kind: &str, stalls: &[&Stall]) -> bool {
    let causes = || std::iter::once(&spike["cause"]).chain(spike["also"].as_array().into_iter().flatten());
    let took_part: Vec<&&Stall> = stalls.iter().filter(|stall| overlap(spike, stall) > 0).collect();
    let is_by = |cause: &Value, stall: &Stall| cause["kind"] == kind && cause["actor"] == stall.function;
    if let [only] = took_part[..] {
        return is_by(&spike["cause"], only);
    }
    took_part.into_iter().all(|stall| {
        let is_it = |cause: &&Value| is_by(cause, stall);
        let share: f64 = causes().filter(is_it).filter_map(|cause| cause["share"].as_f64()).sum();
        let took = overlap(spike, stall) as f64 / latency(spike) as f64;
        (share - took).abs() <= SHARE_TOLERANCE
    })
}

impl Planted {
    /// Whether the activation has enough of the stall.
    fn is_felt(&self, spike: &Value, stall: &Stall) -> bool {
        !self.is_shared || overlap(spike, stall) as f64 >= FELT_LEAST * stall.length_ns() as f64
    }
}

impl Names {
    fn are_in(&self, cause: &Value) -> bool {
        match self {
            Self::Kind | Self::Shares => true,
            Self::Actor(name) => cause["actor"].as_str().is_some_and(|actor| actor.contains(name)),
            Self::Function(name) => cause["function"].as_str().is_some_and(|it| it.contains(name)),
        }
    }
}

/// Texts that the task writes into trace_marker are the start and the end of its activations; a sleep between them is
/// a part of its work.
fn marks(guest: &mut Guest) -> Result<(), LabError> {
    let flags = "--begin 'marker:cycle begin' --end 'marker:cycle end'";
    let (stalls, result) = watch(guest, flags, 0, &["marks"])?;
    let cpus = result["cells"][0]["probes"][0]["cpus"].as_array().cloned().unwrap_or_default();
    let [series] = &cpus[..] else { panic!("only the task writes such texts: {cpus:#?}") };
    assert_eq!(
        (&series["series"], series["samples"].as_u64()),
        (&"v-marks".into(), Some(stalls.len() as u64))
    );
    for spike in spikes_of(&result, "marks") {
        assert_eq!(
            (&spike["cause"]["kind"], &spike["cause"]["function"]),
            (&"wait".into(), &"clock_nanosleep".into())
        );
        assert!(stalls.iter().any(|stall| overlap(spike, stall) == stall.length_ns()), "{spike}");
    }
    Ok(())
}

/// Each instance of a chain over three processes is joined and as long as it was. What the process in the middle did longer, or who
/// preempted it, has its share of the path.
#[allow(clippy::print_stdout, reason = "figures, for the record")]
fn chain(guest: &mut Guest) -> Result<(), LabError> {
    let flags = "--chain frame --begin 'marker:frame in' --end 'marker:frame out'";
    let (stalls, result) = watch(guest, flags, 0, &["chain"])?;
    let of = |actor: &str| stalls.iter().filter(|it| it.function == actor).collect::<Vec<&Stall>>();
    let (instances, chain) = (of("instance"), &result["cells"][0]["probes"][0]["chains"][0]);
    assert_eq!(chain["instances"].as_u64(), Some(instances.len() as u64), "{chain:#}");
    assert_eq!((&chain["uncertain"], &chain["dropped"]), (&0.into(), &0.into()), "{chain:#}");
    let spikes = spikes_in(&result, "chain frame");
    let mut errors: Vec<(u64, u64)> = Vec::new();
    let kinds = [("middle", "own_work"), ("thief", "thread")];
    let planted = kinds.iter().flat_map(|(actor, kind)| of(actor).into_iter().map(move |it| (it, *kind)));
    for (stall, kind) in planted {
        let spike = spikes.iter().find(|spike| overlap(spike, stall) == stall.length_ns());
        let spike = spike.unwrap_or_else(|| panic!("{stall:?} is in no instance: {spikes:#?}"));
        let within = |it: &&&Stall| it.begin_ns <= at(spike) && at(spike) <= it.end_ns;
        let instance = instances.iter().find(within).unwrap_or_else(|| panic!("no instance has {spike:#}"));
        let longer = instance.length_ns().saturating_sub(latency(spike));
        assert!(longer <= MARKING_NS, "{longer} ns: {instance:?}, {spike:#}");
        let cause = &spike["cause"];
        assert_eq!((&cause["kind"], &cause["actor"]), (&kind.into(), &(*stall.function).into()), "{spike:#}");
        let share = cause["share"].as_f64().unwrap_or_default();
        let took_ns = (share * latency(spike) as f64) as u64;
        let allowed = stall.length_ns() - INTERRUPTS_NS..stall.length_ns() + MARKING_NS;
        assert!(allowed.contains(&took_ns), "{took_ns}: {stall:?}, {spike:#}");
        errors.push((longer, took_ns.abs_diff(stall.length_ns())));
    }
    let (longest, largest) = errors.iter().fold((0, 0), |all, it| (all.0.max(it.0), all.1.max(it.1)));
    println!(
        "         {}: {} instances, at most {longest} ns longer than their marks; causes at most {largest} ns from the plant's",
        guest.kernel_version(),
        instances.len()
    );
    Ok(())
}
