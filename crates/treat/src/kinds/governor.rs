//! `governor`: how the frequency of CPUs is chosen, and between which limits.

use crate::change::{Change, Target};
use crate::kinds::required_file;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use whylate_core::plan::GovernorPlan;
use whylate_core::units::Hz;
use whylate_core::{CpuSet, Warning, WarningCode};

const FOLDER: &str = "/sys/devices/system/cpu/cpufreq";

/// CPUs that share one frequency.
struct Policy {
    folder: String,
    cpus: CpuSet,
}

impl Planner for GovernorPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let mut planned = Planned::default();
        let is_per_cpu =
            self.governor.is_some() || self.energy_preference.is_some() || self.min.or(self.max).is_some();
        if !is_per_cpu && self.turbo.is_none() {
            let reason = "nothing to set; give governor, min, max, energy_preference or turbo";
            return Err(Impossible::new(reason));
        }
        if is_per_cpu {
            let cpus = surroundings.resolve("cpus", &self.cpus)?;
            for policy in policies(surroundings, &cpus)? {
                let more = policy.cpus.difference(&cpus);
                if !more.is_empty() {
                    let text =
                        format!("CPU {more} shares its frequency with CPU {cpus}, and gets the same setting");
                    planned.warnings.push(Warning::new(WarningCode::FrequencyShared, text));
                }
                plan_policy(self, surroundings, &policy, &mut planned.changes)?;
            }
        }
        if let Some(turbo) = self.turbo {
            planned.changes.push(turbo_change(surroundings, turbo)?);
        }
        Ok(planned)
    }
}

/// The policies that `cpus` belong to.
fn policies(surroundings: &Surroundings, cpus: &CpuSet) -> Result<Vec<Policy>, Impossible> {
    let mut policies = Vec::new();
    let mut found = CpuSet::default();
    for number in surroundings.root.list_numbered(FOLDER, "policy")? {
        let folder = format!("{FOLDER}/policy{number}");
        // Separated by spaces in this file.
        let text = surroundings.root.read_trimmed(&format!("{folder}/affected_cpus"))?.unwrap_or_default();
        let list = text.split_whitespace().collect::<Vec<_>>().join(",");
        let of_policy: CpuSet =
            list.parse().map_err(|error| Impossible::new(format!("{folder}/affected_cpus: {error}")))?;
        if !of_policy.intersection(cpus).is_empty() {
            found = found.union(&of_policy);
            policies.push(Policy { folder, cpus: of_policy });
        }
    }
    let missing = cpus.difference(&found);
    if missing.is_empty() {
        return Ok(policies);
    }
    let hint =
        "the kernel does not set the frequency (no cpufreq driver; in a virtual machine, the host sets it)";
    Err(Impossible::new(format!("CPU {missing} has no policy in {FOLDER}: {hint}")))
}

fn plan_policy(
    plan: &GovernorPlan,
    surroundings: &Surroundings,
    policy: &Policy,
    changes: &mut Vec<Change>,
) -> Result<(), Impossible> {
    let Policy { folder, cpus } = policy;
    if let Some(governor) = &plan.governor {
        let path = format!("{folder}/scaling_governor");
        one_of(surroundings, &path, &format!("{folder}/scaling_available_governors"), governor)?;
        let effect = format!("the governor of CPU {cpus} is {governor}");
        changes.push(Change::required(Target::file(path), governor, effect));
    }
    if let Some(preference) = &plan.energy_preference {
        let path = format!("{folder}/energy_performance_preference");
        let known = format!("{folder}/energy_performance_available_preferences");
        one_of(surroundings, &path, &known, preference)?;
        let effect = format!("the energy preference of CPU {cpus} is {preference}");
        changes.push(Change::required(Target::file(path), preference, effect));
    }
    if plan.min.zip(plan.max).is_some_and(|(min, max)| min > max) {
        return Err(Impossible::new("min is above max; lower min or raise max"));
    }
    let mut limits = Vec::new();
    for (name, limit) in [("min", plan.min), ("max", plan.max)] {
        if let Some(limit) = limit {
            limits.push(limit_change(surroundings, policy, name, limit)?);
        }
    }
    // The kernel refuses a minimum above the maximum: write them in the order that avoids it.
    let highest: Option<u64> = surroundings.root.read_number(&format!("{folder}/scaling_max_freq"))?;
    if plan.min.is_some_and(|min| highest.is_some_and(|highest| min.0 / 1_000 > highest)) {
        limits.reverse();
    }
    changes.append(&mut limits);
    Ok(())
}

fn limit_change(
    surroundings: &Surroundings,
    policy: &Policy,
    name: &str,
    limit: Hz,
) -> Result<Change, Impossible> {
    let Policy { folder, cpus } = policy;
    let read = |file: &str| surroundings.root.read_number::<u64>(&format!("{folder}/{file}"));
    let kilohertz = limit.0 / 1_000;
    if let (Some(lowest), Some(highest)) = (read("cpuinfo_min_freq")?, read("cpuinfo_max_freq")?)
        && !(lowest..=highest).contains(&kilohertz)
    {
        let reason =
            format!("{name}: {limit} is not between {lowest} and {highest} kHz, the limits of CPU {cpus}");
        return Err(Impossible::new(reason));
    }
    let path = format!("{folder}/scaling_{name}_freq");
    required_file(surroundings, &path, "this cpufreq driver has no frequency limits")?;
    let effect = format!("the {name} frequency of CPU {cpus} is {kilohertz} kHz");
    let target = Target::file_with(path, Reading::Rounded);
    Ok(Change::required(target, kilohertz.to_string(), effect))
}

/// Refuses a value that the driver does not list; if it lists none, the kernel decides.
fn one_of(surroundings: &Surroundings, path: &str, list: &str, value: &str) -> Result<(), Impossible> {
    required_file(surroundings, path, "this cpufreq driver has no such setting")?;
    let known = surroundings.root.read_trimmed(list)?.unwrap_or_default();
    if known.is_empty() || known.split_whitespace().any(|word| word == value) {
        return Ok(());
    }
    let known = known.split_whitespace().collect::<Vec<_>>().join(", ");
    Err(Impossible::new(format!("{path} does not accept `{value}`; choose from {known}")))
}

fn turbo_change(surroundings: &Surroundings, turbo: bool) -> Result<Change, Impossible> {
    // intel_pstate has the inverse switch, no_turbo.
    let files =
        [("/sys/devices/system/cpu/intel_pstate/no_turbo", !turbo), (&format!("{FOLDER}/boost"), turbo)];
    for (path, value) in files {
        if surroundings.root.exists(path) {
            required_file(surroundings, path, "")?;
            let effect = format!("turbo (frequencies above nominal) is {}", if turbo { "on" } else { "off" });
            return Ok(Change::required(Target::file(path), if value { "1" } else { "0" }, effect));
        }
    }
    let reason =
        format!("no driver offers turbo as a setting (neither intel_pstate/no_turbo nor {FOLDER}/boost)");
    Err(Impossible::new(reason))
}
