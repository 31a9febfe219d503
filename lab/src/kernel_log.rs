//! Finds complaints in the log of a guest's kernel.

/// Texts in lines that no healthy kernel writes.
const TROUBLE: [&str; 18] = [
    "WARNING: CPU:",
    "WARNING: possible",
    "BUG:",
    "Oops:",
    "Kernel panic",
    "general protection fault",
    "unable to handle",
    "Unable to handle",
    "soft lockup",
    "hard LOCKUP",
    "self-detected stall",
    "detected stalls",
    "blocked for more than",
    "scheduling while atomic",
    "sleeping function called from invalid context",
    "nobody cared",
    "NMI received for unknown reason",
    "bad unlock balance",
];
/// Lines shown before the first complaint: they have the text of a warning.
const LINES_BEFORE: usize = 2;
/// Lines shown from it on: enough for its call trace.
const LINES_AFTER: usize = 30;

/// The first complaint in a log with the lines around it; `None` if there is no complaint.
#[must_use]
pub fn trouble(log: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().collect();
    let first = lines.iter().position(|line| TROUBLE.iter().any(|text| line.contains(text)))?;
    let last = (first + LINES_AFTER).min(lines.len());
    Some(lines[first.saturating_sub(LINES_BEFORE)..last].join("\n"))
}

/// Whether a log says that a timer's interrupt never came: the thread of RCU waited for one in vain.
pub(crate) fn tells_of_a_lost_timer(log: &str) -> bool {
    log.contains("kthread timer wakeup didn't happen for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_log_is_no_trouble() {
        assert_eq!(trouble(""), None);
        let log = "[    1.0] sched: RT throttling activated\n[    1.1] hrtimer: interrupt took 52000 ns\n\
                   [    1.2] smpboot: CPU 1 is now offline\n";
        assert_eq!(trouble(log), None);
    }

    #[test]
    fn a_lost_timer_is_distinguished_from_other_stalls() {
        let stall = "[   22.4] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n\
                     [   22.5] rcu: \t0-...!: (0 ticks this GP) idle=db08/0/0x0 softirq=0/0 fqs=0 (false positive?)\n";
        assert!(!tells_of_a_lost_timer(stall));
        let lost = format!(
            "{stall}[   22.6] rcu: rcu_preempt kthread timer wakeup didn't happen for 5252 jiffies!\n"
        );
        assert!(
            tells_of_a_lost_timer(&lost) && trouble(&lost).is_some_and(|lines| tells_of_a_lost_timer(&lines))
        );
    }

    #[test]
    fn complaints_are_shown_with_their_trace() {
        for text in TROUBLE {
            let log = format!("a\nb\nmessage\ncut here\n{text} 0 PID: 1 at kernel/x.c:1\nCall Trace:\n");
            let shown = trouble(&log).unwrap();
            assert!(shown.starts_with("message\n") && shown.ends_with("Call Trace:"), "{shown}");
        }
    }
}
