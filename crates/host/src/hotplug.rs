//! CPUs that come online while something is measured.

use crate::HostRoot;
use whylate_core::CpuSet;

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const PRESENT: &str = "/sys/devices/system/cpu/present";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// How many CPUs that are not there yet are recorded, too: a hypervisor may allow hundreds, and the memory for each is
/// kept.
const ADDED_MAX: usize = 8;

/// The CPUs to record for these watched CPUs. If all online CPUs are watched, every CPU that can come online is
/// recorded: those that are present, and the next ones that a hypervisor may add. So nothing has to be set up when a
/// CPU comes online, and nothing is lost.
pub fn recorded(host: &HostRoot, watched: &CpuSet) -> CpuSet {
    if !online(host).difference(watched).is_empty() {
        return watched.clone();
    }
    let present = read(host, PRESENT);
    let absent = read(host, POSSIBLE).difference(&present);
    watched.iter().chain(present.iter()).chain(absent.iter().take(ADDED_MAX)).collect()
}

/// The CPUs that are online now.
pub fn online(host: &HostRoot) -> CpuSet {
    read(host, ONLINE)
}

fn read(host: &HostRoot, path: &str) -> CpuSet {
    host.read_cpus(path).ok().flatten().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_may_come_are_recorded_if_all_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        let path = |path: &str| folder.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(path(POSSIBLE).parent().unwrap()).unwrap();
        for (file, cpus) in [(POSSIBLE, "0-127"), (PRESENT, "0-3"), (ONLINE, "0,2-3")] {
            std::fs::write(path(file), cpus).unwrap();
        }
        let host = HostRoot::at(folder.path());
        let of = |watched: &str| recorded(&host, &watched.parse().unwrap()).to_string();
        assert_eq!(of("0,2-3"), "0-11");
        assert_eq!(of("2"), "2", "who names CPUs means these");
        std::fs::write(path(POSSIBLE), "0-3").unwrap();
        assert_eq!(of("0,2-3"), "0-3");
        let empty = HostRoot::at(tempfile::tempdir().unwrap().path());
        assert_eq!(recorded(&empty, &"1".parse().unwrap()).to_string(), "1");
    }
}
