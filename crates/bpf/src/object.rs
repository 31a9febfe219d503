//! The compiled programs: loaded, attached, and what they cost.
//!
//! The objects are compiled from `bpf/*.bpf.c` by `cargo xtask bpf`, and are the same for every architecture: offsets in
//! the kernel's structures come from the type information of the running kernel. Programs are attached one by one; a
//! program whose event the kernel lacks is left out.

use crate::error::BpfError;
use crate::events::{Event, Sizes};
use crate::snapshot::ProgramCost;
use aya::maps::stack_trace::StackTraceMap;
use aya::maps::{Array, HashMap, Map, MapData};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope};
use aya::programs::{Program, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader, Pod};
use std::collections::{self, BTreeMap};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

/// The programs for histograms and causes.
pub(crate) static WHYLATE: &[u8] = aya::include_bytes_aligned!("../objects/whylate.bpf.o");
/// The programs for the parts of a dispatch.
pub(crate) static DISPATCH: &[u8] = aya::include_bytes_aligned!("../objects/dispatch.bpf.o");

const MISSING: &str = "it is missing from the compiled BPF programs";

/// Programs in the kernel; they go when this is dropped.
pub(crate) struct Object {
    ebpf: Ebpf,
    btf: &'static Btf,
    attached: Vec<Event>,
}

impl Object {
    /// Loads the maps of an object and prepares its programs.
    pub(crate) fn load(object: &[u8], sizes: &Sizes<'_>) -> Result<Self, BpfError> {
        let btf = type_information()?;
        let constants: Vec<(&str, u32)> = sizes
            .has_tracepoint
            .iter()
            .map(|(constant, tracepoint)| (*constant, u32::from(has_tracepoint(btf, tracepoint))))
            .chain(sizes.constants.iter().copied())
            .collect();
        let mut loader = EbpfLoader::new();
        loader.btf(Some(btf));
        for (name, entries) in &sizes.maps {
            loader.map_max_entries(name, *entries);
        }
        for (name, value) in &constants {
            loader.override_global(name, value, true);
        }
        let ebpf = loader.load(object).map_err(|error| refused_or_unfit(&error))?;
        Ok(Self { ebpf, btf, attached: Vec::new() })
    }

    /// Loads and attaches a program; `Ok(Some(reason))` if the kernel does not have its event, or the function at whose
    /// entry it runs.
    pub(crate) fn attach(&mut self, event: Event) -> Result<Option<String>, BpfError> {
        let program = self.ebpf.program_mut(event.function);
        if let Some(program @ (Program::FEntry(_) | Program::FExit(_))) = program {
            let function = event.tracepoint;
            if self.btf.id_by_type_name_kind(function, aya_obj::btf::BtfKind::Func).is_err() {
                return Ok(Some(format!("this kernel has no function {function}")));
            }
            let unfit = |error: ProgramError| program_error(&error, event);
            match program {
                Program::FEntry(program) => {
                    program.load(function, self.btf).map_err(unfit)?;
                    program.attach().map_err(unfit)?;
                }
                Program::FExit(program) => {
                    program.load(function, self.btf).map_err(unfit)?;
                    program.attach().map_err(unfit)?;
                }
                _ => return Err(BpfError::program(event.tracepoint, MISSING)),
            }
            self.attached.push(event);
            return Ok(None);
        }
        if !has_tracepoint(self.btf, event.tracepoint) {
            return Ok(Some(format!("this kernel has no event {}", event.tracepoint)));
        }
        let unfit = |error: ProgramError| program_error(&error, event);
        match self.ebpf.program_mut(event.function) {
            Some(Program::BtfTracePoint(program)) => {
                program.load(event.tracepoint, self.btf).map_err(unfit)?;
                program.attach().map_err(unfit)?;
            }
            Some(Program::RawTracePoint(program)) => {
                program.load().map_err(unfit)?;
                program.attach(event.tracepoint).map_err(unfit)?;
            }
            _ => return Err(BpfError::program(event.tracepoint, MISSING)),
        }
        self.attached.push(event);
        Ok(None)
    }

    /// Loads a raw tracepoint program and attaches it to each of these events.
    pub(crate) fn attach_raw(
        &mut self,
        function: &'static str,
        tracepoints: &[String],
    ) -> Result<(), BpfError> {
        let failed = |reason: &str| BpfError::program(&tracepoints.join(", "), reason);
        let Some(Program::RawTracePoint(program)) = self.ebpf.program_mut(function) else {
            return Err(failed(MISSING));
        };
        program.load().map_err(|error| failed(&program_reason(&error)))?;
        for tracepoint in tracepoints {
            program.attach(tracepoint).map_err(|error| failed(&one_line(&error)))?;
        }
        self.attached.push(Event { function, tracepoint: function });
        Ok(())
    }

    /// Loads a program and attaches it to the entry of the kernel function with this name.
    pub(crate) fn attach_probe(&mut self, event: Event, function: &str) -> Result<(), BpfError> {
        let failed = |reason: &str| BpfError::program(event.tracepoint, reason);
        let Some(Program::KProbe(program)) = self.ebpf.program_mut(event.function) else {
            return Err(failed(MISSING));
        };
        program.load().map_err(|error| failed(&program_reason(&error)))?;
        program.attach(function, 0).map_err(|error| failed(&one_line(&error)))?;
        self.attached.push(event);
        Ok(())
    }

    /// Loads a program and attaches it to a place in an executable file, for every process that runs it.
    pub(crate) fn attach_place(
        &mut self,
        function: &'static str,
        file: &Path,
        offset: u64,
        cookie: Option<u64>,
    ) -> Result<(), BpfError> {
        let failed = |error: ProgramError| {
            io_error(&error).and_then(refused).unwrap_or_else(|| {
                BpfError::program(&format!("a mark in {}", file.display()), &program_reason(&error))
            })
        };
        let Some(Program::UProbe(program)) = self.ebpf.program_mut(function) else {
            return Err(BpfError::program(function, MISSING));
        };
        // A program of triggers has several places.
        if program.fd().is_err() {
            program.load().map_err(failed)?;
        }
        let location = UProbeAttachLocation::AbsoluteOffset(offset);
        let point = UProbeAttachPoint { location, cookie };
        program.attach(point, file, UProbeScope::AllProcesses).map_err(failed)?;
        self.attached.push(Event { function, tracepoint: function });
        Ok(())
    }

    /// Loads a program for a clock that takes samples.
    pub(crate) fn clock_program(&mut self, function: &'static str) -> Result<OwnedFd, BpfError> {
        let failed = |error: &ProgramError| BpfError::program(function, &program_reason(error));
        let Some(Program::PerfEvent(program)) = self.ebpf.program_mut(function) else {
            return Err(BpfError::program(function, MISSING));
        };
        program.load().map_err(|error| failed(&error))?;
        let file = program.fd().map_err(|error| failed(&error))?;
        self.attached.push(Event { function, tracepoint: function });
        file.as_fd().try_clone_to_owned().map_err(|error| BpfError::program(function, &error.to_string()))
    }

    /// Whether the kernel has an event, with type information of what it passes.
    pub(crate) fn has_tracepoint(&self, tracepoint: &str) -> bool {
        has_tracepoint(self.btf, tracepoint)
    }

    pub(crate) fn entries<K: Pod, V: Pod>(&self, name: &str) -> Result<Vec<(K, V)>, BpfError> {
        let table: HashMap<&MapData, K, V> =
            HashMap::try_from(self.map(name)?).map_err(|error| BpfError::map(name, &error))?;
        // An entry that is removed meanwhile is not needed.
        Ok(table.iter().filter_map(Result::ok).collect())
    }

    /// Removes an entry; one that is gone is no error.
    pub(crate) fn remove<K: Pod, V: Pod>(&mut self, name: &str, key: &K) {
        let table = self.ebpf.map_mut(name).map(HashMap::<&mut MapData, K, V>::try_from);
        if let Some(Ok(mut table)) = table {
            let _ = table.remove(key);
        }
    }

    /// The addresses of a stack, innermost first; empty for a stack that is not kept.
    pub(crate) fn stack(&self, name: &str, number: i64) -> Vec<u64> {
        let Ok(number) = u32::try_from(number) else { return Vec::new() };
        let stacks = self.map(name).ok().and_then(|map| StackTraceMap::try_from(map).ok());
        let trace = stacks.and_then(|stacks| stacks.get(&number, 0).ok());
        trace.map(|trace| trace.frames().iter().map(|frame| frame.ip).collect()).unwrap_or_default()
    }

    /// An array map as a file descriptor of its own, to be mapped.
    pub(crate) fn array_file(&self, name: &str) -> Result<OwnedFd, BpfError> {
        let Map::Array(data) = self.map(name)? else {
            return Err(BpfError::map(name, &"it is not an array"));
        };
        data.fd().as_fd().try_clone_to_owned().map_err(|error| BpfError::map(name, &error))
    }

    /// A map of performance events as a file descriptor. What it holds goes when this object is dropped.
    pub(crate) fn event_file(&self, name: &str) -> Result<BorrowedFd<'_>, BpfError> {
        let Map::PerfEventArray(data) = self.map(name)? else {
            return Err(BpfError::map(name, &"it is not of performance events"));
        };
        Ok(data.fd().as_fd())
    }

    fn map(&self, name: &str) -> Result<&Map, BpfError> {
        self.ebpf.map(name).ok_or_else(|| BpfError::map(name, &MISSING))
    }

    /// The value of an array map at `index`.
    pub(crate) fn get<V: Pod>(&self, name: &str, index: u32) -> Result<V, BpfError> {
        let array: Array<&MapData, V> =
            Array::try_from(self.map(name)?).map_err(|error| BpfError::map(name, &error))?;
        array.get(&index, 0).map_err(|error| BpfError::map(name, &error))
    }

    /// Replaces the value of an array map at `index`.
    pub(crate) fn set<V: Pod>(&mut self, name: &str, index: u32, value: &V) -> Result<(), BpfError> {
        let map = self.ebpf.map_mut(name).ok_or_else(|| BpfError::map(name, &MISSING))?;
        let mut array =
            Array::<&mut MapData, V>::try_from(map).map_err(|error| BpfError::map(name, &error))?;
        array.set(index, value, 0).map_err(|error| BpfError::map(name, &error))
    }

    /// The cost of each attached program, in the order in which they were attached. Times are counted only while the
    /// kernel's BPF statistics are on.
    pub(crate) fn costs(&self) -> Vec<ProgramCost> {
        self.attached.iter().filter_map(|event| self.cost(*event)).collect()
    }

    fn cost(&self, event: Event) -> Option<ProgramCost> {
        let fd = match self.ebpf.program(event.function)? {
            Program::BtfTracePoint(program) => program.fd(),
            Program::RawTracePoint(program) => program.fd(),
            Program::KProbe(program) => program.fd(),
            Program::FEntry(program) => program.fd(),
            Program::FExit(program) => program.fd(),
            Program::UProbe(program) => program.fd(),
            Program::PerfEvent(program) => program.fd(),
            _ => return None,
        };
        cost_of(event.tracepoint, fd.ok()?.as_fd())
    }
}

/// While this exists, the kernel counts the time of BPF programs, which takes each of them about 30 ns more.
#[derive(Debug)]
pub struct CostCounting {
    _statistics: OwnedFd,
}

impl CostCounting {
    /// Switches the counting on; other users of it are not affected.
    ///
    /// # Errors
    /// When the kernel does not allow it (before 5.8 it is only `sysctl kernel.bpf_stats_enabled=1`).
    pub fn start() -> Result<Self, BpfError> {
        match aya::sys::enable_stats(aya::sys::Stats::RunTime) {
            Ok(statistics) => Ok(Self { _statistics: statistics }),
            Err(error) => Err(refused(&error.io_error).unwrap_or_else(|| BpfError::Object(one_line(&error)))),
        }
    }
}

/// The cost of each program of the machine, by its id. The name of its function, of which the kernel keeps 15 bytes, replaces
/// the event. Times are counted only while the kernel's BPF statistics are on.
///
/// # Errors
/// When the kernel does not list its programs.
pub fn costs_of_all() -> Result<collections::HashMap<u32, ProgramCost>, BpfError> {
    let mut costs = collections::HashMap::new();
    for program in aya::programs::loaded_programs() {
        let program = program.map_err(|error| BpfError::Object(one_line(&error)))?;
        // A program may have been unloaded since it was listed.
        let Ok(fd) = program.fd() else { continue };
        let cost = cost_of(program.name_as_str().unwrap_or_default(), fd.as_fd());
        costs.extend(cost.map(|cost| (program.id(), cost)));
    }
    Ok(costs)
}

/// The cost of a program, from the information about its file descriptor.
fn cost_of(event: &str, program: BorrowedFd<'_>) -> Option<ProgramCost> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()?;
    let fields: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter_map(|(name, value)| Some((name, value.trim().parse().ok()?)))
        .collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or(0);
    Some(ProgramCost {
        event: event.to_owned(),
        runs: field("run_cnt"),
        time_ns: field("run_time_ns"),
        missed: field("recursion_misses"),
    })
}

/// The running kernel's type information: several megabytes, read once.
fn type_information() -> Result<&'static Btf, BpfError> {
    static READ: OnceLock<Btf> = OnceLock::new();
    if let Some(known) = READ.get() {
        return Ok(known);
    }
    let btf = Btf::from_sys_fs().map_err(|error| BpfError::NoTypeInformation(error.to_string()))?;
    Ok(READ.get_or_init(|| btf))
}

/// Whether the running kernel has an event, with type information of what it passes.
pub(crate) fn kernel_has(tracepoint: &str) -> Result<bool, BpfError> {
    type_information().map(|btf| has_tracepoint(btf, tracepoint))
}

/// Whether the kernel has a tracepoint, with type information of what it passes.
fn has_tracepoint(btf: &Btf, tracepoint: &str) -> bool {
    let name = format!("btf_trace_{tracepoint}");
    btf.id_by_type_name_kind(&name, aya_obj::btf::BtfKind::Typedef).is_ok()
}

/// Whether the process ids of this process are the kernel's, by which programs tell tasks apart.
pub(crate) fn check_namespaces() -> Result<(), BpfError> {
    if !whylate_sys::process::sees_kernel_ids() {
        return Err(BpfError::Namespace);
    }
    if whylate_sys::process::sees_kernel_clock() { Ok(()) } else { Err(BpfError::OtherClock) }
}

pub(crate) fn possible_cpus() -> Result<usize, BpfError> {
    aya::util::nr_cpus().map_err(|(path, error)| BpfError::Object(format!("{path}: {error}")))
}

fn io_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e io::Error> {
    let mut next = Some(error);
    let mut found = None;
    while let Some(error) = next {
        found = error.downcast_ref::<io::Error>().or(found);
        next = error.source();
    }
    found
}

fn refused(error: &io::Error) -> Option<BpfError> {
    let is_refusal = matches!(error.kind(), io::ErrorKind::PermissionDenied);
    is_refusal.then(|| BpfError::Refused {
        source: io::Error::from(error.kind()),
        remedy:
            "run whylate as root on the host (or with CAP_BPF and CAP_PERFMON), on a kernel without lockdown \
                 mode `confidentiality`"
                .to_owned(),
    })
}

fn refused_or_unfit(error: &EbpfError) -> BpfError {
    io_error(error).and_then(refused).unwrap_or_else(|| BpfError::Object(one_line(error)))
}

fn program_error(error: &ProgramError, event: Event) -> BpfError {
    let refusal = io_error(error).filter(|_| !matches!(error, ProgramError::LoadError { .. }));
    let unfit = || BpfError::program(event.tracepoint, &program_reason(error));
    refusal.and_then(refused).unwrap_or_else(unfit)
}

/// Why a program was not loaded: the last line of the verifier's log before its statistics.
fn program_reason(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else { return one_line(error) };
    let log = verifier_log.to_string();
    let said = log.lines().rev().find(|line| {
        let line = line.trim();
        let is_statistics = ["processed ", "verification time", "stack depth"];
        !line.is_empty() && !is_statistics.iter().any(|start| line.starts_with(start))
    });
    match said {
        Some(line) => format!("{io_error}; the verifier says: {}", line.trim()),
        None => io_error.to_string(),
    }
}

/// An error with its sources, on one line.
fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = source.source();
    }
    text.replace('\n', " ")
}
