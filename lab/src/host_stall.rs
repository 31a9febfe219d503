//! Stalls of a guest by its host: a real-time thread takes the host's CPU on which the guest runs. That thread's own
//! record of its time is the truth.

use crate::error::LabError;
use crate::guest::{Guest, Running};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use whylate_core::{CpuId, CpuSet};
use whylate_sys::schedule::{self, Scheduling};

/// Above everything that emulates a guest, below what the host cannot do without.
const PRIORITY: u32 = 50;
/// The lengths, one after another.
const LENGTHS_US: [u64; 6] = [500, 20_000, 1_000, 5_000, 2_000, 10_000];
/// The pauses between them: no multiple of a probe's interval, nor of each other.
const PAUSES_US: [u64; 3] = [170_300, 193_700, 151_100];

/// A stall by the host, on the guest's CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostStall {
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// A thread of the host that takes a CPU again and again; times are those of the host's wall clock.
#[derive(Debug)]
pub struct Thief {
    thread: JoinHandle<Result<Vec<HostStall>, String>>,
    is_stopped: Arc<AtomicBool>,
}

impl Thief {
    /// Starts to take a CPU of the host that many times.
    #[must_use]
    pub fn start(cpu: CpuId, stalls: usize) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&is_stopped);
        let thread = thread::spawn(move || {
            let refused =
                |error: std::io::Error| format!("cannot start a real-time thread on the host: {error}");
            schedule::pin_this_thread(&CpuSet::from_iter([cpu])).map_err(refused)?;
            schedule::schedule_this_thread(Scheduling::Fifo(PRIORITY)).map_err(refused)?;
            let nth = |all: &[u64], number: usize| Duration::from_micros(all[number % all.len()]);
            let take = |number| {
                thread::sleep(nth(&PAUSES_US, number));
                let (begin_ns, begin) = (wall_ns(SystemTime::now()), Instant::now());
                while begin.elapsed() < nth(&LENGTHS_US, number) {
                    std::hint::spin_loop();
                }
                HostStall { begin_ns, end_ns: wall_ns(SystemTime::now()) }
            };
            Ok((0..stalls).take_while(|_| !is_over.load(Ordering::Relaxed)).map(take).collect())
        });
        Self { thread, is_stopped }
    }

    /// Ends it after the present stall; returns all stalls.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn stop(self) -> Result<Vec<HostStall>, LabError> {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.wait()
    }

    /// Waits for the last stall; returns all of them.
    ///
    /// # Errors
    /// [`LabError::NotThere`] if the host refuses this process a real-time thread.
    pub fn wait(self) -> Result<Vec<HostStall>, LabError> {
        let stalls = self.thread.join().unwrap_or_else(|_| Err("the thread panicked".to_owned()));
        stalls.map_err(LabError::not_there)
    }
}

fn wall_ns(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Shell commands that make the guest write its clock into files again and again, for [`clock_difference_ns`].
pub const WRITE_CLOCK: &str = "python3 - <<'PYTHON'\nimport os, time\nfor nth in range(40):\n    \
    file = os.open(f\"{os.environ['OUT']}/clock{nth}\", os.O_WRONLY | os.O_CREAT)\n    \
    os.write(file, str(time.monotonic_ns()).encode())\n    os.fsync(file)\n    os.close(file)\n    time.sleep(0.01)\nPYTHON\n";

/// By how much the host's wall clock is ahead of the guest's CLOCK_MONOTONIC: the host stamps each file a moment after the guest read
/// its clock, so the smallest difference is the best.
///
/// # Errors
/// [`LabError::Form`] when a guest wrote none.
pub fn clock_difference_ns(files: &Path) -> Result<u64, LabError> {
    let difference = |nth: u32| {
        let path = files.join(format!("clock{nth}"));
        let guest_ns: u64 = std::fs::read_to_string(&path).ok()?.parse().ok()?;
        wall_ns(path.metadata().ok()?.modified().ok()?).checked_sub(guest_ns)
    };
    let least = (0..).map_while(difference).min();
    least.ok_or_else(|| LabError::Form { what: "the guest's clock", text: files.display().to_string() })
}

impl HostStall {
    /// The same on the clock of a guest.
    #[must_use]
    pub fn on_guest(self, difference_ns: u64) -> Self {
        let to_guest = |at_ns: u64| at_ns.saturating_sub(difference_ns);
        Self { begin_ns: to_guest(self.begin_ns), end_ns: to_guest(self.end_ns) }
    }

    #[must_use]
    pub fn length_ns(self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

impl Guest {
    /// Ties all threads of the emulator to one CPU of the host: if the counters of the host's CPUs differ, the clock
    /// of a guest that reads several of them runs too fast.
    pub fn tie_to(&mut self, host_cpu: CpuId) {
        for thread in self.threads() {
            // A thread that has ended meanwhile runs nowhere.
            let _ = schedule::pin_thread(thread, &CpuSet::from_iter([host_cpu]));
        }
    }
}

impl Running<'_> {
    /// What the script has put into `$OUT` so far.
    #[must_use]
    pub fn has_file(&self, name: &str) -> bool {
        self.files().join(name).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_difference_of_clocks_counts_and_is_taken_from_stalls() {
        let folder = tempfile::tempdir().unwrap();
        let now = wall_ns(SystemTime::now());
        for (nth, guest_ns) in [now - 5_000_000_000, now - 3_000_000_000].into_iter().enumerate() {
            std::fs::write(folder.path().join(format!("clock{nth}")), guest_ns.to_string()).unwrap();
        }
        let difference_ns = clock_difference_ns(folder.path()).unwrap();
        assert!((2_900_000_000..4_000_000_000).contains(&difference_ns), "{difference_ns}");
        let stall = HostStall { begin_ns: difference_ns + 7, end_ns: difference_ns + 9 };
        assert_eq!(stall.on_guest(difference_ns), HostStall { begin_ns: 7, end_ns: 9 });
        assert!(clock_difference_ns(&folder.path().join("nothing")).is_err());
    }
}
