//! Text on its way out: to a terminal, into Markdown, into an export.
//!
//! Names of threads, paths, plans and traces come from others. Their contents must not control a terminal (ESC and the
//! other control characters, C1 among them), and must not appear in another order (the overrides of the writing
//! direction). Every writer passes its text through here, once, at its edge.

/// Whether a character is invisible: a control character, or one that changes the direction of writing.
pub fn is_hidden(c: char) -> bool {
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    let is_turn =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_separator || is_turn
}

/// One line: line ends and tabs become blanks, and invisible characters are left out.
pub fn line(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c }).filter(|c| !is_hidden(*c)).collect()
}

/// The same line by line: line ends and tabs stay.
pub fn lines(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !is_hidden(*c)).collect()
}

/// A JSON document with invisible characters as escapes; its meaning is the same.
pub fn json(document: &str) -> String {
    let mut escaped = String::with_capacity(document.len());
    for c in document.chars() {
        // All of them except line ends are within strings, and in the basic multilingual plane.
        match c {
            '\n' => escaped.push(c),
            c if is_hidden(c) => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "l3\u{1b}[2J\u{9b}0mx\ny\u{202e}z\u{2066}\u{7f}\r\tend";

    #[test]
    fn nothing_that_does_not_show_gets_out() {
        assert_eq!(line(EVIL), "l3[2J0mx yz end");
        assert_eq!(lines(EVIL), "l3[2J0mx\nyz\tend");
        assert_eq!(line("µs → ½ 日本"), "µs → ½ 日本");
    }

    #[test]
    fn a_json_document_says_the_same() {
        let document = serde_json::to_string_pretty(&[EVIL]).unwrap();
        let escaped = json(&document);
        assert!(!escaped.chars().any(|c| c != '\n' && is_hidden(c)), "{escaped}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&escaped).unwrap()[0], EVIL);
    }
}
