//! The facts of a machine: what a latency figure depends on, read once before anything is measured.
//!
//! [`collect`] fills [`whylate_core::Facts`] from a [`HostRoot`]; [`preflight`] says what the machine lacks for
//! real-time work, with the effect on the figures and the remedy. Nothing here changes a machine, and nothing is
//! measured: a fact is what the kernel states.

mod environment;
mod findings;
mod graphics;
mod kernel;
mod privileges;
mod processor;
mod settings;

pub use findings::{FindingCode, KernelConfig, check, preflight};
pub use graphics::{GpuQuestion, GpuSampler};

use crate::cpuinfo::CpuInfo;
use crate::{HostError, HostRoot};
use std::cell::RefCell;
use std::str::FromStr;
use whylate_core::Facts;
use whylate_core::cpus::CpuSet;
use whylate_core::warning::{Warning, push_once};

/// Reads every fact of the machine below `root`.
///
/// What the machine does not offer is absent. The warnings name the files that are there but could not be
/// understood, and what only the files show (a locked-down kernel); what the facts themselves show is said by
/// [`preflight`].
pub fn collect(root: &HostRoot) -> (Facts, Vec<Warning>) {
    let reader = FactReader { root, warnings: RefCell::default() };
    let info = reader.kept(CpuInfo::read(root)).unwrap_or_default();
    let kernel = kernel::kernel(&reader, &info);
    let cpu_sets = processor::cpu_sets(&reader, &info);
    let facts = Facts {
        whylate_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: reader.text("/proc/sys/kernel/hostname").unwrap_or_default(),
        processor: processor::processor(&reader, &info),
        cpus: processor::cpus(&reader, &cpu_sets, &kernel.architecture),
        clock: settings::clock(&reader, &info, &kernel.architecture),
        settings: settings::settings(&reader, &cpu_sets.online),
        memory: settings::memory(&reader),
        privileges: privileges::privileges(&reader, &kernel),
        environment: environment::environment(&reader, &info),
        gpus: graphics::gpus(&reader),
        kernel,
        cpu_sets,
    };
    kernel::warn_of_lockdown(&reader);
    (facts, reader.warnings.into_inner())
}

/// A [`HostRoot`] whose errors become warnings, so that one strange file never hides all other facts.
struct FactReader<'a> {
    root: &'a HostRoot,
    warnings: RefCell<Vec<Warning>>,
}

impl FactReader<'_> {
    /// The value, or `None` with a warning.
    fn kept<T>(&self, result: Result<T, HostError>) -> Option<T> {
        result.map_err(|error| self.warn_of_unreadable(&error.to_string())).ok()
    }

    fn warn_of_unreadable(&self, problem: &str) {
        let text = format!("{problem}; this fact is missing from the result");
        self.warn(FindingCode::FactUnreadable.warning_without_fix(text));
    }

    fn warn(&self, warning: Warning) {
        push_once(&mut self.warnings.borrow_mut(), warning);
    }

    /// The whole text of a file.
    fn raw(&self, path: &str) -> Option<String> {
        self.kept(self.root.read(path)).flatten()
    }

    /// The trimmed text of a file.
    fn text(&self, path: &str) -> Option<String> {
        self.kept(self.root.read_trimmed(path)).flatten()
    }

    /// The number that a file holds.
    fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.kept(self.root.read_number(path)).flatten()
    }

    /// Whether a file holds a number other than zero.
    fn flag(&self, path: &str) -> Option<bool> {
        self.number::<i64>(path).map(|value| value != 0)
    }

    /// The CPU list that a file holds.
    fn cpus(&self, path: &str) -> Option<CpuSet> {
        self.kept(self.root.read_cpus(path)).flatten()
    }

    fn list(&self, folder: &str) -> Vec<String> {
        self.kept(self.root.list(folder)).unwrap_or_default()
    }

    fn list_numbered(&self, folder: &str, prefix: &str) -> Vec<u32> {
        self.kept(self.root.list_numbered(folder, prefix)).unwrap_or_default()
    }
}

/// The value behind `key:` in a text of such lines (`/proc/self/status`, `/proc/meminfo`), trimmed.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim()))
}

/// The words of a kernel command line that are meant for the kernel: those behind `--` go to the first process.
fn kernel_options(command_line: &str) -> impl DoubleEndedIterator<Item = &str> {
    let own = command_line.split_whitespace().take_while(|word| *word != "--");
    own.collect::<Vec<_>>().into_iter()
}
