//! Runs of many machines: into a lake and back, damaged objects, and checks against the request.

use crate::tool::{SMALL_PLAN, WHYLATE, alone, command, finish, folder, text, whylate, write};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use whylate_testing::{Need, says, skip};

/// The files below a folder, with their content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                    found.insert(name, fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    found
}

#[test]
fn a_run_comes_back_as_it_was_and_damage_is_named() {
    let measuring = alone();
    let folder = folder();
    let (plan, run) = (write(&folder, "plan.toml", SMALL_PLAN), folder.path().join("run-1"));
    assert_eq!(whylate(&["run", &plan, "-o", text(&run), "--quiet"]).code, Some(0));
    drop(measuring);
    let (lake, back) = (folder.path().join("lake"), folder.path().join("back"));
    let pushed = whylate(&["push", text(&run), text(&lake)]);
    assert!(pushed.code == Some(0) && pushed.stdout.contains("run-1"), "{pushed:?}");
    let there = files(&lake);
    let again = whylate(&["push", text(&run), text(&lake)]);
    assert!(again.code == Some(0) && again.stdout.contains("already in the lake"), "{again:?}");
    assert!(files(&lake) == there, "a second push changes nothing");
    assert_eq!(whylate(&["pull", text(&lake.join("run-1")), text(&back)]).code, Some(0));
    assert!(files(&back) == files(&run), "bit for bit");
    let report = |run: &Path| whylate(&["report", text(run), "--json"]).document()["cells"].clone();
    assert_eq!(report(&back), report(&run));
    let taken = whylate(&["pull", text(&lake.join("run-1")), text(&back)]);
    assert!(taken.error().contains("exists"), "{taken:?}");

    // Interrupted before its manifest: the run is not there, and the next push completes it.
    let named = |end: &str| lake.join(there.keys().find(|name| name.ends_with(end)).unwrap());
    let (manifest, archive) = (named("manifest.json"), named("run.tar.gz"));
    fs::remove_file(&manifest).unwrap();
    fs::remove_file(&archive).unwrap();
    let host = archive.parent().and_then(Path::parent).and_then(Path::file_name).unwrap();
    let place = lake.join(host).join("run-1");
    let cut = whylate(&["pull", text(&place), text(&folder.path().join("cut"))]);
    assert!(cut.error().contains("did not finish"), "{cut:?}");
    assert!(whylate(&["push", text(&run), text(&lake)]).stdout.contains("2 objects"));
    assert!(files(&lake) == there, "the same objects as of one push");

    // Damage of every kind is found and named.
    for (end, damage) in [("run.tar.gz", 3), ("parquet", 3), ("parquet", 0)] {
        let ends = |name: &&PathBuf| name.to_string_lossy().ends_with(end);
        let object = lake.join(there.keys().find(ends).unwrap());
        let whole = fs::read(&object).unwrap();
        let mut bytes = whole.clone();
        match damage {
            0 => bytes.truncate(whole.len() / 2),
            at => bytes[whole.len() / at] ^= 1,
        }
        fs::write(&object, bytes).unwrap();
        let said = whylate(&["pull", text(&lake), "--check"]);
        let name = object.file_name().unwrap().to_str().unwrap();
        assert!(said.code == Some(1) && said.stderr.contains("damaged in the lake"), "{said:?}");
        assert!(said.stderr.contains(name), "{said:?}");
        fs::write(&object, whole).unwrap();
    }
    assert_eq!(whylate(&["pull", text(&lake), "--check"]).code, Some(0));

    // Other content under the same name replaces nothing without a request.
    fs::write(run.join("labels.json"), r#"{"tags":["other"]}"#).unwrap();
    let other = whylate(&["push", text(&run), text(&lake)]);
    assert!(other.code == Some(1) && other.stderr.contains("other content"), "{other:?}");
    assert!(files(&lake) == there);
    assert_eq!(whylate(&["push", text(&run), text(&lake), "--replace"]).code, Some(0));
    let newer = folder.path().join("newer");
    assert_eq!(whylate(&["pull", text(&place), text(&newer)]).code, Some(0));
    assert!(files(&newer) == files(&run));
}

#[test]
fn a_push_reports_differences_and_refuses_a_damaged_run() {
    let measuring = alone();
    let folder = folder();
    let (plan, run) = (write(&folder, "plan.toml", SMALL_PLAN), folder.path().join("run-1"));
    assert_eq!(whylate(&["run", &plan, "-o", text(&run), "--quiet"]).code, Some(0));
    drop(measuring);
    let lake = folder.path().join("lake");
    let push = ["push", text(&run), text(&lake), "--plan", &plan, "--kernel", "0.0", "--host", "another"];
    let pushed = whylate(&push);
    assert_eq!(pushed.code, Some(0), "{pushed:?}");
    for line in ["INCOMPLETE: kernel: 0.0 was requested", "INCOMPLETE: host: another was requested"] {
        assert!(pushed.stderr.contains(line), "{pushed:?}");
    }
    assert!(!pushed.stderr.contains("INCOMPLETE: plan"), "{pushed:?}");
    let farm = write(&folder, "farm.toml", "name = \"rack\"\nlake = \"/srv\"\n[[host]]\nname = \"nosuch\"\n");
    let stranger = whylate(&["push", text(&run), text(&folder.path().join("other")), "--farm", &farm]);
    assert!(stranger.stderr.contains("farm.toml does not name the host `"), "{stranger:?}");
    let empty = whylate(&["farm", "verify", text(&run), "--kernel", ""]);
    assert!(empty.code == Some(1) && empty.stderr.contains("--kernel"), "{empty:?}");

    let there = files(&lake);
    let manifest = lake.join(there.keys().find(|name| name.ends_with("manifest.json")).unwrap());
    fs::write(&manifest, "garbage").unwrap();
    let damaged = whylate(&push);
    assert!(damaged.code == Some(1) && damaged.stderr.contains("manifest.json"), "{damaged:?}");
    assert_eq!(whylate(&[&push[..], &["--replace"]].concat()).code, Some(0));
    assert!(files(&lake) == there);

    let mut query = command(&["farm", "query", "worst", "--lake", text(&lake)]);
    query.env("WHYLATE_QUERY_PYTHON", "/nonexistent/python");
    let said = finish(query);
    assert!(said.code == Some(69), "{said:?}");
    assert!(says("whylate-query-python-nonexistent", &said.stderr), "{said:?}");
}

#[test]
fn an_unfinished_push_is_named() {
    let measuring = alone();
    let folder = folder();
    let (plan, run) = (write(&folder, "plan.toml", SMALL_PLAN), folder.path().join("run-1"));
    assert_eq!(whylate(&["run", &plan, "-o", text(&run), "--quiet"]).code, Some(0));
    drop(measuring);
    let run_text = text(&run);
    let other = folder.path().join("other");
    assert_eq!(whylate(&["push", run_text, text(&other)]).code, Some(0));
    let there = files(&other);
    let manifest = there.keys().find(|name| name.ends_with("manifest.json")).unwrap();
    fs::remove_file(other.join(manifest)).unwrap();
    let checked = whylate(&["pull", text(&other), "--check"]);
    assert!(checked.code == Some(1) && says("its-push-did-not", &checked.stderr), "{checked:?}");
}

#[test]
fn impossible_questions_are_refused_in_plain_words() {
    let folder = folder();
    let lake = folder.path().join("lake");
    fs::create_dir(&lake).unwrap();
    let (empty, two) =
        (write(&folder, "empty.sql", "-- why"), write(&folder, "two.sql", "SELECT 1; SELECT 2"));
    let asked = |question: &str, lake: &Path| whylate(&["farm", "query", question, "--lake", text(lake)]);
    for (said, expected) in [
        (asked("worst", &lake), "holds no run"),
        (
            asked("worst", &folder.path().join("nolake")),
            "nolake: this folder does not exist; `whylate push RUN",
        ),
        (whylate(&["pull", text(&folder.path().join("nolake"))]), "this folder does not exist"),
        // Only the lake could say which part of it is the lake.
        (
            whylate(&["pull", text(&folder.path().join("nolake/run")), "back"]),
            "nolake/run: no such run in the lake",
        ),
        (whylate(&["farm", "compare", "6.1", "6.6", "--lake", text(&lake)]), "holds no run"),
    ] {
        assert!(said.code == Some(1) && said.stderr.contains(expected), "{said:?}");
    }
    // Questions are checked only if there is a run.
    fs::create_dir_all(lake.join("table=runs/host=a/month=2026-01")).unwrap();
    fs::write(lake.join("table=runs/host=a/month=2026-01/run.parquet"), "").unwrap();
    for (question, expected) in [(&empty, "no SQL statement"), (&two, "more than one SQL statement")] {
        let said = asked(question, &lake);
        assert!(said.code == Some(1) && said.stderr.contains(expected), "{said:?}");
    }
}

#[test]
fn pushes_at_once_lose_nothing() {
    let measuring = alone();
    let folder = folder();
    let (plan, run) = (write(&folder, "plan.toml", SMALL_PLAN), folder.path().join("run-1"));
    assert_eq!(whylate(&["run", &plan, "-o", text(&run), "--quiet"]).code, Some(0));
    drop(measuring);
    let (lake, back) = (folder.path().join("lake"), folder.path().join("back"));
    std::thread::scope(|scope| {
        let push = || whylate(&["push", text(&run), text(&lake)]);
        let pushes: Vec<_> = (0..4).map(|_| scope.spawn(push)).collect();
        for push in pushes {
            let said = push.join().unwrap();
            assert_eq!(said.code, Some(0), "{said:?}");
        }
    });
    assert_eq!(whylate(&["pull", text(&lake), "--check"]).code, Some(0));
    assert_eq!(whylate(&["pull", text(&lake.join("run-1")), text(&back)]).code, Some(0));
    assert!(files(&back) == files(&run));
}

#[test]
fn a_short_run_verifies_and_an_unmeasured_run_does_not() {
    let measuring = alone();
    let folder = folder();
    let long = format!("{}[short]\nduration = \"500ms\"\n", SMALL_PLAN.replacen("500ms", "50s", 1));
    let (plan, run) = (write(&folder, "plan.toml", &long), folder.path().join("run"));
    assert_eq!(whylate(&["run", &plan, "--short", "-o", text(&run), "--quiet"]).code, Some(0));
    drop(measuring);
    assert!(fs::read_to_string(run.join("run.json")).unwrap().contains("\"short\": true"));
    let short = whylate(&["farm", "verify", text(&run), "--plan", &plan]);
    assert!(!short.stderr.contains("INCOMPLETE: plan"), "{short:?}");
    assert!(short.code == Some(1) || short.stdout.contains("the request (a short run)"), "{short:?}");
    let other = write(&folder, "other.toml", &long.replacen("repeats = ", "repeats = 1", 1));
    let wanted: [(&[&str], &str); 3] = [
        (&["--plan", &other], "plan: the run has other values of repeats"),
        (&["--kernel", "0.0"], "kernel: 0.0 was requested"),
        (&["--host", "another"], "host: another was requested"),
    ];
    for (asked, said) in wanted {
        let found = whylate(&[&["farm", "verify", text(&run)], asked].concat());
        assert!(found.code == Some(1) && found.stderr.contains(said), "{found:?}");
    }
    fs::remove_dir_all(run.join("intervals")).unwrap();
    let found = whylate(&["farm", "verify", text(&run)]);
    assert!(found.code == Some(1) && found.stderr.contains("INCOMPLETE: "), "{found:?}");
}

const FARM: &str = "name = \"rack\"\nlake = \"LAKE\"\n[[host]]\nname = \"board\"\n";

/// The job that every dispatcher starts, in a folder.
struct Job {
    folder: TempDir,
    host: String,
}

impl Job {
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs the job; `changes` replace its inputs.
    fn run(&self, plan: &str, run: &str, changes: &[(&str, &str)]) -> Option<i32> {
        let change = |key: &str, usual: String| {
            let found = changes.iter().find(|(changed, _)| *changed == key);
            found.map_or(usual, |(_, value)| (*value).to_owned())
        };
        let mut job = Command::new(self.path("out/job.sh"));
        job.arg(change("host", self.host.clone())).arg(plan).arg(run).arg(change("kernel", String::new()));
        job.env("WHYLATE", change("WHYLATE", WHYLATE.to_owned()));
        job.env("WHYLATE_RESULTS", change("WHYLATE_RESULTS", self.path("results")));
        job.env("WHYLATE_LAKE", change("WHYLATE_LAKE", self.path("lake")));
        job.output().unwrap().status.code()
    }

    /// A replacement for whylate in which one command does something else.
    fn fake(&self, command: &str, what: &str) -> String {
        let path = self.path(&format!("fake-{command}"));
        let text = format!("#!/bin/sh\n[ \"$1\" = {command} ] && {{ {what}; }}\nexec '{WHYLATE}' \"$@\"\n");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

#[test]
fn a_job_that_did_not_measure_never_passes() {
    let _alone = alone();
    let folder = folder();
    let plan = write(&folder, "plan.toml", SMALL_PLAN);
    let farm = write(&folder, "farm.toml", FARM);
    let out = folder.path().join("out");
    let rendered = whylate(&["farm", "render", &plan, "--for", "slurm", "--farm", &farm, "-o", text(&out)]);
    assert_eq!(rendered.code, Some(0), "{rendered:?}");
    let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    let job = Job { folder, host };
    if job.run(&plan, "good", &[]) != Some(0) {
        return skip(Need::Rights, "this user may not set real-time priorities, so that no job passes here");
    }
    assert_eq!(job.run(&plan, "good", &[]), Some(0), "the same job again goes on with its run");

    let other = write(&job.folder, "other.toml", &SMALL_PLAN.replacen("500ms", "400ms", 1));
    let offline = write(
        &job.folder,
        "offline.toml",
        &SMALL_PLAN.replacen("[[probe]]", "[target]\ncpus = \"4000\"\n[[probe]]", 1),
    );
    let dead = "kind = \"exec\"\ncommand = [\"false\"]\n";
    let dead_load = SMALL_PLAN.replace("kind = \"memory\"\nworking_set = \"256KiB\"\n", dead);
    let dead_load = write(&job.folder, "dead.toml", &dead_load);
    let (nothing, killed) = (job.fake("run", "exit 0"), job.fake("push", "kill -9 $$"));
    let idle = job.path("idle");
    fs::write(&idle, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&idle, fs::Permissions::from_mode(0o755)).unwrap();
    let cut = job.path("cut");
    fs::write(&cut, "#!/bin/sh\nkill -9 $$\n").unwrap();
    fs::set_permissions(&cut, fs::Permissions::from_mode(0o755)).unwrap();
    type Way<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);
    let ways: [Way<'_>; 12] = [
        ("no program", &plan, &[("WHYLATE", "/nonexistent/whylate")]),
        ("a program that is killed", &plan, &[("WHYLATE", &cut)]),
        ("a program that does not measure", &plan, &[("WHYLATE", &nothing)]),
        ("a program that does nothing", &plan, &[("WHYLATE", &idle)]),
        ("no plan", "/nonexistent/plan.toml", &[]),
        ("a CPU that is not there", &offline, &[]),
        ("a load that dies", &dead_load, &[]),
        ("another machine", &plan, &[("host", "another")]),
        ("another kernel", &plan, &[("kernel", "0.1")]),
        ("no room for results", &plan, &[("WHYLATE_RESULTS", "/dev/full/results")]),
        ("a lake that cannot be written", &plan, &[("WHYLATE_LAKE", "/dev/full/lake")]),
        ("a push that is killed", &plan, &[("WHYLATE", &killed)]),
    ];
    for (number, (what, plan, changes)) in ways.into_iter().enumerate() {
        assert_eq!(job.run(plan, &format!("way-{number}"), changes), Some(1), "{what}");
    }
    assert_eq!(job.run(&other, "good", &[]), Some(1), "the run of another plan");
    assert_eq!(job.run(&plan, "idle", &[("WHYLATE", &idle)]), Some(1));
    assert_eq!(job.run(&plan, "idle", &[]), Some(0), "what measured nothing takes no run's place");
}

#[test]
fn the_same_farm_gives_the_same_files() {
    let folder = folder();
    let farm = write(&folder, "farm.toml", &format!("{FARM}kernel = \"6.12\"\n[[plan]]\nplan = \"quick\"\n"));
    for engine in ["kubernetes", "slurm", "ansible", "lava"] {
        let out = |name: &str| folder.path().join(format!("{engine}-{name}"));
        for name in ["a", "b"] {
            let said = whylate(&["farm", "render", "--for", engine, "--farm", &farm, "-o", text(&out(name))]);
            assert_eq!(said.code, Some(0), "{said:?}");
        }
        let found = files(&out("a"));
        assert_eq!(found, files(&out("b")), "{engine}");
        for (path, content) in &found {
            let content = String::from_utf8_lossy(content);
            let is_left = |word: &str| {
                let name = word.bytes().take_while(|byte| byte.is_ascii_uppercase() || *byte == b'_').count();
                name > 1 && word.len() == name
            };
            // Text between two of them is a name that was not replaced.
            let left = content.split('@').find(|word| is_left(word));
            assert_eq!(left, None, "{engine}: {}", path.display());
        }
    }
    let no_host = write(
        &folder,
        "none.toml",
        &format!("{FARM}[[plan]]\nplan = \"quick\"\nlabels = {{ arch = \"x\" }}\n"),
    );
    let out = folder.path().join("none");
    let said = whylate(&["farm", "render", "--for", "slurm", "--farm", &no_host, "-o", text(&out)]);
    assert!(says("no-host-has-labels", said.error()), "{said:?}");
    assert!(!out.exists());
}
