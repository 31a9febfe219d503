//! `priority`: policy and priority of threads by their names, including threads of the kernel.

use crate::change::{Change, Target, Task};
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::priority;
use whylate_core::plan::PriorityPlan;
use whylate_core::result::ThreadRow;
use whylate_core::{Warning, WarningCode};
use whylate_host::threads::Threads;
use whylate_sys::schedule::ThreadScheduling;

/// Threads whose policy the kernel itself sets and relies on.
const FIXED: [&str; 2] = ["migration/", "sugov:"];

impl Planner for PriorityPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let root = &surroundings.root;
        let all = Threads::read(root)?.rows;
        let is_meant = |row: &&ThreadRow| match self.thread.parse::<u32>() {
            Ok(number) => row.tid == number,
            Err(_) => is_like(&row.name, &self.thread),
        };
        let is_fixed = |row: &&ThreadRow| {
            row.policy == "deadline" || row.kernel && FIXED.iter().any(|name| row.name.starts_with(name))
        };
        let (fixed, free): (Vec<&ThreadRow>, Vec<&ThreadRow>) =
            all.iter().filter(is_meant).partition(is_fixed);
        let mut planned = Planned::default();
        if !fixed.is_empty() {
            let names: Vec<String> = fixed.iter().map(|row| format!("{} ({})", row.name, row.tid)).collect();
            let text = format!(
                "these threads are not changed, because they are deadline tasks or the kernel sets their scheduling: {}",
                names.join(", ")
            );
            if free.is_empty() {
                return Err(Impossible::new(text));
            }
            planned.warnings.push(Warning::new(WarningCode::TaskBound, text));
        }
        if free.is_empty() {
            let reason = format!("no thread is called `{}`; `ps -eLo tid,comm` lists them", self.thread);
            return Err(Impossible::new(reason));
        }
        let tasks = free.into_iter().filter_map(|row| Task::of(root, row));
        planned.changes = tasks.filter_map(|task| change(self, task, surroundings)).collect();
        Ok(planned)
    }
}

/// `None` for a thread that has ended. What is not given stays as it is, for example the policy that children get.
fn change(plan: &PriorityPlan, task: Task, surroundings: &Surroundings) -> Option<Change> {
    let now = priority::parse(&priority::read(&task, &surroundings.root)?);
    let new = priority::text(ThreadScheduling {
        policy: priority::number(plan.policy),
        priority: plan.priority.unwrap_or_default(),
        nice: plan.nice.unwrap_or_default(),
        reset_on_fork: now.is_some_and(|now| now.reset_on_fork),
    })?;
    let effect = format!("{task} is scheduled as {new}");
    Some(Change::required(Target::Scheduling { task }, new, effect))
}

/// Whether a name matches the pattern, in which `*` stands for any text.
fn is_like(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((first, rest)) => name.strip_prefix(first).is_some_and(|left| {
            let ends = left.char_indices().map(|(at, _)| at).chain([left.len()]);
            ends.into_iter().any(|at| is_like(&left[at..], rest))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (name, pattern, expected) in [
            ("irq/31-eth0", "irq/*", true),
            ("irq/31-eth0", "irq/*-eth0", true),
            ("irq/31-eth0", "irq/*-eth", false),
            ("irq/31-eth0", "*", true),
            ("irq/31-eth0", "irq/31-eth0", true),
            ("ksoftirqd/1", "ksoftirqd/11", false),
            ("é", "*é", true),
        ] {
            assert_eq!(is_like(name, pattern), expected, "{name} {pattern}");
        }
    }
}
