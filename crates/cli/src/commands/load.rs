//! `whylate load`.

use crate::arguments::{ExecArguments, LoadArguments, LoadCommand, MemoryArguments};
use crate::exit::Ending;
use crate::progress::Meter;
use crate::{machine, output, signals};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use whylate_core::plan::EventPace;
use whylate_core::record::RateRecord;
use whylate_core::result::{LOAD_FORMAT, LoadResult, RateResult};
use whylate_core::{Bytes, BytesPerSec, CpuSelector, CpuSet, Facts, Nanos};
use whylate_host::{Host, facts};
use whylate_load::{EventKind, EventSpec, ExecSpec, Load, LoadSpec, LoadStatus, LoadWork, MemorySpec};

/// How long a load may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) fn execute(command: LoadCommand, host: &Host) -> Result<Ending> {
    let (facts, _) = facts::collect(&host.running);
    match command {
        LoadCommand::Memory(arguments) => {
            let spec = memory_spec(&arguments, &facts)?;
            let what = What {
                kind: "memory",
                cpus: spec.cpus.clone(),
                victims: None,
                working_set: Some(spec.working_set),
                unit: "bytes_per_s",
            };
            run(&what, LoadWork::Memory(spec), arguments.run)
        }
        LoadCommand::Exec(arguments) => exec(&arguments, &facts),
        LoadCommand::Tlb(tlb) => {
            events(EventKind::Tlb, &tlb.cpus, Some(&tlb.victims), tlb.rate, tlb.run, &facts)
        }
        LoadCommand::Ipi(ipi) => {
            let kind = EventKind::Ipi(ipi.reach);
            events(kind, &ipi.cpus, Some(&ipi.victims), ipi.rate, ipi.run, &facts)
        }
        LoadCommand::Pageattr(load) => {
            events(EventKind::Pageattr, &load.cpus, None, load.rate, load.run, &facts)
        }
        LoadCommand::Softirq(load) => {
            events(EventKind::Softirq, &load.cpus, None, load.rate, load.run, &facts)
        }
        LoadCommand::IrqThread(load) => {
            let kind = EventKind::IrqThread(load.source);
            events(kind, &load.cpus, None, load.rate, load.run, &facts)
        }
    }
}

/// A load that is made of single acts.
fn events(
    kind: EventKind,
    cpus: &CpuSelector,
    victims: Option<&CpuSelector>,
    pace: EventPace,
    arguments: LoadArguments,
    facts: &Facts,
) -> Result<Ending> {
    let victims = victims.map(|victims| machine::cpus("--victims", victims, facts)).transpose()?;
    let cpus =
        cpus.resolve(&facts.cpu_context(), victims.as_ref()).with_context(|| format!("--cpus {cpus}"))?;
    let what = What {
        kind: kind.name(),
        cpus: cpus.clone(),
        victims: victims.clone(),
        working_set: None,
        unit: kind.unit(),
    };
    let spec = EventSpec { kind, cpus, victims: victims.unwrap_or_default(), pace };
    run(&what, LoadWork::Events(spec), arguments)
}

/// What a result says of a load besides its rate.
struct What<'a> {
    kind: &'a str,
    cpus: CpuSet,
    victims: Option<CpuSet>,
    working_set: Option<Bytes>,
    unit: &'a str,
}

fn memory_spec(arguments: &MemoryArguments, facts: &Facts) -> Result<MemorySpec> {
    let cpus = machine::cpus("--cpus", &arguments.cpus, facts)?;
    let mut working_set = Bytes(0);
    for cpu in cpus.iter().filter_map(|cpu| facts.cpu(cpu)) {
        working_set = working_set.max(arguments.working_set.resolve(cpu).context("--working-set")?);
    }
    Ok(MemorySpec {
        cpus,
        access: arguments.kind,
        working_set,
        huge_pages: arguments.huge_pages,
        node: arguments.node,
        pace: arguments.rate,
    })
}

fn exec(arguments: &ExecArguments, facts: &Facts) -> Result<Ending> {
    let cpus = arguments.cpus.as_ref().map(|cpus| machine::cpus("--cpus", cpus, facts)).transpose()?;
    let scratch = Scratch::new(arguments.output.clone())?;
    let spec = ExecSpec {
        command: arguments.command.clone(),
        cpus: cpus.clone(),
        output: scratch.path.clone(),
        rate_pattern: arguments.rate_pattern.clone(),
        rate_unit: arguments.rate_unit.clone(),
    };
    let anywhere = || facts.cpu_context().usable();
    let what = What {
        kind: "exec",
        cpus: cpus.unwrap_or_else(anywhere),
        victims: None,
        working_set: None,
        unit: &arguments.rate_unit,
    };
    run(&what, LoadWork::Exec(spec), arguments.run)
}

/// The file for a command's output: the user's, or one that is removed afterwards.
struct Scratch {
    path: PathBuf,
    is_ours: bool,
}

impl Scratch {
    fn new(output: Option<PathBuf>) -> Result<Self> {
        let is_ours = output.is_none();
        let path = output
            .unwrap_or_else(|| std::env::temp_dir().join(format!("whylate-load-{}.txt", std::process::id())));
        File::options()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("cannot create {} for the command's output", path.display()))?;
        Ok(Self { path, is_ours })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.is_ours {
            // Left behind in the temporary directory at worst.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn run(what: &What<'_>, work: LoadWork, arguments: LoadArguments) -> Result<Ending> {
    let What { kind, unit, .. } = *what;
    let asked_to_stop = signals::watch()?;
    let spec = LoadSpec::new(work);
    let mut load = Load::start(&machine::launcher()?, &spec)?;
    let ready = load.wait_ready(READY_WITHIN)?;
    let started = Instant::now();
    let endless = arguments.duration.0 == 0;
    let end = started + Duration::from_nanos(arguments.duration.0);
    let mut meter = Meter::new(arguments.printing.quiet || arguments.printing.json, arguments.duration);
    meter.label(kind);
    let mut rates = Vec::new();
    while (endless || Instant::now() < end) && !asked_to_stop.load(Ordering::Relaxed) {
        std::thread::sleep(
            LOOK_EVERY.min(end.saturating_duration_since(Instant::now()).max(LOOK_EVERY / 50)),
        );
        rates.extend(load.take_rates());
        meter.advance(Nanos(started.elapsed().as_nanos() as u64), &newest(&rates, unit));
        match load.status() {
            LoadStatus::Died(reason) => anyhow::bail!("the load ended early: {reason}"),
            LoadStatus::Finished => anyhow::bail!("the load finished before it was stopped"),
            LoadStatus::Starting | LoadStatus::Running => {}
        }
    }
    let duration_ns = started.elapsed().as_nanos() as u64;
    let outcome = load.stop()?;
    meter.finish();
    rates.extend(outcome.rates);
    let result = LoadResult {
        format: LOAD_FORMAT.to_owned(),
        load: kind.to_owned(),
        cpus: what.cpus.clone(),
        victims: what.victims.clone(),
        detail: ready.detail,
        working_set_bytes: what.working_set.map(|bytes| bytes.0),
        rate: mean(&rates).map(|mean| RateResult {
            load: kind.to_owned(),
            mean,
            unit: unit.to_owned(),
            series: rates,
        }),
        duration_ns,
        warnings: outcome.warnings,
    };
    if arguments.printing.json {
        output::print_json(&result)?;
    } else {
        print(&result)?;
    }
    Ok(Ending::Pass)
}

/// Mean over time: each interval counts by its length.
fn mean(rates: &[RateRecord]) -> Option<f64> {
    let time: f64 = rates.iter().map(|rate| rate.interval_ns as f64).sum();
    (time > 0.0).then(|| rates.iter().map(|rate| rate.value * rate.interval_ns as f64).sum::<f64>() / time)
}

fn newest(rates: &[RateRecord], unit: &str) -> String {
    rates.last().map(|rate| describe(rate.value, unit)).unwrap_or_default()
}

fn describe(value: f64, unit: &str) -> String {
    if unit == "bytes_per_s" { BytesPerSec(value).to_string() } else { format!("{value:.1} {unit}") }
}

fn print(result: &LoadResult) -> Result<()> {
    output::warnings(&result.warnings);
    let size = result.working_set_bytes.map(|bytes| format!(", {} each", Bytes(bytes))).unwrap_or_default();
    let rate = match &result.rate {
        Some(rate) => {
            let values = rate.series.iter().map(|rate| rate.value);
            let least = values.clone().fold(f64::INFINITY, f64::min);
            let most = values.fold(0.0, f64::max);
            let text = |value| describe(value, &rate.unit);
            format!("mean {} (least {}, most {})", text(rate.mean), text(least), text(most))
        }
        None => "no rate in its output".to_owned(),
    };
    let seconds = Nanos(result.duration_ns).as_secs_f64();
    let victims = result.victims.as_ref().map(|cpus| format!(", against CPU {cpus}")).unwrap_or_default();
    let how = match result.load.as_str() {
        // How a command is done is the command itself.
        "exec" => String::new(),
        _ => format!("\n    {}", result.detail),
    };
    output::print(&format!(
        "{} on CPU {}{victims}{size}, {seconds:.1} s: {rate}{how}",
        result.load, result.cpus
    ))
}
