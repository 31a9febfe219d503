//! What BPF programs can record on this machine: each facility is tried, not guessed.

use crate::causes::{BY_VECTOR, Causes, EVENTS};
use crate::counters::missing_counters;
use crate::grace::check_grace_periods;
use crate::object::check_namespaces;
use crate::settings::HistogramsConfig;
use crate::snapshot::Facility;
use whylate_core::CpuSet;
use whylate_core::result::HistogramKind;
use whylate_host::HostRoot;
use whylate_host::cpuinfo::CpuInfo;
use whylate_sys::schedule;

/// The programs themselves: all other facilities need them.
const PROGRAMS: &str = "BPF programs";
/// Causes by the programs: in a pid namespace they are refused although the programs run.
const CAUSES: &str = "causes from BPF";
/// Names of functions instead of addresses.
const FUNCTION_NAMES: &str = "names of kernel functions";
const FLUSHES: &str = "TLB flushes by interrupts";
/// What tells more work from slower work.
const COUNTERS: [&str; 2] = ["instructions and cycles of threads", "cache misses of threads"];

/// The names of everything that [`facilities`] tries, in the same order.
pub fn facility_names() -> Vec<String> {
    if !cfg!(feature = "bpf") {
        return vec![PROGRAMS.to_owned()];
    }
    let histograms = HistogramKind::ALL.map(histogram);
    let events = EVENTS.into_iter().map(|(name, _)| name);
    let others = events.chain([BY_VECTOR, FUNCTION_NAMES, FLUSHES]).chain(COUNTERS).map(str::to_owned);
    [PROGRAMS, CAUSES].map(str::to_owned).into_iter().chain(histograms).chain(others).collect()
}

fn histogram(kind: HistogramKind) -> String {
    format!("histogram {kind}")
}

/// Loads and attaches every program for a moment. Returns each facility, with the reason if it is missing.
pub fn facilities(host: &HostRoot) -> Vec<Facility> {
    let facility = |name: &str, missing| Facility { name: name.to_owned(), missing };
    let cpus =
        schedule::allowed_of_this_thread().unwrap_or_else(|_| CpuSet::from_iter([schedule::current_cpu()]));
    let started = check_grace_periods(host)
        .and_then(|()| Causes::start(host, &cpus, &HistogramsConfig::new(cpus.clone())));
    let mut causes = match started {
        Ok(causes) => causes,
        Err(error) => return vec![facility(PROGRAMS, Some(error.to_string()))],
    };
    let mut found = vec![facility(PROGRAMS, None)];
    found.push(facility(CAUSES, check_namespaces().err().map(|error| error.to_string())));
    let histograms = causes.histograms();
    for kind in HistogramKind::ALL {
        let missing = histograms.unavailable().iter().find(|(none, _)| *none == kind);
        found.push(facility(&histogram(kind), missing.map(|(_, reason)| reason.clone())));
    }
    found.extend_from_slice(causes.facilities());
    found.push(facility(FUNCTION_NAMES, missing_names(&causes)));
    found.push(facility(FLUSHES, broadcast_flushes(host)));
    let counters = COUNTERS.into_iter().zip(missing_counters(host, &cpus));
    found.extend(counters.map(|(name, missing)| facility(name, missing)));
    found
}

fn missing_names(causes: &Causes) -> Option<String> {
    let reason = "/proc/kallsyms shows no addresses: run whylate as root, with kernel.kptr_restrict below 2";
    causes.lacks_symbols().then(|| reason.to_owned())
}

/// Why flushes of other CPUs' TLBs are not counted if the processor does them without an interrupt.
pub(crate) fn broadcast_flushes(host: &HostRoot) -> Option<String> {
    let broadcast = if cfg!(target_arch = "aarch64") {
        "them (TLBI)"
    } else if CpuInfo::read(host).ok()?.has_flag("invlpgb") {
        "some of them (INVLPGB)"
    } else {
        return None;
    };
    Some(format!("the processor broadcasts {broadcast} without an interrupt, so they are not counted"))
}
