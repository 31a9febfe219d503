//! Stacks: the lines ` => function` behind an event.

use super::fields::symbol;
use super::scan;
use crate::event::{Event, EventKind, Symbol};
use crate::parse::texts::Texts;

/// Frames of a stack; the kernel's own limit is far below.
const FRAMES_MAX: usize = 512;
/// Addresses of kernels are in the upper half of the address space.
const KERNEL_FIRST: u64 = 1 << 63;

/// A stack whose frames are being read.
pub(super) struct Pending {
    event: Event,
    frames: Vec<Symbol>,
    ended: bool,
}

/// The frame of a line: ` => schedule`, ` => schedule+0x10/0x20`, `=> schedule (ffffffff81…)`, ` =>  <ffffffff81…>`.
pub(super) fn frame(line: &[u8]) -> Option<&[u8]> {
    let frame = scan::skip_spaces(line).strip_prefix(b"=>").map(scan::skip_spaces)?;
    let header = frame.starts_with(b"started at:") || frame.starts_with(b"ended at:");
    (!header).then_some(frame)
}

/// The frame of a line of `perf script`: its address and its name, `ffffffff813a89c4 try_to_wake_up+0x64 ([kernel.kallsyms])`.
pub(super) fn perf_frame(line: &[u8]) -> Option<(u64, &[u8])> {
    let (address, name) = scan::token(scan::skip_spaces(line));
    let begins = line.starts_with(b"\t") || (line.starts_with(b" ") && address.len() >= 6);
    let begins = begins && !name.is_empty();
    Some((scan::hexadecimal(address).filter(|_| begins)?, name))
}

impl Pending {
    pub(super) fn new(event: Event) -> Self {
        Self { event, frames: Vec::new(), ended: false }
    }

    /// Adds a frame. Kernels before 6.3 print what lies behind the stacks of timerlat, too; the first that cannot be
    /// an address of the kernel ends the stack.
    pub(super) fn push(&mut self, frame: &[u8], texts: &mut Texts) {
        if self.ended || self.frames.len() == FRAMES_MAX {
            return;
        }
        let (word, _) = scan::token(frame);
        let bare = word.strip_prefix(b"<").and_then(|word| word.strip_suffix(b">")).unwrap_or(word);
        match symbol(bare, texts) {
            Some(Symbol::Address(address)) if address < KERNEL_FIRST => self.ended = true,
            Some(symbol) => self.frames.push(symbol),
            None => self.ended = true,
        }
    }

    /// Adds a frame of `perf script`, which prints those of user space behind those of the kernel.
    pub(super) fn push_perf(&mut self, address: u64, name: &[u8], texts: &mut Texts) {
        self.ended |= address < KERNEL_FIRST;
        if name.starts_with(b"[unknown]") {
            if !self.ended && self.frames.len() < FRAMES_MAX {
                self.frames.push(Symbol::Address(address));
            }
        } else {
            self.push(name, texts);
        }
    }

    pub(super) fn finish(self, texts: &mut Texts) -> Event {
        Event { kind: EventKind::Stack { frames: texts.stack(&self.frames) }, ..self.event }
    }
}
