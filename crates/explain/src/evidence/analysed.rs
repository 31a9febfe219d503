//! Latencies that another tool analysed and printed (rtla's `## CPU 23 hit stop tracing, analyzing it ##`), converted to a
//! result.

use crate::blame::piece::{Blame, Piece};
use crate::causes::divide;
use crate::confidence::{CONCLUDED, POSSIBLE, SHOWN};
use crate::stack;
use crate::vocabulary;
use whylate_core::result::{Cause, CauseKind, ExpectedFrom, ExplainedSpike, TimelineSegment};
use whylate_trace::facts::{Analysis, AnalysisKind, AnalysisPart, TraceFacts};

/// A stall of the bus looks like disabled interrupts.
const INTERRUPTED: &str = "the timer's late interrupt interrupted kernel code. Either the code had disabled interrupts, or the CPU waited for \
                           a device access (registers over PCIe)";

/// What the tool said about each latency.
pub(crate) fn spikes(facts: &TraceFacts) -> impl Iterator<Item = ExplainedSpike> + '_ {
    facts.analyses.iter().filter(|analysis| analysis.latency_ns > 0).map(spike)
}

fn spike(analysis: &Analysis) -> ExplainedSpike {
    let latency_ns = analysis.latency_ns;
    let mut pieces: Vec<Piece<String>> = Vec::new();
    let mut at = 0;
    for part in parts(analysis) {
        let to = part.1.saturating_add(at).min(latency_ns);
        let (blame, what) = blamed(part.0, analysis);
        pieces.push(Piece { from: at, to, began: at, blame, detail: what });
        at = to;
    }
    let rest = Blame::default();
    pieces.push(Piece {
        from: at,
        to: latency_ns,
        began: at,
        blame: rest,
        detail: "context switch and tracing".to_owned(),
    });
    pieces.retain(|piece| piece.to > piece.from);
    let causes: Vec<Cause> = divide::groups(&pieces)
        .iter()
        .map(|group| {
            let function = group.longest().blame.function.clone();
            Cause { function, callers: group.longest().blame.callers.clone(), ..group.cause(latency_ns) }
        })
        .collect();
    let main = divide::main_of(&causes);
    let (cause, also) = divide::split(causes, main);
    let segment = |piece: &Piece<String>| TimelineSegment {
        from_ns: piece.from,
        to_ns: piece.to,
        cpu: analysis.cpu,
        what: piece.detail.clone(),
        kind: piece.blame.kind,
        function: piece.blame.function.clone(),
    };
    ExplainedSpike {
        task: format!("timerlat/{}", analysis.cpu),
        pid: None,
        priority: None,
        cpu: analysis.cpu,
        expected_ns: 0,
        actual_ns: latency_ns,
        latency_ns,
        unended: false,
        expected_from: ExpectedFrom::Tracer,
        expected_error_ns: 0,
        cause,
        also,
        timeline: pieces.iter().map(segment).collect(),
        evidence: Vec::new(),
        hwlat: None,
        lost: 0,
        trace: 0,
    }
}

/// The parts with a time, each once: parts named below a sum replace the sum. If a latency ends in the timer's interrupt, it
/// is the time in which the interrupt was held off; the tool knows only the stack of that time.
fn parts(analysis: &Analysis) -> Vec<(&AnalysisPart, u64)> {
    let is_sum = |part: &AnalysisPart| {
        let named = |other: &AnalysisPart| match (&part.what, &other.what) {
            (AnalysisKind::BlockingThread(None), AnalysisKind::BlockingThread(Some(_)))
            | (AnalysisKind::Thread(None), AnalysisKind::Thread(Some(_)))
            | (AnalysisKind::Irq(None), AnalysisKind::Irq(Some(_)))
            | (AnalysisKind::Softirq(None), AnalysisKind::Softirq(Some(_))) => other.duration_ns.is_some(),
            _ => false,
        };
        analysis.parts.iter().any(named)
    };
    let timed = analysis.parts.iter().filter(|part| !is_sum(part));
    let mut parts: Vec<(&AnalysisPart, u64)> = Vec::new();
    let mut previous_ns = 0;
    for (part, duration_ns) in timed.filter_map(|part| Some((part, part.duration_ns?))) {
        let length_ns = match part.what {
            AnalysisKind::TimerDelay { .. } => {
                // The handler before it cannot have taken longer than the whole delay.
                if let Some((_, before)) = parts.last_mut() {
                    previous_ns = previous_ns.min(duration_ns);
                    *before = previous_ns;
                }
                duration_ns - previous_ns
            }
            AnalysisKind::PreviousIrq => {
                previous_ns = duration_ns;
                duration_ns
            }
            _ => duration_ns,
        };
        parts.push((part, length_ns));
    }
    parts.retain(|(_, length_ns)| *length_ns > 0);
    if parts.is_empty() {
        let blocking = |part: &&AnalysisPart| matches!(part.what, AnalysisKind::BlockingThread(_));
        let named = analysis.parts.iter().filter(blocking).max_by_key(|part| part.stack.len());
        parts.extend(named.map(|part| (part, analysis.latency_ns)));
    }
    parts
}

fn blamed(part: &AnalysisPart, analysis: &Analysis) -> (Blame, String) {
    let reason = "the tool that recorded the latency names this cause";
    let by =
        |kind, confidence, actor: &str| (Blame::new(kind, confidence, reason).actor(actor), actor.to_owned());
    match &part.what {
        AnalysisKind::TimerDelay { from_idle: true } => {
            let reason = "the tool says that the CPU was idle when the timer expired";
            (Blame::new(CauseKind::IdleExit, CONCLUDED, reason), "leaving idle".to_owned())
        }
        AnalysisKind::TimerDelay { from_idle: false } => delayed(analysis),
        AnalysisKind::PreviousIrq => {
            let reason =
                "the tool says that another interrupt handler ran just before; the time is an upper bound";
            (Blame::new(CauseKind::Irq, POSSIBLE, reason), "the interrupt before".to_owned())
        }
        AnalysisKind::TimerHandler => by(CauseKind::Irq, SHOWN, "local timer"),
        AnalysisKind::Irq(name) => by(CauseKind::Irq, SHOWN, name.as_deref().unwrap_or("interrupts")),
        AnalysisKind::Softirq(name) => by(CauseKind::Softirq, SHOWN, name.as_deref().unwrap_or("softirqs")),
        AnalysisKind::Nmi => by(CauseKind::Nmi, SHOWN, vocabulary::NMI),
        AnalysisKind::BlockingThread(who) | AnalysisKind::Thread(who) => {
            let of_interrupt = !analysis.of_thread;
            thread(who.as_ref(), part, of_interrupt)
        }
    }
}

/// The timer's interrupt came late: the code below it on its stack disabled interrupts.
fn delayed(analysis: &Analysis) -> (Blame, String) {
    let of_thread = |part: &&AnalysisPart| matches!(part.what, AnalysisKind::BlockingThread(Some(_)));
    let blocking = analysis.parts.iter().find(of_thread);
    let stack = analysis.parts.iter().map(|part| &part.stack).find(|stack| !stack.is_empty());
    let named = stack.and_then(|stack| stack::innermost(stack::below_interrupt(stack)?));
    let who = blocking.and_then(|part| match &part.what {
        AnalysisKind::BlockingThread(who) => who.as_ref(),
        _ => None,
    });
    let what = "the timer's interrupt does not come".to_owned();
    let Some(named) = named else { return (Blame::unattributed(), what) };
    let reason = INTERRUPTED;
    let blame = Blame::new(CauseKind::IrqsOff, CONCLUDED, reason).named(Some(named));
    (who.map_or(blame.clone(), |(command, pid)| blame.thread(command, *pid)), what)
}

fn thread(who: Option<&(String, u32)>, part: &AnalysisPart, of_interrupt: bool) -> (Blame, String) {
    let named = stack::below_interrupt(&part.stack).and_then(stack::innermost);
    let (kind, confidence, reason) = match &named {
        Some(_) if of_interrupt => (CauseKind::IrqsOff, CONCLUDED, INTERRUPTED),
        _ => (CauseKind::Thread, POSSIBLE, "the tool names this thread, but reports no priorities"),
    };
    let blame = Blame::new(kind, confidence, reason).named(named);
    match who {
        Some((command, pid)) => (blame.thread(command, *pid), command.clone()),
        None => (blame, "another thread".to_owned()),
    }
}
