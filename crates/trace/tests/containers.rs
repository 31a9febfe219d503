//! Traces inside something else, or in another form, have the same events; other files are refused with what to do.

mod render;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;
use std::path::{Path, PathBuf};
use whylate_trace::event::{EventKind, TaskState};
use whylate_trace::parse::{self, Source};
use whylate_trace::reader::{Reader, Selection};

const TEXT: &str = "\
# tracer: nop
#
          <idle>-0     [001] d.h3.   492.292582: sched_waking: comm=cyclictest pid=192 prio=9 target_cpu=001
          <idle>-0     [001] d..2.   492.292590: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cyclictest next_pid=192 next_prio=9
      cyclictest-192   [001] .....   492.292600: tracing_mark_write: hit latency threshold (72 > 30)
";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name)
}

fn open(bytes: impl Into<Vec<u8>>) -> Box<dyn Reader> {
    let source = Source::memory("trace", bytes.into()).expect("memory can be read");
    parse::from_source(source).unwrap_or_else(|error| panic!("{error}"))
}

fn all(reader: &mut dyn Reader) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(event) = reader.next().expect("it is whole") {
        let (at, cpu, pid) = (event.at_ns, event.cpu, event.pid);
        found.push(format!("{at} {cpu} {pid:?} {}", render::kind(&event.kind, reader)));
    }
    found
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory can be written");
    encoder.finish().expect("memory can be written")
}

/// Reads twice: from the start, and with a selection from a time.
fn assert_text(bytes: Vec<u8>, format: &str) {
    let expected = all(open(TEXT).as_mut());
    assert_eq!(expected.len(), 3);
    let mut reader = open(bytes);
    assert_eq!((all(reader.as_mut()), reader.info().format.as_str()), (expected.clone(), format));
    reader.seek(Some(492_292_590_000), Selection::Wakeups).expect("it can be read again");
    assert_eq!(all(reader.as_mut()), expected[1..]);
}

#[test]
fn quoted_printable_mails() {
    let mut mail = "Content-Type: text/plain\n\n".to_owned();
    for line in TEXT.lines() {
        let line = line.replace('=', "=3D");
        // No line of a mail is longer than 76 letters; none is cut within an escape.
        let cut = (60..line.len()).find(|cut| !line[cut - 2..*cut].contains('='));
        match cut {
            Some(cut) => mail += &format!("> {}=\n{}\n", &line[..cut], &line[cut..]),
            None => mail += &format!("> {line}\n"),
        }
    }
    assert_text(mail.into_bytes(), "tracefs text, a mail");
}

/// As a mail client breaks lines: at blanks, where the next word would be beyond the width; before or after quoting.
fn broken(width: usize, quote_before: &str, quote_after: &str) -> String {
    let mut mail = "Hello,\n\nthis is what I see:\n\n".to_owned();
    for line in TEXT.lines() {
        let indent = line.len() - line.trim_start().len();
        let mut part = format!("{quote_before}{}", &line[..indent]);
        for word in line[indent..].split_inclusive(' ') {
            if part.len() + word.trim_end().len() > width && !part.trim().is_empty() {
                mail += &format!("{quote_after}{}\n", part.trim_end());
                part.clear();
            }
            part += word;
        }
        mail += &format!("{quote_after}{part}\n");
    }
    mail + "\nRegards\n"
}

#[test]
fn mails_whose_lines_a_client_broke() {
    for width in [72, 74, 76, 78] {
        for (before, after) in [("", ""), ("", "> "), ("> ", ""), ("> > ", "> ")] {
            let mail = broken(width, before, after);
            assert!(mail.lines().all(|line| line.len() <= width + 2), "{mail}");
            assert_text(mail.clone().into_bytes(), "tracefs text from a mail with broken lines");
            let packed = format!("Content-Type: text/plain\n\n{}", mail.replace('=', "=3D"));
            assert_text(packed.into_bytes(), "tracefs text, a mail");
        }
    }
}

#[test]
fn short_lines_that_were_not_broken_stay_as_they_are() {
    let text = "# tracer: function\n#\n\
        kworker/u8:2-1234  [001] d..h3..   492.292582: note: my own\n\
        and goes on in a line of its own\n\
        kworker/u8:2-1234  [001] d..h3..   492.292583: note: short\nmore\n";
    // "and" would have fit after "own".
    let mut reader = open(text);
    assert_eq!(all(reader.as_mut()).len(), 2);
    assert_eq!(reader.info().format, "tracefs text");
}

#[test]
fn systrace_pages_old_and_new() {
    let page = format!(
        "<!DOCTYPE html>\n<html><head>\n<script>var x = '</script>';</script>\n<script class=\"trace-data\" \
         type=\"application/text\">\n{TEXT}  </script>\n<script>more();</script></html>\n"
    );
    assert_text(page.into_bytes(), "tracefs text, systrace HTML");
    let literal: String = TEXT.lines().map(|line| format!("{line}\\n\\\n")).collect();
    let page = format!("<html>\n<script>\nvar linuxPerfData = \"\\\n{literal}\";\n</script></html>\n");
    assert_text(page.into_bytes(), "tracefs text, systrace HTML");
}

#[test]
fn atrace_packed_and_not() {
    let packed = [b"capturing trace... done\nTRACE:\n", &zlib(TEXT.as_bytes())[..]].concat();
    assert_text(packed.clone(), "tracefs text, atrace");
    let plain = format!("capturing trace... done\nTRACE:\n{TEXT}");
    assert_eq!(all(open(plain).as_mut()).len(), 3);
    let source = Source::memory("t", &packed[..packed.len() - 20]).expect("memory can be read");
    let error = parse::from_source(source).err().expect("it is cut").to_string();
    assert!(error.contains("damaged or cut off"), "{error}");
}

#[test]
fn archives_of_raw_pages_and_of_a_trace() {
    let expected = all(parse::open(&fixture("raw-6.18-4k")).expect("it is a trace").as_mut());
    for (formats, pages) in [("events", "."), ("formats", "traces")] {
        let mut archive = tar::Builder::new(ZlibOrNone(Vec::new()));
        let folder = fixture("raw-6.18-4k");
        archive.append_dir_all(format!("some/{formats}"), folder.join("events")).expect("it is written");
        for entry in std::fs::read_dir(&folder).expect("the fixture is there") {
            let path = entry.expect("the fixture is there").path();
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            let inside = match name.strip_suffix(".raw") {
                Some(cpu) if pages == "traces" => format!("some/traces/{cpu}"),
                _ => format!("some/{name}"),
            };
            if path.is_file() {
                archive.append_path_with_name(&path, inside).expect("it is written");
            }
        }
        let bytes = archive.into_inner().expect("it is written").0;
        let mut reader = open(bytes);
        assert_eq!(all(reader.as_mut()), expected, "{formats}");
    }
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(TEXT.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "a/trace.txt", TEXT.as_bytes()).expect("it is written");
    assert_text(archive.into_inner().expect("it is written"), "tracefs text");
}

struct ZlibOrNone(Vec<u8>);

impl Write for ZlibOrNone {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A message of protocol buffers that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: i64) -> Self {
        self.varint(field << 3);
        self.varint(value as u64);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn list(self, field: u64, values: &[u64]) -> Self {
        let mut packed = Message::default();
        values.iter().for_each(|value| packed.varint(*value));
        self.bytes(field, &packed.0)
    }
}

fn event(at_ns: i64, pid: i64, field: u64, body: &Message) -> Vec<u8> {
    Message::default().number(1, at_ns).number(2, pid).bytes(field, &body.0).0
}

/// Packets with the events of two CPUs, the later one first.
fn perfetto() -> [Vec<u8>; 3] {
    let waking = Message::default().bytes(1, b"cyclictest").number(2, 192).number(3, 9).number(5, 1);
    let switch = Message::default()
        .bytes(1, b"swapper/1")
        .number(2, 0)
        .number(3, 120)
        .number(4, 0)
        .bytes(5, b"cyclictest")
        .number(6, 192)
        .number(7, 9);
    let marker = Message::default().number(1, 5).bytes(2, b"hit latency threshold (72 > 30)\n");
    let first = Message::default()
        .number(1, 1)
        .bytes(2, &event(492_292_582_000, 0, 20, &waking))
        .bytes(2, &event(492_292_590_000, 0, 4, &switch))
        .bytes(2, &event(492_292_600_000, 192, 3, &marker));
    let compact = Message::default()
        .list(1, &[492_292_585_000, 7000])
        .list(2, &[1, 2])
        .list(3, &[77, 0])
        .list(4, &[120, 120])
        .bytes(5, b"sh")
        .bytes(5, b"swapper/0")
        .list(6, &[0, 1]);
    let second = Message::default().number(1, 0).bytes(4, &compact.0);
    let other = Message::default().bytes(2, b"\x0a\x02hi").number(8, 1);
    [other.0, second.0, first.0].map(|bundle| bundle)
}

#[test]
fn perfetto_traces_packed_and_not() {
    let [other, second, first] = perfetto();
    let packets: Vec<Vec<u8>> =
        vec![other, Message::default().bytes(1, &second).0, Message::default().bytes(1, &first).0];
    let trace = |packets: &[Vec<u8>]| {
        packets.iter().fold(Message::default(), |trace, packet| trace.bytes(1, packet)).0
    };
    let plain = trace(&packets);
    let packed = trace(&[packets[0].clone(), Message::default().bytes(50, &zlib(&trace(&packets[1..]))).0]);
    let text = all(open(TEXT).as_mut());
    let between = "492292592000 0 Some(77) Switch { previous: Task { pid: 77, command: \"sh\", priority: 120 }, state: \
                   Blocked('D'), next: Task { pid: 0, command: \"swapper/0\", priority: 120 } }";
    let expected = [&text[0], &text[1], between, &text[2]];
    for bytes in [plain.clone(), packed] {
        let mut reader = open(bytes);
        assert_eq!(all(reader.as_mut()), expected);
        assert_eq!(reader.info().format, "Perfetto");
    }
    // A truncated one is read up to there, or refused.
    for cut in 0..plain.len() {
        if let Ok(mut reader) = parse::from_source(Source::memory("t", &plain[..cut]).expect("memory")) {
            assert!(all(reader.as_mut()).len() <= 4);
        }
    }
}

#[test]
fn timehist_says_who_ran_and_who_waited() {
    let mut reader = parse::open(&fixture("styles/timehist.txt.xz")).expect("it is a trace");
    let (mut switches, mut wakeups, mut last_ns) = (0, 0, 0);
    let mut delays = Vec::new();
    let mut woken = std::collections::HashMap::new();
    while let Some(event) = reader.next().expect("it is whole") {
        assert!(event.at_ns >= last_ns, "in order");
        last_ns = event.at_ns;
        match event.kind {
            EventKind::Switch { next, previous, state } => {
                switches += 1;
                assert!(previous.pid != 0 || state == TaskState::Runnable);
                if let Some(at_ns) = woken.remove(&next.pid) {
                    delays.push((next.pid, event.at_ns - at_ns));
                }
            }
            EventKind::Wakeup { task, .. } => {
                wakeups += 1;
                woken.insert(task.pid, event.at_ns);
            }
            _ => panic!("{event:?}"),
        }
    }
    // As the third and the fourth line of the text have it: thread 13722 waited 0.015 ms.
    assert!(switches > 250 && wakeups > 100, "{switches} {wakeups}");
    assert_eq!(delays[0], (13722, 15_000));
    assert_eq!(reader.info().format, "perf sched timehist");
}

#[test]
fn what_is_not_read_is_refused_with_what_to_do() {
    let refused = |bytes: &[u8]| {
        let source = Source::memory("t", bytes).expect("memory can be read");
        parse::from_source(source).err().expect("it is refused").to_string()
    };
    for begin in [&b"\xc1\x1f\xfc\xc1\0\0\0\0"[..], b"\x57\x1d\xd1\x75\0\0", b"/* CTF 1.8 */\n"] {
        assert!(refused(begin).contains("CTF"));
    }
    assert!(refused(b"PK\x03\x04\x14\0").contains("unpack it"));
    assert!(refused(b"{\"traceEvents\": []}").contains("JSON"));
    let folder = tempfile::tempdir().expect("a folder can be made");
    let error = parse::open(folder.path()).err().expect("it is refused").to_string();
    assert!(error.contains("events/header_page"), "{error}");
    std::fs::write(folder.path().join("metadata"), "/* CTF 1.8 */").expect("it is written");
    assert!(parse::open(folder.path()).err().expect("it is refused").to_string().contains("CTF"));
}

/// With any byte changed, or any end of the file: events or a refusal, and no panic.
#[test]
fn no_damage_ends_the_program() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/containers");
    let mut read = 0;
    for entry in std::fs::read_dir(seeds).expect("the seeds are there") {
        let bytes = std::fs::read(entry.expect("a seed").path()).expect("a seed");
        for at in (0..bytes.len()).step_by(bytes.len() / 60 + 1) {
            let mut damaged = vec![bytes[..at].to_vec()];
            for byte in [0, b'=', 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                damaged.push(changed);
            }
            for bytes in damaged {
                let source = Source::memory("t", bytes).expect("memory can be read");
                let Ok(mut reader) = parse::from_source(source) else { continue };
                let mut steps = 0;
                while steps < 10_000 && !matches!(reader.next(), Ok(None)) {
                    steps += 1;
                }
                assert!(steps < 10_000);
                read += 1;
            }
        }
    }
    assert!(read > 100, "{read}");
}

/// As perf 6.13 prints it with `--show-prio`; a priority can change while the thread runs.
#[test]
fn timehist_with_priorities() {
    let text = "           time    cpu  task name                       prio      wait time  sch delay   run time\n\
        \x20                        [tid/pid]                                    (msec)     (msec)     (msec)\n\
        --------------- ------  ------------------------------  --------  ---------  ---------  ---------\n\
        \x20   100.001000 [0001]  <idle>                          120           0.000      0.000      1.000\n\
        \x20   100.001400 [0001]  my task[42]                     9->4          0.500      0.030      0.400\n";
    let mut reader = open(text);
    let mut switches = Vec::new();
    while let Some(event) = reader.next().expect("it is whole") {
        match event.kind {
            EventKind::Switch { previous, next, .. } => {
                switches.push((previous.pid, previous.priority, next.pid, next.priority));
            }
            EventKind::Wakeup { task, .. } => assert_eq!((task.pid, task.priority), (42, 9)),
            _ => panic!("{event:?}"),
        }
    }
    assert_eq!(switches, [(0, 120, 0, 120), (0, 120, 42, 9), (42, 4, 0, 120)]);
}
