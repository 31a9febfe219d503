//! No cause is claimed without evidence: randomly damaged traces with a known cause may leave it open or name it less surely,
//! but may never name another one surely.
//!
//! In: the traces with an answer in `fixtures/traces`. Damaged: events left out, kinds of events left out, flags cleared, CPUs
//! left out, cut anywhere. A spike of the same task counts where at least half of it lies in what the true cause covers. The test runs a
//! part; all of the 10,000, with the table of `records/`:
//!
//!     WHYLATE_MUTATIONS=10000 WHYLATE_MUTATIONS_SEED=7 cargo test -p whylate-explain --test mutated -- --nocapture

mod damage;
mod lines;
#[path = "../support/mod.rs"]
mod support;
mod truth;

use damage::{Damage, Mutated, Random};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use truth::Truth;
use whylate_core::WarningCode;
use whylate_core::result::{Cause, CauseKind};
use whylate_explain::{Export, Options, TaskChoice, explain, export};
use whylate_testing::{Need, excerpts, skip};
use whylate_trace::parse::{Source, from_source};

/// A cause that is at least this sure may not contradict the truth.
const SURE: f64 = 0.9;
/// How far the share of right answers may be from the confidence that was claimed.
const NEAR: f64 = 0.05;
const SEED: u64 = 20_261_122;

/// How often a confidence was claimed, and how often rightly.
#[derive(Default)]
struct Table {
    /// By hundredths.
    claims: BTreeMap<u32, (u64, u64)>,
    /// By confidence and reason.
    reasons: BTreeMap<(u32, String), (u64, u64)>,
    wrong: Vec<String>,
    open: u64,
    unseen: u64,
}

impl Table {
    fn take(&mut self, truth: &Truth, damage: Damage, cause: &Cause) {
        let Some(confidence) = cause.confidence.filter(|_| cause.kind != CauseKind::Unattributed) else {
            self.open += 1;
            return;
        };
        let hundredths = (confidence * 100.0).round() as u32;
        let right = truth.is_right(cause);
        let reason = cause.evidence.first().cloned().unwrap_or_default();
        for (count, good) in [
            self.claims.entry(hundredths).or_default(),
            self.reasons.entry((hundredths, format!("{}: {reason}", cause.kind))).or_default(),
        ] {
            (*count, *good) = (*count + 1, *good + u64::from(right));
        }
        if !right && confidence >= SURE - 1e-9 {
            self.wrong.push(format!("{}, {damage:?}: {:?} instead of {:?}", truth.name, cause, truth.kinds));
        }
    }

    /// The share of right answers in each band of ten hundredths: band, mean claim, share, number.
    fn bands(&self) -> Vec<(u32, f64, f64, u64)> {
        let mut bands: BTreeMap<u32, (f64, u64, u64)> = BTreeMap::new();
        for (hundredths, (count, good)) in &self.claims {
            let band = bands.entry(hundredths.min(&99) / 10 * 10).or_default();
            band.0 += f64::from(*hundredths) / 100.0 * *count as f64;
            band.1 += count;
            band.2 += good;
        }
        let of = |(band, (claimed, count, good)): (u32, (f64, u64, u64))| {
            (band, claimed / count as f64, good as f64 / count as f64, count)
        };
        bands.into_iter().map(of).collect()
    }

    #[allow(clippy::print_stdout, reason = "the table of the records")]
    fn print(&self) {
        println!("\n| claimed | mean | right | causes |\n|---|--:|--:|--:|");
        for (band, claimed, share, count) in self.bands() {
            println!(
                "| {:.2} to {:.2} | {claimed:.3} | {share:.3} | {count} |",
                f64::from(band) / 100.0,
                f64::from(band + 10) / 100.0
            );
        }
        println!("\nunattributed {}, not seen any more {}\n", self.open, self.unseen);
        for ((hundredths, reason), (count, good)) in &self.reasons {
            println!("{hundredths:3} {good:5} of {count:5} {reason}");
        }
    }
}

/// Explains `count` damaged traces.
fn run(count: usize, seed: u64) -> Table {
    let truths = truth::all();
    assert!(truths.len() > 80, "the corpus is not there: {}", truths.len());
    let mut random = Random(seed);
    let mut table = Table::default();
    for number in 0..count {
        let truth = &truths[number % truths.len()];
        let damage = if number < truths.len() { Damage::None } else { Damage::draw(&mut random) };
        let mut trace = Mutated::new(truth, damage, &mut random);
        let result = explain(&mut trace, &truth.options).expect("memory can be read");
        let spike = result.spikes.iter().find(|spike| truth.is_in(spike));
        match spike {
            Some(spike) => table.take(truth, damage, &spike.cause),
            None => table.unseen += 1,
        }
    }
    table
}

#[test]
fn no_damaged_trace_makes_a_sure_and_wrong_accusation() {
    let table = run(600, SEED);
    assert!(table.wrong.is_empty(), "{} wrong:\n{}", table.wrong.len(), table.wrong.join("\n"));
    let claimed: u64 = table.claims.values().map(|(count, _)| count).sum();
    assert!(claimed > 300, "{claimed} causes: the damage leaves nothing to explain");
}

/// Files of other programs, and damaged ones, may have any times.
#[test]
fn no_times_of_a_file_break_an_explanation() {
    let mut random = Random(SEED);
    for (number, truth) in truth::all().iter().enumerate() {
        for part in [2, 30, 500] {
            let mut trace = Mutated::new(truth, Damage::Times(part), &mut random);
            let result = explain(&mut trace, &truth.options).expect("memory can be read");
            for spike in &result.spikes {
                let end = spike.timeline.iter().fold(spike.expected_ns, |at, segment| {
                    assert_eq!(segment.from_ns, at, "{} ({number})", truth.name);
                    segment.to_ns
                });
                assert!(spike.timeline.is_empty() || end == spike.actual_ns, "{}", truth.name);
            }
            export(&mut trace, &result.spikes, Export::Perfetto).expect("memory can be read");
        }
    }
}

/// Every text below `fixtures/traces` that is small enough to be read a thousand times.
fn texts() -> Vec<(PathBuf, Vec<u8>)> {
    const BYTES_MAX: u64 = 96 << 10;
    fn collect(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
        let entries = std::fs::read_dir(folder).expect("a folder of traces").flatten();
        for path in entries.map(|entry| entry.path()) {
            if path.is_dir() {
                collect(&path, found);
            } else if path.metadata().is_ok_and(|data| data.len() < BYTES_MAX) {
                let bytes = std::fs::read(&path).expect("a trace");
                let is_text = !bytes.contains(&0) && !path.to_string_lossy().ends_with(".toml");
                found.extend(is_text.then_some((path, bytes)));
            }
        }
    }
    let mut found = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces"), &mut found);
    found.sort();
    found
}

/// Lines in another order, duplicated, or shifted: everything readable is explained without a gap.
#[test]
fn no_order_of_lines_breaks_an_explanation() {
    let texts = texts();
    assert!(texts.len() > 50, "the corpus is not there: {}", texts.len());
    let count = std::env::var("WHYLATE_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    let (mut random, mut explained) = (Random(SEED), 0);
    for number in 0..count {
        let (path, text) = &texts[number % texts.len()];
        let text = lines::mutated(text, &mut random);
        let what = || format!("{} ({number})", path.display());
        let source = Source::memory("mutated", text.clone()).expect("memory can be read");
        let Ok(mut reader) = from_source(source) else { continue };
        for options in [Options::default(), Options { threshold_ns: Some(1_000), ..Options::default() }] {
            let Ok(result) = explain(reader.as_mut(), &options) else { continue };
            explained += result.spikes.len();
            for spike in &result.spikes {
                let end = spike.timeline.iter().fold(spike.expected_ns, |at, segment| {
                    assert_eq!(segment.from_ns, at, "{}", what());
                    segment.to_ns
                });
                assert!(spike.timeline.is_empty() || end == spike.actual_ns, "{}", what());
                let shares = std::iter::once(&spike.cause).chain(&spike.also).filter_map(|cause| cause.share);
                assert!(shares.sum::<f64>() <= 1.0 + 1e-6, "{}", what());
            }
            export(reader.as_mut(), &result.spikes, Export::Perfetto).expect("it was read before");
        }
    }
    assert!(explained > count / 4, "{explained} spikes: the mutations leave nothing to explain");
}

/// An accusation of an excerpt that is surer than this must also be one of the whole file.
const SURE_OF_EXCERPT: f64 = 0.6;

/// The accused actors of a text, its largest latency, and the late tasks.
#[derive(Default)]
struct Accused {
    actors: BTreeSet<String>,
    longest_ns: u64,
    tasks: BTreeSet<u32>,
    contradicts_itself: bool,
}

fn accused(text: &[u8], threshold_ns: Option<u64>, task: Option<u32>, sure: f64) -> Option<Accused> {
    let mut reader = from_source(Source::memory("excerpt", text.to_vec()).ok()?).ok()?;
    let task = task.map(TaskChoice::Pid);
    let options = Options { threshold_ns, task, top: 10_000, ..Options::default() };
    let result = explain(reader.as_mut(), &options).ok()?;
    let stated = reader.info().facts.latency_ns.unwrap_or(0);
    let mut accused = Accused { longest_ns: stated, ..Accused::default() };
    // Its lines and its header do not fit together: an excerpt has only one of both.
    accused.contradicts_itself =
        result.warnings.iter().any(|warning| warning.code == WarningCode::ContradictoryTrace);
    for spike in &result.spikes {
        accused.longest_ns = accused.longest_ns.max(spike.latency_ns);
        accused.tasks.extend(spike.pid);
        let causes = std::iter::once(&spike.cause).chain(&spike.also);
        let sure = causes.filter(|cause| cause.confidence.is_some_and(|it| it > sure));
        accused.actors.extend(sure.filter_map(|cause| cause.actor.clone()));
    }
    Some(accused)
}

/// Excerpts of texts, as people post them: an excerpt names no actor surely that the whole file does not name, and no latency
/// longer than those of the whole file. `WHYLATE_MUTATIONS=200` takes that number of excerpts of each.
#[test]
fn excerpts_of_texts_name_no_other_actor() {
    let (mut all, mut explained, mut wrong) = (0u64, 0u64, Vec::new());
    for (number, (path, text)) in texts().iter().enumerate() {
        // Thresholds decide which task is examined, and which latencies count.
        let (Some(least), Some(usual)) = (accused(text, Some(1), None, 0.0), accused(text, None, None, 0.0))
        else {
            continue;
        };
        let known: BTreeSet<String> = least.actors.union(&usual.actors).cloned().collect();
        for seed in 0..excerpts::count(6) {
            let excerpt = excerpts::excerpt(text, seed << 16 | number as u64);
            // Exchanged times and names belong to other events.
            if excerpt.is_damaged {
                continue;
            }
            all += 1;

            let Some(found) = accused(&excerpt.text, None, None, SURE_OF_EXCERPT) else { continue };
            explained += u64::from(!found.actors.is_empty());
            // Another task may be the latest one in it.
            let of_tasks = || found.tasks.iter().filter_map(|pid| accused(text, Some(1), Some(*pid), 0.0));
            let is_other = |actor: &&String| {
                !known.contains(*actor) && !of_tasks().any(|whole| whole.actors.contains(*actor))
            };
            let others: Vec<&String> = found.actors.iter().filter(is_other).collect();
            // The missing lines may be those of a run in between.
            let has_holes = excerpt.changes.contains(&"left out");
            let is_ordered = !excerpt.is_reordered && !excerpt.is_doubled && !has_holes;
            let longest_ns = least.longest_ns.max(usual.longest_ns);
            let is_longer = is_ordered
                && !usual.contradicts_itself
                && found.longest_ns > longest_ns
                && !of_tasks().any(|whole| whole.longest_ns >= found.longest_ns);
            if !others.is_empty() || is_longer {
                let name = path.file_name().unwrap_or_default().display();
                let most = found.longest_ns;
                wrong.push(format!(
                    "{name} {seed} {:?}: {others:?}, {most} ns ({longest_ns})",
                    excerpt.changes
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {all}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(explained > all / 8, "{explained} of {all} name an actor");
}

/// The number and the seed come from the environment: grades that were set with one seed must hold for others.
#[test]
#[allow(clippy::print_stderr, reason = "says why it does nothing")]
fn as_many_as_asked_for_and_the_grades_are_calibrated() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let Some(count) = number("WHYLATE_MUTATIONS") else {
        skip(Need::Variable("WHYLATE_MUTATIONS=10000 (minutes)"), "set WHYLATE_MUTATIONS=10000 (minutes)");
        return;
    };
    let table = run(count as usize, number("WHYLATE_MUTATIONS_SEED").unwrap_or(SEED + 1));
    table.print();
    assert!(table.wrong.is_empty(), "{} wrong:\n{}", table.wrong.len(), table.wrong.join("\n"));
    for (band, claimed, share, count) in table.bands().into_iter().filter(|(.., count)| *count >= 100) {
        assert!(
            (claimed - share).abs() <= NEAR,
            "band {band}: claimed {claimed:.3}, right {share:.3} of {count}"
        );
    }
}
