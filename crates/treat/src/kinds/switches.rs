//! Settings of the whole machine in one or a few files: huge pages, page merging, lockup detectors, real-time
//! throttling.

use crate::change::{Change, Target};
use crate::kinds::{required_file, writable};
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use whylate_core::plan::{KsmPlan, NumaBalancingPlan, RtThrottlingPlan, ThpPlan, WatchdogPlan};

const THP_FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

impl Planner for ThpPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let mut changes = Vec::new();
        let effect = "transparent huge pages: mapping, splitting and compacting them stalls tasks";
        for (name, value) in [("enabled", Some(&self.enabled)), ("defrag", self.defrag.as_ref())] {
            let Some(value) = value else { continue };
            let path = format!("{THP_FOLDER}/{name}");
            required_file(surroundings, &path, "this kernel has no transparent huge pages")?;
            one_of(surroundings, &path, value)?;
            changes.push(Change::required(Target::file_with(path, Reading::Bracketed), value, effect));
        }
        Ok(Planned::changes(changes))
    }
}

/// Refuses a value that a file of the form `always [madvise] never` does not list.
fn one_of(surroundings: &Surroundings, path: &str, value: &str) -> Result<(), Impossible> {
    let text = surroundings.root.read_trimmed(path)?.unwrap_or_default();
    let known: Vec<&str> = text.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect();
    if known.contains(&value) {
        return Ok(());
    }
    Err(Impossible::new(format!("{path} does not accept `{value}`; choose from {}", known.join(", "))))
}

/// Switches one file on or off.
fn switch(
    surroundings: &Surroundings,
    path: &str,
    enabled: bool,
    otherwise: &str,
    effect: &str,
) -> Result<Planned, Impossible> {
    required_file(surroundings, path, otherwise)?;
    Ok(Planned::changes(vec![Change::required(Target::file(path), on_off(enabled), effect)]))
}

/// What the kernel's files accept as a switch.
pub(super) fn on_off(enabled: bool) -> &'static str {
    if enabled { "1" } else { "0" }
}

impl Planner for KsmPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let otherwise = "this kernel does not merge identical pages (CONFIG_KSM)";
        let effect =
            "merging of identical pages: a kernel thread uses a CPU, and writes to merged pages fault";
        switch(surroundings, "/sys/kernel/mm/ksm/run", self.enabled, otherwise, effect)
    }
}

impl Planner for NumaBalancingPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let otherwise = "this kernel does not balance NUMA nodes (CONFIG_NUMA_BALANCING)";
        let effect =
            "NUMA balancing: the kernel unmaps pages to see which tasks use them, and the next use faults";
        switch(surroundings, "/proc/sys/kernel/numa_balancing", self.enabled, otherwise, effect)
    }
}

impl Planner for WatchdogPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let files = [
            ("soft_watchdog", "soft-lockup detector: a timer and a thread of the highest priority per CPU"),
            // Without a performance counter the kernel refuses the second.
            ("nmi_watchdog", "hard-lockup detector: a non-maskable interrupt per CPU"),
        ];
        let mut changes = Vec::new();
        for (name, effect) in files {
            let path = format!("/proc/sys/kernel/{name}");
            if surroundings.root.exists(&path) {
                if changes.is_empty() {
                    writable(surroundings, &path)?;
                }
                let change = Change::required(Target::file(path), on_off(self.enabled), effect);
                changes.push(Change { required: changes.is_empty(), ..change });
            }
        }
        if changes.is_empty() {
            return Err(Impossible::new(
                "this kernel has no lockup detectors (no /proc/sys/kernel/soft_watchdog)",
            ));
        }
        Ok(Planned::changes(changes))
    }
}

impl Planner for RtThrottlingPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let path = "/proc/sys/kernel/sched_rt_runtime_us";
        required_file(surroundings, path, "this kernel has no real-time throttling")?;
        let value = match self.runtime {
            None => "-1".to_owned(),
            Some(runtime) => {
                let period_path = "/proc/sys/kernel/sched_rt_period_us";
                let period: u64 = surroundings.root.read_number(period_path)?.unwrap_or(1_000_000);
                let micros = runtime.0 / 1_000;
                if micros > period {
                    let reason =
                        format!("runtime {runtime} is above the period of {period} us in {period_path}");
                    return Err(Impossible::new(reason));
                }
                micros.to_string()
            }
        };
        let effect = "time that real-time tasks may use in each period before they are throttled";
        Ok(Planned::changes(vec![Change::required(Target::file(path), value, effect)]))
    }
}
