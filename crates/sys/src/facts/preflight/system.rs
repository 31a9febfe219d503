//! Findings about the kernel, the clock, memory and where it all runs.

use super::{Finding, named, verb};
use crate::facts::kernel_options;
use whylate_core::Facts;
use whylate_core::cpus::CpuSet;
use whylate_core::units::{Bytes, Nanos};
use whylate_core::warning::Warning;

pub(super) fn virtual_machine(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let hypervisor = facts.environment.hypervisor.as_deref()?;
    Some(Finding::VirtualMachine.warning(
        format!(
            "this is a virtual machine ({hypervisor}): its host can stop a CPU at any moment, so spikes may come from \
             there, and steal time shows only what the host reports"
        ),
        "measure on the bare machine, or pin the virtual CPUs to isolated CPUs of the host",
    ))
}

pub(super) fn container(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let container = facts.environment.container.as_deref()?;
    Some(Finding::Container.warning(
        format!(
            "this process runs in a container ({container}): its limits may stop tasks, and what runs beside it on \
             the same CPUs is not visible from here"
        ),
        "measure outside the container, or give it whole CPUs and no CPU quota",
    ))
}

/// Before Linux 6.12, `sched_rt_runtime_us` bounds real-time tasks (Documentation/scheduler/sched-rt-group.rst). Since
/// 6.12 the fair server replaces that ("sched/rt: Remove default bandwidth control"): it runs only while ordinary
/// tasks starve, 50 ms of each second by default, set per CPU in debugfs.
pub(super) fn throttling(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
    if release(&facts.kernel.release).is_some_and(|release| release >= (6, 12)) {
        return Some(Finding::RtThrottling.warning(
            "while ordinary tasks wait for a CPU, the kernel's fair server takes it from a real-time loop that never \
             sleeps (50 ms of each second unless changed): such gaps are not latencies of the kernel",
            format!(
                "keep ordinary tasks off the targets (isolation), or write 0 to \
                 /sys/kernel/debug/sched/fair_server/cpuN/runtime for {} while you measure",
                named(targets)
            ),
        ));
    }
    let runtime = u64::try_from(facts.settings.rt_runtime_us?).ok()?;
    let period = u64::try_from(facts.settings.rt_period_us?).ok()?;
    let lost = period.checked_sub(runtime).filter(|&lost| lost > 0)?;
    Some(Finding::RtThrottling.warning(
        format!(
            "real-time tasks may use {runtime} us of each {period} us (kernel.sched_rt_runtime_us): a real-time loop \
             that never sleeps loses {lost} us per period, in gaps that are not latencies of the kernel"
        ),
        "`sudo sysctl -w kernel.sched_rt_runtime_us=-1` while you measure, with a CPU left for the rest of the system",
    ))
}

/// `6.12.48-rt-amd64` as (6, 12).
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn preemption(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let known = !facts.kernel.version.is_empty();
    (known && !facts.kernel.realtime).then(|| {
        Finding::KernelNotRealtime.warning(
            format!(
                "the kernel is not PREEMPT_RT (preemption: {}): interrupt handlers, softirqs and code under spinlocks \
                 cannot be preempted, so a real-time task waits for them",
                facts.kernel.preemption
            ),
            "boot a PREEMPT_RT kernel (Debian: linux-image-rt-amd64 or linux-image-rt-arm64)",
        )
    })
}

/// Which clock sources can be read without a system call is decided by their `vdso_clock_mode` in the kernel: those
/// of the hypervisors can while the host vouches for them, HPET, ACPI timer and jiffies cannot.
pub(super) fn clock_source(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let source = facts.clock.source.as_deref()?;
    let effect = match source {
        "tsc" | "tsc-early" | "arch_sys_counter" | "timebase" | "riscv_clocksource" => return None,
        "hpet" | "acpi_pm" => "each reading of the clock is a system call that reads a slow device",
        "jiffies" | "refined-jiffies" => "the time advances only with the timer tick",
        "kvm-clock" | "xen" | "hyperv_clocksource_tsc_page" => {
            "readings go through the hypervisor's clock, which costs more than the counter itself and is a system call \
             where the host does not vouch for it"
        }
        _ => "each reading of the clock may be a system call",
    };
    let text = format!("the clock source is {source}: {effect}, and that time is part of what is measured");
    let counter =
        ["tsc", "arch_sys_counter"].into_iter().find(|name| facts.clock.available.iter().any(|a| a == name));
    Some(match counter {
        Some(counter) => Finding::SlowClock.warning(
            text,
            format!(
                "echo {counter} | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
            ),
        ),
        None => Finding::SlowClock.warning(
            text,
            "see `dmesg | grep -i -e tsc -e clocksource` for why the kernel does not offer the time-stamp counter",
        ),
    })
}

pub(super) fn counter(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let known = !facts.kernel.architecture.is_empty();
    (known && !facts.clock.counter_invariant).then(|| {
        Finding::CounterNotInvariant.warning_without_fix(
            "the time-stamp counter is not known to run at a constant rate in every state: the stall probe uses the \
             clock instead, whose readings take longer",
        )
    })
}

/// Documentation/admin-guide/mm/transhuge.rst.
pub(super) fn huge_pages(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    (facts.settings.transparent_huge_pages.as_deref() == Some("always")).then(|| {
        Finding::HugePagesAlways.warning(
            "transparent huge pages are `always`: a page fault may clear a whole huge page, and khugepaged moves the \
             memory of running processes, which then wait",
            "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )
    })
}

pub(super) fn swap(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let bytes = facts.memory.swap_bytes.filter(|&bytes| bytes > 0)?;
    Some(Finding::SwapOn.warning(
        format!(
            "swap is on ({}): memory that is not locked may be written out, and its next use waits for the device",
            Bytes(bytes)
        ),
        "sudo swapoff -a",
    ))
}

pub(super) fn numa_balancing(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    (facts.settings.numa_balancing == Some(true)).then(|| {
        Finding::NumaBalancing.warning(
            "NUMA balancing is on: the kernel unmaps pages of running tasks to see who uses them, which causes page \
             faults, and moves pages and tasks between nodes",
            "sudo sysctl -w kernel.numa_balancing=0",
        )
    })
}

/// Documentation/admin-guide/lockup-watchdogs.rst: a timer on each CPU every 2/5 of `watchdog_thresh` (4 s by default);
/// CPUs of `nohz_full` are left out by default.
pub(super) fn watchdog(facts: &Facts, targets: &CpuSet) -> Option<Warning> {
    let watched = targets.difference(&facts.cpu_sets.nohz_full);
    (facts.settings.watchdog == Some(true) && !watched.is_empty()).then(|| {
        Finding::WatchdogOn.warning(
            format!(
                "the lockup watchdog is on: unless kernel.watchdog_cpumask leaves {} out, its timer interrupts {} \
                 every few seconds",
                named(&watched),
                verb(&watched, "it", "them")
            ),
            "sudo sysctl -w kernel.watchdog=0",
        )
    })
}

/// Options of Documentation/admin-guide/kernel-parameters.txt that make every allocation, lock or function slower.
pub(super) fn debug_options(facts: &Facts, _: &CpuSet) -> Option<Warning> {
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
    let options: Vec<&str> = kernel_options(&facts.kernel.command_line).filter(is_debug).collect();
    (!options.is_empty()).then(|| {
        Finding::DebugOptions.warning(
            format!(
                "the kernel was booted with debugging options ({}): kernel paths take longer than in production",
                options.join(" ")
            ),
            "boot without them",
        )
    })
}

/// Documentation/admin-guide/hw-vuln: mitigations act on kernel entries, context switches and indirect branches.
pub(super) fn mitigations(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let active = facts.kernel.mitigations.iter().filter(|(_, state)| state.starts_with("Mitigation"));
    let names: Vec<&str> = active.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        Finding::Mitigations.warning(
            format!(
                "mitigations of processor vulnerabilities are on ({}): system calls, interrupts or context switches \
                 may take longer",
                names.join(", ")
            ),
            "only where no untrusted code runs: boot with `mitigations=off`",
        )
    })
}

/// Bits of Documentation/admin-guide/tainted-kernels.rst that say something about timing or health; the others
/// (licence, staging, test builds) are left out.
pub(super) fn taint(facts: &Facts, _: &CpuSet) -> Option<Warning> {
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
    let bits = facts.kernel.tainted?;
    let reasons: Vec<&str> =
        BITS.iter().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, reason)| *reason).collect();
    (!reasons.is_empty()).then(|| {
        Finding::KernelTainted.warning(
            format!(
                "the kernel is tainted ({}): its timing may differ from that of the same kernel without that",
                reasons.join(", ")
            ),
            "see `dmesg` for the cause; restart, or unload the module, to measure the plain kernel",
        )
    })
}

/// With i915, runtime power management was seen to delay real-time tasks by about 1 ms until it was switched off
/// (github.com/redhat-performance/tuned, issue 719).
pub(super) fn gpu_power(facts: &Facts, _: &CpuSet) -> Option<Warning> {
    let managed = facts.gpus.iter().filter(|gpu| gpu.runtime_power.as_deref() == Some("auto"));
    let gpus: Vec<&str> = managed.map(|gpu| gpu.name.as_str()).collect();
    (!gpus.is_empty()).then(|| {
        Finding::GpuRuntimePower.warning(
            format!(
                "graphics devices may be powered down and up while measuring ({}): with some drivers that has delayed \
                 real-time tasks by about {}",
                gpus.join(", "),
                Nanos::from_millis(1)
            ),
            "echo on | sudo tee /sys/class/drm/cardN/device/power/control",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = throttling(&facts, &CpuSet::default()).map(|warning| warning.text).unwrap_or_default();
        assert!(text.contains("loses 50000 us"), "{text}");
        facts.settings.rt_runtime_us = Some(-1);
        assert_eq!(throttling(&facts, &CpuSet::default()), None);
        facts.kernel.release = "6.12.1".to_owned();
        let text = throttling(&facts, &CpuSet::default()).map(|warning| warning.text).unwrap_or_default();
        assert!(text.contains("fair server"), "{text}");
    }

    #[test]
    fn slow_clocks_name_the_counter_when_there_is_one() {
        let mut facts = Facts::default();
        facts.clock.source = Some("hpet".to_owned());
        let fix = |facts: &Facts| clock_source(facts, &CpuSet::default()).and_then(|warning| warning.fix);
        assert!(fix(&facts).is_some_and(|fix| fix.contains("dmesg")));
        facts.clock.available = vec!["hpet".to_owned(), "tsc".to_owned()];
        assert!(fix(&facts).is_some_and(|fix| fix.starts_with("echo tsc |")));
        facts.clock.source = Some("tsc".to_owned());
        assert_eq!(fix(&facts), None);
    }
}
