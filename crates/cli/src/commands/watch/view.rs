//! The view of `whylate watch`: a row for each thread, and one activation as a timeline.

use crate::live::{View, line, paragraphs, strip};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use std::cmp::Reverse;
use std::fmt::Write as _;
use whylate_core::Nanos;
use whylate_core::figure::{count, nanoseconds, priority, share};
use whylate_core::order::InOrder;
use whylate_core::plan::Chain;
use whylate_core::result::{Cause, CauseKind, TimelineSegment};
use whylate_explain::activation;
use whylate_runner::{TaskLine, TaskSpike, TriggerLine};

const HELP: [&str; 19] = [
    "up, down, j, k   choose a thread",
    "Enter            show the thread's last explained activation as a timeline",
    "w                show the thread's worst activation as a timeline",
    "Esc              return to the threads",
    "s                sort by worst response, p99.9, p50, late, name",
    "q, Ctrl-C        end the watch and print its result",
    "?                this help, and back",
    "",
    "p50, p99.9, max  of the responses: from timer expiry or wake-up to next sleep",
    "wake             the largest latency from timer expiry or wake-up to running",
    "late             activations above --deadline",
    "last             the largest response of each of the last seconds",
    "worst cause      what took most of the time of the worst activation; whylate",
    "                 itself is left out",
    "A narrow terminal leaves out p50, last, prio, wake, p99.9, late, in this order.",
    "",
    "An activation is explained if its response is above the deadline, or among the",
    "worst so far. The run keeps the worst ones of each thread (20, or --worst):",
    "whylate explain DIR --top 1000 shows them afterwards.",
];

/// The columns between the thread and the worst cause, and which of them a narrow terminal leaves out first.
const COLUMNS: [(&str, usize); 7] =
    [("prio", 4), ("p50", 7), ("p99.9", 7), ("max", 7), ("wake", 7), ("late", 5), ("last", 10)];
const LEFT_OUT: [usize; 6] = [1, 6, 0, 4, 2, 5];
const PRIORITY: usize = 0;
const STRIP: usize = 6;
/// The width of the column of threads.
const THREAD: usize = 13;
const CAUSE: &str = "worst cause";
/// The room that a row has for a cause, where the terminal is not too narrow.
const CAUSE_WIDTH: usize = 28;

/// The number of rows at the bottom for a warning about lost data, if there is one.
const WARNING_ROWS: u16 = 2;

/// The number of rows for the chain of wake-ups (what woke a thread, and what woke that one) and for a long worst cause.
const CHAIN_ROWS: u16 = 2;

/// The sort order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadOrder {
    Worst,
    High,
    Median,
    Late,
    Name,
}

impl ThreadOrder {
    fn next(self) -> Self {
        match self {
            Self::Worst => Self::High,
            Self::High => Self::Median,
            Self::Median => Self::Late,
            Self::Late => Self::Name,
            Self::Name => Self::Worst,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Worst => "max",
            Self::High => "p99.9",
            Self::Median => "p50",
            Self::Late => "late",
            Self::Name => "name",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Threads,
    Last,
    Worst,
    Help,
}

pub(super) struct WatchView {
    tasks: Vec<TaskLine>,
    elapsed: Nanos,
    triggers: Option<TriggerLine>,
    warning: Option<String>,
    /// The series of the chosen thread, because rows change their place.
    chosen: Option<String>,
    first: usize,
    order: ThreadOrder,
    page: Page,
}

impl WatchView {
    pub(super) fn new() -> Self {
        Self {
            tasks: Vec::new(),
            elapsed: Nanos(0),
            triggers: None,
            warning: None,
            chosen: None,
            first: 0,
            order: ThreadOrder::Worst,
            page: Page::Threads,
        }
    }

    pub(super) fn show(&mut self, tasks: &[TaskLine], triggers: Option<TriggerLine>, elapsed: Nanos) {
        (self.tasks, self.triggers, self.elapsed) = (tasks.to_vec(), triggers, elapsed);
        self.sort();
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.warning = Some(text.to_owned());
    }

    fn sort(&mut self) {
        let of = |task: &TaskLine| task.response.unwrap_or_default();
        match self.order {
            ThreadOrder::Worst => self.tasks.order_by_key(|task| Reverse(of(task).max_ns)),
            ThreadOrder::High => self.tasks.order_by_key(|task| Reverse(of(task).p999_ns)),
            ThreadOrder::Median => self.tasks.order_by_key(|task| Reverse(of(task).p50_ns)),
            ThreadOrder::Late => self.tasks.order_by_key(|task| Reverse(task.missed)),
            ThreadOrder::Name => self.tasks.order_by(|a, b| a.name.cmp(&b.name)),
        }
    }

    /// The row of the chosen thread; the first if none is chosen.
    fn row(&self) -> usize {
        let chosen = self.chosen.as_deref();
        chosen.and_then(|name| self.tasks.iter().position(|task| task.name == name)).unwrap_or(0)
    }

    fn choose(&mut self, row: usize) {
        let last = self.tasks.len().saturating_sub(1);
        self.chosen = self.tasks.get(row.min(last)).map(|task| task.name.clone());
    }

    fn title(&self) -> String {
        if self.elapsed.0 == 0 {
            return "whylate watch: starting".to_owned();
        }
        let threads = || self.tasks.iter().filter(|task| Chain::of_series(&task.name).is_none());
        let activations: u64 = threads().map(|task| task.activations).sum();
        let number = threads().count();
        format!(
            "whylate watch: {number} {}, {} activations in {}, sorted by {}{}",
            if number == 1 { "thread" } else { "threads" },
            count(activations),
            nanoseconds(self.elapsed.0),
            self.order.name(),
            self.triggers.as_ref().map(|it| format!("; {}", super::described(it))).unwrap_or_default()
        )
    }

    fn draw_threads(&mut self, area: Rect, buffer: &mut Buffer) {
        let shown = ThreadColumns::fit(&self.tasks, usize::from(area.width));
        let head = shown.row("thread", &COLUMNS.map(|(title, _)| title.to_owned()), CAUSE);
        line(buffer, area, 1, &head, Style::new().add_modifier(Modifier::UNDERLINED));
        let row = self.row();
        let worst = self.tasks.get(row).and_then(worst);
        let is_long = worst.as_ref().is_some_and(|text| Line::raw(text).width() > usize::from(area.width));
        let told = if is_long { CHAIN_ROWS } else { 1 };
        let rows = usize::from(area.height.saturating_sub(told + 3)).max(1);
        self.first = self.first.min(row).max((row + 1).saturating_sub(rows));
        for (nth, task) in self.tasks.iter().enumerate().skip(self.first).take(rows) {
            let style = if nth == row { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            let text = shown.row(&task.name, &figures(task), &cause(task).map(short).unwrap_or_default());
            line(buffer, area, nth - self.first + 2, &text, style);
        }
        // The row of a narrow terminal has no room for it.
        if let Some(text) = worst {
            let height = told.min(area.height);
            let y = area.bottom().saturating_sub(told + 1).max(area.y);
            paragraphs(buffer, Rect { y, height, ..area }, &[&text]);
        }
    }
}

/// Which columns there is room for, besides the cause.
struct ThreadColumns {
    /// 0 for one that is left out.
    widths: [usize; COLUMNS.len()],
}

impl ThreadColumns {
    fn fit(tasks: &[TaskLine], width: usize) -> Self {
        let wide = |text: &str| Line::raw(text).width();
        let mut widths = COLUMNS.map(|(_, width)| width);
        let of_priority = tasks.iter().map(|task| wide(&priority(task.priority))).max().unwrap_or(0);
        widths[PRIORITY] = widths[PRIORITY].max(of_priority);
        let causes = tasks.iter().filter_map(cause).map(|it| wide(&short(it))).max().unwrap_or(0);
        let needed = THREAD + 1 + causes.clamp(CAUSE.len(), CAUSE_WIDTH);
        for column in LEFT_OUT {
            let used: usize = widths.iter().filter(|width| **width > 0).map(|width| width + 1).sum();
            if used + needed > width {
                widths[column] = 0;
            }
        }
        Self { widths }
    }

    fn row(&self, thread: &str, figures: &[String; COLUMNS.len()], cause: &str) -> String {
        let mut row = format!("{thread:<THREAD$.THREAD$} ");
        for (nth, (text, width)) in figures.iter().zip(self.widths).enumerate().filter(|(_, it)| it.1 > 0) {
            // Writing to a string cannot fail.
            _ = match nth {
                STRIP => write!(row, "{text:<width$} "),
                _ => write!(row, "{text:>width$} "),
            };
        }
        row + cause
    }
}

impl View for WatchView {
    fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        let title = self.title();
        let whole = area;
        let warning_rows = u16::from(self.warning.is_some()) * WARNING_ROWS;
        let area = Rect { height: area.height.saturating_sub(warning_rows), ..area };
        line(buffer, area, 0, &title, Style::new().add_modifier(Modifier::BOLD));
        let below = Rect { y: area.y + 1.min(area.height), height: area.height.saturating_sub(2), ..area };
        let task = self.tasks.get(self.row());
        match self.page {
            Page::Threads => self.draw_threads(area, buffer),
            Page::Help => {
                paragraphs(buffer, below, &HELP);
            }
            Page::Last => {
                draw_spike(task, task.and_then(|it| it.last_spike.as_ref()), "last explained", below, buffer);
            }
            Page::Worst => {
                draw_spike(task, task.and_then(|it| it.worst_spike.as_ref()), "worst", below, buffer);
            }
        }
        if let Some(warning) = &self.warning {
            let y = area.bottom().saturating_sub(1);
            let rows = Rect { y, height: warning_rows.min(whole.bottom().saturating_sub(y)), ..area };
            paragraphs(buffer, rows, &[&format!("warning: {warning}")]);
        }
        let keys = match self.page {
            Page::Threads => "Enter last spike, w worst, s sort, ? help, q end",
            Page::Help => "? or Esc back, q end",
            Page::Last | Page::Worst => "Esc back, q end",
        };
        line(buffer, whole, usize::from(whole.height.saturating_sub(1)), keys, Style::new());
    }

    fn key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.choose(self.row().saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(self.row() + 1),
            KeyCode::Enter => self.page = Page::Last,
            KeyCode::Char('w') => self.page = Page::Worst,
            KeyCode::Char('?') => {
                self.page = if self.page == Page::Help { Page::Threads } else { Page::Help };
            }
            KeyCode::Esc | KeyCode::Backspace => self.page = Page::Threads,
            KeyCode::Char('s') => {
                self.order = self.order.next();
                self.sort();
            }
            _ => {}
        }
    }
}

/// The cause with most of the time of the worst activation.
fn cause(task: &TaskLine) -> Option<&Cause> {
    task.worst.as_ref()?.1.first()
}

/// `worst of control, 4.10 ms: … (largest: 9.00 ms by whylate itself)`.
fn worst(task: &TaskLine) -> Option<String> {
    let (worst_ns, why) = (task.worst.as_ref()?.0, cause(task)?);
    let own = task.by_whylate_ns.filter(|own_ns| *own_ns > worst_ns);
    let own = own.map(|ns| format!(" (largest: {} by whylate itself)", nanoseconds(ns))).unwrap_or_default();
    Some(format!("worst of {}, {}: {}{own}", task.name, nanoseconds(worst_ns), super::headline(why)))
}

/// The texts in the columns of a thread.
fn figures(task: &TaskLine) -> [String; COLUMNS.len()] {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), nanoseconds);
    let response = task.response;
    [
        priority(task.priority),
        time(response.map(|it| it.p50_ns)),
        time(response.map(|it| it.p999_ns)),
        time(response.map(|it| it.max_ns)),
        time(task.wakeup.map(|it| it.max_ns)),
        count(task.missed),
        strip(&task.strip),
    ]
}

/// The actor, or the kind if no actor is named.
fn short(cause: &Cause) -> String {
    let name = cause.actor.as_deref().or(cause.function.as_deref());
    match (name, cause.kind) {
        (Some(name), CauseKind::Thread) => name.to_owned(),
        (Some(name), kind) => format!("{}: {name}", kind.words()),
        (None, kind) => kind.words(),
    }
}

fn draw_spike(
    task: Option<&TaskLine>,
    spike: Option<&TaskSpike>,
    which: &str,
    area: Rect,
    buffer: &mut Buffer,
) {
    let name = task.map_or("no thread", |task| task.name.as_str());
    let Some(spike) = spike else {
        return line(buffer, area, 1, &format!("{name}: no activation is explained yet"), Style::new());
    };
    let title = format!("{name}, {which}: response {}", nanoseconds(spike.latency_ns));
    line(buffer, area, 1, &title, Style::new().add_modifier(Modifier::BOLD));
    // A fifth of the width: the descriptions need the room.
    let bar = (usize::from(area.width) / 5).clamp(8, 40);
    let causes = spike.causes.iter().take(5);
    let mut row = 2;
    for cause in causes {
        let part = cause.share.map(share).unwrap_or_default();
        line(buffer, area, row, &format!("{part:>8}  {}", cause.sentence()), Style::new());
        row += 1;
    }
    if let Some(woken) = activation::told(&spike.wakeups) {
        let y = area.y.saturating_add(u16::try_from(row).unwrap_or(u16::MAX)).min(area.bottom());
        let rows = Rect { y, height: CHAIN_ROWS.min(area.bottom() - y), ..area };
        paragraphs(buffer, rows, &[&woken]);
        row += usize::from(CHAIN_ROWS);
    }
    line(
        buffer,
        area,
        row + 1,
        &format!("{:>9} {:>9} CPU {:<bar$}  what", "from", "for", ""),
        Style::new().add_modifier(Modifier::UNDERLINED),
    );
    let rows = usize::from(area.height).saturating_sub(row + 2);
    let (shown, left) = longest(&spike.timeline, rows);
    for (nth, segment) in shown.iter().enumerate() {
        line(buffer, area, row + 2 + nth, &segment_line(segment, spike, bar), Style::new());
    }
    if left > 0 {
        line(buffer, area, row + 1 + rows, &format!("not shown: {left} shorter stages"), Style::new());
    }
}

/// The longest stages that fit, in the order of time, and the number of the others.
fn longest(timeline: &[TimelineSegment], rows: usize) -> (Vec<&TimelineSegment>, usize) {
    if timeline.len() <= rows {
        return (timeline.iter().collect(), 0);
    }
    let mut shown: Vec<&TimelineSegment> = timeline.iter().collect();
    shown.order_by_key(|segment| Reverse(segment.to_ns.saturating_sub(segment.from_ns)));
    shown.truncate(rows.saturating_sub(1));
    shown.order_by_key(|segment| segment.from_ns);
    let left = timeline.len() - shown.len();
    (shown, left)
}

/// When, for how long, at which place in the activation, and what.
fn segment_line(segment: &TimelineSegment, spike: &TaskSpike, bar: usize) -> String {
    let column = |at_ns: u64| {
        let part = at_ns.saturating_sub(spike.due_ns) as f64 / spike.latency_ns.max(1) as f64;
        (part.min(1.0) * bar as f64) as usize
    };
    let from = column(segment.from_ns).min(bar - 1);
    let to = column(segment.to_ns).max(from + 1);
    format!(
        "{:>9} {:>9} {:>3} {}{}{}  {}",
        nanoseconds(segment.from_ns.saturating_sub(spike.due_ns)),
        nanoseconds(segment.to_ns.saturating_sub(segment.from_ns)),
        segment.cpu.0,
        "·".repeat(from),
        "█".repeat(to - from),
        "·".repeat(bar - to),
        segment.what
    )
}

#[cfg(test)]
mod tests;
