//! Files made here, of all byte orders, word sizes, page sizes, versions and algorithms: every event comes back, in
//! order, whole or from any moment on.

use crate::builder::{File, Machine, Pages};
use crate::golden::events;
use proptest::prelude::*;
use std::path::Path;
use whylate_trace::event::{Event, EventKind, Symbol, TaskState};
use whylate_trace::internal::{Algorithm, Input, open_trace_dat};
use whylate_trace::parse::{BufferReader, ByteOrder, ParseError, Source};
use whylate_trace::reader::{Reader, Selection};

pub(crate) const LITTLE: Machine = Machine { order: ByteOrder::Little, long_bytes: 8, page_bytes: 4096 };
const BIG: Machine = Machine { order: ByteOrder::Big, long_bytes: 4, page_bytes: 8192 };

pub(crate) fn read(bytes: Vec<u8>) -> Result<BufferReader, ParseError> {
    open_trace_dat(&Input::memory(Path::new("made.dat"), bytes))
}

/// A few events of each kind on one CPU.
pub(crate) fn sample(machine: Machine, begin: u64) -> Vec<u8> {
    let mut pages = Pages::new(machine);
    pages.event(begin, &machine.switch(7, 1, 9));
    pages.event(begin + 10, &machine.wakeup(9, 11, 2));
    pages.discarded(begin + 20, 24);
    pages.event(begin + 30, &machine.irq(9, 25, "virtio0-requests-and-more"));
    pages.event(begin + (1 << 28), &machine.function(9, 0xffff_ffff_8100_0104, 0xffff_ffff_8100_0000));
    pages.lose(Some(77));
    pages.event(begin + (1 << 29), &machine.print(9, &"a long marker ".repeat(10)));
    pages.event(begin + (1 << 29) + 1, &machine.unnamed(9));
    pages.finish()
}

pub(crate) fn file(machine: Machine, algorithm: Algorithm) -> File<'static> {
    let options = vec![
        (2, b"CPU: 0\nentries: 3\noverrun: 5\ncommit overrun: 0\n\0".to_vec()),
        (4, b"local [mono] boot\0".to_vec()),
        (5, b"Linux host 6.18.1 riscv64\0".to_vec()),
        (8, machine.u32(3).to_vec()),
        (4711, b"an option of the future".to_vec()),
    ];
    let cpus = vec![sample(machine, 1000), Vec::new(), sample(machine, 1005)];
    File { machine, algorithm, instances: vec![("", "mono", cpus)], options, text: None }
}

fn all_files() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for machine in [LITTLE, BIG] {
        files.push((format!("6 {machine:?}"), file(machine, Algorithm::None).version6()));
        for algorithm in [Algorithm::None, Algorithm::Zlib, Algorithm::Zstandard] {
            files.push((format!("7 {machine:?} {algorithm:?}"), file(machine, algorithm).version7()));
        }
    }
    files
}

#[test]
fn a_file_with_text_is_read_as_that_text() {
    const TEXT: &str = "# tracer: irqsoff\n# latency: 999 us, #4/4, CPU#1 | (M:preempt VP:0, KP:0, SP:0 HP:0 #P:2)\n\
        \x20     ls-64        1d..1.  993us : _raw_spin_unlock_irqrestore <-uart_write\n";
    let mut files = vec![File { text: Some(TEXT), ..file(BIG, Algorithm::None) }.version6()];
    for algorithm in [Algorithm::None, Algorithm::Zlib, Algorithm::Zstandard] {
        files.push(File { text: Some(TEXT), ..file(LITTLE, algorithm) }.version7());
    }
    for bytes in files {
        let mut reader =
            whylate_trace::parse::from_source(Source::memory("made.dat", bytes).unwrap()).unwrap();
        let event = reader.next().unwrap().unwrap();
        assert!(matches!(event.kind, EventKind::Function { .. }), "{event:?}");
        assert_eq!(reader.info().facts.latency_ns, Some(999_000));
        assert_eq!(reader.info().format, "trace.dat with text");
    }
}

#[test]
fn every_kind_of_file_gives_the_same_events() {
    for (name, bytes) in all_files() {
        let mut reader = read(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        let all = events(&mut reader);
        check_sample(&name, &reader, &all);
        let info = reader.info();
        assert_eq!(info.clock.as_deref(), Some("mono"), "{name}");
        assert_eq!((info.kernel.as_deref(), info.cpus), (Some("6.18.1"), Some(3)), "{name}");
        assert_eq!(
            info.lost.iter().map(|(cpu, lost)| (cpu.0, *lost)).collect::<Vec<_>>(),
            [(0, 5)],
            "{name}"
        );
    }
}

fn check_sample(name: &str, reader: &BufferReader, all: &[Event]) {
    assert_eq!(all.len(), 14, "{name}");
    assert!(all.is_sorted_by_key(|event| event.at_ns), "{name}");
    let of_first: Vec<&Event> = all.iter().filter(|event| event.cpu.0 == 0).collect();
    let [switch, wakeup, irq, function, lost, print, unnamed] = of_first[..] else {
        panic!("{name}: {all:?}")
    };
    let text = |name| reader.names().text(name);
    let EventKind::Switch { previous, state, next } = switch.kind else { panic!("{name}: {switch:?}") };
    assert_eq!((previous.pid, text(previous.command), previous.priority), (7, "task-7", 120), "{name}");
    assert_eq!((next.pid, text(next.command), next.priority), (9, "task-9", 98), "{name}");
    assert_eq!((state, switch.at_ns, switch.pid), (TaskState::Blocked('S'), 1000, Some(7)), "{name}");
    assert_eq!(switch.command.map(text), Some("saved-seven"), "{name}");
    let context = switch.context;
    assert_eq!((context.irqs_off, context.need_resched), (Some(true), true), "{name}");
    assert_eq!((context.preempt_depth, context.migrate_disable), (Some(1), Some(2)), "{name}");
    let EventKind::Wakeup { task, target_cpu } = wakeup.kind else { panic!("{name}: {wakeup:?}") };
    assert_eq!((task.pid, task.priority, target_cpu.0, wakeup.at_ns), (11, -1, 2, 1010), "{name}");
    let EventKind::IrqEntry { irq: 25, name: line } = irq.kind else { panic!("{name}: {irq:?}") };
    assert_eq!((text(line), irq.at_ns), ("virtio0-requests-and-more", 1030), "{name}");
    let EventKind::Function { function: symbol @ Symbol::Address(_), .. } = function.kind else {
        panic!("{name}")
    };
    let known = reader.symbol(symbol).unwrap();
    assert!(matches!(known, ("do_one" | "in_32_bits", 4)), "{name}: {known:?}");
    assert_eq!(function.at_ns, 1000 + (1 << 28), "{name}");
    assert_eq!(lost.kind, EventKind::Lost { events: Some(77) }, "{name}");
    let EventKind::Print { text: marker } = print.kind else { panic!("{name}: {print:?}") };
    assert!(text(marker).starts_with("a long marker a") && text(marker).ends_with(' '), "{name}");
    assert!(matches!(unnamed.kind, EventKind::Other { system: None, .. }), "{name}: {unnamed:?}");
}

#[test]
fn instances_with_the_same_clock_are_merged() {
    let mut made = file(LITTLE, Algorithm::Zlib);
    made.instances.push(("second", "mono", vec![sample(LITTLE, 1002), Vec::new(), Vec::new()]));
    made.instances.push(("other", "local", vec![sample(LITTLE, 5), Vec::new(), Vec::new()]));
    let mut reader = read(made.version7()).unwrap();
    let all = events(&mut reader);
    assert_eq!(all.len(), 21);
    assert!(all.is_sorted_by_key(|event| event.at_ns));
    made.instances.pop();
    let of_6 = events(&mut read(made.version6()).unwrap());
    assert_eq!(of_6.len(), all.len());
    assert!(
        of_6.iter()
            .zip(&all)
            .all(|(old, new)| (old.at_ns, old.cpu, old.kind) == (new.at_ns, new.cpu, new.kind))
    );
}

#[test]
fn offsets_and_cycles_move_the_times() {
    let mut made = file(LITTLE, Algorithm::None);
    made.options.push((7, b"-600\0".to_vec()));
    let first = events(&mut read(made.version7()).unwrap())[0];
    assert_eq!(first.at_ns, 400);
    made.options.push((14, [&LITTLE.u32(1 << 9)[..], &LITTLE.u32(8), &LITTLE.u64(100)].concat()));
    made.instances[0].1 = "x86-tsc";
    let mut reader = read(made.version7()).unwrap();
    assert_eq!(events(&mut reader)[0].at_ns, 2000 - 600 - 100);
    reader.seek(Some(1301), Selection::All).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().at_ns, 2010 - 700);
}

/// Times of one CPU: steps between events, some of them beyond what a delta holds.
fn steps() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![5 => 0u64..2000, 1 => (1u64 << 27) - 2..(1 << 27) + 2, 1 => 1u64 << 40..1 << 41];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_events_come_back_whole_and_from_any_moment(
        cpus in prop::collection::vec(steps(), 1..4),
        big in any::<bool>(),
        seven in any::<bool>(),
        from in 0.0f64..1.1,
    ) {
        let machine = if big { BIG } else { LITTLE };
        let mut expected = Vec::new();
        let mut data = Vec::new();
        for (cpu, steps) in cpus.iter().enumerate() {
            let (mut pages, mut time) = (Pages::new(machine), 1u64 << 59);
            for (index, step) in steps.iter().enumerate() {
                time += step;
                match index % 7 {
                    3 => pages.stamp(time),
                    5 => time = pages.discarded(time, 8),
                    kind => {
                        let record = if kind == 2 { machine.unnamed(1) } else { machine.switch(1, 0, index as u32) };
                        pages.event(time, &record);
                        expected.push((time, cpu as u32, kind != 2));
                    }
                }
            }
            data.push(pages.finish());
        }
        expected.sort_by_key(|(time, cpu, _)| (*time, *cpu));
        let made = File { machine, algorithm: if big { Algorithm::None } else { Algorithm::Zlib }, instances: vec![("", "local", data)], options: Vec::new(), text: None };
        let mut reader = read(if seven { made.version7() } else { made.version6() }).unwrap();
        let seen = |events: &[Event]| events.iter().map(|event| (event.at_ns, event.cpu.0)).collect::<Vec<_>>();
        let all = events(&mut reader);
        let times: Vec<(u64, u32)> = expected.iter().map(|(time, cpu, _)| (*time, *cpu)).collect();
        prop_assert_eq!(&seen(&all), &times);
        let (first, last) = (1u64 << 59, times.last().map_or(0, |(time, _)| *time));
        let from_ns = first + ((last.saturating_sub(first)) as f64 * from) as u64;
        reader.seek(Some(from_ns), Selection::Wakeups).unwrap();
        let selected = events(&mut reader);
        let wanted: Vec<(u64, u32)> = expected
            .iter()
            .filter(|(time, _, wanted)| *time >= from_ns && *wanted)
            .map(|(time, cpu, _)| (*time, *cpu))
            .collect();
        prop_assert_eq!(seen(&selected), wanted);
    }
}
