use super::*;

const NANOSLEEP: i32 = Sysno::clock_nanosleep as i32;
const FUTEX: i32 = Sysno::futex as i32;

/// It was runnable at `ready`, ran from `from` to `to`, and then slept.
fn stretch(began: Began, ready: u64, from: u64, to: u64) -> RawStretch {
    RawStretch {
        kind: TaskEvent::Stretch,
        thread: 5,
        process: 4,
        prio: 120,
        began,
        ready_ns: ready,
        run_ns: from,
        end_ns: to,
        state: 1,
        syscall: NANOSLEEP,
        command: Command::new("control"),
        ..RawStretch::try_read_from_bytes(&[0; size_of::<RawStretch>()]).unwrap()
    }
}

fn preempted(raw: &RawStretch) -> RawStretch {
    RawStretch { is_runnable: 1, next: 9, next_command: Command::new("thief"), ..raw.clone() }
}

/// The process has the threads 5 and 6, another process has thread 7.
fn names(_: u32, thread: u32, is_shared: bool) -> Option<String> {
    (5..if is_shared { 8 } else { 7 }).contains(&thread).then(|| format!("thread-{thread}"))
}

fn built(raws: &[(u32, RawStretch)]) -> (Vec<Activation>, u64) {
    let mut builder = Builder::default();
    let found = raws.iter().filter_map(|(cpu, raw)| builder.add(CpuId(*cpu), raw, &names)).collect();
    (found, builder.incomplete)
}

#[test]
fn an_activation_reaches_from_the_timer_to_the_sleep_over_cpus_and_thieves() {
    let timer =
        RawStretch { waker_kind: RawWaker::Timer, expires_ns: 90, ..stretch(Began::Woken, 100, 110, 150) };
    let moved = RawStretch { moved_ns: 180, ..stretch(Began::Preempted, 0, 200, 230) };
    let (found, incomplete) = built(&[(0, preempted(&timer)), (1, moved)]);
    assert_eq!((found.len(), incomplete), (1, 0));
    let one = &found[0];
    assert_eq!((one.due_ns, one.wakeup_ns(), one.response_ns()), (90, 20, 140));
    assert_eq!((one.running_ns(), one.preempted_ns(), one.migrations), (70, 50, 1));
    let stages: Vec<(u64, u64, u32)> = one.stages.iter().map(|it| (it.from_ns, it.to_ns, it.cpu.0)).collect();
    assert_eq!(stages, [(90, 110, 0), (110, 150, 0), (150, 180, 0), (180, 200, 1), (200, 230, 1)]);
    assert!(matches!(&one.stages[2].what, Doing::Preempted { by, .. } if by.command == "thief"));
    assert_eq!(one.slept, Wait::Work(Some("clock_nanosleep".to_owned())));
    assert_eq!(one.waker, Waker::Timer);
}

#[test]
fn a_task_that_arms_its_timer_in_the_past_is_due_when_it_sleeps() {
    let first = stretch(Began::Woken, 100, 110, 200);
    let timer =
        RawStretch { waker_kind: RawWaker::Timer, expires_ns: 50, ..stretch(Began::Woken, 230, 240, 300) };
    let (found, _) = built(&[(0, first), (0, timer)]);
    let [first, second] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((first.due_ns, first.response_ns()), (100, 100));
    assert_eq!((second.due_ns, second.wakeup_ns(), second.response_ns()), (200, 40, 100));
}

#[test]
fn an_activation_whose_start_was_not_shown_is_counted_and_no_part_of_a_period() {
    let raws = [
        stretch(Began::Unknown, 0, 0, 50),
        stretch(Began::Woken, 100, 110, 150),
        stretch(Began::Unknown, 0, 0, 250),
        stretch(Began::Woken, 300, 310, 350),
        stretch(Began::Woken, 400, 410, 450),
    ];
    let (found, incomplete) = built(&raws.map(|raw| (0, raw)));
    let seen: Vec<_> = found.iter().map(|one| (one.due_ns, one.gap)).collect();
    assert_eq!((seen, incomplete), (vec![(100, None), (300, Some((150, 250))), (400, None)], 1));
}

#[test]
fn an_activation_whose_switch_was_not_shown_begins_at_its_wake_up() {
    let timer =
        RawStretch { waker_kind: RawWaker::Timer, expires_ns: 190, ..stretch(Began::Woken, 200, 0, 250) };
    let (found, incomplete) = built(&[(0, stretch(Began::Woken, 100, 110, 150)), (0, timer)]);
    let [seen, unseen] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((unseen.due_ns, unseen.woken_ns, unseen.response_ns(), incomplete), (190, 200, 60, 0));
    assert_eq!((unseen.wakeup_ns(), unseen.running_ns(), unseen.gap), (10, 0, None));
    assert_eq!(unseen.stages.last().map(|it| (it.from_ns, it.what.clone())), Some((200, Doing::Unseen)));
    assert_eq!([seen, unseen].map(|it| it.is_wakeup_seen()), [true, false]);
}

#[test]
fn a_task_that_is_moved_before_it_runs_waits_for_two_cpus() {
    let woken = || stretch(Began::Woken, 100, 900, 950);
    let moved = RawStretch { moved_ns: 800, moved_from: 1 + 3, ..woken() };
    let (found, _) = built(&[(1, moved)]);
    let stages: Vec<(u64, u64, u32)> =
        found[0].stages.iter().map(|it| (it.from_ns, it.to_ns, it.cpu.0)).collect();
    assert_eq!(stages, [(100, 800, 3), (800, 900, 1), (900, 950, 1)]);
    assert_eq!((found[0].wakeup_ns(), found[0].preempted_ns()), (800, 0));
    // Moved while it slept, or back to where it was.
    for (moved_ns, moved_from) in [(50, 4), (800, 2), (800, 0)] {
        let (found, _) = built(&[(1, RawStretch { moved_ns, moved_from, ..woken() })]);
        assert_eq!(found[0].stages.len(), 2, "{moved_ns} {moved_from}");
    }
}

#[test]
fn the_owner_of_a_lock_is_the_one_that_the_lock_names() {
    let wait = |command, value, word, owner| RawStretch {
        syscall: FUTEX,
        futex: 0x1000,
        futex_command: command,
        futex_value: value,
        futex_word: word,
        futex_owner: owner,
        ..stretch(Began::Woken, 100, 110, 120)
    };
    let waits = |raw: RawStretch| wait_of(&raw, &names);
    let lock = |owner: Option<u32>, inherits_priority| Wait::Lock {
        name: None,
        address: 0x1000,
        owner: owner.map(|it| (it, format!("thread-{it}"))),
        inherits_priority,
    };
    assert_eq!(waits(wait(FUTEX_LOCK_PI, 0, 0x8000_0006, 0)), lock(Some(6), true));
    assert_eq!(waits(wait(FUTEX_WAIT, 2, 0, 6)), lock(Some(6), false));
    assert_eq!(waits(wait(FUTEX_WAIT_BITSET, 2, 0, 77)), lock(None, false), "no thread of the process");
    assert_eq!(waits(wait(FUTEX_WAIT, 2, 0, 7)), lock(Some(7), false), "of another process");
    assert_eq!(waits(wait(FUTEX_WAIT | FUTEX_PRIVATE, 2, 0, 7)), lock(None, false));
    assert_eq!(waits(wait(FUTEX_LOCK_PI | FUTEX_PRIVATE, 0, 0x8000_0006, 0)), lock(Some(6), true));
    assert_eq!(waits(wait(FUTEX_WAIT, 0x8000_0006, 0, 6)), lock(Some(6), false), "a robust one");
    let other = waits(wait(FUTEX_WAIT, 0x8000_0006, 0, 5));
    assert_eq!(other, Wait::Work(Some("futex".to_owned())), "a number that is no lock's word");
    assert_eq!(
        waits(wait(FUTEX_WAIT, 0, 0, 6)),
        Wait::Work(Some("futex".to_owned())),
        "a condition variable"
    );
}

#[test]
fn an_owner_that_has_ended_keeps_its_last_name_and_not_that_of_its_creator() {
    let mut builder = Builder::default();
    let of =
        |thread, command: &str, raw: RawStretch| RawStretch { thread, command: Command::new(command), ..raw };
    let asks = |builder: &Builder, thread| owner_name(&builder.names, &|_, _, _| None, 4, thread, false);
    let nothing = stretch(Began::Woken, 10, 20, 30);
    // A new thread has the name of its creator until it gets its own, and then it is watched no more.
    let new = RawStretch { kind: TaskEvent::New, ..nothing };
    let left = RawStretch { kind: TaskEvent::Gone, run_ns: 0, ..nothing };
    builder.take(CpuId(0), &of(6, "jctl", new), &names);
    builder.take(CpuId(0), &of(6, "jctl", left), &names);
    assert_eq!(asks(&builder, 6), None);
    let waits = RawStretch {
        syscall: FUTEX,
        futex: 0x1000,
        futex_command: FUTEX_WAIT,
        futex_value: 2,
        futex_owner: 6,
        ..nothing
    };
    builder.take(CpuId(0), &waits, &names);
    assert_eq!(asks(&builder, 6).as_deref(), Some("thread-6"), "it was found while it was there");
    builder.take(CpuId(0), &of(7, "mapper", nothing.clone()), &names);
    let ended = RawStretch { kind: TaskEvent::Gone, ..nothing };
    builder.take(CpuId(0), &of(7, "mapper", ended), &names);
    assert_eq!(asks(&builder, 7).as_deref(), Some("mapper"));
}

#[test]
fn waits_in_the_middle_do_not_end_it() {
    let fault =
        RawStretch { syscall: SYSCALL_NONE, fault_ns: 115, state: 2, ..stretch(Began::Woken, 100, 110, 120) };
    let disk = RawStretch { syscall: Sysno::fsync as i32, state: 2, ..stretch(Began::Woken, 150, 160, 170) };
    let (found, _) = built(&[(0, fault), (0, disk), (0, stretch(Began::Woken, 200, 210, 220))]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].response_ns(), found[0].blocked_ns(), found[0].preempted_ns()), (120, 60, 20));
    let waits: Vec<&Wait> = found[0]
        .stages
        .iter()
        .filter_map(|stage| if let Doing::Blocked { wait, .. } = &stage.what { Some(wait) } else { None })
        .collect();
    assert_eq!(waits, [&Wait::Page, &Wait::Kernel(Some("fsync".to_owned()))]);
}

#[test]
fn what_was_not_seen_whole_is_counted_and_no_activation() {
    let first = || preempted(&stretch(Began::Woken, 100, 110, 150));
    let lossy = RawStretch { lost: 1, ..stretch(Began::Preempted, 0, 200, 230) };
    let (found, incomplete) = built(&[(0, first()), (0, lossy)]);
    assert_eq!((found.len(), incomplete), (0, 1));
    // A guest does not show each switch: the moment at which the task got the CPU is not known, and no thread is blamed for
    // that time.
    let (found, incomplete) = built(&[(0, first()), (0, stretch(Began::Unknown, 0, 0, 230))]);
    assert_eq!((found.len(), incomplete), (1, 0));
    let one = &found[0];
    assert_eq!((one.response_ns(), one.running_ns(), one.preempted_ns()), (130, 40, 0));
    assert_eq!(one.stages.last().map(|it| &it.what), Some(&Doing::Unseen));
    let (found, incomplete) = built(&[(0, stretch(Began::Preempted, 0, 200, 230))]);
    assert_eq!((found.len(), incomplete), (0, 0), "the watch began in the middle of it");
}

#[test]
fn an_activation_goes_from_mark_to_mark_over_every_sleep_between_them() {
    let come = |kind, at_ns| RawStretch { kind, end_ns: at_ns, ..stretch(Began::Unknown, 0, 0, 0) };
    let mut builder = Builder { marked: true, ..Builder::default() };
    let raws = [
        // What happened before the watch is not known, and is not needed.
        come(TaskEvent::Begin, 120),
        stretch(Began::Unknown, 0, 0, 150),
        preempted(&stretch(Began::Woken, 400, 420, 500)),
        come(TaskEvent::End, 640),
        come(TaskEvent::Begin, 660),
        come(TaskEvent::End, 670),
        // A start without an end is counted, and not reported.
        come(TaskEvent::Begin, 690),
        stretch(Began::Preempted, 500, 600, 700),
        come(TaskEvent::Begin, 910),
        stretch(Began::Woken, 880, 900, 950),
    ];
    for raw in &raws {
        assert_eq!(builder.add(CpuId(1), raw, &names), None);
    }
    let [first, second] = &builder.ended[..] else { panic!("{:#?}", builder.ended) };
    assert_eq!((first.due_ns, first.response_ns(), first.wakeup_ns()), (120, 520, 0));
    assert_eq!((first.running_ns(), first.blocked_ns(), first.preempted_ns()), (30 + 80 + 40, 250, 100 + 20));
    assert!(first.stages.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns), "{first:#?}");
    assert_eq!((second.due_ns, second.response_ns(), second.stages.len()), (660, 10, 1));
    assert_eq!(builder.incomplete, 1);
}

#[test]
fn an_activation_in_whose_middle_its_thread_ends_is_cut() {
    let took = |run_ns: u64, threads_left: i32| {
        let mut builder = Builder::default();
        builder.take(CpuId(0), &stretch(Began::Woken, 100, 110, 150), &names);
        let last = RawStretch { threads_left, ..stretch(Began::Woken, 200, run_ns, 5_000) };
        builder.take(CpuId(1), &RawStretch { kind: TaskEvent::Gone, ..last }, &names);
        builder.cuts.iter().map(|cut| (cut.thread, cut.command.clone(), cut.took_ns)).collect::<Vec<_>>()
    };
    assert_eq!(took(210, 2), [(5, "control".to_owned(), 4_800)]);
    assert_eq!(took(210, 0), [], "the last thread gives the memory of its process back");
    assert_eq!(took(0, 2), [], "it has another name now");
}

#[test]
fn a_gap_after_which_nothing_comes_is_cut() {
    let mut builder = Builder::default();
    builder.take(CpuId(0), &stretch(Began::Woken, 100, 110, 150), &names);
    builder.forget_open();
    builder.cut_gaps(900);
    let cuts: Vec<_> = builder.cuts.iter().map(|cut| (cut.thread, cut.took_ns)).collect();
    assert_eq!(cuts, [(5, 750)]);
}

fn cuts_at(mut builder: Builder, at_ns: u64) -> Vec<(u32, u64)> {
    builder.cut_gaps(at_ns);
    builder.cuts.iter().map(|cut| (cut.thread, cut.took_ns)).collect()
}

#[test]
fn a_thread_that_was_runnable_to_the_end_and_has_no_record_has_a_gap_of_the_whole_watch() {
    let mut builder = Builder { begin_ns: 100, ..Builder::default() };
    for (thread, first_ns) in [(6, 0), (7, 300)] {
        builder.threads.insert(thread, Watched { first_ns, ..Watched::default() });
    }
    builder.take(CpuId(0), &stretch(Began::Woken, 110, 120, 150), &names);
    let mut never_seen = |thread| builder.never_seen(thread, CpuId(0), 900);
    assert_eq!((never_seen(5), never_seen(6)), (None, None));
    // This one was running when it became known.
    let found = never_seen(7).unwrap();
    assert_eq!((found.due_ns, found.response_ns(), found.is_unended), (300, 600, true));
    assert_eq!(cuts_at(builder, 900), [(6, 800)]);
}

#[test]
fn a_thread_that_waited_when_the_watch_began_has_a_gap_until_it_sleeps() {
    let mut builder = Builder { begin_ns: 100, ..Builder::default() };
    builder.take(CpuId(0), &stretch(Began::Unknown, 0, 500, 550), &names);
    assert_eq!(cuts_at(builder, 900), [(5, 450)]);
}

#[test]
fn a_thread_that_never_sleeps_has_one_activation_and_one_that_sleeps_has_none_before_that() {
    let runs = |builder: &mut Builder| {
        let new = RawStretch { kind: TaskEvent::New, ..stretch(Began::Unknown, 0, 0, 100) };
        builder.take(CpuId(0), &new, &names);
        builder.take(CpuId(0), &preempted(&stretch(Began::Unknown, 0, 0, 500)), &names);
        builder.take(CpuId(0), &preempted(&stretch(Began::Preempted, 500, 600, 900)), &names);
    };
    let mut busy = Builder { begin_ns: 50, ..Builder::default() };
    runs(&mut busy);
    let open = busy.tracks[&5].open.clone().unwrap();
    assert_eq!((open.due_ns, open.response_ns(), open.running_ns()), (100, 800, 300));
    let mut sleeps = Builder { begin_ns: 50, ..Builder::default() };
    runs(&mut sleeps);
    assert_eq!(sleeps.add(CpuId(0), &stretch(Began::Preempted, 900, 950, 960), &names), None);
    let next = sleeps.add(CpuId(0), &stretch(Began::Woken, 1_000, 1_010, 1_020), &names);
    assert_eq!((next.map(|it| it.due_ns), sleeps.incomplete), (Some(1_000), 0));
    let mut ends = Builder { begin_ns: 50, ..Builder::default() };
    runs(&mut ends);
    let gone = RawStretch { kind: TaskEvent::Gone, threads_left: 1, ..stretch(Began::Unknown, 0, 0, 2_000) };
    ends.take(CpuId(0), &gone, &names);
    assert!(ends.cuts.is_empty() && ends.incomplete == 0, "it is not known when its work began");
}

/// A thread that is watched from the moment on at which it gets its name, and is then moved to its CPU.
#[test]
fn work_whose_start_was_not_seen_is_no_activation_after_a_sleep_in_its_middle() {
    let moved = RawStretch {
        state: 2,
        syscall: Sysno::sched_setaffinity as i32,
        ..stretch(Began::Unknown, 0, 50, 60)
    };
    let (rest, next) = (stretch(Began::Woken, 70, 80, 500), stretch(Began::Woken, 1_000, 1_010, 1_020));
    let (found, _) = built(&[(0, moved), (1, rest), (1, next)]);
    assert_eq!(found.iter().map(|it| it.due_ns).collect::<Vec<_>>(), [1_000]);
}
