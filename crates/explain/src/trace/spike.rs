//! One spike: its window, its pieces, its verdict.

use crate::blame::account::Accountant;
use crate::blame::label::{Labeller, Need};
use crate::blame::standstill;
use crate::causes::divide::lower;
use crate::causes::judge::{self, Judgement};
use crate::confidence;
use crate::evidence::sampled;
use crate::find::late::{Late, LateKind};
use crate::options::Options;
use crate::states;
use crate::states::priorities::Priorities;
use crate::window::{self, Window};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use whylate_core::result::{Cause, ExpectedFrom, ExplainedSpike, LateWhat};
use whylate_trace::event::Event;
use whylate_trace::parse::ParseError;
use whylate_trace::reader::Reader;

/// Explains a spike; `None` if its window shows that it was not a spike.
pub(crate) fn explain(
    reader: &mut dyn Reader,
    late: &Late,
    options: &Options,
) -> Result<Option<(ExplainedSpike, BTreeSet<Need>)>, ParseError> {
    let mut window = window::read(reader, late)?;
    if late.kind == LateKind::Header {
        // The rest of it was cut off: the state at the last line did not last until the end.
        window.to = window.events.last().map_or(window.from, |event| event.at_ns);
    }
    let reader: &dyn Reader = reader;
    let late = &at_its_clock(late, &window);
    let judgement = sampled::judge(late, &window, reader, options.is_virtual == Some(true))
        .or_else(|| judged(late, &window, reader, options));
    let Some(mut judgement) = judgement else { return Ok(None) };
    lower_confidence(&mut judgement.cause, late, &window);
    if late.unended {
        // The trace of a kept moment goes on.
        let of = if late.from == ExpectedFrom::Probe { "measurement" } else { "trace" };
        let more =
            format!("the task did not run before the end of the {of}, so the latency is a lower bound");
        judgement.cause.evidence.push(more);
    }
    let facts = &reader.info().facts;
    let stated =
        || facts.task.as_ref().filter(|task| Some(task.pid) == late.pid).map(|task| task.command.clone());
    let spike = ExplainedSpike {
        task: late
            .command
            .map(|name| reader.names().text(name).to_owned())
            .or_else(stated)
            .unwrap_or_default(),
        pid: late.pid,
        priority: late.priority,
        cpu: late.cpu,
        expected_ns: late.expected_ns,
        actual_ns: late.actual_ns,
        latency_ns: late.latency_ns(),
        unended: late.unended,
        expected_from: late.from,
        expected_error_ns: late.error_ns.max(reader.info().resolution_ns),
        cause: judgement.cause,
        also: judgement.also,
        timeline: judgement.timeline,
        evidence: judgement.evidence,
        hwlat: if let LateKind::Hwlat(sample) = late.kind { Some(sample) } else { None },
        lost: window.lost,
        trace: 0,
    };
    Ok(Some((spike, judgement.needs)))
}

/// A task that prints its latency read the clock after the switch to it, which may take long: at its first own event.
fn at_its_clock(late: &Late, window: &Window) -> Late {
    if late.from != ExpectedFrom::Marker {
        return *late;
    }
    let is_own = |event: &&Event| {
        event.pid == late.pid
            && event.cpu == late.cpu
            && event.at_ns >= late.actual_ns
            && !event.context.hard_irq
    };
    let ran = window.events.iter().find(is_own).map_or(late.actual_ns, |event| event.at_ns);
    let ran_ns = ran.min(late.actual_ns.saturating_add(late.error_ns));
    let shift_ns = ran_ns - late.actual_ns;
    let (error_ns, expected_ns) = (late.error_ns - shift_ns, late.expected_ns.saturating_add(shift_ns));
    Late { expected_ns, actual_ns: ran_ns, error_ns, ..*late }
}

/// A hole shorter than this part of a latency is too short for the task to have run in it.
const UNSEEN_PART: u64 = 5;

fn judged(late: &Late, window: &Window, reader: &dyn Reader, options: &Options) -> Option<Judgement> {
    let states = states::sweep(window, reader);
    let priorities = Priorities::of(window);
    let priority = late.priority.or_else(|| priorities.first(late.pid?));
    let late = &Late { priority, ..*late };
    let labeller = Labeller {
        window,
        states: &states,
        reader,
        stacks: OnceCell::new(),
        own_events: RefCell::default(),
        priorities: &priorities,
        late: late.kind,
        unstopped: late.unstopped,
        is_virtual: options.is_virtual == Some(true),
    };
    let mut accountant =
        Accountant { window, states: &states, labeller: &labeller, late, pieces: Vec::new() };
    // A task that blocked is always explained, whatever it waited for.
    let as_asked = options.what == Some(LateWhat::Blocked);
    if late.kind == LateKind::Blocked
        && !as_asked
        && !accountant.had_fault(late.expected_ns)
        && !accountant.waited_for_lock(late.expected_ns)
    {
        return None;
    }
    accountant.run();
    standstill::relabel(&mut accountant.pieces, &labeller);
    let mut judgement = judge::judge(&accountant, reader);
    let timeline = &judgement.timeline;
    let is_inside = |(cpu, at_ns): &(whylate_core::CpuId, u64)| {
        let (from, to) = (late.expected_ns, late.actual_ns);
        (from..=to).contains(at_ns) && timeline.iter().any(|segment| segment.cpu == *cpu)
    };
    // A cause that rests only on the lack of another explanation does not get worse.
    let rests = judgement.cause.confidence > Some(confidence::LEFT_OVER);
    if rests && states.breaks.iter().any(is_inside) {
        let reason = "less certain: events around this latency contradict each other, so some are missing";
        let sure = judgement.cause.confidence.is_some_and(|grade| grade >= confidence::CONCLUDED);
        let factor = if sure { confidence::OF_BREAKS } else { confidence::OF_BREAKS_UNSURE };
        lower(&mut judgement.cause, factor, reason.to_owned());
        if states.unseen_ns(late) > late.latency_ns() / UNSEEN_PART {
            let reason = "less certain: for much of this latency, no switch shows which thread had the CPU; the \
                          task itself may have run";
            for cause in std::iter::once(&mut judgement.cause).chain(&mut judgement.also) {
                let grade = cause.confidence.unwrap_or(0.0);
                lower(cause, (confidence::POSSIBLE / grade).min(1.0), reason.to_owned());
            }
        }
    }
    if let LateKind::NoiseGap { interference: 0 } = late.kind {
        sampled::provably_hardware(&mut judgement, late, options.is_virtual == Some(true));
    }
    Some(judgement)
}

/// Lost events, and an expected moment that is not exact, make a cause less sure.
fn lower_confidence(cause: &mut Cause, late: &Late, window: &Window) {
    if window.lost > 0 {
        let reason = format!("less certain: events around this latency were lost ({})", window.lost);
        lower(cause, confidence::OF_LOSSES, reason);
    }
    if window.truncated {
        let reason = "less certain: there are too many events around this latency, and the first were left \
                      out";
        lower(cause, confidence::OF_UNSURE_WINDOW, reason.to_owned());
    }
    if late.error_ns.saturating_mul(4) > late.latency_ns() {
        let reason = "less certain: the moment at which the task should have run is not known exactly";
        lower(cause, confidence::OF_UNSURE_WINDOW, reason.to_owned());
    }
    if late.from == ExpectedFrom::Wakeup {
        let reason = "the latency begins at the wake-up: delays before the wake-up are not included";
        lower(cause, 1.0, reason.to_owned());
    }
}
