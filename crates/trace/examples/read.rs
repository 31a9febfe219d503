//! Reads a trace (a file, or a folder with the raw pages of each CPU) and prints its facts and the number of events of each
//! kind. `--dump` prints each event, `--time` only the time that reading took. `--names` also looks up the name of each
//! function, as a report that prints them does. `benches/trace_readers.py` compares it with other readers.
//!
//!     cargo run --release -p whylate-trace --example read -- \
//!         [--dump | --time] [--wakeups] [--names] [--from NANOSECONDS] [--first COUNT] PATH

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use whylate_trace::event::{Event, EventKind, Symbol};
use whylate_trace::parse;
use whylate_trace::reader::{Reader, Selection};

/// The name of the kind: what is before its fields in the debug output.
fn kind(event: &Event) -> String {
    let text = format!("{:?}", event.kind);
    text.split([' ', '(']).next().unwrap_or_default().to_owned()
}

struct Wanted {
    dump: bool,
    kinds: bool,
    names: bool,
    selection: Selection,
    from_ns: Option<u64>,
    first: u64,
    path: PathBuf,
}

fn wanted() -> Result<Wanted, Box<dyn std::error::Error>> {
    let path = PathBuf::new();
    let mut wanted = Wanted {
        dump: false,
        kinds: true,
        names: false,
        selection: Selection::All,
        from_ns: None,
        first: u64::MAX,
        path,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--dump" => wanted.dump = true,
            "--time" => wanted.kinds = false,
            "--names" => wanted.names = true,
            "--wakeups" => wanted.selection = Selection::Wakeups,
            "--from" => {
                wanted.from_ns = Some(arguments.next().ok_or("--from needs nanoseconds")?.parse()?);
            }
            "--first" => wanted.first = arguments.next().ok_or("--first needs a number")?.parse()?,
            _ => wanted.path = argument.into(),
        }
    }
    Ok(wanted)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Wanted { dump, kinds, names, selection, from_ns, first, path } = wanted()?;
    let begin = Instant::now();
    let mut reader = parse::open(&path)?;
    let opened = begin.elapsed().as_secs_f64();
    reader.seek(from_ns, selection)?;
    let mut counts = BTreeMap::<String, u64>::new();
    let (mut events, mut first_ns, mut last_ns, mut backwards) = (0u64, None, 0, 0u64);
    let mut name_bytes = 0;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    while events < first
        && let Some(event) = reader.next()?
    {
        events += 1;
        first_ns.get_or_insert(event.at_ns);
        backwards += u64::from(event.at_ns < last_ns);
        last_ns = event.at_ns;
        if names {
            let found = functions(&event.kind).filter_map(|symbol| Some(reader.symbol(symbol)?.0.len()));
            name_bytes += found.sum::<usize>();
        }
        if dump {
            print(&mut out, reader.as_ref(), &event)?;
        } else if kinds {
            *counts.entry(kind(&event)).or_default() += 1;
        }
    }
    let seconds = begin.elapsed().as_secs_f64() - opened;
    out.flush()?;
    if !dump {
        println!("{:#?}\n{counts:#?}", reader.info());
    }
    let memory = std::fs::read_to_string("/proc/self/status")?;
    let peak = memory.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: ?");
    println!(
        "{events} events from {} to {last_ns} ns, {backwards} before the one before them; {name_bytes} bytes of names; \
         opened in {opened:.3} s, read in {seconds:.3} s: {:.2} M/s; {peak}",
        first_ns.unwrap_or(0),
        events as f64 / seconds / 1e6
    );
    Ok(())
}

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

fn print(out: &mut impl Write, reader: &dyn Reader, event: &Event) -> std::io::Result<()> {
    let command = event.command.map_or("-", |name| reader.names().text(name));
    let extra = match event.kind {
        EventKind::Stack { frames } => {
            let names = reader.frames(frames).iter().map(|frame| match reader.symbol(*frame) {
                Some((name, _)) => name.to_owned(),
                None => format!("{frame:?}"),
            });
            names.collect::<Vec<_>>().join(" < ")
        }
        EventKind::Print { text } => reader.names().text(text).to_owned(),
        EventKind::Other { name, .. } => reader.names().text(name).to_owned(),
        _ => String::new(),
    };
    writeln!(out, "{} {} {:?} {command} {:?} {extra}", event.at_ns, event.cpu, event.pid, event.kind)
}
