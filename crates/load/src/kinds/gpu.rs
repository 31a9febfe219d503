//! The gpu load: the helper `whylate-gpu` does it, since a static program cannot load drivers. The helper links this
//! crate and registers its abilities by [`set_maker`]; whylate itself only searches for the helper.

use super::events::{Act, Acts, Keys};
use crate::error::LoadError;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use whylate_core::plan::GpuPlan;
use whylate_core::result::{BackendFacts, CopyTable};
use whylate_sys::schedule::{Scheduling, schedule_this_thread};

const NAME: &str = "whylate-gpu";
/// The variable that names another one.
const VARIABLE: &str = "WHYLATE_GPU";
/// The longest that the helper may prepare: it loads drivers, translates programs and runs them once.
const PREPARED_WITHIN: Duration = Duration::from_secs(60);

/// How long the list of devices may take.
const LIST_WITHIN: Duration = Duration::from_secs(5);

/// Makes the work of a plan.
pub type Maker = fn(&GpuPlan) -> Result<Box<dyn Act>, LoadError>;

static MAKER: OnceLock<Maker> = OnceLock::new();

/// Says that this process is the helper.
pub(crate) fn set_maker(maker: Maker) {
    // Later calls have no effect.
    let _ = MAKER.set(maker);
}

/// The helper's executable.
pub fn gpu_helper() -> Result<PathBuf, LoadError> {
    let (path, how) = match std::env::var_os(VARIABLE) {
        Some(path) => (PathBuf::from(path), VARIABLE.to_owned()),
        None => {
            let own = std::env::current_exe().map_err(LoadError::system("finding this program"))?;
            (own.with_file_name(NAME), format!("next to {}", own.display()))
        }
    };
    if Path::is_file(&path) {
        return Ok(path);
    }
    let text = format!("{NAME} was not found ({how}: {}); install {NAME} at this path", path.display());
    Err(LoadError::Unavailable(format!("{text}, or set {VARIABLE} to the path of {NAME}")))
}

/// The ways to get memory that only the helper has: names and meanings.
pub const GPU_BACKENDS: [(&str, &str); 3] = [
    ("vulkan", "memory of Vulkan devices that the host can map, by memory type (through whylate-gpu)"),
    ("cuda", "page-locked and managed memory of the CUDA driver (through whylate-gpu)"),
    ("card", "a card's own memory through its PCI window, as Vulkan maps it (through whylate-gpu)"),
];

/// The helper, when a load's memory is of one of its backends.
pub(super) fn helper_of(backend: Option<&str>) -> Result<Option<PathBuf>, LoadError> {
    let is_of_helper = backend.is_some_and(|name| GPU_BACKENDS.iter().any(|(known, _)| *known == name));
    is_of_helper.then(gpu_helper).transpose()
}

/// Whether this process is the helper.
pub(super) fn is_helper() -> bool {
    MAKER.get().is_some()
}

/// What the helper reports of the devices here: the document `whylate.gpus/1`.
///
/// # Errors
/// [`LoadError::Unavailable`] without a helper or a device, and when the helper gives no answer in time.
pub fn gpu_list() -> Result<serde_json::Value, LoadError> {
    let list = ask("list", LIST_WITHIN)?;
    match list["devices"].as_array() {
        Some(devices) if !devices.is_empty() => Ok(list),
        _ => Err(LoadError::Unavailable(list["reason"].as_str().unwrap_or("there is no device").to_owned())),
    }
}

/// What each of [`GPU_BACKENDS`] offers here, or why it does not.
pub fn gpu_backends() -> Vec<BackendFacts> {
    let answer = ask("backends", LIST_WITHIN).and_then(|answer| {
        serde_json::from_value(answer).map_err(|error| LoadError::Unavailable(error.to_string()))
    });
    answer.unwrap_or_else(|error| {
        let absent = |(name, meaning): (&str, &str)| BackendFacts {
            name: name.to_owned(),
            meaning: meaning.to_owned(),
            offers: Vec::new(),
            reason: Some(error.to_string()),
        };
        GPU_BACKENDS.map(absent).to_vec()
    })
}

/// The helper's table of copies for a request of one line. `progress` gets the share that is done, and says whether to
/// go on.
///
/// # Errors
/// [`LoadError::Unavailable`] without a helper or what it needs, and when it falls silent.
pub fn gpu_copies(
    request: &str,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Option<CopyTable>, LoadError> {
    let mut helper = Helper::start("copies", request)?;
    let table = loop {
        let mut answer = helper.answer(PREPARED_WITHIN)?;
        if let Some(error) = answer["error"].as_str() {
            return Err(LoadError::Unavailable(error.to_owned()));
        }
        if let Some(done) = answer["done"].as_f64() {
            if !progress(done) {
                return Ok(None);
            }
            continue;
        }
        break serde_json::from_value(answer["table"].take());
    };
    table.map(Some).map_err(|error| LoadError::Unavailable(format!("{NAME} gave an invalid answer: {error}")))
}

/// The helper's only answer to a word.
fn ask(word: &str, within: Duration) -> Result<serde_json::Value, LoadError> {
    Helper::start(word, "")?.answer(within)
}

/// The helper at work; killed when dropped. If it hangs in the kernel, nothing waits for it.
struct Helper {
    child: Child,
    lines: Receiver<String>,
    name: String,
}

impl Helper {
    fn start(word: &str, request: &str) -> Result<Self, LoadError> {
        let path = gpu_helper()?;
        let name = path.display().to_string();
        let mut child = Command::new(&path)
            .arg(word)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(LoadError::system(format!("starting {name}")))?;
        if let Some(mut input) = child.stdin.take() {
            // A helper that has ended does not answer.
            let _ = writeln!(input, "{request}");
        }
        let (tell, lines) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let lines = BufReader::new(output).lines().map_while(Result::ok);
                lines.into_iter().try_for_each(|line| tell.send(line))
            });
        }
        Ok(Self { child, lines, name })
    }

    fn answer(&mut self, within: Duration) -> Result<serde_json::Value, LoadError> {
        let Self { name, lines, .. } = self;
        let line = lines.recv_timeout(within).map_err(|error| {
            LoadError::Unavailable(match error {
                RecvTimeoutError::Timeout => {
                    format!("{name} does not answer within {} s", within.as_secs())
                }
                RecvTimeoutError::Disconnected => format!("{name} ended without an answer"),
            })
        })?;
        serde_json::from_str(&line)
            .map_err(|_| LoadError::Unavailable(format!("{name} gave an unreadable answer")))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.try_wait();
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
        let missing = || LoadError::Unavailable(format!("only {NAME} can run the gpu load"));
        let maker = MAKER.get().ok_or_else(missing)?;
        if let Some(priority) = self.priority {
            schedule_this_thread(Scheduling::Fifo(u32::from(priority)))
                .map_err(LoadError::system(format!("setting SCHED_FIFO {priority} for the gpu load")))?;
        }
        maker(self)
    }

    fn check(&self) -> Result<(), LoadError> {
        if is_helper() { Ok(()) } else { gpu_helper().map(drop) }
    }

    fn program(&self) -> Result<Option<PathBuf>, LoadError> {
        gpu_helper().map(Some)
    }
}
