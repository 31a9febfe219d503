//! Reports as one self-contained HTML file: it contains styles, scripts and data, and makes no network requests.
//!
//! Only this source contains markup ([`Html::raw`] and [`Html::fill`] take nothing else); [`Html::text`] escapes
//! every text of a result. The charts' data is JSON in which `<`, `>` and `&` are written as escapes, so that no name
//! can end its script element.

mod cards;
mod frame;
mod pictures;

use super::{bars, plain, words};
use crate::charts::Chart;
use crate::section::{Block, Depth, Item, Page, Row, Section, Span, Table, Text, Tone, different};
use frame::BOX_HEADS;
pub use frame::{Field, Form, Frame, Value as FieldValue};
use pictures::{FIGURE, FOLDED, FOLDED_MEANING};
use serde_json::{Value, json};
use whylate_core::Warning;
use whylate_core::result::{CauseClass, CauseKind};

const STYLE: &str = include_str!("page.css");
const CARDS_STYLE: &str = include_str!("cards.css");
const SVG_SCRIPT: &str = include_str!("svg.js");
const CHART_SCRIPT: &str = include_str!("charts.js");
const TIMELINE_SCRIPT: &str = include_str!("timeline.js");
// uPlot 1.6.32, unchanged; see assets/README.md.
const PLOT_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const PLOT_SCRIPT: &str = include_str!("../../assets/uPlot.iife.min.js");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The width of texts in a text-mode histogram.
const TEXT_WIDTH: usize = 100;
/// A table with this number of columns takes the whole width.
const WIDE_COLUMNS: usize = 10;
/// Columns of less importance do not fit on a phone.
const SIDE: u8 = 4;

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="whylate {}">
<title>{}{} - whylate</title>
"#;
const VERDICT: &str =
    r#"<p class="verdict {}"><strong><span aria-hidden="true">{}</span> {}</strong> <span>"#;

const MEANING: &str = "<span class=\"meaning\">{}</span></h2>\n";
/// A section that paper leaves out.
const MORE: &str = "<section id=\"{}\" class=\"more\">\n<h2>";

/// The page, with the frame of a web server if there is one.
pub(super) fn page(page: &Page, frame: Option<&Frame>) -> String {
    let mut body = Html::default();
    frame.into_iter().for_each(|frame| body.frame(frame));
    body.header(page);
    body.raw("<main>\n");
    page.sections.iter().for_each(|section| body.section(section, 0));
    body.raw("</main>\n");
    let mut html = Html::default();
    let verdict = page.verdict.as_ref().map(|verdict| format!(": {}", verdict.word)).unwrap_or_default();
    let title = Text::from(&*page.title).words();
    // The part of a sentence before its reason: a tab has little room.
    let short = title.split(": ").next().filter(|_| page.verdict.is_none()).unwrap_or(&title);
    html.fill(HEAD, &[VERSION, short, &verdict]);
    html.asset("style", if body.charts.is_empty() { "" } else { PLOT_STYLE }).asset("style", STYLE);
    html.asset("style", if body.has_cards { CARDS_STYLE } else { "" });
    html.raw("</head>\n<body>\n").text.push_str(&body.text);
    html.fill("<footer>Made by whylate {}.", &[VERSION]);
    if body.charts.is_empty() {
        html.raw("</footer>\n");
    } else {
        html.raw(
            " Charts: uPlot 1.6.32 (MIT).</footer>\n<noscript><p class=\"note\">The charts need JavaScript; ",
        );
        html.raw("every figure is in the tables.</p></noscript>\n");
        html.raw("<script type=\"application/json\" id=\"chart-data\">")
            .text
            .push_str(&script_json(&json!(body.charts)));
        html.raw("</script>\n");
        [PLOT_SCRIPT, SVG_SCRIPT, CHART_SCRIPT]
            .into_iter()
            .for_each(|script| _ = html.asset("script", script));
    }
    html.asset("script", if body.has_timeline { TIMELINE_SCRIPT } else { "" });
    html.asset("script", frame.map_or("", Frame::script)).raw("</body>\n</html>\n");
    html.text
}

/// JSON that is safe inside a script element.
fn script_json(value: &Value) -> String {
    let mut escaped = String::new();
    for c in value.to_string().chars() {
        match c {
            // U+2028 and U+2029 end a line in JavaScript, but not in JSON.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[derive(Default)]
struct Html<'p> {
    text: String,
    /// The data of the charts so far.
    charts: Vec<&'p Value>,
    has_timeline: bool,
    has_cards: bool,
}

impl<'p> Html<'p> {
    /// Markup that is never made from a result.
    fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Markup with texts in place of each `{}`.
    fn fill(&mut self, markup: &'static str, texts: &[&str]) -> &mut Self {
        let mut texts = texts.iter();
        let mut markup = markup.split("{}");
        self.raw(markup.next().unwrap_or_default());
        for markup in markup {
            self.text(texts.next().copied().unwrap_or_default()).raw(markup);
        }
        self
    }

    /// Escaped text, for an element or an attribute.
    fn text(&mut self, text: &str) -> &mut Self {
        for c in plain(text).chars() {
            match c {
                '&' => self.text.push_str("&amp;"),
                '<' => self.text.push_str("&lt;"),
                '>' => self.text.push_str("&gt;"),
                '"' => self.text.push_str("&quot;"),
                '\'' => self.text.push_str("&#x27;"),
                c => self.text.push(c),
            }
        }
        self
    }

    fn words(&mut self, text: &Text) -> &mut Self {
        for span in &text.0 {
            match span {
                Span::Plain(text) => self.text(text),
                Span::Code(text) => self.fill("<code>{}</code>", &[text]),
                Span::Whole(text) => self.fill("<span class=\"whole\">{}</span>", &[text]),
                Span::Swatch(kind) => self.fill("<i class=\"swatch {}\"></i> ", &[class(*kind)]),
            };
        }
        self
    }

    /// A style or script; left out if it is empty.
    fn asset(&mut self, element: &'static str, content: &'static str) -> &mut Self {
        if !content.is_empty() {
            self.fill("<{}>", &[element]).raw(content).fill("</{}>\n", &[element]);
        }
        self
    }

    fn header(&mut self, page: &Page) {
        self.fill("<header>\n<p class=\"kicker\">{}</p>\n", &[&page.origin]);
        let begin = if page.verdict.is_some() { "<h1>" } else { "<h1 class=\"sentence\">" };
        self.raw(begin).words(&Text::from(&*page.title)).raw("</h1>\n");
        if let Some(question) = &page.question {
            self.raw("<p class=\"question\">").words(&Text::from(question.as_str())).raw("</p>\n");
        }
        if let Some(verdict) = &page.verdict {
            let symbol = match verdict.tone {
                Tone::Good => "✓",
                Tone::Bad => "✗",
                Tone::Warn => "!",
                Tone::Plain | Tone::Soft => "–",
            };
            self.fill(VERDICT, &[tone(verdict.tone), symbol, verdict.word]);
            self.words(&Text::from(&*verdict.reason)).raw("</span></p>\n");
        }
        self.bullets("chips", page.about.iter().flatten());
        self.bullets("failures", page.failures.iter());
        self.raw("</header>\n");
    }

    fn bullets<'t>(&mut self, class: &'static str, texts: impl Iterator<Item = &'t String>) {
        let mut texts = texts.peekable();
        if texts.peek().is_some() {
            self.fill("<ul class=\"{}\">", &[class]);
            texts.for_each(|text| _ = self.raw("<li>").words(&Text::from(text.as_str())).raw("</li>"));
            self.raw("</ul>\n");
        }
    }

    /// A section, `level` headings below the title.
    fn section(&mut self, section: &'p Section, level: usize) {
        let is_folded = !matches!(section.depth, Depth::Main);
        let name = if section.id.is_empty() { &section.title } else { section.id };
        let anchor: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let (begin, meaning, end) = match level {
            0 if section.title.is_empty() && !section.id.is_empty() => ("<div id=\"{}\">\n", "", "</div>\n"),
            _ if section.title.is_empty() => ("", "", ""),
            0 if is_folded => (MORE, MEANING, "</section>\n"),
            0 => ("<section id=\"{}\">\n<h2>", MEANING, "</section>\n"),
            _ if is_folded => (FOLDED, FOLDED_MEANING, "</div></details>\n"),
            _ => ("<article>\n<h3>", "<span class=\"meaning\">{}</span></h3>\n", "</article>\n"),
        };
        self.fill(begin, &[&anchor]).words(&Text::from(&*section.title));
        if let Some((before, after)) = meaning.split_once("{}") {
            self.raw(before).words(&Text::from(section.meaning)).raw(after);
        }
        let level = level + usize::from(!section.title.is_empty());
        section.blocks.iter().for_each(|block| self.block(block, level));
        self.raw(end);
    }

    fn block(&mut self, block: &'p Block, level: usize) {
        match block {
            Block::Text(text, tone) => {
                _ = self.fill("<p class=\"{}\">", &[self::tone(*tone)]).words(text).raw("</p>\n");
            }
            Block::List(items) => self.list(items),
            Block::Warnings(warnings) => self.warnings(warnings),
            Block::Pairs(pairs) => {
                self.raw("<dl class=\"pairs\">");
                pairs
                    .iter()
                    .for_each(|(name, value)| _ = self.fill("<dt>{}</dt><dd>{}</dd>", &[name, value]));
                self.raw("</dl>\n");
            }
            Block::Table(table) => self.table(table),
            Block::Charts(charts) => {
                self.raw("<div class=\"panel\">\n");
                charts.iter().for_each(|chart| self.chart(chart));
                self.raw("</div>\n");
            }
            Block::Shares(shares) => self.shares(shares),
            Block::Forest(forest) => self.forest(forest),
            Block::Flame(flame) => self.flame(flame),
            Block::Cards(cards) => self.cards(cards),
            Block::Bars(all) => self.lines(bars::lines(all, TEXT_WIDTH).iter().map(words)),
            Block::Timeline(timeline) => self.timeline(timeline),
            Block::Lines(lines) => self.lines(lines.iter().cloned()),
            Block::Part(part) | Block::Aside(part) => self.section(part, level),
        }
    }

    fn lines(&mut self, lines: impl Iterator<Item = String>) {
        self.raw("<pre>");
        lines.for_each(|line| _ = self.text(&line).raw("\n"));
        self.raw("</pre>\n");
    }

    fn list(&mut self, items: &[Item]) {
        let has_symbols = items.iter().any(|item| !item.symbol.is_empty());
        self.raw(if has_symbols { "<ul class=\"findings\">\n" } else { "<ul>\n" });
        for item in items {
            self.fill("<li class=\"{}\">", &[tone(item.tone)]);
            if has_symbols {
                // Characters that a terminal font may lack.
                let words = item.text.words().replace(" -> ", " → ").replace(">= ", "≥ ");
                self.fill("<span class=\"symbol\">{}</span> {}", &[item.symbol, &words]);
            } else {
                self.fill("<b>{}</b> <span>", &[item.label]).words(&item.text).raw("</span>");
            }
            for (name, text) in &item.below {
                self.fill("<br><small>{}: ", &[name]).words(&Text::from(text.as_str())).raw("</small>");
            }
            self.raw("</li>\n");
        }
        self.raw("</ul>\n");
    }

    fn warnings(&mut self, warnings: &[Warning]) {
        self.raw("<dl class=\"warnings\">\n");
        for warning in warnings {
            self.fill("<dt><code>{}</code></dt>\n<dd>", &[&warning.code]);
            self.words(&Text::from(warning.text.as_str()));
            warning.fix.iter().for_each(|fix| _ = self.raw("<br><b>Fix:</b> ").words(&Text::from(&**fix)));
            self.raw("</dd>\n");
        }
        self.raw("</dl>\n");
    }

    fn table(&mut self, table: &Table) {
        let used = table.used();
        let is_wide = used.len() >= WIDE_COLUMNS;
        let class = |column: usize| match &table.columns[column] {
            column if column.is_text && column.importance < SIDE => "side",
            column if column.is_text && is_wide => "name",
            column if column.is_text => "",
            column if column.importance == 0 => "number minor",
            column if column.importance < SIDE => "number side",
            _ => "number",
        };
        self.fill(
            "<div class=\"scroll\"><table class=\"{}\">\n<thead><tr>",
            &[if is_wide { "figures" } else { "" }],
        );
        self.raw(if table.rows.iter().any(|row| row.link.is_some()) { BOX_HEADS } else { "" });
        for column in &used {
            let title = &table.columns[*column].title;
            self.fill("<th scope=\"col\" class=\"{}\">{}</th>", &[class(*column), title]);
        }
        self.raw("</tr></thead>\n<tbody>\n");
        for row in &table.rows {
            match (row.is_part, row.anchor.is_empty()) {
                (true, _) => self.raw("<tr class=\"corrected\">"),
                (false, true) => self.raw("<tr>"),
                (false, false) => self.fill("<tr id=\"{}\" tabindex=\"0\">", &[&row.anchor]),
            };
            row.link.iter().for_each(|(_, name)| self.boxes(name));
            used.iter().for_each(|column| self.cell(row, *column, class(*column)));
            self.raw("</tr>\n");
        }
        self.raw("</tbody>\n</table></div>\n");
        let notes = different(used.iter().map(|column| table.columns[*column].note));
        for note in &notes {
            self.raw("<p class=\"note\">").words(&Text::from(note.as_str())).raw("</p>\n");
        }
    }

    fn cell(&mut self, row: &Row, column: usize, class: &'static str) {
        let Some(cell) = row.cells.get(column) else { return };
        match (class, cell.tone) {
            ("", Tone::Plain) => self.raw("<td>"),
            (class, Tone::Bad) => self.fill("<td class=\"{} over\">", &[class]),
            (class, Tone::Warn) => self.fill("<td class=\"{} worst\">", &[class]),
            (class, Tone::Good) => self.fill("<td class=\"{} better\">", &[class]),
            (class, _) => self.fill("<td class=\"{}\">", &[class]),
        };
        match &cell.text {
            Some(text) => match row.link.as_ref().filter(|_| column == 0) {
                Some((address, _)) => self.link(address, text),
                None => _ = self.words(text),
            },
            None if row.is_part => {}
            None => _ = self.raw("<span class=\"missing\">–</span>"),
        }
        for line in &cell.below {
            self.raw("<br><small>").words(&Text::from(line.as_str())).raw("</small>");
        }
        self.raw("</td>");
    }

    fn chart(&mut self, chart: &'p Chart) {
        let (index, class) = (self.charts.len().to_string(), if chart.is_wide { "wide" } else { "" });
        self.charts.push(&chart.data);
        self.fill(FIGURE, &[class, &chart.caption, &chart.hint, &chart.label, &index]);
    }
}

/// The colour of a kind; the words say the same.
fn class(kind: Option<CauseKind>) -> &'static str {
    kind.map_or("switch", |kind| class_of(kind.class()))
}

pub(crate) fn class_of(class: CauseClass) -> &'static str {
    match class {
        CauseClass::Section => "off",
        CauseClass::Interrupt => "irq",
        CauseClass::Thread => "thread",
        CauseClass::Idle => "idle",
        CauseClass::Machine => "machine",
        CauseClass::Scheduler => "throttled",
        CauseClass::Unknown => "unknown",
    }
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warn => "warn",
        Tone::Soft => "note",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_end_its_script_element() {
        let json = script_json(&json!("</script><!-- & \u{2028}"));
        assert_eq!(json, "\"\\u003c/script\\u003e\\u003c!-- \\u0026 \\u2028\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "</script><!-- & \u{2028}");
    }

    #[test]
    fn names_in_headings_are_code_and_a_tab_has_the_start_of_a_sentence() {
        let part = Section::new("", "Of `idle`").depth(Depth::Folded).with(Block::note("x"));
        let page = Page {
            title: "`control` was 3 ms late on CPU 1: a lock held it up".to_owned(),
            sections: vec![Section::new("x", "What was wrong in `idle`").with(part)],
            ..Page::default()
        };
        let html = super::page(&page, None);
        assert!(html.contains("<h2>What was wrong in <code>idle</code><span"), "{html}");
        assert!(html.contains("<summary>Of <code>idle</code> <span"), "{html}");
        assert!(html.contains("<title>control was 3 ms late on CPU 1 - whylate</title>"), "{html}");
        assert!(html.contains("<h1 class=\"sentence\"><code>control</code> was"), "{html}");
    }

    #[test]
    fn no_asset_can_end_its_element() {
        for script in [SVG_SCRIPT, CHART_SCRIPT, TIMELINE_SCRIPT, PLOT_SCRIPT] {
            assert!(!script.to_ascii_lowercase().contains("</script"));
        }
        for style in [STYLE, PLOT_STYLE] {
            assert!(!style.to_ascii_lowercase().contains("</style"));
        }
    }
}
