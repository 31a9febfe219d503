//! Findings about the command line: what it asks for, compared with what the kernel does.
//!
//! An option is judged only by a file of the running kernel that shows its effect. If the kernel has no such file,
//! nothing is reported.

use super::{FindingCode, Inquiry, named};
use crate::facts::kernel_options;
use std::collections::BTreeMap;
use whylate_core::cpus::CpuSet;
use whylate_core::order::InOrder;
use whylate_core::result::Finding;

/// Options of real-time guides that no kernel has, and what is meant. Mainline and the RT patches, 4.4 to 6.18.
const WRONG: [(&str, &str); 14] = [
    ("rcu_nohz", "rcu_nocbs=LIST"),
    ("kthread_cpus", "isolcpus=domain,LIST"),
    ("isolcpu", "isolcpus=LIST"),
    ("isol_cpus", "isolcpus=LIST"),
    ("nohz_cpus", "nohz_full=LIST"),
    ("rcu_nocb", "rcu_nocbs=LIST"),
    ("rcu_nocb_cpus", "rcu_nocbs=LIST"),
    ("irq_affinity", "irqaffinity=LIST"),
    ("threadirq", "threadirqs"),
    ("max_cstate", "intel_idle.max_cstate=N or processor.max_cstate=N"),
    ("cstate", "intel_idle.max_cstate=N or processor.max_cstate=N"),
    ("nosoftlookup", "nosoftlockup"),
    ("no_watchdog", "nowatchdog"),
    ("tickless", "nohz_full=LIST"),
];

/// Options for real time.
pub(super) const REALTIME: [&str; 21] = [
    "isolcpus",
    "nohz_full",
    "nohz",
    "rcu_nocbs",
    "rcu_nocb_poll",
    "irqaffinity",
    "threadirqs",
    "preempt",
    "idle",
    "intel_idle.max_cstate",
    "processor.max_cstate",
    "cpuidle.off",
    "intel_pstate",
    "amd_pstate",
    "tsc",
    "clocksource",
    "nosmt",
    "skew_tick",
    "nosoftlockup",
    "nmi_watchdog",
    "transparent_hugepage",
];

/// Other options whose spelling is checked.
const OTHERS: [&str; 13] = [
    "cpufreq.off",
    "nowatchdog",
    "mitigations",
    "rcutree.kthread_prio",
    "rcupdate.rcu_normal",
    "rcupdate.rcu_normal_after_boot",
    "rcupdate.rcu_expedited",
    "workqueue.unbound_cpus",
    "timer_migration",
    "audit",
    "split_lock_detect",
    "hugepages",
    "maxcpus",
];

fn known() -> impl Iterator<Item = &'static str> {
    REALTIME.into_iter().chain(OTHERS)
}

/// The words of the command line by their name, with `-` as `_`, since the kernel treats both alike.
fn words(line: &str) -> Vec<(String, &str)> {
    let split = |word| str::split_once(word, '=').unwrap_or((word, ""));
    kernel_options(line).map(split).map(|(name, value)| (name.replace('-', "_"), value)).collect()
}

/// Words that the kernel does not know: by its own log if it can be read, otherwise those that look misspelt.
pub(super) fn unknown(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    let live = inquiry.live.as_ref()?;
    let line = &inquiry.facts.kernel.command_line;
    let log = live.log().into_iter().flat_map(|log| &log.messages);
    let logged: Vec<String> = log
        .filter(|message| message.code == "unknown_parameters")
        .filter_map(|message| message.function.as_ref())
        .flat_map(|list| list.split_whitespace())
        .map(|word| word.split('=').next().unwrap_or(word).replace('-', "_"))
        .collect();
    let mut found = Vec::new();
    for (name, value) in words(line) {
        let meant = meant(&name);
        let is_logged = logged.contains(&name);
        let is_of_user_space = name.contains('.') && meant.is_none() || of_user_space(&name);
        if meant.is_none() && (!is_logged || is_of_user_space) {
            continue;
        }
        let word = if value.is_empty() { name } else { format!("{name}={value}") };
        let said = if is_logged { " (unknown according to the kernel's log)" } else { "" };
        let meant = meant.map(|meant| format!(" (did you mean `{meant}`?)")).unwrap_or_default();
        found.push(format!("`{word}`{said}{meant}"));
    }
    if found.is_empty() {
        return None;
    }
    code.advice(format!("the kernel does not know some words of its command line: {}", found.join("; ")))
        .effect("the kernel ignores these words, so the options that they should set have no effect")
        .seen("/proc/cmdline", line.clone())
        .boot("correct or remove the word")
        .into()
}

/// Words that boot loaders and user space take.
fn of_user_space(name: &str) -> bool {
    const NAMES: [&str; 9] =
        ["BOOT_IMAGE", "splash", "quiet", "nosplash", "initrd", "biosdevname", "rhgb", "vt.handoff", "boot"];
    NAMES.contains(&name) || name.starts_with("rd") || name.starts_with("systemd")
}

/// The option that is meant by a word which is close to it and is no option itself.
fn meant(name: &str) -> Option<String> {
    if known().any(|it| it == name) {
        return None;
    }
    let wrong = WRONG.iter().find(|(wrong, _)| *wrong == name).map(|(_, meant)| (*meant).to_owned());
    wrong.or_else(|| known().find(|known| known.len() >= 7 && is_near(name, known)).map(str::to_owned))
}

/// Whether one letter is missing, too many, wrong, or exchanged with its neighbour.
fn is_near(word: &str, known: &str) -> bool {
    let (word, known) = (word.as_bytes(), known.as_bytes());
    let same = word.iter().zip(known).take_while(|(a, b)| a == b).count();
    let (a, b) = (&word[same..], &known[same..]);
    let cut = |rest: &[u8], count: usize| rest.get(count..).map(<[u8]>::to_vec);
    match (a.len(), b.len()) {
        (0, 0) => false,
        _ if cut(a, 1) == cut(b, 1) && cut(a, 1).is_some() => true,
        _ if cut(a, 1).as_deref() == Some(b) || cut(b, 1).as_deref() == Some(a) => true,
        _ => a.len() > 1 && b.len() > 1 && a[0] == b[1] && a[1] == b[0] && a[2..] == b[2..],
    }
}

/// A list of CPUs with the kernel's words in it: `all`, `N` for the last CPU, flags of `isolcpus` before it.
fn list(inquiry: &Inquiry, value: &str) -> Option<CpuSet> {
    let present = &inquiry.facts.cpu_sets.present;
    if value == "all" {
        return Some(present.clone());
    }
    let last = present.last().map_or(String::new(), |cpu| cpu.to_string());
    let parts = value.split(',').skip_while(|part| matches!(*part, "managed_irq" | "domain" | "nohz"));
    let parts: Vec<String> = parts.map(|part| part.replace('N', &last)).collect();
    parts.join(",").parse().ok()
}

/// Options that only a kernel with that CONFIG has.
const CONFIGS: [(&str, &str); 20] = [
    ("isolcpus", "CPU_ISOLATION"),
    ("nohz_full", "NO_HZ_FULL"),
    ("nohz", "NO_HZ_COMMON"),
    ("skew_tick", "NO_HZ_COMMON"),
    ("rcu_nocbs", "RCU_NOCB_CPU"),
    ("rcu_nocb_poll", "RCU_NOCB_CPU"),
    ("threadirqs", "IRQ_FORCED_THREADING"),
    ("preempt", "PREEMPT_DYNAMIC"),
    ("intel_idle.max_cstate", "INTEL_IDLE"),
    ("processor.max_cstate", "ACPI_PROCESSOR"),
    ("cpuidle.off", "CPU_IDLE"),
    ("cpufreq.off", "CPU_FREQ"),
    ("intel_pstate", "X86_INTEL_PSTATE"),
    ("amd_pstate", "X86_AMD_PSTATE"),
    ("nosoftlockup", "SOFTLOCKUP_DETECTOR"),
    ("nowatchdog", "LOCKUP_DETECTOR"),
    ("transparent_hugepage", "TRANSPARENT_HUGEPAGE"),
    ("numa_balancing", "NUMA_BALANCING"),
    ("psi", "PSI"),
    ("audit", "AUDIT"),
];

/// An option whose CONFIG is not in the kernel, by the kernel's own configuration.
fn not_built(inquiry: &Inquiry, name: &str, asked: &str) -> Option<Gap> {
    let config = inquiry.live.as_ref()?.config(&inquiry.facts.kernel.release)?;
    // PREEMPT_RT always does what this option asks for.
    let is_implied = name == "threadirqs" && config.has("PREEMPT_RT");
    let (_, needed) = CONFIGS.iter().find(|(option, _)| *option == name)?;
    (!is_implied && !config.has(needed)).then(|| {
        Gap(
            asked.to_owned(),
            format!("{} says that CONFIG_{needed} is not built in", config.path),
            "/proc/cmdline",
            "",
        )
    })
}

/// What an option asks for and the kernel does not do: what is asked, what holds, where that is seen, why.
struct Gap(String, String, &'static str, &'static str);

/// Options without their effect.
pub(super) fn without_effect(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    inquiry.live.as_ref()?;
    let line = &inquiry.facts.kernel.command_line;
    let by_name: BTreeMap<String, &str> = words(line).into_iter().collect();
    let gaps: Vec<Gap> = by_name.iter().filter_map(|(name, value)| gap(inquiry, name, value)).collect();
    if gaps.is_empty() {
        return None;
    }
    let texts: Vec<String> = gaps
        .iter()
        .map(|Gap(asked, is, _, why)| {
            format!("`{asked}`: {is}{}{why}", if why.is_empty() { "" } else { "; " })
        })
        .collect();
    let mut finding = code
        .advice(format!("the kernel does not do what its command line requests: {}", texts.join("; ")))
        .effect(
            "the kernel does not fully apply these options, so other tasks, interrupts or ticks can still delay the \
             measured task",
        );
    for Gap(_, is, path, _) in &gaps {
        finding = finding.seen(*path, is.clone());
    }
    finding.boot("correct the option, or boot a kernel with the CONFIG option that it needs").into()
}

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";
const DEFAULT_AFFINITY: &str = "/proc/irq/default_smp_affinity";

fn gap(inquiry: &Inquiry, name: &str, value: &str) -> Option<Gap> {
    let live = inquiry.live.as_ref()?;
    let asked = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
    if let Some(gap) = not_built(inquiry, name, &asked) {
        return Some(gap);
    }
    let sets = &inquiry.facts.cpu_sets;
    let differ = |asked_for: CpuSet, is: &CpuSet, path, why| {
        let missing = asked_for.intersection(&sets.present).difference(is);
        (!missing.is_empty())
            .then(|| Gap(asked.clone(), format!("no effect on {}", named(&missing)), path, why))
    };
    let text = |path: &'static str, is_so: &dyn Fn(&str) -> bool, why: &'static str| {
        let found = live.text(path)?;
        (!is_so(&found)).then(|| Gap(asked.clone(), format!("{path} is `{found}`"), path, why))
    };
    match name {
        // Without the flag `domain` only other things are isolated.
        "isolcpus" if value.contains("domain") || value.starts_with(|it: char| it.is_ascii_digit()) => {
            let why = if live.root.exists(ISOLATED) {
                "the list contains CPUs that are not present, or a later option replaced the list"
            } else {
                return None;
            };
            differ(list(inquiry, value)?, &sets.isolated, ISOLATED, why)
        }
        "nohz_full" => {
            let why =
                "CONFIG_NO_HZ_FULL is not built in, or the list was refused (`dmesg | grep -i housekeeping`)";
            differ(list(inquiry, value)?, &sets.nohz_full, NOHZ_FULL, why)
        }
        "rcu_nocbs" => {
            let is_any = live.table.threads.iter().any(|thread| thread.name.starts_with("rcuo"));
            let why = "CONFIG_RCU_NOCB_CPU is not built in";
            (!is_any && !live.table.threads.is_empty())
                .then(|| Gap(asked, "no thread is named rcuo…".to_owned(), "/proc/PID/comm", why))
        }
        "irqaffinity" => {
            let is = live.mask(DEFAULT_AFFINITY)?;
            let asked_for = list(inquiry, value)?;
            let more = is.difference(&asked_for);
            (!more.is_empty() && !asked_for.is_empty()).then(|| {
                Gap(
                    asked,
                    format!("interrupts may also use {}", named(&more)),
                    DEFAULT_AFFINITY,
                    "this was changed after boot",
                )
            })
        }
        "nosmt" => text("/sys/devices/system/cpu/smt/active", &|is| is == "0", ""),
        "nmi_watchdog" if value == "0" => {
            text("/proc/sys/kernel/nmi_watchdog", &|is| is == "0", "this was changed after boot")
        }
        "nowatchdog" => text("/proc/sys/kernel/watchdog", &|is| is == "0", "this was changed after boot"),
        "clocksource" => text(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            &|is| is == value,
            "the kernel does not have the requested source, or stopped using it",
        ),
        "transparent_hugepage" => text(
            "/sys/kernel/mm/transparent_hugepage/enabled",
            &|is| is.contains(&format!("[{value}]")),
            "this was changed after boot",
        ),
        "idle" if value == "poll" => {
            text("/sys/devices/system/cpu/cpuidle/current_driver", &|is| is == "none", "")
        }
        "intel_idle.max_cstate" => {
            text("/sys/module/intel_idle/parameters/max_cstate", &|is| is == value, "")
        }
        "processor.max_cstate" => text(
            "/sys/devices/system/cpu/cpuidle/current_driver",
            &|is| is != "intel_idle",
            "the driver intel_idle has its own option: intel_idle.max_cstate",
        ),
        "preempt" => {
            let preemption = &inquiry.facts.kernel.preemption;
            let why = "only PREEMPT_DYNAMIC kernels have this option";
            (!preemption.is_empty() && !preemption.starts_with("PREEMPT_DYNAMIC"))
                .then(|| Gap(asked, format!("the kernel is built as {preemption}"), "/proc/version", why))
        }
        "mitigations" if value == "off" => {
            let all = &inquiry.facts.kernel.mitigations;
            let on = all.iter().find(|(_, state)| state.starts_with("Mitigation"))?;
            Some(Gap(
                asked,
                format!("the kernel reports `{}: {}`", on.0, on.1),
                "/sys/devices/system/cpu/vulnerabilities",
                "",
            ))
        }
        _ => None,
    }
}

/// Options that contradict each other, and those that are given twice.
pub(super) fn contradictions(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    inquiry.live.as_ref()?;
    let line = &inquiry.facts.kernel.command_line;
    let all = words(line);
    let last = |name: &str| all.iter().rev().find(|(of, _)| of == name).map(|(_, value)| *value);
    let cpus = |name: &str| last(name).and_then(|value| list(inquiry, value));
    let mut found = Vec::new();
    let present = &inquiry.facts.cpu_sets.present;
    let isolated = cpus("isolcpus");
    let affinity = cpus("irqaffinity");
    let mut right = None;
    if let (Some(isolated), Some(affinity)) = (&isolated, &affinity) {
        let both = isolated.intersection(affinity);
        if !both.is_empty() {
            let house = present.difference(isolated);
            found.push(format!(
                "`irqaffinity={}` allows interrupts on the isolated {}; the housekeeping CPUs are {house}",
                last("irqaffinity").unwrap_or_default(),
                named(&both),
            ));
            right = Some(format!("boot with `irqaffinity={house}`"));
        }
    }
    if let (Some(isolated), Some(full)) = (&isolated, cpus("nohz_full"))
        && !full.is_empty()
        && *isolated != full
    {
        found.push(format!(
            "`isolcpus` lists {} and `nohz_full` lists {}: CPUs in only one of the lists are not fully isolated",
            named(isolated),
            named(&full)
        ));
    }
    if let (Some(full), Some(offloaded)) = (cpus("nohz_full"), cpus("rcu_nocbs")) {
        let extra = offloaded.difference(&full);
        let missing = full.difference(&offloaded);
        if !missing.is_empty() && !extra.is_empty() {
            found.push(format!(
                "`rcu_nocbs` lists {} and `nohz_full` lists {}",
                named(&offloaded),
                named(&full)
            ));
        }
    }
    if let Some(value) = last("isolcpus").filter(|value| !value.contains("managed_irq"))
        && isolated.as_ref().is_some_and(|isolated| !isolated.is_empty())
    {
        found.push(format!("`isolcpus={value}` lacks `managed_irq`: interrupts of device queues (NVMe, network) still reach these CPUs"));
    }
    if last("nohz") == Some("off") && last("nohz_full").is_some() {
        found.push("`nohz=off` makes `nohz_full` ineffective: the tick never stops".to_owned());
    }
    for (index, (name, value)) in all.iter().enumerate() {
        let later = all[index + 1..].iter().find(|(of, other)| of == name && other != value);
        let may_repeat =
            matches!(name.as_str(), "console" | "earlycon" | "hugepages" | "hugepagesz" | "root");
        if let Some((_, other)) = later.filter(|_| known().any(|it| it == name) && !may_repeat) {
            found.push(format!("`{name}={value}` is overridden by the later `{name}={other}`"));
        }
    }
    if found.is_empty() {
        return None;
    }
    let finding = code
        .advice(format!("options of the command line contradict each other: {}", found.join("; ")))
        .effect("the CPUs are less isolated than intended")
        .seen("/proc/cmdline", line.clone());
    let fix = right.unwrap_or_else(|| {
        "give isolcpus=managed_irq,domain,LIST, nohz_full=LIST and rcu_nocbs=LIST once each, with the same list".to_owned()
    });
    Some(inquiry.boot(finding, fix))
}

/// Programs that read every CPU's registers or statistics now and then: each read of /dev/cpu/N/msr is a call to that CPU.
pub(super) fn pollers(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const NAMES: [&str; 18] = [
        "telegraf",
        "collectd",
        "node_exporter",
        "prometheus-node",
        "netdata",
        "turbostat",
        "powertop",
        "tlp",
        "thermald",
        "pmcd",
        "pmdalinux",
        "intel_gpu_top",
        "mcelog",
        "i7z",
        "s-tui",
        "corefreqd",
        "pcm",
        "powerstat",
    ];
    let live = inquiry.live.as_ref()?;
    if inquiry.facts.cpu_sets.isolated.intersection(inquiry.targets).is_empty() {
        return None;
    }
    let processes = live.root.list_numbered("/proc", "").ok()?;
    let mut found: Vec<String> = processes
        .into_iter()
        .filter_map(|pid| live.root.read_trimmed(&format!("/proc/{pid}/comm")).ok()?)
        .filter(|name| NAMES.iter().any(|it| name == it))
        .collect();
    found.order();
    found.dedup();
    if found.is_empty() {
        return None;
    }
    code.advice(format!("these programs may read registers (MSRs) of all CPUs: {}", found.join(", ")))
        .effect(
            "each read of /dev/cpu/N/msr (power, temperature) interrupts CPU N, even if that CPU is isolated; such programs \
             often read all CPUs every 10 s",
        )
        .seen("/proc/PID/comm", found.join(", "))
        .now("while real-time tasks run, stop these programs, disable their MSR plugins (telegraf: intel_powerstat), or make them poll less often")
        .into()
}

/// Calls into the firmware may end in an SMI, and run with preemption disabled.
pub(super) fn firmware_calls(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/sys/firmware/efi/efivars";
    let live = inquiry.live.as_ref()?;
    let is_on = live.root.exists(PATH) && !live.root.list(PATH).unwrap_or_default().is_empty();
    if !is_on {
        return None;
    }
    code.info("EFI runtime services are on: the kernel reads EFI variables and the clock through the firmware")
        .effect("a firmware call runs with preemption disabled; on many boards it raises an SMI that stops all CPUs for milliseconds")
        .seen(PATH, "present")
        .boot("boot with `efi=noruntime` (the default of PREEMPT_RT)")
        .into()
}

/// Pressure stall information: more work at each switch, a work item every 2 s on CPUs that are not idle, and a thread
/// where a program waits for a trigger.
pub(super) fn pressure(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/proc/pressure/cpu";
    let live = inquiry.live.as_ref()?;
    let line = live.text(PATH)?.lines().next()?.to_owned();
    let is_polled = live.table.threads.iter().any(|thread| thread.name == "psimon");
    let polled = if is_polled {
        "; a program has set a PSI trigger, which the thread psimon (FIFO 1) checks up to 20 times a second"
    } else {
        ""
    };
    code.info(format!("pressure stall information (PSI) is on{polled}"))
        .effect("PSI adds work to each context switch and wake-up, also for each control group; on busy CPUs a kworker computes averages every 2 s")
        .seen(PATH, line)
        .boot("if no program reads PSI (systemd-oomd does): boot with `psi=0`")
        .into()
}

/// Since Linux 6.9 the last idle CPU of a group runs the timers of the others, isolated or not.
pub(super) fn pulled_timers(inquiry: &Inquiry, code: FindingCode) -> Option<Finding> {
    const PATH: &str = "/proc/sys/kernel/timer_migration";
    let live = inquiry.live.as_ref()?;
    let release = super::system::release(&inquiry.facts.kernel.release)?;
    let isolated = inquiry.facts.cpu_sets.isolated.intersection(inquiry.targets);
    let open = isolated.difference(&inquiry.facts.cpu_sets.nohz_full);
    if release < (6, 9) || open.is_empty() || live.number(PATH)? == 0 {
        return None;
    }
    code.advice(format!("isolated {} may run timers of other CPUs", named(&open)))
        .effect("since Linux 6.9 an idle CPU handles timers of other idle CPUs; CPUs in `nohz_full` are exempt, and in newer kernels isolated CPUs, too")
        .seen(PATH, "1")
        .now("sudo sysctl -w kernel.timer_migration=0")
        .boot(format!("boot with `nohz_full={open}`"))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_options_are_near_to_known_ones() {
        for (word, known) in [
            ("isolcpu", "isolcpus"),
            ("nohz_ful", "nohz_full"),
            ("irqafinity", "irqaffinity"),
            ("threadirsq", "threadirqs"),
            ("skew_tock", "skew_tick"),
        ] {
            assert!(is_near(word, known), "{word}");
        }
        for word in ["isolcpus", "isolation", "nohz", ""] {
            assert!(!is_near(word, "isolcpus"), "{word}");
        }
        assert_eq!(meant("isolcpus"), None);
        assert!(meant("rcu_nohz").is_some_and(|meant| meant.contains("rcu_nocbs")));
        assert_eq!(meant("quiet"), None);
    }
}
