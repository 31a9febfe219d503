//! `affinity`: a process with all its threads, or the threads of a name, to certain CPUs.
//!
//! Threads that it starts later inherit the CPUs of the thread that starts them.

use crate::change::{Change, Target, Task};
use crate::planner::{Impossible, Planned, Planner, Surroundings};
use whylate_core::plan::AffinityPlan;
use whylate_core::result::{ThreadKind, ThreadRow};
use whylate_core::{Warning, WarningCode};
use whylate_host::threads::Threads;

impl Planner for AffinityPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        let cpus = surroundings.resolve("cpus", &self.cpus)?;
        let root = &surroundings.root;
        let all = Threads::read(root)?.rows;
        let meant: Vec<&ThreadRow> = match find(&self.process, surroundings, &all) {
            Ok(pids) => all.iter().filter(|thread| pids.contains(&thread.pid)).collect(),
            // Causes name threads, which often have other names than their process.
            Err(none) => {
                let named: Vec<_> = all.iter().filter(|thread| thread.name == self.process).collect();
                if named.is_empty() {
                    return Err(none);
                }
                named
            }
        };
        let (bound, free): (Vec<&ThreadRow>, Vec<&ThreadRow>) =
            meant.into_iter().partition(|thread| thread.kind == ThreadKind::Pinned);
        let mut planned = Planned::default();
        if !bound.is_empty() {
            let names: Vec<String> =
                bound.iter().map(|thread| format!("{} ({})", thread.name, thread.tid)).collect();
            let text = format!(
                "these threads are not moved, because the kernel binds them to CPUs: {}",
                names.join(", ")
            );
            if free.is_empty() {
                return Err(Impossible::new(text));
            }
            planned.warnings.push(Warning::new(WarningCode::TaskBound, text));
        }
        let change = |task: Task| {
            let effect = format!("{task} runs on CPU {cpus}");
            Change::required(Target::Affinity { task }, cpus.to_string(), effect)
        };
        planned.changes = free.into_iter().filter_map(|thread| Task::of(root, thread)).map(change).collect();
        Ok(planned)
    }
}

/// The processes of that number or name.
pub(super) fn find(
    process: &str,
    surroundings: &Surroundings,
    threads: &[ThreadRow],
) -> Result<Vec<u32>, Impossible> {
    let mut processes = threads.iter().filter(|thread| thread.pid == thread.tid);
    if let Ok(pid) = process.parse::<u32>() {
        let reason = format!("there is no process {pid}");
        return processes.any(|it| it.pid == pid).then(|| vec![pid]).ok_or(Impossible::new(reason));
    }
    // The kernel keeps 15 bytes of a name; the whole one is the last part of the program's path.
    let is_named = |thread: &&ThreadRow| {
        if thread.name == process {
            return true;
        }
        let path = format!("/proc/{}/cmdline", thread.pid);
        let command = surroundings.root.read(&path).ok().flatten().unwrap_or_default();
        let program = command.split('\0').next().unwrap_or_default();
        program.rsplit('/').next() == Some(process) && !process.is_empty()
    };
    let found: Vec<u32> = processes.filter(is_named).map(|process| process.pid).collect();
    if found.is_empty() {
        let reason = format!("no process is called `{process}`; start the process first, or give its PID");
        return Err(Impossible::new(reason));
    }
    Ok(found)
}
