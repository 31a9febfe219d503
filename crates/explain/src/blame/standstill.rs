//! What late timers show about a silence. Either the whole machine stood still (firmware or a hypervisor stopped every CPU at
//! once), or the CPU's own interrupts were disabled although no event says so.
//!
//! Silence alone proves nothing: an idle CPU is silent, too. But if a timer of another CPU was also due in the silence and
//! also came late, more than the task's CPU stopped. Two CPUs with interrupts disabled look the same (one spins for a lock that
//! the other one holds), so one of the two must have been where interrupts are taken.
//!
//! The flags of events within show that interrupts were disabled. If a function records no events in that time, the CPU's own
//! timer shows it: it was due in the silence and came after it.

use crate::blame::account::Piece;
use crate::blame::label::Labeller;
use crate::blame::piece::Blame;
use crate::confidence::{CONCLUDED, LEFT_OVER, LIKELY};
use crate::states::stacks::PathId;
use crate::states::state::{Knowledge, Level, Span};
use crate::vocabulary;
use crate::window::Window;
use std::collections::{BTreeMap, BinaryHeap};
use whylate_core::CpuId;
use whylate_core::result::CauseKind;
use whylate_trace::event::EventKind;
use whylate_trace::parse::ParseError;
use whylate_trace::reader::{Reader, Selection};

/// Shorter ones are ignored: other CPUs may well be late by this much for their own reasons.
const LEAST_NS: u64 = 20_000;
/// The part of the silence by which another CPU's timer has to be late, and in which another CPU has to be silent.
const PART: f64 = 0.5;
/// What changes of a cause is short if this many of its length are less than all of the cause.
const SHORT_PARTS: u64 = 10;
/// A timer interrupt in a guest may take this long.
const ON_TIME_NS: u64 = 50_000;
/// From the entry of the timer interrupt to the handler of its timer.
const HANDLER_NS: u64 = 10_000;
/// Idle states above this one may stop the CPU's own timer, so that another CPU has to wake it.
const IDLE_STATE_TICKING_MAX: u32 = 1;

/// Looks for the names of a guest, and the events that are read between two of them.
const LOOKS_MAX: usize = 16;
const EVENTS_BETWEEN_LOOKS: usize = 1 << 14;

/// Corrects the kind of pieces in which a timer's interrupt did not come: the machine stood still, or interrupts were disabled.
pub(crate) fn relabel(pieces: &mut [Piece], labeller: &Labeller<'_>) {
    if !pieces.iter().any(|piece| is_open(piece) || is_held_back(piece)) {
        return;
    }
    let timers = LateTimers::of(labeller.window);
    for piece in pieces.iter_mut().filter(|piece| is_held_back(piece)) {
        if let Some(span) = piece
            .detail
            .span(labeller.states)
            .filter(|span| interrupts_were_off(piece, span, &timers, labeller))
        {
            let reason =
                "a timer of the CPU expired while kernel code ran, and the timer interrupt came late";
            let label = labeller.by(CauseKind::IrqsOff, &span.state, "interrupts disabled", LIKELY, reason);
            relabel_one(piece, label.blame, label.what);
        }
    }
    if labeller.is_virtual {
        below_hypervisor_all(pieces, &timers, labeller);
    }
    for piece in pieces.iter_mut().filter(|piece| is_open(piece)) {
        if stood_still(piece, &timers, labeller) {
            let (kind, reason) = match labeller.is_virtual {
                true => (
                    CauseKind::HostStall,
                    "no CPU of this virtual machine did anything, and timers of several CPUs were late",
                ),
                false => (
                    CauseKind::Hardware,
                    "no CPU did anything, and timers of several CPUs were late: firmware or a hypervisor",
                ),
            };
            let blame = Blame::new(kind, CONCLUDED, reason);
            relabel_one(piece, blame, "the whole machine stood still".to_owned());
        }
    }
}

/// The kind and the actor of a piece.
type CauseOf = (Option<&'static str>, Option<String>);

/// A short silence within a long cause leaves the cause as certain as it was.
fn below_hypervisor_all(pieces: &mut [Piece], timers: &LateTimers, labeller: &Labeller<'_>) {
    let of_cause =
        |piece: &Piece| -> CauseOf { (piece.blame.kind.map(CauseKind::name), piece.blame.actor.clone()) };
    // The whole of each cause, and what of it changes.
    let mut lengths: BTreeMap<CauseOf, (u64, u64)> = BTreeMap::new();
    let mut changed = Vec::new();
    for (nth, piece) in pieces.iter().enumerate() {
        let length = lengths.entry(of_cause(piece)).or_default();
        length.0 += piece.length();
        if is_open(piece) || is_held_back(piece) {
            let mut lowered = piece.clone();
            below_hypervisor(&mut lowered, timers, labeller);
            if lowered.blame.evidence != piece.blame.evidence {
                length.1 += piece.length();
                changed.push((nth, of_cause(piece), lowered));
            }
        }
    }
    for (nth, cause, lowered) in changed {
        if lengths.get(&cause).is_some_and(|(all, part)| part.saturating_mul(SHORT_PARTS) >= *all) {
            pieces[nth] = lowered;
        }
    }
}

/// Whether the names in a trace say that its machine was the guest of a hypervisor.
///
/// Until then only windows and wake-ups were read, and the names that show it (of devices, of the hypervisor's functions) may
/// be elsewhere. The start of the trace is read for them.
pub(crate) fn is_virtual(reader: &mut dyn Reader) -> Result<bool, ParseError> {
    let tells = |reader: &dyn Reader| reader.names().iter().any(|(_, name)| vocabulary::is_of_guest(name));
    reader.seek(None, Selection::All)?;
    for _ in 0..LOOKS_MAX {
        if tells(reader) {
            return Ok(true);
        }
        for _ in 0..EVENTS_BETWEEN_LOOKS {
            let Some(event) = reader.next()? else { return Ok(tells(reader)) };
            // Names of functions are read when they are asked for.
            if let EventKind::Function { function, .. } | EventKind::GraphEntry { function, .. } = event.kind
                && reader.symbol(function).is_some_and(|(name, _)| vocabulary::is_of_guest(name))
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// In a virtual machine, time in which no CPU did anything is more likely the hypervisor's than a thread's. A claim from
/// flags or the order of events is withdrawn, a claim from a function becomes less sure.
///
/// Silence alone does not show that a thread which kept the CPU was stopped: kernel code is silent, too. A timer of the CPU
/// that was late by the silence shows it.
fn below_hypervisor(piece: &mut Piece, timers: &LateTimers, labeller: &Labeller<'_>) {
    let by_event = |span: &Span| {
        let state = &span.state;
        state.irqs_off == Knowledge::ByEvent || state.preempt_off == Knowledge::ByEvent
    };
    let Some(span) = piece.detail.span(labeller.states).filter(|span| !by_event(span)) else { return };
    if ran_at_end(span, labeller) || !all_silent(piece, labeller) || timers.ends_on_time(piece, labeller) {
        return;
    }
    let state = &span.state;
    let in_function = !state.user
        && (state.path != PathId::ROOT || !labeller.interrupted(span).is_empty())
        && state.pid != Some(0);
    let in_handler = matches!(state.level, Level::HardIrq(_) | Level::Softirq(_));
    if in_function || in_handler {
        piece.blame.confidence = piece.blame.confidence.min(LIKELY);
        let more = "no CPU did anything meanwhile: a hypervisor may have stopped the machine";
        piece.blame.evidence = format!("{}; {more}", piece.blame.evidence).into();
        return;
    }
    if is_held_back(piece) && !timers.is_late_behind(piece) {
        piece.blame.confidence = piece.blame.confidence.min(LEFT_OVER);
        let more = "the function was not recorded. A hypervisor may have stopped the CPU, but no timer of \
                    the CPU was late";
        piece.blame.evidence = format!("{}; {more}", piece.blame.evidence).into();
        return;
    }
    let reason = "no CPU of this virtual machine did anything: the hypervisor, which the trace does not show, probably stopped the CPUs";
    relabel_one(
        piece,
        Blame::new(CauseKind::HostStall, LIKELY, reason),
        "nothing happened on any CPU".to_owned(),
    );
}

/// Whether the event at the end of a span shows that the CPU ran, in user mode with interrupts on: after a stop, the pending
/// interrupt comes before anything else.
pub(crate) fn ran_at_end(span: &Span, labeller: &Labeller<'_>) -> bool {
    let end = labeller.window.events.get(span.events.1).map(|event| event.kind);
    span.state.level == Level::Thread
        && matches!(end, Some(EventKind::PageFault { user: true, .. } | EventKind::SyscallEnter { .. }))
}

/// Whether all CPUs were silent for most of a piece. One CPU alone shows nothing about the others, and a trace that begins
/// later shows nothing at all.
fn all_silent(piece: &Piece, labeller: &Labeller<'_>) -> bool {
    let (from, to) = (piece.from, piece.to);
    if labeller.window.events.first().is_none_or(|first| first.at_ns > from) {
        return false;
    }
    let least = ((to - from) as f64 * PART) as u64;
    let spans = &labeller.states.spans;
    spans.len() > 1 && spans.values().all(|spans| silence(spans, from, to).is_some_and(|(ns, _)| ns >= least))
}

fn relabel_one(piece: &mut Piece, blame: Blame, what: String) {
    piece.blame = blame;
    (piece.detail.what, piece.detail.need) = (what, None);
}

/// Whether the machine may have stopped in it, including in a handler or in code with interrupts disabled.
fn is_open(piece: &Piece) -> bool {
    use CauseKind::{HostStall, IdleExit, Irq, IrqsOff, TimerLate, Unattributed};
    let kind =
        matches!(piece.blame.kind, Some(HostStall | TimerLate | IdleExit | Unattributed | Irq | IrqsOff));
    kind && piece.length() >= LEAST_NS
}

/// Whether a thread of lower priority kept the CPU: it was not preempted, or no reschedule was requested.
fn is_held_back(piece: &Piece) -> bool {
    let kind = matches!(piece.blame.kind, Some(CauseKind::PreemptOff | CauseKind::Throttled));
    kind && piece.length() >= LEAST_NS
}

fn interrupts_were_off(piece: &Piece, span: &Span, timers: &LateTimers, labeller: &Labeller<'_>) -> bool {
    let in_kernel = span.state.level == Level::Thread && !takes_interrupts(span, labeller);
    in_kernel && timers.is_late_behind(piece)
}

/// The timers that were late enough to explain a piece.
#[derive(Debug, Default)]
struct LateTimers {
    by_cpu: BTreeMap<CpuId, OwnTimers>,
}

/// Those of one CPU, each with the moment at which it was due and that at which its handler began, on the trace's clock.
#[derive(Debug, Default)]
struct OwnTimers {
    /// In the order of their handlers.
    by_start: Vec<(u64, u64)>,
    /// When the handlers of timers began that were on time.
    on_time: Vec<u64>,
    /// In the order in which they were due.
    by_due: Vec<(u64, u64)>,
    /// From each moment on, the longest lateness of the timers that were due and not yet handled then.
    pending: Vec<(u64, u64)>,
}

impl LateTimers {
    fn of(window: &Window) -> Self {
        let least = (LEAST_NS as f64 * PART) as u64;
        let mut armed = window.armed.clone();
        let mut timers = Self::default();
        for event in &window.events {
            // Both moments of the timer are on its own clock, and the event is on the trace's: only the difference counts.
            let Some(late_ns) = armed.follow(event) else { continue };
            let own = timers.by_cpu.entry(event.cpu).or_default();
            if late_ns < ON_TIME_NS {
                own.on_time.push(event.at_ns);
            }
            if late_ns >= least {
                own.by_start.push((event.at_ns.saturating_sub(late_ns), event.at_ns));
            }
        }
        timers.by_cpu.values_mut().for_each(OwnTimers::index);
        timers
    }

    /// Whether a timer of the CPU that was on time ended the longest silence in a piece: a stop of the CPU would have ended at
    /// any moment, and mostly after the timer was due.
    fn ends_on_time(&self, piece: &Piece, labeller: &Labeller<'_>) -> bool {
        let cpu = &piece.detail.cpu;
        let spans = labeller.states.spans.get(cpu);
        let Some((_, span)) = spans.and_then(|spans| silence(spans, piece.from, piece.to)) else {
            return false;
        };
        self.by_cpu.get(cpu).is_some_and(|own| {
            let first = own.on_time.partition_point(|at_ns| *at_ns < span.to);
            own.on_time.get(first).is_some_and(|at_ns| *at_ns <= span.to.saturating_add(HANDLER_NS))
        })
    }

    /// Whether a timer of the CPU was due in a piece and came late by it: its handler is the first event after the silence.
    fn is_late_behind(&self, piece: &Piece) -> bool {
        let least = (piece.length() as f64 * PART) as u64;
        let own = self.by_cpu.get(&piece.detail.cpu);
        own.is_some_and(|own| own.is_late_behind(piece.from, piece.to, least))
    }
}

impl OwnTimers {
    fn index(&mut self) {
        self.by_due.clone_from(&self.by_start);
        self.by_due.sort_unstable();
        let behind = |at: u64| at.saturating_add(1);
        let starts = self.by_due.iter().map(|(due, _)| behind(*due));
        let mut moments: Vec<u64> = starts.chain(self.by_start.iter().map(|(_, at)| behind(*at))).collect();
        moments.sort_unstable();
        moments.dedup();
        let (mut due, mut open) = (self.by_due.iter().peekable(), BinaryHeap::new());
        for moment in moments {
            while let Some((due, at)) = due.next_if(|(due, _)| *due < moment) {
                open.push((at - due, *at));
            }
            while open.peek().is_some_and(|(_, at)| *at < moment) {
                open.pop();
            }
            self.pending.push((moment, open.peek().map_or(0, |(late_ns, _)| *late_ns)));
        }
    }

    /// The longest lateness of the timers that were due before `to` and handled after `from`.
    fn longest(&self, from: u64, to: u64) -> u64 {
        let first = self.by_start.partition_point(|(_, at)| *at <= from);
        let within = self.by_start[first..].iter().take_while(|(_, at)| *at < to);
        let within = within.map(|(due, at)| at - due).max().unwrap_or(0);
        let place = self.pending.partition_point(|(moment, _)| *moment <= to);
        let pending = place.checked_sub(1).map_or(0, |place| self.pending[place].1);
        within.max(pending)
    }

    /// Whether a timer was due in a time, at least this long before its end, and handled after it.
    fn is_late_behind(&self, from: u64, to: u64, least: u64) -> bool {
        let first = self.by_due.partition_point(|(due, _)| *due <= from);
        let due = self.by_due[first..].iter().take_while(|(due, _)| *due < to && to - due >= least);
        { due }.any(|(_, at)| *at >= to)
    }
}

fn stood_still(piece: &Piece, timers: &LateTimers, labeller: &Labeller<'_>) -> bool {
    let (from, to) = (piece.from, piece.to);
    let least = ((to - from) as f64 * PART) as u64;
    let spans = &labeller.states.spans;
    let taken_here =
        matches!(piece.blame.kind, Some(CauseKind::HostStall | CauseKind::TimerLate | CauseKind::IdleExit))
            || piece.detail.span(labeller.states).is_some_and(|span| takes_interrupts(span, labeller));
    let taken_there = |cpu: &CpuId| {
        let silence = spans.get(cpu).and_then(|spans| silence(spans, from, to));
        silence.is_some_and(|(_, span)| takes_interrupts(span, labeller))
    };
    let others = timers.by_cpu.iter().filter(|(cpu, _)| **cpu != piece.detail.cpu);
    let mut late_elsewhere = others.filter(|(_, own)| own.longest(from, to) >= least);
    late_elsewhere.any(|(cpu, _)| taken_here || taken_there(cpu)) && all_silent(piece, labeller)
}

/// The longest silence of a CPU between two moments, and its span.
fn silence(spans: &[Span], from: u64, to: u64) -> Option<(u64, &Span)> {
    let first = spans.partition_point(|span| span.to <= from);
    let within = spans[first..].iter().take_while(|span| span.from < to);
    within.map(|span| (span.to.min(to) - span.from.max(from), span)).max_by_key(|(ns, _)| *ns)
}

/// Whether a CPU was where an interrupt is taken as soon as it comes.
fn takes_interrupts(span: &Span, labeller: &Labeller<'_>) -> bool {
    let state = &span.state;
    let ticking = state.idle_state.is_some_and(|index| index <= IDLE_STATE_TICKING_MAX);
    let idle = state.pid == Some(0) && ticking && state.irqs_off != Knowledge::ByEvent;
    let user = state.user || labeller.interrupted_user(span);
    state.level == Level::Thread && (idle || user)
}
