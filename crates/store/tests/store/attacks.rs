//! Files that another user puts into a run directory, or in its place while it is read or written. Nothing outside of
//! it is read or written, no reader waits, and no run passes that a report would fail.
//!
//! `WHYLATE_ATTACKS` sets how often the place of a run is swapped.

use crate::made::{key, rows};
use crate::sealed::{complete, failing_run};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use whylate_core::result::Verdict;
use whylate_store::{Folder, Owners, Reader, RunDirectory, Sink as _, assemble, kept_traces, list};

const OTHER_USER: u32 = 65_534;
const SECRET: &str = "root's own secret";
/// No read of a small run takes this long, whatever is in the way.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The paths of a run's files, relative to it; one of each table.
fn files_of(run: &Path) -> Vec<PathBuf> {
    let tree = Folder::open(run).unwrap().tree().unwrap();
    let is_other =
        |name: &Path| name.extension().is_some_and(|it| it == "parquet") && !name.ends_with("000001.parquet");
    tree.into_iter()
        .map(|found| found.name)
        .filter(|name| run.join(name).is_file() && !is_other(name))
        .collect()
}

/// Everything that reads a run: all bytes read, and the verdict of its list.
fn read_all(folder: &Path, run: &Path, owners: Owners) -> (Vec<u8>, Option<Verdict>) {
    let (sender, receiver) = channel();
    let (folder, run) = (folder.to_owned(), run.to_owned());
    std::thread::spawn(move || {
        let mut out = Vec::new();
        let opened = Folder::open(&run).and_then(|it| it.only(owners));
        if let Ok(opened) = opened {
            for found in opened.tree().unwrap_or_default() {
                let file = opened.open_file(&found.name).ok().flatten();
                file.map(|mut file| file.read_to_end(&mut out).unwrap());
            }
            out.extend(kept_traces(&opened).join("\n").into_bytes());
            if let Ok(reader) = Reader::of(opened) {
                let result = assemble(&reader).map(|result| serde_json::to_vec(&result).unwrap());
                out.extend(result.unwrap_or_default());
            }
        }
        let listed = list(&folder, None);
        out.extend(serde_json::to_vec(&listed).unwrap());
        _ = sender
            .send((out, listed.into_iter().find(|it| Path::new(&it.path) == run).and_then(|it| it.verdict)));
    });
    receiver.recv_timeout(WAIT_MAX).expect("reading a run waits for something")
}

fn has_secret(bytes: &[u8]) -> bool {
    String::from_utf8_lossy(bytes).contains(SECRET)
}

#[test]
fn what_replaces_a_file_is_not_read_and_no_reader_waits_for_it() {
    let top = tempfile::tempdir().unwrap();
    let (folder, secret) = (top.path().join("runs"), top.path().join("secret"));
    let run = folder.join("run");
    fs::create_dir(&folder).unwrap();
    fs::write(&secret, SECRET).unwrap();
    failing_run(&run);
    assert_eq!(read_all(&folder, &run, Owners::OwnAndRoot).1, Some(Verdict::Fail));
    type Plant<'a> = (&'a str, &'a dyn Fn(&Path) -> bool);
    let nodes = |kind: FileType, device: u64| {
        move |at: &Path| mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), device).is_ok()
    };
    let (fifo, zero) = (nodes(FileType::Fifo, 0), nodes(FileType::CharacterDevice, (1 << 8) | 5));
    let plants: [Plant<'_>; 7] = [
        ("link", &|at| symlink(&secret, at).is_ok()),
        ("endless link", &|at| symlink(at, at).is_ok()),
        ("pipe", &fifo),
        ("device", &zero),
        ("socket", &|at| UnixListener::bind(at).is_ok()),
        ("folder", &|at| fs::create_dir(at).is_ok()),
        // Only root can make it here; others could where the kernel does not protect hard links.
        ("hard link", &|at| {
            let others = is_root() && chown(&secret, Some(OTHER_USER), None).is_ok();
            others && fs::hard_link(&secret, at).is_ok()
        }),
    ];
    for name in files_of(&run) {
        for (what, plant) in plants {
            let (at, kept) = (run.join(&name), top.path().join("kept"));
            fs::rename(&at, &kept).unwrap();
            if plant(&at) {
                let (out, verdict) = read_all(&folder, &run, Owners::OwnAndRoot);
                assert!(!has_secret(&out), "{what} for {}", name.display());
                assert_ne!(verdict, Some(Verdict::Pass), "{what} for {}", name.display());
            } else {
                eprintln!("skipped: {what} for {}: it cannot be made here", name.display());
            }
            let _ = fs::remove_dir(&at).or_else(|_| fs::remove_file(&at));
            fs::rename(&kept, &at).unwrap();
        }
    }
    assert_eq!(read_all(&folder, &run, Owners::OwnAndRoot).1, Some(Verdict::Fail), "it is as it was");
}

#[test]
fn folders_that_are_links_names_that_are_long_and_deep_nesting_are_survived() {
    let top = tempfile::tempdir().unwrap();
    let (folder, out) = (top.path().join("runs"), top.path().join("out"));
    let run = folder.join("run");
    fs::create_dir_all(out.join("deeper")).unwrap();
    fs::write(out.join("000001.parquet"), SECRET).unwrap();
    fs::write(out.join("a.dat"), SECRET).unwrap();
    failing_run(&run);
    for table in ["spikes", "traces", "loads"] {
        fs::rename(run.join(table), top.path().join(table)).unwrap();
        symlink(&out, run.join(table)).unwrap();
    }
    symlink(&out, folder.join("other")).unwrap();
    let mut deep = run.join("causes");
    for _ in 0..200 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(run.join("causes").join("n".repeat(255)), "").unwrap();
    for number in 0..2_000 {
        fs::write(run.join("causes").join(format!("{number}-\u{1b}[2J")), "").unwrap();
    }
    let (bytes, verdict) = read_all(&folder, &run, Owners::OwnAndRoot);
    assert!(!has_secret(&bytes));
    assert_eq!(verdict, Some(Verdict::Fail), "its violation is still there");
    assert_eq!(list(&folder, None).len(), 1, "a link is no run");
    whylate_store::remove(&run).unwrap();
    assert!(out.join("a.dat").exists() && !run.exists(), "nothing behind a link is removed");
}

#[test]
fn files_of_other_users_are_not_read_where_only_own_ones_are() {
    if !is_root() {
        return eprintln!("skipped: only root can give files away");
    }
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    failing_run(&run);
    chown(run.join("run.json"), Some(OTHER_USER), None).unwrap();
    let opened = Folder::open(&run).unwrap().only(Owners::OwnAndRoot).unwrap();
    assert!(opened.open_file("run.json").is_err() && opened.open_file("manifest.jsonl").is_ok());
    assert!(Folder::open(&run).unwrap().open_file("run.json").is_ok(), "where it was asked for");
    chown(&run, Some(OTHER_USER), None).unwrap();
    assert!(Folder::open(&run).unwrap().only(Owners::OwnAndRoot).is_err());
    assert_eq!(whylate_store::foreign_runs(&Folder::open(folder.path()).unwrap()), 1);
}

/// The other user as a process: this program again, which swaps as fast as it can.
struct Attacker(Child);

impl Attacker {
    fn begin(place: &Path, victim: &Path) -> Self {
        let program = place.with_file_name("attacker");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(program);
        command.args(["attacks::swaps", "--exact"]).uid(OTHER_USER).gid(OTHER_USER);
        command.env("WHYLATE_PLACE", place).env("WHYLATE_VICTIM", victim).current_dir("/");
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The other user of the tests below, which start it with these variables; without them it does nothing.
#[test]
fn swaps() {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let Some((place, victim)) = variable("WHYLATE_PLACE").zip(variable("WHYLATE_VICTIM")) else { return };
    let run = place.join("run");
    for number in 0_u64.. {
        // Until root makes it: sometimes a link exists before.
        if number % 3 == 0 {
            _ = symlink(&victim, &run);
        }
        if fs::symlink_metadata(&run).is_ok_and(|it| it.is_symlink()) {
            _ = fs::remove_file(&run);
        } else if fs::rename(&run, place.join(format!("away-{number}"))).is_ok() {
            _ = symlink(&victim, &run);
        }
    }
}

#[test]
fn a_run_of_root_in_a_folder_that_its_user_swaps_writes_nothing_elsewhere() {
    if !is_root() {
        return eprintln!("skipped: only root can act as two users");
    }
    let rounds: usize = std::env::var("WHYLATE_ATTACKS").ok().and_then(|it| it.parse().ok()).unwrap_or(200);
    let top = tempfile::tempdir().unwrap();
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (place, victim) = (top.path().join("place"), top.path().join("victim"));
    for folder in [&place, &victim] {
        fs::create_dir(folder).unwrap();
    }
    chown(&place, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    let attacker = Attacker::begin(&place, &victim);
    let run = place.join("run");
    let mut made = 0;
    for _ in 0..rounds {
        let Ok(mut directory) = RunDirectory::create(&run, &complete()) else { continue };
        made += 1;
        directory.rows().add_intervals(
            &key("idle", 1, 1, "timer"),
            rows("idle", 1, 0).intervals.into_iter().map(|it| it.1),
        );
        _ = directory.flush();
        _ = fs::write(directory.new_trace_path("idle", 1, 1), "a trace");
        _ = fs::write(directory.load_output_path(&crate::made::rate_key("idle", 1, 1, "l3")), "output");
        _ = directory.add_treatments("{}");
        _ = directory.seal(&complete());
        if let Ok(result) = Reader::of(directory.opened().clone()).and_then(|reader| assemble(&reader)) {
            directory.write_result(&result).unwrap();
        }
    }
    drop(attacker);
    eprintln!("{rounds} rounds, {made} runs begun");
    assert!(made > 0, "the attack hindered every one");
    let found: Vec<_> = fs::read_dir(&victim).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(found.is_empty(), "{found:?}");
}
