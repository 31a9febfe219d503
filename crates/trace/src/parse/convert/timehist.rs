//! `perf sched timehist`: a line for each time that a thread ran, when it ends, with how long it ran and how long it had to
//! wait for the CPU before. From that, the wake-up and the switches follow; without `--show-prio` priorities, and without
//! `--state` the reason why it stopped, are not in it.

use super::{ConvertError, each_line};
use crate::parse::text::scan;
use crate::parse::{ParseError, Source};
use std::collections::HashMap;
use std::io::Write;

/// Lines that are kept until all are sorted.
const ROWS_MAX: usize = 16 << 20;
/// What an ordinary thread has, for texts without priorities.
const PRIORITY: u32 = 120;

pub(super) fn is(head: &[u8]) -> bool {
    let has = |mark: &[u8]| memchr::memmem::find(head, mark).is_some();
    has(b"sch delay") && has(b"run time") && has(b"task name")
}

struct Row {
    cpu: u64,
    end_ns: u64,
    command: String,
    pid: u32,
    /// When it began to run, and when it ended.
    priorities: (u32, u32),
    delay_ns: u64,
    run_ns: u64,
    state: char,
}

pub(super) fn convert(source: &Source, output: &mut dyn Write) -> Result<(), ConvertError> {
    let (mut rows, mut full) = (Vec::new(), false);
    each_line(source, |line| {
        let row = std::str::from_utf8(line).ok().and_then(row);
        full = rows.len() == ROWS_MAX;
        rows.extend(row.filter(|_| !full));
        Ok(!full)
    })?;
    if full {
        let found =
            format!("a timehist of more than {ROWS_MAX} lines: give `perf script` of the part that matters");
        return Err(ParseError::Foreign { path: source.path().to_owned(), found }.into());
    }
    let mut lines = events(&rows);
    lines.sort_by_key(|(at_ns, order, _)| (*at_ns, *order));
    for (at_ns, _, line) in lines {
        let (seconds, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        let (task, text) = line.split_once('\t').unwrap_or(("", &line));
        writeln!(output, "{task} {seconds}.{rest:09}: {text}")?;
    }
    Ok(())
}

/// `14995.579466 [0001]  whylate[13722/13700]  0.000  0.015  0.020  S …`; `None` for every other line.
fn row(line: &str) -> Option<Row> {
    let line = line.trim_start();
    let (time, rest) = line.split_once(' ')?;
    let end_ns = milliseconds(time)?.checked_mul(1000)?;
    let (cpu, rest) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
    // Three times; before them the thread, whose name can have spaces; behind them perhaps its state.
    let words: Vec<&str> = rest.split_whitespace().collect();
    let first = words.windows(3).position(|times| times.iter().all(|time| milliseconds(time).is_some()))?;
    let time = |index: usize| words.get(first + index).and_then(|word| milliseconds(word));
    // With `-V`, a letter shows the CPU.
    let from = usize::from(first > 1 && words[0].len() == 1);
    let mut task = words.get(from..first)?;
    let mut priorities = (PRIORITY, PRIORITY);
    // Names end in `]` or `>`; a number behind them is the priority.
    if let Some((last, before)) = task.split_last()
        && let Some(found) = priority(last).filter(|_| !before.is_empty())
    {
        (task, priorities) = (before, found);
    }
    let task = task.join(" ");
    let (command, pid) = thread(&task)?;
    let state = words.get(first + 3).filter(|word| word.len() <= 2).and_then(|word| word.chars().next());
    Some(Row {
        cpu: cpu.trim().parse().ok()?,
        end_ns,
        command,
        pid,
        priorities,
        delay_ns: time(1)?,
        run_ns: time(2)?,
        state: state.filter(char::is_ascii_alphabetic).unwrap_or('S'),
    })
}

/// `1.015` milliseconds, in nanoseconds.
fn milliseconds(text: &str) -> Option<u64> {
    let (at_ns, digits, rest) = scan::seconds(text.as_bytes())?;
    (digits > 0 && rest.is_empty()).then_some(at_ns / 1000)
}

/// `120`, or `120->98` where it changed meanwhile.
fn priority(text: &str) -> Option<(u32, u32)> {
    let (from, to) = text.split_once("->").unwrap_or((text, text));
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// `whylate[13722]`, `whylate[13722/13700]` (thread, process), `:13722`; `<idle>`.
fn thread(task: &str) -> Option<(String, u32)> {
    if task == "<idle>" {
        return Some(("swapper".to_owned(), 0));
    }
    let known = task.strip_suffix(']').and_then(|task| task.rsplit_once('['));
    let (command, ids) = known.or_else(|| Some(("", task.strip_prefix(':')?)))?;
    let pid = ids.split('/').next()?.parse().ok()?;
    let unknown = command.is_empty() || command.starts_with(':');
    Some((if unknown { "<...>".to_owned() } else { command.to_owned() }, pid))
}

/// The wake-up, and the switches to and from the thread: time, order at the same time, `task [cpu]` and text.
fn events(rows: &[Row]) -> Vec<(u64, u8, String)> {
    let mut lines = Vec::with_capacity(rows.len() * 3);
    let mut last: HashMap<u64, &Row> = HashMap::new();
    let head = |row: Option<&Row>, cpu: u64| match row {
        Some(row) => format!("{}-{} [{cpu:03}]", row.command, row.pid),
        None => format!("<idle>-0 [{cpu:03}]"),
    };
    let switch = |previous: Option<&Row>, next: Option<&Row>, cpu: u64| {
        let (from, pid, prev_prio, state) = previous.map_or(("swapper", 0, PRIORITY, 'R'), |row| {
            (row.command.as_str(), row.pid, row.priorities.1, row.state)
        });
        let (to, next_pid, next_prio) =
            next.map_or(("swapper", 0, PRIORITY), |row| (row.command.as_str(), row.pid, row.priorities.0));
        format!(
            "{}\tsched_switch: prev_comm={from} prev_pid={pid} prev_prio={prev_prio} prev_state={state} ==> \
             next_comm={to} next_pid={next_pid} next_prio={next_prio}",
            head(previous, cpu)
        )
    };
    for row in rows {
        let begin_ns = row.end_ns.saturating_sub(row.run_ns);
        if row.delay_ns > 0 {
            let text = format!(
                ":-1 -1 [{:03}]\tsched_wakeup: comm={} pid={} prio={} target_cpu={:03}",
                row.cpu, row.command, row.pid, row.priorities.0, row.cpu
            );
            lines.push((begin_ns.saturating_sub(row.delay_ns), 0, text));
        }
        let before = last.insert(row.cpu, row);
        match before {
            // The times are rounded to microseconds.
            Some(before) if begin_ns <= before.end_ns + 2000 => {
                lines.push((begin_ns.max(before.end_ns), 1, switch(Some(before), Some(row), row.cpu)));
            }
            before => {
                if let Some(before) = before {
                    lines.push((before.end_ns, 1, switch(Some(before), None, row.cpu)));
                }
                lines.push((begin_ns, 2, switch(None, Some(row), row.cpu)));
            }
        }
    }
    for (cpu, row) in last {
        lines.push((row.end_ns, 1, switch(Some(row), None, cpu)));
    }
    lines
}
