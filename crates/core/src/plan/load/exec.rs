//! The load `exec`: any command.

use crate::cpus::CpuSelector;
use crate::plan::kinds::{KeyError, Words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Any command as a load.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load exec --cpus 1 --duration 30s -- stress-ng --cpu 1
  whylate load exec --restart --rate-pattern '([0-9.]+)/sec' --rate-unit dot_per_s -- x11perf -dot"))]
pub struct ExecPlan {
    /// Program and arguments; no shell is involved.
    pub command: Vec<String>,
    /// CPUs on which the command may run; by default all.
    pub cpus: Option<CpuSelector>,
    /// Regular expression that finds the load's rate in a line of output; the first group is the rate.
    pub rate_pattern: Option<String>,
    /// Unit of the rate that --rate-pattern finds (`rectangles_per_s`).
    #[serde(default = "default_rate_unit")]
    pub rate_unit: String,
    /// Starts the command again each time it ends with status 0, until the load is stopped.
    #[serde(default)]
    pub restart: bool,
}

fn default_rate_unit() -> String {
    "per_s".to_owned()
}

impl Words for ExecPlan {
    fn check(&self) -> Result<(), KeyError> {
        if self.command.first().is_none_or(String::is_empty) {
            let message = "is empty; write for example `command = [\"stress-ng\", \"--cpu\", \"1\"]`";
            return Err(KeyError::new("command", message));
        }
        Ok(())
    }
}
