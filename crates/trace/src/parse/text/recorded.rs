//! Which events were seen, for [`TraceInfo::recorded`].

use super::texts::Texts;
use crate::event::Name;
use crate::reader::TraceInfo;
use std::collections::BTreeSet;

/// Names of events beyond which they are not listed: what looks like a name can be a text.
const NAMES_MAX: usize = 4096;

/// Which events were seen.
#[derive(Default)]
pub(super) struct Recorded {
    known: u128,
    others: BTreeSet<Name>,
    marks: Vec<&'static str>,
}

impl Recorded {
    /// An event of the table, by its position in it.
    pub(super) fn known(&mut self, position: usize, full_name: &str, info: &mut TraceInfo) {
        let bit = 1u128 << (position & 127);
        if self.known & bit == 0 {
            self.known |= bit;
            info.recorded.push(full_name.to_owned());
        }
    }

    /// An event by its name alone: text does not tell the system.
    pub(super) fn other(&mut self, name: &[u8], texts: &mut Texts, info: &mut TraceInfo) {
        if self.others.len() < NAMES_MAX {
            let name = texts.intern(name);
            if self.others.insert(name) {
                info.recorded.push(texts.names().text(name).to_owned());
            }
        }
    }

    /// A line of a tracer.
    pub(super) fn mark(&mut self, name: &'static str, info: &mut TraceInfo) {
        if !self.marks.contains(&name) {
            self.marks.push(name);
            info.recorded.push(name.to_owned());
        }
    }
}
