//! Moments at which an application said that it was late, and which watched threads were.

use super::{Cause, CauseKind};
use crate::figure::nanoseconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How often a trigger came in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TriggerRecord {
    /// The trigger, as given.
    pub trigger: String,
    /// How often the trigger came.
    pub count: u64,
    /// Triggers that came so soon after another trigger that they share its explanation.
    pub shared: u64,
    /// Triggers that are not explained, because too many came.
    pub unexplained: u64,
}

impl TriggerRecord {
    /// Adds what a later interval says of the same trigger.
    pub fn add(&mut self, later: &Self) {
        self.count = self.count.saturating_add(later.count);
        self.shared = self.shared.saturating_add(later.shared);
        self.unexplained = self.unexplained.saturating_add(later.unexplained);
    }
}

/// An explained trigger, with the triggers that came so soon afterwards that they share the explanation.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriggerMoment {
    /// When the trigger came; for a line, when its first byte was read.
    pub at_ns: u64,
    /// The trigger, as given.
    pub trigger: String,
    /// The line that matched, or the text that came with it.
    pub text: Option<String>,
    /// The other triggers among those that share the explanation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Number of triggers that share the explanation, this one included.
    pub count: u64,
    /// Each thread's longest activation before the trigger: late threads first, then the most time above the thread's median.
    pub threads: Vec<TriggerThread>,
}

/// A thread's longest activation in the time before a trigger.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriggerThread {
    /// The thread's series.
    pub thread: String,
    /// When the activation began.
    pub due_ns: u64,
    /// Response of the activation, or how long it had taken by the trigger; for an activation that had not ended and was late
    /// only after the trigger, the time until whylate looked.
    pub response_ns: u64,
    /// The part of `response_ns` that is the longest possible wait for a CPU, where the wake-up is not known.
    pub wait_max_ns: Option<u64>,
    /// The median of the thread's responses before the trigger, without such waits; absent if there were too few.
    pub typical_ns: Option<u64>,
    /// Whether the response was longer than 1.5 times the median, with such waits in both or in neither.
    pub late: bool,
    /// Whether the activation had not ended when whylate looked, and what it did after the trigger counts.
    pub unended: bool,
    /// Lost records of the activation's time.
    #[serde(default)]
    pub lost: u64,
    /// The causes, the largest share first.
    pub causes: Vec<Cause>,
}

/// What is said if no thread was seen to be late. `is_partial`: not all waits can be seen; `unknown`: a thread without a
/// median, and its longest response.
fn none_late(is_partial: bool, unknown: Option<(&str, u64)>) -> String {
    match unknown {
        _ if is_partial => {
            "cannot tell which thread was late (without rights, whylate does not see waits for locks)"
                .to_owned()
        }
        Some((thread, response_ns)) => format!(
            "cannot tell: {thread} has no median to compare with (longest response {})",
            nanoseconds(response_ns)
        ),
        None => "no watched thread was late".to_owned(),
    }
}

impl TriggerThread {
    /// An activation that is longer than this many times the median is late.
    pub const LATE: f64 = 1.5;

    /// `control took 4.10 ms instead of 1.00 ms: preempted by thief`.
    pub fn sentence(&self) -> String {
        let typical =
            self.typical_ns.map(|ns| format!(" instead of {}", nanoseconds(ns))).unwrap_or_default();
        let cause = self.causes.first().map(|cause| format!(": {}", cause.sentence())).unwrap_or_default();
        let so_far = if self.unended { " and had not ended" } else { "" };
        let (at_most, but) = bounded(self.wait_max_ns);
        format!(
            "{} took {at_most}{}{but}{typical}{so_far}{cause}",
            self.thread,
            nanoseconds(self.response_ns)
        )
    }
}

/// What stands before and behind a response, given the longest possible wait for a CPU in it: waits for locks were not seen either.
fn bounded(wait_max_ns: Option<u64>) -> (&'static str, &'static str) {
    let at_most = if wait_max_ns.is_some_and(|ns| ns > 0) { "at most " } else { "" };
    (at_most, if wait_max_ns.is_some() { " (without waits for locks)" } else { "" })
}

impl TriggerMoment {
    /// `output:Late: control took 4.10 ms instead of 1.00 ms: preempted by thief`.
    pub fn sentence(&self) -> String {
        let why = self.late_thread().map_or_else(|| self.none_late(), TriggerThread::sentence);
        format!("{}: {why}", self.trigger)
    }

    /// What is said if no thread was seen to be late.
    pub fn none_late(&self) -> String {
        let unknown = self.unknown_thread().map(|it| (it.thread.as_str(), it.response_ns));
        none_late(self.is_partial(), unknown)
    }

    /// The thread that may have been late, if none was: its response is the longest, and it has no median.
    fn unknown_thread(&self) -> Option<&TriggerThread> {
        let longest = self.threads.iter().max_by_key(|thread| thread.response_ns);
        longest.filter(|longest| longest.typical_ns.is_none() && self.late_thread().is_none())
    }

    /// Whether not all waits of its threads can be seen.
    pub fn is_partial(&self) -> bool {
        self.threads.iter().any(|thread| thread.wait_max_ns.is_some())
    }

    /// The thread that was late, by its median; `None` if none was.
    pub fn late_thread(&self) -> Option<&TriggerThread> {
        self.threads.iter().find(|thread| thread.late)
    }
}

/// All moments of one trigger.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriggerResult {
    #[serde(flatten)]
    pub record: TriggerRecord,
    /// How often the trigger came per hour of the watch.
    pub per_hour: f64,
    /// The suspects: which thread was late in how many explained moments, most moments first.
    pub suspects: Vec<TriggerSuspect>,
    /// The newest explained moments.
    pub moments: Vec<TriggerMoment>,
}

/// Moments of a trigger that have the same cause.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriggerSuspect {
    /// The thread that was late; absent if no watched thread was.
    pub thread: Option<String>,
    /// The first cause of the thread's longest activation; absent if it is not known.
    pub cause: Option<Cause>,
    /// Number of moments.
    pub moments: u64,
    /// The longest response.
    pub longest_ns: u64,
    /// The part of `longest_ns` that is the longest possible wait for a CPU, where the wake-up is not known.
    pub wait_max_ns: Option<u64>,
    /// No watched thread was seen to be late, but a thread may have been late all the same: it has no median, or not all waits
    /// can be seen without the kernel's programs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cannot_tell: bool,
    /// The thread without a median, whose longest response is `longest_ns`.
    pub without_median: Option<String>,
}

impl TriggerSuspect {
    /// What is said if no thread was seen to be late.
    pub fn none_late(&self) -> String {
        let unknown = self.without_median.as_deref().map(|thread| (thread, self.longest_ns));
        none_late(self.cannot_tell && unknown.is_none(), unknown)
    }
}

impl TriggerResult {
    /// The moments that the result lists; `suspects` count all.
    pub const MOMENTS_KEPT: usize = 100;

    /// Counts why a moment came.
    pub fn blame(&mut self, moment: &TriggerMoment) {
        let late = moment.late_thread();
        let first = late.and_then(|thread| thread.causes.first());
        let thread = late.map(|it| it.thread.clone());
        let is_partial = moment.is_partial();
        let unknown = moment.unknown_thread().filter(|_| !is_partial);
        let without_median = unknown.map(|it| it.thread.clone());
        let is_same = |it: &TriggerSuspect| {
            let threads = (&it.thread, &it.without_median) == (&thread, &without_median);
            threads && identity(it.cause.as_ref()) == identity(first)
        };
        let nth = self.suspects.iter().position(is_same).unwrap_or_else(|| {
            self.suspects.push(TriggerSuspect { thread, without_median, ..TriggerSuspect::default() });
            self.suspects.len() - 1
        });
        let suspect = &mut self.suspects[nth];
        suspect.moments += 1;
        suspect.cannot_tell |= late.is_none() && (is_partial || unknown.is_some());
        let response_ns = late.or(unknown).map_or(0, |it| it.response_ns);
        if suspect.cause.is_none() || response_ns > suspect.longest_ns {
            suspect.cause = first.cloned();
            suspect.wait_max_ns = late.and_then(|it| it.wait_max_ns).filter(|ns| *ns > 0);
        }
        suspect.longest_ns = suspect.longest_ns.max(response_ns);
    }
}

/// What tells causes apart.
fn identity(cause: Option<&Cause>) -> Option<(CauseKind, Option<&str>, Option<&str>)> {
    cause.map(|cause| (cause.kind, cause.actor.as_deref(), cause.function.as_deref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(actor: Option<&str>, response_ns: u64) -> TriggerMoment {
        let cause = Cause { actor: actor.map(str::to_owned), ..Cause::new(CauseKind::Thread) };
        let thread = |name: &str, late, causes| TriggerThread {
            thread: name.to_owned(),
            response_ns,
            typical_ns: Some(1_000),
            late,
            causes,
            ..TriggerThread::default()
        };
        let first = thread("control", actor.is_some(), vec![cause]);
        TriggerMoment {
            threads: vec![first, thread("logger", false, Vec::new())],
            ..TriggerMoment::default()
        }
    }

    #[test]
    fn moments_are_counted_by_thread_and_first_cause() {
        let mut result = TriggerResult::default();
        let all = [(Some("thief"), 5_000), (Some("other"), 9_000), (None, 900), (Some("thief"), 7_000)];
        all.into_iter().for_each(|(actor, response_ns)| result.blame(&moment(actor, response_ns)));
        let found: Vec<_> = result
            .suspects
            .iter()
            .map(|it| {
                (
                    it.thread.as_deref(),
                    identity(it.cause.as_ref()).and_then(|it| it.1),
                    it.moments,
                    it.longest_ns,
                )
            })
            .collect();
        let control = Some("control");
        assert_eq!(
            found,
            [(control, Some("thief"), 2, 7_000), (control, Some("other"), 1, 9_000), (None, None, 1, 0)]
        );
    }

    #[test]
    fn own_work_in_different_functions_is_counted_apart() {
        let mut result = TriggerResult::default();
        for (function, response_ns) in [("grow_map", 9_000), ("solve_ik", 5_000), ("grow_map", 6_000)] {
            let mut moment = moment(Some("control"), response_ns);
            moment.threads[0].causes[0] =
                Cause { function: Some(function.to_owned()), ..Cause::new(CauseKind::OwnWork) };
            result.blame(&moment);
        }
        let found: Vec<_> = result.suspects.iter().map(|it| (it.moments, it.longest_ns)).collect();
        assert_eq!(found, [(2, 9_000), (1, 5_000)]);
    }

    #[test]
    fn a_longest_response_without_a_median_may_have_been_late() {
        let thread = |name: &str, response_ns, typical_ns| TriggerThread {
            thread: name.to_owned(),
            response_ns,
            typical_ns,
            ..TriggerThread::default()
        };
        let said = |threads| {
            let moment = TriggerMoment { threads, ..TriggerMoment::default() };
            let mut result = TriggerResult::default();
            result.blame(&moment);
            let suspect = result.suspects.remove(0);
            assert_eq!(suspect.none_late(), moment.none_late());
            (suspect.cannot_tell, suspect.longest_ns, suspect.none_late())
        };
        let new = thread("new", 300_000_000, None);
        let expected = "cannot tell: new has no median to compare with (longest response 300 ms)".to_owned();
        assert_eq!(said(vec![thread("control", 900, Some(1_000)), new]), (true, 300_000_000, expected));
        let short = thread("new", 10, None);
        let expected = "no watched thread was late".to_owned();
        assert_eq!(said(vec![short, thread("control", 900, Some(1_000))]), (false, 0, expected));
    }

    #[test]
    fn a_thread_that_was_late_has_its_cause_in_its_sentence() {
        let text = moment(Some("thief"), 4_100_000).threads[0].sentence();
        assert!(
            text.starts_with("control took 4.10 ms instead of 1.00 us: ") && text.contains("thief"),
            "{text}"
        );
    }
}
