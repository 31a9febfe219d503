//! Which events are recorded.

use super::tracefs::Tracefs;
use whylate_core::plan::TraceProfile;

/// Systems of which every event is recorded, if the kernel has them.
const SYSTEMS: &[&str] = &["irq_vectors", "ipi", "csd", "tlb"];

/// Events of the systems above that do not explain delays: the allocation of vectors.
const LEFT_OUT: &str = "irq_vectors/vector_";

/// Functions that read the clock, as patterns of the function tracer. On arm64 they are traced like any other
/// function, and each record of a function needs the time, so every function is followed by theirs. They do not make a
/// thread late.
pub(super) const CLOCK_READERS: [&str; 4] =
    ["arch_counter_*", "arch_timer_*read*", "ktime_get*", "sched_clock*"];

/// The events to record on this kernel, and those of [`TraceProfile::EVENTS`] that it lacks.
pub(super) fn events(tracefs: &Tracefs, more: &[String]) -> (Vec<String>, Vec<&'static str>) {
    let (there, missing): (Vec<&str>, Vec<&str>) =
        TraceProfile::EVENTS.iter().copied().partition(|event| tracefs.has_event(event));
    let systems = SYSTEMS.iter().flat_map(|system| tracefs.events(system));
    let mut events: Vec<String> = there.into_iter().map(str::to_owned).collect();
    events.extend(systems.filter(|event| !event.starts_with(LEFT_OUT)));
    for event in more {
        if !events.contains(event) {
            events.push(event.clone());
        }
    }
    (events, missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_host::HostRoot;

    #[test]
    fn what_the_kernel_has_is_recorded_and_what_it_lacks_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("sys/kernel/tracing");
        let there = [
            "sched/sched_switch",
            "ipi/ipi_raise",
            "irq_vectors/vector_setup",
            "irq_vectors/local_timer_entry",
        ];
        for event in there.iter().chain(&["raw_syscalls/sys_enter", "sched/sched_stat_wait"]) {
            std::fs::create_dir_all(top.join("events").join(event)).unwrap();
            std::fs::write(top.join("events").join(event).join("enable"), "0\n").unwrap();
        }
        std::fs::write(top.join("trace_clock"), "[local] mono\n").unwrap();
        let tracefs = Tracefs::find(&HostRoot::at(folder.path())).unwrap();
        let more = ["raw_syscalls/sys_enter".to_owned(), "sched/sched_switch".to_owned()];
        let (events, missing) = events(&tracefs, &more);
        // Each event once; events that say nothing about delays are left out.
        let expected = [
            "sched/sched_switch",
            "irq_vectors/local_timer_entry",
            "ipi/ipi_raise",
            "raw_syscalls/sys_enter",
        ];
        assert_eq!(events, expected);
        assert_eq!(missing.len(), TraceProfile::EVENTS.len() - 1);
        assert!(missing.contains(&"timer/hrtimer_start"));
    }
}
