//! Devices whose interrupt a process can wait for: the real-time clock, the HPET, user-space drivers' devices.
//!
//! Waiting is one `read` (a UIO device also needs its interrupt enabled again, a `write` after it). Interrupts that
//! the device makes for this file end when it is closed.

use rustix::io::{read, write};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `RTC_UIE_ON`, `RTC_PIE_ON` and `RTC_IRQP_SET` of include/uapi/linux/rtc.h.
const RTC_UPDATE_ON: u64 = in_out_none(b'p', 0x03);
const RTC_PERIODIC_ON: u64 = in_out_none(b'p', 0x05);
const RTC_FREQUENCY_SET: u64 = in_word(b'p', 0x0c);
/// `HPET_IE_ON` and `HPET_IRQFREQ` of include/uapi/linux/hpet.h.
const HPET_ON: u64 = in_out_none(b'h', 0x01);
const HPET_FREQUENCY_SET: u64 = in_word(b'h', 0x06);

/// `_IO` of the kernel's generic ioctl numbers.
const fn in_out_none(kind: u8, number: u8) -> u64 {
    (kind as u64) << 8 | number as u64
}

/// `_IOW` of the same with an `unsigned long`.
const fn in_word(kind: u8, number: u8) -> u64 {
    1 << 30 | (size_of::<libc::c_ulong>() as u64) << 16 | in_out_none(kind, number)
}

#[derive(Debug)]
pub struct InterruptSource {
    file: File,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Reads `unsigned long`: the number of interrupts since the last read above eight bits of flags.
    Rtc,
    /// Reads `unsigned long`: the number of interrupts since the last read.
    Hpet,
    /// Reads a 32-bit count of all interrupts; the last one that was read.
    Uio { seen: u32, enables: bool },
}

impl InterruptSource {
    /// The real-time clock, `frequency_hz` times a second. Its first interrupt comes one period after this call.
    ///
    /// # Errors
    /// When there is no `/dev/rtc0`, another process has it open (EBUSY), or this user may not have that rate.
    pub fn rtc_periodic(frequency_hz: u64) -> io::Result<Self> {
        let source = Self::open("/dev/rtc0", Kind::Rtc)?;
        source.control(RTC_FREQUENCY_SET, frequency_hz)?;
        source.control(RTC_PERIODIC_ON, 0)?;
        Ok(source)
    }

    /// The real-time clock's update, once a second.
    pub fn rtc_update() -> io::Result<Self> {
        let source = Self::open("/dev/rtc0", Kind::Rtc)?;
        source.control(RTC_UPDATE_ON, 0)?;
        Ok(source)
    }

    /// A timer of the HPET, `frequency_hz` times a second.
    ///
    /// # Errors
    /// When there is no `/dev/hpet`, it has no free timer with an interrupt, or this user may not have that rate.
    pub fn hpet(frequency_hz: u64) -> io::Result<Self> {
        let source = Self::open("/dev/hpet", Kind::Hpet)?;
        source.control(HPET_FREQUENCY_SET, frequency_hz)?;
        source.control(HPET_ON, 0)?;
        Ok(source)
    }

    /// The device of a user-space driver.
    ///
    /// # Errors
    /// When there is no such device, or it may not be opened.
    pub fn uio(number: u32) -> io::Result<Self> {
        let path = format!("/dev/uio{number}");
        let mut source = Self::open(&path, Kind::Uio { seen: 0, enables: false })?;
        // Drivers without a way to enable the interrupt refuse this, and need none.
        let enables = write(&source.file, &1i32.to_ne_bytes()).is_ok();
        source.kind = Kind::Uio { seen: 0, enables };
        Ok(source)
    }

    fn open(path: &str, kind: Kind) -> io::Result<Self> {
        let writes = matches!(kind, Kind::Uio { .. });
        let opened = File::options().read(true).write(writes).open(path);
        let file = opened.map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        Ok(Self { file, kind })
    }

    fn control(&self, request: u64, value: u64) -> io::Result<()> {
        // SAFETY: the requests of this module take no pointer, but an `unsigned long` by value.
        let outcome = unsafe { libc::ioctl(self.file.as_raw_fd(), request as _, value as libc::c_ulong) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for the next interrupt; returns how many came since the last call. 0 after a signal or an error.
    #[inline(always)]
    pub fn wait(&mut self) -> u64 {
        let mut bytes = [0u8; 8];
        match &mut self.kind {
            Kind::Rtc | Kind::Hpet => {
                let length = read(&self.file, &mut bytes).unwrap_or(0);
                let value = if length == 4 {
                    u64::from(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
                } else {
                    u64::from_ne_bytes(bytes)
                };
                if self.kind == Kind::Rtc { value >> 8 } else { value }
            }
            Kind::Uio { seen, .. } => {
                if read(&self.file, &mut bytes[..4]) != Ok(4) {
                    return 0;
                }
                let count = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                // The first count says how many there were before.
                let arrived = if *seen == 0 { 1 } else { count.wrapping_sub(*seen) };
                *seen = count;
                u64::from(arrived)
            }
        }
    }

    /// Makes ready for the next interrupt, after the moment of this one was taken.
    #[inline(always)]
    pub fn enable_again(&self) {
        if let Kind::Uio { enables: true, .. } = self.kind {
            let _ = write(&self.file, &1i32.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requests_are_those_of_the_kernel() {
        if cfg!(target_pointer_width = "64") {
            assert_eq!((RTC_PERIODIC_ON, RTC_FREQUENCY_SET), (0x7005, 0x4008_700c));
            assert_eq!((HPET_ON, HPET_FREQUENCY_SET), (0x6801, 0x4008_6806));
        }
        assert_eq!(RTC_UPDATE_ON, 0x7003);
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let error = InterruptSource::uio(99_999).unwrap_err();
        assert!(error.to_string().starts_with("/dev/uio99999: "), "{error}");
    }
}
