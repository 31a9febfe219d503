//! How often each CPU handled each interrupt: /proc/interrupts and /proc/softirqs.
//!
//! These are counts, not times: they say that a line was busy on a CPU, never how long it took. `CAL` includes
//! `TLB` on x86 (both are function calls to another CPU).

use crate::{HostError, HostRoot};
use std::collections::BTreeMap;
use whylate_core::cpus::CpuSet;
use whylate_core::order::InOrder;
use whylate_core::record::InterruptRecord;
use whylate_core::units::CpuId;

/// Prefix of softirq vectors in [`InterruptRecord::line`].
const SOFTIRQ_PREFIX: &str = "softirq:";

/// The counters of all interrupt lines and softirq vectors at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    lines: BTreeMap<String, InterruptLine>,
}

/// One line, counted per CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct InterruptLine {
    description: String,
    counts: BTreeMap<CpuId, u64>,
}

impl Counts {
    /// Reads /proc/interrupts and /proc/softirqs; what is absent is left out.
    pub fn read(root: &HostRoot) -> Result<Self, HostError> {
        let interrupts = root.read("/proc/interrupts")?.unwrap_or_default();
        let softirqs = root.read("/proc/softirqs")?.unwrap_or_default();
        Ok(Self::parse(&interrupts, &softirqs))
    }

    /// Parses the two texts. Lines that are not counted per CPU (`ERR`, `MIS`) or that have fewer columns than the
    /// header are left out.
    pub fn parse(interrupts: &str, softirqs: &str) -> Self {
        let mut counts = Self::default();
        counts.add(interrupts, "");
        counts.add(softirqs, SOFTIRQ_PREFIX);
        counts
    }

    /// Whether nothing was counted at all: the files are absent or in an unknown form.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The counter of one line on one CPU; `None` when there is no such line or the CPU is offline.
    pub fn of(&self, line: &str, cpu: CpuId) -> Option<u64> {
        self.lines.get(line)?.counts.get(&cpu).copied()
    }

    /// What else the kernel says of a line: the chip, the wiring and the devices.
    pub fn description(&self, line: &str) -> Option<&str> {
        Some(self.lines.get(line)?.description.as_str())
    }

    /// What the CPUs of `cpus` handled between two reads, sorted by CPU, then line; lines that did not move are
    /// left out.
    ///
    /// The kernel's counters have 32 bits and may wrap once between two reads. A counter that fell without being
    /// near its end started again at zero (the interrupt was freed and its number given to another).
    pub fn delta(before: &Self, after: &Self, cpus: &CpuSet) -> Vec<InterruptRecord> {
        let mut records = Vec::new();
        for (name, line) in &after.lines {
            for (&cpu, &now) in line.counts.iter().filter(|(cpu, _)| cpus.contains(**cpu)) {
                let count = difference(before.of(name, cpu).unwrap_or(0), now);
                if count > 0 {
                    let description = line.description.clone();
                    records.push(InterruptRecord { cpu, line: name.clone(), description, count });
                }
            }
        }
        records.order_by(|a, b| (a.cpu, &a.line).cmp(&(b.cpu, &b.line)));
        records
    }

    fn add(&mut self, text: &str, prefix: &str) {
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default().split_ascii_whitespace();
        let cpus: Option<Vec<CpuId>> =
            header.map(|name| Some(CpuId(name.strip_prefix("CPU")?.parse().ok()?))).collect();
        let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) else { return };
        for line in lines {
            let Some((name, rest)) = line.split_once(':') else { continue };
            let name = name.trim();
            // Counted for the whole machine; with one CPU they look like any other line.
            if name.is_empty() || name.eq_ignore_ascii_case("ERR") || name == "MIS" {
                continue;
            }
            let mut fields = rest.split_ascii_whitespace();
            let numbers = cpus.iter().map(|_| fields.next()?.parse::<u64>().ok());
            let Some(numbers) = numbers.collect::<Option<Vec<u64>>>() else { continue };
            let description = fields.collect::<Vec<_>>().join(" ");
            let counts = cpus.iter().copied().zip(numbers).collect();
            self.lines.insert(format!("{prefix}{name}"), InterruptLine { description, counts });
        }
    }
}

fn difference(before: u64, after: u64) -> u64 {
    const WRAP: u64 = 1 << 32;
    if after >= before {
        after - before
    } else if (WRAP / 2..WRAP).contains(&before) {
        after + WRAP - before
    } else {
        after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const X86: &str = "\
            CPU0       CPU1       CPU3
   0:         42          0          0  IR-IO-APIC    2-edge      timer
 140:          0         17 4294967290  IR-PCI-MSIX-0000:00:02.0    0-edge      i915
 LOC:     105843      98211      77001   Local timer interrupts
 CAL:       1925       1659         12   Function call interrupts
 ERR:          0
 MIS:          0
";

    const ARM64: &str = "\
           CPU0       CPU1
 13:     100233      98120    GICv3  26 Level     arch_timer
IPI0:        100        200       Rescheduling interrupts
IPI1:          0          7       Function call interrupts
Err:          0
";

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn columns_of_offline_cpus_are_missing_not_shifted() {
        let counts = Counts::parse(X86, "");
        assert_eq!(counts.of("140", CpuId(3)), Some(4_294_967_290));
        assert_eq!(counts.of("140", CpuId(2)), None);
        assert_eq!(counts.of("ERR", CpuId(0)), None);
    }

    #[test]
    fn arm64_lines_keep_their_interrupt_numbers_in_the_description() {
        let after = Counts::parse(ARM64, "");
        let records = Counts::delta(&Counts::default(), &after, &set("1"));
        let lines: Vec<_> =
            records.iter().map(|r| (r.line.as_str(), r.description.as_str(), r.count)).collect();
        let expected = [
            ("13", "GICv3 26 Level arch_timer", 98_120),
            ("IPI0", "Rescheduling interrupts", 200),
            ("IPI1", "Function call interrupts", 7),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn deltas_of_wrapped_reused_and_quiet_lines() {
        let before = Counts::parse(X86, "     CPU0 CPU1 CPU3\n  TIMER: 5 5 5\n");
        let text =
            X86.replace("4294967290", "         4").replace("105843", "105853").replace("1925", "  25");
        let after = Counts::parse(&text, "     CPU0 CPU1 CPU3\n  TIMER: 6 5 5\n");
        let records = Counts::delta(&before, &after, &set("0-3"));
        let lines: Vec<_> = records.iter().map(|r| (r.cpu.0, r.line.as_str(), r.count)).collect();
        assert_eq!(lines, [(0, "CAL", 25), (0, "LOC", 10), (0, "softirq:TIMER", 1), (3, "140", 10)]);
        assert_eq!(Counts::delta(&before, &after, &set("1")), []);
    }

    #[test]
    fn one_cpu_machines_do_not_count_errors_as_interrupts() {
        let counts = Counts::parse("  CPU0\n 1: 9 XT-PIC i8042\nERR: 3\nMIS: 4\n", "");
        assert_eq!((counts.of("1", CpuId(0)), counts.lines.len()), (Some(9), 1));
    }

    proptest! {
        #[test]
        fn no_text_panics(
            header in "( {1,3}CPU[0-9]{0,11}){0,4}\\PC{0,2}\n",
            lines in "([A-Z0-9]{0,4}:?( {1,3}[0-9]{1,21}){0,5}\\PC{0,4}\n){0,5}",
        ) {
            let counts = Counts::parse(&format!("{header}{lines}"), &lines);
            let _ = Counts::delta(&Counts::default(), &counts, &CpuSet::single(CpuId(0)));
        }

        #[test]
        fn counts_survive_one_wrap(before in 0u64..1 << 32, step in 0u64..1 << 31) {
            prop_assert_eq!(difference(before, (before + step) % (1 << 32)), step);
        }
    }
}
