//! x11perf on an X server that the load starts, where both are installed.

use std::path::Path;
use std::time::{Duration, Instant};
use whylate_core::plan::{GraphicsMethod, GraphicsPlan, LoadKind};
use whylate_core::{CpuId, CpuSelector, CpuSet, Facts};
use whylate_load::{Load, LoadError, LoadSpec, LoadStatus};
use whylate_sys::process::Launcher;
use whylate_sys::schedule::allowed_of_this_thread;
use whylate_testing::{Need, skip};

const CHILD: &str = env!("CARGO_BIN_EXE_whylate-load-child");
/// x11perf calibrates itself for some seconds, on a busy machine for many.
const READY: Duration = Duration::from_secs(100);

fn facts() -> Facts {
    let mut facts = Facts::default();
    let all = allowed_of_this_thread().unwrap();
    for set in [&mut facts.cpu_sets.present, &mut facts.cpu_sets.online, &mut facts.cpu_sets.allowed] {
        set.clone_from(&all);
    }
    facts
}

fn spec(plan: &GraphicsPlan, output: &Path) -> Result<LoadSpec, LoadError> {
    let target = CpuSet::single(last());
    let mut spec = LoadSpec::resolve(&LoadKind::Graphics(plan.clone()), &target, &facts())?;
    spec.work.set_output(output.to_owned());
    Ok(spec)
}

fn last() -> CpuId {
    allowed_of_this_thread().unwrap().last().unwrap()
}

fn first() -> CpuId {
    allowed_of_this_thread().unwrap().first().unwrap()
}

/// Processes that descend from `parent`, with their names and the CPUs that they may use.
fn descendants(parent: u32) -> Vec<(u32, String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let field = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.trim().to_owned()
        };
        if field("PPid:") == parent.to_string() {
            found.push((pid, field("Name:"), field("Cpus_allowed_list:")));
            found.extend(descendants(pid));
        }
    }
    found
}

fn xvfb() -> GraphicsPlan {
    let here = |cpu| CpuSelector::List(CpuSet::single(cpu));
    GraphicsPlan {
        method: GraphicsMethod::X11perf,
        server: Some("xvfb".to_owned()),
        cpus: here(last()),
        server_cpus: Some(here(first())),
        ..GraphicsPlan::default()
    }
}

#[test]
fn x11perf_and_its_server_run_on_their_cpus_and_report_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let spec = match spec(&xvfb(), &output) {
        Ok(spec) => spec,
        Err(LoadError::Unavailable(reason)) => return skip(Need::Program("xvfb and x11-apps"), reason),
        Err(error) => panic!("{error}"),
    };
    let mut load = Load::start(&Launcher { program: CHILD.into() }, &spec).unwrap();
    let ready = load.wait_ready(READY).unwrap();
    assert!(ready.detail.contains("x11perf") && ready.detail.contains("Xvfb :"), "{}", ready.detail);
    let processes = descendants(load.pid());
    for (name, cpu) in [("x11perf", last()), ("Xvfb", first())] {
        let (.., cpus) = processes.iter().find(|(_, found, _)| found == name).unwrap();
        assert_eq!(*cpus, cpu.to_string(), "{name}");
    }
    std::thread::sleep(Duration::from_secs(3));
    let rates = load.stop().unwrap().rates;
    assert!(!rates.is_empty() && rates.iter().all(|rate| rate.value > 0.0), "{rates:?}");
    assert_eq!(descendants(std::process::id()).iter().filter(|(_, name, _)| name == "Xvfb").count(), 0);
}

#[test]
fn a_server_that_is_killed_ends_the_load() {
    let folder = tempfile::tempdir().unwrap();
    let Ok(spec) = spec(&xvfb(), &folder.path().join("output")) else {
        return skip(Need::Program("xvfb and x11-apps"), "no Xvfb here");
    };
    let mut load = Load::start(&Launcher { program: CHILD.into() }, &spec).unwrap();
    let limit = Instant::now() + READY;
    let server = loop {
        let found = descendants(load.pid()).into_iter().find(|(_, name, _)| name == "Xvfb");
        match found {
            Some((pid, ..)) => break pid,
            None => assert!(Instant::now() < limit, "no server was started"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let pid = rustix::process::Pid::from_raw(server as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let killed = Instant::now();
    while !matches!(load.status(), LoadStatus::Died(_)) {
        assert!(killed.elapsed() < Duration::from_secs(10), "the load does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn missing_displays_and_programs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let started = Instant::now();
    let nowhere = GraphicsPlan { server: Some(":987".to_owned()), ..GraphicsPlan::default() };
    match spec(&nowhere, &output) {
        Ok(spec) => {
            let mut load = Load::start(&Launcher { program: CHILD.into() }, &spec).unwrap();
            let error = load.wait_ready(READY).unwrap_err().to_string();
            assert!(error.contains("unable to open display") && error.contains(":987"), "{error}");
            assert!(started.elapsed() < Duration::from_secs(30));
        }
        Err(LoadError::Unavailable(reason)) => assert!(reason.contains("x11-apps"), "{reason}"),
        Err(error) => panic!("{error}"),
    }
    for method in [GraphicsMethod::DrmDraw, GraphicsMethod::DrmFlip] {
        let plan = GraphicsPlan { method, device: Some("/dev/null".into()), ..GraphicsPlan::default() };
        let error = spec(&plan, &output).unwrap_err();
        assert!(matches!(error, LoadError::Unavailable(_)), "{error}");
        assert!(error.to_string().contains("/dev/null"), "{error}");
    }
}
