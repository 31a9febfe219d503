//! Findings about graphics devices and their drivers.

use super::live::LiveFiles;
use super::{FindingCode, Inquiry, listed};
use whylate_core::facts::{GpuFacts, GpuInterrupt};
use whylate_core::result::Finding;
use whylate_core::units::Nanos;

/// With i915, runtime power management was seen to delay real-time tasks by about 1 ms until it was switched off
/// (github.com/redhat-performance/tuned, issue 719).
pub(super) fn runtime_power(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/sys/class/drm/cardN/device/power/control";
    let of = |state: &str| -> Vec<&str> {
        let gpus = inquiry.facts.gpus.iter();
        gpus.filter(|gpu| gpu.runtime_power.as_deref() == Some(state)).map(|gpu| gpu.name.as_str()).collect()
    };
    let managed = of("auto");
    if managed.is_empty() {
        let kept = of("on");
        return (!kept.is_empty()).then(|| {
            code.fine(format!("graphics devices stay powered ({})", kept.join(", "))).seen(PATH, "on")
        });
    }
    let finding = code
        .advice(format!(
            "graphics devices may be powered down and up during a measurement ({})",
            managed.join(", ")
        ))
        .effect(format!(
            "with some drivers, powering a device up or down has delayed real-time tasks by about {}",
            Nanos::from_millis(1)
        ))
        .seen(PATH, "auto")
        .now(format!("echo on | sudo tee {PATH}"));
    let rule = "add a udev rule: `ACTION==\"add\", SUBSYSTEM==\"pci\", ATTR{class}==\"0x030*\", ATTR{power/control}=\"on\"`";
    Some(inquiry.boot(finding, rule))
}

/// Devices that interrupt the targets, or that a process uses.
pub(super) fn in_use(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    // A fact of the moment: no warning for figures of another one.
    inquiry.live.as_ref()?;
    if inquiry.facts.gpus.is_empty() {
        return None;
    }
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for gpu in &inquiry.facts.gpus {
        let reaches = |it: &&GpuInterrupt| !it.cpus.intersection(inquiry.targets).is_empty();
        let lines: Vec<String> =
            gpu.interrupts.iter().filter(reaches).map(|it| it.line.to_string()).collect();
        let processes: Vec<String> =
            gpu.usage.processes.iter().map(|it| format!("{} ({})", it.name, it.pid)).collect();
        let is_busy = gpu.usage.busy_percent.is_some_and(|busy| busy > 0);
        let mut parts = Vec::new();
        parts.extend(
            (!lines.is_empty()).then(|| format!("interrupts the target CPUs (line {})", listed(&lines))),
        );
        parts.extend((!processes.is_empty()).then(|| format!("is open in {}", listed(&processes))));
        parts.extend(gpu.usage.busy_percent.filter(|_| is_busy).map(|busy| format!("is {busy} % busy")));
        if !parts.is_empty() {
            found.push(format!("{} {}", gpu.name, parts.join(", ")));
        }
        seen.extend(gpu.interrupts.iter().map(|it| format!("{} {}: CPU {}", gpu.name, it.line, it.cpus)));
    }
    let (path, seen) = ("/proc/irq/N/effective_affinity_list", listed(&seen));
    if found.is_empty() {
        return code.well("no graphics device is in use, and none interrupts the target CPUs", path, seen);
    }
    let finding = code.info(found.join("; "));
    Some(
        finding
            .effect(
                "the device's interrupts and driver threads preempt the task or compete with it for the CPU",
            )
            .seen(path, seen),
    )
}

/// The file that says how the clock of a graphics device is chosen, and whether it is fixed.
fn clock(inquiry: &Inquiry, gpu: &GpuFacts) -> Option<(String, String, bool)> {
    let live = inquiry.live.as_ref()?;
    let card = format!("/sys/class/drm/{}", gpu.name);
    match gpu.driver.as_deref()? {
        "i915" => {
            let (low, high) = (format!("{card}/gt_min_freq_mhz"), format!("{card}/gt_max_freq_mhz"));
            let (min, max) = (live.number(&low)?, live.number(&high)?);
            Some((low, format!("{min} to {max} MHz"), min == max))
        }
        "amdgpu" | "radeon" => {
            let path = format!("{card}/device/power_dpm_force_performance_level");
            let level = live.text(&path)?;
            let is_fixed = level != "auto";
            Some((path, level, is_fixed))
        }
        _ => None,
    }
}

pub(super) fn frequency(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let clocks: Vec<_> =
        inquiry.facts.gpus.iter().filter_map(|gpu| Some((gpu.name.as_str(), clock(inquiry, gpu)?))).collect();
    let (name, (path, value, is_fixed)) = clocks.iter().min_by_key(|(_, (_, _, is_fixed))| *is_fixed)?;
    if *is_fixed {
        return code.well("the clocks of graphics devices are fixed", path.clone(), value.clone());
    }
    code.info(format!("the clock of {name} follows its load ({value})"))
        .effect("the driver and the firmware change the clock, sometimes with interrupts disabled")
        .seen(path.clone(), value.clone())
        .now(
            "set a fixed clock: i915 gt_min_freq_mhz = gt_max_freq_mhz; amdgpu power_dpm_force_performance_level = high",
        )
        .into()
}

/// Power saving that the drivers do by themselves: the parameter (0 switches it off), and what it is.
const OPTIONS: [(&str, &str); 6] = [
    ("i915/parameters/enable_dc", "display power states"),
    ("i915/parameters/enable_fbc", "framebuffer compression"),
    ("i915/parameters/enable_psr", "panel self refresh"),
    ("amdgpu/parameters/runpm", "runtime power management"),
    ("amdgpu/parameters/aspm", "PCI Express link power states (ASPM)"),
    ("amdgpu/parameters/bapm", "power sharing with the CPU (BAPM)"),
];

/// The parameters that exist: path, value, what it is.
fn options(live: &LiveFiles) -> Vec<(String, String, &'static str)> {
    const NVIDIA: &str = "/proc/driver/nvidia/params";
    let known = OPTIONS.iter().map(|(option, what)| (format!("/sys/module/{option}"), *what));
    let there = known.filter(|(path, _)| live.root.exists(path));
    let mut found: Vec<_> =
        there.filter_map(|(path, what)| Some((path.clone(), live.text(&path)?, what))).collect();
    if live.root.exists(NVIDIA)
        && let Some(text) = live.text(NVIDIA)
        && let Some(value) = text.lines().find_map(|line| line.strip_prefix("DynamicPowerManagement:"))
    {
        let path = format!("{NVIDIA}, DynamicPowerManagement");
        found.push((path, value.trim().to_owned(), "dynamic power management"));
    }
    found
}

/// The drivers' own power saving; parameters of i915 and amdgpu are described by `modinfo`, that of NVIDIA in its README.
pub(super) fn driver_options(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let all = options(inquiry.live.as_ref()?);
    let on: Vec<_> = all.iter().filter(|(_, value, _)| value != "0").collect();
    let see = |finding: Finding, (path, value, _): &(String, String, &str)| {
        finding.seen(path.clone(), value.clone())
    };
    if on.is_empty() {
        let fine = code.fine("the power-saving features of the graphics drivers are off");
        return (!all.is_empty()).then(|| all.iter().fold(fine, see));
    }
    let names: Vec<&str> = on.iter().map(|(_, _, what)| *what).collect();
    let finding = code
        .info(format!("graphics drivers use power-saving features: {}", names.join(", ")))
        .effect("the driver and the firmware enter and leave power states at unpredictable moments")
        .now("write 0 to each of these parameters that can be changed while the driver is loaded")
        .boot(
            "boot with `i915.enable_dc=0 i915.enable_fbc=0 i915.enable_psr=0`, `amdgpu.runpm=0 amdgpu.aspm=0 \
             amdgpu.bapm=0`, or `nvidia.NVreg_DynamicPowerManagement=0x00`",
        );
    Some(on.into_iter().fold(finding, see))
}

/// Matrox G200 chips of servers: a write-combining frame buffer on their slow bus stalls every CPU that touches the
/// bus; since Linux 6.8 it can be switched off when the kernel is built.
pub(super) fn matrox(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    if !live.root.exists("/sys/module/mgag200") {
        return None;
    }
    let config = live.config(&inquiry.facts.kernel.release);
    if let Some(config) = config.filter(|config| config.has("DRM_MGAG200_DISABLE_WRITECOMBINE")) {
        return code.well(
            "mgag200 was built without write-combining",
            config.path.clone(),
            "DRM_MGAG200_DISABLE_WRITECOMBINE=y",
        );
    }
    code.advice("the Matrox graphics driver (mgag200) is loaded and may map video memory as write-combining")
        .effect(
            "a CPU that draws into this memory stalls other CPUs, even isolated ones, for tens of microseconds",
        )
        .seen("/sys/module/mgag200", "loaded")
        .now("do not use the card's console or framebuffer, or unload the driver: `sudo modprobe -r mgag200`")
        .boot("boot with `modprobe.blacklist=mgag200`, or a kernel with DRM_MGAG200_DISABLE_WRITECOMBINE")
        .into()
}

pub(super) fn nvidia(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    if !live.root.exists("/sys/module/nvidia") {
        return None;
    }
    let version = live.text("/sys/module/nvidia/version").unwrap_or_else(|| "unknown version".to_owned());
    let seen = "/sys/module/nvidia/version";
    Some(if inquiry.facts.kernel.realtime {
        code.serious(format!("the NVIDIA module ({version}) runs on a PREEMPT_RT kernel"))
            .effect("NVIDIA does not support PREEMPT_RT; the module disables preemption while it holds locks, and may hang the machine")
            .seen(seen, version)
            .now("run real-time tasks and the device's interrupt on different CPUs, and test for a long time")
            .boot("use another driver, or a kernel without PREEMPT_RT")
    } else {
        code.info(format!("the NVIDIA module ({version}) is loaded"))
            .effect("reading the card's power or clocks has stopped all CPUs for milliseconds on some systems")
            .seen(seen, version)
            .now(
                "while real-time tasks run, stop programs that poll the card (`nvidia-smi -l`, desktop monitors, exporters)",
            )
    })
}
