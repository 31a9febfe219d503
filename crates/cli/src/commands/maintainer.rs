//! `whylate report RUN --for-maintainer`: one text for the mailing list or the bug tracker of a kernel or driver, or
//! an archive of that text with the whole trace, the plan and the kernel's configuration.
//!
//! It has what maintainers always ask for, and replaces everything that names the machine or its users: the host's
//! name, user names in paths, addresses, identifiers of disks and of the boot.

use super::report;
use crate::arguments::ReportArguments;
use crate::exit::Ending;
use crate::output;
use anyhow::{Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::{IsTerminal, stdin};
use whylate_core::figure::{count, nanoseconds};
use whylate_core::result::{ExplainedSpike, RunResult, Spike, SpikeTrace};
use whylate_core::{Facts, text};
use whylate_explain::{Export, explain_kept};
use whylate_host::HostRoot;
use whylate_host::facts::KernelConfig;
use whylate_store::Folder;

/// The number of trace lines that fit a mail.
const TRACE_LINES_MAX: usize = 200;
/// The ending of a file that is an archive.
const ARCHIVE: &str = ".tar.gz";
/// Prefixes of the kernel configuration options that affect latency.
const OF_NOTE: &[&str] = &[
    "PREEMPT",
    "HZ",
    "NO_HZ",
    "HIGH_RES_TIMERS",
    "RCU_",
    "TASKS_RCU",
    "CPU_ISOLATION",
    "IRQ_FORCED_THREADING",
    "CPU_IDLE",
    "CPU_FREQ_DEFAULT",
    "PROVE_LOCKING",
    "LOCKDEP",
    "DEBUG_PREEMPT",
    "DEBUG_ATOMIC_SLEEP",
    "KASAN",
    "SCHED_DEBUG",
    "RT_GROUP_SCHED",
    "CFS_BANDWIDTH",
    "TRANSPARENT_HUGEPAGE",
    "NUMA_BALANCING",
    "PSI",
];

pub(super) fn execute(arguments: &ReportArguments, root: &HostRoot) -> Result<Ending> {
    if !arguments.run.is_dir() {
        bail!("{}: --for-maintainer takes the directory of a run", arguments.run.display());
    }
    let run = whylate_runner::assemble(&arguments.run)?;
    let folder = Folder::open(&arguments.run)?;
    let config = config(&run.facts, root);
    let text = redacted(&written(&run, &folder, config.as_ref())?, &run.facts);
    let Some(path) = arguments.output.as_deref() else {
        report::deliver(None, &text)?;
        return Ok(Ending::Pass);
    };
    let name = path.to_string_lossy();
    if name.ends_with(".zst") {
        bail!("{name}: the name of an archive for maintainers ends in {ARCHIVE}");
    }
    let is_archive = name.ends_with(ARCHIVE);
    let mut content = text.clone().into_bytes();
    let mut shown = text;
    if is_archive {
        let files = files(shown.clone(), &run, &folder, config)?;
        shown.push_str("\n## Files\n\n");
        for (name, text) in &files {
            writeln!(shown, "- {name}: {} lines", count(text.lines().count() as u64))?;
        }
        content = packed(&files)?;
    }
    if !arguments.yes {
        output::drawn(&shown)?;
        if !stdin().is_terminal() {
            bail!(
                "{}: not written without confirmation; read the text above, then add --yes",
                path.display()
            );
        }
        output::message(&format!("write this to {}? [y/N]", path.display()));
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        if !answer.trim().eq_ignore_ascii_case("y") {
            bail!("{}: not written", path.display());
        }
    }
    output::write_new(path, content)?;
    output::message(&format!("wrote {}", path.display()));
    Ok(Ending::Pass)
}

/// The configuration of the run's kernel, if it is the running one.
fn config(facts: &Facts, root: &HostRoot) -> Option<KernelConfig> {
    let now = root.read_trimmed("/proc/sys/kernel/osrelease").ok()??;
    (now == facts.kernel.release).then(|| KernelConfig::read(root, &now))?
}

/// The files of an archive, each without names: name, text.
fn files(
    text: String,
    run: &RunResult,
    folder: &Folder,
    config: Option<KernelConfig>,
) -> Result<Vec<(&'static str, String)>> {
    let mut files = vec![("report.md", text)];
    files.push(("plan.toml", redacted(&whylate_report::plan_text(&run.plan), &run.facts)));
    if let Some(note) = longest(run)
        && let Ok((_, lines)) = lines(note, folder, usize::MAX)
    {
        files.push(("trace.txt", redacted(&lines, &run.facts)));
    }
    files.extend(config.map(|config| ("kernel.config", redacted(&config.text, &run.facts))));
    Ok(files)
}

/// The same files give the same bytes.
fn packed(files: &[(&str, String)]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        archive.append_data(&mut header, format!("whylate-report/{name}"), text.as_bytes())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

fn written(run: &RunResult, folder: &Folder, config: Option<&KernelConfig>) -> Result<String> {
    let mut text = String::new();
    let spike = worst(run);
    let title = spike.map_or_else(
        || "Latency measurement".to_owned(),
        |spike| format!("Latency of {} on Linux {}", nanoseconds(spike.latency_ns), run.facts.kernel.release),
    );
    writeln!(text, "# {title}\n")?;
    if let Some(spike) = spike {
        let probe = spike.probe.as_deref().unwrap_or("the probe");
        writeln!(
            text,
            "{probe} on CPU {} was late by {}: {}.\n",
            spike.shown_cpu(),
            nanoseconds(spike.latency_ns),
            spike.cause.sentence()
        )?;
    }
    machine(&mut text, &run.facts, config)?;
    figures(&mut text, run)?;
    trace(&mut text, run, folder)?;
    writeln!(text, "## How to reproduce\n")?;
    writeln!(
        text,
        "`whylate run {}` (whylate {}), {} repeats of each cell: ",
        run.plan.name, run.facts.whylate_version, run.plan.repeats
    )?;
    for cell in &run.cells {
        writeln!(text, "- {}", cell.name)?;
    }
    if !run.warnings.is_empty() {
        writeln!(text, "\n## Warnings of this run\n")?;
        for warning in &run.warnings {
            writeln!(text, "- {}: {}", warning.code, warning.text)?;
        }
    }
    Ok(text)
}

fn worst(run: &RunResult) -> Option<&Spike> {
    run.cells.iter().flat_map(|cell| &cell.spikes).max_by_key(|spike| spike.latency_ns)
}

fn machine(text: &mut String, facts: &Facts, config: Option<&KernelConfig>) -> Result<()> {
    let kernel = &facts.kernel;
    writeln!(text, "## Kernel and hardware\n\n```")?;
    writeln!(text, "Linux {} {}", kernel.release, kernel.version)?;
    writeln!(text, "preemption: {}", kernel.preemption)?;
    // After `--` come the arguments of init, which are not about the kernel.
    let own = kernel.command_line.split(" -- ").next().unwrap_or_default();
    writeln!(text, "command line: {own}")?;
    if let Some(tainted) = kernel.tainted {
        writeln!(text, "tainted: {tainted}")?;
    }
    writeln!(
        text,
        "processor: {}, microcode {}",
        facts.processor.model,
        facts.processor.microcode.as_deref().unwrap_or("unknown")
    )?;
    let sets = &facts.cpu_sets;
    writeln!(text, "CPUs online {}, isolated {}, nohz_full {}", sets.online, sets.isolated, sets.nohz_full)?;
    let settings = &facts.settings;
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    writeln!(
        text,
        "clock source: {}; frequency driver: {}; idle driver: {}",
        or(&facts.clock.source),
        or(&settings.frequency_driver),
        or(&settings.idle_driver)
    )?;
    if let (Some(runtime), Some(period)) = (settings.rt_runtime_us, settings.rt_period_us) {
        writeln!(text, "sched_rt_runtime_us {runtime} of {period}")?;
    }
    if let Some(hypervisor) = &facts.environment.hypervisor {
        writeln!(text, "virtual machine: {hypervisor}")?;
    }
    for gpu in &facts.gpus {
        writeln!(text, "graphics: {} ({})", gpu.name, gpu.driver.as_deref().unwrap_or("no driver"))?;
    }
    let of_note = |line: &&str| {
        let name = line.strip_prefix("CONFIG_").and_then(|line| line.split('=').next());
        name.is_some_and(|name| OF_NOTE.iter().any(|it| name.starts_with(it)))
    };
    for line in config.iter().flat_map(|config| config.text.lines()).filter(of_note) {
        writeln!(text, "{line}")?;
    }
    writeln!(text, "```\n")?;
    Ok(())
}

fn figures(text: &mut String, run: &RunResult) -> Result<()> {
    writeln!(
        text,
        "## Figures\n\n| cell | probe | CPU | samples | median | p99.9 | max |\n|---|---|--:|--:|--:|--:|--:|"
    )?;
    for cell in &run.cells {
        for probe in &cell.probes {
            for cpu in &probe.cpus {
                let Some(it) = cpu.quantiles else { continue };
                let name = [Some(probe.probe.as_str()), cpu.series.as_deref()]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join("/");
                let times = [it.p50_ns, it.p999_ns, it.max_ns].map(nanoseconds).join(" | ");
                writeln!(text, "| {} | {name} | {} | {} | {times} |", cell.name, cpu.cpu, cpu.samples)?;
            }
        }
    }
    writeln!(text)?;
    Ok(())
}

/// The kept trace of the longest spike: the culprit, and the surrounding lines as the kernel prints them.
fn trace(text: &mut String, run: &RunResult, folder: &Folder) -> Result<()> {
    let Some(note) = longest(run) else {
        writeln!(text, "No trace was kept: `whylate run` as root keeps the traces of the longest spikes.\n")?;
        return Ok(());
    };
    match lines(note, folder, TRACE_LINES_MAX) {
        Ok((spike, lines)) => {
            writeln!(
                text,
                "## The longest traced spike: {} on CPU {}\n",
                nanoseconds(note.latency_ns),
                note.cpu
            )?;
            if let Some(spike) = spike {
                let chain: Vec<&str> =
                    spike.cause.function.iter().chain(&spike.cause.callers).map(String::as_str).collect();
                writeln!(
                    text,
                    "{}{}{}\n",
                    spike.cause.sentence(),
                    if chain.is_empty() { "" } else { ": " },
                    chain.join(" <- ")
                )?;
            }
            writeln!(text, "```\n{lines}```\n")?;
        }
        Err(error) => writeln!(text, "The trace {} cannot be read: {error}\n", note.path)?,
    }
    Ok(())
}

/// The kept trace of the longest spike.
fn longest(run: &RunResult) -> Option<&SpikeTrace> {
    run.cells.iter().flat_map(|cell| &cell.traces).max_by_key(|note| note.latency_ns)
}

fn lines(note: &SpikeTrace, folder: &Folder, most: usize) -> Result<(Option<ExplainedSpike>, String)> {
    let mut reader = whylate_runner::open_trace(folder, &note.path)?;
    let explained = explain_kept(reader.as_mut(), &whylate_runner::kept_moment(note))?;
    let exported = whylate_explain::export(reader.as_mut(), &explained.spikes, Export::Text)?;
    let exported = text::lines(&exported);
    let all = exported.lines().count();
    let shown: String = exported.lines().take(most).map(|line| format!("{line}\n")).collect();
    let rest = all.saturating_sub(most);
    let more = if rest > 0 { format!("# {rest} more lines\n") } else { String::new() };
    Ok((explained.spikes.into_iter().next(), format!("{shown}{more}")))
}

/// Removes everything that names the machine and its users.
fn redacted(text: &str, facts: &Facts) -> String {
    let mut plain = text.to_owned();
    if facts.host.len() > 2 {
        plain = plain.replace(&facts.host, "HOST");
    }
    if let Some(boot) = &facts.kernel.boot_id {
        plain = plain.replace(boot.as_str(), "BOOT");
    }
    let word = |word: &str| {
        let of_disk =
            ["UUID=", "PARTUUID=", "LABEL=", "ip=", "nfsroot=", "iscsi", "rd.luks.uuid=", "cryptdevice="];
        match word.split_once('=') {
            Some((name, _)) if of_disk.iter().any(|it| word.contains(it)) => format!("{name}=REDACTED"),
            _ if is_address(word) => "ADDRESS".to_owned(),
            _ => path(word),
        }
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    plain.lines().map(|it| line(it) + "\n").collect()
}

/// The folder of users' home directories.
const HOMES: &str = concat!("/", "home", "/");

/// Removes the name of a user from a path.
fn path(word: &str) -> String {
    let Some((before, rest)) = word.split_once(HOMES) else { return word.to_owned() };
    let behind = rest.split_once('/').map(|(_, behind)| format!("/{behind}")).unwrap_or_default();
    format!("{before}{HOMES}USER{behind}")
}

/// An address of hardware or of the network.
fn is_address(word: &str) -> bool {
    let word = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
    let of_hardware = word.len() == 17
        && word.split(':').count() == 6
        && word.split(':').all(|it| u8::from_str_radix(it, 16).is_ok());
    let host = word.split(':').next().unwrap_or(word);
    of_hardware || host.parse::<std::net::Ipv4Addr>().is_ok_and(|it| !it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_replaced() {
        let mut facts = Facts { host: "cell4".to_owned(), ..Facts::default() };
        facts.kernel.boot_id = Some("0f0a4b7e-5f6a".to_owned());
        let text = "cell4 booted 0f0a4b7e-5f6a\nroot=UUID=6f0e-11 isolcpus=2-3 ip=10.0.0.2 /home/ann/run 02:42:ac:11:00:02 192.168.1.7, 192.168.1.8:22\n6.12.43-rt 0.123456: sched_switch\n";
        let plain = redacted(text, &facts);
        for gone in ["cell4", "0f0a4b7e", "6f0e", "10.0.0.2", "ann", "02:42", "192.168"] {
            assert!(!plain.contains(gone), "{gone}: {plain}");
        }
        for kept in ["isolcpus=2-3", "6.12.43-rt", "0.123456: sched_switch"] {
            assert!(plain.contains(kept), "{kept}: {plain}");
        }
    }
}
