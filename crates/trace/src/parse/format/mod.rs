//! Event format descriptions: the text files `events/*/*/format` of tracefs, which say at which offset of a binary
//! record each field is.
//!
//! In: such a text. Out: [`EventFormat`], whose [`Field`]s read numbers, texts and arrays from a record, by offset,
//! size and signedness. `print fmt` is C code and is never interpreted.

mod field;
mod outline;
mod parse;

pub use field::{Field, Placement};
pub use outline::Outline;
pub use parse::{FormatError, fields};

/// Description of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// Its system: `sched`; empty where the source does not tell.
    pub system: String,
    /// Its name: `sched_switch`.
    pub name: String,
    /// The number that `common_type` has in records of this event.
    pub id: u16,
    /// All fields, those common to all events first.
    pub fields: Vec<Field>,
}

impl EventFormat {
    /// Reads a format file. `system` is the folder that it was in.
    ///
    /// # Errors
    /// [`FormatError`] when the text has no name, no ID, or a field that cannot be understood.
    pub fn parse(system: &str, text: &str) -> Result<EventFormat, FormatError> {
        parse::event(system, text)
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// `system:name`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.system, self.name)
    }
}
