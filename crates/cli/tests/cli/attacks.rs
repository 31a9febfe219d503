//! Attempts by another user of the machine against root's `whylate`, all refused: journals and folders of their own,
//! links, locks, sockets, the environment of sudo, and names with control characters.

use crate::tool::{Said, WHYLATE, copy_program, finish, folder};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use whylate_lab::archive;
use whylate_testing::{Need, says, skip};

const OTHER_USER: u32 = 65_534;
const SWAPPINESS: &str = "root/proc/sys/vm/swappiness";
const FILES: &str = "\
== proc/sys/kernel/random/boot_id := one
== proc/sys/vm/swappiness := 12345
";

/// A machine made of files that belong to root, a victim, and a folder `open` that is like /tmp.
struct Scene {
    folder: TempDir,
}

impl Scene {
    fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can act as two users".to_owned());
        }
        let it = Self { folder: folder() };
        archive::unpack(FILES, &it.path("root")).map_err(|error| error.to_string())?;
        fs::write(it.path("victim"), "untouched\n").unwrap();
        copy_program(WHYLATE, &it.path("whylate")).unwrap();
        fs::create_dir(it.path("open")).unwrap();
        for (name, mode) in [("", 0o755), ("open", 0o1777)] {
            it.mode(name, mode);
        }
        let said = it.other("true");
        if said.code == Some(0) {
            Ok(it)
        } else {
            Err(format!("cannot act as another user: {}", said.stderr))
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Runs a line of shell as a user without rights, in `open`.
    fn other(&self, line: &str) -> Said {
        let mut command = Command::new("setpriv");
        let user = OTHER_USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c", line]);
        command.current_dir(self.path("open")).env("NO_COLOR", "1");
        finish(command)
    }

    /// Runs `whylate` as root, with its state in that folder.
    fn root(&self, state: &str, arguments: &[&str]) -> Said {
        let mut command = crate::tool::command(arguments);
        command.env("WHYLATE_HOST_ROOT", self.path("root")).env("WHYLATE_STATE_DIR", self.path(state));
        command.current_dir(self.folder.path());
        finish(command)
    }

    /// Settings that root changed by hand, with the journal in `state`.
    fn applied(&self, state: &str) {
        let said = self.root(state, &["treat", "apply", "sysctl", "vm.swappiness", "1"]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }

    /// A forged journal of the other user: a process that trusts it would write 12345.
    fn forge(&self) {
        let line = "mkdir -p evil/root && cp -r ../root/. evil/root && \
            WHYLATE_HOST_ROOT=evil/root WHYLATE_STATE_DIR=$PWD/evil ../whylate treat apply sysctl vm.swappiness 1";
        let said = self.other(line);
        assert_eq!(said.code, Some(0), "{said:?}");
        fs::write(self.path(SWAPPINESS), "1\n").unwrap();
    }

    /// Root refuses in one line that says why, and writes nothing.
    fn refuses(&self, attempt: &str, state: &str, why: &str) {
        for arguments in [&["treat", "restore"][..], &["treat", "apply", "sysctl", "vm.swappiness", "7"]] {
            let said = self.root(state, arguments);
            // The settings in the journal may be changed, and stay so; an `apply` has changed nothing.
            let code = if said.stderr.contains(" lock") || arguments[1] == "apply" {
                [Some(1); 2]
            } else {
                [Some(3), Some(1)]
            };
            assert!(code.contains(&said.code), "{attempt}: {said:?}");
            assert!(said.stderr.contains(why), "{attempt}: {said:?}");
        }
        self.is_untouched(attempt);
    }

    fn is_untouched(&self, attempt: &str) {
        assert_eq!(fs::read_to_string(self.path(SWAPPINESS)).unwrap(), "1\n", "{attempt}");
        assert_eq!(fs::read_to_string(self.path("victim")).unwrap(), "untouched\n", "{attempt}");
    }
}

/// Journals in folders that other users can write.
fn folders(scene: &Scene) -> Vec<&'static str> {
    scene.forge();
    scene.refuses("a journal of another user", "open/evil", "belongs to user 65534");
    let status = scene.root("open/evil", &["treat", "status"]);
    assert_eq!(status.code, Some(3), "{status:?}");
    scene.other("ln -s evil link");
    scene.refuses("a link to such a folder", "open/link", "link is a link");
    fs::create_dir(scene.path("state")).unwrap();
    scene.mode("state", 0o777);
    scene.other("cp -r evil/journal ../state/journal");
    scene.refuses("a journal put into a folder open to all", "state", "can be written to by others");
    scene.mode("state", 0o700);
    scene.refuses("the same when the folder was closed again", "state", "belongs to user 65534");
    fs::create_dir_all(scene.path("shared/state/journal")).unwrap();
    scene.mode("shared", 0o777);
    scene.refuses("a folder that others can exchange", "shared/state", "shared can be written to by others");
    scene.mode("shared", 0o775);
    scene.refuses("one that a group can exchange", "shared/state", "shared can be written to by others");
    scene.other("mkdir -p first/journal");
    scene.refuses("a folder made first in a place like /tmp", "open/first", "belongs to user 65534");
    fs::create_dir(scene.path("linked")).unwrap();
    symlink(scene.path("open/evil/journal"), scene.path("linked/journal")).unwrap();
    scene.refuses("a link to a journal of another user", "linked", "journal is a link");
    vec!["own", "status", "link", "planted", "closed", "exchange", "group", "first", "linked journal"]
}

/// Files in root's own folder that are not what they seem.
fn files(scene: &Scene) -> Vec<&'static str> {
    let journal = "mine/journal/treatments.jsonl";
    let put = |name: &str, make: &dyn Fn(&Path)| {
        drop(fs::remove_dir_all(scene.path("mine")));
        fs::write(scene.path(SWAPPINESS), "12345\n").unwrap();
        scene.applied("mine");
        let path = scene.path(name);
        drop(fs::remove_file(&path));
        make(&path);
    };
    let victim = scene.path("victim");
    put(journal, &|path| symlink(&victim, path).unwrap());
    scene.refuses("a link as the journal", "mine", "treatments.jsonl is a link");
    put(journal, &|path| fs::hard_link(&victim, path).unwrap());
    scene.refuses("a second name of a file as the journal", "mine", "second name");
    put(journal, &|path| assert!(fs::copy(scene.path("open/evil/journal/treatments.jsonl"), path).is_ok()));
    chown(scene.path(journal), Some(OTHER_USER), None).unwrap();
    scene.refuses("a file of another user as the journal", "mine", "belongs to user 65534");
    put(journal, &|path| fs::write(path, "").unwrap());
    scene.mode(journal, 0o666);
    scene.refuses("a journal that all can write", "mine", "can be written to by others (mode 0666)");
    put(journal, &|path| {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RWXU, 0).unwrap();
    });
    scene.refuses("a pipe as the journal", "mine", "is not a file");
    put(journal, &|path| fs::create_dir(path).unwrap());
    scene.refuses("a folder as the journal", "mine", "treatments.jsonl");
    put(journal, &|path| drop(UnixListener::bind(path).unwrap()));
    scene.refuses("a socket as the journal", "mine", "is not a file");
    put("mine/journal/treatments.lock", &|path| symlink(&victim, path).unwrap());
    scene.refuses("a link as the lock", "mine", "treatments.lock is a link");
    put("mine/journal/treatments.mark", &|path| symlink(&victim, path).unwrap());
    scene.refuses("a link as the mark", "mine", "treatments.mark is a link");
    // Written only when the journal is damaged.
    put("mine/journal/treatments.jsonl.damaged", &|path| symlink(&victim, path).unwrap());
    fs::write(scene.path(journal), "x\n").unwrap();
    assert_eq!(scene.root("mine", &["treat", "restore"]).code, Some(3));
    scene.is_untouched("a link where a damaged journal is kept");
    assert_eq!(fs::read_to_string(scene.path("mine/journal/treatments.jsonl.damaged.2")).unwrap(), "x\n");
    put("mine/journal/treatments.jsonl.new", &|path| symlink(&victim, path).unwrap());
    fs::write(scene.path(journal), "x\n").unwrap();
    let said = scene.root("mine", &["treat", "restore"]);
    assert!(said.stderr.contains("treatments.jsonl.new is a link"), "{said:?}");
    scene.is_untouched("a link where a journal is written again");
    let names =
        ["link", "second name", "foreign", "0666", "pipe", "folder", "socket", "lock", "mark", "damaged"];
    names.into_iter().chain(["new"]).collect()
}

/// Attempts to write root's files; they fail even if root's umask allows everything.
fn writes(scene: &Scene) -> Vec<&'static str> {
    let line = format!(
        "umask 000; WHYLATE_HOST_ROOT={0}/root WHYLATE_STATE_DIR={0}/theirs {0}/whylate treat apply sysctl vm.swappiness 3",
        scene.folder.path().display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]);
    assert_eq!(finish(shell).code, Some(0));
    let before = fs::read(scene.path("theirs/journal/treatments.jsonl")).unwrap();
    // The first process that needs the lock of the machine makes it.
    let mut real = crate::tool::command(&["treat", "restore"]);
    real.env("WHYLATE_STATE_DIR", scene.path("real"));
    drop(finish(real));
    let attempts = [
        "echo x >>../theirs/journal/treatments.jsonl",
        ": >../theirs/journal/treatments.mark",
        "rm ../theirs/journal/treatments.jsonl",
        "mv ../theirs/journal ../theirs/other",
        "mv ../theirs ../other",
        "touch ../theirs/journal/more.jsonl",
        "ln -s ../../victim ../theirs/journal/treatments.jsonl.new",
        "flock -n ../theirs/journal/treatments.lock true",
        "flock -n /run/whylate/treatments.lock true",
        "touch /run/whylate/treatments.lock",
        "WHYLATE_STATE_DIR=$PWD/../theirs ../whylate treat restore",
        "cat ../theirs/journal/treatments.lock",
        "WHYLATE_HOST_ROOT=$PWD/../root WHYLATE_STATE_DIR=$PWD/own ../whylate treat apply sysctl vm.swappiness 9",
        "WHYLATE_STATE_DIR=$PWD/own ../whylate treat apply sysctl vm.stat_interval 9",
    ];
    for attempt in attempts {
        let said = scene.other(attempt);
        assert_ne!(said.code, Some(0), "{attempt}: {said:?}");
    }
    // The values of settings are no secret: each user sees what is changed.
    let status = "WHYLATE_HOST_ROOT=$PWD/../root WHYLATE_STATE_DIR=$PWD/../theirs ../whylate treat status";
    let said = scene.other(status);
    assert!(said.code == Some(0) && said.stdout.contains("1 setting changed"), "{said:?}");
    assert_eq!(fs::read(scene.path("theirs/journal/treatments.jsonl")).unwrap(), before);
    assert_eq!(fs::read_to_string(scene.path(SWAPPINESS)).unwrap(), "3\n");
    assert_eq!(
        scene.root("theirs", &["treat", "restore"]).code,
        Some(0),
        "no lock of another user holds it off"
    );
    attempts.to_vec()
}

/// An ordinary user's environment must not steer a process of root.
fn environment(scene: &Scene) -> Vec<&'static str> {
    let callers = [("SUDO_UID", "65534"), ("DOAS_USER", "nobody"), ("PKEXEC_UID", "65534")];
    for (caller, user) in callers {
        let mut status = crate::tool::command(&["treat", "status"]);
        status.env(caller, user).env("WHYLATE_STATE_DIR", scene.path("open/evil"));
        let said = finish(status);
        assert!(said.stderr.contains("warning: WHYLATE_STATE_DIR is ignored"), "{caller}: {said:?}");
        assert!(!said.stderr.contains("evil"), "{caller}: {said:?}");
    }
    let mut planned = crate::tool::command(&["treat", "apply", "sysctl", "vm.swappiness", "1", "--dry-run"]);
    planned.env("SUDO_UID", "65534").env("WHYLATE_HOST_ROOT", scene.path("root"));
    let said = finish(planned);
    assert!(said.stderr.contains("WHYLATE_HOST_ROOT is ignored"), "{said:?}");
    assert!(!said.stdout.contains("12345"), "{said:?}");
    let tell = |caller: Option<&str>, folder: &str| {
        let mut tell = crate::tool::command(&["histograms", "reset"]);
        tell.env("WHYLATE_RUNTIME_DIR", scene.path(folder));
        caller.map(|user| tell.env("SUDO_UID", user));
        finish(tell)
    };
    let said = tell(Some("65534"), "open/evil");
    assert!(
        said.stderr.contains("WHYLATE_RUNTIME_DIR is ignored") && !said.stderr.contains("evil"),
        "{said:?}"
    );
    for folder in ["open/evil", "open/link"] {
        let said = tell(None, folder);
        assert!(says("not-folder-that-only", &said.stderr), "{said:?}");
    }
    vec!["SUDO_UID", "DOAS_USER", "PKEXEC_UID", "host root", "runtime folder", "sockets", "linked sockets"]
}

const EVIL: [&str; 3] = ["\u{1b}[2J", "\u{9b}2J", "\u{202e}txt"];

/// Names that would control a terminal, or display in another order.
fn names(scene: &Scene) -> Vec<&'static str> {
    let trace = "# tracer: nop\n#\n     NAME-7     [000] d.h1.   100.000000: sched_waking: comm=NAME pid=7 prio=0 target_cpu=000\n";
    for (number, evil) in EVIL.into_iter().enumerate() {
        let name = format!("x{evil}");
        let program = scene.path("open").join(&name);
        copy_program("/bin/sleep", &program).unwrap();
        let mut sleeper = Command::new(&program).arg("60").spawn().unwrap();
        let pid = sleeper.id().to_string();
        let plan = scene.path(&format!("open/plan-{number}.toml"));
        fs::write(&plan, format!("name = \"{name}\"\nquestion = \"{name}\"\n[[probe]]\nkind = \"{name}\"\n"))
            .unwrap();
        let text = scene.path(&format!("open/trace-{number}-{name}.txt"));
        fs::write(&text, trace.replace("NAME", &name)).unwrap();
        let text = text.to_str().unwrap();
        for arguments in [
            &["cpus", "--verbose"][..],
            &["cpus", "--json"],
            &["treat", "apply", "affinity", &pid, "--cpus", "0", "--dry-run"],
            &["treat", "apply", "affinity", &name, "--cpus", "0", "--dry-run", "--json"],
            &["run", plan.to_str().unwrap()],
            &["report", &name],
            &["explain", text],
            &["explain", text, "--format", "markdown"],
            &["explain", text, "--json"],
            &["explain", text, "--export", "text"],
            &[&name],
        ] {
            let said = finish(crate::tool::command(arguments));
            let hidden = |c: char| c != '\n' && whylate_core::text::is_hidden(c);
            assert!(!said.stdout.chars().chain(said.stderr.chars()).any(hidden), "{arguments:?}: {said:?}");
        }
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }
    vec!["escape", "control sequence of C1", "override of the direction"]
}

#[test]
fn another_user_can_neither_steer_nor_hold_off_what_root_does() {
    let scene = match Scene::new() {
        Ok(scene) => scene,
        Err(reason) => return skip(Need::Rights, reason),
    };
    let parts = [folders, files, writes, environment, names];
    let attempts: Vec<&str> = parts.into_iter().flat_map(|part| part(&scene)).collect();
    assert!(attempts.len() >= 25, "{attempts:?}");
}
