//! What a run would do: `whylate run --dry-run`, and the lines before each run.

use whylate_core::Nanos;
use whylate_core::figure::nanoseconds;
use whylate_core::result::{PREVIEW_FORMAT, PreviewCell, PreviewPower, PreviewResult};
use whylate_runner::{Experiment, PreparedCell};
use whylate_stats::contrast::detectable;
use whylate_stats::{contrasts, order};

/// How much repeats of one cell may differ: quantiles on a quiet machine, and maxima.
const SPREADS: [f64; 2] = [0.1, 0.5];

/// A preview, and the texts for it.
pub(crate) struct Preview(pub(crate) PreviewResult);

impl Preview {
    pub(crate) fn of(experiment: &Experiment) -> Self {
        let plan = &experiment.plan;
        let runs = |index: &usize| experiment.cells.get(*index).is_some_and(|cell| cell.loads.is_ok());
        let contrasts = contrasts(plan).iter().filter(|(a, b)| runs(a) && runs(b)).count();
        let runnable: Vec<&PreparedCell> =
            experiment.cells.iter().filter(|cell| cell.loads.is_ok()).collect();
        let slots = order::slots(runnable.len(), plan.repeats, plan.order, plan.seed.unwrap_or(0));
        let power =
            SPREADS.map(|spread| PreviewPower { spread, ratio: detectable(plan.repeats, contrasts, spread) });
        Self(PreviewResult {
            format: PREVIEW_FORMAT.to_owned(),
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
        })
    }

    /// `about 58.0 s`.
    pub(crate) fn length(&self) -> String {
        format!("about {}", nanoseconds(Nanos(self.0.duration_ns).0))
    }

    /// The size of effect that it can show; empty if nothing is compared.
    pub(crate) fn power(&self) -> Option<String> {
        let primary = self.0.primary.as_ref().filter(|_| !self.0.power.is_empty())?;
        let repeats = self.0.plan.repeats;
        let sizes = self.0.power.iter().map(|power| {
            let percent = power.spread * 100.0;
            match power.ratio {
                Some(ratio) => {
                    format!("a factor of {ratio:.2} or more if repeats of one cell differ by {percent:.0} %")
                }
                None => format!("none if repeats of one cell differ by {percent:.0} %"),
            }
        });
        let sizes = sizes.collect::<Vec<_>>().join(", ");
        let comparisons = match self.0.contrasts {
            1 => "1 comparison".to_owned(),
            count => format!("{count} comparisons"),
        };
        Some(format!(
            "8 of 10 such runs, with {repeats} repeats of each cell and {comparisons}, find these changes of {primary}: \
             {sizes}"
        ))
    }

    /// A line for each cell that cannot run here.
    pub(crate) fn skipped(&self) -> Vec<String> {
        let line = |cell: &PreviewCell| {
            cell.skipped.as_ref().map(|reason| format!("skipped: cell `{}`: {reason}", cell.name))
        };
        self.0.cells.iter().filter_map(line).collect()
    }

    pub(crate) fn text(&self) -> String {
        let drawn = if self.0.plan.seed.is_some() { "" } else { "; each run draws a new order" };
        let mut lines = vec![
            format!(
                "plan {}: {}",
                self.0.plan.name,
                self.0.plan.question.as_deref().unwrap_or("no question")
            ),
            format!("measures CPU {} for {}", self.0.target, self.length()),
            format!("order: {}{drawn}", self.0.order.join(", ")),
        ];
        lines.extend(self.power());
        lines.extend(self.skipped());
        lines.push("nothing was measured or changed".to_owned());
        lines.join("\n") + "\n"
    }
}
