//! The CPU table of invented machines, and of the machine that runs the tests.

use std::path::Path;
use whylate_core::CpuSet;
use whylate_core::result::{CpuTable, ThreadCounts, ThreadKind};
use whylate_core::units::CpuId;
use whylate_host::HostRoot;
use whylate_host::cpu_table::Sampler;
use whylate_host::facts::collect;
use whylate_lab::archive;

fn table(name: &str, change: impl Fn(String) -> String) -> (CpuTable, tempfile::TempDir) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/hosts/{name}.tree"));
    let text = std::fs::read_to_string(path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    archive::unpack(&change(text), folder.path()).unwrap();
    let root = HostRoot::at(folder.path());
    let (facts, _) = collect(&root);
    let mut sampler = Sampler::start(&root).unwrap();
    (sampler.table(&facts).unwrap(), folder)
}

fn with_processes(table: &CpuTable) -> String {
    let shielded = table.cpus.iter().filter(|row| row.shielding.processes == Some(true));
    shielded.map(|row| row.cpu).collect::<CpuSet>().to_string()
}

#[test]
fn a_tuned_machine() {
    let (table, _folder) = table("rt-tuned", |text| text);
    assert_eq!(with_processes(&table), "2-3");
    let row = |cpu| table.row(CpuId(cpu)).unwrap();
    assert_eq!(row(2).shielding.interrupts, Some(true), "the line there is managed");
    assert_eq!(row(0).shielding.interrupts, Some(false));
    assert_eq!((row(3).shielding.local_timer, row(1).shielding.local_timer), (Some(true), Some(false)));
    assert_eq!((row(3).tick_stopped, row(0).tick_stopped), (Some(true), Some(false)));
    assert_eq!(row(3).threads, Some(ThreadCounts { movable: 0, bound: 1, pinned: 4, workers: 1 }));
    let bound: Vec<&str> = table.threads_on(CpuId(3), ThreadKind::Bound).map(|t| t.name.as_str()).collect();
    assert_eq!(bound, ["control-loop"]);
    let fixed: Vec<u32> = table.lines_on(CpuId(2), false).map(|line| line.line).collect();
    assert_eq!(fixed, [125]);
    assert_eq!(row(2).idle_limit.as_ref().map(|limit| limit.name.as_str()), Some("C1"));
    assert_eq!(
        row(3).idle_limit.as_ref().map(|limit| limit.name.as_str()),
        Some("POLL"),
        "no latency allowed"
    );
    assert_eq!(
        (row(1).frequency_hz, row(1).l3.as_ref().and_then(|l3| l3.id)),
        (Some(3_600_000_000), Some(0))
    );
    assert_eq!(table.warnings, []);
}

#[test]
fn one_stray_thread_opens_the_shield() {
    let stray = "== proc/800/task/800/stat := 800 (stray) S 1 0 0 0 -1 0\n\
                 == proc/800/task/800/status := Cpus_allowed_list:\t0-3\n";
    let (table, _folder) = table("rt-tuned", |text| text + stray);
    assert_eq!(with_processes(&table), "");
    let names: Vec<&str> = table.threads_on(CpuId(2), ThreadKind::Movable).map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["stray"]);
}

#[test]
fn topologies_and_what_cannot_be_seen() {
    let (smt, _folder) = table("desktop-smt", |text| text);
    let row = smt.row(CpuId(11)).unwrap();
    assert_eq!(
        (row.chip, row.core, row.hardware_thread, row.siblings.to_string()),
        (Some(0), Some(3), Some(1), "3".into())
    );
    let codes: Vec<&str> = smt.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, ["threads-hidden", "interrupt-lines-hidden", "timers-hidden"]);
    assert_eq!((row.shielding.processes, row.shielding.interrupts, row.threads), (None, None, None));

    let (numa, _folder) = table("server-numa", |text| text);
    let offline = numa.row(CpuId(15)).unwrap();
    assert!(!offline.online && offline.threads.is_none() && offline.shielding.local_timer.is_none());
    assert_eq!(numa.row(CpuId(9)).unwrap().node, Some(1));

    let (hybrid, _folder) = table("laptop-hybrid", |text| text);
    assert_eq!(hybrid.row(CpuId(9)).unwrap().kind.as_deref(), Some("efficiency"));
    let (arm, _folder) = table("board-arm64", |text| text);
    assert_eq!((arm.cpus.len(), arm.row(CpuId(4)).unwrap().l3.clone()), (8, None));
    let (container, _folder) = table("container-cgroup2", |text| text);
    assert_eq!(container.cpus.len(), 12);
}

#[test]
fn this_machine() {
    let (facts, _) = collect(&HostRoot::real());
    let mut sampler = Sampler::start(&HostRoot::real()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let table = sampler.table(&facts).unwrap();
    assert!(table.interval_ns >= 100_000_000);
    for row in table.cpus.iter().filter(|row| row.online) {
        let counts = row.threads.unwrap();
        assert!(counts.movable + counts.bound + counts.pinned + counts.workers > 0, "{row:?}");
    }
    let interrupts: usize = table.cpus.iter().map(|row| row.interrupts.len()).sum();
    assert!(interrupts > 0, "the timer at least");
}
