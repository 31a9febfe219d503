//! The runner's side of one measuring process: starts it, reads the shared memory, ends it.

use crate::child::Message;
use crate::error::ProbeError;
use crate::lane_reader::LaneReader;
use crate::layout::{self, Header, Lane};
use crate::spec::{LaneSpec, ProbeSpec};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use whylate_bpf::DispatchSteps;
use whylate_core::record::{CounterRecord, Interval, SpikeRecord};
use whylate_core::{CpuId, Warning};
use whylate_sys::counter::{Calibration, CounterKind};
use whylate_sys::process::{self, Launcher};
use whylate_sys::shared::SharedWords;
use whylate_sys::{clock, schedule};

/// How many gaps of a stall probe are kept individually, over all its CPUs; after that only the largest.
const GAPS_KEPT: usize = 1_000_000;
/// More spikes than this on a CPU end the stored interval early: spikes that wait for its end take memory.
const PENDING_MAX: usize = 4_096;
/// How long a measuring process may take to become ready: locking memory and large working sets take time.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// The same during a recording: a function trace makes a slow machine many times slower.
const READY_WITHIN_TRACED: Duration = Duration::from_secs(90);
/// How long it may take to end after it has measured: unlocking its memory takes time under a function tracer.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// A measuring thread that has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unfinished {
    /// The lane that its samples go to.
    pub(crate) lane: usize,
    /// The CPU that it is bound to.
    pub(crate) cpu: CpuId,
    pub(crate) tid: u32,
    /// When it was last known to run.
    pub(crate) ran_ns: u64,
}

pub(crate) struct Session<'s> {
    spec: &'s ProbeSpec,
    child: Child,
    memory: SharedWords,
    messages: Receiver<Message>,
    lanes: Vec<LaneReader>,
    calibration: Option<(CounterKind, Calibration)>,
    pub(crate) start_ns: u64,
    interval_start_ns: u64,
    pub(crate) warnings: Vec<Warning>,
    /// Per lane: a count that grows while its thread runs, and when it last grew.
    progress: Vec<(u64, u64)>,
    /// The kernel's programs run as long as this exists.
    _dispatch_steps: Option<DispatchSteps>,
}

impl<'s> Session<'s> {
    pub(crate) fn start(launcher: &Launcher, spec: &'s ProbeSpec) -> Result<Self, ProbeError> {
        let memory =
            SharedWords::create(layout::words_needed(spec.lanes().len())).map_err(ProbeError::Memory)?;
        let file = memory.file().try_clone_to_owned().map_err(ProbeError::Memory)?;
        let failed = |source| ProbeError::Start { program: launcher.program.display().to_string(), source };
        let text = serde_json::to_string(spec).map_err(|error| failed(error.into()))?;
        let mut warnings = Vec::new();
        let dispatch = spec.kind.as_kind().steps(&mut warnings);
        let table = dispatch.as_ref().map(|(_, table)| process::leave_open(table)).transpose();
        let mut child = launcher
            .command("internal-probe")
            .arg(text)
            .arg(std::process::id().to_string())
            .args(table.map_err(failed)?.map(|number| number.to_string()))
            .stdin(Stdio::from(file))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let messages = receive(&mut child);
        let calibration = spec.kind.as_kind().spike_counter();
        let gaps_kept = GAPS_KEPT / spec.cpus.len().max(1);
        let has_period = spec.period().is_some();
        let reader = |lane: LaneSpec| {
            let has_period = has_period && !lane.is_part();
            LaneReader::new(lane, has_period, spec.spikes_kept, gaps_kept).with_late_above(spec.late_above)
        };
        let lanes = spec.lanes().into_iter().map(reader).collect();
        Ok(Self {
            progress: vec![(0, 0); spec.lanes().len()],
            spec,
            child,
            memory,
            messages,
            lanes,
            calibration,
            start_ns: 0,
            interval_start_ns: 0,
            warnings,
            _dispatch_steps: dispatch.map(|(steps, _)| steps),
        })
    }

    /// Returns when all its threads are ready.
    pub(crate) fn wait_until_armed(&mut self) -> Result<(), ProbeError> {
        let within = if self.spec.trace_folder.is_some() { READY_WITHIN_TRACED } else { READY_WITHIN };
        let deadline = Instant::now() + within;
        loop {
            match self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Message::Warning(warning)) => self.warnings.push(warning),
                Ok(Message::Failed(reason)) => return Err(ProbeError::Failed(reason)),
                Ok(Message::Unavailable(reason)) => return Err(ProbeError::Unavailable(reason)),
                Ok(Message::Void(reason)) => return Err(ProbeError::Void(reason)),
                Ok(Message::Armed { start_ns }) => {
                    (self.start_ns, self.interval_start_ns) = (start_ns, start_ns);
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = within.as_secs();
                    return Err(ProbeError::NotReady { cpus: self.spec.cpus.clone(), seconds });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
            }
        }
    }

    fn header(&self) -> Header<'_> {
        Header::of(self.memory.words()).expect("the memory was made with room for the header")
    }

    /// Threads that have not measured to their end, of those that were started.
    pub(crate) fn unfinished(&self) -> Vec<Unfinished> {
        let of_thread = |(index, cpu): (usize, CpuId)| {
            let is_peer = index > 0 && self.spec.peer_cpu().is_some();
            let lane = if is_peer { 0 } else { index * self.spec.lanes_of_thread() };
            let words = lane_of(&self.memory, lane);
            let (tid, born_ns) = if is_peer {
                (words.peer_tid(), words.peer_born_ns())
            } else {
                (words.tid(), words.born_ns())
            };
            let tid = u32::try_from(tid.load(Acquire)).ok().filter(|tid| *tid > 0)?;
            let ran_ns = self.progress.get(lane)?.1.max(born_ns.load(Relaxed));
            (words.done().load(Acquire) == 0).then_some(Unfinished { lane, cpu, tid, ran_ns })
        };
        self.spec.threads().into_iter().enumerate().filter_map(of_thread).collect()
    }

    /// The measured CPU and the series of a lane.
    pub(crate) fn lane(&self, lane: usize) -> Option<(CpuId, Option<String>)> {
        let reader = self.lanes.get(lane)?;
        Some((reader.cpu, reader.series().map(str::to_owned)))
    }

    /// Whether every measured CPU has a sample that is late by nearly all of that time.
    pub(crate) fn all_late_within(&self, from: u64, to: u64) -> bool {
        let least = (to - from) / 10 * 8;
        let is_late =
            |cpu| move |reader: &LaneReader| reader.cpu == cpu && reader.has_spike_since(from, least);
        self.lanes.iter().all(|lane| self.lanes.iter().any(is_late(lane.cpu)))
    }

    /// The id of the measuring process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Begins the first stored interval at that moment.
    pub(crate) fn begin_interval_at(&mut self, start_ns: u64) {
        self.interval_start_ns = start_ns;
    }

    /// Asks every thread to end.
    pub(crate) fn stop(&self) {
        self.header().stop().store(1, Relaxed);
    }

    /// Whether every thread has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.header().finished().load(Acquire) != 0
    }

    /// The latency at which a thread broke.
    pub(crate) fn broke_ns(&self) -> Option<u64> {
        Some(self.header().broke_ns().load(Relaxed)).filter(|latency| *latency > 0)
    }

    /// The length of the first gap that was recorded (stall only).
    pub(crate) fn first_gap_ns(&self) -> Option<u64> {
        self.calibration?;
        self.lanes.iter().find_map(LaneReader::largest_ns)
    }

    /// Takes the spikes that the threads have recorded.
    pub(crate) fn drain(&mut self) {
        let anchor = self.calibration.map(|(counter, calibration)| (counter.anchor(), calibration));
        for (index, reader) in self.lanes.iter_mut().enumerate() {
            let lane = lane_of(&self.memory, index);
            lane.drain(|record| reader.take(record, anchor.as_ref()));
            let count = lane.samples().load(Relaxed).wrapping_add(lane.alive().load(Relaxed));
            if self.progress[index].0 != count {
                self.progress[index] = (count, clock::now().0);
            }
            if anchor.is_none() {
                lane.floor().store(reader.floor(), Relaxed);
            }
        }
    }

    /// The spikes since the last call that were drained.
    pub(crate) fn spikes_as_they_come(&mut self) -> Vec<SpikeRecord> {
        self.lanes.iter_mut().flat_map(|reader| reader.spikes_as_they_come().iter().cloned()).collect()
    }

    /// Per measured CPU: samples and the largest one so far. (The stall probe's turns are only summed for stored
    /// intervals, and lag behind here.)
    pub(crate) fn so_far(&self) -> impl Iterator<Item = (CpuId, u64, u64)> + '_ {
        self.lanes.iter().enumerate().map(|(index, reader)| {
            let lane = lane_of(&self.memory, index);
            let samples = reader.samples.max(lane.samples().load(Relaxed));
            (reader.cpu, samples, reader.max_ns.max(lane.interval_max_ns().load(Relaxed)))
        })
    }

    /// Whether the interval should end because too many spikes wait for its end.
    pub(crate) fn has_many_spikes(&self) -> bool {
        self.lanes.iter().map(LaneReader::pending).sum::<usize>() > PENDING_MAX * self.spec.cpus.len().max(1)
    }

    /// Ends a stored interval at `end_ns`: what every CPU counted since the last one, and its new spikes as far as
    /// they were drained.
    pub(crate) fn interval(&mut self, end_ns: u64) -> (Vec<Interval>, Vec<SpikeRecord>) {
        let start_ns = std::mem::replace(&mut self.interval_start_ns, end_ns);
        let calibration = self.calibration.map(|(_, calibration)| calibration);
        let quantities = self.spec.kind.as_kind().quantities();
        let mut spikes = Vec::new();
        let mut intervals = Vec::with_capacity(self.lanes.len());
        for (index, reader) in self.lanes.iter_mut().enumerate() {
            let lane = lane_of(&self.memory, index);
            let mut interval = reader.interval(&lane, calibration.as_ref());
            (interval.start_ns, interval.end_ns) = (start_ns, end_ns);
            interval.quantities.merge(&quantities);
            spikes.append(&mut reader.new_spikes());
            // A part that was not measured is missing, not zero.
            if interval.samples > 0 || !reader.is_part() {
                intervals.push(interval);
            }
        }
        (intervals, spikes)
    }

    /// Page faults and involuntary switches of each measuring thread; complete once it has ended.
    pub(crate) fn usage(&self) -> Vec<CounterRecord> {
        let record = |cpu, page_faults: &AtomicU64, switches: &AtomicU64| CounterRecord {
            cpu,
            page_faults: Some(page_faults.load(Relaxed)),
            involuntary_switches: Some(switches.load(Relaxed)),
            ..CounterRecord::default()
        };
        let own = |(index, reader): (usize, &LaneReader)| {
            let lane = lane_of(&self.memory, index);
            record(reader.cpu, lane.page_faults(), lane.involuntary_switches())
        };
        let Some(peer) = self.spec.peer_cpu() else {
            let wholes = self.lanes.iter().enumerate().step_by(self.spec.lanes_of_thread());
            return wholes.map(own).collect();
        };
        let lane = lane_of(&self.memory, 0);
        let answering = record(peer, lane.peer_page_faults(), lane.peer_involuntary_switches());
        self.lanes.iter().enumerate().take(1).map(own).chain([answering]).collect()
    }

    /// Round trips that could not be divided into two ways because the CPUs' counters disagree.
    pub(crate) fn disorder(&self) -> u64 {
        (0..self.lanes.len()).map(|index| lane_of(&self.memory, index).disorder().load(Relaxed)).sum()
    }

    /// Whether the process has ended without having finished.
    pub(crate) fn check_alive(&mut self) -> Result<(), ProbeError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(_)) if self.is_finished() => Ok(()),
            _ => Err(self.died()),
        }
    }

    fn died(&mut self) -> ProbeError {
        while let Ok(message) = self.messages.recv_timeout(Duration::from_millis(200)) {
            match message {
                Message::Failed(reason) => return ProbeError::Failed(reason),
                Message::Unavailable(reason) => return ProbeError::Unavailable(reason),
                Message::Void(reason) => return ProbeError::Void(reason),
                Message::Warning(_) | Message::Armed { .. } => {}
            }
        }
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        ProbeError::Died(status)
    }

    /// Waits for the end of the process, which is near once it has finished.
    pub(crate) fn finish(&mut self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + ENDED_WITHIN;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) => {
                    let seconds = ENDED_WITHIN.as_secs();
                    let text =
                        format!("the measuring process did not end within {seconds} s after its measurement");
                    return Err(ProbeError::Failed(text));
                }
                _ => return Err(self.died()),
            }
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // A thread also needs a CPU to end, and may not get its own behind a real-time loop that never sleeps.
            for thread in self.unfinished().iter().filter(|_| !self.spec.other_cpus.is_empty()) {
                let _ = schedule::pin_thread(thread.tid, &self.spec.other_cpus);
            }
            // Its shared memory is no longer read.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn lane_of(memory: &SharedWords, index: usize) -> Lane<'_> {
    Lane::of(memory.words(), index).expect("the memory was made with room for every lane")
}

/// Reads the process's messages on a thread of its own, so that a silent process can be timed out.
fn receive(child: &mut Child) -> Receiver<Message> {
    let (sender, receiver) = channel();
    if let Some(output) = child.stdout.take() {
        let read = move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str(&line)
                    && sender.send(message).is_err()
                {
                    break;
                }
            }
        };
        // Without this thread, it looks as if the process had ended.
        let _ = std::thread::Builder::new().spawn(read);
    }
    receiver
}
