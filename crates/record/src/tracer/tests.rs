use super::*;
use std::fs;
use std::path::PathBuf;

/// A tracefs whose hwlat looks for `width_us` in each `window_us`.
fn tracefs(folder: &Path, width_us: &str, window_us: &str) -> PathBuf {
    let top = folder.join("sys/kernel/tracing");
    fs::create_dir_all(top.join("hwlat_detector")).unwrap();
    for (file, value) in [
        ("trace_clock", "[local] global mono\n"),
        ("available_tracers", "timerlat osnoise hwlat nop\n"),
        ("hwlat_detector/width", width_us),
        ("hwlat_detector/window", window_us),
        ("hwlat_detector/mode", "none [round-robin] per-cpu\n"),
    ] {
        fs::write(top.join(file), value).unwrap();
    }
    top
}

fn plan(tracer: Tracer) -> TracerPlan {
    TracerPlan {
        cpus: None,
        tracer,
        width: None,
        window: None,
        threshold: None,
        period: None,
        priority: None,
    }
}

/// Files below the top with their new values, in order.
fn written(top: &Path, plan: &TracerPlan) -> Vec<(String, String)> {
    let changes = settings(top, plan, &"1,3-4".parse().unwrap());
    let place = |change: Change| match change.target {
        Target::File { path, .. } => (path, change.new),
        other => panic!("{other:?}"),
    };
    let below = |(path, new): (String, String)| {
        (Path::new(&path).strip_prefix(top).unwrap().display().to_string(), new)
    };
    changes.into_iter().map(place).map(below).collect()
}

fn pairs(written: &[(String, String)]) -> Vec<(&str, &str)> {
    written.iter().map(|(file, value)| (file.as_str(), value.as_str())).collect()
}

#[test]
fn the_width_of_hwlat_is_below_its_window_at_every_moment() {
    let folder = tempfile::tempdir().unwrap();
    let top = tracefs(folder.path(), "500000\n", "1000000\n");
    let shorter = TracerPlan {
        width: Some(Nanos::from_millis(20)),
        window: Some(Nanos::from_millis(50)),
        threshold: Some(Nanos::from_micros(7)),
        ..plan(Tracer::Hwlat)
    };
    let expected = [
        ("hwlat_detector/mode", "round-robin"),
        ("hwlat_detector/width", "20000"),
        ("hwlat_detector/window", "50000"),
        ("tracing_thresh", "7"),
    ];
    assert_eq!(pairs(&written(&top, &shorter)), expected);
    // A width that the present window does not hold comes after the new window.
    let top = tracefs(folder.path(), "5000\n", "10000\n");
    let longer = plan(Tracer::Hwlat);
    let expected = [
        ("hwlat_detector/mode", "round-robin"),
        ("hwlat_detector/window", "1000000"),
        ("hwlat_detector/width", "950000"),
    ];
    assert_eq!(pairs(&written(&top, &longer)), expected);
}

#[test]
fn each_tracer_gets_its_own_settings_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let top = tracefs(folder.path(), "500000\n", "1000000\n");
    let osnoise = TracerPlan {
        width: Some(Nanos::from_millis(40)),
        window: Some(Nanos::from_millis(50)),
        ..plan(Tracer::Osnoise)
    };
    let expected =
        [("osnoise/cpus", "1,3-4"), ("osnoise/runtime_us", "40000"), ("osnoise/period_us", "50000")];
    assert_eq!(pairs(&written(&top, &osnoise)), expected);
    let timerlat = TracerPlan { period: Some(Nanos::from_micros(250)), ..plan(Tracer::Timerlat) };
    let expected = [("osnoise/cpus", "1,3-4"), ("osnoise/timerlat_period_us", "250")];
    assert_eq!(pairs(&written(&top, &timerlat)), expected);
}

#[test]
fn what_the_kernel_lacks_is_reported_precisely() {
    let folder = tempfile::tempdir().unwrap();
    let host = HostRoot::at(folder.path());
    fs::create_dir_all(folder.path().join("proc")).unwrap();
    fs::write(folder.path().join("proc/filesystems"), "nodev\tsysfs\n").unwrap();
    let refusal = |tracer| check_tracer(&host, tracer).unwrap_err().to_string();
    assert!(refusal(Tracer::Hwlat).contains("CONFIG_TRACING is off"), "{}", refusal(Tracer::Hwlat));
    let top = tracefs(folder.path(), "1", "2");
    assert!(check_tracer(&host, Tracer::Hwlat).is_ok());
    fs::write(top.join("available_tracers"), "blk function nop\n").unwrap();
    let expected = "this kernel has no timerlat tracer (CONFIG_TIMERLAT_TRACER is off; the tracers here are blk, function, nop)";
    assert_eq!(refusal(Tracer::Timerlat), expected);
}

#[test]
fn lines_become_samples() {
    let header = "# tracer: timerlat\n#\n";
    let thread =
        "      timerlat/1-1401  [001] .......   492.318937: #5 context thread timer_latency     43210 ns\n";
    let irq =
        "          <idle>-0     [001] d..h...   492.318930: #5 context    irq timer_latency      1830 ns\n";
    let (taken, lost) = samples([header, irq, thread].concat().into_bytes()).unwrap();
    let values: Vec<(u64, bool, u64)> =
        taken.iter().map(|sample| (sample.value_ns, sample.in_interrupt, sample.at_ns / 1_000)).collect();
    assert_eq!(values, [(1_830, true, 492_318_930), (43_210, false, 492_318_937)]);
    assert_eq!((lost, taken[0].cpu), (0, CpuId(1)));
    assert_eq!(comments(header.as_bytes()), header.len());
}
