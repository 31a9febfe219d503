//! Texts, commands and stacks of a trace, each kept once.

use super::printk::PrintkFormats;
use crate::event::{Frames, Name, Names, Symbol};
use crate::parse::bytes::until_nul;
use std::collections::HashMap;

/// Bytes of a command in the kernel.
const COMMAND_BYTES: usize = 16;
/// Commands that are found without hashing their text.
const CACHED: usize = 1 << 10;
/// Largest thread id of a kernel, plus one.
const PIDS: u32 = 1 << 22;
/// Texts of markers are kept up to this many bytes, stacks up to as many frames; what comes then is replaced by a
/// remark, so that a trace full of markers does not fill the memory.
const MARKER_BYTES_MAX: usize = 64 << 20;
const FRAMES_MAX: usize = 8 << 20;

/// What a thread is called.
#[derive(Clone, Copy, Debug)]
struct Known {
    command: Name,
    /// The file says so.
    saved: bool,
}

/// The texts of a trace.
#[derive(Debug, Default)]
pub struct Texts {
    /// All texts.
    pub names: Names,
    /// `printk_formats`.
    pub printk: PrintkFormats,
    cache: Vec<Option<([u8; COMMAND_BYTES], Name)>>,
    by_pid: Vec<Option<Known>>,
    /// Threads whose commands were learned from events.
    learned: Vec<u32>,
    markers: HashMap<Box<[u8]>, Name>,
    marker_bytes: usize,
    stacks: Vec<Box<[Symbol]>>,
    stack_index: HashMap<Box<[Symbol]>, Frames>,
    frames: usize,
}

impl Texts {
    /// The name of a command as the kernel writes it: up to 16 bytes, NUL behind a shorter one.
    #[inline]
    pub fn command(&mut self, bytes: &[u8]) -> Name {
        let mut key = [0; COMMAND_BYTES];
        let text = until_nul(bytes);
        let length = text.len().min(COMMAND_BYTES);
        key[..length].copy_from_slice(&text[..length]);
        let number = u128::from_le_bytes(key);
        let hash = ((number as u64) ^ (number >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (hash >> 54) as usize % CACHED;
        if let Some(Some((cached, name))) = self.cache.get(place)
            && *cached == key
        {
            return *name;
        }
        let name = self.names.intern(&String::from_utf8_lossy(&key[..length]));
        self.cache.resize(CACHED, None);
        self.cache[place] = Some((key, name));
        name
    }

    /// Learns from an event what a thread is called from now on; what the file says of it otherwise goes before.
    #[inline]
    pub fn learn(&mut self, pid: u32, command: Name) {
        let place = pid as usize;
        match self.by_pid.get_mut(place) {
            Some(Some(known)) if known.saved || known.command == command => {}
            Some(entry @ Some(_)) => *entry = Some(Known { command, saved: false }),
            _ => self.note(pid, Known { command, saved: false }),
        }
    }

    /// Forgets what was learned from events: what is read next may come before them.
    pub fn forget_learned(&mut self) {
        for pid in self.learned.drain(..) {
            self.by_pid[pid as usize] = None;
        }
    }

    fn note(&mut self, pid: u32, known: Known) {
        if pid >= PIDS {
            return;
        }
        let place = pid as usize;
        if place >= self.by_pid.len() {
            self.by_pid.resize(place + 1, None);
        }
        self.by_pid[place] = Some(known);
        if !known.saved {
            self.learned.push(pid);
        }
    }

    /// Keeps what the file says that a thread is called.
    pub fn save_command(&mut self, pid: u32, command: &str) {
        let command = self.names.intern(command);
        self.note(pid, Known { command, saved: true });
    }

    /// The command of a thread, when the trace told.
    #[inline]
    pub fn of_pid(&self, pid: u32) -> Option<Name> {
        self.by_pid.get(pid as usize).copied().flatten().map(|known| known.command)
    }

    /// Reads `saved_cmdlines`: a thread id and its command on each line.
    pub fn learn_commands(&mut self, file: &str) {
        for line in file.lines() {
            let Some((pid, command)) = line.trim_start().split_once(' ') else { continue };
            let Ok(pid) = pid.parse() else { continue };
            if command != "<...>" {
                self.save_command(pid, command);
            }
        }
    }

    /// The name of a marker's text, without the line's end.
    pub fn marker(&mut self, text: &[u8]) -> Name {
        let text = until_nul(text);
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if let Some(name) = self.markers.get(text) {
            return *name;
        }
        if self.marker_bytes + text.len() > MARKER_BYTES_MAX {
            return self.names.intern("(a marker left out: too many different ones in this trace)");
        }
        self.marker_bytes += text.len() + 64;
        let name = self.names.intern(&String::from_utf8_lossy(text));
        self.markers.insert(text.into(), name);
        name
    }

    /// A stack.
    pub fn stack(&mut self, frames: Vec<Symbol>) -> Frames {
        if let Some(known) = self.stack_index.get(frames.as_slice()) {
            return *known;
        }
        let frames = if self.frames + frames.len() > FRAMES_MAX { Vec::new() } else { frames };
        let id = Frames(self.stacks.len() as u32);
        if frames.is_empty()
            && let Some(empty) = self.stack_index.get([].as_slice())
        {
            return *empty;
        }
        self.frames += frames.len();
        self.stacks.push(frames.clone().into());
        self.stack_index.insert(frames.into(), id);
        id
    }

    /// The frames of a stack; none for a stack of another trace.
    pub fn frames(&self, frames: Frames) -> &[Symbol] {
        self.stacks.get(frames.0 as usize).map_or(&[], |stack| stack)
    }
}

impl Texts {
    /// The name of a short text that often repeats: of an interrupt. One that fits into a command is found as fast.
    #[inline]
    pub fn command_or_text(&mut self, bytes: &[u8]) -> Name {
        let text = until_nul(bytes);
        if text.len() <= COMMAND_BYTES {
            self.command(text)
        } else {
            self.names.intern(&String::from_utf8_lossy(text))
        }
    }
}
