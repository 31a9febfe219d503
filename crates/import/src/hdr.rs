//! HdrHistogram's interval logs, as jHiccup, wrk2 and Cassandra's tools write them: a line for each interval, with its
//! largest value in milliseconds and its histogram, packed. V0 and V1 count in words of the size that their cookie has; V2,
//! which logs of version 1.2 and 1.3 have, in LEB128 with runs of zeros.

use crate::lines::ToolLines;
use crate::series::ToolSeries;
use crate::{Imported, Problem};
use flate2::read::ZlibDecoder;
use std::collections::BTreeMap;
use std::io::Read;
use whylate_core::figure::nanoseconds;

/// A histogram has no more bytes.
const UNPACKED_MAX: u64 = 32 << 20;
/// Cookies of the histograms and of the packed ones around them, without the size of a word.
const V0: (i32, i32) = (0x1c84_9308, 0x1c84_9309);
const V1: (i32, i32) = (0x1c84_9301, 0x1c84_9302);
const V2: (i32, i32) = (0x1c84_9303, 0x1c84_9304);

/// What one tag has.
#[derive(Default)]
struct Tagged {
    /// Upper end of a bucket, with its count.
    buckets: BTreeMap<u64, u64>,
    intervals: u64,
    unread: u64,
    max_ns: u64,
    max_at: String,
    measured_ns: f64,
}

pub(crate) fn read(lines: &ToolLines<'_>) -> Result<Imported, Problem> {
    let mut all: BTreeMap<String, Tagged> = BTreeMap::new();
    let ratio = lines.behind("#[Interval_Max Value Ratio").or_else(|| lines.behind("#[MaxValueDivisor:"));
    let ratio: Option<f64> =
        ratio.and_then(|it| it.text.trim_start_matches([':', ' ']).trim_end_matches(']').parse().ok());
    let mut end = lines.ends("");
    for line in lines.iter() {
        let is_comment = line.text.starts_with(['#', '"']) || line.text.starts_with("Start");
        if line.text.is_empty() || is_comment {
            continue;
        }
        let (tag, text) = match line.text.strip_prefix("Tag=").and_then(|it| it.split_once(',')) {
            Some((tag, rest)) => (tag.to_owned(), rest),
            None => (String::new(), line.text),
        };
        let cells: Vec<&str> = text.split(',').map(str::trim).collect();
        let number = |at: usize| cells.get(at).and_then(|it| it.parse::<f64>().ok());
        let (Some(_), Some(length), Some(max), Some(packed)) =
            (number(0), number(1), number(2), cells.get(3))
        else {
            return Err(line.problem(
                "a line needs a start, a length, a maximum and a histogram: is this line cut off?",
            ));
        };
        let own = all.entry(tag).or_default();
        own.intervals += 1;
        own.measured_ns += length * 1e9;
        let mut unpacked = BTreeMap::new();
        let is_whole = unpack(packed, &mut unpacked).is_some();
        // Writers that name no ratio divide by a million, as the log's first form did, or by nothing, as that in Rust does.
        let top = unpacked.keys().next_back().map_or(0.0, |top| *top as f64);
        let is_plain = is_whole && (max - top).abs() <= top / 50.0;
        let unit_ns = ratio.unwrap_or(if is_plain { 1.0 } else { 1e6 });
        let max_ns = (max * unit_ns).max(0.0).round() as u64;
        if max_ns > own.max_ns {
            (own.max_ns, own.max_at) = (max_ns, cells[0].to_owned());
        }
        own.unread += u64::from(!is_whole);
        for (ns, count) in unpacked {
            let sum = own.buckets.entry(ns).or_default();
            *sum = sum.saturating_add(count);
        }
        end = line.problem("");
    }
    if all.is_empty() {
        return Err(lines.ends("no line has an interval"));
    }
    let mut remarks = vec![
        "values are taken as nanoseconds, the tool's own unit; they include stalls of the whole process (garbage collection, safepoints) and delays by the kernel"
            .to_owned(),
    ];
    if all.len() > 1 {
        remarks.push(format!(
            "the file has {} tags: each is a separate series, and samples are not added up across tags",
            all.len()
        ));
    }
    let series = all.into_iter().map(|(tag, own)| {
        let name = if tag.is_empty() { String::new() } else { format!(" of tag {tag}") };
        remarks.push(format!(
            "the largest value{name}, {}, is in the interval that begins at {} s, one of {} intervals",
            nanoseconds(own.max_ns),
            own.max_at,
            own.intervals
        ));
        let is_whole = own.unread == 0;
        if !is_whole {
            remarks.push(format!(
                "some histograms{name} ({}) are damaged or have an unknown format: only their largest values \
                 are known",
                own.unread
            ));
        }
        let count = own.buckets.values().fold(0u64, |sum, count| sum.saturating_add(*count));
        let max_ns = own.max_ns;
        ToolSeries {
            series: (!tag.is_empty()).then(|| tag.into()),
            count: is_whole.then_some(count),
            // A bucket ends above the value that is in it.
            buckets: own
                .buckets
                .into_iter()
                .filter(|_| is_whole)
                .map(|(ns, count)| (ns.min(max_ns), count))
                .collect(),
            max_ns: Some(max_ns),
            measured_ns: own.measured_ns as u64,
            at: (end.line, end.column),
            ..ToolSeries::of(0)
        }
    });
    let series = series.collect();
    Ok(Imported { probe: "timer", series, remarks, ..Imported::default() })
}

/// Adds the buckets of a packed histogram; `None` if it is damaged or of no known form.
fn unpack(packed: &str, buckets: &mut BTreeMap<u64, u64>) -> Option<()> {
    let bytes = base64(packed)?;
    let outer = bytes.get(..4).and_then(|it| it.try_into().ok()).map(i32::from_be_bytes)?;
    let mut plain = Vec::new();
    ZlibDecoder::new(bytes.get(8..)?).take(UNPACKED_MAX).read_to_end(&mut plain).ok()?;
    let word = |at: usize| plain.get(at..at + 4).and_then(|it| it.try_into().ok()).map(i32::from_be_bytes);
    let long = |at: usize| plain.get(at..at + 8).and_then(|it| it.try_into().ok()).map(i64::from_be_bytes);
    let cookie = word(0)?;
    let version = [V0, V1, V2].into_iter().find(|it| it.0 == cookie & !0xf0)?;
    (outer & !0xf0 == version.1).then_some(())?;
    // V0 has neither a length nor a ratio: its words go on to the end.
    let (digits, lowest, counts) = if version == V0 {
        (word(4)?, long(8)?, plain.get(32..)?)
    } else {
        let length = usize::try_from(word(4)?).ok()?;
        (word(12)?, long(16)?, plain.get(40..40usize.checked_add(length)?)?)
    };
    ((0..=5).contains(&digits) && lowest >= 1).then_some(())?;
    let magnitude = (2.0 * 10f64.powi(digits)).log2().ceil() as u32;
    let half = magnitude.max(1) - 1;
    let unit = lowest.ilog2();
    let values =
        if version == V2 { Some(leb128(counts)) } else { words(counts, (cookie >> 4 & 0xe) as usize) }?;
    let mut index = 0u64;
    let mut found = Vec::new();
    for value in values {
        if value < 0 {
            // Only V2 has runs of zeros.
            (version == V2).then_some(())?;
            index = index.checked_add(value.unsigned_abs())?;
            continue;
        }
        if value > 0 {
            let (bucket, sub) = match (index >> half).checked_sub(1) {
                Some(bucket) => (bucket, (index & ((1 << half) - 1)) + (1 << half)),
                None => (0, index),
            };
            let shift = u32::try_from(bucket).ok()?.checked_add(unit).filter(|it| *it < 50)?;
            let upper = sub.checked_shl(shift)?.checked_add((1 << shift) - 1)?;
            found.push((upper, value.unsigned_abs()));
        }
        index += 1;
    }
    for (upper, count) in found {
        let own = buckets.entry(upper).or_default();
        *own = own.saturating_add(count);
    }
    Some(())
}

fn leb128(bytes: &[u8]) -> Vec<i64> {
    let mut bytes = bytes.iter().copied();
    std::iter::from_fn(|| zigzag(&mut bytes)).collect()
}

/// Counts of 2, 4 or 8 bytes.
fn words(bytes: &[u8], size: usize) -> Option<Vec<i64>> {
    let wide = |word: &[u8]| word.iter().fold(0i64, |sum, byte| sum << 8 | i64::from(*byte));
    matches!(size, 2 | 4 | 8).then(|| bytes.chunks_exact(size).map(wide).collect())
}

/// LEB128 of at most nine bytes, with the sign in the lowest bit.
fn zigzag(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut value = 0u64;
    for place in 0..9 {
        let byte = bytes.next()?;
        if place == 8 {
            value |= u64::from(byte) << 56;
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some((value >> 1) as i64 ^ -((value & 1) as i64))
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}
