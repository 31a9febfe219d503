//! `whylate load`.

use crate::arguments::{LoadCommand, or_endless};
use crate::exit::Ending;
use crate::screen::Screen;
use crate::{machine, output, signals};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs::File;
use std::path::PathBuf;
use whylate_core::figure::{bytes, rate};
use whylate_core::plan::LoadKind;
use whylate_core::result::LoadResult;
use whylate_core::{Bytes, CpuSelector, Nanos};
use whylate_host::{Host, facts};
use whylate_runner::LoadAlone;

pub(super) fn execute(command: &LoadCommand, host: &Host) -> Result<Ending> {
    if command.run.lists {
        return list(command.run.printing.json);
    }
    let kind = command.plan()?.load.into_iter().next().context("no load")?.kind;
    let (facts, _) = facts::collect(&host.running);
    // The CPUs that a load disturbs are the `target` of a plan.
    let named = |key| -> Result<Option<(String, CpuSelector)>> {
        command.text(key).map(|(flag, cpus)| Ok((flag, cpus.parse()?))).transpose()
    };
    let target = match named("victims")? {
        Some((flag, victims)) => machine::cpus(&flag, &victims, &facts)?,
        None => machine::cpus("--cpus", &CpuSelector::Last, &facts)?,
    };
    if let Some((flag, cpus)) = named("cpus")? {
        cpus.resolve(&facts.cpu_context(), Some(&target)).with_context(|| format!("{flag} {cpus}"))?;
    }
    let prints = matches!(kind, LoadKind::Exec(_) | LoadKind::Graphics(_));
    let scratch = prints.then(|| Scratch::new(command.run.output.clone())).transpose()?;
    let output = scratch.as_ref().map(|scratch| scratch.path.clone()).unwrap_or_default();
    let printing = command.run.printing;
    let quiet = printing.quiet || printing.json;
    let asked = LoadAlone { kind, target, duration: or_endless(command.run.duration), output };
    let mut screen = Screen::of_one(quiet, command.run.duration, None, signals::watch()?);
    let result = whylate_runner::load(&asked, facts, &machine::real(host)?, &mut screen);
    screen.finish();
    let result = result?;
    if printing.json {
        output::print_json(&result)?;
    } else {
        print(&result)?;
    }
    Ok(Ending::Pass)
}

/// The graphics processors that the helper finds.
fn list(as_json: bool) -> Result<Ending> {
    let list = whylate_runner::gpu_list()?;
    if as_json {
        output::print_json(&list)?;
        return Ok(Ending::Pass);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for device in list["devices"].as_array().into_iter().flatten() {
        let memory: Vec<String> = device["memory"].as_array().into_iter().flatten().map(text).collect();
        let size = bytes(device["memory_bytes"].as_u64().unwrap_or_default());
        let (name, kind, driver) = (text(&device["name"]), text(&device["kind"]), text(&device["driver"]));
        let mut lines = vec![
            format!("{} {name} ({kind}), {driver}", device["number"]),
            format!("    memory: {size}; kinds: {}", memory.join(", ")),
        ];
        for (work, why) in device["loads"].as_object().into_iter().flatten() {
            let why = text(why);
            lines.push(format!("    {work:<14}{}", if why.is_empty() { "runs" } else { &why }));
        }
        output::print(&lines.join("\n"))?;
    }
    Ok(Ending::Pass)
}

/// The file for a command's output: the user's, or a temporary one.
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
            // If this fails, the file stays in the temporary directory.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn print(result: &LoadResult) -> Result<()> {
    output::warnings(&result.warnings);
    let size = result.working_set_bytes.map(|bytes| format!(", {} each", Bytes(bytes))).unwrap_or_default();
    let achieved = match &result.rate {
        Some(found) => {
            let values = found.series.iter().map(|rate| rate.value);
            let least = values.clone().fold(f64::INFINITY, f64::min);
            let most = values.fold(0.0, f64::max);
            let text = |value| rate(value, &found.unit);
            format!("mean {} (least {}, most {})", text(found.mean), text(least), text(most))
        }
        None => "no rate in the command's output".to_owned(),
    };
    let seconds = Nanos(result.duration_ns).as_secs_f64();
    let victims = result.victims.as_ref().map(|cpus| format!(", disturbing CPU {cpus}")).unwrap_or_default();
    let how = match result.load.as_str() {
        // For a command, the command line itself is shown elsewhere.
        "exec" => String::new(),
        _ => format!("\n    {}", result.detail),
    };
    output::print(&format!(
        "{} on CPU {}{victims}{size}, {seconds:.1} s: {achieved}{how}",
        result.load, result.cpus
    ))
}
