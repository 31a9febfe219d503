//! Where an activation of a watched thread begins and ends, if not at its wake-up and its sleep.

use std::path::PathBuf;
use std::str::FromStr;

/// A place that a thread passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The start of a function of a program or library: `/usr/bin/control:step`.
    Function { path: PathBuf, function: String },
    /// A static tracepoint of a program or library: `usdt:/usr/bin/control:control:cycle_start`.
    Usdt { path: PathBuf, provider: String, name: String },
    /// Whatever the thread writes into the kernel's `trace_marker` that begins with this text: `marker:cycle begin`.
    Marker { text: String },
}

/// The file of tracefs that takes texts.
const MARKER_FILE: &str = "trace_marker";

impl Mark {
    /// How many bytes of a `trace_marker` text are compared.
    pub const TEXT_MAX: usize = 63;

    fn marker(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > Self::TEXT_MAX || text.contains('\0') {
            let length = Self::TEXT_MAX;
            return Err(format!(
                "`marker:{text}` is not a mark: TEXT has 1 to {length} bytes, none of them zero"
            ));
        }
        Ok(Self::Marker { text: text.to_owned() })
    }

    /// Whether the two marks are ambiguous: they are texts, and one begins with the other.
    pub fn is_ambiguous(begin: &Self, end: &Self) -> bool {
        match (begin, end) {
            (Self::Marker { text: begin }, Self::Marker { text: end }) => {
                begin.starts_with(end.as_str()) || end.starts_with(begin.as_str())
            }
            _ => false,
        }
    }
}

impl FromStr for Mark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |text: &str| Some(text.to_owned()).filter(|it| !it.is_empty());
        if let Some(text) = text.strip_prefix("marker:") {
            return Self::marker(text);
        }
        if let Some(meant) = meant_marker(text) {
            return Err(format!("`{text}` is not a mark: did you mean `marker:{meant}`?"));
        }
        let mark = if let Some(rest) = text.strip_prefix("usdt:") {
            let mut parts = rest.rsplitn(3, ':').filter_map(part);
            match (parts.next(), parts.next(), parts.next()) {
                (Some(name), Some(provider), Some(path)) => {
                    Some(Self::Usdt { path: path.into(), provider, name })
                }
                _ => None,
            }
        } else {
            let (path, function) = text.rsplit_once(':').unwrap_or_default();
            part(path)
                .zip(part(function))
                .map(|(path, function)| Self::Function { path: path.into(), function })
        };
        mark.ok_or_else(|| {
            format!("`{text}` is not a mark; write FILE:FUNCTION, usdt:FILE:PROVIDER:NAME or marker:TEXT")
        })
    }
}

/// The text of a mark, given by the path of the file instead of the word.
fn meant_marker(mark: &str) -> Option<&str> {
    let (path, text) = mark.split_once(':')?;
    (path.rsplit('/').next() == Some(MARKER_FILE)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whylate_testing::says;

    #[test]
    fn a_mark_is_a_function_or_a_static_tracepoint() {
        let function = Mark::Function { path: "/opt/a:b/control".into(), function: "step".to_owned() };
        assert_eq!("/opt/a:b/control:step".parse(), Ok(function));
        let (path, provider, name) = ("/usr/bin/python3".into(), "python".to_owned(), "gc__start".to_owned());
        assert_eq!("usdt:/usr/bin/python3:python:gc__start".parse(), Ok(Mark::Usdt { path, provider, name }));
        for wrong in ["", "step", ":step", "control:", "usdt:/bin/sh:begin"] {
            assert!(wrong.parse::<Mark>().unwrap_err().contains("is not a mark"), "{wrong}");
        }
    }

    #[test]
    fn a_mark_is_a_text_for_trace_marker() {
        let marker = |text: &str| Mark::Marker { text: text.to_owned() };
        assert_eq!("marker:cycle begin: 1".parse(), Ok(marker("cycle begin: 1")));
        let longest = "x".repeat(Mark::TEXT_MAX);
        assert_eq!(format!("marker:{longest}").parse(), Ok(marker(&longest)));
        for wrong in ["marker:", "marker:a\0b", &format!("marker:{longest}x")] {
            assert!(wrong.parse::<Mark>().unwrap_err().contains("1 to 63 bytes"), "{wrong}");
        }
        for wrong in ["trace_marker:tick: 1", "/sys/kernel/tracing/trace_marker:tick: 1"] {
            let error = wrong.parse::<Mark>().unwrap_err();
            assert!(says("did-you-mean-marker", &error), "{error}");
        }
    }

    #[test]
    fn two_texts_are_ambiguous_where_one_begins_with_the_other() {
        let of = |text: &str| text.parse::<Mark>().unwrap();
        let is_ambiguous = |begin, end| Mark::is_ambiguous(&of(begin), &of(end));
        assert!(
            is_ambiguous("marker:tick", "marker:tick done") && is_ambiguous("marker:tick", "marker:tick")
        );
        assert!(is_ambiguous("marker:tick done", "marker:tick"));
        assert!(!is_ambiguous("marker:tick begin", "marker:tick end"));
        assert!(!is_ambiguous("marker:tick", "/bin/a:tick"));
    }
}
