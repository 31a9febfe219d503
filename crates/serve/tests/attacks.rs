//! The web server under attack: hostile requests, slow and silent clients, and a folder of runs that another user changes while
//! it is read.
//!
//! `WHYLATE_ATTACKS` sets the number of requests.

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};
use whylate_core::plan::{Plan, Source as PlanSource};
use whylate_core::result::{CompareResult, LIVE_SOCKET, RunResult, RunSeries, RunState, RunSummary};
use whylate_core::{CpuId, Facts, record::Interval};
use whylate_serve::{ResultSource, Runs, Settings, serve};
use whylate_store::{
    Execution, ExecutionState, Folder, Owners, Reader, RowKey, RunDirectory, RunInfo, Sink as _, assemble,
};
use whylate_testing::{Need, skip};

const OTHER_USER: u32 = 65_534;
const SECRET: &str = "root's own secret";
const ANSWER_MAX: Duration = Duration::from_secs(60);

struct Reports;

impl ResultSource for Reports {
    fn run(&self, run: &Folder) -> Result<RunResult, String> {
        let reader = Reader::of(run.clone()).map_err(|error| error.to_string())?;
        assemble(&reader).map_err(|error| error.to_string())
    }

    fn compare(&self, _: &[Vec<Folder>]) -> Result<CompareResult, String> {
        Err("no comparison\u{1b}[2J".to_owned())
    }

    fn series(
        &self,
        _: &[RunSummary],
        _: &dyn Fn(&RunSummary) -> Result<Folder, String>,
        statistic: &str,
        _: Option<&str>,
    ) -> Result<RunSeries, String> {
        Err(format!("there is no statistic {statistic}"))
    }
}

fn make_run(path: &Path) {
    let text = "name = \"quick\"\nduration = \"1s\"\n[target]\ncpus = \"0\"\n[[probe]]\nkind = \"timer\"\n[[cell]]\n";
    let plan = Plan::parse(&PlanSource { name: "test", text }, &[]).unwrap();
    let mut info = RunInfo::new("run", SystemTime::UNIX_EPOCH, plan, Facts::default());
    info.state = RunState::Complete;
    info.executions.push(Execution {
        cell: "idle".to_owned(),
        repeat: 1,
        attempt: 1,
        block: 0,
        state: ExecutionState::Done,
        error: None,
        void: false,
    });
    let mut directory = RunDirectory::create(path, &info).unwrap();
    let key = RowKey { cell: "idle".to_owned(), repeat: 1, attempt: 1, probe: "timer".to_owned() };
    let interval = Interval {
        cpu: CpuId(0),
        end_ns: 1_000_000_000,
        samples: 2,
        sum_ns: 300,
        min_ns: Some(100),
        max_ns: Some(200),
        histogram: vec![(100, 1), (200, 1)],
        ..Interval::default()
    };
    directory.rows().add_intervals(&key.into(), [interval]);
    directory.flush().unwrap();
    fs::write(directory.new_trace_path("idle", 1, 1), "a trace").unwrap();
    directory.seal(&info).unwrap();
}

fn begin(folder: &Path, owners: Owners, token: Option<&str>) -> SocketAddr {
    let folder = Folder::open(folder).unwrap().only(owners).unwrap();
    let settings = Settings { address: "127.0.0.1:0".parse().unwrap(), token: token.map(str::to_owned) };
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let runs = Runs { folder, cache: None, source: Box::new(Reports) };
        serve(settings, Some(runs), None, |address| sender.send(address).unwrap()).unwrap();
    });
    receiver.recv_timeout(ANSWER_MAX).unwrap()
}

/// The whole answer, or the error; the test fails if it takes too long.
fn ask(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let begun = Instant::now();
    let mut answer = Vec::new();
    let asked = TcpStream::connect(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(bytes)?;
        stream.read_to_end(&mut answer)
    });
    if let Err(error) = asked {
        assert!(begun.elapsed() < ANSWER_MAX, "{error}: {:?}", String::from_utf8_lossy(bytes));
    }
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    String::from_utf8_lossy(&ask(address, request.as_bytes())).into_owned()
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0)
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |it| it.1)
}

/// The source of random attempts; each request takes a few.
struct Chance(u64);

impl Chance {
    fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.number() as usize % all.len()]
    }
}

const PATHS: [&str; 12] = [
    "/",
    "/runs/",
    "/compare",
    "/series",
    "/runs.json",
    "/metrics",
    "//",
    "/runs/run/archive.tar",
    "/farm",
    "*",
    "",
    "/runs/run/events",
];
const PARTS: [&str; 22] = [
    "run",
    "..",
    "%2e%2e%2f",
    "%00",
    "%1b[2J",
    "%ff%fe",
    "\u{1b}[31m",
    "//evil.example/",
    "/\\evil.example",
    "?token=secret",
    "?q=%1b%5d0;x%07",
    "?side=run&side=run",
    "?before=run&is=%1b[2J<script>",
    "?was=colour%3dred&is=<script>alert(1)</script>",
    "?side=%1b[2J&side=b",
    "?statistic=%1b[2J",
    "?statistic=timer+p99&cell=<script>",
    "<script>alert(1)</script>",
    "/archive.tar",
    "/result.json",
    "/../../../../../etc/shadow",
    "%u202e",
];
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "OPTIONS", "\u{1b}", "CONNECT"];
const HEADS: [&str; 10] = [
    "Host: localhost",
    "Host: evil.example",
    "Host: \u{1b}[2J",
    "Content-Length: 5",
    "Content-Length: 99999999999999999999",
    "Transfer-Encoding: chunked",
    "Expect: 100-continue",
    "Cookie: whylate-token=\u{1b}; x",
    "Authorization: Bearer ",
    "Upgrade: h2c",
];

#[test]
fn hostile_requests_are_answered_and_nothing_raw_comes_back() {
    let count: u64 = std::env::var("WHYLATE_ATTACKS").ok().and_then(|it| it.parse().ok()).unwrap_or(500);
    let folder = tempfile::tempdir().unwrap();
    make_run(&folder.path().join("run"));
    make_run(&folder.path().join("a\u{1b}[2J\u{202e}b"));
    fs::create_dir(folder.path().join("n".repeat(255))).unwrap();
    let servers =
        [None, Some("secret-of-sixteen")].map(|token| begin(folder.path(), Owners::OwnAndRoot, token));
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let mut statuses: BTreeMap<u16, u64> = BTreeMap::new();
    for number in 0..count {
        let mut path = chance.of(&PATHS).to_owned();
        for _ in 0..chance.number() % 4 {
            path.push_str(chance.of(&PARTS));
        }
        if chance.number().is_multiple_of(20) {
            path.push_str(&"x".repeat(40_000));
        }
        let mut head = format!("{} {path} HTTP/1.1\r\nConnection: close\r\n", chance.of(&METHODS));
        for _ in 0..chance.number() % 4 {
            head.push_str(chance.of(&HEADS));
            head.push_str("\r\n");
        }
        // A valid request now and then.
        if chance.number().is_multiple_of(3) {
            head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        }
        // An answer that goes on until the run ends, and a body that never arrives, have their own tests.
        if head.contains("/events") {
            continue;
        }
        let address = servers[(number % 2) as usize];
        let answer = ask(address, format!("{head}\r\n").as_bytes());
        let answer = String::from_utf8_lossy(&answer);
        *statuses.entry(status(&answer)).or_default() += 1;
        assert!(
            !answer.contains(['\u{1b}', '\u{202e}', '\u{7}']) || answer.contains("x-tar"),
            "{head:?}: {answer:?}"
        );
        assert!(!answer.contains("<script>alert(1)"), "{head:?}: {answer:?}");
        let location = answer.lines().find_map(|line| line.strip_prefix("location: "));
        let leads_out = |it: &str| !it.starts_with('/') || it.starts_with("//") || it.starts_with("/\\");
        assert!(!location.is_some_and(leads_out), "{head:?}: {location:?}");
        assert!(status(&answer) < 500 || status(&answer) == 503, "{head:?}: {answer:?}");
    }
    eprintln!("{count} requests, answers by status (0: closed): {statuses:?}");
    let redirected = get(servers[1], "//evil.example/?token=secret-of-sixteen");
    assert!(redirected.contains("location: /evil.example/"), "{redirected}");
    let refused = get(servers[0], "/compare?side=run&side=a%1b%5b2J%e2%80%aeb");
    assert!(status(&refused) == 422 && body(&refused).contains("no comparison[2J"), "{refused:?}");
    assert_eq!(status(&get(servers[0], "/runs/run")), 200);
}

#[test]
fn silent_and_slow_clients_lose_their_connection_within_seconds_and_others_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    make_run(&folder.path().join("run"));
    let address = begin(folder.path(), Owners::OwnAndRoot, None);
    let begun = Instant::now();
    let heads: [&[u8]; 4] = [
        b"",
        b"GET / HTTP/1.1\r\nHost: local",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx",
        b"GET /runs.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    let mut open: Vec<TcpStream> = Vec::new();
    for head in heads.iter().cycle().take(120) {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(head).unwrap();
        open.push(stream);
    }
    // A client that sends a byte of its head each second.
    let mut trickle = TcpStream::connect(address).unwrap();
    let trickled = std::thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(40) && trickle.write_all(b"G").is_ok() {
            std::thread::sleep(Duration::from_millis(500));
        }
        begun.elapsed()
    });
    assert_eq!(status(&get(address, "/")), 200, "while they wait");
    for (nth, stream) in open.iter_mut().enumerate() {
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let is_closed =
            ended.is_ok() || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(is_closed, "connection {nth} is open after {:?}", begun.elapsed());
    }
    eprintln!("all closed after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert!(trickled.join().unwrap() < Duration::from_secs(25));
}

#[test]
fn a_request_is_answered_while_more_heads_wait_than_there_may_be_connections() {
    let folder = tempfile::tempdir().unwrap();
    make_run(&folder.path().join("run"));
    let address = begin(folder.path(), Owners::OwnAndRoot, None);
    let head = b"GET / HTTP/1.1\r\nHost: localhost\r\n";
    let connect = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
        stream.write_all(head).map(|()| stream)
    };
    // A connection that was answered and asks again after the others.
    let mut kept = connect().unwrap();
    let answered = |stream: &mut TcpStream| {
        stream.write_all(b"\r\n").unwrap();
        let mut seen = Vec::new();
        let mut bytes = [0; 4096];
        while !seen.ends_with(b"</html>\n") && !seen.ends_with(b"</html>") {
            let read = stream.read(&mut bytes).unwrap();
            assert_ne!(read, 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend(&bytes[..read]);
        }
        status(&String::from_utf8_lossy(&seen))
    };
    assert_eq!(answered(&mut kept), 200);
    let mut open = Vec::new();
    for number in 0..900 {
        open.extend(connect());
        if number % 150 == 149 {
            assert_eq!(status(&get(address, "/")), 200, "after {number} heads");
        }
    }
    kept.write_all(head).unwrap();
    assert_eq!(answered(&mut kept), 200);
    // The oldest were closed, and the newest may continue.
    let mut newest = open.pop().unwrap();
    assert_eq!(answered(&mut newest), 200);
    let mut rest = Vec::new();
    let oldest = open[0].read_to_end(&mut rest);
    assert!(oldest.is_ok() || oldest.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
    assert!(rest.is_empty());
}

/// The other user, as a process: this program again.
struct Attacker(Child);

impl Attacker {
    fn begin(top: &Path, place: &Path, victim: &Path) -> Self {
        let program = top.join("attacker");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(program);
        command.args(["swaps", "--exact"]).uid(OTHER_USER).gid(OTHER_USER).current_dir("/");
        command.env("WHYLATE_PLACE", place).env("WHYLATE_VICTIM", victim);
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
    let own = place.join("own");
    _ = fs::create_dir(&own);
    let plants = [own.join("link"), own.join("pipe"), own.join("folder")];
    _ = symlink(&victim, &plants[0]);
    _ = mknodat(CWD, &plants[1], FileType::Fifo, Mode::from_raw_mode(0o666), 0);
    _ = symlink(victim.parent().unwrap(), &plants[2]);
    let files =
        ["run.json", "manifest.jsonl", "labels.json", "traces/idle-1-1-1.dat", "intervals/000001.parquet"];
    let swap = |a: &Path, b: &Path| _ = renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE);
    for number in 0_usize.. {
        let (file, plant) = (place.join("run").join(files[number % files.len()]), &plants[number % 2]);
        for (a, b) in
            [(&file, plant), (&place.join("run/traces"), &plants[2]), (&place.join("run"), &plants[2])]
        {
            swap(a, b);
            std::thread::sleep(Duration::from_micros(100));
            swap(a, b);
        }
    }
}

#[test]
fn a_folder_that_another_user_changes_while_it_is_read_leaks_nothing_and_holds_nothing_up() {
    if !rustix::process::geteuid().is_root() {
        return skip(Need::Rights, "only root can act as two users");
    }
    let count: u64 = std::env::var("WHYLATE_ATTACKS").ok().and_then(|it| it.parse().ok()).unwrap_or(500);
    let top = tempfile::tempdir().unwrap();
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (place, secrets) = (top.path().join("runs"), top.path().join("secrets"));
    for folder in [&place, &secrets] {
        fs::create_dir(folder).unwrap();
    }
    let victim = secrets.join("shadow");
    for name in ["shadow", "idle-1-1-1.dat", "run.json"] {
        fs::write(secrets.join(name), SECRET).unwrap();
        fs::set_permissions(secrets.join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let run = place.join("run");
    make_run(&run);
    // Everything except the files themselves is open to the other user.
    for found in Folder::open(&place).unwrap().tree().unwrap() {
        let mode = if found.is_folder { 0o777 } else { 0o666 };
        fs::set_permissions(place.join(found.name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
    fs::hard_link(&victim, run.join("loads/hard.txt")).unwrap();
    fs::hard_link(&victim, run.join("traces/hard.dat")).unwrap();
    let _listener = UnixListener::bind(run.join(LIVE_SOCKET)).unwrap();
    chown(run.join(LIVE_SOCKET), Some(OTHER_USER), None).unwrap();
    let attacker = Attacker::begin(top.path(), &place, &victim);
    for owners in [Owners::OwnAndRoot, Owners::Anyone] {
        let address = begin(&place, owners, None);
        let (mut statuses, mut longest): (BTreeMap<u16, u64>, _) = (BTreeMap::new(), Duration::ZERO);
        let paths = [
            "/runs/run/archive.tar",
            "/runs/run/archive.tar",
            "/runs/run",
            "/",
            "/runs.json",
            "/runs/run/result.json",
            "/metrics",
        ];
        for number in 0..count / 2 {
            let begun = Instant::now();
            let answer = get(address, paths[number as usize % paths.len()]);
            longest = longest.max(begun.elapsed());
            *statuses.entry(status(&answer)).or_default() += 1;
            assert!(!answer.contains(SECRET), "{}", paths[number as usize % paths.len()]);
        }
        eprintln!("{owners:?}: answers by status {statuses:?}, the longest after {longest:?}");
        assert!(statuses.get(&200).is_some_and(|count| *count > 20), "{statuses:?}");
    }
    drop(attacker);
}

#[test]
fn pipes_devices_and_silent_sockets_in_a_run_hold_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    make_run(&run);
    let _silent = UnixListener::bind(run.join(LIVE_SOCKET)).unwrap();
    for name in
        ["labels.json", "result.json", "loads/out.txt", "traces/a.json", "traces/a.dat", "treatments.jsonl"]
    {
        _ = fs::remove_file(run.join(name));
        mknodat(CWD, run.join(name), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    }
    _ = mknodat(CWD, run.join("zero"), FileType::CharacterDevice, Mode::from_raw_mode(0o666), (1 << 8) | 5);
    let address = begin(folder.path(), Owners::OwnAndRoot, None);
    for _ in 0..20 {
        for path in
            ["/", "/runs/run", "/runs/run/archive.tar", "/runs/run/result.json", "/runs.json", "/metrics"]
        {
            assert_eq!(status(&get(address, path)), 200, "{path}");
        }
    }
    // Readers that leave make room, even if the run's socket never sends anything: there are more of them than the
    // limit.
    for _ in 0..300 {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /runs/run/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut first = [0; 12];
        stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
        stream.read_exact(&mut first).unwrap();
        assert!(
            &first == b"HTTP/1.1 200" || &first == b"HTTP/1.1 503",
            "{}",
            String::from_utf8_lossy(&first)
        );
    }
    std::thread::sleep(Duration::from_secs(1));
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /runs/run/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200", "those who have gone hold no place");
}
