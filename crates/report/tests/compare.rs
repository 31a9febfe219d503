//! The page of a comparison: what its figures are, the differences, and what is unknown.

mod fixture;

use fixture::pages::comparison as result;
use whylate_core::result::CompareResult;
use whylate_report::Style;
use whylate_testing::says;

/// Text with its lines joined.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_form_says_that_the_figures_are_medians_of_the_repeats() {
    let page = whylate_report::compare(&result());
    let style = Style { color: false, width: 120 };
    for text in [page.terminal(style), page.markdown(), page.html()].map(|text| flat(&text)) {
        assert!(text.contains("before (median)") && text.contains("now (median)"), "{text}");
        assert!(says("middle-median-values-repeats", &text), "{text}");
    }
}

#[test]
fn differences_are_separate_from_unknown_facts() {
    let page = whylate_report::compare(&result());
    let text = flat(&page.terminal(Style { color: false, width: 120 }));
    assert!(text.contains("cell.loads none l3"), "{text}");
    let unknown = "Facts that at least one side does not report are not compared: settings.s0, settings.s1, \
        settings.s2, settings.s3 and 2 more (--details lists them).";
    assert!(text.contains(unknown) && !text.contains("settings.s5"), "{text}");
    let details = whylate_report::compare(&result()).detailed(true);
    let details = flat(&details.terminal(Style { color: false, width: 120 }));
    assert!(details.contains("settings.s5 - on"), "{details}");
    let nothing = CompareResult { differences: Vec::new(), unknown: Vec::new(), ..result() };
    let text = flat(&whylate_report::compare(&nothing).markdown());
    assert!(says("loads-treatments-are-same", &text) && !text.contains("Not known"), "{text}");
}
