//! Figures and the ratio beside them: 200 random runs, in no format of which they differ by more than 10 % without a word.

mod fixture;

use whylate_core::plan::Statistic;
use whylate_core::quantity::CORRECTED;
use whylate_core::result::{CompareResult, Comparison, Outcome, Quantiles, RunContrast, RunResult};
use whylate_report::Style;

const RUNS: u64 = 200;
/// Ten percent, and what rounding to three digits makes of three figures.
const APART: f64 = 1.1 * 1.02;

/// The same numbers everywhere.
struct Random(u64);

impl Random {
    /// In [0, 1).
    fn number(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `1 / most` to `most`.
    fn factor(&mut self, most: f64) -> f64 {
        ((self.number() * 2.0 - 1.0) * most.ln()).exp()
    }

    fn is(&mut self, share: f64) -> bool {
        self.number() < share
    }
}

/// What the repeats come to: the ratio repeat by repeat is that of the middle values in half of the cases.
fn comparison(
    random: &mut Random,
    (baseline, before): (&str, f64),
    (cell, now): (&str, f64),
    (probe, statistic): (&str, Statistic),
    primary: bool,
) -> Comparison {
    let ratio = now / before * if random.is(0.5) { random.factor(3.0) } else { random.factor(1.05) };
    let mut end = |factor: f64| random.is(0.8).then_some(ratio * factor);
    let (ratio_low, ratio_high) = (end(0.9), end(1.1));
    let in_ns = |value: f64| (statistic.unit() == "ns").then_some(value as u64);
    let it = Comparison {
        baseline: baseline.to_owned(),
        cell: cell.to_owned(),
        probe: probe.to_owned(),
        statistic,
        primary,
        baseline_ns: in_ns(before),
        cell_ns: in_ns(now),
        baseline_value: before,
        cell_value: now,
        unit: statistic.unit().to_owned(),
        ratio: random.is(0.95).then_some(ratio),
        ratio_of: None,
        ratio_low,
        ratio_high,
        outcome: Outcome::ALL[(random.number() * 4.0) as usize],
        p_value: random.number(),
        repeats: 8,
        more_repeats: None,
        refused: None,
    };
    it.explained()
}

/// A run whose pooled figures, middles of repeats and ratios say little about each other.
fn random_run(random: &mut Random) -> RunResult {
    let mut run = fixture::run_result(&[1]);
    let timer = [Statistic::Median, Statistic::P99, Statistic::P999, Statistic::P9999, Statistic::Max];
    let primary = timer[(random.number() * 5.0) as usize];
    run.plan.primary = Some(format!("timer {}", primary.name()).parse().expect("a statistic"));
    run.answers.clear();
    run.comparisons.clear();
    for cpu in run.cells.iter_mut().flat_map(|cell| &mut cell.probes).flat_map(|probe| &mut probe.cpus) {
        let factor = random.factor(4.0);
        let scaled = |ns: u64| (ns as f64 * factor) as u64;
        let of = |it: Quantiles| Quantiles {
            p50_ns: scaled(it.p50_ns),
            p99_ns: scaled(it.p99_ns),
            p999_ns: scaled(it.p999_ns),
            p9999_ns: scaled(it.p9999_ns),
            max_ns: scaled(it.max_ns),
            ..it
        };
        cpu.quantiles = cpu.quantiles.map(of);
        if let Some(corrected) = cpu.quantities.of(CORRECTED).copied() {
            cpu.quantities.set(CORRECTED, Some(of(corrected)));
        }
    }
    let cells: Vec<String> = run.cells.iter().map(|cell| cell.name.clone()).collect();
    let statistics = timer.map(|statistic| ("timer", statistic)).into_iter();
    let gaps = [("stall", Statistic::LostShare), ("stall", Statistic::Max)];
    for (probe, statistic) in statistics.chain(gaps) {
        let is_share = statistic == Statistic::LostShare;
        let middle = |random: &mut Random| if is_share { 0.002 } else { 20_000.0 } * random.factor(20.0);
        let values: Vec<f64> = cells.iter().map(|_| middle(random)).collect();
        for (cell, now) in cells.iter().zip(&values).skip(1) {
            let baseline = (cells[0].as_str(), values[0]);
            let is_primary = (probe, statistic) == ("timer", primary);
            let of = comparison(random, baseline, (cell, *now), (probe, statistic), is_primary);
            run.comparisons.push(of);
        }
    }
    run
}

/// A head and its rows.
type DrawnTable = (Vec<String>, Vec<Vec<String>>);

/// Those that a line of dashes, or bars, part from their heads.
fn of_terminal(text: &str) -> Vec<DrawnTable> {
    let lines: Vec<&str> = text.lines().collect();
    let parts = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let is_rule = |line: &str| line.starts_with('─') && line.chars().all(|letter| letter == '─');
    let rules = (1..lines.len()).filter(|nth| is_rule(lines[*nth]));
    let table = |nth: usize| {
        let rows = lines[nth + 1..].iter().take_while(|line| !line.is_empty());
        (parts(lines[nth - 1]), rows.map(|line| parts(line)).collect())
    };
    rules.map(table).collect()
}

fn of_markdown(text: &str) -> Vec<DrawnTable> {
    let lines: Vec<&str> = text.lines().collect();
    let parts = |line: &str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|part| part.trim().replace("**", "")).collect()
    };
    let rules =
        (1..lines.len()).filter(|nth| lines[*nth].starts_with("| :") || lines[*nth].starts_with("| -"));
    let table = |nth: usize| {
        let rows = lines[nth + 1..].iter().take_while(|line| line.starts_with('|'));
        (parts(lines[nth - 1]), rows.map(|line| parts(line)).collect())
    };
    rules.map(table).collect()
}

fn of_html(text: &str) -> Vec<DrawnTable> {
    let plain = |cell: &str| {
        let words: String =
            cell.split('<').map(|part| part.split_once('>').map_or(part, |it| it.1)).collect();
        words.replace("&gt;", ">").replace("&lt;", "<").trim().to_owned()
    };
    let cells = |row: &str, element: &str| -> Vec<String> {
        let begin = format!("<{element}");
        row.split(begin.as_str()).skip(1).map(|cell| plain(&format!("<{cell}"))).collect()
    };
    let table = |table: &str| {
        let (head, rows) = table.split_once("<tbody>").expect("a body");
        let rows = rows.split("</table>").next().unwrap_or_default();
        (cells(head, "th "), rows.split("<tr").skip(1).map(|row| cells(row, "td")).collect())
    };
    text.split("<table").skip(1).map(table).collect()
}

/// In ns, or a share.
fn figure(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let factor = match unit {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "%" => 0.01,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

fn ratio(text: &str) -> Option<f64> {
    text.split_once(" ×")?.0.rsplit(' ').next()?.parse().ok()
}

/// What was looked at, and how many of them say why figures and ratio differ.
#[derive(Debug, Default)]
struct Counts {
    rows: u64,
    with_word: u64,
}

impl Counts {
    fn check(&mut self, before: &str, now: &str, effect: &str, text: &str) {
        let (Some(before), Some(now), Some(ratio)) = (figure(before), figure(now), ratio(effect)) else {
            return;
        };
        let has_word = effect.contains("repeat by repeat")
            || effect.contains("pairs of repeats")
            || effect.contains("->")
            || effect.contains('→');
        let apart = (now / before / ratio).ln().abs();
        assert!(has_word || apart <= APART.ln(), "{before} and {now}, but {effect}: {text}");
        self.rows += 1;
        self.with_word += u64::from(has_word);
    }

    /// Each figure and ratio that stand beside each other.
    fn tables(&mut self, tables: Vec<DrawnTable>, text: &str) {
        for (head, rows) in tables {
            let place = |title: &str| head.iter().position(|it| it == title);
            let whole = || rows.iter().filter(|row| row.len() == head.len());
            for (at, title) in head.iter().enumerate() {
                if let Some((figures, baseline)) = title.split_once(" vs ") {
                    let of = place(figures).unwrap_or_else(|| panic!("no column {figures}: {text}"));
                    let before = whole().find(|row| row[0] == baseline).map(|row| row[of].as_str());
                    whole().for_each(|row| self.check(before.unwrap_or(""), &row[of], &row[at], text));
                }
                if title == "ratio" {
                    let [before, now] = ["before (median)", "now (median)"].map(|it| place(it).expect(it));
                    whole().for_each(|row| self.check(&row[before], &row[now], &row[at], text));
                }
            }
        }
    }

    /// Sentences that have both figures and how many times one the other is.
    fn sentences(&mut self, text: &str) {
        let has_ratio =
            |line: &str| [" times (", " times, repeat by repeat ("].iter().any(|it| line.contains(it));
        let both = |line: &&str| has_ratio(line) && (line.contains(" -> ") || line.contains(" → "));
        for line in text.lines().filter(both) {
            assert!(line.contains("repeat by repeat"), "{line}");
            self.rows += 1;
        }
    }
}

fn json(comparisons: &serde_json::Value) -> u64 {
    let all = comparisons.as_array().expect("comparisons");
    for it in all {
        let number = |key: &str| it[key].as_f64();
        let Some(ratio) = number("ratio") else { continue };
        let apart = (number("cell_value").unwrap() / number("baseline_value").unwrap() / ratio).ln().abs();
        assert_eq!(it["ratio_of"].is_string(), apart > 1.1_f64.ln(), "{it}");
    }
    all.len() as u64
}

#[test]
fn figures_and_ratios_of_random_runs_differ_by_more_than_a_tenth_only_with_a_word() {
    let mut random = Random(1);
    let mut counts: [Counts; 3] = Default::default();
    let mut documents = 0;
    for _ in 0..RUNS {
        let run = random_run(&mut random);
        let contrast = |it: &Comparison| RunContrast {
            of_cell: String::new(),
            comparison: it.clone(),
            values: [vec![it.baseline_value], vec![it.cell_value]],
            above_histogram: [0, 0],
        };
        let compared = CompareResult {
            contrasts: run.comparisons.iter().map(contrast).collect(),
            ..fixture::pages::comparison()
        };
        let brief = whylate_report::run(&run).expect("a page").terminal(Style { color: false, width: 80 });
        counts[0].tables(of_terminal(&brief), &brief);
        let pages = [
            whylate_report::run(&run).expect("a page").detailed(true),
            whylate_report::compare(&compared).detailed(true),
        ];
        for page in &pages {
            let text = page.terminal(Style { color: false, width: 200 });
            counts[0].tables(of_terminal(&text), &text);
            // A sentence is one line there.
            counts[0].sentences(&page.terminal(Style { color: false, width: 1_000 }));
            let text = page.markdown();
            counts[1].tables(of_markdown(&text), &text);
            counts[1].sentences(&text);
            let text = page.html();
            counts[2].tables(of_html(&text), &text);
            counts[2].sentences(&text);
        }
        documents += json(&serde_json::to_value(&run).expect("JSON")["comparisons"]);
        let contrasts = serde_json::to_value(&compared).expect("JSON")["contrasts"].clone();
        let contrasts: Vec<_> =
            contrasts.as_array().unwrap().iter().map(|it| it["comparison"].clone()).collect();
        documents += json(&contrasts.into());
    }
    for counts in &counts {
        assert!(counts.rows > 20 * RUNS && counts.with_word > 5 * RUNS, "{counts:?}");
    }
    assert!(documents >= 2 * 14 * RUNS, "{documents}");
}

#[test]
fn the_sentence_about_how_bad_it_is_has_the_figures_of_the_table() {
    let mut random = Random(2);
    for _ in 0..RUNS {
        let mut run = random_run(&mut random);
        run.plan.primary = Some("timer p99.9".parse().expect("a statistic"));
        let text = whylate_report::run(&run).expect("a page").terminal(Style { color: false, width: 200 });
        let begin = text.split_once("p99.9 is ").expect("how bad").1;
        let there = begin.split_once(" in ").expect("the worst cell").0;
        let (head, rows) = of_terminal(&text).into_iter().next().expect("a table");
        let [quantile, max] = ["p99.9", "max"].map(|title| head.iter().position(|it| it == title).unwrap());
        let worst = rows.iter().max_by(|a, b| figure(&a[max]).partial_cmp(&figure(&b[max])).unwrap());
        assert_eq!(worst.unwrap()[quantile], there, "{text}");
    }
}
