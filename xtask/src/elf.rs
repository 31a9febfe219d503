//! Reads enough of an ELF file to say for which machine it is and whether it is static.
//!
//! Only 64-bit little-endian files, which both targets make.

use anyhow::{Result, bail, ensure};

/// `e_machine` of x86_64.
pub(crate) const MACHINE_X86_64: u16 = 62;
/// `e_machine` of aarch64.
pub(crate) const MACHINE_AARCH64: u16 = 183;

/// Type of the program header that names the dynamic loader.
const PT_INTERP: u32 = 3;
const HEADER_BYTES: usize = 64;

/// What the headers of an executable say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Executable {
    /// `e_machine`.
    pub(crate) machine: u16,
    /// No program header asks for a dynamic loader.
    pub(crate) is_static: bool,
}

/// Reads the headers.
///
/// # Errors
/// When `bytes` is no 64-bit little-endian ELF file with program headers, or ends within them.
pub(crate) fn read(bytes: &[u8]) -> Result<Executable> {
    ensure!(bytes.len() >= HEADER_BYTES && bytes.starts_with(b"\x7fELF"), "not an ELF file");
    ensure!(bytes[4] == 2 && bytes[5] == 1, "not a 64-bit little-endian ELF file");
    let table = usize::try_from(u64_at(bytes, 32)?)?;
    let entry_bytes = usize::from(u16_at(bytes, 54)?);
    let entries = usize::from(u16_at(bytes, 56)?);
    ensure!(entries > 0, "no program headers: this is not an executable");
    let mut is_static = true;
    for entry in 0..entries {
        let Some(start) = table.checked_add(entry * entry_bytes) else {
            bail!("program headers beyond the end")
        };
        is_static &= u32_at(bytes, start)? != PT_INTERP;
    }
    Ok(Executable { machine: u16_at(bytes, 18)?, is_static })
}

fn array_at<const LENGTH: usize>(bytes: &[u8], start: usize) -> Result<[u8; LENGTH]> {
    match bytes.get(start..).and_then(|rest| rest.first_chunk::<LENGTH>()) {
        Some(chunk) => Ok(*chunk),
        None => bail!("the file ends at byte {} within its headers", bytes.len()),
    }
}

fn u16_at(bytes: &[u8], start: usize) -> Result<u16> {
    Ok(u16::from_le_bytes(array_at(bytes, start)?))
}

fn u32_at(bytes: &[u8], start: usize) -> Result<u32> {
    Ok(u32::from_le_bytes(array_at(bytes, start)?))
}

fn u64_at(bytes: &[u8], start: usize) -> Result<u64> {
    Ok(u64::from_le_bytes(array_at(bytes, start)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An ELF file of nothing but headers.
    pub(crate) fn executable(machine: u16, program_header_types: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&(program_header_types.len() as u16).to_le_bytes());
        for kind in program_header_types {
            let start = bytes.len();
            bytes.resize(start + 56, 0);
            bytes[start..start + 4].copy_from_slice(&kind.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn without_an_interpreter_it_is_static() {
        let read = read(&executable(MACHINE_X86_64, &[1, 2, 6])).unwrap();
        assert_eq!(read, Executable { machine: MACHINE_X86_64, is_static: true });
    }

    #[test]
    fn with_an_interpreter_it_is_not() {
        let read = read(&executable(MACHINE_AARCH64, &[6, PT_INTERP, 1])).unwrap();
        assert_eq!(read, Executable { machine: MACHINE_AARCH64, is_static: false });
    }

    #[test]
    fn this_test_is_an_executable() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(read(&own).is_ok());
    }

    #[test]
    fn what_is_no_executable_is_an_error() {
        assert!(read(b"#!/bin/sh\n").is_err());
        assert!(read(&executable(MACHINE_X86_64, &[])).is_err());
        let mut cut = executable(MACHINE_X86_64, &[1, 2]);
        cut.truncate(HEADER_BYTES + 57);
        assert!(read(&cut).unwrap_err().to_string().contains("ends at byte 121"));
    }
}
