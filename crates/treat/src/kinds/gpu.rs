//! `gpu-power`: graphics devices stay powered, and keep one clock.
//!
//! Runtime power management of a device and of the PCI bridges above it is switched off during the treatment. The
//! clock is fixed if the driver has a file for that (i915, amdgpu, radeon). NVIDIA's driver takes a clock only through
//! its own library: `nvidia-smi`, which comes with the driver, locks and unlocks it.

use crate::change::{Change, Target};
use crate::nvidia;
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::reading::Reading;
use whylate_core::plan::GpuPowerPlan;
use whylate_core::{Warning, WarningCode};
use whylate_host::{HostError, HostRoot, uevent_value};

const DRM: &str = "/sys/class/drm";
const PCI: &str = "/sys/bus/pci/devices";

struct GpuDevice {
    /// `card0`, or the PCI address of a device without one.
    name: String,
    folder: String,
    driver: String,
    address: Option<String>,
}

impl GpuDevice {
    fn is_named(&self, text: &str) -> bool {
        let address = self.address.as_deref();
        text == "all"
            || text == self.name
            || text == self.driver
            || address == Some(text)
            || address.and_then(|address| address.strip_prefix("0000:")) == Some(text)
    }
}

impl Planner for GpuPowerPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let root = &surroundings.root;
        let all = devices(root)?;
        if all.is_empty() {
            return Err(Impossible::new(format!("there is no graphics device here (no card in {DRM})")));
        }
        let mut planned = Planned::default();
        for text in &self.devices {
            if !all.iter().any(|device| device.is_named(text)) {
                let known: Vec<&str> = all.iter().map(|device| device.name.as_str()).collect();
                let reason = format!(
                    "devices: there is no graphics device `{text}`; choose from {}",
                    known.join(", ")
                );
                return Err(Impossible::new(reason));
            }
        }
        let chosen = all.iter().filter(|device| self.devices.iter().any(|text| device.is_named(text)));
        for device in chosen {
            planned.changes.extend(powered(root, device)?);
            if self.fixed_clock {
                clock(root, device, &mut planned)?;
            }
        }
        let mut seen = Vec::new();
        planned.changes.retain(|change| {
            let is_new = !seen.contains(&change.target);
            seen.push(change.target.clone());
            is_new
        });
        if planned.changes.is_empty() {
            let names: Vec<&str> = all.iter().map(|device| device.name.as_str()).collect();
            let reason =
                format!("runtime power management and settable clocks are missing on {}", names.join(", "));
            return Err(Impossible::new(reason));
        }
        Ok(planned)
    }
}

/// Cards of DRM, and NVIDIA's devices, which may have none.
fn devices(root: &HostRoot) -> Result<Vec<GpuDevice>, HostError> {
    let mut devices = Vec::new();
    for number in root.list_numbered(DRM, "card")? {
        let name = format!("card{number}");
        let folder = format!("{DRM}/{name}/device");
        let event = root.read(&format!("{folder}/uevent"))?.unwrap_or_default();
        let value = |key: &str| uevent_value(&event, key);
        let driver = value("DRIVER").unwrap_or_default().to_owned();
        devices.push(GpuDevice { driver, address: value("PCI_SLOT_NAME").map(str::to_owned), name, folder });
    }
    for address in root.list("/proc/driver/nvidia/gpus")? {
        if !devices.iter().any(|device| device.address.as_deref() == Some(&address)) {
            let folder = format!("{PCI}/{address}");
            devices.push(GpuDevice {
                name: address.clone(),
                folder,
                driver: "nvidia".to_owned(),
                address: Some(address),
            });
        }
    }
    Ok(devices)
}

/// The device and the bridges above it: a bridge that sleeps puts everything below it to sleep.
fn powered(root: &HostRoot, device: &GpuDevice) -> Result<Vec<Change>, HostError> {
    let mut changes = Vec::new();
    let mut folders = vec![(device.folder.clone(), device.name.clone())];
    if let Some(address) = &device.address {
        folders.extend(bridges(root, address).into_iter().map(|bridge| (format!("{PCI}/{bridge}"), bridge)));
    }
    for (folder, name) in folders {
        let path = format!("{folder}/power/control");
        if root.read_trimmed(&path)?.is_some() {
            let effect = format!("{name} stays powered");
            changes.push(Change::required(Target::file(path), "on", effect));
        }
    }
    Ok(changes)
}

/// PCI addresses of the bridges between the root and the device, the nearest first: the folders on the way of the link
/// `../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0`.
fn bridges(root: &HostRoot, address: &str) -> Vec<String> {
    let link = root.read_link(&format!("{PCI}/{address}")).unwrap_or_default();
    let is_address =
        |part: &&str| part.len() == 12 && part.as_bytes()[4] == b':' && part.as_bytes()[7] == b':';
    let parts = link.split('/').filter(is_address).filter(|part| *part != address);
    parts.rev().map(str::to_owned).collect()
}

fn clock(root: &HostRoot, device: &GpuDevice, planned: &mut Planned) -> Result<(), HostError> {
    let card = device.folder.trim_end_matches("/device");
    let (name, driver) = (&device.name, device.driver.as_str());
    match driver {
        "i915" => {
            let Some(highest) = root.read_number::<u64>(&format!("{card}/gt_RP0_freq_mhz"))? else {
                return Ok(());
            };
            // Upwards from the highest: the kernel refuses a minimum above the maximum.
            for file in ["gt_max_freq_mhz", "gt_min_freq_mhz", "gt_boost_freq_mhz"] {
                let path = format!("{card}/{file}");
                if root.exists(&path) {
                    let effect = format!("the clock of {name} stays at {highest} MHz");
                    planned.changes.push(Change::optional(Target::file(path), highest.to_string(), effect));
                }
            }
        }
        "amdgpu" | "radeon" => {
            let path = format!("{}/power_dpm_force_performance_level", device.folder);
            if root.read_trimmed(&path)?.is_some() {
                let effect = format!("{name} keeps its highest clocks");
                let target = Target::file_with(path, Reading::Whole);
                planned.changes.push(Change::optional(target, "high", effect));
            }
        }
        "nvidia" => match locked_clock(root, device) {
            Ok(change) => planned.changes.push(change),
            Err(reason) => {
                let text = format!("the clock of {name} is not changed: {reason}");
                let fix = "install nvidia-smi of the driver's version, and try `nvidia-smi -q -d CLOCK`";
                planned.warnings.push(Warning::with_fix(WarningCode::GpuClockUnchanged, text, fix));
            }
        },
        "nouveau" => {
            let text = format!("the clock of {name} is not changed: nouveau has no clock setting in sysfs");
            let fix = "write a performance level to /sys/kernel/debug/dri/N/pstate";
            planned.warnings.push(Warning::with_fix(WarningCode::GpuClockUnchanged, text, fix));
        }
        _ => {}
    }
    Ok(())
}

/// The highest clock of NVIDIA's device; or why it is not known.
fn locked_clock(root: &HostRoot, device: &GpuDevice) -> Result<Change, String> {
    let address = device.address.clone().ok_or("it is not a PCI device")?;
    let highest = nvidia::clock_max_mhz(root, &address).map_err(|error| error.to_string())?;
    let effect = format!("the clock of {} stays at {highest} MHz", device.name);
    Ok(Change::optional(Target::GpuClock { address }, format!("{highest},{highest}"), effect))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::Facts;
    use whylate_lab::archive;
    use whylate_testing::says;

    fn plan(text: &str, devices: &[&str]) -> Result<Planned, Impossible> {
        let folder = tempfile::tempdir().unwrap();
        archive::unpack(text, folder.path()).unwrap();
        let surroundings = Surroundings::new(HostRoot::at(folder.path()), &Facts::default(), None);
        let devices = devices.iter().map(|device| (*device).to_owned()).collect();
        GpuPowerPlan { devices, fixed_clock: true }.plan(&surroundings)
    }

    fn written(planned: &Planned) -> Vec<String> {
        planned.changes.iter().map(|change| format!("{} = {}", change.target, change.new)).collect()
    }

    const INTEL: &str = "\
== sys/class/drm/card0/device/uevent
DRIVER=i915
PCI_SLOT_NAME=0000:00:02.0
== sys/class/drm/card0/device/power/control := auto
== sys/class/drm/card0/gt_RP0_freq_mhz := 1100
== sys/class/drm/card0/gt_min_freq_mhz := 350
== sys/class/drm/card0/gt_max_freq_mhz := 1000
";

    const AMD: &str = "\
== sys/class/drm/card1/device/uevent
DRIVER=amdgpu
PCI_SLOT_NAME=0000:03:00.0
== sys/class/drm/card1/device/power/control := auto
== sys/class/drm/card1/device/power_dpm_force_performance_level := auto
== sys/bus/pci/devices/0000:03:00.0 -> ../../../devices/pci0000:00/0000:00:01.1/0000:03:00.0
== sys/bus/pci/devices/0000:00:01.1/power/control := auto
== sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0/power/control := auto
";

    #[test]
    fn the_device_its_bridges_and_its_clock() {
        let both = format!("{INTEL}{AMD}");
        let intel = [
            "/sys/class/drm/card0/device/power/control = on",
            "/sys/class/drm/card0/gt_max_freq_mhz = 1100",
            "/sys/class/drm/card0/gt_min_freq_mhz = 1100",
        ];
        let amd = [
            "/sys/class/drm/card1/device/power/control = on",
            "/sys/bus/pci/devices/0000:00:01.1/power/control = on",
            "/sys/class/drm/card1/device/power_dpm_force_performance_level = high",
        ];
        assert_eq!(written(&plan(&both, &["all"]).unwrap()), [intel, amd].concat());
        assert_eq!(written(&plan(&both, &["i915", "card0"]).unwrap()), intel);
        assert_eq!(written(&plan(&both, &["03:00.0"]).unwrap()), amd);
    }

    #[test]
    fn nvidia_without_its_tool_keeps_its_clock() {
        let text = "== proc/driver/nvidia/gpus/0000:01:00.0/information := x\n\
                    == sys/bus/pci/devices/0000:01:00.0/power/control := auto\n";
        let planned = plan(text, &["all"]).unwrap();
        assert_eq!(written(&planned), ["/sys/bus/pci/devices/0000:01:00.0/power/control = on"]);
        assert!(planned.warnings[0].text.ends_with("nvidia-smi is missing"), "{:?}", planned.warnings);
    }

    #[test]
    fn machines_without_such_a_device_say_so() {
        assert!(says("there-no-graphics-device", &plan("", &["all"]).unwrap_err().reason));
        let unknown = plan(INTEL, &["card7"]).unwrap_err().reason;
        assert!(says("devices-there-no-graphics", &unknown));
        let bare =
            plan("== sys/class/drm/card0/device/uevent := DRIVER=simpledrm\n", &["all"]).unwrap_err().reason;
        assert!(bare.contains("runtime power management"), "{bare}");
    }
}
