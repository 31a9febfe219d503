//! Idle states whose exit takes longer than their driver states: a CPU is late only when it was idle.

use whylate_core::figure::{count, nanoseconds};
use whylate_core::result::{CauseKind, CellResult};
use whylate_core::{Facts, Warning, WarningCode};

/// What the timer's interrupt and the context switch add to the exit from an idle state.
const OVERHEAD_NS: u64 = 20_000;
/// Fewer spikes may be chance.
const SPIKES_MIN: u64 = 3;

/// Warns that leaving idle took longer in the cells of a run than the driver states for any state; `None` in a
/// virtual machine, where the host decides that.
pub fn idle_exits(facts: &Facts, cells: &[CellResult]) -> Option<Warning> {
    if facts.environment.hypervisor.is_some() {
        return None;
    }
    let states = facts.cpus.iter().flat_map(|cpu| &cpu.idle_states);
    let (stated_ns, name) = states.filter_map(|it| Some((it.exit_latency_ns?, &it.name))).max()?;
    let limit_ns = stated_ns.saturating_mul(2).saturating_add(OVERHEAD_NS);
    let mut seen: Vec<(u64, u64, &str)> = Vec::new();
    for cell in cells {
        let rows = cell.ledger.iter().filter(|row| row.kind == Some(CauseKind::IdleExit));
        seen.extend(rows.map(|row| (row.max_ns, row.spikes, cell.name.as_str())));
    }
    let above: Vec<_> = seen.into_iter().filter(|(max_ns, ..)| *max_ns > limit_ns).collect();
    let spikes: u64 = above.iter().map(|(_, spikes, _)| spikes).fold(0, |sum, it| sum.saturating_add(*it));
    let (max_ns, _, cell) = above.into_iter().max()?;
    let text = format!(
        "leaving an idle state took up to {} (cell {cell}), but the driver states {} for {name}, the deepest state; \
         idle exits caused {} spikes",
        nanoseconds(max_ns),
        nanoseconds(stated_ns),
        count(spikes)
    );
    let fix = "disable the idle states (`whylate treat apply idle`) instead of limiting their latency \
        (/dev/cpu_dma_latency), or boot with `idle=poll`";
    (spikes >= SPIKES_MIN).then(|| Warning::with_fix(WarningCode::IdleExitsLong, text, fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::facts::{CpuFacts, IdleStateFacts};
    use whylate_core::result::LedgerRow;

    fn warned(max_ns: u64, spikes: u64, hypervisor: bool) -> bool {
        let state = IdleStateFacts { name: "C6".to_owned(), exit_latency_ns: Some(133_000) };
        let cpu = CpuFacts { idle_states: vec![state], ..CpuFacts::default() };
        let mut facts = Facts { cpus: vec![cpu], ..Facts::default() };
        facts.environment.hypervisor = hypervisor.then(|| "kvm".to_owned());
        let row = LedgerRow { kind: Some(CauseKind::IdleExit), spikes, max_ns, ..LedgerRow::default() };
        let cell = CellResult { ledger: vec![row], ..CellResult::default() };
        idle_exits(&facts, &[cell]).is_some()
    }

    #[test]
    fn only_exits_beyond_what_is_stated_warn() {
        assert!(warned(400_000, 5, false));
        assert!(!warned(150_000, 5, false), "as stated");
        assert!(!warned(400_000, 1, false), "once");
        assert!(!warned(400_000, 5, true), "the host's");
    }
}
