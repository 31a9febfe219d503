//! Reads a trace and prints what is known of it and how many events of each kind it has; with `--dump` each event.
//!
//!     cargo run --release -p whylate-trace --example read -- [--dump] [--wakeups] [--from NANOSECONDS] FILE

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use whylate_trace::event::{Event, EventKind};
use whylate_trace::parse;
use whylate_trace::reader::{Reader, Selection};

/// The name of the kind: what is before its fields in the debug output.
fn kind(event: &Event) -> String {
    let text = format!("{:?}", event.kind);
    text.split([' ', '(']).next().unwrap_or_default().to_owned()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut dump, mut kinds, mut selection, mut from_ns) = (false, true, Selection::All, None);
    let mut path = PathBuf::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--dump" => dump = true,
            "--time" => kinds = false,
            "--wakeups" => selection = Selection::Wakeups,
            "--from" => from_ns = Some(arguments.next().ok_or("--from needs nanoseconds")?.parse()?),
            _ => path = argument.into(),
        }
    }
    let begin = Instant::now();
    let mut reader = parse::open(&path)?;
    reader.seek(from_ns, selection)?;
    let mut counts = BTreeMap::<String, u64>::new();
    let (mut events, mut last_ns, mut backwards) = (0u64, 0, 0u64);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    while let Some(event) = reader.next()? {
        events += 1;
        backwards += u64::from(event.at_ns < last_ns);
        last_ns = event.at_ns;
        if dump {
            print(&mut out, reader.as_ref(), &event)?;
        } else if kinds {
            *counts.entry(kind(&event)).or_default() += 1;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    out.flush()?;
    if !dump {
        println!("{:#?}\n{counts:#?}", reader.info());
    }
    println!("{events} events in {seconds:.3} s, {backwards} before the one before them");
    Ok(())
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
