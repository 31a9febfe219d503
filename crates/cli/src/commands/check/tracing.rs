//! `whylate check --tracing`: tries every source of the kernel's events, and says what is lost where one does not work.

use crate::arguments::CheckArguments;
use crate::exit::Ending;
use crate::{machine, output};
use anyhow::Result;
use whylate_bpf::{Facility, HistogramsConfig};
use whylate_core::CpuSet;
use whylate_core::plan::Tracer;
use whylate_core::result::{HistogramKind, HistogramSource, TRACING_FORMAT, TracingFacility, TracingResult};
use whylate_report::terminal;
use whylate_sys::host::HostRoot;
use whylate_trace::record::Tracefs;
use whylate_trace::record::histograms::LatencyHistograms;

/// What is lost without a facility, and what brings it back.
struct Meaning {
    name: &'static str,
    effect: &'static str,
    fix: &'static str,
}

const MEANINGS: [Meaning; 15] = [
    Meaning {
        name: "BPF programs",
        effect: "no causes of spikes (--causes) and no senders of interrupts; histograms come from a trace buffer, if at all",
        fix: "run as root on the host, on a kernel with CONFIG_BPF_SYSCALL and CONFIG_DEBUG_INFO_BTF that is not locked down",
    },
    Meaning {
        name: "histogram switchoff",
        effect: "the time of the switch itself is not known, and timerwakeupswitch ends with the decision to run the task",
        fix: "a kernel with the tracepoint sched_exit_tp",
    },
    Meaning {
        name: "interrupts by line",
        effect: "time that a device's interrupt took is not named as such",
        fix: "a kernel with the events irq:irq_handler_entry and _exit",
    },
    Meaning {
        name: "interrupts by vector",
        effect: "time in the local timer's and other vectors' handlers is not named",
        fix: "a kernel with the events irq_vectors:* (x86)",
    },
    Meaning {
        name: "softirqs",
        effect: "time in softirqs is not named",
        fix: "a kernel with the events irq:softirq_entry and _exit",
    },
    Meaning {
        name: "non-maskable interrupts",
        effect: "time in NMIs shows as unattributed",
        fix: "a kernel with the event nmi:nmi_handler (x86)",
    },
    Meaning {
        name: "idle states",
        effect: "the exit from an idle state is not told apart from other delays of a timer",
        fix: "a kernel with CONFIG_CPU_IDLE",
    },
    Meaning {
        name: "page faults",
        effect: "page faults of the measured process are not named",
        fix: "a kernel with the events exceptions:page_fault_user and _kernel",
    },
    Meaning {
        name: "locks",
        effect: "locks that a task waited for are not named",
        fix: "Linux 5.19 or newer, which has the events lock:contention_begin and _end",
    },
    Meaning {
        name: "functions run for other CPUs",
        effect: "what an interrupt from another CPU did is not named",
        fix: "Linux 6.5 or newer, which has the events csd:*",
    },
    Meaning {
        name: "senders of interrupts",
        effect: "who interrupted a measured CPU from another one is not known; /proc/interrupts counts them",
        fix: "Linux 6.5 or newer, which has the events csd:* and ipi:ipi_send_cpu",
    },
    Meaning {
        name: "names of kernel functions",
        effect: "functions are addresses",
        fix: "run as root, with kernel.kptr_restrict below 2",
    },
    Meaning {
        name: "TLB flushes by interrupts",
        effect: "flushes that the processor broadcasts are not counted; they interrupt nobody",
        fix: "",
    },
    Meaning {
        name: "tracefs",
        effect: "nothing can be recorded (whylate trace record), and histograms have no fallback",
        fix: "run as root on the host, on a kernel with CONFIG_TRACING",
    },
    Meaning {
        name: "histograms from tracefs",
        effect: "there are no histograms where BPF programs are refused",
        fix: "run as root on the host, on a kernel with CONFIG_ENABLE_EVENT_TRACING",
    },
];

pub(super) fn execute(arguments: &CheckArguments) -> Result<Ending> {
    let (facts, _) = machine::facts();
    let host = HostRoot::real();
    let mut facilities: Vec<TracingFacility> = whylate_bpf::facilities().into_iter().map(described).collect();
    facilities.extend(tracefs(&host, &facts.cpu_context().online));
    let result = TracingResult { format: TRACING_FORMAT.to_owned(), facts, facilities };
    if arguments.json {
        output::print_json(&result)?;
    } else {
        output::print(&terminal::tracing(&result, output::style()))?;
    }
    Ok(Ending::Pass)
}

/// A facility with what it means.
fn described(facility: Facility) -> TracingFacility {
    let Facility { name, missing } = facility;
    let meaning = MEANINGS.iter().find(|meaning| meaning.name == name);
    let is_missing = missing.is_some();
    let said = |text: &str| Some(text.to_owned()).filter(|text| is_missing && !text.is_empty());
    let default =
        if is_missing && name.starts_with("histogram ") { "this histogram stays empty" } else { "" };
    TracingFacility {
        works: !is_missing,
        effect: said(meaning.map_or(default, |meaning| meaning.effect)),
        fix: said(meaning.map_or("", |meaning| meaning.fix)),
        reason: missing,
        name,
    }
}

/// What tracefs offers: by itself, as the source of histograms, and its tracers.
fn tracefs(host: &HostRoot, online: &CpuSet) -> Vec<TracingFacility> {
    let config =
        HistogramsConfig { kinds: vec![HistogramKind::Wakeup], ..HistogramsConfig::new(online.clone()) };
    // This mounts tracefs where it is not, for the moment.
    let tried = LatencyHistograms::start(host, &config, Some(HistogramSource::Tracefs), false)
        .and_then(|(running, _)| running.finish());
    let found = Tracefs::find(host);
    let tracers = found.as_ref().map(Tracefs::tracers).unwrap_or_default();
    let missing_tracefs = match (&tried, &found) {
        (Ok(()), _) | (_, Ok(_)) => None,
        (_, Err(error)) => Some(error.to_string()),
    };
    let mut facilities = vec![
        described(Facility { name: "tracefs".to_owned(), missing: missing_tracefs }),
        described(Facility {
            name: "histograms from tracefs".to_owned(),
            missing: tried.err().map(|error| error.to_string()),
        }),
    ];
    if found.is_err() {
        return facilities;
    }
    for (name, option, effect) in [
        (
            Tracer::Hwlat.name(),
            Tracer::Hwlat.option(),
            "gaps of the hardware and the firmware are found from user space only",
        ),
        (
            Tracer::Osnoise.name(),
            Tracer::Osnoise.option(),
            "the kernel does not account for its noise itself",
        ),
        (
            Tracer::Timerlat.name(),
            Tracer::Timerlat.option(),
            "the kernel does not measure the latency of a timer itself",
        ),
        (
            "function",
            "CONFIG_FUNCTION_TRACER",
            "a trace does not name the function that held a CPU (--profile functions)",
        ),
    ] {
        let works = tracers.iter().any(|known| known == name);
        facilities.push(TracingFacility {
            name: format!("tracer {name}"),
            works,
            reason: (!works).then(|| format!("this kernel was built without {option}")),
            effect: (!works).then(|| effect.to_owned()),
            fix: (!works).then(|| format!("a kernel with {option}=y")),
        });
    }
    facilities
}
