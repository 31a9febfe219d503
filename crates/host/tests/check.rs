//! Findings about invented machines: one that was set up for real time, and the same with one thing wrong.

use std::collections::BTreeSet;
use std::path::Path;
use whylate_core::result::{CheckResult, Finding, Severity};
use whylate_host::HostRoot;
use whylate_host::cpu_table::Sampler;
use whylate_host::facts::{FindingCode, check, collect};
use whylate_lab::archive;

fn archive_text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/hosts/{name}.tree"));
    std::fs::read_to_string(path).unwrap()
}

fn checked(text: &str, targets: &str) -> CheckResult {
    let folder = tempfile::tempdir().unwrap();
    archive::unpack(text, folder.path()).unwrap();
    let root = HostRoot::at(folder.path());
    let (facts, warnings) = collect(&root);
    let table = Sampler::start(&root).unwrap().table(&facts).unwrap();
    check(&root, &facts, &targets.parse().unwrap(), &table, warnings).unwrap()
}

fn found(result: &CheckResult, code: FindingCode) -> &Finding {
    let finding = result.findings.iter().find(|finding| finding.id == code.code());
    finding.unwrap_or_else(|| panic!("no `{}` in {:#?}", code.code(), result.findings))
}

#[test]
fn a_machine_that_was_set_up_for_real_time_is_fit() {
    let result = checked(&archive_text("rt-tuned"), "2-3");
    let wrong = result.findings.iter().filter(|finding| finding.severity <= Severity::Advice);
    assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&Finding>::new());
    assert!(result.fit && result.count(Severity::Ok) >= 25, "{:#?}", result.findings);
    let worth_knowing = result.findings.iter().filter(|finding| finding.severity == Severity::Info);
    let ids: Vec<&str> = worth_knowing.map(|finding| finding.id.as_str()).collect();
    assert_eq!(
        ids,
        ["firmware-interrupts", "pinned-threads", "timers-on-target", "managed-interrupts", "cache-shared"]
    );
    assert!(found(&result, FindingCode::ManagedInterrupts).text.contains("125 nvme0q3"));
    assert!(found(&result, FindingCode::PinnedThreads).text.contains("control-loop"));
    assert_eq!(result.warnings, []);
}

/// The tuned machine with `change` appended; a later entry replaces an earlier one.
fn severity_with(change: &str, code: FindingCode) -> Severity {
    found(&checked(&(archive_text("rt-tuned") + change), "2-3"), code).severity
}

#[test]
fn each_thing_that_is_wrong_is_found() {
    use FindingCode as Code;
    use Severity::{Advice, Info, Serious};
    let stray = "== proc/800/task/800/stat := 800 (stray) S 1 0 0 0 -1 0\n\
                 == proc/800/task/800/status := Cpus_allowed_list:\t0-3\n\
                 == sys/devices/system/cpu/isolated :=\n";
    let irqbalance = "== proc/600/task/600/stat := 600 (irqbalance) S 1 0 0 0 -1 0\n\
                      == proc/600/task/600/status := Cpus_allowed_list:\t0-1\n\
                      == proc/600/environ := PATH=/bin\\0IRQBALANCE_BANNED_CPULIST=3\\0\n";
    let rcu = "== proc/14/task/14/status := Cpus_allowed_list:\t0-3\n";
    let deep = "== sys/devices/system/cpu/cpu{0-3}/cpuidle/state1/latency := 200\n";
    let cases: Vec<(&str, Code, Severity)> = vec![
        (stray, Code::NotIsolated, Serious),
        (irqbalance, Code::IrqBalance, Advice),
        (rcu, Code::RcuCallbacks, Advice),
        (deep, Code::DeepIdleStates, Serious),
        ("== proc/irq/120/smp_affinity_list := 0-3\n", Code::InterruptsOnTarget, Advice),
        ("== proc/irq/default_smp_affinity := f\n", Code::DefaultIrqAffinity, Advice),
        ("== sys/devices/virtual/workqueue/cpumask := f\n", Code::WorkqueueMask, Advice),
        ("== sys/kernel/mm/ksm/run := 1\n", Code::PageMerging, Advice),
        ("== sys/devices/system/cpu/intel_pstate/no_turbo := 0\n", Code::Turbo, Info),
        ("== sys/devices/system/cpu/cpu2/cpufreq/scaling_min_freq := 800000\n", Code::FrequencyRange, Info),
        ("== sys/class/drm/card0/gt_min_freq_mhz := 350\n", Code::GpuFrequency, Info),
        (
            "== sys/class/drm/card0/device/irq := 77\n== proc/irq/77/smp_affinity_list := 0-3\n",
            Code::GpuInUse,
            Info,
        ),
        ("== sys/class/drm/card0/device/gpu_busy_percent := 9\n", Code::GpuInUse, Info),
        ("== sys/module/i915/parameters/enable_psr := -1\n", Code::GpuDriverOptions, Info),
        ("== proc/driver/nvidia/params := DynamicPowerManagement: 3\n", Code::GpuDriverOptions, Info),
        ("== sys/module/mgag200/refcnt := 1\n", Code::MatroxWriteCombining, Advice),
        ("== sys/module/nvidia/version := 570.86\n", Code::NvidiaOnRealtime, Serious),
        ("== sys/fs/cgroup/cpu.max := 50000 100000\n", Code::CpuQuota, Serious),
        ("== proc/stat := cpu2 1 0 1 9 5 0 8 77 0 0\n", Code::StealTime, Serious),
        ("== sys/kernel/debug/sched/fair_server/cpu2/runtime := 50000000\n", Code::RtThrottling, Advice),
        ("== sys/devices/system/cpu/nohz_full :=\n", Code::TickOnTarget, Advice),
        ("== proc/cmdline := quiet\n", Code::BootOptions, Info),
        ("== proc/cmdline := quiet\n== sys/devices/system/cpu/nohz_full :=\n", Code::RcuCallbacks, Advice),
    ];
    for (change, code, severity) in cases {
        assert_eq!(severity_with(change, code), severity, "{} with {change}", code.code());
    }
}

/// The tuned machine, booted with these additional words.
fn booted(more: &str) -> String {
    format!(
        "{}== proc/cmdline := root=/dev/nvme0n1p2 ro isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 {more}\n",
        archive_text("rt-tuned")
    )
}

fn text_of(archive: &str, code: FindingCode) -> Option<String> {
    let result = checked(archive, "2-3");
    result.findings.iter().find(|finding| finding.id == code.code()).map(|finding| finding.text.clone())
}

#[test]
fn words_that_the_kernel_does_not_know_are_found_with_and_without_its_log() {
    let code = FindingCode::BootOptionUnknown;
    let text = text_of(&booted("rcu_nohz=1 kthread_cpus=0 irqafinity=0-1"), code).unwrap();
    for word in ["rcu_nohz=1", "rcu_nocbs=", "kthread_cpus=0", "`irqaffinity`"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let log = "== dev/kmsg := 5,1,100,-;Unknown kernel command line parameters \"BOOT_IMAGE=/vmlinuz foo_cpus=3\", will be passed to user space.\n";
    let text = text_of(&(booted("BOOT_IMAGE=/vmlinuz foo_cpus=3 quiet") + log), code).unwrap();
    assert!(text.contains("foo_cpus=3") && !text.contains("BOOT_IMAGE"), "{text}");
    assert_eq!(text_of(&booted("quiet splash mitigations=off"), code), None);
}

#[test]
fn options_that_the_kernel_does_not_follow_are_found() {
    let code = FindingCode::BootOptionWithoutEffect;
    let with = |more: &str, files: &str| text_of(&(booted(more) + files), code);
    assert_eq!(with("irqaffinity=0-1", ""), None);
    let cases = [
        ("", "== sys/devices/system/cpu/nohz_full := (null)\n", "nohz_full=2-3"),
        ("", "== sys/devices/system/cpu/isolated := 2\n", "CPU 3"),
        (
            "",
            "== proc/14/task/14/stat := 14 (other) S 1 0 0 0 -1 0\n== proc/14/task/14/status := Name:\tother\n",
            "rcu_nocbs=2-3",
        ),
        ("preempt=full", "", "preempt=full"),
        ("irqaffinity=0", "", "CPU 1"),
        (
            "clocksource=tsc",
            "== sys/devices/system/clocksource/clocksource0/current_clocksource := hpet\n",
            "hpet",
        ),
    ];
    for (more, files, wanted) in cases {
        let text = with(more, files).unwrap_or_else(|| panic!("nothing for {more} {files}"));
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
}

/// If a file has the configuration of the kernel, it decides.
#[test]
fn options_without_their_config_are_found() {
    let code = FindingCode::BootOptionWithoutEffect;
    let with = |more: &str, path: &str, config: &str| {
        let config: String = config.lines().map(|line| format!("== {path} := {line}\n")).collect();
        text_of(&(booted(more) + &config), code)
    };
    let path = "boot/config-6.12.43-rt";
    let text = with("psi=1 threadirqs", path, "CONFIG_NO_HZ_FULL=y").unwrap();
    for (option, config) in [
        ("psi=1", "CONFIG_PSI"),
        ("isolcpus=", "CONFIG_CPU_ISOLATION"),
        ("threadirqs", "CONFIG_IRQ_FORCED_THREADING"),
    ] {
        assert!(text.contains(option) && text.contains(config), "{option}: {text}");
    }
    assert!(!text.contains("CONFIG_NO_HZ_FULL"), "{text}");
    assert!(text.contains("/boot/config-6.12.43-rt"), "{text}");
    let other = with("psi=1", "boot/config-6.1.0", "CONFIG_NO_HZ_FULL=y");
    assert_eq!(other, None, "that is another kernel's");
}

#[test]
fn pressure_and_impossible_idle_states() {
    let psi = "== proc/pressure/cpu := some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
    assert_eq!(severity_with(psi, FindingCode::PressureAccounting), Severity::Info);
    let polled = format!(
        "{}{psi}== proc/700/task/700/stat := 700 (psimon) S 2 0 0 0 -1 0\n\
        == proc/700/task/700/status := Cpus_allowed_list:\t0-3\n",
        archive_text("rt-tuned")
    );
    assert!(text_of(&polled, FindingCode::PressureAccounting).unwrap().contains("psimon"));
    let odd = "== sys/devices/system/cpu/cpu{0-3}/cpuidle/state2/name := C6\n\
        == sys/devices/system/cpu/cpu{0-3}/cpuidle/state2/latency := 0\n";
    let text = text_of(&(archive_text("rt-tuned") + odd), FindingCode::IdleExitsDoubtful).unwrap();
    assert!(text.contains("C6 has 0 ns"), "{text}");
    assert_eq!(text_of(&archive_text("rt-tuned"), FindingCode::IdleExitsDoubtful), None);
}

#[test]
fn options_that_contradict_are_found() {
    let code = FindingCode::BootOptionsContradict;
    let with =
        |line: &str| text_of(&format!("{}== proc/cmdline := {line}\n", archive_text("rt-tuned")), code);
    let text = with("isolcpus=managed_irq,domain,2-N irqaffinity=0-3").unwrap();
    assert!(text.contains("CPUs 2-3") && text.contains("housekeeping CPUs are 0-1"), "{text}");
    assert!(with("isolcpus=2-3").unwrap().contains("managed_irq"));
    assert!(with("isolcpus=managed_irq,domain,2-3 nohz_full=3").unwrap().contains("CPU 3"));
    assert!(
        with("isolcpus=managed_irq,domain,2-3 nohz_full=2-3 nohz_full=3 nohz_full=2-3")
            .unwrap()
            .contains("overridden")
    );
    assert_eq!(
        with("isolcpus=managed_irq,domain,2-3 nohz_full=2-3 irqaffinity=0-1 console=tty0 console=ttyS0"),
        None
    );
}

#[test]
fn programs_that_poll_isolated_cpus_are_found() {
    let telegraf = "== proc/700/comm := telegraf\n";
    assert_eq!(severity_with(telegraf, FindingCode::PollingPrograms), Severity::Advice);
    let efi = "== sys/firmware/efi/efivars/BootOrder-8be4df61 := x\n";
    assert_eq!(severity_with(efi, FindingCode::FirmwareCalls), Severity::Info);
    assert_eq!(
        severity_with(
            "== proc/sys/kernel/timer_migration := 1\n== sys/devices/system/cpu/nohz_full :=\n",
            FindingCode::PulledTimers
        ),
        Severity::Advice
    );
}

#[test]
fn the_log_of_the_running_kernel_is_read() {
    let change = "== dev/kmsg := 4,1234,371133076,-;sched: RT throttling activated\n";
    assert_eq!(severity_with(change, FindingCode::KernelLog), Severity::Advice);
}

#[test]
fn a_corrected_setting_is_ok() {
    use FindingCode as Code;
    let cases = [
        ("== sys/module/amdgpu/parameters/runpm := 0\n", Code::GpuDriverOptions),
        ("== sys/fs/resctrl/rt/schemata := L3:0=f\n", Code::CacheShared),
        (
            "== boot/config-6.12.43-rt := CONFIG_DRM_MGAG200_DISABLE_WRITECOMBINE=y\n== sys/module/mgag200/refcnt := 1\n",
            Code::MatroxWriteCombining,
        ),
        ("== proc/sys/kernel/watchdog := 1\n== proc/sys/kernel/watchdog_cpumask := 0-1\n", Code::WatchdogOn),
        ("== sys/fs/cgroup/cpu.max := max 100000\n", Code::CpuQuota),
    ];
    for (change, code) in cases {
        assert_eq!(severity_with(change, code), Severity::Ok, "{} with {change}", code.code());
    }
}

#[test]
fn every_finding_says_what_where_and_why() {
    let names = [
        "vm-1cpu",
        "desktop-smt",
        "laptop-hybrid",
        "server-numa",
        "board-arm64",
        "container-cgroup2",
        "rt-tuned",
    ];
    for name in names {
        let text = archive_text(name);
        let facts_of = checked(&text, "0").facts;
        let result = checked(&text, &facts_of.cpu_sets.online.to_string());
        let ids: BTreeSet<&str> = result.findings.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids.len(), result.findings.len(), "{name}: each id once");
        for finding in &result.findings {
            assert!(!finding.text.is_empty() && !finding.text.contains('\n'), "{name}: {finding:?}");
            if finding.severity == Severity::Ok {
                assert_eq!((&finding.fix_now, &finding.treatment), (&None, &None), "{name}: {finding:?}");
            } else {
                assert!(finding.effect.is_some() && finding.source.is_some(), "{name}: {finding:?}");
                assert!(
                    !finding.evidence.is_empty()
                        || finding.id.ends_with("-target")
                        || finding.id == "mixed-core-kinds",
                    "{name}: {finding:?}"
                );
            }
            if finding.severity == Severity::Advice {
                let has_way = finding.fix_now.is_some() || finding.fix_boot.is_some();
                assert!(has_way || result.cpus == facts_of.cpu_sets.online, "{name}: {finding:?}");
            }
        }
    }
}

#[test]
fn files_that_only_root_may_read_are_named() {
    let result = checked(&archive_text("desktop-smt"), "3");
    let codes: Vec<&str> = result.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, ["threads-hidden", "interrupt-lines-hidden", "timers-hidden"]);
}

#[test]
fn codes_are_unique_and_treatments_exist() {
    let codes: BTreeSet<&str> = FindingCode::ALL.iter().map(|code| code.code()).collect();
    assert_eq!(codes.len(), FindingCode::ALL.len());
    let treatments: BTreeSet<&str> = FindingCode::ALL.iter().filter_map(|code| code.treatment()).collect();
    let expected = [
        "cache-partition",
        "governor",
        "gpu-power",
        "idle",
        "irq-affinity",
        "ksm",
        "module-parameter",
        "numa-balancing",
        "rt-throttling",
        "shield",
        "smt-off",
        "thp",
        "watchdog",
    ];
    assert_eq!(treatments, BTreeSet::from(expected));
}

#[test]
fn this_machine() {
    let root = HostRoot::real();
    let (facts, warnings) = collect(&root);
    let table = Sampler::start(&root).unwrap().table(&facts).unwrap();
    let result = check(&root, &facts, &facts.cpu_context().usable(), &table, warnings).unwrap();
    assert!(result.findings.len() > 20, "{:#?}", result.findings);
    assert!(result.findings.is_sorted_by_key(|finding| {
        (whylate_core::result::Theme::ALL.iter().position(|theme| *theme == finding.theme), finding.severity)
    }));
}
