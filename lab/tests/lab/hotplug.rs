//! CPUs that come while threads are watched: one that was offline, and one that a hypervisor adds.

use serde_json::Value;
use std::collections::BTreeSet;
use whylate_lab::suite::LabTest;
use whylate_lab::{Device, Guest, Kernel, LabError, Machine, Profile};

pub(crate) fn tests() -> Vec<LabTest> {
    let machine = Machine::new(Profile::Threads, Kernel::RealTime).with(&[Device::ExtraCpus]);
    vec![LabTest::new("watch_loses_nothing_on_cpus_that_come", machine, follows_to_new_cpus)]
}

/// Watches a shell in the background. Every activation is above that deadline, and so is explained.
const WATCH: &str = r#"echo 0 >/sys/devices/system/cpu/cpu1/online
rm -rf /tmp/watched /tmp/end
nohup whylate watch --json --deadline 1ns -o /tmp/watched -- \
 sh -c 'echo $$ >/tmp/pid; while [ ! -e /tmp/end ]; do sleep 0.02; done' >/tmp/lines 2>/tmp/said </dev/null &
for attempt in $(seq 600); do [ "$(wc -l </tmp/lines)" -lt 2 ] || break; sleep 0.1; done
wc -l </tmp/lines"#;

fn move_to(guest: &mut Guest, cpu: u32) -> Result<(), LabError> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
    guest.ok(&format!(
        "for attempt in $(seq 600); do [ ! -e {folder}/online ] || break; sleep 0.1; done\n\
         echo 1 >{folder}/online 2>/dev/null || true\n\
         taskset -pc {cpu} $(cat /tmp/pid)\nsleep 3"
    ))?;
    Ok(())
}

fn follows_to_new_cpus(guest: &mut Guest) -> Result<(), LabError> {
    let lines = guest.ok(WATCH)?;
    assert!(
        lines.trim().parse::<u32>().is_ok_and(|lines| lines >= 2),
        "{lines}: {}",
        guest.ok("cat /tmp/said")?
    );
    move_to(guest, 1)?;
    let answer = guest.monitor("device_add max-x86_64-cpu,id=extra,socket-id=2,core-id=0,thread-id=0")?;
    assert!(!answer.contains("Error"), "{answer}");
    move_to(guest, 2)?;
    let output = guest.run(
        "touch /tmp/end\nfor attempt in $(seq 600); do pidof whylate >/dev/null || break; sleep 0.1; done\n\
         cp /tmp/lines /tmp/said $OUT",
    )?;
    let lines = std::fs::read_to_string(output.files.join("lines")).expect("what the watch printed");
    let lines: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (result, before) = lines.split_last().expect("a result");
    assert_eq!(result["format"], "whylate.run/1", "{result:#}");
    let lost = |warning: &Value| warning["code"] == "task-records-lost";
    assert!(!result["warnings"].as_array().expect("a list").iter().any(lost), "{:#}", result["warnings"]);
    let stages = before.iter().flat_map(|line| line["tasks"].as_array().cloned().unwrap_or_default());
    let shell = stages.filter(|task| task["name"] == "sh");
    let stages =
        shell.flat_map(|task| task["last_spike"]["timeline"].as_array().cloned().unwrap_or_default());
    let cpus: BTreeSet<u64> = stages.filter_map(|stage| stage["cpu"].as_u64()).collect();
    assert!(cpus.is_superset(&BTreeSet::from([0, 1, 2])), "{cpus:?}");
    Ok(())
}
