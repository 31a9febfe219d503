//! What was not measured, or not measured as well as it could be: said once, with its effect and its remedy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One thing that the machine lacks or that went differently than asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Stable name for scripts, in kebab case: `no-realtime-priority`.
    pub code: String,
    /// What is so, and which effect it has on the figures.
    pub text: String,
    /// What to do about it; absent when nothing can be done on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Warning {
    /// A warning with a remedy.
    pub fn new(code: &str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { code: code.to_owned(), text: text.into(), fix: Some(fix.into()) }
    }

    /// A warning about something that cannot be changed on this machine.
    pub fn without_fix(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.to_owned(), text: text.into(), fix: None }
    }
}

/// Code of the warning that a setting is not what it was before.
pub const NOT_RESTORED: &str = "treatment-not-restored";

/// Says what is not as it was before.
pub fn not_restored(problem: impl fmt::Display) -> Warning {
    Warning::new(NOT_RESTORED, format!("not restored: {problem}"), "whylate treat restore")
}

/// Adds `warning` unless one with the same code and text is there already.
pub fn push_once(warnings: &mut Vec<Warning>, warning: Warning) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

/// Adds each of `more` as [`push_once`] does.
pub fn push_all_once(warnings: &mut Vec<Warning>, more: impl IntoIterator<Item = Warning>) {
    more.into_iter().for_each(|warning| push_once(warnings, warning));
}
