//! From what took a CPU to the causes of a spike: a pure function.
//!
//! At each moment of the spike's window one thing has the CPU: the innermost of what the kernel recorded there, since an
//! interrupt stops a softirq and a softirq stops a thread. What is left over is explained by what is known of the moment
//! at which it ended, or by nothing. Shares are parts of the window, so those of one spike add up to at most 1.

use super::blame::{self, Context};
use super::{Activity, Recording, Segment};
use std::collections::BTreeMap;
use whylate_core::CpuId;
use whylate_core::result::{Cause, CauseKind};

/// Contributors below this share of the window are left out.
const SHARE_MIN: f64 = 0.01;
/// So many contributors are named at most.
const CAUSES_MAX: usize = 8;
/// What entering and leaving the kernel may take on each side of what was recorded, in a loop that never sleeps.
const MARGIN_NS: u64 = 1_500;
/// The same in a virtual machine, where the hypervisor lets the interrupt in and is told of its end: for an interrupt whose
/// function took 3 us this was measured as 9 us in all on a quiet host, and as 17 to 30 us on each side on another day.
const MARGIN_VIRTUAL_NS: u64 = 30_000;

/// What a probe saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The measured CPU.
    pub cpu: CpuId,
    /// When the task should have run, or when it was last seen running.
    pub from_ns: u64,
    /// When it ran again.
    pub to_ns: u64,
    /// Whether the task waited for a timer (a `timer` probe), or was running all the time (a `stall` probe).
    pub is_timer: bool,
    /// The process of the measuring threads.
    pub process: u32,
    /// Priority of the measuring thread, as tools print it; negative for an ordinary one.
    pub priority: i32,
}

/// What is known of the machine beside the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether it is a virtual machine, whose hypervisor may take the CPU unseen.
    pub is_virtual: bool,
    /// Time that the hypervisor took of the CPU around the window; absent where it does not tell.
    pub steal_ns: Option<u64>,
    /// Firmware interrupts counted around the window; absent where nobody counts them.
    pub smis: Option<u64>,
    /// The process that measures with this program: what it sends to CPUs is no doing of the machine's; 0 when there is
    /// none.
    pub own_process: u32,
    /// Devices by interrupt line.
    pub lines: BTreeMap<u32, String>,
}

/// Who it was: what tells causes apart before their time is added up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) kind: CauseKind,
    pub(crate) actor: Option<String>,
    pub(crate) pid: Option<u32>,
    pub(crate) function: Option<String>,
}

impl Who {
    pub(crate) fn new(kind: CauseKind) -> Self {
        Self { kind, actor: None, pid: None, function: None }
    }

    pub(crate) fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    pub(crate) fn pid(mut self, pid: u32) -> Self {
        self.pid = Some(pid);
        self
    }

    pub(crate) fn function(mut self, function: impl Into<String>) -> Self {
        self.function = Some(function.into());
        self
    }
}

/// What somebody took of the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) time_ns: u64,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) times: u64,
    /// The longest piece, and how sure that one is.
    longest_ns: u64,
    pub(crate) confidence: f64,
    pub(crate) callers: Vec<String>,
    pub(crate) evidence: Vec<String>,
}

/// A moment's explanation: who, how sure, and what speaks for it.
#[derive(Clone, Debug)]
pub(crate) struct Blame {
    pub(crate) who: Who,
    pub(crate) confidence: f64,
    pub(crate) callers: Vec<String>,
    pub(crate) evidence: String,
}

/// The causes of a spike, the largest share first; never empty.
pub fn decompose(window: &Window, recording: &Recording, surroundings: &Surroundings) -> Vec<Cause> {
    let length_ns = window.to_ns.saturating_sub(window.from_ns);
    if length_ns == 0 {
        return vec![Cause::unattributed()];
    }
    let context = Context::of(window, recording, surroundings);
    let mut taken: BTreeMap<Who, Taken> = BTreeMap::new();
    let margin_ns = if surroundings.is_virtual { MARGIN_VIRTUAL_NS } else { MARGIN_NS };
    for piece in pieces(window, recording, margin_ns) {
        add(&mut taken, &piece, context.blame(&piece));
    }
    let mut causes: Vec<Cause> =
        taken.into_iter().map(|(who, taken)| cause(who, &taken, length_ns, recording)).collect();
    causes.retain(|cause| cause.share.is_some_and(|share| share >= SHARE_MIN));
    causes.sort_by(|one, other| {
        let share = |cause: &Cause| cause.share.unwrap_or(0.0);
        // What explains nothing is never named before what does explain as much.
        let explains = |cause: &Cause| cause.kind != CauseKind::Unattributed;
        share(other).total_cmp(&share(one)).then_with(|| explains(other).cmp(&explains(one)))
    });
    causes.truncate(CAUSES_MAX);
    if causes.is_empty() { vec![Cause::unattributed()] } else { causes }
}

/// A stretch of the window in which one thing had the CPU.
#[derive(Clone, Debug)]
pub(crate) struct Piece<'r> {
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// What had it; `None` where nothing was recorded.
    pub(crate) segment: Option<&'r Segment>,
    /// The interrupt next to it, whose entry or exit it may be.
    pub(crate) neighbour: Option<&'r Segment>,
}

/// Cuts the window where what has the CPU changes.
fn pieces<'r>(window: &Window, recording: &'r Recording, margin_ns: u64) -> Vec<Piece<'r>> {
    let inside = |at_ns: u64| at_ns.clamp(window.from_ns, window.to_ns);
    let covering: Vec<&Segment> =
        recording.segments.iter().filter(|segment| covers_time(window, &segment.what)).collect();
    let mut cuts = vec![window.from_ns, window.to_ns];
    for segment in &recording.segments {
        cuts.extend([inside(segment.from_ns), inside(segment.to_ns)]);
        if !window.is_timer && blame::is_interrupt(&segment.what) {
            let (early, late) = (segment.from_ns.saturating_sub(margin_ns), segment.to_ns + margin_ns);
            cuts.extend([inside(early), inside(late)]);
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
    let mut pieces = Vec::with_capacity(cuts.len());
    for pair in cuts.windows(2) {
        let (from_ns, to_ns) = (pair[0], pair[1]);
        let covers = |segment: &&&Segment| segment.from_ns <= from_ns && segment.to_ns >= to_ns;
        let innermost = covering.iter().filter(covers).max_by_key(|segment| blame::rank(&segment.what));
        let is_near = |segment: &&&Segment| {
            blame::is_interrupt(&segment.what)
                && segment.from_ns.saturating_sub(margin_ns) <= from_ns
                && segment.to_ns + margin_ns >= to_ns
        };
        let distance_ns = |segment: &&&Segment| {
            from_ns.saturating_sub(segment.to_ns).max(segment.from_ns.saturating_sub(to_ns))
        };
        let near = covering.iter().filter(|_| !window.is_timer).filter(is_near);
        let neighbour = near.min_by_key(distance_ns);
        pieces.push(Piece { from_ns, to_ns, segment: innermost.copied(), neighbour: neighbour.copied() });
    }
    pieces
}

/// Whether it is something that had the CPU, or kept the measured task from it.
fn covers_time(window: &Window, what: &Activity) -> bool {
    match what {
        Activity::Lock { process, .. } => window.process != 0 && *process == window.process,
        other => blame::rank(other).is_some(),
    }
}

fn add(taken: &mut BTreeMap<Who, Taken>, piece: &Piece<'_>, blame: Blame) {
    let fresh = Taken { from_ns: piece.from_ns, ..Taken::default() };
    let entry = taken.entry(blame.who).or_insert(fresh);
    entry.time_ns += piece.to_ns - piece.from_ns;
    // What goes on where the piece before it ended is the same time.
    entry.times += u64::from(entry.to_ns != piece.from_ns);
    entry.to_ns = piece.to_ns;
    // A short piece that is certain makes no long one so.
    let piece_ns = piece.to_ns - piece.from_ns;
    if piece_ns >= entry.longest_ns {
        (entry.longest_ns, entry.confidence) = (piece_ns, blame.confidence);
    }
    if entry.callers.is_empty() {
        entry.callers = blame.callers;
    }
    if !blame.evidence.is_empty() && !entry.evidence.contains(&blame.evidence) {
        entry.evidence.push(blame.evidence);
    }
}

fn cause(who: Who, taken: &Taken, length_ns: u64, recording: &Recording) -> Cause {
    let kind = who.kind;
    let mut cause = Cause::new(kind);
    (cause.actor, cause.pid, cause.function) = (who.actor, who.pid, who.function);
    cause.callers.clone_from(&taken.callers);
    (cause.from_ns, cause.to_ns) = (Some(taken.from_ns), Some(taken.to_ns));
    cause.share = Some(taken.time_ns as f64 / length_ns as f64);
    if kind == CauseKind::Unattributed {
        return cause;
    }
    cause.evidence.clone_from(&taken.evidence);
    let times = if taken.times == 1 { String::new() } else { format!(" in {} pieces", taken.times) };
    cause.evidence.push(format!("{:.1} us{times}", taken.time_ns as f64 / 1e3));
    let mut confidence = taken.confidence;
    if recording.lost > 0 {
        confidence *= 0.5;
        cause.evidence.push(format!("{} records of that time were lost", recording.lost));
    }
    cause.confidence = Some(confidence);
    cause
}
