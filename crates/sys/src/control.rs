//! Requests to device drivers (`ioctl`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The number of a request that reads and writes a structure (`_IOWR`).
pub(crate) const fn read_write<T>(group: u8, number: u64) -> u64 {
    3 << 30 | (size_of::<T>() as u64) << 16 | (group as u64) << 8 | number
}

/// The number of a request that gives a structure to the driver (`_IOW`).
pub(crate) const fn write<T>(group: u8, number: u64) -> u64 {
    1 << 30 | (size_of::<T>() as u64) << 16 | (group as u64) << 8 | number
}

/// Makes a request; what the driver answers, 0 or above.
///
/// # Safety
/// `T` must be the structure of the request, without padding that the kernel reads.
pub(crate) unsafe fn control<T>(file: &File, request: u64, argument: &mut T) -> io::Result<i32> {
    // SAFETY: the caller guarantees that the structure is the request's; the kernel reads and writes it during the call.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request as _, std::ptr::from_mut(argument)) };
    if answer >= 0 { Ok(answer) } else { Err(io::Error::last_os_error()) }
}
