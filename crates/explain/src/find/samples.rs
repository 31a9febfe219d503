//! First pass: the measurements of the noise tracers.

use crate::find::finder::{Finder, Samples};
use crate::find::late::{Largest, Late, LateKind};
use crate::find::tasks::LATES_MAX;
use crate::options::Options;
use whylate_core::CpuId;
use whylate_core::result::{ExpectedFrom, HwlatSample};
use whylate_trace::event::{Event, EventKind, Name, TimerlatContext};
use whylate_trace::reader::Reader;

/// What is read before the gap that a tracer saw.
const SAMPLE_BEFORE_NS: u64 = 5_000_000;
/// The tracer prints the largest noise of a period in whole microseconds.
const ROUNDED_NS: u64 = 1_000;
/// Threads and CPUs whose samples are kept.
const LISTS_MAX: usize = 1 << 14;

/// The list of a thread or CPU; `None` for a new one if there are too many.
fn list<'s>(
    lists: &'s mut Samples,
    key: u32,
    options: &Options,
    dropped: &mut u64,
) -> Option<&'s mut (Option<Name>, Largest)> {
    let most = (LATES_MAX / options.top.max(1)).clamp(1, LISTS_MAX);
    if lists.len() >= most && !lists.contains_key(&key) {
        *dropped += 1;
        return None;
    }
    Some(lists.entry(key).or_default())
}

impl Finder<'_> {
    pub(crate) fn timerlat(
        &mut self,
        event: &Event,
        sequence: u32,
        context: TimerlatContext,
        latency_ns: u64,
    ) {
        self.seen.timerlats += 1;
        self.last_sample.insert(event.cpu, latency_ns);
        match context {
            TimerlatContext::Irq => {
                let before = self.timerlat_irq.insert(event.cpu, (sequence, event.at_ns, latency_ns));
                self.alone(event.cpu, before);
            }
            TimerlatContext::Thread | TimerlatContext::User => {
                let irq = self.timerlat_irq.get(&event.cpu).filter(|irq| irq.0 == sequence);
                let irq = irq.map(|(_, at_ns, latency_ns)| (*at_ns, *latency_ns));
                let left = self.timerlat_irq.remove(&event.cpu);
                self.alone(event.cpu, left.filter(|_| irq.is_none()));
                self.sample(event, event.at_ns, latency_ns, LateKind::Timerlat { irq }, 0);
            }
        }
    }

    /// A sample in the interrupt without that of the thread, for example if the tracer stopped in the interrupt.
    fn alone(&mut self, cpu: CpuId, irq: Option<(u32, u64, u64)>) {
        let Some((_, at_ns, latency_ns)) = irq else { return };
        let expected_ns = at_ns.saturating_sub(latency_ns);
        let kind = LateKind::Timerlat { irq: Some((at_ns, latency_ns)) };
        let late = Late::new(cpu, expected_ns, at_ns, ExpectedFrom::Tracer, kind);
        let since_ns = expected_ns.saturating_sub(SAMPLE_BEFORE_NS);
        self.seen.samples += 1;
        let Some((_, largest)) =
            list(&mut self.samples, u32::MAX - cpu.0, self.options, &mut self.tasks.dropped)
        else {
            return;
        };
        largest.push(Late { since_ns, ..late }, self.options.top, self.least_ns);
    }

    pub(crate) fn end(&mut self) {
        self.tasks.sort();
        for (cpu, irq) in std::mem::take(&mut self.timerlat_irq) {
            self.alone(cpu, Some(irq));
        }
    }

    /// What the tracers of noise recorded.
    pub(crate) fn noise(&mut self, event: &Event, reader: &dyn Reader) {
        let of = event.command.map_or("", |name| reader.names().text(name));
        self.seen.workload |= ["osnoise/", "timerlat"].iter().any(|start| of.starts_with(start));
        match event.kind {
            EventKind::Hwlat { inner_ns, outer_ns, count, nmi_ns, nmi_count, wall_ns, .. } => {
                let latency_ns = inner_ns.max(outer_ns);
                let least = self.hwlat_least_ns.map_or(latency_ns, |least| least.min(latency_ns));
                self.hwlat_least_ns = Some(least);
                let sample = HwlatSample { inner_ns, outer_ns, count, nmi_ns, nmi_count, wall_ns };
                self.sample(event, event.at_ns, latency_ns, LateKind::Hwlat(sample), 0);
            }
            EventKind::Osnoise(sample) => {
                let kind = LateKind::Noises { runtime_ns: sample.runtime_ns, counts: sample.counts };
                self.last_sample.insert(event.cpu, sample.noise_max_ns);
                // Its largest noise has a line of its own if it is above the tracer's threshold. Otherwise it was at any
                // moment of the period.
                let gap_ns = self.largest_gap_ns.remove(&event.cpu).unwrap_or(0);
                if gap_ns.saturating_add(ROUNDED_NS) < sample.noise_max_ns {
                    self.sample(event, event.at_ns, sample.noise_max_ns, kind, sample.runtime_ns);
                }
            }
            EventKind::NoiseGap { start_ns, duration_ns, interference } => {
                self.seen.gaps += 1;
                self.last_sample.insert(event.cpu, duration_ns);
                let end_ns = start_ns.saturating_add(duration_ns);
                let largest_ns = self.largest_gap_ns.entry(event.cpu).or_default();
                *largest_ns = duration_ns.max(*largest_ns);
                self.sample(event, end_ns, duration_ns, LateKind::NoiseGap { interference }, 0);
            }
            EventKind::Noise { source, start_ns, duration_ns } => {
                self.seen.noises += 1;
                let end_ns = start_ns.saturating_add(duration_ns);
                self.sample(event, end_ns, duration_ns, LateKind::Noise(source), 0);
            }
            _ => {}
        }
    }

    fn sample(&mut self, event: &Event, actual_ns: u64, latency_ns: u64, kind: LateKind, error_ns: u64) {
        let (top, least_ns) = (self.options.top, self.least_ns);
        let lists = if let LateKind::Noise(_) = kind { &mut self.noises } else { &mut self.samples };
        let key = match kind {
            // The line belongs to the interrupted thread.
            LateKind::Noise(_) => u32::MAX - event.cpu.0,
            _ => event.pid.unwrap_or(u32::MAX - event.cpu.0),
        };
        self.seen.samples += u64::from(!matches!(kind, LateKind::Noise(_)));
        let found = list(lists, key, self.options, &mut self.tasks.dropped);
        let Some((command, largest)) = found else { return };
        let own = event.command.filter(|_| !matches!(kind, LateKind::Noise(_)));
        *command = own.or(*command);
        let expected_ns = actual_ns.saturating_sub(latency_ns);
        let late = Late::new(event.cpu, expected_ns, actual_ns, ExpectedFrom::Tracer, kind);
        let since_ns = expected_ns.saturating_sub(SAMPLE_BEFORE_NS);
        let pid = event.pid.filter(|_| own.is_some());
        largest.push(Late { pid, command: own, since_ns, error_ns, ..late }, top, least_ns);
    }
}
