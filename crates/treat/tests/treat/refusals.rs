//! What cannot be done is refused in one line, and changes nothing.

use crate::machine::{Machine, set};
use crate::planners::plan;
use std::os::unix::fs::PermissionsExt as _;
use whylate_testing::says;

const FILES: &str = "\
== sys/devices/system/cpu/cpu{1-15}/online := 1
== proc/irq/41/smp_affinity_list := 0-15
== sys/kernel/irq/41/actions := amdgpu
== sys/module/i915/parameters/enable_psr := 1
";

/// Machine, target, treatment, and what the line says.
fn refuse(name: &str, target: Option<&str>, section: &str, expected: &[&str]) {
    let machine = Machine::fixture(name, FILES);
    let before = machine.everything();
    let line = plan(&machine, target, section).expect_err(section).to_string();
    assert!(!line.contains('\n'), "{line}");
    for part in expected {
        assert!(line.contains(part), "{section}: `{line}` does not say `{part}`");
    }
    assert_eq!(machine.everything(), before);
}

#[test]
fn cpus_that_are_not_there_or_have_to_stay() {
    let smt = |cpus: &str| format!("kind = \"smt-off\"\ncpus = \"{cpus}\"");
    refuse("server-numa", None, "kind = \"idle\"\ncpus = \"15\"", &["cpus: CPU 15 is offline", "echo 1 >"]);
    refuse("desktop-smt", None, "kind = \"idle\"\ncpus = \"99\"", &["cpus: CPU 99 does not exist"]);
    refuse("desktop-smt", None, &smt("8"), &["cpu0/online", "CPU 0"]);
    refuse("desktop-smt", Some("1"), &smt("9"), &["CPU 1 is measured"]);
    refuse("desktop-smt", None, &smt("1,9"), &["is a sibling of another CPU"]);
    refuse("vm-1cpu", None, "kind = \"smt-off\"", &["there is no SMT here"]);
    let sysfs = "kind = \"sysfs\"\npath = \"/sys/devices/system/cpu/cpu{cpu}/online\"\nvalue = \"0\"";
    refuse("desktop-smt", None, &format!("{sysfs}\ncpus = \"0\""), &["cannot read", "cpu0/online"]);
    refuse("desktop-smt", Some("3"), &format!("{sysfs}\ncpus = \"3\""), &["CPU 3 is measured"]);
}

#[test]
fn the_last_cpu_and_the_last_housekeeping_cpu_stay_on() {
    let two = "\
== sys/devices/system/cpu/present := 0-1
== sys/devices/system/cpu/online := 0-1
== sys/devices/system/cpu/cpu{0-1}/online := 1
== sys/devices/system/cpu/cpu{0-1}/topology/core_cpus_list := 0-1
== sys/devices/system/cpu/isolated := 0
";
    let machine = Machine::new(two);
    let mut surroundings = machine.surroundings(None);
    surroundings.cpus.allowed = surroundings.cpus.online.clone();
    let off = |cpus: &str| whylate_treat::kinds::offline::check(&surroundings, &cpus.parse().unwrap());
    assert!(off("0").is_ok(), "CPU 1 is there for the rest");
    let housekeeping = off("1").unwrap_err().to_string();
    assert!(says("holds-last-housekeeping-cpu", &housekeeping), "{housekeeping}");
    let last = off("0-1").unwrap_err().to_string();
    assert!(says("no-cpu-would-be", &last), "{last}");
}

#[test]
fn a_cpuset_that_has_nothing_else_keeps_its_cpu() {
    let files = "\
== sys/devices/system/cpu/cpu{1-15}/online := 1
== proc/mounts := cpuset /dev/cpuset cgroup rw,cpuset,noprefix 0 0
== dev/cpuset/rt/cpuset.cpus := 9
";
    let machine = Machine::fixture("desktop-smt", files);
    let line = plan(&machine, None, "kind = \"smt-off\"\ncpus = \"1\"").unwrap_err().to_string();
    assert!(says("dev-cpuset-rt-cpuset", &line), "{line}");
}

#[test]
fn interrupts_processes_and_parameters_that_do_not_exist() {
    let irq = |name: &str| format!("kind = \"irq-affinity\"\ninterrupts = [\"{name}\"]\ncpus = \"0\"");
    refuse("desktop-smt", None, &irq("17"), &["no interrupt is called `17`", "/proc/interrupts"]);
    refuse("desktop-smt", None, &irq("i915"), &["no interrupt is called `i915`"]);
    refuse("desktop-smt", None, "kind = \"irq-affinity\"", &["`others` is empty on this machine"]);
    let affinity = |name: &str| format!("kind = \"affinity\"\nprocess = \"{name}\"\ncpus = \"0\"");
    refuse("desktop-smt", None, &affinity("Xorg"), &["no process is called `Xorg`"]);
    refuse("desktop-smt", None, &affinity("4000000"), &["there is no process 4000000"]);
    let parameter = |module: &str, name: &str| {
        format!("kind = \"module-parameter\"\nmodule = \"{module}\"\nparameter = \"{name}\"\nvalue = \"0\"")
    };
    refuse("desktop-smt", None, &parameter("nvidia", "x"), &["module `nvidia` is not loaded"]);
    refuse("desktop-smt", None, &parameter("i915", "psr"), &["are [enable_psr"]);
    refuse("desktop-smt", None, &parameter("../i915", "psr"), &["give a name without"]);
}

#[test]
fn drivers_and_kernels_that_offer_no_such_setting() {
    let sysfs = |path: &str| format!("kind = \"sysfs\"\npath = \"{path}\"\nvalue = \"1\"");
    refuse(
        "desktop-smt",
        None,
        "kind = \"governor\"\ngovernor = \"performance\"\ncpus = \"0\"",
        &["has no policy"],
    );
    refuse("desktop-smt", None, "kind = \"governor\"\nturbo = true", &["no driver offers turbo"]);
    refuse("vm-1cpu", None, "kind = \"idle\"\ncpus = \"0\"", &["has no idle states"]);
    refuse("desktop-smt", None, "kind = \"ksm\"", &["CONFIG_KSM"]);
    refuse("desktop-smt", None, "kind = \"watchdog\"", &["no lockup detectors"]);
    refuse(
        "desktop-smt",
        None,
        "kind = \"thp\"\nenabled = \"maybe\"",
        &["choose from always, madvise, never"],
    );
    refuse("desktop-smt", None, "kind = \"rt-throttling\"\nruntime = \"2s\"", &["above the period"]);
    refuse("desktop-smt", None, "kind = \"sysctl\"\nkey = \"vm.no\"\nvalue = \"1\"", &["/proc/sys/vm/no"]);
    refuse("desktop-smt", None, "kind = \"sysctl\"\nkey = \"vm..no\"\nvalue = \"1\"", &["is not a sysctl"]);
    refuse("desktop-smt", None, &sysfs("/etc/passwd"), &["not a file below /sys or /proc"]);
    refuse("desktop-smt", None, &sysfs("/sys/../etc/passwd"), &["not a file below /sys or /proc"]);
    refuse("desktop-smt", None, &sysfs("/sys/no/such"), &["cannot read /sys/no/such"]);
}

#[test]
fn a_read_only_setting_is_reported_before_anything_is_changed() {
    if rustix::process::geteuid().is_root() {
        // Permission bits do not stop root; a folder in place of the file does.
        let machine = Machine::fixture("desktop-smt", FILES);
        std::fs::remove_file(machine.path("/sys/kernel/mm/transparent_hugepage/enabled")).unwrap();
        std::fs::create_dir(machine.path("/sys/kernel/mm/transparent_hugepage/enabled")).unwrap();
        let line = plan(&machine, None, "kind = \"thp\"").unwrap_err().to_string();
        assert!(line.contains("transparent_hugepage/enabled"), "{line}");
        return;
    }
    let machine = Machine::fixture("desktop-smt", FILES);
    let path = machine.path("/sys/kernel/mm/transparent_hugepage/enabled");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let line = plan(&machine, None, "kind = \"thp\"").unwrap_err().to_string();
    assert!(line.contains("cannot write") && line.ends_with("run as root"), "{line}");
}

#[test]
fn tasks_are_not_touched_below_another_root() {
    let stat = "== proc/1/task/1/stat := 1 (init) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 5 1 1\n\
                == proc/1/task/1/status := Cpus_allowed_list:\t0-15\n";
    let machine = Machine::fixture("desktop-smt", stat);
    let planned = plan(&machine, None, "kind = \"affinity\"\nprocess = \"1\"\ncpus = \"0\"").unwrap();
    let error = machine.guard(false).unwrap().apply("t", &planned.changes).unwrap_err().to_string();
    assert!(says("below-another-root-than", &error), "{error}");
}

#[test]
fn a_value_that_does_not_stay_is_undone() {
    // /dev/null takes everything and keeps nothing, like a setting that another program sets back at once.
    let machine = Machine::new("== sys/a := 1\n== sys/fought -> /dev/null\n");
    let before = machine.text("/sys/a");
    let changes = [set("/sys/a", "2"), set("/sys/fought", "1")];
    let error = machine.guard(false).unwrap().apply("t", &changes).unwrap_err().to_string();
    assert!(says("sys-fought-set-reads", &error), "{error}");
    assert_eq!(machine.text("/sys/a"), before);
}
