//! Local sockets on which running processes of this program take requests.
//!
//! Each process has its own socket, named by what it does and its process id, in a folder that only its user can enter; the
//! socket has mode 0600. A request is one line, and so is the answer. Sockets without a listener are leftovers of killed
//! processes; the next process removes them.

use crate::environment::folder_variable;
use rustix::process::geteuid;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use whylate_core::order::InOrder;

/// Environment variable with the folder of the sockets: for tests.
const FOLDER_VARIABLE: &str = "WHYLATE_RUNTIME_DIR";
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);
const LINE_MAX: u64 = 64 << 10;

/// Why a request did not reach a process.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// No such process listens.
    #[error("{0}")]
    Absent(String),
    /// Several do, or the folder is not trusted, or the process does not answer.
    #[error("{0}")]
    Failed(String),
}

/// The socket of this process; dropping it removes the file.
pub struct Listening {
    path: PathBuf,
    /// The socket.
    pub listener: UnixListener,
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The next process recognises and removes a leftover socket.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes the socket of this process for requests to `what`, a word.
///
/// # Errors
/// When the folder cannot be made or belongs to another user; names the path.
pub fn listen(what: &str) -> io::Result<Listening> {
    let folder = folder();
    make_private(&folder)?;
    running(&folder, what);
    let path = folder.join(format!("{what}-{}.socket", std::process::id()));
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let listener = UnixListener::bind(&path).map_err(named)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(named)?;
    Ok(Listening { path, listener })
}

/// Reads the line of a request.
///
/// # Errors
/// When none comes in time.
pub fn read_line(stream: &UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)))?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_MAX)).read_line(&mut line)?;
    Ok(line)
}

/// Sends a line to the only process that listens, or to `pid`, and returns the line of the answer.
///
/// # Errors
/// [`SocketError`].
pub fn ask(what: &str, pid: Option<u32>, line: &str) -> Result<String, SocketError> {
    let (pid, mut stream) = connect(&folder(), what, pid)?;
    let silent = |error: io::Error| SocketError::Failed(format!("process {pid} does not answer: {error}"));
    stream.set_write_timeout(Some(PATIENCE)).map_err(silent)?;
    stream.write_all(format!("{line}\n").as_bytes()).map_err(silent)?;
    read_line(&stream).map_err(silent)
}

/// The only process that listens, or `pid`.
fn connect(folder: &Path, what: &str, pid: Option<u32>) -> Result<(u32, UnixStream), SocketError> {
    if folder.exists() {
        check_private(folder).map_err(|error| SocketError::Failed(error.to_string()))?;
    }
    let mut running = running(folder, what);
    if let Some(pid) = pid {
        running.retain(|(other, _)| *other == pid);
    }
    match (running.pop(), running.is_empty(), pid) {
        (Some(one), true, _) => Ok(one),
        (None, _, None) => Err(SocketError::Absent(format!(
            "no `whylate {what}` of this user is running ({})",
            folder.display()
        ))),
        (None, _, Some(pid)) => {
            Err(SocketError::Absent(format!("process {pid} is not a running `whylate {what}` of this user")))
        }
        (Some((last, _)), false, _) => {
            let pids: Vec<String> = running.iter().map(|(pid, _)| pid.to_string()).collect();
            let pids = pids.join(", ");
            Err(SocketError::Failed(format!(
                "several processes are running: {pids} and {last}; choose one with --pid"
            )))
        }
    }
}

/// The processes that listen; sockets without a listener are removed.
fn running(folder: &Path, what: &str) -> Vec<(u32, UnixStream)> {
    let mut running = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid =
            |name: &str| name.strip_prefix(what)?.strip_prefix('-')?.strip_suffix(".socket")?.parse().ok();
        let Some(pid) = name.to_str().and_then(pid) else { continue };
        match UnixStream::connect(entry.path()) {
            Ok(stream) => running.push((pid, stream)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Another process may have removed it just now.
                let _ = fs::remove_file(entry.path());
            }
            Err(_) => {}
        }
    }
    running.order_by_key(|(pid, _)| *pid);
    running
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
fn make_private(folder: &Path) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot make {}: {error}", folder.display()));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(named)?;
    check_private(folder)
}

/// Refuses a folder into which others could have put sockets.
fn check_private(folder: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    let is_own = metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    let refused = || {
        let folder = folder.display();
        let text = format!(
            "{folder} must be a folder that belongs to this user and that no other user can write to; remove {folder}, \
             and whylate creates a new folder"
        );
        Err(io::Error::other(text))
    };
    if is_own { Ok(()) } else { refused() }
}
