//! Reading and writing the value at one place: the only code of this crate that changes the machine.

use crate::change::{Hierarchy, Target, Task};
use crate::error::TreatError;
use crate::ethernet;
use crate::last_words;
use crate::nvidia;
use crate::priority;
use crate::reading::Reading;
use crate::whole_file;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Signal};
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};
use whylate_core::CpuSet;
use whylate_host::{HostRoot, cgroup};
use whylate_sys::schedule;

/// How long a group that tasks are leaving may stay busy.
const REMOVE_WITHIN: Duration = Duration::from_secs(2);

/// How long a signal may take to show.
const SIGNAL_WITHIN: Duration = Duration::from_secs(2);

/// How long the kernel may take to give tasks back the CPUs of a group that was removed.
const CPUS_BACK_WITHIN: Duration = Duration::from_secs(2);

/// How long affinities that the kernel refuses are tried again. The time counts for all of them together: what the
/// first one waited for is there for the next one.
#[derive(Debug, Default)]
pub(crate) struct Patience(Option<Instant>);

impl Patience {
    /// From the first refusal on.
    fn is_over(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() >= CPUS_BACK_WITHIN
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundSetting {
    /// A value; of a file the whole text.
    Value(String),
    /// No such file, or the device behind it is gone.
    Nothing,
    Ended,
}

impl Target {
    /// The normal form of a value that was read.
    pub(crate) fn normal(&self, value: &str) -> String {
        match self {
            Self::File { reading, .. } => reading.normal(value),
            Self::Affinity { .. } => Reading::CpuList.normal(value),
            _ => value.to_owned(),
        }
    }

    /// Whether `found` (normal) is the result of setting `new`.
    pub(crate) fn is_reached(&self, new: &str, found: &str) -> bool {
        match self {
            Self::File { reading, .. } => reading.is_reached(new, found),
            Self::Affinity { .. } => Reading::CpuList.is_reached(new, found),
            _ => new == found,
        }
    }

    pub(crate) fn read(&self, root: &HostRoot) -> Result<FoundSetting, TreatError> {
        if self.task().is_some_and(|task| !task.is_alive(root)) {
            return Ok(FoundSetting::Ended);
        }
        let value_or_ended = |value: Option<String>| value.map_or(FoundSetting::Ended, FoundSetting::Value);
        match self {
            Self::File { path, reading } => self.read_file(root, path, *reading),
            Self::Directory { path } => {
                let is_there = root.path(path).is_dir();
                Ok(FoundSetting::Value(if is_there { Self::PRESENT } else { Self::ABSENT }.to_owned()))
            }
            Self::Mount { path, filesystem, .. } => {
                let is_there = is_mounted(root, path, filesystem);
                Ok(FoundSetting::Value(if is_there { Self::PRESENT } else { Self::ABSENT }.to_owned()))
            }
            Self::GpuClock { address } => nvidia::locked(root, address)
                .map(FoundSetting::Value)
                .map_err(|source| TreatError::Read { target: self.to_string(), source }),
            // It may be unplugged meanwhile.
            Self::Ethernet { interface, setting } => match ethernet::read(interface, *setting) {
                Ok(value) => Ok(FoundSetting::Value(value)),
                Err(error) if is_absence(&error) => Ok(FoundSetting::Nothing),
                Err(source) => Err(TreatError::Read { target: self.to_string(), source }),
            },
            Self::Affinity { task } => Ok(value_or_ended(task.affinity(root).map(|cpus| cpus.to_string()))),
            Self::Scheduling { task } => Ok(value_or_ended(priority::read(task, root))),
            Self::Membership { task, hierarchy, .. } => {
                Ok(value_or_ended(group_of(task, hierarchy, root, &self.to_string())?))
            }
            Self::Stopped { task } => Ok(value_or_ended(
                task.state(root)
                    .map(|state| if state == 'T' { Self::STOPPED } else { Self::RUNNING }.to_owned()),
            )),
        }
    }

    fn read_file(&self, root: &HostRoot, path: &str, reading: Reading) -> Result<FoundSetting, TreatError> {
        match fs::read(root.path(path)) {
            Ok(bytes) => Ok(FoundSetting::Value(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if is_absence(&error) && reading == Reading::Text => {
                Ok(FoundSetting::Value(Self::ABSENT.to_owned()))
            }
            Err(error) if is_absence(&error) => Ok(FoundSetting::Nothing),
            Err(source) => Err(TreatError::Read { target: self.to_string(), source }),
        }
    }

    /// Sets a value in the normal form.
    pub(crate) fn write(&self, root: &HostRoot, normal: &str) -> Result<(), TreatError> {
        let text = match self {
            Self::File { reading, .. } => reading.written(normal),
            _ => normal.to_owned(),
        };
        self.write_text(root, &text)
    }

    /// Restores what was read before, in the form in which it was read.
    pub(crate) fn restore(
        &self,
        root: &HostRoot,
        read: &str,
        patience: &mut Patience,
    ) -> Result<(), TreatError> {
        loop {
            match self.restore_at_once(root, read) {
                // After a group was removed, or a CPU came back, the kernel gives tasks their CPUs back with a delay.
                Err(TreatError::Write { source, .. })
                    if matches!(self, Self::Affinity { .. })
                        && source.kind() == io::ErrorKind::InvalidInput
                        && !patience.is_over() =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                outcome => return outcome,
            }
        }
    }

    /// The same, tried once.
    pub(crate) fn restore_at_once(&self, root: &HostRoot, read: &str) -> Result<(), TreatError> {
        let Self::File { path, reading } = self else { return self.write_text(root, read) };
        let text = reading.restoring(read);
        if self.is_on_disk(root) {
            return self.write_text(root, &text);
        }
        // The kernel ignores an empty write.
        self.write_text(root, if text.is_empty() { "\n" } else { &text })?;
        // A pipe of a test would wait.
        if !fs::metadata(root.path(path)).is_ok_and(|about| about.is_file()) {
            return Ok(());
        }
        match self.read(root) {
            // Some files keep the end of the line as a part of the value.
            Ok(FoundSetting::Value(now)) if now != read && now.trim_end() == read.trim_end() => {
                self.write_text(root, text.trim_end())
            }
            _ => Ok(()),
        }
    }

    /// Whether the kernel may give tasks other CPUs a moment after this was undone.
    pub(crate) fn gives_cpus_back(&self) -> bool {
        match self {
            Self::Directory { .. } => true,
            Self::File { path, .. } => path.ends_with("/online"),
            _ => false,
        }
    }

    fn write_text(&self, root: &HostRoot, text: &str) -> Result<(), TreatError> {
        let is_of_kernel = matches!(self, Self::Mount { .. } | Self::Ethernet { .. });
        if (is_of_kernel || self.task().is_some()) && !root.is_real() {
            return Err(TreatError::NotThisMachine { target: self.to_string() });
        }
        let _writing = last_words::writing();
        let outcome = match self {
            Self::File { path, .. } if self.is_on_disk(root) => write_whole(&root.path(path), text),
            Self::File { path, .. } => write_file(root, path, text),
            Self::Directory { path } if text == Self::PRESENT => fs::create_dir(root.path(path)),
            Self::Directory { path } => remove_group(root, path),
            Self::Mount { path, filesystem, options } if text == Self::PRESENT => {
                mount(path, filesystem, options)
            }
            Self::Mount { path, .. } => unmount(path).map_err(io::Error::from),
            Self::GpuClock { address } => nvidia::lock(root, address, text),
            Self::Ethernet { interface, setting } => ethernet::write(interface, *setting, text),
            Self::Affinity { task } => set_affinity(task, text),
            Self::Scheduling { task } => priority::write(task, text),
            Self::Membership { task, hierarchy, mount } => move_to_group(root, task, hierarchy, mount, text),
            Self::Stopped { task } => {
                let signal = if text == Self::STOPPED { Signal::STOP } else { Signal::CONT };
                send(task, signal).inspect(|()| self.wait_for(root, text))
            }
        };
        outcome.map_err(|source| self.refusal(text, source))
    }

    /// Whether it is an ordinary file, which a kill could leave half written. Below a root other than /, all settings
    /// are ordinary files; a setting of the kernel takes a value whole.
    fn is_on_disk(&self, root: &HostRoot) -> bool {
        match self {
            Self::File { reading: Reading::Text, .. } => true,
            Self::File { path, .. } if !root.is_real() => {
                fs::symlink_metadata(root.path(path)).is_ok_and(|file| file.is_file())
            }
            _ => false,
        }
    }

    /// Removes what an interrupted write left.
    pub(crate) fn clean(&self, root: &HostRoot) -> Result<(), TreatError> {
        let Self::File { path, .. } = self else { return Ok(()) };
        if !self.is_on_disk(root) {
            return Ok(());
        }
        match fs::remove_file(whole_file::temporary(&root.path(path))) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(self.refusal("nothing", source)),
            _ => Ok(()),
        }
    }

    /// A signal takes effect a moment later; the caller has to check whether it did.
    fn wait_for(&self, root: &HostRoot, value: &str) {
        let deadline = Instant::now() + SIGNAL_WITHIN;
        while Instant::now() < deadline
            && self.read(root).is_ok_and(|found| {
                found != FoundSetting::Ended && found != FoundSetting::Value(value.to_owned())
            })
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn refusal(&self, text: &str, source: io::Error) -> TreatError {
        let remedy = match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::ACCESS | Errno::PERM) => {
                "; run as root (the kernel refuses some values even to root)"
            }
            Some(Errno::ROFS) => "; its file system is mounted read-only, as in containers",
            Some(Errno::INVAL) if matches!(self, Self::Affinity { .. }) => {
                "; its cgroup allows none of these CPUs (if a shield made that cgroup, apply this treatment before the shield)"
            }
            Some(Errno::INVAL) => "; the kernel does not accept this value here",
            Some(Errno::BUSY) => "; the setting is in use, or no other CPU can take over the work",
            Some(Errno::NOENT) => "; this file or task does not exist",
            _ => "",
        };
        let value = text.trim_end().replace('\n', "; ");
        TreatError::Write { target: self.to_string(), value, source, remedy }
    }
}

/// Whether a file system of that type is mounted exactly at `path`.
fn is_mounted(root: &HostRoot, path: &str, filesystem: &str) -> bool {
    let mounts = root.read("/proc/mounts").ok().flatten().unwrap_or_default();
    mounts.lines().any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next() == Some(path) && words.next() == Some(filesystem)
    })
}

fn mount(path: &str, filesystem: &str, options: &str) -> io::Result<()> {
    let options = CString::new(options)?;
    rustix::mount::mount(filesystem, path, filesystem, MountFlags::empty(), Some(options.as_c_str()))?;
    Ok(())
}

fn unmount(path: &str) -> Result<(), Errno> {
    rustix::mount::unmount(path, UnmountFlags::empty())
}

/// Whether the kernel's answer means that the setting does not exist (now).
fn is_absence(error: &io::Error) -> bool {
    let gone = [Errno::NODEV, Errno::NXIO, Errno::NOENT, Errno::NOTDIR];
    gone.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// One value into a file of the kernel: in one write, since each is taken as a value of its own.
fn write_file(root: &HostRoot, path: &str, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(root.path(path))?;
    match file.write(text.as_bytes())? {
        written if written == text.len() => Ok(()),
        written => Err(io::Error::other(format!("only {written} of {} bytes were accepted", text.len()))),
    }
}

/// A file on disk, all or nothing and safe from a power cut; or its removal.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    if text == Target::ABSENT {
        fs::remove_file(path)?;
        whole_file::sync_folder_of(path)
    } else {
        whole_file::write(path, text)
    }
}

fn set_affinity(task: &Task, list: &str) -> io::Result<()> {
    let cpus: CpuSet = list.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    schedule::pin_thread(task.tid, &cpus)
}

fn send(task: &Task, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(task.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(rustix::process::kill_process(pid, signal)?)
}

/// The group of a task, as a path below the mount of its hierarchy; `None` when the task ended.
fn group_of(
    task: &Task,
    hierarchy: &Hierarchy,
    root: &HostRoot,
    target: &str,
) -> Result<Option<String>, TreatError> {
    let folder = format!("/proc/{}/task/{}", task.pid, task.tid);
    let file = match hierarchy {
        Hierarchy::Resctrl => format!("{folder}/cpu_resctrl_groups"),
        Hierarchy::CgroupV1(_) | Hierarchy::CgroupV2 => format!("{folder}/cgroup"),
    };
    let Some(text) = root.read(&file)? else {
        if task.is_alive(root) {
            let problem = format!("this kernel has no {file}");
            return Err(TreatError::Malformed { target: target.to_owned(), problem });
        }
        return Ok(None);
    };
    let group = match hierarchy {
        Hierarchy::CgroupV2 => cgroup::group_of(&text, None).map(str::to_owned),
        Hierarchy::CgroupV1(controller) => cgroup::group_of(&text, Some(controller)).map(str::to_owned),
        // `res:GROUP`, of which the default group is empty.
        Hierarchy::Resctrl => {
            let name = text.lines().find_map(|line| line.strip_prefix("res:"));
            name.map(|name| format!("/{}", name.trim_matches('/')))
        }
    };
    match group {
        Some(group) => Ok(Some(group)),
        None if !task.is_alive(root) => Ok(None),
        None => {
            let problem = format!("{file} does not list this cgroup hierarchy");
            Err(TreatError::Malformed { target: target.to_owned(), problem })
        }
    }
}

fn move_to_group(
    root: &HostRoot,
    task: &Task,
    hierarchy: &Hierarchy,
    mount: &str,
    group: &str,
) -> io::Result<()> {
    let number = if *hierarchy == Hierarchy::CgroupV2 { task.pid } else { task.tid };
    let group = group.trim_matches('/');
    let separator = if group.is_empty() { "" } else { "/" };
    let path = format!("{mount}{separator}{group}/{}", hierarchy.tasks_file());
    write_file(root, &path, &format!("{number}\n"))
}

/// Removes a group. Tasks that are in it go to the group around it: children of tasks that were moved there.
fn remove_group(root: &HostRoot, path: &str) -> io::Result<()> {
    let deadline = Instant::now() + REMOVE_WITHIN;
    // A partition that is removed gives its CPUs back later and without waiting; one that ends does it now.
    let _ = write_file(root, &format!("{path}/cpuset.cpus.partition"), "member\n");
    loop {
        evacuate(root, path);
        match fs::remove_dir(root.path(path)) {
            // A task that is just ending keeps its group for a moment.
            Err(error)
                if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

fn evacuate(root: &HostRoot, path: &str) {
    let Some((parent, _)) = path.trim_end_matches('/').rsplit_once('/') else { return };
    for name in ["cgroup.procs", "cgroup.threads", "tasks"] {
        let text = fs::read_to_string(root.path(&format!("{path}/{name}"))).unwrap_or_default();
        for number in text.split_ascii_whitespace() {
            // One that has ended needs no move, and one that stays makes the removal fail, which is reported.
            let _ = write_file(root, &format!("{parent}/{name}"), &format!("{number}\n"));
        }
    }
}
