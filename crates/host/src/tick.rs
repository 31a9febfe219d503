//! The periodic tick and the timers of each CPU, from /proc/timer_list (for root only).

use crate::{HostError, HostRoot};
use std::collections::BTreeMap;
use whylate_core::units::CpuId;

/// What /proc/timer_list says of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimers {
    /// Whether the tick is stopped; absent on kernels without NO_HZ.
    pub tick_stopped: Option<bool>,
    /// The functions of its high-resolution timers, each once, in the order of expiry.
    pub functions: Vec<String>,
}

/// Reads the state of every online CPU; `None` if the file cannot be read.
pub fn read(root: &HostRoot) -> Result<Option<BTreeMap<CpuId, CpuTimers>>, HostError> {
    Ok(root.read("/proc/timer_list")?.map(|text| parse(&text)))
}

/// Parses kernel/time/timer_list.c's text; what is in another form is left out.
pub fn parse(text: &str) -> BTreeMap<CpuId, CpuTimers> {
    let mut cpus: BTreeMap<CpuId, CpuTimers> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("cpu: ") {
            current = number.trim().parse().ok().map(CpuId);
        } else if line.starts_with("Tick Device") {
            current = None;
        }
        let Some(cpu) = current else { continue };
        let timers = cpus.entry(cpu).or_default();
        let line = line.trim();
        if let Some((_, value)) = line.strip_prefix(".tick_stopped").and_then(|rest| rest.split_once(':')) {
            timers.tick_stopped = value.trim().parse::<u64>().ok().map(|value| value != 0);
        } else if let Some(function) = function(line)
            && !timers.functions.contains(&function)
        {
            timers.functions.push(function);
        }
    }
    cpus
}

/// `hrtimer_wakeup` of ` #2: <00000000aa0bddd7>, hrtimer_wakeup, S:01`.
fn function(line: &str) -> Option<String> {
    let (number, rest) = line.strip_prefix('#')?.split_once(": ")?;
    number.parse::<u32>().ok()?;
    let name = rest.split(", ").nth(1)?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
Timer List Version: v0.10
now at 12110796215284 nsecs

cpu: 0
 clock 0:
  .base:       00000000d666e502
active timers:
 #0: <000000001c7a0198>, tick_nohz_handler, S:01
 # expires at 12110800000000-12110800000000 nsecs [in 3784716 to 3784716 nsecs]
 #1: <00000000aa0bddd7>, hrtimer_wakeup, S:01
 #2: <00000000aa0bddd8>, hrtimer_wakeup, S:01
  .tick_stopped   : 0
jiffies: 4297919942

cpu: 1
  .tick_stopped   : 1

Tick Device: mode:     1
Broadcast device
  .tick_stopped   : 7
";

    #[test]
    fn ticks_and_functions_of_each_cpu() {
        let cpus = parse(TEXT);
        let functions = ["tick_nohz_handler", "hrtimer_wakeup"].map(str::to_owned).to_vec();
        assert_eq!(cpus[&CpuId(0)], CpuTimers { tick_stopped: Some(false), functions });
        assert_eq!(cpus[&CpuId(1)], CpuTimers { tick_stopped: Some(true), functions: vec![] });
        assert_eq!(cpus.len(), 2);
        assert!(parse("").is_empty());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(cpu: |\\.tick_stopped|#[0-9]|: |, |<a>|\\PC){0,30}(\n(cpu: |\\.tick_stopped ?:?|#[0-9]: |, |[0-9]){0,6}){0,6}") {
            let _ = parse(&text);
        }
    }
}
