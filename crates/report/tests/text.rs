//! Terminal and Markdown reports of the fixture, as a reader sees them.

mod fixture;

use whylate_core::result::{RunResult, Verdict};
use whylate_report::{ReportError, Style};

fn terminal_text(run: &RunResult, width: usize) -> String {
    whylate_report::run(run).unwrap().terminal(Style { color: false, width })
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
fn run_with_all_details() {
    let page = whylate_report::run(&fixture::run_result(&[1])).unwrap().detailed(true);
    let text = page.terminal(Style { color: false, width: 100 });
    for part in
        ["All figures", "Other comparisons (exploratory)", "Largest spikes", "fix: measure on bare metal"]
    {
        assert!(text.contains(part), "`{part}` is missing:\n{text}");
    }
}

/// The first screen answers: five cells in 60 lines.
#[test]
fn five_cells_fit_a_screen() {
    let mut run = fixture::run_result(&[1]);
    for (name, like) in [("l3+shield", 1), ("above-l3+shield", 2)] {
        let cell = whylate_core::result::CellResult { name: name.to_owned(), ..run.cells[like].clone() };
        run.cells.push(cell);
    }
    let text = terminal_text(&run, 120);
    assert!(text.lines().count() <= 60, "{} lines:\n{text}", text.lines().count());
}

/// Was it late, how bad, who, what helps: the sentences stand above everything else.
#[test]
fn the_first_screen_answers() {
    let run = fixture::run_result(&[1]);
    let texts = formats(&run);
    for text in &texts {
        for part in [
            "Yes: above the limit of 2ms in above-l3.",
            "Up to 2.31 ms late, in above-l3 on CPU 1; 99.9 % within 381 us there",
            "irqs off: irq/45-nvkm in gf100",
            "l3: timer p99.9 worse, 1.57 × (1.46 to 1.70); above-l3: cannot tell",
            "no treatment is in the plan",
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
    assert_eq!(error.to_string(), "no samples: the run is not complete: the load `l3` ended early");
    let mut measure = fixture::measure_result(&[1]);
    measure.probe.cpus.clear();
    assert!(matches!(whylate_report::measure(&measure), Err(ReportError::NoSamples { .. })));
}

#[test]
fn what_went_wrong_is_in_every_text() {
    let mut run = fixture::run_result(&[1]);
    run.verdict = Verdict::Incomplete;
    run.restored = Some(false);
    run.cells[2].skipped = Some("the machine reports no L3 cache".to_owned());
    run.cells[2].probes.clear();
    run.warnings.push(run.warnings[0].clone());
    let brief = terminal_text(&run, 200);
    assert!(brief.contains("Warnings (3): virtual-machine (2), no-smi-counter;"), "{brief}");
    for text in [terminal_text(&run, 200), whylate_report::run(&run).unwrap().markdown()] {
        assert!(text.contains("INCOMPLETE"));
        assert!(text.contains("above-l3 was skipped: the machine reports no L3 cache"), "{text}");
        assert!(text.contains("settings after the run are not those before it"));
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
        // The plotting script has tabs.
        let text = text.split("<script").next().unwrap();
        assert!(!text.contains(hidden), "{text}");
    }
}
