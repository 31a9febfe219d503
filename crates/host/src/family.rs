//! The processes that a process has started.

use crate::threads::Stat;
use std::collections::BTreeMap;

/// All processes that descend from that one and are still running.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut parents = BTreeMap::new();
    let Ok(folder) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    for entry in folder.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that has ended meanwhile is left out.
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if let Some(parent) = living_parent(&stat) {
            parents.insert(pid, parent);
        }
    }
    below(root, &parents)
}

/// A process that is not taken for a later one with its number.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pub pid: u32,
    /// In clock ticks since the boot.
    started: u64,
}

impl Process {
    /// The process with that number. `None` if no process has it, or if the process is a zombie.
    pub fn of(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        living_parent(&text)?;
        let started = Stat::parse(&text)?.number(22)?;
        Some(Self { pid, started })
    }

    pub fn has_ended(&self) -> bool {
        Self::of(self.pid).is_none_or(|now| now.started != self.started)
    }
}

/// The parent in a line of /proc/PID/stat; `None` for a zombie, which only waits to be reaped.
fn living_parent(stat: &str) -> Option<u32> {
    let stat = Stat::parse(stat)?;
    let parent = stat.field(4)?.parse().ok()?;
    (!matches!(stat.field(3)?, "Z" | "X")).then_some(parent)
}

/// Those whose chain of parents leads to `root`.
fn below(root: u32, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let leads_to_root = |pid: &u32| {
        let mut at = *pid;
        // Bounded, since /proc may be inconsistent while processes start and end.
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if *parent == root => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(leads_to_root).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_of_hostile_names() {
        assert_eq!(living_parent("12 (cat) S 7 12 12 0"), Some(7));
        assert_eq!(living_parent("12 (a) S 1 (b) R 9 12 12 0"), Some(9));
        assert_eq!(living_parent("12 (gone) Z 7 12 12 0"), None);
        assert_eq!(living_parent("torn"), None);
    }

    #[test]
    fn a_process_ends_and_its_family_with_it() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let own = Process::of(child.id()).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while descendants(own.pid).is_empty() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let below = descendants(own.pid);
        assert_eq!(below.len(), 1, "{below:?}");
        assert!(descendants(std::process::id()).contains(&below[0]) && !own.has_ended());
        let sleeper = Process::of(below[0]).unwrap();
        child.kill().unwrap();
        assert!(Process { started: sleeper.started + 1, ..sleeper }.has_ended(), "it is another one");
        child.wait().unwrap();
        assert!(own.has_ended() && Process::of(own.pid).is_none());
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(sleeper.pid as i32).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
    }

    #[test]
    fn a_tree_is_followed_to_its_leaves() {
        let parents = BTreeMap::from([(2, 1), (10, 5), (11, 10), (12, 11), (13, 99), (20, 21), (21, 20)]);
        assert_eq!(below(5, &parents), [10, 11, 12]);
        assert_eq!(below(99, &parents), [13]);
        assert!(below(12, &parents).is_empty());
    }
}
