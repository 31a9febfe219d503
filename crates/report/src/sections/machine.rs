//! The machine and the plan: how to run it again, and all facts about the machine as names and values.

use crate::section::{Block, Depth, Section, Span, Text, Tone};
use crate::words::measured_cpus;
use whylate_core::CpuSet;
use whylate_core::facts::{CpuFacts, Facts, GpuFacts, GpuProcess};
use whylate_core::figure::{bytes, frequency, nanoseconds};
use whylate_core::plan::Plan;
use whylate_core::result::RunResult;

/// The most processes of a graphics device that are named.
const PROCESSES_SHOWN: usize = 3;

/// The plan as TOML, with every default filled in.
pub fn plan_text(plan: &Plan) -> String {
    toml::to_string_pretty(plan).unwrap_or_default()
}

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let (command, note) = reproduce(run);
    let again = Text::from("Repeat the run: ")
        .and(Span::Code(command))
        .and_plain(format!(". {}", note.unwrap_or_default()));
    let directory = Text::from("Run directory: ").and(Span::Code(run.run.clone()));
    let plan = plan_text(&run.plan);
    let plan = Block::Lines(plan.lines().map(str::to_owned).collect());
    let machine = Section::new("", "The machine").depth(Depth::Detail);
    let section = Section::new("machine", "Machine and plan").depth(Depth::Detail);
    let section = section
        .with(Block::Text(again, Tone::Plain))
        .with(Block::note(directory))
        .with(Block::note(format!("Measured by whylate {}.", run.facts.whylate_version)))
        .with(Section::new("", "The plan, with every default filled in").depth(Depth::Detail).with(plan))
        .with(machine.with_all(facts(&run.facts, &measured_cpus(run))));
    vec![section]
}

/// The command that runs the plan again, and what to do before it.
fn reproduce(run: &RunResult) -> (String, Option<String>) {
    use whylate_core::plan::{Plan, Source, builtin};
    let name = &run.plan.name;
    let same = builtin::find(name)
        .and_then(|builtin| Plan::parse(&Source { name: builtin.name, text: builtin.text }, &[]).ok());
    if same.as_ref() == Some(&run.plan) {
        return (format!("whylate run {name}"), None);
    }
    // A result from another machine may hold any name: quote it, so that the command stays one word.
    let word: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    let file = format!("{word}.toml");
    (format!("whylate run {file}"), Some(format!("Save the plan below as {file} first.")))
}

/// All facts about the machine; for CPUs, details only about the measured ones. Empty facts have no row.
fn facts(facts: &Facts, measured: &CpuSet) -> Vec<Section> {
    let cpus = measured.iter().filter_map(|cpu| facts.cpu(cpu));
    let named =
        |rows: Vec<(&str, String)>| rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let themes: [(&str, Vec<(String, String)>); 7] = [
        ("Kernel", named(kernel(facts))),
        ("Processor", named(processor(facts))),
        (
            "Measured CPUs and their caches",
            cpus.map(|cpu| (format!("CPU {}", cpu.cpu), cpu_text(cpu))).collect(),
        ),
        ("Clock", named(clock(facts))),
        ("Settings", named(settings(facts))),
        ("Environment", environment(facts)),
        ("Mitigations", facts.kernel.mitigations.clone()),
    ];
    let section = |(title, rows): (&str, Vec<(String, String)>)| {
        let known = rows.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        Section::new("", title).with(Block::Pairs(known))
    };
    themes.map(section).into()
}

/// The value as text; empty if unknown.
fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

fn kernel(facts: &Facts) -> Vec<(&'static str, String)> {
    let kernel = &facts.kernel;
    vec![
        ("release", kernel.release.clone()),
        ("version", kernel.version.clone()),
        ("architecture", kernel.architecture.clone()),
        ("preemption", kernel.preemption.clone()),
        ("command line", kernel.command_line.clone()),
        ("tainted", text(kernel.tainted.filter(|flags| *flags != 0))),
    ]
}

fn processor(facts: &Facts) -> Vec<(&'static str, String)> {
    vec![
        ("model", facts.processor.model.clone()),
        ("microcode", text(facts.processor.microcode.as_ref())),
        ("features used", facts.processor.features.join(", ")),
        ("present CPUs", facts.cpu_sets.present.to_string()),
        ("online CPUs", facts.cpu_sets.online.to_string()),
        ("isolated CPUs", facts.cpu_sets.isolated.to_string()),
        ("nohz_full CPUs", facts.cpu_sets.nohz_full.to_string()),
        ("allowed CPUs", facts.cpu_sets.allowed.to_string()),
        ("SMT", text(facts.settings.smt_active.map(on_off))),
        ("memory", text(facts.memory.total_bytes.map(bytes))),
        ("swap", text(facts.memory.swap_bytes.filter(|size| *size > 0).map(bytes))),
        ("NUMA nodes", text(facts.memory.nodes)),
    ]
}

fn cpu_text(cpu: &CpuFacts) -> String {
    let mut parts = Vec::new();
    parts.extend(cpu.kind.as_ref().map(|kind| format!("{kind} core")));
    parts.extend(cpu.package.map(|package| format!("package {package}")));
    parts.extend(cpu.core.map(|core| format!("core {core}")));
    parts.extend(cpu.node.map(|node| format!("node {node}")));
    let others = cpu.siblings.difference(&CpuSet::single(cpu.cpu));
    if !others.is_empty() {
        parts.push(format!("SMT sibling {others}"));
    }
    parts.extend(cpu.caches.iter().map(|cache| {
        let shared = match cache.shared_by.difference(&CpuSet::single(cpu.cpu)).is_empty() {
            true => String::new(),
            false => format!(" shared by CPUs {}", cache.shared_by),
        };
        format!("L{} {}{shared}", cache.level, bytes(cache.size_bytes))
    }));
    parts.extend(cpu.governor.as_ref().map(|governor| format!("governor {governor}")));
    if let (Some(min), Some(max)) = (cpu.frequency_min_hz, cpu.frequency_max_hz) {
        parts.push(format!("{} to {}", frequency(min), frequency(max)));
    }
    let idle = cpu.idle_states.iter().map(|state| match state.exit_latency_ns {
        Some(latency) => format!("{} ({})", state.name, nanoseconds(latency)),
        None => state.name.clone(),
    });
    let idle: Vec<String> = idle.collect();
    if !idle.is_empty() {
        parts.push(format!("idle states {}", idle.join(", ")));
    }
    parts.join(" · ")
}

fn clock(facts: &Facts) -> Vec<(&'static str, String)> {
    vec![
        ("source", text(facts.clock.source.as_ref())),
        ("available", facts.clock.available.join(", ")),
        ("counter runs at a constant rate", yes_no(facts.clock.counter_invariant)),
    ]
}

fn settings(facts: &Facts) -> Vec<(&'static str, String)> {
    let settings = &facts.settings;
    let period = settings.rt_period_us.map(|period| format!(" of each {period} us")).unwrap_or_default();
    let throttling = |runtime| if runtime < 0 { "off".to_owned() } else { format!("{runtime} us{period}") };
    vec![
        ("real-time throttling", text(settings.rt_runtime_us.map(throttling))),
        ("transparent huge pages", text(settings.transparent_huge_pages.as_ref())),
        ("idle driver", text(settings.idle_driver.as_ref())),
        ("frequency driver", text(settings.frequency_driver.as_ref())),
        ("watchdog", text(settings.watchdog.map(on_off))),
        ("NUMA balancing", text(settings.numa_balancing.map(on_off))),
    ]
}

fn environment(facts: &Facts) -> Vec<(String, String)> {
    let (environment, privileges) = (&facts.environment, &facts.privileges);
    let latency = if privileges.cpu_dma_latency { "can be written" } else { "cannot be written" };
    let rows = [
        ("hypervisor", text(environment.hypervisor.as_ref())),
        ("container", text(environment.container.as_ref())),
        ("cgroup version", text(environment.cgroup_version)),
        ("root", yes_no(privileges.root)),
        ("highest real-time priority", privileges.realtime_priority_max.to_string()),
        ("lockable memory", privileges.lockable_bytes.map_or("no limit".to_owned(), bytes)),
        ("/dev/cpu_dma_latency", latency.to_owned()),
    ];
    let gpus = facts.gpus.iter().map(|gpu| {
        let parts = [&gpu.model, &gpu.driver, &gpu.driver_version, &gpu.pci_id, &gpu.runtime_power];
        let parts = parts.into_iter().flatten().cloned();
        (gpu.name.clone(), parts.chain(gpu_details(gpu)).collect::<Vec<_>>().join(" · "))
    });
    rows.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(gpus).collect()
}

/// Interrupt lines, memory, load and the processes of a graphics device.
fn gpu_details(gpu: &GpuFacts) -> Vec<String> {
    let usage = &gpu.usage;
    let lines = gpu.interrupts.iter().map(|it| format!("interrupt {} on CPU {}", it.line, it.cpus));
    let memory = match (usage.memory_used_bytes, gpu.memory_bytes) {
        (Some(used), Some(all)) => Some(format!("{} of {} in use", bytes(used), bytes(all))),
        (None, Some(all)) => Some(bytes(all)),
        _ => None,
    };
    let process = |it: &GpuProcess| {
        let (own, system) = (bytes(it.memory_bytes), bytes(it.system_bytes));
        format!("{} ({}): {own} of device memory, {system} of system memory", it.name, it.pid)
    };
    lines
        .chain(memory)
        .chain(usage.power_state.clone())
        .chain(usage.clock_mhz.map(|clock| format!("{clock} MHz")))
        .chain(usage.busy_percent.map(|busy| format!("{busy} % busy")))
        .chain(usage.processes.iter().take(PROCESSES_SHOWN).map(process))
        .collect()
}
