//! Results of other tools, given to `whylate report` and, by mistake, to `whylate explain`.

use crate::fields::{list, word};
use crate::json::validate;
use crate::tool::{folder, text, whylate, write};
use std::path::Path;
use whylate_testing::says;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../import/tests/files");

#[test]
fn a_result_of_cyclictest_is_shown_as_a_measurement() {
    let file = format!("{FILES}/cyclictest.json");
    let said = whylate(&["report", &file]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("cyclictest 2.40") && said.stdout.contains("441 us"), "{said:?}");
    let document = whylate(&["report", &file, "--json"]).json();
    validate("measure", &document);
    assert_eq!((word(&document, "tool"), list(&document, "cpus").len()), ("cyclictest 2.40", 1));
    // Extremes are shown where quantiles are not known, and a tool that found no gap has a result.
    assert!(whylate(&["report", &format!("{FILES}/cyclictest_threads.txt")]).stdout.contains("51.0 us"));
    assert_eq!(whylate(&["report", &format!("{FILES}/hwlatdetect_none.txt")]).code, Some(0));
    let folder = folder();
    let page = folder.path().join("page.html");
    assert_eq!(whylate(&["report", &file, "-o", text(&page)]).code, Some(0));
    assert!(std::fs::read_to_string(&page).expect("it is written").contains("cyclictest 2.40"));
}

#[test]
fn the_wrong_command_names_the_right_one() {
    let file = format!("{FILES}/rtla_timerlat_hist.txt");
    let said = whylate(&["explain", &file]);
    assert!(said.error().contains("a result of rtla") && said.error().contains("whylate report"), "{said:?}");
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces/readers/hwlat_6.1_rt.txt");
    let said = whylate(&["report", text(&trace)]);
    assert!(said.error().contains("whylate explain"), "{said:?}");
}

#[test]
fn a_damaged_result_is_refused_with_its_place() {
    let folder = folder();
    let broken = write(&folder, "broken.json", "{\n  \"cmdline:\": \"cyclictest\",\n  \"thread\": 7\n}\n");
    let said = whylate(&["report", &broken]);
    assert!(said.error().contains("line 3, column 13"), "{said:?}");
    let other = write(&folder, "other", "hello\n");
    assert!(says("not-result-that-whylate", whylate(&["report", &other]).error()));
}
