//! What a treatment does to the machine, as data: a list of changes, each of one value at one place.
//!
//! A planner makes such a list and writes nothing. Writing, verifying, journaling and undoing work the same way for
//! every change, whichever treatment wants it; a [`Guard`](crate::Guard) does them.

use crate::place::FoundSetting;
use crate::reading::Reading;
use serde::{Deserialize, Serialize};
use std::fmt;
use whylate_host::HostRoot;

/// One value to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub target: Target,
    /// The value to set, in the normal form of the target (see [`Target`] and [`Reading`]).
    pub new: String,
    /// What the value does, in a few words: `CPU 3 takes no movable interrupts`.
    pub effect: String,
    /// Whether the treatment is useless without it: then everything is undone if it fails. Otherwise the failure
    /// becomes a warning.
    pub required: bool,
    #[serde(default)]
    pub undoing: Undoing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undoing {
    /// The former value is written, unless the setting was changed by something else since.
    #[default]
    IfUnchanged,
    /// The former value is written whatever is found, and is recorded even if the new value is there already: the
    /// kernel changes this one along with something that the treatment changes (affinities along with cpusets).
    Always,
    /// Nothing: the value goes away with the folder that the treatment made before it.
    WithFolder,
    /// The former value is written after those of the settings that changed it along with them.
    Moved,
}

impl Change {
    /// A change without which the treatment is useless.
    pub fn required(target: Target, new: impl Into<String>, effect: impl Into<String>) -> Self {
        Self { target, new: new.into(), effect: effect.into(), required: true, undoing: Undoing::IfUnchanged }
    }

    /// A change that may fail: the treatment is less thorough without it.
    pub fn optional(target: Target, new: impl Into<String>, effect: impl Into<String>) -> Self {
        Self { required: false, ..Self::required(target, new, effect) }
    }

    /// Whether the machine below `root` has this value already; also true for a task that has ended.
    pub fn is_so(&self, root: &HostRoot) -> bool {
        matches!(self.target.read(root), Ok(FoundSetting::Ended))
            || self.target.now(root).is_some_and(|now| self.target.is_reached(&self.new, &now))
    }

    /// The same change, undone in that way.
    #[must_use]
    pub fn undone(mut self, undoing: Undoing) -> Self {
        self.undoing = undoing;
        self
    }
}

/// What the driver of a network interface can be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EthernetSetting {
    /// When it interrupts.
    Coalescing,
    /// Whether its link sleeps between packets (Energy-Efficient Ethernet).
    LinkSleep,
}

/// A place that holds one value. Paths are as on the machine itself; a [`HostRoot`] says
/// below which folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Target {
    /// A file with one value: /sys, /proc/sys, cgroupfs, resctrl, /run. A reboot undoes all of them.
    File {
        path: String,
        #[serde(default)]
        reading: Reading,
    },
    /// A folder, which is a group in cgroupfs and resctrl. Its values are [`Target::PRESENT`] and [`Target::ABSENT`].
    ///
    /// A folder that was made is removed on undo; tasks that are still in it then (children of moved ones) go to the
    /// group around it.
    Directory { path: String },
    /// The CPUs that one thread may use; its value is a CPU list. If the thread has ended, undoing does not touch
    /// another thread with its number.
    Affinity { task: Task },
    /// How one thread is scheduled; its value is its policy and priority, or nice value: `fifo 50`, `other 0`.
    Scheduling { task: Task },
    /// The group that one task belongs to; its value is the group's path below `mount`, beginning with `/`.
    ///
    /// Moving a task into a cpuset changes its affinity, and moving it back does not restore it. So a planner that
    /// moves tasks puts a [`Target::Affinity`] for each *before* its membership; undo works backwards and restores the
    /// affinity last.
    Membership {
        /// The task. In cgroup v2 all threads of its process move together.
        task: Task,
        /// What kind of groups they are.
        hierarchy: Hierarchy,
        /// Where they are mounted: `/sys/fs/cgroup/cpuset`.
        mount: String,
    },
    /// A file system of the kernel's own (`tracefs`, `resctrl`, `cgroup` with an option). On undo it is unmounted if
    /// it was not mounted before. Its values are [`Target::PRESENT`] and [`Target::ABSENT`].
    Mount {
        /// The mount point: an existing folder.
        path: String,
        filesystem: String,
        /// Options of the mount: `cpuset`; mostly empty.
        #[serde(default)]
        options: String,
    },
    /// The clock that a device of NVIDIA is locked to, through its `nvidia-smi`; its value is `MIN,MAX` in MHz, or
    /// `unlocked`. Its driver does not report whether another program had locked it.
    GpuClock {
        /// PCI address of the device: `0000:01:00.0`.
        address: String,
    },
    /// What the driver of a network interface was set to; its value is a list of `rx-usecs 8 rx-frames 0 …`, or `on`
    /// and `off`.
    Ethernet { interface: String, setting: EthernetSetting },
    /// Whether a process is stopped (SIGSTOP); its values are [`Target::STOPPED`] and [`Target::RUNNING`].
    Stopped { task: Task },
}

impl Target {
    /// Value of a folder or mount that is there.
    pub const PRESENT: &str = "present";
    /// Value of an absent folder or mount, or of an absent file with [`Reading::Text`].
    pub const ABSENT: &str = "absent";
    /// Value of a process that is stopped.
    pub const STOPPED: &str = "stopped";
    /// Value of a process that is not stopped.
    pub const RUNNING: &str = "running";

    /// A file whose whole text is its value.
    pub fn file(path: impl Into<String>) -> Self {
        Self::File { path: path.into(), reading: Reading::Whole }
    }

    /// A file whose value has the given form.
    pub fn file_with(path: impl Into<String>, reading: Reading) -> Self {
        Self::File { path: path.into(), reading }
    }

    /// Its value now, if it has one.
    pub fn now(&self, root: &HostRoot) -> Option<String> {
        match self.read(root) {
            Ok(FoundSetting::Value(value)) => Some(self.normal(&value)),
            _ => None,
        }
    }

    /// The task that it is about.
    pub fn task(&self) -> Option<&Task> {
        match self {
            Self::File { .. }
            | Self::Directory { .. }
            | Self::Mount { .. }
            | Self::GpuClock { .. }
            | Self::Ethernet { .. } => None,
            Self::Affinity { task }
            | Self::Scheduling { task }
            | Self::Membership { task, .. }
            | Self::Stopped { task } => Some(task),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } | Self::Directory { path } => f.write_str(path),
            Self::Mount { path, filesystem, .. } => write!(f, "{filesystem} at {path}"),
            Self::GpuClock { address } => write!(f, "clock of graphics device {address}"),
            Self::Ethernet { interface, setting: EthernetSetting::Coalescing } => {
                write!(f, "interrupt coalescing of {interface}")
            }
            Self::Ethernet { interface, setting: EthernetSetting::LinkSleep } => {
                write!(f, "Energy-Efficient Ethernet of {interface}")
            }
            Self::Affinity { task } => write!(f, "affinity of {task}"),
            Self::Scheduling { task } => write!(f, "scheduling of {task}"),
            Self::Membership { task, mount, .. } => write!(f, "group of {task} in {mount}"),
            Self::Stopped { task } => write!(f, "state of {task}"),
        }
    }
}

/// Kinds of groups that tasks belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hierarchy {
    /// A hierarchy of cgroup v1, by one of its controllers: `cpuset`. Threads move one by one.
    CgroupV1(String),
    /// cgroup v2: a process moves with all its threads.
    CgroupV2,
    /// Groups of the resource control file system. Threads move one by one.
    Resctrl,
}

impl Hierarchy {
    /// The file of a group that takes the number of a task to be moved there.
    pub fn tasks_file(&self) -> &'static str {
        match self {
            Self::CgroupV1(_) | Self::Resctrl => "tasks",
            Self::CgroupV2 => "cgroup.procs",
        }
    }
}

/// One thread, identified so that another thread that gets its number later is not mistaken for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    pub pid: u32,
    /// Its own number; equal to `pid` for the first thread of a process.
    pub tid: u32,
    /// When it started, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_ticks: u64,
    pub name: String,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.tid)
    }
}
