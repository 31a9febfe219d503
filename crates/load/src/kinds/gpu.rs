//! The gpu load: done by the helper `whylate-gpu`, since a static program cannot load drivers. The helper links this crate
//! and gives what it can do by [`set_maker`]; in whylate itself there is only the search for the helper.

use super::events::{Act, Acts, Keys};
use crate::error::LoadError;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use whylate_core::plan::GpuPlan;
use whylate_sys::schedule::{Scheduling, schedule_this_thread};

/// The helper's name, beside whylate.
const NAME: &str = "whylate-gpu";
/// The variable that names another one.
const VARIABLE: &str = "WHYLATE_GPU";
/// The longest that the helper may prepare: drivers are loaded, programs are translated and run once.
const PREPARED_WITHIN: Duration = Duration::from_secs(60);

/// How long the list of devices may take.
const LIST_WITHIN: Duration = Duration::from_secs(5);

/// Makes the work of a plan.
pub type Maker = fn(&GpuPlan) -> Result<Box<dyn Act>, LoadError>;

static MAKER: OnceLock<Maker> = OnceLock::new();

/// Says that this process is the helper.
pub(crate) fn set_maker(maker: Maker) {
    // A second one is never given.
    let _ = MAKER.set(maker);
}

/// The helper's executable.
///
/// # Errors
/// [`LoadError::Unavailable`], saying where it was looked for.
pub fn gpu_helper() -> Result<PathBuf, LoadError> {
    let (path, how) = match std::env::var_os(VARIABLE) {
        Some(path) => (PathBuf::from(path), VARIABLE.to_owned()),
        None => {
            let own = std::env::current_exe().map_err(LoadError::system("finding this program"))?;
            (own.with_file_name(NAME), format!("beside {}", own.display()))
        }
    };
    if Path::is_file(&path) {
        return Ok(path);
    }
    let text = format!("the gpu load: there is no {NAME} ({how}: {}); install it there", path.display());
    Err(LoadError::Unavailable(format!("{text}, or name it in {VARIABLE}")))
}

/// What the helper says of the devices here: the document `whylate.gpus/1`.
///
/// # Errors
/// [`LoadError::Unavailable`] without a helper or a device, and when the helper gives no answer in
/// time.
pub fn gpu_list() -> Result<serde_json::Value, LoadError> {
    let helper = gpu_helper()?;
    let name = helper.display().to_string();
    let mut child = Command::new(&helper)
        .arg("list")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(LoadError::system(format!("starting {name}")))?;
    let (tell, told) = mpsc::channel();
    if let Some(mut output) = child.stdout.take() {
        thread::spawn(move || {
            let mut text = String::new();
            let _ = output.read_to_string(&mut text);
            let _ = tell.send(text);
        });
    }
    let answer = told.recv_timeout(LIST_WITHIN);
    // It has ended, or it hangs; one that hangs in the kernel is not waited for.
    let _ = child.kill();
    let _ = child.try_wait();
    let seconds = LIST_WITHIN.as_secs();
    let text =
        answer.map_err(|_| LoadError::Unavailable(format!("{name} gives no answer within {seconds} s")))?;
    let list: serde_json::Value = serde_json::from_str(&text)
        .map_err(|_| LoadError::Unavailable(format!("{name} ended without an answer")))?;
    match list["devices"].as_array() {
        Some(devices) if !devices.is_empty() => Ok(list),
        _ => Err(LoadError::Unavailable(list["reason"].as_str().unwrap_or("there is no device").to_owned())),
    }
}

impl Acts for GpuPlan {
    const NAME: &'static str = "gpu";
    const PREPARED_WITHIN: Option<Duration> = Some(PREPARED_WITHIN);

    fn unit(&self) -> &'static str {
        self.work.unit()
    }

    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: None, rate: self.rate.as_pace() }
    }

    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        let missing = || LoadError::Unavailable(format!("the gpu load is done by {NAME} only"));
        let maker = MAKER.get().ok_or_else(missing)?;
        if let Some(priority) = self.priority {
            schedule_this_thread(Scheduling::Fifo(u32::from(priority)))
                .map_err(LoadError::system(format!("SCHED_FIFO priority {priority} for the gpu load")))?;
        }
        maker(self)
    }

    fn check(&self) -> Result<(), LoadError> {
        if MAKER.get().is_some() { Ok(()) } else { gpu_helper().map(drop) }
    }

    fn program(&self) -> Result<Option<PathBuf>, LoadError> {
        gpu_helper().map(Some)
    }
}
