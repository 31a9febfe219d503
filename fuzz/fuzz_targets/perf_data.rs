//! The reader of perf.data, and what unpacks gzip, Zstandard and xz: no bytes may panic it, hang it or take its memory; every error says what is wrong, within the file.

#![no_main]

#[allow(dead_code)]
#[path = "../src/lines.rs"]
mod lines;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use std::io::Read;
use whylate_trace::internal::Compression;
use whylate_trace::parse::{self, ParseError, Source};
use whylate_trace::reader::{Reader, Selection};

/// Bytes that are unpacked of an input.
const UNPACKED_BYTES_MAX: u64 = 4 << 20;

/// Reads to the end, however often there are errors on the way; an error at each byte is the most there can be.
fn read(reader: &mut dyn Reader, bytes: usize) {
    let mut errors = 0;
    loop {
        match reader.next() {
            Ok(Some(event)) => {
                let _ = reader.symbol(whylate_trace::event::Symbol::Address(event.at_ns));
                assert!(event.offset <= bytes as u64, "an event at {} of {bytes}", event.offset);
            }
            Ok(None) => return,
            Err(error) => {
                check(&error);
                errors += 1;
                assert!(errors <= bytes + 1, "it does not end: {error}");
            }
        }
    }
}

fn check(error: &ParseError) {
    let shown = error.to_string();
    assert!(shown.starts_with("fuzz") || shown.starts_with("cannot read fuzz"), "{shown}");
    assert!(!shown.contains('\n'), "{shown}");
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { lines::of_binary(data, size, max_size, seed) });

fuzz_target!(|input: &[u8]| {
    let source = Source::memory("fuzz", input).expect("memory can be read");
    if source.compression() != Compression::None {
        // A few bytes can be unpacked to any number.
        match source.stream(0) {
            Ok(stream) => drop(std::io::copy(&mut stream.take(UNPACKED_BYTES_MAX), &mut std::io::sink())),
            Err(error) => check(&error),
        }
        return;
    }
    match parse::from_source(source) {
        Ok(mut reader) => {
            read(reader.as_mut(), input.len());
            for (from_ns, selection) in [(Some(1_000_000_000), Selection::Wakeups), (None, Selection::All)] {
                if reader.seek(from_ns, selection).is_ok() {
                    read(reader.as_mut(), input.len());
                }
            }
        }
        Err(error) => check(&error),
    }
});
