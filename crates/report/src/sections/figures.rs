//! The figures: for each probe a table with a line per cell and CPU, and its charts.

use crate::section::{ALWAYS, Block, Cell, Column, Depth, Row, Section, Table, Tone};
use crate::words::{cell_probe, probe_meaning, probe_names};
use whylate_core::figure::{count, nanoseconds, nanoseconds_f64, rate, share};
use whylate_core::quantity::{
    BUCKET_NS, CORRECTED, CYCLES, EXTREMES, GAPS, HISTOGRAM_END_NS, LOST_SHARE, OVERRUNS, OWN_MAX_NS,
    OWN_P99_NS, PEER_CPU, Quantities, Row as Quantified, Shown, TABLE, THROTTLED, Unit,
};
use whylate_core::record::InterruptRecord;
use whylate_core::result::{
    CellResult, CpuResult, Extremes, MeasureResult, PartResult, ProbeResult, Quantiles, RateResult,
    RunResult, ThrottledGaps,
};
use whylate_core::{CpuId, SeriesName, WarningCode};

const CORRECTED_NOTE: &str = "Lines marked corrected also count the missed periods, with the latency that each would have \
    had (coordinated omission corrected). The other lines are as recorded: a task that is still late when a period \
    begins records nothing for that period.";
const UNTHROTTLED_NOTE: &str = "Lines marked unthrottled leave out the gaps of real-time throttling and of \
    the fair server. The scheduler makes these gaps on purpose if a real-time task never sleeps: they are \
    not a latency of the machine.";
/// Why some columns are the same for every probe of a cell.
const WHOLE_CELL_NOTE: &str = "Steal and interrupts are the sums over all probes and repeats of the cell.";

struct Line<'r> {
    cell: Option<&'r CellResult>,
    rates: &'r [RateResult],
    cpu: &'r CpuResult,
    of: Of<'r>,
}

/// What the figures of a line describe.
#[derive(Clone, Copy)]
enum Of<'r> {
    Recorded,
    Corrected(&'r Quantiles),
    /// Without the gaps that the scheduler makes.
    Unthrottled(&'r ThrottledGaps),
    /// A part of the samples of the line before.
    Part(&'r PartResult),
}

impl<'r> Line<'r> {
    fn quantiles(&self) -> Option<&'r Quantiles> {
        match self.of {
            Of::Recorded => self.cpu.quantiles.as_ref(),
            Of::Corrected(figures) => Some(figures),
            Of::Unthrottled(_) => None,
            Of::Part(part) => part.quantiles.as_ref(),
        }
    }

    fn max_ns(&self) -> Option<u64> {
        match self.of {
            Of::Unthrottled(throttled) => Some(throttled.other_max_ns),
            _ => self.quantiles().map(|figures| figures.max_ns).or_else(|| self.extremes()?.max_ns),
        }
    }

    /// Further quantities of the probe; for unthrottled gaps, only those that the scheduler did not make.
    fn quantities(&self) -> Quantities {
        match self.of {
            // The machine's own latency counts missed periods as well: it belongs to the corrected line.
            Of::Recorded if corrected(self.cpu).is_some() => {
                self.cpu.quantities.clone().with(OWN_P99_NS, None).with(OWN_MAX_NS, None)
            }
            Of::Corrected(_) => {
                let (p99_ns, max_ns) = (self.cpu.get(OWN_P99_NS), self.cpu.get(OWN_MAX_NS));
                Quantities::default().with(OWN_P99_NS, p99_ns).with(OWN_MAX_NS, max_ns)
            }
            Of::Recorded => self.cpu.quantities.clone(),
            Of::Unthrottled(_) => {
                let (gaps, lost_share) = crate::worst::gaps(self.cpu);
                Quantities::default().with(GAPS, gaps).with(LOST_SHARE, lost_share)
            }
            Of::Part(_) => Quantities::default(),
        }
    }

    fn time(&self, figure: fn(&Quantiles) -> u64) -> Option<String> {
        self.quantiles().map(|figures| nanoseconds(figure(figures)))
    }

    /// A quantile. If the buckets are wide, this is the end of its bucket. Above the end of another tool's histogram, it is not
    /// known.
    fn quantile(&self, part: f64, figure: fn(&Quantiles) -> u64) -> Option<String> {
        if let Some(cpu) = self.recorded().filter(|cpu| !cpu.knows_quantile(part)) {
            return cpu.get(HISTOGRAM_END_NS).map(|end_ns| format!("> {}", nanoseconds(end_ns)));
        }
        let is_wide = self.recorded().is_some_and(|cpu| cpu.get(BUCKET_NS).is_some());
        self.time(figure).map(|time| if is_wide { format!("≤ {time}") } else { time })
    }

    /// The extremes, if quantiles are unknown.
    fn extremes(&self) -> Option<&'r Extremes> {
        self.recorded()?.quantities.of(EXTREMES)
    }

    /// The CPU's result, for a line of recorded figures.
    fn recorded(&self) -> Option<&'r CpuResult> {
        matches!(self.of, Of::Recorded).then_some(self.cpu)
    }

    fn row(&self) -> Row {
        let of = |fields: &[Field]| -> Vec<Cell> {
            fields.iter().map(|field| Cell::from((field.value)(self))).collect()
        };
        let (mut cells, quantities) = (of(&FIELDS), self.quantities());
        let value = |number: usize, row: &Quantified| {
            let value = quantities.value(number)?.as_f64()?;
            Some(match row.unit {
                Unit::Ns => nanoseconds_f64(value),
                Unit::Share => share(value),
                Unit::Count | Unit::Other => count(value as u64),
            })
        };
        cells.extend(shown().map(|(number, row, _)| Cell::from(value(number, row))));
        cells.extend(of(&OF_CELL));
        Row { is_part: !matches!(self.of, Of::Recorded), cells, ..Row::default() }
    }
}

/// The quantities that have a column.
fn shown() -> impl Iterator<Item = (usize, &'static Quantified, Shown)> {
    TABLE.iter().enumerate().filter_map(|(number, row)| Some((number, row, row.shown?)))
}

struct Field {
    title: &'static str,
    importance: u8,
    value: fn(&Line<'_>) -> Option<String>,
}

const fn field(title: &'static str, importance: u8, value: fn(&Line<'_>) -> Option<String>) -> Field {
    Field { title, importance, value }
}

const CELL: &str = "cell";
/// The method of a round trip, the interrupt source of a dispatch, or a part of either.
const SERIES: &str = "source";
const MAX: &str = "max";
/// Columns about the whole cell, not about one probe.
const OF_WHOLE_CELL: [&str; 2] = ["steal", "interrupts"];

/// From left to right, before the columns of [`shown`].
static FIELDS: [Field; 12] = [
    field(CELL, ALWAYS, |line| match line.of {
        Of::Recorded => line.cell.map(|cell| cell.name.clone()),
        Of::Corrected(_) => Some("corrected".to_owned()),
        Of::Unthrottled(_) => Some("unthrottled".to_owned()),
        Of::Part(_) => None,
    }),
    field(SERIES, ALWAYS, |line| match line.of {
        Of::Recorded => line.cpu.series.clone(),
        Of::Corrected(_) | Of::Unthrottled(_) => None,
        Of::Part(part) => Some(part.part.clone()),
    }),
    field("CPU", ALWAYS, |line| {
        let cpu = line.recorded()?;
        Some(cpu.get(PEER_CPU).map_or(cpu.cpu.to_string(), |peer| format!("{}->{peer}", cpu.cpu)))
    }),
    field("samples", 6, |line| match line.of {
        // If another tool printed only the maximum, the number of samples is unknown.
        Of::Recorded if line.cpu.samples == 0 && line.cpu.get(EXTREMES).is_some() => None,
        Of::Recorded => Some(count(line.cpu.samples)),
        Of::Corrected(_) | Of::Unthrottled(_) => None,
        Of::Part(part) => Some(count(part.samples)),
    }),
    field("min", 5, |line| {
        line.time(|figures| figures.min_ns).or_else(|| line.extremes()?.min_ns.map(nanoseconds))
    }),
    field("mean", 0, |line| {
        let figures = line.quantiles().map(|figures| figures.mean_ns);
        figures.or_else(|| line.extremes()?.mean_ns).map(nanoseconds_f64)
    }),
    field("median", ALWAYS, |line| line.quantile(0.5, |figures| figures.p50_ns)),
    field("p99", ALWAYS, |line| line.quantile(0.99, |figures| figures.p99_ns)),
    field("p99.9", 8, |line| line.quantile(0.999, |figures| figures.p999_ns)),
    field("p99.99", 0, |line| line.quantile(0.9999, |figures| figures.p9999_ns)),
    field(MAX, ALWAYS, |line| line.max_ns().map(nanoseconds)),
    field("median cycles", 8, |line| line.recorded()?.get(CYCLES).map(|cycles| count(cycles.p50))),
];

/// The columns behind them.
static OF_CELL: [Field; 3] = [
    field("load rate", 4, |line| line.recorded().and_then(|_| load_rates(line.rates))),
    field("steal", 3, |line| line.recorded().and(line.cell)?.steal_ns.map(nanoseconds)),
    field("interrupts", 2, |line| hard_interrupts(line.recorded().and(line.cell)?, line.cpu.cpu).map(count)),
];

/// With more CPUs than this, the table of a probe is folded.
const CPUS_SHOWN_MAX: usize = 8;

/// The figures of a run, probe by probe, cells in the plan's order. Only the largest value above the limit is marked.
pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let probes = probe_names(run);
    let is_noted = |index: usize| index > 0 && index + 1 == probes.len();
    let all = run.cells.iter().flat_map(|cell| &cell.probes).flat_map(|probe| &probe.cpus);
    let largest = all.filter_map(CpuResult::judged_max_ns).max();
    let marked = largest.zip(run.plan.limit).filter(|(largest, limit)| *largest > limit.0).map(|it| it.0);
    let parts: Vec<Section> = probes
        .iter()
        .enumerate()
        .map(|(index, probe)| {
            let results = run.cells.iter().filter_map(|cell| Some((cell, cell_probe(cell, probe)?)));
            let lines = results.flat_map(|(cell, result)| {
                result.cpus.iter().flat_map(|cpu| lines(Some(cell), &result.rates, cpu))
            });
            let row = |line: Line<'_>| {
                let is_marked =
                    marked.is_some() && line.max_ns() == marked && !matches!(line.of, Of::Part(_));
                let mut row = line.row();
                let max = FIELDS.iter().position(|field| field.title == MAX).filter(|_| is_marked);
                max.and_then(|max| row.cells.get_mut(max)).into_iter().for_each(|cell| cell.tone = Tone::Bad);
                row
            };
            group(probe, CELL, is_noted(index), lines.map(row).collect())
        })
        .collect();
    let is_long = crate::words::measured_cpus(run).len() > CPUS_SHOWN_MAX;
    let fold = |part: Section| if is_long { part.depth(Depth::Folded) } else { part };
    let cpus = run.cells.iter().flat_map(|cell| &cell.probes).flat_map(|probe| &probe.cpus);
    let all = section(parts.into_iter().map(fold).collect(), cpus);
    let titled =
        |section: Section| Section { title: "All figures".to_owned(), depth: Depth::Detail, ..section };
    all.into_iter().map(titled).collect()
}

/// The figures of one measurement.
pub(super) fn of_measure(measure: &MeasureResult) -> Vec<Section> {
    let mut sections = of_result(&measure.probe);
    if measure.warnings.iter().any(|warning| warning.code == WarningCode::NoRealtimePriority) {
        for block in sections.iter_mut().flat_map(|section| &mut section.blocks) {
            if let Block::Part(probe) = block {
                probe.title.push_str(" at ordinary priority (a real-time priority was refused)");
            }
        }
    }
    sections
}

/// One line per CPU; the first column is used only if there are corrected figures.
pub(crate) fn of_result(probe: &ProbeResult) -> Vec<Section> {
    let all = probe.cpus.iter().flat_map(|cpu| lines(None, &[], cpu));
    let mut rows: Vec<Row> = all.map(|line| line.row()).collect();
    if probe.cpus.iter().any(|cpu| corrected(cpu).is_some()) {
        let recorded = rows.iter_mut().filter(|row| !row.is_part);
        recorded.filter_map(|row| row.cells.first_mut()).for_each(|cell| *cell = "recorded".into());
    }
    section(vec![group(&probe.probe, "figures", false, rows)], probe.cpus.iter())
}

fn section<'r>(parts: Vec<Section>, cpus: impl Iterator<Item = &'r CpuResult>) -> Vec<Section> {
    let cpus: Vec<&CpuResult> = cpus.collect();
    let corrected = cpus.iter().any(|cpu| corrected(cpu).is_some()).then(|| Block::note(CORRECTED_NOTE));
    let throttled =
        cpus.iter().any(|cpu| cpu.get(THROTTLED).is_some()).then(|| Block::note(UNTHROTTLED_NOTE));
    vec![Section::new("figures", "").with_all(parts).with_all(corrected).with_all(throttled)]
}

/// The table of a probe; `first` is the title of the first column. Only the last of several tables has the notes.
fn group(probe: &str, first: &'static str, is_noted: bool, rows: Vec<Row>) -> Section {
    let facts = SeriesName::of(probe).facts();
    let column = |field: &Field| {
        let title = match (field.title, facts) {
            (CELL, _) => first,
            (SERIES, Some(facts)) => facts.series_title,
            (title, _) => title,
        };
        let is_noted = is_noted && OF_WHOLE_CELL.contains(&title);
        Column {
            is_text: matches!(field.title, CELL | SERIES),
            note: if is_noted { WHOLE_CELL_NOTE } else { "" },
            ..Column::number(title).importance(field.importance)
        }
    };
    let quantity =
        |(_, _, shown): (usize, _, Shown)| Column::number(shown.title).importance(shown.importance);
    let columns = FIELDS.iter().map(column).chain(shown().map(quantity)).chain(OF_CELL.iter().map(column));
    let table = Table::new(columns.collect(), rows);
    Section::new("", probe).meaning(probe_meaning(probe)).with(table)
}

/// The corrected figures; without missed periods they are the recorded ones.
fn corrected(cpu: &CpuResult) -> Option<&Quantiles> {
    cpu.quantities.of(CORRECTED).filter(|_| cpu.get(OVERRUNS).is_some_and(|missed| missed > 0))
}

/// The recorded line, the corrected line, and the parts.
fn lines<'r>(cell: Option<&'r CellResult>, rates: &'r [RateResult], cpu: &'r CpuResult) -> Vec<Line<'r>> {
    let of = std::iter::once(Of::Recorded)
        .chain(corrected(cpu).map(Of::Corrected))
        .chain(cpu.quantities.of(THROTTLED).map(Of::Unthrottled))
        .chain(cpu.parts.iter().map(Of::Part));
    of.map(|of| Line { cell, rates, cpu, of }).collect()
}

/// The rate of every load of the cell while the probe ran; `None` without a load that has a rate.
fn load_rates(rates: &[RateResult]) -> Option<String> {
    let rates: Vec<String> = rates.iter().map(|load| rate(load.mean, &load.unit)).collect();
    (!rates.is_empty()).then(|| rates.join(" + "))
}

/// Interrupts that one CPU handled in the cell, without softirqs; `None` if none was counted.
fn hard_interrupts(cell: &CellResult, cpu: CpuId) -> Option<u64> {
    let is_hard = |record: &&InterruptRecord| record.cpu == cpu && !super::interrupts::is_softirq(record);
    let mut counts = cell.interrupts.iter().filter(is_hard);
    let first = counts.next()?.count;
    Some(counts.fold(first, |sum, record| sum.saturating_add(record.count)))
}
