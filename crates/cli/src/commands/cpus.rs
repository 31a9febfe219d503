//! `whylate cpus`.

use crate::arguments::CpusArguments;
use crate::exit::Ending;
use crate::{output, signals};
use anyhow::{Context, Result, bail};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use whylate_core::WarningCode;
use whylate_core::result::CpuTable;
use whylate_core::{CpuSelector, CpuSet, Facts};
use whylate_host::cpu_table::Sampler;
use whylate_host::{Host, facts};

/// Moves to the top left and clears from there.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

pub(super) fn execute(arguments: &CpusArguments, host: &Host) -> Result<Ending> {
    if arguments.interval.0 < 10_000_000 || arguments.interval.0 > 3_600_000_000_000 {
        bail!("--interval {} is out of range; an interval is 10ms to 1h", arguments.interval);
    }
    let interval = Duration::from_nanos(arguments.interval.0);
    let stop = signals::watch()?;
    let (facts, _) = facts::collect(&host.settings);
    let wanted = wanted(arguments.cpus.as_ref(), &facts)?;
    let mut sampler = Sampler::start(&host.settings).context("cannot count interrupts")?;
    loop {
        let stopped = pause(interval, &stop);
        if stopped && arguments.watch {
            return Ok(Ending::Pass);
        }
        // CPUs may go offline and settings may change: read the facts each time.
        let (facts, unread) = facts::collect(&host.settings);
        let mut table = sampler.table(&facts).context("cannot list threads and interrupts")?;
        table
            .warnings
            .extend(unread.into_iter().filter(|warning| warning.code == WarningCode::FactUnreadable));
        if let Some(wanted) = &wanted {
            keep(&mut table, wanted);
        }
        print(&table, arguments)?;
        if !arguments.watch {
            return Ok(Ending::Pass);
        }
    }
}

/// The CPUs to show: offline ones may be named too.
fn wanted(selector: Option<&CpuSelector>, facts: &Facts) -> Result<Option<CpuSet>> {
    let Some(selector) = selector else { return Ok(None) };
    let mut context = facts.cpu_context();
    if let CpuSelector::List(_) = selector {
        context.online = context.present.clone();
        context.allowed = context.present.clone();
    }
    Ok(Some(selector.resolve(&context, None).with_context(|| format!("--cpus {selector}"))?))
}

/// Keeps only those CPUs, with the threads and lines that may reach them.
fn keep(table: &mut CpuTable, wanted: &CpuSet) {
    table.cpus.retain(|row| wanted.contains(row.cpu));
    table.threads.retain(|thread| !thread.cpus.intersection(wanted).is_empty());
    table.lines.retain(|line| wanted.iter().any(|cpu| line.reaches(cpu)));
}

fn print(table: &CpuTable, arguments: &CpusArguments) -> Result<()> {
    if arguments.json {
        return output::print_json(table);
    }
    let text = whylate_report::cpus(table, arguments.verbose).terminal(output::style());
    match (arguments.watch, std::io::stdout().is_terminal()) {
        (true, true) => output::drawn(&format!("{CLEAR}{text}")),
        (true, false) => output::drawn(&format!("{text}\n")),
        (false, _) => output::drawn(&text),
    }
}

/// Waits; returns whether the user wants to stop.
fn pause(time: Duration, stop: &AtomicBool) -> bool {
    let end = Instant::now() + time;
    loop {
        if stop.load(Ordering::Relaxed) {
            return true;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
