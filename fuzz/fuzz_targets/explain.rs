//! Explanations of everything that the text reader accepts: no panic, no endless loop, and timelines without gap or
//! overlap.
//!
//! Input: a trace as text.

#![no_main]

#[allow(dead_code)]
#[path = "../src/lines.rs"]
mod lines;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use whylate_explain::{Export, Options, explain, export};
use whylate_trace::parse::{Source, from_source};

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { lines::of_text(data, size, max_size, seed) });

fuzz_target!(|input: &[u8]| {
    let Ok(source) = Source::memory("fuzz", input.to_vec()) else { return };
    let Ok(mut reader) = from_source(source) else { return };
    for period_ns in [None, Some(200_000)] {
        let options = Options { period_ns, ..Options::default() };
        let Ok(result) = explain(reader.as_mut(), &options) else { continue };
        for spike in &result.spikes {
            let end = spike.timeline.iter().fold(spike.expected_ns, |at, segment| {
                assert_eq!(segment.from_ns, at);
                segment.to_ns
            });
            assert!(spike.timeline.is_empty() || end == spike.actual_ns);
            let shares = std::iter::once(&spike.cause).chain(&spike.also).filter_map(|cause| cause.share);
            assert!(shares.sum::<f64>() <= 1.0 + 1e-6);
        }
        let _ = export(reader.as_mut(), &result.spikes, Export::Perfetto);
    }
});
