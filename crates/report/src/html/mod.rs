//! Reports as one HTML file that needs nothing else: style, scripts and data are in it, and it asks no network.
//!
//! Every text of the result is escaped by the template engine; the charts' data is JSON in which `<`, `>` and `&`
//! are written as escapes, so that no name can end its script element.

mod chart;
mod facts;
mod page;

use crate::explain::html::{OWN_STYLE as TRACE_STYLE, SCRIPT as TRACE_SCRIPT, SPIKE_TEMPLATE};
use crate::{ReportError, require_run_samples, traces};
use minijinja::value::Serde;
use minijinja::{Environment, context};
use whylate_core::result::RunResult;

const TEMPLATE: &str = include_str!("report.html");
pub(crate) const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");
// uPlot 1.6.32, unchanged; see assets/README.md.
const PLOT_STYLE: &str = include_str!("../../assets/uPlot.min.css");
const PLOT_SCRIPT: &str = include_str!("../../assets/uPlot.iife.min.js");

/// The report of a run as one self-contained HTML document.
///
/// # Errors
/// [`ReportError::NoSamples`] when no probe has a sample; [`ReportError::Template`] and [`ReportError::ChartData`]
/// when the page cannot be put together, which no result should bring about.
pub fn run(run: &RunResult) -> Result<String, ReportError> {
    require_run_samples(run)?;
    let mut environment = Environment::new();
    // The name's ending switches escaping on.
    environment.add_template("report.html", TEMPLATE)?;
    environment.add_template("spike.html", SPIKE_TEMPLATE)?;
    let data = script_json(&chart::charts(run))?;
    let traces = traces::views(run);
    let template = environment.get_template("report.html")?;
    Ok(template.render(context! {
        page => Serde(page::page(run)),
        // What draws the traces' timelines, where there are any.
        trace_style => (!traces.is_empty()).then_some(TRACE_STYLE),
        trace_script => (!traces.is_empty()).then_some(TRACE_SCRIPT),
        traces => Serde(traces),
        data => data,
        style => STYLE,
        script => SCRIPT,
        plot_style => PLOT_STYLE,
        plot_script => PLOT_SCRIPT,
    })?)
}

/// JSON that can stand inside a script element.
pub(crate) fn script_json(value: &impl serde::Serialize) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(value)?;
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            // Line ends in JavaScript, though not in JSON.
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            c => escaped.push(c),
        }
    }
    Ok(escaped)
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
        for script in [SCRIPT, PLOT_SCRIPT] {
            assert!(!script.to_ascii_lowercase().contains("</script"));
        }
        for style in [STYLE, PLOT_STYLE] {
            assert!(!style.to_ascii_lowercase().contains("</style"));
        }
    }
}
