//! The plans that come with whylate.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltinPlan {
    pub name: &'static str,
    pub text: &'static str,
}

/// All of them, the default first.
pub const ALL: &[BuiltinPlan] = &[
    BuiltinPlan { name: "quick", text: include_str!("../../../../plans/quick.toml") },
    BuiltinPlan { name: "memory-load", text: include_str!("../../../../plans/memory-load.toml") },
    BuiltinPlan { name: "graphics", text: include_str!("../../../../plans/graphics.toml") },
    BuiltinPlan { name: "interrupts", text: include_str!("../../../../plans/interrupts.toml") },
    BuiltinPlan { name: "gpu-buffers", text: include_str!("../../../../plans/gpu-buffers.toml") },
    BuiltinPlan { name: "cache-modes", text: include_str!("../../../../plans/cache-modes.toml") },
    BuiltinPlan { name: "framebuffer", text: include_str!("../../../../plans/framebuffer.toml") },
    BuiltinPlan { name: "loaded-latency", text: include_str!("../../../../plans/loaded-latency.toml") },
];

pub fn find(name: &str) -> Option<BuiltinPlan> {
    ALL.iter().copied().find(|plan| plan.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Source};

    #[test]
    fn every_builtin_plan_parses_and_bears_its_name() {
        for builtin in ALL {
            let plan = Plan::parse(&Source { name: builtin.name, text: builtin.text }, &[]).unwrap();
            assert_eq!(plan.name, builtin.name);
            assert!(plan.question.is_some(), "{} asks nothing", builtin.name);
        }
    }

    #[test]
    fn every_builtin_plan_has_a_short_form_of_less_than_90_seconds() {
        for builtin in ALL {
            let short = Plan::parse_short(&Source { name: builtin.name, text: builtin.text }, &[]).unwrap();
            let repeats = u64::from(short.repeats) * short.cell.len() as u64;
            let seconds = (short.repeat_duration().0 * repeats) as f64 / 1e9;
            assert!(seconds < 90.0, "{}: {seconds} s", builtin.name);
            let whole = Plan::parse(&Source { name: builtin.name, text: builtin.text }, &[]).unwrap();
            assert!(short.repeats < whole.repeats || short.duration < whole.duration);
            assert_eq!(short.cell, whole.cell);
        }
    }

    #[test]
    fn the_quick_plan_takes_less_than_a_minute() {
        let quick = find("quick").unwrap();
        let plan = Plan::parse(&Source { name: "quick", text: quick.text }, &[]).unwrap();
        let repeats = u64::from(plan.repeats) * plan.cell.len() as u64;
        assert!(plan.repeat_duration().0 * repeats < 60_000_000_000);
    }
}
