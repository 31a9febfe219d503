//! The fields of an event as text: `name: fields as the kernel or trace-cmd prints them`.
//!
//! The texts differ between kernels in the order and number of fields, and trace-cmd has its own for tasks; all of them
//! are taken here.

use super::scan;
use crate::event::{EventKind, Name, Symbol, Task, TaskState, Vector};
use crate::parse::events::{Fields, state_of_bits, vector_of_reason};
use crate::parse::texts::Texts;
use memchr::memmem;
use whylate_core::CpuId;

/// Between the tasks of a switch.
const ARROW: &[u8] = b" ==> ";

pub(in crate::parse) struct Text<'a> {
    pub(super) name: &'a [u8],
    /// The text after the name, without spaces around it; parts read from its end are removed.
    pub(super) fields: &'a [u8],
    pub(super) texts: &'a mut Texts,
}

impl<'a> Text<'a> {
    /// The last word.
    fn word(&mut self) -> Option<&'a [u8]> {
        let bytes = scan::trim_end(self.fields);
        let (rest, last) = scan::split_last(bytes, b' ').unwrap_or((&[], bytes));
        self.fields = rest;
        (!last.is_empty()).then_some(last)
    }

    /// Takes the value of the last `key=value` or `key value`, and removes it with everything after it.
    fn behind(&mut self, key: &str) -> Option<&'a [u8]> {
        let mut after: &[u8] = b"";
        loop {
            let word = self.word()?;
            match word.strip_prefix(key.as_bytes()) {
                Some([b'=', value @ ..]) => return Some(value),
                Some([]) => return Some(after),
                _ => after = word,
            }
        }
    }

    fn value(&self, key: &str) -> Option<&'a [u8]> {
        scan::value(self.fields, key.as_bytes())
    }

    /// `command:pid [priority]`, as trace-cmd writes tasks; `before` follows an arrow.
    fn brief_task(&mut self) -> Option<Task> {
        let priority = self.word()?.strip_prefix(b"[")?.strip_suffix(b"]")?;
        let (before, task) = scan::split(self.fields, ARROW).unwrap_or((b"", self.fields));
        self.fields = before;
        let (command, pid) = scan::split_last(scan::trim(task), b':')?;
        let (pid, priority) = (scan::whole_u32(pid)?, scan::whole_i32(priority)?);
        Some(Task { pid, command: self.texts.intern(command), priority })
    }
}

impl<'a> Fields<'a> for Text<'a> {
    fn event(&self) -> &'a [u8] {
        self.name
    }

    fn intern(&mut self, text: &[u8]) -> Name {
        self.texts.intern(text)
    }

    fn number(&mut self, key: &str) -> Option<u64> {
        scan::whole(self.value(key)?)
    }

    fn signed(&mut self, key: &str) -> Option<i64> {
        scan::signed(self.value(key)?)
    }

    fn u32(&mut self, key: &str) -> Option<u32> {
        scan::whole_u32(self.value(key)?)
    }

    fn renamed(&mut self, _: &str, text_key: &str) -> Option<u64> {
        self.number(text_key)
    }

    fn address(&mut self, key: &str) -> Option<u64> {
        scan::hexadecimal(self.value(key)?)
    }

    /// If the kernel printed a function, the address that [`Texts::address`] keeps for it.
    fn code(&mut self, key: &str) -> Option<u64> {
        let value = self.value(key)?;
        let known = value.starts_with(b"0x") || value.len() == 16;
        let address = scan::hexadecimal(value).filter(|_| known);
        address.or_else(|| (!value.starts_with(b"0x")).then(|| self.texts.address(value))?)
    }

    fn symbol(&mut self, key: &str) -> Option<Symbol> {
        symbol(self.value(key)?, self.texts)
    }

    fn caller(&mut self, key: &str) -> Option<Symbol> {
        self.symbol(key)
    }

    fn name(&mut self, key: &str) -> Option<Name> {
        Some(self.texts.intern(scan::trim(scan::behind(self.fields, key.as_bytes())?)))
    }

    /// `NR 230 (…)` or `NR 230 = 0`; −1 when a tracer skipped the call.
    fn syscall(&mut self, key: &str) -> Option<Option<u32>> {
        match self.fields.strip_prefix(b"NR ") {
            Some(rest) => Some(scan::whole_u32(scan::token(rest).0)),
            None => (key != "id").then_some(None),
        }
    }

    fn suffix(&mut self, prefix: &str) -> Option<Name> {
        Some(self.texts.intern(self.name.strip_prefix(prefix.as_bytes())?))
    }

    fn reason(&mut self, _: &str) -> Option<Vector> {
        let (_, reason) = scan::split(self.fields, b"(")?;
        Some(vector_of_reason(scan::trim(reason.strip_suffix(b")")?), |text| self.texts.intern(text)))
    }

    /// The written text, without the name of the function that wrote it.
    fn marker(&mut self, _: &str) -> Option<Name> {
        let fields = self.fields;
        // `report -R` has the fields of the record: `ip=tracing_mark_write buf=…`.
        let raw = fields
            .strip_prefix(b"ip=")
            .and_then(|fields| scan::split(fields, b" buf="))
            .map(|(_, text)| text);
        let text = raw
            .or_else(|| fields.strip_prefix(b"tracing_mark_write:").map(scan::skip_spaces))
            .unwrap_or(fields);
        Some(self.texts.intern(text))
    }

    fn formatted(&mut self, _: &str, arguments: &str) -> Option<Name> {
        self.marker(arguments)
    }

    fn stored(&mut self, key: &str) -> Option<Name> {
        self.marker(key)
    }

    fn last(&mut self, key: &str) -> Option<i64> {
        scan::signed(self.behind(key)?)
    }

    fn cpu(&mut self, key: &str) -> Option<CpuId> {
        let whole = self.fields;
        let cpu = match self.word()?.strip_prefix(b"CPU:") {
            Some(cpu) => cpu,
            None => {
                self.fields = whole;
                self.behind(key)?
            }
        };
        // trace-cmd and old kernels have `success=` before it.
        let whole = self.fields;
        if !self.word().is_some_and(|word| word.starts_with(b"success=")) {
            self.fields = whole;
        }
        scan::whole_u32(cpu).map(CpuId)
    }

    fn time(&mut self, key: &str) -> Option<u64> {
        let (at_ns, digits, rest) = scan::seconds(self.behind(key)?)?;
        (digits > 0 && rest.is_empty()).then_some(at_ns)
    }

    fn learn(&mut self, task: &Task) {
        self.texts.learn(task.pid, task.command);
    }

    /// `S`, `R+`, `D|K`, …; with `report -R` a number, as in the record.
    fn state(&mut self, key: &str) -> Option<TaskState> {
        let word = self.word()?;
        let state =
            word.strip_prefix(key.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")).unwrap_or(word);
        let first = *state.first()?;
        if let Some(bits) = scan::whole(state) {
            return Some(state_of_bits(bits));
        }
        if first == b'R' || state.ends_with(b"+") {
            return Some(TaskState::Runnable);
        }
        first.is_ascii_alphabetic().then_some(TaskState::Blocked(char::from(first)))
    }

    fn task(&mut self, command_key: &str, pid: &str, priority: &str) -> Option<Task> {
        if scan::trim_end(self.fields).ends_with(b"]") {
            return self.brief_task();
        }
        let priority = scan::whole_i32(self.behind(priority)?)?;
        let pid = scan::whole_u32(self.behind(pid)?)?;
        let fields = self.fields;
        let from =
            |at: usize| Some((at, fields[at..].strip_prefix(command_key.as_bytes())?.strip_prefix(b"=")?));
        // An arrow and the key after it are longer than any text after an arrow in a command can be.
        let arrow = || memmem::find_iter(fields, ARROW).find_map(|at| from(at + ARROW.len()));
        // `report -R` has none.
        let bare = || memmem::rfind(fields, b" next_comm=").and_then(|at| from(at + 1));
        let (at, command) = from(0).or_else(arrow).or_else(bare)?;
        self.fields = fields[..at].strip_suffix(ARROW).unwrap_or(&fields[..at]);
        Some(Task { pid, command: self.texts.intern(command), priority })
    }

    fn labelled(&mut self, _: Option<&str>, _: &str) -> Option<(Name, i64)> {
        let (label, number) = scan::split_last(scan::trim(self.fields), b':')?;
        Some((self.texts.intern(label), scan::signed(number)?))
    }
}

/// A function: its name without offset, size and module, or its address; `None` for nothing at all.
pub(super) fn symbol(bytes: &[u8], texts: &mut Texts) -> Option<Symbol> {
    if let Some(digits) = bytes.strip_prefix(b"0x") {
        return scan::hexadecimal(digits).map(Symbol::Address);
    }
    let length = bytes
        .iter()
        .position(|byte| matches!(byte, b'+' | b'/' | b'(' | b' ' | b'[' | b','))
        .unwrap_or(bytes.len());
    let name = &bytes[..length];
    if name.len() == 16
        && let Some(address) = scan::hexadecimal(name)
    {
        return Some(Symbol::Address(address));
    }
    match name {
        b"" => None,
        b"0" => Some(Symbol::Address(0)),
        _ => Some(Symbol::Name(texts.intern(name))),
    }
}

/// `perf_event_nmi_handler() delta_ns: 2358 handled: 1`.
pub(in crate::parse) fn nmi(text: &mut Text<'_>) -> Option<EventKind> {
    let (handler, rest) = scan::split(text.fields, b"() delta_ns: ")?;
    let (duration_ns, _) = scan::number(scan::skip_spaces(rest))?;
    Some(EventKind::Nmi { handler: symbol(handler, text.texts)?, duration_ns })
}

/// `work struct 0xffff…: function vmstat_update`.
pub(in crate::parse) fn work_begin(text: &mut Text<'_>) -> Option<EventKind> {
    let (work, function) = scan::split(text.fields.strip_prefix(b"work struct ")?, b": function ")?;
    let function = symbol(scan::token(function).0, text.texts)?;
    Some(EventKind::WorkBegin { work: scan::hexadecimal(work)?, function })
}

/// The same, or `work struct 0xffff…` before Linux 5.5.
pub(in crate::parse) fn work_end(text: &mut Text<'_>) -> Option<EventKind> {
    let work = scan::token(text.fields.strip_prefix(b"work struct ")?).0;
    Some(EventKind::WorkEnd { work: scan::hexadecimal(work.strip_suffix(b":").unwrap_or(work))? })
}

/// `0xffff… (flags=SPIN|READ)`.
pub(in crate::parse) fn lock_wait(text: &mut Text<'_>) -> Option<EventKind> {
    const FLAGS: [&[u8]; 6] = [b"SPIN", b"READ", b"WRITE", b"RT", b"PERCPU", b"MUTEX"];
    let (lock, flags) = scan::split(text.fields, b" (flags=")?;
    let mut bits = 0;
    for flag in flags.strip_suffix(b")")?.split(|byte| *byte == b'|').filter(|flag| !flag.is_empty()) {
        bits |= match FLAGS.iter().position(|known| *known == flag) {
            Some(bit) => 1 << bit,
            None => u32::try_from(scan::hexadecimal(flag)?).ok()?,
        };
    }
    Some(EventKind::LockWait { lock: scan::hexadecimal(lock)?, flags: bits })
}

/// `0xffff… (ret=0)`.
pub(in crate::parse) fn lock_wait_end(text: &mut Text<'_>) -> Option<EventKind> {
    Some(EventKind::LockWaitEnd { lock: scan::hexadecimal(scan::token(text.fields).0)? })
}

/// `function: function <-- caller`.
pub(in crate::parse) fn function_field(text: &mut Text<'_>) -> Option<EventKind> {
    super::tracer::function(text.fields, text.texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols() {
        let mut texts = Texts::default();
        let name = Symbol::Name(texts.intern(b"hrtimer_wakeup"));
        for text in
            ["hrtimer_wakeup", "hrtimer_wakeup/0x0", "hrtimer_wakeup+0x0/0x30", "hrtimer_wakeup+0x0/0x30 [m]"]
        {
            assert_eq!(symbol(text.as_bytes(), &mut texts), Some(name), "{text}");
        }
        assert_eq!(symbol(b"0xffffffff81000000", &mut texts), Some(Symbol::Address(0xffff_ffff_8100_0000)));
        assert_eq!(symbol(b"ffffffff81000000", &mut texts), Some(Symbol::Address(0xffff_ffff_8100_0000)));
        assert_eq!(symbol(b"0x0", &mut texts), Some(Symbol::Address(0)));
        assert_eq!(symbol(b"", &mut texts), None);
    }

    #[test]
    fn fields_are_read_from_the_end() {
        let mut texts = Texts::default();
        let mut text = Text { name: b"", fields: b"comm=a pid=1 pid=7 prio=120 start 5", texts: &mut texts };
        assert_eq!((text.last("start"), text.behind("prio")), (Some(5), Some(&b"120"[..])));
        assert_eq!(text.behind("pid"), Some(&b"7"[..]));
        assert_eq!(text.fields, b"comm=a pid=1");
    }
}
