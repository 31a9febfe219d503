//! Reads what the CPU table shows: threads, interrupt lines, ticks, frequencies and limits of idle states.
//!
//! Nothing is changed. What an ordinary user may not read is missing, with a warning that names it.

use crate::cpu_frequency;
use crate::interrupts::Counts;
use crate::threads::Threads;
use crate::{HostError, HostRoot, irq_lines, tick};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use whylate_core::WarningCode;
use whylate_core::facts::Facts;
use whylate_core::result::{CpuTable, Observed, cpu_table};
use whylate_core::units::CpuId;
use whylate_core::warning::Warning;

const CPUS: &str = "/sys/devices/system/cpu";

/// Two readings of the interrupt counters with a pause between them, and everything else after it.
#[derive(Debug)]
pub struct Sampler {
    root: HostRoot,
    before: Counts,
    since: Instant,
}

impl Sampler {
    /// Begins to count interrupts.
    ///
    /// # Errors
    /// [`HostError`] when the counters are there but cannot be read.
    pub fn start(root: &HostRoot) -> Result<Self, HostError> {
        Ok(Self { root: root.clone(), before: Counts::read(root)?, since: Instant::now() })
    }

    /// The table now, with the interrupts since the last call or the start.
    ///
    /// # Errors
    /// [`HostError`] when a file is there but cannot be read or understood.
    pub fn table(&mut self, facts: &Facts) -> Result<CpuTable, HostError> {
        let after = Counts::read(&self.root)?;
        let elapsed = self.since.elapsed();
        self.since = Instant::now();
        let interrupts = Counts::delta(&self.before, &after, &facts.cpu_sets.online);
        self.before = after;
        Ok(cpu_table(facts, &Observed { interrupts, ..observe(&self.root, facts, elapsed)? }))
    }
}

fn observe(root: &HostRoot, facts: &Facts, elapsed: Duration) -> Result<Observed, HostError> {
    let threads = Threads::read(root)?;
    let lines = irq_lines::read(root)?;
    let timers = tick::read(root)?;
    let mut warnings = Vec::new();
    if !threads.kernel_visible() {
        let hidden = "kernel threads are not visible to this process: only the visible threads are counted";
        let fix = "run whylate outside the container, as root (or mount /proc without hidepid)";
        warnings.push(Warning::with_fix(WarningCode::ThreadsHidden, hidden, fix));
    }
    if lines.is_empty() {
        let text = "/proc/irq shows no interrupt line, so the interrupts that may reach a CPU are not known";
        warnings.push(Warning::new(WarningCode::InterruptLinesHidden, text));
    }
    if timers.is_none() {
        let text = "/proc/timer_list cannot be read, so the table does not show which ticks are stopped";
        warnings.push(Warning::new(WarningCode::TimersHidden, text));
    }
    let stopped =
        timers.unwrap_or_default().into_iter().filter_map(|(cpu, timers)| Some((cpu, timers.tick_stopped?)));
    Ok(Observed {
        interval_ns: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
        threads_known: !threads.rows.is_empty(),
        threads: threads.rows,
        lines_known: !lines.is_empty(),
        lines,
        interrupts: Vec::new(),
        ticks_stopped: stopped.collect(),
        frequencies_hz: cpu_frequency::read(root, &facts.cpu_sets.online)?,
        latency_limits_ns: latency_limits(root, facts)?,
        l3_ids: l3_ids(root, facts)?,
        warnings,
    })
}

/// The stricter of the request of all (`/dev/cpu_dma_latency`) and that of each CPU. In `pm_qos_resume_latency_us`, 0 is
/// no limit and `n/a` allows no latency at all (Documentation/ABI/testing/sysfs-devices-power).
fn latency_limits(root: &HostRoot, facts: &Facts) -> Result<BTreeMap<CpuId, u64>, HostError> {
    let of_all = cpu_frequency::latency_request_ns(root);
    let mut limits = BTreeMap::new();
    for cpu in facts.cpu_sets.online.iter() {
        let own =
            match root.read_trimmed(&format!("{CPUS}/cpu{cpu}/power/pm_qos_resume_latency_us"))?.as_deref() {
                Some("n/a") => Some(0),
                Some(text) => text
                    .parse::<u64>()
                    .ok()
                    .filter(|&micros| micros > 0)
                    .map(|micros| micros.saturating_mul(1_000)),
                None => None,
            };
        if let Some(limit) = own.into_iter().chain(of_all).min() {
            limits.insert(cpu, limit);
        }
    }
    Ok(limits)
}

fn l3_ids(root: &HostRoot, facts: &Facts) -> Result<BTreeMap<CpuId, u32>, HostError> {
    let mut ids = BTreeMap::new();
    for cpu in facts.cpu_sets.online.iter() {
        let folder = format!("{CPUS}/cpu{cpu}/cache");
        for index in root.list_numbered(&folder, "index")? {
            if root.read_trimmed(&format!("{folder}/index{index}/level"))?.as_deref() == Some("3") {
                ids.extend(root.read_number(&format!("{folder}/index{index}/id"))?.map(|id| (cpu, id)));
            }
        }
    }
    Ok(ids)
}
