//! What can be wrong with a device.

use ash::vk;
use std::fmt;
use std::io;

/// Why something cannot be done on a device.
#[derive(Debug)]
pub(crate) enum GpuError {
    Absent(String),
    Failed(String),
}

impl GpuError {
    pub(super) fn failed(what: &str, code: vk::Result) -> Self {
        let reason = match code {
            vk::Result::ERROR_DEVICE_LOST => "the device was lost (see the kernel's log)".to_owned(),
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => "the device has no memory left".to_owned(),
            vk::Result::ERROR_OUT_OF_HOST_MEMORY => "no memory is left".to_owned(),
            vk::Result::TIMEOUT => "the device gives no answer: it hangs (see the kernel's log)".to_owned(),
            code => code.to_string(),
        };
        Self::Failed(format!("{what}: {reason}"))
    }
}

impl fmt::Display for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(text) | Self::Failed(text) => f.write_str(text),
        }
    }
}

impl From<GpuError> for io::Error {
    fn from(error: GpuError) -> Self {
        Self::other(error.to_string())
    }
}

/// The value, or what was tried with the driver's answer.
pub(super) fn check<T>(what: &str, result: Result<T, vk::Result>) -> Result<T, GpuError> {
    result.map_err(|code| GpuError::failed(what, code))
}
