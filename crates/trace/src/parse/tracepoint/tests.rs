use super::context::Flags;
use super::*;
use crate::event::{Context, NoiseSource, OsnoiseSample, Symbol, TimerlatContext, Vector};
use crate::parse::printk::PrintkFormats;

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

/// A format whose fields follow the common ones: name, C type, size.
fn format(system: &str, name: &str, fields: &[(&str, &str, usize)]) -> EventFormat {
    let mut text = format!("name: {name}\nID: 300\nformat:\n{COMMON}");
    let mut offset = 8;
    for (field, kind, size) in fields {
        let signed = u8::from(!kind.starts_with('u'));
        let declaration = if let Some((kind, rest)) = kind.split_once('[') {
            format!("{kind} {field}[{rest}")
        } else {
            format!("{kind} {field}")
        };
        text.push_str(&format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n"));
        offset += size;
    }
    EventFormat::parse(system, text).unwrap()
}

/// The event of a record that has these bytes behind the common fields.
fn decoded(format: &EventFormat, payload: &[u8], texts: &mut Texts) -> EventKind {
    let kernel = Kernel { order: ByteOrder::Little, long_bytes: 8, release: None };
    let symbols = Symbols::parse("0000000000001000 T _stext\n".to_owned());
    let mut decoder = Decoder::new(kernel, [format.clone()], &symbols, texts);
    let record = [&300u16.to_le_bytes()[..], &[0, 0], &7u32.to_le_bytes(), payload].concat();
    decoder.decode(&record, texts).unwrap().kind
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn context(release: &str, lazy_count: bool, flags: u8, count: u8) -> Context {
    let more = if lazy_count { &[("common_preempt_lazy_count", "u8", 1)][..] } else { &[] };
    let format = format("sched", "x", more);
    let bytes = [0, 0, flags, count, 0, 0, 0, 0, 0];
    let record = Record { bytes: &bytes, order: ByteOrder::Little };
    Flags::new(&format.fields().unwrap(), Release::parse(release)).context(record)
}

#[test]
fn releases_are_understood() {
    let release = |text| Release::parse(text).map(|release| (release.version, release.realtime));
    assert_eq!(release("6.1.0-53-rt-amd64"), Some(((6, 1), true)));
    assert_eq!(release("6.6.30-rt30-custom"), Some(((6, 6), true)));
    assert_eq!(release("5.10.0-28-amd64"), Some(((5, 10), false)));
    assert_eq!(release("6.18"), Some(((6, 18), false)));
    assert_eq!(release("6.1.0-start-art"), Some(((6, 1), false)));
    assert_eq!(release("none"), None);
}

#[test]
fn bits_mean_what_they_meant_in_each_kernel() {
    let lazy = |release: &str, lazy_count: bool, flags: u8| {
        let context = context(release, lazy_count, flags, 0);
        (context.irqs_off, context.need_resched, context.need_resched_lazy)
    };
    // Mainline before and after 6.13.
    assert_eq!(lazy("6.1.0-amd64", false, 0x02), (None, false, false));
    assert_eq!(lazy("6.1.0-amd64", false, 0x05), (Some(true), true, false));
    assert_eq!(lazy("6.13.1", false, 0x02), (Some(false), false, true));
    assert_eq!(lazy("6.18.1", false, 0x05), (Some(true), true, false));
    // Real-time kernels.
    assert_eq!(lazy("5.10.5-rt3", true, 0x80), (Some(false), false, true));
    assert_eq!(lazy("6.1.0-53-rt-amd64", true, 0x21), (Some(true), false, true));
    assert_eq!(lazy("6.1.0-53-rt-amd64", true, 0x80), (Some(false), false, false));
    assert_eq!(lazy("6.6.30-rt30", false, 0x02), (Some(false), true, false));
    assert_eq!(lazy("6.6.30-rt30", false, 0x04), (Some(false), false, true));
    assert_eq!(lazy("6.12.5-rt", false, 0x02), (Some(false), false, true));
}

#[test]
fn the_count_has_two_halves_since_5_15() {
    let depths = |release| {
        let context = context(release, false, 0x58, 0x32);
        assert!(context.hard_irq && context.softirq && context.nmi);
        (context.preempt_depth, context.migrate_disable)
    };
    assert_eq!(depths("5.15.1"), (Some(2), Some(3)));
    assert_eq!(depths("5.10.1"), (Some(0x32), None));
}

#[test]
fn tracers_samples_have_their_units() {
    let mut texts = Texts::default();
    let fields = [("seqnum", "u32", 4), ("context", "int", 4), ("timer_latency", "u64", 8)];
    let payload = [&9u32.to_le_bytes()[..], &1u32.to_le_bytes(), &271_930u64.to_le_bytes()].concat();
    let sample = decoded(&format("ftrace", "timerlat", &fields), &payload, &mut texts);
    let expected = EventKind::Timerlat { sequence: 9, context: TimerlatContext::Thread, latency_ns: 271_930 };
    assert_eq!(sample, expected);
    let names = [
        "noise",
        "runtime",
        "max_sample",
        "hw_count",
        "nmi_count",
        "irq_count",
        "softirq_count",
        "thread_count",
    ];
    let fields = names.map(|name| (name, "u64", 8));
    let sample =
        decoded(&format("ftrace", "osnoise", &fields), &words(&[5, 100, 3, 1, 2, 3, 4, 6]), &mut texts);
    let expected =
        OsnoiseSample { runtime_ns: 100_000, noise_ns: 5000, noise_max_ns: 3000, counts: [1, 2, 3, 4, 6] };
    assert_eq!(sample, EventKind::Osnoise(expected));
    let names = ["duration", "outer_duration", "nmi_total_ts", "nmi_count", "seqnum", "tv_sec", "tv_nsec"];
    let format = format("ftrace", "hwlat", &names.map(|name| (name, "u64", 8)));
    let sample = |payload: &[u64], texts: &mut Texts| decoded(&format, &words(payload), texts);
    let expected = EventKind::Hwlat {
        sequence: 1,
        inner_ns: 9000,
        outer_ns: 11_000,
        count: None,
        nmi_ns: Some(3000),
        nmi_count: Some(2),
        wall_ns: Some(4_000_000_005),
    };
    assert_eq!(sample(&[9, 11, 3, 2, 1, 4, 5], &mut texts), expected);
    let EventKind::Hwlat { nmi_ns, nmi_count, .. } = sample(&[9, 11, 0, 0, 1, 4, 5], &mut texts) else {
        panic!()
    };
    assert_eq!((nmi_ns, nmi_count), (None, None));
    // Without its seconds a sample has no time of its own.
    let names = ["duration", "outer_duration", "nmi_total_ts", "nmi_count", "seqnum", "count", "tv_nsec"];
    let format = self::format("ftrace", "hwlat", &names.map(|name| (name, "u64", 8)));
    let EventKind::Hwlat { outer_ns, count, wall_ns, .. } =
        decoded(&format, &words(&[9, 11, 0, 0, 1, 7, 5]), &mut texts)
    else {
        panic!()
    };
    assert_eq!((outer_ns, count, wall_ns), (11_000, Some(7), None));
}

#[test]
fn noises_and_gaps_are_named() {
    let mut texts = Texts::default();
    let fields = [("comm", "char[16]", 16), ("start", "u64", 8), ("duration", "u64", 8), ("pid", "int", 4)];
    let payload = [&b"kworker/0:1\0\0\0\0\0"[..], &words(&[100, 50]), &42u32.to_le_bytes()].concat();
    let EventKind::Noise { source: NoiseSource::Thread { pid, command }, start_ns, duration_ns } =
        decoded(&format("osnoise", "thread_noise", &fields), &payload, &mut texts)
    else {
        panic!("no noise of a thread")
    };
    assert_eq!((pid, texts.names.text(command), start_ns, duration_ns), (42, "kworker/0:1", 100, 50));
    let fields = [("start", "u64", 8), ("duration", "u64", 8), ("interference", "u64", 8)];
    let gap = decoded(&format("osnoise", "sample_threshold", &fields), &words(&[7, 8, 1]), &mut texts);
    assert_eq!(gap, EventKind::NoiseGap { start_ns: 7, duration_ns: 8, interference: 1 });
}

#[test]
fn addresses_of_interrupt_switches_count_from_the_kernels_text() {
    let mut texts = Texts::default();
    let format = format("preemptirq", "irq_disable", &[("caller_offs", "int", 4), ("parent_offs", "int", 4)]);
    let payload = [0x20i32.to_le_bytes(), (-0x10i32).to_le_bytes()].concat();
    let expected = EventKind::IrqsOff { caller: Symbol::Address(0x1020), parent: Symbol::Address(0xff0) };
    assert_eq!(decoded(&format, &payload, &mut texts), expected);
}

#[test]
fn stacks_are_kept_once_and_end_at_their_stated_length() {
    let mut texts = Texts::default();
    let format = format("ftrace", "kernel_stack", &[("size", "int", 8), ("caller", "ulong[8]", 64)]);
    let payload = words(&[3, 0x10, 0x20, u64::MAX, 0x40]);
    let EventKind::Stack { frames } = decoded(&format, &payload, &mut texts) else { panic!() };
    assert_eq!(texts.frames(frames), [Symbol::Address(0x10), Symbol::Address(0x20)]);
    let again = decoded(&format, &words(&[2, 0x10, 0x20, 0x30]), &mut texts);
    assert_eq!(again, EventKind::Stack { frames });
}

#[test]
fn printk_texts_are_found_by_their_address() {
    let mut texts = Texts::default();
    texts.printk = PrintkFormats::parse("0x9000 : \"took %d us\\n\"\n0x9100 : \"fixed\\n\"\n");
    let format_of = |name, fields: &[_]| format("ftrace", name, fields);
    let binary = format_of("bprint", &[("ip", "ulong", 8), ("fmt", "ulong", 8), ("buf", "u32[]", 0)]);
    let payload = [words(&[1, 0x9000]), 12u32.to_le_bytes().to_vec()].concat();
    let EventKind::Print { text } = decoded(&binary, &payload, &mut texts) else { panic!() };
    assert_eq!(texts.names.text(text), "took 12 us");
    let puts = format_of("bputs", &[("ip", "ulong", 8), ("str", "ulong", 8)]);
    let EventKind::Print { text } = decoded(&puts, &words(&[1, 0x9100]), &mut texts) else { panic!() };
    assert_eq!(texts.names.text(text), "fixed");
    let EventKind::Print { text } = decoded(&puts, &words(&[1, 0x9999]), &mut texts) else { panic!() };
    assert!(texts.names.text(text).contains("0x9999"));
}

#[test]
fn interrupts_between_cpus_have_their_reason_on_arm64() {
    let mut texts = Texts::default();
    texts.printk = PrintkFormats::parse("0x9000 : \"Rescheduling interrupts\"\n");
    let format = format("ipi", "ipi_entry", &[("reason", "ulong", 8)]);
    let entry = decoded(&format, &words(&[0x9000]), &mut texts);
    assert_eq!(entry, EventKind::VectorEntry { vector: Vector::Reschedule });
}

#[test]
fn an_event_with_other_fields_is_reported_as_unknown() {
    let mut texts = Texts::default();
    let kind = decoded(&format("timer", "hrtimer_start", &[("timer", "u64", 8)]), &words(&[1]), &mut texts);
    let EventKind::Other { system: Some(system), name } = kind else { panic!("{kind:?}") };
    assert_eq!((texts.names.text(system), texts.names.text(name)), ("timer", "hrtimer_start"));
}

#[test]
fn a_record_shorter_than_its_format_is_an_error() {
    let mut texts = Texts::default();
    let format = format("csd", "csd_function_entry", &[("func", "u64", 8)]);
    let kernel = Kernel { order: ByteOrder::Big, long_bytes: 8, release: None };
    let mut decoder = Decoder::new(kernel, [format], &Symbols::default(), &mut texts);
    let error = decoder.decode(&[1, 44, 0, 0, 0, 0, 0, 1, 0, 0], &mut texts).unwrap_err();
    assert!(error.contains("event 300") && error.contains("10 bytes"), "{error}");
    assert!(decoder.decode(&[1], &mut texts).is_err());
}
