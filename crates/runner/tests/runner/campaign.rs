//! A campaign of boots on a machine made of files: every repeat has the boot that it asked for, whatever happens to the power.

use crate::mock::{MockMachine, PLAN, facts, folder, options};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use whylate_core::plan::{BootPlan, Plan, Share, Source, TreatmentKind, TreatmentPlan};
use whylate_core::result::{FixAnswer, FixArm, FixMode, FixOutcome, FixRegistration, FixResult, RunState};
use whylate_core::{Facts, Nanos};
use whylate_host::HostRoot;
use whylate_runner::campaign::{AskedBoot, Boots, Campaign, CampaignError, Loader, LoaderName, every_day};
use whylate_runner::{RunError, assemble, fix, prepare, resume_fix};
use whylate_store::{Folder, RunInfo, fix_steps};
use whylate_testing::says;

const EVERY_DAY: &str = "root=/dev/vda ro quiet";
const ARMS: [&str; 2] = ["isolcpus=3", "nohz_full=3 rcu_nocbs=3"];

/// Where the power goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    BeforeLoader,
    AfterLoader,
    WhileMeasured,
}

/// A machine that can be booted, with its loader.
struct FakeMachine {
    folder: PathBuf,
    root: HostRoot,
    boots: Cell<u32>,
    next: RefCell<Option<String>>,
    /// Words with which it never comes back.
    hangs_with: Option<&'static str>,
    /// A word that its loader loses.
    loses: Option<&'static str>,
    /// The boot, by its number, at which the power goes.
    cut: Cell<Option<(Cut, u32)>>,
}

impl FakeMachine {
    fn new(folder: &Path) -> Self {
        let machine = Self {
            folder: folder.join("campaign"),
            root: HostRoot::at(folder.join("root")),
            boots: Cell::new(0),
            next: RefCell::default(),
            hangs_with: None,
            loses: None,
            cut: Cell::default(),
        };
        machine.reboot_it();
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn reboot_it(&self) {
        self.boots.set(self.boots.get() + 1);
        let mut line = EVERY_DAY.to_owned();
        let asked = self.next.take().filter(|asked| self.hangs_with.is_none_or(|word| !asked.contains(word)));
        if let Some(asked) = asked {
            let kept = asked.split(' ').filter(|word| Some(*word) != self.loses);
            line = kept.fold(line, |line, word| format!("{line} {word}"));
        }
        self.write("proc/cmdline", &format!("{line}\n"));
        self.write("proc/sys/kernel/osrelease", "6.1.0-rt\n");
        self.write("proc/sys/kernel/random/boot_id", &format!("boot-{}\n", self.boots.get()));
    }

    fn cuts(&self, cut: Cut) {
        if self.cut.get() == Some((cut, self.boots.get())) {
            self.cut.set(None);
            panic!("the power is gone");
        }
    }

    fn facts(&self) -> Facts {
        let mut facts = facts();
        facts.kernel.boot_id = self.root.read_trimmed("/proc/sys/kernel/random/boot_id").unwrap();
        facts
    }

    /// As `whylate fix --campaign DIR --continue` does.
    fn go_on(&self) -> Result<(RunInfo, bool), RunError> {
        let campaign = Campaign::read(&self.folder).unwrap();
        let search = Campaign::search(&self.folder);
        let mut boots = Boots { root: &self.root, folder: &self.folder, campaign, loader: self };
        let mut machine = MockMachine { helps: Some("isolcpus=3"), ..MockMachine::default() };
        if self.cut.get() == Some((Cut::WhileMeasured, self.boots.get())) {
            self.cut.set(None);
            machine.hook = Some(Box::new(|_| panic!("the power is gone")));
        }
        let plan = boots.campaign.plan.clone();
        let info = if search.join("run.json").exists() {
            let prepare = |plan: Plan| prepare(plan, self.facts(), false);
            resume_fix(&search, &prepare, &machine, &mut machine.audience(), &mut boots)?
        } else {
            let _ = std::fs::remove_dir_all(&search);
            let experiment = prepare(plan, self.facts(), false).unwrap();
            let rules = FixRegistration { arms: Vec::new(), ..boots.campaign.registration.clone() };
            fix(&experiment, rules, &search, &options(), &machine, &mut machine.audience(), &mut boots)?
        };
        Ok((info, boots.waits_for_boot()))
    }

    /// Boots and continues until the campaign ends.
    fn to_the_end(&self) -> FixResult {
        let arm = |text: &&str| {
            let plan = BootPlan::of(text).unwrap();
            let treatment =
                TreatmentPlan { name: plan.name(), optional: false, kind: TreatmentKind::Boot(plan) };
            FixArm {
                treatment,
                reason: "it was named".to_owned(),
                answers: Vec::new(),
                removes: Vec::new(),
                service: None,
            }
        };
        let registration = FixRegistration {
            mode: FixMode::Search,
            goal: "timer p99".parse().unwrap(),
            margin: Share(0.05),
            alpha: 0.05,
            seed: 7,
            budget: Nanos::from_secs(1_000_000),
            cell: None,
            causes: Vec::new(),
            arms: ARMS.iter().map(arm).collect(),
            left_out: Vec::new(),
            yes: Vec::new(),
            never: Vec::new(),
            keeps_goal: true,
            first: 0,
            begun: false,
        };
        let plan = Plan::parse(&Source { name: "mock.toml", text: PLAN }, &[]).unwrap();
        let every_day = every_day(&self.root).unwrap();
        Campaign::new(plan, registration, LoaderName::Grub, every_day).write(&self.folder).unwrap();
        loop {
            assert!(self.boots.get() < 200, "it does not end");
            if let Ok(went) = catch_unwind(AssertUnwindSafe(|| self.go_on())) {
                let (info, waits) = went.unwrap();
                if info.state == RunState::Complete {
                    assert_eq!(info.restored, Some(true), "{:?}", info.warnings);
                    break;
                }
                assert!(waits, "{:?}", info.error);
            }
            self.reboot_it();
        }
        assemble(&Campaign::search(&self.folder)).unwrap().fix.unwrap()
    }
}

impl Loader for FakeMachine {
    fn check(&self, _: &BTreeSet<String>) -> Result<(), CampaignError> {
        Ok(())
    }

    fn once(&self, asked: &AskedBoot) -> Result<(), CampaignError> {
        self.cuts(Cut::BeforeLoader);
        *self.next.borrow_mut() = Some(asked.appended());
        self.cuts(Cut::AfterLoader);
        Ok(())
    }

    fn forget(&self) -> Result<(), CampaignError> {
        self.next.take();
        Ok(())
    }

    fn reboot(&self) -> Result<(), CampaignError> {
        Ok(())
    }
}

/// What was measured, without how long it took and without failed repeats.
fn course(machine: &FakeMachine) -> Vec<(Vec<String>, Option<f64>)> {
    let steps = fix_steps(&Folder::open(&Campaign::search(&machine.folder)).unwrap()).unwrap();
    steps.into_iter().map(|step| (step.treatments, step.value)).collect()
}

#[test]
fn every_repeat_has_a_boot_of_its_own_and_the_one_that_helps_is_proved() {
    let folder = folder();
    let machine = FakeMachine::new(folder.path());
    let found = machine.to_the_end();
    assert_eq!(found.answer, FixAnswer::Proved, "{}", found.sentence);
    assert_eq!(found.recommended, ["isolcpus=3"]);
    assert_eq!(machine.boots.get(), found.repeats + 1, "a boot for each repeat, and the first look");
    let install = found.files.iter().find(|file| file.path.contains("grub")).unwrap();
    assert!(install.text.contains("isolcpus=3") && !install.text.contains("nohz_full"), "{install:?}");
}

#[test]
fn the_power_may_go_at_any_line() {
    let whole = folder();
    let undisturbed = FakeMachine::new(whole.path());
    undisturbed.to_the_end();
    let expected = course(&undisturbed);
    for (cut, boot) in
        [(Cut::BeforeLoader, 1), (Cut::AfterLoader, 2), (Cut::BeforeLoader, 5), (Cut::AfterLoader, 12)]
    {
        let folder = folder();
        let machine = FakeMachine::new(folder.path());
        machine.cut.set(Some((cut, boot)));
        let found = machine.to_the_end();
        assert_eq!((machine.cut.get(), found.answer), (None, FixAnswer::Proved), "{cut:?} {boot}");
        assert_eq!(course(&machine), expected, "{cut:?} {boot}");
    }
}

#[test]
fn a_machine_that_ends_while_it_is_measured_has_a_failed_repeat() {
    let folder = folder();
    let machine = FakeMachine::new(folder.path());
    machine.cut.set(Some((Cut::WhileMeasured, 14)));
    let found = machine.to_the_end();
    assert_eq!(found.answer, FixAnswer::Proved, "{}", found.sentence);
    let steps = fix_steps(&Folder::open(&Campaign::search(&machine.folder)).unwrap()).unwrap();
    let failed: Vec<&str> = steps.iter().filter_map(|step| step.error.as_deref()).collect();
    assert!(failed.len() == 1 && says("runs-its-default-boot", failed[0]), "{failed:?}");
}

#[test]
fn an_arm_that_does_not_boot_is_given_up_and_the_others_go_on() {
    for (hangs_with, loses, expected) in [
        (Some("nohz_full=3"), None, "runs its default boot entry instead"),
        (
            None,
            Some("rcu_nocbs=3"),
            "the machine did not boot as requested; the kernel was booted without `rcu_nocbs=3`",
        ),
    ] {
        let folder = folder();
        let machine = FakeMachine { hangs_with, loses, ..FakeMachine::new(folder.path()) };
        let found = machine.to_the_end();
        assert_eq!((found.answer, found.recommended.len()), (FixAnswer::Proved, 1), "{}", found.sentence);
        let arm = found.results.iter().find(|arm| arm.id.contains("nohz_full")).unwrap();
        assert_eq!(arm.outcome, FixOutcome::Failed, "{arm:?}");
        assert!(arm.why.as_deref().unwrap().contains(expected), "{arm:?}");
    }
}
