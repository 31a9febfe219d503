//! Keeps the programs running for a while and prints what each event cost, for `benches/bpf_cost.sh`.
//!
//!     cargo run --release -p whylate-bpf --example hold -- SECONDS histograms|causes|all|others [CPUS [uncounted]]
//!
//! With `others` it runs none itself, and prints what the programs of the machine's other processes cost. With `uncounted` it
//! prints nothing: counting itself costs each program some 30 ns.

#![allow(clippy::print_stdout, reason = "an example that prints a table")]

use std::time::Duration;
use whylate_bpf::internal::{CostCounting, costs_of_all};
use whylate_bpf::{BpfError, Causes, Histograms, HistogramsConfig, ProgramCost};
use whylate_core::CpuSet;
use whylate_host::HostRoot;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds: u64 = arguments.first().ok_or("how many seconds?")?.parse()?;
    let what = arguments.get(1).map_or("all", String::as_str);
    let cpus: CpuSet = arguments.get(2).map_or("0-1", String::as_str).parse()?;
    let duration = Duration::from_secs(seconds);
    let is_counted = arguments.get(3).is_none_or(|word| word != "uncounted");
    let counting = is_counted.then(CostCounting::start).transpose()?;
    let costs = if what == "others" { costs_of_others(duration)? } else { hold(duration, what, &cpus)? };
    if counting.is_some() {
        for cost in costs.iter().filter(|cost| cost.runs > 0) {
            let mean_ns = cost.time_ns as f64 / cost.runs as f64;
            println!("{:24} runs {:9} mean_ns {mean_ns:7.1} missed {}", cost.event, cost.runs, cost.missed);
        }
    }
    Ok(())
}

fn hold(duration: Duration, what: &str, cpus: &CpuSet) -> Result<Vec<ProgramCost>, BpfError> {
    let mut config = HistogramsConfig::new(cpus.clone());
    if what == "histograms" {
        let running = Histograms::start(&config)?;
        std::thread::sleep(duration);
        return Ok(running.costs());
    }
    if what == "causes" {
        config.kinds.clear();
    }
    let mut running = Causes::start(&HostRoot::real(), cpus, &config)?;
    std::thread::sleep(duration);
    Ok(running.histograms().costs())
}

/// What every program of the machine costs in that time, by its function's name.
fn costs_of_others(duration: Duration) -> Result<Vec<ProgramCost>, BpfError> {
    let before = costs_of_all()?;
    std::thread::sleep(duration);
    let since = |(id, now): (u32, ProgramCost)| {
        let before = before.get(&id).cloned().unwrap_or_default();
        let (time_ns, runs) = (now.time_ns - before.time_ns, now.runs - before.runs);
        ProgramCost { time_ns, runs, missed: now.missed - before.missed, ..now }
    };
    Ok(costs_of_all()?.into_iter().map(since).collect())
}
