//! Whether the kernel's grace periods end. Loading a program waits for one inside the kernel, where not even a kill helps.
//!
//! On PREEMPT_RT each CPU has a thread for grace periods, `rcuc/N`, SCHED_FIFO 1 unless the command line says otherwise. It
//! never runs next to an endless loop of that priority or a higher one.

use crate::error::BpfError;
use std::time::{Duration, Instant};
use whylate_core::figure::scheduled;
use whylate_host::HostRoot;
use whylate_host::threads::{self, Stat, Threads};

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A thread that could not run for this long waits for one that never sleeps.
const STARVED: Duration = Duration::from_secs(1);

/// A runnable thread, and how often and how long it has run so far.
#[derive(PartialEq, Eq)]
struct Waiting {
    pid: u32,
    ran: String,
}

/// Waits a second for threads of grace periods that want to run. Call it before programs are loaded.
pub fn check_grace_periods(host: &HostRoot) -> Result<(), BpfError> {
    check(host, STARVED)
}

/// Waits up to `patience` for threads of grace periods that want to run.
fn check(host: &HostRoot, patience: Duration) -> Result<(), BpfError> {
    let mut waiting = waiting(host);
    let begin = Instant::now();
    while !waiting.is_empty() {
        if begin.elapsed() >= patience {
            return Err(BpfError::Starved(describe(host, waiting[0].pid)));
        }
        std::thread::sleep(LOOK_EVERY.min(patience));
        waiting.retain(|it| look_at(host, it.pid).as_ref() == Some(it));
    }
    Ok(())
}

fn waiting(host: &HostRoot) -> Vec<Waiting> {
    let is_it = |pid: &u32| {
        let name = host.read_trimmed(&format!("/proc/{pid}/comm")).ok().flatten();
        name.is_some_and(|name| name.starts_with("rcuc/"))
    };
    let all = host.list_numbered("/proc", "").unwrap_or_default();
    all.into_iter().filter(is_it).filter_map(|pid| look_at(host, pid)).collect()
}

/// `None` for a thread that sleeps.
fn look_at(host: &HostRoot, pid: u32) -> Option<Waiting> {
    let stat = host.read(&format!("/proc/{pid}/stat")).ok().flatten()?;
    let is_runnable = Stat::parse(&stat)?.field(3) == Some("R");
    let ran = host.read_trimmed(&format!("/proc/{pid}/schedstat")).ok().flatten()?;
    // Only the time that it waited goes on.
    let ran = ran.split(' ').step_by(2).collect::<Vec<_>>().join(" ");
    is_runnable.then_some(Waiting { pid, ran })
}

/// Which thread waits, for which one, and what to do.
fn describe(host: &HostRoot, pid: u32) -> String {
    let threads = Threads::read(host).unwrap_or_default();
    let text = |pid: u32, tid: u32| threads::stat(host, pid, tid).unwrap_or_default();
    let field =
        |text: &str, number: usize| Stat::parse(text).and_then(|stat| Some(stat.field(number)?.to_owned()));
    let own = text(pid, pid);
    let cpu = field(&own, 39).unwrap_or_default();
    let is_there = |tid: u32, pid: u32| {
        let stat = text(pid, tid);
        field(&stat, 39).as_ref() == Some(&cpu) && field(&stat, 3).as_deref() == Some("R")
    };
    let loops = threads.rows.iter().filter(|thread| thread.tid != pid && thread.priority.is_some());
    let first = loops.filter(|thread| is_there(thread.tid, thread.pid)).max_by_key(|thread| thread.priority);
    let priority = first.and_then(|thread| thread.priority).unwrap_or(98);
    let who = first.map_or_else(
        || "an unknown thread".to_owned(),
        |thread| {
            let priority = i32::try_from(priority).unwrap_or_default();
            format!("{} (thread {}, {})", thread.name, thread.tid, scheduled(priority))
        },
    );
    format!(
        "rcuc/{cpu} could not run, because {who} has CPU {cpu} all the time; let this thread sleep now and \
         then, end it, or raise the priority of rcuc/{cpu}: `chrt -f -p {} {pid}`",
        (priority + 1).min(99)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    fn host(state: &str) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().unwrap();
        let zeros = |count: usize| vec!["0"; count].join(" ");
        let thread = |pid: u32, name: &str, state: &str, priority: u32| {
            let place = folder.path().join(format!("proc/{pid}"));
            let task = place.join(format!("task/{pid}"));
            std::fs::create_dir_all(&task).unwrap();
            // Fields 39 to 41: CPU, priority, policy.
            let stat = format!("{pid} ({name}) {state} {} 1 {priority} 1 0", zeros(35));
            for place in [&place, &task] {
                std::fs::write(place.join("stat"), &stat).unwrap();
                std::fs::write(place.join("comm"), format!("{name}\n")).unwrap();
                std::fs::write(place.join("status"), "Cpus_allowed_list:\t1\n").unwrap();
                std::fs::write(place.join("schedstat"), "100 7 3\n").unwrap();
            }
        };
        thread(20, "rcuc/1", state, 1);
        thread(812, "spin", "R", 50);
        thread(813, "lesser", "R", 0);
        let root = HostRoot::at(folder.path());
        (folder, root)
    }

    #[test]
    fn a_thread_that_never_runs_is_named_with_the_thread_that_blocks_it() {
        let (_folder, root) = host("R");
        let refused = check(&root, Duration::from_millis(1)).unwrap_err().to_string();
        assert!(says("rcuc-could-not-run", &refused), "{refused}");
        assert!(says("chrt-f-p", &refused), "{refused}");
    }

    #[test]
    fn threads_that_sleep_or_run_block_no_grace_period() {
        let (_folder, root) = host("S");
        check(&root, Duration::ZERO).unwrap();
        let (folder, root) = host("R");
        std::thread::scope(|scope| {
            let checked = scope.spawn(|| check(&root, Duration::from_secs(60)));
            std::thread::sleep(2 * LOOK_EVERY);
            std::fs::write(folder.path().join("proc/20/schedstat"), "150 9 4\n").unwrap();
            checked.join().unwrap().unwrap();
        });
    }
}
