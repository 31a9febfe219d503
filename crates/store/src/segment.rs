//! One closed segment of a table: a Parquet file that any Parquet reader opens, with a checksum of the whole file
//! in front of its footer.
//!
//! Parquet lets bytes stand between the last row group and the footer; there are [`MARK`] and the CRC-32 of all other
//! bytes. A file that was cut off or changed on disk is thus recognised before any of it is decoded.

use crate::folder::Folder;
use crate::tables::column::{Column, ColumnValues, Damage, Layout, MISSING};
use crate::tables::{Key, Keyed, RUN, Table, shapes};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, GzipLevel, LogicalType, Repetition, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type as SchemaType, TypePtr};
use std::io::{self, Write};
use std::iter;
use std::path::Path;
use std::sync::Arc;

/// Comes before the checksum.
const MARK: &[u8; 8] = b"whylate1";
/// What the footer says of the program that wrote it, before its version.
pub(crate) const CREATED_BY: &str = "whylate ";
/// Mark and CRC-32.
const MARK_LEN: usize = MARK.len() + 4;
/// Length of the footer (4 bytes) and Parquet's own mark `PAR1` at the end of a file.
const TAIL_LEN: usize = 8;
/// In the simulated day (`examples/simulate_day.rs`) level 9 makes the files less than 0.1 % smaller.
const GZIP_LEVEL: u32 = 6;

/// What the rows of a table may take in memory: a few packed bytes can say that there are millions. Far more than those of
/// a flush.
const ROWS_BYTES_MAX: usize = 256 << 20;

/// No table of a segment is nearly as large, and several are read at once.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

/// The file of a table; `None` where there is none.
pub(crate) fn bytes(run: &Folder, table: &str, number: u32) -> io::Result<Option<Vec<u8>>> {
    run.read_up_to(Path::new(table).join(file_name(number)), BYTES_MAX)
}

/// File name of a segment: `000001.parquet`.
pub(crate) fn file_name(number: u32) -> String {
    format!("{number:06}.parquet")
}

/// The number in a segment's file name; `None` for any other file.
pub(crate) fn number(name: &str) -> Option<u32> {
    let number = name.strip_suffix(".parquet")?.parse().ok()?;
    // Accept only the canonical spelling, so that two names never mean the same segment.
    (file_name(number) == name).then_some(number)
}

/// Encodes rows of the run `run` as a segment.
pub(crate) fn encode<R: Table>(run: &str, rows: &[Keyed<R, R::Key>]) -> Result<Vec<u8>, ParquetError> {
    let mut writer = SerializedFileWriter::new(Vec::new(), schema::<R>()?, Arc::new(properties::<R>()?))?;
    let mut group = writer.next_row_group()?;
    write_columns(&mut group, RUN, &iter::repeat_n(&run.to_owned(), rows.len()))?;
    write_columns(&mut group, R::Key::COLUMNS, &rows.iter().map(|(key, _)| key.as_ref()))?;
    for columns in [R::COLUMNS, R::more_columns()] {
        write_columns(&mut group, columns, &rows.iter().map(|(_, row)| row))?;
    }
    group.close()?;
    // The mark follows the last row group; its checksum is filled in once the footer is known.
    writer.write_all(&[0; MARK_LEN])?;
    Ok(seal(writer.into_inner()?))
}

fn write_columns<'r, R: 'r>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    columns: &[Column<R>],
    rows: &(impl Iterator<Item = &'r R> + Clone),
) -> Result<(), ParquetError> {
    for column in columns {
        let next = group.next_column()?;
        let mut to =
            next.ok_or_else(|| ParquetError::General("the schema has too few columns".to_owned()))?;
        (column.write)(column.number, &mut rows.clone(), &mut to)?;
        to.close()?;
    }
    Ok(())
}

fn schema<R: Table>() -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::new();
    for shape in shapes::<R>() {
        let physical = (shape.physical)();
        let logical = (physical == PhysicalType::BYTE_ARRAY).then_some(LogicalType::String);
        let field = SchemaType::primitive_type_builder(shape.name, physical)
            .with_repetition(if shape.optional { Repetition::OPTIONAL } else { Repetition::REQUIRED })
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(SchemaType::group_type_builder(R::NAME).with_fields(fields).build()?))
}

fn properties<R: Table>() -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(format!("{CREATED_BY}{}", env!("CARGO_PKG_VERSION")))
        .set_compression(Compression::GZIP(GzipLevel::try_new(GZIP_LEVEL)?))
        .set_max_row_group_row_count(None)
        // Segments are small: statistics of pages would be larger than what they save.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for shape in shapes::<R>() {
        let path = ColumnPath::from(shape.name);
        let encoding =
            if shape.layout == Layout::Delta { Encoding::DELTA_BINARY_PACKED } else { Encoding::PLAIN };
        builder = builder
            .set_column_dictionary_enabled(path.clone(), shape.layout == Layout::Dictionary)
            .set_column_encoding(path, encoding);
    }
    Ok(builder.build())
}

/// Puts the mark and the checksum into the room that [`encode`] left for them.
fn seal(mut file: Vec<u8>) -> Vec<u8> {
    if let Some(at) = mark_position(&file) {
        file[at..at + MARK.len()].copy_from_slice(MARK);
        let sum = checksum(&file, at).to_le_bytes();
        file[at + MARK.len()..at + MARK_LEN].copy_from_slice(&sum);
    }
    file
}

/// Where the mark of a whole file stands; `None` when the file's end does not say so.
fn mark_position(file: &[u8]) -> Option<usize> {
    let tail_at = file.len().checked_sub(TAIL_LEN)?;
    let footer_len = u32::from_le_bytes(file[tail_at..].first_chunk().copied()?);
    tail_at.checked_sub(usize::try_from(footer_len).ok()?)?.checked_sub(MARK_LEN)
}

/// CRC-32 of everything but the four bytes in which it is kept.
fn checksum(file: &[u8], mark_at: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&file[..mark_at + MARK.len()]);
    hasher.update(&file[mark_at + MARK_LEN..]);
    hasher.finalize()
}

/// Whether a file is a whole segment, by its own checksum.
pub(crate) fn verify(file: &[u8]) -> Result<(), Damage> {
    if file.len() < MARK_LEN + TAIL_LEN {
        return Err(Damage::TooShort(file.len()));
    }
    let at = mark_position(file).ok_or(Damage::NoMark)?;
    let (mark, sum) = file[at..at + MARK_LEN].split_at(MARK.len());
    match mark == MARK {
        false => Err(Damage::NoMark),
        true if sum == checksum(file, at).to_le_bytes() => Ok(()),
        true => Err(Damage::Checksum),
    }
}

/// Decodes a segment. Neighbours with the same key share one.
pub(crate) fn decode<R: Table>(file: Bytes) -> Result<Vec<Keyed<R, R::Key>>, Damage> {
    verify(&file)?;
    let reader = SerializedFileReader::new(file)?;
    let mut decoded: Vec<Keyed<R, R::Key>> = Vec::new();
    let mut left = ROWS_BYTES_MAX / size_of::<Keyed<R, R::Key>>();
    for index in 0..reader.num_row_groups() {
        let group = reader.get_row_group(index)?;
        // Checked before memory is allocated.
        let rows = group.metadata().num_rows();
        let fitting = usize::try_from(rows).ok().and_then(|rows| left.checked_sub(rows));
        left = fitting.ok_or(Damage::Rows(rows))?;
        let keys = read_columns(group.as_ref(), R::Key::COLUMNS).collect::<Result<Vec<_>, Damage>>()?;
        let mut rows = vec![R::default(); row_count(group.as_ref())];
        for columns in [R::COLUMNS, R::more_columns()] {
            for values in read_columns(group.as_ref(), columns) {
                values?.fill(&mut rows)?;
            }
        }
        decoded.reserve(rows.len());
        for (number, row) in rows.into_iter().enumerate() {
            let key = match decoded.last() {
                Some((last, _)) if keys.iter().all(|values| values.is_repeated(number)) => Arc::clone(last),
                _ => {
                    let mut key = R::Key::default();
                    keys.iter().try_for_each(|values| values.set(&mut key, number))?;
                    Arc::new(key)
                }
            };
            decoded.push((key, row));
        }
    }
    Ok(decoded)
}

fn row_count(group: &dyn RowGroupReader) -> usize {
    usize::try_from(group.metadata().num_rows()).unwrap_or(0)
}

/// Reads the columns of a row group by their names, each when it is asked for.
fn read_columns<R>(
    group: &dyn RowGroupReader,
    columns: &'static [Column<R>],
) -> impl Iterator<Item = Result<ColumnValues<R>, Damage>> {
    columns.iter().filter_map(move |Column { number, shape, read, .. }| {
        let in_file = group.metadata().columns();
        match in_file.iter().position(|column| column.column_path().string() == shape.name) {
            Some(index) => {
                let column = group.get_column_reader(index).map_err(Damage::from);
                Some(column.and_then(|column| read(*number, column, row_count(group))))
            }
            None if shape.optional => None,
            None => Some(Err(Damage::Column(shape.name, MISSING))),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::RowKey;
    use crate::tables::column::columns;
    use whylate_core::CpuId;
    use whylate_core::record::Interval;
    use whylate_testing::says;

    /// Rows of `intervals` as another version has them.
    #[derive(Clone, Debug, Default)]
    struct Other {
        interval: Interval,
        model: String,
    }

    macro_rules! other {
        ($name:ident: $($columns:tt)+) => {
            #[derive(Clone, Debug, Default)]
            struct $name(Other);
            impl Table for $name {
                const NAME: &'static str = "intervals";
                type Key = RowKey;
                const COLUMNS: &'static [Column<Self>] = columns![$($columns)+];
            }
        };
    }
    other!(Older: row: Self =>
        Delta "samples" row.0.interval.samples, Delta "end_ns" row.0.interval.end_ns,
        Dictionary "model" row.0.model, Delta "start_ns" row.0.interval.start_ns,
        Delta "sum_ns" row.0.interval.sum_ns, Dictionary "cpu" row.0.interval.cpu.0,
        Dictionary "spikes_dropped" row.0.interval.spikes_dropped,
    );
    other!(Shorter: row: Self => Dictionary "cpu" row.0.interval.cpu.0);
    other!(Changed: row: Self => Dictionary "cpu" row.0.model);

    fn as_intervals<R: Table<Key = RowKey>>(
        make: impl Fn(Other) -> R,
    ) -> Result<Vec<Keyed<Interval, RowKey>>, String> {
        let keys = ["timer", "timer", "stall"]
            .map(|probe| Arc::new(RowKey { probe: probe.to_owned(), ..RowKey::default() }));
        let rows: Vec<Keyed<R, RowKey>> = keys
            .into_iter()
            .map(|key| {
                let interval = Interval { cpu: CpuId(3), samples: 7, end_ns: 9, ..Interval::default() };
                (key, make(Other { interval, model: "new".to_owned() }))
            })
            .collect();
        let file = encode("run", &rows).unwrap();
        decode::<Interval>(file.into()).map_err(|damage| damage.to_string())
    }

    #[test]
    fn few_packed_bytes_do_not_take_all_memory() {
        let many = ROWS_BYTES_MAX / size_of::<Keyed<Interval, RowKey>>() + 1;
        let key = Arc::new(RowKey::default());
        let file = encode("run", &vec![(Arc::clone(&key), Shorter(Other::default())); many]).unwrap();
        assert!(file.len() < 1 << 20, "{}", file.len());
        assert!(matches!(decode::<Interval>(file.into()), Err(Damage::Rows(_))));
        // Each row would get a copy of it.
        let other = Other { model: "m".repeat(1 << 20), ..Other::default() };
        let file = encode("run", &vec![(key, Changed(other)); 200]).unwrap();
        assert!(file.len() < 4 << 20, "{}", file.len());
        assert!(matches!(decode::<Changed>(file.into()), Err(Damage::Column("cpu", _))));
    }

    #[test]
    fn columns_are_found_by_name_and_optional_ones_may_be_missing() {
        let rows = as_intervals(Older).unwrap();
        let expected = Interval { cpu: CpuId(3), samples: 7, end_ns: 9, ..Interval::default() };
        assert!(rows.iter().all(|(_, interval)| *interval == expected), "{rows:?}");
        let probes: Vec<&str> = rows.iter().map(|(key, _)| key.probe.as_str()).collect();
        assert_eq!(probes, ["timer", "timer", "stall"]);
        assert!(Arc::ptr_eq(&rows[0].0, &rows[1].0), "neighbours share their key");
    }

    #[test]
    fn other_columns_are_damage() {
        assert!(says("column-start-ns-missing", as_intervals(Shorter).unwrap_err()));
        assert!(says("column-cpu-has-another", as_intervals(Changed).unwrap_err()));
    }
}
