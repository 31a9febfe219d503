//! The cost of a frame that is copied at its own rate.

use super::rows::{Row, Stock};
use whylate_core::Frame;
use whylate_core::MonoTime;
use whylate_core::result::{CopyRow, FrameCost};
use whylate_sys::clock;

/// How long the paced copy runs.
const PACED_NS: u64 = 500_000_000;
/// At least this many frames, so that a slow method has some.
const FRAMES_MIN: u64 = 3;

/// The cost from the row's rate for such a block, and from a paced copy; `None` if the row has no such block.
pub(super) fn cost(
    frame: &Frame,
    measured: &CopyRow,
    row: &Row,
    stock: &mut Stock,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Option<FrameCost> {
    let block = measured.blocks.iter().find(|block| block.bytes == frame.bytes)?;
    if !progress(1.0) {
        return None;
    }
    let period = (1e9 / frame.frames_per_s) as u64;
    let frames = (PACED_NS / period).max(FRAMES_MIN);
    let (begin, cpu) = (clock::now().0, clock::thread_cpu_time().0);
    let mut next = begin;
    for _ in 0..frames {
        stock.copy(row, frame.bytes as usize);
        // A late frame delays those behind it: none is skipped.
        next = (next + period).max(clock::now().0);
        clock::sleep_until(MonoTime(next));
    }
    let wall = (clock::now().0 - begin).max(1) as f64;
    Some(FrameCost {
        frames_per_s: 1e9 / block.block_ns,
        frame_time_share: block.block_ns / period as f64,
        paced_frames_per_s: frames as f64 * 1e9 / wall,
        cpu_share: (clock::thread_cpu_time().0 - cpu) as f64 / wall,
    })
}
