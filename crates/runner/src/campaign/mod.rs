//! A campaign: a search whose treatments need a boot, each repeat of it in a boot of its own.
//!
//! A campaign is a folder: `campaign.json` (what was registered, which boot was asked for, what was written elsewhere), `search/`
//! (the run directory of the search, as for any `whylate fix`) and `continue.sh`, which a systemd unit runs after
//! each boot. The search says which arms come next; the boot loader is set to boot them once; after the boot
//! `/proc/cmdline` says whether it did. The default entry is never changed, so that a machine that does not come back
//! falls to it at its next boot.
//!
//! Every state is on the disk before what it announces is done; a power cut at any place leaves one of these:
//!
//! | on the disk | after the next boot |
//! |---|---|
//! | nothing asked | the search goes on |
//! | asked, loader perhaps set | booted so: measured; else asked again |
//! | asked, loader set | booted so: measured; else the repeat failed: it did not come back, or not as asked |

mod loader;
mod outside;
mod state;
mod unit;

pub use loader::{AskedBoot, Loader, LoaderName, ways};
pub use outside::Outside;
pub use state::{CAMPAIGN_FILE, Campaign, CampaignError};
pub use unit::Continuation;

use crate::fix::{Adviser, Boot, Proposal};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use whylate_core::Nanos;
use whylate_core::plan::{BootPlan, TreatmentKind};
use whylate_core::result::{FixArm, FixRegistration, RunResult};
use whylate_host::HostRoot;
use whylate_treat::kinds::boot::{command_line, lacks, release};

/// Names the boot on the kernel's command line. The kernel takes it for a parameter of a module and ignores it.
const MARK: &str = "whylate.boot=";
/// A jump of the clock does not use up the budget.
const BOOT_MAX: Duration = Duration::from_secs(3_600);

/// Boots the arms of a search: proposes those of the campaign, and says whether the machine runs as a repeat needs it.
pub struct Boots<'a> {
    /// The machine, below `/`.
    pub root: &'a HostRoot,
    pub folder: &'a Path,
    /// Its state, which is on the disk.
    pub campaign: Campaign,
    pub loader: &'a dyn Loader,
}

/// What runs now, compared with what was asked for.
#[derive(Debug, PartialEq, Eq)]
enum BootFound {
    /// The boot that was asked for.
    Asked,
    /// The machine has not been booted since.
    SameBoot,
    /// Another boot; why it is not the one asked for.
    Other(String),
}

impl Boots<'_> {
    /// Whether the next thing to do is a boot.
    pub fn waits_for_boot(&self) -> bool {
        self.campaign.asked.as_ref().is_some_and(|asked| matches!(self.found(asked), Ok(BootFound::SameBoot)))
    }

    /// Whether the machine runs in a boot that a campaign asked for.
    pub fn is_booted_by_campaign(&self) -> Result<bool, CampaignError> {
        Ok(command_line(self.root)?.split_whitespace().any(|word| word.starts_with(MARK)))
    }

    fn mark(&self) -> Option<String> {
        let line = command_line(self.root).ok()?;
        line.split_whitespace().find(|word| word.starts_with(MARK)).map(str::to_owned)
    }

    /// The boot of a repeat with those arms.
    fn wanted(&self, step: usize, arms: &[&FixArm]) -> Result<AskedBoot, String> {
        let plans: Vec<&BootPlan> = arms.iter().filter_map(|arm| boot_of(arm)).collect();
        let kernels: BTreeSet<&String> = plans.iter().filter_map(|plan| plan.kernel.as_ref()).collect();
        if kernels.len() > 1 {
            return Err("the treatments need different kernels".to_owned());
        }
        let words: Vec<String> = plans.iter().flat_map(|plan| plan.words().map(str::to_owned)).collect();
        Ok(AskedBoot {
            step,
            words,
            kernel: kernels.into_iter().next().cloned().unwrap_or_else(|| self.campaign.kernel.clone()),
            from_boot: boot_id(self.root)?,
            at_s: now_s(),
            told: false,
        })
    }

    /// Compares the running kernel with what was asked for.
    fn found(&self, asked: &AskedBoot) -> Result<BootFound, String> {
        let text = |error: whylate_host::HostError| error.to_string();
        if boot_id(self.root)? == asked.from_boot {
            return Ok(BootFound::SameBoot);
        }
        if self.mark().as_deref() != Some(&asked.mark()) {
            let line = "the machine runs its default boot entry instead of the requested one: that entry did \
                        not boot, the machine crashed while measuring, or the boot loader ignored the request";
            return Ok(BootFound::Other(line.to_owned()));
        }
        let plan = BootPlan { append: asked.words.join(" "), kernel: Some(asked.kernel.clone()) };
        if let Some(what) = lacks(self.root, &plan).map_err(text)? {
            return Ok(BootFound::Other(format!("the machine did not boot as requested; {what}")));
        }
        let line = command_line(self.root).map_err(text)?;
        let own: BTreeSet<&str> = self.campaign.command_line.split_whitespace().collect();
        let others = self.campaign.registration.arms.iter().filter_map(boot_of).flat_map(BootPlan::words);
        let foreign = others
            .filter(|word| !own.contains(word) && !asked.words.iter().any(|it| it == word))
            .find(|word| line.split_whitespace().any(|it| it == *word));
        Ok(match foreign {
            Some(word) => BootFound::Other(format!(
                "the machine did not boot as requested; its command line also has `{word}`"
            )),
            None => BootFound::Asked,
        })
    }

    /// Makes the loader boot that once. The machine is not booted yet.
    fn ask(&mut self, asked: AskedBoot) -> Result<(), String> {
        let text = |error: CampaignError| error.to_string();
        self.campaign.asked = Some(asked.clone());
        self.campaign.write(self.folder).map_err(text)?;
        self.loader.once(&asked).map_err(text)?;
        self.campaign.asked = Some(AskedBoot { told: true, ..asked });
        self.campaign.write(self.folder).map_err(text)
    }
}

impl Adviser for Boots<'_> {
    fn propose(&mut self, _: &FixRegistration, _: &RunResult, _: &str) -> Result<Option<Proposal>, String> {
        let arms = self.campaign.registration.arms.clone();
        Ok(Some(Proposal { arms, ..Proposal::default() }))
    }

    fn boot(&mut self, step: usize, arms: &[&FixArm]) -> Result<Boot, String> {
        let wanted = match self.wanted(step, arms) {
            Ok(wanted) => wanted,
            Err(why) => return Ok(Boot::Failed { why, took: Nanos(0) }),
        };
        let known =
            self.campaign.asked.clone().filter(|asked| asked.step == step && asked.words == wanted.words);
        let Some(asked) = known else {
            self.ask(wanted)?;
            return Ok(Boot::Asked);
        };
        let since = Duration::from_secs(now_s().saturating_sub(asked.at_s)).min(BOOT_MAX);
        let took = Nanos(since.as_nanos() as u64);
        match self.found(&asked)? {
            BootFound::Asked => Ok(Boot::Ready { took }),
            BootFound::Other(why) if asked.told => Ok(Boot::Failed { why, took }),
            // The power went before the loader was set, or the machine was not booted yet.
            BootFound::SameBoot | BootFound::Other(_) => {
                self.ask(AskedBoot { from_boot: wanted.from_boot, ..asked })?;
                Ok(Boot::Asked)
            }
        }
    }
}

/// What the arm asks of the boot.
pub(crate) fn boot_of(arm: &FixArm) -> Option<&BootPlan> {
    match &arm.treatment.kind {
        TreatmentKind::Boot(plan) => Some(plan),
        _ => None,
    }
}

/// Allows this process to run on every online CPU: `isolcpus=` keeps what starts with the machine off the CPUs that it
/// names, and an arm with it has to measure there. The cpuset still limits it.
pub fn use_all_cpus(root: &HostRoot) {
    if let (true, Ok(Some(online))) = (root.is_real(), root.read_cpus("/sys/devices/system/cpu/online")) {
        // CPUs that are still not allowed are refused later, by the facts, with the reason.
        _ = whylate_sys::schedule::pin_this_thread(&online);
    }
}

/// The default kernel, and its command line without what a campaign added.
pub fn every_day(root: &HostRoot) -> Result<(String, String), CampaignError> {
    let line = command_line(root)?;
    let words: Vec<&str> = line.split_whitespace().filter(|word| !word.starts_with(MARK)).collect();
    Ok((release(root)?, words.join(" ")))
}

fn boot_id(root: &HostRoot) -> Result<String, String> {
    let id = root.read_trimmed("/proc/sys/kernel/random/boot_id").map_err(|error| error.to_string())?;
    id.ok_or_else(|| "the kernel reports no boot ID (/proc/sys/kernel/random/boot_id)".to_owned())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
