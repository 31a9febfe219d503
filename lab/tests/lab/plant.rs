//! Every planter does what its log says: the guest's tracer and counters are the evidence.

use crate::trace::{self, Event};
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Architecture, Guest, Kernel, LOAD_PLANT, LabError, Machine, Profile, Stall};

/// Length of the planted stalls in counted time: longer than a tick, so that each spans one.
const LENGTH_NS: u64 = 6_000_000;
/// Length of the planted stalls where CPUs are threads of the host, which may be late with a guest's ticks.
const LENGTH_OF_THREADS_NS: u64 = 60_000_000;
/// Time between two stalls.
const PAUSE_NS: u64 = 60_000_000;

/// What shows that a stall was what its log says.
enum Evidence {
    /// Nothing is traced on the CPU in that time, although its timer expires all the time.
    Silence,
    /// The CPU handles interrupts in that time and never changes its task. A host may stop the CPU for the whole of a
    /// stall, so it is enough when one of them shows interrupts.
    InterruptsOnly,
    /// An entry with this text and its exit enclose the time.
    Enclosed([&'static str; 2], &'static str),
    /// As `Enclosed`; or nothing is traced in that time and the entry comes after it: a CPU that leaves its idle state
    /// looks for functions to call before it handles the interrupt that was sent for them.
    Called([&'static str; 2]),
    /// An event with this text on the CPU, nearer to this stall than to another one.
    Seen(&'static str, &'static str),
}

/// Cause, the events to trace, the evidence.
type Row = (&'static str, &'static [&'static str], Evidence);

const TIMER: &str = "irq_vectors:local_timer_entry";
const SWITCH: &str = "sched:sched_switch";
const LOCAL: [Row; 8] = [
    ("irq-off", &[TIMER, SWITCH], Evidence::Silence),
    ("preempt-off", &[TIMER, SWITCH], Evidence::InterruptsOnly),
    (
        "hard-irq",
        &["irq_vectors:local_timer_entry", "irq_vectors:local_timer_exit"],
        Evidence::Enclosed(["local_timer_entry", "local_timer_exit"], ""),
    ),
    (
        "softirq",
        &["irq:softirq_entry", "irq:softirq_exit"],
        Evidence::Enclosed(["softirq_entry", "softirq_exit"], "action=TASKLET"),
    ),
    ("nmi", &["nmi:nmi_handler"], Evidence::Seen("nmi_handler", "plant_nmi_stall")),
    (
        "work",
        &["workqueue:workqueue_execute_start"],
        Evidence::Seen("workqueue_execute_start", "plant_work_stall"),
    ),
    ("rt-thread", &[SWITCH], Evidence::Seen("sched_switch", "next_comm=plant-rt-thread")),
    ("rt-mutex", &["sched:sched_pi_setprio"], Evidence::Seen("sched_pi_setprio", "comm=plant-owner")),
];

const REMOTE: [Row; 2] = [
    (
        "ipi",
        &["irq_vectors:call_function_single_entry", "irq_vectors:call_function_single_exit", SWITCH],
        Evidence::Called(["call_function_single_entry", "call_function_single_exit"]),
    ),
    ("raw-spinlock", &[TIMER, SWITCH], Evidence::Silence),
];

pub(crate) fn tests(machine: &Machine) -> Vec<LabTest> {
    let test = |name, body| LabTest::new(name, machine.clone(), body);
    let mut tests = vec![
        test("plant_unloads_and_loads_again", loads_and_unloads),
        test("plant_local_stalls_are_what_their_log_says", local_stalls),
        test("plant_irq_thread_storm_interrupts_as_often_as_it_logs", irq_thread_storm),
        test("plant_refuses_what_it_cannot_do", refusals),
        test("plant_page_faults_happen", page_faults),
    ];
    if machine.kernel.architecture() == Architecture::X86 {
        tests.push(test("plant_throttling_is_the_kernels", throttling));
    }
    if machine.profile.cpus() > 1 {
        tests.push(test("plant_remote_stalls_are_what_their_log_says", remote_stalls));
    }
    if machine.profile.cpus() > 1 && machine.kernel.architecture() == Architecture::X86 {
        tests.push(test("plant_flushes_interrupt_the_other_cpu", flushes));
        tests.push(test("plant_smi_is_counted_by_the_processor", smi));
    }
    tests
}

/// All machines: what the planters do must not depend on kernel or clock.
pub(crate) fn machines() -> Vec<Machine> {
    let kernels = suite::kernels_and_arm64(&Kernel::NEEDED);
    let on = |profile: Profile| kernels.iter().map(move |kernel| Machine::new(profile, *kernel));
    on(Profile::Counted).chain(on(Profile::Threads)).collect()
}

fn loads_and_unloads(guest: &mut Guest) -> Result<(), LabError> {
    guest.ok("[ ! -e /proc/plant ] || rmmod plant")?;
    for _ in 0..3 {
        let stalls = guest.plant("irq-off 100us cpu=0")?;
        assert_eq!(stalls.len(), 1);
        guest.ok("rmmod plant; [ ! -e /proc/plant ]; ! grep -q plant /proc/interrupts")?;
    }
    Ok(())
}

fn local_stalls(guest: &mut Guest) -> Result<(), LabError> {
    let has_nmi = guest.architecture() == Architecture::X86;
    for row in LOCAL.iter().filter(|(cause, ..)| *cause != "nmi" || has_nmi) {
        check(guest, row, 0, "")?;
    }
    Ok(())
}

fn remote_stalls(guest: &mut Guest) -> Result<(), LabError> {
    for row in &REMOTE {
        check(guest, row, 1, "from=0")?;
    }
    Ok(())
}

/// Plants two stalls while a task with a period of 500 us runs, whose timer shows whether interrupts are handled.
fn check(guest: &mut Guest, row: &Row, cpu: u32, options: &str) -> Result<(), LabError> {
    let (cause, events, evidence) = row;
    let counted = guest.ok("nproc")? == "1";
    let length_ns = if counted { LENGTH_NS } else { LENGTH_OF_THREADS_NS };
    let script = format!(
        "{LOAD_PLANT}\
         cyclictest -q -m -t1 -a{cpu} -p20 -i500 -D120 >/dev/null &\n\
         until [ $(ls /proc/$!/task | wc -l) -gt 1 ]; do sleep 0.05; done\necho clear >/proc/plant\n\
         echo '{cause} {length_ns}ns cpu={cpu} {options} count=2 every={PAUSE_NS}ns' >/proc/plant\n\
         cat /proc/plant; kill $!"
    );
    let (output, trace) = match guest.architecture() {
        Architecture::X86 => trace::record(guest, events, &script)?,
        Architecture::Arm64 => trace::record_on_arm64(guest, events, &script)?,
    };
    let stalls = Stall::read(&output.stdout)?;
    assert_eq!(stalls.len(), 2, "{cause}: {stalls:?}");
    for stall in &stalls {
        assert_eq!((stall.cause.as_str(), stall.cpu), (*cause, cpu));
        assert!(stall.function.starts_with("plant_"), "{stall:?}");
        assert!(stall.length_ns() >= length_ns, "{stall:?}");
        // Where CPUs are threads of the host, it may stop them at any moment.
        assert!(!counted || stall.length_ns() <= length_ns + length_ns / 20, "{stall:?}");
        assert_evidence(stall, &stalls, evidence, &trace);
    }
    if let Evidence::InterruptsOnly = evidence {
        let has_interrupt = |stall: &Stall| {
            trace::within(&trace, stall).iter().any(|event| event.name == "local_timer_entry")
        };
        assert!(stalls.iter().any(has_interrupt), "{stalls:?}: {trace:?}");
    }
    Ok(())
}

fn assert_evidence(stall: &Stall, all: &[Stall], evidence: &Evidence, trace: &[Event]) {
    let within = trace::within(trace, stall);
    match evidence {
        Evidence::Silence => {
            assert!(within.is_empty(), "{stall:?}: {within:?}");
            let after = trace.iter().filter(|event| event.cpu == stall.cpu && event.at_ns > stall.end_ns);
            assert!(after.into_iter().any(|event| event.name == "local_timer_entry"), "{stall:?}");
        }
        Evidence::InterruptsOnly => {
            assert!(within.iter().all(|event| event.name != "sched_switch"), "{stall:?}: {within:?}");
        }
        Evidence::Enclosed(names, text) => {
            let enclosed = trace::enclosed(trace, *names, text, stall);
            assert!(enclosed, "{stall:?}: {trace:?}");
        }
        Evidence::Called(names) => {
            let is_entry_after = |event: &&Event| event.name == names[0] && event.at_ns >= stall.end_ns;
            let comes_after =
                trace::around(trace, stall, all).into_iter().any(|event| is_entry_after(&event));
            let before = trace.iter().filter(|event| event.cpu == stall.cpu && event.at_ns <= stall.begin_ns);
            let last = before.max_by_key(|event| event.at_ns);
            // An idle CPU that polls is asked without an interrupt.
            let was_idle = last.is_some_and(|event| event.text.contains("next_comm=swapper/"));
            let unseen = within.is_empty() && (comes_after || was_idle);
            let called = unseen || trace::enclosed(trace, *names, "", stall);
            assert!(called, "{stall:?}: {trace:?}");
        }
        Evidence::Seen(name, text) => {
            let around = trace::around(trace, stall, all);
            let seen = around.iter().any(|event| event.name == *name && event.text.contains(text));
            assert!(seen, "{stall:?}: no {name} with {text} in {around:?}");
        }
    }
}

fn irq_thread_storm(guest: &mut Guest) -> Result<(), LabError> {
    let count = "awk '/plant$/ { for (i = 2; i <= NF; i++) if ($i ~ /^[0-9]+$/) sum += $i } END { print sum + 0 }' \
                 /proc/interrupts";
    guest.plant("irq-off 1us cpu=0")?;
    let before: u64 = number(&guest.ok(count)?);
    let stalls = guest.plant(&format!("irq-thread {LENGTH_NS}ns cpu=0"))?;
    let interrupts = number(&guest.ok(count)?) - before;
    assert_eq!(stalls.len(), 1);
    let stall = &stalls[0];
    assert!(stall.length_ns() >= LENGTH_NS && stall.events > 0, "{stall:?}");
    // The thread handles several interrupts at once when it is late, and one may come while it ends.
    assert!(interrupts >= stall.events, "{interrupts} interrupts, {stall:?}");
    guest.ok("ps -eo comm | grep '^irq/.*-plant$'")?;
    Ok(())
}

fn refusals(guest: &mut Guest) -> Result<(), LabError> {
    guest.plant("irq-off 1us cpu=0")?;
    for command in [
        "no-such-cause 1ms cpu=0",
        "irq-off 1 cpu=0",
        "irq-off 20s cpu=0",
        "irq-off 1ms cpu=99",
        "irq-off 1ms cpu=0 priority=100",
        "irq-off 1ms color=red",
        "ipi 1ms cpu=0",
        "ipi 1ms cpu=0 from=0",
    ] {
        let output = guest.run(&format!("echo '{command}' >/proc/plant"))?;
        assert_ne!(output.status, 0, "{command}");
    }
    Ok(())
}

/// The sum over CPUs of a row of /proc/interrupts, or of one CPU.
fn interrupts(guest: &mut Guest, row: &str, cpu: u32) -> Result<u64, LabError> {
    Ok(number(&guest.ok(&format!("awk '$1 == \"{row}:\" {{ print ${} }}' /proc/interrupts", cpu + 2))?))
}

fn flushes(guest: &mut Guest) -> Result<(), LabError> {
    for cause in ["tlb", "page-attribute"] {
        let before = interrupts(guest, "CAL", 1)?;
        // A CPU that leaves its idle state looks for functions before it handles the interrupt, which may then stand for two.
        let busy = "taskset -c 1 sh -c 'while :; do :; done' & sleep 0.2";
        let stalls = guest.plant_with(busy, &format!("{cause} {LENGTH_OF_THREADS_NS}ns cpu=1 from=0"))?;
        let sent = interrupts(guest, "CAL", 1)? - before;
        assert_eq!(stalls.len(), 1);
        // A host that stops the other CPU makes the first flush last for all of the time.
        assert!(stalls[0].events > 0 && stalls[0].from == Some(0), "{stalls:?}");
        // Each of them interrupts the other CPU at least once.
        assert!(sent >= stalls[0].events, "{cause}: {sent} interrupts, {stalls:?}");
    }
    Ok(())
}

fn page_faults(guest: &mut Guest) -> Result<(), LabError> {
    let counter = "awk '$1 == \"pgfault\" { print $2 }' /proc/vmstat";
    let before = number(&guest.ok(counter)?);
    let stalls = Stall::read(&guest.ok("/lab/page-faults 0 100")?)?;
    let faults = number(&guest.ok(counter)?) - before;
    assert_eq!(stalls.len(), 1);
    // The pages of one round, at least, however slow the host is.
    assert!(stalls[0].events >= 1024 && faults >= stalls[0].events, "{faults} faults, {stalls:?}");
    Ok(())
}

fn throttling(guest: &mut Guest) -> Result<(), LabError> {
    let has_server = guest.ok(
        "mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug; ls /sys/kernel/debug/sched | grep -c fair_server || true",
    )?;
    let stalls = if number(&has_server) > 0 {
        // Kernels from 6.12 on leave it to the fair server, which takes the CPU only while an ordinary task waits for it.
        guest.ok("taskset -c 0 sh -c 'while :; do :; done' & waits=$!; /lab/throttle 0 2500; kill $waits")?
    } else {
        let free = number(&guest.ok("cat /proc/sys/kernel/sched_rt_runtime_us")?);
        assert_eq!(free, 950_000, "the guest's kernel has another limit than the usual one");
        guest.ok("/lab/throttle 0 2500")?
    };
    let stalls = Stall::read(&stalls)?;
    // 50 ms of each second, counted in ticks. Shorter ones are those of a busy host.
    assert!(stalls.iter().any(|stall| stall.length_ns() > 30_000_000), "{stalls:?}");
    Ok(())
}

fn smi(guest: &mut Guest) -> Result<(), LabError> {
    let stalls = Stall::read(&guest.ok("modprobe msr; /lab/smi 7")?)?;
    assert_eq!(stalls.iter().map(|stall| stall.events).collect::<Vec<_>>(), [1; 7]);
    Ok(())
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}
