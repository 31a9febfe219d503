use super::*;
use std::path::Path;
use whylate_core::WarningCode;
use whylate_core::plan::{Plan, Source};
use whylate_core::{CpuId, Facts};

fn experiment(tracers: &[&str], more: &str) -> Experiment {
    let probes: String = tracers
        .iter()
        .map(|tracer| format!("[[probe]]\nkind = \"tracer\"\ntracer = \"{tracer}\"\n"))
        .collect();
    let text = format!("name = \"t\"\n[target]\ncpus = \"1\"\n{probes}{more}");
    let mut facts = Facts::default();
    for set in [&mut facts.cpu_sets.present, &mut facts.cpu_sets.online, &mut facts.cpu_sets.allowed] {
        *set = "0-1".parse().unwrap();
    }
    let plan = Plan::parse(&Source { name: "t.toml", text: &text }, &[]).unwrap();
    crate::prepare(plan, facts, false).unwrap()
}

/// A host whose kernel was built with these tracers.
fn host(folder: &Path, tracers: &str) -> HostRoot {
    let tracefs = folder.join("sys/kernel/tracing");
    std::fs::create_dir_all(&tracefs).unwrap();
    std::fs::write(tracefs.join("trace_clock"), "[local] mono\n").unwrap();
    std::fs::write(tracefs.join("available_tracers"), tracers).unwrap();
    HostRoot::at(folder)
}

fn collector(tracer: &str) -> Collector {
    collector_keeping(tracer, 32)
}

fn collector_keeping(tracer: &str, spikes_kept: usize) -> Collector {
    let mut experiment = experiment(&[tracer], "");
    let spec = &mut experiment.probes[0][0];
    spec.spikes_kept = spikes_kept;
    let ProbeKind::Tracer { plan } = &spec.kind else { panic!("{spec:?}") };
    Collector::new(spec, plan, 1_000)
}

fn sample(value_ns: u64) -> Sample {
    Sample { cpu: CpuId(1), at_ns: 2_000, value_ns, lost_ns: 0, gaps: 0, in_interrupt: false }
}

#[test]
fn a_tracer_that_the_kernel_lacks_is_left_out_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path(), "timerlat function nop");
    let left =
        check_tracers(experiment(&["hwlat", "timerlat"], "[[probe]]\nkind = \"timer\"\n"), &host).unwrap();
    let names: Vec<&str> = left.probes.iter().flatten().map(ProbeSpec::name).collect();
    assert_eq!(names, ["tracer", "timer"]);
    let warning = left.warnings.iter().find(|warning| warning.code == WarningCode::NoTracer).unwrap();
    assert!(warning.text.contains("CONFIG_HWLAT_TRACER is off"), "{warning:?}");
    let refused = check_tracers(experiment(&["osnoise"], ""), &host).unwrap_err();
    assert!(refused.to_string().contains("this kernel has no osnoise tracer"), "{refused}");
}

#[test]
fn a_companion_of_a_refused_tracer_measures_beside_what_is_left_or_for_its_own_time() {
    let folder = tempfile::tempdir().unwrap();
    let host = host(folder.path(), "nop");
    let histograms = "[[probe]]\nkind = \"histograms\"\n";
    let names = |experiment: &Experiment| -> Vec<Vec<&str>> {
        experiment.probes.iter().map(|group| group.iter().map(ProbeSpec::name).collect()).collect()
    };
    let planned = experiment(&["osnoise", "hwlat"], histograms);
    assert_eq!(names(&planned), [["tracer", "histograms"], ["tracer", "histograms"]]);
    let left = check_tracers(planned, &host).unwrap();
    assert_eq!(names(&left), [["histograms"]]);
    assert_eq!(left.probes[0][0].duration, left.plan.duration);
    let more = format!("{histograms}[[probe]]\nkind = \"timer\"\n");
    let left = check_tracers(experiment(&["osnoise"], &more), &host).unwrap();
    assert_eq!(names(&left), [["timer", "histograms"]]);
    let only = check_tracers(experiment(&[], histograms), &host).unwrap();
    assert_eq!(names(&only), [["histograms"]]);
}

#[test]
fn timerlat_has_a_part_until_the_interrupt() {
    let mut collector = collector("timerlat");
    assert!(collector.add(&Sample { in_interrupt: true, ..sample(300) }).is_none());
    let spike = collector.add(&sample(900)).unwrap();
    assert_eq!((spike.series.as_deref(), spike.latency_ns), (Some("timerlat"), 900));
    let batch = collector.take(5_000);
    let series: Vec<_> =
        batch.intervals.iter().map(|it| (it.series.as_deref().unwrap(), it.max_ns, it.gaps)).collect();
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
    assert_eq!((interval.gaps, interval.lost_ns, interval.samples), (Some(14), Some(10_000), 2));
}

#[test]
fn the_largest_samples_of_an_interval_are_kept_and_told() {
    let mut collector = collector_keeping("hwlat", 20);
    let told = (0..100).filter(|value| collector.add(&sample(*value)).is_some()).count();
    assert_eq!(told, 100, "each was among the largest when it came");
    assert!(collector.add(&sample(80)).is_none(), "twenty are as large");
    assert!(collector.add(&Sample { cpu: CpuId(0), ..sample(1) }).is_none(), "another CPU");
    let batch = collector.take(5_000);
    let kept: Vec<u64> = batch.spikes.iter().map(|spike| spike.latency_ns).collect();
    assert_eq!((kept, batch.intervals[0].samples), ((80..100).rev().collect::<Vec<u64>>(), 101));
    assert!(collector.add(&sample(1)).is_some(), "an interval of its own");
}
