//! The plan parser: no text and no override may panic it, and what it accepts must survive being written and read.
//!
//! Input: the text of a plan; after a NUL byte, overrides (`path=value`), one on each line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use whylate_core::plan::{Plan, Source};

fuzz_target!(|input: &str| {
    let (text, rest) = input.split_once('\0').unwrap_or((input, ""));
    let overrides: Vec<String> = rest.lines().map(str::to_owned).collect();
    match Plan::parse(&Source { name: "fuzz.toml", text }, &overrides) {
        Ok(plan) => {
            let written = serde_json::to_string(&plan).expect("a plan can be written");
            let read: Plan = serde_json::from_str(&written).expect("what was written can be read");
            assert_eq!(plan, read);
            // Sums and products of the durations must not overflow.
            let _ = (plan.stored_interval(), plan.repeat_duration(), plan.repeat_timeout());
        }
        Err(error) => {
            assert!(!error.message.is_empty());
            let shown = error.to_string();
            if let Some(position) = shown.strip_prefix("fuzz.toml:") {
                let line: usize = position.split(':').next().and_then(|line| line.parse().ok()).expect("a line");
                assert!(line >= 1 && line <= text.split('\n').count(), "{shown}");
            } else {
                assert!(shown.starts_with("--set "), "{shown}");
            }
        }
    }
});
