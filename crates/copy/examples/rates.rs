//! Prints the rate of each method for each size of a block: `rates [BYTES...]`, as `METHOD BYTES GB/s`.
//!
//! A block is copied again and again from the beginning of one buffer to that of another, or read (`read/…`) or written
//! (`write/…`, past the caches `write-nt/…`); the median of 45 trials of about a millisecond, which take turns. `libc` is
//! the C library's memcpy, called without [`Copier`].

use std::hint::black_box;
use whylate_copy::{Copier, InstructionSet, Kernels, Method, ReadMethod, StoreMethod};

const TRIALS: usize = 45;

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let blocks = if asked.is_empty() { vec![256, 4096, 65_536, 1 << 20, 3_110_400, 64 << 20] } else { asked };
    let room = blocks.iter().copied().max().unwrap_or(0) + 8192;
    let (mut from, mut to) = (vec![1u8; room], vec![2u8; room]);
    // Half a page apart: stores to the same place of a page as the loads behind them would delay those.
    let (from, to) = (aligned(&mut from), &mut aligned(&mut to)[2048..]);
    let copiers = Method::available().into_iter().filter_map(|one| Copier::new(one).ok());
    let copiers: Vec<Copier> = black_box(copiers.collect());
    let traffic = traffic();
    let mut rates = vec![vec![Vec::new(); copiers.len() + 1 + traffic.len()]; blocks.len()];
    for _ in 0..TRIALS {
        for (bytes, rates) in blocks.iter().zip(&mut rates) {
            let (from, to) = (&from[..*bytes], &mut to[..*bytes]);
            let mut rates = rates.iter_mut();
            let mut next = |rate| rates.next().into_iter().for_each(|rates| rates.push(rate));
            for copier in &copiers {
                next(trial(*bytes, |turns| by_copier(copier, from, to, turns)));
            }
            next(trial(*bytes, |turns| by_library(from, to, turns)));
            for (_, act) in &traffic {
                next(trial(*bytes, |turns| (0..turns).for_each(|_| act(from, to))));
            }
        }
    }
    let copies = copiers.iter().map(|copier| copier.method().name().to_owned());
    let names = copies.chain(["libc".to_owned()]).chain(traffic.into_iter().map(|(name, _)| name));
    for (number, name) in names.enumerate() {
        for (bytes, rates) in blocks.iter().zip(&mut rates) {
            let rates = &mut rates[number];
            rates.sort_by(f64::total_cmp);
            println!("{name} {bytes} {:.3}", rates[TRIALS / 2]);
        }
    }
}

type Act = Box<dyn Fn(&[u8], &mut [u8])>;

/// Reads and writes by every instruction set.
fn traffic() -> Vec<(String, Act)> {
    let mut all: Vec<(String, Act)> = Vec::new();
    for kernels in InstructionSet::available().into_iter().filter_map(Kernels::with) {
        for method in [ReadMethod::Plain, ReadMethod::Prefetching] {
            let act = move |from: &[u8], _: &mut [u8]| _ = black_box(kernels.read(method, from));
            all.push((
                format!("read/{}/{}", kernels.instruction_set(), method.name().replace(' ', "-")),
                Box::new(act),
            ));
        }
        for method in [StoreMethod::Cached, StoreMethod::Streaming, StoreMethod::String] {
            let kind = if method == StoreMethod::Streaming { "write-nt" } else { "write" };
            let act = move |_: &[u8], to: &mut [u8]| kernels.write(method, to, 0x5a5a_5a5a_5a5a_5a5a);
            all.push((
                format!("{kind}/{}/{}", kernels.instruction_set(), method.name().replace(' ', "-")),
                Box::new(act),
            ));
        }
    }
    all
}

unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
}

fn aligned(bytes: &mut [u8]) -> &mut [u8] {
    let head = bytes.as_ptr().align_offset(4096);
    &mut bytes[head..]
}

// Functions of their own: the loops differ in what they call only, and spill nothing.
#[inline(never)]
fn by_copier(copier: &Copier, from: &[u8], to: &mut [u8], turns: usize) {
    for _ in 0..turns {
        copier.copy(from, to);
        black_box(());
    }
}

#[inline(never)]
fn by_library(from: &[u8], to: &mut [u8], turns: usize) {
    let len = from.len().min(to.len());
    for _ in 0..turns {
        // SAFETY: both are as long as that, and one is borrowed mutably.
        unsafe { memcpy(to.as_mut_ptr(), from.as_ptr(), len) };
        black_box(());
    }
}

fn trial(bytes: usize, mut copy: impl FnMut(usize)) -> f64 {
    let (mut turns, mut copied) = (1, 0);
    // Reading the clock is a system call: it must be rare compared with what is measured.
    let most = (64 << 20) / bytes.max(1) + 1;
    let begin = cpu_time();
    while cpu_time() - begin < 1_000_000 {
        copy(turns);
        copied += turns * bytes;
        turns = (turns * 2).min(most);
    }
    copied as f64 / (cpu_time() - begin) as f64
}

/// CPU time of this thread in ns: others may have the CPU in the middle of a trial.
fn cpu_time() -> u64 {
    const THREAD_CPU_TIME: i32 = 3;
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    }
    let mut time = [0; 2];
    // SAFETY: on 64-bit Linux the structure is two 64-bit integers, which the call fills in.
    unsafe { clock_gettime(THREAD_CPU_TIME, &mut time) };
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}
