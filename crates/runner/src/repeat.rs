//! One repeat of one cell: treatments, noise floor, loads, settle, probes, stop, undo. Loads are stopped and treatments
//! are undone whatever happens.

use crate::audience::{Audience, Stage};
use crate::causes::CauseSearch;
use crate::error::RepeatError;
use crate::follow::{EVENTS_MAX, Forward, ProbeEvent, Watch};
use crate::gpus::GpuWatch;
use crate::keep;
use crate::machine::{LoadEnd, Machine, RunningLoad};
use crate::prepare::{Experiment, PreparedCell, PreparedLoad};
use crate::tracing::Tracing;
use crate::treating::Treating;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};
use whylate_core::result::{CpuTableAt, RunEnd, TreatChange};
use whylate_core::warning::{not_restored, push_all_once, push_once};
use whylate_core::{Nanos, Warning, WarningCode};
use whylate_host::facts::GpuQuestion;
use whylate_probe::{Elsewhere, ProbeError, ProbeSpec, Progress};
use whylate_store::{NOISE_FLOOR, RateKey, RowKey, Sink};
use whylate_sys::allocation;

/// How often loads, the clock and the user are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often treatments are read back while they are measured.
const HELD_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Repeat<'a> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) machine: &'a dyn Machine,
    pub(crate) audience: &'a mut dyn Audience,
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) warnings: &'a mut Vec<Warning>,
    /// `None` if the run has no treatments.
    pub(crate) treating: Option<&'a mut (dyn Treating + 'static)>,
    pub(crate) tracing: &'a mut Tracing,
    pub(crate) causing: &'a mut CauseSearch,
    pub(crate) cell: &'a PreparedCell,
    pub(crate) name: &'a str,
    pub(crate) repeat: u32,
    pub(crate) attempt: u32,
    /// Repeats that are done, and in all.
    pub(crate) place: (u32, u32),
    /// The CPU tables of the run.
    pub(crate) cpu_tables: &'a mut Vec<CpuTableAt>,
    /// What is left of the loads that were stopped.
    pub(crate) ended: Vec<LoadEnd>,
}

/// A load under way, and the place for its rates.
struct Running {
    name: String,
    load: Box<dyn RunningLoad>,
    key: Arc<RateKey>,
}

impl Repeat<'_> {
    pub(crate) fn run(&mut self) -> Result<RunEnd, RepeatError> {
        if self.cell.treatments().next().is_none() {
            return self.measure();
        }
        let mut outcome = self.apply().and_then(|()| self.measure());
        let is_whole = matches!(outcome, Ok(RunEnd::Completed));
        let problem = self.treating.as_ref().filter(|_| is_whole).and_then(|it| it.not_held());
        if let Some(problem) = problem {
            outcome = Err(RepeatError::NotHeld(problem));
        }
        self.undo();
        outcome
    }

    /// Applies the treatments of the cell, in its order.
    fn apply(&mut self) -> Result<(), RepeatError> {
        for name in self.cell.treatments() {
            self.stage("applying treatments");
            let Some(treatment) = self.experiment.plan.treatment(name) else { continue };
            let Some(treating) = self.treating.as_mut() else { continue };
            let warnings = treating.apply(name, &treatment.kind, &self.experiment.target)?;
            push_all_once(self.warnings, warnings);
        }
        if let Some(changes) = self.treating.as_ref().map(|treating| treating.in_force()) {
            self.keep_changes(&changes)?;
        }
        // After the table before the run, that of the first cell with a shield.
        if self.cpu_tables.len() == 1 && self.experiment.has_shield(self.cell) {
            self.cpu_tables.push(CpuTableAt { at: self.name.to_owned(), cpus: self.machine.cpu_rows() });
        }
        Ok(())
    }

    /// Undoes the treatments; a setting that was not restored is a warning.
    fn undo(&mut self) {
        self.stage("restoring settings");
        let Some(treating) = self.treating.as_mut() else { return };
        let report = treating.undo();
        push_all_once(self.warnings, report.problems().into_iter().map(not_restored));
        // The settings are as the problems say; the next command reads the journal again.
        let journal = report.journal_error.iter().map(|error| Warning::new(WarningCode::Journal, error));
        push_all_once(self.warnings, journal);
        let changes: Vec<TreatChange> = report.outcomes.iter().map(TreatChange::from).collect();
        if let Err(error) = self.keep_changes(&changes) {
            let text = format!("the list of restored settings could not be stored in the run: {error}");
            push_once(self.warnings, Warning::new(WarningCode::TreatmentsNotKept, text));
        }
    }

    /// A copy of the journal's changes, kept with the run.
    fn keep_changes(&self, changes: &[TreatChange]) -> Result<(), RepeatError> {
        let line = serde_json::json!({
            "cell": self.name,
            "repeat": self.repeat,
            "attempt": self.attempt,
            "changes": changes,
        });
        Ok(self.sink.directory().map_or(Ok(()), |directory| directory.add_treatments(&line.to_string()))?)
    }

    fn measure(&mut self) -> Result<RunEnd, RepeatError> {
        let deadline = Instant::now() + Duration::from_nanos(self.experiment.plan.repeat_timeout().0);
        if let Some(noise_floor) = &self.experiment.noise_floor {
            self.stage("noise floor");
            // It is not traced: its gaps occur without the recording, too.
            match self.group(std::slice::from_ref(noise_floor), NOISE_FLOOR, &mut [], deadline) {
                // An error here will also occur with the probes, where it is reported.
                Ok(RunEnd::Completed)
                | Err(RepeatError::Probe { source: ProbeError::Starved { .. }, .. }) => {}
                other => return other,
            }
        }
        let mut loads = Vec::new();
        let outcome = self.under_load(&mut loads, deadline);
        let stopped = self.stop_loads(loads);
        // The reason why a probe failed says more than what its loads did afterwards.
        outcome.and_then(|end| stopped.map(|()| end))
    }

    fn under_load(&mut self, loads: &mut Vec<Running>, deadline: Instant) -> Result<RunEnd, RepeatError> {
        let cell = self.cell;
        for load in cell.loads.iter().flatten() {
            self.stage("starting loads");
            loads.push(self.start_load(load)?);
        }
        // Also without loads: effects of the previous cell decay.
        if self.settle(deadline) {
            return Ok(RunEnd::Interrupted);
        }
        // What the loads did before the probes does not count.
        loads.iter_mut().for_each(|running| drop(running.load.take_rates()));
        for group in &self.experiment.probes {
            let names: Vec<&str> = group.iter().map(ProbeSpec::name).collect();
            self.stage(&names.join(" and "));
            let specs = self.tracing.begin(self.name, group, self.warnings);
            let end = self.group(&specs, "", loads, deadline);
            self.tracing.pause(self.name, group, self.warnings);
            match end? {
                RunEnd::Completed => {}
                other => return Ok(other),
            }
        }
        if self.experiment.probes.is_empty() { Ok(self.let_run(loads)?) } else { Ok(RunEnd::Completed) }
    }

    /// Lets the loads run for the plan's duration, without a probe.
    fn let_run(&mut self, loads: &mut [Running]) -> Result<RunEnd, RepeatError> {
        let (begin, duration) = (Instant::now(), self.experiment.plan.duration);
        let length = Duration::from_nanos(duration.0);
        // This thread may be late, for example on a machine that the load keeps busy.
        let deadline = begin + length + Duration::from_nanos(self.experiment.plan.repeat_timeout().0);
        let stop = AtomicBool::new(false);
        let gpus = GpuWatch::start(self.machine.running(), Arc::new(self.row_key("")));
        gpus.iter().for_each(|gpus| gpus.ask(Some(GpuQuestion::Device), self.sink));
        let (keys, specs) = (&[], &[]);
        let mut watch = Watch {
            keys,
            specs,
            stop: &stop,
            deadline,
            end: None,
            begun: begin,
            flushed: begin,
            held: begin,
            gpus,
        };
        while watch.end.is_none() && begin.elapsed() < length {
            self.machine.pause(LOOK_EVERY.min(length.saturating_sub(begin.elapsed())));
            let elapsed = Nanos(begin.elapsed().as_nanos() as u64);
            self.audience.progress(&Progress { elapsed, duration, cpus: Vec::new() });
            self.look(&mut watch, loads);
        }
        watch.end.unwrap_or(Ok(RunEnd::Completed))
    }

    fn row_key(&self, probe: &str) -> RowKey {
        let (cell, probe) = (self.name.to_owned(), probe.to_owned());
        RowKey { cell, repeat: self.repeat, attempt: self.attempt, probe }
    }

    fn stage(&mut self, what: &str) {
        let (done, total) = self.place;
        self.audience.stage(&Stage { cell: self.name, repeat: self.repeat, what, done, total });
    }

    fn start_load(&mut self, load: &PreparedLoad) -> Result<Running, RepeatError> {
        let key = Arc::new(RateKey {
            cell: self.name.to_owned(),
            repeat: self.repeat,
            attempt: self.attempt,
            load: load.name.clone(),
            unit: load.unit.clone(),
        });
        let mut spec = load.spec.clone();
        spec.work.set_output(self.sink.load_output_path(&key));
        let started = self.machine.start_load(&spec);
        let load_handle = started.map_err(|source| RepeatError::Load { name: load.name.clone(), source })?;
        Ok(Running { name: load.name.clone(), load: load_handle, key })
    }

    /// Waits for the settle time; whether the user wants to stop.
    fn settle(&mut self, deadline: Instant) -> bool {
        let end = (Instant::now() + Duration::from_nanos(self.experiment.plan.settle.0)).min(deadline);
        let mut left = Duration::from_nanos(self.experiment.plan.settle.0);
        while !left.is_zero() && !self.audience.should_stop() {
            self.machine.pause(left.min(LOOK_EVERY));
            left = end.saturating_duration_since(Instant::now());
        }
        self.audience.should_stop()
    }

    /// Measures with the probes of one group together. `probe` replaces their names in the tables unless empty.
    fn group(
        &mut self,
        specs: &[ProbeSpec],
        probe: &str,
        loads: &mut [Running],
        deadline: Instant,
    ) -> Result<RunEnd, RepeatError> {
        let name =
            |spec: &ProbeSpec| if probe.is_empty() { spec.name().to_owned() } else { probe.to_owned() };
        let keys: Vec<Arc<RowKey>> = specs.iter().map(|spec| Arc::new(self.row_key(&name(spec)))).collect();
        self.causing.begin(specs, self.warnings);
        // Keep this thread (causes, traces, storage) off the measured CPUs.
        let _elsewhere =
            specs.first().map(|spec| Elsewhere::move_to(self.machine.running(), &spec.other_cpus));
        let gpus = keys.first().filter(|_| probe.is_empty());
        let gpus = gpus.and_then(|key| GpuWatch::alongside(specs, self.machine.running(), key, self.sink));
        let companions = specs.iter().filter(|spec| spec.is_companion()).count();
        let (stop, left) = (AtomicBool::new(false), AtomicUsize::new(specs.len() - companions));
        let (stop, left, untold) = (&stop, &left, &AtomicU64::new(0));
        let (sender, events) = sync_channel(EVENTS_MAX);
        let (machine, plan) = (self.machine, &self.experiment.plan);
        let (stored, longest) = (plan.stored_interval(), plan.repeat_timeout());
        std::thread::scope(|scope| {
            let spawn = |index: usize, spec: &ProbeSpec, ready: Option<Sender<()>>| {
                let is_companion = spec.is_companion();
                // A companion of others ends with them: only they are bounded by the duration.
                let others = (is_companion && companions < specs.len()).then_some(left);
                let duration = if others.is_some() { longest } else { spec.duration };
                let spec = ProbeSpec { duration, ..spec.clone() };
                let (events, refused) = (sender.clone(), sender.clone());
                let ended = move |events: &SyncSender<ProbeEvent>, outcome| {
                    if !is_companion {
                        left.fetch_sub(1, Ordering::Relaxed);
                    }
                    let _ = events.send(ProbeEvent::Ended(index, Box::new(outcome)));
                };
                let measure = move || {
                    let mut forward = Forward { index, events: events.clone(), stop, others, ready, untold };
                    let outcome = machine.measure(&spec, stored, &mut forward);
                    drop(forward);
                    ended(&events, outcome);
                };
                if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, measure) {
                    let reason = format!("cannot start a thread for the probe: {error}");
                    ended(&refused, Err(ProbeError::Failed(reason)));
                }
            };
            let numbered = || specs.iter().enumerate();
            let (ready, armed) = channel::<()>();
            for (index, spec) in numbered().filter(|(_, spec)| spec.is_companion()) {
                spawn(index, spec, Some(ready.clone()));
            }
            drop(ready);
            // Ends when every companion is ready, or has ended: it counts the others from their start on.
            let _ = armed.recv();
            for (index, spec) in numbered().filter(|(_, spec)| !spec.is_companion()) {
                spawn(index, spec, None);
            }
            drop(sender);
            let begun = Instant::now();
            let keys = &keys;
            let mut watch =
                Watch { keys, specs, stop, deadline, end: None, begun, flushed: begun, held: begun, gpus };
            let end = self.follow(&events, &mut watch, loads);
            watch.gpus.iter().for_each(|gpus| gpus.ask(Some(GpuQuestion::Device), self.sink));
            self.causing.keep_counts(keys, specs, self.sink, self.warnings);
            self.causing.note_untold(untold.load(Ordering::Relaxed));
            end
        })
    }

    /// Handles events until every probe has ended. If something goes wrong, all of them are asked to end, and the
    /// error is returned then.
    fn follow(
        &mut self,
        events: &Receiver<ProbeEvent>,
        watch: &mut Watch<'_>,
        loads: &mut [Running],
    ) -> Result<RunEnd, RepeatError> {
        loop {
            match events.recv_timeout(LOOK_EVERY) {
                Ok(ProbeEvent::Progress(progress)) => self.audience.progress(&progress),
                // The noise floor is not one of the plan's probes.
                Ok(ProbeEvent::FirstSpike(_)) if watch.keys.iter().any(|key| key.probe == NOISE_FLOOR) => {}
                Ok(ProbeEvent::FirstSpike(latency)) => self.audience.first_spike(latency),
                Ok(ProbeEvent::Armed { index, process, start_ns }) => {
                    let cpus = &watch.specs[index].cpus;
                    self.search(|causes, warnings| causes.armed(cpus, process, start_ns, warnings));
                }
                // If tasks are watched together with other probes, the traces are of those probes.
                Ok(ProbeEvent::Spikes(index, _)) if watch.is_alongside(index) => {}
                Ok(ProbeEvent::Spikes(index, spikes)) => {
                    self.tracing.hold(&spikes, self.warnings);
                    self.audience.spikes(&spikes);
                    if !watch.explains_itself(index) {
                        self.search(|causes, warnings| causes.explain(&spikes, warnings));
                    }
                    if let Some(directory) = self.sink.directory() {
                        self.tracing.spikes(&watch.keys[index], &spikes, directory, self.warnings);
                    }
                }
                Ok(ProbeEvent::Tasks(tasks)) => self.audience.tasks(&tasks),
                Ok(ProbeEvent::Triggers(triggers)) => self.audience.triggers(&triggers),
                Ok(ProbeEvent::Happened(happened)) => self.audience.happened(happened),
                Ok(ProbeEvent::Batch(index, batch)) => {
                    if let Err(error) = self.keep(&watch.keys[index], &watch.specs[index], *batch) {
                        watch.end_with(Err(error.into()));
                    }
                }
                Ok(ProbeEvent::Ended(index, outcome)) => {
                    let probe = watch.keys[index].probe.clone();
                    match *outcome {
                        Ok(outcome) => self.ended(index, outcome, watch),
                        Err(source) => watch.end_with(Err(RepeatError::Probe { probe, source })),
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look(watch, loads);
        }
        watch.end.take().unwrap_or(Ok(RunEnd::Completed))
    }

    /// Lets the search for causes do something; if that fails, the audience is informed at once.
    fn search(&mut self, act: impl FnOnce(&mut CauseSearch, &mut Vec<Warning>)) {
        let known = self.warnings.len();
        act(self.causing, self.warnings);
        self.warnings[known..].iter().for_each(|warning| self.audience.lost(warning));
    }

    /// Checks everything that can end a measurement early.
    fn look(&mut self, watch: &mut Watch<'_>, loads: &mut [Running]) {
        watch.gpus.iter().for_each(|gpus| gpus.keep(self.sink));
        for running in loads.iter_mut() {
            let rates = running.load.take_rates();
            rates.iter().for_each(|rate| self.audience.rate(&running.key.unit, rate));
            self.sink.rows().add_rates(&running.key, rates);
            if watch.end.is_none()
                && let Some(reason) = running.load.died()
            {
                watch.end_with(Err(RepeatError::LoadDied { name: running.name.clone(), reason }));
            }
        }
        if watch.end.is_none() && self.audience.should_stop() {
            match self.audience.decides_end() {
                true => watch.end_with(Ok(RunEnd::Completed)),
                false => watch.end_with(Ok(RunEnd::Interrupted)),
            }
        }
        if watch.end.is_none() && watch.held.elapsed() >= HELD_EVERY {
            watch.held = Instant::now();
            if let Some(problem) = self.treating.as_ref().and_then(|it| it.not_held()) {
                watch.end_with(Err(RepeatError::NotHeld(problem)));
            }
        }
        if watch.end.is_none() && allocation::is_exhausted() {
            watch.end_with(Err(RepeatError::OutOfMemory));
        }
        if watch.end.is_none() && Instant::now() > watch.deadline {
            watch.end_with(Err(RepeatError::Timeout(self.experiment.plan.repeat_timeout())));
        }
        if watch.flushed.elapsed() >= keep::flush_after(watch.specs, watch.flushed - watch.begun) {
            watch.flushed = Instant::now();
            self.causing.keep_counts(watch.keys, watch.specs, self.sink, self.warnings);
            if let Err(error) = self.sink.flush() {
                watch.end_with(Err(error.into()));
            }
        }
    }

    /// Stops every load; the first error is returned when all are stopped.
    fn stop_loads(&mut self, loads: Vec<Running>) -> Result<(), RepeatError> {
        let mut outcome = Ok(());
        for mut running in loads {
            self.sink.rows().add_rates(&running.key, running.load.take_rates());
            match running.load.stop() {
                Ok(mut end) => {
                    self.sink.rows().add_rates(&running.key, std::mem::take(&mut end.rates));
                    push_all_once(self.warnings, std::mem::take(&mut end.warnings));
                    self.ended.push(end);
                }
                Err(source) if outcome.is_ok() => {
                    outcome = Err(RepeatError::Load { name: running.name, source });
                }
                Err(_) => {}
            }
        }
        outcome
    }
}
