//! The HTML report: complete, self-contained, and safe whatever the result contains.

mod fixture;

use whylate_core::result::{
    MeasureResult, RUNS_FORMAT, RunFigures, RunResult, RunState, RunSummary, RunsResult, Verdict,
};
use whylate_report::{Frame, ReportError, Style};
use whylate_testing::says;

fn page(run: &RunResult) -> String {
    whylate_report::run_with_charts(run).unwrap().html()
}

/// Everything outside of script and style elements.
fn markup(page: &str) -> String {
    let mut rest = page;
    let mut markup = String::new();
    loop {
        let next = ["<script", "<style"].into_iter().filter_map(|tag| Some((rest.find(tag)?, tag))).min();
        let Some((begin, tag)) = next else { return markup + rest };
        let end_tag = tag.replace('<', "</");
        markup.push_str(&rest[..begin]);
        let end = begin + rest[begin..].find(&end_tag).expect("the element is closed");
        rest = &rest[end..];
        rest = &rest[rest.find('>').expect("the end tag is closed") + 1..];
    }
}

/// The JSON of the charts.
fn chart_data(page: &str) -> serde_json::Value {
    let begin = page.find("id=\"chart-data\">").expect("the data is there") + "id=\"chart-data\">".len();
    let end = begin + page[begin..].find("</script>").expect("the data ends");
    serde_json::from_str(&page[begin..end]).expect("the data is JSON")
}

/// The charts of a kind.
fn of_kind<'d>(data: &'d serde_json::Value, kind: &str) -> Vec<&'d serde_json::Value> {
    data.as_array().unwrap().iter().filter(|chart| chart["kind"] == kind).collect()
}

/// Checks that tags are nested correctly, without HTML's optional end tags: the template uses none.
fn assert_well_formed(markup: &str) {
    const VOID: [&str; 3] = ["meta", "br", "!doctype"];
    let mut open: Vec<&str> = Vec::new();
    for tag in markup.split('<').skip(1) {
        let (inside, _) = tag.split_once('>').unwrap_or_else(|| panic!("`<{tag}` is not closed"));
        let name = inside.split_whitespace().next().unwrap_or("").trim_end_matches('/');
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes another element");
        } else if !VOID.contains(&name) {
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "`<{inside}>` is no tag");
            open.push(name);
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

/// The pages of the field guide for the causes that the report names, and no others; the other formats name the
/// command.
#[test]
fn the_field_guide_comes_with_the_report() {
    let run = fixture::run_result(&[1]);
    let page = page(&run);
    assert!(page.contains("<details id=\"irqs-off\"><summary>irqs_off"), "no page of irqs_off");
    assert!(
        page.contains("<code>whylate treat apply shield --cpus 1</code>")
            && page.contains("trace-cmd start -p irqsoff")
    );
    assert!(!page.contains("<details id=\"nmi\">"), "a page of a cause that was not found");
    let markdown = whylate_report::run(&run).unwrap().markdown();
    assert!(
        markdown.contains("<code>whylate explain --why ") && !markdown.contains("trace-cmd"),
        "{markdown}"
    );
}

#[test]
fn the_page_is_well_formed_and_holds_the_figures() {
    let page = page(&fixture::run_result(&[1]));
    let markup = markup(&page);
    assert_well_formed(&markup);
    for text in [
        "<h1>cache-or-bus</h1>",
        "above-l3: timer on CPU 1 took 2.31 ms, above the limit of 2 ms",
        "<td class=\"number over\">2.31 ms</td>",
        "Does l3 raise timer p99.9? Yes: timer p99.9 9.10 us",
        "l3 against idle: timer p99 worse, 4.10 → 6.30 us; 1.54 times, repeat by repeat (1.43 to 1.66) (p = 0.03)",
        "141.2 GB/s",
        "gap of 50.0 ms at the end of a period of 1 s",
        "Local timer interrupts",
        "irqs off: irq/45-nvkm in gf100_mc_intr_unarm",
        "called by nvkm_mc_intr_unarm &lt; nvkm_pci_intr",
        "<td>flush_tlb_kernel_range</td>",
        "10.0 ms stolen (cell l3). Spikes of this size may come from the hypervisor",
        "isolcpus=1 nohz_full=1",
        "L3 32 MiB shared by CPUs 0-1",
        "whylate run cache-or-bus.toml",
        "working_set = &quot;llc/2&quot;",
    ] {
        assert!(markup.contains(text), "`{text}` is missing");
    }
    assert_eq!(markup.matches("data-chart=").count(), 5);
    assert_eq!(markup.matches("class=\"corrected\"").count(), 1);
}

#[test]
fn the_page_asks_no_network() {
    let page = page(&fixture::run_result(&[1]));
    let markup = markup(&page);
    for resource in [" src=", " href=", "<link", "<img", "<iframe", "url(", "@import"] {
        assert!(!markup.contains(resource), "{resource}");
    }
    for call in ["url(http", "@import", "fetch(", "XMLHttpRequest", "import(", "WebSocket("] {
        assert!(!page.contains(call), "{call}");
    }
}

#[test]
fn names_from_the_result_stay_text() {
    const EVIL: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\" onload=\"x";
    let mut run = fixture::run_result(&[1]);
    let harmless = markup(&page(&run));
    run.cells[1].name = EVIL.to_owned();
    run.cells[1].rates[0].load = EVIL.to_owned();
    run.cells[1].rates[0].unit = EVIL.to_owned();
    run.plan.name = EVIL.to_owned();
    run.plan.question = Some(EVIL.to_owned());
    run.verdict_reason = EVIL.to_owned();
    run.comparisons[0].cell = EVIL.to_owned();
    run.warnings[0].text = EVIL.to_owned();
    run.facts.kernel.command_line = EVIL.to_owned();
    run.cells[0].interrupts[1].description = EVIL.to_owned();
    run.cells[0].spikes[0].cause.evidence = vec![EVIL.to_owned()];
    let page = page(&run);
    assert!(!page.contains("<script>alert"));
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 4);
    assert_well_formed(&markup(&page));
    assert_eq!(chart_data(&page)[0]["series"][1]["name"], EVIL);
    assert!(!harmless.contains("alert"));
}

#[test]
fn the_charts_hold_every_sample_and_every_outlier() {
    let run = fixture::run_result(&[1]);
    let data = chart_data(&page(&run));
    let sum = |series: &serde_json::Value| -> u64 {
        series["counts"].as_array().unwrap().iter().filter_map(serde_json::Value::as_u64).sum()
    };
    let distributions = of_kind(&data, "distribution");
    assert_eq!(distributions.len(), 2);
    for (distribution, probe) in distributions.iter().zip([0, 1]) {
        for series in distribution["series"].as_array().unwrap() {
            let cell = series["cell"].as_u64().unwrap() as usize;
            // For the turns of a loop only the gaps are drawn: 10 us and more.
            let least = [0, 10_000][probe];
            let histogram = &run.cells[cell].probes[probe].cpus[0].histogram;
            let samples: u64 = histogram.iter().filter(|it| it.0 >= least).map(|it| it.1).sum();
            assert_eq!((sum(series), samples > 0), (samples, true));
        }
    }
    let timeline = of_kind(&data, "timeline")[0];
    let bars = timeline["series"][2]["bars"].as_array().unwrap();
    let largest = run.cells[2].probes[0].cpus[0].quantiles.unwrap().max_ns;
    assert!(bars.iter().any(|bar| bar[2].as_u64() == Some(largest)));
    assert_eq!(timeline["repeats"].as_array().unwrap().len(), 4);
    assert_eq!(timeline["limit_ns"], 2_000_000);
}

#[test]
fn several_cpus_have_their_own_panels_and_many_share_one() {
    let panels = |cpus: &[u32]| of_kind(&chart_data(&page(&fixture::run_result(cpus))), "distribution").len();
    assert_eq!(panels(&[1]), 2);
    assert_eq!(panels(&[0, 1]), 4);
    assert_eq!(panels(&[0, 1, 2, 3, 4, 5]), 2);
}

#[test]
fn a_run_without_samples_is_an_error() {
    assert!(matches!(whylate_report::run(&fixture::empty_result()), Err(ReportError::NoSamples { .. })));
}

#[test]
fn a_run_with_little_in_it_is_still_a_page() {
    let mut run = fixture::run_result(&[1]);
    run.plan.limit = None;
    run.comparisons.clear();
    run.warnings.clear();
    run.facts = whylate_core::Facts::default();
    for cell in &mut run.cells {
        cell.rates.clear();
        cell.interrupts.clear();
        cell.spikes.clear();
        cell.noise_floor = None;
        for cpu in cell.probes.iter_mut().flat_map(|probe| &mut probe.cpus) {
            cpu.timeline.clear();
        }
    }
    run.cells[0].probes.clear();
    let page = page(&run);
    assert_well_formed(&markup(&page));
    assert!(page.contains("No spike exceeded"));
    assert!(!page.contains("id=\"interrupts\""));
}

#[test]
fn events_of_several_cpus_are_shown_without_a_search_for_causes() {
    let mut run = fixture::run_result(&[0, 1]);
    run.plan.causes = false;
    let markup = markup(&page(&run));
    assert_well_formed(&markup);
    assert!(!markup.contains("id=\"causes\""));
    assert!(says("idle-cpus-late-at", &markup));
}

#[test]
fn the_page_of_another_tools_result_has_title_file_and_chart() {
    let of = |cpus: &[u32]| {
        let measure = fixture::measure_result(cpus);
        let tool = Some("cyclictest".to_owned());
        let page = whylate_report::measure_with_chart(&MeasureResult { tool, ..measure }, "base.json");
        page.unwrap().html()
    };
    let page = of(&[0, 1]);
    assert_well_formed(&markup(&page));
    assert!(page.contains("<h1 class=\"sentence\"><code>base.json</code>: "), "{page}");
    assert!(page.contains("<title>base.json - whylate</title>") && page.contains("cyclictest"), "{page}");
    let curves = |page: &str| {
        let data = chart_data(page);
        let charts = of_kind(&data, "distribution");
        assert_eq!(charts.len(), 1);
        let series = charts[0]["series"].as_array().unwrap().clone();
        series
            .iter()
            .flat_map(|one| one["counts"].as_array().unwrap())
            .filter_map(|it| it.as_u64())
            .sum::<u64>()
    };
    let samples = |cpus| fixture::measure_result(cpus).probe.cpus.iter().map(|cpu| cpu.samples).sum::<u64>();
    assert_eq!(
        (curves(&page), chart_data(&page)[0]["series"][1]["name"].as_str()),
        (samples(&[0, 1]), Some("CPU 1"))
    );
    assert!(!page.contains("id=\"histograms\""), "the chart has the histogram: {page}");
    let many: Vec<u32> = (0..32).collect();
    assert_eq!(chart_data(&of(&many))[0]["series"].as_array().unwrap().len(), 1, "one curve of all");
}

#[test]
fn the_list_of_a_server_has_two_columns_of_boxes_and_figures() {
    let run = |name: &str, max_ns| RunSummary {
        path: format!("/runs/{name}"),
        plan: "quick".to_owned(),
        started_at: "2026-11-28T10:00:00Z".to_owned(),
        state: RunState::Complete,
        running: false,
        verdict: Some(Verdict::Fail),
        figures: Some(RunFigures {
            series: "timer".to_owned(),
            max_ns,
            p99_ns: Some(41_000),
            limit_ns: Some(200_000),
        }),
        host: "bench".to_owned(),
        kernel: "7.1.0".to_owned(),
        tags: Vec::new(),
        note: None,
    };
    let result = RunsResult {
        format: RUNS_FORMAT.to_owned(),
        folder: "/runs".to_owned(),
        runs: vec![run("a", 312_000), run("b", 99_000)],
        series: None,
    };
    let page = whylate_report::runs(&result, 2, Some(|run| run.path.clone()));
    let html = page.html_within(&Frame { compares: true, ..Frame::default() });
    let rows: Vec<&str> = html.split("<tr>").skip(2).collect();
    for (row, name) in rows.iter().zip(["a", "b"]) {
        for side in ["before", "after"] {
            assert!(row.contains(&format!("name=\"{side}\" value=\"{name}\"")), "{row}");
        }
        assert!(row.contains("41.0 us") && row.contains("200 us"), "{row}");
    }
    assert!(rows[0].contains("over\">312 us") && !rows[1].contains("over\">99.0 us"), "{html}");
    assert_eq!(html.matches("<th ").count(), 2 + rows[0].matches("<td").count() - 2, "{html}");
    let text = whylate_report::runs(&result, 2, None).terminal(Style { color: false, width: 80 });
    assert!(text.contains("312 us") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// What paper shows is chosen by these names.
#[test]
fn paper_has_the_tables_of_the_deciding_figures() {
    let page = page(&fixture::run_result(&[1]));
    let matrix = page.split("<div id=\"matrix\">").nth(1).and_then(|it| it.split("</div>\n").next());
    assert!(page.contains("main:has(> #summary) > :is(#summary, #late-time, #matrix"), "{page}");
    assert!(
        page.contains("<section id=\"summary\">") && page.contains("<section id=\"pictures\">"),
        "{page}"
    );
    let whole = page.split("<div id=\"matrix\">").nth(1).expect("the table of the cells");
    assert!(
        matrix.is_some()
            && whole.find("p99.9 vs idle").unwrap() < whole.find("<section id=\"pictures\">").unwrap()
    );
}
