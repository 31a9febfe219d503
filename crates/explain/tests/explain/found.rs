//! Short ways to explain a script and to state the expected result.

use crate::script::Script;
use whylate_core::result::{CauseKind, ExplainResult, ExplainedSpike};
use whylate_explain::{Options, TaskChoice, explain};

/// Explains lines with the default options.
pub(crate) fn explained(lines: &str) -> ExplainResult {
    explained_with(lines, &Options::default())
}

/// Explains lines.
pub(crate) fn explained_with(lines: &str, options: &Options) -> ExplainResult {
    let result = explain(&mut Script::new(lines), options).expect("a script can be read");
    for spike in &result.spikes {
        check(spike);
    }
    result
}

/// The options with a period, as for case 1.
pub(crate) fn periodic(task: &str, period_us: u64) -> Options {
    Options {
        task: Some(TaskChoice::Name(task.to_owned())),
        period_ns: Some(period_us * 1000),
        ..Options::default()
    }
}

/// What holds for every spike.
pub(crate) fn check(spike: &ExplainedSpike) {
    assert_eq!(spike.latency_ns, spike.actual_ns - spike.expected_ns);
    let shares: f64 = std::iter::once(&spike.cause).chain(&spike.also).filter_map(|cause| cause.share).sum();
    assert!((0.0..=1.0 + 1e-9).contains(&shares), "shares sum to {shares}: {spike:#?}");
    let mut at = spike.expected_ns;
    for segment in &spike.timeline {
        assert_eq!(segment.from_ns, at, "{spike:#?}");
        assert!(segment.to_ns > segment.from_ns, "{spike:#?}");
        at = segment.to_ns;
    }
    assert!(spike.timeline.is_empty() || at == spike.actual_ns, "{spike:#?}");
}

/// The only spike, with its latency in microseconds, its cause's kind, actor and function.
pub(crate) fn only(result: &ExplainResult) -> (u64, CauseKind, &str, &str) {
    assert_eq!(result.spikes.len(), 1, "{result:#?}");
    let spike = &result.spikes[0];
    let text = |text: &'_ Option<String>| text.clone().unwrap_or_default().leak() as &str;
    (spike.latency_ns / 1000, spike.cause.kind, text(&spike.cause.actor), text(&spike.cause.function))
}
