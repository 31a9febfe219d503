//! The numbered interrupt lines: which CPUs they may interrupt, and whether that can be changed.
//!
//! From /proc/irq and /proc/interrupts. Lines of the architecture (timer, inter-processor interrupts) have no number
//! and are not here: they cannot be moved.

use crate::{HostError, HostRoot, release};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use whylate_core::result::LineRow;

/// Reads every line below /proc/irq that has a handler; empty if there is none (a container may hide them).
pub fn read(root: &HostRoot) -> Result<Vec<LineRow>, HostError> {
    // A line without a handler is unused and raises no interrupt.
    Ok(all(root)?.into_iter().filter(|line| !line.description.is_empty()).collect())
}

/// Reads every line below /proc/irq, also those that are free: their description is empty.
pub fn all(root: &HostRoot) -> Result<Vec<LineRow>, HostError> {
    let interrupts = root.read("/proc/interrupts")?.unwrap_or_default();
    let descriptions = descriptions(&interrupts);
    let shows_which = kernel_shows_which(root)?;
    let mut lines = Vec::new();
    for line in root.list_numbered("/proc/irq", "")? {
        let folder = format!("/proc/irq/{line}");
        let Some(cpus) = root.read_cpus(&format!("{folder}/smp_affinity_list"))? else { continue };
        let description = descriptions.get(&line).cloned().unwrap_or_default();
        let effective = root.read_cpus(&format!("{folder}/effective_affinity_list"))?;
        let effective = effective.filter(|cpus| !cpus.is_empty());
        let movable = is_movable(root, line) && (shows_which || !is_managed_by_name(&description));
        lines.push(LineRow { line, description, cpus, effective, movable });
    }
    Ok(lines)
}

/// The lines of a PCI device: those signalled by messages, else the one of its pin; and whether they are messages.
pub fn of_device(root: &HostRoot, folder: &str) -> Result<(Vec<u32>, bool), HostError> {
    let messages = root.list_numbered(&format!("{folder}/msi_irqs"), "")?;
    if !messages.is_empty() {
        return Ok((messages, true));
    }
    let pin: Option<u32> = root.read_number(&format!("{folder}/irq"))?;
    Ok((pin.into_iter().filter(|line| *line > 0).collect(), false))
}

/// Whether the files' permissions say which lines can be moved (since Linux 6.15 at the latest).
fn kernel_shows_which(root: &HostRoot) -> Result<bool, HostError> {
    release::is_from(root, (6, 15))
}

/// Lines that Linux manages itself or keeps on a CPU, by the names that their drivers give them, for kernels that do
/// not show it: request queues of virtio disks and of NVMe disks except the first, timers, and lines without an
/// interrupt controller.
fn is_managed_by_name(description: &str) -> bool {
    // Linux has two dummy interrupt controllers; lines that a driver raises in software use one of them.
    let controller = description.split_whitespace().next().unwrap_or_default();
    let has_no_controller = ["dummy", "none"].contains(&controller);
    let device = description.split_whitespace().last().unwrap_or_default();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let virtio_disk = device.strip_prefix("virtio").and_then(|rest| rest.split_once("-req."));
    let nvme = device.strip_prefix("nvme").and_then(|rest| rest.split_once('q'));
    has_no_controller
        || virtio_disk.is_some_and(|(disk, queue)| is_number(disk) && is_number(queue))
        || nvme.is_some_and(|(disk, queue)| is_number(disk) && is_number(queue) && queue != "0")
        || device == "timer"
        // An HPET that signals by messages is the timer of a CPU; the line of one that a program has opened can be
        // moved.
        || device.strip_prefix("hpet").is_some_and(is_number) && controller.contains("HPET")
}

/// Linux 6.11 and newer give the file no write permission if the line is managed or belongs to one CPU; before that,
/// only debugfs shows it (`/sys/kernel/debug/irq/irqs`, with CONFIG_GENERIC_IRQ_DEBUGFS).
fn is_movable(root: &HostRoot, line: u32) -> bool {
    let is_unwritable = |name: &str| {
        let file = std::fs::metadata(root.path(&format!("/proc/irq/{line}/{name}")));
        file.is_ok_and(|file| file.permissions().mode() & 0o222 == 0)
    };
    let unwritable = is_unwritable("smp_affinity") || is_unwritable("smp_affinity_list");
    let state = root.read(&format!("/sys/kernel/debug/irq/irqs/{line}")).ok().flatten().unwrap_or_default();
    let fixed = ["IRQD_AFFINITY_MANAGED", "IRQD_PER_CPU", "IRQD_NO_BALANCING"];
    !unwritable && !fixed.iter().any(|flag| state.contains(flag))
}

/// The text after the counts of each numbered line.
fn descriptions(interrupts: &str) -> BTreeMap<u32, String> {
    let mut lines = interrupts.lines();
    let cpus = lines.next().unwrap_or_default().split_ascii_whitespace().count();
    let described = lines.filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_ascii_whitespace().skip(cpus).collect();
        Some((number.trim().parse().ok()?, words.join(" ")))
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_lab::archive;

    #[test]
    fn kernels_that_do_not_show_managed_lines_are_guessed_by_name() {
        let managed = [
            "PCI-MSI 16386-edge virtio0-req.1",
            "IR-PCI-MSIX 3-edge nvme1q3",
            "IO-APIC 2-edge timer",
            "HPET-MSI 3-edge hpet3",
            "dummy plant",
        ];
        assert!(managed.iter().all(|line| is_managed_by_name(line)));
        let movable = [
            "nvme0q0",
            "virtio1-req",
            "virtio2-input.0",
            "eth0-rx-1",
            "rtc0",
            "IO-APIC 16-fasteoi hpet2",
            "",
        ];
        assert!(!movable.iter().any(|line| is_managed_by_name(line)));
        let folder = tempfile::tempdir().unwrap();
        let root = HostRoot::at(folder.path());
        for (release, shows) in
            [("6.1.0-37-rt", false), ("6.14.1", false), ("6.15.0", true), ("7.0-rc1", true)]
        {
            let text = format!("== proc/sys/kernel/osrelease := {release}\n");
            archive::unpack(&text, folder.path()).unwrap();
            assert_eq!(kernel_shows_which(&root).unwrap(), shows, "{release}");
        }
    }

    const MACHINE: &str = "\
== proc/interrupts
           CPU0       CPU1
 24:          1          0  IO-APIC   5-edge      acpi
 36:          0         14  PCI-MSIX-0000:00:02.0   1-edge      nvme0q1
LOC:          9          9  Local timer interrupts
== proc/irq/{24,36,40}/smp_affinity_list := 0-1
== proc/irq/{24,36,40}/smp_affinity := 3
== proc/irq/24/effective_affinity_list := 0
== proc/irq/default_smp_affinity := 3
== sys/kernel/debug/irq/irqs/36
handler:  handle_edge_irq
dstate:   0x37408200
            IRQD_ACTIVATED
            IRQD_AFFINITY_MANAGED
";

    #[test]
    fn managed_lines_are_not_movable_and_free_ones_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        archive::unpack(MACHINE, folder.path()).unwrap();
        let root = HostRoot::at(folder.path());
        let lines = read(&root).unwrap();
        let seen: Vec<_> = lines
            .iter()
            .map(|line| (line.line, line.description.as_str(), line.movable, line.effective.is_some()))
            .collect();
        let expected = [
            (24, "IO-APIC 5-edge acpi", true, true),
            (36, "PCI-MSIX-0000:00:02.0 1-edge nvme0q1", false, false),
        ];
        assert_eq!(seen, expected);
        let file = folder.path().join("proc/irq/24/smp_affinity");
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o444)).unwrap();
        assert!(!read(&root).unwrap()[0].movable, "as Linux 6.11 and newer show it");
    }
}
