//! Findings about graphics devices and their drivers.

use super::{FindingCode, Inquiry};
use whylate_core::facts::GpuFacts;
use whylate_core::result::Finding;
use whylate_core::units::Nanos;

/// With i915, runtime power management was seen to delay real-time tasks by about 1 ms until it was switched off
/// (github.com/redhat-performance/tuned, issue 719).
pub(super) fn runtime_power(inquiry: &Inquiry) -> Option<Finding> {
    const PATH: &str = "/sys/class/drm/cardN/device/power/control";
    let code = FindingCode::GpuRuntimePower;
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
    Some(
        code.advice(format!(
            "graphics devices may be powered down and up while measuring ({})",
            managed.join(", ")
        ))
        .effect(format!(
            "with some drivers that has delayed real-time tasks by about {}",
            Nanos::from_millis(1)
        ))
        .seen(PATH, "auto")
        .now(format!("echo on | sudo tee {PATH}")),
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

pub(super) fn frequency(inquiry: &Inquiry) -> Option<Finding> {
    let code = FindingCode::GpuFrequency;
    let clocks: Vec<_> =
        inquiry.facts.gpus.iter().filter_map(|gpu| Some((gpu.name.as_str(), clock(inquiry, gpu)?))).collect();
    let (name, (path, value, is_fixed)) = clocks.iter().min_by_key(|(_, (_, _, is_fixed))| *is_fixed)?;
    if *is_fixed {
        return Some(code.fine("the clocks of graphics devices are fixed").seen(path.clone(), value.clone()));
    }
    Some(
        code.info(format!("the clock of {name} follows its load ({value})"))
            .effect("changing it is work for its firmware and driver, some of it with interrupts off")
            .seen(path.clone(), value.clone())
            .now("fix it: i915 gt_min_freq_mhz = gt_max_freq_mhz; amdgpu power_dpm_force_performance_level = high"),
    )
}

/// Matrox G200 chips of servers: a write-combining frame buffer on their slow bus stalls every CPU that touches the
/// bus; since Linux 6.8 it can be switched off when the kernel is built.
pub(super) fn matrox(inquiry: &Inquiry) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    if !live.root.exists("/sys/module/mgag200") {
        return None;
    }
    let code = FindingCode::MatroxWriteCombining;
    let path = format!("/boot/config-{}", inquiry.facts.kernel.release);
    let config = live.root.read(&path).ok().flatten().unwrap_or_default();
    if config.lines().any(|line| line == "CONFIG_DRM_MGAG200_DISABLE_WRITECOMBINE=y") {
        return Some(
            code.fine("mgag200 was built without write-combining")
                .seen(path, "DRM_MGAG200_DISABLE_WRITECOMBINE=y"),
        );
    }
    Some(
        code.advice("the Matrox graphics driver (mgag200) is loaded and may map its memory write-combining")
            .effect("a CPU that writes a picture there stalls other CPUs, isolated ones too, by tens of microseconds")
            .seen("/sys/module/mgag200", "loaded")
            .now("write nothing to its console or framebuffer, or unload it: `sudo modprobe -r mgag200`")
            .boot("boot with `modprobe.blacklist=mgag200`, or a kernel with DRM_MGAG200_DISABLE_WRITECOMBINE"),
    )
}

pub(super) fn nvidia(inquiry: &Inquiry) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    if !live.root.exists("/sys/module/nvidia") {
        return None;
    }
    let version = live.text("/sys/module/nvidia/version").unwrap_or_else(|| "unknown version".to_owned());
    let code = FindingCode::NvidiaOnRealtime;
    let seen = "/sys/module/nvidia/version";
    Some(if inquiry.facts.kernel.realtime {
        code.serious(format!("the NVIDIA module ({version}) runs on a PREEMPT_RT kernel"))
            .effect("its maker does not support that; it holds locks that cannot be preempted, and may stop the machine")
            .seen(seen, version)
            .now("keep real-time tasks and the device's interrupt on different CPUs, and test long")
            .boot("use another driver, or the plain kernel")
    } else {
        code.info(format!("the NVIDIA module ({version}) is loaded"))
            .effect("reading its power or clocks has stopped all CPUs for milliseconds on some systems")
            .seen(seen, version)
            .now(
                "stop what polls it (`nvidia-smi -l`, desktop monitors, exporters) while real-time tasks run",
            )
    })
}
