//! The view of `whylate top`: latencies by CPU, interrupts by rate, thieves, treatments in force.

use crate::live::{View, line, paragraphs, strip};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::figure::{count, nanoseconds, share};
use whylate_core::order::InOrder;
use whylate_core::record::SourceRecord;
use whylate_core::result::{CauseKind, Quantiles, TopCpu, TopResult};
use whylate_report::TopRate;

const HELP: [&str; 17] = [
    "up, down, j, k   scroll the list of CPUs",
    "s                sort thieves by time, number or longest",
    "i                show interrupts, or interrupts between CPUs (IPIs)",
    "q, Ctrl-C        end, and print a summary of the whole time",
    "?                this help",
    "",
    "wake    from the wake-up of a counted task to the decision to run it",
    "timer   from the programmed expiry of its timer to this decision",
    "max     in the interval; worst: since the start, with the late task and thief",
    "last    the largest latency of each of the last intervals",
    "thieves what had a CPU: share of the interval, longest time, number, CPU",
    "",
    "Threads are thieves if their priority is counted (--priority); an ordinary",
    "thread delays no real-time task. The time of a thread includes the",
    "interrupts that came while the thread ran.",
    "",
    "whylate watch --task NAME explains single activations of a task.",
];

/// The width from which the lists stand beside each other, and from which all columns of CPUs have room beside who was late.
const BESIDE: u16 = 78;
const WIDE: u16 = 96;

/// The order of the thieves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopOrder {
    Time,
    Number,
    Longest,
}

pub(super) struct TopView {
    host: String,
    shown: Option<TopResult>,
    first_cpu: usize,
    order: TopOrder,
    has_ipis: bool,
    has_help: bool,
}

impl TopView {
    pub(super) fn new(host: String) -> Self {
        Self { host, shown: None, first_cpu: 0, order: TopOrder::Time, has_ipis: false, has_help: false }
    }

    pub(super) fn show(&mut self, result: TopResult) {
        self.shown = Some(result);
    }
}

impl View for TopView {
    fn draw(&mut self, area: Rect, buffer: &mut Buffer) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let Some(top) = &self.shown else {
            return line(buffer, area, 0, "whylate top: measuring the first interval", bold);
        };
        let begin = format!(
            "whylate top, {}: last {} of {}, {}",
            self.host,
            nanoseconds(top.interval_ns),
            nanoseconds(top.elapsed_ns),
            in_force(top)
        );
        line(buffer, area, 0, &begin, bold);
        if self.has_help {
            let below =
                Rect { y: area.y + 2.min(area.height), height: area.height.saturating_sub(2), ..area };
            return paragraphs(buffer, below, &HELP);
        }
        let cpus = u16::try_from(top.cpus.len()).unwrap_or(u16::MAX).min(area.height.saturating_sub(4) / 2);
        let [_, upper, lower, last] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(cpus + 2),
            Constraint::Min(2),
            Constraint::Length(1),
        ])
        .areas(area);
        self.first_cpu = self.first_cpu.min(top.cpus.len().saturating_sub(usize::from(cpus)));
        draw_cpus(top, self.first_cpu, upper, buffer);
        // Beside each other neither could be read.
        let [left, right] = match lower.width {
            ..BESIDE => {
                let [right, left] =
                    Layout::vertical([Constraint::Percentage(60), Constraint::Percentage(40)]).areas(lower);
                [left, right]
            }
            _ => Layout::horizontal([Constraint::Percentage(42), Constraint::Percentage(58)])
                .spacing(1)
                .areas(lower),
        };
        draw_list(
            ("/s  ", if self.has_ipis { "IPIs" } else { "interrupts" }),
            &rate_lines(top, self.has_ipis),
            left,
            buffer,
        );
        draw_list(("share", "     max     /s CPU thieves"), &thieves(top, self.order), right, buffer);
        let lost = if top.lost > 0 { format!("; {} records lost", count(top.lost)) } else { String::new() };
        let is_silent = top.cpus.iter().all(|cpu| cpu.max_record.is_none());
        let silent = if is_silent { "; no real-time task was woken: try --priority all" } else { "" };
        line(buffer, last, 0, &format!("? help, s sort, i IPIs, q end{lost}{silent}"), Style::new());
    }

    fn key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.first_cpu = self.first_cpu.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.first_cpu += 1,
            KeyCode::Char('i') => self.has_ipis = !self.has_ipis,
            KeyCode::Char('?') => self.has_help = !self.has_help,
            KeyCode::Esc => self.has_help = false,
            KeyCode::Char('s') => {
                self.order = match self.order {
                    TopOrder::Time => TopOrder::Number,
                    TopOrder::Number => TopOrder::Longest,
                    TopOrder::Longest => TopOrder::Time,
                }
            }
            _ => {}
        }
    }
}

/// The treatments in force, each once.
fn in_force(top: &TopResult) -> String {
    let mut names: Vec<&str> = top.treatments.iter().map(|change| change.treatment.as_str()).collect();
    names.dedup();
    if names.is_empty() {
        "no treatment in force".to_owned()
    } else {
        format!("in force: {}", names.join(", "))
    }
}

fn draw_cpus(top: &TopResult, first: usize, area: Rect, buffer: &mut Buffer) {
    let head = match area.width {
        WIDE.. => "CPU wake/s   wake p99      max timer max    worst last       late",
        BESIDE.. => "CPU wake/s   wake p99      max    worst last       late",
        _ => "CPU wake/s      max    worst late",
    };
    line(buffer, area, 1, head, Style::new().add_modifier(Modifier::UNDERLINED));
    for (row, cpu) in top.cpus.iter().skip(first).enumerate().take(usize::from(area.height.saturating_sub(2)))
    {
        line(buffer, area, row + 2, &cpu_line(cpu, top.interval_ns, area.width), Style::new());
    }
}

fn cpu_line(cpu: &TopCpu, interval_ns: u64, width: u16) -> String {
    let figure = |of: &Option<Quantiles>, figure: fn(&Quantiles) -> u64| {
        of.as_ref().map_or_else(|| "-".to_owned(), |figures| nanoseconds(figure(figures)))
    };
    let worst = cpu.max_record.as_ref().map_or_else(|| "-".to_owned(), |it| nanoseconds(it.latency_ns));
    let late = cpu.max_record.as_ref().map(|it| {
        let previous = if it.previous_pid == 0 { "idle" } else { &it.previous_command };
        format!("{} after {previous}", it.command)
    });
    let rate = count(per_second(cpu.samples, interval_ns));
    let max = figure(&cpu.wakeup, |it| it.max_ns);
    let late = late.unwrap_or_default();
    if width < BESIDE {
        return format!("{:>3} {rate:>6} {max:>8} {worst:>8} {late}", cpu.cpu.0);
    }
    let timer = match width {
        WIDE.. => format!(" {:>9}", figure(&cpu.timer, |it| it.max_ns)),
        _ => String::new(),
    };
    format!(
        "{:>3} {rate:>6} {:>10} {max:>8}{timer} {worst:>8} {:<10} {late}",
        cpu.cpu.0,
        figure(&cpu.wakeup, |it| it.p99_ns),
        strip(&cpu.strip),
    )
}

fn per_second(number: u64, interval_ns: u64) -> u64 {
    (number as f64 * 1e9 / interval_ns.max(1) as f64).round() as u64
}

fn draw_list((figure, name): (&str, &str), lines: &[String], area: Rect, buffer: &mut Buffer) {
    let head = format!("{figure:>8} {name}");
    line(buffer, area, 1, &head, Style::new().add_modifier(Modifier::UNDERLINED));
    for (row, text) in lines.iter().enumerate() {
        line(buffer, area, row + 2, text, Style::new());
    }
}

fn rate_lines(top: &TopResult, has_ipis: bool) -> Vec<String> {
    if has_ipis && top.ipis.is_none() {
        return vec!["this kernel does not report the senders of IPIs".to_owned()];
    }
    let text = |(name, sum, cpus): TopRate| {
        format!("{:>8} {name} ({cpus})", count(per_second(sum, top.interval_ns)))
    };
    rates(top, has_ipis).into_iter().map(text).collect()
}

/// Interrupts, or interrupts from other CPUs, the most frequent first, each with its CPUs.
pub(super) fn rates(top: &TopResult, has_ipis: bool) -> Vec<TopRate> {
    let mut sums: BTreeMap<String, (u64, Vec<CpuId>)> = BTreeMap::new();
    let mut add = |name: String, cpu: CpuId, number: u64| {
        let (sum, cpus) = sums.entry(name).or_default();
        *sum += number;
        cpus.push(cpu);
    };
    if has_ipis {
        for ipi in top.ipis.iter().flatten() {
            let from = ipi.from_task.as_ref().map(|task| format!(" by {task}")).unwrap_or_default();
            add(format!("{}{from}", ipi.function), ipi.cpu, ipi.count);
        }
    } else {
        for one in &top.interrupts {
            let name = match one.line.strip_prefix("softirq:") {
                Some(softirq) => format!("{softirq} softirq"),
                None => format!("{} {}", one.line, whylate_bpf::device(&one.description)),
            };
            add(name, one.cpu, one.count);
        }
    }
    let mut sorted: Vec<_> = sums.into_iter().collect();
    sorted.order_by_key(|(_, (sum, _))| Reverse(*sum));
    let rate = |(name, (sum, cpus)): (String, (u64, Vec<CpuId>))| {
        (name.trim_end().to_owned(), sum, cpus.into_iter().collect())
    };
    sorted.into_iter().map(rate).collect()
}

fn thieves(top: &TopResult, order: TopOrder) -> Vec<String> {
    let mut thieves: Vec<&SourceRecord> = top.thieves.iter().collect();
    thieves.order_by_key(|one| match order {
        TopOrder::Time => Reverse(one.total_ns),
        TopOrder::Number => Reverse(one.gaps),
        TopOrder::Longest => Reverse(one.max_ns),
    });
    let text = |one: &&SourceRecord| {
        let function = one.function.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let took = share(one.total_ns as f64 / top.interval_ns.max(1) as f64);
        let (times, longest) = (count(per_second(one.gaps, top.interval_ns)), nanoseconds(one.max_ns));
        let who = match one.kind {
            CauseKind::Thread => format!("{} (thread)", one.actor.as_deref().unwrap_or("others")),
            kind => format!("{}{function}", one.actor.clone().unwrap_or_else(|| kind.words())),
        };
        format!("{took:>8} {longest:>8} {times:>6} {:>3} {who}", one.cpu.0)
    };
    thieves.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::as_text;
    use whylate_core::record::InterruptRecord;
    use whylate_core::result::{LatencyRecord, TreatChange};

    fn top() -> TopResult {
        let late = LatencyRecord {
            latency_ns: 312_000,
            command: "control".to_owned(),
            previous_command: "irq/31-eth0".to_owned(),
            previous_pid: 7,
            ..LatencyRecord::default()
        };
        let cpu = |cpu, record| TopCpu {
            cpu: CpuId(cpu),
            samples: 2_000,
            wakeup: Some(Quantiles { p99_ns: 9_000, max_ns: 51_000, ..Quantiles::default() }),
            max_record: record,
            strip: vec![10, 70],
            ..TopCpu::default()
        };
        let thief = |actor: &str, gaps, total_ns, max_ns| SourceRecord {
            cpu: CpuId(1),
            kind: CauseKind::Softirq,
            actor: Some(actor.to_owned()),
            gaps,
            total_ns,
            max_ns,
            ..SourceRecord::default()
        };
        let timer = |cpu| InterruptRecord {
            cpu: CpuId(cpu),
            line: "softirq:TIMER".to_owned(),
            count: 250,
            ..InterruptRecord::default()
        };
        TopResult {
            elapsed_ns: 9_000_000_000,
            interval_ns: 2_000_000_000,
            cpus: (0..64).map(|nth| cpu(nth, (nth == 0).then(|| late.clone()))).collect(),
            interrupts: vec![timer(0), timer(1)],
            thieves: vec![thief("often", 900, 4_000_000, 5_000), thief("long", 2, 2_000_000, 1_500_000)],
            treatments: vec![TreatChange { treatment: "governor".to_owned(), ..TreatChange::default() }],
            ..TopResult::default()
        }
    }

    #[test]
    fn a_terminal_of_80_columns_shows_latencies_rates_thieves_and_treatments() {
        let mut view = TopView::new("board".to_owned());
        view.show(top());
        let text = as_text(&mut view, 80, 24);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() == 24 && lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        assert!(lines[0].contains("board") && lines[0].contains("in force: governor"), "{text}");
        assert!(
            lines[3].contains("1,000") && lines[3].contains("312 us") && lines[3].contains(" ▂█"),
            "{text}"
        );
        assert!(lines[3].contains("control after irq/31-eth0"), "{text}");
        assert!(text.contains("250 TIMER softirq (0-1)"), "{text}");
        let first = |view: &mut TopView| {
            let text = as_text(view, 80, 24);
            text.find("often").unwrap() < text.find(" long").unwrap()
        };
        assert!(first(&mut view), "the most time comes first");
        view.key(KeyCode::Char('s'));
        view.key(KeyCode::Char('s'));
        assert!(!first(&mut view), "the longest comes first");
        (0..100).for_each(|_| view.key(KeyCode::Down));
        assert!(as_text(&mut view, 80, 24).contains("\n 63 "), "the last CPU can be reached");
        view.key(KeyCode::Char('?'));
        let help = as_text(&mut view, 80, 24);
        assert!(help.contains("q, Ctrl-C") && HELP.iter().all(|words| help.contains(words)), "{help}");
        view.key(KeyCode::Esc);
        (0..100).for_each(|_| view.key(KeyCode::Up));
        let text = as_text(&mut view, 60, 24);
        assert!(text.contains("312 us control after irq/31-eth0"), "who was late and after whom: {text}");
        assert!(text.contains("often") && text.contains("TIMER softirq (0-1)"), "{text}");
        view.key(KeyCode::Char('?'));
        let narrow = as_text(&mut view, 40, 40);
        assert!(narrow.contains("single activations of"), "nothing is cut off: {narrow}");
    }
}
