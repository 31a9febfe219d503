//! Plants causes of lateness on this machine, and counts by which kinds they are named: a confusion table in Markdown.
//!
//!     cargo run --release -p whylate-record --example confusion -- [SECONDS [PLANT…]]
//!
//! Needs root and two CPUs. A process of its own looks for gaps on the last CPU, and its other threads plant what only threads of
//! one process can do to each other; `benches/causes.py` plants the rest. They say what they did and when; a spike is
//! planted when at least half of it lies in a plant. One that is not is left out: it is the machine's own. So is a plant whose
//! call took half as long again as usual: it waited for something else that the CPU did.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example that prints a table")]

mod measuring;
mod plants;

use plants::Plant;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use whylate_core::record::SpikeRecord;
use whylate_core::result::{Cause, CauseKind, HistogramSource};
use whylate_core::{CpuId, CpuSet};
use whylate_host::{Host, HostRoot, facts};
use whylate_record::causes::{FindsCauses, Measured, find_causes};
use whylate_sys::schedule;

/// The first argument of the process that is late.
const MEASURE: &str = "measure";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, plant, cpu, seconds] = arguments.as_slice()
        && role == MEASURE
        && let (Some(plant), Ok(cpu)) = (Plant::named(plant), cpu.parse())
    {
        return measuring::run(plant, CpuId(cpu), seconds.parse()?);
    }
    let seconds: u64 = arguments.first().map_or(Ok(5), |text| text.parse())?;
    let chosen =
        |plant: &Plant| arguments.len() < 2 || arguments[1..].iter().any(|name| name == plant.name());
    let mut rows = Vec::new();
    for plant in Plant::ALL.into_iter().filter(chosen) {
        let row = try_plant(plant, seconds)?;
        eprintln!("{}: {} planted spikes", plant.name(), row.planted);
        rows.push(row);
    }
    print_table(&rows);
    Ok(())
}

/// How the spikes of one plant were named.
struct Row {
    plant: Plant,
    planted: usize,
    named: BTreeMap<CauseKind, usize>,
    /// Named as another kind with full confidence.
    sure_and_wrong: usize,
    examples: Vec<String>,
}

enum Said {
    Armed,
    Spike { cpu: u32, at_ns: u64, latency_ns: u64 },
    Planted { from_ns: u64, to_ns: u64 },
}

fn try_plant(plant: Plant, seconds: u64) -> Outcome<Row> {
    let host = Host { running: HostRoot::real(), settings: HostRoot::real() };
    let (facts, _) = facts::collect(&host.running);
    let online = &facts.cpu_sets.online;
    let last = online.iter().last().ok_or("no CPU")?;
    let first = online.iter().next().filter(|first| *first != last).ok_or("there is only one CPU")?;
    schedule::pin_this_thread(&CpuSet::from_iter([first]))?;
    let cpus = if plant == Plant::Migration { online.clone() } else { CpuSet::from_iter([last]) };
    let priority = plant.priority();
    let measured = Measured {
        cpus: cpus.clone(),
        is_timer: false,
        priority,
        spikes_kept: usize::MAX,
        late_above_ns: 0,
        counts_own: false,
    };
    let mut finder = find_causes(&host, &[measured], &facts, Some(HistogramSource::Bpf))?;
    let (sender, said) = channel();
    let mut measuring = start(plant, last, seconds, sender)?;
    let (causes, planted) = follow(finder.as_mut(), &said, &cpus, &mut measuring)?;
    measuring.wait()?;
    Ok(row(plant, &causes, &plant.undisturbed(planted)))
}

/// Starts this program as the one that is late, and reads its lines.
fn start(plant: Plant, cpu: CpuId, seconds: u64, sender: std::sync::mpsc::Sender<Said>) -> Outcome<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([MEASURE, plant.name(), &cpu.0.to_string(), &seconds.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if parse(&line).is_some_and(|said| sender.send(said).is_err()) {
                break;
            }
        }
    });
    Ok(child)
}

fn parse(line: &str) -> Option<Said> {
    let mut words = line.split(' ');
    let what = words.next()?;
    let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    Some(match (what, numbers.as_slice()) {
        ("armed", _) => Said::Armed,
        ("spike", [cpu, at_ns, latency_ns]) => {
            Said::Spike { cpu: *cpu as u32, at_ns: *at_ns, latency_ns: *latency_ns }
        }
        ("planted", [from_ns, to_ns]) => Said::Planted { from_ns: *from_ns, to_ns: *to_ns },
        _ => return None,
    })
}

type Explained = Vec<(SpikeRecord, Vec<Cause>)>;

/// Explains spikes as they come, until the process has ended.
fn follow(
    finder: &mut dyn FindsCauses,
    said: &Receiver<Said>,
    cpus: &CpuSet,
    measuring: &mut Child,
) -> Outcome<(Explained, Vec<(u64, u64)>)> {
    let (mut causes, mut planted) = (Vec::new(), Vec::new());
    let mut sample = 0;
    while let Ok(first) = said.recv() {
        std::thread::sleep(Duration::from_millis(5));
        let mut spikes = Vec::new();
        for one in std::iter::once(first).chain(said.try_iter()) {
            match one {
                Said::Armed => {
                    finder.armed(cpus, measuring.id(), 0)?;
                    measuring.stdin.take().ok_or("no input")?.write_all(b"\n")?;
                }
                Said::Planted { from_ns, to_ns } => planted.push((from_ns, to_ns)),
                Said::Spike { cpu, at_ns, latency_ns } => {
                    sample += 1;
                    spikes.push(SpikeRecord {
                        cpu: CpuId(cpu),
                        at_ns,
                        latency_ns,
                        sample,
                        ..SpikeRecord::default()
                    });
                }
            }
        }
        finder.explain(&spikes)?;
        for spike in spikes {
            if let Some(found) = finder.causes_of(spike.cpu, spike.at_ns) {
                causes.push((spike, found.causes));
            }
        }
    }
    Ok((causes, planted))
}

fn row(plant: Plant, explained: &Explained, planted: &[(u64, u64)]) -> Row {
    let mut row = Row { plant, planted: 0, named: BTreeMap::new(), sure_and_wrong: 0, examples: Vec::new() };
    for (spike, causes) in explained {
        let Some(first) = causes.first().filter(|_| Plant::did(spike, planted)) else { continue };
        row.planted += 1;
        *row.named.entry(first.kind).or_insert(0) += 1;
        if first.kind != plant.kind() {
            row.sure_and_wrong += usize::from(first.confidence.is_some_and(|sure| sure >= 1.0));
            if row.examples.len() < 3 {
                row.examples.push(format!("{} ns: {causes:?}", spike.latency_ns));
            }
        }
    }
    row
}

fn print_table(rows: &[Row]) {
    println!("| planted | as | spikes | named first as | right | wrong and sure |");
    println!("|---|---|--:|---|--:|--:|");
    for row in rows {
        let mut named: Vec<_> = row.named.iter().collect();
        named.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named: Vec<String> =
            named.into_iter().map(|(kind, count)| format!("`{}` {count}", kind.name())).collect();
        let right = row.named.get(&row.plant.kind()).copied().unwrap_or(0);
        println!(
            "| {} | `{}` | {} | {} | {:.1} % | {} |",
            row.plant.describe(),
            row.plant.kind().name(),
            row.planted,
            named.join(", "),
            100.0 * right as f64 / row.planted.max(1) as f64,
            row.sure_and_wrong
        );
    }
    for row in rows {
        for example in &row.examples {
            eprintln!("{}: {example}", row.plant.name());
        }
    }
}
