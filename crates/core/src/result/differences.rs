//! What differs between machines, plans and cells, fact by fact; and what is known of some of them only.

use super::{CellResult, FactDifference};
use crate::facts::Facts;
use crate::order::InOrder;
use crate::plan::Plan;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What explains a difference most often is first; what is not named here is last, by its name.
const FIRST: [&str; 14] = [
    "cell",
    TOOL_COMMAND,
    "kernel.release",
    "kernel.version",
    "kernel.command_line",
    "kernel.preemption",
    "kernel.",
    "processor.",
    "settings.",
    "clock.",
    "cpu_sets.",
    "environment.",
    "gpus",
    "plan.",
];

/// The command line of another tool, as one fact.
const TOOL_COMMAND: &str = "command line of the tool";

/// Left out: what changes from moment to moment, what follows from something else, and lists of everything.
const LEFT_OUT: [&str; 7] = [
    "memory.available_bytes",
    "privileges.lockable_bytes",
    "kernel.boot_id",
    "plan.seed",
    "plan.cell",
    "plan.answer",
    "plan.question",
];

/// If these are missing, they do not exist, rather than being unknown.
const ABSENT: [&str; 4] = ["cell", "environment.", "gpus", "plan."];
const NONE: &str = "none";

/// One side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    pub facts: &'a Facts,
    /// `None` for a result of another tool: then a fact with its default value is not known.
    pub plan: Option<&'a Plan>,
    /// The cell that is compared, if it is only one.
    pub cell: Option<&'a CellResult>,
    /// The command line of another tool.
    pub command: Option<&'a str>,
}

/// What is not the same on every side, the likeliest reasons first; and what some sides do not say at all.
pub fn differences(sides: &[Described<'_>]) -> (Vec<FactDifference>, Vec<FactDifference>) {
    let has_plans = sides.iter().all(|side| side.plan.is_some());
    let of_side: Vec<BTreeMap<String, String>> = sides.iter().map(|side| all(side, has_plans)).collect();
    let names: BTreeSet<&String> = of_side.iter().flat_map(BTreeMap::keys).collect();
    let can_be_absent = |name: &str| ABSENT.iter().any(|absent| name.starts_with(absent));
    let none = |name: &str| (has_plans && can_be_absent(name)).then(|| NONE.to_owned());
    let values = |name: &String| -> Vec<Option<String>> {
        of_side.iter().map(|side| side.get(name).cloned().or_else(|| none(name))).collect()
    };
    let differs = |it: &FactDifference| it.values.windows(2).any(|pair| pair[0] != pair[1]);
    let found = names.into_iter().map(|name| FactDifference { what: name.clone(), values: values(name) });
    let (mut unknown, mut known): (Vec<_>, Vec<_>) =
        found.filter(differs).partition(|it| it.values.contains(&None));
    known.iter_mut().filter(|it| it.what == "kernel.command_line").for_each(own_words);
    let place = |name: &str| FIRST.iter().position(|first| name.starts_with(first)).unwrap_or(FIRST.len());
    [&mut known, &mut unknown].into_iter().for_each(|all| all.order_by_key(|it| place(&it.what)));
    (known, unknown)
}

fn all(side: &Described<'_>, has_plans: bool) -> BTreeMap<String, String> {
    let Described { facts, plan, cell, command } = *side;
    let mut found = of_facts(facts);
    found.extend(command.map(|command| (TOOL_COMMAND.to_owned(), command.to_owned())));
    let plan_document = plan.and_then(|plan| serde_json::to_value(plan).ok());
    match plan_document {
        Some(document) if has_plans => flatten("plan".to_owned(), &document, &mut found),
        Some(document) => found.extend([("plan".to_owned(), text(&document["name"]))]),
        None => {
            let default = of_facts(&Facts::default());
            found.retain(|name, value| default.get(name) != Some(value));
        }
    }
    let target = plan.and_then(|plan| {
        facts.cpus.iter().find(|cpu| plan.target.cpus.to_string().contains(&cpu.cpu.to_string()))
    });
    let governor = target.or(facts.cpus.last()).and_then(|cpu| cpu.governor.clone());
    found.extend(governor.map(|governor| ("settings.governor".to_owned(), governor)));
    found.extend(cell.into_iter().flat_map(of_cell));
    found
}

fn of_facts(facts: &Facts) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut document = serde_json::to_value(facts).unwrap_or_default();
    document.as_object_mut().map(|map| map.remove("cpus"));
    // What a device does changes from moment to moment.
    for gpu in document["gpus"].as_array_mut().into_iter().flatten() {
        gpu.as_object_mut().map(|gpu| gpu.remove("usage"));
    }
    flatten(String::new(), &document, &mut found);
    found
}

/// What was done in a cell, and where it was measured.
fn of_cell(cell: &CellResult) -> [(String, String); 3] {
    let cpus: BTreeSet<_> =
        cell.probes.iter().flat_map(|probe| &probe.cpus).map(|result| result.cpu).collect();
    let cpus = cpus.iter().map(ToString::to_string).collect::<Vec<_>>();
    let listed = |names: &[String]| if names.is_empty() { NONE.to_owned() } else { names.join(", ") };
    [("loads", &cell.loads), ("treatments", &cell.treatments), ("cpus", &cpus)]
        .map(|(what, names)| (format!("cell.{what}"), listed(names)))
}

/// Each value under its path; lists of texts and numbers are one value.
fn flatten(path: String, value: &Value, found: &mut BTreeMap<String, String>) {
    if LEFT_OUT.iter().any(|left_out| path.starts_with(left_out)) {
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Null => {}
        Value::Object(map) => map.iter().for_each(|(key, value)| flatten(below(key), value, found)),
        // Names with their values.
        Value::Array(all) if all.iter().any(|it| it.as_array().is_some_and(|pair| pair.len() == 2)) => {
            all.iter().for_each(|pair| flatten(below(&text(&pair[0])), &pair[1], found));
        }
        Value::Array(all) if all.iter().any(Value::is_object) => {
            let name = |value: &Value, index: usize| {
                ["name", "kind"]
                    .iter()
                    .find_map(|key| value[*key].as_str())
                    .map_or(index.to_string(), str::to_owned)
            };
            all.iter()
                .enumerate()
                .for_each(|(index, value)| flatten(below(&name(value, index)), value, found));
        }
        Value::Array(all) => {
            let texts = all.iter().map(text).collect::<Vec<_>>().join(", ");
            _ = (!texts.is_empty()).then(|| found.insert(path, texts));
        }
        other => {
            let text = text(other);
            _ = found.insert(path, if text.is_empty() { NONE.to_owned() } else { text });
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Keeps of command lines only the words that not all of them have.
fn own_words(difference: &mut FactDifference) {
    let words = |line: &Option<String>| -> BTreeSet<String> {
        line.iter().flat_map(|line| line.split_whitespace()).map(str::to_owned).collect()
    };
    let all: Vec<BTreeSet<String>> = difference.values.iter().map(words).collect();
    for value in &mut difference.values {
        let is_own = |word: &&str| !all.iter().all(|words| words.contains(*word));
        let own = |line: &String| line.split_whitespace().filter(is_own).collect::<Vec<_>>().join(" ");
        *value = value.as_ref().map(own).filter(|own| !own.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_comes_first_and_only_what_differs_is_listed() {
        let mut old = Facts::default();
        old.kernel.release = "6.12".to_owned();
        old.kernel.command_line = "root=/dev/sda quiet".to_owned();
        old.host = "bench".to_owned();
        let mut new = old.clone();
        new.kernel.release = "7.0".to_owned();
        new.kernel.command_line = "root=/dev/sda isolcpus=1 quiet".to_owned();
        new.settings.watchdog = Some(false);
        new.memory.available_bytes = Some(1);
        new.environment.hypervisor = Some("kvm".to_owned());
        new.kernel.mitigations = vec![("meltdown".to_owned(), "Vulnerable".to_owned())];
        let plan = plan();
        let side = |facts| Described { facts, plan: Some(&plan), cell: None, command: None };
        let (found, unknown) = differences(&[side(&old), side(&new)]);
        assert_eq!(
            lines(&found),
            [
                "kernel.release: 6.12, 7.0",
                "kernel.command_line: -, isolcpus=1",
                "environment.hypervisor: none, kvm"
            ]
        );
        assert_eq!(
            lines(&unknown),
            ["kernel.mitigations.meltdown: -, Vulnerable", "settings.watchdog: -, false"]
        );
    }

    #[test]
    fn what_another_tool_does_not_say_is_no_difference() {
        let mut own = Facts::default();
        own.kernel.release = "7.0".to_owned();
        own.privileges.root = true;
        let mut foreign = Facts::default();
        foreign.kernel.release = "6.12".to_owned();
        let plan = plan();
        let sides = [
            Described { facts: &foreign, plan: None, cell: None, command: None },
            Described { facts: &own, plan: Some(&plan), cell: None, command: None },
        ];
        let (found, unknown) = differences(&sides);
        assert_eq!(lines(&found), ["kernel.release: 6.12, 7.0"]);
        let unknown = lines(&unknown);
        assert!(
            ["privileges.root: -, true".to_owned(), "plan: -, x".to_owned()]
                .iter()
                .all(|it| unknown.contains(it)),
            "{unknown:?}"
        );
        assert!(!unknown.iter().any(|it| it.starts_with("plan.")), "{unknown:?}");
    }

    #[test]
    fn results_of_another_tool_differ_by_its_command_line() {
        let facts = Facts::default();
        let side = |command| Described { facts: &facts, plan: None, cell: None, command: Some(command) };
        let (found, _) = differences(&[side("cyclictest -i 200 -p 95"), side("cyclictest -i 2000 -p 10")]);
        assert_eq!(
            lines(&found),
            ["command line of the tool: cyclictest -i 200 -p 95, cyclictest -i 2000 -p 10"]
        );
        assert!(differences(&[side("oslat"), side("oslat")]).0.is_empty());
    }

    #[test]
    fn cells_of_one_run_differ_by_what_was_done_in_them() {
        let (facts, plan) = (Facts::default(), plan());
        let idle = CellResult::default();
        let loaded = CellResult { loads: vec!["l3".to_owned(), "gpu".to_owned()], ..CellResult::default() };
        let side = |cell| Described { facts: &facts, plan: Some(&plan), cell: Some(cell), command: None };
        let (found, unknown) = differences(&[side(&idle), side(&loaded)]);
        assert_eq!((lines(&found), unknown.len()), (vec!["cell.loads: none, l3, gpu".to_owned()], 0));
    }

    fn plan() -> Plan {
        Plan::named("x")
    }

    fn lines(all: &[FactDifference]) -> Vec<String> {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        all.iter()
            .map(|it| format!("{}: {}", it.what, it.values.iter().map(value).collect::<Vec<_>>().join(", ")))
            .collect()
    }
}
