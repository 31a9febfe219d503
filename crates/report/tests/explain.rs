//! Explanations as text and as a page: they agree with the result, fit their width, and are safe.

mod fixture;

use fixture::pages::explanation as result;
use whylate_core::CpuId;
use whylate_core::result::{ExplainAnswer, ExplainResult, LateTask, LateWhat, Spike, ThresholdFrom};
use whylate_report::{Style, explain};
use whylate_testing::says;

fn html(result: &ExplainResult) -> String {
    explain(result).html()
}

fn markdown(result: &ExplainResult) -> String {
    explain(result).markdown()
}

fn terminal(result: &ExplainResult, style: Style) -> String {
    explain(result).terminal(style)
}

#[test]
fn the_text_begins_with_the_culprit_and_fits() {
    for width in [60, 80, 100, 200] {
        let text = terminal(&result("irq/45-nvkm"), Style { color: false, width });
        assert!(says("irq-nvkm-us-late", &text), "{text}");
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width.clamp(80, 120), "{widest} columns of {width}:\n{text}");
        for part in
            ["gf100_mc_intr_unarm <- nvkm_mc_intr_unarm", "byte 77", "also the handler of local timer"]
        {
            assert!(text.contains(part), "`{part}` is missing:\n{text}");
        }
    }
}

#[test]
fn the_bars_are_proportional() {
    let text = terminal(&result("task"), Style { color: false, width: 100 });
    let bar =
        |cpu: &str| text.lines().find(|line| line.trim_start().starts_with(cpu)).expect("a bar").to_owned();
    assert_eq!(bar("CPU 5").matches('a').count(), (88.0f64 * 87.0 / 112.0).ceil() as usize);
    assert_eq!(bar("CPU 2").matches('b').count(), (88.0f64 * 25.0 / 112.0).round() as usize);
}

#[test]
fn names_stay_text() {
    const EVIL: &str =
        "</script><script>alert(1)</script><img src=x onerror=alert(2)>\" onload=\"x\u{1b}[2J|*x*";
    let page = html(&result(EVIL));
    for forbidden in ["<script>alert", "<img", "\" onload=\""] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert_eq!(page.matches("</script>").count(), 1);
    assert!(!terminal(&result(EVIL), Style { color: false, width: 100 }).contains('\u{1b}'));
    let text = markdown(&result(EVIL));
    let outside: String = text.split('`').step_by(2).collect();
    assert!(!outside.contains("<script") && !outside.contains("<img"), "{outside}");
}

#[test]
fn the_page_stands_alone_and_shows_the_time() {
    let page = html(&result("task"));
    for resource in [" src=", " href=", "<link", "@import", "fetch("] {
        assert!(!page.contains(resource), "{resource}");
    }
    assert!(page.contains("data-from=\"0\" data-to=\"87000\""));
    assert!(page.contains("left:77.6786%;width:22.3214%"));
    assert_eq!(page.matches("class=\"lane\"").count(), 2);
    assert_eq!(page.matches("<section").count(), page.matches("</section>").count());
}

#[test]
fn the_page_says_when_nothing_was_late() {
    let mut quiet = result("task");
    quiet.spikes.clear();
    quiet.traces[0].spikes_found = 0;
    quiet.answer = ExplainAnswer::None;
    assert!(says("no-latency-above-us", terminal(&quiet, Style::default())));
    assert!(says("no-latency-above-us-2", html(&quiet)));
    assert!(says("no-latency-above-us-3", markdown(&quiet)));
}

#[test]
fn an_open_answer_is_not_shown_as_good() {
    let mut open = result("task");
    open.spikes.clear();
    open.traces[0].spikes_found = 0;
    open.answer = ExplainAnswer::CannotTell;
    open.answer_reason = Some("the trace has no wake-ups: give --period".to_owned());
    let text = terminal(&open, Style::default());
    assert!(says("trace-does-not-show", &text), "{text}");
    assert!(text.contains("no wake-ups: give --period") && !text.contains("No latency"), "{text}");
}

#[test]
fn none_says_the_largest_and_who_else_was_late() {
    let mut quiet = result("task");
    quiet.spikes.clear();
    (quiet.traces[0].spikes_found, quiet.answer) = (0, ExplainAnswer::None);
    let late = |task: &str, latency_ns| LateTask {
        task: task.to_owned(),
        pid: Some(3),
        priority: Some(120),
        cpu: CpuId(2),
        what: LateWhat::Preempted,
        latency_ns,
        at_ns: 5_000_000_000,
    };
    quiet.traces[0].worst = Some(late("task", 37_000));
    quiet.traces[0].also_late = vec![late("bash", 130_000_000)];
    (quiet.traces[0].covered_ns, quiet.traces[0].waits_left_out) = (Some(420_000_000), 24);
    let text = terminal(&quiet, Style::default());
    assert!(text.contains("No latency above 100 us was found in 420 ms of the trace."), "{text}");
    assert!(text.contains("24 sleeps without a timer are longer than 100 us"), "{text}");
    assert!(says("largest-one-us-task", &text), "{text}");
    assert!(
        text.contains("Other late tasks") && text.contains("bash-3") && text.contains("preempted"),
        "{text}"
    );
}

#[test]
fn a_threshold_of_a_mark_says_where_it_comes_from() {
    let mut marked = result("task");
    assert!(!terminal(&marked, Style::default()).contains("break marker"));
    marked.traces[0].threshold_from = ThresholdFrom::Marker;
    assert!(terminal(&marked, Style::default()).contains("threshold 100 us (from the break marker"));
}

#[test]
fn the_count_never_claims_more_than_there_is() {
    let mut kept = result("task");
    kept.traces[0].threshold_from = ThresholdFrom::Kept;
    kept.traces[0].threshold_ns = 2_140_000;
    assert!(says("latency-us", terminal(&kept, Style::default())));
    kept.traces.push(kept.traces[0].clone());
    assert!(says("latencies-largest-us-largest", terminal(&kept, Style::default())));
}

#[test]
fn the_start_of_a_listed_response_is_not_listed_again() {
    let spike = |probe: &str, at_ns, latency_ns| Spike {
        probe: Some(probe.to_owned()),
        ..Spike::unexplained(CpuId(1), at_ns, latency_ns)
    };
    let both = [spike("task/audio", 9_000_000, 8_000_000), spike("task/audio/wakeup", 8_000_000, 7_000_000)];
    // The wake-up of another activation, whose response is not among the worst.
    let other = spike("task/audio/wakeup", 70_000_000, 6_000_000);
    let measured = both.into_iter().chain([other]).collect();
    let text = terminal(&ExplainResult { measured, ..result("task") }, Style::default());
    let has = |latency: &str| text.contains(&format!("{latency} task/audio"));
    assert!(has("8.00 ms") && has("6.00 ms") && !has("7.00 ms"), "{text}");
}
