//! The programs that some histograms need in addition to those for wake-ups and switches. Each is attached only when such a
//! histogram is switched on: a program costs CPU time at every event of the kernel.

use crate::error::BpfError;
use crate::events::{Event, event};
use crate::object::{Object, kernel_has};
use crate::symbols::name_of_function;
use whylate_core::result::HistogramKind;

/// The event at which a switch is over.
const SWITCH_END: Event = event("switch_end", "sched_exit_tp");
/// The function that a task runs first after a switch, for kernels without that event. Its arguments are not read.
const FIRST_FUNCTION: Event = event("switch_end_probed", "finish_task_switch");
const OF_SWITCH_END: [HistogramKind; 2] = [HistogramKind::SwitchOff, HistogramKind::TimerWakeupSwitch];
const TIMERS: [Event; 3] = [
    event("timer_start", "hrtimer_start"),
    event("timer_entry", "hrtimer_expire_entry"),
    event("timer_exit", "hrtimer_expire_exit"),
];
const OF_TIMERS: [HistogramKind; 3] =
    [HistogramKind::MissedTimerOffsets, HistogramKind::TimerAndWakeup, HistogramKind::TimerWakeupSwitch];

/// What shows that a switch is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SwitchEnd {
    Event,
    /// A probe at the function of this name.
    Probe(String),
    Missing(String),
}

impl SwitchEnd {
    /// The kernel's event, or a probe if the kernel has no event and one of these histograms needs it.
    pub(crate) fn find(kinds: &[HistogramKind]) -> Result<Self, BpfError> {
        if kernel_has(SWITCH_END.tracepoint)? {
            return Ok(Self::Event);
        }
        let function = FIRST_FUNCTION.tracepoint;
        Ok(match name_of_function(function, true) {
            Some(name) if are_among(kinds, &OF_SWITCH_END) => Self::Probe(name),
            Some(_) => {
                Self::missing("a probe replaces it only for histograms that are measured from the start")
            }
            None => Self::missing(&format!("the kernel has no function {function} either, or hides it")),
        })
    }

    /// Nothing: the kernel has no event, and a probe is impossible for this reason.
    pub(crate) fn missing(further: &str) -> Self {
        Self::Missing(format!("this kernel has no event {}, and {further}", SWITCH_END.tracepoint))
    }

    pub(crate) fn is_seen(&self) -> bool {
        !matches!(self, Self::Missing(_))
    }
}

fn are_among(kinds: &[HistogramKind], those: &[HistogramKind]) -> bool {
    kinds.iter().any(|kind| those.contains(kind))
}

/// Which of these programs are attached.
pub(crate) struct Parts {
    pub(crate) switch_end: SwitchEnd,
    has_switch_end: bool,
    has_timers: bool,
}

impl Parts {
    /// None yet.
    pub(crate) fn new(switch_end: SwitchEnd) -> Self {
        Self { switch_end, has_switch_end: false, has_timers: false }
    }

    /// Attaches what these histograms need and does not run yet; with causes, timers are needed in any case. Returns the
    /// histograms that this kernel cannot do, each with the reason.
    pub(crate) fn attach(
        &mut self,
        object: &mut Object,
        kinds: &[HistogramKind],
        with_causes: bool,
    ) -> Result<Vec<(HistogramKind, String)>, BpfError> {
        let mut unavailable = Vec::new();
        if are_among(kinds, &OF_SWITCH_END) && !self.has_switch_end {
            self.has_switch_end = true;
            match &self.switch_end {
                SwitchEnd::Event => object.attach(SWITCH_END).map(|_| ())?,
                SwitchEnd::Probe(name) => object.attach_probe(FIRST_FUNCTION, name)?,
                SwitchEnd::Missing(reason) => unavailable.push((HistogramKind::SwitchOff, reason.clone())),
            }
        }
        if (with_causes || are_among(kinds, &OF_TIMERS)) && !self.has_timers {
            self.has_timers = true;
            for event in TIMERS {
                if let Some(reason) = object.attach(event)? {
                    unavailable.extend(OF_TIMERS.map(|kind| (kind, reason.clone())));
                }
            }
        }
        Ok(unavailable)
    }
}
