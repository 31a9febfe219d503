//! `whylate copy`, the load `copy` and the probe `access`.

use crate::fields::{list, number, word};
use crate::json::validate;
use crate::tool::{command, finish, folder, text, whylate};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn a_table_has_each_method_and_block_and_the_frame() {
    let words = ["copy", "--backend", "anonymous", "--method", "memcpy,sse2-nt", "--block", "256B,4KiB"];
    let frame = ["--frame", "320x240:nv12@100", "--trials", "3"];
    let document = whylate(&[&words[..], &frame, &["--json"]].concat()).json();
    validate("copy", &document);
    assert_eq!(word(&document, "format"), "whylate.copy/1");
    for row in list(&document, "rows") {
        assert_eq!((word(row, "from"), word(row, "to"), word(row, "effective")), ("wb", "wb", "wb"));
        let sizes: Vec<u64> = list(row, "blocks").iter().map(|block| number(block, "bytes")).collect();
        assert_eq!(sizes, [256, 4096, 115_200]);
        assert!(row["plateau"]["bytes_per_s"].as_f64().is_some_and(|rate| rate > 0.0));
        assert!(row["frame"]["cpu_share"].as_f64().is_some_and(|share| share > 0.0));
    }
    let said = whylate(&[&words[..], &frame].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    for text in ["wb to wb", "memcpy", "Frame budget", "320x240:nv12@100: 115,200 bytes every 10.0 ms"] {
        assert!(said.stdout.contains(text), "{}", said.stdout);
    }
}

#[test]
fn missing_facilities_say_why() {
    let document = whylate(&["copy", "--backends", "--json"]).json();
    validate("copy", &document);
    let backends = list(&document, "backends");
    let has = |name: &str| backends.iter().any(|one| word(one, "name") == name);
    let all = ["anonymous", "memtype", "dumb", "pci", "vulkan", "cuda"];
    assert!(all.into_iter().all(has), "{backends:?}");
    let says_why = |one: &Value| !list(one, "offers").is_empty() || !word(one, "reason").is_empty();
    assert!(backends.iter().all(says_why));

    let said = whylate(&["copy", "--backend", "nothing"]);
    assert!(said.code == Some(1) && said.error().contains("choose anonymous"), "{said:?}");
    let said = whylate(&["copy", "--frame", "1920x1080"]);
    assert!(said.code == Some(1) && said.stderr.contains("1920x1080:nv12@60"), "{said:?}");
    let said = whylate(&["load", "copy", "--method", "ldnp-stnp", "--duration", "1s"]);
    let expected = if cfg!(target_arch = "aarch64") { Some(0) } else { Some(69) };
    assert_eq!(said.code, expected, "{said:?}");
}

#[test]
fn passes_are_separate_and_divided_by_their_accesses() {
    let words = ["measure", "access", "--working-set", "64KiB", "--interval", "2ms", "--duration", "2s"];
    let document = whylate(&[&words[..], &["--policy", "other", "--json"]].concat()).json();
    validate("measure", &document);
    let cpus = list(&document, "cpus");
    let series: Vec<&str> = cpus.iter().map(|cpu| word(cpu, "series")).collect();
    assert_eq!(series, ["first", "again"]);
    for cpu in cpus {
        assert!(number(cpu, "samples") > 0);
        assert_eq!(number(cpu, "accesses"), 1024);
        let (pass, access) = (cpu["p50_ns"].as_f64().unwrap(), cpu["access_ns"].as_f64().unwrap());
        assert!((access * 1024.0 / pass - 1.0).abs() < 0.05, "{access} {pass}");
    }
}

/// A short script stands in for the helper; `gpu/tests` tests the real one.
#[test]
fn memory_of_graphics_drivers_is_copied_by_the_helper() {
    let folder = folder();
    let helper = folder.path().join("helper");
    let row = r#"{"from":"wc","to":"wb","method":"memcpy","requested":"wc","effective":"wc","backend":"vulkan",
        "device":"0:type3","blocks":[]}"#;
    let table = format!(r#"{{"table":{{"cpu":0,"rows":[{row}]}}}}"#).replace('\n', "");
    let script = format!(
        "#!/bin/sh\n[ $1 = copies ] || exit 1\nread -r request\ncase $request in *'\"device\":\"0:type3\"'*) ;; *) exit 1 ;; esac\n\
         echo '{{\"done\":0.5}}'\necho '{table}'\n"
    );
    fs::write(&helper, script).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let ask = |helper: &str| {
        let mut command = command(&["copy", "--backend", "vulkan", "--device", "0:type3", "--json"]);
        command.env("WHYLATE_GPU", helper);
        finish(command)
    };
    let said = ask(text(&helper));
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    validate("copy", &document);
    assert_eq!(word(&list(&document, "rows")[0], "device"), "0:type3");
    let said = ask("/nonexistent/helper");
    assert!(said.code == Some(69) && said.stderr.contains("/nonexistent/helper"), "{said:?}");
}
