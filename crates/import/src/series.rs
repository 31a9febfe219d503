//! A tool's figures of one CPU, and the result made from them.

use crate::Problem;
use std::borrow::Cow;
use whylate_core::CpuId;
use whylate_core::quantity::{
    ABOVE_HISTOGRAM, BUCKET_NS, EXTREMES, GAPS, HISTOGRAM_END_NS, LOST_NS, LOST_SHARE, OVERRUNS, Quantities,
};
use whylate_core::result::{CpuResult, Extremes, Quantiles};
use whylate_stats::Histogram;

/// A tool's figures of one CPU (or thread, or context of one).
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolSeries {
    pub(crate) cpu: u32,
    pub(crate) series: Option<Cow<'static, str>>,
    /// Each value with its count, in nanoseconds.
    pub(crate) buckets: Vec<(u64, u64)>,
    /// Samples that the histogram lacks because they are at or above `limit_ns`.
    pub(crate) over: u64,
    pub(crate) limit_ns: u64,
    /// Width of the buckets, where it is more than one unit: a sample is anywhere in its bucket, and is counted at its end.
    pub(crate) bucket_ns: Option<u64>,
    /// Number of samples, where the tool counts them itself.
    pub(crate) count: Option<u64>,
    pub(crate) min_ns: Option<u64>,
    pub(crate) mean_ns: Option<f64>,
    pub(crate) max_ns: Option<u64>,
    /// For tools with quantiles and without a histogram.
    pub(crate) quantiles: Option<Quantiles>,
    pub(crate) gaps: Option<u64>,
    pub(crate) overruns: Option<u64>,
    pub(crate) lost_ns: Option<u64>,
    pub(crate) measured_ns: u64,
    /// Where it ends in the file, for errors about contradictions.
    pub(crate) at: (usize, usize),
}

impl ToolSeries {
    pub(crate) fn of(cpu: u32) -> Self {
        Self { cpu, ..Self::default() }
    }

    /// The same if the values read as microseconds are nanoseconds.
    pub(crate) fn in_nanoseconds(self) -> Self {
        Self {
            min_ns: self.min_ns.map(|ns| ns / 1000),
            mean_ns: self.mean_ns.map(|ns| ns / 1000.0),
            max_ns: self.max_ns.map(|ns| ns / 1000),
            ..self
        }
    }

    /// The result, and warnings about what it lacks.
    pub(crate) fn finish(self) -> Result<(CpuResult, Option<String>), Problem> {
        let problem = |message| Problem { line: self.at.0, column: self.at.1, message };
        let counted = self.counted().map_err(problem)?;
        let histogram = self.histogram(counted);
        // A mean outside the extremes comes from a row that was cut or damaged.
        let (least, most) = (self.min_ns.unwrap_or(0), self.max_ns.unwrap_or(u64::MAX));
        let is_between = |mean: &f64| *mean + 1e3 >= least as f64 && *mean <= most as f64 + 1e3;
        let mean_ns = self.mean_ns.filter(is_between);
        let remark = (counted > 0).then(|| self.remark(counted)).flatten();
        let exact = |figures: Quantiles| {
            let (min_ns, max_ns) =
                (self.min_ns.unwrap_or(figures.min_ns), self.max_ns.unwrap_or(figures.max_ns));
            // A bucket must not contradict the extremes.
            let within = |ns: u64| ns.clamp(min_ns.min(max_ns), max_ns);
            Quantiles {
                min_ns,
                mean_ns: mean_ns.unwrap_or(figures.mean_ns),
                p50_ns: within(figures.p50_ns),
                p99_ns: within(figures.p99_ns),
                p999_ns: within(figures.p999_ns),
                p9999_ns: within(figures.p9999_ns),
                max_ns,
            }
        };
        let quantiles = self.quantiles.or_else(|| histogram.quantiles().map(exact));
        let samples = self.count.unwrap_or(histogram.count());
        let extremes = Extremes { min_ns: self.min_ns, mean_ns, max_ns: self.max_ns };
        let lost_share = self
            .lost_ns
            .filter(|_| self.measured_ns > 0)
            .map(|lost_ns| (lost_ns as f64 / self.measured_ns as f64).min(1.0));
        let extremes = Some(extremes).filter(|it| quantiles.is_none() && *it != Extremes::default());
        let quantities = Quantities::default()
            .with(EXTREMES, extremes)
            .with(BUCKET_NS, self.bucket_ns)
            .with(ABOVE_HISTOGRAM, Some(counted).filter(|above| *above > 0))
            .with(HISTOGRAM_END_NS, Some(self.limit_ns).filter(|_| counted > 0))
            .with(OVERRUNS, self.overruns)
            .with(GAPS, self.gaps)
            .with(LOST_NS, self.lost_ns)
            .with(LOST_SHARE, lost_share);
        let result = CpuResult {
            cpu: CpuId(self.cpu),
            series: self.series.map(Cow::into_owned),
            samples,
            quantiles,
            quantities,
            measured_ns: self.measured_ns,
            histogram: histogram.buckets().collect(),
            ..CpuResult::default()
        };
        Ok((result, remark))
    }

    /// What the tool counts in: 1 us, or 1 ns.
    fn unit_ns(&self) -> u64 {
        if self.buckets.iter().all(|(ns, _)| ns.is_multiple_of(1000)) { 1000 } else { 1 }
    }

    /// How many samples are above the histogram.
    fn counted(&self) -> Result<u64, String> {
        let inside = self.buckets.iter().try_fold(0u64, |sum, (_, count)| sum.checked_add(*count));
        let inside = inside.ok_or("the counts of the histogram are impossibly large")?;
        if let (Some(min), Some(max)) = (self.min_ns, self.max_ns)
            && min > max
        {
            return Err(format!("the smallest value ({min} ns) is above the largest ({max} ns)"));
        }
        match self.count {
            Some(count) if inside.saturating_add(self.over) > count => {
                let all = inside.saturating_add(self.over);
                Err(format!("the histogram has {all} samples, but the tool counted {count}"))
            }
            Some(count) if inside > 0 && self.over == 0 => Ok(count - inside),
            _ => Ok(self.over),
        }
    }

    fn histogram(&self, over: u64) -> Histogram {
        let mut histogram = Histogram::new();
        let unit = self.bucket_ns.map_or(0, |width_ns| width_ns.saturating_sub(self.unit_ns()));
        for (value_ns, count) in &self.buckets {
            histogram.record_n(value_ns.saturating_add(unit), *count);
        }
        if over > 0 {
            let max_ns = self.max_ns.unwrap_or(self.limit_ns).max(self.limit_ns);
            histogram.record_n(self.limit_ns, over - 1);
            histogram.record(max_ns);
        }
        histogram
    }

    /// Only the largest sample above the histogram is known.
    fn remark(&self, over: u64) -> Option<String> {
        (over > 1).then(|| {
            let name = self.series.as_ref().map(|series| format!(" ({series})")).unwrap_or_default();
            format!(
                "CPU {}{name}: {over} samples are above the end of the histogram, {} us; except the largest, \
                 they count as this value, and quantiles among them are not known",
                self.cpu,
                self.limit_ns / 1000
            )
        })
    }
}
