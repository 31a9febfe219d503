//! HdrHistogram interval logs, for its tools and viewers: one line with a tag for each cell, probe and CPU.

use super::{ExportError, Exported, Series, all};
use crate::osadl::middle_ns;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use std::time::Duration;

/// The width of whylate's buckets is a 128th of their value.
const DIGITS: u8 = 3;

/// The whole run as one interval of each series; latencies in nanoseconds.
pub fn hdr(run: &Exported) -> Result<String, ExportError> {
    let (mut bytes, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let failed = |series: &str, reason: String| ExportError::Hdr { series: series.to_owned(), reason };
    let comment = format!("whylate: {}; values in nanoseconds", run.title);
    let mut builder = IntervalLogWriterBuilder::new();
    builder.add_comment(comment.replace(['\n', '\r'], " ").as_str());
    {
        let mut writer = builder
            .begin_log_with(&mut bytes, &mut serializer)
            .map_err(|error| failed("the header", error.to_string()))?;
        for series in all(run).filter(|series| !series.cpu.histogram.is_empty()) {
            let name = tag(&series);
            let histogram = histogram(&series).map_err(|reason| failed(&name, reason))?;
            let tag =
                Tag::new(&name).ok_or_else(|| failed(&name, "its name is not a valid tag".to_owned()))?;
            let length = Duration::from_nanos(series.cpu.measured_ns);
            writer
                .write_histogram(&histogram, Duration::ZERO, length, Some(tag))
                .map_err(|error| failed(&name, format!("{error:?}")))?;
        }
    }
    String::from_utf8(bytes).map_err(|error| failed("the log", error.to_string()))
}

/// `l3:timer:cpu1`, without characters that end a tag.
fn tag(series: &Series<'_>) -> String {
    let name = format!("{}:{}:cpu{}", series.cell.name, series.name(), series.cpu.cpu);
    name.replace(|c: char| c == ',' || c.is_whitespace() || c.is_control(), "_")
}

fn histogram(series: &Series<'_>) -> Result<Histogram<u64>, String> {
    let mut histogram = Histogram::<u64>::new(DIGITS).map_err(|error| error.to_string())?;
    let most = series.cpu.quantiles.map_or(u64::MAX, |figures| figures.max_ns);
    for (lower_ns, count) in &series.cpu.histogram {
        let value = middle_ns(*lower_ns).min(most);
        histogram.record_n(value, *count).map_err(|error| error.to_string())?;
    }
    Ok(histogram)
}
