//! How to read the figures, for readers who open a report for the first time.

use crate::section::{Block, Depth, Section, Tone};
use whylate_core::result::RunResult;

const TEXTS: [&str; 2] = [
    "Each cell is one combination of loads and treatments. Cells ran interleaved, and each ran once per \
     repeat. Comparisons use one figure per repeat, so that chance differences between repeats are not \
     mistaken for an effect. A ratio is the median of the ratios between repeats that ran close together. \
     Minimum and maximum are exact; percentiles come from a histogram with a relative error of at most \
     1/256.",
    "The timer probe sleeps until a set time and measures how late it runs. The stall probe runs a loop that never \
     sleeps and measures the gaps in it: each sample is one turn of the loop, and nearly all turns take a few \
     nanoseconds.",
];

pub(super) fn of_run(_: &RunResult) -> Vec<Section> {
    let section = Section::new("reading", "How to read this report").depth(Depth::Detail);
    vec![section.with_all(TEXTS.map(|text| Block::Text(text.into(), Tone::Plain)))]
}
