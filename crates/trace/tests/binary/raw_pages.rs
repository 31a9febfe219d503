//! Folders of raw pages against the text that the kernel gave for the same buffer.

use crate::golden::{events, fixture, unpacked};
use whylate_trace::event::{Context, Event, EventKind};
use whylate_trace::internal::open_folder;
use whylate_trace::reader::{Reader, Selection};

/// The flags as tracefs shows them: `dNh2.`; flags that the model does not have stay as in the text.
fn shown(context: Context, text: &str) -> String {
    let [irqs, resched, level, ..] = text.as_bytes() else { panic!("{text}") };
    let softirqs_off = matches!(irqs, b'b' | b'D');
    let irqs = match (context.irqs_off, softirqs_off) {
        (Some(true), true) => 'D',
        (Some(true), false) => 'd',
        (Some(false), true) => 'b',
        (Some(false), false) => '.',
        (None, _) => 'X',
    };
    // Upper case: the preemption count says so too.
    let folded = matches!(resched, b'N' | b'L' | b'B' | b'p');
    let resched = match (context.need_resched, context.need_resched_lazy, folded) {
        (true, true, true) => 'B',
        (true, true, false) => 'b',
        (true, false, true) => 'N',
        (true, false, false) => 'n',
        (false, true, true) => 'L',
        (false, true, false) => 'l',
        (false, false, true) => 'p',
        (false, false, false) => '.',
    };
    let level = match (context.nmi, context.hard_irq, context.softirq) {
        (true, true, _) => 'Z',
        (true, false, _) => 'z',
        (false, true, true) => 'H',
        (false, true, false) => 'h',
        (false, false, true) => 's',
        (false, false, false) => char::from(*level).to_ascii_uppercase(),
    };
    let depth = |depth: Option<u8>| match depth {
        Some(0) => ".".to_owned(),
        Some(depth) => format!("{depth:x}"),
        None => "?".to_owned(),
    };
    format!("{irqs}{resched}{level}{}{}", depth(context.preempt_depth), depth(context.migrate_disable))
}

/// The name of the event in the text, if the model's event has it.
fn name(reader: &dyn Reader, event: &Event) -> Option<String> {
    Some(match event.kind {
        EventKind::Switch { .. } => "sched_switch".to_owned(),
        EventKind::Waking { .. } => "sched_waking".to_owned(),
        EventKind::TimerStart { .. } => "hrtimer_start".to_owned(),
        EventKind::TimerExpire { .. } => "hrtimer_expire_entry".to_owned(),
        EventKind::IrqEntry { .. } => "irq_handler_entry".to_owned(),
        EventKind::SoftirqRaise { .. } => "softirq_raise".to_owned(),
        EventKind::RemoteFunctionEntry { .. } => "csd_function_entry".to_owned(),
        EventKind::PageFault { user: true, .. } => "page_fault_user".to_owned(),
        EventKind::PageFault { user: false, .. } => "page_fault_kernel".to_owned(),
        EventKind::Idle { .. } => "cpu_idle".to_owned(),
        EventKind::Print { .. } => "tracing_mark_write".to_owned(),
        EventKind::Other { name, .. } => reader.names().text(name).to_owned(),
        _ => return None,
    })
}

#[track_caller]
fn agrees(folder: &str) -> usize {
    let mut reader = open_folder(&fixture(folder)).unwrap();
    let events = events(&mut reader);
    let text = String::from_utf8(unpacked(&format!("{folder}/trace.txt.zst"))).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(events.len(), lines.len());
    for (event, line) in events.iter().zip(&lines) {
        let (task, rest) = line.split_once('[').unwrap();
        let (_, pid) = task.trim().rsplit_once('-').unwrap();
        let (cpu, rest) = rest.split_once("] ").unwrap();
        let (flags, rest) = rest.split_once(' ').unwrap();
        let (time, rest) = rest.trim().split_once(": ").unwrap();
        let (kind, _) = rest.split_once([':', '(']).unwrap();
        let micros: u64 = time.replace('.', "").parse().unwrap();
        assert_eq!((event.at_ns + 500) / 1000, micros, "{line}\n{event:?}");
        assert_eq!((event.cpu.0, event.pid), (cpu.parse().unwrap(), Some(pid.parse().unwrap())), "{line}");
        assert_eq!(shown(event.context, flags), flags.replace('*', "."), "{line}\n{event:?}");
        if let Some(name) = name(&reader, event) {
            assert!(kind == name || matches!(event.kind, EventKind::Other { .. }), "{line}\n{event:?}");
        }
    }
    lines.len()
}

#[test]
fn pages_agree_with_the_kernels_text() {
    assert_eq!(agrees("raw-6.18-4k"), 2899);
}

#[test]
fn sub_buffers_of_16_kib_agree_too() {
    assert_eq!(agrees("raw-6.18-16k"), 1742);
}

#[test]
fn the_folder_names_clock_and_kernel() {
    let reader = open_folder(&fixture("raw-6.18-4k")).unwrap();
    let info = reader.info();
    assert_eq!((info.clock.as_deref(), info.format.as_str()), (Some("mono"), "ring-buffer pages"));
    assert!(info.kernel.as_deref().is_some_and(|kernel| kernel.starts_with("6.18")), "{info:?}");
    assert!(info.recorded.iter().any(|name| name == "sched:sched_switch"), "{info:?}");
}

#[test]
fn the_events_of_wakeups_are_selected_in_order() {
    let mut reader = open_folder(&fixture("raw-6.18-4k")).unwrap();
    let all = events(&mut reader);
    reader.seek(None, Selection::Wakeups).unwrap();
    let selected = events(&mut reader);
    let expected: Vec<Event> = all
        .into_iter()
        .filter(|event| {
            matches!(
                event.kind,
                EventKind::Switch { .. }
                    | EventKind::Waking { .. }
                    | EventKind::Wakeup { .. }
                    | EventKind::Migrate { .. }
                    | EventKind::TimerStart { .. }
                    | EventKind::TimerCancel { .. }
                    | EventKind::TimerExpire { .. }
                    | EventKind::Print { .. }
            )
        })
        .collect();
    assert!(selected.len() > 100);
    assert!(selected == expected, "the selection differs");
}

#[test]
fn a_folder_without_pages_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = open_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("header_page"), "{error}");
    std::fs::create_dir(folder.path().join("events")).unwrap();
    let page = fixture("raw-6.18-4k").join("events/header_page");
    std::fs::copy(page, folder.path().join("events/header_page")).unwrap();
    let error = open_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("cpuN.raw"), "{error}");
    std::fs::write(folder.path().join("cpu0.raw"), [0; 100]).unwrap();
    let error = open_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("100 bytes"), "{error}");
}

#[test]
fn commands_are_learned_from_switches_alike_in_each_pass() {
    let mut reader = open_folder(&fixture("raw-6.18-4k")).unwrap();
    let first = events(&mut reader);
    assert!(first.iter().filter(|event| event.command.is_some()).count() > first.len() / 2);
    reader.seek(None, Selection::All).unwrap();
    assert!(events(&mut reader) == first, "the second pass differs");
}

#[test]
fn folders_are_opened_as_any_trace() {
    let reader = whylate_trace::parse::open(&fixture("raw-6.18-16k")).unwrap();
    assert_eq!(reader.info().format, "ring-buffer pages");
}

#[test]
fn the_model_has_all_recorded_events() {
    let mut reader = open_folder(&fixture("raw-6.18-4k")).unwrap();
    let events = events(&mut reader);
    let others = events.iter().filter_map(|event| match event.kind {
        EventKind::Other { name, .. } => Some(reader.names().text(name)),
        _ => None,
    });
    let others: std::collections::BTreeSet<&str> = others.collect();
    // Functions among them are those that a CPU called on itself.
    let known_to_be_without: std::collections::BTreeSet<&str> =
        ["csd_queue_cpu", "csd_function_entry", "csd_function_exit", "tasklet_entry", "tasklet_exit"].into();
    assert!(others.is_subset(&known_to_be_without), "{others:?}");
}
