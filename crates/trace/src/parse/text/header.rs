//! The comments at the head of a trace: tracer, kernel, CPUs, columns of flags, losses.

use super::columns::{self, Columns};
use super::scan;
use crate::facts::FactTask;
use crate::reader::TraceInfo;
use whylate_core::CpuId;

/// Columns of flags that are read; a damaged file could have any number.
const COLUMNS_MAX: usize = 16;

/// The meaning of a line that is not an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remark {
    /// Events of a CPU are lost here.
    Lost { cpu: CpuId, events: Option<u64> },
    /// The buffer of a CPU begins here: the trace does not have its earlier events.
    Begin { cpu: CpuId },
}

/// Takes a line that begins with `#`; some are events of sorts.
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
    } else if latency_fact(comment, info) {
    } else if let Some((tracer, version)) = scan::split(comment, b" latency trace v") {
        // In Linux 2.6 this name can mean each of them.
        if info.tracer.is_none() && tracer != b"preemption" && is_word(tracer) {
            info.tracer = Some(String::from_utf8_lossy(tracer).into_owned());
        }
        if let Some((_, kernel)) = scan::split(version, b" on ") {
            info.kernel = Some(String::from_utf8_lossy(scan::trim(kernel)).into_owned());
        }
    } else if columns.len() < COLUMNS_MAX {
        columns.extend(columns::named(comment));
    }
    None
}

fn is_word(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

/// Takes a line of a head that old kernels, and people, write without its `#`; returns whether it is one.
pub(super) fn bare(line: &[u8], info: &mut TraceInfo) -> bool {
    let kernel = scan::split(line, b" latency trace v").is_some();
    if kernel {
        comment(&[b"#", line].concat(), info, &mut Columns::new());
    }
    kernel || latency_fact(line, info)
}

/// The head of a latency tracer: `latency: 999 us, #4/4, CPU#1 | (M:preempt VP:0, …)`, `| task: ls-64 (uid:0 nice:0 policy:0
/// rt_prio:0)`, `=> started at: function`.
fn latency_fact(comment: &[u8], info: &mut TraceInfo) -> bool {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let function = |bytes: &[u8]| {
        text(scan::trim(bytes).split(|byte| matches!(byte, b'+' | b' ')).next().unwrap_or_default())
    };
    if let Some(rest) = comment.strip_prefix(b"latency: ") {
        let number = |mark: &[u8]| scan::split(rest, mark).and_then(|(_, rest)| scan::number(rest));
        let facts = &mut info.facts;
        facts.latency_ns = scan::number(rest).and_then(|(latency_us, _)| latency_us.checked_mul(1000));
        facts.entries = number(b"#").map(|(entries, _)| entries);
        facts.cpu = number(b"CPU#").and_then(|(cpu, _)| cpu.try_into().ok()).map(CpuId);
        facts.preemption = scan::split(rest, b"(M:").map(|(_, mode)| text(scan::token(mode).0));
        processors(rest, info);
    } else if let Some(rest) =
        scan::skip_spaces(comment.strip_prefix(b"|").unwrap_or(comment)).strip_prefix(b"task: ")
    {
        info.facts.task = fact_task(rest);
    } else if let Some(rest) = comment.strip_prefix(b"=> started at:") {
        info.facts.started_at = Some(function(rest)).filter(|name| !name.is_empty());
    } else if let Some(rest) = comment.strip_prefix(b"=> ended at:") {
        info.facts.ended_at = Some(function(rest)).filter(|name| !name.is_empty());
    } else {
        return false;
    }
    true
}

/// `ls-64 (uid:0 nice:0 policy:0 rt_prio:0)`.
fn fact_task(rest: &[u8]) -> Option<FactTask> {
    let (task, rest) = scan::split(rest, b" (uid:").unwrap_or((rest, b""));
    let (command, pid) = scan::split_last(scan::trim(task), b'-')?;
    let rt_priority = scan::split(rest, b"rt_prio:").and_then(|(_, rest)| scan::number(rest));
    Some(FactTask {
        command: String::from_utf8_lossy(command).into_owned(),
        pid: scan::whole_u32(pid)?,
        rt_priority: rt_priority.and_then(|(priority, _)| priority.try_into().ok()).unwrap_or(0),
    })
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
/// trace-cmd writes the name of a buffer before it: `name: CPU:1 [7 EVENTS DROPPED]`.
pub(super) fn lost(line: &[u8]) -> Option<Remark> {
    let line = scan::split(line, b": CPU:").map_or(line, |(name, _)| &line[name.len() + 2..]);
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
    // What `report -w` counts behind the last event.
    const STATISTICS: [&[u8]; 4] =
        [b"Average wakeup latency:", b"Maximum Latency:", b"Minimum Latency:", b"RT task timings:"];
    if STATISTICS.iter().any(|start| line.starts_with(start)) {
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
        assert_eq!(lost(b"my-buffer: CPU:1 [68461 EVENTS DROPPED]"), lost_of(1, Some(68461)));
        assert_eq!(lost(b"CPU:x [LOST EVENTS]"), None);
        let begin =
            comment(b"##### CPU 1 buffer started ####", &mut TraceInfo::default(), &mut Columns::new());
        assert_eq!(begin, Some(Remark::Begin { cpu: CpuId(1) }));
    }
}
