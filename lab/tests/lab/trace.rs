//! What the guest's own tracer says happened, as evidence in addition to the planters' logs.

use whylate_lab::{Guest, LabError, Output, Stall};

/// Times in the text of a trace are cut to microseconds.
const ROUNDING_NS: u64 = 2_000;

/// One event of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The CPU on which it happened.
    pub(crate) cpu: u32,
    /// When, on CLOCK_MONOTONIC.
    pub(crate) at_ns: u64,
    /// Its name.
    pub(crate) name: String,
    /// Its fields.
    pub(crate) text: String,
}

/// Runs a script while events are traced, on the clock that planters log.
pub(crate) fn record(
    guest: &mut Guest,
    events: &[&str],
    script: &str,
) -> Result<(Output, Vec<Event>), LabError> {
    let enable: String =
        events.iter().map(|event| format!("echo 1 >events/{}/enable\n", event.replace(':', "/"))).collect();
    let output = guest.run(&format!(
        "set -e\nmkdir -p /sys/kernel/tracing/instances/lab\ncd /sys/kernel/tracing/instances/lab\n\
         echo mono >trace_clock\necho 8192 >buffer_size_kb\n{enable}cd - >/dev/null\n{script}\n\
         echo 0 >/sys/kernel/tracing/instances/lab/tracing_on\n\
         cat /sys/kernel/tracing/instances/lab/trace >$OUT/trace\nrmdir /sys/kernel/tracing/instances/lab\n"
    ))?;
    if output.status != 0 {
        let Output { status, stdout, stderr, .. } = output;
        return Err(LabError::Script { status, stdout, stderr });
    }
    let text = std::fs::read_to_string(output.files.join("trace")).unwrap_or_default();
    let events = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .filter_map(read_line)
        .collect();
    Ok((output, events))
}

/// As [`record`] where interrupts have no vectors: the timer is an interrupt line, and what other CPUs ask for has events of
/// its own. The events are given as those of x86 that mean the same.
pub(crate) fn record_on_arm64(
    guest: &mut Guest,
    events: &[&str],
    script: &str,
) -> Result<(Output, Vec<Event>), LabError> {
    const SAME: [(&str, &str); 2] =
        [("irq_vectors:local_timer_", "irq:irq_handler_"), ("irq_vectors:call_function_single_", "ipi:ipi_")];
    let own: Vec<String> = events
        .iter()
        .map(|event| SAME.iter().fold((*event).to_owned(), |name, (x86, arm64)| name.replace(x86, arm64)))
        .collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let (output, mut trace) = record(guest, &own, script)?;
    // Other lines than that of the timer keep their names.
    let timer = trace.iter().find(|event| event.text.contains("name=arch_timer"));
    let line = timer.and_then(|event| event.text.split_whitespace().find(|word| word.starts_with("irq=")));
    let line = line.map(str::to_owned);
    let is_other = |event: &Event| {
        event.name.starts_with("irq_handler_")
            && event.text.split_whitespace().find(|word| word.starts_with("irq=")) != line.as_deref()
    };
    for event in trace.iter_mut().filter(|event| !is_other(event)) {
        for (x86, arm64) in SAME.map(|(x86, arm64)| (after_colon(x86), after_colon(arm64))) {
            event.name = event.name.replace(arm64, x86);
        }
    }
    Ok((output, trace))
}

fn after_colon(event: &str) -> &str {
    event.split_once(':').map_or(event, |(_, name)| name)
}

/// Reads `TASK-PID [CPU] FLAGS SECONDS: NAME: TEXT`; the number of columns before the time differs between kernels.
fn read_line(line: &str) -> Option<Event> {
    let (_, rest) = line.split_once(" [")?;
    let (cpu, rest) = rest.split_once("] ")?;
    let (before, rest) = rest.split_once(": ")?;
    let (seconds, fraction) = before.split_whitespace().last()?.split_once('.')?;
    let (name, text) = rest.split_once(": ").unwrap_or((rest, ""));
    let microseconds: u64 = seconds.parse::<u64>().ok()? * 1_000_000 + fraction.parse::<u64>().ok()?;
    Some(Event {
        cpu: cpu.parse().ok()?,
        at_ns: microseconds * 1000,
        name: name.trim_end_matches(':').to_owned(),
        text: text.to_owned(),
    })
}

/// The events on the stalled CPU that are certainly within the stall.
pub(crate) fn within<'a>(events: &'a [Event], stall: &Stall) -> Vec<&'a Event> {
    let is_within = |event: &&Event| {
        event.cpu == stall.cpu
            && event.at_ns > stall.begin_ns + ROUNDING_NS
            && event.at_ns + ROUNDING_NS < stall.end_ns
    };
    events.iter().filter(is_within).collect()
}

/// The events on the stalled CPU between the end of the stall before and the start of the one after.
pub(crate) fn around<'a>(events: &'a [Event], stall: &Stall, all: &[Stall]) -> Vec<&'a Event> {
    let ends = all.iter().map(|other| other.end_ns).filter(|end| *end <= stall.begin_ns);
    let begins = all.iter().map(|other| other.begin_ns).filter(|begin| *begin >= stall.end_ns);
    let (from, to) = (ends.max().unwrap_or(0), begins.min().unwrap_or(u64::MAX));
    let is_around = |event: &&Event| {
        event.cpu == stall.cpu
            && event.at_ns + ROUNDING_NS > from
            && event.at_ns < to.saturating_add(ROUNDING_NS)
    };
    events.iter().filter(is_around).collect()
}

/// Whether an entry with this text and the exit that follows it on the stalled CPU enclose the stall.
pub(crate) fn enclosed(events: &[Event], names: [&str; 2], text: &str, stall: &Stall) -> bool {
    // On newer real-time kernels one softirq's thread may run while another one's waits: others come in between.
    let is_one = |event: &&Event| {
        event.cpu == stall.cpu && names.contains(&event.name.as_str()) && event.text.contains(text)
    };
    let on_cpu: Vec<&Event> = events.iter().filter(is_one).collect();
    on_cpu.windows(2).any(|pair| {
        pair[0].name == names[0]
            && pair[1].name == names[1]
            && pair[0].at_ns <= stall.begin_ns + ROUNDING_NS
            && pair[1].at_ns + ROUNDING_NS >= stall.end_ns
    })
}
