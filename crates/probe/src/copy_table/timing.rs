//! Trials of rows and blocks, in turns. Times are the CPU time of the thread: on a busy machine others may have the CPU in
//! the middle of a trial.

use super::rows::{Row, Stock};
use whylate_core::order::InOrder;
use whylate_core::result::CopyBlock;
use whylate_sys::clock;

/// A trial takes about this long, so that the time to read the clock is negligible.
const TRIAL_NS: u64 = 1_000_000;
/// After this many trials, a slow row and block gets no more once it has used its time.
const TRIALS_MIN: usize = 3;
const BUDGET_NS: u64 = 60_000_000;

/// The trials of one row and block.
#[derive(Clone, Debug, Default)]
struct Cell {
    bytes: u64,
    /// Copies in a trial; 0 before the first.
    turns: u64,
    /// Nanoseconds of one copy, one for each trial.
    times: Vec<f64>,
    spent_ns: u64,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Trials {
    /// For each row, for each block.
    cells: Vec<Vec<Cell>>,
    rounds: u32,
}

impl Trials {
    pub(super) fn new(rows: usize, blocks: &[u64], rounds: u32) -> Self {
        let cells: Vec<Cell> = blocks.iter().map(|bytes| Cell { bytes: *bytes, ..Cell::default() }).collect();
        Self { cells: vec![cells; rows], rounds }
    }

    /// Gives every row and block a trial, round after round.
    pub(super) fn run(&mut self, rows: &[Row], stock: &mut Stock, progress: &mut dyn FnMut(f64) -> bool) {
        for round in 0..self.rounds {
            for (index, (cells, row)) in self.cells.iter_mut().zip(rows).enumerate() {
                for cell in cells {
                    cell.trial(row, stock);
                }
                let done = f64::from(round) + index as f64 / rows.len() as f64;
                if !progress(done / f64::from(self.rounds)) {
                    return;
                }
            }
        }
    }

    /// The figures of a row, smallest block first; blocks without a trial are left out.
    pub(super) fn figures(&self, row: usize) -> Vec<CopyBlock> {
        self.cells[row].iter().filter_map(Cell::figures).collect()
    }
}

impl Cell {
    fn trial(&mut self, row: &Row, stock: &mut Stock) {
        if self.times.len() >= TRIALS_MIN && self.spent_ns >= BUDGET_NS {
            return;
        }
        let bytes = self.bytes as usize;
        if self.turns == 0 {
            self.turns = 1;
            // Doubled until the clock can measure it: the first copies bring the block into the caches.
            let mut taken = self.time(row, stock, bytes);
            while taken < TRIAL_NS / 8 {
                self.turns *= 2;
                taken = self.time(row, stock, bytes);
            }
            self.turns = (self.turns * TRIAL_NS / taken.max(1)).max(1);
        }
        // The block has not been used since the last round.
        stock.copy(row, bytes);
        let taken = self.time(row, stock, bytes);
        self.spent_ns += taken;
        self.times.push(taken as f64 / self.turns as f64);
    }

    fn time(&self, row: &Row, stock: &mut Stock, bytes: usize) -> u64 {
        let begin = clock::thread_cpu_time().0;
        for _ in 0..self.turns {
            stock.copy(row, bytes);
        }
        clock::thread_cpu_time().0 - begin
    }

    fn figures(&self) -> Option<CopyBlock> {
        let mut times = self.times.clone();
        times.order_by(f64::total_cmp);
        // A quarter of the trials is faster than the high rate, a quarter slower than the low one.
        let at = |share: f64| times.get(((times.len() - 1) as f64 * share).round() as usize).copied();
        let rate = |time: f64| self.bytes as f64 * 1e9 / time.max(1e-3);
        (!times.is_empty()).then_some(())?;
        Some(CopyBlock {
            bytes: self.bytes,
            bytes_per_s: rate(at(0.5)?),
            low_bytes_per_s: rate(at(0.75)?),
            high_bytes_per_s: rate(at(0.25)?),
            block_ns: at(0.5)?,
            trials: times.len() as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_median_and_the_quartiles() {
        let cell = Cell { bytes: 1000, times: vec![50.0, 10.0, 20.0, 40.0, 30.0], ..Cell::default() };
        let block = cell.figures().unwrap();
        assert_eq!((block.block_ns, block.trials), (30.0, 5));
        assert_eq!((block.low_bytes_per_s, block.high_bytes_per_s), (25e9, 50e9));
        assert_eq!(Cell::default().figures(), None);
    }
}
