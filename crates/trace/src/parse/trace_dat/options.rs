//! The options of a trace.dat.

use crate::parse::bytes::{ByteOrder, until_nul};
use crate::parse::ring_buffer::Clock;
use crate::reader::lose;
use whylate_core::CpuId;

/// Numbers of the options that are used. Those between them, and all above, are skipped.
pub(super) mod id {
    pub(in super::super) const DONE: u16 = 0;
    pub(in super::super) const CPU_STATISTICS: u16 = 2;
    pub(in super::super) const BUFFER: u16 = 3;
    pub(in super::super) const TRACE_CLOCK: u16 = 4;
    pub(in super::super) const UNAME: u16 = 5;
    pub(in super::super) const OFFSET: u16 = 7;
    pub(in super::super) const CPU_COUNT: u16 = 8;
    pub(in super::super) const CYCLES: u16 = 14;
    pub(in super::super) const HEADER: u16 = 16;
    pub(in super::super) const FTRACE_EVENTS: u16 = 17;
    pub(in super::super) const EVENT_FORMATS: u16 = 18;
    pub(in super::super) const SYMBOLS: u16 = 19;
    pub(in super::super) const PRINTK: u16 = 20;
    pub(in super::super) const COMMANDS: u16 = 21;
    pub(in super::super) const BUFFER_TEXT: u16 = 22;
}

/// What the options state about the whole trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) clock: Option<String>,
    /// Version 6: the clocks stand behind the list of CPUs.
    pub(super) clock_follows: bool,
    pub(super) release: Option<String>,
    pub(super) cpus: Option<u32>,
    pub(super) lost: Vec<(CpuId, u64)>,
    offset_ns: i64,
    /// Multiplier, shift and offset that make nanoseconds of cycles.
    cycles: Option<(u32, u32, u64)>,
}

impl Options {
    /// Takes one option; one that is not known, or damaged, is skipped.
    pub(super) fn take(&mut self, option: u16, data: &[u8], order: ByteOrder) {
        let text = String::from_utf8_lossy(until_nul(data));
        match option {
            id::CPU_STATISTICS => self.statistics(&text),
            id::TRACE_CLOCK if text.is_empty() => self.clock_follows = true,
            id::TRACE_CLOCK => self.clock = selected(&text).or(self.clock.take()),
            id::UNAME => self.release = release(&text),
            id::OFFSET => self.offset_ns = self.offset_ns.wrapping_add(number(&text).unwrap_or(0)),
            id::CPU_COUNT => self.cpus = order.u32(data, 0),
            id::CYCLES => {
                self.cycles = (|| Some((order.u32(data, 0)?, order.u32(data, 4)?, order.u64(data, 8)?)))();
            }
            _ => {}
        }
    }

    /// `per_cpu/cpuN/stats` with the CPU before it: what was overwritten or dropped.
    fn statistics(&mut self, text: &str) {
        let mut cpu = None;
        let mut lost = 0u64;
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim().parse::<u64>().ok();
            match key.trim() {
                "CPU" => cpu = value.and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId),
                "overrun" | "commit overrun" | "dropped events" => {
                    lost = lost.saturating_add(value.unwrap_or(0));
                }
                _ => {}
            }
        }
        // Each buffer has its own statistics: those of one CPU add up.
        if let Some(cpu) = cpu.filter(|_| lost > 0) {
            lose(&mut self.lost, cpu, lost);
        }
    }

    /// How times become nanoseconds under `clock`.
    pub(super) fn times(&self, clock: Option<&str>) -> Clock {
        match self.cycles.filter(|(multiplier, ..)| clock == Some("x86-tsc") && *multiplier > 0) {
            Some((multiplier, shift, offset)) => Clock {
                scale: Some((multiplier, shift)),
                offset_ns: self.offset_ns.wrapping_sub(offset as i64),
            },
            None => Clock { scale: unit(clock), offset_ns: self.offset_ns },
        }
    }

    /// Smallest step of the times under `clock`; 0 when they are counts or cycles.
    pub(super) fn resolution_ns(&self, clock: Option<&str>) -> u64 {
        match (clock, self.times(clock).scale) {
            (Some("counter"), _) | (Some("x86-tsc"), None) => 0,
            (Some("uptime"), _) => UPTIME_TICK_NS.into(),
            _ => 1,
        }
    }
}

/// The unit of the clock `uptime`: the kernel converts its jiffies to `clock_t` (`trace_clock_jiffies`), whatever HZ is.
/// `clock_t` has 100 ticks per second on every architecture except Alpha (and the former IA-64), where it has 1024.
const UPTIME_TICK_NS: u32 = 10_000_000;

/// The conversion to nanoseconds for a clock that does not count nanoseconds.
pub(super) fn unit(clock: Option<&str>) -> Option<(u32, u32)> {
    (clock == Some("uptime")).then_some((UPTIME_TICK_NS, 0))
}

/// The word in brackets of `trace_clock`: `local [global] counter`; the whole text when it is a single word.
pub(super) fn selected(text: &str) -> Option<String> {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(clock, _)| clock);
    let single = || Some(text.trim()).filter(|text| !text.is_empty() && !text.contains(' '));
    bracketed.or_else(single).map(str::to_owned)
}

/// The release in `Linux host 6.1.0-53-rt-amd64 x86_64`.
fn release(text: &str) -> Option<String> {
    text.split_whitespace().rev().nth(1).map(str::to_owned)
}

/// A number as C reads it: decimal or, with `0x`, hexadecimal.
fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_understood() {
        assert_eq!(selected("local global [mono] boot\n").as_deref(), Some("mono"));
        assert_eq!(selected("local").as_deref(), Some("local"));
        assert_eq!(selected(""), None);
        assert_eq!(release("Linux my host 6.1.0-53-rt-amd64 x86_64").as_deref(), Some("6.1.0-53-rt-amd64"));
        assert_eq!((number("-0x10"), number("25"), number("x")), (Some(-16), Some(25), None));
    }

    #[test]
    fn losses_add_up_over_buffers() {
        let mut options = Options::default();
        let text =
            b"CPU: 1\nentries: 5\noverrun: 3\ncommit overrun: 1\ndropped events: 2\nread events: 9\n\0";
        options.take(id::CPU_STATISTICS, text, ByteOrder::Little);
        options.take(id::CPU_STATISTICS, text, ByteOrder::Little);
        options.take(id::CPU_STATISTICS, b"CPU: 0\noverrun: 0\n", ByteOrder::Little);
        assert_eq!(options.lost, [(CpuId(1), 12)]);
    }

    #[test]
    fn cycles_are_scaled_only_under_their_clock() {
        let mut options = Options::default();
        let mut data = 3u32.to_be_bytes().to_vec();
        data.extend_from_slice(&1u32.to_be_bytes());
        data.extend_from_slice(&100u64.to_be_bytes());
        options.take(id::CYCLES, &data, ByteOrder::Big);
        options.take(id::OFFSET, b"7\0", ByteOrder::Big);
        options.take(99, b"anything", ByteOrder::Big);
        assert_eq!(options.times(Some("x86-tsc")).nanos(200), 207);
        assert_eq!(options.times(Some("local")).nanos(200), 207);
        assert_eq!(options.times(Some("x86-tsc")).nanos(300), 357);
        assert_eq!((options.resolution_ns(Some("x86-tsc")), options.resolution_ns(Some("mono"))), (1, 1));
    }

    #[test]
    fn clocks_that_do_not_count_nanoseconds_are_reported() {
        let options = Options::default();
        assert_eq!(options.times(Some("uptime")).nanos(3), 30_000_000);
        let steps = ["uptime", "counter", "x86-tsc", "boot"].map(|clock| options.resolution_ns(Some(clock)));
        assert_eq!(steps, [10_000_000, 0, 0, 1]);
    }
}
