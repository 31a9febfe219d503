//! The order in which the repeats of the cells run.
//!
//! Blocks have two repeats of each cell, each block in an order drawn at random. What the machine does meanwhile, at
//! whatever rhythm, affects every cell alike on average. The test of differences rests on the choice of slots
//! (`contrast`).

use crate::random::SplitMix;
use whylate_core::plan::Order;

/// Repeats of each cell in a block.
pub const ROUNDS_PER_BLOCK: u32 = 2;

/// One repeat of one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub cell: usize,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// Number of the block, from 0.
    pub block: u32,
}

/// The slots of that number of cells, each `repeats` times. The same seed gives the same order.
pub fn slots(cells: usize, repeats: u32, order: Order, seed: u64) -> Vec<Slot> {
    let mut random = SplitMix(seed);
    let mut slots = Vec::new();
    for first in (1..=repeats).step_by(ROUNDS_PER_BLOCK as usize) {
        let block = (first - 1) / ROUNDS_PER_BLOCK;
        let last = repeats.min(first + ROUNDS_PER_BLOCK - 1);
        let start = slots.len();
        slots.extend(
            (first..=last).flat_map(|repeat| (0..cells).map(move |cell| Slot { cell, repeat, block })),
        );
        if order == Order::Shuffled {
            random.shuffle(&mut slots[start..]);
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_block_has_two_repeats_of_each_cell() {
        let order = slots(3, 5, Order::Shuffled, 7);
        let distinct: BTreeSet<(usize, u32)> = order.iter().map(|slot| (slot.cell, slot.repeat)).collect();
        assert_eq!((order.len(), distinct.len()), (15, 15));
        assert_eq!(
            order.iter().map(|slot| slot.block).collect::<Vec<_>>(),
            [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2]
        );
        assert!(order.iter().all(|slot| (slot.repeat - 1) / 2 == slot.block));
        assert_eq!(order, slots(3, 5, Order::Shuffled, 7));
        assert_ne!(order, slots(3, 5, Order::Shuffled, 8));
    }

    #[test]
    fn the_order_of_the_plan() {
        let cells: Vec<usize> = slots(2, 3, Order::Plan, 7).iter().map(|slot| slot.cell).collect();
        assert_eq!(cells, [0, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn every_order_is_equally_likely() {
        let mut firsts = [0u32; 4];
        for seed in 0..4000 {
            firsts[slots(4, 2, Order::Shuffled, seed)[0].cell] += 1;
        }
        assert!(firsts.iter().all(|count| (900..1100).contains(count)), "{firsts:?}");
    }
}
