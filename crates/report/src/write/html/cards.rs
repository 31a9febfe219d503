//! The cards of a wall: a small chart for each series, drawn without a script.

use super::{Html, tone};
use crate::pictures::{Card, Cards, Strip};
use whylate_core::figure::nanoseconds;

const CARD: &str = r#"<li class="card {}"><h3><a href="{}">{}</a> <span class="state {}"><span aria-hidden="true">{}</span> {}</span></h3>
<p class="note"><time datetime="{}" title="{}">{}</time>, {}</p>
"#;
const LEGEND: &str = r#"<p class="note legend"><span><i class="line max"></i> max of the run</span> <span><i class="line p999"></i> p99.9</span> <span><i class="line p99"></i> p99</span> <span><i class="line p50"></i> p50</span> <span><i class="line limit"></i> limit</span> <span><i class="dot"></i> above its limit</span> <span class="wraps">Up to 30 runs, the newest at the right; all charts have the same scale.</span></p>
"#;
const STRIP: &str = r#"<figure><figcaption>{} <small>{}</small></figcaption>
<svg class="strip" viewBox="0 0 300 96" role="img" aria-label="{}">"#;
const TICK: &str = r#"<line class="grid" x1="44" x2="298" y1="{}" y2="{}"/><text x="40" y="{}">{}</text>"#;
const LINE: &str = r#"<path class="line {}" d="{}"/>"#;
const DOT: &str = r#"<circle class="dot" cx="{}" cy="{}" r="3"/>"#;
/// The names of the lines in the style sheet.
const LINES: [&str; 4] = ["p50", "p99", "p999", "max"];
/// Where the newest run and, in a full chart, the oldest run are drawn.
const RIGHT: f64 = 294.0;
const LEFT: f64 = 50.0;
const RUNS_MAX: usize = 30;
/// Where the largest and the smallest figure are drawn.
const TOP: f64 = 6.0;
const BOTTOM: f64 = 90.0;

impl Html<'_> {
    pub(super) fn cards(&mut self, cards: &Cards) {
        // Once for all cards of the page.
        self.raw(if self.has_cards { "" } else { LEGEND });
        self.has_cards = true;
        self.raw("<ul class=\"wall\">\n");
        cards.cards.iter().for_each(|card| self.card(card, cards));
        self.raw("</ul>\n");
    }

    fn card(&mut self, card: &Card, cards: &Cards) {
        let alarming = if card.is_alarming { "alarming" } else { "" };
        let state = [tone(card.tone), card.sign, card.state];
        self.fill(
            CARD,
            &[
                alarming,
                &card.address,
                &card.name,
                state[0],
                state[1],
                state[2],
                &card.moment,
                &card.moment,
                &card.when,
                &card.about,
            ],
        );
        self.bullets("alarms", card.alarms.iter());
        card.strips.iter().for_each(|strip| self.strip(strip, cards));
        self.raw("</li>\n");
    }

    fn strip(&mut self, strip: &Strip, cards: &Cards) {
        self.fill(STRIP, &[&strip.caption, &strip.figures, &strip.label]);
        for ns in cards.ticks() {
            let y = at(cards.place(ns));
            self.fill(
                TICK,
                &[
                    &y,
                    &y,
                    &at(cards.place(ns) - 0.035),
                    &nanoseconds(ns as u64).replace(".00", "").replace(".0 ", " "),
                ],
            );
        }
        let limit = strip.limit_ns.filter(|ns| cards.range.0 <= *ns as f64 && *ns as f64 <= cards.range.1);
        if let Some(ns) = limit {
            let y = at(cards.place(ns as f64));
            self.fill(LINE, &["limit", &format!("M44 {y}H298")]);
        }
        for (name, values) in LINES.into_iter().zip(&strip.lines) {
            self.fill(LINE, &[name, &path(values, cards)]);
        }
        let failed = strip.failed.iter().enumerate().filter(|(_, failed)| **failed);
        for (index, _) in failed {
            let Some(ns) = strip.lines[3][index] else { continue };
            self.fill(DOT, &[&across(index, strip.failed.len()), &at(cards.place(ns as f64))]);
        }
        self.raw("</svg></figure>\n");
    }
}

/// A line through the values, with a gap at each missing one.
fn path(values: &[Option<u64>], cards: &Cards) -> String {
    let mut path = String::new();
    let mut is_open = false;
    for (index, value) in values.iter().enumerate() {
        let Some(ns) = value else {
            is_open = false;
            continue;
        };
        let place = format!("{} {}", across(index, values.len()), at(cards.place(*ns as f64)));
        // A single value is a dot: a line of no length with round ends.
        path += &if is_open { format!("L{place}") } else { format!("M{place}L{place}") };
        is_open = true;
    }
    path
}

fn across(index: usize, count: usize) -> String {
    let step = (RIGHT - LEFT) / (RUNS_MAX - 1) as f64;
    format!("{:.1}", RIGHT - step * (count - 1 - index) as f64)
}

fn at(place: f64) -> String {
    format!("{:.1}", BOTTOM - (BOTTOM - TOP) * place)
}
