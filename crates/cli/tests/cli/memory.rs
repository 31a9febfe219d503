//! How much memory `explain` takes for traces that were made to exhaust it.
//!
//! `WHYLATE_HOSTILE_LINES` sets how many lines each trace has (by default a number that an unoptimised program reads in
//! seconds).

use crate::tool::{command, folder};
use std::fs::{self, File};
use std::io::{BufWriter, Result, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// No input may take more.
const MEMORY_KIB_MAX: u64 = 512 << 10;
/// What a trace of fewer lines may take in addition to a part of each line.
const MEMORY_KIB_LEAST: u64 = 64 << 10;
const LINES: u64 = 60_000;

type Write1 = fn(&mut dyn Write, u64) -> Result<()>;

/// The traces, by the items of which they have too many.
const TRACES: [(&str, Write1); 13] = [
    ("threads", threads),
    ("window", window),
    ("functions", functions),
    ("calls", calls),
    ("cpus", cpus),
    ("prints", prints),
    ("stacks", stacks),
    ("graph", graph),
    ("losses", losses),
    ("noises", noises),
    ("line", |out, lines| out.write_all(&vec![b'x'; lines as usize * 64])),
    ("timehist", timehist),
    ("formats", formats),
];

/// A time in the form of traces.
fn at(number: u64) -> String {
    format!("{}.{:06}", 100 + number / 1_000_000, number % 1_000_000)
}

fn threads(out: &mut dyn Write, lines: u64) -> Result<()> {
    for number in 1..lines {
        let (time, other) = (at(number * 20), number + 1);
        let (before, next) = (number * 37 % 0xffff_0000, other * 37 % 0xffff_0000);
        writeln!(
            out,
            "t{number}-{before} [000] d..2. {time}: sched_switch: prev_comm=t{number} prev_pid={before} prev_prio=98 \
             prev_state=S ==> next_comm=t{other} next_pid={next} next_prio=98"
        )?;
    }
    Ok(())
}

/// One wake-up that is late because of everything in the trace.
fn window(out: &mut dyn Write, lines: u64) -> Result<()> {
    let switch = |out: &mut dyn Write, number: u64, from: u64, to: u64| {
        writeln!(
            out,
            "c{from}-{from} [000] d..2. {}: sched_switch: prev_comm=c{from} prev_pid={from} prev_prio=49 prev_state=S ==> \
             next_comm=c{to} next_pid={to} next_prio=49",
            at(number)
        )
    };
    switch(out, 1, 77, 0)?;
    writeln!(out, "<idle>-0 [000] d.h2. {}: sched_waking: comm=c77 pid=77 prio=9 target_cpu=000", at(2))?;
    for number in 3..lines {
        switch(out, number * 3, 1000 + number % 200_000, 1001 + number % 200_000)?;
    }
    switch(out, lines * 3, 5, 77)
}

fn functions(out: &mut dyn Write, lines: u64) -> Result<()> {
    for number in 0..lines {
        writeln!(out, "bash-12 [001] d..1. {}: function_{number} <-caller_{number}", at(number))?;
    }
    Ok(())
}

/// Each function is called by the one before.
fn calls(out: &mut dyn Write, lines: u64) -> Result<()> {
    writeln!(
        out,
        "task-7 [001] d..2. {}: sched_switch: prev_comm=task prev_pid=7 prev_prio=9 prev_state=S ==> next_comm=a next_pid=8 next_prio=120",
        at(1)
    )?;
    writeln!(out, "a-8 [001] d.h2. {}: sched_waking: comm=task pid=7 prio=9 target_cpu=001", at(2))?;
    for number in 3..lines {
        writeln!(out, "a-8 [001] d..1. {}: f{number} <-f{}", at(number), number - 1)?;
    }
    writeln!(
        out,
        "a-8 [001] d..2. {}: sched_switch: prev_comm=a prev_pid=8 prev_prio=120 prev_state=R ==> next_comm=task next_pid=7 next_prio=9",
        at(lines)
    )
}

fn cpus(out: &mut dyn Write, lines: u64) -> Result<()> {
    for number in 0..lines {
        let cpu = number * 4093 % 4_000_000_000;
        let wide = if number % 2 == 0 { number % 8192 } else { cpu };
        writeln!(
            out,
            "a-{} [{wide:03}] d..2. {}: sched_switch: prev_comm=a prev_pid={} prev_prio=9 prev_state=S ==> next_comm=b \
             next_pid=8 next_prio=9",
            number % 9000,
            at(number),
            number % 9000
        )?;
    }
    Ok(())
}

fn prints(out: &mut dyn Write, lines: u64) -> Result<()> {
    for number in 0..lines {
        writeln!(
            out,
            "a-7 [000] ..... {}: tracing_mark_write: {number} {}",
            at(number),
            "long text ".repeat(9)
        )?;
    }
    Ok(())
}

fn stacks(out: &mut dyn Write, lines: u64) -> Result<()> {
    for number in 0..lines / 8 {
        writeln!(out, "a-7 [000] d.h2. {}: sched_waking: comm=b pid=8 prio=9 target_cpu=000", at(number))?;
        writeln!(out, "a-7 [000] d.h2. {}: <stack trace>", at(number))?;
        for frame in 0..6 {
            writeln!(out, " => f{}", number * 5 + frame)?;
        }
    }
    Ok(())
}

/// Nested calls, and leaves that end long after the trace.
fn graph(out: &mut dyn Write, lines: u64) -> Result<()> {
    writeln!(out, "# tracer: function_graph")?;
    for number in 0..lines {
        let (cpu, depth) = (number % 5000, number / 5000 % 200);
        let indentation = " ".repeat(2 + 2 * depth as usize);
        if number % 2 == 0 {
            writeln!(out, " {cpu})               |{indentation}f{number}() {{")?;
        } else {
            writeln!(out, " {cpu}) $ {number}00000 us |{indentation}g{number}();")?;
        }
    }
    Ok(())
}

fn losses(out: &mut dyn Write, lines: u64) -> Result<()> {
    writeln!(out, "a-7 [000] d.h2. {}: sched_waking: comm=b pid=8 prio=9 target_cpu=000", at(1))?;
    for number in 0..lines {
        writeln!(out, "CPU:{} [LOST {} EVENTS]", number % 300, number % 100)?;
    }
    Ok(())
}

/// A sample of timerlat that is late because of everything before it.
fn noises(out: &mut dyn Write, lines: u64) -> Result<()> {
    let thread = "timerlat/0-9 [000] d..2.";
    for number in 1..lines {
        let (time, start) = (at(number * 10), at(number * 10 - 5));
        match number % 3 {
            0 => writeln!(
                out,
                "a-7 [000] d.h2. {time}: irq_noise: local_timer:236 start {start}000 duration 2000 ns"
            )?,
            1 => writeln!(
                out,
                "a-7 [000] d..2. {time}: thread_noise: t{number}:{number} start {start}000 duration 900 ns"
            )?,
            _ => writeln!(
                out,
                "a-7 [000] d.h2. {time}: softirq_noise: RCU:9 start {start}000 duration 1000 ns"
            )?,
        }
    }
    let late_ns = lines * 10_000;
    writeln!(out, "{thread} {}: #1 context irq timer_latency {} ns", at(lines * 10), late_ns - 10_000)?;
    writeln!(out, "{thread} {}: #1 context thread timer_latency {late_ns} ns", at(lines * 10))
}

fn timehist(out: &mut dyn Write, lines: u64) -> Result<()> {
    writeln!(out, "           time    cpu  task name                       wait time  sch delay   run time")?;
    writeln!(out, "                        [tid/pid]                          (msec)     (msec)     (msec)")?;
    for number in 0..lines {
        writeln!(
            out,
            " {} [0001]  t{number}[{number}/1]       0.000      0.015      0.002",
            at(number * 30)
        )?;
    }
    Ok(())
}

/// A trace.dat whose kernel has millions of events.
fn formats(out: &mut dyn Write, lines: u64) -> Result<()> {
    const PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
    out.write_all(b"\x17\x08\x44tracing6\0\0\x08\x00\x10\0\0header_page\0")?;
    out.write_all(&(PAGE.len() as u64).to_le_bytes())?;
    out.write_all(PAGE.as_bytes())?;
    out.write_all(b"header_event\0\0\0\0\0\0\0\0\0")?;
    out.write_all(&(lines as u32).to_le_bytes())?;
    for number in 0..lines {
        let format = format!("name: e{number}\nID: {}\n", number % 60_000);
        out.write_all(&(format.len() as u64).to_le_bytes())?;
        out.write_all(format.as_bytes())?;
    }
    out.write_all(&[0; 64])
}

/// The largest resident memory of a command that explains a trace; it ends with an answer or with a clear error.
fn peak_kib(trace: &Path) -> u64 {
    let mut explain = command(&["explain", "--json", trace.to_str().expect("a plain path")]);
    let mut child = explain.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    loop {
        // The kernel's own high-water mark: reading it occasionally misses little.
        let status = fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok());
        peak_kib = kib.unwrap_or(0).max(peak_kib);
        if let Some(status) = child.try_wait().expect("it is a child") {
            assert!(matches!(status.code(), Some(0..=3)), "{}: {status}", trace.display());
            return peak_kib;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn no_trace_takes_all_memory() {
    let lines =
        std::env::var("WHYLATE_HOSTILE_LINES").ok().and_then(|lines| lines.parse().ok()).unwrap_or(LINES);
    let folder = folder();
    for (name, write) in TRACES {
        let path = folder.path().join(name);
        let mut out = BufWriter::new(File::create(&path).expect("it can be written"));
        write(&mut out, lines).and_then(|()| out.flush()).expect("it can be written");
        drop(out);
        let peak_kib = peak_kib(&path);
        let most_kib = MEMORY_KIB_MAX.min(MEMORY_KIB_LEAST + lines);
        assert!(peak_kib < most_kib, "{name}: {} MB", peak_kib >> 10);
        fs::remove_file(&path).expect("it is there");
    }
}
