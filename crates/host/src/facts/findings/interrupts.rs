//! Findings about interrupts of devices on the targets.

use super::{FindingCode, Inquiry, listed, named};
use std::collections::BTreeSet;
use whylate_core::cpus::CpuSet;
use whylate_core::result::{Finding, LineRow};

fn lines(inquiry: &Inquiry, movable: bool) -> Option<Vec<LineRow>> {
    let live = inquiry.live.as_ref()?;
    if live.table.lines.is_empty() {
        return None;
    }
    let numbers: BTreeSet<u32> = inquiry
        .targets
        .iter()
        .flat_map(|cpu| live.table.lines_on(cpu, movable).map(|line| line.line).collect::<Vec<_>>())
        .collect();
    Some(live.table.lines.iter().filter(|line| numbers.contains(&line.line)).cloned().collect())
}

/// `125 nvme0q3` for each.
fn names(lines: &[LineRow]) -> String {
    let name = |line: &LineRow| {
        let device = line.description.split_whitespace().last().unwrap_or_default();
        format!("{} {device}", line.line).trim_end().to_owned()
    };
    listed(&lines.iter().map(name).collect::<Vec<_>>())
}

pub(super) fn movable(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let lines = lines(inquiry, true)?;
    let seen = "/proc/irq/N/smp_affinity_list";
    if lines.is_empty() {
        return code.well("no movable interrupt may reach the target CPUs", seen, "none");
    }
    let others = inquiry.facts.cpu_sets.online.difference(inquiry.targets);
    let finding = code
        .advice(format!(
            "{} interrupt line{} may reach {}: {}",
            lines.len(),
            if lines.len() == 1 { "" } else { "s" },
            named(inquiry.targets),
            names(&lines)
        ))
        .effect("the interrupt handler, its softirqs and often its thread preempt the task or compete with it for the CPU")
        .seen(seen, names(&lines));
    Some(if others.is_empty() {
        Finding { treatment: None, ..finding }
    } else {
        finding
            .now(format!("write {others} to /proc/irq/N/smp_affinity_list of each line"))
            .boot(format!("boot with `irqaffinity={others}`"))
    })
}

pub(super) fn managed(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let lines = lines(inquiry, false)?;
    if lines.is_empty() {
        return Some(code.fine("no managed or per-CPU interrupt goes to the target CPUs"));
    }
    let online = &inquiry.facts.cpu_sets.online;
    let already = inquiry.facts.kernel.command_line.contains("managed_irq");
    let finding = code
        .info(format!("interrupts that cannot be moved go to {}: {}", named(inquiry.targets), names(&lines)))
        .effect("a managed interrupt goes to the CPU that made the request, so a target CPU is interrupted when one of its tasks uses the device")
        .seen("/proc/irq/N/effective_affinity_list", names(&lines));
    Some(if already || online.len() == 1 {
        finding
    } else {
        finding.boot(format!("boot with `isolcpus=managed_irq,{}`", inquiry.targets))
    })
}

pub(super) fn later(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/proc/irq/default_smp_affinity";
    let mask = inquiry.live.as_ref()?.mask(PATH)?;
    let open = mask.intersection(inquiry.targets);
    if open.is_empty() {
        return code.well("interrupts that are set up later avoid the target CPUs", PATH, mask.to_string());
    }
    let others = inquiry.facts.cpu_sets.online.difference(inquiry.targets);
    let finding = code
        .advice(format!("interrupts that are set up later may reach {}", named(&open)))
        .effect("new interrupts appear when a driver is loaded or a network link comes up")
        .seen(PATH, mask.to_string());
    Some(if others.is_empty() {
        finding
    } else {
        finding
            .now(format!("write the mask of CPUs {others} to {PATH}"))
            .boot(format!("boot with `irqaffinity={others}`"))
    })
}

/// By default, irqbalance leaves isolated and `nohz_full` CPUs alone (irqbalance(1)).
pub(super) fn irqbalance(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    let mut running = live.table.threads.iter().filter(|thread| thread.name == "irqbalance");
    let Some(daemon) = running.next() else {
        return (!live.table.threads.is_empty()).then(|| code.fine("irqbalance is not running"));
    };
    let path = format!("/proc/{}/environ", daemon.pid);
    let environment = live.text(&path).unwrap_or_default();
    let banned = environment.split('\0').find_map(|variable| {
        variable.strip_prefix("IRQBALANCE_BANNED_CPULIST=").and_then(|list| list.parse::<CpuSet>().ok())
    });
    let left_alone =
        banned.unwrap_or_else(|| inquiry.facts.cpu_sets.isolated.union(&inquiry.facts.cpu_sets.nohz_full));
    let open = inquiry.targets.difference(&left_alone);
    if open.is_empty() {
        return code.well("irqbalance moves no interrupt to the target CPUs", path, left_alone.to_string());
    }
    code.advice(format!("irqbalance may move interrupts to {}", named(&open)))
        .effect("every ten seconds, irqbalance redistributes the interrupts over the CPUs")
        .seen(path, "runs")
        .now("sudo systemctl stop irqbalance")
        .boot(format!("put `IRQBALANCE_BANNED_CPULIST={}` into /etc/default/irqbalance", inquiry.targets))
        .into()
}
