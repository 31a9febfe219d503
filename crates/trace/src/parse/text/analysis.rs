//! The analysis that rtla's timerlat prints when it stops: `## CPU 23 hit stop tracing, analyzing it ##`, and the parts of
//! the latency.

use super::scan;
use crate::facts::{Analysis, AnalysisKind, AnalysisPart};
use whylate_core::CpuId;

/// Lines that begin a part, each before those that are the start of others.
const PARTS: [(&[u8], AnalysisKind); 8] = [
    (b"Previous IRQ interference", AnalysisKind::PreviousIrq),
    (b"IRQ handler delay", AnalysisKind::TimerDelay { from_idle: false }),
    (b"Timerlat IRQ duration", AnalysisKind::TimerHandler),
    (b"Blocking thread", AnalysisKind::BlockingThread(None)),
    (b"NMI interference", AnalysisKind::Nmi),
    (b"IRQ interference", AnalysisKind::Irq(None)),
    (b"Softirq interference", AnalysisKind::Softirq(None)),
    (b"Thread interference", AnalysisKind::Thread(None)),
];

/// Parts of an analysis, and functions of a stack, that are kept of a damaged file.
const PARTS_MAX: usize = 256;
const ANALYSES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Analyser {
    done: Vec<Analysis>,
    current: Option<Analysis>,
}

impl Analyser {
    /// Takes a line without spaces around it; `false` if it is not one of an analysis.
    pub(super) fn take(&mut self, line: &[u8]) -> bool {
        if let Some((cpu, rest)) = line.strip_prefix(b"## CPU ").and_then(scan::number)
            && rest.starts_with(b" hit stop tracing")
        {
            self.finish();
            let cpu = CpuId(cpu.try_into().unwrap_or(u32::MAX));
            self.current = Some(Analysis { cpu, ..Analysis::default() });
            return true;
        }
        let Some(analysis) = &mut self.current else { return false };
        if line.starts_with(b"Max timerlat IRQ latency") {
            self.finish();
            return true;
        }
        // Versions before 6.6 leave the end of that line out.
        if let Some(second) = memchr::memmem::find(line, b"IRQ handler delay").filter(|at| *at > 0) {
            let (first, second) = line.split_at(second);
            return take(analysis, scan::trim(first)) && take(analysis, second);
        }
        take(analysis, line)
    }

    fn finish(&mut self) {
        if let Some(analysis) = &mut self.current {
            complete(analysis);
        }
        if self.done.len() < ANALYSES_MAX {
            self.done.extend(self.current.take());
        }
    }

    /// All of them, at the end of the file.
    pub(super) fn end(&mut self) -> Vec<Analysis> {
        self.finish();
        std::mem::take(&mut self.done)
    }
}

/// A truncated analysis has no sum at its end: the latency was at least the sum of the listed parts.
fn complete(analysis: &mut Analysis) {
    let ends_in_interrupt = !analysis.parts.iter().any(|part| part.what == AnalysisKind::TimerHandler);
    if analysis.of_thread || ends_in_interrupt {
        return;
    }
    let is_sum = |part: &&AnalysisPart| PARTS[1..].iter().any(|(_, kind)| same(kind, &part.what));
    let listed: u64 = analysis.parts.iter().filter(is_sum).filter_map(|part| part.duration_ns).sum();
    (analysis.latency_ns, analysis.of_thread) = (listed.max(analysis.latency_ns), true);
}

fn same(kind: &AnalysisKind, other: &AnalysisKind) -> bool {
    let is_delay = |kind: &AnalysisKind| matches!(kind, AnalysisKind::TimerDelay { .. });
    kind == other || (is_delay(kind) && is_delay(other))
}

/// Takes a line of an analysis.
fn take(analysis: &mut Analysis, line: &[u8]) -> bool {
    for (start, of_thread) in [(&b"IRQ latency:"[..], false), (b"Thread latency:", true)] {
        if line.starts_with(start) {
            if of_thread || !analysis.of_thread {
                analysis.latency_ns = duration(line).unwrap_or(0);
            }
            analysis.of_thread |= of_thread;
            return true;
        }
    }
    if let Some(function) = line.strip_prefix(b"-> ") {
        if let Some(part) = analysis.parts.last_mut().filter(|part| part.stack.len() < PARTS_MAX) {
            part.stack.push(String::from_utf8_lossy(scan::trim(function)).into_owned());
        }
        return true;
    }
    if line.starts_with(b"Blocking thread stack trace") {
        return true;
    }
    let part = match PARTS.iter().find(|(start, _)| line.starts_with(start)) {
        Some((_, AnalysisKind::TimerDelay { .. })) => {
            let from_idle = scan::split(line, b"(exit from idle)").is_some();
            Some((AnalysisKind::TimerDelay { from_idle }, duration(line)))
        }
        Some((_, kind)) => Some((kind.clone(), duration(line))),
        None => named(analysis, line),
    };
    let Some((what, duration_ns)) = part else { return line.is_empty() };
    if analysis.parts.len() < PARTS_MAX {
        analysis.parts.push(AnalysisPart { what, duration_ns, stack: Vec::new() });
    }
    true
}

/// `swapper/0:189`, `local_timer:236   12.30 us`: one of those that the part above is the sum of.
fn named(analysis: &Analysis, line: &[u8]) -> Option<(AnalysisKind, Option<u64>)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(scan::trim(bytes)).into_owned();
    let time = duration(line);
    // The time stands behind the number, which stands behind the last colon.
    let (name, rest) = scan::split_last(line, b':')?;
    let (number, _) = scan::number(rest)?;
    let thread = || Some((text(name), u32::try_from(number).ok()?));
    let kind = match &analysis.parts.last()?.what {
        AnalysisKind::BlockingThread(_) => AnalysisKind::BlockingThread(Some(thread()?)),
        AnalysisKind::Thread(_) => AnalysisKind::Thread(Some(thread()?)),
        AnalysisKind::Irq(_) => AnalysisKind::Irq(Some(text(name))),
        AnalysisKind::Softirq(_) => AnalysisKind::Softirq(Some(text(name))),
        _ => return None,
    };
    Some((kind, time))
}

/// The time in microseconds before `us`.
fn duration(line: &[u8]) -> Option<u64> {
    let before = &line[..memchr::memmem::rfind(line, b" us")?];
    let number = before.rsplit(|byte| matches!(byte, b' ' | b'\t')).next()?;
    let (value, digits, rest) = scan::seconds(number)?;
    // Read as seconds, it is a million times as long.
    rest.is_empty().then_some(if digits == 0 { value.checked_mul(1000)? } else { value / 1_000_000 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_latency_is_taken_apart() {
        const TEXT: &str = "\
## CPU 23 hit stop tracing, analyzing it ##
  IRQ handler delay:\t\t(exit from idle)\t    27.49 us (65.52 %)
  IRQ latency:\t\t\t\t\t    28.13 us
  Timerlat IRQ duration:\t\t\t     9.59 us (22.85 %)
  Blocking thread:\t\t\t\t     3.79 us (9.03 %)
\t                 objtool:49256    \t     3.79 us
    Blocking thread stack trace
\t\t-> timerlat_irq
\t\t-> free_pages
  IRQ interference\t\t\t\t     1.10 us (2.0 %)
\t             local_timer:236\t     1.10 us
  Softirq interference\t\t\t\t     0.20 us (0.10 %)
\t                     RCU:9  \t     0.20 us
------------------------------------------------------------------------
  Thread latency:\t\t\t\t    41.96 us (100%)

Max timerlat IRQ latency from idle: 28.13 us in cpu 23";
        let mut analyser = Analyser::default();
        for line in TEXT.lines() {
            let taken = analyser.take(scan::trim(line.as_bytes()));
            assert_eq!(taken, !line.starts_with('-'), "{line}");
        }
        let all = analyser.end();
        let analysis = &all[0];
        assert_eq!(
            (all.len(), analysis.cpu.0, analysis.latency_ns, analysis.of_thread),
            (1, 23, 41_960, true)
        );
        let parts: Vec<_> = analysis.parts.iter().map(|part| (part.what.clone(), part.duration_ns)).collect();
        let thread = Some(("objtool".to_owned(), 49256));
        assert_eq!(
            parts,
            [
                (AnalysisKind::TimerDelay { from_idle: true }, Some(27_490)),
                (AnalysisKind::TimerHandler, Some(9_590)),
                (AnalysisKind::BlockingThread(None), Some(3_790)),
                (AnalysisKind::BlockingThread(thread), Some(3_790)),
                (AnalysisKind::Irq(None), Some(1_100)),
                (AnalysisKind::Irq(Some("local_timer".to_owned())), Some(1_100)),
                (AnalysisKind::Softirq(None), Some(200)),
                (AnalysisKind::Softirq(Some("RCU".to_owned())), Some(200)),
            ]
        );
        assert_eq!(analysis.parts[3].stack, ["timerlat_irq", "free_pages"]);
    }

    #[test]
    fn what_is_no_analysis_is_not_taken() {
        let mut analyser = Analyser::default();
        assert!(!analyser.take(b"Blocking thread: 3 us") && !analyser.take(b"## CPU x hit"));
        assert_eq!(analyser.end(), []);
    }
}
