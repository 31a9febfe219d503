//! Plans: what to measure, under which loads, for how long, how often, against which limit.
//!
//! A plan is a TOML file. [`Plan::parse`] reads one, applies `--set` overrides and checks everything that can be
//! checked without knowing the machine; each error says file, line, column, key and what would be right.

mod check;
mod copies;
mod document;
mod flag;
mod hint;
mod kinds;
mod load;
mod overrides;
mod probe;
mod question;
mod size;
mod trace;
mod treatment;

pub mod builtin;

pub use copies::CopiesPlan;
pub use document::{Place, PlanError, Source};
pub use flag::{EXAMPLES, FLAG, Flag};
pub use kinds::{KeyError, Words};
pub use load::{
    BarrierReach, BufferSource, ConsolePlan, CopyPlan, EventPace, ExecPlan, FramebufferAccess,
    FramebufferPlan, FramebufferVariant, GpuApi, GpuMemory, GpuPlan, GpuWait, GpuWork, GraphicsMethod,
    GraphicsPlan, IpiPlan, IrqSource, IrqThreadPlan, LoadKind, LoadPlan, MemoryAccess, MemoryPlan, Pace,
    PageattrPlan, SoftirqPlan, TlbPlan,
};
pub use probe::*;
pub use question::{AnswerPlan, CellReference, Expected, Order, SeriesStatistic, Share, Statistic};
pub use size::{ASSUMED_LAST_LEVEL, Size, SizeError};
pub use trace::{TracePlan, TraceProfile, TraceWhen};
pub use treatment::*;

pub(crate) use flag::without_flags;

use crate::SeriesName;
use crate::cpus::CpuSelector;
use crate::result::HistogramSource;
use crate::units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What starting and ending a probe takes, with the search for causes: measured with `quick` on 2 CPUs.
const PROBE_START: Nanos = Nanos(250_000_000);

/// A plan: one experiment.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The plan's name: letters, digits, `-` and `_`.
    pub name: String,
    /// The question that the plan answers.
    pub question: Option<String>,
    /// How long each probe measures in each repeat of each cell.
    #[serde(default = "default_duration")]
    pub duration: Nanos,
    /// Number of times that each cell runs; the cells are interleaved (see `order`).
    #[serde(default = "default_repeats")]
    pub repeats: u32,
    /// Pause between the start of the loads and the first probe.
    #[serde(default = "default_settle")]
    pub settle: Nanos,
    /// How long each probe runs before its samples count.
    #[serde(default = "default_warmup")]
    pub warmup: Nanos,
    /// Length of the stall check without load right before each repeat of a cell, which gives the noise floor; `0s`
    /// leaves the check out.
    #[serde(default = "default_noise_floor")]
    pub noise_floor: Nanos,
    /// Length of a stored interval; by default a sixtieth of the duration, at least 1s, at most 60s.
    pub interval: Option<Nanos>,
    /// Time limit of a repeat of a cell: a longer repeat is stopped and counts as failed; by default twice the expected
    /// time plus a minute.
    pub timeout: Option<Nanos>,
    /// Limit: a latency above this makes the verdict `fail`.
    pub limit: Option<Nanos>,
    /// The primary statistic, by which cells are compared. By default the maximum of the first probe if there is a
    /// limit, otherwise its 0.999 quantile (for `stall` the lost share).
    pub primary: Option<SeriesStatistic>,
    /// The smallest relative change that matters; a smaller change counts as equivalent.
    #[serde(default = "default_margin")]
    pub margin: Share,
    /// Order in which the repeats run.
    #[serde(default = "default_order")]
    pub order: Order,
    /// Seed of the random order; by default a new seed in each run.
    pub seed: Option<u64>,
    /// The cell that all other cells are compared with; by default each cell is compared with the cells that have one
    /// treatment or load fewer.
    pub baseline: Option<String>,
    /// Whether kernel events on the measured CPUs are recorded, so that each spike has a cause. If recording is not
    /// possible, the run warns and measures without causes.
    #[serde(default)]
    pub causes: bool,
    /// Source of the causes; by default BPF programs (`bpf`), or the trace buffer (`tracefs`) if BPF programs are not
    /// possible.
    pub causes_from: Option<HistogramSource>,
    /// Latencies of `timer` from this value upwards count as late time, which is summed by cause; by default half of
    /// the limit, or 50 us without a limit.
    pub late_above: Option<Nanos>,
    /// Where to measure.
    #[serde(default)]
    pub target: Target,
    /// Which spikes are kept as traces; by default none.
    #[serde(default)]
    #[schemars(schema_with = "trace::word_or_section")]
    pub trace: Option<TracePlan>,
    /// The copy measurements at the start of the run; by default none.
    pub copies: Option<CopiesPlan>,
    /// The probes.
    pub probe: Vec<ProbePlan>,
    /// The loads.
    #[serde(default)]
    pub load: Vec<LoadPlan>,
    /// The settings of the machine that cells change; they are restored afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub treatment: Vec<TreatmentPlan>,
    /// Combinations of loads and treatments; each is a cell.
    #[serde(default)]
    pub cell: Vec<CellPlan>,
    /// The questions of the experiment, each answered by comparing two cells; by default each compared pair is a
    /// question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answer: Vec<AnswerPlan>,
    /// Keys with other values for `--short`, named as in the rest of the plan: `duration = "1s"`, `load.l3.rate =
    /// "1GB/s"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub short: BTreeMap<String, serde_json::Value>,
}

/// Where to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The measured CPUs.
    pub cpus: CpuSelector,
}

impl Default for Target {
    fn default() -> Self {
        Self { cpus: CpuSelector::Last }
    }
}

/// One combination of loads and treatments.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellPlan {
    /// Name of the cell; by default its loads and treatments joined by `+`, or `idle`.
    pub name: Option<String>,
    /// Names of loads.
    #[serde(default)]
    pub loads: Vec<String>,
    /// Names of treatments, in the order in which they are applied.
    #[serde(default)]
    pub treatments: Vec<String>,
    /// Whether causes are recorded in this cell (only in a plan with `causes = true`); recording adds latency.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub causes: bool,
}

impl Default for CellPlan {
    fn default() -> Self {
        Self { name: None, loads: Vec::new(), treatments: Vec::new(), causes: true }
    }
}

impl CellPlan {
    /// The given name, or the one made from its contents.
    pub fn name(&self) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let parts: Vec<&str> = self.loads.iter().chain(&self.treatments).map(String::as_str).collect();
        if parts.is_empty() { "idle".to_owned() } else { parts.join("+") }
    }
}

/// Cells for every combination of the two lists.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Sets of loads; each is combined with each set of treatments.
    #[serde(default = "one_empty_set")]
    loads: Vec<Vec<String>>,
    /// Sets of treatments.
    #[serde(default = "one_empty_set")]
    treatments: Vec<Vec<String>>,
}

impl Matrix {
    fn cells(self) -> Vec<CellPlan> {
        let pairs = self.treatments.iter().flat_map(|treatments| {
            self.loads.iter().map(|loads| CellPlan {
                name: None,
                loads: loads.clone(),
                treatments: treatments.clone(),
                causes: true,
            })
        });
        pairs.collect()
    }
}

fn one_empty_set() -> Vec<Vec<String>> {
    vec![Vec::new()]
}
fn yes() -> bool {
    true
}
fn default_duration() -> Nanos {
    Nanos::from_secs(60)
}
fn default_repeats() -> u32 {
    8
}
fn default_margin() -> Share {
    Share(0.05)
}
fn default_order() -> Order {
    Order::Shuffled
}
fn default_settle() -> Nanos {
    Nanos::from_millis(500)
}
fn default_warmup() -> Nanos {
    Nanos::from_millis(100)
}
fn default_noise_floor() -> Nanos {
    Nanos::from_millis(500)
}

impl Plan {
    /// A longer duration is refused, and this one means until the run is ended: longer than any uptime, short enough that sums do
    /// not overflow.
    pub const ENDLESS: Nanos = Nanos::from_secs(400 * 86_400);

    /// Whether this plan looks for causes in the cell of that name. An empty ledger of a cell without the search says nothing.
    pub fn looks_for_causes(&self, cell: &str) -> bool {
        self.causes && self.cell.iter().find(|it| it.name() == cell).is_none_or(|it| it.causes)
    }

    /// Samples above it count as spikes: the limit, or 100 us.
    pub fn spikes_above(&self) -> Nanos {
        self.limit.unwrap_or(Nanos::from_micros(100))
    }

    /// The threshold of the ledger. It is the same in all cells, so that they can be compared. It is never below 10
    /// us, because there the recording itself matters.
    pub fn late_above(&self) -> Nanos {
        let default = || self.limit.map_or(Nanos::from_micros(50), |limit| Nanos(limit.0 / 2));
        self.late_above.unwrap_or_else(default).max(Nanos::from_micros(10))
    }

    /// A plan of that name with all defaults: no probes, no cells.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            question: None,
            duration: default_duration(),
            repeats: default_repeats(),
            settle: default_settle(),
            warmup: default_warmup(),
            noise_floor: default_noise_floor(),
            interval: None,
            timeout: None,
            limit: None,
            primary: None,
            margin: default_margin(),
            order: default_order(),
            seed: None,
            baseline: None,
            causes: false,
            causes_from: None,
            late_above: None,
            target: Target::default(),
            trace: None,
            copies: None,
            probe: Vec::new(),
            load: Vec::new(),
            treatment: Vec::new(),
            cell: Vec::new(),
            answer: Vec::new(),
            short: BTreeMap::new(),
        }
    }

    /// Reads a plan, applies `overrides` (`path=value`, in order), fills in the cells and checks it.
    ///
    /// # Errors
    /// [`PlanError`] for the first thing that is wrong.
    pub fn parse(source: &Source<'_>, overrides: &[String]) -> Result<Self, PlanError> {
        let plan = document::Document::parse(source, overrides, false)?.decode()?;
        if !plan.short.is_empty() {
            Self::parse_short(source, overrides)?;
        }
        Ok(plan)
    }

    /// The same in its short form: with the values of its section `[short]`.
    ///
    /// # Errors
    /// [`PlanError`] also for a plan without that section.
    pub fn parse_short(source: &Source<'_>, overrides: &[String]) -> Result<Self, PlanError> {
        document::Document::parse(source, overrides, true)?.decode()
    }

    /// Allows its loads to draw where a display shows it.
    pub fn allow_drawing(&mut self) {
        self.load.iter_mut().for_each(|load| load.kind.allow_drawing());
    }

    /// Length of a stored interval.
    pub fn stored_interval(&self) -> Nanos {
        let sixtieth = Nanos(self.duration.0 / 60);
        self.interval.unwrap_or_else(|| sixtieth.clamp(Nanos::from_secs(1), Nanos::from_secs(60)))
    }

    /// How long one repeat of a cell should take: its probes one after another, and the start of each. Treatments and
    /// slow loads take longer.
    pub fn repeat_duration(&self) -> Nanos {
        let is_companion =
            |probe: &&ProbePlan| SeriesName::of(probe.kind()).facts().is_some_and(|facts| facts.companion);
        let companions = self.probe.iter().filter(is_companion).count();
        // Companions measure while each of the others does.
        let turns = match self.probe.len() - companions {
            0 => companions,
            others => others,
        } as u64;
        let starts = turns + u64::from(self.noise_floor.0 > 0);
        Nanos(
            turns
                .saturating_mul(self.duration.0.saturating_add(self.warmup.0))
                .saturating_add(self.settle.0)
                .saturating_add(self.noise_floor.0)
                .saturating_add(starts.saturating_mul(PROBE_START.0)),
        )
    }

    /// The time after which a repeat of a cell is stopped.
    pub fn repeat_timeout(&self) -> Nanos {
        self.timeout.unwrap_or_else(|| {
            Nanos(self.repeat_duration().0.saturating_mul(2).saturating_add(60_000_000_000))
        })
    }

    /// The treatment of that name.
    pub fn treatment(&self, name: &str) -> Option<&TreatmentPlan> {
        self.treatment.iter().find(|treatment| treatment.name == name)
    }

    /// The load of that name.
    pub fn load(&self, name: &str) -> Option<&LoadPlan> {
        self.load.iter().find(|load| load.name == name)
    }
}
