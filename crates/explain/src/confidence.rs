//! How sure a cause is: one scale for both kinds of evidence, best evidence first.
//!
//! If two answers for the same spike differ, the one with the higher grade rests on better evidence, whatever its source. The
//! numbers are how often such an answer was right on randomly damaged traces with a known cause (`tests/mutated`): from 0.9
//! on it must not be wrong there.

/// Its start and end were recorded.
pub(crate) const RECORDED: f64 = 1.0;
/// Events state it: interrupts or preemption were disabled and enabled, the scheduler chose a thread of lower priority, or the late
/// interrupt came when a lock was released.
pub(crate) const STATED: f64 = 0.97;
/// The CPU's state before and after shows it: a handler's start and end, the thread that ran, an idle state after the
/// wake-up; or a counter went up.
pub(crate) const SHOWN: f64 = 0.95;
/// Flags show it: they hold at a function, but not necessarily since then.
pub(crate) const SEEN: f64 = 0.89;
/// It follows from a stack or from the order of events: what a late interrupt interrupted, who woke the task.
pub(crate) const CONCLUDED: f64 = 0.89;
/// It fits, but something else could look the same: an idle state before the wake-up, a hypervisor that sends a timer's
/// interrupt late.
pub(crate) const LIKELY: f64 = 0.75;
/// Nothing contradicts it, but a part of the proof is unknown: priorities, what is below a hypervisor.
pub(crate) const POSSIBLE: f64 = 0.6;
/// The handler of a device or of the timer was entered, and no event shows its end: the time after it may or may not be its
/// own.
pub(crate) const UNENDED: f64 = 0.51;
/// The only reason is that nothing else explains it.
pub(crate) const LEFT_OVER: f64 = 0.5;
/// The only reason is that nothing else explains it, and on damaged traces it was something else: a name for an open
/// question.
pub(crate) const FAINT: f64 = 0.05;

/// How much of a grade is left if records or events of the window were lost.
pub(crate) const OF_LOSSES: f64 = 0.5;
/// How much of a grade is left if events of the window contradict each other: some are missing, and no counter shows it.
pub(crate) const OF_BREAKS: f64 = 0.93;
/// The same for a grade that was not good before.
pub(crate) const OF_BREAKS_UNSURE: f64 = 0.55;
/// How much of a grade is left if the window's start was left out, or the expected moment is not exact.
pub(crate) const OF_UNSURE_WINDOW: f64 = 0.8;
/// How much of a grade is left if other evidence of the same spike contradicts it.
pub(crate) const OF_CONTRADICTION: f64 = 0.7;
