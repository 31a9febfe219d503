//! `/proc/latency_trace` of Linux 2.6.8 to 2.6.10, "preemption latency trace v1.0": the time that preemption was disabled, or that
//! a task waited for its CPU. Later versions have the columns of today.
//!
//! `00010001 0.562ms (+0.559ms): do_timer (timer_interrupt)` has the depths of interrupts, softirqs and disabled preemption
//! in hexadecimal (not in the first version). The times count from the start and from the line before. For several CPUs the
//! thread's number stands before it.

use super::{ConvertError, each_line};
use crate::parse::Source;
use crate::parse::text::{scan, unquoted};
use std::io::Write;

const TITLE: &[u8] = b"preemption latency trace v1.0";

/// Lines before the first event are few.
const HEAD_BYTES_MAX: usize = 256 << 10;

pub(super) fn is(head: &[u8]) -> bool {
    memchr::memmem::find(head, TITLE).is_some()
}

/// Converts the first trace of a file.
pub(super) fn convert(source: &Source, output: &mut dyn Write) -> Result<(), ConvertError> {
    let (mut head, mut task) = (Vec::new(), b"<...>-0".to_vec());
    let (mut traces, mut begun) = (0, false);
    each_line(source, |line| {
        let line = scan::trim(unquoted(line.trim_ascii_end()));
        traces += u32::from(memchr::memmem::find(line, TITLE).is_some());
        if traces == 0 {
            return Ok(true);
        }
        let (thread, rest) = thread(line).unwrap_or((task.clone(), line));
        if let Some((flags, microseconds, call)) = event(rest) {
            if !begun {
                begun = true;
                let says = |text: &[u8]| memchr::memmem::find(&head, text).is_some();
                // Without its start a trace may be of a section or of a task that waited.
                let tracer: &[u8] = match () {
                    () if says(b"started at: try_to_wake_up") => b"# tracer: wakeup\n",
                    () if says(b"started at") => b"# tracer: preemptoff\n",
                    () => b"",
                };
                output.write_all(&[tracer, head.as_slice()].concat())?;
            }
            output.write_all(&[b"  ", thread.as_slice(), b" 0", flags.as_slice()].concat())?;
            write!(output, " {microseconds}us : ")?;
            output.write_all(call)?;
            output.write_all(b"\n")?;
        } else if let Some(named) = named(line) {
            task = named;
            head.extend([b"| task: ", task.as_slice(), b" (uid:0)\n"].concat());
        } else if head.len() < HEAD_BYTES_MAX {
            head.extend([line, b"\n"].concat());
        }
        Ok(traces < 2)
    })?;
    // Without events there is only the head.
    if !begun {
        output.write_all(&head)?;
    }
    Ok(())
}

/// `| task: swapper/0, uid:0 …` and `process: ksoftirqd/1/5, uid: 0` as `swapper-0`.
fn named(line: &[u8]) -> Option<Vec<u8>> {
    let rest = line.strip_prefix(b"| task: ").or_else(|| line.strip_prefix(b"process: "))?;
    let (command, pid) = scan::split_last(scan::split(rest, b",")?.0, b'/')?;
    Some([command, b"-", pid].concat())
}

/// `    4 88000001 …`: the thread, and the rest.
fn thread(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (pid, rest) = scan::split(line, b" ")?;
    let is_short = pid.len() < 8 && pid.iter().all(u8::is_ascii_digit) && !pid.is_empty();
    is_short.then(|| ([b"<...>-", pid].concat(), rest))
}

/// The flags of today, the microseconds since the start, and what was called.
fn event(line: &[u8]) -> Option<([u8; 4], u64, &[u8])> {
    let (depths, timed) = match line.get(8) {
        Some(b' ') => (scan::hexadecimal(&line[..8])?, &line[9..]),
        _ => (0, line),
    };
    let (time, digits, rest) = scan::seconds(timed)?;
    let (_, call) = scan::split(rest.strip_prefix(b"ms (+")?, b"ms): ")?;
    let level = if depths & 0xff_0000 != 0 { b'h' } else { b'.' };
    let depth = b'0' + (depths & 0xff).min(9) as u8;
    (digits == 3).then_some(([b'.', b'.', level, depth], time / 1_000_000, call))
}
