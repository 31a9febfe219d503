//! What a plan says about the table of copies.

use crate::copying::{CopyMethod, Frame};
use crate::cpus::CpuSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The copy measurements at the start of a run, as `whylate copy` makes them.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CopiesPlan {
    /// The CPU that copies; if several CPUs are given, the first one.
    pub cpus: CpuSelector,
    /// Copy methods; by default all that the CPU supports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<CopyMethod>,
    /// The video frame whose time budget decides between methods.
    pub frame: Option<Frame>,
    /// Trials for each method and block.
    pub trials: u32,
}

impl Default for CopiesPlan {
    fn default() -> Self {
        Self { cpus: CpuSelector::target(), methods: Vec::new(), frame: None, trials: 15 }
    }
}
