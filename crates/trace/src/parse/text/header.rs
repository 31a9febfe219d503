//! The comments at the head of a trace: tracer, kernel, CPUs, columns of flags, losses.

use super::columns::{self, Columns};
use super::scan;
use crate::reader::TraceInfo;
use whylate_core::CpuId;

/// Columns of flags that are read; a damaged file could have any number.
const COLUMNS_MAX: usize = 16;

/// What a line other than an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remark {
    /// Events of a CPU are lost here.
    Lost { cpu: CpuId, events: Option<u64> },
    /// The buffer of a CPU begins here: what it did before is not in the trace.
    Begin { cpu: CpuId },
}

/// Takes what a line that begins with `#` says; some are events of sorts.
pub(super) fn comment(line: &[u8], info: &mut TraceInfo, columns: &mut Columns) -> Option<Remark> {
    if let Some(rest) = line.strip_prefix(b"##### CPU ") {
        let (cpu, rest) = scan::number(rest)?;
        return rest
            .starts_with(b" buffer started")
            .then_some(Remark::Begin { cpu: CpuId(cpu.try_into().ok()?) });
    }
    let comment = scan::skip_spaces(line.strip_prefix(b"#")?);
    if let Some(tracer) = comment.strip_prefix(b"tracer: ") {
        info.tracer = Some(String::from_utf8_lossy(scan::trim(tracer)).into_owned());
        columns.clear();
        return None;
    }
    if let Some(rest) = comment.strip_prefix(b"entries-in-buffer/entries-written: ") {
        entries(rest, info);
    } else if let Some(rest) = comment.strip_prefix(b"latency: ") {
        let (latency_us, _) = scan::number(rest)?;
        info.facts.latency_ns = latency_us.checked_mul(1000);
        processors(rest, info);
    } else if let Some((_, kernel)) = scan::split(comment, b" latency trace v")
        && let Some((_, kernel)) = scan::split(kernel, b" on ")
    {
        info.kernel = Some(String::from_utf8_lossy(scan::trim(kernel)).into_owned());
    } else if columns.len() < COLUMNS_MAX {
        columns.extend(columns::named(comment));
    }
    None
}

/// `210179/215000   #P:1`: in the buffer, and written; the kernel overwrote the difference.
fn entries(rest: &[u8], info: &mut TraceInfo) {
    processors(rest, info);
    if let Some((kept, rest)) = scan::number(rest)
        && let Some((written, _)) = rest.strip_prefix(b"/").and_then(scan::number)
    {
        info.overwritten = Some(written.saturating_sub(kept));
    }
}

/// `#P:2`.
fn processors(rest: &[u8], info: &mut TraceInfo) {
    if let Some((_, count)) = scan::split(rest, b"#P:")
        && let Some((count, _)) = scan::number(count)
    {
        info.cpus = u32::try_from(count).ok();
    }
}

/// `CPU:1 [LOST 123 EVENTS]`, `CPU:1 [LOST EVENTS]`; trace-cmd writes `[123 EVENTS DROPPED]`, `[EVENTS DROPPED]`.
pub(super) fn lost(line: &[u8]) -> Option<Remark> {
    let (cpu, rest) = scan::number(line.strip_prefix(b"CPU:")?)?;
    let words = scan::trim(rest).strip_prefix(b"[")?.strip_suffix(b"]")?;
    let count = match words.strip_prefix(b"LOST ") {
        Some(rest) => rest.strip_suffix(b"EVENTS")?,
        None => words.strip_suffix(b"EVENTS DROPPED")?,
    };
    let events = match scan::trim(count) {
        b"" => None,
        digits => Some(scan::whole(digits)?),
    };
    Some(Remark::Lost { cpu: CpuId(cpu.try_into().ok()?), events })
}

/// The first lines of a report: `cpus=2`, `version = 7`.
pub(super) fn report(line: &[u8], info: &mut TraceInfo) -> bool {
    if let Some(count) = line.strip_prefix(b"cpus=").and_then(scan::whole_u32) {
        info.cpus = Some(count);
        return true;
    }
    line.starts_with(b"version = ") || (line.starts_with(b"CPU ") && line.ends_with(b" is empty"))
}

#[cfg(test)]
mod tests {
    use super::super::columns::Column;
    use super::*;

    #[test]
    fn heads_of_kernels() {
        let (mut info, mut found) = (TraceInfo::default(), Columns::new());
        for line in [
            "# tracer: wakeup_rt",
            "# wakeup_rt latency trace v1.1.5 on 6.1.0-53-rt-amd64",
            "# latency: 219 us, #6/6, CPU#0 | (M:preempt_rt VP:0, KP:0, SP:0 HP:0 #P:1)",
            "# entries-in-buffer/entries-written: 100/250   #P:4",
            "#                    _--------=> CPU#            ",
            "#                   / _-------=> irqs-off/BH-disabled",
            "#                  | / _------=> need-resched    ",
            "#                  || / _-----=> need-resched-lazy",
            "#                  ||| / _----=> hardirq/softirq ",
            "#                  |||| / _---=> preempt-depth   ",
            "#                  ||||| / _--=> preempt-lazy-depth",
            "#                  |||||| / _-=> migrate-disable ",
            "#                  ||||||| /     delay           ",
            "# => started at: schedule",
        ] {
            assert_eq!(comment(line.as_bytes(), &mut info, &mut found), None);
        }
        assert_eq!(info.tracer.as_deref(), Some("wakeup_rt"));
        assert_eq!(info.kernel.as_deref(), Some("6.1.0-53-rt-amd64"));
        assert_eq!((info.facts.latency_ns, info.cpus, info.overwritten), (Some(219_000), Some(4), Some(150)));
        assert_eq!(found, columns::of_count(7));
        assert_eq!(columns::named(b"/ _-=> something-new"), Some(Column::Unknown));
    }

    #[test]
    fn losses() {
        let lost_of = |cpu, events| Some(Remark::Lost { cpu: CpuId(cpu), events });
        assert_eq!(lost(b"CPU:1 [LOST 123 EVENTS]"), lost_of(1, Some(123)));
        assert_eq!(lost(b"CPU:1 [LOST EVENTS]"), lost_of(1, None));
        assert_eq!(lost(b"CPU:12 [7 EVENTS DROPPED]"), lost_of(12, Some(7)));
        assert_eq!(lost(b"CPU:12 [EVENTS DROPPED]"), lost_of(12, None));
        assert_eq!(lost(b"CPU:x [LOST EVENTS]"), None);
        let begin =
            comment(b"##### CPU 1 buffer started ####", &mut TraceInfo::default(), &mut Columns::new());
        assert_eq!(begin, Some(Remark::Begin { cpu: CpuId(1) }));
    }
}
