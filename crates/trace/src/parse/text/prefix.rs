//! The part of a line before the event: task, CPU, flags, time.
//!
//! Four shapes: `trace`, `trace_pipe` and reports (` <idle>-0 [000] dn.h3.. 492.292582: …`), `perf script` (`perf 16883 [000]
//! 14995.576815: …`), latency traces (`irq/25-v-120 1D..h.12 155us : …`) and those with the option `verbose`. Commands can
//! contain anything, including text that looks like a part of the prefix; a place counts only if everything fits there.

use super::{columns, scan};
use crate::reader::CPUS_MAX;

/// Where a command ends at the latest: 15 bytes and what pads them, a process id, and the name of an instance.
const TASK_BYTES_MAX: usize = 96;

/// The number of a CPU, where there can be one.
fn cpu_of(number: u64) -> Option<u32> {
    u32::try_from(number).ok().filter(|cpu| (*cpu as usize) < CPUS_MAX)
}

/// The kernel pads commands to this.
const COMMAND_WIDTH: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix<'a> {
    pub(super) command: &'a [u8],
    /// `None` if the tool does not know it.
    pub(super) pid: Option<u32>,
    pub(super) cpu: u32,
    /// Empty if there are none.
    pub(super) flags: &'a [u8],
    pub(super) at_ns: u64,
    /// Smallest step of the time; `None` for a raw counter.
    pub(super) resolution_ns: Option<u64>,
    pub(super) rest: &'a [u8],
    pub(super) style: Style,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    /// tracefs, or trace-cmd.
    #[default]
    Usual,
    /// `perf script`: the system stands before the name of an event, and stacks have lines of their own.
    Perf,
    /// A latency trace: commands are cut to eight bytes.
    Latency,
}

/// Whether a line begins as one with an event does.
pub(in crate::parse) fn begins_event(line: &[u8]) -> bool {
    Prefixes::default().usual(line).or_else(|| latency(line)).or_else(|| verbose(line)).is_some()
}

/// Reads prefixes, and remembers the columns of the last one: they are mostly the next one's, too.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefixes {
    bracket: usize,
}

impl Prefixes {
    /// The prefix of a line of `trace` or `trace_pipe`.
    pub(super) fn usual<'a>(&mut self, line: &'a [u8]) -> Option<Prefix<'a>> {
        if let Some(prefix) = usual_at(line, self.bracket) {
            return Some(prefix);
        }
        let head = &line[..line.len().min(TASK_BYTES_MAX)];
        let found = |outside: bool| {
            memchr::memchr_iter(b'[', head)
                .filter(|bracket| (*bracket >= COMMAND_WIDTH) == outside)
                .find_map(|bracket| Some((bracket, usual_at(line, bracket)?)))
        };
        // Commands are padded with spaces, which may have been stripped at the start of lines.
        let (bracket, prefix) = found(true).or_else(|| found(false))?;
        self.bracket = bracket;
        Some(prefix)
    }
}

/// The prefix whose CPU begins at `bracket`.
fn usual_at(line: &[u8], bracket: usize) -> Option<Prefix<'_>> {
    if *line.get(bracket)? != b'[' {
        return None;
    }
    let (cpu, rest) = scan::number(&line[bracket + 1..])?;
    let rest = scan::skip_spaces(rest.strip_prefix(b"]")?);
    let before = scan::trim_end(&line[..bracket]);
    let (style, (command, pid)) = match task(without_group(before)).filter(|_| !before.starts_with(b":")) {
        Some(task) => (Style::Usual, task),
        None => (Style::Perf, perf_task(before)?),
    };
    let (flags, rest) = match rest.first()? {
        b'0'..=b'9' => (&rest[..0], rest),
        _ => {
            let (flags, rest) = scan::token(rest);
            if !columns::are_flags(flags) {
                return None;
            }
            (flags, scan::skip_spaces(rest))
        }
    };
    let (at_ns, resolution_ns, rest) = time(rest)?;
    let rest = rest.strip_prefix(b":")?;
    Some(Prefix { command, pid, cpu: cpu_of(cpu)?, flags, at_ns, resolution_ns, rest, style })
}

/// `perf 16883`, `perf 16883/16884` (process and thread); a command that perf does not know is `:16883`.
fn perf_task(task: &[u8]) -> Option<(&[u8], Option<u32>)> {
    let (command, ids) = scan::split_last(task, b' ')?;
    let thread = scan::split_last(ids, b'/').map_or(ids, |(_, thread)| thread);
    let pid = if thread == b"-1" { None } else { Some(scan::whole_u32(thread)?) };
    let command = scan::trim(command);
    let unknown = command.strip_prefix(b":").is_some_and(|number| scan::signed(number).is_some());
    Some((if unknown { b"" } else { command }, pid))
}

/// Without the thread group id at the end: `(1234)` or `(-------)`.
fn without_group(task: &[u8]) -> &[u8] {
    let Some(inner) = task.strip_suffix(b")") else { return task };
    let Some((before, group)) = scan::split_last(inner, b'(') else { return task };
    let group = scan::trim(group);
    let is_group = group.iter().all(u8::is_ascii_digit) || group.iter().all(|byte| *byte == b'-');
    if is_group && !group.is_empty() { scan::trim_end(before) } else { task }
}

/// `command-pid`.
fn task(task: &[u8]) -> Option<(&[u8], Option<u32>)> {
    let (command, pid) = scan::split_last(task, b'-')?;
    Some((scan::trim(command), Some(scan::whole_u32(pid)?)))
}

/// A time in seconds with a fraction, or a raw counter.
fn time(bytes: &[u8]) -> Option<(u64, Option<u64>, &[u8])> {
    let (at_ns, digits, rest) = scan::seconds(bytes)?;
    Some((at_ns, (digits > 0).then(|| 10u64.pow(9 - digits as u32)), rest))
}

/// The prefix of a line of a latency trace. Commands are cut to 8 bytes there, and no space stands between the CPU and
/// the flags.
pub(super) fn latency(line: &[u8]) -> Option<Prefix<'_>> {
    let head = &line[..line.len().min(TASK_BYTES_MAX)];
    memchr::memchr_iter(b'-', head).find_map(|dash| latency_at(line, dash))
}

fn latency_at(line: &[u8], dash: usize) -> Option<Prefix<'_>> {
    let (pid, rest) = scan::number(&line[dash + 1..])?;
    let rest = rest.strip_prefix(b" ")?;
    let (cpu, rest) = scan::number(scan::skip_spaces(rest))?;
    let (flags, rest) = scan::token(rest);
    if !columns::are_flags(flags) {
        return None;
    }
    let (at, digits, rest) = scan::seconds(scan::skip_spaces(rest))?;
    let (at_ns, resolution_ns, rest) = match rest.strip_prefix(b"us") {
        Some(rest) => (at.checked_mul(1000)?, Some(1000), rest),
        None if digits > 0 => (at, Some(10u64.pow(9 - digits as u32)), rest),
        None => (at, None, rest),
    };
    // A mark for the time until the next line, which the times give as well.
    let rest = match rest {
        [b' ' | b'+' | b'!' | b'#' | b'*' | b'@' | b'$', rest @ ..] => rest,
        _ => rest,
    };
    Some(Prefix {
        command: scan::trim(&line[..dash]),
        pid: Some(pid.try_into().ok()?),
        cpu: cpu_of(cpu)?,
        flags,
        at_ns,
        resolution_ns,
        rest: rest.strip_prefix(b":")?,
        style: Style::Latency,
    })
}

/// The letters of four columns of flags, by their bits: interrupts disabled, asked to reschedule, hard interrupt, softirq, and
/// four of the depth of disabled preemption.
const LETTERS: [[u8; 4]; 256] = {
    let mut all = [[b'.'; 4]; 256];
    let mut index = 0;
    while index < 256 {
        all[index] = [
            if index & 1 != 0 { b'd' } else { b'.' },
            if index & 2 != 0 { b'n' } else { b'.' },
            match index >> 2 & 3 {
                0 => b'.',
                1 => b'h',
                2 => b's',
                _ => b'H',
            },
            match index >> 4 {
                0 => b'.',
                depth @ 1..10 => b'0' + depth as u8,
                depth => b'a' + depth as u8 - 10,
            },
        ];
        index += 1;
    }
    all
};

/// The prefix of a line of a latency trace with the option `verbose`. It has command, thread, CPU, flags as a number, depth
/// of disabled preemption, in old kernels the number of the line, the time in hexadecimal microseconds, and the time since
/// the start: `bash 4251 1 0 00000000 00000000 [58127d26] 1720.415ms (+0.000ms): …`.
pub(super) fn verbose(line: &[u8]) -> Option<Prefix<'_>> {
    let bracket = memchr::memchr(b'[', line)?;
    let (hexadecimal, rest) = scan::split(&line[bracket + 1..], b"]")?;
    scan::hexadecimal(hexadecimal)?;
    let (at_ns, digits, rest) = scan::seconds(scan::skip_spaces(rest))?;
    let (_, rest) = scan::split(rest.strip_prefix(b"ms (+")?, b"ms)")?;
    let mut head = scan::trim(&line[..bracket]);
    let mut words = [&head[..0]; 6];
    let mut count = 0;
    while count < words.len()
        && let Some((before, word)) = scan::split_last(head, b' ')
    {
        (head, words[count]) = (scan::trim_end(before), word);
        count += 1;
        // Flags are a number without zeros before it, behind the CPU; depths have eight digits.
        if count >= 2 && words[count - 1].len() != 8 && words[count - 2].len() != 8 {
            break;
        }
    }
    let depth = scan::hexadecimal(words[count.checked_sub(3)?])? & 15;
    let (flags, cpu) = (scan::whole(words[count - 2])?, scan::whole_u32(words[count - 1])?);
    let (command, pid) = scan::split_last(head, b' ')?;
    let kernel =
        usize::from(flags & 1 != 0) | usize::from(flags & 4 != 0) << 1 | (flags as usize >> 3 & 3) << 2;
    Some(Prefix {
        command: scan::trim(command),
        pid: Some(scan::whole_u32(pid)?),
        cpu,
        flags: &LETTERS[kernel | (depth as usize) << 4],
        // The number was parsed as seconds.
        at_ns: (digits == 3).then_some(at_ns / 1000)?,
        resolution_ns: Some(1000),
        rest: rest.strip_prefix(b":")?,
        style: Style::Latency,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command<'a>(found: Option<Prefix<'a>>) -> (&'a str, u32, u32, &'a str, u64) {
        let prefix = found.expect("it is a prefix");
        let text = |bytes| std::str::from_utf8(bytes).expect("ASCII");
        (text(prefix.command), prefix.pid.expect("it is known"), prefix.cpu, text(prefix.flags), prefix.at_ns)
    }

    #[test]
    fn commands_can_be_anything() {
        let mut prefixes = Prefixes::default();
        for (line, expected) in [
            (
                "          <idle>-0       [000] dn.h3..   492.292582: x",
                ("<idle>", 0, 0, "dn.h3..", 492_292_582_000),
            ),
            (
                " irq/25-virtio0--120     [001] d...3..    74.280727: x",
                ("irq/25-virtio0-", 120, 1, "d...3..", 74_280_727_000),
            ),
            (
                "     a b-1 [1] c-77      [002] d..1.     1.000001: x",
                ("a b-1 [1] c", 77, 2, "d..1.", 1_000_001_000),
            ),
            ("           [x]-9 [003] ....     2.000000: x", ("[x]", 9, 3, "....", 2_000_000_000)),
            ("           <...>-1234567 [127] ....  5.5: x", ("<...>", 1_234_567, 127, "....", 5_500_000_000)),
            (
                "            bash-1994    (   1994) [000] d..1.  6.0: x",
                ("bash", 1994, 0, "d..1.", 6_000_000_000),
            ),
            (
                "          <idle>-0       (-------) [000] d..1.  6.0: x",
                ("<idle>", 0, 0, "d..1.", 6_000_000_000),
            ),
            ("             (a)-5       [000] d..1.  6.0: x", ("(a)", 5, 0, "d..1.", 6_000_000_000)),
            (
                "            bash-1994 [000] ..... 123456789012: x",
                ("bash", 1994, 0, ".....", 123_456_789_012),
            ),
            ("       trace-cmd-250   [001]   141.850200123: x", ("trace-cmd", 250, 1, "", 141_850_200_123)),
        ] {
            assert_eq!(command(prefixes.usual(line.as_bytes())), expected, "{line}");
        }
    }

    #[test]
    fn latency_traces_too() {
        for (line, expected) in [
            ("      sh-154       0dn.h411    2us+:   154:120:R", ("sh", 154, 0, "dn.h411", 2000)),
            ("irq/25-v-120       1D....12  154us : f <-g", ("irq/25-v", 120, 1, "D....12", 154_000)),
            (
                "cyclictest-390094 5d...2.. 337980218us : f <-g",
                ("cyclictest", 390_094, 5, "d...2..", 337_980_218_000),
            ),
            ("      sh-166       0dn..5..   39us!: 0", ("sh", 166, 0, "dn..5..", 39_000)),
            ("    a-1 -7   12d..1. 1.000002: f", ("a-1", 7, 12, "d..1.", 1_000_002_000)),
        ] {
            assert_eq!(command(latency(line.as_bytes())), expected, "{line}");
        }
    }

    #[test]
    fn perf_script_and_verbose_latency_traces() {
        let mut prefixes = Prefixes::default();
        for (line, expected) in [
            (
                "irq/25-virtio0-   120 [001] 14995.576815:  sched:sched_waking: x",
                ("irq/25-virtio0-", 120, 1, "", 14_995_576_815_000),
            ),
            (":16883 16883 [000] 14995.576815379: x", ("", 16883, 0, "", 14_995_576_815_379)),
            ("my app  7/9   [012]     1.000001: x", ("my app", 9, 12, "", 1_000_001_000)),
        ] {
            assert_eq!(command(prefixes.usual(line.as_bytes())), expected, "{line}");
        }
        for (line, expected) in [
            (
                "            bash  4251 1 0 00000000 00000000 [58127d26] 1720.415ms (+0.000ms): f <-g",
                ("bash", 4251, 1, "....", 1_720_415_000),
            ),
            (
                "        my bash    4251 131 9 00000002 [0000000058127d26] 0.007ms (+0.001ms): f <-g",
                ("my bash", 4251, 131, "d.h2", 7_000),
            ),
        ] {
            assert_eq!(command(verbose(line.as_bytes())), expected, "{line}");
        }
        assert_eq!(verbose(b"bash 1 [xyz] 1.0ms (+0.0ms): f"), None);
        assert_eq!(verbose(b"[58127d26] 1720.415ms (+0.000ms): f"), None);
    }

    #[test]
    fn what_is_no_prefix() {
        for line in [
            "",
            "[",
            " => f",
            "a-b [000] d..1. 1.0: x",
            "a-1 [000] d..1. 1.0 x",
            "a-1 [000] hello 1.0: x",
            "a-1 [000",
            "a 1 [000] 1.0 x",
        ] {
            assert_eq!(Prefixes::default().usual(line.as_bytes()), None, "{line}");
            assert_eq!(latency(line.as_bytes()), None, "{line}");
        }
    }
}
