//! Pages of the field guide: one for each kind of cause, written as Markdown in `docs/causes`.

use crate::section::{Block, Item, Page, Section, Tone};
use whylate_core::result::CauseKind;

/// A kind of cause: what it is, how it shows, how to confirm it with another tool, and what cures it.
pub fn guide(kind: CauseKind) -> Page {
    let title = kind.guide().lines().next().unwrap_or_default().trim_start_matches("# ");
    Page {
        origin: format!("whylate explain --why {kind}"),
        title: title.to_owned(),
        sections: sections(kind),
        ..Page::default()
    }
}

/// A page of the field guide that is not about a cause, from its Markdown.
pub fn guide_text(origin: String, markdown: &str) -> Page {
    let title = markdown.lines().next().unwrap_or_default().trim_start_matches("# ").to_owned();
    Page { origin, title, sections: sections_of(markdown), ..Page::default() }
}

pub(crate) fn sections(kind: CauseKind) -> Vec<Section> {
    sections_of(kind.guide())
}

fn sections_of(markdown: &str) -> Vec<Section> {
    let part = |text: &str| {
        let (title, body) = text.split_once('\n').unwrap_or((text, ""));
        Section::new("", title).with_all(blocks(body))
    };
    markdown.split("\n## ").skip(1).map(part).collect()
}

/// Paragraphs, lists, and fenced lines, which stay unchanged.
fn blocks(body: &str) -> Vec<Block> {
    let parts = body.split("```").enumerate();
    let blocks = parts.flat_map(|(index, part)| match index % 2 {
        0 => part.split("\n\n").map(str::trim).filter(|text| !text.is_empty()).map(paragraph).collect(),
        _ => vec![Block::Lines(part.lines().skip(1).map(|line| format!("  {line}")).collect())],
    });
    blocks.collect()
}

fn paragraph(text: &str) -> Block {
    match text.strip_prefix("- ") {
        Some(items) => Block::List(items.split("\n- ").map(|item| Item::from(unlinked(item))).collect()),
        None => Block::Text(unlinked(text).into(), Tone::Plain),
    }
}

/// Removes the targets of links: `see [smi](smi.md)` becomes `see smi`.
fn unlinked(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(open) = plain.rfind('[') {
            plain.remove(open);
        }
        plain.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Style;
    use whylate_testing::says;

    #[test]
    fn a_link_is_its_words() {
        assert!(says("see-smi-steal-or", unlinked("see [smi](smi.md), [steal](steal.md) or [x]")));
        assert_eq!(unlinked("no link"), "no link");
    }

    #[test]
    fn every_page_reads_well_in_80_columns() {
        for kind in CauseKind::ALL {
            let text = guide(kind).terminal(Style { color: false, width: 80 });
            assert!(text.starts_with(&format!("{kind}: ")), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            // No Markdown is left, and no text is lost.
            assert!(!text.contains("```") && !text.contains("](") && !text.contains("\n## "), "{text}");
            let words = |text: &str| text.split_whitespace().map(str::len).sum::<usize>();
            assert!(words(&text) * 10 > words(kind.guide()) * 9, "{text}");
        }
    }
}
