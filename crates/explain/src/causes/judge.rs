//! From the pieces of a spike to its cause, with the function that it ran, a timeline, and the events that show it.

use crate::blame::account::{Accountant, Piece, Place};
use crate::blame::label::Need;
use crate::blame::piece::STOPPED_LEAST_NS;
use crate::causes::divide;
use crate::confidence::{CONCLUDED, FAINT, STATED};
use crate::describe::{self, Stretch};
use crate::stack::{self, Named};
use crate::states::stacks::{self, FunctionId, PathId};
use crate::vocabulary::Class;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::order::InOrder;
use whylate_core::result::{Cause, CauseKind, EvidenceLine, TimelineSegment};
use whylate_trace::event::EventKind;
use whylate_trace::reader::Reader;

/// A cause's function covers at least this part of the cause's time.
const FUNCTION_LEAST: f64 = 0.6;
/// Short handlers that took less of the time than this do not matter.
const MOST: f64 = 0.5;
/// How many functions of a stack a sentence names.
const CHAIN_MAX: usize = 4;

type Group<'a> = divide::Group<'a, Place>;

/// The verdict on one spike.
pub(crate) struct Judgement {
    pub(crate) cause: Cause,
    pub(crate) also: Vec<Cause>,
    pub(crate) timeline: Vec<TimelineSegment>,
    pub(crate) evidence: Vec<EvidenceLine>,
    pub(crate) needs: BTreeSet<Need>,
}

/// Finds the cause among the pieces.
pub(crate) fn judge(accountant: &Accountant<'_>, reader: &dyn Reader) -> Judgement {
    let latency_ns = accountant.late.latency_ns();
    let groups = divide::groups(&accountant.pieces);
    let causes: Vec<Cause> = groups
        .iter()
        .map(|group| {
            let (function, callers) = function(group, accountant);
            Cause { function, callers, ..less_sure(group, accountant, group.cause(latency_ns)) }
        })
        .collect();
    let main = divide::main_of(&causes);
    let (mut cause, also) = divide::split(causes, main);
    cause.evidence.extend(gave_up(&cause, accountant));
    let chosen = main.map(|index| &groups[index]);
    let needs = chosen.into_iter().flat_map(|group| &group.pieces).filter_map(|piece| piece.detail.need);
    Judgement {
        also,
        timeline: timeline(accountant, chosen, &cause),
        evidence: chosen.map(|group| evidence(group, accountant, reader)).unwrap_or_default(),
        needs: needs.chain(function_need(&cause)).collect(),
        cause,
    }
}

/// An interrupt that comes often takes little time each time, so the delay has another reason, too: on damaged traces that
/// reason was the right one.
fn less_sure(group: &Group<'_>, accountant: &Accountant<'_>, mut cause: Cause) -> Cause {
    // Records within a handler, such as those of its timers, cut it into pieces.
    let longest_ns = group.stretches().iter().map(|(_, _, time)| *time).max().unwrap_or_default();
    let is_entry = |piece: &&&Piece| {
        let span = piece.detail.span(accountant.states);
        let first = span.map(|span| accountant.window.events[span.events.0].kind);
        matches!(first, Some(EventKind::IrqEntry { .. } | EventKind::VectorEntry { .. }))
    };
    let entries = group.pieces.iter().filter(is_entry).count();
    let most = match cause.kind {
        // The start of one interrupt and the end of another look like this if events between them are lost.
        CauseKind::Irq if longest_ns > STOPPED_LEAST_NS && entries > 1 => {
            cause.evidence.push(
                "the same interrupt came several times: the start of one handler and the end of a later one may look like one long handler"
                    .to_owned(),
            );
            FAINT
        }
        CauseKind::Irq if longest_ns > STOPPED_LEAST_NS => CONCLUDED,
        // A tracer's own record of each handler is exact.
        CauseKind::Irq if cause.confidence >= Some(STATED) => 1.0,
        CauseKind::Irq if group.time > STOPPED_LEAST_NS || cause.share < Some(MOST) => {
            cause
                .evidence
                .push("each run of the handler was short: the delay may have another reason".to_owned());
            FAINT
        }
        _ => 1.0,
    };
    cause.confidence = cause.confidence.map(|confidence| confidence.min(most));
    cause
}

/// Where a thread that was not preempted finally gave the CPU up, from the stack of the switch. The section ended there; the
/// code that took the time need not be on that stack.
fn gave_up(cause: &Cause, accountant: &Accountant<'_>) -> Option<String> {
    let wanted = cause.kind == CauseKind::PreemptOff && cause.function.is_none();
    let late = accountant.late;
    let stack = accountant.labeller.stack_at_switch(late.cpu, late.actual_ns).filter(|_| wanted)?;
    let (function, callers) = stack::preempted(&stack)?;
    let chain = std::iter::once(function).chain(callers).take(CHAIN_MAX).collect::<Vec<_>>().join(" <- ");
    Some(format!("the thread gave up the CPU in {chain}"))
}

/// Kinds whose function is worth recording.
fn function_need(cause: &Cause) -> Option<Need> {
    use CauseKind::{IrqsOff, PreemptOff};
    (matches!(cause.kind, IrqsOff | PreemptOff) && cause.function.is_none()).then_some(Need::Functions)
}

/// The function that covers a group's time, and its callers: from the stack of the late interrupt, from the traced functions,
/// or from the event that began a section.
fn function(group: &Group<'_>, accountant: &Accountant<'_>) -> (Option<String>, Vec<String>) {
    let (function, callers) = found(group, accountant).unzip();
    (function, callers.unwrap_or_default())
}

fn found(group: &Group<'_>, accountant: &Accountant<'_>) -> Option<Named> {
    use CauseKind::{Ipi, Irq, IrqsOff, PreemptOff, Softirq, Thread, TimerLate, Unattributed};
    let states = accountant.states;
    let name = |id: FunctionId| states.functions.name(id).to_owned();
    let longest = group.longest();
    if let Some(function) = longest.blame.function.clone() {
        return Some((function, longest.blame.callers.clone()));
    }
    let span = longest.detail.span(states)?;
    let in_thread = matches!(group.kind, IrqsOff | PreemptOff | TimerLate | Unattributed);
    if in_thread
        && span.ends_in_interrupt
        && span.state.pid != Some(0)
        && let Some(found) = stack::innermost(&accountant.labeller.interrupted(span))
    {
        return Some(found);
    }
    let path_time = |piece: &&Piece| Some((piece.detail.span(states)?.state.path, piece.length()));
    let times: Vec<(PathId, u64)> =
        group.pieces.iter().copied().filter_map(|piece| path_time(&piece)).collect();
    if !span.state.user
        && let Some((function, callers)) =
            stacks::covering(&times, FUNCTION_LEAST, &states.paths, &states.functions)
        && states.functions.class(function, None) != Class::Scheduler
    {
        let mut named = std::iter::once(function).chain(callers);
        // If preemption was not allowed in the function, its caller goes on.
        let declined = states.functions.class(function, None) == Class::Preemption;
        let function = named.nth(usize::from(declined)).unwrap_or(function);
        return Some((name(function), stack::trimmed(named.map(name).collect())));
    }
    let announced = || Some((name(announced(group, accountant)?), Vec::new()));
    let section = match group.kind {
        IrqsOff => span.state.irqs_section,
        PreemptOff => match span.state.preempt_section {
            None => {
                return stack::innermost(&accountant.labeller.interrupted_before(span)).or_else(announced);
            }
            known => known,
        },
        Ipi | Irq | Softirq | Thread => return announced(),
        _ => None,
    };
    let (_, caller, parent) = section?;
    Some(match states.functions.is_helper(caller) {
        true => (name(parent), Vec::new()),
        false => (name(caller), vec![name(parent)]),
    })
}

/// The function that events announced for most of the time: of a timer or a work item, or one that another CPU requested.
fn announced(group: &Group<'_>, accountant: &Accountant<'_>) -> Option<FunctionId> {
    let mut times: BTreeMap<FunctionId, u64> = BTreeMap::new();
    for piece in &group.pieces {
        let span = piece.detail.span(accountant.states);
        if let Some(function) = span.and_then(|span| span.state.announced) {
            *times.entry(function).or_default() += piece.length();
        }
    }
    let (function, time) = times.into_iter().max_by_key(|(_, time)| *time)?;
    (time as f64 >= FUNCTION_LEAST * group.time as f64).then_some(function)
}

/// A segment of the timeline, before its texts are copied: there can be hundreds of thousands.
struct Shown<'a> {
    from_ns: u64,
    to_ns: u64,
    place: &'a Place,
    kind: Option<CauseKind>,
    function: Option<FunctionId>,
}

impl Stretch for Shown<'_> {
    fn times(&mut self) -> (&mut u64, &mut u64) {
        (&mut self.from_ns, &mut self.to_ns)
    }

    fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    fn is_same(&self, next: &Self) -> bool {
        (&self.place.what, self.place.cpu, self.kind) == (&next.place.what, next.place.cpu, next.kind)
    }
}

/// Joins neighbours of the same meaning; the pieces are already adjacent.
fn timeline(accountant: &Accountant<'_>, chosen: Option<&Group<'_>>, main: &Cause) -> Vec<TimelineSegment> {
    let states = accountant.states;
    let mut pieces: Vec<Shown<'_>> = Vec::new();
    for piece in accountant.pieces.iter().filter(|piece| piece.to > piece.from) {
        let span = piece.detail.span(states).filter(|span| !span.state.user);
        let function =
            span.and_then(|span| states.paths.split(span.state.path)).map(|(_, function)| function);
        let shown = Shown {
            from_ns: piece.from,
            to_ns: piece.to,
            place: &piece.detail,
            kind: piece.blame.kind,
            function,
        };
        match pieces.last_mut() {
            // The function of the longer part is that of both.
            Some(last) if last.is_same(&shown) => {
                let takes_next = shown.length_ns() > last.length_ns();
                last.join(shown, takes_next);
            }
            _ => pieces.push(shown),
        }
    }
    describe::shorten_to_fit(&mut pieces);
    let segment = |shown: &Shown<'_>| TimelineSegment {
        from_ns: shown.from_ns,
        to_ns: shown.to_ns,
        cpu: shown.place.cpu,
        what: shown.place.what.clone(),
        kind: shown.kind,
        function: shown.function.map(|function| states.functions.name(function).to_owned()),
    };
    let mut segments: Vec<TimelineSegment> = pieces.iter().map(segment).collect();
    // A function known from a stack is not in the states.
    let longest = chosen.map(|group| group.longest());
    for segment in segments.iter_mut().filter(|segment| segment.function.is_none()) {
        if longest.is_some_and(|piece| segment.from_ns <= piece.from && piece.to <= segment.to_ns) {
            segment.function = main.function.clone();
        }
    }
    segments
}

/// The events at the start and the end of the cause's largest piece, and the event that ended the wait.
fn evidence(group: &Group<'_>, accountant: &Accountant<'_>, reader: &dyn Reader) -> Vec<EvidenceLine> {
    let Some(span) = group.longest().detail.span(accountant.states) else { return Vec::new() };
    let late = accountant.late;
    let mut places = vec![
        (span.events.0, "the last event before the cause"),
        (span.events.1, "the first event after the cause"),
    ];
    let ran = accountant
        .window
        .events
        .iter()
        .position(|event| event.at_ns >= late.actual_ns.saturating_sub(1) && event.cpu == late.cpu);
    places.extend(ran.map(|index| (index, "the task runs")));
    places.order_by_key(|(index, _)| *index);
    places.dedup_by_key(|(index, _)| *index);
    let line = |(index, meaning): (usize, &str)| {
        let event = &accountant.window.events[index];
        EvidenceLine {
            at_ns: event.at_ns,
            cpu: event.cpu,
            offset: event.offset,
            text: describe::line(event, reader).trim_start().to_owned(),
            meaning: meaning.to_owned(),
        }
    };
    places.into_iter().map(line).collect()
}
