//! Columns into rows.
//!
//! A batch comes from a file that somebody may have written by other means: values that make no sense here
//! (negative numbers, text that is no UTF-8, columns of different length) are [`Damage`], not a panic.

mod causes;

pub(crate) use causes::{causes, ipis};

use crate::rows::{BucketRow, CounterRow, InterruptRow, RateKey, RowKey, Span};
use crate::segment::Damage;
use crate::table::{Batch, COUNTERS, HISTOGRAMS, INTERRUPTS, INTERVALS, RATES, SPIKES, Table, Values};
use parquet::data_type::ByteArray;
use std::sync::Arc;
use whylate_core::CpuId;
use whylate_core::record::{CounterRecord, InterruptRecord, Interval, RateRecord, SpikeRecord};

/// A batch whose columns can be asked for by name.
struct Named<'b> {
    table: &'static Table,
    batch: &'b Batch,
}

/// One column of it, read value by value.
struct Column<'b, T> {
    name: &'static str,
    values: &'b [T],
}

impl<'b> Named<'b> {
    fn values(&self, name: &'static str) -> Result<&'b Values, Damage> {
        let index = self.table.columns.iter().position(|column| column.name == name);
        index.and_then(|index| self.batch.columns.get(index)).ok_or(Damage::MissingColumn(name))
    }
    fn ints(&self, name: &'static str) -> Result<Column<'b, i64>, Damage> {
        match self.values(name)? {
            Values::Int64(values) => Ok(Column { name, values }),
            _ => Err(Damage::WrongType(name)),
        }
    }
    fn numbers(&self, name: &'static str) -> Result<Column<'b, i32>, Damage> {
        match self.values(name)? {
            Values::Int32(values) => Ok(Column { name, values }),
            _ => Err(Damage::WrongType(name)),
        }
    }
    fn optionals(&self, name: &'static str) -> Result<Column<'b, Option<i64>>, Damage> {
        match self.values(name)? {
            Values::OptionalInt64(values) => Ok(Column { name, values }),
            _ => Err(Damage::WrongType(name)),
        }
    }
    fn doubles(&self, name: &'static str) -> Result<Column<'b, f64>, Damage> {
        match self.values(name)? {
            Values::Double(values) => Ok(Column { name, values }),
            _ => Err(Damage::WrongType(name)),
        }
    }
    fn texts(&self, name: &'static str) -> Result<Column<'b, ByteArray>, Damage> {
        match self.values(name)? {
            Values::Text(values) => Ok(Column { name, values }),
            _ => Err(Damage::WrongType(name)),
        }
    }
    fn optional_texts(&self, name: &'static str) -> Result<Column<'b, Option<ByteArray>>, Damage> {
        match self.values(name)? {
            Values::OptionalText(values) => Ok(Column { name, values }),
            _ => Err(Damage::WrongType(name)),
        }
    }
    fn optional_doubles(&self, name: &'static str) -> Result<Column<'b, Option<f64>>, Damage> {
        match self.values(name)? {
            Values::OptionalDouble(values) => Ok(Column { name, values }),
            _ => Err(Damage::WrongType(name)),
        }
    }
    fn rows(&self) -> std::ops::Range<usize> {
        0..self.batch.rows()
    }
}

impl<'b, T> Column<'b, T> {
    fn value(&self, row: usize) -> Result<&'b T, Damage> {
        self.values.get(row).ok_or(Damage::TooFewValues(self.name))
    }
}

impl Column<'_, i64> {
    fn get(&self, row: usize) -> Result<u64, Damage> {
        u64::try_from(*self.value(row)?).map_err(|_| Damage::Negative(self.name))
    }
}

impl Column<'_, i32> {
    fn get(&self, row: usize) -> Result<u32, Damage> {
        u32::try_from(*self.value(row)?).map_err(|_| Damage::Negative(self.name))
    }
}

impl Column<'_, Option<i64>> {
    fn get(&self, row: usize) -> Result<Option<u64>, Damage> {
        self.value(row)?.map(u64::try_from).transpose().map_err(|_| Damage::Negative(self.name))
    }

    /// A number that came from a smaller type.
    fn small(&self, row: usize) -> Result<Option<u32>, Damage> {
        self.get(row)?.map(u32::try_from).transpose().map_err(|_| Damage::TooLarge(self.name))
    }
}

impl Column<'_, f64> {
    fn get(&self, row: usize) -> Result<f64, Damage> {
        self.value(row).copied()
    }
}

impl<'b> Column<'b, ByteArray> {
    fn get(&self, row: usize) -> Result<&'b str, Damage> {
        std::str::from_utf8(self.value(row)?.data()).map_err(|_| Damage::NotText(self.name))
    }
}

impl Column<'_, Option<ByteArray>> {
    fn get(&self, row: usize) -> Result<Option<String>, Damage> {
        let text = |bytes: &ByteArray| std::str::from_utf8(bytes.data()).map(str::to_owned);
        self.value(row)?.as_ref().map(text).transpose().map_err(|_| Damage::NotText(self.name))
    }
}

impl Column<'_, Option<f64>> {
    fn get(&self, row: usize) -> Result<Option<f64>, Damage> {
        self.value(row).copied()
    }
}

/// The columns that tables of probes begin with.
struct ProbeColumns<'b> {
    cell: Column<'b, ByteArray>,
    repeat: Column<'b, i32>,
    attempt: Column<'b, i32>,
    probe: Column<'b, ByteArray>,
    cpu: Column<'b, i32>,
    last: Option<Arc<RowKey>>,
}

impl<'b> ProbeColumns<'b> {
    fn of(named: &Named<'b>) -> Result<Self, Damage> {
        Ok(Self {
            cell: named.texts("cell")?,
            repeat: named.numbers("repeat")?,
            attempt: named.numbers("attempt")?,
            probe: named.texts("probe")?,
            cpu: named.numbers("cpu")?,
            last: None,
        })
    }

    fn cpu(&self, row: usize) -> Result<CpuId, Damage> {
        self.cpu.get(row).map(CpuId)
    }

    /// The row's key; neighbours with the same key share one.
    fn key(&mut self, row: usize) -> Result<Arc<RowKey>, Damage> {
        let (cell, probe) = (self.cell.get(row)?, self.probe.get(row)?);
        let (repeat, attempt) = (self.repeat.get(row)?, self.attempt.get(row)?);
        if let Some(last) = &self.last
            && last.cell == cell
            && last.probe == probe
            && (last.repeat, last.attempt) == (repeat, attempt)
        {
            return Ok(Arc::clone(last));
        }
        let key = RowKey { cell: cell.to_owned(), repeat, attempt, probe: probe.to_owned() };
        Ok(Arc::clone(self.last.insert(Arc::new(key))))
    }
}

/// Begin and end of the interval that a row is about.
struct SpanColumns<'b> {
    start_ns: Column<'b, i64>,
    end_ns: Column<'b, i64>,
}

impl<'b> SpanColumns<'b> {
    fn of(named: &Named<'b>) -> Result<Self, Damage> {
        Ok(Self { start_ns: named.ints("start_ns")?, end_ns: named.ints("end_ns")? })
    }
    fn get(&self, row: usize) -> Result<Span, Damage> {
        Ok(Span { start_ns: self.start_ns.get(row)?, end_ns: self.end_ns.get(row)? })
    }
}

pub(crate) fn buckets(batch: &Batch) -> Result<Vec<BucketRow>, Damage> {
    let named = Named { table: &HISTOGRAMS, batch };
    let mut probe = ProbeColumns::of(&named)?;
    let (start_ns, lower_ns) = (named.ints("start_ns")?, named.ints("lower_ns")?);
    let count = named.ints("count")?;
    let bucket = |row| {
        Ok(BucketRow {
            key: probe.key(row)?,
            cpu: probe.cpu(row)?,
            start_ns: start_ns.get(row)?,
            lower_ns: lower_ns.get(row)?,
            count: count.get(row)?,
        })
    };
    named.rows().map(bucket).collect()
}

/// Intervals, their histograms still empty.
pub(crate) fn intervals(batch: &Batch) -> Result<Vec<(Arc<RowKey>, Interval)>, Damage> {
    let named = Named { table: &INTERVALS, batch };
    let mut probe = ProbeColumns::of(&named)?;
    let span = SpanColumns::of(&named)?;
    let (samples, sum_ns) = (named.ints("samples")?, named.ints("sum_ns")?);
    let (min_ns, max_ns) = (named.optionals("min_ns")?, named.optionals("max_ns")?);
    let overruns = named.optionals("overruns")?;
    let (gaps, lost_ns) = (named.optionals("gaps")?, named.optionals("lost_ns")?);
    let spikes_dropped = named.ints("spikes_dropped")?;
    let (peer_cpu, counter_hz) = (named.optionals("peer_cpu")?, named.optionals("counter_hz")?);
    let interval = |row| {
        let Span { start_ns, end_ns } = span.get(row)?;
        let interval = Interval {
            cpu: probe.cpu(row)?,
            // Part of the key.
            series: None,
            peer_cpu: peer_cpu.small(row)?.map(CpuId),
            counter_hz: counter_hz.get(row)?,
            start_ns,
            end_ns,
            samples: samples.get(row)?,
            sum_ns: sum_ns.get(row)?,
            min_ns: min_ns.get(row)?,
            max_ns: max_ns.get(row)?,
            overruns: overruns.get(row)?,
            gaps: gaps.get(row)?,
            lost_ns: lost_ns.get(row)?,
            spikes_dropped: spikes_dropped.get(row)?,
            histogram: Vec::new(),
        };
        Ok((probe.key(row)?, interval))
    };
    named.rows().map(interval).collect()
}

pub(crate) fn spikes(batch: &Batch) -> Result<Vec<(Arc<RowKey>, SpikeRecord)>, Damage> {
    let named = Named { table: &SPIKES, batch };
    let mut probe = ProbeColumns::of(&named)?;
    let (at_ns, latency_ns) = (named.ints("at_ns")?, named.ints("latency_ns")?);
    let sample = named.ints("sample")?;
    let spike = |row| {
        let spike = SpikeRecord {
            cpu: probe.cpu(row)?,
            series: None,
            at_ns: at_ns.get(row)?,
            latency_ns: latency_ns.get(row)?,
            sample: sample.get(row)?,
        };
        Ok((probe.key(row)?, spike))
    };
    named.rows().map(spike).collect()
}

pub(crate) fn rates(batch: &Batch) -> Result<Vec<(Arc<RateKey>, RateRecord)>, Damage> {
    let named = Named { table: &RATES, batch };
    let (cell, load, unit) = (named.texts("cell")?, named.texts("load")?, named.texts("unit")?);
    let (repeat, attempt) = (named.numbers("repeat")?, named.numbers("attempt")?);
    let (at_ns, interval_ns) = (named.ints("at_ns")?, named.ints("interval_ns")?);
    let value = named.doubles("value")?;
    let mut last: Option<Arc<RateKey>> = None;
    let rate = |row| {
        let key = RateKey {
            cell: cell.get(row)?.to_owned(),
            repeat: repeat.get(row)?,
            attempt: attempt.get(row)?,
            load: load.get(row)?.to_owned(),
            unit: unit.get(row)?.to_owned(),
        };
        let key = match &last {
            Some(known) if **known == key => Arc::clone(known),
            _ => Arc::clone(last.insert(Arc::new(key))),
        };
        let rate =
            RateRecord { at_ns: at_ns.get(row)?, interval_ns: interval_ns.get(row)?, value: value.get(row)? };
        Ok((key, rate))
    };
    named.rows().map(rate).collect()
}

pub(crate) fn interrupts(batch: &Batch) -> Result<Vec<InterruptRow>, Damage> {
    let named = Named { table: &INTERRUPTS, batch };
    let mut probe = ProbeColumns::of(&named)?;
    let span = SpanColumns::of(&named)?;
    let (line, description) = (named.texts("line")?, named.texts("description")?);
    let count = named.ints("count")?;
    let interrupt = |row| {
        let record = InterruptRecord {
            cpu: probe.cpu(row)?,
            line: line.get(row)?.to_owned(),
            description: description.get(row)?.to_owned(),
            count: count.get(row)?,
        };
        Ok(InterruptRow { key: probe.key(row)?, span: span.get(row)?, record })
    };
    named.rows().map(interrupt).collect()
}

pub(crate) fn counters(batch: &Batch) -> Result<Vec<CounterRow>, Damage> {
    let named = Named { table: &COUNTERS, batch };
    let mut probe = ProbeColumns::of(&named)?;
    let span = SpanColumns::of(&named)?;
    let (steal_ns, smis) = (named.optionals("steal_ns")?, named.optionals("smis")?);
    let involuntary_switches = named.optionals("involuntary_switches")?;
    let page_faults = named.optionals("page_faults")?;
    let counter = |row| {
        let record = CounterRecord {
            cpu: probe.cpu(row)?,
            steal_ns: steal_ns.get(row)?,
            smis: smis.get(row)?,
            involuntary_switches: involuntary_switches.get(row)?,
            page_faults: page_faults.get(row)?,
        };
        Ok(CounterRow { key: probe.key(row)?, span: span.get(row)?, record })
    };
    named.rows().map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_no_writer_has_are_damage() {
        let values = [None, Some(7), Some(-1), Some(1 << 32)];
        let column = Column { name: "peer_cpu", values: &values };
        let read: Vec<Result<Option<u32>, String>> =
            (0..5).map(|row| column.small(row).map_err(|damage| damage.to_string())).collect();
        assert_eq!((&read[0], &read[1]), (&Ok(None), &Ok(Some(7))));
        for (found, reason) in read[2..].iter().zip(["negative", "too large", "too few"]) {
            assert!(matches!(found, Err(text) if text.contains(reason)), "{found:?}");
        }
    }
}
