//! Events of page faults, system calls, idle states and locks.

use super::{Text, scan};
use crate::event::EventKind;
use crate::parse::text::texts::Texts;

/// `address=0x7f… ip=0x55… error_code=0x6`. Where the kernel printed an address as a symbol, the event has the address
/// that [`Texts::address`] keeps for it.
pub(super) fn page_fault(text: &Text<'_>, texts: &mut Texts) -> Option<EventKind> {
    let mut address = |key| {
        let value = scan::value(text.fields, key)?;
        match value.strip_prefix(b"0x") {
            Some(digits) => scan::hexadecimal(digits),
            None if value.len() == 16 => scan::hexadecimal(value).or_else(|| texts.address(value)),
            None => texts.address(value),
        }
    };
    Some(EventKind::PageFault {
        address: address(b"address=")?,
        instruction: address(b"ip=")?,
        user: text.name == b"page_fault_user",
    })
}

/// `NR 230 (…)` or `NR 230 = 0`.
fn number(fields: &[u8]) -> Option<Option<u32>> {
    let (number, _) = scan::token(fields.strip_prefix(b"NR ")?);
    // −1 when a tracer skipped the call.
    Some(scan::whole_u32(number))
}

pub(super) fn raw_enter(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    Some(EventKind::SyscallEnter { number: number(text.fields)?, name: None })
}

pub(super) fn raw_exit(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    Some(EventKind::SyscallExit { number: number(text.fields)?, name: None })
}

/// `sys_enter_nanosleep: …`, `sys_exit_nanosleep: …`, as reports have it.
pub(super) fn named_syscall(name: &[u8], texts: &mut Texts) -> Option<EventKind> {
    if let Some(call) = name.strip_prefix(b"sys_enter_") {
        return Some(EventKind::SyscallEnter { number: None, name: Some(texts.intern(call)) });
    }
    let call = name.strip_prefix(b"sys_exit_")?;
    Some(EventKind::SyscallExit { number: None, name: Some(texts.intern(call)) })
}

/// `sys_nanosleep(rqtp: 7ffe…, rmtp: 0)` or `sys_nanosleep -> 0x0`, as tracefs has it.
pub(in crate::parse::text) fn syscall_line(line: &[u8], texts: &mut Texts) -> Option<EventKind> {
    let call = line.strip_prefix(b"sys_")?;
    if let Some((call, _)) = scan::split(call, b" -> ") {
        let name = Some(texts.intern(is_word(call)?));
        return Some(EventKind::SyscallExit { number: None, name });
    }
    let (call, rest) = scan::split(call, b"(")?;
    scan::trim_end(rest).ends_with(b")").then_some(())?;
    Some(EventKind::SyscallEnter { number: None, name: Some(texts.intern(is_word(call)?)) })
}

fn is_word(name: &[u8]) -> Option<&[u8]> {
    let all = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    (all && !name.is_empty()).then_some(name)
}

/// `state=1 cpu_id=0`; leaving idle is −1 of 32 bits.
pub(super) fn idle(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    let state = scan::value(text.fields, b"state=")?;
    match state {
        b"-1" | b"18446744073709551615" => Some(EventKind::Idle { state: None }),
        _ => {
            let state = scan::whole_u32(state)?;
            Some(EventKind::Idle { state: (state != u32::MAX).then_some(state) })
        }
    }
}

/// `0xffff… (flags=SPIN|READ)`.
pub(super) fn lock_wait(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    let (lock, flags) = scan::split(text.fields, b" (flags=")?;
    let flags = flags.strip_suffix(b")")?;
    let mut bits = 0;
    for flag in flags.split(|byte| *byte == b'|').filter(|flag| !flag.is_empty()) {
        bits |= match flag {
            b"SPIN" => 1,
            b"READ" => 2,
            b"WRITE" => 4,
            b"RT" => 8,
            b"PERCPU" => 16,
            b"MUTEX" => 32,
            _ => u32::try_from(scan::hexadecimal(flag)?).ok()?,
        };
    }
    Some(EventKind::LockWait { lock: scan::hexadecimal(lock)?, flags: bits })
}

/// `0xffff… (ret=0)`.
pub(super) fn lock_wait_end(text: &Text<'_>, _: &mut Texts) -> Option<EventKind> {
    let (lock, _) = scan::token(text.fields);
    Some(EventKind::LockWaitEnd { lock: scan::hexadecimal(lock)? })
}
