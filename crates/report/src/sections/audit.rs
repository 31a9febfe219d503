//! What watched threads do that real-time threads should not.

use crate::section::{Block, Cell, Column, Row, Section, Table, sentences};
use std::collections::BTreeSet;
use whylate_core::figure::{count, nanoseconds};
use whylate_core::plan::ProbePlan;
use whylate_core::result::{AuditFindings, AuditKind, AuditRecord, ProbeResult, RunResult, audited};

/// The most findings that are listed.
const ROWS_MAX: usize = 40;

pub(super) fn of_run(run: &RunResult) -> Vec<Section> {
    let many = run.cells.len() > 1;
    // Without a finding nothing is stored.
    let is_audit = |probe: &ProbePlan| matches!(probe, ProbePlan::Task(task) if task.audit);
    let is_planned = |name: &str| name == "task" && run.plan.probe.iter().any(is_audit);
    let probes = run.cells.iter().flat_map(|cell| cell.probes.iter().map(move |probe| (cell, probe)));
    probes
        .flat_map(|(cell, probe)| {
            section(probe, many.then_some(cell.name.as_str()), is_planned(&probe.probe))
        })
        .collect()
}

fn section(probe: &ProbeResult, cell: Option<&str>, is_planned: bool) -> Vec<Section> {
    let Some(audit) = audited(probe).or_else(|| is_planned.then(AuditFindings::default)) else {
        return Vec::new();
    };
    let columns = vec![
        Column::text("thread"),
        Column::number("runs"),
        Column::number("all runs"),
        Column::number("times").importance(1),
        Column::number("longest"),
        Column::text("finding").wraps(),
    ];
    let open: Vec<&(&str, &AuditRecord)> = audit.findings.iter().filter(|(_, it)| !it.allowed).collect();
    let rows = open.iter().take(ROWS_MAX).map(|(thread, it)| row(thread, it)).collect();
    let kinds: BTreeSet<AuditKind> = open.iter().map(|(_, it)| it.kind).collect();
    let fixes = kinds.iter().map(|kind| format!("{}: {} {}", kind.name(), kind.fix(), kind.manual()));
    let title = match (open.len(), cell) {
        (0, None) => "Audit: no finding".to_owned(),
        (0, Some(cell)) => format!("Audit of {cell}: no finding"),
        (_, None) => "Audit".to_owned(),
        (_, Some(cell)) => format!("Audit of {cell}"),
    };
    let mut notes = Vec::new();
    if open.len() > ROWS_MAX {
        notes.push(format!("Findings that only the JSON of the report lists: {}.", open.len() - ROWS_MAX));
    }
    let allowed = audit.findings.len() - open.len();
    if allowed > 0 {
        notes.push(format!("Findings that --allow allows: {allowed}."));
    }
    if audit.left_out > 0 {
        notes.push(format!(
            "Ordinary threads that are not audited, because other threads are real-time threads: {}.",
            audit.left_out
        ));
    }
    notes.push(
        "A run lasts from a wake-up to the next sleep. The start of each thread is left out: its first 100 runs or its first second, whichever ends first. \
         `whylate check` audits the machine's settings."
            .to_owned(),
    );
    let meaning = "what a real-time thread should not do, with the longest time of each action";
    let section = Section { id: "audit", title, meaning, ..Section::default() };
    let section = section.with(Table::new(columns, rows)).with(sentences(fixes));
    vec![notes.into_iter().fold(section, |section, note| section.with(Block::note(note)))]
}

fn row(thread: &str, it: &AuditRecord) -> Row {
    let state = it.kind.is_state();
    let times = (!state).then(|| count(it.count));
    let longest = (it.longest_ns > 0).then(|| nanoseconds(it.longest_ns));
    Row::of::<Cell>([
        thread.into(),
        count(it.runs).into(),
        count(it.of_runs).into(),
        times.into(),
        longest.into(),
        sentence(it).into(),
    ])
}

/// `uses a file: write, /var/log/control.log, in log_line <- update`.
fn sentence(it: &AuditRecord) -> String {
    let place = it.place.as_ref().map(|place| format!("in {place}"));
    let details: Vec<&str> =
        [&it.call, &it.object, &place].into_iter().filter_map(|part| part.as_deref()).collect();
    let what = it.kind.what();
    if details.is_empty() { what.to_owned() } else { format!("{what}: {}", details.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Page;
    use crate::write::Style;
    use whylate_core::quantity::{AUDIT, Quantities, TASK};
    use whylate_core::record::TaskRecord;
    use whylate_core::result::CpuResult;

    fn thread(name: &str, priority: i32, found: Vec<AuditRecord>) -> CpuResult {
        let task = TaskRecord { priority, ..TaskRecord::default() };
        CpuResult {
            series: Some(name.to_owned()),
            quantities: Quantities::default().with(TASK, task).with(AUDIT, found),
            ..CpuResult::default()
        }
    }

    fn text(cpus: Vec<CpuResult>) -> String {
        let probe = ProbeResult { probe: "task".to_owned(), cpus, ..ProbeResult::default() };
        Page { sections: section(&probe, None, false), ..Default::default() }
            .detailed(true)
            .terminal(Style::default())
    }

    #[test]
    fn a_finding_has_its_effect_its_place_and_its_fix() {
        let write = AuditRecord {
            call: Some("write".to_owned()),
            object: Some("/var/log/control.log".to_owned()),
            count: 44,
            runs: 41,
            of_runs: 60_000,
            longest_ns: 380_000,
            place: Some("log_line <- update".to_owned()),
            ..AuditRecord::new(AuditKind::File)
        };
        let slack = AuditRecord { runs: 5, ..AuditRecord::new(AuditKind::NotRealTime) };
        let text = text(vec![thread("control", 80, vec![write]), thread("logger", -20, vec![slack])]);
        for expected in
            ["control.log", "41", "60,000", "380 us", "log_line <- update", AuditKind::File.manual()]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        // The logger is an ordinary thread beside a real-time one.
        assert!(
            !text.contains(AuditKind::NotRealTime.what()) && text.contains("real-time threads: 1."),
            "{text}"
        );
    }

    #[test]
    fn allowed_findings_are_counted_and_not_listed() {
        let allowed = AuditRecord { allowed: true, runs: 1, ..AuditRecord::new(AuditKind::Yield) };
        let text = text(vec![thread("control", 80, vec![allowed])]);
        assert!(!text.contains(AuditKind::Yield.what()) && text.contains("allows: 1."), "{text}");
        let none = ProbeResult { probe: "task".to_owned(), ..ProbeResult::default() };
        assert!(section(&none, None, false).is_empty(), "there was no audit");
    }
}
