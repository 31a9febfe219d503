//! Graphics devices: driver and memory, interrupt lines, what they do now, and which processes use their memory.
//!
//! From sysfs, /proc/driver/nvidia and the `drm-*` lines of open files (Documentation/gpu/drm-usage-stats.rst). NVML
//! is not used: its queries stall CPUs. A device that is powered down is not asked either, since some drivers wake it
//! up for an answer.

mod clients;
mod usage;

pub use usage::{GpuQuestion, GpuSampler};

use super::FactReader;
use crate::irq_lines;
use crate::uevent_value;
use clients::{Client, open_files};
use std::collections::BTreeSet;
use whylate_core::cpus::CpuSet;
use whylate_core::facts::{GpuFacts, GpuInterrupt, GpuProcess, GpuUsage};
use whylate_core::order::InOrder;

const DRM: &str = "/sys/class/drm";
/// The line of `uevent` that has the address.
const SLOT: &str = "PCI_SLOT_NAME";
const NVIDIA: &str = "/proc/driver/nvidia/gpus";

/// Where the kernel has a graphics device.
struct CardPlace {
    /// `card0`, or the PCI address of one without a card.
    name: String,
    device: String,
    /// The folder of its PCI device.
    bus: String,
    driver: Option<String>,
    address: Option<String>,
    /// Vendor and model of that PCI device.
    id: Option<String>,
}

impl CardPlace {
    fn of(reader: &FactReader, device: String, name: String) -> Self {
        let event = |folder: &str| reader.raw(&format!("{folder}/uevent")).unwrap_or_default();
        let own = event(&device);
        let value = |event: &str, key: &str| uevent_value(event, key).map(str::to_owned);
        let driver = value(&own, "DRIVER");
        // virtio-gpu is a device of a virtio bus; the bus is a PCI device.
        let parent = format!("{device}/..");
        let of_parent = if value(&own, SLOT).is_none() { event(&parent) } else { String::new() };
        let (bus, event) =
            if value(&of_parent, SLOT).is_some() { (parent, of_parent) } else { (device.clone(), own) };
        let (address, id) = (value(&event, SLOT), value(&event, "PCI_ID"));
        Self { name, device, bus, driver, address, id }
    }

    fn is_asleep(&self, reader: &FactReader) -> bool {
        reader.text(&format!("{}/power/runtime_status", self.bus)).as_deref() == Some("suspended")
    }
}

/// Every `cardN` of DRM (its connectors, `card0-HDMI-A-1`, are left out), and devices of NVIDIA without one.
fn places(reader: &FactReader) -> Vec<CardPlace> {
    let cards = reader.list_numbered(DRM, "card").into_iter().map(|number| format!("card{number}"));
    let mut places: Vec<CardPlace> =
        cards.map(|name| CardPlace::of(reader, format!("{DRM}/{name}/device"), name)).collect();
    for address in reader.list(NVIDIA) {
        if !places.iter().any(|place| place.address.as_ref() == Some(&address)) {
            places.push(CardPlace::of(reader, format!("/sys/bus/pci/devices/{address}"), address));
        }
    }
    places
}

pub(super) fn gpus(reader: &FactReader) -> Vec<GpuFacts> {
    let mut gpus: Vec<GpuFacts> = places(reader).into_iter().map(|place| gpu(reader, place)).collect();
    if !gpus.is_empty() {
        add_processes(reader, &mut gpus);
    }
    gpus
}

fn gpu(reader: &FactReader, place: CardPlace) -> GpuFacts {
    let is_asleep = place.is_asleep(reader);
    let CardPlace { name, device, bus, driver, address, id } = place;
    let device = device.as_str();
    let version = driver.as_ref().and_then(|driver| reader.text(&format!("/sys/module/{driver}/version")));
    GpuFacts {
        pci_id: id.map(|id| id.to_lowercase()),
        runtime_power: reader.text(&format!("{device}/power/control")),
        model: address.as_ref().and_then(|address| nvidia_model(reader, address)),
        driver_version: version,
        memory_bytes: (!is_asleep).then(|| reader.number(&format!("{device}/mem_info_vram_total"))).flatten(),
        interrupts: interrupts(reader, &bus),
        usage: usage(reader, device, &name, is_asleep),
        driver,
        address,
        name,
    }
}

fn nvidia_model(reader: &FactReader, address: &str) -> Option<String> {
    let text = reader.raw(&format!("{NVIDIA}/{address}/information"))?;
    super::value_of(&text, "Model").map(str::to_owned)
}

fn interrupts(reader: &FactReader, bus: &str) -> Vec<GpuInterrupt> {
    let (lines, _) = reader.kept(irq_lines::of_device(reader.root, bus)).unwrap_or_default();
    let cpus = |line: u32| -> Option<CpuSet> {
        let file = |name: &str| reader.cpus(&format!("/proc/irq/{line}/{name}"));
        let effective = file("effective_affinity_list").filter(|cpus| !cpus.is_empty());
        effective.or_else(|| file("smp_affinity_list"))
    };
    lines.into_iter().filter_map(|line| Some(GpuInterrupt { line, cpus: cpus(line)? })).collect()
}

fn usage(reader: &FactReader, device: &str, name: &str, is_asleep: bool) -> GpuUsage {
    let power_state = reader.text(&format!("{device}/power/runtime_status"));
    if is_asleep {
        return GpuUsage { power_state, ..GpuUsage::default() };
    }
    GpuUsage {
        power_state,
        busy_percent: reader.number(&format!("{device}/gpu_busy_percent")),
        memory_used_bytes: reader.number(&format!("{device}/mem_info_vram_used")),
        system_used_bytes: reader.number(&format!("{device}/mem_info_gtt_used")),
        clock_mhz: clock(reader, device, name),
        processes: Vec::new(),
    }
}

/// The clock now: of i915, of xe, or the chosen level of amdgpu (`1: 800Mhz *`).
fn clock(reader: &FactReader, device: &str, name: &str) -> Option<u32> {
    let own = [
        format!("{DRM}/{name}/gt_act_freq_mhz"),
        format!("{DRM}/{name}/gt_cur_freq_mhz"),
        format!("{device}/tile0/gt0/freq0/act_freq"),
    ];
    // 0: the part that has this clock sleeps.
    own.iter().find_map(|path| reader.number(path).filter(|clock| *clock > 0)).or_else(|| {
        let levels = reader.raw(&format!("{device}/pp_dpm_sclk"))?;
        let chosen = levels.lines().find_map(|line| line.trim_end().strip_suffix('*'))?;
        let digits = chosen.split_once(':')?.1.trim();
        digits.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).parse().ok()
    })
}

/// Adds the processes that have the devices open. Only root sees those of others.
fn add_processes(reader: &FactReader, gpus: &mut [GpuFacts]) {
    // A file that two processes share, or that one process has twice, is one client.
    let mut seen: BTreeSet<(Option<String>, u64)> = BTreeSet::new();
    for file in open_files(reader.root) {
        let Some(client) = file.client(reader.root) else { continue };
        if seen.insert((client.address.clone(), client.number)) {
            add(reader, gpus, file.pid, &client);
        }
    }
    for gpu in gpus {
        gpu.usage.processes.order_by_key(|it| (u64::MAX - it.memory_bytes - it.system_bytes, it.pid));
    }
}

fn add(reader: &FactReader, gpus: &mut [GpuFacts], pid: u32, client: &Client) {
    let is_it = |gpu: &&mut GpuFacts| match &client.address {
        Some(address) => gpu.address.as_ref() == Some(address),
        None => gpu.driver.as_deref() == Some(client.driver.as_str()),
    };
    let Some(gpu) = gpus.iter_mut().find(is_it) else { return };
    let processes = &mut gpu.usage.processes;
    let place = processes.iter().position(|process| process.pid == pid).unwrap_or_else(|| {
        let name = reader.root.read_trimmed(&format!("/proc/{pid}/comm")).ok().flatten().unwrap_or_default();
        processes.push(GpuProcess { pid, name, ..GpuProcess::default() });
        processes.len() - 1
    });
    let process = &mut processes[place];
    process.memory_bytes += client.memory_bytes;
    process.system_bytes += client.system_bytes;
    process.busy_ns += client.busy_ns();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostRoot;
    use std::cell::RefCell;
    use whylate_lab::archive;

    fn gpus_of(text: &str) -> Vec<GpuFacts> {
        let folder = tempfile::tempdir().unwrap();
        archive::unpack(text, folder.path()).unwrap();
        let root = HostRoot::at(folder.path());
        let reader = FactReader { root: &root, warnings: RefCell::default() };
        let gpus = gpus(&reader);
        assert!(reader.warnings.borrow().is_empty(), "{:?}", reader.warnings);
        gpus
    }

    const AMDGPU: &str = "\
== sys/class/drm/card1/device/uevent
DRIVER=amdgpu
PCI_ID=1002:744C
PCI_SLOT_NAME=0000:03:00.0
== sys/class/drm/card1/device/power/control := on
== sys/class/drm/card1/device/power/runtime_status := active
== sys/class/drm/card1/device/mem_info_vram_total := 25753026560
== sys/class/drm/card1/device/mem_info_vram_used := 1200000000
== sys/class/drm/card1/device/mem_info_gtt_used := 80000000
== sys/class/drm/card1/device/gpu_busy_percent := 37
== sys/class/drm/card1/device/pp_dpm_sclk
0: 500Mhz
1: 2371Mhz *
== sys/class/drm/card1/device/msi_irqs/101 := msix
== sys/class/drm/card1/device/irq := 16
== proc/irq/101/smp_affinity_list := 0-15
== proc/irq/101/effective_affinity_list := 7
== proc/812/comm := Xorg
== proc/812/fd/11 -> /dev/dri/card1
== proc/812/fd/12 -> /dev/dri/card1
== proc/812/fd/13 -> /dev/null
== proc/812/fdinfo/{11-12}
pos:	0
drm-driver:	amdgpu
drm-client-id:	5
drm-pdev:	0000:03:00.0
drm-memory-vram:	65536 KiB
drm-memory-gtt: 	2048 KiB
drm-memory-cpu: 	0 KiB
drm-engine-gfx:	123456789 ns
drm-engine-enc:	1000 ns
== proc/900/comm := vkcube
== proc/900/fd/4 -> /dev/dri/renderD128
== proc/900/fdinfo/4
drm-driver:	amdgpu
drm-client-id:	9
drm-pdev:	0000:03:00.0
drm-total-vram:	400 MiB
drm-resident-vram:	300 MiB
drm-shared-vram:	10 MiB
";

    #[test]
    fn amdgpu_says_memory_clock_and_load_and_who_uses_it() {
        let gpus = gpus_of(AMDGPU);
        let gpu = &gpus[0];
        assert_eq!((gpu.driver.as_deref(), gpu.address.as_deref()), (Some("amdgpu"), Some("0000:03:00.0")));
        assert_eq!((gpu.pci_id.as_deref(), gpu.memory_bytes), (Some("1002:744c"), Some(25_753_026_560)));
        let line = GpuInterrupt { line: 101, cpus: "7".parse().unwrap() };
        assert_eq!(gpu.interrupts, [line], "not the pin that a message replaces");
        let usage = &gpu.usage;
        assert_eq!((usage.busy_percent, usage.clock_mhz), (Some(37), Some(2371)));
        assert_eq!(
            (usage.memory_used_bytes, usage.system_used_bytes),
            (Some(1_200_000_000), Some(80_000_000))
        );
        let shown: Vec<_> = usage
            .processes
            .iter()
            .map(|it| (it.pid, it.name.as_str(), it.memory_bytes >> 20, it.system_bytes >> 20, it.busy_ns))
            .collect();
        // The file that is open twice is counted once; if both requested and resident memory are given, the resident
        // memory counts.
        assert_eq!(shown, [(900, "vkcube", 300, 0, 0), (812, "Xorg", 64, 2, 123_457_789)]);
    }

    #[test]
    fn a_device_that_sleeps_is_not_asked() {
        let asleep = AMDGPU.replace("runtime_status := active", "runtime_status := suspended");
        let usage = &gpus_of(&asleep)[0].usage;
        assert_eq!(usage.power_state.as_deref(), Some("suspended"));
        assert_eq!((usage.busy_percent, usage.clock_mhz, usage.memory_used_bytes), (None, None, None));
    }

    #[test]
    fn i915_says_its_clock_and_memory_by_region() {
        let text = "\
== sys/class/drm/card0/device/uevent
DRIVER=i915
PCI_ID=8086:46A6
PCI_SLOT_NAME=0000:00:02.0
== sys/class/drm/card0/device/power/runtime_status := active
== sys/class/drm/card0/gt_act_freq_mhz := 0
== sys/class/drm/card0/gt_cur_freq_mhz := 1300
== sys/class/drm/card0/device/irq := 145
== proc/irq/145/smp_affinity_list := 0-3
== proc/77/comm := gnome-shell
== proc/77/fd/9 -> /dev/dri/renderD128
== proc/77/fdinfo/9
drm-driver:	i915
drm-client-id:	7
drm-pdev:	0000:00:02.0
drm-total-system0:	30 MiB
drm-resident-system0:	20480 KiB
drm-total-stolen-system0:	1024 KiB
drm-engine-render:	500 ns
drm-engine-capacity-video:	2
";
        let gpu = &gpus_of(text)[0];
        assert_eq!(gpu.usage.clock_mhz, Some(1300));
        assert_eq!(gpu.interrupts, [GpuInterrupt { line: 145, cpus: "0-3".parse().unwrap() }]);
        let process = &gpu.usage.processes[0];
        assert_eq!((process.memory_bytes, process.system_bytes >> 10, process.busy_ns), (0, 21_504, 500));
    }

    #[test]
    fn nvidia_without_a_card_is_found_by_its_driver() {
        let text = "\
== proc/driver/nvidia/gpus/0000:1b:00.0/information
Model: 		 NVIDIA H200
IRQ:   		 345
== sys/module/nvidia/version := 570.86.15
== sys/bus/pci/devices/0000:1b:00.0/uevent
DRIVER=nvidia
PCI_ID=10DE:2335
PCI_SLOT_NAME=0000:1b:00.0
== sys/bus/pci/devices/0000:1b:00.0/power/control := on
== sys/bus/pci/devices/0000:1b:00.0/msi_irqs/{345-346} := msix
== proc/irq/{345-346}/smp_affinity_list := 0-31
";
        let gpus = gpus_of(text);
        assert_eq!(gpus.len(), 1);
        assert_eq!((gpus[0].name.as_str(), gpus[0].model.as_deref()), ("0000:1b:00.0", Some("NVIDIA H200")));
        assert_eq!(gpus[0].driver_version.as_deref(), Some("570.86.15"));
        assert_eq!(gpus[0].interrupts.iter().map(|it| it.line).collect::<Vec<_>>(), [345, 346]);
        // The same device with a card is one device.
        let card = "\
== sys/class/drm/card0/device/uevent
DRIVER=nvidia
PCI_SLOT_NAME=0000:1b:00.0
";
        assert_eq!(gpus_of(&format!("{text}{card}")).len(), 1);
    }

    #[test]
    fn virtio_gpu_has_the_lines_of_its_bus() {
        let text = "\
== sys/class/drm/card0/device -> ../../../devices/pci0/0000:00:02.0/virtio0
== sys/devices/pci0/0000:00:02.0/virtio0/uevent
DRIVER=virtio_gpu
MODALIAS=virtio:d00000010v00001AF4
== sys/devices/pci0/0000:00:02.0/uevent
DRIVER=virtio-pci
PCI_ID=1AF4:1050
PCI_SLOT_NAME=0000:00:02.0
== sys/devices/pci0/0000:00:02.0/msi_irqs/{24-25} := msix
== proc/irq/{24-25}/smp_affinity_list := 0-1
== proc/irq/{24-25}/effective_affinity_list := 1
";
        let gpu = &gpus_of(text)[0];
        assert_eq!(
            (gpu.driver.as_deref(), gpu.address.as_deref()),
            (Some("virtio_gpu"), Some("0000:00:02.0"))
        );
        assert_eq!(gpu.pci_id.as_deref(), Some("1af4:1050"));
        assert!(gpu.interrupts.len() == 2 && gpu.interrupts.iter().all(|it| it.cpus == "1".parse().unwrap()));
    }
}
