//! The loads that CUDA has in addition to Vulkan: copies, sums and particles, in memory that is allocated and freed
//! each time or kept.

use super::compute::{GROUPS_MOST, expected, groups};
use super::particles::{SIDE, count, lit};
use super::{random, wrong};
use crate::cuda::{Address, DeviceMemory, HostMemory, Program, Session};
use crate::vulkan::GpuError;
use std::ffi::CStr;
use std::io;
use std::sync::Arc;
use whylate_core::plan::{GpuMemory, GpuPlan, GpuWait, GpuWork};
use whylate_load::Act;
use whylate_sys::memory::typed::Memory;

pub(crate) const WORKS: [GpuWork; 7] = [
    GpuWork::Reduction,
    GpuWork::Particles,
    GpuWork::CopyUp,
    GpuWork::CopyDown,
    GpuWork::AllocChurn,
    GpuWork::Preallocated,
    GpuWork::ParticlesChurn,
];

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
        GpuWork::Particles | GpuWork::ParticlesChurn => {
            Box::new(Turns::<Particles>::new(session, plan, plan.work == GpuWork::Particles)?)
        }
        work => Box::new(Turns::<Sum>::new(session, plan, work != GpuWork::AllocChurn)?),
    })
}

fn on(session: &Session) -> String {
    let listed = &session.listed;
    format!("CUDA on {} ({}), whylate-gpu {}", listed.name, listed.driver, env!("CARGO_PKG_VERSION"))
}

/// The host's end of a copy.
enum End {
    Shared(HostMemory),
    /// The driver copies it through a buffer of its own.
    Ordinary(Vec<u8>),
}

impl End {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Shared(memory) => memory.as_slice(),
            Self::Ordinary(bytes) => bytes,
        }
    }
    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            Self::Shared(memory) => memory.as_mut_slice(),
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
        let memory = if plan.memory == GpuMemory::Device { GpuMemory::Pinned } else { plan.memory };
        let mut host = match memory {
            GpuMemory::Staged => End::Ordinary(vec![0; bytes]),
            _ => End::Shared(HostMemory::new(session, bytes, memory)?),
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

/// Memory that the programs work in.
enum Place {
    Device(DeviceMemory),
    Shared(HostMemory),
}

impl Place {
    fn new(session: &Arc<Session>, plan: &GpuPlan, bytes: usize) -> Result<Self, GpuError> {
        if plan.memory == GpuMemory::Device {
            return Ok(Self::Device(DeviceMemory::new(session, bytes)?));
        }
        let mut shared = HostMemory::new(session, bytes, plan.memory)?;
        // The host touches what it sees, as a program that fills its buffers does.
        shared.as_mut_slice()[..bytes.min(1 << 20)].fill(1);
        Ok(Self::Shared(shared))
    }

    fn address(&self) -> Address {
        match self {
            Self::Device(memory) => memory.address(),
            Self::Shared(memory) => memory.address(),
        }
    }
}

/// What a turn of the programs works with: its buffers, and how they are used.
trait Buffers: Sized {
    const WHAT: &'static str;
    /// The programs, in the order in which `run` gets them.
    const PROGRAMS: &'static [&'static CStr];
    /// Allocates, and fills what each turn needs.
    fn new(session: &Arc<Session>, plan: &GpuPlan, programs: &[Program]) -> Result<Self, GpuError>;
    /// One turn, to its end, with its result checked.
    fn run(&mut self, session: &Session, programs: &[Program]) -> Result<(), GpuError>;
}

/// Numbers, filled in and added up.
struct Sum {
    numbers: Place,
    sums: HostMemory,
    bytes: usize,
    /// Filled once, when it was made.
    is_filled: bool,
}

impl Buffers for Sum {
    const WHAT: &'static str = "sums";
    const PROGRAMS: &'static [&'static CStr] = &[c"fill_numbers", c"add_numbers"];

    fn new(session: &Arc<Session>, plan: &GpuPlan, programs: &[Program]) -> Result<Self, GpuError> {
        let bytes = plan.size.0 as usize;
        let numbers = Place::new(session, plan, bytes)?;
        let sums = HostMemory::new(session, 4 * GROUPS_MOST, GpuMemory::Pinned)?;
        let mut sum = Self { numbers, sums, bytes, is_filled: false };
        if plan.work == GpuWork::Reduction {
            sum.fill(programs)?;
            sum.is_filled = true;
        }
        Ok(sum)
    }

    fn run(&mut self, session: &Session, programs: &[Program]) -> Result<(), GpuError> {
        if !self.is_filled {
            self.fill(programs)?;
        }
        let groups = groups(self.bytes);
        let numbers = (self.bytes / 4) as Address;
        programs[1].launch(groups as u32, &[self.numbers.address(), numbers, self.sums.address()])?;
        session.wait()?;
        let sum = self.sums.words(groups).into_iter().fold(0, u32::wrapping_add);
        if sum == expected(self.bytes) { Ok(()) } else { Err(wrong("sum")) }
    }
}

impl Sum {
    fn fill(&self, programs: &[Program]) -> Result<(), GpuError> {
        let numbers = (self.bytes / 4) as Address;
        programs[0].launch(groups(self.bytes) as u32, &[self.numbers.address(), numbers])
    }
}

/// Particles that move, and light their pixels of an image.
struct Particles {
    places: Place,
    steps: Place,
    image: HostMemory,
    count: usize,
    frames: u64,
}

impl Buffers for Particles {
    const WHAT: &'static str = "images of particles";
    const PROGRAMS: &'static [&'static CStr] = &[c"fill_particles", c"clear_image", c"move_particles"];

    fn new(session: &Arc<Session>, plan: &GpuPlan, programs: &[Program]) -> Result<Self, GpuError> {
        let count = count(plan.size.0 as usize);
        let places = Place::new(session, plan, 8 * count)?;
        let steps = Place::new(session, plan, 8 * count)?;
        let image = HostMemory::new(session, 4 * SIDE * SIDE, GpuMemory::Pinned)?;
        programs[0]
            .launch(groups(4 * count) as u32, &[places.address(), steps.address(), count as Address])?;
        Ok(Self { places, steps, image, count, frames: 0 })
    }

    fn run(&mut self, session: &Session, programs: &[Program]) -> Result<(), GpuError> {
        let (count, pixels) = (self.count as Address, (SIDE * SIDE) as Address);
        let (places, steps, image) = (self.places.address(), self.steps.address(), self.image.address());
        programs[1].launch(groups(4 * SIDE * SIDE) as u32, &[image, pixels])?;
        programs[2].launch(groups(4 * self.count) as u32, &[places, steps, count, image])?;
        session.wait()?;
        self.frames += 1;
        let is_checked = self.frames % super::CHECKED_EACH == 1;
        if is_checked && self.image.words(SIDE * SIDE) != lit(self.count, self.frames) {
            return Err(wrong("image"));
        }
        Ok(())
    }
}

/// Turns in buffers that are allocated and freed for each, or kept.
struct Turns<B> {
    // Buffers and programs hold the session, so the order does not matter.
    kept: Option<B>,
    programs: Vec<Program>,
    plan: GpuPlan,
    session: Arc<Session>,
}

impl<B: Buffers> Turns<B> {
    fn new(session: Arc<Session>, plan: &GpuPlan, keeps: bool) -> Result<Self, GpuError> {
        let programs: Result<Vec<_>, _> =
            B::PROGRAMS.iter().map(|name| Program::new(&session, name)).collect();
        let programs = programs?;
        let kept = keeps.then(|| B::new(&session, plan, &programs)).transpose()?;
        Ok(Self { kept, programs, plan: plan.clone(), session })
    }
}

impl<B: Buffers> Act for Turns<B> {
    fn describe(&self) -> String {
        let how = if self.kept.is_some() { "allocated once" } else { "allocated and freed each time" };
        let (size, memory) = (self.plan.size, self.plan.memory);
        format!("{} in {size} of {memory} memory, {how}, {}", B::WHAT, on(&self.session))
    }
    fn turn(&mut self) -> io::Result<u64> {
        match &mut self.kept {
            Some(buffers) => buffers.run(&self.session, &self.programs)?,
            None => B::new(&self.session, &self.plan, &self.programs)?.run(&self.session, &self.programs)?,
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types of a program's parameters, as the translated source has them.
    fn parameters(name: &CStr) -> Vec<&'static str> {
        let text = include_str!("../../shaders/cuda.ptx");
        let head = format!(".visible .entry {}(", name.to_str().unwrap());
        let (_, rest) = text.split_once(head.as_str()).expect("the program is there");
        let (list, _) = rest.split_once(')').unwrap();
        list.split(".param .").skip(1).map(|one| one.split_whitespace().next().unwrap()).collect()
    }

    #[test]
    fn the_programs_take_what_they_are_given() {
        let of = |names: &[&CStr]| names.iter().map(|name| parameters(name)).collect::<Vec<_>>();
        let sum: [&[&str]; 2] = [&["u64", "u32"], &["u64", "u32", "u64"]];
        assert_eq!(of(Sum::PROGRAMS), sum);
        let particles: [&[&str]; 3] =
            [&["u64", "u64", "u32"], &["u64", "u32"], &["u64", "u64", "u32", "u64"]];
        assert_eq!(of(Particles::PROGRAMS), particles);
    }
}
