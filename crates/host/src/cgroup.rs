//! Control groups: which ones a process is in, and the CPU quota of this process's.

use crate::HostRoot;

/// The lines `4:cpu,cpuacct:/path` of /proc/PID/cgroup (cgroups(7)): controllers and path. v2 names no controllers.
pub fn groups(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'))
}

/// The path of the group for a controller of v1, or of the one group of v2 (`None`).
pub fn group_of<'a>(text: &'a str, controller: Option<&str>) -> Option<&'a str> {
    let is_it = |controllers: &str| match controller {
        Some(controller) => controllers.split(',').any(|name| name == controller),
        None => controllers.is_empty(),
    };
    groups(text).find(|(controllers, _)| is_it(controllers)).map(|(_, path)| path)
}

/// The system service (systemd) that a process belongs to; `None` for a user's service, in a container, or without a
/// service.
pub fn service_of(root: &HostRoot, pid: u32) -> Option<String> {
    let text = root.read(&format!("/proc/{pid}/cgroup")).ok()??;
    let group = group_of(&text, Some("name=systemd")).or_else(|| group_of(&text, None))?;
    let unit = group.strip_prefix("/system.slice/")?.split('/').find(|part| part.ends_with(".service"));
    unit.map(str::to_owned)
}

/// The file and the text of the strictest visible quota between this process's group and the root: cgroup v2
/// `cpu.max`, or v1 `cpu.cfs_quota_us`. `None` if no quota is visible.
pub fn cpu_quota(root: &HostRoot) -> Option<(String, String)> {
    let text = root.read("/proc/self/cgroup").ok()??;
    let mut found = None;
    for (controllers, path) in groups(&text) {
        let (folders, file) = if controllers.split(',').any(|name| name == "cpu") {
            (["cpu", controllers], "cpu.cfs_quota_us")
        } else if controllers.is_empty() {
            (["", "unified"], "cpu.max")
        } else {
            continue;
        };
        for folder in folders {
            for group in ancestors(path) {
                let mount = format!("/sys/fs/cgroup/{folder}");
                let file = format!("{}{group}/{file}", mount.trim_end_matches('/'));
                let Ok(Some(text)) = root.read_trimmed(&file) else { continue };
                let is_limited = !text.starts_with("max") && !text.starts_with('-');
                if is_limited {
                    return Some((file, text));
                }
                found = found.or(Some((file, text)));
            }
        }
    }
    found
}

/// `/a/b`, `/a`, and the root as the empty text.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path.trim_end_matches('/')), |path| Some(path.rsplit_once('/')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_lab::archive;

    fn quota(archive: &str) -> Option<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        archive::unpack(archive, folder.path()).unwrap();
        cpu_quota(&HostRoot::at(folder.path()))
    }

    #[test]
    fn a_process_of_a_service_has_its_name() {
        for (group, expected) in [
            ("0::/system.slice/audio.service/inner", Some("audio.service")),
            ("1:name=systemd:/system.slice/audio.service\n0::/", Some("audio.service")),
            ("0::/user.slice/user-0.slice/user@0.service/app.slice/audio.service", None),
            ("0::/init.scope", None),
        ] {
            let folder = tempfile::tempdir().unwrap();
            archive::unpack(&format!("== proc/7/cgroup\n{group}\n"), folder.path()).unwrap();
            assert_eq!(service_of(&HostRoot::at(folder.path()), 7).as_deref(), expected, "{group}");
        }
    }

    #[test]
    fn the_quota_of_a_group_above_counts_too() {
        let v2 = "== proc/self/cgroup := 0::/a/b\n== sys/fs/cgroup/a/b/cpu.max := max 100000\n\
                  == sys/fs/cgroup/a/cpu.max := 50000 100000\n";
        assert_eq!(quota(v2), Some(("/sys/fs/cgroup/a/cpu.max".to_owned(), "50000 100000".to_owned())));
        let v1 = "== proc/self/cgroup := 4:cpu,cpuacct:/docker/1\n\
                  == sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us := -1\n";
        assert_eq!(quota(v1).map(|(_, text)| text).as_deref(), Some("-1"));
        assert_eq!(quota("== proc/self/cgroup := 0::/\n"), None);
        assert_eq!(quota(""), None);
    }
}
