//! CPUs that come online while threads are watched: one that was offline, and one that a hypervisor adds.

use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Device, Guest, Kernel, LabError, Machine, Profile};

pub(crate) fn tests() -> Vec<LabTest> {
    // It waits for a watch that begins, and for two CPUs to come: minutes on a busy host.
    if suite::is_brief() {
        return Vec::new();
    }
    let machine = Machine::new(Profile::Threads, Kernel::RealTime).with(&[Device::ExtraCpus]);
    vec![LabTest::new("watch_follows_to_cpus_that_come", machine, follows_to_new_cpus)]
}

/// Watches a shell, and moves it to each CPU that comes. Every activation is above that deadline, and so is explained.
const WATCH: &str = r#"cd /sys/devices/system/cpu
echo 0 >cpu1/online
whylate watch --json --deadline 1ns -o /tmp/watched -- \
 sh -c 'echo $$ >/tmp/pid; while [ ! -e /tmp/end ]; do sleep 0.02; done' >$OUT/lines 2>$OUT/said & watch=$!
for attempt in $(seq 600); do [ "$(wc -l <$OUT/lines)" -lt 2 ] || break; sleep 0.1; done
[ ! -e cpu2 ] || exit 3
echo 1 >cpu1/online
taskset -pc 1 $(cat /tmp/pid)
sleep 3
for attempt in $(seq 1200); do [ ! -e cpu2/online ] || break; sleep 0.1; done
echo 1 >cpu2/online 2>/dev/null || true
taskset -pc 2 $(cat /tmp/pid)
sleep 3
touch /tmp/end
wait $watch || true"#;

#[allow(clippy::print_stdout, reason = "what the watch could not tell, for the record")]
fn follows_to_new_cpus(guest: &mut Guest) -> Result<(), LabError> {
    let mut script = guest.start(WATCH)?;
    // The script waits for that CPU when it has seen the watch begin.
    script.is_done_within(Duration::from_secs(45))?;
    let plugged =
        script.guest().monitor("device_add max-x86_64-cpu,id=extra,socket-id=2,core-id=0,thread-id=0")?;
    assert!(!plugged.contains("Error"), "{plugged}");
    let output = script.wait(Duration::from_secs(240))?;
    assert_eq!(output.status, 0, "{}{}", output.stdout, output.stderr);
    let lines = std::fs::read_to_string(output.files.join("lines")).expect("what the watch printed");
    let lines: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let (result, before) = lines.split_last().expect("a result");
    assert_eq!(result["format"], "whylate.run/1", "{result:#}");
    let stages = before.iter().flat_map(|line| line["tasks"].as_array().cloned().unwrap_or_default());
    let shell = stages.filter(|task| task["name"] == "sh");
    let stages =
        shell.flat_map(|task| task["last_spike"]["timeline"].as_array().cloned().unwrap_or_default());
    let cpus: BTreeSet<u64> = stages.filter_map(|stage| stage["cpu"].as_u64()).collect();
    assert!(cpus.is_superset(&BTreeSet::from([0, 1, 2])), "{cpus:?}");
    for warning in result["warnings"].as_array().into_iter().flatten() {
        println!("         {warning}");
    }
    Ok(())
}
