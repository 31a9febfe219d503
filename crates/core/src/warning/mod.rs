//! What was not measured, or not measured as well as it could be: said once, with its effect and its remedy.

mod code;

pub use code::WarningCode;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One thing that the machine lacks or that went differently than asked.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Stable name for scripts, in kebab case: `no-realtime-priority`.
    pub code: String,
    /// What is wrong, and its effect on the figures.
    pub text: String,
    /// What to do about it; absent if nothing can be done on this machine.
    pub fix: Option<String>,
}

impl Warning {
    /// A warning with the remedy from the list of codes, if there is one.
    pub fn new(code: WarningCode, text: impl Into<String>) -> Self {
        Self { code: code.name().to_owned(), text: text.into(), fix: code.fix().map(str::to_owned) }
    }

    /// A warning whose remedy depends on the machine.
    pub fn with_fix(code: WarningCode, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..Self::new(code, text) }
    }
}

/// Adds what differs from before.
pub fn not_restored(problem: impl fmt::Display) -> Warning {
    Warning::new(WarningCode::TreatmentNotRestored, format!("not restored: {problem}"))
}

/// Adds `warning` unless one with the same code and text exists.
pub fn push_once(warnings: &mut Vec<Warning>, warning: Warning) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}

/// Adds each of `more` as [`push_once`] does.
pub fn push_all_once(warnings: &mut Vec<Warning>, more: impl IntoIterator<Item = Warning>) {
    more.into_iter().for_each(|warning| push_once(warnings, warning));
}
