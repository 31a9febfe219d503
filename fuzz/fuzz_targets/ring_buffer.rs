//! Raw pages with the formats of a real kernel: their contents may be anything.
//!
//! Input: a byte (1: big-endian, 2: 32-bit longs, 4: pages of 4 KiB instead of 128 bytes), then pages.

#![no_main]

#[allow(dead_code)]
#[path = "../src/lines.rs"]
mod lines;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use std::path::Path;
use std::sync::LazyLock;
use whylate_core::CpuId;
use whylate_trace::internal::{
    Algorithm, Cursor, Decoder, Input, Item, Kernel, Merge, Pages, Symbols, Texts, Unpacker, Wanted,
};
use whylate_trace::parse::{ByteOrder, EventFormat, PageLayout};

macro_rules! formats {
    ($($system:literal / $event:literal),* $(,)?) => {
        [$(($system, include_str!(concat!(
            "../../fixtures/traces/raw-6.18-4k/events/", $system, "/", $event, "/format"
        )))),*]
    };
}

static FORMATS: LazyLock<Vec<EventFormat>> = LazyLock::new(|| {
    formats![
        "sched" / "sched_switch",
        "sched" / "sched_wakeup",
        "sched" / "sched_migrate_task",
        "timer" / "hrtimer_start",
        "timer" / "hrtimer_expire_entry",
        "irq" / "irq_handler_entry",
        "irq" / "softirq_entry",
        "ipi" / "ipi_send_cpumask",
        "power" / "cpu_idle",
        "raw_syscalls" / "sys_enter",
        "ftrace" / "print",
        "ftrace" / "bprint",
        "ftrace" / "bputs",
        "ftrace" / "kernel_stack",
    ]
    .iter()
    .map(|(system, text)| EventFormat::parse(system, (*text).to_owned()).expect("a real format"))
    .collect()
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| { lines::of_binary(data, size, max_size, seed) });

fuzz_target!(|bytes: &[u8]| {
    let Some((flags, pages)) = bytes.split_first() else { return };
    let order = if flags & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let long = if flags & 2 == 0 { 8 } else { 4 };
    let page_bytes = if flags & 4 == 0 { 128 } else { 4096 };
    let header = format!(
        "field: u64 timestamp; offset:0; size:8; signed:0;\nfield: local_t commit; offset:8; size:{long}; signed:1;\nfield: char data; offset:{}; size:{}; signed:0;",
        8 + long,
        page_bytes - 8 - long
    );
    let layout = PageLayout::parse(&header, order).expect("a page");
    let half = pages.len() / page_bytes / 2 * page_bytes;
    let rest = (pages.len() - half) / page_bytes * page_bytes;
    let input = Input::memory(Path::new("fuzz.raw"), pages);
    let mut cursors = Vec::new();
    for (cpu, (offset, length)) in [(0, half), (half, rest)].into_iter().enumerate() {
        let pages = Pages::plain(&input, offset as u64, length as u64, page_bytes).expect("whole pages");
        cursors.push(Cursor::new(CpuId(cpu as u32), layout, pages));
    }
    let mut merge = Merge::new(Unpacker::new(Algorithm::None), cursors);
    let mut texts = Texts::default();
    let kernel = Kernel { order, long_bytes: long, release: None };
    let mut decoder = Decoder::new(kernel, FORMATS.iter().cloned(), &Symbols::default(), &mut texts);
    let mut seen = 0;
    loop {
        assert!(seen <= pages.len(), "more items than bytes");
        seen += 1;
        match merge.take() {
            Ok(Some((cursor, Item::Record(_)))) => {
                let _ = decoder.decode(merge.cursor(cursor).data(), &mut texts);
            }
            Ok(Some(_)) | Err(_) => {}
            Ok(None) => break,
        }
    }
    let wanted = Wanted::only(decoder.wakeups(&mut texts));
    merge.seek(Some(&|time| time < 1 << 40), wanted).expect("memory can be read");
});
