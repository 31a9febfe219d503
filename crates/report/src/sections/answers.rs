//! The purpose of the experiment: its questions and their answers.

use crate::section::{Depth, Item, Section, Tone};
use whylate_core::result::{Answer, AnswerOutcome, RunResult};

/// The most unmeasured questions that the first screen lists one by one.
const UNMEASURED_MAX: usize = 2;

/// The answers to the plan's own questions.
pub(super) fn of_plan(run: &RunResult) -> Vec<Section> {
    if run.plan.answer.is_empty() {
        return Vec::new();
    }
    let is_unmeasured = |answer: &&Answer| answer.outcome == AnswerOutcome::NotMeasured;
    let (unmeasured, measured): (Vec<&Answer>, Vec<&Answer>) = run.answers.iter().partition(is_unmeasured);
    if unmeasured.len() <= UNMEASURED_MAX {
        return section(run.answers.iter()).unless_empty().into_iter().collect();
    }
    let text = format!("{} questions have no answer: their cells were not measured.", unmeasured.len());
    let rest = Item { tone: Tone::Warn, symbol: "-", text: text.into(), ..Item::default() };
    let whole = Section::new("unmeasured", "Questions without an answer").depth(Depth::Detail);
    vec![
        section(measured.into_iter()).with(vec![rest]),
        whole.with(unmeasured.into_iter().map(item).collect::<Vec<_>>()),
    ]
}

/// The answers to the questions that comparisons imply, if the plan has none of its own.
pub(super) fn of_comparisons(run: &RunResult) -> Vec<Section> {
    let all = if run.plan.answer.is_empty() { &run.answers[..] } else { &[] };
    section(all.iter()).depth(Depth::Detail).unless_empty().into_iter().collect()
}

fn section<'a>(answers: impl Iterator<Item = &'a Answer>) -> Section {
    let items: Vec<Item> = answers.map(item).collect();
    Section::new("answers", "Answers").meaning("figures are medians over the repeats").with(items)
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
