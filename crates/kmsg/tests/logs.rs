//! Logs in the forms that the kernel and its readers write, with the expected messages.

use std::io::Cursor;
use whylate_core::result::LogMessage;
use whylate_kmsg::{KINDS, KernelLog, is_log, read};

fn log(text: &str) -> KernelLog {
    read(Cursor::new(text.as_bytes())).unwrap()
}

fn one<'l>(log: &'l KernelLog, code: &str) -> &'l LogMessage {
    let mut found = log.messages.iter().filter(|message| message.code == code);
    let first = found.next().unwrap_or_else(|| panic!("no {code} in {:?}", log.messages));
    assert!(found.next().is_none(), "{code} twice");
    first
}

/// Code, line, figure in ns, CPU, thread.
type Expected = (&'static str, &'static str, Option<u64>, Option<u32>, Option<&'static str>);

/// A line of each kind as the kernel prints it.
const LINES: &[Expected] = &[
    ("rt_throttling", "sched: RT throttling activated", None, None, None),
    ("dl_lag", "sched: DL replenish lagged too much", None, None, None),
    (
        "dl_server_off",
        "Fair server disabled in CPU 3, system may crash due to starvation.",
        None,
        Some(3),
        None,
    ),
    (
        "xenomai_watchdog",
        "[Xenomai] watchdog triggered on CPU #1 -- runaway thread 'loop' signaled",
        None,
        Some(1),
        Some("loop"),
    ),
    (
        "sched_unexpected",
        "BUG: scheduling while atomic: irq/45-eth0/512/0x00000002",
        None,
        None,
        Some("irq/45-eth0"),
    ),
    (
        "sleeping_in_atomic",
        "BUG: sleeping function called from invalid context at kernel/locking/spinlock_rt.c:48",
        None,
        None,
        None,
    ),
    (
        "need_resched",
        "sched: CPU 2 need_resched set for > 103331686 ns (31 ticks) without schedule",
        Some(103_331_686),
        Some(2),
        None,
    ),
    (
        "soft_lockup",
        "watchdog: BUG: soft lockup - CPU#29 stuck for 22s! [mysqld:14352]",
        Some(22_000_000_000),
        Some(29),
        Some("mysqld"),
    ),
    ("hard_lockup", "watchdog: Watchdog detected hard LOCKUP on cpu 7", None, Some(7), None),
    ("hard_lockup", "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3", None, Some(3), None),
    (
        "spinlock_lockup",
        "BUG: spinlock lockup suspected on CPU#0, swapper/0/1",
        None,
        Some(0),
        Some("swapper/0"),
    ),
    ("rcu_stall", "rcu: INFO: rcu_preempt self-detected stall on CPU", None, None, None),
    ("rcu_stall", "INFO: rcu_sched detected stalls on CPUs/tasks:", None, None, None),
    (
        "rcu_expedited_stall",
        "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-...D } 21 jiffies s: 3845 root: 0x2/.",
        None,
        Some(1),
        None,
    ),
    (
        "rcu_kthread_starved",
        "rcu: rcu_sched kthread starved for 5250 jiffies! g1 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=2",
        None,
        None,
        None,
    ),
    (
        "rcu_timer_missing",
        "rcu: rcu_preempt kthread timer wakeup didn't happen for 10501 jiffies! g13421 f0x0",
        None,
        None,
        None,
    ),
    (
        "csd_lock",
        "smp: csd: Detected non-responsive CSD lock (#1) on CPU#3, waiting 5000000042 ns for CPU#55 flush_tlb_func+0x0/0xb0(0xffff8e0b3e2afbe8).",
        Some(5_000_000_042),
        Some(55),
        None,
    ),
    (
        "workqueue_lockup",
        "BUG: workqueue lockup - pool cpus=4 node=0 flags=0x0 nice=0 stuck for 30s!",
        Some(30_000_000_000),
        Some(4),
        None,
    ),
    (
        "workqueue_hog",
        "workqueue: i915_hpd_poll_init_work [i915] hogged CPU for >10000us 8 times, consider switching to WQ_UNBOUND",
        Some(10_000_000),
        None,
        None,
    ),
    (
        "hung_task",
        "INFO: task kworker/u8:2:94 blocked for more than 120 seconds.",
        Some(120_000_000_000),
        None,
        Some("kworker/u8:2"),
    ),
    ("hrtimer_interrupt", "hrtimer: interrupt took 11080712 ns", Some(11_080_712), None, None),
    (
        "perf_interrupt",
        "perf: interrupt took too long (2506 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
        Some(2506),
        None,
        None,
    ),
    (
        "nmi_handler",
        "INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.307 msecs",
        Some(1_307_000),
        None,
        None,
    ),
    ("nmi_unknown", "Uhhuh. NMI received for unknown reason 2d on CPU 6.", None, Some(6), None),
    ("tsc_unstable", "tsc: Marking TSC unstable due to clocksource watchdog", None, None, None),
    (
        "clocksource_watchdog",
        "clocksource: timekeeping watchdog on CPU17: Marking clocksource 'tsc' as unstable because the skew is too large:",
        None,
        Some(17),
        None,
    ),
    (
        "clocksource_read_delay",
        "clocksource: timekeeping watchdog on CPU227: wd-tsc-wd excessive read-back delay of 153560ns vs. limit of 125000ns, wd-wd read-back delay only 11440ns, attempt 3, marking tsc unstable",
        Some(153_560),
        None,
        None,
    ),
    ("tsc_warp", "Measured 1834 cycles TSC warp between CPUs, turning off TSC clock.", None, None, None),
    ("slow_clocksource", "clocksource: Switched to clocksource hpet", None, None, None),
    ("clockevent_min_delta", "CE: hpet increased min_delta_ns to 11520 nsec", Some(11_520), None, None),
    (
        "nohz_softirq_pending",
        "NOHZ tick-stop error: Non-RCU local softirq work is pending, handler #08!!!",
        None,
        None,
        None,
    ),
    (
        "unknown_parameters",
        "Unknown kernel command line parameters \"BOOT_IMAGE=/vmlinuz rcu_nohz=1 kthread_cpus=0\", will be passed to user space.",
        None,
        None,
        None,
    ),
    ("parameter_refused", "Housekeeping: nohz unsupported. Build with CONFIG_NO_HZ_FULL", None, None, None),
    ("irq_nobody_cared", "irq 16: nobody cared (try booting with the \"irqpoll\" option)", None, None, None),
    (
        "thermal_throttle",
        "mce: CPU3: Core temperature above threshold, cpu clock throttled (total events = 1291)",
        None,
        Some(3),
        None,
    ),
    (
        "thermal_throttle",
        "CPU3: Package temperature is above threshold, cpu clock is throttled (total events = 12)",
        None,
        Some(3),
        None,
    ),
    ("machine_check", "mce: [Hardware Error]: Machine check events logged", None, None, None),
    (
        "pcie_errors",
        "pcieport 0000:00:1c.5: AER: Corrected error message received from 0000:03:00.0",
        None,
        None,
        None,
    ),
    ("acpi_ec", "ACPI: EC: GPE storm detected, transactions will use polling mode", None, None, None),
    (
        "split_lock",
        "x86/split lock detection: #AC: CPU 0/KVM/1968 took a split_lock trap at address: 0xfffff804726dfdff",
        None,
        None,
        Some("CPU 0/KVM"),
    ),
    (
        "i915_atomic_update",
        "i915 0000:00:02.0: [drm] *ERROR* Atomic update failure on pipe A (start=17653 end=17654) time 312 us, min 1073, max 1079, scanline start 1062, end 1085",
        Some(312_000),
        None,
        None,
    ),
    (
        "gpu_hang",
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=2",
        None,
        None,
        None,
    ),
    (
        "nvidia_xid",
        "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        None,
        None,
        None,
    ),
    (
        "xhci_stuck",
        "xhci_hcd 0000:00:14.0: xHCI host not responding to stop endpoint command",
        None,
        None,
        None,
    ),
    ("audit_flood", "audit: audit_backlog=65 > audit_backlog_limit=64", None, None, None),
    ("printk_flood", "** 1523 printk messages dropped **", None, None, None),
    ("lockdep", "WARNING: possible circular locking dependency detected", None, None, None),
    (
        "page_allocation_failure",
        "kworker/0:1: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL)",
        None,
        None,
        Some("kworker/0:1:"),
    ),
    (
        "oom",
        "stress-ng-vm invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000",
        None,
        None,
        Some("stress-ng-vm"),
    ),
    (
        "kernel_warning",
        "WARNING: CPU: 2 PID: 1997 at kernel/sched/debug.c:1072 resched_latency_warn+0x52/0x60",
        None,
        Some(2),
        None,
    ),
    ("netdev_watchdog", "NETDEV WATCHDOG: eth0 (igb): transmit queue 0 timed out 5012 ms", None, None, None),
    (
        "tpm",
        "tpm_tis tpm_tis: [Firmware Bug]: TPM interrupt storm detected, polling instead",
        None,
        None,
        None,
    ),
];

#[test]
fn each_kind_is_read_with_its_figure_cpu_and_thread() {
    for (code, line, figure_ns, cpu, task) in LINES {
        let log = log(&format!("[   12.345678] {line}\n"));
        let message = one(&log, code);
        assert_eq!(log.messages.len(), 1, "{line}");
        assert_eq!(
            (message.figure_ns, message.cpu, message.task.as_deref()),
            (*figure_ns, *cpu, *task),
            "{line}"
        );
        assert_eq!((message.at_ns, message.text.as_str()), (Some(12_345_678_000), *line));
        assert!(!message.meaning.is_empty() && !message.fix.is_empty() && !message.names.is_empty());
    }
    let known: std::collections::BTreeSet<&str> = LINES.iter().map(|line| line.0).collect();
    assert!(known.len() >= 40, "{} kinds", known.len());
    assert!(known.iter().all(|code| KINDS.iter().any(|kind| kind.code == *code)));
}

#[test]
fn running_counts_are_not_added_and_functions_are_kept_apart() {
    let text = "\
[   56.900223] workqueue: output_poll_execute [drm_kms_helper] hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND
[   56.923226] workqueue: i915_hpd_poll_init_work [i915] hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND
[   97.860430] workqueue: output_poll_execute [drm_kms_helper] hogged CPU for >10000us 8 times, consider switching to WQ_UNBOUND
[   97.884453] workqueue: i915_hpd_poll_init_work [i915] hogged CPU for >10000us 8 times, consider switching to WQ_UNBOUND
";
    let quoted: String = text.lines().map(|line| format!("> {line}\n")).collect();
    let wrapped = text.replace(" hogged", "\nhogged").replace("consider ", "consider\n");
    for text in [text, quoted.as_str(), wrapped.as_str()] {
        let log = log(text);
        assert_eq!(log.messages.len(), 2, "{text}: {:?}", log.messages);
        for message in &log.messages {
            assert_eq!((message.count, message.lines, message.cpu), (Some(8), 2, None));
            assert_eq!(message.figure_ns, Some(10_000_000));
        }
        assert_eq!(log.messages[0].function.as_deref(), Some("output_poll_execute [drm_kms_helper]"));
        assert_eq!(
            (log.messages[0].at_ns, log.messages[0].last_at_ns),
            (Some(56_900_223_000), Some(97_860_430_000))
        );
    }
}

#[test]
fn a_log_without_times_broken_by_a_mail_is_read() {
    let log = log(
        "Hello,\n\nhere it is:\n\n> hrtimer: interrupt took\n> 6663395 ns\n> sched: RT throttling\n> activated\n\nThanks\n",
    );
    assert_eq!(one(&log, "hrtimer_interrupt").figure_ns, Some(6_663_395));
    assert_eq!(one(&log, "rt_throttling").at_ns, None);
    assert_eq!(log.messages.len(), 2);
}

#[test]
fn the_lines_after_a_stall_name_its_cpu() {
    let log = log("\
[   69.930986] rcu: INFO: rcu_sched self-detected stall on CPU
[   69.930990] rcu:     3-...!: (2600 ticks this GP) idle=6f5/1/0x40000004 softirq=2257/2257 fqs=0
[   69.940551]  (t=2600 jiffies g=3413 q=11)
");
    assert_eq!(one(&log, "rcu_stall").cpu, Some(3));
}

#[test]
fn json_of_dmesg_and_of_the_journal() {
    let dmesg = r#"{
   "dmesg": [
      {
         "pri": 5,
         "time":     0.000000,
         "msg": "Linux version 6.6.63-rt46 (a@b) #1 SMP PREEMPT_RT"
      },{
         "pri": 4,
         "time":   371.133076,
         "msg": "sched: RT throttling activated"
      }
   ]
}
"#;
    let found = log(dmesg);
    assert_eq!(one(&found, "rt_throttling").at_ns, Some(371_133_076_000));
    assert_eq!((found.kernel.as_deref(), found.damage), (Some("6.6.63-rt46"), None));
    let cut = log(&dmesg[..dmesg.len() - 12]);
    assert_eq!(cut.messages.len(), 1);

    let journal = "\
{\"_TRANSPORT\":\"kernel\",\"__MONOTONIC_TIMESTAMP\":\"371133076\",\"MESSAGE\":\"sched: RT throttling activated\",\"PRIORITY\":\"4\"}
{\"_TRANSPORT\":\"stdout\",\"MESSAGE\":\"hrtimer: interrupt took 5 ns\"}
{\"_TRANSPORT\":\"kernel\",\"MESSAGE\":[104,114,116,105,109,101,114,58,32,105,110,116,101,114,114,117,112,116,32,116,111,111,107,32,53,32,110,115]}
";
    let found = log(journal);
    assert_eq!(one(&found, "rt_throttling").at_ns, Some(371_133_076_000));
    assert_eq!(
        (one(&found, "hrtimer_interrupt").figure_ns, one(&found, "hrtimer_interrupt").lines),
        (Some(5), 1)
    );
    assert!(is_log(dmesg.as_bytes()) && is_log(journal.as_bytes()));
}

#[test]
fn a_slow_clock_that_was_left_again_is_not_reported() {
    let boot = "[    0.1] clocksource: Switched to clocksource hpet\n[    1.2] clocksource: Switched to clocksource tsc\n";
    assert_eq!(log(boot).messages, []);
    let later = format!("{boot}[  99.5] clocksource: Switched to clocksource hpet\n");
    assert_eq!(one(&log(&later), "slow_clocksource").lines, 1);
}

#[test]
fn other_texts_are_no_log() {
    assert!(!is_log(b"T: 0 ( 2234) P: 2 I:10000 C:  10000 Min:      9 Act:   30 Avg:   21 Max:     129\n"));
    assert!(!is_log(b"Dear all,\nI have latencies of 200 us.\n"));
    assert!(!is_log(b"{\"traceEvents\":[]}"));
    assert!(is_log(b"[    0.000000] Linux version 6.1\n[    0.000001] BIOS-provided physical RAM map:\n"));
}

/// Reads as many lines as a large log has, and keeps no more than the groups.
#[test]
fn a_flood_stays_small() {
    let text: String = (0..20_000)
        .map(|index| format!("[{index}.000001] watchdog: BUG: soft lockup - CPU#{index} stuck for 22s! [a{index}:{index}]\n"))
        .collect();
    let log = log(&text);
    assert!(log.messages.len() <= 300, "{}", log.messages.len());
    assert_eq!(log.messages.iter().map(|message| message.lines).sum::<u64>(), 20_000);
    let long = "x".repeat(1 << 20);
    assert_eq!(
        read(Cursor::new(format!("{long}\n[1.000001] sched: RT throttling activated\n")))
            .unwrap()
            .messages
            .len(),
        1
    );
}

/// A changed byte or a cut never leads to a figure that is not in the text, or to a panic.
#[test]
fn mutated_lines_give_no_false_figure() {
    for (_, line, figure_ns, ..) in LINES {
        let text = format!("[   12.345678] {line}\n");
        for at in (0..text.len()).step_by(3) {
            if !text.is_char_boundary(at) {
                continue;
            }
            let cut = log(&text[..at]);
            for message in &cut.messages {
                assert!(message.figure_ns.is_none() || message.figure_ns == *figure_ns, "{}", &text[..at]);
            }
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 0x15;
            let _ = read(Cursor::new(bytes)).unwrap();
        }
    }
}
