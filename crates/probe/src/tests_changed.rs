//! Changes to a thread by other programs while it measures.

use crate::child::{self, Failure};
use crate::layout::{Header, Lane, words_needed};
use crate::tests::{ALONE, spec, timer};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use whylate_core::Nanos;
use whylate_core::plan::TimerMethod;
use whylate_host::HostRoot;
use whylate_sys::schedule::{self, Scheduling};
use whylate_sys::shared::SharedWords;
use whylate_testing::{Need, skip};

/// The error of a measurement after `change` got the measuring thread's id during the measurement.
fn changed_meanwhile(change: impl FnOnce(u32) -> std::io::Result<()> + Send) -> Option<Failure> {
    let spec = spec(timer(Nanos::from_millis(1), TimerMethod::Nanosleep), Nanos::from_secs(2));
    let memory = SharedWords::create(words_needed(1)).unwrap();
    let words = memory.words();
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| child::measure(&HostRoot::real(), &spec, words, None, &|_| {}));
        let (lane, header) = (Lane::of(words, 0).unwrap(), Header::of(words).unwrap());
        let begun = Instant::now();
        while (header.start_ns().load(Relaxed) == 0 || lane.begin().load(Relaxed) == 0)
            && begun.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let changed = change(lane.tid().load(Relaxed) as u32);
        let failure = measured.join().unwrap().err();
        assert!(changed.is_ok(), "{changed:?}: {failure:?}");
        failure
    })
}

#[test]
fn a_measurement_whose_thread_was_rescheduled_or_moved_is_void() {
    let _alone = ALONE.lock();
    assert_eq!(changed_meanwhile(|_| Ok(())), None, "it was not changed");
    let void = |failure: Option<Failure>, words: &[&str]| match failure {
        Some(Failure::Void(reason)) if words.iter().all(|word| reason.contains(word)) => {}
        other => panic!("{words:?}: {other:?}"),
    };
    let may_be_realtime = std::thread::spawn(|| schedule::schedule_this_thread(Scheduling::Fifo(80)).is_ok());
    if may_be_realtime.join().unwrap() {
        let ordinary = changed_meanwhile(|tid| schedule::schedule_thread(tid, Scheduling::Other));
        void(ordinary, &["SCHED_FIFO 80", "to SCHED_OTHER"]);
        let lower = changed_meanwhile(|tid| schedule::schedule_thread(tid, Scheduling::Fifo(3)));
        void(lower, &["SCHED_FIFO 80", "to SCHED_FIFO 3"]);
    } else {
        skip(Need::Rights, "the probe was an ordinary task before, as no real-time priority may be set");
    }
    let others = schedule::allowed_of_this_thread().unwrap();
    if others.len() > 1 {
        void(changed_meanwhile(|tid| schedule::pin_thread(tid, &others)), &["may now run on CPU"]);
    }
}
