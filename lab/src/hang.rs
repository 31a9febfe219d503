//! What a guest does that does not answer, as its kernel tells when it is asked by keys.

use std::time::{Duration, Instant};

/// Keys that have the kernel print everything, where its CPUs are, and where its tasks are.
pub(crate) const KEYS: [&str; 3] = ["sendkey alt-sysrq-8", "sendkey alt-sysrq-l", "sendkey alt-sysrq-t"];

/// How long the kernel may take to print it, and for how long it is silent when it has.
const TELLING_LIMIT: Duration = Duration::from_secs(30);
const TELLING_PAUSE: Duration = Duration::from_secs(3);
/// What begins a task in what the kernel prints.
const TASK: &str = "task:";
/// What comes after the last one: the queues of the scheduler, and locks.
const AFTER_TASKS: [&str; 3] = ["Sched Debug Version", "Showing all locks", "Showing busy workqueues"];

/// Waits until the console, of which `length` tells how long it is, does not grow any more.
pub(crate) fn wait_until_told(length: impl Fn() -> usize) {
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

/// Where the CPUs and the programs are, of all that the kernel has printed. Its own threads that wait are left out: there
/// are a hundred.
pub(crate) fn told(printed: &str) -> String {
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
    fn programs_and_what_runs_are_told() {
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
        let told = told(printed);
        for text in ["NMI backtrace for cpu 1", "plant_work", "task:sleep", "do_nanosleep"] {
            assert!(told.contains(text), "{text} is missing: {told}");
        }
        for text in ["do_wait", "smpboot_thread_fn", "cpu#0"] {
            assert!(!told.contains(text), "{text}: {told}");
        }
    }
}
