//! Which tasks are watched.

use super::Watched;
use std::path::{Path, PathBuf};
use whylate_core::{CpuId, CpuSet};
use whylate_host::HostRoot;
use whylate_host::threads::{self, Stat};

/// Where cgroup v2 is mounted: alone, or together with v1.
const CGROUP_MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// No folder of groups is deeper.
const DEPTH_MAX: usize = 16;

/// Which tasks are watched; those that come later, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskTarget {
    /// Every thread of that name; the kernel keeps 15 bytes of it.
    Name(String),
    /// Every thread of a process, and of those that it starts.
    Process(u32),
    /// Everything in a control group and those below it: its folder in the mounted hierarchy.
    Group(PathBuf),
    /// Every thread with a priority in this range, as tools print priorities.
    Priorities(i32, i32),
    /// What is started during the watch.
    Children,
    /// Threads that are started during the watch and have this name.
    ChildrenNamed(String),
}

impl TaskTarget {
    /// Whether the target has a thread by its name and its priority, if it has it by its place.
    fn includes(&self, known: &Watched) -> bool {
        match self {
            // As for the programs, but not the threads that watch.
            Self::Priorities(least, most) => {
                (*least..=*most).contains(&known.priority) && known.process != std::process::id()
            }
            _ => self.is_named(&known.command),
        }
    }

    /// Whether the target includes threads of that name. Targets without a name include every thread.
    pub(super) fn is_named(&self, command: &str) -> bool {
        match self {
            Self::Name(name) | Self::ChildrenNamed(name) => {
                name.bytes().take(COMMAND_MAX).eq(command.bytes())
            }
            _ => true,
        }
    }
}

/// The bytes of a thread's name that the kernel keeps.
const COMMAND_MAX: usize = 15;

/// A thread that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub thread: u32,
    pub known: Watched,
}

/// The threads of a target that are there now.
pub(super) fn chosen(host: &HostRoot, target: &TaskTarget) -> Vec<Chosen> {
    let threads: Vec<(u32, u32)> = match target {
        TaskTarget::Process(pid) => family(host, *pid),
        TaskTarget::Group(folder) => {
            let mut processes = Vec::new();
            processes_of(host, folder, 0, &mut processes);
            processes.into_iter().flat_map(|pid| threads_of(host, pid)).collect()
        }
        TaskTarget::Name(_) | TaskTarget::Priorities(..) => everyone(host).collect(),
        TaskTarget::Children | TaskTarget::ChildrenNamed(_) => Vec::new(),
    };
    let known = threads.into_iter().filter_map(|(pid, tid)| known(host, pid, tid));
    known.filter(|one| target.includes(&one.known)).collect()
}

/// A thread that is there now: where it may run.
#[derive(Clone, Debug)]
pub struct Present {
    pub cpus: CpuSet,
    pub is_real_time: bool,
}

/// The threads of a target that are there now.
pub fn present(host: &HostRoot, target: &TaskTarget) -> Vec<Present> {
    let read = |one: Chosen| {
        let status = host.read(&format!("/proc/{}/status", one.thread)).ok()??;
        let cpus = threads::allowed_cpus(&status)?;
        Some(Present { cpus, is_real_time: one.known.priority > 0 })
    };
    chosen(host, target).into_iter().filter_map(read).collect()
}

/// The process and thread ids of all threads.
fn everyone(host: &HostRoot) -> impl Iterator<Item = (u32, u32)> {
    let processes = host.list_numbered("/proc", "").unwrap_or_default();
    processes.into_iter().flat_map(|pid| threads_of(host, pid))
}

fn threads_of(host: &HostRoot, pid: u32) -> Vec<(u32, u32)> {
    let threads = host.list_numbered(&format!("/proc/{pid}/task"), "").unwrap_or_default();
    threads.into_iter().map(|tid| (pid, tid)).collect()
}

/// Those of a process and of all processes that it has started, such as a server with one process for each client.
fn family(host: &HostRoot, pid: u32) -> Vec<(u32, u32)> {
    let (mut found, mut processes, mut nth) = (Vec::new(), vec![pid], 0);
    while let Some(process) = processes.get(nth).copied() {
        nth += 1;
        let threads = threads_of(host, process);
        for (_, thread) in &threads {
            let children = host.read(&format!("/proc/{process}/task/{thread}/children"));
            let children = children.ok().flatten().unwrap_or_default();
            let children = children.split_whitespace().filter_map(|child| child.parse().ok());
            children.for_each(|child| {
                if !processes.contains(&child) {
                    processes.push(child);
                }
            });
        }
        found.extend(threads);
    }
    found
}

pub(super) fn known(host: &HostRoot, pid: u32, tid: u32) -> Option<Chosen> {
    let text = threads::stat(host, pid, tid)?;
    let stat = Stat::parse(&text)?;
    // For ordinary tasks the nice value + 20, for others -1 - the priority.
    let priority: i32 = stat.field(18)?.parse().ok()?;
    let known = Watched {
        process: pid,
        command: stat.name.to_owned(),
        priority: -1 - priority,
        ..Watched::default()
    };
    Some(Chosen { thread: tid, known })
}

/// The CPU on which a thread runs, or ran last.
pub(super) fn cpu(host: &HostRoot, pid: u32, tid: u32) -> Option<CpuId> {
    let text = threads::stat(host, pid, tid)?;
    Some(CpuId(Stat::parse(&text)?.field(39)?.parse().ok()?))
}

/// Whether a thread has a CPU or waits for one.
pub(super) fn is_runnable(host: &HostRoot, pid: u32, tid: u32) -> bool {
    let text = threads::stat(host, pid, tid).unwrap_or_default();
    Stat::parse(&text).is_some_and(|stat| stat.is_runnable())
}

fn processes_of(host: &HostRoot, folder: &Path, depth: usize, found: &mut Vec<u32>) {
    let path = folder.display();
    let text = host.read(&format!("{path}/cgroup.procs")).ok().flatten().unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    if depth < DEPTH_MAX {
        for name in folders_in(host, folder) {
            processes_of(host, &folder.join(name), depth + 1, found);
        }
    }
}

/// The name of the thread that holds a lock for which `process` waits; `None` if there is no such thread. A lock shared
/// between processes holds its owner's id in a pid namespace; only an id of the kernel's own namespace identifies the thread.
pub(super) fn owner(host: &HostRoot, process: u32, thread: u32, is_shared: bool) -> Option<String> {
    let name = |folder: &str| host.read_trimmed(&format!("{folder}/comm")).ok().flatten();
    let own = name(&format!("/proc/{process}/task/{thread}"));
    let is_of_kernel = |pid: u32| ids(host, pid).len() == 1;
    let is_known = || is_shared && is_of_kernel(process) && is_of_kernel(thread);
    own.or_else(|| is_known().then(|| name(&format!("/proc/{thread}")))?)
}

/// The ids of a process, from that in the outermost pid namespace to its own; empty if it has ended.
pub(super) fn ids(host: &HostRoot, process: u32) -> Vec<u32> {
    let status = host.read(&format!("/proc/{process}/status")).ok().flatten().unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    ids.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

fn folders_in(host: &HostRoot, folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(host.path(&folder.display().to_string())) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The folder of a control group, given as a path below the mounted hierarchy or in full. Or the folder of a systemd unit or
/// container, given by its name or by a unique part of it. `None` if there is no such group.
pub fn unit_group(host: &HostRoot, name: &str) -> Option<PathBuf> {
    let is_group = |folder: &Path| {
        host.read(&format!("{}/cgroup.procs", folder.display())).is_ok_and(|text| text.is_some())
    };
    let direct = PathBuf::from(name);
    if direct.is_absolute() && direct.starts_with("/sys/fs/cgroup") && is_group(&direct) {
        return Some(direct);
    }
    let below = name.trim_start_matches('/');
    for mount in CGROUP_MOUNTS {
        let folder = Path::new(mount).join(below);
        if !below.is_empty() && is_group(&folder) {
            return Some(folder);
        }
    }
    CGROUP_MOUNTS.iter().find_map(|mount| named(host, Path::new(mount), below, 0))
}

fn named(host: &HostRoot, folder: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let folders = folders_in(host, folder);
    // A container's folder has its id in its name: `docker-4f….scope`.
    let is_it = |found: &&String| {
        *found == name || (name.len() >= 12 && found.contains(name)) || **found == format!("{name}.service")
    };
    if let Some(found) = folders.iter().find(is_it) {
        return Some(folder.join(found));
    }
    let deeper = folders.iter().filter(|_| depth < DEPTH_MAX);
    deeper.into_iter().find_map(|below| named(host, &folder.join(below), name, depth + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let host = HostRoot::at(folder.path());
        (folder, host)
    }

    fn stat(pid: u32, name: &str, priority: i32) -> String {
        format!("{pid} ({name}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 {priority} 0 1 0")
    }

    #[test]
    fn groups_are_found_by_path_name_and_id_with_all_below_them() {
        let files = [
            ("/sys/fs/cgroup/cgroup.procs", "1\n"),
            ("/sys/fs/cgroup/system.slice/cgroup.procs", ""),
            ("/sys/fs/cgroup/system.slice/plc.service/cgroup.procs", "7\n"),
            ("/sys/fs/cgroup/system.slice/plc.service/io/cgroup.procs", "9\n"),
            ("/sys/fs/cgroup/system.slice/docker-4f5e6d7c8b9a.scope/cgroup.procs", "11\n"),
            ("/proc/7/task/7/stat", &stat(7, "plc", -81)),
            ("/proc/7/task/8/stat", &stat(8, "plc io", 20)),
            ("/proc/9/task/9/stat", &stat(9, "logger", 29)),
        ];
        let (_folder, host) = host(&files);
        let plc = PathBuf::from("/sys/fs/cgroup/system.slice/plc.service");
        for name in
            ["plc.service", "plc", "/system.slice/plc.service", "/sys/fs/cgroup/system.slice/plc.service"]
        {
            assert_eq!(unit_group(&host, name).as_ref(), Some(&plc), "{name}");
        }
        assert!(unit_group(&host, "4f5e6d7c8b9a").unwrap().ends_with("docker-4f5e6d7c8b9a.scope"));
        assert_eq!(unit_group(&host, "nothing"), None);
        let found = chosen(&host, &TaskTarget::Group(plc));
        let named: Vec<_> =
            found.iter().map(|it| (it.thread, it.known.command.as_str(), it.known.priority)).collect();
        assert_eq!(named, [(7, "plc", 80), (8, "plc io", -21), (9, "logger", -30)]);
    }

    #[test]
    fn the_owner_of_a_shared_lock_may_be_of_another_process_but_not_of_another_namespace() {
        let files = [
            ("/proc/7/task/8/comm", "audio\n"),
            ("/proc/7/status", "Name:\taudio\nNSpid:\t7\n"),
            ("/proc/9/comm", "logger\n"),
            ("/proc/9/status", "NSpid:\t9\n"),
            ("/proc/11/comm", "inside\n"),
            ("/proc/11/status", "NSpid:\t11\t1\n"),
        ];
        let (_folder, host) = host(&files);
        let of = |process, thread, is_shared| owner(&host, process, thread, is_shared);
        assert_eq!(of(7, 8, false).as_deref(), Some("audio"));
        assert_eq!((of(7, 9, true).as_deref(), of(7, 9, false)), (Some("logger"), None));
        // In the container, 9 is another thread; outside it, 11 is another thread.
        assert_eq!((of(11, 9, true), of(7, 11, true), of(7, 12, true)), (None, None, None));
    }

    #[test]
    fn a_name_is_that_of_a_thread_and_a_process_has_all_its_threads() {
        let files = [
            ("/proc/7/task/7/stat", stat(7, "audio", 20)),
            ("/proc/7/task/7/children", "12 \n".to_owned()),
            ("/proc/12/task/12/stat", stat(12, "audio client", 20)),
            ("/proc/12/task/12/children", "7 13\n".to_owned()),
            ("/proc/13/task/13/stat", stat(13, "codec", 20)),
            ("/proc/7/task/8/stat", stat(8, "a very long nam", 20)),
            ("/proc/9/task/9/stat", stat(9, "audio", 20)),
        ];
        let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
        let (_folder, host) = host(&files);
        let threads =
            |target: TaskTarget| -> Vec<u32> { chosen(&host, &target).iter().map(|it| it.thread).collect() };
        assert_eq!(threads(TaskTarget::Name("audio".to_owned())), [7, 9]);
        assert_eq!(threads(TaskTarget::Name("a very long name".to_owned())), [8]);
        assert_eq!(threads(TaskTarget::Process(7)), [7, 8, 12, 13], "and what it started");
        assert_eq!(threads(TaskTarget::Process(9)), [9]);
        assert!(threads(TaskTarget::Children).is_empty());
        assert!(threads(TaskTarget::ChildrenNamed("audio".to_owned())).is_empty(), "they were there before");
        let of = |least, most| chosen(&host, &TaskTarget::Priorities(least, most)).len();
        assert_eq!((of(-21, -21), of(1, 100)), (5, 0));
    }
}
