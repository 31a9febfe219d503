//! Logs as they are posted, in parts and damaged: every message is in the text, and no figure, CPU or thread comes from
//! another message.
//!
//! `WHYLATE_MUTATIONS=200` takes that number of excerpts of each log.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::panic::catch_unwind;
use std::path::Path;
use whylate_core::result::LogMessage;
use whylate_kmsg::{KernelLog, read};
use whylate_testing::excerpts::{Excerpt, count, excerpt};

/// One line of each form, several kinds of messages.
const MESSAGES: &[&str] = &[
    "sched: RT throttling activated",
    "hrtimer: interrupt took 6663395 ns",
    "perf: interrupt took too long (2507 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
    "watchdog: BUG: soft lockup - CPU#29 stuck for 22s! [mysqld:14352]",
    "workqueue: output_poll_execute [drm_kms_helper] hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
    "usb 1-2: new high-speed USB device number 4 using xhci_hcd",
    "INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.245 msecs",
    "clocksource: timekeeping watchdog on CPU5: Marking clocksource 'tsc' as unstable because the skew is too large:",
    "workqueue: output_poll_execute [drm_kms_helper] hogged CPU for >10000us 8 times, consider switching to WQ_UNBOUND",
    "audit: backlog limit exceeded",
    "systemd[1]: Started Session 3 of User root.",
    "sched: CPU 2 need_resched set for > 103331686 ns (31 ticks) without schedule",
];

fn logs() -> Vec<(String, String)> {
    let numbered = || MESSAGES.iter().enumerate();
    let of = |line: &dyn Fn(usize, &str) -> String| -> String {
        numbered().map(|(at, text)| line(at, text)).collect()
    };
    let mut logs = vec![
        ("dmesg".to_owned(), of(&|at, text| format!("[{:5}.{:06}] {text}\n", 100 + at, at * 7919))),
        ("dmesg -T".to_owned(), of(&|at, text| format!("[Tue Nov 24 09:{:02}:03 2026] {text}\n", at))),
        (
            "dmesg -x".to_owned(),
            of(&|at, text| format!("kern  :warn  : [{:5}.{:06}] {text}\n", 100 + at, at * 7919)),
        ),
        ("journalctl -k".to_owned(), of(&|at, text| format!("Nov 24 09:{at:02}:03 host kernel: {text}\n"))),
        ("/dev/kmsg".to_owned(), of(&|at, text| format!("4,{at},{},-;{text}\n", 1_000_000 + at * 1000))),
        (
            "journalctl -o json".to_owned(),
            of(&|at, text| {
                format!(
                    "{{\"_TRANSPORT\":\"kernel\",\"__MONOTONIC_TIMESTAMP\":\"{}\",\"MESSAGE\":{text:?}}}\n",
                    1_000_000 + at
                )
            }),
        ),
        ("plain".to_owned(), of(&|_, text| format!("{text}\n"))),
    ];
    let posted = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/questions");
    for name in ["dmesg-tsc-unstable/dmesg_sozu.txt", "dmesg-wq-i915/dmesg.txt", "rt-throttle-pi5/dmesg.txt"]
    {
        logs.push((name.to_owned(), std::fs::read_to_string(posted.join(name)).expect("a log")));
    }
    logs
}

fn log(text: &[u8]) -> KernelLog {
    read(Cursor::new(text)).expect("memory can be read")
}

/// The error in the messages of an excerpt.
fn wrong(found: &[LogMessage], whole: &[LogMessage], excerpt: &Excerpt) -> Vec<String> {
    if excerpt.is_damaged {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for message in found {
        let same: Vec<&LogMessage> = whole.iter().filter(|it| it.code == message.code).collect();
        let figure = same.iter().filter_map(|it| it.figure_ns).max();
        let count = same.iter().filter_map(|it| it.count).max();
        let cpus: BTreeSet<u32> = same.iter().filter_map(|it| it.cpu).collect();
        let tasks: BTreeSet<&String> = same.iter().filter_map(|it| it.task.as_ref()).collect();
        let is_other = same.is_empty()
            || message.figure_ns > figure
            || message.count > count
            || message.cpu.is_some_and(|cpu| !cpus.contains(&cpu))
            || message.task.as_ref().is_some_and(|task| !tasks.contains(task));
        // A message that is broken by a mail or cut may lack its end.
        let is_cut = excerpt.changes.contains(&"cut in a line")
            && message.task.as_ref().is_none_or(|task| tasks.iter().any(|it| it.starts_with(task.as_str())));
        if is_other && !is_cut {
            wrong.push(format!("{message:?}"));
        }
    }
    wrong
}

#[test]
fn excerpts_of_logs_have_no_messages_that_are_not_in_them() {
    let (mut all, mut read, mut found) = (0, 0, Vec::new());
    for (number, (name, text)) in logs().iter().enumerate() {
        let whole = log(text.as_bytes());
        assert!(!whole.messages.is_empty(), "{name}: no message");
        for seed in 0..count(40) {
            let excerpt = excerpt(text.as_bytes(), seed << 16 | number as u64);
            let name = format!("{name} {seed} {:?}", excerpt.changes);
            all += 1;
            match catch_unwind(|| log(&excerpt.text)) {
                Ok(log) => {
                    read += u64::from(!log.messages.is_empty());
                    found.extend(
                        wrong(&log.messages, &whole.messages, &excerpt)
                            .into_iter()
                            .map(|it| format!("{name}: {it}")),
                    );
                }
                Err(_) => found.push(format!("{name}: a panic")),
            }
        }
    }
    assert!(found.is_empty(), "{} of {all}:\n{}", found.len(), found.join("\n"));
    assert!(read > all / 2, "{read} of {all}: the changes leave nothing to read");
}
