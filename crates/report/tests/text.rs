//! Terminal and Markdown reports of the fixture, as a reader sees them.

mod fixture;

use whylate_core::quantity::{OVERRUNS, POSSIBLY_LATE, Quantities, TASK, UNSEEN_MAX_NS, UNSEEN_WAITS};
use whylate_core::record::TaskRecord;
use whylate_core::result::{Cause, CauseKind, Comparison, Exposure, Outcome, RunResult, Verdict};
use whylate_core::{Plan, Warning, WarningCode};
use whylate_report::{ReportError, Style};
use whylate_testing::says;

fn terminal_text(run: &RunResult, width: usize) -> String {
    whylate_report::run(run).unwrap().terminal(Style { color: false, width })
}

/// A sentence of "In short", by its label.
fn short(run: &RunResult, label: &str) -> String {
    let text = terminal_text(run, 400);
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label));
    line.unwrap_or_default().trim().to_owned()
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn run_at_80_columns() {
    insta::assert_snapshot!(terminal_text(&fixture::run_result(&[1]), 80));
}

#[test]
fn run_at_120_columns() {
    insta::assert_snapshot!(terminal_text(&fixture::run_result(&[1]), 120));
}

#[test]
fn run_at_200_columns_with_two_cpus() {
    insta::assert_snapshot!(terminal_text(&fixture::run_result(&[0, 1]), 200));
}

#[test]
fn a_run_without_a_planned_end_has_no_planned_duration() {
    let mut run = fixture::run_result(&[1]);
    run.plan.duration = Plan::ENDLESS;
    let text = terminal_text(&run, 120);
    assert!(text.contains("until it was ended, limit") && !text.contains("400d"), "{text}");
}

#[test]
fn causes_that_could_not_be_looked_for_are_not_called_unknown() {
    let mut run = fixture::run_result(&[1]);
    for spike in run.cells.iter_mut().flat_map(|cell| &mut cell.spikes) {
        (spike.cause, spike.also) = (Cause::unattributed(), Vec::new());
    }
    assert!(says("nothing-that-recorded-explains", terminal_text(&run, 200)));
    run.warnings.push(Warning::new(WarningCode::NoCauses, "BPF programs are refused"));
    let text = terminal_text(&run, 200);
    assert!(says("could-not-be-looked", &text) && !text.contains("no record explains"), "{text}");
}

#[test]
fn run_with_all_details() {
    let page = whylate_report::run(&fixture::run_result(&[1])).unwrap().detailed(true);
    let text = page.terminal(Style { color: false, width: 100 });
    for part in
        ["All figures", "Other comparisons (exploratory)", "Largest spikes", "fix: measure on bare metal"]
    {
        assert!(text.contains(part), "`{part}` is missing:\n{text}");
    }
}

/// The first screen has the answer: five cells in 60 lines.
#[test]
fn five_cells_fit_a_screen() {
    let mut run = fixture::run_result(&[1]);
    for (name, like) in [("l3+shield", 1), ("above-l3+shield", 2)] {
        let cell = whylate_core::result::CellResult { name: name.to_owned(), ..run.cells[like].clone() };
        run.cells.push(cell);
    }
    let text = terminal_text(&run, 120);
    assert!(text.lines().count() <= 60, "{} lines:\n{text}", text.lines().count());
    // Too few repeats for an interval, and much evidence.
    run.comparisons.retain(|it| it.cell == "l3");
    for name in ["above-l3", "l3+shield", "above-l3+shield"] {
        let more = run.comparisons.iter().filter(|it| it.cell == "l3").cloned();
        let more = more.map(|it| Comparison { cell: name.to_owned(), ..it }).collect::<Vec<_>>();
        run.comparisons.extend(more);
    }
    for it in &mut run.comparisons {
        (it.outcome, it.ratio_low, it.ratio_high) = (Outcome::CannotTell, None, None);
        (it.ratio, it.more_repeats) = (it.ratio.or(Some(1.0)), None);
    }
    for spike in run.cells.iter_mut().flat_map(|cell| &mut cell.spikes) {
        spike.cause.evidence = vec!["a hypervisor may have stopped the CPU meanwhile".to_owned(); 3];
    }
    for (width, lines) in [(100, 58), (80, 60)] {
        let text = terminal_text(&run, width);
        assert!(text.lines().count() <= lines, "{} lines:\n{text}", text.lines().count());
    }
}

/// Many series: those that decide have a table, each other one a line.
#[test]
fn many_series_fit_a_screen() {
    let mut run = fixture::run_result(&[1]);
    for cell in &mut run.cells {
        let like = cell.probes.iter().find(|probe| probe.probe == "timer").cloned().unwrap_or_default();
        let mut more = Vec::new();
        for method in ["futex", "eventfd", "pipe", "unix", "udp", "spin"] {
            more.extend(like.cpus.iter().cloned().map(|mut cpu| {
                cpu.series = Some(method.to_owned());
                cpu
            }));
        }
        let probe = "roundtrip".to_owned();
        cell.probes.push(whylate_core::result::ProbeResult { probe, cpus: more, ..Default::default() });
    }
    let text = terminal_text(&run, 120);
    assert!(text.lines().count() <= 60, "{} lines:\n{text}", text.lines().count());
    let udp = "roundtrip/udp: Up to 2.31 ms, in above-l3 on CPU 1; corrected p99.9 is";
    assert!(text.contains(udp) && says("timer-how-late-periodic", &text), "{text}");
    assert!(!text.contains("roundtrip/udp: a message to another CPU"), "{text}");
}

/// Too few repeats for an interval: reported once, below the tables; contrasts of one load are distinguished.
#[test]
fn few_repeats_are_reported_once_and_contrasts_have_their_circumstances() {
    use whylate_core::result::CellResult;
    let mut run = fixture::run_result(&[1]);
    let treated = |name: &str, like: &CellResult| CellResult {
        name: name.to_owned(),
        treatments: vec!["shielded".to_owned()],
        ..like.clone()
    };
    let more = [treated("shielded", &run.cells[0]), treated("l3+shielded", &run.cells[1])];
    run.cells.extend(more);
    run.comparisons.retain(|it| it.primary && it.cell == "l3");
    let mut under = run.comparisons[0].clone();
    (under.baseline, under.cell) = ("shielded".to_owned(), "l3+shielded".to_owned());
    run.comparisons.push(under);
    for it in &mut run.comparisons {
        (it.outcome, it.ratio_low, it.ratio_high) = (Outcome::CannotTell, None, None);
    }
    let text = terminal_text(&run, 120);
    let short = text.split("Late time").next().unwrap();

    let undecided =
        "cannot tell for timer p99.9 (too few repeats for an interval): l3 1.57 ×, l3 with shielded 1.57 ×.";
    let unbroken = short.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unbroken.contains(undecided), "{short}");
    let tables = text.split_once("how late a periodic task").unwrap().1;
    assert!(tables.contains("? 1.57 ×") && !tables.contains("too few repeats for an interval"), "{tables}");
    assert!(says("without-interval-too-few", tables), "{tables}");
}

/// Was it late, how bad, the cause, what helps: these sentences come first.
#[test]
fn the_first_screen_answers() {
    let run = fixture::run_result(&[1]);
    let texts = formats(&run);
    for text in &texts {
        for part in [
            "Yes: the limit of 2ms was exceeded in above-l3.",
            "Up to 2.31 ms late, in above-l3 on CPU 1; median p99.9 is 9.90 us in above-l3",
            "irqs off: irq/45-nvkm in gf100",
            "l3: timer p99.9 worse, 1.57 × (1.46 to 1.70); above-l3: cannot tell",
            "the plan has no treatment",
        ] {
            assert!(
                text.replace('\\', "").replace("\n           ", " ").contains(part),
                "`{part}` is missing:\n{text}"
            );
        }
    }
    let summary = texts[2].find("id=\"summary\"").unwrap();
    assert!(
        ["late-time", "matrix", "figures"]
            .iter()
            .all(|id| texts[2].find(&format!("id=\"{id}\"")).is_none_or(|at| at > summary))
    );
}

#[test]
fn a_limit_that_no_task_can_meet_here_is_reported() {
    let floor = |run: &mut RunResult, max_ns: u64, cause: Option<Cause>| {
        for cell in &mut run.cells {
            let floor = cell.noise_floor.as_mut().unwrap();
            (floor.max_ns, floor.cause) = (Some(max_ns), cause.clone());
        }
    };
    let mut run = fixture::run_result(&[1]);
    let of = |kind: CauseKind, actor: Option<&str>| {
        Some(Cause {
            actor: actor.map(str::to_owned),
            share: Some(0.9),
            confidence: Some(0.9),
            ..Cause::new(kind)
        })
    };
    floor(&mut run, 2_100_000, of(CauseKind::Steal, None));
    let late = |run: &RunResult| short(run, "late");
    assert!(says("cannot-pass-on-this-machine", late(&run)));
    let page = |run: &RunResult| terminal_text(run, 400).split_whitespace().collect::<Vec<_>>().join(" ");
    floor(&mut run, 2_100_000, None);
    let unknown = page(&run);
    assert!(unknown.contains("It was not met even without load (noise floor 2.10 ms)."), "{unknown}");
    let by_thread =
        "The noise floor is 2.10 ms without any load, by thread axle: stop it, and repeat the run.";
    floor(&mut run, 2_100_000, of(CauseKind::Thread, Some("axle")));
    let text = page(&run);
    assert!(text.contains(by_thread) && !text.contains("cannot be met"), "{text}");
    assert!(text.contains("Spikes of this size may come from thread axle."), "{text}");
    // A cause of a part of the gap is not named.
    let part = of(CauseKind::Thread, Some("axle")).map(|cause| Cause { share: Some(0.2), ..cause });
    floor(&mut run, 2_100_000, part);
    assert!(page(&run).contains("not met even without load"));
    floor(&mut run, 1_900_000, None);
    assert!(!late(&run).contains("1.90 ms"), "{}", late(&run));
}

#[test]
fn a_treatment_that_alone_exceeds_the_limit_is_not_only_called_better() {
    let mut run = fixture::run_result(&[1]);
    run.cells[1].treatments = vec!["shield".to_owned()];
    let (baseline, cell) = (run.cells[0].name.clone(), run.cells[1].name.clone());
    let largest = |cell: &whylate_core::result::CellResult| {
        let cpus = cell.probes.iter().flat_map(|probe| &probe.cpus);
        cpus.filter_map(|cpu| cpu.quantiles.as_ref()).map(|figures| figures.max_ns).max().unwrap()
    };
    let (without, with) = (largest(&run.cells[0]), largest(&run.cells[1]));
    assert!(without < with);
    run.comparisons.retain(|it| it.primary && it.baseline == baseline && it.cell == cell);
    run.comparisons[0].outcome = Outcome::Better;
    run.plan.limit = Some(whylate_core::Nanos((without + with) / 2));
    assert!(says("but-only-exceeds-the-limit", short(&run, "helps")));
    let with_it = short(&run, "helps");
    run.plan.limit = Some(whylate_core::Nanos(with + 1));
    assert!(short(&run, "helps").len() < with_it.len());
}

#[test]
fn a_treatment_that_was_skipped_is_not_called_missing() {
    let mut run = fixture::run_result(&[1]);
    let reason = "treatments are held by `whylate run` (pid 7)".to_owned();
    let treatments = vec!["shield".to_owned()];
    let skipped = whylate_core::result::CellResult {
        name: "l3+shield".to_owned(),
        treatments,
        skipped: Some(reason.clone()),
        probes: Vec::new(),
        ..run.cells[1].clone()
    };
    run.cells.push(skipped);
    let text = terminal_text(&run, 200);
    assert!(
        text.contains(&format!("Not tried: l3+shield was skipped: {}", reason.replace('`', ""))),
        "{text}"
    );
}

#[test]
fn run_as_markdown() {
    insta::assert_snapshot!(whylate_report::run(&fixture::run_result(&[1])).unwrap().markdown());
}

#[test]
fn measure_at_80_columns() {
    let text = whylate_report::measure(&fixture::measure_result(&[0, 1]))
        .unwrap()
        .terminal(Style { color: false, width: 80 });
    insta::assert_snapshot!(text);
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [60, 72, 80, 100, 120, 160, 200] {
        let run = terminal_text(&fixture::run_result(&[0, 1]), width);
        assert!(widest(&run) <= width, "{width}:\n{run}");
        let style = Style { color: false, width };
        let measure = whylate_report::measure(&fixture::measure_result(&[0, 1])).unwrap().terminal(style);
        assert!(widest(&measure) <= width, "{width}:\n{measure}");
    }
}

#[test]
fn colours_change_nothing_but_colours() {
    let run = fixture::run_result(&[1]);
    let coloured = whylate_report::run(&run).unwrap().terminal(Style { color: true, width: 100 });
    assert!(coloured.contains("\u{1b}[1;31mFAIL\u{1b}[0m"));
    let mut plain = String::new();
    for (index, part) in coloured.split('\u{1b}').enumerate() {
        plain.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    assert_eq!(plain, terminal_text(&run, 100));
}

#[test]
fn a_run_without_samples_is_an_error_that_says_why() {
    let empty = fixture::empty_result();
    let error = whylate_report::run(&empty).unwrap_err();
    assert!(matches!(error, ReportError::NoSamples { .. }));
    assert!(says("no-samples-run-not", error.to_string()));
    let mut measure = fixture::measure_result(&[1]);
    measure.probe.cpus.clear();
    assert!(matches!(whylate_report::measure(&measure), Err(ReportError::NoSamples { .. })));
}

#[test]
fn failures_are_in_every_text() {
    let mut run = fixture::run_result(&[1]);
    run.verdict = Verdict::Incomplete;
    run.restored = Some(false);
    run.cells[2].skipped = Some("the machine reports no L3 cache".to_owned());
    run.cells[2].probes.clear();
    run.warnings.push(run.warnings[0].clone());
    let brief = terminal_text(&run, 200);
    assert!(says("warnings-virtual-machine-no", &brief), "{brief}");
    for text in [terminal_text(&run, 200), whylate_report::run(&run).unwrap().markdown()] {
        assert!(text.contains("INCOMPLETE"));
        assert!(says("above-l3-skipped-machine", &text), "{text}");
        assert!(says("settings-after-run-are", &text));
    }
    run.warnings.push(Warning::new(WarningCode::MachineChanged, "governor of CPU 1"));
    let text = terminal_text(&run, 200);
    assert!(says("other-settings-after-run", &text), "{text}");
}

#[test]
fn an_ordinary_thread_that_waits_for_a_cpu_is_advised_a_real_time_priority() {
    let advised = |priority: i32| {
        let mut run = fixture::run_result(&[1]);
        let probes = run.cells.iter_mut().flat_map(|cell| &mut cell.probes);
        for cpu in probes.flat_map(|probe| &mut probe.cpus) {
            let task =
                TaskRecord { thread: 812, command: "audio".to_owned(), priority, ..TaskRecord::default() };
            cpu.quantities.set(TASK, task);
        }
        terminal_text(&run, 200).contains("chrt -f -p 50 812")
    };
    assert!(advised(-1) && !advised(80));
}

#[test]
fn waits_that_were_not_recorded_are_in_every_text() {
    let mut run = fixture::run_result(&[1]);
    run.cells.truncate(1);
    let cell = &mut run.cells[0];
    cell.probes.truncate(1);
    let probe = &mut cell.probes[0];
    probe.probe = "task".to_owned();
    let quantities = Quantities::default().with(UNSEEN_MAX_NS, 91_000_000).with(UNSEEN_WAITS, 50);
    for cpu in &mut probe.cpus {
        let task = TaskRecord { thread: 7, command: "audio".to_owned(), ..TaskRecord::default() };
        cpu.quantities = quantities.clone().with(OVERRUNS, 1).with(POSSIBLY_LATE, 41).with(TASK, task);
        (cpu.series, cpu.parts) = (Some("audio".to_owned()), Vec::new());
    }
    probe.cpus.truncate(1);
    for spike in &mut cell.spikes {
        spike.probe = Some("task/audio".to_owned());
    }
    run.plan.primary = None;
    for text in formats(&run) {
        assert!(text.contains("at most 91.0 ms, with waits for a CPU that were not recorded"), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains("no share contains them"), "{text}");
        assert!(text.contains("1 to 42"), "{text}");
    }
}

/// All three formats of a run.
fn formats(run: &RunResult) -> [String; 3] {
    let page = whylate_report::run(run).unwrap().detailed(true);
    [page.terminal(Style::default()), page.markdown(), page.html()]
}

#[test]
fn dispatch_rows_are_in_every_format() {
    let mut run = fixture::run_result(&[1]);
    run.cells[0].probes[0].probe = "dispatch".to_owned();
    for text in formats(&run) {
        for row in ["dispatch latency (idle, CPU 1, 301060 samples)", "   11 ..  20 : "] {
            assert!(text.contains(row), "`{row}` is missing:\n{text}");
        }
    }
}

#[test]
fn no_format_lets_a_control_character_pass() {
    const EVIL: &str = "a\u{1b}[2J\u{202e}b\r\nc";
    let mut run = fixture::run_result(&[1]);
    run.plan.name = EVIL.to_owned();
    run.cells[1].name = EVIL.to_owned();
    run.verdict_reason = EVIL.to_owned();
    run.warnings[0].fix = Some(EVIL.to_owned());
    run.cells[0].spikes[0].cause.function = Some(EVIL.to_owned());
    run.facts.kernel.command_line = EVIL.to_owned();
    for text in formats(&run) {
        assert!(text.replace("\\", "").contains("a[2Jb"), "{text}");
        let hidden = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        // The plotting script contains tabs.
        let text = text.split("<script").next().unwrap();
        assert!(!text.contains(hidden), "{text}");
    }
}

/// Text between backticks is code in every format, wherever it is; a single backtick stays.
#[test]
fn backticks_are_code_in_every_format() {
    let mut run = fixture::run_result(&[1]);
    run.plan.question = Some("Which of `five` <things> makes it late?".to_owned());
    run.warnings[0].fix = Some("boot with `isolcpus=1`, not with `x".to_owned());
    run.warnings[1].fix = Some("boot with `isolcpus=<1>`".to_owned());
    let page = whylate_report::run(&run).unwrap().detailed(true);
    let [terminal, markdown, html] = [page.terminal(Style::default()), page.markdown(), page.html()];
    for (text, parts) in [
        (&terminal, ["Which of five <things>", "fix: boot with isolcpus=<1>", "not with `x"]),
        (&markdown, ["> Which of `five` &lt;things>", "Fix: boot with `isolcpus=<1>`", "not with \\`x"]),
        (
            &html,
            [
                "Which of <code>five</code> &lt;things&gt;",
                "<b>Fix:</b> boot with <code>isolcpus=&lt;1&gt;</code>",
                "not with `x",
            ],
        ),
    ] {
        parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is missing:\n{text}"));
    }
}

/// A count of one is singular.
#[test]
fn one_is_singular() {
    let mut run = fixture::run_result(&[1]);
    let (watched_ns, cpus, latencies, events, events_per_hour_max) = (60_000_000_000, 1, 1, 1, 285.0);
    let exposure =
        Exposure { watched_ns, cpus, latencies, events, events_per_hour_max, ..Exposure::default() };
    run.exposure = Some(exposure);
    run.comparisons.iter_mut().for_each(|it| it.more_repeats = Some(1));
    let text = terminal_text(&run, 300);
    for part in ["in above-l3, by 1 latency of the worst probe, in", "about 1 more repeat would tell"] {
        assert!(text.replace("\n           ", " ").contains(part), "`{part}` is missing:\n{text}");
    }
    assert!(!text.contains(" 1 times") && !text.contains(" 1 more repeats"), "{text}");
}

#[test]
fn the_table_has_the_statistic_that_decides() {
    let mut run = fixture::run_result(&[1]);
    for (primary, first, other) in
        [("timer p50", "median", "p99.9"), ("timer p99", "p99", "median"), ("timer max", "p99.9", "median")]
    {
        run.plan.primary = Some(primary.parse().unwrap());
        let text = terminal_text(&run, 200);
        let head = text.lines().find(|line| line.starts_with("cell ")).unwrap();
        let columns: Vec<&str> = head.split_whitespace().collect();
        assert_eq!(columns[1..5], [other, first, "against", first], "{text}");
    }
}
