//! `whylate top`: the activity of the whole machine, live.

mod view;

use crate::arguments::TopArguments;
use crate::exit::Ending;
use crate::live::LiveScreen;
use crate::{machine, output, signals};
use anyhow::{Context as _, Result, bail};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use view::TopView;
use whylate_bpf::HistogramsConfig;
use whylate_core::Nanos;
use whylate_host::{Host, facts};
use whylate_runner::Top;

/// How often records and signals are checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Shortest interval: what the terminal and the eye can follow.
const INTERVAL_MIN: Nanos = Nanos::from_millis(100);

pub(super) fn execute(arguments: &TopArguments, host: &Host) -> Result<Ending> {
    if arguments.interval < INTERVAL_MIN {
        bail!("--interval {} is too short; it must be at least {INTERVAL_MIN}", arguments.interval);
    }
    let (facts, mut warnings) = facts::collect(&host.running);
    let cpus = machine::cpus("--cpu", &arguments.cpu, &facts)?;
    let asked_to_stop = signals::watch()?;
    let (priority_min, priority_max) = (arguments.priority.min, arguments.priority.max);
    let config = HistogramsConfig { priority_min, priority_max, ..HistogramsConfig::new(cpus) };
    let refused = match facts.privileges.root {
        true => "the machine cannot be watched",
        false => {
            "the machine cannot be watched without root (your own programs can: `whylate watch --task NAME`)"
        }
    };
    let mut top = Top::start(&host.running, config).context(refused)?;
    let printing = arguments.printing;
    let is_live = !printing.quiet && !printing.json && LiveScreen::<TopView>::is_possible();
    let begin = || LiveScreen::start(TopView::new(facts.host.clone()), asked_to_stop.clone());
    let live = is_live.then(begin).transpose().context("cannot draw on this terminal")?;
    let interval = Duration::from_nanos(arguments.interval.0);
    let end = (arguments.duration.0 > 0).then(|| Duration::from_nanos(arguments.duration.0));
    let mut next = Instant::now() + interval;
    while !asked_to_stop.load(Ordering::Relaxed) && end.is_none_or(|end| top.elapsed() < end) {
        std::thread::sleep(LOOK_EVERY);
        top.poll()?;
        if Instant::now() >= next && !printing.quiet {
            next += interval;
            let result = top.interval()?;
            if printing.json {
                output::print_json_line(&result)?;
            } else if let Some(live) = &live {
                live.update(|view| view.show(result));
            }
        }
    }
    drop(live);
    let mut all = top.finish()?;
    warnings.append(&mut all.warnings);
    all.warnings = warnings;
    if printing.json {
        output::print_json_line(&all)?;
    } else {
        let [interrupts, ipis] = [false, true].map(|has_ipis| view::rates(&all, has_ipis));
        let page = whylate_report::top(&all, &facts.host, &interrupts, &ipis);
        output::drawn(&page.terminal(output::style()))?;
    }
    Ok(Ending::Pass)
}
