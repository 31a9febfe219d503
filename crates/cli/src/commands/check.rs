//! `whylate check`.

mod tracing;

use crate::arguments::CheckArguments;
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result};
use whylate_core::CpuSelector;
use whylate_host::cpu_table::Sampler;
use whylate_host::{Host, facts};

pub(super) fn execute(arguments: &CheckArguments, host: &Host) -> Result<Ending> {
    if arguments.tracing {
        return tracing::execute(arguments, host);
    }
    let root = &host.settings;
    let (facts, warnings) = facts::collect(root);
    let default = if facts.cpu_sets.isolated.intersection(&facts.cpu_sets.online).is_empty() {
        CpuSelector::Last
    } else {
        CpuSelector::List(facts.cpu_sets.isolated.intersection(&facts.cpu_sets.online))
    };
    let selector = arguments.cpus.as_ref().unwrap_or(&default);
    // This process needs no permission for the targets: it only reads.
    let mut context = facts.cpu_context();
    if matches!(selector, CpuSelector::List(_)) {
        context.allowed = context.online.clone();
    }
    let targets = selector.resolve(&context, None).with_context(|| format!("--cpus {selector}"))?;
    let table = Sampler::start(root)
        .and_then(|mut sampler| sampler.table(&facts))
        .context("cannot list threads and interrupts")?;
    let result = facts::check(root, &facts, &targets, &table, warnings).context("the check failed")?;
    if arguments.json {
        output::print_json(&result)?;
    } else {
        output::drawn(&whylate_report::check(&result, arguments.verbose).terminal(output::style()))?;
    }
    Ok(if result.fit { Ending::Pass } else { Ending::Exceeded })
}
