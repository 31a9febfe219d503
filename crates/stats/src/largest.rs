//! The K largest of a stream, in bounded memory.

use std::collections::BTreeSet;

/// The largest of all entries that were offered.
///
/// Entries order themselves: the latency first, then what decides between two of the same size.
#[derive(Clone, Debug)]
pub struct Largest<T> {
    kept_max: usize,
    kept: BTreeSet<T>,
}

impl<T: Ord> Largest<T> {
    /// Keeps up to `kept_max` entries; starts empty.
    pub fn new(kept_max: usize) -> Self {
        Self { kept_max, kept: BTreeSet::new() }
    }

    /// Adds the entry if it is among the largest so far; returns whether it was added.
    pub fn offer(&mut self, entry: T) -> bool {
        if self.kept.len() < self.kept_max {
            return self.kept.insert(entry);
        }
        let is_larger = self.kept.first().is_some_and(|least| *least < entry);
        let is_new = is_larger && self.kept.insert(entry);
        if is_new {
            self.kept.pop_first();
        }
        is_new
    }

    /// The smallest of the kept entries; `None` while there is room, since every entry is kept then.
    pub fn least(&self) -> Option<&T> {
        self.kept.first().filter(|_| self.kept.len() >= self.kept_max)
    }

    /// The largest of all.
    pub fn largest(&self) -> Option<&T> {
        self.kept.last()
    }

    /// Whether the entry is among the largest.
    pub fn contains(&self, entry: &T) -> bool {
        self.kept.contains(entry)
    }

    /// Largest first.
    pub fn into_descending(self) -> impl Iterator<Item = T> {
        self.kept.into_iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kept_entries_are_those_of_a_full_sort() {
        let stream: Vec<u64> = (0..500).map(|number| number * 7_919 % 1_009).collect();
        for kept_max in [0, 1, 32, 499, 500, 600] {
            let mut largest = Largest::new(kept_max);
            for entry in &stream {
                let is_kept = largest.offer(*entry);
                assert_eq!(is_kept, largest.contains(entry), "{entry} of {kept_max}");
            }
            let mut sorted = stream.clone();
            sorted.sort_unstable_by(|left, right| right.cmp(left));
            sorted.truncate(kept_max);
            assert_eq!(largest.largest(), sorted.first());
            assert_eq!(largest.least(), sorted.last().filter(|_| kept_max <= stream.len()), "{kept_max}");
            assert_eq!(largest.into_descending().collect::<Vec<u64>>(), sorted);
        }
    }

    #[test]
    fn an_entry_counts_once() {
        let mut largest = Largest::new(2);
        assert_eq!([5, 5, 9, 9, 5].map(|entry| largest.offer(entry)), [true, false, true, false, false]);
        assert_eq!(largest.into_descending().collect::<Vec<i32>>(), [9, 5]);
    }
}
