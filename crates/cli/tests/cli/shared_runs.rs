//! Runs and a web server that others can reach: edited verdicts, a folder in which another user swaps files, and
//! requests of strangers.

use crate::serve::Server;
use crate::tool::{SMALL_PLAN, alone, folder, text, whylate, write};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use whylate_testing::{Need, skip};

const OTHER_USER: &str = "65534";
const TOKEN: &str = "secret-of-sixteen";

fn run_into(folder: &tempfile::TempDir, run: &Path) -> Option<i32> {
    let plan = write(folder, "plan.toml", SMALL_PLAN);
    whylate(&["run", &plan, "-o", text(run), "--quiet"]).code
}

/// Lines of Python that another user repeats until it is killed.
fn other_user_repeats(lines: &str) -> std::process::Child {
    let script =
        format!("import os\ni = 0\nwhile True:\n    i += 1\n    try:\n{lines}\n    except OSError: pass\n");
    let user = ["--reuid", OTHER_USER, "--regid", OTHER_USER, "--clear-groups"];
    let mut command = Command::new("setpriv");
    command.args(user).args(["python3", "-c", &script]).stderr(Stdio::null()).current_dir("/");
    command.spawn().unwrap()
}

fn end(mut child: std::process::Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_list_says_what_the_report_says() {
    let measuring = alone();
    let folder = folder();
    let runs = folder.path().join("runs");
    assert_eq!(run_into(&folder, &runs.join("a")), Some(0));
    drop(measuring);
    let of = |arguments: &[&str]| whylate(arguments).json();
    let listed = || of(&["runs", "--dir", text(&runs), "--json"])["runs"][0]["verdict"].clone();
    let reported = || of(&["report", text(&runs.join("a")), "--json"])["verdict"].clone();
    let whole = reported();
    assert_eq!(listed(), whole);
    let result = runs.join("a/result.json");
    let edited = fs::read_to_string(&result)
        .unwrap()
        .replace(&format!("\"verdict\": {whole}"), "\"verdict\": \"fail\"");
    fs::write(&result, edited).unwrap();
    assert_eq!((listed(), reported()), (whole.clone(), whole));
    let segment = fs::read_dir(runs.join("a/intervals")).unwrap().next().unwrap().unwrap();
    fs::remove_file(segment.path()).unwrap();
    assert_eq!((listed(), reported()), ("incomplete".into(), "incomplete".into()));
}

#[test]
fn strangers_are_not_led_away_and_do_not_stay() {
    let folder = folder();
    let server = Server::of(text(folder.path()), Some(TOKEN));
    let (status, redirect) = server.get(&format!("//evil.example/?token={TOKEN}"));
    assert!(status == 303 && redirect.contains("location: /evil.example/"), "{redirect}");
    let open = Server::of(text(folder.path()), None);
    let (status, refusal) = open.get("/runs/%1b%5b2J");
    assert!(status == 404 && !refusal.contains('\u{1b}'), "{refusal:?}");
    let begun = Instant::now();
    let mut silent = TcpStream::connect(("127.0.0.1", open.port)).unwrap();
    silent.write_all(b"GET / HTTP/1.1\r\nHost: lo").unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(25))).unwrap();
    let mut rest = Vec::new();
    silent.read_to_end(&mut rest).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn another_user_has_root_neither_read_nor_write_behind_a_link() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Rights, "only root can act as two users");
    }
    let measuring = alone();
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["runs", "place", "victim"] {
        fs::create_dir(path(name)).unwrap();
    }
    assert_eq!(run_into(&folder, &path("runs/a")), Some(0));
    fs::write(path("secret"), "root's own secret").unwrap();
    fs::set_permissions(path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let loads = path("runs/a/loads");
    fs::set_permissions(&loads, fs::Permissions::from_mode(0o777)).unwrap();
    let (file, link) = (loads.join("x.txt"), loads.join("y"));
    let swapper = other_user_repeats(&format!(
        "        if os.path.lexists({file:?}): os.unlink({file:?})\n        open({file:?}, 'w').write('x')\n        \
         os.symlink({:?}, {link:?})\n        os.rename({link:?}, {file:?})",
        path("secret")
    ));
    let server = Server::of(text(&path("runs")), None);
    for _ in 0..100 {
        let (status, archive) = server.get("/runs/a/archive.tar");
        assert!(status == 200 && !archive.contains("root's own secret"));
    }
    end(swapper);
    // A new run in a folder whose user puts a link in its place.
    chown(path("place"), Some(65_534), Some(65_534)).unwrap();
    let (run, away) = (path("place/run"), path("place/away"));
    let swapper = other_user_repeats(&format!(
        "        if os.path.lexists({run:?}): os.rename({run:?}, {away:?} + str(i))\n        \
         if i % 2: os.symlink({:?}, {run:?})",
        path("victim")
    ));
    for _ in 0..5 {
        run_into(&folder, &run);
    }
    end(swapper);
    drop(measuring);
    assert_eq!(fs::read_dir(path("victim")).unwrap().count(), 0);
}
