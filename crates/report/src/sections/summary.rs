//! The answer in four sentences: was it late, how bad, the cause, what helps.

use crate::reading::{effect, interval, more, times};
use crate::section::{Item, Section, Tone};
use crate::words::counted;
use crate::worst::{self, CellSeries, LateBy};
use whylate_core::figure::{between, nanoseconds, nanoseconds_apart, nanoseconds_f64, share};
use whylate_core::order::InOrder;
use whylate_core::plan::{ProbePlan, Samples, Statistic};
use whylate_core::quantity::{DOUBT_MAX_NS, OVERRUNS, TASK, THROTTLED, UNSEEN_MAX_NS};
use whylate_core::result::{
    Cause, CauseClass, CauseKind, CellResult, Comparison, CpuResult, LateKind, LateTime, NoiseFloor, Outcome,
    RunResult, Verdict, late_kinds,
};
use whylate_core::{SeriesName, WarningCode};

/// The most culprits that are named.
const WHO_MAX: usize = 3;
/// A smaller part of the late time is no reason to change a priority.
const WAITED_MIN: f64 = 0.1;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let deciding = deciding(run);
    let item = |label: &'static str, (text, tone): (String, Tone)| Item {
        label,
        tone,
        text: text.into(),
        ..Item::default()
    };
    let (treatments, loads): (Vec<&Comparison>, Vec<&Comparison>) = run
        .comparisons
        .iter()
        .filter(|it| it.primary)
        .partition(|it| more(run, (&it.baseline, &it.cell), |cell| &cell.treatments).is_some());
    let effects = effects(run, &loads, |cell| &cell.loads);
    let mut items = vec![item("late", late(run))];
    let how_bad = deciding.as_deref().and_then(|cells| how_bad(run, cells));
    items.extend(how_bad.map(|text| item("how bad", (text, Tone::Plain))));
    items.extend(of_scheduler(run).map(|text| item("gaps", (text, Tone::Plain))));
    items.push(item("who", (who(run, deciding.as_deref()), Tone::Plain)));
    items.extend((!effects.is_empty()).then(|| item("effect", (effects, Tone::Plain))));
    items.extend(super::late_causes::in_short(run));
    items.push(item("helps", (helps(run, deciding.as_deref(), &treatments), Tone::Plain)));
    vec![Section::new("summary", "In short").with(items)]
}

/// The series that decides: that of the primary statistic, or the first one about lateness.
pub(super) fn deciding(run: &RunResult) -> Option<Vec<CellSeries<'_>>> {
    let primary = run.plan.primary_statistic();
    let mut all = worst::series(run);
    let is_primary = |name: &str| primary.as_ref().is_some_and(|primary| primary.is_of(name));
    let is_late =
        |name: &str| SeriesName::of(name).facts().is_some_and(|facts| facts.samples == Samples::Lateness);
    let of_threads = all.iter().enumerate().filter(|(_, (name, _))| thread(name).is_some());
    let latest = of_threads.rev().max_by_key(|(_, (_, cells))| weight(cells)).map(|(at, _)| at);
    let at = all.iter().position(|(name, _)| is_primary(name));
    let at = match at {
        Some(at) if thread(&all[at].0).is_some() => latest,
        at => at,
    };
    let at = at.or_else(|| all.iter().position(|(name, _)| is_late(name))).unwrap_or(0);
    (at < all.len()).then(|| all.swap_remove(at).1)
}

/// The order of watched threads by importance: one that missed its deadline, one with a real-time priority, the one that missed
/// most, then the latest. A whole response is longer than its parts.
fn weight(cells: &[CellSeries<'_>]) -> (bool, bool, u64, Option<u64>) {
    let any = |is_it: fn(&CpuResult) -> bool| cells.iter().flat_map(|cell| &cell.cpus).any(|cpu| is_it(cpu));
    let is_missed = any(|cpu| cpu.get(OVERRUNS).is_some_and(|missed| missed > 0));
    let is_realtime = any(|cpu| cpu.quantities.of(TASK).is_some_and(|task| task.priority > 0));
    let missed = cells.iter().flat_map(|cell| &cell.cpus).filter_map(|cpu| cpu.get(OVERRUNS)).sum();
    (is_missed, is_realtime, missed, cells.iter().filter_map(CellSeries::max_ns).max())
}

/// The watched thread of a series.
fn thread(series: &str) -> Option<&str> {
    series.strip_prefix("task/")
}

fn late(run: &RunResult) -> (String, Tone) {
    let watched =
        run.exposure.map(|exposure| format!(" in {}", nanoseconds(exposure.watched_ns))).unwrap_or_default();
    match (run.verdict, run.plan.limit) {
        (Verdict::Fail, Some(limit)) => {
            let is_over = |cell: &&CellResult| worst::largest_in_ns(cell).is_some_and(|max| max > limit.0);
            let over = run.cells.iter().filter(is_over);
            let over: Vec<&str> = over.map(|cell| cell.name.as_str()).collect();
            if over.is_empty() && run.plan.deadline().or(run.plan.chain_deadline()).is_some() {
                return (format!("Yes: {}.", run.verdict_reason), Tone::Bad);
            }
            // Probes measure one after another: their events are not added up.
            let of_probe = if run.plan.probe.len() > 1 { " of the worst probe" } else { "" };
            let times = run
                .exposure
                .and_then(|exposure| exposure.above())
                .map(|above| format!(", by {above}{of_probe},"))
                .unwrap_or_default();
            let place = if over.is_empty() { String::new() } else { format!(" in {}", over.join(", ")) };
            let floor = below_noise_floor(run, limit.0);
            let floor = floor.map(|floor| format!(" {floor}")).unwrap_or_default();
            (format!("Yes: the limit of {limit} was exceeded{place}{times}{watched}.{floor}"), Tone::Bad)
        }
        (Verdict::Pass, Some(limit)) => {
            (format!("No: no latency exceeded the limit of {limit}{watched}."), Tone::Good)
        }
        (Verdict::Pass, None) => {
            let (what, deadline) = match run.plan.deadline() {
                Some(deadline) => ("response", Some(deadline)),
                None => ("instance of a chain", run.plan.chain_deadline()),
            };
            let deadline = deadline.map(|it| format!(" of {it}")).unwrap_or_default();
            (format!("No: every {what} was within the deadline{deadline}{watched}."), Tone::Good)
        }
        // A response missed its deadline.
        (Verdict::Fail, None) => (format!("Yes: {}.", run.verdict_reason), Tone::Bad),
        (Verdict::Incomplete, _) => (format!("Cannot tell: {}.", run.verdict_reason), Tone::Warn),
        _ if run.plan.probe.iter().any(|probe| matches!(probe, ProbePlan::Task(_))) => (
            "Not judged: no deadline is set (`whylate watch --deadline 1ms` sets one).".to_owned(),
            Tone::Plain,
        ),
        _ => (
            "Not judged: no limit is set (`whylate run PLAN --set limit=100us` sets one).".to_owned(),
            Tone::Plain,
        ),
    }
}

/// What it means that the limit is below the noise floor of each cell: a task cannot meet it here only if what made the
/// floor is outside the kernel.
fn below_noise_floor(run: &RunResult, limit_ns: u64) -> Option<String> {
    let floors = || run.cells.iter().filter_map(|cell| cell.noise_floor.as_ref());
    if !floors().all(|floor| floor.max_ns.is_some_and(|max_ns| max_ns > limit_ns)) {
        return None;
    }
    let largest = floors().max_by_key(|floor| floor.max_ns)?;
    let floor = nanoseconds(largest.max_ns?);
    if floors().all(|floor| sure_cause(floor).is_some_and(|it| it.kind.class() == CauseClass::Machine)) {
        return Some(format!(
            "This limit cannot be met on this machine: the noise floor is {floor}, without any load."
        ));
    }
    let removable = sure_cause(largest).filter(|it| it.kind.class() != CauseClass::Machine);
    Some(match removable {
        Some(cause) => {
            // The threads of the kernel with a number are its own.
            let is_program = |actor: &String| cause.kind == CauseKind::Thread && !actor.contains('/');
            let advice = match cause.actor.as_ref().is_some_and(is_program) {
                true => ": stop it, and repeat the run",
                false => "",
            };
            format!("The noise floor is {floor} without any load, by {}{advice}.", cause_name(cause))
        }
        None => format!("It was not met even without load (noise floor {floor})."),
    })
}

/// The cause of the largest gap without load, if it is likely and took most of the gap.
pub(super) fn sure_cause(floor: &NoiseFloor) -> Option<&Cause> {
    let is_sure = |it: &&Cause| it.confidence.unwrap_or(1.0) >= 0.6 && it.share.unwrap_or(1.0) >= 0.5;
    floor.cause.as_ref().filter(|it| it.kind != CauseKind::Unattributed).filter(is_sure)
}

/// `thread axle`, `irqs off (irq/45-nvkm)`, `steal`.
pub(super) fn cause_name(cause: &Cause) -> String {
    let kind = cause.kind.words();
    match (&cause.actor, cause.kind) {
        (Some(actor), CauseKind::Thread) => format!("{kind} {actor}"),
        (None, CauseKind::Thread) => "another thread".to_owned(),
        (Some(actor), _) => format!("{kind} ({actor})"),
        (None, _) => kind,
    }
}

/// `Up to 2.31 ms, in above-l3 on CPU 1; median p99.9 is 381 us in above-l3 and 53.0 us in idle.`
pub(super) fn how_bad(run: &RunResult, cells: &[CellSeries<'_>]) -> Option<String> {
    let worst = cells.iter().max_by_key(|cell| cell.max_ns())?;
    let max = nanoseconds(worst.max_ns()?);
    let best = cells.iter().min_by_key(|cell| cell.max_ns())?;
    // The user's threads may run on several CPUs.
    let place = match thread(&worst.name) {
        Some(thread) => format!(" for {thread}, in {}", worst.cell.name),
        None => format!(", in {} on CPU {}", worst.cell.name, worst.worst()?.cpu),
    };
    if worst.samples() == Some(Samples::Gap) {
        let lost = worst.lost_share().map(|lost| format!("; all gaps took {} of its time", share(lost)));
        return Some(format!("The loop stopped for up to {max}{place}{}.", lost.unwrap_or_default()));
    }
    let middle = |cell: &CellSeries<'_>| worst::middle(run, cell, Statistic::P999).map(nanoseconds_f64);
    let pooled = |cell: &CellSeries<'_>| cell.quantile(|figures| figures.p999_ns).map(nanoseconds);
    let within = |cell: &CellSeries<'_>| middle(cell).or_else(|| pooled(cell));
    let (cell, other) = (&worst.cell.name, &best.cell.name);
    let of = match middle(worst) {
        Some(_) => "median ",
        // Of compared cells, the notes of the table say so.
        None if worst.is_corrected() => "corrected ",
        None => "",
    };
    let p999 = match (within(worst), within(best).filter(|_| cell != other)) {
        (Some(p999), Some(best)) => format!("; {of}p99.9 is {p999} in {cell} and {best} in {other}"),
        (Some(p999), None) => format!("; {of}p99.9 is {p999}"),
        (None, _) => String::new(),
    };
    let late = if worst.samples() == Some(Samples::Lateness) { " late" } else { "" };
    let possible = possible(cells).unwrap_or_default();
    let ends = match waits_unseen(cells) && run.plan.is_per_wakeup() {
        true => " Each sleep ends a response here: waits for locks and disks are not part of it.",
        false => "",
    };
    Some(format!("Up to {max}{late}{place}{possible}{p999}.{ends}"))
}

/// How long the responses of a watched thread may have been, with what the record does not show.
fn possible(cells: &[CellSeries<'_>]) -> Option<String> {
    let cpus = || cells.iter().flat_map(|cell| &cell.cpus);
    let known_ns = cells.iter().filter_map(CellSeries::max_ns).max();
    let longest = |key| cpus().filter_map(|cpu| cpu.get(key)).max().filter(|ns| Some(*ns) > known_ns);
    let (doubt_ns, waits_unseen) = (longest(DOUBT_MAX_NS), waits_unseen(cells));
    let unseen = longest(UNSEEN_MAX_NS).and_then(|ns| match (waits_unseen, doubt_ns) {
        // Sleeps in the middle of the work add to it, by an unknown time.
        (true, Some(_)) => None,
        (true, None) => {
            Some(format!("; at most {}, with waits for a CPU that were not recorded", nanoseconds(ns)))
        }
        (false, _) => Some(format!("; gaps in the record may hide a response of up to {}", nanoseconds(ns))),
    });
    let in_doubt = doubt_ns.map(|ns| {
        let longest = match waits_unseen {
            true => format!("{} or more", nanoseconds(ns)),
            false => format!("up to {}", nanoseconds(ns)),
        };
        format!("; {longest}, if sleeps of unknown meaning were in the middle of the work")
    });
    let all: String = unseen.into_iter().chain(in_doubt).collect();
    (!all.is_empty()).then_some(all)
}

/// Whether waits for a CPU before the thread ran were not recorded.
fn waits_unseen(cells: &[CellSeries<'_>]) -> bool {
    cells.iter().flat_map(|cell| &cell.cpus).any(|cpu| cpu.has_unseen_waits())
}

/// Time that the scheduler takes on purpose is shown separately.
fn of_scheduler(run: &RunResult) -> Option<String> {
    let probes = || run.cells.iter().flat_map(|cell| &cell.probes);
    let of_scheduler = |cpu: &CpuResult| cpu.get(THROTTLED).filter(|it| it.gaps > 0);
    let largest = |cpu: &CpuResult| cpu.quantiles.map_or(0, |it| it.max_ns);
    let other = |cpu: &CpuResult| of_scheduler(cpu).map_or(largest(cpu), |it| it.other_max_ns);
    let made = |cpu: &&CpuResult| of_scheduler(cpu).is_some() && largest(cpu) > other(cpu);
    let has_made = |name: &str| probes().any(|it| it.probe == name && it.cpus.iter().any(|cpu| made(&cpu)));
    let cpus: Vec<&CpuResult> =
        probes().filter(|it| has_made(&it.probe)).flat_map(|probe| &probe.cpus).collect();
    let made_ns = cpus.iter().copied().filter(made).map(largest).max()?;
    let (largest, other) = nanoseconds_apart(made_ns, cpus.iter().copied().map(other).max()?);
    Some(format!(
        "Gaps of up to {largest} come from the scheduler (real-time throttling or the fair server) and are \
         not latency; the largest other gap is {other}."
    ))
}

fn who(run: &RunResult, deciding: Option<&[CellSeries<'_>]>) -> String {
    let name = deciding.and_then(|cells| cells.first()).map(|cell| cell.name.clone()).unwrap_or_default();
    let LateBy { found, basis, spikes } = worst::late_by(&run.cells, &name);
    let is_known = found.iter().any(LateTime::is_explained);
    match (!is_known, spikes == 0, run.plan.causes) {
        (false, ..) => {
            let waits = match deciding.is_some_and(waits_unseen) {
                true => {
                    " Waits for a CPU before the thread ran, and waits for locks, were not recorded, so no share contains \
                     them. As root, whylate sees both."
                }
                false => "",
            };
            format!("{}; shares refer to the late time of {basis}.{waits}", culprits(&found))
        }
        (true, true, _) => format!("No spike of {name} was recorded."),
        (true, false, true) if run.warnings.iter().any(|one| one.code == WarningCode::NoCauses) => {
            "Not known: causes could not be looked for here (the warning `no-causes` says why).".to_owned()
        }
        (true, false, true) => {
            let spikes = counted(spikes, "spike");
            format!("Not known: no record explains the {spikes} of {name}.")
        }
        (true, false, false) => {
            "Causes were not looked for. To find the cause of each spike, use `--causes` with `whylate measure`, or \
             `--set causes=true` with `whylate run`, as root."
                .to_owned()
        }
    }
}

/// The kinds that took most, the one that took most of one spike, the others together, and the unexplained rest, which
/// comes first if it is the largest part: they add up to the whole.
fn culprits(found: &[LateTime]) -> String {
    let named = |name: &str, part: f64| format!("{name} ({})", share(part));
    let kinds = late_kinds(found);
    let known = kinds.iter().filter(|kind| kind.is_explained);
    let largest = known.clone().map(|kind| kind.largest_ns).fold(0.0, f64::max);
    let is_shown = |(nth, kind): &(usize, &LateKind)| *nth < WHO_MAX || kind.largest_ns >= largest;
    let (first, others): (Vec<_>, Vec<_>) = known.enumerate().partition(is_shown);
    let others: f64 = others.iter().map(|(_, kind)| kind.share).sum();
    let first = first.into_iter().map(|(_, kind)| named(&kind.name, kind.share));
    let others = (others > 0.0).then(|| named("others", others));
    let unknown = kinds.iter().filter(|kind| !kind.is_explained).map(|kind| named(&kind.name, kind.share));
    let mut all: Vec<String> = first.chain(others).chain(unknown).collect();
    if kinds.first().is_some_and(|kind| !kind.is_explained) {
        all.rotate_right(1);
    }
    all.join("; ")
}

fn effects(run: &RunResult, comparisons: &[&Comparison], of: fn(&CellResult) -> &Vec<String>) -> String {
    let mut sorted = comparisons.to_vec();
    sorted.order_by(|a, b| crate::reading::by_severity(a, b));
    let margin = run.plan.margin;
    let what = |it: &Comparison| {
        let what = more(run, (&it.baseline, &it.cell), of)
            .map_or_else(|| it.cell.clone(), |names| names.join(" and "));
        format!("{what}{}", circumstances(run, it))
    };
    let clause = |it: &&Comparison| {
        let what = what(it);
        let of = format!("{} {}", it.probe, it.statistic);
        match it.outcome {
            Outcome::Worse => format!("{what}: {of} worse, {}", effect(it)),
            Outcome::Better => format!("{what}: {of} better, {}", effect(it)),
            Outcome::Equivalent => format!("{what}: no effect above {margin} on {of}"),
            Outcome::CannotTell => {
                // The plan's own questions say below what they need, by the effect that matters to them.
                let more = it.more_repeats.filter(|_| run.plan.answer.is_empty());
                let more = more.map(|more| counted(more, "more repeat"));
                let more = more.map(|more| format!("; about {more} would tell"));
                let reason = it.refused.as_ref().map(|reason| format!("; {reason}")).or(more);
                format!("{what}: cannot tell for {of}, {}{}", effect(it), reason.unwrap_or_default())
            }
        }
    };
    // Comparisons that are undecided for the same reason appear in one sentence.
    let is_alike = |a: &&Comparison, b: &&Comparison| {
        undecided(a).and(undecided(b)).is_some() && (&a.probe, a.statistic) == (&b.probe, b.statistic)
    };
    let together = |those: &[&Comparison]| {
        let Comparison { probe, statistic, .. } = those.first()?;
        let each = those.iter().filter_map(|it| Some(format!("{} {} ×", what(it), times(undecided(it)?))));
        let each = each.collect::<Vec<_>>().join(", ");
        let why = between((None, None), times);
        (those.len() > 1).then(|| format!("cannot tell for {probe} {statistic} ({why}): {each}"))
    };
    let clauses = sorted.chunk_by(is_alike).flat_map(|those| match together(those) {
        Some(text) => vec![text],
        None => those.iter().map(clause).collect(),
    });
    let clauses: Vec<String> = clauses.collect();
    if clauses.is_empty() { String::new() } else { format!("{}.", clauses.join("; ")) }
}

/// The ratio of a comparison that is undecided only because there are too few repeats.
fn undecided(it: &Comparison) -> Option<f64> {
    let is_bare = it.outcome == Outcome::CannotTell && it.more_repeats.is_none();
    it.ratio.filter(|_| is_bare && it.refused.is_none() && interval(it) == Some((None, None)))
}

/// What both cells of a contrast have: ` under l3`, ` with shielded`.
fn circumstances(run: &RunResult, it: &Comparison) -> String {
    let Some(fewer) = run.cells.iter().find(|cell| cell.name == it.baseline) else { return String::new() };
    let joined = |word: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!(" {word} {}", names.join("+")),
    };
    format!("{}{}", joined("under", &fewer.loads), joined("with", &fewer.treatments))
}

/// A treatment whose cell exceeds the limit while the cell without it does not, whatever the statistic says.
fn missed_with(run: &RunResult, it: &Comparison) -> Option<String> {
    let limit = run.plan.limit?;
    let largest = |name: &str| worst::largest_in_ns(run.cells.iter().find(|cell| cell.name == name)?);
    let (without, with) = (largest(&it.baseline)?, largest(&it.cell)?);
    (it.outcome == Outcome::Better && with > limit.0 && without <= limit.0).then(|| {
        format!(
            "But {} exceeds the limit of {limit} ({}), and {} does not ({}).",
            it.cell,
            nanoseconds(with),
            it.baseline,
            nanoseconds(without)
        )
    })
}

/// What gives a watched thread of ordinary priority the CPU, if waits for a CPU took a relevant part of its late time.
fn real_time_priority(run: &RunResult, deciding: &[CellSeries<'_>]) -> Option<String> {
    let name = &deciding.first()?.name;
    let found = worst::late_by(&run.cells, name).found;
    let waited = found.into_iter().filter(|one| one.kind == CauseKind::Thread);
    let part: f64 = waited.map(|one| one.share).sum();
    let mut tasks = deciding.iter().flat_map(|cell| &cell.cpus).filter_map(|cpu| cpu.quantities.of(TASK));
    let advice = tasks.next().filter(|_| part >= WAITED_MIN)?.real_time_advice()?;
    Some(format!(
        "{advice}. The task spent {} of the late time waiting for a CPU that another thread used.",
        share(part)
    ))
}

/// What a user of `watch` does next about the largest cause of late time.
fn next_of_watch(run: &RunResult, deciding: Option<&[CellSeries<'_>]>) -> String {
    let settings = format!("settings that may help, `whylate fix --advise {}`", run.run);
    let name = deciding.and_then(|cells| Some(&cells.first()?.name));
    let found = name.map(|name| worst::late_by(&run.cells, name).found).unwrap_or_default();
    let largest = found.iter().map(|one| one.kind).find(|kind| *kind != CauseKind::Unattributed);
    match largest {
        Some(kind) => {
            format!("For the largest cause, see `whylate explain --why {}`; for {settings}.", kind.name())
        }
        None => format!("For {settings}."),
    }
}

fn helps(run: &RunResult, deciding: Option<&[CellSeries<'_>]>, treatments: &[&Comparison]) -> String {
    // A search compares on fresh data, by its own rules.
    if let Some(fix) = &run.fix {
        return format!("{}.", fix.sentence);
    }
    if !treatments.is_empty() {
        let mut sentences = vec![effects(run, treatments, |cell| &cell.treatments)];
        sentences.extend(treatments.iter().filter_map(|it| missed_with(run, it)));
        return sentences.join(" ");
    }
    if let Some(advice) = deciding.and_then(|cells| real_time_priority(run, cells)) {
        return advice;
    }
    let treated = || run.cells.iter().filter(|cell| !cell.treatments.is_empty());
    let skipped = treated().find_map(|cell| Some((&cell.name, cell.skipped.as_ref()?)));
    match skipped {
        Some((name, reason)) => format!("Not tried: {name} was skipped: {reason}"),
        None if treated().next().is_some() => {
            "Not known: no cell with a treatment can be compared with a cell without that treatment."
                .to_owned()
        }
        None if run.plan.is_watch() => next_of_watch(run, deciding),
        None => "Not tried: the plan has no treatment; `whylate check` names some, `whylate fix` tries them."
            .to_owned(),
    }
}
