//! What stands for the programs in a build without the feature `bpf`: nothing that can be started.

use crate::error::BpfError;
use crate::settings::{FindsCauses, HistogramsConfig, Measured};
use crate::snapshot::{Facility, HistogramsSnapshot, ProgramCost, WakeupCounts};
use whylate_core::record::IpiRecord;
use whylate_core::result::HistogramKind;
use whylate_core::{CpuId, CpuSet, Facts};
use whylate_explain::segments::Recording;
use whylate_host::HostRoot;

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
    pub fn enable(&mut self, _kinds: &[HistogramKind], _cpus: &CpuSet) -> Result<(), BpfError> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn disable(&mut self, _kinds: &[HistogramKind], _cpus: &CpuSet) -> Result<(), BpfError> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn reset(&mut self, _kinds: &[HistogramKind], _cpus: &CpuSet) -> Result<(), BpfError> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn enabled(&self) -> impl Iterator<Item = (CpuId, HistogramKind)> + '_ {
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

/// A search for causes that cannot be started: this build has no programs.
#[derive(Debug)]
pub enum Causes {}

impl Causes {
    /// Says that this build has no programs.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn start(_cpus: &CpuSet, _histograms: &HistogramsConfig) -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    /// As in a build with programs.
    pub fn facilities(&self) -> &[Facility] {
        match *self {}
    }

    /// As in a build with programs.
    pub fn histograms(&mut self) -> &mut Histograms {
        match *self {}
    }

    /// As in a build with programs.
    pub fn watch_process(&mut self, _cpus: &CpuSet, _process: u32) -> Result<(), BpfError> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn since(&self, _cpu: CpuId, _from_ns: u64) -> Result<Recording, BpfError> {
        match *self {}
    }

    /// As in a build with programs.
    pub fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        match *self {}
    }
}

/// Says that this build has no programs.
///
/// # Errors
/// Always [`BpfError::NotBuilt`].
pub fn find_causes(
    _host: &HostRoot,
    _probes: &[Measured],
    _facts: &Facts,
) -> Result<Box<dyn FindsCauses>, BpfError> {
    Err(BpfError::NotBuilt)
}

/// Says that this build has no programs.
pub fn facilities(_host: &HostRoot) -> Vec<Facility> {
    vec![Facility { name: PROGRAMS.to_owned(), missing: Some(BpfError::NotBuilt.to_string()) }]
}

/// As in a build with programs: the one thing that is missing.
pub fn facility_names() -> Vec<String> {
    vec![PROGRAMS.to_owned()]
}

const PROGRAMS: &str = "BPF programs";

/// A count of costs that cannot be started: this build has no programs.
#[derive(Debug)]
pub enum CostCounting {}

impl CostCounting {
    /// Says that this build has no programs.
    ///
    /// # Errors
    /// Always [`BpfError::NotBuilt`].
    pub fn start() -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }
}
