//! From the pieces of a late moment to its cause: pieces of the same kind and actor count together, the largest sum is
//! the cause, the others contributed.

use super::account::{Accountant, Piece};
use super::describe;
use super::label::Need;
use super::stacks::{self, FunctionId, PathId};
use super::vocabulary;
use std::collections::{BTreeMap, BTreeSet};
use whylate_core::result::{Cause, CauseKind, EvidenceLine, TimelineSegment};
use whylate_trace::reader::Reader;

/// A cause's function covers this part of the cause's time at least.
const FUNCTION_LEAST: f64 = 0.6;
/// A cause below this part of the latency is no cause: something small beside a lot that nothing explains.
const CAUSE_LEAST: f64 = 0.15;
/// Contributors below this part of the latency are in the timeline alone.
const ALSO_LEAST: f64 = 0.02;
/// A stretch with this part of a cause's time stands for it.
const STRETCH_LEAST: f64 = 0.8;
/// A cause that has this part of the time from its first to its last moment was merely interrupted.
const WHOLE_LEAST: f64 = 0.6;
/// Callers that are named.
const CALLERS_MAX: usize = 12;
/// Segments of a timeline; the shortest are joined to their neighbours beyond that.
const SEGMENTS_MAX: usize = 400;

/// Pieces that count together.
struct Group<'a> {
    kind: CauseKind,
    actor: Option<String>,
    pid: Option<u32>,
    pieces: Vec<&'a Piece>,
    time: u64,
}

/// The verdict on one late moment.
pub(super) struct Judgement {
    pub(super) cause: Cause,
    pub(super) also: Vec<Cause>,
    pub(super) timeline: Vec<TimelineSegment>,
    pub(super) evidence: Vec<EvidenceLine>,
    pub(super) needs: BTreeSet<Need>,
}

/// Finds the cause among the pieces.
pub(super) fn judge(accountant: &Accountant<'_>, reader: &dyn Reader) -> Judgement {
    let latency = accountant.late.latency_ns().max(1);
    let mut groups = groups(&accountant.pieces);
    groups.sort_by_key(|group| (std::cmp::Reverse(group.time), group.pieces.first().map(|piece| piece.from)));
    let causes: Vec<(Cause, f64)> = groups
        .iter()
        .map(|group| (cause(group, accountant, latency), group.time as f64 / latency as f64))
        .collect();
    let unattributed: f64 = causes
        .iter()
        .filter(|(cause, _)| cause.kind == CauseKind::Unattributed)
        .map(|(_, share)| share)
        .sum();
    let first = causes.iter().position(|(cause, share)| {
        cause.kind != CauseKind::Unattributed && *share >= CAUSE_LEAST && *share >= unattributed
    });
    let main = match first {
        Some(index) => causes[index].0.clone(),
        None => causes
            .first()
            .filter(|(cause, _)| cause.kind == CauseKind::Unattributed)
            .map_or_else(Cause::unattributed, |(cause, _)| cause.clone()),
    };
    let chosen =
        first.or_else(|| groups.first().filter(|group| group.kind == CauseKind::Unattributed).map(|_| 0));
    let others = causes
        .iter()
        .enumerate()
        .filter(|(index, (_, share))| Some(*index) != chosen && *share >= ALSO_LEAST);
    let also = others.map(|(_, (cause, _))| cause.clone()).collect();
    let needs = chosen.map(|index| &groups[index]).into_iter().flat_map(|group| &group.pieces);
    Judgement {
        also,
        timeline: timeline(accountant, chosen.map(|index| &groups[index]), &main),
        evidence: chosen.map(|index| evidence(&groups[index], accountant, reader)).unwrap_or_default(),
        needs: needs.filter_map(|piece| piece.label.need).chain(function_need(&main)).collect(),
        cause: main,
    }
}

/// Kinds whose function is worth recording.
fn function_need(cause: &Cause) -> Option<Need> {
    use CauseKind::{IrqsOff, PreemptOff};
    (matches!(cause.kind, IrqsOff | PreemptOff) && cause.function.is_none()).then_some(Need::Functions)
}

fn groups(pieces: &[Piece]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for piece in pieces {
        let Some(kind) = piece.label.kind else { continue };
        let time = piece.to - piece.from;
        let same = |group: &&mut Group<'_>| {
            group.kind == kind && group.actor == piece.label.actor && group.pid == piece.label.pid
        };
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.time += time;
                group.pieces.push(piece);
            }
            None => groups.push(Group {
                kind,
                actor: piece.label.actor.clone(),
                pid: piece.label.pid,
                pieces: vec![piece],
                time,
            }),
        }
    }
    groups
}

fn cause(group: &Group<'_>, accountant: &Accountant<'_>, latency: u64) -> Cause {
    let mut cause = Cause::new(group.kind);
    cause.actor = group.actor.clone();
    cause.pid = group.pid;
    let (from, to) = extent(group);
    cause.from_ns = Some(from);
    cause.to_ns = Some(to);
    cause.share = Some((group.time as f64 / latency as f64).clamp(0.0, 1.0));
    (cause.function, cause.callers) = function(group, accountant);
    if group.kind == CauseKind::Unattributed {
        return cause;
    }
    let weighted: f64 =
        group.pieces.iter().map(|piece| piece.label.certainty * (piece.to - piece.from) as f64).sum();
    cause.confidence = Some(if group.time > 0 { weighted / group.time as f64 } else { 0.0 });
    let mut reasons: Vec<&'static str> = Vec::new();
    for piece in &group.pieces {
        if !piece.label.reason.is_empty() && !reasons.contains(&piece.label.reason) {
            reasons.push(piece.label.reason);
        }
    }
    cause.evidence = reasons.into_iter().map(str::to_owned).collect();
    cause
}

/// Begin and end of a group: of its longest stretch, when that is nearly all of it.
fn extent(group: &Group<'_>) -> (u64, u64) {
    let mut stretches: Vec<(u64, u64, u64)> = Vec::new();
    for piece in &group.pieces {
        match stretches.last_mut() {
            Some((_, to, time)) if *to == piece.from => {
                *to = piece.to;
                *time += piece.to - piece.from;
            }
            _ => stretches.push((piece.began, piece.to, piece.to - piece.from)),
        }
    }
    let all =
        stretches.iter().map(|stretch| stretch.0).min().zip(stretches.iter().map(|stretch| stretch.1).max());
    // Interrupts in between do not make it another one.
    if let Some(whole) =
        all.filter(|(from, to)| group.time as f64 >= WHOLE_LEAST * to.saturating_sub(*from) as f64)
    {
        return whole;
    }
    let longest = stretches.iter().max_by_key(|stretch| stretch.2);
    match longest.filter(|(_, _, time)| *time as f64 >= STRETCH_LEAST * group.time as f64) {
        Some((from, to, _)) => (*from, *to),
        None => all.unwrap_or_default(),
    }
}

/// The function that covers a group's time, and its callers: from the stack of the interrupt that came late, from the
/// functions that were traced, or from the event that began a section.
fn function(group: &Group<'_>, accountant: &Accountant<'_>) -> (Option<String>, Vec<String>) {
    let states = accountant.states;
    let name = |id: FunctionId| states.functions.name(id).to_owned();
    let largest = group.pieces.iter().max_by_key(|piece| piece.to - piece.from);
    let span = largest.and_then(|piece| piece.span);
    let thread = matches!(
        group.kind,
        CauseKind::IrqsOff | CauseKind::PreemptOff | CauseKind::TimerLate | CauseKind::Unattributed
    );
    if let Some(span) = span.filter(|span| thread && span.ends_in_interrupt && span.state.pid != Some(0))
        && let Some(found) = from_stack(accountant.labeller.interrupted(&span))
    {
        return found;
    }
    let times: Vec<(PathId, u64)> = group
        .pieces
        .iter()
        .filter_map(|piece| Some((piece.span?.state.path, piece.to - piece.from)))
        .collect();
    let in_kernel = |span: &super::state::Span| !span.state.user;
    if span.as_ref().is_some_and(in_kernel)
        && let Some((function, callers)) =
            stacks::covering(&times, FUNCTION_LEAST, &states.paths, &states.functions)
    {
        return (Some(name(function)), trimmed(callers.into_iter().map(name).collect()));
    }
    let state = span.map(|span| span.state);
    let section = match group.kind {
        CauseKind::IrqsOff => state.and_then(|state| state.irqs_section),
        CauseKind::PreemptOff => state.and_then(|state| state.preempt_section),
        CauseKind::Ipi | CauseKind::Irq | CauseKind::Softirq => {
            return (announced(group).map(name), Vec::new());
        }
        _ => None,
    };
    if let Some(span) = span.filter(|_| group.kind == CauseKind::PreemptOff && section.is_none())
        && let Some(found) = from_stack(accountant.labeller.interrupted_before(&span))
    {
        return found;
    }
    match section {
        Some((_, caller, parent)) if states.functions.is_helper(caller) => (Some(name(parent)), Vec::new()),
        Some((_, caller, parent)) => (Some(name(caller)), vec![name(parent)]),
        None => (None, Vec::new()),
    }
}

/// The innermost function of a stack that is no mere helper, and its callers. A stack of helpers alone names nobody: where
/// an interrupt meets the code that calls through a pointer, the kernel cannot follow the stack.
fn from_stack(frames: Vec<String>) -> Option<(Option<String>, Vec<String>)> {
    let mut frames = frames.into_iter().skip_while(|name| vocabulary::is_helper(name));
    let function = frames.next()?;
    Some((Some(function), trimmed(frames.collect())))
}

/// The function that events announced for most of an interrupt's time: a timer's handler, or a function called remotely.
fn announced(group: &Group<'_>) -> Option<FunctionId> {
    let mut times: BTreeMap<FunctionId, u64> = BTreeMap::new();
    for piece in &group.pieces {
        if let Some(function) = piece.span.and_then(|span| span.state.announced) {
            *times.entry(function).or_default() += piece.to - piece.from;
        }
    }
    let (function, time) = times.into_iter().max_by_key(|(_, time)| *time)?;
    (time as f64 >= FUNCTION_LEAST * group.time as f64).then_some(function)
}

/// Without the rest of a stack that nobody needs.
fn trimmed(mut callers: Vec<String>) -> Vec<String> {
    callers.truncate(CALLERS_MAX);
    callers
}

/// Neighbours of the same meaning joined; the pieces lie side by side already.
fn timeline(accountant: &Accountant<'_>, chosen: Option<&Group<'_>>, main: &Cause) -> Vec<TimelineSegment> {
    let states = accountant.states;
    let mut segments: Vec<TimelineSegment> = Vec::new();
    for piece in accountant.pieces.iter().filter(|piece| piece.to > piece.from) {
        let innermost =
            piece.span.filter(|span| !span.state.user).and_then(|span| states.paths.split(span.state.path));
        let segment = TimelineSegment {
            from_ns: piece.from,
            to_ns: piece.to,
            cpu: piece.cpu,
            what: piece.label.what.clone(),
            kind: piece.label.kind,
            function: innermost.map(|(_, function)| states.functions.name(function).to_owned()),
        };
        match segments.last_mut() {
            Some(last)
                if last.what == segment.what && last.cpu == segment.cpu && last.kind == segment.kind =>
            {
                // The longer part's function stands for both.
                if segment.to_ns - segment.from_ns > last.to_ns - last.from_ns {
                    last.function = segment.function;
                }
                last.to_ns = segment.to_ns;
            }
            _ => segments.push(segment),
        }
    }
    while segments.len() > SEGMENTS_MAX {
        shorten(&mut segments);
    }
    // A function that a stack told is not in the states.
    let longest = chosen.and_then(|group| group.pieces.iter().max_by_key(|piece| piece.to - piece.from));
    for segment in segments.iter_mut().filter(|segment| segment.function.is_none()) {
        if longest.is_some_and(|piece| segment.from_ns <= piece.from && piece.to <= segment.to_ns) {
            segment.function = main.function.clone();
        }
    }
    segments
}

/// Joins the shorter half of the segments to what is before them.
fn shorten(segments: &mut Vec<TimelineSegment>) {
    let mut lengths: Vec<u64> = segments.iter().map(|segment| segment.to_ns - segment.from_ns).collect();
    lengths.sort_unstable();
    let limit = lengths[lengths.len() / 2];
    let mut joined: Vec<TimelineSegment> = Vec::with_capacity(segments.len());
    for (index, segment) in segments.drain(..).enumerate() {
        match joined.last_mut() {
            Some(last) if segment.to_ns - segment.from_ns <= limit || index % 2 == 1 => {
                last.to_ns = segment.to_ns;
            }
            _ => joined.push(segment),
        }
    }
    *segments = joined;
}

/// The events at the begin and the end of the cause's largest piece, and the one that ended the wait.
fn evidence(group: &Group<'_>, accountant: &Accountant<'_>, reader: &dyn Reader) -> Vec<EvidenceLine> {
    let Some(span) =
        group.pieces.iter().max_by_key(|piece| piece.to - piece.from).and_then(|piece| piece.span)
    else {
        return Vec::new();
    };
    let late = accountant.late;
    let mut places =
        vec![(span.events.0, "the last event before it"), (span.events.1, "the first event after it")];
    let ran = accountant
        .window
        .events
        .iter()
        .position(|event| event.at_ns >= late.actual_ns.saturating_sub(1) && event.cpu == late.cpu);
    places.extend(ran.map(|index| (index, "the task runs")));
    places.sort_by_key(|(index, _)| *index);
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
