//! Triggers for which programs in the kernel wait: calls of functions and static tracepoints, texts for trace_marker, and the
//! xrun of a sound card. The ends of chains have the same rules.

use super::places::place_with_arguments;
use super::{MarkTextBytes, TaskWatch};
use crate::error::BpfError;
use crate::events::{Event, event};
use crate::layout::tasks::{RawMarkText, RawStretch, TaskEvent};
use crate::layout::triggers::{Operand, RawTriggerRule, TRIGGER_XRUN, TRIGGERS};
use whylate_core::CpuId;
use whylate_core::plan::{ChainMark, Comparison, Condition, Mark, Operand as Compared, Trigger};
use zerocopy::transmute;

const ENTERS: &str = "trigger_enters";
const LEAVES: &str = "trigger_leaves";
const WRITTEN: Event = event("trigger_written", "sys_enter");
const XRUN: &str = "trigger_xrun";
/// As [`WRITTEN`], for texts by any thread.
const PASSED: Event = event("pass_written", "sys_enter");

type RuleBytes = [u8; size_of::<RawTriggerRule>()];

/// A trigger that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triggered {
    /// As [`TaskWatch::wait_for`] returned it.
    pub rule: u32,
    pub at_ns: u64,
    /// How often it has come by then; those in between were too close to another one.
    pub count: u64,
    /// The name of the thread.
    pub command: String,
}

impl Triggered {
    pub(super) fn of(raw: &RawStretch) -> Option<Self> {
        let (rule, at_ns, count) = (raw.waker, raw.end_ns, raw.ready_ns);
        (raw.kind == TaskEvent::Trigger).then(|| Self { rule, at_ns, count, command: raw.command.text() })
    }
}

/// A thread passed an end of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// As [`TaskWatch::pass`] returned it.
    pub rule: u32,
    pub at_ns: u64,
    /// The number of the pass, from 1; passes without a record have a number too.
    pub number: u64,
    pub cpu: CpuId,
    pub thread: u32,
    /// The name of the thread.
    pub command: String,
    /// The value that joins begin and end.
    pub value: Option<i64>,
}

impl Passed {
    pub(super) fn of(cpu: CpuId, raw: &RawStretch) -> Option<Self> {
        let pass = raw.pass()?;
        let value = if pass.has_value != 0 { Some(pass.value) } else { number(&pass.text) };
        let (rule, at_ns, thread, command) = (raw.waker, raw.end_ns, raw.thread, raw.command.text());
        Some(Self { rule, at_ns, number: pass.number, cpu, thread, command, value })
    }
}

/// The whole number at the start of a text; spaces and signs such as `=` may come before it.
fn number(text: &[u8]) -> Option<i64> {
    let text = text.split(|byte| *byte == 0).next()?;
    let begin = text.iter().position(|byte| !matches!(byte, b' ' | b'=' | b':' | b'#'))?;
    let (is_negative, digits) = match &text[begin..] {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number: i64 = str::from_utf8(&digits[..length]).ok()?.parse().ok()?;
    Some(if is_negative { -number } else { number })
}

/// Checks that an end of a chain is there, and that its value can be read.
///
/// # Errors
/// What is not there.
pub fn check_chain_mark(mark: &ChainMark) -> Result<(), String> {
    match mark.place {
        Mark::Marker { .. } => Ok(()),
        _ => rule(&mark.place, condition_of(mark).as_ref()).map(drop),
    }
}

/// The value of a pass has the place of a condition's operand.
fn condition_of(mark: &ChainMark) -> Option<Condition> {
    let (comparison, value) = (Comparison::Equal, 0);
    mark.argument.map(|nth| Condition { operand: Compared::Argument(nth), comparison, value })
}

/// Checks that the place of a call is there, and that its argument can be read.
///
/// # Errors
/// What is not there.
pub fn check_place(trigger: &Trigger) -> Result<(), String> {
    match trigger {
        Trigger::Call { place, condition } => rule(place, condition.as_ref()).map(drop),
        _ => Ok(()),
    }
}

impl TaskWatch {
    /// Waits for a trigger of the kernel; returns the number of its rule.
    ///
    /// # Errors
    /// When its place is not there, or the kernel takes no program for it.
    pub fn wait_for(&mut self, trigger: &Trigger) -> Result<u32, BpfError> {
        let nth = if *trigger == Trigger::Xrun { TRIGGER_XRUN } else { self.rules };
        if nth == TRIGGER_XRUN && *trigger != Trigger::Xrun {
            let most = TRIGGERS - 1;
            return Err(BpfError::NoMark(format!(
                "at most {most} triggers can be functions, static tracepoints and texts"
            )));
        }
        let object = self.causes.histograms().object_mut();
        match trigger {
            Trigger::Xrun => object.attach_raw(XRUN, &["xrun".to_owned()]).map_err(|_| {
                let reason = "the event snd_pcm:xrun is missing: it needs a kernel with \
                              CONFIG_SND_PCM_XRUN_DEBUG, and the module snd_pcm (`modprobe snd_pcm`)";
                BpfError::program("xrun", reason)
            })?,
            Trigger::Marker { text } => {
                let bytes: MarkTextBytes = transmute!(RawMarkText::new(text));
                object.set("trigger_texts", nth, &bytes)?;
                if !std::mem::replace(&mut self.reads_texts, true)
                    && let Some(reason) = object.attach(WRITTEN)?
                {
                    return Err(BpfError::program(WRITTEN.tracepoint, &reason));
                }
            }
            Trigger::Call { place, condition } => {
                let (path, offset, rule) = rule(place, condition.as_ref()).map_err(BpfError::NoMark)?;
                let bytes: RuleBytes = transmute!(rule);
                object.set("trigger_rules", nth, &bytes)?;
                let operand = condition.map(|it| it.operand);
                let programs: &[&'static str] = match operand {
                    Some(Compared::Return) => &[LEAVES],
                    Some(Compared::Took) => &[LEAVES, ENTERS],
                    Some(Compared::Argument(_)) | None => &[ENTERS],
                };
                for program in programs {
                    object.attach_place(program, &path, offset, Some(nth.into()))?;
                }
            }
            _ => return Err(BpfError::NoMark("the kernel cannot detect this trigger".to_owned())),
        }
        if nth != TRIGGER_XRUN {
            self.rules += 1;
        }
        Ok(nth)
    }

    /// Records each pass of an end of a chain from now on, by any thread; returns the number of its rule.
    ///
    /// # Errors
    /// When its place is not there, or the kernel takes no program for it.
    pub fn pass(&mut self, mark: &ChainMark) -> Result<u32, BpfError> {
        let nth = self.rules;
        if nth == TRIGGER_XRUN {
            let most = TRIGGERS - 1;
            return Err(BpfError::NoMark(format!("at most {most} ends of chains and triggers have a place")));
        }
        let object = self.causes.histograms().object_mut();
        if let Mark::Marker { text } = &mark.place {
            let offset = u32::try_from(text.len()).unwrap_or_default();
            let bytes: RuleBytes =
                transmute!(RawTriggerRule { offset, is_pass: 1, ..RawTriggerRule::default() });
            object.set("trigger_rules", nth, &bytes)?;
            let bytes: MarkTextBytes = transmute!(RawMarkText::new(text));
            object.set("pass_texts", nth, &bytes)?;
            if !std::mem::replace(&mut self.reads_passes, true)
                && let Some(reason) = object.attach(PASSED)?
            {
                return Err(BpfError::program(PASSED.tracepoint, &reason));
            }
        } else {
            let found = rule(&mark.place, condition_of(mark).as_ref()).map_err(BpfError::NoMark)?;
            let (path, offset, rule) = found;
            let bytes: RuleBytes = transmute!(RawTriggerRule { is_pass: 1, ..rule });
            object.set("trigger_rules", nth, &bytes)?;
            object.attach_place(ENTERS, &path, offset, Some(nth.into()))?;
        }
        self.rules += 1;
        Ok(nth)
    }

    /// The passes of ends of chains since the last call, in the order of time. Call it soon after [`Self::poll`].
    pub fn passed(&mut self) -> Vec<Passed> {
        std::mem::take(&mut self.passed)
    }

    /// The triggers that came since the last call, in the order of time. Call it soon after [`Self::poll`].
    pub fn triggered(&mut self) -> Vec<Triggered> {
        std::mem::take(&mut self.triggered)
    }

    /// How often a trigger came in all, also those too close to another one to be in [`Self::triggered`].
    pub fn trigger_count(&mut self, rule: u32) -> u64 {
        let object = self.causes.histograms().object();
        let raw = object
            .get::<RuleBytes>("trigger_rules", rule)
            .map(|bytes| -> RawTriggerRule { transmute!(bytes) });
        raw.map_or(0, |raw| raw.count)
    }
}

/// Where a call is, and its rule.
fn rule(
    place: &Mark,
    condition: Option<&Condition>,
) -> Result<(std::path::PathBuf, u64, RawTriggerRule), String> {
    let found = place_with_arguments(place)?;
    let (path, offset, arguments) = found.ok_or_else(|| "this place is not in a file".to_owned())?;
    let Some(condition) = condition else { return Ok((path, offset, RawTriggerRule::default())) };
    let place = match (condition.operand, place) {
        (Compared::Took, _) => ValuePlace::of(Operand::Took),
        (Compared::Return, _) => {
            ValuePlace { offset: register(RESULT).unwrap_or_default(), ..ValuePlace::of(Operand::Register) }
        }
        (Compared::Argument(nth), Mark::Usdt { .. }) => {
            let text = arguments.split_whitespace().nth(usize::from(nth) - 1);
            let text = text.ok_or_else(|| {
                format!("the static tracepoint has no argument {nth}; its arguments are: {arguments}")
            })?;
            ValuePlace::parse(text).ok_or_else(|| {
                format!(
                    "argument {nth} of the static tracepoint is at `{text}`, which whylate cannot read; \
                     choose an argument in a register, at N@off(register), or a constant"
                )
            })?
        }
        (Compared::Argument(nth), _) => {
            let offset = ARGUMENTS.get(usize::from(nth) - 1).and_then(|name| register(name));
            let offset = offset.ok_or_else(|| {
                format!("whylate does not know where this architecture passes argument {nth}")
            })?;
            ValuePlace { offset, ..ValuePlace::of(Operand::Register) }
        }
    };
    let rule = RawTriggerRule {
        value: condition.value,
        displacement: place.displacement,
        operand: place.operand as u32,
        comparison: condition.comparison as u32,
        offset: place.offset,
        width: place.width,
        is_signed: place.is_signed.into(),
        ..RawTriggerRule::default()
    };
    Ok((path, offset, rule))
}

/// Where a value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ValuePlace {
    operand: Operand,
    offset: u32,
    displacement: i64,
    width: u16,
    is_signed: bool,
}

impl ValuePlace {
    fn of(operand: Operand) -> Self {
        Self { operand, ..Self::default() }
    }

    /// An argument of a static tracepoint: `-4@%edi`, `8@-20(%rbp)`, `4@$5`; on arm64 `8@x0`, `-4@[sp, 12]`, `4@5`.
    fn parse(text: &str) -> Option<Self> {
        let (width, place) = text.split_once('@')?;
        let width: i16 = width.parse().ok()?;
        let place = Self::of_value(place)?;
        let bytes = width.unsigned_abs();
        matches!(bytes, 1 | 2 | 4 | 8).then_some(Self { width: bytes, is_signed: width < 0, ..place })
    }

    fn of_value(text: &str) -> Option<Self> {
        if let Some(offset) = register(text.trim_start_matches('%')) {
            return Some(Self { offset, ..Self::of(Operand::Register) });
        }
        if let Ok(displacement) = text.trim_start_matches(['$', '#']).parse() {
            return Some(Self { displacement, ..Self::of(Operand::Constant) });
        }
        let (base, displacement) = match text.strip_prefix('[') {
            Some(inside) => {
                inside.strip_suffix(']')?.split_once(',').unwrap_or((inside.strip_suffix(']')?, "0"))
            }
            None => {
                let (displacement, base) = text.strip_suffix(')')?.split_once('(')?;
                (base, displacement)
            }
        };
        let displacement = displacement.trim();
        let displacement = if displacement.is_empty() { 0 } else { displacement.parse().ok()? };
        let offset = register(base.trim().trim_start_matches('%'))?;
        Some(Self { offset, displacement, ..Self::of(Operand::Memory) })
    }
}

/// Registers of arguments and of the result.
#[cfg(target_arch = "x86_64")]
const ARGUMENTS: [&str; 6] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];
#[cfg(target_arch = "x86_64")]
const RESULT: &str = "rax";
#[cfg(not(target_arch = "x86_64"))]
const ARGUMENTS: [&str; 6] = ["x0", "x1", "x2", "x3", "x4", "x5"];
#[cfg(not(target_arch = "x86_64"))]
const RESULT: &str = "x0";

/// The place of a register in `struct pt_regs`, by the name of any part of it.
#[cfg(target_arch = "x86_64")]
fn register(name: &str) -> Option<u32> {
    const SAVED: [[&str; 4]; 16] = [
        ["r15", "r15d", "r15w", "r15b"],
        ["r14", "r14d", "r14w", "r14b"],
        ["r13", "r13d", "r13w", "r13b"],
        ["r12", "r12d", "r12w", "r12b"],
        ["rbp", "ebp", "bp", "bpl"],
        ["rbx", "ebx", "bx", "bl"],
        ["r11", "r11d", "r11w", "r11b"],
        ["r10", "r10d", "r10w", "r10b"],
        ["r9", "r9d", "r9w", "r9b"],
        ["r8", "r8d", "r8w", "r8b"],
        ["rax", "eax", "ax", "al"],
        ["rcx", "ecx", "cx", "cl"],
        ["rdx", "edx", "dx", "dl"],
        ["rsi", "esi", "si", "sil"],
        ["rdi", "edi", "di", "dil"],
        ["", "", "", ""],
    ];
    const STACK: (&str, u32) = ("rsp", 152);
    if name == STACK.0 {
        return Some(STACK.1);
    }
    let nth = SAVED.iter().position(|names| !name.is_empty() && names.contains(&name))?;
    u32::try_from(8 * nth).ok()
}

/// The same in `struct user_pt_regs`.
#[cfg(not(target_arch = "x86_64"))]
fn register(name: &str) -> Option<u32> {
    if name == "sp" {
        return Some(8 * 31);
    }
    let number: u32 = name.strip_prefix(['x', 'w'])?.parse().ok()?;
    (cfg!(target_arch = "aarch64") && number <= 30).then_some(8 * number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn arguments_of_static_tracepoints_are_registers_memory_and_constants() {
        let place = |operand, offset, displacement, width, is_signed| {
            Some(ValuePlace { operand, offset, displacement, width, is_signed })
        };
        assert_eq!(ValuePlace::parse("-4@%edi"), place(Operand::Register, 112, 0, 4, true));
        assert_eq!(ValuePlace::parse("8@%r15"), place(Operand::Register, 0, 0, 8, false));
        assert_eq!(ValuePlace::parse("2@%ax"), place(Operand::Register, 80, 0, 2, false));
        assert_eq!(ValuePlace::parse("-8@$-5"), place(Operand::Constant, 0, -5, 8, true));
        assert_eq!(ValuePlace::parse("-4@-20(%rbp)"), place(Operand::Memory, 32, -20, 4, true));
        assert_eq!(ValuePlace::parse("8@(%rsp)"), place(Operand::Memory, 152, 0, 8, false));
        for other in ["8@8(%rax,%rbx,4)", "8@counter(%rip)", "8f@%xmm0", "3@%rax", "%rax", "8@%xmm1", "8@"] {
            assert_eq!(ValuePlace::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_number_after_a_text_is_its_value() {
        let of = |text: &str| number(text.as_bytes());
        assert_eq!([of("17"), of(" 17\n"), of("=-4 x"), of(": #12,3\0\0")], [17, 17, -4, 12].map(Some));
        assert_eq!([of(""), of("\0 7"), of("x7"), of("-"), of("99999999999999999999")], [None; 5]);
    }

    #[test]
    fn a_call_that_is_not_there_is_named() {
        let own = std::env::current_exe().unwrap();
        let check = |what: &str| check_place(&format!("{}:{what}", own.display()).parse().unwrap());
        assert_eq!(check("main"), Ok(()));
        assert_eq!(check("main:return<0"), Ok(()));
        assert!(check("no_such_function:took>1ms").unwrap_err().contains("no function"));
    }
}
