//! What a guest does that does not answer, as QEMU and the kernel report it: keys make the kernel print.

use std::time::{Duration, Instant};

/// The interesting registers of a CPU and of its interrupt controller: a halted CPU whose timer has expired, without a
/// pending request, has lost it.
const OF_REGISTERS: [&str; 2] = ["CPU#", "RIP="];
const OF_CONTROLLER: [&str; 5] = ["dumping local APIC", "LVTT\t", "Timer\t", "ISR\t", "IRR\t"];
/// Keys that make the kernel print everything, where its CPUs are, and where its tasks are.
pub(crate) const KEYS: [&str; 3] = ["sendkey alt-sysrq-8", "sendkey alt-sysrq-l", "sendkey alt-sysrq-t"];

/// How long the kernel may take to print it, and how long it is silent afterwards.
const TELLING_LIMIT: Duration = Duration::from_secs(30);
const TELLING_PAUSE: Duration = Duration::from_secs(3);
/// The start of a task in the kernel's output.
const TASK: &str = "task:";
/// What follows the last one: the queues of the scheduler, and locks.
const AFTER_TASKS: [&str; 3] = ["Sched Debug Version", "Showing all locks", "Showing busy workqueues"];

/// The registers and the timers of this number of CPUs, from the monitor.
pub(crate) fn machine<E>(cpus: u32, mut ask: impl FnMut(&str) -> Result<String, E>) -> String {
    let mut lines = Vec::new();
    let mut keep = |answer: Result<String, E>, wanted: &[&str]| {
        let answer = answer.unwrap_or_default();
        let of_interest = answer.lines().filter(|line| wanted.iter().any(|text| line.starts_with(text)));
        lines.extend(of_interest.map(|line| line.trim_end().to_owned()));
    };
    keep(ask("info registers -a"), &OF_REGISTERS);
    for cpu in 0..cpus {
        keep(ask(&format!("info lapic {cpu}")), &OF_CONTROLLER);
    }
    lines.join("\n")
}

/// Whether the kernel has switched a CPU off: it waits in a loop of one instruction, interrupts disabled, and its
/// timer is masked and not set.
pub(crate) fn is_off(machine: &str, cpu: u32) -> bool {
    let controller = machine.split("dumping local APIC state for CPU ").skip(1);
    let is_its = |text: &&str| text.split_whitespace().next() == Some(cpu.to_string().as_str());
    controller.into_iter().find(is_its).is_some_and(|text| {
        let line = |first: &str| text.lines().find(|line| line.starts_with(first)).unwrap_or_default();
        line("LVTT").contains(" masked ") && line("Timer").contains("initial_count = 0 ")
    })
}

/// Waits until the console, whose length is `length`, does not grow any more.
pub(crate) fn wait_until_quiet(length: impl Fn() -> usize) {
    let deadline = Instant::now() + TELLING_LIMIT;
    let mut before = length();
    while Instant::now() < deadline {
        std::thread::sleep(TELLING_PAUSE);
        let now = length();
        if now == before {
            break;
        }
        before = now;
    }
}

/// Where the CPUs and the programs are, out of everything that the kernel has printed. Its own threads that wait are
/// left out: there are a hundred.
pub(crate) fn tasks(printed: &str) -> String {
    let mut is_of_interest = true;
    let mut lines = Vec::new();
    for line in printed.lines() {
        if AFTER_TASKS.iter().any(|text| line.contains(text)) {
            is_of_interest = false;
        } else if line.contains(TASK) {
            let is_kernels = line.contains("ppid:2 ") || line.contains("ppid:0 ");
            is_of_interest = !is_kernels || line.contains("state:R") || line.contains("state:D");
        }
        if is_of_interest {
            lines.push(line);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_off_has_no_timer() {
        let machine = "CPU#0\nRIP=ffffffff819f4dc7\nCPU#1\nRIP=ffffffff8106f6e5\n\
                       dumping local APIC state for CPU 0\nLVTT\t 0x000000ec active-hi edge                 one-shot     Fixed  (vec 236)\n\
                       Timer\t DCR=0x3 (divide by 16) initial_count = 245345 current_count = 0\n\
                       dumping local APIC state for CPU 1\nLVTT\t 0x000100ec active-hi edge  masked         one-shot     Fixed  (vec 236)\n\
                       Timer\t DCR=0x3 (divide by 16) initial_count = 0 current_count = 0";
        assert!(is_off(machine, 1) && !is_off(machine, 0) && !is_off(machine, 2));
    }

    #[test]
    fn registers_and_timers_are_listed() {
        let answer = |command: &str| -> Result<String, ()> {
            match command {
                "info registers -a" => {
                    Ok("(qemu) info registers -a\r\nCPU#0\r\nRAX=1 RBX=2\r\nRIP=ffffffff81 HLT=1\r\n".into())
                }
                "info lapic 0" => {
                    Ok("dumping local APIC state for CPU 0 \r\nLVT0\t 0x1\r\nLVTT\t 0x2\r\nIRR\t (none)\r\n"
                        .into())
                }
                _ => Err(()),
            }
        };
        let expected =
            "CPU#0\nRIP=ffffffff81 HLT=1\ndumping local APIC state for CPU 0\nLVTT\t 0x2\nIRR\t (none)";
        assert_eq!(machine(2, answer), expected);
    }

    #[test]
    fn programs_and_what_runs_are_listed() {
        let printed = "[   50.1] NMI backtrace for cpu 1\n\
                       [   50.2] task:init            state:S stack:0     pid:1     ppid:0      flags:0x00000002\n\
                       [   50.2]  do_wait+0x1\n\
                       [   50.3] task:kthreadd        state:S stack:0     pid:2     ppid:0      flags:0x00004000\n\
                       [   50.3] task:kworker/1:0     state:D stack:0     pid:20    ppid:2      flags:0x00004000\n\
                       [   50.3]  plant_work+0x1\n\
                       [   50.4] task:ksoftirqd/1     state:S stack:0     pid:21    ppid:2      flags:0x00004000\n\
                       [   50.4]  smpboot_thread_fn+0x1\n\
                       [   50.5] task:sleep           state:S stack:0     pid:300   ppid:299    flags:0x00000002\n\
                       [   50.5]  do_nanosleep+0x1\n\
                       [   50.6] Sched Debug Version: v0.11\n\
                       [   50.6] cpu#0, 2000.000 MHz\n";
        let listed = tasks(printed);
        for text in ["NMI backtrace for cpu 1", "plant_work", "task:sleep", "do_nanosleep"] {
            assert!(listed.contains(text), "{text} is missing: {listed}");
        }
        for text in ["do_wait", "smpboot_thread_fn", "cpu#0"] {
            assert!(!listed.contains(text), "{text}: {listed}");
        }
    }
}
