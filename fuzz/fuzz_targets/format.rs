//! Event formats: no text may panic the parser, and no record what it made of it.
//!
//! Input: the text of a format file; after a NUL byte, a record.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whylate_trace::parse::bytes::ByteOrder;
use whylate_trace::parse::format::Outline;
use whylate_trace::parse::symbols::Symbols;
use whylate_trace::parse::texts::Texts;
use whylate_trace::parse::tracepoint::{Decoder, Kernel, Release};

fuzz_target!(|bytes: &[u8]| {
    let split = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (text, record) = (String::from_utf8_lossy(&bytes[..split]), bytes.get(split + 1..).unwrap_or(&[]));
    // Which events are known depends on the system; the record's length chooses it.
    let systems = ["sched", "ftrace", "timer", "irq", "ipi", "osnoise", "preemptirq", "syscalls"];
    let Ok(outline) = Outline::parse(systems[record.len() % systems.len()], text.into_owned()) else { return };
    let Ok(format) = outline.format() else { return };
    for field in &format.fields {
        let value = field.bytes(record, ByteOrder::Little);
        assert!(value.is_none_or(|value| value.len() <= record.len()));
        let _ = (field.signed(record, ByteOrder::Big), field.text(record, ByteOrder::Little));
    }
    let mut texts = Texts::default();
    let release = Release::parse(&format.name);
    let kernel = Kernel { order: ByteOrder::Little, long_bytes: 8, release };
    let mut decoder = Decoder::new(kernel, [outline], &Symbols::default(), &mut texts);
    let mut typed = record.to_vec();
    if let Some(kind) = typed.get_mut(..2) {
        kind.copy_from_slice(&format.id.to_le_bytes());
    }
    let _ = decoder.decode(&typed, &mut texts);
});
