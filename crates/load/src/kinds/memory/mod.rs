//! The memory load: prepares the workers, finds the fastest way, reports the rate.
//!
//! The rate is payload: bytes that the workers read plus bytes that they write (a copy counts both; a step of a chase
//! counts the 8 bytes of the word that it reads). Write-allocate, prefetches and evictions are not counted.

pub(crate) mod pace;
mod traffic;
mod worker;

use super::{LoadPlace, Work};
use crate::child::{LoadContext, LoadEvent, after, pin};
use crate::error::LoadError;
use crate::protocol::{Message, Ready};
use crate::rates::report;
use crate::spec::check_pace;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use traffic::Way;
use whylate_copy::Kernels;
use whylate_core::plan::{MemoryAccess, MemoryPlan, Pace};
use whylate_core::{Bytes, CpuId, CpuSet, MonoTime, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_sys::clock;
use whylate_sys::memory::HugePages;
use whylate_sys::schedule::allowed_of_this_thread;
use worker::{MemoryState, MemoryWorker};

/// Memory traffic: one thread on each CPU, each with a buffer of random data of its own.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemorySpec {
    pub cpus: CpuSet,
    pub access: MemoryAccess,
    /// Size of each thread's buffer (`copy`: source and destination together).
    pub working_set: Bytes,
    /// Whether the buffers should be on huge pages; without them there is a warning.
    #[serde(default)]
    pub huge_pages: bool,
    /// NUMA node of the buffers; by default each thread's own.
    pub node: Option<u32>,
    #[serde(default)]
    pub pace: Pace,
}

impl MemorySpec {
    /// The working set on the CPU where it is largest: on a hybrid processor `l3*4` has to be above every L3 that is
    /// loaded.
    pub(crate) fn resolve(plan: &MemoryPlan, place: &LoadPlace<'_>) -> Result<Self, LoadError> {
        let cpus = place.cpus("cpus", &plan.cpus)?;
        let mut working_set = Bytes(0);
        for cpu in cpus.iter().filter_map(|cpu| place.facts.cpu(cpu)) {
            working_set = working_set.max(plan.working_set.resolve(cpu)?);
        }
        let MemoryPlan { access, node, huge_pages, rate: pace, .. } = *plan;
        Ok(Self { cpus, access, working_set, huge_pages, node, pace })
    }
}

impl Work for MemorySpec {
    fn unit(&self) -> &str {
        "bytes_per_s"
    }

    fn cpus(&self) -> Option<&CpuSet> {
        Some(&self.cpus)
    }

    fn working_set(&self) -> Option<Bytes> {
        Some(self.working_set)
    }

    fn run(&self, context: &mut LoadContext) -> Result<(), LoadError> {
        run(self, context)
    }

    fn validate(&self) -> Result<(), LoadError> {
        if self.cpus.is_empty() {
            return Err(LoadError::NoCpus);
        }
        // A line for each of source and destination.
        let smallest = Bytes(if self.access == MemoryAccess::Copy { 128 } else { 64 });
        if self.working_set < smallest {
            let access = self.access.name();
            return Err(LoadError::WorkingSet { working_set: self.working_set, access, smallest });
        }
        check_pace(self.pace)
    }
}

/// Rounds in which the ways of doing it are compared, and time of each way in a round.
const TRIAL_ROUNDS: usize = 3;
const TRIAL_NS: u64 = 30_000_000;
/// Time after a change that does not count: the turn that is still running.
const TRIAL_SETTLE_NS: u64 = 3_000_000;

/// The threads, and what lets them begin.
struct Crew {
    shared: Arc<MemoryState>,
    threads: Vec<(CpuId, JoinHandle<()>)>,
    starts: Vec<Sender<()>>,
}

fn run(spec: &MemorySpec, context: &mut LoadContext) -> Result<(), LoadError> {
    check_memory(spec, &context.host)?;
    let mut crew = hire(spec, context)?;
    let Some(pages) = wait_prepared(&crew, spec, context)? else {
        return Ok(());
    };
    move_aside(spec, &context.host);
    for start in crew.starts.drain(..) {
        // The reporting loop notices a worker that has ended.
        let _ = start.send(());
    }
    let done = work(&crew, spec, &pages, context);
    crew.shared.stop();
    for (cpu, thread) in crew.threads {
        if thread.join().is_err() {
            return Err(LoadError::Worker { cpu });
        }
    }
    done
}

/// Refuses what would push the machine into swapping or the OOM killer.
fn check_memory(spec: &MemorySpec, host: &HostRoot) -> Result<(), LoadError> {
    let workers = spec.cpus.len();
    let wanted = spec.working_set.0.saturating_mul(workers as u64);
    let text = host.read("/proc/meminfo").ok().flatten();
    match text.as_deref().and_then(mem_available) {
        Some(available) if wanted > available / 2 => Err(LoadError::Memory {
            workers,
            working_set: spec.working_set,
            wanted: Bytes(wanted),
            available: Bytes(available),
        }),
        // Without /proc/meminfo, only the kernel's answer to the mapping is known.
        _ => Ok(()),
    }
}

/// MemAvailable of /proc/meminfo, in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Starts the threads; they allocate and fill their buffers on their own CPUs.
fn hire(spec: &MemorySpec, context: &LoadContext) -> Result<Crew, LoadError> {
    let shared = Arc::new(MemoryState::new(Way::candidates(spec.access), spec.cpus.len()));
    let mut crew = Crew { shared, threads: Vec::new(), starts: Vec::new() };
    for (index, cpu) in spec.cpus.iter().enumerate() {
        let (sender, start) = mpsc::channel();
        let worker = MemoryWorker {
            cpu,
            host: context.host.clone(),
            index,
            spec: spec.clone(),
            shared: Arc::clone(&crew.shared),
            sender: context.sender.clone(),
            start,
        };
        let thread = thread::Builder::new()
            .name(format!("memory-{cpu}"))
            .spawn(move || worker.run())
            .map_err(LoadError::system("starting a thread of the load"))?;
        crew.threads.push((cpu, thread));
        crew.starts.push(sender);
    }
    Ok(crew)
}

/// Waits until every buffer is filled; `None` when the load was stopped before.
fn wait_prepared(
    crew: &Crew,
    spec: &MemorySpec,
    context: &mut LoadContext,
) -> Result<Option<HugePages>, LoadError> {
    let mut pages = HugePages::NotAsked;
    for _ in &crew.threads {
        match context.event_until(MonoTime(u64::MAX)) {
            Some(LoadEvent::Prepared(HugePages::Unavailable { reason })) => {
                pages = HugePages::Unavailable { reason };
            }
            Some(LoadEvent::Prepared(found)) if pages == HugePages::NotAsked => pages = found,
            Some(LoadEvent::Prepared(_)) => {}
            Some(LoadEvent::Failed(error)) => return Err(error),
            _ => return Ok(None),
        }
    }
    for warning in warnings(spec, &pages, Kernels::best()) {
        context.tell(&Message::Warning(warning));
    }
    Ok(Some(pages))
}

/// What differs from the request.
fn warnings(spec: &MemorySpec, pages: &HugePages, kernels: Kernels) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let fix = "reserve huge pages (`sysctl vm.nr_hugepages=N`) or allow transparent huge pages \
               (`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`)";
    match pages {
        HugePages::Unavailable { reason } => {
            let text =
                format!("the memory load has no huge pages, so TLB misses slow the load down: {reason}");
            warnings.push(Warning::with_fix(WarningCode::NoHugePages, text, fix));
        }
        HugePages::Transparent { bytes } if *bytes < spec.working_set.0 / 2 => {
            let share = 100 * bytes / spec.working_set.0;
            let text = format!("only {share} % of a memory load is on huge pages: TLB misses slow the load");
            warnings.push(Warning::with_fix(WarningCode::FewHugePages, text, fix));
        }
        _ => {}
    }
    if spec.access == MemoryAccess::NonTemporal && !kernels.has_streaming_stores() {
        let text = "whylate supports no non-temporal stores on this CPU: the load uses ordinary stores, through the caches";
        warnings.push(Warning::new(WarningCode::NoNonTemporalStores, text));
    }
    warnings
}

/// Keeps the reporting thread off the CPUs of the workers if there are others.
fn move_aside(spec: &MemorySpec, host: &HostRoot) {
    let others = allowed_of_this_thread().map(|allowed| allowed.difference(&spec.cpus)).unwrap_or_default();
    if !others.is_empty() {
        // Without it the report costs a worker some microseconds per interval, nothing more.
        let _ = pin(host, &others);
    }
}

/// Compares the ways, says ready, and reports rates until the end.
fn work(
    crew: &Crew,
    spec: &MemorySpec,
    pages: &HugePages,
    context: &mut LoadContext,
) -> Result<(), LoadError> {
    let shared = &crew.shared;
    // A paced load need not be fast, and a trial at full speed would exceed its rate.
    if spec.pace == Pace::Full && !choose_fastest(shared, context)? {
        return Ok(());
    }
    let ready = Ready::now(std::process::id(), detail(crew, spec, pages));
    let begin = MonoTime(ready.at_ns);
    if !context.tell(&Message::Ready(ready)) {
        return Ok(());
    }
    let health = || match crew.threads.iter().find(|(_, thread)| thread.is_finished()) {
        Some((cpu, _)) => Err(LoadError::Worker { cpu: *cpu }),
        None => Ok(()),
    };
    report(context, begin, &|| shared.bytes(), &health)
}

/// Lets the running workers try each way in turn and keeps the best; `false` when the load was stopped.
fn choose_fastest(shared: &MemoryState, context: &LoadContext) -> Result<bool, LoadError> {
    let ways = shared.ways().len();
    // The best round of each counts: whatever else runs can only slow a round down.
    let mut best = vec![0.0f64; ways];
    for round in 0..TRIAL_ROUNDS * ways {
        if ways == 1 {
            break;
        }
        let index = round % ways;
        shared.select(index);
        if !keep_going(context, TRIAL_SETTLE_NS)? {
            return Ok(false);
        }
        let (begin, bytes) = (clock::now(), shared.bytes());
        if !keep_going(context, TRIAL_NS)? {
            return Ok(false);
        }
        let rate = (shared.bytes() - bytes) as f64 / (clock::now().0 - begin.0).max(1) as f64;
        best[index] = best[index].max(rate);
    }
    let fastest = (0..ways).max_by(|a, b| best[*a].total_cmp(&best[*b])).unwrap_or(0);
    shared.select(fastest);
    Ok(true)
}

/// Waits that long; `false` if the load was stopped meanwhile.
fn keep_going(context: &LoadContext, nanos: u64) -> Result<bool, LoadError> {
    match context.event_until(after(clock::now(), nanos)) {
        None => Ok(true),
        Some(LoadEvent::Failed(error)) => Err(error),
        Some(_) => Ok(false),
    }
}

/// How it is done, for people.
fn detail(crew: &Crew, spec: &MemorySpec, pages: &HugePages) -> String {
    let way = crew.shared.way();
    let (set, method) = (way.kernels.instruction_set(), way.method.name());
    let pages = match pages {
        HugePages::Reserved => ", reserved huge pages",
        HugePages::Transparent { .. } => ", transparent huge pages",
        HugePages::NotAsked | HugePages::Unavailable { .. } => "",
    };
    let access = spec.access.name();
    format!("{access} over {} on each of CPUs {}: {set}, {method}{pages}", spec.working_set, spec.cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn available_memory_is_read_and_respected() {
        let meminfo = "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(mem_available(meminfo), Some(2 << 20));
        assert_eq!(mem_available("MemTotal: 5 kB\n"), None);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(folder.path().join("proc/meminfo"), meminfo).unwrap();
        let host = HostRoot::at(folder.path());
        let spec = |working_set| MemorySpec {
            cpus: "0-1".parse().unwrap(),
            access: MemoryAccess::Read,
            working_set: Bytes(working_set),
            huge_pages: false,
            node: None,
            pace: Pace::Full,
        };
        assert!(check_memory(&spec(512 << 10), &host).is_ok());
        let error = check_memory(&spec((512 << 10) + 64), &host).unwrap_err().to_string();
        assert!(says("more-than-half-available", &error), "{error}");
    }

    #[test]
    fn missing_huge_pages_are_reported() {
        let spec = MemorySpec {
            cpus: "0".parse().unwrap(),
            access: MemoryAccess::Read,
            working_set: Bytes(4 << 20),
            huge_pages: true,
            node: None,
            pace: Pace::Full,
        };
        let codes = |pages: HugePages| -> Vec<String> {
            warnings(&spec, &pages, Kernels::best()).into_iter().map(|warning| warning.code).collect()
        };
        assert_eq!(codes(HugePages::Unavailable { reason: "none".to_owned() }), ["no-huge-pages"]);
        assert_eq!(codes(HugePages::Transparent { bytes: 1 << 20 }), ["few-huge-pages"]);
        assert!(codes(HugePages::Transparent { bytes: 4 << 20 }).is_empty());
        assert!(codes(HugePages::Reserved).is_empty());
    }
}
