//! Finds the rhythm of a thread in the ends of its sleeps.

use super::super::calls;
use std::collections::BTreeMap;
use whylate_core::recording::{Activation, Site};

/// The end of a sleep for which the thread may have waited for work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub(super) due_ns: u64,
    pub(super) slept_ns: u64,
    pub(super) site: Site,
    /// The thread that ended it; 0: no thread.
    pub(super) waker: u32,
}

/// A rhythm.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    /// Where the thread waits for its work.
    pub(super) site: Site,
    pub(super) period_ns: u64,
    /// Its timer expires at moments that the thread computes, and not after a time that begins when it sleeps.
    pub(super) is_exact: bool,
    /// It sleeps in that place also in the middle of its work.
    pub(super) is_mixed: bool,
    /// Shorter sleeps in that place are in the middle of its work.
    pub(super) least_sleep_ns: u64,
    pub(super) is_sure: bool,
    /// Where it might wait for its work instead.
    pub(super) others: Vec<Site>,
}

/// Ends of sleeps that follow each other by one period.
#[derive(Clone, Debug)]
struct Chain {
    site: Site,
    period_ns: u64,
    jitter_ns: u64,
    /// How far the ends of its sleeps are from each other.
    lengths_ns: Vec<u64>,
    slept_ns: u64,
    /// The sleeps in the same place that are not part of the rhythm.
    other_ns: Vec<u64>,
    /// Whether another chain of sleeps repeats as exactly.
    is_ambiguous: bool,
    hits: usize,
    /// When its sleeps ended.
    has: Vec<u64>,
}

/// The fewest ends of sleeps that make a rhythm.
const HITS_MIN: usize = 5;
/// The least share of periods that have an end of a sleep, and the least share of the whole time that is in the rhythm.
const SHARE_MIN: f64 = 0.75;
/// A period spans at most this many ends of sleeps.
const LAGS: usize = 4;
/// The rhythm starts anew after this many periods without an end of a sleep.
const PERIODS_LEFT_OUT: u64 = 3;
/// The most candidates for the period.
const CANDIDATES: usize = 6;
/// Moments that a thread computes differ from the grid by at most this, or by at most this part of the period.
const EXACT_NS: u64 = 1_000;
const EXACT_PART: u64 = 2_000;
/// A thread waits for its work in the place where its sleeps are this many times as long as elsewhere.
const LONGER: u64 = 2;

/// Periods without a sleep are those of late cycles if there are this many ordinary ones for each of them.
const PLAIN_PER_LATE: u64 = 2;

fn tolerance(period_ns: u64) -> u64 {
    (period_ns / 16).max(30_000).min(period_ns / 4)
}

impl Found {
    /// Whether the end of a sleep there begins a period, after one that began at `since_ns`.
    pub(super) fn is_release(&self, site: Site, due_ns: u64, slept_ns: u64, since_ns: Option<u64>) -> bool {
        if site != self.site {
            return false;
        }
        match since_ns {
            _ if !self.is_mixed => true,
            Some(since_ns) if self.is_exact => {
                due_ns.saturating_sub(since_ns) + tolerance(self.period_ns) >= self.period_ns
            }
            _ => slept_ns >= self.least_sleep_ns,
        }
    }

    /// Whether a sleep there ends an activation, before it is known how it ends.
    pub(super) fn ends_at(&self, site: Site) -> bool {
        site == self.site && !self.is_mixed
    }

    /// The first moment after `from_ns` at which a period may begin, if one began at `known_ns`; `from_ns` without exact periods.
    pub(super) fn next_release_ns(&self, known_ns: u64, from_ns: u64) -> u64 {
        if !self.is_exact || known_ns == 0 || known_ns > from_ns {
            return from_ns;
        }
        let periods = (from_ns - known_ns) / self.period_ns + 1;
        let next_ns = known_ns + periods * self.period_ns;
        next_ns.saturating_sub(tolerance(self.period_ns)).max(from_ns)
    }

    /// The activation with the number of periods of a timer that began before its end. After a sleep for a time, the next
    /// period begins later instead.
    pub(super) fn with_later_periods(&self, mut activation: Activation) -> Activation {
        if self.is_exact && (calls::is_until(&self.site) || !calls::is_sleep(&self.site)) {
            let after_ns = activation.end_ns().saturating_sub(activation.due_ns + 1);
            activation.later_periods = after_ns / self.period_ns.max(1);
        }
        activation
    }

    /// Whether it is what the other rhythm looks like while many of its periods have no sleep of their own.
    pub(super) fn leaves_out_periods_of(&self, known: &Self) -> bool {
        let is_same = self.is_mixed && !known.is_mixed && self.site == known.site;
        let is_exact = self.is_exact && known.is_exact;
        is_same && is_exact && known.periods_between(0, self.period_ns).is_some_and(|periods| periods > 1)
    }

    /// How many periods lie between two moments; `None` if it is not a whole number.
    pub(super) fn periods_between(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let between_ns = to_ns.checked_sub(from_ns)?;
        let periods = (between_ns + self.period_ns / 2) / self.period_ns;
        let off_ns = between_ns.abs_diff(periods * self.period_ns);
        (periods > 0 && off_ns <= tolerance(self.period_ns)).then_some(periods)
    }
}

/// The rhythm in the ends of sleeps, which are in the order of time; with the given period, if there is one.
pub(super) fn find(wakes: &[Wake], wanted_ns: Option<u64>) -> Option<Found> {
    let mut sites: BTreeMap<Site, Vec<Wake>> = BTreeMap::new();
    for wake in wakes {
        sites.entry(wake.site).or_default().push(*wake);
    }
    let mut chains: Vec<Chain> = sites.values().filter_map(|of_site| chain(of_site, wanted_ns)).collect();
    chains.sort_by_key(|chain| std::cmp::Reverse(chain.slept_ns));
    let exact: Vec<&Chain> = chains.iter().filter(|chain| chain.is_exact()).collect();
    let best = exact.first().copied().or(chains.first())?;
    let others = chains.iter().filter(|other| other.site != best.site && other.hits * 2 > best.hits);
    let rivals: Vec<&Chain> = others
        .filter(
            |other| if best.is_exact() { other.is_exact() } else { other.slept_ns * LONGER > best.slept_ns },
        )
        .collect();
    let is_sleep = calls::is_sleep(&best.site) || best.site.call < 0;
    let is_mixed = is_sleep && !best.other_ns.is_empty();
    Some(Found {
        site: best.site,
        period_ns: best.period_ns,
        is_exact: best.is_exact(),
        is_mixed,
        least_sleep_ns: least_sleep(best),
        is_sure: rivals.is_empty()
            && !(is_mixed && (best.is_ambiguous || !best.is_exact() || has_phases(&sites[&best.site]))),
        others: rivals.iter().map(|rival| rival.site).collect(),
    })
}

/// Whether most sleeps in one place end one after another at the same distance, and the others at multiples of it: each may begin
/// work, or one of several phases of a longer cycle.
fn has_phases(wakes: &[Wake]) -> bool {
    let between_ns = || wakes.windows(2).map(|pair| pair[1].due_ns.saturating_sub(pair[0].due_ns));
    let Some(least_ns) = between_ns().min().filter(|least_ns| *least_ns > 0) else { return false };
    let count = |ns: u64| (ns + least_ns / 2) / least_ns;
    let ones = between_ns().filter(|ns| count(*ns) == 1).count();
    ones * 2 > wakes.len() && between_ns().all(|ns| is_exact(ns.abs_diff(count(ns) * least_ns), least_ns))
}

/// Whether each of these wake-ups must be the start of work: all sleeps are in one place and of one kind.
pub(super) fn is_simple(wakes: &[Wake]) -> bool {
    let mut counts: BTreeMap<Site, (usize, u64, u64)> = BTreeMap::new();
    for wake in wakes {
        let (count, least_ns, most_ns) = counts.entry(wake.site).or_insert((0, u64::MAX, 0));
        *count += 1;
        *least_ns = (*least_ns).min(wake.slept_ns);
        *most_ns = (*most_ns).max(wake.slept_ns);
    }
    let repeated: Vec<_> = counts.iter().filter(|(_, (count, ..))| *count > 1).collect();
    match repeated[..] {
        [] => true,
        [(site, (_, least_ns, most_ns))] => !calls::is_sleep(site) || *most_ns <= *least_ns * 2,
        _ => false,
    }
}

/// How far wake-ups usually are from each other: half of them are nearer.
pub(super) fn usual_distance_ns(wakes: &[Wake]) -> u64 {
    let between = wakes.windows(2).map(|pair| pair[1].due_ns.saturating_sub(pair[0].due_ns));
    median(between.collect()).unwrap_or_default()
}

/// Where the thread sleeps most often.
pub(super) fn usual(wakes: &[Wake]) -> Option<Site> {
    let mut counts: BTreeMap<Site, usize> = BTreeMap::new();
    for wake in wakes {
        *counts.entry(wake.site).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 1).max_by_key(|(_, count)| *count).map(|(site, _)| site)
}

/// At least this many sleeps, all but a few of which are longer or shorter than both of their neighbours, are of two kinds. By
/// chance this happens once in ten million times.
const ALTERNATE_MIN: usize = 40;
const ALTERNATE_EXCEPT: usize = 2;

/// How many sleeps may be in the middle of the work although all are in one place, and how long the longest response would be
/// then: a thread may wait there for its work, and then for another thread that helps with it.
pub(super) fn of_two_kinds(wakes: &[Wake]) -> (u64, u64) {
    let (mut sleeps, mut longest_ns) = (0, 0);
    let end_before = |wake: &Wake| wake.due_ns.saturating_sub(wake.slept_ns);
    let has_one_kind = |wake: &Wake| calls::is_sleep(&wake.site) || calls::waits_for_several(&wake.site);
    let by = |wake: &Wake| wakes.iter().filter(|it| it.site == wake.site && it.waker == wake.waker).count();
    // The thread that wakes it most often brings the work.
    let most =
        wakes.iter().filter(|wake| wake.waker > 0 && !has_one_kind(wake)).map(by).max().unwrap_or_default();
    for (nth, first) in
        wakes.iter().enumerate().filter(|(_, first)| !has_one_kind(first) && by(first) == most)
    {
        let is_again = |wake: &&Wake| wake.site == first.site && wake.waker == first.waker;
        let within = wakes[nth + 1..].iter().take_while(|wake| !is_again(wake)).count();
        if let Some(again) = wakes.get(nth + 1 + within).filter(|_| within > 0 && first.waker > 0) {
            sleeps += within as u64;
            longest_ns = longest_ns.max(end_before(again).saturating_sub(first.due_ns));
        }
    }
    let turns = wakes.windows(3).filter(|three| {
        let [before, it, after] = [&three[0], &three[1], &three[2]].map(|wake| wake.slept_ns);
        (it > before) == (it > after)
    });
    let is_one_place = wakes.iter().all(|wake| wake.site == wakes[0].site && !calls::is_sleep(&wake.site));
    if wakes.len() >= ALTERNATE_MIN && is_one_place && turns.count() + ALTERNATE_EXCEPT + 2 >= wakes.len() {
        sleeps = sleeps.max(wakes.len() as u64 / 2);
        let pairs = wakes.windows(3).filter(|three| three[1].slept_ns < three[2].slept_ns);
        let took = pairs.map(|three| end_before(&three[2]).saturating_sub(three[0].due_ns));
        longest_ns = longest_ns.max(took.max().unwrap_or_default());
    }
    (sleeps, longest_ns)
}

/// Sleeps shorter than this are in the middle of the work.
fn least_sleep(chain: &Chain) -> u64 {
    let other_ns = median(chain.other_ns.clone()).unwrap_or_default();
    ((chain.slept_ns as f64) * (other_ns as f64)).sqrt() as u64
}

impl Chain {
    fn is_exact(&self) -> bool {
        is_exact(self.jitter_ns, self.period_ns)
    }
}

fn is_exact(jitter_ns: u64, period_ns: u64) -> bool {
    jitter_ns <= EXACT_NS.max(period_ns / EXACT_PART)
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// The rhythm in the ends of the sleeps in one place.
fn chain(wakes: &[Wake], wanted_ns: Option<u64>) -> Option<Chain> {
    if wakes.len() < HITS_MIN {
        return None;
    }
    let mut periods = candidates(wakes);
    if let Some(wanted_ns) = wanted_ns {
        periods.retain(|period_ns| period_ns.abs_diff(wanted_ns) <= wanted_ns / 8);
        periods.push(wanted_ns);
    }
    periods.sort_unstable();
    periods.into_iter().find_map(|period_ns| {
        // Start from each of the first ones: any of several sleeps in one period may be the rhythm.
        let mut all: Vec<Chain> = Vec::new();
        for first in 0..wakes.len().min(LAGS) {
            if all.iter().any(|known| known.has.contains(&wakes[first].due_ns)) {
                continue;
            }
            all.extend(follow_closely(wakes, first, period_ns));
        }
        all.sort_by_key(|chain| (!chain.is_exact(), std::cmp::Reverse(chain.slept_ns)));
        let exact = all.iter().filter(|chain| chain.is_exact()).count();
        let is_ambiguous = if exact > 0 { exact > 1 } else { all.len() > 1 };
        let best = all.into_iter().next()?;
        Some(Chain { is_ambiguous: is_ambiguous && !best.other_ns.is_empty(), ..best })
    })
}

/// The differences between ends of sleeps that come most often.
fn candidates(wakes: &[Wake]) -> Vec<u64> {
    let mut all: Vec<u64> = (1..=LAGS)
        .flat_map(|lag| {
            wakes.windows(lag + 1).map(move |pair| pair[lag].due_ns.saturating_sub(pair[0].due_ns))
        })
        .filter(|difference_ns| *difference_ns > 0)
        .collect();
    all.sort_unstable();
    let mut clusters: Vec<(usize, u64)> = Vec::new();
    let mut first = 0;
    while first < all.len() {
        let width_ns = (all[first] / 16).max(40_000);
        let end = all.partition_point(|it| *it <= all[first] + width_ns);
        clusters.push((end - first, all[(first + end) / 2]));
        first = end.max(first + 1);
    }
    clusters.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    clusters.into_iter().take(CANDIDATES).map(|(_, period_ns)| period_ns).collect()
}

/// Follows the ends of sleeps from one of them by a period, which is known only roughly.
fn follow_closely(wakes: &[Wake], first: usize, period_ns: u64) -> Option<Chain> {
    let roughly = follow(wakes, first, period_ns)?;
    let closely_ns = median(roughly.lengths_ns.clone()).filter(|it| *it != period_ns);
    closely_ns.and_then(|period_ns| follow(wakes, first, period_ns)).or(Some(roughly))
}

/// Follows the ends of sleeps from one of them by a period.
fn follow(wakes: &[Wake], first: usize, period_ns: u64) -> Option<Chain> {
    let tolerance_ns = tolerance(period_ns);
    let mut anchor_ns = wakes[first].due_ns;
    let (mut hits, mut periods, mut breaks) = (1usize, 0u64, 0usize);
    // Ends of sleeps one period after the one before; ends after periods in which it was awake, and these periods.
    let (mut plain, mut late, mut awake) = (0u64, 0u64, 0u64);
    let (mut off_ns, mut lengths_ns) = (Vec::new(), Vec::new());
    let mut slept_ns = vec![wakes[first].slept_ns];
    let mut has = vec![wakes[first].due_ns];
    let mut other_ns: Vec<u64> = Vec::new();
    let mut in_rhythm_ns = 0;
    for (nth, wake) in wakes.iter().enumerate().skip(first + 1) {
        let between_ns = wake.due_ns.saturating_sub(anchor_ns);
        let count = (between_ns + period_ns / 2) / period_ns;
        let off = between_ns.abs_diff(count * period_ns);
        if count >= 1 && off <= tolerance_ns {
            hits += 1;
            has.push(wake.due_ns);
            periods += count;
            let awake_for = count.saturating_sub(1 + wake.slept_ns / period_ns);
            plain += u64::from(count == 1);
            late += u64::from(awake_for > 0);
            awake += awake_for;
            off_ns.push(off);
            lengths_ns.push(between_ns / count);
            slept_ns.push(wake.slept_ns);
            in_rhythm_ns += between_ns;
            anchor_ns = wake.due_ns;
            continue;
        }
        // After a cycle that was late the rhythm may begin anew; a sleep in the middle of the next one does not end it.
        let next = wakes.get(nth + 1..).unwrap_or_default().iter().take(LAGS);
        let goes_on = next.into_iter().any(|next| {
            let between_ns = next.due_ns.saturating_sub(anchor_ns);
            let count = (between_ns + period_ns / 2) / period_ns;
            (1..=PERIODS_LEFT_OUT).contains(&count) && between_ns.abs_diff(count * period_ns) <= tolerance_ns
        });
        if between_ns > period_ns && !goes_on {
            breaks += 1;
            periods += 1;
            slept_ns.push(wake.slept_ns);
            anchor_ns = wake.due_ns;
        } else {
            other_ns.push(wake.slept_ns);
        }
    }
    let slept_ns = median(slept_ns).unwrap_or_default();
    let jitter_ns = median(off_ns).unwrap_or(u64::MAX);
    // A sleep as long as the others belongs to a shorter cycle, and with many of them this is no period. Only a thread that
    // sleeps for a time may also do so in the middle of its work.
    let (all, is_exact) = (other_ns.len(), is_exact(jitter_ns, period_ns));
    let shorter_ns: Vec<u64> =
        other_ns.iter().copied().filter(|other_ns| *other_ns * 3 < slept_ns * 2).collect();
    if (all - shorter_ns.len()) * 4 > hits && !(is_exact && calls::is_sleep(&wakes[first].site)) {
        return None;
    }
    if !is_exact {
        other_ns = shorter_ns;
    }
    let span_ns = wakes.last()?.due_ns - wakes[0].due_ns;
    // A thread that was throttled or late did not sleep at the moments that it missed.
    if plain >= PLAIN_PER_LATE * late {
        periods -= awake;
    }
    let has_all =
        hits as f64 >= SHARE_MIN * (periods + 1) as f64 && in_rhythm_ns as f64 >= SHARE_MIN * span_ns as f64;
    (hits >= HITS_MIN && has_all && breaks * 8 <= hits).then(|| Chain {
        site: wakes[first].site,
        period_ns,
        lengths_ns,
        jitter_ns,
        slept_ns,
        other_ns,
        is_ambiguous: false,
        hits,
        has,
    })
}
