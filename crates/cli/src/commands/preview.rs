//! What a run would do: `whylate run --dry-run`, and the lines before each run.

use serde::Serialize;
use whylate_core::figure::nanoseconds;
use whylate_core::{Nanos, Plan};
use whylate_runner::{Experiment, PreparedCell};
use whylate_stats::contrast::detectable;
use whylate_stats::{contrasts, order};

/// How much repeats of one cell may differ: as quantiles do on a quiet machine, and as maxima do.
const SPREADS: [f64; 2] = [0.1, 0.5];

/// What a plan means on this machine.
#[derive(Debug, Serialize)]
pub(crate) struct Preview {
    format: &'static str,
    plan: Plan,
    /// The measured CPUs.
    target: String,
    /// About how long it takes.
    duration_ns: u64,
    cells: Vec<PreviewCell>,
    /// Cells in the order of their repeats; drawn anew for each run unless the plan has a seed.
    order: Vec<String>,
    /// The statistic that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    primary: Option<String>,
    /// Comparisons by it.
    contrasts: usize,
    /// Which changes are found.
    power: Vec<Power>,
}

#[derive(Debug, Serialize)]
struct PreviewCell {
    name: String,
    /// Why it cannot run here.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
}

/// Which ratio 8 of 10 runs find.
#[derive(Debug, Serialize)]
struct Power {
    /// Standard deviation of repeats of one cell, as a share.
    spread: f64,
    /// Absent where no ratio up to 10 is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
}

impl Preview {
    pub(crate) fn of(experiment: &Experiment) -> Self {
        let plan = &experiment.plan;
        let runs = |index: &usize| experiment.cells.get(*index).is_some_and(|cell| cell.loads.is_ok());
        let contrasts = contrasts(plan).iter().filter(|(a, b)| runs(a) && runs(b)).count();
        let runnable: Vec<&PreparedCell> =
            experiment.cells.iter().filter(|cell| cell.loads.is_ok()).collect();
        let slots = order::slots(runnable.len(), plan.repeats, plan.order, plan.seed.unwrap_or(0));
        let power =
            SPREADS.map(|spread| Power { spread, ratio: detectable(plan.repeats, contrasts, spread) });
        Self {
            format: "whylate.preview/1",
            target: experiment.target.to_string(),
            duration_ns: plan.repeat_duration().0 * slots.len() as u64,
            cells: experiment
                .cells
                .iter()
                .map(|cell| PreviewCell {
                    name: cell.plan.name(),
                    skipped: cell.loads.as_ref().err().cloned(),
                })
                .collect(),
            order: slots.iter().map(|slot| runnable[slot.cell].plan.name()).collect(),
            primary: plan.primary_statistic().map(|primary| primary.to_string()),
            contrasts,
            power: if contrasts > 0 { power.into() } else { Vec::new() },
            plan: plan.clone(),
        }
    }

    /// `about 58.0 s`.
    pub(crate) fn length(&self) -> String {
        format!("about {}", nanoseconds(Nanos(self.duration_ns).0))
    }

    /// What size of effect it can show; nothing where nothing is compared.
    pub(crate) fn power(&self) -> Option<String> {
        let primary = self.primary.as_ref().filter(|_| !self.power.is_empty())?;
        let repeats = self.plan.repeats;
        let sizes = self.power.iter().map(|power| {
            let percent = power.spread * 100.0;
            match power.ratio {
                Some(ratio) => format!("{ratio:.2} times where repeats differ by {percent:.0} %"),
                None => format!("nothing where they differ by {percent:.0} %"),
            }
        });
        let sizes = sizes.collect::<Vec<_>>().join(", ");
        Some(match self.contrasts {
            1 => format!(
                "{repeats} repeats and 1 comparison by {primary}: 8 of 10 such runs find a change of {sizes}"
            ),
            count => format!(
                "{repeats} repeats and {count} comparisons by {primary}: 8 of 10 such runs find a change of {sizes}"
            ),
        })
    }

    /// A line for each cell that cannot run here.
    pub(crate) fn skipped(&self) -> Vec<String> {
        let line = |cell: &PreviewCell| {
            cell.skipped.as_ref().map(|reason| format!("skipped: cell `{}`: {reason}", cell.name))
        };
        self.cells.iter().filter_map(line).collect()
    }

    /// Everything, for people.
    pub(crate) fn text(&self) -> String {
        let drawn = if self.plan.seed.is_some() { "" } else { "; each run draws its own" };
        let mut lines = vec![
            format!("plan {}: {}", self.plan.name, self.plan.question.as_deref().unwrap_or("no question")),
            format!("measures CPU {} for {}", self.target, self.length()),
            format!("order: {}{drawn}", self.order.join(", ")),
        ];
        lines.extend(self.power());
        lines.extend(self.skipped());
        lines.push("nothing was measured or changed".to_owned());
        lines.join("\n") + "\n"
    }
}
