//! How fast each CPU runs now, and which exit latency of idle states is allowed now.

use crate::{HostError, HostRoot};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use whylate_core::cpus::CpuSet;
use whylate_core::units::CpuId;

/// `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`: 2000 s, the content of the file without a request.
const NO_LIMIT_US: i32 = 2_000_000_000;

/// The frequency of each CPU from cpufreq, otherwise `cpu MHz` of /proc/cpuinfo (the nominal frequency, if the kernel
/// cannot measure it).
pub fn read(root: &HostRoot, cpus: &CpuSet) -> Result<BTreeMap<CpuId, u64>, HostError> {
    let mut frequencies = parse(&root.read("/proc/cpuinfo")?.unwrap_or_default());
    frequencies.retain(|cpu, _| cpus.contains(*cpu));
    for cpu in cpus.iter() {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
        // Drivers that do not know it write `<unknown>`.
        let stated = root.read_trimmed(&path)?.and_then(|text| text.parse::<u64>().ok());
        frequencies.extend(stated.map(|kilohertz| (cpu, kilohertz.saturating_mul(1_000))));
    }
    Ok(frequencies)
}

/// `cpu MHz` of each processor of /proc/cpuinfo, in Hz.
fn parse(text: &str) -> BTreeMap<CpuId, u64> {
    let mut frequencies = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "processor" => current = value.trim().parse().ok().map(CpuId),
            "cpu MHz" => {
                let megahertz =
                    value.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
                frequencies.extend(current.zip(megahertz.map(|megahertz| (megahertz * 1e6) as u64)));
            }
            _ => {}
        }
    }
    frequencies
}

/// The exit latency that all requests to `/dev/cpu_dma_latency` together allow; `None` without a request, or if the
/// file cannot be read. Reading it makes no request.
pub fn latency_request_ns(root: &HostRoot) -> Option<u64> {
    let mut value = [0; 4];
    File::open(root.path("/dev/cpu_dma_latency")).ok()?.read_exact(&mut value).ok()?;
    let micros = i32::from_ne_bytes(value);
    (micros < NO_LIMIT_US).then(|| u64::try_from(micros).unwrap_or(0).saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpufreq_comes_before_the_nominal_frequency() {
        let folder = tempfile::tempdir().unwrap();
        let text = "== proc/cpuinfo\nprocessor : 0\ncpu MHz : 2445.404\n\nprocessor : 1\ncpu MHz : 0\n\n\
                    == sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq := 1800000\n\
                    == sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq := <unknown>\n";
        whylate_lab::archive::unpack(text, folder.path()).unwrap();
        let root = HostRoot::at(folder.path());
        let read = read(&root, &"0-1".parse().unwrap()).unwrap();
        assert_eq!(read, BTreeMap::from([(CpuId(0), 2_445_404_000), (CpuId(1), 1_800_000_000)]));
    }

    #[test]
    fn a_latency_request_is_four_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let root = HostRoot::at(folder.path());
        std::fs::create_dir(folder.path().join("dev")).unwrap();
        let with = |bytes: &[u8]| {
            std::fs::write(folder.path().join("dev/cpu_dma_latency"), bytes).unwrap();
            latency_request_ns(&root)
        };
        assert_eq!(with(&20i32.to_ne_bytes()), Some(20_000));
        assert_eq!(with(&0i32.to_ne_bytes()), Some(0));
        assert_eq!(with(&NO_LIMIT_US.to_ne_bytes()), None);
        assert_eq!(with(b""), None);
    }
}
