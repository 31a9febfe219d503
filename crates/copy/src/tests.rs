//! Every kernel against plain Rust, on every instruction set of this CPU, at unaligned places and lengths.

use super::portable::read_words;
use super::*;

const METHODS: [StoreMethod; 3] = [StoreMethod::Cached, StoreMethod::Streaming, StoreMethod::String];
/// Lengths around every block and vector size, and one of several blocks.
const LENGTHS: [usize; 20] =
    [0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 65, 127, 128, 255, 256, 511, 512, 513, 1025, 5000];
const OFFSETS: [usize; 6] = [0, 1, 8, 31, 33, 63];

fn every_set() -> impl Iterator<Item = Kernels> {
    InstructionSet::available().into_iter().filter_map(Kernels::with)
}

fn random_bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Kernels::best().fill_random(&mut bytes, &mut Random::new(seed));
    bytes
}

#[test]
fn the_widest_set_is_the_best() {
    let sets = InstructionSet::available();
    assert_eq!(sets.first(), Some(&InstructionSet::Portable));
    assert_eq!(sets.last(), Some(&Kernels::best().instruction_set()));
    assert!(Kernels::with(InstructionSet::Neon).is_some() == cfg!(target_arch = "aarch64"));
}

#[test]
fn read_is_the_sum_of_the_words() {
    let bytes = random_bytes(6000, 1);
    for kernels in every_set() {
        for offset in OFFSETS {
            for length in LENGTHS {
                let source = &bytes[offset..offset + length];
                for method in [ReadMethod::Plain, ReadMethod::Prefetching] {
                    let sum = kernels.read(method, source);
                    assert_eq!(sum, read_words(source), "{kernels:?} {method:?} {offset} {length}");
                }
            }
        }
    }
}

#[test]
fn write_repeats_the_value_and_nothing_else() {
    let value = 0x0123_4567_89AB_CDEFu64;
    for kernels in every_set() {
        for method in METHODS {
            for offset in OFFSETS {
                for length in LENGTHS {
                    let mut bytes = random_bytes(6000, 2);
                    let before = bytes.clone();
                    kernels.write(method, &mut bytes[offset..offset + length], value);
                    let context = format!("{kernels:?} {method:?} {offset} {length}");
                    assert_eq!(bytes[..offset], before[..offset], "{context}");
                    assert_eq!(bytes[offset + length..], before[offset + length..], "{context}");
                    let written = &bytes[offset..offset + length];
                    let right = (0..length).all(|index| written[index] == value.to_ne_bytes()[index % 8]);
                    assert!(right, "{context}");
                }
            }
        }
    }
}

#[test]
fn copy_copies_the_shorter_length_and_nothing_else() {
    let source = random_bytes(6000, 3);
    for kernels in every_set() {
        for method in METHODS {
            for offset in OFFSETS {
                for length in LENGTHS {
                    let mut bytes = random_bytes(6000, 4);
                    let before = bytes.clone();
                    let from = &source[63 - offset..];
                    kernels.copy(method, from, &mut bytes[offset..offset + length]);
                    let context = format!("{kernels:?} {method:?} {offset} {length}");
                    assert_eq!(bytes[..offset], before[..offset], "{context}");
                    assert_eq!(bytes[offset..offset + length], from[..length], "{context}");
                    assert_eq!(bytes[offset + length..], before[offset + length..], "{context}");
                    kernels.copy(method, &from[..length], &mut bytes[..length]);
                    assert_eq!(bytes[..length], from[..length], "{context}");
                    kernels.copy(method, &from[..length / 2], &mut bytes[offset..]);
                    assert_eq!(bytes[offset..offset + length / 2], from[..length / 2], "{context}");
                }
            }
        }
    }
}

#[test]
fn random_bytes_are_the_same_on_every_set_and_look_random() {
    for length in LENGTHS {
        let expected = random_bytes(length, 5);
        for kernels in every_set() {
            let mut bytes = vec![0; length];
            kernels.fill_random(&mut bytes, &mut Random::new(5));
            assert_eq!(bytes, expected, "{kernels:?} {length}");
        }
    }
    let bytes = random_bytes(1 << 20, 6);
    let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
    let share = f64::from(ones) / (8.0 * bytes.len() as f64);
    assert!((0.498..0.502).contains(&share), "{share}");
    let mut seen = std::collections::HashSet::new();
    assert!(bytes.as_chunks::<8>().0.iter().all(|word| seen.insert(*word)), "a word came twice");
    assert_ne!(random_bytes(64, 7), random_bytes(64, 8));
}

#[test]
fn bounded_numbers_cover_their_range() {
    let mut random = Random::new(0);
    let mut counts = [0u32; 10];
    (0..10_000).for_each(|_| counts[random.below(10) as usize] += 1);
    assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    assert_eq!(random.below(0), 0);
    assert_eq!(random.below(1), 0);
}

#[test]
fn a_chase_visits_every_line_once_and_comes_back() {
    for lines in [1usize, 2, 3, 100, 4096] {
        let mut words = vec![7u64; lines * 8 + 3];
        let mut chase = Chase::new(&mut words, &mut Random::new(9)).unwrap();
        assert_eq!(chase.lines(), lines);
        let visited: std::collections::HashSet<usize> = (0..lines).map(|_| chase.walk(1)).collect();
        assert_eq!(visited.len(), lines);
        assert_eq!(chase.walk(0), 0, "a cycle ends where it began");
        assert_eq!(chase.walk(lines * 3), 0);
    }
    assert!(Chase::new(&mut [0; 7], &mut Random::new(9)).is_none());
}

/// Lengths 0 to 4096 and offsets 0 to 63 of both sides: each length and each offset of either side occurs, in ever
/// other combinations. Not all 17 million combinations.
fn covering() -> impl Iterator<Item = (usize, usize, usize)> {
    (0..=4096usize).flat_map(|length| {
        (0..4usize).map(move |turn| {
            let mixed = (length * 4 + turn).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (length, (length + turn * 16) % 64, mixed >> 58)
        })
    })
}

#[test]
fn the_covering_has_every_length_and_every_offset() {
    let all: Vec<_> = covering().collect();
    let count = |of: fn(&(usize, usize, usize)) -> usize| {
        all.iter().map(of).collect::<std::collections::HashSet<_>>().len()
    };
    assert_eq!((count(|it| it.0), count(|it| it.1), count(|it| it.2)), (4097, 64, 64));
    let pairs: std::collections::HashSet<_> = all.iter().map(|it| (it.1, it.2)).collect();
    assert_eq!(pairs.len(), 64 * 64, "every offset with every other");
}

#[test]
fn every_method_copies_as_memcpy_does() {
    const LENGTH_MAX: usize = 4096;
    let source = random_bytes(LENGTH_MAX + 64, 10);
    let blank = random_bytes(LENGTH_MAX + 192, 11);
    let mut written = blank.clone();
    let mut expected = blank.clone();
    for method in Method::available() {
        let copier = Copier::new(method).unwrap();
        for (length, from, to) in covering() {
            let to = to + 64;
            copier.copy(&source[from..from + length], &mut written[to..to + length]);
            expected[to..to + length].copy_from_slice(&source[from..from + length]);
            assert!(written == expected, "{method}: {length} bytes from {from} to {to}");
            // What was written and what must be left alone, as before.
            written[to..to + length].copy_from_slice(&blank[to..to + length]);
            expected[to..to + length].copy_from_slice(&blank[to..to + length]);
        }
    }
}

#[test]
fn large_copies_and_unequal_lengths() {
    let source = random_bytes(3 << 20, 12);
    for method in Method::available() {
        let copier = Copier::new(method).unwrap();
        let mut to = vec![0; (3 << 20) + 5];
        copier.copy(&source[1..], &mut to[3..]);
        assert!(
            to[3..(3 << 20) + 2] == source[1..] && to[..3] == [0; 3] && to[(3 << 20) + 2..] == [0; 3],
            "{method}"
        );
        copier.copy(&source, &mut to[..1000]);
        assert!(to[..1000] == source[..1000] && to[1000] == source[998], "{method}");
    }
}

#[test]
fn methods_have_names_and_say_what_they_lack() {
    for method in Method::ALL {
        assert_eq!(Method::from_name(method.name()), Some(method));
        if let Err(error) = Copier::new(method) {
            assert!(error.to_string().contains(method.needs()), "{error}");
        }
    }
    let has = Method::available();
    assert!(has.contains(&Method::Memcpy));
    assert_eq!(has.contains(&Method::RepMovsb), cfg!(target_arch = "x86_64"));
    assert_eq!(has.contains(&Method::LdnpStnp), cfg!(target_arch = "aarch64"));
}

#[test]
fn handing_over_changes_no_byte_of_the_buffer_or_around_it() {
    assert!(handover::line_bytes().is_power_of_two());
    let before = random_bytes(4096, 13);
    let mut bytes = before.clone();
    for (from, to) in [(0, 0), (0, 1), (1, 63), (63, 65), (5, 4096), (4095, 4096)] {
        handover::clean(&bytes[from..to]).unwrap();
        handover::invalidate(&mut bytes[from..to]).unwrap();
        assert!(bytes == before);
    }
}

#[test]
fn fences_stand_where_they_must() {
    use handover::log::{Step, of};
    let (source, mut destination) = ([1; 4096], [0; 4096]);
    assert_eq!(of(|| handover::clean(&source).unwrap()), [Step::Line, Step::StoreFence]);
    let invalidated = of(|| handover::invalidate(&mut destination).unwrap());
    assert_eq!(invalidated, [Step::FullFence, Step::Line, Step::FullFence]);
    for method in Method::available() {
        let copier = Copier::new(method).unwrap();
        let steps = of(|| copier.copy(&source, &mut destination));
        let first = |step| steps.first() == Some(&step);
        let is_right = match method {
            _ if method.name().ends_with("-first") || method == Method::DcCivac => {
                steps == [Step::FullFence, Step::Line, Step::FullFence]
            }
            Method::Clflush | Method::Clflushopt | Method::Clwb | Method::DcCvac => {
                steps == [Step::Line, Step::StoreFence]
            }
            Method::MovntdqaNt => first(Step::FullFence) && steps.last() == Some(&Step::StoreFence),
            Method::Movntdqa => first(Step::FullFence),
            _ if method.bypasses_caches() => steps == [Step::StoreFence],
            _ => steps.is_empty(),
        };
        assert!(is_right, "{method}: {steps:?}");
    }
}

/// Message passing: a thread that sees the flag must see every byte of the message, whatever stores wrote it, and a
/// line that was dropped must not be loaded before the flag is. One thread plays the device.
#[test]
fn stores_of_every_method_come_before_the_flag() {
    use std::cell::UnsafeCell;
    use std::sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    };
    const MESSAGE: usize = 1024;
    const ROUNDS: u64 = 2_000;
    #[repr(align(64))]
    struct Shared {
        message: UnsafeCell<[u8; MESSAGE]>,
        flag: AtomicU64,
        taken: AtomicU64,
    }
    // SAFETY: only the side that owns the message, as the flags say, touches it.
    unsafe impl Sync for Shared {}

    for method in Method::available() {
        let copier = Copier::new(method).unwrap();
        let shared = &Shared { message: UnsafeCell::new([0; MESSAGE]), flag: 0.into(), taken: 0.into() };
        let wait = |word: &AtomicU64, round| {
            while word.load(Acquire) < round {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut copy = [0; MESSAGE];
                for round in 1..=ROUNDS {
                    wait(&shared.flag, round);
                    handover::all_before_all();
                    // SAFETY: the message is this side's until it says `taken`.
                    let message = unsafe { &*shared.message.get() };
                    copier.copy(message, &mut copy);
                    assert!(copy.iter().all(|byte| *byte == round as u8), "{method}: round {round}");
                    handover::all_before_all();
                    shared.taken.store(round, Release);
                }
            });
            for round in 1..=ROUNDS {
                wait(&shared.taken, round - 1);
                // SAFETY: the message is this side's until it raises the flag.
                let message = unsafe { &mut *shared.message.get() };
                copier.copy(&[round as u8; MESSAGE], message);
                // On x86-64 a plain store: what orders it behind non-temporal ones is the copy's own fence.
                shared.flag.store(round, Release);
            }
        });
    }
}
