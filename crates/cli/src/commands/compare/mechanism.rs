//! A mechanism that makes maxima of a known size and acts on one side alone: one file of each side shows it.

use super::ComparedSide;
use std::collections::BTreeMap;
use whylate_core::figure::nanoseconds;
use whylate_core::plan::Statistic;
use whylate_core::result::{CpuResult, Outcome, RunContrast};

/// Fewer CPUs with a maximum of that size may be chance.
const CPUS_MIN: usize = 2;
/// On the side without it, all maxima are at least this factor smaller.
const TIMES_SMALLER: u64 = 10;

/// The largest value of each CPU and its samples.
type Maxima = BTreeMap<u32, (u64, u64)>;

/// Records the mechanism in the contrasts of `side`, and says why; `None` if no mechanism acts on one side alone.
pub(super) fn of_one_side(
    baseline: &ComparedSide,
    side: &ComparedSide,
    contrasts: &mut [RunContrast],
) -> Option<String> {
    let (before, after) = (maxima(baseline)?, maxima(side)?);
    let (has, lacks, outcome, name) = match (shown(&before, &after), shown(&after, &before)) {
        (None, Some(found)) => (found, &before, Outcome::Worse, &side.name),
        (Some(found), None) => (found, &after, Outcome::Better, &baseline.name),
        _ => return None,
    };
    let (cpus, what) = has;
    let decided = contrasts.iter_mut().map(|it| (&mut it.comparison, &it.of_cell));
    for (comparison, of_cell) in
        decided.filter(|(it, _)| it.cell == side.name && it.statistic == Statistic::Max)
    {
        let is_of_it = cpus.iter().any(|cpu| *of_cell == format!("CPU {cpu}"));
        if comparison.outcome == Outcome::CannotTell && (comparison.primary || is_of_it) {
            comparison.outcome = outcome;
        }
    }
    let names = cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let most = lacks.values().map(|(max_ns, _)| *max_ns).max().unwrap_or(0);
    Some(format!(
        "in {name}, maxima of CPU or thread {names} fit a known mechanism; the other side has no maximum above {}. Mechanism: {what}",
        nanoseconds(most)
    ))
}

/// The CPUs on which a mechanism acts that is absent in `without`, which measured at least as long.
fn shown(with: &Maxima, without: &Maxima) -> Option<(Vec<u32>, &'static str)> {
    let mut mechanisms = with.values().filter_map(|(max_ns, _)| whylate_import::mechanism(*max_ns));
    mechanisms.find_map(|(from, to, what)| {
        let is_of_it = |(cpu, (max_ns, samples)): &(&u32, &(u64, u64))| {
            let as_long = without.get(cpu).is_some_and(|(_, others)| *others > 0 && others >= samples);
            (from..=to).contains(max_ns) && as_long
        };
        let cpus: Vec<u32> = with.iter().filter(is_of_it).map(|(cpu, _)| *cpu).collect();
        let is_absent = without.values().all(|(max_ns, _)| max_ns.saturating_mul(TIMES_SMALLER) < from);
        (cpus.len() >= CPUS_MIN && is_absent).then_some((cpus, what))
    })
}

/// A side that is one file of one series; several files are judged by their differences.
fn maxima(side: &ComparedSide) -> Option<Maxima> {
    let [part] = &side.parts[..] else { return None };
    let (_, measure) = part.foreign()?;
    let cpus = &measure.probe.cpus;
    let is_one_series = cpus.windows(2).all(|pair| pair[0].series == pair[1].series);
    let largest = |cpu: &CpuResult| Some((cpu.cpu.0, (cpu.largest_ns()?, cpu.samples)));
    is_one_series.then(|| cpus.iter().filter_map(largest).collect())
}
