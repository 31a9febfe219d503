//! Latency histograms of the kernel, from the best source of events that this machine has.
//!
//! BPF programs count in the kernel. If they are not possible (no type information, a locked-down kernel, a
//! container), latencies are counted from a trace buffer, and a warning says what is lost. Each source is tried, not
//! guessed.

mod counter;
mod live;
mod step;

use super::RecordError;
use live::TraceHistograms;
pub(crate) use live::threads_of;
use whylate_bpf::{
    BpfError, Causes, Histograms, HistogramsChange, HistogramsConfig, HistogramsSnapshot, ProgramCost,
    check_grace_periods,
};
use whylate_core::order::InOrder;
use whylate_core::record::IpiRecord;
use whylate_core::recording::Recording;
use whylate_core::result::{HistogramKind, HistogramSource};
use whylate_core::{CpuId, CpuSet, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_treat::TreatError;

enum Source {
    Bpf(Box<Histograms>),
    Watching(Box<Causes>),
    Tracefs(Box<TraceHistograms>),
}

enum Counting<'a> {
    InKernel(&'a mut Histograms),
    /// This process, from a trace buffer.
    Here(&'a mut TraceHistograms),
}

impl Source {
    fn counting(&mut self) -> Counting<'_> {
        match self {
            Self::Bpf(running) => Counting::InKernel(running),
            Self::Watching(causes) => Counting::InKernel(causes.histograms()),
            Self::Tracefs(running) => Counting::Here(running),
        }
    }
}

/// Running histograms. They end when this is dropped; [`Self::finish`] says what could not be restored.
pub struct LatencyHistograms {
    source: Source,
    cpus: CpuSet,
    /// The interrupts from other CPUs so far.
    ipis: Vec<IpiRecord>,
}

impl LatencyHistograms {
    /// Starts the histograms from `source`, or from the best one that works, with warnings about what is lost.
    /// `with_ipis` also counts interrupts from other CPUs.
    ///
    /// # Errors
    /// [`RecordError::Unavailable`] with every source's reason when none works; other errors when the request itself
    /// is wrong.
    pub fn start(
        host: &HostRoot,
        config: &HistogramsConfig,
        source: Option<HistogramSource>,
        with_ipis: bool,
    ) -> Result<(Self, Vec<Warning>), RecordError> {
        let bpf = match source {
            Some(HistogramSource::Tracefs) => None,
            _ => Some(start_bpf(host, config, with_ipis)),
        };
        let new = |source| Self { source, cpus: config.cpus.clone(), ipis: Vec::new() };
        let refused = match bpf {
            Some(Ok((source, warnings))) => return Ok((new(source), warnings)),
            Some(Err(error)) if source.is_some() || !error.has_substitute() => return Err(error.into()),
            Some(Err(error)) => Some(error),
            None => None,
        };
        let running = match TraceHistograms::start(host, config) {
            Ok(running) => running,
            Err(RecordError::Unavailable(reason)) => return Err(unavailable(refused.as_ref(), &reason)),
            Err(error) if is_refusal(&error) => {
                return Err(unavailable(refused.as_ref(), &error.to_string()));
            }
            Err(error) => return Err(error),
        };
        let mut warnings = vec![tracefs_warning(refused.as_ref())];
        if with_ipis {
            let text = "interrupts from other CPUs are not counted: only BPF programs can count them";
            warnings.push(Warning::new(WarningCode::IpisNotCounted, text));
        }
        Ok((new(Source::Tracefs(Box::new(running))), warnings))
    }

    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// The interrupts that other CPUs sent to the measured ones since the start; `None` if they are not counted.
    pub fn ipis(&mut self) -> Result<Option<Vec<IpiRecord>>, RecordError> {
        let Source::Watching(causes) = &mut self.source else { return Ok(None) };
        for new in causes.ipis()? {
            let is_same = |old: &&mut IpiRecord| {
                (old.cpu, &old.function, &old.caller, old.from_cpu, &old.from_task)
                    == (new.cpu, &new.function, &new.caller, new.from_cpu, &new.from_task)
            };
            match self.ipis.iter_mut().find(is_same) {
                Some(old) => old.count += new.count,
                None => self.ipis.push(new),
            }
        }
        self.ipis.order_by_key(|ipi| (ipi.cpu, std::cmp::Reverse(ipi.count)));
        Ok(Some(self.ipis.clone()))
    }

    /// What had a CPU since `from_ns` and has ended by now; `None` if that is not recorded, for example without the
    /// interrupts of other CPUs. Call it several times a second: the ring of a CPU may hold as few as 16,384 records.
    pub fn activity(&self, cpu: CpuId, from_ns: u64) -> Result<Option<Recording>, RecordError> {
        match &self.source {
            Source::Watching(causes) => Ok(Some(causes.since(cpu, from_ns)?)),
            Source::Bpf(_) | Source::Tracefs(_) => Ok(None),
        }
    }

    /// Where the events come from.
    pub fn source(&self) -> HistogramSource {
        match self.source {
            Source::Bpf(_) | Source::Watching(_) => HistogramSource::Bpf,
            Source::Tracefs(_) => HistogramSource::Tracefs,
        }
    }

    /// Call it several times a second: it reads the trace buffer, if there is one.
    pub fn poll(&mut self) -> Result<(), RecordError> {
        match &mut self.source {
            Source::Bpf(_) | Source::Watching(_) => Ok(()),
            Source::Tracefs(running) => running.poll(),
        }
    }

    /// Changes the histograms of these CPUs.
    ///
    /// # Errors
    /// When the kernel does not take the change.
    pub fn change(
        &mut self,
        change: HistogramsChange,
        kinds: &[HistogramKind],
        cpus: &CpuSet,
    ) -> Result<(), RecordError> {
        match self.source.counting() {
            Counting::InKernel(running) => Ok(running.change(change, kinds, cpus)?),
            Counting::Here(running) => running.change(change, kinds, cpus),
        }
    }

    /// The histograms that are on, CPU by CPU.
    pub fn enabled(&mut self) -> Vec<(CpuId, HistogramKind)> {
        match self.source.counting() {
            Counting::InKernel(running) => running.enabled().collect(),
            Counting::Here(running) => running.enabled().iter().copied().collect(),
        }
    }

    /// Reads everything that is on.
    ///
    /// # Errors
    /// When the kernel's counts or events cannot be read.
    pub fn read(&mut self) -> Result<HistogramsSnapshot, RecordError> {
        match self.source.counting() {
            Counting::InKernel(running) => Ok(running.read()?),
            Counting::Here(running) => running.snapshot(),
        }
    }

    /// What the programs in the kernel have cost so far; none without programs.
    pub fn costs(&mut self) -> Vec<ProgramCost> {
        match self.source.counting() {
            Counting::InKernel(running) => running.costs(),
            Counting::Here(_) => Vec::new(),
        }
    }

    /// Ends the histograms and restores everything.
    ///
    /// # Errors
    /// [`RecordError::LeftBehind`] when something could not be restored.
    pub fn finish(self) -> Result<(), RecordError> {
        match self.source {
            Source::Bpf(_) | Source::Watching(_) => Ok(()),
            Source::Tracefs(running) => running.finish(),
        }
    }
}

fn start_bpf(
    host: &HostRoot,
    config: &HistogramsConfig,
    with_ipis: bool,
) -> Result<(Source, Vec<Warning>), BpfError> {
    check_grace_periods(host)?;
    if !with_ipis {
        let running = Histograms::start(config)?;
        let warnings = bpf_warnings(&running, config);
        return Ok((Source::Bpf(Box::new(running)), warnings));
    }
    let mut causes = Causes::start(host, &config.cpus, config)?;
    let mut warnings = bpf_warnings(causes.histograms(), config);
    let senders = causes.facilities().iter().find(|facility| facility.name == "senders of interrupts");
    if let Some(reason) = senders.and_then(|facility| facility.missing.as_ref()) {
        let text = format!("interrupts from other CPUs are not all counted: {reason}");
        warnings.push(Warning::new(WarningCode::IpisNotCounted, text));
    }
    // Discards the interrupts that attaching the programs has sent.
    causes.ipis()?;
    Ok((Source::Watching(Box::new(causes)), warnings))
}

/// Whether the kernel refuses this process a trace buffer.
fn is_refusal(error: &RecordError) -> bool {
    let source = match error {
        RecordError::Read { source, .. } | RecordError::Write { source, .. } => source,
        RecordError::Journal(TreatError::State { source, .. }) => source,
        // The other user of the buffer may end, and the journal can be repaired.
        RecordError::Journal(
            TreatError::Held { .. }
            | TreatError::InForce { .. }
            | TreatError::Damaged { .. }
            | TreatError::Untrusted { .. },
        ) => return false,
        // The change is refused: usually in a container.
        RecordError::Journal(_) => return true,
        _ => return false,
    };
    matches!(source.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)
}

fn unavailable(bpf: Option<&BpfError>, tracefs: &str) -> RecordError {
    let bpf = bpf.map(|error| format!("BPF: {error}; ")).unwrap_or_default();
    RecordError::Unavailable(format!("latency histograms are not possible here: {bpf}tracefs: {tracefs}"))
}

/// What was asked for and this kernel lacks.
fn bpf_warnings(running: &Histograms, config: &HistogramsConfig) -> Vec<Warning> {
    let asked = |kind: &HistogramKind| config.kinds.contains(kind);
    let missing = running.unavailable().iter().filter(|(kind, _)| asked(kind));
    let mut warnings: Vec<Warning> = missing
        .map(|(kind, reason)| {
            Warning::new(WarningCode::HistogramMissing, format!("there is no histogram {kind}: {reason}"))
        })
        .collect();
    if !running.sees_switch_end() && asked(&HistogramKind::TimerWakeupSwitch) {
        warnings.push(Warning::new(WarningCode::SwitchEndUnknown, "this kernel has no event for the end of a switch: timerwakeupswitch ends with the decision to run the \
             task, so the time of the switch (about 1 us) is missing"));
    }
    warnings
}

fn tracefs_warning(bpf: Option<&BpfError>) -> Warning {
    let why =
        bpf.map(|error| format!(", because BPF programs are not possible: {error}")).unwrap_or_default();
    let text = format!(
        "latencies come from a trace buffer{why}. The histogram switchoff is missing, timerwakeupswitch ends with the \
         decision to run the task, and records do not name system calls. Each event costs more CPU time, and events \
         that do not fit into the buffer are lost (and counted)"
    );
    Warning::new(WarningCode::HistogramsFromTracefs, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn a_buffer_that_another_process_holds_is_not_impossible() {
        let journal = |error| is_refusal(&RecordError::Journal(error));
        let state = |kind: ErrorKind| TreatError::State {
            action: "create",
            path: "/run/whylate".into(),
            source: kind.into(),
        };
        assert!(!journal(TreatError::Held { holder: "whylate histograms (pid 7)".to_owned() }));
        let (command, since) = ("whylate trace".to_owned(), "yesterday".to_owned());
        assert!(!journal(TreatError::InForce { count: 1, command, since }));
        assert!(journal(state(ErrorKind::PermissionDenied)) && journal(state(ErrorKind::ReadOnlyFilesystem)));
        assert!(!journal(state(ErrorKind::StorageFull)), "a full disk is no lack of the kernel's");
        assert!(journal(TreatError::Absent { target: "/sys/kernel/tracing/instances".to_owned() }));
    }
}
