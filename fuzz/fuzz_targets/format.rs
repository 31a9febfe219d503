//! Event formats: no text may panic the parser, and no record what it made of it.
//!
//! Input: the text of a format file; after a NUL byte, a record.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whylate_trace::internal::{Decoder, Kernel, Record, Release, Symbols, Texts};
use whylate_trace::parse::{ByteOrder, EventFormat};

fuzz_target!(|bytes: &[u8]| {
    let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, record) = (String::from_utf8_lossy(&bytes[..split]), bytes.get(split + 1..).unwrap_or(&[]));
    // Which events are known depends on the system; the record's length chooses it.
    let systems = ["sched", "ftrace", "timer", "irq", "ipi", "osnoise", "preemptirq", "syscalls"];
    let Ok(format) = EventFormat::parse(systems[record.len() % systems.len()], text.into_owned()) else { return };
    let Ok(fields) = format.fields() else { return };
    for field in &fields {
        let value = field.slot.bytes(Record { bytes: record, order: ByteOrder::Little });
        assert!(value.is_none_or(|value| value.len() <= record.len()));
        let _ = field.slot.value(Record { bytes: record, order: ByteOrder::Big });
    }
    let mut texts = Texts::default();
    let release = Release::parse(&format.name);
    let kernel = Kernel { order: ByteOrder::Little, long_bytes: 8, release };
    let id = format.id;
    let mut decoder = Decoder::new(kernel, [format], &Symbols::default(), &mut texts);
    let mut typed = record.to_vec();
    if let Some(kind) = typed.get_mut(..2) {
        kind.copy_from_slice(&id.to_le_bytes());
    }
    let _ = decoder.decode(&typed, &mut texts);
});
