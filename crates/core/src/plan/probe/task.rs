//! The task probe: the user's own threads, watched and not changed.

use super::{Chain, ChainPlan, Mark, MeasuringTask, Policy, ProbeFacts, ProbeWords, Samples, Trigger};
use crate::cpus::{CpuContext, CpuError, CpuSelector, CpuSet};
use crate::plan::kinds::KeyError;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use std::fmt;
use std::str::FromStr;

/// The task probe: where the time of each activation of the named threads goes, from the timer or wake-up to the next
/// sleep. Exactly one of `name`, `pid`, `cgroup`, `command` and `priorities` selects the threads. Only `name` and `command` can
/// be given together: the program is started, and its threads of this name are watched.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TaskPlan {
    /// CPUs on which the threads are watched; by default every online CPU.
    pub cpus: Option<CpuSelector>,
    /// Every thread of this name; the kernel cuts names to 15 bytes.
    pub name: Option<String>,
    /// Every thread of this process and of its child processes.
    pub pid: Option<u32>,
    /// Every thread in this control group: its path, the name of a systemd unit, or the id of a container.
    pub cgroup: Option<String>,
    /// Program and arguments to start; without `name`, the program and all processes that it starts are watched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Every thread with a real-time priority in this range: `80-99`, or one number (100: SCHED_DEADLINE).
    pub priorities: Option<String>,
    /// Where an activation begins, instead of at its wake-up: `FILE:FUNCTION`, `usdt:FILE:PROVIDER:NAME`, or
    /// `marker:TEXT` for what the thread writes into `trace_marker` beginning with TEXT.
    pub begin: Option<String>,
    /// Where an activation ends, instead of at the next sleep; written like `begin`.
    pub end: Option<String>,
    /// What counts as an activation if there are no marks: `rhythm` (the default: one for each period of a thread with a steady
    /// period), `wakeup` (from each wake-up to the next sleep), `period` (one for each period, even an uncertain one),
    /// or the length of the period.
    pub per: Option<Per>,
    /// An activation is late when its response takes longer than this.
    pub deadline: Option<Nanos>,
    /// Number of worst activations of each thread to explain.
    pub worst: Option<u32>,
    /// Looks for what a real-time thread should not do: system calls that may sleep or allocate, page faults, locks without
    /// priority inheritance, wake-ups by threads of lower priority.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub audit: bool,
    /// Findings of the audit that are allowed: names of system calls (`write`) or of findings (`relative-sleep`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// What says that the application was late: `output:REGEX`, `file:PATH:REGEX`, `journal:REGEX`, `kernel:REGEX`,
    /// `counter:PATH`, `signal:USR1`, `socket`, `marker:TEXT`, `FILE:FUNCTION` or `usdt:FILE:PROVIDER:NAME` (both with
    /// `:arg1>1000`, `:return<0` or `:took>1ms`), `xrun`, or `preset:NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<String>,
    /// The time before a trigger in which every thread's longest activation is explained (default `50ms`).
    pub last: Option<Nanos>,
    /// Activities over several threads, each from a mark in one thread to a mark in another.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub chains: Box<[ChainPlan]>,
}

/// What an activation of a watched thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum Per {
    /// One for each period of a thread that has a rhythm; for other threads, one for each wake-up.
    #[default]
    Rhythm,
    Wakeup,
    /// One for each period, even if the rhythm is uncertain; with a given length, one for each period of that length.
    Period(Option<Nanos>),
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rhythm => f.write_str("rhythm"),
            Self::Wakeup => f.write_str("wakeup"),
            Self::Period(None) => f.write_str("period"),
            Self::Period(Some(period)) => write!(f, "{period}"),
        }
    }
}

impl FromStr for Per {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "rhythm" => Self::Rhythm,
            "wakeup" => Self::Wakeup,
            "period" => Self::Period(None),
            text => {
                let period: Nanos = text
                    .parse()
                    .map_err(|_| format!("`{text}`: write rhythm, wakeup, period or a time such as 5ms"))?;
                if period.0 == 0 {
                    return Err("a period must be above 0".to_owned());
                }
                Self::Period(Some(period))
            }
        })
    }
}

impl JsonSchema for Per {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Per".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// How many of the worst activations of each thread are explained by default.
const WORST: u32 = 20;

impl TaskPlan {
    /// Number of worst activations of each thread to explain.
    pub fn worst(&self) -> usize {
        self.worst.unwrap_or(WORST) as usize
    }

    /// Where its activations start and end; `None` if they start with its wake-up and end with its sleep.
    ///
    /// # Errors
    /// When one of the two is missing or is not a mark, or when they are ambiguous.
    pub fn marks(&self) -> Result<Option<[Mark; 2]>, KeyError> {
        let parsed = |key, text: &str| text.parse::<Mark>().map_err(|error| KeyError::new(key, error));
        match (&self.begin, &self.end) {
            (None, None) => Ok(None),
            (Some(begin), Some(end)) => {
                let [begin, end] = [parsed("begin", begin)?, parsed("end", end)?];
                if Mark::is_ambiguous(&begin, &end) {
                    let message = "the text of one mark begins with the text of the other; change one";
                    return Err(KeyError::new("end", message));
                }
                Ok(Some([begin, end]))
            }
            (None, Some(_)) => Err(KeyError::new("begin", "is missing; give both `begin` and `end`")),
            (Some(_), None) => Err(KeyError::new("end", "is missing; give both `begin` and `end`")),
        }
    }

    /// The triggers, each with its place in `triggers`.
    ///
    /// # Errors
    /// When one of them is not a trigger, or needs a key that is not given.
    pub fn triggers(&self) -> Result<Vec<(usize, Trigger)>, KeyError> {
        Trigger::parse_all(&self.triggers, self.last, !self.command.is_empty())
    }

    /// The chains, with their marks.
    ///
    /// # Errors
    /// When a mark is not one, or two chains have the same name.
    pub fn chains(&self) -> Result<Vec<Chain>, KeyError> {
        Chain::parse_all(&self.chains)
    }

    /// The time before a trigger that is explained.
    pub fn last(&self) -> Nanos {
        self.last.unwrap_or(Trigger::LAST)
    }

    /// The lowest and the highest priority; `None` if the text is not a range.
    pub fn priority_range(&self) -> Option<(i32, i32)> {
        let text = self.priorities.as_deref()?;
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<i32>().ok().filter(|it| (1..=100).contains(it));
        let (least, most) = (number(least)?, number(most)?);
        (least <= most).then_some((least, most))
    }
}

impl ProbeWords for TaskPlan {
    fn facts(_: Option<&str>) -> ProbeFacts {
        let duration = ProbeFacts::of(Samples::Duration);
        ProbeFacts {
            companion: true,
            misses_periods: true,
            series_title: "thread",
            task: MeasuringTask::Users,
            ..duration
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        let given = [
            self.name.is_some() || !self.command.is_empty(),
            self.pid.is_some(),
            self.cgroup.is_some(),
            self.priorities.is_some(),
        ];
        if given.into_iter().filter(|given| *given).count() != 1 {
            let message = "exactly one of name, pid, cgroup, command and priorities must select the threads to watch; only name and command can be given together";
            return Err(KeyError::new("", message));
        }
        if self.priorities.is_some() && self.priority_range().is_none() {
            let message =
                "must be a real-time priority from 1 to 99 (100: SCHED_DEADLINE), or a range such as 80-99";
            return Err(KeyError::new("priorities", message));
        }
        if self.name.as_deref() == Some("") {
            return Err(KeyError::new("name", "is empty; `ps -eLo comm` lists the names of threads"));
        }
        self.marks()?;
        self.triggers()?;
        self.chains()?;
        if !self.allow.is_empty() && !self.audit {
            return Err(KeyError::new("allow", "needs `audit = true`: it allows findings of the audit"));
        }
        if self.deadline.is_some_and(|deadline| deadline.0 == 0) {
            return Err(KeyError::new("deadline", "must be above 0"));
        }
        Ok(())
    }

    /// It has no measuring thread.
    fn scheduling(&self) -> (Policy, u32) {
        (Policy::Other, 1)
    }

    fn cpus(&self) -> Option<&CpuSelector> {
        self.cpus.as_ref()
    }

    fn resolve_cpus(&self, context: &CpuContext, target: &CpuSet) -> Result<CpuSet, CpuError> {
        let resolve = |cpus: &CpuSelector| cpus.resolve(context, Some(target));
        self.cpus.as_ref().map_or_else(|| Ok(context.online.clone()), resolve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_activation_has_both_marks_or_none() {
        let named = TaskPlan { name: Some("audio".to_owned()), ..TaskPlan::default() };
        assert_eq!(named.marks(), Ok(None));
        let mark = |text: &str| Some(text.to_owned());
        let one = TaskPlan { begin: mark("/bin/a:begin"), ..named };
        assert_eq!(one.check().unwrap_err().key, "end");
        let wrong = TaskPlan { begin: mark("nothing"), ..one.clone() };
        assert_eq!(TaskPlan { end: mark("/bin/a:end"), ..wrong }.check().unwrap_err().key, "begin");
        assert_eq!(TaskPlan { end: mark("/bin/a:end"), ..one.clone() }.check(), Ok(()));
        let text = TaskPlan { begin: mark("marker:tick"), ..one };
        assert_eq!(TaskPlan { end: mark("marker:tock"), ..text.clone() }.check(), Ok(()));
        assert_eq!(TaskPlan { end: mark("marker:tick end"), ..text }.check().unwrap_err().key, "end");
    }

    #[test]
    fn one_key_says_which_threads() {
        let named = TaskPlan { name: Some("audio".to_owned()), ..TaskPlan::default() };
        assert_eq!(named.check(), Ok(()));
        assert!(TaskPlan::default().check().is_err());
        let two = TaskPlan { pid: Some(8), ..named };
        assert!(two.check().unwrap_err().message.contains("exactly one"));
        let range = |text: &str| TaskPlan { priorities: Some(text.to_owned()), ..TaskPlan::default() };
        assert_eq!(range("80-99").priority_range(), Some((80, 99)));
        assert_eq!(range("80").priority_range(), Some((80, 80)));
        for wrong in ["99-80", "0", "a", "", "1-101"] {
            assert_eq!(range(wrong).check().unwrap_err().key, "priorities", "{wrong}");
        }
    }
}
