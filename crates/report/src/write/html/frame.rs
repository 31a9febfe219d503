//! What a web server puts around a page: links, a search, runs to choose for a comparison, and live values of a
//! running run.

use super::Html;
use crate::section::Text;

const LIVE_SCRIPT: &str = include_str!("../live.js");
const SEARCH: &str = r#"<form action="/" role="search"><input type="search" name="q" value="{}" placeholder="kernel&gt;=6.12 verdict=fail" aria-label="Search runs"><button>Search</button></form>
"#;
const SERIES: &str = r#"<form action="/series"><input type="hidden" name="q" value="{}"><input name="statistic" value="timer p99.9" aria-label="Statistic"><button>Trend over these runs</button></form>
"#;
const FORM: &str = r#"<form action="{}" aria-label="{}">"#;
const TEXT_FIELD: &str = r#"<label>{} <input type="search" name="{}" value="{}" placeholder="{}" list="known-{}"></label><datalist id="known-{}">"#;
const TICK_FIELD: &str = r#"<label><input type="checkbox" name="{}" value="1""#;
const COMPARE: &str = r#"<form id="compare" action="/compare"><label>before <input type="search" name="was" placeholder="tag=old"></label> <label>after <input type="search" name="is" placeholder="tag=new"></label> <button>Compare after with before</button><small>compares the ticked runs and the runs that the searches find</small></form>
"#;
pub(super) const BOX_HEADS: &str =
    r#"<th scope="col" class="tick">before</th><th scope="col" class="tick">after</th>"#;
const BOXES: &str = r#"<td class="tick"><input type="checkbox" form="compare" name="before" value="{}" aria-label="{} is before"></td><td class="tick"><input type="checkbox" form="compare" name="after" value="{}" aria-label="{} is after"></td>"#;
const LIVE: &str = r#"<section id="live" data-events="{}" aria-live="polite"><h2>Now</h2><p id="live-stage">Waiting for values.</p>
<progress id="live-progress" max="1" value="0"></progress><svg id="live-strip" viewBox="0 0 600 80" preserveAspectRatio="none" role="img" aria-label="The largest latency of each second"><polyline id="live-line" fill="none" stroke="currentColor"/></svg>
<div class="scroll"><table><thead><tr><th scope="col">cpu</th><th scope="col" class="number">samples</th><th scope="col" class="number">max</th></tr></thead><tbody id="live-cpus"></tbody></table></div></section>
"#;

/// The parts around a page on a web server. A file has none of them.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Words and their addresses.
    pub links: Vec<(String, String)>,
    /// The search text, on a page with a search.
    pub search: Option<String>,
    /// Whether runs can be compared: those that are ticked, or found by a search.
    pub compares: bool,
    /// Forms that lead to other pages.
    pub forms: Vec<Form>,
    /// The address of the server-sent events of a run in progress.
    pub live: Option<String>,
}

/// Fields whose values become the query of an address.
#[derive(Clone, Debug, Default)]
pub struct Form {
    pub action: String,
    pub button: String,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug)]
pub struct Field {
    pub name: &'static str,
    /// The label before it.
    pub label: &'static str,
    pub value: Value,
}

/// The contents of a form field.
#[derive(Clone, Debug)]
pub enum Value {
    /// A text, an example, and suggestions.
    Text(String, &'static str, Vec<String>),
    /// One of several texts.
    Choice(String, Vec<String>),
    Tick(bool),
}

impl Frame {
    pub(super) fn script(&self) -> &'static str {
        if self.live.is_some() { LIVE_SCRIPT } else { "" }
    }
}

impl Html<'_> {
    pub(super) fn frame(&mut self, frame: &Frame) {
        self.raw("<nav class=\"site\">\n");
        for (words, address) in &frame.links {
            self.fill("<a href=\"{}\">{}</a>\n", &[address, words]);
        }
        frame.search.iter().for_each(|search| _ = self.fill(SEARCH, &[search]).fill(SERIES, &[search]));
        frame.forms.iter().for_each(|form| self.form(form));
        self.raw(if frame.compares { COMPARE } else { "" }).raw("</nav>\n");
        frame.live.iter().for_each(|address| _ = self.fill(LIVE, &[address]));
    }

    fn form(&mut self, form: &Form) {
        self.fill(FORM, &[&form.action, &form.button]);
        form.fields.iter().for_each(|field| self.field(field));
        self.fill("<button>{}</button></form>\n", &[&form.button]);
    }

    fn field(&mut self, field: &Field) {
        let (name, label) = (field.name, field.label);
        match &field.value {
            Value::Text(text, example, known) => {
                self.fill(TEXT_FIELD, &[label, name, text, example, name, name]);
                known.iter().for_each(|it| _ = self.fill("<option value=\"{}\"></option>", &[it]));
                self.raw("</datalist>");
            }
            Value::Choice(chosen, all) => {
                self.fill("<label>{} <select name=\"{}\">", &[label, name]);
                for it in all {
                    let begin = if it == chosen { "<option selected>" } else { "<option>" };
                    self.raw(begin).fill("{}</option>", &[it]);
                }
                self.raw("</select></label>");
            }
            Value::Tick(is_set) => {
                self.fill(TICK_FIELD, &[name]).raw(if *is_set { " checked>" } else { ">" });
                self.fill(" {}</label>", &[label]);
            }
        }
    }

    /// The boxes that put a run on a side of a comparison.
    pub(super) fn boxes(&mut self, name: &str) {
        self.fill(BOXES, &[name; 4]);
    }

    /// What leads to another page.
    pub(super) fn link(&mut self, address: &str, text: &Text) {
        self.fill("<a href=\"{}\">", &[address]).words(text).raw("</a>");
    }
}
