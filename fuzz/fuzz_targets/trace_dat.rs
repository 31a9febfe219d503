//! trace.dat: no file may panic the reader, make it hang or take memory that the file does not justify.

#![no_main]

#[allow(dead_code)]
#[path = "../src/lines.rs"]
mod lines;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use std::path::Path;
use whylate_trace::event::Symbol;
use whylate_trace::internal::{Input, open_trace_dat};
use whylate_trace::reader::{Reader, Selection};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { lines::of_binary(data, size, max_size, seed) });

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = open_trace_dat(&Input::memory(Path::new("fuzz.dat"), bytes)) else { return };
    let (steps, middle) = read(&mut reader);
    // Each event and each error is something in the file; it may be packed.
    assert!(steps <= 64 + bytes.len() * 1200, "{steps} of {} bytes", bytes.len());
    if reader.seek(middle, Selection::Wakeups).is_ok() {
        read(&mut reader);
    }
});

/// Reads to the end, over errors; how many steps that took, and the time of an event in the middle.
fn read(reader: &mut dyn Reader) -> (usize, Option<u64>) {
    let (mut steps, mut middle) = (0usize, None);
    loop {
        steps += 1;
        match reader.next() {
            Ok(Some(event)) => {
                if steps.is_power_of_two() {
                    middle = Some(event.at_ns);
                    // The list of functions is read when the first is asked for.
                    let found = reader.symbol(Symbol::Address(event.at_ns));
                    assert!(found.is_none_or(|(name, _)| !name.is_empty()));
                }
            }
            Ok(None) => {
                let _ = reader.symbol(Symbol::Address(0xffff_ffff_8100_0000));
                assert!(reader.info().remarks.len() <= 1);
                return (steps, middle);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
