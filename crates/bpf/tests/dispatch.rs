//! The steps of dispatches on this machine's kernel. Where it refuses BPF programs, the test says so.

#![cfg(feature = "bpf")]

mod support;

use std::process::Command;
use support::unless_refused;
use whylate_bpf::BpfError;
use whylate_bpf::dispatch::{DispatchSteps, Slot, Steps, TABLE_WORDS};
use whylate_core::MonoTime;
use whylate_sys::shared::SharedWords;
use whylate_sys::{clock, schedule};
use whylate_testing::{Need, skip};

#[test]
fn each_wake_up_by_a_timer_shows_its_steps_in_order() {
    let Some(programs) = unless_refused(DispatchSteps::start()) else { return };
    let table = SharedWords::of_map(programs.table().unwrap(), TABLE_WORDS).unwrap();
    let mut slot = Slot::take(table.words(), schedule::id_of_this_thread()).unwrap();
    let mut seen = 0;
    for _ in 0..50 {
        let due = clock::now().0 + 3_000_000;
        clock::sleep_until(MonoTime(due));
        let now = clock::now().0;
        // A thread that was delayed until its timer had expired does not sleep.
        let Some(Steps { entry_ns: Some(entry), waking_ns }) = slot.last() else { continue };
        seen += 1;
        assert!(due <= entry && entry <= waking_ns && waking_ns <= now, "{due} {entry} {waking_ns} {now}");
    }
    assert!(seen > 25, "{seen} of 50");
    // Without a measuring thread no wake-ups are written.
    drop(slot);
    let number = |words: &[std::sync::atomic::AtomicU64]| -> u64 {
        words.chunks(8).map(|slot| slot[1].load(std::sync::atomic::Ordering::Relaxed)).sum()
    };
    let before = number(table.words());
    clock::sleep_until(MonoTime(clock::now().0 + 3_000_000));
    assert_eq!(number(table.words()), before);
}

/// Set in the test that runs in a namespace of its own.
const INSIDE: &str = "WHYLATE_TEST_INSIDE";

#[test]
fn a_container_with_ids_of_its_own_is_refused() {
    if std::env::var_os(INSIDE).is_some() {
        assert!(matches!(DispatchSteps::start(), Err(BpfError::Namespace)));
        return;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork"]).arg(std::env::current_exe().unwrap());
    unshare.args(["--exact", "a_container_with_ids_of_its_own_is_refused"]).env(INSIDE, "1");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match unshare.output() {
        Err(error) => skip(Need::Rights, format!("unshare: {error}")),
        Ok(output) if said(&output.stderr).starts_with("unshare: ") => {
            skip(Need::Rights, said(&output.stderr));
        }
        Ok(output) => {
            assert!(output.status.success() && said(&output.stdout).contains("1 passed"), "{output:?}");
        }
    }
}
