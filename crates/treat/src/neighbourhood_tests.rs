//! In a network of the test's own, where the kernel moves settings along with others: the machine stays as it is.

use super::*;
use crate::journal::{Holder, IfDamaged, JournalPlace};
use crate::{Guard, restore};
use std::fs;

const FOLDER: &str = "/proc/sys/net/ipv4";
const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// Does something in a thread that has a network of its own, with the settings there as they were before.
fn in_own_network(name: &str, test: impl FnOnce(&HostRoot, &JournalPlace, &dyn Fn() -> Walk) + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = rustix::thread::UnshareFlags::NEWNET | rustix::thread::UnshareFlags::NEWNS;
            #[expect(deprecated, reason = "it names flags that share no memory or files")]
            let left = rustix::thread::unshare(flags);
            if let Err(error) = left.and_then(|()| mount_own_sys()) {
                eprintln!("skipped: no network of its own: {error}");
                return;
            }
            let state = tempfile::tempdir().unwrap();
            let place = JournalPlace::new(state.path(), &format!("{name}-{}", std::process::id()));
            // As a user set them by hand; writing ip_forward sets both otherwise.
            set("/proc/sys/net/ipv4/conf/all/accept_redirects", "0");
            set("/proc/sys/net/ipv4/conf/lo/forwarding", "1");
            let root = HostRoot::real();
            test(&root, &place, &|| {
                Scope::of([&Target::file(FORWARD)], &HostRoot::real())
                    .walk(&HostRoot::real())
                    .into_iter()
                    .filter(|(path, _)| path.starts_with(FOLDER))
                    .collect()
            });
        });
    });
}

/// Interfaces in /sys are those of the network that it was mounted in.
fn mount_own_sys() -> rustix::io::Result<()> {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None)
}

fn set(path: &str, value: &str) {
    fs::write(path, value).unwrap();
}

fn holder(root: &HostRoot) -> Holder {
    Holder::this_process("a test", None, false, root)
}

fn forwarding() -> Change {
    Change::required(Target::file(FORWARD), "1", "tries")
}

#[test]
fn what_is_moved_comes_back_with_what_moved_it() {
    in_own_network("moved", |root, place, walk| {
        let before = walk();
        let mut guard = Guard::begin(place, root, holder(root)).unwrap();
        guard.apply("sysctl", &[forwarding()]).unwrap();
        assert_ne!(walk(), before);
        let moved: Vec<String> = guard.in_force().map(|entry| entry.change.target.to_string()).collect();
        assert!(moved.contains(&"/proc/sys/net/ipv4/conf/default/forwarding".to_owned()), "{moved:?}");
        let report = guard.undo();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(walk(), before);
        assert!(place.read(root).unwrap().entries.is_empty());
    });
}

#[test]
fn an_empty_value_comes_back() {
    in_own_network("empty", |root, place, _| {
        let alias = "/sys/class/net/lo/ifalias";
        assert_eq!(fs::read_to_string(alias).unwrap(), "");
        let mut guard = Guard::begin(place, root, holder(root)).unwrap();
        guard.apply("sysfs", &[Change::required(Target::file(alias), "loop", "tries")]).unwrap();
        assert_eq!(fs::read_to_string(alias).unwrap(), "loop\n");
        let report = guard.undo();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(fs::read_to_string(alias).unwrap(), "");
    });
}

#[test]
fn a_kill_between_the_write_and_the_note_leaves_nothing() {
    in_own_network("cut-off", |root, place, walk| {
        let before = walk();
        interrupted(place, root, &before, None);
        let report = restore(place, root).unwrap();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(walk(), before);
    });
}

#[test]
fn a_kill_while_it_is_undone_leaves_nothing() {
    in_own_network("undone", |root, place, walk| {
        let before = walk();
        interrupted(place, root, &before, Some(JournalRecord::Undoing { others: BTreeSet::new() }));
        set(FORWARD, "0");
        assert_ne!(walk(), before, "undoing has moved others, too");
        let report = restore(place, root).unwrap();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(walk(), before);
    });
}

#[test]
fn what_others_change_meanwhile_stays() {
    in_own_network("others", |root, place, walk| {
        let mut guard = Guard::begin(place, root, holder(root)).unwrap();
        guard.apply("sysctl", &[forwarding()]).unwrap();
        set("/proc/sys/net/ipv4/tcp_retries2", "9");
        set("/proc/sys/net/ipv4/conf/all/accept_redirects", "1");
        assert!(guard.undo().is_complete());
        let after = walk();
        let value = |path: &str| after[path].trim().to_owned();
        assert_eq!(value("/proc/sys/net/ipv4/tcp_retries2"), "9");
        assert_eq!(value("/proc/sys/net/ipv4/conf/all/accept_redirects"), "1");
        assert_eq!(value("/proc/sys/net/ipv4/conf/lo/forwarding"), "1");
    });
}

/// A journal and settings as a process leaves them that was killed after its write, with one more record.
fn interrupted(place: &JournalPlace, root: &HostRoot, before: &Walk, more: Option<JournalRecord>) {
    let holder = holder(root);
    let mut journal = Journal::open(place, root, &holder, IfDamaged::Refuse).unwrap();
    let session = journal.begin_session(&holder).unwrap();
    let (treatment, change, old) = ("sysctl".to_owned(), forwarding(), "0\n".to_owned());
    let records = vec![
        JournalRecord::Before { first: 1, values: before.clone() },
        JournalRecord::Intended { entry: 1, session, treatment, change, old },
    ];
    journal.append(records).unwrap();
    set(FORWARD, "1");
    let noted = more.map(|more| {
        vec![JournalRecord::Applied { entry: 1, found: "1".to_owned() }, JournalRecord::After {}, more]
    });
    journal.append(noted.unwrap_or_default()).unwrap();
}

#[test]
fn whatever_a_walk_finds_can_be_noted_and_brought_back() {
    let root = HostRoot::real();
    let folders = ["/proc/sys/vm/swappiness", "/sys/devices/system/cpu/online", "/sys/kernel/mm/ksm/run"];
    let scope = Scope::of(&folders.map(Target::file), &root);
    let walk = scope.walk(&root);
    assert!(walk.len() > 300, "{}", walk.len());
    for (path, old) in walk {
        assert_eq!(claims::check(&moved_change(&path, &old, None), &old, &root), Ok(()), "{path}");
    }
}

/// A disk that nothing uses: its read-ahead by its two names.
fn unused_disk() -> Option<[String; 2]> {
    let is_unused = |path: &std::path::Path| {
        let name = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("loop"));
        name && !path.join("loop").exists() && path.join("bdi/read_ahead_kb").exists()
    };
    let disk =
        fs::read_dir("/sys/block").ok()?.flatten().map(|entry| entry.path()).find(|path| is_unused(path))?;
    Some(["queue", "bdi"].map(|folder| disk.join(folder).join("read_ahead_kb").display().to_string()))
}

#[test]
fn a_value_with_two_names_comes_back_in_either_order() {
    let root = HostRoot::real();
    let Some(mut names) = unused_disk().filter(|_| rustix::process::geteuid().is_root()) else {
        eprintln!("skipped: there is no loop device without a file, or this is not root");
        return;
    };
    for turn in 0..2 {
        let [first, second] = &names;
        let now = || fs::read_to_string(first).unwrap().trim().to_owned();
        let before = now();
        let state = tempfile::tempdir().unwrap();
        let place = JournalPlace::new(state.path(), &format!("names-{turn}-{}", std::process::id()));
        let mut guard = Guard::begin(&place, &root, holder(&root)).unwrap();
        guard.apply("a", &[Change::required(Target::file(first.as_str()), "256", "tries")]).unwrap();
        guard.apply("b", &[Change::required(Target::file(second.as_str()), "512", "tries")]).unwrap();
        assert_eq!(now(), "512");
        let report = guard.undo();
        assert_eq!(now(), before, "{report:?}");
        assert!(report.is_complete(), "{report:?}");
        assert!(report.outcomes.iter().all(|undone| undone.fate == Fate::Restored), "{report:?}");
        // What another program sets stays, by whichever name.
        guard.apply("a", &[Change::required(Target::file(first.as_str()), "256", "tries")]).unwrap();
        set(second, "64");
        let report = guard.undo();
        assert_eq!(now(), "64");
        assert!(
            report.outcomes.iter().any(|undone| matches!(undone.fate, Fate::LeftAlone { .. })),
            "{report:?}"
        );
        set(first, &before);
        names.reverse();
    }
}
