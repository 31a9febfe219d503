use super::*;
use crate::{Options, resolve};
use whylate_core::plan::ProbePlan;
use whylate_core::quantity::{GAPS, LOST_NS};
use whylate_core::result::HwlatSample;
use whylate_core::{CpuId, CpuSet, Facts};

fn collector(tracer: &str) -> Collector {
    collector_keeping(tracer, 32)
}

fn collector_keeping(tracer: &str, spikes_kept: usize) -> Collector {
    let plan: TracerPlan = serde_json::from_value(serde_json::json!({ "tracer": tracer })).unwrap();
    let cpus: CpuSet = "1".parse().unwrap();
    let mut facts = Facts::default();
    for set in [&mut facts.cpu_sets.present, &mut facts.cpu_sets.online, &mut facts.cpu_sets.allowed] {
        *set = "0-1".parse().unwrap();
    }
    let options = Options {
        warmup: Nanos(0),
        duration: Nanos::from_secs(1),
        strict: false,
        lock_memory: true,
        spikes_kept,
    };
    let (spec, _) = resolve(&ProbePlan::Tracer(plan.clone()), &cpus, &facts, &options).unwrap();
    Collector::new(&spec, &plan, 1_000)
}

fn sample(value_ns: u64) -> Sample {
    Sample { cpu: CpuId(1), at_ns: 2_000, value_ns, lost_ns: 0, gaps: 0, in_interrupt: false, hwlat: None }
}

#[test]
fn timerlat_has_a_part_until_the_interrupt() {
    let mut collector = collector("timerlat");
    assert!(collector.add(&Sample { in_interrupt: true, ..sample(300) }).is_none());
    let spike = collector.add(&sample(900)).unwrap();
    assert_eq!((spike.series.as_deref(), spike.latency_ns), (Some("timerlat"), 900));
    let batch = collector.take(5_000);
    let series: Vec<_> =
        batch.intervals.iter().map(|it| (it.series.as_deref().unwrap(), it.max_ns, it.get(GAPS))).collect();
    assert_eq!(series, [("timerlat", Some(900), None), ("timerlat/interrupt", Some(300), None)]);
    assert_eq!((batch.spikes.len(), batch.start_ns, batch.end_ns), (1, 1_000, 5_000));
    assert_eq!(collector.take(6_000).intervals[0].samples, 0);
}

#[test]
fn a_tracer_that_looks_for_gaps_counts_them() {
    let mut collector = collector("osnoise");
    let noise = Sample { lost_ns: 5_000, gaps: 7, ..sample(2_000) };
    assert!(collector.add(&noise).is_none(), "the moment of a noise is not known");
    assert!(collector.add(&noise).is_none());
    let interval = &collector.take(5_000).intervals[0];
    assert_eq!((interval.get(GAPS), interval.get(LOST_NS), interval.samples), (Some(14), Some(10_000), 2));
}

#[test]
fn the_largest_samples_of_an_interval_are_kept_and_reported() {
    let mut collector = collector_keeping("hwlat", 20);
    let reported = (0..100).filter(|value| collector.add(&sample(*value)).is_some()).count();
    assert_eq!(reported, 100, "each was among the largest when it came");
    assert!(collector.add(&sample(80)).is_none(), "twenty are as large");
    assert!(collector.add(&Sample { cpu: CpuId(0), ..sample(1) }).is_none(), "another CPU");
    let batch = collector.take(5_000);
    let kept: Vec<u64> = batch.spikes.iter().map(|spike| spike.latency_ns).collect();
    assert_eq!((kept, batch.intervals[0].samples), ((80..100).rev().collect::<Vec<u64>>(), 101));
    assert!(collector.add(&sample(1)).is_some(), "an interval of its own");
}

#[test]
fn each_sample_of_hwlat_is_handed_over_whole() {
    let mut collector = collector_keeping("hwlat", 1);
    let hwlat =
        HwlatSample { inner_ns: 7_000, outer_ns: 9_000, nmi_count: Some(2), ..HwlatSample::default() };
    for value_ns in [9_000, 8_000] {
        collector.add(&Sample { hwlat: Some(hwlat), ..sample(value_ns) });
    }
    let batch = collector.take(5_000);
    let expected = HwlatRecord { cpu: CpuId(1), at_ns: 2_000, sample: hwlat };
    assert_eq!((batch.hwlat, batch.spikes.len()), (vec![expected; 2], 1), "also those that are no spike");
    assert!(collector.take(6_000).hwlat.is_empty());
}
