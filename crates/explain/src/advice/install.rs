//! What installs proved treatments: files for systemd, sysctl, tmpfiles, tuned and irqbalance. Each line says in a
//! comment what was proved of it.

use super::table::mask;
use std::collections::BTreeMap;
use whylate_core::figure::between;
use whylate_core::plan::TreatmentKind;
use whylate_core::result::{FixClaim, FixFile, FixLeftOut, FixPhase, FixResult};
use whylate_core::{CpuSet, Facts};

const SYSCTL: &str = "/etc/sysctl.d/90-whylate.conf";
const TMPFILES: &str = "/etc/tmpfiles.d/90-whylate.conf";
const MODPROBE: &str = "/etc/modprobe.d/90-whylate.conf";
const IRQBALANCE: &str = "/etc/default/irqbalance";
const TUNED: &str = "/etc/tuned/profiles/whylate/tuned.conf";
/// The groups that systemd keeps everything in.
const SLICES: [&str; 3] = ["system.slice", "user.slice", "init.scope"];

/// Lines for files, and what no file can do.
#[derive(Default)]
struct Files {
    lines: BTreeMap<String, Vec<String>>,
    tuned: BTreeMap<&'static str, Vec<String>>,
    by_hand: Vec<FixLeftOut>,
}

/// Puts into `result` the files that install what it recommends on the machine of `facts`, where `target` is measured.
pub fn install(result: &mut FixResult, facts: &Facts, target: &CpuSet) {
    let mut files = Files::default();
    let others = facts.cpu_sets.online.difference(target);
    for arm in &result.registration.arms {
        let id = &arm.treatment.name;
        if !result.recommended.contains(id) {
            continue;
        }
        let proof = proof(id, result);
        let known = files.add(&arm.treatment.kind, &proof, facts, (target, &others));
        if let Err(why) = known {
            files.by_hand.push(FixLeftOut { id: id.clone(), reason: proof, why });
        }
    }
    (result.files, result.by_hand) = files.finish();
}

/// `timer p99.9 x 0.77 (0.70 to 0.84), 9 pairs, evidence 102`.
fn proof(id: &str, result: &FixResult) -> String {
    let is_proof = |claim: &&FixClaim| {
        claim.phase == FixPhase::Confirm && claim.candidate.last().is_some_and(|last| last == id)
    };
    let Some(claim) = result.claims.iter().find(is_proof) else { return format!("whylate fix: {id}") };
    let number = |value: f64| format!("{value:.2}");
    format!(
        "whylate fix: {id}: {} x {} (95 %: {}), {} pairs, evidence {:.0}",
        result.registration.goal,
        claim.ratio.map_or_else(|| "not known".to_owned(), number),
        between((claim.ratio_low, claim.ratio_high), number),
        claim.pairs.len(),
        claim.evidence.last().copied().unwrap_or_default()
    )
}

impl Files {
    fn line(&mut self, path: &str, proof: &str, line: impl Into<String>) {
        let lines = self.lines.entry(path.to_owned()).or_default();
        let comment = format!("# {proof}");
        if !lines.contains(&comment) {
            lines.push(comment);
        }
        lines.push(line.into());
    }

    fn sysctl(&mut self, proof: &str, key: &str, value: &str) {
        self.line(SYSCTL, proof, format!("{key} = {value}"));
        let lines = self.tuned.entry("sysctl").or_default();
        lines.extend([format!("# {proof}"), format!("{key}={value}")]);
    }

    /// A file of the kernel that is written at each boot.
    fn write(&mut self, proof: &str, path: &str, value: &str) {
        self.line(TMPFILES, proof, format!("w {path} - - - - {value}"));
        let lines = self.tuned.entry("sysfs").or_default();
        lines.extend([format!("# {proof}"), format!("{path}={value}")]);
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
            TreatmentKind::Sysfs(plan) if plan.path.contains("{cpu}") => {
                for cpu in target.iter() {
                    self.write(proof, &plan.path.replace("{cpu}", &cpu.to_string()), &plan.value);
                }
            }
            TreatmentKind::Sysfs(plan) => self.write(proof, &plan.path, &plan.value),
            TreatmentKind::ModuleParameter(plan) => {
                let line = format!("options {} {}={}", plan.module, plan.parameter, plan.value);
                self.line(MODPROBE, proof, line);
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
            TreatmentKind::Shield(plan) => self.shield(plan, proof, target, others),
            other => {
                return Err(format!("no file installs it: whylate treat apply {}", other.kind()));
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
        let banned = self.tuned.entry("irqbalance").or_default();
        banned.extend([format!("# {proof}"), format!("banned_cpus={target}")]);
        let numbers = plan.interrupts.iter().filter_map(|name| name.parse::<u32>().ok());
        for line in numbers {
            let note = format!("{proof}; the number of the line may change from boot to boot");
            self.line(TMPFILES, &note, format!("w /proc/irq/{line}/smp_affinity_list - - - - {others}"));
        }
        if plan.new_interrupts {
            self.line(TMPFILES, proof, format!("w /proc/irq/default_smp_affinity - - - - {}", mask(others)));
        }
    }

    fn shield(
        &mut self,
        plan: &whylate_core::plan::ShieldPlan,
        proof: &str,
        target: &CpuSet,
        others: &CpuSet,
    ) {
        if plan.processes {
            for slice in SLICES {
                let path = format!("/etc/systemd/system/{slice}.d/90-whylate.conf");
                let section = if slice.ends_with(".scope") { "[Scope]" } else { "[Slice]" };
                self.line(&path, proof, format!("{section}\nAllowedCPUs={others}"));
            }
            self.write(proof, "/sys/devices/virtual/workqueue/cpumask", &mask(others));
        }
        if plan.interrupts {
            self.line(IRQBALANCE, proof, format!("IRQBALANCE_BANNED_CPULIST={target}"));
            self.line(TMPFILES, proof, format!("w /proc/irq/default_smp_affinity - - - - {}", mask(others)));
        }
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
        let file = |(path, mut lines): (String, Vec<String>)| {
            // A line that two treatments want stands once.
            let mut seen = std::collections::BTreeSet::new();
            lines.retain(|line| line.starts_with(['#', '[', '\n']) || seen.insert(line.clone()));
            FixFile { path, text: lines.join("\n") + "\n" }
        };
        (lines.into_iter().map(file).collect(), by_hand)
    }
}
