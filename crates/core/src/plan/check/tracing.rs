//! Checks of what a plan says about traces and tracers.

use crate::plan::document::{Document, PlanError};
use crate::plan::{Plan, Tracer, TracerPlan};
use crate::units::Nanos;

/// More traces of a cell than anybody looks at.
const WORST_MAX: u32 = 1000;
/// timerlat takes no shorter and no longer periods.
const PERIOD_US: std::ops::RangeInclusive<u64> = 100..=1_000_000;

/// What is kept as traces.
pub(super) fn check_trace(plan: &Plan, document: &Document<'_>) -> Result<(), PlanError> {
    let Some(trace) = &plan.trace else { return Ok(()) };
    if !(1..=WORST_MAX).contains(&trace.worst) {
        return Err(document.error_at("trace.worst", format!("must be 1 to {WORST_MAX}")));
    }
    if trace.above.is_some_and(|above| above.0 == 0) {
        return Err(document.error_at("trace.above", "must be above 0s"));
    }
    for (index, event) in trace.events.iter().enumerate() {
        let parts: Vec<&str> = event.split('/').collect();
        let is_part = |part: &&str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        };
        if parts.len() != 2 || !parts.iter().all(is_part) {
            let message = format!("`{event}` is not an event; write for example `raw_syscalls/sys_enter`");
            return Err(document.error_at(&format!("trace.events[{index}]"), message));
        }
    }
    Ok(())
}

/// A tracer takes the keys that it has a use for, in the ranges that the kernel takes.
pub(super) fn check_tracer(tracer: &TracerPlan, key: &str, document: &Document<'_>) -> Result<(), PlanError> {
    let is_timerlat = tracer.tracer == Tracer::Timerlat;
    let foreign = [
        ("width", is_timerlat && tracer.width.is_some()),
        ("window", is_timerlat && tracer.window.is_some()),
        ("threshold", is_timerlat && tracer.threshold.is_some()),
        ("period", !is_timerlat && tracer.period.is_some()),
    ];
    if let Some((name, _)) = foreign.iter().find(|(_, given)| *given) {
        let message = format!("the {} tracer has no {name}", tracer.tracer);
        return Err(document.error_at(&format!("{key}.{name}"), message));
    }
    let times = [
        ("width", tracer.width),
        ("window", tracer.window),
        ("threshold", tracer.threshold),
        ("period", tracer.period),
    ];
    let too_short = |time: &Option<Nanos>| time.is_some_and(|time| time.0 < 1_000);
    if let Some((name, _)) = times.iter().find(|(_, time)| too_short(time)) {
        return Err(document.error_at(&format!("{key}.{name}"), "must be at least 1us"));
    }
    let (width, window) = (tracer.width(), tracer.window());
    match tracer.tracer {
        Tracer::Timerlat if !PERIOD_US.contains(&(tracer.period().0 / 1_000)) => {
            Err(document.error_at(&format!("{key}.period"), "must be 100us to 1s"))
        }
        // It looks with interrupts off, so that the rest of the window belongs to everybody else.
        Tracer::Hwlat if width >= window => {
            let message = format!("must be below the window ({window}), in whose rest interrupts are on");
            Err(document.error_at(&format!("{key}.width"), message))
        }
        Tracer::Osnoise if width > window => {
            Err(document
                .error_at(&format!("{key}.width"), format!("must not be above the window ({window})")))
        }
        _ => Ok(()),
    }
}
