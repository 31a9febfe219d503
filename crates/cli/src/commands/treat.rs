//! `whylate treat`.

use crate::arguments::{ApplyCommand, Applying, TreatCommand, TreatPrinting};
use crate::exit::{Ending, NotKnown, Refused};
use crate::{exit, output, signals};
use anyhow::{Context as _, Result, bail};
use std::sync::atomic::{AtomicBool, Ordering};
use whylate_core::plan::TreatmentKind;
use whylate_core::result::{ChangeHolder, ChangeState, TREAT_FORMAT, TreatChange, TreatResult};
use whylate_core::{Warning, WarningCode, text};
use whylate_host::{Host, HostRoot, facts};
use whylate_treat::journal::TREATMENTS;
use whylate_treat::last_words;
use whylate_treat::{Guard, Holder, JournalPlace, Planned, Planner, Surroundings, TreatError, restore};

pub(super) fn execute(command: TreatCommand, host: &Host) -> Result<Ending> {
    match command {
        TreatCommand::Apply(command) => apply(&command, &host.settings),
        TreatCommand::Status(printing) => status(printing, &host.settings),
        TreatCommand::Restore(printing) => take_back(printing, &host.settings),
    }
}

fn place() -> JournalPlace {
    JournalPlace::of_this_machine(TREATMENTS)
}

fn apply(command: &ApplyCommand, root: &HostRoot) -> Result<Ending> {
    let kind = command.plan()?.treatment.into_iter().next().context("no treatment")?.kind;
    let applying = command.run;
    // From here on Ctrl-C ends in order.
    let asked_to_stop = signals::watch()?;
    // The treatment must not be planned on a state that a killed run left.
    let recovered = if applying.dry_run { None } else { whylate_runner::recover_treatments(root) };
    let (facts, _) = facts::collect(root);
    let surroundings = Surroundings::new(root.clone(), &facts, None);
    let treatment = kind.kind();
    let mut planned = kind
        .plan(&surroundings)
        .map_err(|source| TreatError::Impossible { treatment: treatment.to_owned(), source })?;
    planned.warnings.extend(recovered);
    if applying.dry_run {
        let changes = planned.changes.iter().map(|change| change.preview(treatment, root));
        let changes = changes.collect::<Result<_, _>>()?;
        return print(&applying.printing, "dry_run", changes, None, planned.warnings);
    }
    make(&kind, planned, &surroundings, applying, &asked_to_stop)
}

const NOTHING_MADE: Refused = Refused("no setting was changed: each was refused (see above); run as root");

fn make(
    kind: &TreatmentKind,
    planned: Planned,
    surroundings: &Surroundings,
    applying: Applying,
    asked_to_stop: &AtomicBool,
) -> Result<Ending> {
    // As typed, so that the journal shows what made the changes.
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let command = format!("whylate {}", words.collect::<Vec<_>>().join(" "));
    let root = &surroundings.root;
    let mut warnings = planned.warnings;
    let mut guard = Guard::begin(&place(), root, Holder::this_process(&command, None, true, root))?;
    warnings.extend(whylate_runner::recovery(guard.recovered()));
    warnings.extend(guard.apply(kind.kind(), &planned.changes)?);
    warnings.extend(guard.settle(kind.kind(), kind, surroundings)?);
    if asked_to_stop.load(Ordering::Relaxed) {
        let report = guard.undo();
        bail!("stopped by the user; {}", report.aftermath());
    }
    let made: Vec<TreatChange> = guard.in_force().map(TreatChange::from).collect();
    let is_left_out = |warning: &Warning| warning.code == WarningCode::TreatmentIncomplete;
    if made.is_empty() && warnings.iter().any(is_left_out) {
        output::warnings(&warnings);
        return Err(NOTHING_MADE.into());
    }
    let printed = print(&applying.printing, "apply", made, None, warnings);
    // A change that could not be reported is undone: the terminal is gone, or the disk is full. A reader that closed
    // the pipe has seen the report.
    if let Err(error) = printed.as_ref()
        && !exit::is_broken_pipe(error)
    {
        return printed;
    }
    guard.keep()?;
    printed
}

/// A refused journal may list changed settings.
fn not_known(error: TreatError) -> anyhow::Error {
    match error {
        TreatError::Untrusted { .. } => NotKnown(error).into(),
        other => other.into(),
    }
}

fn status(printing: TreatPrinting, root: &HostRoot) -> Result<Ending> {
    let mut changes = Vec::new();
    let mut warnings = Vec::new();
    let mut is_damaged = false;
    for place in place().all().map_err(not_known)? {
        let contents = place.read(root).map_err(not_known)?;
        is_damaged |= !contents.damage.is_empty();
        warnings.extend(damage(&contents.damage));
        changes.extend(contents.open().map(|entry| TreatChange {
            holder: contents.holder(entry).map(|holder| holder.shown(root)),
            ..TreatChange::from(entry)
        }));
    }
    warnings.extend(elsewhere(root));
    let ending = print(&printing, "status", changes, None, warnings)?;
    Ok(if is_damaged { Ending::NotRestored } else { ending })
}

/// The contents of the usual journal, if another one is in use.
fn elsewhere(root: &HostRoot) -> Option<Warning> {
    let usual = place().usual()?;
    let all = usual.all().ok()?;
    let changed: usize =
        all.iter().filter_map(|place| place.read(root).ok()).map(|contents| contents.open().count()).sum();
    let text = format!("another journal, {}, lists changed settings ({changed})", usual.path().display());
    let fix = "to see and restore these settings, run the same command without WHYLATE_STATE_DIR";
    (changed > 0).then(|| Warning::with_fix(WarningCode::Journal, text, fix))
}

fn take_back(printing: TreatPrinting, root: &HostRoot) -> Result<Ending> {
    // Restoring always runs to its end, which takes a moment. Only a third signal does not wait for it.
    last_words::held(&place(), root);
    let _asked_to_stop = signals::watch()?;
    let report = restore(&place(), root).map_err(not_known)?;
    let changes = report.outcomes.iter().map(TreatChange::from);
    let mut warnings: Vec<Warning> = damage(&report.unknown).collect();
    warnings.extend(report.journal_error.iter().map(|error| Warning::new(WarningCode::Journal, error)));
    let restored = report.is_complete();
    print(&printing, "restore", changes.collect(), Some(restored), warnings)
}

/// The entries that a damaged journal no longer shows.
fn damage(unknown: &[String]) -> impl Iterator<Item = Warning> {
    unknown
        .iter()
        .map(|it| Warning::new(WarningCode::JournalDamaged, format!("the journal is damaged: {it}")))
}

fn print(
    printing: &TreatPrinting,
    action: &str,
    changes: Vec<TreatChange>,
    restored: Option<bool>,
    warnings: Vec<Warning>,
) -> Result<Ending> {
    let format = TREAT_FORMAT.to_owned();
    let result = TreatResult { format, action: action.to_owned(), changes, restored, warnings };
    if printing.json {
        output::print_json(&result)?;
    } else {
        output::warnings(&result.warnings);
        output::print(&drawn(&result))?;
    }
    Ok(if restored == Some(false) { Ending::NotRestored } else { Ending::Pass })
}

fn drawn(result: &TreatResult) -> String {
    let mut lines = Vec::new();
    let mut above = None;
    // `status` comes first with the answer; other actions end with it.
    let is_status = result.action == "status";
    lines.extend(is_status.then(|| summary(result)));
    for change in &result.changes {
        if change.holder.is_some() && change.holder != above {
            above.clone_from(&change.holder);
            lines.extend(above.as_ref().map(|holder| text::line(&holder_line(holder))));
        }
        let indent = if change.holder.is_some() { "  " } else { "" };
        lines.push(format!("{indent}{}", text::line(&line(change))));
    }
    lines.extend((!is_status).then(|| summary(result)));
    lines.join("\n")
}

/// The last line, for `status` the first one: the result, and what to do next.
fn summary(result: &TreatResult) -> String {
    let all = result.changes.len();
    let count = |state| result.changes.iter().filter(|change| change.state == state).count();
    let settings = |count| if count == 1 { "1 setting".to_owned() } else { format!("{count} settings") };
    let them = if all == 1 { "it" } else { "them" };
    match result.action.as_str() {
        "dry_run" => {
            let writes = count(ChangeState::Planned);
            format!("{writes} write{}; nothing was changed", if writes == 1 { "" } else { "s" })
        }
        "apply" if all == 0 => "nothing to change: the settings already have these values".to_owned(),
        "apply" => format!("{} changed; to restore {them}: whylate treat restore", settings(all)),
        "status" if is_unknown(result) => {
            format!(
                "the journal is damaged: it still lists {} as changed; other changes are unknown",
                settings(all)
            )
        }
        "status" if all == 0 => "nothing is changed".to_owned(),
        "status" => format!("{} changed; to restore {them}: whylate treat restore", settings(all)),
        _ if is_unknown(result) && all == 0 => {
            "the changes are unknown: check the settings in the lines above by hand".to_owned()
        }
        _ if is_unknown(result) => format!(
            "{} of {} {} the former value; other changes are unknown: check the settings in the lines above by hand",
            all - left(result),
            settings(all),
            if all == 1 { "has" } else { "have" }
        ),
        _ if all == 0 => "nothing to restore".to_owned(),
        _ if result.restored == Some(true) && all == 1 => "1 setting has its former value".to_owned(),
        _ if result.restored == Some(true) => format!("{all} settings have their former values"),
        _ => {
            let left = left(result);
            let is = if left == 1 { "is" } else { "are" };
            format!("{left} of {} {is} not restored", settings(all))
        }
    }
}

/// How many settings were not restored.
fn left(result: &TreatResult) -> usize {
    let is_left = |state| matches!(state, ChangeState::LeftAlone | ChangeState::Failed);
    result.changes.iter().filter(|change| is_left(change.state)).count()
}

/// Whether the journal had more entries than can be read.
fn is_unknown(result: &TreatResult) -> bool {
    result.warnings.iter().any(|warning| warning.code == WarningCode::JournalDamaged)
}

fn holder_line(holder: &ChangeHolder) -> String {
    let run = holder.run.as_ref().map(|run| format!(" into {run}")).unwrap_or_default();
    let state = match (holder.alive, holder.kept) {
        (true, _) => "still running",
        (false, true) => "kept until restored",
        (false, false) => "ended without restoring",
    };
    format!("by `{}`{run} (pid {}) since {}, {state}:", holder.command, holder.pid, holder.since)
}

fn line(change: &TreatChange) -> String {
    if let Some(reason) = &change.reason {
        return reason.clone();
    }
    let quoted = |value: &str| if value.is_empty() { "none".to_owned() } else { value.replace('\n', "; ") };
    let old = change.old.as_deref().map_or_else(|| "(nothing yet)".to_owned(), quoted);
    let (target, new) = (&change.target, quoted(&change.new));
    let effect = change.effect.as_ref().map(|effect| format!("  ({effect})")).unwrap_or_default();
    match change.state {
        ChangeState::Planned | ChangeState::Applied => format!("{target}: {old} -> {new}{effect}"),
        ChangeState::NotNeeded => format!("{target}: already {old}{effect}"),
        ChangeState::Interrupted => format!("{target}: {old} -> {new}, interrupted{effect}"),
        ChangeState::Restored => format!("{target}: {new} -> {old}"),
        ChangeState::Unchanged => format!("{target}: already {old}"),
        ChangeState::Ended => format!("{target}: ended"),
        ChangeState::Rebooted => format!("{target}: reset by a reboot"),
        ChangeState::LeftAlone | ChangeState::Failed => format!("{target}: not restored to {old}"),
    }
}
