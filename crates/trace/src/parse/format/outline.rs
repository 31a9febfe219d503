//! The format of an event of which only name and number are read so far.
//!
//! A kernel has some two thousand events, and a trace has records of a few: reading the fields of all of them takes
//! longer than reading a short trace.

use super::{EventFormat, FormatError, parse};

/// A format file, and what is at its head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The system of the event: `sched`; empty where the source does not tell.
    pub system: String,
    /// Its name: `sched_switch`.
    pub name: String,
    /// The number that `common_type` has in records of this event.
    pub id: u16,
    text: String,
}

impl Outline {
    /// Reads the head of a format file. `system` is the folder that it was in.
    ///
    /// # Errors
    /// [`FormatError`] when the text has no name or no ID.
    pub fn parse(system: &str, text: String) -> Result<Self, FormatError> {
        let (name, id) = parse::head(&text)?;
        Ok(Self { system: system.to_owned(), name: name.to_owned(), id, text })
    }

    /// The whole format.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a field that cannot be understood.
    pub fn format(&self) -> Result<EventFormat, FormatError> {
        EventFormat::parse(&self.system, &self.text)
    }

    /// `system:name`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.system, self.name)
    }
}
