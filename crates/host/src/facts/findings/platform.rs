//! Findings about what is below the kernel: hypervisor, container, firmware, processor, clock.

use super::{FindingCode, Inquiry, named};
use crate::cpu_stat::StealTimes;
use crate::smi::SmiCounter;
use whylate_core::cpus::CpuSet;
use whylate_core::result::Finding;
use whylate_core::units::Nanos;

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

pub(super) fn virtual_machine(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let Some(hypervisor) = inquiry.facts.environment.hypervisor.as_deref() else {
        let known = !inquiry.facts.processor.model.is_empty();
        return known
            .then(|| code.fine("no hypervisor was found").seen("/proc/cpuinfo", "no flag `hypervisor`"));
    };
    code.serious(format!("this is a virtual machine ({hypervisor})"))
        .effect(
            "the host can stop a CPU at any moment and so cause spikes; steal time shows only stops that the \
                 host reports",
        )
        .seen("/proc/cpuinfo, /sys/class/dmi/id", hypervisor)
        .now("measure on bare metal, or pin the virtual CPUs to isolated CPUs of the host")
        .into()
}

pub(super) fn container(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let Some(container) = inquiry.facts.environment.container.as_deref() else {
        let known = !inquiry.facts.kernel.version.is_empty();
        return known.then(|| {
            code.fine("no container was found").seen("/proc/self/cgroup", "no group of a container")
        });
    };
    code.advice(format!("this process runs in a container ({container})"))
        .effect("the container's limits may stop tasks, and other programs on its CPUs are not visible here")
        .seen("/proc/self/cgroup, /proc/1/environ", container)
        .now("measure outside the container, or give the container whole CPUs and no CPU quota")
        .into()
}

/// Steal time since boot; a hypervisor that reports none leaves it zero.
pub(super) fn steal(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    let times = StealTimes::read(live.root).ok()?;
    let stolen = inquiry.targets.iter().filter_map(|cpu| Some((cpu, times.of(cpu)?)));
    let stolen: Vec<_> = stolen.collect();
    let most = stolen.iter().map(|(_, time)| *time).max()?;
    let seen = format!("steal time of at most {most}");
    if most == Nanos(0) {
        return code.well("no steal time on the target CPUs since boot", "/proc/stat", seen);
    }
    let cpus: CpuSet = stolen.iter().filter(|(_, time)| time.0 > 0).map(|(cpu, _)| *cpu).collect();
    code.serious(format!(
        "the hypervisor has taken CPU time from {} since boot (steal time): at most {most} per CPU",
        named(&cpus)
    ))
    .effect(
        "during steal time nothing runs on the CPU, not even the kernel, and a task that should run is late",
    )
    .seen("/proc/stat", seen)
    .now("on the host: pin the virtual CPUs to CPUs that nothing else uses")
    .into()
}

/// cgroup v2 `cpu.max`, v1 `cpu.cfs_quota_us`, of this process's group (the ones above it are not visible in a
/// container).
pub(super) fn quota(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    let (path, text) = crate::cgroup::cpu_quota(live.root)?;
    if text.starts_with("max") || text.starts_with('-') {
        return code.well("the control group of this process has no CPU quota", path, text);
    }
    let unlimited = if path.ends_with("cpu.max") { "max" } else { "-1" };
    code.serious("the control group of this process has a CPU quota")
        .effect("when the quota is used up, the group's ordinary tasks are throttled until the period ends")
        .now(format!("remove the quota: `echo {unlimited} | sudo tee {path}`"))
        .seen(path, text)
        .into()
}

pub(super) fn firmware(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    if !super::super::processor::is_x86(&inquiry.facts.kernel.architecture) {
        return None;
    }
    let cpu = inquiry.targets.first()?;
    if inquiry.facts.environment.hypervisor.is_some() {
        return Some(
            code.info("interrupts by the host's firmware (SMI) cannot be seen in a virtual machine")
                .effect("the gaps of an SMI cannot be distinguished from the gaps of the host")
                .seen("MSR 0x34", "counts for the virtual machine only"),
        );
    }
    let count = SmiCounter::open(live.root, cpu).and_then(|counter| counter.read());
    Some(match count {
        Ok(0) => code.fine("the firmware has not interrupted this machine since reset").seen("MSR 0x34", "0"),
        Ok(count) => code
            .advice(format!("the firmware has interrupted all CPUs {count} times since reset (SMI)"))
            .effect("each SMI stops all CPUs at once for tens to hundreds of microseconds, and the kernel does not notice")
            .seen(format!("MSR 0x34 of CPU {cpu}"), count.to_string())
            .now("check whether the number of SMIs grows while you measure (`whylate measure stall`)")
            .boot("in the firmware setup, switch off what causes SMIs: USB legacy support, power capping, memory scrubbing"),
        Err(unavailable) => code
            .info(format!("interrupts by the firmware (SMI) cannot be counted: {unavailable}"))
            .effect("gaps caused by an SMI remain unexplained; the stall probe shows them as gaps without an interrupt")
            .seen("MSR 0x34", "not available"),
    })
}

pub(super) fn microcode(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    inquiry.live.as_ref()?;
    let revision = inquiry.facts.processor.microcode.as_deref()?;
    code.fine(format!("microcode {revision}: compare runs only at the same revision"))
        .seen("/proc/cpuinfo", revision)
        .into()
}

/// The kernel's `vdso_clock_mode` decides which clock sources can be read without a system call: those of the
/// hypervisors can while the host vouches for them; HPET, ACPI timer and jiffies cannot.
pub(super) fn clock_source(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let clock = &inquiry.facts.clock;
    let source = clock.source.as_deref()?;
    let text = format!("the clock source is {source}");
    let (is_slow, effect) = match source {
        "tsc" | "tsc-early" | "arch_sys_counter" | "timebase" | "riscv_clocksource" => {
            return code.well(text, CLOCK, source);
        }
        "hpet" | "acpi_pm" => (
            true,
            "reading the clock takes a system call that reads a slow device, and latencies include this time",
        ),
        "jiffies" | "refined-jiffies" => {
            (true, "the clock advances only with the timer tick, and latencies are only as exact as the tick")
        }
        "kvm-clock" | "xen" | "hyperv_clocksource_tsc_page" => (
            false,
            "reading the hypervisor's clock takes longer than reading the time-stamp counter (a system call, \
             unless the host declares the clock stable), and latencies include this time",
        ),
        _ => (false, "reading the clock may take a system call, and latencies include this time"),
    };
    let finding = if is_slow { code.serious(text) } else { code.advice(text) };
    let finding = finding.effect(effect).seen(CLOCK, source);
    let counter =
        ["tsc", "arch_sys_counter"].into_iter().find(|name| clock.available.iter().any(|a| a == name));
    Some(match counter {
        Some(counter) => finding.now(format!("echo {counter} | sudo tee {CLOCK}")),
        None => finding.now(
            "`dmesg | grep -i -e tsc -e clocksource` shows why the kernel does not offer the time-stamp counter",
        ),
    })
}

pub(super) fn counter(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    if inquiry.facts.kernel.architecture.is_empty() {
        return None;
    }
    if inquiry.facts.clock.counter_invariant {
        return Some(code.fine("the time-stamp counter runs at a constant rate in every power state"));
    }
    code.info("the time-stamp counter is not known to run at a constant rate in every power state")
        .effect("the stall probe reads the kernel's clock instead, which takes longer")
        .seen("/proc/cpuinfo", "`constant_tsc` or `nonstop_tsc` is missing")
        .into()
}
