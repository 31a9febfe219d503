//! `whylate check --tracing`: tries every source of the kernel's events, and says what is lost if one does not work.

use crate::arguments::CheckArguments;
use crate::exit::Ending;
use crate::output;
use anyhow::Result;
use whylate_bpf::{Facility, HistogramsConfig};
use whylate_core::CpuSet;
use whylate_core::plan::Tracer;
use whylate_core::result::{HistogramKind, HistogramSource, TRACING_FORMAT, TracingFacility, TracingResult};
use whylate_host::{Host, HostRoot, facts};
use whylate_record::causes::try_tracefs;
use whylate_record::histograms::LatencyHistograms;
use whylate_record::{Tracefs, try_function_tracer};

/// A facility: how whylate checks it, what is lost without it, and how to enable it.
struct Meaning {
    name: &'static str,
    /// How it is checked.
    source: &'static str,
    effect: &'static str,
    fix: &'static str,
}

/// The file system with the kernel's trace buffers.
const TRACEFS: &str = "tracefs";
/// Causes that whylate finds in a trace buffer.
const CAUSES_FROM_TRACEFS: &str = "causes from tracefs";
/// Histograms that whylate makes from a trace buffer.
const FROM_TRACEFS: &str = "histograms from tracefs";
const FIX_TRACEFS: &str = "run as root on the host, on a kernel with CONFIG_TRACING";

/// How to enable the events of trace buffers.
const FIX_EVENTS: &str = "run as root on the host, on a kernel with CONFIG_ENABLE_EVENT_TRACING";

/// How the tracers are checked.
const TRACER_SOURCE: &str = "the kernel";

const FUNCTION: &str = "function";
/// How to enable the function tracer if the kernel has it.
const FIX_FUNCTION: &str = "use a kernel without lockdown, with `sysctl kernel.ftrace_enabled=1`; --profile light does not need this";

/// Tracers of the kernel: the name, the option that builds it, and what is lost without it.
const TRACERS: [(&str, &str, &str); 4] = [
    (
        Tracer::Hwlat.name(),
        Tracer::Hwlat.option(),
        "the kernel cannot look for gaps caused by hardware or firmware; the stall probe finds such gaps from user space",
    ),
    (Tracer::Osnoise.name(), Tracer::Osnoise.option(), "the kernel cannot measure OS noise itself"),
    (Tracer::Timerlat.name(), Tracer::Timerlat.option(), "the kernel cannot measure timer latency itself"),
    (
        FUNCTION,
        "CONFIG_FUNCTION_TRACER",
        "a trace cannot name the function that occupied a CPU (--profile functions)",
    ),
];

/// The effect of a histogram that cannot be counted.
const EMPTY: &str = "this histogram stays empty";

const MEANINGS: [Meaning; 27] = [
    Meaning {
        name: "BPF programs",
        source: "tracing programs with BTF",
        effect: "causes (--causes) and histograms come from tracefs, if tracefs works. Senders of interrupts and functions of `preempt_off` are missing; recording a wake-up costs 1.5 us instead of 0.7 us",
        fix: "run as root on the host, on a kernel with CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF that is not locked down",
    },
    Meaning {
        name: "causes from BPF",
        source: "BPF programs, in the initial PID namespace",
        effect: "causes (--causes) come from tracefs, if tracefs works",
        fix: "run on the host, outside of the container",
    },
    Meaning {
        name: "histogram switchoff",
        source: "sched_exit_tp, or a probe",
        effect: "the time of the switch itself is not known, and timerwakeupswitch ends with the decision to run the task",
        fix: "use a kernel with kprobes that is not locked down, or Linux 6.14 or newer, which has the tracepoint sched_exit_tp",
    },
    Meaning {
        name: "histogram missed_timer_offsets",
        source: "timer:hrtimer_expire_entry, sched:sched_waking",
        effect: EMPTY,
        fix: "",
    },
    Meaning {
        name: "histogram wakeup",
        source: "sched:sched_waking, sched:sched_switch",
        effect: EMPTY,
        fix: "",
    },
    Meaning {
        name: "histogram timerandwakeup",
        source: "timer:hrtimer_expire_entry, sched:sched_switch",
        effect: EMPTY,
        fix: "",
    },
    Meaning {
        name: "histogram timerwakeupswitch",
        source: "timer:hrtimer_expire_entry, sched_exit_tp, or a probe",
        effect: EMPTY,
        fix: "",
    },
    Meaning {
        name: "histogram sharedprio",
        source: "sched:sched_waking, sched:sched_switch",
        effect: EMPTY,
        fix: "",
    },
    Meaning {
        name: "interrupts by line",
        source: "irq:irq_handler_entry, _exit",
        effect: "late time caused by device interrupts is not attributed to the interrupts",
        fix: "use a kernel with the events irq:irq_handler_entry and _exit",
    },
    Meaning {
        name: "interrupts by vector",
        source: "irq_vectors:*",
        effect: "time in the handlers of the local timer and other vectors is not attributed",
        fix: "use a kernel with the events irq_vectors:* (x86)",
    },
    Meaning {
        name: "softirqs",
        source: "irq:softirq_entry, _exit",
        effect: "late time caused by softirqs is not attributed to the softirqs",
        fix: "use a kernel with the events irq:softirq_entry and _exit",
    },
    Meaning {
        name: "functions of timers",
        source: "timer:timer_start, timer:timer_expire_entry, _exit",
        effect: "the timer functions in a TIMER softirq are not named",
        fix: "use a kernel with the events timer:timer_*",
    },
    Meaning {
        name: "work items",
        source: "workqueue:workqueue_queue_work, workqueue_execute_start, _end",
        effect: "the work function of a `kworker` is not named",
        fix: "use a kernel with the events workqueue:*",
    },
    Meaning {
        name: "non-maskable interrupts",
        source: "nmi:nmi_handler",
        effect: "time in NMIs shows as unattributed; pseudo-NMIs of arm64 count as interrupts by line",
        fix: "use a kernel with the event nmi:nmi_handler (x86)",
    },
    Meaning {
        name: "idle states",
        source: "power:cpu_idle",
        effect: "the exit from an idle state cannot be distinguished from other delays of a timer",
        fix: "use a kernel with CONFIG_CPU_IDLE",
    },
    Meaning {
        name: "page faults",
        source: "exceptions:page_fault_user, _kernel, or a function's entry",
        effect: "page faults of the measured process are not named",
        fix: "use x86, or arm64 with Linux 6.4 or newer and CONFIG_DYNAMIC_FTRACE_WITH_CALL_OPS, so that BPF programs can attach to functions",
    },
    Meaning {
        name: "migrations",
        source: "sched:sched_migrate_task",
        effect: "late time after a move of the measured thread to another CPU is not attributed to the move",
        fix: "use a kernel with the event sched:sched_migrate_task",
    },
    Meaning {
        name: "locks",
        source: "lock:contention_begin, _end",
        effect: "locks that a task waited for are not named",
        fix: "use Linux 5.19 or newer, which has the events lock:contention_begin and _end",
    },
    Meaning {
        name: "functions run for other CPUs",
        source: "csd:csd_function_entry, _exit, or probes",
        effect: "the function that an interrupt from another CPU ran is not named",
        fix: "use Linux 6.5 or newer, which has the events csd:*",
    },
    Meaning {
        name: "senders of interrupts",
        source: "csd:csd_queue_cpu, ipi:ipi_send_cpu, or probes",
        effect: "the sender of an interrupt from another CPU is not known; /proc/interrupts only counts these interrupts",
        fix: "use Linux 6.5 or newer, which has the events csd:* and ipi:ipi_send_cpu",
    },
    Meaning {
        name: "names of kernel functions",
        source: "/proc/kallsyms",
        effect: "functions are shown as addresses",
        fix: "run as root, with kernel.kptr_restrict below 2",
    },
    Meaning {
        name: "TLB flushes by interrupts",
        source: "the processor",
        effect: "TLB flushes that the processor broadcasts are not counted; these flushes interrupt no CPU",
        fix: "",
    },
    Meaning {
        name: "instructions and cycles of threads",
        source: "performance counters (PMU) of the CPUs",
        effect: "`watch` does not say whether late own work was more work, or the same work more slowly",
        fix: "use a real machine, or a hypervisor that gives the guest a PMU and does not trap each reading",
    },
    Meaning {
        name: "cache misses of threads",
        source: "performance counters (PMU) of the CPUs",
        effect: "`watch` does not say whether memory made late own work slower",
        fix: "",
    },
    Meaning {
        name: TRACEFS,
        source: "/sys/kernel/tracing",
        effect: "`whylate trace record` does not work, and histograms and causes need BPF programs",
        fix: FIX_TRACEFS,
    },
    Meaning {
        name: FROM_TRACEFS,
        source: "an instance with sched, timer and irq events",
        effect: "without BPF programs there are no histograms",
        fix: FIX_EVENTS,
    },
    Meaning {
        name: CAUSES_FROM_TRACEFS,
        source: "a trace instance with the events of causes",
        effect: "without BPF programs there are no causes",
        fix: FIX_EVENTS,
    },
];

pub(super) fn execute(arguments: &CheckArguments, host: &Host) -> Result<Ending> {
    let (facts, _) = facts::collect(&host.running);
    let mut facilities: Vec<TracingFacility> =
        whylate_bpf::facilities(&host.running).into_iter().map(described).collect();
    facilities.extend(tracefs(&host.running, &facts.cpu_context().online));
    let result = TracingResult { format: TRACING_FORMAT.to_owned(), facts, facilities };
    if arguments.json {
        output::print_json(&result)?;
    } else {
        output::drawn(&whylate_report::tracing(&result).terminal(output::style()))?;
    }
    Ok(Ending::Pass)
}

/// A facility with its meaning.
fn described(facility: Facility) -> TracingFacility {
    let Facility { name, missing } = facility;
    let meaning = MEANINGS.iter().find(|meaning| meaning.name == name);
    let is_missing = missing.is_some();
    let said = |text: &str| Some(text.to_owned()).filter(|text| is_missing && !text.is_empty());
    TracingFacility {
        works: !is_missing,
        source: meaning.map(|meaning| meaning.source.to_owned()),
        effect: said(meaning.map_or("", |meaning| meaning.effect)),
        fix: said(meaning.map_or("", |meaning| meaning.fix)),
        reason: missing,
        name,
    }
}

/// What tracefs offers: its own facility, the source of histograms and of causes, and its tracers.
fn tracefs(host: &HostRoot, online: &CpuSet) -> Vec<TracingFacility> {
    let config =
        HistogramsConfig { kinds: vec![HistogramKind::Wakeup], ..HistogramsConfig::new(online.clone()) };
    // Mounts tracefs temporarily if it is not mounted; it is examined meanwhile.
    let started = LatencyHistograms::start(host, &config, Some(HistogramSource::Tracefs), false);
    let found = Tracefs::find(host).map(|tracefs| tracefs.tracers()).map_err(|error| error.to_string());
    let tried = started.and_then(|(running, _)| running.finish()).map_err(|error| error.to_string());
    let causes = try_tracefs(host, online).err().map(|error| error.to_string());
    // A kernel with this tracer may still refuse it to a separate trace buffer.
    let functions = try_function_tracer(host).err().map(|error| error.to_string());
    [
        described(Facility { name: TRACEFS.to_owned(), missing: found.as_ref().err().cloned() }),
        described(Facility { name: FROM_TRACEFS.to_owned(), missing: tried.err() }),
        described(Facility { name: CAUSES_FROM_TRACEFS.to_owned(), missing: causes }),
    ]
    .into_iter()
    .chain(tracers(&found, functions.as_deref()))
    .collect()
}

/// One line for each tracer: whether the kernel was built with it, or why that is unknown. `functions` is the reason
/// why the function tracer was refused, if it was.
fn tracers<'a>(
    found: &'a Result<Vec<String>, String>,
    functions: Option<&'a str>,
) -> impl Iterator<Item = TracingFacility> + 'a {
    TRACERS.into_iter().map(move |(name, option, effect)| {
        let is_known = found.as_ref().is_ok_and(|known| known.iter().any(|known| known == name));
        let refused = functions.filter(|_| is_known && name == FUNCTION);
        let works = is_known && refused.is_none();
        let (reason, fix) = match found {
            Ok(_) if refused.is_some() => (refused.unwrap_or_default().to_owned(), FIX_FUNCTION.to_owned()),
            Ok(_) => {
                (format!("this kernel was built without {option}"), format!("use a kernel with {option}=y"))
            }
            Err(reason) => (reason.clone(), FIX_TRACEFS.to_owned()),
        };
        TracingFacility {
            name: format!("tracer {name}"),
            works,
            source: Some(TRACER_SOURCE.to_owned()),
            reason: (!works).then_some(reason),
            effect: (!works).then(|| effect.to_owned()),
            fix: (!works).then_some(fix),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_tried_has_a_meaning_and_nothing_else() {
        let mut names = whylate_bpf::internal::facility_names();
        names.extend([TRACEFS, FROM_TRACEFS, CAUSES_FROM_TRACEFS].map(str::to_owned));
        for name in &names {
            assert!(MEANINGS.iter().any(|meaning| meaning.name == name), "`{name}` has no meaning");
        }
        if names.len() > 4 {
            // In a build with BPF programs.
            for Meaning { name, .. } in MEANINGS {
                assert!(names.iter().any(|known| known == name), "`{name}` is never tried");
            }
        }
    }

    #[test]
    fn the_page_about_kernels_has_a_row_for_everything_that_is_tried() {
        let page = include_str!("../../../../../docs/KERNELS.md").replace('`', "");
        let tracers = TRACERS.map(|(name, ..)| (format!("tracer {name}"), TRACER_SOURCE));
        let known = MEANINGS.iter().map(|meaning| (meaning.name.to_owned(), meaning.source)).chain(tracers);
        for (name, source) in known {
            let row = format!("\n| {name} | {source} | ");
            assert!(page.contains(&row), "docs/KERNELS.md has no row that begins `{}`", row.trim_start());
        }
    }

    #[test]
    fn facilities_have_the_documented_names() {
        let found: Vec<String> =
            whylate_bpf::facilities(&HostRoot::real()).into_iter().map(|one| one.name).collect();
        let names = whylate_bpf::internal::facility_names();
        // If programs are refused, there is nothing else.
        assert!(found == names || found == names[..1], "{found:?}");
    }

    #[test]
    fn a_function_tracer_that_was_refused_does_not_work_though_the_kernel_has_it() {
        let known = Ok(vec![FUNCTION.to_owned()]);
        let of = |refused| tracers(&known, refused).find(|it| it.name == "tracer function").unwrap();
        assert!(of(None).works);
        let refused = of(Some("the kernel refuses it"));
        assert_eq!((refused.works, refused.reason.as_deref()), (false, Some("the kernel refuses it")));
        assert!(refused.effect.is_some() && refused.fix.is_some());
    }

    #[test]
    fn a_tracer_that_cannot_be_used_says_why() {
        let known = Ok(vec!["hwlat".to_owned(), "nop".to_owned()]);
        let works: Vec<bool> = tracers(&known, None).map(|tracer| tracer.works).collect();
        assert_eq!(works, [true, false, false, false]);
        let missing: Vec<TracingFacility> =
            tracers(&Err("tracefs is not mounted".to_owned()), None).collect();
        assert_eq!(missing.len(), TRACERS.len());
        for tracer in missing {
            assert_eq!((tracer.works, tracer.reason.as_deref()), (false, Some("tracefs is not mounted")));
            assert!(tracer.effect.is_some() && tracer.fix.as_deref() == Some(FIX_TRACEFS));
        }
    }
}
