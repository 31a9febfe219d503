//! Proposes treatments from the measurement and from the findings of `check`, as far as they are possible here; asks
//! once.

use crate::output;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, stdin};
use std::time::Duration;
use whylate_core::plan::{TreatmentKind, TreatmentPlan};
use whylate_core::result::{
    FIX_FORMAT, FixAnswer, FixArm, FixCause, FixLeftOut, FixMode, FixRegistration, FixResult, RunResult,
    RunState,
};
use whylate_core::{BusyProgram, WarningCode};
use whylate_explain::advice::{self, Candidates, Paced, Situation};
use whylate_host::cpu_table::Sampler;
use whylate_host::threads::Threads;
use whylate_host::{Host, HostError, HostRoot, busy, cgroup, facts};
use whylate_runner::{Adviser, Proposal, possible};

/// How long to look for programs that keep CPUs busy, and the share that counts: half a CPU, and a few programs.
const BUSY_WINDOW: Duration = Duration::from_secs(1);
const BUSY_MIN: f64 = 0.5;
const BUSY_MAX: usize = 3;

/// The user's choice of treatments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice<'a> {
    pub(super) yes: &'a [String],
    pub(super) never: &'a [String],
    /// Whether all are tried at once, as if causes were unknown.
    pub(super) ignores_causes: bool,
}

pub(super) struct MachineAdviser<'a> {
    pub(super) host: &'a Host,
    pub(super) choice: Choice<'a>,
}

impl MachineAdviser<'_> {
    /// The treatments that may be tried in that cell.
    pub(super) fn proposal(
        &self,
        rules: &FixRegistration,
        measured: &RunResult,
        cell: &str,
    ) -> Result<Proposal> {
        let cell = measured.cells.iter().find(|it| it.name == cell).context("the cell was not measured")?;
        let root = &self.host.settings;
        let (now, warnings) = facts::collect(root);
        let target = measured.plan.target.cpus.resolve(&now.cpu_context(), None)?;
        let table = Sampler::start(root)
            .and_then(|mut sampler| sampler.table(&now))
            .context("reading what runs on the CPUs")?;
        let check = facts::check(root, &now, &target, &table, warnings).context("checking this machine")?;
        let causes = advice::causes(cell, rules.goal.series.as_deref().unwrap_or_default());
        let busy = busy(&causes, root).context("reading what keeps the CPUs busy")?;
        let paced = Paced::of(&measured.plan, cell);
        let (findings, busy, paced) = (&check.findings[..], &busy[..], &paced[..]);
        let situation = Situation { causes: &causes, findings, facts: &now, target: &target, busy, paced };
        let Choice { yes, never, .. } = self.choice;
        let is_possible = |treatment: &TreatmentPlan| {
            if never.contains(&treatment.name) {
                return Err("excluded by --never".to_owned());
            }
            possible(root, &now, &target, &treatment.kind)
        };
        if rules.mode == FixMode::Audit {
            let (arms, left_out) = settings(rules, &is_possible);
            return Ok(Proposal { causes, arms, first: 0, left_out });
        }
        let Candidates { mut arms, first, mut left_out } = advice::candidates(&situation, yes, &is_possible);
        if let Some(own) = advice::task_priority(cell, &causes) {
            left_out.insert(0, own);
        }
        let threads = Threads::read(root).context("reading the threads of this machine")?;
        arms.iter_mut().for_each(|arm| arm.service = service(&arm.treatment.kind, &threads, root));
        if self.choice.ignores_causes {
            return Ok(Proposal { causes, arms, first: 0, left_out });
        }
        if measured.plan.causes {
            advice::removes(&mut arms, cell, &rules.goal, rules.margin.0);
        }
        Ok(Proposal { causes, arms, first, left_out })
    }

    /// Keeps the treatments that the user wants to try; `None` if there are none.
    fn agreed(&self, rules: &FixRegistration, mut proposal: Proposal) -> Result<Option<Proposal>> {
        let yes = self.choice.yes;
        let known = |id: &str| proposal.arms.iter().any(|arm| arm.treatment.name == id);
        let is_missing = |id: &&String| *id != "all" && !known(id);
        for missing in yes.iter().filter(is_missing) {
            let left = proposal.left_out.iter().find(|left| left.id == *missing);
            let why = left
                .map_or("no measurement or setting of this machine suggests this treatment", |left| {
                    &left.why
                });
            output::message(&format!("--yes {missing}: not tried: {why}"));
        }
        if !yes.is_empty() && yes.iter().all(|id| is_missing(&id)) && !proposal.arms.is_empty() {
            let ids: Vec<&str> = proposal.arms.iter().map(|arm| arm.treatment.name.as_str()).collect();
            bail!("--yes names no proposed treatment; the proposed treatments are {}", ids.join(", "));
        }
        if !yes.is_empty() {
            if !yes.iter().any(|id| id == "all") {
                let is_agreed = |arm: &FixArm| yes.contains(&arm.treatment.name);
                let first = proposal.arms.iter().take(proposal.first as usize).filter(|arm| is_agreed(arm));
                proposal.first = first.count() as u32;
                let (agreed, others): (Vec<_>, Vec<_>) = proposal.arms.into_iter().partition(is_agreed);
                proposal.arms = agreed;
                let ids: Vec<&str> = others.iter().map(|arm| arm.treatment.name.as_str()).collect();
                if !ids.is_empty() {
                    output::message(&format!("also proposed, but not named by --yes: {}", ids.join(", ")));
                }
                let why = "not named by --yes";
                proposal.left_out.extend(others.into_iter().map(|arm| FixLeftOut {
                    id: arm.treatment.name,
                    reason: arm.reason,
                    why: why.to_owned(),
                }));
            }
            return Ok(Some(proposal));
        }
        if proposal.arms.is_empty() {
            return Ok(Some(proposal));
        }
        output::message(match rules.mode {
            FixMode::Audit => {
                "each repeat applies all of these settings, or all but one in turn, and then restores them:"
            }
            _ => "these treatments may help; each repeat applies some of them and restores the settings:",
        });
        proposal.arms.iter().for_each(|arm| output::message(&line(arm)));
        can_ask()?;
        output::message("try them? [y/N]");
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        Ok(answer.trim().eq_ignore_ascii_case("y").then_some(proposal))
    }
}

/// Fails if there is no terminal on which to ask which treatments may be tried.
pub(super) fn can_ask() -> Result<()> {
    if !stdin().is_terminal() {
        bail!(
            "without a terminal, whylate cannot ask which treatments it may try; add `--yes all`, `--yes` with their ids, or \
             `--advise`, which only proposes treatments"
        );
    }
    Ok(())
}

/// The programs that may take the memory's bandwidth, or the CPU of an ordinary task, if those are possible causes.
fn busy(causes: &[FixCause], root: &HostRoot) -> Result<Vec<BusyProgram>, HostError> {
    if !advice::asks_who_is_busy(causes) {
        return Ok(Vec::new());
    }
    busy::busy(root, BUSY_WINDOW, BUSY_MIN, BUSY_MAX)
}

/// The service whose processes a treatment affects; `None` if they belong to several or to none.
fn service(kind: &TreatmentKind, threads: &Threads, root: &HostRoot) -> Option<String> {
    let name = match kind {
        TreatmentKind::Affinity(plan) => &plan.process,
        TreatmentKind::CpuQuota(plan) => &plan.process,
        TreatmentKind::Priority(plan) => &plan.thread,
        _ => return None,
    };
    // One thread of several has its own priority, which a service cannot give.
    let mut all = threads
        .named(name)
        .map(|thread| (thread.pid == thread.tid).then(|| cgroup::service_of(root, thread.pid)).flatten());
    let first = all.next().flatten()?;
    all.all(|other| other.as_ref() == Some(&first)).then_some(first)
}

/// The settings of an audit that can be left out on this machine, and the others.
fn settings(
    rules: &FixRegistration,
    is_possible: &dyn Fn(&TreatmentPlan) -> Result<(), String>,
) -> (Vec<FixArm>, Vec<FixLeftOut>) {
    let (mut arms, mut left_out) = (Vec::new(), rules.left_out.clone());
    for arm in rules.arms.clone() {
        match is_possible(&arm.treatment) {
            Ok(()) => arms.push(arm),
            Err(why) => left_out.push(FixLeftOut { id: arm.treatment.name, reason: arm.reason, why }),
        }
    }
    (arms, left_out)
}

fn line(arm: &FixArm) -> String {
    format!("    {}: {}", arm.treatment.name, arm.reason)
}

impl Adviser for MachineAdviser<'_> {
    fn propose(
        &mut self,
        rules: &FixRegistration,
        measured: &RunResult,
        cell: &str,
    ) -> Result<Option<Proposal>, String> {
        let proposal = self.proposal(rules, measured, cell);
        let proposal = proposal.and_then(|proposal| self.agreed(rules, proposal));
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

/// Whether a warning tells of settings that differ from before.
pub(super) fn is_about_settings(code: &str) -> bool {
    [WarningCode::TreatmentNotRestored, WarningCode::MachineChanged].iter().any(|it| it.name() == code)
}

/// A result without a search.
pub(super) fn advice(
    measured: &RunResult,
    cell: String,
    rules: FixRegistration,
    proposal: Proposal,
) -> FixResult {
    let count = proposal.arms.len();
    let is_by_hand = |left: &FixLeftOut| left.id == advice::TASK_PRIORITY;
    let (by_hand, left_out): (Vec<_>, Vec<_>) = proposal.left_out.into_iter().partition(is_by_hand);
    FixResult {
        format: FIX_FORMAT.to_owned(),
        run: measured.run.clone(),
        state: RunState::Complete,
        answer: FixAnswer::Advised,
        sentence: match count {
            0 => "no treatment that this user may apply answers these causes".to_owned(),
            1 => "1 treatment may help; it was not tried: `whylate fix` proves whether it does".to_owned(),
            _ => format!("{count} treatments may help; none was tried: `whylate fix` proves which"),
        },
        registration: FixRegistration {
            cell: Some(cell),
            causes: proposal.causes,
            arms: proposal.arms,
            first: proposal.first,
            left_out,
            ..rules
        },
        recommended: Vec::new(),
        reached: None,
        results: Vec::new(),
        claims: Vec::new(),
        repeats: 0,
        took_ns: 0,
        files: Vec::new(),
        by_hand,
        restored: measured.restored,
        warnings: measured.warnings.iter().filter(|it| is_about_settings(&it.code)).cloned().collect(),
    }
}
