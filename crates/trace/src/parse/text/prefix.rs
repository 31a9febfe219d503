//! What comes before the event in a line: task, CPU, flags, time.
//!
//! Two shapes: `trace`, `trace_pipe` and reports (`          <idle>-0       [000] dn.h3..   492.292582: …`), and latency
//! traces (`irq/25-v-120       1D..h.12  155us : …`). Commands can contain anything, also what looks like a part of
//! the prefix; a place counts only when everything fits there.

use super::{columns, scan};

/// Where a command ends at the latest: 15 bytes and what pads them, a process id, and the name of an instance.
const TASK_BYTES_MAX: usize = 96;

/// The kernel pads commands to this.
const COMMAND_WIDTH: usize = 16;

/// The prefix of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix<'a> {
    pub(super) command: &'a [u8],
    pub(super) pid: u32,
    pub(super) cpu: u32,
    /// Empty where there are none.
    pub(super) flags: &'a [u8],
    pub(super) at_ns: u64,
    /// Smallest step of the time; `None` for a raw counter.
    pub(super) resolution_ns: Option<u64>,
    /// The event.
    pub(super) rest: &'a [u8],
}

/// Reads prefixes, and remembers where the last one was: its columns are mostly the next one's.
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
        // Commands are padded, unless somebody has taken the spaces at the start of lines away.
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
    let (command, pid) = task(without_group(scan::trim_end(&line[..bracket])))?;
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
    Some(Prefix { command, pid, cpu: cpu.try_into().ok()?, flags, at_ns, resolution_ns, rest })
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
fn task(task: &[u8]) -> Option<(&[u8], u32)> {
    let (command, pid) = scan::split_last(task, b'-')?;
    Some((scan::trim(command), scan::whole_u32(pid)?))
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
        pid: pid.try_into().ok()?,
        cpu: cpu.try_into().ok()?,
        flags,
        at_ns,
        resolution_ns,
        rest: rest.strip_prefix(b":")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command<'a>(found: Option<Prefix<'a>>) -> (&'a str, u32, u32, &'a str, u64) {
        let prefix = found.expect("it is a prefix");
        let text = |bytes| std::str::from_utf8(bytes).expect("ASCII");
        (text(prefix.command), prefix.pid, prefix.cpu, text(prefix.flags), prefix.at_ns)
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
    fn what_is_no_prefix() {
        for line in [
            "",
            "[",
            " => f",
            "a-b [000] d..1. 1.0: x",
            "a-1 [000] d..1. 1.0 x",
            "a-1 [000] hello 1.0: x",
            "a-1 [000",
        ] {
            assert_eq!(Prefixes::default().usual(line.as_bytes()), None, "{line}");
            assert_eq!(latency(line.as_bytes()), None, "{line}");
        }
    }
}
