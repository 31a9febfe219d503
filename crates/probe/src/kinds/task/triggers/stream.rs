//! Triggers that are lines of a stream: the output of the started program, the systemd journal, the kernel's log.

use super::inbox::{Teller, Watcher};
use super::lines::TriggerLines;
use crate::error::ProbeError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use whylate_host::find_program;
use whylate_sys::{clock, process};

/// How long a thread waits for bytes before it looks whether it should end.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// A pipe that is ready takes that many bytes at once.
const AT_ONCE: usize = 4_096;
const KERNEL_LOG: &str = "/dev/kmsg";

/// Where the bytes of a stream go, in addition to their comparison.
pub(super) struct PassedOn {
    /// `None` after the other side was closed.
    to: Option<OwnedFd>,
}

impl PassedOn {
    pub(super) fn new(to: OwnedFd) -> Self {
        Self { to: Some(to) }
    }

    /// Writes all bytes, unless the other side was closed, or reads nothing when the watch has to end.
    fn write(&mut self, mut bytes: &[u8], stop: &AtomicBool) {
        while let Some(to) = self.to.as_ref().filter(|_| !bytes.is_empty()) {
            if !matches!(poll(&mut [PollFd::new(to, PollFlags::OUT)], Some(&PATIENCE)), Ok(1..)) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                continue;
            }
            match rustix::io::write(to, &bytes[..bytes.len().min(AT_ONCE)]) {
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                // The program still has to be able to write.
                Err(_) => self.to = None,
            }
        }
    }
}

/// Whether bytes can be read, or the end of the stream; waits for a moment.
fn is_ready(stream: &impl AsFd) -> bool {
    let mut wait = [PollFd::new(stream, PollFlags::IN)];
    matches!(poll(&mut wait, Some(&PATIENCE)), Ok(1..))
}

/// Reads a stream to its end, or until the flag is set and nothing is left.
pub(super) fn follow(
    stream: &OwnedFd,
    mut lines: TriggerLines,
    mut passed_on: Option<PassedOn>,
    stop: &AtomicBool,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        if !is_ready(stream) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            continue;
        }
        match rustix::io::read(stream, &mut *bytes) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            // A terminal ends with an error.
            Ok(0) | Err(_) => break,
            Ok(length) => {
                let at_ns = clock::now().0;
                if let Some(passed_on) = &mut passed_on {
                    passed_on.write(&bytes[..length], stop);
                }
                lines.push(at_ns, &bytes[..length]);
            }
        }
    }
    lines.finish();
}

/// The journal, read by `journalctl`.
pub(super) struct Journal {
    child: Child,
    _watcher: Watcher,
}

impl Drop for Journal {
    fn drop(&mut self) {
        // It is a child that was not waited for, so no other process can have its id.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for lines of the systemd journal.
///
/// # Errors
/// When there is no `journalctl`, or no journal that this user may read.
pub(super) fn journal(lines: TriggerLines, teller: Teller) -> Result<Journal, ProbeError> {
    const PROGRAM: &str = "journalctl";
    let path = std::env::var_os("PATH");
    let Some(program) = find_program(PROGRAM, path.as_deref()) else {
        let text =
            "journal: there is no `journalctl` here; for a log in a file use file:PATH:REGEX".to_owned();
        return Err(ProbeError::Unavailable(text));
    };
    let cannot = |error: std::io::Error| ProbeError::Failed(format!("cannot run `{PROGRAM}`: {error}"));
    if let Some(reason) = no_journal(&program).map_err(cannot)? {
        return Err(ProbeError::Unavailable(format!(
            "journal: {reason} For a log in a file use file:PATH:REGEX"
        )));
    }
    let mut command = Command::new(program);
    command.args(["--quiet", "--follow", "--lines=0", "--output=cat"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    process::end_with_this_thread(&mut command);
    let mut child = command.spawn().map_err(cannot)?;
    let Some(stream) = child.stdout.take().map(OwnedFd::from) else {
        return Err(cannot(std::io::Error::other("no output")));
    };
    let read = move |stop: &AtomicBool| {
        follow(&stream, lines, None, stop);
        if !stop.load(Ordering::Relaxed) {
            teller.fail(format!("`{PROGRAM}` ended, so later lines of the journal are no triggers"));
        }
    };
    let watcher = Watcher::start("trigger journal", read).map_err(cannot)?;
    Ok(Journal { child, _watcher: watcher })
}

/// What `journalctl` says if there is no journal, or none that this user may read: it ends with 0 then.
fn no_journal(program: &Path) -> std::io::Result<Option<String>> {
    let mut command = Command::new(program);
    command.args(["--lines=1", "--output=cat", "--no-pager"]).env("LC_ALL", "C").stdin(Stdio::null());
    let found = command.output()?;
    let said = [found.stdout, found.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().find(|line| line.starts_with("No journal files were")).map(str::to_owned))
}

/// Waits for lines of the kernel's log.
///
/// # Errors
/// When this user may not read it.
pub(super) fn kernel(mut lines: TriggerLines) -> Result<Watcher, ProbeError> {
    let cannot = |error: std::io::Error| {
        ProbeError::Unavailable(format!("cannot read {KERNEL_LOG}: {error}; run as root or with CAP_SYSLOG"))
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let log = rustix::fs::open(KERNEL_LOG, flags, Mode::empty()).map_err(|error| cannot(error.into()))?;
    rustix::fs::seek(&log, SeekFrom::End(0)).map_err(|error| cannot(error.into()))?;
    let read = move |stop: &AtomicBool| {
        let mut bytes = vec![0; 8 << 10];
        loop {
            if !is_ready(&log) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                continue;
            }
            match rustix::io::read(&log, &mut *bytes) {
                // TriggerLines were overwritten before they were read: the next read goes on behind them.
                Err(Errno::INTR | Errno::AGAIN | Errno::PIPE) => {}
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    lines.push(clock::now().0, message(&bytes[..length]));
                    lines.push(clock::now().0, b"\n");
                }
            }
        }
    };
    Watcher::start("trigger kernel", read).map_err(cannot)
}

/// The text of a record of /dev/kmsg: `6,1234,5678,-;text`, then lines with more about it.
fn message(record: &[u8]) -> &[u8] {
    let begin = record.iter().position(|byte| *byte == b';').map_or(0, |at| at + 1);
    let text = &record[begin..];
    &text[..text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::super::lines::tests::{come, lines};
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use whylate_core::result::TriggerRecord;

    #[test]
    fn every_byte_is_passed_on_and_lines_are_compared() {
        let (from, program) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (shown, to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (inbox, of) = lines("late");
        let written = b"on time\nlate 1\n\x00\xfe\x1b[2Jno end, late";
        rustix::io::write(&program, written).unwrap();
        drop(program);
        follow(&from, of, Some(PassedOn::new(to)), &AtomicBool::new(false));
        let mut read = [0; 100];
        let length = rustix::io::read(&shown, &mut read).unwrap();
        assert_eq!(&read[..length], written);
        let texts: Vec<String> = come(&inbox).into_iter().map(|it| it.1).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert_eq!(texts[0], "late 1");
    }

    #[test]
    fn a_closed_output_does_not_end_the_comparison() {
        let (from, program) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (shown, to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        drop(shown);
        let (inbox, of) = lines("late");
        let watcher =
            Watcher::start("test", move |stop| follow(&from, of, Some(PassedOn::new(to)), stop)).unwrap();
        // More than a pipe holds: the program would block if this did not read.
        let many = "late\n".repeat(100_000);
        let mut left = many.as_bytes();
        while !left.is_empty() {
            left = &left[rustix::io::write(&program, left).unwrap()..];
        }
        // The other end stays open, as that of a program that is left behind.
        drop(watcher);
        let mut records = [TriggerRecord::default()];
        let seen = inbox.take(&mut records).len() as u64 + records[0].count;
        assert_eq!(seen, 100_000);
    }

    #[test]
    fn a_line_of_the_kernel_is_its_text() {
        let record = b"4,1071,5140900,-;e1000e: eth0 NIC Link is Down; again\n SUBSYSTEM=net\n";
        assert_eq!(message(record), b"e1000e: eth0 NIC Link is Down; again");
        assert_eq!(message(b"no record"), b"no record");
    }

    #[test]
    fn a_machine_without_a_journal_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let said = |name: &str, script: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            no_journal(&path).unwrap()
        };
        let none = "No journal files were found.";
        let found = said("none", &format!("echo '{none}' >&2; echo '-- No entries --'"));
        assert_eq!(found.as_deref(), Some(none));
        assert_eq!(said("some", "echo 'an entry'"), None);
    }
}
