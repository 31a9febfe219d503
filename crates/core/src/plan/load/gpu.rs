//! The load `gpu`: work for a graphics processor.

use super::EventPace;
use crate::cpus::CpuSelector;
use crate::plan::kinds::{KeyError, Words};
use crate::units::Bytes;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Work for a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load gpu --list
  whylate load gpu --work reduction --size 256MiB --duration 1m
  whylate load gpu --work alloc-churn --memory pinned --rate 100/s
  whylate load gpu --work copy-up --memory write-combined --wait spin --priority 50
  whylate load gpu --api cuda --work alloc-churn --memory pinned

The program whylate-gpu does the work, with Vulkan or CUDA; whylate looks for it at the path in
WHYLATE_GPU, or else in its own folder.
Each result is checked: the load fails if a sum, product, copy or image is wrong."))]
pub struct GpuPlan {
    /// CPUs of the threads that submit work to the device, one thread on each.
    pub cpus: CpuSelector,
    /// Work that the device does in each iteration.
    pub work: GpuWork,
    /// Driver interface (CUDA has no `matrix`, `submit-storm` and `poll`).
    pub api: GpuApi,
    /// Number of the device, or a part of its name; by default the first hardware device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Kind of memory that the work uses; for copies, the kind of the buffer on the host.
    pub memory: GpuMemory,
    /// Bytes processed in each iteration.
    pub size: Bytes,
    /// How the thread waits until the device has finished.
    pub wait: GpuWait,
    /// Real-time priority (SCHED_FIFO) of the thread; by default an ordinary task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Iterations per second over all CPUs (`60/s`), or a share of time (`25%`); by default as fast as possible.
    pub rate: EventPace,
}

impl Default for GpuPlan {
    fn default() -> Self {
        Self {
            cpus: CpuSelector::Target,
            work: GpuWork::Reduction,
            api: GpuApi::Vulkan,
            device: None,
            memory: GpuMemory::Device,
            size: Bytes(16 << 20),
            wait: GpuWait::Block,
            priority: None,
            rate: EventPace::Full,
        }
    }
}

impl Words for GpuPlan {
    fn check(&self) -> Result<(), KeyError> {
        if !(4096..=1 << 32).contains(&self.size.0) {
            return Err(KeyError::new("size", "must be between 4KiB and 4GiB; write for example `16MiB`"));
        }
        if self.priority.is_some_and(|priority| !(1..=99).contains(&priority)) {
            return Err(KeyError::new("priority", "must be between 1 and 99"));
        }
        let copies = matches!(self.work, GpuWork::CopyUp | GpuWork::CopyDown);
        if self.memory == GpuMemory::Staged && !copies {
            return Err(KeyError::new("memory", "`staged` is for `copy-up` and `copy-down` only"));
        }
        if self.memory == GpuMemory::Managed && self.api != GpuApi::Cuda {
            return Err(KeyError::new("memory", "`managed` needs `api = \"cuda\"`"));
        }
        Ok(())
    }
}

words! {
    /// What a graphics processor does.
    #[derive(Default)]
    pub enum GpuWork: "a kind of GPU work" {
        /// Adds up the numbers in a buffer.
        #[default]
        Reduction = "reduction",
        /// Moves particles, and draws them off screen.
        Particles = "particles",
        /// Multiplies matrices.
        Matrix = "matrix",
        /// Copies from the host to the device.
        CopyUp = "copy-up",
        /// Copies from the device to the host.
        CopyDown = "copy-down",
        /// Allocates a buffer, fills it, adds it up and frees it.
        AllocChurn = "alloc-churn",
        /// Fills and adds up a buffer that was allocated at the start.
        Preallocated = "preallocated",
        /// The same as `particles`, but buffers are allocated and freed for each image.
        ParticlesChurn = "particles-churn",
        /// Submits empty work and waits for its end.
        SubmitStorm = "submit-storm",
        /// Asks the driver how much memory is in use.
        Poll = "poll",
    }
}

impl GpuWork {
    /// What the rate of the load counts.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Reduction => "reductions_per_s",
            Self::Particles | Self::ParticlesChurn => "frames_per_s",
            Self::Matrix => "products_per_s",
            Self::CopyUp | Self::CopyDown => "copies_per_s",
            Self::AllocChurn | Self::Preallocated => "iterations_per_s",
            Self::SubmitStorm => "submissions_per_s",
            Self::Poll => "queries_per_s",
        }
    }
}

words! {
    /// Interfaces of graphics drivers.
    #[derive(Default)]
    pub enum GpuApi: "an interface of graphics drivers" {
        /// Vulkan: devices of any vendor, and software.
        #[default]
        Vulkan = "vulkan",
        /// CUDA: NVIDIA's driver.
        Cuda = "cuda",
    }
}

words! {
    /// Kinds of memory of a graphics processor.
    #[derive(Default)]
    pub enum GpuMemory: "a kind of memory" {
        /// Memory of the device; for copies, pinned memory of the host.
        #[default]
        Device = "device",
        /// Memory of the host, cached, mapped into the device.
        Pinned = "pinned",
        /// Write-combined memory of the host.
        WriteCombined = "write-combined",
        /// Ordinary pages of the program, imported into the device.
        Imported = "imported",
        /// Managed memory of CUDA: host and device use the same address, and pages move to the side that uses them.
        Managed = "managed",
        /// For copies: ordinary memory, copied through a pinned buffer.
        Staged = "staged",
    }
}

words! {
    /// How a program waits for a graphics processor.
    #[derive(Default)]
    pub enum GpuWait: "a way to wait" {
        /// Sleeps until the driver wakes it.
        #[default]
        Block = "block",
        /// Polls without pause.
        Spin = "spin",
    }
}
