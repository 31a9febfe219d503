//! The treatment `shield` on a real kernel with cgroup v2: what is left on the CPU, how a probe gets there, hotplug, and
//! that everything is as it was afterwards.

use serde_json::Value;
use std::time::Duration;
use whylate_lab::suite::{self, LabTest};
use whylate_lab::{Guest, Kernel, LabError, Machine, Profile};

/// Both CPUs of the guest are busy while this runs.
const LIMIT: Duration = Duration::from_secs(600);

/// Every setting, and the CPUs of every thread that can be moved: those of the others (flag 0x04000000) are the kernel's
/// own business, and change with hotplug. A few programs for all of it, since each takes its time in a guest.
const SNAPSHOT: &str = r#"
snapshot() {
    grep -sH . /proc/irq/*/smp_affinity_list /proc/irq/default_smp_affinity /proc/sys/kernel/watchdog_cpumask \
        /proc/sys/vm/stat_interval /proc/sys/kernel/timer_migration /sys/devices/virtual/workqueue/cpumask \
        /sys/fs/cgroup/cgroup.subtree_control >$OUT/$1-settings
    find /sys/fs/cgroup -mindepth 1 -type d >>$OUT/$1-settings
    cat /proc/[0-9]*/task/[0-9]*/stat 2>/dev/null | sed 's/^\([0-9]*\) .*) /\1 /' |
        awk 'int($8 / 67108864) % 2 == 0 { print $1 }' >$OUT/$1-movable
    cat /proc/[0-9]*/task/[0-9]*/status 2>/dev/null |
        awk 'NR == FNR { movable[$1]; next } $1 == "Name:" { name = $2 } $1 == "Pid:" { task = $2 }
             $1 == "Cpus_allowed_list:" && task in movable { print task, name, $2 }' $OUT/$1-movable - |
        sort >$OUT/$1-threads
    [ -s $OUT/$1-settings ] && [ -s $OUT/$1-threads ]
}
export WHYLATE_STATE_DIR=/tmp/whylate-state
"#;

/// Compares what is in both snapshots; settings and groups have to be in both, threads come and go.
const COMPARE: &str = r#"
compare() {
    diff $OUT/before-settings $OUT/after-settings || return 1
    join $OUT/before-threads $OUT/after-threads | awk '
        $2 == $4 { same++ } $2 == $4 && $3 != $5 { print; moved = 1 } END { exit moved || !same }'
}
"#;

/// A loop on CPU 0, and a task that a user put on CPU 1.
const LOAD: &str = "taskset -c 0 sh -c 'while :; do :; done' & load=$!\n\
                    taskset -c 1 sleep infinity & member=$!\n\
                    sleep 0.5\n";

pub(crate) fn tests() -> Vec<LabTest> {
    let mut tests = Vec::new();
    for kernel in suite::kernels_and_arm64_unless_brief(&Kernel::NEEDED) {
        let machine = Machine::new(Profile::Threads, kernel);
        tests.extend([
            LabTest::new("shield_by_a_partition_leaves_nothing_movable", machine.clone(), by_partition),
            LabTest::new("shield_by_affinity_leaves_nothing_movable", machine, by_affinity),
        ]);
    }
    tests
}

fn by_partition(guest: &mut Guest) -> Result<(), LabError> {
    if guest.kernel_version().starts_with("5.10.") {
        return Err(LabError::not_there(no_partition(guest)?));
    }
    let table = shielded(guest, "")?;
    let bound = names(&table, "bound");
    assert_eq!(bound, ["sleep"], "who was put there stays");
    Ok(())
}

/// What is reported if cgroup v2 has no isolated partitions; by default the shield then uses affinities.
fn no_partition(guest: &mut Guest) -> Result<String, LabError> {
    let asked = guest.run("whylate treat apply shield --cpus 1 --method cpuset")?;
    assert_eq!(asked.status, 69, "{}", asked.stderr);
    assert!(asked.stderr.contains("Linux 6.1 or later"), "{}", asked.stderr);
    let script = "export WHYLATE_STATE_DIR=/tmp/whylate-state\nwhylate treat apply shield --cpus 1 2>&1 || exit 10\n\
                  whylate cpus --interval 500ms --json >$OUT/cpus.json || exit 11\nwhylate treat restore";
    let output = guest.start(script)?.wait(LIMIT)?;
    assert_eq!(output.status, 0, "{}{}", output.stdout, output.stderr);
    assert!(output.stdout.contains("only sets the affinity of each thread"), "{}", output.stdout);
    assert_shielded(&output.json("cpus.json")?);
    Ok(asked.stderr.trim().to_owned())
}

fn by_affinity(guest: &mut Guest) -> Result<(), LabError> {
    shielded(guest, "--method affinity").map(drop)
}

/// Shields CPU 1, looks at it, measures on it, takes it offline and back, and restores; gives the table.
fn shielded(guest: &mut Guest, flags: &str) -> Result<Value, LabError> {
    let script = format!(
        "{SNAPSHOT}{COMPARE}{LOAD}snapshot before || exit 10\n\
         whylate treat apply shield --cpus 1 {flags} >$OUT/apply 2>&1 || exit 11\n\
         whylate cpus --interval 500ms --json >$OUT/cpus.json || exit 12\n\
         whylate measure timer --cpu 1 -D 1s -q --json >$OUT/timer.json || exit 13\n\
         echo 0 >/sys/devices/system/cpu/cpu1/online || exit 14\n\
         whylate cpus --interval 100ms --json >$OUT/offline.json || exit 15\n\
         echo 1 >/sys/devices/system/cpu/cpu1/online || exit 16\n\
         whylate cpus --interval 100ms --json >$OUT/online.json || exit 17\n\
         whylate treat restore >$OUT/restore 2>&1 || exit 18\n\
         snapshot after || exit 20\nkill $load $member || exit 19\n\
         compare"
    );
    let output = guest.start(&script)?.wait(LIMIT)?;
    let file = |name: &str| std::fs::read_to_string(output.files.join(name)).unwrap_or_default();
    let (said, given_back) = (file("apply"), file("restore"));
    assert_eq!(output.status, 0, "{}{}\n{said}\n{given_back}", output.stdout, output.stderr);
    assert!(given_back.contains("have their former values"), "{given_back}");

    let table = output.json("cpus.json")?;
    assert_shielded(&table);
    let timer = output.json("timer.json")?;
    assert!(timer["cpus"][0]["samples"].as_u64().is_some_and(|samples| samples > 0), "{timer}");
    assert_eq!(row(&output.json("offline.json")?)["online"], Value::Bool(false));
    let online = output.json("online.json")?;
    if flags.is_empty() {
        assert_shielded(&online);
    }
    Ok(table)
}

/// No thread and no interrupt line that could be moved may use CPU 1; what remains has a name.
fn assert_shielded(table: &Value) {
    let row = row(table);
    assert_eq!(row["shielding"]["processes"], Value::Bool(true), "movable: {:?}", names(table, "movable"));
    assert_eq!(row["shielding"]["interrupts"], Value::Bool(true), "{}", table["lines"]);
    assert_eq!(row["threads"]["movable"], 0);
    let pinned = names(table, "pinned");
    for thread in ["migration/1", "cpuhp/1", "ksoftirqd/1"] {
        assert!(pinned.iter().any(|name| name == thread), "no {thread} in {pinned:?}");
    }
}

fn row(table: &Value) -> &Value {
    let rows = table["cpus"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().find(|row| row["cpu"] == 1).expect("CPU 1 is there")
}

/// Names of the threads of that kind that may use CPU 1.
fn names(table: &Value, kind: &str) -> Vec<String> {
    let threads = table["threads"].as_array().map(Vec::as_slice).unwrap_or_default();
    let here = threads.iter().filter(|thread| {
        thread["kind"] == kind && thread["cpus"].as_str().is_some_and(|cpus| cpus == "1" || cpus == "0-1")
    });
    here.filter_map(|thread| Some(thread["name"].as_str()?.to_owned())).collect()
}
