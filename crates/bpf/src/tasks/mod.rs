//! Watched tasks of the user: which ones they are, what each of their activations consists of, and why one took long.
//!
//! The programs in the kernel (`bpf/tasks.h`) write a record to a ring whenever a watched task leaves a CPU. The rings are
//! read here twenty times a second. The rings of [`Causes`] show what else the CPUs did.

mod audit;
mod build;
mod calls;
mod choose;
mod demangle;
mod frequencies;
mod losses;
mod marked;
mod named;
mod own;
mod places;
mod programs;
mod rhythm;
mod rings;
mod sampler;
mod suspension;
mod triggers;
mod unended;
mod unwind;

pub use crate::counters::CounterEvents;
pub use build::{Cut, Watched};
pub use choose::{Chosen, Present, TaskTarget, present, unit_group};
pub use losses::TaskLosses;
pub use own::OwnTaskWatch;
pub use places::place_of;
pub use rhythm::{Activations, Doubt};
pub use triggers::{Passed, Triggered, check_chain_mark, check_place};

use crate::causes::Causes;
use crate::counters::Counters;
use crate::error::BpfError;
use crate::events::{Event, event};
use crate::grace::check_grace_periods;
use crate::layout::tasks::{
    RawAudited, RawMarkText, RawPlace, RawSlot, RawTaskLosses, SLOT_INHERITS, SLOT_WATCHED, TASK_SLOTS,
    TaskEvent,
};
use crate::object::{check_namespaces, possible_cpus};
use crate::settings::{HistogramsConfig, TaskFilter};
use crate::watching::WatchingTasks;
use audit::Audit;
use build::Builder;
use frequencies::Frequencies;
use named::Named;
use programs::Programs;
use rhythm::Rhythms;
use rings::StretchRings;
use sampler::Sampler;
use std::collections::{BTreeMap, BTreeSet};
use suspension::{Clocks, Suspension};
use unwind::StackPieces;
use whylate_core::plan::Mark;
pub use whylate_core::recording::Thread;
pub use whylate_core::recording::{Activation, Budget, Doing, Object, OwnSample, Site, Stage, Wait, Waker};
use whylate_core::recording::{Activity, Recording};
use whylate_core::result::AuditRecord;
use whylate_core::{CpuId, CpuSet};
use whylate_host::{HostRoot, hotplug};
use whylate_sys::clock;
use zerocopy::transmute;

/// Records that the ring of a CPU holds.
const RING_STRETCHES: u32 = 4_096;
/// Without these facilities fewer tasks are found, or less is known of them.
const EVENTS: [(&str, Event); 6] = [
    ("tasks that start later", event("task_forked", "sched_process_fork")),
    ("tasks that change their name", event("task_renamed", "task_rename")),
    ("ends of tasks", event("task_ended", "sched_process_exit")),
    ("page faults of tasks", event("task_fault", "page_fault_user")),
    ("moves of waiting tasks", event("task_moved", "sched_migrate_task")),
    ("clock frequencies", event("frequency", "cpu_frequency")),
];

/// The events that show how long a thread is in system calls and in page faults. Each system call of every thread takes
/// longer while they are attached.
const CALLS: [Event; 2] = [event("task_exits", "sys_exit"), event("task_enters", "sys_enter")];
/// Own work that takes longer has parts, where nothing else is said.
const DIVIDE_ABOVE_NS: u64 = 1_000_000;
/// The events of an audit: they count system calls.
const AUDIT: [Event; 2] = [event("audit_exits", "sys_exit"), event("audit_enters", "sys_enter")];
const FAULT_OVER: Event = event("task_fault_over", "handle_mm_fault");

/// Replaces the page fault event on arm64, which has none.
const FAULT_ENTERED: (&str, Event) = (EVENTS[3].0, event("task_fault_entered", "do_mem_abort"));

/// The programs at marks in files: for the start, for the end.
const PLACE_MARKS: [&str; 2] = ["mark_begin", "mark_end"];
/// The program that sees texts for trace_marker.
const WRITTEN_MARK: Event = event("mark_written", "sys_enter");

type PlaceBytes = [u8; size_of::<RawPlace>()];
type MarkTextBytes = [u8; size_of::<RawMarkText>()];

/// The watch, running. It ends when this is dropped.
pub struct TaskWatch {
    host: HostRoot,
    target: TaskTarget,
    cpus: CpuSet,
    causes: Causes,
    rings: StretchRings,
    builder: Builder,
    named: Named,
    frequencies: Frequencies,
    /// The threads that this side gave a slot.
    slots: BTreeSet<u32>,
    has_looked: bool,
    collisions: u64,
    lost_seen: u64,
    missing: Vec<String>,
    /// The CPUs' counters, or why they are not read.
    counters: Result<Counters, String>,
    suspension: Suspension,
    /// `None` until the own work of a thread took long, or where the kernel takes no samples.
    sampler: Option<Sampler>,
    pieces: StackPieces,
    is_guest: bool,
    programs: Programs,
    audit: Option<Audit>,
    triggered: Vec<Triggered>,
    /// How many triggers and ends of chains have a rule, and whether a text is one.
    rules: u32,
    reads_texts: bool,
    passed: Vec<Passed>,
    reads_passes: bool,
    /// When the watch of the threads that were there at the end stopped.
    left_alone: BTreeMap<u32, u64>,
    /// Those of them that were runnable then and had no record, with their processes and that moment.
    runnable_unseen: Vec<(u32, u32, u64)>,
}

impl TaskWatch {
    /// Begins to watch tasks wherever they run among `cpus`.
    pub fn start(host: &HostRoot, cpus: &CpuSet, target: &TaskTarget) -> Result<Self, BpfError> {
        Self::start_keeping(host, cpus, target, 0, false, CounterEvents::default())
    }

    /// The same, with room for what the CPUs do in that time; with `every_switch` also where no watched task is concerned. `counted`
    /// are the events that are counted while watched tasks run.
    pub fn start_keeping(
        host: &HostRoot,
        cpus: &CpuSet,
        target: &TaskTarget,
        keep_ns: u64,
        every_switch: bool,
        counted: CounterEvents,
    ) -> Result<Self, BpfError> {
        check_namespaces().and_then(|()| check_grace_periods(host))?;
        let mut config = HistogramsConfig::new(cpus.clone());
        config.kinds.clear();
        let mut priorities = false;
        match target {
            TaskTarget::Name(name) => config.task = Some(TaskFilter::Command(name.clone())),
            TaskTarget::Priorities(least, most) => {
                (config.priority_min, config.priority_max, priorities) = (*least, *most, true);
            }
            TaskTarget::Process(_)
            | TaskTarget::Group(_)
            | TaskTarget::Children
            | TaskTarget::ChildrenNamed(_) => {}
        }
        let counters = Counters::find(host, cpus, counted);
        let tasks = WatchingTasks {
            ring_stretches: RING_STRETCHES,
            priorities,
            keep_ns,
            every_switch,
            counters: counters.as_ref().map_or(0, Counters::kinds),
            counter_cpus: possible_cpus()? as u32,
        };
        let mut causes = Causes::start_watching(host, cpus, &config, Some(tasks))?;
        let mut missing: Vec<String> = causes
            .facilities()
            .iter()
            .filter_map(|it| Some(format!("{}: {}", it.name, it.missing.as_ref()?)))
            .collect();
        for (name, event) in EVENTS {
            let mut reason = causes.attach(&[event])?;
            if reason.is_some() && name == FAULT_ENTERED.0 {
                reason = causes.attach_instead(reason, FAULT_ENTERED.1)?;
            }
            missing.extend(reason.map(|reason| format!("{name}: {reason}")));
        }
        let object = causes.histograms().object();
        let rings = StretchRings::map(object, cpus.len(), RING_STRETCHES, counters.is_ok())?;
        let mut watch = Self {
            host: host.clone(),
            target: target.clone(),
            cpus: cpus.clone(),
            causes,
            rings,
            builder: Builder { begin_ns: clock::now().0, ..Builder::default() },
            named: Named::default(),
            frequencies: Frequencies::read(host, cpus, clock::now().0),
            slots: BTreeSet::new(),
            has_looked: false,
            collisions: 0,
            lost_seen: 0,
            missing,
            counters,
            suspension: Suspension::new(Clocks::read()),
            sampler: None,
            pieces: StackPieces::default(),
            is_guest: false,
            programs: Programs::default(),
            audit: None,
            triggered: Vec::new(),
            rules: 0,
            reads_texts: false,
            passed: Vec::new(),
            reads_passes: false,
            left_alone: BTreeMap::new(),
            runnable_unseen: Vec::new(),
        };
        watch.look_for_tasks()?;
        Ok(watch)
    }

    /// Counts activations from one mark to another from now on, instead of from a wake-up to a sleep.
    ///
    /// # Errors
    /// When a mark is not there, or the kernel allows none.
    pub fn mark(&mut self, marks: &[Mark; 2]) -> Result<(), BpfError> {
        let object = self.causes.histograms().object_mut();
        let mut are_written = false;
        for ((which, program), mark) in (0..).zip(PLACE_MARKS).zip(marks) {
            if let Mark::Marker { text } = mark {
                let bytes: MarkTextBytes = transmute!(RawMarkText::new(text));
                object.set("mark_texts", which, &bytes)?;
                are_written = true;
            } else if let Some((file, offset)) = place_of(mark).map_err(BpfError::NoMark)? {
                object.attach_place(program, &file, offset, None)?;
            }
        }
        if let Some(reason) = are_written.then(|| object.attach(WRITTEN_MARK)).transpose()?.flatten() {
            let reason =
                format!("{reason}; mark a function (FILE:FUNCTION) instead of a text of trace_marker");
            return Err(BpfError::program(WRITTEN_MARK.tracepoint, &reason));
        }
        self.builder.marked = true;
        Ok(())
    }

    /// Sets how activations are found without marks. Call it before the first [`Self::poll`].
    pub fn decide_by(&mut self, by: Activations) {
        self.builder.rhythms = Rhythms::new(by);
    }

    /// The sleeps since the last call that may have been in the middle of the work, by thread.
    pub fn doubts(&mut self) -> Vec<(u32, Doubt)> {
        self.builder.rhythms.doubts()
    }

    /// The activations since the last call whose end was not seen.
    pub fn cuts(&mut self) -> Vec<Cut> {
        std::mem::take(&mut self.builder.cuts)
    }

    /// Records what own work consists of once a thread has run for longer than this. Call it before the first [`Self::poll`].
    pub fn divide_above(&mut self, above_ns: u64) {
        self.builder.divide_above_ns = Some(above_ns);
    }

    /// Takes fewer samples: interrupts take long in a virtual machine. Call it before the first [`Self::poll`].
    pub fn spare_guest(&mut self) {
        self.is_guest = true;
    }

    /// Records from now on what the own work of activations consists of: system calls, page faults and the rest, and what the CPUs'
    /// counters count.
    ///
    /// # Errors
    /// When the kernel takes no programs any more.
    pub fn divide_own_work(&mut self) -> Result<(), BpfError> {
        if self.builder.divided_from_ns.is_some() {
            return Ok(());
        }
        self.time_faults()?;
        self.count();
        // The programs of an audit record the same.
        let reason = if self.audit.is_some() { None } else { self.causes.attach(&CALLS)? };
        self.builder.divided_from_ns = Some(if reason.is_none() { clock::now().0 } else { u64::MAX });
        self.missing.extend(reason.map(|reason| format!("times of system calls: {reason}")));
        // The only CPU would have to switch its own clock on, with a thread that wakes a thousand times a second.
        if hotplug::online(&self.host).len() < 2 {
            self.missing.push("functions of programs: samples need a second CPU".to_owned());
            return Ok(());
        }
        let limit_ns = self.builder.divide_above_ns.unwrap_or(DIVIDE_ABOVE_NS);
        let object = self.causes.histograms().object_mut();
        match Sampler::start(object, &self.cpus, limit_ns, self.is_guest) {
            Ok(sampler) => self.sampler = Some(sampler),
            Err(error) => self.missing.push(format!("functions of programs: {error}")),
        }
        Ok(())
    }

    /// Whether the own work of some activation was too long.
    pub fn divides_own_work(&self) -> bool {
        self.builder.divided_from_ns.is_some()
    }

    /// Starts the counters of the CPUs that are online, if they are not started.
    fn count(&mut self) {
        let object = self.causes.histograms().object_mut();
        let failed = self.counters.as_mut().ok().and_then(|it| it.install(&self.host, object).err());
        if let Some(error) = failed {
            self.counters = Err(error.to_string());
        }
    }

    fn time_faults(&mut self) -> Result<(), BpfError> {
        if !self.builder.times_faults {
            self.builder.times_faults = self.causes.attach(&[FAULT_OVER])?.is_none();
        }
        Ok(())
    }

    /// Looks from now on for what real-time threads should not do. Call it before the first [`Self::poll`].
    ///
    /// # Errors
    /// When the kernel takes no programs any more.
    pub fn audit(&mut self) -> Result<(), BpfError> {
        audit::choose_calls(self.causes.histograms().object_mut())?;
        self.time_faults()?;
        let reason = self.causes.attach(&AUDIT)?;
        self.missing.extend(reason.map(|reason| format!("system calls, for the audit: {reason}")));
        self.audit = Some(Audit::new(self.slots.clone(), self.builder.times_faults));
        Ok(())
    }

    /// What an audit found since the last call, by thread.
    pub fn audited(&mut self) -> Vec<(u32, AuditRecord)> {
        let object = self.causes.histograms().object();
        self.audit.as_mut().map(|audit| audit.drain(&self.host, object)).unwrap_or_default()
    }

    /// What is not recorded here, with the reason.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Why instructions and cycles are not counted, or what of it; `None` if all is.
    pub fn missing_counters(&self) -> Option<String> {
        self.counters.as_ref().map_or_else(|reason| Some(reason.clone()), Counters::missing)
    }

    /// Looks for new tasks if the kernel does not report all that come and go, and for CPUs that came online.
    ///
    /// # Errors
    /// When the kernel does not take the change.
    pub fn look_for_tasks(&mut self) -> Result<(), BpfError> {
        if self.divides_own_work() {
            self.count();
        }
        // For all other targets the programs see which tasks come and go.
        let is_reported = !matches!(self.target, TaskTarget::Group(_) | TaskTarget::Process(_));
        if std::mem::replace(&mut self.has_looked, true) && is_reported {
            return Ok(());
        }
        // Without a slot, a thread that waits for its CPU is seen only at its next wake-up.
        let chosen = choose::chosen(&self.host, &self.target);
        let left: Vec<u32> = match self.target {
            TaskTarget::Group(_) => {
                self.slots.iter().copied().filter(|it| !chosen.iter().any(|one| one.thread == *it)).collect()
            }
            _ => Vec::new(),
        };
        for thread in left {
            self.slots.remove(&thread);
            self.set_slot(thread, 0)?;
        }
        let is_alone = matches!(self.target, TaskTarget::Name(_) | TaskTarget::Priorities(..));
        let inherits = if is_alone { 0 } else { SLOT_INHERITS };
        for one in chosen {
            if !self.slots.contains(&one.thread) && self.set_slot(one.thread, SLOT_WATCHED | inherits)? {
                self.slots.insert(one.thread);
                self.builder.threads.entry(one.thread).or_insert(one.known);
            }
        }
        Ok(())
    }

    /// Starts or stops watching what this thread starts.
    ///
    /// # Errors
    /// When the kernel does not take the change.
    pub fn follow_children(&mut self, thread: u32, follow: bool) -> Result<(), BpfError> {
        self.set_slot(thread, if follow { SLOT_INHERITS } else { 0 }).map(drop)
    }

    /// Gives a thread its slot, or frees the slot if there are no flags; `false` if another thread has it.
    fn set_slot(&mut self, thread: u32, flags: u32) -> Result<bool, BpfError> {
        let place = thread % TASK_SLOTS;
        let object = self.causes.histograms().object_mut();
        let known: RawPlace = transmute!(object.get::<PlaceBytes>("task_places", place)?);
        if known.thread != thread && known.thread != 0 {
            self.collisions += u64::from(flags != 0);
            return Ok(false);
        }
        if flags != 0 && known.thread == thread && known.flags == flags {
            return Ok(true);
        }
        if flags != 0 {
            object.set("task_slots", place, &[0u8; size_of::<RawSlot>()])?;
        }
        let new = if flags == 0 { RawPlace::default() } else { RawPlace { thread, flags } };
        let bytes: PlaceBytes = transmute!(new);
        object.set("task_places", place, &bytes)?;
        Ok(true)
    }

    /// The activations that ended since the last call, in that order. Call it twenty times a second.
    pub fn poll(&mut self) -> Result<Vec<Activation>, BpfError> {
        let clocks = Clocks::read();
        let now_ns = clock::now().0;
        if self.suspension.look(clocks, now_ns) {
            self.builder.forget_open();
        }
        for (ring, cpu) in self.cpus.clone().iter().enumerate() {
            let written = self.written(cpu)?;
            self.rings.read(ring, cpu, written, now_ns);
            let written = self.written(cpu)?;
            self.rings.confirm(cpu, written);
        }
        if self.rings.lost() > self.lost_seen {
            self.lost_seen = self.rings.lost();
            self.builder.forget_open();
        }
        let host = &self.host;
        let owner = |process, thread, is_shared| choose::owner(host, process, thread, is_shared);
        let taken = self.rings.take(now_ns);
        for (cpu, raw, counts) in &taken {
            self.frequencies.take(host, raw);
            let (before, is_chosen) = self.named.choose(&self.target, raw);
            if let Some(before) = before {
                self.builder.take(*cpu, &before, &owner);
            }
            if !is_chosen {
                self.builder.note_name(raw);
                continue;
            }
            if raw.kind == TaskEvent::Stretch {
                self.builder.count(raw.thread, counts.counts());
            }
            self.builder.take(*cpu, raw, &owner);
            self.triggered.extend(Triggered::of(raw));
            self.passed.extend(Passed::of(*cpu, raw));
            if let Some(audit) = &mut self.audit {
                let programs = &mut self.programs;
                let names = |it: &RawAudited| programs.stack(host, raw.process, &it.stack());
                audit.take(host, self.causes.histograms().object_mut(), raw, names);
            }
            if let Some(piece) = raw.piece() {
                self.pieces.add(*cpu, raw.thread, &piece);
            }
            if let Some(sample) = raw.sample() {
                let copy = self.pieces.take(*cpu, raw.thread);
                let (stack, is_whole) =
                    self.programs.sampled(host, raw.process, sample.stack(), copy.as_ref());
                let (at_ns, is_in_kernel) = (raw.end_ns, sample.is_in_kernel());
                let track = self.builder.tracks.entry(raw.thread).or_default();
                track.samples.push(OwnSample { at_ns, is_in_kernel, stack, is_whole });
            }
        }
        if std::mem::take(&mut self.builder.has_long_run) {
            self.divide_own_work()?;
        }
        self.builder.settle(now_ns, !self.left_alone.is_empty());
        Ok(self.suspension.whole(std::mem::take(&mut self.builder.ended)))
    }

    /// How often the machine was suspended or its time of day set: a period cannot begin before that.
    pub fn clock_jumps(&self) -> u64 {
        self.suspension.jumps
    }

    fn written(&mut self, cpu: CpuId) -> Result<u64, BpfError> {
        Ok(self.causes.histograms().cpu_state(cpu.0)?.stretches)
    }

    /// The CPUs whose activity is recorded.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// What a CPU did since `from_ns` and how slow its clock was. Wake-ups are left out: they would cut ongoing segments into
    /// pieces. Call it soon after [`Self::poll`].
    pub fn since(&self, cpu: CpuId, from_ns: u64) -> Result<Recording, BpfError> {
        let mut recording = self.causes.since(cpu, from_ns)?;
        recording.segments.retain(|segment| !matches!(segment.what, Activity::Waking { .. }));
        recording.segments.extend(self.frequencies.slow(cpu, from_ns));
        Ok(recording)
    }

    /// The newest records of a CPU since `from_ns`, wake-ups included.
    pub fn newest_since(&self, cpu: CpuId, from_ns: u64, most: u64) -> Result<Recording, BpfError> {
        self.causes.newest_since(cpu, from_ns, most)
    }

    /// The latency above which the kernel's stack is recorded. A stack takes some microseconds.
    pub fn keep_stacks(&mut self, above_ns: u64) {
        let all: Vec<(CpuId, u64)> = self.cpus.iter().map(|cpu| (cpu, above_ns)).collect();
        self.causes.histograms().keep_stacks(&all);
    }

    /// The variable of the process's program or libraries that has this address, with the name of the file.
    pub fn variable(&mut self, process: u32, address: u64) -> Option<String> {
        let found = self.programs.variable(&self.host, process, address)?;
        Some(format!("{} of {}", found.name, found.file))
    }

    /// Every thread that was watched, by its id.
    pub fn threads(&self) -> &BTreeMap<u32, Watched> {
        &self.builder.threads
    }

    pub fn losses(&self) -> TaskLosses {
        let losses: RawTaskLosses = self
            .causes
            .histograms
            .object()
            .get::<[u8; size_of::<RawTaskLosses>()]>("task_losses", 0)
            .map(|bytes| transmute!(bytes))
            .unwrap_or_default();
        let missed = self.causes.missed().in_window(true);
        TaskLosses {
            records: self.rings.lost() + losses.events,
            incomplete: self.builder.incomplete,
            unwatched: self.collisions + losses.collisions,
            refused: 0,
            missed: missed.count(),
            missed_at: missed.to_string(),
            unread_texts: losses.unread_texts,
            unaudited: losses.unaudited,
            suspended: self.suspension.dropped,
        }
    }

    /// What the programs cost so far; times are counted only while the kernel's BPF statistics are on.
    pub fn costs(&self) -> Vec<crate::ProgramCost> {
        self.causes.histograms.costs()
    }
}
