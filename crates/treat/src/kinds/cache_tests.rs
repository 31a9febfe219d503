//! Partitions of invented caches.

use super::*;
use proptest::prelude::*;
use whylate_core::plan::TreatmentKind;
use whylate_core::{CpuSelector, Facts};
use whylate_lab::archive;
use whylate_testing::says;

const MACHINE: &str = "\
== sys/fs/resctrl/schemata
MB:0=100;1=100
L3:0=fff;1=fff
== sys/fs/resctrl/info/L3/cbm_mask := fff
== sys/fs/resctrl/info/L3/min_cbm_bits := 2
== sys/fs/resctrl/info/L3/shareable_bits := c00
== sys/fs/resctrl/info/L3/num_closids := 16
== sys/fs/resctrl/info/MB/min_bandwidth := 10
== sys/fs/resctrl/info/MB/bandwidth_gran := 10
== sys/devices/system/cpu/cpu{0-3}/cache/index3/level := 3
== sys/devices/system/cpu/cpu{0-1}/cache/index3/id := 0
== sys/devices/system/cpu/cpu{2-3}/cache/index3/id := 1
";

fn plan(text: &str, share_percent: u32, bandwidth: Option<u32>) -> Result<Planned, Impossible> {
    let (_folder, surroundings) = machine(text);
    partition(share_percent, bandwidth).plan(&surroundings)
}

fn partition(share_percent: u32, others_bandwidth_percent: Option<u32>) -> CachePartitionPlan {
    let cpus = CpuSelector::List("3".parse().unwrap());
    CachePartitionPlan { cpus, share_percent, others_bandwidth_percent }
}

fn machine(text: &str) -> (tempfile::TempDir, Surroundings) {
    let folder = tempfile::tempdir().unwrap();
    archive::unpack(text, folder.path()).unwrap();
    let mut facts = Facts::default();
    facts.cpu_sets.present = "0-3".parse().unwrap();
    facts.cpu_sets.online = facts.cpu_sets.present.clone();
    facts.cpu_sets.allowed = facts.cpu_sets.present.clone();
    let surroundings = Surroundings::new(HostRoot::at(folder.path()), &facts, None);
    (folder, surroundings)
}

fn written(planned: &Planned) -> Vec<String> {
    planned.changes.iter().map(|change| format!("{} = {}", change.target, change.new)).collect()
}

#[test]
fn the_targets_get_ways_of_their_domain_that_no_device_shares() {
    let planned = plan(MACHINE, 50, Some(25)).unwrap();
    let expected = [
        "/sys/fs/resctrl/whylate = present",
        "/sys/fs/resctrl/whylate/schemata = L3:1=3f",
        "/sys/fs/resctrl/schemata = L3:1=fc0",
        "/sys/fs/resctrl/schemata = MB:1=30",
        "/sys/fs/resctrl/whylate/cpus_list = 3",
    ];
    assert_eq!(written(&planned), expected);
    assert_eq!(planned.warnings, []);
    let low = MACHINE.replace(":= c00", ":= 3");
    assert_eq!(written(&plan(&low, 50, None).unwrap())[1], "/sys/fs/resctrl/whylate/schemata = L3:1=fc0");
    let most = plan(MACHINE, 99, None).unwrap();
    assert_eq!(written(&most)[2], "/sys/fs/resctrl/schemata = L3:1=c00", "two ways are the least");
}

#[test]
fn code_and_data_get_the_same_ways() {
    let both = MACHINE.replace("info/L3/", "info/L3CODE/");
    let planned = plan(&both, 25, None).unwrap();
    assert_eq!(planned.changes[1].new, "L3CODE:1=7\nL3DATA:1=7");
}

#[test]
fn other_groups_that_overlap_are_named() {
    let group = "== sys/fs/resctrl/db/schemata\nL3:0=fff;1=00f\n";
    let planned = plan(&format!("{MACHINE}{group}"), 50, None).unwrap();
    assert!(says("groups-still-use-cache", &planned.warnings[0].text), "{:?}", planned.warnings);
    let apart = "== sys/fs/resctrl/db/schemata\nL3:0=fff;1=f00\n";
    assert_eq!(plan(&format!("{MACHINE}{apart}"), 50, None).unwrap().warnings, []);
}

#[test]
fn a_cache_that_cannot_be_partitioned_says_why() {
    let reason = |text: &str| plan(text, 50, None).unwrap_err().reason;
    assert!(says("this-kernel-has-no", reason("== proc/cpuinfo := flags : fpu cat_l3\n")));
    assert!(reason("== proc/cpuinfo := flags : fpu\n").contains("cannot partition caches"));
    assert!(reason(&MACHINE.replace(":= 16", ":= 1")).contains("all are in use"));
    assert!(reason(&MACHINE.replace(":= fff", ":= 7")).contains("cannot be partitioned"));
    assert!(
        reason(&format!("{MACHINE}== sys/fs/resctrl/whylate/schemata := L3:0=f\n"))
            .contains("exists already")
    );
    let without_bandwidth = MACHINE.replace("info/MB/", "info/MBX/");
    assert!(
        plan(&without_bandwidth, 50, Some(20)).unwrap_err().reason.contains("cannot limit memory bandwidth")
    );
}

#[test]
fn resctrl_is_mounted_first_and_the_cache_partitioned_after_it() {
    let bare = "== proc/cpuinfo := flags : fpu cat_l3\n== proc/filesystems\nnodev\tproc\nnodev\tresctrl\n\
                == sys/fs/resctrl/.keep := x\n";
    let planned = plan(bare, 50, None).unwrap();
    assert_eq!(written(&planned), ["resctrl at /sys/fs/resctrl = present"]);
    assert!(planned.changes[0].required);
    let again = |text: &str| {
        let (_folder, surroundings) = machine(text);
        TreatmentKind::CachePartition(partition(50, None)).again(&surroundings).unwrap()
    };
    let overlapping = format!("{MACHINE}== sys/fs/resctrl/db/schemata\nL3:0=fff;1=00f\n");
    let parted = again(&overlapping);
    assert_eq!(written(&parted)[1], "/sys/fs/resctrl/whylate/schemata = L3:1=3f");
    assert_eq!(parted, plan(&overlapping, 50, None).unwrap());
    assert_eq!(parted.warnings.len(), 1, "what shows only after the mount is said, too");
    let done = again(&format!("{MACHINE}== sys/fs/resctrl/whylate/schemata := L3:1=3f\n"));
    assert_eq!(done, Planned::default());
}

proptest! {
    #[test]
    fn both_sides_are_contiguous_apart_and_large_enough(
        ways in 2u32..=32, least in 1u32..4, percent in 1u32..100, shared in any::<u64>(),
    ) {
        let mask = (1u64 << ways) - 1;
        let cache = Cache {
            resources: vec!["L3".to_owned()], level: 3, mask, ways_min: least, shared: shared & mask, groups_max: 4,
        };
        match split(&cache, percent) {
            Err(_) => prop_assert!(ways < 2 * least),
            Ok(Split { target, others }) => {
                prop_assert_eq!(target & others, 0);
                prop_assert_eq!(target | others, mask);
                for part in [target, others] {
                    prop_assert!(part.count_ones() >= least);
                    let run = part >> part.trailing_zeros();
                    prop_assert_eq!(run & (run + 1), 0, "not contiguous: {:x}", part);
                }
            }
        }
    }
}
