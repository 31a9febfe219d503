//! Locked clocks of NVIDIA's devices, through `nvidia-smi`.
//!
//! The driver accepts a locked clock and does not report it: no query of the library or of the tool gives it. So the
//! lock is recorded in a file below /run, which a reboot removes together with the lock. The file is written before
//! the clock is locked and removed after it is unlocked. A kill in between leaves a clock that counts as locked:
//! unlocking one that is not locked does nothing. The same holds if the tool gives no answer: its file stays.
//!
//! Only programs at fixed places are run, as root: the user's PATH is not used.

use std::io::{self, Read as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use whylate_host::HostRoot;

/// Where the driver's packages put it.
const PLACES: [&str; 3] = ["/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi"];
/// How long it may take: it waits for devices to wake up.
const WITHIN: Duration = Duration::from_secs(20);
/// The value of a clock that is not locked.
pub(crate) const UNLOCKED: &str = "unlocked";

/// The tool, as a path below `root`.
pub(crate) fn tool(root: &HostRoot) -> Option<&'static str> {
    PLACES.into_iter().find(|place| root.exists(place))
}

/// The highest graphics clock of a device, in MHz.
pub(crate) fn clock_max_mhz(root: &HostRoot, address: &str) -> io::Result<u32> {
    let query = ["--query-gpu=clocks.max.graphics", "--format=csv,noheader,nounits"];
    let text = run(root, &[&["-i", address][..], &query].concat())?;
    text.trim().parse().map_err(|_| io::Error::other(format!("nvidia-smi gave no clock: `{}`", text.trim())))
}

/// What the clock of a device is locked to: `MIN,MAX` in MHz, or [`UNLOCKED`].
pub(crate) fn locked(root: &HostRoot, address: &str) -> io::Result<String> {
    match std::fs::read_to_string(root.path(&note(address))) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(UNLOCKED.to_owned()),
        Err(error) => Err(error),
    }
}

/// Locks the clock of a device to `MIN,MAX`, or unlocks it.
pub(crate) fn lock(root: &HostRoot, address: &str, clocks: &str) -> io::Result<()> {
    let note = root.path(&note(address));
    if clocks == UNLOCKED {
        run(root, &["-i", address, "--reset-gpu-clocks"])?;
        return std::fs::remove_file(note);
    }
    std::fs::write(&note, format!("{clocks}\n"))?;
    match run(root, &["-i", address, &format!("--lock-gpu-clocks={clocks}")]) {
        Ok(_) => Ok(()),
        Err(failure) => {
            // What was refused needs no undoing; a tool that gave no answer may have locked the clock.
            if matches!(failure, Failure::Refused(_)) {
                drop(std::fs::remove_file(note));
            }
            Err(failure.into())
        }
    }
}

/// Why the tool did not do what it was asked to do.
enum Failure {
    /// It said so, or could not be started: nothing has changed.
    Refused(io::Error),
    /// It gave no answer, and may have done it.
    Unanswered(io::Error),
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) | Failure::Unanswered(error) => error,
        }
    }
}

fn note(address: &str) -> String {
    format!("/run/whylate-gpu-clock-{address}")
}

/// Runs the tool; an error has what it said.
fn run(root: &HostRoot, arguments: &[&str]) -> Result<String, Failure> {
    let place = tool(root)
        .ok_or_else(|| Failure::Refused(io::Error::new(io::ErrorKind::NotFound, "nvidia-smi is missing")))?;
    let mut command = Command::new(root.path(place));
    let command = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(Failure::Refused)?;
    let (status, said) = answer(&mut child).map_err(Failure::Unanswered)?;
    // nvidia-smi only warns about what a device cannot do, and goes on.
    if status.success() && !said.contains("not supported") {
        return Ok(said);
    }
    let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing");
    let error = io::Error::other(format!("`nvidia-smi {}` ({status}) printed: {line}", arguments.join(" ")));
    // A killed nvidia-smi has not reported what it changed.
    Err(if status.code().is_some() { Failure::Refused(error) } else { Failure::Unanswered(error) })
}

/// How it ended, and what it said until then.
fn answer(child: &mut Child) -> io::Result<(ExitStatus, String)> {
    let deadline = Instant::now() + WITHIN;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            // It may be stuck in the driver, where it cannot be killed: nothing waits for it.
            let _ = child.kill();
            return Err(io::Error::new(io::ErrorKind::TimedOut, "nvidia-smi does not answer"));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut said)?;
    }
    Ok((status, said))
}
