//! The load `graphics`: drawing in two dimensions.

use super::EventPace;
use crate::cpus::CpuSelector;
use crate::plan::flag::Flag;
use crate::plan::kinds::{KeyError, Words};
use crate::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// 2D drawing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-examples" = "\
Examples:
  whylate load graphics --cpus 1 --server-cpus 1 --duration 1m
  whylate load graphics --server :0 --tests rect500 copywinwin500
  whylate load graphics --method drm-draw --device /dev/dri/card0
  whylate load graphics --method drm-flip --yes-draw-on-my-screen

x11perf is in Debian's package x11-apps, Xvfb in xvfb. The rate counts operations of x11perf,
without the time that x11perf takes to calibrate."))]
pub struct GraphicsPlan {
    /// CPUs on which the drawing program runs.
    pub cpus: CpuSelector,
    /// What draws.
    pub method: GraphicsMethod,
    /// X server that x11perf draws on: a display (`:0`), or a server to start for the load (xvfb or xorg); by default
    /// the display in $DISPLAY, else Xvfb.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// CPUs for the X server, if the load starts one; by default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpus: Option<CpuSelector>,
    /// Tests of x11perf, one after another.
    pub tests: Vec<String>,
    /// Whether each operation of x11perf waits for the one before it.
    #[schemars(extend("x-flag" = Flag::off("no-sync", "Lets x11perf send operations without waiting for each one")))]
    pub sync: bool,
    /// Device node of the graphics device for `drm-draw` and `drm-flip`; by default the first suitable one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
    /// Operations per second for `drm-draw` and `drm-flip` (`60/s`), or a share of time (`25%`); by default as fast as
    /// possible.
    pub rate: EventPace,
    /// Draws even if a display is in use.
    pub yes_draw_on_my_screen: bool,
}

impl Default for GraphicsPlan {
    fn default() -> Self {
        Self {
            cpus: CpuSelector::Target,
            method: GraphicsMethod::Auto,
            server: None,
            server_cpus: None,
            tests: vec!["rect500".to_owned()],
            sync: true,
            device: None,
            rate: EventPace::Full,
            yes_draw_on_my_screen: false,
        }
    }
}

impl Words for GraphicsPlan {
    fn check(&self) -> Result<(), KeyError> {
        let is_test = |test: &String| {
            test.starts_with(|first: char| first.is_ascii_alphabetic())
                && test.chars().all(|letter| letter.is_ascii_alphanumeric())
        };
        match self.tests.iter().find(|test| !is_test(test)) {
            Some(test) => {
                let message = format!("`{test}` is not an x11perf test; write for example `rect500`");
                return Err(KeyError::new("tests", message));
            }
            None if self.tests.is_empty() => {
                return Err(KeyError::new("tests", "is empty; write for example `[\"rect500\"]`"));
            }
            None => {}
        }
        let is_server = |server: &String| ["xvfb", "xorg"].contains(&server.as_str()) || server.contains(':');
        if let Some(server) = self.server.as_ref().filter(|server| !is_server(server)) {
            let message = format!("`{server}` is not an X server; write `xvfb`, `xorg`, or a display (`:0`)");
            return Err(KeyError::new("server", message));
        }
        Ok(())
    }
}

words! {
    /// What draws.
    #[derive(Default)]
    pub enum GraphicsMethod: "a method of drawing" {
        /// x11perf; if that is missing, `drm-draw`.
        #[default]
        Auto = "auto",
        /// The program x11perf on an X server.
        X11perf = "x11perf",
        /// Rectangles, drawn by the CPU into a buffer of a graphics device that no display shows.
        DrmDraw = "drm-draw",
        /// Two buffers of a graphics device, which a display shows in turn.
        DrmFlip = "drm-flip",
    }
}
