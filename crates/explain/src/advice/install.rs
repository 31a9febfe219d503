//! Files that install proved treatments: for systemd, sysctl, tmpfiles, tuned and irqbalance. A comment at each line says
//! what was proved.

use std::collections::BTreeMap;
use whylate_core::figure::{between, late_rate};
use whylate_core::plan::{ShieldMethod, TreatmentKind};
use whylate_core::result::{FixClaim, FixFile, FixLeftOut, FixRemoval, FixResult};
use whylate_core::{CpuSet, Facts};

const SYSCTL: &str = "/etc/sysctl.d/90-whylate.conf";
const TMPFILES: &str = "/etc/tmpfiles.d/90-whylate.conf";
const MODPROBE: &str = "/etc/modprobe.d/90-whylate.conf";
const UDEV: &str = "/etc/udev/rules.d/90-whylate.rules";
const WORKQUEUES: &str = "/sys/devices/virtual/workqueue/cpumask";
const IRQBALANCE: &str = "/etc/default/irqbalance";
/// Read by update-grub of Debian and its derivatives.
const GRUB: &str = "/etc/default/grub.d/90-whylate.cfg";
const TUNED: &str = "/etc/tuned/profiles/whylate/tuned.conf";
/// The groups that systemd keeps everything in.
const SLICES: [&str; 3] = ["system.slice", "user.slice", "init.scope"];
/// Where units go that run on the measured CPUs.
const REALTIME_SLICE: &str = "realtime.slice";

/// Makes the slice an isolated partition of cgroup v2: its CPUs are taken from all others and not balanced.
const PARTITION: &str = "/etc/systemd/system/whylate-partition.service";
const PARTITION_UNIT: &str = "\
# Enable it: systemctl enable --now whylate-partition
[Unit]
Description=Isolated partition for realtime.slice
[Service]
Type=oneshot
RemainAfterExit=yes
Slice=realtime.slice
ExecStart=/bin/sh -c 'echo isolated >/sys/fs/cgroup/realtime.slice/cpuset.cpus.partition'
[Install]
WantedBy=multi-user.target";

/// What remains to be done after each boot if there is no such partition.
const NOT_MOVED: &str = "the files keep processes away, but only an isolated partition (cgroup v2, Linux 6.1 \
                         or later) moves kernel threads: run `whylate treat apply shield` after each boot";

/// Whether cgroup v2 of this kernel has isolated partitions. Earlier kernels have only partitions of the kind `root`, which
/// stop the kernel's workers there.
fn has_isolated_partitions(facts: &Facts) -> bool {
    facts.kernel.is_from((6, 1)) && facts.environment.cgroup_version != Some(1)
}

/// CPUs as a number, as tuned takes them.
fn hexadecimal(cpus: &CpuSet) -> String {
    let digits = cpus.mask().replace(',', "");
    format!("0x{}", digits.trim_start_matches('0'))
}

/// Lines for files, and steps that no file can do.
#[derive(Default)]
struct Files {
    lines: BTreeMap<String, Vec<String>>,
    tuned: BTreeMap<&'static str, Vec<String>>,
    by_hand: Vec<FixLeftOut>,
}

/// Puts the files into `result` that install its recommendations on the machine of `facts`, where `target` is measured.
pub fn install(result: &mut FixResult, facts: &Facts, target: &CpuSet) {
    let mut files = Files::default();
    let others = facts.cpu_sets.online.difference(target);
    for arm in &result.registration.arms {
        let id = &arm.treatment.name;
        if !result.recommended.contains(id) {
            continue;
        }
        let proof = proof(id, result);
        if let Some(service) = &arm.service {
            files.service(service, &arm.treatment.kind, &proof, &others);
            if matches!(arm.treatment.kind, TreatmentKind::CpuQuota(_)) {
                continue;
            }
        }
        let known = files.add(&arm.treatment.kind, &proof, facts, (target, &others));
        if let Err(why) = known {
            files.by_hand.push(FixLeftOut { id: id.clone(), reason: proof, why });
        }
    }
    (result.files, result.by_hand) = files.finish();
}

/// `timer p99.9 x 0.77 (95 %: 0.70 to 0.84), 9 pairs, evidence 102`, and after a proof by cause `; removes thread: thief:
/// late time 3.00 ms per s -> 0, in 7 of 7 pairs, evidence 89`.
fn proof(id: &str, result: &FixResult) -> String {
    let is_proof = |claim: &&FixClaim| claim.tells_of(id);
    let Some(claim) = result.claims.iter().find(is_proof) else {
        return one_line(&format!("whylate fix: {id}"));
    };
    let number = |value: f64| format!("{value:.2}");
    let removal = claim.removal.as_ref().filter(|it| it.proved).map(removed).unwrap_or_default();
    one_line(&format!(
        "whylate fix: {id}: {} x {} (95 %: {}), {} pairs, evidence {:.0}{removal}",
        result.registration.goal.words(),
        claim.ratio.map_or_else(|| "not known".to_owned(), number),
        between((claim.ratio_low, claim.ratio_high), number),
        claim.pairs.len(),
        claim.evidence.last().copied().unwrap_or_default()
    ))
}

/// The proof by cause.
fn removed(removal: &FixRemoval) -> String {
    let verb = if removal.after_ns_per_s > 0.0 { "removes most of" } else { "removes" };
    format!(
        "; {verb} {}: late time {} -> {}, in {} of {} pairs, evidence {:.0}",
        removal.causes.join(", "),
        late_rate(removal.before_ns_per_s),
        late_rate(removal.after_ns_per_s),
        removal.removed_in,
        removal.tells_in,
        removal.evidence.last().copied().unwrap_or_default()
    )
}

/// A comment ends with its line, and a thread may have a line break in its name.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Adds a line below its proof; a line of two treatments is written once, below both proofs.
fn put(lines: &mut Vec<String>, proof: &str, line: String) {
    let comment = format!("# {proof}");
    let known = lines.iter().position(|it| *it == line);
    if !lines.contains(&comment) {
        lines.insert(known.unwrap_or(lines.len()), comment);
    }
    if known.is_none() {
        lines.push(line);
    }
}

impl Files {
    fn line(&mut self, path: &str, proof: &str, line: impl Into<String>) {
        put(self.lines.entry(path.to_owned()).or_default(), proof, line.into());
    }

    fn sysctl(&mut self, proof: &str, key: &str, value: &str) {
        self.line(SYSCTL, proof, format!("{key} = {value}"));
        put(self.tuned.entry("sysctl").or_default(), proof, format!("{key}={value}"));
    }

    /// A file of the kernel that is written at each boot.
    fn write(&mut self, proof: &str, path: &str, value: &str) {
        self.line(TMPFILES, proof, format!("w {path} - - - - {value}"));
        put(self.tuned.entry("sysfs").or_default(), proof, format!("{path}={value}"));
    }

    /// The same for each CPU, where `{cpu}` stands for one.
    fn write_each(&mut self, proof: &str, path: &str, value: &str, cpus: &CpuSet) {
        let of_cpus = cpus.iter().map(|cpu| path.replace("{cpu}", &cpu.to_string()));
        let paths: std::collections::BTreeSet<String> = of_cpus.collect();
        paths.iter().for_each(|path| self.write(proof, path, value));
    }

    fn add(
        &mut self,
        kind: &TreatmentKind,
        proof: &str,
        facts: &Facts,
        (target, others): (&CpuSet, &CpuSet),
    ) -> Result<(), String> {
        let switch = |enabled: bool| if enabled { "1" } else { "0" };
        match kind {
            TreatmentKind::Sysctl(plan) => self.sysctl(proof, &plan.key, &plan.value),
            TreatmentKind::RtThrottling(plan) => {
                let runtime = plan.runtime.map_or("-1".to_owned(), |time| (time.0 / 1_000).to_string());
                self.sysctl(proof, "kernel.sched_rt_runtime_us", &runtime);
            }
            TreatmentKind::NumaBalancing(plan) => {
                self.sysctl(proof, "kernel.numa_balancing", switch(plan.enabled));
            }
            TreatmentKind::Watchdog(plan) => self.sysctl(proof, "kernel.watchdog", switch(plan.enabled)),
            TreatmentKind::Ksm(plan) => self.write(proof, "/sys/kernel/mm/ksm/run", switch(plan.enabled)),
            TreatmentKind::Thp(plan) => {
                self.write(proof, "/sys/kernel/mm/transparent_hugepage/enabled", &plan.enabled);
            }
            TreatmentKind::Sysfs(plan) => self.write_each(proof, &plan.path, &plan.value, target),
            TreatmentKind::ModuleParameter(plan) => {
                let line = format!("options {} {}={}", plan.module, plan.parameter, plan.value);
                self.line(MODPROBE, proof, line);
            }
            TreatmentKind::Workqueue(_) => self.write(proof, WORKQUEUES, &others.mask()),
            TreatmentKind::FairServer(plan) => {
                let path = "/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime";
                self.write_each(proof, path, &plan.runtime.0.to_string(), target);
            }
            TreatmentKind::Cgroup(plan) => {
                let unit = plan.group.rsplit('/').next().unwrap_or_default();
                self.unit(unit, proof, &format!("AllowedCPUs={others}"));
            }
            TreatmentKind::Affinity(plan) => {
                self.scheduled(proof, &plan.process, &format!("0:*:*:{}", hexadecimal(others)));
            }
            TreatmentKind::Priority(plan) => {
                let policy = &plan.policy.name()[..1];
                let rule = format!("0:{policy}:{}:*", plan.priority.unwrap_or_default());
                self.scheduled(proof, &plan.thread, &rule);
            }
            TreatmentKind::PciPower(plan) if plan.links => {
                self.write(proof, "/sys/module/pcie_aspm/parameters/policy", "performance");
                self.line(UDEV, proof, "ACTION==\"add\", SUBSYSTEM==\"pci\", ATTR{power/control}=\"on\"");
            }
            TreatmentKind::Governor(plan) => self.governor(plan, proof, target),
            TreatmentKind::Idle(plan) => self.idle(plan.exit_latency_max.0, proof, facts, target),
            TreatmentKind::SmtOff(_) => {
                let of_target = facts.cpus.iter().filter(|cpu| target.contains(cpu.cpu));
                for sibling in
                    of_target.flat_map(|cpu| cpu.siblings.difference(target).iter().collect::<Vec<_>>())
                {
                    self.write(proof, &format!("/sys/devices/system/cpu/cpu{sibling}/online"), "0");
                }
            }
            TreatmentKind::IrqAffinity(plan) => self.interrupts(plan, proof, target, others),
            TreatmentKind::Shield(plan) => self.shield(plan, proof, facts, (target, others))?,
            TreatmentKind::Boot(plan) => self.boot(plan, proof)?,
            other => {
                let kind = other.kind();
                return Err(format!(
                    "no file keeps this setting: run `whylate treat apply {kind}` after each boot"
                ));
            }
        }
        Ok(())
    }

    fn governor(&mut self, plan: &whylate_core::plan::GovernorPlan, proof: &str, target: &CpuSet) {
        let of_cpus = [
            ("scaling_governor", plan.governor.clone()),
            ("scaling_min_freq", plan.min.map(|it| (it.0 / 1_000).to_string())),
            ("scaling_max_freq", plan.max.map(|it| (it.0 / 1_000).to_string())),
            ("energy_performance_preference", plan.energy_preference.clone()),
        ];
        for cpu in target.iter() {
            for (file, value) in &of_cpus {
                let Some(value) = value else { continue };
                self.write(proof, &format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}"), value);
            }
        }
        if let Some(turbo) = plan.turbo {
            let value = if turbo { "1" } else { "0" };
            self.write(proof, "/sys/devices/system/cpu/cpufreq/boost", value);
        }
    }

    fn idle(&mut self, exit_latency_max_ns: u64, proof: &str, facts: &Facts, target: &CpuSet) {
        for cpu in facts.cpus.iter().filter(|cpu| target.contains(cpu.cpu)) {
            for (index, state) in cpu.idle_states.iter().enumerate() {
                if state.exit_latency_ns.is_some_and(|latency| latency > exit_latency_max_ns) {
                    let path = format!("/sys/devices/system/cpu/cpu{}/cpuidle/state{index}/disable", cpu.cpu);
                    self.write(proof, &path, "1");
                }
            }
        }
    }

    fn interrupts(
        &mut self,
        plan: &whylate_core::plan::IrqAffinityPlan,
        proof: &str,
        target: &CpuSet,
        others: &CpuSet,
    ) {
        self.line(IRQBALANCE, proof, format!("IRQBALANCE_BANNED_CPULIST={target}"));
        put(self.tuned.entry("irqbalance").or_default(), proof, format!("banned_cpus={target}"));
        let numbers = plan.interrupts.iter().filter_map(|name| name.parse::<u32>().ok());
        for line in numbers {
            let note = format!("{proof}; the interrupt's number may change from boot to boot");
            self.line(TMPFILES, &note, format!("w /proc/irq/{line}/smp_affinity_list - - - - {others}"));
        }
        if plan.new_interrupts {
            self.line(TMPFILES, proof, format!("w /proc/irq/default_smp_affinity - - - - {}", others.mask()));
        }
    }

    /// All changes of the shield that a file can make.
    fn shield(
        &mut self,
        plan: &whylate_core::plan::ShieldPlan,
        proof: &str,
        facts: &Facts,
        (target, others): (&CpuSet, &CpuSet),
    ) -> Result<(), String> {
        let is_by_cpuset = plan.method != ShieldMethod::Affinity && has_isolated_partitions(facts);
        if plan.processes {
            for slice in SLICES {
                self.unit(slice, proof, &format!("AllowedCPUs={others}"));
            }
            let use_it = format!("# In units that are to run on CPU {target}, set Slice={REALTIME_SLICE}");
            let path = format!("/etc/systemd/system/{REALTIME_SLICE}");
            self.line(&path, proof, format!("{use_it}\n[Slice]\nAllowedCPUs={target}"));
            self.write(proof, WORKQUEUES, &others.mask());
            if is_by_cpuset {
                self.line(PARTITION, proof, PARTITION_UNIT);
            }
        }
        if plan.interrupts {
            self.line(IRQBALANCE, proof, format!("IRQBALANCE_BANNED_CPULIST={target}"));
            self.line(TMPFILES, proof, format!("w /proc/irq/default_smp_affinity - - - - {}", others.mask()));
            // Interrupts that exist at boot; a managed one refuses.
            self.line(TMPFILES, proof, format!("w- /proc/irq/*/smp_affinity_list - - - - {others}"));
        }
        if plan.local_timer {
            self.sysctl(proof, "kernel.watchdog_cpumask", &others.to_string());
            self.sysctl(proof, "vm.stat_interval", "120");
            self.sysctl(proof, "kernel.timer_migration", "0");
        }
        if plan.processes && !is_by_cpuset {
            return Err(NOT_MOVED.to_owned());
        }
        Ok(())
    }

    /// The kernel's command line, as GRUB's configuration is made from it (`update-grub`), and through tuned.
    fn boot(&mut self, plan: &whylate_core::plan::BootPlan, proof: &str) -> Result<(), String> {
        if !plan.append.is_empty() {
            let words = &plan.append;
            let line = format!("GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT {words}\"");
            self.line(GRUB, proof, line);
            let key: String =
                words.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            put(self.tuned.entry("bootloader").or_default(), proof, format!("cmdline_{key}=+{words}"));
        }
        match &plan.kernel {
            Some(kernel) => {
                Err(format!("no file selects the kernel: make Linux {kernel} the default of the boot loader"))
            }
            None => Ok(()),
        }
    }

    /// What a unit of systemd gets in addition to its own file.
    fn unit(&mut self, unit: &str, proof: &str, setting: &str) {
        let section = match unit.rsplit_once('.').map(|(_, kind)| kind) {
            Some("scope") => "[Scope]",
            Some("service") => "[Service]",
            _ => "[Slice]",
        };
        self.line(
            &format!("/etc/systemd/system/{unit}.d/90-whylate.conf"),
            proof,
            format!("{section}\n{setting}"),
        );
    }

    /// A process that systemd starts has it from its start.
    fn service(&mut self, service: &str, kind: &TreatmentKind, proof: &str, others: &CpuSet) {
        match kind {
            // The first line clears the setting of the service's own file.
            TreatmentKind::Affinity(_) => {
                self.unit(service, proof, &format!("CPUAffinity=\nCPUAffinity={others}"));
            }
            TreatmentKind::Priority(plan) => {
                let policy = format!("CPUSchedulingPolicy={}", plan.policy);
                let priority = plan.priority.map(|it| format!("\nCPUSchedulingPriority={it}"));
                let nice = plan.nice.map(|it| format!("\nNice={it}"));
                let more = priority.or(nice).unwrap_or_default();
                self.unit(service, proof, &(policy + &more));
            }
            TreatmentKind::CpuQuota(plan) => {
                self.unit(service, proof, &format!("CPUQuota={}%", plan.percent));
            }
            _ => {}
        }
    }

    /// Threads by name, also those that start later, while tuned runs.
    fn scheduled(&mut self, proof: &str, name: &str, rule: &str) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let group: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        let literal = |c: char| if is_plain(c) || c == '/' { c.to_string() } else { format!("\\{c}") };
        let pattern: Vec<String> = name.split('*').map(|part| part.chars().map(literal).collect()).collect();
        let line = format!("group.{group}={rule}:^\\[?{}", pattern.join(".*"));
        put(self.tuned.entry("scheduler").or_default(), proof, line);
    }

    fn finish(self) -> (Vec<FixFile>, Vec<FixLeftOut>) {
        let Self { mut lines, tuned, by_hand } = self;
        if !tuned.is_empty() {
            let profile = lines.entry(TUNED.to_owned()).or_default();
            profile.push("[main]\nsummary=What whylate fix proved on this machine".to_owned());
            for (section, of_section) in tuned {
                profile.push(format!("\n[{section}]"));
                profile.extend(of_section);
            }
        }
        let file = |(path, lines): (String, Vec<String>)| FixFile { path, text: lines.join("\n") + "\n" };
        (lines.into_iter().map(file).collect(), by_hand)
    }
}
