//! Small histograms as text: latency on a logarithmic axis, counts as logarithmic heights, so that a single outlier
//! among a million ordinary samples is still a visible mark.

use super::length;
use super::table::Line;
use whylate_core::figure::nanoseconds;

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// With more histograms than this, each has one line, so that the table stays in sight.
const TALL_MAX: usize = 4;
const TALL_ROWS: usize = 4;

/// The histograms on one common axis; empty if none has a sample.
pub(super) fn lines(bars: &[(String, Vec<(u64, u64)>)], width: usize) -> Vec<Line> {
    let buckets = || bars.iter().flat_map(|(_, histogram)| histogram);
    let lowest = buckets().map(|(edge, _)| *edge).min();
    let highest = buckets().map(|(edge, _)| *edge).max();
    let (Some(lowest), Some(highest)) = (lowest, highest) else { return Vec::new() };
    let label_width = bars.iter().map(|(label, _)| length(label)).max().unwrap_or(0);
    let axis = Axis::new(lowest, highest, width.saturating_sub(label_width + 2).clamp(20, 100));
    let count_max = buckets().map(|(_, count)| *count).max().unwrap_or(1);
    let rows = if bars.len() <= TALL_MAX { TALL_ROWS } else { 1 };
    let mut lines = vec![vec![("histogram (both axes logarithmic)".to_owned(), "1")]];
    for (label, histogram) in bars {
        for (row, bars) in rows_of(&axis.columns(histogram), rows, count_max).iter().enumerate() {
            let label = if row + 1 == rows { label.as_str() } else { "" };
            lines.push(vec![(format!("{label:<label_width$}  {bars}"), "")]);
        }
    }
    lines.push(vec![(format!("{:<label_width$}  {}", "", axis.scale()), "2")]);
    lines
}

struct Axis {
    lowest: f64,
    decades: f64,
    columns: usize,
}

impl Axis {
    fn new(lowest: u64, highest: u64, columns: usize) -> Self {
        let lowest = lowest.max(1) as f64;
        // At least a third of a decade, so that a histogram with one bucket has an axis.
        let decades = (highest.max(1) as f64 / lowest).log10().max(0.3);
        Self { lowest, decades, columns }
    }

    fn column(&self, edge: f64) -> usize {
        let position = (edge.max(self.lowest) / self.lowest).log10() / self.decades;
        ((position * self.columns as f64) as usize).min(self.columns - 1)
    }

    /// Samples per column.
    fn columns(&self, histogram: &[(u64, u64)]) -> Vec<u64> {
        let mut columns = vec![0u64; self.columns];
        for (edge, count) in histogram {
            if let Some(column) = columns.get_mut(self.column(*edge as f64)) {
                *column = column.saturating_add(*count);
            }
        }
        columns
    }

    /// The latency at the left end, and at each power of ten that fits.
    fn scale(&self) -> String {
        let mut line = nanoseconds(self.lowest as u64);
        let first = self.lowest.log10().ceil() as u32;
        for power in first..=first + self.decades as u32 + 1 {
            let edge = 10f64.powi(power as i32);
            let column = (edge / self.lowest).log10() / self.decades * self.columns as f64;
            let label = format!("|{}", decade_name(power));
            let fits = column as usize + length(&label) <= self.columns;
            if fits && column as usize > length(&line) {
                line.push_str(&" ".repeat(column as usize - length(&line)));
                line.push_str(&label);
            }
        }
        line
    }
}

/// `10 us` for 10^4 ns.
fn decade_name(power: u32) -> String {
    let unit = ["ns", "us", "ms", "s"].get(power as usize / 3).copied().unwrap_or("ks");
    format!("{} {unit}", 10u32.pow(power % 3))
}

/// Bars as lines of text, top line first; every column with a sample has at least an eighth of a row.
fn rows_of(columns: &[u64], rows: usize, count_max: u64) -> Vec<String> {
    let levels = (rows * 8) as f64;
    let scale = (count_max.max(2) as f64 + 1.0).log10();
    let heights: Vec<usize> = columns
        .iter()
        .map(|count| match count {
            0 => 0,
            count => (((*count as f64 + 1.0).log10() / scale * levels) as usize).clamp(1, rows * 8),
        })
        .collect();
    (0..rows)
        .rev()
        .map(|row| heights.iter().map(|height| EIGHTHS[height.saturating_sub(row * 8).min(8)]).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn a_single_outlier_is_a_mark() {
        let axis = Axis::new(1_000, 10_000_000, 40);
        let columns = axis.columns(&[(1_000, 1_000_000), (10_000_000, 1)]);
        let rows = rows_of(&columns, 1, 1_000_000);
        assert_eq!(rows, ["█                                      ▁"]);
    }

    #[test]
    fn the_axis_names_the_decades() {
        let axis = Axis::new(2_000, 2_000_000, 60);
        assert!(says("us-us-us-ms", axis.scale()));
    }

    #[test]
    fn one_bucket_is_enough() {
        let axis = Axis::new(500, 500, 20);
        assert_eq!(rows_of(&axis.columns(&[(500, 3)]), 1, 3)[0].chars().next(), Some('█'));
        assert!(axis.scale().starts_with("500 ns"));
    }
}
