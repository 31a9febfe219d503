//! What the experiment was made for: its questions, and their answers.

use crate::section::{Depth, Item, Section, Tone};
use whylate_core::result::{Answer, AnswerOutcome, RunResult};

/// Those to the plan's own questions: what the run was made for.
pub(super) fn of_plan(run: &RunResult) -> Vec<Section> {
    if run.plan.answer.is_empty() { Vec::new() } else { section(run, Depth::Main) }
}

/// Those to the questions that stand for comparisons, where the plan has none of its own.
pub(super) fn of_comparisons(run: &RunResult) -> Vec<Section> {
    if run.plan.answer.is_empty() { section(run, Depth::Detail) } else { Vec::new() }
}

fn section(run: &RunResult, depth: Depth) -> Vec<Section> {
    let items: Vec<Item> = run.answers.iter().map(item).collect();
    let section =
        Section::new("answers", "Answers").meaning("between the middle values (medians) of the repeats");
    section.depth(depth).with(items).unless_empty()
}

fn item(answer: &Answer) -> Item {
    let (tone, symbol) = match answer.outcome {
        AnswerOutcome::Yes => (Tone::Good, "✓"),
        AnswerOutcome::No => (Tone::Plain, "✗"),
        AnswerOutcome::CannotTell => (Tone::Warn, "?"),
        AnswerOutcome::NotMeasured => (Tone::Warn, "-"),
    };
    Item { tone, symbol, text: format!("{} {}", answer.question, answer.sentence).into(), ..Item::default() }
}
