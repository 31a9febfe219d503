//! Particles that move, and are drawn into an image that no display shows.

use super::{Job, shader, wrong};
use crate::vulkan::{Buffer, Commands, GpuError, Kind, Picture, Program};
use std::io;
use std::rc::Rc;
use whylate_load::Act;

/// Side of the grid, and of the image.
const SIDE: usize = 512;
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
        // Whole pages: the shader takes a buffer's length for the number of its particles.
        let count = (job.bytes / PARTICLE_BYTES).max(1).next_multiple_of(512);
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

    /// Every pixel is lit on which a particle is, and no other.
    fn check(&self) -> Result<(), GpuError> {
        let mut lit = vec![0; SIDE * SIDE];
        for index in 0..self.count as u32 {
            let random = index.wrapping_mul(2_654_435_761);
            let at = |start: u32, step: u32| {
                (u64::from(start % SIDE as u32) + self.frames * u64::from(step)) as usize % SIDE
            };
            let (column, row) = (at(random >> 8, 1 + index % 7), at(random >> 17, 1 + index % 5));
            lit[row * SIDE + column] = u32::MAX;
        }
        if self.image.words(SIDE * SIDE) == lit { Ok(()) } else { Err(wrong("image")) }
    }
}

impl Act for Particles {
    fn describe(&self) -> String {
        self.how.clone()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.commands.run()?;
        self.frames += 1;
        if self.frames % super::CHECKED_EACH == 1 {
            self.check()?;
        }
        Ok(1)
    }
}
