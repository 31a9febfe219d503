//! Recognises real-time throttling: gaps that the scheduler makes on purpose.
//!
//! A busy real-time task may use `sched_rt_runtime_us` of each `sched_rt_period_us` (950 ms of each second by
//! default) and is throttled for the rest. From Linux 6.12 on, the fair server gives ordinary tasks 50 ms of each
//! second in the same way. Both look alike to the task, and neither is the latency that an experiment looks for.
//!
//! A gap is labelled only on evidence: its length, the involuntary context switches, and the period at which such
//! gaps recur. Anything else stays unattributed.

use std::collections::BTreeMap;
use std::fmt;
use whylate_core::Nanos;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{Cause, CauseKind, Spike, ThrottledGaps};

/// How far a gap's length may be from the time that the scheduler takes, as a share of it.
const LENGTH_TOLERANCE: f64 = 0.2;
/// The part of the period within which such gaps end.
const PHASE_WINDOW: f64 = 0.004;
/// How often gaps at random moments may be labelled as throttling.
const FALSE_LABELS_MAX: f64 = 0.01;
/// The same if another repeat shows that the scheduler throttles this thread.
const FALSE_LABELS_SHOWN_MAX: f64 = 0.05;
/// Gaps of at least this length are examined one by one: other evidence may show what made them.
const LONG_NS: u64 = 1_000_000;
/// The most gaps of a repeat that are examined.
const CANDIDATES_KEPT: usize = 100_000;
/// The time that the fair server takes of each second unless debugfs configures it differently.
const FAIR_SERVER_RUNTIME: Nanos = Nanos::from_millis(50);
const FAIR_SERVER_PERIOD: Nanos = Nanos::from_secs(1);

/// What is known about a measurement of one probe on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// `kernel.sched_rt_runtime_us`; negative is no limit.
    pub rt_runtime_us: Option<i64>,
    /// `kernel.sched_rt_period_us`.
    pub rt_period_us: Option<i64>,
    /// Whether the kernel has the fair server (see [`fair_server_in`]); `None` when not known.
    pub fair_server: Option<bool>,
    /// Measured time, summed over the repeats.
    pub measured: Nanos,
    /// Whether the measuring thread ran as SCHED_FIFO or SCHED_RR.
    pub realtime: bool,
    /// Involuntary context switches of the measuring thread, summed over the repeats; `None` if not counted.
    pub involuntary_switches: Option<u64>,
}

/// Whether a kernel of that release (`uname -r`) has the fair server: Linux 6.12 and later. `None` when the text does
/// not begin with a version.
pub fn fair_server_in(release: &str) -> Option<bool> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next()?, numbers.next()?) {
        (Ok(major), Ok(minor)) => Some((major, minor) >= (6, 12)),
        _ => None,
    }
}

/// The time that the scheduler takes from real-time tasks, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Allowance {
    taken: Nanos,
    period: Nanos,
    source: Source,
}

/// What sets an allowance; put into words only if a gap is labelled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    /// `sched_rt_runtime_us` and `sched_rt_period_us`.
    Throttling(i64, i64),
    FairServer,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throttling(runtime, period) => write!(
                f,
                "real-time throttling (sched_rt_runtime_us {runtime} of {period}) or the fair server"
            ),
            Self::FairServer => f.write_str("the fair server (Linux 6.12 and later)"),
        }
    }
}

/// Called for every gap of a stall probe.
fn allowances(circumstances: &Circumstances) -> impl Iterator<Item = Allowance> + use<> {
    let limits = circumstances.rt_runtime_us.zip(circumstances.rt_period_us);
    let throttling = limits.filter(|(runtime, period)| (0..*period).contains(runtime));
    let throttling = throttling.map(|(runtime, period)| Allowance {
        taken: Nanos((period - runtime).unsigned_abs().saturating_mul(1000)),
        period: Nanos(period.unsigned_abs().saturating_mul(1000)),
        source: Source::Throttling(runtime, period),
    });
    let fair_server = (circumstances.fair_server == Some(true)).then_some(Allowance {
        taken: FAIR_SERVER_RUNTIME,
        period: FAIR_SERVER_PERIOD,
        source: Source::FairServer,
    });
    throttling.into_iter().chain(fair_server)
}

impl Allowance {
    /// Whether a gap is as long as the time that the scheduler takes.
    fn fits(&self, length_ns: u64) -> bool {
        length_ns.abs_diff(self.taken.0) as f64 <= LENGTH_TOLERANCE * self.taken.0 as f64
    }
}

/// The gaps that end at one phase of the period: the largest group within [`PHASE_WINDOW`] of it. None if random
/// moments would have such a group with a probability above `false_max`.
fn in_phase(gaps: &[Gap], period: Nanos, false_max: f64) -> Vec<usize> {
    let period = period.0.max(1);
    let window = (period as f64 * PHASE_WINDOW) as u64;
    let mut phases: Vec<(u64, usize)> =
        gaps.iter().enumerate().map(|(index, (at_ns, _))| (at_ns % period, index)).collect();
    phases.sort_unstable();
    // Twice around, for groups across the end of the period.
    let count = phases.len();
    let around: Vec<(u64, usize)> =
        phases.iter().copied().chain(phases.iter().map(|(phase, index)| (phase + period, *index))).collect();
    let (mut end, mut largest) = (0, 0..0);
    for first in 0..count {
        while end < first + count && around[end].0 - around[first].0 <= window {
            end += 1;
        }
        if end - first > largest.len() {
            largest = first..end;
        }
    }
    let largest: Vec<usize> = around[largest].iter().map(|(_, index)| *index).collect();
    let is_believed = largest.len() > 1 && by_chance(gaps.len(), largest.len()) <= false_max;
    if is_believed { largest } else { Vec::new() }
}

/// An upper limit of the probability that `together` or more of `count` random phases are within one window: any of
/// them is the first, and enough of the others follow it.
fn by_chance(count: usize, together: usize) -> f64 {
    let (others, following) = (count - 1, together - 1);
    let ways = (0..following).map(|k| (others - k) as f64 / (following - k) as f64 * PHASE_WINDOW);
    count as f64 * ways.product::<f64>()
}

/// A gap: its end and its length.
type Gap = (u64, u64);

/// The gaps of one series on one CPU in one cell, by repeat.
#[derive(Clone, Debug, Default)]
pub struct Gaps(BTreeMap<u32, RepeatGaps>);

#[derive(Clone, Debug, Default)]
struct RepeatGaps {
    /// The gaps that are as long as the time that the scheduler takes, and all that are long enough to be recognised
    /// by other evidence.
    candidates: Vec<Gap>,
    other_max_ns: u64,
}

/// The gaps that the scheduler made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throttling {
    repeats: BTreeMap<u32, (ThrottledGaps, BTreeMap<u64, Allowance>)>,
    candidates: u64,
    switches: u64,
}

impl Gaps {
    pub fn add(&mut self, repeat: u32, at_ns: u64, length_ns: u64, circumstances: &Circumstances) {
        let of_repeat = self.0.entry(repeat).or_default();
        let is_long = length_ns >= LONG_NS || allowances(circumstances).any(|it| it.fits(length_ns));
        if is_long && of_repeat.candidates.len() < CANDIDATES_KEPT {
            of_repeat.candidates.push((at_ns, length_ns));
        } else {
            of_repeat.other_max_ns = of_repeat.other_max_ns.max(length_ns);
        }
    }

    /// Whether the gaps of any repeat show that the scheduler makes them.
    pub fn show(&self, circumstances: &Circumstances, cause: &impl Fn(u64) -> Option<CauseKind>) -> bool {
        let all = self.0.values().flat_map(|gaps| &gaps.candidates);
        let is_known = all.map(|gap| cause(gap.0)).any(|kind| kind == Some(CauseKind::Throttled));

        is_known
            || allowances(circumstances).any(|allowance| {
                let fitting = self.fitting(&allowance, circumstances, cause);
                let false_max = FALSE_LABELS_MAX / fitting.len() as f64;
                fitting.values().any(|gaps| !in_phase(gaps, allowance.period, false_max).is_empty())
            })
    }

    /// The gaps, by repeat, that an allowance explains by their length. None if the thread was switched out too
    /// seldom for them, or if there are more of them than periods.
    fn fitting(
        &self,
        allowance: &Allowance,
        circumstances: &Circumstances,
        cause: &impl Fn(u64) -> Option<CauseKind>,
    ) -> BTreeMap<u32, Vec<Gap>> {
        let is_fitting = |gap: &&Gap| allowance.fits(gap.1) && cause(gap.0).is_none();
        let of_repeat = |(repeat, gaps): (&u32, &RepeatGaps)| {
            let fitting: Vec<Gap> = gaps.candidates.iter().filter(is_fitting).copied().collect();
            (!fitting.is_empty()).then_some((*repeat, fitting))
        };
        let fitting: BTreeMap<u32, Vec<Gap>> = self.0.iter().filter_map(of_repeat).collect();
        let count = fitting.values().map(|gaps| gaps.len() as u64).sum::<u64>();
        let periods = circumstances.measured.0 / allowance.period.0.max(1) + fitting.len() as u64;
        let switches = circumstances.involuntary_switches.filter(|_| circumstances.realtime);
        if switches.is_some_and(|switches| count <= switches) && count <= periods {
            fitting
        } else {
            BTreeMap::new()
        }
    }

    /// The gaps that the scheduler made. All of these must hold:
    /// - the thread was a real-time one, and its involuntary context switches were counted;
    /// - the length is within 20 % of what the scheduler takes of each period;
    /// - there are no more such gaps than involuntary context switches, and no more than periods;
    /// - it ends at the same moment of the period, to 0.4 % of it, as others of its repeat; gaps at random moments
    ///   would do so in at most 1 % of measurements. If another repeat of the run shows throttling (`is_shown`), 5 %
    ///   are enough, and so is the only such gap of a repeat: otherwise the repeats of one run could not be compared.
    ///
    /// `cause` is what other evidence says about the gap that ended at a moment. If it names the scheduler, the gap
    /// counts as throttling; if it names another cause, it does not.
    pub fn finish(
        self,
        circumstances: &Circumstances,
        is_shown: bool,
        cause: &impl Fn(u64) -> Option<CauseKind>,
    ) -> Throttling {
        let mut found = Throttling {
            switches: circumstances.involuntary_switches.unwrap_or_default(),
            ..Throttling::default()
        };
        for allowance in allowances(circumstances) {
            let fitting = self.fitting(&allowance, circumstances, cause);
            found.candidates += fitting.values().map(|gaps| gaps.len() as u64).sum::<u64>();
            let false_max =
                if is_shown { FALSE_LABELS_SHOWN_MAX } else { FALSE_LABELS_MAX / fitting.len() as f64 };
            for (repeat, gaps) in fitting {
                let members = match gaps.as_slice() {
                    [_] if is_shown => vec![0],
                    gaps => in_phase(gaps, allowance.period, false_max),
                };
                let own = &mut found.repeats.entry(repeat).or_default().1;
                members.iter().for_each(|member| _ = own.entry(gaps[*member].0).or_insert(allowance));
            }
        }
        for (repeat, gaps) in self.0 {
            let (sum, own) = found.repeats.entry(repeat).or_default();
            sum.other_max_ns = gaps.other_max_ns;
            for (at_ns, length_ns) in gaps.candidates {
                if own.contains_key(&at_ns) || cause(at_ns) == Some(CauseKind::Throttled) {
                    sum.gaps += 1;
                    sum.lost_ns = sum.lost_ns.saturating_add(length_ns);
                } else {
                    sum.other_max_ns = sum.other_max_ns.max(length_ns);
                }
            }
        }
        found.repeats.retain(|_, (sum, _)| sum.gaps > 0);
        found
    }
}

impl Throttling {
    /// The time taken in a repeat; `None` if none was taken.
    pub fn of_repeat(&self, repeat: u32) -> Option<ThrottledGaps> {
        self.repeats.get(&repeat).map(|(sum, _)| *sum)
    }

    /// The time taken in all repeats.
    pub fn total(&self) -> Option<ThrottledGaps> {
        let all = self.repeats.values().map(|(sum, _)| *sum);
        all.reduce(|sum, gaps| ThrottledGaps {
            gaps: sum.gaps + gaps.gaps,
            lost_ns: sum.lost_ns.saturating_add(gaps.lost_ns),
            other_max_ns: sum.other_max_ns.max(gaps.other_max_ns),
        })
    }

    /// Labels these gaps among the spikes, with the evidence, if a spike has no other cause.
    pub fn label(&self, spikes: &mut [Spike]) {
        for spike in spikes.iter_mut().filter(|spike| spike.cause.kind == CauseKind::Unattributed) {
            let own = spike.repeat.and_then(|repeat| self.repeats.get(&repeat));
            if let Some(allowance) = own.and_then(|(_, own)| own.get(&spike.at_ns)) {
                let evidence = evidence(spike, allowance, self.candidates, self.switches);
                spike.cause = Cause { evidence, ..Cause::new(CauseKind::Throttled) };
            }
        }
    }
}

fn evidence(spike: &Spike, allowance: &Allowance, candidates: u64, switches: u64) -> Vec<String> {
    let (taken, period) = (nanoseconds(allowance.taken.0), nanoseconds(allowance.period.0));
    let latency = nanoseconds(spike.latency_ns);
    vec![
        format!("{} takes {taken} of each {period}; the gap is {latency}", allowance.source),
        format!(
            "the measuring thread had {switches} involuntary context switches and {candidates} gaps of about this \
             length; this gap and others end at the same point of the period"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix;
    use whylate_core::CpuId;

    const MILLISECOND: u64 = 1_000_000;

    fn spike(at_ms: u64, length_ms: u64, repeat: Option<u32>) -> Spike {
        let unexplained = Spike::unexplained(CpuId(1), at_ms * MILLISECOND, length_ms * MILLISECOND);
        Spike { probe: Some("stall".to_owned()), repeat: repeat.or(Some(1)), ..unexplained }
    }

    fn gaps_of(spikes: &[Spike], circumstances: &Circumstances) -> Gaps {
        let mut gaps = Gaps::default();
        for spike in spikes {
            gaps.add(spike.repeat.unwrap_or(1), spike.at_ns, spike.latency_ns, circumstances);
        }
        gaps
    }

    /// Labels what the gaps show on their own; returns the number of labels.
    fn label(spikes: &mut [Spike], circumstances: &Circumstances) -> usize {
        let gaps = gaps_of(spikes, circumstances);
        let is_shown = gaps.show(circumstances, &|_| None);
        gaps.finish(circumstances, is_shown, &|_| None).label(spikes);
        spikes.iter().filter(|spike| spike.cause.kind == CauseKind::Throttled).count()
    }

    fn throttled_each_second(seconds: u64) -> Vec<Spike> {
        (1..=seconds).map(|second| spike(1000 * second + 3 * (second % 2), 50, None)).collect()
    }

    fn usual(seconds: u64, switches: u64) -> Circumstances {
        Circumstances {
            rt_runtime_us: Some(950_000),
            rt_period_us: Some(1_000_000),
            fair_server: Some(false),
            measured: Nanos::from_secs(seconds),
            realtime: true,
            involuntary_switches: Some(switches),
        }
    }

    #[test]
    fn gaps_of_throttling_are_labelled_and_others_are_not() {
        let mut spikes = throttled_each_second(5);
        spikes.push(spike(2500, 3, None));
        spikes.push(spike(2600, 70, None));
        assert_eq!(label(&mut spikes, &usual(5, 7)), 5);
        for throttled in &spikes[..5] {
            assert_eq!(throttled.cause.kind, CauseKind::Throttled);
            let evidence = throttled.cause.evidence.join("\n");
            let parts = [
                "50.0 ms of each 1.00 s",
                "sched_rt_runtime_us 950000",
                "fair server",
                "7 involuntary",
                "5 gaps",
            ];
            for part in parts {
                assert!(evidence.contains(part), "`{part}` is missing in {evidence}");
            }
        }
        assert!(spikes[5..].iter().all(|spike| spike.cause == Cause::unattributed()));
    }

    #[test]
    fn each_missing_piece_of_evidence_leaves_the_gaps_unattributed() {
        let right = usual(5, 5);
        let wrong = [
            Circumstances { realtime: false, ..right },
            Circumstances { involuntary_switches: Some(4), ..right },
            Circumstances { involuntary_switches: None, ..right },
            Circumstances { rt_runtime_us: Some(-1), ..right },
            Circumstances { rt_runtime_us: None, ..right },
            Circumstances { rt_runtime_us: Some(1_000_000), ..right },
            Circumstances { rt_runtime_us: Some(900_000), ..right },
            Circumstances { rt_period_us: Some(0), ..right },
            Circumstances { measured: Nanos::from_secs(3), ..right },
        ];
        for circumstances in wrong {
            let mut spikes = throttled_each_second(5);
            assert_eq!(label(&mut spikes, &circumstances), 0, "{circumstances:?}");
            assert_eq!(spikes, throttled_each_second(5));
        }
        assert_eq!(label(&mut throttled_each_second(5), &right), 5);
    }

    #[test]
    fn gaps_that_do_not_recur_at_the_period_are_not_throttling() {
        let mut spikes = vec![spike(1000, 50, None), spike(1400, 50, None), spike(4700, 50, None)];
        assert_eq!(label(&mut spikes, &usual(10, 10)), 0);
        let mut close = vec![spike(1000, 50, None), spike(1060, 50, None)];
        assert_eq!(label(&mut close, &usual(10, 10)), 0, "less than a period apart");
    }

    #[test]
    fn one_gap_is_not_evidence() {
        assert_eq!(label(&mut [spike(950, 48, None)], &usual(2, 1)), 0);
        let mut repeats = [spike(950, 48, Some(1)), spike(9_333, 48, Some(2)), spike(17_555, 48, Some(3))];
        assert_eq!(label(&mut repeats, &usual(6, 3)), 0);
    }

    #[test]
    fn gaps_at_random_moments_are_hardly_ever_labelled() {
        let mut random = SplitMix(7);
        for count in [1, 2, 3, 5, 20] {
            let measurements = 4_000;
            let mut labelled = 0;
            for _ in 0..measurements {
                let gap = |random: &mut SplitMix| {
                    let (at, length) = (random.below(60_000), 40 + random.below(21));
                    spike(at, length, None)
                };
                let mut spikes: Vec<Spike> = (0..count).map(|_| gap(&mut random)).collect();
                labelled += usize::from(label(&mut spikes, &usual(60, 100)) > 0);
            }
            // 1 % of 4,000, and three standard deviations.
            assert!(labelled <= 40 + 19, "{labelled} of {measurements} with {count} gaps");
        }
    }

    #[test]
    fn gaps_of_the_scheduler_are_distinguished_from_others() {
        let mut spikes = throttled_each_second(5);
        spikes.push(spike(2_500, 3, None));
        let total = |spikes: &[Spike], circumstances: &Circumstances| {
            let gaps = gaps_of(spikes, circumstances);
            let is_shown = gaps.show(circumstances, &|_| None);
            gaps.finish(circumstances, is_shown, &|_| None).total()
        };
        let expected = ThrottledGaps { gaps: 5, lost_ns: 250 * MILLISECOND, other_max_ns: 3 * MILLISECOND };
        assert_eq!(total(&spikes, &usual(5, 9)), Some(expected));
        spikes.push(spike(2_600, 45, None));
        assert_eq!(total(&spikes, &usual(6, 9)).unwrap().other_max_ns, 45 * MILLISECOND);
        assert_eq!(total(&spikes, &Circumstances { realtime: false, ..usual(6, 9) }), None);
    }

    #[test]
    fn every_repeat_leaves_them_out_where_one_shows_them() {
        let mut spikes = throttled_each_second(5);
        spikes.push(spike(9_400, 51, Some(2)));
        spikes.extend([spike(11_000, 52, Some(3)), spike(12_000, 48, Some(3)), spike(12_500, 55, Some(3))]);
        assert_eq!(label(&mut spikes, &usual(12, 20)), 8, "alone in its repeat, and two of three");
        let mut others = spikes[5..].to_vec();
        others.iter_mut().for_each(|spike| spike.cause = Cause::unattributed());
        assert_eq!(label(&mut others, &usual(12, 20)), 0, "nothing shows it");
    }

    #[test]
    fn the_kernel_s_evidence_about_a_gap_counts_for_it_and_against_it() {
        let spikes = [spike(900, 20, None), spike(2_500, 50, None), spike(2_600, 3, None)];
        let gaps = gaps_of(&spikes, &usual(5, 9));
        let evidence = |kind: CauseKind| move |at_ns: u64| (at_ns < 2_550 * MILLISECOND).then_some(kind);
        let total = |kind| gaps.clone().finish(&usual(5, 9), true, &evidence(kind)).total();
        let expected = ThrottledGaps { gaps: 2, lost_ns: 70 * MILLISECOND, other_max_ns: 3 * MILLISECOND };
        assert_eq!(total(CauseKind::Throttled), Some(expected));
        assert_eq!(total(CauseKind::Steal), None);
    }

    #[test]
    fn the_largest_of_many_gaps_are_enough() {
        let mut spikes: Vec<Spike> = [7, 90, 3000].map(|second| spike(second * 1000, 51, None)).into();
        assert_eq!(label(&mut spikes, &usual(86_400, 86_400)), 3);
    }

    #[test]
    fn the_fair_server_takes_its_share_without_a_limit_too() {
        let circumstances = Circumstances { rt_runtime_us: Some(-1), fair_server: Some(true), ..usual(5, 5) };
        let mut spikes = throttled_each_second(5);
        assert_eq!(label(&mut spikes, &circumstances), 5);
        assert!(spikes[0].cause.evidence.join("\n").contains("fair server"));
        // Explained by the sysctl first, and only once.
        let both = Circumstances { fair_server: Some(true), ..usual(5, 5) };
        assert_eq!(label(&mut throttled_each_second(5), &both), 5);
    }

    #[test]
    fn kernels_with_the_fair_server() {
        for (release, expected) in [
            ("6.18.0-3-amd64", Some(true)),
            ("6.12", Some(true)),
            ("7.0.1", Some(true)),
            ("6.11.9-rt", Some(false)),
            ("5.10.0-33-rt-amd64", Some(false)),
            ("6", None),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(fair_server_in(release), expected, "{release}");
        }
    }
}
