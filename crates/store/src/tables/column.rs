//! Columns: how a field of a row is stored in a Parquet file, and how it is read again.

use parquet::basic::Type as PhysicalType;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{AsBytes, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedColumnWriter;
use std::any::TypeId;
use std::str;
use whylate_core::CpuId;
use whylate_core::quantity::{Row, TABLE, Valued};
use whylate_core::record::Interval;
use whylate_core::result::{AuditKind, CauseKind, ChainDoing};

/// The layout of a column's values before compression; chosen by measurement (`examples/simulate_day.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Each distinct value once, then run lengths of numbers: for repeated values.
    Dictionary,
    /// Differences from the row before: for values that grow or change little.
    Delta,
    /// Unchanged.
    Plain,
}

/// The name and storage of a column.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) layout: Layout,
    pub(crate) physical: fn() -> PhysicalType,
    /// Null in rows without a value, and everywhere in files without the column.
    pub(crate) optional: bool,
}

/// A column of a table with rows `R`; made by [`columns!`].
pub(crate) struct Column<R> {
    pub(crate) shape: Shape,
    /// Number of its quantity; 0 for a field.
    pub(crate) number: usize,
    pub(crate) write: Write<R>,
    pub(crate) read: fn(usize, ColumnReader, usize) -> Result<ColumnValues<R>, Damage>,
}

/// Writes the field of each row.
type Write<R> =
    fn(usize, &mut dyn Iterator<Item = &R>, &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError>;

pub(crate) type ColumnValues<R> = Box<dyn Values<R>>;

/// The values of a column, for a field of rows `R`.
pub(crate) trait Values<R> {
    /// Sets the field of each row; there are as many rows as the column has values.
    fn fill(&self, rows: &mut [R]) -> Result<(), Damage>;
    /// Sets the field of one row to the value with that number; the column has one for each row.
    fn set(&self, row: &mut R, number: usize) -> Result<(), Damage>;
    /// Whether the value with that number is the same as the one before it.
    fn is_repeated(&self, number: usize) -> bool;
    /// Bytes on the heap that rows take for them.
    fn heap(&self) -> usize;
}

/// The columns of rows of a type, in order: `columns![row: Type => Layout "name" row.field, ...]`. The type of the
/// field, a [`Value`], decides the type of the column.
macro_rules! columns {
    ($row:ident: $type:ty => $($layout:ident $name:literal $field:expr),+ $(,)?) => {
        &[$($crate::tables::column::Column {
            shape: $crate::tables::column::shape(
                $name, $crate::tables::column::Layout::$layout, |$row: &$type| &$field
            ),
            number: 0,
            write: |_, rows, column| $crate::tables::column::write(rows, |$row: &$type| &$field, column),
            read: |_, column, rows| {
                $crate::tables::column::read($name, column, rows, |$row: &mut $type| &mut $field)
            },
        }),+]
    };
}
pub(crate) use columns;

/// Why a segment cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    #[error("it is cut off: it has {0} bytes")]
    TooShort(usize),
    #[error("its end is missing, or whylate did not write it")]
    NoMark,
    #[error("its checksum is wrong: it was changed or is incomplete")]
    Checksum,
    #[error("it claims an impossible number of rows: {0}")]
    Rows(i64),
    #[error("it needs more memory than any segment of a run")]
    Room,
    #[error("the column `{0}` {1}")]
    Column(&'static str, &'static str),
    #[error("{0}")]
    Parquet(#[from] ParquetError),
}

pub(crate) const MISSING: &str = "is missing";
pub(crate) const TOO_FEW_VALUES: &str = "has too few values";

/// The [`Shape`] of a column for a field.
pub(crate) const fn shape<R, V: Value>(name: &'static str, layout: Layout, _: fn(&R) -> &V) -> Shape {
    Shape { name, layout, physical: V::Physical::get_physical_type, optional: V::OPTIONAL }
}

pub(crate) fn write<R, V: Value>(
    rows: &mut dyn Iterator<Item = &R>,
    field: fn(&R) -> &V,
    column: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    let mut values: Vec<Stored<V>> = Vec::with_capacity(rows.size_hint().0);
    let mut levels = Vec::new();
    for row in rows {
        let stored = field(row).store(values.last());
        if V::OPTIONAL {
            levels.push(i16::from(stored.is_some()));
        }
        values.extend(stored);
    }
    write_values::<V::Physical>(&values, V::OPTIONAL.then_some(&levels), column)
}

fn write_values<T: DataType>(
    values: &[T::T],
    levels: Option<&[i16]>,
    column: &mut SerializedColumnWriter<'_>,
) -> Result<(), ParquetError> {
    column.typed::<T>().write_batch(values, levels, None)?;
    Ok(())
}

pub(crate) fn read<R: 'static, V: Value>(
    name: &'static str,
    column: ColumnReader,
    rows: usize,
    field: fn(&mut R) -> &mut V,
) -> Result<ColumnValues<R>, Damage> {
    let Some(column) = V::Physical::get_column_reader(column) else {
        return Err(Damage::Column(name, "has another type"));
    };
    let (values, levels) = read_values(column, rows)?;
    let is_text = V::Physical::get_physical_type() == PhysicalType::BYTE_ARRAY;
    if is_text && values.iter().any(|value| value.as_bytes().len() > TEXT_MAX) {
        return Err(Damage::Column(name, "has a text that is too long"));
    }
    // A required column has no levels: every value is present.
    let found = if V::OPTIONAL && !levels.is_empty() { levels.len() } else { values.len() };
    match found == rows {
        true => Ok(Box::new(ReadValues { name, values, levels, field })),
        false => Err(Damage::Column(name, TOO_FEW_VALUES)),
    }
}

/// The column of a quantity of intervals.
pub(crate) fn of_quantity(number: usize, row: &'static Row) -> Column<Interval> {
    if row.is_float {
        quantity::<f64>(number, row.name, Layout::Plain)
    } else {
        quantity::<u64>(number, row.name, Layout::Delta)
    }
}

fn quantity<T: Valued + Copy>(number: usize, name: &'static str, layout: Layout) -> Column<Interval>
where
    Option<T>: Value + Clone + Default,
{
    Column {
        shape: shape(name, layout, |value: &Option<T>| value),
        number,
        write: |number, rows, column| {
            let value = |row: &Interval| row.quantities.value(number).and_then(T::from_value).copied();
            let values: Vec<Option<T>> = rows.map(value).collect();
            write(&mut values.iter(), |value| value, column)
        },
        read: |number, column, rows| {
            let values = read(TABLE[number].name, column, rows, |value: &mut Option<T>| value)?;
            Ok(Box::new(ReadQuantity { number, values }))
        },
    }
}

/// The values of a quantity.
struct ReadQuantity<T> {
    number: usize,
    values: ColumnValues<Option<T>>,
}

impl<T: Valued + Clone> Values<Interval> for ReadQuantity<T> {
    fn fill(&self, rows: &mut [Interval]) -> Result<(), Damage> {
        let mut found = vec![None; rows.len()];
        self.values.fill(&mut found)?;
        for (row, value) in rows.iter_mut().zip(found) {
            row.quantities.set_value(self.number, value.map(T::into_value));
        }
        Ok(())
    }

    fn set(&self, row: &mut Interval, number: usize) -> Result<(), Damage> {
        let mut found = None;
        self.values.set(&mut found, number)?;
        row.quantities.set_value(self.number, found.map(T::into_value));
        Ok(())
    }

    fn is_repeated(&self, number: usize) -> bool {
        self.values.is_repeated(number)
    }

    fn heap(&self) -> usize {
        0
    }
}

/// The values that are present, and for each row whether it has one.
pub(crate) fn read_values<T: DataType>(
    mut column: ColumnReaderImpl<T>,
    rows: usize,
) -> Result<(Vec<T::T>, Vec<i16>), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    column.read_records(rows, Some(&mut levels), None, &mut values)?;
    Ok((values, levels))
}

struct ReadValues<R, V: Value> {
    name: &'static str,
    values: Vec<Stored<V>>,
    levels: Vec<i16>,
    field: fn(&mut R) -> &mut V,
}

impl<R, V: Value> Values<R> for ReadValues<R, V> {
    fn fill(&self, rows: &mut [R]) -> Result<(), Damage> {
        let mut present = self.values.iter();
        for (number, row) in rows.iter_mut().enumerate() {
            let is_null = self.levels.get(number).is_some_and(|level| *level == 0);
            let stored = if is_null { None } else { present.next() };
            (self.field)(row).load(stored).map_err(|problem| Damage::Column(self.name, problem))?;
        }
        Ok(())
    }

    fn set(&self, row: &mut R, number: usize) -> Result<(), Damage> {
        let stored = self.values.get(number);
        (self.field)(row).load(stored).map_err(|problem| Damage::Column(self.name, problem))
    }

    fn is_repeated(&self, number: usize) -> bool {
        number > 0 && self.values.get(number) == self.values.get(number - 1)
    }

    fn heap(&self) -> usize {
        if V::Physical::get_physical_type() != PhysicalType::BYTE_ARRAY {
            return 0;
        }
        let is_list = TypeId::of::<V>() == TypeId::of::<Vec<String>>();
        let words = |text: &[u8]| {
            if is_list { WORD * (1 + text.iter().filter(|it| **it == b' ').count()) } else { 0 }
        };
        // A file stores a text that many rows share only once.
        let of_value = |value: &Stored<V>| value.as_bytes().len() + words(value.as_bytes());
        self.values.iter().map(of_value).sum()
    }
}

/// What a column holds for a [`Value`].
type Stored<V> = <<V as Value>::Physical as DataType>::T;

/// A type of field that a column can hold.
pub(crate) trait Value: Sized + 'static {
    type Physical: DataType;
    const OPTIONAL: bool;
    /// The value as it is stored; `None` for null. `before` is the value before it, whose copy can be shared.
    fn store(&self, before: Option<&Stored<Self>>) -> Option<Stored<Self>>;
    /// # Errors
    /// What is wrong with the stored value: other programs may have written the file.
    fn load(&mut self, stored: Option<&Stored<Self>>) -> Result<(), &'static str>;
}

macro_rules! values {
    ($($optional:literal $type:ty as $physical:ty: $store:expr, $load:expr;)+) => {$(
        impl Value for $type {
            type Physical = $physical;
            const OPTIONAL: bool = $optional;
            fn store(&self, before: Option<&Stored<Self>>) -> Option<Stored<Self>> {
                let store: fn(&Self, Option<&Stored<Self>>) -> Option<Stored<Self>> = $store;
                store(self, before)
            }
            fn load(&mut self, stored: Option<&Stored<Self>>) -> Result<(), &'static str> {
                let load: fn(&mut Self, Option<&Stored<Self>>) -> Result<(), &'static str> = $load;
                load(self, stored)
            }
        }
    )+};
}

// The flag says whether it is optional. Optional integers are 64 bits wide, whatever the field is.
values! {
    false u32 as Int32Type:
        |it, _| Some(i32::try_from(*it).unwrap_or(i32::MAX)),
        |it, stored| set(it, u32::try_from(*required(stored)?).map_err(|_| NEGATIVE));
    false u64 as Int64Type:
        |it, _| Some(int64(*it)),
        |it, stored| set(it, unsigned(*required(stored)?));
    false i32 as Int32Type:
        |it, _| Some(*it),
        |it, stored| set(it, required(stored).copied());
    false f64 as DoubleType:
        |it, _| Some(*it),
        |it, stored| set(it, required(stored).copied());
    false String as ByteArrayType:
        |it, before| Some(bytes(it, before)),
        |it, stored| set(it, text(required(stored)?).map(str::to_owned));
    // Names, with blanks between.
    false Vec<String> as ByteArrayType:
        |it, before| Some(bytes(&it.join(" "), before)),
        |it, stored| set(it, text(required(stored)?).map(|text| text.split_whitespace().map(str::to_owned).collect()));
    // This version may not know the kind of a newer one.
    false CauseKind as ByteArrayType:
        |it, before| Some(bytes(it.name(), before)),
        |it, stored| set(it, text(required(stored)?).map(|name| Self::from_name(name).unwrap_or(Self::Unattributed)));
    false AuditKind as ByteArrayType:
        |it, before| Some(bytes(it.name(), before)),
        |it, stored| set(it, text(required(stored)?).and_then(|name| Self::from_name(name).ok_or("unknown finding")));
    false ChainDoing as ByteArrayType:
        |it, before| Some(bytes(it.name(), before)),
        |it, stored| set(it, text(required(stored)?).map(|name| Self::from_name(name).unwrap_or_default()));
    false bool as Int32Type:
        |it, _| Some(i32::from(*it)),
        |it, stored| set(it, required(stored).map(|one| *one != 0));
    true Option<u64> as Int64Type:
        |it, _| it.map(int64),
        |it, stored| set(it, stored.copied().map(unsigned).transpose());
    true Option<u32> as Int64Type:
        |it, _| it.map(i64::from),
        |it, stored| set(it, stored.copied().map(small).transpose());
    true Option<CpuId> as Int64Type:
        |it, _| it.map(|cpu| i64::from(cpu.0)),
        |it, stored| set(it, stored.copied().map(|cpu| small(cpu).map(CpuId)).transpose());
    true Option<f64> as DoubleType:
        |it, _| *it,
        |it, stored| set(it, Ok(stored.copied()));
    true Option<String> as ByteArrayType:
        |it, before| it.as_ref().map(|text| bytes(text, before)),
        |it, stored| set(it, stored.map(|bytes| text(bytes).map(str::to_owned)).transpose());
}

/// The longest text: results keep texts of the worst spikes of all segments.
const TEXT_MAX: usize = 64 << 10;

/// The memory of a word in a list of names, without its letters.
const WORD: usize = 56;

const NEGATIVE: &str = "has a negative value";

fn set<T>(field: &mut T, value: Result<T, &'static str>) -> Result<(), &'static str> {
    *field = value?;
    Ok(())
}

fn required<T>(stored: Option<&T>) -> Result<&T, &'static str> {
    stored.ok_or(TOO_FEW_VALUES)
}

/// Moments and counts that do not fit 63 bits cannot occur (292 years of nanoseconds). If one does, it is kept as the
/// largest number rather than as a negative one.
fn int64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(stored: i64) -> Result<u64, &'static str> {
    u64::try_from(stored).map_err(|_| NEGATIVE)
}

fn small(stored: i64) -> Result<u32, &'static str> {
    u32::try_from(unsigned(stored)?).map_err(|_| "has a value that is too large")
}

/// Neighbours mostly have the same text and share one copy.
fn bytes(text: &str, before: Option<&ByteArray>) -> ByteArray {
    match before {
        Some(bytes) if bytes.data() == text.as_bytes() => bytes.clone(),
        _ => ByteArray::from(text),
    }
}

fn text(bytes: &ByteArray) -> Result<&str, &'static str> {
    str::from_utf8(bytes.data()).map_err(|_| "contains a value that is not text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_writer_writes_are_damage() {
        let load = |stored: Option<i64>| {
            let mut cpu = Some(CpuId(0));
            cpu.load(stored.as_ref()).map(|()| cpu.map(|cpu| cpu.0))
        };
        assert_eq!((load(None), load(Some(7))), (Ok(None), Ok(Some(7))));
        assert!(load(Some(-1)).unwrap_err().contains("negative"));
        assert!(load(Some(1 << 32)).unwrap_err().contains("too large"));
        assert!(0u64.load(None).unwrap_err().contains("too few"));
        assert!(0u32.load(Some(&-1)).unwrap_err().contains("negative"));
        assert!(String::new().load(Some(&ByteArray::from(vec![0xff]))).unwrap_err().contains("not text"));
    }
}
