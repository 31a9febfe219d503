//! The latency histograms as the files that the OSADL latency-histograms patch shows below `latency_hist`, so that
//! scripts for such kernels read them.
//!
//! Each file is what the patch prints: comments, one line for each microsecond from 0 to 10,239, and the record of
//! the maximum on one line. Some of whylate's buckets are wider than a microsecond (from 128 us on) or lie across its
//! edge. They are printed at the microsecond of their middle.

use std::fmt::Write as _;
use whylate_core::CpuId;
use whylate_core::result::{HistogramKind, KernelHistogram, LatencyRecord, Quantiles};
use whylate_core::text::is_hidden;

const MICROSECONDS: usize = 10_240;

/// Folder of a kind, relative to the top of the tree.
pub fn folder(kind: HistogramKind) -> &'static str {
    match kind {
        HistogramKind::SharedPriority => "wakeup/sharedprio",
        kind => kind.name(),
    }
}

/// The kinds that have a switch in the patch's folder `enable`; `sharedprio` is switched with `wakeup`.
pub const SWITCHES: [HistogramKind; 5] = [
    HistogramKind::Wakeup,
    HistogramKind::MissedTimerOffsets,
    HistogramKind::TimerAndWakeup,
    HistogramKind::SwitchOff,
    HistogramKind::TimerWakeupSwitch,
];

/// One file of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// Its path, relative to the top of the tree.
    pub path: String,
    pub text: String,
}

/// The two files of a histogram: its samples, and the record of its maximum.
pub fn files(cpu: CpuId, one: &KernelHistogram) -> [TreeFile; 2] {
    let file = |name: String, text| TreeFile { path: format!("{}/{name}", folder(one.kind)), text };
    let record = one.max_record.as_ref().map_or_else(|| "(none)\n".to_owned(), max_latency);
    let text = histogram(one.samples, one.quantiles.as_ref(), &one.histogram);
    [file(format!("CPU{cpu}"), text), file(format!("max_latency-CPU{cpu}"), record)]
}

/// The CPU of a file that [`files`] makes, by its name in the folder of its kind; `None` for any other file.
pub fn cpu_of(name: &str) -> Option<CpuId> {
    let number = name.strip_prefix("max_latency-").unwrap_or(name).strip_prefix("CPU")?;
    // Only the written form: without a sign or leading zeros.
    number.parse().ok().map(CpuId).filter(|cpu| cpu.to_string() == number)
}

/// The middle of a bucket, from its lower edge: a bucket's width is a 128th of its power of two, and a nanosecond
/// below 256.
pub(crate) fn middle_ns(lower_ns: u64) -> u64 {
    let half_ns = lower_ns.checked_ilog2().map_or(0, |octave| (1_u64 << octave >> 7) / 2);
    lower_ns.saturating_add(half_ns)
}

/// A file of a histogram: samples in each microsecond.
pub(crate) fn histogram(samples: u64, figures: Option<&Quantiles>, buckets: &[(u64, u64)]) -> String {
    let mut lines = vec![0_u64; MICROSECONDS];
    let mut above = 0;
    let (min_ns, max_ns) = figures.map_or((0, 0), |figures| (figures.min_ns, figures.max_ns));
    for (lower_ns, count) in buckets {
        let middle_ns = middle_ns(*lower_ns).clamp(min_ns, max_ns);
        match lines.get_mut((middle_ns / 1000) as usize) {
            Some(line) => *line += count,
            None => above += count,
        }
    }
    let micros =
        |value: Option<u64>| value.map_or_else(|| "<undef>".to_owned(), |ns| (ns / 1000).to_string());
    let mut text = String::with_capacity(26 * MICROSECONDS);
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "#Minimum latency: {} microseconds\n#Average latency: {} microseconds\n\
         #Maximum latency: {} microseconds\n#Total samples: {}\n\
         #There are 0 samples lower than 0 microseconds.\n\
         #There are {above} samples greater or equal than {MICROSECONDS} microseconds.\n\
         #usecs\t{:>16}\n",
        micros(figures.map(|figures| figures.min_ns)),
        micros(figures.map(|figures| figures.mean_ns as u64)),
        micros(figures.map(|figures| figures.max_ns)),
        samples,
        "samples",
    );
    for (microsecond, count) in lines.iter().enumerate() {
        let _ = writeln!(text, "{microsecond:>6}\t{count:>16}");
    }
    text
}

/// `1234 99 37 (0,13) cyclictest <- 0 -21 swapper/0 1234.123456 clock_nanosleep`: PID, priority, latency, its parts
/// by timer and wake-up, command, the same for the task before, time, system call.
pub fn max_latency(record: &LatencyRecord) -> String {
    let micros = |part: Option<u64>| part.unwrap_or(0) / 1000;
    format!(
        "{} {} {} ({},{}) {} <- {} {} {} {}.{:06} {}\n",
        record.pid,
        record.priority,
        record.latency_ns / 1000,
        micros(record.timer_offset_ns),
        micros(record.wakeup_ns),
        one_line(&record.command),
        record.previous_pid,
        record.previous_priority,
        one_line(&record.previous_command),
        record.at_ns / 1_000_000_000,
        record.at_ns / 1000 % 1_000_000,
        record.syscall.as_deref().unwrap_or("none"),
    )
}

/// Keeps a name from breaking the line.
fn one_line(name: &str) -> String {
    name.chars().map(|c| if is_hidden(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::result::Quantiles;
    use whylate_testing::says;

    fn record() -> LatencyRecord {
        LatencyRecord {
            pid: 1234,
            priority: 99,
            latency_ns: 37_400,
            timer_offset_ns: Some(900),
            wakeup_ns: Some(13_000),
            switch_ns: Some(1_000),
            command: "cyclictest".to_owned(),
            previous_pid: 0,
            previous_priority: -21,
            previous_command: "swapper/0".to_owned(),
            at_ns: 1_234_123_456_789,
            syscall: Some("clock_nanosleep".to_owned()),
        }
    }

    fn made(histogram: Vec<(u64, u64)>, min_ns: u64, max_ns: u64) -> KernelHistogram {
        let samples = histogram.iter().map(|(_, count)| count).sum();
        let quantiles = Some(Quantiles { min_ns, max_ns, mean_ns: 2_500.0, ..Quantiles::default() });
        let kind = HistogramKind::SharedPriority;
        KernelHistogram { kind, samples, quantiles, max_record: Some(record()), histogram }
    }

    #[test]
    fn the_record_of_the_maximum_is_one_line() {
        let line = "1234 99 37 (0,13) cyclictest <- 0 -21 swapper/0 1234.123456 clock_nanosleep\n";
        assert_eq!(max_latency(&record()), line);
        let hostile = LatencyRecord { command: "a\nb".to_owned(), syscall: None, ..record() };
        assert!(max_latency(&hostile).ends_with(" none\n"));
        assert_eq!(max_latency(&hostile).lines().count(), 1);
    }

    #[test]
    fn a_histogram_has_its_head_and_a_line_for_each_microsecond() {
        let files = files(CpuId(3), &made(vec![(200, 3), (74_752, 2), (20_000_000, 1)], 200, 20_000_100));
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["wakeup/sharedprio/CPU3", "wakeup/sharedprio/max_latency-CPU3"]);
        let names =
            ["CPU3", "max_latency-CPU3", "CPU+3", "CPU03", "CPU", "reset", "max_latency-", ".CPU3.part"];
        assert_eq!(
            names.map(|name| cpu_of(name).is_some()),
            [true, true, false, false, false, false, false, false]
        );
        let lines: Vec<&str> = files[0].text.lines().collect();
        assert_eq!(lines.len(), 7 + MICROSECONDS);
        assert_eq!(lines[0], "#Minimum latency: 0 microseconds");
        assert_eq!(lines[2], "#Maximum latency: 20000 microseconds");
        assert_eq!(lines[3], "#Total samples: 6");
        assert!(says("there-are-samples-greater", lines[5]));
        assert_eq!(lines[6], "#usecs\t         samples");
        assert_eq!(lines[7], "     0\t               3");
        // This bucket is 512 ns wide, and its middle is in the next microsecond.
        assert_eq!(lines[7 + 75], "    75\t               2");
        let of = |line: &&str| line.split('\t').nth(1).and_then(|count| count.trim().parse::<u64>().ok());
        assert_eq!(lines[7..].iter().filter_map(of).sum::<u64>(), 5);
    }

    #[test]
    fn without_samples_nothing_is_claimed() {
        let mut one = made(Vec::new(), 0, 0);
        (one.quantiles, one.max_record) = (None, None);
        let files = files(CpuId(3), &one);
        assert!(files[0].text.starts_with("#Minimum latency: <undef> microseconds\n"));
        assert_eq!(files[1].text, "(none)\n");
    }
}
