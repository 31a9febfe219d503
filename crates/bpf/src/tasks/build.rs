//! From records of single stretches to activations: what a task did from being woken to its next sleep.

use super::calls;
use super::marked::Come;
use super::rhythm::Rhythms;
use crate::layout::Command;
use crate::layout::tasks::{Began, RawStretch, TaskEvent, Waker as RawWaker};
use std::collections::BTreeMap;
use syscalls::Sysno;
use whylate_core::CpuId;
use whylate_core::figure::PRIORITY_TOP;
use whylate_core::recording::Thread;
use whylate_core::recording::{
    Activation, Budget, Counts, Divided, Doing, LongCall, OwnSample, Site, Stage, Wait, Waker,
};
use whylate_sys::schedule::cost_of_page_fault;
use zerocopy::TryFromBytes as _;

/// The kernel's number for an ordinary task of nice 0.
const PRIORITY_ORDINARY: i32 = 120;
/// A state of a sleeping task.
const INTERRUPTIBLE: u32 = 1;
/// A task with an activation of more stages than this hardly ever sleeps; the activation is given up.
const STAGES_MAX: usize = 32_768;
/// State bits of the kernel: uninterruptible, stopped or traced, without load (a thread of the kernel that has nothing to
/// do), waiting for a sleeping spinlock of a real-time kernel.
const UNINTERRUPTIBLE: u32 = 0x2;
const STOPPED: u32 = 0x4 | 0x8;
const NO_LOAD: u32 = 0x400;
const RT_LOCK: u32 = 0x1000;
/// Commands of futex(2) that wait, and the value that a waiter for a mutex expects.
const FUTEX_WAIT: u32 = 0;
const FUTEX_LOCK_PI: u32 = 6;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_LOCK_PI2: u32 = 13;
const FUTEX_CONTENDED: u32 = 2;
/// Set in the command if no other process has the lock.
const FUTEX_PRIVATE: u32 = 0x80;
/// The thread id in the word of a robust futex or one with priority inheritance; and the bit that says that others wait.
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
const FUTEX_WAITERS: u32 = 0x8000_0000;
/// The end of the real-time priorities, in the kernel's numbers.
const SYSCALL_NONE: i32 = -1;

/// What is known of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    pub process: u32,
    /// Its name, as it was last seen.
    pub command: String,
    /// Its priority as tools print it: below 0 for ordinary tasks.
    pub priority: i32,
    pub is_gone: bool,
    /// When it was first and last seen; 0: it was there before the watch.
    pub first_ns: u64,
    pub last_ns: u64,
}

#[derive(Clone)]
pub(super) struct Left {
    pub(super) at_ns: u64,
    pub(super) cpu: CpuId,
    /// `None`: it was preempted.
    pub(super) wait: Option<Wait>,
    site: Site,
    /// The value of the futex in which it sleeps: for pthread_join, the id of a thread.
    waits_for: u32,
    next: Thread,
    budget: Budget,
}

impl Left {
    fn is_asleep(&self) -> bool {
        self.wait.is_some()
    }
}

#[derive(Clone, Default)]
pub(super) struct Track {
    pub(super) open: Option<Activation>,
    /// It has not slept since its first record, and `open` begins there: it counts only if the watch ends before it sleeps.
    never_slept: bool,
    pub(super) left: Option<Left>,
    cpu: Option<CpuId>,
    /// It was created during the watch, and has had no activation yet.
    is_new: bool,
    /// From when to when it was not seen, since its last activation; the end is open where records were lost.
    pub(super) gap: Option<(u64, u64)>,
    /// Marks that it passed since it got the CPU.
    pub(super) marks: Vec<Come>,
    /// Long system calls and samples since it got the CPU.
    calls: Vec<LongCall>,
    pub(super) samples: Vec<OwnSample>,
    /// What was counted in the time of the record that comes next.
    pub(super) counts: Counts,
}

/// An activation whose end was not seen: its thread ended first, or records were lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub thread: u32,
    pub command: String,
    pub cpu: CpuId,
    pub at_ns: u64,
    /// How long it took until then.
    pub took_ns: u64,
}

/// What is known of a thread's last activation when it ends.
#[derive(Default)]
pub(super) struct Last {
    pub(super) part: Option<Activation>,
    /// Since when it was not seen.
    pub(super) gap_from_ns: Option<u64>,
}

/// The last thread of a process ends within this time after its work.
const EXIT_NS: u64 = 1_000_000_000;

/// If more threads are known, those that have ended are forgotten: a watch may run for months.
const THREADS_MAX: usize = 16_384;
/// If more names are known, all are forgotten, and found again.
const NAMES_MAX: usize = 32_768;

/// Finds the name of a thread that holds a lock, from the process that waits, the thread, and whether another process may
/// hold the lock.
pub(super) type Owner<'f> = dyn Fn(u32, u32, bool) -> Option<String> + 'f;

/// Names of threads by process and thread.
pub(super) type Names = BTreeMap<(u32, u32), Command>;

#[derive(Default)]
pub(super) struct Builder {
    pub(super) tracks: BTreeMap<u32, Track>,
    pub(super) threads: BTreeMap<u32, Watched>,
    /// The last known names of threads that are watched or own a lock, by process and thread.
    pub(super) names: Names,
    /// Activations that were not seen completely.
    pub(super) incomplete: u64,
    /// Since when the parts of own work are recorded, and whether they include the time of page faults.
    pub(super) divided_from_ns: Option<u64>,
    pub(super) times_faults: bool,
    /// The parts of own work are to be recorded once a thread runs for longer than this without a break; and whether one did.
    pub(super) divide_above_ns: Option<u64>,
    pub(super) has_long_run: bool,
    /// Whether activations go from one mark to another.
    pub(super) marked: bool,
    /// Activations that have ended and were not handed on.
    pub(super) ended: Vec<Activation>,
    /// The same of those whose end was not seen.
    pub(super) cuts: Vec<Cut>,
    pub(super) rhythms: Rhythms,
    /// When the watch began; 0: not known.
    pub(super) begin_ns: u64,
}

impl Builder {
    /// Takes the next record. An activation that it ends comes to `ended` once it is known to be one.
    pub(super) fn take(&mut self, cpu: CpuId, raw: &RawStretch, owner: &Owner<'_>) {
        let last =
            if raw.kind == TaskEvent::Gone { self.last_part(cpu, raw, owner) } else { Last::default() };
        if let Some(part) = self.add(cpu, raw, owner) {
            self.rhythms.add(part, &mut self.ended);
        }
        if matches!(raw.kind, TaskEvent::New | TaskEvent::Gone) {
            let from_ns = self.rhythms.end(raw.thread, &last, &mut self.ended);
            let took_ns = from_ns.map_or(0, |from_ns| raw.end_ns.saturating_sub(from_ns));
            // The last thread of a process also gives its memory back.
            if raw.kind == TaskEvent::Gone && (raw.threads_left > 0 || took_ns > EXIT_NS) && took_ns > 0 {
                let command = raw.command.text();
                self.cuts.push(Cut { thread: raw.thread, command, cpu, at_ns: raw.end_ns, took_ns });
            }
        }
    }

    /// What the CPUs' counters counted in the time of the thread's record that comes next.
    pub(super) fn count(&mut self, thread: u32, counts: Counts) {
        if counts != Counts::default() {
            self.tracks.entry(thread).or_default().counts = counts;
        }
    }

    /// What a thread did from its last wake-up to its end.
    fn last_part(&mut self, cpu: CpuId, raw: &RawStretch, owner: &Owner<'_>) -> Last {
        if raw.run_ns > 0 && !self.marked {
            let stretch = RawStretch { kind: TaskEvent::Stretch, is_runnable: 1, ..raw.clone() };
            self.stretch(cpu, &stretch, owner);
        }
        let Some(track) = self.tracks.get_mut(&raw.thread) else { return Last::default() };
        let part = track.open.take().filter(|_| !track.never_slept);
        let gap = track.gap.take().or(part.as_ref().and_then(|part| part.gap));
        Last { part, gap_from_ns: gap.map(|(from_ns, _)| from_ns) }
    }

    /// Takes the gaps in what was seen of threads after which no activation came.
    pub(super) fn cut_gaps(&mut self, at_ns: u64) {
        for (thread, track) in &mut self.tracks {
            let (Some((from_ns, to_ns)), Some(known)) = (track.gap.take(), self.threads.get(thread)) else {
                continue;
            };
            let (command, cpu) = (known.command.clone(), track.cpu.unwrap_or_default());
            let took_ns = to_ns.min(at_ns).saturating_sub(from_ns);
            self.cuts.push(Cut { thread: *thread, command, cpu, at_ns, took_ns });
        }
    }

    /// Decides the activations that were held back for long, or all of them.
    pub(super) fn settle(&mut self, now_ns: u64, at_end: bool) {
        let threads = &self.threads;
        self.rhythms.settle(now_ns, at_end, &mut self.ended);
        self.rhythms.keep(|thread| threads.get(&thread).is_some_and(|it| !it.is_gone));
    }

    /// Takes the next record. Returns what the thread did from its wake-up to the sleep that ends it.
    pub(super) fn add(&mut self, cpu: CpuId, raw: &RawStretch, owner_of: &Owner<'_>) -> Option<Activation> {
        // Of samples the names have to be found first: see TaskWatch::poll().
        if matches!(
            raw.kind,
            TaskEvent::Frequency
                | TaskEvent::Sample
                | TaskEvent::Audited
                | TaskEvent::Trigger
                | TaskEvent::Stack
                | TaskEvent::Pass
        ) {
            return None;
        }
        if self.threads.len() > THREADS_MAX {
            self.threads.retain(|_, thread| !thread.is_gone);
        }
        self.note_name(raw);
        if matches!(raw.kind, TaskEvent::Begin | TaskEvent::End) {
            let come = Come { at_ns: raw.end_ns, is_begin: raw.kind == TaskEvent::Begin };
            self.tracks.entry(raw.thread).or_default().marks.push(come);
            return None;
        }
        if raw.kind == TaskEvent::Call {
            let owner = Some(raw.futex_owner & FUTEX_TID_MASK).filter(|thread| *thread > 0);
            let long = LongCall {
                call: calls::call(raw).map_or_else(|| "a system call".to_owned(), |it| it.name().to_owned()),
                from_ns: raw.ready_ns,
                to_ns: raw.end_ns,
                spins_for: owner.map(|thread| {
                    let name = owner_name(&self.names, owner_of, raw.process, thread, true);
                    let known = name.as_deref().map(Command::new);
                    self.names.extend(known.map(|known| ((raw.process, thread), known)));
                    (thread, name.unwrap_or_default())
                }),
            };
            self.tracks.entry(raw.thread).or_default().calls.push(long);
            return None;
        }
        let is_unknown = raw.kind == TaskEvent::New && !self.threads.contains_key(&raw.thread);
        let fresh = || Watched { first_ns: raw.end_ns, ..Watched::default() };
        let known = self.threads.entry(raw.thread).or_insert_with(fresh);
        if raw.kind == TaskEvent::New {
            *known = fresh();
        }
        *known = Watched {
            process: raw.process,
            command: raw.command.text(),
            priority: PRIORITY_TOP - raw.prio,
            is_gone: raw.kind == TaskEvent::Gone,
            first_ns: known.first_ns,
            last_ns: known.last_ns.max(raw.end_ns),
        };
        match raw.kind {
            TaskEvent::Stretch => self.stretch(cpu, raw, owner_of),
            // Another thread may have had the id before. A thread that ended in the middle of its work has no response.
            TaskEvent::New | TaskEvent::Gone => {
                self.tracks.remove(&raw.thread);
                // A thread that gets a watched priority again and again has one start.
                if is_unknown {
                    self.tracks.insert(raw.thread, Track { is_new: true, ..Track::default() });
                }
                None
            }
            TaskEvent::None
            | TaskEvent::Begin
            | TaskEvent::End
            | TaskEvent::Frequency
            | TaskEvent::Call
            | TaskEvent::Sample
            | TaskEvent::Audited
            | TaskEvent::Trigger
            | TaskEvent::Stack
            | TaskEvent::Pass => None,
        }
    }

    /// Keeps the name of a thread that ran. A new thread has that of its creator, and one that gets another name has its
    /// old one.
    pub(super) fn note_name(&mut self, raw: &RawStretch) {
        let names = &mut self.names;
        if names.len() > NAMES_MAX {
            names.clear();
        }
        let key = (raw.process, raw.thread);
        match raw.kind {
            TaskEvent::Stretch | TaskEvent::Call | TaskEvent::Begin | TaskEvent::End => {
                names.insert(key, raw.command);
            }
            TaskEvent::New => {
                names.remove(&key);
            }
            TaskEvent::Gone if raw.run_ns == 0 => {
                names.remove(&key);
            }
            _ => {}
        }
    }

    /// Whether there was a record of what a thread did.
    pub(super) fn is_seen(&self, thread: u32) -> bool {
        self.tracks.get(&thread).is_some_and(|track| track.cpu.is_some())
    }

    /// It was runnable at the end, and has no record: it waited for a CPU, or ran, all the time. Returns this as its activation
    /// if it was running when it became known; its wake-up may have been missed otherwise.
    pub(super) fn never_seen(&mut self, thread: u32, cpu: CpuId, at_ns: u64) -> Option<Activation> {
        let known = self.threads.get(&thread).cloned().unwrap_or_default();
        if self.marked || self.is_seen(thread) {
            return None;
        }
        if known.first_ns == 0 {
            self.not_seen(thread, self.begin_ns, u64::MAX);
            return None;
        }
        let raw =
            RawStretch { kind: TaskEvent::Stretch, end_ns: at_ns, is_runnable: 1, ..raw(&known, thread) };
        let track = self.tracks.entry(thread).or_default();
        track.begin_at_first_record(cpu, &raw, known.first_ns);
        let open = track.open.take()?;
        Some(Activation { is_unended: true, ..open })
    }

    /// What a thread did before its first record is not known.
    pub(super) fn not_seen(&mut self, thread: u32, from_ns: u64, to_ns: u64) {
        self.tracks.entry(thread).or_default().gap = Some((from_ns, to_ns));
    }

    /// Gives up incomplete activations, since records were lost.
    pub(super) fn forget_open(&mut self) {
        for track in self.tracks.values_mut() {
            self.incomplete += track.give_up();
            track.marks.clear();
        }
        self.rhythms.forget_open();
        self.incomplete += std::mem::take(&mut self.rhythms.incomplete);
    }

    pub(super) fn stretch(&mut self, cpu: CpuId, raw: &RawStretch, owner: &Owner<'_>) -> Option<Activation> {
        let since_ns = self.begin_ns;
        let track = self.tracks.entry(raw.thread).or_default();
        // It was waiting for a CPU when the watch began.
        let is_first = track.cpu.is_none() && !track.is_new && !self.marked && self.begin_ns > 0;
        if is_first && raw.began == Began::Unknown && raw.run_ns > since_ns {
            track.gap = Some((since_ns, u64::MAX));
        }
        if raw.lost > 0 {
            self.incomplete += track.give_up();
        }
        let left = track.left.take();
        let is_open = track.open.is_some();
        let is_first_seen = track.cpu.is_none() && !self.marked;
        // Marks are distinguished by when it got the CPU.
        let began = if self.marked && raw.run_ns == 0 { Began::Unknown } else { raw.began };
        match (began, left) {
            // With marks, a wake-up begins no activation.
            (Began::Woken, left)
                if !self.marked || (is_open && left.as_ref().is_some_and(Left::is_asleep)) =>
            {
                track.wake(cpu, raw, left);
            }
            (Began::Preempted, Some(left)) if left.wait.is_none() => track.go_on(cpu, raw, left),
            // The switch to it was not shown.
            (Began::Unknown, Some(Left { at_ns, wait: None, cpu, .. }))
                if is_open && !self.marked && raw.run_ns == 0 =>
            {
                if let Some(open) = &mut track.open {
                    open.stages.push(Stage { from_ns: at_ns, to_ns: raw.end_ns, cpu, what: Doing::Unseen });
                }
            }
            // The past is not known; if it slept, neither its wake-up nor the switch to it was shown.
            (_, left) => {
                let was_asleep = !self.marked && left.as_ref().is_some_and(Left::is_asleep);
                let never_slept = std::mem::take(&mut track.never_slept);
                let open = track.open.take().filter(|_| !never_slept);
                if open.is_some() || was_asleep {
                    self.incomplete += 1;
                    track.miss(open, left);
                }
                if is_first_seen && raw.is_runnable != 0 {
                    let new_ns = self.threads.get(&raw.thread).map_or(0, |known| known.first_ns);
                    track.begin_at_first_record(cpu, raw, new_ns);
                }
            }
        }
        if let Some((_, to_ns)) = &mut track.gap {
            *to_ns = raw.end_ns;
        }
        let names = &self.names;
        let known =
            |process: u32, thread: u32, is_shared: bool| owner_name(names, owner, process, thread, is_shared);
        let wait = (raw.is_runnable == 0).then(|| wait_of(raw, &known));
        if let Some(Wait::Lock { owner: Some((thread, name)), .. }) = &wait {
            self.names.insert((raw.process, *thread), Command::new(name));
        }
        if wait.is_some() && std::mem::take(&mut track.never_slept) {
            track.open = None;
        }
        if self.marked {
            self.incomplete += track.come_by(cpu, raw, &mut self.ended);
        } else if let Some(open) = track.open.as_mut().filter(|_| raw.run_ns > 0) {
            open.stages.push(Stage { from_ns: raw.run_ns, to_ns: raw.end_ns, cpu, what: Doing::Running });
        }
        let counts = std::mem::take(&mut track.counts);
        if let Some(open) = &mut track.open {
            open.faults += u64::from(raw.faults);
            if raw.faults > 0 && !self.times_faults {
                open.fault_ns = cost_of_page_fault().map(|cost| cost.0);
            }
            open.counts = open.counts.plus(counts);
            open.calls.append(&mut track.calls);
            open.samples.append(&mut track.samples);
            let is_divided = self.divided_from_ns.is_some_and(|from_ns| open.due_ns >= from_ns);
            open.work = is_divided.then(|| {
                let before = open.work.unwrap_or_default();
                let faults_ns = before.faults_ns.unwrap_or_default() + raw.faults_took_ns;
                Divided {
                    calls_ns: before.calls_ns + raw.calls_took_ns,
                    faults_ns: self.times_faults.then_some(faults_ns),
                }
            });
            open.migrations += u64::from(track.cpu.is_some_and(|before| before != cpu));
        }
        track.calls.clear();
        track.samples.clear();
        let ran_ns = raw.end_ns.saturating_sub(raw.run_ns);
        self.has_long_run |= raw.run_ns > 0 && self.divide_above_ns.is_some_and(|above_ns| ran_ns > above_ns);
        track.cpu = Some(cpu);
        track.left = Some(Left {
            at_ns: raw.end_ns,
            cpu,
            wait: wait.clone(),
            site: calls::site(raw),
            waits_for: if raw.futex == 0 { 0 } else { raw.futex_value },
            next: thread(raw.next, raw.next_prio, &raw.next_command),
            budget: budget(raw.budget),
        });
        if track.open.as_ref().is_some_and(|open| open.stages.len() > STAGES_MAX) {
            self.incomplete += 1;
            track.never_slept = false;
            let open = track.open.take();
            track.miss(open, None);
        }
        match wait {
            Some(wait) if !wait.is_inside() && !self.marked => {
                let mut ended = track.open.take()?;
                (ended.slept, ended.slept_at, ended.slept_word) = (wait, calls::site(raw), raw.futex);
                Some(ended)
            }
            _ => None,
        }
    }
}

/// The name of a thread that may have ended since: then the last one that is known.
fn owner_name(
    names: &Names,
    owner: &Owner<'_>,
    process: u32,
    thread: u32,
    is_shared: bool,
) -> Option<String> {
    owner(process, thread, is_shared).or_else(|| names.get(&(process, thread)).map(Command::text))
}

impl Track {
    /// Records were lost: how many activations are given up with them.
    fn give_up(&mut self) -> u64 {
        let never_slept = std::mem::take(&mut self.never_slept);
        let (open, left) = (self.open.take().filter(|_| !never_slept), self.left.take());
        let is_open = open.is_some();
        self.miss(open, left);
        u64::from(is_open)
    }

    /// What it did since then is not known.
    fn miss(&mut self, open: Option<Activation>, left: Option<Left>) {
        let from_ns = open.map(|open| open.due_ns).or(left.map(|left| left.at_ns));
        let from_ns = self.gap.map(|(from_ns, _)| from_ns).or(from_ns);
        self.gap = from_ns.map(|from_ns| (from_ns, u64::MAX));
    }

    /// It has the CPU at its first record, and how its work began is not known. A thread without a switch to it was running when
    /// it became known at `new_ns`.
    fn begin_at_first_record(&mut self, cpu: CpuId, raw: &RawStretch, new_ns: u64) {
        let from_ns = if raw.run_ns > 0 { raw.run_ns } else { new_ns };
        if from_ns == 0 || from_ns >= raw.end_ns {
            return;
        }
        let unseen = Stage { from_ns, to_ns: raw.end_ns, cpu, what: Doing::Unseen };
        self.never_slept = true;
        self.open = Some(Activation {
            thread: thread(raw.thread, raw.prio, &raw.command),
            process: raw.process,
            due_ns: from_ns,
            woken_ns: from_ns,
            stages: if raw.run_ns > 0 { Vec::new() } else { vec![unseen] },
            counts: Counts::NOTHING,
            ..Activation::default()
        });
    }

    /// It was woken: its work begins, or goes on after a wait in its middle.
    fn wake(&mut self, cpu: CpuId, raw: &RawStretch, left: Option<Left>) {
        self.never_slept = false;
        // The other thread may have had another priority while the task waited, and have dropped it at the end.
        let prio =
            if raw.waker == raw.previous { raw.previous_prio.min(raw.waker_prio) } else { raw.previous_prio };
        let previous = thread(raw.previous, prio, &raw.previous_command);
        let what = Doing::Waking { previous, budget: budget(raw.budget_before) };
        let waker = waker(raw);
        match (&mut self.open, left) {
            (Some(open), Some(Left { at_ns, cpu: before, wait: Some(wait), .. })) => {
                let woken_ns = raw.ready_ns.max(at_ns);
                open.stages.push(Stage {
                    from_ns: at_ns,
                    to_ns: woken_ns,
                    cpu: before,
                    what: Doing::Blocked { wait, waker },
                });
                open.stages
                    .extend(until_it_ran(Stage { from_ns: woken_ns, to_ns: raw.run_ns, cpu, what }, raw));
            }
            // The start of this work was not seen: the thread is new, has a new name, or records were lost.
            (None, Some(Left { wait: Some(wait), .. })) if wait.is_inside() => {}
            (_, left) => {
                let is_timer = raw.waker_kind == RawWaker::Timer && raw.expires_ns > 0;
                let due_ns = if is_timer { raw.expires_ns.min(raw.ready_ns) } else { raw.ready_ns };
                // A late task may have armed its timer in the past; its work until then is another activation.
                let slept_ns = left.as_ref().map_or(0, |left| left.at_ns);
                let due_ns = due_ns.max(slept_ns.min(raw.ready_ns));
                // glibc's pthread_join waits while a word has the id of the thread, and the kernel wakes it when that ends.
                let joins = left.as_ref().is_some_and(|it| it.waits_for != 0 && it.waits_for == raw.waker);
                let is_start = std::mem::take(&mut self.is_new);
                self.open = Some(Activation {
                    joins,
                    is_start,
                    thread: thread(raw.thread, raw.prio, &raw.command),
                    process: raw.process,
                    due_ns,
                    woken_ns: raw.ready_ns,
                    waker,
                    gap: gap_before(&mut self.gap, due_ns),
                    woke_from: left
                        .filter(|left| left.wait.as_ref().is_some_and(|it| !it.is_inside()))
                        .map(|left| left.site),
                    stages: until_it_ran(Stage { from_ns: due_ns, to_ns: raw.run_ns, cpu, what }, raw),
                    counts: Counts::NOTHING,
                    ..Activation::default()
                });
            }
        }
    }

    /// It was preempted and runs again, perhaps on another CPU.
    fn go_on(&mut self, cpu: CpuId, raw: &RawStretch, left: Left) {
        let Some(open) = &mut self.open else { return };
        let last = thread(raw.previous, raw.previous_prio, &raw.previous_command);
        let is_last = left.cpu == cpu && is_longer_there(&left, &last, raw);
        let by = if is_last { last } else { left.next };
        let what = Doing::Preempted { by, budget: left.budget };
        let moved_ns = Some(raw.moved_ns).filter(|moved_ns| (left.at_ns..raw.run_ns).contains(moved_ns));
        let until_ns = moved_ns.filter(|_| left.cpu != cpu).unwrap_or(if left.cpu == cpu {
            raw.run_ns
        } else {
            left.at_ns
        });
        open.stages.push(Stage { from_ns: left.at_ns, to_ns: until_ns, cpu: left.cpu, what });
        if until_ns < raw.run_ns {
            let by = thread(raw.previous, raw.previous_prio, &raw.previous_command);
            let what = Doing::Preempted { by, budget: left.budget };
            open.stages.push(Stage { from_ns: until_ns, to_ns: raw.run_ns, cpu, what });
        }
    }
}

/// Whether the thread that had the CPU last had more of an ordinary thread's wait than the first one: a real-time thread
/// leaves soon, and other ordinary threads follow it.
fn is_longer_there(left: &Left, last: &Thread, raw: &RawStretch) -> bool {
    let is_ordinary = |priority: i32| priority < 0;
    let own = thread(raw.thread, raw.prio, &raw.command);
    last.pid != 0
        && last.pid != left.next.pid
        && is_ordinary(own.priority)
        && is_ordinary(last.priority)
        && !is_ordinary(left.next.priority)
}

/// Takes the gap before an activation.
pub(super) fn gap_before(gap: &mut Option<(u64, u64)>, due_ns: u64) -> Option<(u64, u64)> {
    gap.take().map(|(from_ns, to_ns)| (from_ns, to_ns.min(due_ns).max(from_ns)))
}

/// The time from a wake-up to the run; where the switch to the task was not shown, to its end.
fn until_it_ran(stage: Stage, raw: &RawStretch) -> Vec<Stage> {
    if raw.run_ns > 0 {
        return waits(Stage { to_ns: raw.run_ns.max(stage.from_ns), ..stage }, raw);
    }
    let woken_ns = raw.ready_ns.max(stage.from_ns);
    let unseen = Stage { from_ns: woken_ns, to_ns: raw.end_ns, cpu: stage.cpu, what: Doing::Unseen };
    let late = Stage { to_ns: woken_ns, ..stage };
    if late.length_ns() > 0 { vec![late, unseen] } else { vec![unseen] }
}

/// The wait of a woken task for its CPU, or for two CPUs if it was migrated before it ran. The record does not say who had
/// the first one.
fn waits(stage: Stage, raw: &RawStretch) -> Vec<Stage> {
    let from = raw.moved_from.checked_sub(1).map(|cpu| CpuId(cpu.into())).filter(|from| *from != stage.cpu);
    let Some(from) = from.filter(|_| (raw.ready_ns..stage.to_ns).contains(&raw.moved_ns)) else {
        return vec![stage];
    };
    let Doing::Waking { budget, .. } = stage.what else { return vec![stage] };
    let before = Doing::Waking { previous: Thread::default(), budget };
    vec![
        Stage { to_ns: raw.moved_ns, cpu: from, what: before, ..stage },
        Stage { from_ns: raw.moved_ns, ..stage },
    ]
}

pub(super) fn thread(pid: u32, prio: i32, command: &Command) -> Thread {
    let command = if pid == 0 { "swapper".to_owned() } else { command.text() };
    Thread { pid, priority: PRIORITY_TOP - prio, command }
}

fn waker(raw: &RawStretch) -> Waker {
    match raw.waker_kind {
        RawWaker::Timer => Waker::Timer,
        RawWaker::Irq | RawWaker::Vector | RawWaker::Softirq => Waker::Interrupt,
        RawWaker::Thread if raw.waker == 0 => Waker::Interrupt,
        RawWaker::Thread | RawWaker::Sender => Waker::Thread(raw.waker, raw.waker_command.text()),
    }
}

fn budget(raw: u8) -> Budget {
    match raw {
        1 => Budget::Quota,
        2 => Budget::Runtime,
        3 => Budget::GroupRuntime,
        _ => Budget::Left,
    }
}

/// An empty record of a thread.
pub(super) fn raw(known: &Watched, thread: u32) -> RawStretch {
    let nothing = [0; size_of::<RawStretch>()];
    let Ok(nothing) = RawStretch::try_read_from_bytes(&nothing) else { unreachable!("zeros are a record") };
    let prio = if known.command.is_empty() { PRIORITY_ORDINARY } else { PRIORITY_TOP - known.priority };
    RawStretch {
        thread,
        process: known.process,
        prio,
        state: INTERRUPTIBLE,
        syscall: -1,
        command: Command::new(&known.command),
        ..nothing
    }
}

/// What a task fell asleep for.
pub(super) fn wait_of(raw: &RawStretch, owner: &Owner<'_>) -> Wait {
    let call = u32::try_from(raw.syscall)
        .ok()
        .and_then(|number| Sysno::new(number as usize))
        .map(|it| it.name().to_owned());
    if raw.state & STOPPED != 0 {
        return Wait::Unknown;
    }
    let robust = Some(raw.futex_value).filter(|value| value & FUTEX_WAITERS != 0);
    let is_contended = raw.futex_value == FUTEX_CONTENDED
        || robust.is_some_and(|value| value & FUTEX_TID_MASK == raw.futex_owner);
    let is_shared = raw.futex_command & FUTEX_PRIVATE == 0;
    let found = |thread: u32| {
        let thread = Some(thread).filter(|it| *it > 0)?;
        Some((thread, owner(raw.process, thread, is_shared)?))
    };
    let lock =
        |owner, inherits_priority| Wait::Lock { address: raw.futex, name: None, owner, inherits_priority };
    match raw.futex_command & !FUTEX_PRIVATE {
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 if raw.futex > 0 => {
            return lock(found(raw.futex_word & FUTEX_TID_MASK), true);
        }
        FUTEX_WAIT | FUTEX_WAIT_BITSET if raw.futex > 0 && is_contended => {
            return lock(found(raw.futex_owner), false);
        }
        _ => {}
    }
    let is_deep = raw.state & (UNINTERRUPTIBLE | RT_LOCK) != 0 && raw.state & NO_LOAD == 0;
    match raw.syscall {
        SYSCALL_NONE if raw.fault_ns > 0 => Wait::Page,
        _ if is_deep => Wait::Kernel(call),
        _ => match call {
            Some(call) if !calls::may_wait_for_work(&call) => {
                Wait::Inside { call, object: calls::object(raw) }
            }
            call => Wait::Work(call),
        },
    }
}

#[cfg(test)]
mod tests;
