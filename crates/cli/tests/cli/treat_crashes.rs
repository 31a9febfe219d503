//! Signals at random moments of `treat apply`, of a run with treatments, and of `treat restore`: SIGKILL, SIGTERM,
//! SIGHUP, SIGQUIT, Ctrl-C twice, and a terminal that is closed. All but SIGKILL restore what they changed, or report
//! with exit code 3 that they did not; afterwards `restore` brings every path back to its exact former value.
//! `WHYLATE_CRASHES` sets the number.

use crate::tool::{alone, command, finish, signal, start, text, until};
use crate::treat::Fake;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use whylate_host::HostRoot;
use whylate_testing::{Need, skip};
use whylate_treat::Task;
use whylate_treat::kinds::interrupts::interrupts;

/// The number of crashes, unless the environment sets another.
const CRASHES: u32 = 21;

/// Many settings, so that a kill often falls between two of them.
const FILES: &str = "\
== proc/sys/kernel/random/boot_id := one
== proc/sys/vm/swappiness := 60
== proc/sys/kernel/numa_balancing := 1
== sys/kernel/mm/transparent_hugepage/enabled := always
== sys/devices/system/cpu/present := 0-127
== sys/devices/system/cpu/online := 0-127
== sys/devices/system/cpu/cpu{0-127}/cpuidle/state1/name := C1
== sys/devices/system/cpu/cpu{0-127}/cpuidle/state1/latency := 2
== sys/devices/system/cpu/cpu{0-127}/cpuidle/state1/disable := 0
== sys/devices/system/cpu/cpu{0-127}/power/pm_qos_resume_latency_us := 0
";

/// A place where settings are changed.
trait World {
    fn command(&self, arguments: &[&str]) -> Command;
    /// Treatments for `treat apply`.
    fn treatments(&self) -> Vec<Vec<String>>;
    /// The same as sections of a plan, named `t0`, `t1`, …
    fn sections(&self) -> String;
    /// Every value that might change.
    fn values(&self) -> BTreeMap<PathBuf, String>;
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

struct FakeWorld(Fake);

impl World for FakeWorld {
    fn command(&self, arguments: &[&str]) -> Command {
        self.0.command(arguments)
    }

    fn treatments(&self) -> Vec<Vec<String>> {
        ["idle --cpus all", "numa-balancing off", "sysctl vm.swappiness 1"].map(words).to_vec()
    }

    fn sections(&self) -> String {
        let path = "/sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/disable";
        format!(
            "[[treatment]]\nname = \"t0\"\nkind = \"sysfs\"\npath = \"{path}\"\nvalue = \"1\"\ncpus = \"0\"\n\
             [[treatment]]\nname = \"t1\"\nkind = \"numa-balancing\"\n\
             [[treatment]]\nname = \"t2\"\nkind = \"sysctl\"\nkey = \"vm.swappiness\"\nvalue = \"1\"\n"
        )
    }

    fn values(&self) -> BTreeMap<PathBuf, String> {
        let mut values = BTreeMap::new();
        let mut folders = vec![self.0.path("root")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_none_or(|it| it != "whylate-new") {
                    // A killed process may leave the file that was to replace another one.
                    values.insert(path.clone(), fs::read_to_string(&path).unwrap());
                }
            }
        }
        values
    }
}

/// This machine: a few interrupts, a statistics interval, and a process that sleeps.
struct RealWorld {
    state: TempDir,
    /// Other tests, also of other checkouts, change the same machine.
    _alone: File,
    sleeper: Child,
    interrupts: Vec<u32>,
}

impl RealWorld {
    fn new() -> Result<Self, &'static str> {
        const STATISTICS: &str = "/proc/sys/vm/stat_interval";
        let root = HostRoot::real();
        if !root.is_writable(STATISTICS) {
            return Err("settings can be changed by root only");
        }
        let alone = File::create(std::env::temp_dir().join("whylate-tests.lock")).map_err(|_| "no lock")?;
        alone.lock().map_err(|_| "no lock")?;
        let movable = interrupts(&root).map_err(|_| "the CPUs of interrupts cannot be read")?;
        let movable = movable.into_iter().filter(|it| !it.is_fixed && it.cpus.len() > 1);
        let interrupts: Vec<u32> = movable.map(|interrupt| interrupt.number).take(6).collect();
        let sleeper = Command::new("sleep").arg("3600").spawn().map_err(|_| "there is no `sleep` here")?;
        Ok(Self { state: tempfile::tempdir().unwrap(), _alone: alone, sleeper, interrupts })
    }
}

impl Drop for RealWorld {
    fn drop(&mut self) {
        // Also if the test fails: others use this machine.
        let _ = self.command(&["treat", "restore"]).output();
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
    }
}

impl World for RealWorld {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("WHYLATE_STATE_DIR", self.state.path());
        command
    }

    fn treatments(&self) -> Vec<Vec<String>> {
        let mut treatments = vec![words("sysctl vm.stat_interval 7")];
        treatments.push(words(&format!("affinity {} --cpus 0", self.sleeper.id())));
        if !self.interrupts.is_empty() {
            let numbers = self.interrupts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            treatments.push(words(&format!("irq-affinity {numbers} --cpus 0")));
        }
        treatments
    }

    fn sections(&self) -> String {
        let numbers: Vec<String> = self.interrupts.iter().map(|number| format!("\"{number}\"")).collect();
        let moved =
            if numbers.is_empty() { "[\"all\"]".to_owned() } else { format!("[{}]", numbers.join(", ")) };
        format!(
            "[[treatment]]\nname = \"t0\"\nkind = \"sysctl\"\nkey = \"vm.stat_interval\"\nvalue = \"7\"\n\
             [[treatment]]\nname = \"t1\"\nkind = \"affinity\"\nprocess = \"{}\"\ncpus = \"0\"\n\
             [[treatment]]\nname = \"t2\"\nkind = \"irq-affinity\"\ninterrupts = {moved}\ncpus = \"0\"\n",
            self.sleeper.id()
        )
    }

    fn values(&self) -> BTreeMap<PathBuf, String> {
        let mut paths: Vec<PathBuf> =
            ["/proc/sys/vm/stat_interval", "/proc/irq/default_smp_affinity"].map(PathBuf::from).to_vec();
        for entry in fs::read_dir("/proc/irq").unwrap() {
            paths.push(entry.unwrap().path().join("smp_affinity_list"));
        }
        let mut values: BTreeMap<PathBuf, String> = paths
            .into_iter()
            .filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?)))
            .collect();
        let root = HostRoot::real();
        let sleeper = Task::find(&root, self.sleeper.id(), self.sleeper.id()).unwrap();
        let state = format!("{:?} stopped: {}", sleeper.affinity(&root), sleeper.state(&root) == Some('T'));
        values.insert(PathBuf::from("sleeper"), state);
        values
    }
}

/// Random-looking numbers; the seed is printed, so that a failure can be reproduced.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }

    fn before(&mut self, duration: Duration) -> Duration {
        Duration::from_micros(self.below(duration.as_micros() as u64))
    }
}

/// Runs to the end, and returns the duration.
fn time(command: Command) -> Duration {
    let begun = Instant::now();
    let said = finish(command);
    assert_eq!(said.code, Some(0), "{said:?}");
    begun.elapsed()
}

/// How a process is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    /// With this signal.
    Signal(Signal),
    /// Ctrl-C, and again after this time.
    Twice(Duration),
    /// Its terminal is closed.
    Terminal,
    /// With the signal of this number.
    Number(u64),
}

impl End {
    fn all(random: &mut Random) -> [Self; 7] {
        const NUMBERS: [u64; 17] = [5, 6, 10, 12, 14, 16, 24, 25, 26, 27, 29, 30, 31, 34, 35, 50, 64];
        let twice = Self::Twice(random.before(Duration::from_millis(40)));
        [
            Self::Kill,
            Self::Signal(Signal::HUP),
            twice,
            Self::Signal(Signal::QUIT),
            Self::Terminal,
            Self::Signal(Signal::TERM),
            Self::Number(NUMBERS[random.below(17) as usize]),
        ]
    }
}

/// Starts it and ends it after that time; returns how it ended, and its output. A closed terminal has no output.
fn end_after(command: Command, time: Duration, end: End) -> (ExitStatus, String) {
    if end == End::Terminal {
        let (mut child, terminal) = on_terminal(&command);
        std::thread::sleep(time);
        drop(terminal);
        return (child.wait().unwrap(), String::new());
    }
    let mut child = start(command);
    std::thread::sleep(time);
    match end {
        End::Kill => drop(child.kill()),
        End::Signal(with) => signal(&child, with),
        End::Twice(pause) => {
            signal(&child, Signal::INT);
            std::thread::sleep(pause);
            signal(&child, Signal::INT);
        }
        End::Number(number) => {
            let kill = format!("kill -{number} {}", child.id());
            drop(Command::new("bash").args(["-c", &kill]).stderr(Stdio::null()).status());
        }
        End::Terminal => {}
    }
    let output = child.wait_with_output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The same command in its own session, on a terminal that exists as long as the returned value.
fn on_terminal(command: &Command) -> (Child, OwnedFd) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let screen = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut session = Command::new("setsid");
    session.arg("--ctty").arg(command.get_program()).args(command.get_args());
    session.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let stream = || Stdio::from(screen.try_clone().unwrap());
    let child = session.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
    // Without a terminal `setsid` would not start it. A process that ended has no program any more.
    let program = format!("/proc/{}/exe", child.id());
    let is_ours = |path: PathBuf| path == Path::new(crate::tool::WHYLATE);
    assert!(until(|| fs::read_link(&program).map_or(true, is_ours)));
    (child, terminal)
}

struct Crashes<'a> {
    world: &'a dyn World,
    random: Random,
    folder: TempDir,
    plan: String,
    /// The undisturbed duration of each.
    apply: Vec<Duration>,
    run: Duration,
    restore: Duration,
}

impl<'a> Crashes<'a> {
    fn new(world: &'a dyn World, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let head = "name = \"crash\"\nduration = \"60ms\"\nrepeats = 1\nsettle = \"1ms\"\nwarmup = \"1ms\"\n\
                    noise_floor = \"1ms\"\ninterval = \"100ms\"\n[[probe]]\nkind = \"timer\"\ninterval = \"1ms\"\n";
        let matrix = "[matrix]\ntreatments = [[\"t0\"], [\"t2\", \"t1\", \"t0\"]]\n";
        let plan = folder.path().join("plan.toml");
        fs::write(&plan, format!("{head}{}{matrix}", world.sections())).unwrap();
        let plan = text(&plan).to_owned();
        let nothing = Duration::ZERO;
        let mut it = Self {
            world,
            random: Random(seed),
            folder,
            plan,
            apply: Vec::new(),
            run: nothing,
            restore: nothing,
        };
        it.apply = world.treatments().iter().map(|treatment| time(it.apply_command(treatment))).collect();
        it.restore = time(world.command(&["treat", "restore"]));
        let directory = it.directory(0);
        it.run = time(it.run_command(&directory));
        it
    }

    fn directory(&self, number: u32) -> PathBuf {
        self.folder.path().join(format!("run-{number}"))
    }

    fn apply_command(&self, treatment: &[String]) -> Command {
        let words: Vec<&str> =
            ["treat", "apply"].into_iter().chain(treatment.iter().map(String::as_str)).collect();
        self.world.command(&words)
    }

    fn run_command(&self, directory: &Path) -> Command {
        self.world.command(&["run", &self.plan, "-o", text(directory), "-q", "--json"])
    }

    /// One crash; returns how many changes it left in force.
    fn one(&mut self, number: u32) -> u64 {
        let before = self.world.values();
        let treatments = self.world.treatments();
        let end = End::all(&mut self.random)[number as usize / 3 % 7];
        let (command, longest, is_run) = match number % 3 {
            0 => {
                let chosen = self.random.below(treatments.len() as u64) as usize;
                (self.apply_command(&treatments[chosen]), self.apply[chosen], false)
            }
            1 => (self.run_command(&self.directory(number)), self.run, true),
            _ => {
                for treatment in &treatments {
                    time(self.apply_command(treatment));
                }
                (self.world.command(&["treat", "restore"]), self.restore, false)
            }
        };
        let moment = self.random.before(longest);
        let (status, said) = end_after(command, moment, end);
        let what = format!("crash {number}, {end:?} after {moment:?}: {status}: {said}");
        if end != End::Kill {
            // Before it handles signals it has changed nothing.
            let is_ordered = status.code().is_some();
            match status.code() {
                Some(3) => assert!(said.contains("whylate treat restore") || end == End::Terminal, "{what}"),
                // Neither a limit on files nor a signal of the C library ends it.
                _ if matches!(end, End::Number(25 | 34)) => {}
                // A stopped command, and a run however it ended, leaves no change.
                _ if is_run || (is_ordered && status.code() != Some(0)) => {
                    assert_eq!(self.world.values(), before, "{what}");
                }
                _ => {}
            }
        }
        let status = finish(self.world.command(&["treat", "status", "--json"])).json();
        let left = status["changes"].as_array().unwrap().len() as u64;
        let restored = finish(self.world.command(&["treat", "restore", "--json"]));
        assert_eq!(restored.code, Some(0), "{what}: {restored:?}");
        assert_eq!(self.world.values(), before, "{what}");
        left
    }
}

fn crash(name: &str, world: &dyn World) {
    let _alone = alone();
    let count = std::env::var("WHYLATE_CRASHES").ok().and_then(|count| count.parse().ok()).unwrap_or(CRASHES);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut crashes = Crashes::new(world, seed);
    let left: Vec<u64> = (1..=count).map(|number| crashes.one(number)).collect();
    let with_changes = left.iter().filter(|changes| **changes > 0).count();
    let line = format!(
        "{name}: {count} of {count} restored exactly; {with_changes} kills left {} changes behind; seed {seed}",
        left.iter().sum::<u64>()
    );
    // Bypasses the capture of the test harness: the benchmark records this line.
    let _ = writeln!(std::io::stderr(), "{line}");
    // At the very least some fall into the middle: SIGKILL, and other signals during `apply`.
    assert!(with_changes as u32 >= count / 20, "{line}");
}

#[test]
fn a_machine_of_files_survives_kills_at_any_moment() {
    crash("files", &FakeWorld(Fake::new(FILES)));
}

#[test]
fn this_machine_survives_kills_at_any_moment() {
    match RealWorld::new() {
        Ok(world) => crash("this machine", &world),
        Err(reason) => skip(Need::Rights, reason),
    }
}
