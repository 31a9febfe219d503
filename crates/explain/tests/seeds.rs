//! The seeds of the fuzz targets for text: inputs that once broke a target are kept among them and must not break it again.
//! The assertions are those of `fuzz/fuzz_targets/text.rs` and `explain.rs`.

use std::path::{Path, PathBuf};
use whylate_explain::{Export, Options, explain, export};
use whylate_trace::parse::{Source, from_source};
use whylate_trace::reader::{Reader, Selection};

fn seeds() -> Vec<PathBuf> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let files = |target: &str| std::fs::read_dir(seeds.join(target)).expect("the folder of a target's seeds");
    let mut paths: Vec<PathBuf> = ["text", "explain"]
        .iter()
        .flat_map(|target| files(target).flatten())
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    assert!(paths.len() > 10, "{paths:?}");
    paths
}

fn reader(path: &Path) -> (Box<dyn Reader>, u64) {
    let bytes = std::fs::read(path).expect("a seed");
    let length = bytes.len() as u64;
    let source = Source::memory("seed", bytes).expect("memory can be read");
    (from_source(source).unwrap_or_else(|error| panic!("{}: {error}", path.display())), length)
}

#[test]
fn every_seed_is_read_to_its_end() {
    for path in seeds() {
        let (mut reader, length) = reader(&path);
        for (from_ns, selection) in [(None, Selection::All), (Some(1_000_000_000), Selection::Wakeups)] {
            reader.seek(from_ns, selection).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut problems = 0;
            loop {
                match reader.next() {
                    Ok(Some(event)) => assert!(event.offset <= length, "{}", path.display()),
                    Ok(None) => break,
                    Err(_) => problems += 1,
                }
                assert!(problems <= length, "{}", path.display());
            }
        }
    }
}

#[test]
fn every_explanation_of_a_seed_is_whole() {
    for path in seeds() {
        for period_ns in [None, Some(200_000)] {
            let (mut reader, _) = reader(&path);
            let Ok(result) = explain(reader.as_mut(), &Options { period_ns, ..Options::default() }) else {
                continue;
            };
            for spike in &result.spikes {
                let end = spike.timeline.iter().fold(spike.expected_ns, |at, segment| {
                    assert_eq!(segment.from_ns, at, "{}", path.display());
                    segment.to_ns
                });
                assert!(spike.timeline.is_empty() || end == spike.actual_ns, "{}", path.display());
                let causes = std::iter::once(&spike.cause).chain(&spike.also);
                let shares: f64 = causes.filter_map(|cause| cause.share).sum();
                assert!(shares <= 1.0 + 1e-6, "{}: {shares}", path.display());
            }
            export(reader.as_mut(), &result.spikes, Export::Perfetto).expect("the trace was read before");
        }
    }
}
