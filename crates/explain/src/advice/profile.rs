//! Settings that are already in use: from a tuned profile, a file of sysctl.d, a kernel command line, or the treatments of a
//! plan. Each line becomes a treatment, or is left out with the reason.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use whylate_core::plan::{TreatmentKind, TreatmentPlan};
use whylate_core::result::{FixArm, FixLeftOut};

/// The content of a file of settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Its kind: `a tuned profile`.
    pub form: &'static str,
    /// The settings that can be applied while the machine runs.
    pub arms: Vec<FixArm>,
    pub left_out: Vec<FixLeftOut>,
}

const REBOOT: &str = "this setting needs a reboot";

enum Meaning {
    Treatment(Value),
    /// A treatment of the running machine that does about the same as a word of the command line.
    Instead(Value),
    No(&'static str),
}

use Meaning::{Instead, No, Treatment};

/// Reads the settings of a file.
///
/// # Errors
/// What is wrong with it, with its line.
pub fn profile(text: &str) -> Result<Profile, String> {
    let lines =
        || text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty() && !is_comment(line));
    if lines().any(|(line, _)| line == "[[treatment]]") {
        return of_plan(text);
    }
    if lines().any(|(line, _)| section(line).is_some()) {
        return of_tuned(lines());
    }
    let mut profile = Profile::default();
    if lines().count() == 1 && text.split_whitespace().count() > 1 && !text.contains(" = ") {
        profile.form = "a kernel command line";
        text.split_whitespace().for_each(|word| profile.add(word, word, of_word(word)));
    } else {
        profile.form = "a sysctl.d file";
        for (line, number) in lines() {
            let Some((key, value)) = assigned(line) else {
                return Err(format!(
                    "line {number}: `{line}` is not a setting; give a tuned profile, a sysctl.d file (`vm.swappiness = 10`), a kernel \
                     command line or a plan with treatments"
                ));
            };
            let key = key.trim_start_matches('-').trim();
            profile.add(&of_path(key), &format!("line {number}"), of_sysctl(key, value));
        }
    }
    profile.checked()
}

fn is_comment(line: &str) -> bool {
    line.starts_with(['#', ';'])
}

fn section(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']').filter(|name| !name.contains('['))
}

fn assigned(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    Some((key.trim(), value.trim())).filter(|(key, _)| !key.is_empty() && !key.contains(' '))
}

fn of_plan(text: &str) -> Result<Profile, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let list = table.get("treatment").cloned().unwrap_or_else(|| toml::Value::Array(Vec::new()));
    let list: Vec<TreatmentPlan> = list.try_into().map_err(|error| error.to_string())?;
    let arm = |treatment| FixArm {
        treatment,
        reason: "the plan has this treatment".to_owned(),
        answers: Vec::new(),
        removes: Vec::new(),
        service: None,
    };
    Profile {
        form: "the treatments of a plan",
        arms: list.into_iter().map(arm).collect(),
        ..Profile::default()
    }
    .checked()
}

fn of_tuned<'a>(lines: impl Iterator<Item = (&'a str, usize)>) -> Result<Profile, String> {
    let mut profile = Profile { form: "a tuned profile", ..Profile::default() };
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    let mut part = String::new();
    for (line, number) in lines {
        if let Some(name) = section(line) {
            name.clone_into(&mut part);
            continue;
        }
        let Some((key, value)) = assigned(line) else {
            return Err(format!("line {number}: `{line}` is not a setting of a tuned profile"));
        };
        // `>100` means 100 if the machine has less.
        let value = value.trim_start_matches(['>', '<']).trim();
        let value = variables
            .iter()
            .fold(value.to_owned(), |value, (name, text)| value.replace(&format!("${{{name}}}"), text));
        if part == "variables" {
            variables.insert(key.to_owned(), value);
            continue;
        }
        let place = format!("line {number}, [{part}]");
        if part == "bootloader" {
            let is_word = |word: &&str| *word != "+" && !word.is_empty();
            for word in value.trim_start_matches('+').split_whitespace().filter(is_word) {
                profile.add(word, &place, of_word(word));
            }
        } else if let Some(meaning) = of_tuned_key(&part, key, &value) {
            profile.add(&of_path(key), &place, meaning);
        }
    }
    profile.checked()
}

/// `None` for what is not a setting, such as a profile's summary.
fn of_tuned_key(part: &str, key: &str, value: &str) -> Option<Meaning> {
    Some(match (part, key) {
        ("main", "include") => No("this line names another profile: audit the other profile, too"),
        ("main", _) | (_, "type" | "enabled" | "replace" | "priority" | "devices") => return None,
        _ if value.contains("${") => No("tuned computes this value when it applies the profile"),
        ("sysctl", _) => of_sysctl(key, value),
        ("sysfs", _) => of_file(key, value),
        ("cpu", "governor") => {
            let first = value.split('|').next().unwrap_or_default();
            Treatment(json!({"kind": "governor", "governor": first, "cpus": "all"}))
        }
        ("cpu", "energy_performance_preference") => {
            let first = value.split('|').next().unwrap_or_default();
            Treatment(json!({"kind": "governor", "energy_preference": first, "cpus": "all"}))
        }
        ("cpu", "no_turbo" | "boost") => {
            let is_on = (value == "1") == (key == "boost");
            Treatment(json!({"kind": "governor", "turbo": is_on}))
        }
        ("cpu", "force_latency") => match value.split('|').find_map(|it| it.trim().parse::<u32>().ok()) {
            Some(most) => {
                Treatment(json!({"kind": "idle", "exit_latency_max": format!("{most}us"), "cpus": "all"}))
            }
            None => No("this line names an idle state: write the state's exit latency in us instead"),
        },
        ("vm", "transparent_hugepages" | "transparent_hugepage") => {
            Treatment(json!({"kind": "thp", "enabled": value}))
        }
        ("vm", "transparent_hugepage.defrag") => No("use the treatment `thp` with `defrag` instead"),
        ("vm", _) => of_sysctl(&format!("vm.{key}"), value),
        ("script", _) => No("this line runs a script, which whylate cannot undo"),
        _ => No("whylate has no treatment for this setting"),
    })
}

/// A word of the kernel's command line.
fn of_word(word: &str) -> Meaning {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let idle = |most: &str| Instead(json!({"kind": "idle", "exit_latency_max": most, "cpus": "all"}));
    match (name, value) {
        ("idle", "poll") => idle("0s"),
        ("intel_idle.max_cstate" | "processor.max_cstate", "0" | "1") => idle("2us"),
        ("nosmt", _) => Instead(json!({"kind": "smt-off"})),
        ("nowatchdog", _) | ("nmi_watchdog", "0") => Instead(json!({"kind": "watchdog"})),
        ("transparent_hugepage", mode) => Instead(json!({"kind": "thp", "enabled": mode})),
        ("numa_balancing", "disable") => Instead(json!({"kind": "numa-balancing"})),
        ("pcie_aspm.policy", "performance") | ("pcie_aspm", "off") => Instead(
            json!({"kind": "sysfs", "path": "/sys/module/pcie_aspm/parameters/policy", "value": "performance"}),
        ),
        ("cpufreq.default_governor", governor) => {
            Instead(json!({"kind": "governor", "governor": governor, "cpus": "all"}))
        }
        ("isolcpus" | "irqaffinity", _) => {
            No("this setting needs a reboot; the treatment `shield` has a similar effect without a reboot")
        }
        _ => No(REBOOT),
    }
}

fn of_sysctl(key: &str, value: &str) -> Meaning {
    if key.contains('*') {
        return No("this pattern matches several files: name one of the files");
    }
    Treatment(json!({"kind": "sysctl", "key": of_path(key), "value": value}))
}

fn of_file(path: &str, value: &str) -> Meaning {
    if path.contains(['*', '[', '?']) {
        return No(
            "this pattern matches several files: name one file, or write `{cpu}` in a treatment `sysfs`",
        );
    }
    Treatment(json!({"kind": "sysfs", "path": path, "value": value}))
}

/// `vm/swappiness` is another way to write `vm.swappiness`; a path stays as it is.
fn of_path(key: &str) -> String {
    if key.starts_with('/') || key.contains('.') { key.to_owned() } else { key.replace('/', ".") }
}

impl Profile {
    fn add(&mut self, id: &str, place: &str, meaning: Meaning) {
        let (kind, reason) = match meaning {
            Treatment(kind) => (kind, place.to_owned()),
            Instead(kind) => {
                let name = kind["kind"].as_str().unwrap_or_default();
                (kind.clone(), format!("{place}: replaced by the treatment `{name}`, which needs no reboot"))
            }
            No(why) => {
                return self.leave_out(id, place, why.to_owned());
            }
        };
        match serde_json::from_value::<TreatmentKind>(kind) {
            Ok(kind) => {
                let treatment = TreatmentPlan { name: id.to_owned(), optional: false, kind };
                // The last line of a file holds.
                self.arms.retain(|arm| arm.treatment.name != id);
                self.arms.push(FixArm {
                    treatment,
                    reason,
                    answers: Vec::new(),
                    removes: Vec::new(),
                    service: None,
                });
            }
            Err(error) => self.leave_out(id, place, error.to_string()),
        }
    }

    fn leave_out(&mut self, id: &str, place: &str, why: String) {
        self.left_out.push(FixLeftOut { id: id.to_owned(), reason: place.to_owned(), why });
    }

    fn checked(self) -> Result<Self, String> {
        if self.arms.is_empty() && self.left_out.is_empty() {
            return Err("the file contains no settings".to_owned());
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    fn ids(profile: &Profile) -> Vec<&str> {
        profile.arms.iter().map(|arm| arm.treatment.name.as_str()).collect()
    }

    fn left(profile: &Profile) -> Vec<&str> {
        profile.left_out.iter().map(|left| left.id.as_str()).collect()
    }

    #[test]
    fn a_profile_of_tuned() {
        let text = "# tuned configuration\n[main]\nsummary=Optimize for latency\ninclude=network-latency\n\n\
                    [variables]\nisolated=2-3\n\n[cpu]\nforce_latency=cstate.id:1|3\ngovernor=performance|powersave\nno_turbo=1\n\
                    [sysctl]\nvm.stat_interval = 120\nkernel.sched_rt_runtime_us=-1\nvm.dirty_ratio=>10\n\
                    [vm]\ntransparent_hugepages=never\n[sysfs]\n/sys/bus/workqueue/devices/writeback/cpumask = 3\n\
                    /sys/devices/system/machinecheck/machinecheck*/ignore_ce = 1\n\
                    [bootloader]\ncmdline_rt=+isolcpus=${isolated} nowatchdog tsc=reliable\n[script]\nscript=script.sh\n";
        let profile = profile(text).unwrap();
        assert_eq!(profile.form, "a tuned profile");
        let sysfs = "/sys/bus/workqueue/devices/writeback/cpumask";
        let expected = [
            "force_latency",
            "governor",
            "no_turbo",
            "vm.stat_interval",
            "kernel.sched_rt_runtime_us",
            "vm.dirty_ratio",
            "transparent_hugepages",
            sysfs,
            "nowatchdog",
        ];
        assert_eq!(ids(&profile), expected);
        let machine_checks = "/sys/devices/system/machinecheck/machinecheck*/ignore_ce";
        assert_eq!(left(&profile), ["include", machine_checks, "isolcpus=2-3", "tsc=reliable", "script"]);
        assert!(says("line-bootloader-tried-as", &profile.arms[8].reason));
        let written = serde_json::to_value(&profile.arms[5].treatment.kind).unwrap();
        assert_eq!(written, json!({"kind": "sysctl", "key": "vm.dirty_ratio", "value": "10"}));
    }

    #[test]
    fn a_file_of_sysctl() {
        let text = "# copied\n-vm.swappiness = 10\nnet/core/busy_poll=50\nnet.ipv4.conf.*.rp_filter = 1\nvm.swappiness=1\n";
        let profile = profile(text).unwrap();
        assert_eq!(ids(&profile), ["net.core.busy_poll", "vm.swappiness"]);
        assert_eq!(left(&profile), ["net.ipv4.conf.*.rp_filter"]);
        assert_eq!(profile.arms[1].reason, "line 5");
        assert!(
            super::profile("vm.swappiness = 10\nhello world\n")
                .unwrap_err()
                .starts_with("line 2: `hello world`")
        );
        assert!(super::profile("# nothing\n").unwrap_err().contains("no settings"));
    }

    #[test]
    fn a_command_line() {
        let profile = profile("BOOT_IMAGE=/vmlinuz root=/dev/sda1 idle=poll nosmt nohz_full=3\n").unwrap();
        assert_eq!(ids(&profile), ["idle=poll", "nosmt"]);
        assert_eq!(left(&profile), ["BOOT_IMAGE=/vmlinuz", "root=/dev/sda1", "nohz_full=3"]);
    }

    #[test]
    fn treatments_of_a_plan() {
        let profile = profile("[[treatment]]\nname = \"calm\"\nkind = \"ksm\"\n").unwrap();
        assert_eq!(ids(&profile), ["calm"]);
        assert!(super::profile("[[treatment]]\nname = \"x\"\nkind = \"nothing\"\n").is_err());
    }
}
