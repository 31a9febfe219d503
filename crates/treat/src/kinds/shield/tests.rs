//! Shields of invented machines.

use super::*;
use crate::change::{Change, Target, Undoing};
use whylate_core::WarningCode;
use whylate_core::plan::ShieldMethod;
use whylate_core::{CpuSelector, Facts};
use whylate_host::HostRoot;
use whylate_host::facts;
use whylate_lab::archive;
use whylate_testing::says;

/// Two CPUs; a task anywhere, one on CPU 1, kthreadd, a pinned thread of the kernel; one line anywhere, one managed.
const MACHINE: &str = "\
== proc/sys/kernel/osrelease := 6.1.0-37-rt-amd64
== sys/devices/system/cpu/present := 0-1
== sys/devices/system/cpu/online := 0-1
== sys/devices/system/cpu/cpu{0-1}/online := 1
== proc/cmdline := quiet
== proc/self/status := Cpus_allowed_list:\t0-1
== proc/1/task/1/stat := 1 (init) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 7
== proc/1/task/1/status := Cpus_allowed_list:\t0-1
== proc/2/task/2/stat := 2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 8
== proc/2/task/2/status := Cpus_allowed_list:\t0-1
== proc/9/task/9/stat := 9 (migration/1) S 2 0 0 0 -1 69238848 0 0 0 0 0 0 0 0 20 0 1 0 9
== proc/9/task/9/status := Cpus_allowed_list:\t1
== proc/30/task/30/stat := 30 (control) S 1 30 30 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 30
== proc/30/task/30/status := Cpus_allowed_list:\t1
== proc/interrupts
           CPU0       CPU1
 24:          1          0  IO-APIC   5-edge      eth0
 36:          0         14  PCI-MSIX-0000:00:02.0   1-edge      nvme0q1
== proc/irq/24/smp_affinity_list := 0-1
== proc/irq/36/smp_affinity_list := 1
== proc/irq/default_smp_affinity := 3
== sys/devices/virtual/workqueue/cpumask := 3
== proc/sys/kernel/watchdog_cpumask := 0-1
== proc/sys/kernel/timer_migration := 1
== proc/sys/vm/stat_interval := 1
";

const V1: &str = "\
== sys/fs/cgroup/cpuset/cpuset.cpus := 0-1
== sys/fs/cgroup/cpuset/cpuset.mems := 0
== sys/fs/cgroup/cpuset/cpuset.sched_load_balance := 1
== sys/fs/cgroup/cpuset/release_agent :=
== proc/1/task/1/cgroup := 3:cpuset:/
== proc/2/task/2/cgroup := 3:cpuset:/
== proc/30/task/30/cgroup := 3:cpuset:/
== proc/40/task/40/stat := 40 (job) S 1 40 40 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 40
== proc/40/task/40/status := Cpus_allowed_list:\t0-1
== proc/40/task/40/cgroup := 3:cpuset:/jobs
";

const V2: &str = "\
== sys/fs/cgroup/cgroup.controllers := cpu cpuset
== sys/fs/cgroup/cgroup.subtree_control := cpu
";

fn machine(text: &str) -> (tempfile::TempDir, Surroundings) {
    let folder = tempfile::tempdir().unwrap();
    archive::unpack(text, folder.path()).unwrap();
    let root = HostRoot::at(folder.path());
    let (facts, _): (Facts, _) = facts::collect(&root);
    let surroundings = Surroundings::new(root, &facts, None);
    (folder, surroundings)
}

fn shield(cpus: &str) -> ShieldPlan {
    ShieldPlan {
        cpus: CpuSelector::List(cpus.parse().unwrap()),
        processes: true,
        interrupts: true,
        local_timer: true,
        method: ShieldMethod::Auto,
    }
}

fn written(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| format!("{} = {}", change.target, change.new)).collect()
}

fn codes(planned: &Planned) -> Vec<&str> {
    planned.warnings.iter().map(|warning| warning.code.as_str()).collect()
}

const NOISE: [&str; 6] = [
    "/proc/irq/24/smp_affinity_list = 0",
    "/proc/irq/default_smp_affinity = 0",
    "/proc/sys/kernel/watchdog_cpumask = 0",
    "/proc/sys/vm/stat_interval = 120",
    "/proc/sys/kernel/timer_migration = 0",
    "/sys/devices/virtual/workqueue/cpumask = 0",
];

#[test]
fn by_affinity_without_a_cpuset() {
    let (_folder, surroundings) = machine(MACHINE);
    let planned = shield("1").plan(&surroundings).unwrap();
    let processes =
        ["/run/whylate-shield.cpus = 1", "affinity of init (1) = 0", "affinity of kthreadd (2) = 0"];
    assert_eq!(written(&planned.changes), [NOISE.as_slice(), &processes].concat());
    let expected = ["interrupts-stay", "local-timer-stays", "rcu-callbacks-stay", "shield-by-affinity"];
    assert_eq!(codes(&planned), expected);
    assert!(planned.warnings[0].text.ends_with("36 (nvme0q1)"), "{:?}", planned.warnings[0]);
    let refused = ShieldPlan { method: ShieldMethod::Cpuset, ..shield("1") }.plan(&surroundings).unwrap_err();
    assert!(refused.reason.contains("no cpuset controller"), "{refused}");
}

#[test]
fn work_that_was_kept_on_the_shielded_cpu_goes_to_all_others() {
    let machine_of = |mask: &str| {
        machine(&MACHINE.replace("workqueue/cpumask := 3", &format!("workqueue/cpumask := {mask}")))
    };
    let (_folder, surroundings) = machine_of("2");
    let planned = shield("1").plan(&surroundings).unwrap();
    assert!(written(&planned.changes).contains(&"/sys/devices/virtual/workqueue/cpumask = 0".to_owned()));
    let (_folder, surroundings) = machine_of("1");
    let planned = shield("1").plan(&surroundings).unwrap();
    assert!(
        !written(&planned.changes).iter().any(|change| change.contains("workqueue")),
        "it is there already"
    );
}

#[test]
fn by_cpusets_of_version_1() {
    let (_folder, surroundings) = machine(&format!("{MACHINE}{V1}"));
    let planned = shield("1").plan(&surroundings).unwrap();
    let cpusets = "/sys/fs/cgroup/cpuset";
    let processes = [
        "affinity of control (30) = 1".to_owned(),
        format!("{cpusets}/whylate-others = present"),
        format!("{cpusets}/whylate-others/cpuset.mems = 0"),
        format!("{cpusets}/whylate-others/cpuset.cpus = 0"),
        format!("{cpusets}/whylate-others/cpuset.sched_load_balance = 1"),
        format!("{cpusets}/whylate-shield = present"),
        format!("{cpusets}/whylate-shield/cpuset.mems = 0"),
        format!("{cpusets}/whylate-shield/cpuset.cpus = 1"),
        format!("{cpusets}/whylate-shield/cpuset.sched_load_balance = 0"),
        format!("{cpusets}/cpuset.sched_load_balance = 0"),
        format!("group of init (1) in {cpusets} = /whylate-others"),
        "affinity of kthreadd (2) = 0".to_owned(),
        format!("group of control (30) in {cpusets} = /whylate-shield"),
        "affinity of job (40) = 0".to_owned(),
    ];
    let changes = written(&planned.changes);
    assert_eq!(changes[..NOISE.len()], NOISE);
    assert_eq!(changes[NOISE.len()..], processes);
    let remembered = &planned.changes[NOISE.len()];
    assert_eq!((remembered.undoing, remembered.required), (Undoing::Always, false));
    let inside = planned.changes.iter().filter(|change| change.undoing == Undoing::WithFolder);
    assert!(inside.clone().count() == 6 && inside.into_iter().all(|change| change.required));
}

#[test]
fn by_a_partition_of_version_2() {
    let (_folder, surroundings) = machine(&format!("{MACHINE}{V2}"));
    let planned =
        ShieldPlan { interrupts: false, local_timer: false, ..shield("1") }.plan(&surroundings).unwrap();
    let expected = [
        "/sys/devices/virtual/workqueue/cpumask = 0",
        "affinity of control (30) = 1",
        "/sys/fs/cgroup/cgroup.subtree_control = +cpuset",
        "/sys/fs/cgroup/whylate-shield = present",
        "/sys/fs/cgroup/whylate-shield/cgroup.type = threaded",
        "/sys/fs/cgroup/whylate-shield/cpuset.cpus = 1",
        "/sys/fs/cgroup/whylate-shield/cpuset.cpus.partition = isolated",
        "group of control (30) in /sys/fs/cgroup = /whylate-shield",
    ];
    assert_eq!(written(&planned.changes), expected);
    let undone: Vec<Undoing> = planned.changes.iter().map(|change| change.undoing).collect();
    use Undoing::{Always, IfUnchanged, WithFolder};
    assert_eq!(
        undone,
        [IfUnchanged, Always, IfUnchanged, IfUnchanged, WithFolder, WithFolder, WithFolder, IfUnchanged]
    );
    let (_folder, surroundings) = machine(&format!("{MACHINE}{V2}").replace(":= 6.1.0", ":= 5.10.0"));
    let older = shield("1").plan(&surroundings).unwrap();
    let touches_groups = |change: &String| change.starts_with("/sys/fs/cgroup/");
    assert!(!written(&older.changes).iter().any(touches_groups), "before 6.1 there are none that isolate");
    assert!(older.warnings.last().unwrap().code == WarningCode::ShieldByAffinity);
    let helper = "== proc/30/task/31/stat := 31 (helper) S 1 30 30 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 31\n\
                  == proc/30/task/31/status := Cpus_allowed_list:\t0\n";
    let (_folder, surroundings) = machine(&format!("{MACHINE}{V2}{helper}"));
    let planned = shield("1").plan(&surroundings).unwrap();
    let last = planned.warnings.last().unwrap();
    assert!(last.code == WarningCode::ThreadsEvicted && last.text.ends_with("control (30)"), "{last:?}");
    let twice = format!("{MACHINE}{V2}== sys/fs/cgroup/whylate-shield/cpuset.cpus := 1\n");
    let (_folder, surroundings) = machine(&twice);
    assert!(shield("1").plan(&surroundings).unwrap_err().reason.contains("another shield is in force"));
}

#[test]
fn each_part_can_be_left_out() {
    let (_folder, surroundings) = machine(MACHINE);
    let plan = |processes, interrupts, local_timer| {
        let plan = ShieldPlan { processes, interrupts, local_timer, ..shield("1") };
        plan.plan(&surroundings).map(|planned| planned.changes.len()).map_err(|error| error.reason)
    };
    assert_eq!(plan(false, true, false), Ok(2));
    assert_eq!(plan(false, false, true), Ok(3));
    assert_eq!(plan(true, false, false), Ok(4));
    assert!(plan(false, false, false).unwrap_err().starts_with("nothing is shielded"));
}

#[test]
fn cpus_that_cannot_be_shielded() {
    let (_folder, surroundings) = machine(MACHINE);
    let reason = |cpus: &str| shield(cpus).plan(&surroundings).unwrap_err().reason;
    assert!(reason("0-1").contains("leave at least one"), "{}", reason("0-1"));
    assert!(says("cpus-cpu-does-not", reason("7")), "{}", reason("7"));
    let planned = shield("0").plan(&surroundings).unwrap();
    assert!(codes(&planned).contains(&"cpu-0-shielded"));
    let boot = MACHINE.replace(":= quiet", ":= rcu_nocbs=1")
        + "== sys/devices/system/cpu/nohz_full := 1\n== proc/irq/24/smp_affinity_list := 0\n";
    let (_folder, surroundings) = machine(&boot);
    let planned = shield("1").plan(&surroundings).unwrap();
    assert!(
        !codes(&planned).contains(&"local-timer-stays") && !codes(&planned).contains(&"rcu-callbacks-stay")
    );
    let targets: Vec<String> = planned.changes.iter().map(|change| change.target.to_string()).collect();
    assert!(!targets.contains(&Target::file("/proc/irq/24/smp_affinity_list").to_string()));
}
