//! Causes found via other tasks and other CPUs.

use crate::found::{explained, explained_with, only};
use crate::script::Script;
use whylate_core::result::{CauseKind, ExplainAnswer, ExplainResult, LateWhat};
use whylate_explain::{Options, TaskChoice, explain};

#[test]
fn a_waker_that_is_late_is_followed_to_its_cpu() {
    // `control` waits for `driver` on CPU 2, which was runnable from 1000 us on and waited for `hog`.
    let beats: String = (0..12)
        .map(|index| {
            let at = 100 + index * 1000;
            format!(
                "{at} 2 driver-5 d..1... waking control-7:10 1
                 {} 1 idle-0 d...2.. switch idle-0:120 R > control-7:10
                 {} 1 control-7 d...2.. switch control-7:10 S > idle-0:120\n",
                at + 5,
                at + 20
            )
        })
        .collect();
    let result = explained(&format!(
        "{beats}
         11300 2 driver-5 d...2.. switch driver-5:20 S > hog-6:5
         12100 2 hog-6 d..h... waking driver-5:20 2
         14000 2 hog-6 d...2.. switch hog-6:5 S > driver-5:20
         14050 2 driver-5 d...1.. waking control-7:10 1
         14060 1 idle-0 d...2.. switch idle-0:120 R > control-7:10"
    ));
    let (latency, kind, actor, _) = only(&result);
    assert_eq!((kind, actor), (CauseKind::Thread, "hog"), "{result:#?}");
    assert!((1900..2000).contains(&latency), "{latency}");
    assert!(result.spikes[0].timeline.iter().any(|segment| segment.cpu.0 == 2));
    assert!(result.traces[0].period_inferred);
}

#[test]
fn a_lock_is_followed_to_its_owner() {
    let lines = |medium: u32| LOCKED.replace("medium-8:50", &format!("medium-8:{medium}"));
    let result = explained(&lines(50));
    let (latency, kind, actor, _) = only(&result);
    assert_eq!((latency, kind, actor), (1485, CauseKind::Lock, "owner"), "{result:#?}");
    assert!(result.spikes[0].timeline.iter().any(|segment| segment.what.contains("waits: medium")));
    let evidence = &result.spikes[0].cause.evidence;
    assert!(
        evidence.iter().any(|line| line.contains("medium had the CPU meanwhile: priority inversion")),
        "{evidence:?}"
    );
    let above = explained(&lines(5));
    let evidence = &above.spikes[0].cause.evidence;
    assert!(evidence.iter().all(|line| !line.contains("inversion")), "{evidence:?}");
}

const LOCKED: &str = "100 1 idle-0 d..h1.. expire 5098
         500 1 rt-7 ....... timer_start 6000
         510 1 rt-7 d...2.. switch rt-7:10 S > owner-9:120
         1003 1 owner-9 d..h... vec local_timer
         1004 1 owner-9 d..h... expire 6001
         1005 1 owner-9 d..h... waking rt-7:10 1
         1010 1 owner-9 d...2.. switch owner-9:120 R > rt-7:10
         1020 1 rt-7 ....... lock
         1021 1 rt-7 d...2.. pi owner-9:120 > 10
         1025 1 rt-7 d...2.. switch rt-7:10 D > medium-8:50
         2000 1 medium-8 d...2.. switch medium-8:50 S > owner-9:10
         2500 1 owner-9 d...1.. waking rt-7:10 1
         2510 1 owner-9 d...2.. switch owner-9:10 R > rt-7:10
         2512 1 rt-7 ....... lockx";

/// Twelve times, `rt` sleeps in the middle of its work, is woken at `woken_us`, and runs at 2800 us.
fn sleeps(before: &str, woken_us: u64) -> String {
    let cycle = |nth: u64| {
        let at = |us: u64| 1000 + nth * 10_000 + us;
        let timer = at(8990) + 4998;
        format!(
            "{before_at} 1 rt-7 ....... {before}
             {} 1 rt-7 d...2.. switch rt-7:10 D > owner-9:120
             {} 1 owner-9 d...1.. waking rt-7:10 1
             {} 1 owner-9 d...2.. switch owner-9:120 R > rt-7:10
             {} 1 rt-7 ....... lockx
             {} 1 rt-7 ....... timer_start {timer}
             {} 1 rt-7 d...2.. switch rt-7:10 S > owner-9:120
             {} 1 owner-9 d..h... waking rt-7:10 1
             {} 1 owner-9 d...2.. switch owner-9:120 R > rt-7:10\n",
            at(25),
            at(woken_us),
            at(2800),
            at(2812),
            at(2890),
            at(2900),
            at(9000),
            at(9010),
            before_at = at(20),
        )
    };
    format!("10 1 idle-0 d..h1.. expire 5008\n{}", (0..12).map(cycle).collect::<String>())
}

fn of_rt(lines: &str, top: usize) -> ExplainResult {
    let task = Some(TaskChoice::Name("rt".to_owned()));
    explained_with(lines, &Options { task, top, ..Options::default() })
}

#[test]
fn a_wait_for_a_lock_counts_once_however_many_are_explained() {
    let lines = sleeps("lock", 2500);
    for top in [3, 12, 100] {
        let result = of_rt(&lines, top);
        assert_eq!(result.traces[0].spikes_found, 12, "{top}");
        let latencies: Vec<u64> = result.spikes.iter().map(|spike| spike.latency_ns / 1000).collect();
        assert_eq!(latencies, vec![2775; top.min(12)], "the wake-up after it is a part of it");
        assert_eq!(result.traces[0].waits_left_out, 0);
    }
}

#[test]
fn a_sleep_without_a_lock_is_counted_as_left_out() {
    // The task runs 300 us, or 10 us after its wake-up.
    for (woken_us, found) in [(2500, 12), (2790, 0)] {
        let lines = sleeps("fn work <- cycle", woken_us);
        for top in [3, 12, 100] {
            let result = of_rt(&lines, top);
            assert_eq!(
                (result.traces[0].spikes_found, result.traces[0].waits_left_out),
                (found, 12),
                "{top}"
            );
        }
    }
}

#[test]
fn wake_ups_without_a_switch_to_the_task_are_no_wake_ups_in_time() {
    let lines = sleeps("lock", 100);
    let is_switch = |line: &&str| line.contains("> rt-7");
    let late = |kept: usize| {
        let mut nth = 0;
        let kept = |line: &&str| {
            !is_switch(line) || {
                nth += 1;
                nth % 2 == 0 || nth > kept
            }
        };
        let lines: String = lines.lines().filter(kept).map(|line| format!("{line}\n")).collect();
        of_rt(&lines, 10)
    };
    let whole = late(0);
    assert_eq!((whole.answer, whole.traces[0].wakeups_unseen), (ExplainAnswer::Found, 0));
    // The first switch of each cycle is missing: the long waits are not known, nor are they in time.
    let partly = late(usize::MAX);
    assert_eq!((partly.answer, partly.traces[0].wakeups_unseen), (ExplainAnswer::CannotTell, 12));
    let some = late(12);
    assert_eq!((some.answer, some.traces[0].wakeups_unseen), (ExplainAnswer::Found, 6));
    assert!(some.warnings.iter().any(|it| it.code == "runs-unseen"), "{:?}", some.warnings);
}

#[test]
fn a_thread_that_had_the_cpu_of_the_waker_did_not_delay_a_runnable_task() {
    // A lock without events and without priority inheritance. `medium` preempts `owner` twice.
    let options = Options { what: Some(LateWhat::Blocked), ..Options::default() };
    let result = explained_with(
        "100 1 idle-0 d..h1.. expire 5098
         500 1 rt-7 ....... timer_start 6000
         510 1 rt-7 d...2.. switch rt-7:10 S > owner-9:120
         1003 1 owner-9 d..h... vec local_timer
         1004 1 owner-9 d..h... expire 6001
         1005 1 owner-9 d..h... waking rt-7:10 1
         1010 1 owner-9 d...2.. switch owner-9:120 R > rt-7:10
         1025 1 rt-7 d...2.. switch rt-7:10 D > owner-9:120
         1100 1 owner-9 d...2.. switch owner-9:120 R > medium-8:50
         2000 1 medium-8 d...2.. switch medium-8:50 S > owner-9:120
         2100 1 owner-9 d...2.. switch owner-9:120 R > medium-8:50
         2900 1 medium-8 d...2.. switch medium-8:50 S > owner-9:120
         3000 1 owner-9 d...1.. waking rt-7:10 1
         3010 1 owner-9 d...2.. switch owner-9:120 R > rt-7:10",
        &options,
    );
    let (latency, kind, actor, _) = only(&result);
    assert_eq!((latency, kind, actor), (1985, CauseKind::Thread, "medium"), "{result:#?}");
    let spike = &result.spikes[0];
    assert_eq!(spike.cause.delayed.as_deref(), Some("owner"));
    assert_eq!(spike.cause.share.map(|share| (share * 1985.0).round()), Some(1700.0), "{spike:#?}");
    assert!(spike.cause.evidence.iter().all(|line| !line.contains("the task cannot")), "{spike:#?}");
    let waker = spike.also.iter().find(|cause| cause.actor.as_deref() == Some("owner")).unwrap();
    assert_eq!(waker.delayed.as_deref(), Some("owner"), "the task waited for it while it ran");
    assert!(waker.share.is_some_and(|share| (0.13..0.16).contains(&share)), "{waker:#?}");
}

#[test]
fn ordinary_tasks_share_their_cpu_and_delay_no_other() {
    let result = explained(
        "100 1 idle-0 d..h1.. expire 5098
         500 1 app-7 d...2.. switch app-7:120 S > nice-9:130
         1005 1 nice-9 d..h... waking app-7:120 1
         4000 1 nice-9 d...2.. switch nice-9:130 R > app-7:120",
    );
    let (_, kind, actor, _) = only(&result);
    assert_eq!((kind, actor), (CauseKind::Thread, "nice"), "{result:#?}");
}

#[test]
fn latencies_of_a_task_before_it_was_a_real_time_one_do_not_count() {
    let lines = |priority: u32| {
        format!(
            "100 1 app-7 d...2.. switch app-7:120 S > hog-9:120
             200 1 hog-9 d..h... waking app-7:120 1
             9000 1 hog-9 d...2.. switch hog-9:120 R > app-7:120
             9100 1 app-7 d...2.. switch app-7:{priority} S > hog-9:120
             10000 1 hog-9 d..h... waking app-7:{priority} 1
             10200 1 hog-9 d...2.. switch hog-9:120 R > app-7:{priority}
             10300 1 app-7 d...2.. switch app-7:{priority} S > hog-9:120"
        )
    };
    let latencies = |priority| -> Vec<u64> {
        explained(&lines(priority)).spikes.iter().map(|spike| spike.latency_ns / 1000).collect()
    };
    assert_eq!((latencies(120), latencies(10)), (vec![8800, 200], vec![200]));
}

#[test]
fn a_thread_of_whylate_that_does_not_measure_is_not_the_task() {
    let result = explained(
        "100 1 app-7 d...2.. switch app-7:120 S > hog-9:120
         200 1 hog-9 d..h... waking app-7:120 1
         400 1 hog-9 d...2.. switch hog-9:120 R > app-7:120
         500 1 app-7 d...2.. switch app-7:120 S > hog-9:120
         600 2 whylate-8 d...2.. switch whylate-8:120 S > hog-10:120
         700 2 hog-10 d..h... waking whylate-8:120 2
         9000 2 hog-10 d...2.. switch hog-10:120 R > whylate-8:120",
    );
    assert_eq!(result.spikes.iter().map(|spike| spike.task.as_str()).collect::<Vec<_>>(), ["app"]);
    assert!(result.traces[0].also_late.iter().all(|late| late.task != "whylate"), "{result:#?}");
}

#[test]
fn a_page_fault_of_the_task_itself() {
    let result = explained(
        "100 1 idle-0 d..h1.. expire 5098
         500 1 rt-7 ....... timer_start 6000
         510 1 rt-7 d...2.. switch rt-7:10 S > idle-0:120
         1003 1 idle-0 d..h... waking rt-7:10 1
         1010 1 idle-0 d...2.. switch idle-0:120 R > rt-7:10
         1020 1 rt-7 ....... fault
         1025 1 rt-7 d...2.. switch rt-7:10 D > idle-0:120
         3000 1 idle-0 d..h... waking rt-7:10 1
         3010 1 idle-0 d...2.. switch idle-0:120 R > rt-7:10",
    );
    assert_eq!((only(&result).0, only(&result).1), (1985, CauseKind::PageFault));
}

#[test]
fn an_ordinary_sleep_without_a_timer_is_no_spike() {
    let result = explained(
        "500 1 rt-7 ....... timer_start 6000
         510 1 rt-7 d...2.. switch rt-7:10 S > idle-0:120
         520 1 idle-0 d...2.. switch idle-0:120 R > rt-7:10
         1025 1 rt-7 d...2.. switch rt-7:10 S > idle-0:120
         3000 1 idle-0 d..h... waking rt-7:10 1
         3010 1 idle-0 d...2.. switch idle-0:120 R > rt-7:10",
    );
    assert!(result.spikes.is_empty(), "{result:#?}");
}

#[test]
fn throttling_takes_a_task_off_for_a_lower_priority_one() {
    let result = explained(
        "100 1 rt-7 d...2.. switch rt-7:10 S > idle-0:120
         900 1 idle-0 d...2.. switch idle-0:120 R > rt-7:10
         1000 1 rt-7 d...2.. switch rt-7:10 R > low-8:120
         51000 1 low-8 d...2.. switch low-8:120 R > rt-7:10",
    );
    assert_eq!((only(&result).0, only(&result).1), (50_000, CauseKind::Throttled));
}

#[test]
fn a_task_that_is_moved_is_followed() {
    let result = explained(
        "100 1 idle-0 d..h1.. expire 5098
         500 1 rt-7 ....... timer_start 6000
         510 1 rt-7 d...2.. switch rt-7:10 S > hog-9:5
         900 2 other-3 d...2.. switch other-3:120 S > migration/2-4:-1
         1003 1 hog-9 d..h... vec local_timer
         1004 1 hog-9 d..h... expire 6001
         1005 1 hog-9 d..h... waking rt-7:10 1
         1008 1 hog-9 d..h... vecx local_timer
         1300 2 migration/2-4 d...2.. migrate rt-7:10 1 > 2
         2300 2 migration/2-4 d...2.. switch migration/2-4:-1 S > rt-7:10",
    );
    let spike = &result.spikes[0];
    assert_eq!((spike.cpu.0, spike.cause.kind), (2, CauseKind::Migration), "{result:#?}");
    assert_eq!(spike.also[0].actor.as_deref(), Some("hog"));
}

/// Every trace of a hang ends like this.
#[test]
fn a_task_that_waits_at_the_end_of_the_trace_is_late_until_there() {
    let lines = "
        100 1 cyclic-7 d...... timer_start 1000
        110 1 cyclic-7 d...2.. switch cyclic-7:19 S > hog-9:9
        1001 1 hog-9 d..h... vec local_timer
        1002 1 hog-9 d..h... expire 1002
        1003 1 hog-9 d..h1.. waking cyclic-7:19 1
        1004 1 hog-9 d..h2.. wakeup cyclic-7:19 1
        1006 1 hog-9 d..h... vecx local_timer
        3000 1 hog-9 d..h... vec local_timer
        3010 1 hog-9 d..h... vecx local_timer
        3012 0 idle-0 d...2.. switch idle-0:120 R > other-8:120";
    let options = Options { task: Some("cyclic".parse().unwrap()), ..Options::default() };
    let result = explain(&mut Script::new(lines), &options).unwrap();
    let (latency, kind, actor, _) = only(&result);
    assert_eq!((kind, actor), (CauseKind::Thread, "hog"), "{result:#?}");
    assert!((2000..=2012).contains(&latency), "{latency}");
    let evidence = &result.spikes[0].cause.evidence;
    assert!(evidence.iter().any(|line| line.contains("before the end of the trace")), "{evidence:?}");
}

/// Nothing is missing in the trace: the task has no such moment.
#[test]
fn a_task_that_was_never_preempted_has_an_answer() {
    let lines = "
        100 1 cyclic-7 d...... timer_start 1000
        110 1 cyclic-7 d...2.. switch cyclic-7:19 S > hog-9:120
        1001 1 hog-9 d..h... vec local_timer
        1002 1 hog-9 d..h... expire 1002
        1003 1 hog-9 d..h1.. waking cyclic-7:19 1
        1004 1 hog-9 d..h2.. wakeup cyclic-7:19 1
        1006 1 hog-9 d..h... vecx local_timer
        1010 1 hog-9 d...2.. switch hog-9:120 R > cyclic-7:19
        1020 1 cyclic-7 d...2.. switch cyclic-7:19 S > hog-9:120";
    let options = Options {
        task: Some("cyclic".parse().unwrap()),
        what: Some(LateWhat::Preempted),
        ..Options::default()
    };
    let result = explain(&mut Script::new(lines), &options).unwrap();
    assert_eq!((result.answer, &result.answer_reason), (ExplainAnswer::None, &None), "{result:#?}");
}
