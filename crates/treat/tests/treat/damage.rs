//! A journal that is damaged, of an earlier version, or not trusted.

use crate::machine::{Machine, set};
use std::fs;
use std::path::PathBuf;
use whylate_testing::{Need, says, skip};
use whylate_treat::{Fate, TreatError, restore};

const MACHINE: &str = "\
== sys/a := 1
== sys/b := 10
== sys/c := 100
== proc/sys/kernel/random/boot_id := first
== etc/passwd := root
";

/// How many journals are damaged, each in another way.
const MUTATIONS: u64 = 1_200;

/// The files of the journal, as a process that was killed leaves them: everything is changed.
struct Left {
    machine: Machine,
    journal: PathBuf,
    mark: PathBuf,
    text: Vec<u8>,
    mark_text: Vec<u8>,
}

impl Left {
    fn new() -> Self {
        let machine = Machine::new(MACHINE);
        let mut guard = machine.guard(false).unwrap();
        for (path, value) in [("/sys/a", "2"), ("/sys/b", "20"), ("/sys/c", "200")] {
            guard.apply("t", &[set(path, value)]).unwrap();
        }
        guard.keep().unwrap();
        let journal = machine.place().path();
        let mark = journal.with_extension("mark");
        let (text, mark_text) = (fs::read(&journal).unwrap(), fs::read(&mark).unwrap());
        Self { machine, journal, mark, text, mark_text }
    }

    /// The same again, with other files.
    fn put(&self, text: &[u8], mark: &[u8]) {
        fs::remove_dir_all(self.journal.parent().unwrap()).unwrap();
        fs::create_dir(self.journal.parent().unwrap()).unwrap();
        fs::write(&self.journal, text).unwrap();
        fs::write(&self.mark, mark).unwrap();
        for (path, value) in [("/sys/a", "2\n"), ("/sys/b", "20\n"), ("/sys/c", "200\n")] {
            self.machine.set(path, value);
        }
    }

    fn is_as_before(&self) -> bool {
        ["/sys/a", "/sys/b", "/sys/c"].map(|path| self.machine.text(path)) == ["1\n", "10\n", "100\n"]
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit.max(1) as u64) as usize
    }
}

/// What a disk, a person or a program may do to the two files.
fn mutate(random: &mut Random, text: &mut Vec<u8>, mark: &mut [u8]) {
    let at = random.below(text.len());
    let mut lines: Vec<Vec<u8>> = text.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let line = random.below(lines.len());
    match random.below(10) {
        0 => text[at] = text[at].wrapping_add(1 + random.below(255) as u8),
        1 => text[at] ^= 1 << random.below(8),
        2 => {
            let end = (at + 16).min(text.len());
            text[at..end].fill(0);
        }
        3 => text.truncate(at),
        4 => {
            lines.remove(line);
            *text = lines.concat();
        }
        5 => {
            let other = random.below(lines.len());
            lines.swap(line, other);
            *text = lines.concat();
        }
        6 => {
            lines.insert(line, lines[random.below(lines.len())].clone());
            *text = lines.concat();
        }
        7 => text.splice(at..at, (0..random.below(40)).map(|_| b'x')).for_each(drop),
        8 => {
            let at = random.below(mark.len());
            mark[at] ^= 1 << random.below(8);
        }
        _ => {
            // Another value of the same length, as a user with an editor would write it.
            let (from, to) =
                [("\"2\"", "\"3\""), ("/sys/a", "/sys/b"), ("\"20\"", "\"21\"")][random.below(3)];
            *text = String::from_utf8_lossy(text).replace(from, to).into_bytes();
        }
    }
}

#[test]
fn a_damaged_journal_never_passes_for_a_restored_machine() {
    let left = Left::new();
    let mut random = Random(7);
    let (mut damaged, mut brought_back) = (0, 0);
    for number in 0..MUTATIONS {
        let (mut text, mut mark) = (left.text.clone(), left.mark_text.clone());
        mutate(&mut random, &mut text, &mut mark);
        left.put(&text, &mark);
        let is_same = text == left.text && mark.trim_ascii_end() == left.mark_text.trim_ascii_end();
        let report = restore(&left.machine.place(), &left.machine.root).unwrap();
        let what = || format!("mutation {number}: {report:?}\n{}", String::from_utf8_lossy(&text));
        assert!(!report.is_complete() || left.is_as_before(), "{}", what());
        assert_eq!(report.unknown.is_empty(), is_same, "{}", what());
        if !is_same {
            damaged += 1;
            brought_back += u64::from(left.is_as_before());
            let kept = left.journal.with_extension("jsonl.damaged");
            assert_eq!(fs::read(&kept).unwrap(), text, "{}", what());
            assert!(report.problems().iter().any(|it| it.contains(".jsonl.damaged")), "{}", what());
        }
        assert_eq!(left.machine.text("/etc/passwd"), "root\n");
        assert!(restore(&left.machine.place(), &left.machine.root).unwrap().is_complete(), "it is said once");
    }
    assert!(damaged > MUTATIONS * 9 / 10, "{damaged}");
    // What can be read is undone.
    assert!(brought_back > damaged / 4, "{brought_back} of {damaged}");
}

#[test]
fn a_damaged_journal_refuses_treatments_until_it_is_restored() {
    let left = Left::new();
    left.put(&left.text[..left.text.len() / 2], &left.mark_text);
    let error = left.machine.guard(false).unwrap_err();
    assert!(matches!(error, TreatError::Damaged { .. }), "{error}");
    assert!(says("undo-what-can-still", error.to_string()), "{error}");
    assert_eq!(left.machine.text("/sys/a"), "2\n", "nothing was touched");
    assert_eq!(fs::read(&left.journal).unwrap(), left.text[..left.text.len() / 2]);
    // A restore that is killed before it says what is not known leaves that to the next one.
    let contents = left.machine.place().read(&left.machine.root).unwrap();
    assert!(!contents.damage.is_empty());
    assert!(!restore(&left.machine.place(), &left.machine.root).unwrap().is_complete());
    assert!(left.machine.guard(false).is_ok());
}

#[test]
fn a_journal_that_disappears_while_settings_are_changed_is_reported() {
    let left = Left::new();
    fs::remove_file(&left.journal).unwrap();
    let report = restore(&left.machine.place(), &left.machine.root).unwrap();
    assert!(says("lines-are-missing", &report.unknown[0]));
    assert!(!report.is_complete());
}

/// The lines as earlier versions wrote them.
fn old(text: &[u8]) -> String {
    let text = std::str::from_utf8(text).unwrap();
    let line = |line: &str| {
        let (_, rest) = line.split_once(',').unwrap();
        let (body, _) = rest.rsplit_once(",\"crc\"").unwrap();
        format!("{{{body}}}\n").replace("whylate.journal/2", "whylate.journal/1")
    };
    text.lines().map(line).collect()
}

#[test]
fn what_an_earlier_version_left_is_undone() {
    let left = Left::new();
    let text = old(&left.text);
    assert!(text.starts_with("{\"record\":\"session\",\"format\":\"whylate.journal/1\""), "{text}");
    left.put(text.as_bytes(), b"");
    fs::remove_file(&left.mark).unwrap();
    assert_eq!(left.machine.place().read(&left.machine.root).unwrap().open().count(), 3);
    let guard = left.machine.guard(false).unwrap();
    assert_eq!(guard.recovered().outcomes.len(), 3);
    assert!(left.is_as_before());
    drop(guard);
    // Taken over without being undone, it is one of ours from then on.
    left.put(text.replace("\"kept\":false", "\"kept\":true").as_bytes(), b"");
    fs::remove_file(&left.mark).unwrap();
    let mut guard = left.machine.guard(true).unwrap();
    guard.apply("more", &[set("/sys/a", "3")]).unwrap();
    guard.keep().unwrap();
    assert!(fs::read_to_string(&left.journal).unwrap().lines().all(|line| line.starts_with("{\"seq\":")));
    assert!(restore(&left.machine.place(), &left.machine.root).unwrap().is_complete());
    assert!(left.is_as_before());
}

#[test]
fn a_journal_cannot_cause_a_write_that_no_treatment_makes() {
    let left = Left::new();
    for path in ["/etc/passwd", "/sys/../etc/passwd", "/proc/self/root/etc/passwd"] {
        // An old journal has no checksums, so anything can be written into it.
        let text = old(&left.text).replace("/sys/b", path).replace("\"20\"", "\"root\"");
        left.put(text.as_bytes(), b"");
        fs::remove_file(&left.mark).unwrap();
        let report = restore(&left.machine.place(), &left.machine.root).unwrap();
        assert_eq!(left.machine.text("/etc/passwd"), "root\n");
        assert!(
            report.unknown[0].starts_with(&format!("no treatment changes {path} from `10`")),
            "{report:?}"
        );
        assert_eq!(report.outcomes.len(), 2, "the others are undone");
        assert!(report.outcomes.iter().all(|it| it.fate == Fate::Restored), "{report:?}");
    }
    let change = set("/etc/passwd", "x");
    let error = left.machine.guard(false).unwrap().apply("t", &[change]).unwrap_err().to_string();
    assert!(says("etc-passwd-not-changed", &error), "{error}");
}

/// A file system of 32 KiB, filled up to the given number of free blocks.
#[test]
fn a_full_disk_is_no_damage_and_nothing_stays_changed() {
    let (mut refused, mut made) = (0, 0);
    for blocks in 0..8 {
        let machine = Machine::new(MACHINE);
        let state = machine.place().path().parent().unwrap().to_owned();
        fs::create_dir_all(&state).unwrap();
        let options = std::ffi::CString::new("size=32k,mode=0755").unwrap();
        let flags = rustix::mount::MountFlags::empty();
        if let Err(error) = rustix::mount::mount("full", &state, "tmpfs", flags, Some(options.as_c_str())) {
            return skip(Need::Rights, format!("no file system of its own: {error}"));
        }
        fs::write(state.join("other"), vec![1; 4096 * (8 - blocks)]).unwrap();
        let applied = machine.guard(true).and_then(|mut guard| {
            guard.apply("t", &[set("/sys/a", "2")])?;
            guard.keep()
        });
        *(if applied.is_ok() { &mut made } else { &mut refused }) += 1;
        let report = restore(&machine.place(), &machine.root);
        let value = machine.text("/sys/a");
        rustix::mount::unmount(&state, rustix::mount::UnmountFlags::DETACH).unwrap();
        let report = report.unwrap();
        assert!(report.is_complete(), "{blocks} blocks: {report:?}");
        assert_eq!(value, "1\n", "{blocks} blocks");
    }
    assert!(refused > 0 && made > 0, "{refused} refused, {made} made");
}
