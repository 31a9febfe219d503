//! Files that people published with their questions, in `fixtures/questions`: each gives its own figures, or is
//! refused by name with advice.

use crate::fields::{codes, list, number, word};
use crate::json::validate;
use crate::tool::whylate;
use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/questions");

fn file(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// CPU, series, samples, largest value in us: 0 if unknown.
type Row = (u64, &'static str, u64, u64);

/// A result, its tool, its rows, and codes of required warnings.
type Shown = (&'static str, &'static str, &'static [Row], &'static [&'static str]);

const SHOWN: &[Shown] = &[
    ("xenomai-latency/latency_T60.txt", "latency", &[(0, "", 600_000, 375)], &[]),
    ("stress-ng-cyclic/auto-none.txt", "stress-ng", &[(0, "", 10_000, 5_701)], &[]),
    ("jhiccup-hlog/jHiccup-2.0.7S.logV2.hlog", "HdrHistogram", &[(0, "", 48_761, 1_803_551)], &[]),
    ("lava-cyclictest-mail/job-19879.txt", "LAVA", &[(0, "", 0, 9_398)], &["known-signature"]),
    ("cyclictest-smp-typo/screen.txt", "cyclictest", &[(0, "", 10_000, 129)], &["foreign-result"]),
    (
        "rtla-timerlat-hist-user/hist.txt",
        "rtla",
        &[
            (1, "timerlat/irq", 1_000, 7),
            (1, "timerlat/thread", 1_000, 21),
            (1, "timerlat/user", 1_000, 24),
            (2, "timerlat/irq", 999, 3),
            (2, "timerlat/thread", 999, 11),
            (2, "timerlat/user", 999, 15),
        ],
        &[],
    ),
    ("osnoise-hist-empty/old.txt", "rtla", &[], &["nothing-seen"]),
    ("osnoise-hist-empty/new.txt", "rtla", &[], &["nothing-seen"]),
    (
        "jitterdebugger-kernels/rpi4-moode.txt",
        "jitterdebugger",
        &[(0, "", 82_959, 103), (1, "", 82_933, 67), (2, "", 82_907, 54), (3, "", 82_891, 57)],
        &[],
    ),
    (
        "cyclictest-v-logs/head.log",
        "cyclictest -v",
        &[
            (0, "", 554, 19),
            (1, "", 367, 16),
            (2, "", 273, 20),
            (3, "", 216, 21),
            (4, "", 179, 7),
            (5, "", 152, 8),
            (6, "", 132, 8),
            (7, "", 116, 8),
        ],
        &[],
    ),
    (
        "dl-server-50ms/v6.12.87.txt",
        "cyclictest",
        &[
            (0, "", 4_688_252, 51_956),
            (1, "", 4_688_051, 50_106),
            (2, "", 4_688_242, 51_965),
            (3, "", 4_688_434, 59),
        ],
        &["known-signature"],
    ),
];

#[test]
fn results_of_other_tools_have_the_figures_of_their_files() {
    for (name, tool, rows, wanted) in SHOWN {
        let document = whylate(&["report", &file(name), "--json"]).json();
        validate("measure", &document);
        assert!(word(&document, "tool").starts_with(tool), "{name}: {}", word(&document, "tool"));
        let codes = codes(&document);
        assert!(wanted.iter().all(|code| codes.iter().any(|it| it == code)), "{name}: {codes:?}");
        let with_data = list(&document, "cpus").iter().filter(|cpu| figures(cpu).is_some());
        let found: Vec<(u64, &str, u64, u64)> = with_data
            .map(|cpu| {
                let series = cpu["series"].as_str().unwrap_or("");
                let max_ns = figures(cpu).map_or(0, |it| number(it, "max_ns"));
                (number(cpu, "cpu"), series, number(cpu, "samples"), max_ns / 1000)
            })
            .collect();
        assert_eq!(found, *rows, "{name}");
        let said = whylate(&["explain", &file(name)]);
        assert!(said.error().contains("`whylate report "), "{name}: {said:?}");
    }
}

fn figures(cpu: &Value) -> Option<&Value> {
    [cpu, &cpu["extremes"]].into_iter().find(|it| it["max_ns"].is_u64())
}

/// Buckets of 10 us give upper ends, in the order of the quantiles.
#[test]
fn coarse_figures_stay_between_the_extremes() {
    let document = whylate(&["report", &file("rtla-timerlat-hist-user/hist.txt"), "--json"]).json();
    for cpu in list(&document, "cpus") {
        let all = ["min_ns", "p50_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns"].map(|key| number(cpu, key));
        assert!(all.is_sorted() && all[1] > 0, "{all:?}");
        assert_eq!(number(cpu, "bucket_ns"), 10_000);
    }
}

#[test]
fn tables_that_are_no_measurement_are_refused_by_name() {
    let cases: [(&str, &[&str]); 6] = [
        (
            "bcc-outputs/criticalstat_example.txt",
            &["criticalstat", "733 us", "irq/296-cs35l36", "preemption"],
        ),
        ("bcc-outputs/softirqslower_example.txt", &["softirqslower", "95.3 ms", "tasklet"]),
        ("chromeos-system-trace/chromeos_system_trace.json", &["Chrome", "scheduler"]),
        ("lttng-ctf/kernel", &["CTF", "babeltrace2 "]),
        ("lttng-ctf/kernel/metadata", &["CTF", "babeltrace2 "]),
        ("lttng-ctf/kernel/channel0_0", &["CTF", "babeltrace2 "]),
    ];
    for (name, words) in cases {
        for command in ["explain", "report"] {
            let said = whylate(&[command, &file(name)]);
            let text = said.error();
            assert!(words.iter().all(|word| text.contains(word)), "{command} {name}: {said:?}");
            assert_eq!((said.code, said.stderr.lines().count()), (Some(1), 1), "{command} {name}");
        }
    }
}

/// File, code of the message, its figure in ns, the count that the kernel gives, how many lines.
type Logged = (&'static str, &'static str, Option<u64>, Option<u64>, u64);

#[test]
fn logs_of_the_kernel_name_messages_and_no_actor() {
    const LOGGED: &[Logged] = &[
        ("dmesg-wq-i915/dmesg.txt", "workqueue_hog", Some(10_000_000), Some(8), 2),
        ("rt-throttle-pi5/dmesg.txt", "rt_throttling", None, None, 2),
        ("dmesg-tsc-unstable/dmesg_sozu.txt", "tsc_unstable", None, None, 2),
        ("dmesg-tsc-unstable/dmesg_sozu.txt", "slow_clocksource", None, None, 1),
        ("dmesg-tsc-unstable/dmesg_sozu.txt", "hrtimer_interrupt", Some(6_663_395), None, 1),
    ];
    for (name, code, figure_ns, count, lines) in LOGGED {
        let document = whylate(&["explain", &file(name), "--json"]).json();
        validate("explain", &document);
        assert_eq!((word(&document, "answer"), list(&document, "spikes").len()), ("log", 0), "{name}");
        let found = list(&document, "messages").iter().find(|it| it["code"] == *code);
        let message = found.unwrap_or_else(|| panic!("{name}: no {code}"));
        let own = (message["figure_ns"].as_u64(), message["count"].as_u64(), number(message, "lines"));
        assert_eq!(own, (*figure_ns, *count, *lines), "{name}: {code}");
        assert_eq!(whylate(&["explain", "--why", code]).code, Some(0), "{code}");
    }
}

/// 50 ms on three CPUs of one side, and on none of the other, which measured longer: one file a side shows it.
#[test]
fn a_known_mechanism_on_one_side_alone_decides_between_two_files() {
    let (clean, harmed) = (file("dl-server-50ms/reverted.txt"), file("dl-server-50ms/v6.12.87.txt"));
    let compared = |first: &str, second: &str| {
        let said = whylate(&["compare", first, second, "--json"]);
        let document = said.document();
        validate("compare", &document);
        let outcome = |cell: &str| {
            let of_cell = |it: &&Value| it["of_cell"] == cell && it["statistic"] == "max";
            let row = list(&document, "contrasts").iter().find(of_cell).expect("a row");
            word(row, "outcome").to_owned()
        };
        let outcomes = ["", "CPU 0", "CPU 1", "CPU 2", "CPU 3"].map(outcome);
        (said.code, word(&document, "outcome").to_owned(), outcomes.join(" "))
    };
    let (code, outcome, rows) = compared(&clean, &harmed);
    assert_eq!((code, &*outcome, &*rows), (Some(2), "worse", "worse worse worse worse cannot_tell"));
    // The harmed side measured for less time: whether CPU 3 improved is unknown, but the mechanism is gone.
    let (code, outcome, rows) = compared(&harmed, &clean);
    assert_eq!((code, &*outcome, &*rows), (Some(0), "better", "better better better better cannot_tell"));
    let (code, outcome, _) = compared(&clean, &clean);
    assert_eq!((code, &*outcome), (Some(1), "cannot_tell"));
}
