//! The right answer for a trace: what was planted and when, as the planter says.

use super::recipe::{Function, Planter, Recipe, Recording};
use crate::plant::Stall;

/// If nothing was planted in a trace, latencies above this are late.
const THRESHOLD_OF_NOTHING: &str = "1ms";

/// The text of `FILE.expected.toml`.
pub(super) fn text(
    recipe: &Recipe,
    recording: Recording,
    kernel: &str,
    stall: Option<&Stall>,
    irq_thread: &str,
) -> String {
    let mut lines = vec![format!("# Linux {kernel}: {}.", recipe.what)];
    let (Some(kind), Some(stall)) = (recipe.kind, stall) else {
        lines.push(format!("threshold = \"{THRESHOLD_OF_NOTHING}\"\n\n[expect]\nnone = true\n"));
        return lines.join("\n");
    };
    if let Some(task) = recipe.task {
        lines.push(format!("task = \"{task}\""));
    }
    lines.push(format!("\n[expect]\nkind = \"{kind}\""));
    if let Some(actor) = recipe.actor {
        lines.push(format!("actor = \"{}\"", actor.replace("IRQ_THREAD", irq_thread)));
    }
    let traced = recording == Recording::Functions;
    let function = match recipe.function {
        Function::Always(function) => Some(function),
        Function::Traced(function) if traced => Some(function),
        _ => None,
    };
    if let Some(function) = function {
        lines.push(format!("function = \"{function}\""));
    }
    if !matches!(recipe.planter, Planter::Freeze(_)) {
        lines.push(format!("cpu = {}", recipe.cpu));
    }
    lines.push(format!("planted_ns = [{}, {}]\n", stall.begin_ns, stall.end_ns));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::recipe::RECIPES;
    use super::*;

    #[test]
    fn a_function_is_expected_where_the_recording_can_name_it() {
        let recipe = RECIPES.iter().find(|recipe| recipe.name == "rt-thread").unwrap();
        let log = "cause=rt-thread function=plant_rt_thread_stall cpu=0 begin_ns=5 end_ns=12 events=1";
        let stall = Stall::read(log).unwrap().remove(0);
        let answer = |recording| text(recipe, recording, "6.1", Some(&stall), "");
        assert!(answer(Recording::Functions).contains("function = \"plant_rt_thread_stall\""));
        assert!(!answer(Recording::Events).contains("function"));
        assert!(answer(Recording::Events).contains("planted_ns = [5, 12]"));
        assert!(text(recipe, Recording::Events, "6.1", None, "").contains("none = true"));
    }
}
