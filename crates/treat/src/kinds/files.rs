//! Treatments that name their file: `sysfs`, `sysctl`, `module-parameter`.

use crate::change::{Change, Target};
use crate::kinds::refused::refusal;
use crate::kinds::{is_setting, offline, required_file, sysctl_path};
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use whylate_core::plan::{ModuleParameterPlan, SysctlPlan, SysfsPlan};

impl Planner for SysfsPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        if !is_setting(&self.path) {
            let what = if self.path.starts_with("/proc/") {
                "belongs to a process; only settings of the machine are changed"
            } else {
                "is not a file below /sys or /proc"
            };
            let reason = format!("path `{}` {what}", self.path);
            return Err(Impossible::new(reason));
        }
        let paths = if self.path.contains("{cpu}") {
            let cpus = surroundings.resolve("cpus", &self.cpus)?;
            cpus.iter().map(|cpu| self.path.replace("{cpu}", &cpu.to_string())).collect()
        } else {
            vec![self.path.clone()]
        };
        let change = |path: String| {
            refuse(&path, &self.value)?;
            let reading = reading_of(surroundings, &path, &self.value)?;
            let effect = "set by the treatment `sysfs`".to_owned();
            Ok(Change::required(Target::File { path, reading }, reading.normal(&self.value), effect))
        };
        let written: Vec<Change> = paths.into_iter().map(change).collect::<Result<_, Impossible>>()?;
        // Taking a CPU offline changes more than this file: those changes are planned, too.
        let off = offline::switched_off(&written).intersection(&surroundings.cpus.online);
        let mut changes = Vec::new();
        if !off.is_empty() {
            offline::check(surroundings, &off)?;
            changes = offline::preparation(surroundings, &off)?;
        }
        changes.extend(written);
        Ok(Planned::changes(changes))
    }
}

/// Refuses settings that are never changed, on any machine.
fn refuse(path: &str, value: &str) -> Result<(), Impossible> {
    let refused = |reason| Impossible::wrong_request(format!("{path} is not changed: {reason}"));
    refusal(path, value).map_or(Ok(()), |reason| Err(refused(reason)))
}

/// How a file of unknown meaning prints its value: derived from its present content.
fn reading_of(surroundings: &Surroundings, path: &str, value: &str) -> Result<Reading, Impossible> {
    let text = required_file(surroundings, path, "check the path, and check that the driver is loaded")?;
    let is_choice = text.split_whitespace().any(|word| word.starts_with('[') && word.ends_with(']'));
    let is_affinity = path.ends_with("/smp_affinity")
        || path.ends_with("/default_smp_affinity")
        || path.ends_with("/cpumask")
        || path.ends_with("_cpus");
    let name = path.rsplit('/').next().unwrap_or_default();
    Ok(if name == "schemata" {
        Reading::Schemata
    } else if is_choice {
        Reading::Bracketed
    } else if is_affinity && is_mask(&text) && is_mask(value) {
        Reading::CpuMask
    } else if name.ends_with("_list") || name.ends_with("cpulist") || name.starts_with("cpuset.") {
        Reading::CpuList
    } else if matches!(text.trim(), "Y" | "N") {
        Reading::Switch
    } else if text.trim().contains(char::is_whitespace) {
        Reading::Words
    } else {
        Reading::Whole
    })
}

fn is_mask(text: &str) -> bool {
    !text.trim().is_empty() && text.trim().chars().all(|c| c.is_ascii_hexdigit() || c == ',')
}

impl Planner for SysctlPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let path = sysctl_path(&self.key)?;
        refuse(&path, &self.value)?;
        let text = required_file(surroundings, &path, "check the key with `sysctl -a`")?;
        let is_list = text.trim().contains(char::is_whitespace);
        let reading = if is_list { Reading::Words } else { Reading::Whole };
        let value = reading.normal(&self.value);
        let effect = format!("sysctl {}", self.key);
        Ok(Planned::changes(vec![Change::required(Target::File { path, reading }, value, effect)]))
    }
}

impl Planner for ModuleParameterPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        for (name, text) in [("module", &self.module), ("parameter", &self.parameter)] {
            if text.is_empty() || text.contains(['/', '.']) {
                return Err(Impossible::new(format!("{name} `{text}`: give a name without `/` and `.`")));
            }
        }
        // The folder's name has underscores, whatever the name of the module's file.
        let module = self.module.replace('-', "_");
        let folder = format!("/sys/module/{module}");
        if !surroundings.root.exists(&folder) {
            let reason = format!("module `{module}` is not loaded and not built in (no {folder})");
            return Err(Impossible::new(reason));
        }
        let path = format!("{folder}/parameters/{}", self.parameter);
        refuse(&path, &self.value)?;
        let known = surroundings.root.list(&format!("{folder}/parameters"))?;
        let hint = format!("the parameters of this module are [{}]", known.join(", "));
        let text = required_file(surroundings, &path, &hint)?;
        let is_switch = matches!(text.trim(), "Y" | "N");
        let reading = if is_switch { Reading::Switch } else { Reading::Whole };
        let value = reading.normal(&self.value);
        let effect = format!("parameter of module {module}");
        Ok(Planned::changes(vec![Change::required(Target::File { path, reading }, value, effect)]))
    }
}
