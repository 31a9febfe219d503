//! A search for treatments: the problem, the treatments that were tried, the proved ones, the useless ones, the
//! costs, those that cannot be tried here, and what to install.

use crate::pictures::{Forest, ForestRow};
use crate::reading::{Reading, times};
use crate::section::{Block, Column, Depth, Item, Row, Section, Table, Tone};
use crate::words::counted;
use whylate_core::figure::{between, share, value};
use whylate_core::order::InOrder;
use whylate_core::plan::Statistic;
use whylate_core::result::{
    CauseKind, FixAnswer, FixArm, FixArmResult, FixClaim, FixLeftOut, FixMode, FixOutcome, FixPhase,
    FixRemoval, FixResult, Outcome, RunResult,
};

/// The most causes that are named.
const CAUSES_MAX: usize = 6;
/// The most causes of a claim that are named.
const REMOVED_MAX: usize = 3;
/// Other statistics that differ by less are not named as a cost.
const COST_MIN: f64 = 0.05;
/// Steps of the picture of evidence, each twice the one before.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    run.fix.as_ref().map(of_fix).unwrap_or_default()
}

pub(crate) fn of_fix(fix: &FixResult) -> Vec<Section> {
    let tried = if fix.registration.mode == FixMode::Audit { settings(fix) } else { tried(fix) };
    let sections = [answer(fix), wrong(fix), tried, proved(fix), as_root(fix), not_tried(fix), install(fix)];
    sections.into_iter().flat_map(Section::unless_empty).collect()
}

fn answer(fix: &FixResult) -> Section {
    let (tone, symbol) = match fix.answer {
        FixAnswer::Proved | FixAnswer::NothingNeeded | FixAnswer::Audited => (Tone::Good, "✓"),
        FixAnswer::Unfinished => (Tone::Warn, "?"),
        FixAnswer::NothingProved | FixAnswer::NothingToTry | FixAnswer::Advised => (Tone::Plain, "-"),
    };
    let sentence = Item { tone, symbol, text: fix.sentence.clone().into(), ..Item::default() };
    Section::new("fix", "What helps").with(vec![sentence])
}

fn wrong(fix: &FixResult) -> Section {
    let mut causes = fix.registration.causes.iter().filter(|cause| cause.spikes > 0);
    let item = |cause: &whylate_core::result::FixCause| {
        let who = cause.actor.as_ref().map(|actor| format!(" ({actor})")).unwrap_or_default();
        let spikes = counted(cause.spikes, "spike");
        Item::from(format!("`{}`{who}: {spikes}, {} of the late time", cause.kind, share(cause.share)))
    };
    let title = match &fix.registration.cell {
        Some(cell) => format!("What was wrong in `{cell}`"),
        None => "What was wrong".to_owned(),
    };
    let mut items: Vec<Item> = causes.by_ref().take(CAUSES_MAX).map(item).collect();
    let (others, spikes) = causes.fold((0u32, 0), |(causes, sum), cause| (causes + 1, sum + cause.spikes));
    if others > 0 {
        let (causes, spikes) = (counted(others, "other cause"), counted(spikes, "spike"));
        items.push(Item::from(format!("{causes}: {spikes} together")));
    }
    Section::new("fix-causes", title).with(items).with_all(without_treatment(fix).map(Block::note))
}

/// Smaller parts of the late time are not worth a change of the program.
const LARGE_SHARE: f64 = 0.1;

/// The large causes that no treatment answers: the program itself has to change.
fn without_treatment(fix: &FixResult) -> Option<String> {
    let registration = &fix.registration;
    let is_answered =
        |kind: &str| registration.arms.iter().any(|arm| arm.answers.iter().any(|it| it == kind));
    let mut kinds: Vec<&str> = Vec::new();
    for cause in registration.causes.iter().filter(|cause| cause.share >= LARGE_SHARE) {
        if !kinds.contains(&cause.kind.as_str()) {
            kinds.push(&cause.kind);
        }
    }
    let of_program = |kind: &str| {
        [CauseKind::Lock, CauseKind::PageFault, CauseKind::Wait].iter().any(|it| it.name() == kind)
    };
    let (answered, open): (Vec<&str>, Vec<&str>) = kinds.into_iter().partition(|kind| is_answered(kind));
    let answered: Vec<&str> = answered.into_iter().filter(|kind| of_program(kind)).collect();
    let said = |what: &str, kinds: &[&str]| {
        let pages: Vec<String> = kinds.iter().map(|kind| format!("`whylate explain --why {kind}`")).collect();
        (!kinds.is_empty())
            .then(|| format!("{what} {}: {} says what cures it", kinds.join(", "), pages.join(", ")))
    };
    let all = [said("no treatment here answers", &open), said("the program itself can prevent", &answered)];
    let all: Vec<String> = all.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Every arm: its way through the screening, and its result.
fn tried(fix: &FixResult) -> Section {
    if fix.answer == FixAnswer::Advised {
        let item = |arm: &FixArm| Item::from(format!("`{}`: {}", arm.treatment.name, arm.reason));
        let items: Vec<Item> = fix.registration.arms.iter().map(item).collect();
        return Section::new("fix-tried", "What may help").with(items).with_all(in_plans(fix));
    }
    let columns = ["treatment", "why", "screened", "rounds", "outcome"];
    let columns =
        columns.map(|title| if title == "screened" { Column::number(title) } else { Column::text(title) });
    let columns = columns.into_iter().map(|it| if it.title == "why" { it.wraps().importance(1) } else { it });
    let arms = fix.registration.arms.iter();
    let most = fix.results.iter().map(|result| result.rounds).max().unwrap_or(0);
    let row = |arm: &FixArm| {
        let result = fix.results.iter().find(|result| result.id == arm.treatment.name);
        let rounds = result.map_or(0, |result| result.rounds);
        let race: String = (0..most).map(|round| if round < rounds { '●' } else { '○' }).collect();
        let (word, tone) = result.map_or((String::new(), Tone::Plain), outcome);
        let screened = result.and_then(|result| middle(&result.screened));
        let mut row = Row::of([
            format!("`{}`", arm.treatment.name),
            arm.reason.clone(),
            screened.map(|it| value(fix.registration.goal.statistic, it)).unwrap_or_default(),
            race,
            word,
        ]);
        row.tone = tone;
        row
    };
    let rows = as_it_is(fix).into_iter().chain(arms.map(row)).collect();
    let table = Table { columns: columns.collect(), rows, folds: false };
    let note = "Screening only chooses the treatment to confirm: each round drops half of the treatments. ● marks a round that the treatment passed.";
    let section = Section::new("fix-tried", "What was tried").with(table).with_all(in_plans(fix));
    if section.blocks.is_empty() { section } else { section.with(Block::note(note)) }
}

/// Each setting of an audit: the goal with it, as a part of the goal without it.
fn settings(fix: &FixResult) -> Section {
    let columns = ["setting", "where", "effect", "pairs", "outcome"].map(|title| match title {
        "effect" | "pairs" => Column::number(title),
        "where" => Column::text(title).wraps().importance(1),
        _ => Column::text(title),
    });
    let row = |arm: &FixArm| {
        let id = &arm.treatment.name;
        let result = fix.results.iter().find(|result| result.id == *id);
        let claim = fix.claims.iter().find(|claim| claim.tells_of(id));
        let (word, tone) = match result.map(|result| result.outcome) {
            Some(FixOutcome::NotConfirmed) | None => ("not tested".to_owned(), Tone::Soft),
            Some(FixOutcome::CannotTell) => ("cannot tell".to_owned(), Tone::Plain),
            Some(_) => result.map(outcome).unwrap_or_default(),
        };
        let effect = |claim: &FixClaim| {
            let ends = between((claim.ratio_low, claim.ratio_high), times);
            Some(format!("{} × ({ends})", times(claim.ratio?)))
        };
        let mut row = Row::of([
            format!("`{id}`"),
            arm.reason.clone(),
            claim.and_then(effect).unwrap_or_default(),
            claim.map(|claim| claim.pairs.len().to_string()).unwrap_or_default(),
            word,
        ]);
        row.tone = tone;
        row
    };
    let rows = fix.registration.arms.iter().map(row).collect();
    let section = Section::new("fix-tried", "What each setting does")
        .with(Table { columns: columns.into(), rows, folds: false })
        .with_all(in_plans(fix));
    let goal = fix.registration.goal.words();
    let note = format!("Effect: {goal} with all settings, divided by {goal} without this setting.");
    if section.blocks.is_empty() { section } else { section.with(Block::note(note)) }
}

/// The value that the treatments have to beat: the median of the untreated repeats, which the first comparison has.
fn as_it_is(fix: &FixResult) -> Option<Row> {
    let claim = fix.claims.iter().find(|claim| claim.control.is_empty())?;
    let values: Vec<f64> = claim.pairs.iter().map(|pair| pair[0]).collect();
    let untreated = value(fix.registration.goal.statistic, middle(&values)?);
    let count = format!("median of {} of the first comparison", counted(values.len(), "repeat"));
    Some(Row::of(["without a treatment".to_owned(), count, untreated, String::new(), String::new()]))
}

/// Each treatment as a plan writes it; its id stands for that.
fn in_plans(fix: &FixResult) -> Vec<Section> {
    let line = |arm: &FixArm| {
        let keys = serde_json::to_value(&arm.treatment.kind).unwrap_or_default();
        let mut keys: Vec<(String, serde_json::Value)> =
            keys.as_object().cloned().unwrap_or_default().into_iter().filter(|it| !it.1.is_null()).collect();
        keys.order_by_key(|(key, _)| key != "kind");
        let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        format!("{}: {}", arm.treatment.name, keys.join(", "))
    };
    let all: Vec<String> = fix.registration.arms.iter().map(line).collect();
    let title = "How to write these treatments in a plan";
    Section::new("", title).depth(Depth::Folded).with(Block::Lines(all)).unless_empty().into_iter().collect()
}

fn middle(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.order_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn outcome(result: &FixArmResult) -> (String, Tone) {
    let (word, tone) = match result.outcome {
        FixOutcome::Proved => ("proved", Tone::Good),
        FixOutcome::Helps => ("helps", Tone::Good),
        FixOutcome::NotNeeded => ("helps, but the other treatments suffice", Tone::Plain),
        FixOutcome::Refused => ("refused", Tone::Warn),
        FixOutcome::Equivalent => ("equivalent: does not help", Tone::Plain),
        FixOutcome::Harms => ("harms", Tone::Bad),
        FixOutcome::CannotTell => ("not proved", Tone::Plain),
        FixOutcome::NotConfirmed => ("other treatments looked better", Tone::Soft),
        FixOutcome::NotTried => ("not measured: the search ended first", Tone::Soft),
        FixOutcome::Failed => ("failed", Tone::Warn),
    };
    let why = result.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    (format!("{word}{why}"), tone)
}

/// The comparisons on fresh data, with the evidence over time.
fn proved(fix: &FixResult) -> Section {
    let reading = |claim: &FixClaim| {
        Reading::of(match claim.outcome {
            FixOutcome::Proved | FixOutcome::Helps => Outcome::Better,
            FixOutcome::Harms => Outcome::Worse,
            FixOutcome::Equivalent => Outcome::Equivalent,
            _ => Outcome::CannotTell,
        })
    };
    let item = |claim: &FixClaim| {
        let Reading { sign, tone, .. } = reading(claim);
        Item { tone, symbol: sign, text: sentence(claim).into(), below: ways(claim), ..Item::default() }
    };
    let row = |claim: &FixClaim| {
        let interval = Some((claim.ratio_low, claim.ratio_high));
        Some(ForestRow { label: title(claim), reading: reading(claim), ratio: claim.ratio?, interval })
    };
    let rows = fix.claims.iter().filter_map(row).collect();
    let margin = fix.registration.margin.0;
    let title = format!("What new measurements show about {}", fix.registration.goal.words());
    Section::new("fix-claims", title)
        .with(fix.claims.iter().map(item).collect::<Vec<Item>>())
        .with(Forest { rows, margin })
}

fn title(claim: &FixClaim) -> String {
    let missing = |from: &[String], of: &[String]| -> String {
        let missing: Vec<&str> = of.iter().filter(|it| !from.contains(it)).map(String::as_str).collect();
        missing.join(" + ")
    };
    match claim.phase {
        FixPhase::Without => {
            return format!("all settings against all except {}", missing(&claim.control, &claim.candidate));
        }
        FixPhase::Reduce => {
            return format!(
                "all settings except {} against all settings",
                missing(&claim.candidate, &claim.control)
            );
        }
        _ => {}
    }
    let control =
        if claim.control.is_empty() { "no treatment".to_owned() } else { claim.control.join(" + ") };
    format!("{} against {control}", claim.candidate.join(" + "))
}

fn sentence(claim: &FixClaim) -> String {
    let ends = (claim.ratio_low, claim.ratio_high);
    let ratio = claim.ratio.map(|ratio| format!(": {} × ({})", times(ratio), between(ends, times)));
    let word = match (claim.phase, claim.outcome) {
        (FixPhase::LeaveOut, FixOutcome::Proved) => "each part is needed",
        (FixPhase::LeaveOut, _) => "the part that was left out is not needed",
        (FixPhase::Without, FixOutcome::Helps) => "the setting helps",
        (FixPhase::Without, FixOutcome::Harms) => "the setting harms",
        (FixPhase::Without | FixPhase::Reduce, FixOutcome::Equivalent) => "no difference",
        (FixPhase::Reduce, FixOutcome::Proved) => "better",
        (FixPhase::Without | FixPhase::Reduce, FixOutcome::CannotTell) => "cannot tell",
        (_, FixOutcome::Proved) => "proved",
        (_, FixOutcome::Refused) => "refused",
        (_, FixOutcome::Equivalent) => "equivalent",
        (_, FixOutcome::Harms) => "worse",
        _ => "not proved",
    };
    let refused = claim.refused.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let evidence = match claim.removal {
        Some(_) => String::new(),
        None => format!(", {}", shown(&claim.evidence, claim.needed)),
    };
    format!(
        "`{}`{}, {}{evidence}: {word}{refused}{}",
        title(claim),
        ratio.unwrap_or_default(),
        counted(claim.pairs.len(), "pair"),
        costs(claim)
    )
}

/// Each of the two ways to a proof on a line of its own; empty if there is only one.
fn ways(claim: &FixClaim) -> Vec<(&'static str, String)> {
    let Some(removal) = &claim.removal else { return Vec::new() };
    let is_enough = claim.evidence.last().is_some_and(|last| *last >= claim.needed);
    let word = match claim.outcome {
        _ if is_enough => "lower",
        FixOutcome::Proved => "cannot tell",
        FixOutcome::Equivalent => "equivalent",
        FixOutcome::Harms => "worse",
        _ => "not proved to be lower",
    };
    let by_goal = format!("{}: {word}", shown(&claim.evidence, claim.needed));
    vec![("by the goal", by_goal), ("by its cause", removed(removal, claim.needed))]
}

/// The causes that it answers.
fn removed(removal: &FixRemoval, needed: f64) -> String {
    let named: Vec<&str> = removal.causes.iter().take(REMOVED_MAX).map(String::as_str).collect();
    let more = removal.causes.len().saturating_sub(REMOVED_MAX);
    let more = if more > 0 { format!(" and {}", counted(more, "other cause")) } else { String::new() };
    let per_s = |ns: f64| format!("{} per s", value(Statistic::Max, ns));
    format!(
        "{}{more}: {}. The median late time changed from {} to {}. In {} of {} pairs that had such late time, \
         at least half of the late time was gone; {}",
        named.join(", "),
        if removal.proved { "removed" } else { "not proved to be removed" },
        per_s(removal.before_ns_per_s),
        per_s(removal.after_ns_per_s),
        removal.removed_in,
        removal.tells_in,
        shown(&removal.evidence, needed)
    )
}

/// `evidence 12.3 of 80 ▁▂▄`.
fn shown(evidence: &[f64], needed: f64) -> String {
    let last = evidence.last().copied().unwrap_or_default();
    format!("evidence {last:.1} of {needed:.0} {}", course(evidence, needed))
}

/// The evidence over time: each step of the picture is twice the one before, and the highest is enough.
fn course(evidence: &[f64], needed: f64) -> String {
    let step = |evidence: &f64| {
        let below = (needed / evidence.max(1e-9)).log2().ceil().max(0.0) as usize;
        STEPS[(STEPS.len() - 1).saturating_sub(below)]
    };
    evidence.iter().map(step).collect()
}

/// Other changes: other statistics, and the rates of loads.
fn costs(claim: &FixClaim) -> String {
    let changed = claim.others.iter().filter(|(_, ratio)| (**ratio - 1.0).abs() >= COST_MIN);
    let changed: Vec<String> = changed.map(|(name, ratio)| format!("{name} {} ×", times(*ratio))).collect();
    if changed.is_empty() { String::new() } else { format!("; also {}", changed.join(", ")) }
}

/// The end of the reason when this user may not change the setting.
const NEEDS_ROOT: &str = "; run as root";

fn is_as_root(fix: &FixResult, left: &FixLeftOut) -> bool {
    fix.answer == FixAnswer::Advised && left.why.ends_with(NEEDS_ROOT)
}

fn as_root(fix: &FixResult) -> Section {
    let left = fix.registration.left_out.iter().filter(|left| is_as_root(fix, left));
    let items: Vec<Item> = left.map(|left| Item::from(format!("`{}`: {}", left.id, left.reason))).collect();
    let title = format!("What may help, but needs root: `sudo whylate fix --advise {}`", fix.run);
    Section::new("fix-as-root", title).with(items)
}

fn not_tried(fix: &FixResult) -> Section {
    let item = |left: &FixLeftOut| Item::from(format!("`{}` ({}): {}", left.id, left.reason, left.why));
    let others = fix.registration.left_out.iter().filter(|left| !is_as_root(fix, left));
    let items: Vec<Item> = others.map(item).collect();
    let title = match fix.answer {
        FixAnswer::Advised => "What is not proposed, and why",
        _ => "What was not tried",
    };
    Section::new("fix-left-out", title).with(items)
}

fn install(fix: &FixResult) -> Section {
    let part = |file: &whylate_core::result::FixFile| {
        let lines = file.text.lines().map(str::to_owned).collect();
        Section::new("", file.path.clone()).depth(Depth::Folded).with(Block::Lines(lines))
    };
    let is_advice = fix.answer == FixAnswer::Advised;
    let by_hand = fix.by_hand.iter().map(|it| match is_advice {
        true => Item::from(format!("`{}` ({}): {}", it.id, it.reason, it.why)),
        false => Item::from(format!("`{}`: {}", it.id, it.why)),
    });
    Section::new("fix-install", if is_advice { "What you can change yourself" } else { "What to install" })
        .with_all(fix.files.iter().map(part))
        .with(by_hand.collect::<Vec<Item>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(outcome: FixOutcome, refused: Option<&str>) -> FixClaim {
        FixClaim {
            phase: FixPhase::Confirm,
            control: Vec::new(),
            candidate: vec!["move".to_owned()],
            pairs: vec![[100e3, 125e3]; 7],
            evidence: vec![0.5, 0.1],
            needed: 80.0,
            lowers_goal: None,
            removal: Some(FixRemoval {
                causes: vec!["thread: thief".to_owned()],
                evidence: vec![1.9, 89.4],
                proved: true,
                removed_in: 7,
                tells_in: 7,
                before_ns_per_s: 3e6,
                ..FixRemoval::default()
            }),
            outcome,
            ratio: Some(1.25),
            ratio_low: None,
            ratio_high: None,
            others: std::collections::BTreeMap::new(),
            refused: refused.map(str::to_owned),
        }
    }

    #[test]
    fn a_refusal_and_each_way_that_is_not_proved_have_lines_of_their_own() {
        let refused = claim(FixOutcome::Refused, Some("worse"));
        let line = sentence(&refused);
        assert!(line.ends_with(": refused: worse") && !line.contains("not proved"), "{line}");
        let [(goal, by_goal), (cause, by_cause)] = &ways(&refused)[..] else { panic!("two ways") };
        assert_eq!((*goal, *cause), ("by the goal", "by its cause"));
        assert!(whylate_testing::says("way-of-the-goal", by_goal), "{by_goal}");
        assert!(whylate_testing::says("way-of-the-cause", by_cause), "{by_cause}");
        let mut unproved = claim(FixOutcome::CannotTell, None);
        assert!(sentence(&unproved).ends_with(": not proved"), "{}", sentence(&unproved));
        unproved.removal = None;
        let line = sentence(&unproved);
        assert!(line.contains("evidence 0.1 of 80") && ways(&unproved).is_empty(), "{line}");
    }
}
