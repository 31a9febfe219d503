//! Reports as one HTML file that needs nothing else: style, scripts and data are in it, and it asks no network.
//!
//! Markup is what stands in this source ([`Html::raw`] takes nothing else); every text of a result is escaped by
//! [`Html::text`]. The charts' data is JSON in which `<`, `>` and `&` are written as escapes, so that no name can end its
//! script element.

use super::{bars, plain};
use crate::ReportError;
use crate::charts::Chart;
use crate::figure::nanoseconds;
use crate::section::{
    Block, Cell, Depth, Item, Page, Row, Section, Span, Table, Text, Timeline, Tone, different,
};
use serde::Serialize;
use whylate_core::Warning;
use whylate_core::result::{CauseClass, CauseKind, TimelineSegment};

const STYLE: &str = include_str!("page.css");
const CHART_SCRIPT: &str = include_str!("charts.js");
const TIMELINE_SCRIPT: &str = include_str!("timeline.js");
// uPlot 1.6.32, unchanged; see assets/README.md.
const PLOT_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const PLOT_SCRIPT: &str = include_str!("../../assets/uPlot.iife.min.js");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Texts in a text-mode histogram are so wide.
const TEXT_WIDTH: usize = 100;
/// A table with as many columns takes the whole width.
const WIDE_COLUMNS: usize = 10;

pub(super) fn page(page: &Page) -> Result<String, ReportError> {
    let mut body = Html::default();
    body.header(page);
    body.raw("<main>\n");
    let is_lead = |section: &&Section| section.depth == Depth::Lead;
    let (lead, others): (Vec<&Section>, Vec<&Section>) = page.sections.iter().partition(is_lead);
    lead.into_iter().chain(others).for_each(|section| body.section(section, 0));
    body.raw("</main>\n");
    let mut html = Html::default();
    html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.raw(
        "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"whylate ",
    );
    html.raw(VERSION).raw("\">\n<title>").text(&page.title);
    if let Some(verdict) = &page.verdict {
        html.raw(": ").text(verdict.word);
    }
    html.raw(" - whylate</title>\n");
    let charts = !body.charts.is_empty();
    html.asset("style", if charts { PLOT_STYLE } else { "" }).asset("style", STYLE);
    html.raw("</head>\n<body>\n");
    html.text.push_str(&body.text);
    html.raw("<footer>Made by whylate ").raw(VERSION);
    html.raw(if charts { ". Charts: uPlot 1.6.32 (MIT).</footer>\n" } else { ".</footer>\n" });
    if charts {
        html.raw("<noscript><p class=\"note\">The charts need JavaScript; every figure is in the tables.</p></noscript>\n");
        html.raw("<script type=\"application/json\" id=\"chart-data\">");
        html.text.push_str(&script_json(&body.charts)?);
        html.raw("</script>\n").asset("script", PLOT_SCRIPT).asset("script", CHART_SCRIPT);
    }
    html.asset("script", if body.has_timeline { TIMELINE_SCRIPT } else { "" });
    html.raw("</body>\n</html>\n");
    Ok(html.text)
}

/// JSON that can stand inside a script element.
fn script_json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(value)?;
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // The last two end lines in JavaScript, though not in JSON.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => escaped.push(c),
        }
    }
    Ok(escaped)
}

#[derive(Default)]
struct Html<'p> {
    text: String,
    charts: Vec<&'p Chart>,
    has_timeline: bool,
}

impl<'p> Html<'p> {
    /// Markup, which is never made from a result.
    fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.text.push_str(markup);
        self
    }

    /// Text in which nothing is markup, in an element or an attribute.
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
                Span::Code(text) => self.raw("<code>").text(text).raw("</code>"),
                Span::Swatch(kind) => self.raw("<i class=\"swatch ").raw(class(*kind)).raw("\"></i> "),
            };
        }
        self
    }

    /// A style or script; none where it is empty.
    fn asset(&mut self, element: &'static str, content: &'static str) -> &mut Self {
        if !content.is_empty() {
            self.raw("<").raw(element).raw(">").raw(content).raw("</").raw(element).raw(">\n");
        }
        self
    }

    fn header(&mut self, page: &Page) {
        self.raw("<header>\n<p class=\"kicker\">").text(&page.origin).raw("</p>\n");
        self.raw(if page.verdict.is_some() { "<h1>" } else { "<h1 class=\"sentence\">" });
        self.text(&page.title).raw("</h1>\n");
        if let Some(question) = &page.question {
            self.raw("<p class=\"question\">").text(question).raw("</p>\n");
        }
        if let Some(verdict) = &page.verdict {
            let symbol = match verdict.tone {
                Tone::Good => "✓",
                Tone::Bad => "✗",
                Tone::Warn => "!",
                Tone::Plain | Tone::Soft => "–",
            };
            self.raw("<p class=\"verdict ").raw(tone(verdict.tone));
            self.raw("\"><strong><span aria-hidden=\"true\">").raw(symbol).raw("</span> ").raw(verdict.word);
            self.raw("</strong> <span>").text(&verdict.reason).raw("</span></p>\n");
        }
        self.bullets("<ul class=\"chips\">", page.about.iter().flatten());
        self.bullets("<ul class=\"failures\">", page.failures.iter());
        self.raw("</header>\n");
    }

    fn bullets<'t>(&mut self, list: &'static str, texts: impl Iterator<Item = &'t String>) {
        let mut texts = texts.peekable();
        if texts.peek().is_some() {
            self.raw(list);
            texts.for_each(|text| _ = self.raw("<li>").text(text).raw("</li>"));
            self.raw("</ul>\n");
        }
    }

    /// A section, `level` headings below the title.
    fn section(&mut self, section: &'p Section, level: usize) {
        let blocks =
            |html: &mut Self, level| section.blocks.iter().for_each(|block| html.block(block, level));
        let heading = |html: &mut Self| {
            html.text(&section.title);
            if !section.meaning.is_empty() {
                html.raw("<span class=\"meaning\">").text(section.meaning).raw("</span>");
            }
        };
        match section.depth {
            _ if section.title.is_empty() => blocks(self, level),
            _ if level == 0 => {
                self.raw("<section id=\"").text(section.id).raw("\">\n<h2>");
                heading(self);
                self.raw("</h2>\n");
                blocks(self, 1);
                self.raw("</section>\n");
            }
            Depth::Folded | Depth::Detail => {
                self.raw("<details><summary>");
                heading(self);
                self.raw("</summary>\n<div class=\"columns\">\n");
                blocks(self, level + 1);
                self.raw("</div></details>\n");
            }
            Depth::Lead | Depth::Main | Depth::Brief(_) => {
                self.raw("<article>\n<h3>");
                heading(self);
                self.raw("</h3>\n");
                blocks(self, level + 1);
                self.raw("</article>\n");
            }
        }
    }

    fn block(&mut self, block: &'p Block, level: usize) {
        match block {
            Block::Text(text, tone) => {
                self.raw("<p class=\"").raw(self::tone(*tone)).raw("\">").words(text).raw("</p>\n");
            }
            Block::Note(text) => _ = self.raw("<p class=\"note\">").words(text).raw("</p>\n"),
            Block::List(items) => self.list(items),
            Block::Warnings(warnings) => self.warnings(warnings),
            Block::Pairs(pairs) => {
                self.raw("<dl class=\"pairs\">");
                for (name, value) in pairs {
                    self.raw("<dt>").text(name).raw("</dt><dd>").text(value).raw("</dd>");
                }
                self.raw("</dl>\n");
            }
            Block::Table(table) => self.table(table),
            Block::Charts(charts) => self.charts(charts),
            Block::Bars(all) => {
                let lines = bars::lines(all, TEXT_WIDTH);
                let text = |line: &super::table::Line| line.iter().map(|(text, _)| text.as_str()).collect();
                self.lines(&lines.iter().map(text).collect::<Vec<String>>());
            }
            Block::Timeline(timeline) => self.timeline(timeline),
            Block::Lines(lines) => self.lines(lines),
            Block::Part(part) => self.section(part, level),
        }
    }

    fn lines(&mut self, lines: &[String]) {
        self.raw("<pre>");
        lines.iter().for_each(|line| _ = self.text(line).raw("\n"));
        self.raw("</pre>\n");
    }

    fn list(&mut self, items: &[Item]) {
        let has_symbols = items.iter().any(|item| !item.symbol.is_empty());
        self.raw(if has_symbols { "<ul class=\"findings\">\n" } else { "<ul>\n" });
        for item in items {
            self.raw("<li class=\"").raw(tone(item.tone)).raw("\">");
            if has_symbols {
                self.raw("<span class=\"symbol\">").raw(item.symbol).raw("</span> ");
                // Signs that a terminal cannot be trusted to have.
                self.text(&item.text.words().replace(" -> ", " → ").replace(">= ", "≥ "));
            } else {
                if !item.label.is_empty() {
                    self.raw("<b>").raw(item.label).raw("</b> ");
                }
                self.words(&item.text);
            }
            for (name, text) in &item.below {
                self.raw("<br><small>").raw(name).raw(": ").text(text).raw("</small>");
            }
            self.raw("</li>\n");
        }
        self.raw("</ul>\n");
    }

    fn warnings(&mut self, warnings: &[Warning]) {
        self.raw("<dl class=\"warnings\">\n");
        for warning in warnings {
            self.raw("<dt><code>").text(&warning.code).raw("</code></dt>\n<dd>").text(&warning.text);
            if let Some(fix) = &warning.fix {
                self.raw("<br><b>Fix:</b> ").text(fix);
            }
            self.raw("</dd>\n");
        }
        self.raw("</dl>\n");
    }

    fn table(&mut self, table: &Table) {
        let used = table.used();
        let is_wide = used.len() >= WIDE_COLUMNS;
        let class = |column: usize| match &table.columns[column] {
            column if column.is_text && is_wide => "name",
            column if column.is_text => "",
            column if column.importance == 0 => "number minor",
            _ => "number",
        };
        self.raw("<div class=\"scroll\"><table").raw(if is_wide { " class=\"figures\"" } else { "" });
        self.raw(">\n<thead><tr>");
        for column in &used {
            self.raw("<th scope=\"col\" class=\"").raw(class(*column)).raw("\">");
            self.text(&table.columns[*column].title).raw("</th>");
        }
        self.raw("</tr></thead>\n<tbody>\n");
        for row in &table.rows {
            self.raw(if row.is_part { "<tr class=\"corrected\">" } else { "<tr>" });
            used.iter().for_each(|column| self.cell(row, *column, class(*column)));
            self.raw("</tr>\n");
        }
        self.raw("</tbody>\n</table></div>\n");
        for note in different(used.iter().map(|column| table.columns[*column].note)) {
            self.raw("<p class=\"note\">").text(&note).raw("</p>\n");
        }
    }

    fn cell(&mut self, row: &Row, column: usize, class: &'static str) {
        let none = Cell::default();
        let cell = row.cells.get(column).unwrap_or(&none);
        let over = if cell.tone == Tone::Bad { " over" } else { "" };
        match (class, over) {
            ("", "") => self.raw("<td>"),
            _ => self.raw("<td class=\"").raw(class).raw(over).raw("\">"),
        };
        match &cell.text {
            Some(text) => _ = self.words(text),
            None if row.is_part => {}
            None => _ = self.raw("<span class=\"missing\">–</span>"),
        }
        for line in &cell.below {
            self.raw("<br><small>").text(line).raw("</small>");
        }
        self.raw("</td>");
    }

    fn charts(&mut self, charts: &'p [Chart]) {
        self.raw("<div class=\"panel\">\n");
        for chart in charts {
            let index = self.charts.len().to_string();
            self.charts.push(chart);
            self.raw(if chart.is_wide() { "<figure class=\"wide\">\n" } else { "<figure>\n" });
            self.raw("<figcaption>").text(&chart.caption).raw(" <small>").text(&chart.hint);
            self.raw("</small></figcaption>\n<div class=\"chart\" role=\"img\" aria-label=\"")
                .text(&chart.label);
            self.raw("\" data-chart=\"").text(&index).raw("\"></div>\n</figure>\n");
        }
        self.raw("</div>\n");
    }

    /// The bars are drawn without scripts; a script makes them zoom.
    fn timeline(&mut self, timeline: &Timeline) {
        self.has_timeline = true;
        self.raw("<div class=\"time\" data-length=\"").text(&timeline.length_ns.to_string()).raw("\">\n");
        for cpu in timeline.cpus() {
            self.raw("<div class=\"row\"><span class=\"cpu\">CPU ").text(&cpu.to_string());
            self.raw("</span><div class=\"lane\">\n");
            let own = timeline.segments.iter().filter(|segment| segment.cpu == cpu);
            own.for_each(|segment| self.segment(segment, timeline));
            self.raw("</div></div>\n");
        }
        self.raw("<div class=\"row axis\"><span class=\"cpu\"></span><div class=\"ticks\"><span>expected</span><span>ran, +");
        self.text(&nanoseconds(timeline.length_ns))
            .raw("</span></div></div>\n<p class=\"note hint\" hidden>");
        self.raw("Wheel or pinch zooms, dragging moves, a double click shows all.</p>\n</div>\n");
    }

    fn segment(&mut self, segment: &TimelineSegment, timeline: &Timeline) {
        let (from, to) = (segment.from_ns, segment.to_ns);
        let percent = |ns: u64| format!("{:.4}", timeline.share(ns) * 100.0);
        let label = match &segment.function {
            Some(function) => format!("{} ({function})", segment.what),
            None => segment.what.clone(),
        };
        let title = format!("{label}: {} from +{}", nanoseconds(to - from), nanoseconds(from));
        self.raw("<div class=\"part ").raw(class(segment.kind));
        self.raw("\" data-from=\"").text(&from.to_string()).raw("\" data-to=\"").text(&to.to_string());
        self.raw("\" style=\"left:").text(&percent(from)).raw("%;width:").text(&percent(to - from));
        self.raw("%\" title=\"").text(&title).raw("\"><span>").text(&label).raw("</span></div>\n");
    }
}

/// The colour of a kind; the words say the same.
fn class(kind: Option<CauseKind>) -> &'static str {
    match kind.map(CauseKind::class) {
        Some(CauseClass::Section) => "off",
        Some(CauseClass::Interrupt) => "irq",
        Some(CauseClass::Thread) => "thread",
        Some(CauseClass::Idle) => "idle",
        Some(CauseClass::Machine) => "machine",
        Some(CauseClass::Unknown) => "unknown",
        None => "switch",
    }
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warn => "warn",
        Tone::Soft => "soft",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cannot_end_its_script_element() {
        let json = script_json(&"</script><!-- & \u{2028}").unwrap();
        assert_eq!(json, "\"\\u003c/script\\u003e\\u003c!-- \\u0026 \\u2028\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "</script><!-- & \u{2028}");
    }

    #[test]
    fn no_asset_can_end_its_element() {
        for script in [CHART_SCRIPT, TIMELINE_SCRIPT, PLOT_SCRIPT] {
            assert!(!script.to_ascii_lowercase().contains("</script"));
        }
        for style in [STYLE, PLOT_STYLE] {
            assert!(!style.to_ascii_lowercase().contains("</style"));
        }
    }
}
