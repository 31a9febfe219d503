//! Results of other tools: no bytes may panic the readers, and every error has a place within the file.
//!
//! Input: a file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use whylate_import::{ImportError, read};

fuzz_target!(|input: &[u8]| {
    match read(Path::new("fuzz"), input) {
        Ok(result) => {
            for cpu in &result.probe.cpus {
                let counted: u128 = cpu.histogram.iter().map(|(_, count)| u128::from(*count)).sum();
                assert!(counted <= u128::from(cpu.samples), "{counted} of {} samples", cpu.samples);
            }
        }
        Err(ImportError::Broken { line, column, .. }) => {
            let lines = input.iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!(line <= lines && column <= input.len() + 1, "line {line}, column {column}");
        }
        Err(ImportError::Foreign { .. } | ImportError::Named { .. }) => {}
    }
});
