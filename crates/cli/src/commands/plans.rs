//! `whylate plans`.

use crate::arguments::PlansArguments;
use crate::exit::Ending;
use crate::output;
use anyhow::{Context, Result};
use whylate_core::plan::builtin::{self, BuiltinPlan};
use whylate_core::plan::{Plan, Source};
use whylate_core::result::{PLANS_FORMAT, PlanLine, PlanList};

pub(super) fn execute(arguments: &PlansArguments) -> Result<Ending> {
    match &arguments.name {
        Some(name) => {
            let names = || builtin::ALL.iter().map(|plan| plan.name).collect::<Vec<_>>().join(", ");
            let plan = builtin::find(name).with_context(|| {
                format!("there is no built-in plan `{name}`; the built-in plans are {}", names())
            })?;
            if arguments.json { output::print_json(&parse(plan)?)? } else { output::print(plan.text)? }
        }
        None => {
            let plans = builtin::ALL
                .iter()
                .map(|plan| Ok(PlanLine { name: plan.name.to_owned(), question: parse(*plan)?.question }))
                .collect::<Result<Vec<_>>>()?;
            if arguments.json {
                output::print_json(&PlanList { format: PLANS_FORMAT.to_owned(), plans })?;
            } else {
                let width = plans.iter().map(|plan| plan.name.len()).max().unwrap_or(0);
                let line = |plan: &PlanLine| {
                    format!("{:width$}  {}\n", plan.name, plan.question.as_deref().unwrap_or_default())
                };
                output::print(&plans.iter().map(line).collect::<String>())?;
            }
        }
    }
    Ok(Ending::Pass)
}

fn parse(plan: BuiltinPlan) -> Result<Plan> {
    Ok(Plan::parse(&Source { name: plan.name, text: plan.text }, &[])?)
}
