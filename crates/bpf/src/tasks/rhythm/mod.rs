//! Where an activation begins and ends, decided from the rhythm of the thread.
//!
//! The records show every sleep in which a thread may have waited for work. A thread with a rhythm waits for its work in one
//! place: the ends of its sleeps there repeat with a period, like the expiries of a timer or regular arrivals. One activation
//! lasts from such an end to the next sleep in that place, and every other sleep is in the middle of the work. A thread
//! without a rhythm has one activation from each sleep to the next.
//!
//! Undecided sleeps are counted as doubts, with the length that a response would have if they were in the middle of the work.

mod find;

use super::build::Last;
use super::calls;
use find::{Found, Wake, find};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use whylate_core::recording::{Activation, Divided, Doing, Site, Stage, Wait, Waker};

/// The most ends of sleeps from which a rhythm is found.
const WAKES_MAX: usize = 48;
/// The first decision comes after this many activations or this time; earlier activations are held back until then.
const HELD_MAX: usize = 24;
const HELD_NS: u64 = 1_000_000_000;
/// A decision is looked at again after this many activations.
const DECIDED_FOR: u32 = 32;
/// A thread loses its rhythm when it does not return to its place for this many periods, and for at least a second.
const PERIODS_MAX: u64 = 20;
/// Fewer additional wake-ups than one in this number of periods are jitter.
const EXTRA_PART: u64 = 16;
/// A wake-up that is further than this part of a period from its grid does not fit; the grid begins anew after this
/// number of periods without one that fits.
const OFF_PERIOD_PART: u64 = 4;
const GRID_PERIODS: u64 = 4;
/// A sleep that is longer than a period by this part of it is not only the wait for the next period.
const LONG_PART: u64 = 16;
/// Wake-ups are close if they are nearer than a period by this part of it.
const CLOSE_PART: u64 = 8;
/// Fewer sleeps until a moment of the timer show no period: a program may make one of them at its start.
const TIMER_SLEPT_LEAST: u64 = 3;
/// The same time for a new thread, which may start slowly.
const HELD_AT_START_NS: u64 = 3_000_000_000;
/// The most places whose bounds are kept.
const SITES_MAX: usize = 32;
/// Where more threads are known, those that have ended are forgotten.
const PARTS_MAX: usize = 4_096;

/// How activations are found without marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// By the rhythm of each thread, if it has one.
    #[default]
    ByRhythm,
    /// One for each period, even if the rhythm is uncertain; with the period if it is given.
    PerPeriod(Option<u64>),
    /// One from each wake-up to the next sleep.
    PerWakeup,
}

/// Sleeps of a thread of which it is not known whether they were in the middle of its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    pub sleeps: u64,
    /// The longest response, if they were.
    pub longest_ns: u64,
    /// The system calls.
    pub calls: BTreeSet<String>,
}

/// The rhythms of all threads.
#[derive(Default)]
pub(super) struct Rhythms {
    by: Activations,
    /// The places of sleeps are not known: each wake-up begins an activation, and the rhythm only shows doubts. Joined parts would
    /// say that a response took longer than it did.
    are_places_unknown: bool,
    threads: BTreeMap<u32, ThreadRhythm>,
    /// Doubts of threads that are gone.
    gone: Vec<(u32, Doubt)>,
    /// Activations that were in progress when something was not seen.
    pub(super) incomplete: u64,
}

#[derive(Clone, Debug)]
enum Rule {
    /// Not decided yet.
    Learning,
    Wakeups {
        is_sure: bool,
    },
    Period(Found),
}

/// How long a response from the end of a sleep in one place to the next sleep there would be.
#[derive(Clone, Debug, Default)]
struct Bound {
    /// When it began, and the sleeps in other places since then.
    since: Option<(u64, u64)>,
    longest_ns: u64,
    sleeps: u64,
}

/// Ends of sleeps that do not fit the period, in the place where the thread waits for its work.
#[derive(Clone, Copy, Debug, Default)]
struct Grid {
    at_ns: u64,
    off_grid: u64,
    last_end_ns: u64,
    longest_ns: u64,
    sleeps: u64,
}

/// Sleeps until moments of a timer, as those of a thread with a period.
#[derive(Clone, Copy, Debug, Default)]
struct TimerSlept {
    times: u64,
    /// When the last one ended, and the sleeps in other places since then.
    last_ns: u64,
    others: u64,
}

struct ThreadRhythm {
    rule: Rule,
    wakes: VecDeque<Wake>,
    held: Vec<Activation>,
    since_decision: u32,
    /// It is a new thread whose first period has not begun yet.
    is_starting: bool,
    /// Wake-ups that follow each other by less than a period: when the first of them was, and how many came after it.
    close: Option<(u64, u64)>,
    /// The activation whose parts are joined.
    open: Option<Activation>,
    /// When the activation began of which the end was not seen.
    cut_ns: Option<u64>,
    /// When the last period began.
    release_ns: u64,
    bounds: BTreeMap<Site, Bound>,
    grid: Grid,
    /// What was counted by another rule before its rhythm was found.
    early: Bound,
    /// How many of its sleeps in one place may be in the middle of the work, and the longest response then.
    two_kinds: (u64, u64),
    last_end_ns: Option<u64>,
    timer_slept: TimerSlept,
    /// Where its last sleep began.
    last_site: Site,
    calls: BTreeSet<String>,
}

impl Default for ThreadRhythm {
    fn default() -> Self {
        Self {
            rule: Rule::Learning,
            wakes: VecDeque::new(),
            held: Vec::new(),
            since_decision: 0,
            is_starting: false,
            close: None,
            open: None,
            cut_ns: None,
            release_ns: 0,
            bounds: BTreeMap::new(),
            grid: Grid::default(),
            early: Bound::default(),
            two_kinds: (0, 0),
            last_end_ns: None,
            timer_slept: TimerSlept::default(),
            last_site: Site::default(),
            calls: BTreeSet::new(),
        }
    }
}

impl Rhythms {
    pub(super) fn new(by: Activations) -> Self {
        Self { by, ..Self::default() }
    }

    /// The same where it is not known in which places threads sleep.
    pub(super) fn without_places(by: Activations) -> Self {
        Self { are_places_unknown: true, ..Self::new(by) }
    }

    /// Takes what a thread did from a wake-up to its next sleep; adds the activations that have ended to `ended`.
    pub(super) fn add(&mut self, mut part: Activation, ended: &mut Vec<Activation>) {
        if self.by == Activations::PerWakeup {
            part.is_start = false;
            ended.push(part);
            return;
        }
        let by = self.by;
        let rhythm = self.threads.entry(part.thread.pid).or_default();
        if self.are_places_unknown {
            rhythm.watch(&part, by);
            ended.push(part);
        } else {
            rhythm.add(part, by, ended);
        }
    }

    /// A thread has ended, or is another one now. Returns when the activation began in whose middle it ended.
    pub(super) fn end(&mut self, thread: u32, last: &Last, ended: &mut Vec<Activation>) -> Option<u64> {
        let mut begun_ns = last.part.as_ref().map(|part| part.due_ns);
        if let Some(mut rhythm) = self.threads.remove(&thread) {
            rhythm.flush(self.by, ended);
            // It waited for its last helpers: the end of the program, and of no cycle.
            let is_end = last.part.as_ref().is_some_and(|part| part.joins);
            let has_joined = rhythm.open.take_if(|open| open.joins).is_some();
            if is_end || has_joined {
                begun_ns = None;
            }
            if let Some(open) = rhythm.open.take() {
                if !is_end && last.part.as_ref().is_none_or(|part| rhythm.goes_on(part, &open)) {
                    begun_ns = Some(open.due_ns);
                }
                ended.push(open);
            }
            let cut_ns = rhythm.cut_ns.or(last.gap_from_ns);
            begun_ns = [begun_ns, cut_ns].into_iter().flatten().min();
            self.gone.extend(rhythm.doubt().map(|doubt| (thread, doubt)));
        }
        begun_ns.or(last.gap_from_ns)
    }

    /// Records were lost: what was in progress is not whole.
    pub(super) fn forget_open(&mut self) {
        for rhythm in self.threads.values_mut() {
            let open = rhythm.open.take();
            self.incomplete += u64::from(open.is_some());
            rhythm.cut_ns = open.map(|open| open.due_ns).or(rhythm.cut_ns);
            rhythm.last_end_ns = None;
            rhythm.bounds.values_mut().for_each(|bound| bound.since = None);
        }
    }

    /// Decides the activations that have been held back for long; all of them `at_end`.
    pub(super) fn settle(&mut self, now_ns: u64, at_end: bool, ended: &mut Vec<Activation>) {
        let by = self.by;
        for rhythm in self.threads.values_mut() {
            let is_due = rhythm.held.first().is_some_and(|it| it.due_ns + rhythm.held_for_ns() < now_ns);
            if is_due || at_end {
                rhythm.flush(by, ended);
            }
        }
    }

    /// The activations in progress at the end, with later parts that have not ended either.
    pub(super) fn unended(
        &mut self,
        thread: u32,
        part: Option<Activation>,
        at_ns: u64,
    ) -> Option<Activation> {
        let Some(rhythm) = self.threads.get_mut(&thread) else { return part };
        if part.is_none() {
            rhythm.doubt_last_sleep(at_ns);
        }
        let Some(mut open) = rhythm.open.take() else { return part };
        match part {
            Some(part) if rhythm.is_inside(&part, &open) => {
                join(&mut open, part);
                open.is_unended = true;
                Some(if let Rule::Period(found) = &rhythm.rule {
                    found.with_later_periods(open)
                } else {
                    open
                })
            }
            Some(part) => Some(part),
            None => {
                let Rule::Period(found) = &rhythm.rule else { return Some(open) };
                open = found.with_later_periods(open);
                if open.slept_at != found.site {
                    let cpu = open.stages.last().map_or_else(Default::default, |stage| stage.cpu);
                    let what = Doing::Blocked { wait: inside(&open), waker: Default::default() };
                    open.stages.push(Stage { from_ns: open.end_ns(), to_ns: at_ns, cpu, what });
                    open.is_unended = true;
                }
                Some(open)
            }
        }
    }

    /// The same for a watch that goes on, with activations that have ended and were not handed on.
    pub(super) fn in_progress(
        &mut self,
        thread: u32,
        part: Option<Activation>,
        at_ns: u64,
    ) -> Vec<Activation> {
        let Some(rhythm) = self.threads.get(&thread) else { return part.into_iter().collect() };
        let (mut found, open) = (rhythm.held.clone(), rhythm.open.clone());
        let early = rhythm.early.clone();
        let is_over = |open: &Activation| part.as_ref().is_some_and(|part| !rhythm.is_inside(part, open));
        found.extend(open.clone().filter(is_over));
        found.extend(self.unended(thread, part, at_ns));
        if let Some(rhythm) = self.threads.get_mut(&thread) {
            (rhythm.open, rhythm.early) = (open, early);
        }
        found
    }

    /// The doubts since the last call, by thread.
    pub(super) fn doubts(&mut self) -> Vec<(u32, Doubt)> {
        let mut all = std::mem::take(&mut self.gone);
        all.extend(self.threads.iter_mut().filter_map(|(thread, rhythm)| Some((*thread, rhythm.doubt()?))));
        all
    }

    /// Forgets threads that no longer exist if very many are known.
    pub(super) fn keep(&mut self, is_known: impl Fn(u32) -> bool) {
        if self.threads.len() > PARTS_MAX {
            self.threads.retain(|thread, _| is_known(*thread));
        }
    }
}

impl ThreadRhythm {
    fn add(&mut self, part: Activation, by: Activations, ended: &mut Vec<Activation>) {
        self.note(&part);
        self.is_starting |= part.is_start;
        self.since_decision += 1;
        if matches!(self.rule, Rule::Learning) {
            self.held.push(part);
            let first_ns = self.held[0].due_ns;
            let last_ns = self.last_end_ns.unwrap_or_default();
            if self.held.len() >= HELD_MAX || last_ns.saturating_sub(first_ns) > self.held_for_ns() {
                self.flush(by, ended);
            }
            return;
        }
        if self.since_decision >= DECIDED_FOR {
            self.decide(by);
        }
        self.take(part, ended);
    }

    fn held_for_ns(&self) -> u64 {
        if self.is_starting { HELD_AT_START_NS } else { HELD_NS }
    }

    /// Looks only for the rhythm: how many wake-ups there are in a period, and which do not fit it.
    fn watch(&mut self, part: &Activation, by: Activations) {
        self.note(part);
        self.since_decision += 1;
        let is_known = !matches!(self.rule, Rule::Learning);
        if is_known && part.gap.is_none() {
            self.look_between_periods(self.wakes.len().saturating_sub(1));
        }
        let decided_for = if matches!(self.rule, Rule::Learning) { HELD_MAX as u32 } else { DECIDED_FOR };
        if self.since_decision >= decided_for {
            self.decide(by);
            if !is_known {
                (0..self.wakes.len()).for_each(|nth| self.look_between_periods(nth));
            }
            self.count_extra();
        }
    }

    /// A wake-up that does not fit the period may be the end of a sleep in the middle of the work, or come late. `nth` is its place
    /// among the known wake-ups.
    fn look_between_periods(&mut self, nth: usize) {
        let period_ns = match &self.rule {
            Rule::Period(found) => found.period_ns,
            // Most wake-ups begin a response even if they follow no period.
            Rule::Wakeups { .. } => find::usual_distance_ns(self.wakes.make_contiguous()),
            Rule::Learning => return,
        };
        let period_ns = period_ns.max(1);
        let before = nth.checked_sub(1).and_then(|nth| self.wakes.get(nth));
        let Some((before, wake)) = before.zip(self.wakes.get(nth)) else { return };
        let end_ns = match self.wakes.get(nth + 1) {
            Some(after) => after.due_ns.saturating_sub(after.slept_ns),
            None => self.last_end_ns.unwrap_or(wake.due_ns),
        };
        let since_ns = wake.due_ns.saturating_sub(self.grid.at_ns);
        let after_ns = since_ns % period_ns;
        let fits = after_ns.min(period_ns - after_ns) <= period_ns / OFF_PERIOD_PART;
        let is_on_grid = fits || self.grid.at_ns == 0 || since_ns > GRID_PERIODS * period_ns;
        // A thread that sleeps for its next period never sleeps for longer than a period.
        let is_long = wake.slept_ns >= period_ns + period_ns / LONG_PART;
        // Close wake-ups come late one after another at most by a part of a period, all of them together.
        let apart_ns = wake.due_ns.saturating_sub(before.due_ns);
        let is_close = apart_ns < period_ns - period_ns / CLOSE_PART;
        let close = is_close
            .then(|| self.close.map_or((before.due_ns, 1), |(since_ns, count)| (since_ns, count + 1)));
        let cluster_ns = close.and_then(|(since_ns, count)| {
            let expected_ns = (2 * count - 1) * period_ns / 2;
            (wake.due_ns.saturating_sub(since_ns) < expected_ns).then(|| end_ns.saturating_sub(since_ns))
        });
        let single_ns = (!is_on_grid || is_long).then(|| end_ns.saturating_sub(before.due_ns));
        if let Some(longest_ns) = single_ns.max(cluster_ns) {
            self.early.sleeps += 1;
            self.early.longest_ns = self.early.longest_ns.max(longest_ns);
        }
        self.close = close;
        if is_on_grid {
            self.grid.at_ns = wake.due_ns;
        }
    }

    /// Where a period has more than one wake-up, some are in the middle of the work; late ones alone make it no more.
    fn count_extra(&mut self) {
        let Rule::Period(found) = &self.rule else { return };
        let (Some(first), Some(last)) = (self.wakes.front(), self.wakes.back()) else { return };
        let periods = (last.due_ns - first.due_ns) / found.period_ns.max(1);
        let extra = (self.wakes.len() as u64).saturating_sub(periods + 1);
        if extra > 1 + periods / EXTRA_PART {
            // From a wake-up to the end of the work of the next one, which is where the sleep after it began.
            let joined = self.wakes.iter().zip(self.wakes.iter().skip(2));
            let joined = joined.map(|(first, after)| {
                after.due_ns.saturating_sub(after.slept_ns).saturating_sub(first.due_ns)
            });
            self.early.sleeps += extra;
            self.early.longest_ns = self.early.longest_ns.max(joined.max().unwrap_or(found.period_ns));
        }
    }

    /// Decides, and hands on what was held back.
    fn flush(&mut self, by: Activations, ended: &mut Vec<Activation>) {
        if matches!(self.rule, Rule::Learning) && !self.held.is_empty() {
            self.decide(by);
        }
        for part in std::mem::take(&mut self.held) {
            self.take(part, ended);
        }
    }

    fn decide(&mut self, by: Activations) {
        self.since_decision = 0;
        let wakes: Vec<Wake> = self.wakes.iter().copied().collect();
        let was_undecided = matches!(self.rule, Rule::Learning);
        let wanted_ns = if let Activations::PerPeriod(wanted_ns) = by { wanted_ns } else { None };
        let found = find(&wakes, wanted_ns);
        match (found, &self.rule) {
            // It overran many of its periods.
            (Some(found), Rule::Period(known)) if found.leaves_out_periods_of(known) => {}
            (Some(mut found), _) => {
                found.is_sure |= matches!(by, Activations::PerPeriod(_));
                if let Rule::Wakeups { .. } = self.rule {
                    // By another rule until now.
                    self.early = self.bounds.get(&found.site).cloned().unwrap_or_default();
                }
                self.rule = Rule::Period(found);
                if was_undecided {
                    self.bounds.clear();
                }
            }
            // It may do something else for a while.
            (None, Rule::Period(_)) => {}
            (None, _) => {
                self.rule = Rule::Wakeups { is_sure: find::is_simple(&wakes) };
                self.look_for_two_kinds();
            }
        }
    }

    /// Sleeps of two kinds in one place.
    fn look_for_two_kinds(&mut self) {
        let (sleeps, longest_ns) = find::of_two_kinds(self.wakes.make_contiguous());
        self.two_kinds = (self.two_kinds.0.max(sleeps), self.two_kinds.1.max(longest_ns));
    }

    /// Notes where it slept, and which responses this bounds.
    fn note(&mut self, part: &Activation) {
        let end_ns = part.end_ns();
        let before = self.last_end_ns.replace(end_ns).filter(|_| part.gap.is_none());
        let site = part.woke_from.filter(|_| before.is_some());
        if let Some((before_ns, site)) = before.zip(site) {
            // A signal came; the sleep continues.
            let site = if calls::is_restart(&site) {
                self.wakes.back().map_or(site, |wake| wake.site)
            } else {
                site
            };
            let slept_ns = part.due_ns.saturating_sub(before_ns);
            if calls::is_until(&site) {
                let times = self.timer_slept.times + 1;
                self.timer_slept = TimerSlept { times, last_ns: part.due_ns, others: 0 };
            } else {
                self.timer_slept.others += 1;
            }
            let waker = if let Waker::Thread(thread, _) = part.waker { thread } else { 0 };
            self.wakes.push_back(Wake { due_ns: part.due_ns, slept_ns, site, waker });
            if self.wakes.len() > WAKES_MAX {
                self.wakes.pop_front();
            }
            for (other, bound) in &mut self.bounds {
                if let Some((_, sleeps)) = bound.since.as_mut().filter(|_| *other != site) {
                    *sleeps += 1;
                }
            }
            if self.bounds.len() < SITES_MAX || self.bounds.contains_key(&site) {
                self.bounds.entry(site).or_default().since = Some((part.due_ns, 0));
            }
        } else {
            self.bounds.values_mut().for_each(|bound| bound.since = None);
        }
        self.last_site = part.slept_at;
        let bound = self.bounds.get_mut(&part.slept_at);
        if let Some((bound, (since_ns, sleeps))) =
            bound.and_then(|bound| bound.since.take().map(|since| (bound, since)))
            && sleeps > 0
        {
            bound.longest_ns = bound.longest_ns.max(end_ns.saturating_sub(since_ns));
            bound.sleeps += sleeps;
        }
        if let Wait::Work(Some(call)) = &part.slept
            && self.calls.len() < SITES_MAX
            && !self.calls.contains(call)
        {
            self.calls.insert(call.clone());
        }
    }

    /// At the end of the watch a thread that sleeps until moments of its timer may hang in another sleep, in the middle of its
    /// work.
    fn doubt_last_sleep(&mut self, at_ns: u64) {
        let TimerSlept { times, last_ns, others } = self.timer_slept;
        // Many sleeps elsewhere are its waits for work. A thread with a period is judged by its period.
        let is_open = !matches!(&self.rule, Rule::Period(_) | Rule::Wakeups { is_sure: true });
        if is_open && times > 0 && others < HELD_MAX as u64 && !calls::is_until(&self.last_site) {
            self.early.sleeps += others + 1;
            self.early.longest_ns = self.early.longest_ns.max(at_ns.saturating_sub(last_ns));
        }
    }

    /// Whether this part belongs to the activation in progress.
    fn is_inside(&self, part: &Activation, open: &Activation) -> bool {
        let Rule::Period(found) = &self.rule else { return false };
        let Some(site) = part.woke_from.filter(|_| part.gap.is_none()) else { return false };
        let slept_ns = part.due_ns.saturating_sub(open.end_ns());
        !found.is_release(site, part.due_ns, slept_ns, Some(open.due_ns))
    }

    /// Whether the activation in progress goes on in this last part of its thread. A sleep that anything but its timer ended
    /// was not in the middle: the thread was woken to end.
    fn goes_on(&self, part: &Activation, open: &Activation) -> bool {
        let Rule::Period(found) = &self.rule else { return false };
        self.is_inside(part, open) && (open.slept_at != found.site || part.waker == Waker::Timer)
    }

    fn take(&mut self, mut part: Activation, ended: &mut Vec<Activation>) {
        part.is_start = false;
        // What is in progress may have gone on unseen; without that, nothing began before the next period.
        if let Some((from_ns, to_ns)) = &mut part.gap {
            let began_ns = self.open.take().map(|open| open.due_ns).or(self.cut_ns);
            match (began_ns, &self.rule) {
                (Some(began_ns), _) => (*from_ns, *to_ns) = (began_ns.min(*from_ns), part.due_ns),
                (None, Rule::Period(found)) => {
                    *from_ns = found.next_release_ns(self.release_ns, *from_ns).min(*to_ns);
                }
                (None, _) => {}
            }
        }
        self.cut_ns = None;
        let Rule::Period(found) = &self.rule else {
            // Without a period it is not known when a start ends.
            self.is_starting = false;
            ended.extend(self.open.take());
            ended.push(part);
            return;
        };
        let found = found.clone();
        self.look_off_grid(&found, &part);
        let Some(mut open) = self.open.take() else {
            let is_release =
                part.woke_from.is_some_and(|site| found.is_release(site, part.due_ns, u64::MAX, None));
            return self.begin(&found, part, is_release, ended);
        };
        if !self.is_inside(&part, &open) {
            ended.push(found.with_later_periods(open));
            return self.begin(&found, part, true, ended);
        }
        join(&mut open, part);
        let took_ns = open.response_ns();
        if found.ends_at(open.slept_at) {
            ended.push(found.with_later_periods(open));
        } else if took_ns > (found.period_ns * PERIODS_MAX).max(HELD_NS) {
            // It may be the end of the program that waits for its helpers.
            ended.extend(Some(open).filter(|open| !open.joins));
            self.rule = Rule::Learning;
            self.wakes.clear();
        } else {
            self.open = Some(open);
        }
    }

    fn begin(&mut self, found: &Found, mut part: Activation, is_release: bool, ended: &mut Vec<Activation>) {
        if is_release {
            self.release_ns = part.due_ns;
            self.is_starting = false;
        }
        part.is_start = self.is_starting;
        // What comes before the first begin of a period is an activation of its own.
        if !is_release {
            ended.push(part);
        } else if found.ends_at(part.slept_at) {
            ended.push(found.with_later_periods(part));
        } else {
            self.open = Some(part);
        }
    }

    /// In a place where messages also arrive, wake-ups that do not fit the period may be in the middle of the work.
    fn look_off_grid(&mut self, found: &Found, part: &Activation) {
        if found.is_mixed || part.woke_from != Some(found.site) || calls::is_sleep(&found.site) {
            return;
        }
        let grid = &mut self.grid;
        let periods = found.periods_between(grid.at_ns, part.due_ns);
        match periods {
            _ if grid.at_ns == 0 || part.due_ns > grid.at_ns + GRID_PERIODS * found.period_ns => {
                (grid.at_ns, grid.off_grid) = (part.due_ns, 0);
            }
            Some(periods) => {
                if grid.off_grid >= periods {
                    grid.longest_ns = grid.longest_ns.max(grid.last_end_ns.saturating_sub(grid.at_ns));
                    grid.sleeps += grid.off_grid;
                }
                (grid.at_ns, grid.off_grid) = (part.due_ns, 0);
            }
            None => {
                grid.off_grid += 1;
                grid.last_end_ns = part.end_ns();
            }
        }
    }

    /// What is in doubt since the last call.
    fn doubt(&mut self) -> Option<Doubt> {
        if matches!(self.rule, Rule::Wakeups { .. }) {
            self.look_for_two_kinds();
        }
        let two_kinds = std::mem::take(&mut self.two_kinds);
        let bounds = std::mem::take(&mut self.early);
        let mut doubt =
            Doubt { sleeps: bounds.sleeps, longest_ns: bounds.longest_ns, calls: self.calls.clone() };
        let mut add = |sleeps: u64, longest_ns: u64| {
            doubt.sleeps += sleeps;
            doubt.longest_ns = doubt.longest_ns.max(longest_ns);
        };
        add(two_kinds.0, two_kinds.1);
        match &self.rule {
            // A sleep in another place may be rare, and in the middle of the work all the same.
            Rule::Wakeups { is_sure: true } => {
                let usual = find::usual(self.wakes.make_contiguous());
                if let Some(bound) = usual.and_then(|site| self.bounds.get(&site)) {
                    add(bound.sleeps, bound.longest_ns);
                }
            }
            Rule::Learning | Rule::Wakeups { .. } => {
                for bound in self.bounds.values() {
                    add(bound.sleeps, bound.longest_ns);
                }
                if self.bounds.values().all(|bound| bound.sleeps == 0)
                    && matches!(self.rule, Rule::Wakeups { .. })
                {
                    // It has only one place, in which it sleeps for different purposes.
                    let (first, last) = (self.wakes.front(), self.wakes.back());
                    let span_ns = first.zip(last).map_or(0, |(first, last)| last.due_ns - first.due_ns);
                    add(self.wakes.len() as u64, span_ns);
                }
            }
            Rule::Period(found) => {
                if !found.is_sure {
                    let others = found.others.iter().filter_map(|site| self.bounds.get(site));
                    others.for_each(|bound| add(bound.sleeps, bound.longest_ns));
                    if found.is_mixed {
                        add(self.wakes.len() as u64, found.period_ns);
                    }
                }
                add(self.grid.sleeps, self.grid.longest_ns);
            }
        }
        // It slept until moments of its timer, and has not done so for many wake-ups: perhaps all its cycles overrun since then.
        let is_known =
            matches!(&self.rule, Rule::Period(found) if found.is_sure || calls::is_until(&found.site));
        let slept = &mut self.timer_slept;
        if slept.times >= TIMER_SLEPT_LEAST && slept.others >= WAKES_MAX as u64 && !is_known {
            let end_ns = self.last_end_ns.unwrap_or_default();
            add(std::mem::take(&mut slept.others), end_ns.saturating_sub(slept.last_ns));
        }
        (self.grid.sleeps, self.grid.longest_ns) = (0, 0);
        self.bounds.values_mut().for_each(|bound| (bound.sleeps, bound.longest_ns) = (0, 0));
        (doubt.sleeps > 0).then_some(doubt)
    }
}

/// The wait in the middle of the work that the activation goes on with.
fn inside(open: &Activation) -> Wait {
    match &open.slept {
        Wait::Work(Some(call)) => {
            // Places of futexes are rounded, the word is not.
            let site = Site { object: open.slept_word.max(open.slept_at.object), ..open.slept_at };
            Wait::Inside { call: call.clone(), object: calls::object_at(&site) }
        }
        wait => wait.clone(),
    }
}

/// Goes on with an activation after a sleep in its middle.
fn join(open: &mut Activation, part: Activation) {
    let (from_ns, woken_ns) = (open.end_ns(), part.woken_ns.max(open.end_ns()));
    let cpu = open.stages.last().map_or_else(Default::default, |stage| stage.cpu);
    let what = Doing::Blocked { wait: inside(open), waker: part.waker };
    open.stages.push(Stage { from_ns, to_ns: woken_ns, cpu, what });
    open.joins |= part.joins;
    for stage in part.stages {
        let from_ns = stage.from_ns.max(woken_ns);
        if stage.to_ns > from_ns {
            open.stages.push(Stage { from_ns, ..stage });
        }
    }
    open.faults += part.faults;
    open.fault_ns = open.fault_ns.or(part.fault_ns);
    open.counts = open.counts.plus(part.counts);
    open.work = open.work.zip(part.work).map(|(one, other)| Divided {
        calls_ns: one.calls_ns + other.calls_ns,
        faults_ns: one.faults_ns.zip(other.faults_ns).map(|(one, other)| one + other),
    });
    open.calls.extend(part.calls);
    open.samples.extend(part.samples);
    open.migrations += part.migrations;
    (open.slept, open.slept_at, open.slept_word) = (part.slept, part.slept_at, part.slept_word);
    open.is_unended = part.is_unended;
}

#[cfg(test)]
mod tests;
