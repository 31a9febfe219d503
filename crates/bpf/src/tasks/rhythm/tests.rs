use super::*;
use syscalls::Sysno;
use whylate_core::CpuId;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn site(call: Sysno, object: u64, mode: u64) -> Site {
    Site { call: call as i32, object, mode, caller: 0 }
}

fn timer() -> Site {
    site(Sysno::clock_nanosleep, 1, 1)
}

fn relative() -> Site {
    site(Sysno::clock_nanosleep, 1, 0)
}

fn file(number: u64) -> Site {
    site(Sysno::read, number, 0)
}

/// What a thread does: it sleeps at this place until this moment, and then works for this long.
fn play(by: Activations, steps: &[(Site, u64, u64)]) -> (Vec<Activation>, Option<Doubt>) {
    let mut rhythms = Rhythms::new(by);
    let mut ended = Vec::new();
    parts(steps).into_iter().for_each(|part| rhythms.add(part, &mut ended));
    rhythms.settle(0, true, &mut ended);
    let doubt = rhythms.doubts().pop().map(|it| it.1);
    rhythms.end(0, &Last::default(), &mut ended);
    (ended, doubt)
}

fn parts(steps: &[(Site, u64, u64)]) -> Vec<Activation> {
    let part = |(nth, (site, due_ns, work_ns)): (usize, &(Site, u64, u64))| {
        let stage = Stage { from_ns: *due_ns, to_ns: due_ns + work_ns, cpu: CpuId(0), what: Doing::Running };
        let next = steps.get(nth + 1).map_or(*site, |next| next.0);
        let call = Sysno::new(next.call as usize).map(|call| call.name().to_owned());
        Activation {
            due_ns: *due_ns,
            woken_ns: *due_ns,
            waker: Waker::Timer,
            stages: vec![stage],
            woke_from: (nth > 0).then_some(*site),
            slept: Wait::Work(call),
            slept_at: next,
            ..Activation::default()
        }
    };
    steps.iter().enumerate().map(part).collect()
}

/// Below `most`, by chance.
fn some(random: &mut u64, most: u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*random >> 33) % most
}

/// The responses longer than `than_ns`. The first wake-up may be in the middle of a period, so that sleeps until the next one
/// are not joined.
fn longer(ended: &[Activation], than_ns: u64) -> Vec<u64> {
    ended.iter().map(Activation::response_ns).filter(|it| *it > than_ns).collect()
}

#[test]
fn a_sleep_in_the_middle_of_a_period_is_a_part_of_the_work() {
    let mut steps = Vec::new();
    for nth in 1..200_u64 {
        steps.push((timer(), nth * 5 * MS, 300 * US));
        // Sometimes it waits for a lock.
        if nth % 20 == 7 {
            steps.push((site(Sysno::futex, 0x40, 0), nth * 5 * MS + 3 * MS, 200 * US));
        }
    }
    let (ended, doubt) = play(Activations::ByRhythm, &steps);
    assert_eq!((ended.len(), doubt), (199, None));
    assert_eq!(longer(&ended, MS), vec![3_200 * US; 10]);
    let late = ended.iter().find(|it| it.response_ns() > MS).unwrap();
    let waits: Vec<_> = late.stages.iter().map(|stage| (stage.length_ns(), stage.what.clone())).collect();
    let wait =
        Wait::Inside { call: "futex".to_owned(), object: whylate_core::recording::Object::Word(0x40, None) };
    assert_eq!(waits[1], (2_700 * US, Doing::Blocked { wait, waker: Waker::Timer }));
}

#[test]
fn a_thread_that_waits_in_one_place_has_one_activation_for_each_wake_up() {
    let moments = [1, 4, 5, 11, 30, 31, 33, 47, 60, 61, 75, 90, 92, 97, 120];
    let steps: Vec<_> = moments.iter().map(|at| (file(4), at * MS, 100 * US)).collect();
    let (ended, doubt) = play(Activations::ByRhythm, &steps);
    assert_eq!((ended.len(), doubt), (15, None));
}

#[test]
fn without_a_rhythm_several_places_are_a_doubt_that_tells_how_long_it_might_have_taken() {
    let mut steps = Vec::new();
    let (mut at_ns, mut random) = (0, 7_u64);
    for _ in 1..60_u64 {
        at_ns += some(&mut random, 20 * MS) + MS;
        steps.push((file(4), at_ns, 100 * US));
        steps.push((file(5), at_ns + 600 * US, 100 * US));
    }
    let (ended, doubt) = play(Activations::ByRhythm, &steps);
    assert_eq!(ended.len(), 118);
    let doubt = doubt.unwrap();
    assert!(doubt.sleeps > 50 && doubt.longest_ns > 10 * MS && doubt.calls.contains("read"), "{doubt:?}");
    assert_eq!(play(Activations::PerWakeup, &steps).1, None);
}

#[test]
fn arrivals_that_repeat_are_a_rhythm_with_the_replies_in_it() {
    let (mut steps, mut random) = (Vec::new(), 7);
    for nth in 1..100_u64 {
        let at_ns = nth * 10 * MS + some(&mut random, 50 * US);
        steps.push((file(4), at_ns, 100 * US));
        steps.push((file(5), at_ns + if nth == 60 { 7 * MS } else { 500 * US }, 100 * US));
    }
    let (ended, doubt) = play(Activations::ByRhythm, &steps);
    assert_eq!((ended.len(), longer(&ended, MS), doubt), (100, vec![7_100 * US], None));
}

#[test]
fn a_thread_that_sleeps_for_the_same_time_has_an_activation_for_each_sleep_also_after_a_late_one() {
    let mut at_ns = 0;
    let steps: Vec<_> = (1..100_u64)
        .map(|nth| {
            let work_ns = if nth % 9 == 0 { 6 * MS } else { 800 * US + nth * 13 % 70 * US };
            at_ns += 5 * MS;
            let step = (relative(), at_ns, work_ns);
            at_ns += work_ns;
            step
        })
        .collect();
    let (ended, doubt) = play(Activations::ByRhythm, &steps);
    assert_eq!((ended.len(), longer(&ended, MS).len(), doubt), (99, 11, None));
}

#[test]
fn a_pause_at_a_moment_in_the_middle_is_a_part_and_two_alike_are_a_doubt() {
    // The moment is computed from the present time.
    let of = |middle: fn(&mut u64) -> u64| -> Vec<(Site, u64, u64)> {
        let mut random = 7;
        (1..100_u64)
            .flat_map(|nth| {
                let at_ns = nth * 10 * MS;
                [(timer(), at_ns, 500 * US), (timer(), at_ns + MS + middle(&mut random), 500 * US)]
            })
            .collect()
    };
    let (ended, doubt) = play(Activations::ByRhythm, &of(|random| some(random, 400 * US)));
    assert_eq!((ended.len(), longer(&ended, MS).len(), doubt), (100, 98, None));
    let (ended, doubt) = play(Activations::ByRhythm, &of(|_| 0));
    assert_eq!(ended.len(), 100);
    assert!(doubt.is_some_and(|doubt| doubt.longest_ns >= 10 * MS));
    assert_eq!(play(Activations::PerPeriod(None), &of(|_| 0)).1, None);
    let (ended, doubt) = play(Activations::PerPeriod(Some(10 * MS)), &of(|_| 0));
    assert_eq!((ended.len(), longer(&ended, 1_400 * US).len(), doubt), (100, 98, None));
}

#[test]
fn messages_in_the_place_of_the_timer_are_activations_and_a_doubt_where_there_are_more_than_periods() {
    let epoll = site(Sysno::epoll_wait, 3, 0);
    let mut random = 7;
    let steps: Vec<_> = (1..100_u64)
        .flat_map(|nth| {
            let at_ns = nth * 10 * MS;
            [(epoll, at_ns, 500 * US), (epoll, at_ns + 3 * MS + some(&mut random, 400 * US), 500 * US)]
        })
        .collect();
    let (ended, doubt) = play(Activations::ByRhythm, &steps);
    assert_eq!(ended.len(), 198);
    let doubt = doubt.unwrap_or_default();
    assert!(doubt.longest_ns > 3 * MS && doubt.longest_ns < 8 * MS, "{doubt:?}");
    // A sender that is not punctual.
    let steps: Vec<_> =
        (1..100_u64).map(|nth| (epoll, nth * 10 * MS + nth % 11 / 10 * 2 * MS, 500 * US)).collect();
    assert_eq!(play(Activations::ByRhythm, &steps).1, None);
}

#[test]
fn a_thread_that_hangs_in_the_middle_of_its_period_is_not_at_an_end() {
    let mut rhythms = Rhythms::new(Activations::ByRhythm);
    let mut ended = Vec::new();
    let part = |nth: u64, from: Site, due_ns: u64, next: Site| Activation {
        due_ns,
        woken_ns: due_ns,
        stages: vec![Stage {
            from_ns: due_ns,
            to_ns: due_ns + 100 * US,
            cpu: CpuId(0),
            what: Doing::Running,
        }],
        woke_from: (nth > 0).then_some(from),
        slept: Wait::Work(Some("futex".to_owned())),
        slept_at: next,
        ..Activation::default()
    };
    for nth in 0..30 {
        let next = if nth == 29 { site(Sysno::futex, 0x40, 0) } else { timer() };
        rhythms.add(part(nth, timer(), nth * 5 * MS, next), &mut ended);
    }
    rhythms.settle(0, true, &mut ended);
    assert_eq!(ended.len(), 29);
    let open = rhythms.unended(0, None, 1_000 * MS).unwrap();
    assert_eq!(
        (open.is_unended, open.response_ns(), open.blocked_ns()),
        (true, 855 * MS, 855 * MS - 100 * US)
    );
}

#[test]
fn random_intervals_are_no_rhythm_of_several_of_them() {
    for seed in 0..200 {
        let (mut at_ns, mut random) = (0, seed);
        let steps: Vec<_> = (0..60)
            .map(|_| {
                at_ns += 20 * MS + some(&mut random, 20 * MS);
                (timer(), at_ns, 100 * US)
            })
            .collect();
        assert_eq!(play(Activations::ByRhythm, &steps).0.len(), 60, "seed {seed}");
    }
}

#[test]
fn a_lock_that_is_waited_for_now_and_then_is_not_where_the_thread_waits_for_work() {
    for seed in 0..200 {
        let (mut steps, mut random) = (Vec::new(), seed);
        for nth in 1..=120_u64 {
            let at_ns = nth * 5 * MS + some(&mut random, 80 * US);
            steps.push((file(4), at_ns, 100 * US));
            if some(&mut random, 3) == 0 {
                steps.push((
                    site(Sysno::futex, 0x40, 0),
                    at_ns + 400 * US + some(&mut random, 60 * US),
                    100 * US,
                ));
            }
        }
        let (ended, _) = play(Activations::ByRhythm, &steps);
        assert_eq!(longer(&ended, 2 * MS), Vec::<u64>::new(), "seed {seed}");
    }
}

#[test]
fn two_kinds_of_sleep_in_one_place_are_a_doubt() {
    let play = |helper: Option<u32>, every: u64| {
        let mut rhythms = Rhythms::new(Activations::ByRhythm);
        let (mut at_ns, mut random, mut ended) = (0, 7, Vec::new());
        for nth in 0..200_u64 {
            at_ns += 10 * MS + some(&mut random, 5 * MS);
            let helps = helper.filter(|_| nth % every == 0).map(|helper| (at_ns + 3 * MS, helper));
            for (due_ns, waker) in std::iter::once((at_ns, 7)).chain(helps) {
                let stage =
                    Stage { from_ns: due_ns, to_ns: due_ns + 100 * US, cpu: CpuId(0), what: Doing::Running };
                let part = Activation {
                    due_ns,
                    woken_ns: due_ns,
                    waker: Waker::Thread(waker, String::new()),
                    stages: vec![stage],
                    woke_from: Some(file(4)),
                    slept: Wait::Work(Some("read".to_owned())),
                    slept_at: file(4),
                    ..Activation::default()
                };
                rhythms.add(part, &mut ended);
            }
        }
        rhythms.doubts().pop().map(|it| it.1.longest_ns)
    };
    assert_eq!(play(None, 1), None);
    // Another thread ends every third one.
    assert_eq!(play(Some(8), 3), Some(3_100 * US));
    // The same thread brings the second part each time.
    assert_eq!(play(Some(7), 1), Some(3_100 * US));
}

/// The same without places: what is known of an ordinary user's own threads.
fn play_without_places(steps: &[(u64, u64)]) -> (Vec<Activation>, Option<Doubt>) {
    without_places_by(Activations::ByRhythm, steps)
}

fn without_places_by(by: Activations, steps: &[(u64, u64)]) -> (Vec<Activation>, Option<Doubt>) {
    let mut rhythms = Rhythms::without_places(by);
    let mut ended = Vec::new();
    for (nth, (due_ns, work_ns)) in steps.iter().enumerate() {
        let stage = Stage { from_ns: *due_ns, to_ns: due_ns + work_ns, cpu: CpuId(0), what: Doing::Running };
        let part = Activation {
            due_ns: *due_ns,
            woken_ns: *due_ns,
            stages: vec![stage],
            woke_from: (nth > 0).then(Site::default),
            slept: Wait::Work(None),
            ..Activation::default()
        };
        rhythms.add(part, &mut ended);
    }
    (ended, rhythms.doubts().pop().map(|it| it.1))
}

/// Cycles of which one of 20 goes on after `sleeps` (when they end after its begin, and the work after each), so that the next
/// `missed` periods have no wake-up of their own.
fn with_late_cycles(period_ns: u64, work_ns: u64, sleeps: &[(u64, u64)], missed: u64) -> Vec<(u64, u64)> {
    let (mut steps, mut nth) = (Vec::new(), 1);
    while nth < 300 {
        let at_ns = nth * period_ns;
        steps.push((at_ns, work_ns));
        if nth % 20 == 0 {
            steps.extend(sleeps.iter().map(|(after_ns, work_ns)| (at_ns + after_ns, *work_ns)));
            nth += missed;
        }
        nth += 1;
    }
    steps
}

#[test]
fn without_places_every_wake_up_is_an_activation_however_late_it_comes() {
    let mut random = 7;
    // An ordinary thread on a busy machine: up to 4 ms late in a period of 6 ms.
    let steps: Vec<(u64, u64)> =
        (1..200).map(|nth| (nth * 6 * MS + some(&mut random, 4 * MS), 800 * US)).collect();
    let (ended, doubt) = play_without_places(&steps);
    assert_eq!(ended.len(), steps.len());
    assert!(ended.iter().all(|one| one.response_ns() == 800 * US));
    // Whether they are late or sleep in the middle of the work, the kernel does not show: the bound says how long then.
    assert!(doubt.is_none_or(|doubt| doubt.longest_ns < 12 * MS));
    let on_time: Vec<(u64, u64)> =
        (1..200).map(|nth| (nth * 6 * MS + some(&mut random, MS), 800 * US)).collect();
    assert_eq!(play_without_places(&on_time).1, None);
}

#[test]
fn without_places_a_rare_sleep_that_ends_between_periods_is_a_doubt_even_if_the_work_overruns() {
    // One of 20 cycles waits for 8 ms in its middle, so it overruns, and the next period has no wake-up of its own.
    let steps = with_late_cycles(5_333 * US, 400 * US, &[(8 * MS, 1_500 * US)], 1);
    let (_, doubt) = play_without_places(&steps);
    let longest_ns = doubt.unwrap_or_default().longest_ns;
    assert!((9_400 * US..9_700 * US).contains(&longest_ns), "{longest_ns}");
}

#[test]
fn without_places_a_second_sleep_in_each_period_is_a_doubt() {
    let steps: Vec<(u64, u64)> =
        (1..100).flat_map(|nth| [(nth * 10 * MS, 300 * US), (nth * 10 * MS + 4 * MS, 300 * US)]).collect();
    let (ended, doubt) = play_without_places(&steps);
    assert_eq!(ended.len(), steps.len());
    assert!(doubt.as_ref().is_some_and(|it| it.longest_ns >= 4 * MS), "{doubt:?}");
}

#[test]
fn without_places_many_short_sleeps_in_one_cycle_add_up() {
    // One of 20 cycles sleeps six times for 2 ms, so it takes 15 ms; the cycles after it begin late.
    let sleeps: Vec<(u64, u64)> = (1..=6).map(|sleep| (sleep * 2_100 * US, 100 * US)).collect();
    let steps = with_late_cycles(5 * MS, 300 * US, &sleeps, 2);
    for by in [Activations::ByRhythm, Activations::PerPeriod(None), Activations::PerPeriod(Some(5 * MS))] {
        let (ended, doubt) = without_places_by(by, &steps);
        assert_eq!(ended.len(), steps.len(), "no two are joined: {by:?}");
        let longest_ns = doubt.unwrap_or_default().longest_ns;
        assert!((12_700 * US..20 * MS).contains(&longest_ns), "{by:?}: {longest_ns}");
    }
}

#[test]
fn without_places_a_sleep_longer_than_a_period_is_a_doubt() {
    // It ends where the next period would begin.
    let steps: Vec<(u64, u64)> =
        (1..300).filter(|nth| !(1..12).contains(&(nth % 100))).map(|nth| (nth * 5 * MS, 300 * US)).collect();
    let (_, doubt) = play_without_places(&steps);
    assert!(doubt.is_some_and(|it| it.longest_ns >= 60 * MS));
}

/// A control group with 30 ms of runtime in 100 ms: five of ten cycles run late, one after another.
#[test]
fn a_thread_that_is_throttled_in_half_of_its_periods_keeps_its_period() {
    let mut steps = Vec::new();
    for nth in 0..200_u64 {
        let work_ns = match nth % 10 {
            5 => 51_600 * US,
            6..=9 | 0 => continue,
            _ => 300 * US,
        };
        steps.push((timer(), (nth + 1) * 10 * MS, work_ns));
    }
    let (ended, doubt) = play(Activations::ByRhythm, &steps);
    assert_eq!((ended.len(), doubt), (steps.len(), None));
    assert_eq!(longer(&ended, MS), vec![51_600 * US; 20]);
}

#[test]
fn a_rare_sleep_elsewhere_is_a_doubt_without_a_rhythm() {
    let steps = |has_pause: bool| {
        let mut random = 3;
        let (mut due_ns, mut steps) = (MS, Vec::new());
        for nth in 0..100 {
            due_ns += 20 * MS + some(&mut random, 15 * MS);
            steps.push((timer(), due_ns, 600 * US));
            if has_pause && nth == 80 {
                steps.push((file(3), due_ns + 900 * US, 1_200 * US));
            }
        }
        steps
    };
    assert_eq!(play(Activations::ByRhythm, &steps(false)).1, None);
    let (_, doubt) = play(Activations::ByRhythm, &steps(true));
    assert!(doubt.as_ref().is_some_and(|doubt| doubt.longest_ns >= 2_100 * US), "{doubt:?}");
}

/// The same moments, but the thread sleeps in between: these are the phases of a longer cycle.
#[test]
fn phases_of_a_longer_cycle_are_a_doubt() {
    let phases = (0..60_u64).flat_map(|cycle| (1..=5).map(move |phase| (cycle * 10 + phase) * 10 * MS));
    let steps: Vec<_> = phases.map(|due_ns| (timer(), due_ns, 300 * US)).collect();
    let (_, doubt) = play(Activations::ByRhythm, &steps);
    assert!(doubt.as_ref().is_some_and(|doubt| doubt.longest_ns >= 30 * MS), "{doubt:?}");
}

/// One that sleeps until moments of its timer, and then in other places.
fn timer_then(times: u64, others: &[u64]) -> Rhythms {
    let mut rhythms = Rhythms::new(Activations::ByRhythm);
    let mut ended = Vec::new();
    let steps = (1..=times).map(|nth| (timer(), nth * 10 * MS));
    let steps = steps.chain(others.iter().map(|at_ns| (futex(), *at_ns)));
    let steps: Vec<(Site, u64)> = steps.collect();
    for (nth, (from, due_ns)) in steps.iter().enumerate() {
        let stage = Stage { from_ns: *due_ns, to_ns: due_ns + MS, cpu: CpuId(0), what: Doing::Running };
        let part = Activation {
            due_ns: *due_ns,
            woken_ns: *due_ns,
            stages: vec![stage],
            woke_from: Some(*from),
            slept: Wait::Work(Some("futex".to_owned())),
            slept_at: steps.get(nth + 1).map_or(futex(), |next| next.0),
            ..Activation::default()
        };
        rhythms.threads.entry(0).or_default().last_end_ns.get_or_insert(0);
        rhythms.add(part, &mut ended);
    }
    rhythms
}

fn futex() -> Site {
    site(Sysno::futex, 0x4e0, 0)
}

#[test]
fn a_thread_with_a_timer_that_hangs_in_another_sleep_at_the_end_is_a_doubt() {
    let mut rhythms = timer_then(1, &[]);
    rhythms.unended(0, None, 5_010 * MS);
    let doubt = rhythms.doubts().pop().unwrap().1;
    assert_eq!(doubt.longest_ns, 5_000 * MS);
    // One that sleeps until its next moment does not hang.
    let mut waits = timer_then(1, &[]);
    waits.threads.get_mut(&0).unwrap().last_site = timer();
    waits.unended(0, None, 5_010 * MS);
    assert!(waits.doubts().pop().is_none_or(|it| it.1.longest_ns < 1_000 * MS));
}

#[test]
fn a_thread_that_has_not_slept_until_a_moment_of_its_timer_for_long_is_a_doubt() {
    // At irregular moments, so that they make no period of their own.
    let mut random = 7;
    let others: Vec<u64> = (1..80).map(|nth| 3_000 * MS + nth * 2 * MS + some(&mut random, MS)).collect();
    let mut rhythms = timer_then(4, &others);
    let doubt = rhythms.doubts().pop().unwrap().1;
    assert!(doubt.longest_ns > 2_900 * MS, "{doubt:?}");
    let again = rhythms.doubts().pop().map_or(0, |it| it.1.longest_ns);
    assert!(again < 2_900 * MS, "each sleep is a doubt once: {again}");
    // Once at the start, as Python's time.sleep, it shows no period.
    let once = timer_then(1, &others).doubts().pop().map_or(0, |it| it.1.longest_ns);
    assert!(once < 2_900 * MS, "{once}");
}

#[test]
fn a_thread_that_waits_for_its_helpers_before_it_ends_has_no_long_response() {
    let mut rhythms = Rhythms::new(Activations::ByRhythm);
    let mut ended = Vec::new();
    let part = |due_ns: u64, from: Site, slept_at: Site, joins: bool| Activation {
        due_ns,
        woken_ns: due_ns,
        stages: vec![Stage { from_ns: due_ns, to_ns: due_ns + MS, cpu: CpuId(0), what: Doing::Running }],
        woke_from: Some(from),
        slept: Wait::Work(Some("clock_nanosleep".to_owned())),
        slept_at,
        joins,
        ..Activation::default()
    };
    for nth in 1..100 {
        let slept_at = if nth == 99 { futex() } else { timer() };
        rhythms.add(part(nth * 10 * MS, timer(), slept_at, false), &mut ended);
    }
    let mut with_two = Vec::new();
    rhythms.add(part(2_000 * MS, futex(), futex(), true), &mut ended);
    let last = Last { part: Some(part(3_000 * MS, futex(), futex(), true)), gap_from_ns: None };
    assert_eq!(rhythms.end(0, &last, &mut with_two), None);
    ended.extend(with_two);
    assert!(longer(&ended, 20 * MS).is_empty(), "{:?}", longer(&ended, 20 * MS));
}

#[test]
fn the_word_of_a_futex_is_not_rounded() {
    let open = Activation {
        slept: Wait::Work(Some("futex".to_owned())),
        slept_at: futex(),
        slept_word: 0x4e4,
        ..Activation::default()
    };
    let Wait::Inside { object, .. } = inside(&open) else { panic!("no wait inside") };
    assert_eq!(object, whylate_core::recording::Object::Word(0x4e4, None));
}

#[test]
fn later_periods_of_a_timer_are_counted_and_those_after_a_sleep_for_a_time_are_not() {
    let of = |site: Site| -> Vec<u64> {
        // Every tenth response takes 25 ms, and the next one begins at the first moment of the grid after it.
        let (mut due_ns, mut steps) = (0, Vec::new());
        for nth in 0..60u64 {
            let work_ns = if nth % 10 == 5 { 25 * MS } else { MS };
            steps.push((site, due_ns, work_ns));
            due_ns += (work_ns / (10 * MS) + 1) * 10 * MS;
        }
        let (ended, _) = play(Activations::ByRhythm, &steps);
        ended.iter().filter(|it| it.response_ns() > 20 * MS).map(|it| it.later_periods).collect()
    };
    assert_eq!(of(timer()), [2; 6]);
    assert_eq!(of(file(3)), [2; 6]);
    assert_eq!(of(relative()), [0; 6]);
}

#[test]
fn what_a_new_thread_does_before_its_first_period_is_its_start() {
    // It reads its program for 300 ms with two waits for work elsewhere, and then works each 10 ms.
    let begin = [(file(3), MS, 200 * MS), (file(3), 205 * MS, 50 * MS), (file(4), 260 * MS, 40 * MS)];
    let start = |count: u64, is_new: bool| {
        let steps: Vec<_> =
            begin.into_iter().chain((0..count).map(|nth| (timer(), (310 + nth * 10) * MS, MS))).collect();
        let mut rhythms = Rhythms::new(Activations::ByRhythm);
        let mut ended = Vec::new();
        for (nth, part) in parts(&steps).into_iter().enumerate() {
            rhythms.add(Activation { is_start: is_new && nth == 0, ..part }, &mut ended);
        }
        rhythms.settle(0, true, &mut ended);
        rhythms.end(0, &Last::default(), &mut ended);
        let (starts, responses): (Vec<_>, Vec<_>) = ended.into_iter().partition(|it| it.is_start);
        (
            starts.iter().map(Activation::response_ns).sum::<u64>(),
            longer(&responses, 2 * MS).len(),
            responses.len(),
        )
    };
    assert_eq!(start(40, true), (290 * MS, 0, 40));
    assert_eq!(start(40, false), (0, 3, 43), "it was there before the watch");
    assert_eq!(start(1, true), (0, 3, 4), "without a period, each activation is a response");
}

#[test]
fn a_thread_that_overruns_most_of_its_periods_for_a_while_keeps_its_period() {
    for (busy_ns, free_ns) in [(15 * MS, 11 * MS), (12 * MS, 9 * MS), (9 * MS, 23 * MS), (21 * MS, 6 * MS)] {
        let (period_ns, from_ns) = (5_333_333, 600 * MS);
        // A higher-priority thread has the CPU; the time until it is free again.
        let taken_for = |at_ns: u64| {
            let within_ns = at_ns.checked_sub(from_ns)? % (busy_ns + free_ns);
            (at_ns < 2_000 * MS).then(|| busy_ns.checked_sub(within_ns))?
        };
        let work = |from_ns: u64| {
            let (mut at_ns, mut left_ns) = (from_ns, 900 * US);
            while left_ns > 0 {
                at_ns += taken_for(at_ns).unwrap_or_default();
                (at_ns, left_ns) = (at_ns + 20 * US, left_ns - 20 * US);
            }
            at_ns
        };
        let (mut steps, mut next_ns): (Vec<(Site, u64, u64)>, _) = (Vec::new(), period_ns);
        while next_ns < 3_000 * MS {
            let due_ns = next_ns;
            let mut end_ns = due_ns;
            // It goes on without a sleep if its next moment is over.
            while next_ns <= end_ns {
                end_ns = work(end_ns);
                next_ns += period_ns;
                next_ns += end_ns.saturating_sub(next_ns) / period_ns * period_ns;
            }
            steps.push((timer(), due_ns, end_ns - due_ns));
        }
        let (ended, _) = play(Activations::ByRhythm, &steps);
        assert_eq!(ended.len(), steps.len(), "{busy_ns} and {free_ns}");
    }
}
