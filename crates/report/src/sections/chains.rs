//! Activities over several threads, and where the time of the longest instance went.

use crate::section::{Block, Cell, Column, Row, Section, Table};
use whylate_core::figure::{count, nanoseconds};
use whylate_core::order::InOrder;
use whylate_core::result::{ChainDoing, ChainPart, ChainResult, ProbeResult, RunResult};

/// The most parts of a path that are listed; the JSON and the table `paths` have all.
const PARTS_MAX: usize = 24;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let many = run.cells.len() > 1;
    let probes = run.cells.iter().flat_map(|cell| cell.probes.iter().map(move |probe| (cell, probe)));
    probes.flat_map(|(cell, probe)| sections(probe, many.then_some(cell.name.as_str()))).collect()
}

fn sections(probe: &ProbeResult, cell: Option<&str>) -> Vec<Section> {
    if probe.chains.is_empty() {
        return Vec::new();
    }
    let columns = vec![
        Column::text("chain"),
        Column::number("instances"),
        Column::number("per second").importance(1),
        Column::number("deadline"),
        Column::number("late"),
        Column::number("dropped"),
        Column::number("overtaken").importance(1),
        Column::number("p50"),
        Column::number("p99"),
        Column::number("max"),
    ];
    let title = cell.map_or_else(|| "Chains".to_owned(), |cell| format!("Chains of {cell}"));
    let meaning = "an instance lasts from its begin in one thread to its end in another";
    let rows = probe.chains.iter().map(row).collect();
    let section = Section { id: "chains", title, meaning, ..Section::default() }
        .with(Table::new(columns, rows))
        .with_all(probe.chains.iter().flat_map(notes).map(Block::note));
    [section].into_iter().chain(probe.chains.iter().filter_map(path)).collect()
}

fn row(chain: &ChainResult) -> Row {
    let time =
        |of: fn(&whylate_core::result::Quantiles) -> u64| chain.quantiles.as_ref().map(of).map(nanoseconds);
    let number = |of: u64| Some(count(of)).filter(|_| of > 0);
    Row::of::<Cell>([
        chain.record.name.as_str().into(),
        count(chain.record.instances).into(),
        format!("{:.1}", chain.per_s).into(),
        chain.record.deadline_ns.map(nanoseconds).into(),
        number(chain.record.late).into(),
        number(chain.record.dropped).into(),
        number(chain.record.overtaken).into(),
        time(|it| it.p50_ns).into(),
        time(|it| it.p99_ns).into(),
        time(|it| it.max_ns).into(),
    ])
}

fn notes(chain: &ChainResult) -> Vec<String> {
    let record = &chain.record;
    let said = [
        (record.instances == 0, "No instance of `NAME` ended during the watch.".to_owned()),
        (
            record.uncertain > 0,
            format!(
                "Instances of `NAME` that overlapped, and that neither a value nor wake-ups join, are uncertain: {}. Add `:argN` to both marks.",
                count(record.uncertain)
            ),
        ),
        (record.ends_alone > 0, format!("Ends of `NAME` without a begin: {}.", count(record.ends_alone))),
        (
            record.unexplained > 0,
            format!("Late instances of `NAME` without an explanation: {}.", count(record.unexplained)),
        ),
    ];
    said.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text.replace("NAME", &record.name)).collect()
}

/// Where the time of the longest explained instance went, from begin to end.
fn path(chain: &ChainResult) -> Option<Section> {
    let (worst_ns, first) = (chain.worst_ns?, chain.worst.first()?);
    let columns = vec![
        Column::text("thread"),
        Column::number("CPU"),
        Column::text("what").wraps(),
        Column::number("from"),
        Column::number("duration"),
        Column::number("share").importance(1),
    ];
    let shown = longest(&chain.worst);
    let row = |part: &&ChainPart| {
        let share = part.length_ns() as f64 / worst_ns.max(1) as f64;
        Row::of::<Cell>([
            part.thread.as_str().into(),
            part.cpu.map(|cpu| cpu.to_string()).into(),
            part.sentence().into(),
            nanoseconds(part.from_ns.saturating_sub(first.from_ns)).into(),
            nanoseconds(part.length_ns()).into(),
            whylate_core::figure::share(share).into(),
        ])
    };
    let rows = shown.iter().map(row).collect();
    let title = format!("Longest instance of chain {}: {}", chain.record.name, nanoseconds(worst_ns));
    let meaning = "what the end waited for, from begin to end";
    let section =
        Section { id: "chain-path", title, meaning, ..Section::default() }.with(Table::new(columns, rows));
    let left = chain.worst.len() - shown.len();
    let open_ns: u64 =
        chain.worst.iter().filter(|it| it.what == ChainDoing::Unknown).map(ChainPart::length_ns).sum();
    let notes = [
        (left > 0).then(|| {
            format!("The {PARTS_MAX} longest parts are listed; the JSON also has {left} shorter ones.")
        }),
        (open_ns > 0).then(|| format!("Not recorded: {}.", nanoseconds(open_ns))),
    ];
    Some(section.with_all(notes.into_iter().flatten().map(Block::note)))
}

/// The longest parts, in the order of time.
fn longest(parts: &[ChainPart]) -> Vec<&ChainPart> {
    let mut all: Vec<&ChainPart> = parts.iter().collect();
    all.order_by_key(|part| std::cmp::Reverse(part.length_ns()));
    all.truncate(PARTS_MAX);
    all.order_by_key(|part| part.from_ns);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Page;
    use crate::write::Style;
    use whylate_core::CpuId;
    use whylate_core::result::{ChainRecord, Quantiles};

    fn text(chains: Vec<ChainResult>) -> String {
        let probe = ProbeResult { probe: "task".to_owned(), chains, ..ProbeResult::default() };
        Page { sections: sections(&probe, None), ..Default::default() }.terminal(Style::default())
    }

    #[test]
    fn a_chain_has_its_figures_and_the_path_of_its_longest_instance() {
        let part = |nth: u64, thread: &str, what, by: Option<&str>| ChainPart {
            thread: thread.to_owned(),
            cpu: Some(CpuId(3)),
            what,
            from_ns: 1_000_000 + nth * 2_000_000,
            to_ns: 3_000_000 + nth * 2_000_000,
            by: by.map(str::to_owned),
            ..ChainPart::default()
        };
        let record = ChainRecord {
            name: "frame".to_owned(),
            deadline_ns: Some(3_500_000),
            instances: 1_200,
            late: 120,
            uncertain: 4,
            ..ChainRecord::default()
        };
        let quantiles =
            Quantiles { p50_ns: 1_000_000, p99_ns: 3_900_000, max_ns: 4_000_000, ..Quantiles::default() };
        let chain = ChainResult {
            record,
            per_s: 100.0,
            quantiles: Some(quantiles),
            worst_ns: Some(4_000_000),
            worst: vec![
                part(0, "camera", ChainDoing::Running, None),
                part(1, "filter", ChainDoing::Preempted, Some("make")),
            ],
            ..ChainResult::default()
        };
        let text = text(vec![chain]);
        for expected in [
            "frame",
            "1,200",
            "120",
            "3.50 ms",
            "Longest instance of chain frame: 4.00 ms",
            "preempted by make",
            "50",
            "uncertain: 4",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("dropped 0") && sections(&ProbeResult::default(), None).is_empty());
    }

    #[test]
    fn the_longest_parts_of_a_long_path_are_listed_in_the_order_of_time() {
        let part =
            |nth: u64| ChainPart { from_ns: nth * 100, to_ns: nth * 100 + nth, ..ChainPart::default() };
        let parts: Vec<ChainPart> = (0..100).map(part).collect();
        let shown = longest(&parts);
        assert_eq!((shown.len(), shown[0].from_ns), (PARTS_MAX, (100 - PARTS_MAX as u64) * 100));
    }
}
