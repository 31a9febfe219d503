//! Bars of parts, effects with their intervals and timelines, drawn with styles alone.

use super::{Html, class, class_of, tone};
use crate::pictures::{Flame, Forest, Shares, class_name};
use crate::reading::times;
use crate::section::Timeline;
use whylate_core::figure::nanoseconds;
use whylate_core::result::TimelineSegment;

const SHARE: &str = r#"<div class="part {}" style="width:{}%" title="{}"><span>{}</span></div>"#;
const EFFECT: &str = r#"<div class="effect {}"><span class="what">{}</span><div class="axis" aria-hidden="true"><i class="none"></i><i class="margin" style="left:{}%;width:{}%"></i><i class="range" style="left:{}%;width:{}%"></i><i class="point" style="left:{}%"></i></div><span class="size">{} {}</span></div>
"#;
const EFFECT_ENDS: &str = r#"<div class="effect ends" aria-hidden="true"><span class="what"></span><div class="axis"><span>{} ×</span><span>1</span><span>{} ×</span></div><span class="size"></span></div>
</div>
"#;
const TIME_AXIS: &str = r#"<div class="row axis"><span class="cpu"></span><div class="ticks"><span>expected</span><span>ran, +{}</span></div></div>
<p class="note hint" hidden>Zoom with Ctrl and the wheel, a pinch, or + and -. Move by dragging or with the arrow keys. A double click or 0 shows all.</p>
</div>
"#;
const SEGMENT: &str = r#"<div class="part {}" data-from="{}" data-to="{}" style="left:{}%;width:{}%" title="{}"><span>{}</span></div>
"#;
pub(super) const FOLDED: &str = r#"<details id="{}"><summary>"#;
pub(super) const FOLDED_MEANING: &str = r#" <span class="meaning">{}</span></summary>
<div class="columns">
"#;
pub(super) const FIGURE: &str = r#"<figure class="{}">
<figcaption>{} <small>{}</small></figcaption>
<div class="chart" role="img" aria-label="{}" data-chart="{}"></div>
</figure>
"#;

const CALL: &str = r#"<div class="part {}" style="left:{}%;width:{}%;top:{}rem" title="{}"><span>{}</span></div>
"#;
/// The height of a call.
const CALL_REM: f64 = 1.5;

impl Html<'_> {
    /// The first function of the program is at the top.
    pub(super) fn flame(&mut self, flame: &Flame) {
        let depth = 1 + flame.calls.iter().map(|call| call.depth).max().unwrap_or_default();
        let height = format!("{}", depth as f64 * CALL_REM);
        self.fill("<figure class=\"flame\"><figcaption>{}</figcaption>\n<div class=\"lane\" style=\"height:{}rem\">\n", &[&flame.title, &height]);
        for call in &flame.calls {
            let [from, width] = [call.from, call.width].map(|part| format!("{:.3}", part * 100.0));
            let top = format!("{}", call.depth as f64 * CALL_REM);
            let title = format!("{}: {}", call.function, call.times);
            let class = match call.more {
                Some(more) if more > 0.9 => "new",
                Some(more) if more > 0.3 => "longer",
                _ => "",
            };
            self.fill(CALL, &[class, &from, &width, &top, &title, &call.function]);
        }
        self.raw("</div></figure>\n");
    }

    /// The legend names the classes, so that colour is not the only sign.
    pub(super) fn shares(&mut self, shares: &Shares) {
        self.raw("<div class=\"shares\">\n");
        for row in &shares.rows {
            self.fill("<div class=\"row\"><span class=\"cell\">{}</span><div class=\"lane\">", &[&row.label]);
            for part in &row.parts {
                let percent = part.share * 100.0;
                let title = format!("{}: {percent:.1} %: {}", class_name(part.class), part.text);
                // A label that does not fit is left out.
                let label = if part.share > 0.12 { part.text.as_str() } else { "" };
                let width = format!("{percent:.3}");
                self.fill(SHARE, &[class_of(part.class), &width, &title, label]);
            }
            self.fill("</div><span class=\"size\">{}</span></div>\n", &[&row.note]);
        }
        self.raw("<p class=\"note legend\">");
        for class in shares.classes() {
            self.fill("<span><i class=\"swatch {}\"></i> {}</span> ", &[class_of(class), class_name(class)]);
        }
        self.raw("</p></div>\n");
    }

    pub(super) fn forest(&mut self, forest: &Forest) {
        let percent = |ratio: f64| forest.place(ratio) * 100.0;
        let (least, most) = forest.ends();
        let margin = (percent(1.0 / (1.0 + forest.margin)), percent(1.0 + forest.margin));
        self.raw("<div class=\"forest\" role=\"img\" aria-label=\"Ratio of each comparison with its 95 % interval; the list below says the same\">\n");
        for row in &forest.rows {
            let (low, high) = row.interval.unwrap_or((Some(row.ratio), Some(row.ratio)));
            let (low, high) = (percent(low.unwrap_or(least)), percent(high.unwrap_or(most)));
            let places = [margin.0, margin.1 - margin.0, low, high - low, percent(row.ratio)];
            let places = places.map(|place| format!("{place:.2}"));
            let [margin_at, margin_width, at, width, point] = places.each_ref().map(String::as_str);
            let size = format!("{} × {}", times(row.ratio), row.reading.word);
            self.fill(
                EFFECT,
                &[
                    tone(row.reading.tone),
                    &row.label,
                    margin_at,
                    margin_width,
                    at,
                    width,
                    point,
                    row.reading.sign,
                    &size,
                ],
            );
        }
        self.fill(EFFECT_ENDS, &[&times(least), &times(most)]);
    }

    /// The bars are drawn without scripts; a script only zooms them.
    pub(super) fn timeline(&mut self, timeline: &Timeline) {
        self.has_timeline = true;
        self.fill("<div class=\"time\" data-length=\"{}\">\n", &[&timeline.length_ns.to_string()]);
        for cpu in timeline.cpus() {
            let number = cpu.to_string();
            self.fill(
                "<div class=\"row\"><span class=\"cpu\">CPU {}</span><div class=\"lane\">\n",
                &[&number],
            );
            let own = timeline.segments.iter().filter(|segment| segment.cpu == cpu);
            own.for_each(|segment| self.segment(segment, timeline));
            self.raw("</div></div>\n");
        }
        self.fill(TIME_AXIS, &[&nanoseconds(timeline.length_ns)]);
    }

    fn segment(&mut self, segment: &TimelineSegment, timeline: &Timeline) {
        let (from, to) = (segment.from_ns, segment.to_ns);
        let percent = |ns: u64| format!("{:.4}", timeline.share(ns) * 100.0);
        let function = segment.function.as_ref().map(|function| format!(" ({function})"));
        let label = format!("{}{}", segment.what, function.unwrap_or_default());
        let title = format!("{label}: {} from +{}", nanoseconds(to - from), nanoseconds(from));
        let places = [from.to_string(), to.to_string(), percent(from), percent(to - from)];
        let [from, to, left, width] = places.each_ref().map(String::as_str);
        self.fill(SEGMENT, &[class(segment.kind), from, to, left, width, &title, &label]);
    }
}
