//! Proposes treatments: from what was measured and from what `check` finds, as far as they are possible here; asks once.

use crate::output;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, stdin};
use whylate_core::Nanos;
use whylate_core::plan::Share;
use whylate_core::result::{
    FIX_FORMAT, FixAnswer, FixArm, FixGoal, FixMode, FixRegistration, FixResult, RunResult, RunState,
};
use whylate_explain::advice::{self, Situation};
use whylate_host::cpu_table::Sampler;
use whylate_host::{Host, facts};
use whylate_runner::{Adviser, Proposal, possible};

/// What the user said of treatments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice<'a> {
    pub(super) yes: &'a [String],
    pub(super) never: &'a [String],
}

/// Looks at this machine.
pub(super) struct MachineAdviser<'a> {
    pub(super) host: &'a Host,
    pub(super) choice: Choice<'a>,
}

impl MachineAdviser<'_> {
    /// What may be tried in that cell.
    pub(super) fn proposal(&self, measured: &RunResult, cell: &str, series: &str) -> Result<Proposal> {
        let cell = measured.cells.iter().find(|it| it.name == cell).context("the cell was not measured")?;
        let root = &self.host.settings;
        let (now, warnings) = facts::collect(root);
        let target = measured.plan.target.cpus.resolve(&now.cpu_context(), None)?;
        let table = Sampler::start(root)
            .and_then(|mut sampler| sampler.table(&now))
            .context("reading what runs on the CPUs")?;
        let check = facts::check(root, &now, &target, &table, warnings).context("checking this machine")?;
        let causes = advice::causes(cell, series);
        let situation =
            Situation { causes: &causes, findings: &check.findings, facts: &now, target: &target };
        let Choice { yes, never } = self.choice;
        let (arms, left_out) = advice::candidates(&situation, yes, &|treatment| {
            if never.contains(&treatment.name) {
                return Err("--never names it".to_owned());
            }
            possible(root, &now, &target, &treatment.kind)
        });
        Ok(Proposal { causes, arms, left_out })
    }

    /// Leaves what the user wants tried; `None` for nothing.
    fn agreed(&self, mut proposal: Proposal) -> Result<Option<Proposal>> {
        let yes = self.choice.yes;
        let known = |id: &str| proposal.arms.iter().any(|arm| arm.treatment.name == id);
        if let Some(unknown) = yes.iter().find(|id| *id != "all" && !known(id)) {
            let left = proposal.left_out.iter().find(|left| left.id == **unknown);
            let why = left.map_or_else(
                || {
                    let ids: Vec<&str> =
                        proposal.arms.iter().map(|arm| arm.treatment.name.as_str()).collect();
                    format!("nothing speaks for it; proposed are {}", ids.join(", "))
                },
                |left| left.why.clone(),
            );
            bail!("--yes {unknown}: {why}");
        }
        if !yes.is_empty() {
            if !yes.iter().any(|id| id == "all") {
                proposal.arms.retain(|arm| yes.contains(&arm.treatment.name));
            }
            return Ok(Some(proposal));
        }
        if proposal.arms.is_empty() {
            return Ok(Some(proposal));
        }
        output::message("these treatments may help; each is applied and given back in every repeat:");
        proposal.arms.iter().for_each(|arm| output::message(&line(arm)));
        if !stdin().is_terminal() {
            bail!("nobody can be asked here; add `--yes all`, or the ids that may be tried");
        }
        output::message("try them? [y/N]");
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        Ok(answer.trim().eq_ignore_ascii_case("y").then_some(proposal))
    }
}

fn line(arm: &FixArm) -> String {
    format!("    {}: {}", arm.treatment.name, arm.reason)
}

impl Adviser for MachineAdviser<'_> {
    fn propose(
        &mut self,
        measured: &RunResult,
        cell: &str,
        series: &str,
    ) -> Result<Option<Proposal>, String> {
        let proposal = self.proposal(measured, cell, series).and_then(|proposal| self.agreed(proposal));
        proposal.map_err(|error| format!("{error:#}"))
    }
}

/// The cell without treatments whose largest spike is the largest.
pub(super) fn latest_cell(measured: &RunResult) -> Option<String> {
    let untreated = measured.cells.iter().filter(|cell| cell.treatments.is_empty() && cell.skipped.is_none());
    let late = |cell: &&whylate_core::result::CellResult| {
        let spikes = cell.probes.iter().flat_map(|probe| &probe.spikes);
        spikes.map(|spike| spike.latency_ns).max().unwrap_or(0)
    };
    untreated.max_by_key(late).map(|cell| cell.name.clone())
}

/// A result without a search.
pub(super) fn advice(measured: &RunResult, cell: String, goal: FixGoal, proposal: Proposal) -> FixResult {
    let count = proposal.arms.len();
    FixResult {
        format: FIX_FORMAT.to_owned(),
        run: measured.run.clone(),
        state: RunState::Complete,
        answer: FixAnswer::Advised,
        sentence: format!("{count} treatments may help; none was tried: `whylate fix` proves which do"),
        registration: FixRegistration {
            mode: FixMode::Search,
            goal,
            margin: Share(measured.plan.margin.0),
            alpha: super::ALPHA,
            seed: 0,
            budget: Nanos(0),
            cell: Some(cell),
            causes: proposal.causes,
            arms: proposal.arms,
            left_out: proposal.left_out,
            begun: false,
        },
        recommended: Vec::new(),
        results: Vec::new(),
        claims: Vec::new(),
        repeats: 0,
        took_ns: 0,
        files: Vec::new(),
        by_hand: Vec::new(),
        restored: measured.restored,
        warnings: Vec::new(),
    }
}
