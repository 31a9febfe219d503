//! The irq-thread load: real interrupts, of the disk that this program is stored on, the real-time clock, or timers.

use super::events::{Act, Acts, Keys};
use crate::error::LoadError;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use whylate_core::Nanos;
use whylate_core::plan::{EventPace, IrqSource, IrqThreadPlan};
use whylate_sys::interrupt_source::InterruptSource;
use whylate_sys::{clock, timer_file};

/// What is read at once: a multiple of every disk's block size.
const BLOCK: usize = 4096;
/// Rate of the real-time clock if none is asked for; its highest rate.
const RTC_HZ: f64 = 8192.0;
/// Period of a timer if no rate is asked for.
const TIMER_PERIOD_NS: f64 = 20_000.0;

/// A block at an address that direct reads accept.
#[repr(align(4096))]
struct Block([u8; BLOCK]);

/// Reads past the page cache: each is a request that the disk ends with an interrupt.
struct DiskReads {
    file: File,
    disk: String,
    block: Box<Block>,
    blocks: u64,
    next: u64,
}

impl DiskReads {
    fn open() -> io::Result<Self> {
        let file =
            File::options().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open("/proc/self/exe")?;
        let metadata = file.metadata()?;
        let device = metadata.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
        let Some(disk) = link.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        else {
            return Err(io::Error::other("whylate is not stored on a disk"));
        };
        let mut reads = Self {
            file,
            disk,
            block: Box::new(Block([0; BLOCK])),
            blocks: metadata.len() / BLOCK as u64,
            next: 0,
        };
        reads.turn()?;
        Ok(reads)
    }
}

impl Act for DiskReads {
    fn describe(&self) -> String {
        format!("direct reads (O_DIRECT) of 4 KiB from the disk {}", self.disk)
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.file.read_at(&mut self.block.0, self.next * BLOCK as u64)?;
        // Not adjacent blocks, so that requests are neither merged nor read ahead.
        self.next = (self.next + 37) % self.blocks.max(1);
        Ok(1)
    }
}

struct PeriodicInterrupts(InterruptSource, u64);

impl Act for PeriodicInterrupts {
    fn describe(&self) -> String {
        format!("the periodic interrupt of /dev/rtc0 at {} Hz", self.1)
    }
    fn turn(&mut self) -> io::Result<u64> {
        Ok(self.0.wait())
    }
}

struct Timer {
    timer: OwnedFd,
    period: Nanos,
}

impl Act for Timer {
    fn describe(&self) -> String {
        format!("a timer interrupt every {}", self.period)
    }
    fn turn(&mut self) -> io::Result<u64> {
        // A timerfd that was not read interrupts once, however often it would have expired.
        Ok(timer_file::wait_counted(&self.timer).min(1))
    }
}

/// The source that was asked for, or the first that works.
fn make(source: IrqSource, pace: EventPace, workers: usize) -> Result<Box<dyn Act>, LoadError> {
    let rate = match pace {
        EventPace::PerSecond(rate) => Some(rate / workers.max(1) as f64),
        EventPace::Full | EventPace::DutyCycle(_) => None,
    };
    let lacking = |what: &str, error: io::Error| {
        LoadError::Unavailable(format!(
            "the irq-thread load cannot use {what}: {error}; choose another source (disk, rtc, timer)"
        ))
    };
    let disk = || DiskReads::open().map(|reads| Box::new(reads) as Box<dyn Act>);
    let rtc = || {
        let frequency = rate.unwrap_or(RTC_HZ).clamp(1.0, RTC_HZ).round() as u64;
        InterruptSource::rtc_periodic(frequency)
            .map(|clock| Box::new(PeriodicInterrupts(clock, frequency)) as Box<dyn Act>)
    };
    let timer = || {
        let period = Nanos(rate.map_or(TIMER_PERIOD_NS, |rate| 1e9 / rate).max(1_000.0) as u64);
        let timer = timer_file::start(clock::now(), period);
        timer.map(|timer| Box::new(Timer { timer, period }) as Box<dyn Act>)
    };
    match source {
        IrqSource::Disk => disk().map_err(|error| lacking("direct reads from a disk", error)),
        IrqSource::Rtc => rtc().map_err(|error| lacking("the real-time clock", error)),
        IrqSource::Timer => timer().map_err(|error| lacking("a timer", error)),
        // The clock can be open once only.
        IrqSource::Auto if workers > 1 => {
            disk().or_else(|_| timer()).map_err(|error| lacking("a timer", error))
        }
        IrqSource::Auto => {
            disk().or_else(|_| rtc()).or_else(|_| timer()).map_err(|error| lacking("a timer", error))
        }
    }
}

impl Acts for IrqThreadPlan {
    const NAME: &'static str = "irq-thread";
    fn unit(&self) -> &'static str {
        "interrupts_per_s"
    }
    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: None, rate: self.rate.as_pace() }
    }
    fn act(&self, workers: usize) -> Result<Box<dyn Act>, LoadError> {
        make(self.source, self.rate, workers)
    }
    fn check(&self) -> Result<(), LoadError> {
        make(self.source, EventPace::Full, 1).map(drop)
    }
}
