//! The kernel's driver of idle states (cpuidle).

/// Older kernels do not allow a choice, and give the file another name.
const FILES: [&str; 2] =
    ["/sys/devices/system/cpu/cpuidle/current_driver", "/sys/devices/system/cpu/cpuidle/current_driver_ro"];

/// Its name, from files of /sys; `None` without a driver, as in most virtual machines.
pub fn idle_driver(text: impl Fn(&str) -> Option<String>) -> Option<String> {
    FILES.into_iter().find_map(text).filter(|name| name != "none")
}
