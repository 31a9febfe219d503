//! The texts and stacks of a trace, each once and within a bound, found again quickly.

use crate::event::{Frames, Name, Names, Symbol};
use std::collections::HashMap;

/// Slots of the cache in front of the table of names.
const SLOTS: usize = 8192;
/// Bytes of all texts, beyond which new ones are not kept: a trace of 10 GB can have a new text in each line.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// Frames of all stacks, beyond which new ones are not kept.
const FRAMES_MAX: usize = 4 << 20;
/// What stands for a text that is not kept.
const TOO_MANY: &str = "(not kept: too many texts)";

/// Texts and stacks.
pub(crate) struct Texts {
    names: Names,
    /// Hash of a text and its name, by the low bits of the hash.
    cache: Box<[Option<(u64, Name)>]>,
    text_bytes: usize,
    /// How many names `text_bytes` is the sum of.
    counted: usize,
    stacks: Vec<Box<[Symbol]>>,
    stack_index: HashMap<Box<[Symbol]>, Frames>,
    frames: usize,
    dropped: u64,
    /// Functions that stand where an event has an address: [`Texts::address`].
    addressed: Vec<Name>,
}

/// Where the addresses begin that stand for names: no processor has addresses there.
const ADDRESS_BASE: u64 = 0x4000_0000_0000_0000;

/// A hash that is good enough for a cache: what collides is only slower.
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
    pub(crate) fn new() -> Self {
        Self {
            names: Names::default(),
            cache: vec![None; SLOTS].into_boxed_slice(),
            text_bytes: 0,
            counted: 0,
            stacks: vec![Box::default()],
            stack_index: HashMap::new(),
            frames: 0,
            dropped: 0,
            addressed: Vec::new(),
        }
    }

    /// An address that stands for a function: text has its name where the event model has an address.
    pub(crate) fn address(&mut self, function: &[u8]) -> Option<u64> {
        let length = function.iter().position(|byte| *byte == b'+').unwrap_or(function.len());
        if length == 0 {
            return None;
        }
        let name = self.intern(&function[..length]);
        // Few different functions fault: a search is quick enough, and bounded.
        let known = self.addressed.iter().position(|known| *known == name);
        let position = match known {
            Some(position) => position,
            None if self.addressed.len() < 4096 => {
                self.addressed.push(name);
                self.addressed.len() - 1
            }
            None => return None,
        };
        Some(ADDRESS_BASE + position as u64)
    }

    /// The function that an address of [`Texts::address`] stands for.
    pub(crate) fn addressed(&self, address: u64) -> Option<&str> {
        let position = address.checked_sub(ADDRESS_BASE)?;
        self.addressed.get(usize::try_from(position).ok()?).map(|name| self.names.text(*name))
    }

    /// The name of a text; what is no UTF-8 in it is replaced.
    pub(crate) fn intern(&mut self, bytes: &[u8]) -> Name {
        let hash = hash(bytes);
        let slot = hash as usize % SLOTS;
        if let Some((found, name)) = self.cache[slot]
            && found == hash
            && self.names.text(name).as_bytes() == bytes
        {
            return name;
        }
        let text = String::from_utf8_lossy(bytes);
        if self.text_bytes + text.len() > TEXT_BYTES_MAX {
            self.dropped += 1;
            return self.names.intern(TOO_MANY);
        }
        let name = self.names.intern(&text);
        if self.names.len() > self.counted {
            self.counted = self.names.len();
            self.text_bytes += text.len();
        }
        self.cache[slot] = Some((hash, name));
        name
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// The name of a stack, innermost frame first.
    pub(crate) fn stack(&mut self, frames: &[Symbol]) -> Frames {
        if let Some(known) = self.stack_index.get(frames) {
            return *known;
        }
        if self.frames + frames.len() > FRAMES_MAX {
            self.dropped += 1;
            return Frames(0);
        }
        let name = Frames(self.stacks.len() as u32);
        self.frames += frames.len() + 1;
        self.stacks.push(frames.into());
        self.stack_index.insert(frames.into(), name);
        name
    }

    /// The frames of a stack; none for one that was not kept.
    pub(crate) fn frames(&self, frames: Frames) -> &[Symbol] {
        self.stacks.get(frames.0 as usize).map_or(&[], |stack| stack)
    }

    /// How often a text or stack was not kept.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}
