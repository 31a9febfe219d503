use super::*;
use whylate_core::plan::{Plan, Share};
use whylate_core::record::TaskRecord;
use whylate_core::result::{
    Cause, CpuResult, FixAnswer, FixClaim, FixMode, FixOutcome, FixPhase, FixRegistration, FixRemoval,
    FixResult, LateResponses, LateSum, ProbeResult, RunState, Spike,
};
use whylate_core::{BusyProgram, CpuId};
use whylate_testing::says;

fn spike(kind: CauseKind, actor: Option<&str>, latency_ns: u64) -> Spike {
    let cause = Cause { actor: actor.map(str::to_owned), share: Some(0.8), ..Cause::new(kind) };
    Spike { cause, ..Spike::unexplained(CpuId(1), 1_000, latency_ns) }
}

fn facts() -> Facts {
    let mut facts = Facts::default();
    facts.cpu_sets.online = "0-1".parse().unwrap();
    facts
}

fn proposed(spikes: Vec<Spike>, findings: &[Finding]) -> (Vec<FixArm>, Vec<FixLeftOut>) {
    let probe = ProbeResult { spikes, ..ProbeResult::default() };
    let causes = causes(&CellResult { probes: vec![probe], ..CellResult::default() }, "timer");
    let target = CpuSet::single(CpuId(1));
    let here = |treatment: &TreatmentPlan| match treatment.name.as_str() {
        "ksm" => Err("no such file".to_owned()),
        _ => Ok(()),
    };
    let situation =
        Situation { causes: &causes, findings, facts: &facts(), target: &target, busy: &[], paced: &[] };
    let Candidates { arms, left_out, .. } = candidates(&situation, &[], &here);
    (arms, left_out)
}

fn ids(arms: &[FixArm]) -> Vec<&str> {
    arms.iter().map(|arm| arm.treatment.name.as_str()).collect()
}

#[test]
fn an_interrupt_that_made_spikes_is_moved_first() {
    let spikes = vec![
        spike(CauseKind::Irq, Some("irq 45 (nvme0q1)"), 90_000),
        spike(CauseKind::Irq, Some("irq 45 (nvme0q1)"), 80_000),
        spike(CauseKind::IdleExit, None, 50_000),
    ];
    let (arms, _) = proposed(spikes, &[]);
    assert_eq!(ids(&arms)[..2], ["irq-affinity-45", "irq-affinity"]);
    assert!(says("irq-nvme0q1-irq-main", &arms[0].reason));
    assert!(ids(&arms).contains(&"idle"));
    assert!(!ids(&arms).contains(&"shield"), "no cause or finding suggests it: {:?}", ids(&arms));
}

/// The number of spikes of a kind is the same wherever it is reported.
#[test]
fn causes_of_several_kinds_are_reported_with_the_spikes_of_each() {
    let spikes = [("a", CauseKind::IrqsOff), ("b", CauseKind::IrqsOff), ("a", CauseKind::IrqsOff)];
    let mut spikes: Vec<Spike> = spikes.map(|(actor, kind)| spike(kind, Some(actor), 9_000)).to_vec();
    spikes.extend([spike(CauseKind::Ipi, None, 8_000), spike(CauseKind::IdleExit, None, 7_000)]);
    let (arms, left_out) = proposed(spikes, &[]);
    let shield = arms.iter().find(|arm| arm.treatment.name == "shield").unwrap();
    let several = "`irqs_off` (3) and `ipi` (1) were the main causes of 4 of 5 spikes";
    assert_eq!(shield.reason, several);
    let left = left_out.iter().find(|left| left.id == "irqs_off").unwrap();
    assert!(says("irqs-off-other-main", &left.reason));
}

#[test]
fn an_ordinary_thread_that_waits_for_a_cpu_may_get_a_real_time_priority() {
    let advised = |kind: CauseKind, priority: i32| {
        let task = TaskRecord { thread: 812, command: "audio".to_owned(), priority, ..TaskRecord::default() };
        let mut cpu = CpuResult::default();
        cpu.quantities.set(TASK, task);
        let spikes = vec![spike(kind, None, 50_000)];
        let probe = ProbeResult { spikes, cpus: vec![cpu], ..ProbeResult::default() };
        let cell = CellResult { probes: vec![probe], ..CellResult::default() };
        task_priority(&cell, &causes(&cell, "timer"))
    };
    let found = advised(CauseKind::Thread, -1).unwrap();
    assert_eq!(found.id, TASK_PRIORITY);
    assert!(found.why.contains("chrt -f -p 50 812"), "{}", found.why);
    assert_eq!(advised(CauseKind::Thread, 70), None, "it has a real-time priority");
    assert_eq!(advised(CauseKind::OwnWork, -1), None, "no thread delays it");
}

#[test]
fn work_for_packets_is_moved_or_done_less_often() {
    let of = |softirq: &str| proposed(vec![spike(CauseKind::Softirq, Some(softirq), 50_000)], &[]).0;
    let (packets, others) = (of("NET_RX softirq"), of("BLOCK softirq"));
    for id in ["network", "network-coalescing"] {
        assert!(ids(&packets).contains(&id) && !ids(&others).contains(&id), "{id}: {:?}", ids(&packets));
    }
}

#[test]
fn every_cause_is_answered_or_said_to_be_out_of_reach() {
    for kind in CauseKind::ALL.into_iter().filter(|kind| *kind != CauseKind::Unattributed) {
        let (arms, left_out) = proposed(vec![spike(kind, None, 50_000)], &[]);
        assert!(!arms.is_empty() || left_out.iter().any(|it| it.id == kind.name()), "{kind}");
    }
}

#[test]
fn findings_propose_their_treatments_and_boots_are_listed() {
    let finding = |id: &str, treatment: Option<&str>| Finding {
        id: id.to_owned(),
        theme: whylate_core::result::Theme::Kernel,
        severity: Severity::Advice,
        text: format!("{id} is so"),
        effect: None,
        evidence: Vec::new(),
        source: None,
        fix_now: None,
        fix_boot: Some("boot with `x`".to_owned()),
        treatment: treatment.map(str::to_owned),
    };
    let (arms, left_out) = proposed(
        Vec::new(),
        &[finding("huge-pages-always", Some("thp")), finding("kernel-not-realtime", None)],
    );
    assert_eq!(ids(&arms), ["thp"]);
    assert_eq!(arms[0].reason, "huge-pages-always is so");
    assert!(says("needs-reboot-campaign-tries", &left_out[0].why));
}

/// A search that proved several treatments.
fn proved() -> FixResult {
    let spikes = vec![
        spike(CauseKind::Ipi, None, 9_000),
        spike(CauseKind::Throttled, None, 8_000),
        spike(CauseKind::Irq, Some("irq 9 (eth0)"), 7_000),
        spike(CauseKind::Thread, Some("vision"), 6_000),
    ];
    let (mut arms, _) = proposed(spikes, &[]);
    for (process, service) in [("backup", Some("backup.service")), ("cc", None)] {
        let quota = format!(
            "{{\"name\":\"quota-{process}\",\"kind\":\"cpu-quota\",\"process\":\"{process}\",\"percent\":35,\"reason\":\"\",\"answers\":[]}}"
        );
        let arm = serde_json::from_str::<FixArm>(&quota).unwrap();
        arms.push(FixArm { service: service.map(str::to_owned), ..arm });
    }
    for arm in arms.iter_mut().filter(|arm| arm.treatment.name == "affinity-vision") {
        arm.service = Some("vision.service".to_owned());
    }
    let claim = FixClaim {
        phase: FixPhase::Confirm,
        control: Vec::new(),
        candidate: vec!["vm-stat-interval".to_owned()],
        pairs: vec![[2.0, 1.0]; 8],
        evidence: vec![56.8],
        needed: 40.0,
        lowers_goal: Some(true),
        removal: None,
        outcome: FixOutcome::Proved,
        ratio: Some(0.5),
        ratio_low: Some(0.4),
        ratio_high: Some(0.6),
        others: BTreeMap::default(),
        refused: None,
    };
    let registration = FixRegistration {
        mode: FixMode::Search,
        goal: "timer p99".parse().unwrap(),
        margin: Share(0.05),
        alpha: 0.05,
        seed: 1,
        budget: Plan::named("p").duration,
        cell: None,
        causes: Vec::new(),
        arms,
        left_out: Vec::new(),
        yes: Vec::new(),
        never: Vec::new(),
        keeps_goal: true,
        first: 0,
        begun: true,
    };
    FixResult {
        format: String::new(),
        run: String::new(),
        state: RunState::Complete,
        answer: FixAnswer::Proved,
        sentence: String::new(),
        registration,
        recommended: [
            "vm-stat-interval",
            "irq-affinity-9",
            "shield",
            "affinity-vision",
            "quota-backup",
            "quota-cc",
        ]
        .map(str::to_owned)
        .to_vec(),
        reached: None,
        results: Vec::new(),
        claims: vec![claim],
        repeats: 0,
        took_ns: 0,
        files: Vec::new(),
        by_hand: Vec::new(),
        restored: None,
        warnings: Vec::new(),
    }
}

fn text_of<'r>(result: &'r FixResult, path: &str) -> Option<&'r str> {
    result.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
}

#[test]
fn only_what_is_proved_is_installed_each_with_its_proof() {
    let mut result = proved();
    let mut facts = facts();
    facts.kernel.release = "6.1.0-56-rt-amd64".to_owned();
    install(&mut result, &facts, &CpuSet::single(CpuId(1)));
    let file = |path: &str| text_of(&result, path);
    assert!(says("whylate-fix-vm-stat", file("/etc/sysctl.d/90-whylate.conf").unwrap()));
    let tmpfiles = file("/etc/tmpfiles.d/90-whylate.conf").unwrap();
    assert!(says("w-proc-irq-smp", tmpfiles), "{tmpfiles}");
    assert!(!tmpfiles.contains("rt_runtime"), "{tmpfiles}");
    assert!(
        file("/etc/systemd/system/system.slice.d/90-whylate.conf")
            .unwrap()
            .ends_with("[Slice]\nAllowedCPUs=0\n")
    );
    assert!(file("/etc/tuned/profiles/whylate/tuned.conf").unwrap().contains("[sysctl]"));
    let tuned = file("/etc/tuned/profiles/whylate/tuned.conf").unwrap();
    assert!(
        tuned.contains("[scheduler]\n") && tuned.contains("\ngroup.vision=0:*:*:0x1:^\\[?vision\n"),
        "{tuned}"
    );
    // Units that name the shield's slice may use its CPUs, and its other settings are there, too.
    assert!(file("/etc/systemd/system/realtime.slice").unwrap().ends_with("[Slice]\nAllowedCPUs=1\n"));
    assert!(
        file("/etc/systemd/system/whylate-partition.service")
            .unwrap()
            .contains("echo isolated >/sys/fs/cgroup/realtime.slice/cpuset.cpus.partition")
    );
    let service = file("/etc/systemd/system/vision.service.d/90-whylate.conf").unwrap();
    assert!(service.ends_with("[Service]\nCPUAffinity=\nCPUAffinity=0\n"), "{service}");
    let quota = file("/etc/systemd/system/backup.service.d/90-whylate.conf").unwrap();
    assert!(quota.ends_with("[Service]\nCPUQuota=35%\n"), "{quota}");
    let by_hand: Vec<(&str, &str)> =
        result.by_hand.iter().map(|left| (left.id.as_str(), left.why.as_str())).collect();
    let why = "no file keeps this setting: run `whylate treat apply cpu-quota` after each boot";
    assert_eq!(by_hand, [("quota-cc", why)]);
    let sysctl = file("/etc/sysctl.d/90-whylate.conf").unwrap();
    for line in ["kernel.watchdog_cpumask = 0", "kernel.timer_migration = 0", "vm.stat_interval = 120"] {
        assert_eq!(sysctl.matches(line).count(), 1, "{sysctl}");
    }
}

/// The name of a thread is what another user chose: it stays inside its comment.
#[test]
fn files_have_the_proof_by_cause_in_their_comments() {
    let mut result = proved();
    let claim = &mut result.claims[0];
    claim.lowers_goal = Some(false);
    (claim.ratio, claim.ratio_low, claim.ratio_high) = (Some(0.93), Some(0.71), Some(1.2));
    claim.removal = Some(FixRemoval {
        causes: vec!["thread: thief".to_owned(), "thread: evil\nvm.overcommit_memory = 2".to_owned()],
        pairs: vec![[3e6, 0.0]; 8],
        evidence: vec![1.9, 169.8],
        proved: true,
        removed_in: 8,
        tells_in: 8,
        before_ns_per_s: 3e6,
        after_ns_per_s: 0.0,
    });
    install(&mut result, &facts(), &CpuSet::single(CpuId(1)));
    let sysctl = text_of(&result, "/etc/sysctl.d/90-whylate.conf").unwrap();
    let comment = sysctl.lines().find(|line| line.contains("vm-stat-interval")).unwrap();
    assert!(says("proof-by-cause", comment), "{comment}");
    assert!(comment.starts_with("# ") && !sysctl.contains("\nvm.overcommit"), "{sysctl}");
    let tuned = text_of(&result, "/etc/tuned/profiles/whylate/tuned.conf").unwrap();
    assert!(tuned.contains(comment), "{tuned}");
}

/// Without isolated partitions of cgroup v2, processes are still kept away, and the result says what is missing.
#[test]
fn a_partition_is_installed_only_where_the_kernel_has_isolated_ones() {
    let installed = |release: &str, cgroup_version: u32| {
        let mut facts = facts();
        facts.kernel.release = release.to_owned();
        facts.environment.cgroup_version = Some(cgroup_version);
        let mut result = proved();
        install(&mut result, &facts, &CpuSet::single(CpuId(1)));
        let slice = text_of(&result, "/etc/systemd/system/system.slice.d/90-whylate.conf");
        assert!(slice.is_some_and(|text| text.ends_with("[Slice]\nAllowedCPUs=0\n")), "{release}");
        let why = result.by_hand.iter().find(|left| left.id == "shield").map(|left| left.why.clone());
        let mentions = result.files.iter().filter(|file| file.text.contains("cpuset.cpus.partition")).count();
        (mentions, why)
    };
    for release in ["6.1.0-56-rt-amd64", "6.12.118+deb13-rt-amd64", "7.2.13+deb14-amd64"] {
        assert_eq!(installed(release, 2), (1, None), "{release}");
    }
    for (release, cgroup_version) in [("5.10.0-32-rt-amd64", 2), ("6.0.9", 2), ("6.1.0-56-amd64", 1), ("", 2)]
    {
        let (mentions, why) = installed(release, cgroup_version);
        assert_eq!(mentions, 0, "{release}");
        assert!(
            why.is_some_and(|why| why.contains("isolated partition (cgroup v2, Linux 6.1 or later)")),
            "{release}"
        );
    }
}

#[test]
fn a_thread_that_has_the_cpu_is_sent_elsewhere_or_below() {
    let (arms, _) = proposed(vec![spike(CauseKind::Thread, Some("vision"), 5_000)], &[]);
    assert_eq!(ids(&arms), ["affinity-vision", "priority-vision", "shield"]);
    let (arms, _) = proposed(vec![spike(CauseKind::Thread, Some("kworker/1:2"), 5_000)], &[]);
    assert_eq!(ids(&arms), ["shield", "vm-stat-interval", "workqueue-mask"]);
    let (arms, _) = proposed(vec![spike(CauseKind::Thread, Some("irq/9-eth0"), 5_000)], &[]);
    assert_eq!(ids(&arms), ["irq-affinity-9", "priority-irq/9-eth0", "irq-affinity", "shield"]);
    let (arms, _) = proposed(vec![spike(CauseKind::IrqsOff, Some("kworker/u4:1"), 5_000)], &[]);
    assert_eq!(ids(&arms), ["shield", "workqueue-mask"]);
    let (arms, _) = proposed(vec![spike(CauseKind::PreemptOff, Some("rustc"), 5_000)], &[]);
    assert_eq!(ids(&arms), ["affinity-rustc", "shield"]);
    for kind in [CauseKind::Lock, CauseKind::Wait] {
        let (arms, _) = proposed(vec![spike(kind, Some("logger (preempted by hog)"), 5_000)], &[]);
        assert_eq!(ids(&arms)[..2], ["affinity-hog", "priority-hog"], "the one that has the CPU: {arms:?}");
    }
    let both = [CauseKind::PreemptOff, CauseKind::IrqsOff].map(|kind| spike(kind, Some("rustc"), 5_000));
    let (arms, _) = proposed(both.to_vec(), &[]);
    assert_eq!(ids(&arms), ["shield", "affinity-rustc"]);
    assert_eq!(arms[1].answers.len(), 2, "once, for both: {arms:?}");
}

#[test]
fn the_threads_of_a_chain_are_not_moved() {
    let causes = [
        (CauseKind::Thread, "thief", 5_000),
        (CauseKind::Thread, "first", 3_000),
        (CauseKind::OwnWork, "first", 2_000),
    ];
    let spikes = causes.map(|(kind, actor, ns)| spike(kind, Some(actor), ns));
    let (arms, left_out) = proposed(spikes.to_vec(), &[]);
    assert_eq!(ids(&arms), ["affinity-thief", "priority-thief", "shield"]);
    let of_chain = left_out.iter().find(|it| it.id == "thread").unwrap();
    assert!(of_chain.reason.starts_with("first (thread)"), "{of_chain:?}");
    assert!(of_chain.why.contains("the threads of the chain delay each other"), "{of_chain:?}");
}

#[test]
fn what_is_not_possible_here_takes_no_place() {
    let (arms, left_out) = proposed(vec![spike(CauseKind::PageFault, None, 5_000)], &[]);
    assert_eq!(ids(&arms), ["thp", "numa-balancing"]);
    assert!(left_out.iter().any(|it| it.id == "ksm" && it.why == "no such file"));
}

/// A treatment that answers a cause of many spikes is tried before one that answers few, or a mere finding.
#[test]
fn treatments_of_the_large_causes_are_tried_first() {
    let mut spikes = vec![spike(CauseKind::Irq, Some("irq 45 (nvme0q1)"), 90_000); 19];
    spikes.push(spike(CauseKind::IdleExit, None, 50_000));
    let probe = ProbeResult { spikes, ..ProbeResult::default() };
    let causes = causes(&CellResult { probes: vec![probe], ..CellResult::default() }, "timer");
    let target = CpuSet::single(CpuId(1));
    let facts = facts();
    let situation =
        Situation { causes: &causes, findings: &[], facts: &facts, target: &target, busy: &[], paced: &[] };
    let proposed = candidates(&situation, &[], &|_| Ok(()));
    assert_eq!(ids(&proposed.arms), ["irq-affinity-45", "irq-affinity", "idle", "governor"]);
    assert_eq!(proposed.first, 2);
}

/// A process that sends interrupts because its threads use the CPU is moved; an unknown sender cannot be moved.
#[test]
fn the_sender_of_interrupts_leaves_the_cpu() {
    let (arms, _) = proposed(vec![spike(CauseKind::Ipi, Some("allocator"), 5_000)], &[]);
    assert_eq!(
        ids(&arms),
        ["affinity-allocator", "shield", "vm-stat-interval", "timer-migration", "workqueue-mask"]
    );
    let (arms, _) = proposed(vec![spike(CauseKind::Ipi, Some("another CPU"), 5_000)], &[]);
    assert_eq!(ids(&arms), ["shield", "vm-stat-interval", "timer-migration", "workqueue-mask"]);
}

/// The tick of the CPU itself cannot be sent to another one.
#[test]
fn the_local_timer_is_not_moved() {
    let (arms, _) = proposed(vec![spike(CauseKind::Irq, Some("local timer"), 5_000)], &[]);
    assert_eq!(ids(&arms), Vec::<&str>::new());
}

#[test]
fn spikes_of_the_probe_that_shall_become_better_count() {
    let probe = |name: &str, kind| ProbeResult {
        probe: name.to_owned(),
        spikes: vec![spike(kind, None, 5_000)],
        ..ProbeResult::default()
    };
    let probes = vec![probe("stall", CauseKind::Throttled), probe("timer", CauseKind::IdleExit)];
    let cell = CellResult { probes, ..CellResult::default() };
    let kinds =
        |series: &str| -> Vec<String> { causes(&cell, series).into_iter().map(|it| it.kind).collect() };
    assert_eq!(kinds("timer"), ["idle_exit"]);
    assert_eq!(kinds("dispatch/timerfd").len(), 2, "nothing is known of it");
}

#[test]
fn late_responses_count_and_not_the_largest_spikes_of_wake_ups() {
    let of = |series: &str, spike: Spike| Spike { probe: Some(series.to_owned()), ..spike };
    let late = |kind, actor, number: usize| vec![of("task/ctl", spike(kind, actor, 5_000)); number];
    let mut sum = LateSum::default();
    [late(CauseKind::Lock, Some("mapper.3"), 21), late(CauseKind::HostStall, None, 3)]
        .into_iter()
        .flatten()
        .for_each(|spike| sum.add(&spike));
    let wakeups = vec![of("task/ctl/wakeup", spike(CauseKind::HostStall, None, 9_000)); 27];
    let probe = ProbeResult {
        probe: "task".to_owned(),
        spikes: [wakeups, late(CauseKind::Lock, Some("mapper.3"), 1)].concat(),
        ..ProbeResult::default()
    };
    let of_cell = |probe: &ProbeResult| {
        let cell = CellResult { probes: vec![probe.clone()], ..CellResult::default() };
        let found = causes(&cell, "task").into_iter().map(|it| (it.kind, it.actor, it.spikes));
        found.collect::<Vec<_>>()
    };
    let lock = |spikes| ("lock".to_owned(), Some("mapper.3".to_owned()), spikes);
    assert_eq!(of_cell(&probe), [lock(1)], "a wake-up is a part of a response");
    let late_responses = vec![LateResponses::new("task/ctl".to_owned(), 24, sum)];
    let probe = ProbeResult { late_responses, ..probe };
    assert_eq!(of_cell(&probe), [lock(21), ("host_stall".to_owned(), None, 3)]);
}

#[test]
fn of_several_series_of_a_probe_the_spikes_of_the_one_that_shall_become_better_count() {
    let of = |series: &str, kind| Spike { probe: Some(series.to_owned()), ..spike(kind, None, 5_000) };
    let spikes = vec![of("task/chain frame", CauseKind::Thread), of("task/middle", CauseKind::OwnWork)];
    let probe = ProbeResult { probe: "task".to_owned(), spikes, ..ProbeResult::default() };
    let cell = CellResult { probes: vec![probe], ..CellResult::default() };
    let kinds =
        |series: &str| -> Vec<String> { causes(&cell, series).into_iter().map(|it| it.kind).collect() };
    assert_eq!(kinds("task/chain frame"), ["thread"]);
    assert_eq!(kinds("task/another").len(), 2, "nothing is known of it");
}

/// Programs that take memory bandwidth are slowed down if hardware is to blame; the user has to pace loads of the plan.
#[test]
fn who_takes_bandwidth_may_get_a_quota() {
    let probe = |kind| ProbeResult { spikes: vec![spike(kind, None, 5_000)], ..ProbeResult::default() };
    let program = |name: &str, cpus, bytes_per_s| BusyProgram { name: name.to_owned(), cpus, bytes_per_s };
    let busy = [program("cc", 1.9, Some(4e9)), program("solver", 1.0, Some(1e6)), program("vm", 0.6, None)];
    let paced = [Paced { name: "memory".to_owned(), bytes_per_s: 3e9 }];
    let found = |kind| {
        let causes = causes(&CellResult { probes: vec![probe(kind)], ..CellResult::default() }, "stall");
        let (facts, target) = (facts(), CpuSet::single(CpuId(1)));
        let situation = Situation {
            causes: &causes,
            findings: &[],
            facts: &facts,
            target: &target,
            busy: &busy,
            paced: &paced,
        };
        candidates(&situation, &[], &|_| Ok(()))
    };
    let Candidates { arms, left_out, .. } = found(CauseKind::Hardware);
    let quotas: Vec<(&TreatmentKind, &str)> = arms
        .iter()
        .filter(|arm| arm.treatment.name.starts_with("quota-"))
        .map(|arm| (&arm.treatment.kind, arm.reason.as_str()))
        .collect();
    let quota = |process: &str, percent| {
        TreatmentKind::CpuQuota(whylate_core::plan::CpuQuotaPlan { process: process.to_owned(), percent })
    };
    let first = "`hardware` was the main cause of 1 of 1 spikes; ";
    assert_eq!(
        quotas,
        [
            (&quota("cc", 95), &*format!("{first}cc uses 190 % of a CPU and reads 4.0 GB/s from memory")),
            (
                &quota("vm", 30),
                &*format!(
                    "{first}vm uses 60 % of a CPU and may take memory bandwidth, which this machine does not count"
                )
            ),
        ]
    );
    let causes = [spike(CauseKind::Thread, Some("solver"), 5_000)];
    let causes = causes.map(|spike| ProbeResult { spikes: vec![spike], ..ProbeResult::default() });
    let causes = super::causes(&CellResult { probes: causes.to_vec(), ..CellResult::default() }, "stall");
    assert!(asks_who_is_busy(&causes));
    let (facts, target) = (facts(), CpuSet::single(CpuId(1)));
    let situation =
        Situation { causes: &causes, findings: &[], facts: &facts, target: &target, busy: &busy, paced: &[] };
    let arms_of_thread = candidates(&situation, &[], &|_| Ok(())).arms;
    assert_eq!(
        ids(&arms_of_thread),
        ["affinity-solver", "priority-solver", "shield", "quota-solver"],
        "after what leaves it as fast as it is"
    );
    let pacing = left_out.iter().find(|it| it.id == "load-pacing-memory").unwrap();
    assert!(says("moved-gb-s-measure", &pacing.why), "{}", pacing.why);
    let Candidates { arms, left_out, .. } = found(CauseKind::IdleExit);
    assert!(!arms.iter().any(|arm| arm.treatment.name.starts_with("quota-")), "{:?}", ids(&arms));
    assert!(!left_out.iter().any(|it| it.id.starts_with("load-pacing")), "{left_out:?}");
}
