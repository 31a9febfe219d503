//! The machine and the plan: how to run it again, and everything known of the machine as names and values.

use crate::figure::{bytes, frequency, nanoseconds};
use crate::section::{Block, Depth, Section, Span, Text, Tone};
use crate::words::measured_cpus;
use whylate_core::facts::{CpuFacts, Facts};
use whylate_core::result::RunResult;
use whylate_core::{CpuId, CpuSet};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let (command, note) = reproduce(run);
    let again = Text::from("Run it again: ")
        .and(Span::Code(command))
        .and_plain(format!(". {}", note.unwrap_or_default()));
    let directory = Text::from("Run directory: ").and(Span::Code(run.run.clone()));
    let plan = toml::to_string_pretty(&run.plan).unwrap_or_default();
    let plan = Block::Lines(plan.lines().map(str::to_owned).collect());
    let machine = Section::new("", "The machine").depth(Depth::Detail);
    let section = Section::new("machine", "Machine and plan").depth(Depth::Detail);
    let section = section
        .with(Block::Text(again, Tone::Plain))
        .with(Block::Note(directory))
        .with(Block::Note(format!("Measured by whylate {}.", run.facts.whylate_version).into()))
        .with(Section::new("", "The plan, with every default filled in").depth(Depth::Detail).with(plan))
        .with(machine.with_all(facts(&run.facts, &measured_cpus(run))));
    vec![section]
}

/// The command that runs the plan again, and what has to be done before it.
fn reproduce(run: &RunResult) -> (String, Option<String>) {
    use whylate_core::plan::{Plan, Source, builtin};
    let name = &run.plan.name;
    let same = builtin::find(name)
        .and_then(|builtin| Plan::parse(&Source { name: builtin.name, text: builtin.text }, &[]).ok());
    if same.as_ref() == Some(&run.plan) {
        return (format!("whylate run {name}"), None);
    }
    // A result from elsewhere may hold any name; the command must stay one word.
    let word: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    let file = format!("{word}.toml");
    (format!("whylate run {file}"), Some(format!("Save the plan below as {file} first.")))
}

/// Everything known of the machine; of the CPUs only those that were measured in detail.
fn facts(facts: &Facts, measured: &CpuSet) -> Vec<Section> {
    let sections = [
        ("Kernel", kernel(facts)),
        ("Processor", processor(facts)),
        ("Measured CPUs and their caches", cpus(facts, measured)),
        ("Clock", clock(facts)),
        ("Settings", settings(facts)),
        ("Environment", environment(facts)),
        ("Mitigations", facts.kernel.mitigations.clone()),
    ];
    sections.map(|(title, rows)| Section::new("", title).with(Block::Pairs(rows))).into()
}

/// Collects rows; a missing value makes none.
#[derive(Default)]
struct Rows(Vec<(String, String)>);

impl Rows {
    fn add(&mut self, name: impl Into<String>, value: &(impl ToString + ?Sized)) {
        let value = value.to_string();
        if !value.is_empty() {
            self.0.push((name.into(), value));
        }
    }

    fn maybe(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(name, &value);
        }
    }
}

fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn on_off(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

fn kernel(facts: &Facts) -> Vec<(String, String)> {
    let kernel = &facts.kernel;
    let mut rows = Rows::default();
    rows.add("release", &kernel.release);
    rows.add("version", &kernel.version);
    rows.add("architecture", &kernel.architecture);
    rows.add("preemption", &kernel.preemption);
    rows.add("command line", &kernel.command_line);
    rows.maybe("tainted", kernel.tainted.filter(|flags| *flags != 0));
    rows.0
}

fn processor(facts: &Facts) -> Vec<(String, String)> {
    let mut rows = Rows::default();
    rows.add("model", &facts.processor.model);
    rows.maybe("microcode", facts.processor.microcode.as_ref());
    rows.add("features used", &facts.processor.features.join(", "));
    rows.add("present CPUs", &facts.cpu_sets.present);
    rows.add("online CPUs", &facts.cpu_sets.online);
    rows.add("isolated CPUs", &facts.cpu_sets.isolated);
    rows.add("nohz_full CPUs", &facts.cpu_sets.nohz_full);
    rows.add("allowed CPUs", &facts.cpu_sets.allowed);
    rows.maybe("SMT", facts.settings.smt_active.map(on_off));
    rows.maybe("memory", facts.memory.total_bytes.map(bytes));
    rows.maybe("swap", facts.memory.swap_bytes.filter(|size| *size > 0).map(bytes));
    rows.maybe("NUMA nodes", facts.memory.nodes);
    rows.0
}

fn cpus(facts: &Facts, measured: &CpuSet) -> Vec<(String, String)> {
    let mut rows = Rows::default();
    for cpu in measured.iter().filter_map(|cpu| facts.cpu(cpu)) {
        rows.add(format!("CPU {}", cpu.cpu), &cpu_text(cpu));
    }
    rows.0
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
        let shared = if is_only(&cache.shared_by, cpu.cpu) || cache.shared_by.is_empty() {
            String::new()
        } else {
            format!(" shared by CPUs {}", cache.shared_by)
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

fn is_only(cpus: &CpuSet, cpu: CpuId) -> bool {
    cpus.len() == 1 && cpus.contains(cpu)
}

fn clock(facts: &Facts) -> Vec<(String, String)> {
    let mut rows = Rows::default();
    rows.maybe("source", facts.clock.source.as_ref());
    rows.add("available", &facts.clock.available.join(", "));
    rows.add("counter runs at a constant rate", yes_no(facts.clock.counter_invariant));
    rows.0
}

fn settings(facts: &Facts) -> Vec<(String, String)> {
    let settings = &facts.settings;
    let mut rows = Rows::default();
    if let Some(runtime) = settings.rt_runtime_us {
        let period = settings.rt_period_us.map(|period| format!(" of each {period} us")).unwrap_or_default();
        rows.add(
            "real-time throttling",
            &if runtime < 0 { "off".to_owned() } else { format!("{runtime} us{period}") },
        );
    }
    rows.maybe("transparent huge pages", settings.transparent_huge_pages.as_ref());
    rows.maybe("idle driver", settings.idle_driver.as_ref());
    rows.maybe("frequency driver", settings.frequency_driver.as_ref());
    rows.maybe("watchdog", settings.watchdog.map(on_off));
    rows.maybe("NUMA balancing", settings.numa_balancing.map(on_off));
    rows.0
}

fn environment(facts: &Facts) -> Vec<(String, String)> {
    let (environment, privileges) = (&facts.environment, &facts.privileges);
    let mut rows = Rows::default();
    rows.maybe("hypervisor", environment.hypervisor.as_ref());
    rows.maybe("container", environment.container.as_ref());
    rows.maybe("cgroup version", environment.cgroup_version);
    rows.add("root", yes_no(privileges.root));
    rows.add("highest real-time priority", &privileges.realtime_priority_max);
    rows.add("lockable memory", &privileges.lockable_bytes.map_or("no limit".to_owned(), bytes));
    rows.add(
        "/dev/cpu_dma_latency",
        if privileges.cpu_dma_latency { "can be written" } else { "cannot be written" },
    );
    for gpu in &facts.gpus {
        let parts = [&gpu.driver, &gpu.pci_id, &gpu.runtime_power];
        let parts: Vec<&str> = parts.into_iter().filter_map(|part| part.as_deref()).collect();
        rows.add(gpu.name.clone(), &parts.join(" · "));
    }
    rows.0
}
