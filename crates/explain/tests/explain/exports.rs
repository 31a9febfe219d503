//! Exports are for other tools.

use crate::script::Script;
use serde_json::Value;
use whylate_explain::{Export, Options, explain, export};
use whylate_trace::parse::{Source, from_source};

const LINES: &str = "
    100 1 idle-0 d..h1.. expire 5098
    500 1 rt-7 ....... timer_start 6000
    510 1 rt-7 d...2.. switch rt-7:10 S > stalld-9:120
    700 1 stalld-9 ....... fn stall_thread <- kthread
    800 1 stalld-9 ....... fn stall <- stall_thread
    900 2 other-4 ....... fn work <- main
    4010 1 stalld-9 d..h... vec local_timer
    4014 1 stalld-9 d..h1.. waking rt-7:10 1
    4020 1 stalld-9 dn.h... vecx local_timer
    4025 1 stalld-9 d...2.. switch stalld-9:120 R > rt-7:10";

fn exported(form: Export) -> String {
    let mut script = Script::new(LINES);
    let result = explain(&mut script, &Options::default()).unwrap();
    assert_eq!(result.spikes.len(), 1);
    export(&mut script, &result.spikes, form).unwrap()
}

#[test]
fn perfetto_gets_trace_events() {
    let document: Value = serde_json::from_str(&exported(Export::Perfetto)).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    for event in events {
        let phase = event["ph"].as_str().unwrap();
        assert!(event["name"].is_string() && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        match phase {
            "M" => assert!(event["args"]["name"].is_string(), "{event}"),
            "X" => assert!(
                event["ts"].as_f64().unwrap() >= 0.0 && event["dur"].as_f64().unwrap() >= 0.0,
                "{event}"
            ),
            "i" => assert!(event["ts"].is_f64() && event["s"] == "t", "{event}"),
            _ => panic!("{event}"),
        }
    }
    let slice =
        |name: &str| events.iter().find(|event| event["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    let stall = slice("stall");
    assert_eq!((stall["ts"].as_f64(), stall["dur"].as_f64()), (Some(800.0), Some(3210.0)));
    let late = slice("rt is late");
    assert_eq!(
        (late["dur"].as_f64(), late["args"]["cause"]["kind"].as_str()),
        (Some(3023.0), Some("irqs_off"))
    );
    slice("local timer");
    slice("stalld-9");
}

#[test]
fn slices_of_a_row_nest() {
    let document: Value = serde_json::from_str(&exported(Export::Perfetto)).unwrap();
    let events = document["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
    let slices: Vec<(u64, u64, f64, f64)> = events
        .map(|event| {
            let from = event["ts"].as_f64().unwrap();
            let to = from + event["dur"].as_f64().unwrap();
            (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap(), from, to)
        })
        .collect();
    for a in &slices {
        for b in slices.iter().filter(|b| (b.0, b.1) == (a.0, a.1)) {
            let apart = a.3 <= b.2 || b.3 <= a.2;
            let inside = (a.2 <= b.2 && b.3 <= a.3) || (b.2 <= a.2 && a.3 <= b.3);
            assert!(apart || inside, "{a:?} and {b:?} cross");
        }
    }
}

#[test]
fn the_text_is_a_trace_again() {
    let text = exported(Export::Text);
    let mut reader = from_source(Source::memory("export", text.into_bytes()).unwrap()).unwrap();
    // The timers are written without some fields that the reader needs; everything else is complete.
    let result = explain(reader.as_mut(), &Options::default()).unwrap();
    assert!(result.events >= 5, "{result:#?}");
    assert!(reader.info().remarks.is_empty(), "{:?}", reader.info().remarks);
}
