//! The figures of a watch in Prometheus' binary form: there alone histograms are native ones, too.
//!
//! Each family of metrics is a message with its length before it (`metrics.proto` of Prometheus' client_model). Few of its
//! messages are needed, so that they are written here, field by field.

use super::figures::{Attributes, Figure, Points};
use whylate_runner::LatencyTotals;
use whylate_stats::NATIVE_SCHEMA;

/// Smaller samples are in the bucket of zero: no latency but 0 is.
const ZERO_THRESHOLD: f64 = 1e-12;
/// The wire types of protocol buffers.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

/// The family of metrics `name` with its length before it.
pub(super) fn family(name: &str, figure: &Figure<'_>) -> Vec<u8> {
    let (kind, metrics) = match &figure.points {
        Points::Counter(points) => (0, points.iter().map(|point| single(3, point)).collect::<Vec<_>>()),
        Points::Gauge(points) => (1, points.iter().map(|point| single(2, point)).collect()),
        Points::Histogram(points) => {
            let metric = |(attributes, totals): &(Attributes<'_>, &LatencyTotals)| {
                labelled(attributes).message(7, &histogram(totals))
            };
            (4, points.iter().map(metric).collect())
        }
    };
    let mut family =
        Message::default().bytes(1, name.as_bytes()).bytes(2, figure.help.as_bytes()).unsigned(3, kind);
    for metric in metrics {
        family = family.message(4, &metric);
    }
    let mut all = Message::default();
    all.varint(family.0.len() as u64);
    all.0.extend(family.0);
    all.0
}

/// A metric with one value, in a message of its own.
fn single(field: u64, (attributes, value): &(Attributes<'_>, f64)) -> Message {
    labelled(attributes).message(field, &Message::default().double(1, *value))
}

fn labelled(attributes: &Attributes<'_>) -> Message {
    let label = |metric: Message, (name, value): &(&str, &str)| {
        metric.message(1, &Message::default().bytes(1, name.as_bytes()).bytes(2, value.as_bytes()))
    };
    attributes.iter().fold(Message::default(), label)
}

fn histogram(totals: &LatencyTotals) -> Message {
    let mut message = Message::default()
        .unsigned(1, totals.count)
        .double(2, totals.sum_ns as f64 / super::figures::NANOSECONDS);
    for (edge_ns, count) in &totals.buckets {
        let bound = *edge_ns as f64 / super::figures::NANOSECONDS;
        message = message.message(3, &Message::default().unsigned(1, *count).double(2, bound));
    }
    let native = &totals.native;
    message = message.signed(5, NATIVE_SCHEMA.into()).double(6, ZERO_THRESHOLD).unsigned(7, native.zeros);
    for (offset, length) in spans(native.buckets.iter().map(|(index, _)| *index)) {
        message = message.message(12, &Message::default().signed(1, offset.into()).unsigned(2, length));
    }
    let mut before = 0;
    for (_, count) in &native.buckets {
        message = message.signed(13, *count as i64 - before);
        before = *count as i64;
    }
    message
}

/// Buckets in a row: the distance of the first from the end of the row before, or its index, and how many there are.
fn spans(indexes: impl Iterator<Item = i32>) -> Vec<(i32, u64)> {
    let (mut spans, mut end): (Vec<(i32, u64)>, i32) = (Vec::new(), 0);
    for index in indexes {
        match spans.last_mut() {
            Some((_, length)) if index == end => *length += 1,
            _ => spans.push((index - end, 1)),
        }
        end = index + 1;
    }
    spans
}

#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn unsigned(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3 | VARINT);
        self.varint(value);
        self
    }

    /// Of small magnitude, whatever its sign.
    fn signed(self, field: u64, value: i64) -> Self {
        self.unsigned(field, (value << 1 ^ value >> 63) as u64)
    }

    fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | FIXED64);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::{example, figures};
    use super::*;

    /// A field: its number, and a number or bytes.
    #[derive(Debug, PartialEq)]
    enum Value {
        Number(u64),
        Double(f64),
        Bytes(Vec<u8>),
    }

    fn number(bytes: &mut &[u8]) -> u64 {
        let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (own, rest) = bytes.split_at(length);
        *bytes = rest;
        own.iter().rev().fold(0, |value, byte| value * 128 + u64::from(byte % 128))
    }

    fn fields(mut bytes: &[u8]) -> Vec<(u64, Value)> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = number(&mut bytes);
            let length = match key % 8 {
                0 => {
                    fields.push((key / 8, Value::Number(number(&mut bytes))));
                    continue;
                }
                1 => 8,
                2 => number(&mut bytes) as usize,
                wire => panic!("wire type {wire}"),
            };
            let (own, rest) = bytes.split_at(length);
            bytes = rest;
            let double = || Value::Double(f64::from_le_bytes(own.try_into().unwrap()));
            fields.push((key / 8, if key % 8 == 1 { double() } else { Value::Bytes(own.to_vec()) }));
        }
        fields
    }

    fn inner(message: &[(u64, Value)], field: u64) -> Vec<Vec<(u64, Value)>> {
        let of = |(number, value): &(u64, Value)| match value {
            Value::Bytes(bytes) if *number == field => Some(fields(bytes)),
            _ => None,
        };
        message.iter().filter_map(of).collect()
    }

    #[test]
    fn a_family_has_its_length_its_kind_and_native_buckets() {
        let task = example();
        let all = figures(std::slice::from_ref(&task));
        let bytes = family("whylate_task_response_seconds", &all[0]);
        let mut rest = bytes.as_slice();
        assert_eq!(number(&mut rest) as usize, rest.len());
        let family = fields(rest);
        assert_eq!(family[0], (1, Value::Bytes(b"whylate_task_response_seconds".to_vec())));
        assert_eq!(family[2], (3, Value::Number(4)));
        let metric = &inner(&family, 4)[0];
        assert_eq!(
            inner(metric, 1)[0],
            [(1, Value::Bytes(b"task".to_vec())), (2, Value::Bytes(b"audio".to_vec()))]
        );
        let histogram = &inner(metric, 7)[0];
        assert_eq!(histogram[..2], [(1, Value::Number(6)), (2, Value::Double(4.5))]);
        assert_eq!(inner(histogram, 3)[1], [(1, Value::Number(5)), (2, Value::Double(2e-6))]);
        let of = |field: u64| {
            let values = histogram.iter().filter(move |(number, _)| *number == field);
            values.map(|(_, value)| value).collect::<Vec<_>>()
        };
        // Zigzag: schema 4; first bucket -320, two in a row, then one four further on; 3, 2 - 3, 1 - 2.
        assert_eq!(of(5), [&Value::Number(8)]);
        assert_eq!(of(7), [&Value::Number(0)]);
        let spans = [(639, 2), (8, 1)]
            .map(|(offset, length)| vec![(1, Value::Number(offset)), (2, Value::Number(length))]);
        assert_eq!(inner(histogram, 12), spans);
        assert_eq!(of(13), [&Value::Number(6), &Value::Number(1), &Value::Number(1)]);
    }

    #[test]
    fn counters_and_gauges_have_one_value() {
        let task = example();
        let all = figures(std::slice::from_ref(&task));
        for (nth, kind, field, value) in [(2, 0, 3, 2.0), (3, 1, 2, 0.0)] {
            let bytes = family("x", &all[nth]);
            let mut rest = bytes.as_slice();
            assert_eq!(number(&mut rest) as usize, rest.len());
            let family = fields(rest);
            assert_eq!(family[2], (3, Value::Number(kind)), "{family:?}");
            assert_eq!(inner(&inner(&family, 4)[0], field)[0], [(1, Value::Double(value))]);
        }
    }
}
