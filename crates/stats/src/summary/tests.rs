use super::*;
use proptest::prelude::*;
use whylate_core::quantity::{
    CORRECTED, COUNTER_HZ, CYCLES, GAPS, LOOP_NS, LOST_NS, LOST_SHARE, OVERRUNS, PEER_CPU, Quantities,
};
use whylate_core::result::{Cause, Spike, TimelinePoint};

const CPU: CpuId = CpuId(3);
const SECOND: u64 = 1_000_000_000;

fn shape(name: &str) -> SampleShape {
    SampleShape::of(SeriesName::of(name).facts().unwrap())
}

fn interval(number: u64, values: &[u64]) -> Interval {
    let mut histogram = Histogram::new();
    values.iter().for_each(|value| histogram.record(*value));
    Interval {
        cpu: CPU,
        start_ns: number * SECOND,
        end_ns: (number + 1) * SECOND,
        samples: histogram.count(),
        sum_ns: histogram.sum() as u64,
        min_ns: histogram.min(),
        max_ns: histogram.max(),
        histogram: histogram.buckets().collect(),
        ..Interval::default()
    }
}

fn spike(at_ns: u64, latency_ns: u64) -> SpikeRecord {
    SpikeRecord { cpu: CPU, at_ns, latency_ns, sample: at_ns / 1000, ..SpikeRecord::default() }
}

fn timer() -> Summary {
    Summary::new(CPU, SampleShape { period: Some(Nanos(1000)), ..shape("timer") })
}

#[test]
fn a_timer_is_summarised() {
    let mut summary = timer();
    let mut first = interval(0, &[10, 20, 30]);
    first.quantities.set(OVERRUNS, 0);
    let mut second = interval(1, &[40, 3500]);
    second.quantities.set(OVERRUNS, 3);
    second.spikes_dropped = 2;
    summary.add_interval(&first, Some(1)).unwrap();
    summary.add_interval(&second, Some(1)).unwrap();
    summary.add_spike(&spike(1_500_000_000, 3500), Some(1)).unwrap();
    summary.add_spike(&spike(1_600_000_000, 3500), Some(1)).unwrap();
    let (result, spikes) = summary.finish();

    let quantiles = result.quantiles.unwrap();
    assert_eq!((result.cpu, result.samples, quantiles.min_ns, quantiles.max_ns), (CPU, 5, 10, 3500));
    assert_eq!((quantiles.p50_ns, quantiles.mean_ns), (30, 720.0));
    assert_eq!((result.get(OVERRUNS), result.spikes_dropped), (Some(3), 2));
    assert_eq!(result.max_at_ns, Some(1_500_000_000), "the first moment with the largest latency");
    // 3500 hid 2500, 1500 and 500.
    let corrected = result.get(CORRECTED).unwrap();
    assert_eq!(corrected.mean_ns, (3600.0 + 4500.0) / 8.0);
    assert_eq!((corrected.min_ns, corrected.max_ns), (10, 3500));
    assert_eq!(
        (result.get(LOOP_NS), result.get(GAPS), result.get(LOST_NS), result.get(LOST_SHARE)),
        (None, None, None, None)
    );
    assert_eq!(result.histogram.iter().map(|row| row.1).sum::<u64>(), 5);
    assert_eq!(result.timeline.len(), 2);
    assert_eq!(spikes.len(), 2);
    assert_eq!(spikes[0].probe.as_deref(), Some("timer"));
    assert_eq!(spikes[0].cause, Cause::unattributed());
}

#[test]
fn a_stall_is_summarised() {
    let mut summary = Summary::new(CPU, shape("stall"));
    for number in 0..2 {
        let mut turns = interval(number, &[14, 14, 14, 5000]);
        turns.quantities.set(GAPS, 1);
        turns.quantities.set(LOST_NS, 5000);
        summary.add_interval(&turns, None).unwrap();
    }
    assert_eq!(summary.measured(), Nanos(2 * SECOND));
    let (result, spikes) = summary.finish();
    assert_eq!(
        (result.get(GAPS), result.get(LOST_NS), result.get(LOST_SHARE)),
        (Some(2), Some(10_000), Some(5e-6))
    );
    assert!((result.get(LOOP_NS).unwrap() - 14.0).abs() < 0.5);
    assert_eq!((result.get(OVERRUNS), result.get(CORRECTED), result.max_at_ns), (None, None, None));
    assert!(spikes.is_empty());
}

#[test]
fn a_round_trip_has_its_method_its_ways_and_cycles() {
    let name = SeriesName::of("roundtrip/futex");
    let there = SeriesName::of("roundtrip/futex/there");
    let mut whole = Summary::new(CPU, shape("roundtrip/futex")).of_series(name);
    let trips = Interval {
        quantities: Quantities::default().with(PEER_CPU, 9).with(COUNTER_HZ, 2_500_000_000),
        ..interval(0, &[4_000, 5_000, 200])
    };
    whole.add_interval(&trips, None).unwrap();
    whole.add_spike(&spike(1_000, 5_000), None).unwrap();
    let mut way = Summary::new(CPU, shape("roundtrip/futex/there")).of_series(there);
    way.add_interval(&interval(0, &[1_000, 1_500, 90]), None).unwrap();
    let ((whole, spikes), (way, _)) = (whole.finish(), way.finish());
    assert_eq!(spikes[0].probe.as_deref(), Some("roundtrip/futex"));
    let cycles = whole.get(CYCLES).unwrap();
    assert_eq!((cycles.min, cycles.max), (500, 12_500));
    let joined = join_parts([(name.to_string(), whole), (there.to_string(), way)]);
    let [result] = joined.as_slice() else { panic!("{joined:?}") };
    assert_eq!((result.series.as_deref(), result.get(PEER_CPU)), (Some("futex"), Some(9)));
    assert_eq!((result.get(OVERRUNS), result.get(CORRECTED)), (None, None));
    let part = &result.parts[0];
    assert_eq!((part.part.as_str(), part.samples, part.quantiles.unwrap().max_ns), ("there", 3, 1_500));
}

#[test]
fn a_dispatch_is_summarised_as_a_timer_is() {
    let shape = SampleShape { period: Some(Nanos(1000)), ..shape("dispatch/timerfd") };
    let mut summary = Summary::new(CPU, shape).of_series(SeriesName::of("dispatch/timerfd"));
    let mut latenesses = interval(0, &[10, 3500]);
    latenesses.quantities.set(OVERRUNS, 3);
    summary.add_interval(&latenesses, None).unwrap();
    let (result, _) = summary.finish();
    assert_eq!((result.series.as_deref(), result.get(OVERRUNS)), (Some("timerfd"), Some(3)));
    assert_eq!(result.get(CORRECTED).unwrap().max_ns, 3500);
}

#[test]
fn without_samples_nothing_is_claimed() {
    let (result, spikes) = timer().finish();
    assert_eq!((result.cpu, result.samples, result.quantiles, result.get(CORRECTED)), (CPU, 0, None, None));
    assert!(result.histogram.is_empty() && result.timeline.is_empty() && spikes.is_empty());
    let (stall, _) = Summary::new(CPU, shape("stall")).finish();
    assert_eq!((stall.get(LOOP_NS), stall.get(LOST_SHARE), stall.get(GAPS)), (None, None, Some(0)));
}

#[test]
fn without_a_period_nothing_is_corrected() {
    for period in [None, Some(Nanos(0))] {
        let mut summary = Summary::new(CPU, SampleShape { period, ..shape("timer") });
        summary.add_interval(&interval(0, &[5000]), None).unwrap();
        assert_eq!(summary.finish().0.get(CORRECTED), None);
    }
}

#[test]
fn wrong_data_is_refused_and_changes_nothing() {
    let mut summary = timer();
    let foreign = Interval { cpu: CpuId(4), ..interval(0, &[1]) };
    let expected = StatsError::ForeignCpu { expected: CPU, found: CpuId(4) };
    assert_eq!(summary.add_interval(&foreign, None), Err(expected));
    assert_eq!(summary.add_spike(&SpikeRecord { cpu: CpuId(4), ..spike(1, 1) }, None), Err(expected));
    let broken = Interval { histogram: vec![(10, 1), (1001, 1)], ..interval(0, &[10]) };
    assert_eq!(summary.add_interval(&broken, None), Err(StatsError::NotALowerEdge { lower_edge_ns: 1001 }));
    assert_eq!(summary.finish().0, timer().finish().0);
}

#[test]
fn a_day_of_seconds_keeps_bounded_memory_and_its_maximum() {
    let mut summary = timer().with_timeline_points_max(100);
    for number in 0..86_400 {
        let value = if number == 54_321 { 7_777 } else { 10 + number % 7 };
        summary.add_interval(&interval(number, &[value, 10]), None).unwrap();
        summary.add_spike(&spike(number, value), None).unwrap();
    }
    let (result, spikes) = summary.finish();
    assert!((50..=100).contains(&result.timeline.len()), "{} points", result.timeline.len());
    assert_eq!(result.timeline.iter().map(|point| point.samples).sum::<u64>(), 2 * 86_400);
    let peak = result.timeline.iter().max_by_key(|point| point.max_ns).unwrap();
    assert_eq!(peak.max_ns, Some(7_777));
    assert!((peak.start_ns..peak.end_ns).contains(&(54_321 * SECOND)));
    assert!(result.timeline.is_sorted_by(|a, b| a.end_ns == b.start_ns), "no hole and no overlap");
    let length = |point: &TimelinePoint| point.end_ns - point.start_ns;
    let (last, rest) = result.timeline.split_last().unwrap();
    assert!(rest.iter().all(|point| length(point) == length(&rest[0])) && length(last) <= length(&rest[0]));
    assert_eq!((spikes.len(), spikes[0].latency_ns), (SPIKES_KEPT, 7_777));
}

#[test]
fn repeats_stay_apart_in_the_timeline() {
    let mut summary = timer().with_timeline_points_max(8);
    for number in 0..60 {
        summary.add_interval(&interval(number, &[10]), Some(number as u32 / 20 + 1)).unwrap();
    }
    let (result, _) = summary.finish();
    assert!(result.timeline.len() <= 8);
    for repeat in 1..=3 {
        let of_repeat = result.timeline.iter().filter(|point| point.repeat == Some(repeat));
        assert_eq!(of_repeat.map(|point| point.samples).sum::<u64>(), 20);
    }
}

#[test]
fn more_repeats_than_points_are_all_shown() {
    let mut summary = timer().with_timeline_points_max(4);
    for number in 0..20u32 {
        summary.add_interval(&interval(u64::from(number), &[10]), Some(number)).unwrap();
    }
    assert_eq!(summary.finish().0.timeline.len(), 20);
}

#[test]
fn the_largest_of_several_lists() {
    let spikes_of = |values: &[u64]| {
        let mut summary = timer();
        values.iter().for_each(|value| summary.add_spike(&spike(*value, *value), None).unwrap());
        summary.finish().1
    };
    let all = largest_spikes(spikes_of(&[5, 9]).into_iter().chain(spikes_of(&[7, 1])), 3);
    assert_eq!(all.iter().map(|spike| spike.latency_ns).collect::<Vec<_>>(), [9, 7, 5]);
}

#[test]
fn spikes_of_one_series_do_not_displace_the_largest_of_another() {
    let of = |series: &str, values: &[u64]| {
        let spike =
            |value: &u64| Spike { probe: Some(series.to_owned()), ..Spike::unexplained(CPU, *value, *value) };
        values.iter().map(spike).collect::<Vec<_>>()
    };
    let all = || of("task/logger", &[90, 80, 70, 60]).into_iter().chain(of("task/control", &[5, 4]));
    let kept = |most| largest_of_each(all(), most).iter().map(|spike| spike.latency_ns).collect::<Vec<_>>();
    assert_eq!((kept(4), kept(5)), (vec![90, 80, 5, 4], vec![90, 80, 70, 5, 4]));
}

#[test]
fn a_repeat_keeps_the_figures() {
    let mut summary = timer();
    summary.add_interval(&interval(0, &[5, 6]), None).unwrap();
    let result = summary.finish().0;
    let kept = repeat_probe(SeriesName::of("timer"), &result, Nanos(5));
    assert_eq!(
        (kept.probe.as_str(), kept.cpu, kept.samples, kept.quantiles),
        ("timer", CPU, 2, result.quantiles)
    );
    // One sample above 5 ns in a second.
    assert_eq!(kept.spikes_per_h, Some(3600.0));
}

proptest! {
    #[test]
    fn cutting_into_intervals_changes_no_figure(
        values in prop::collection::vec(0u64..1_000_000, 1..100), piece in 1usize..50,
    ) {
        let mut whole = timer();
        whole.add_interval(&interval(0, &values), None).unwrap();
        let mut pieces = timer();
        for (number, part) in values.chunks(piece).enumerate() {
            pieces.add_interval(&interval(number as u64, part), None).unwrap();
        }
        let (whole, pieces) = (whole.finish().0, pieces.finish().0);
        prop_assert_eq!(whole.quantiles, pieces.quantiles);
        prop_assert_eq!(whole.get(CORRECTED), pieces.get(CORRECTED));
        prop_assert_eq!(whole.histogram, pieces.histogram);
    }

    #[test]
    fn the_kept_spikes_are_the_largest(
        values in prop::collection::vec(0u64..1000, 0..200), kept_max in 0usize..50,
    ) {
        let mut summary = timer().with_spikes_kept(kept_max);
        for (moment, value) in values.iter().enumerate() {
            summary.add_spike(&spike(moment as u64, *value), None).unwrap();
        }
        let spikes = summary.finish().1;
        let mut expected: Vec<(u64, u64)> =
            values.iter().enumerate().map(|(moment, value)| (*value, moment as u64)).collect();
        expected.sort_by_key(|(value, moment)| (std::cmp::Reverse(*value), *moment));
        expected.truncate(kept_max);
        let got: Vec<(u64, u64)> = spikes.iter().map(|spike| (spike.latency_ns, spike.at_ns)).collect();
        prop_assert_eq!(got, expected);
    }
}
