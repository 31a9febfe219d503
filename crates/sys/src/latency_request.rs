//! `/dev/cpu_dma_latency`: asks the kernel to keep CPUs out of idle states that take long to leave.
//!
//! The request holds as long as the file is open, and so ends with the process, whatever ends it
//! (Documentation/power/pm_qos_interface.rst).

use std::fs::File;
use std::io::{self, Write};

/// A request that is in force until it is dropped.
#[derive(Debug)]
pub struct LatencyRequest {
    _file: File,
}

impl LatencyRequest {
    /// Asks for an exit latency of 0.
    ///
    /// # Errors
    /// When `/dev/cpu_dma_latency` is missing (no cpuidle, container) or may not be written (not root).
    pub fn zero() -> io::Result<Self> {
        let mut file = File::options().write(true).open("/dev/cpu_dma_latency")?;
        file.write_all(&0i32.to_ne_bytes())?;
        Ok(Self { _file: file })
    }
}
