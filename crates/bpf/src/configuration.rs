//! What the programs count, as they read it.

use crate::layout::{Command, Config, Settings};
use crate::settings::{HistogramsConfig, TaskFilter};
use crate::watching::Watching;
use zerocopy::FromZeros as _;

/// What counts on all CPUs.
pub(crate) fn shared(config: &HistogramsConfig, watching: Option<&Watching>) -> Config {
    let mut raw = Config::new_zeroed();
    if let Some(watching) = watching {
        raw.own_process = std::process::id();
        for (place, cpu) in raw.watched.iter_mut().zip(watching.cpus.iter()) {
            *place = cpu.0 as u16;
            raw.watched_count += 1;
        }
    }
    match &config.task {
        None => {}
        Some(TaskFilter::Pid(pid)) => raw.pid = *pid,
        Some(TaskFilter::Command(command)) => {
            raw.command = Command::new(command);
            raw.has_command = 1;
        }
    }
    raw
}

/// What counts on each CPU, with no histogram on yet.
pub(crate) fn of_cpus(
    config: &HistogramsConfig,
    watching: Option<&Watching>,
    possible_cpus: usize,
) -> Vec<Settings> {
    // In the kernel, 0 is the highest real-time priority.
    let prio_min = 99i32.saturating_sub(config.priority_max);
    let prio_max = 99i32.saturating_sub(config.priority_min);
    let mut all = vec![Settings { prio_min, prio_max, ..Settings::default() }; possible_cpus];
    for (ring, cpu) in (1..).zip(watching.iter().flat_map(|watching| watching.cpus.iter())) {
        all[cpu.0 as usize].ring = ring;
    }
    all
}
