//! The loads that CUDA has beside Vulkan: copies, and memory that is allocated and freed each time.

use super::random;
use super::wrong;
use crate::cuda::{DeviceMemory, HostMemory, Session};
use crate::vulkan::GpuError;
use std::io;
use std::sync::Arc;
use whylate_core::plan::{GpuMemory, GpuPlan, GpuWait, GpuWork};
use whylate_load::Act;
use whylate_sys::memory::typed::Memory;

/// How many bytes of a buffer are compared in each turn of a churn.
const COMPARED: usize = 4096;

pub(crate) const WORKS: [GpuWork; 4] =
    [GpuWork::CopyUp, GpuWork::CopyDown, GpuWork::AllocChurn, GpuWork::Preallocated];

pub(super) fn prepare(plan: &GpuPlan) -> Result<Box<dyn Act>, GpuError> {
    if !WORKS.contains(&plan.work) {
        let names = WORKS.map(GpuWork::name).join(", ");
        return Err(GpuError::Absent(format!("`{}` is done by Vulkan; CUDA does {names}", plan.work)));
    }
    if plan.memory == GpuMemory::Imported {
        return Err(GpuError::Absent("`imported` memory is lent by Vulkan only".to_owned()));
    }
    let session = Session::open(plan.device.as_deref(), plan.wait == GpuWait::Spin)?;
    let bytes = plan.size.0 as usize;
    Ok(match plan.work {
        GpuWork::CopyUp | GpuWork::CopyDown => Box::new(Copy::new(&session, plan, bytes)?),
        work => Box::new(Churn::new(session, plan.memory, bytes, work == GpuWork::Preallocated)?),
    })
}

fn on(session: &Session) -> String {
    let listed = &session.listed;
    format!("CUDA on {} ({}), whylate-gpu {}", listed.name, listed.driver, env!("CARGO_PKG_VERSION"))
}

/// The host's end of a copy.
enum End {
    PageLocked(HostMemory),
    /// The driver copies it through a buffer of its own.
    Ordinary(Vec<u8>),
}

impl End {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::PageLocked(memory) => memory.as_slice(),
            Self::Ordinary(bytes) => bytes,
        }
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Self::PageLocked(memory) => memory.as_mut_slice(),
            Self::Ordinary(bytes) => bytes,
        }
    }
}

struct Copy {
    device: DeviceMemory,
    host: End,
    data: Vec<u8>,
    is_up: bool,
    turns: u64,
    how: String,
}

impl Copy {
    fn new(session: &Arc<Session>, plan: &GpuPlan, bytes: usize) -> Result<Self, GpuError> {
        let is_write_combined = plan.memory == GpuMemory::WriteCombined;
        let mut host = match plan.memory {
            GpuMemory::Staged => End::Ordinary(vec![0; bytes]),
            _ => End::PageLocked(HostMemory::new(session, bytes, is_write_combined)?),
        };
        let data = random(bytes);
        let mut device = DeviceMemory::new(session, bytes)?;
        device.write(&data)?;
        let is_up = plan.work == GpuWork::CopyUp;
        if is_up {
            host.as_mut_slice().copy_from_slice(&data);
            // What is there afterwards has come from the host.
            device.write(&vec![0; bytes])?;
        }
        let memory = if plan.memory == GpuMemory::Device { GpuMemory::Pinned } else { plan.memory };
        let direction = if is_up { "to" } else { "from" };
        let how = format!("copies of {bytes} bytes {direction} the device, {memory} memory, {}", on(session));
        Ok(Self { device, host, data, is_up, turns: 0, how })
    }

    /// What has arrived is what was sent.
    fn check(&self) -> Result<(), GpuError> {
        let is_right = if self.is_up {
            let mut arrived = vec![0; self.data.len()];
            self.device.read(&mut arrived)?;
            arrived == self.data
        } else {
            self.host.as_slice() == self.data
        };
        if is_right { Ok(()) } else { Err(wrong("copy")) }
    }
}

impl Act for Copy {
    fn describe(&self) -> String {
        self.how.clone()
    }
    fn turn(&mut self) -> io::Result<u64> {
        if self.is_up {
            self.device.write(self.host.as_slice())?;
        } else {
            self.device.read(self.host.as_mut_slice())?;
        }
        if self.turns.is_multiple_of(super::CHECKED_EACH) {
            self.check()?;
        }
        self.turns += 1;
        Ok(1)
    }
}

struct Buffers {
    device: DeviceMemory,
    /// The host's, where the load is about that.
    host: Option<HostMemory>,
}

/// Allocates, fills and frees each time, or keeps what was allocated once.
struct Churn {
    session: Arc<Session>,
    memory: GpuMemory,
    data: Vec<u8>,
    kept: Option<Buffers>,
}

impl Churn {
    fn new(session: Arc<Session>, memory: GpuMemory, bytes: usize, keeps: bool) -> Result<Self, GpuError> {
        let mut churn = Self { session, memory, data: random(bytes), kept: None };
        if keeps {
            churn.kept = Some(churn.buffers()?);
        }
        Ok(churn)
    }

    fn buffers(&self) -> Result<Buffers, GpuError> {
        let bytes = self.data.len();
        let host = match self.memory {
            GpuMemory::Device => None,
            memory => Some(HostMemory::new(&self.session, bytes, memory == GpuMemory::WriteCombined)?),
        };
        Ok(Buffers { device: DeviceMemory::new(&self.session, bytes)?, host })
    }

    /// Fills the buffers, and looks whether their begin has arrived.
    fn fill(data: &[u8], buffers: &mut Buffers) -> Result<(), GpuError> {
        match &mut buffers.host {
            Some(host) => {
                host.as_mut_slice().copy_from_slice(data);
                buffers.device.write(host.as_slice())?;
            }
            None => buffers.device.write(data)?,
        }
        let mut begin = [0; COMPARED];
        let begin = &mut begin[..COMPARED.min(data.len())];
        buffers.device.read(begin)?;
        if *begin == data[..begin.len()] { Ok(()) } else { Err(wrong("buffer")) }
    }
}

impl Act for Churn {
    fn describe(&self) -> String {
        let how = if self.kept.is_some() { "allocated once" } else { "allocated and freed each time" };
        format!("{} bytes of {} memory filled, {how}, {}", self.data.len(), self.memory, on(&self.session))
    }
    fn turn(&mut self) -> io::Result<u64> {
        match &mut self.kept {
            Some(buffers) => Self::fill(&self.data, buffers)?,
            None => Self::fill(&self.data, &mut self.buffers()?)?,
        }
        Ok(1)
    }
}
