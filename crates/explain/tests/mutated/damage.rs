//! Damage to a trace in memory.

use crate::truth::Truth;
use whylate_trace::event::{Context, Event, EventKind, Frames, Names, Symbol};
use whylate_trace::parse::ParseError;
use whylate_trace::reader::{Reader, Selection, TraceInfo};

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// A kind of damage.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
    None,
    /// This many of a thousand events are left out, one by one.
    Events(u64),
    /// A kind of event is left out.
    Kind(u64),
    /// Flags are cleared in this many of a thousand events; `true`: the trace has no flags at all.
    Flags(u64, bool),
    /// A CPU is left out.
    Cpu(u64),
    /// Only a part of the time remains.
    Cut(u64, u64),
    /// A CPU begins later or ends earlier than the others.
    CutCpu(u64, u64, bool),
    /// Lines in a row are left out.
    Hole(u64, u64),
    /// This many of a thousand events have a random time, and random durations.
    Times(u64),
}

impl Damage {
    pub(crate) fn draw(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::Events([2, 10, 50, 200, 500][random.below(5) as usize]),
            1 | 2 => Self::Kind(random.next()),
            3 => Self::Flags([20, 200, 1000][random.below(3) as usize], random.below(2) == 0),
            4 => Self::Cpu(random.next()),
            5 => Self::Cut(random.below(1000), random.below(1000)),
            6 => Self::CutCpu(random.next(), random.below(1000), random.below(2) == 0),
            _ => Self::Hole(random.below(1000), 1 + random.below(60)),
        }
    }

    fn apply(self, events: &mut Vec<Event>, random: &mut Random) {
        let (first, last) = match (events.first(), events.last()) {
            (Some(first), Some(last)) => (first.at_ns, last.at_ns),
            _ => return,
        };
        let moment = |part: u64| first + ((last - first) as u128 * u128::from(part) / 1000) as u64;
        let mut cpus: Vec<_> = events.iter().map(|event| event.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let cpu = |number: u64| cpus[(number % cpus.len() as u64) as usize];
        match self {
            Self::None => {}
            Self::Events(part) => events.retain(|_| random.below(1000) >= part),
            Self::Kind(number) => {
                let mut kinds: Vec<_> =
                    events.iter().map(|event| std::mem::discriminant(&event.kind)).collect();
                kinds.dedup();
                let kind = kinds[(number % kinds.len() as u64) as usize];
                events.retain(|event| std::mem::discriminant(&event.kind) != kind);
            }
            Self::Flags(part, unknown) => {
                for event in events.iter_mut().filter(|_| random.below(1000) < part) {
                    event.context = if unknown { Context::default() } else { cleared(event.context) };
                }
            }
            Self::Cpu(number) => events.retain(|event| event.cpu != cpu(number)),
            Self::Cut(one, other) => {
                let (from, to) = (moment(one.min(other)), moment(one.max(other)));
                events.retain(|event| (from..=to).contains(&event.at_ns));
            }
            Self::CutCpu(number, part, end) => {
                let at = moment(part);
                events.retain(|event| event.cpu != cpu(number) || (event.at_ns < at) == end);
            }
            Self::Times(part) => {
                for event in events {
                    if random.below(1000) < part {
                        event.at_ns = anywhen(last, random);
                        displace(&mut event.kind, last, random);
                    }
                }
            }
            Self::Hole(part, lines) => {
                let from = events.len() as u64 * part / 1000;
                let mut place = 0;
                events.retain(|_| {
                    place += 1;
                    place - 1 < from || place > from + lines
                });
            }
        }
    }
}

/// A time within the trace, at an end of all times, or near one.
fn anywhen(last: u64, random: &mut Random) -> u64 {
    match random.below(4) {
        0 => random.below(1_000),
        1 => u64::MAX - random.below(1_000),
        2 => random.next(),
        _ => random.below(last),
    }
}

fn displace(kind: &mut EventKind, last: u64, random: &mut Random) {
    use EventKind::{GraphExit, Hwlat, Nmi, Noise, NoiseGap, TimerExpire, TimerStart, Timerlat};
    match kind {
        TimerStart { expires_ns: at_ns, .. } | TimerExpire { now_ns: at_ns, .. } => {
            *at_ns = anywhen(last, random);
        }
        Noise { start_ns, duration_ns, .. } | NoiseGap { start_ns, duration_ns, .. } => {
            (*start_ns, *duration_ns) = (anywhen(last, random), anywhen(last, random));
        }
        Nmi { duration_ns, .. }
        | GraphExit { duration_ns, .. }
        | Timerlat { latency_ns: duration_ns, .. } => {
            *duration_ns = anywhen(last, random);
        }
        Hwlat { inner_ns, outer_ns, .. } => {
            (*inner_ns, *outer_ns) = (anywhen(last, random), anywhen(last, random));
        }
        EventKind::Osnoise(sample) => sample.noise_max_ns = anywhen(last, random),
        _ => {}
    }
}

/// Flags as on a machine that supports them but never sets them.
fn cleared(context: Context) -> Context {
    Context {
        irqs_off: context.irqs_off.map(|_| false),
        preempt_depth: context.preempt_depth.map(|_| 0),
        ..Context::default()
    }
}

/// A damaged trace.
pub(crate) struct Mutated<'t> {
    truth: &'t Truth,
    events: Vec<Event>,
    place: usize,
    selection: Selection,
}

impl<'t> Mutated<'t> {
    pub(crate) fn new(truth: &'t Truth, damage: Damage, random: &mut Random) -> Self {
        let mut events = truth.events.clone();
        damage.apply(&mut events, random);
        Self { truth, events, place: 0, selection: Selection::All }
    }
}

impl Reader for Mutated<'_> {
    fn info(&self) -> &TraceInfo {
        self.truth.reader.info()
    }

    fn names(&self) -> &Names {
        self.truth.reader.names()
    }

    fn seek(&mut self, from_ns: Option<u64>, selection: Selection) -> Result<(), ParseError> {
        self.place = self.events.partition_point(|event| Some(event.at_ns) < from_ns);
        self.selection = selection;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Event>, ParseError> {
        while let Some(event) = self.events.get(self.place) {
            self.place += 1;
            if self.selection == Selection::All || is_of_wakeups(&event.kind) {
                return Ok(Some(*event));
            }
        }
        Ok(None)
    }

    fn symbol(&self, symbol: Symbol) -> Option<(&str, u64)> {
        self.truth.reader.symbol(symbol)
    }

    fn frames(&self, frames: Frames) -> &[Symbol] {
        self.truth.reader.frames(frames)
    }
}

/// The events that show late wake-ups, as in the readers.
fn is_of_wakeups(kind: &EventKind) -> bool {
    use EventKind::{
        Hwlat, Lost, Migrate, NoiseGap, Osnoise, Print, PriorityInherited, Switch, TimerCancel, TimerExpire,
        TimerStart, Timerlat, Wakeup, Waking,
    };
    matches!(
        kind,
        Switch { .. }
            | Waking { .. }
            | Wakeup { .. }
            | Migrate { .. }
            | PriorityInherited { .. }
            | TimerStart { .. }
            | TimerCancel { .. }
            | TimerExpire { .. }
            | Print { .. }
            | Timerlat { .. }
            | Hwlat { .. }
            | Osnoise(_)
            | NoiseGap { .. }
            | Lost { .. }
    )
}
