//! What the kernel's runtime verification monitors say of watched threads, and whether they are on.
//!
//! They are only read: a monitor costs time at many events of the whole machine, and may be set to panic, so that switching one
//! on is left to whoever runs the machine.

use super::TOLD_MAX;
use crate::measure::TaskLine;
use schemars::JsonSchema;
use serde::Serialize;
use whylate_bpf::tasks::KernelMonitor;
use whylate_core::figure::{count, nanoseconds};
use whylate_core::{Warning, WarningCode};
use whylate_host::HostRoot;

/// Where the kernel has them.
const MONITORS: &str = "/sys/kernel/tracing/rv";

/// What one runtime verification monitor of the kernel said of a watched thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KernelMonitorLine {
    /// The kernel's name of it: `sleep`, `pagefault`, `wakeup`.
    pub monitor: &'static str,
    /// How often it warned.
    pub warnings: u64,
    /// The last time, on CLOCK_MONOTONIC.
    pub last_at_ns: u64,
    /// The thread to which that happened: others may have had the same name before.
    pub last_thread: u32,
    /// The response of the activation in which that was; absent where it was in none that was seen whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_response_ns: Option<u64>,
    /// The longest response of all activations in which it warned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_response_ns: Option<u64>,
}

/// That monitors which this kernel has are off, so that they cannot warn.
pub(super) fn off(host: &HostRoot) -> Option<Warning> {
    let read = |file: &str| host.read_trimmed(&format!("{MONITORS}/{file}")).ok().flatten();
    let (available, enabled) = (read("available_monitors")?, read("enabled_monitors").unwrap_or_default());
    // A monitor in a family is `family:monitor`.
    let has = |list: &str, name: &str| list.lines().any(|line| line.rsplit(':').next() == Some(name));
    let is_on = read("monitoring_on").is_none_or(|it| it != "0");
    let names = KernelMonitor::ALL.map(KernelMonitor::name);
    let off = names.into_iter().filter(|name| has(&available, name) && !(is_on && has(&enabled, name)));
    let off = off.collect::<Vec<&str>>().join(", ");
    let text = || {
        let why = if is_on { "" } else { " (monitoring_on is 0)" };
        format!("watched tasks: the kernel's monitors of real-time programs are off: {off}{why}")
    };
    (!off.is_empty()).then(|| Warning::new(WarningCode::KernelMonitorsOff, text()))
}

/// What they warned of; nothing where they did not.
pub(super) fn told(lines: &[TaskLine]) -> Option<Warning> {
    let all = lines.iter().flat_map(|task| task.kernel_monitors.iter().map(move |one| (task, one)));
    let mut all: Vec<(&TaskLine, &KernelMonitorLine)> = all.collect();
    all.sort_by_key(|(_, one)| std::cmp::Reverse(one.warnings));
    let named = all.iter().take(TOLD_MAX).map(|(task, one)| sentence(&task.name, one));
    let mut text = named.collect::<Vec<String>>().join("; ");
    if all.len() > TOLD_MAX {
        text += &format!("; and {} more", all.len() - TOLD_MAX);
    }
    let warning =
        || Warning::new(WarningCode::KernelMonitorWarned, format!("monitors of the kernel warned: {text}"));
    (!all.is_empty()).then(warning)
}

/// `pagefault 3 times of audio (thread 812 last, 12.3 s after boot, response 4.10 ms; longest 5.00 ms)`.
fn sentence(name: &str, one: &KernelMonitorLine) -> String {
    let response = one.last_response_ns.map_or_else(
        || "in no activation that was seen whole".to_owned(),
        |ns| format!("response {}", nanoseconds(ns)),
    );
    let longest = one.max_response_ns.map(|ns| format!("; longest {}", nanoseconds(ns))).unwrap_or_default();
    let times = if one.warnings == 1 { "once".to_owned() } else { format!("{} times", count(one.warnings)) };
    let at = nanoseconds(one.last_at_ns);
    format!(
        "{} {times} of {name} (last thread {}, {at} after boot, {response}{longest})",
        one.monitor, one.last_thread
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = folder.path().join(MONITORS.trim_start_matches('/')).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let host = HostRoot::at(folder.path());
        (folder, host)
    }

    #[test]
    fn monitors_that_are_there_and_off_are_told_with_their_remedy() {
        let available = ("available_monitors", "wwnr\nrtapp\nrtapp:sleep\nrtapp:pagefault\n");
        let said = |files: &[(&str, &str)]| {
            let (_folder, host) = host(files);
            off(&host).map(|it| it.text)
        };
        assert_eq!(said(&[]), None, "a kernel without monitors");
        assert_eq!(said(&[("available_monitors", "wwnr\nwip\n")]), None, "and without these");
        let on = ("enabled_monitors", "rtapp\nrtapp:sleep\nrtapp:pagefault\n");
        assert_eq!(said(&[available, on, ("monitoring_on", "1\n")]), None);
        let text = said(&[available, ("enabled_monitors", "rtapp:sleep\n")]).unwrap();
        assert!(text.ends_with("are off: pagefault"), "{text}");
        let text = said(&[available, on, ("monitoring_on", "0\n")]).unwrap();
        assert!(text.ends_with("are off: sleep, pagefault (monitoring_on is 0)"), "{text}");
        assert!(WarningCode::KernelMonitorsOff.fix().unwrap().contains("rv/monitors/rtapp/enable"));
    }

    #[test]
    fn what_monitors_warned_of_is_told_with_thread_moment_and_duration() {
        let line = |monitor, warnings, last_response_ns| KernelMonitorLine {
            monitor,
            warnings,
            last_at_ns: 12_300_000_000,
            last_thread: 812,
            last_response_ns,
            max_response_ns: last_response_ns.map(|ns| ns + 1_000_000),
        };
        let task = |name: &str, kernel_monitors| TaskLine {
            name: name.to_owned(),
            kernel_monitors,
            ..TaskLine::default()
        };
        assert_eq!(told(&[task("quiet", Vec::new())]), None);
        let lines = vec![line("sleep", 1, None), line("pagefault", 3, Some(4_100_000))];
        let text = told(&[task("audio", lines)]).unwrap().text;
        assert_eq!(
            text,
            "monitors of the kernel warned: pagefault 3 times of audio (last thread 812, 12.3 s after boot, response 4.10 ms; \
             longest 5.10 ms); sleep once of audio (last thread 812, 12.3 s after boot, in no activation that was seen whole)"
        );
    }
}
