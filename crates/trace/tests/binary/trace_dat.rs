//! trace.dat against `trace-cmd report` of the same files.

use crate::golden::{compare, events, open, unpacked};
use whylate_testing::says;
use whylate_trace::event::EventKind;
use whylate_trace::reader::{Reader, Selection};

#[track_caller]
fn agrees(name: &str) -> usize {
    let mut reader = open(&format!("{name}.dat"));
    let events = events(&mut reader);
    let golden = String::from_utf8(unpacked(&format!("{name}.report.zst"))).unwrap();
    compare(&reader, &events, &golden)
}

#[test]
fn events_of_a_real_time_kernel_agree() {
    assert_eq!(agrees("events-rt-6.1"), 12_641);
}

#[test]
fn functions_agree_and_the_break_marker_is_found() {
    assert_eq!(agrees("functions-rt-6.1"), 30_000);
    let mut reader = open("functions-rt-6.1.dat");
    reader.seek(None, Selection::Wakeups).unwrap();
    let marker = events(&mut reader).into_iter().rev().find_map(|event| match event.kind {
        EventKind::Print { text } => Some(text),
        _ => None,
    });
    assert!(says("hit-latency-threshold", reader.names().text(marker.unwrap())));
}
