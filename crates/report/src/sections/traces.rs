//! The traces of a run: what made each of the traced spikes late.

use crate::pages::{explain, finding};
use crate::section::{Block, Depth, Item, Section, Span, Text};
use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;
use whylate_core::result::{ExplainedSpike, RunResult, SpikeTrace};

/// The most traces that a report shows; the others are in the run directory.
const SHOWN_MAX: usize = 24;

/// The terminal shows a sentence for the largest.
pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let traces = traces(run);
    let is_first = |index: usize| index == 0;
    let first = (0..traces.len()).filter(|index| is_first(*index)).count();
    let shown = traces.iter().enumerate().filter(|(index, _)| *index < SHOWN_MAX || is_first(*index));
    let parts = shown.map(|(index, trace)| part(trace, is_first(index)));
    let others = match traces.len() - first {
        0 => String::new(),
        more => format!("{}; ", crate::words::counted(more, "more trace")),
    };
    let more = format!("{others}whylate explain {} shows the timelines", run.run);
    let section = Section::new("traces", "Traces").with_all(parts).unless_empty();
    section.into_iter().map(|section| section.with(vec![Item::from(more.as_str())])).collect()
}

fn part(trace: &SpikeTrace, is_first: bool) -> Section {
    let finding = explanation(trace).map_or_else(|reason| reason, finding::finding);
    let title = format!("{}: {finding}", heading(trace));
    let line = format!("{title} ({})", trace.path);
    let section = match explanation(trace) {
        Ok(spike) => explain::spike(title, spike, None),
        Err(_) => Section::new("", title),
    };
    let path =
        Text::from("The trace is ").and(Span::Code(trace.path.clone())).and_plain(" in the run directory.");
    section.depth(if is_first { Depth::Brief(line) } else { Depth::Detail }).with(Block::note(path))
}

/// All traces, largest latency first.
fn traces(run: &RunResult) -> Vec<&SpikeTrace> {
    let mut traces: Vec<&SpikeTrace> = run.cells.iter().flat_map(|cell| &cell.traces).collect();
    traces.order_by_key(|trace| std::cmp::Reverse(trace.latency_ns));
    traces
}

/// `4.02 ms timer in l3, repeat 2, CPU 1`.
fn heading(trace: &SpikeTrace) -> String {
    format!(
        "{} {} in {}, repeat {}, CPU {}",
        nanoseconds(trace.latency_ns),
        trace.probe,
        trace.cell,
        trace.repeat,
        trace.cpu
    )
}

fn explanation(trace: &SpikeTrace) -> Result<&ExplainedSpike, String> {
    match (&trace.error, &trace.explained) {
        (Some(error), _) => Err(error.clone()),
        (None, None) => Err("not explained yet: run `whylate explain`".to_owned()),
        (None, Some(explained)) => {
            explained.spikes.first().ok_or_else(|| "the trace does not contain this moment".to_owned())
        }
    }
}
