//! Every load of the helper on whatever Vulkan there is (in CI lavapipe), by the lines that whylate and it speak.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use whylate_core::plan::{
    EventPace, FramebufferPlan, FramebufferVariant, GpuApi, GpuMemory, GpuPlan, GpuWait, GpuWork,
};
use whylate_core::result::{BackendFacts, CopyTable, MemoryFacts};
use whylate_core::{Bytes, CpuSet, Nanos};
use whylate_load::protocol::Message;
use whylate_load::{Events, LoadSpec, LoadWork};
use whylate_testing::{Need, skip};

const HELPER: &str = env!("CARGO_BIN_EXE_whylate-gpu");
/// Software drivers take all CPUs: one load at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn request(plan: GpuPlan, duration: Option<Nanos>) -> String {
    let allowed = whylate_sys::schedule::allowed_of_this_thread().unwrap();
    let cpus = CpuSet::single(allowed.last().unwrap());
    let work = LoadWork::Gpu(Events { plan, cpus, victims: None });
    let spec = LoadSpec { duration, interval: Nanos::from_millis(100), ..LoadSpec::new(work) };
    serde_json::to_string(&spec).unwrap()
}

fn spawn(command: &mut Command, request: &str) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "{request}").unwrap();
    child
}

/// What the helper says of a load that ends by itself; the time from its first rate to its last is the load's own.
fn said_by(command: &mut Command, plan: GpuPlan) -> Vec<Message> {
    let _alone = ALONE.lock();
    let mut child = spawn(command, &request(plan, Some(Nanos::from_secs(1))));
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    child.wait().unwrap();
    said
}

fn said(plan: GpuPlan) -> Vec<Message> {
    said_by(Command::new(HELPER).arg("internal-load"), plan)
}

fn small(work: GpuWork) -> GpuPlan {
    GpuPlan { work, size: Bytes(256 << 10), ..GpuPlan::default() }
}

/// Turns per second; `None`, said, where the machine lacks something.
fn rate(what: &str, said: &[Message]) -> Option<f64> {
    let (mut turns, mut seconds) = (0.0, 0.0);
    for message in said {
        match message {
            Message::Rate(rate) => {
                let interval = rate.interval_ns as f64 / 1e9;
                (turns, seconds) = (turns + rate.value * interval, seconds + interval);
            }
            Message::Unavailable(reason) => {
                skip(Need::Program("a Vulkan driver (mesa-vulkan-drivers)"), format!("{what}: {reason}"));
                return None;
            }
            Message::Error(error) => panic!("{what}: {error}"),
            _ => {}
        }
    }
    assert!(turns > 0.0, "{what}: {said:?}");
    Some(turns / seconds)
}

#[test]
fn every_load_runs_and_its_results_are_right() {
    for work in GpuWork::ALL {
        for memory in [GpuMemory::Device, GpuMemory::Pinned, GpuMemory::WriteCombined, GpuMemory::Imported] {
            let plan = GpuPlan { memory, ..small(work) };
            let said = said(plan);
            if rate(&format!("{work} in {memory} memory"), &said).is_some() {
                let detail = said.iter().find_map(|message| match message {
                    Message::Ready(ready) => Some(format!("{} {}", ready.detail, ready.version)),
                    _ => None,
                });
                let detail = detail.unwrap();
                assert!(
                    detail.contains("Vulkan on") && detail.ends_with(env!("CARGO_PKG_VERSION")),
                    "{detail}"
                );
            }
        }
    }
    for work in [GpuWork::CopyUp, GpuWork::CopyDown] {
        rate(
            "staged copies",
            &said(GpuPlan { memory: GpuMemory::Staged, wait: GpuWait::Spin, ..small(work) }),
        );
    }
}

#[test]
fn a_pace_is_kept() {
    let Some(free) = rate("a load without a pace", &said(small(GpuWork::Reduction))) else { return };
    // A software driver on a busy machine is slow: a pace that this machine can keep.
    let pace = (free / 4.0).min(50.0);
    let mut found = Vec::new();
    // A machine that stands still is no fault of the pace.
    for _ in 0..8 {
        let paced = GpuPlan { rate: EventPace::PerSecond(pace), ..small(GpuWork::Reduction) };
        let Some(rate) = rate("a paced load", &said(paced)) else { return };
        if (0.7..=1.3).contains(&(rate / pace)) {
            return;
        }
        found.push(rate);
    }
    panic!("{found:?} instead of {pace} per second; {free} without a pace");
}

/// The one line by which the helper says that it cannot.
fn refusal(said: &[Message]) -> String {
    let texts = said.iter().filter_map(|message| match message {
        Message::Unavailable(text) | Message::Error(text) => Some(text.clone()),
        _ => None,
    });
    let texts: Vec<String> = texts.collect();
    assert!(texts.len() == 1 && texts[0].lines().count() == 1, "{said:?}");
    texts[0].clone()
}

#[test]
fn what_is_missing_is_said_in_one_line() {
    let begin = Instant::now();
    let mut command = Command::new(HELPER);
    command.arg("internal-load");
    for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        command.env(variable, "/nonexistent");
    }
    let text = refusal(&said_by(&mut command, small(GpuWork::Reduction)));
    assert!(text.contains("no Vulkan"), "{text}");
    let unknown = GpuPlan { device: Some("no such device".to_owned()), ..small(GpuWork::Reduction) };
    let text = refusal(&said(unknown));
    assert!(text.contains("no Vulkan") || text.contains("finds no device `no such device`"), "{text}");
    assert!(begin.elapsed() < Duration::from_secs(30), "it took {:?}", begin.elapsed());
}

#[test]
fn memory_that_does_not_suffice_fails_the_load() {
    if rate("a load", &said(small(GpuWork::SubmitStorm))).is_none() {
        return;
    }
    // The address space of the process has no room for it.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v 3000000; exec {HELPER} internal-load")]);
    let text = refusal(&said_by(&mut command, GpuPlan { size: Bytes(4 << 30), ..small(GpuWork::CopyUp) }));
    assert!(text.contains("memory"), "{text}");
}

#[test]
fn it_ends_with_its_input() {
    let _alone = ALONE.lock();
    let mut child =
        spawn(Command::new(HELPER).arg("internal-load"), &request(small(GpuWork::Reduction), None));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.find(|line| line.as_ref().is_ok_and(|line| !line.contains("alive"))).unwrap().unwrap();
    drop(child.stdin.take());
    let ended = Instant::now();
    let status = child.wait().unwrap();
    if first.contains("unavailable") {
        return skip(Need::Program("a Vulkan driver (mesa-vulkan-drivers)"), first);
    }
    assert!(status.success() && ended.elapsed() < Duration::from_secs(10), "{status} after {first}");
}

#[test]
fn the_list_names_each_device_and_what_it_can() {
    let output = Command::new(HELPER).arg("list").output().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["format"], "whylate.gpus/1");
    match list["devices"].as_array().unwrap().as_slice() {
        [] => assert!(list["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{list}"),
        devices => {
            for device in devices {
                assert_eq!(device["loads"].as_object().unwrap().len(), GpuWork::ALL.len(), "{device}");
                assert!(device["name"].as_str().is_some_and(|name| !name.is_empty()), "{device}");
            }
        }
    }
}

/// The helper's answers to a request for the table of copies.
fn copies(request: &serde_json::Value) -> Vec<serde_json::Value> {
    let mut child = spawn(Command::new(HELPER).arg("copies"), &request.to_string());
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answers = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    child.wait().unwrap();
    answers
}

#[test]
fn memory_types_are_offered_and_copied_from_and_to() {
    let _alone = ALONE.lock();
    let output = Command::new(HELPER).arg("backends").output().unwrap();
    let backends: Vec<BackendFacts> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(backends.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["vulkan", "cuda", "card"]);
    let cpu = whylate_sys::schedule::current_cpu();
    for backend in backends {
        let request = serde_json::json!({
            "cpu": cpu, "methods": ["memcpy", "sse2-nt"], "backend": backend.name, "blocks": [256, 65536], "trials": 3,
        });
        let answers = copies(&request);
        let last = answers.last().unwrap();
        if let Some(reason) = backend.reason {
            skip(
                Need::Program("a Vulkan driver (mesa-vulkan-drivers)"),
                format!("{}: {reason}", backend.name),
            );
            assert!(last["error"].as_str().is_some_and(|error| error.contains(&reason)), "{last}");
            continue;
        }
        assert!(
            backend.offers.iter().all(|offer| offer.only_when_named && offer.device.is_some()),
            "{backend:?}"
        );
        let table: CopyTable = serde_json::from_value(last["table"].clone()).unwrap();
        // Into and out of each type of memory, by each method.
        assert_eq!(table.rows.len(), backend.offers.len() * 4, "{table:?}");
        for row in &table.rows {
            assert_eq!(row.backend, backend.name);
            assert!(
                backend.offers.iter().any(|it| it.device == row.device && it.mode == row.requested),
                "{row:?}"
            );
            assert!(
                row.blocks.len() == 2 && row.blocks.iter().all(|block| block.bytes_per_s > 0.0),
                "{row:?}"
            );
        }
        let of_it = |memory: &&MemoryFacts| memory.backend == backend.name;
        let timed = table.memory.iter().filter(of_it).collect::<Vec<_>>();
        assert!(
            timed.len() == backend.offers.len() && timed.iter().all(|it| it.reread_ns > 0.0),
            "{timed:?}"
        );
    }
}

/// What the helper says of a load of another kind, which is in memory that only drivers have.
fn said_of(work: LoadWork) -> Vec<Message> {
    let _alone = ALONE.lock();
    let duration = Some(Nanos::from_millis(300));
    let spec = LoadSpec { duration, interval: Nanos::from_millis(100), ..LoadSpec::new(work) };
    let request = serde_json::to_string(&spec).unwrap();
    let mut child = spawn(Command::new(HELPER).arg("internal-load"), &request);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    child.wait().unwrap();
    said
}

#[test]
fn frames_are_streamed_into_memory_of_a_driver_or_its_lack_is_said_in_one_line() {
    let allowed = whylate_sys::schedule::allowed_of_this_thread().unwrap();
    for backend in ["card", "vulkan", "cuda"] {
        for variant in [FramebufferVariant::AsIs, FramebufferVariant::Uncached] {
            let plan = FramebufferPlan {
                backend: Some(backend.to_owned()),
                variant,
                frame: Some(Bytes(256 << 10)),
                ..FramebufferPlan::default()
            };
            let cpus = CpuSet::single(allowed.last().unwrap());
            let said = said_of(LoadWork::Framebuffer(Events { plan, cpus, victims: None }));
            if rate(&format!("frames by {backend}, {variant}"), &said).is_none() {
                let text = refusal(&said);
                assert!(text.contains("framebuffer load") && text.contains(backend), "{text}");
            }
        }
    }
}

#[test]
fn memory_that_is_not_there_is_an_error_of_one_line() {
    let _alone = ALONE.lock();
    for (backend, device) in [("vulkan", "9:type9"), ("cuda", "99"), ("card", "9"), ("nothing", "0")] {
        let request = serde_json::json!({
            "cpu": 0, "methods": [], "backend": backend, "device": device, "blocks": [256], "trials": 1,
        });
        let answers = copies(&request);
        let error = answers.last().and_then(|last| last["error"].as_str()).unwrap_or_default();
        assert!(!error.is_empty() && error.lines().count() == 1, "{answers:?}");
    }
}

#[test]
fn cuda_does_its_works_or_says_in_one_line_what_is_missing() {
    for work in GpuWork::ALL {
        for memory in [GpuMemory::Device, GpuMemory::Pinned, GpuMemory::WriteCombined, GpuMemory::Managed] {
            let plan = GpuPlan { api: GpuApi::Cuda, memory, ..small(work) };
            let said = said(plan);
            let is_done = !matches!(work, GpuWork::Matrix | GpuWork::SubmitStorm | GpuWork::Poll);
            if !is_done {
                assert!(refusal(&said).contains("is done by Vulkan"), "{said:?}");
            } else if rate(&format!("{work} by CUDA in {memory} memory"), &said).is_none() {
                assert!(refusal(&said).contains("CUDA"), "{said:?}");
            }
        }
    }
}
