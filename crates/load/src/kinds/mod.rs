//! The kinds of loads: one file a kind, from its plan to what it does, and its line in the table at the end.

pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod gpu;
pub(crate) mod graphics;
pub(crate) mod memory;

use crate::child::LoadContext;
use crate::error::LoadError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use whylate_core::plan::LoadKind;
use whylate_core::{Bytes, CpuSelector, CpuSet, Facts};

/// The machine on which a plan is resolved.
pub(crate) struct LoadPlace<'p> {
    /// What `target` means.
    pub(crate) target: &'p CpuSet,
    pub(crate) facts: &'p Facts,
}

impl LoadPlace<'_> {
    /// The CPUs that the key `key` of a plan names.
    pub(crate) fn cpus(&self, key: &'static str, selector: &CpuSelector) -> Result<CpuSet, LoadError> {
        let resolved = selector.resolve(&self.facts.cpu_context(), Some(self.target));
        resolved.map_err(|source| LoadError::Cpus { key, source })
    }
}

/// What a load of one kind does, resolved to this machine's CPUs and bytes.
pub(crate) trait Work {
    /// What its rate counts.
    fn unit(&self) -> &str;
    /// CPUs that it runs on; `None` when that is left to the kernel.
    fn cpus(&self) -> Option<&CpuSet>;
    /// CPUs that it disturbs from there; `None` when it disturbs those that it runs on.
    fn victims(&self) -> Option<&CpuSet> {
        None
    }
    /// Size of each thread's buffer.
    fn working_set(&self) -> Option<Bytes> {
        None
    }
    /// How long its process may take to end after the request.
    fn grace(&self) -> Duration {
        Duration::from_secs(2)
    }
    /// The file for what its command prints.
    fn set_output(&mut self, _path: PathBuf) {}
    /// The executable of its process; `None` for this one.
    fn program(&self) -> Result<Option<PathBuf>, LoadError> {
        Ok(None)
    }
    /// Errors that can be known before anything is started.
    fn validate(&self) -> Result<(), LoadError>;
    /// Does it, in the load's own process, until the context says stop or its duration is over.
    fn run(&self, context: &mut LoadContext) -> Result<(), LoadError>;
}

macro_rules! kinds {
    ($($(#[$meaning:meta])* $Kind:ident($Spec:ty),)*) => {
        /// What a load does.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum LoadWork {
            $($(#[$meaning])* $Kind($Spec),)*
        }

        impl LoadWork {
            /// Resolves a load of a plan on the machine of `place`.
            pub(crate) fn resolve(kind: &LoadKind, place: &LoadPlace<'_>) -> Result<Self, LoadError> {
                Ok(match kind {
                    $(LoadKind::$Kind(plan) => Self::$Kind(<$Spec>::resolve(plan, place)?),)*
                })
            }

            pub(crate) fn work(&self) -> &dyn Work {
                match self {
                    $(Self::$Kind(spec) => spec,)*
                }
            }

            fn work_mut(&mut self) -> &mut dyn Work {
                match self {
                    $(Self::$Kind(spec) => spec,)*
                }
            }
        }
    };
}

impl LoadWork {
    /// What its rate counts.
    pub fn unit(&self) -> &str {
        self.work().unit()
    }

    /// CPUs that it runs on; `None` when that is left to the kernel.
    pub fn cpus(&self) -> Option<&CpuSet> {
        self.work().cpus()
    }

    /// CPUs that it disturbs from there; `None` when it disturbs those that it runs on.
    pub fn victims(&self) -> Option<&CpuSet> {
        self.work().victims()
    }

    /// Size of each thread's buffer.
    pub fn working_set(&self) -> Option<Bytes> {
        self.work().working_set()
    }

    /// Sets the file for what its command prints, if it has one.
    pub fn set_output(&mut self, path: PathBuf) {
        self.work_mut().set_output(path);
    }
}

mod console;
mod copy;
mod framebuffer;
mod ipi;
mod irq_thread;
mod pageattr;
mod softirq;
mod tlb;

kinds! {
    /// Memory traffic.
    Memory(memory::MemorySpec),
    /// Frames copied.
    Copy(copy::CopySpec),
    /// Any command as a load.
    Exec(exec::ExecSpec),
    /// 2D drawing.
    Graphics(graphics::GraphicsSpec),
    /// Work for a GPU.
    Gpu(events::Events<whylate_core::plan::GpuPlan>),
    /// Frames streamed into video memory.
    Framebuffer(events::Events<whylate_core::plan::FramebufferPlan>),
    /// Lines of text on a terminal.
    Console(events::Events<whylate_core::plan::ConsolePlan>),
    /// Changes of mappings.
    Tlb(events::Events<whylate_core::plan::TlbPlan>),
    /// Memory barriers.
    Ipi(events::Events<whylate_core::plan::IpiPlan>),
    /// Write-combining buffers.
    Pageattr(events::Events<whylate_core::plan::PageattrPlan>),
    /// Loopback packets.
    Softirq(events::Events<whylate_core::plan::SoftirqPlan>),
    /// Interrupts of a device or timer.
    IrqThread(events::Events<whylate_core::plan::IrqThreadPlan>),
}
