//! The tracers of sections with interrupts or preemption disabled (`irqsoff`, `preemptoff`, `preemptirqsoff`). A file has one
//! latency, shown by the header, the functions at the section's start and end, and the stack after it.
//!
//! In: the facts of the header and the events, one pass. Out: one spike. Its moments are microseconds of the section, as the
//! tracer prints them. Truncated files show less: without lines the header names task and functions, without a header the
//! tracer's own functions show which tracer it was.

use crate::confidence::{CONCLUDED, LIKELY, POSSIBLE, SHOWN, STATED};
use crate::describe;
use crate::find::finder::Seen;
use crate::stack::{self, Named};
use crate::time;
use crate::vocabulary as words;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::figure;
use whylate_core::order::InOrder;
use whylate_core::result::{Cause, CauseKind, EvidenceLine, ExpectedFrom, ExplainedSpike, TimelineSegment};
use whylate_trace::event::{Event, EventKind, Symbol};
use whylate_trace::facts::TraceFacts;
use whylate_trace::parse::ParseError;
use whylate_trace::reader::{Reader, Selection};

/// Segments of the timeline that are read; the rest of a longer section is one.
const SEGMENTS_READ_MAX: usize = 1 << 16;
/// Times later than this after the header's latency do not count from the section's start: a section's trace continues for
/// less than this after its end.
pub(crate) const BEYOND_NS: u64 = 1_000_000;

/// Lines later than this after the section's start do not show the start.
const BEGIN_NS: u64 = 2_000;
/// Other functions below this part of the section are left out, and more of them.
const OTHER_LEAST: f64 = 0.01;
const OTHERS_MAX: usize = 8;
/// The longest tick of a kernel, and a margin.
const TICK_NS_MAX: u64 = 11_000_000;
const STOOD: &str = "the longest gap between events has no tick, although interrupts were enabled: the CPU \
                     stood still (device access, firmware or hypervisor), or its tick was stopped";

const OMITTED: &str = "lines were left out";

/// What the lines of the section show.
#[derive(Default)]
struct Section {
    /// First and last line of the section itself, and the line that ends it.
    first: Option<Event>,
    last: Option<Event>,
    /// Whether interrupts and preemption were disabled at some line.
    irqs_off: bool,
    irqs_on: bool,
    /// The tracer's own function at the end shows which kind of section it was.
    ended_by: Option<CauseKind>,
    /// The innermost function of the last stack that is not a helper, and its callers.
    stack: Option<Named>,
    timeline: Vec<TimelineSegment>,
    /// The function before the longest silence, and its caller.
    longest: Option<(u64, Named)>,
    /// Interrupts were enabled in the longest silence, and nothing asked for a reschedule in it, as a tick does.
    longest_is_open: bool,
    lines: u64,
    /// Lines were left out.
    is_short: bool,
    /// Their places are not marked, so that they may explain any silence.
    is_short_anywhere: bool,
}

/// What a section's time is attributed to.
struct Found {
    named: Option<Named>,
    /// How much of the time is in this function itself; `None` if the whole section is in it.
    own_ns: Option<u64>,
    confidence: f64,
    reason: Cow<'static, str>,
}

impl Found {
    fn whole(named: Option<Named>, confidence: f64, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { named, own_ns: None, confidence, reason: reason.into() }
    }
}

/// The spike of a section tracer's file; `None` if it is not such a file, or states no latency.
pub(crate) fn explain(reader: &mut dyn Reader, seen: &Seen) -> Result<Option<ExplainedSpike>, ParseError> {
    let tracer = reader.info().tracer.clone().unwrap_or_default();
    let bounded = tracer.is_empty() && reader.info().facts.started_at.is_some();
    let known = words::is_section_tracer(&tracer) || bounded;
    if !(known || tracer.is_empty() || tracer == "nop") || (!known && !ends_as_one(reader, seen)?) {
        return Ok(None);
    }
    let section = read(reader)?;
    let of_wakeup = reader.info().facts.started_at.as_deref() == Some("try_to_wake_up");
    if (!known || bounded) && of_wakeup || section.first.is_some_and(|first| is_wakeup(&first, reader)) {
        return Ok(None);
    }
    let facts = reader.info().facts.clone();
    let Some(latency_ns) =
        facts.latency_ns.or(Some(section.length_ns())).filter(|latency_ns| *latency_ns > 0)
    else {
        return Ok(None);
    };
    Ok(Some(spike(&tracer, section, &facts, latency_ns, reader)))
}

/// Whether a trace begins with a wake-up, as those of the wake-up tracers do: its task waited, and had no section.
fn is_wakeup(first: &Event, reader: &dyn Reader) -> bool {
    let names = called(first).map(|(function, caller)| [Some(function), caller]);
    let mut names = names.into_iter().flatten().flatten().map(|symbol| describe::symbol(symbol, reader));
    names.any(|name| name.contains("trace_start_sched_wakeup"))
}

/// Whether a file that does not name its tracer has the function with which a section tracer ends. It is the last record, so
/// if the first pass read scheduler events, only the records after the last of them are read.
fn ends_as_one(reader: &mut dyn Reader, seen: &Seen) -> Result<bool, ParseError> {
    if seen.all {
        return Ok(seen.section_ended);
    }
    reader.seek(Some(seen.last_ns), Selection::All)?;
    while let Some(event) = reader.next()? {
        if called(&event).is_some_and(|(function, _)| describe::section_end(function, reader).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read(reader: &mut dyn Reader) -> Result<Section, ParseError> {
    reader.seek(None, Selection::All)?;
    let mut section = Section::default();
    let mut before: Option<(Event, Named)> = None;
    // Functions that the graph tracer has entered, outermost first.
    let mut entered: Vec<Symbol> = Vec::new();
    while let Some(event) = reader.next()? {
        let reader: &dyn Reader = reader;
        if let EventKind::Stack { frames } = event.kind {
            let names = reader.frames(frames).iter().map_while(|symbol| reader.symbol(*symbol));
            let names: Vec<String> = names.map(|(name, _)| name.to_owned()).collect();
            section.stack = culprit(&names).or(section.stack);
            continue;
        }
        let Some((function, caller)) = called(&event) else { continue };
        section.ended_by = section.ended_by.or(describe::section_end(function, reader));
        if section.ended_by.is_some() {
            continue;
        }
        let before_it = before.take();
        let is_omitted = before_it.as_ref().is_some_and(|(before, _)| {
            let next = reader.info().facts.omissions.range(before.offset..).next();
            next.is_some_and(|at| *at < event.offset)
        });
        section.take(event, before_it, is_omitted);
        match event.kind {
            EventKind::GraphEntry { .. } => entered.push(function),
            EventKind::GraphExit { .. } => {
                let own = entered.iter().rposition(|other| *other == function);
                entered.truncate(own.unwrap_or(0));
            }
            _ => {}
        }
        // The time after the end of a function belongs to its caller.
        let inner = (!matches!(event.kind, EventKind::GraphExit { .. })).then_some(function);
        let outer = entered.iter().rev().skip(usize::from(inner.is_some() && !entered.is_empty()));
        let stack = inner.into_iter().chain(caller).chain(outer.copied());
        let mut stack: Vec<String> = stack.map(|symbol| describe::symbol(symbol, reader)).collect();
        // At its edges the tracer names a function as its own caller.
        stack.dedup();
        let here = culprit(&stack).or_else(|| Some((stack.first()?.clone(), Vec::new())));
        before = here.map(|here| (event, here));
    }
    section.ended();
    let info = reader.info();
    let (is_marked, is_short) = (!info.facts.omissions.is_empty(), info.facts.is_short(info.records));
    (section.is_short, section.is_short_anywhere) = (is_marked || is_short, !is_marked && is_short);
    Ok(section)
}

/// What a line of the function tracers names: a function and its caller.
fn called(event: &Event) -> Option<(Symbol, Option<Symbol>)> {
    Some(match event.kind {
        EventKind::Function { function, caller } => {
            (function, Some(caller).filter(|caller| *caller != Symbol::Address(0)))
        }
        EventKind::GraphEntry { function, .. } | EventKind::GraphExit { function, .. } => (function, None),
        _ => return None,
    })
}

/// The innermost function of a stack that can be blamed: not a helper, nor code of the tracer or of the kernel's entry.
fn culprit(stack: &[String]) -> Option<Named> {
    let own = |name: &String| name.is_empty() || words::is_of_tracer(name) || words::is_entry(name);
    let skipped = stack.iter().take_while(|name| own(name) || words::is_helper(name)).count();
    let (function, callers) = stack[skipped..].split_first()?;
    let callers = callers.iter().filter(|name| !own(name)).cloned().collect();
    Some((function.clone(), stack::trimmed(callers)))
}

/// The times of a damaged file may be of any size.
fn sum<'s>(segments: impl Iterator<Item = &'s TimelineSegment>) -> u64 {
    segments.fold(0, |sum, segment| sum.saturating_add(segment.to_ns - segment.from_ns))
}

fn is_blamable(function: &String) -> bool {
    culprit(std::slice::from_ref(function)).is_some()
}

impl Section {
    /// Takes a line, and the one before it with its function, between which lines may have been left out.
    fn take(&mut self, event: Event, before: Option<(Event, Named)>, is_omitted: bool) {
        self.first.get_or_insert(event);
        self.last = Some(event);
        self.lines += 1;
        let off = event.context.irqs_off;
        (self.irqs_off, self.irqs_on) =
            (self.irqs_off | (off == Some(true)), self.irqs_on | (off == Some(false)));
        let Some((before, named)) = before else { return };
        let length = event.at_ns.saturating_sub(before.at_ns);
        if !is_omitted && self.longest.as_ref().is_none_or(|(longest, _)| length > *longest) {
            self.longest = Some((length, named.clone()));
            let asked = event.context.need_resched && !before.context.need_resched;
            self.longest_is_open =
                before.context.irqs_off == Some(false) && !before.context.hard_irq && !asked;
        }
        if length == 0 || self.timeline.len() >= SEGMENTS_READ_MAX {
            return;
        }
        self.timeline.push(TimelineSegment {
            from_ns: before.at_ns,
            to_ns: event.at_ns,
            cpu: event.cpu,
            what: match (is_omitted, before.context.hard_irq) {
                (true, _) => OMITTED.to_owned(),
                (_, true) => "in an interrupt".to_owned(),
                _ => String::new(),
            },
            kind: None,
            function: Some(named.0).filter(|name| !is_omitted && is_blamable(name)),
        });
    }

    fn ended(&mut self) {
        if self.irqs_off && self.irqs_on && self.ended_by == Some(CauseKind::IrqsOff) {
            self.irqs_on = false;
        }
    }

    /// Interrupts disabled, or preemption: from the tracer, or from the flags if the tracer records both.
    fn kind(&self, tracer: &str) -> CauseKind {
        match tracer {
            "irqsoff" => CauseKind::IrqsOff,
            "preemptoff" => CauseKind::PreemptOff,
            // Without a header the tracer's own function at the end shows it.
            "" | "nop" => self.ended_by.unwrap_or(CauseKind::PreemptOff),
            // A section of both kinds counts as the stricter kind only if it was so all along.
            _ if self.irqs_off && !self.irqs_on => CauseKind::IrqsOff,
            _ if self.irqs_on => CauseKind::PreemptOff,
            _ => self.ended_by.unwrap_or(CauseKind::PreemptOff),
        }
    }

    /// From its first line to its last.
    fn length_ns(&self) -> u64 {
        self.first.zip(self.last).map_or(0, |(first, last)| time::between(first.at_ns, last.at_ns))
    }

    /// The time in which a function was the last one that a line named.
    fn own_ns(&self, function: &str) -> u64 {
        sum(self.timeline.iter().filter(|segment| segment.function.as_deref() == Some(function)))
    }

    /// The function, and how well it is known.
    fn function(&self, facts: &TraceFacts) -> Found {
        // The edges of the section and its stack show where it ended; its longest stretch shows where its time went.
        let all_ns = facts.latency_ns.unwrap_or_else(|| self.length_ns());
        let ends: Vec<String> = [&facts.started_at, &facts.ended_at].into_iter().flatten().cloned().collect();
        let edges: Vec<String> =
            ends.iter().cloned().chain(self.stack.clone().map(|(name, _)| name)).collect();
        let longest = self.longest.clone().filter(|(_, (function, _))| is_blamable(function));
        // The callers, and those of the outermost one by the stack.
        let with_stack = |function: &String, callers: Vec<String>| {
            let stack: Vec<String> =
                self.stack.clone().map(|(first, rest)| [vec![first], rest].concat()).unwrap_or_default();
            let outermost = callers.last().unwrap_or(function);
            let outer = stack.iter().position(|name| name == outermost).map_or(0, |at| at + 1);
            let is_known = |name: &&String| *name != function && !callers.contains(name);
            let outer: Vec<String> = stack[outer..].iter().filter(is_known).cloned().collect();
            stack::trimmed([callers, outer].concat())
        };
        if let Some((length, (function, callers))) = &longest
            && !self.is_short_anywhere
            && *length >= all_ns / 2
        {
            let reason = "the tracer recorded the section; the longest gap between events follows the named \
                          function";
            let callers = with_stack(function, callers.clone());
            let named = Some((function.clone(), callers));
            let confidence = if self.is_short { LIKELY } else { CONCLUDED };
            let own_ns = Some(self.own_ns(function).max(*length).min(all_ns));
            return Found { named, own_ns, confidence, reason: reason.into() };
        }
        // Lines were left out, and those that are there were called by the function in which the section began or ended.
        if let Some((_, (function, callers))) = &longest
            && self.is_short
            && let Some(place) =
                callers.first().filter(|caller| edges.contains(caller) && is_blamable(caller))
        {
            let lines_ns = sum(self.timeline.iter().filter(|segment| segment.what != OMITTED));
            let reason = format!(
                "the section began or ended in the named function, but lines were left out of the trace. The remaining lines cover {}, of which \
                 {function} took {}",
                figure::nanoseconds(lines_ns),
                figure::nanoseconds(self.own_ns(function))
            );
            let outer = with_stack(place, callers[1..].to_vec());
            return Found::whole(Some((place.clone(), outer)), LIKELY, reason);
        }
        if let Some(named) = self.stack.clone() {
            let reason = "the tracer recorded the section, and the stack at its end";
            return Found::whole(Some(named), STATED, reason);
        }
        if let Some((function, _)) = culprit(&ends) {
            let reason = "the tracer recorded the section, and the functions at its start and end";
            return Found::whole(Some((function, Vec::new())), STATED, reason);
        }
        let is_cut = facts.latency_ns.is_some_and(|ns| self.last.is_some_and(|last| last.at_ns < ns / 2));
        let Some((length, named)) = longest else {
            let reason = "the tracer recorded the section; its functions are not in the file";
            return Found::whole(None, SHOWN, reason);
        };
        let own_ns = self.own_ns(&named.0).max(length).min(all_ns);
        let (confidence, reason) = match is_cut {
            true => (
                POSSIBLE,
                "the trace ends long before the section does; the longest gap between events follows the named \
                 function",
            ),
            false => (CONCLUDED, "the longest gap between events follows the named function"),
        };
        if own_ns < all_ns / 2 {
            let (function, ns) = (&named.0, figure::nanoseconds(own_ns));
            let reason = format!(
                "the tracer recorded the section; the longest gap between events is in {function}: {ns}"
            );
            return Found::whole(None, confidence, reason);
        }
        Found { named: Some(named), own_ns: Some(own_ns), confidence, reason: reason.into() }
    }

    /// The other functions of a section whose time is not all in one, longest first.
    fn others(&self, main: &Cause, latency_ns: u64) -> Vec<Cause> {
        let mut times: BTreeMap<&String, u64> = BTreeMap::new();
        for segment in &self.timeline {
            let Some(name) = segment.function.as_ref().filter(|name| main.function.as_ref() != Some(name))
            else {
                continue;
            };
            let time = times.entry(name).or_default();
            *time = time.saturating_add(segment.to_ns - segment.from_ns);
        }
        let share = |ns: u64| ns as f64 / latency_ns.max(1) as f64;
        let mut others: Vec<Cause> = { times.into_iter() }
            .filter(|(_, ns)| share(*ns) >= OTHER_LEAST)
            .map(|(name, ns)| Cause {
                function: Some(name.clone()),
                callers: Vec::new(),
                evidence: Vec::new(),
                share: Some(share(ns)),
                ..main.clone()
            })
            .collect();
        others.order_by(|one, other| other.share.partial_cmp(&one.share).unwrap_or(Ordering::Equal));
        let mut left = 1.0 - main.share.unwrap_or(1.0);
        others.retain(|cause| {
            left -= cause.share.unwrap_or(0.0);
            left > -1e-9
        });
        others.truncate(OTHERS_MAX);
        others
    }
}

fn spike(
    tracer: &str,
    mut section: Section,
    facts: &TraceFacts,
    latency_ns: u64,
    reader: &dyn Reader,
) -> ExplainedSpike {
    let kind = section.kind(tracer);
    let line = section.first.or(section.last);
    let cpu = facts.cpu.or(line.map(|event| event.cpu)).unwrap_or(CpuId(0));
    let command = line.and_then(|event| event.command).map(|name| reader.names().text(name).to_owned());
    let (actor, pid) = match &facts.task {
        Some(task) => (Some(task.command.clone()), Some(task.pid)),
        None => (command, line.and_then(|event| event.pid)),
    };
    let begin = section.first.filter(|first| first.at_ns <= BEGIN_NS).and_then(|first| called(&first));
    let begin = begin.map(|(function, caller)| {
        [Some(function), caller]
            .into_iter()
            .flatten()
            .map(|symbol| describe::symbol(symbol, reader))
            .collect::<Vec<_>>()
    });
    let began: Option<Vec<String>> = facts.started_at.clone().map(|name| vec![name]).or(begin);
    // If the section began in an interrupt's entry, its handlers caused it, not the interrupted thread.
    let in_interrupt = section.first.is_some_and(|first| first.context.hard_irq)
        || began.iter().flatten().any(|name| words::begins_interrupt(name));
    // Lines of the idle thread do not name it.
    let actor = actor.map(|actor| if actor == "<idle>" { format!("swapper/{cpu}") } else { actor });
    let (actor, pid) = if in_interrupt {
        (actor.map(|actor| format!("an interrupt in {actor}")), None)
    } else {
        (actor, pid)
    };
    let Found { named, own_ns, confidence, reason } = section.function(facts);
    // The file does not show where the section began: it may have been in an interrupt, or a wake-up.
    let confidence = if began.is_some() { confidence } else { confidence.min(POSSIBLE) };
    // With the tracer of both kinds, only flags show the kind if its own function at the end is missing.
    let by_flags = tracer == "preemptirqsoff" && section.ended_by.is_none();
    let confidence = if by_flags { confidence.min(SHOWN) } else { confidence };
    // A tracer that shows only the edges of the section records no functions, and so no ticks.
    let is_silent = section.longest_is_open
        && section.lines > 2
        && section.longest.as_ref().is_some_and(|(ns, _)| *ns > TICK_NS_MAX);
    let stood = is_silent.then(|| STOOD.to_owned());
    let (function, callers) = named.unzip();
    // The lines' times count from the section's start, unless the file was made with absolute ones.
    let first_ns = section.first.map_or(0, |event| event.at_ns);
    let last_ns = section.last.map_or(0, |event| event.at_ns);
    let from_ns = if last_ns <= latency_ns.saturating_add(BEYOND_NS) { 0 } else { first_ns };
    let to_ns = from_ns.saturating_add(latency_ns);
    let cause = Cause {
        actor,
        pid: pid.filter(|pid| *pid != 0),
        function,
        callers: callers.unwrap_or_default(),
        from_ns: Some(from_ns),
        to_ns: Some(to_ns),
        share: Some(own_ns.map_or(1.0, |ns| ns as f64 / latency_ns as f64).min(1.0)),
        confidence: Some(confidence),
        evidence: [reason.into_owned()].into_iter().chain(stood).collect(),
        ..Cause::new(kind)
    };
    let is_cut = section.last.is_some_and(|last| last.at_ns < latency_ns / 2);
    let end = if is_cut { "the last line; the section goes on" } else { "the section ends" };
    let evidence = [(section.first, "the section begins"), (section.last, end)];
    let evidence = evidence.into_iter().filter_map(|(event, meaning)| {
        event.map(|event| EvidenceLine {
            at_ns: event.at_ns,
            cpu: event.cpu,
            offset: event.offset,
            text: describe::line(&event, reader).trim_start().to_owned(),
            meaning: meaning.to_owned(),
        })
    });
    let evidence = evidence.collect();
    let also = if own_ns.is_some() { section.others(&cause, latency_ns) } else { Vec::new() };
    let segments = std::mem::take(&mut section.timeline);
    ExplainedSpike {
        task: String::new(),
        pid: None,
        priority: None,
        cpu,
        expected_ns: from_ns,
        actual_ns: to_ns,
        latency_ns,
        unended: false,
        expected_from: ExpectedFrom::Tracer,
        expected_error_ns: reader.info().resolution_ns,
        timeline: tiled(segments, &cause, cpu),
        cause,
        also,
        evidence,
        hwlat: None,
        lost: 0,
        trace: 0,
    }
}

/// The segments from the section's start to its end, without gaps; unknown time is filled with the cause.
fn tiled(read: Vec<TimelineSegment>, cause: &Cause, cpu: CpuId) -> Vec<TimelineSegment> {
    let (from, to) = (cause.from_ns.unwrap_or(0), cause.to_ns.unwrap_or(0));
    let off = if cause.kind == CauseKind::IrqsOff { "interrupts disabled" } else { "preemption disabled" };
    let what = cause.actor.as_ref().map_or_else(|| off.to_owned(), |actor| format!("{actor}: {off}"));
    let mut segments: Vec<TimelineSegment> = Vec::new();
    let mut push = |from_ns: u64, to_ns: u64, known: Option<TimelineSegment>| {
        if from_ns >= to_ns {
            return;
        }
        let (text, function) = known.map_or((String::new(), None), |known| (known.what, known.function));
        let what = if text.is_empty() { what.clone() } else { text };
        match segments.last_mut() {
            Some(last) if last.what == what && last.function == function => last.to_ns = to_ns,
            _ => {
                segments.push(TimelineSegment {
                    from_ns,
                    to_ns,
                    cpu,
                    what,
                    kind: Some(cause.kind),
                    function,
                });
            }
        }
    };
    let mut at = from;
    for segment in read {
        let (begin, end) = (time::within(segment.from_ns, at, to), time::within(segment.to_ns, at, to));
        push(at, begin, None);
        push(begin, end, Some(segment));
        at = at.max(end);
    }
    push(at, to, None);
    describe::shorten_to_fit(&mut segments);
    segments
}
