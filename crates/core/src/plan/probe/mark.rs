//! Where an activation of a watched thread begins and ends, where that is not its wake-up and its sleep.

use std::path::PathBuf;
use std::str::FromStr;

/// A place that a thread comes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The begin of a function of a program or library: `/usr/bin/control:step`.
    Function {
        /// The file.
        path: PathBuf,
        /// The name of its symbol.
        function: String,
    },
    /// A static tracepoint of a program or library: `usdt:/usr/bin/control:control:cycle_start`.
    Usdt {
        /// The file.
        path: PathBuf,
        /// Who provides it.
        provider: String,
        /// Its name.
        name: String,
    },
}

impl FromStr for Mark {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |text: &str| Some(text.to_owned()).filter(|it| !it.is_empty());
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
        mark.ok_or_else(|| format!("`{text}` is no mark: FILE:FUNCTION or usdt:FILE:PROVIDER:NAME"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_function_or_a_static_tracepoint() {
        let function = Mark::Function { path: "/opt/a:b/control".into(), function: "step".to_owned() };
        assert_eq!("/opt/a:b/control:step".parse(), Ok(function));
        let (path, provider, name) = ("/usr/bin/python3".into(), "python".to_owned(), "gc__start".to_owned());
        assert_eq!("usdt:/usr/bin/python3:python:gc__start".parse(), Ok(Mark::Usdt { path, provider, name }));
        for wrong in ["", "step", ":step", "control:", "usdt:/bin/sh:begin"] {
            assert!(wrong.parse::<Mark>().unwrap_err().contains("is no mark"), "{wrong}");
        }
    }
}
