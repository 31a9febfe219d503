//! Findings about a machine: what `whylate check` prints, and where the warnings before a measurement come from.

use crate::cpus::CpuSet;
use crate::facts::Facts;
use crate::order::InOrder;
use crate::warning::Warning;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `format` of [`CheckResult`].
pub const CHECK_FORMAT: &str = "whylate.check/1";

/// What `whylate check` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// [`CHECK_FORMAT`].
    pub format: String,
    /// The CPUs that a real-time task will run on.
    pub cpus: CpuSet,
    /// Whether the machine is fit: no serious finding.
    pub fit: bool,
    /// The findings by theme; within a theme the most serious first.
    pub findings: Vec<Finding>,
    /// The machine.
    pub facts: Facts,
    /// What could not be read, and why.
    pub warnings: Vec<Warning>,
}

words! {
    /// How serious a finding is.
    pub enum Severity: "a severity" {
        /// Prevents any real-time guarantee.
        Serious = "serious",
        /// Increases latencies, and can be changed.
        Advice = "advice",
        /// Worth knowing, but not wrong in itself.
        Info = "info",
        /// Nothing is wrong.
        Ok = "ok",
    }
}

words! {
    /// What a finding is about, in the order of reports.
    pub enum Theme: "a theme" {
        /// Where the kernel runs: hypervisor, firmware, clock.
        Platform = "platform",
        /// The kernel and its boot options.
        Kernel = "kernel",
        /// What this process may do.
        Rights = "rights",
        /// What else may run on the target CPUs.
        Isolation = "isolation",
        /// What may interrupt the target CPUs.
        Interrupts = "interrupts",
        /// Frequency and idle states.
        Power = "power",
        /// Memory and caches.
        Memory = "memory",
        /// Graphics devices.
        Graphics = "graphics",
    }
}

impl Theme {
    /// Its heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Rights => "Rights",
            Self::Platform => "Platform",
            Self::Kernel => "Kernel",
            Self::Isolation => "Isolation of the target CPUs",
            Self::Interrupts => "Interrupts",
            Self::Power => "Power",
            Self::Memory => "Memory and caches",
            Self::Graphics => "Graphics",
        }
    }
}

/// Where something was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// File or folder.
    pub path: String,
    /// Content of the file or folder.
    pub value: String,
}

/// One finding.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Stable name for scripts, in kebab case: `kernel-not-realtime`.
    pub id: String,
    /// The theme of the finding.
    pub theme: Theme,
    /// How serious the finding is.
    pub severity: Severity,
    /// The finding, in one sentence.
    pub text: String,
    /// The finding's effect on latency; absent if all is well.
    pub effect: Option<String>,
    /// Where the finding was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// Title of a kernel document, manual page or paper that describes the effect.
    pub source: Option<String>,
    /// What to do on the running machine.
    pub fix_now: Option<String>,
    /// What to do for the next boot.
    pub fix_boot: Option<String>,
    /// The treatment that makes the change and can undo it (`whylate treat apply KIND`).
    pub treatment: Option<String>,
}

impl Finding {
    /// Adds the effect on latency.
    #[must_use]
    pub fn effect(mut self, effect: impl Into<String>) -> Self {
        self.effect = Some(effect.into());
        self
    }

    /// Adds what to do on the running machine.
    #[must_use]
    pub fn now(mut self, fix: impl Into<String>) -> Self {
        self.fix_now = Some(fix.into());
        self
    }

    /// Adds what to do for the next boot.
    #[must_use]
    pub fn boot(mut self, fix: impl Into<String>) -> Self {
        self.fix_boot = Some(fix.into());
        self
    }

    /// Adds where it was seen.
    #[must_use]
    pub fn seen(mut self, path: impl Into<String>, value: impl Into<String>) -> Self {
        self.evidence.push(Evidence { path: path.into(), value: value.into() });
        self
    }

    /// The same as a warning of a measurement: what is found and its effect in one sentence, both remedies in another.
    pub fn warning(&self) -> Warning {
        let text = match &self.effect {
            Some(effect) => format!("{}: {effect}", self.text),
            None => self.text.clone(),
        };
        let fix = match (&self.fix_now, &self.fix_boot) {
            (Some(now), Some(boot)) => Some(format!("{now}; or {boot}")),
            (now, boot) => now.clone().or_else(|| boot.clone()),
        };
        Warning { code: self.id.clone(), text, fix }
    }
}

impl CheckResult {
    /// The result for these findings, sorted by theme and severity.
    pub fn new(cpus: CpuSet, mut findings: Vec<Finding>, facts: Facts, warnings: Vec<Warning>) -> Self {
        findings.order_by_key(|finding| (finding.theme, finding.severity));
        let fit = !findings.iter().any(|finding| finding.severity == Severity::Serious);
        Self { format: CHECK_FORMAT.to_owned(), cpus, fit, findings, facts, warnings }
    }

    /// How many findings there are of that severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(id: &str, theme: Theme, severity: Severity) -> Finding {
        Finding {
            id: id.to_owned(),
            theme,
            severity,
            text: format!("{id} is so"),
            effect: None,
            evidence: Vec::new(),
            source: None,
            fix_now: None,
            fix_boot: None,
            treatment: None,
        }
    }

    #[test]
    fn sorted_by_theme_then_severity_and_unfit_with_something_serious() {
        let findings = vec![
            finding("d", Theme::Graphics, Severity::Serious),
            finding("b", Theme::Kernel, Severity::Ok),
            finding("a", Theme::Kernel, Severity::Advice),
        ];
        let result = CheckResult::new(CpuSet::default(), findings.clone(), Facts::default(), Vec::new());
        let ids: Vec<&str> = result.findings.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "d"]);
        assert!(!result.fit);
        assert_eq!(result.count(Severity::Advice), 1);
        let fit = CheckResult::new(CpuSet::default(), findings[1..].to_vec(), Facts::default(), Vec::new());
        assert!(fit.fit);
    }

    #[test]
    fn warnings_say_both_remedies() {
        let found =
            finding("x", Theme::Power, Severity::Advice).effect("slow").now("do").boot("boot with `y`");
        let warning = found.warning();
        assert_eq!((warning.code.as_str(), warning.text.as_str()), ("x", "x is so: slow"));
        assert_eq!(warning.fix.as_deref(), Some("do; or boot with `y`"));
        assert_eq!(finding("x", Theme::Power, Severity::Ok).warning().fix, None);
    }
}
