//! The user's own threads: their figures, and why their worst activations took long.

use crate::pictures::Flame;
use crate::section::{Block, Cell, Column, Depth, Row, Section, Table, sentences};
use crate::words::{cause_and_share, counted};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use whylate_core::SeriesName;
use whylate_core::figure::{count, nanoseconds, priority, share};
use whylate_core::order::InOrder;
use whylate_core::plan::Chain;
use whylate_core::quantity::{DOUBTS, OVERRUNS, POSSIBLY_LATE, TASK, UNSEEN_MAX_NS};
use whylate_core::result::{
    Cause, CpuResult, HourResult, OwnCounters, PartResult, ProbeResult, Quantiles, RunResult, Spike,
};

const PROBE: &str = "task";
/// The most activations that are listed, worst first, and the most causes of each.
const WORST_MAX: usize = 5;
const CAUSES_MAX: usize = 4;
/// The most functions of each.
const FUNCTIONS_MAX: usize = 8;
/// The worst responses that have a picture.
const FLAMES_MAX: usize = 3;
/// The most hours that are listed; the last ones are.
const HOURS_MAX: usize = 48;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let many = run.cells.len() > 1;
    let of_cell = |cell: &str, probe: &ProbeResult| rows(probe, many.then_some(cell));
    let probes = || run.cells.iter().flat_map(|cell| cell.probes.iter().map(move |probe| (cell, probe)));
    let worst = worst(probes().flat_map(|(_, probe)| &probe.spikes));
    let rows = probes().flat_map(|(cell, probe)| of_cell(&cell.name, probe)).collect();
    let mut sections = section(rows, worst, meaning(probes().map(|(_, probe)| probe)));
    sections.extend(functions(probes().flat_map(|(_, probe)| &probe.spikes)));
    sections.extend(counters(probes().flat_map(|(_, probe)| &probe.spikes)));
    sections.extend(probes().flat_map(|(_, probe)| hours(probe)));
    sections
}

/// The functions of the programs in which the own work of the worst responses was.
fn functions<'r>(spikes: impl Iterator<Item = &'r Spike>) -> Vec<Section> {
    let columns = vec![
        Column::number("response"),
        Column::text("thread"),
        Column::number("samples"),
        Column::text("function").wraps(),
        Column::text("file"),
        Column::number("self"),
        Column::number("with callees"),
        Column::number("time"),
        Column::number("ordinary time"),
    ];
    let all = longest(spikes, |cause| cause.samples.as_ref());
    let rows = all.iter().flat_map(|(thread, spike, samples)| {
        let part = |number: u64| share(number as f64 / samples.count.max(1) as f64);
        (0..).zip(samples.functions.iter().take(FUNCTIONS_MAX)).map(move |(nth, it)| {
            let first = |text: String| if nth == 0 { text } else { String::new() };
            Row::of::<Cell>([
                first(nanoseconds(spike.latency_ns)).into(),
                first((*thread).to_owned()).into(),
                first(count(samples.count)).into(),
                it.function.as_str().into(),
                it.file.as_str().into(),
                part(it.own).into(),
                part(it.all).into(),
                it.ns.map(nanoseconds).into(),
                it.ordinary_ns.map(nanoseconds).into(),
            ])
        })
    });
    let rows: Vec<Row> = rows.collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let note = Block::note(
        "whylate samples a late activation as soon as this activation exceeds the thread's usual run time. \
         Shares and times leave out the time before the first sample. The ordinary time is an \
         estimate: whylate also samples some activations that take no longer than usual.",
    );
    let flames = all.iter().take(FLAMES_MAX).map(|(thread, spike, samples)| {
        Flame::new(format!("{thread}, response {}", nanoseconds(spike.latency_ns)), samples)
    });
    let colours = "In the picture, the start of the program is at the top, and a wider function ran longer. Orange functions take little \
        or no time in ordinary activations. Yellow functions ran longer than in ordinary activations.";
    let section = Section::new("functions", "Functions in which late threads ran").depth(Depth::Detail);
    let pictures = Block::Aside(Section::default().with(Block::note(colours)).with_all(flames));
    vec![section.with(Table::new(columns, rows)).with(note).with(pictures)]
}

/// The longest responses of which a cause has that, with their threads.
fn longest<'r, T>(
    spikes: impl Iterator<Item = &'r Spike>,
    of: impl Fn(&'r Cause) -> Option<&'r T>,
) -> Vec<(&'r str, &'r Spike, &'r T)> {
    let found = |spike: &'r Spike| {
        let mut causes = std::iter::once(&spike.cause).chain(&spike.also);
        let name = SeriesName::of(spike.probe.as_deref()?);
        // What a wake-up latency consists of is in the response.
        name.part.is_none().then(|| Some((name.series?, spike, causes.find_map(&of)?)))?
    };
    let mut all: Vec<_> = spikes.filter_map(found).collect();
    all.order_by_key(|(_, spike, _)| Reverse(spike.latency_ns));
    all.truncate(WORST_MAX);
    all
}

/// What the CPUs' counters show of the own work of the worst responses.
fn counters<'r>(spikes: impl Iterator<Item = &'r Spike>) -> Vec<Section> {
    let columns = vec![
        Column::number("response"),
        Column::text("thread"),
        Column::number("ran"),
        Column::number("usually"),
        Column::number("instructions"),
        Column::number("usually"),
        Column::number("cycles"),
        Column::number("usually"),
        Column::number("cache misses"),
        Column::number("usually"),
        Column::text("longer by").wraps(),
    ];
    let row = |(thread, spike, it): (&str, &Spike, &OwnCounters)| {
        let (here, usual) = (&it.here, it.usual.as_ref());
        let number = |of: Option<u64>| Cell::from(of.map(count));
        Row::of::<Cell>([
            nanoseconds(spike.latency_ns).into(),
            thread.to_owned().into(),
            nanoseconds(here.run_ns).into(),
            usual.map(|usual| nanoseconds(usual.run_ns)).into(),
            count(here.instructions).into(),
            number(usual.map(|usual| usual.instructions)),
            number(here.cycles),
            number(usual.and_then(|usual| usual.cycles)),
            number(here.cache_misses),
            number(usual.and_then(|usual| usual.cache_misses)),
            it.change.map(|change| change.describe().to_owned()).into(),
        ])
    };
    let all = longest(spikes, |cause| cause.counters.as_ref());
    let rows = all.iter().copied().map(row).collect();
    let note = Block::note(
        "The CPUs count while the thread runs, also in interrupts. The usual figures are medians of activations that run no longer than \
         usual.",
    );
    let section = Section::new("counters", "Instructions and cycles of late threads").depth(Depth::Detail);
    if all.is_empty() { Vec::new() } else { vec![section.with(Table::new(columns, rows)).with(note)] }
}

/// The worst responses of each hour.
fn hours(probe: &ProbeResult) -> Vec<Section> {
    let columns = vec![
        Column::number("hour"),
        Column::number("response"),
        Column::text("thread"),
        Column::number("CPU"),
        Column::text("cause").wraps(),
    ];
    let skipped = probe.hours.len().saturating_sub(HOURS_MAX);
    let shown = probe.hours.iter().skip(skipped);
    let row = |hour: &HourResult, spike: &Spike| {
        let thread = spike.probe.as_deref().and_then(|name| SeriesName::of(name).series.map(str::to_owned));
        Row::of::<Cell>([
            (1 + hour.after_ns / HourResult::LENGTH_NS).to_string().into(),
            nanoseconds(spike.latency_ns).into(),
            thread.into(),
            spike.shown_cpu().to_string().into(),
            cause_and_share(&spike.cause).into(),
        ])
    };
    let rows = shown.flat_map(|hour| hour.spikes.iter().map(move |spike| row(hour, spike)));
    let table = Table::new(columns, rows.collect());
    let note = (skipped > 0).then(|| format!("The JSON also lists {}.", counted(skipped, "earlier hour")));
    let section = Section::new("hours", "Longest responses of each hour").depth(Depth::Detail).with(table);
    note.into_iter().fold(section, |section, note| section.with(Block::note(note))).unless_empty()
}

/// The worst responses, each with all its causes in one sentence.
fn worst<'r>(spikes: impl Iterator<Item = &'r Spike>) -> Vec<String> {
    let thread = |spike: &'r Spike| {
        let name = SeriesName::of(spike.probe.as_deref()?);
        let series = name.series.filter(|series| Chain::of_series(series).is_none());
        if name.probe == PROBE && name.part.is_none() { series } else { None }
    };
    let mut all: Vec<(&str, &Spike)> = spikes.filter_map(|spike| Some((thread(spike)?, spike))).collect();
    all.order_by_key(|(_, spike)| Reverse(spike.latency_ns));
    // The longest response of each thread comes before the second one of any.
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let ranked = all.into_iter().map(|(thread, spike)| {
        let rank = numbers.entry(thread).or_default();
        *rank += 1;
        (*rank, thread, spike)
    });
    let mut ranked: Vec<(usize, &str, &Spike)> = ranked.collect();
    ranked.order_by_key(|(rank, ..)| *rank);
    ranked.into_iter().take(WORST_MAX).map(|(_, thread, spike)| sentence(thread, spike)).collect()
}

/// `4.10 ms response of audio: 2.90 ms: logger (thread 7) ran …; 1.20 ms: the task did its own work`.
fn sentence(thread: &str, spike: &Spike) -> String {
    let part = |cause: &Cause| {
        let took_ns = cause.share.unwrap_or(0.0) * spike.latency_ns as f64;
        format!("{}: {}", nanoseconds(took_ns as u64), cause.sentence())
    };
    let causes = std::iter::once(&spike.cause).chain(&spike.also).filter(|cause| cause.share.is_some());
    let parts: Vec<String> = causes.take(CAUSES_MAX).map(part).collect();
    let why = if parts.is_empty() { "not explained".to_owned() } else { parts.join("; ") };
    format!("{} response of {thread}: {why}", nanoseconds(spike.latency_ns))
}

/// What the figures mean; without the BPF programs in the kernel no wake-up is known.
fn meaning<'r>(mut probes: impl Iterator<Item = &'r ProbeResult>) -> &'static str {
    let is_wakeup = |part: &PartResult| part.part == "wakeup" && part.quantiles.is_some();
    let mut own = probes.by_ref().filter(|probe| probe.probe == PROBE).flat_map(|probe| &probe.cpus);
    match own.any(|cpu| cpu.parts.iter().any(is_wakeup)) {
        true => {
            "a response lasts from the due time or the wake-up to the next sleep; jitter is p99.9 of the \
             periods minus their median"
        }
        false => {
            "a response lasts from the first run (or a mark) to the next sleep (or mark); jitter is p99.9 of \
             the periods minus their median"
        }
    }
}

fn section(rows: Vec<Row>, worst: Vec<String>, meaning: &'static str) -> Vec<Section> {
    let columns = vec![
        Column::text("cell"),
        Column::text("thread"),
        Column::number("id").importance(1),
        Column::number("priority"),
        Column::number("activations"),
        Column::number("late"),
        Column::number("wake-up p50").importance(1),
        Column::number("wake-up p99.9").importance(2),
        Column::number("wake-up max"),
        Column::number("run p50").importance(2),
        Column::number("response p50"),
        Column::number("response p99.9"),
        Column::number("response max"),
        Column::number("with waits, at most"),
        Column::number("period").importance(1),
        Column::number("jitter").importance(2),
        Column::number("preempted").importance(2),
        Column::number("blocked").importance(2),
        Column::number("quota").importance(3),
        Column::number("migrations").importance(3),
        Column::number("faults").importance(3),
        Column::text("sleeps in").importance(3),
        Column::text("woken by").importance(3),
    ];
    Section::new("tasks", "The watched threads")
        .meaning(meaning)
        .with(Table::new(columns, rows))
        .with(sentences(worst))
        .unless_empty()
}

fn rows(probe: &ProbeResult, cell: Option<&str>) -> Vec<Row> {
    let is_thread = |cpu: &&CpuResult| cpu.series.as_deref().and_then(Chain::of_series).is_none();
    let own = probe.cpus.iter().filter(|_| probe.probe == PROBE).filter(is_thread);
    own.filter(|cpu| cpu.samples > 0).map(|cpu| row(cpu, cell)).collect()
}

fn row(cpu: &CpuResult, cell: Option<&str>) -> Row {
    let part = |name: &str| cpu.parts.iter().find(|part| part.part == name).and_then(|part| part.quantiles);
    let (wakeup, run, period) = (part("wakeup"), part("run"), part("period"));
    let time =
        |of: &Option<Quantiles>, figure: fn(&Quantiles) -> u64| of.as_ref().map(|it| nanoseconds(figure(it)));
    let task = cpu.quantities.of(TASK);
    let total = |ns: Option<u64>| ns.filter(|ns| *ns > 0).map(nanoseconds);
    let number = |of: Option<u64>| of.filter(|it| *it > 0).map(count);
    let waits_unseen = cpu.has_unseen_waits();
    // Sleeps in the middle of the work add to responses, by an unknown time.
    let is_open = waits_unseen && cpu.get(DOUBTS) > Some(0);
    let late = match (cpu.get(OVERRUNS).unwrap_or(0), cpu.get(POSSIBLY_LATE)) {
        (least, _) if is_open => Some(format!("at least {}", count(least))),
        (least, Some(possibly)) if possibly > 0 => {
            Some(format!("{} to {}", count(least), count(least + possibly)))
        }
        (least, _) => number(Some(least)),
    };
    let possible_ns = cpu.get(UNSEEN_MAX_NS).filter(|_| waits_unseen && !is_open);
    Row::of([
        cell.map(str::to_owned),
        cpu.series.clone(),
        task.map(|task| task.thread.to_string()),
        task.map(|task| priority(task.priority)),
        Some(count(cpu.samples)),
        late,
        time(&wakeup, |it| it.p50_ns),
        time(&wakeup, |it| it.p999_ns),
        time(&wakeup, |it| it.max_ns),
        time(&run, |it| it.p50_ns),
        time(&cpu.quantiles, |it| it.p50_ns),
        time(&cpu.quantiles, |it| it.p999_ns),
        time(&cpu.quantiles, |it| it.max_ns),
        possible_ns.map(nanoseconds),
        time(&period, |it| it.p50_ns),
        time(&period, |it| it.p999_ns.saturating_sub(it.p50_ns)),
        total(task.map(|task| task.preempted_ns)),
        total(task.map(|task| task.blocked_ns)),
        total(task.map(|task| task.quota_ns)),
        number(task.map(|task| task.migrations)),
        number(task.map(|task| task.faults)),
        task.and_then(|task| task.sleeps_in.clone()),
        task.and_then(|task| task.woken_by.clone()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::Style;
    use whylate_core::CpuId;
    use whylate_core::quantity::Quantities;
    use whylate_core::record::TaskRecord;
    use whylate_core::result::{CauseKind, OwnSamples, SampledCall, SampledFunction};

    #[test]
    fn a_thread_has_a_line_with_its_parts() {
        let figures = |us: u64| Quantiles {
            p50_ns: us * 1_000,
            p999_ns: us * 3_000,
            max_ns: us * 9_000,
            ..Quantiles::default()
        };
        let part = |name: &str, us: u64| PartResult {
            part: name.to_owned(),
            samples: 1_000,
            quantiles: Some(figures(us)),
            ..PartResult::default()
        };
        let task = TaskRecord { thread: 812, priority: 80, migrations: 3, ..TaskRecord::default() };
        let cpu = CpuResult {
            series: Some("audio".to_owned()),
            samples: 1_000,
            quantiles: Some(figures(200)),
            parts: vec![part("wakeup", 11), part("period", 1_000)],
            quantities: Quantities::default().with(OVERRUNS, 7).with(TASK, task),
            ..CpuResult::default()
        };
        let probe = ProbeResult { probe: PROBE.to_owned(), cpus: vec![cpu], ..ProbeResult::default() };
        let cause = |share, actor: Option<&str>, kind| Cause {
            share: Some(share),
            actor: actor.map(str::to_owned),
            ..Cause::new(kind)
        };
        let spike = |series: &str| Spike {
            probe: Some(series.to_owned()),
            cause: cause(0.75, Some("logger"), CauseKind::Lock),
            also: vec![cause(0.25, None, CauseKind::OwnWork)],
            ..Spike::unexplained(CpuId(1), 9, 4_000_000)
        };
        let spikes = [spike("task/audio"), spike("task/audio/wakeup")];
        let sections = section(rows(&probe, None), worst(spikes.iter()), meaning(std::iter::once(&probe)));
        let page = crate::section::Page { sections, ..Default::default() };
        let text = page.terminal(Style::default());
        for expected in ["audio", "80", "1,000", "7", "99.0 us", "600 us", "1.80 ms"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = "4.00 ms response of audio: 3.00 ms: the task waited for a lock that logger held; 1.00 ms: the task did its own work";
        assert_eq!(joined.matches(expected).count(), 1, "{joined}");
        assert_eq!(
            [priority(100), priority(1), priority(-21), priority(-26)],
            ["deadline", "1", "nice 0", "nice 5"]
        );
    }

    #[test]
    fn the_functions_of_late_own_work_are_listed() {
        let function = |name: &str, own, all| SampledFunction {
            function: name.to_owned(),
            file: "control".to_owned(),
            own,
            all,
            ns: Some(1_000_000 * all),
            ordinary_ns: Some(250_000),
        };
        let call = |depth, name: &str, samples| SampledCall {
            depth,
            function: name.to_owned(),
            samples,
            ns: 1_000_000 * samples,
            ordinary_ns: Some(250_000),
        };
        let mut spike =
            Spike { probe: Some("task/audio".to_owned()), ..Spike::unexplained(CpuId(1), 9, 4_000_000) };
        let table = |spike: &Spike| {
            let page =
                crate::section::Page { sections: functions(std::iter::once(spike)), ..Default::default() };
            page.detailed(true).terminal(Style::default())
        };
        assert!(functions(std::iter::once(&spike)).is_empty());
        let functions = vec![function("cycle", 1, 4), function("plan", 3, 3)];
        spike.also = vec![Cause {
            samples: Some(OwnSamples {
                count: 4,
                functions,
                calls: vec![call(0, "cycle", 4), call(1, "plan", 3), call(1, "log", 1)],
                ..OwnSamples::default()
            }),
            ..Cause::new(CauseKind::OwnWork)
        }];
        let text = table(&spike);
        let words = |name: &str| {
            let line = text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{text}"));
            line.split_whitespace().filter(|word| word.ends_with('%') || word.parse::<u32>().is_ok()).count()
        };
        assert!(words("cycle") >= 2 && words("plan") >= 2, "{text}");
        let times = |name: &str| {
            text.lines().any(|it| it.contains(name) && it.contains("3.00 ms") && it.ends_with("250 us"))
        };
        assert!(times("plan"), "{text}");
        let samples = spike.also[0].samples.as_ref().unwrap();
        let places =
            Flame::new(String::new(), samples).calls.into_iter().map(|it| (it.depth, it.from, it.width));
        assert_eq!(places.collect::<Vec<_>>(), [(0, 0.0, 1.0), (1, 0.0, 0.75), (1, 0.75, 0.25)]);
    }

    #[test]
    fn the_worst_of_each_hour_are_listed() {
        let spike = |latency_ns| Spike {
            probe: Some("task/audio".to_owned()),
            ..Spike::unexplained(CpuId(1), 9, latency_ns)
        };
        let hour = |number: u64| HourResult {
            after_ns: number * HourResult::LENGTH_NS,
            spikes: vec![spike(4_000_000 + number)],
        };
        let of = |count: u64| ProbeResult { hours: (0..count).map(hour).collect(), ..ProbeResult::default() };
        assert!(hours(&of(0)).is_empty());
        let page = crate::section::Page { sections: hours(&of(50)), ..Default::default() };
        let text = page.detailed(true).terminal(Style::default());
        assert!(text.contains("audio") && text.contains("2 earlier hours"), "{text}");
        assert!(text.lines().any(|line| line.trim_start().starts_with("50 ")), "{text}");
    }
}
