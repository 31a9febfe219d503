//! Facts and findings of the invented machines in `fixtures/hosts`, and of the machine that runs the tests.

use std::path::Path;
use whylate_core::Facts;
use whylate_core::cpus::CpuSet;
use whylate_core::facts::{ClockFacts, CpuFacts, EnvironmentFacts, GpuFacts, PrivilegeFacts};
use whylate_core::units::{CpuId, Nanos};
use whylate_core::warning::Warning;
use whylate_host::HostRoot;
use whylate_host::cpu_stat::StealTimes;
use whylate_host::facts::{FindingCode as Finding, collect, preflight};
use whylate_host::interrupts::Counts;
use whylate_host::smi::SmiCounter;
use whylate_lab::archive;
use whylate_testing::says;

/// One unpacked machine.
struct Host {
    folder: tempfile::TempDir,
    root: HostRoot,
    facts: Facts,
    warnings: Vec<Warning>,
}

fn archive_text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/hosts/{name}.tree"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn unpacked(text: &str) -> Host {
    let folder = tempfile::tempdir().unwrap();
    archive::unpack(text, folder.path()).unwrap();
    let root = HostRoot::at(folder.path());
    let (facts, warnings) = collect(&root);
    Host { folder, root, facts, warnings }
}

fn host(name: &str) -> Host {
    unpacked(&archive_text(name))
}

fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn cpu(facts: &Facts, number: u32) -> &CpuFacts {
    facts.cpu(CpuId(number)).unwrap()
}

/// Level and size of each cache in KiB.
fn caches(facts: &Facts, number: u32) -> Vec<(u32, u64)> {
    cpu(facts, number).caches.iter().map(|cache| (cache.level, cache.size_bytes >> 10)).collect()
}

fn assert_findings(facts: &Facts, targets: &str, expected: &[Finding]) {
    let found = preflight(facts, &set(targets));
    let codes: Vec<&str> = found.iter().map(|warning| warning.code.as_str()).collect();
    let expected: Vec<&str> = expected.iter().map(|finding| finding.code()).collect();
    assert_eq!(codes, expected);
    for warning in found {
        assert!(!warning.text.is_empty() && !warning.text.contains('\n'), "{warning:?}");
    }
}

fn finding(facts: &Facts, targets: &str, wanted: Finding) -> (String, String) {
    let found = preflight(facts, &set(targets));
    let warning = found.into_iter().find(|warning| warning.code == wanted.code()).unwrap();
    (warning.text, warning.fix.unwrap_or_default())
}

#[test]
fn vm_with_one_cpu() {
    let Host { facts, warnings, root, folder: _folder } = host("vm-1cpu");
    assert_eq!(warnings, []);
    assert_eq!(facts.host, "tiny");
    assert_eq!(facts.kernel.release, "6.1.0-37-cloud-amd64");
    assert_eq!(facts.kernel.preemption, "PREEMPT_DYNAMIC (voluntary)");
    assert!(!facts.kernel.realtime);
    assert_eq!(facts.processor.model, "Intel Xeon Processor (Skylake, IBRS)");
    assert_eq!(facts.processor.features, ["avx2", "avx512f"]);
    assert_eq!(facts.cpus.len(), 1);
    assert_eq!((caches(&facts, 0), cpu(&facts, 0).governor.clone()), (vec![], None));
    let environment =
        EnvironmentFacts { hypervisor: Some("kvm".to_owned()), container: None, cgroup_version: Some(2) };
    assert_eq!(facts.environment, environment);
    let available = ["kvm-clock", "hpet", "acpi_pm"].map(str::to_owned).to_vec();
    let clock = ClockFacts { source: Some("kvm-clock".to_owned()), available, counter_invariant: false };
    assert_eq!(facts.clock, clock);
    assert_eq!(facts.settings.transparent_huge_pages.as_deref(), Some("always"));
    assert_eq!(facts.settings.idle_driver, None);
    let privileges = PrivilegeFacts {
        root: true,
        realtime_priority_max: 99,
        lockable_bytes: None,
        cpu_dma_latency: true,
        tracefs: true,
        cgroup_rt_runtime_us: None,
    };
    assert_eq!(facts.privileges, privileges);
    assert_eq!(StealTimes::read(&root).unwrap().of(CpuId(0)), Some(Nanos::from_millis(2310)));
    let counts = Counts::read(&root).unwrap();
    assert_eq!((counts.of("LOC", CpuId(0)), counts.of("ERR", CpuId(0))), (Some(4_051_122), None));
    assert!(SmiCounter::open(&root, CpuId(0)).unwrap_err().reason.contains("modprobe msr"));
    let expected = [
        Finding::VirtualMachine,
        Finding::RtThrottling,
        Finding::KernelNotRealtime,
        Finding::NotIsolated,
        Finding::CpuZeroTarget,
        Finding::SlowClock,
        Finding::CounterNotInvariant,
        Finding::NoCacheSizes,
        Finding::HugePagesAlways,
        Finding::WatchdogOn,
        Finding::Mitigations,
    ];
    assert_findings(&facts, "0", &expected);
    let (text, fix) = finding(&facts, "0", Finding::NotIsolated);
    assert!(says("only-cpu", &text) && fix.is_empty(), "{text}");
}

#[test]
fn desktop_with_smt() {
    let Host { facts, warnings, root, folder: _folder } = host("desktop-smt");
    assert_eq!(warnings, []);
    assert_eq!(facts.kernel.preemption, "PREEMPT_DYNAMIC (full)", "from the command line");
    assert_eq!(facts.cpu_sets.present, set("0-15"));
    assert!(facts.cpu_sets.nohz_full.is_empty(), "`(null)` is no CPU");
    assert_eq!(cpu(&facts, 11).siblings, set("3,11"));
    assert_eq!((cpu(&facts, 11).package, cpu(&facts, 11).core), (Some(0), Some(3)));
    assert_eq!(caches(&facts, 3), [(1, 32), (2, 1024), (3, 32_768)]);
    assert_eq!(cpu(&facts, 3).caches[2].shared_by, set("0-15"));
    assert_eq!(cpu(&facts, 3).frequency_max_hz, Some(5_392_000_000));
    assert_eq!(cpu(&facts, 3).idle_states[3].exit_latency_ns, Some(350_000));
    assert_eq!(cpu(&facts, 3).kind, None);
    assert_eq!(facts.clock.source.as_deref(), Some("tsc"));
    assert!(facts.clock.counter_invariant);
    assert_eq!(facts.settings.smt_active, Some(true));
    assert_eq!(facts.memory.swap_bytes, Some(8_388_604 << 10));
    let gpu = GpuFacts {
        name: "card1".to_owned(),
        driver: Some("amdgpu".to_owned()),
        pci_id: Some("1002:164e".to_owned()),
        runtime_power: Some("auto".to_owned()),
        address: Some("0000:10:00.0".to_owned()),
        ..GpuFacts::default()
    };
    assert_eq!(facts.gpus, [gpu]);
    assert_eq!(
        (facts.environment.hypervisor.as_deref(), facts.environment.container.as_deref()),
        (None, None)
    );
    let privileges = PrivilegeFacts { lockable_bytes: Some(8 << 20), ..PrivilegeFacts::default() };
    assert_eq!(facts.privileges, privileges);
    assert!(SmiCounter::open(&root, CpuId(0)).unwrap_err().reason.contains("AMD"));
    let expected = [
        Finding::NoRealtimePriority,
        Finding::NoMemoryLock,
        Finding::RtThrottling,
        Finding::KernelNotRealtime,
        Finding::NotIsolated,
        Finding::SmtSiblingOnline,
        Finding::GovernorNotPerformance,
        Finding::DeepIdleStates,
        Finding::NoCpuDmaLatency,
        Finding::NoTracefs,
        Finding::SwapOn,
        Finding::WatchdogOn,
        Finding::Mitigations,
        Finding::KernelTainted,
        Finding::GpuRuntimePower,
    ];
    assert_findings(&facts, "3", &expected);
    let (text, fix) = finding(&facts, "3", Finding::SmtSiblingOnline);
    assert!(says("cpu-shares-core-with", &text), "{text}");
    assert!(fix.contains("for CPU 11"), "{fix}");
    let (text, fix) = finding(&facts, "3,11", Finding::SmtSiblingOnline);
    assert!(text.starts_with("CPUs 3,11 share"), "{text}");
    assert!(says("measure-one-cpu-each", &fix), "{fix}");
    let (text, fix) = finding(&facts, "3", Finding::DeepIdleStates);
    assert!(text.contains("up to 350us"), "{text}");
    assert!(says("sudo-cpupower-c-idle", &fix));
    assert!(finding(&facts, "3", Finding::NoRealtimePriority).1.contains("/etc/security/limits.d/"));
    assert!(says("leave-at-least-one", &finding(&facts, "0-15", Finding::NotIsolated).1));
}

#[test]
fn hybrid_laptop() {
    let Host { facts, warnings, .. } = host("laptop-hybrid");
    let codes: Vec<&str> = warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, ["kernel-lockdown"]);
    assert_eq!(facts.kernel.preemption, "PREEMPT_RT");
    assert!(facts.kernel.realtime);
    let kinds: Vec<_> =
        [0, 7, 8, 15].iter().map(|&number| cpu(&facts, number).kind.as_deref().unwrap()).collect();
    assert_eq!(kinds, ["performance", "performance", "efficiency", "efficiency"]);
    assert_eq!(cpu(&facts, 5).siblings, set("4-5"));
    assert_eq!(caches(&facts, 4), [(1, 48), (2, 1280), (3, 18_432)]);
    assert_eq!(caches(&facts, 9), [(1, 32), (2, 2048), (3, 18_432)]);
    assert_eq!(cpu(&facts, 9).caches[1].shared_by, set("8-11"));
    let states: Vec<&str> = cpu(&facts, 0).idle_states.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(states, ["POLL", "C1E", "C6", "C8"], "C10 is disabled");
    assert_eq!(facts.privileges.realtime_priority_max, 80);
    assert_eq!(facts.privileges.lockable_bytes, None);
    assert_eq!(facts.settings.rt_runtime_us, Some(-1));
    let expected = [
        Finding::RealtimePriorityLimited,
        Finding::NotIsolated,
        Finding::SmtSiblingOnline,
        Finding::MixedCoreKinds,
        Finding::NoTracefs,
        Finding::DebugOptions,
        Finding::Mitigations,
        Finding::KernelTainted,
        Finding::GpuRuntimePower,
    ];
    assert_findings(&facts, "7-8", &expected);
    assert!(finding(&facts, "7-8", Finding::DebugOptions).0.contains("(slub_debug=FZ)"));
    assert!(
        finding(&facts, "7-8", Finding::KernelTainted).0.contains("proprietary module, warning, out-of-tree")
    );
}

#[test]
fn server_with_two_nodes() {
    let Host { facts, warnings, root, folder: _folder } = host("server-numa");
    assert_eq!(warnings, []);
    assert_eq!(facts.cpu_sets.online, set("0-14"));
    assert_eq!(facts.cpu_sets.isolated, set("6-7,12-13"), "boot line and cpuset partition");
    assert_eq!(facts.cpu_sets.nohz_full, set("6-7"));
    assert_eq!(facts.memory.nodes, Some(2));
    let nodes: Vec<_> = [0, 7, 8, 15].iter().map(|&number| cpu(&facts, number).node).collect();
    assert_eq!(nodes, [Some(0), Some(0), Some(1), Some(1)]);
    assert_eq!(cpu(&facts, 9).package, Some(1));
    let offline = cpu(&facts, 15);
    assert_eq!((offline.online, offline.caches.len(), offline.siblings.is_empty()), (false, 0, true));
    assert_eq!(cpu(&facts, 6).cache_bytes(3), Some(16 << 20));
    assert_eq!(cpu(&facts, 6).caches[2].shared_by, set("4-7"));
    assert_eq!(facts.environment.cgroup_version, Some(1));
    assert_eq!(facts.privileges.cgroup_rt_runtime_us, Some(0));
    assert!(facts.privileges.tracefs, "at the old place below debugfs");
    let counts = Counts::read(&root).unwrap();
    assert_eq!(counts.of("61", CpuId(3)), Some(4_294_967_200));
    assert_eq!(counts.of("softirq:TIMER", CpuId(14)), Some(7014));
    assert_eq!(counts.of("LOC", CpuId(15)), None);
    let expected = [
        Finding::RtGroupBudget,
        Finding::RtThrottling,
        Finding::TickOnTarget,
        Finding::SlowClock,
        Finding::NumaBalancing,
        Finding::WatchdogOn,
    ];
    assert_findings(&facts, "6,12", &expected);
    assert!(finding(&facts, "6,12", Finding::RtGroupBudget).1.contains("tee /sys/fs/cgroup/cpu/tasks"));
    assert!(says("cpu-isolated-but-keeps", &finding(&facts, "6,12", Finding::TickOnTarget).0));
}

#[test]
fn arm64_board() {
    let Host { facts, warnings, root, folder: _folder } = host("board-arm64");
    assert_eq!(warnings, []);
    assert_eq!(facts.kernel.architecture, "aarch64");
    assert_eq!(facts.kernel.preemption, "PREEMPT");
    assert_eq!(facts.processor.model, "Arm Cortex-A55 + Arm Cortex-A76 (Example ROCK 5)");
    assert_eq!(facts.processor.features, ["neon"]);
    assert_eq!(facts.processor.microcode, None);
    let kinds: Vec<_> =
        [0, 4, 7].iter().map(|&number| cpu(&facts, number).kind.as_deref().unwrap()).collect();
    assert_eq!(kinds, ["efficiency", "performance", "performance"], "985 of 1024 is the same kind of core");
    assert_eq!(cpu(&facts, 6).capacity, Some(985));
    assert_eq!(caches(&facts, 0), [(1, 32), (2, 128)]);
    assert_eq!(cpu(&facts, 4).cache_bytes(3), None);
    assert_eq!((facts.memory.nodes, cpu(&facts, 4).node), (None, None));
    assert!(facts.clock.counter_invariant);
    assert_eq!(facts.environment.hypervisor, None);
    assert_eq!(facts.gpus.len(), 2);
    assert_eq!(
        (facts.gpus[0].driver.as_deref(), facts.gpus[0].pci_id.as_deref()),
        (Some("rockchip-drm"), None)
    );
    assert_eq!(Counts::read(&root).unwrap().of("IPI1", CpuId(7)), Some(97));
    assert!(SmiCounter::open(&root, CpuId(0)).unwrap_err().reason.contains("only x86"));
    let expected = [
        Finding::RtThrottling,
        Finding::KernelNotRealtime,
        Finding::TickOnTarget,
        Finding::GovernorNotPerformance,
        Finding::WatchdogOn,
        Finding::Mitigations,
        Finding::GpuRuntimePower,
    ];
    assert_findings(&facts, "7", &expected);
}

#[test]
fn rootless_container() {
    let Host { facts, warnings, .. } = host("container-cgroup2");
    assert_eq!(warnings, []);
    assert_eq!(facts.cpu_sets.allowed, set("2-3"));
    assert_eq!(facts.cpu_context().usable(), set("2-3"));
    assert_eq!(facts.environment.container.as_deref(), Some("podman"));
    assert_eq!(facts.environment.cgroup_version, Some(2));
    let privileges = PrivilegeFacts {
        root: true,
        lockable_bytes: Some(65_536),
        cgroup_rt_runtime_us: Some(0),
        ..PrivilegeFacts::default()
    };
    assert_eq!(facts.privileges, privileges, "capabilities in a user namespace of its own count for nothing");
    let expected = [
        Finding::NoRealtimePriority,
        Finding::RtGroupBudget,
        Finding::NoMemoryLock,
        Finding::Container,
        Finding::RtThrottling,
        Finding::KernelNotRealtime,
        Finding::NotIsolated,
        Finding::SmtSiblingOnline,
        Finding::GovernorNotPerformance,
        Finding::DeepIdleStates,
        Finding::NoCpuDmaLatency,
        Finding::NoTracefs,
        Finding::SwapOn,
        Finding::WatchdogOn,
        Finding::Mitigations,
    ];
    assert_findings(&facts, "3", &expected);
    assert!(finding(&facts, "3", Finding::NoRealtimePriority).1.contains("--cap-add=SYS_NICE"));
    assert!(finding(&facts, "3", Finding::RtGroupBudget).1.contains("/sys/fs/cgroup/cgroup.procs"));
}

#[test]
fn every_finding_has_a_name_of_its_own() {
    let names =
        ["vm-1cpu", "desktop-smt", "laptop-hybrid", "server-numa", "board-arm64", "container-cgroup2"];
    let mut seen = std::collections::BTreeMap::new();
    for name in names {
        let facts = host(name).facts;
        for warning in preflight(&facts, &facts.cpu_sets.online) {
            assert!(warning.code.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            seen.entry(warning.code).or_insert(warning.text);
        }
    }
    assert_eq!(seen.len(), 28, "the machines together show every finding: {seen:#?}");
}

#[test]
fn strange_files_become_warnings_and_hide_nothing_else() {
    for name in ["desktop-smt", "server-numa", "board-arm64"] {
        let good = host(name).facts;
        let text = archive_text(name)
            + "== sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq := fast\n\
             == sys/devices/system/cpu/isolated := 3-1\n\
             == sys/devices/system/cpu/cpu1/cache/index0/size := big\n\
             == proc/sys/kernel/tainted/x := a folder\n";
        let text = text.replace("== proc/sys/kernel/tainted :=", "== proc/sys/kernel/tainted_was :=");
        let Host { facts, warnings, .. } = unpacked(&text);
        let texts: Vec<&str> = warnings.iter().map(|warning| warning.text.as_str()).collect();
        assert!(warnings.iter().all(|warning| warning.code == "fact-unreadable"), "{texts:#?}");
        for part in [
            "scaling_max_freq: `fast` is not a number",
            "isolated: `3-1`",
            "`big` is not a cache size",
            "tainted",
        ] {
            assert!(texts.iter().any(|text| text.contains(part)), "{part}: {texts:#?}");
        }
        assert_eq!(cpu(&facts, 0).frequency_max_hz, None);
        assert_eq!(cpu(&facts, 1).caches.len() + 1, cpu(&good, 1).caches.len());
        assert_eq!((facts.clock, facts.memory, facts.gpus), (good.clock, good.memory, good.gpus));
    }
}

#[test]
fn an_empty_root_has_no_facts_and_no_warnings() {
    let Host { facts, warnings, root, folder: _folder } = unpacked("");
    assert_eq!(warnings, []);
    let empty = Facts { whylate_version: facts.whylate_version.clone(), ..Facts::default() };
    let empty = Facts {
        kernel: whylate_core::facts::KernelFacts { preemption: "none".into(), ..empty.kernel },
        ..empty
    };
    assert_eq!(facts, empty);
    assert!(Counts::read(&root).unwrap().is_empty());
    assert_eq!(StealTimes::read(&root).unwrap().of(CpuId(0)), None);
}

#[test]
fn this_machine() {
    let (facts, warnings) = collect(&HostRoot::real());
    assert_eq!(
        warnings.iter().filter(|warning| warning.code == "fact-unreadable").count(),
        0,
        "{warnings:#?}"
    );
    assert!(!facts.kernel.release.is_empty() && !facts.processor.model.is_empty());
    assert_eq!(facts.kernel.architecture, std::env::consts::ARCH);
    assert!(facts.memory.total_bytes.is_some());
    let allowed = facts.cpu_context().usable();
    assert!(!allowed.is_empty());
    assert_eq!(facts.cpus.iter().filter(|cpu| cpu.online).count(), facts.cpu_sets.online.len());
    assert_eq!(facts.privileges.root, rustix::process::geteuid().is_root());
    let before = Counts::read(&HostRoot::real()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let after = Counts::read(&HostRoot::real()).unwrap();
    assert!(!Counts::delta(&before, &after, &facts.cpu_sets.online).is_empty(), "timer interrupts at least");
    let steal = StealTimes::read(&HostRoot::real()).unwrap();
    assert!(facts.cpu_sets.online.iter().all(|cpu| steal.of(cpu).is_some()));
    let codes: Vec<String> = preflight(&facts, &allowed).into_iter().map(|warning| warning.code).collect();
    assert_eq!(codes.iter().collect::<std::collections::BTreeSet<_>>().len(), codes.len(), "each code once");
    assert!(codes.contains(&Finding::NotIsolated.code().to_owned()) || allowed == facts.cpu_sets.isolated);
}

mod robustness {
    use super::*;
    use proptest::prelude::*;

    /// Headers of all files of a machine.
    fn headers(text: &str) -> Vec<String> {
        let headers = text.lines().filter_map(|line| line.strip_prefix("== "));
        let paths = headers.filter(|header| !header.contains(" -> "));
        paths.map(|header| header.split(" := ").next().unwrap_or(header).to_owned()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn no_content_of_any_file_panics(
            machine in prop::sample::select(vec!["vm-1cpu", "board-arm64", "container-cgroup2"]),
            changes in prop::collection::vec((any::<prop::sample::Index>(), "[-0-9a-zA-Z:,. \\[\\]()]{0,12}"), 1..20),
        ) {
            let original = archive_text(machine);
            let paths = headers(&original);
            let mut text = original;
            for (index, content) in changes {
                text.push_str(&format!("== {} := {content}\n", index.get(&paths)));
            }
            let host = unpacked(&text);
            let _ = preflight(&host.facts, &host.facts.cpu_sets.present);
            let _ = (Counts::read(&host.root).unwrap(), StealTimes::read(&host.root).unwrap());
        }
    }
}

#[test]
fn tracefs_is_missed_only_where_it_cannot_be_mounted() {
    let tracefs = |changes: &[(&str, &str)]| {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("proc/filesystems", "nodev\tproc\nnodev\ttracefs\n\text4\n"),
            ("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"),
        ];
        for (path, text) in files.iter().chain(changes) {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        collect(&HostRoot::at(folder.path())).0.privileges.tracefs
    };
    assert!(tracefs(&[]), "a run mounts it itself");
    assert!(tracefs(&[("sys/kernel/tracing/tracing_on", "1")]));
    assert!(!tracefs(&[("proc/filesystems", "nodev\tproc\n")]), "the kernel has none");
    let container = "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n";
    assert!(!tracefs(&[("proc/self/status", container)]), "root without CAP_SYS_ADMIN");
    assert!(!tracefs(&[("sys/kernel/security/lockdown", "none integrity [confidentiality]\n")]));
}
