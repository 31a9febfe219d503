//! The causes of spikes, from the best source of events that this machine has.
//!
//! BPF programs record in the kernel. If they are not possible (no type information, a locked-down kernel, a
//! container, a build without them), events of a trace buffer are joined here into the same segments, which the same
//! explainer divides. A warning says what is lost and what it costs.

mod account;
mod finder;
mod own;
mod source;
mod stack_threshold;

pub(crate) use finder::surroundings;
pub use finder::{FindsCauses, Measured};

use crate::RecordError;
use finder::find_causes_in;
use source::TraceActivities;
use whylate_bpf::{BpfError, Causes};
use whylate_core::result::HistogramSource;
use whylate_core::{CpuSet, Facts, Warning, WarningCode};
use whylate_host::{Host, HostRoot};
use whylate_sys::process::sees_kernel_clock;

/// Starts recording what takes the CPUs of these probes, from `source`, or from the best one that works.
///
/// # Errors
/// [`BpfError`], with each source's reason when none works.
pub fn find_causes(
    host: &Host,
    probes: &[Measured],
    facts: &Facts,
    source: Option<HistogramSource>,
) -> Result<Box<dyn FindsCauses>, BpfError> {
    let cpus: CpuSet = probes.iter().flat_map(|probe| probe.cpus.iter()).collect();
    let lowest = probes.iter().map(|probe| probe.priority).min();
    let refused = match source {
        Some(HistogramSource::Tracefs) => None,
        _ => match Causes::of_probes(&host.running, &cpus, lowest) {
            Err(error)
                if source.is_none() && error.has_substitute() && !matches!(error, BpfError::OtherClock) =>
            {
                Some(error)
            }
            Err(error) => return Err(error),
            Ok((causes, warnings)) => {
                return find_causes_in(Box::new(causes), &host.running, probes, facts, warnings);
            }
        },
    };
    if !sees_kernel_clock() {
        return Err(BpfError::OtherClock);
    }
    match TraceActivities::start(&host.settings, &cpus) {
        Ok((activities, missing)) => {
            let mut warnings = vec![warning(refused.as_ref())];
            warnings.extend(missing);
            find_causes_in(Box::new(activities), &host.running, probes, facts, warnings)
        }
        Err(error) => Err(match refused {
            Some(bpf) => BpfError::NoSource { bpf: Box::new(bpf), tracefs: error.to_string() },
            None => BpfError::TraceBuffer(error.to_string()),
        }),
    }
}

/// Whether causes can be found from a trace buffer on these CPUs: records for a moment.
pub fn try_tracefs(host: &HostRoot, cpus: &CpuSet) -> Result<(), RecordError> {
    let (activities, _) = TraceActivities::start(host, cpus)?;
    activities.finish()
}

/// What is lost, and what it costs (measured in records/2026-11-23/causes-from-tracefs.md).
fn warning(refused: Option<&BpfError>) -> Warning {
    let why =
        refused.map(|error| format!(", because BPF programs are not possible ({error})")).unwrap_or_default();
    let text = format!(
        "causes come from a trace buffer (tracefs){why}. `preempt_off` names no function, and interrupts from other CPUs \
         have no sender. A wake-up costs about 0.8 us more than with BPF programs (1.5 us instead of 0.7 us on one \
         machine), and 4 us more if the timer interrupts deep kernel code, because whylate records the stack"
    );
    let fix = refused.map(|_| {
        "to record all causes, run whylate as root on the host, on a kernel with CONFIG_DEBUG_INFO_BTF and without lockdown"
    });
    match fix {
        Some(fix) => Warning::with_fix(WarningCode::CausesFromTracefs, text, fix),
        None => Warning::new(WarningCode::CausesFromTracefs, text),
    }
}
