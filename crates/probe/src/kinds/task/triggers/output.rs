//! The output of the started program: it is read here, and passed on.

use super::inbox::Watcher;
use super::lines::{Rule, TriggerLines};
use super::stream::{PassedOn, follow};
use rustix::fs::{Mode, OFlags, fstat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::io::{self, stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;

/// Reads what a program writes from now on to the streams that this process gave it.
///
/// # Errors
/// When the kernel gives no pipe, no terminal or no thread.
pub(super) fn read(command: &mut Command, rules: &[Rule]) -> io::Result<Vec<Watcher>> {
    let (out, err) = (stdout(), stderr());
    let (out, err) = (out.as_fd(), err.as_fd());
    let (reader, writer) = stream_like(out)?;
    // Where both are the same, their order has to stay the same.
    let is_same = fstat(out).ok().zip(fstat(err).ok()).is_some_and(|(out, err)| {
        (out.st_dev, out.st_ino, out.st_rdev) == (err.st_dev, err.st_ino, err.st_rdev)
    });
    let mut watchers = vec![pass_on(reader, out, rules)?];
    if is_same {
        command.stderr(writer.try_clone()?);
    } else {
        let (reader, writer) = stream_like(err)?;
        watchers.push(pass_on(reader, err, rules)?);
        command.stderr(writer);
    }
    command.stdout(writer);
    Ok(watchers)
}

fn pass_on(reader: OwnedFd, to: BorrowedFd<'_>, rules: &[Rule]) -> io::Result<Watcher> {
    let (lines, passed_on) = (TriggerLines::new(rules.to_vec()), PassedOn::new(to.try_clone_to_owned()?));
    Watcher::start("trigger output", move |stop| follow(&reader, lines, Some(passed_on), stop))
}

/// The two ends of a pipe; of a terminal if `like` is one, since programs write to terminals line by line.
fn stream_like(like: BorrowedFd<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
    if !isatty(like) {
        return Ok(pipe_with(PipeFlags::CLOEXEC)?);
    }
    let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&reader)?;
    unlockpt(&reader)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let writer = rustix::fs::open(ptsname(&reader, Vec::new())?.as_c_str(), flags, Mode::empty())?;
    // The terminal to which the bytes are passed on changes the ends of lines, and this one must not.
    let mut settings = tcgetattr(&writer)?;
    settings.make_raw();
    tcsetattr(&writer, OptionalActions::Now, &settings)?;
    if let Ok(size) = tcgetwinsize(like) {
        tcsetwinsize(&writer, size)?;
    }
    Ok((reader, writer))
}

#[cfg(test)]
mod tests {
    use super::super::lines::tests::{come, lines};
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_program_on_a_terminal_writes_to_a_terminal_that_changes_no_byte() {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let like = rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let (reader, writer) = stream_like(like.as_fd()).unwrap();
        assert!(isatty(&writer));
        rustix::io::write(&writer, b"late\nno end").unwrap();
        let mut bytes = [0; 50];
        let length = rustix::io::read(&reader, &mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"late\nno end", "no carriage return");
        rustix::io::write(&writer, b"late\n").unwrap();
        drop(writer);
        let (inbox, of) = lines("^late$");
        // The end of a terminal is an error, which ends the loop.
        follow(&reader, of, None, &AtomicBool::new(false));
        assert_eq!(come(&inbox).len(), 1);
    }
}
