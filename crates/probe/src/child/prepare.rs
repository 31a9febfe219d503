//! Everything that is done before arming: policy, affinity, locked memory, a touched stack.

use super::{Failure, Team};
use std::cell::Cell;
use whylate_core::plan::Policy;
use whylate_core::{CpuId, CpuSet, Nanos, Warning, WarningCode};
use whylate_host::shield;
use whylate_sys::latency_request::LatencyRequest;
use whylate_sys::schedule::{self, Scheduling, ThreadScheduling};

/// Prepares the process; what it returns is held until the end.
pub(super) fn process(team: &Team<'_>) -> Option<LatencyRequest> {
    let spec = team.spec;
    if !spec.other_cpus.is_empty()
        && let Err(error) = shield::pin_this_thread(team.host, &spec.other_cpus)
    {
        team.warn(Warning::new(
            WarningCode::MainThreadNotMoved,
            format!(
                "the main thread may run on a measured CPU, since moving it to {} failed: {error}",
                spec.other_cpus
            ),
        ));
    }
    if spec.lock_memory
        && let Err(error) = schedule::lock_memory()
    {
        refused(
            team,
            WarningCode::NoMemoryLock,
            format!(
                "memory is not locked ({error}): a page fault in the measuring thread can count as latency"
            ),
            "run as root, or raise RLIMIT_MEMLOCK (`memlock unlimited` in /etc/security/limits.d)",
        );
    }
    if !spec.hold_cpu_dma_latency {
        return None;
    }
    match LatencyRequest::zero() {
        Ok(request) => Some(request),
        Err(error) => {
            team.warn(Warning::with_fix(
                WarningCode::NoCpuDmaLatency,
                format!(
                    "/dev/cpu_dma_latency: {error}; the latencies include the time to leave deep idle states"
                ),
                "run as root",
            ));
            None
        }
    }
}

pub(super) fn thread(team: &Team<'_>, cpu: CpuId) -> Result<(), Failure> {
    let wanted = scheduling(team);
    // The priority is set before the thread moves: behind a real-time loop that never sleeps, an ordinary thread might wait
    // for ever. A thread of SCHED_DEADLINE can no longer be moved.
    let mut is_scheduled = match wanted {
        Scheduling::Other => true,
        Scheduling::Deadline { .. } => false,
        Scheduling::Fifo(_) | Scheduling::RoundRobin(_) => schedule::schedule_this_thread(wanted).is_ok(),
    };
    let pin = || shield::pin_this_thread(team.host, &CpuSet::single(cpu));
    let pinned = pin().or_else(|_| {
        // The control group of a shield may accept only ordinary threads.
        schedule::schedule_this_thread(Scheduling::Other)?;
        is_scheduled = wanted == Scheduling::Other;
        pin()
    });
    pinned.map_err(|error| shield::why_not_pinned(team.host, &CpuSet::single(cpu), &error))?;
    if !is_scheduled && let Err(error) = schedule::schedule_this_thread(wanted) {
        if let Scheduling::Deadline { .. } = wanted {
            return Err(Failure::Unavailable(format!(
                "SCHED_DEADLINE on CPU {cpu} was refused ({error}): the kernel accepts a deadline task only if it \
                 may run on every CPU of its root domain; make an exclusive cpuset of CPU {cpu}, or use \
                 `--policy fifo`"
            )));
        }
        refused(
            team,
            WarningCode::NoRealtimePriority,
            format!(
                "the probe runs as SCHED_OTHER, not {wanted:?} ({error}): other tasks delay the probe, and the \
                 figures say nothing about real-time tasks"
            ),
            "run as root, or grant `rtprio 99` in /etc/security/limits.d; in a cgroup of an RT_GROUP_SCHED kernel \
             also `echo 950000 > cpu.rt_runtime_us` in the group",
        );
    }
    remember();
    schedule::prefault_stack::<64>();
    Ok(())
}

thread_local! {
    /// The scheduling of this measuring thread after whylate last set it.
    static SCHEDULED: Cell<Option<ThreadScheduling>> = const { Cell::new(None) };
}

fn remember() {
    SCHEDULED.set(schedule::scheduling_of_this_thread().ok());
}

/// Whether policy, priority and CPUs of the calling measuring thread are still what whylate set. While it measured, something
/// else may have changed them (`chrt`, `taskset`, a service manager, a move to another cgroup, a CPU that went offline).
pub(super) fn unchanged(cpu: CpuId) -> Result<(), Failure> {
    if let Ok(allowed) = schedule::allowed_of_this_thread()
        && allowed != CpuSet::single(cpu)
    {
        return Err(Failure::Void(format!(
            "the measuring thread of CPU {cpu} may now run on CPU {allowed}, because its CPU was offline or \
             another program changed the thread's affinity"
        )));
    }
    scheduled_as_before()
}

fn scheduled_as_before() -> Result<(), Failure> {
    match SCHEDULED.get().zip(schedule::scheduling_of_this_thread().ok()) {
        Some((before, now)) if before != now => Err(Failure::Void(format!(
            "another program (`chrt`, `renice`, a service manager) changed the scheduling of the measuring \
             thread of CPU {} from {before} to {now}",
            schedule::current_cpu()
        ))),
        _ => Ok(()),
    }
}

/// Gives the calling measuring thread its policy again, or makes it an ordinary task. A refusal now was already reported
/// before; a change by something else meanwhile makes the measurement void.
pub(crate) fn reschedule(team: &Team<'_>, as_ordinary: bool) {
    if let Err(reason) = scheduled_as_before() {
        team.fail(reason);
    }
    let wanted = if as_ordinary { Scheduling::Other } else { scheduling(team) };
    let _ = schedule::schedule_this_thread(wanted);
    remember();
}

fn scheduling(team: &Team<'_>) -> Scheduling {
    match (team.spec.policy, team.spec.period()) {
        (Policy::Fifo, _) => Scheduling::Fifo(team.spec.priority),
        (Policy::Rr, _) => Scheduling::RoundRobin(team.spec.priority),
        (Policy::Deadline, Some(period)) => {
            // Half of the period is far more than the loop needs, and small enough for the kernel to admit it.
            Scheduling::Deadline { runtime: Nanos(period.0 / 2), period }
        }
        (Policy::Deadline | Policy::Other, _) => Scheduling::Other,
    }
}

/// A refusal is an error under `--strict`, a warning otherwise.
fn refused(team: &Team<'_>, code: WarningCode, text: String, fix: &str) {
    if team.spec.strict {
        team.fail(Failure::Unavailable(format!("{text}; {fix} (--strict)")));
    } else {
        team.warn(Warning::with_fix(code, text, fix));
    }
}
