//! `affinity`: a process with all its threads to certain CPUs.
//!
//! Threads that it starts later inherit the CPUs of the thread that starts them.

use crate::change::{Change, Target, Task};
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use crate::tasks;
use whylate_core::plan::AffinityPlan;
use whylate_core::{Warning, WarningCode};

impl Planner for AffinityPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let cpus = surroundings.resolve("cpus", &self.cpus)?;
        let root = &surroundings.root;
        let processes = find(&self.process, surroundings)?;
        let threads: Vec<Task> = processes
            .iter()
            .flat_map(|process| tasks::threads(root, process.pid).unwrap_or_default())
            .collect();
        let (bound, free): (Vec<Task>, Vec<Task>) = threads.into_iter().partition(|task| task.is_bound(root));
        let mut planned = Planned::default();
        if !bound.is_empty() {
            let names = bound.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let text = format!("the kernel binds {names} to CPUs; they stay where they are");
            if free.is_empty() {
                return Err(Impossible::new(text));
            }
            planned.warnings.push(Warning::new(WarningCode::TaskBound, text));
        }
        let change = |task: Task| {
            let effect = format!("{task} runs on CPU {cpus}");
            Change::required(Target::Affinity { task }, cpus.to_string(), effect)
        };
        planned.changes = free.into_iter().map(change).collect();
        Ok(planned)
    }
}

/// The processes of that number or name.
fn find(process: &str, surroundings: &Surroundings) -> Result<Vec<Task>, Impossible> {
    let root = &surroundings.root;
    if let Ok(pid) = process.parse::<u32>() {
        return match Task::find(root, pid, pid)? {
            Some(task) => Ok(vec![task]),
            None => Err(Impossible::new(format!("there is no process {pid}"))),
        };
    }
    // The kernel keeps 15 bytes of a name; the whole one is the last part of the program's path.
    let is_named = |task: &Task| {
        if task.name == process {
            return true;
        }
        let command = root.read(&format!("/proc/{}/cmdline", task.pid)).ok().flatten().unwrap_or_default();
        let program = command.split('\0').next().unwrap_or_default();
        program.rsplit('/').next() == Some(process) && !process.is_empty()
    };
    let found: Vec<Task> = tasks::processes(root)?.into_iter().filter(is_named).collect();
    if found.is_empty() {
        let reason = format!("no process is called `{process}`; start it first, or name its number");
        return Err(Impossible::new(reason));
    }
    Ok(found)
}
