//! The local socket on which a running `whylate histograms` takes requests.
//!
//! Each process has its own socket, named by its process id, in a folder that only its user can enter; the socket has
//! mode 0600. A request is one line of JSON, and so is the answer. Sockets without a listener are leftovers of killed
//! processes; the next process removes them.

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use whylate_core::result::HistogramKind;
use whylate_core::{CpuSet, Warning, WarningCode};
use whylate_host::environment::folder_variable;

/// Environment variable with the folder of the sockets: for tests.
const FOLDER_VARIABLE: &str = "WHYLATE_RUNTIME_DIR";
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be accepted.
const REST: Duration = Duration::from_millis(100);
const LINE_MAX: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Act {
    Enable,
    Disable,
    Reset,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) act: Act,
    /// Empty: all.
    pub(super) kinds: Vec<HistogramKind>,
    /// Absent: all measured ones.
    pub(super) cpus: Option<CpuSet>,
}

/// An answer: what was done, or why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Done(String),
    Error(String),
}

/// Where the answer to a request goes.
pub(super) struct Answer {
    stream: UnixStream,
}

impl Answer {
    pub(super) fn send(mut self, outcome: std::result::Result<String, String>) {
        let reply = outcome.map_or_else(Reply::Error, Reply::Done);
        // The other side may be gone; then it does not need the answer.
        if let Ok(line) = serde_json::to_string(&reply) {
            let _ = self.stream.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// Takes requests; dropping it removes the socket.
pub(super) struct Server {
    path: PathBuf,
    requests: Receiver<(Request, Answer)>,
}

impl Server {
    /// Makes the socket. Without one the histograms still count, and a warning says what is missing.
    pub(super) fn start() -> (Option<Self>, Option<Warning>) {
        match Self::listen() {
            Ok(server) => (Some(server), None),
            Err(error) => {
                let text =
                    format!("this process cannot take requests to enable, disable or reset: {error:#}");
                (None, Some(Warning::new(WarningCode::NoControlSocket, text)))
            }
        }
    }

    fn listen() -> Result<Self> {
        let folder = folder();
        make_private(&folder)?;
        remove_stale(&folder);
        let path = socket_of(&folder, std::process::id());
        let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => accept(stream, &sender),
                    // Usually out of file descriptors: wait before the next attempt.
                    Err(_) => std::thread::sleep(REST),
                }
            }
        });
        Ok(Self { path, requests })
    }

    /// The next request, if there is one.
    pub(super) fn next(&self) -> Option<(Request, Answer)> {
        self.requests.try_recv().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The next process recognises and removes a leftover socket.
        let _ = fs::remove_file(&self.path);
    }
}

/// Reads a request and passes it on; answers an unreadable one at once.
fn accept(stream: UnixStream, requests: &Sender<(Request, Answer)>) {
    let times = stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
    let mut line = String::new();
    let read = times.and_then(|()| BufReader::new((&stream).take(LINE_MAX)).read_line(&mut line));
    let answer = Answer { stream };
    match read.map_err(anyhow::Error::from).and_then(|_| Ok(serde_json::from_str(&line)?)) {
        Ok(request) => {
            // The receiver is gone only while the process is ending.
            let _ = requests.send((request, answer));
        }
        Err(error) => answer.send(Err(format!("cannot read the request: {error}"))),
    }
}

/// Sends the request to the running process, or to `pid`, and returns its answer.
pub(super) fn tell(request: &Request, pid: Option<u32>) -> Result<String> {
    let folder = folder();
    let (pid, stream) = connect(&folder, pid)?;
    let context = || format!("process {pid} does not answer");
    stream.set_read_timeout(Some(PATIENCE)).with_context(context)?;
    stream.set_write_timeout(Some(PATIENCE)).with_context(context)?;
    let line = serde_json::to_string(request)?;
    (&stream).write_all(format!("{line}\n").as_bytes()).with_context(context)?;
    let mut answer = String::new();
    BufReader::new((&stream).take(LINE_MAX)).read_line(&mut answer).with_context(context)?;
    match serde_json::from_str(&answer).with_context(context)? {
        Reply::Done(text) => Ok(text),
        Reply::Error(text) => Err(anyhow!(text)),
    }
}

/// The only process that listens, or `pid`.
fn connect(folder: &Path, pid: Option<u32>) -> Result<(u32, UnixStream)> {
    if folder.exists() {
        check_private(folder)?;
    }
    let mut running = remove_stale(folder);
    if let Some(pid) = pid {
        running.retain(|(other, _)| *other == pid);
    }
    match (running.pop(), running.is_empty(), pid) {
        (Some(one), true, _) => Ok(one),
        (None, _, None) => bail!("no `whylate histograms` of this user is running ({})", folder.display()),
        (None, _, Some(pid)) => bail!("process {pid} is not a running `whylate histograms` of this user"),
        (Some((last, _)), false, _) => {
            let pids: Vec<String> = running.iter().map(|(pid, _)| pid.to_string()).collect();
            bail!("several processes are running: {} and {last}; choose one with --pid", pids.join(", "))
        }
    }
}

/// The processes that listen; sockets without a listener are removed.
fn remove_stale(folder: &Path) -> Vec<(u32, UnixStream)> {
    let mut running = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name
            .to_str()
            .and_then(|name| name.strip_prefix("histograms-")?.strip_suffix(".socket")?.parse().ok())
        else {
            continue;
        };
        match UnixStream::connect(entry.path()) {
            Ok(stream) => running.push((pid, stream)),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                // Another process may have removed it just now.
                let _ = fs::remove_file(entry.path());
            }
            Err(_) => {}
        }
    }
    running.sort_by_key(|(pid, _)| *pid);
    running
}

fn socket_of(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("histograms-{pid}.socket"))
}

/// The folder of this user's sockets.
fn folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = || {
        let own = set("XDG_RUNTIME_DIR").map(|folder| folder.join("whylate"));
        own.unwrap_or_else(|| PathBuf::from(format!("/tmp/whylate-{}", geteuid().as_raw())))
    };
    folder_variable(FOLDER_VARIABLE)
        .unwrap_or_else(|| if geteuid().is_root() { PathBuf::from("/run/whylate") } else { user() })
}

/// Makes the folder, for this user alone.
fn make_private(folder: &Path) -> Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        Ok(()) => check_private(folder),
        Err(error) => Err(error).with_context(|| format!("cannot make {}", folder.display())),
    }
}

/// Refuses a folder into which others could have put sockets.
fn check_private(folder: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(folder).with_context(|| folder.display().to_string())?;
    let is_own = metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    if !is_own {
        bail!("{} is not a folder that only this user can write to; remove it", folder.display());
    }
    Ok(())
}
