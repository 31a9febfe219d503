//! What planners make of invented machines: which values, in which order; and that guards apply and undo them.

use crate::machine::Machine;
use std::os::unix::fs::PermissionsExt as _;
use whylate_core::plan::{Plan, Source, TreatmentKind};
use whylate_testing::says;
use whylate_treat::{Impossible, Planned, Planner as _};

/// A treatment as plans have it.
pub(crate) fn treatment(section: &str) -> TreatmentKind {
    let text = format!("name = \"t\"\n[[probe]]\nkind = \"timer\"\n[[treatment]]\nname = \"x\"\n{section}\n");
    let plan = Plan::parse(&Source { name: "test", text: &text }, &[]).unwrap();
    plan.treatment[0].kind.clone()
}

pub(crate) fn plan(machine: &Machine, target: Option<&str>, section: &str) -> Result<Planned, Impossible> {
    treatment(section).plan(&machine.surroundings(target))
}

/// `path: new` of each change, shortened.
pub(crate) fn lines(planned: &Planned) -> Vec<String> {
    let line = |path: String, new: &str| {
        let short = path.replace("/sys/devices/system/cpu/", "").replace("/proc/irq/", "irq ");
        format!("{short}: {new}")
    };
    planned.changes.iter().map(|change| line(change.target.to_string(), &change.new)).collect()
}

/// Applies and undoes it, and looks that nothing is left.
pub(crate) fn there_and_back(machine: &Machine, planned: &Planned) {
    let before = machine.everything();
    let mut guard = machine.guard(false).unwrap();
    guard.apply("x", &planned.changes).unwrap();
    assert_ne!(machine.everything(), before);
    let report = guard.undo();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(machine.everything(), before);
}

const INTERRUPTS: &str = "\
== proc/irq/9/smp_affinity_list := 0-15
== sys/kernel/irq/9/actions := acpi
== proc/irq/40/smp_affinity_list := 3
== sys/kernel/irq/40/actions := nvme0q4
== sys/kernel/irq/40/chip_name := PCI-MSIX-0000:01:00.0
== proc/irq/41/smp_affinity_list := 0-15
== sys/kernel/irq/41/actions := amdgpu
== proc/irq/42/smp_affinity_list := 4-5
== sys/kernel/irq/42/actions := eth0-rx-0,eth0-tx-0
== proc/irq/default_smp_affinity := ffff
== sys/bus/pci/devices/0000:01:00.0/msi_irqs/40 := msix
== sys/bus/pci/devices/0000:01:00.0/driver -> ../../../../bus/pci/drivers/nvme
== sys/bus/pci/devices/0000:0b:00.0/msi_irqs/41 := msi
== sys/bus/pci/devices/0000:0b:00.0/driver -> ../../../../bus/pci/drivers/amdgpu
== sys/bus/pci/devices/0000:0b:00.0/class := 0x030000
== sys/bus/pci/devices/0000:0c:00.0/class := 0x020000
== sys/bus/pci/devices/0000:0c:00.0/irq := 42
== sys/bus/pci/devices/0000:0c:00.0/driver -> ../../../../bus/pci/drivers/r8169
";

#[test]
fn interrupts_are_named_in_many_ways() {
    let machine = Machine::fixture("desktop-smt", INTERRUPTS);
    let cases = [
        ("41", vec!["irq 41/smp_affinity_list: 0-13"]),
        ("amdgpu", vec!["irq 41/smp_affinity_list: 0-13"]),
        ("0000:0b:00.0", vec!["irq 41/smp_affinity_list: 0-13"]),
        ("0b:00.0", vec!["irq 41/smp_affinity_list: 0-13"]),
        ("graphics", vec!["irq 41/smp_affinity_list: 0-13"]),
        ("acpi", vec!["irq 9/smp_affinity_list: 0-13"]),
        // Those that stay within the CPUs are left where they are.
        ("eth0", vec![]),
        ("r8169", vec![]),
        ("nvme0", vec![]),
        ("msi", vec!["irq 41/smp_affinity_list: 0-13"]),
        ("all", vec!["irq 9/smp_affinity_list: 0-13", "irq 41/smp_affinity_list: 0-13"]),
    ];
    for (name, expected) in cases {
        let section = format!("kind = \"irq-affinity\"\ninterrupts = [\"{name}\"]\nnew_interrupts = false");
        let planned = plan(&machine, Some("14-15"), &section).unwrap();
        assert_eq!(lines(&planned), expected, "{name}");
    }
    let planned = plan(&machine, Some("3-5"), "kind = \"irq-affinity\"").unwrap();
    assert_eq!(
        lines(&planned)[1..],
        [
            "irq 40/smp_affinity_list: 0-2,6-15",
            "irq 41/smp_affinity_list: 0-2,6-15",
            "irq 42/smp_affinity_list: 0-2,6-15",
            "irq default_smp_affinity: 0-2,6-15"
        ]
    );
    there_and_back(
        &machine,
        &plan(&machine, Some("15"), "kind = \"irq-affinity\"\nnew_interrupts = false").unwrap(),
    );
}

#[test]
fn a_managed_interrupt_is_named_and_the_others_move() {
    let machine = Machine::fixture("desktop-smt", INTERRUPTS);
    let path = machine.path("/proc/irq/40/smp_affinity_list");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let planned = plan(&machine, Some("3"), "kind = \"irq-affinity\"\nnew_interrupts = false").unwrap();
    assert_eq!(planned.warnings.len(), 1);
    assert!(planned.warnings[0].text.contains("40 (nvme0q4)"), "{:?}", planned.warnings);
    assert_eq!(planned.changes.len(), 2);
    let section = "kind = \"irq-affinity\"\ninterrupts = [\"nvme\"]";
    let error = plan(&machine, Some("3"), section).unwrap_err().to_string();
    assert!(says("kernel-manages-interrupt-nvme0q4", &error));
}

#[test]
fn irqbalance_is_stopped_before_interrupts_are_moved() {
    let balance = "== proc/812/task/812/stat := 812 (irqbalance) S 1 812 812 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1\n\
                   == proc/812/task/812/status := Cpus_allowed_list:\t0-15\n";
    let machine = Machine::fixture("desktop-smt", &format!("{INTERRUPTS}{balance}"));
    let planned = plan(&machine, Some("15"), "kind = \"irq-affinity\"").unwrap();
    assert!(says("state-irqbalance-stopped", &lines(&planned)[0]));
}

#[test]
fn a_process_is_moved_with_its_threads() {
    let stat = |tid: u32, name: &str, flags: u32| {
        format!(
            "== proc/900/task/{tid}/stat := {tid} ({name}) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 5 1 1\n\
             == proc/900/task/{tid}/status := Cpus_allowed_list:\t0-15\n"
        )
    };
    let files =
        [stat(900, "Xorg", 4_194_560), stat(901, "Xorg:disk", 4_194_560), stat(902, "bound", 0x0400_0000)];
    let command = "== proc/900/cmdline := /usr/lib/xorg/Xorg.wrapped\\0:0\\0\n";
    let machine = Machine::fixture("desktop-smt", &format!("{}{command}", files.concat()));
    for name in ["Xorg", "Xorg.wrapped", "900"] {
        let section = format!("kind = \"affinity\"\nprocess = \"{name}\"\ncpus = \"2,10\"");
        let planned = plan(&machine, None, &section).unwrap();
        assert_eq!(lines(&planned), ["affinity of Xorg (900): 2,10", "affinity of Xorg:disk (901): 2,10"]);
        assert!(planned.warnings[0].text.contains("bound (902)"));
    }
}

const FREQUENCY: &str = "\
== sys/devices/system/cpu/cpufreq/policy{0-15}/scaling_governor := powersave
== sys/devices/system/cpu/cpufreq/policy{0-15}/scaling_available_governors := performance powersave
== sys/devices/system/cpu/cpufreq/policy{0-15}/energy_performance_preference := balance_performance
== sys/devices/system/cpu/cpufreq/policy{0-15}/scaling_min_freq := 400000
== sys/devices/system/cpu/cpufreq/policy{0-15}/scaling_max_freq := 3000000
== sys/devices/system/cpu/cpufreq/policy{0-15}/cpuinfo_min_freq := 400000
== sys/devices/system/cpu/cpufreq/policy{0-15}/cpuinfo_max_freq := 5392000
== sys/devices/system/cpu/cpufreq/boost := 1
== sys/devices/system/cpu/cpufreq/policy1/affected_cpus := 1 9
== sys/devices/system/cpu/cpufreq/policy2/affected_cpus := 2
";

#[test]
fn governors_and_limits_come_in_an_order_that_the_kernel_takes() {
    let machine = Machine::fixture("desktop-smt", FREQUENCY);
    let section =
        "kind = \"governor\"\ngovernor = \"performance\"\nmin = \"4GHz\"\nmax = \"5GHz\"\nturbo = false";
    let planned = plan(&machine, Some("1"), section).unwrap();
    let expected = [
        "cpufreq/policy1/scaling_governor: performance",
        // Above the present upper limit, so that goes first.
        "cpufreq/policy1/scaling_max_freq: 5000000",
        "cpufreq/policy1/scaling_min_freq: 4000000",
        "cpufreq/boost: 0",
    ];
    assert_eq!(lines(&planned), expected);
    assert!(says("cpu-shares-its-frequency", &planned.warnings[0].text));
    there_and_back(&machine, &planned);
    let section = "kind = \"governor\"\nmin = \"1GHz\"\nmax = \"2GHz\"\nenergy_preference = \"performance\"";
    let planned = plan(&machine, Some("2"), section).unwrap();
    let expected = [
        "cpufreq/policy2/energy_performance_preference: performance",
        "cpufreq/policy2/scaling_min_freq: 1000000",
        "cpufreq/policy2/scaling_max_freq: 2000000",
    ];
    assert_eq!(lines(&planned), expected);
}

const HOTPLUG: &str = "\
== sys/devices/system/cpu/cpu{1-15}/online := 1
== sys/devices/system/cpu/smt/control := on
== proc/mounts := cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
== sys/fs/cgroup/cpuset/cpuset.cpus := 0-15
== sys/fs/cgroup/cpuset/apps/cpuset.cpus := 0-3,8-11
== sys/fs/cgroup/cpuset/apps/inner/cpuset.cpus := 9-11
== sys/fs/cgroup/cpuset/other/cpuset.cpus := 4-5
== proc/irq/50/smp_affinity_list := 9
== proc/irq/51/smp_affinity_list := 0-15
== proc/77/task/77/stat := 77 (pinned) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 5 1 1
== proc/77/task/77/status := Cpus_allowed_list:	9
== proc/77/task/77/cgroup := 4:cpuset:/
== proc/78/task/78/stat := 78 (own) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 5 1 1
== proc/78/task/78/status := Cpus_allowed_list:	0,9
== proc/78/task/78/cgroup := 4:cpuset:/apps
";

#[test]
fn a_core_to_itself_and_what_the_kernel_would_forget() {
    let machine = Machine::fixture("desktop-smt", HOTPLUG);
    let planned = plan(&machine, Some("1"), "kind = \"smt-off\"\ncpus = \"target\"").unwrap();
    let expected = [
        "affinity of pinned (77): 0-8,10-15",
        "affinity of own (78): 0",
        // The inner group first: its parent must not have fewer CPUs.
        "/sys/fs/cgroup/cpuset/apps/inner/cpuset.cpus: 10-11",
        "/sys/fs/cgroup/cpuset/apps/cpuset.cpus: 0-3,8,10-11",
        "irq 50/smp_affinity_list: 0-8,10-15",
        "cpu9/online: 0",
    ];
    assert_eq!(lines(&planned), expected);
    assert_eq!(whylate_treat::kinds::offline::switched_off(&planned.changes).to_string(), "9");
    let by_hand = "kind = \"sysfs\"\npath = \"/sys/devices/system/cpu/cpu9/online\"\nvalue = \"0\"";
    assert_eq!(lines(&plan(&machine, Some("1"), by_hand).unwrap()), expected, "by any way");
}

#[test]
fn smt_off_keeps_one_cpu_of_every_core_and_the_target_first() {
    let machine = Machine::fixture("desktop-smt", "== sys/devices/system/cpu/cpu{1-15}/online := 1\n");
    let planned = plan(&machine, None, "kind = \"smt-off\"").unwrap();
    let off = whylate_treat::kinds::offline::switched_off(&planned.changes);
    assert_eq!(off.to_string(), "8-15");
    there_and_back(&machine, &planned);
    let planned = plan(&machine, Some("9"), "kind = \"smt-off\"").unwrap();
    let off = whylate_treat::kinds::offline::switched_off(&planned.changes);
    assert_eq!(off.to_string(), "1,8,10-15");
}

#[test]
fn hybrid_processors_lose_only_second_threads() {
    let machine = Machine::fixture("laptop-hybrid", "== sys/devices/system/cpu/cpu{1-15}/online := 1\n");
    let planned = plan(&machine, None, "kind = \"smt-off\"").unwrap();
    let off = whylate_treat::kinds::offline::switched_off(&planned.changes);
    assert_eq!(off.to_string(), "1,3,5,7");
}

#[test]
fn idle_states_are_disabled_by_their_latency() {
    let more = "== sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us := 0\n";
    let machine = Machine::fixture("desktop-smt", more);
    let planned = plan(&machine, Some("3"), "kind = \"idle\"\nexit_latency_max = \"2us\"").unwrap();
    let expected = [
        "cpu3/cpuidle/state2/disable: 1",
        "cpu3/cpuidle/state3/disable: 1",
        "cpu3/power/pm_qos_resume_latency_us: 2",
    ];
    assert_eq!(lines(&planned), expected);
    there_and_back(&machine, &planned);
    assert_eq!(plan(&machine, Some("2"), "kind = \"idle\"").unwrap().changes.len(), 3);
    machine.set("/sys/devices/system/cpu/cpu3/power/pm_qos_resume_latency_us", "1\n");
    let planned = plan(&machine, Some("3"), "kind = \"idle\"\nexit_latency_max = \"1ms\"").unwrap();
    assert!(
        planned.changes.is_empty() && planned.warnings.len() == 1,
        "a stricter request stays: {planned:?}"
    );
}

#[test]
fn switches_of_the_whole_machine() {
    let more = "\
== sys/kernel/mm/transparent_hugepage/defrag := always defer defer+madvise [madvise] never
== sys/kernel/mm/ksm/run := 1
== proc/sys/kernel/soft_watchdog := 1
== proc/sys/kernel/nmi_watchdog := 1
== proc/sys/net/ipv4/tcp_rmem
4096\t131072\t6291456
== sys/module/snd_hda_intel/parameters/power_save_controller := Y
";
    let machine = Machine::fixture("desktop-smt", more);
    let cases = [
        (
            "kind = \"thp\"\ndefrag = \"never\"",
            vec![
                "/sys/kernel/mm/transparent_hugepage/enabled: never",
                "/sys/kernel/mm/transparent_hugepage/defrag: never",
            ],
        ),
        ("kind = \"ksm\"", vec!["/sys/kernel/mm/ksm/run: 0"]),
        ("kind = \"numa-balancing\"\nenabled = true", vec!["/proc/sys/kernel/numa_balancing: 1"]),
        (
            "kind = \"watchdog\"",
            vec!["/proc/sys/kernel/soft_watchdog: 0", "/proc/sys/kernel/nmi_watchdog: 0"],
        ),
        ("kind = \"rt-throttling\"", vec!["/proc/sys/kernel/sched_rt_runtime_us: -1"]),
        (
            "kind = \"rt-throttling\"\nruntime = \"900ms\"",
            vec!["/proc/sys/kernel/sched_rt_runtime_us: 900000"],
        ),
        (
            "kind = \"sysctl\"\nkey = \"net.ipv4.tcp_rmem\"\nvalue = \"1  2 3\"",
            vec!["/proc/sys/net/ipv4/tcp_rmem: 1 2 3"],
        ),
        (
            "kind = \"module-parameter\"\nmodule = \"snd-hda-intel\"\nparameter = \"power_save_controller\"\nvalue = \"N\"",
            vec!["/sys/module/snd_hda_intel/parameters/power_save_controller: 0"],
        ),
        (
            "kind = \"sysfs\"\npath = \"/sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/disable\"\nvalue = \"1\"\ncpus = \"0-1\"",
            vec!["cpu0/cpuidle/state1/disable: 1", "cpu1/cpuidle/state1/disable: 1"],
        ),
    ];
    for (section, expected) in cases {
        let planned = plan(&machine, None, section).unwrap();
        assert_eq!(lines(&planned), expected, "{section}");
    }
}

#[test]
fn a_boot_is_looked_at_and_not_changed() {
    let more = "\
== proc/cmdline := BOOT_IMAGE=/vmlinuz ro isolcpus=3 -- nohz_full=3
== proc/sys/kernel/osrelease := 6.1.0-28-rt-amd64
";
    let machine = Machine::new(more);
    let planned = plan(&machine, None, "kind = \"boot\"\nappend = \"isolcpus=3 ro\"").unwrap();
    assert!(planned.changes.is_empty());
    for (section, expected) in [
        ("kind = \"boot\"\nappend = \"nohz_full=3 isolcpus=3\"", "without `nohz_full=3` (/proc/cmdline)"),
        ("kind = \"boot\"\nkernel = \"6.12.9\"", "the running kernel is 6.1.0-28-rt-amd64, not 6.12.9"),
    ] {
        let error = plan(&machine, None, section).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("fix --campaign"), "{error}");
    }
}

#[test]
fn work_of_the_network_of_groups_and_of_pci_moves_or_stays_awake() {
    let more = "\
== sys/devices/virtual/workqueue/cpumask := ffff
== sys/kernel/debug/sched/fair_server/cpu3/runtime := 50000000
== sys/fs/cgroup/cgroup.controllers := cpuset cpu io
== sys/fs/cgroup/cgroup.subtree_control := cpu io
== sys/fs/cgroup/user.slice/cgroup.subtree_control := cpu
== sys/fs/cgroup/user.slice/user-1000.slice/cgroup.procs := 812
== sys/fs/cgroup/user.slice/user-1000.slice/cpuset.cpus := 0-15
== sys/class/net/eth0/queues/rx-0/rps_cpus := 0000
== sys/class/net/eth0/queues/tx-0/xps_cpus := 0000
== sys/class/net/eth0/threaded := 0
== sys/class/net/lo/queues/rx-0/rps_cpus := 0000
== sys/bus/pci/devices/0000:01:00.0/driver -> ../../../../bus/pci/drivers/nvme
== sys/bus/pci/devices/0000:01:00.0/power/control := auto
== sys/bus/pci/devices/0000:02:00.0/driver -> ../../../../bus/pci/drivers/nvme
== sys/bus/pci/devices/0000:02:00.0/power/control := auto
== sys/bus/pci/devices/0000:03:00.0/power/control := auto
== sys/module/pcie_aspm/parameters/policy := [default] performance powersave powersupersave
";
    let machine = Machine::fixture("desktop-smt", more);
    let awake = |address: &str| format!("/sys/bus/pci/devices/{address}/power/control: on");
    let links = "/sys/module/pcie_aspm/parameters/policy: performance".to_owned();
    let queues = |file: &str, cpus: &str| format!("/sys/class/net/eth0/{file}: {cpus}");
    let cases = [
        ("kind = \"workqueue\"", vec!["/sys/devices/virtual/workqueue/cpumask: 0-2,4-15".to_owned()]),
        ("kind = \"fair-server\"", vec!["/sys/kernel/debug/sched/fair_server/cpu3/runtime: 0".to_owned()]),
        (
            "kind = \"cgroup\"\ngroup = \"user.slice/user-1000.slice\"\ncpus = \"0-1\"",
            vec![
                "/sys/fs/cgroup/cgroup.subtree_control: +cpuset".to_owned(),
                "/sys/fs/cgroup/user.slice/cgroup.subtree_control: +cpuset".to_owned(),
                "/sys/fs/cgroup/user.slice/user-1000.slice/cpuset.cpus: 0-1".to_owned(),
            ],
        ),
        (
            "kind = \"network\"\ncpus = \"0\"\nthreaded = true",
            vec![
                queues("queues/rx-0/rps_cpus", "0"),
                queues("queues/tx-0/xps_cpus", "0"),
                queues("threaded", "1"),
            ],
        ),
        (
            "kind = \"pci-power\"",
            vec![awake("0000:01:00.0"), awake("0000:02:00.0"), awake("0000:03:00.0"), links],
        ),
        (
            "kind = \"pci-power\"\ndevices = [\"nvme\"]\nlinks = false",
            vec![awake("0000:01:00.0"), awake("0000:02:00.0")],
        ),
    ];
    for (section, expected) in cases {
        let planned = plan(&machine, Some("3"), section).unwrap();
        assert_eq!(lines(&planned), expected, "{section}");
        // Files that take something else than they print are not what they were where no kernel reads them.
        if !section.contains("cgroup") && !section.ends_with("pci-power\"") {
            there_and_back(&machine, &planned);
        }
    }
    for (section, expected) in [
        ("kind = \"network\"\ninterfaces = [\"eth7\"]", "there is no interface `eth7`"),
        ("kind = \"pci-power\"\ndevices = [\"e1000e\"]", "no PCI device has the address or driver `e1000e`"),
        ("kind = \"cgroup\"\ngroup = \"plc.slice\"", "there is no group /sys/fs/cgroup/plc.slice"),
        ("kind = \"fair-server\"\ncpus = \"0\"", "this kernel has no fair server"),
        ("kind = \"priority\"\nthread = \"absent\"\npolicy = \"idle\"", "no thread is called `absent`"),
    ] {
        let error = plan(&machine, Some("3"), section).unwrap_err().to_string();
        assert!(error.contains(expected), "{section}: {error}");
    }
}
