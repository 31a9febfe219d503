//! How sure a cause is: one scale for both kinds of evidence, best evidence first.
//!
//! Of two answers for the same spike the one with the higher grade rests on the better evidence, wherever that came from. The
//! numbers are how often such an answer was right on traces with a known cause that were damaged at random
//! (`tests/mutated`): from 0.9 on it may not be wrong there.

/// Its start and end were recorded.
pub(crate) const RECORDED: f64 = 1.0;
/// Events state it: that interrupts or preemption went off and on, that the scheduler chose a thread of lower priority,
/// that the late interrupt came as a lock was released.
pub(crate) const STATED: f64 = 0.97;
/// What is known of the CPU before and after shows it: a handler's start and end, the thread that ran, an idle state
/// after the wake-up; or a counter went up.
pub(crate) const SHOWN: f64 = 0.95;
/// Flags show it, which say what held at a function and not what held since.
pub(crate) const SEEN: f64 = 0.89;
/// It follows from a stack, or from the order of events: what a late interrupt interrupted, who woke the task.
pub(crate) const CONCLUDED: f64 = 0.89;
/// It fits, and something else could look the same: an idle state before the wake-up, a hypervisor that sends a timer's
/// interrupt late.
pub(crate) const LIKELY: f64 = 0.75;
/// Nothing contradicts it, and a part of what would show it is not known: priorities, what is below a hypervisor.
pub(crate) const POSSIBLE: f64 = 0.6;
/// The handler of a device or of the timer was entered, and no event shows its end: what follows may be its own or not.
pub(crate) const UNENDED: f64 = 0.51;
/// Only that nothing else explains it.
pub(crate) const LEFT_OVER: f64 = 0.5;
/// Only that nothing else explains it, and on damaged traces it was something else: a name for what is open.
pub(crate) const FAINT: f64 = 0.05;

/// How much of a grade is left where records or events of the window were lost.
pub(crate) const OF_LOSSES: f64 = 0.5;
/// How much of a grade is left where events of the window contradict each other: some are missing that nobody counted.
pub(crate) const OF_BREAKS: f64 = 0.93;
/// The same of a grade that was not good before.
pub(crate) const OF_BREAKS_UNSURE: f64 = 0.55;
/// How much of a grade is left where the window's start was left out, or the expected moment is not known well.
pub(crate) const OF_UNSURE_WINDOW: f64 = 0.8;
/// How much of a grade is left where other evidence of the same spike says something else.
pub(crate) const OF_CONTRADICTION: f64 = 0.7;
