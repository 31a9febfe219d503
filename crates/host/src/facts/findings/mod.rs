//! What a machine lacks for real-time work: each finding with its evidence, its effect on latency and its remedy.
//!
//! One list of questions has two uses. [`preflight`] asks them of the facts alone, so that a result can be judged
//! again on any machine; questions that need the running machine have no answer then. It gives what is wrong as
//! warnings. [`check`] asks them of the running machine, and also says what is well. Findings are about settings; they
//! are not measurements: a machine with many findings may still be fast enough, and only a run shows it. Numbers in
//! the texts are the machine's own, or have their source next to the code.

mod code;
mod command_line;
mod cpus;
mod graphics;
mod interrupts;
mod isolation;
mod live;
mod log;
mod memory;
mod platform;
mod power;
mod rights;
mod system;

pub use code::FindingCode;
pub use live::KernelConfig;

use crate::{HostError, HostRoot};
use code::QUESTIONS;
use live::LiveFiles;
use whylate_core::Facts;
use whylate_core::cpus::CpuSet;
use whylate_core::result::{CheckResult, CpuTable, Finding, Severity};
use whylate_core::warning::{Warning, push_once};

struct Inquiry<'a> {
    facts: &'a Facts,
    targets: &'a CpuSet,
    /// The running machine; absent if only its facts are known.
    live: Option<LiveFiles<'a>>,
}

impl Inquiry<'_> {
    /// Adds what to do for the next boot, if the running machine is there to do it.
    fn boot(&self, finding: Finding, fix: impl Into<String>) -> Finding {
        if self.live.is_some() { finding.boot(fix) } else { finding }
    }
}

/// What the machine of `facts` lacks for measuring a real-time task on `targets`, the most important first.
///
/// Each code occurs at most once. Nothing is found for a fact that is absent.
pub fn preflight(facts: &Facts, targets: &CpuSet) -> Vec<Warning> {
    let inquiry = Inquiry { facts, targets, live: None };
    let findings = QUESTIONS.iter().filter_map(|(code, question)| question(&inquiry, *code));
    findings.filter(|finding| finding.severity != Severity::Ok).map(|finding| finding.warning()).collect()
}

/// Whether the machine below `root` is fit for a real-time task on `targets`. `warnings` are what reading its facts
/// gave, `table` is its CPU table.
///
/// # Errors
/// [`HostError`] when /proc or /sys are there but cannot be read at all.
pub fn check(
    root: &HostRoot,
    facts: &Facts,
    targets: &CpuSet,
    table: &CpuTable,
    mut warnings: Vec<Warning>,
) -> Result<CheckResult, HostError> {
    let inquiry = Inquiry { facts, targets, live: Some(LiveFiles::new(root, table)) };
    let findings = QUESTIONS.iter().filter_map(|(code, question)| question(&inquiry, *code));
    let logged = inquiry.live.iter().flat_map(log::findings);
    let findings = findings.chain(logged).collect();
    let unread = inquiry.live.map(LiveFiles::into_unread).unwrap_or_default();
    for warning in table.warnings.iter().cloned().chain(unread) {
        push_once(&mut warnings, warning);
    }
    Ok(CheckResult::new(targets.clone(), findings, facts.clone(), warnings))
}

/// `CPU 3`, `CPUs 3-5`.
fn named(cpus: &CpuSet) -> String {
    format!("CPU{} {cpus}", if cpus.len() == 1 { "" } else { "s" })
}

/// `one` for a single CPU, `many` for several: the verb behind [`named`].
fn verb<'a>(cpus: &CpuSet, one: &'a str, many: &'a str) -> &'a str {
    if cpus.len() == 1 { one } else { many }
}

/// The first names of a list, with the number of the others.
fn listed(names: &[String]) -> String {
    const MAX: usize = 8;
    let shown = names.iter().take(MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
