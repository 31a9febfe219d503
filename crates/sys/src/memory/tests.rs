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
