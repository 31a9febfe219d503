//! Drawing on a graphics device: rectangles into a buffer that no display shows, and flips of what a display shows.

use super::in_use;
use crate::error::LoadError;
use crate::kinds::events::{Act, Acts, Keys};
use std::io;
use std::path::PathBuf;
use whylate_copy::{Kernels, Random, StoreMethod};
use whylate_core::plan::{GraphicsMethod, GraphicsPlan};
use whylate_sys::drm::{Card, Display, DumbBuffer, Flips};

/// Pixels of the buffer that is drawn into.
const BUFFER: (u32, u32) = (1280, 1024);
/// Width and height of a rectangle in pixels, as x11perf's `-rect500`.
const SIDE: usize = 500;
const PIXEL_BYTES: usize = 4;

struct Rectangles {
    path: PathBuf,
    buffer: DumbBuffer,
    kernels: Kernels,
    random: Random,
}

impl Act for Rectangles {
    fn describe(&self) -> String {
        let (width, height) = BUFFER;
        format!("rectangles of {SIDE}x{SIDE} in a buffer of {width}x{height} of {}", self.path.display())
    }

    fn turn(&mut self) -> io::Result<u64> {
        let column = self.random.below(u64::from(BUFFER.0) - SIDE as u64) as usize;
        let row = self.random.below(u64::from(BUFFER.1) - SIDE as u64) as usize;
        let color = self.random.below(u64::MAX);
        let pitch = self.buffer.pitch as usize;
        let bytes = self.buffer.memory.as_mut_slice();
        for line in row..row + SIDE {
            let begin = line * pitch + column * PIXEL_BYTES;
            self.kernels.write(StoreMethod::Cached, &mut bytes[begin..begin + SIDE * PIXEL_BYTES], color);
        }
        Ok(1)
    }
}

struct Flipping {
    path: PathBuf,
    flips: Flips,
}

impl Act for Flipping {
    fn describe(&self) -> String {
        let (width, height) = self.flips.size();
        format!("page flips of {width}x{height} on {}", self.path.display())
    }

    fn turn(&mut self) -> io::Result<u64> {
        self.flips.flip()?;
        Ok(1)
    }
}

/// The first card of the plan that `make` can use.
fn first<T>(
    plan: &GraphicsPlan,
    make: impl Fn(&Card) -> Result<T, LoadError>,
) -> Result<(PathBuf, T), LoadError> {
    let unavailable = |why: String| LoadError::Unavailable(format!("the graphics load: {why}"));
    let paths = match &plan.device {
        Some(device) => vec![device.clone()],
        None => Card::paths().map_err(|error| unavailable(error.to_string()))?,
    };
    let mut refused = None;
    for path in paths {
        let card = Card::open(&path).map_err(|error| unavailable(format!("{}: {error}", path.display())));
        match card.and_then(|card| make(&card)) {
            Ok(made) => return Ok((path, made)),
            Err(error) => drop(refused.get_or_insert(error)),
        }
    }
    Err(refused.unwrap_or_else(|| unavailable("/dev/dri has no card".to_owned())))
}

fn cannot(card: &Card, what: &str, error: &io::Error) -> LoadError {
    LoadError::Unavailable(format!("the graphics load: {} {what}: {error}", card.path().display()))
}

fn buffer(card: &Card) -> Result<DumbBuffer, LoadError> {
    card.buffer(BUFFER.0, BUFFER.1).map_err(|error| cannot(card, "cannot allocate dumb buffers", &error))
}

/// The display of a card, if it may be drawn on.
fn display(plan: &GraphicsPlan, card: &Card) -> Result<Display, LoadError> {
    let display =
        Display::find(card).map_err(|error| cannot(card, "has no display that can be used", &error))?;
    if display.is_in_use() && !plan.yes_draw_on_my_screen {
        return Err(in_use(&card.path().display().to_string()));
    }
    Ok(display)
}

impl Acts for GraphicsPlan {
    const NAME: &'static str = "graphics";

    fn unit(&self) -> &'static str {
        match self.method {
            GraphicsMethod::DrmFlip => "frames_per_s",
            _ => "rectangles_per_s",
        }
    }

    fn keys(&self) -> Keys<'_> {
        Keys { cpus: &self.cpus, victims: None, rate: self.rate.as_pace() }
    }

    fn act(&self, _workers: usize) -> Result<Box<dyn Act>, LoadError> {
        if self.method == GraphicsMethod::DrmFlip {
            let take = |card: &Card| {
                display(self, card)?
                    .take()
                    .map_err(|error| cannot(card, "cannot display a buffer of whylate", &error))
            };
            let (path, flips) = first(self, take)?;
            return Ok(Box::new(Flipping { path, flips }));
        }
        let (path, buffer) = first(self, buffer)?;
        let (kernels, random) = (Kernels::best(), Random::new(1));
        Ok(Box::new(Rectangles { path, buffer, kernels, random }))
    }

    fn check(&self) -> Result<(), LoadError> {
        match self.method {
            GraphicsMethod::DrmFlip => first(self, |card| display(self, card)).map(drop),
            _ => first(self, buffer).map(drop),
        }
    }
}
