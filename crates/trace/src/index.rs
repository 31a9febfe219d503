//! Finds the number of a thing that is kept elsewhere, in eight bytes for each.

use std::hash::{BuildHasher, Hash, RandomState};

/// The numbers of things by their hash, open addressing; at most half of the slots are used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    state: RandomState,
    /// Numbers plus one; 0 is free. As many as a power of two, or none.
    slots: Vec<u32>,
    used: usize,
}

/// Slots of the first table.
const SLOTS_FIRST: usize = 64;

impl Index {
    /// The number of a thing; `is_it` says whether a number belongs to it.
    pub(crate) fn find<T: Hash + ?Sized>(&self, thing: &T, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = self.slot(thing);
        while let Some(number) = self.slots[slot].checked_sub(1) {
            if is_it(number) {
                return Some(number);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        None
    }

    /// Adds a new thing; `thing_of` gives the things of the other numbers.
    pub(crate) fn insert<'t, T: Hash + ?Sized + 't>(
        &mut self,
        number: u32,
        thing: &T,
        thing_of: impl Fn(u32) -> &'t T,
    ) {
        if (self.used + 1) * 2 > self.slots.len() {
            let more = (self.slots.len() * 2).max(SLOTS_FIRST);
            let known = std::mem::replace(&mut self.slots, vec![0; more]);
            for number in known.into_iter().filter_map(|slot| slot.checked_sub(1)) {
                self.put(number, thing_of(number));
            }
        }
        self.put(number, thing);
        self.used += 1;
    }

    fn slot<T: Hash + ?Sized>(&self, thing: &T) -> usize {
        self.state.hash_one(thing) as usize & (self.slots.len() - 1)
    }

    fn put<T: Hash + ?Sized>(&mut self, number: u32, thing: &T) {
        let mut slot = self.slot(thing);
        while self.slots[slot] != 0 {
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        self.slots[slot] = number + 1;
    }
}

#[cfg(test)]
mod tests {
    use crate::event::{Name, Names};

    #[test]
    fn each_text_has_one_number() {
        let mut names = Names::default();
        for round in 0..2 {
            for number in 0..5000u32 {
                assert_eq!(names.intern(&format!("text {number}")), Name(number), "{round}");
            }
        }
        assert_eq!((names.len(), names.text(Name(7)), names.text(Name(5000))), (5000, "text 7", ""));
        assert_eq!(names.intern(""), Name(5000));
        assert_eq!(names.iter().last(), Some((Name(5000), "")));
    }
}
