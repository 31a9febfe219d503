//! What the kernel tells, one line for each thing, with what is lost where it does not.

use super::Style;
use super::page::{Colour, Page, clean};
use whylate_core::result::TracingResult;

/// Width of the column of words.
const WORD_WIDTH: usize = 9;

/// The report of `whylate check --tracing`.
pub fn tracing(result: &TracingResult, style: Style) -> String {
    let mut page = Page::new(style);
    let facts = &result.facts;
    let machine = [facts.host.clone(), facts.kernel.release.clone(), facts.processor.model.clone()];
    page.dim_list(&machine.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>());
    page.blank();
    for facility in &result.facilities {
        let (word, colour) =
            if facility.works { ("works", Colour::Green) } else { ("missing", Colour::Yellow) };
        let text = match &facility.reason {
            Some(reason) => format!("{}: {}", clean(&facility.name), clean(reason)),
            None => clean(&facility.name),
        };
        page.labelled(word, &text, WORD_WIDTH, colour);
        for (name, text) in [("effect", &facility.effect), ("fix", &facility.fix)] {
            if let Some(text) = text {
                page.indented(&format!("{name}: {}", clean(text)), WORD_WIDTH + 2);
            }
        }
    }
    let working = result.facilities.iter().filter(|facility| facility.works).count();
    page.blank();
    page.note(&format!("{working} of {} work; each was tried just now.", result.facilities.len()));
    page.finish()
}
