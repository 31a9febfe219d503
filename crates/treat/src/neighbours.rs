//! What a change moves in addition to its own file, found by walking the settings before and after it.
//!
//! The kernel zeroes `vm.dirty_ratio` when `vm.dirty_bytes` is written, and couples many others. Which ones it couples
//! is not documented, so every writable sysctl is read, and the files in the same folder as the one that is written.

use crate::change::Target;
use crate::claims;
use crate::kinds::refused::refusal;
use crate::reading::Reading;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use whylate_host::HostRoot;

/// Settings by their path, each with the text that was read.
pub(crate) type Walk = BTreeMap<String, String>;

const SYSCTLS: &str = "/proc/sys";
const NETWORK: &str = "/proc/sys/net";
/// Folders whose files belong together, with those below them.
const SUBSYSTEMS: [&str; 3] = ["/sys/kernel/mm", "/sys/devices/system/cpu", "/sys/devices/virtual/workqueue"];
/// Memory that comes or goes moves its reserves.
const MEMORY: [&str; 4] =
    ["/proc/sys/vm/", SUBSYSTEMS[0], "/sys/devices/system/memory/", "/sys/devices/system/node/"];
/// A disk and what is below it: the settings of its queue and of its scheduler, which come and go with it.
const DISK: &str = "/block/";
const DISK_DEPTH: usize = 2;
/// Below these no neighbours are looked for: groups and trace buffers are whylate's own, and reading some files takes
/// something away or waits.
const ALONE: [&str; 4] = ["/sys/fs", "/sys/kernel/tracing", "/sys/kernel/debug", "/sys/kernel/security"];
/// Files of sysfs that are not settings: the memory and registers of devices.
const OF_DEVICES: [&str; 3] = ["config", "rom", "vpd"];
/// How many interfaces are walked if no setting of the network is changed: each has some hundred files.
const INTERFACES_MAX: usize = 64;
const DEPTH_MAX: usize = 8;
const TEXT_MAX: u64 = 64 << 10;

/// Which folders are walked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    folders: BTreeSet<String>,
    has_network: bool,
}

impl Scope {
    /// The neighbourhood of what is written; empty if nothing of it is a setting of the kernel.
    pub(crate) fn of<'a>(targets: impl IntoIterator<Item = &'a Target>, root: &HostRoot) -> Self {
        let mut scope = Self::default();
        for path in targets.into_iter().filter_map(|target| of_kernel(target, root)) {
            scope.has_network |= path.starts_with(NETWORK) || path.contains("/net/");
            scope.folders.insert(SYSCTLS.to_owned());
            scope.folders.insert(area(&path));
        }
        scope
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// Reads every setting in it that holds a value and can be written.
    pub(crate) fn walk(&self, root: &HostRoot) -> Walk {
        let mut found = Walk::new();
        let is_below = |folder: &str| folder == SYSCTLS || !folder.starts_with(SYSCTLS);
        for folder in self.folders.iter().filter(|folder| is_below(folder)) {
            let is_whole = folder == SYSCTLS || SUBSYSTEMS.contains(&folder.as_str());
            let depth = if is_whole {
                DEPTH_MAX
            } else if is_disk(folder) {
                DISK_DEPTH
            } else {
                0
            };
            self.read_folder(root, folder, depth, &mut found);
        }
        found
    }

    fn read_folder(&self, root: &HostRoot, folder: &str, depth: usize, found: &mut Walk) {
        let Ok(entries) = fs::read_dir(root.path(folder)) else { return };
        let entries: Vec<fs::DirEntry> = entries.flatten().collect();
        let is_per_interface = folder.starts_with(NETWORK) && entries.len() > INTERFACES_MAX;
        for entry in entries {
            let Ok(kind) = entry.file_type() else { continue };
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            // Opening it mounts a file system.
            if path == "/proc/sys/fs/binfmt_misc" {
                continue;
            }
            if kind.is_dir() && depth > 0 && (self.has_network || !is_per_interface) {
                self.read_folder(root, &path, depth - 1, found);
            } else if kind.is_file()
                && let Some(text) = value(root, &path)
            {
                found.insert(path, text);
            }
        }
    }
}

/// The text of a setting that can be read and written, without those that act, change by themselves or are secret: the
/// journal holds nothing that no treatment may change.
fn value(root: &HostRoot, path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    if refusal(path, "").is_some() || OF_DEVICES.contains(&name) {
        return None;
    }
    let file = root.path(path);
    let about = fs::symlink_metadata(&file).ok()?;
    // Text of sysfs has the size of a page; anything else are registers, or the memory of a device.
    let is_text = !root.is_real() || !path.starts_with("/sys/") || about.size() == 4096;
    if about.mode() & 0o200 == 0 || about.mode() & 0o400 == 0 || !is_text {
        return None;
    }
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(file).ok()?;
    let mut bytes = Vec::new();
    file.take(TEXT_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|text| claims::is_text(text))
}

/// The path without links of a setting of the kernel whose neighbours may move; `None` for any other target.
pub(crate) fn of_kernel(target: &Target, root: &HostRoot) -> Option<String> {
    let Target::File { path, reading } = target else { return None };
    let of_kernel = path.starts_with("/sys/") || path.starts_with(SYSCTLS);
    if !of_kernel || *reading == Reading::Text || ALONE.iter().any(|alone| path.starts_with(alone)) {
        return None;
    }
    // A pipe of a test, or a device, is written and read one value at a time.
    if fs::metadata(root.path(path)).is_ok_and(|about| !about.is_file()) {
        return None;
    }
    let own = without_links(path, root).unwrap_or_else(|| path.clone());
    Some(other_name(&own).and_then(|other| without_links(&other, root)).unwrap_or(own))
}

/// The real path of a file; `None` if it does not exist.
fn without_links(path: &str, root: &HostRoot) -> Option<String> {
    let top = fs::canonicalize(root.path("/")).unwrap_or_default();
    let real = fs::canonicalize(root.path(path)).ok()?;
    Some(format!("/{}", real.strip_prefix(top).ok()?.to_str()?))
}

/// The name that is used for a value that the kernel has under two names.
fn other_name(path: &str) -> Option<String> {
    let disk = || path.strip_prefix("/sys/devices/virtual/bdi/")?.strip_suffix("/read_ahead_kb");
    if let Some(number) = disk() {
        return Some(format!("/sys/dev/block/{number}/queue/read_ahead_kb"));
    }
    let of_kernel = path.strip_prefix("/sys/module/kernel/parameters/");
    let of_kernel = of_kernel.map(|name| format!("/proc/sys/kernel/{name}"));
    let is_buckets = path == "/sys/module/nf_conntrack/parameters/hashsize";
    of_kernel.or_else(|| is_buckets.then(|| "/proc/sys/net/netfilter/nf_conntrack_buckets".to_owned()))
}

/// What a setting belongs to: settings of one area move together.
pub(crate) fn area(path: &str) -> String {
    if let Some(rest) = path.strip_prefix("/proc/sys/") {
        return format!("{SYSCTLS}/{}", rest.split('/').next().unwrap_or_default());
    }
    let known = SUBSYSTEMS.iter().find(|folder| Path::new(path).starts_with(folder));
    let around = path.rsplit_once('/').map_or("/", |(around, _)| around);
    let disk = path.rfind(DISK).map(|at| at + DISK.len());
    let disk = disk.and_then(|name| Some(&path[..name + path[name..].find('/')?]));
    known.map_or(disk.unwrap_or(around), |folder| folder).to_owned()
}

fn is_disk(folder: &str) -> bool {
    folder.rsplit_once(DISK).is_some_and(|(_, name)| !name.contains('/'))
}

/// Whether a change of `own` is known to be able to move `other`.
pub(crate) fn is_near(own: &str, other: &str) -> bool {
    let memory = |path: &str| MEMORY.iter().any(|folder| path.starts_with(folder));
    area(own) == area(other) || (memory(own) && memory(other))
}

/// A setting as a target, its form derived from its content.
pub(crate) fn target(path: &str, text: &str) -> Target {
    let is_choice = text.split_whitespace().any(|word| word.starts_with('[') && word.ends_with(']'));
    let reading = if is_choice {
        Reading::Bracketed
    } else if text.trim().contains(char::is_whitespace) {
        Reading::Words
    } else {
        Reading::Whole
    };
    Target::File { path: path.to_owned(), reading }
}

/// Whether two texts of a setting are the same value.
pub(crate) fn is_same(path: &str, one: &str, other: &str) -> bool {
    let target = target(path, one);
    target.normal(one) == target.normal(other)
}

/// The setting whose write restores the value 0 of this one, which the kernel does not accept.
pub(crate) fn replaced_by(path: &str) -> Option<&'static str> {
    match path {
        "/proc/sys/vm/dirty_bytes" => Some("/proc/sys/vm/dirty_ratio"),
        "/proc/sys/vm/dirty_background_bytes" => Some("/proc/sys/vm/dirty_background_ratio"),
        _ => None,
    }
}

/// A setting that is known to change with this one, and does not always accept its former value.
pub(crate) fn moved_by(path: &str) -> Option<String> {
    const WEIGHTS: &str = "/sys/kernel/mm/mempolicy/weighted_interleave/";
    path.strip_prefix(WEIGHTS).filter(|name| name.starts_with("node")).map(|_| format!("{WEIGHTS}auto"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_goes_offline_moves_the_reserves() {
        let [block, reserve] =
            ["/sys/devices/system/memory/memory2/online", "/proc/sys/vm/user_reserve_kbytes"];
        assert!(
            is_near(block, reserve)
                && is_near(block, "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
        );
        assert!(!is_near(block, "/proc/sys/kernel/pid_max"));
    }

    #[test]
    fn the_settings_of_a_scheduler_belong_to_the_queue_of_its_disk() {
        let [scheduler, expire] =
            ["scheduler", "iosched/read_expire"].map(|it| format!("/sys/devices/x/block/vda/queue/{it}"));
        assert!(is_near(&scheduler, &expire) && is_near(&expire, &scheduler));
        assert!(!is_near("/sys/devices/x/block/vdb/queue/scheduler", &expire));
        let folder = tempfile::tempdir().unwrap();
        let root = HostRoot::at(folder.path());
        for path in [&scheduler, &expire] {
            fs::create_dir_all(root.path(path).parent().unwrap()).unwrap();
            fs::write(root.path(path), "1\n").unwrap();
        }
        let walk = Scope::of([&Target::file(scheduler.as_str())], &root).walk(&root);
        assert_eq!(walk.into_keys().collect::<BTreeSet<_>>(), BTreeSet::from([scheduler.clone(), expire]));
        // Also what is not in the queue: `cache_type` moves `write_cache`.
        assert!(is_near("/sys/devices/x/block/vda/cache_type", &scheduler));
    }

    #[test]
    fn a_value_with_two_names_is_one_setting() {
        let folder = tempfile::tempdir().unwrap();
        let root = HostRoot::at(folder.path());
        let names = [
            ("/sys/dev/block/254:0/queue/read_ahead_kb", "/sys/devices/virtual/bdi/254:0/read_ahead_kb"),
            ("/proc/sys/kernel/panic", "/sys/module/kernel/parameters/panic"),
            ("/proc/sys/net/netfilter/nf_conntrack_buckets", "/sys/module/nf_conntrack/parameters/hashsize"),
        ];
        for (one, other) in names {
            let own = |path: &str| of_kernel(&Target::file(path), &root).unwrap();
            fs::create_dir_all(root.path(other).parent().unwrap()).unwrap();
            fs::write(root.path(other), "1\n").unwrap();
            assert_eq!(own(other), other, "it has the other name alone");
            fs::create_dir_all(root.path(one).parent().unwrap()).unwrap();
            fs::write(root.path(one), "1\n").unwrap();
            assert_eq!((own(one), own(other)), (one.to_owned(), one.to_owned()));
            assert_eq!(Scope::of([&Target::file(other)], &root), Scope::of([&Target::file(one)], &root));
        }
        assert_eq!(other_name("/sys/devices/virtual/bdi/254:0/max_ratio"), None);
    }
}
