//! The groups of a shield, and how a thread gets into them.
//!
//! A shield that is made of cpusets leaves its CPUs to the members of one group, [`GROUP`]: the kernel refuses to pin
//! any other thread there. Measuring and loading threads enter the group by themselves when they are pinned to its
//! CPUs ([`pin_this_thread`]). The treatment `shield` makes the shield and takes it away; nothing here changes a
//! setting of the machine.

use crate::{HostError, HostRoot, cgroup};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::sync::Mutex;
use whylate_core::CpuSet;
use whylate_sys::schedule;

/// Name of the group whose members may use shielded CPUs, below the mount of the cpuset controller.
pub const GROUP: &str = "whylate-shield";

/// Name of the group of all other tasks, in cgroup v1.
pub const OTHERS_GROUP: &str = "whylate-others";

/// Holds the shielded CPUs while a shield by affinity is up: nothing else in the machine shows it.
pub const MARK: &str = "/run/whylate-shield.cpus";

/// Where the cpuset controller of cgroup v1 (the first two) and cgroup v2 are usually mounted.
pub const MOUNTS: [&str; 4] =
    ["/sys/fs/cgroup/cpuset", "/dev/cpuset", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// A mounted hierarchy that has the cpuset controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// 1 or 2.
    pub version: u32,
    pub mount: String,
}

impl Hierarchy {
    /// The hierarchy of the cpuset controller; `None` without one, or if this process sees only a part of it (a
    /// container).
    pub fn find(root: &HostRoot) -> Result<Option<Self>, HostError> {
        let (v1, v2) = MOUNTS.split_at(2);
        for &mount in v1 {
            if root.exists(&format!("{mount}/cpuset.cpus")) && root.exists(&format!("{mount}/release_agent"))
            {
                return Ok(Some(Self { version: 1, mount: mount.to_owned() }));
            }
        }
        for &mount in v2 {
            let controllers = root.read_trimmed(&format!("{mount}/cgroup.controllers"))?.unwrap_or_default();
            // Only the root cgroup has no cgroup.type.
            let is_root = !root.exists(&format!("{mount}/cgroup.type"));
            if is_root && controllers.split_whitespace().any(|name| name == "cpuset") {
                return Ok(Some(Self { version: 2, mount: mount.to_owned() }));
            }
        }
        Ok(None)
    }

    /// The folder of the group [`GROUP`].
    pub fn group(&self) -> String {
        format!("{}/{GROUP}", self.mount)
    }

    /// The file of that group that takes the number of a thread.
    fn members_file(&self) -> String {
        let name = if self.version == 1 { "tasks" } else { "cgroup.threads" };
        format!("{}/{name}", self.group())
    }
}

/// CPUs that are shielded now, by a group or by affinity.
pub fn shielded(root: &HostRoot) -> Result<CpuSet, HostError> {
    Ok(by_group(root)?.union(&by_affinity(root)?))
}

fn by_group(root: &HostRoot) -> Result<CpuSet, HostError> {
    let Some(hierarchy) = Hierarchy::find(root)? else { return Ok(CpuSet::default()) };
    Ok(root.read_cpus(&format!("{}/cpuset.cpus", hierarchy.group()))?.unwrap_or_default())
}

fn by_affinity(root: &HostRoot) -> Result<CpuSet, HostError> {
    Ok(root.read_cpus(MARK)?.unwrap_or_default())
}

/// The shielded CPUs that this process could use: by entering the group, or just by setting its affinity.
pub fn open_to_this_process(root: &HostRoot) -> Result<CpuSet, HostError> {
    let by_affinity = by_affinity(root)?;
    let Some(hierarchy) = Hierarchy::find(root)? else { return Ok(by_affinity) };
    let is_open = root.is_writable(&hierarchy.members_file());
    Ok(if is_open { by_group(root)?.union(&by_affinity) } else { by_affinity })
}

/// Pins the calling thread to `cpus`. When a cpuset of the machine below `root` shields them, it enters the group of
/// the shield.
pub fn pin_this_thread(root: &HostRoot, cpus: &CpuSet) -> io::Result<()> {
    match schedule::pin_this_thread(cpus) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && enter(root, cpus)? => {
            schedule::pin_this_thread(cpus)
        }
        other => other,
    }
}

/// Why a thread cannot be pinned to `cpus`, given the kernel's refusal; names the shield if there is one.
pub fn why_not_pinned(root: &HostRoot, cpus: &CpuSet, error: &io::Error) -> String {
    let inside = shielded(root).unwrap_or_default().intersection(cpus);
    match error.kind() {
        io::ErrorKind::PermissionDenied if !inside.is_empty() => format!(
            "CPU {inside} is shielded by another whylate or `whylate treat apply shield`, and this user may \
             not use the shield; wait until the shield is removed, or measure another CPU"
        ),
        io::ErrorKind::InvalidInput => {
            format!(
                "CPU {cpus} is offline, or a cpuset of this process's control group does not allow it ({error})"
            )
        }
        _ => format!("cannot pin a thread to CPU {cpus}: {error}"),
    }
}

/// Brings the calling thread into the group of the shield if all of `cpus` belong to it. Returns whether it did.
///
/// In cgroup v2 a thread can be alone in a group only if its process belongs to the group around it, so the process is
/// moved to the root group first, with all its threads.
///
/// # Errors
/// The kernel's answer when it refuses the move.
fn enter(root: &HostRoot, cpus: &CpuSet) -> io::Result<bool> {
    // Threads enter one at a time: moving the whole process would move out threads that are already in.
    static ENTERING: Mutex<()> = Mutex::new(());
    let shielded = by_group(root).unwrap_or_default();
    if shielded.is_empty() || !cpus.difference(&shielded).is_empty() {
        return Ok(false);
    }
    let Ok(Some(hierarchy)) = Hierarchy::find(root) else { return Ok(false) };
    let _one_at_a_time = ENTERING.lock();
    if hierarchy.version == 2 && group_of_this_process(root).as_deref() != Some("/") {
        write(root, &format!("{}/cgroup.procs", hierarchy.mount), std::process::id())?;
    }
    write(root, &hierarchy.members_file(), schedule::id_of_this_thread())?;
    Ok(true)
}

/// The group of cgroup v2 that the first thread of this process belongs to.
fn group_of_this_process(root: &HostRoot) -> Option<String> {
    let text = root.read("/proc/self/cgroup").ok()??;
    cgroup::group_of(&text, None).map(str::to_owned)
}

fn write(root: &HostRoot, path: &str, number: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(root.path(path))?;
    file.write_all(format!("{number}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_lab::archive;

    fn with_root<T>(text: &str, test: impl Fn(&HostRoot) -> T) -> T {
        let folder = tempfile::tempdir().unwrap();
        archive::unpack(text, folder.path()).unwrap();
        test(&HostRoot::at(folder.path()))
    }

    #[test]
    fn hierarchies_of_both_versions_and_of_containers() {
        let find = |text: &str| with_root(text, |root| Hierarchy::find(root).unwrap());
        let v1 = "== sys/fs/cgroup/cpuset/cpuset.cpus := 0-1\n== sys/fs/cgroup/cpuset/release_agent :=\n";
        let v2 = "== sys/fs/cgroup/cgroup.controllers := cpu cpuset io\n";
        let found = |version, mount: &str| Some(Hierarchy { version, mount: mount.to_owned() });
        assert_eq!(find(v1), found(1, "/sys/fs/cgroup/cpuset"));
        assert_eq!(find(v2), found(2, "/sys/fs/cgroup"));
        assert_eq!(find(&format!("{v2}== sys/fs/cgroup/cgroup.type := domain\n")), None, "a container");
        assert_eq!(find("== sys/fs/cgroup/cgroup.controllers := cpu io\n"), None);
        assert_eq!(find(""), None);
    }

    #[test]
    fn shielded_cpus_are_those_of_the_group() {
        let text = "== sys/fs/cgroup/cgroup.controllers := cpuset\n\
                    == sys/fs/cgroup/whylate-shield/cpuset.cpus := 2-3\n";
        with_root(text, |root| {
            assert_eq!(shielded(root).unwrap().to_string(), "2-3");
            assert!(open_to_this_process(root).unwrap().is_empty(), "there is no file to write to");
        });
        let open = format!("{text}== sys/fs/cgroup/whylate-shield/cgroup.threads :=\n");
        with_root(&open, |root| assert_eq!(open_to_this_process(root).unwrap().to_string(), "2-3"));
        with_root("", |root| assert!(shielded(root).unwrap().is_empty()));
        with_root("== run/whylate-shield.cpus := 1\n", |root| {
            assert_eq!(open_to_this_process(root).unwrap(), shielded(root).unwrap());
            assert_eq!(shielded(root).unwrap().to_string(), "1", "by affinity");
        });
    }

    #[test]
    fn a_refused_cpu_names_the_shield() {
        let why = |text: &str, kind| {
            let cpus: CpuSet = "1".parse().unwrap();
            with_root(text, |root| why_not_pinned(root, &cpus, &io::Error::from(kind)))
        };
        let marked = "== run/whylate-shield.cpus := 1-2\n";
        assert!(why(marked, io::ErrorKind::PermissionDenied).starts_with("CPU 1 is shielded"));
        assert!(why("", io::ErrorKind::PermissionDenied).starts_with("cannot pin a thread to CPU 1: "));
        assert!(why("", io::ErrorKind::InvalidInput).contains("a cpuset"));
    }
}
