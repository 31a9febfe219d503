//! Findings about the kernel and how it was booted.

use super::{FindingCode, Inquiry, command_line, named, verb};
use crate::facts::kernel_options;
use std::collections::BTreeMap;
use whylate_core::result::{Finding, Severity};
use whylate_core::units::CpuId;

/// Before Linux 6.12, `sched_rt_runtime_us` bounds real-time tasks (Documentation/scheduler/sched-rt-group.rst). Since
/// 6.12 the fair server replaces that ("sched/rt: Remove default bandwidth control"): it runs only while ordinary
/// tasks starve, 50 ms of each second by default, set per CPU in debugfs.
pub(super) fn throttling(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    if release(&inquiry.facts.kernel.release).is_some_and(|release| release >= (6, 12)) {
        return Some(fair_server(inquiry, code));
    }
    const PATH: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let settings = &inquiry.facts.settings;
    let Ok(runtime) = u64::try_from(settings.rt_runtime_us?) else {
        return code.well("real-time tasks are not throttled", PATH, "-1");
    };
    let period = u64::try_from(settings.rt_period_us?).ok()?;
    let Some(lost) = period.checked_sub(runtime).filter(|&lost| lost > 0) else {
        return code.well("real-time tasks may use the whole of each period", PATH, runtime.to_string());
    };
    let finding = code
        .advice(format!(
            "real-time tasks may use {runtime} us of each {period} us (kernel.sched_rt_runtime_us)"
        ))
        .effect(format!(
            "a real-time loop that never sleeps loses {lost} us per period, and these gaps are not caused by slow \
             kernel code"
        ))
        .seen(PATH, runtime.to_string())
        .now(
            "`sudo sysctl -w kernel.sched_rt_runtime_us=-1` while you measure; leave a CPU to the rest of the system",
        );
    let boot = "if real-time loops always leave at least one CPU free: boot with `sysctl.kernel.sched_rt_runtime_us=-1`";
    Some(inquiry.boot(finding, boot))
}

fn fair_server(inquiry: &Inquiry, code: FindingCode) -> Finding {
    let path = |cpu: CpuId| format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime");
    let runtimes: BTreeMap<CpuId, i64> = inquiry.live.as_ref().map_or_else(BTreeMap::new, |live| {
        inquiry.targets.iter().filter_map(|cpu| Some((cpu, live.number(&path(cpu))?))).collect()
    });
    if runtimes.len() == inquiry.targets.len() && runtimes.values().all(|runtime| *runtime == 0) {
        let text = format!("the fair server leaves {} to real-time tasks", named(inquiry.targets));
        return code.fine(text).seen("/sys/kernel/debug/sched/fair_server/cpuN/runtime", "0");
    }
    let text = "for waiting ordinary tasks, the kernel's fair server takes 50 ms of each second (unless \
                changed) from a real-time loop that never sleeps";
    let finding = Finding { treatment: None, ..code.advice(text) };
    let finding = finding.effect("the gaps in the loop are not caused by slow kernel code").now(format!(
        "keep ordinary tasks away from the target CPUs (isolation), or write 0 to \
         /sys/kernel/debug/sched/fair_server/cpuN/runtime for {} while you measure",
        named(inquiry.targets)
    ));
    match runtimes.iter().next() {
        Some((cpu, runtime)) => finding.seen(path(*cpu), runtime.to_string()),
        None => finding.seen("/proc/sys/kernel/osrelease", inquiry.facts.kernel.release.clone()),
    }
}

/// `6.12.48-rt-amd64` as (6, 12).
pub(super) fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn preemption(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/proc/sys/kernel/version";
    let kernel = &inquiry.facts.kernel;
    if kernel.realtime {
        return code.well("the kernel is PREEMPT_RT", PATH, kernel.version.clone());
    }
    (!kernel.version.is_empty()).then(|| {
        code.serious(format!("the kernel is not PREEMPT_RT (preemption: {})", kernel.preemption))
            .effect(
                "interrupt handlers, softirqs and code under spinlocks cannot be preempted, so a real-time task waits \
                 for them",
            )
            .seen(PATH, kernel.version.clone())
            .boot("boot a PREEMPT_RT kernel (Debian: linux-image-rt-amd64 or linux-image-rt-arm64)")
    })
}

/// Boot options for real time that are set.
pub(super) fn boot_options(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    inquiry.live.as_ref()?;
    let line = &inquiry.facts.kernel.command_line;
    if line.is_empty() {
        return None;
    }
    // Guides mention `kthread_cpus`, but no kernel of kernel.org has it.
    let is_one = |name: &str| command_line::REALTIME.contains(&name) || name == "kthread_cpus";
    let of_interest = |word: &&str| is_one(word.split('=').next().unwrap_or(word));
    let set: Vec<&str> = kernel_options(line).filter(of_interest).collect();
    Some(if set.is_empty() {
        let targets = inquiry.targets;
        code.info("the kernel command line has no real-time options")
            .effect("only the command line can keep ticks, RCU callbacks and managed interrupts away from a CPU")
            .seen("/proc/cmdline", line.clone())
            .boot(format!("boot with `isolcpus=managed_irq,domain,{targets} nohz_full={targets} rcu_nocbs={targets} irqaffinity=OTHERS`"))
    } else {
        code.fine(format!("the kernel command line has real-time options: {}", set.join(" ")))
            .seen("/proc/cmdline", set.join(" "))
    })
}

/// Documentation/admin-guide/lockup-watchdogs.rst: a timer on each CPU every 2/5 of `watchdog_thresh` (4 s by default);
/// CPUs of `nohz_full` are left out by default.
pub(super) fn watchdog(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/proc/sys/kernel/watchdog";
    let facts = inquiry.facts;
    let mask =
        inquiry.live.as_ref().and_then(|live| live.text("/proc/sys/kernel/watchdog_cpumask")?.parse().ok());
    let watched = match &mask {
        Some(mask) => inquiry.targets.intersection(mask),
        None => inquiry.targets.difference(&facts.cpu_sets.nohz_full),
    };
    if !facts.settings.watchdog? {
        return code.well("the lockup watchdog is off", PATH, "0");
    }
    if watched.is_empty() {
        return code.well("the lockup watchdog excludes the target CPUs", PATH, "1");
    }
    let finding = code
        .advice("the lockup watchdog is on")
        .effect(format!(
            "unless kernel.watchdog_cpumask excludes {}, the watchdog's timer interrupts {} every few seconds",
            named(&watched),
            verb(&watched, "it", "them")
        ))
        .seen(PATH, "1")
        .now("sudo sysctl -w kernel.watchdog=0");
    Some(inquiry.boot(finding, "boot with `nowatchdog`"))
}

/// Options of Documentation/admin-guide/kernel-parameters.txt that make every allocation, lock or function slower.
pub(super) fn debug_options(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const NAMES: [&str; 9] = [
        "slub_debug",
        "slab_debug",
        "page_poison",
        "init_on_free",
        "ftrace",
        "trace_event",
        "kmemleak",
        "page_owner",
        "debug_pagealloc",
    ];
    let is_debug = |word: &&str| {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        NAMES.contains(&name) && !matches!(value, "0" | "off" | "nop" | "-")
    };
    let line = &inquiry.facts.kernel.command_line;
    let options: Vec<&str> = kernel_options(line).filter(is_debug).collect();
    if options.is_empty() {
        let known = !line.is_empty();
        return known
            .then(|| code.fine("no debugging options were given at boot").seen("/proc/cmdline", "none"));
    }
    code.advice(format!("the kernel was booted with debugging options ({})", options.join(" ")))
        .effect("kernel code takes longer than without these options")
        .seen("/proc/cmdline", options.join(" "))
        .boot("boot without these options")
        .into()
}

/// Documentation/admin-guide/hw-vuln: mitigations act on kernel entries, context switches and indirect branches.
pub(super) fn mitigations(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/sys/devices/system/cpu/vulnerabilities";
    let all = &inquiry.facts.kernel.mitigations;
    let active = all.iter().filter(|(_, state)| state.starts_with("Mitigation"));
    let names: Vec<&str> = active.map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return (!all.is_empty())
            .then(|| code.fine("no mitigation of a processor vulnerability is on").seen(PATH, "none"));
    }
    code.info(format!("mitigations of processor vulnerabilities are on ({})", names.join(", ")))
        .effect("system calls, interrupts or context switches may take longer")
        .seen(PATH, names.join(", "))
        .boot("if no untrusted code runs here: boot with `mitigations=off`")
        .into()
}

/// Bits of Documentation/admin-guide/tainted-kernels.rst that say something about timing or health; the others
/// (licence, staging, test builds) are left out.
pub(super) fn taint(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const BITS: [(u32, &str); 8] = [
        (0, "proprietary module"),
        (4, "machine check"),
        (5, "bad page"),
        (7, "oops"),
        (9, "warning"),
        (12, "out-of-tree module"),
        (14, "soft lockup"),
        (15, "live patch"),
    ];
    const PATH: &str = "/proc/sys/kernel/tainted";
    let bits = inquiry.facts.kernel.tainted?;
    let is_set = |(bit, _): &&(u32, &str)| bits >> bit & 1 == 1;
    let reasons: Vec<&str> = BITS.iter().filter(is_set).map(|(_, reason)| *reason).collect();
    if reasons.is_empty() {
        return code.well("the kernel is not tainted in a way that matters here", PATH, bits.to_string());
    }
    // A lockup or an oops means that the kernel is broken; a foreign module only that it was changed.
    let severity =
        if [4, 5, 7, 14].iter().any(|bit| bits >> bit & 1 == 1) { Severity::Serious } else { Severity::Info };
    code.found(severity, format!("the kernel is tainted ({})", reasons.join(", ")))
        .effect("a tainted kernel may have other latencies than an untainted one")
        .seen(PATH, bits.to_string())
        .now("`dmesg` shows the cause; to measure an untainted kernel, reboot without that cause (a module)")
        .into()
}

#[cfg(test)]
mod tests {
    use super::super::code::FindingQuestion;
    use super::*;
    use whylate_core::cpus::CpuSet;
    use whylate_core::facts::Facts;

    fn ask(facts: &Facts, question: FindingQuestion) -> Option<Finding> {
        question(&Inquiry { facts, targets: &CpuSet::default(), live: None }, FindingCode::RtThrottling)
    }

    #[test]
    fn releases() {
        assert_eq!(release("6.12.48-rt-amd64"), Some((6, 12)));
        assert_eq!(release("6.9"), Some((6, 9)));
        assert_eq!(release("soon"), None);
        assert_eq!(release(""), None);
    }

    #[test]
    fn throttling_follows_the_kernel_version() {
        let mut facts = Facts::default();
        facts.settings.rt_runtime_us = Some(950_000);
        facts.settings.rt_period_us = Some(1_000_000);
        facts.kernel.release = "6.1.0".to_owned();
        let text = ask(&facts, throttling).map(|found| found.warning().text).unwrap_or_default();
        assert!(text.contains("loses 50000 us"), "{text}");
        facts.settings.rt_runtime_us = Some(-1);
        assert_eq!(ask(&facts, throttling).map(|found| found.severity), Some(Severity::Ok));
        facts.kernel.release = "6.12.1".to_owned();
        let text = ask(&facts, throttling).map(|found| found.text).unwrap_or_default();
        assert!(text.contains("fair server"), "{text}");
    }

    #[test]
    fn slow_clocks_name_the_counter_when_there_is_one() {
        use super::super::platform::clock_source;
        let mut facts = Facts::default();
        facts.clock.source = Some("hpet".to_owned());
        let fix = |facts: &Facts| ask(facts, clock_source).and_then(|found| found.fix_now);
        assert!(fix(&facts).is_some_and(|fix| fix.contains("dmesg")));
        facts.clock.available = vec!["hpet".to_owned(), "tsc".to_owned()];
        assert!(fix(&facts).is_some_and(|fix| fix.starts_with("echo tsc |")));
        facts.clock.source = Some("tsc".to_owned());
        assert_eq!(ask(&facts, clock_source).map(|found| found.severity), Some(Severity::Ok));
    }

    #[test]
    fn an_oops_is_serious_and_a_foreign_module_is_not() {
        let severity = |bits| {
            let mut facts = Facts::default();
            facts.kernel.tainted = Some(bits);
            ask(&facts, taint).map(|found| found.severity)
        };
        assert_eq!(severity(1 << 7), Some(Severity::Serious));
        assert_eq!(severity(1 | 1 << 12), Some(Severity::Info));
        assert_eq!(severity(1 << 10), Some(Severity::Ok));
    }
}
