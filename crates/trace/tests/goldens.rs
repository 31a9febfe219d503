//! Real traces, compressed and not, against their reviewed events.

mod render;

use std::collections::BTreeMap;
use std::path::PathBuf;
use whylate_trace::event::Event;
use whylate_trace::parse;
use whylate_trace::reader::{Reader, Selection};

/// Events of a file that are in a golden in full: at its start, at its end.
const SHOWN: (usize, usize) = (24, 8);

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces/readers").join(name)
}

fn all(reader: &mut dyn Reader) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = reader.next().expect("the fixture is whole") {
        events.push(event);
    }
    events
}

/// Information, numbers of events by kind, and some events.
fn summary(name: &str) -> String {
    let mut reader = parse::open(&path(name)).expect("the fixture is a trace");
    let events = all(reader.as_mut());
    let mut counts = BTreeMap::<String, u32>::new();
    for event in &events {
        let kind = format!("{:?}", event.kind);
        *counts.entry(kind.split([' ', '(']).next().unwrap_or_default().to_owned()).or_default() += 1;
    }
    let mut text = format!("{:#?}\n{counts:#?}\n", reader.info());
    for (position, event) in events.iter().enumerate() {
        if position < SHOWN.0 || position + SHOWN.1 >= events.len() {
            text += &render::event(event, reader.as_ref());
            text.push('\n');
        } else if position == SHOWN.0 {
            text += "…\n";
        }
    }
    text
}

macro_rules! goldens {
    ($($test:ident: $file:literal;)*) => {
        $(#[test]
        fn $test() {
            insta::assert_snapshot!(summary($file));
        })*
    };
}

goldens! {
    events: "events_6.18.txt.gz";
    function: "function_6.1_rt.txt.xz";
    hwlat: "hwlat_6.1_rt.txt";
    hwlat_without_samples: "hwlat_empty_6.1_rt.txt";
    osnoise: "osnoise_6.1_rt.txt.zst";
    perf: "perf_6.18.data.xz";
    report: "report_6.1_rt.txt.gz";
    timerlat_culprit: "timerlat_culprit_6.1_rt.txt.xz";
    timerlat_stop: "timerlat_stop_6.1_rt.txt";
    wakeup_rt: "wakeup_rt_6.1_rt.txt";
    wakeup_rt_functions: "wakeup_rt_functions_6.1_rt.txt.xz";
    wakeup_rt_switches: "wakeup_rt_switches_6.1_rt.txt";
}

#[test]
fn the_selection_for_wakeups_leaves_out_whole_kinds_only() {
    for file in
        ["events_6.18.txt.gz", "function_6.1_rt.txt.xz", "report_6.1_rt.txt.gz", "timerlat_stop_6.1_rt.txt"]
    {
        let mut reader = parse::open(&path(file)).expect("the fixture is a trace");
        let everything = all(reader.as_mut());
        reader.seek(None, Selection::Wakeups).expect("it can be read again");
        let selected = all(reader.as_mut());
        let kinds: Vec<_> = selected.iter().map(|event| std::mem::discriminant(&event.kind)).collect();
        let expected: Vec<Event> = everything
            .iter()
            .filter(|event| kinds.contains(&std::mem::discriminant(&event.kind)))
            .copied()
            .collect();
        assert!(!selected.is_empty() && selected.len() < everything.len(), "{file}");
        assert_eq!(selected, expected, "{file}");
    }
}

#[test]
fn a_moment_is_found_in_every_kind_of_file() {
    for file in ["events_6.18.txt.gz", "function_6.1_rt.txt.xz", "osnoise_6.1_rt.txt.zst", "hwlat_6.1_rt.txt"]
    {
        let mut reader = parse::open(&path(file)).expect("the fixture is a trace");
        let everything = all(reader.as_mut());
        let from_ns = everything[everything.len() / 2].at_ns;
        reader.seek(Some(from_ns), Selection::All).expect("it can be read again");
        let expected: Vec<Event> =
            everything.iter().filter(|event| event.at_ns >= from_ns).copied().collect();
        assert_eq!(all(reader.as_mut()), expected, "{file}");
        reader.seek(Some(u64::MAX), Selection::All).expect("it can be read again");
        assert_eq!(all(reader.as_mut()), [], "{file}");
    }
}
