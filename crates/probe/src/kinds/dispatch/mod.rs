//! The dispatch probe's thread: waits for an interrupt, looks at the clock, counts how late it runs.
//!
//! In: a source of interrupts at known or regular moments. Out: the time from the programmed moment of an interrupt to the
//! first instruction of the process that waited for it, and its parts if the kernel reports them ([`parts`]).

mod grid;
pub(crate) mod parts;

use super::{Kind, Place, Resolve, Station, with_parts};
use crate::child::recorder::Recorder;
use crate::child::{Failure, Team, Usage, Worker, end_of, prepare};
use crate::error::ProbeError;
use grid::{Arrival, Grid, Observed, Programmed};
use parts::{DISPATCH_PARTS, Parts, WHOLE_ONLY};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use whylate_bpf::{BpfError, DispatchSteps};
use whylate_core::plan::{DispatchPlan, DispatchSource};
use whylate_core::{MonoTime, Nanos, Warning, WarningCode};
use whylate_sys::interrupt_source::InterruptSource;
use whylate_sys::{clock, timer_file};

/// The dispatch probe on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DispatchSpec {
    pub source: DispatchSource,
    /// Time between two interrupts.
    pub interval: Nanos,
    /// A latency above it stops everything.
    pub break_above: Option<Nanos>,
    /// Whether each latency is divided into its parts, if the kernel lets the BPF programs run.
    pub parts: bool,
}

impl Resolve<DispatchPlan> for DispatchSpec {
    fn resolve(plan: &DispatchPlan, place: &mut Place<'_>) -> Result<Self, ProbeError> {
        (place.samples, place.hold_cpu_dma_latency) = (plan.samples, plan.hold_cpu_dma_latency);
        let source = plan.source;
        let interval = plan.period().map_err(ProbeError::Period)?;
        let is_own_timer = matches!(source, DispatchSource::Timerfd | DispatchSource::Nanosleep);
        if !is_own_timer && place.cpus.len() > 1 {
            return Err(ProbeError::OneCpuOnly { source_of_interrupts: source, cpus: place.cpus.clone() });
        }
        let in_softirq = matches!(source, DispatchSource::Timerfd | DispatchSource::Rtc);
        if in_softirq && place.facts.kernel.preemption == "PREEMPT_RT" {
            place.warnings.push(Warning::new(
                WarningCode::ExpiryInSoftirq,
                format!(
                    "a PREEMPT_RT kernel handles the expiry of {source} in its timer softirq thread, and \
                     latencies include the time to wake this thread"
                ),
            ));
        }
        if !source.tells_expiry() {
            place.warnings.push(Warning::new(
                WarningCode::ExpiryUnknown,
                format!(
                    "{source} does not report the programmed time of its interrupt: latencies count from the \
                     earliest of 64 interrupts, so each is too low by the smallest true latency"
                ),
            ));
        }
        Ok(Self { source, interval, break_above: plan.break_above, parts: plan.parts })
    }
}

impl Kind for DispatchSpec {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    fn period(&self) -> Option<Nanos> {
        Some(self.interval)
    }

    fn break_above(&self) -> Option<Nanos> {
        self.break_above
    }

    fn series(&self) -> Vec<Option<String>> {
        let parts: &[&str] = if self.parts { &DISPATCH_PARTS } else { &[] };
        with_parts(&self.source.to_string(), parts).collect()
    }

    fn steps(&self, warnings: &mut Vec<Warning>) -> Option<(DispatchSteps, OwnedFd)> {
        if self.parts { steps(warnings) } else { None }
    }

    fn worker<'a>(&self, station: &Station<'a>) -> Option<Box<dyn Worker + 'a>> {
        let (team, spec) = (station.team, station.team.spec);
        let (lane, part_lanes) = station.lanes.split_first()?;
        Some(Box::new(Dispatch {
            recorder: Recorder::new(*lane, team.header, self.break_above, spec),
            parts: Parts::new(team, part_lanes),
            source: self.source,
            interval: self.interval,
            warmup: spec.warmup,
            duration: spec.duration,
        }))
    }
}

/// The programs that report the parts of dispatches, with their table; a warning if the kernel does not let them run.
fn steps(warnings: &mut Vec<Warning>) -> Option<(DispatchSteps, OwnedFd)> {
    let started = DispatchSteps::start().and_then(|steps| {
        let table = steps.table()?;
        Ok((steps, table))
    });
    let explained = |error: BpfError| {
        let (code, text) = (WarningCode::DispatchWholeOnly, format!("{WHOLE_ONLY}: {error}"));
        warnings.push(match error {
            BpfError::Object(_) | BpfError::Program { .. } | BpfError::Map { .. } => {
                Warning::with_fix(code, text, "use a kernel with BPF and BTF (Linux 5.8 or later)")
            }
            // The other errors name their remedies.
            _ => Warning::new(code, text),
        });
    };
    started.map_err(explained).ok()
}

trait Source {
    fn wait(&mut self, next_ns: u64) -> Arrival;
    /// Prepares the next one, after the clock was read.
    #[inline(always)]
    fn ready(&mut self) {}
}

/// A timer of the thread's own, programmed again each time.
struct Sleep;

impl Source for Sleep {
    #[inline(always)]
    fn wait(&mut self, next_ns: u64) -> Arrival {
        clock::sleep_until(MonoTime(next_ns));
        Arrival::AsDue
    }
}

struct TimerFile(OwnedFd);

impl Source for TimerFile {
    #[inline(always)]
    fn wait(&mut self, _: u64) -> Arrival {
        counted(timer_file::wait_counted(&self.0))
    }
}

impl Source for InterruptSource {
    #[inline(always)]
    fn wait(&mut self, _: u64) -> Arrival {
        counted(Self::wait(self))
    }
    #[inline(always)]
    fn ready(&mut self) {
        self.enable_again();
    }
}

#[inline(always)]
fn counted(interrupts: u64) -> Arrival {
    if interrupts == 0 { Arrival::Nothing } else { Arrival::Counted(interrupts) }
}

/// Everything the thread needs while it measures.
struct Dispatch<'a> {
    recorder: Recorder<'a>,
    parts: Option<Parts<'a>>,
    source: DispatchSource,
    interval: Nanos,
    warmup: Nanos,
    duration: Nanos,
}

impl Worker for Dispatch<'_> {
    /// Measures from `start` on; the warm-up lies before it.
    fn measure(&mut self, team: &Team<'_>, start: MonoTime) -> Result<(), Failure> {
        let interval = self.interval.0;
        let first = start.0 - self.warmup.0 / interval * interval;
        let frequency = 1_000_000_000 / interval.max(1);
        let lacking = |error: io::Error| Failure::Unavailable(format!("dispatch: {}: {error}", self.source));
        match self.source {
            DispatchSource::Nanosleep => {
                self.both(team, &mut Sleep, Programmed::new(first, interval), start);
            }
            DispatchSource::Timerfd => {
                let timer = timer_file::start(MonoTime(first), self.interval).map_err(lacking)?;
                self.both(team, &mut TimerFile(timer), Programmed::new(first, interval), start);
            }
            DispatchSource::Rtc => {
                // The kernel starts the timer within the call: measured values are too late by at most this much.
                let before = clock::now().0;
                let mut clock = InterruptSource::rtc_periodic(frequency).map_err(lacking)?;
                self.both(team, &mut clock, Programmed::new(before + interval, interval), start);
            }
            DispatchSource::RtcUpdate => {
                let mut clock = InterruptSource::rtc_update().map_err(lacking)?;
                self.both(team, &mut clock, Observed::new(interval), start);
            }
            DispatchSource::Hpet => {
                let mut timer = InterruptSource::hpet(frequency).map_err(lacking)?;
                self.both(team, &mut timer, Observed::new(interval), start);
            }
            DispatchSource::Uio(number) => {
                let mut device = InterruptSource::uio(number).map_err(lacking)?;
                self.both(team, &mut device, Observed::new(interval), start);
            }
        }
        Ok(())
    }
}

impl Dispatch<'_> {
    fn both<S: Source, G: Grid>(&mut self, team: &Team<'_>, source: &mut S, mut grid: G, start: MonoTime) {
        self.interrupts::<S, G, false>(source, &mut grid, start.0);
        let usage = Usage::begin();
        self.recorder.lane.begin().store(start.0, Relaxed);
        self.interrupts::<S, G, true>(source, &mut grid, end_of(start, self.duration).0);
        self.recorder.lane.end().store(clock::now().0, Relaxed);
        usage.end(&self.recorder.lane);
        // This comes before the source is closed. A PREEMPT_RT kernel handles the clock's timer in a thread of priority 1,
        // which this thread may just have preempted. Closing the clock waits for that thread in a busy loop of the kernel.
        prepare::reschedule(team, true);
    }

    /// Takes the interrupts until `end_ns`.
    #[inline(never)]
    fn interrupts<S: Source, G: Grid, const COUNTED: bool>(
        &mut self,
        source: &mut S,
        grid: &mut G,
        end_ns: u64,
    ) {
        let mut number = 0u64;
        let mut now = clock::now().0;
        while now < end_ns && grid.next_ns() < end_ns && !self.recorder.is_stopped() {
            let arrival = source.wait(grid.next_ns());
            now = clock::now().0;
            let steps = self.parts.as_mut().and_then(Parts::last);
            let Some(late) = grid.take(now, arrival) else { continue };
            source.ready();
            if COUNTED {
                if let (Some(parts), Some(steps)) = (&self.parts, steps) {
                    parts.count(steps, G::IS_PROGRAMMED.then(|| now - late.by_ns), now);
                }
                if self.recorder.count(now, late.by_ns, number) {
                    break;
                }
                if late.interrupts > 1 {
                    self.recorder.miss(late.interrupts - 1);
                }
            }
            number += late.interrupts;
        }
    }
}
