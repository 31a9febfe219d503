//! What a kernel stack says: which function an interrupt interrupted, and which one kept preemption off.

/// Most callers that are named.
const CALLERS_MAX: usize = 6;

/// What an interrupt came into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// User mode, where interrupts are always on.
    User,
    /// The kernel.
    Kernel {
        /// The function.
        function: String,
        /// Who called it, innermost first.
        callers: Vec<String>,
        /// Whether it had just released a lock or switched interrupts on: they were off before.
        is_release: bool,
    },
    /// The stack does not tell.
    Unknown,
}

/// What lies below the interrupt that a stack (innermost first) ends its upper part with.
pub(crate) fn interrupted(stack: &[String]) -> Interrupted {
    let Some(entry) = stack.iter().position(|name| is_interrupt_entry(name)) else {
        return Interrupted::Unknown;
    };
    if stack[entry].starts_with("el0") {
        return Interrupted::User;
    }
    // On arm64 the entry consists of several functions.
    let below = &stack[entry + 1..];
    let below = &below[below.iter().take_while(|name| is_interrupt_entry(name)).count()..];
    if below.is_empty() {
        return Interrupted::User;
    }
    let releases = below.iter().take_while(|name| is_release(name)).count();
    match below[releases.min(below.len() - 1)..].split_first() {
        Some((function, callers)) => Interrupted::Kernel {
            function: function.clone(),
            callers: callers.iter().take(CALLERS_MAX).cloned().collect(),
            is_release: releases > 0,
        },
        None => Interrupted::Unknown,
    }
}

/// The function that gave the CPU up when it had to, and its callers, from the stack of the thread that was preempted.
/// `None` for a thread that went to sleep: where it sleeps is not what it did before.
pub(crate) fn preempted(stack: &[String]) -> Option<(String, Vec<String>)> {
    let own = stack.iter().take_while(|name| is_scheduling(name) || is_release(name)).count();
    let is_forced = |name: &String| name.starts_with("preempt_schedule") || name.contains("cond_resched");
    if !stack.iter().take(own).any(is_forced) {
        return None;
    }
    let (function, callers) = stack.get(own..)?.split_first()?;
    Some((function.clone(), callers.iter().take(CALLERS_MAX).cloned().collect()))
}

/// The first function of an interrupt in assembly, or what arm64 enters by.
fn is_interrupt_entry(name: &str) -> bool {
    let starts =
        ["asm_sysvec_", "asm_common_interrupt", "asm_exc_", "el1h_64_irq", "el1_interrupt", "el0t_64_irq"];
    starts.iter().any(|start| name.starts_with(start))
}

/// What switches interrupts or preemption on again on behalf of its caller.
fn is_release(name: &str) -> bool {
    let starts =
        ["_raw_spin_unlock", "_raw_read_unlock", "_raw_write_unlock", "__local_bh_enable", "rt_spin_unlock"];
    starts.iter().any(|start| name.starts_with(start))
}

/// The scheduler, and the ways into it.
fn is_scheduling(name: &str) -> bool {
    let starts = [
        "__schedule",
        "schedule",
        "preempt_schedule",
        "__preempt_schedule",
        "__cond_resched",
        "irqentry_exit",
        "raw_irqentry_exit",
        "sysvec_",
        "__sysvec_",
        "asm_",
        "common_interrupt",
        "el1_",
        "el1h_",
        "arm64_preempt_schedule_irq",
    ];
    starts.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(names: &str) -> Vec<String> {
        names.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_function_below_the_interrupt_is_what_it_interrupted() {
        let late = stack(
            "hrtimer_wakeup hrtimer_interrupt asm_sysvec_apic_timer_interrupt driver_wait driver_ioctl",
        );
        let expected = Interrupted::Kernel {
            function: "driver_wait".to_owned(),
            callers: vec!["driver_ioctl".to_owned()],
            is_release: false,
        };
        assert_eq!(interrupted(&late), expected);
    }

    #[test]
    fn releasing_a_lock_stands_for_its_caller() {
        let late =
            stack("hrtimer_wakeup asm_sysvec_apic_timer_interrupt _raw_spin_unlock_irqrestore driver_wait");
        let Interrupted::Kernel { function, is_release, .. } = interrupted(&late) else {
            panic!("in the kernel")
        };
        assert_eq!((function.as_str(), is_release), ("driver_wait", true));
        let alone = stack("asm_sysvec_apic_timer_interrupt _raw_spin_unlock_irqrestore");
        assert!(matches!(interrupted(&alone), Interrupted::Kernel { .. }));
    }

    #[test]
    fn nothing_below_the_interrupt_is_user_mode() {
        assert_eq!(interrupted(&stack("hrtimer_wakeup asm_sysvec_apic_timer_interrupt")), Interrupted::User);
        assert_eq!(
            interrupted(&stack("hrtimer_wakeup el0_interrupt el0t_64_irq_handler")),
            Interrupted::User
        );
        assert_eq!(interrupted(&stack("hrtimer_wakeup hrtimer_interrupt")), Interrupted::Unknown);
        assert_eq!(interrupted(&[]), Interrupted::Unknown);
    }

    #[test]
    fn a_preempted_thread_is_named_by_what_it_did() {
        let late = stack("__schedule preempt_schedule_common preempt_schedule_thunk plant_stall kthread");
        assert_eq!(preempted(&late), Some(("plant_stall".to_owned(), vec!["kthread".to_owned()])));
        assert_eq!(preempted(&stack("__schedule schedule")), None);
        assert_eq!(preempted(&stack("__schedule schedule schedule_hrtimeout usleep_range_state act")), None);
    }
}
