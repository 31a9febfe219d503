//! `cpu-quota` on invented machines and on this one.

use crate::machine::Machine;
use crate::planners::{lines, plan, there_and_back};

/// A process, its policy (0: ordinary, 1: real-time) and its groups.
fn process(pid: u32, name: &str, policy: u32, groups: &str) -> String {
    let stat = format!("0 0 0 0 0 0 0 0 20 0 1 0 5 1 1{} {policy}", " 0".repeat(16));
    format!(
        "== proc/{pid}/task/{pid}/stat := {pid} ({name}) S 1 1 1 0 -1 4194304 {stat}\n\
         == proc/{pid}/task/{pid}/status := Cpus_allowed_list:\t0-15\n\
         == proc/{pid}/cgroup\n{groups}\n== proc/{pid}/task/{pid}/cgroup\n{groups}\n"
    )
}

const V2: &str = "\
== sys/fs/cgroup/cgroup.controllers := cpuset cpu io
== sys/fs/cgroup/cgroup.subtree_control := io
== sys/fs/cgroup/cgroup.procs := 1
== sys/fs/cgroup/system.slice/cgroup.subtree_control := io
";
const SECTION: &str = "kind = \"cpu-quota\"\nprocess = \"loud\"\npercent = 25";

#[test]
fn a_service_gets_the_quota_of_its_group() {
    let more = V2.to_owned() + &process(812, "loud", 0, "0::/system.slice/loud.service/inner");
    let machine = Machine::fixture("desktop-smt", &more);
    let planned = plan(&machine, None, SECTION).unwrap();
    let expected = [
        "/sys/fs/cgroup/cgroup.subtree_control: +cpu",
        "/sys/fs/cgroup/system.slice/cgroup.subtree_control: +cpu",
        "/sys/fs/cgroup/system.slice/loud.service/cpu.max: 25000 100000",
    ];
    assert_eq!(lines(&planned), expected);
    // In the period that it has, and not above a quota that it has.
    let limited = |max: &str| {
        let file = format!("== sys/fs/cgroup/system.slice/loud.service/cpu.max := {max}\n");
        let machine = Machine::fixture("desktop-smt", &format!("{more}{file}"));
        plan(&machine, None, SECTION).map(|planned| lines(&planned)[2].clone()).map_err(|why| why.to_string())
    };
    let path = "/sys/fs/cgroup/system.slice/loud.service";
    assert_eq!(limited("max 20000"), Ok(format!("{path}/cpu.max: 5000 20000")));
    assert_eq!(limited("10000 20000"), Ok(format!("{path}/cpu.max: 5000 20000")));
    assert_eq!(
        limited("5000 20000"),
        Err(format!("{path} already has this quota or a lower one: 5000 20000"))
    );
}

#[test]
fn a_process_without_a_service_gets_a_group_of_its_own() {
    let more = V2.to_owned() + &process(812, "loud", 0, "0::/user.slice/session-2.scope");
    let planned = plan(&Machine::fixture("desktop-smt", &more), None, SECTION).unwrap();
    let expected = [
        "/sys/fs/cgroup/cgroup.subtree_control: +cpu",
        "/sys/fs/cgroup/whylate-quota: present",
        "/sys/fs/cgroup/whylate-quota/cpu.max: 25000 100000",
        "group of loud (812) in /sys/fs/cgroup: /whylate-quota",
    ];
    assert_eq!(lines(&planned), expected);
    let v1 = "== sys/fs/cgroup/cpu/cpu.cfs_quota_us := -1\n== sys/fs/cgroup/cpu/cgroup.procs := 1\n";
    let more = v1.to_owned() + &process(812, "loud", 0, "3:cpu:/\n0::/");
    let planned = plan(&Machine::fixture("desktop-smt", &more), None, SECTION).unwrap();
    let expected = [
        "/sys/fs/cgroup/cpu/whylate-quota: present",
        "/sys/fs/cgroup/cpu/whylate-quota/cpu.cfs_quota_us: 25000",
        "group of loud (812) in /sys/fs/cgroup/cpu: /whylate-quota",
    ];
    assert_eq!(lines(&planned), expected);
}

#[test]
fn a_service_of_the_older_groups_and_back() {
    let service = "== sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us := -1\n\
                   == sys/fs/cgroup/cpu,cpuacct/system.slice/loud.service/cpu.cfs_quota_us := -1\n\
                   == sys/fs/cgroup/cpu,cpuacct/system.slice/loud.service/cpu.cfs_period_us := 50000\n";
    let groups = "4:cpu,cpuacct:/system.slice/loud.service\n1:name=systemd:/system.slice/loud.service";
    let machine = Machine::fixture("desktop-smt", &(service.to_owned() + &process(812, "loud", 0, groups)));
    let planned = plan(&machine, None, SECTION).unwrap();
    let expected = "/sys/fs/cgroup/cpu,cpuacct/system.slice/loud.service/cpu.cfs_quota_us: 12500";
    assert_eq!(lines(&planned), [expected]);
    there_and_back(&machine, &planned);
}

#[test]
fn what_no_quota_limits_is_refused() {
    let real_time = process(812, "loud", 1, "0::/");
    let ordinary = process(812, "loud", 0, "0::/");
    let kernel = |release: &str| {
        let version = "== proc/sys/kernel/version := #1 SMP PREEMPT_RT Debian\n";
        format!("{V2}{ordinary}{version}== proc/sys/kernel/osrelease := {release}\n")
    };
    assert!(plan(&Machine::fixture("desktop-smt", &kernel("6.18.0-rt")), None, SECTION).is_ok());
    let limited = |file: &str, text: &str, group: &str| {
        format!("{V2}{}== sys/fs/cgroup/{file} := {text}\n", process(812, "loud", 0, group))
    };
    let init = format!("{V2}{}", process(1, "loud", 0, "0::/init.scope"));
    let made = format!("{V2}{ordinary}== sys/fs/cgroup/whylate-quota/cpu.max := max 100000\n");
    for (more, expected) in [
        (
            format!("{V2}{real_time}"),
            "`loud` has only real-time threads, and quotas do not limit real-time threads",
        ),
        (init, "`loud` is process 1 (init): with a quota on init"),
        (kernel("6.12.48+deb13-rt-amd64"), "on PREEMPT_RT before Linux 6.18"),
        (V2.to_owned(), "no process is called `loud`"),
        (
            format!("== sys/fs/cgroup/cgroup.controllers := io\n{ordinary}"),
            "no control group can limit CPU time",
        ),
        (made, "/sys/fs/cgroup/whylate-quota exists already"),
        (limited("docker/4f/cpu.max", "50000 100000", "0::/docker/4f"), "docker/4f/cpu.max is 50000 100000"),
        (limited("docker/cpu.weight", "10", "0::/docker/4f"), "docker/cpu.weight is 10); change the limit"),
    ] {
        let error = plan(&Machine::fixture("desktop-smt", &more), None, SECTION).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
