//! The running kernel: version, preemption model, command line, mitigations, lockdown.

use super::{FactReader, FindingCode, kernel_options};
use crate::cpuinfo::CpuInfo;
use whylate_core::facts::KernelFacts;

const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";

pub(super) fn kernel(reader: &FactReader, info: &CpuInfo) -> KernelFacts {
    let version = reader.text("/proc/sys/kernel/version").unwrap_or_default();
    let command_line = reader.text("/proc/cmdline").unwrap_or_default();
    let realtime = reader.flag("/sys/kernel/realtime") == Some(true) || version_says_realtime(&version);
    let mode = preemption_mode(reader, &command_line);
    let mitigations = reader.list(VULNERABILITIES).into_iter().filter_map(|name| {
        let state = reader.text(&format!("{VULNERABILITIES}/{name}"))?;
        Some((name, state))
    });
    KernelFacts {
        release: reader.text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        architecture: architecture(reader, info),
        preemption: preemption(&version, realtime, mode.as_deref()),
        realtime,
        boot_id: reader.text("/proc/sys/kernel/random/boot_id"),
        tainted: reader.number("/proc/sys/kernel/tainted"),
        mitigations: mitigations.collect(),
        version,
        command_line,
    }
}

/// `uname -m` of this machine; for another root /proc/sys/kernel/arch (since Linux 6.1), otherwise derived from
/// /proc/cpuinfo.
fn architecture(reader: &FactReader, info: &CpuInfo) -> String {
    if reader.root.is_real() {
        return rustix::system::uname().machine().to_string_lossy().into_owned();
    }
    let stated = reader.text("/proc/sys/kernel/arch");
    stated.or_else(|| info.architecture().map(str::to_owned)).unwrap_or_default()
}

/// `PREEMPT_RT` of mainline, `PREEMPT RT` of the patches for kernels before 5.4.
fn version_says_realtime(version: &str) -> bool {
    let words: Vec<&str> = version.split_whitespace().collect();
    words.iter().any(|word| word.starts_with("PREEMPT_") && word.contains("RT"))
        || words.windows(2).any(|pair| pair == ["PREEMPT", "RT"])
}

/// The build option from `uname -v`, with the active mode in brackets if it is known.
fn preemption(version: &str, realtime: bool, mode: Option<&str>) -> String {
    let word = version.split_whitespace().find(|word| word.starts_with("PREEMPT")).unwrap_or("none");
    match (realtime, word, mode) {
        (true, _, _) => "PREEMPT_RT".to_owned(),
        (false, "PREEMPT_DYNAMIC", Some(mode)) => format!("{word} ({mode})"),
        (false, word, _) => word.to_owned(),
    }
}

/// The mode of a PREEMPT_DYNAMIC kernel: the marked one of debugfs (`none voluntary (full)`), otherwise what the
/// command line asked for.
fn preemption_mode(reader: &FactReader, command_line: &str) -> Option<String> {
    let debug = reader.text("/sys/kernel/debug/sched/preempt");
    let marked = debug.as_deref().and_then(|modes| {
        let (_, rest) = modes.split_once('(')?;
        Some(rest.split_once(')')?.0)
    });
    let asked = kernel_options(command_line).rev().find_map(|option| option.strip_prefix("preempt="));
    marked.or(asked).map(str::to_owned)
}

/// A kernel locked down for confidentiality refuses tracefs and BPF reads of kernel memory (kernel_lockdown(7)).
pub(super) fn is_locked_down(reader: &FactReader) -> bool {
    let levels = reader.text("/sys/kernel/security/lockdown").unwrap_or_default();
    levels.contains("[confidentiality]")
}

pub(super) fn warn_of_lockdown(reader: &FactReader) {
    if is_locked_down(reader) {
        reader.warn(FindingCode::KernelLockdown.warning(
            "the kernel is locked down (confidentiality): tracing and reading kernel memory by BPF are refused, so \
             spikes can only be counted, not explained",
            "boot without lockdown=confidentiality (with Secure Boot, the distribution may set it)",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_models_of_real_version_texts() {
        let cases = [
            ("#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1", Some("voluntary"), "PREEMPT_DYNAMIC (voluntary)"),
            ("#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1", None, "PREEMPT_DYNAMIC"),
            ("#1 SMP PREEMPT_RT Debian 6.12.48-1 (2025-09-20)", Some("full"), "PREEMPT_RT"),
            ("#1 SMP PREEMPT RT 4.19.94-rt39", None, "PREEMPT_RT"),
            ("#1 SMP PREEMPT Wed Mar 5", Some("full"), "PREEMPT"),
            ("#1 SMP Debian 5.10.1", None, "none"),
            ("", None, "none"),
        ];
        for (version, mode, expected) in cases {
            assert_eq!(preemption(version, version_says_realtime(version), mode), expected, "{version}");
        }
    }
}
