//! The layout of a sample: a set of bits selects the fields, and their order is fixed.

use crate::parse::bytes::ByteOrder;

/// Bits of `sample_type`.
const IP: u64 = 1 << 0;
const TID: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const ADDRESS: u64 = 1 << 3;
const READ: u64 = 1 << 4;
const CALL_CHAIN: u64 = 1 << 5;
const ID: u64 = 1 << 6;
const CPU: u64 = 1 << 7;
const PERIOD: u64 = 1 << 8;
const STREAM: u64 = 1 << 9;
const RAW: u64 = 1 << 10;
const IDENTIFIER: u64 = 1 << 16;
/// Bits of `read_format`.
const READ_ENABLED: u64 = 1 << 0;
const READ_RUNNING: u64 = 1 << 1;
const READ_ID: u64 = 1 << 2;
const READ_GROUP: u64 = 1 << 3;
const READ_LOST: u64 = 1 << 4;
/// Call chains have this before addresses of the kernel, and higher values before others.
const CONTEXT_KERNEL: u64 = -128i64 as u64;
const CONTEXTS_FIRST: u64 = -4095i64 as u64;

/// Where the fields of samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    sample_type: u64,
    read_format: u64,
    /// Whether other records end in the same fields.
    with_trailer: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample<'a> {
    pub(super) at_ns: Option<u64>,
    pub(super) thread: Option<u32>,
    pub(super) cpu: Option<u32>,
    /// Addresses, eight bytes each.
    pub(super) chain: &'a [u8],
    pub(super) raw: Option<&'a [u8]>,
}

impl Layout {
    pub(super) fn new(sample_type: u64, read_format: u64, with_trailer: bool) -> Self {
        Self { sample_type, read_format, with_trailer }
    }

    fn has(self, bit: u64) -> bool {
        self.sample_type & bit != 0
    }

    /// Whether samples have time and CPU.
    pub(super) fn has_time_and_cpu(self) -> bool {
        self.has(TIME) && self.has(CPU)
    }

    pub(super) fn has_chains(self) -> bool {
        self.has(CALL_CHAIN)
    }

    /// Whether samples begin with the id of their event, which gives the layout of the rest.
    pub(super) fn has_identifier(self) -> bool {
        self.has(IDENTIFIER)
    }

    /// Reads a sample; `None` if it is too short.
    pub(super) fn sample(self, body: &[u8], order: ByteOrder) -> Option<Sample<'_>> {
        let mut at = 0;
        // Each of these has eight bytes.
        let mut field = |bit: u64| {
            let here = at;
            if self.has(bit) {
                at += 8;
            }
            self.has(bit).then_some(here)
        };
        let (_, _) = (field(IDENTIFIER), field(IP));
        let (tid, time, _, _, _) = (field(TID), field(TIME), field(ADDRESS), field(ID), field(STREAM));
        let (cpu, _) = (field(CPU), field(PERIOD));
        let mut sample = Sample { at_ns: None, thread: None, cpu: None, chain: &[], raw: None };
        if let Some(at) = tid {
            sample.thread = Some(order.u32(body, at + 4)?);
        }
        if let Some(at) = time {
            sample.at_ns = Some(order.u64(body, at)?);
        }
        if let Some(at) = cpu {
            sample.cpu = Some(order.u32(body, at)?);
        }
        if self.has(READ) {
            at = self.after_counters(body, order, at)?;
        }
        if self.has(CALL_CHAIN) {
            let length = usize::try_from(order.u64(body, at)?).ok()?.checked_mul(8)?;
            at += 8;
            sample.chain = body.get(at..at.checked_add(length)?)?;
            at += length;
        }
        if self.has(RAW) {
            let length = order.u32(body, at)? as usize;
            sample.raw = Some(body.get(at + 4..(at + 4).checked_add(length)?)?);
        }
        Some(sample)
    }

    /// Where the values of counters that a sample can carry end.
    fn after_counters(self, body: &[u8], order: ByteOrder, at: usize) -> Option<usize> {
        let count = |bits: u64| (self.read_format & bits).count_ones() as usize;
        let words = if self.read_format & READ_GROUP == 0 {
            1 + count(READ_ENABLED | READ_RUNNING | READ_ID | READ_LOST)
        } else {
            let counters = usize::try_from(order.u64(body, at)?).ok()?;
            let each = 1 + count(READ_ID | READ_LOST);
            counters.checked_mul(each)?.checked_add(1 + count(READ_ENABLED | READ_RUNNING))?
        };
        at.checked_add(words.checked_mul(8)?).filter(|end| *end <= body.len())
    }

    /// Time and CPU at the end of a record other than a sample.
    pub(super) fn trailer(self, body: &[u8], order: ByteOrder) -> Option<(u64, u32)> {
        let (mut at, mut time, mut cpu) = (body.len(), None, None);
        // From the last to the first.
        for bit in [IDENTIFIER, CPU, STREAM, ID, TIME, TID].into_iter().filter(|bit| self.has(*bit)) {
            at = at.checked_sub(8)?;
            match bit {
                CPU => cpu = order.u32(body, at),
                TIME => time = order.u64(body, at),
                _ => {}
            }
        }
        Some((time?, cpu?)).filter(|_| self.with_trailer)
    }
}

/// The kernel's part of a call chain, innermost first.
pub(super) fn kernel_frames(chain: &[u8], order: ByteOrder) -> impl Iterator<Item = u64> {
    let mut in_kernel = false;
    (0..chain.len() / 8).filter_map(move |number| {
        let address = order.u64(chain, number * 8)?;
        if address >= CONTEXTS_FIRST {
            in_kernel = address == CONTEXT_KERNEL;
            return None;
        }
        in_kernel.then_some(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn fields_are_found_behind_others() {
        let layout = Layout::new(
            IDENTIFIER | IP | TID | TIME | CPU | PERIOD | READ | CALL_CHAIN | RAW,
            READ_GROUP | READ_ID | READ_ENABLED,
            true,
        );
        let mut body = words(&[77, 1, 5 | 6 << 32, 1000, 3, 1]);
        // Two counters with their ids, then a chain of a kernel and a user address.
        body.extend(words(&[
            2,
            10,
            11,
            12,
            13,
            14,
            4,
            CONTEXT_KERNEL,
            0xffff_8000_0000_1000,
            (-512i64) as u64,
            0x5500,
        ]));
        body.extend(4u32.to_le_bytes());
        body.extend([1, 2, 3, 4]);
        let sample = layout.sample(&body, ByteOrder::Little).expect("it is whole");
        assert_eq!((sample.at_ns, sample.thread, sample.cpu), (Some(1000), Some(6), Some(3)));
        assert_eq!(sample.raw, Some(&[1, 2, 3, 4][..]));
        let frames: Vec<u64> = kernel_frames(sample.chain, ByteOrder::Little).collect();
        assert_eq!(frames, [0xffff_8000_0000_1000]);
        for length in 0..body.len() {
            assert_eq!(layout.sample(&body[..length], ByteOrder::Little), None, "{length}");
        }
    }

    #[test]
    fn other_records_end_in_time_and_cpu() {
        let layout = Layout::new(IDENTIFIER | TID | TIME | CPU | IP | RAW, 0, true);
        let body = words(&[9, 9, 9, 1 | 2 << 32, 1000, 3, 77]);
        assert_eq!(layout.trailer(&body, ByteOrder::Little), Some((1000, 3)));
        assert_eq!(layout.trailer(&body[..8], ByteOrder::Little), None);
    }
}
