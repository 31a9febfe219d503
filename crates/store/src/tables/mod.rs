//! The tables of a run. Each has a file here: its rows with their columns, and how records get into it. To add a table:
//! that file, and a line in [`tables!`] below. `docs/FORMAT.md` says what each column means; a test compares them.
//!
//! Columns are read by name: a reader ignores columns that it does not know, and an optional column that an older file
//! lacks reads as missing. Changing the meaning or type of a column needs a new run format.

mod audit;
mod causes;
mod chains;
pub(crate) mod column;
mod counters;
mod gpus;
mod histograms;
mod hwlat;
mod interrupts;
mod intervals;
mod ipis;
mod keys;
mod own;
mod rates;
mod sources;
mod spikes;
mod tasks;
mod triggers;

pub(crate) use histograms::Apart;
pub use keys::{NOISE_FLOOR, RateKey, RowKey, Span, Spanned};

use crate::directory::{FlushWriter, RunDirectory};
use crate::error::StoreError;
use crate::lake::LakeTable;
use crate::reader::SegmentReader;
use crate::segment;
use column::{Column, Shape, columns};
use histograms::Bucket;
use parquet::errors::ParquetError;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use whylate_core::record::{
    CounterRecord, GpuRecord, HwlatRecord, InterruptRecord, Interval, IpiRecord, OwnRecord, RateRecord,
    SourceRecord, SpikeCauses, SpikeRecord, TaskRecord,
};
use whylate_core::result::{AuditRecord, ChainPath, ChainRecord, TriggerMoment, TriggerRecord};

/// Rows that take more memory are stored at once. Storing takes about twice this memory in addition for a moment.
pub const FLUSH_BYTES: usize = 8 << 20;

/// A row of a table.
pub(crate) trait Table: Clone + Default + 'static {
    /// Name of the table's folder.
    const NAME: &'static str;
    /// The key of its rows; its columns come first.
    type Key: Key;
    const COLUMNS: &'static [Column<Self>];
    /// Columns that depend on a table elsewhere; they come last.
    fn more_columns() -> &'static [Column<Self>] {
        &[]
    }
    /// About how much memory its texts and lists take.
    fn owned_bytes(&self) -> usize {
        64
    }
}

/// The key of a row.
pub(crate) trait Key: Clone + Default + PartialEq + 'static {
    const COLUMNS: &'static [Column<Self>];
    /// Cell, repeat and attempt.
    fn attempt(&self) -> (&str, u32, u32);
}

/// The first column of every table: it distinguishes runs when several directories are read together.
pub(crate) const RUN: &[Column<String>] = columns![run: String => Dictionary "run" *run];

/// The columns of a table, in order.
pub(crate) fn shapes<R: Table>() -> impl Iterator<Item = &'static Shape> {
    let key = R::Key::COLUMNS.iter().map(|column| &column.shape);
    RUN.iter()
        .map(|column| &column.shape)
        .chain(key)
        .chain(R::COLUMNS.iter().chain(R::more_columns()).map(|column| &column.shape))
}

/// An item with its key.
pub(crate) type Keyed<R, K> = (Arc<K>, R);
type KeyOf<R> = <<R as Record>::Row as Table>::Key;

/// What the program stores in a table: its rows, or a record that takes several rows.
pub(crate) trait Record: Sized {
    type Row: Table;
    fn to_rows(records: &[Keyed<Self, KeyOf<Self>>]) -> Cow<'_, [Keyed<Self::Row, KeyOf<Self>>]>;
    fn from_rows(rows: Vec<Keyed<Self::Row, KeyOf<Self>>>) -> Vec<Keyed<Self, KeyOf<Self>>>;
    /// About how much memory its texts and lists take.
    fn owned_bytes(&self) -> usize;
}

impl<R: Table> Record for R {
    type Row = R;
    fn to_rows(records: &[Keyed<Self, R::Key>]) -> Cow<'_, [Keyed<Self, R::Key>]> {
        Cow::Borrowed(records)
    }
    fn from_rows(rows: Vec<Keyed<Self, R::Key>>) -> Vec<Keyed<Self, R::Key>> {
        rows
    }
    fn owned_bytes(&self) -> usize {
        Table::owned_bytes(self)
    }
}

/// Tables that every run has in a lake, even if empty: questions over few runs need their columns.
const ALWAYS_IN_A_LAKE: [&str; 4] = ["histograms", "intervals", "spikes", "causes"];

/// A table as one file.
fn whole<R: Table>(run: &str, rows: &[Keyed<R, R::Key>]) -> Result<LakeTable, ParquetError> {
    Ok(LakeTable { name: R::NAME, rows: rows.len() as u64, bytes: segment::encode(run, rows)? })
}

macro_rules! tables {
    ($($(#[$doc:meta])+ $field:ident: $key:ty, $record:ty;)+) => {
        /// Records of all tables: the content of a flush and of a segment.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Rows {
            $($(#[$doc])+ pub $field: Vec<(Arc<$key>, $record)>,)+
        }

        impl Rows {
            /// Whether there is no row in any table.
            pub fn is_empty(&self) -> bool {
                $(self.$field.is_empty())&&+
            }

            /// About how much memory they take, in bytes.
            pub fn bytes(&self) -> usize {
                let mut bytes = 0;
                $(bytes += size_of_val(&self.$field[..]);
                bytes += self.$field.iter().map(|(_, record)| Record::owned_bytes(record)).sum::<usize>();)+
                bytes
            }

            /// Adds other rows at the end.
            pub(crate) fn append(&mut self, mut more: Self) {
                $(self.$field.append(&mut more.$field);)+
            }

            /// Cell, repeat and attempt of each sequence of rows with the same key.
            pub(crate) fn attempts(&self) -> Vec<(&str, u32, u32)> {
                let mut attempts = Vec::new();
                $(attempts.extend(self.$field.chunk_by(|a, b| Arc::ptr_eq(&a.0, &b.0)).map(|rows| rows[0].0.attempt()));)+
                attempts
            }

            /// Removes the rows of attempts that do not satisfy `keep`, and returns their attempts.
            pub(crate) fn retain_attempts(&mut self, keep: impl Fn((&str, u32, u32)) -> bool) -> Vec<RowKey> {
                let mut removed = Vec::new();
                $(removed.extend(self.$field.extract_if(.., |(key, _)| !keep(key.attempt())).map(|(key, _)| {
                    let (cell, repeat, attempt) = key.attempt();
                    RowKey { cell: cell.to_owned(), repeat, attempt, probe: String::new() }
                }));)+
                removed
            }

            /// Writes a segment for each table that has rows, in the order of [`NAMES`].
            pub(crate) fn write(&self, to: &FlushWriter<'_>) -> Result<(), StoreError> {
                to.write(&histograms::buckets(&self.intervals))?;
                $(to.write(&Record::to_rows(&self.$field))?;)+
                Ok(())
            }

            /// One file for each table that has rows, or that questions over many runs need.
            pub(crate) fn encode_sorted(mut self, run: &str) -> Result<Vec<LakeTable>, ParquetError> {
                $(self.$field.sort_by(|(a, _), (b, _)| a.cmp(b));)+
                let mut tables = vec![whole(run, &histograms::buckets(&self.intervals))?];
                $(tables.push(whole(run, &Record::to_rows(&self.$field))?);)+
                tables.retain(|table| table.rows > 0 || ALWAYS_IN_A_LAKE.contains(&table.name));
                Ok(tables)
            }

            /// Reads what one flush wrote.
            pub(crate) fn read(from: &mut SegmentReader<'_>) -> Self {
                let buckets = from.read::<Bucket>();
                let mut rows = Self { $($field: Record::from_rows(from.read())),+ };
                from.note_apart(histograms::join(&mut rows.intervals, buckets));
                rows
            }
        }

        /// The tables' folders.
        pub(crate) const NAMES: &[&str] = &[Bucket::NAME, $(<$record as Record>::Row::NAME),+];

        /// The columns of each table, with its name.
        #[cfg(test)]
        fn all() -> Vec<(&'static str, Vec<&'static Shape>)> {
            vec![
                (Bucket::NAME, shapes::<Bucket>().collect()),
                $((<$record as Record>::Row::NAME, shapes::<<$record as Record>::Row>().collect())),+
            ]
        }
    };
}

// `intervals` come last: they show that everything else of the interval is present. Their histograms are a table
// before all others.
tables! {
    /// Spikes.
    spikes: RowKey, SpikeRecord;
    /// What caused spikes.
    causes: RowKey, SpikeCauses;
    /// Interrupts that other CPUs sent.
    ipis: RowKey, Spanned<IpiRecord>;
    /// What took the time of loops that never sleep.
    sources: RowKey, Spanned<SourceRecord>;
    /// The time that the hypervisor and the firmware took from samples.
    own: RowKey, Spanned<OwnRecord>;
    /// What the loads achieved.
    rates: RateKey, RateRecord;
    /// Interrupts and softirqs handled.
    interrupts: RowKey, Spanned<InterruptRecord>;
    /// The kernel's counters.
    counters: RowKey, Spanned<CounterRecord>;
    /// What watched threads did.
    tasks: RowKey, Spanned<TaskRecord>;
    /// What audits found.
    audit: RowKey, Spanned<AuditRecord>;
    /// How often triggers came.
    triggers: RowKey, Spanned<TriggerRecord>;
    /// Triggers that were explained.
    moments: RowKey, TriggerMoment;
    /// What came of chains.
    chains: RowKey, Spanned<ChainRecord>;
    /// Where the time of instances of chains went.
    paths: RowKey, ChainPath;
    /// What graphics devices did.
    gpus: RowKey, GpuRecord;
    /// Samples of the hwlat tracer.
    hwlat: RowKey, HwlatRecord;
    /// Intervals with their histograms.
    intervals: RowKey, Interval;
}

/// The destination of a repeat's records: the run's directory, or the memory of a measurement that is only printed.
pub trait Sink {
    /// The rows that are kept for the next flush.
    fn rows(&mut self) -> &mut Rows;

    /// Stores what was added since the last flush: one segment for each table that has rows.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Io`] or [`StoreError::Encode`], naming the segment. The rows are kept, so
    /// that the flush can be tried again; all earlier segments stay readable.
    fn flush(&mut self) -> Result<(), StoreError>;

    /// Calls [`Sink::flush`] if the rows take much memory.
    fn flush_if_large(&mut self) -> Result<(), StoreError> {
        if self.rows().bytes() < FLUSH_BYTES { Ok(()) } else { self.flush() }
    }

    /// The run's directory, if there is one.
    fn directory(&self) -> Option<&RunDirectory>;

    /// The file for the output of a load's command in one attempt.
    fn load_output_path(&self, key: &RateKey) -> PathBuf;
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::Type;
    use std::path::Path;

    /// The first two cells of each row of the Markdown table after `heading`; each name has backticks.
    fn documented(text: &str, heading: &str) -> Vec<(String, String)> {
        let after = text.split_once(heading).unwrap_or_else(|| panic!("FORMAT.md has no {heading:?}")).1;
        let rows =
            after.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
        let columns = rows.skip(2).flat_map(|row| {
            let (names, kind) = (row.split('|').nth(1).unwrap(), row.split('|').nth(2).unwrap().trim());
            let names = names.split('`').skip(1).step_by(2);
            names.map(move |name| (name.to_owned(), kind.to_owned()))
        });
        columns.collect()
    }

    fn declared(shape: &Shape) -> (String, String) {
        let kind = match (shape.physical)() {
            Type::BYTE_ARRAY => "string",
            Type::INT32 => "int32",
            Type::INT64 => "int64",
            Type::DOUBLE => "double",
            other => panic!("FORMAT.md has no word for {other}"),
        };
        (shape.name.to_owned(), format!("{kind}{}", if shape.optional { ", optional" } else { "" }))
    }

    #[test]
    fn the_format_says_which_columns_there_are() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMAT.md");
        let text = std::fs::read_to_string(path).unwrap();
        for (table, columns) in all() {
            let mut expected = documented(&text, "All tables begin with:");
            let of_probes = documented(&text, "All tables except `rates` also have:");
            match table {
                RateRecord::NAME => {}
                // Devices, triggers and chains do not belong to a CPU.
                GpuRecord::NAME | "triggers" | "moments" | "chains" | "paths" => {
                    expected.extend(of_probes.into_iter().filter(|(name, _)| name != "cpu"));
                }
                _ => expected.extend(of_probes),
            }
            expected.extend(documented(&text, &format!("### `{table}`:")));
            let columns: Vec<_> = columns.into_iter().map(declared).collect();
            assert_eq!(columns, expected, "{table}: the code, and docs/FORMAT.md");
            assert!(text.contains(&format!("├── {table}/000001.parquet")), "{table}");
        }
    }
}
