//! Interrupts of devices, away from shielded CPUs.

use super::{Sides, listed, without};
use crate::change::Change;
use crate::kinds::interrupts::{DEFAULT, affinity_of, later_ones, stop_irqbalance};
use crate::planner::{Impossible, Planned, Surroundings};
use whylate_core::CpuSet;
use whylate_core::result::LineRow;
use whylate_core::{Warning, WarningCode};
use whylate_host::irq_lines;

pub(super) fn plan(sides: &Sides, surroundings: &Surroundings) -> Result<Planned, Impossible> {
    let root = &surroundings.root;
    let lines = irq_lines::read(root)?;
    let mut planned = Planned::default();
    let (movable, fixed): (Vec<&LineRow>, Vec<&LineRow>) = lines.iter().partition(|line| line.movable);
    let hits = |line: &&&LineRow| sides.shielded.iter().any(|cpu| line.reaches(cpu));
    let moves: Vec<Change> = movable.iter().filter(hits).map(|line| away(line, sides)).collect();
    if !moves.is_empty() {
        // irqbalance is stopped first and continued last.
        planned.changes.extend(stop_irqbalance(surroundings)?);
    }
    planned.changes.extend(moves);
    if let Some(cpus) = root.read_trimmed(DEFAULT)?.as_deref().and_then(CpuSet::from_mask) {
        let new = without(&cpus, sides);
        if new != cpus {
            planned.changes.push(later_ones(&new));
        }
    }
    let stay: Vec<String> = fixed.iter().filter(hits).map(|line| name(line)).collect();
    if !stay.is_empty() {
        let text = format!(
            "the kernel does not allow moving these interrupts away from CPU {}: {}",
            sides.shielded,
            listed(&stay)
        );
        let fix = format!(
            "boot with `isolcpus=managed_irq,{}`; managed interrupts then reach the CPU only if its own tasks use the device",
            sides.shielded
        );
        planned.warnings.push(Warning::with_fix(WarningCode::InterruptsStay, text, fix));
    }
    Ok(planned)
}

fn away(line: &LineRow, sides: &Sides) -> Change {
    let new = without(&line.cpus, sides);
    // Kernels before 6.15 do not show which lines they keep for themselves; they refuse those.
    Change::optional(
        affinity_of(line.line),
        new.to_string(),
        format!("interrupt {} goes to CPU {new}", name(line)),
    )
}

/// `36 (nvme0q3)`.
fn name(line: &LineRow) -> String {
    match line.description.split_whitespace().last() {
        Some(device) => format!("{} ({device})", line.line),
        None => line.line.to_string(),
    }
}
