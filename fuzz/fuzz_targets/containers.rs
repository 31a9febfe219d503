//! Traces inside something else, or in another form (mails, archives, atrace, systrace, Perfetto, timehist): no bytes may panic
//! what unpacks them, hang it or take its memory.
//!
//! Input: a file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whylate_trace::parse::{Source, from_source};
use whylate_trace::reader::{Reader, Selection};

/// Reads to the end, over errors.
fn read(reader: &mut dyn Reader, bytes: usize) {
    let mut steps = 0usize;
    while !matches!(reader.next(), Ok(None)) {
        steps += 1;
        // Packed data hold at most this many times more.
        assert!(steps <= 64 + bytes * 1200, "{steps} of {bytes} bytes");
    }
}

fuzz_target!(|input: &[u8]| {
    let Ok(source) = Source::memory("fuzz", input) else { return };
    match from_source(source) {
        Ok(mut reader) => {
            read(reader.as_mut(), input.len());
            if reader.seek(Some(1_000_000_000), Selection::Wakeups).is_ok() {
                read(reader.as_mut(), input.len());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
