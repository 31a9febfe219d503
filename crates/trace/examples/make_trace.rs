//! Makes a trace.dat (version 6) of any size, to try what a reader does with a big one.
//!
//! `make_trace PATH MEBIBYTES CPUS`: repeats the same 4 MiB of switches, wake-ups, interrupts and functions on each CPU,
//! later each time.

#![allow(clippy::print_stdout, reason = "a program")]

#[path = "../tests/binary/builder.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod builder;

use builder::{File, Machine, Pages};
use std::error::Error;
use std::io::{BufWriter, Write};
use whylate_trace::internal::Algorithm;
use whylate_trace::parse::ByteOrder;

const MACHINE: Machine = Machine { order: ByteOrder::Little, long_bytes: 8, page_bytes: 4096 };
const TEMPLATE_BYTES: u64 = 4 << 20;
/// Time between events.
const STEP_NS: u64 = 700;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, mebibytes, cpus] = &words[..] else { return Err("make_trace PATH MEBIBYTES CPUS".into()) };
    let (mebibytes, cpus): (u64, u64) = (mebibytes.parse()?, cpus.parse()?);
    let (template, events, span_ns) = template();
    let copies = (mebibytes << 20).div_ceil(cpus * template.len() as u64);
    let bytes = copies * template.len() as u64;
    let instances = vec![("", "local", vec![Vec::new(); cpus as usize])];
    let options = vec![(5, b"Linux made 6.1.0 x86_64\0".to_vec())];
    let mut head =
        File { machine: MACHINE, algorithm: Algorithm::None, instances, options, text: None }.version6();
    let list = head.windows(10).position(|window| window == b"flyrecord\0").ok_or("no list of CPUs")? + 10;
    for cpu in 0..cpus {
        let at = list + 16 * cpu as usize;
        let offset = head.len() as u64 + cpu * bytes;
        head[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        head[at + 8..at + 16].copy_from_slice(&bytes.to_le_bytes());
    }
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    file.write_all(&head)?;
    for cpu in 0..cpus {
        for copy in 0..copies {
            for page in template.chunks(MACHINE.page_bytes) {
                let time = u64::from_le_bytes(page[..8].try_into()?) + copy * span_ns + cpu * 97;
                file.write_all(&time.to_le_bytes())?;
                file.write_all(&page[8..])?;
            }
        }
    }
    file.flush()?;
    println!("{} events in {} bytes, of {} ns", events * copies * cpus, bytes * cpus, copies * span_ns);
    Ok(())
}

/// Pages, the number of their events, and the time that they span.
fn template() -> (Vec<u8>, u64, u64) {
    let mut pages = Pages::new(MACHINE);
    let (mut time, mut events, mut bytes) = (1_000_000_000u64, 0u64, 0u64);
    while bytes < TEMPLATE_BYTES {
        time += STEP_NS;
        let pid = 100 + (events / 10 % 50) as u32;
        let record = match events % 10 {
            0 => MACHINE.switch(pid, events / 10 % 2, pid + 1),
            1 => MACHINE.wakeup(pid, pid + 2, 1),
            2 | 3 => MACHINE.irq(pid, 25, "virtio0-requests"),
            _ => MACHINE.function(pid, 0xffff_ffff_8100_0104, 0xffff_ffff_8100_0010),
        };
        bytes += record.len() as u64 + 4;
        events += 1;
        pages.event(time, &record);
    }
    (pages.finish(), events, time - 1_000_000_000 + STEP_NS)
}
