//! The runner's side of one measuring process: starts it, reads the shared memory, ends it.

use crate::child::Message;
use crate::error::ProbeError;
use crate::layout::{self, CYCLE_BUCKETS, Header, Lane, RingRecord};
use crate::spec::{ProbeKind, ProbeSpec};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use whylate_core::record::{CounterRecord, Interval, SpikeRecord};
use whylate_core::{CpuId, Cycles, Warning};
use whylate_stats::buckets;
use whylate_sys::counter::{Anchor, Calibration, CounterKind};
use whylate_sys::process::Launcher;
use whylate_sys::shared::SharedWords;

/// How many of the largest spikes are always kept.
const LARGEST_KEPT: usize = 32;
/// How many gaps of a stall probe are kept one by one; after that only those among the largest.
const GAPS_KEPT: usize = 1_000_000;
/// How long a measuring process may take to get ready: locking memory and large working sets take time.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A measuring process.
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
}

impl<'s> Session<'s> {
    /// Starts the process and returns when all its threads are ready.
    pub(crate) fn start(launcher: &Launcher, spec: &'s ProbeSpec) -> Result<Self, ProbeError> {
        let memory = SharedWords::create(layout::words_needed(spec.cpus.len())).map_err(ProbeError::Memory)?;
        let file = memory.file().try_clone_to_owned().map_err(ProbeError::Memory)?;
        let failed = |source| ProbeError::Start { program: launcher.program.display().to_string(), source };
        let text = serde_json::to_string(spec).map_err(|error| failed(error.into()))?;
        let mut child = launcher
            .command("internal-probe")
            .arg(text)
            .arg(std::process::id().to_string())
            .stdin(Stdio::from(file))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let messages = receive(&mut child);
        let calibration = match spec.kind {
            ProbeKind::Timer { .. } => None,
            ProbeKind::Stall { hardware_counter, multiplier, .. } => {
                let counter = if hardware_counter { CounterKind::Hardware } else { CounterKind::KernelClock };
                Some((counter, Calibration::of_multiplier(multiplier)))
            }
        };
        let lanes = spec.cpus.iter().map(LaneReader::new).collect();
        let mut session = Self {
            spec,
            child,
            memory,
            messages,
            lanes,
            calibration,
            start_ns: 0,
            interval_start_ns: 0,
            warnings: Vec::new(),
        };
        session.wait_until_armed()?;
        Ok(session)
    }

    fn wait_until_armed(&mut self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            match self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Message::Warning(warning)) => self.warnings.push(warning),
                Ok(Message::Failed(reason)) => return Err(ProbeError::Failed(reason)),
                Ok(Message::Armed { start_ns }) => {
                    (self.start_ns, self.interval_start_ns) = (start_ns, start_ns);
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = READY_WITHIN.as_secs();
                    return Err(ProbeError::NotReady { cpus: self.spec.cpus.clone(), seconds });
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.died()),
            }
        }
    }

    fn header(&self) -> Header<'_> {
        Header::of(self.memory.words()).expect("the memory was made with room for the header")
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
        self.lanes.iter().find_map(|reader| reader.largest.last().map(|(latency, ..)| *latency))
    }

    /// Takes the spikes that the threads have recorded.
    pub(crate) fn drain(&mut self) {
        let anchor = self.calibration.map(|(counter, calibration)| (counter.anchor(), calibration));
        for (index, reader) in self.lanes.iter_mut().enumerate() {
            let lane = lane_of(&self.memory, index);
            lane.drain(|record| reader.take(record, anchor.as_ref()));
            if anchor.is_none() {
                lane.floor().store(reader.floor(), Relaxed);
            }
        }
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

    /// Ends a stored interval at `end_ns`: what every CPU counted since the last one, and its new spikes.
    pub(crate) fn interval(&mut self, end_ns: u64) -> (Vec<Interval>, Vec<SpikeRecord>) {
        self.drain();
        let start_ns = std::mem::replace(&mut self.interval_start_ns, end_ns);
        let calibration = self.calibration.map(|(_, calibration)| calibration);
        let mut spikes = Vec::new();
        let mut intervals = Vec::with_capacity(self.lanes.len());
        for (index, reader) in self.lanes.iter_mut().enumerate() {
            let lane = lane_of(&self.memory, index);
            let mut interval = reader.interval(&lane, calibration.as_ref());
            (interval.start_ns, interval.end_ns) = (start_ns, end_ns);
            spikes.append(&mut reader.new_spikes());
            intervals.push(interval);
        }
        (intervals, spikes)
    }

    /// Page faults and involuntary switches of each measuring thread; complete once it has ended.
    pub(crate) fn usage(&self) -> impl Iterator<Item = CounterRecord> + '_ {
        self.lanes.iter().enumerate().map(|(index, reader)| {
            let lane = lane_of(&self.memory, index);
            CounterRecord {
                cpu: reader.cpu,
                page_faults: Some(lane.page_faults().load(Relaxed)),
                involuntary_switches: Some(lane.involuntary_switches().load(Relaxed)),
                ..CounterRecord::default()
            }
        })
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
            if let Message::Failed(reason) = message {
                return ProbeError::Failed(reason);
            }
        }
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        ProbeError::Died(status)
    }

    /// Waits for the end of the process, which is near once it has finished.
    pub(crate) fn finish(&mut self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                _ => return Err(self.died()),
            }
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // It measures into memory that nobody reads any more.
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
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str(&line)
                    && sender.send(message).is_err()
                {
                    break;
                }
            }
        });
    }
    receiver
}

/// One measuring thread as seen by the reader.
struct LaneReader {
    cpu: CpuId,
    cycles: Vec<u64>,
    buckets: Vec<u64>,
    sum_ns: u64,
    overruns: u64,
    gaps: u64,
    lost_cycles: u64,
    dropped: u64,
    /// Over all intervals.
    samples: u64,
    max_ns: u64,
    /// The largest spikes so far: latency, moment, sample.
    largest: BTreeSet<(u64, u64, u64)>,
    /// Spikes since the last interval.
    fresh: Vec<SpikeRecord>,
    kept: usize,
    /// Gaps that were neither kept one by one nor among the largest, since the last interval.
    left_out: u64,
}

impl LaneReader {
    fn new(cpu: CpuId) -> Self {
        Self {
            cpu,
            cycles: vec![0; CYCLE_BUCKETS],
            buckets: vec![0; buckets::BUCKETS],
            sum_ns: 0,
            overruns: 0,
            gaps: 0,
            lost_cycles: 0,
            dropped: 0,
            samples: 0,
            max_ns: 0,
            largest: BTreeSet::new(),
            fresh: Vec::new(),
            kept: 0,
            left_out: 0,
        }
    }

    /// Takes one record; with an anchor it is a gap, in cycles.
    fn take(&mut self, record: RingRecord, anchor: Option<&(Anchor, Calibration)>) {
        let (at_ns, latency_ns) = match anchor {
            None => (record.at, record.value),
            Some((anchor, calibration)) => (
                anchor.monotonic(whylate_core::TscTime(record.at), calibration).0,
                calibration.nanos(Cycles(record.value)).0,
            ),
        };
        let entry = (latency_ns, at_ns, record.sample);
        let is_large = self.largest.len() < LARGEST_KEPT || self.largest.first().is_some_and(|least| *least < entry);
        if is_large {
            self.largest.insert(entry);
            if self.largest.len() > LARGEST_KEPT {
                self.largest.pop_first();
            }
        }
        if is_large || (anchor.is_some() && self.kept < GAPS_KEPT) {
            self.kept += 1;
            self.fresh.push(SpikeRecord { cpu: self.cpu, at_ns, latency_ns, sample: record.sample });
        } else if anchor.is_some() {
            self.left_out += 1;
        }
    }

    /// From which latency on the timer probe's thread has to make a record.
    fn floor(&self) -> u64 {
        match self.largest.first() {
            Some((least, ..)) if self.largest.len() >= LARGEST_KEPT => least + 1,
            _ => 0,
        }
    }

    /// The spikes since the last interval; of a timer probe only those that are among the largest by now.
    fn new_spikes(&mut self) -> Vec<SpikeRecord> {
        let mut fresh = std::mem::take(&mut self.fresh);
        if self.gaps == 0 {
            let largest = &self.largest;
            fresh.retain(|spike| largest.contains(&(spike.latency_ns, spike.at_ns, spike.sample)));
        }
        fresh
    }

    /// What was counted since the last interval.
    fn interval(&mut self, lane: &Lane<'_>, calibration: Option<&Calibration>) -> Interval {
        let mut counts = vec![0u64; buckets::BUCKETS];
        let short = self.short_turns(lane, calibration, &mut counts);
        for (place, count) in take_differences(&mut self.buckets, lane.buckets) {
            counts[place] += count;
        }
        let is_timer = calibration.is_none();
        let samples = counts.iter().sum();
        let sum_ns = take_difference(&mut self.sum_ns, lane.sum_ns().load(Relaxed)) + short.sum_ns;
        let min_word = lane.interval_min_ns().swap(u64::MAX, Relaxed);
        let max_word = lane.interval_max_ns().swap(0, Relaxed);
        let edge = |place: Option<usize>| place.map(buckets::lower_edge);
        let lowest = edge(counts.iter().position(|count| *count > 0));
        let highest = edge(counts.iter().rposition(|count| *count > 0));
        let min_ns = if is_timer && min_word != u64::MAX { Some(min_word) } else { short.min_ns.or(lowest) };
        let max_ns = if max_word > 0 { Some(max_word) } else { short.max_ns.or(highest) };
        let dropped = take_difference(&mut self.dropped, lane.ring_dropped().load(Relaxed));
        let gaps = take_difference(&mut self.gaps, lane.gaps().load(Relaxed));
        let lost = take_difference(&mut self.lost_cycles, lane.lost_cycles().load(Relaxed));
        let overruns = take_difference(&mut self.overruns, lane.overruns().load(Relaxed));
        self.samples += samples;
        self.max_ns = self.max_ns.max(max_ns.unwrap_or(0));
        let occupied = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        Interval {
            cpu: self.cpu,
            start_ns: 0,
            end_ns: 0,
            samples,
            sum_ns,
            min_ns: min_ns.filter(|_| samples > 0),
            max_ns: max_ns.filter(|_| samples > 0),
            overruns: is_timer.then_some(overruns),
            gaps: calibration.map(|_| gaps),
            lost_ns: calibration.map(|calibration| calibration.nanos(Cycles(lost)).0),
            spikes_dropped: dropped + std::mem::take(&mut self.left_out),
            histogram: occupied.map(|(place, count)| (buckets::lower_edge(place), *count)).collect(),
        }
    }

    /// The turns counted per cycle, added to `counts` by their length in nanoseconds.
    fn short_turns(
        &mut self,
        lane: &Lane<'_>,
        calibration: Option<&Calibration>,
        counts: &mut [u64],
    ) -> ShortTurns {
        let mut turns = ShortTurns::default();
        let Some(calibration) = calibration else { return turns };
        let mut sum_cycles = 0u64;
        for (cycles, count) in take_differences(&mut self.cycles, lane.cycles) {
            let nanos = calibration.nanos(Cycles(cycles as u64)).0;
            counts[buckets::index_of(nanos)] += count;
            sum_cycles += cycles as u64 * count;
            turns.min_ns.get_or_insert(nanos);
            turns.max_ns = Some(nanos);
        }
        turns.sum_ns = calibration.nanos(Cycles(sum_cycles)).0;
        turns
    }
}

/// What is exact about turns that were counted per cycle.
#[derive(Default)]
struct ShortTurns {
    sum_ns: u64,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
}

/// How far a growing count moved since it was last looked at.
fn take_difference(before: &mut u64, now: u64) -> u64 {
    now.wrapping_sub(std::mem::replace(before, now))
}

/// As [`take_difference`], for each count that moved.
fn take_differences<'a>(
    before: &'a mut [u64],
    words: &'a [std::sync::atomic::AtomicU64],
) -> impl Iterator<Item = (usize, u64)> + 'a {
    let pairs = before.iter_mut().zip(words).enumerate();
    let differences = pairs.map(|(place, (before, word))| (place, take_difference(before, word.load(Relaxed))));
    differences.filter(|(_, count)| *count > 0)
}
