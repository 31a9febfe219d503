//! Replaces the loader in a build without the feature `bpf`: no object can be loaded, and nothing made from one exists.

use crate::error::BpfError;
use crate::events::{Event, Sizes};
use crate::snapshot::ProgramCost;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// The programs for histograms and causes.
pub(crate) const WHYLATE: &[u8] = &[];
/// The programs for the parts of a dispatch.
pub(crate) const DISPATCH: &[u8] = &[];

/// An object that cannot be loaded: this build has no programs.
pub(crate) enum Object {}

impl Object {
    pub(crate) fn load(_object: &[u8], _sizes: &Sizes<'_>) -> Result<Self, BpfError> {
        Err(BpfError::NotBuilt)
    }

    pub(crate) fn attach(&mut self, _event: Event) -> Result<Option<String>, BpfError> {
        match *self {}
    }

    pub(crate) fn attach_raw(&mut self, _: &'static str, _: &[String]) -> Result<(), BpfError> {
        match *self {}
    }

    pub(crate) fn attach_probe(&mut self, _event: Event, _function: &str) -> Result<(), BpfError> {
        match *self {}
    }

    pub(crate) fn attach_place(
        &mut self,
        _: &'static str,
        _: &Path,
        _: u64,
        _: Option<u64>,
    ) -> Result<(), BpfError> {
        match *self {}
    }

    pub(crate) fn clock_program(&mut self, _: &'static str) -> Result<OwnedFd, BpfError> {
        match *self {}
    }

    pub(crate) fn has_tracepoint(&self, _tracepoint: &str) -> bool {
        match *self {}
    }

    pub(crate) fn entries<K, V>(&self, _name: &str) -> Result<Vec<(K, V)>, BpfError> {
        match *self {}
    }

    pub(crate) fn remove<K, V>(&mut self, _name: &str, _key: &K) {
        match *self {}
    }

    pub(crate) fn stack(&self, _name: &str, _number: i64) -> Vec<u64> {
        match *self {}
    }

    pub(crate) fn array_file(&self, _name: &str) -> Result<OwnedFd, BpfError> {
        match *self {}
    }

    pub(crate) fn event_file(&self, _name: &str) -> Result<BorrowedFd<'_>, BpfError> {
        match *self {}
    }

    pub(crate) fn get<V>(&self, _name: &str, _index: u32) -> Result<V, BpfError> {
        match *self {}
    }

    pub(crate) fn set<V>(&mut self, _name: &str, _index: u32, _value: &V) -> Result<(), BpfError> {
        match *self {}
    }

    pub(crate) fn costs(&self) -> Vec<ProgramCost> {
        match *self {}
    }
}

/// Says that this build has no programs.
pub(crate) fn kernel_has(_tracepoint: &str) -> Result<bool, BpfError> {
    Err(BpfError::NotBuilt)
}

/// Says that this build has no programs.
pub(crate) fn check_namespaces() -> Result<(), BpfError> {
    Err(BpfError::NotBuilt)
}

/// Says that this build has no programs.
pub(crate) fn possible_cpus() -> Result<usize, BpfError> {
    Err(BpfError::NotBuilt)
}
