//! Ways for a message to get from one thread to another and back.
//!
//! A link has two directions: a question goes there, an answer comes back. A message is one 64-bit number; each
//! differs from the one before in its direction, and [`STOP`] is the last. Nothing here allocates after it was made,
//! and each step is the system calls of its method and nothing else.
//!
//! A descriptor is tried at the start. If it fails later (only a closed loopback interface causes that), this counts
//! as [`STOP`].

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::AsFd;
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::futex;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// The message after which a side no longer waits.
pub const STOP: u64 = 1 << 62;

/// A link between two threads.
pub trait Link: Sync {
    fn ask(&self, question: u64);
    /// Waits for a question other than `last`.
    fn await_question(&self, last: u64) -> u64;
    fn answer(&self, answer: u64);
    /// Waits for an answer other than `last`.
    fn await_answer(&self, last: u64) -> u64;
}

/// One direction of a link.
trait Channel: Sync {
    fn send(&self, value: u64);
    /// Waits for a message other than `last`.
    fn receive(&self, last: u64) -> u64;
}

/// Two channels of one kind.
#[derive(Debug, Default)]
pub struct Duplex<C> {
    there: C,
    back: C,
}

impl<C: Channel> Link for Duplex<C> {
    #[inline(always)]
    fn ask(&self, question: u64) {
        self.there.send(question);
    }
    #[inline(always)]
    fn await_question(&self, last: u64) -> u64 {
        self.there.receive(last)
    }
    #[inline(always)]
    fn answer(&self, answer: u64) {
        self.back.send(answer);
    }
    #[inline(always)]
    fn await_answer(&self, last: u64) -> u64 {
        self.back.receive(last)
    }
}

/// Shared words that the waiting side reads without pause.
///
/// Without a pause instruction, too: it takes up to 140 cycles, which would be a part of the figure.
pub type Spin = Duplex<Word>;

/// A word on cache lines of its own (two, since x86 fetches them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Word(AtomicU64);

impl Channel for Word {
    #[inline(always)]
    fn send(&self, value: u64) {
        self.0.store(value, Release);
    }

    #[inline(always)]
    fn receive(&self, last: u64) -> u64 {
        loop {
            let now = self.0.load(Acquire);
            if now != last {
                return now;
            }
        }
    }
}

/// Shared words with a private futex each.
pub type Futex = Duplex<FutexWord>;

#[derive(Debug, Default)]
#[repr(align(128))]
pub struct FutexWord {
    /// Counts the messages: what the kernel compares.
    count: AtomicU32,
    value: AtomicU64,
}

impl Channel for FutexWord {
    #[inline(always)]
    fn send(&self, value: u64) {
        self.value.store(value, Relaxed);
        self.count.store(self.count.load(Relaxed).wrapping_add(1), Release);
        // Only a wrong address could give an error.
        let _ = futex::wake(&self.count, futex::Flags::PRIVATE, 1);
    }

    #[inline(always)]
    fn receive(&self, last: u64) -> u64 {
        loop {
            // The count first: a message that comes after it was read makes the kernel refuse the wait.
            let count = self.count.load(Acquire);
            let now = self.value.load(Relaxed);
            if now != last {
                return now;
            }
            let _ = futex::wait(&self.count, futex::Flags::PRIVATE, count, None);
        }
    }
}

/// File descriptors: eight bytes are written into one end and read from the other.
pub type Descriptors = Duplex<Direction>;

/// The two ends of a direction.
#[derive(Debug)]
pub struct Direction {
    write_end: OwnedFd,
    read_end: OwnedFd,
}

impl Channel for Direction {
    #[inline(always)]
    fn send(&self, value: u64) {
        // The pipe or buffer is never full: at most one message and STOP are in it.
        while write(&self.write_end, &value.to_ne_bytes()) == Err(Errno::INTR) {}
    }

    #[inline(always)]
    fn receive(&self, _: u64) -> u64 {
        let mut bytes = [0u8; 8];
        loop {
            match read(&self.read_end, &mut bytes) {
                Ok(8) => return u64::from_ne_bytes(bytes),
                Err(Errno::INTR) => {}
                _ => return STOP,
            }
        }
    }
}

impl Descriptors {
    /// Two eventfds.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn eventfds() -> io::Result<Self> {
        let direction = || -> io::Result<Direction> {
            let end = eventfd(0, EventfdFlags::CLOEXEC)?;
            Ok(Direction { read_end: end.try_clone()?, write_end: end })
        };
        Ok(Self { there: direction()?, back: direction()? })
    }

    /// Two pipes.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn pipes() -> io::Result<Self> {
        let direction = || -> io::Result<Direction> {
            let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
            Ok(Direction { write_end, read_end })
        };
        Ok(Self { there: direction()?, back: direction()? })
    }

    /// A pair of connected Unix stream sockets.
    ///
    /// # Errors
    /// When the process has no file descriptor left, or the kernel has no Unix sockets.
    pub fn unix_sockets() -> io::Result<Self> {
        let (asking, answering) = UnixStream::pair()?;
        Self::of_sockets(asking.into(), answering.into())
    }

    /// A pair of connected UDP sockets on 127.0.0.1; a datagram has been sent there and back.
    ///
    /// # Errors
    /// When the loopback interface is down or does not let datagrams through.
    pub fn udp_sockets() -> io::Result<Self> {
        let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let (asking, answering) = (socket()?, socket()?);
        asking.connect(answering.local_addr()?)?;
        answering.connect(asking.local_addr()?)?;
        for (from, to) in [(&asking, &answering), (&answering, &asking)] {
            to.set_read_timeout(Some(Duration::from_secs(1)))?;
            from.send(&[0; 8])?;
            to.recv(&mut [0; 8])?;
            to.set_read_timeout(None)?;
        }
        Self::of_sockets(asking.into(), answering.into())
    }

    fn of_sockets(asking: OwnedFd, answering: OwnedFd) -> io::Result<Self> {
        let there =
            Direction { write_end: asking.as_fd().try_clone_to_owned()?, read_end: answering.try_clone()? };
        Ok(Self { there, back: Direction { write_end: answering, read_end: asking } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::{Need, skip};

    fn answers_arrive(link: &dyn Link) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = 0;
                loop {
                    last = link.await_question(last);
                    if last == STOP {
                        break;
                    }
                    link.answer(last * 10);
                }
            });
            let mut last = 0;
            for question in 1..200 {
                link.ask(question);
                last = link.await_answer(last);
                assert_eq!(last, question * 10);
            }
            link.ask(STOP);
        });
    }

    #[test]
    fn every_link_carries_each_message_once_and_in_order() {
        answers_arrive(&Spin::default());
        answers_arrive(&Futex::default());
        answers_arrive(&Descriptors::eventfds().unwrap());
        answers_arrive(&Descriptors::pipes().unwrap());
        answers_arrive(&Descriptors::unix_sockets().unwrap());
        match Descriptors::udp_sockets() {
            Ok(sockets) => answers_arrive(&sockets),
            Err(error) => skip(
                Need::Machine("a machine with a loopback interface"),
                format!("the loopback interface does not work here: {error}"),
            ),
        }
    }
}
