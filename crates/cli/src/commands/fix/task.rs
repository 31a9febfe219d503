//! `whylate fix --task`: the user's own threads, watched while treatments are tried.

use crate::arguments::FixArguments;
use anyhow::{Context, Result, bail};
use whylate_bpf::tasks::{TaskTarget, TaskWatch};
use whylate_core::plan::{Plan, Source, Statistic};
use whylate_core::{CpuSelector, CpuSet};
use whylate_host::threads::Threads;
use whylate_host::{Host, facts};

/// The number of bytes of a name that the kernel keeps.
const NAME_BYTES: usize = 15;
/// Long enough for rare activations.
const REPEAT: &str = "10s";

/// The plan that watches every thread of that name; the CPUs that they may use are treated.
pub(super) fn plan(name: &str, arguments: &FixArguments, host: &Host) -> Result<Plan> {
    let name = name.get(..NAME_BYTES).unwrap_or(name);
    let quoted = serde_json::to_string(name).context("the name of the task")?;
    let triggers = serde_json::to_string(&arguments.trigger).context("the triggers")?;
    let text = format!(
        "name = \"task\"\nduration = \"{REPEAT}\"\nnoise_floor = \"0s\"\n[[probe]]\nkind = \"task\"\nname = {quoted}\ntriggers = {triggers}\n"
    );
    let mut overrides = arguments.overrides.clone();
    if let Some(deadline) = arguments.deadline {
        overrides.extend(["limit", "probe.0.deadline"].map(|key| format!("{key}={deadline}")));
    }
    let mut plan = Plan::parse(&Source { name: "--task", text: &text }, &overrides)?;
    let is_of_misses = arguments.goal.as_ref().is_some_and(|goal| goal.statistic == Statistic::SpikeRate);
    if is_of_misses && plan.limit.is_none() {
        bail!("--goal misses needs the deadline of `{name}`, for example --deadline 1ms");
    }
    let is_of_triggers = arguments.goal.as_ref().is_some_and(|goal| goal.statistic == Statistic::TriggerRate);
    if is_of_triggers && arguments.trigger.is_empty() {
        bail!("--goal triggers needs what says that `{name}` was late, for example --trigger 'journal:xrun'");
    }
    if arguments.overrides.iter().all(|it| !it.starts_with("target.cpus")) {
        plan.target.cpus = CpuSelector::List(cpus_of(name, host)?);
    }
    Ok(plan)
}

/// The CPUs that threads of that name may use, and that are online.
fn cpus_of(name: &str, host: &Host) -> Result<CpuSet> {
    let (facts, _) = facts::collect(&host.running);
    let threads = Threads::read(&host.running)?;
    let all = threads.named(name).fold(CpuSet::default(), |all, thread| all.union(&thread.cpus));
    let cpus = all.intersection(&facts.cpu_sets.online);
    if cpus.is_empty() {
        bail!("--task: no thread is called `{name}`; `ps -eLo tid,cls,rtprio,comm` lists the threads");
    }
    // Missing rights are reported before there is a directory.
    TaskWatch::start(&host.running, &facts.cpu_sets.online, &TaskTarget::Children)
        .context(
            "tasks cannot be watched (without rights, `whylate watch --deadline 5ms --task NAME` and `whylate fix --advise RUN` work \
             for your own programs)",
        )?;
    Ok(cpus)
}
