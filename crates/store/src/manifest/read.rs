//! Reading the manifest, even if it is truncated or altered.

use super::{CHAIN, Entry, FILE, FORMAT, FORMAT_BEFORE, Flush, Listed, chained};
use crate::folder::Folder;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use whylate_core::result::{RunState, Verdict};

#[derive(Debug, Default)]
pub(crate) struct Manifest {
    flushes: BTreeMap<u32, Flush>,
    /// Segments whose rows are in a later one.
    replaced: BTreeSet<u32>,
    /// For a segment that replaces others, the oldest of those: its place in time.
    places: BTreeMap<u32, u32>,
    /// The first segment of each process that wrote, and the last one that it listed.
    sessions: Vec<(u32, u32)>,
    /// The newest `run.json` and the one before it.
    infos: (Option<String>, Option<String>),
    /// The other files, if its last line seals the run.
    pub(crate) sealed: Option<Vec<Listed>>,
    /// The verdict of the result that the seal covers.
    pub(crate) verdict: Option<Verdict>,
    pub(crate) problems: Vec<String>,
    pub(super) len: u64,
    /// The hash of the last of them.
    pub(super) chain: String,
}

/// Where a segment comes from.
#[derive(Debug, PartialEq)]
pub(crate) enum Origin<'m> {
    Listed(&'m Flush),
    /// A later segment has its rows: a killed process did not remove it.
    Replaced,
    /// An earlier version wrote it, without a manifest.
    Unlisted,
    /// A flush that a killed process did not finish.
    CutOff,
    /// It does not belong to the run.
    Extra,
}

impl Manifest {
    /// Reads the manifest of the run `run` in its folder; `None` where there is none.
    pub(crate) fn read(folder: &Folder, run: &str) -> io::Result<Option<Self>> {
        let Some(text) = folder.read(FILE)? else { return Ok(None) };
        let mut manifest = Self::default();
        for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
            // The last line of a killed run may be cut off: its entries do not count yet.
            let Some(line) = line.strip_suffix(b"\n") else { break };
            if let Err(problem) = manifest.add_line(line, run) {
                manifest.problems.push(format!("line {number} {problem}"));
            }
            manifest.len += line.len() as u64 + 1;
        }
        Ok(Some(manifest))
    }

    fn add_line(&mut self, line: &[u8], run: &str) -> Result<(), String> {
        let bad = || "is not a line of a manifest".to_owned();
        let line = str::from_utf8(line).map_err(|_| bad())?;
        let (body, end) = line.rsplit_once(CHAIN).ok_or_else(bad)?;
        let chain = end.strip_suffix("\"}").ok_or_else(bad)?;
        let text = format!("{body}}}");
        let expected = chained(&self.chain, &text);
        chain.clone_into(&mut self.chain);
        let entry = serde_json::from_str(&text).map_err(|error| format!("cannot be read: {error}"));
        // Its entries are still read, so that more of the run is found, but none counts as whole.
        let added = entry.and_then(|entry| self.add(entry, run));
        let is_whole = expected == chain;
        added.and(if is_whole {
            Ok(())
        } else {
            Err("was altered, or lines before it are missing".to_owned())
        })
    }

    fn add(&mut self, entry: Entry, run: &str) -> Result<(), String> {
        (self.sealed, self.verdict) = (None, None);
        match entry {
            Entry::Begun { format, .. } if ![FORMAT, FORMAT_BEFORE].contains(&format.as_str()) => {
                return Err(format!("has the format `{format}`; this version reads `{FORMAT}`"));
            }
            Entry::Begun { run: of, .. } if of != run => {
                return Err(format!("belongs to another run, `{of}`"));
            }
            Entry::Begun { first_segment, .. } => {
                self.sessions.push((first_segment, first_segment.saturating_sub(1)));
            }
            Entry::Info { sha256 } => self.infos = (Some(sha256), self.infos.0.take()),
            Entry::Flushed(flush) => {
                if let Some((_, last)) = self.sessions.last_mut() {
                    *last = flush.segment.max(*last);
                }
                let number = flush.segment;
                if let Some(unknown) = flush.replaces.iter().find(|old| self.flushes.remove(old).is_none()) {
                    return Err(format!("replaces segment {unknown}, which is not listed"));
                }
                self.replaced.extend(&flush.replaces);
                if let Some(oldest) = flush.replaces.iter().map(|old| self.place(*old)).min() {
                    self.places.insert(number, oldest);
                }
                if self.flushes.insert(number, flush).is_some() {
                    return Err(format!("lists segment {number} again"));
                }
            }
            Entry::Sealed { files, verdict } => (self.sealed, self.verdict) = (Some(files), verdict),
            Entry::Other => {}
        }
        Ok(())
    }

    /// The position of a segment in time: one that replaces others takes the place of the oldest of them.
    pub(crate) fn place(&self, number: u32) -> u32 {
        self.places.get(&number).copied().unwrap_or(number)
    }

    /// How many segments became part of others.
    pub(crate) fn replaced(&self) -> usize {
        self.replaced.len()
    }

    /// Numbers of the segments that it lists.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.flushes.keys().copied()
    }

    /// Whether it lists nothing: its first line is not that of a manifest.
    pub(crate) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether every segment of the run is listed.
    pub(crate) fn is_whole(&self) -> bool {
        self.sessions.first().is_some_and(|(first, _)| *first <= 1)
    }

    /// The first segment that it lists, or would list.
    pub(crate) fn first_segment(&self) -> u32 {
        self.sessions.first().map_or(1, |(first, _)| *first)
    }

    /// Where the segment of that number comes from.
    pub(crate) fn origin(&self, number: u32) -> Origin<'_> {
        if let Some(flush) = self.flushes.get(&number) {
            return Origin::Listed(flush);
        }
        if self.replaced.contains(&number) {
            return Origin::Replaced;
        }
        if self.sessions.first().is_some_and(|(first, _)| number < *first) {
            return Origin::Unlisted;
        }
        // The single flush that the process was writing when it was killed.
        let is_cut_off = |(index, (_, last)): (usize, &(u32, u32))| {
            let is_last = index + 1 == self.sessions.len();
            number == last.saturating_add(1) && !(is_last && self.sealed.is_some())
        };
        if self.sessions.iter().enumerate().any(is_cut_off) { Origin::CutOff } else { Origin::Extra }
    }

    /// Whether it is the hash of the newest `run.json`. A file that does not record the end of the run may be the one
    /// before: the process was killed before it renamed the newest into place.
    pub(crate) fn is_info(&self, sha256: &str, state: RunState) -> bool {
        let is = |known: &Option<String>| known.as_deref() == Some(sha256);
        is(&self.infos.0) || (state == RunState::Running && is(&self.infos.1))
    }
}
