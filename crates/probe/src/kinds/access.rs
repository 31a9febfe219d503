//! The access probe's thread: sleep until the next period, follow a random chain through its data, look at the clock.
//!
//! What it measures: the time of each pass, from its first load to its last, and whatever interrupted it. The first pass of a
//! period brings back what other tasks have displaced; the later passes are the same task undisturbed. It does not measure
//! how late the task woke up, and which of the loads missed the caches.

use super::{Kind, Place, Resolve, Station};
use crate::child::recorder::Recorder;
use crate::child::{Failure, Team, Usage, Worker, end_of};
use crate::error::ProbeError;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::Relaxed;
use whylate_copy::{Chase, LINE_BYTES, Random};
use whylate_core::plan::{ACCESS_AGAIN, ACCESS_FIRST, AccessPlan};
use whylate_core::quantity::{ACCESSES, Quantities};
use whylate_core::{MonoTime, Nanos};
use whylate_sys::clock;
use whylate_sys::memory::Buffer;

/// Accesses of a pass if the plan names none: a pass over a larger working set would take longer than its period.
const ACCESSES_MAX: u64 = 16_384;

/// The access probe on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccessSpec {
    pub working_set_bytes: u64,
    pub accesses: u64,
    pub passes: u32,
    pub interval: Nanos,
}

impl Resolve<AccessPlan> for AccessSpec {
    fn resolve(plan: &AccessPlan, place: &mut Place<'_>) -> Result<Self, ProbeError> {
        (place.samples, place.hold_cpu_dma_latency) = (plan.samples, plan.hold_cpu_dma_latency);
        let mut working_set_bytes = 0;
        for cpu in place.cpus.iter().filter_map(|cpu| place.facts.cpu(cpu)) {
            working_set_bytes = working_set_bytes.max(plan.working_set.resolve(cpu)?.0);
        }
        let lines = working_set_bytes / LINE_BYTES as u64;
        let accesses = plan.accesses.map_or(lines.min(ACCESSES_MAX), u64::from).max(1);
        Ok(Self { working_set_bytes, accesses, passes: plan.passes, interval: plan.interval })
    }
}

impl Kind for AccessSpec {
    fn name(&self) -> &'static str {
        "access"
    }

    fn quantities(&self) -> Quantities {
        Quantities::default().with(ACCESSES, self.accesses)
    }

    fn series(&self) -> Vec<Option<String>> {
        let again = (self.passes > 1).then(|| Some(ACCESS_AGAIN.to_owned()));
        std::iter::once(Some(ACCESS_FIRST.to_owned())).chain(again).collect()
    }

    fn worker<'a>(&self, station: &Station<'a>) -> Option<Box<dyn Worker + 'a>> {
        let (spec, header) = (station.team.spec, station.team.header);
        let mut data =
            Buffer::allocate((self.working_set_bytes as usize).max(LINE_BYTES), false, None).ok()?;
        Chase::new(data.as_words_mut(), &mut Random::new(clock::now().0))?;
        let recorder = |lane| Recorder::new(lane, header, None, spec);
        Some(Box::new(Access {
            first: recorder(*station.lanes.first()?),
            again: station.lanes.get(1).map(|lane| recorder(*lane)),
            data,
            accesses: self.accesses as usize,
            passes: self.passes,
            interval: self.interval,
            warmup: spec.warmup,
            duration: spec.duration,
        }))
    }
}

/// Everything the thread needs while it measures.
struct Access<'a> {
    first: Recorder<'a>,
    again: Option<Recorder<'a>>,
    data: Buffer,
    accesses: usize,
    passes: u32,
    interval: Nanos,
    warmup: Nanos,
    duration: Nanos,
}

impl Worker for Access<'_> {
    /// Measures from `start` on; the warm-up lies before it.
    fn measure(&mut self, _: &Team<'_>, start: MonoTime) -> Result<(), Failure> {
        let Self { first, again, data, accesses, passes, interval, warmup, duration } = self;
        let mut walk = Walk { chase: Chase::laid(data.as_words()), accesses: *accesses };
        let mut next = start.0 - warmup.0 / interval.0 * interval.0;
        walk.pass();
        let mut usage = None;
        let end = end_of(start, *duration);
        let mut period = 0;
        while next < end.0 && !first.is_stopped() {
            clock::sleep_until(MonoTime(next));
            let counts = next >= start.0;
            if counts && usage.is_none() {
                usage = Some(Usage::begin());
                first.lane.begin().store(start.0, Relaxed);
            }
            let (now, time) = walk.pass();
            let mut is_last = counts && first.count(now, time, period);
            for _ in 1..*passes {
                let (now, time) = walk.pass();
                if let Some(again) = again.as_mut().filter(|_| counts) {
                    is_last |= again.count(now, time, period);
                }
            }
            if is_last {
                break;
            }
            // A period that its passes have used up is left out: other tasks have not had the CPU.
            let now = clock::now().0;
            let periods = now.saturating_sub(next) / interval.0 + 1;
            next += periods * interval.0;
            period += periods;
        }
        first.lane.end().store(clock::now().0, Relaxed);
        if let Some(usage) = usage {
            usage.end(&first.lane);
        }
        Ok(())
    }
}

struct Walk<'d> {
    chase: Chase<'d>,
    accesses: usize,
}

impl Walk<'_> {
    /// When a pass ended, and how long it took.
    #[inline(always)]
    fn pass(&mut self) -> (u64, u64) {
        let begin = clock::now().0;
        self.chase.walk(self.accesses);
        let end = clock::now().0;
        (end, end - begin)
    }
}
