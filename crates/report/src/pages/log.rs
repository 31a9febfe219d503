//! Reports of `whylate explain` on a log of the kernel: its messages about latency, the worst first.

use super::explain::moment;
use crate::section::{Item, Page, Section, Text, Tone};
use crate::sections::warnings;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{ExplainResult, LogMessage, Severity};

pub(super) fn page(result: &ExplainResult) -> Page {
    let file = result.traces.first().map_or("", |trace| trace.path.as_str());
    let kernel = result.traces.iter().filter_map(|trace| trace.kernel.as_ref());
    let kernel = kernel.map(|release| format!(", Linux {release}")).collect::<String>();
    let about = format!("{file}: a kernel log{kernel}, {} lines", result.events);
    let (title, title_tone) = match result.messages.first() {
        None => ("The log has no message about latency.".to_owned(), Tone::Plain),
        Some(worst) => (heading(worst), tone(worst.severity)),
    };
    // The meaning of a kind appears once.
    let first = |index: usize| {
        let code = &result.messages[index].code;
        !result.messages[..index].iter().any(|message| message.code == *code)
    };
    let sections = result.messages.iter().enumerate().map(|(index, message)| section(message, first(index)));
    Page {
        origin: "whylate explain".to_owned(),
        title,
        title_tone,
        about: [Some(about), result.answer_reason.clone()]
            .into_iter()
            .flatten()
            .map(|line| vec![line])
            .collect(),
        sections: sections.chain(warnings::section(&result.warnings)).collect(),
        ..Page::default()
    }
}

/// `hrtimer_interrupt: 6.66 ms, at 335538.326632 s`.
fn heading(message: &LogMessage) -> String {
    let LogMessage { code, figure_ns, cpu, task, function, lines, count, .. } = message;
    let mut parts: Vec<String> = figure_ns.iter().map(|ns| nanoseconds(*ns)).collect();
    parts.extend(function.clone());
    parts.extend(task.as_ref().map(|task| match message.pid {
        Some(pid) => format!("{task} (thread {pid})"),
        None => task.clone(),
    }));
    parts.extend(cpu.map(|cpu| format!("CPU {cpu}")));
    parts.extend(count.map(|count| format!("count {count}")));
    parts.extend(when(message));
    parts.extend((*lines > 1).then(|| format!("{lines} lines")));
    format!("{code}: {}", parts.join(", "))
}

fn when(message: &LogMessage) -> Option<String> {
    let first = message.at_ns.map(|at_ns| format!("{} s", moment(at_ns))).or_else(|| message.wall.clone())?;
    let last = message.last_at_ns.map(|at_ns| format!(" to {} s", moment(at_ns))).unwrap_or_default();
    Some(format!("at {first}{last}"))
}

fn section(message: &LogMessage, is_explained: bool) -> Section {
    let line: Item = Text::code(message.text.clone()).into();
    let explained = [
        Item::from(message.meaning.clone()),
        Item::from(message.names.clone()),
        Item::from(format!("To do: {}", message.fix)),
        Item::from(Text::code(format!("whylate explain --why {}", message.code))),
    ];
    let explained = explained.into_iter().filter(|_| is_explained);
    Section::new("", heading(message)).with([line].into_iter().chain(explained).collect::<Vec<Item>>())
}

fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Serious => Tone::Bad,
        Severity::Advice => Tone::Warn,
        Severity::Info | Severity::Ok => Tone::Plain,
    }
}
