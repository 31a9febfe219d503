//! What the helper can do on a device: one turn of each load, with its result checked.

mod compute;
mod copy;
pub(crate) mod cuda;
mod other;
mod particles;

use crate::vulkan::{ANSWER_WITHIN, Buffer, Gpu, GpuError, Kind, Listed};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use whylate_copy::{Kernels, Random};
use whylate_core::plan::{GpuApi, GpuMemory, GpuPlan, GpuWait, GpuWork};
use whylate_load::{Act, LoadError};

/// The shaders of `shaders/`, as build.rs translated them.
macro_rules! shader {
    ($name:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".spv"))
    };
}
pub(crate) use shader;

/// By how much a turn may be longer than the longest wait in it: a driver's calls may hang as well.
const WATCHED_LATER: Duration = Duration::from_millis(500);

/// One turn of this many is checked where the check takes longer than the turn.
pub(crate) const CHECKED_EACH: u64 = 64;

/// What copies move: nothing that a driver could leave out.
fn random(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    Kernels::best().fill_random(&mut data, &mut Random::new(1));
    data
}

/// Prepares a load of that plan, in the thread that does it.
///
/// # Errors
/// [`LoadError::Unavailable`] when the machine lacks something, [`LoadError::Reported`] when it fails.
pub(crate) fn start(plan: &GpuPlan) -> Result<Box<dyn Act>, LoadError> {
    let said = |error| match error {
        GpuError::Absent(text) => LoadError::Unavailable(format!("the gpu load: {text}")),
        GpuError::Failed(text) => LoadError::Reported(format!("the gpu load: {text}")),
    };
    let (mut act, answers_within) = match plan.api {
        GpuApi::Vulkan => {
            let gpu = Gpu::open(plan.device.as_deref()).map_err(said)?;
            let answers_within = gpu.answers_within();
            (prepare(plan, gpu).map_err(said)?, answers_within)
        }
        GpuApi::Cuda => (cuda::prepare(plan).map_err(said)?, ANSWER_WITHIN),
    };
    let turn_within = answers_within + WATCHED_LATER;
    // Drivers translate a program when it first runs: that is not part of the load.
    act.turn().map_err(|error| LoadError::Reported(format!("the gpu load: {error}")))?;
    Ok(Box::new(Watched { act, turn_within }))
}

/// An act with the longest time that a turn may take.
struct Watched {
    act: Box<dyn Act>,
    turn_within: Duration,
}

impl Act for Watched {
    fn describe(&self) -> String {
        self.act.describe()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.act.turn()
    }
    fn turn_within(&self) -> Option<Duration> {
        Some(self.turn_within)
    }
}

fn prepare(plan: &GpuPlan, gpu: Rc<Gpu>) -> Result<Box<dyn Act>, GpuError> {
    let job =
        Job { spins: plan.wait == GpuWait::Spin, bytes: plan.size.0 as usize, kind: kind(plan.memory)?, gpu };
    Ok(match plan.work {
        GpuWork::Reduction => Box::new(compute::Reduction::new(&job)?),
        GpuWork::Matrix => Box::new(compute::Matrix::new(&job)?),
        GpuWork::Particles => Box::new(particles::Particles::new(&job)?),
        GpuWork::ParticlesChurn => Box::new(particles::Churn::new(job)?),
        GpuWork::CopyUp => Box::new(copy::Copy::new(&job, copy::Way::Up, plan.memory)?),
        GpuWork::CopyDown => Box::new(copy::Copy::new(&job, copy::Way::Down, plan.memory)?),
        GpuWork::AllocChurn => Box::new(compute::Churn::new(job, false)?),
        GpuWork::Preallocated => Box::new(compute::Churn::new(job, true)?),
        GpuWork::SubmitStorm => Box::new(other::Submits::new(&job)?),
        GpuWork::Poll => Box::new(other::Queries::new(&job)),
    })
}

/// What a load works with.
pub(crate) struct Job {
    pub(crate) gpu: Rc<Gpu>,
    pub(crate) bytes: usize,
    pub(crate) kind: Kind,
    pub(crate) spins: bool,
}

impl Job {
    /// A buffer of the job's size and kind.
    pub(crate) fn buffer(&self) -> Result<Rc<Buffer>, GpuError> {
        Buffer::new(&self.gpu, self.bytes, self.kind)
    }

    pub(crate) fn on(&self) -> String {
        format!(
            "Vulkan on {} ({}), whylate-gpu {}",
            self.gpu.listed.name,
            self.gpu.listed.driver,
            env!("CARGO_PKG_VERSION")
        )
    }
}

fn kind(memory: GpuMemory) -> Result<Kind, GpuError> {
    Ok(match memory {
        GpuMemory::Device => Kind::Device,
        GpuMemory::Pinned | GpuMemory::Staged => Kind::Pinned,
        GpuMemory::WriteCombined => Kind::WriteCombined,
        GpuMemory::Imported => Kind::Imported,
        GpuMemory::Managed => return Err(GpuError::Absent("`managed` memory is CUDA's only".to_owned())),
    })
}

/// Why a load cannot run on a device; `None` when it can.
pub(crate) fn why_not(device: &Listed, work: GpuWork) -> Option<String> {
    let lacks =
        |kind: Kind| (!device.memory.contains(&kind)).then(|| format!("it has no {} memory", kind.name()));
    match work {
        GpuWork::Particles | GpuWork::ParticlesChurn if !device.draws => Some("it does not draw".to_owned()),
        GpuWork::Poll => None,
        _ => lacks(Kind::Device).or_else(|| lacks(Kind::Pinned)),
    }
}

/// The error of a result that is not what it must be.
pub(crate) fn wrong(what: &str) -> GpuError {
    GpuError::Failed(format!("a wrong {what} came back: the device, its driver or its memory is broken"))
}
