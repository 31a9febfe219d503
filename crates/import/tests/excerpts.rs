//! Results as they are posted, in parts and damaged: every figure that is read is in the text.
//!
//! `WHYLATE_MUTATIONS=200` takes that number of excerpts of each file.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use whylate_core::quantity::{BUCKET_NS, EXTREMES};
use whylate_core::result::{CpuResult, MeasureResult};
use whylate_import::read;
use whylate_testing::excerpts::{Excerpt, count, excerpt, numbers};

fn files() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let posted = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/questions");
    let folders = std::fs::read_dir(posted).expect("a folder").flatten().map(|entry| entry.path());
    let folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).chain([own]).collect();
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder").flatten());
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// The error in a result of an excerpt.
fn wrong(result: &MeasureResult, whole: &MeasureResult, excerpt: &Excerpt) -> Vec<String> {
    let stated = numbers(&excerpt.text);
    let largest = |result: &MeasureResult| {
        result.probe.cpus.iter().filter_map(CpuResult::largest_ns).max().unwrap_or(0)
    };
    let samples = |result: &MeasureResult| result.probe.cpus.iter().map(|it| it.samples).max().unwrap_or(0);
    let mut wrong = Vec::new();
    for cpu in &result.probe.cpus {
        if let Some(it) = cpu.quantiles {
            let all = [it.min_ns, it.p50_ns, it.p99_ns, it.p999_ns, it.p9999_ns, it.max_ns];
            if !all.is_sorted() {
                wrong.push(format!("CPU {}: the order of {all:?}", cpu.cpu));
            }
        }
        if let Some(it) = cpu.get(EXTREMES)
            && let (Some(min), Some(max)) = (it.min_ns, it.max_ns)
            && (min > max
                || it.mean_ns.is_some_and(|mean| mean < min as f64 - 1e3 || mean > max as f64 + 1e3))
        {
            wrong.push(format!("CPU {}: the order of {it:?}", cpu.cpu));
        }
        if let Some(max) = cpu.largest_ns().filter(|max| !is_stated(*max, cpu.get(BUCKET_NS), &stated)) {
            wrong.push(format!("CPU {}: a maximum of {max} ns that is not in the text", cpu.cpu));
        }
    }
    if excerpt.is_damaged {
        return wrong;
    }
    if largest(result) > largest(whole) {
        wrong.push(format!("{} ns, {} in the whole file", largest(result), largest(whole)));
    }
    let times = if excerpt.is_doubled { 9 } else { 1 };
    if samples(result) > samples(whole).saturating_mul(times) && samples(whole) > 0 {
        wrong.push(format!("{} samples, {} in the whole file", samples(result), samples(whole)));
    }
    wrong
}

/// Whether a number of the text is that value in a unit, or lies in its bucket.
fn is_stated(max_ns: u64, bucket_ns: Option<u64>, stated: &BTreeSet<u64>) -> bool {
    let is_it = |ns: u64| {
        let scales = (0..=9).map(|power| 10u64.pow(power));
        scales.filter(|scale| ns.is_multiple_of(*scale)).any(|scale| stated.contains(&(ns / scale)))
    };
    let steps = bucket_ns.unwrap_or(0) / 1000;
    // The text may have one digit more than the figure.
    let near = [max_ns.saturating_sub(1), max_ns, max_ns + 1];
    near.into_iter().any(is_it)
        || (1..=steps).any(|step| max_ns >= step * 1000 && is_it(max_ns - step * 1000))
}

#[test]
fn excerpts_of_results_have_no_figures_that_are_not_in_them() {
    let files = files();
    let count = count(20);
    let (mut all, mut readable, mut found) = (0u64, 0u64, Vec::new());
    for (number, path) in files.iter().enumerate() {
        let bytes = std::fs::read(path).expect("a file");
        let Ok(whole) = read(path, &bytes) else { continue };
        for seed in 0..count {
            let excerpt = excerpt(&bytes, seed << 16 | number as u64);
            let name =
                format!("{} {seed} {:?}", path.file_name().unwrap_or_default().display(), excerpt.changes);
            all += 1;
            match catch_unwind(|| read(path, &excerpt.text)) {
                Ok(Ok(result)) => {
                    readable += 1;
                    // The values of a packed histogram are not in its text.
                    if path.extension().is_none_or(|it| it != "hlog") {
                        found.extend(
                            wrong(&result, &whole, &excerpt).into_iter().map(|it| format!("{name}: {it}")),
                        );
                    }
                }
                Ok(Err(_)) => {}
                Err(_) => found.push(format!("{name}: a panic")),
            }
        }
    }
    assert!(found.is_empty(), "{} of {all}:\n{}", found.len(), found.join("\n"));
    assert!(readable > all / 4, "{readable} of {all}: the changes leave nothing to read");
}
