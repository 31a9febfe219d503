//! The round-trip probe's two threads: one asks and takes the time, the other answers.
//!
//! In: links between two CPUs, one for each method. Out: for each method the time from before the question is sent until
//! after the answer has come, and the time of each way if the counters of both CPUs agree. The answer is the moment at which
//! the other side had the question, so two reads of the counter are part of a round trip.

use super::RoundtripSpec;
use crate::child::recorder::BreakOff;
use crate::child::{Failure, Team, Usage, Worker, prepare};
use crate::kinds::Station;
use crate::layout::{Header, Lane, RingRecord, add};
use std::sync::atomic::Ordering::Relaxed;
use whylate_core::plan::RoundtripMethod;
use whylate_core::{Cycles, MonoTime, Nanos, Warning, WarningCode};
use whylate_sys::clock;
use whylate_sys::counter::{Calibration, Counter, Hardware, KernelClock};
use whylate_sys::message::{Descriptors, Futex, Link, STOP, Spin};

/// Until the reader knows the largest samples, a sample above the largest of this many before is a candidate.
const BLOCK: u32 = 1024;

/// One method's link.
enum AnyLink {
    Spin(Spin),
    Futex(Futex),
    Descriptors(Descriptors),
}

impl AnyLink {
    fn make(method: RoundtripMethod) -> std::io::Result<Self> {
        Ok(match method {
            RoundtripMethod::Spin => Self::Spin(Spin::default()),
            RoundtripMethod::Futex => Self::Futex(Futex::default()),
            RoundtripMethod::Eventfd => Self::Descriptors(Descriptors::eventfds()?),
            RoundtripMethod::Pipe => Self::Descriptors(Descriptors::pipes()?),
            RoundtripMethod::Unix => Self::Descriptors(Descriptors::unix_sockets()?),
            RoundtripMethod::Udp => Self::Descriptors(Descriptors::udp_sockets()?),
        })
    }

    fn as_link(&self) -> &dyn Link {
        match self {
            Self::Spin(link) => link,
            Self::Futex(link) => link,
            Self::Descriptors(link) => link,
        }
    }
}

/// What both threads share.
pub(crate) struct Exchange {
    links: Vec<(RoundtripMethod, Option<AnyLink>)>,
    calibration: Calibration,
    halves: bool,
    spin_ordinary: bool,
    hardware_counter: bool,
    break_above: Option<Nanos>,
}

impl Exchange {
    /// Makes the links. A method that does not work here is a warning if there are others.
    pub(super) fn new(spec: &RoundtripSpec, team: &Team<'_>) -> Self {
        let methods = &spec.methods;
        let link = |method: &RoundtripMethod| match AnyLink::make(*method) {
            Ok(link) => (*method, Some(link)),
            Err(error) => {
                let text = format!("roundtrip: {} cannot be measured: {error}", method.name());
                if methods.len() == 1 {
                    team.fail(Failure::Unavailable(text));
                } else {
                    team.warn(Warning::new(WarningCode::MethodUnavailable, text));
                }
                (*method, None)
            }
        };
        Self {
            links: methods.iter().map(link).collect(),
            calibration: Calibration::of_multiplier(spec.multiplier),
            halves: spec.halves,
            spin_ordinary: spec.spin_ordinary,
            hardware_counter: spec.hardware_counter,
            break_above: spec.break_above,
        }
    }

    /// Wakes both threads for the last time, wherever they wait.
    pub(crate) fn release(&self) {
        for link in self.links.iter().filter_map(|(_, link)| link.as_ref()).map(AnyLink::as_link) {
            link.ask(STOP);
            link.answer(STOP);
        }
    }

    /// Sets the scheduling that the method needs: spinning runs as an ordinary task if it would take the last housekeeping
    /// CPU.
    fn schedule(&self, team: &Team<'_>, method: RoundtripMethod) {
        prepare::reschedule(team, self.spin_ordinary && method == RoundtripMethod::Spin);
    }

    /// The answering thread, for all methods.
    fn answer<C: Counter>(&self, team: &Team<'_>, lane: &Lane<'_>) {
        let usage = Usage::begin();
        for (method, link) in &self.links {
            self.schedule(team, *method);
            match link {
                Some(AnyLink::Spin(link)) => self.serve::<C, _>(link),
                Some(AnyLink::Futex(link)) => self.serve::<C, _>(link),
                Some(AnyLink::Descriptors(link)) => self.serve::<C, _>(link),
                None => {}
            }
        }
        usage.end_of_peer(lane);
    }

    /// Answers with the moment at which the question arrived, or with the question if the clocks cannot be compared.
    #[inline(never)]
    fn serve<C: Counter, L: Link>(&self, link: &L) {
        let mut question = 0;
        loop {
            question = link.await_question(question);
            if question == STOP {
                return;
            }
            link.answer(if self.halves { C::now_in_order().0 } else { question });
        }
    }
}

/// The first thread asks, the second one answers.
pub(super) fn worker<'a>(station: &Station<'a>) -> Option<Box<dyn Worker + 'a>> {
    let (team, lanes, exchange) = (station.team, station.lanes, station.exchange?);
    if station.index > 0 {
        return Some(Box::new(Answerer { exchange, lane: *lanes.first()? }));
    }
    let spec = team.spec;
    let samples_max = spec.samples_max.unwrap_or(u64::MAX);
    let (header, warmup, duration) = (team.header, spec.warmup, spec.duration);
    let break_off = BreakOff::new(header, exchange.break_above, spec);
    Some(Box::new(Asker { exchange, header, lanes, warmup, duration, samples_max, break_off }))
}

struct Answerer<'a> {
    exchange: &'a Exchange,
    lane: Lane<'a>,
}

impl Worker for Answerer<'_> {
    fn measure(&mut self, team: &Team<'_>, _: MonoTime) -> Result<(), Failure> {
        if self.exchange.hardware_counter {
            self.exchange.answer::<Hardware>(team, &self.lane);
        } else {
            self.exchange.answer::<KernelClock>(team, &self.lane);
        }
        Ok(())
    }
}

impl Worker for Asker<'_> {
    fn measure(&mut self, team: &Team<'_>, start: MonoTime) -> Result<(), Failure> {
        if self.exchange.hardware_counter {
            self.ask_all::<Hardware>(team, start);
        } else {
            self.ask_all::<KernelClock>(team, start);
        }
        Ok(())
    }
}

/// Everything the asking thread needs while it measures.
struct Asker<'a> {
    exchange: &'a Exchange,
    header: Header<'a>,
    /// For each method the whole, and the two ways if they are measured.
    lanes: &'a [Lane<'a>],
    warmup: Nanos,
    duration: Nanos,
    samples_max: u64,
    break_off: BreakOff<'a>,
}

impl Asker<'_> {
    /// Measures with one method after another; those that are left share the time that is left.
    fn ask_all<C: Counter>(&mut self, team: &Team<'_>, start: MonoTime) {
        let exchange = self.exchange;
        let end = start.0.saturating_add(self.duration.0);
        let lanes_each = if exchange.halves { 3 } else { 1 };
        clock::sleep_until(MonoTime(start.0 - self.warmup.0));
        let usage = Usage::begin();
        let count = exchange.links.len();
        for (index, ((method, link), lanes)) in
            exchange.links.iter().zip(self.lanes.chunks(lanes_each)).enumerate()
        {
            exchange.schedule(team, *method);
            let now = clock::now().0;
            let window = end.saturating_sub(now.max(start.0)) / (count - index) as u64;
            // The first method's warm-up lies before the start, that of the others is taken from their time.
            let warm_until = if now < start.0 { start.0 } else { now + self.warmup.0.min(window / 10) };
            let times = (warm_until, now.max(start.0) + window);
            match link {
                Some(AnyLink::Spin(link)) => self.ask::<C, _>(link, lanes, times),
                Some(AnyLink::Futex(link)) => self.ask::<C, _>(link, lanes, times),
                Some(AnyLink::Descriptors(link)) => self.ask::<C, _>(link, lanes, times),
                None => {}
            }
        }
        if let Some(first) = self.lanes.first() {
            usage.end(first);
        }
    }

    /// One method: warm-up until the first of the times, samples until the second.
    fn ask<C: Counter, L: Link>(&mut self, link: &L, lanes: &[Lane<'_>], (warm_until, end): (u64, u64)) {
        let warm_until = self.ticks_at::<C>(warm_until);
        let answered = self.rounds::<C, L, false>(link, lanes, (1, 0), warm_until);
        let end = self.ticks_at::<C>(end);
        self.rounds::<C, L, true>(link, lanes, answered, end);
        link.ask(STOP);
    }

    /// The counter's value at a moment of CLOCK_MONOTONIC.
    fn ticks_at<C: Counter>(&self, moment: u64) -> u64 {
        let left = Nanos(moment.saturating_sub(clock::now().0));
        C::now().0 + self.exchange.calibration.cycles(left).0
    }

    /// Round trips until `end`, at least one; takes and gives the next question and the last answer.
    #[inline(never)]
    fn rounds<C: Counter, L: Link, const COUNTED: bool>(
        &mut self,
        link: &L,
        lanes: &[Lane<'_>],
        (mut question, mut answer): (u64, u64),
        end: u64,
    ) -> (u64, u64) {
        let mut candidates = Candidates::default();
        loop {
            let sent = C::now_in_order().0;
            link.ask(question);
            answer = link.await_answer(answer);
            let received = C::now_in_order().0;
            question += 1;
            if answer == STOP {
                break;
            }
            if COUNTED && self.count(lanes, &mut candidates, sent, answer, received) {
                break;
            }
            if received >= end || self.header.stop().load(Relaxed) != 0 {
                break;
            }
        }
        (question, answer)
    }

    /// Counts one round trip; returns whether it was the last.
    #[inline(always)]
    fn count(
        &mut self,
        lanes: &[Lane<'_>],
        candidates: &mut Candidates,
        sent: u64,
        answered: u64,
        received: u64,
    ) -> bool {
        let nanos = |from: u64, to: u64| self.exchange.calibration.nanos(Cycles(to.saturating_sub(from))).0;
        let whole = nanos(sent, received);
        let mut samples = 0;
        if let [lane, ways @ ..] = lanes {
            samples = lane.count_sample(whole);
            let is_broken = self.break_off.is_above(whole);
            if candidates.is_one(whole, lane.floor().load(Relaxed)) || is_broken {
                let at = clock::now().0;
                if is_broken {
                    self.break_off.mark(whole);
                }
                lane.push(RingRecord { at, value: whole, sample: samples - 1 });
            }
            if is_broken {
                self.break_off.now(whole);
                return true;
            }
            if let [there, back] = ways {
                if (sent..=received).contains(&answered) {
                    there.count_sample(nanos(sent, answered));
                    back.count_sample(nanos(answered, received));
                } else {
                    add(lane.disorder(), 1);
                }
            }
        }
        samples >= self.samples_max
    }
}

/// Which samples may be among the largest.
#[derive(Default)]
struct Candidates {
    /// The largest of the block before, and of this one.
    before: u64,
    so_far: u64,
    in_block: u32,
}

impl Candidates {
    /// Above `floor` once the reader has set one; before that, above everything of the block before.
    #[inline(always)]
    fn is_one(&mut self, nanos: u64, floor: u64) -> bool {
        if floor > 0 {
            return nanos >= floor;
        }
        let is_one = nanos > self.before && nanos > self.so_far;
        self.so_far = self.so_far.max(nanos);
        self.in_block += 1;
        if self.in_block >= BLOCK {
            (self.before, self.so_far, self.in_block) = (self.so_far, 0, 0);
        }
        is_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_few_and_hold_the_largest() {
        let mut candidates = Candidates::default();
        let values = (0..100_000u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 50);
        let mut taken = Vec::new();
        for value in values.clone() {
            if candidates.is_one(value, 0) {
                taken.push(value);
            }
        }
        assert_eq!(taken.iter().max(), values.max().as_ref());
        assert!(taken.len() < 1_000, "{}", taken.len());
        assert!(candidates.is_one(5, 5) && !candidates.is_one(4, 5));
    }
}
