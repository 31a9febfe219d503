//! Findings about the kernel's own work on the targets: its threads, RCU, workqueues, statistics, timers.

use super::{FindingCode, Inquiry, listed, named, verb};
use crate::facts::kernel_options;
use crate::tick;
use std::collections::BTreeSet;
use whylate_core::cpus::CpuSet;
use whylate_core::result::{Finding, ThreadKind};

/// Threads that the kernel pinned there, and those whose affinity was set to that CPU.
pub(super) fn pinned_threads(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    let on = |kind| -> Vec<String> {
        let all = inquiry.targets.iter().flat_map(|cpu| live.table.threads_on(cpu, kind));
        let names: BTreeSet<&str> = all.map(|thread| thread.name.as_str()).collect();
        names.into_iter().map(str::to_owned).collect()
    };
    let pinned = on(ThreadKind::Pinned);
    let bound = on(ThreadKind::Bound);
    if pinned.is_empty() && bound.is_empty() {
        return None;
    }
    let bound = if bound.is_empty() {
        String::new()
    } else {
        format!("; user space also pinned these threads: {}", listed(&bound))
    };
    code.info(format!("{} kernel threads are pinned to {}{bound}", pinned.len(), named(inquiry.targets)))
        .effect(
            "these threads run when work is queued for their CPU, and delay only tasks that they can preempt",
        )
        .seen("/proc/PID/status, Cpus_allowed_list", listed(&pinned))
        .into()
}

/// CPUs of `rcu_nocbs` and `nohz_full` hand their callbacks to threads that can run elsewhere.
pub(super) fn rcu_callbacks(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    let line = &inquiry.facts.kernel.command_line;
    let asked = kernel_options(line).filter_map(|option| option.strip_prefix("rcu_nocbs="));
    let mut offloaded = inquiry.facts.cpu_sets.nohz_full.clone();
    for list in asked {
        let all = matches!(list, "all" | "0-N");
        let cpus =
            if all { Some(inquiry.facts.cpu_sets.present.clone()) } else { list.parse::<CpuSet>().ok() };
        offloaded = offloaded.union(&cpus.unwrap_or_default());
    }
    // Without its CONFIG the option has no effect, and the threads that would run the callbacks do not exist.
    let is_any =
        live.table.threads.is_empty() || live.table.threads.iter().any(|it| it.name.starts_with("rcuo"));
    if !is_any {
        offloaded = CpuSet::default();
    }
    let own = inquiry.targets.difference(&offloaded);
    if !own.is_empty() {
        return Some(Finding {
            treatment: None,
            ..code
                .advice(format!("{} {} own RCU callbacks", named(&own), verb(&own, "runs its", "run their")))
                .effect("thousands of callbacks may run one after another in a softirq, and delay the tasks of their CPU")
                .seen("/proc/cmdline", "no `rcu_nocbs=` for these CPUs")
                .boot(format!("boot with `rcu_nocbs={own}`"))
        });
    }
    let callback =
        |name: &str| ["rcuo", "rcuog/", "rcuop/", "rcuos/"].iter().any(|start| name.starts_with(start));
    let threads = live.table.threads.iter().filter(|thread| callback(&thread.name));
    let here = threads.filter(|thread| {
        thread.kind == ThreadKind::Movable && !thread.cpus.intersection(inquiry.targets).is_empty()
    });
    let here: Vec<String> = here.map(|thread| thread.name.clone()).collect();
    let seen = format!("offloaded {offloaded}");
    if here.is_empty() {
        return code.well("RCU callbacks of the target CPUs run on other CPUs", "/proc/cmdline", seen);
    }
    code.advice(format!("threads that run RCU callbacks may use the target CPUs ({})", listed(&here)))
        .effect("these threads compete with the measured task for the target CPUs")
        .seen("/proc/cmdline", seen)
        .now("move these threads with `taskset -p`, or shield the target CPUs")
        .into()
}

pub(super) fn workqueues(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/sys/devices/virtual/workqueue/cpumask";
    let live = inquiry.live.as_ref()?;
    let mask = live.mask(PATH)?;
    let open = mask.intersection(inquiry.targets);
    if open.is_empty() {
        return code.well("unbound workqueues run on other CPUs only", PATH, mask.to_string());
    }
    let left = mask.difference(inquiry.targets);
    let finding = code
        .advice(format!("unbound workqueues may run on {}", named(&open)))
        .effect("kworker threads compete with the task, and some work items take milliseconds")
        .seen(PATH, mask.to_string());
    Some(if left.is_empty() {
        finding
    } else {
        finding
            .now(format!("write the mask of CPUs {left} to {PATH}"))
            .boot(format!("boot with `workqueue.unbound_cpus={left}` (since Linux 6.6)"))
    })
}

/// Documentation/admin-guide/sysctl/vm.rst: `stat_interval`.
pub(super) fn vmstat(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/proc/sys/vm/stat_interval";
    let seconds = inquiry.live.as_ref()?.number(PATH)?;
    let quiet = inquiry.targets.difference(&inquiry.facts.cpu_sets.isolated).is_empty();
    if seconds >= 10 || quiet {
        return code.well(
            "memory statistics (vmstat) are updated every 10 s or less often, or the target CPUs are isolated",
            PATH,
            seconds.to_string(),
        );
    }
    code.info(format!("memory statistics (vmstat) are updated on each CPU every {seconds} s"))
        .effect("for each update, a kworker runs on each CPU for a few microseconds")
        .seen(PATH, seconds.to_string())
        .now("sudo sysctl -w vm.stat_interval=120")
        .boot("boot with `sysctl.vm.stat_interval=120`")
        .into()
}

/// High-resolution timers that are armed on the targets now, except for the tick.
pub(super) fn timers(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const TICKS: [&str; 3] = ["tick_nohz_handler", "tick_sched_timer", "tick_nohz_highres_handler"];
    let live = inquiry.live.as_ref()?;
    let timers = tick::read(live.root).ok()??;
    let on_targets = inquiry.targets.iter().filter_map(|cpu| timers.get(&cpu));
    let functions: BTreeSet<&str> = on_targets
        .flat_map(|timers| &timers.functions)
        .map(String::as_str)
        .filter(|name| !TICKS.contains(name))
        .collect();
    let names: Vec<String> = functions.into_iter().map(str::to_owned).collect();
    if names.is_empty() {
        return code.well("no timer except the tick is armed on the target CPUs", "/proc/timer_list", "none");
    }
    code.info(format!("timers are armed on the target CPUs: {}", listed(&names)))
        .effect(
            "each timer interrupts the CPU when it expires; `hrtimer_wakeup` is the timer of a sleeping task",
        )
        .seen("/proc/timer_list", listed(&names))
        .into()
}
