//! Loads that compute: sums, products, and sums over memory that is allocated for each.

use super::{Job, shader, wrong};
use crate::vulkan::{Buffer, Commands, GpuError, Kind, Program};
use std::io;
use std::rc::Rc;
use whylate_load::Act;

const GROUP: usize = 256;
/// The most groups of one command: each thread then adds up several numbers.
pub(super) const GROUPS_MOST: usize = 1024;
const REDUCTION: &[u8] = shader!("reduction");
const MATRIX: &[u8] = shader!("matrix");
const TILE: usize = 16;
/// The longest side whose products single precision holds exactly: 6 * 4 * 4096 is below 2^24.
const SIDE_MOST: usize = 4096;

/// How many groups a buffer of this many bytes takes.
pub(super) fn groups(bytes: usize) -> usize {
    (bytes / 4).div_ceil(GROUP).clamp(1, GROUPS_MOST)
}

/// The wrapping sum of what the shader fills a buffer of that many bytes with.
pub(super) fn expected(bytes: usize) -> u32 {
    let count = (bytes / 4) as u64;
    let pairs = (count * count.saturating_sub(1) / 2) as u32;
    pairs.wrapping_mul(2_654_435_761).wrapping_add((count as u32).wrapping_mul(12_345))
}

struct Sum {
    commands: Commands,
    sums: Rc<Buffer>,
    bytes: usize,
}

impl Sum {
    /// `fills`: the buffer is filled each time before.
    fn new(job: &Job, numbers: &Rc<Buffer>, fills: bool) -> Result<Self, GpuError> {
        let groups = (groups(numbers.bytes) as u32, 1);
        let sums = Buffer::new(&job.gpu, 4 * GROUPS_MOST, Kind::Pinned)?;
        let fill = Program::new(&job.gpu, REDUCTION, "fill", [numbers, &sums])?;
        let add = Program::new(&job.gpu, REDUCTION, "add", [numbers, &sums])?;
        if !fills {
            Commands::record(&job.gpu, job.spins, |list| list.dispatch(&fill, groups))?.run()?;
        }
        let commands = Commands::record(&job.gpu, job.spins, |list| {
            if fills {
                list.dispatch(&fill, groups);
            }
            list.dispatch(&add, groups);
        })?;
        Ok(Self { commands, sums, bytes: numbers.bytes })
    }

    fn run(&self) -> Result<(), GpuError> {
        self.commands.run()?;
        let sum = self.sums.words(groups(self.bytes)).into_iter().fold(0, u32::wrapping_add);
        if sum == expected(self.bytes) { Ok(()) } else { Err(wrong("sum")) }
    }
}

pub(super) struct Reduction(Sum, String);

impl Reduction {
    pub(super) fn new(job: &Job) -> Result<Self, GpuError> {
        let how = format!("sums of {} bytes of {} memory, {}", job.bytes, job.kind.name(), job.on());
        Ok(Self(Sum::new(job, &job.buffer()?, false)?, how))
    }
}

impl Act for Reduction {
    fn describe(&self) -> String {
        self.1.clone()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.0.run()?;
        Ok(1)
    }
}

/// Fills and adds up memory that is allocated and freed each time, or once.
pub(super) struct Churn {
    job: Job,
    kept: Option<Sum>,
}

impl Churn {
    pub(super) fn new(job: Job, keeps: bool) -> Result<Self, GpuError> {
        // What is missing is known before the first turn.
        let sum = Self::sum(&job)?;
        Ok(Self { kept: keeps.then_some(sum), job })
    }

    fn sum(job: &Job) -> Result<Sum, GpuError> {
        let numbers = job.buffer()?;
        // The host touches what it sees, as a program that fills its buffers does.
        numbers.write(&vec![1; job.bytes.min(1 << 20)]);
        Sum::new(job, &numbers, true)
    }
}

impl Act for Churn {
    fn describe(&self) -> String {
        let how = if self.kept.is_some() { "allocated once" } else { "allocated and freed each time" };
        let (bytes, kind) = (self.job.bytes, self.job.kind.name());
        format!("sums of {bytes} bytes of {kind} memory, {how}, {}", self.job.on())
    }
    fn turn(&mut self) -> io::Result<u64> {
        match &self.kept {
            Some(sum) => sum.run()?,
            None => Self::sum(&self.job)?.run()?,
        }
        Ok(1)
    }
}

/// Products of matrices of single precision.
pub(super) struct Matrix {
    commands: Commands,
    product: Rc<Buffer>,
    read: Rc<Buffer>,
    fetch: Commands,
    side: usize,
    turns: u64,
    how: String,
}

impl Matrix {
    pub(super) fn new(job: &Job) -> Result<Self, GpuError> {
        let side = ((job.bytes / 4).isqrt() / TILE * TILE).clamp(TILE, SIDE_MOST);
        let bytes = 4 * side * side;
        let factors = Buffer::new(&job.gpu, 2 * bytes, job.kind)?;
        let product = Buffer::new(&job.gpu, bytes, job.kind)?;
        let read = Buffer::new(&job.gpu, bytes, Kind::Pinned)?;
        let tiles = ((side / TILE) as u32, (side / TILE) as u32);
        let fill = Program::new(&job.gpu, MATRIX, "fill", [&factors, &product])?;
        Commands::record(&job.gpu, job.spins, |list| list.dispatch(&fill, tiles))?.run()?;
        let multiply = Program::new(&job.gpu, MATRIX, "multiply", [&factors, &product])?;
        let commands = Commands::record(&job.gpu, job.spins, |list| list.dispatch(&multiply, tiles))?;
        let fetch = Commands::record(&job.gpu, job.spins, |list| list.copy(&product, &read))?;
        let how = format!("products of matrices of {side}x{side}, {}", job.on());
        Ok(Self { commands, product, read, fetch, side, turns: 0, how })
    }

    /// Some entries of the product against whole numbers.
    fn check(&self) -> Result<(), GpuError> {
        self.fetch.run()?;
        let words = self.read.words(self.product.bytes / 4);
        let side = self.side;
        for (row, column) in [(0, 0), (side - 1, side - 1), (side / 2, 1), (3, side - 2)] {
            let products = (0..side).map(|k| ((row + k) % 7) * ((3 * k + column) % 5));
            if f32::from_bits(words[row * side + column]) != products.sum::<usize>() as f32 {
                return Err(wrong("product"));
            }
        }
        Ok(())
    }
}

impl Act for Matrix {
    fn describe(&self) -> String {
        self.how.clone()
    }
    fn turn(&mut self) -> io::Result<u64> {
        self.commands.run()?;
        // The first, and some of those after it: the check takes longer than small products.
        if self.turns.is_multiple_of(super::CHECKED_EACH) {
            self.check()?;
        }
        self.turns += 1;
        Ok(1)
    }
}
