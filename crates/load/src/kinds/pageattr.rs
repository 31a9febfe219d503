//! The pageattr load: buffers that the kernel takes out of its cached mapping, for which it flushes every CPU.

use super::events::{Act, Acts, Keys};
use crate::error::LoadError;
use std::io;
use std::path::Path;
use std::time::Instant;
use whylate_core::CpuSet;
use whylate_core::plan::{BufferSource, PageattrPlan};
use whylate_host::interrupts::Counts;
use whylate_sys::disturb::pages::{Buffers, Origin};
use whylate_sys::drm::Card;
use whylate_sys::schedule;

/// A read of a line that has just been read takes longer than this only if the memory is not cached.
const UNCACHED_NS: f64 = 40.0;
/// How many buffers are made to see whether other CPUs are interrupted: at least half of them must do so.
const TRIED: u64 = 16;
/// How often that is tried.
const ROUNDS: usize = 3;
/// What to do without such a device.
const FIX: &str =
    "load a driver with write-combining buffers (`modprobe vgem`) as root, or use `source = \"secretmem\"`";

struct Filled {
    buffers: Buffers,
    how: String,
}

impl Filled {
    fn new(plan: &PageattrPlan) -> Result<Self, LoadError> {
        match (plan.source, &plan.device) {
            (BufferSource::Secretmem, _) => Self::secret(plan),
            (BufferSource::Auto, None) => Self::any_card(plan).or_else(|card| {
                let both = |secret| LoadError::Unavailable(format!("{card}; {secret}"));
                Self::secret(plan).map_err(both)
            }),
            (_, None) => Self::any_card(plan),
            (_, Some(device)) => Self::card(plan, device)
                .map_err(|why| LoadError::Unavailable(format!("the pageattr load: {why}; {FIX}"))),
        }
    }

    fn secret(plan: &PageattrPlan) -> Result<Self, LoadError> {
        let buffers = Buffers::new(Origin::Secret, plan.size.0 as usize, plan.reuse).map_err(|error| {
            let why = match error.raw_os_error() {
                // ENOSYS.
                Some(38) => "this kernel has no secret memory: boot with `secretmem.enable=1`".to_owned(),
                _ => format!("{error}; allow more locked memory (`ulimit -l`), or run whylate as root"),
            };
            LoadError::Unavailable(format!("the pageattr load: secret memory: {why}"))
        })?;
        Ok(Self { buffers, how: Self::how(plan, "secret memory") })
    }

    fn any_card(plan: &PageattrPlan) -> Result<Self, LoadError> {
        let none = |why: String| LoadError::Unavailable(format!("the pageattr load: {why}; {FIX}"));
        let paths = Card::paths().map_err(|error| none(error.to_string()))?;
        let mut tried = Vec::new();
        for path in paths {
            match Self::card(plan, &path) {
                Ok(filled) => return Ok(filled),
                Err(why) => tried.push(why),
            }
        }
        Err(none(if tried.is_empty() { "/dev/dri has no card".to_owned() } else { tried.join("; ") }))
    }

    /// Buffers of that card, if they are write-combining.
    fn card(plan: &PageattrPlan, path: &Path) -> Result<Self, String> {
        let name = path.display().to_string();
        let card = Card::open(path).map_err(|error| format!("{name}: {error}"))?;
        let made = |reuse| {
            Buffers::new(Origin::Card(card.clone()), plan.size.0 as usize, reuse)
                .map_err(|error| format!("{name} cannot allocate dumb buffers: {error}"))
        };
        let evidence = write_combining(&mut made(false)?)
            .map_err(|error| format!("{name}: {error}"))?
            .ok_or_else(|| {
                format!(
                    "buffers of {name} interrupt no other CPU: they are cached, or the driver does not \
                     change the kernel's own mapping of the buffers (vgem of Linux 5.10 does not)"
                )
            })?;
        let how = Self::how(plan, &format!("{name} ({evidence})"));
        Ok(Self { buffers: made(plan.reuse)?, how })
    }

    fn how(plan: &PageattrPlan, of: &str) -> String {
        let what = if plan.reuse { "one buffer" } else { "buffers" };
        let done =
            if plan.reuse { "mapped once, written repeatedly" } else { "mapped, written and released" };
        format!("{what} of {} of {of} {done}", plan.size)
    }
}

/// How it shows that buffers are not mapped cached: reads are slow, or every other CPU is interrupted for each buffer
/// (an emulator models no caches). `None` if nothing shows it.
fn write_combining(buffers: &mut Buffers) -> io::Result<Option<String>> {
    let read_ns = buffers.read_ns()?;
    if read_ns > UNCACHED_NS {
        return Ok(Some(format!("write-combining: {read_ns:.0} ns per read")));
    }
    let least = std::thread::scope(|scope| scope.spawn(|| least_interrupted(buffers)).join());
    let least = least.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(least.filter(|calls| *calls >= TRIED / 2).map(|_| "write-combining: CPUs are interrupted".to_owned()))
}

/// How often the CPU with the fewest function-call interrupts got one while buffers were made, beyond what it got in
/// as much time without. This CPU is not counted. The result is the least of some rounds, since others interrupt all
/// CPUs, too, for example when the kernel's code is changed. Call it on a thread of its own, which stays on its CPU,
/// since its own CPU is not interrupted. A thread that restores its former CPUs while another one is shielded would
/// stay there when the shield is gone.
fn least_interrupted(buffers: &mut Buffers) -> io::Result<Option<u64>> {
    let here = schedule::current_cpu();
    schedule::pin_this_thread(&CpuSet::single(here))?;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let online: CpuSet = read("/sys/devices/system/cpu/online").trim().parse().unwrap_or_default();
    let counts = || Counts::parse(&read("/proc/interrupts"), "");
    let calls = |counts: &Counts, cpu| counts.of("CAL", cpu).unwrap_or(0);
    let mut least = None;
    for _ in 0..ROUNDS {
        let (before, begin) = (counts(), Instant::now());
        for _ in 0..TRIED {
            buffers.turn()?;
        }
        let (between, took) = (counts(), begin.elapsed());
        std::thread::sleep(took);
        let after = counts();
        let beyond = |cpu| {
            let (with, without) = (
                calls(&between, cpu).saturating_sub(calls(&before, cpu)),
                calls(&after, cpu).saturating_sub(calls(&between, cpu)),
            );
            with.saturating_sub(without)
        };
        let others = online.iter().filter(|cpu| *cpu != here);
        let of_round = others.map(beyond).min();
        least = least.into_iter().chain(of_round).min();
    }
    Ok(least)
}

impl Act for Filled {
    fn describe(&self) -> String {
        self.how.clone()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.buffers.turn()?;
        Ok(1)
    }
}

impl Acts for PageattrPlan {
    const NAME: &'static str = "pageattr";
    fn unit(&self) -> &'static str {
        "buffers_per_s"
    }
    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: None, rate: self.rate.as_pace() }
    }
    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        Ok(Box::new(Filled::new(self)?))
    }
    fn check(&self) -> Result<(), LoadError> {
        Filled::new(self).map(drop)
    }
}
