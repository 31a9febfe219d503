//! A page whose mapping changes: every CPU that runs this address space has to forget it.

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::io;

const PAGE: usize = 4096;
/// Length of the mapping: several pages, whatever the page size.
const LENGTH: usize = 16 * PAGE;

/// A mapping of this process that exists to be changed.
#[derive(Debug)]
pub struct ChangingPage {
    start: *mut u8,
    unmaps: bool,
}

// SAFETY: the mapping is private to this value, and whichever thread has the value has it alone.
unsafe impl Send for ChangingPage {}

impl ChangingPage {
    /// Maps some pages.
    ///
    /// # Errors
    /// When the kernel has no memory for them.
    pub fn new() -> io::Result<Self> {
        Ok(Self { start: map()?, unmaps: false })
    }

    /// Writes to a page and takes the right to write away, or unmaps it and maps a new one, in turns: one flush of the
    /// translations of that page on every CPU that runs this address space.
    ///
    /// # Errors
    /// When the kernel has no memory for a new page.
    pub fn change(&mut self) -> io::Result<()> {
        self.unmaps = !self.unmaps;
        // SAFETY: `start` is a writable mapping of LENGTH bytes that only this value knows; nothing in Rust refers to
        // its bytes, so that taking rights away or unmapping it leaves no dangling reference.
        unsafe {
            self.start.write_volatile(1);
            if self.unmaps {
                mprotect(self.start.cast(), LENGTH, MprotectFlags::READ)?;
                mprotect(self.start.cast(), LENGTH, MprotectFlags::READ | MprotectFlags::WRITE)?;
            } else {
                // The new one first: a failure leaves the old one mapped.
                let next = map()?;
                let old = std::mem::replace(&mut self.start, next);
                munmap(old.cast(), LENGTH)?;
            }
        }
        Ok(())
    }
}

fn map() -> io::Result<*mut u8> {
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
    let start = unsafe {
        mmap_anonymous(std::ptr::null_mut(), LENGTH, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    }?;
    Ok(start.cast())
}

impl Drop for ChangingPage {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length and is unmapped once.
        let _ = unsafe { munmap(self.start.cast(), LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_can_be_changed_again_and_again() {
        let mut page = ChangingPage::new().unwrap();
        for _ in 0..100 {
            page.change().unwrap();
        }
    }
}
