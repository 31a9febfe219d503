//! A kernel trace of LTTng as `babeltrace2` (or `babeltrace`) prints it: `[14:29:05.847291532] (+0.000012843) host
//! sched_switch: { cpu_id = 2 }, { prev_comm = "a", prev_tid = 7, … }`, with any contexts between.
//!
//! The thread of a line is known from the switches of its CPU, and before the first switch from the context `tid` and
//! `procname`. Functions are addresses. Priorities of LTTng count from the lowest real-time one (100).

use super::{ConvertError, each_line};
use crate::parse::Source;
use crate::parse::text::unquoted;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;

/// Lines that show how priorities are counted.
const LINES_SAMPLED: usize = 1 << 16;
/// A line that a mail broke into more parts is not joined.
const LINE_BYTES_MAX: usize = 16 << 10;
const DAY_NS: u64 = 86_400 * 1_000_000_000;

pub(super) fn is(head: &[u8]) -> bool {
    memchr::memmem::find(head, b": { cpu_id = ").is_some()
}

struct LttngLine<'l> {
    at_ns: u64,
    cpu: u32,
    name: &'l str,
    /// Fields of contexts come before those of the event.
    fields: Vec<(&'l str, &'l str)>,
}

pub(super) fn convert(source: &Source, output: &mut dyn Write) -> Result<(), ConvertError> {
    let mut priorities = LttngPriorities::default();
    let mut left = LINES_SAMPLED;
    each_whole(source, |text| {
        if let Some(line) = line(text) {
            priorities.take(&line);
        }
        left -= 1;
        Ok(left > 0)
    })?;
    let mut machine = LttngMachine { priorities: priorities.offsets(), ..LttngMachine::default() };
    each_whole(source, |text| {
        if let Some(line) = line(text) {
            machine.write(&line, output)?;
        } else if let Some((cpu, events)) = lost(text) {
            writeln!(output, "CPU:{cpu} [LOST {events} EVENTS]")?;
        }
        Ok(true)
    })
}

/// Lines of the file as babeltrace wrote them: a mail quotes and breaks them.
fn each_whole(
    source: &Source,
    mut take: impl FnMut(&str) -> std::io::Result<bool>,
) -> Result<(), ConvertError> {
    let mut whole = String::new();
    let mut goes_on = true;
    each_line(source, |bytes| {
        let text = String::from_utf8_lossy(unquoted(bytes.trim_ascii_end()));
        let text = text.trim();
        let begins = text.starts_with('[') || !is_open(&whole) || whole.len() > LINE_BYTES_MAX;
        if begins && !whole.is_empty() {
            goes_on = take(&whole)?;
            whole.clear();
        }
        if !whole.is_empty() {
            whole.push(' ');
        }
        whole.push_str(text);
        Ok(goes_on)
    })?;
    if goes_on && !whole.is_empty() {
        take(&whole)?;
    }
    Ok(())
}

/// An event without its closing brace.
fn is_open(text: &str) -> bool {
    text.starts_with('[') && !text.ends_with('}')
}

fn line(text: &str) -> Option<LttngLine<'_>> {
    let (time, rest) = text.strip_prefix('[')?.split_once(']')?;
    let (head, rest) = rest.split_once(": {")?;
    let name = head.split_whitespace().next_back()?;
    // A missing brace means that the line was cut: the event is not complete.
    let rest = rest.trim_end().strip_suffix('}')?;
    let mut fields = Vec::new();
    for part in parts(rest, "}, {") {
        for field in parts(part, ",") {
            if let Some((key, value)) = field.split_once(" = ") {
                fields.push((key.trim(), value.trim()));
            }
        }
    }
    let cpu = fields.iter().find(|(key, _)| *key == "cpu_id")?.1.parse().ok()?;
    Some(LttngLine { at_ns: time_ns(time)?, cpu, name, fields })
}

/// Splits at separators that are not in quotes, parentheses or inner braces.
fn parts<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let (mut all, mut begin, mut depth, mut quoted, mut escaped) = (Vec::new(), 0, 0i32, false, false);
    for (at, letter) in text.char_indices() {
        if at < begin {
            continue;
        }
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if quoted => {}
            _ if depth == 0 && text[at..].starts_with(separator) => {
                all.push(&text[begin..at]);
                begin = at + separator.len();
            }
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            _ => {}
        }
    }
    all.push(&text[begin..]);
    all
}

/// `14:29:05.847291532`, `2026-11-28 14:29:05.847291532` or, with `--clock-seconds`, `1764340145.847291532`.
fn time_ns(text: &str) -> Option<u64> {
    let text = text.rsplit(' ').next()?;
    let (whole, fraction) = text.split_once('.')?;
    let seconds =
        whole.split(':').try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?))?;
    let digits = fraction.len();
    let fraction: u64 = fraction.parse().ok()?;
    let scale = 10u64.checked_pow(9u32.checked_sub(u32::try_from(digits).ok()?)?)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction * scale)
}

/// `Tracer discarded 15 events between […] and […] … "channel0_2"`: the file of a CPU ends in its number.
fn lost(text: &str) -> Option<(u32, u64)> {
    let lower = text.to_ascii_lowercase();
    let events = lower.split("discarded ").nth(1)?.split(' ').next()?.parse().ok()?;
    let mut ends = text.split('"').filter_map(|part| part.rsplit_once('_')?.1.parse().ok());
    Some((ends.next_back()?, events))
}

/// How the file counts priorities.
#[derive(Default)]
struct LttngPriorities {
    idle: Option<i64>,
    negative: bool,
    woken_max: i64,
}

#[derive(Clone, Copy, Default)]
struct PriorityOffsets {
    switch: i64,
    wakeup: i64,
}

impl LttngPriorities {
    fn take(&mut self, line: &LttngLine<'_>) {
        let number = |key| line.number(key);
        match line.name {
            "sched_switch" => {
                let both = [("prev_tid", "prev_prio"), ("next_tid", "next_prio")];
                for (tid, priority) in both.map(|(tid, priority)| (number(tid), number(priority))) {
                    self.negative |= priority.is_some_and(|it| it < 0);
                    self.idle = self.idle.or(priority.filter(|_| tid == Some(0)));
                }
            }
            name if name.starts_with("sched_wak") => {
                self.woken_max = self.woken_max.max(number("prio").unwrap_or(0));
            }
            _ => {}
        }
    }

    /// The idle thread has 120 in the kernel. Some versions of LTTng subtract 100 from switches alone.
    fn offsets(&self) -> PriorityOffsets {
        let switch = match self.idle {
            _ if self.negative => 100,
            Some(idle) if idle != 20 => 0,
            _ => 100,
        };
        PriorityOffsets { switch, wakeup: if self.woken_max > 40 { 0 } else { switch } }
    }
}

impl<'l> LttngLine<'l> {
    /// The value of the event's own field, without quotes; for an enumeration its number.
    fn text(&self, key: &str) -> Option<Cow<'l, str>> {
        let value = self.fields.iter().rev().find(|(known, _)| *known == key)?.1;
        let number = value.rsplit_once("container = ").map(|(_, rest)| rest.trim_end_matches([' ', ')']));
        let value = number.unwrap_or(value);
        let Some(quoted) = value.strip_prefix('"').and_then(|it| it.strip_suffix('"')) else {
            return Some(value.into());
        };
        if !quoted.contains('\\') {
            return Some(quoted.into());
        }
        let mut escaped = false;
        let is_kept = |letter: &char| {
            escaped = *letter == '\\' && !escaped;
            !escaped
        };
        Some(quoted.chars().filter(is_kept).collect::<String>().into())
    }

    fn number(&self, key: &str) -> Option<i64> {
        let text = self.text(key)?;
        match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// `hrtimer=ffff…`, as the kernel prints addresses.
    fn address(&self, key: &str) -> Option<String> {
        let text = self.text(key)?;
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let number = match digits {
            Some(digits) => u64::from_str_radix(digits, 16).ok()?,
            None => text.parse().ok()?,
        };
        Some(format!("{key}=0x{number:016x}"))
    }

    /// `comm=a pid=7 prio=120`, with what stands before each key.
    fn task(&self, before: &str, offset: i64) -> Option<String> {
        let part = |key: &str| format!("{before}{key}");
        let (comm, tid) = (self.text(&part("comm"))?, self.number(&part("tid"))?);
        let priority = self.number(&part("prio"))?.saturating_add(offset);
        Some(format!("{before}comm={comm} {before}pid={tid} {before}prio={priority}"))
    }
}

/// The kernel's name of the state of a thread that stops.
fn state(bits: i64) -> &'static str {
    match bits {
        0 => "R",
        _ if bits & 1 != 0 => "S",
        _ if bits & 2 != 0 => "D",
        _ if bits & 4 != 0 => "T",
        _ if bits & 8 != 0 => "t",
        _ if bits & 0x10 != 0 => "X",
        _ if bits & 0x20 != 0 => "Z",
        // Preempted: the first bit behind those of states.
        _ if bits >= 0x100 => "R+",
        0x80 => "I",
        _ => "X",
    }
}

#[derive(Default)]
struct LttngMachine {
    priorities: PriorityOffsets,
    /// The thread on each CPU.
    current: HashMap<u32, String>,
    last_ns: u64,
    days_ns: u64,
}

impl LttngMachine {
    fn write(&mut self, line: &LttngLine<'_>, output: &mut dyn Write) -> std::io::Result<()> {
        // A clock of the day goes on after midnight.
        if line.at_ns.saturating_add(DAY_NS / 2) < self.last_ns && self.last_ns < DAY_NS {
            self.days_ns += DAY_NS;
        }
        self.last_ns = line.at_ns;
        let at_ns = line.at_ns.saturating_add(self.days_ns);
        let next = (line.name == "sched_switch")
            .then(|| Some(format!("{}-{}", line.text("next_comm")?, line.number("next_tid")?)));
        if let Some(text) = self.event(line) {
            let context = || Some(format!("{}-{}", line.text("procname")?, line.number("tid")?));
            let thread = match line.name {
                "sched_switch" => line
                    .text("prev_comm")
                    .zip(line.number("prev_tid"))
                    .map(|(comm, tid)| format!("{comm}-{tid}")),
                name if name.starts_with("sched_wak") => self.current.get(&line.cpu).cloned(),
                _ => self.current.get(&line.cpu).cloned().or_else(context),
            };
            let thread = thread.unwrap_or_else(|| ":-1 -1".to_owned());
            let (seconds, rest) = (at_ns / 1_000_000_000, at_ns % 1_000_000_000);
            let mut written = String::new();
            let _ = write!(written, "{thread} [{:03}] {seconds}.{rest:09}: {text}", line.cpu);
            writeln!(output, "{written}")?;
        }
        if let Some(Some(next)) = next {
            self.current.insert(line.cpu, next);
        }
        Ok(())
    }

    /// The event as the kernel prints it; `None` for one that is not about latency, or is incomplete.
    fn event(&self, line: &LttngLine<'_>) -> Option<String> {
        let number = |key: &str| Some(format!("{key}={}", line.number(key)?));
        let all = |name: &str, fields: &[Option<String>]| {
            let fields: Option<Vec<String>> = fields.iter().cloned().collect();
            Some(format!("{name}: {}", fields?.join(" ")))
        };
        let timer =
            |name: &str, rest: &[Option<String>]| all(name, &[&[line.address("hrtimer")], rest].concat());
        Some(match line.name {
            "sched_switch" => format!(
                "sched_switch: {} prev_state={} ==> {}",
                line.task("prev_", self.priorities.switch)?,
                state(line.number("prev_state")?),
                line.task("next_", self.priorities.switch)?
            ),
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => format!(
                "{}: {} target_cpu={:03}",
                line.name,
                line.task("", self.priorities.wakeup)?,
                line.number("target_cpu")?
            ),
            "sched_migrate_task" => format!(
                "sched_migrate_task: {} orig_cpu={} dest_cpu={}",
                line.task("", self.priorities.wakeup)?,
                line.number("orig_cpu")?,
                line.number("dest_cpu")?
            ),
            "sched_pi_setprio" => format!(
                "sched_pi_setprio: comm={} pid={} oldprio={} newprio={}",
                line.text("comm")?,
                line.number("tid")?,
                line.number("oldprio")?.saturating_add(self.priorities.switch),
                line.number("newprio")?.saturating_add(self.priorities.switch)
            ),
            "irq_handler_entry" => {
                format!("irq_handler_entry: irq={} name={}", line.number("irq")?, line.text("name")?)
            }
            "irq_handler_exit" => format!("irq_handler_exit: irq={} ret=handled", line.number("irq")?),
            "irq_softirq_raise" | "irq_softirq_entry" | "irq_softirq_exit" => {
                let vector = usize::try_from(line.number("vec")?).ok()?;
                let action = SOFTIRQS.get(vector).unwrap_or(&"?");
                format!("{}: vec={vector} [action={action}]", line.name.trim_start_matches("irq_"))
            }
            "timer_hrtimer_start" => {
                timer("hrtimer_start", &[line.address("function"), number("expires"), number("softexpires")])?
            }
            "timer_hrtimer_cancel" => timer("hrtimer_cancel", &[])?,
            "timer_hrtimer_expire_entry" => {
                timer("hrtimer_expire_entry", &[line.address("function"), number("now")])?
            }
            "timer_hrtimer_expire_exit" => timer("hrtimer_expire_exit", &[])?,
            "timer_expire_entry" => {
                all(line.name, &[line.address("timer"), line.address("function"), number("now")])?
            }
            "timer_expire_exit" | "timer_cancel" => all(line.name, &[line.address("timer")])?,
            "workqueue_execute_start" => format!(
                "workqueue_execute_start: work struct {}: function {}",
                line.address("work")?.trim_start_matches("work="),
                line.address("function")?.trim_start_matches("function=")
            ),
            "workqueue_execute_end" => {
                format!(
                    "workqueue_execute_end: work struct {}",
                    line.address("work")?.trim_start_matches("work=")
                )
            }
            "power_cpu_idle" => format!("cpu_idle: state={} cpu_id={}", line.number("state")?, line.cpu),
            name => match name.strip_prefix("x86_irq_vectors_") {
                Some(vector) => format!("{vector}: vector={}", line.number("vector")?),
                None => return None,
            },
        })
    }
}

const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_the_ends_of_their_range_end_nothing() {
        let mut machine = LttngMachine {
            priorities: PriorityOffsets { switch: 100, wakeup: 100 },
            ..LttngMachine::default()
        };
        let mut output = Vec::new();
        for time in
            ["18446744073.709551615", "23:59:59.999999999", "00:00:00.000000001", "18446744073.709551615"]
        {
            for priority in [i64::MAX, i64::MIN, 0] {
                let text = format!(
                    "[{time}] (+?.?????????) h sched_switch: {{ cpu_id = 4294967295 }}, {{ prev_comm = \"a\", prev_tid = {priority}, \
                     prev_prio = {priority}, prev_state = {priority}, next_comm = \"b\", next_tid = 1, next_prio = {priority} }}"
                );
                machine.write(&line(&text).unwrap(), &mut output).unwrap();
            }
        }
        assert_eq!(String::from_utf8(output).unwrap().lines().count(), 12);
        assert!(line("[99999999999999999999.1] h x: { cpu_id = 1 }").is_none());
    }
}
