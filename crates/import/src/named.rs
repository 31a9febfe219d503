//! Results that are not measurements of one CPU: they are recognised, the worst of them is named, and the command that
//! finds the cause.

use crate::lines::ToolLines;
use whylate_core::figure::nanoseconds;

/// A form that is recognised and not read: the tool, what its text contains, and how to find its worst figure.
pub(crate) struct NamedForm {
    pub(crate) tool: &'static str,
    /// Any of these anywhere in a line.
    pub(crate) marks: &'static [&'static str],
    pub(crate) has: &'static str,
    pub(crate) worst: fn(&ToolLines<'_>) -> Option<String>,
    pub(crate) to_do: &'static str,
}

const RECORD: &str =
    "record a trace (`whylate trace record`) or watch the machine (`whylate top`) to see what ran instead";

pub(crate) const NAMED: &[NamedForm] = &[
    NamedForm {
        tool: "criticalstat",
        marks: &["Finding critical section with"],
        has: "sections with interrupts or preemption disabled, and their threads",
        worst: |lines| sections(lines),
        to_do: "measure the same with `whylate measure tracer --tracer irqsoff`, or record a trace: `whylate trace record`",
    },
    NamedForm {
        tool: "softirqslower",
        marks: &["Tracing softirq latency higher than", "STAGE                SOFTIRQ"],
        has: "softirqs that waited or ran for long",
        worst: |lines| rows(lines, "LAT(us)"),
        to_do: RECORD,
    },
    NamedForm {
        tool: "runqslower",
        marks: &["Tracing run queue latency higher than"],
        has: "threads, mostly ordinary ones, that waited for a CPU",
        worst: |lines| rows(lines, "LAT(us)"),
        to_do: RECORD,
    },
    NamedForm {
        tool: "hardirqs or softirqs of bcc",
        marks: &["Tracing hard irq event time", "Tracing soft irq event time", "TOTAL_usecs", "TOTAL_nsecs"],
        has: "sums of the time in interrupts, but not when each interrupt came and how long it took",
        worst: |lines| rows(lines, "TOTAL_usecs").or_else(|| rows(lines, "TOTAL_nsecs")),
        to_do: RECORD,
    },
    NamedForm {
        tool: "runqlat or another BPF histogram",
        marks: &["     : count    distribution", "|@@@"],
        has: "a histogram in powers of two, without the threads",
        worst: histogram,
        to_do: RECORD,
    },
    NamedForm {
        tool: "perf sched latency",
        marks: &["Max delay ms", "| Maximum delay at"],
        has: "sums and the largest delay of each thread, without events",
        worst: |lines| perf_latency(lines),
        to_do: "give the perf.data file from which this text was made: `whylate explain perf.data`",
    },
    NamedForm {
        tool: "perf sched map",
        marks: &["*A0 "],
        has: "which thread ran on which CPU, without wake-ups",
        worst: |_| None,
        to_do: "give the perf.data file from which this text was made: `whylate explain perf.data`",
    },
    NamedForm {
        tool: "offcputime (folded stacks)",
        marks: &["Tracing off-CPU time (us)"],
        has: "sums of the time off the CPU for each stack, but not when a thread was off the CPU",
        worst: |_| None,
        to_do: "watch the thread: `whylate watch --task NAME`",
    },
    NamedForm {
        tool: "stress-ng",
        marks: &["stress-ng: info:", "stress-ng: metrc:"],
        has: "the amount of work that loads did, without latencies",
        worst: |_| None,
        to_do: "`stress-ng --cyclic 1` measures latency; `whylate run` measures it while loads run",
    },
    NamedForm {
        tool: "cyclictest (one line of its screen)",
        marks: &["policy: fifo: loadavg:", "policy: rr: loadavg:", "policy: other: loadavg:"],
        has: "the load averages of the machine, but no complete row of a thread (`T: 0 …`)",
        worst: |_| None,
        to_do: "give the rows that begin with `T:`",
    },
    NamedForm {
        tool: "turbostat",
        marks: &["Bzy_MHz"],
        has: "frequencies, idle states and, in the column SMI, how often the firmware took the CPUs, without latencies",
        worst: |_| None,
        to_do: "measure how long the firmware takes: `whylate measure stall`",
    },
    NamedForm {
        tool: "mpstat, vmstat, pidstat or top",
        marks: &["%usr   %nice", "procs -----------memory", "%CPU  %MEM", "UID       PID    %usr"],
        has: "mean CPU use, without latencies: a task can be late on an idle CPU, too",
        worst: |_| None,
        to_do: RECORD,
    },
    NamedForm {
        tool: "ping",
        marks: &["rtt min/avg/max/mdev", "icmp_seq="],
        has: "network round-trip times, which include an unknown time spent waiting for a CPU",
        worst: |_| None,
        to_do: "watch the thread that answers: `whylate watch --task NAME`",
    },
    NamedForm {
        tool: "fio",
        marks: &["clat (usec):", "clat (nsec):", "clat percentiles ("],
        has: "latencies of a disk, which include an unknown time spent waiting for a CPU",
        worst: |_| None,
        to_do: "record a trace of the moment: `whylate trace record`",
    },
    NamedForm {
        tool: "rt-app",
        marks: &["#idx  perf     run", "c_duration   c_period   wu_lat", "wu_lat"],
        has: "activations of its threads with their wake-up latency, but not the threads that ran instead",
        worst: |_| None,
        to_do: "watch its thread (`whylate watch --task NAME`) or record a trace (`whylate trace record`)",
    },
    NamedForm {
        tool: "the scheduler's debug file",
        marks: &["Sched Debug Version:"],
        has: "the state of the run queues at one moment",
        worst: |_| None,
        to_do: RECORD,
    },
    NamedForm {
        tool: "Chrome's tracing",
        marks: &["\"traceEvents\""],
        has: "no events of the scheduler, so there is nothing to explain",
        worst: |_| None,
        to_do: "record the trace with ftrace (`sched` and `irq` among the system categories), or run `whylate trace record` at the same time",
    },
    NamedForm {
        tool: "a CTF trace as `babeltrace2` prints it",
        marks: &["sched_switch: { cpu_id =", "sched_waking: { cpu_id =", "irq_handler_entry: { cpu_id ="],
        has: "events without their times, or no scheduler events",
        worst: |_| None,
        to_do: "print the whole trace with its times: `babeltrace2 FOLDER > trace.txt`, then `whylate explain trace.txt`",
    },
];

/// The largest figure of a table with that column, with its row.
fn rows(lines: &ToolLines<'_>, column: &str) -> Option<String> {
    let unit_ns = if column.contains("nsecs") { 1 } else { 1000 };
    let mut titles: Vec<&str> = Vec::new();
    let mut worst: Option<(u64, String)> = None;
    for line in lines.iter() {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        if words.contains(&column) {
            titles = words;
            continue;
        }
        // Names may have blanks in them: from the end, where the figures and the last name are.
        let Some(behind) = titles.iter().position(|title| *title == column).map(|at| titles.len() - 1 - at)
        else {
            continue;
        };
        let figure = words.len().checked_sub(behind + 1).and_then(|at| words[at].parse::<u64>().ok());
        let Some(ns) = figure.map(|it| it.saturating_mul(unit_ns)).filter(|_| words.len() >= titles.len())
        else {
            continue;
        };
        if worst.as_ref().is_none_or(|(most, _)| ns > *most) {
            worst = Some((ns, words.join(" ")));
        }
    }
    worst.map(|(ns, row)| format!("the largest is {}: `{row}`", nanoseconds(ns)))
}

/// `TASK: kworker/u16:5 (pid  5903 tid  5903) Total Time: 194.427  us`, `Section start: a -> b`; interrupts or preemption.
fn sections(lines: &ToolLines<'_>) -> Option<String> {
    let mut worst: Option<(f64, String, String)> = None;
    let mut what = "interrupts";
    let mut is_last = false;
    for line in lines.iter() {
        if line.text.starts_with("Finding critical section with") {
            what = if line.text.contains("preempt") { "preemption" } else { "interrupts" };
        }
        let task = line.text.strip_prefix("TASK:").and_then(|rest| rest.split_once("(pid"));
        if let Some((task, rest)) = task
            && let Some(us) = rest
                .split("Total Time:")
                .nth(1)
                .and_then(|it| it.split_whitespace().next()?.parse::<f64>().ok())
        {
            is_last = worst.as_ref().is_none_or(|(most, ..)| us > *most);
            if is_last {
                worst = Some((us, format!("{} with {what} disabled", task.trim()), String::new()));
            }
        }
        if let (Some(start), Some((.., place)), true) =
            (line.text.strip_prefix("Section start:"), &mut worst, is_last)
        {
            start.trim().clone_into(place);
        }
    }
    worst.map(|(us, task, place)| {
        format!("the longest is {}: {task}, from `{place}`", nanoseconds((us * 1000.0) as u64))
    })
}

/// The last bucket of a histogram with a count: `16384 -> 32767 : 2 |**|`, `[16K, 32K) 2 |@@|`.
fn histogram(lines: &ToolLines<'_>) -> Option<String> {
    let unit = lines
        .iter()
        .find_map(|line| ["usecs", "msecs", "nsecs"].into_iter().find(|unit| line.text.starts_with(unit)));
    let last = lines.iter().filter(|line| line.text.contains('|')).filter_map(|line| {
        let (range, rest) = line.text.split_once(':').or_else(|| line.text.split_once(')'))?;
        let count: u64 = rest.split('|').next()?.trim().parse().ok()?;
        (count > 0).then(|| {
            let range =
                if range.contains('[') { format!("{})", range.trim()) } else { range.trim().to_owned() };
            format!("{count} in {range}{}", unit.map(|it| format!(" {it}")).unwrap_or_default())
        })
    });
    last.last().map(|last| format!("the highest bucket with samples: {last}"))
}

/// `migration/0:(2) | 0.1 ms | 5 | avg: 0.004 ms | max: 0.012 ms |`, of all ages.
fn perf_latency(lines: &ToolLines<'_>) -> Option<String> {
    let rows = lines.iter().filter_map(|line| {
        let (_, rest) = line.text.split_once("max:")?;
        let ms: f64 = rest.split_whitespace().next()?.trim_end_matches("ms").parse().ok()?;
        Some((ms, line.text.split('|').next()?.trim().to_owned()))
    });
    let (ms, task) = rows.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!("the largest delay is {}: {task}", nanoseconds((ms * 1e6) as u64)))
}
