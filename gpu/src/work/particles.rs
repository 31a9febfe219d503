//! Particles that move, and are drawn into an image that no display shows.

use super::{Job, shader, wrong};
use crate::vulkan::{Buffer, Commands, GpuError, Kind, Picture, Program};
use std::io;
use std::rc::Rc;
use whylate_load::Act;

/// Side of the grid, and of the image.
pub(super) const SIDE: usize = 512;
/// Bytes of a particle: its place and its steps.
const PARTICLE_BYTES: usize = 16;
const MOVES: &[u8] = shader!("particles");
const POINTS: &[u8] = shader!("points");

pub(super) struct Particles {
    commands: Commands,
    image: Rc<Buffer>,
    count: usize,
    frames: u64,
    how: String,
}

impl Particles {
    pub(super) fn new(job: &Job) -> Result<Self, GpuError> {
        let count = count(job.bytes);
        let places = Buffer::new(&job.gpu, 8 * count, job.kind)?;
        let steps = Buffer::new(&job.gpu, 8 * count, job.kind)?;
        let image = Buffer::new(&job.gpu, 4 * SIDE * SIDE, Kind::Pinned)?;
        let groups = (count.div_ceil(256).min(4096) as u32, 1);
        let fill = Program::new(&job.gpu, MOVES, "fill", [&places, &steps])?;
        Commands::record(&job.gpu, job.spins, |list| list.dispatch(&fill, groups))?.run()?;
        let advance = Program::new(&job.gpu, MOVES, "advance", [&places, &steps])?;
        let picture = Picture::new(&job.gpu, POINTS)?;
        let commands = Commands::record(&job.gpu, job.spins, |list| {
            list.dispatch(&advance, groups);
            list.draw(&picture, &places, count as u32, &image);
        })?;
        let how = format!("{count} particles moved and drawn into an image of {SIDE}x{SIDE}, {}", job.on());
        Ok(Self { commands, image, count, frames: 0, how })
    }

    fn frame(&mut self) -> Result<(), GpuError> {
        self.commands.run()?;
        self.frames += 1;
        let is_checked = self.frames % super::CHECKED_EACH == 1;
        if is_checked && self.image.words(SIDE * SIDE) != lit(self.count, self.frames) {
            return Err(wrong("image"));
        }
        Ok(())
    }
}

/// How many particles fit in this many bytes. Whole pages: the shader takes a buffer's length for the number of its
/// particles.
pub(super) fn count(bytes: usize) -> usize {
    (bytes / PARTICLE_BYTES).max(1).next_multiple_of(512)
}

/// The image after this many moves: every pixel with a particle is lit, and no other.
pub(super) fn lit(count: usize, frames: u64) -> Vec<u32> {
    let mut lit = vec![0; SIDE * SIDE];
    for index in 0..count as u32 {
        let random = index.wrapping_mul(2_654_435_761);
        let at = |start: u32, step: u32| {
            (u64::from(start % SIDE as u32) + frames * u64::from(step)) as usize % SIDE
        };
        let (column, row) = (at(random >> 8, 1 + index % 7), at(random >> 17, 1 + index % 5));
        lit[row * SIDE + column] = u32::MAX;
    }
    lit
}

impl Act for Particles {
    fn describe(&self) -> String {
        self.how.clone()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.frame()?;
        Ok(1)
    }
}

/// The same with everything made and freed for each image.
pub(super) struct Churn(Job);

impl Churn {
    /// Fails here where the device lacks what the job needs: in a turn that would be an error of the load.
    pub(super) fn new(job: Job) -> Result<Self, GpuError> {
        Particles::new(&job)?;
        Ok(Self(job))
    }
}

impl Act for Churn {
    fn describe(&self) -> String {
        format!("{} particles, allocated and freed for each image, {}", count(self.0.bytes), self.0.on())
    }
    fn turn(&mut self) -> io::Result<u64> {
        Particles::new(&self.0)?.frame()?;
        Ok(1)
    }
}
