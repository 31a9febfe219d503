//! First pass: the state of one task, and how late it was when it ran again.

use crate::find::clock::Alignment;
use crate::find::late::{Largest, Late, LateKind, PRIORITY_NORMAL};
use crate::find::rhythm::Rhythm;
use crate::options::Options;
use crate::time;
use whylate_core::CpuId;
use whylate_core::result::{ExpectedFrom, LateWhat};
use whylate_trace::event::{Name, TaskState};

/// How much earlier than its timer a task may be woken and still count as woken by it.
const TIMER_SLACK_NS: u64 = 2_000;
/// An interval this many times the given period shows that the task does not run at that period.
const PERIOD_MISFIT: u64 = 3;

/// What is known of a task, from all of the trace so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskTrack {
    pub(crate) command: Option<Name>,
    pub(crate) priority: Option<i32>,
    pub(crate) rhythm: Rhythm,
    /// From its timer or its wake-up to its run.
    pub(crate) late: Largest,
    /// Times in which another thread had its CPU while it was runnable, as a real-time task.
    pub(crate) preempted: Largest,
    /// The same as an ordinary task, which shares its CPU with all others.
    pub(crate) shared: Largest,
    /// Times that it blocked in the middle of its work.
    pub(crate) blocked: Largest,
    pub(crate) wakeups: u64,
    /// Wake-ups whose expected moment is unknown.
    pub(crate) unknown: u64,
    /// Wake-ups whose expected moment comes from the task's rhythm alone.
    pub(crate) inferred: u64,
    pub(crate) out: Option<Out>,
    /// Its wake-up, and whether `sched_wakeup` completed it.
    pub(crate) wake: Option<(u64, bool)>,
    /// Since when and where it runs, if it slept before and no wake-up was seen.
    pub(crate) unwoken: Option<(u64, CpuId)>,
    pub(crate) armed: Option<(u64, u64)>,
    /// It has set a timer to sleep until.
    pub(crate) has_timers: bool,
    pub(crate) last_in: Option<(u64, CpuId, u64)>,
    /// Since when it has been at work without a sleep: since its wake-up.
    awake_since: Option<u64>,
    /// How often it was at work without a sleep for longer than its period, and for how long at most.
    pub(crate) overruns: (u64, u64),
    /// Wake-ups without a switch to it that may have been late, and the longest time until it ran or was woken again.
    pub(crate) unseen: (u64, u64),
    /// The same of sleeps in the middle of its work, from their begin on.
    pub(crate) unseen_sleeps: (u64, u64),
}

/// How a task left the CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    pub(crate) at_ns: u64,
    pub(crate) state: TaskState,
    pub(crate) cpu: CpuId,
    pub(crate) for_lesser: bool,
}

impl TaskTrack {
    /// The delays of a task to list: by default those that a real-time task should never have; `shared` too on request.
    pub(crate) fn lists<'t>(&'t self, options: &Options, shared: bool) -> impl Iterator<Item = &'t Largest> {
        let wanted = move |what: LateWhat, by_default: bool, list: &'t Largest| match options.what {
            None => by_default.then_some(list),
            Some(wanted) => (wanted == what).then_some(list),
        };
        let all = [
            wanted(LateWhat::Wakeup, true, &self.late),
            wanted(LateWhat::Preempted, true, &self.preempted),
            wanted(LateWhat::Preempted, shared, &self.shared),
            wanted(LateWhat::Blocked, false, &self.blocked),
        ];
        all.into_iter().flatten()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Largest> {
        [&self.late, &self.preempted, &self.shared, &self.blocked].into_iter()
    }

    /// Forgets its latencies as an ordinary task.
    pub(crate) fn becomes_realtime(&mut self, priority: i32) {
        let Self { command, out, wake, armed, last_in, .. } = *self;
        *self = Self { command, priority: Some(priority), out, wake, armed, last_in, ..Self::default() };
    }

    /// What the task did since that moment is not known.
    pub(crate) fn forget_run(&mut self) {
        self.awake_since = None;
    }

    /// It gets the CPU.
    pub(crate) fn begins(&mut self, at_ns: u64, slept: bool) {
        if slept {
            self.awake_since = Some(self.wake.map_or(at_ns, |(woken_ns, _)| woken_ns.min(at_ns)));
        }
    }

    /// It gives the CPU up.
    pub(crate) fn ends(&mut self, at_ns: u64, state: TaskState) {
        if state == TaskState::Runnable {
            return;
        }
        let Some(since_ns) = self.awake_since.take() else { return };
        let awake_ns = at_ns.saturating_sub(since_ns);
        // Its end is no cycle.
        if !matches!(state, TaskState::Blocked('X' | 'Z'))
            && self.rhythm.median_ns().is_some_and(|median_ns| awake_ns > median_ns)
            && self.rhythm.period_ns().is_some_and(|period_ns| awake_ns > period_ns)
        {
            self.overruns = (self.overruns.0 + 1, self.overruns.1.max(awake_ns));
        }
    }

    /// It was woken, and had run by `at_ns` without a switch to it.
    pub(crate) fn ran_unseen(&mut self, woken_ns: u64, at_ns: u64, least_ns: u64, timers: bool) {
        let add = |(count, most): &mut (u64, u64), from_ns: u64| {
            let ns = at_ns.saturating_sub(from_ns);
            if ns > least_ns {
                (*count, *most) = (*count + 1, ns.max(*most));
            }
        };
        add(&mut self.unseen, woken_ns);
        if let Some(out) = self.out.filter(|out| self.is_in_work(out.state, timers)) {
            add(&mut self.unseen_sleeps, out.at_ns);
        }
    }

    /// Whether a sleep is a part of its work, and not the wait for its next period.
    fn is_in_work(&self, state: TaskState, timers: bool) -> bool {
        matches!(state, TaskState::Blocked('D')) || (timers && self.armed.is_none())
    }

    /// The priority of a task that was a real-time task before and is an ordinary task now.
    pub(crate) fn no_longer_realtime(&self, priority: Option<i32>) -> Option<i32> {
        let was_realtime = self.priority.is_some_and(|before| before < PRIORITY_NORMAL);
        priority.filter(|priority| was_realtime && *priority >= PRIORITY_NORMAL)
    }

    /// Forgets what it waits for: it may have run unseen since then.
    pub(crate) fn forget_waits(&mut self) {
        (self.out, self.wake, self.unwoken, self.armed) = (None, None, None, None);
        self.last_in = None;
        self.forget_run();
        self.rhythm.pause();
    }

    /// Forgets latencies that ended before that moment: a task that stops at the first latency above its limit had none
    /// before.
    pub(crate) fn forget_before(&mut self, at_ns: u64, least_ns: u64) {
        for list in [&mut self.late, &mut self.preempted, &mut self.shared, &mut self.blocked] {
            list.forget_before(at_ns, least_ns);
        }
    }

    pub(crate) fn add(&mut self, late: Late, options: &Options, least_ns: u64) {
        let list = match late.kind {
            LateKind::Blocked => &mut self.blocked,
            LateKind::Preempted { .. } if late.priority.is_some_and(|own| own < PRIORITY_NORMAL) => {
                &mut self.preempted
            }
            LateKind::Preempted { .. } => &mut self.shared,
            _ => &mut self.late,
        };
        list.push(late, options.top, least_ns);
        self.inferred += u64::from(late.from == ExpectedFrom::Period && options.period_ns.is_none());
    }

    /// Takes a wake-up. A runnable task is not woken again: if it is, it ran and slept unseen in between.
    pub(crate) fn woken(&mut self, at_ns: u64, is_over: bool, (least_ns, timers): (u64, bool)) {
        match &mut self.wake {
            Some((_, over)) if !*over && is_over => *over = true,
            wake => {
                let before = wake.replace((at_ns, is_over));
                if let Some((woken_ns, _)) = before {
                    self.ran_unseen(woken_ns, at_ns, least_ns, timers);
                }
                self.armed = self.armed.filter(|(_, armed_ns)| before.is_none_or(|(at, _)| *armed_ns > at));
            }
        }
    }

    /// A task that blocked in its work waits for its CPU afterwards like every task.
    pub(crate) fn add_wait(&mut self, blocked: Late, options: &Options, least_ns: u64) {
        if let (LateKind::Blocked, Some(expected_ns)) = (blocked.kind, blocked.woken_ns) {
            let (from, kind, woken_ns) = (ExpectedFrom::Wakeup, LateKind::Wakeup, None);
            self.add(Late { expected_ns, from, kind, woken_ns, ..blocked }, options, least_ns);
        }
    }

    /// When it was woken and has not run since.
    pub(crate) fn waits_since_ns(&self) -> Option<u64> {
        self.wake.filter(|_| self.out.is_some() || self.last_in.is_none()).map(|(at_ns, _)| at_ns)
    }

    /// How late the task is when it runs again at `actual_ns` after it left the CPU; `None` if nothing shows it.
    #[allow(clippy::too_many_arguments, reason = "the moment and all that is known of it")]
    pub(crate) fn late(
        &self,
        pid: u32,
        cpu: CpuId,
        actual_ns: u64,
        out: Out,
        clock: &Alignment,
        options: &Options,
        timers: bool,
    ) -> Option<Late> {
        let Out { at_ns: out_ns, state, .. } = out;
        let late = |expected_ns, from, error_ns, kind| Late {
            pid: Some(pid),
            command: self.command,
            priority: self.priority,
            error_ns,
            since_ns: out_ns,
            ..Late::new(cpu, expected_ns, actual_ns, from, kind)
        };
        let realtime = self.priority.is_some_and(|priority| priority < PRIORITY_NORMAL);
        if state == TaskState::Runnable {
            let kind = LateKind::Preempted { cpu: out.cpu, for_lesser: out.for_lesser };
            return Some(late(out_ns, ExpectedFrom::Interrupted, 0, kind));
        }
        let wake = self.wake.map(|(at_ns, _)| at_ns);
        let woken = wake.unwrap_or(actual_ns);
        if let Some((expires_ns, armed_ns)) = self.armed
            && let Some((expected, error)) = clock.to_trace(expires_ns, armed_ns)
            && expected <= woken.saturating_add(TIMER_SLACK_NS.saturating_add(error))
        {
            let expected = time::within(expected, out_ns, actual_ns);
            return Some(late(expected, ExpectedFrom::Timer, error, LateKind::Wakeup));
        }
        // Its timer is on another CPU, so this sleep is part of its work.
        let is_in_work = self.is_in_work(state, timers);
        if is_in_work && (realtime || options.what == Some(LateWhat::Blocked) || options.task.is_some()) {
            let blocked = late(out_ns, ExpectedFrom::Interrupted, 0, LateKind::Blocked);
            return Some(Late { woken_ns: wake, ..blocked });
        }
        // A task with timers waits for its next period by a timer.
        if self.armed.is_none()
            && !(is_in_work && self.has_timers)
            && let Some(period) = self.period_ns(options)
            && let expected = out_ns.saturating_add(period)
            && expected <= woken
        {
            return Some(late(expected, ExpectedFrom::Period, 0, LateKind::Wakeup));
        }
        Some(late(wake?, ExpectedFrom::Wakeup, 0, LateKind::Wakeup))
    }

    /// The period to add to the moment at which the task went to sleep: given, or its rhythm's.
    fn period_ns(&self, options: &Options) -> Option<u64> {
        let Some(given) = options.period_ns else { return self.rhythm.period_ns() };
        let enough = self.rhythm.known() >= 8;
        let misfit =
            self.rhythm.median_ns().is_some_and(|median| median > given.saturating_mul(PERIOD_MISFIT));
        let normal = self.priority.is_some_and(|priority| priority >= PRIORITY_NORMAL);
        let fits = !enough || !misfit;
        (fits && !normal).then_some(given)
    }
}
