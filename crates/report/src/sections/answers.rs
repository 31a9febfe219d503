//! What the experiment was made for: its questions, and their answers.

use crate::section::{Depth, Item, Section, Tone};
use whylate_core::result::{Answer, AnswerOutcome, RunResult};

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let items: Vec<Item> = run.answers.iter().map(item).collect();
    let section =
        Section::new("answers", "Answers").meaning("between the middle values (medians) of the repeats");
    // Questions of the plan's own are what the run was made for; the others only name its comparisons.
    let depth = if run.plan.answer.is_empty() { Depth::Detail } else { Depth::Main };
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
