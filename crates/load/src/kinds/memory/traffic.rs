//! One worker's way through its buffer, and the methods by which each kind of traffic can be done.

use whylate_copy::{Chase, InstructionSet, Kernels, Random, ReadMethod, StoreMethod};
use whylate_core::plan::MemoryAccess;
use whylate_sys::memory::Buffer;

/// Bytes of payload in one step of a chase: the word that is read. (The cache line around it is traffic of the
/// hardware, not payload.)
pub(crate) const CHASE_STEP_BYTES: u64 = 8;

/// One way to do a kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Read(ReadMethod),
    Write(StoreMethod),
    Copy(StoreMethod),
    Chase,
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read(method) => method.name(),
            Self::Write(method) | Self::Copy(method) => method.name(),
            Self::Chase => "dependent loads",
        }
    }
}

/// A method with an instruction set: what the trial compares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) kernels: Kernels,
    pub(crate) method: Method,
}

impl Way {
    /// The ways that this CPU has for a kind of traffic, the usual one first; never empty.
    ///
    /// The narrower vectors are there because out of a large cache they are sometimes the faster ones: their slower
    /// demand leaves the prefetchers more time. `write` never uses streaming stores: traffic past the caches is a
    /// kind of its own. A copy may use them.
    pub(crate) fn candidates(access: MemoryAccess) -> Vec<Self> {
        let best = Kernels::best();
        let narrow = Kernels::with(InstructionSet::Sse2).unwrap_or(best);
        let plain = Kernels::with(InstructionSet::Portable).unwrap_or(best);
        let string = best.has_string_instructions().then_some(best);
        let streaming = best.has_streaming_stores().then_some(best);
        let way = |kernels, method| Some(Self { kernels, method });
        let with = |kernels: Option<Kernels>, method| kernels.map(|kernels| Self { kernels, method });
        let all = match access {
            MemoryAccess::Read => vec![
                way(best, Method::Read(ReadMethod::Plain)),
                way(best, Method::Read(ReadMethod::Prefetching)),
                way(narrow, Method::Read(ReadMethod::Plain)),
                way(plain, Method::Read(ReadMethod::Plain)),
            ],
            MemoryAccess::Write => vec![
                way(best, Method::Write(StoreMethod::Cached)),
                with(string, Method::Write(StoreMethod::String)),
                way(narrow, Method::Write(StoreMethod::Cached)),
            ],
            MemoryAccess::Copy => vec![
                way(best, Method::Copy(StoreMethod::Cached)),
                with(streaming, Method::Copy(StoreMethod::Streaming)),
                with(string, Method::Copy(StoreMethod::String)),
                way(narrow, Method::Copy(StoreMethod::Cached)),
            ],
            MemoryAccess::Chase => vec![way(best, Method::Chase)],
            MemoryAccess::NonTemporal => vec![
                way(best, Method::Write(StoreMethod::Streaming)),
                way(narrow, Method::Write(StoreMethod::Streaming)),
            ],
        };
        all.into_iter().flatten().collect()
    }
}

/// Where a worker is in its buffer.
pub(crate) enum Traffic<'buffer> {
    /// Reading or writing it from end to end.
    Linear {
        bytes: &'buffer mut [u8],
        position: usize,
        value: u64,
    },
    /// Copying its first half to its second.
    Copy {
        source: &'buffer [u8],
        destination: &'buffer mut [u8],
        position: usize,
    },
    Chase(Chase<'buffer>),
}

impl<'buffer> Traffic<'buffer> {
    /// Fills the buffer with random data and prepares the walk; `None` when the buffer is too small for it.
    pub(crate) fn new(
        access: MemoryAccess,
        buffer: &'buffer mut Buffer,
        random: &mut Random,
    ) -> Option<Self> {
        Kernels::best().fill_random(buffer.as_mut_slice(), random);
        match access {
            MemoryAccess::Chase => Chase::new(buffer.as_words_mut(), random).map(Self::Chase),
            MemoryAccess::Copy => {
                let half = buffer.len() / 128 * 64;
                let (source, rest) = buffer.as_mut_slice().split_at_mut_checked(half)?;
                let destination = rest.get_mut(..half)?;
                (half > 0).then_some(Self::Copy { source, destination, position: 0 })
            }
            _ => Some(Self::Linear {
                bytes: buffer.as_mut_slice(),
                position: 0,
                value: random.below(u64::MAX),
            }),
        }
    }

    /// Moves about `payload` bytes and returns how many exactly.
    pub(crate) fn turn(&mut self, way: Way, payload: u64) -> u64 {
        let mut done = 0;
        while done < payload {
            done += self.piece(way, payload - done);
        }
        done
    }

    /// Moves at most about `payload` bytes, up to the end of the buffer.
    fn piece(&mut self, Way { kernels, method }: Way, payload: u64) -> u64 {
        match self {
            Self::Linear { bytes, position, value } => {
                let length = (bytes.len() - *position).min(payload as usize);
                let piece = &mut bytes[*position..*position + length];
                match method {
                    Method::Read(method) => {
                        kernels.read(method, piece);
                    }
                    Method::Write(method) | Method::Copy(method) => kernels.write(method, piece, *value),
                    Method::Chase => {}
                }
                *position += length;
                if *position == bytes.len() {
                    *position = 0;
                    // Never the value that is there already, so that every store changes memory.
                    *value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
                }
                length as u64
            }
            Self::Copy { source, destination, position } => {
                let half = (payload as usize).div_ceil(2).next_multiple_of(64);
                let length = (source.len() - *position).min(half);
                let range = *position..*position + length;
                let store = if let Method::Copy(store) = method { store } else { StoreMethod::Cached };
                kernels.copy(store, &source[range.clone()], &mut destination[range]);
                *position = (*position + length) % source.len();
                2 * length as u64
            }
            Self::Chase(chase) => {
                let steps = payload.div_ceil(CHASE_STEP_BYTES);
                chase.walk(steps as usize);
                steps * CHASE_STEP_BYTES
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [MemoryAccess; 5] = [
        MemoryAccess::Read,
        MemoryAccess::Write,
        MemoryAccess::Copy,
        MemoryAccess::Chase,
        MemoryAccess::NonTemporal,
    ];

    #[test]
    fn every_kind_counts_what_it_moves() {
        for access in ALL {
            for bytes in [128, 1000, 4096, 1 << 20] {
                let mut buffer = Buffer::allocate(bytes, false, None).unwrap();
                let mut traffic = Traffic::new(access, &mut buffer, &mut Random::new(1)).unwrap();
                for way in Way::candidates(access) {
                    for payload in [1, 4096, 100_000, 256 << 10] {
                        let moved = traffic.turn(way, payload);
                        assert!(
                            (payload..payload + 128).contains(&moved),
                            "{access:?} {bytes} {payload}: {moved}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_copy_arrives_and_a_write_reaches_the_end() {
        for way in Way::candidates(MemoryAccess::Copy) {
            let mut buffer = Buffer::allocate(64 << 10, false, None).unwrap();
            let mut random = Random::new(2);
            let mut traffic = Traffic::new(MemoryAccess::Copy, &mut buffer, &mut random).unwrap();
            traffic.turn(way, 64 << 10);
            let (source, destination) = buffer.as_slice().split_at(32 << 10);
            assert!(source == destination, "{way:?}");
        }
        for access in [MemoryAccess::Write, MemoryAccess::NonTemporal] {
            for way in Way::candidates(access) {
                let mut buffer = Buffer::allocate(10_000, false, None).unwrap();
                let mut random = Random::new(3);
                let mut traffic = Traffic::new(access, &mut buffer, &mut random).unwrap();
                traffic.turn(way, 10_000);
                let words = buffer.as_slice().as_chunks::<8>().0;
                assert!(words.iter().all(|word| word == &words[0]), "{way:?}");
            }
        }
    }

    #[test]
    fn write_stays_in_the_caches_and_non_temporal_does_not() {
        let streaming = Method::Write(StoreMethod::Streaming);
        let methods = |access| Way::candidates(access).into_iter().map(|way| way.method);
        assert!(methods(MemoryAccess::Write).all(|method| method != streaming));
        assert!(methods(MemoryAccess::NonTemporal).all(|method| method == streaming));
        assert!(ALL.into_iter().all(|access| methods(access).count() > 0));
    }
}
