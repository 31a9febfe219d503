//! What a web server puts around a page: links, a search, runs to choose for a comparison, and values of a run that goes on.

use super::Html;
use crate::section::Text;

const LIVE_SCRIPT: &str = include_str!("../live.js");
const SEARCH: &str = r#"<form action="/" role="search"><input type="search" name="q" value="{}" placeholder="kernel&gt;=6.12 verdict=fail" aria-label="Search runs"><button>Search</button></form>
"#;
const SERIES: &str = r#"<form action="/series"><input type="hidden" name="q" value="{}"><input name="statistic" value="timer p99.9" aria-label="Statistic"><button>Course over these runs</button></form>
"#;
const COMPARE: &str = r#"<form id="compare" action="/compare"><button>Compare the runs that are ticked</button></form>
"#;
const BOX: &str = r#"<input type="checkbox" form="compare" name="side" value="{}" aria-label="Compare {}"> "#;
const LIVE: &str = r#"<section id="live" data-events="{}" aria-live="polite"><h2>Now</h2><p id="live-stage">Waiting for values.</p>
<progress id="live-progress" max="1" value="0"></progress><svg id="live-strip" viewBox="0 0 600 80" preserveAspectRatio="none" role="img" aria-label="The largest latency of each second"><polyline id="live-line" fill="none" stroke="currentColor"/></svg>
<div class="scroll"><table><thead><tr><th scope="col">cpu</th><th scope="col" class="number">samples</th><th scope="col" class="number">max</th></tr></thead><tbody id="live-cpus"></tbody></table></div></section>
"#;

/// What stands around a page that a web server shows. A file has nothing of it.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Words and the addresses that they lead to.
    pub links: Vec<(String, String)>,
    /// What was searched for, on a page with a search.
    pub search: Option<String>,
    /// Whether rows can be ticked, to be compared.
    pub compares: bool,
    /// The address of the server-sent events of a run that goes on.
    pub live: Option<String>,
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
        self.raw(if frame.compares { COMPARE } else { "" }).raw("</nav>\n");
        frame.live.iter().for_each(|address| _ = self.fill(LIVE, &[address]));
    }

    /// A cell that leads to another page, behind a box that chooses its row.
    pub(super) fn link(&mut self, address: &str, name: &str, text: &Text) {
        self.fill(BOX, &[name, name]);
        self.fill("<a href=\"{}\">", &[address]).words(text).raw("</a>");
    }
}
