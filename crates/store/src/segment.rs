//! One closed segment of a table: a Parquet file that any Parquet reader opens, with a checksum of the whole file
//! in front of its footer.
//!
//! Parquet lets bytes stand between the last row group and the footer; there are [`MARK`] and the CRC-32 of all other
//! bytes. A file that was cut off or changed on disk is thus recognised before any of it is decoded.

use crate::table::{Batch, Layout, Table, Type, Values};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, GzipLevel, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::data_type::{ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::{ColumnPath, Type as SchemaType, TypePtr};
use std::sync::Arc;

/// Stands in front of the checksum.
const MARK: &[u8; 8] = b"whylate1";
/// Mark and CRC-32.
const MARK_LEN: usize = MARK.len() + 4;
/// Length of the footer (4 bytes) and Parquet's own mark `PAR1` at the end of a file.
const TAIL_LEN: usize = 8;
/// In the simulated day (`examples/simulate_day.rs`) level 9 makes the files less than 0.1 % smaller.
const GZIP_LEVEL: u32 = 6;

/// Why a segment cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    #[error("it was cut off: it has {0} bytes")]
    TooShort(usize),
    #[error("its end is missing or no segment of whylate's")]
    NoMark,
    #[error("its checksum is wrong: it was changed or is not complete")]
    Checksum,
    #[error("the column `{0}` is missing")]
    MissingColumn(&'static str),
    #[error("the column `{0}` has another type")]
    WrongType(&'static str),
    #[error("the column `{0}` has too few values")]
    TooFewValues(&'static str),
    #[error("the column `{0}` has a negative value")]
    Negative(&'static str),
    #[error("the column `{0}` has a value that is too large")]
    TooLarge(&'static str),
    #[error("the column `{0}` holds something that is no text")]
    NotText(&'static str),
    #[error("{0}")]
    Parquet(#[from] ParquetError),
}

/// Encodes `batch` as a segment.
pub(crate) fn encode(table: &Table, batch: &Batch) -> Result<Vec<u8>, ParquetError> {
    let mut writer = SerializedFileWriter::new(Vec::new(), schema(table)?, Arc::new(properties(table)?))?;
    let mut group = writer.next_row_group()?;
    for values in &batch.columns {
        let Some(mut column) = group.next_column()? else {
            return Err(ParquetError::General("more columns than the table has".to_owned()));
        };
        write_column(&mut column, values)?;
        column.close()?;
    }
    group.close()?;
    // The mark follows the last row group; its checksum is filled in once the footer is known.
    writer.write_all(&[0; MARK_LEN])?;
    Ok(seal(writer.into_inner()?))
}

fn write_column(column: &mut SerializedColumnWriter<'_>, values: &Values) -> Result<(), ParquetError> {
    match values {
        Values::Text(values) => column.typed::<ByteArrayType>().write_batch(values, None, None)?,
        Values::Int32(values) => column.typed::<Int32Type>().write_batch(values, None, None)?,
        Values::Int64(values) => column.typed::<Int64Type>().write_batch(values, None, None)?,
        Values::Double(values) => column.typed::<DoubleType>().write_batch(values, None, None)?,
        Values::OptionalInt64(values) => write_optional::<Int64Type>(column, values)?,
        Values::OptionalText(values) => write_optional::<ByteArrayType>(column, values)?,
        Values::OptionalDouble(values) => write_optional::<DoubleType>(column, values)?,
    };
    Ok(())
}

fn write_optional<T: DataType>(
    column: &mut SerializedColumnWriter<'_>,
    values: &[Option<T::T>],
) -> Result<usize, ParquetError> {
    let present: Vec<T::T> = values.iter().flatten().cloned().collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    column.typed::<T>().write_batch(&present, Some(&levels), None)
}

fn schema(table: &Table) -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::with_capacity(table.columns.len());
    for column in table.columns {
        let (physical, repetition) = match column.kind {
            Type::Text => (PhysicalType::BYTE_ARRAY, Repetition::REQUIRED),
            Type::Int32 => (PhysicalType::INT32, Repetition::REQUIRED),
            Type::Int64 => (PhysicalType::INT64, Repetition::REQUIRED),
            Type::OptionalInt64 => (PhysicalType::INT64, Repetition::OPTIONAL),
            Type::Double => (PhysicalType::DOUBLE, Repetition::REQUIRED),
            Type::OptionalText => (PhysicalType::BYTE_ARRAY, Repetition::OPTIONAL),
            Type::OptionalDouble => (PhysicalType::DOUBLE, Repetition::OPTIONAL),
        };
        let logical = (physical == PhysicalType::BYTE_ARRAY).then_some(LogicalType::String);
        let field = SchemaType::primitive_type_builder(column.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .build()?;
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(SchemaType::group_type_builder(table.name).with_fields(fields).build()?))
}

fn properties(table: &Table) -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("whylate ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::GZIP(GzipLevel::try_new(GZIP_LEVEL)?))
        .set_max_row_group_row_count(None)
        // Segments are small: statistics of pages would be larger than what they save.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for column in table.columns {
        let path = ColumnPath::from(column.name);
        builder = builder
            .set_column_dictionary_enabled(path.clone(), column.layout == Layout::Dictionary)
            .set_column_encoding(
                path,
                if column.layout == Layout::Delta { Encoding::DELTA_BINARY_PACKED } else { Encoding::PLAIN },
            );
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

fn verify(file: &[u8]) -> Result<(), Damage> {
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

/// Decodes a segment; columns come in the table's order.
pub(crate) fn decode(table: &'static Table, file: Bytes) -> Result<Batch, Damage> {
    verify(&file)?;
    let reader = SerializedFileReader::new(file)?;
    let mut columns: Vec<Values> = table.columns.iter().map(|column| empty(column.kind)).collect();
    for index in 0..reader.num_row_groups() {
        let group = reader.get_row_group(index)?;
        for (column, values) in table.columns.iter().zip(&mut columns) {
            read_column(group.as_ref(), column.name, values)?;
        }
    }
    Ok(Batch { columns })
}

fn empty(kind: Type) -> Values {
    match kind {
        Type::Text => Values::Text(Vec::new()),
        Type::Int32 => Values::Int32(Vec::new()),
        Type::Int64 => Values::Int64(Vec::new()),
        Type::OptionalInt64 => Values::OptionalInt64(Vec::new()),
        Type::Double => Values::Double(Vec::new()),
        Type::OptionalText => Values::OptionalText(Vec::new()),
        Type::OptionalDouble => Values::OptionalDouble(Vec::new()),
    }
}

/// Appends one row group's values of the column `name` to `values`.
fn read_column(group: &dyn RowGroupReader, name: &'static str, values: &mut Values) -> Result<(), Damage> {
    let metadata = group.metadata();
    let rows = usize::try_from(metadata.num_rows()).map_err(|_| Damage::TooFewValues(name))?;
    let Some(index) = metadata.columns().iter().position(|column| column.column_path().string() == name)
    else {
        match values {
            Values::OptionalInt64(values) => values.resize(values.len() + rows, None),
            Values::OptionalText(values) => values.resize(values.len() + rows, None),
            Values::OptionalDouble(values) => values.resize(values.len() + rows, None),
            _ => return Err(Damage::MissingColumn(name)),
        }
        return Ok(());
    };
    match (group.get_column_reader(index)?, values) {
        (ColumnReader::ByteArrayColumnReader(reader), Values::Text(values)) => {
            read_all(reader, name, rows, values)
        }
        (ColumnReader::Int32ColumnReader(reader), Values::Int32(values)) => {
            read_all(reader, name, rows, values)
        }
        (ColumnReader::Int64ColumnReader(reader), Values::Int64(values)) => {
            read_all(reader, name, rows, values)
        }
        (ColumnReader::DoubleColumnReader(reader), Values::Double(values)) => {
            read_all(reader, name, rows, values)
        }
        (ColumnReader::Int64ColumnReader(reader), Values::OptionalInt64(values)) => {
            read_optional(reader, name, rows, values)
        }
        (ColumnReader::ByteArrayColumnReader(reader), Values::OptionalText(values)) => {
            read_optional(reader, name, rows, values)
        }
        (ColumnReader::DoubleColumnReader(reader), Values::OptionalDouble(values)) => {
            read_optional(reader, name, rows, values)
        }
        _ => Err(Damage::WrongType(name)),
    }
}

fn read_all<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    name: &'static str,
    rows: usize,
    values: &mut Vec<T::T>,
) -> Result<(), Damage> {
    let mut levels = Vec::new();
    let (_, read, _) = reader.read_records(rows, Some(&mut levels), None, values)?;
    if read == rows { Ok(()) } else { Err(Damage::TooFewValues(name)) }
}

fn read_optional<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    name: &'static str,
    rows: usize,
    values: &mut Vec<Option<T::T>>,
) -> Result<(), Damage> {
    let (mut present, mut levels) = (Vec::new(), Vec::new());
    let (records, _, _) = reader.read_records(rows, Some(&mut levels), None, &mut present)?;
    if records != rows {
        return Err(Damage::TooFewValues(name));
    }
    let mut present = present.into_iter();
    // A required column has no levels: every value is there.
    match levels.is_empty() {
        true => values.extend(present.map(Some)),
        false => values.extend(levels.iter().map(|level| if *level > 0 { present.next() } else { None })),
    }
    Ok(())
}
