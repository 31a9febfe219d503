//! The threads of an ordinary user, watched without programs in the kernel.
//!
//! Without rights a user learns from the kernel when his own threads got and left a CPU, whether they fell asleep or were
//! still runnable then, and their page faults ([`whylate_sys::switch_ring`]). The kernel does not say when and by whom they
//! were woken, what they sleep for, and who had the CPU meanwhile. An activation therefore begins when the thread first runs,
//! and ends with its next sleep, whatever it sleeps for. How long it waited for its CPU before that has a bound: the time since
//! it fell asleep, and what the kernel adds up for the thread (`/proc/PID/task/TID/schedstat`).

use super::build::{Builder, Cut, Last, Watched, raw};
use super::choose::{self, Chosen};
use super::rhythm::{Activations, Doubt, Rhythms};
use super::{TaskLosses, TaskTarget};
use crate::layout::tasks::{Began, RawStretch, TaskEvent};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use whylate_core::recording::{Activation, Budget, Doing, Stage, Thread, Wait, Waker};
use whylate_core::{CpuId, CpuSet};
use whylate_host::HostRoot;
use whylate_sys::clock;
use whylate_sys::switch_ring::{Switch, SwitchRecord, SwitchRing};

/// Records of this age are all in their rings, and are put in order over all CPUs.
const SETTLED_NS: u64 = 1_000_000;
/// Waits of more threads are not read: each is a file.
const WAITS_READ_MAX: usize = 64;
/// How long readings are kept, and at most how many activations wait for theirs.
const WAITS_KEPT_NS: u64 = 5_000_000_000;
const STARTS_MAX: usize = 4_096;
/// Names and priorities are read this often: some threads get their priority from another one, after their start.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// How a thread left its CPU.
#[derive(Clone, Copy)]
enum Left {
    Asleep,
    Preempted,
}

/// How a stretch began, from how the thread had left its CPU.
fn began_after(left: Option<Left>) -> Began {
    match left {
        None => Began::Unknown,
        Some(Left::Asleep) => Began::Woken,
        Some(Left::Preempted) => Began::Preempted,
    }
}

/// The activation in progress of a thread.
struct Track {
    known: Watched,
    left: Option<Left>,
    /// When and where it was given its CPU.
    since: Option<(u64, CpuId)>,
    faults: u32,
    /// When it last fell asleep.
    slept_ns: Option<u64>,
    /// When activations began that have not been handed on, and when the thread fell asleep before.
    starts: VecDeque<(u64, u64)>,
    /// When its waits for a CPU were read, and how long all of them were by then.
    waits: VecDeque<(u64, u64)>,
}

/// The watch, running. It ends when this is dropped.
pub struct OwnTaskWatch {
    host: HostRoot,
    target: TaskTarget,
    rings: Vec<SwitchRing>,
    /// Threads that were added by their id. Threads that they start are added by the kernel, if wanted.
    added: BTreeSet<u32>,
    refused: BTreeSet<u32>,
    tracks: BTreeMap<u32, Track>,
    builder: Builder,
    /// Records that may have an older one on another CPU.
    waiting: Vec<(CpuId, SwitchRecord)>,
    lost: u64,
    looked_ns: u64,
    /// What came before this is known.
    settled_ns: u64,
    /// When tasks were last looked for; 0: never.
    searched_ns: u64,
}

impl OwnTaskWatch {
    /// Begins to watch tasks wherever they run among `cpus`.
    ///
    /// # Errors
    /// EACCES or EPERM where the kernel refuses it, or every one of the threads is another user's.
    pub fn start(host: &HostRoot, cpus: &CpuSet, target: &TaskTarget) -> io::Result<Self> {
        let mut watch = Self::new(host, cpus, target);
        // Asks for the right even if there is no thread yet.
        SwitchRing::new(cpus.iter().next().unwrap_or_default()).add(0, false)?;
        let refused = watch.look_for_tasks();
        match refused {
            Some(error) if watch.added.is_empty() => Err(error),
            _ => Ok(watch),
        }
    }

    /// A watch that records no thread yet.
    fn new(host: &HostRoot, cpus: &CpuSet, target: &TaskTarget) -> Self {
        Self {
            host: host.clone(),
            target: target.clone(),
            rings: cpus.iter().map(SwitchRing::new).collect(),
            added: BTreeSet::new(),
            refused: BTreeSet::new(),
            tracks: BTreeMap::new(),
            builder: Builder::default(),
            waiting: Vec::new(),
            lost: 0,
            looked_ns: 0,
            settled_ns: 0,
            searched_ns: 0,
        }
    }

    /// Looks for new tasks; returns why one of them cannot be watched, if so.
    pub fn look_for_tasks(&mut self) -> Option<io::Error> {
        let inherits = !matches!(self.target, TaskTarget::Name(_) | TaskTarget::Priorities(..));
        let mut refused = None;
        let now_ns = clock::now().0;
        let before_ns = std::mem::replace(&mut self.searched_ns, now_ns);
        for Chosen { thread, known } in choose::chosen(&self.host, &self.target) {
            // Threads that a watched thread has started are added with it.
            let is_known = self.added.contains(&thread) || self.refused.contains(&thread);
            if is_known || self.tracks.contains_key(&thread) {
                continue;
            }
            match self.add(thread, inherits) {
                Ok(()) => {
                    self.added.insert(thread);
                    self.tracks.insert(thread, Track::new(known));
                    // It was not seen since it came, which was after the last search.
                    if before_ns > 0 {
                        self.builder.not_seen(thread, before_ns, now_ns);
                    }
                }
                // It has ended since.
                Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                Err(error) => {
                    self.refused.insert(thread);
                    refused = Some(error);
                }
            }
        }
        refused
    }

    /// An offline CPU has no records; all others must have them.
    fn add(&mut self, thread: u32, inherits: bool) -> io::Result<()> {
        let mut is_anywhere = Err(io::Error::from_raw_os_error(ENODEV));
        for ring in &mut self.rings {
            match ring.add(thread, inherits) {
                Err(error) if error.raw_os_error() == Some(ENODEV) => {}
                Err(error) => return Err(error),
                Ok(()) => is_anywhere = Ok(()),
            }
        }
        is_anywhere
    }

    /// Watches the threads that this thread starts from now on.
    pub fn follow_children(&mut self) -> io::Result<()> {
        self.add(0, true)
    }

    /// The activations that ended since the last call, in that order. Call it twenty times a second.
    pub fn poll(&mut self) -> Vec<Activation> {
        let now_ns = clock::now().0;
        let settled_ns = now_ns.saturating_sub(SETTLED_NS);
        self.look_at_threads(now_ns);
        let mut lost = 0;
        for ring in &self.rings {
            let (cpu, waiting) = (ring.cpu(), &mut self.waiting);
            lost += ring.read(&mut |record| waiting.push((cpu, record)));
        }
        if lost > 0 {
            self.lost += lost;
            self.builder.forget_open();
            self.tracks.values_mut().for_each(|track| (track.left, track.since) = (None, None));
        }
        self.waiting.sort_by_key(|(_, record)| record.at_ns);
        let later = self.waiting.partition_point(|(_, record)| record.at_ns <= settled_ns);
        let settled: Vec<(CpuId, SwitchRecord)> = self.waiting.drain(..later).collect();
        for (cpu, record) in settled {
            self.take(cpu, &record);
        }
        self.builder.settle(settled_ns, false);
        self.settled_ns = settled_ns;
        self.ended()
    }

    /// The activations that had not ended by the last call of [`Self::poll`].
    pub fn in_progress(&self) -> Vec<Activation> {
        let meant = self.tracks.iter().filter(|(_, track)| self.target.is_named(&track.known.command));
        meant.filter_map(|(thread, track)| self.open(*thread, track)).collect()
    }

    fn open(&self, thread: u32, track: &Track) -> Option<Activation> {
        let begun = self.builder.tracks.get(&thread).and_then(|track| track.open.clone());
        let stage = |from_ns, to_ns, cpu, what| Stage { from_ns, to_ns, cpu, what };
        let preempted = || Doing::Preempted { by: Thread::default(), budget: Budget::Left };
        let mut open = match track.left? {
            Left::Preempted => begun?,
            Left::Asleep => {
                let (in_ns, _) = track.since?;
                let Watched { process, ref command, priority, .. } = track.known;
                let thread = Thread { pid: thread, priority, command: command.clone() };
                Activation { thread, process, due_ns: in_ns, ..Activation::default() }
            }
        };
        let left_ns = open.end_ns();
        let last = open.stages.last().map_or_else(CpuId::default, |stage| stage.cpu);
        match track.since {
            Some((in_ns, cpu)) => {
                open.stages.push(stage(left_ns, in_ns, last, preempted()));
                open.stages.push(stage(in_ns, self.settled_ns.max(in_ns), cpu, Doing::Running));
            }
            None => open.stages.push(stage(left_ns, self.settled_ns.max(left_ns), last, preempted())),
        }
        let slept_ns = track.slept_before(open.due_ns);
        let wait_max_ns = slept_ns.map(|slept_ns| track.longest_wait(open.due_ns, slept_ns));
        Some(only_what_is_known(Activation { wait_max_ns, is_unended: true, ..open }))
    }

    fn ended(&mut self) -> Vec<Activation> {
        let ended = std::mem::take(&mut self.builder.ended);
        ended.into_iter().map(|it| self.bounded(it)).map(only_what_is_known).collect()
    }

    /// With the longest time for which the thread may have waited for its CPU before it ran.
    fn bounded(&mut self, activation: Activation) -> Activation {
        let began_ns = activation.due_ns;
        let wait_max_ns = self.tracks.get_mut(&activation.thread.pid).and_then(|track| {
            let place = track.starts.iter().position(|(in_ns, _)| *in_ns == began_ns)?;
            let (_, slept_ns) = track.starts.drain(..=place).next_back()?;
            Some(track.longest_wait(began_ns, slept_ns))
        });
        Activation { wait_max_ns, ..activation }
    }

    /// Reads how long the threads have waited for CPUs so far, and now and then their names and priorities.
    fn look_at_threads(&mut self, now_ns: u64) {
        let is_again = now_ns >= self.looked_ns + LOOK_AGAIN_NS;
        let reads_waits = self.tracks.len() <= WAITS_READ_MAX;
        let host = &self.host;
        for (thread, track) in &mut self.tracks {
            if reads_waits && let Some(waited_ns) = waited_ns(host, track.known.process, *thread) {
                track.waits.push_back((clock::now().0, waited_ns));
                while track.waits.front().is_some_and(|(at_ns, _)| at_ns + WAITS_KEPT_NS < now_ns) {
                    track.waits.pop_front();
                }
            }
            if is_again && let Some(found) = choose::known(host, track.known.process, *thread) {
                track.known = found.known;
            }
        }
        if is_again {
            self.looked_ns = now_ns;
        }
    }

    /// As [`super::TaskWatch::decide_by`].
    pub fn decide_by(&mut self, by: Activations) {
        self.builder.rhythms = Rhythms::without_places(by);
    }

    /// As [`super::TaskWatch::doubts`].
    pub fn doubts(&mut self) -> Vec<(u32, Doubt)> {
        self.builder.rhythms.doubts()
    }

    /// As [`super::TaskWatch::cuts`].
    pub fn cuts(&mut self) -> Vec<Cut> {
        std::mem::take(&mut self.builder.cuts)
    }

    /// The activations that were held back or in progress at the end.
    pub fn unended(&mut self) -> Vec<Activation> {
        self.builder.settle(clock::now().0, true);
        let threads: Vec<u32> = self.builder.threads.keys().copied().collect();
        for thread in threads {
            self.builder.rhythms.end(thread, &Last::default(), &mut self.builder.ended);
            let open = self.builder.tracks.get_mut(&thread).and_then(|track| track.open.take());
            self.builder.ended.extend(open.map(|open| Activation { is_unended: true, ..open }));
        }
        self.ended()
    }

    fn take(&mut self, cpu: CpuId, record: &SwitchRecord) {
        let SwitchRecord { process, thread, at_ns, ref what } = *record;
        // Its own thread is recorded for what it starts.
        if process == std::process::id() {
            return;
        }
        let host = &self.host;
        let track = self.tracks.entry(thread).or_insert_with(|| {
            let known = choose::known(host, process, thread).map(|it| it.known);
            Track::new(known.unwrap_or_else(|| Watched { process, ..Watched::default() }))
        });
        let raw = match what {
            Switch::In => {
                track.since = Some((at_ns, cpu));
                return;
            }
            Switch::Fault => {
                track.faults += 1;
                return;
            }
            Switch::Named(name) => {
                track.known.command.clone_from(name);
                return;
            }
            Switch::Out { is_preempted } => {
                let since = track.since.take().filter(|(_, before)| *before == cpu);
                let left = if *is_preempted { Left::Preempted } else { Left::Asleep };
                let before = track.left.replace(left);
                let slept_ns = track.slept_ns;
                if !*is_preempted {
                    track.slept_ns = Some(at_ns);
                }
                let Some((in_ns, _)) = since else { return };
                if let (Some(Left::Asleep), Some(slept_ns)) = (before, slept_ns)
                    && track.starts.len() < STARTS_MAX
                {
                    track.starts.push_back((in_ns, slept_ns));
                }
                let faults = std::mem::take(&mut track.faults);
                RawStretch {
                    kind: TaskEvent::Stretch,
                    began: began_after(before),
                    ready_ns: in_ns,
                    run_ns: in_ns,
                    end_ns: at_ns,
                    is_runnable: u8::from(*is_preempted),
                    faults,
                    ..raw(&track.known, thread)
                }
            }
            Switch::Ended => {
                let in_ns = track.since.map_or(0, |(in_ns, _)| in_ns);
                let gone = RawStretch {
                    kind: TaskEvent::Gone,
                    began: began_after(track.left),
                    ready_ns: in_ns,
                    run_ns: in_ns,
                    end_ns: at_ns,
                    threads_left: -1,
                    ..raw(&track.known, thread)
                };
                self.tracks.remove(&thread);
                self.added.remove(&thread);
                gone
            }
        };
        let unnamed = |_: u32, _: u32, _: bool| None;
        if self.target.is_named(&raw.command.text()) {
            self.builder.take(cpu, &raw, &unnamed);
        }
    }

    /// Every thread that was watched, by its id.
    pub fn threads(&self) -> &BTreeMap<u32, Watched> {
        &self.builder.threads
    }

    pub fn losses(&self) -> TaskLosses {
        let refused = self.refused.len() as u64;
        TaskLosses {
            records: self.lost,
            incomplete: self.builder.incomplete,
            refused,
            ..TaskLosses::default()
        }
    }
}

const ESRCH: i32 = 3;
const ENODEV: i32 = 19;

impl Track {
    fn new(known: Watched) -> Self {
        let (starts, waits) = (VecDeque::new(), VecDeque::new());
        Self { known, left: None, since: None, faults: 0, slept_ns: None, starts, waits }
    }

    /// When it fell asleep before the activation that began at this moment and has not been handed on.
    fn slept_before(&self, began_ns: u64) -> Option<u64> {
        let of_start =
            self.starts.iter().find(|(in_ns, _)| *in_ns == began_ns).map(|(_, slept_ns)| *slept_ns);
        of_start.or_else(|| self.slept_ns.filter(|_| matches!(self.left, Some(Left::Asleep))))
    }

    /// The longest time for which it may have waited for its CPU before it ran.
    fn longest_wait(&self, began_ns: u64, slept_ns: u64) -> u64 {
        let before = self.waits.iter().rfind(|(at_ns, _)| *at_ns <= slept_ns).map(|(_, ns)| *ns);
        let after = self.waits.iter().find(|(at_ns, _)| *at_ns >= began_ns).map(|(_, ns)| *ns);
        let waited_ns = before.zip(after).map(|(before, after)| after.saturating_sub(before));
        let asleep_ns = began_ns.saturating_sub(slept_ns);
        waited_ns.map_or(asleep_ns, |waited_ns| waited_ns.min(asleep_ns))
    }
}

/// How long a thread has waited for a CPU in all; `None` if the kernel does not count it.
fn waited_ns(host: &HostRoot, process: u32, thread: u32) -> Option<u64> {
    let text = host.read(&format!("/proc/{process}/task/{thread}/schedstat")).ok().flatten()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Leaves out what only records of the kernel's programs contain.
fn only_what_is_known(mut activation: Activation) -> Activation {
    activation.stages.retain(|stage| !matches!(stage.what, Doing::Waking { .. }));
    for stage in &mut activation.stages {
        if let Doing::Preempted { by, .. } = &mut stage.what {
            *by = Thread::default();
        }
    }
    Activation { waker: Waker::Unknown, slept: Wait::Unknown, is_partial: true, ..activation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch() -> OwnTaskWatch {
        OwnTaskWatch::new(&HostRoot::at("/nowhere"), &CpuSet::default(), &TaskTarget::Children)
    }

    fn play(watch: &mut OwnTaskWatch, records: &[(u32, u64, Switch)]) -> Vec<Activation> {
        for (cpu, at_ns, what) in records {
            let record = SwitchRecord { process: 7, thread: 8, at_ns: *at_ns, what: what.clone() };
            watch.take(CpuId(*cpu), &record);
        }
        watch.unended()
    }

    const ASLEEP: Switch = Switch::Out { is_preempted: false };
    const PREEMPTED: Switch = Switch::Out { is_preempted: true };

    #[test]
    fn an_activation_goes_from_the_first_run_to_the_next_sleep_over_preemptions_and_cpus() {
        let mut watch = watch();
        let records = [
            (0, 10, Switch::Named("audio".to_owned())),
            (0, 20, ASLEEP),
            (0, 100, Switch::In),
            (0, 130, Switch::Fault),
            (0, 150, PREEMPTED),
            (1, 250, Switch::In),
            (1, 300, ASLEEP),
            (1, 400, Switch::Ended),
        ];
        let ended = play(&mut watch, &records);
        let [one] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!((one.due_ns, one.response_ns(), one.wakeup_ns()), (100, 200, 0));
        assert_eq!((one.running_ns(), one.preempted_ns(), one.faults, one.migrations), (100, 100, 1, 1));
        assert_eq!((one.thread.command.as_str(), one.process), ("audio", 7));
        assert!(!matches!(one.stages[0].what, Doing::Waking { .. }), "the wake-up is not known: {one:?}");
        let waited = one.stages.iter().filter(|stage| stage.what != Doing::Running && stage.length_ns() > 0);
        let waited: Vec<(u64, u64)> = waited.map(|stage| (stage.from_ns, stage.to_ns)).collect();
        assert_eq!(waited, [(150, 250)]);
        assert!(watch.threads()[&8].is_gone);
    }

    #[test]
    fn what_a_thread_does_now_is_known_before_it_ends() {
        let open = |records: &[(u32, u64, Switch)]| {
            let mut watch = watch();
            for (cpu, at_ns, what) in records {
                let record = SwitchRecord { process: 7, thread: 8, at_ns: *at_ns, what: what.clone() };
                watch.take(CpuId(*cpu), &record);
            }
            watch.settled_ns = 300;
            let found = watch.in_progress();
            let part = |it: &Activation| {
                let ran = (it.running_ns(), it.preempted_ns());
                (it.due_ns, it.response_ns(), ran, it.wait_max_ns, it.is_unended && it.is_partial)
            };
            assert_eq!(found, watch.in_progress());
            found.iter().map(part).collect::<Vec<_>>()
        };
        let begin = [(0, 10, Switch::In), (0, 20, ASLEEP), (0, 100, Switch::In)];
        let and = |more: &[(u32, u64, Switch)]| open(&[&begin[..], more].concat());
        assert_eq!(and(&[]), [(100, 200, (200, 0), Some(80), true)]);
        assert_eq!(and(&[(0, 150, PREEMPTED)]), [(100, 200, (50, 150), Some(80), true)]);
        let again = [(0, 150, PREEMPTED), (1, 180, Switch::In)];
        assert_eq!(and(&again), [(100, 200, (170, 30), Some(80), true)]);
        assert_eq!(and(&[(0, 150, ASLEEP)]), [], "it sleeps");
        assert_eq!(open(&[(0, 10, Switch::In)]), [], "its start was not seen");
    }

    #[test]
    fn what_was_before_the_first_sleep_is_not_counted() {
        let mut watch = watch();
        let open = play(&mut watch, &[(0, 100, Switch::In), (0, 150, PREEMPTED), (0, 180, Switch::In)]);
        let open: Vec<_> = open.iter().map(|it| (it.response_ns(), it.is_unended)).collect();
        assert_eq!(open, [(50, true)], "at least, if the watch ends now");
        assert!(play(&mut watch, &[(0, 200, ASLEEP)]).is_empty(), "its start was not seen");
        assert_eq!(play(&mut watch, &[(0, 300, Switch::In), (0, 310, ASLEEP)]).len(), 1);
    }

    #[test]
    fn a_wait_before_the_first_run_has_a_bound() {
        let records = [(0, 10, Switch::In), (0, 100, ASLEEP), (0, 900, Switch::In), (0, 1_000, ASLEEP)];
        let wait_max = |waits: &[(u64, u64)]| {
            let mut watch = watch();
            for (cpu, at_ns, what) in &records {
                let record = SwitchRecord { process: 7, thread: 8, at_ns: *at_ns, what: what.clone() };
                watch.take(CpuId(*cpu), &record);
            }
            watch.tracks.get_mut(&8).unwrap().waits.extend(waits);
            watch.unended().last().unwrap().wait_max_ns
        };
        assert_eq!(wait_max(&[]), Some(800), "it may have been woken at once");
        assert_eq!(wait_max(&[(50, 5), (90, 7), (950, 27), (990, 40)]), Some(20));
        assert_eq!(
            wait_max(&[(150, 5), (950, 27)]),
            Some(800),
            "it may have waited before the first reading"
        );
    }
}
