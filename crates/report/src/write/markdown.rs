//! Reports in GitHub's Markdown. Every text goes through [`escape`], or through [`code`] or [`block`], which fence
//! it.

use super::{MISSING, bars, plain, shares, table::Line, timeline, words};
use crate::section::{
    Block, Cell, Column, Depth, Item, Page, Row, Section, Span, Table, Text, Tone, different,
};
use whylate_core::Warning;

/// Width of timelines and histograms.
const WIDTH: usize = 100;

pub(super) fn page(page: &Page) -> String {
    let title = match &page.verdict {
        Some(verdict) => {
            let mark = match verdict.tone {
                Tone::Good => "✅",
                Tone::Bad => "❌",
                Tone::Warn => "⚠️",
                Tone::Plain | Tone::Soft => "ℹ️",
            };
            format!("### {mark} {}: {}\n\n{}", verdict.word, marked(&page.title), marked(&verdict.reason))
        }
        None => format!("### {}", marked(&page.title)),
    };
    let mut parts = vec![title];
    parts.extend(page.question.as_ref().map(|question| format!("> {}", marked(question))));
    parts.extend(list(page.failures.iter().map(|failure| marked(failure))));
    parts.extend(list(page.about.iter().map(|parts| escape(&parts.join(" · ")))));
    parts.extend(page.sections.iter().filter_map(|part| section(part, 0)));
    parts.join("\n\n") + "\n"
}

/// A section, `depth` headings below the title.
fn section(section: &Section, depth: usize) -> Option<String> {
    let own = usize::from(!section.title.is_empty());
    let inner = section.blocks.iter().filter_map(|part| block(part, depth + own)).collect::<Vec<_>>();
    let inner = (!inner.is_empty()).then(|| inner.join("\n\n"))?;
    let meaning = if section.meaning.is_empty() { String::new() } else { format!(": {}", section.meaning) };
    Some(match &section.depth {
        Depth::Brief(line) => folded(line, &inner),
        Depth::Folded | Depth::Detail => folded(&format!("{}{meaning}", section.title), &inner),
        Depth::Main if own == 0 => inner,
        Depth::Main if depth == 0 => {
            format!("#### {}{}\n\n{inner}", marked(&section.title), marked(&meaning))
        }
        Depth::Main => format!("**{}**{}\n\n{inner}", marked(&section.title), marked(&meaning)),
    })
}

/// The summary is HTML, where Markdown has no effect.
fn folded(summary: &str, inner: &str) -> String {
    let escaped =
        |text: &str| plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('@', "@\u{200b}");
    let span = |span: &Span| match span {
        Span::Code(text) => format!("<code>{}</code>", escaped(text)),
        Span::Plain(text) | Span::Whole(text) => escaped(text),
        Span::Swatch(_) => String::new(),
    };
    let summary: String = Text::from(summary).0.iter().map(span).collect();
    format!("<details><summary>{summary}</summary>\n\n{inner}\n\n</details>")
}

fn block(block: &Block, depth: usize) -> Option<String> {
    match block {
        Block::Text(words, _) => Some(text(words)),
        Block::List(items) => list(items.iter().map(item)),
        Block::Warnings(warnings) => list(warnings.iter().map(warning)),
        Block::Pairs(pairs) => {
            list(pairs.iter().map(|(name, value)| format!("{}: {}", escape(name), escape(value))))
        }
        Block::Table(table) => Some(self::table(table)),
        Block::Charts(_) | Block::Forest(_) | Block::Flame(_) | Block::Cards(_) | Block::Aside(_) => None,
        Block::Shares(all) => Some(drawn(&shares::lines(all, WIDTH))),
        Block::Bars(all) => Some(drawn(&bars::lines(all, WIDTH))),
        Block::Timeline(all) => Some(drawn(&timeline::lines(all, WIDTH))),
        Block::Lines(lines) => Some(fenced(lines.iter().map(String::as_str))),
        Block::Part(part) => section(part, depth),
    }
}

/// A list of items that are already Markdown; `None` if there are none.
fn list(items: impl Iterator<Item = String>) -> Option<String> {
    let lines: Vec<String> = items.map(|item| format!("- {item}")).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn item(item: &Item) -> String {
    let label = if item.label.is_empty() { String::new() } else { format!("**{}**: ", escape(item.label)) };
    let words = match item.tone {
        Tone::Good | Tone::Bad if label.is_empty() => format!("**{}**", text(&item.text)),
        _ => text(&item.text),
    };
    let below = item.below.iter().map(|(name, text)| format!("<br>{name}: {}", marked(text)));
    format!("{label}{words}{}", below.collect::<String>())
}

fn warning(warning: &Warning) -> String {
    let fix = warning.fix.as_ref().map(|fix| format!("<br>Fix: {}", marked(fix))).unwrap_or_default();
    format!("**{}**: {}{fix}", escape(&warning.code), marked(&warning.text))
}

fn table(table: &Table) -> String {
    let columns: Vec<usize> = table.used();
    let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let each = |of: &dyn Fn(&Column) -> String| {
        row(columns.iter().map(|column| of(&table.columns[*column])).collect())
    };
    let mut lines = vec![
        each(&|column| escape(&column.title)),
        each(&|column| if column.is_text { ":--" } else { "--:" }.to_owned()),
    ];
    lines.extend(table.rows.iter().map(|one| row(columns.iter().map(|column| cell(one, *column)).collect())));
    let notes = different(columns.iter().map(|column| table.columns[*column].note));
    lines.extend(notes.iter().map(|note| format!("\n{}", marked(note))));
    lines.join("\n")
}

fn cell(row: &Row, column: usize) -> String {
    let none = Cell::default();
    let cell = row.cells.get(column).unwrap_or(&none);
    let Some(words) = &cell.text else {
        return if row.is_part { String::new() } else { MISSING.to_owned() };
    };
    // A bar ends the cell, even within code, unless it is escaped.
    let barred = |text: String| text.replace("\\|", "|").replace('|', "\\|");
    let below: String = cell.below.iter().map(|line| format!("<br>{}", barred(marked(line)))).collect();
    let words = barred(text(words));
    match (words, cell.tone) {
        (text, _) if row.is_part && row.first() == Some(column) => format!("↳ *{text}*{below}"),
        (text, Tone::Bad) => format!("**{text}**{below}"),
        (text, _) => format!("{text}{below}"),
    }
}

fn marked(words: &str) -> String {
    text(&Text::from(words))
}

fn text(text: &Text) -> String {
    let span = |span: &Span| match span {
        Span::Plain(text) | Span::Whole(text) => escape(text),
        Span::Code(text) => code(text),
        Span::Swatch(_) => String::new(),
    };
    text.0.iter().map(span).collect()
}

fn drawn(lines: &[Line]) -> String {
    let lines: Vec<String> = lines.iter().map(words).collect();
    fenced(lines.iter().map(String::as_str))
}

/// Lines as they are; the fence is longer than any run of backticks in them.
fn fenced<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let lines: Vec<String> = lines.map(|line| plain(line.trim_end())).collect();
    let fence = "`".repeat(longest_ticks(&lines.join("\n")).max(2) + 1);
    format!("{fence}\n{}\n{fence}", lines.join("\n"))
}

/// A code span; the fence is longer than any run of backticks in the text.
fn code(text: &str) -> String {
    let text = plain(text);
    let longest = longest_ticks(&text);
    let fence = "`".repeat(longest + 1);
    let pad = if longest > 0 || text.is_empty() { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

fn longest_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Text without effect as Markdown or HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => {
                escaped.push('\\');
                escaped.push(c);
            }
            // Prevents GitHub from reading it as a mention or as a link to an issue.
            '@' => escaped.push_str("@\u{200b}"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_name_is_markup() {
        assert_eq!(escape("a|b<img>*x*\n`c`"), "a\\|b&lt;img>\\*x\\* \\`c\\`");
        assert_eq!(code("a ``b"), "``` a ``b ```");
        assert_eq!(code("quiet"), "`quiet`");
        assert_eq!(fenced(["a ```` b"].into_iter()), "`````\na ```` b\n`````");
        assert_eq!(folded("a</summary>_b_", "c").lines().next().unwrap().matches("</summary>").count(), 1);
    }
}
