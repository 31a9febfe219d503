//! Loads on what displays show: frames streamed into video memory, and text on a console.

use super::EventPace;
use crate::cpus::CpuSelector;
use crate::plan::kinds::{KeyError, Words};
use crate::units::Bytes;
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Frames of random bytes, streamed from ordinary memory into video memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load framebuffer --cpus 0 --duration 1m
  whylate load framebuffer --device /dev/fb0 --yes-draw-on-my-screen
  whylate load framebuffer --device /dev/fb0 --through write --yes-draw-on-my-screen
  whylate load framebuffer --variant source-flushed --rate 60/s --json
  whylate load framebuffer --variant uncached --device /sys/bus/pci/devices/0000:00:02.0/resource0
  whylate load framebuffer --backend card --rate 60/s

Without --device the load uses write-combining memory that no display shows: a buffer of a graphics
driver (such as vgem), pages of the module whylate_memtype, or a region of a PCI device.
`--backend card` is the memory of a graphics card, mapped through Vulkan (whylate-gpu)."))]
pub struct FramebufferPlan {
    /// CPUs on which threads write, one thread on each; with `others`, only the first of these CPUs.
    pub cpus: CpuSelector,
    /// Framebuffer to write: `/dev/fb0`, `/dev/dri/card0`, `/dev/whylate_memtype`, or `resource0_wc` of a PCI device in
    /// sysfs; by default the first that no display shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// Backend of the framebuffer's memory, as `whylate copy --backends` lists them; by default chosen by the device's
    /// name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// How the load writes the framebuffer: through a mapping or write(2).
    pub through: FramebufferAccess,
    /// Method of writing a frame.
    pub variant: FramebufferVariant,
    /// Size of a frame; by default the size of the display, or 3MiB (1024x768 pixels) without a display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<Bytes>,
    /// Frames per second over all CPUs (`60/s`), or a share of time (`25%`); by default as fast as possible.
    pub rate: EventPace,
    /// Draws even if a display shows the framebuffer.
    pub yes_draw_on_my_screen: bool,
}

/// Lines of random text, written continuously to a terminal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load console --yes-draw-on-my-screen
  whylate load console --device /dev/ttyS0 --rate 100/s --yes-draw-on-my-screen

At the end the load restores the screen of a virtual console; on other terminals the lines remain."))]
pub struct ConsolePlan {
    /// CPUs on which threads write, one thread on each; with `others`, only the first of these CPUs.
    pub cpus: CpuSelector,
    /// Terminal to write to; by default the console that is currently shown (/dev/tty0).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// Lines per second over all CPUs (`1000/s`), or a share of time (`25%`); by default as fast as possible.
    pub rate: EventPace,
    /// Confirms that the load may write on a screen that may be in use.
    pub yes_draw_on_my_screen: bool,
}

impl Default for FramebufferPlan {
    fn default() -> Self {
        Self {
            cpus: CpuSelector::Others,
            device: None,
            backend: None,
            through: FramebufferAccess::Mapping,
            variant: FramebufferVariant::AsIs,
            frame: None,
            rate: EventPace::Full,
            yes_draw_on_my_screen: false,
        }
    }
}

impl Default for ConsolePlan {
    fn default() -> Self {
        let (cpus, rate) = (CpuSelector::Others, EventPace::Full);
        Self { cpus, device: None, rate, yes_draw_on_my_screen: false }
    }
}

impl Words for FramebufferPlan {
    fn check(&self) -> Result<(), KeyError> {
        let is_write = self.through == FramebufferAccess::Write;
        if is_write && self.variant != FramebufferVariant::AsIs {
            let message =
                "`through = \"write\"` has the variant `as-is` only, because the kernel copies the data";
            return Err(KeyError::new("variant", message));
        }
        if is_write && self.device.is_none() {
            return Err(KeyError::new("device", "`through = \"write\"` needs a device, such as `/dev/fb0`"));
        }
        if self.frame.is_some_and(|frame| !(4096..=1 << 30).contains(&frame.0)) {
            return Err(KeyError::new("frame", "must be between 4KiB and 1GiB; write for example `3MiB`"));
        }
        Ok(())
    }
}
impl Words for ConsolePlan {}

words! {
    /// How the memory of a framebuffer is reached.
    #[derive(Default)]
    pub enum FramebufferAccess: "a way to reach a framebuffer" {
        /// Mapped into the process.
        #[default]
        Mapping = "mapping" | "mmap",
        /// With write(2), as `dd of=/dev/fb0` does.
        Write = "write",
    }
}

words! {
    /// How a frame gets into video memory.
    #[derive(Default)]
    pub enum FramebufferVariant: "a variant" {
        /// Ordinary stores into the mapping as the driver made it: write-combining.
        #[default]
        AsIs = "as-is",
        /// The same as `as-is`, then each cache line of the destination is flushed.
        DestinationFlushed = "destination-flushed",
        /// The same as `as-is`, but the cache lines of the source are flushed before they are read.
        SourceFlushed = "source-flushed",
        /// The same as `as-is`, then a store fence.
        Sfence = "sfence",
        /// Stores that bypass the caches.
        NonTemporal = "non-temporal",
        /// Ordinary stores into a mapping that is not write-combining.
        Uncached = "uncached",
    }
}
