//! The task probe: watches the user's own threads by what BPF programs record of them, and explains the worst activations.
//!
//! A sample is the response of one activation. It lasts from the moment at which the thread was due (the programmed expiry of
//! its timer, or its wake-up) to its next sleep in which it waits for work. Its parts are the wake-up latency, the time that
//! it ran, that another thread ran instead, and that it slept in the middle of its work. The thread itself is not changed.
//! With marks in the plan, an activation lasts from one mark to the other, and every sleep between them is in the middle of
//! its work.

mod chains;
mod deadlines;
mod lane;
mod lanes;
mod source;
mod spike;
#[cfg(test)]
mod tests;
mod triggers;

use super::{Kind, Place, Resolve};
use crate::error::ProbeError;
use crate::measure::{Elsewhere, Happened, Measuring, Observer, Outcome};
use chains::{ChainWatch, WatchEnd};
use lanes::{Counted, Lanes, Of};
use rustix::process::{Pid, Signal, kill_process};
use source::{KeptRecords, Source};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use triggers::Triggers;
pub use triggers::send_trigger;
use whylate_bpf::tasks::{Activation, Doing, Present, Stage, TaskTarget, place_of, present, unit_group};
use whylate_core::figure::nanoseconds;
use whylate_core::order::InOrder;
use whylate_core::plan::{Mark, TaskPlan};
use whylate_core::record::SpikeRecord;
use whylate_core::result::{Cause, CauseKind};
use whylate_core::{CpuSet, Facts, Nanos, Warning, WarningCode};
use whylate_host::facts::collect;
use whylate_host::family::{self, Process};
use whylate_host::{HostRoot, find_program, hotplug};
use whylate_record::tasks::Explained;
use whylate_sys::{clock, process, schedule};

/// How often the records are read.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often tasks that the kernel does not report are looked for.
const SEARCH_EVERY: Duration = Duration::from_secs(1);
/// The first interval that is stored.
const FIRST_STORED: Duration = Duration::from_secs(5);
/// At most this many activations are explained at each look: the worst ones, and if there are more, a sample of the others.
const AT_ONCE_MAX: usize = 64;
/// This many of them are always the worst ones.
const WORST_AT_ONCE: usize = 40;
/// The kernel's stack is never recorded below this latency, and only above half of the least of the worst latencies.
const STACK_MIN_NS: u64 = 20_000;
/// Without a deadline, own work longer than this is divided into parts.
const DIVIDED_LEAST_NS: u64 = 1_000_000;
/// Without a deadline, a thread that does not sleep for longer is named.
const SLEEPLESS_LEAST_NS: u64 = 1_000_000_000;
/// A warning names at most this many threads.
const NAMED_MAX: usize = 8;

/// The time from SIGTERM to SIGKILL for a started program.
const GRACE: Duration = Duration::from_secs(2);

/// How long after the last time, at `elapsed`, the results are stored again, at most after `longest`. The first intervals are
/// short, so that a watch that is killed early has kept something.
pub fn store_after(elapsed: Duration, longest: Duration) -> Duration {
    elapsed.max(FIRST_STORED).min(longest)
}

impl Resolve<TaskPlan> for TaskPlan {
    fn resolve(plan: &Self, _: &mut Place<'_>) -> Result<Self, ProbeError> {
        Ok(plan.clone())
    }
}

impl Kind for TaskPlan {
    fn name(&self) -> &'static str {
        "task"
    }

    fn measure(&self, of: &Measuring<'_>, observer: &mut dyn Observer) -> Result<Outcome, ProbeError> {
        measure(self, of, observer)
    }
}

/// A program that was started to be watched; ended with the measurement.
struct Started(Child);

impl Started {
    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// How it ended, if it failed: `exit status: 3`, `signal: 9 (SIGKILL)`.
    fn failure(&mut self) -> Option<String> {
        let status = self.0.try_wait().ok().flatten()?;
        (!status.success()).then(|| status.to_string())
    }
}

impl Drop for Started {
    /// Asks it and what it has started to end, and ends what has not done so in time.
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        let own = self.0.id();
        let mut family = Vec::new();
        signal_family(own, &mut family, Signal::TERM);
        let until = Instant::now() + GRACE;
        while Instant::now() < until && !(self.has_ended() && family.iter().all(Process::has_ended)) {
            std::thread::sleep(LOOK_EVERY);
        }
        signal_family(own, &mut family, Signal::KILL);
        let _ = self.0.wait();
    }
}

/// Signals a child that was not waited for, so that no other process has its number, and then all that it and its `known`
/// descendants have started since.
fn signal_family(child: u32, known: &mut Vec<Process>, signal: Signal) {
    let before: Vec<u32> = known.iter().map(|process| process.pid).collect();
    let below = before.iter().chain([&child]).flat_map(|pid| family::descendants(*pid));
    let new = [child].into_iter().chain(below).filter(|pid| !before.contains(pid));
    known.extend(new.filter_map(Process::of));
    let left = known.iter().filter(|process| !process.has_ended());
    left.filter_map(|process| Pid::from_raw(process.pid as i32)).for_each(|pid| {
        // An error means that it has just ended.
        let _ = kill_process(pid, signal);
    });
}

fn target(plan: &TaskPlan, host: &HostRoot) -> Result<TaskTarget, ProbeError> {
    if let Some(name) = &plan.name {
        let name = name.clone();
        return Ok(match plan.command.is_empty() {
            true => TaskTarget::Name(name),
            false => TaskTarget::ChildrenNamed(name),
        });
    }
    if let Some(pid) = plan.pid {
        let is_there = host.exists(&format!("/proc/{pid}/task"));
        let missing =
            || ProbeError::Failed(format!("there is no process {pid}; `pgrep -l NAME` lists PIDs by name"));
        return if is_there { Ok(TaskTarget::Process(pid)) } else { Err(missing()) };
    }
    if let Some(name) = &plan.cgroup {
        let missing = || {
            ProbeError::Failed(format!(
                "there is no control group, unit or container `{name}` in /sys/fs/cgroup: `systemd-cgls` lists them"
            ))
        };
        return unit_group(host, name).map(TaskTarget::Group).ok_or_else(missing);
    }
    if let Some((least, most)) = plan.priority_range() {
        return Ok(TaskTarget::Priorities(least, most));
    }
    Ok(TaskTarget::Children)
}

fn marks(plan: &TaskPlan) -> Result<Option<[Mark; 2]>, ProbeError> {
    plan.marks().map_err(|error| ProbeError::Failed(error.to_string()))
}

fn kept(plan: &TaskPlan) -> KeptRecords {
    KeptRecords {
        ns: triggers::keep_ns(plan).max(chains::keep_ns(plan)),
        every_switch: !plan.chains.is_empty(),
    }
}

/// Checks that what a plan wants to watch exists, if it has to exist at the start: its process, its control group, its
/// program.
///
/// # Errors
/// [`ProbeError::Failed`] says what is not there, and how to find its name.
pub fn find_tasks(plan: &TaskPlan, host: &HostRoot) -> Result<(), ProbeError> {
    target(plan, host)?;
    triggers::check(plan)?;
    chains::check(plan)?;
    for mark in marks(plan)?.iter().flatten() {
        place_of(mark).map_err(ProbeError::Failed)?;
    }
    let path = std::env::var_os("PATH");
    match plan.command.first().filter(|program| find_program(program, path.as_deref()).is_none()) {
        Some(program) => {
            let is_there = program.contains('/') && std::path::Path::new(program).exists();
            let why = if is_there { "the file is not executable" } else { "the program was not found" };
            Err(ProbeError::Failed(format!("cannot start `{program}`: {why}")))
        }
        None => Ok(()),
    }
}

/// The threads that a plan watches and that exist now.
pub fn present_threads(plan: &TaskPlan, host: &HostRoot) -> Vec<Present> {
    target(plan, host).map(|target| present(host, &target)).unwrap_or_default()
}

/// Moves this thread, and those that it starts from now on, to other CPUs; returns whether this succeeded.
pub fn move_to(cpus: &CpuSet) -> bool {
    !cpus.is_empty() && schedule::pin_this_thread(cpus).is_ok()
}

/// Checks whether those tasks can be watched on these CPUs.
pub fn try_to_watch(
    plan: &TaskPlan,
    host: &HostRoot,
    cpus: &CpuSet,
    facts: &Facts,
) -> Result<(), ProbeError> {
    let mut triggers = Triggers::try_to_start(plan)?;
    let mut source = Source::start(
        host,
        cpus,
        &target(plan, host)?,
        facts,
        marks(plan)?.as_ref(),
        plan.per.unwrap_or_default(),
        kept(plan),
    )?;
    triggers.as_mut().map_or(Ok(()), |triggers| triggers.wait_in_kernel(plan, &mut source))?;
    ChainWatch::start(plan, &mut source)?;
    if plan.audit { source.audit() } else { Ok(()) }
}

/// Watches until the duration is over, the observer ends it, or the process has ended.
fn measure(plan: &TaskPlan, of: &Measuring<'_>, observer: &mut dyn Observer) -> Result<Outcome, ProbeError> {
    let Measuring { host, spec, stored, .. } = *of;
    let _elsewhere = Elsewhere::move_to(&host.running, &spec.other_cpus);
    let (facts, _) = collect(&host.running);
    let target = target(plan, &host.running)?;
    let cpus = hotplug::recorded(&host.running, &spec.cpus);
    let watch = Source::start(
        &host.running,
        &cpus,
        &target,
        &facts,
        marks(plan)?.as_ref(),
        plan.per.unwrap_or_default(),
        kept(plan),
    )?;
    let begin_ns = clock::now().0;
    let mut watching = Watching {
        watch,
        lanes: Lanes::new(begin_ns, plan.deadline, plan.worst()),
        start_ns: begin_ns,
        deadline: plan.deadline,
        stack_ns: STACK_MIN_NS,
        not_explained: 0,
        unended: 0,
        sleepless: Vec::new(),
        has_marks: plan.begin.is_some(),
        clock_jumps: 0,
        triggers: Triggers::start(plan)?,
        chains: None,
    };
    watching.watch.keep_stacks(STACK_MIN_NS);
    watching.watch.divide_above(watching.divided_above_ns());
    if let Some(triggers) = &mut watching.triggers {
        triggers.wait_in_kernel(plan, &mut watching.watch)?;
    }
    watching.chains = ChainWatch::start(plan, &mut watching.watch)?;
    if plan.audit {
        watching.watch.audit()?;
    }
    let mut started = watching.start_command(plan)?;
    observer.armed(std::process::id(), begin_ns);
    let end_ns = begin_ns.saturating_add(spec.duration.0);
    let mut searched = Instant::now();
    let stopped = loop {
        std::thread::sleep(LOOK_EVERY);
        watching.look(observer)?;
        watching.look_at_triggers(observer, false)?;
        watching.look_at_chains(observer, None)?;
        if searched.elapsed() >= SEARCH_EVERY {
            searched = Instant::now();
            watching.search()?;
            watching.tell(observer);
        }
        let now_ns = clock::now().0;
        let stopped = observer.should_stop();
        let has_ended = match &target {
            TaskTarget::Process(pid) => !host.running.exists(&format!("/proc/{pid}/task")),
            TaskTarget::Children => started.as_mut().is_none_or(Started::has_ended),
            _ => started.as_mut().is_some_and(Started::has_ended),
        };
        let is_over = stopped || has_ended || now_ns >= end_ns;
        if is_over {
            watching.watch.leave_alone()?;
            // The last activations have settled by then.
            std::thread::sleep(LOOK_EVERY);
            watching.look(observer)?;
            watching.look_at_triggers(observer, true)?;
            let end = WatchEnd { at_ns: now_ns, has_program_ended: has_ended };
            watching.look_at_chains(observer, Some(end))?;
            watching.look_at_unended(observer)?;
        }
        let [so_far, longest] = [watching.start_ns - begin_ns, stored.0].map(Duration::from_nanos);
        let interval_ns = store_after(so_far, longest).as_nanos() as u64;
        if is_over || now_ns >= watching.start_ns.saturating_add(interval_ns) {
            watching.lanes.doubt(watching.watch.doubts());
            watching.lanes.cut(&watching.watch.cuts(), watching.watch.threads());
            let mut batch = watching.lanes.take(watching.start_ns, clock::now().0);
            batch.audit = watching.lanes.place(watching.watch.audited(), &plan.allow);
            batch.triggers = watching.triggers.as_mut().map(Triggers::take).unwrap_or_default();
            batch.chains = watching.chains.as_mut().map(ChainWatch::take_records).unwrap_or_default();
            watching.start_ns = batch.end_ns;
            observer.batch(batch).map_err(ProbeError::Observer)?;
        }
        if is_over {
            break stopped;
        }
    };
    watching.tell(observer);
    let mut warnings = watching.warnings();
    if let Some(failure) = started.as_mut().and_then(Started::failure) {
        let text = format!("`{}` ended with {failure}", plan.command.join(" "));
        warnings.push(Warning::new(WarningCode::CommandFailed, text));
    }
    Ok(Outcome { warnings, stopped, broke: None })
}

struct Watching {
    watch: Source,
    lanes: Lanes,
    start_ns: u64,
    deadline: Option<Nanos>,
    stack_ns: u64,
    not_explained: u64,
    /// Activations that are counted and had not ended.
    unended: u64,
    /// The threads that did not sleep during the watch, with how long that was.
    sleepless: Vec<String>,
    has_marks: bool,
    clock_jumps: u64,
    triggers: Option<Triggers>,
    chains: Option<ChainWatch>,
}

impl Watching {
    fn divided_above_ns(&self) -> u64 {
        self.deadline.map_or(DIVIDED_LEAST_NS, |deadline| deadline.0)
    }

    /// Starts a program whose threads are watched from the first moment on.
    fn start_command(&mut self, plan: &TaskPlan) -> Result<Option<Started>, ProbeError> {
        let [program, arguments @ ..] = &plan.command[..] else { return Ok(None) };
        let cannot = |error| ProbeError::Failed(format!("cannot start `{program}`: {error}"));
        let mut command = Command::new(program);
        process::end_with_this_thread(command.args(arguments));
        // The threads that read the output are not watched.
        if let Some(triggers) = &mut self.triggers {
            triggers.read_output(&mut command).map_err(cannot)?;
        }
        self.watch.follow_children(true)?;
        let started = command.spawn();
        self.watch.follow_children(false)?;
        Ok(Some(Started(started.map_err(cannot)?)))
    }

    /// Counts the triggers that came, and explains those whose activations have ended; all of them if the watch `is_over`.
    fn look_at_triggers(&mut self, observer: &mut dyn Observer, is_over: bool) -> Result<(), ProbeError> {
        let Some(triggers) = &mut self.triggers else { return Ok(()) };
        if is_over {
            triggers.wait_for_output();
        }
        triggers.look(&mut self.watch, &mut self.lanes, observer, is_over)
    }

    /// Counts the instances of chains that ended, and explains the worst; all of them at the `end`.
    fn look_at_chains(
        &mut self,
        observer: &mut dyn Observer,
        end: Option<WatchEnd>,
    ) -> Result<(), ProbeError> {
        let Some(chains) = &mut self.chains else { return Ok(()) };
        chains.look(&mut self.watch, &mut self.lanes, observer, end)
    }

    fn tell(&mut self, observer: &mut dyn Observer) {
        if let Some(triggers) = &self.triggers {
            observer.triggers(triggers.line());
        }
        observer.tasks(&self.lanes.lines());
    }

    /// Counts the activations that have not ended, if they are longer than all that did, or too long.
    fn look_at_unended(&mut self, observer: &mut dyn Observer) -> Result<(), ProbeError> {
        let mut open = self.watch.unended();
        open.retain(|one| !one.is_unended || self.lanes.is_longest(one, self.watch.threads()));
        self.unended = open.iter().filter(|one| one.is_unended).count() as u64;
        let least_ns = self.deadline.map_or(SLEEPLESS_LEAST_NS, |deadline| deadline.0);
        for one in open.iter().filter(|one| !self.has_marks && is_sleepless(one, least_ns)) {
            if self.sleepless.len() < NAMED_MAX && self.lanes.is_first(one, self.watch.threads()) {
                self.sleepless.push(described_sleepless(one));
            }
        }
        // A thread that hangs in its start is late.
        open.iter_mut().for_each(|one| one.is_start = false);
        self.take(open, observer)
    }

    /// Takes the activations that ended, and explains the worst of them.
    fn look(&mut self, observer: &mut dyn Observer) -> Result<(), ProbeError> {
        let ended = self.watch.poll()?;
        self.take(ended, observer)
    }

    fn take(&mut self, ended: Vec<Activation>, observer: &mut dyn Observer) -> Result<(), ProbeError> {
        if std::mem::replace(&mut self.clock_jumps, self.watch.clock_jumps()) != self.watch.clock_jumps() {
            self.lanes.break_periods();
        }
        let mut wanted: Vec<(Of, Counted, Activation)> = Vec::new();
        for activation in ended {
            if activation.is_start {
                self.lanes.add_start(&activation, self.watch.threads());
                continue;
            }
            let worst = self.lanes.add(&activation, self.watch.threads());
            let counted = self.lanes.last();
            if let Some(triggers) = &mut self.triggers {
                triggers.keep(&activation);
            }
            for of in worst {
                let part = if of == Of::Wakeup { activation.until_running() } else { activation.clone() };
                wanted.push((of, counted, part));
            }
        }
        // This comes first: a trace of it has to be stopped before it is overwritten.
        let whole = wanted.iter().filter(|(of, ..)| *of == Of::Response);
        let wait = |(_, counted, one): &(Of, Counted, Activation)| {
            spike::longest_wait(one, self.lanes.name(*counted))
        };
        let waits: Vec<SpikeRecord> = whole.filter_map(wait).collect();
        if !waits.is_empty() {
            observer.spikes(&waits);
        }
        wanted.order_by_key(|(_, _, activation)| std::cmp::Reverse(activation.response_ns()));
        let left = leave(&mut wanted);
        // At first every activation is among the worst so far.
        let is_late =
            |activation: &Activation| self.deadline.is_some_and(|it| activation.response_ns() > it.0);
        self.not_explained += left.iter().filter(|(_, _, activation)| is_late(activation)).count() as u64;
        left.iter().for_each(|(of, counted, activation)| self.lanes.leave(*of, *counted, activation));
        let parts: Vec<&Activation> = wanted.iter().map(|(_, _, activation)| activation).collect();
        let explained = self.watch.explain(&parts)?;
        let least_ns = self.divided_above_ns();
        let is_own = |((_, _, one), explained): &(&(Of, Counted, Activation), &Explained)| {
            let main = explained.causes.first().map(|cause| cause.kind);
            one.response_ns() > least_ns && main == Some(CauseKind::OwnWork)
        };
        // This has a cost, so it starts only after the own work of an activation was too long.
        if wanted.iter().zip(&explained).any(|it| is_own(&it)) {
            self.watch.divide_own_work()?;
        }
        for ((of, counted, activation), explained) in wanted.iter().zip(explained) {
            if *of == Of::Response && is_late(activation) {
                observer.happened(Happened::Late {
                    thread: self.lanes.name(*counted).to_owned(),
                    pid: activation.thread.pid,
                    at_ns: activation.due_ns + activation.response_ns(),
                    latency_ns: activation.response_ns(),
                    is_unended: activation.is_unended,
                    cause: explained.causes.first().map(Cause::sentence),
                });
            }
            self.lanes.explain(*of, *counted, activation, explained);
        }
        Ok(())
    }

    fn search(&mut self) -> Result<(), ProbeError> {
        self.watch.look_for_tasks()?;
        let least_ns = self.lanes.least_worst_wakeup_ns().map_or(STACK_MIN_NS, |least_ns| least_ns / 2);
        let stack_ns = least_ns.max(STACK_MIN_NS);
        if stack_ns > self.stack_ns + self.stack_ns / 8 || stack_ns < self.stack_ns / 2 {
            self.stack_ns = stack_ns;
            self.watch.keep_stacks(stack_ns);
        }
        Ok(())
    }

    fn warnings(&mut self) -> Vec<Warning> {
        let mut warnings: Vec<Warning> =
            self.lanes.timer_slack().into_iter().chain(self.lanes.in_doubt()).collect();
        if !self.sleepless.is_empty() {
            let text = format!(
                "watched tasks: {}, and no activation has ended; divide the work by marks (--begin, --end)",
                self.sleepless.join(", ")
            );
            warnings.push(Warning::new(WarningCode::NeverSlept, text));
        }
        let stopped = self.triggers.as_ref().map(Triggers::failures).unwrap_or_default();
        let missing: Vec<String> = self.watch.missing().into_iter().chain(stopped).collect();
        if !missing.is_empty() {
            let text = format!("watched tasks: {}", missing.join("; "));
            warnings.push(Warning::new(WarningCode::CausesIncomplete, text));
        }
        if let Some(missing) = self.watch.missing_counters() {
            let text = format!(
                "watched tasks: whether late own work was more work or slower work is not known: {missing}"
            );
            warnings.push(Warning::new(WarningCode::NoWorkCounters, text));
        }
        let losses = self.watch.losses();
        let missed =
            ["event was missed", "events were missed"].map(|it| format!("{it} ({})", losses.missed_at));
        let unrecorded = self.chains.as_ref().map_or(0, ChainWatch::unrecorded);
        let [dropped, unexplained] = self.triggers.as_ref().map(Triggers::losses).unwrap_or_default();
        let lost = lost(&[
            (losses.records, ["record was lost", "records were lost"]),
            (
                losses.incomplete,
                [
                    "activation was not recorded completely and is not counted",
                    "activations were not recorded completely and are not counted",
                ],
            ),
            (
                losses.suspended,
                [
                    "activation is not counted, because the machine was suspended or its clock was set",
                    "activations are not counted, because the machine was suspended or its clock was set",
                ],
            ),
            (
                self.unended,
                [
                    "activation had not ended when the watch ended, and counts with its length so far",
                    "activations had not ended when the watch ended, and count with their length so far",
                ],
            ),
            (losses.unwatched, ["task was not watched (too many)", "tasks were not watched (too many)"]),
            (losses.missed, missed.each_ref().map(String::as_str)),
            (
                losses.unread_texts,
                [
                    "trace_marker text could not be read, so a mark may be missing",
                    "trace_marker texts could not be read, so marks may be missing",
                ],
            ),
            (
                dropped,
                [
                    "activation was dropped (too many), so a later trigger may lack its cause",
                    "activations were dropped (too many), so later triggers may lack their causes",
                ],
            ),
            (
                unexplained,
                [
                    "trigger is not explained: too many triggers came, so only the first trigger of each second is explained",
                    "triggers are not explained: too many triggers came, so only the first trigger of each second is explained",
                ],
            ),
            (
                unrecorded,
                [
                    "pass of a chain's mark has no record, so an instance is missing",
                    "passes of chains' marks have no records (too many came), so instances are missing",
                ],
            ),
            (losses.unaudited, ["audited system call was lost", "audited system calls were lost"]),
            (
                self.not_explained,
                [
                    "late activation is not explained: too many late activations came at once",
                    "late activations are not explained: too many late activations came at once",
                ],
            ),
        ]);
        warnings.extend(lost.map(|text| Warning::new(WarningCode::TaskRecordsLost, text)));
        warnings
    }
}

/// Whether an activation had not ended when the watch did, has no sleep, and is longer than that.
fn is_sleepless(activation: &Activation, least_ns: u64) -> bool {
    let is_sleep = |stage: &Stage| matches!(stage.what, Doing::Blocked { .. });
    activation.is_unended && activation.response_ns() > least_ns && !activation.stages.iter().any(is_sleep)
}

/// `control did not sleep for 5.00 s`
fn described_sleepless(activation: &Activation) -> String {
    format!("{} did not sleep for {}", activation.thread.command, nanoseconds(activation.response_ns()))
}

/// Takes away what is not explained at once: the worst come first and stay, and every n-th of the others stays.
fn leave<T>(wanted: &mut Vec<T>) -> Vec<T> {
    if wanted.len() <= AT_ONCE_MAX {
        return Vec::new();
    }
    let every = (wanted.len() - WORST_AT_ONCE).div_ceil(AT_ONCE_MAX - WORST_AT_ONCE);
    let mut after_worst = 0..;
    let is_left = |_: &mut T| after_worst.next().is_some_and(|nth: usize| !nth.is_multiple_of(every));
    wanted.extract_if(WORST_AT_ONCE.., is_left).collect()
}

/// Lists the losses that are not 0, in singular or plural; `None` without losses.
fn lost(counts: &[(u64, [&str; 2])]) -> Option<String> {
    let words = |count: u64, [one, several]: [&str; 2]| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {several}"),
    };
    let named = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| words(*count, *what));
    let named = named.collect::<Vec<String>>().join(", ");
    (!named.is_empty()).then(|| format!("watched tasks: {named}"))
}
