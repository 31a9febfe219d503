//! `whylate copy`.

use super::report::{draw, format_of};
use crate::arguments::{COPY_BLOCK_MAX, CopyArguments};
use crate::exit::Ending;
use crate::progress::Meter;
use crate::{machine, output, signals};
use anyhow::{Context, Result, bail};
use std::sync::atomic::Ordering;
use whylate_core::result::{COPY_FORMAT, CopyResult, CopyTable};
use whylate_core::{CpuId, Facts};
use whylate_host::{Host, facts};
use whylate_runner::{COPY_BLOCKS, CopyRequest};

/// Width of a text report in a file.
const FILE_WIDTH: usize = 120;

pub(super) fn execute(arguments: &CopyArguments, host: &Host) -> Result<Ending> {
    let (facts, _) = facts::collect(&host.running);
    let cpus = machine::cpus("--cpu", &arguments.cpu, &facts)?;
    let cpu = cpus.iter().next().filter(|_| cpus.len() == 1);
    let cpu = cpu.with_context(|| format!("--cpu {}: give one CPU", arguments.cpu))?;
    let table = if arguments.backends {
        let backends = whylate_runner::backends(arguments.device.as_deref());
        CopyTable { cpu, backends, ..CopyTable::default() }
    } else {
        measure(arguments, cpu, &facts)?
    };
    let result = CopyResult { format: COPY_FORMAT.to_owned(), facts, table };
    let text = if arguments.json {
        format!("{}\n", output::json(&result)?)
    } else {
        let format = format_of(arguments.format, arguments.output.as_deref(), arguments.json)?;
        draw(&whylate_report::copy(&result), format, arguments.output.is_some().then_some(FILE_WIDTH))
    };
    match &arguments.output {
        Some(path) => {
            output::write_new(path, &text)?;
            output::message(&format!("wrote {}", path.display()));
        }
        None => output::drawn(&text)?,
    }
    Ok(Ending::Pass)
}

fn measure(arguments: &CopyArguments, cpu: CpuId, facts: &Facts) -> Result<CopyTable> {
    let stop = signals::watch()?;
    let mut meter = Meter::new(arguments.quiet || arguments.json);
    meter.label("copying");
    let request = CopyRequest {
        cpu,
        from: arguments.from,
        to: arguments.to,
        methods: arguments.method.clone(),
        backend: arguments.backend.clone(),
        device: arguments.device.clone(),
        blocks: blocks(arguments, cpu, facts)?,
        frame: arguments.frame,
        trials: arguments.trials,
    };
    let result = whylate_runner::copy_table(&request, &mut |done| {
        meter.advance(done, &format!("{:.0} %", done * 100.0), None);
        !stop.load(Ordering::Relaxed)
    });
    meter.finish();
    let result = result?;
    if stop.load(Ordering::Relaxed) {
        bail!("stopped by the user before the table was complete");
    }
    Ok(result)
}

fn blocks(arguments: &CopyArguments, cpu: CpuId, facts: &Facts) -> Result<Vec<u64>> {
    if arguments.block.is_empty() {
        return Ok(COPY_BLOCKS.to_vec());
    }
    let facts = facts.cpu(cpu).with_context(|| format!("the kernel reports no facts about CPU {cpu}"))?;
    let block = |size: &whylate_core::plan::Size| {
        let bytes = size.resolve(facts).with_context(|| format!("--block {size}"))?;
        if bytes > COPY_BLOCK_MAX {
            bail!("--block {size} is out of range; a block is at most {COPY_BLOCK_MAX}");
        }
        Ok(bytes.0)
    };
    arguments.block.iter().map(block).collect()
}
