//! The loads of a plan: their keys, with defaults and checks.

mod copy;
mod events;
mod exec;
mod gpu;
mod graphics;
mod memory;
mod pace;
mod screen;

pub use copy::CopyPlan;
pub use events::{
    BarrierReach, BufferSource, IpiPlan, IrqSource, IrqThreadPlan, PageattrPlan, SoftirqPlan, TlbPlan,
};
pub use exec::ExecPlan;
pub use gpu::{GpuApi, GpuMemory, GpuPlan, GpuWait, GpuWork};
pub use graphics::{GraphicsMethod, GraphicsPlan};
pub use memory::{MemoryAccess, MemoryPlan};
pub use pace::{EventPace, Pace};
pub use screen::{ConsolePlan, FramebufferAccess, FramebufferPlan, FramebufferVariant};

use super::kinds::{Words, kinds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One load, by the name that cells use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadPlan {
    /// The name.
    pub name: String,
    /// What it does.
    #[serde(flatten)]
    pub kind: LoadKind,
}

impl LoadKind {
    /// All but its rate; `None` for a load without a rate.
    pub fn without_rate(&self) -> Option<serde_json::Value> {
        let mut keys = serde_json::to_value(self).ok()?;
        keys.as_object_mut()?.remove("rate")?;
        Some(keys)
    }

    /// Allows it to draw where a display shows it, if that is what it does.
    pub fn allow_drawing(&mut self) {
        match self {
            Self::Graphics(plan) => plan.yes_draw_on_my_screen = true,
            Self::Framebuffer(plan) => plan.yes_draw_on_my_screen = true,
            Self::Console(plan) => plan.yes_draw_on_my_screen = true,
            _ => {}
        }
    }
}

kinds! {
    /// What a load does.
    pub enum LoadKind: Words {
        /// Memory traffic over a working set of random data.
        "memory" => Memory(MemoryPlan),
        /// Frames copied from one type of memory to another.
        "copy" => Copy(CopyPlan),
        /// Any command as a load.
        "exec" => Exec(ExecPlan),
        /// 2D drawing.
        "graphics" => Graphics(GraphicsPlan),
        /// Work for a GPU.
        "gpu" => Gpu(GpuPlan),
        /// Frames streamed into video memory.
        "framebuffer" => Framebuffer(FramebufferPlan),
        /// Lines of text on a terminal.
        "console" => Console(ConsolePlan),
        /// Changes of memory mappings, which cause TLB flushes on other CPUs.
        "tlb" => Tlb(TlbPlan),
        /// membarrier(2) calls, which interrupt other CPUs.
        "ipi" => Ipi(IpiPlan),
        /// Buffers removed from the kernel's cached mapping, which flushes the TLB of every CPU.
        "pageattr" => Pageattr(PageattrPlan),
        /// Loopback packets, received in softirqs.
        "softirq" => Softirq(SoftirqPlan),
        /// Real interrupts of a device or timer.
        "irq-thread" => IrqThread(IrqThreadPlan),
    }
}
