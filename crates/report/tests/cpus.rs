//! The CPU table as a reader sees it.

use whylate_core::CpuId;
use whylate_core::record::InterruptRecord;
use whylate_core::result::{
    CpuRow, CpuTable, IdleLimit, L3Domain, LineRow, Shielding, ThreadCounts, ThreadKind, ThreadRow,
};
use whylate_core::{Warning, WarningCode};
use whylate_report::{Style, cpus};

fn row(cpu: u32, is_shielded: bool) -> CpuRow {
    CpuRow {
        cpu: CpuId(cpu),
        chip: Some(0),
        core: Some(cpu % 2),
        hardware_thread: Some(cpu / 2),
        siblings: ((cpu + 2) % 4).to_string().parse().unwrap(),
        node: Some(0),
        online: true,
        shielding: Shielding {
            processes: Some(is_shielded),
            interrupts: Some(is_shielded),
            local_timer: Some(is_shielded && cpu == 3),
        },
        threads: Some(ThreadCounts {
            movable: if is_shielded { 0 } else { 212 },
            bound: 1,
            pinned: 6,
            workers: 3,
        }),
        interrupts: vec![InterruptRecord {
            cpu: CpuId(cpu),
            line: "LOC".to_owned(),
            description: "Local timer interrupts".to_owned(),
            count: 251,
        }],
        tick_stopped: Some(is_shielded),
        frequency_hz: Some(3_600_000_000),
        governor: Some("performance".to_owned()),
        idle_limit: Some(IdleLimit { name: "C1".to_owned(), exit_latency_ns: Some(2_000) }),
        l3: Some(L3Domain { id: Some(0), cpus: "0-3".parse().unwrap() }),
        ..CpuRow::default()
    }
}

fn table() -> CpuTable {
    let thread = |tid, name: &str, kind, cpus: &str| ThreadRow {
        pid: tid,
        tid,
        name: name.to_owned(),
        kind,
        kernel: kind == ThreadKind::Pinned,
        policy: "other".to_owned(),
        priority: None,
        cpus: cpus.parse().unwrap(),
    };
    let offline = CpuRow { cpu: CpuId(1), chip: Some(0), core: Some(1), ..CpuRow::default() };
    CpuTable {
        interval_ns: 1_000_000_000,
        cpus: vec![row(0, false), offline, row(2, true), row(3, true)],
        threads: vec![
            thread(1, "systemd", ThreadKind::Movable, "0"),
            thread(7, "migration/3", ThreadKind::Pinned, "3"),
            thread(8, "control-loop", ThreadKind::Bound, "3"),
        ],
        lines: vec![LineRow {
            line: 125,
            description: "IR-PCI-MSIX-0000:02:00.0 3-edge nvme0q3".to_owned(),
            cpus: "2".parse().unwrap(),
            effective: Some("2".parse().unwrap()),
            movable: false,
        }],
        warnings: vec![Warning::new(WarningCode::TimersHidden, "ticks are not known")],
        ..CpuTable::default()
    }
}

#[test]
fn table_at_100_columns() {
    let text = cpus(&table(), false).terminal(Style { color: false, width: 100 });
    assert!(text.lines().all(|line| line.chars().count() <= 100));
    insta::assert_snapshot!(text);
}

#[test]
fn all_columns_have_room_or_a_table_of_their_own() {
    for width in [60, 80, 100, 160] {
        let text = cpus(&table(), true).terminal(Style { color: false, width });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
        for title in
            ["cpu", "ht-siblings", "shielding", "movable", "irq/s", "MHz", "idle limit", "L3", "node"]
        {
            assert!(text.contains(title), "{title} at {width}:\n{text}");
        }
    }
    let coloured = cpus(&table(), true).terminal(Style { color: true, width: 100 });
    assert!(coloured.contains("\u{1b}[32mproc irq ltmr"), "{coloured}");
}
