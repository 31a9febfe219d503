//! Guests come up as they were asked for, and whatever happens in them is reported.

use std::time::{Duration, Instant};
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, Kernel, LabError, Machine, Profile};

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    let rows: [(Profile, &[Kernel]); 3] = [
        (Profile::Counted, &Kernel::USUAL),
        (Profile::Threads, &Kernel::NEEDED),
        (Profile::CountedPair, &Kernel::NEEDED),
    ];
    for (profile, kernels) in rows {
        for kernel in suite::kernels_and_arm64(kernels) {
            let machine = Machine::new(profile, kernel);
            tests.push(LabTest::new("boot_is_the_machine_that_was_asked_for", machine, as_asked));
        }
    }
    let machine = Machine::new(Profile::Threads, Kernel::RealTime);
    let test = |name, body| LabTest::new(name, machine.clone(), body);
    tests.extend([
        test("boot_has_a_clock_as_fast_as_the_hosts", clock_rate),
        test("boot_runs_a_script_and_returns_its_files", script_runs),
        test("boot_ends_what_a_script_left_running", leftovers_end),
        test("boot_has_the_facilities_that_tests_rely_on", facilities),
        test("boot_answers_during_a_realtime_loop", realtime_loop),
        test("boot_takes_a_kernel_warning_as_a_failure", warning_is_reported),
        test("boot_tells_a_lost_timer_from_other_stalls", lost_timer_is_reported),
        test("boot_kills_only_a_guest_that_hangs", hanging_guest),
        test("boot_tells_a_panic", panic_is_reported),
    ]);
    tests
}

fn as_asked(guest: &mut Guest) -> Result<(), LabError> {
    let version = guest.kernel_version().to_owned();
    assert_eq!(guest.ok("uname -r")?, version);
    // /sys/kernel/realtime is gone in newer kernels.
    let build = guest.ok("uname -v")?;
    assert_eq!(build.contains("PREEMPT_RT"), version.contains("-rt-"), "{version}: {build}");
    let cpus = guest.ok("nproc")?;
    assert!(cpus == "1" || cpus == "2", "{cpus}");
    let clock = if guest.ok("uname -m")? == "aarch64" { "arch_sys_counter" } else { "tsc" };
    assert_eq!(guest.ok("cat /sys/devices/system/clocksource/clocksource0/current_clocksource")?, clock);
    Ok(())
}

/// How far the rates of two clocks may be apart.
const RATE_TOLERANCE: f64 = 0.02;

fn clock_rate(guest: &mut Guest) -> Result<(), LabError> {
    let mut look = || -> Result<(Instant, f64, Instant), LabError> {
        let before = Instant::now();
        let uptime = guest.ok("cut -d' ' -f1 /proc/uptime")?;
        Ok((before, uptime.parse().unwrap_or_default(), Instant::now()))
    };
    let first = look()?;
    std::thread::sleep(Duration::from_secs(4));
    let last = look()?;
    // The guest looked at its clock some time between the host's two looks, however long a busy host took for it.
    let shortest = (last.0 - first.2).as_secs_f64() * (1.0 - RATE_TOLERANCE);
    let longest = (last.2 - first.0).as_secs_f64() * (1.0 + RATE_TOLERANCE);
    let passed = last.1 - first.1;
    assert!(
        (shortest..=longest).contains(&passed),
        "{passed} s in the guest, {shortest} to {longest} s here"
    );
    Ok(())
}

fn script_runs(guest: &mut Guest) -> Result<(), LabError> {
    let output =
        guest.run("echo out; echo err >&2; echo file >$OUT/file; echo lab-mark >/dev/kmsg; exit 3")?;
    assert_eq!(output.status, 3);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
    assert_eq!(std::fs::read_to_string(output.files.join("file")).unwrap_or_default(), "file\n");
    assert!(output.kernel_log.contains("lab-mark"), "{}", output.kernel_log);
    let next = guest.run("ls $OUT | wc -l")?;
    assert_eq!(next.stdout.trim(), "0");
    assert!(!next.kernel_log.contains("lab-mark"), "{}", next.kernel_log);
    assert!(matches!(guest.ok("false"), Err(LabError::Script { status: 1, .. })));
    Ok(())
}

fn leftovers_end(guest: &mut Guest) -> Result<(), LabError> {
    guest.ok("sleep 1000 & true")?;
    assert_eq!(guest.ok("pgrep -c sleep || true")?, "0");
    Ok(())
}

fn facilities(guest: &mut Guest) -> Result<(), LabError> {
    guest.ok("test -r /sys/kernel/btf/vmlinux; test -w /sys/kernel/tracing/current_tracer")?;
    guest.ok(
        "test -d /sys/fs/bpf; test -e /sys/fs/cgroup/cgroup.controllers; test -d /sys/kernel/debug/x86",
    )?;
    guest
        .ok("for tool in cyclictest rtla trace-cmd perf bpftool strace whylate; do command -v $tool; done")?;
    let tracers = guest.ok("cat /sys/kernel/tracing/available_tracers")?;
    for tracer in ["function", "timerlat", "osnoise", "hwlat"] {
        assert!(tracers.split_whitespace().any(|known| known == tracer), "{tracer} is missing: {tracers}");
    }
    Ok(())
}

fn realtime_loop(guest: &mut Guest) -> Result<(), LabError> {
    // Interrupt threads have priority 50; those that carry /lab must not be on the loop's CPU.
    guest
        .ok("taskset -pc 0 $$ >/dev/null\ntaskset -c 1 chrt -f 95 sh -c 'while :; do :; done' & sleep 1\n\
         echo alive >/lab/alive\ncat /lab/alive >/dev/null\nkill -0 $!\nkill -KILL $!")?;
    assert_eq!(std::fs::read_to_string(guest.share().join("alive")).unwrap_or_default(), "alive\n");
    Ok(())
}

fn warning_is_reported(guest: &mut Guest) -> Result<(), LabError> {
    let answer = guest.plant("warning 1us cpu=0");
    assert!(
        matches!(&answer, Err(LabError::Kernel { lines }) if lines.contains("plant: a warning was asked for")),
        "{answer:?}"
    );
    // The next script is not blamed for it.
    guest.ok("true")?;
    Ok(())
}

fn lost_timer_is_reported(guest: &mut Guest) -> Result<(), LabError> {
    let answer = guest.run(
        "echo '<4>rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:' >/dev/kmsg
         echo \"<4>rcu: rcu_preempt kthread timer wakeup didn't happen for 5252 jiffies!\" >/dev/kmsg",
    );
    assert!(matches!(&answer, Err(LabError::TimerLost { lines }) if lines.contains("5252")), "{answer:?}");
    guest.ok("true")?;
    Ok(())
}

fn hanging_guest(guest: &mut Guest) -> Result<(), LabError> {
    let answer = guest.start("sleep 1000")?.wait(Duration::from_secs(2));
    let Err(LabError::Guest { what, console }) = answer else { panic!("{answer:?}") };
    assert_eq!(what, "did not answer within 2 s");
    // What it waits for, and where; and the timers of both CPUs.
    assert_eq!(console.matches("current_count = ").count(), 2, "{console}");
    assert!(console.contains("task:sleep") && console.contains("nanosleep"), "{console}");
    assert!(guest.has_ended());
    assert!(guest.run("true").is_err());
    Ok(())
}

fn panic_is_reported(guest: &mut Guest) -> Result<(), LabError> {
    let answer = guest.run("echo c >/proc/sysrq-trigger; sleep 60");
    assert!(matches!(&answer, Err(LabError::Kernel { lines }) if lines.contains("sysrq")), "{answer:?}");
    assert!(guest.has_ended());
    Ok(())
}
