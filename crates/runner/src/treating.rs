//! The treatments of a run: whether they are possible here, and each repeat's way through the journal.

use crate::error::RunError;
use crate::prepare::{Experiment, PreparedCell};
use std::collections::BTreeSet;
use whylate_core::plan::TreatmentKind;
use whylate_core::result::TreatChange;
use whylate_core::warning::push_once;
use whylate_core::{CpuSet, Facts, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_host::facts;
use whylate_host::threads::Threads;
use whylate_treat::journal::TREATMENTS;
use whylate_treat::kinds::offline;
use whylate_treat::{Guard, Holder, JournalPlace, Planner as _, Report, Surroundings, TreatError};

/// Programs that change settings on their own, by the names of their threads (15 bytes).
const WRITERS: [&str; 9] = [
    "tuned",
    "irqbalance",
    "power-profiles-",
    "tlp",
    "thermald",
    "systemd-sysctl",
    "sysctl",
    "cpupower",
    "auto-cpufreq",
];

/// Holds the treatments of a run. What is in force is undone when it is dropped.
pub trait Treating {
    /// Plans a treatment for the machine as it is now, and applies it. Returns what it could not do.
    ///
    /// # Errors
    /// [`TreatError`]; nothing of this treatment is in force then.
    fn apply(
        &mut self,
        name: &str,
        kind: &TreatmentKind,
        target: &CpuSet,
    ) -> Result<Vec<Warning>, TreatError>;

    fn in_force(&self) -> Vec<TreatChange>;

    /// Which treatment no longer holds, and which program may have changed it; `None` while all hold.
    fn not_held(&self) -> Option<String> {
        None
    }

    /// Undoes everything that is in force, and verifies it.
    fn undo(&mut self) -> Report;
}

/// The holder of treatments, and warnings about those that were in force before.
pub struct Held {
    /// `None` if the run has no treatments.
    pub treating: Option<Box<dyn Treating>>,
    /// What a killed run left, and what others have in force.
    pub warnings: Vec<Warning>,
}

/// The treatments of this machine, through its journal.
pub(crate) struct RealTreating {
    guard: Guard,
    root: HostRoot,
}

impl RealTreating {
    /// Takes the journal for the run in `run`. A run without treatments takes none. It is not refused because of what
    /// others hold; a warning says what is in force.
    pub(crate) fn hold(root: &HostRoot, run: &str, has_treatments: bool) -> Result<Held, TreatError> {
        let place = JournalPlace::of_this_machine(TREATMENTS);
        if has_treatments {
            let guard = Guard::begin(&place, root, holder(Some(run), root))?;
            let warnings = recovery(guard.recovered()).into_iter().collect();
            let treating = Self { guard, root: root.clone() };
            return Ok(Held { treating: Some(Box::new(treating)), warnings });
        }
        // A user who may not read it cannot know.
        let contents = place.read(root).unwrap_or_default();
        let mut warnings = Vec::new();
        if let Some(of) = contents.open().next().and_then(|entry| contents.holder(entry)) {
            let text = format!(
                "this run measures with settings that `{}` has changed since {} (changes in force: {})",
                of.command,
                of.since(),
                contents.open().count()
            );
            warnings.push(Warning::new(WarningCode::TreatmentsInForce, text));
        }
        Ok(Held { treating: None, warnings })
    }
}

fn holder(run: Option<&str>, root: &HostRoot) -> Holder {
    let command =
        std::env::args().nth(1).map_or_else(|| "whylate".to_owned(), |word| format!("whylate {word}"));
    Holder::this_process(&command, run, false, root)
}

/// What a killed run of this machine left behind, which is not changed.
pub fn left_behind(root: &HostRoot) -> Option<Warning> {
    let contents = JournalPlace::of_this_machine(TREATMENTS).read(root).ok()?;
    let holder = contents.open().next().and_then(|entry| contents.holder(entry))?;
    let text = format!(
        "settings that `{}` has changed since {} are not restored yet (changes in force: {}): `whylate treat status` lists \
         these settings, and `whylate treat restore` restores them if their run has ended",
        holder.command,
        holder.since(),
        contents.open().count()
    );
    Some(Warning::new(WarningCode::TreatmentsInForce, text))
}

/// Undoes what a killed run of this machine left behind, before anything is measured or recorded about it. Settings
/// that are in force by hand or by a running run stay, and so does everything in a damaged journal, which is a
/// warning.
pub fn recover_treatments(root: &HostRoot) -> Option<Warning> {
    let place = JournalPlace::of_this_machine(TREATMENTS);
    let contents = match place.read(root) {
        Ok(contents) => contents,
        Err(error @ TreatError::Untrusted { .. }) => {
            return Some(Warning::new(WarningCode::Journal, format!("the journal cannot be read: {error}")));
        }
        // A journal that this user cannot read says nothing about the machine.
        Err(_) => return None,
    };
    if contents.damage.is_empty() && contents.open().next().is_none() {
        return None;
    }
    match Guard::begin(&place, root, holder(None, root)) {
        Ok(guard) => recovery(guard.recovered()),
        Err(error @ TreatError::Damaged { .. }) => {
            Some(Warning::new(WarningCode::JournalDamaged, error.to_string()))
        }
        Err(_) => None,
    }
}

impl Treating for RealTreating {
    fn apply(
        &mut self,
        name: &str,
        kind: &TreatmentKind,
        target: &CpuSet,
    ) -> Result<Vec<Warning>, TreatError> {
        // Treatments before this one may have changed the settings.
        let (facts, _) = facts::collect(&self.root);
        let surroundings = Surroundings::new(self.root.clone(), &facts, Some(target.clone()));
        let planned = kind
            .plan(&surroundings)
            .map_err(|source| TreatError::Impossible { treatment: name.to_owned(), source })?;
        let mut warnings = planned.warnings;
        warnings.extend(self.guard.apply(name, &planned.changes)?);
        warnings.extend(self.guard.settle(name, kind, &surroundings)?);
        for warning in &mut warnings {
            warning.text = format!("treatment `{name}`: {}", warning.text);
        }
        Ok(warnings)
    }

    fn in_force(&self) -> Vec<TreatChange> {
        self.guard.in_force().map(TreatChange::from).collect()
    }

    fn not_held(&self) -> Option<String> {
        let problem = self.guard.not_held()?;
        Some(match writers(&self.root).as_slice() {
            [] => problem,
            writers => format!("{problem}; running programs that change settings: {}", writers.join(", ")),
        })
    }

    fn undo(&mut self) -> Report {
        self.guard.undo()
    }
}

/// Programs that run and are known to change settings: name, process, and its unit of systemd.
fn writers(root: &HostRoot) -> Vec<String> {
    let running = Threads::read(root).map(|threads| threads.rows).unwrap_or_default();
    let known = running.iter().filter(|row| row.pid == row.tid && WRITERS.contains(&row.name.as_str()));
    let shown = known.map(|row| {
        let groups = root.read(&format!("/proc/{}/cgroup", row.pid)).ok().flatten().unwrap_or_default();
        let mut names = groups.lines().filter_map(|line| line.rsplit('/').next());
        let unit = names.find(|name| name.ends_with(".service")).map(|unit| format!(", {unit}"));
        format!("{} ({}{})", row.name, row.pid, unit.unwrap_or_default())
    });
    shown.collect()
}

/// What a killed run left behind, and what happened to it.
pub fn recovery(recovered: &Report) -> Option<Warning> {
    if recovered.outcomes.is_empty() {
        return None;
    }
    let text = format!(
        "whylate first undid the changes that a killed run had left (number of settings: {}); {}",
        recovered.outcomes.len(),
        recovered.aftermath()
    );
    Some(Warning::new(WarningCode::TreatmentsRecovered, text))
}

/// Skips each cell whose treatments cannot be applied to the machine below `root`, with the reason.
pub fn check_treatments(mut experiment: Experiment, root: &HostRoot) -> Result<Experiment, RunError> {
    if !experiment.has_treatments() {
        return Ok(experiment);
    }
    let journal = JournalPlace::of_this_machine(TREATMENTS).check(root);
    let surroundings = Surroundings::new(root.clone(), &experiment.facts, Some(experiment.target.clone()));
    let probe_cpus = experiment.probes.iter().flatten().flat_map(|probe| probe.cpus.iter()).collect();
    let (plan, warnings) = (&experiment.plan, &mut experiment.warnings);
    for cell in experiment.cells.iter_mut().filter(|cell| !cell.plan.treatments.is_empty()) {
        for name in cell.plan.treatments.clone() {
            let Some(treatment) = plan.treatment(&name) else { continue };
            let planned = match (&journal, treatment.kind.plan(&surroundings)) {
                (_, Err(impossible)) => Err(format!("treatment `{name}`: {impossible}")),
                (Err(error), Ok(_)) => Err(error.to_string()),
                (Ok(_), Ok(planned)) => {
                    let off = offline::switched_off(&planned.changes);
                    let used = uses(cell, &probe_cpus, &off);
                    used.map_or(Ok(planned), |reason| Err(format!("treatment `{name}`: {reason}")))
                }
            };
            match planned {
                Ok(planned) => {
                    for warning in planned.warnings {
                        let text = format!("treatment `{name}`: {}", warning.text);
                        push_once(warnings, Warning { text, ..warning });
                    }
                }
                Err(reason) if treatment.optional => {
                    let text = format!("cells run without the optional treatment `{name}`: {reason}");
                    push_once(warnings, Warning::new(WarningCode::TreatmentLeftOut, text));
                    cell.without.push(name);
                }
                Err(reason) => cell.loads = cell.loads.clone().and(Err(reason)),
            }
        }
    }
    experiment.with_something_to_run()
}

/// What parts of a cell run on CPUs that are switched off.
fn uses(cell: &PreparedCell, probe_cpus: &CpuSet, off: &CpuSet) -> Option<String> {
    if let Some(cpu) = probe_cpus.intersection(off).first() {
        return Some(format!("it takes CPU {cpu} offline, but this CPU is measured"));
    }
    let loads = cell.loads.iter().flatten();
    loads
        .filter_map(|load| Some((load, load.spec.work.cpus()?.intersection(off).first()?)))
        .next()
        .map(|(load, cpu)| format!("it takes CPU {cpu} offline, but load `{}` runs there", load.name))
}

/// The CPUs on which this program may run.
pub(crate) const ALLOWED: &str = "allowed CPUs";

/// The differences between the facts before and after a run, in what treatments can change.
pub(crate) fn differences(before: &Facts, after: &Facts) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: String, before: String, after: String| {
        if before != after {
            found.push(format!("{what}: {before} before, {after} after"));
        }
    };
    let some = |cpus: &CpuSet| if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() };
    for (what, of) in [("online CPUs", 0), ("isolated CPUs", 1), (ALLOWED, 2)] {
        let set = |facts: &Facts| match of {
            0 => some(&facts.cpu_sets.online),
            1 => some(&facts.cpu_sets.isolated),
            _ => some(&facts.cpu_sets.allowed),
        };
        compare(what.to_owned(), set(before), set(after));
    }
    let settings = |facts: &Facts| match serde_json::to_value(&facts.settings) {
        Ok(serde_json::Value::Object(settings)) => settings,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (settings(before), settings(after));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in names {
        let text = |of: &serde_json::Map<String, serde_json::Value>| {
            of.get(name).map_or_else(|| "none".to_owned(), ToString::to_string)
        };
        compare(format!("setting {name}"), text(&old), text(&new));
    }
    let source = |facts: &Facts| facts.clock.source.clone().unwrap_or_default();
    compare("clock source".to_owned(), source(before), source(after));
    for cpu in &before.cpus {
        let Some(now) = after.cpu(cpu.cpu) else { continue };
        let name = |what: &str| format!("{what} of CPU {}", cpu.cpu);
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        let number =
            |value: Option<u64>| value.map_or_else(|| "none".to_owned(), |hertz| format!("{hertz} Hz"));
        compare(name("governor"), text(&cpu.governor), text(&now.governor));
        compare(name("lowest frequency"), number(cpu.frequency_min_hz), number(now.frequency_min_hz));
        compare(name("highest frequency"), number(cpu.frequency_max_hz), number(now.frequency_max_hz));
        let states = |cpu: &whylate_core::facts::CpuFacts| {
            cpu.idle_states.iter().map(|state| state.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        compare(name("idle states"), states(cpu), states(now));
    }
    let power = |facts: &Facts| {
        let power = |gpu: &Option<String>| gpu.clone().unwrap_or_else(|| "unknown".to_owned());
        facts.gpus.iter().map(|gpu| format!("{} {}", gpu.name, power(&gpu.runtime_power))).collect::<Vec<_>>()
    };
    compare("power of graphics devices".to_owned(), power(before).join(", "), power(after).join(", "));
    found
}
