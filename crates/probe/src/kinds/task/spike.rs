//! One explained activation as a timeline, and the wait in it of which a trace is worth keeping.

use crate::measure::TaskSpike;
use whylate_bpf::tasks::{Activation, Budget, Doing, Stage, Wait, Waker};
use whylate_core::figure;
use whylate_core::record::SpikeRecord;
use whylate_core::result::{Cause, CauseKind, ChainDoing, ChainPart, TimelineSegment, WakeLink};

/// The activation with its causes, stage by stage.
pub(super) fn explained(activation: &Activation, causes: Vec<Cause>, wakeups: Vec<WakeLink>) -> TaskSpike {
    let mut timeline = Vec::new();
    for (nth, stage) in activation.stages.iter().filter(|stage| stage.length_ns() > 0).enumerate() {
        let woken_ns = activation.woken_ns;
        // Its timer was late, and then it waited for the CPU: the two have separate causes.
        if nth == 0
            && matches!(stage.what, Doing::Waking { .. })
            && (stage.from_ns..stage.to_ns).contains(&woken_ns)
        {
            let late = Stage { to_ns: woken_ns, ..stage.clone() };
            let waits = Stage { from_ns: woken_ns, ..stage.clone() };
            if late.length_ns() > 0 {
                timeline.push(segment(&late, "should run; its timer has not expired yet".to_owned()));
            }
            timeline.push(segment(&waits, format!("{}; {}", woken(&activation.waker), doing(&waits.what))));
        } else {
            timeline.push(segment(stage, doing(&stage.what)));
        }
    }
    TaskSpike { due_ns: activation.due_ns, latency_ns: activation.response_ns(), causes, wakeups, timeline }
}

/// An instance of a chain with its causes, part by part.
pub(super) fn of_chain(due_ns: u64, latency_ns: u64, parts: &[ChainPart], causes: Vec<Cause>) -> TaskSpike {
    let kind = |what| match what {
        ChainDoing::Running => Some(CauseKind::OwnWork),
        ChainDoing::Runnable | ChainDoing::Preempted => Some(CauseKind::Thread),
        ChainDoing::Interrupted => Some(CauseKind::Irq),
        ChainDoing::Timer | ChainDoing::Interrupt | ChainDoing::Thread => Some(CauseKind::Wait),
        ChainDoing::Unknown => None,
    };
    let segment = |part: &ChainPart| TimelineSegment {
        from_ns: part.from_ns,
        to_ns: part.to_ns,
        cpu: part.cpu.unwrap_or_default(),
        what: format!("{}: {}", part.thread, part.sentence()),
        kind: kind(part.what),
        function: None,
    };
    TaskSpike {
        due_ns,
        latency_ns,
        causes,
        timeline: parts.iter().map(segment).collect(),
        ..TaskSpike::default()
    }
}

fn segment(stage: &Stage, what: String) -> TimelineSegment {
    let kind = match &stage.what {
        Doing::Running => Some(CauseKind::OwnWork),
        Doing::Preempted { budget: Budget::Quota, .. } | Doing::Waking { budget: Budget::Quota, .. } => {
            Some(CauseKind::Quota)
        }
        Doing::Preempted { budget, .. } | Doing::Waking { budget, .. } if budget.throttler().is_some() => {
            Some(CauseKind::Throttled)
        }
        Doing::Preempted { .. } => Some(CauseKind::Thread),
        Doing::Blocked { wait: Wait::Lock { .. }, .. } => Some(CauseKind::Lock),
        Doing::Blocked { wait: Wait::Page, .. } => Some(CauseKind::PageFault),
        Doing::Blocked { .. } => Some(CauseKind::Wait),
        Doing::Waking { .. } | Doing::Unseen => None,
    };
    let (from_ns, to_ns, cpu) = (stage.from_ns, stage.to_ns, stage.cpu);
    TimelineSegment { from_ns, to_ns, cpu, what, kind, function: None }
}

fn woken(waker: &Waker) -> String {
    match waker {
        Waker::Unknown => "woken".to_owned(),
        Waker::Timer => "woken by its timer".to_owned(),
        Waker::Interrupt => "woken by an interrupt".to_owned(),
        Waker::Thread(_, command) => format!("woken by {command}"),
    }
}

fn doing(what: &Doing) -> String {
    match what {
        Doing::Running => "runs".to_owned(),
        Doing::Unseen => "runs or is runnable; the kernel did not show when it got the CPU".to_owned(),
        Doing::Waking { budget: Budget::Quota, .. } | Doing::Preempted { budget: Budget::Quota, .. } => {
            "its control group has used up its CPU time".to_owned()
        }
        Doing::Waking { budget, .. } | Doing::Preempted { budget, .. } if budget.throttler().is_some() => {
            format!("{} is used up", budget.throttler().unwrap_or_default())
        }
        Doing::Waking { previous, .. } if previous.pid == 0 => "waits for the CPU".to_owned(),
        Doing::Waking { previous, .. } => {
            format!("waits; {} ({}) has the CPU", previous.command, figure::priority(previous.priority))
        }
        Doing::Preempted { by, .. } if by.pid == 0 => "runnable; something else has the CPU".to_owned(),
        Doing::Preempted { by, .. } => {
            format!("preempted by {} ({})", by.command, figure::priority(by.priority))
        }
        Doing::Blocked { wait, waker } => {
            let wait = match wait {
                Wait::Lock { owner: Some((_, command)), .. } => format!("waits for a lock held by {command}"),
                Wait::Kernel(Some(call)) => format!("waits in the kernel ({call})"),
                Wait::Inside { call, .. } | Wait::Work(Some(call)) => format!("sleeps in {call}"),
                wait => format!("waits for {}", wait.describe()),
            };
            format!("{wait}, then {}", woken(waker))
        }
    }
}

/// The longest time for which it waited for a CPU, as a spike of `series`: what a trace of the scheduler shows. `None` if it
/// did not wait.
pub(super) fn longest_wait(activation: &Activation, series: &str) -> Option<SpikeRecord> {
    let is_preempted = |stage: &&Stage| matches!(stage.what, Doing::Preempted { .. });
    let preempted = activation.stages.iter().filter(is_preempted).max_by_key(|stage| stage.length_ns());
    let preempted = preempted.map(|stage| (stage.length_ns(), stage.to_ns, stage.cpu, series.to_owned()));
    let first = activation.stages.iter().find(|stage| stage.what == Doing::Running);
    let has_begun =
        activation.stages.iter().any(|stage| matches!(stage.what, Doing::Running | Doing::Unseen));
    let waits = activation.stages.last().filter(|_| activation.is_unended && !has_begun);
    // It may have waited for several CPUs in turn, and wait still.
    let woken = first.map(|stage| (stage.from_ns, stage.cpu)).or(waits.map(|stage| (stage.to_ns, stage.cpu)));
    let woken = woken.map(|(at_ns, cpu)| (activation.wakeup_ns(), at_ns, cpu, format!("{series}/wakeup")));
    let (latency_ns, at_ns, cpu, series) = [preempted, woken].into_iter().flatten().max()?;
    (latency_ns > 0).then_some(SpikeRecord {
        cpu,
        series: Some(series),
        at_ns,
        latency_ns,
        ..SpikeRecord::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_bpf::tasks::Thread;
    use whylate_core::CpuId;
    use whylate_testing::says;

    fn activation() -> Activation {
        let thread = |pid, priority, command: &str| Thread { pid, priority, command: command.to_owned() };
        let stage = |from_ns, to_ns, what| Stage { from_ns, to_ns, cpu: CpuId(1), what };
        Activation {
            thread: thread(7, 40, "audio"),
            due_ns: 100,
            woken_ns: 150,
            waker: Waker::Timer,
            stages: vec![
                stage(100, 250, Doing::Waking { previous: thread(9, -21, "make"), budget: Budget::Left }),
                stage(250, 300, Doing::Running),
                stage(300, 900, Doing::Preempted { by: thread(8, 80, "thief"), budget: Budget::Left }),
                stage(900, 950, Doing::Running),
            ],
            ..Activation::default()
        }
    }

    #[test]
    fn a_timeline_has_every_stage_and_separates_a_late_timer_from_a_wait_for_the_cpu() {
        let spike = explained(&activation(), vec![Cause::new(CauseKind::Thread)], Vec::new());
        let ends: Vec<u64> = spike.timeline.iter().map(|it| it.to_ns).collect();
        assert_eq!((spike.latency_ns, ends), (850, vec![150, 250, 300, 900, 950]));
        assert!(spike.timeline.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
        assert!(spike.timeline[0].what.contains("timer has not expired"), "{spike:?}");
        assert!(says("woken-by-its-timer", &spike.timeline[1].what), "{spike:?}");
        assert!(spike.timeline[3].what.starts_with("preempted by thief"), "{spike:?}");
    }

    #[test]
    fn the_longest_wait_for_a_cpu_is_what_a_trace_is_kept_of() {
        let mut activation = activation();
        let spike = longest_wait(&activation, "audio").unwrap();
        assert_eq!((spike.series.as_deref(), spike.at_ns, spike.latency_ns), (Some("audio"), 900, 600));
        activation.stages.truncate(2);
        let spike = longest_wait(&activation, "audio").unwrap();
        assert_eq!((spike.series.as_deref(), spike.at_ns), (Some("audio/wakeup"), 250));
        let (waiting, running) = (activation.stages[0].clone(), activation.stages.remove(1));
        assert_eq!(longest_wait(&activation, "audio"), None);
        activation.is_unended = true;
        let spike = longest_wait(&activation, "audio").unwrap();
        assert_eq!((spike.series.as_deref(), spike.at_ns), (Some("audio/wakeup"), waiting.to_ns));
        assert_eq!(spike.latency_ns, 150, "it waits still");
        activation.stages = vec![running];
        activation.due_ns = 250;
        assert_eq!(longest_wait(&activation, "audio"), None);
    }
}
