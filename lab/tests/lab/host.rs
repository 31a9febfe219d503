//! Time that the host takes from a CPU of a guest is never blamed on code of the guest; what that code takes still is.

use crate::causes::{Names, PATIENCE, Planted, check, latency};
use serde_json::Value;
use std::time::{Duration, Instant};
use whylate_core::CpuId;
use whylate_lab::host_stall::{HostStall, Thief, WRITE_CLOCK, clock_difference_ns};
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, Kernel, LabError, Machine, Profile, Stall};
use whylate_sys::schedule;

/// Stalls by the host; those before the measurement and after it are not judged.
const STALLS: usize = 160;
/// They take longer by the guest's clock.
const SECONDS: u32 = 24;
/// The fewest that are enough to judge.
const FELT_MIN: usize = 20;
/// A claim against the guest counts from this confidence on.
const ACCUSED_FROM: f64 = 0.6;
/// The host makes stalls of its own too, which may meet code of the guest.
const ACCUSED_MAX: usize = 2;
/// How exactly the two clocks are compared: the host stamps files at its ticks.
const CLOCKS_NS: u64 = 8_000_000;
/// What the guest plants at the same time, and how many of those have to be right.
const PLANTED: Planted = Planted { cause: "irq-off", kind: "irqs_off", names: Names::Function };
const PLANTS: usize = 20;
const PLANTS_RIGHT: usize = 19;

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::kernels_unless_brief(&[Kernel::RealTime]) {
        let threads = Machine::new(Profile::Threads, kernel);
        tests.extend([
            LabTest::new("host_stalls_are_not_laid_to_the_guest", threads.clone(), alone),
            LabTest::new("host_stalls_leave_what_the_guest_plants", threads, with_plants),
        ]);
    }
    tests
}

fn alone(guest: &mut Guest) -> Result<(), LabError> {
    let (stalls, _, result) = stalled(guest, "")?;
    check_stalls(guest, &stalls, &result, &[]);
    Ok(())
}

fn with_plants(guest: &mut Guest) -> Result<(), LabError> {
    let plants = format!("echo 'irq-off 7ms cpu=1 count={PLANTS} every=307ms' >/proc/plant\n");
    let (stalls, planted, result) = stalled(guest, &plants)?;
    check(guest, &[&PLANTED], &planted, &result, PLANTS_RIGHT);
    check_stalls(guest, &stalls, &result, &planted);
    Ok(())
}

/// The host takes the CPU on which the guest runs, while the guest measures.
fn stalled(guest: &mut Guest, plants: &str) -> Result<(Vec<HostStall>, Vec<Stall>, Value), LabError> {
    let cpus = schedule::allowed_of_this_thread().map_err(|error| LabError::not_there(error.to_string()))?;
    let host_cpu = cpus.iter().last().unwrap_or(CpuId(0));
    guest.tie_to(host_cpu);
    let script = format!(
        "set -e\ntaskset -pc 0 $$ >/dev/null\n[ -e /proc/plant ] || insmod /lab/plant.ko\necho clear >/proc/plant\n{WRITE_CLOCK}\
         taskset -c 0-1 whylate measure timer --cpu 1 --interval 1ms --duration {SECONDS}s --spikes 1000 --causes --json -q >$OUT/result.json & probe=$!\n\
         while ! grep -qs 'internal-prob[e]' /proc/[0-9]*/cmdline && kill -0 $probe; do sleep 0.2; done\nsleep 7\n\
         touch $OUT/measuring\n{plants}wait $probe\ncat /proc/plant"
    );
    let mut running = guest.start(&script)?;
    let deadline = Instant::now() + PATIENCE;
    while !running.has_file("measuring") && !running.is_done_within(Duration::from_millis(50))? {
        assert!(Instant::now() < deadline, "the probe does not begin");
    }
    let stalls = Thief::start(host_cpu, STALLS).wait()?;
    let output = running.wait(PATIENCE)?;
    assert_eq!(output.status, 0, "{}", output.stderr);
    let difference_ns = clock_difference_ns(&output.files)?;
    let stalls = stalls.into_iter().map(|stall| stall.on_guest(difference_ns)).collect();
    Ok((stalls, Stall::read(&output.stdout)?, output.json("result.json")?))
}

/// Checks how each stall by the host was named, except if the guest planted something at that time.
#[allow(clippy::print_stdout, reason = "a row for the record")]
fn check_stalls(guest: &Guest, stalls: &[HostStall], result: &Value, planted: &[Stall]) {
    let spikes = result["spikes"].as_array().cloned().unwrap_or_default();
    let meets = |from_ns: u64, to_ns: u64, stall: &HostStall| {
        from_ns <= stall.end_ns + CLOCKS_NS && to_ns + CLOCKS_NS >= stall.begin_ns
    };
    let moments = || spikes.iter().filter_map(|spike| spike["at_ns"].as_u64());
    let (first_ns, last_ns) = moments().min().zip(moments().max()).unwrap_or_default();
    let measured = |stall: &&HostStall| stall.begin_ns > first_ns && stall.end_ns < last_ns;
    let stalls: Vec<HostStall> = stalls.iter().filter(measured).copied().collect();
    let (mut felt, mut of_host, mut accused) = (0, 0, Vec::new());
    for stall in &stalls {
        if planted.iter().any(|one| meets(one.begin_ns, one.end_ns, stall)) {
            continue;
        }
        let is_of = |spike: &&Value| {
            let at_ns = spike["at_ns"].as_u64().unwrap_or_default();
            meets(at_ns.saturating_sub(latency(spike)), at_ns, stall)
                && 2 * latency(spike) >= stall.length_ns()
        };
        let Some(spike) = spikes.iter().filter(is_of).max_by_key(|spike| latency(spike)) else { continue };
        felt += 1;
        let cause = &spike["cause"];
        let kind = cause["kind"].as_str().unwrap_or_default();
        let is_sure = cause["confidence"].as_f64() >= Some(ACCUSED_FROM);
        match kind {
            "host_stall" | "steal" => of_host += 1,
            "unattributed" | "hardware" | "timer_late" => {}
            _ if is_sure => accused.push(format!(
                "{} us of {} us: {cause}",
                latency(spike) / 1_000,
                stall.length_ns() / 1_000
            )),
            _ => {}
        }
    }
    println!(
        "         {} | host stalls of 0.5 to 20 ms | {} | felt {felt} | the host's {of_host} | laid to the guest {} |",
        guest.kernel_version(),
        stalls.len(),
        accused.len()
    );
    for line in &accused {
        println!("         {line}");
    }
    // The others hit a CPU that waited for nothing, or one of the plants.
    assert!(felt >= FELT_MIN, "{felt} of {} were felt", stalls.len());
    assert!(of_host * 2 >= felt, "{of_host} of {felt} were named as the host's");
    assert!(accused.len() <= ACCUSED_MAX, "{accused:#?}");
}
