//! Texts, commands and stacks of a trace: each kept once, bounded, and found quickly.

use super::bytes::until_nul;
use super::printk::PrintkFormats;
use crate::event::{Frames, Name, Names, Symbol};
use crate::index::Index;

/// Bytes of a command in the kernel.
const COMMAND_BYTES: usize = 16;
/// Commands that are found without hashing their text, and slots of the cache in front of all other texts.
const COMMAND_SLOTS: usize = 1 << 10;
const TEXT_SLOTS: usize = 1 << 13;
/// Largest thread id of a kernel, plus one.
const PIDS: u32 = 1 << 22;
/// Stacks that are kept, and their frames.
const STACKS_MAX: usize = 1 << 20;
const FRAMES_MAX: usize = 2 << 20;
/// The first address that stands for a name: no processor has addresses there.
const ADDRESS_BASE: u64 = 0x4000_0000_0000_0000;
/// Functions that get such an address.
const ADDRESSES_MAX: usize = 1 << 12;

#[derive(Clone, Copy, Debug)]
struct Known {
    command: Name,
    saved: bool,
}

#[derive(Debug, Default)]
pub struct Texts {
    /// All texts.
    pub names: Names,
    /// `printk_formats`.
    pub printk: PrintkFormats,
    /// Upper half of the hash of a text, and its name plus one, by the low bits of the hash. Memory of zeros costs nothing
    /// until it is used.
    cache: Vec<u64>,
    commands: Vec<Option<(u128, Name)>>,
    by_pid: Vec<Option<Known>>,
    /// Threads whose commands were learned from events.
    learned: Vec<u32>,
    /// The frames of all stacks, and where each stack ends.
    frames: Vec<Symbol>,
    stack_ends: Vec<u32>,
    stack_index: Index,
    dropped: u64,
    /// How often at most from the start of the trace to its end.
    dropped_most: u64,
    /// Functions that stand where an event has an address: [`Texts::address`].
    addressed: Vec<Name>,
}

/// A hash that is good enough for a cache: collisions only cost time.
fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = bytes.len() as u64;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = chunk.try_into().map_or(0, u64::from_le_bytes);
        hash = (hash.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
    for byte in chunks.remainder() {
        hash = (hash.rotate_left(5) ^ u64::from(*byte)).wrapping_mul(FACTOR);
    }
    hash ^ (hash >> 32)
}

impl Texts {
    /// The name of a text; invalid UTF-8 is replaced.
    pub(crate) fn intern(&mut self, bytes: &[u8]) -> Name {
        let hash = hash(bytes);
        let slot = hash as usize % TEXT_SLOTS;
        if let Some(found) = self.cache.get(slot)
            && found >> 32 == hash >> 32
            && let Some(number) = (*found as u32).checked_sub(1)
            && self.names.text(Name(number)).as_bytes() == bytes
        {
            return Name(number);
        }
        let name = self.names.intern(&String::from_utf8_lossy(bytes));
        if self.cache.is_empty() {
            self.cache = vec![0; TEXT_SLOTS];
        }
        self.cache[slot] = hash >> 32 << 32 | u64::from(name.0.wrapping_add(1));
        name
    }

    /// The name of a short text that often repeats, as the kernel writes commands: NUL behind a shorter one.
    #[inline]
    pub(crate) fn command(&mut self, bytes: &[u8]) -> Name {
        let Some(key) = short(bytes) else { return self.intern(until_nul(bytes)) };
        let hash = ((key as u64) ^ (key >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = (hash >> 54) as usize % COMMAND_SLOTS;
        if let Some(Some((cached, name))) = self.commands.get(slot)
            && *cached == key
        {
            return *name;
        }
        let name = self.intern(until_nul(bytes));
        self.commands.resize(COMMAND_SLOTS, None);
        self.commands[slot] = Some((key, name));
        name
    }

    /// The name of a marker's text, without the line's end.
    pub(crate) fn marker(&mut self, text: &[u8]) -> Name {
        let text = until_nul(text);
        self.intern(text.strip_suffix(b"\n").unwrap_or(text))
    }

    /// An address that stands for a function: text has its name where the event model has an address.
    pub(crate) fn address(&mut self, function: &[u8]) -> Option<u64> {
        let length = function.iter().position(|byte| *byte == b'+').unwrap_or(function.len());
        if length == 0 {
            return None;
        }
        let name = self.intern(&function[..length]);
        // Few different functions fault, so a linear search is fast enough, and bounded.
        let position = self.addressed.iter().position(|known| *known == name).unwrap_or(self.addressed.len());
        if position == ADDRESSES_MAX {
            return None;
        }
        if position == self.addressed.len() {
            self.addressed.push(name);
        }
        Some(ADDRESS_BASE + position as u64)
    }

    /// The function that an address of [`Texts::address`] stands for.
    pub(crate) fn addressed(&self, address: u64) -> Option<&str> {
        let position = address.checked_sub(ADDRESS_BASE)?;
        self.addressed.get(usize::try_from(position).ok()?).map(|name| self.names.text(*name))
    }

    /// Learns from an event the command of a thread from now on; commands saved in the file take precedence.
    #[inline]
    pub(crate) fn learn(&mut self, pid: u32, command: Name) {
        match self.by_pid.get_mut(pid as usize) {
            Some(Some(known)) if known.saved || known.command == command => {}
            Some(entry @ Some(_)) => *entry = Some(Known { command, saved: false }),
            _ => self.note(pid, Known { command, saved: false }),
        }
    }

    /// Forgets what was learned from events: the next read may be of earlier ones.
    pub(crate) fn forget_learned(&mut self) {
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

    /// Keeps the command of a thread that the file states.
    pub fn save_command(&mut self, pid: u32, command: &str) {
        let command = self.names.intern(command);
        self.note(pid, Known { command, saved: true });
    }

    /// The command of a thread, when known.
    #[inline]
    pub(crate) fn of_pid(&self, pid: u32) -> Option<Name> {
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

    /// A stack, innermost frame first; without frames when there are too many stacks.
    pub(crate) fn stack(&mut self, frames: &[Symbol]) -> Frames {
        let known = self.stack_index.find(frames, |number| self.frames(Frames(number)) == frames);
        if let Some(known) = known {
            return Frames(known);
        }
        let is_full = self.frames.len() + frames.len() > FRAMES_MAX || self.stack_ends.len() >= STACKS_MAX;
        if is_full && !frames.is_empty() {
            self.dropped += 1;
            return self.stack(&[]);
        }
        let stack = Frames(self.stack_ends.len() as u32);
        self.frames.extend_from_slice(frames);
        self.stack_ends.push(self.frames.len() as u32);
        let (all, ends) = (&self.frames, &self.stack_ends);
        self.stack_index.insert(stack.0, frames, |number| frames_of(all, ends, number));
        stack
    }

    /// The frames of a stack; none for a stack of another trace.
    pub(crate) fn frames(&self, frames: Frames) -> &[Symbol] {
        frames_of(&self.frames, &self.stack_ends, frames.0)
    }

    /// The trace is read from its start again.
    pub(crate) fn restart(&mut self) {
        (self.dropped, self.names.dropped) = (0, 0);
    }

    /// A sentence about what was not kept.
    pub(crate) fn limit(&mut self) -> Option<String> {
        self.dropped_most = self.dropped_most.max(self.dropped + self.names.dropped);
        let count = self.dropped_most;
        (count > 0).then(|| {
            format!("{count} texts or stacks were not stored: the trace has too many different ones")
        })
    }
}

fn frames_of<'f>(frames: &'f [Symbol], ends: &[u32], number: u32) -> &'f [Symbol] {
    let number = number as usize;
    let Some(end) = ends.get(number) else { return &[] };
    let begin = number.checked_sub(1).map_or(0, |before| ends[before]);
    frames.get(begin as usize..*end as usize).unwrap_or(&[])
}

/// A command as a number, 0 from its first NUL on; `None` for a longer one.
#[inline]
fn short(bytes: &[u8]) -> Option<u128> {
    let Ok(whole) = <[u8; COMMAND_BYTES]>::try_from(bytes) else {
        let text = until_nul(bytes);
        let mut key = [0; COMMAND_BYTES];
        key.get_mut(..text.len())?.copy_from_slice(text);
        return Some(u128::from_le_bytes(key));
    };
    const ONES: u128 = u128::MAX / 255;
    let number = u128::from_le_bytes(whole);
    // The lowest set bit is the highest one of the first byte that is 0.
    let zeros = number.wrapping_sub(ONES) & !number & (ONES << 7);
    Some(if zeros == 0 { number } else { number & ((1 << (zeros.trailing_zeros() - 7)) - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_end_at_their_first_nul() {
        let mut texts = Texts::default();
        for (bytes, expected) in [
            (&b"swapper/0\0\0\0\0\0\0\0"[..], "swapper/0"),
            (b"a\0garbage\xff\xff\xff\xff\xff\xff\xff", "a"),
            (b"\0aaaaaaaaaaaaaaa", ""),
            (b"0123456789abcdef", "0123456789abcdef"),
            (b"0123456789abcde\0", "0123456789abcde"),
            (b"short", "short"),
            (b"short\0more", "short"),
            (b"a text that is longer than a command", "a text that is longer than a command"),
        ] {
            for _ in 0..2 {
                let name = texts.command(bytes);
                assert_eq!(texts.names.text(name), expected);
            }
        }
    }
}
