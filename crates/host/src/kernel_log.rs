//! The log of the running kernel, through /dev/kmsg.
//!
//! The kernel keeps it in a ring (`log_buf_len`); what is older is gone. Reading needs CAP_SYSLOG where
//! `kernel.dmesg_restrict` is 1.

use crate::HostRoot;
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use whylate_kmsg::{KernelLog, read_lines};

const PATH: &str = "/dev/kmsg";
/// The kernel refuses to cut a record.
const RECORD_BYTES_MAX: usize = 16 << 10;

/// Everything in the ring.
///
/// # Errors
/// There is no /dev/kmsg, or it may not be read.
pub fn read(root: &HostRoot) -> io::Result<KernelLog> {
    read_lines(records(opened(root)?))
}

/// The log from a moment on.
pub struct LogSince(File);

impl LogSince {
    /// From now on; `None` if it cannot be read.
    pub fn now(root: &HostRoot) -> Option<Self> {
        let file = opened(root).ok()?;
        seek(&file, SeekFrom::End(0)).ok()?;
        Some(Self(file))
    }

    /// What the kernel wrote since then, or since the last call.
    ///
    /// # Errors
    /// Those of the file.
    pub fn messages(&self) -> io::Result<KernelLog> {
        read_lines(records(self.0.try_clone()?))
    }
}

fn opened(root: &HostRoot) -> io::Result<File> {
    let file = open(root.path(PATH), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    Ok(File::from(file))
}

fn records(file: File) -> BufReader<Records> {
    BufReader::with_capacity(RECORD_BYTES_MAX, Records(file))
}

/// One record at each read; at the end, the next one does not exist yet.
struct Records(File);

impl Read for Records {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                // Records were overwritten before they were read: the next read goes on behind them.
                Err(error)
                    if error.kind() == ErrorKind::BrokenPipe || error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}
