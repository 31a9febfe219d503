//! The short form of a plan, keys of a whole kind, optional treatments, cells without causes.

use whylate_core::plan::{LoadKind, Plan, Source};
use whylate_core::units::Nanos;
use whylate_testing::says;

const PLAN: &str = r#"name = "p"
duration = "60s"
causes = true
[[probe]]
kind = "timer"
[[load]]
name = "a"
kind = "framebuffer"
[[load]]
name = "b"
kind = "framebuffer"
variant = "sfence"
[[load]]
name = "text"
kind = "console"
[[treatment]]
name = "fast"
kind = "governor"
governor = "performance"
optional = true
[[cell]]
treatments = ["fast"]
[[cell]]
name = "bare"
causes = false
[short]
duration = "1s"
load.b.rate = "5/s"
load.console.rate = "7/s"
"#;

fn short(text: &str, overrides: &[&str]) -> Result<Plan, String> {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    Plan::parse_short(&Source { name: "plan.toml", text }, &overrides).map_err(|error| error.to_string())
}

fn whole(text: &str, overrides: &[&str]) -> Result<Plan, String> {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    Plan::parse(&Source { name: "plan.toml", text }, &overrides).map_err(|error| error.to_string())
}

fn rates(plan: &Plan) -> Vec<String> {
    let rate = |kind: &LoadKind| match kind {
        LoadKind::Framebuffer(plan) => plan.rate.to_string(),
        LoadKind::Console(plan) => plan.rate.to_string(),
        other => panic!("{}", other.kind()),
    };
    plan.load.iter().map(|load| rate(&load.kind)).collect()
}

#[test]
fn the_short_form_replaces_what_its_section_names_and_nothing_else() {
    let plan = short(PLAN, &[]).unwrap();
    assert_eq!(plan.duration, Nanos::from_secs(1));
    assert_eq!(rates(&plan), ["full", "5/s", "7/s"]);
    let plan = whole(PLAN, &[]).unwrap();
    assert_eq!(plan.duration, Nanos::from_secs(60));
    assert_eq!(rates(&plan), ["full", "full", "full"]);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "a stored plan reads back");
    assert_eq!(short(PLAN, &["duration=2s"]).unwrap().duration, Nanos::from_secs(2));
}

#[test]
fn a_wrong_short_form_is_an_error_with_its_place_in_either_form() {
    let wrong = PLAN.replace("load.b.rate = \"5/s\"", "load.c.rate = \"5/s\"");
    for plan in [short(&wrong, &[]), whole(&wrong, &[])] {
        assert!(says("plan-toml-short-load", plan.unwrap_err()));
    }
    let wrong = PLAN.replace("duration = \"1s\"", "duration = 1");
    assert!(says("plan-toml-duration-has", whole(&wrong, &[]).unwrap_err()));
    let none = PLAN.split("[short]").next().unwrap();
    assert!(whole(none, &[]).is_ok());
    assert!(short(none, &[]).unwrap_err().contains("add a section `[short]`"));
}

#[test]
fn an_override_of_a_kind_reaches_all_of_it() {
    let plan = whole(PLAN, &["load.framebuffer.rate=9/s", "load.text.rate=1/s"]).unwrap();
    assert_eq!(rates(&plan), ["9/s", "9/s", "1/s"]);
}

#[test]
fn drawing_is_allowed_for_every_load_that_asks() {
    let mut plan = whole(PLAN, &[]).unwrap();
    plan.allow_drawing();
    for load in &plan.load {
        assert_eq!(serde_json::to_value(load).unwrap()["yes_draw_on_my_screen"], true, "{}", load.name);
    }
}

#[test]
fn treatments_may_be_optional_and_cells_do_without_causes() {
    let plan = whole(PLAN, &[]).unwrap();
    assert!(plan.treatment[0].optional);
    assert_eq!(plan.cell.iter().map(|cell| cell.causes).collect::<Vec<_>>(), [true, false]);
    let required = PLAN.replace("optional = true\n", "");
    assert!(!whole(&required, &[]).unwrap().treatment[0].optional);
    let wrong = PLAN.replace("optional = true", "optional = 1");
    assert!(whole(&wrong, &[]).unwrap_err().contains("treatment[0].optional"));
}

#[test]
fn writing_through_the_kernel_has_one_variant_and_a_device() {
    let wrong = PLAN.replace("variant = \"sfence\"", "variant = \"sfence\"\nthrough = \"write\"");
    assert!(says("has-variant-as-only", whole(&wrong, &[]).unwrap_err()));
    let wrong = PLAN.replace("variant = \"sfence\"", "through = \"write\"");
    assert!(whole(&wrong, &[]).unwrap_err().contains("needs a device"));
}
