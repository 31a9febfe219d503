//! What stands for the programs in a build without the feature `bpf`: nothing that can be started.

use crate::error::BpfError;
use crate::settings::HistogramsConfig;
use crate::snapshot::{HistogramsSnapshot, ProgramCost, WakeupCounts};
use whylate_core::result::HistogramKind;

/// Histograms that cannot be started: this build has no programs.
#[derive(Debug)]
pub enum Histograms {}

impl Histograms {
    /// Says that this build has no programs.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn start(_config: &HistogramsConfig) -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    /// As in a build with programs.
    pub fn enable(&mut self, _kinds: &[HistogramKind]) -> Result<(), BpfError> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn disable(&mut self, _kinds: &[HistogramKind]) -> Result<(), BpfError> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn reset(&mut self, _kinds: &[HistogramKind]) -> Result<(), BpfError> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn enabled(&self) -> impl Iterator<Item = HistogramKind> + '_ {
        std::iter::empty()
    }

    /// As in a build with programs.
    pub fn unavailable(&self) -> &[(HistogramKind, String)] {
        match *self {}
    }

    /// As in a build with programs.
    pub fn sees_switch_end(&self) -> bool {
        match *self {}
    }

    /// As in a build with programs.
    pub fn costs(&self) -> Vec<ProgramCost> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn read(&self) -> Result<HistogramsSnapshot, BpfError> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn counts(&self) -> Result<WakeupCounts, BpfError> {
        match *self {}
    }
}
