//! The graphics load: drawing in two dimensions, by x11perf on an X server or on a graphics device itself.

mod device;

use super::events::Events;
use super::exec::{ExecSpec, ServerSpec};
use super::{LoadPlace, Work};
use crate::child::LoadContext;
use crate::error::LoadError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use whylate_core::plan::{GraphicsMethod, GraphicsPlan};
use whylate_core::{CpuSet, Nanos};
use whylate_sys::drm::{Card, Display};

/// How x11perf prints a result; the line with the total of a test has another word.
const RATE: &str = r" reps @.*\(\s*([0-9.]+)/sec\)";
/// Rounds of its only test, for ever; and of each test if there are several.
const ROUNDS: (&str, &str) = ("1000000", "10");

/// Drawing by a program, or by this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GraphicsSpec {
    /// x11perf, with the X server that is started for it.
    X11perf(ExecSpec),
    /// Threads of this program draw on a graphics device.
    Device(Events<GraphicsPlan>),
}

impl GraphicsSpec {
    pub(crate) fn resolve(plan: &GraphicsPlan, place: &LoadPlace<'_>) -> Result<Self, LoadError> {
        match plan.method {
            GraphicsMethod::X11perf => x11perf(plan, place).map(Self::X11perf),
            GraphicsMethod::Auto => Self::first(plan, place),
            GraphicsMethod::DrmDraw | GraphicsMethod::DrmFlip => {
                Events::resolve(plan, place).map(Self::Device)
            }
        }
    }
}

impl GraphicsSpec {
    /// x11perf; without it, or without a server for it, the same drawing on a graphics device.
    fn first(plan: &GraphicsPlan, place: &LoadPlace<'_>) -> Result<Self, LoadError> {
        let drawn = x11perf(plan, place).map(Self::X11perf)?;
        let Err(missing) = drawn.validate() else { return Ok(drawn) };
        let plan = GraphicsPlan { method: GraphicsMethod::DrmDraw, ..plan.clone() };
        let device = Self::Device(Events::resolve(&plan, place)?);
        match device.validate() {
            Ok(()) => Ok(device),
            Err(error) => Err(LoadError::Unavailable(format!("{missing}; {error}"))),
        }
    }
}

fn x11perf(plan: &GraphicsPlan, place: &LoadPlace<'_>) -> Result<ExecSpec, LoadError> {
    let running = std::env::var("DISPLAY").ok().filter(|display| !display.is_empty());
    let server = plan.server.clone().or(running).unwrap_or_else(|| "xvfb".to_owned());
    let cpus = plan.server_cpus.as_ref().map(|cpus| place.cpus("server_cpus", cpus)).transpose()?;
    let mut command = vec!["x11perf".to_owned()];
    let started = |program: &str, arguments: &[&str]| ServerSpec {
        program: program.to_owned(),
        arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
        cpus,
    };
    let server = match server.as_str() {
        "xvfb" => Some(started("Xvfb", &["-screen", "0", "1280x1024x24"])),
        "xorg" => {
            refuse_a_display_in_use(plan)?;
            Some(started("Xorg", &[]))
        }
        display => {
            command.extend(["-display", display].map(str::to_owned));
            None
        }
    };
    let rounds = if plan.tests.len() == 1 { ROUNDS.0 } else { ROUNDS.1 };
    command.extend(["-repeat", rounds, "-time", "1"].map(str::to_owned));
    command.extend(plan.sync.then(|| "-sync".to_owned()));
    command.extend(plan.tests.iter().map(|test| format!("-{test}")));
    Ok(ExecSpec {
        command,
        cpus: Some(place.cpus("cpus", &plan.cpus)?),
        // Set when the load is started.
        output: PathBuf::new(),
        rate_pattern: Some(RATE.to_owned()),
        rate_unit: "operations_per_s".to_owned(),
        restart: true,
        calibrated: Some(Nanos::from_secs(1)),
        server,
    })
}

/// Xorg takes the display of a card.
fn refuse_a_display_in_use(plan: &GraphicsPlan) -> Result<(), LoadError> {
    if plan.yes_draw_on_my_screen {
        return Ok(());
    }
    for path in Card::paths().unwrap_or_default() {
        if let Ok(card) = Card::open(&path)
            && Display::find(&card).is_ok_and(|display| display.is_in_use())
        {
            return Err(in_use(&path.display().to_string()));
        }
    }
    Ok(())
}

/// A display shows something that the load would draw over.
fn in_use(what: &str) -> LoadError {
    LoadError::Unavailable(format!(
        "the graphics load: the display of {what} is in use; confirm with `--yes-draw-on-my-screen` (in a plan \
         `yes_draw_on_my_screen = true`), or choose another device"
    ))
}

impl GraphicsSpec {
    fn work(&self) -> &dyn Work {
        match self {
            Self::X11perf(spec) => spec,
            Self::Device(spec) => spec,
        }
    }
}

impl Work for GraphicsSpec {
    fn unit(&self) -> &str {
        self.work().unit()
    }

    fn cpus(&self) -> Option<&CpuSet> {
        self.work().cpus()
    }

    fn grace(&self) -> Duration {
        self.work().grace()
    }

    fn set_output(&mut self, path: PathBuf) {
        if let Self::X11perf(spec) = self {
            spec.set_output(path);
        }
    }

    fn validate(&self) -> Result<(), LoadError> {
        self.work().validate().map_err(|error| match error {
            LoadError::CommandNotFound { command, .. } => {
                let package = match command.as_str() {
                    "x11perf" => "x11-apps",
                    "Xvfb" => "xvfb",
                    _ => "xserver-xorg-core",
                };
                LoadError::Unavailable(format!(
                    "the graphics load: the program {command} is missing; install it (Debian: {package})"
                ))
            }
            error => error,
        })
    }

    fn run(&self, context: &mut LoadContext) -> Result<(), LoadError> {
        self.work().run(context)
    }
}
