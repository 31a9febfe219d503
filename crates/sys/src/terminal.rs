//! A terminal of this program's own, for commands that print each line at once only to a terminal.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Makes one: what is written to the second end can be read from the first.
///
/// # Errors
/// There are no terminals (/dev/ptmx), or none is free; before Linux 4.13.
pub fn open() -> io::Result<(File, OwnedFd)> {
    let flags = libc::O_NOCTTY | libc::O_CLOEXEC;
    let reader = File::options().read(true).write(true).custom_flags(flags).open("/dev/ptmx")?;
    let locked: libc::c_int = 0;
    // SAFETY: the first request reads one number during the call; the second one takes flags and returns a new file of
    // ours.
    unsafe {
        if libc::ioctl(reader.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::ioctl(reader.as_raw_fd(), libc::TIOCGPTPEER, libc::O_RDWR | flags) {
            number if number >= 0 => Ok((reader, OwnedFd::from_raw_fd(number))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn what_is_written_is_read_line_by_line() {
        let (mut reader, writer) = open().unwrap();
        let mut writer = File::from(writer);
        writer.write_all(b"a line\n").unwrap();
        let mut line = [0; 16];
        let length = reader.read(&mut line).unwrap();
        assert_eq!(&line[..length], b"a line\r\n");
    }
}
