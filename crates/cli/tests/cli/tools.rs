//! Results of other tools, given to `whylate report` and, by mistake, to `whylate explain`.

use crate::fields::{list, word};
use crate::json::validate;
use crate::tool::{folder, text, whylate, write};
use std::path::Path;
use whylate_testing::{Need, says, skip};

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
    // Extremes are shown if quantiles are unknown, and a tool that found no gap has a result.
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

/// A hint works on the file for which it is given: `report` reads what `explain` names, and the other way round.
#[test]
fn each_file_of_a_tool_is_shown_by_the_command_that_is_named() {
    for entry in std::fs::read_dir(FILES).expect("the files") {
        let path = entry.expect("a file").path();
        let said = whylate(&["explain", text(&path)]);
        assert!(said.error().contains("`whylate report "), "{said:?}");
        let said = whylate(&["report", text(&path)]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
    let folder = folder();
    let log = write(&folder, "dmesg.txt", "[  371.133076] sched: RT throttling activated\n");
    let said = whylate(&["report", &log]);
    assert!(said.error().contains("`whylate explain "), "{said:?}");
}

#[test]
fn a_file_of_no_known_kind_has_one_line_with_what_to_do() {
    let folder = folder();
    let cases = [
        ("chrome.json", "{\"traceEvents\":[{\"ph\":\"M\"}]}", "scheduler"),
        ("a.pdf", "%PDF-1.7 x", "PDF"),
        ("table.csv", "a,b,c\n1,2,3\n", "comma-separated"),
        ("letter", "Dear all,\nit is late.\n", "Dear all"),
        ("config", "CONFIG_PREEMPT=y\nCONFIG_HZ=250\n", "configuration"),
    ];
    for (name, content, wanted) in cases {
        let file = write(&folder, name, content);
        for command in ["explain", "report"] {
            let said = whylate(&[command, &file]);
            assert!(said.error().contains(wanted) && said.stderr.lines().count() == 1, "{said:?}");
        }
    }
}

/// PowerShell writes UTF-16; the result of the hint is read.
#[test]
fn a_text_in_utf_16_has_a_hint_that_works() {
    let folder = folder();
    let log = "[  371.133076] sched: RT throttling activated\n";
    for (name, order) in [("le.txt", u16::to_le_bytes as fn(u16) -> [u8; 2]), ("be.txt", u16::to_be_bytes)] {
        let path = folder.path().join(name);
        let marked = format!("\u{feff}{log}");
        std::fs::write(&path, marked.encode_utf16().flat_map(order).collect::<Vec<u8>>())
            .expect("it is written");
        for command in ["explain", "report"] {
            let said = whylate(&[command, text(&path)]);
            assert!(said.error().contains("UTF-16") && said.error().contains("iconv -f UTF-16"), "{said:?}");
            assert_eq!((said.code, said.stderr.lines().count()), (Some(1), 1), "{said:?}");
        }
        let Ok(made) =
            std::process::Command::new("iconv").args(["-f", "UTF-16", "-t", "UTF-8"]).arg(&path).output()
        else {
            skip(Need::Program("iconv"), "`iconv` is missing");
            return;
        };
        let plain = write(&folder, &format!("{name}.utf8"), &String::from_utf8_lossy(&made.stdout));
        assert_eq!(whylate(&["explain", &plain, "--json"]).json()["messages"][0]["code"], "rt_throttling");
    }
}

#[test]
fn files_are_compared_cpu_by_cpu_with_the_true_reason() {
    let folder = folder();
    let file = |name: &str, max: [u32; 2]| {
        let line = |thread: usize| {
            format!(
                "T: {thread} ( 88{thread}) P:80 I:250 C:4688252 Min: 3 Act: 6 Avg: 6 Max: {}\n",
                max[thread]
            )
        };
        write(&folder, name, &format!("# /dev/cpu_dma_latency set to 0us\n{}{}", line(0), line(1)))
    };
    let (before, after) = (file("before", [57, 81]), file("after", [51_956, 59]));
    let said = whylate(&["compare", &before, &after, "--json"]);
    let document = said.document();
    assert_eq!((said.code, word(&document, "outcome")), (Some(1), "cannot_tell"));
    let of_cpu = |cell: &str| {
        list(&document, "contrasts").iter().find(|it| it["of_cell"] == cell).expect("a row").clone()
    };
    assert_eq!(of_cpu("CPU 0")["cell_ns"], 51_956_000);
    assert_eq!(of_cpu("CPU 1")["cell_ns"], 59_000);
    let codes: Vec<&str> = list(&document, "warnings").iter().map(|it| word(it, "code")).collect();
    assert!(codes.contains(&"known-signature"), "{codes:?}");
    let said = whylate(&["compare", &before, &after, "--exit-on", "regression"]);
    assert_eq!(said.code, Some(125), "{said:?}");
    let runs = |name: &str, max: u32| {
        (0..4).map(|run| file(&format!("{name}{run}"), [max + run, 60 + run])).collect::<Vec<_>>().join(",")
    };
    let said = whylate(&["compare", &runs("a", 57), &runs("b", 9_000), "--json"]);
    let document = said.document();
    assert_eq!((said.code, word(&document, "outcome")), (Some(2), "worse"));
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
