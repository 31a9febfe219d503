//! A machine that records what is done to it, and fails where the test asks for it.

use crate::ring::{MockRing, spikes_now};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tempfile::TempDir;
use whylate_bpf::BpfError;
use whylate_core::facts::CpuFacts;
use whylate_core::plan::{Source, TreatmentKind};
use whylate_core::quantity::{GAPS, LOST_NS, OVERRUNS, Quantities};
use whylate_core::record::{
    InterruptRecord, Interval, IpiRecord, RateRecord, SourceRecord, SpikeCauses, SpikeRecord,
};
use whylate_core::result::{Cause, CauseKind, HistogramSource, TreatChange};
use whylate_core::{CpuId, CpuSet, Facts, Nanos, Plan, Warning};
use whylate_host::HostRoot;
use whylate_load::{LoadError, LoadSpec, LoadWork};
use whylate_probe::{Batch, Observer, Outcome, ProbeError, ProbeSpec, Progress};
use whylate_record::causes::{FindsCauses, Measured};
use whylate_record::{RecordError, Request, Ring};
use whylate_runner::{
    Audience, Experiment, Held, LoadEnd, Machine, RunOptions, RunningLoad, Stage, Treating, prepare,
};
use whylate_store::{Keeping, Reader, RunInfo, assemble};
use whylate_sys::schedule;
use whylate_treat::{Fate, Report, Target, TreatError, Undone};

/// Noise floor of every plan here: by it the mock tells the check from a stall probe.
const NOISE_FLOOR: Nanos = Nanos::from_millis(7);
/// How long the mock waits for what should come at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// Samples that each probe of the mock brings per CPU.
pub(crate) const SAMPLES: u64 = 10;

/// Two cells, two repeats, a timer and a stall probe on CPU 3.
pub(crate) const PLAN: &str = r#"
name = "mock"
order = "plan"
duration = "20ms"
repeats = 2
settle = "1ms"
noise_floor = "7ms"
[target]
cpus = "3"
[[probe]]
kind = "timer"
[[probe]]
kind = "stall"
[[load]]
name = "a"
kind = "memory"
working_set = "1MiB"
[[load]]
name = "b"
kind = "memory"
working_set = "2MiB"
[[cell]]
loads = []
[[cell]]
loads = ["a", "b"]
"#;

/// Four CPUs that report no caches.
pub(crate) fn facts() -> Facts {
    let mut facts = Facts::default();
    let cpus: CpuSet = "0-3".parse().unwrap();
    facts.cpus = cpus.iter().map(|cpu| CpuFacts { cpu, online: true, ..CpuFacts::default() }).collect();
    facts.cpu_sets.present = cpus.clone();
    facts.cpu_sets.online = cpus.clone();
    facts.cpu_sets.allowed = cpus;
    facts
}

pub(crate) fn experiment(plan: &str) -> Experiment {
    let plan = Plan::parse(&Source { name: "mock.toml", text: plan }, &[]).unwrap();
    prepare(plan, facts(), false).unwrap()
}

pub(crate) fn options() -> RunOptions {
    RunOptions {
        name: "mock-run".to_owned(),
        started_at: UNIX_EPOCH,
        warnings: Vec::new(),
        keeping: Keeping::default(),
        is_short: false,
    }
}

/// A temporary folder, in memory where there is such a place: these tests bring much to the disk.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// How a step goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It answers with an error, where it can.
    Error,
    /// The process is gone.
    Panic,
}

/// What a probe does.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// Measures and ends.
    Normal,
    /// Measures until it is asked to stop.
    UntilStopped,
    /// Measures, and sees a latency above its break.
    Breaks(Nanos),
    /// Cannot measure.
    Fails(&'static str),
}

type Hook = Box<dyn Fn(&str) + Send + Sync>;

/// What is shared by the machine, its loads and the audience.
#[derive(Default)]
pub(crate) struct Record {
    log: Mutex<Vec<String>>,
    /// Number of the next step, and the one that goes wrong.
    step: AtomicUsize,
    fault: Mutex<Option<(usize, Fault)>>,
    /// Whether the next undo leaves a setting alone.
    pub(crate) leaves_alone: AtomicBool,
    /// Loads that run now.
    pub(crate) loads_alive: AtomicUsize,
    /// Treatments in force now.
    pub(crate) treatments_in_force: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Record {
    pub(crate) fn say(&self, line: impl Into<String>) {
        lock(&self.log).push(line.into());
    }

    /// Whether that treatment was applied and not undone since.
    fn is_in_force(&self, name: &str) -> bool {
        let (applied, undone) = (format!("apply {name} "), format!(" {name}"));
        let is_of_it = |line: &&String| line.starts_with(&applied) || line.ends_with(&undone);
        lock(&self.log).iter().rfind(is_of_it).is_some_and(|line| line.starts_with(&applied))
    }

    /// Counts a step; whether it is to answer with an error.
    fn step(&self) -> bool {
        let number = self.step.fetch_add(1, Ordering::SeqCst);
        let mut fault = lock(&self.fault);
        match *fault {
            Some((at, kind)) if at == number => {
                *fault = None;
                drop(fault);
                assert!(kind != Fault::Panic, "planted: the process is gone at step {number}");
                true
            }
            _ => false,
        }
    }
}

/// The machine.
#[derive(Default)]
pub(crate) struct MockMachine {
    pub(crate) record: Arc<Record>,
    /// Which probes (`cell: probe`) do not behave normally.
    pub(crate) behaviours: Vec<(&'static str, Behaviour)>,
    /// Which load dies, and its last words.
    pub(crate) dying: Option<(&'static str, &'static str)>,
    /// How many probes have to be under way together before one ends.
    pub(crate) together: usize,
    /// Latencies that every probe tells of as they come.
    pub(crate) late: Vec<u64>,
    /// The treatment that halves every latency.
    pub(crate) helps: Option<&'static str>,
    /// What of a recording fails: `start`, `pause`, `resume`, `save` or `finish`.
    pub(crate) failing_trace: Option<&'static str>,
    /// Called with `cell: probe` when a probe begins.
    pub(crate) hook: Option<Hook>,
    /// Whether it cannot find causes.
    pub(crate) refuses_causes: bool,
    /// How long each probe was to measure.
    pub(crate) durations: Mutex<Vec<(&'static str, Nanos)>>,
    /// For each spike that was to be explained: the CPUs of the thread that looked for its causes.
    pub(crate) looked_from: Arc<Mutex<Vec<CpuSet>>>,
    /// The files of the machine; otherwise of this one.
    pub(crate) running: Option<HostRoot>,
    /// The facts that it shows after the run.
    pub(crate) facts: Option<Facts>,
    /// Probes that have begun, and the cell that the current ones belong to.
    pub(crate) begun: Mutex<usize>,
    pub(crate) changed: Condvar,
    pub(crate) cell: Arc<Mutex<String>>,
}

impl MockMachine {
    /// A machine whose step of that number goes wrong.
    pub(crate) fn failing_at(step: usize, fault: Fault) -> Self {
        let machine = Self::default();
        *lock(&machine.record.fault) = Some((step, fault));
        machine
    }

    /// Whether the planted fault has not happened.
    pub(crate) fn is_fault_left(&self) -> bool {
        lock(&self.record.fault).is_some()
    }

    pub(crate) fn audience(&self) -> MockAudience {
        MockAudience {
            record: Arc::clone(&self.record),
            cell: Arc::clone(&self.cell),
            stop_at: None,
            spikes: 0,
        }
    }

    /// Everything that was said.
    pub(crate) fn log(&self) -> Vec<String> {
        lock(&self.record.log).clone()
    }

    /// What was said that begins with one of these words.
    pub(crate) fn log_of(&self, words: &[&str]) -> Vec<String> {
        let mut log = self.log();
        log.retain(|line| words.iter().any(|word| line.starts_with(word)));
        log
    }

    /// The repeats of cells that were begun, in order.
    pub(crate) fn repeats(&self) -> Vec<String> {
        let mut repeats = self.log_of(&["repeat "]);
        repeats.dedup();
        repeats.into_iter().map(|line| line["repeat ".len()..].to_owned()).collect()
    }

    fn behaviour(&self, place: &str) -> Behaviour {
        let found = self.behaviours.iter().find(|(of, _)| *of == place);
        found.map_or(Behaviour::Normal, |(_, behaviour)| behaviour.clone())
    }

    /// Waits until as many probes as expected have begun together.
    fn wait_for_others(&self) {
        let together = self.together.max(1);
        let mut begun = lock(&self.begun);
        let expected = (*begun / together + 1) * together;
        *begun += 1;
        self.changed.notify_all();
        let deadline = Instant::now() + PATIENCE;
        while *begun < expected && Instant::now() < deadline {
            let waited = self.changed.wait_timeout(begun, Duration::from_millis(100));
            begun = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Machine for MockMachine {
    fn measure(
        &self,
        spec: &ProbeSpec,
        _stored: Nanos,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, ProbeError> {
        let name = if spec.duration == NOISE_FLOOR { "noise" } else { spec.name() };
        let place = format!("{}: {name}", lock(&self.cell));
        self.record.say(format!("begin {name} on {}", spec.cpus));
        lock(&self.durations).push((name, spec.duration));
        if let Some(hook) = &self.hook {
            hook(&place);
        }
        if self.record.step() {
            return Err(ProbeError::Failed("planted".to_owned()));
        }
        let mut outcome = Outcome::default();
        observer.armed(4_711, 0);
        if name != "noise" {
            self.wait_for_others();
        }
        match self.behaviour(&place) {
            Behaviour::Normal => {}
            Behaviour::Fails(reason) => return Err(ProbeError::Failed(reason.to_owned())),
            Behaviour::Breaks(latency) => {
                observer.first_spike(latency);
                outcome.broke = Some(latency);
            }
            Behaviour::UntilStopped => {
                let deadline = Instant::now() + PATIENCE;
                while !observer.should_stop() {
                    assert!(Instant::now() < deadline, "the probe was never asked to stop");
                    std::thread::sleep(Duration::from_millis(1));
                }
                outcome.stopped = true;
            }
        }
        let is_helped = self.helps.is_some_and(|name| self.record.is_in_force(name));
        let latency_ns = if is_helped { 50 } else { 100 };
        observer.spikes(&batch(spec, latency_ns).spikes);
        observer.progress(&Progress { elapsed: Nanos(0), duration: spec.duration, cpus: Vec::new() });
        if name != "noise" && !self.late.is_empty() {
            observer.spikes(&spikes_now(&self.late));
        }
        observer.batch(batch(spec, latency_ns)).map_err(ProbeError::Observer)?;
        self.record.say(format!("end {name}"));
        Ok(outcome)
    }

    fn start_load(&self, spec: &LoadSpec) -> Result<Box<dyn RunningLoad>, LoadError> {
        let name = match &spec.work {
            LoadWork::Memory(memory) if memory.working_set.0 == 1 << 20 => "a".to_owned(),
            LoadWork::Memory(_) => "b".to_owned(),
            LoadWork::Exec(exec) => exec.output.display().to_string(),
            other => other.unit().to_owned(),
        };
        self.record.say(format!("start {name}"));
        if self.record.step() {
            return Err(LoadError::Reported("planted".to_owned()));
        }
        self.record.loads_alive.fetch_add(1, Ordering::SeqCst);
        let death = self.dying.filter(|(dying, _)| *dying == name).map(|(_, reason)| reason);
        Ok(Box::new(MockLoad { record: Arc::clone(&self.record), name, taken: 0, death, stopped: false }))
    }

    fn hold_treatments(&self, run: &str, has_treatments: bool) -> Result<Held, TreatError> {
        assert!(!run.is_empty());
        if !has_treatments {
            return Ok(Held { treating: None, warnings: Vec::new() });
        }
        self.record.say("hold");
        if self.record.step() {
            return Err(TreatError::Held { holder: "planted".to_owned() });
        }
        let record = Arc::clone(&self.record);
        let warnings = vec![Warning { code: "mock-hold".to_owned(), text: ("held").into(), fix: None }];
        Ok(Held { treating: Some(Box::new(MockTreating { record, in_force: Vec::new() })), warnings })
    }

    fn start_trace(&self, request: &Request) -> Result<(Box<dyn Ring>, Vec<Warning>), RecordError> {
        let ring = MockRing { record: Arc::clone(&self.record), failing: self.failing_trace };
        ring.start(request)?;
        Ok((
            Box::new(ring),
            vec![Warning { code: "mock-trace".to_owned(), text: ("no idle states").into(), fix: None }],
        ))
    }

    fn running(&self) -> &HostRoot {
        static RUNNING: LazyLock<HostRoot> = LazyLock::new(HostRoot::real);
        self.running.as_ref().unwrap_or(&RUNNING)
    }

    fn find_causes(
        &self,
        probes: &[Measured],
        _: &Facts,
        _: Option<HistogramSource>,
    ) -> Result<Box<dyn FindsCauses>, BpfError> {
        self.record.say(format!("find causes of {} probes", probes.len()));
        if self.refuses_causes {
            let (source, remedy) = (std::io::Error::other("refused"), "run it as root".to_owned());
            return Err(BpfError::Refused { source, remedy });
        }
        let (record, looked_from) = (Arc::clone(&self.record), Arc::clone(&self.looked_from));
        let warnings = vec![Warning {
            code: "mock-causes".to_owned(),
            text: ("nothing of idle states").into(),
            fix: None,
        }];
        Ok(Box::new(MockCauses { record, looked_from, warnings }))
    }

    fn pause(&self, time: Duration) {
        self.record.say("settle");
        // There is no error to answer with.
        self.record.step();
        std::thread::sleep(time.min(Duration::from_millis(1)));
    }

    fn facts(&self) -> Facts {
        self.record.say("facts");
        self.record.step();
        self.facts.clone().unwrap_or_else(facts)
    }
}

fn batch(spec: &ProbeSpec, latency_ns: u64) -> Batch {
    let interval = |cpu| Interval {
        cpu,
        start_ns: 1_000,
        end_ns: 2_000,
        samples: SAMPLES,
        sum_ns: latency_ns * SAMPLES,
        min_ns: Some(latency_ns),
        max_ns: Some(latency_ns),
        quantities: Quantities::default()
            .with(OVERRUNS, spec.period().map(|_| 0))
            .with(GAPS, spec.period().is_none().then_some(0))
            .with(LOST_NS, spec.period().is_none().then_some(0)),
        spikes_dropped: 0,
        histogram: vec![(latency_ns, SAMPLES)],
        ..Interval::default()
    };
    let interrupt =
        |cpu| InterruptRecord { cpu, line: "LOC".to_owned(), description: String::new(), count: 3 };
    Batch {
        start_ns: 1_000,
        end_ns: 2_000,
        intervals: spec.cpus.iter().map(interval).collect(),
        spikes: vec![SpikeRecord {
            cpu: CpuId(3),
            at_ns: 1_500,
            latency_ns,
            sample: 1,
            ..SpikeRecord::default()
        }],
        interrupts: spec.cpus.iter().map(interrupt).collect(),
        ..Batch::default()
    }
}

/// The search for causes: every spike has one, and one interrupt is sent for each probe.
struct MockCauses {
    record: Arc<Record>,
    looked_from: Arc<Mutex<Vec<CpuSet>>>,
    warnings: Vec<Warning>,
}

impl FindsCauses for MockCauses {
    fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
    fn begin(&mut self, probes: &[Measured]) -> Result<(), BpfError> {
        let kinds: Vec<&str> =
            probes.iter().map(|probe| if probe.is_timer { "timer" } else { "stall" }).collect();
        self.record.say(format!("causes: begin {}", kinds.join(", ")));
        Ok(())
    }
    fn armed(&mut self, cpus: &CpuSet, process: u32, _: u64) -> Result<(), BpfError> {
        self.record.say(format!("causes: process {process} on {cpus}"));
        Ok(())
    }
    fn explain(&mut self, spikes: &[SpikeRecord]) -> Result<(), BpfError> {
        self.record.say(format!("causes: explain {}", spikes.len()));
        lock(&self.looked_from).push(schedule::allowed_of_this_thread().unwrap());
        Ok(())
    }
    fn causes_of(&self, cpu: CpuId, at_ns: u64) -> Option<SpikeCauses> {
        let causes = vec![Cause { confidence: Some(1.0), ..Cause::new(CauseKind::Irq) }];
        Some(SpikeCauses { cpu, at_ns, causes, ..SpikeCauses::default() })
    }
    fn forget(&mut self, _: CpuId, _: u64) {}
    fn ipis(&mut self) -> Result<Vec<IpiRecord>, BpfError> {
        let function = "do_flush_tlb_all".to_owned();
        Ok(vec![IpiRecord { cpu: CpuId(3), function, count: 2, ..IpiRecord::default() }])
    }
    fn sources(&mut self) -> Vec<SourceRecord> {
        let source = SourceRecord { cpu: CpuId(3), kind: CauseKind::Irq, gaps: 1, ..SourceRecord::default() };
        vec![SourceRecord { total_ns: 70, max_ns: 70, ..source }]
    }
    fn losses(&self) -> Vec<Warning> {
        vec![Warning { code: "mock-losses".to_owned(), text: ("one").into(), fix: None }]
    }
}

/// The treatments of the machine.
struct MockTreating {
    record: Arc<Record>,
    in_force: Vec<String>,
}

impl MockTreating {
    fn undo_all(&mut self, how: &str) {
        while let Some(name) = self.in_force.pop() {
            self.record.say(format!("{how} {name}"));
            self.record.treatments_in_force.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Treating for MockTreating {
    fn apply(
        &mut self,
        name: &str,
        kind: &TreatmentKind,
        target: &CpuSet,
    ) -> Result<Vec<Warning>, TreatError> {
        self.record.say(format!("apply {name} ({}) on {target}", kind.kind()));
        if self.record.step() {
            return Err(TreatError::Absent { target: "planted".to_owned() });
        }
        self.in_force.push(name.to_owned());
        self.record.treatments_in_force.fetch_add(1, Ordering::SeqCst);
        Ok(vec![Warning {
            code: "mock-treatment".to_owned(),
            text: format!("{name} is not thorough"),
            fix: None,
        }])
    }

    fn in_force(&self) -> Vec<TreatChange> {
        let change = |name: &String| TreatChange { treatment: name.clone(), ..TreatChange::default() };
        self.in_force.iter().map(change).collect()
    }

    fn undo(&mut self) -> Report {
        let left = self.record.step() || self.record.leaves_alone.swap(false, Ordering::SeqCst);
        let outcome = |name: &String| Undone {
            treatment: name.clone(),
            target: Target::file("/sys/mock"),
            old: "0".to_owned(),
            new: "1".to_owned(),
            fate: if left { Fate::LeftAlone { found: Some("2".to_owned()) } } else { Fate::Restored },
        };
        let outcomes = self.in_force.iter().rev().map(outcome).collect();
        self.undo_all("undo");
        Report { outcomes, ..Report::default() }
    }
}

impl Drop for MockTreating {
    fn drop(&mut self) {
        self.undo_all("drop treatment");
    }
}

/// A load of the machine.
struct MockLoad {
    record: Arc<Record>,
    name: String,
    taken: usize,
    death: Option<&'static str>,
    stopped: bool,
}

impl MockLoad {
    fn rate(value: f64) -> RateRecord {
        RateRecord { at_ns: 1_600 + value as u64, interval_ns: 100, value }
    }
}

impl RunningLoad for MockLoad {
    /// One rate of 1 at the first call (from before the probes), one of 2 at the second.
    fn take_rates(&mut self) -> Vec<RateRecord> {
        self.record.step();
        self.taken += 1;
        if self.taken == 1 {
            self.record.say(format!("rates of {}", self.name));
        }
        let is_new = self.taken <= 2;
        is_new.then(|| Self::rate(self.taken as f64)).into_iter().collect()
    }

    fn died(&mut self) -> Option<String> {
        if self.record.step() {
            return Some("planted".to_owned());
        }
        self.death.map(str::to_owned)
    }

    /// Brings one rate of 3.
    fn stop(mut self: Box<Self>) -> Result<LoadEnd, LoadError> {
        self.record.say(format!("stop {}", self.name));
        self.stopped = true;
        if self.record.step() {
            return Err(LoadError::Reported("planted".to_owned()));
        }
        if let Some(reason) = self.death {
            return Err(LoadError::Reported(reason.to_owned()));
        }
        let warnings = vec![Warning {
            code: "mock-load".to_owned(),
            text: format!("{} has something to say", self.name),
            fix: None,
        }];
        Ok(LoadEnd { rates: vec![Self::rate(3.0)], warnings, ..LoadEnd::default() })
    }
}

impl Drop for MockLoad {
    fn drop(&mut self) {
        if !self.stopped {
            self.record.say(format!("drop {}", self.name));
        }
        self.record.loads_alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Who watches.
pub(crate) struct MockAudience {
    record: Arc<Record>,
    cell: Arc<Mutex<String>>,
    /// The user wants to stop once this stage (`cell: what`) has begun.
    pub(crate) stop_at: Option<&'static str>,
    pub(crate) spikes: usize,
}

impl Audience for MockAudience {
    fn stage(&mut self, stage: &Stage<'_>) {
        self.record.say(format!("repeat {} {}", stage.cell, stage.repeat));
        self.record.say(format!("stage {} ({}/{})", stage.what, stage.done, stage.total));
        stage.cell.clone_into(&mut lock(&self.cell));
    }
    fn progress(&mut self, _progress: &Progress) {}
    fn first_spike(&mut self, _latency: Nanos) {
        self.spikes += 1;
    }
    fn should_stop(&self) -> bool {
        let Some((cell, what)) = self.stop_at.and_then(|stage| stage.split_once(": ")) else { return false };
        let log = lock(&self.record.log);
        let mut current = "";
        log.iter().any(|line| {
            if let Some(repeat) = line.strip_prefix("repeat ") {
                current = repeat;
            }
            current == cell && line.starts_with(&format!("stage {what} "))
        })
    }
}

/// What a run holds, in counts: of each repeat of each cell its error and its probes with samples, then interrupts,
/// spikes and rates of the cell.
pub(crate) fn counts(path: &Path) -> Vec<String> {
    let result = assemble(&Reader::open(path).unwrap()).unwrap();
    let mut lines = Vec::new();
    for cell in &result.cells {
        for repeat in &cell.repeats {
            let probes = repeat.probes.iter().map(|probe| format!("{}={}", probe.probe, probe.samples));
            let probes = probes.collect::<Vec<_>>().join(" ");
            lines.push(format!("{} {}: {probes} {:?}", cell.name, repeat.repeat, repeat.error));
        }
        let samples: u64 = cell.probes.iter().flat_map(|probe| &probe.cpus).map(|cpu| cpu.samples).sum();
        let interrupts: u64 = cell.interrupts.iter().map(|record| record.count).sum();
        let rates: Vec<Vec<f64>> =
            cell.rates.iter().map(|rate| rate.series.iter().map(|record| record.value).collect()).collect();
        let spikes = cell.spikes.len();
        lines.push(format!(
            "{}: {samples} samples, {interrupts} interrupts, {spikes} spikes, {rates:?}",
            cell.name
        ));
    }
    lines
}

/// `run.json` as it is on the disk.
pub(crate) fn info(path: &Path) -> RunInfo {
    Reader::open(path).unwrap().info().clone()
}
