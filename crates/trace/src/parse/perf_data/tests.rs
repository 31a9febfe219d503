//! Complete files of perf, made here; real ones are in the goldens.

use super::*;
use std::path::Path;

const WAKING: &str = "name: sched_waking
ID: 314
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:int prio;\toffset:28;\tsize:4;\tsigned:1;
\tfield:int target_cpu;\toffset:32;\tsize:4;\tsigned:1;

print fmt: \"\"
";

/// Bytes in one of the orders.
struct Bytes(Vec<u8>, ByteOrder);

impl Bytes {
    fn number(&mut self, value: u64, width: usize) -> &mut Self {
        let little = value.to_le_bytes();
        match self.1 {
            ByteOrder::Little => self.0.extend(&little[..width]),
            ByteOrder::Big => self.0.extend(little[..width].iter().rev()),
        }
        self
    }

    fn words(&mut self, values: &[u64]) -> &mut Self {
        for value in values {
            self.number(*value, 8);
        }
        self
    }

    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }
}

fn record(order: ByteOrder, kind: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Bytes(Vec::new(), order);
    bytes.number(u64::from(kind), 4).number(0, 2).number(body.len() as u64 + 8, 2).raw(body);
    bytes.0
}

/// A sample of `sched_waking`: identifier, thread, time, CPU, record.
fn waking(order: ByteOrder, at_ns: u64, cpu: u64, thread: u64) -> Vec<u8> {
    let mut body = Bytes(Vec::new(), order);
    body.words(&[7]).number(thread, 4).number(thread, 4).words(&[at_ns]).number(cpu, 4).number(0, 4);
    body.number(36, 4)
        .number(314, 2)
        .number(1, 1)
        .number(2, 1)
        .number(thread, 4)
        .raw(b"woken\0\0\0\0\0\0\0\0\0\0\0");
    body.number(99, 4).number(19, 4).number(3, 4);
    record(order, kind::SAMPLE, &body.0)
}

fn tracing(order: ByteOrder) -> Vec<u8> {
    let mut bytes = Bytes(b"\x17\x08\x44tracing0.6\0".to_vec(), order);
    bytes.number(u64::from(order == ByteOrder::Big), 1).number(8, 1).number(4096, 4);
    bytes.raw(b"header_page\0").words(&[0]).raw(b"header_event\0").words(&[0]);
    bytes.number(0, 4).number(1, 4).raw(b"sched\0").number(1, 4);
    bytes.words(&[WAKING.len() as u64]).raw(WAKING.as_bytes());
    let symbols = "ffffffff81000000 T _stext\nffffffff81000100 t do_it\n";
    bytes.number(symbols.len() as u64, 4).raw(symbols.as_bytes()).number(0, 4);
    bytes.words(&[11]).raw(b"41 learned\n");
    bytes.0
}

fn file(order: ByteOrder, records: &[u8]) -> Vec<u8> {
    let magic = if order == ByteOrder::Little { MAGIC } else { MAGIC_SWAPPED };
    let (ids, attributes, data) = (104, 112, 112 + 112);
    let mut bytes = Bytes(magic.to_vec(), order);
    bytes.words(&[104, 112, attributes, 112, data, records.len() as u64, 0, 0]);
    bytes.words(&[1 << TRACING_BIT | 1 << 4, 0, 0, 0]).words(&[7]);
    // IDENTIFIER, TID, TIME, CPU, RAW; sample_id_all and a clock.
    let flags = if order == ByteOrder::Little { 1 << 18 | 1 << 25 } else { 1 << (63 - 18) | 1 << (63 - 25) };
    bytes.number(2, 4).number(96, 4).words(&[314, 1, 1 << 16 | 1 << 10 | 1 << 7 | 1 << 2 | 1 << 1, 0, flags]);
    bytes.words(&[0; 5]).number(0, 4).number(1, 4).words(&[ids, 8]).raw(records);
    let features = bytes.0.len() as u64 + 32;
    let tracing = tracing(order);
    bytes.words(&[features, tracing.len() as u64, features + tracing.len() as u64, 12]);
    bytes.raw(&tracing).number(8, 4).raw(b"6.1.0-rt");
    bytes.0
}
const TRACING_BIT: u32 = 1;

fn reader(bytes: Vec<u8>) -> Result<PerfDataReader, ParseError> {
    let nowhere = Places { root: "/nonexistent".into(), cache: None };
    open_with(Input::memory(Path::new("perf.data"), bytes), &nowhere)
}

fn all(reader: &mut PerfDataReader) -> Vec<Event> {
    std::iter::from_fn(|| reader.next().expect("the file is whole")).collect()
}

/// Two rounds whose buffers overlap, a command, a loss, and a call chain's lack.
fn records(order: ByteOrder) -> Vec<u8> {
    let round = record(order, kind::FINISHED_ROUND, &[]);
    let mut command = Bytes(Vec::new(), order);
    command.number(40, 4).number(40, 4).raw(b"renamed\0");
    let mut lost = Bytes(Vec::new(), order);
    lost.words(&[7, 12]).number(1, 4).number(1, 4).words(&[250]).number(2, 4).number(0, 4).words(&[7]);
    [
        waking(order, 200, 0, 40),
        waking(order, 300, 0, 41),
        waking(order, 100, 1, 41),
        round.clone(),
        record(order, kind::COMMAND, &command.0),
        waking(order, 400, 0, 40),
        waking(order, 150, 2, 42),
        record(order, kind::LOST, &lost.0),
        round.clone(),
        waking(order, 500, 0, 40),
        round,
        waking(order, 450, 1, 40),
    ]
    .concat()
}

#[test]
fn both_byte_orders_in_the_order_of_time() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut reader = reader(file(order, &records(order))).expect("it is a perf.data");
        let events = all(&mut reader);
        let times: Vec<u64> = events.iter().map(|event| event.at_ns).collect();
        assert_eq!(times, [100, 150, 200, 250, 300, 400, 450, 500], "{order:?}");
        assert_eq!(events[3].kind, EventKind::Lost { events: Some(12) });
        assert_eq!((events[3].cpu, &reader.info().lost[..]), (CpuId(2), &[(CpuId(2), 12)][..]));
        let EventKind::Waking { task, target_cpu } = events[0].kind else { panic!("{:?}", events[0]) };
        assert_eq!((task.pid, task.priority, target_cpu), (99, 19, CpuId(3)));
        assert_eq!(reader.names().text(task.command), "woken");
        let command = |event: &Event| event.command.map(|name| reader.names().text(name));
        let commands: Vec<Option<&str>> = events.iter().map(command).collect();
        assert_eq!(commands[0], Some("learned"));
        assert_eq!((commands[1], commands[2], commands[5]), (None, None, Some("renamed")));
        assert_eq!((events[0].context.irqs_off, events[0].context.preempt_depth), (Some(true), Some(2)));
        let info = reader.info();
        assert_eq!((info.clock.as_deref(), info.kernel.as_deref()), (Some("mono"), Some("6.1.0-rt")));
        assert_eq!(info.recorded, ["sched:sched_waking"]);
        assert_eq!(reader.symbol(Symbol::Address(0xffff_ffff_8100_0110)), Some(("do_it", 0x10)));
    }
}

#[test]
fn a_moment_is_found_again() {
    let order = ByteOrder::Little;
    let mut reader = reader(file(order, &records(order))).expect("it is a perf.data");
    let everything = all(&mut reader);
    for from_ns in [0, 100, 151, 250, 400, 450, 501] {
        reader.seek(Some(from_ns), Selection::All).expect("it can be read again");
        let expected: Vec<u64> =
            everything.iter().map(|event| event.at_ns).filter(|at_ns| *at_ns >= from_ns).collect();
        let found: Vec<u64> = all(&mut reader).iter().map(|event| event.at_ns).collect();
        assert_eq!(found, expected, "from {from_ns}");
        assert_eq!(reader.info().lost, [(CpuId(2), 12)]);
    }
}

#[test]
fn packed_records_are_unpacked_across_their_borders() {
    let order = ByteOrder::Little;
    let plain = records(order);
    let packed = structured_zstd::encoding::compress_to_vec(
        &plain[..],
        structured_zstd::encoding::CompressionLevel::Fastest,
    );
    let (first, second) = packed.split_at(packed.len() / 2);
    let mut with_length = Bytes(Vec::new(), order);
    with_length.words(&[second.len() as u64]).raw(second).raw(&[0; 5]);
    let records = [record(order, 81, first), record(order, 83, &with_length.0)].concat();
    let mut reader = reader(file(order, &records)).expect("it is a perf.data");
    let times: Vec<u64> = all(&mut reader).iter().map(|event| event.at_ns).collect();
    assert_eq!(times, [100, 150, 200, 250, 300, 400, 450, 500]);
}

#[test]
fn files_that_are_cut_or_changed_are_errors() {
    let order = ByteOrder::Little;
    let whole = file(order, &records(order));
    let at_byte = |error: ParseError| match error {
        ParseError::Damaged { offset, .. } => offset,
        other => panic!("{other}"),
    };
    for length in 0..whole.len() {
        let error =
            reader(whole[..length].to_vec()).err().unwrap_or_else(|| panic!("{length} bytes are no file"));
        assert!(at_byte(error) <= whole.len() as u64);
    }
    // With any changed byte, reading must end: with an error, or with other events.
    for position in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[position] ^= 0xff;
        if let Ok(mut reader) = reader(bytes) {
            assert!((0..1000).any(|_| !matches!(reader.next(), Ok(Some(_)))), "byte {position}");
        }
    }
    let mut unfinished = whole.clone();
    unfinished[48..56].fill(0);
    let error = reader(unfinished).err().expect("it was not finished");
    assert!(error.to_string().contains("did not finish"), "{error}");
    let mut piped = whole;
    piped[8] = 16;
    assert!(reader(piped).err().expect("it is a stream").to_string().contains("pipe"));
}
