//! Words of sentences.

/// `1 repeat`, `2 repeats`.
pub(crate) fn counted(number: impl ToString + Copy, one: &str) -> String {
    let number = number.to_string();
    format!("{number} {one}{}", if number == "1" { "" } else { "s" })
}
