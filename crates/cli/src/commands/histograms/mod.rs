//! `whylate histograms`: counts until it is stopped, shows the histograms, and handles requests meanwhile.

mod control;
mod screen;
mod tree;
mod waits;

use crate::arguments::{
    ControlArguments, HistogramsArguments, HistogramsCommand, HistogramsFormat, Priorities, or_endless,
};
use crate::exit::Ending;
use crate::progress::{Meter, fraction};
use crate::{machine, output, signals};
use anyhow::{Result, bail};
use control::{Act, Request, Server};
use screen::HistogramScreen;
use std::io::IsTerminal as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tree::Tree;
use whylate_bpf::{HistogramsChange, HistogramsConfig, TaskFilter};
use whylate_core::figure::nanoseconds;
use whylate_core::result::{HISTOGRAMS_FORMAT, HistogramKind, HistogramsResult, WakeupTotals};
use whylate_core::{CpuSet, Facts, Nanos, Warning, WarningCode};
use whylate_host::{Host, facts};
use whylate_record::RecordError;
use whylate_record::histograms::LatencyHistograms;

/// How often signals, requests and the trace buffer are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Shortest time between two tables: what the terminal and the eye can follow.
const INTERVAL_MIN: Nanos = Nanos::from_millis(100);
/// After this time without a wake-up there is a warning: a machine with real-time tasks has woken one by then.
const NO_WAKEUP_AFTER: Duration = Duration::from_secs(1);
const ORDINARY_TOO: &str = "add --priority all, which also counts ordinary tasks";

pub(super) fn execute(arguments: &HistogramsArguments, host: &Host) -> Result<Ending> {
    let tell = |act, of: &ControlArguments| {
        let request = Request { act, kinds: of.kinds.clone(), cpus: of.cpus.clone() };
        output::print(&control::tell(&request, of.pid)?)?;
        Ok(Ending::Pass)
    };
    match &arguments.command {
        Some(HistogramsCommand::Enable(of)) => tell(Act::Enable, of),
        Some(HistogramsCommand::Disable(of)) => tell(Act::Disable, of),
        Some(HistogramsCommand::Reset(of)) => tell(Act::Reset, of),
        None => run(arguments, host),
    }
}

fn run(arguments: &HistogramsArguments, host: &Host) -> Result<Ending> {
    if arguments.interval < INTERVAL_MIN {
        bail!("--interval {} is too short; it must be at least {INTERVAL_MIN}", arguments.interval);
    }
    let (facts, mut warnings) = facts::collect(&host.running);
    let cpus = machine::cpus("--cpus", &arguments.cpus, &facts)?;
    let config = config(arguments, cpus)?;
    let tree = match (arguments.format, &arguments.output) {
        (HistogramsFormat::Osadl, Some(folder)) => Some(Tree::create(folder)?),
        (HistogramsFormat::Terminal, Some(_)) => bail!("--output needs --format osadl"),
        _ => None,
    };
    let asked_to_stop = signals::watch()?;
    let started = LatencyHistograms::start(&host.running, &config, arguments.source, arguments.ipis);
    let duration = (arguments.duration.0 > 0).then(|| Duration::from_nanos(arguments.duration.0));
    if let Err(RecordError::Unavailable(_)) = &started {
        for line in waits::lines(&host.settings, &config.cpus, duration) {
            output::message(&line);
        }
    }
    let (histograms, more) = started?;
    warnings.extend(more);
    let (server, more) = Server::start();
    warnings.extend(more);
    let started = Instant::now();
    let mut session = Session { arguments, duration, facts, warnings, histograms, server, tree, started };
    let outcome = session.count(&|| asked_to_stop.load(Ordering::Relaxed));
    // Stops counting first, also after an error.
    let Session { histograms, .. } = session;
    let ended = histograms.finish();
    let result = outcome?;
    ended?;
    if arguments.printing.json {
        output::print_json(&result)?;
    } else if arguments.format == HistogramsFormat::Terminal {
        output::drawn(&whylate_report::histograms(&result).terminal(output::style()))?;
    }
    Ok(Ending::Pass)
}

fn config(arguments: &HistogramsArguments, cpus: CpuSet) -> Result<HistogramsConfig> {
    let kinds =
        if arguments.kinds.is_empty() { HistogramKind::ALL.to_vec() } else { arguments.kinds.clone() };
    let task = match &arguments.task {
        None => None,
        Some(text) if text.is_empty() => bail!("--task: give a process id or a name"),
        Some(text) => Some(text.parse().map_or_else(|_| TaskFilter::Command(text.clone()), TaskFilter::Pid)),
    };
    let (priority_min, priority_max) = (arguments.priority.min, arguments.priority.max);
    Ok(HistogramsConfig { cpus, kinds, priority_min, priority_max, task })
}

struct Session<'a> {
    arguments: &'a HistogramsArguments,
    /// `None`: until it is stopped.
    duration: Option<Duration>,
    facts: Facts,
    warnings: Vec<Warning>,
    histograms: LatencyHistograms,
    server: Option<Server>,
    tree: Option<Tree>,
    started: Instant,
}

impl Session<'_> {
    /// Counts until the time is over or the user stops it; returns the last figures.
    fn count(&mut self, asked_to_stop: &dyn Fn() -> bool) -> Result<HistogramsResult> {
        let (arguments, duration) = (self.arguments, self.duration);
        let interval = Duration::from_nanos(arguments.interval.0);
        let is_live = arguments.format == HistogramsFormat::Terminal
            && !arguments.printing.json
            && std::io::stdout().is_terminal();
        let mut screen = is_live.then(HistogramScreen::default);
        let mut meter = Meter::new(arguments.printing.quiet || is_live);
        meter.label("histograms");
        // Reading every histogram takes time on the measured CPUs.
        let is_watched = is_live || self.tree.is_some() || !arguments.printing.quiet;
        if let Some(tree) = &mut self.tree {
            tree.show_switches(&mut self.histograms)?;
        }
        let mut next = Duration::ZERO;
        loop {
            let elapsed = self.started.elapsed();
            let is_over = duration.is_some_and(|duration| elapsed >= duration) || asked_to_stop();
            self.histograms.poll()?;
            self.serve()?;
            if is_over || (is_watched && elapsed >= next) {
                next = elapsed + interval;
                let result = self.result()?;
                self.show(&result, screen.as_mut(), &mut meter)?;
                if is_over {
                    meter.finish();
                    if let Some(screen) = screen {
                        screen.clear()?;
                    }
                    return Ok(result);
                }
            }
            let left = duration.map_or(LOOK_EVERY, |duration| duration.saturating_sub(elapsed));
            std::thread::sleep(left.clamp(Duration::from_millis(1), LOOK_EVERY));
        }
    }

    fn show(
        &mut self,
        result: &HistogramsResult,
        screen: Option<&mut HistogramScreen>,
        meter: &mut Meter,
    ) -> Result<()> {
        if let Some(tree) = &mut self.tree {
            tree.write(&result.cpus)?;
        }
        if let Some(screen) = screen {
            screen.draw(&whylate_report::histograms(result).terminal(output::style()))?;
        }
        let figures = result.cpus.iter().flat_map(|cpu| &cpu.histograms);
        let max_ns = figures.filter_map(|one| one.quantiles.as_ref().map(|figures| figures.max_ns)).max();
        let max =
            max_ns.map_or_else(|| "nothing yet".to_owned(), |max_ns| format!("max {}", nanoseconds(max_ns)));
        meter.advance(
            fraction(Nanos(result.duration_ns), or_endless(self.arguments.duration)),
            &format!("{:.0} s, {max}, {} wake-ups", result.duration_ns as f64 / 1e9, result.wakeups.seen),
            None,
        );
        Ok(())
    }

    /// Handles requests from the socket and from writes into the tree.
    fn serve(&mut self) -> Result<()> {
        while let Some((request, answer)) = self.server.as_ref().and_then(Server::next) {
            let done = self.perform(&request);
            answer.send(done.map_err(|error| format!("{error:#}")));
        }
        let requests = self.tree.as_mut().map(Tree::requests).unwrap_or_default();
        for request in requests {
            self.perform(&request)?;
        }
        Ok(())
    }

    /// Carries out a request; returns the answer.
    fn perform(&mut self, request: &Request) -> Result<String> {
        let kinds =
            if request.kinds.is_empty() { HistogramKind::ALL.to_vec() } else { request.kinds.clone() };
        let measured: CpuSet = self.histograms.cpus().clone();
        let cpus = match &request.cpus {
            Some(cpus) if cpus.intersection(&measured).is_empty() => {
                bail!("--cpus {cpus}: none of these CPUs is measured; the measured CPUs are {measured}")
            }
            Some(cpus) => cpus.intersection(&measured),
            None => measured,
        };
        let change = match request.act {
            Act::Enable => HistogramsChange::Enable,
            Act::Disable => HistogramsChange::Disable,
            Act::Reset => HistogramsChange::Reset,
        };
        self.histograms.change(change, &kinds, &cpus)?;
        if let Some(tree) = &mut self.tree {
            tree.show_switches(&mut self.histograms)?;
        }
        let on = self.histograms.enabled();
        let missing: Vec<&str> = kinds
            .iter()
            .filter(|kind| request.act == Act::Enable && !on.iter().any(|(_, other)| other == *kind))
            .map(|kind| kind.name())
            .collect();
        let names = kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
        let done = match request.act {
            Act::Enable => "on",
            Act::Disable => "off",
            Act::Reset => "reset",
        };
        let which = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        let mut text = format!("{names} on {which} {cpus}: {done}");
        if !missing.is_empty() {
            text.push_str(&format!(" (not possible here: {})", missing.join(", ")));
        }
        Ok(text)
    }

    fn result(&mut self) -> Result<HistogramsResult> {
        let snapshot = self.histograms.read()?;
        let counts = snapshot.counts;
        let elapsed = self.started.elapsed();
        let is_on = snapshot.cpus.iter().any(|cpu| !cpu.histograms.is_empty());
        let mut warnings = self.warnings.clone();
        if is_on
            && counts.wakeups == 0
            && elapsed >= self.duration.unwrap_or(NO_WAKEUP_AFTER).min(NO_WAKEUP_AFTER)
        {
            warnings.push(no_wakeups(self.arguments, self.histograms.cpus()));
        }
        Ok(HistogramsResult {
            format: HISTOGRAMS_FORMAT.to_owned(),
            facts: self.facts.clone(),
            source: self.histograms.source(),
            duration_ns: elapsed.as_nanos() as u64,
            cpus: snapshot.cpus,
            ipis: self.histograms.ipis()?,
            wakeups: WakeupTotals {
                seen: counts.wakeups,
                without_switch: counts.without_switch,
                elsewhere: counts.elsewhere,
            },
            lost: counts.lost,
            warnings,
        })
    }
}

/// The warning that no figure was counted.
fn no_wakeups(arguments: &HistogramsArguments, cpus: &CpuSet) -> Warning {
    let Priorities { min, max } = arguments.priority;
    let task = arguments.task.as_ref().map(|task| format!(" named by --task {task}")).unwrap_or_default();
    let (priorities, fix) = match min == i32::MIN {
        true => (String::new(), None),
        false if min == max => (format!(" with priority {min}"), Some(ORDINARY_TOO)),
        false => (format!(" with a priority from {min} to {max}"), Some(ORDINARY_TOO)),
    };
    let text = format!("no task{task}{priorities} was woken up on CPU {cpus}: the histograms are empty");
    match fix {
        Some(fix) => Warning::with_fix(WarningCode::NoWakeups, text, fix),
        None => Warning::new(WarningCode::NoWakeups, text),
    }
}
