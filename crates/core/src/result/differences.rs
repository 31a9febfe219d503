//! What differs between machines and plans, fact by fact.

use super::FactDifference;
use crate::facts::Facts;
use crate::plan::Plan;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What explains a difference most often is first; what is not named here is last, by its name.
const FIRST: [&str; 12] = [
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

/// What changes from moment to moment, follows from something else, or is a list of everything.
const LEFT_OUT: [&str; 7] = [
    "memory.available_bytes",
    "privileges.lockable_bytes",
    "kernel.boot_id",
    "plan.seed",
    "plan.cell",
    "plan.answer",
    "plan.question",
];

/// The facts and plans that are not the same on every side, the likeliest reasons first.
pub fn differences(sides: &[(&Facts, Option<&Plan>)]) -> Vec<FactDifference> {
    let of_side: Vec<BTreeMap<String, String>> =
        sides.iter().map(|(facts, plan)| all(facts, *plan)).collect();
    let names: BTreeSet<&String> = of_side.iter().flat_map(BTreeMap::keys).collect();
    let values = |name: &String| -> Vec<Option<String>> {
        of_side.iter().map(|side| side.get(name).cloned()).collect()
    };
    let differs = |name: &&String| values(name).windows(2).any(|pair| pair[0] != pair[1]);
    let mut found: Vec<FactDifference> = names
        .into_iter()
        .filter(differs)
        .map(|name| FactDifference { what: name.clone(), values: values(name) })
        .collect();
    found.iter_mut().filter(|it| it.what == "kernel.command_line").for_each(own_words);
    let place = |name: &str| FIRST.iter().position(|first| name.starts_with(first)).unwrap_or(FIRST.len());
    found.sort_by_key(|it| place(&it.what));
    found
}

fn all(facts: &Facts, plan: Option<&Plan>) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut document = serde_json::to_value(facts).unwrap_or_default();
    if let Some(map) = document.as_object_mut() {
        map.remove("cpus");
        // What a device does changes from moment to moment.
        for gpu in map.get_mut("gpus").and_then(Value::as_array_mut).into_iter().flatten() {
            gpu.as_object_mut().map(|gpu| gpu.remove("usage"));
        }
        map.insert(
            "plan".to_owned(),
            plan.and_then(|plan| serde_json::to_value(plan).ok()).unwrap_or_default(),
        );
    }
    let target = plan.and_then(|plan| {
        facts.cpus.iter().find(|cpu| plan.target.cpus.to_string().contains(&cpu.cpu.to_string()))
    });
    let governor = target.or(facts.cpus.last()).and_then(|cpu| cpu.governor.clone());
    found.extend(governor.map(|governor| ("settings.governor".to_owned(), governor)));
    flatten(String::new(), &document, &mut found);
    found
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
        other => _ = (!text(other).is_empty()).then(|| found.insert(path, text(other))),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Of command lines only the words that not all of them have.
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
    fn the_kernel_comes_first_and_only_what_differs_is_told() {
        let mut old = Facts::default();
        old.kernel.release = "6.12".to_owned();
        old.kernel.command_line = "root=/dev/sda quiet".to_owned();
        old.host = "bench".to_owned();
        let mut new = old.clone();
        new.kernel.release = "7.0".to_owned();
        new.kernel.command_line = "root=/dev/sda isolcpus=1 quiet".to_owned();
        new.settings.watchdog = Some(false);
        new.memory.available_bytes = Some(1);
        let found = differences(&[(&old, None), (&new, None)]);
        let told: Vec<(&str, &[Option<String>])> =
            found.iter().map(|it| (it.what.as_str(), &*it.values)).collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(told[0], ("kernel.release", &[some("6.12"), some("7.0")][..]));
        assert_eq!(told[1], ("kernel.command_line", &[None, some("isolcpus=1")][..]));
        assert_eq!(told[2], ("settings.watchdog", &[None, some("false")][..]));
        assert_eq!(told.len(), 3);
    }
}
