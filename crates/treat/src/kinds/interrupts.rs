//! `irq-affinity`: moves interrupts to other CPUs.
//!
//! An interrupt that the kernel manages itself (queues of NVMe and virtio block devices) or that belongs to one CPU
//! cannot be moved; since Linux 6.15 its file is read-only, before that the kernel refuses the write. While interrupts
//! are moved, irqbalance is stopped, since it would move them back.

use crate::change::{Change, Target, Task};
use crate::kinds::writable;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use std::collections::BTreeMap;
use whylate_core::plan::IrqAffinityPlan;
use whylate_core::result::LineRow;
use whylate_core::{CpuSet, Warning, WarningCode};
use whylate_host::threads::Threads;
use whylate_host::{HostError, HostRoot, irq_lines};

/// The program that moves interrupts, which is stopped meanwhile.
pub(crate) const BALANCER: &str = "irqbalance";

/// The mask of interrupts that are set up later.
pub(super) const DEFAULT: &str = "/proc/irq/default_smp_affinity";

/// Sends interrupts that are set up later to those CPUs.
pub(super) fn later_ones(cpus: &CpuSet) -> Change {
    let target = Target::file_with(DEFAULT, Reading::CpuMask);
    let effect = format!("interrupts that are set up later go to CPU {cpus}");
    Change::optional(target, cpus.to_string(), effect)
}

/// The CPUs of an interrupt line.
pub(super) fn affinity_of(line: u32) -> Target {
    Target::file_with(format!("/proc/irq/{line}/smp_affinity_list"), Reading::CpuList)
}

/// One interrupt line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    pub number: u32,
    /// Names of its handlers: `i915`, `virtio1-req.0`.
    pub actions: Vec<String>,
    /// PCI address of its device, if that is on PCI.
    pub pci_address: Option<String>,
    pub driver: Option<String>,
    /// Whether that device is a graphics device.
    pub is_graphics: bool,
    /// Whether it is signalled by a message of a PCI device.
    pub is_msi: bool,
    pub cpus: CpuSet,
    /// Whether it cannot be moved, as far as this kernel says.
    pub is_fixed: bool,
}

impl Interrupt {
    /// `36 (virtio1-req.0)`.
    pub fn name(&self) -> String {
        if self.actions.is_empty() {
            return self.number.to_string();
        }
        format!("{} ({})", self.number, self.actions.join(", "))
    }

    /// Whether `text` names it: by number, handler, device, driver, PCI address, `graphics`, `msi` or `all`.
    fn is_named(&self, text: &str) -> bool {
        // `eth0` is also `eth0-rx-1`, `virtio1` is also `virtio1-req.0`, and `nvme0` is `nvme0q1`.
        let is_handler = |action: &String| {
            action.strip_prefix(text).is_some_and(|rest| {
                rest.is_empty() || rest.starts_with(['-', '.', ':', '/', '@', '_', ' ', 'q'])
            })
        };
        text == "all"
            || (text == "msi" && self.is_msi)
            || (text == "graphics" && self.is_graphics)
            || text.parse() == Ok(self.number)
            || self.driver.as_deref() == Some(text)
            || self
                .pci_address
                .as_deref()
                .is_some_and(|address| address == text || address.strip_prefix("0000:") == Some(text))
            || self.actions.iter().any(is_handler)
    }
}

/// Every interrupt line whose CPUs the kernel shows, by number.
///
/// # Errors
/// [`HostError`] if a file of the machine cannot be read or understood.
pub fn interrupts(root: &HostRoot) -> Result<Vec<Interrupt>, HostError> {
    let devices = devices(root)?;
    let mut interrupts = Vec::new();
    for LineRow { line: number, cpus, movable, .. } in irq_lines::all(root)? {
        let actions = root.read_trimmed(&format!("/sys/kernel/irq/{number}/actions"))?.unwrap_or_default();
        let chip = root.read_trimmed(&format!("/sys/kernel/irq/{number}/chip_name"))?.unwrap_or_default();
        let device = devices.get(&number);
        interrupts.push(Interrupt {
            number,
            actions: actions.split(',').map(str::to_owned).filter(|name| !name.is_empty()).collect(),
            pci_address: device.map(|device| device.address.clone()),
            driver: device.and_then(|device| device.driver.clone()),
            is_graphics: device.is_some_and(|device| device.is_graphics),
            is_msi: device.is_some_and(|device| device.is_msi) || chip.contains("MSI"),
            cpus,
            is_fixed: !movable,
        });
    }
    Ok(interrupts)
}

struct PciDevice {
    address: String,
    driver: Option<String>,
    is_graphics: bool,
    is_msi: bool,
}

/// Class of displays, as sysfs prints it.
const DISPLAY: &str = "0x03";

/// The PCI device of each interrupt that has one.
fn devices(root: &HostRoot) -> Result<BTreeMap<u32, PciDevice>, HostError> {
    const FOLDER: &str = "/sys/bus/pci/devices";
    let mut devices = BTreeMap::new();
    for address in root.list(FOLDER)? {
        let folder = format!("{FOLDER}/{address}");
        let driver = root.link_name(&format!("{folder}/driver"));
        let (numbers, is_msi) = irq_lines::of_device(root, &folder)?;
        let class = root.read_trimmed(&format!("{folder}/class"))?;
        let is_graphics = class.is_some_and(|class| class.starts_with(DISPLAY));
        for number in numbers {
            let (address, driver) = (address.clone(), driver.clone());
            devices.insert(number, PciDevice { address, driver, is_graphics, is_msi });
        }
    }
    Ok(devices)
}

impl Planner for IrqAffinityPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let cpus = surroundings.resolve("cpus", &self.cpus)?;
        let known = interrupts(&surroundings.root)?;
        if known.is_empty() {
            let reason = "the CPUs of interrupts cannot be read (no /proc/irq/*/smp_affinity_list)";
            return Err(Impossible::new(reason));
        }
        let mut planned = Planned::default();
        let mut moved: BTreeMap<u32, Change> = BTreeMap::new();
        for text in &self.interrupts {
            for change in named(text, &known, &cpus, &mut planned.warnings)? {
                moved.entry(change.0).or_insert(change.1);
            }
        }
        if let Some(change) = moved.values().next() {
            writable(surroundings, &change.target.to_string())?;
        }
        // irqbalance is stopped first and continued last.
        planned.changes.extend(stop_irqbalance(surroundings)?);
        planned.changes.extend(moved.into_values());
        if self.new_interrupts && surroundings.root.exists(DEFAULT) {
            planned.changes.push(later_ones(&cpus));
        }
        Ok(planned)
    }
}

/// The changes for one text of the plan; a warning if a group of interrupts has one that cannot be moved.
fn named(
    text: &str,
    known: &[Interrupt],
    cpus: &CpuSet,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<(u32, Change)>, Impossible> {
    let meant: Vec<&Interrupt> = known.iter().filter(|interrupt| interrupt.is_named(text)).collect();
    if meant.is_empty() {
        let reason = format!(
            "no interrupt is called `{text}`; give a number from /proc/interrupts, a device, a driver, a PCI address, `graphics`, `msi` or `all`"
        );
        return Err(Impossible::new(reason));
    }
    let is_inside = |interrupt: &&&Interrupt| interrupt.cpus.difference(cpus).is_empty();
    let (fixed, movable): (Vec<&Interrupt>, Vec<&Interrupt>) =
        meant.iter().filter(|interrupt| !is_inside(interrupt)).partition(|interrupt| interrupt.is_fixed);
    if !fixed.is_empty() {
        let names = fixed.iter().map(|interrupt| interrupt.name()).collect::<Vec<_>>().join(", ");
        let reason =
            format!("the kernel manages these interrupts or pins them, so they are not moved: {names}");
        if movable.is_empty() && text != "all" {
            return Err(Impossible::new(reason));
        }
        warnings.push(Warning::new(WarningCode::IrqManaged, reason));
    }
    // A single interrupt that was asked for has to move; of a group, some may be managed, without a warning.
    let required = meant.len() == 1;
    let change = |interrupt: &Interrupt| {
        let effect = format!("interrupt {} is handled on CPU {cpus}", interrupt.name());
        let target = affinity_of(interrupt.number);
        (interrupt.number, Change { required, ..Change::required(target, cpus.to_string(), effect) })
    };
    Ok(movable.into_iter().map(change).collect())
}

/// A running irqbalance is stopped meanwhile: it would move interrupts back within seconds.
pub fn stop_irqbalance(surroundings: &Surroundings) -> Result<Vec<Change>, HostError> {
    let threads = Threads::read(&surroundings.root)?;
    let running = threads.named(BALANCER).filter(|thread| thread.pid == thread.tid);
    let running = running.filter_map(|thread| Task::of(&surroundings.root, thread));
    let effect = "irqbalance is stopped, because it would move interrupts back";
    let stop = |task| Change::required(Target::Stopped { task }, Target::STOPPED, effect);
    Ok(running.map(stop).collect())
}
