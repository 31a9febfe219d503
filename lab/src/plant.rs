//! The truth about planted causes: what the planters logged.

use crate::error::LabError;
use crate::guest::Guest;

/// Shell commands that load the module that plants causes, if it is not loaded, and make the kernel's thread for huge
/// pages sleep for weeks: while functions are traced, it keeps the CPU for 40 ms.
pub const LOAD_PLANT: &str = "[ -e /proc/plant ] || insmod /lab/plant.ko\n\
    khugepaged=/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs\n\
    [ ! -e $khugepaged ] || echo 4294967295 >$khugepaged\n";

/// One stall, as `/proc/plant` and the planters of user space log it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Name of the cause, for example `irq-off`.
    pub cause: String,
    pub function: String,
    /// The CPU that was to be late.
    pub cpu: u32,
    /// The CPU that it came from, if that is another one.
    pub from: Option<u32>,
    /// When it began, on the guest's CLOCK_MONOTONIC.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Interrupts, flushes, changes or faults in that time.
    pub events: u64,
}

impl Stall {
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }

    /// Reads a log.
    ///
    /// # Errors
    /// When a line is not one of a planter; also the line that says that others were lost.
    pub fn read(log: &str) -> Result<Vec<Self>, LabError> {
        let lines = log.lines().filter(|line| !line.trim().is_empty());
        lines
            .map(|line| {
                Self::read_line(line).ok_or(LabError::Form { what: "a planter's log", text: line.into() })
            })
            .collect()
    }

    fn read_line(line: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
            words.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let from = match value("from") {
            Some(text) => Some(text.parse().ok()?),
            None => None,
        };
        Some(Self {
            cause: value("cause")?.to_owned(),
            function: value("function")?.to_owned(),
            cpu: value("cpu")?.parse().ok()?,
            from,
            begin_ns: value("begin_ns")?.parse().ok()?,
            end_ns: value("end_ns")?.parse().ok()?,
            events: value("events")?.parse().ok()?,
        })
    }
}

impl Guest {
    /// Plants a cause with the kernel module, waits until it is over, and returns what the module logged. The module is
    /// loaded when it is not.
    ///
    /// # Errors
    /// When the module refuses the command, or the kernel complains.
    pub fn plant(&mut self, command: &str) -> Result<Vec<Stall>, LabError> {
        self.plant_with("", command)
    }

    /// As [`Guest::plant`], while these shell commands run in the background; they end with the plant.
    pub fn plant_with(&mut self, background: &str, command: &str) -> Result<Vec<Stall>, LabError> {
        let log = self.ok(&format!(
            "{LOAD_PLANT}{background}\necho clear >/proc/plant\necho '{command}' >/proc/plant\n\
             cat /proc/plant"
        ))?;
        Stall::read(&log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read() {
        let log = "cause=ipi function=plant_ipi_stall cpu=1 from=0 begin_ns=5 end_ns=12 events=1\n\
                   cause=nmi function=plant_nmi_stall cpu=0 begin_ns=20 end_ns=21 events=1\n";
        let stalls = Stall::read(log).unwrap();
        assert_eq!(stalls.len(), 2);
        assert_eq!((stalls[0].from, stalls[0].length_ns()), (Some(0), 7));
        assert_eq!((stalls[1].from, stalls[1].cpu), (None, 0));
    }

    #[test]
    fn a_line_of_another_form_is_an_error() {
        assert!(Stall::read("lost=3\n").unwrap_err().to_string().contains("lost=3"));
        assert!(Stall::read("cause=a function=b cpu=x begin_ns=1 end_ns=2 events=1").is_err());
        assert!(Stall::read("\n").unwrap().is_empty());
    }
}
