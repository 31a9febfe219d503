//! The contents of the view, and the effects of its keys.

use super::*;
use crate::live::as_text;
use whylate_core::CpuId;
use whylate_core::result::{Quantiles, WakeLink};
use whylate_testing::says;

fn task(name: &str, max_ns: u64) -> TaskLine {
    let figures = Quantiles { p50_ns: max_ns / 10, p999_ns: max_ns / 2, max_ns, ..Quantiles::default() };
    let thief = Cause { actor: Some("thief".to_owned()), share: Some(0.9), ..Cause::new(CauseKind::Thread) };
    let causes = vec![thief, Cause { share: Some(0.1), ..Cause::new(CauseKind::OwnWork) }];
    let stage = |from_ns, to_ns, what: &str| TimelineSegment {
        from_ns,
        to_ns,
        cpu: CpuId(1),
        what: what.to_owned(),
        kind: None,
        function: None,
    };
    let mut timeline = vec![stage(1_000, 1_000 + max_ns / 4, "runs")];
    timeline.push(stage(1_000 + max_ns / 4, 1_000 + max_ns, "preempted by thief (80)"));
    let spike = TaskSpike {
        due_ns: 1_000,
        latency_ns: max_ns,
        causes: causes.clone(),
        timeline,
        ..TaskSpike::default()
    };
    TaskLine {
        name: name.to_owned(),
        priority: 40,
        response: Some(figures),
        wakeup: Some(figures),
        activations: 1_000,
        missed: 3,
        strip: vec![0, 10, 70],
        worst: Some((max_ns, causes)),
        last_spike: Some(spike),
        ..TaskLine::default()
    }
}

fn shown(tasks: &[TaskLine]) -> WatchView {
    let mut view = WatchView::new();
    view.show(tasks, None, Nanos::from_secs(3));
    view
}

fn narrow(view: &mut WatchView) -> String {
    let text = as_text(view, 80, 24);
    assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

#[test]
fn each_thread_has_a_row_with_its_strip_and_its_worst_cause() {
    let mut view = shown(&[task("quiet", 20_000), task("control", 4_100_000)]);
    let text = narrow(&mut view);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[2].starts_with("control") && lines[2].contains("4.10 ms"), "{text}");
    assert!(lines[2].contains(" ▂█") && lines[2].contains(" thief"), "{text}");
    assert!(lines[0].contains("2 threads, 2,000 activations"), "{text}");
    (0..4).for_each(|_| view.key(KeyCode::Char('s')));
    let text = narrow(&mut view);
    assert!(text.contains("by name") && text.find("control").unwrap() < text.find("quiet").unwrap());
}

#[test]
fn the_chosen_thread_stays_chosen_and_can_be_scrolled_to() {
    let tasks: Vec<TaskLine> = (0..40).map(|nth| task(&format!("t{nth:02}"), 1_000_000 - nth)).collect();
    let mut view = shown(&tasks);
    (0..100).for_each(|_| view.key(KeyCode::Down));
    assert!(narrow(&mut view).contains("t39"));
    let mut more = tasks;
    more.push(task("t40", 9_000_000));
    view.show(&more, None, Nanos::from_secs(4));
    view.key(KeyCode::Enter);
    assert!(narrow(&mut view).contains("t39, last explained"));
}

#[test]
fn a_key_opens_the_last_spike_as_a_timeline_and_another_one_goes_back() {
    let mut view = shown(&[task("control", 4_000_000)]);
    view.key(KeyCode::Enter);
    let text = narrow(&mut view);
    assert!(text.contains("response 4.00 ms") && text.contains("90.0 %"), "{text}");
    assert!(text.contains("····████████████  preempted"), "{text}");
    assert!(says("ms-ms", &text) && text.contains("preempted by thief (80)"), "{text}");
    view.key(KeyCode::Char('w'));
    assert!(says("no-activation-explained-yet", narrow(&mut view)));
    view.key(KeyCode::Esc);
    assert!(narrow(&mut view).contains("worst cause"));
}

#[test]
fn a_timeline_says_who_woke_the_thread_and_who_that_one() {
    let mut task = task("control", 4_000_000);
    let link = |by: &str, pid| WakeLink { by: by.to_owned(), pid, ..WakeLink::default() };
    let woken = WakeLink { took_ns: Some(1_500_000), ran_ns: Some(1_200_000), ..link("logger", Some(7)) };
    task.last_spike.as_mut().unwrap().wakeups = vec![woken, link("irq 31 (eth0)", None)];
    let mut view = shown(&[task]);
    view.key(KeyCode::Enter);
    let text = narrow(&mut view);
    assert!(says("woken-by-logger-ran", &text), "{text}");
    assert!(text.contains("preempted by thief (80)"), "{text}");
}

#[test]
fn help_and_warnings_are_not_cut_off() {
    let mut view = shown(&[task("control", 4_000_000)]);
    view.warn(
        "spikes are not traced: the trace buffer could not be made, which is a very long reason to tell",
    );
    let text = narrow(&mut view);
    assert!(says("reason-tell-enter-last", &text) && text.contains("control"), "{text}");
    view.key(KeyCode::Char('?'));
    let text = narrow(&mut view);
    assert!(HELP.iter().all(|words| text.contains(words)), "{text}");
    view.key(KeyCode::Char('?'));
    assert!(narrow(&mut view).contains("worst cause"), "the same key goes back");
}

#[test]
fn before_the_first_figures_none_are_shown() {
    let text = narrow(&mut WatchView::new());
    assert!(text.starts_with("whylate watch: starting\n") && !text.contains(" 0 "), "{text}");
}

#[test]
fn a_cause_that_a_narrow_row_cuts_is_shown_below() {
    let mut long = task("control", 4_000_000);
    long.worst.as_mut().unwrap().1[0].actor = Some("a-very-long-name-of-a-program-that-is-cut".to_owned());
    let mut ordinary = task("worker", 2_000_000);
    ordinary.priority = -21;
    let text = narrow(&mut shown(&[long, ordinary]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[3].contains(" nice 0 ") && lines[2].ends_with('…'), "{text}");
    let below = text.replace('\n', " ");
    assert!(says("worst-control-very-long", &below), "{text}");
}

#[test]
fn a_narrow_terminal_leaves_figures_out_and_keeps_the_cause() {
    let mut long = task("control", 4_000_000);
    long.worst.as_mut().unwrap().1[0].actor = Some("kworker/u8:2+flush".to_owned());
    let mut view = shown(&[long, task("worker", 2_000_000)]);
    for width in [50, 60, 80, 100, 120] {
        let text = as_text(&mut view, width, 24);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= usize::from(width)), "{text}");
        assert!(lines[2].contains("4.00 ms") && lines[2].contains("kworker/u8:2+flush"), "{width}: {text}");
        assert_eq!(lines[1].contains("p50"), width >= 100, "{width}: {text}");
    }
    let text = as_text(&mut view, 60, 24);
    assert!(text.contains("90 % of the") && text.contains("worst of control, 4.00 ms"), "{text}");
}

#[test]
fn a_longer_response_by_whylate_itself_is_said_behind_the_worst_one() {
    let own = TaskLine { by_whylate_ns: Some(9_000_000), ..task("control", 4_000_000) };
    assert!(narrow(&mut shown(&[own])).contains("9.00 ms by whylate itself"));
    let smaller = TaskLine { by_whylate_ns: Some(3_000_000), ..task("control", 4_000_000) };
    assert!(!narrow(&mut shown(&[smaller])).contains("whylate itself"));
}

#[test]
fn a_small_terminal_shows_as_much_as_fits() {
    let mut view = shown(&[task("control", 4_000_000)]);
    for (width, height) in [(1, 1), (10, 2), (20, 3), (40, 5)] {
        for page in [Page::Threads, Page::Last, Page::Help] {
            view.page = page;
            as_text(&mut view, width, height);
        }
    }
}
