//! The control groups of the threads that took the time of a watched thread, if they differ from the thread's own.

use std::collections::BTreeMap;
use whylate_core::result::{Cause, CauseKind};
use whylate_host::HostRoot;

/// Reads the group of each thread once.
pub(super) struct Neighbours<'h> {
    host: &'h HostRoot,
    groups: BTreeMap<u32, Option<String>>,
}

impl<'h> Neighbours<'h> {
    pub(super) fn new(host: &'h HostRoot) -> Self {
        Self { host, groups: BTreeMap::new() }
    }

    /// Names the groups of the causes of a thread's activation, as far as those threads still exist.
    pub(super) fn name(&mut self, watched: u32, causes: &mut [Cause]) {
        let is_thread = |cause: &&mut Cause| matches!(cause.kind, CauseKind::Thread | CauseKind::Lock);
        for cause in causes.iter_mut().filter(is_thread) {
            let Some((thread, actor)) = cause.pid.zip(cause.actor.as_deref()) else { continue };
            // Another thread may have its number by now.
            let name = self.host.read_trimmed(&format!("/proc/{thread}/comm")).ok().flatten();
            if name.as_deref() != Some(actor) {
                continue;
            }
            let (own, other) = (self.group(watched), self.group(thread));
            // Threads of the kernel are in the root.
            if let Some(other) = other.filter(|other| other != "/" && own.as_ref() != Some(other)) {
                let own = own.map(|own| format!(", and not in {own}")).unwrap_or_default();
                cause.evidence.push(format!("{actor} is in the control group {other}{own}"));
            }
        }
    }

    fn group(&mut self, thread: u32) -> Option<String> {
        let read = || {
            let text = self.host.read(&format!("/proc/{thread}/cgroup")).ok().flatten()?;
            group_of(&text)
        };
        self.groups.entry(thread).or_insert_with(read).clone()
    }
}

/// The group that gives CPU time: that of version 1's controller `cpu`, or the one of version 2.
pub(super) fn group_of(text: &str) -> Option<String> {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let of_cpu = lines().find(|(controllers, _)| controllers.split(',').any(|it| it == "cpu"));
    let (_, group) = of_cpu.or_else(|| lines().find(|(controllers, _)| controllers.is_empty()))?;
    Some(group.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_of_a_neighbour_is_named_if_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            (7, "control", "0::/system.slice/plc.service\n"),
            (8, "hog", "0::/system.slice/docker-4f5e.scope\n"),
            (9, "helper", "0::/system.slice/plc.service\n"),
            (10, "kworker/0:1", "0::/\n"),
            (11, "renamed", "0::/user.slice\n"),
            (12, "old", "5:cpu,cpuacct:/batch\n1:name=systemd:/x\n0::/user.slice\n"),
        ];
        for (thread, comm, group) in files {
            let path = folder.path().join(format!("proc/{thread}"));
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("comm"), format!("{comm}\n")).unwrap();
            std::fs::write(path.join("cgroup"), group).unwrap();
        }
        let cause = |kind, actor: &str, pid| Cause {
            actor: Some(actor.to_owned()),
            pid: Some(pid),
            ..Cause::new(kind)
        };
        let mut causes = [
            cause(CauseKind::Thread, "hog", 8),
            cause(CauseKind::Lock, "helper", 9),
            cause(CauseKind::Thread, "kworker/0:1", 10),
            cause(CauseKind::Thread, "before", 11),
            cause(CauseKind::Thread, "old", 12),
            cause(CauseKind::Thread, "gone", 13),
        ];
        let host = HostRoot::at(folder.path());
        Neighbours::new(&host).name(7, &mut causes);
        let named: Vec<&str> = causes.iter().flat_map(|it| &it.evidence).map(String::as_str).collect();
        assert_eq!(
            named,
            [
                "hog is in the control group /system.slice/docker-4f5e.scope, and not in /system.slice/plc.service",
                "old is in the control group /batch, and not in /system.slice/plc.service",
            ]
        );
    }
}
