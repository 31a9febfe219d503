//! What a kernel stack (innermost function first) shows: which function an interrupt interrupted, and which one kept
//! preemption disabled.

use crate::vocabulary as words;

/// At most this many callers are named.
const CALLERS_MAX: usize = 12;

/// A function to blame, and its callers, innermost first.
pub(crate) type Named = (String, Vec<String>);

/// The innermost function that is not just a helper, and its callers. A stack of helpers alone gives no function: if an
/// interrupt hits code that calls through a pointer, the kernel cannot follow the stack.
pub(crate) fn innermost(frames: &[String]) -> Option<Named> {
    let is_skipped = |name: &&String| words::is_helper(name) || words::is_of_tracer(name);
    let helpers = frames.iter().take_while(is_skipped).count();
    let (function, callers) = frames[helpers..].split_first()?;
    Some((function.clone(), trimmed(callers.to_vec())))
}

/// Removes the outermost callers, which carry no information.
pub(crate) fn trimmed(mut callers: Vec<String>) -> Vec<String> {
    callers.truncate(CALLERS_MAX);
    callers
}

/// What an interrupt interrupted: the part of its stack below the interrupt's entry. Empty for user mode; `None` if the stack
/// does not show the entry.
pub(crate) fn below_interrupt<S: AsRef<str>>(stack: &[S]) -> Option<&[S]> {
    let is_entry = |frame: &S| words::is_interrupt_entry(frame.as_ref());
    let first = stack.iter().position(is_entry)?;
    // On arm64 the entry consists of several functions.
    let entry = stack[first..].iter().take_while(|frame| is_entry(frame)).count();
    Some(&stack[first + entry..])
}

/// The function at which a thread was preempted, and its callers, from the stack of the thread. `None` for a thread that went
/// to sleep: the place where it sleeps does not show what it did before.
pub(crate) fn preempted(stack: &[String]) -> Option<Named> {
    let is_own = |name: &&String| {
        words::leads_to_scheduler(name) || words::is_release(name) || words::is_of_tracer(name)
    };
    let own = stack.iter().take_while(is_own).count();
    let is_forced = |name: &String| name.starts_with("preempt_schedule") || name.contains("cond_resched");
    stack[..own].iter().any(is_forced).then(|| innermost(&stack[own..])).flatten()
}

/// Whether the stack of a switch shows a thread that was interrupted in user mode: only the way into the scheduler.
pub(crate) fn preempted_in_user(stack: &[String]) -> bool {
    let is_way =
        |name: &String| words::leads_to_scheduler(name) || words::is_edge(name) || words::is_of_tracer(name);
    stack.iter().any(|name| words::is_interrupt_entry(name)) && stack.iter().all(is_way)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &str) -> Vec<String> {
        names.split(' ').map(str::to_owned).collect()
    }

    fn interrupted(names: &str) -> Option<Option<Named>> {
        below_interrupt(&stack(names)).map(innermost)
    }

    #[test]
    fn the_function_below_the_interrupt_is_what_it_interrupted() {
        let late =
            "hrtimer_wakeup hrtimer_interrupt asm_sysvec_apic_timer_interrupt driver_wait driver_ioctl";
        let expected = ("driver_wait".to_owned(), vec!["driver_ioctl".to_owned()]);
        assert_eq!(interrupted(late), Some(Some(expected)));
    }

    #[test]
    fn the_release_of_a_lock_is_blamed_on_its_caller() {
        let late = "hrtimer_wakeup asm_sysvec_apic_timer_interrupt _raw_spin_unlock_irqrestore driver_wait";
        assert_eq!(interrupted(late), Some(Some(("driver_wait".to_owned(), Vec::new()))));
        let alone = "asm_sysvec_apic_timer_interrupt _raw_spin_unlock_irqrestore";
        assert_eq!(interrupted(alone), Some(None));
        assert_eq!(below_interrupt(&stack(alone)).unwrap().len(), 1, "it was in the kernel");
    }

    #[test]
    fn the_tracing_itself_is_not_blamed() {
        let found = innermost(&stack(
            "__traceiter_irq_disable trace_hardirqs_off _raw_spin_lock_irqsave driver_wait",
        ));
        assert_eq!(found, Some(("driver_wait".to_owned(), Vec::new())));
    }

    #[test]
    fn nothing_below_the_interrupt_is_user_mode() {
        let is_user = |names: &str| below_interrupt(&stack(names)).is_some_and(<[String]>::is_empty);
        assert!(is_user("hrtimer_wakeup asm_sysvec_apic_timer_interrupt"));
        assert!(is_user("hrtimer_wakeup el0_interrupt el0t_64_irq_handler"));
        assert_eq!(below_interrupt(&stack("hrtimer_wakeup hrtimer_interrupt")), None);
        assert_eq!(below_interrupt::<&str>(&[]), None);
    }

    #[test]
    fn a_thread_that_was_in_user_mode_has_only_the_way_to_the_scheduler_on_its_stack() {
        let user = "__schedule schedule irqentry_exit_to_user_mode asm_sysvec_apic_timer_interrupt";
        assert!(preempted_in_user(&stack(user)));
        assert!(!preempted_in_user(&stack(&format!("{user} driver_wait"))));
        assert!(!preempted_in_user(&stack("__schedule schedule do_nanosleep")), "it went to sleep");
        assert!(!preempted_in_user(&[]));
    }

    #[test]
    fn a_preempted_thread_is_named_by_what_it_did() {
        let late = stack("__schedule preempt_schedule_common preempt_schedule_thunk plant_stall kthread");
        assert_eq!(preempted(&late), Some(("plant_stall".to_owned(), vec!["kthread".to_owned()])));
        assert_eq!(preempted(&stack("__schedule schedule")), None);
        assert_eq!(preempted(&stack("__schedule schedule schedule_hrtimeout usleep_range_state act")), None);
    }
}
