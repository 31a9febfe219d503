//! `boot`: what the kernel was started with. Nothing is changed: the command line of a running kernel is fixed.

use crate::planner::{Impossible, Planned, Planner, Surroundings};
use whylate_core::plan::BootPlan;
use whylate_host::{HostError, HostRoot};

const COMMAND_LINE: &str = "/proc/cmdline";
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// What the kernel below `root` was started with; an empty text if that is not known.
pub fn command_line(root: &HostRoot) -> Result<String, HostError> {
    Ok(root.read_trimmed(COMMAND_LINE)?.unwrap_or_default())
}

/// Its version, as `uname -r` prints it.
pub fn release(root: &HostRoot) -> Result<String, HostError> {
    Ok(root.read_trimmed(RELEASE)?.unwrap_or_default())
}

/// What the kernel below `root` lacks of `plan`, as a sentence; `None` if it was booted with all of it.
pub fn lacks(root: &HostRoot, plan: &BootPlan) -> Result<Option<String>, HostError> {
    let (line, release) = (command_line(root)?, release(root)?);
    if let Some(kernel) = plan.kernel.as_ref().filter(|kernel| **kernel != release) {
        return Ok(Some(format!("the running kernel is {release}, not {kernel}")));
    }
    let own: Vec<&str> = line.split_whitespace().take_while(|word| *word != "--").collect();
    let missing: Vec<&str> = plan.words().filter(|word| !own.contains(word)).collect();
    let said = || format!("the kernel was booted without `{}` ({COMMAND_LINE})", missing.join(" "));
    Ok((!missing.is_empty()).then(said))
}

impl Planner for BootPlan {
    fn plan(&self, surroundings: &Surroundings) -> Result<Planned, Impossible> {
        match lacks(&surroundings.root, self)? {
            None => Ok(Planned::default()),
            Some(what) => Err(Impossible::new(format!(
                "{what}; to test this with reboots: `whylate fix --campaign DIR --boot '{}'`",
                self.name()
            ))),
        }
    }
}
