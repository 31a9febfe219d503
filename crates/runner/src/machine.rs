//! What a run does to the machine, as an interface: tests replace it by a recording and check the order of the steps.

use crate::copies::copy_table;
use crate::treating::{Held, RealTreating};
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use whylate_bpf::BpfError;
use whylate_core::plan::CopiesPlan;
use whylate_core::record::RateRecord;
use whylate_core::result::{CopyTable, CpuRow, HistogramSource};
use whylate_core::{CpuSet, Facts, Nanos, Warning};
use whylate_host::cpu_table::Sampler;
use whylate_host::{Host, HostRoot, facts};
use whylate_load::{Load, LoadError, LoadSpec, LoadStatus};
use whylate_probe::copy_table::{BLOCKS, CopyRequest};
use whylate_probe::{Observer, Outcome, ProbeError, ProbeSpec};
use whylate_record::causes::{FindsCauses, Measured, find_causes};
use whylate_record::{RecordError, Recorder, Request, Ring};
use whylate_sys::process::Launcher;
use whylate_treat::TreatError;

/// The machine of a run. Shared by threads: probes on different CPUs measure together.
pub trait Machine: Sync {
    /// Measures with one probe, to its end.
    fn measure(
        &self,
        spec: &ProbeSpec,
        stored: Nanos,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, ProbeError>;

    /// Starts a load and waits until it is running at full effect.
    fn start_load(&self, spec: &LoadSpec) -> Result<Box<dyn RunningLoad>, LoadError>;

    /// Takes hold of the treatments for the run in `run`. A run without treatments holds none, and is informed about
    /// those in force.
    ///
    /// # Errors
    /// [`TreatError`] when others hold them, or they cannot be held here.
    fn hold_treatments(&self, run: &str, has_treatments: bool) -> Result<Held, TreatError>;

    /// Begins to record traces, and says what is not recorded.
    ///
    /// # Errors
    /// [`RecordError`], saying precisely what the kernel lacks or refuses.
    fn start_trace(&self, request: &Request) -> Result<(Box<dyn Ring>, Vec<Warning>), RecordError>;
    /// Begins to record what takes the CPUs of these probes, from that source or the best one that works.
    ///
    /// # Errors
    /// [`BpfError`], saying what the kernel lacks or refuses.
    fn find_causes(
        &self,
        probes: &[Measured],
        facts: &Facts,
        source: Option<HistogramSource>,
    ) -> Result<Box<dyn FindsCauses>, BpfError>;

    /// Measures the table of copies, on one of the CPUs.
    fn copies(&self, plan: &CopiesPlan, cpus: &CpuSet) -> Result<CopyTable, ProbeError> {
        let request = CopyRequest {
            cpu: cpus.first().unwrap_or_default(),
            from: None,
            to: None,
            methods: plan.methods.clone(),
            backend: None,
            device: None,
            blocks: BLOCKS.to_vec(),
            frame: plan.frame,
            trials: plan.trials,
        };
        // The thread stays where it copied; the runner must not.
        let copying = std::thread::spawn(move || copy_table(&request, &mut |_| true));
        copying.join().unwrap_or_else(|_| Err(ProbeError::Failed("the copying thread panicked".to_owned())))
    }

    /// The rows of the CPU table now; none if it cannot be read.
    fn cpu_rows(&self) -> Vec<CpuRow> {
        let table = Sampler::start(self.running()).and_then(|mut sampler| sampler.table(&self.facts()));
        table.map(|table| table.cpus).unwrap_or_default()
    }

    /// The files of the running machine.
    fn running(&self) -> &HostRoot;

    fn pause(&self, time: Duration);

    /// Reads the machine's facts again.
    fn facts(&self) -> Facts;
}

pub trait RunningLoad {
    /// What it achieved since the last call; never waits.
    fn take_rates(&mut self) -> Vec<RateRecord>;
    /// Why it has ended, when it has.
    fn died(&mut self) -> Option<String>;
    /// Stops it, within a bounded time.
    ///
    /// # Errors
    /// When it had ended before, or could not be ended.
    fn stop(self: Box<Self>) -> Result<LoadEnd, LoadError>;
}

/// What is left of a load.
#[derive(Clone, Debug, Default)]
pub struct LoadEnd {
    /// Rates not taken yet.
    pub rates: Vec<RateRecord>,
    /// What was not as asked.
    pub warnings: Vec<Warning>,
    /// How it works, for people.
    pub detail: String,
    /// How long it ran at full effect.
    pub ran: Duration,
}

/// How long a load may take to be ready: filling a large working set takes time.
const LOAD_READY_WITHIN: Duration = Duration::from_secs(120);

#[derive(Clone, Debug)]
pub struct RealMachine {
    launcher: Launcher,
    host: Host,
}

impl RealMachine {
    /// The machine, with this program as the one that measuring and loading processes are started from.
    ///
    /// # Errors
    /// When the path of this program is not known.
    pub fn new(host: Host) -> io::Result<Self> {
        Ok(Self { launcher: Launcher::current()?, host })
    }
}

/// The hidden commands: a measuring process, a load, and the step before a load's command. `None` for any other word.
pub fn hidden_command(
    word: &OsStr,
    host: &HostRoot,
    arguments: impl Iterator<Item = OsString>,
) -> Option<ExitCode> {
    match word.to_str()? {
        "internal-probe" => Some(whylate_probe::child::main(host, arguments)),
        "internal-load" => Some(whylate_load::child_main(host.clone(), io::stdin(), io::stdout())),
        "internal-exec" => Some(whylate_load::exec_main(host, arguments)),
        _ => None,
    }
}

impl Machine for RealMachine {
    fn measure(
        &self,
        spec: &ProbeSpec,
        stored: Nanos,
        observer: &mut dyn Observer,
    ) -> Result<Outcome, ProbeError> {
        whylate_probe::measure(&self.host, &self.launcher, spec, stored, observer)
    }

    fn start_load(&self, spec: &LoadSpec) -> Result<Box<dyn RunningLoad>, LoadError> {
        let mut load = Load::start(&self.launcher, spec)?;
        let detail = load.wait_ready(LOAD_READY_WITHIN)?.detail;
        Ok(Box::new(ReadyLoad { load, detail, since: Instant::now() }))
    }

    fn hold_treatments(&self, run: &str, has_treatments: bool) -> Result<Held, TreatError> {
        RealTreating::hold(&self.host.settings, run, has_treatments)
    }

    fn start_trace(&self, request: &Request) -> Result<(Box<dyn Ring>, Vec<Warning>), RecordError> {
        let (recorder, warnings) = Recorder::start(&self.host.settings, request)?;
        Ok((Box::new(recorder), warnings))
    }

    fn find_causes(
        &self,
        probes: &[Measured],
        facts: &Facts,
        source: Option<HistogramSource>,
    ) -> Result<Box<dyn FindsCauses>, BpfError> {
        find_causes(&self.host, probes, facts, source)
    }

    fn running(&self) -> &HostRoot {
        &self.host.running
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn facts(&self) -> Facts {
        facts::collect(&self.host.running).0
    }
}

/// A load that runs at full effect.
struct ReadyLoad {
    load: Load,
    detail: String,
    since: Instant,
}

impl RunningLoad for ReadyLoad {
    fn take_rates(&mut self) -> Vec<RateRecord> {
        self.load.take_rates()
    }

    fn died(&mut self) -> Option<String> {
        match self.load.status() {
            LoadStatus::Died(reason) => Some(reason),
            LoadStatus::Finished => Some("it finished before it was stopped".to_owned()),
            LoadStatus::Starting | LoadStatus::Running => None,
        }
    }

    fn stop(mut self: Box<Self>) -> Result<LoadEnd, LoadError> {
        let ran = self.since.elapsed();
        let outcome = self.load.stop()?;
        Ok(LoadEnd { rates: outcome.rates, warnings: outcome.warnings, detail: self.detail, ran })
    }
}
