//! Drives the kernel's own measuring tracers: hwlat, osnoise and timerlat.
//!
//! They run in a trace buffer of their own, but their settings are global: each is changed through the journal, and
//! restored when the tracer ends or by `whylate treat restore`. Their output is read as it comes.

use super::buffer::Buffer;
use super::error::RecordError;
use super::pipe::Pipe;
use super::tracefs::{Tracefs, tracers_unmounted};
use std::path::Path;
use whylate_core::plan::{Tracer, TracerPlan};
use whylate_core::result::HwlatSample;
use whylate_core::{CpuId, CpuSet, Nanos, Warning, WarningCode};
use whylate_host::HostRoot;
use whylate_sys::schedule::{Scheduling, schedule_thread};
use whylate_trace::event::{EventKind, TimerlatContext};
use whylate_trace::parse::{Source, TextReader};
use whylate_trace::reader::{Reader as _, Selection};
use whylate_treat::{Change, Reading, Target};

/// How hwlat goes from CPU to CPU.
const MODE_FILE: &str = "hwlat_detector/mode";
const WINDOW_FILE: &str = "hwlat_detector/window";

/// One line of a tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub cpu: CpuId,
    /// When the line was written, CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// hwlat: the longest gap; osnoise: the longest noise of the period; timerlat: the latency.
    pub value_ns: u64,
    /// hwlat: as `value_ns`; osnoise: all noise of the period; timerlat: 0.
    pub lost_ns: u64,
    /// hwlat: gaps in the window, if the kernel counts them, otherwise 1; osnoise: noises in the period; timerlat: 0.
    pub gaps: u64,
    /// timerlat: whether it was measured in the timer's interrupt, and not in the thread.
    pub in_interrupt: bool,
    /// hwlat: everything that it recorded.
    pub hwlat: Option<HwlatSample>,
}

/// A running tracer. Dropping it ends it and restores everything.
#[derive(Debug)]
pub struct TracerSession {
    pipe: Pipe,
    /// The comments at the head of `trace`, from which the columns are known.
    header: Vec<u8>,
    /// An incomplete last line.
    pending: Vec<u8>,
    lost: u64,
    buffer: Buffer,
}

impl TracerSession {
    /// Sets the tracer up on `cpus` and starts it.
    ///
    /// # Errors
    /// [`RecordError::Unavailable`] when the kernel lacks the tracer or refuses it; otherwise [`RecordError`].
    pub fn start(
        host: &HostRoot,
        plan: &TracerPlan,
        cpus: &CpuSet,
    ) -> Result<(Self, Vec<Warning>), RecordError> {
        let mut buffer = Buffer::create(host, "tracer")?;
        check(&buffer.tracefs().tracers(), plan.tracer)?;
        buffer.set("trace_clock", "mono")?;
        let changes = settings(buffer.tracefs().top(), plan, cpus);
        let mut warnings = buffer.change_shared(&changes)?;
        let refused = |error: RecordError| match error {
            RecordError::Write { source, .. } => RecordError::Unavailable(format!(
                "the kernel refuses the {} tracer ({source}): another tracer of the same kind runs, or the kernel is \
                 locked down",
                plan.tracer
            )),
            other => other,
        };
        buffer.set("tracing_cpumask", &super::recorder::cpu_mask(cpus))?;
        buffer.set("current_tracer", plan.tracer.name()).map_err(refused)?;
        let path = buffer.folder().join("trace");
        let mut header = std::fs::read(&path).map_err(RecordError::read(&path))?;
        header.truncate(comments(&header));
        let pipe = Pipe::of_text(buffer.folder())?;
        buffer.set("tracing_on", "1")?;
        if let Some(priority) = plan.priority {
            warnings.extend(set_priority(plan.tracer, priority));
        }
        Ok((Self { pipe, header, pending: Vec::new(), lost: 0, buffer }, warnings))
    }

    /// The samples since the last call.
    ///
    /// # Errors
    /// [`RecordError::Read`] when the kernel's lines cannot be read or understood.
    pub fn poll(&mut self) -> Result<Vec<Sample>, RecordError> {
        let mut chunk = [0; 64 << 10];
        loop {
            match self.pipe.read(&mut chunk)? {
                0 => break,
                length => self.pending.extend(&chunk[..length]),
            }
        }
        let Some(end) = self.pending.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let rest = self.pending.split_off(end + 1);
        let lines = std::mem::replace(&mut self.pending, rest);
        let text = [self.header.as_slice(), lines.as_slice()].concat();
        let (samples, lost) = samples(text).map_err(|error| RecordError::unfit(self.pipe.path(), &error))?;
        self.lost += lost;
        Ok(samples)
    }

    /// Lines that the kernel lost because they were not read in time.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Ends the tracer and restores everything.
    ///
    /// # Errors
    /// [`RecordError::LeftBehind`] when something could not be restored.
    pub fn finish(self) -> Result<(), RecordError> {
        let Self { pipe, buffer, .. } = self;
        // An open file would keep the buffer busy.
        drop(pipe);
        buffer.remove()
    }
}

/// Gives the tracer's threads a real-time priority; they end with it.
fn set_priority(tracer: Tracer, priority: u32) -> Option<Warning> {
    let start = if tracer == Tracer::Hwlat { "hwlat" } else { tracer.name() };
    let mut problem = Some(format!("no thread of the {tracer} tracer was found"));
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let Some(tid) = entry.file_name().to_str().and_then(|text| text.parse().ok()) else { continue };
        // A process may have the same name: only kernel threads have no executable.
        let is_kernel_thread = std::fs::read_link(entry.path().join("exe")).is_err();
        if is_kernel_thread && name.starts_with(start) {
            let set = schedule_thread(tid, Scheduling::Fifo(priority));
            problem = set.err().map(|error| format!("{}: {error}", name.trim()));
            if problem.is_some() {
                break;
            }
        }
    }
    problem.map(|problem| {
        let text = format!("the priority of the {tracer} tracer is not {priority}: {problem}");
        Warning::new(WarningCode::TracerPriority, text)
    })
}

/// Length of the comments at the start of a trace.
fn comments(text: &[u8]) -> usize {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    lines.take_while(|line| line.starts_with(b"#")).map(<[u8]>::len).sum()
}

/// The samples in the tracer's text, and how many lines the kernel lost.
fn samples(text: Vec<u8>) -> Result<(Vec<Sample>, u64), whylate_trace::parse::ParseError> {
    let mut reader = TextReader::new(Source::memory("trace_pipe", text)?)?;
    reader.seek(None, Selection::All)?;
    let (mut samples, mut lost) = (Vec::new(), 0);
    while let Some(event) = reader.next()? {
        let sample = Sample {
            cpu: event.cpu,
            at_ns: event.at_ns,
            value_ns: 0,
            lost_ns: 0,
            gaps: 0,
            in_interrupt: false,
            hwlat: None,
        };
        samples.push(match event.kind {
            EventKind::Hwlat { inner_ns, outer_ns, count, nmi_ns, nmi_count, wall_ns, .. } => {
                let value_ns = inner_ns.max(outer_ns);
                let hwlat = HwlatSample { inner_ns, outer_ns, count, nmi_ns, nmi_count, wall_ns };
                let gaps = count.map_or(1, u64::from);
                Sample { value_ns, lost_ns: value_ns, gaps, hwlat: Some(hwlat), ..sample }
            }
            EventKind::Osnoise(osnoise) => Sample {
                value_ns: osnoise.noise_max_ns,
                lost_ns: osnoise.noise_ns,
                gaps: osnoise.counts.iter().sum(),
                ..sample
            },
            EventKind::Timerlat { context, latency_ns, .. } => {
                Sample { value_ns: latency_ns, in_interrupt: context == TimerlatContext::Irq, ..sample }
            }
            EventKind::Lost { events } => {
                lost += events.unwrap_or(1);
                continue;
            }
            _ => continue,
        });
    }
    Ok((samples, lost))
}

/// Whether a tracer is available below `host`, as far as that is known without starting it.
///
/// # Errors
/// [`RecordError::Unavailable`] when it is not built, or tracefs cannot be reached.
pub fn check_tracer(host: &HostRoot, tracer: Tracer) -> Result<(), RecordError> {
    match Tracefs::find(host) {
        Ok(tracefs) => check(&tracefs.tracers(), tracer),
        // Mounted only while it is needed.
        Err(error) if !Tracefs::can_be_mounted(host) => Err(error),
        Err(_) => tracers_unmounted().map_or(Ok(()), |known| check(&known, tracer)),
    }
}

fn check(known: &[String], tracer: Tracer) -> Result<(), RecordError> {
    if known.iter().any(|name| name == tracer.name()) {
        return Ok(());
    }
    Err(RecordError::Unavailable(format!(
        "this kernel has no {tracer} tracer ({} is off; the tracers here are {})",
        tracer.option(),
        known.join(", ")
    )))
}

/// The settings that all buffers of the tracefs in `top` share, in the order in which the kernel takes them.
fn settings(top: &Path, plan: &TracerPlan, cpus: &CpuSet) -> Vec<Change> {
    let path = |name: &str| top.join(name).display().to_string();
    let reason = |effect: &str| format!("{}: {effect}", plan.tracer);
    let time = |name: &str, time: Nanos, effect: &str| {
        let us = (time.0 / 1000).max(1).to_string();
        Change::required(Target::file(path(name)), us, reason(effect))
    };
    let where_it_runs = || {
        let target = Target::file_with(path("osnoise/cpus"), Reading::CpuList);
        Change::required(target, cpus.to_string(), reason("CPUs that the tracer measures"))
    };
    let threshold = |effect| plan.threshold.map(|least| time("tracing_thresh", least, effect));
    match plan.tracer {
        Tracer::Hwlat => {
            // Kernels before 5.14 have only this mode.
            let mode = top.join(MODE_FILE).exists().then(|| {
                let target = Target::file_with(path(MODE_FILE), Reading::Bracketed);
                Change::required(target, "round-robin", reason("measures one CPU after the other"))
            });
            let width =
                time("hwlat_detector/width", plan.width(), "how long the tracer samples in each window");
            let window = time(WINDOW_FILE, plan.window(), "how often the tracer samples");
            // The width has to be below the window at every moment.
            let now = std::fs::read_to_string(top.join(WINDOW_FILE)).ok();
            let now_us: Option<u64> = now.and_then(|text| text.trim().parse().ok());
            let is_below = now_us.is_some_and(|now_us| plan.width().0 / 1000 < now_us);
            let sizes = if is_below { [width, window] } else { [window, width] };
            mode.into_iter().chain(sizes).chain(threshold("shortest gap that the tracer reports")).collect()
        }
        Tracer::Osnoise => {
            let width = time("osnoise/runtime_us", plan.width(), "how long the tracer samples");
            let window = time("osnoise/period_us", plan.window(), "how often the tracer samples");
            let noise = threshold("shortest noise that the tracer reports");
            [where_it_runs(), width, window].into_iter().chain(noise).collect()
        }
        Tracer::Timerlat => {
            let period = time("osnoise/timerlat_period_us", plan.period(), "period of the tracer's thread");
            vec![where_it_runs(), period]
        }
    }
}

#[cfg(test)]
mod tests;
