//! One closed segment of a table: a Parquet file that any Parquet reader opens, with a checksum of the whole file
//! before its footer.
//!
//! Parquet permits bytes between the last row group and the footer. They hold [`MARK`] and the CRC-32 of all other
//! bytes, so that a truncated or changed file is recognised before any of it is decoded.

use crate::folder::Folder;
pub(crate) use crate::tables::column::Damage;
use crate::tables::column::{Column, ColumnValues, Layout, MISSING};
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

mod pages;

/// Comes before the checksum.
const MARK: &[u8; 8] = b"whylate1";
/// The footer's name for the program that wrote the file, before its version.
pub(crate) const CREATED_BY: &str = "whylate ";
/// Mark and CRC-32.
const MARK_LEN: usize = MARK.len() + 4;
/// Length of the footer (4 bytes) and Parquet's own mark `PAR1` at the end of a file.
const TAIL_LEN: usize = 8;
/// In the simulated day (`examples/simulate_day.rs`) level 9 makes the files less than 0.1 % smaller.
const GZIP_LEVEL: u32 = 6;

/// The memory that a segment may take while it is read: a few packed bytes can claim millions of rows. This is far
/// more than a flush needs; merged segments have a few MiB.
pub(crate) const ROOM: usize = 224 << 20;
/// The same for one of the segments that several threads read at once; there may be 16.
pub(crate) const ROOM_SHARED: usize = 12 << 20;

/// No table of a segment is nearly this large, and several are read at once.
pub(crate) const BYTES_MAX: u64 = 32 << 20;
/// The same for a footer, which takes many times its length when parsed.
const FOOTER_MAX: usize = 1 << 20;
/// The memory of a value until it is in its row.
const VALUE: usize = 40;

/// The memory that is left for a segment, in bytes.
#[derive(Debug)]
pub(crate) struct Room(pub(crate) usize);

impl Room {
    /// Takes memory for that number of rows or bytes.
    fn take(&mut self, count: usize, bytes: usize) -> Result<(), Damage> {
        let left = count.checked_mul(bytes).and_then(|bytes| self.0.checked_sub(bytes));
        self.0 = left.ok_or(Damage::Room)?;
        Ok(())
    }
}

/// The file of a table; `None` if there is none.
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
    // Accepts only the canonical spelling, so that two names never mean the same segment.
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
    // The mark follows the last row group; its checksum is filled in when the footer is known.
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
        // Segments are small: page statistics would be larger than what they save.
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

/// Writes the mark and the checksum into the space that [`encode`] left for them.
fn seal(mut file: Vec<u8>) -> Vec<u8> {
    if let Some(at) = mark_position(&file) {
        file[at..at + MARK.len()].copy_from_slice(MARK);
        let sum = checksum(&file, at).to_le_bytes();
        file[at + MARK.len()..at + MARK_LEN].copy_from_slice(&sum);
    }
    file
}

/// The position of a whole file's mark; `None` if the end of the file does not have one.
fn mark_position(file: &[u8]) -> Option<usize> {
    let tail_at = file.len().checked_sub(TAIL_LEN)?;
    let footer_len = u32::from_le_bytes(file[tail_at..].first_chunk().copied()?);
    tail_at.checked_sub(usize::try_from(footer_len).ok()?)?.checked_sub(MARK_LEN)
}

/// CRC-32 of everything but its own four bytes.
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
    if file.len() - at > FOOTER_MAX {
        return Err(Damage::Room);
    }
    let (mark, sum) = file[at..at + MARK_LEN].split_at(MARK.len());
    match mark == MARK {
        false => Err(Damage::NoMark),
        true if sum == checksum(file, at).to_le_bytes() => Ok(()),
        true => Err(Damage::Checksum),
    }
}

/// Decodes a segment. Neighbours with the same key share a copy of it.
pub(crate) fn decode<R: Table>(file: &Bytes, room: &mut Room) -> Result<Vec<Keyed<R, R::Key>>, Damage> {
    verify(file)?;
    Room(room.0).take(1, file.len())?;
    let reader = SerializedFileReader::new(file.clone())?;
    let mut decoded: Vec<Keyed<R, R::Key>> = Vec::new();
    for index in 0..reader.num_row_groups() {
        let group = reader.get_row_group(index)?;
        // Checked before memory is allocated.
        let rows = group.metadata().num_rows();
        let count = usize::try_from(rows).map_err(|_| Damage::Rows(rows))?;
        room.take(count, size_of::<Keyed<R, R::Key>>())?;
        // Includes memory that is returned once the rows are complete.
        let mut left = Room(room.0);
        left.take(1, file.len())?;
        left.take(count, size_of::<R>() + VALUE * (R::Key::COLUMNS.len() + 1))?;
        let columns = GroupColumns { file, group: group.as_ref(), rows: count };
        let without_texts = left.0;
        let keys = columns.read(R::Key::COLUMNS, &mut left).collect::<Result<Vec<_>, Damage>>()?;
        let mut rows = vec![R::default(); count];
        for of_row in [R::COLUMNS, R::more_columns()] {
            for values in columns.read(of_row, &mut left) {
                values?.fill(&mut rows)?;
            }
        }
        room.take(1, without_texts - left.0)?;
        decoded.reserve(rows.len());
        for (number, row) in rows.into_iter().enumerate() {
            let key = match decoded.last() {
                Some((last, _)) if keys.iter().all(|values| values.is_repeated(number)) => Arc::clone(last),
                _ => {
                    room.take(1, size_of::<R::Key>())?;
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

/// The columns of a row group.
struct GroupColumns<'f> {
    file: &'f [u8],
    group: &'f dyn RowGroupReader,
    rows: usize,
}

impl GroupColumns<'_> {
    /// Reads columns by name, each on demand.
    fn read<R>(
        &self,
        columns: &'static [Column<R>],
        room: &mut Room,
    ) -> impl Iterator<Item = Result<ColumnValues<R>, Damage>> {
        columns.iter().filter_map(move |column| {
            let in_file = self.group.metadata().columns();
            match in_file.iter().position(|other| other.column_path().string() == column.shape.name) {
                Some(index) => Some(self.read_one(column, index, room)),
                None if column.shape.optional => None,
                None => Some(Err(Damage::Column(column.shape.name, MISSING))),
            }
        })
    }

    fn read_one<R>(
        &self,
        column: &Column<R>,
        index: usize,
        room: &mut Room,
    ) -> Result<ColumnValues<R>, Damage> {
        let in_file = self.group.metadata().column(index);
        let (begin, length) = in_file.byte_range();
        let place = usize::try_from(begin).ok().zip(usize::try_from(length).ok());
        let pages = place.and_then(|(begin, length)| self.file.get(begin..begin.checked_add(length)?));
        let is_packed = in_file.compression() != Compression::UNCOMPRESSED;
        let inflated = pages.and_then(|pages| pages::inflated(pages, is_packed));
        let inflated =
            inflated.ok_or(Damage::Column(column.shape.name, "has pages that are damaged or too large"))?;
        // Texts stay in the pages until all rows have theirs.
        Room(room.0).take(1, inflated)?;
        let values = (column.read)(column.number, self.group.get_column_reader(index)?, self.rows)?;
        room.take(1, values.heap())?;
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::RowKey;
    use crate::tables::column::columns;
    use whylate_core::CpuId;
    use whylate_core::record::Interval;
    use whylate_testing::says;

    /// Rows of `intervals` with another version's columns.
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
        decode::<Interval>(&file.into(), &mut Room(ROOM)).map_err(|damage| damage.to_string())
    }

    #[test]
    fn few_packed_bytes_do_not_take_all_memory() {
        let many = ROOM / size_of::<Keyed<Interval, RowKey>>() / 2;
        let key = Arc::new(RowKey::default());
        let file = encode("run", &vec![(Arc::clone(&key), Shorter(Other::default())); many]).unwrap();
        assert!(file.len() < 1 << 20, "{}", file.len());
        assert!(matches!(decode::<Interval>(&file.into(), &mut Room(ROOM)), Err(Damage::Room)));
        // Each row would get a copy of it.
        let other = Other { model: "m".repeat(60 << 10), ..Other::default() };
        let file = encode("run", &vec![(Arc::clone(&key), Changed(other)); 4000]).unwrap();
        assert!(file.len() < 4 << 20, "{}", file.len());
        assert!(matches!(decode::<Changed>(&file.into(), &mut Room(ROOM)), Err(Damage::Room)));
        let other = Other { model: "m".repeat(70 << 10), ..Other::default() };
        let file = encode("run", &[(key, Changed(other))]).unwrap();
        assert!(matches!(decode::<Changed>(&file.into(), &mut Room(ROOM)), Err(Damage::Column("cpu", _))));
    }

    #[test]
    fn the_rest_of_a_segment_s_memory_is_for_its_next_table() {
        let rows = vec![(Arc::new(RowKey::default()), Shorter(Other::default())); 1000];
        let file = encode("run", &rows).unwrap();
        let mut room = Room(ROOM);
        assert_eq!(decode::<Shorter>(&file.clone().into(), &mut room).unwrap().len(), 1000);
        let taken = ROOM - room.0;
        assert!(taken >= 1000 * size_of::<Keyed<Shorter, RowKey>>() && taken < 1 << 20, "{taken}");
        assert!(matches!(decode::<Shorter>(&file.into(), &mut Room(taken)), Err(Damage::Room)));
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
    fn no_two_columns_of_intervals_have_one_name() {
        let of_key = <Interval as Table>::Key::COLUMNS.iter().map(|it| it.shape.name);
        let of_row =
            [Interval::COLUMNS, Interval::more_columns()].into_iter().flatten().map(|it| it.shape.name);
        let mut names: Vec<&str> = of_key.chain(of_row).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{names:?}");
    }

    #[test]
    fn other_columns_are_damage() {
        assert!(says("column-start-ns-missing", as_intervals(Shorter).unwrap_err()));
        assert!(says("column-cpu-has-another", as_intervals(Changed).unwrap_err()));
    }
}
