//! Reads the text of a format file.

use super::{EventFormat, Field, Placement};

/// Why a format description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It has no `name:` line.
    #[error("the event format has no `name:`")]
    NoName,
    /// It has no `ID:` line, or what is there is no 16-bit number.
    #[error("the format of event `{event}` has no valid `ID:`")]
    NoId {
        /// The event.
        event: String,
    },
    /// A field line lacks its declaration, offset or size.
    #[error("the field line `{line}` is not `field:TYPE NAME; offset:N; size:N; signed:N;`")]
    Field {
        /// The line, at most 100 characters of it.
        line: String,
    },
}

/// Fields whose offset is beyond this do not exist: a record of the ring buffer is at most a sub-buffer long, and
/// those are at most 512 KiB.
const OFFSET_MAX: usize = 1 << 20;

/// Reads a whole format file.
pub(super) fn event(system: &str, text: &str) -> Result<EventFormat, FormatError> {
    let (name, id) = head(text)?;
    Ok(EventFormat { system: system.to_owned(), name: name.to_owned(), id, fields: fields(text)? })
}

/// Name and id of the event whose format file begins so.
pub(super) fn head(text: &str) -> Result<(&str, u16), FormatError> {
    let value =
        |key: &str| text.lines().take(16).find_map(|line| Some(line.trim_start().strip_prefix(key)?.trim()));
    let name = value("name:").filter(|name| !name.is_empty()).ok_or(FormatError::NoName)?;
    let id = value("ID:").and_then(|id| id.parse().ok());
    Ok((name, id.ok_or_else(|| FormatError::NoId { event: name.to_owned() })?))
}

/// Reads all field lines of a text: those of an event's format file or of `header_page`.
///
/// # Errors
/// [`FormatError::Field`] for a line that begins like a field and is none.
pub fn fields(text: &str) -> Result<Vec<Field>, FormatError> {
    let mut fields = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with("print fmt:") {
            break;
        }
        // `field special:` is an old spelling of fields without a plain type.
        let Some(rest) = line.strip_prefix("field:").or_else(|| line.strip_prefix("field special:")) else {
            continue;
        };
        let field = field(rest);
        fields.push(field.ok_or_else(|| FormatError::Field { line: line.chars().take(100).collect() })?);
    }
    Ok(fields)
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
    let (name, type_name, brackets, placement) = declared(declaration)?;
    // Kernels before 2.6.33 do not tell the sign.
    let signed = signed.unwrap_or_else(|| !type_name.contains("unsigned") && type_name.contains("int"));
    // `__data_loc char[] name`: the brackets are part of the type, and the length is in the record.
    let elements =
        brackets.and_then(|text| text.trim().parse().ok()).filter(|_| placement == Placement::Inline);
    let array = brackets.is_some() || placement != Placement::Inline;
    // Some kernels write the length as the name of a constant (`char comm[TASK_COMM_LEN]`).
    let elements = elements.or_else(|| (array && type_name.ends_with("char") && size > 0).then_some(size));
    Some(Field { name, type_name, offset, size, signed, elements, array, placement })
}

/// Name, type, what is in the array's brackets, placement.
fn declared(declaration: &str) -> Option<(String, String, Option<&str>, Placement)> {
    let (placement, rest) = if let Some(rest) = declaration.strip_prefix("__data_loc ") {
        (Placement::DataLocation, rest)
    } else if let Some(rest) = declaration.strip_prefix("__rel_loc ") {
        (Placement::RelativeLocation, rest)
    } else {
        (Placement::Inline, declaration)
    };
    let rest = rest.trim();
    let (before, brackets) = match (placement, rest.find('[')) {
        (Placement::Inline, Some(open)) => {
            let close = rest[open..].find(']')? + open;
            (rest[..open].trim_end(), Some(&rest[open + 1..close]))
        }
        _ => (rest, None),
    };
    let split = before.rfind(|letter: char| !(letter.is_alphanumeric() || letter == '_'))?;
    let after = split + before[split..].chars().next()?.len_utf8();
    let (type_name, name) = before.split_at(after);
    let type_name = type_name.trim().trim_end_matches("[]").trim_end();
    (!name.is_empty()).then(|| (name.to_owned(), type_name.to_owned(), brackets, placement))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
