//! Makes the corpus of traces with planted causes anew: boots the machines, plants, records, and writes each trace,
//! cut to the moment that matters, together with the right answer.
//!
//! The answer comes from the planters' own logs and from the table of what was planted, never from what explains traces.

mod answer;
mod recipe;
mod record;
mod text;
mod trace_dat;

use crate::error::LabError;
use crate::guest::Guest;
use crate::host;
use crate::machine::{Kernel, Machine};
use crate::plant::Stall;
use crate::{Lab, machine::Profile};
use flate2::{Compression, write::GzEncoder};
use recipe::{RECIPES, Recipe, Recording};
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// The machine of a recording, and its name in the names of files.
const KERNELS: [Kernel; 2] = Kernel::NEEDED;
fn word(kernel: Kernel) -> &'static str {
    if kernel.is_realtime() { "rt" } else { "plain" }
}
/// What is kept before and after a planted cause.
const BEFORE_NS: u64 = 8_000_000;
const AFTER_NS: u64 = 4_000_000;
/// The same if a host may stop one CPU for longer than the other.
const AFTER_OF_THREADS_NS: u64 = 20_000_000;
/// How often a recording that a busy host spoiled is tried.
const ATTEMPTS: usize = 4;

/// Records what the names choose (parts of `MACHINE KERNEL/RECIPE/RECORDING`; all without names) into `folder`.
///
/// # Errors
/// When a machine cannot be booted, or when something could not be planted or recorded.
pub fn regenerate(lab: &Lab, folder: &Path, names: &[&str], say: &dyn Fn(&str)) -> Result<usize, LabError> {
    host::create_folder(folder)?;
    let mut written = 0;
    for profile in [Profile::Counted, Profile::Threads] {
        for kernel in KERNELS {
            let jobs = jobs(profile, kernel, names);
            if !jobs.is_empty() {
                written += on_machine(lab, &Machine::new(profile, kernel), &jobs, folder, say)?;
            }
        }
    }
    Ok(written)
}

/// Recordings of a machine; those of functions together, because switching the tracer takes long.
fn jobs(profile: Profile, kernel: Kernel, names: &[&str]) -> Vec<(&'static Recipe, Recording, u64)> {
    let mut jobs = Vec::new();
    for (place, recording) in Recording::ALL.into_iter().enumerate() {
        for recipe in RECIPES.iter().filter(|recipe| recipe.profile == profile) {
            let label = format!("{} {}/{}/{}", profile.name(), word(kernel), recipe.name, recording.name());
            if names.is_empty() || names.iter().any(|name| label.contains(name)) {
                jobs.push((recipe, recording, recipe.lengths_us[place]));
            }
        }
    }
    jobs
}

fn on_machine(
    lab: &Lab,
    machine: &Machine,
    jobs: &[(&Recipe, Recording, u64)],
    folder: &Path,
    say: &dyn Fn(&str),
) -> Result<usize, LabError> {
    say(&format!("{}: {} recordings", machine.label(), jobs.len()));
    let mut guest = lab.boot(machine)?;
    let prepared = record::prepare(&mut guest, machine.kernel)?;
    let kernel = trace_dat::Kernel::read(&prepared.files, guest.kernel_version())?;
    let mut written = 0;
    for (recipe, recording, length_us) in jobs {
        let name = name_of(recipe, machine.kernel, *recording);
        let made = retried(&mut guest, &kernel, (recipe, *recording, *length_us), &name, say)?;
        for (ending, trace) in made.traces {
            let path = folder.join(format!("{name}.{ending}.gz"));
            host::write(&path, compressed(&trace).map_err(LabError::file("compress", &path))?)?;
            host::write(&path.with_added_extension("expected.toml"), &made.answer)?;
            written += 1;
        }
        say(&format!("{name}: recorded with {length_us} us planted"));
    }
    Ok(written)
}

/// The start of the names of a recording's files.
fn name_of(recipe: &Recipe, kernel: Kernel, recording: Recording) -> String {
    format!("{}_{}_{}", recipe.name, word(kernel), recording.name())
}

struct Made {
    /// Ending of the name, and content.
    traces: Vec<(&'static str, Vec<u8>)>,
    answer: String,
}

/// Records until the planter's log shows that it is what was asked for.
fn retried(
    guest: &mut Guest,
    kernel: &trace_dat::Kernel,
    (recipe, recording, length_us): (&Recipe, Recording, u64),
    name: &str,
    say: &dyn Fn(&str),
) -> Result<Made, LabError> {
    for _ in 0..ATTEMPTS {
        let recorded = record::record(guest, recipe, recording, length_us)?;
        let stall = planted(recipe, &recorded.stalls, length_us);
        if recipe.kind.is_some() && stall.is_none() {
            say(&format!(
                "{name}: recorded again, because the stalls differ from the requested ones: {:?}",
                recorded.stalls
            ));
            continue;
        }
        let window = window(recipe, stall);
        let files = &recorded.output.files;
        let commands = host::read_text(&files.join("commands"))?;
        let pages = record::pages(files, recipe.profile.cpus())?;
        if !trace_dat::holds(&pages, &window) {
            let text = format!("{name}: {window:?} is not in {}", trace_dat::extent(&pages));
            return Err(LabError::Form { what: "the ring buffer", text });
        }
        let mut traces = vec![kernel.trace_dat(&pages, commands.as_bytes(), &window)];
        if recording == Recording::Events {
            let text = host::read_text(&files.join("trace"))?;
            traces.push(text::cut(&text, &window).into_bytes());
        }
        let traces = recording.endings().iter().copied().zip(traces).collect();
        let answer = answer::text(recipe, recording, guest.kernel_version(), stall, &recorded.irq_thread);
        return Ok(Made { traces, answer });
    }
    Err(LabError::Form {
        what: "a planter's log",
        text: format!("none of {ATTEMPTS} recordings of {name} has the requested stall"),
    })
}

/// The stall that was asked for: no shorter, and not much longer, as may happen on a busy host.
fn planted<'a>(recipe: &Recipe, stalls: &'a [Stall], length_us: u64) -> Option<&'a Stall> {
    let asked = length_us * 1000;
    let counted = recipe.profile == Profile::Counted;
    let most = if counted { asked + asked / 4 + 5_000_000 } else { asked * 2 };
    let fits = |stall: &&Stall| (asked * 9 / 10..most).contains(&stall.length_ns());
    stalls.iter().filter(fits).max_by_key(|stall| stall.length_ns())
}

/// What is kept of a recording: all of it if nothing was planted.
fn window(recipe: &Recipe, stall: Option<&Stall>) -> Range<u64> {
    let after_ns = if recipe.profile == Profile::Threads { AFTER_OF_THREADS_NS } else { AFTER_NS };
    match stall {
        Some(stall) => stall.begin_ns.saturating_sub(BEFORE_NS)..stall.end_ns + after_ns,
        None => 0..u64::MAX,
    }
}

fn compressed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_recipe_has_a_name_of_its_own_and_each_cause_two_recordings_on_both_kernels() {
        let names: BTreeSet<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
        assert_eq!(names.len(), RECIPES.len());
        let all = [Profile::Counted, Profile::Threads]
            .into_iter()
            .flat_map(|profile| KERNELS.map(|kernel| jobs(profile, kernel, &[]).len()));
        assert_eq!(all.sum::<usize>(), RECIPES.len() * 4);
        assert_eq!(jobs(Profile::Counted, Kernel::Plain, &["plain/irqs-off/events"]).len(), 1);
    }

    #[test]
    fn every_recording_is_in_the_folder_or_its_lack_has_a_reason() {
        let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/traces");
        let readme = std::fs::read_to_string(traces.join("README.md")).unwrap();
        let mut wrong = Vec::new();
        for (recipe, kernel) in RECIPES.iter().flat_map(|recipe| KERNELS.map(|kernel| (recipe, kernel))) {
            for recording in Recording::ALL {
                let name = name_of(recipe, kernel, recording);
                let has_reason = readme.contains(&format!("| `{name}` |"));
                for ending in recording.endings() {
                    let trace = traces.join(format!("planted/{name}.{ending}.gz"));
                    let is_there = trace.is_file() && trace.with_added_extension("expected.toml").is_file();
                    wrong.extend((is_there == has_reason).then(|| format!("{name}.{ending}: {is_there}")));
                }
            }
        }
        assert!(wrong.is_empty(), "neither there nor with a reason, or both: {wrong:#?}");
    }

    #[test]
    fn a_stall_that_the_host_made_longer_is_not_what_was_asked_for() {
        let log = "cause=ipi function=f cpu=1 begin_ns=0 end_ns=900000000 events=1\n\
                   cause=ipi function=f cpu=1 begin_ns=0 end_ns=170000000 events=1\n";
        let stalls = Stall::read(log).unwrap();
        let recipe = RECIPES.iter().find(|recipe| recipe.name == "ipi").unwrap();
        assert_eq!(planted(recipe, &stalls, 150_000), Some(&stalls[1]));
        assert_eq!(planted(recipe, &stalls, 300_000), None);
        assert_eq!(window(recipe, Some(&stalls[1])), 0..190_000_000);
    }
}
