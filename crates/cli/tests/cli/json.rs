//! Every JSON document matches `whylate schema`.

use crate::fields::{list, word};
use crate::tool::whylate;
use serde_json::Value;

/// Panics if `document` does not match the schema of that name.
pub(crate) fn validate(name: &str, document: &Value) {
    let schema = whylate(&["schema", name]).json();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> =
        validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "not as `whylate schema {name}`: {errors:#?}");
}

#[test]
fn each_name_has_a_schema() {
    let names = whylate(&["schema"]).stdout;
    assert_eq!(
        names.split_whitespace().collect::<Vec<_>>(),
        [&whylate_core::schema::NAMES[..], &["watch"]].concat()
    );
    for name in names.split_whitespace() {
        let schema = whylate(&["schema", name]).json();
        assert!(jsonschema::meta::is_valid(&schema), "{name}");
        assert!(!word(&schema, "title").is_empty());
        let wrong = serde_json::json!({ "format": 3 });
        assert!(!jsonschema::validator_for(&schema).unwrap().is_valid(&wrong), "{name} takes anything");
    }
}

#[test]
fn plans_are_listed_and_printed() {
    let plans = whylate(&["plans", "--json"]).json();
    validate("plans", &plans);
    assert_eq!(word(&plans, "format"), "whylate.plans/1");
    let names: Vec<&str> = list(&plans, "plans").iter().map(|plan| word(plan, "name")).collect();
    let cases = ["graphics", "interrupts", "gpu-buffers", "cache-modes", "framebuffer"];
    assert_eq!(names, [["quick", "memory-load"].as_slice(), &cases, &["loaded-latency"]].concat());
    for name in names {
        let plan = whylate(&["plans", name, "--json"]).json();
        assert_eq!(word(&plan, "name"), name);
        validate("plan", &plan);
    }
}
