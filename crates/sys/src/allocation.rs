//! Allocators: one that counts, for tests that assert that a measuring thread allocates nothing; and one with a
//! reserve, so that a process without memory left (`ulimit -v`) can still end in order, or at least with a message.

#[cfg(not(target_env = "musl"))]
use std::alloc::System;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr};

/// The allocator that those here pass calls on to: the system's, but with musl dlmalloc.
#[cfg(target_env = "musl")]
#[allow(non_upper_case_globals, reason = "in the place of the system's allocator")]
static System: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Enough to store what was measured, to undo what was changed, and to say so.
const RESERVE_LAYOUT: Layout = Layout::new::<[u64; 4 << 20]>();
/// Null before it is held, and after it was used.
static RESERVE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
static IS_EXHAUSTED: AtomicBool = AtomicBool::new(false);
static MAY_LEAVE_SETTINGS: AtomicBool = AtomicBool::new(false);
const ENDED: &str = "whylate: out of memory, so the run has stopped; its stored results are kept; raise the \
     limit (`ulimit -v`, the cgroup's `memory.max`)\n";
const LEFT_SETTINGS: &str =
    "whylate: settings of the machine may still be changed; `whylate treat restore` restores them\n";

/// The system's allocator, which gives up its reserve when the system has no more memory, and ends the process when there
/// is none after that: with a message and a code, where Rust would abort.
#[derive(Debug)]
pub struct ReservingAllocator;

/// Sets memory aside: address space, no pages. Returns whether the system had that much.
#[must_use]
pub fn hold_reserve() -> bool {
    // SAFETY: the layout has a size.
    let reserve = unsafe { System.alloc(RESERVE_LAYOUT) };
    release(RESERVE.swap(reserve, Relaxed));
    !reserve.is_null()
}

/// Whether the process, should it end for lack of memory, may leave settings of the machine changed.
pub fn may_leave_settings(may: bool) {
    MAY_LEAVE_SETTINGS.store(may, Relaxed);
}

/// Whether the reserve was needed: it is time to end.
pub fn is_exhausted() -> bool {
    IS_EXHAUSTED.load(Relaxed)
}

/// Gives the reserve back to the system; returns whether there was one.
fn release(reserve: *mut u8) -> bool {
    if reserve.is_null() {
        return false;
    }
    // SAFETY: it is what `hold_reserve` got with this layout, and `swap` gives it to one caller only.
    unsafe { System.dealloc(reserve, RESERVE_LAYOUT) };
    true
}

/// The result of `allocate`; if that is null, its result without the reserve.
fn with_reserve(allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let memory = allocate();
    if !memory.is_null() || !release(RESERVE.swap(null_mut(), Relaxed)) {
        return memory;
    }
    IS_EXHAUSTED.store(true, Relaxed);
    allocate()
}

/// Memory that a caller can use, or the end of the process.
fn or_end(memory: *mut u8) -> *mut u8 {
    if !memory.is_null() {
        return memory;
    }
    let leaves = MAY_LEAVE_SETTINGS.load(Relaxed);
    for text in [ENDED, LEFT_SETTINGS].into_iter().take(1 + usize::from(leaves)) {
        // SAFETY: the text is valid for its length.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: it ends the process at once and runs nothing that could need memory.
    unsafe { libc::_exit(if leaves { 3 } else { 1 }) }
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract of `GlobalAlloc`; one that
// gave nothing had no effect, and is made once more.
unsafe impl GlobalAlloc for ReservingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        or_end(with_reserve(|| unsafe { System.alloc(layout) }))
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        or_end(with_reserve(|| unsafe { System.alloc_zeroed(layout) }))
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`; where it gave nothing, `pointer` is as before.
        or_end(with_reserve(|| unsafe { System.realloc(pointer, layout, size) }))
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

thread_local! {
    // Const-initialised and without a destructor: reading it never allocates.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting the allocations of each thread.
#[derive(Debug)]
pub struct CountingAllocator;

/// How often this thread has allocated so far; always 0 unless [`CountingAllocator`] is the global allocator.
pub fn allocations_of_this_thread() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

fn count() {
    // A thread that is being torn down has no counter any more; nothing is measured there.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract of `GlobalAlloc`;
// counting touches a thread-local cell that needs no allocation.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_given_up_once_when_memory_ends() {
        assert!(hold_reserve());
        assert!(!is_exhausted());
        // No machine has this much memory: the system refuses it, then the reserve is gone, and it is refused again.
        let layout = Layout::from_size_align(isize::MAX as usize - 4_096, 16).unwrap();
        // SAFETY: the layout has a size; what comes back is not used.
        let memory = with_reserve(|| unsafe { System.alloc(layout) });
        assert!(memory.is_null() && is_exhausted());
        assert!(RESERVE.load(Relaxed).is_null());
        let small = Layout::new::<u64>();
        // SAFETY: the layout has a size, and what was allocated is given back with it.
        unsafe { ReservingAllocator.dealloc(ReservingAllocator.alloc(small), small) };
    }
}
