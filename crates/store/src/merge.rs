//! Many files of one table as one: what engines ask quickly. Whatever columns the files have are kept, also those of other
//! versions; `host`, which stood in the names of folders, becomes the last one.
//!
//! In: Parquet files of single runs. Out: one file, with row groups of the runs in the order given.

use crate::error::StoreError;
use crate::tables::column::read_values;
use bytes::Bytes;
use parquet::basic::{Compression, GzipLevel, LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type as SchemaType, TypePtr};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The least rows of a row group, except for the last one: enough for compression, and few enough that the
/// rows of a board are found by its statistics.
const GROUP_ROWS: i64 = 1 << 17;
const HOST: &str = "host";

/// A column of the merged file.
struct Merged {
    name: String,
    physical: PhysicalType,
    is_text: bool,
    /// A file lacks it, or has rows without a value.
    is_optional: bool,
}

type Reader = SerializedFileReader<Bytes>;

/// Writes files of one table, each of a run of that host, as one file; the rows in it.
///
/// # Errors
/// [`StoreError::Io`], [`StoreError::Encode`] with the file that cannot be read, or whose columns have another type than
/// those of another file.
pub fn merge_tables(files: &[(String, PathBuf)], to: impl Write + Send) -> Result<u64, StoreError> {
    let first = files.first().map_or(Path::new(""), |(_, path)| path);
    let columns = columns_of(files)?;
    let failed = |error: ParquetError| StoreError::Encode(first.to_owned(), error.to_string());
    let mut writer = begin(&columns, to).map_err(failed)?;
    let (mut batch, mut rows, mut all) = (Vec::new(), 0, 0);
    for (number, (host, path)) in files.iter().enumerate() {
        let reader = open(path)?;
        rows += reader.metadata().file_metadata().num_rows();
        batch.push((host.as_str(), reader));
        if rows >= GROUP_ROWS || number + 1 == files.len() {
            write_group(&mut writer, &columns, &batch).map_err(failed)?;
            all += u64::try_from(rows).unwrap_or(0);
            (batch, rows) = (Vec::new(), 0);
        }
    }
    writer.close().map_err(failed)?;
    Ok(all)
}

fn open(path: &Path) -> Result<Reader, StoreError> {
    // In memory: more files are open at once than a process may have, and each is small.
    let file = std::fs::read(path).map_err(|error| StoreError::Io("read", path.to_owned(), error))?;
    Reader::new(file.into()).map_err(|error| StoreError::Encode(path.to_owned(), error.to_string()))
}

/// All columns that a file has, in the order of the first one.
fn columns_of(files: &[(String, PathBuf)]) -> Result<Vec<Merged>, StoreError> {
    let mut all: Vec<Merged> = Vec::new();
    for (number, (_, path)) in files.iter().enumerate() {
        let reader = open(path)?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let mut is_here = vec![false; all.len()];
        for column in schema.columns() {
            let (name, physical) = (column.name(), column.physical_type());
            let is_optional = column.max_def_level() > 0;
            match all.iter().position(|it| it.name == name) {
                Some(at) if all[at].physical != physical => {
                    let what = format!("the column `{name}` has another type than in other runs");
                    return Err(StoreError::Encode(path.clone(), what));
                }
                Some(at) => {
                    is_here[at] = true;
                    all[at].is_optional |= is_optional;
                }
                None => {
                    let is_text = physical == PhysicalType::BYTE_ARRAY;
                    let is_optional = is_optional || number > 0;
                    all.push(Merged { name: name.to_owned(), physical, is_text, is_optional });
                }
            }
        }
        for (column, _) in all.iter_mut().zip(is_here).filter(|(_, is_here)| !is_here) {
            column.is_optional = true;
        }
    }
    Ok(all)
}

fn begin<W: Write + Send>(columns: &[Merged], to: W) -> Result<SerializedFileWriter<W>, ParquetError> {
    let field = |name: &str, physical, is_text: bool, is_optional| {
        let field = SchemaType::primitive_type_builder(name, physical)
            .with_repetition(if is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED })
            .with_logical_type(is_text.then_some(LogicalType::String));
        field.build().map(Arc::new)
    };
    let of = |it: &Merged| field(&it.name, it.physical, it.is_text, it.is_optional);
    let mut fields: Vec<TypePtr> = columns.iter().map(of).collect::<Result<_, _>>()?;
    fields.push(field(HOST, PhysicalType::BYTE_ARRAY, true, false)?);
    let schema = SchemaType::group_type_builder("merged").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .build();
    SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties))
}

fn write_group<W: Write + Send>(
    writer: &mut SerializedFileWriter<W>,
    columns: &[Merged],
    batch: &[(&str, Reader)],
) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        match column.physical {
            PhysicalType::INT32 => copy::<Int32Type, W>(&mut group, column, batch)?,
            PhysicalType::INT64 => copy::<Int64Type, W>(&mut group, column, batch)?,
            PhysicalType::DOUBLE => copy::<DoubleType, W>(&mut group, column, batch)?,
            PhysicalType::BYTE_ARRAY => copy::<ByteArrayType, W>(&mut group, column, batch)?,
            other => return Err(ParquetError::General(format!("`{}` has the type {other}", column.name))),
        }
    }
    let mut hosts = Vec::new();
    for (host, reader) in batch {
        let rows = usize::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0);
        hosts.resize(hosts.len() + rows, ByteArray::from(*host));
    }
    write::<ByteArrayType, W>(&mut group, &hosts, None)?;
    group.close().map(drop)
}

/// Copies a column of all files.
fn copy<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Merged,
    batch: &[(&str, Reader)],
) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for (_, reader) in batch {
        for index in 0..reader.num_row_groups() {
            read::<T>(reader.get_row_group(index)?.as_ref(), &column.name, &mut values, &mut levels)?;
        }
    }
    write::<T, W>(group, &values, column.is_optional.then_some(&levels))
}

/// Reads a column of a row group; without it, no row has a value.
fn read<T: DataType>(
    group: &dyn RowGroupReader,
    name: &str,
    values: &mut Vec<T::T>,
    levels: &mut Vec<i16>,
) -> Result<(), ParquetError> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    let Some(at) = group.metadata().columns().iter().position(|it| it.column_path().string() == name) else {
        levels.resize(levels.len() + rows, 0);
        return Ok(());
    };
    let other_type = || ParquetError::General(format!("the column `{name}` has another type"));
    let column = T::get_column_reader(group.get_column_reader(at)?).ok_or_else(other_type)?;
    let (mut found, mut with) = read_values(column, rows)?;
    // A required column has no levels: every value is there.
    with.resize(rows, 1);
    values.append(&mut found);
    levels.append(&mut with);
    Ok(())
}

fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&Vec<i16>>,
) -> Result<(), ParquetError> {
    let next = group.next_column()?;
    let mut column =
        next.ok_or_else(|| ParquetError::General("the schema has too few columns".to_owned()))?;
    column.typed::<T>().write_batch(values, levels.map(Vec::as_slice), None)?;
    column.close()
}
