//! The tables of a run: their names, columns, types and encodings. `docs/FORMAT.md` says what each column means.
//!
//! Columns are read by name: a reader ignores columns it does not know, and an optional column that an older file
//! lacks reads as missing. Changing the meaning or type of a column needs a new run format.

use parquet::data_type::ByteArray;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// UTF-8 text.
    Text,
    /// 32-bit integer, never negative.
    Int32,
    /// 64-bit integer, never negative.
    Int64,
    /// The same, or missing.
    OptionalInt64,
    /// Floating-point number.
    Double,
    /// UTF-8 text, or missing.
    OptionalText,
    /// Floating-point number, or missing.
    OptionalDouble,
}

/// How a column's values are laid out before compression; chosen by measuring (`examples/simulate_day.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Each distinct value once, then run lengths of numbers: for what repeats.
    Dictionary,
    /// Differences to the row before: for what grows or changes little.
    Delta,
    /// As they are.
    Plain,
}

/// One column.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Type,
    pub(crate) layout: Layout,
}

/// One table.
#[derive(Debug)]
pub(crate) struct Table {
    /// Name of its folder.
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column],
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: Type::Text, layout: Layout::Dictionary }
}
const fn number(name: &'static str) -> Column {
    Column { name, kind: Type::Int32, layout: Layout::Dictionary }
}
const fn int(name: &'static str, layout: Layout) -> Column {
    Column { name, kind: Type::Int64, layout }
}
const fn optional(name: &'static str) -> Column {
    Column { name, kind: Type::OptionalInt64, layout: Layout::Delta }
}

const fn optional_text(name: &'static str) -> Column {
    Column { name, kind: Type::OptionalText, layout: Layout::Dictionary }
}
const fn optional_double(name: &'static str) -> Column {
    Column { name, kind: Type::OptionalDouble, layout: Layout::Plain }
}

/// The columns of a table of probes: whose row it is, then what it says.
macro_rules! of_probe {
    ($($column:expr),+ $(,)?) => {
        &[
            text("run"),
            text("cell"),
            number("repeat"),
            number("attempt"),
            text("probe"),
            number("cpu"),
            $($column),+
        ]
    };
}

/// Samples per bucket, interval and CPU.
pub(crate) const HISTOGRAMS: Table = Table {
    name: "histograms",
    columns: of_probe![
        int("start_ns", Layout::Dictionary),
        int("lower_ns", Layout::Dictionary),
        int("count", Layout::Delta),
    ],
};

/// What each probe saw on each CPU in each interval, but for the histogram.
pub(crate) const INTERVALS: Table = Table {
    name: "intervals",
    columns: of_probe![
        int("start_ns", Layout::Delta),
        int("end_ns", Layout::Delta),
        int("samples", Layout::Delta),
        int("sum_ns", Layout::Delta),
        optional("min_ns"),
        optional("max_ns"),
        optional("overruns"),
        optional("gaps"),
        optional("lost_ns"),
        int("spikes_dropped", Layout::Dictionary),
        optional("peer_cpu"),
        optional("counter_hz"),
    ],
};

/// Moments above the threshold.
pub(crate) const SPIKES: Table = Table {
    name: "spikes",
    columns: of_probe![
        int("at_ns", Layout::Delta),
        int("latency_ns", Layout::Delta),
        int("sample", Layout::Delta),
    ],
};

/// Who made the spikes late: a row for each contributor.
pub(crate) const CAUSES: Table = Table {
    name: "causes",
    columns: of_probe![
        int("at_ns", Layout::Delta),
        int("latency_ns", Layout::Delta),
        number("rank"),
        text("cause"),
        optional_text("actor"),
        optional("pid"),
        optional_text("function"),
        text("callers"),
        optional("from_ns"),
        optional("to_ns"),
        optional_double("share"),
        optional_double("confidence"),
        text("evidence"),
        int("lost", Layout::Dictionary),
    ],
};

/// Interrupts that other CPUs sent.
pub(crate) const IPIS: Table = Table {
    name: "ipis",
    columns: of_probe![
        text("function"),
        optional_text("caller"),
        optional("from_cpu"),
        optional_text("from_task"),
        text("stack"),
        int("start_ns", Layout::Dictionary),
        int("end_ns", Layout::Dictionary),
        int("count", Layout::Delta),
    ],
};

/// What the loads achieved.
pub(crate) const RATES: Table = Table {
    name: "rates",
    columns: &[
        text("run"),
        text("cell"),
        number("repeat"),
        number("attempt"),
        text("load"),
        text("unit"),
        int("at_ns", Layout::Delta),
        int("interval_ns", Layout::Delta),
        Column { name: "value", kind: Type::Double, layout: Layout::Plain },
    ],
};

/// Interrupts and softirqs that were handled; lines that were not are left out.
pub(crate) const INTERRUPTS: Table = Table {
    name: "interrupts",
    columns: of_probe![
        text("line"),
        text("description"),
        int("start_ns", Layout::Dictionary),
        int("end_ns", Layout::Dictionary),
        int("count", Layout::Delta),
    ],
};

/// The kernel's counters of each CPU.
pub(crate) const COUNTERS: Table = Table {
    name: "counters",
    columns: of_probe![
        int("start_ns", Layout::Dictionary),
        int("end_ns", Layout::Dictionary),
        optional("steal_ns"),
        optional("smis"),
        optional("involuntary_switches"),
        optional("page_faults"),
    ],
};

/// Every table, in the order in which a flush writes them. `intervals` comes last: its rows say that everything
/// else of the interval is there.
pub(crate) const TABLES: [&Table; 8] =
    [&HISTOGRAMS, &SPIKES, &CAUSES, &IPIS, &RATES, &INTERRUPTS, &COUNTERS, &INTERVALS];

/// The values of one column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    Text(Vec<ByteArray>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    OptionalInt64(Vec<Option<i64>>),
    Double(Vec<f64>),
    OptionalText(Vec<Option<ByteArray>>),
    OptionalDouble(Vec<Option<f64>>),
}

impl Values {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::Int32(values) => values.len(),
            Self::Int64(values) => values.len(),
            Self::OptionalInt64(values) => values.len(),
            Self::Double(values) => values.len(),
            Self::OptionalText(values) => values.len(),
            Self::OptionalDouble(values) => values.len(),
        }
    }
}

/// Rows of one table, column by column in the table's order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Batch {
    pub(crate) columns: Vec<Values>,
}

impl Batch {
    pub(crate) fn rows(&self) -> usize {
        self.columns.first().map_or(0, Values::len)
    }
}

/// File name of a segment: `000001.parquet`.
pub(crate) fn segment_name(number: u32) -> String {
    format!("{number:06}.parquet")
}

/// The number in a segment's file name; `None` for any other file.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".parquet")?.parse().ok()?;
    // Only the one way of writing it: two names never stand for the same segment.
    (segment_name(number) == name).then_some(number)
}
