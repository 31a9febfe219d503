//! A measurement that is printed but not stored: one cell, run once, summed up as its rows arrive.
//!
//! It has the same rows and statistics as a run directory. Memory depends on the number of CPUs and series, not on
//! the length of the measurement (except for the rates).

use super::cell::CellData;
use super::shape::Shapes;
use super::{Collector, finish_cell, newest_attempts, void_attempts};
use crate::directory::RunDirectory;
use crate::error::StoreError;
use crate::info::RunInfo;
use crate::reader::{Reader, Segment};
use crate::tables::{RateKey, Rows, Sink};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use whylate_core::Warning;
use whylate_core::record::CounterRecord;
use whylate_core::result::{CellResult, RunResult};
use whylate_core::warning::push_all_once;
use whylate_stats::summary::SPIKES_KEPT;

/// The memory of a run with one cell and one repeat.
pub struct Memory {
    info: RunInfo,
    shapes: Shapes,
    data: CellData,
    pending: Rows,
    load_output: PathBuf,
}

/// The result of a cell that was not stored.
#[derive(Clone, Debug, Default)]
pub struct MeasuredCell {
    /// The figures, as in a run; no figure names a repeat.
    pub cell: CellResult,
    /// What the kernel counted on each measured CPU.
    pub counters: Vec<CounterRecord>,
    /// What was not measured, or measured less well.
    pub warnings: Vec<Warning>,
}

impl Memory {
    /// A memory for the run `info` with its first cell; the output of its load goes to `load_output`.
    pub fn new(info: RunInfo, spikes_kept: usize, load_output: PathBuf) -> Self {
        let shapes = Shapes::of(&info, spikes_kept);
        Self { info, shapes, data: CellData::default(), pending: Rows::default(), load_output }
    }

    /// The figures, given all warnings of the measurement.
    pub fn finish(mut self, warnings: Vec<Warning>) -> MeasuredCell {
        self.take_pending();
        push_all_once(&mut self.info.warnings, warnings);
        let counters = self.data.counters();
        let Some(cell) = self.info.cells.first() else { return MeasuredCell::default() };
        let shown = self.data.shown(&self.info, &self.shapes);
        let mut cell = finish_cell(self.data, cell, &self.info, false, &self.shapes, &shown);
        without_repeats(&mut cell);
        MeasuredCell { cell, counters, warnings: self.info.warnings }
    }

    fn take_pending(&mut self) {
        let Some(cell) = self.info.cells.first() else { return };
        let mut collector = Collector {
            void: HashSet::new(),
            cells: HashMap::from([(cell.name.as_str(), std::mem::take(&mut self.data))]),
            newest: HashMap::new(),
            shapes: &self.shapes,
            earlier: Vec::new(),
            problems: Vec::new(),
        };
        let rows = std::mem::take(&mut self.pending);
        let damages = collector.add_segment(Segment { rows, ..Segment::default() });
        self.data = collector.cells.remove(cell.name.as_str()).unwrap_or_default();
        push_all_once(&mut self.info.warnings, damages.into_iter().map(|damage| damage.warning));
    }
}

impl MeasuredCell {
    /// The first cell of the stored run `result`, as if it had not been stored.
    pub fn of_run(reader: &Reader, result: &RunResult) -> Self {
        let Some(mut cell) = result.cells.first().cloned() else { return Self::default() };
        without_repeats(&mut cell);
        let info = reader.info();
        let shapes = Shapes::of(info, SPIKES_KEPT);
        let mut collector = Collector {
            void: void_attempts(info),
            cells: HashMap::from([(cell.name.as_str(), CellData::default())]),
            newest: newest_attempts(info),
            shapes: &shapes,
            earlier: Vec::new(),
            problems: Vec::new(),
        };
        // The result has their warnings.
        for segment in reader.segments() {
            drop(collector.add_segment(segment));
        }
        let counters = collector.cells.remove(cell.name.as_str()).unwrap_or_default().counters();
        Self { cell, counters, warnings: result.warnings.clone() }
    }
}

/// The figures of a cell that has one repeat name none.
fn without_repeats(cell: &mut CellResult) {
    for probe in &mut cell.probes {
        probe.spikes.iter_mut().for_each(|spike| spike.repeat = None);
        let points = probe.cpus.iter_mut().flat_map(|cpu| &mut cpu.timeline);
        points.for_each(|point| point.repeat = None);
        // The same as those of the cell.
        probe.rates.clear();
    }
}

impl Sink for Memory {
    fn rows(&mut self) -> &mut Rows {
        &mut self.pending
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        self.take_pending();
        Ok(())
    }

    fn directory(&self) -> Option<&RunDirectory> {
        None
    }

    fn load_output_path(&self, _: &RateKey) -> PathBuf {
        self.load_output.clone()
    }
}
