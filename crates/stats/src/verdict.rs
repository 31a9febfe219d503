//! Pass or fail against the plan's limit.
//!
//! The limit applies to the largest value of each series (`ProbeFacts::judged`). A pass says that nothing was above
//! the limit in the measured time, and how often such a value may still come. It needs every cell measured completely
//! and for long enough. A value above the limit is a failure whatever else is missing.
//!
//! The deadline of watched tasks is a limit for them: a response that missed it is a failure too, and judges a plan
//! without another limit. A chain has a deadline of its own.

use crate::exposure::{self, JudgedSeries, judged};
use whylate_core::figure::{counted, nanoseconds, nanoseconds_apart};
use whylate_core::order::InOrder;
use whylate_core::plan::{Chain, Judged, Plan, ProbeFacts, ProbePlan, Samples};
use whylate_core::quantity::{
    DOUBT_MAX_NS, DOUBTS, LATER_PERIODS, OVERRUNS, POSSIBLY_LATE, THROTTLED, UNSEEN, UNSEEN_MAX_NS,
    UNSEEN_WAITS,
};
use whylate_core::result::{CellResult, ChainResult, CpuResult, Exposure, ProbeResult, Verdict};
use whylate_core::{CpuId, Nanos, SeriesName};

/// How many reasons an incomplete verdict names.
const REASONS_NAMED: usize = 3;

/// The largest value of a series in an attempt that a later one replaced: a violation that was seen stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierMaximum {
    pub cell: String,
    pub probe: String,
    pub cpu: CpuId,
    pub value_ns: u64,
}

/// A verdict and its grounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Pass or fail.
    pub verdict: Verdict,
    /// The worst cell, probe, CPU and value, or what is missing for a pass, in one sentence.
    pub reason: String,
    /// How long was measured over all cells; `None` without a limit.
    pub exposure: Option<Exposure>,
}

/// What latencies are judged by: the limit of the plan, or the deadline of its tasks.
#[derive(Clone, Copy)]
struct Bound {
    name: &'static str,
    at: Nanos,
}

/// The largest value of one probe on one CPU in one cell.
struct Worst<'a> {
    cell: &'a str,
    facts: ProbeFacts,
    cpu: CpuId,
    value_ns: u64,
    /// The largest gap that the scheduler did not make, if it made the largest.
    unthrottled_ns: Option<u64>,
}

/// Judges the cells by the limit of `plan` and the deadline of its tasks, and writes each cell's exposure into it.
/// `missing` lists what was not measured, was lost or is damaged: with any of it there is no pass.
pub fn judge(
    cells: &mut [CellResult],
    earlier: &[EarlierMaximum],
    plan: &Plan,
    missing: &[String],
) -> Judgement {
    let unended = unended(cells, plan);
    let missing = &[missing, &unended].concat()[..];
    let by_limit = match (plan.limit, plan.deadline().or(plan.chain_deadline())) {
        (Some(at), _) => by_limit(cells, earlier, plan, Bound { name: "limit", at }, missing),
        (None, Some(deadline)) => by_deadline(cells, earlier, plan, deadline, missing),
        (None, None) => without_limit(cells, earlier, missing),
    };
    match missed(cells, plan) {
        Some(reason) if by_limit.verdict != Verdict::Fail || plan.limit.is_none() => {
            let missing = if missing.is_empty() { String::new() } else { format!("; {}", list(missing)) };
            Judgement { verdict: Verdict::Fail, reason: format!("{reason}{missing}"), ..by_limit }
        }
        _ => by_limit,
    }
}

/// Judges a plan without a limit by the deadlines of its tasks.
fn by_deadline(
    cells: &mut [CellResult],
    earlier: &[EarlierMaximum],
    plan: &Plan,
    deadline: Nanos,
    missing: &[String],
) -> Judgement {
    let is_task = |probe: &str| SeriesName::of(probe).is_of_user();
    let of_tasks = |cell: &CellResult| {
        let mut probes: Vec<ProbeResult> =
            cell.probes.iter().filter(|probe| is_task(&probe.probe)).cloned().collect();
        probes
            .iter_mut()
            .for_each(|probe| probe.cpus.retain(|task| has_deadline(task.series.as_deref(), plan)));
        let (name, skipped) = (cell.name.clone(), cell.skipped.clone());
        CellResult { name, skipped, probes, repeats: cell.repeats.clone(), ..CellResult::default() }
    };
    let mut tasks: Vec<CellResult> = cells.iter().map(of_tasks).collect();
    let is_judged =
        |it: &&EarlierMaximum| is_task(&it.probe) && has_deadline(SeriesName::of(&it.probe).series, plan);
    let earlier: Vec<EarlierMaximum> = earlier.iter().filter(is_judged).cloned().collect();
    let probe = plan.probe.iter().filter(|probe| matches!(probe, ProbePlan::Task(_))).cloned().collect();
    let bound = Bound { name: "deadline", at: deadline };
    let judgement = by_limit(&mut tasks, &earlier, &Plan { probe, ..plan.clone() }, bound, missing);
    for (cell, task) in cells.iter_mut().zip(tasks) {
        cell.exposure = task.exposure;
    }
    judgement
}

/// Whether the deadline by which all tasks are judged is that of this series: chains have their own.
fn has_deadline(series: Option<&str>, plan: &Plan) -> bool {
    let series = series.unwrap_or_default();
    match plan.deadline() {
        Some(_) => !plan.is_chain(series),
        None => plan.deadline_of_chain(series).is_some(),
    }
}

/// The chains with a deadline that have instances without an end: these may be late.
fn unended(cells: &[CellResult], plan: &Plan) -> Vec<String> {
    let chains = cells.iter().flat_map(|cell| &cell.probes).flat_map(|probe| &probe.chains);
    let open = chains.filter(|chain| {
        (chain.record.dropped > 0 || chain.record.instances == 0)
            && plan.deadline_of_chain(&Chain::series_of(&chain.record.name)).is_some()
    });
    let described = |chain: &ChainResult| {
        if chain.record.instances == 0 {
            return format!("chain `{}` has no instance from begin to end", chain.record.name);
        }
        let dropped = counted(chain.record.dropped, "instance");
        format!("{dropped} of chain `{}` did not end", chain.record.name)
    };
    open.map(described).collect()
}

/// The most threads that the reason of a missed deadline names.
const LATE_NAMED: usize = 2;

/// Which tasks were too late, how often and by how much.
fn missed(cells: &[CellResult], plan: &Plan) -> Option<String> {
    let tasks = probes_of_users(cells).flat_map(|probe| &probe.cpus);
    let late: Vec<&CpuResult> = tasks.filter(|task| task.get(OVERRUNS) > Some(0)).collect();
    if late.is_empty() {
        return None;
    }
    let is_chain = |task: &&CpuResult| task.series.as_deref().is_some_and(|series| plan.is_chain(series));
    let (chains, tasks): (Vec<&CpuResult>, Vec<&CpuResult>) = late.into_iter().partition(is_chain);
    let of_chains = chains.into_iter().filter_map(|chain| missed_by_chain(chain, plan));
    let all: Vec<String> =
        of_chains.chain(missed_by_tasks(tasks, plan)).chain(not_judged(cells, plan)).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn probes_of_users(cells: &[CellResult]) -> impl Iterator<Item = &ProbeResult> {
    let probes = cells.iter().flat_map(|cell| &cell.probes);
    probes.filter(|probe| probe.facts().is_some_and(|facts| facts.is_of_user()))
}

/// Whether a response that was not recorded, or whose sleeps are in doubt, may be longer than this.
fn may_exceed(task: &CpuResult, bound: Nanos) -> bool {
    [UNSEEN_MAX_NS, DOUBT_MAX_NS]
        .iter()
        .any(|key| task.get(*key).is_some_and(|longest_ns| longest_ns > bound.0))
}

/// How many responses may have missed the deadline at most; `None` if gaps in the record may hide any number.
fn missed_max(task: &CpuResult, deadline: Nanos) -> Option<u64> {
    let only_waits = task.has_unseen_waits() && task.get(UNSEEN_WAITS) == task.get(UNSEEN);
    // If waits for a CPU are not recorded, the bounds of sleeps in doubt are no limits.
    let in_doubt = task.get(DOUBT_MAX_NS).is_some_and(|longest_ns| longest_ns > deadline.0)
        || (only_waits && task.get(DOUBTS) > Some(0));
    let is_bounded = !may_exceed(task, deadline) || (only_waits && !in_doubt);
    is_bounded.then(|| task.get(OVERRUNS).unwrap_or(0) + task.get(POSSIBLY_LATE).unwrap_or(0))
}

/// The threads without a recorded miss that may have missed the deadline all the same.
fn not_judged(cells: &[CellResult], plan: &Plan) -> Option<String> {
    let deadline = plan.deadline()?;
    let tasks = probes_of_users(cells).flat_map(|probe| &probe.cpus);
    let is_open = |task: &&CpuResult| task.get(OVERRUNS).unwrap_or(0) == 0 && may_exceed(task, deadline);
    let name = |task: &CpuResult| {
        let name = task.series.clone()?;
        Some(match missed_max(task, deadline) {
            Some(most) => format!("{name} (up to {most} of {} may have missed it)", responses(task)),
            None => name,
        })
    };
    let names: Vec<String> = tasks.filter(is_open).filter_map(name).collect();
    let (named, others) = names.split_at(names.len().min(LATE_NAMED));
    let more = (!others.is_empty()).then(|| format!(" and {}", counted(others.len(), "other thread")));
    (!named.is_empty()).then(|| format!("cannot judge {}{}", named.join(", "), more.unwrap_or_default()))
}

/// `5 of 50 instances of chain `frame` missed the deadline of 20.0 ms; the longest took 31.0 ms`.
fn missed_by_chain(chain: &CpuResult, plan: &Plan) -> Option<String> {
    let series = chain.series.as_deref()?;
    let (name, deadline) = (Chain::of_series(series)?, plan.deadline_of_chain(series)?);
    let (value, deadline) =
        nanoseconds_apart(chain.quantiles.map_or(0, |figures| figures.max_ns), deadline.0);
    let (late, all) = (chain.get(OVERRUNS).unwrap_or(0), chain.samples);
    Some(format!(
        "{late} of {all} instances of chain `{name}` missed the deadline of {deadline}; the longest took {value}"
    ))
}

fn responses(task: &CpuResult) -> String {
    counted(task.samples, "response")
}

fn missed_by_tasks(mut late: Vec<&CpuResult>, plan: &Plan) -> Option<String> {
    let deadline = plan.deadline()?;
    let missed = |task: &CpuResult| task.get(OVERRUNS).unwrap_or(0);
    late.order_by_key(|task| std::cmp::Reverse(missed(task)));
    let longest = late.iter().max_by_key(|task| task.quantiles.map(|figures| figures.max_ns))?;
    let name = |task: &CpuResult| task.series.clone().unwrap_or_else(|| "the task".to_owned());
    let is_bounded = late.iter().all(|task| missed_max(task, deadline).is_some());
    // How many of some threads' responses missed the deadline, if their possible waits are counted too.
    let number = |tasks: &[&CpuResult]| {
        let least: u64 = tasks.iter().map(|task| missed(task)).sum();
        let most: Option<u64> = tasks.iter().map(|task| missed_max(task, deadline)).sum();
        match most.filter(|most| is_bounded && *most > least) {
            Some(most) => (format!("{least} to {most}"), most),
            None => (least.to_string(), least),
        }
    };
    let mut named: Vec<String> = late
        .iter()
        .take(LATE_NAMED)
        .map(|task| format!("{} of {} responses of {}", number(&[task]).0, task.samples, name(task)))
        .collect();
    if late.len() > LATE_NAMED {
        let (text, most) = number(&late[LATE_NAMED..]);
        let others = counted(late.len() - LATE_NAMED, "other thread");
        named.push(format!("{text} response{} of {others}", if most == 1 { "" } else { "s" }));
    }
    let at_least = if is_bounded { "" } else { "at least " };
    let longest_ns = longest.quantiles.map_or(0, |figures| figures.max_ns);
    let possible = late.iter().filter_map(|task| task.get(UNSEEN_MAX_NS)).max();
    let possible = possible.filter(|possible_ns| is_bounded && *possible_ns > longest_ns);
    let most = possible.map(|ns| format!(" to {}", nanoseconds(ns))).unwrap_or_default();
    let (value, deadline) = nanoseconds_apart(longest_ns, deadline.0);
    let is_named = late.len() > 1 && possible.is_none();
    let of = if is_named { format!(", in {}", name(longest)) } else { String::new() };
    let named = named.join(", ");
    let later: u64 = late.iter().filter_map(|task| task.get(LATER_PERIODS)).sum();
    let later = match later {
        0 => String::new(),
        _ => format!("; {} began before such a response had ended", counted(later, "later period")),
    };
    Some(format!(
        "{at_least}{named} missed the deadline of {deadline}{later}; the longest took {at_least}{value}{most}{of}"
    ))
}

fn by_limit(
    cells: &mut [CellResult],
    earlier: &[EarlierMaximum],
    plan: &Plan,
    bound: Bound,
    missing: &[String],
) -> Judgement {
    for cell in cells.iter_mut() {
        cell.exposure = exposure::exposure(cell, bound.at);
    }
    let total = exposure::total(cells);
    let worst = worst(cells, earlier);
    let (verdict, reason) = match (&worst, total) {
        (Some(worst), _) if worst.value_ns > bound.at.0 => {
            let probes = exposure::worst_probes(cells, bound.at);
            (Verdict::Fail, failure(worst, bound, (total, probes.as_slice()), missing))
        }
        (_, Some(total)) => {
            let missing: Vec<String> = missing
                .iter()
                .cloned()
                .chain(cells.iter().flat_map(|cell| too_little(cell, plan)))
                .chain(cells.iter().flat_map(|cell| in_doubt(cell, bound)))
                .chain(ended_by_sleeps(cells, plan))
                .chain(cells.iter().filter_map(too_few_responses))
                .collect();
            let worst = worst.as_ref();
            match missing.is_empty() {
                true => (Verdict::Pass, pass(cells, worst, bound.at, total)),
                false => (Verdict::Incomplete, incomplete(worst, bound, &missing)),
            }
        }
        (_, None) => (Verdict::Incomplete, list(&with("there are no samples", missing))),
    };
    Judgement { verdict, reason, exposure: total }
}

/// The longest response of watched threads with the waits for a CPU that are possible before it; `None` if these waits were
/// recorded, or if sleeps of unknown meaning may be longer.
fn longest_with_waits(cells: &[CellResult]) -> Option<u64> {
    let tasks = || probes_of_users(cells).flat_map(|probe| &probe.cpus);
    if tasks().any(|task| task.get(DOUBT_MAX_NS) > task.get(UNSEEN_MAX_NS)) {
        return None;
    }
    tasks().filter(|task| task.has_unseen_waits()).filter_map(|task| task.get(UNSEEN_MAX_NS)).max()
}

fn without_limit(cells: &[CellResult], earlier: &[EarlierMaximum], missing: &[String]) -> Judgement {
    let reason = worst(cells, earlier).map_or_else(
        || "the plan has no limit, and there are no samples".to_owned(),
        |worst| {
            let waits = longest_with_waits(cells).filter(|ns| *ns > worst.value_ns);
            let waits = waits.map(|ns| {
                format!(
                    "; with waits for a CPU that were not recorded, a response took at most {}",
                    nanoseconds(ns)
                )
            });
            let largest = worst.sentence(&nanoseconds(worst.value_ns));
            format!("the plan has no limit; the largest {largest}{}", waits.unwrap_or_default())
        },
    );
    let reason = if missing.is_empty() { reason } else { format!("{reason}; {}", list(missing)) };
    Judgement { verdict: Verdict::NoLimit, reason, exposure: None }
}

/// `probes` are those that the exposure counts, if there are others.
fn failure(
    worst: &Worst<'_>,
    bound: Bound,
    (total, probes): (Option<Exposure>, &[&str]),
    missing: &[String],
) -> String {
    let (value, limit) = nanoseconds_apart(worst.value_ns, bound.at.0);
    let often = match total {
        Some(total) if total.latencies > 1 => {
            let above = total.above().unwrap_or_default();
            let of = match probes {
                [] => String::new(),
                [probe] => format!("{probe}: "),
                _ => "the worst probe of each cell: ".to_owned(),
            };
            format!(" ({of}{above}, in {})", nanoseconds(total.watched_ns))
        }
        _ => String::new(),
    };
    let missing = if missing.is_empty() { String::new() } else { format!("; {}", list(missing)) };
    format!("the largest {}, above the {} of {limit}{often}{missing}", worst.sentence(&value), bound.name)
}

fn pass(cells: &[CellResult], worst: Option<&Worst<'_>>, limit: Nanos, total: Exposure) -> String {
    let Exposure { watched_ns, cpus, events_per_hour_max, .. } = total;
    let (limit, largest) = match worst {
        None => (nanoseconds(limit.0), "nothing was seen".to_owned()),
        Some(worst) => {
            let (value, limit) = nanoseconds_apart(worst.value_ns, limit.0);
            (limit, format!("the largest {}", worst.sentence(&value)))
        }
    };
    let repeats = cells.iter().map(|cell| cell.repeats.len()).max().unwrap_or(0);
    let cells_text = format!("{} × {}", counted(cells.len(), "cell"), counted(repeats, "repeat"));
    let cpus = counted(cpus, "CPU");
    let rarer = rarer(events_per_hour_max);
    format!(
        "no latency above {limit} in {} on {cpus} ({cells_text}): with 95 % confidence there are fewer than \
         {} per hour under these conditions; {largest}; to show fewer than {} per hour, measure for {}",
        nanoseconds(watched_ns),
        rate(events_per_hour_max),
        rate(rarer),
        nanoseconds(exposure::needed_ns(rarer)),
    )
}

/// The next power of ten below a rate.
fn rarer(per_hour: f64) -> f64 {
    10f64.powf((per_hour * 0.999).log10().floor())
}

/// Two digits, rounded up, so that "fewer than" is true.
fn rate(per_hour: f64) -> String {
    let unit = 10f64.powf(per_hour.log10().floor() - 1.0);
    let value = (per_hour / unit - 1e-6).ceil() * unit;
    let decimals = (-unit.log10()).ceil().clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn incomplete(worst: Option<&Worst<'_>>, bound: Bound, missing: &[String]) -> String {
    let missing = list(missing);
    let Some(worst) = worst else { return missing };
    let (value, limit) = nanoseconds_apart(worst.value_ns, bound.at.0);
    format!("{missing}; the largest {}, not above the {} of {limit}", worst.sentence(&value), bound.name)
}

fn with(first: &str, missing: &[String]) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(missing.iter().cloned()).collect()
}

fn list(reasons: &[String]) -> String {
    let named = reasons.iter().take(REASONS_NAMED).cloned().collect::<Vec<_>>().join("; ");
    match reasons.len().saturating_sub(REASONS_NAMED) {
        0 => named,
        more => format!("{named}; and {more} more"),
    }
}

/// What a cell that ran lacks for a pass: a probe of the plan without data, or a CPU that was measured too little.
fn too_little(cell: &CellResult, plan: &Plan) -> Vec<String> {
    if cell.skipped.is_some() {
        return Vec::new();
    }
    let name = &cell.name;
    let has_data = |probe: &ProbePlan| {
        cell.probes.iter().any(|result| result.probe == probe.kind() && ProbeResult::has_data(result))
    };
    let silent = plan.probe.iter().filter(|probe| !has_data(probe));
    let silent = silent.map(|probe| format!("probe {} measured nothing in cell `{name}`", probe.kind()));
    let short = |series: JudgedSeries<'_>| {
        let text = series.too_little()?;
        let probe = SeriesName::in_probe(series.facts.name, series.cpu.series.as_deref());
        Some(format!(
            "too little was measured in cell `{name}` (probe {probe}, CPU {}): {text}",
            series.cpu.cpu
        ))
    };
    silent.chain(judged(cell).filter_map(short)).collect()
}

/// The watched threads that would be too late if sleeps of unknown meaning were in the middle of their work, or that may
/// have been where they were not seen.
fn in_doubt(cell: &CellResult, bound: Bound) -> Vec<String> {
    let doubts = probes_of_users(std::slice::from_ref(cell)).flat_map(|probe| doubts(probe, bound));
    doubts.map(|(name, why)| format!("cannot judge {name}: {why}")).collect()
}

/// What gives a watch the rights that it lacks.
const RIGHTS: &str = "run whylate as root, or let root run `setcap cap_bpf,cap_perfmon+ep` on it once";
/// The fewest responses that a pass needs, of the thread or chain that has the most.
const RESPONSES_MIN: u64 = 10;

/// Threads that hardly ever responded, such as one that only waits for the others to end.
fn too_few_responses(cell: &CellResult) -> Option<String> {
    let tasks =
        probes_of_users(std::slice::from_ref(cell)).flat_map(|probe| &probe.cpus).map(|task| task.samples);
    let most = tasks.max().filter(|most| (1..RESPONSES_MIN).contains(most))?;
    Some(format!(
        "only {} {} seen, and a pass needs {RESPONSES_MIN}",
        counted(most, "response"),
        if most == 1 { "was" } else { "were" }
    ))
}

/// Without rights, `--per-wakeup` cannot tell a wait for a lock from the sleep between two pieces of work.
fn ended_by_sleeps(cells: &[CellResult], plan: &Plan) -> Option<String> {
    let mut tasks = probes_of_users(cells).flat_map(|probe| &probe.cpus);
    let is_open = plan.is_per_wakeup() && tasks.any(CpuResult::has_unseen_waits);
    is_open.then(|| {
        format!("each sleep ended a response, so waits for locks and disks are not part of it: {RIGHTS}")
    })
}

/// Why the watched threads of this probe may have exceeded `bound` although no sample shows it; `None` if they certainly did not.
pub fn may_hide(probe: &ProbeResult, bound: Nanos) -> Option<String> {
    let bound = Bound { name: "limit", at: bound };
    let doubts = doubts(probe, bound).map(|(name, why)| format!("{name}: {why}"));
    let doubts: Vec<String> = doubts.collect();
    (!doubts.is_empty()).then(|| list(&doubts))
}

/// The threads of which that is so, and why.
fn doubts(probe: &ProbeResult, bound: Bound) -> impl Iterator<Item = (&str, String)> {
    let late = move |longest_ns: Option<u64>| longest_ns.is_some_and(|longest_ns| longest_ns > bound.at.0);
    probe.cpus.iter().flat_map(move |task| {
        let name = task.series.as_deref().unwrap_or("the task");
        let advice = match task.has_unseen_waits() {
            true => RIGHTS,
            false => "use marks, --per-period or --per-wakeup",
        };
        let doubts = task
            .get(DOUBTS)
            .filter(|_| late(task.get(DOUBT_MAX_NS)))
            .map(|doubts| format!("{} may be in the middle of the work; {advice}", counted(doubts, "sleep")));
        let longest_ns = task.get(UNSEEN_MAX_NS);
        let unseen = task.get(UNSEEN).filter(|_| late(longest_ns)).map(|unseen| {
            let longest = nanoseconds(longest_ns.unwrap_or_default());
            if unseen >= task.samples.saturating_sub(1) && task.samples > 1 {
                let number = missed_max(task, bound.at).filter(|_| bound.name == "deadline");
                let number =
                    number.map(|most| format!("up to {most} of {} may be late, and ", responses(task)));
                return format!(
                    "without programs in the kernel its waits for a CPU are not recorded; with them, {}a \
                     response may have taken up to {longest}",
                    number.unwrap_or_default()
                );
            }
            format!(
                "the record of the thread has {} of up to {longest}, which may hide a late response",
                counted(unseen, "gap")
            )
        });
        [doubts, unseen].into_iter().flatten().map(move |why| (name, why))
    })
}

impl Worst<'_> {
    fn sentence(&self, value: &str) -> String {
        let ProbeFacts { name, .. } = self.facts;
        let place = format!("in cell `{}` (probe {name}, CPU {})", self.cell, self.cpu);
        match self.facts.judged {
            Judged::ExcessOverMedian => {
                let what = if self.facts.samples == Samples::Access { "pass" } else { "round trip" };
                format!("{what} was {value} above the median, {place}")
            }
            _ => {
                let other = self.unthrottled_ns.map(|other| {
                    let other = nanoseconds(other);
                    format!(" (due to throttling or the fair server; the largest other gap was {other})")
                });
                format!("{} was {value}, {place}{}", self.facts.noun(), other.unwrap_or_default())
            }
        }
    }
}

/// The largest value of all cells; the first of several equal ones.
fn worst<'a>(cells: &'a [CellResult], earlier: &'a [EarlierMaximum]) -> Option<Worst<'a>> {
    let replaced = earlier.iter().filter_map(|maximum| of_earlier(maximum, cells));
    let of_cell = |cell: &'a CellResult| {
        judged(cell).filter_map(|series| {
            let JudgedSeries { cpu, facts, .. } = series;
            let value_ns = series.value_ns()?;
            let throttled = cpu.get(THROTTLED).filter(|throttled| throttled.other_max_ns < value_ns);
            let unthrottled_ns = throttled.map(|throttled| throttled.other_max_ns);
            Some(Worst { cell: &cell.name, facts, cpu: cpu.cpu, value_ns, unthrottled_ns })
        })
    };
    let mut worst: Option<Worst<'a>> = None;
    for next in replaced.chain(cells.iter().flat_map(of_cell)) {
        if worst.as_ref().is_none_or(|worst| worst.value_ns < next.value_ns) {
            worst = Some(next);
        }
    }
    worst
}

/// The method's own cost is the one that the cell has measured since.
fn of_earlier<'a>(maximum: &'a EarlierMaximum, cells: &[CellResult]) -> Option<Worst<'a>> {
    let name = SeriesName::of(&maximum.probe);
    let facts = name.facts().filter(|facts| facts.judged != Judged::Nothing)?;
    let same = |series: &JudgedSeries<'_>| {
        series.facts.name == name.probe
            && series.cpu.series.as_deref() == name.series
            && series.cpu.cpu == maximum.cpu
    };
    let cell = cells.iter().find(|cell| cell.name == maximum.cell);
    let own_ns = cell.and_then(|cell| judged(cell).find(same)).map_or(0, |series| series.own_ns());
    let value_ns = maximum.value_ns.saturating_sub(own_ns);
    Some(Worst { cell: &maximum.cell, facts, cpu: maximum.cpu, value_ns, unthrottled_ns: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_core::plan::{Source, builtin};
    use whylate_core::quantity::{GAPS, Quantities, WATCHED_NS};
    use whylate_core::result::{ChainRecord, Quantiles, Spike};
    use whylate_testing::says;

    const MINUTE: u64 = 60_000_000_000;

    /// A minute of 10,000 samples.
    fn cell(name: &str, probe: &str, max_ns: Option<u64>) -> CellResult {
        let quantiles = max_ns.map(|max_ns| Quantiles { max_ns, p50_ns: 2_000, ..Quantiles::default() });
        let samples = if max_ns.is_some() { 10_000 } else { 0 };
        let name_of = SeriesName::of(probe);
        let series = name_of.series.map(str::to_owned);
        let cpu = CpuResult {
            cpu: CpuId(3),
            quantiles,
            samples,
            series,
            measured_ns: MINUTE,
            ..CpuResult::default()
        };
        let probe =
            ProbeResult { probe: name_of.probe.to_owned(), cpus: vec![cpu], ..ProbeResult::default() };
        CellResult { name: name.to_owned(), probes: vec![probe], ..CellResult::default() }
    }

    fn cells() -> [CellResult; 2] {
        [cell("idle", "timer", Some(20_000)), cell("l3", "stall", Some(123_456))]
    }

    /// The plan by which these cells would have been measured.
    fn plan_of(cells: &[CellResult], limit: Option<Nanos>) -> Plan {
        let text = builtin::find("quick").unwrap().text;
        let mut plan = Plan::parse(&Source { name: "quick", text }, &[]).unwrap();
        plan.probe.retain(|probe| {
            cells.iter().all(|cell| cell.probes.iter().any(|result| result.probe == probe.kind()))
        });
        plan.limit = limit;
        plan
    }

    fn judged_by(cells: &[CellResult], earlier: &[EarlierMaximum], limit: Option<Nanos>) -> Judgement {
        judge(&mut cells.to_vec(), earlier, &plan_of(cells, limit), &[])
    }

    #[test]
    fn a_value_above_the_limit_fails_and_is_named() {
        let limit = Some(Nanos::from_micros(100));
        let Judgement { verdict, reason, .. } = judged_by(&cells(), &[], limit);
        assert_eq!(verdict, Verdict::Fail);
        assert!(says("largest-gap-us-cell", &reason));
        let missing = ["cell `x` was skipped".to_owned()];
        assert_eq!(judge(&mut cells(), &[], &plan_of(&cells(), limit), &missing).verdict, Verdict::Fail);
    }

    #[test]
    fn the_limit_itself_passes_with_exposure_and_bound() {
        let Judgement { verdict, reason, exposure } = judged_by(&cells(), &[], Some(Nanos(123_456)));
        assert_eq!(verdict, Verdict::Pass, "{reason}");
        assert!(says("no-latency-above-us", &reason));
        let exposure = exposure.unwrap();
        assert_eq!((exposure.watched_ns, exposure.cpus, exposure.events), (2 * MINUTE, 1, 0));
        let Judgement { verdict, reason, .. } = judged_by(&cells(), &[], Some(Nanos(123_455)));
        assert_eq!(verdict, Verdict::Fail);
        assert!(reason.contains("123456 ns") && reason.contains("limit of 123455 ns"), "{reason}");
    }

    #[test]
    fn unmeasured_parts_prevent_a_pass() {
        let one = &cells()[..1];
        let plan = plan_of(one, Some(Nanos::from_micros(100)));
        let missing = ["cell `l3` was skipped: no memory".to_owned()];
        let Judgement { verdict, reason, .. } = judge(&mut one.to_vec(), &[], &plan, &missing);
        assert_eq!(verdict, Verdict::Incomplete);
        assert!(says("cell-l3-skipped-no", &reason));
        let nothing = judge(&mut [], &[], &plan, &[]);
        assert_eq!((nothing.verdict, nothing.reason.as_str()), (Verdict::Incomplete, "there are no samples"));
        let mut silent = one.to_vec();
        silent[0].probes[0].probe = "stall".to_owned();
        let silent = judge(&mut silent, &[], &plan, &[]);
        assert_eq!(silent.verdict, Verdict::Incomplete);
        assert!(says("probe-timer-measured-nothing", &silent.reason), "{}", silent.reason);
    }

    #[test]
    fn too_little_measurement_prevents_a_pass() {
        for (samples, measured_ns, word) in [(1, MINUTE, "1 samples"), (10_000, 900_000_000, "900 ms")] {
            let mut few = cell("idle", "timer", Some(20_000));
            (few.probes[0].cpus[0].samples, few.probes[0].cpus[0].measured_ns) = (samples, measured_ns);
            let Judgement { verdict, reason, .. } = judged_by(&[few], &[], Some(Nanos::from_micros(100)));
            assert_eq!(verdict, Verdict::Incomplete);
            assert!(says("too-little-cell-idle", &reason) && reason.contains(word), "{reason}");
        }
    }

    #[test]
    fn a_tracer_that_ran_and_recorded_nothing_passes() {
        let mut nothing = cell("idle", "tracer/hwlat", None);
        let cpu = &mut nothing.probes[0].cpus[0];
        cpu.quantities = Quantities::default().with(GAPS, 0).with(WATCHED_NS, MINUTE / 2);
        cpu.timeline = vec![Default::default()];
        let plan = plan_of(&[], Some(Nanos::from_micros(100)));
        let plan = Plan { probe: Vec::new(), ..plan };
        let Judgement { verdict, reason, exposure } = judge(&mut [nothing], &[], &plan, &[]);
        assert_eq!(verdict, Verdict::Pass, "{reason}");
        assert!(reason.contains("in 30.0 s") && reason.contains("nothing was seen"), "{reason}");
        assert_eq!(exposure.unwrap().watched_ns, MINUTE / 2);
    }

    #[test]
    fn events_are_counted_once_a_second() {
        let mut bad = cell("idle", "timer", Some(200_000));
        let spike = |second: u64| Spike {
            probe: Some("timer".to_owned()),
            ..Spike::unexplained(CpuId(3), second * 1_000_000_000, 200_000)
        };
        bad.probes[0].spikes = vec![spike(1), spike(1), spike(7)];
        let Judgement { reason, exposure, .. } = judged_by(&[bad], &[], Some(Nanos::from_micros(100)));
        let exposure = exposure.unwrap();
        assert_eq!((exposure.latencies, exposure.events), (3, 2));
        assert!(says("above-limit-us-times", &reason), "{reason}");
    }

    #[test]
    fn without_a_limit_there_is_no_verdict() {
        let Judgement { verdict, reason, exposure } = judged_by(&cells(), &[], None);
        assert_eq!((verdict, exposure), (Verdict::NoLimit, None));
        assert!(reason.contains("no limit") && reason.contains("123 us"), "{reason}");
        assert_eq!(judged_by(&[], &[], None).verdict, Verdict::NoLimit);
    }

    #[test]
    fn a_chain_is_judged_by_its_own_deadline() {
        let text = "name = \"p\"\n[[probe]]\nkind = \"task\"\nname = \"a\"\n[[probe.chains]]\nname = \"frame\"\n\
                    begin = \"/bin/a:x\"\nend = \"/bin/a:y\"\ndeadline = \"2ms\"\n[[cell]]\n";
        let judged_with = |late: u64, max_us: u64, [instances, dropped]: [u64; 2], overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|it| (*it).to_owned()).collect();
            let plan = Plan::parse(&Source { name: "test", text }, &overrides).unwrap();
            let series = |name: &str, max_us: u64| CpuResult {
                series: Some(name.to_owned()),
                samples: 10_000,
                quantiles: Some(Quantiles { max_ns: max_us * 1_000, ..Quantiles::default() }),
                measured_ns: 60_000_000_000,
                ..CpuResult::default()
            };
            let mut chain = series("chain frame", max_us);
            chain.quantities.set(OVERRUNS, Some(late));
            let record =
                ChainRecord { name: "frame".to_owned(), instances, dropped, ..ChainRecord::default() };
            let probe = ProbeResult {
                probe: "task".to_owned(),
                cpus: vec![series("a", 9_000), chain],
                chains: vec![ChainResult { record, ..ChainResult::default() }],
                ..ProbeResult::default()
            };
            let mut cells = [CellResult { probes: vec![probe], ..CellResult::default() }];
            let judgement = judge(&mut cells, &[], &plan, &[]);
            (judgement.verdict, judgement.reason)
        };
        let judged_by = |late: u64, max_us: u64, dropped: u64, overrides: &[&str]| {
            judged_with(late, max_us, [10_000, dropped], overrides)
        };
        let (verdict, reason) = judged_with(0, 1_900, [0, 0], &[]);
        assert!(verdict == Verdict::Incomplete && reason.contains("has no instance"), "{reason}");
        let (verdict, reason) = judged_by(7, 2_400, 0, &[]);
        let expected =
            "7 of 10000 instances of chain `frame` missed the deadline of 2.00 ms; the longest took 2.40 ms";
        assert_eq!((verdict, reason.as_str()), (Verdict::Fail, expected));
        let (verdict, reason) = judged_by(0, 1_900, 0, &[]);
        assert_eq!(verdict, Verdict::Pass, "the thread has no deadline: {reason}");
        let (verdict, reason) = judged_by(0, 1_900, 3, &[]);
        assert!(verdict == Verdict::Incomplete && reason.contains("`frame` did not end"), "{reason}");
        let of_thread = ["probe.0.deadline=10ms"];
        assert_eq!(judged_by(7, 2_400, 0, &of_thread).0, Verdict::Fail);
        assert_eq!(judged_by(0, 1_900, 0, &of_thread).0, Verdict::Pass);
    }

    #[test]
    fn a_missed_deadline_fails_and_a_kept_one_passes() {
        let judged_by = |missed: u64, deadline: &str, limit: Option<Nanos>| {
            let mut cell = cell("idle", "task/control", Some(2_400_000));
            cell.probes[0].cpus[0].quantities.set(OVERRUNS, missed);
            // No deadline applies to another probe.
            cell.probes.extend(self::cell("idle", "timer", Some(9_000_000)).probes);
            let text = format!(
                "name = \"x\"\nduration = \"1s\"\n[target]\ncpus = \"3\"\n[[probe]]\nkind = \"timer\"\n[[probe]]\n\
                 kind = \"task\"\nname = \"control\"\ndeadline = \"{deadline}\"\n[[cell]]\n"
            );
            let plan = Plan::parse(&Source { name: "x", text: &text }, &[]).unwrap();
            let mut cells = [cell];
            let judgement = judge(&mut cells, &[], &Plan { limit, ..plan }, &[]);
            assert!(cells[0].exposure.is_some());
            judgement
        };
        let missed = judged_by(7, "2ms", None);
        assert_eq!(
            (missed.verdict, missed.reason.as_str()),
            (
                Verdict::Fail,
                "7 of 10000 responses of control missed the deadline of 2.00 ms; the longest took 2.40 ms"
            )
        );
        let with_later = |later: u64| {
            let mut cell = cell("idle", "task/control", Some(2_400_000));
            cell.probes[0].cpus[0].quantities.set(OVERRUNS, 7);
            cell.probes[0].cpus[0].quantities.set(LATER_PERIODS, later);
            let text = "name = \"x\"\nduration = \"1s\"\n[target]\ncpus = \"3\"\n[[probe]]\nkind = \"task\"\n\
                        name = \"control\"\ndeadline = \"2ms\"\n[[cell]]\n";
            super::missed(&[cell], &Plan::parse(&Source { name: "x", text }, &[]).unwrap()).unwrap()
        };
        assert!(with_later(2).contains("; 2 later periods began before such a response had ended; "));
        assert!(with_later(1).contains("; 1 later period began before such a response had ended; "));
        let judged_with_doubt = |missed: u64| {
            let mut cell = cell("idle", "task/control", Some(2_400_000));
            cell.probes[0].cpus[0].quantities.set(OVERRUNS, missed);
            cell.probes[0].cpus[0].quantities.set(UNSEEN_MAX_NS, 9_000_000);
            let mut helper = cell.probes[0].cpus[0].clone();
            helper.series = Some("helper".to_owned());
            helper.quantities.set(OVERRUNS, 0);
            cell.probes[0].cpus.push(helper);
            let text = "name = \"x\"\nduration = \"1s\"\n[target]\ncpus = \"3\"\n[[probe]]\nkind = \"task\"\n\
                        name = \"control\"\ndeadline = \"2ms\"\n[[cell]]\n";
            let plan = Plan::parse(&Source { name: "x", text }, &[]).unwrap();
            super::missed(&[cell], &plan)
        };
        assert_eq!(
            judged_with_doubt(7).as_deref(),
            Some(
                "at least 7 of 10000 responses of control missed the deadline of 2.00 ms; the longest took at least \
                 2.40 ms; cannot judge helper"
            )
        );
        assert_eq!(judged_with_doubt(0), None);
        let judged_with_waits = |missed: u64, doubt_max_ns: Option<u64>| {
            let max_ns = if missed > 0 { 2_400_000 } else { 1_800_000 };
            let mut cell = cell("idle", "task/control", Some(max_ns));
            let mut helper = cell.probes[0].cpus[0].clone();
            helper.series = Some("helper".to_owned());
            for (task, missed, possibly) in [(&mut cell.probes[0].cpus[0], missed, 41), (&mut helper, 0, 5)] {
                task.samples = 50;
                for (key, value) in
                    [(OVERRUNS, missed), (POSSIBLY_LATE, possibly), (UNSEEN, 50), (UNSEEN_WAITS, 50)]
                {
                    task.quantities.set(key, value);
                }
                task.quantities.set(UNSEEN_MAX_NS, 9_000_000);
                task.quantities.set(DOUBT_MAX_NS, doubt_max_ns);
            }
            cell.probes[0].cpus.push(helper);
            let text = "name = \"x\"\nduration = \"1s\"\n[target]\ncpus = \"3\"\n[[probe]]\nkind = \"task\"\n\
                        name = \"control\"\ndeadline = \"2ms\"\n[[cell]]\n";
            let plan = Plan::parse(&Source { name: "x", text }, &[]).unwrap();
            judge(&mut [cell], &[], &plan, &[]).reason
        };
        assert_eq!(
            judged_with_waits(1, None),
            "1 to 42 of 50 responses of control missed the deadline of 2.00 ms; the longest took 2.40 ms to 9.00 ms; \
             cannot judge helper (up to 5 of 50 responses may have missed it)"
        );
        let doubtful = judged_with_waits(1, Some(8_000_000));
        assert!(doubtful.starts_with("at least 1 of 50 responses of control missed"), "{doubtful}");
        let none = judged_with_waits(0, None);
        assert!(none.contains("up to 41 of 50 responses may be late"), "{none}");
        let ended_by_sleeps = |per: &str| {
            let mut cell = cell("idle", "task/control", Some(1_800_000));
            let task = &mut cell.probes[0].cpus[0];
            [UNSEEN, UNSEEN_WAITS].into_iter().for_each(|key| task.quantities.set(key, 50));
            task.quantities.set(UNSEEN_MAX_NS, 1_900_000);
            let text = format!(
                "name = \"x\"\nduration = \"1s\"\n[target]\ncpus = \"3\"\n[[probe]]\nkind = \"task\"\n\
                 name = \"control\"\ndeadline = \"2ms\"\n{per}[[cell]]\n"
            );
            judge(&mut [cell], &[], &Plan::parse(&Source { name: "x", text: &text }, &[]).unwrap(), &[])
                .verdict
        };
        assert_eq!(ended_by_sleeps(""), Verdict::Pass);
        assert_eq!(ended_by_sleeps("per = \"wakeup\"\n"), Verdict::Incomplete);
        let kept = judged_by(0, "3ms", None);
        assert_eq!(kept.verdict, Verdict::Pass, "{}", kept.reason);
        assert!(says("no-latency-above-ms", &kept.reason), "{}", kept.reason);
        let both = judged_by(7, "2ms", Some(Nanos::from_millis(10)));
        assert!(both.verdict == Verdict::Fail && both.reason.contains("missed the deadline"), "{both:?}");
        let above = judged_by(0, "3ms", Some(Nanos::from_millis(5)));
        assert!(above.verdict == Verdict::Fail && above.reason.contains("above the limit"), "{above:?}");
    }

    #[test]
    fn a_violation_in_an_earlier_attempt_stays() {
        let earlier = |probe: &str| EarlierMaximum {
            cell: "l3".to_owned(),
            probe: probe.to_owned(),
            cpu: CpuId(3),
            value_ns: 10_000_000,
        };
        let limit = Some(Nanos::from_millis(1));
        let Judgement { verdict, reason, .. } = judged_by(&cells(), &[earlier("timer")], limit);
        assert_eq!(verdict, Verdict::Fail);
        assert!(says("latency-ms-cell-l3", &reason), "{reason}");
        let part = judged_by(&cells(), &[earlier("roundtrip/futex/there")], limit);
        assert_eq!(part.verdict, Verdict::Pass);
    }

    #[test]
    fn a_round_trip_is_judged_by_what_exceeds_its_median() {
        let trips = [cell("idle", "roundtrip/futex", Some(101_000))];
        let plan = |limit| Plan { probe: Vec::new(), ..plan_of(&[], Some(Nanos(limit))) };
        assert_eq!(judge(&mut trips.clone(), &[], &plan(99_000), &[]).verdict, Verdict::Pass);
        let mut trips = trips;
        let failed = judge(&mut trips, &[], &plan(98_999), &[]);
        assert_eq!(failed.verdict, Verdict::Fail);
        assert!(says("round-trip-ns-above", &failed.reason), "{}", failed.reason);
    }

    #[test]
    fn rates_are_rounded_up() {
        for (rate_of, text) in [(14.98, "15"), (15.0, "15"), (748.9, "750"), (2.9957, "3"), (0.0123, "0.013")]
        {
            assert_eq!(rate(rate_of), text);
        }
        assert_eq!((rarer(15.0), rarer(10.0), rarer(0.5)), (10.0, 1.0, 0.1));
    }
}
