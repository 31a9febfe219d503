//! The report of `whylate fix`.

use crate::section::{Page, Tone};
use crate::sections::head::not_restored;
use crate::sections::{fix as sections, warnings};
use crate::words::counted;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{FixAnswer, FixMode, FixResult};

pub fn fix(fix: &FixResult) -> Page {
    let registration = &fix.registration;
    let alpha = registration.alpha * 100.0;
    let mut page = Page {
        origin: "whylate fix".to_owned(),
        title: fix.sentence.clone(),
        title_tone: match fix.answer {
            FixAnswer::Proved | FixAnswer::NothingNeeded | FixAnswer::Audited => Tone::Good,
            FixAnswer::Unfinished => Tone::Warn,
            _ => Tone::Plain,
        },
        about: vec![vec![
            format!("goal {}", registration.goal.words()),
            format!("margin {}", registration.margin),
        ]],
        sections: sections::of_fix(fix),
        ..Page::default()
    };
    if fix.answer != FixAnswer::Advised {
        page.about[0].extend([
            format!("{} in {}", counted(fix.repeats, "repeat"), nanoseconds(fix.took_ns)),
            match registration.mode {
                FixMode::Audit => {
                    format!("for each setting, at most {alpha} % of audits give a wrong answer")
                }
                _ => format!("at most {alpha} % of searches make a false claim"),
            },
        ]);
    }
    // The answer is already the title of this page.
    page.sections.retain(|section| section.id != "fix");
    if fix.restored == Some(false) {
        page.failures.push(format!("{} after the search", not_restored(&fix.warnings)));
    }
    page.sections.extend(warnings::section(&fix.warnings));
    page
}
