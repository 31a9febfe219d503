//! Reads a binary trace to its end and says how long that took: `benches/trace_peers.sh` compares it with
//! `trace-cmd report`.
//!
//! `read_trace [--wakeups] [--names] [--from NANOSECONDS] [--first COUNT] [--list] PATH`; `--names` looks up the name of
//! each function, as a report does that prints them.

#![allow(clippy::print_stdout, reason = "a program")]

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use whylate_trace::event::{EventKind, Symbol};
use whylate_trace::parse::input::Input;
use whylate_trace::parse::ring_buffer::directory;
use whylate_trace::parse::trace_dat;
use whylate_trace::reader::{Reader, Selection};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut selection, mut from_ns, mut first) = (Selection::All, None, u64::MAX);
    let (mut list, mut names, mut name_bytes) = (false, false, 0);
    let mut path = PathBuf::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--wakeups" => selection = Selection::Wakeups,
            "--from" => from_ns = words.next().map(|text| text.parse()).transpose()?,
            "--first" => first = words.next().ok_or("how many?")?.parse()?,
            "--list" => list = true,
            "--names" => names = true,
            _ => path = word.into(),
        }
    }
    let started = Instant::now();
    let mut reader =
        if path.is_dir() { directory::open(&path)? } else { trace_dat::open(Input::open(&path)?)? };
    let opened = started.elapsed();
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    reader.seek(from_ns, selection)?;
    let (mut events, mut first_ns, mut last_ns) = (0u64, None, 0);
    while events < first
        && let Some(event) = reader.next()?
    {
        events += 1;
        first_ns.get_or_insert(event.at_ns);
        last_ns = event.at_ns;
        if names {
            name_bytes += functions(&event.kind)
                .filter_map(|symbol| Some(reader.symbol(symbol)?.0.len()))
                .sum::<usize>();
        }
        if list {
            let command = event.command.map_or("<...>", |command| reader.names().text(command));
            writeln!(
                output,
                "{} {} {} {command} {:?}",
                event.at_ns,
                event.cpu,
                event.pid.unwrap_or(0),
                event.kind
            )?;
        }
    }
    let seconds = (started.elapsed() - opened).as_secs_f64();
    let memory = std::fs::read_to_string("/proc/self/status")?;
    let peak = memory.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: ?");
    writeln!(
        output,
        "{events} events from {} to {last_ns} ns; opened in {:.3} s, read in {seconds:.3} s: {:.2} M/s; {name_bytes} bytes of names; {peak}",
        first_ns.unwrap_or(0),
        opened.as_secs_f64(),
        events as f64 / seconds / 1e6
    )?;
    Ok(())
}

/// The functions in an event.
fn functions(kind: &EventKind) -> impl Iterator<Item = Symbol> {
    let two = match *kind {
        EventKind::Function { function, caller } => [Some(function), Some(caller)],
        EventKind::GraphEntry { function, .. }
        | EventKind::GraphExit { function, .. }
        | EventKind::TimerStart { function, .. }
        | EventKind::TimerExpire { function, .. } => [Some(function), None],
        _ => [None, None],
    };
    two.into_iter().flatten()
}
