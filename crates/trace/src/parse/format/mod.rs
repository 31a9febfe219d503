//! Event format descriptions: the text files `events/*/*/format` of tracefs, which say at which offset of a binary
//! record each field is.
//!
//! In: such a text. Out: name and number of the event, and its [`Field`]s. The fields are read only when needed: a kernel has
//! some two thousand events, and a trace has records of a few. `print fmt` is C code and is never interpreted.

mod slot;
#[cfg(test)]
mod tests;

pub use slot::{Place, Record, Slot};

/// Description of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// Its system: `sched`; empty if the source does not say.
    pub system: String,
    /// Its name: `sched_switch`.
    pub name: String,
    /// The number that `common_type` has in records of this event.
    pub id: u16,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name: `prev_pid`.
    pub name: String,
    pub slot: Slot,
}

/// The slot of the field of that name; an unreadable one when there is none.
pub(crate) fn slot(fields: &[Field], name: &str) -> Slot {
    fields.iter().find(|field| field.name == name).map_or_else(Slot::default, |field| field.slot)
}

/// Why a format description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It has no `name:` line.
    #[error("the event format has no `name:`")]
    NoName,
    /// It has no `ID:` line with a 16-bit number.
    #[error("the format of event `{event}` has no valid `ID:`")]
    NoId { event: String },
    /// A field line lacks its declaration, offset or size.
    #[error("the field line `{line}` is not `field:TYPE NAME; offset:N; size:N; signed:N;`")]
    Field {
        /// The line, at most 100 characters of it.
        line: String,
    },
}

/// Fields whose offset is beyond this do not exist: a record of the ring buffer is at most a sub-buffer long, and
/// those are at most 512 KiB.
const OFFSET_MAX: u32 = 1 << 20;

impl EventFormat {
    /// Reads the head of a format file. `system` is the folder that it was in.
    ///
    /// # Errors
    /// [`FormatError`] when the text has no name or no ID.
    pub fn parse(system: &str, text: String) -> Result<Self, FormatError> {
        let value = |key: &str| {
            text.lines().take(16).find_map(|line| Some(line.trim_start().strip_prefix(key)?.trim()))
        };
        let name = value("name:").filter(|name| !name.is_empty()).ok_or(FormatError::NoName)?;
        let id = value("ID:").and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| FormatError::NoId { event: name.to_owned() })?;
        Ok(Self { system: system.to_owned(), name: name.to_owned(), id, text })
    }

    /// All fields, those common to all events first.
    ///
    /// # Errors
    /// [`FormatError::Field`] for a field that cannot be understood.
    pub fn fields(&self) -> Result<Vec<Field>, FormatError> {
        fields(&self.text)
    }

    /// `system:name`.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.system, self.name)
    }
}

/// Reads all field lines of a text: those of an event's format file or of `header_page`.
pub(super) fn fields(text: &str) -> Result<Vec<Field>, FormatError> {
    let lines = text.lines().map(str::trim_start).take_while(|line| !line.starts_with("print fmt:"));
    let fields = lines.filter_map(|line| {
        // `field special:` is an old spelling of fields without a plain type.
        let rest = line.strip_prefix("field:").or_else(|| line.strip_prefix("field special:"))?;
        Some(field(rest).ok_or_else(|| FormatError::Field { line: line.chars().take(100).collect() }))
    });
    fields.collect()
}

/// `TYPE NAME; offset:8; size:16; signed:0;`.
fn field(line: &str) -> Option<Field> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?;
    let (mut offset, mut size, mut signed) = (None, None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.trim().parse().ok(),
            Some(("size", value)) => size = value.trim().parse().ok(),
            Some(("signed", value)) => signed = Some(value.trim() == "1"),
            _ => {}
        }
    }
    let offset = offset.filter(|offset| *offset <= OFFSET_MAX)?;
    let size = size.filter(|size| *size <= OFFSET_MAX)?;
    let (place, rest) = match declaration.split_once(' ') {
        Some(("__data_loc", rest)) => (Some(Place::DataLocation), rest),
        Some(("__rel_loc", rest)) => (Some(Place::RelativeLocation), rest),
        _ => (None, declaration),
    };
    // The brackets of `__data_loc char[] name` are part of the type.
    let (before, is_array) = match rest.trim().split_once('[') {
        Some((before, brackets)) if place.is_none() => {
            brackets.contains(']').then_some(())?;
            (before.trim_end(), true)
        }
        _ => (rest.trim(), false),
    };
    let place = place.unwrap_or(match size {
        _ if is_array => Place::Array,
        1 | 2 | 4 | 8 => Place::Number,
        _ => Place::Nothing,
    });
    let name = before.rsplit(|letter: char| !(letter.is_alphanumeric() || letter == '_')).next()?;
    let type_name =
        before.strip_suffix(name).filter(|type_name| !type_name.is_empty() && !name.is_empty())?;
    // Kernels before 2.6.33 do not say the sign.
    let signed = signed.unwrap_or_else(|| !type_name.contains("unsigned") && type_name.contains("int"));
    Some(Field { name: name.to_owned(), slot: Slot { offset, size, signed, place } })
}
