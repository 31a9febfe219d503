//! Records into a ring that keeps the newest events, and saves it on demand.

use super::buffer::Buffer;
use super::error::RecordError;
use super::keep::Ring;
use super::profile;
use super::trace_dat::{Prologue, Saved};
use rustix::io::Errno;
use std::path::Path;
use whylate_bpf::BpfError;
use whylate_core::plan::TraceProfile as Profile;
use whylate_core::units::Bytes;
use whylate_core::{CpuId, CpuSet, Warning, WarningCode};
use whylate_host::{HostRoot, hotplug};
use whylate_treat::JournalPlace;

const CLOCK: &str = "mono";
/// Names the buffer and its journal.
const PURPOSE: &str = "trace";

#[derive(Clone, Debug)]
pub struct Request {
    pub profile: Profile,
    /// On which CPUs; a wake-up may begin on one CPU and end on another.
    pub cpus: CpuSet,
    /// Size of each CPU's ring.
    pub buffer: Bytes,
    /// Events beyond those of the profile, as `system/name`.
    pub events: Vec<String>,
}

/// A recording under way. Dropping it ends it and removes its buffer.
#[derive(Debug)]
pub struct Recorder {
    buffer: Buffer,
    prologue: Prologue,
    host: HostRoot,
    /// The CPUs of the request, and those that may come online.
    cpus: CpuSet,
    may_come: CpuSet,
}

impl Recorder {
    /// Checks the journal of settings, which a recording needs, before anything else is done for one.
    ///
    /// # Errors
    /// [`RecordError::Journal`] if the journal is not trusted or cannot be read.
    pub fn check_journal(host: &HostRoot) -> Result<(), RecordError> {
        JournalPlace::of_this_machine(PURPOSE).read(host).map(drop).map_err(RecordError::Journal)
    }

    /// Makes a buffer and begins to record; warnings say what is not recorded.
    ///
    /// # Errors
    /// [`RecordError`], saying precisely what the kernel lacks or refuses.
    pub fn start(host: &HostRoot, request: &Request) -> Result<(Self, Vec<Warning>), RecordError> {
        if !whylate_sys::process::sees_kernel_clock() {
            return Err(RecordError::Bpf(BpfError::OtherClock));
        }
        let buffer = Buffer::create(host, PURPOSE)?;
        check_events(&buffer, &request.events)?;
        // CLOCK_MONOTONIC, the clock of the probes.
        buffer.set("trace_clock", CLOCK)?;
        buffer.set("buffer_size_kb", &(request.buffer.0 >> 10).max(64).to_string())?;
        let all = hotplug::recorded(host, &request.cpus);
        buffer.set("tracing_cpumask", &cpu_mask(&all))?;
        let (events, missing) = profile::events(buffer.tracefs(), &request.events);
        let mut warnings = Vec::new();
        for event in &events {
            if let Err(error) = buffer.set(&format!("events/{event}/enable"), "1") {
                let text = format!("{event} is not recorded: {error}");
                warnings.push(Warning::new(WarningCode::EventNotRecorded, text));
            }
        }
        if !missing.is_empty() {
            let text = format!(
                "whylate cannot find causes that need these events, which this kernel does not have: {}",
                missing.join(", ")
            );
            warnings.push(Warning::new(WarningCode::EventsMissing, text));
        }
        let prologue = Prologue::read(buffer.tracefs(), &events, CLOCK, &uname())?;
        set_tracer(&buffer, request.profile)?;
        buffer.set("tracing_on", "1")?;
        let (host, cpus) = (host.clone(), request.cpus.clone());
        let may_come = all.difference(&cpus);
        Ok((Self { buffer, prologue, host, cpus, may_come }, warnings))
    }
}

impl Ring for Recorder {
    fn folder(&self) -> &Path {
        self.buffer.folder()
    }

    fn pause(&self) -> Result<(), RecordError> {
        self.buffer.set("tracing_on", "0")
    }

    fn resume(&self) -> Result<(), RecordError> {
        // Opening for writing with truncation empties the ring.
        self.buffer.set("trace", "")?;
        self.buffer.set("tracing_on", "1")
    }

    fn save(&self, path: &Path) -> Result<Saved, RecordError> {
        self.pause()?;
        // The ring of a CPU that has come online belongs to the trace.
        let come = hotplug::online(&self.host).intersection(&self.may_come);
        let cpus: Vec<CpuId> = self.cpus.union(&come).iter().collect();
        self.prologue.save(self.buffer.folder(), &cpus, path)
    }

    fn finish(self: Box<Self>) -> Result<(), RecordError> {
        self.buffer.remove()
    }
}

fn check_events(buffer: &Buffer, events: &[String]) -> Result<(), RecordError> {
    match events.iter().find(|event| !buffer.tracefs().has_event(event)) {
        None => Ok(()),
        Some(event) => {
            let folder = buffer.tracefs().top().join("events");
            let text = format!("this kernel has no event {event}; {} lists the events", folder.display());
            Err(RecordError::Unavailable(text))
        }
    }
}

/// The mask of CPUs as tracefs takes it.
pub(super) fn cpu_mask(cpus: &CpuSet) -> String {
    let words = cpus.iter().map(|cpu| cpu.0 as usize / 32 + 1).max().unwrap_or(1);
    let mut mask = vec![0_u32; words];
    cpus.iter().for_each(|cpu| mask[cpu.0 as usize / 32] |= 1 << (cpu.0 % 32));
    let text: Vec<String> = mask.iter().rev().map(|word| format!("{word:08x}")).collect();
    text.join(",")
}

/// Tries the function tracer as a recording uses it, in a trace buffer of its own, which records nothing.
pub fn try_function_tracer(host: &HostRoot) -> Result<(), RecordError> {
    let buffer = Buffer::create(host, "check")?;
    let tried = set_tracer(&buffer, Profile::Functions);
    buffer.remove()?;
    tried
}

/// Switches the tracer on, or says why the kernel does not.
fn set_tracer(buffer: &Buffer, wanted: Profile) -> Result<(), RecordError> {
    let tracer = wanted.tracer();
    if wanted == Profile::Light {
        return Ok(());
    }
    if !buffer.tracefs().tracers().iter().any(|known| known == tracer) {
        let option =
            if tracer == "function" { "CONFIG_FUNCTION_TRACER" } else { "CONFIG_FUNCTION_GRAPH_TRACER" };
        let text = format!(
            "this kernel has no {tracer} tracer ({option} is off); use --profile light, or a kernel that has it"
        );
        return Err(RecordError::Unavailable(text));
    }
    let refused = |error: RecordError| match &error {
        RecordError::Write { source, .. } => RecordError::Unavailable(match Errno::from_io_error(source) {
            Some(Errno::PERM) => format!(
                "the kernel refuses the {tracer} tracer ({source}): the kernel is locked down, or ftrace is switched off \
                 (/sys/kernel/security/lockdown, kernel.ftrace_enabled); use --profile light"
            ),
            Some(Errno::INVAL) => format!(
                "this kernel offers the {tracer} tracer only in the top-level buffer, which other programs may use; \
                 use --profile functions"
            ),
            _ => format!("the kernel refuses the {tracer} tracer: {source}; use --profile light"),
        }),
        _ => error,
    };
    if cfg!(target_arch = "aarch64") {
        for functions in profile::CLOCK_READERS {
            // A kernel without such functions refuses the pattern. The list goes with the buffer.
            let _ = buffer.add("set_ftrace_notrace", functions);
        }
    }
    buffer.set("current_tracer", tracer).map_err(refused)
}

fn uname() -> String {
    let name = rustix::system::uname();
    let parts = [name.sysname(), name.nodename(), name.release(), name.machine()];
    parts.map(|part| part.to_string_lossy().into_owned()).join(" ")
}

#[cfg(test)]
mod tests {
    use super::cpu_mask;

    #[test]
    fn masks_are_words_of_32_cpus_the_highest_first() {
        for (cpus, mask) in [
            ("0", "00000001"),
            ("0-1,31", "80000003"),
            ("32", "00000001,00000000"),
            ("1,64", "00000001,00000000,00000002"),
        ] {
            assert_eq!(cpu_mask(&cpus.parse().unwrap()), mask, "{cpus}");
        }
    }
}
