//! Events written as text are read back unchanged, for any command, any columns and any starting place.

use proptest::prelude::*;
use whylate_trace::event::{Event, EventKind};
use whylate_trace::parse::{self, Source, TextReader};
use whylate_trace::reader::{Reader, Selection};

fn reader(text: impl Into<Vec<u8>>) -> TextReader {
    TextReader::new(Source::memory("trace", text.into()).expect("memory can be read")).expect("it is a trace")
}

fn all(reader: &mut dyn Reader) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = reader.next().expect("it is a trace") {
        events.push(event);
    }
    events
}

/// Columns: the name in the head, and the letters that can stand there.
const NAMES: [(&str, &[u8]); 7] = [
    ("irqs-off/BH-disabled", b".dDbX"),
    ("need-resched", b".nNp"),
    ("need-resched-lazy", b".L"),
    ("hardirq/softirq", b".hsHzZ"),
    ("preempt-depth", b".123f"),
    ("preempt-lazy-depth", b".12"),
    ("migrate-disable", b".19"),
];

/// The head of a trace with these columns.
fn head(columns: &[usize]) -> String {
    let mut head = "# tracer: nop\n#\n".to_owned();
    for (position, column) in columns.iter().enumerate() {
        let bars = "|".repeat(position.saturating_sub(1));
        let dashes = "-".repeat(columns.len() - position + 1);
        head += &format!("#                              {bars} / _{dashes}=> {}\n", NAMES[*column].0);
    }
    head + "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
}

fn command() -> impl Strategy<Value = String> {
    "[!-~]([ -~]{0,13}[!-~])?".prop_filter("it stands for no command, or is a mark of quotation", |command| {
        command != "<...>" && !command.starts_with("> ") && !command.starts_with(">>")
    })
}

proptest! {
    #[test]
    fn flags(others in proptest::sample::subsequence((1..7usize).collect::<Vec<_>>(), 2..=6).prop_shuffle(),
             letters in proptest::collection::vec(any::<proptest::sample::Index>(), 7)) {
        // The first column is always that of interrupts: its letter is never a digit, as a time's first is.
        let chosen = [&[0], &others[..]].concat();
        let flags: String = chosen.iter().map(|column| {
            let possible = NAMES[*column].1;
            char::from(possible[letters[*column].index(possible.len())])
        }).collect();
        let line = format!("            bash-7       [001] {flags}     5.000001: schedule <-main\n");
        let mut reader = reader(head(&chosen) + &line);
        let context = all(&mut reader)[0].context;
        let letter = |wanted: usize| chosen.iter().position(|column| *column == wanted).map(|at| flags.as_bytes()[at]);
        prop_assert_eq!(context.irqs_off, letter(0).filter(|letter| *letter != b'X').map(|letter| b"dD".contains(&letter)));
        prop_assert_eq!(context.need_resched, letter(1).is_some_and(|letter| b"nN".contains(&letter)));
        prop_assert_eq!(context.need_resched_lazy, letter(2) == Some(b'L'));
        prop_assert_eq!(context.hard_irq, letter(3).is_some_and(|letter| b"hHZ".contains(&letter)));
        prop_assert_eq!(context.softirq, letter(3).is_some_and(|letter| b"sH".contains(&letter)));
        prop_assert_eq!(context.nmi, letter(3).is_some_and(|letter| b"zZ".contains(&letter)));
        let depth = |letter: u8| if letter == b'.' { 0 } else { char::from(letter).to_digit(16).unwrap() as u8 };
        prop_assert_eq!(context.preempt_depth, letter(4).map(depth));
        prop_assert_eq!(context.migrate_disable, letter(6).map(depth));
    }

    #[test]
    fn prefixes(command in command(), pid in 0u32..4_194_304, cpu in 0u32..8192, at_us in 0u64..10_000_000_000_000,
                group in proptest::option::of(0u32..4_194_304), with_groups: bool,
                flags in proptest::sample::select(vec!["", "d...", "dn.h1", "d..h.1", "dn.h3..", "....1.."])) {
        let group = match (with_groups, group) {
            (false, _) => String::new(),
            (true, Some(group)) => format!("({group:>7}) "),
            (true, None) => "(-------) ".to_owned(),
        };
        let (seconds, fraction) = (at_us / 1_000_000, at_us % 1_000_000);
        let line = format!("{command:>16}-{pid:<7} {group}[{cpu:03}] {flags} {seconds:>5}.{fraction:06}: schedule <-main\n");
        let mut reader = reader(line);
        let event = all(&mut reader)[0];
        prop_assert_eq!(event.command.map(|name| reader.names().text(name)), Some(command.as_str()));
        prop_assert_eq!((event.pid, event.cpu.0, event.at_ns), (Some(pid), cpu, at_us * 1000));
    }

    #[test]
    fn switches(previous in command(), next in command(), pids in (0u32..4_194_304, 0u32..4_194_304),
                priorities in (-1i32..140, -1i32..140), state in proptest::sample::select(vec!["R", "R+", "S", "D", "D|K", "I"])) {
        // An arrow and the text after it are longer than any text after an arrow in a command can be.
        let line = format!("            bash-7       [001] d..2.     5.000001: sched_switch: prev_comm={previous} prev_pid={} prev_prio={} prev_state={state} ==> next_comm={next} next_pid={} next_prio={}\n",
            pids.0, priorities.0, pids.1, priorities.1);
        let mut reader = reader(line);
        let EventKind::Switch { previous: left, next: right, .. } = all(&mut reader)[0].kind else { panic!("no switch") };
        prop_assert_eq!((reader.names().text(left.command), left.pid, left.priority), (previous.as_str(), pids.0, priorities.0));
        prop_assert_eq!((reader.names().text(right.command), right.pid, right.priority), (next.as_str(), pids.1, priorities.1));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), lines in proptest::collection::vec("[ -~]{0,60}", 0..6)) {
        let mut text = b"# tracer: function_graph\n          <idle>-0       [000] d..1.     1.000001: x\n 0)               |  f() {\n".to_vec();
        text.extend(lines.join("\n").bytes());
        text.push(b'\n');
        text.extend(&bytes);
        for input in [bytes, text] {
            if let Ok(mut reader) = parse::from_source(Source::memory("trace", input).expect("memory can be read")) {
                for _ in 0..10_000 {
                    if let Ok(None) = reader.next() {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn a_command_can_begin_as_a_frame_of_a_stack_does() {
    let text = "            bash-7       [001] d..2.     5.000001: kernel_stack: <stack trace>\n => schedule\n            =>a-8       [001] d..2.     5.000002: schedule <-main\n";
    let mut reader = reader(text);
    let events = all(&mut reader);
    let commands: Vec<_> =
        events.iter().map(|event| event.command.map(|name| reader.names().text(name))).collect();
    assert_eq!(commands, [Some("bash"), Some("=>a")]);
    assert!(matches!(events[0].kind, EventKind::Stack { .. }), "{:?}", events[0].kind);
}

#[test]
fn a_moment_is_found_in_a_long_text() {
    // Longer than the part read before a moment, with small disorder as from `trace_pipe`.
    let mut text = head(&[0, 1, 3, 4, 6]);
    for step in 0..80_000u64 {
        let at_us = 1_000_000 + step * 10 - if step % 16 == 0 { 60 } else { 0 };
        let (seconds, fraction) = (at_us / 1_000_000, at_us % 1_000_000);
        text += &format!(
            "          <idle>-0       [{:03}] d..h1  {seconds}.{fraction:06}: local_timer_entry: vector=236\n",
            step % 4
        );
    }
    assert!(text.len() > 5 << 20);
    let mut reader = reader(text);
    let everything = all(&mut reader);
    assert_eq!(everything.len(), 80_000);
    for from_ns in [0, 1_000_000_000, 1_123_456_000, 1_400_000_000, 1_799_990_000, 1_800_000_000] {
        reader.seek(Some(from_ns), Selection::All).expect("it can be read again");
        let expected: Vec<Event> =
            everything.iter().filter(|event| event.at_ns >= from_ns).copied().collect();
        assert_eq!(all(&mut reader), expected, "from {from_ns}");
    }
}
