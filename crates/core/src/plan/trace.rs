//! What a plan says about traces.

use super::document::{Document, PlanError};
use crate::units::{Bytes, Nanos};
use crate::words::words;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A limit: more traces of one cell would never be read.
const WORST_MAX: u32 = 1000;

/// When a run saves traces, and what they contain: in a plan `trace = "on-spike"`, or a section with more keys.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TracePlan {
    /// When a trace is saved.
    pub when: TraceWhen,
    /// Traces are saved only for latencies above this; by default the plan's limit, or 100us without a limit.
    pub above: Option<Nanos>,
    /// Number of traces to keep for each probe in each cell: those of the largest latencies.
    pub worst: u32,
    /// How much is recorded.
    pub profile: TraceProfile,
    /// Size of each CPU's ring buffer; by default 4MiB, or 16MiB with functions. The ring buffer must hold the last
    /// 50ms.
    pub buffer: Option<Bytes>,
    /// Events to record in addition to those of the profile: `raw_syscalls/sys_enter`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
}

impl Default for TracePlan {
    fn default() -> Self {
        Self {
            when: TraceWhen::OnSpike,
            above: None,
            worst: 3,
            profile: TraceProfile::Light,
            buffer: None,
            events: Vec::new(),
        }
    }
}

impl TracePlan {
    /// The latency above which a trace is kept, in a plan with that limit.
    pub fn above(&self, limit: Option<Nanos>) -> Nanos {
        self.above.or(limit).unwrap_or(Nanos::from_micros(100))
    }

    /// Size of each CPU's ring.
    pub fn buffer(&self) -> Bytes {
        self.buffer.unwrap_or_else(|| self.profile.buffer())
    }

    pub(super) fn check(&self, document: &Document<'_>) -> Result<(), PlanError> {
        if !(1..=WORST_MAX).contains(&self.worst) {
            return Err(document.error_at("trace.worst", format!("must be 1 to {WORST_MAX}")));
        }
        if self.above.is_some_and(|above| above.0 == 0) {
            return Err(document.error_at("trace.above", "must be above 0s"));
        }
        let is_part = |part: &str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        };
        for (index, event) in self.events.iter().enumerate() {
            if !event.split_once('/').is_some_and(|(system, name)| is_part(system) && is_part(name)) {
                let message =
                    format!("`{event}` is not an event; write for example `raw_syscalls/sys_enter`");
                return Err(document.error_at(&format!("trace.events[{index}]"), message));
            }
        }
        Ok(())
    }
}

words! {
    /// When a trace is saved.
    #[derive(Default)]
    pub enum TraceWhen: "a moment to keep traces" {
        /// When a latency is above the threshold.
        #[default]
        OnSpike = "on-spike",
        /// Never: nothing is recorded.
        Off = "off",
    }
}

words! {
    /// How much is recorded.
    #[derive(Default)]
    pub enum TraceProfile: "a profile" {
        /// Events of the scheduler, interrupts, timers and interprocessor interrupts, which show most causes.
        #[default]
        Light = "light",
        /// The events of `light` and every kernel function (function tracer), to name the one that held the CPU.
        Functions = "functions",
        /// The events of `light` and every kernel function with its duration (function-graph tracer).
        Graph = "graph",
    }
}

impl TraceProfile {
    /// Events that explain a late wake-up, as `system/name`; those of every profile. A kernel may lack some of them.
    pub const EVENTS: [&str; 25] = [
        "sched/sched_switch",
        "sched/sched_waking",
        "sched/sched_wakeup",
        "sched/sched_wakeup_new",
        "sched/sched_migrate_task",
        "sched/sched_pi_setprio",
        "irq/irq_handler_entry",
        "irq/irq_handler_exit",
        "irq/softirq_raise",
        "irq/softirq_entry",
        "irq/softirq_exit",
        "timer/hrtimer_start",
        "timer/hrtimer_cancel",
        "timer/hrtimer_expire_entry",
        "timer/hrtimer_expire_exit",
        "timer/timer_expire_entry",
        "timer/timer_expire_exit",
        "workqueue/workqueue_execute_start",
        "workqueue/workqueue_execute_end",
        "nmi/nmi_handler",
        "exceptions/page_fault_user",
        "exceptions/page_fault_kernel",
        "power/cpu_idle",
        "lock/contention_begin",
        "lock/contention_end",
    ];

    /// Its tracer.
    pub fn tracer(self) -> &'static str {
        match self {
            Self::Light => "nop",
            Self::Functions => "function",
            Self::Graph => "function_graph",
        }
    }

    /// Size of each CPU's ring by default.
    pub fn buffer(self) -> Bytes {
        match self {
            Self::Light => Bytes(4 << 20),
            Self::Functions | Self::Graph => Bytes(16 << 20),
        }
    }
}

/// The schema of the key `trace`: a word or a section.
pub(super) fn word_or_section(generator: &mut SchemaGenerator) -> Schema {
    let word = generator.subschema_for::<TraceWhen>();
    let section = generator.subschema_for::<Option<TracePlan>>();
    json_schema!({ "anyOf": [word, section], "description": "Traces of spikes: `on-spike`, `off`, or a section" })
}
