//! A trace from its events to its answers: finds the late moments, and goes to the window of each of the largest.

mod export;
mod kept;
mod spike;
mod warn;

pub use export::{Export, export};
pub use kept::{KeptMoment, explain_kept};

use crate::blame::label::Need;
use crate::blame::standstill;
use crate::confidence::POSSIBLE;
use crate::evidence::{analysed, device, section};
use crate::find::late::LateKind;
use crate::find::{Found, find};
use crate::options::Options;
use std::collections::BTreeSet;
use whylate_core::result::{ExpectedFrom, ExplainAnswer, ExplainResult, ExplainedSpike};
use whylate_core::{Warning, WarningCode};
use whylate_trace::parse::ParseError;
use whylate_trace::reader::Reader;

/// Explains the spikes of a trace.
///
/// # Errors
/// Those of the reader: the trace cannot be read or is damaged.
pub fn explain(reader: &mut dyn Reader, options: &Options) -> Result<ExplainResult, ParseError> {
    let mut found = find(reader, options)?;
    let mut spikes = Vec::new();
    let mut needs = BTreeSet::new();
    if let Some(spike) = section::explain(reader, &found.seen)? {
        found.is_section(&spike);
        spikes.push(spike);
    }
    let options = &of_machine(reader, options, &found)?;
    // Sleeps come first: the wake-up that ends a sleep is a part of it, and counts with it.
    found.lates.sort_by_key(|late| late.kind != LateKind::Blocked);
    let mut slept = BTreeSet::new();
    for late in std::mem::take(&mut found.lates) {
        let run = (late.pid, late.actual_ns);
        if late.from == ExpectedFrom::Wakeup && slept.contains(&run) {
            continue;
        }
        let explained = spike::explain(reader, &late, options)?;
        match (explained, late.kind) {
            (Some((spike, more)), kind) => {
                needs.extend(more);
                spikes.push(spike);
                if kind == LateKind::Blocked {
                    slept.insert(run);
                }
            }
            (None, LateKind::Blocked) => found.leave_out(&late),
            (None, _) => {}
        }
    }
    if spikes.is_empty() {
        spikes.extend(analysed::spikes(&reader.info().facts));
    }
    found.count_sleeps(reader, options, !slept.is_empty())?;
    spikes.retain(|spike| spike.latency_ns > found.threshold.0);
    spikes.sort_by_key(|spike| (std::cmp::Reverse(spike.latency_ns), spike.expected_ns));
    spikes.truncate(options.top);
    spikes.iter_mut().for_each(device::mark);
    for spike in spikes.iter_mut().filter(|spike| warn::is_disordered(&found.seen, spike)) {
        let causes = std::iter::once(&mut spike.cause).chain(&mut spike.also);
        causes.for_each(|cause| cause.confidence = cause.confidence.map(|it| it.min(POSSIBLE)));
    }
    let result = found.result(reader, options, spikes.len() as u64);
    Ok(completed(&found, result, spikes, &needs, reader))
}

/// Adds what the trace shows about the machine, if that is not known and there is something to explain.
fn of_machine(reader: &mut dyn Reader, options: &Options, found: &Found) -> Result<Options, ParseError> {
    let asks = options.is_virtual.is_none() && !found.lates.is_empty();
    let known = asks.then(|| standstill::is_virtual(reader)).transpose()?;
    Ok(Options { is_virtual: options.is_virtual.or(known), ..options.clone() })
}

/// The result with its spikes, and with warnings about what the trace lacks and what its reader noticed.
fn completed(
    found: &Found,
    mut result: ExplainResult,
    spikes: Vec<ExplainedSpike>,
    needs: &BTreeSet<Need>,
    reader: &dyn Reader,
) -> ExplainResult {
    let trace = &mut result.traces[0];
    if !spikes.is_empty() {
        (trace.answer, trace.answer_reason) = (ExplainAnswer::Found, None);
    }
    result.warnings = warn::warnings(&result.traces[0], &found.seen, needs, &spikes);
    result.warnings.extend(warn::unseen(&found.subject, result.traces[0].answer));
    result.warnings.extend(warn::overruns(&found.subject, result.traces[0].answer));
    result.warnings.extend(warn::cpus(reader.info(), &found.seen));
    result.warnings.extend(warn::contradictions(reader.info(), &found.seen, &spikes));
    result.warnings.extend(warn::left_out(reader.info(), &found.seen));
    let remarks = reader.info().remarks.iter();
    result.warnings.extend(remarks.map(|remark| Warning::new(WarningCode::Reader, remark.as_str())));
    let limits = reader.info().limits.iter().map(String::as_str).chain(found.too_many_tasks.as_deref());
    result.warnings.extend(limits.map(|limit| Warning::new(WarningCode::TraceBeyondMemory, limit)));
    result.spikes = spikes;
    result.conclude();
    result
}
