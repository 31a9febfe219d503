//! Methods that are named for their vectors copy with these: compilers recognise a loop of loads and stores, and put a
//! call of memcpy in its place. This program has a memcpy of its own, which notes what it is called for.
#![cfg(all(target_arch = "x86_64", target_env = "gnu"))]

use std::sync::atomic::{AtomicUsize, Ordering};
use whylate_copy::{Copier, Method};

static BEGIN: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// The most bytes of one call for a destination from BEGIN to END.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 {
    let watched = BEGIN.load(Ordering::Relaxed)..END.load(Ordering::Relaxed);
    if watched.contains(&(to as usize)) {
        LARGEST.fetch_max(bytes, Ordering::Relaxed);
    }
    // SAFETY: the caller guarantees that both are valid for that and do not overlap; the direction flag is clear.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
    to
}

fn largest_call(method: Method, from: &[u8], to: &mut [u8]) -> usize {
    let copier = Copier::new(method).unwrap();
    LARGEST.store(0, Ordering::Relaxed);
    let begin = to.as_ptr() as usize;
    BEGIN.store(begin, Ordering::Relaxed);
    END.store(begin + to.len(), Ordering::Relaxed);
    copier.copy(from, to);
    END.store(0, Ordering::Relaxed);
    assert!(from == to, "{method}");
    LARGEST.load(Ordering::Relaxed)
}

#[test]
fn only_memcpy_calls_memcpy() {
    let from: Vec<u8> = (0..20_001u32).map(|index| (index % 251) as u8).collect();
    let mut to = vec![0; from.len()];
    for length in [64, 256, 1000, 4096, 20_000] {
        assert_eq!(largest_call(Method::Memcpy, &from[..length], &mut to[..length]), length);
        for method in Method::available().into_iter().filter(|method| *method != Method::Memcpy) {
            // Ends of less than a vector may be done by it.
            let most = largest_call(method, &from[1..=length], &mut to[..length]);
            assert!(most < 64, "{method} calls memcpy for {most} of {length} bytes");
        }
    }
}
