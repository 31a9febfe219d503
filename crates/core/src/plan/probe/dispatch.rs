//! The dispatch probe: a process that waits for an interrupt, from the interrupt's programmed moment to its first
//! instruction.

use super::{Policy, ProbeFacts, ProbeWords, Samples, check_period, check_samples, refuse_deadline};
use crate::cpus::CpuSelector;
use crate::plan::flag::Flag;
use crate::plan::kinds::KeyError;
use crate::units::{Nanos, as_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Default period, for sources that do not have their own.
const INTERVAL_DEFAULT: Nanos = Nanos::from_millis(1);
/// The highest rate of the real-time clock's periodic interrupt (`RTC_MAX_FREQ` of the kernel).
const RTC_HZ_MAX: u64 = 8192;

/// The dispatch probe: from an interrupt to the process that waits for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate measure dispatch --cpu 1
  whylate measure dispatch --cpu isolated --source nanosleep --samples 10000
  whylate measure dispatch --cpu 3 --source rtc --interval 500us --duration 1m --json
  whylate measure dispatch --cpu 3 --source uio0 --interval 1ms

Below the table is a histogram with a row for each 10 us. timerfd, nanosleep and rtc report the
programmed time of an interrupt. For the other sources whylate estimates this time from the period
and the earliest recent interrupt."))]
pub struct DispatchPlan {
    /// CPUs to measure; by default the plan's target CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSelector>,
    /// What raises the interrupt: `timerfd`, `nanosleep`, `rtc`, `rtc-update`, `hpet`, or a UIO device such as `uio0`.
    pub source: DispatchSource,
    /// Time between two interrupts; by default `1ms`. For a UIO device, give the period of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Nanos>,
    /// Ends early, once a CPU has this number of samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-flag" = Flag::by_default("60000")))]
    pub samples: Option<u64>,
    /// Real-time priority, 1 to 99 (`fifo` and `rr` only).
    pub priority: u32,
    /// Scheduling policy of the threads (not `deadline`).
    pub policy: Policy,
    /// Stops the measurement at a latency above this; the exit code is then 2.
    #[serde(rename = "break", skip_serializing_if = "Option::is_none")]
    pub break_above: Option<Nanos>,
    /// Whether `/dev/cpu_dma_latency` is set to 0, which keeps CPUs out of deep idle states.
    #[schemars(extend("x-flag" = Flag::idle_states()))]
    pub hold_cpu_dma_latency: bool,
    /// Whether BPF programs also measure the parts of each latency (needs root, BPF and BTF).
    #[schemars(extend("x-flag" =
        Flag::off("no-parts", "Measures only total latencies, without the BPF programs that measure their parts")))]
    pub parts: bool,
}

impl Default for DispatchPlan {
    fn default() -> Self {
        Self {
            cpus: None,
            source: DispatchSource::Timerfd,
            interval: None,
            samples: None,
            priority: 95,
            policy: Policy::Fifo,
            break_above: None,
            hold_cpu_dma_latency: true,
            parts: true,
        }
    }
}

impl DispatchPlan {
    /// Time between two interrupts of its source.
    ///
    /// # Errors
    /// Why the source cannot have the period that was asked for, with what it can have.
    pub fn period(&self) -> Result<Nanos, String> {
        let source = self.source;
        match (source, self.interval) {
            (DispatchSource::Uio(_), None) => Err(format!(
                "the probe cannot know how often {source} interrupts; give the device's period with `interval`, for example `1ms`"
            )),
            (DispatchSource::RtcUpdate, Some(interval)) if interval != Nanos::from_secs(1) => Err(format!(
                "{interval} is not possible: the clock updates once a second; leave `interval` out"
            )),
            (DispatchSource::RtcUpdate, _) => Ok(Nanos::from_secs(1)),
            (DispatchSource::Rtc, interval) => {
                let interval = interval.unwrap_or(INTERVAL_DEFAULT);
                check_period(interval)?;
                match rtc_frequency_hz(interval) {
                    // The kernel's own period: a whole number of interrupts a second, rounded down to nanoseconds.
                    Some(frequency) => Ok(Nanos(1_000_000_000 / frequency)),
                    None => Err(format!(
                        "{interval} is out of range; the real-time clock interrupts 1 to {RTC_HZ_MAX} times a second"
                    )),
                }
            }
            (_, interval) => {
                let interval = interval.unwrap_or(INTERVAL_DEFAULT);
                check_period(interval).map(|()| interval)
            }
        }
    }
}

impl ProbeWords for DispatchPlan {
    fn facts(_: Option<&str>) -> ProbeFacts {
        let lateness = ProbeFacts::of(Samples::Lateness);
        ProbeFacts { misses_periods: true, in_rows: true, ..lateness }
    }

    fn check(&self) -> Result<(), KeyError> {
        refuse_deadline(self.policy)?;
        DispatchPlan::period(self).map_err(|message| KeyError::new("interval", message))?;
        check_samples(self.samples)
    }

    fn scheduling(&self) -> (Policy, u32) {
        (self.policy, self.priority)
    }

    fn break_above(&self) -> Option<Nanos> {
        self.break_above
    }

    fn cpus(&self) -> Option<&CpuSelector> {
        self.cpus.as_ref()
    }

    fn period(&self) -> Option<Nanos> {
        DispatchPlan::period(self).ok()
    }

    fn series(&self) -> Vec<String> {
        vec![self.source.to_string()]
    }
}

/// The nearest whole rate of the real-time clock; `None` when it has none like that.
fn rtc_frequency_hz(interval: Nanos) -> Option<u64> {
    let frequency = (1_000_000_000 + interval.0 / 2) / interval.0.max(1);
    (1..=RTC_HZ_MAX).contains(&frequency).then_some(frequency)
}

/// What interrupts the CPU and wakes the waiting process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DispatchSource {
    /// A periodic timerfd, read.
    Timerfd,
    /// A high-resolution timer of the thread's own: `clock_nanosleep` until an absolute time.
    Nanosleep,
    /// The periodic interrupt of `/dev/rtc0`, read; Linux makes it from a high-resolution timer.
    Rtc,
    /// The update interrupt of `/dev/rtc0`, once a second, read.
    RtcUpdate,
    /// A periodic timer of `/dev/hpet`, read.
    Hpet,
    /// The interrupt of a user-space driver's device, `/dev/uioN`, read.
    Uio(u32),
}

impl DispatchSource {
    /// Whether it reports exactly for which moment it was programmed. If not, a sample is how much later the process
    /// ran than in the earliest of the last samples, on the grid of the period.
    pub fn tells_expiry(self) -> bool {
        matches!(self, Self::Timerfd | Self::Nanosleep | Self::Rtc)
    }
}

impl FromStr for DispatchSource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "timerfd" => Self::Timerfd,
            "nanosleep" => Self::Nanosleep,
            "rtc" => Self::Rtc,
            "rtc-update" => Self::RtcUpdate,
            "hpet" => Self::Hpet,
            _ => {
                let number = text.strip_prefix("/dev/").unwrap_or(text).strip_prefix("uio");
                Self::Uio(number.and_then(|digits| digits.parse().ok()).ok_or_else(|| {
                    format!(
                        "`{text}` is not a source of interrupts; choose timerfd, nanosleep, rtc, rtc-update, hpet or uio0"
                    )
                })?)
            }
        })
    }
}

impl fmt::Display for DispatchSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timerfd => f.write_str("timerfd"),
            Self::Nanosleep => f.write_str("nanosleep"),
            Self::Rtc => f.write_str("rtc"),
            Self::RtcUpdate => f.write_str("rtc-update"),
            Self::Hpet => f.write_str("hpet"),
            Self::Uio(number) => write!(f, "uio{number}"),
        }
    }
}

as_text!(
    DispatchSource,
    "timerfd",
    "What raises the interrupt: timerfd, nanosleep, rtc, rtc-update, hpet, or uioN"
);

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    fn period(source: &str, interval: Option<&str>) -> Result<Nanos, String> {
        let interval = interval.map(|text| text.parse().unwrap());
        DispatchPlan { source: source.parse().unwrap(), interval, ..DispatchPlan::default() }.period()
    }

    #[test]
    fn each_source_has_the_periods_that_it_can_have() {
        assert_eq!(period("timerfd", None), Ok(Nanos::from_millis(1)));
        assert_eq!(period("nanosleep", Some("200us")), Ok(Nanos::from_micros(200)));
        assert!(period("timerfd", Some("10ns")).is_err());
        // 1,024 interrupts a second, in the whole nanoseconds that the kernel counts.
        assert_eq!(period("rtc", Some("976562ns")), Ok(Nanos(976_562)));
        assert!(says("times-second", period("rtc", Some("10us")).unwrap_err()));
        assert_eq!(period("rtc-update", None), Ok(Nanos::from_secs(1)));
        assert!(period("rtc-update", Some("1ms")).is_err());
        assert!(period("uio0", None).unwrap_err().contains("`interval`"));
        assert_eq!(period("uio0", Some("5ms")), Ok(Nanos::from_millis(5)));
    }

    #[test]
    fn sources_read_back() {
        for text in ["timerfd", "nanosleep", "rtc", "rtc-update", "hpet", "uio3"] {
            assert_eq!(text.parse::<DispatchSource>().unwrap().to_string(), text);
        }
        assert_eq!("/dev/uio12".parse(), Ok(DispatchSource::Uio(12)));
        assert!("uio".parse::<DispatchSource>().is_err() && "eventfd".parse::<DispatchSource>().is_err());
    }
}
