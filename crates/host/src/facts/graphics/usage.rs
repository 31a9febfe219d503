//! What graphics devices do while something is measured, sampled again and again.
//!
//! Some answers come from what the kernel keeps in memory; others need the device or its firmware: they take time on
//! the CPU that asks, wake the device up or keep it awake. [`GpuQuestion`] says which may be asked. A device that is
//! powered down is asked nothing. NVML is not used at all: it stalls CPUs.

use super::clients::{Engine, OpenFile, open_files};
use super::{CardPlace, DRM, clock, places};
use crate::HostRoot;
use crate::facts::FactReader;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use whylate_core::MonoTime;
use whylate_core::record::GpuRecord;

/// Drivers whose open files are answered from what the kernel has counted. The driver xe wakes its device up to read a
/// clock.
const COUNTING: &[&str] = &["amdgpu", "i915", "virtio_gpu", "vgem"];
/// After this number of turns the processes are searched again.
const TURNS_PER_SEARCH: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuQuestion {
    /// What the kernel has counted itself: memory in use, the clock that was asked for, the time that processes used
    /// the engines.
    Counters,
    /// Also what the device or its firmware has to answer: clock, load, power, temperature.
    Device,
}

/// Looks at every graphics device of a machine.
pub struct GpuSampler {
    root: HostRoot,
    devices: Vec<WatchedCard>,
    /// Open files of each device, by its position.
    files: Vec<(usize, OpenFile)>,
    turn: u32,
    last: Last,
}

/// What the last turn found, to compute the difference.
#[derive(Default)]
struct Last {
    at_ns: Option<u64>,
    engines: HashMap<(usize, u64, String), Engine>,
    /// By device, in microjoules.
    energy: HashMap<usize, u64>,
}

struct WatchedCard {
    place: CardPlace,
    nodes: Vec<String>,
    sensors: Option<String>,
}

impl GpuSampler {
    /// `None` without a graphics device.
    pub fn new(root: &HostRoot) -> Option<Self> {
        let reader = FactReader { root, warnings: RefCell::default() };
        let device = |place: CardPlace| {
            let mut nodes = reader.list(&format!("{}/drm", place.device));
            nodes.push(place.name.clone());
            let folder = format!("{}/hwmon", place.device);
            let sensors = reader.list(&folder).into_iter().next().map(|name| format!("{folder}/{name}"));
            WatchedCard { place, nodes, sensors }
        };
        let devices: Vec<WatchedCard> = places(&reader).into_iter().map(device).collect();
        let (files, turn, last) = (Vec::new(), 0, Last::default());
        (!devices.is_empty()).then(|| Self { root: root.clone(), devices, files, turn, last })
    }

    /// What each device does at `now`. From the second turn on, engines show their share of the time since the last
    /// turn.
    pub fn sample(&mut self, now: MonoTime, question: GpuQuestion) -> Vec<GpuRecord> {
        if self.turn.is_multiple_of(TURNS_PER_SEARCH) {
            self.search();
        }
        self.turn += 1;
        let root = self.root.clone();
        let reader = FactReader { root: &root, warnings: RefCell::default() };
        let interval_ns = now.0.saturating_sub(self.last.at_ns.unwrap_or(now.0));
        let mut found = TurnRecords { at_ns: now.0, interval_ns, device: String::new(), records: Vec::new() };
        let mut last = Last { at_ns: Some(now.0), ..Last::default() };
        for (index, device) in self.devices.iter().enumerate() {
            if device.place.is_asleep(&reader) {
                continue;
            }
            found.device.clone_from(&device.place.name);
            let is_asked = question == GpuQuestion::Device;
            let knows_memory = device.counters(&reader, &mut found);
            if is_asked {
                device.ask(&reader, &mut found);
                self.sensors(index, &reader, &mut found, &mut last);
            }
            if is_asked || device.is_counting() {
                self.clients(index, knows_memory, &mut found, &mut last);
            }
        }
        self.last = last;
        found.records
    }

    fn search(&mut self) {
        let device =
            |file: &OpenFile| self.devices.iter().position(|device| device.nodes.contains(&file.node));
        self.files = open_files(&self.root).filter_map(|file| Some((device(&file)?, file))).collect();
    }

    /// What the clients of a device used of its engines, and of memory if the driver does not report it otherwise.
    fn clients(&self, index: usize, knows_memory: bool, found: &mut TurnRecords, last: &mut Last) {
        let (mut memory, mut system) = (0, 0);
        let mut busy: BTreeMap<String, f64> = BTreeMap::new();
        let mut seen = Vec::new();
        for (_, file) in self.files.iter().filter(|(device, _)| *device == index) {
            // A file that two processes share, or that one process has twice, is one client.
            let Some(client) = file.client(&self.root).filter(|client| !seen.contains(&client.number)) else {
                continue;
            };
            seen.push(client.number);
            memory += client.memory_bytes;
            system += client.system_bytes;
            for (name, engine) in client.engines {
                let key = (index, client.number, name.clone());
                let before = self.last.engines.get(&key);
                let share = before.and_then(|before| share(before, &engine, found.interval_ns));
                if let Some(share) = share {
                    *busy.entry(name).or_default() += 100.0 * share;
                }
                last.engines.insert(key, engine);
            }
        }
        for (engine, percent) in busy {
            found.add(&format!("busy_percent/{engine}"), Some(percent));
        }
        if !knows_memory && !seen.is_empty() {
            found.add("memory_bytes", (memory > 0).then_some(memory as f64));
            found.add("system_bytes", Some(system as f64));
        }
    }

    fn sensors(&self, index: usize, reader: &FactReader, found: &mut TurnRecords, last: &mut Last) {
        let Some(folder) = &self.devices[index].sensors else { return };
        let number = |name: &str| reader.number::<u64>(&format!("{folder}/{name}"));
        let mut power =
            number("power1_average").or_else(|| number("power1_input")).map(|micro| micro as f64 / 1e6);
        if let Some(energy) = number("energy1_input") {
            last.energy.insert(index, energy);
            let used = self.last.energy.get(&index).and_then(|before| energy.checked_sub(*before));
            let since = (found.interval_ns > 0).then_some(found.interval_ns as f64);
            power = power.or_else(|| Some(used? as f64 * 1e3 / since?));
        }
        found.add("power_w", power);
        found.add("temperature_c", number("temp1_input").map(|milli| milli as f64 / 1e3));
    }
}

impl WatchedCard {
    /// Whether its open files are answered from memory.
    fn is_counting(&self) -> bool {
        self.place.driver.as_deref().is_some_and(|driver| COUNTING.contains(&driver))
    }

    /// What the kernel has counted; whether that is the memory in use.
    fn counters(&self, reader: &FactReader, found: &mut TurnRecords) -> bool {
        let number = |path: String| reader.number::<u64>(&path).map(|value| value as f64);
        let own = number(format!("{}/mem_info_vram_used", self.place.device));
        found.add("memory_bytes", own);
        found.add("system_bytes", number(format!("{}/mem_info_gtt_used", self.place.device)));
        found.add("requested_clock_mhz", number(format!("{DRM}/{}/gt_cur_freq_mhz", self.place.name)));
        own.is_some()
    }

    /// What the device has to answer.
    fn ask(&self, reader: &FactReader, found: &mut TurnRecords) {
        let CardPlace { device, name, .. } = &self.place;
        let busy = reader.number::<u32>(&format!("{device}/gpu_busy_percent"));
        found.add("busy_percent", busy.map(f64::from));
        found.add("clock_mhz", clock(reader, device, name).map(f64::from));
    }
}

/// The records of one turn.
struct TurnRecords {
    at_ns: u64,
    interval_ns: u64,
    device: String,
    records: Vec<GpuRecord>,
}

impl TurnRecords {
    fn add(&mut self, quantity: &str, value: Option<f64>) {
        let Some(value) = value else { return };
        let (device, quantity) = (self.device.clone(), quantity.to_owned());
        self.records.push(GpuRecord {
            device,
            quantity,
            at_ns: self.at_ns,
            interval_ns: self.interval_ns,
            value,
        });
    }
}

/// The share of the time in which a client used the engines of one kind; `None` if that was not counted.
fn share(before: &Engine, now: &Engine, interval_ns: u64) -> Option<f64> {
    let since = |of: fn(&Engine) -> Option<u64>| of(now)?.checked_sub(of(before)?).map(|count| count as f64);
    let (used, of) = match since(|engine| engine.busy_ns) {
        Some(busy) => (busy, interval_ns as f64),
        None => (since(|engine| engine.cycles)?, since(|engine| engine.total_cycles)?),
    };
    (of > 0.0).then(|| used / of / now.capacity.unwrap_or(1).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_lab::archive;

    /// The second turn, a second after the first, with the files of `later` over those of `text`.
    fn second(text: &str, later: &str, question: GpuQuestion) -> BTreeMap<(String, String), f64> {
        let folder = tempfile::tempdir().unwrap();
        archive::unpack(text, folder.path()).unwrap();
        let mut sampler = GpuSampler::new(&HostRoot::at(folder.path())).unwrap();
        assert!(sampler.sample(MonoTime(5_000_000_000), question).iter().all(|it| it.interval_ns == 0));
        archive::unpack(later, folder.path()).unwrap();
        let records = sampler.sample(MonoTime(6_000_000_000), question);
        assert!(records.iter().all(|it| (it.at_ns, it.interval_ns) == (6_000_000_000, 1_000_000_000)));
        records.into_iter().map(|it| ((it.device, it.quantity), it.value)).collect()
    }

    fn quantities(found: &BTreeMap<(String, String), f64>) -> Vec<(&str, f64)> {
        found.iter().map(|((_, quantity), value)| (quantity.as_str(), *value)).collect()
    }

    const AMDGPU: &str = "\
== sys/class/drm/card1/device/uevent
DRIVER=amdgpu
PCI_SLOT_NAME=0000:03:00.0
== sys/class/drm/card1/device/drm/card1/dev := 226:1
== sys/class/drm/card1/device/drm/renderD128/dev := 226:128
== sys/class/drm/card1/device/power/runtime_status := active
== sys/class/drm/card1/device/mem_info_vram_used := 1000
== sys/class/drm/card1/device/mem_info_gtt_used := 2000
== sys/class/drm/card1/device/gpu_busy_percent := 37
== sys/class/drm/card1/device/pp_dpm_sclk
1: 2371Mhz *
== sys/class/drm/card1/device/hwmon/hwmon3/power1_average := 45000000
== sys/class/drm/card1/device/hwmon/hwmon3/temp1_input := 61000
== proc/900/fd/4 -> /dev/dri/renderD128
== proc/900/fd/5 -> /dev/dri/renderD128
== proc/900/fdinfo/{4-5}
drm-driver:	amdgpu
drm-client-id:	9
drm-pdev:	0000:03:00.0
drm-memory-vram:	1 KiB
drm-engine-gfx:	1000000000 ns
drm-engine-enc:	0 ns
drm-engine-capacity-enc:	2
";
    const AMDGPU_LATER: &str = "\
== proc/900/fdinfo/{4-5}
drm-driver:	amdgpu
drm-client-id:	9
drm-pdev:	0000:03:00.0
drm-memory-vram:	1 KiB
drm-engine-gfx:	1250000000 ns
drm-engine-enc:	1000000000 ns
drm-engine-capacity-enc:	2
";

    #[test]
    fn only_counters_are_read_while_the_device_may_not_be_asked() {
        let counted = [
            ("busy_percent/enc", 50.0),
            ("busy_percent/gfx", 25.0),
            ("memory_bytes", 1000.0),
            ("system_bytes", 2000.0),
        ];
        let found = second(AMDGPU, AMDGPU_LATER, GpuQuestion::Counters);
        assert_eq!(quantities(&found), counted, "no firmware is asked");
        let found = second(AMDGPU, AMDGPU_LATER, GpuQuestion::Device);
        let asked =
            [("busy_percent", 37.0), ("clock_mhz", 2371.0), ("power_w", 45.0), ("temperature_c", 61.0)];
        let mut all = [counted.as_slice(), asked.as_slice()].concat();
        all.sort_by_key(|(quantity, _)| *quantity);
        assert_eq!(quantities(&found), all);
    }

    #[test]
    fn a_device_that_sleeps_is_asked_nothing() {
        let asleep = AMDGPU.replace("runtime_status := active", "runtime_status := suspended");
        assert!(second(&asleep, AMDGPU_LATER, GpuQuestion::Device).is_empty());
    }

    #[test]
    fn i915_and_xe_report_through_their_files() {
        let i915 = "\
== sys/class/drm/card0/device/uevent
DRIVER=i915
PCI_SLOT_NAME=0000:00:02.0
== sys/class/drm/card0/device/power/runtime_status := active
== sys/class/drm/card0/gt_cur_freq_mhz := 1300
== sys/class/drm/card0/gt_act_freq_mhz := 900
== sys/class/drm/card0/device/hwmon/hwmon1/energy1_input := 5000000
== proc/7/fd/3 -> /dev/dri/card0
== proc/7/fdinfo/3
drm-driver:	i915
drm-client-id:	2
drm-pdev:	0000:00:02.0
drm-resident-system0:	8 KiB
drm-engine-render:	100 ns
";
        let later = "\
== sys/class/drm/card0/device/hwmon/hwmon1/energy1_input := 12500000
== proc/7/fdinfo/3
drm-driver:	i915
drm-client-id:	2
drm-pdev:	0000:00:02.0
drm-resident-system0:	8 KiB
drm-engine-render:	800000100 ns
";
        let counted =
            [("busy_percent/render", 80.0), ("requested_clock_mhz", 1300.0), ("system_bytes", 8192.0)];
        assert_eq!(quantities(&second(i915, later, GpuQuestion::Counters)), counted);
        let asked = second(i915, later, GpuQuestion::Device);
        let of = |quantity: &str| asked.get(&("card0".to_owned(), quantity.to_owned())).copied();
        assert_eq!((of("clock_mhz"), of("power_w")), (Some(900.0), Some(7.5)));
        // Counts cycles; its files wake it up, so that they are not read while something is measured.
        let xe = |cycles: u64, total: u64| {
            format!(
                "== proc/7/fdinfo/3\ndrm-driver:\txe\ndrm-client-id:\t2\ndrm-pdev:\t0000:00:02.0\n\
                 drm-cycles-rcs:\t{cycles}\ndrm-total-cycles-rcs:\t{total}\ndrm-total-vram0:\t4 KiB\n"
            )
        };
        let place = i915.split_once("== sys/class/drm/card0/gt_cur").unwrap().0.replace("i915", "xe");
        let text = format!("{place}== proc/7/fd/3 -> /dev/dri/card0\n{}", xe(100, 1000));
        assert!(second(&text, &xe(400, 2000), GpuQuestion::Counters).is_empty());
        let found = second(&text, &xe(400, 2000), GpuQuestion::Device);
        assert_eq!(
            quantities(&found),
            [("busy_percent/rcs", 30.0), ("memory_bytes", 4096.0), ("system_bytes", 0.0)]
        );
    }

    #[test]
    fn without_a_device_there_is_nothing_to_look_at() {
        let folder = tempfile::tempdir().unwrap();
        assert!(GpuSampler::new(&HostRoot::at(folder.path())).is_none());
    }
}
