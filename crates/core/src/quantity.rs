//! What only some probes report in addition to samples, histogram and quantiles: the one table of quantities.
//!
//! A row of `quantities!` gives the JSON name, the type, how the values of several intervals become one, which probes
//! have it, and how pages show it. The columns of `intervals`, the merging of intervals, the figures of a CPU, JSON,
//! its schema, CSV and the columns of the figures in reports follow from it. To add a quantity, add a row here.

use crate::plan::{ProbeFacts, Samples};
use crate::record::TaskRecord;
use crate::result::{
    AuditRecord, CycleFigures, Extremes, LatencyRecord, Quantiles, SourceResult, ThrottledGaps,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// How the values of several intervals become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// They add up.
    Sum,
    Max,
    Min,
    /// They are the same in all intervals of a series; intervals in which they differ are not joined.
    Same,
    /// Intervals do not have it: it is computed for a whole series.
    Derived,
}

/// Which results have a quantity of their intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// All results; the value is 0 if no interval has it.
    Always,
    /// Only results whose intervals have it.
    Stored,
    /// Those where it is not 0.
    NotZero,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Ns,
    /// In [0, 1].
    Share,
    /// Something else, which no table shows.
    Other,
}

/// A column of the figures in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub title: &'static str,
    /// How much is lost without it in a narrow table: 0 to 9.
    pub importance: u8,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// In JSON, CSV, and as a column of `intervals`.
    pub name: &'static str,
    pub meaning: &'static str,
    pub unit: Unit,
    pub merge: Merge,
    /// Only for quantities of intervals.
    pub presence: fn(&ProbeFacts) -> Presence,
    pub shown: Option<Shown>,
    pub is_float: bool,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Row {
    /// Whether intervals have it, and tables a column for it.
    pub fn is_stored(&self) -> bool {
        self.merge != Merge::Derived
    }
}

/// A quantity with values of type `T`: the number of its row.
#[derive(Debug)]
pub struct Quantity<T> {
    number: u8,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Quantity<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Quantity<T> {}

/// A type that a quantity can have.
pub trait Valued: Sized {
    #[doc(hidden)]
    const IS_FLOAT: bool = false;
    #[doc(hidden)]
    fn into_value(self) -> Value;
    #[doc(hidden)]
    fn from_value(value: &Value) -> Option<&Self>;
}

macro_rules! values {
    ($($Kind:ident($type:ty) $(in $box:ident)?),+ $(,)?) => {
        /// The value of a quantity.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value {
            $($Kind(values!(@held $type $(, $box)?))),+
        }

        impl Serialize for Value {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$Kind(value) => value.serialize(serializer)),+
                }
            }
        }

        $(impl Valued for $type {
            const IS_FLOAT: bool = matches!(stringify!($Kind).as_bytes(), b"Number");
            fn into_value(self) -> Value {
                Value::$Kind(values!(@hold self $(, $box)?))
            }
            fn from_value(value: &Value) -> Option<&Self> {
                if let Value::$Kind(value) = value { Some(value) } else { None }
            }
        })+
    };
    (@held $type:ty) => { $type };
    (@held $type:ty, $box:ident) => { $box<$type> };
    (@hold $value:ident) => { $value };
    (@hold $value:ident, $box:ident) => { $box::new($value) };
}

values! {
    Count(u64),
    Number(f64),
    Quantiles(Quantiles) in Box,
    Extremes(Extremes) in Box,
    Cycles(CycleFigures) in Box,
    Throttled(ThrottledGaps) in Box,
    Task(TaskRecord) in Box,
    Record(LatencyRecord) in Box,
    Sources(Vec<SourceResult>),
    Audit(Vec<AuditRecord>),
}

impl Value {
    /// The value of a single number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Count(count) => Some(*count as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }
}

/// The quantities that are known, in the order of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quantities(Vec<(u8, Value)>);

impl Quantities {
    pub fn of<T: Valued>(&self, quantity: Quantity<T>) -> Option<&T> {
        T::from_value(self.value(usize::from(quantity.number))?)
    }

    pub fn get<T: Valued + Copy>(&self, quantity: Quantity<T>) -> Option<T> {
        self.of(quantity).copied()
    }

    /// The value of the row with that number.
    pub fn value(&self, number: usize) -> Option<&Value> {
        self.0.iter().find(|(known, _)| usize::from(*known) == number).map(|(_, value)| value)
    }

    /// Sets one; without a value it becomes absent.
    pub fn set<T: Valued>(&mut self, quantity: Quantity<T>, value: impl Into<Option<T>>) {
        self.set_value(usize::from(quantity.number), value.into().map(T::into_value));
    }

    #[must_use]
    pub fn with<T: Valued>(mut self, quantity: Quantity<T>, value: impl Into<Option<T>>) -> Self {
        self.set(quantity, value);
        self
    }

    /// Sets that of the row with that number, to a value of its type.
    pub fn set_value(&mut self, number: usize, value: Option<Value>) {
        let at = self.0.partition_point(|(known, _)| usize::from(*known) < number);
        let is_known = self.0.get(at).is_some_and(|(known, _)| usize::from(*known) == number);
        match (value, is_known) {
            (Some(value), true) => self.0[at].1 = value,
            (Some(value), false) => self.0.insert(at, (number as u8, value)),
            (None, true) => drop(self.0.remove(at)),
            (None, false) => {}
        }
    }

    /// Whether intervals with these values can become one.
    pub fn can_join(&self, other: &Self) -> bool {
        let is_same = |(number, row): (usize, &Row)| {
            row.merge != Merge::Same || self.value(number) == other.value(number)
        };
        TABLE.iter().enumerate().all(is_same)
    }

    /// Adds those of another interval, by the rule of each row.
    pub fn merge(&mut self, other: &Self) {
        for (number, value) in &other.0 {
            let number = usize::from(*number);
            let merged =
                self.value(number).map_or_else(|| value.clone(), |known| merged(number, known, value));
            self.set_value(number, Some(merged));
        }
    }

    /// Keeps what results of such probes take from their intervals.
    #[must_use]
    pub fn of_result(mut self, facts: &ProbeFacts) -> Self {
        for (number, row) in TABLE.iter().enumerate().filter(|(_, row)| row.is_stored()) {
            let zero = if row.is_float { Value::Number(0.0) } else { Value::Count(0) };
            let value = match (row.presence)(facts) {
                Presence::Always => Some(self.value(number).cloned().unwrap_or(zero)),
                Presence::Stored => self.value(number).cloned(),
                Presence::NotZero => self.value(number).cloned().filter(|value| *value != zero),
                Presence::Never => None,
            };
            self.set_value(number, value);
        }
        self
    }
}

fn merged(number: usize, one: &Value, other: &Value) -> Value {
    let choose = |by: fn(f64, f64) -> f64, whole: fn(u64, u64) -> u64| match (one, other) {
        (Value::Count(a), Value::Count(b)) => Value::Count(whole(*a, *b)),
        (Value::Number(a), Value::Number(b)) => Value::Number(by(*a, *b)),
        _ => one.clone(),
    };
    match TABLE[number].merge {
        Merge::Sum => choose(|a, b| a + b, u64::saturating_add),
        Merge::Max => choose(f64::max, u64::max),
        Merge::Min => choose(f64::min, u64::min),
        Merge::Same | Merge::Derived => one.clone(),
    }
}

macro_rules! quantities {
    ($(
        $(#[doc = $meaning:literal])+
        $NAME:ident: $type:ty = $name:literal, $unit:ident, $merge:ident $(, if $presence:expr)? $(, as $title:literal $importance:literal)?;
    )+) => {
        #[allow(clippy::upper_case_acronyms, non_camel_case_types)]
        enum Number { $($NAME),+ }

        $($(#[doc = $meaning])+
        pub const $NAME: Quantity<$type> = Quantity { number: Number::$NAME as u8, of: PhantomData };)+

        /// All quantities, in the order of tables and pages.
        pub static TABLE: &[Row] = &[$(Row {
            name: $name,
            meaning: concat!($($meaning),+),
            unit: Unit::$unit,
            merge: Merge::$merge,
            presence: quantities!(@presence $($presence)?),
            shown: quantities!(@shown $($title $importance)?),
            is_float: <$type as Valued>::IS_FLOAT,
            schema: |generator| generator.subschema_for::<$type>(),
        }),+];

        impl Quantities {
            fn read<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
                match name {
                    $($name => self.set($NAME, map.next_value::<Option<$type>>()?),)+
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
                Ok(())
            }
        }
    };
    (@presence) => { |_| Presence::Never };
    (@presence $presence:expr) => { $presence };
    (@shown) => { None };
    (@shown $title:literal $importance:literal) => { Some(Shown { title: $title, importance: $importance }) };
}

/// Probes that look for gaps have it; those whose samples are durations have it only if it is not 0.
fn lost(facts: &ProbeFacts) -> Presence {
    match facts.samples {
        Samples::Gap => Presence::Always,
        Samples::Duration => Presence::NotZero,
        Samples::Lateness | Samples::Access => Presence::Never,
    }
}

fn of_user(facts: &ProbeFacts) -> Presence {
    if facts.is_of_user() { Presence::NotZero } else { Presence::Never }
}

fn always_if(has_it: bool) -> Presence {
    if has_it { Presence::Always } else { Presence::Never }
}

quantities! {
    /// The CPU that answers (roundtrip only).
    PEER_CPU: u64 = "peer_cpu", Other, Same, if |_| Presence::Stored;
    /// Ticks per second of the counter that took the times (roundtrip only).
    COUNTER_HZ: u64 = "counter_hz", Other, Same;
    /// Accesses to memory that a sample is made of (access only).
    ACCESSES: u64 = "accesses", Count, Same, if |_| Presence::NotZero, as "accesses" 9;
    /// Median time of one access (access only).
    ACCESS_NS: f64 = "access_ns", Ns, Derived, as "one access, median" 9;
    /// The figures in ticks of the time-stamp counter, converted from nanoseconds (roundtrip only).
    CYCLES: CycleFigures = "cycles", Other, Derived;
    /// Periods that the task missed because it was still late from an earlier one (timer, dispatch and task).
    OVERRUNS: u64 = "overruns", Count, Sum, if |facts| always_if(facts.misses_periods), as "missed" 7;
    /// Periods of the thread's timer that began before the response to an earlier period had ended: the thread began
    /// them late, or left them out (task only). Such a response is one sample, and counts once as missed.
    LATER_PERIODS: u64 = "later_periods", Count, Sum, if of_user;
    /// How long the new thread was at work before its first period (task only). That is its start and no response, so no
    /// deadline applies to it.
    STARTUP_NS: u64 = "startup_ns", Ns, Sum, if of_user;
    /// Sleeps that may or may not have been in the middle of the thread's work (task only).
    DOUBTS: u64 = "doubts", Count, Sum, if of_user;
    /// The longest response of the thread if the sleeps of `doubts` were in the middle of its work (task only).
    DOUBT_MAX_NS: u64 = "doubt_max_ns", Ns, Max, if of_user;
    /// Gaps in the record of the thread; each may hide an activation (task only).
    UNSEEN: u64 = "unseen", Count, Sum, if of_user;
    /// The longest response that a gap of `unseen` may hide (task only).
    UNSEEN_MAX_NS: u64 = "unseen_max_ns", Ns, Max, if of_user;
    /// Gaps of `unseen` that are possible waits for a CPU before a recorded response (task without BPF programs only).
    UNSEEN_WAITS: u64 = "unseen_waits", Count, Sum, if of_user;
    /// Responses that missed the deadline only if their possible waits took place; `overruns` does not count them (task
    /// without BPF programs only).
    POSSIBLY_LATE: u64 = "possibly_late", Count, Sum, if of_user;
    /// Quantiles in which each missed period counts as late as it would have been, which undoes coordinated omission
    /// (timer and dispatch).
    CORRECTED: Quantiles = "corrected", Other, Derived;
    /// The machine's own latency (timer, with causes): quantiles as in `corrected`, but without the time that the
    /// hypervisor or the firmware took from samples of `late_above` or more.
    OWN: Quantiles = "own", Other, Derived;
    /// The 0.99 quantile of the machine's own latency.
    OWN_P99_NS: u64 = "own_p99_ns", Ns, Derived, as "own p99" 3;
    /// The largest of the machine's own latencies.
    OWN_MAX_NS: u64 = "own_max_ns", Ns, Derived, as "own max" 3;
    /// Gaps above the threshold (stall, hwlat and osnoise; for osnoise every noise).
    GAPS: u64 = "gaps", Count, Sum, if |facts| always_if(facts.samples == Samples::Gap), as "gaps" 7;
    /// Sum of the gaps (stall, hwlat and osnoise; for a watched thread, the time that it waited in its activations).
    LOST_NS: u64 = "lost_ns", Ns, Sum, if lost;
    /// Sum of the gaps as a share of the watched time, in [0, 1] (stall, hwlat and osnoise).
    LOST_SHARE: f64 = "lost_share", Share, Derived, as "lost" 1;
    /// The time in which the tracer looked, if it looks only for a part of each window; otherwise absent.
    WATCHED_NS: u64 = "watched_ns", Ns, Derived;
    /// Median time of one loop turn (stall only).
    LOOP_NS: f64 = "loop_ns", Ns, Derived;
    /// Gaps that the scheduler makes on purpose (stall); absent if no such gap is known.
    THROTTLED: ThrottledGaps = "throttled", Other, Derived;
    /// The sources that took the time of the gaps, largest first (stall, with causes). With the source `unattributed`
    /// they add up to `lost_ns`.
    SOURCES: Vec<SourceResult> = "sources", Other, Derived;
    /// Wake-ups of the measuring thread that the BPF programs saw while samples counted (probes that wait for a
    /// timer, with causes). If this is less than `samples`, the kernel did not show the programs the rest.
    WAKEUPS_SEEN: u64 = "wakeups_seen", Count, Derived;
    /// What the thread does that a real-time thread should not; absent without an audit (task only).
    AUDIT: Vec<AuditRecord> = "audit", Other, Derived;
    /// More about the thread (task only).
    TASK: TaskRecord = "task", Other, Derived;
    /// The task that was late in the largest sample (histograms only).
    MAX_RECORD: LatencyRecord = "max_record", Other, Derived;
    /// Smallest, mean and largest sample, if quantiles are not known (results of other tools).
    EXTREMES: Extremes = "extremes", Other, Derived;
    /// Width of the buckets of the quantiles, if they are coarser than the figures suggest: the true quantile is at
    /// most the figure, and at least the figure less this width.
    BUCKET_NS: u64 = "bucket_ns", Ns, Derived;
    /// Samples above the end of another tool's histogram: a quantile among these samples is at least that end, and absent.
    ABOVE_HISTOGRAM: u64 = "above_histogram", Count, Derived;
    /// The end of another tool's histogram, if samples are above it.
    HISTOGRAM_END_NS: u64 = "histogram_end_ns", Ns, Derived;
}

impl Serialize for Quantities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (number, value) in &self.0 {
            map.serialize_entry(TABLE[usize::from(*number)].name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Quantities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Quantities;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("quantities by their names")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Quantities, A::Error> {
                let mut quantities = Quantities::default();
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    quantities.read(&name, &mut map)?;
                }
                Ok(quantities)
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

impl JsonSchema for Quantities {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantities".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let property = |row: &Row| {
            let mut schema = (row.schema)(generator);
            schema.insert("description".to_owned(), row.meaning.trim().into());
            (row.name.to_owned(), schema.to_value())
        };
        let properties: serde_json::Map<String, serde_json::Value> = TABLE.iter().map(property).collect();
        json_schema!({ "type": "object", "properties": properties })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_become_one_by_the_rule_of_each_row() {
        let of = |overruns, hz| Quantities::default().with(OVERRUNS, overruns).with(COUNTER_HZ, hz);
        let mut sum = of(3, None);
        assert!(sum.can_join(&of(4, None)) && !sum.can_join(&of(4, Some(5))));
        sum.merge(&of(4, Some(5)).with(LOST_NS, 7));
        assert_eq!((sum.get(OVERRUNS), sum.get(COUNTER_HZ), sum.get(LOST_NS)), (Some(7), Some(5), Some(7)));
        let timer = crate::SeriesName::of("timer").facts().unwrap();
        let shown = sum.of_result(&timer);
        assert_eq!((shown.get(OVERRUNS), shown.get(COUNTER_HZ), shown.get(GAPS)), (Some(7), None, None));
        let stall = crate::SeriesName::of("stall").facts().unwrap();
        assert_eq!(Quantities::default().of_result(&stall).get(GAPS), Some(0));
    }

    #[test]
    fn in_json_they_stand_under_their_names_and_are_read_again() {
        let quantiles = Quantiles { p50_ns: 5, ..Quantiles::default() };
        let cpu = crate::result::CpuResult {
            quantiles: Some(quantiles),
            quantities: Quantities::default().with(GAPS, 9).with(LOOP_NS, 1.5).with(CORRECTED, quantiles),
            ..crate::result::CpuResult::default()
        };
        let json = serde_json::to_value(&cpu).unwrap();
        let found = (&json["gaps"], &json["loop_ns"], &json["corrected"]["p50_ns"], json.get("lost_ns"));
        assert_eq!(found, (&9.into(), &1.5.into(), &5.into(), None));
        assert_eq!(serde_json::from_value::<crate::result::CpuResult>(json).unwrap(), cpu);
    }

    #[test]
    fn names_are_given_once() {
        let mut names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }
}
