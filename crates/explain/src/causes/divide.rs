//! From the pieces of a spike's window to its causes: pieces of the same kind and actor are added up. The largest sum is the
//! cause, the others contributed.

use crate::blame::piece::Piece;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use whylate_core::order::InOrder;
use whylate_core::result::{Cause, CauseKind};

/// A cause below this part of the latency is dropped: the rest is unattributed.
const CAUSE_LEAST: f64 = 0.15;
/// Contributors below this part of the latency are left out.
const ALSO_LEAST: f64 = 0.01;
/// At most this many contributors are named.
const ALSO_MAX: usize = 8;
/// A stretch with this part of a cause's time represents the cause.
const STRETCH_LEAST: f64 = 0.8;
/// A cause that has this part of the time from its first to its last moment was merely interrupted.
const WHOLE_LEAST: f64 = 0.6;

/// Pieces that count together; there is at least one.
pub(crate) struct Group<'p, D> {
    pub(crate) kind: CauseKind,
    pub(crate) pieces: Vec<&'p Piece<D>>,
    pub(crate) time: u64,
}

/// The pieces by who had the CPU, the longest time first. Equal ones are in the order of their kinds, so that unexplained
/// time comes after explained time of the same length.
pub(crate) fn groups<D>(pieces: &[Piece<D>]) -> Vec<Group<'_, D>> {
    let mut groups: Vec<Group<'_, D>> = Vec::new();
    let mut places = HashMap::new();
    for piece in pieces {
        let Some(kind) = piece.blame.kind else { continue };
        let place = *places.entry(piece.blame.who()).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Group { kind, pieces: Vec::new(), time: 0 });
        }
        groups[place].time += piece.length();
        groups[place].pieces.push(piece);
    }
    groups.order_by_key(|group| (Reverse(group.time), group.kind, group.pieces[0].from));
    groups
}

impl<D> Group<'_, D> {
    /// The longest piece; the last one among equals.
    pub(crate) fn longest(&self) -> &Piece<D> {
        self.pieces.iter().max_by_key(|piece| piece.length()).unwrap_or(&self.pieces[0])
    }

    /// Start, end and time of the stretches without a gap.
    pub(crate) fn stretches(&self) -> Vec<(u64, u64, u64)> {
        let mut stretches: Vec<(u64, u64, u64)> = Vec::new();
        for piece in &self.pieces {
            match stretches.last_mut() {
                Some((_, to, time)) if *to == piece.from => (*to, *time) = (piece.to, *time + piece.length()),
                _ => stretches.push((piece.began, piece.to, piece.length())),
            }
        }
        stretches
    }

    /// Start and end: of the whole, or of its longest stretch if that has nearly all of its time.
    fn extent(&self) -> (u64, u64) {
        let stretches = self.stretches();
        let from = stretches.iter().map(|stretch| stretch.0).min().unwrap_or_default();
        let to = stretches.iter().map(|stretch| stretch.1).max().unwrap_or_default();
        let is_whole = self.time as f64 >= WHOLE_LEAST * to.saturating_sub(from) as f64;
        let longest = stretches.iter().max_by_key(|stretch| stretch.2);
        match longest.filter(|stretch| stretch.2 as f64 >= STRETCH_LEAST * self.time as f64) {
            Some((from, to, _)) if !is_whole => (*from, *to),
            _ => (from, to),
        }
    }

    /// Makes it a cause, for a latency of this many nanoseconds. The confidence is that of the longest piece: a short piece
    /// that is certain does not make a long one certain.
    pub(crate) fn cause(&self, latency_ns: u64) -> Cause {
        let first = &self.pieces[0].blame;
        let (from, to) = self.extent();
        let mut cause = Cause {
            actor: first.actor.clone(),
            pid: first.pid,
            delayed: first.delayed.clone(),
            function: first.function.clone(),
            from_ns: Some(from),
            to_ns: Some(to),
            share: Some((self.time as f64 / latency_ns.max(1) as f64).clamp(0.0, 1.0)),
            ..Cause::new(self.kind)
        };
        let blames = || self.pieces.iter().map(|piece| &piece.blame);
        cause.callers =
            blames().map(|blame| &blame.callers).find(|it| !it.is_empty()).cloned().unwrap_or_default();
        if self.kind != CauseKind::Unattributed {
            cause.confidence = Some(self.longest().blame.confidence);
        }
        let mut known = HashSet::new();
        for evidence in blames().map(|blame| &blame.evidence).filter(|evidence| !evidence.is_empty()) {
            if known.insert(evidence.as_ref()) {
                cause.evidence.push(evidence.clone().into_owned());
            }
        }
        cause
    }
}

/// Lowers the confidence of a cause, and says why.
pub(crate) fn lower(cause: &mut Cause, factor: f64, reason: String) {
    if let Some(confidence) = &mut cause.confidence {
        *confidence = (*confidence * factor * 100.0).round() / 100.0;
        cause.evidence.push(reason);
    }
}

/// The main one of the causes, which are sorted by share, largest first; `None` if none explains enough.
pub(crate) fn main_of(causes: &[Cause]) -> Option<usize> {
    let share = |cause: &Cause| cause.share.unwrap_or(0.0);
    let explains = |cause: &Cause| cause.kind != CauseKind::Unattributed;
    let unexplained: f64 = causes.iter().filter(|cause| !explains(cause)).map(share).sum();
    let missing = 1.0 - causes.iter().map(share).sum::<f64>();
    let is_main = |cause: &Cause| {
        explains(cause)
            && share(cause) >= unexplained
            && (share(cause) >= CAUSE_LEAST || share(cause) >= missing)
    };
    let is_unexplained = || causes.first().is_some_and(|cause| !explains(cause)).then_some(0);
    causes.iter().position(is_main).or_else(is_unexplained)
}

/// The main cause, and the others that contributed.
pub(crate) fn split(mut causes: Vec<Cause>, main: Option<usize>) -> (Cause, Vec<Cause>) {
    let main = main.map_or_else(Cause::unattributed, |index| causes.remove(index));
    causes.retain(|cause| cause.share.is_some_and(|share| share >= ALSO_LEAST));
    causes.truncate(ALSO_MAX);
    (main, causes)
}
