//! The CPU quota of this process's control group.

use crate::HostRoot;

/// The file and the text of the strictest quota that is visible between this process's group and the root: cgroup v2
/// `cpu.max`, or v1 `cpu.cfs_quota_us`. `None` where there is none to be seen.
pub fn cpu_quota(root: &HostRoot) -> Option<(String, String)> {
    let groups = root.read("/proc/self/cgroup").ok()??;
    let mut found = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let is_v1 = controllers.split(',').any(|name| name == "cpu");
        if !is_v1 && !controllers.is_empty() {
            continue;
        }
        let (mounts, file) = if is_v1 {
            (
                vec!["/sys/fs/cgroup/cpu".to_owned(), format!("/sys/fs/cgroup/{controllers}")],
                "cpu.cfs_quota_us",
            )
        } else {
            (vec!["/sys/fs/cgroup".to_owned(), "/sys/fs/cgroup/unified".to_owned()], "cpu.max")
        };
        for mount in mounts {
            for group in ancestors(path) {
                let file = format!("{mount}{group}/{file}");
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
fn ancestors(path: &str) -> Vec<String> {
    let mut all = vec![path.trim_end_matches('/').to_owned()];
    while let Some((above, _)) = all.last().and_then(|path| path.rsplit_once('/')) {
        let above = above.to_owned();
        all.push(above);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive;

    fn quota(archive: &str) -> Option<(String, String)> {
        let folder = tempfile::tempdir().unwrap();
        archive::unpack(archive, folder.path()).unwrap();
        cpu_quota(&HostRoot::at(folder.path()))
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
