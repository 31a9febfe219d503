//! `perf sched timehist`: a line for each time that a thread ran, at its end, with how long it ran and how long it waited for
//! the CPU before. The wake-up and the switches follow from that. Priorities need `--show-prio`, and the reason why it
//! stopped needs `--state`.

use super::{ConvertError, each_line};
use crate::event::{Name, Names};
use crate::parse::text::scan;
use crate::parse::{ParseError, Source};
use std::collections::HashMap;
use std::io::Write;

/// Lines that are kept until all are sorted.
const ROWS_MAX: usize = 1 << 21;
/// The priority of an ordinary thread, for texts without priorities.
const PRIORITY: u32 = 120;

pub(super) fn is(head: &[u8]) -> bool {
    let has = |mark: &[u8]| memchr::memmem::find(head, mark).is_some();
    has(b"sch delay") && has(b"run time") && has(b"task name")
}

struct Row {
    cpu: u32,
    end_ns: u64,
    command: Name,
    pid: u32,
    /// When it began to run, and when it ended.
    priorities: (u32, u32),
    delay_ns: u64,
    run_ns: u64,
    state: char,
}

/// What is written of rows, by their places.
#[derive(Clone, Copy)]
enum What {
    Woken(u32),
    /// From one thread to another; `None` is the idle one.
    Switch(Option<u32>, Option<u32>),
}

pub(super) fn convert(source: &Source, output: &mut dyn Write) -> Result<(), ConvertError> {
    let (mut rows, mut names, mut full) = (Vec::new(), Names::default(), false);
    each_line(source, |line| {
        let row = std::str::from_utf8(line).ok().and_then(|line| row(line, &mut names));
        full = rows.len() == ROWS_MAX;
        rows.extend(row.filter(|_| !full));
        Ok(!full)
    })?;
    if full {
        let found =
            format!("a timehist of more than {ROWS_MAX} lines: give `perf script` output of a shorter time");
        return Err(ParseError::Foreign { path: source.path().to_owned(), found }.into());
    }
    let mut lines = events(&rows);
    lines.sort_by_key(|(at_ns, order, ..)| (*at_ns, *order));
    for (at_ns, _, cpu, what) in lines {
        let (seconds, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        let (task, text) = text(what, cpu, &rows, &names);
        writeln!(output, "{task} {seconds}.{rest:09}: {text}")?;
    }
    Ok(())
}

/// `14995.579466 [0001]  whylate[13722/13700]  0.000  0.015  0.020  S …`; `None` for every other line.
fn row(line: &str, names: &mut Names) -> Option<Row> {
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
        command: names.intern(&command),
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

/// The wake-up, and the switches to and from the thread: time, order at the same time, and CPU of each.
fn events(rows: &[Row]) -> Vec<(u64, u8, u32, What)> {
    let mut lines = Vec::with_capacity(rows.len() * 3);
    let mut last: HashMap<u32, u32> = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        let (place, cpu) = (place as u32, row.cpu);
        let begin_ns = row.end_ns.saturating_sub(row.run_ns);
        if row.delay_ns > 0 {
            lines.push((begin_ns.saturating_sub(row.delay_ns), 0, cpu, What::Woken(place)));
        }
        let before = last.insert(cpu, place);
        let before_end_ns = before.map(|before| rows[before as usize].end_ns);
        match before_end_ns {
            // The times are rounded to microseconds.
            Some(end_ns) if begin_ns <= end_ns.saturating_add(2000) => {
                lines.push((begin_ns.max(end_ns), 1, cpu, What::Switch(before, Some(place))));
            }
            end_ns => {
                lines.extend(end_ns.map(|end_ns| (end_ns, 1, cpu, What::Switch(before, None))));
                lines.push((begin_ns, 2, cpu, What::Switch(None, Some(place))));
            }
        }
    }
    let last = last.into_iter();
    lines.extend(
        last.map(|(cpu, place)| (rows[place as usize].end_ns, 1, cpu, What::Switch(Some(place), None))),
    );
    lines
}

/// `task [cpu]`, and the text of the event.
fn text(what: What, cpu: u32, rows: &[Row], names: &Names) -> (String, String) {
    let command = |row: &Row| names.text(row.command);
    match what {
        What::Woken(row) => {
            let row = &rows[row as usize];
            let text = format!(
                "sched_wakeup: comm={} pid={} prio={} target_cpu={cpu:03}",
                command(row),
                row.pid,
                row.priorities.0
            );
            (format!(":-1 -1 [{cpu:03}]"), text)
        }
        What::Switch(previous, next) => {
            let [previous, next] = [previous, next].map(|row| row.map(|row| &rows[row as usize]));
            let head = match previous {
                Some(row) => format!("{}-{} [{cpu:03}]", command(row), row.pid),
                None => format!("<idle>-0 [{cpu:03}]"),
            };
            let (from, pid, prev_prio, state) = previous.map_or(("swapper", 0, PRIORITY, 'R'), |row| {
                (command(row), row.pid, row.priorities.1, row.state)
            });
            let (to, next_pid, next_prio) =
                next.map_or(("swapper", 0, PRIORITY), |row| (command(row), row.pid, row.priorities.0));
            let text = format!(
                "sched_switch: prev_comm={from} prev_pid={pid} prev_prio={prev_prio} prev_state={state} ==> \
                 next_comm={to} next_pid={next_pid} next_prio={next_prio}"
            );
            (head, text)
        }
    }
}
